"""Every combinational component of small datapaths equals the reference model of its bench."""

from collections.abc import Callable

import numpy as np
import pytest
from sptc.rtl.align import AlignStage
from sptc.rtl.config import BLOCK_SCALES, CoreConfig
from sptc.rtl.order import selected_byte
from sptc.sim.benches.bench import ComponentBench, Values
from sptc.sim.benches.components import component_benches
from sptc.sim.engine.ports import ports_of

Random = np.random.Generator
CONFIGURATIONS = {
    "scaled": CoreConfig(name="scaled", formats=("e4m3", "f16", "s8", "e2m1", "e3m2", "e2m1/4", "s4"),
                         scales=BLOCK_SCALES, step_bytes=8, mux="mux3"),
    "short": CoreConfig(name="short", formats=("f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8"), step_bytes=8,
                        fp8_alignment_bits=13),
    "nibbles": CoreConfig(name="nibbles", formats=("s4", "u4", "u8"), step_bytes=8),
    "ue8m0": CoreConfig(name="ue8m0", formats=("e2m1/4",), scales=("ue8m0",), step_bytes=8),
    "ue4m3": CoreConfig(name="ue4m3", formats=("e2m1/4", "bf16"), scales=("ue4m3",), step_bytes=8),
    "wide": CoreConfig(name="wide", formats=("tf32", "bf16"), step_bytes=8, alignment_bits=24, fp8_alignment_bits=8),
    "fp8": CoreConfig(name="fp8", formats=("e5m2", "e2m3"), scales=("ue8m0",), step_bytes=4, alignment_bits=14,
                      fp8_alignment_bits=8),
}  # fmt: skip


def check(name: str, bench: ComponentBench, simulate: Callable, stimulus: Values) -> None:
    """Compare the results of a component with its reference model, except results that the model masks."""
    answers = simulate(bench.component, **stimulus)
    bits = {port.name: port.bits for port in ports_of(bench.component)}
    for port, expected in bench.model(stimulus).items():
        counts = ~np.ma.getmaskarray(expected)
        # A sum that exceeds its port wraps, so values that differ by a multiple of 2**bits are equal.
        difference = answers[port] - np.ma.filled(expected, 0).astype(object)
        wrong = np.flatnonzero((difference % (1 << bits[port]) != 0) & counts)
        assert not len(wrong), (
            f"{name}: {port} is {answers[port][wrong[0]]}, not {expected[wrong[0]]}, for "
            + ", ".join(f"{other}={values[wrong[0]]}" for other, values in stimulus.items())
        )


def every_code(config: CoreConfig, side: str, rng: Random) -> Values:
    """Return stimulus: in product slot 0, all codes of formats with at most 8 bits, and 300 codes of wider formats."""
    operands, elements = [], []
    for number, element in enumerate(config.elements):
        bits = element.container_bits
        codes = np.arange(1 << bits) if bits <= 8 else rng.integers(0, 1 << bits, 300)
        first = 8 * selected_byte(config, 0, wide=False) if side == "b" and bits <= 8 else 0
        noise = rng.integers(0, 1 << 8 * min(config.step_bytes, 7), len(codes)) & ~((1 << bits) - 1 << first)
        operands.append(noise | codes << first)
        elements.append(np.full(len(codes), number))
    return {"operand": np.concatenate(operands), "element": np.concatenate(elements)}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("config", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_every_component_equals_its_reference_model(simulate: Callable, rng: Random, config: CoreConfig) -> None:
    for name, bench in component_benches(config).items():
        count = 150 if config.name == "scaled" and not name.startswith("multiply") else 600
        check(name, bench, simulate, bench.stimulus(rng, count))
        if name in ("unpack_a0", "unpack_b0"):
            check(name, bench, simulate, every_code(config, name[7], rng))
            # An element code that no format has selects the last format.
            operand = rng.integers(0, 1 << 8 * min(config.step_bytes, 7), 20)
            codes = (len(config.elements) - 1, 15)
            last, other = (simulate(bench.component, operand=operand, element=code) for code in codes)
            assert all((last[port] == other[port]).all() for port in last), name


def test_what_is_far_below_the_largest_exponent_is_dropped(simulate: Callable) -> None:
    """The shift amount saturates, so terms far below the largest exponent are dropped."""
    config = CoreConfig(name="least", formats=("e5m2", "u8"), step_bytes=4, alignment_bits=14, fp8_alignment_bits=8)
    products = {f"i__significands__{slot}": 1 for slot in range(4)} | {f"i__exponents__{slot}": 20 for slot in range(4)}
    answers = simulate(AlignStage(config), i__e_max=np.arange(60, 510), **products)
    terms = [values for name, values in answers.items() if name.startswith("o__addends__terms__")]
    assert terms
    assert not np.any(terms)
