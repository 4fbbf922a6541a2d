"""cocotb benches of arithmetic components, dot-product units with decoder, cores, warps, warpgroups and CTAs."""
