"""Functional coverage: which of the reachable bins of all covergroups a regression has hit, and how often."""
