"""Instructions as Python functions: operand checks, and the choice of a back end that computes them."""
