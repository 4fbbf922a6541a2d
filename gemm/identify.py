"""``sptc.identify`` and ``sptc.diagnose``: find the way of summation, or the kernel fault, that gives a result."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from inspect import signature
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
from ..tensors.compressed import Compressed, SparsityError
from ..tensors.element_types import is_extension
from .block_scales import BlockScales, block_scales_of
from .candidates import Expressions, candidates
from .choice import fastest, formats_of, in_factor_order, instructions_alike, instructions_for
from .diagnosis import Diagnosis, Identification
from .epilogue import RESULTS, SCALE_ORDERS, Epilogue, result_dtype
from .faults_operands import rounded_otherwise
from .group_scales import grouped_way
from .matrices import as_array, as_factor, loses_bits, typed_codes
from .options import all_chosen, along_m, check_types, epilogue_of, format_of, grouped, oriented
from .search import Operands, Search, searched
from .setting import Problem, Setting
from .sums import check_result
from .ways import CONVERSIONS, Way

__all__ = ["Identification", "diagnose", "identify"]

#: Conversions of A and B to tf32 to try, likely conversions first.
_CONVERSIONS = (
    *((one, one) for one in CONVERSIONS), *(pair for one in CONVERSIONS[1:] for pair in ((one, ""), ("", one)))
)  # fmt: skip
#: Formats whose elements some kernels with small tiles convert exactly to f16 in registers.
_WIDENED = {"e4m3", "e5m2"}
#: A conversion to tf32 is tried only if its median error against float64 is at most `_MOST_ERROR` times the
#: smallest median error. In an f32 result the error of a wrong conversion is a thousand times the error of summation.
_MOST_ERROR = 16


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
        The only instruction to try (default: all instructions of the format that give different result bits).
    backend : str, optional
        Back end that computes (default: libsptc, or the golden model if libsptc cannot be compiled).
    dense : bool
        Both factors are dense: try only dense instructions.
    prune, nan
        As for :func:`sptc.gemm`. Dense instructions multiply the pruned A, too.
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
        The way of summation and the number of outputs that distinguish it from the next best way; or the nearest way.

    Raises
    ------
    Error
        The input is invalid.
    """
    texts = {"format": format, "instruction": instruction, "arch": arch, "result": result}
    check_types(None, texts, {"dense": dense, "prune": prune, "relu": relu})
    target = _result_codes(as_array("y", y), result)
    left, right = as_factor("a", a), as_array("b", b)
    scales, vector = block_scales_of(block_scale_a, block_scale_b), right.ndim == 1
    fmt = format or (None if instruction else format_of(left, right))
    if fmt and isinstance(left, np.ndarray):
        left, right = map(typed_codes, (left, right), formats_of(fmt))
    k, named = left.shape[-1] if left.shape else 0, arch
    # With a given instruction, `fmt` is checked later: A or B can be the left factor, and this is not yet known.
    families = _families(None if instruction else fmt, instruction, named, dense, scales, k)
    arch = same_numerics(arch)
    plain = Way(instruction=str(families[0][0]), arch=arch, result=result)
    check_result(plain)
    if vector:
        scales = scales and scales.of_vector()
        right, target = right[:, None], target[:, None] if target.ndim == 1 else target
    try:
        operands = Operands(left, right, families[0][0], prune, nan)
    except SparsityError as error:
        if instruction:
            raise
        raise error.with_hint("if both matrices are dense, give dense=True, or --dense") from None
    if fmt and (instruction or operands.swapped):
        families = _families(in_factor_order(fmt, operands.swapped), instruction, named, dense, scales, k)
    shape = operands.shape
    if target.shape != shape:
        raise OperandError(f"y must have the shape {shape} of the product, not {target.shape}")
    epilogue = epilogue_of(alpha=alpha, beta=beta, c=c, bias=bias, scale_a=scale_a, scale_b=scale_b, relu=relu)
    if vector:
        epilogue = epilogue.mapped(along_m)
    plain = replace(plain, swapped=operands.swapped)
    promoted = None if promote is None else replace(plain, promote=promote)
    groups, epilogue = grouped(promoted, epilogue, group_scale_a, group_scale_b, shape, operands.k)
    has_both_scales = epilogue.scale_a is not None and epilogue.scale_b is not None
    epilogue, _ = oriented(plain, shape, epilogue, None)
    target = target.T if operands.swapped else target
    operands.scale(scales, groups)
    operands.of(plain)  # operands.of() raises an error if block scales have a wrong shape.
    computes = with_numerics(fastest(backend, arch), numerics, plain.parsed if instruction else None, arch)
    search = Search(operands, np.ascontiguousarray(target), computes, arch, epilogue)
    if workers is not None and (not is_integer(workers) or workers < 1):
        raise OperandError(f"workers must be an integer of 1 or more, not {shown(workers)}")
    conversions, notes = _conversions(search, plain, left, right, families[0][0])
    known = {} if promote is None else {"promote": promote}
    variants = [
        {**known, "convert_a": convert_a, "convert_b": convert_b, "scale_order": order}
        for (convert_a, convert_b), order in product(conversions, SCALE_ORDERS if has_both_scales else SCALE_ORDERS[:1])
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
        expressions = Expressions(search.instructions, search.target.shape)
        ways = [way for way in search.nearest_ways() if way.parsed.a is i.a] or [grouped_way(plain, groups)]
        return Problem(
            setting=setting, target=search.target, ways=ways, instructions=own[0],
            rounded=rounded, more_ways=lambda: candidates(own, plain, expressions, variants, group),
        )  # fmt: skip

    identification = searched(
        search, families, plain, variants, problem, group, None if workers is None else int(workers)
    )
    near = identification.nearest
    if near is not None and near.way.swapped:
        near = replace(near, row=near.column, column=near.row)
    way = identification.way
    others = instructions_alike(way.parsed, way.arch) if way and numerics is None else ()
    return replace(identification, nearest=near, notes=notes, instructions_alike=tuple(map(str, others)))


def diagnose(a: Any, b: Any, y: Any, **options: Any) -> Diagnosis:
    """Search for the way of summation, or else for the kernel fault, that gives every bit of a result.

    Parameters
    ----------
    a, b, y : array or tensor
        Factors and result, as for :func:`sptc.identify`.
    **options
        Keyword arguments of :func:`sptc.identify`, of which `result` is required: for example `format`, `arch`,
        `instruction`, `dense`, and the epilogue.

    Returns
    -------
    Diagnosis
        Whether every bit is explained, the explanation, the outputs that differ from the correct product, and the
        number of outputs that remain unexplained.

    Raises
    ------
    Error
        The input is invalid.

    Notes
    -----
    A fault explains a result only if it gives every bit, and only if the outputs that differ hold far more bits than
    the fault has free parameters: a single wrong output is never explained.
    """
    identification = identify(a, b, y, **options)
    shape = as_array("y", y).shape
    if identification.exact:
        text = f"correct: all {int(np.prod(shape))} outputs equal those of the correct product by one way of summation"
        return Diagnosis(True, "correct", text, np.zeros(shape, bool), 0, identification.way, None)
    diagnosis = identification.diagnosis
    assert diagnosis
    return replace(diagnosis, differing=np.reshape(diagnosis.differing, shape), nearest=identification.nearest)


# Signature for help(), which lists the keyword arguments one by one.
diagnose.__signature__ = signature(identify).replace(return_annotation=Diagnosis)  # type: ignore[attr-defined]


def _setting(operands: Operands, i: Instruction, epilogue: Epilogue, computes: Backend) -> Setting:
    """Return operands (converted to the formats of an instruction) and epilogue of a product as a :class:`Setting`."""
    a, b, scales, groups = operands.parts(i)
    return Setting(
        a=a.codes, nibbles=a.nibbles, k=a.k, granularity=i.granularity, b=b, scales=scales, groups=groups,
        epilogue=epilogue, computes=computes, swapped=operands.swapped,
    )  # fmt: skip


def _families(
    fmt: str | None, instruction: str | None, arch: str, dense: bool, scales: BlockScales | None, k: int
) -> list[tuple[Instruction, ...]]:
    """Return the instructions to try: the named instruction, or else sparse and dense instructions of a format.

    Integer sums are exact, so sparse and dense instructions give the same result. Dense integer instructions are
    therefore returned only if there are no sparse integer instructions.
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
    """Return the conversions of A and B to tf32 to try, likely ones first, and notes that explain the choice."""
    inexact = [
        name
        for name, value in (("A", left), ("B", right))
        if loses_bits(value.stored if isinstance(value, Compressed) else value, i.a)
    ]
    if not inexact:
        is_f32 = i.a.name == "tf32" and right.dtype == np.float32
        note = "f32 matrices: tf32 represents all numbers, so the conversion to tf32 does not matter"
        return [("", "")], (note,) if is_f32 else ()
    pairs = [(a, b) for a, b in _CONVERSIONS if (not a or "A" in inexact) and (not b or "B" in inexact)]
    errors = {(a, b): search.error(replace(plain, convert_a=a, convert_b=b)) for a, b in pairs}
    least = min(errors.values())
    tried = [pair for pair in sorted(pairs, key=errors.__getitem__) if errors[pair] <= _MOST_ERROR * least]
    texts = []
    for pair in tried:
        words = [f"{one}.tf32" if one else "truncation by the instruction" for one in pair]
        texts.append(words[0] if words[0] == words[1] else f"{words[0]} of A with {words[1]} of B")
    note = f"f32 matrices: {' and '.join(inexact)} hold numbers that tf32 cannot represent; tried {', '.join(texts)}"
    return tried, (note,)


def _result_codes(y: NDArray, result: str) -> NDArray:
    """Return the codes of a result `y`, which holds numbers of the result type or their codes."""
    own, container = result_dtype(result), CONTAINERS[FORMATS[result].bits]
    raw = y.dtype.kind in "iuV" and not is_extension(y.dtype) and y.dtype.itemsize == own.itemsize
    if not (y.dtype == own or raw) or y.ndim not in (1, 2) or not y.size:
        raise OperandError(
            f"y must be a matrix of {result}, as {RESULTS[result]} or codes in {container}, not {y.dtype} of shape "
            f"{y.shape}"
        )
    return np.ascontiguousarray(y).view(container)
