"""cocotb benches of arithmetic components, rows of dot-product units, tensor cores, warps, warpgroups and CTAs."""
