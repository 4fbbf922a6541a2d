"""The RTL in Amaranth. Each pipeline stage has its own file, named as its class; `cells` has the parts of stages."""
