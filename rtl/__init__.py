"""The RTL in Amaranth. Each pipeline stage is a file with a class of the same name; `cells` has the parts of stages."""
