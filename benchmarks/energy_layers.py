"""Energy of the linear layers of a small transformer, dense and pruned 2:4, in f16, e4m3 and s8.

``python benchmarks/energy_layers.py --liberty osu018_stdcells.lib`` (extra: models) takes the weights and activations
of every linear layer of the encoder from ``benchmarks/transformer.py``. The script simulates random tiles of every
layer on the mapped unit of the preset ``hopper``, and prints the energy per kept product and the energy of all layers.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from energy import CONFIG, SMALL
from measure import Row, options, show
from sptc.errors import Error
from sptc.gemm.operands import ProductRequest, prepare
from sptc.gemm.product import dense_instruction
from sptc.gemm.sources import Source
from sptc.gemm.ways import Way
from sptc.isa.instructions import Instruction
from sptc.isa.operands import MatrixOperands
from sptc.synth.energy.electrical import CellLibrary
from sptc.synth.energy.measure import MappedUnit
from sptc.synth.energy.operands import cut
from sptc.synth.liberty import Library
from tqdm import tqdm
from transformer import INSTRUCTIONS, folder_of_model, layers

CYCLES, SMALL_CYCLES = 2_000, 200
_ARCH = "sm_90"
#: Factor that converts fJ to uJ.
_MICRO = 1e-9
Key = tuple[str, str]


def operands(i: Instruction, a: Source, b: Source, unit: MappedUnit, cycles: int) -> tuple[MatrixOperands, int]:
    """Return tiles of a linear layer, pruned if the instruction is sparse, and the layer's multiplication count."""
    with tempfile.TemporaryDirectory() as folder:
        way = Way(instruction=str(i), arch=_ARCH)
        problem = prepare(Path(folder), ProductRequest(way, a, b, prune=bool(i.sparse)))
        factors = problem.factors(i)
        tiles = unit.tiles(i, cycles, factors.count)
        m, n, k = problem.shape
        drawn = cut(i, factors.a, factors.b, factors.nibbles, tiles, np.random.default_rng(0))
    return drawn, m * n * k // (2 if i.sparse else 1)


def measured(
    unit: MappedUnit, wanted: dict[str, str], cycles: int, *, small: bool
) -> dict[Key, list[tuple[float, int]]]:
    """Return energy per product in fJ, and number of products, of each layer, by number format and sparsity."""
    model = folder_of_model()
    energies: dict[Key, list[tuple[float, int]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, activations in tqdm([*layers(model, small)], unit="layer", disable=None, leave=False):
            path = Path(scratch) / "activations.npy"
            np.save(path, activations)
            a, b = Source(str(model / "model.safetensors"), name), Source(str(path), transposed=True)
            for fmt, text in wanted.items():
                sparse = Way(instruction=text).parsed
                for kind, i in (("2:4", sparse), ("dense", dense_instruction(sparse))):
                    of_layer, products = operands(i, a, b, unit, cycles)
                    taken = unit.measure(i, _ARCH, of_layer, name).total
                    energies.setdefault((fmt, kind), []).append((taken, products))
    return energies


def rows_of(found: dict[Key, list[tuple[float, int]]]) -> Iterator[Row]:
    """Yield table rows with the energy of each format, dense and pruned."""
    whole = {key: sum(taken * products for taken, products in of) * _MICRO for key, of in found.items()}
    for (fmt, kind), of in found.items():
        each = [taken / 1000 for taken, _ in of]
        mean = whole[fmt, kind] / _MICRO / 1000 / sum(n for _, n in of)
        yield Row(f"{fmt} {kind}: mean energy per kept product", "pJ", mean)
        yield Row(f"{fmt} {kind}: lowest energy per kept product of a layer", "pJ", min(each))
        yield Row(f"{fmt} {kind}: highest energy per kept product of a layer", "pJ", max(each))
        yield Row(f"{fmt} {kind}: energy of all linear layers", "uJ", whole[fmt, kind])
        if kind == "dense":
            saved = 100 * (1 - whole[fmt, "2:4"] / whole[fmt, kind])
            yield Row(f"{fmt}: energy of all linear layers saved by 2:4 pruning", "%", saved)


def main() -> None:
    """Measure the energy of all linear layers of the transformer, and print the figures."""
    parser = options(__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--liberty", type=Path, nargs="+", required=True, metavar="FILE", help="standard-cell library with power tables"
    )
    chosen = parser.parse_args()
    config, cycles = (SMALL, SMALL_CYCLES) if chosen.small else (CONFIG, CYCLES)
    texts = {fmt: text for fmt, text in INSTRUCTIONS.items() if not chosen.small or fmt == "s8"}
    try:
        unit = MappedUnit(config, CellLibrary.of(Library.read(*chosen.liberty)), by_module=True)
        energies = measured(unit, texts, cycles, small=chosen.small)
    except Error as error:
        sys.exit(str(error))
    show(list(rows_of(energies)), chosen.json)


if __name__ == "__main__":
    main()
