"""Comparison of hardware with models: recorded and random operands, campaigns (long tests), minimal reproducers."""
