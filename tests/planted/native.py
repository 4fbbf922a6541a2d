"""Faults of the C++ library: a line of its sources is another one."""

import atexit
import shutil
import tempfile
from pathlib import Path
from typing import Any

from . import Change, fault


def _reads(change: Change, library: Any, file: str, right: str, wrong: str) -> None:
    """Build the library from a copy of its sources with a text replaced."""
    folder = Path(tempfile.mkdtemp(prefix="sptc-planted-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for part in ("src", "include"):
        shutil.copytree(library.SOURCES / part, folder / part)
    text = (folder / "src" / file).read_text(encoding="utf-8")
    assert text.count(right) == 1, f"{right!r} stands {text.count(right)} times in {file}"
    (folder / "src" / file).write_text(text.replace(right, wrong), encoding="utf-8")
    change(library, "SOURCES", folder)


@fault("native.raw.subnormal", "native.library")
def _(library: Any, change: Change) -> None:
    """Subnormals of formats of up to 8 bits have the exponent of the field."""
    _reads(change, library, "raw.cpp", "(subnormal ? 1 : int32_t(field))", "int32_t(field)")


@fault("native.raw.widened", "native.library")
def _(library: Any, change: Change) -> None:
    """An emulated fp8 keeps its own exponent where an f16 is normal."""
    _reads(change, library, "raw.cpp", "exponent > f16.minimum_exponent()", "false")


@fault("native.kernels.infinity", "native.library")
def _(library: Any, change: Change) -> None:
    """An Inf of 16 or 32 bits is positive."""
    _reads(change, library, "kernels.cpp", "EXPONENT_OF_INFINITY + negative;", "EXPONENT_OF_INFINITY;")


@fault("native.kernels.floor", "native.library")
def _(library: Any, change: Change) -> None:
    """The least exponent that terms are aligned to is one too small."""
    _reads(change, library, "kernels.cpp", "window.numerics.zero_exponent;\n    return {special",
           "window.numerics.zero_exponent - 1;\n    return {special")  # fmt: skip


@fault("native.kernels.overflow", "native.library")
def _(library: Any, change: Change) -> None:
    """Thirty-two products are summed in 32 bits, where sixteen fit."""
    _reads(change, library, "kernels.cpp", "SLOTS_IN_32_BITS = 16", "SLOTS_IN_32_BITS = 32")


@fault("native.kernels.cancelled", "native.library")
def _(library: Any, change: Change) -> None:
    """A group whose products cancel does not count in the maximum."""
    _reads(change, library, "kernels.cpp", "(any != 0) &", "(sum != 0) &")


@fault("native.kernels.clamp", "native.library")
def _(library: Any, change: Change) -> None:
    """What overflows is clamped whether or not the instruction says so."""
    _reads(
        change, library, "kernels.cpp", "window.saturates ? bits_as<Words>(clamped) : after", "bits_as<Words>(clamped)"
    )


@fault("native.lanes.subnormal", "native.library")
def _(library: Any, change: Change) -> None:
    """A subnormal result keeps bits that it has not."""
    _reads(change, library, "lanes.h", "magnitude < LEAST_NORMAL ? Doubles{} + LEAST_NORMAL : Doubles{};", "Doubles{};")


@fault("native.lanes.ties", "native.library")
def _(library: Any, change: Change) -> None:
    """Subnormal f16 results are rounded at the place of a normal one."""
    _reads(change, library, "lanes.h", "(power > LEAST_NORMAL ? power : Doubles{} + LEAST_NORMAL)", "power")


@fault("native.product.pairs", "native.library")
def _(library: Any, change: Change) -> None:
    """The two steps of an emulated instruction take single elements in turn, not pairs."""
    _reads(change, library, "product.cpp", "(one & 2) < (other & 2)", "(one & 1) < (other & 1)")


@fault("native.product.splice", "native.library")
def _(library: Any, change: Change) -> None:
    """Of a tf32 spliced of two, both halves are those of the lower index."""
    _reads(change, library, "product.cpp", "half(nibble >> 2, column)", "half(nibble & 3, column)")


@fault("native.product.edge", "native.library")
def _(library: Any, change: Change) -> None:
    """Of rows beyond a block, the first are computed again."""
    _reads(change, library, "product.cpp", "block.first_row = number % rows * ROWS;", "block.first_row = 0;")


@fault("native.registers.selector", "native.library")
def _(library: Any, change: Change) -> None:
    """The sparsity selector is not looked at."""
    _reads(change, library, "registers.cpp", "const int lanes = selector *", "const int lanes = 0 * selector *")


@fault("native.registers.policy", "native.library")
def _(library: Any, change: Change) -> None:
    """A nibble 0 is taken whatever the chunk stores."""
    _reads(change, library, "metadata.cpp", "nibble == 0 && is_zero(index)", "nibble == 0")


@fault("native.registers.sign", "native.library")
def _(library: Any, change: Change) -> None:
    """Both imm-scales negative negate the products."""
    _reads(change, library, "interface.cpp", "given.imm_scale_a != given.imm_scale_b",
           "given.imm_scale_a < 0 || given.imm_scale_b < 0")  # fmt: skip


@fault("native.shared.base", "native.library")
def _(library: Any, change: Change) -> None:
    """The base offset of a descriptor is not looked at."""
    _reads(change, library, "shared.cpp", "(address >> 7) - descriptor.base_offset", "(address >> 7)")


@fault("native.descriptor.start", "native.library")
def _(library: Any, change: Change) -> None:
    """A start count beyond the first span of a zero-column mask goes on into the second."""
    _reads(change, library, "descriptor.cpp", "std::min(given, first_span - 1)", "given")


@fault("native.tensor.part", "native.library")
def _(library: Any, change: Change) -> None:
    """Parts of D lie a partition of the lanes apart, however many rows they have."""
    _reads(change, library, "tensor.cpp", "column / width * layout.rows", "column / width * PARTITION")


@fault("native.tcgen05.disabled", "native.library")
def _(library: Any, change: Change) -> None:
    """Lanes of D that are disabled are written."""
    _reads(change, library, "tcgen05.cpp", "if (placed_.disabled[TensorMap::lane(word)]) continue;", "")


@fault("native.tcgen05.scales", "native.library")
def _(library: Any, change: Change) -> None:
    """Both CTAs of a pair multiply by the first one's block scales of B."""
    _reads(change, library, "tcgen05.cpp", "part(tile.scale_b)", "tile.scale_b.data()")


@fault("native.tables.places", "native.tables")
def _(tables: Any, change: Change) -> None:
    """The header has the metadata of the upper rows eight bits too low."""
    right = tables._places

    def places(threads: Any, elements: Any) -> Any:
        return right(threads, elements).replace("{0, 0, 0, 16,", "{0, 0, 0, 8,")

    change(tables, "_places", places)
