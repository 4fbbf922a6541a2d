"""Single PTX instructions, random kernels, and random copies of tiles give the bits of an H200."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from sptc import TensorMap, run_kernel
from sptc.benchmarks.kernel_opcodes import THREADS, operands, programs

OPCODES, RANDOM = (Path(__file__).with_name(f"{name}-h200.npz") for name in ("opcodes", "random"))


def test_single_instructions_give_the_bits_of_an_h200() -> None:
    source, target, wrong = operands(), np.zeros((THREADS, 2), np.uint32), list[str]()
    with np.load(OPCODES) as record:
        kernels = dict(programs())
        assert {*record.files} == {*kernels}
        for name, ptx in kernels.items():
            run = run_kernel(ptx, THREADS // 128, 128, [source, target], check=False)
            result, expected = run.after(target), record[name]
            if (differs := (result != expected).any(1)).any():
                first = int(differs.argmax())
                words = " ".join(f"{word:#x}" for word in source[first])
                wrong.append(f"{name}: {differs.sum()} differ; {words} gives {result[first]}, not {expected[first]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("count", [40, pytest.param(None, marks=pytest.mark.regression)])
@pytest.mark.parametrize("kind", ["kernels", "tiles"])
def test_random(kind: str, count: int | None, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    kernels, tiles = (importlib.import_module(f"random_{name}") for name in ("kernels", "tiles"))
    wrong, expected = [], dict(np.load(RANDOM)[kind].tolist())
    for seed in (385, *rng.permutation([*expected])[:count].tolist()):  # 385: barriers of divergent threads
        if kind == "tiles":
            ptx, arrays, tile = tiles.program(seed)
            tensor, source, target = arrays.values()
            run = run_kernel(ptx, 1, tiles.BLOCK, [TensorMap(tensor, **tile), source, target])
        else:
            ptx, arrays = kernels.program(seed), kernels.buffers(seed)
            run = run_kernel(ptx, kernels.GRID, kernels.BLOCK, [*arrays.values()])
        if kernels.digest(ptx, {name: run.after(array) for name, array in arrays.items()}) != expected[seed]:
            wrong.append(seed)
    assert not wrong, f"random_{kind}.program gives other results than an H200 for the seeds {wrong}"
