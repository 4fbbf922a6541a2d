"""Building blocks of pipeline stages: multipliers, adders, trees, shifters, multiplexers, and described ports."""
