"""What an instruction, a datapath and a step look like: objects that print, and draw themselves in a notebook."""
