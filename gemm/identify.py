"""``sptc.identify``: find the way of summation that gives every bit of a kernel's result."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api.backends import Backend, with_numerics
from ..api.operands import is_integer
from ..errors import Error, OperandError, shown
from ..isa.architectures import same_numerics
from ..isa.formats import FORMATS
from ..isa.instructions import Instruction
from ..isa.numerics import Numerics
from ..operands.registers import CONTAINERS
from ..tensors.compressed import Compressed
from .block_scales import BlockScales, block_scales_of
from .candidates import Expressions, candidates
from .choice import fastest, formats_of, instructions_alike, instructions_for
from .diagnosis import Diagnosis, Miss
from .epilogue import RESULTS, SCALE_ORDERS, Epilogue, result_dtype
from .fault_probe import Problem
from .faults_operands import rounded_otherwise
from .group_scales import grouped_way
from .matrices import as_array, as_factor, loses_bits, typed_codes
from .options import all_chosen, along_m, epilogue_of, format_of, grouped, oriented
from .search import Found, Operands, Search, searched
from .setting import Setting
from .sums import check_result
from .ways import CONVERSIONS, Way

__all__ = ["Identification", "identify"]

#: Fields that the JSON record has for the nearest way of summation with other results, in addition to the way itself.
_OF_MISS = ("differing", "row", "column", "wanted", "got")
#: Maximum number of printed ways of summation that have the same bits by construction.
_SHOWN_ALIKE = 3
#: Conversions of A and B to tf32 to try, likely ones first.
_CONVERSIONS = (
    *((one, one) for one in CONVERSIONS), *(pair for one in CONVERSIONS[1:] for pair in ((one, ""), ("", one)))
)  # fmt: skip
#: Formats whose elements some kernels with small tiles convert exactly to f16 in registers.
_WIDENED = {"e4m3", "e5m2"}
#: A conversion is tried only if its median error against float64 is at most this multiple of the least error. In an f32
#: result the error of a wrong conversion is a thousand times that of summation.
_MOST_ERROR = 16


@dataclass(frozen=True)
class Identification:
    """Result of a search for a product's way of summation."""

    exact: bool  #: Whether a way of summation gives every bit of the result
    way: Way | None  #: The first way of summation that was found to give every bit
    #: Number of outputs that were compared with `way`; or with the nearest way of summation if none is exact.
    compared: int
    #: The nearest way of summation whose results differ; its count is the number of outputs that distinguish it from an
    #: exact way. None if the results of all other ways that were tried are equal.
    nearest: Miss | None
    equal: tuple[Way, ...]  #: Other ways of summation that give the same result bits for these operands
    #: If no way of summation is exact: a way of summation that explains every output if the order of adding the slices
    #: may differ from output to output, as atomic additions do. It is never exact, since its results are not
    #: deterministic.
    possible: Way | None
    tried: int  #: Number of ways of summation that were tried
    #: Other ways of summation with the same bits as `way` for all operands; then other instructions with the same bits
    #: as the instruction of `way`.
    alike: tuple[Way, ...] = ()
    instructions_alike: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  #: Sentences on how the operands were interpreted and converted
    diagnosis: Diagnosis | None = None  #: If no way of summation is exact: the diagnosis of the result

    def record(self) -> dict[str, Any]:
        """Return the search result as JSON values, without the operands of the first output that differs."""
        near = self.nearest
        return {
            "exact": self.exact,
            "way": self.way and asdict(self.way),
            "compared": self.compared,
            "nearest": near and {name: getattr(near, name) for name in _OF_MISS} | {"way": asdict(near.way)},
            "equal": [asdict(way) for way in self.equal],
            "possible": self.possible and asdict(self.possible),
            "tried": self.tried,
            "alike": [asdict(way) for way in self.alike],
            "instructions_alike": list(self.instructions_alike),
            "notes": list(self.notes),
            "diagnosis": self.diagnosis and self.diagnosis.record(),
        }

    def __str__(self) -> str:
        near = self.nearest
        if self.exact:
            lines = [f"exact: all {self.compared} outputs", f"  {self.way}", *self.notes]
            if near:
                lines.append(f"next best, which {near.differing} outputs tell from it:\n  {near.way}")
            if self.equal:
                lines += ["the same bits here, from other sums:", *(f"  {way}" for way in self.equal)]
            elif not near:
                lines.append("no other way that was tried gives other bits")
            if self.alike or self.instructions_alike:
                lines += ["the same bits by construction:", *(f"  {way}" for way in self.alike[:_SHOWN_ALIKE])]
                lines += [f"  {name} in place of its instruction" for name in self.instructions_alike]
            return "\n".join([*lines, self._not_told_apart()])
        lines = [f"none of the {self.tried} ways that were tried gives all {self.compared} outputs", *self.notes]
        if self.possible:
            lines.append(f"each output is one of those possible with slices in some order:\n  {self.possible}")
        if self.diagnosis:
            lines.append(f"diagnosis: {self.diagnosis}")
        if near:
            where = f"row {near.row}, column {near.column}: 0x{near.wanted:x} wanted, 0x{near.got:x} got"
            lines.append(f"nearest, {near.differing} outputs differ, the first in {where}\n  {near.way}")
        return "\n".join(lines)

    def _not_told_apart(self) -> str:
        """Return a summary of the properties that the search cannot determine."""
        always = len(self.alike) + len(self.instructions_alike)
        return (
            f"not told apart: {len(self.equal)} other sums with the same bits for these operands, {always} ways and "
            "instructions with the same bits for all operands, and m and n of the instruction"
        )


