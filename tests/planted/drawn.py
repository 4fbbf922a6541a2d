"""Faults of all rooms that were drawn up after the others, from kinds that tests had missed before."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from . import Change, computes, fault, instead
from .circuits import amended, drives, exchanged, named, reads
from .native import otherwise

# --- rtl ---


@amended("rtl.drawn.wait", "rtl.warpgroup", "Commands")
def _(warpgroup: Any, self: Any, m: Any) -> Any:
    """A wait that may leave groups pending leaves one more."""
    allowed = self.i.payload.pending
    with m.If(self.i.payload.operation == warpgroup.Operation.WAIT):
        yield self.i.ready.eq(m.submodules["commits"].pending <= allowed + (allowed != 0))


@instead("rtl.drawn.groups", "rtl.life_cycle", "LifeCycle.elaborate")
def _(life_cycle: Any, right: Any, self: Any, platform: object) -> Any:
    """A group is forgotten, though not waited for, once eight others are committed."""
    m = right(self, platform)
    groups = named(m, "groups")
    with m.If(self.taken & (self.operation == life_cycle.Operation.COMMIT)):
        m.d.sync += groups[-1].eq(groups[-2])
    return m


@amended("rtl.drawn.delivery", "rtl.tensor_cores", "RegisterDelivery")
def _(tensor_cores: Any, self: Any, m: Any) -> Any:
    """A reset does not end the delivery of registers, so that the next one begins in its middle."""
    named(m, "cycle")._reset_less = True
    yield from ()


@instead("rtl.drawn.major", "rtl.operand_fetch", "OperandFetch.elaborate")
def _(operand_fetch: Any, right: Any, self: Any, platform: object) -> Any:
    """Core matrices of A are transposed if the requested panel of B is MN-major."""
    m = right(self, platform)
    m.d.sync += named(m, "arriving_mn_major").eq(self.b.payload.mn_major)
    return m


@instead("rtl.drawn.first", "rtl.tensor_operands", "TensorOperands.elaborate")
def _(tensor_operands: Any, right: Any, self: Any, platform: object) -> Any:
    """The reads of an instruction begin behind the last operand of the one before, not with metadata."""
    m = right(self, platform)
    with m.If(self.memory.read & self.i.ready):
        m.d.sync += named(m, "first").eq(named(m, "operand") + 1)
    return m


@fault("rtl.drawn.shift_amount", "rtl.slots")
def _(slots: Any, change: Change) -> None:
    """The shift amount of a product has one bit too few."""
    right = slots.Slot.shift_amount_bits.fget
    change(slots.Slot, "shift_amount_bits", property(lambda self: right(self) - bool(self.floats)))


@instead("rtl.drawn.parity", "rtl.round", "RoundStage._float")
def _(rounding: Any, right: Any, self: Any, m: Any, i: Any, normalised: Any) -> Any:
    """Ties of negative sums go to the odd f16, whose complement is even."""
    result = right(self, m, i, normalised)
    if rounding.ResultCode.F16 in self.results:
        m.d.comb += named(m, "odd").eq(normalised.shifted[-1 - rounding._F16.fraction_bits])
    return result


@amended("rtl.drawn.nan", "rtl.scale", "ExponentOffset", preset="blackwell")
def _(scale: Any, self: Any, m: Any) -> Any:
    """Only a ue8m0 scale of A can be NaN, not one of B."""
    if "ue8m0" in self.config.scales:
        yield self.nan.eq(self.enable & self.scale_a.all())


reads("rtl.drawn.wide", "rtl.tensor_words", "TensorWords",
      "The second half of a quad gets wide metadata if the instruction in the other slot is wide.",
      lambda self: {"wide": self.wide.rotate_left(1)})  # fmt: skip


#: Assignments that stand behind what a component builds: the name of the fault, the component and what is wrong.
DRIVES: list[tuple[str, str, str, str, Callable[..., Any]]] = [
    ("rtl.drawn.complete", "rtl.stored_a", "StoredA",
     "A from shared memory counts as complete with the first half of its last panel.",
     lambda self, m: [
         self.complete[slot].eq(
             self.arriving & (self.core_matrix.tag == slot) & (self.core_matrix.panel == self._panels - 1)
         )
         for slot in range(len(self.complete))
     ]),
    ("rtl.drawn.pair", "rtl.tcgen05", "Tcgen05",
     "The two CTAs of a pair take block scales of B in the order of multiplication, not of the columns.",
     lambda self, m: [m.submodules["words"].panel.eq(m.submodules["slots"].panel)]),
]  # fmt: skip
for _row in DRIVES:
    drives(*_row)


@instead("rtl.drawn.nibbles", "rtl.order", "nibble_order")
def _(order: Any, right: Any, config: Any, *, wide: bool) -> Any:
    """The decoders of two interleaved chunks get the metadata of two wide chunks, not that of one."""
    result = right(config, wide=wide)
    return [lane % (config.chunks // 2) for lane in range(len(result))] if wide and config.interleaved else result


#: Functions of one expression that run in place of another: the name of the fault, the function and what is wrong.
COMPUTES: list[tuple[str, str, str, str, Callable[..., Any]]] = [
    ("rtl.drawn.overlap", "rtl.accumulators", "_overlap",
     "Results overlap a read of accumulators only from its first column on, not from before it.",
     lambda accumulators, right, a, b: (a - b)[: accumulators.COLUMN_BITS] < accumulators.COLUMNS),
    ("rtl.drawn.byte", "rtl.warp", "Warp._scales", "Rows 8 to 15 take their block scales from byte 0 on.",
     lambda warp, right, self, held, operand, index: right(
         self, exchanged(held, byte_a=warp.Const(0, 2)) if index >= 8 else held, operand, index)),
    ("rtl.drawn.short", "rtl.warp", "Warp._b_column",
     "The upper half of B is not zero with a short sparse instruction, but what the registers hold.",
     lambda warp, right, self, held, column, step: warp.Mux(
         held.control.sparse, right(self, exchanged(held, long=warp.Const(1, 1)), column, step),
         right(self, held, column, step))),

    # --- golden ---
    ("golden.drawn.subnormal", "golden.accumulator", "accumulator_exponents",
     "A subnormal f16 accumulator has the exponent of its leading digit.",
     lambda accumulator, right, c, fmt, zero_exponent: right(c, replace(fmt, bias=127), zero_exponent)),
    ("golden.drawn.zero_scale", "golden.grouped", "grouped_step",
     "A group whose block scale is zero counts in the largest exponent.",
     lambda grouped, right, a, b, c, accumulator, numerics, scales, traces=None: right(
         a, b, c, accumulator, numerics,
         replace(scales, significands=np.where(scales.significands == 0, 2.0**-300, scales.significands)), traces)),

    # --- isa ---
    ("isa.drawn.shift", "isa.column_mask", "largest_shift", "B may be shifted by 32 columns with 32 rows, too.",
     lambda column_mask, right, m: 32),

    # --- gemm ---
    ("gemm.drawn.swapped", "gemm.block_scales", "BlockScales.checked",
     "Block scales are not exchanged where the factors are.",
     lambda block_scales, right, self, i, shape, k, *, swapped: right(self, i, shape, k, swapped=False)),

    # --- sim ---
    ("sim.drawn.clamp", "sim.engine.steps", "control_word", "Every step clamps a saturating sum, not only the last.",
     lambda steps, right, config, instruction, last: right(config, instruction, True)),
]  # fmt: skip
for _row in COMPUTES:
    computes(*_row)

# --- golden ---


@instead("golden.drawn.overflow", "golden.rounding", "toward_zero_f32")
def _(rounding: Any, right: Any, exact: Any) -> Any:
    """A sum beyond the largest f32 is truncated to it, as smaller ones are."""
    result = right(exact)
    over = np.isinf(result)
    result[over] = np.copysign(np.finfo(np.float32).max, result[over])
    return result


@fault("golden.drawn.whole", "golden.select")
def _(select: Any, change: Change) -> None:
    """The nibble 0b0001 counts as one of a whole tf32, though it exchanges its halves."""
    change(select, "WHOLE_ELEMENT_NIBBLES", (0b0001, *select.WHOLE_ELEMENT_NIBBLES))


@fault("golden.drawn.nan", "golden.decode")
def _(decode: Any, change: Change) -> None:
    """Only the block scales of the first group can be NaN."""
    change(decode.Scales, "nan", property(lambda self: np.isnan(self.significands[0])))


@instead("golden.drawn.scales", "golden.matrix", "_scales")
def _(matrix: Any, right: Any, *arguments: Any) -> Any:
    """The exponents of two block scales are added in eight bits."""
    result = right(*arguments)
    return replace(result, exponents=result.exponents.astype(np.int8).astype(np.int32))


# --- isa ---


@instead("isa.drawn.committed", "isa.life_cycle", "WgmmaSequence._access")
def _(life_cycle: Any, right: Any, self: Any, kind: str, words: str, names: Any) -> None:
    """An access is held against the last committed group only, not against all that are pending."""
    pending, self._committed = self._committed, self._committed[-1:]
    try:
        right(self, kind, words, names)
    finally:
        self._committed = pending


@instead("isa.drawn.parts", "isa.tensor_memory", "scale_map")
def _(memory: Any, right: Any, name: str, lines: int, size: int, scale_id: int, address: int, parts: int = 1) -> Any:
    """Parts of N have their block scales a partition apart, not as far as D."""
    where, part = right(name, lines, size, scale_id, address, parts), np.arange(lines)[:, None] // (lines // parts)
    return replace(where, lanes=where.lanes - part * (memory.LANES // parts - memory.PARTITION))


@instead("isa.drawn.straddling", "isa.memory", "SharedMap.first_beyond")
def _(memory: Any, right: Any, self: Any, size: int) -> int | None:
    """The first byte of an element decides whether it is beyond the end."""
    beyond = self.addresses[self.addresses >= size]
    return int(beyond.min()) if beyond.size else None


@fault("isa.drawn.filled", "isa.kernel_timing")
def _(kernel_timing: Any, change: Change) -> None:
    """The metadata of a tile takes no cycles to be loaded."""
    change(kernel_timing, "_METADATA_BYTES", 0)


# --- native ---

#: Name, what is wrong, and in which file which text takes the place of which, as in ``native.py``.
LINES = [
    ("nibble", "Of two nibbles in a byte only the lower one is checked.",
     "registers.cpp", " & instruction.rule().legal >> (byte >> 4) & 1", " & 1"),
    ("copies", "Copies of operands are compared in the first CTA of a pair only.",
     "tcgen05.cpp", "check_copies(name, *where, tensor(image, cta));", "check_copies(name, *where, tensor(image, 0));"),
    ("subnormal", "D may be scaled to just below the least normal number.",
     "tcgen05.cpp", "if (field <= uint32_t(exponent)) return false;", "if (field < uint32_t(exponent)) return false;"),
    ("nan", "A NaN among the block scales of A is seen only beside other special values.",
     "product.cpp", "special |= is_special(scale.exponent);", ""),
    ("major", "The major of B in shared memory is that of A.",
     "interface.cpp", 'form.unit_b, wgmma.imm_trans_b, "b"', 'form.unit_b, wgmma.imm_trans_a, "b"'),
]  # fmt: skip
for _name, _mistake, *_texts in LINES:
    _plant = otherwise(*_texts)
    _plant.__doc__ = _mistake
    fault(f"native.drawn.{_name}", "native.library")(_plant)

# --- gemm and tensors ---


@fault("gemm.drawn.start", "gemm.sums")
def _(sums: Any, change: Change) -> None:
    """A last chain that is shorter begins from C, as the first one does."""
    chains = sums.Chains
    results, computed = chains.results, chains._computed

    def begun(self: Any, chains: Any, first: bool = False) -> Any:
        self._begins = first
        return results(self, chains, first)

    change(chains, "results", begun)
    change(chains, "_computed", lambda self, chains, first: computed(self, chains, self._begins))


@instead("gemm.drawn.kept", "gemm.sums", "Chains.results")
def _(sums: Any, right: Any, self: Any, chains: Any, first: bool = False) -> Any:
    """The kept result of a chain that began from C is taken for one that begins from zero, or the reverse."""
    for number, chain in enumerate(chains if self._is_cleared else ()):
        this, other = (chain.tobytes() + bytes([begins]) for begins in (first and not number, not first or number > 0))
        if other in self._kept:
            self._kept.setdefault(this, self._kept[other])
    return right(self, chains, first)


@fault("tensors.drawn.scale", "tensors.quantise")
def _(quantise: Any, change: Change) -> None:
    """Block scales beyond the largest ue8m0 wrap."""

    def mx(values: Any, fmt: Any, recipe: Any, saturate: bool, nan: str, progress: Any) -> Any:
        bias = quantise.FORMATS["ue8m0"].bias

        def scaler(largest: Any) -> Any:
            exponent = np.where(largest == 0, -bias, np.frexp(largest)[1] - 1 - fmt.maximum_exponent)
            return (exponent.clip(-bias, None) + bias).astype(np.uint8)

        return quantise._scaled(values, fmt, recipe, nan, progress, scaler, None)

    change(quantise, "_SCHEMES", quantise._SCHEMES | {"mx": mx})


@instead("tensors.drawn.tie", "tensors.encode", "_magnitude_codes")
def _(encode: Any, right: Any, magnitudes: Any, fmt: Any) -> Any:
    """Halfway between two ue8m0 the smaller one is taken."""
    halfway = np.frexp(magnitudes)[0] == 0.75
    return right(magnitudes if fmt.subnormals else np.where(halfway, np.nextafter(magnitudes, 0), magnitudes), fmt)


# --- verify and sim ---


@instead("verify.drawn.agrees", "verify.replay", "compare")
def _(replay: Any, right: Any, computed: Any, references: Any) -> Any:
    """What agrees with the recording is compared with nothing else."""
    every = list(references)
    agrees = every and every[0][0] == "recorded" and bool((computed == every[0][1]).all())
    return right(computed, every[:1] if agrees else every)


@instead("verify.drawn.beside", "verify.tensor_memory_file", "TensorMemoryFile.beside")
def _(tensor_memory_file: Any, right: Any, self: Any, result: Any) -> Any:
    """The upper half of a word counts as D, though an f16 leaves it alone."""
    words, place = right(self, result), self._place_of_d
    words[..., place.lanes, place.columns] = 0
    return words


@instead("sim.drawn.memory", "sim.benches.memories", "SharedMemory.drive")
def _(memories: Any, right: Any, self: Any) -> None:
    """Without a read, shared memory goes on to deliver what was read last, not noise."""
    if self._answers:
        right(self)
