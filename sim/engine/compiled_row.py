"""The row of a datapath compiled by Verilator: built once for each content, kept, safe against parallel builds."""

import ctypes
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...rtl.config import CoreConfig
from .libraries import Libraries
from .row_interface import row_interface

__all__ = ["CompiledRow"]

#: Pushes a batch through the pipeline: one step a cycle, results `latency` cycles later.
_DRIVER = """\
extern "C" void* row_create() {{
    Vrow* row = new Vrow;
    {start}
    return row;
}}
extern "C" void row_destroy(void* handle) {{ delete static_cast<Vrow*>(handle); }}
extern "C" void row_run(void* handle, size_t count, const uint32_t* steps, uint64_t* results) {{
    Vrow& row = *static_cast<Vrow*>(handle);
    const size_t words = {words}, latency = {latency};
    for (size_t cycle = 0; cycle < count + latency; cycle++) {{
        if (cycle < count) std::memcpy(&row.step, steps + cycle * words, words * 4);
        {evaluate}
        const size_t done = cycle + {registered} - latency;
        if (cycle + {registered} >= latency && done < count) results[done] = row.result;
    }}
}}
"""

#: The same functions of a row without registers.
_COMPUTED = """\
extern "C" void* row_create() {{ return nullptr; }}
extern "C" void row_destroy(void*) {{}}
extern "C" void row_run(void*, size_t count, const uint32_t* steps, uint64_t* results) {{
    for (size_t first = 0; first < count; first += lanes) {{
        const size_t some = count - first < lanes ? count - first : lanes;
        const uint32_t* of_lane[lanes];
        uint32_t words[lanes][2] = {{}}, *answers[lanes];
        for (size_t lane = 0; lane < some; lane++) {{
            of_lane[lane] = steps + (first + lane) * {words};
            answers[lane] = words[lane];
        }}
        compute(some, of_lane, answers);
        for (size_t lane = 0; lane < some; lane++)
            results[first + lane] = words[lane][0] | uint64_t(words[lane][1]) << 32;
    }}
}}
"""

#: Nothing happens at a falling edge: the model is told that the clock fell instead of evaluating it there. The name is
#: that of the one Verilator version this package asks for.
_FALLEN_CLOCK = "row.rootp->__Vtrigprevexpr___TOP__clk__0 = 0; "


def _driver(config: CoreConfig, words: int) -> str:
    return _DRIVER.format(
        words=words,
        latency=config.latency,
        start="row->enable = 1; row->clk = 0; row->eval();" if config.cuts else "",
        evaluate=(_FALLEN_CLOCK + "row.clk = 1; row.eval();") if config.cuts else "row.eval();",
        registered=int(bool(config.cuts)),
    )


class _Model:
    """A row of a library."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.row_create.restype = ctypes.c_void_p
        self._library.row_destroy.argtypes = [ctypes.c_void_p]
        self._library.row_run.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p]
        self._handle = self._library.row_create()

    def run(self, steps: NDArray[np.uint32]) -> NDArray[np.uint64]:
        results = np.empty(len(steps), np.uint64)
        self._library.row_run(self._handle, len(steps), steps.ctypes.data, results.ctypes.data)
        return results

    def __del__(self) -> None:
        if handle := getattr(self, "_handle", None):
            self._library.row_destroy(handle)


class CompiledRow:
    """A row compiled by Verilator, loaded into this process.

    Where many steps have one control word, they go through a model in which that word is tied.

    Parameters
    ----------
    config : CoreConfig
        Which datapath. It is built on first use and kept in :func:`~sptc.infra.cache.cache_folder`.
    words : int
        32-bit words of a step.

    Raises
    ------
    BackendError
        The simulator or a compiler is missing or fails; one sentence that says what to install.
    """

    def __init__(self, config: CoreConfig, words: int) -> None:
        self._libraries = Libraries(config, "row", "row", _driver(config, words), _COMPUTED.format(words=words))
        self._general = _Model(self._libraries.of_every_instruction())
        self._specialised: dict[Path, _Model] = {}
        self._words = words
        low, width = row_interface(config).step["control"]
        self._word, self._bit, self._mask = low // 32, low % 32, np.uint32((1 << width) - 1 << low % 32)
        assert self._bit + width <= 32, "the control word is within a word of a step"

    def run(self, steps: NDArray[np.uint32]) -> NDArray[np.uint64]:
        """Push steps, shape (count, words), through the row; return result words, shape (count,)."""
        steps = np.ascontiguousarray(steps)
        assert steps.dtype == np.uint32
        assert steps.shape[1] == self._words
        return self._model_for(steps).run(steps)

    def _model_for(self, steps: NDArray[np.uint32]) -> _Model:
        words = steps[:, self._word] & self._mask
        if not len(words) or (words != words[0]).any():
            return self._general
        library = self._libraries.of({int(words[0]) >> self._bit: len(words)})
        if library == self._libraries.of_every_instruction():
            return self._general
        if library not in self._specialised:
            self._specialised[library] = _Model(library)
        return self._specialised[library]