def identify(
    a: Any,
    b: Any,
    y: Any,
    *,
    format: str | None = None,  # noqa: A002 - the word of the command line
    result: str,
    arch: str = "sm_90",
    instruction: str | None = None,
    backend: str | None = None,
    dense: bool = False,
    prune: bool = False,
    nan: str = "error",
    alpha: float = 1.0,
    beta: float | None = None,
    c: Any = None,
    bias: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    relu: bool = False,
    block_scale_a: Any = None,
    block_scale_b: Any = None,
    group_scale_a: Any = None,
    group_scale_b: Any = None,
    promote: int | None = None,
    workers: int | None = None,
    numerics: Numerics | None = None,
) -> Identification:
    """Search for the way of summation that gives every bit of a result.

    Parameters
    ----------
    a : array, tensor or Compressed, shape (M, K)
        Structured-sparse factor, as for :func:`sptc.gemm`. If A is not sparse but B is, along K, the factors are
        exchanged. Dense instructions are tried as well, since the kernel may not use the sparsity.
    b : array or tensor, shape (K, N) or (K,)
        Dense factor.
    y : array or tensor, shape (M, N) or (M,)
        Result to explain: numbers of its type, or their codes.
    format : str, optional
        Format of both factors, or the formats of A and B with a comma between them (default: those of `instruction`, or
        of the array types).
    result : str
        Type of `y`, a key of :data:`sptc.gemm.epilogue.RESULTS`.
    arch : str
        Architecture that computed `y`.
    instruction : str, optional
        The only instruction to try (default: all of the format that give different bits).
    backend : str, optional
        Back end that computes (default: libsptc, or the golden model if libsptc cannot be compiled).
    dense : bool
        Both factors are dense: try only dense instructions.
    prune, nan
        As for :func:`sptc.gemm`.
    alpha, beta, c, bias, scale_a, scale_b, relu
        Epilogue of the kernel, see :class:`~sptc.gemm.epilogue.Epilogue`. With both scales, every order of their
        multiplications is tried.
    block_scale_a, block_scale_b : array or tensor, shape (M, blocks) and (N, blocks), optional
        Block scales of the factors, as for :func:`sptc.gemm`.
    group_scale_a, group_scale_b : array or tensor, shape (M, groups) and (groups, N), optional
        Group scales of the factors, as for :func:`sptc.gemm`.
    promote : int, optional
        Instructions per promoted chain, if known.
    workers : int, optional
        Thread blocks of the launch of a stream-K kernel (default: the SM counts of GPUs of the architecture).
    numerics : Numerics, optional
        Other numerics of `instruction` than those of `arch`, see :func:`sptc.numerics`; for
        ``golden`` and ``native``.

    Returns
    -------
    Identification
        The way and the number of outputs that distinguish it from the next best, or the nearest miss.

    Raises
    ------
    Error
        The input is invalid.
    """
    wanted = _result_codes(as_array("y", y), result)
    left, right = as_factor("a", a), as_array("b", b)
    scales, vector = block_scales_of(block_scale_a, block_scale_b), right.ndim == 1
    fmt = format or (None if instruction else format_of(left, right))
    if fmt and isinstance(left, np.ndarray):
        left, right = map(typed_codes, (left, right), formats_of(fmt))
    k, named = left.shape[-1] if left.shape else 0, arch
    families = _families(fmt, instruction, named, dense, scales, k)
    arch = same_numerics(arch)
    plain = Way(instruction=str(families[0][0]), arch=arch, result=result)
    check_result(plain)
    if vector:
        scales = scales and scales.of_vector()
        right, wanted = right[:, None], wanted[:, None] if wanted.ndim == 1 else wanted
    operands = Operands(left, right, families[0][0], prune, nan)
    if operands.swapped and fmt and len({*formats_of(fmt)}) == 2:
        families = _families(",".join(reversed(formats_of(fmt))), instruction, named, dense, scales, k)
    shape = operands.shape
    if wanted.shape != shape:
        raise OperandError(f"y of shape {wanted.shape} is not that of the product, {shape}")
    epilogue = epilogue_of(alpha=alpha, beta=beta, c=c, bias=bias, scale_a=scale_a, scale_b=scale_b, relu=relu)
    if vector:
        epilogue = epilogue.mapped(along_m)
    plain = replace(plain, swapped=operands.swapped)
    promoted = None if promote is None else replace(plain, promote=promote)
    groups, epilogue = grouped(promoted, epilogue, group_scale_a, group_scale_b, shape, operands.k)
    both_scales = epilogue.has_both_scales
    epilogue, _ = oriented(plain, shape, epilogue, None)
    wanted = wanted.T if operands.swapped else wanted
    operands.scale(scales, groups)
    operands.of(plain)  # The call checks the shapes of block scales.
    computes = with_numerics(fastest(backend, arch), numerics, plain.parsed if instruction else None, arch)
    search = Search(operands, np.ascontiguousarray(wanted), computes, arch, epilogue)
    if workers is not None and (not is_integer(workers) or workers < 1):
        raise OperandError(f"workers must be an integer of 1 or more, not {shown(workers)}")
    conversions, notes = _conversions(search, plain, left, right, families[0][0])
    known = {} if promote is None else {"promote": promote}
    variants = [
        {**known, "convert_a": convert_a, "convert_b": convert_b, "scale_order": order}
        for (convert_a, convert_b), order in product(conversions, SCALE_ORDERS if both_scales else SCALE_ORDERS[:1])
    ]
    group, own, i = groups.length if groups else 0, families, families[0][0]
    if not (instruction or scales) and isinstance(left, np.ndarray) and {i.a.name, i.b.name} <= _WIDENED:
        families = [*families, instructions_for("f16", arch, dense=True)]
    setting = _setting(operands, i, epilogue, computes)

    def rounded() -> Iterator[tuple[str, Setting]]:
        formats = (i.b, i.a) if operands.swapped else (i.a, i.b)
        for text, one, other in rounded_otherwise(left, right, formats):
            changed = _setting(Operands(one, other, i, prune, nan), i, epilogue, computes)
            yield text, replace(setting, a=changed.a, nibbles=changed.nibbles, b=changed.b)

    def problem() -> Problem:
        expressions = Expressions(search.instructions, search.wanted.shape)
        ways = [way for way in search.nearest_ways() if way.parsed.a is i.a] or [grouped_way(plain, groups)]
        return Problem(
            setting=setting, wanted=search.wanted, ways=ways, instructions=own[0],
            rounded=rounded, more_ways=lambda: candidates(own, plain, expressions, variants, group),
        )  # fmt: skip

    found = searched(search, families, plain, variants, problem, group, None if workers is None else int(workers))
    return _identification(found, wanted.size, notes, numerics is None)


