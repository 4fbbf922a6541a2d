"""Formal proofs about the RTL: a property is a harness with claims around a component, and an engine proves it."""
