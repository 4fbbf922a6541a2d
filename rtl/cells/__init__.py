"""Building blocks of pipeline stages: multipliers, adders, adder trees, shifters, multiplexers, documented ports."""
