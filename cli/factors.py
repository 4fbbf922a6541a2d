"""Options that all commands with matrix products share: the matrices A and B, and the epilogue."""

import argparse
from pathlib import Path
from typing import Any

from ..gemm.sources import Source, read_factor
from .options import number

__all__ = ["EPILOGUE_FILES", "add_epilogue_options", "add_matrices", "add_transpose", "epilogue_words", "sources"]

#: Files that a matrix can be read from.
_READABLE = ".npy, .npz, .safetensors, .pt (weights of PyTorch), or a file that `sptc compress` wrote"
#: Epilogue options whose value is a file.
EPILOGUE_FILES = ("c", "bias", "scale_a", "scale_b")
_MEANINGS = {
    "c": "C, M x N",
    "bias": "bias, N (one per column) or M x 1 (one per row)",
    "scale_a": "scales of the rows, M x 1",
    "scale_b": "scales of the columns, N",
}


#: Meanings of the matrices of a product.
_MATRICES = {
    "a": f"A, M x K: {_READABLE}",
    "b": "B, K x N, or a vector of K elements",
    "y": "product of A and B, M x N, or a vector of M elements",
}


def add_matrices(parser: argparse.ArgumentParser, names: str = "ab") -> None:
    """Add the options that name the files and tensors of the matrices with these names: A, B and Y."""
    for name in names:
        parser.add_argument(f"--{name}", type=Path, metavar="FILE", help=_MATRICES[name])
        parser.add_argument(
            f"--{name}-tensor", metavar="NAME", help=f"tensor to read, if the file of --{name} holds several"
        )


def add_transpose(parser: argparse.ArgumentParser) -> None:
    """Add the option for a transposed B."""
    parser.add_argument("--transpose-b", action="store_true", help="the file holds B as N x K")


def sources(options: argparse.Namespace) -> tuple[Source, Source]:
    """Return the sources of A and B."""
    return (
        Source(str(options.a.resolve()), options.a_tensor, option="--a-tensor"),
        Source(str(options.b.resolve()), options.b_tensor, options.transpose_b, "--b-tensor"),
    )


def add_epilogue_options(parser: argparse.ArgumentParser, title: str) -> None:
    """Add the options of the epilogue as a group with this title."""
    group = parser.add_argument_group(title)
    group.add_argument(
        "--alpha", type=number, default=1.0, metavar="X", help="factor of the product (default %(default)g)"
    )
    group.add_argument("--beta", type=number, metavar="X", help="factor of C; beta C is added to the product")
    for name, meaning in _MEANINGS.items():
        group.add_argument(f"--{name.replace('_', '-')}", type=Path, metavar="FILE", help=meaning)
    group.add_argument("--relu", action="store_true", help="apply ReLU: negative results become zero")


def epilogue_words(options: argparse.Namespace) -> dict[str, Any]:
    """Return the keyword arguments of an epilogue; files are read into arrays."""
    paths = {name: getattr(options, name) for name in EPILOGUE_FILES}
    words = {name: getattr(options, name) for name in ("alpha", "beta", "relu")}
    return {**words, **{name: path and read_factor(path) for name, path in paths.items()}}
