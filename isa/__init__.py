"""Definition of the instructions: formats, metadata rules, PTX syntax, layouts, numerics parameters and timing."""
