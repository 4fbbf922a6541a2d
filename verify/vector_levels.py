"""What vectors are at each level: registers and memory, the streams of a warp, the ports of a row or a unit."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api.arrangement import arrangement
from ..errors import OperandError
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
from .vector_tiles import NIBBLES

__all__ = ["LEVELS", "File", "Table", "Vectors", "joined", "register_vectors", "tables_of", "top_vectors"]

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
    files : iterator of RegisterFile or TensorMemoryFile
        At level ``registers`` all tiles, some at a time; otherwise nothing.
    blocks : iterator of dict
        The vectors of each table, uint32 of shape (vectors, words), some at a time. They are made of `files` where
        there are any, so that only one of the two can be read.
    """

    tables: tuple[Table, ...]
    immediates: dict[str, Any]
    files: Iterator[File]
    blocks: Iterator[Arrays]


def register_vectors(
    subject: Subject, arch: str, nibbles: str, tiles: int, drawn: Iterator[Given], rng: np.random.Generator
) -> Vectors:
    """Return operands as registers and memory hold them, with D.

    Parameters
    ----------
    subject, arch : Subject, str
        What runs, and on which architecture.
    nibbles : str
        Which were drawn.
    tiles : int
        How many there are.
    drawn : iterator of Given
        The tiles.
    rng : Generator
        Draws the selector, where operands are held, and what is held beside them.

    Raises
    ------
    OperandError
        No public source states where all operands lie.
    """

    def finished(file: File) -> File:
        file = replace(file, metadata=NIBBLES[nibbles])
        return replace(file, d=file.run())

    i = subject.instruction
    selector = int(rng.integers(i.sparsity_selectors))
    first = finished(file_of(subject, arch, next(drawn), rng, selector))

    def others() -> Iterator[File]:
        for given in drawn:
            if isinstance(first, RegisterFile):
                yield finished(further_file(first, given.matrices, rng))
            else:
                yield finished(file_of(subject, arch, given, rng, selector))

    files = chain([first], others())
    blocks = ({name: array.reshape(-1, 1) for name, (array, _, _) in tables_of(file).items()} for file in files)
    tables = tuple(
        Table(name, name == "D", _WORD, (tiles, *array.shape[1:]), axes, (meaning,))
        for name, (array, axes, meaning) in tables_of(first).items()
    )
    return Vectors(tables, _immediates(first), files, blocks)


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


def top_vectors(
    level: str, config: CoreConfig, subject: Subject, arch: str, tiles: int, drawn: Iterator[Given],
    rng: np.random.Generator,
) -> Vectors:  # fmt: skip
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
    count: tuple[int, ...] = (tiles,)
    axes: tuple[str, ...] = ("case",)
    immediates: dict[str, Any] = {}
    compute: Callable[[MatrixOperands], tuple[NDArray[np.uint32], NDArray[np.uint32]]]
    if level == "warp":
        config.require_warp()
        if i.family != "mma" or i.m != WARP_ROWS:
            raise OperandError(f"a warp computes instructions of mma of shape m16n8, not {i}")
        selector = int(rng.integers(i.sparsity_selectors))
        first = next(drawn)
        placed = file_of(subject, arch, first, rng, selector)
        assert isinstance(placed, RegisterFile)
        drawn, where = chain([first], drawn), placed
        immediates = {"selector": selector}

        def compute(matrices: MatrixOperands) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
            return warp_vectors(config, parameters, further_file(where, matrices, rng), matrices, rng)
    else:
        count, axes = (tiles, i.m, i.n, steps_of_k(config, i)), ("case", "row", "column", "step")

        def compute(matrices: MatrixOperands) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
            return step_vectors(config, i, parameters, matrices, level)

    names = _PORTS[level]
    blocks = (dict(zip(names, compute(given.matrices), strict=True)) for given in drawn)
    found = {port.name: port for port in ports(config, level)}
    tables = tuple(
        Table(name, expected, bits, count, axes, tuple(lines_of_ports([found[port]])), port)
        for (name, port), bits, expected in zip(names.items(), vector_bits(config, level), (False, True), strict=True)
    )
    return Vectors(tables, immediates, iter(()), blocks)
