"""Speed and memory of the golden model on one core, beside mmasim on the same operands where it is installed."""

from measure import Row, best_seconds, one_core, options, show

one_core()

import resource  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402

import numpy as np  # noqa: E402
import sptc  # noqa: E402
from sptc.golden.matrix import multiply  # noqa: E402
from sptc.golden.registers import unpack, unpack_nibbles  # noqa: E402
from sptc.golden.select import kept_rows  # noqa: E402
from sptc.isa.fragments import a_fragment, accumulator_fragment, b_fragment  # noqa: E402
from sptc.isa.instructions import Instruction, parse  # noqa: E402
from sptc.isa.operands import MatrixOperands  # noqa: E402
from sptc.sim.benches.random_operands import Operands, random_operands  # noqa: E402

F16 = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
S8 = "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.satfinite.s32.s8.s8.s32"
TILES = 4096
M, N, K = 128, 128, 1024
MILLION = 1 << 20
GIB = 1 << 30
ORDERED = np.array([0x4, 0x8, 0x9, 0xC, 0xD, 0xE], np.uint8)


def kept(instruction: Instruction) -> int:
    """Return the kept products of one instruction."""
    return instruction.m * instruction.n * instruction.stored_k


def call(instruction: Instruction, operands: Operands) -> np.ndarray:
    """Compute tiles through the public function."""
    return sptc.mma(str(instruction), operands.a, operands.b, operands.c, operands.e, operands.sparsity_selector)


def matrices(instruction: Instruction, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Return A (stored), B, C and metadata of an M x N x K product of normal values (any integers for s8)."""
    if instruction.a.is_integer:
        a, b = (rng.integers(0, 256, shape, np.uint8) for shape in ((1, M, K // 2), (1, K, N)))
    else:
        a, b = (rng.standard_normal(shape).astype(np.float16).view(np.uint16) for shape in ((1, M, K // 2), (1, K, N)))
    return a, b, np.zeros((1, M, N), np.uint32), rng.choice(ORDERED, (1, M, K // 4))


def mmasim_seconds(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> float | None:
    """Return what mmasim takes for gathered f16 operands [..., K] and f32 accumulators, None without it."""
    try:
        import torch
        from mmasim.nv_ptx import MMA
    except ImportError:
        return None
    torch.set_num_threads(1)
    operation = MMA("Hopper", "m16n8k16.f32.f16.f16.f32")
    operands = [torch.from_numpy(part.copy()) for part in (a.view(np.float16), b.view(np.float16), c.view(np.float32))]
    return best_seconds(lambda: operation.dpa(*operands), 3)


def million_tiles_gib() -> float:
    """Return the peak memory of a fresh process that computes a million tiles, D of half a GiB included."""
    shown = subprocess.run([sys.executable, __file__, "--million"], check=True, capture_output=True, text=True)
    return float(shown.stdout)


def compute_million() -> None:
    """Compute a million tiles from broadcast operands and print the peak memory in GiB."""
    operands = random_operands(parse(F16), "narrow", TILES, np.random.default_rng(0))
    b = np.broadcast_to(operands.b, (MILLION // TILES, *operands.b.shape))
    d = sptc.mma(F16, operands.a, b, operands.c, operands.e)
    assert d.shape[:2] == (MILLION // TILES, TILES)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB)


def main() -> None:
    """Measure and print."""
    parser = options(__doc__)
    parser.add_argument("--million", action="store_true", help="only compute a million tiles and print the peak GiB")
    chosen = parser.parse_args()
    if chosen.million:
        compute_million()
        return
    rng = np.random.default_rng(0)
    f16, s8 = parse(F16), parse(S8)
    rows = []

    tiles = random_operands(f16, "mid", TILES, rng)
    seconds = best_seconds(lambda: call(f16, tiles))
    rows.append(
        Row("m16n8k32 f16 through registers", "M kept MAC/s", kept(f16) * TILES / seconds / 1e6, "at least 100")
    )
    stored, b, c = (
        unpack(part, fragment(f16))
        for part, fragment in ((tiles.a, a_fragment), (tiles.b, b_fragment), (tiles.c, accumulator_fragment))
    )
    assert tiles.e is not None
    where = kept_rows(unpack_nibbles(tiles.e, f16, 0), f16.granularity)
    gathered = np.moveaxis(np.take_along_axis(b[:, None], where[..., None], axis=2), 2, 3)
    peer = mmasim_seconds(np.broadcast_to(stored[:, :, None], gathered.shape), gathered, c)
    if peer:
        rows.append(Row("  mmasim 2.1.1, same tiles", "M kept MAC/s", kept(f16) * TILES / peer / 1e6))
        rows.append(Row("  ratio", "x", peer / seconds, "at least 5"))

    a, b, c, nibbles = matrices(f16, rng)
    seconds = best_seconds(lambda: multiply(f16, "sm_90", MatrixOperands(a, b, c, nibbles)))
    rows.append(Row(f"{M}x{N}x{K} f16 matrix", "M kept MAC/s", M * N * K / 2 / seconds / 1e6, "at least 300"))
    gathered = np.moveaxis(b[0][kept_rows(nibbles[0], f16.granularity)], 1, 2)
    peer = mmasim_seconds(np.broadcast_to(a[0][:, None], gathered.shape), gathered, c[0])
    if peer:
        rows.append(Row("  mmasim 2.1.1, same matrix", "M kept MAC/s", M * N * K / 2 / peer / 1e6))
        rows.append(Row("  ratio", "x", peer / seconds, "at least 12"))

    tiles = random_operands(s8, "uniform", TILES, rng)
    seconds = best_seconds(lambda: call(s8, tiles))
    rows.append(Row("m16n8k64 s8 through registers", "M kept MAC/s", kept(s8) * TILES / seconds / 1e6, "at least 1000"))
    a, b, c, nibbles = matrices(s8, rng)
    seconds = best_seconds(lambda: multiply(s8, "sm_90", MatrixOperands(a, b, c, nibbles)))
    rows.append(Row(f"{M}x{N}x{K} s8 matrix", "M kept MAC/s", M * N * K / 2 / seconds / 1e6, "at least 1000"))

    rows.append(Row("a million m16n8k32 tiles, peak memory", "GiB", million_tiles_gib(), "below 1"))
    show(rows, chosen.json)


if __name__ == "__main__":
    main()
