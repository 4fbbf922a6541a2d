"""The hardware as something to call: compiled by Verilator, or in Amaranth's simulator."""
