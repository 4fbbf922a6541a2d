"""Building blocks of the stages: multipliers, adders, trees, shifters, multiplexers, and described ports."""
