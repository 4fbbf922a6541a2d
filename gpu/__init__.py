"""Execute instructions on a real GPU: PTX text of kernels, kernel launches, and measurements."""
