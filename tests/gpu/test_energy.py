"""Energy is measured on a fake GPU: operands have the right distributions, and the measured energies are right."""

import csv
import ctypes
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import sptc
from sptc.gpu import energy, power
from sptc.gpu.distributions import DISTRIBUTIONS, numbers, operands
from sptc.gpu.energy import COLUMNS, Meter, Work, table, works
from sptc.gpu.loops import Loop, given_words
from sptc.isa.formats import FORMATS
from sptc.isa.instructions import parse
from sptc.isa.timing import timing
from sptc.tests.cli.command_line import CommandLine

from .fake_cupy import H200, FakeCupy

SPARSE = parse("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")
INTEGERS = parse("mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32")
WGMMA = parse("wgmma.mma_async.sp.sync.aligned.m64n256k32.f32.f16.f16")
LOOP = Loop(SPARSE, 8, accumulators=8, operands=2, group=16, given=True)
Random = np.random.Generator


def test_numbers_are_rounded_to_the_nearest(seed: int) -> None:
    for name, dtype in {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn}.items():
        codes = numbers(FORMATS[name], "normal", (4000,), np.random.default_rng(seed))
        values = np.arange(1 << 8 * np.dtype(dtype).itemsize).astype(f"u{np.dtype(dtype).itemsize}").view(dtype)
        with np.errstate(invalid="ignore"):  # converting NaN codes would give a warning
            values = values.astype(np.float64)  # the conversion to float64 is exact
        drawn = np.random.default_rng(seed).standard_normal(4000)
        ordered = np.sort(values[np.isfinite(values)])
        above = np.searchsorted(ordered, drawn)
        least = np.minimum(np.abs(ordered[above - 1] - drawn), np.abs(ordered[above] - drawn))
        np.testing.assert_array_equal(np.abs(values[codes] - drawn), least, name)


def test_distributions(rng: Random) -> None:
    drawn = {kind: numbers(FORMATS["f16"], kind, (4000,), rng) for kind in DISTRIBUTIONS}
    values = {kind: codes.astype(np.uint16).view(np.float16).astype(float) for kind, codes in drawn.items()}
    assert not values["zeros"].any()
    assert (values["ones"] == 1).all()
    assert abs(values["normal"].std() - 1) < 0.1
    assert (values["positive"] >= 0).all()
    assert 0.4 < (values["half"] == 0).mean() < 0.6
    assert 2**-8 < np.median(np.abs(values["small"])) < 2**-4
    assert not (drawn["bits"] & 0x4000).any()
    assert len(np.unique(drawn["bits"])) > 3000
    assert numbers(FORMATS["tf32"], "normal", (1000,), rng).max() < 1 << 19
    integers = numbers(FORMATS["s8"], "normal", (4000,), rng).astype(np.uint8).view(np.int8)
    assert 28 < integers.astype(float).std() < 36
    assert integers.min() >= -127


@pytest.mark.parametrize("instruction", [SPARSE, INTEGERS], ids=str)
def test_every_other_a_is_negated(instruction: sptc.isa.instructions.Instruction, rng: Random) -> None:
    loop = replace(LOOP, instruction=instruction)
    shared, registers = given_words(loop)
    of_threads = operands(loop, "normal", "normal", "random", rng)[shared:].reshape(registers, 256)
    one, b, other, another_b, e = np.split(of_threads, [4, 8, 12, 16])
    if instruction is SPARSE:
        np.testing.assert_array_equal(one ^ np.uint32(0x80008000), other)
    else:
        np.testing.assert_array_equal(one.view(np.int8), -other.view(np.int8))
    assert (b != another_b).mean() > 0.9
    nibbles = (e[0][:, None] >> np.arange(0, 32, 4, dtype=np.uint32)) & 15
    assert instruction.rule
    assert {*np.unique(nibbles).tolist()} == {*instruction.rule.legal}
    assert len(np.unique(operands(loop, "normal", "normal", "fixed", rng)[-256:])) == 1


