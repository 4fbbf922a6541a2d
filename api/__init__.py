"""Python functions that compute instructions: each checks its operands and chooses a back end."""
