"""Functional coverage: counts which of the reachable bins of all covergroups a regression has hit."""
