"""Execute instructions on a real GPU: generate PTX kernels, launch them, and measure cycles and energy."""
