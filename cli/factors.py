"""Options that every command takes which multiplies matrices: what becomes of the sums, and which tensors are meant."""

import argparse
from pathlib import Path
from typing import Any

from ..gemm.sources import Source, read_factor
from .arguments import number

__all__ = ["EPILOGUE_FILES", "READABLE", "add_epilogue_options", "add_matrices", "epilogue_words", "sources"]

#: What a matrix is read from.
READABLE = ".npy, .npz, .safetensors, .pt (weights of PyTorch), or what `sptc compress` wrote"
#: Options of the epilogue that name files.
EPILOGUE_FILES = ("c", "bias", "scale_a", "scale_b")
_MEANINGS = {
    "c": "C, M x N",
    "bias": "bias: N, or M x 1",
    "scale_a": "scales of rows, M x 1",
    "scale_b": "scales of columns, N",
}


def add_matrices(parser: argparse.ArgumentParser) -> None:
    """Add where both matrices are."""
    parser.add_argument("--a", type=Path, metavar="FILE", help=f"A, M x K: {READABLE}")
    parser.add_argument("--a-tensor", metavar="NAME", help="which tensor of that file, if there are several")
    parser.add_argument("--b", type=Path, metavar="FILE", help="B, K x N, or a vector")
    parser.add_argument("--b-tensor", metavar="NAME", help="which tensor of that file, if there are several")
    parser.add_argument("--transpose-b", action="store_true", help="the file holds B as N x K")


def sources(options: argparse.Namespace) -> tuple[Source, Source]:
    """Return where both matrices are."""
    return (
        Source(str(options.a.resolve()), options.a_tensor, option="--a-tensor"),
        Source(str(options.b.resolve()), options.b_tensor, options.transpose_b, "--b-tensor"),
    )


def add_epilogue_options(parser: argparse.ArgumentParser, title: str) -> None:
    """Add what is done to the sums, in a group of its own."""
    group = parser.add_argument_group(title)
    group.add_argument("--alpha", type=number, default=1.0, metavar="X", help="factor of the product")
    group.add_argument("--beta", type=number, metavar="X", help="factor of C, which is added to the product")
    for name, what in _MEANINGS.items():
        group.add_argument(f"--{name.replace('_', '-')}", type=Path, metavar="FILE", help=what)
    group.add_argument("--relu", action="store_true", help="what is below zero becomes zero")


def epilogue_words(options: argparse.Namespace) -> dict[str, Any]:
    """Return the words of the epilogue, for a function that has them: arrays for files."""
    paths = {name: getattr(options, name) for name in EPILOGUE_FILES}
    words = {name: getattr(options, name) for name in ("alpha", "beta", "relu")}
    return {**words, **{name: path and read_factor(path) for name, path in paths.items()}}
