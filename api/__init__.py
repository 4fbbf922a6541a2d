"""Instructions as Python functions: they check the operands and choose the back end that computes."""
