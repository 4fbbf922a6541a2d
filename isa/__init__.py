"""The question: formats, granularities, metadata rules, instructions, layouts and numerics parameters."""
