"""Running it: operands, register files, replay."""
