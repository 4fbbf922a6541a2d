"""RTL of sparse tensor cores in Amaranth: pipeline stages, dot-product units, arrays, and the logic around arrays."""
