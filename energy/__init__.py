"""Switching energy of mapped netlists, from the toggles that real operands cause."""
