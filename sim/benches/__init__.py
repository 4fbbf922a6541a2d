"""cocotb benches of every component, the unit, the core and the warp; what they need besides cocotb."""
