"""Objects that show an instruction, a datapath or a step: they print as text and draw themselves in a notebook."""
