"""cocotb benches of combinational components, row, core, warp, warpgroup and CTA, with stimulus and checkers."""
