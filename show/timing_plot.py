"""Roofline of ``wgmma`` over N: rate of the tensor cores, and the resource that limits it."""

from pathlib import Path

from ..infra.figures import picture
from ..isa.instructions import parse
from ..isa.timing import Resource, timing

__all__ = ["plot_rates"]

_TEXT = "wgmma.mma_async{}.sync.aligned.m64n{}k{}.f32.f16.f16"
_MARKERS = {Resource.TENSOR_CORE: "o", Resource.SHARED_MEMORY: "s", Resource.REGISTER_FILE: "^"}
_COLUMNS = range(8, 257, 8)


def plot_rates(path: Path) -> None:
    """Draw kept MACs per cycle of a tensor core over N: f16, sparse and dense, A in registers and in shared memory.

    Raises
    ------
    BackendError, FileError
        matplotlib is not installed; the SVG file cannot be written.
    """
    with picture(path, 9, 5) as axes:
        for colour, (sparse, k) in enumerate((("", 16), (".sp", 32))):
            for a_from, style in (("registers", "-"), ("shared", "--")):
                timings = [(n, timing(parse(_TEXT.format(sparse, n, k)), "sm_90", a_from)) for n in _COLUMNS]
                points = [(n, one.kept_mac_per_cycle, one.bound_by) for n, one in timings if one]
                name = f"{'sparse' if sparse else 'dense'}, A from {a_from}"
                axes.plot(
                    [n for n, *_ in points], [rate for _, rate, _ in points], style, color=f"C{colour}", label=name
                )
                for resource, marker in _MARKERS.items():
                    bound = [(n, rate) for n, rate, limit in points if limit is resource]
                    columns, rates = zip(*bound, strict=True) if bound else ([], [])
                    axes.plot(columns, rates, marker, color=f"C{colour}", markersize=4)
        for resource, marker in _MARKERS.items():
            axes.plot([], [], marker, color="gray", label=f"bound by {resource.value}")
        axes.set_xlabel("columns N of wgmma.mma_async, f16")
        axes.set_ylabel("kept MAC a cycle of a tensor core")
        axes.set_xlim(0, _COLUMNS[-1] + 8)
        axes.set_ylim(0)
        axes.legend(frameon=False)
