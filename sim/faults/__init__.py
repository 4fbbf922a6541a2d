"""Fault injection: measure how many single faults of the hardware the regression detects."""
