"""Fault injection: measures which fraction of single faults in the hardware the regression detects."""
