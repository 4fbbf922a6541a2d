"""Comparison of hardware with models: register files, stimulus, replay, campaigns, and reduction of mismatches."""
