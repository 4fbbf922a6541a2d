"""Execute instructions on a real GPU: kernels as PTX text, kernel launches, and measurements."""
