"""Whole matrix products through one instruction, by blocks, on one back end or several."""
