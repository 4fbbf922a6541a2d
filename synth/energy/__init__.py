"""Switching energy of mapped netlists, from the toggles of simulated operands."""
