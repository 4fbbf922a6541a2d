"""Placing of operands: matrices to registers, shared and tensor memory, and back. Moves bits and computes nothing."""
