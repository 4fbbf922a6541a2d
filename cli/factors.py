"""Options shared by all commands for matrix products: the matrices A and B, their scales, and the epilogue."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import OperandError
from ..gemm.choice import formats_of
from ..gemm.sources import Source, read_factor
from ..gemm.tile_file import tile_instruction
from ..gemm.ways import Way
from ..isa.architectures import same_numerics
from .options import add, default_arch, flag, number, switch

__all__ = [
    "EPILOGUE_FILES",
    "SCALE_FILES",
    "add_format",
    "add_matrices",
    "add_scalings",
    "add_transpose",
    "architecture_of",
    "epilogue_words",
    "factors",
    "scale_words",
    "sources",
]

#: List of the file types from which a matrix can be read, for help texts.
_READABLE = ".npy, .npz, .safetensors, .pt (weights of PyTorch), or a file that `sptc compress` wrote"
#: Help texts of the options that name a file of block scales or group scales.
SCALE_FILES = {
    "block_scale_a": "block scales of A, M x blocks along K: ue8m0 or ue4m3 numbers, codes (uint8), or floats",
    "block_scale_b": "block scales of B, N x blocks along K",
    "group_scale_a": "group scales of A, M x groups along K, by which promoted partial sums are multiplied",
    "group_scale_b": "group scales of B, groups along K x N, or groups along K x (N / 128)",
}
#: Help texts of the epilogue options that name a file.
EPILOGUE_FILES = {
    "c": "C, M x N",
    "bias": "bias, N (one per column) or M x 1 (one per row)",
    "scale_a": "scales of the rows of the product, M x 1",
    "scale_b": "scales of the columns of the product, N",
}
#: Help texts of the options for the matrices A, B and Y.
_MATRICES = {
    "a": f"A, M x K: {_READABLE}",
    "b": "B, K x N, or a vector of K elements",
    "y": "product of A and B, M x N, or a vector of M elements",
}


def add_matrices(parser: "argparse.ArgumentParser | argparse._ArgumentGroup", names: str = "ab") -> None:
    """Add two options for each matrix in `names` (A, B or Y): its file, and its tensor in the file."""
    for name in names:
        parser.add_argument(f"--{name}", type=Path, metavar="FILE", help=_MATRICES[name])
        parser.add_argument(
            f"--{name}-tensor", metavar="NAME", help=f"tensor to read, if the file of --{name} holds several"
        )


def add_transpose(parser: "argparse.ArgumentParser | argparse._ArgumentGroup") -> None:
    """Add the option ``--transpose-b``, for a file of B with N x K numbers."""
    switch(parser, "--transpose-b", "the file of --b holds N x K numbers, not K x N")


def add_format(parser: "argparse.ArgumentParser | argparse._ArgumentGroup", note: str) -> None:
    """Add the option for the element format of A and B."""
    text = f"number format of A and B, or one format for each, such as e4m3,e5m2{note}"
    add(parser, "format", help=text, choices=None, type=_formats, metavar="FORMAT")


def _formats(word: str) -> str:
    """Check the name of a format, or the names of the formats of A and B separated by a comma."""
    try:
        formats_of(word)
    except OperandError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return word


def scale_words(options: argparse.Namespace) -> dict[str, Any]:
    """Return block scales and group scales as keyword arguments; the files that options name are read into arrays."""
    paths = {name: getattr(options, name) for name in SCALE_FILES}
    return {name: path and read_factor(path) for name, path in paths.items()}


def factors(options: argparse.Namespace) -> dict[str, Any]:
    """Return the matrices A, B and Y by name, each read from the file that its option names."""
    matrices: dict[str, Any] = {
        name: read_factor(getattr(options, name), getattr(options, f"{name}_tensor"), f"--{name}-tensor")
        for name in "aby"
    }
    if options.transpose_b and isinstance(matrices["b"], np.ndarray):
        matrices["b"] = matrices["b"].T  # a compressed B needs no transposition, since files store it as N x K
    return matrices


def architecture_of(options: argparse.Namespace, names: str = "ab", way: Way | None = None) -> str | None:
    """Return the architecture that ``--arch``, a file of matrices or a method of summation names; None if none does.

    `names` are the matrices whose files can name an architecture. If no architecture is named and sm_90 lacks the
    instruction of such a file, return the first architecture that has the instruction. Raise an `OperandError` if two
    named architectures have different numerics.
    """
    paths = [path for name in names if (path := getattr(options, name))]
    tiles = {str(path): tile for path in paths if (tile := tile_instruction(path))}
    every = {"--arch": options.arch, **{path: arch for path, (_, arch) in tiles.items()}, "--way": way and way.arch}
    named = [(source, arch) for source, arch in every.items() if arch]
    for source, arch in named[1:]:
        if same_numerics(arch) != same_numerics(named[0][1]):
            raise OperandError(
                f"{named[0][0]} names {named[0][1]}, but {source} names {arch}: both must name the same architecture"
            )
    defaults = (default_arch(subject.instruction) for subject, _ in tiles.values())
    return named[0][1] if named else next((arch for arch in defaults if arch != "sm_90"), None)


def sources(options: argparse.Namespace) -> tuple[Source, Source]:
    """Return the sources of A and B: the file of each matrix, and the name of its tensor in the file."""
    return (
        Source(str(options.a.resolve()), options.a_tensor, option="--a-tensor"),
        Source(str(options.b.resolve()), options.b_tensor, options.transpose_b, "--b-tensor"),
    )


def add_scalings(parser: argparse.ArgumentParser, epilogue: str) -> None:
    """Add the options for block scales, for group scales, and, in a group with title `epilogue`, for the epilogue."""
    group = parser.add_argument_group("scales along K")
    for name, meaning in SCALE_FILES.items():
        group.add_argument(flag(name), type=Path, metavar="FILE", help=meaning)
    group = parser.add_argument_group(epilogue)
    group.add_argument(
        "--alpha", type=number, default=1.0, metavar="X", help="factor of the matrix product (default %(default)g)"
    )
    group.add_argument("--beta", type=number, metavar="X", help="factor of C; beta C is added to the product")
    for name, meaning in EPILOGUE_FILES.items():
        group.add_argument(flag(name), type=Path, metavar="FILE", help=meaning)
    switch(group, "--relu", "apply ReLU: negative results become zero")


def epilogue_words(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the epilogue as keyword arguments; the files that options name are read into arrays."""
    paths = {name: getattr(options, name) for name in EPILOGUE_FILES}
    words = {name: getattr(options, name) for name in ("alpha", "beta", "relu")}
    return {**words, **{name: path and read_factor(path) for name, path in paths.items()}}
