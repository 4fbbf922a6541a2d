"""Proofs about the hardware: properties, which are harnesses around components, and engines that decide them."""
