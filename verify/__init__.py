"""Comparison of hardware with models: register files, random operands, replay, campaigns and minimal reproducers."""
