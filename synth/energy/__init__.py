"""Switching energy of netlists of library cells, from toggle counts in simulations with given operands."""
