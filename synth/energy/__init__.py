"""Switching energy of netlists of library cells, from the toggle counts of simulated operands."""
