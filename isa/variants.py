"""PTX syntax of all supported ``mma`` and ``wgmma`` instructions, as one table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

__all__ = ["ARCHITECTURES", "VARIANTS", "Variant"]

#: Architectures whose numerics are modelled.
ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
_FP8_ARCHITECTURES = ARCHITECTURES[2:]

_DENSE = ("",)
_PLAIN_AND_ORDERED = ("sp", "sp::ordered_metadata")
_ORDERED = ("sp::ordered_metadata",)
_F8 = ("e4m3", "e5m2")
_F8F6F4 = (*_F8, "e3m2", "e2m3", "e2m1")
_I8 = ("s8", "u8")
_I4 = ("s4", "u4")
_F32 = (("f32", "f32"),)
_F16_OR_F32 = (("f16", "f16"), ("f32", "f32"))
_S32 = (("s32", "s32"),)


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One row of the PTX syntax table: every combination of the values of its fields is an instruction."""

    family: str = "mma"  #: Instruction family of the syntax-table row, ``mma`` or ``wgmma``
    #: Accepted ``.sp`` variants. The empty string is the dense form.
    sparse: tuple[str, ...] = _DENSE
    shapes: tuple[str, ...]  #: Accepted shape qualifiers
    pairs: tuple[tuple[str, str], ...]  #: Accepted pairs of A and B types (atype, btype)
    accumulators: tuple[tuple[str, str], ...]  #: Accepted pairs of D and C types (dtype, ctype)
    kind: str = ""  #: Name after ``.kind::`` in the PTX text, or empty without this qualifier
    #: Accepted pairs of ``.scale_vec`` size and scale type of a block-scaled kind.
    scales: tuple[tuple[int, str], ...] = ()
    satfinite: bool = False  #: Whether the instructions of the syntax-table row accept ``.satfinite``
    architectures: tuple[str, ...] = ARCHITECTURES  #: Architectures that support all instructions of the table row

    @property
    def default_scale_size(self) -> int | None:
        """Number of block scales if ``.scale_vec`` is absent, or None if ``.scale_vec`` is mandatory."""
        sizes = {size for size, _ in self.scales}
        return sizes.pop() if len(sizes) == 1 else None


def _same(*types: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, name) for name in types)


def _any(types: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple(product(types, types))


_WGMMA_N = range(8, 257, 8)
_WGMMA_INTEGER_N = (8, 16, 24, *range(32, 257, 16))
_NVFP4_SCALES = ((2, "ue8m0"), (4, "ue4m3"), (4, "ue8m0"))


def _wgmma(sparse: tuple[str, ...], k: Callable[[int], int]) -> tuple[Variant, ...]:
    """Return the syntax-table rows of sparse or dense ``wgmma``. Function `k` turns stored columns of A into K."""

    def m64(stored_k: int, columns: Sequence[int] = _WGMMA_N) -> tuple[str, ...]:
        return tuple(f"m64n{n}k{k(stored_k)}" for n in columns)

    hopper = partial(Variant, family="wgmma", sparse=sparse, architectures=("sm_90",))
    return (
        hopper(shapes=m64(16), pairs=_same("f16"), accumulators=_F16_OR_F32),
        hopper(shapes=m64(16), pairs=_same("bf16"), accumulators=_F32),
        hopper(shapes=m64(8), pairs=_same("tf32"), accumulators=_F32),
        hopper(shapes=m64(32), pairs=_any(_F8), accumulators=_F16_OR_F32),
        hopper(shapes=m64(32, _WGMMA_INTEGER_N), pairs=_any(_I8), accumulators=_S32, satfinite=True),
    )


def _mma(sparse: tuple[str, ...], k: Callable[[int], str]) -> tuple[Variant, ...]:
    """Return the syntax-table rows of sparse or dense ``mma``. Function `k` turns stored columns of A into a shape."""
    with_kind = partial(Variant, sparse=_ORDERED if any(sparse) else _DENSE, architectures=("sm_120",))
    return (
        Variant(sparse=sparse, shapes=(k(8), k(16)), pairs=_same("f16"), accumulators=_F16_OR_F32),
        Variant(sparse=sparse, shapes=(k(8), k(16)), pairs=_same("bf16"), accumulators=_F32),
        Variant(sparse=sparse, shapes=(k(4), k(8)), pairs=_same("tf32"), accumulators=_F32),
        Variant(sparse=sparse, shapes=(k(32),), pairs=_any(_F8), accumulators=_F32, architectures=_FP8_ARCHITECTURES),
        Variant(sparse=sparse, shapes=(k(16), k(32)), pairs=_any(_I8), accumulators=_S32, satfinite=True),
        Variant(sparse=sparse, shapes=(k(32), k(64)), pairs=_any(_I4), accumulators=_S32, satfinite=True),
        with_kind(kind="f8f6f4", shapes=(k(32),), pairs=_any(_F8F6F4), accumulators=_F16_OR_F32),
        with_kind(kind="mxf8f6f4", shapes=(k(32),), pairs=_any(_F8F6F4), accumulators=_F32, scales=((1, "ue8m0"),)),
        with_kind(kind="mxf4", shapes=(k(64),), pairs=_same("e2m1"), accumulators=_F32, scales=((2, "ue8m0"),)),
        with_kind(kind="mxf4nvf4", shapes=(k(64),), pairs=_same("e2m1"), accumulators=_F32, scales=_NVFP4_SCALES),
    )


#: Syntax table, with the rows of ``mma.sp`` (PTX ISA 9.7.14.6.3), dense ``mma`` (9.7.14.5.14), ``wgmma.mma_async.sp``
#: (9.7.15.6.3) and dense ``wgmma.mma_async`` (9.7.15.5.2). The architectures of each row are those for which the CUDA
#: 13.0 assembler accepts it, with one exception: the assembler also accepts ``.kind::f8f6f4`` with fp8 types on sm_100,
#: where the manual requires sm_120.
VARIANTS: tuple[Variant, ...] = (
    *_mma(_PLAIN_AND_ORDERED, lambda stored: f"m16n8k{2 * stored}"),
    Variant(
        sparse=_ORDERED,
        shapes=("m16n8k64",),
        pairs=_any(_F8),
        accumulators=_same("f16"),
        architectures=("sm_120",),
    ),
    *_mma(_DENSE, lambda stored: f"m16n8k{stored}"),
    Variant(shapes=("m16n8k16",), pairs=_any(_F8), accumulators=_F16_OR_F32, architectures=_FP8_ARCHITECTURES),
    Variant(shapes=("m16n8k32",), pairs=_any(_F8), accumulators=_same("f16"), architectures=_FP8_ARCHITECTURES),
    Variant(shapes=("m8n8k16",), pairs=_any(_I8), accumulators=_S32, satfinite=True),
    Variant(shapes=("m8n8k32",), pairs=_any(_I4), accumulators=_S32, satfinite=True),
    *_wgmma(("sp",), lambda stored: 2 * stored),
    *_wgmma(_DENSE, lambda stored: stored),
)
