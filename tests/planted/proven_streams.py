"""A fault for each proved property of streams, which are in arrays, warps, operand fetch and warpgroups."""

from collections.abc import Iterator
from typing import Any

from amaranth.hdl import Cat, Const, Module

from . import computes, register_all
from .circuits import amended, drives, exchanged, named, outlives_reset, reads


@amended("core.validity", "rtl.core", "Core")
def _(core: Any, self: Any, m: Module) -> Iterator[Any]:
    """The flags of the first two chunks of a row are swapped."""
    illegal, decoded = self.o.payload.illegal[0], m.submodules["decode_row_0"].illegal
    yield illegal.eq(Cat(decoded[1], decoded[0], decoded[2:]))


@amended("core.order", "rtl.core", "Core")
def _(core: Any, self: Any, m: Module) -> Iterator[Any]:
    """The pipeline advances while the output is stalled, if an item enters."""
    if self.config.latency:
        yield named(m, "advance").eq(self.o.ready | ~self.o.valid | self.i.valid)


@amended("fetch.address", "rtl.fetch", "CoreMatrixAddress")
def _(fetch: Any, self: Any, m: Module) -> Iterator[Any]:
    """The base offset of a descriptor is added to the row number of the swizzle, not subtracted."""
    for row, address in enumerate(self.address):
        linear = named(m, f"linear_{row}")
        pattern = (linear[3:6] + self.request.descriptor.base_offset)[:3]
        yield address.eq(linear ^ (pattern & named(m, "mask")))


@amended("tensor_core.order", "rtl.tensor_core", "TensorCore")
def _(tensor_core: Any, self: Any, m: Module) -> Iterator[Any]:
    """A result goes to the stream whose operands are at the input, not to the stream of its own operands."""
    there, of_panels = m.submodules["warp"].o.valid, self.panel.valid
    yield self.panel_result.valid.eq(there & of_panels)
    yield self.o.valid.eq(there & ~of_panels)


@amended("tensor_operands.columns", "rtl.tensor_operands", "TensorOperands")
def _(tensor_operands: Any, self: Any, m: Module) -> Iterator[Any]:
    """Block scales of B are read from the columns of the block scales of A."""
    with m.If(named(m, "operand") == tensor_operands.Operand.SCALE_B):
        yield self.memory.column.eq(self.i.payload.scale_a_column + named(m, "number"))


@amended("wgmma.order:columns", "rtl.tensor_cores", "TensorCores")
def _(tensor_cores: Any, self: Any, m: Module) -> Iterator[Any]:
    """One array gets two columns of a panel of B swapped."""
    panel = m.submodules["fetch"].panels.payload
    yield m.submodules["operands_2"].panel.eq(Cat(panel[1], panel[0], *(panel[column] for column in range(2, 8))))


@amended("wgmma.order:metadata", "rtl.tensor_cores", "TensorCores")
def _(tensor_cores: Any, self: Any, m: Module) -> Iterator[Any]:
    """The metadata of an instruction's second panel is dropped."""
    with m.If(m.submodules["slots"].panel == 1):
        yield m.submodules["operands_3"].e.eq(0)


@amended("tcgen05.order", "rtl.tcgen05", "Tcgen05")
def _(tcgen05: Any, self: Any, m: Module) -> Iterator[Any]:
    """The two tensor-memory columns with block scales of A are exchanged when they are stored for the arrays."""
    column = m.submodules["tensor_operands"].column
    with m.If(column.operand == tcgen05.Operand.SCALE_A):
        yield m.submodules["words"].column.number.eq(column.number ^ 1)


reads("commits.order", "rtl.commits", "Commits",
      "A commit group completes when its last panel is multiplied, not when its last result is delivered.",
      lambda self: {"delivered": self.multiplied})  # fmt: skip
reads("accumulators.order:ring", "rtl.ring", "Ring",
      "The oldest entry of a ring is not removed if another entry is stored in the same cycle.",
      lambda self: {"pop": self.pop & ~self.push})  # fmt: skip

