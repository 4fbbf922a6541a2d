"""Functional coverage: the bins that a regression has hit, out of those that are reachable."""
