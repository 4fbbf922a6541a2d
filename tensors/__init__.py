"""Tensors of ML software: compression to stored values and metadata, quantisation, and file formats."""

from .compressed import Compressed
from .quantise import Quantised, quantise
from .scales import from_scale_blocks, to_scale_blocks
from .software_formats import SOFTWARE_FORMATS, PackingOptions
from .sparsify import expand, sparsify

__all__ = [
    "SOFTWARE_FORMATS", "Compressed", "PackingOptions", "Quantised", "expand", "from_scale_blocks", "quantise",
    "sparsify", "to_scale_blocks",
]  # fmt: skip
