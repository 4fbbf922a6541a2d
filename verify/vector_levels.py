"""Test vectors of each level: registers and memory, the streams of a warp, or the ports of a row or unit."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError
from ..isa.instructions import Instruction
from ..isa.names import Subject
from ..operands.arrangement import arrangement
from ..rtl.config import WARP_ROWS, CoreConfig
from ..rtl.ports import ports
from ..rtl.systemverilog import lines_of_ports
from ..sim.engine.steps import step_count
from .pack_files import file_of
from .register_file import RegisterFile
from .stimulus import NIBBLES, Given, draw_tiles, drawn_distributions, further_file
from .tensor_memory_file import TensorMemoryFile
from .vector_steps import datapath_numerics, step_vectors, vector_bits, warp_vectors

__all__ = [
    "LEVELS",
    "Drawn",
    "File",
    "Table",
    "Vectors",
    "file_vectors",
    "joined",
    "register_vectors",
    "tables_of",
    "top_vectors",
]

#: Levels of test vectors: ``registers`` (and memory), or the top module whose inputs and outputs the vectors hold.
LEVELS = ("registers", "warp", "row", "unit")
#: Ports of the top module of each level, by name of the vectors.
_PORTS = {
    "warp": {"operands": "i__payload", "result": "o__payload"},
    "row": {"step": "step", "result": "result"},
    "unit": {"step": "step", "result": "result"},
}
#: Operands and result in the order of the instruction: name in the vectors, and attribute of a register file.
_OPERANDS = {"A": "a", "B": "b", "C": "c", "E": "e", "scale_a": "scale_a", "scale_b": "scale_b", "D": "d"}
_WORD = 32

File = RegisterFile | TensorMemoryFile
Arrays = dict[str, NDArray[np.uint32]]
#: Words of an operand by case, names of the axes of these words, and text that describes a word.
_Words = tuple[NDArray[np.uint32], tuple[str, ...], str]


@dataclass(frozen=True)
class Table:
    """Table of vectors for one operand or for one port: size, axes and meaning of the bits."""

    name: str
    expected: bool  #: Whether the vectors are expected results; otherwise they are inputs
    bits: int  #: Width of each vector in bits
    shape: tuple[int, ...]  #: Number of vectors along each axis
    axes: tuple[str, ...]
    meaning: tuple[str, ...]  #: Text lines that describe the bits of a vector
    port: str = ""  #: Port of the emitted module; empty at level ``registers``

    @property
    def words(self) -> int:
        """Number of 32-bit words in a vector."""
        return -(-self.bits // _WORD)

    @property
    def count(self) -> int:
        """Number of vectors in the table."""
        return int(np.prod(self.shape))


@dataclass(frozen=True, eq=False)
class Vectors:
    """Test vectors of one request, computed in blocks of tiles."""

    tables: tuple[Table, ...]
    immediates: dict[str, Any]  #: Properties of the instruction besides operands, such as the sparsity selector
    #: Function that returns the register file of a block; None except at level ``registers``.
    file: Callable[[int], File] | None
    #: Function that returns the vectors of a block by table name, shape (vectors, words).
    block: Callable[[int], Arrays]
    blocks: int


@dataclass(frozen=True)
class Drawn:
    """Random tiles, drawn block by block; each block has its own random number generator."""

    instruction: Instruction
    distribution: str | None  #: Distribution of the operands; None cycles through all that fit the instruction
    nibbles: str  #: Set of metadata nibbles, a key of :data:`~sptc.verify.stimulus.NIBBLES`
    #: Number of tiles in all blocks, and in one block.
    tiles: int
    block_tiles: int
    seed: int  #: Seed of the random numbers of all tiles

    @property
    def blocks(self) -> int:
        """Number of blocks of tiles."""
        return -(-self.tiles // self.block_tiles)

    def sample(self) -> tuple[Given, np.random.Generator]:
        """Return one tile, and a random number generator for properties that all tiles share, such as descriptors."""
        rng = np.random.default_rng(np.random.SeedSequence(self.seed))
        return self._draw(1, 0, rng), rng

    def block(self, number: int) -> tuple[Given, np.random.Generator]:
        """Return the tiles of a block, and a random number generator for all other properties of the block."""
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(number,)))
        first = number * self.block_tiles
        return self._draw(min(self.block_tiles, self.tiles - first), first, rng), rng

    def _draw(self, tiles: int, first: int, rng: np.random.Generator) -> Given:
        names = drawn_distributions(self.instruction, self.distribution)
        return draw_tiles(self.instruction, names, self.nibbles, tiles, rng, first)


def register_vectors(subject: Subject, arch: str, drawn: Drawn, backend: str) -> Vectors:
    """Return vectors of registers and memory, with D as a back end computes it.

    The seed of the tiles also determines the selector, the placement of operands, and all bits outside of operands.
    Raise an `OperandError` if no public source states where all operands are stored.
    """

    def finished(file: File) -> File:
        file = replace(file, metadata=NIBBLES[drawn.nibbles])
        return replace(file, d=file.run(backend))

    operands, rng = drawn.sample()
    selector = int(rng.integers(subject.instruction.sparsity_selectors))
    sample = finished(file_of(subject, arch, operands, rng, selector))

    def file(number: int) -> File:
        operands, rng = drawn.block(number)
        if isinstance(sample, RegisterFile):
            return finished(further_file(sample, operands.matrices, rng))
        return finished(file_of(subject, arch, operands, rng, selector))

    return _vectors_of(sample, drawn.tiles, file, drawn.blocks)


def file_vectors(file: File, backend: str) -> Vectors:
    """Return vectors from the tiles of a register file; a back end computes D, and the D of the file is not used."""
    file = replace(file, d=file.run(backend))
    return _vectors_of(file, file.cases, lambda _: file, 1)


def _vectors_of(sample: File, tiles: int, file: Callable[[int], File], blocks: int) -> Vectors:
    """Return vectors of the register files of all blocks; `sample` has their shapes and immediates."""

    def block(number: int) -> Arrays:
        return {name: array.reshape(-1, 1) for name, (array, _, _) in tables_of(file(number)).items()}

    tables = tuple(
        Table(name, name == "D", _WORD, (tiles, *array.shape[1:]), axes, (meaning,))
        for name, (array, axes, meaning) in tables_of(sample).items()
    )
    return Vectors(tables, _immediates(sample), file, block, blocks)


def tables_of(file: File) -> dict[str, _Words]:
    """Return the words of each operand and of the result of a register file, with axis names and description.

    The words of an operand in tensor memory are the columns that contain the operand; all other columns are zero.
    """
    if isinstance(file, TensorMemoryFile):
        return _tensor_memory_tables(file)
    tables: dict[str, _Words] = {}
    for name, attribute in _OPERANDS.items():
        array = getattr(file, attribute)
        if array is None:
            continue
        if name == "B" and file.instruction.family == "wgmma":
            tables[name] = array, ("case", "word"), "shared memory, byte 0 in the lowest bits of word 0"
        elif array.ndim == 2:
            tables[name] = array, ("case", "thread"), f"{name}: a register of each thread"
        else:
            tables[name] = array, ("case", "thread", "register"), f"{name}: registers of each thread"
    return tables


def _tensor_memory_tables(file: TensorMemoryFile) -> dict[str, _Words]:
    places = arrangement(file.opcode, file.instruction).placement
    assert file.d is not None
    ctas = ("CTA",) if file.opcode.cta_group > 1 else ()
    words = np.ascontiguousarray(file.smem).view("<u4")
    meaning = "A and B: shared memory, byte 0 in the lowest bits of word 0"
    tables: dict[str, _Words] = {"smem": (words, ("case", *ctas, "word"), meaning)}
    inputs = {"C": places.d, "E": places.e, "scale_a": places.scale_a, "scale_b": places.scale_b}
    for name, place in {**inputs, "D": places.d}.items():
        if place is not None:
            low, high = int(place.columns.min()), int(place.columns.max())
            meaning = f"{name}: columns {low} to {high} of tensor memory"
            columns = (file.d if name == "D" else file.tmem)[..., low : high + 1]
            tables[name] = columns, ("case", *ctas, "lane", "column"), meaning
    return tables


def _immediates(file: File) -> dict[str, Any]:
    """Return the descriptors, equal in all tiles, and all other values of a register file that are not arrays."""
    immediates: dict[str, Any] = {}
    for name, value in file.contents().items():
        if name in ("instruction", "arch") or (isinstance(value, np.ndarray) and value.ndim > 1):
            continue
        immediates[name] = int(value[0]) if name.endswith("_descriptor") else np.asarray(value).tolist()
    return immediates


def joined(files: list[File]) -> File:
    """Concatenate the tiles of register files that are equal except for their arrays."""
    names = [name for name in files[0].case_fields if getattr(files[0], name) is not None]
    arrays: dict[str, Any] = {name: np.concatenate([getattr(file, name) for file in files]) for name in names}
    return replace(files[0], **arrays)


def top_vectors(level: str, config: CoreConfig, subject: Subject, arch: str, drawn: Drawn) -> Vectors:
    """Return vectors for the inputs and outputs of a top module: ``warp``, ``row`` or ``unit``.

    Raise an `Error` if the top does not compute the instruction.
    """
    i = subject.instruction
    parameters = datapath_numerics(config, i, arch)
    shape: tuple[int, ...] = (drawn.tiles, i.m, i.n, step_count(config, i))
    axes: tuple[str, ...] = ("case", "row", "column", "step")
    immediates, sample = {}, None
    if level == "warp":
        config.require_warp()
        if i.family != "mma" or i.m != WARP_ROWS:
            raise OperandError(f"level 'warp' supports only mma of shape m16n8, not {i}")
        operands, rng = drawn.sample()
        immediates = {"selector": int(rng.integers(i.sparsity_selectors))}
        sample = file_of(subject, arch, operands, rng, immediates["selector"])
        shape, axes = shape[:1], axes[:1]
    names = _PORTS[level]

    def block(number: int) -> Arrays:
        operands, rng = drawn.block(number)
        if isinstance(sample, RegisterFile):
            file = further_file(sample, operands.matrices, rng)
            vectors = warp_vectors(config, parameters, file, operands.matrices, rng)
        else:
            vectors = step_vectors(config, i, parameters, operands.matrices, level)
        return dict(zip(names, vectors, strict=True))

    by_name = {port.name: port for port in ports(config, level)}
    tables = tuple(
        Table(name, expected, bits, shape, axes, tuple(lines_of_ports([by_name[port]])), port)
        for (name, port), bits, expected in zip(names.items(), vector_bits(config, level), (False, True), strict=True)
    )
    return Vectors(tables, immediates, None, block, drawn.blocks)
