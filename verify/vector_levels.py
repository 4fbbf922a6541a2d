"""Test vectors for registers and memory, streams of a warp, or ports of a dot-product unit with or without decoder."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError
from ..isa.names import Subject, subject_named
from ..isa.tensor_memory import TensorMap
from ..rtl.config import WARP_ROWS, CoreConfig
from ..rtl.ports import ports
from ..rtl.systemverilog import lines_of_ports
from ..sim.engine.steps import step_count
from .pack_files import file_of, require_placed
from .register_file import DESCRIPTORS, RegisterFile
from .stimulus import NIBBLES, Given, draw_tiles, drawn_distributions, further_file
from .tensor_memory_file import TensorMemoryFile
from .vector_steps import datapath_numerics, step_vectors, warp_vectors

__all__ = [
    "BACKENDS",
    "FORMATS",
    "LEVELS",
    "Arrays",
    "File",
    "Table",
    "VectorRequest",
    "Vectors",
    "file_vectors",
    "joined",
    "register_vectors",
    "tables_of",
    "top_vectors",
]

#: File formats of test vectors.
FORMATS = ("npz", "hex", "json", "svh")
#: Levels of test vectors: ``registers`` (and memory), or the top module whose inputs and outputs the vectors hold.
LEVELS = ("registers", "warp", "row", "unit")
#: Back ends that can compute the expected results.
BACKENDS = ("golden", "native")
#: For each top module: names of tables of test vectors, and the port of the module to which each table belongs.
_PORTS = {
    "warp": {"operands": "i__payload", "result": "o__payload"},
    "row": {"step": "step", "result": "result"},
    "unit": {"step": "step", "result": "result"},
}
#: Operands and result in the instruction's order. Key: name of a test-vector table. Value: field of RegisterFile.
_OPERANDS = {"A": "a", "B": "b", "C": "c", "E": "e", "scale_a": "scale_a", "scale_b": "scale_b", "D": "d"}
#: Names of the tables of test vectors that hold results; ``shifted_A`` is A after an instruction with ``.ashift``.
_RESULTS = ("D", "shifted_A")
_WORD = 32

File = RegisterFile | TensorMemoryFile
Arrays = dict[str, NDArray[np.uint32]]
#: Words of an operand (the first axis is the test case), names of all axes, and text that describes a word.
_Words = tuple[NDArray[np.uint32], tuple[str, ...], str]


@dataclass(frozen=True)
class Table:
    """Table of test vectors for one operand or one port: size, axes and meaning of the bits."""

    name: str
    expected: bool  #: True: the test vectors are expected results. False: they are inputs
    bits: int  #: Width of each test vector in bits
    shape: tuple[int, ...]  #: Number of test vectors along each axis
    axes: tuple[str, ...]
    meaning: tuple[str, ...]  #: Text lines that describe the bits of a test vector
    port: str = ""  #: Port of the emitted module; empty if the words are contents of registers or memory

    @property
    def words(self) -> int:
        """Number of 32-bit words in a test vector."""
        return -(-self.bits // _WORD)

    @property
    def count(self) -> int:
        """Number of test vectors in this table."""
        return math.prod(self.shape)


@dataclass(frozen=True, eq=False)
class Vectors:
    """Test vectors of one request. The vectors are computed block by block; a block has one or more tiles."""

    tables: tuple[Table, ...]
    immediates: dict[str, Any]  #: Properties of the instruction besides operands, such as the sparsity selector
    #: Function from the index of a block of tiles to its register file (``.npz``); None for ports of a top module.
    file: Callable[[int], File] | None
    #: Function from the index of a block of tiles to its test vectors: a dict of arrays, with names of tables as keys.
    block: Callable[[int], Arrays]
    blocks: int


#: First: maximum number of outputs or tensor memory words computed at once. Second: tensor memory words of a CTA.
_AT_ONCE = 1 << 20
_TENSOR_MEMORY_WORDS = 1 << 16


@dataclass(frozen=True, kw_only=True)
class VectorRequest:
    """A request for test vectors. The constructor raises an `Error` if such test vectors cannot be made."""

    instruction: str  #: PTX name of the instruction; for ``tcgen05``, opcode and then shape and types in parentheses
    arch: str  #: Architecture that executes the instruction
    tiles: int  #: Number of tiles, at least one, each with the operands of one instruction
    seed: int = 0  #: Seed of the random numbers; equal seed and options give equal files
    format: str = "npz"  #: File format: ``npz``, ``hex``, ``json`` or ``svh``
    #: Content of the test vectors. ``registers``: registers and memory; ``warp``, ``row`` or ``unit``: inputs and
    #: outputs of the Verilog top module of this name.
    level: str = "registers"
    config: CoreConfig | None = None  #: Datapath of the top module; None if `level` is ``registers``
    #: Operand distribution, from :func:`~sptc.sim.benches.random_operands.distributions`; None: all of them in turn.
    distribution: str | None = None
    #: Metadata nibbles. ``legal``: legal nibbles only; ``software``: also 0x0 for chunks of stored zeros, as libraries
    #: write them; ``all``: all sixteen nibbles.
    nibbles: str = "legal"
    #: Back end that computes the results if `level` is ``registers``: ``golden``, or ``native``, which computes the
    #: same bits several times faster. For any other `level`, the golden model computes the results.
    backend: str = "golden"
    #: Register file (``.npz``) with the tiles to write as test vectors; None for random tiles. The file must have the
    #: instruction, the architecture and the number of tiles of this request.
    file: File | None = None
    bench: bool = False  #: Whether to write the top module in Verilog, with a testbench; only in format ``hex``

    def __post_init__(self) -> None:
        choices = {"format": FORMATS, "level": LEVELS, "nibbles": tuple(NIBBLES), "backend": BACKENDS}
        for name, accepted in choices.items():
            value = getattr(self, name)
            if value not in accepted:
                raise OperandError(f"{name} must be {' or '.join(map(repr, accepted))}, not {value!r}")
        if self.file and self.level != "registers":
            raise OperandError(
                f"tiles of a register file (.npz) can be written only at level 'registers', not {self.level!r}"
            )
        if self.tiles < 1 or self.seed < 0:
            raise OperandError(f"tiles must be 1 or more and the seed 0 or more, not {self.tiles} and {self.seed}")
        subject = self.subject
        if not self.file:
            drawn_distributions(subject.instruction, self.distribution)
            require_placed(subject, self.arch)
        if (self.level == "registers") != (self.config is None):
            raise OperandError(f"test vectors of level {self.level!r} need {'no' if self.config else 'a'} datapath")
        if self.config:
            datapath_numerics(self.config, subject.instruction, self.arch)
        if self.level != "registers" and self.backend != BACKENDS[0]:
            raise OperandError(f"the golden model, not {self.backend!r}, computes results of level {self.level!r}")
        if self.bench and (self.level == "registers" or self.format != "hex"):
            raise OperandError("a testbench needs level 'warp', 'row' or 'unit' and format 'hex'")

    @property
    def subject(self) -> Subject:
        """Requested instruction, with its opcode if it is a ``tcgen05`` instruction."""
        return subject_named(self.instruction)

    @property
    def _block_tiles(self) -> int:
        subject = self.subject
        words = subject.instruction.m * subject.instruction.n
        if subject.opcode:
            words = max(words, subject.opcode.cta_group * _TENSOR_MEMORY_WORDS)
        return max(1, _AT_ONCE // words)

    @property
    def blocks(self) -> int:
        """Number of blocks of random tiles; each block has its own random number generator."""
        return -(-self.tiles // self._block_tiles)

    def sample(self) -> tuple[Given, np.random.Generator]:
        """Return a random tile, and a random number generator for values that all tiles share, such as descriptors."""
        rng = np.random.default_rng(np.random.SeedSequence(self.seed))
        return self._draw(1, 0, rng), rng

    def block(self, number: int) -> tuple[Given, np.random.Generator]:
        """Return random tiles that are computed together, and a random generator for the bits outside of operands."""
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(number,)))
        first = number * self._block_tiles
        return self._draw(min(self._block_tiles, self.tiles - first), first, rng), rng

    def _draw(self, tiles: int, first: int, rng: np.random.Generator) -> Given:
        instruction = self.subject.instruction
        names = drawn_distributions(instruction, self.distribution)
        return draw_tiles(instruction, names, self.nibbles, tiles, rng, first)


def register_vectors(request: VectorRequest) -> Vectors:
    """Return test vectors with the register and memory contents of random tiles.

    The seed of the request also determines the selector, the placement of operands, and all bits outside of operands.
    Raise an `OperandError` if no public source states where all operands are stored.
    """
    subject, arch = request.subject, request.arch

    def finished(file: File) -> File:
        file = replace(file, metadata=NIBBLES[request.nibbles])
        return replace(file, d=file.run(request.backend))

    operands, rng = request.sample()
    selector = int(rng.integers(subject.instruction.sparsity_selectors))
    sample = finished(file_of(subject, arch, operands, rng, selector))

    def file(number: int) -> File:
        operands, rng = request.block(number)
        if isinstance(sample, RegisterFile):
            return finished(further_file(sample, operands.matrices, rng))
        return finished(file_of(subject, arch, operands, rng, selector))

    return _vectors_of(sample, request.tiles, file, request.blocks)


def file_vectors(file: File, backend: str) -> Vectors:
    """Return test vectors of the tiles of a register file (``.npz``). A back end computes D; a stored D is ignored."""
    file = file.with_fields(d=file.run(backend))
    if isinstance(file, RegisterFile):
        file = replace(file, recorded="")  # `recorded` names the GPU that recorded D, but this D is computed
    return _vectors_of(file, file.cases, lambda _: file, 1)


def _vectors_of(sample: File, tiles: int, file: Callable[[int], File], blocks: int) -> Vectors:
    """Return test vectors of all files that `file` returns for block numbers, with axes and immediates of `sample`."""

    def block(number: int) -> Arrays:
        return {name: array.reshape(-1, 1) for name, (array, _, _) in tables_of(file(number)).items()}

    tables = tuple(
        Table(name, name in _RESULTS, _WORD, (tiles, *array.shape[1:]), axes, (meaning,))
        for name, (array, axes, meaning) in tables_of(sample).items()
    )
    return Vectors(tables, _immediates(sample), file, block, blocks)


def tables_of(file: File) -> dict[str, _Words]:
    """Return the words of each operand and the result in a register file (``.npz``), with axis names and descriptions.

    The words of an operand in tensor memory are the columns that contain the operand. Descriptors of ``wgmma`` are
    operands only if the tiles have different descriptors.
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
    for name in DESCRIPTORS:
        value = getattr(file, name)
        if value is not None and (value != value[0]).any():
            words = value.astype("<u8").view("<u4").reshape(-1, 2)
            tables[name] = words, ("case", "word"), f"{name}: matrix descriptor, bits 31:0 in word 0"
    return tables


