"""The hardware: Amaranth components, one stage a file, in the order data meets them."""
