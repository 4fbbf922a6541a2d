"""Bad input to the C interface: a status and a sentence, whatever comes, and nothing for the sanitizers to find."""

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sptc.infra.compiler import cxx_compiler
from sptc.isa.tcgen05 import every_opcode
from sptc.native.library import Input, Matrices, MmaOperands, Output, WgmmaOperands, library
from sptc.native.tables import forms
from sptc.native.vendor import write_files

from .held import RefusedError, given, opened

F16 = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.sp.sync.aligned.m64n16k32.f32.f16.f16"


@pytest.mark.parametrize(
    ("text", "arch", "status", "sentence"),
    [
        ("", "sm_90", 4, "'' in '' is no known opcode; accepted are mma, wgmma and tcgen05."),
        ("add.f32", "sm_90", 4, "'add' in 'add.f32' is no known opcode; accepted are mma, wgmma and tcgen05."),
        (
            F16,
            "sm_91",
            5,
            "'sm_91' is no known architecture; expected one of sm_80, sm_86, sm_89, sm_90, sm_100, sm_120, sm_90a, ",
        ),
        (WGMMA, "sm_80", 5, f"sm_80 does not have '{WGMMA}'; these have it: sm_90, sm_90a."),
        (F16.replace(".sync", ""), "sm_90", 4, f"'.sync' is missing in '{F16.replace('.sync', '')}'."),
        (F16 + ".sync", "sm_90", 4, f"'.sync' stands twice in '{F16}.sync'; once is expected."),
        (F16 + ".sp", "sm_90", 4, f"'.sp' in '{F16}.sp' repeats '.sp::ordered_metadata'; one is expected."),
        (F16 + ".relu", "sm_90", 4, f"'.relu' in '{F16}.relu' is no part of mma."),
        (F16.replace("row.col", "col.row"), "sm_90", 4, "the layouts in"),
        (F16.replace("m16n8k32", "m16n8k33"), "sm_90", 4, "no instruction has this combination of shape, types"),
        (F16.replace(".m16n8k32", ""), "sm_90", 4, "the shape is missing in"),
        (F16 + ".f32", "sm_90", 4, "has 5 types; 4 are expected: dtype, atype, btype, ctype."),
        ("tcgen05.mma.sp.kind::f16", "sm_100", 4, "'.cta_group' is missing in 'tcgen05.mma.sp.kind::f16'"),
        (f"{WGMMA} (m64n16k32)", "sm_90", 4, "is not accepted; it belongs to tcgen05."),
        ("mma" * 200, "sm_90", 4, "an instruction has at most 400 characters, not 600."),
        ("mma\n", "sm_90", 4, "an instruction is a line of printable ASCII characters."),
    ],
)
def test_text(text: str, arch: str, status: int, sentence: str) -> None:
    with pytest.raises(RefusedError) as caught, opened(text, arch):
        pass
    assert caught.value.status == status
    assert sentence in str(caught.value)


@pytest.mark.parametrize("text", [f" {F16}; ", F16.replace(".sync.aligned", "") + ".aligned.sync"])
def test_text_as_the_assembler_takes_it(text: str) -> None:
    with opened(text) as instruction:
        assert instruction.text == F16


def test_a_foreign_header_and_null() -> None:
    with pytest.raises(RefusedError, match="compiled for version 2 of the interface, and this library has version 1"):
        opened(F16, abi=2).__enter__()
    handle = ctypes.c_void_p()
    assert library().sptc_open(1, None, b"sm_90", ctypes.byref(handle)) == 2
    assert library().sptc_last_error(handle) == b"text must not be NULL."
    library().sptc_close(handle)
    assert library().sptc_open(1, F16.encode(), b"sm_90", None) == 2
    library().sptc_close(None)
    assert library().sptc_last_error(None) == b"there is no handle."
    assert library().sptc_multiply(None, None, 1) == 2
    with opened(F16) as instruction, pytest.raises(RefusedError, match=r"operands must not be NULL\."):
        instruction.call("mma", None, 1)


