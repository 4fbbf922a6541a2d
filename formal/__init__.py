"""Proofs about the hardware: properties, written as harnesses around components, and engines that decide them."""
