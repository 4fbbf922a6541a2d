"""What vectors are at each level: registers and memory, the streams of a warp, the ports of a row or a unit."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api.arrangement import arrangement
from ..errors import OperandError
from ..isa.instructions import Instruction
from ..isa.operands import MatrixOperands
from ..isa.tensor_memory import TensorMap
from ..rtl.config import WARP_ROWS, CoreConfig
from ..rtl.ports import ports
from ..rtl.systemverilog import lines_of_ports
from .given import Given
from .pack_files import Subject, file_of
from .register_file import RegisterFile
from .stimulus import further_file
from .tensor_memory_file import TensorMemoryFile
from .vector_steps import datapath_numerics, step_vectors, steps_of_k, vector_bits, warp_vectors
from .vector_tiles import NIBBLES, draw_tiles, drawn_distributions

__all__ = ["LEVELS", "Drawn", "File", "Table", "Vectors", "joined", "register_vectors", "tables_of", "top_vectors"]

#: Of registers and memory, and of the tops of that name.
LEVELS = ("registers", "warp", "row", "unit")
#: Ports by level, and what their vectors are called.
_PORTS = {
    "warp": {"operands": "i__payload", "result": "o__payload"},
    "row": {"step": "step", "result": "result"},
    "unit": {"step": "step", "result": "result"},
}
#: Operands of a register file, in the order of the instruction, with the result behind them.
_OPERANDS = {"A": "a", "B": "b", "C": "c", "E": "e", "scale_a": "scale_a", "scale_b": "scale_b", "D": "d"}
#: Attributes of register files of either kind that have an axis of cases.
_ARRAYS = (*_OPERANDS.values(), "a_descriptor", "b_descriptor", "tmem", "smem")
_WORD = 32

File = RegisterFile | TensorMemoryFile
Arrays = dict[str, NDArray[np.uint32]]


@dataclass(frozen=True)
class Table:
    """Vectors of one kind: an operand, or what goes through a port.

    Attributes
    ----------
    name : str
        How it is called.
    expected : bool
        It is the result; otherwise it is given.
    bits : int
        Of each vector.
    shape : tuple of int
        How many there are along each axis.
    axes : tuple of str
        What the axes are.
    meaning : tuple of str
        Lines that say what the bits mean.
    port : str
        Of the emitted module, or nothing.
    """

    name: str
    expected: bool
    bits: int
    shape: tuple[int, ...]
    axes: tuple[str, ...]
    meaning: tuple[str, ...]
    port: str = ""

    @property
    def words(self) -> int:
        """Words of 32 bits that a vector takes."""
        return -(-self.bits // _WORD)

    @property
    def count(self) -> int:
        """How many vectors there are."""
        return int(np.prod(self.shape))


@dataclass(frozen=True, eq=False)
class Vectors:
    """All vectors of a request.

    Attributes
    ----------
    tables : tuple of Table
        What there is.
    immediates : dict
        What decides the instruction beside its operands.
    file : callable (int) -> RegisterFile or TensorMemoryFile, optional
        At level ``registers`` returns the tiles of a block.
    block : callable (int) -> dict
        Returns of a block, by its number, the vectors of each table: uint32 of shape (vectors, words).
    blocks : int
        How many blocks there are; each is computed by itself.
    """

    tables: tuple[Table, ...]
    immediates: dict[str, Any]
    file: Callable[[int], File] | None
    block: Callable[[int], Arrays]
    blocks: int


@dataclass(frozen=True)
class Drawn:
    """Random tiles, block by block, each from a stream of its own.

    Attributes
    ----------
    instruction : Instruction
        What runs.
    distribution : str or None
        One of its distributions; None stands for each that fits, in turn.
    nibbles : str
        Which are drawn.
    tiles, block_tiles : int
        How many there are, and in a block.
    seed : int
        Decides all.
    """

    instruction: Instruction
    distribution: str | None
    nibbles: str
    tiles: int
    block_tiles: int
    seed: int

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return -(-self.tiles // self.block_tiles)

    def sample(self) -> tuple[Given, np.random.Generator]:
        """Return a tile that is none of them, and what else may be drawn of what holds for all."""
        rng = np.random.default_rng(np.random.SeedSequence(self.seed))
        return self._draw(1, 0, rng), rng

    def block(self, number: int) -> tuple[Given, np.random.Generator]:
        """Return the tiles of a block, and what else may be drawn for it."""
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(number,)))
        first = number * self.block_tiles
        return self._draw(min(self.block_tiles, self.tiles - first), first, rng), rng

    def _draw(self, tiles: int, first: int, rng: np.random.Generator) -> Given:
        names = drawn_distributions(self.instruction, self.distribution)
        return draw_tiles(self.instruction, names, self.nibbles, tiles, rng, first)


def register_vectors(subject: Subject, arch: str, drawn: Drawn, backend: str) -> Vectors:
    """Return operands as registers and memory hold them, with D.

    Parameters
    ----------
    subject, arch : Subject, str
        What runs, and on which architecture.
    drawn : Drawn
        The tiles; the selector, where operands are held, and what is held beside them come from the same seed.
    backend : str
        What computes D.

    Raises
    ------
    OperandError
        No public source states where all operands lie.
    """

    def finished(file: File) -> File:
        file = replace(file, metadata=NIBBLES[drawn.nibbles])
        return replace(file, d=file.run(backend))

    given, rng = drawn.sample()
    selector = int(rng.integers(subject.instruction.sparsity_selectors))
    sample = finished(file_of(subject, arch, given, rng, selector))

    def file(number: int) -> File:
        given, rng = drawn.block(number)
        if isinstance(sample, RegisterFile):
            return finished(further_file(sample, given.matrices, rng))
        return finished(file_of(subject, arch, given, rng, selector))

    def block(number: int) -> Arrays:
        return {name: array.reshape(-1, 1) for name, (array, _, _) in tables_of(file(number)).items()}

    tables = tuple(
        Table(name, name == "D", _WORD, (drawn.tiles, *array.shape[1:]), axes, (meaning,))
        for name, (array, axes, meaning) in tables_of(sample).items()
    )
    return Vectors(tables, _immediates(sample), file, block, drawn.blocks)


def tables_of(file: File) -> dict[str, tuple[NDArray[np.uint32], tuple[str, ...], str]]:
    """Return the operands and the result of a register file: words by case, what the axes are, and what they hold.

    Of tensor memory, the columns that an operand takes; all others are zero.
    """
    if isinstance(file, TensorMemoryFile):
        return _tensor_memory_tables(file)
    found: dict[str, tuple[NDArray[np.uint32], tuple[str, ...], str]] = {}
    for name, attribute in _OPERANDS.items():
        array = getattr(file, attribute)
        if array is None:
            continue
        if name == "B" and file.instruction.family == "wgmma":
            found[name] = array, ("case", "word"), "shared memory, byte 0 in the lowest bits of word 0"
        elif array.ndim == 2:
            found[name] = array, ("case", "thread"), f"{name}: a register of each thread"
        else:
            found[name] = array, ("case", "thread", "register"), f"{name}: registers of each thread"
    return found


def _tensor_memory_tables(file: TensorMemoryFile) -> dict[str, tuple[NDArray[np.uint32], tuple[str, ...], str]]:
    where = arrangement(file.opcode, file.instruction).placement
    assert file.d is not None
    ctas = ("CTA",) if file.opcode.cta_group > 1 else ()
    found: dict[str, tuple[NDArray[np.uint32], tuple[str, ...], str]] = {}

    def put(name: str, tensor_memory: NDArray[np.uint32], place: TensorMap | None) -> None:
        if place is not None:
            low, high = int(place.columns.min()), int(place.columns.max())
            meaning = f"{name}: columns {low} to {high} of tensor memory"
            found[name] = tensor_memory[..., low : high + 1], ("case", *ctas, "lane", "column"), meaning

    words = np.ascontiguousarray(file.smem).view("<u4")
    found["smem"] = words, ("case", *ctas, "word"), "A and B: shared memory, byte 0 in the lowest bits of word 0"
    put("C", file.tmem, where.d)
    put("E", file.tmem, where.e)
    put("scale_a", file.tmem, where.scale_a)
    put("scale_b", file.tmem, where.scale_b)
    put("D", file.d, where.d)
    return found


def _immediates(file: File) -> dict[str, Any]:
    """Return what of a register file is no array; descriptors are the same for all tiles."""
    found: dict[str, Any] = {}
    for name, value in file.contents().items():
        if name in ("instruction", "arch") or (isinstance(value, np.ndarray) and value.ndim > 1):
            continue
        if name in ("a_descriptor", "b_descriptor"):
            value = int(value[0])
        found[name] = np.asarray(value).tolist()
    return found


def joined(files: list[File]) -> File:
    """Return the tiles of several register files that differ in their arrays only, as one."""
    parts: list[dict[str, Any]] = [
        {name: getattr(file, name) for name in _ARRAYS if hasattr(file, name)} for file in files
    ]
    held = [name for name, array in parts[0].items() if array is not None]
    together: dict[str, Any] = {name: np.concatenate([part[name] for part in parts]) for name in held}
    return replace(files[0], **together)


def top_vectors(level: str, config: CoreConfig, subject: Subject, arch: str, drawn: Drawn) -> Vectors:
    """Return what a top takes and what it gives; other parameters as of :func:`register_vectors`.

    Parameters
    ----------
    level : str
        ``warp``, ``row`` or ``unit``.
    config : CoreConfig
        Its datapath.

    Raises
    ------
    Error
        The top does not compute the instruction.
    """
    i = subject.instruction
    parameters = datapath_numerics(config, i, arch)
    count: tuple[int, ...] = (drawn.tiles,)
    axes: tuple[str, ...] = ("case",)
    immediates: dict[str, Any] = {}
    compute: Callable[[MatrixOperands, np.random.Generator], tuple[NDArray[np.uint32], NDArray[np.uint32]]]
    if level == "warp":
        config.require_warp()
        if i.family != "mma" or i.m != WARP_ROWS:
            raise OperandError(f"a warp computes instructions of mma of shape m16n8, not {i}")
        given, rng = drawn.sample()
        selector = int(rng.integers(i.sparsity_selectors))
        placed = file_of(subject, arch, given, rng, selector)
        assert isinstance(placed, RegisterFile)
        where = placed
        immediates = {"selector": selector}

        def compute(
            matrices: MatrixOperands, rng: np.random.Generator
        ) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
            return warp_vectors(config, parameters, further_file(where, matrices, rng), matrices, rng)
    else:
        count, axes = (drawn.tiles, i.m, i.n, steps_of_k(config, i)), ("case", "row", "column", "step")

        def compute(
            matrices: MatrixOperands, rng: np.random.Generator
        ) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
            return step_vectors(config, i, parameters, matrices, level)

    names = _PORTS[level]

    def block(number: int) -> Arrays:
        given, rng = drawn.block(number)
        return dict(zip(names, compute(given.matrices, rng), strict=True))

    found = {port.name: port for port in ports(config, level)}
    tables = tuple(
        Table(name, expected, bits, count, axes, tuple(lines_of_ports([found[port]])), port)
        for (name, port), bits, expected in zip(names.items(), vector_bits(config, level), (False, True), strict=True)
    )
    return Vectors(tables, immediates, None, block, drawn.blocks)
