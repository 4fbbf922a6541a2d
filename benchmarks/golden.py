"""Speed and memory of the golden model on one core, and speed of the public model mmasim for equal operands."""

from measure import Row, best_seconds, one_core, options, show

one_core()

import resource  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
from dataclasses import dataclass  # noqa: E402

import numpy as np  # noqa: E402
import sptc  # noqa: E402
from sptc.golden.matrix import multiply  # noqa: E402
from sptc.golden.select import kept_rows  # noqa: E402
from sptc.isa.instructions import Instruction, parse  # noqa: E402
from sptc.isa.operands import MatrixOperands  # noqa: E402
from sptc.operands.registers import gather_warp  # noqa: E402
from sptc.sim.benches.random_operands import random_operands  # noqa: E402

F16 = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
S8 = "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.satfinite.s32.s8.s8.s32"
GIB = 1 << 30
ORDERED = np.array([0x4, 0x8, 0x9, 0xC, 0xD, 0xE], np.uint8)


@dataclass(frozen=True)
class Size:
    """Size of a run: executions of an instruction; M, N and K of a matrix product; executions for measuring memory."""

    tiles: int
    m: int
    n: int
    k: int
    many: int


FULL = Size(tiles=4096, m=128, n=128, k=1024, many=1 << 20)
SMALL = Size(tiles=16, m=16, n=8, k=128, many=64)


def kept(instruction: Instruction) -> int:
    """Return the number of kept products (products of stored elements of A) of one instruction."""
    return instruction.m * instruction.n * instruction.stored_k


def matrices(i: Instruction, m: int, n: int, k: int) -> MatrixOperands:
    """Return operands with legal metadata: normally distributed f16 or bf16 elements, random codes of other formats."""
    rng = np.random.default_rng(0)
    shapes = (1, m, k // 2), (1, k, n)
    if i.a.name == "f16":
        a, b = (rng.standard_normal(shape, np.float32).astype(np.float16).view(np.uint16) for shape in shapes)
    elif i.a.name == "bf16":
        a, b = ((rng.standard_normal(s, np.float32).view(np.uint32) >> 16).astype(np.uint16) for s in shapes)
    else:
        most = 1 << (4 if i.container_bits == 4 else 8 if i.a.is_integer else 6)
        a, b = (rng.integers(0, most, shape, np.uint8) for shape in shapes)
    nibbles = rng.choice(ORDERED, (1, m, k // i.k * i.chunks))
    scales: list[np.ndarray | None] = [None, None]
    if i.scale_size:
        scales = [rng.integers(120, 134, (1, lines, k // i.k * i.scale_size), np.uint8) for lines in (m, n)]
    return MatrixOperands(a, b, np.zeros((1, m, n), np.uint32), nibbles, *scales)


def mmasim_seconds(i: Instruction, operands: MatrixOperands) -> float | None:
    """Return the seconds that the public model mmasim takes for f16 operands with f32 sums; None without mmasim."""
    try:
        import torch
        from mmasim.nv_ptx import MMA
    except ImportError:
        return None
    assert operands.nibbles is not None
    rows = kept_rows(operands.nibbles, i.granularity)
    b = np.moveaxis(np.take_along_axis(operands.b[:, None], rows[..., None], axis=2), 2, 3)
    a = np.broadcast_to(operands.a[:, :, None], b.shape)
    torch.set_num_threads(1)
    operation = MMA("Hopper", "m16n8k16.f32.f16.f16.f32")
    parts = ((a, np.float16), (b, np.float16), (operands.c, np.float32))
    tensors = [torch.from_numpy(part.copy().view(dtype)) for part, dtype in parts]
    return best_seconds(lambda: operation.dpa(*tensors), 3)


def million_tiles_gib(small: bool) -> float:
    """Return the peak memory in GiB of a new process that executes an mma a million times. The results take 0.5 GiB."""
    words = [sys.executable, __file__, "--million", *(["--small"] if small else [])]
    return float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def compute_million(size: Size) -> None:
    """Execute an mma a million times on broadcast operands, and print the peak memory of this process in GiB."""
    tiles = random_operands(parse(F16), "narrow", size.tiles, np.random.default_rng(0)).arrays
    tiles["b"] = np.broadcast_to(tiles["b"], (size.many // size.tiles, *tiles["b"].shape))
    d = sptc.mma(F16, **tiles)
    assert d.shape[:2] == (size.many // size.tiles, size.tiles)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB)


def main() -> None:
    """Measure speed and memory of the golden model, and print the figures."""
    parser = options(__doc__)
    parser.add_argument("--million", action="store_true", help="execute a million mma; print only peak memory (GiB)")
    chosen = parser.parse_args()
    size = SMALL if chosen.small else FULL
    if chosen.million:
        compute_million(size)
        return
    rng = np.random.default_rng(0)
    f16, s8 = parse(F16), parse(S8)
    rows = []

    tiles = random_operands(f16, "mid", size.tiles, rng)
    seconds = best_seconds(lambda: sptc.mma(F16, **tiles.arrays))
    macs = kept(f16) * size.tiles / 1e6
    rows.append(Row("m16n8k32 f16 through registers", "M kept MAC/s", macs / seconds, "at least 100"))
    peer = mmasim_seconds(f16, gather_warp(f16, tiles))
    if peer:
        rows.append(Row("  mmasim 2.1.1, same tiles", "M kept MAC/s", macs / peer))
        rows.append(Row("  ratio", "x", peer / seconds, "at least 5"))

    shape, of_shape = f"{size.m}x{size.n}x{size.k}", size.m * size.n * size.k / 2 / 1e6
    operands = matrices(f16, size.m, size.n, size.k)
    seconds = best_seconds(lambda: multiply(f16, "sm_90", operands))
    rows.append(Row(f"{shape} f16 matrix", "M kept MAC/s", of_shape / seconds, "at least 300"))
    peer = mmasim_seconds(f16, operands)
    if peer:
        rows.append(Row("  mmasim 2.1.1, same matrix", "M kept MAC/s", of_shape / peer))
        rows.append(Row("  ratio", "x", peer / seconds, "at least 12"))

    tiles = random_operands(s8, "uniform", size.tiles, rng).arrays
    seconds, macs = best_seconds(lambda: sptc.mma(S8, **tiles)), kept(s8) * size.tiles / 1e6
    rows.append(Row("m16n8k64 s8 through registers", "M kept MAC/s", macs / seconds, "at least 1000"))
    integers = matrices(s8, size.m, size.n, size.k)
    seconds = best_seconds(lambda: multiply(s8, "sm_90", integers))
    rows.append(Row(f"{shape} s8 matrix", "M kept MAC/s", of_shape / seconds, "at least 1000"))

    rows.append(Row(f"{size.many} m16n8k32 tiles, peak memory", "GiB", million_tiles_gib(chosen.small), "below 1"))
    show(rows, chosen.json)


if __name__ == "__main__":
    main()
