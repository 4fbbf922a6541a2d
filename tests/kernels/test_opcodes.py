"""Single PTX instructions give the bits of an H200, for special and random operands."""

from pathlib import Path

import numpy as np
from sptc.benchmarks.kernel_opcodes import THREADS, operands, programs
from sptc.kernels.launch import run_kernel

RECORD = Path(__file__).with_name("opcodes-h200.npz")


def test_single_instructions_give_the_bits_of_an_h200() -> None:
    source, target = operands(), np.zeros((THREADS, 2), np.uint32)
    wrong = []
    with np.load(RECORD) as record:
        kernels = dict(programs())
        assert {*record.files} == {*kernels}
        for name, ptx in kernels.items():
            result = run_kernel(ptx, THREADS // 128, 128, [source, target], check=False).after(target)
            if (differs := (result != record[name]).any(1)).any():
                first = int(differs.argmax())
                words = " ".join(f"{word:#x}" for word in source[first])
                wrong.append(
                    f"{name}: {differs.sum()} differ; {words} gives {result[first]}, not {record[name][first]}"
                )
    assert not wrong, "\n".join(wrong)
