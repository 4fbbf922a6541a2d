"""Fault injection: measures what fraction of single faults in the hardware the regression detects."""
