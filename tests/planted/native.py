"""Faults of the C++ library: changed lines of its sources."""

import atexit
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import Change, fault

#: Faults of the C++ library: name, description, source file, text in this file, and replacement of the text.
_LINES = [
    ("raw.subnormal", "Subnormals of formats with at most 8 bits have the exponent 0 of their field, not 1.",
     "raw.cpp", "(subnormal ? 1 : int32_t(field))", "int32_t(field)"),
    ("raw.widened", "A subnormal fp8 that is converted to f16 is not normalised, although it is a normal f16.",
     "raw.cpp", "exponent > f16.minimum_exponent()", "false"),
    ("kernels.infinity", "A negative infinity of 16 or 32 bits becomes positive.",
     "kernels.cpp", "EXPONENT_OF_INFINITY + negative :", "EXPONENT_OF_INFINITY :"),
    ("kernels.floor", "The smallest alignment exponent (e_zero) is one too small.",
     "product.cpp", "window.numerics = numerics;",
     "window.numerics = numerics, --window.numerics.zero_exponent;"),
    ("kernels.overflow", "Up to 32 products are summed in 32-bit integers, although only sums of 16 products fit.",
     "kernels.cpp", "SLOTS_IN_32_BITS = 16", "SLOTS_IN_32_BITS = 32"),
    ("kernels.cancelled", "A group whose products cancel does not count in the maximum of the exponents.",
     "kernels.cpp", "(any != 0) &", "(sum != 0) &"),
    ("kernels.clamp", "Integer sums are also clamped without `.satfinite`.",
     "kernels.cpp", "window.saturates ? bits_as<Words>(clamped) : after", "bits_as<Words>(clamped)"),
    ("lanes.subnormal", "A subnormal result has more fraction bits than its format.",
     "lanes.h", "magnitude < LEAST_NORMAL ? Doubles{} + LEAST_NORMAL : Doubles{};", "Doubles{};"),
    ("lanes.ties", "A subnormal f16 result is rounded at the last bit of a normal number.",
     "lanes.h", "(power > LEAST_NORMAL ? power : Doubles{} + LEAST_NORMAL)", "power"),
    ("product.pairs", "The two steps of an emulated instruction take every other element, not every other pair.",
     "product.cpp", "(one & 2) < (other & 2)", "(one & 1) < (other & 1)"),
    ("product.splice", "A tf32 from halves of two elements gets both halves by the lower index of its nibble.",
     "product.cpp", "half(nibble >> 2, column)", "half(nibble & 3, column)"),
    ("product.edge", "The first block of output rows is computed in place of every other block.",
     "product.cpp", "block.first_row = number % rows * ROWS;", "block.first_row = 0;"),
    ("product.flushed", "Subnormal numbers are zero if the caller's thread is set so.",
     "product.cpp", "std::fesetenv(FE_DFL_ENV);", ""),
    ("registers.selector", "The sparsity selector is ignored.",
     "registers.cpp", "const int lanes = selector *", "const int lanes = 0 * selector *"),
    ("registers.policy", "A nibble of zero is accepted even if its chunk stores nonzero values.",
     "metadata.cpp", "nibble == 0 && is_zero(index)", "nibble == 0"),
    ("registers.sign", "The products are negated even if both imm-scales are negative.",
     "interface.cpp", "wgmma.imm_scale_a != wgmma.imm_scale_b", "wgmma.imm_scale_a < 0 || wgmma.imm_scale_b < 0"),
    ("shared.base", "The base offset of a descriptor is ignored.",
     "shared.cpp", "(address >> 7) - descriptor.base_offset", "(address >> 7)"),
    ("descriptor.start", "A start count of a zero-column mask that exceeds the first span is not clamped.",
     "descriptor.cpp", "std::min(start, first_span - 1)", "start"),
    ("tensor.part", "Successive parts of D start 32 lanes (one partition) apart, for any number of rows.",
     "tensor.cpp", "column / width * layout.rows", "column / width * PARTITION"),
    ("tcgen05.disabled", "Disabled lanes of D are written.",
     "tcgen05.cpp", "if (placed_.disabled[TensorMap::lane(word)]) continue;", ""),
    ("tcgen05.scales", "Both CTAs of a pair use the block scales of B of the first CTA.",
     "tcgen05.cpp", "part(tile.scale_b)", "tile.scale_b.data()"),
    ("registers.nibble", "Only the lower of the two metadata nibbles in a byte is checked.",
     "registers.cpp", " & instruction.rule().legal >> (byte >> 4) & 1", " & 1"),
    ("tcgen05.copies", "Copies of operands are compared only in the first CTA of a pair.",
     "tcgen05.cpp", "check_copies(name, *where, tensor(image, cta));", "check_copies(name, *where, tensor(image, 0));"),
    ("tcgen05.subnormal", "An accumulator that scaling turns into a subnormal number is accepted.",
     "tcgen05.cpp", "if (field <= uint32_t(exponent)) return false;", "if (field < uint32_t(exponent)) return false;"),
    ("product.nan", "A NaN block scale of A is recognised only beside other special values.",
     "product.cpp", "special |= is_special(scale.exponent);", ""),
    ("interface.major", "B in shared memory is read with the major-ness of A (K-major or MN-major) instead of its own.",
     "interface.cpp", 'form.unit_b, wgmma.imm_trans_b, "b"', 'form.unit_b, wgmma.imm_trans_a, "b"'),
]  # fmt: skip


def _otherwise(file: str, right: str, wrong: str) -> Callable[[Any, Change], None]:
    """Return a function that plants a fault: the library is built from a copy of its sources with a replaced text."""

    def plant(library: Any, change: Change) -> None:
        folder = Path(tempfile.mkdtemp(prefix="sptc-planted-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        for part in ("src", "include"):
            shutil.copytree(library.SOURCES / part, folder / part)
        text = (folder / "src" / file).read_text(encoding="utf-8")
        assert text.count(right) == 1, f"{right!r} occurs {text.count(right)} times in {file}"
        (folder / "src" / file).write_text(text.replace(right, wrong), encoding="utf-8")
        change(library, "SOURCES", folder)

    return plant


for _name, _mistake, *_texts in _LINES:
    _plant = _otherwise(*_texts)
    _plant.__doc__ = _mistake
    fault(f"native.{_name}", "native.library")(_plant)


@fault("native.tables.places", "native.tables")
def _(tables: Any, change: Change) -> None:
    """The header places the metadata of the upper rows eight bits too low."""
    from sptc.native import library

    right = tables.place_row
    change(tables, "place_row", lambda *maps: right(*maps).replace("{0, 0, 0, 16,", "{0, 0, 0, 8,"))
    # With this definition, the cache stores the library with the faulty header as a library of its own.
    change(library, "_REQUIRED", (*library._REQUIRED, "-DSPTC_PLANTED"))
