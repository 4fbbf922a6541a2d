"""The instructions on a real GPU: kernels as PTX text, and their launch."""
