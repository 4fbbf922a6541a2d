"""Switching energy of mapped netlists, from the toggle counts of simulated operands."""