def _setting(operands: Operands, i: Instruction, epilogue: Epilogue, computes: Backend) -> Setting:
    """Return the product's operands in the formats of an instruction, in the form that simulated faults change."""
    a, b, scales, groups = operands.unconverted(i)
    return Setting(
        a=a.codes, nibbles=a.nibbles, k=a.k, granularity=i.granularity, b=b, scales=scales, groups=groups,
        epilogue=epilogue, computes=computes, swapped=operands.swapped,
    )  # fmt: skip


def _families(
    fmt: str | None, instruction: str | None, arch: str, dense: bool, scales: BlockScales | None, k: int
) -> list[tuple[Instruction, ...]]:
    """Return the instructions to try: the instruction that is named, or the sparse and dense instructions of a format.

    For integers, whose sums are exact, dense instructions are tried only in place of sparse ones.
    """
    if instruction or dense:
        return [all_chosen(fmt, instruction, arch, dense, scales, k)]
    families, errors = [], []
    for is_dense in (False, True):
        try:
            families.append(all_chosen(fmt, None, arch, is_dense, scales, k))
        except Error as error:
            errors.append(error)
    if not families:
        raise errors[0]
    return families[:1] if families[0][0].d.is_integer else families


def _conversions(
    search: Search, plain: Way, left: NDArray | Compressed, right: NDArray, i: Instruction
) -> tuple[Sequence[tuple[str, str]], tuple[str, ...]]:
    """Return the conversions of A and B to tf32 to try, likely ones first, and sentences that explain the choice."""
    inexact = [
        name
        for name, value in (("A", left), ("B", right))
        if loses_bits(value.stored if isinstance(value, Compressed) else value, i.a)
    ]
    if not inexact:
        note = ("f32 matrices: all numbers are tf32 numbers, so their conversion does not matter",)
        is_f32 = i.a.name == "tf32" and right.dtype == np.float32
        return [("", "")], note if is_f32 else ()
    pairs = [(a, b) for a, b in _CONVERSIONS if (not a or "A" in inexact) and (not b or "B" in inexact)]
    errors = {(a, b): search.error(replace(plain, convert_a=a, convert_b=b)) for a, b in pairs}
    least = min(errors.values())
    tried = [pair for pair in sorted(pairs, key=errors.__getitem__) if errors[pair] <= _MOST_ERROR * least]
    return tried, (
        f"f32 matrices: {' and '.join(inexact)} hold numbers that tf32 does not; "
        f"tried {', '.join(_conversion_text(*pair) for pair in tried)}",
    )


