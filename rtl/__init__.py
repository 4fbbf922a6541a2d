"""The hardware: Amaranth components. A stage is a file and a class of its name; the parts of stages are in `cells`."""
