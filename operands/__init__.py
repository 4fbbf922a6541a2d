"""Placement of operands: matrices to registers, shared memory and tensor memory, and back. Moves bits only."""
