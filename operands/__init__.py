"""Copy operands between matrices and registers, shared memory or tensor memory. No values are converted."""
