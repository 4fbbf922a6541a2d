"""Back ends that run the RTL, either compiled by Verilator or in Amaranth's Python simulator."""