def _conversion_text(convert_a: str, convert_b: str) -> str:
    words = [f"{one}.tf32" if one else "truncation by the instruction" for one in (convert_a, convert_b)]
    return words[0] if words[0] == words[1] else f"{words[0]} of A with {words[1]} of B"


def _result_codes(y: NDArray, result: str) -> NDArray:
    """Return the codes of a result that the caller gives."""
    own, container = result_dtype(result), CONTAINERS[FORMATS[result].bits]
    raw = y.dtype.kind in "iuV" and y.dtype.type.__module__ != "ml_dtypes" and y.dtype.itemsize == own.itemsize
    if not (y.dtype == own or raw) or y.ndim not in (1, 2) or not y.size:
        raise OperandError(
            f"y must be a matrix of {result}, as {RESULTS[result]} or codes in {container}, not {y.dtype} of shape "
            f"{y.shape}"
        )
    return np.ascontiguousarray(y).view(container)


def _identification(found: Found, outputs: int, notes: tuple[str, ...], is_arch: bool) -> Identification:
    """Return the result of a search; its rows and columns refer to `y`."""
    near, way = found.nearest, found.way
    if near is not None and near.way.swapped:
        near = replace(near, row=near.column, column=near.row)
    others = instructions_alike(way.parsed, way.arch) if way and is_arch else ()
    return Identification(
        exact=way is not None, way=way, compared=outputs, nearest=near, equal=found.equal, possible=found.possible,
        tried=found.tried, alike=found.alike, instructions_alike=tuple(map(str, others)), notes=notes,
        diagnosis=found.diagnosis,
    )  # fmt: skip
