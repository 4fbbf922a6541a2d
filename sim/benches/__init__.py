"""cocotb benches of arithmetic components, rows (metadata decoder and unit), cores, warps, warpgroups and CTAs."""
