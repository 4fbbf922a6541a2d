"""Parts that the stages are made of: multipliers, adders, trees, shifters, multiplexers, and described ports."""