def _tensor_memory_tables(file: TensorMemoryFile) -> dict[str, _Words]:
    places = file.placement
    assert file.d is not None
    ctas = ("CTA",) if file.opcode.cta_group > 1 else ()
    padding = [(0, 0)] * (file.smem.ndim - 1) + [(0, -file.smem.shape[-1] % 4)]
    words = np.ascontiguousarray(np.pad(file.smem, padding)).view("<u4")
    shared = "B" if isinstance(places.a, TensorMap) else "A and B"
    meaning = f"{shared}: shared memory, byte 0 in the lowest bits of word 0"
    tables: dict[str, _Words] = {"smem": (words, ("case", *ctas, "word"), meaning)}
    inputs = {"A": places.a, "C": places.d, "E": places.e, "scale_a": places.scale_a, "scale_b": places.scale_b}
    results = {"D": places.d, **({"shifted_A": places.a} if file.opcode.shifts_a else {})}
    for name, place in {**inputs, **results}.items():
        if isinstance(place, TensorMap):
            low, high = int(place.columns.min()), int(place.columns.max())
            meaning = f"{name}: columns {low} to {high} of tensor memory"
            columns = (file.d if name in _RESULTS else file.tmem)[..., low : high + 1]
            tables[name] = columns, ("case", *ctas, "lane", "column"), meaning
    return tables


