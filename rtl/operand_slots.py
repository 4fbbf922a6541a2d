"""Instructions that are held: one multiplies while operands of the next arrive."""

from collections.abc import Mapping, Sequence

from amaranth.hdl import Array, Module, Mux, ShapeLike, Signal, Value
from amaranth.lib import data

from .operand_fetch import OperandFetch
from .warp import LANES, REGISTERS

__all__ = ["A_PANELS_OF_ARRAY", "SLOTS", "OperandSlots", "Turn"]

#: Instructions that are held.
SLOTS = 2
#: Panels of eight rows of A that an array of 16 rows takes.
A_PANELS_OF_ARRAY = 2
_WORD = 32


class Turn:
    """Which slot is the next of which something is brought: one slot after another.

    Parameters
    ----------
    m : Module
        Where the assignments go.
    name : str
        Of what is brought.
    held : sequence of Signal
        The instructions.
    awaited : bool
        All of it is to arrive before anything is multiplied.

    Attributes
    ----------
    slot : Signal
        Which slot.
    wanted, missing : list of Signal
        Of each slot: it is still to be requested; it is still to arrive, if it is awaited.
    """

    def __init__(self, m: Module, name: str, held: Sequence[Signal], *, awaited: bool) -> None:
        self._m, self._held = m, held
        self.slot = Signal(range(SLOTS), name=f"slot_of_{name}")
        self.wanted = [Signal(name=f"wants_{name}_{slot}") for slot in range(SLOTS)]
        self.missing = [Signal(name=f"misses_{name}_{slot}") for slot in range(SLOTS)] if awaited else []

    @property
    def held(self) -> data.View:
        """The instruction."""
        return Array(self._held)[self.slot]

    @property
    def wants(self) -> Value:
        """Whether it still wants this."""
        return Array(self.wanted)[self.slot]

    def end(self) -> None:
        """Go on to the next slot; all of this one's has been requested."""
        self._m.d.sync += [self.slot.eq(self.slot + 1), Array(self.wanted)[self.slot].eq(0)]

    def arrived(self, slot: Value | int) -> None:
        """All of a slot's has arrived."""
        self._m.d.sync += Array(self.missing)[slot].eq(0)


