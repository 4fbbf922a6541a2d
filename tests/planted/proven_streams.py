"""Faults for each property of streams that is proved: arrays, warps, the fetch, and what surrounds the arrays."""

from collections.abc import Iterator
from typing import Any

from amaranth.hdl import Cat, Const, Module, Value

from . import Change, fault
from .circuits import amend, exchanged, named, read_otherwise


@fault("core.operands", "rtl.core")
def _(core: Any, change: Change) -> None:
    """Every unit gets column 0 of B."""

    def first(self: Any, m: Module) -> Iterator[Any]:
        for row in range(self.config.rows):
            for column in range(self.config.columns):
                yield m.submodules[f"unit_{row}_{column}"].step.b.eq(m.submodules["order_column_0"].ordered)

    amend(change, core.Core, first)


@fault("core.dense", "rtl.order")
def _(order: Any, change: Change) -> None:
    """A dense step takes the upper half of B."""
    right = order.byte_order

    def upper(config: Any, *, wide: bool, sparse: bool) -> Any:
        found = right(config, wide=wide, sparse=sparse)
        return found if sparse else [None if byte is None else byte + config.step_bytes for byte in found]

    change(order, "byte_order", upper)


@fault("core.validity", "rtl.core")
def _(core: Any, change: Change) -> None:
    """The flags of the first two chunks of a row change places."""

    def exchanged(self: Any, m: Module) -> Iterator[Any]:
        illegal, decoded = self.o.payload.illegal[0], m.submodules["decode_row_0"].illegal
        yield illegal.eq(Cat(decoded[1], decoded[0], decoded[2:]))

    amend(change, core.Core, exchanged)


@fault("core.order", "rtl.core")
def _(core: Any, change: Change) -> None:
    """The pipeline advances while the output waits, if something comes in."""

    def advancing(self: Any, m: Module) -> Iterator[Any]:
        if self.config.latency:
            yield named(m, "advance").eq(self.o.ready | ~self.o.valid | self.i.valid)

    amend(change, core.Core, advancing)


@fault("core.reset", "rtl.core")
def _(core: Any, change: Change) -> None:
    """A reset leaves what is in the pipeline."""
    _keep_at_reset(change, core.Core, "occupied")


def _keep_at_reset(change: Change, component: type, name: str) -> None:
    def kept(self: Any, m: Module) -> tuple[()]:
        named(m, name)._reset_less = True
        return ()

    amend(change, component, kept)


@fault("warp.operands", "rtl.warp")
def _(warp: Any, change: Change) -> None:
    """A warp ignores its sparsity selector."""
    right = warp.Warp._metadata_row

    def metadata_row(self: Any, held: Any, row: int, step: Value) -> Value:
        return right(self, exchanged(held, sparsity_selector=Const(0, 2)), row, step)

    change(warp.Warp, "_metadata_row", metadata_row)


@fault("warp.order", "rtl.warp")
def _(warp: Any, change: Change) -> None:
    """Results of the core are taken whether the registers are free or not."""
    amend(change, warp.Warp, lambda self, m: [m.submodules["core"].o.ready.eq(1)])


@fault("warp.reset", "rtl.warp")
def _(warp: Any, change: Change) -> None:
    """A reset leaves the instruction that is under way."""
    _keep_at_reset(change, warp.Warp, "busy")


@fault("fetch.address", "rtl.fetch")
def _(fetch: Any, change: Change) -> None:
    """The base offset is added, not subtracted."""

    def addresses(self: Any, m: Module) -> Iterator[Any]:
        for row, address in enumerate(self.address):
            linear = named(m, f"linear_{row}")
            pattern = (linear[3:6] + self.request.descriptor.base_offset)[:3]
            yield address.eq(linear ^ (pattern & named(m, "mask")))

    amend(change, fetch.CoreMatrixAddress, addresses)


@fault("tensor_core.order", "rtl.tensor_core")
def _(tensor_core: Any, change: Change) -> None:
    """A result goes to the stream whose operands are at the input, not to the one that its own came from."""

    def exchanged(self: Any, m: Module) -> Iterator[Any]:
        there, of_panels = m.submodules["warp"].o.valid, self.panel.valid
        yield self.panel_result.valid.eq(there & of_panels)
        yield self.o.valid.eq(there & ~of_panels)

    amend(change, tensor_core.TensorCore, exchanged)


@fault("validity.warp", "rtl.warp")
def _(warp: Any, change: Change) -> None:
    """Flags of 16-bit elements are put where those of smaller ones belong."""
    amend(change, warp.Warp, lambda self, m: [m.submodules["core"].i.payload.tag.wide.eq(0)])


@fault("fetch.both", "rtl.operand_fetch")
def _(operand_fetch: Any, change: Change) -> None:
    """Core matrices of A are handed on as they lie, MN-major ones too."""
    amend(
        change,
        operand_fetch.OperandFetch,
        lambda self, m: [self.core_matrix.rows.eq(Cat(self.memory.data))],
    )