def test_operands_in_shared_memory(rng: Random) -> None:
    for a_from, a_words in (("shared", 64 * 32 // 4), ("registers", 0)):
        loop = Loop(WGMMA, 4, a_from=a_from, given=True)
        shared, registers = given_words(loop)
        words = operands(loop, "zeros", "ones", "random", rng)
        assert not words[:a_words].any()
        assert (words[a_words:shared] == 0x3C003C00).all()
        assert registers == (1 if a_words else 5)
        assert not words[shared:-128].any()


def test_what_was_recorded() -> None:
    """Recorded loops ran at the modelled rate. A sparse product took 5 to 20 % more energy than a dense product."""
    path = Path(sptc.__file__).parent / "recordings" / "energy" / "h100-2026-11-26.csv"
    about, *lines = path.read_text(encoding="utf-8").splitlines()
    assert about.startswith("# NVIDIA ")
    rows = [*csv.DictReader(lines)]
    expected = [(str(work.loop.instruction), work.loop.a_from, work.a, work.b) for work in works("sm_90")]
    assert [(row["instruction"], row["a_from"], row["a"], row["b"]) for row in rows] == expected
    picojoules = {}
    for row in rows:
        instruction = parse(row["instruction"])
        law = timing(instruction, "sm_90", row["a_from"])
        assert law
        assert float(row["kept_mac_per_cycle_sm"]) == pytest.approx(4 * law.kept_mac_per_cycle, rel=0.001)
        picojoules[str(instruction), row["a_from"], row["a"], row["b"], row["metadata"]] = float(row["pj_per_kept_mac"])
    normal = {key: value for key, value in picojoules.items() if key[2:4] == ("normal", "normal")}
    for (instruction, a_from, _, _, metadata), value in normal.items():
        zeros = picojoules.get((instruction, a_from, "zeros", "zeros", metadata))
        assert zeros is None or zeros < value / 2.5
    dense = "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16"
    ratio = normal[str(WGMMA), "registers", "normal", "normal", "random"]
    assert 1.05 < ratio / normal[dense, "registers", "normal", "normal", ""] < 1.2


class FakeGpu(FakeCupy):
    """Fake GPU whose 44 busy SMs run at 1.5 GHz: a product takes 2 pJ, and the power of other parts keeps rising."""

    asarray = staticmethod(np.array)

    def __init__(self) -> None:
        super().__init__({**H200, "multiProcessorCount": 132})
        self.now, self.taken, self.power = 0.0, 0.0, 0.0
        self.cuda.Event = lambda: types.SimpleNamespace(record=lambda: None, synchronize=lambda: None)
        self.cuda.get_elapsed_time = lambda begin, end: 1000 * self.seconds

    def loaded(self, loop: Loop) -> Callable[..., None]:
        def run(grid: tuple[int], block: tuple[int], arguments: tuple[Any, ...]) -> None:
            counts, _, times, given = arguments
            assert (grid, block, len(given)) == ((44,), (256,), sum(given_words(loop)[k] * (1, 256)[k] for k in (0, 1)))
            cycles = int(times) * (8 * loop.group * 2 or 1500)
            counts[:] = cycles, int(times)
            self.seconds = cycles / 1.5e9
            self.power = 44 * 2e-12 * (int(times) * loop.group * 8 * 16 * 8 * 16) / self.seconds

        return run

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.taken += seconds * (100 + self.now / 10 + self.power)

    def joules(self) -> float:
        return np.floor(self.taken * 5) / 5

    def temperature(self) -> int:
        return 40


@pytest.fixture
def gpu(machine: Callable, monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    machine()
    fake = FakeGpu()
    monkeypatch.setattr(energy, "load_cupy", lambda: fake)
    monkeypatch.setattr(energy, "EnergyCounter", lambda: fake)
    monkeypatch.setattr(energy, "time", types.SimpleNamespace(sleep=fake.sleep, perf_counter=lambda: fake.now))
    # `kernel` returns the loop itself instead of its PTX text, and `load_kernel` accepts this loop.
    monkeypatch.setattr(energy, "kernel", lambda loops, arch: loops[0])
    monkeypatch.setattr(energy, "load_kernel", lambda loop, entry: fake.loaded(loop))
    return fake


def test_energy_of_a_kept_product(gpu: FakeGpu, rng: Random) -> None:
    """The measured energy of a product is right although the power of the other parts of the GPU rises."""
    results = [*Meter(44, 1.0).measure([Work(LOOP, "normal", "normal")] * 8, rng)]
    assert len(results) == 8
    for one in results:
        assert one.rate == 8 * 16 * 8 * 16 / 16
        assert one.clock == pytest.approx(1500)
        assert one.picojoules == pytest.approx(2, rel=0.02)
    assert results[-1].baseline > results[0].baseline + 0.5
    lines = table("a GPU", results).splitlines()
    assert lines[:2] == ["# a GPU", ",".join(COLUMNS)]
    assert lines[2].startswith(f"{SPARSE},registers,8,normal,normal,random,44,1500,40,")
    assert [*Meter(44, 1.0).measure([], rng)] == []


def test_what_cannot_be_measured(gpu: FakeGpu, rng: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "joules", lambda: 1.0)
    with pytest.raises(sptc.BackendError, match=r"^the energy counter of the GPU, NVIDIA H200, does not increase"):
        next(Meter(44, 1.0).measure([Work(LOOP, "normal", "normal")], rng))
    with pytest.raises(sptc.BackendError, match=r"^the GPU, NVIDIA H200, has only 132 SMs, but 133 SMs are requested$"):
        Meter(133, 1.0)


def test_the_command(gpu: FakeGpu, tmp_path: Path, cli: CommandLine) -> None:
    path = tmp_path / "energy.csv"
    assert cli.streams("energy", "--instruction", SPARSE, "-o", path)[0] == f"10 measurements in {path}\n"
    assert path.read_text(encoding="utf-8").startswith("# NVIDIA H200, CUDA 13.0, driver 580.159.04, ")
    other = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
    _, errors = cli.streams("energy", "--instruction", other, "-o", path, status=2)
    assert f"the energy of {other} cannot be measured" in errors


class FakeLibrary:
    """Stand-in for NVIDIA's management library. The GPU has consumed 12.5 J, and its temperature is 37 degrees."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            if name.endswith(("Consumption", "Temperature")):
                arguments[-1]._obj.value = 12500 if name.endswith("Consumption") else 37
            return 3 if name == f"nvml{self.fails}" else 0

        return call


def test_the_counter(machine: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    machine().cuda.runtime.deviceGetPCIBusId = lambda number: "0000:00:06.0"
    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeLibrary())
    counter = power.EnergyCounter()
    assert (counter.joules(), counter.temperature()) == (12.5, 37)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeLibrary("DeviceGetTotalEnergyConsumption"))
    message = r"cannot be read: nvmlDeviceGetTotalEnergyConsumption returned status 3$"
    with pytest.raises(sptc.BackendError, match=message):
        power.EnergyCounter()

    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(sptc.BackendError, match=r"^energy measurements need libnvidia-ml\.so\.1, a part of the driver"):
        power.EnergyCounter()
