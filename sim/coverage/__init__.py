"""Functional coverage: which reachable bins a regression has hit."""
