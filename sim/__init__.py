"""Simulation of the hardware: engines that run the RTL, cocotb benches, functional coverage and fault injection."""
