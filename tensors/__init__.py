"""Real tensors: dense matrices to stored values and metadata, number formats, and the layouts that software writes."""

from .compressed import Compressed
from .quantise import Quantised, quantise
from .software_formats import SOFTWARE_FORMATS, PackingOptions
from .sparsify import expand, sparsify

__all__ = ["SOFTWARE_FORMATS", "Compressed", "PackingOptions", "Quantised", "expand", "quantise", "sparsify"]
