"""What the regression tries of stream components on faulty hardware: designs, items, and drivers of their inputs."""

import ctypes
from collections.abc import Callable, Sequence
from itertools import islice

import numpy as np

from ...rtl.convert import to_rtlil
from ...rtl.core import Core, tile_layout, tile_result_layout
from ...rtl.emit import unit_instance, unit_of
from ...rtl.unit import Unit
from ...rtl.warp import Warp, warp_operands_layout, warp_result_layout
from ..benches.items import TAG, Item, tiles, warp_items
from ..benches.scoreboard import Scoreboard
from ..benches.settings import Settings
from .assumptions import AssumedStream, assumed_control
from .compiled import TOP
from .mutants import REST, UNTOUCHED
from .stream_bench import StreamBench, joined, words_bytes
from .warpgroup_bench import warpgroup_bench

__all__ = ["stream_bench"]

#: One stream of items.
_ITEMS = """
static const char* items;
static int32_t count, next, at_source;
extern "C" void load_items(const char* given, int32_t number) {{ items = given; count = number; }}
static void restart() {{ next = 0; at_source = -1; }}
static void offer(bool may, bool, bool reset) {{
    if (at_source < 0 && next < count && may && !reset) {{
        at_source = next++;
        std::memcpy(&top.i___05Fpayload, items + size_t(at_source) * {in_bytes}, {in_bytes});
    }}
    top.i___05Fvalid = at_source >= 0 && !reset;
}}
static void move(bool) {{ if (top.i___05Fvalid && top.i___05Fready) at_source = -1; }}
"""
_NO_MEMORY = """
static uint8_t sample(bool) { return 0; }
static void answer() {}
"""


def stream_bench(settings: Settings, rng: np.random.Generator) -> StreamBench:
    """Return what is tried of a top, with its items drawn.

    Parameters
    ----------
    settings : Settings
        Top, datapath and items; of a warpgroup the file of its work.
    rng : Generator
        Source of randomness.
    """
    return _BENCHES[settings.top](settings, rng)


def _core(settings: Settings, rng: np.random.Generator) -> StreamBench:
    """Faults of what an array adds: its rows' decoders are met with the row's."""
    config = settings.config
    items = list(islice(tiles(config, settings.arch, rng), settings.items))
    in_bits = tile_layout(config, TAG).size
    return StreamBench(
        _design(Core(config, TAG, unit_instance(TOP)), settings),
        {"core": REST, UNTOUCHED: tuple(f"design.decode_row_{row}" for row in range(config.rows))},
        unit_of(TOP),
        items,
        "i",
        _ITEMS.format(in_bytes=words_bytes(in_bits)) + _NO_MEMORY,
        _load_items(items, in_bits),
        tile_result_layout(config, TAG).size,
        pace=1,
        # Every other cycle on average something enters.
        cycles=2 * settings.items,
        scoreboard=lambda: Scoreboard(4 * (1 + config.latency)),
    )


def _warp(settings: Settings, rng: np.random.Generator) -> StreamBench:
    """Faults of what a warp adds to its array, whose own are met with tiles."""
    config = settings.config
    items = list(islice(warp_items(config, settings.arch, rng), settings.items))
    in_bits = warp_operands_layout().size
    return StreamBench(
        _design(Warp(config, unit_class=unit_instance(TOP)), settings),
        {"warp": REST, UNTOUCHED: ("design.core",)},
        unit_of(TOP),
        items,
        "i",
        _ITEMS.format(in_bytes=words_bytes(in_bits)) + _NO_MEMORY,
        _load_items(items, in_bits),
        warp_result_layout().size,
        pace=2 * config.warp_blocks,
        cycles=3 * settings.items * config.warp_blocks,
        scoreboard=lambda: Scoreboard(4 * (2 * config.warp_blocks + config.latency)),
    )


_BENCHES = {
    "core": _core,
    "warp": _warp,
    "warpgroup": warpgroup_bench,
}


def _design(component: Core | Warp, settings: Settings) -> str:
    """Return a top that some instruction drives and, beside it, the unit that it is made of."""
    control = assumed_control(component.i.payload.control, settings.config, settings.arch)
    return f"{to_rtlil(AssumedStream(component, control), TOP)}\n{to_rtlil(Unit(settings.config), unit_of(TOP))}"


def _load_items(items: Sequence[Item], bits: int) -> Callable[[ctypes.CDLL], None]:
    payloads = joined((item.payload for item in items), bits)
    return lambda library: library.load_items(payloads, len(items))
