"""Comparison of models: register files, stimulus, replay, campaigns, and the reduction of mismatches."""
