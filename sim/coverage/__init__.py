"""Functional coverage: counts which reachable bins of the covergroups a regression has hit."""
