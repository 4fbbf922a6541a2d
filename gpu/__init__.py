"""Execute the instructions on a real GPU: kernels as PTX text, their launch, and measurements."""
