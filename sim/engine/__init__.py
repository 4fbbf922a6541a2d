"""Back ends that run the RTL: compiled by Verilator, or in Amaranth's Python simulator."""
