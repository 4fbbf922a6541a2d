"""Fault injection: measures how many single faults of the hardware the regression detects."""
