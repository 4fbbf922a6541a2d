"""cocotb benches of components, row, core, warp and the larger tops, with their stimulus and checkers."""
