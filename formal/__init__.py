"""Formal proofs about the RTL: a property is a set of claims about a component, and an engine proves the claims."""