def _mma() -> tuple[MmaOperands, list[np.ndarray]]:
    arrays = [np.zeros((1, 32, 4), np.uint32) for _ in "abcd"] + [np.full((1, 32), 0x44444444, np.uint32)]
    a, b, c, d, e = arrays
    return MmaOperands(1, *map(given, (a, b, c, e)), 0, 0, d=given(d, Output)), arrays


@pytest.mark.parametrize(
    ("spoil", "status", "sentence"),
    [
        (lambda o: setattr(o.a, "bytes", 511), 8, "a must have 512 bytes, not 511."),
        (lambda o: setattr(o.d, "data", None), 2, "d must not be NULL."),
        (lambda o: setattr(o, "e", Input()), 2, "e must not be NULL."),
        (lambda o: setattr(o, "scale_a", o.a), 10, "the instruction takes no scale_a."),
        (lambda o: setattr(o, "selector", 2), 9, "selector must be 0 to 1, not 2."),
        (lambda o: setattr(o, "metadata", 3), 9, "metadata must be 0 to 2, not 3."),
        (lambda o: setattr(o, "tiles", -1), 7, "tiles must not be negative, not -1."),
        (lambda o: setattr(o, "tiles", 1 << 62), 7, "would have more bytes than there are addresses."),
        (lambda o: setattr(o, "tiles", 2), 8, "e must have 256 bytes, not 128."),
    ],
)
def test_operands(spoil: Callable[[Any], None], status: int, sentence: str) -> None:
    operands, _arrays = _mma()
    with opened(F16) as instruction:
        instruction.call("mma", ctypes.byref(operands), 1)
        spoil(operands)
        with pytest.raises(RefusedError) as caught:
            instruction.call("mma", ctypes.byref(operands), 1)
    assert caught.value.status == status
    assert sentence in str(caught.value)


def test_shapes_and_families() -> None:
    with opened(F16) as instruction:
        for k in (0, 31, 48, -32):
            with pytest.raises(RefusedError, match=r"k must be a multiple of 32, not 1, 1, 1 and"):
                instruction.call("multiply", ctypes.byref(Matrices(1, 1, 1, k)), 1)
        with pytest.raises(RefusedError, match=r"m16n8k32.* is no wgmma instruction\."):
            instruction.call("wgmma", ctypes.byref(WgmmaOperands()), 1)
        with pytest.raises(RefusedError, match=r"threads must be 1 to 1024, not 0\."):
            instruction.call("multiply", ctypes.byref(Matrices()), 0)


@pytest.fixture(scope="session")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The program, built with sanitizers, and the file of instructions."""
    folder = tmp_path_factory.mktemp("fuzz")
    write_files(folder / "libsptc")
    flags = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all"
    make = ["make", "-s", "-j2", "-C", str(folder / "libsptc"), f"CXXFLAGS={flags}", "build/libsptc.a"]
    subprocess.run(make, check=True, capture_output=True)
    source = Path(__file__).parent / "fuzz.cpp"
    words = ["-std=c++17", *flags.split(), f"-I{folder}/libsptc/include", str(source)]
    library_words = [f"{folder}/libsptc/build/libsptc.a", "-pthread", "-o", str(folder / "fuzz")]
    subprocess.run([cxx_compiler(), *words, *library_words], check=True)
    lines = [f"{form.instruction}\t{arch}\n" for form in forms() for arch in form.instruction.architectures]
    lines += [f"{opcode}\tsm_100\n" for opcode in every_opcode() for _ in range(4)]
    (folder / "lines").write_text("".join(lines), encoding="utf-8")
    return folder / "fuzz", folder / "lines"


@pytest.mark.regression
@pytest.mark.parametrize("share", range(10))
def test_random_calls(share: int, fuzzer: tuple[Path, Path], rng: np.random.Generator) -> None:
    """Half a minute each; `fuzz SEED SECONDS FILE` goes on for as long as one likes."""
    program, lines = fuzzer
    words = [str(program), str(rng.integers(1 << 60)), "30", str(lines)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}:\n{done.stdout[-500:]}\n{done.stderr[:4000]}"
