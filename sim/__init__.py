"""Simulation of the hardware: engines that run it, cocotb benches, functional coverage and fault injection."""