@fault("tensor_operands.columns", "rtl.tensor_operands")
def _(tensor_operands: Any, change: Change) -> None:
    """Block scales of B are read where those of A are."""

    def elsewhere(self: Any, m: Module) -> Iterator[Any]:
        with m.If(named(m, "operand") == tensor_operands.Operand.SCALE_B):
            yield self.memory.column.eq(self.i.payload.scale_a_column + named(m, "number"))

    amend(change, tensor_operands.TensorOperands, elsewhere)


@fault("accumulators.order", "rtl.accumulators")
def _(accumulators: Any, change: Change) -> None:
    """Only the very columns that are due are waited for, not those that overlap them."""
    change(accumulators, "_overlap", lambda a, b: a == b)


@fault("accumulators.contents", "rtl.accumulators")
def _(accumulators: Any, change: Change) -> None:
    """Contents are offered once they are asked for, not once they are there."""
    amend(change, accumulators.Accumulators, lambda self, m: [self.c.valid.eq(named(m, "kept") != 0)])


@fault("commits.order", "rtl.commits")
def _(commits: Any, change: Change) -> None:
    """A group is finished when its last panel is multiplied, not when that is delivered."""
    read_otherwise(change, commits.Commits, lambda self: {"delivered": self.multiplied})


@fault("wgmma.order", "rtl.tensor_cores")
def _(tensor_cores: Any, change: Change) -> None:
    """The descriptor of A is handed on as that of B."""

    def handed_on(self: Any, m: Module) -> Iterator[Any]:
        yield m.submodules["requests_b"].descriptor.eq(m.submodules["slots"].b.instruction.a_descriptor)

    amend(change, tensor_cores.TensorCores, handed_on)


@fault("wgmma.order:columns", "rtl.tensor_cores")
def _(tensor_cores: Any, change: Change) -> None:
    """An array gets two columns of a panel in each other's place."""

    def swapped(self: Any, m: Module) -> Iterator[Any]:
        panel = m.submodules["fetch"].panels.payload
        yield m.submodules["operands_2"].panel.eq(Cat(panel[1], panel[0], *(panel[column] for column in range(2, 8))))

    amend(change, tensor_cores.TensorCores, swapped)


@fault("wgmma.order:metadata", "rtl.tensor_cores")
def _(tensor_cores: Any, change: Change) -> None:
    """The metadata of an instruction's second panel is dropped."""

    def dropped(self: Any, m: Module) -> Iterator[Any]:
        with m.If(m.submodules["slots"].panel == 1):
            yield m.submodules["operands_3"].e.eq(0)

    amend(change, tensor_cores.TensorCores, dropped)


@fault("wgmma.operands", "rtl.panel_operands")
def _(panel_operands: Any, change: Change) -> None:
    """Of two elements in a register only the upper one is negated."""
    right = panel_operands.PanelOperands._signs
    change(panel_operands.PanelOperands, "_signs", lambda self: Cat(Const(0, 16), right(self)[16:]))


@fault("wgmma.progress", "rtl.tensor_cores")
def _(tensor_cores: Any, change: Change) -> None:
    """A that has arrived goes on to be awaited."""
    amend(change, tensor_cores.TensorCores, lambda self, m: [m.submodules["slots"].a.arrived.eq(0)])


@fault("wgmma.shared", "rtl.warpgroup")
def _(warpgroup: Any, change: Change) -> None:
    """Results go to the warpgroup whose multiplication is offered when they are multiplied, not to whose it is."""
    amend(change, warpgroup.Owners, lambda self, m: [m.submodules["panels"].entry.eq(self.owner)])


@fault("tcgen05.order", "rtl.tcgen05")
def _(tcgen05: Any, change: Change) -> None:
    """The second column of the block scales of A is taken for the first."""

    def second(self: Any, m: Module) -> Iterator[Any]:
        column = m.submodules["tensor_operands"].column
        with m.If(column.operand == tcgen05.Operand.SCALE_A):
            yield m.submodules["words"].column.number.eq(column.number ^ 1)

    amend(change, tcgen05.Tcgen05, second)


@fault("tcgen05.order:accumulators", "rtl.tcgen05")
def _(tcgen05: Any, change: Change) -> None:
    """Accumulators are read and written one column early."""

    def early(self: Any, m: Module) -> Iterator[Any]:
        first = m.submodules["slots"].d.instruction.d_column
        yield m.submodules["accumulators"].i.payload.column.eq(first + (named(m, "requested_of_d") << 3) - 1)

    amend(change, tcgen05.Tcgen05, early)


@fault("tcgen05.results", "rtl.tcgen05")
def _(tcgen05: Any, change: Change) -> None:
    """The results of the second array are written for the first one, too."""

    def twice(self: Any, m: Module) -> Iterator[Any]:
        yield m.submodules["accumulators"].o.payload[0].eq(m.submodules["array_1"].o.payload.d)

    amend(change, tcgen05.Tcgen05, twice)


@fault("tcgen05.progress", "rtl.tcgen05")
def _(tcgen05: Any, change: Change) -> None:
    """Of B only the first panel is read."""
    amend(change, tcgen05.Tcgen05, lambda self, m: [m.submodules["requests_b"].last.eq(0)])
