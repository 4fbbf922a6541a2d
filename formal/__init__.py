"""Proofs about the hardware: properties in harnesses beside the components, and what settles them."""
