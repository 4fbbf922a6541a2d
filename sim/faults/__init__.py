"""Fault injection: how many faulty versions of the hardware the regression tells from the right one."""
