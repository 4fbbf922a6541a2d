"""Functional coverage: what a regression has exercised, out of what can be reached."""
