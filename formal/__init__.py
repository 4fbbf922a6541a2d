"""Proofs about the hardware: properties in harnesses around components, and the engines that decide them."""