register_all(drives, [
    ("core.operands", "rtl.core", "Core", "Every unit of an array gets column 0 of B.",
     lambda self, m: [
         m.submodules[f"unit_{row}_{column}"].step.b.eq(m.submodules["order_column_0"].ordered)
         for row in range(self.config.rows) for column in range(self.config.columns)
     ]),
    ("core.reset", "rtl.core", "Core", "A reset does not clear the pipeline.",
     lambda self, m: outlives_reset(m, "occupied")),
    ("warp.reset", "rtl.warp", "Warp", "A reset does not abort the running instruction.",
     lambda self, m: outlives_reset(m, "busy")),
    ("commits.order:sign", "rtl.commits", "Commits",
     "A commit group does not finish if more instructions have completed than it waits for.",
     lambda self, m: [self.finished.eq((self.pending != 0) & (named(m, "unfinished") == 0))]),
    ("tcgen05.order:accumulators", "rtl.tcgen05", "Tcgen05", "Accumulators are read and written one column too low.",
     lambda self, m: [
         m.submodules["accumulators"].i.payload.column.eq(
             m.submodules["slots"].d.instruction.d_column + (named(m, "requested_of_d") << 3) - 1
         )
     ]),
    ("warp.order", "rtl.warp", "Warp", "Results of the core are accepted although the result registers are occupied.",
     lambda self, m: [m.submodules["core"].o.ready.eq(1)]),
    ("validity.warp", "rtl.warp", "Warp", "Flags of 16-bit elements are stored at the positions for narrower elements.",
     lambda self, m: [m.submodules["core"].i.payload.tag.wide.eq(0)]),
    ("fetch.both", "rtl.operand_fetch", "OperandFetch",
     "MN-major core matrices of A are not transposed.",
     lambda self, m: [self.core_matrix.rows.eq(Cat(self.memory.data))]),
    ("accumulators.contents", "rtl.accumulators", "Accumulators",
     "Accumulators are offered as soon as they are requested, before the memory returns them.",
     lambda self, m: [self.c.valid.eq(named(m, "kept") != 0)]),
    ("wgmma.order", "rtl.tensor_cores", "TensorCores", "The descriptor of A is used for B.",
     lambda self, m: [m.submodules["requests_b"].descriptor.eq(m.submodules["slots"].b.instruction.a_descriptor)]),
    ("wgmma.progress", "rtl.tensor_cores", "TensorCores",
     "The arrival of A is ignored, so the instruction waits forever.",
     lambda self, m: [m.submodules["slots"].a.arrives.eq(0)]),
    ("wgmma.shared", "rtl.warpgroup", "Owners",
     "Results of a panel go to the warpgroup whose instruction is accepted in the cycle of the multiplication.",
     lambda self, m: [m.submodules["panels"].entry.eq(self.owner)]),
    ("tcgen05.results", "rtl.tcgen05", "Tcgen05",
     "The results of the second array are also written to the lanes of the first array.",
     lambda self, m: [m.submodules["accumulators"].o.payload[0].eq(m.submodules["array_1"].o.payload.d)]),
    ("tcgen05.progress", "rtl.tcgen05", "Tcgen05", "Only the first panel of B is read.",
     lambda self, m: [m.submodules["requests_b"].last.eq(0)]),
])  # fmt: skip

register_all(computes, [
    ("warp.operands", "rtl.warp", "Warp._metadata_row", "A warp ignores the sparsity selector of its instruction.",
     lambda warp, right, self, held, row, step: right(self, exchanged(held, sparsity_selector=Const(0, 2)), row, step)),
    ("accumulators.order", "rtl.accumulators", "_overlap",
     "A read of accumulators waits for pending results of the same columns, but not of partly overlapping columns.",
     lambda accumulators, right, a, b: a == b),
    ("wgmma.operands", "rtl.panel_operands", "PanelOperands._signs",
     "To negate A, only the upper of two 16-bit elements in a register is negated.",
     lambda panel_operands, right, self: Cat(Const(0, 16), right(self)[16:])),
    ("core.dense", "rtl.order", "byte_order",
     "A dense step takes the upper half of the bytes of B, not the lower half.",
     lambda order, right, config, *, wide, sparse: [
         byte if sparse or byte is None else byte + config.step_bytes
         for byte in right(config, wide=wide, sparse=sparse)]),
])  # fmt: skip