def _immediates(file: File) -> dict[str, Any]:
    """Return a file's properties besides operands and results; omit descriptors that differ between tiles."""
    immediates: dict[str, Any] = {}
    for name, value in file.contents().items():
        if name in ("instruction", "arch") or (isinstance(value, np.ndarray) and value.ndim > 1):
            continue
        if name not in DESCRIPTORS:
            immediates[name] = np.asarray(value).tolist()
        elif (value == value[0]).all():
            immediates[name] = int(value[0])
    return immediates


def joined(files: list[File]) -> File:
    """Concatenate the tiles of register files (``.npz``) that differ only in operands and results."""
    names = [name for name in files[0].case_fields if getattr(files[0], name) is not None]
    arrays: dict[str, Any] = {name: np.concatenate([getattr(file, name) for file in files]) for name in names}
    return replace(files[0], **arrays)


def top_vectors(request: VectorRequest, config: CoreConfig) -> Vectors:
    """Return test vectors of random tiles for the ports of a top module: ``warp``, ``row`` or ``unit``.

    Raise an `Error` if the top does not compute the instruction.
    """
    level, i = request.level, request.subject.instruction
    parameters = datapath_numerics(config, i, request.arch)
    shape: tuple[int, ...] = (request.tiles, i.m, i.n, step_count(config, i))
    axes: tuple[str, ...] = ("case", "row", "column", "step")
    immediates, sample = {}, None
    if level == "warp":
        config.require_warp()
        if i.family != "mma" or i.m != WARP_ROWS:
            raise OperandError(f"level 'warp' supports only mma of shape m16n8, not {i}")
        operands, rng = request.sample()
        immediates = {"selector": int(rng.integers(i.sparsity_selectors))}
        sample = file_of(request.subject, request.arch, operands, rng, immediates["selector"])
        shape, axes = shape[:1], axes[:1]
    names = _PORTS[level]

    def block(number: int) -> Arrays:
        operands, rng = request.block(number)
        if isinstance(sample, RegisterFile):
            file = further_file(sample, operands.matrices, rng)
            vectors = warp_vectors(config, parameters, file, operands.matrices, rng)
        else:
            vectors = step_vectors(config, i, parameters, operands.matrices, level)
        return dict(zip(names, vectors, strict=True))

    by_name = {port.name: port for port in ports(config, level)}
    tables = tuple(
        Table(name, not port.is_input, port.type.width, shape, axes, tuple(lines_of_ports([port])), port.name)
        for name, port in zip(names, map(by_name.__getitem__, names.values()), strict=True)
    )
    return Vectors(tables, immediates, None, block, request.blocks)