class OperandSlots:
    """Two instructions that are held: taken in turns, their operands brought in turns, multiplied in turns.

    Parameters
    ----------
    m : Module
        Where the assignments go.
    kept : dict of str to shape-like
        What is held of an instruction beside A; `last_panel` among it.
    arrays : int
        Arrays of 16 rows each.
    brought : dict of str to bool
        What is brought, ``"a"`` and ``"b"`` among it, and whether all of it must have arrived before anything is
        multiplied; the rest comes as a stream.

    Attributes
    ----------
    held : list of Signal
        The instructions, by slot.
    a : list of list of Signal
        A of each array, by slot.
    turns : dict of str to Turn
        Of what is brought.
    multiplied : Signal
        Panels of its instruction that have been.
    room, ready, multiplies_last : Value
        Whether an instruction can be taken, one can be multiplied, and what is multiplied is its last panel.
    """

    def __init__(self, m: Module, kept: Mapping[str, ShapeLike], arrays: int, brought: Mapping[str, bool]) -> None:
        self._m, self._names = m, [*kept]
        layout = data.StructLayout(kept)
        self.held = [Signal(layout, name=f"held_{slot}", reset_less=True) for slot in range(SLOTS)]
        fragment = data.ArrayLayout(data.ArrayLayout(_WORD, REGISTERS), LANES)
        self.a = [
            [Signal(fragment, name=f"a_{slot}_{array}", reset_less=True) for array in range(arrays)]
            for slot in range(SLOTS)
        ]
        self._occupied = [Signal(name=f"occupied_{slot}") for slot in range(SLOTS)]
        # Which slot is next to be taken, and to be multiplied.
        self._next, self._now = (Signal(range(SLOTS), name=name) for name in ("next_slot", "slot_now"))
        self.turns = {name: Turn(m, name, self.held, awaited=awaited) for name, awaited in brought.items()}
        self.multiplied = Signal(layout["last_panel"].shape, name="multiplied")
        self.room = ~Array(self._occupied)[self._next]
        self.ready = Array(self._occupied)[self._now]
        for turn in self.turns.values():
            if turn.missing:
                self.ready &= ~Array(turn.missing)[self._now]
        self.multiplies_last = self.multiplied == Array(self.held)[self._now].last_panel

    def multiplying(self) -> tuple[data.View, Sequence[Value]]:
        """Return the instruction that is multiplied, and A of each array."""
        held = Signal(self.held[0].shape(), name="held")
        self._m.d.comb += held.eq(Array(self.held)[self._now])
        arrays = range(len(self.a[0]))
        return held, [self.of_slot(f"a_{array}", [of[array] for of in self.a]) for array in arrays]

    def of_slot(self, name: str, stored: Sequence[Value]) -> Signal:
        """Return what the instruction that is multiplied has of something that is stored by slot."""
        chosen = Signal(len(Value.cast(stored[0])), name=name)
        self._m.d.comb += chosen.eq(Array(Value.cast(of) for of in stored)[self._now])
        return chosen

    def accept(self, taken: Value, payload: data.View, a: Sequence[Value] = ()) -> None:
        """Take an instruction into the next slot; `a` is that of each array, if it comes with it."""
        m = self._m
        m.d.sync += self._next.eq(self._next + taken)
        for slot in range(SLOTS):
            with m.If(taken & (self._next == slot)):
                m.d.sync += [
                    *(self.held[slot][name].eq(payload[name]) for name in self._names),
                    *(mine.eq(given) for mine, given in zip(self.a[slot], a, strict=False)),
                    self._occupied[slot].eq(1),
                ]
                for turn in self.turns.values():
                    m.d.sync += [turn.wanted[slot].eq(1), *(flag.eq(1) for flag in turn.missing[slot : slot + 1])]

    def request_b(self, fetch: OperandFetch, last: Value | None = None) -> None:
        """Request the panels of B of one slot after another, up to number `last`, by default that of D's."""
        m, requests, turn = self._m, fetch.b, self.turns["b"]
        held = turn.held
        panel = Signal(self.multiplied.shape(), name="panel_of_b")
        m.d.comb += [
            requests.valid.eq(turn.wants),
            requests.payload.descriptor.eq(held.b_descriptor),
            requests.payload.panel.eq(panel),
            requests.payload.mn_major.eq(held.b_transposed),
            requests.payload.short.eq(~held.control.sparse),
        ]
        with m.If(requests.valid & requests.ready):
            m.d.sync += panel.eq(panel + 1)
            with m.If(panel == (held.last_panel if last is None else last)):
                m.d.sync += panel.eq(0)
                turn.end()

    def request_a(self, fetch: OperandFetch) -> Value:
        """Request A of a slot in shared memory, panel by panel; return whether this is the last cycle of that."""
        m, turn = self._m, self.turns["a"]
        panel = Signal(range(self._a_panels), name="panel_of_a")
        m.d.comb += [
            fetch.a.valid.eq(turn.wants & turn.held.a_shared),
            fetch.a.payload.descriptor.eq(turn.held.a_descriptor),
            fetch.a.payload.panel.eq(panel),
            fetch.a.payload.mn_major.eq(turn.held.a_transposed),
            fetch.a.payload.short.eq(1),
            fetch.a_tag.eq(turn.slot),
        ]
        with m.If(fetch.a.valid & fetch.a.ready):
            m.d.sync += panel.eq(panel + 1)
        return fetch.a.ready & (panel == self._a_panels - 1)

    def store_a(self, fetch: OperandFetch, words: Sequence[Value]) -> None:
        """Store what arrives, as :class:`~sptc.rtl.wgmma.WgmmaWarp` does.

        Parameters
        ----------
        fetch : OperandFetch
            Where it arrives.
        words : sequence of Value
            The registers of 32 lanes that hold the core matrix, :func:`~sptc.rtl.wgmma.segment_words`.
        """
        m, arrived = self._m, fetch.core_matrix
        for slot in range(SLOTS):
            of_slot = fetch.arriving & (arrived.tag == slot)
            with m.If(of_slot & (arrived.panel == self._a_panels - 1) & arrived.segment):
                self.turns["a"].arrived(slot)
            for panel in range(self._a_panels):
                for segment in range(2):
                    with m.If(of_slot & (arrived.panel == panel) & (arrived.segment == segment)):
                        fragment = self.a[slot][panel // A_PANELS_OF_ARRAY]
                        register = 2 * segment + panel % A_PANELS_OF_ARRAY
                        m.d.sync += [fragment[lane][register].eq(words[lane]) for lane in range(LANES)]

    def follow(self, multiply: Value, last: Value) -> None:
        """Move on with every panel that is multiplied; the last one frees the slot."""
        m = self._m
        with m.If(multiply):
            m.d.sync += self.multiplied.eq(Mux(last, 0, self.multiplied + 1))
        with m.If(last):
            m.d.sync += [self._now.eq(self._now + 1), Array(self._occupied)[self._now].eq(0)]

    @property
    def _a_panels(self) -> int:
        return A_PANELS_OF_ARRAY * len(self.a[0])
