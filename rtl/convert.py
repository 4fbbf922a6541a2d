"""Text of a design, Verilog or RTLIL: how all that this project emits is written."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from amaranth.back import rtlil, verilog
from amaranth.hdl import Elaboratable, Value

__all__ = ["to_rtlil", "to_verilog"]


def to_rtlil(design: Elaboratable, name: str, *, ports: Sequence[Value] | None = None, platform: object = None) -> str:
    """Return RTLIL, for Yosys, that does not say where in the source anything stands.

    Parameters
    ----------
    design : Elaboratable
        What is written.
    name : str
        Name of the top module.
    ports : sequence of Value, optional
        By default those of a component's signature.
    platform : object
        What components are elaborated for; with :data:`~sptc.rtl.booth.OPERATORS` a multiplier is one operator.
    """
    with _uncollected():
        return str(rtlil.convert(design, name=name, ports=ports, platform=platform, emit_src=False))


def to_verilog(
    design: Elaboratable, name: str, *, ports: Sequence[Value] | None = None, platform: object = None
) -> str:
    """Return Verilog without Amaranth's own attributes; parameters as of :func:`to_rtlil`."""
    with _uncollected():
        text = verilog.convert(
            design, name=name, ports=ports, platform=platform, strip_internal_attrs=True, emit_src=False
        )
    return str(text)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Collect no garbage within: millions of objects would be walked again and again, and most live to the end."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
