"""cocotb benches of every component, the row, the core and the warp; what they need besides cocotb."""
