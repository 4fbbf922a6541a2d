"""Invalid input to the C interface: each call returns a status and a message, and the sanitizers report nothing."""

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sptc.infra.compiler import cxx_compiler
from sptc.isa.memory import GENERATIONS, encode_descriptor
from sptc.isa.tcgen05 import every_opcode
from sptc.native.library import Input, Matrices, MmaOperands, Output, WgmmaOperands, library
from sptc.native.tables import forms
from sptc.native.vendor import write_files

from .held import given, opened, refuses

F16 = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
#: Number of instructions that the fuzz program opens in one run, with four calls each.
INSTRUCTIONS = 1000
WGMMA = "wgmma.mma_async.sp.sync.aligned.m64n16k32.f32.f16.f16"


def test_text() -> None:
    without_sync = F16.replace(".sync", "")
    for text, sentence in (
        ("", "'' in '' is no known opcode; accepted are mma, wgmma and tcgen05."),
        ("add.f32", "'add' in 'add.f32' is no known opcode; accepted are mma, wgmma and tcgen05."),
        (without_sync, f"'.sync' is missing in '{without_sync}'."),
        (F16 + ".sync", f"'.sync' appears twice in '{F16}.sync'; once is expected."),
        (F16 + ".sp", f"'{F16}.sp' has both '.sp::ordered_metadata' and '.sp'; only one of them is allowed."),
        (F16 + ".relu", f"'.relu' in '{F16}.relu' is no part of mma."),
        (F16.replace("row.col", "col.row"), "the layouts in"),
        (F16.replace("m16n8k32", "m16n8k33"), "no instruction has this combination of shape, types"),
        (F16.replace(".m16n8k32", ""), "the shape is missing in"),
        (F16 + ".f32", "has 5 types; 4 are expected: dtype, atype, btype, ctype."),
        ("tcgen05.mma.sp.kind::f16", "'.cta_group' is missing in 'tcgen05.mma.sp.kind::f16'"),
        (f"{WGMMA} (m64n16k32)", "is not accepted; it belongs to tcgen05."),
        ("mma" * 200, "an instruction has at most 400 characters, not 600."),
        ("mma\n", "an instruction is a line of printable ASCII characters."),
    ):
        with refuses(sentence, 4), opened(text, "sm_100" if text.startswith("tcgen05") else "sm_90"):
            pass
    architectures = "sm_80, sm_86, sm_89, sm_90, sm_100, sm_120, sm_87, "
    with refuses(f"'sm_91' is no known architecture; expected one of {architectures}", 5), opened(F16, "sm_91"):
        pass
    with refuses(f"sm_80 does not have '{WGMMA}'; these have it: sm_90, sm_90a.", 5), opened(WGMMA, "sm_80"):
        pass
    for text in (f" {F16}; ", F16.replace(".sync.aligned", "") + ".aligned.sync"):  # ptxas accepts both spellings
        with opened(text) as instruction:
            assert instruction.text == F16


def test_a_foreign_header_and_null() -> None:
    with refuses("compiled for version 2 of the interface, and this library has version 1"):
        opened(F16, abi=2).__enter__()
    handle = ctypes.c_void_p()
    assert library().sptc_open(1, None, b"sm_90", ctypes.byref(handle)) == 2
    assert library().sptc_last_error(handle) == b"text must not be NULL."
    library().sptc_close(handle)
    assert library().sptc_open(1, F16.encode(), b"sm_90", None) == 2
    library().sptc_close(None)
    assert library().sptc_last_error(None) == b"the handle is NULL."
    assert library().sptc_multiply(None, None, 1) == 2
    with opened(F16) as instruction, refuses("operands must not be NULL."):
        instruction.call("mma", None, 1)


def test_encoded_descriptors(rng: np.random.Generator) -> None:
    """The library encodes shared-memory descriptors as the Python package does, and rejects invalid fields."""
    value = ctypes.c_uint64()
    for text, arch, family in ((WGMMA, "sm_90", "wgmma"), ("tcgen05.mma.cta_group::1.kind::f16", "sm_100", "tcgen05")):
        with opened(text, arch) as instruction:
            for number in range(50):
                swizzle = [*GENERATIONS[family].swizzles.values()][number % len(GENERATIONS[family].swizzles)]
                fields = [*(16 * rng.integers(0, 1 << 14, 3)).tolist(), swizzle, int(rng.integers(0, 8))]
                instruction.call("encode_descriptor", *fields[:3], swizzle.encode(), fields[4], ctypes.byref(value))
                assert value.value == encode_descriptor(*fields, family=family)
            names = ", ".join(GENERATIONS[family].swizzles.values())
            for words, sentence in (
                (
                    (8, 0, 0, b"none", 0),
                    "the start of a descriptor must be a multiple of 16 bytes from 0 to 262128, not 8.",
                ),
                ((0, 0, 1 << 18, b"none", 0), "the stride offset of a descriptor must be a multiple of 16 bytes"),
                ((0, 0, 0, b"none", 8), "the base offset of a descriptor must be 0 to 7, not 8."),
                ((0, 0, 0, b"16B", 0), f"the swizzle of a descriptor must be {names}, not '16B'."),
            ):
                with refuses(sentence):
                    instruction.call("encode_descriptor", *words, ctypes.byref(value))
    with opened(F16) as instruction, refuses("has no operand in shared memory."):
        instruction.call("encode_descriptor", 0, 0, 0, b"none", 0, ctypes.byref(value))


def test_operands_shapes_and_families() -> None:
    a, b, c, d = (np.zeros((1, 32, 4), np.uint32) for _ in "abcd")
    e = np.full((1, 32), 0x44444444, np.uint32)
    cases: list[tuple[Callable[[Any], None], int, str]] = [
        (lambda o: setattr(o.a, "bytes", 511), 8, "a must have 512 bytes, not 511."),
        (lambda o: setattr(o.d, "data", None), 2, "d must not be NULL."),
        (lambda o: setattr(o, "e", Input()), 2, "e must not be NULL."),
        (lambda o: setattr(o, "scale_a", o.a), 10, "the instruction takes no scale_a."),
        (lambda o: setattr(o, "selector", 2), 9, "selector must be 0 to 1, not 2."),
        (lambda o: setattr(o, "metadata", 3), 9, "metadata must be 0 to 2, not 3."),
        (lambda o: setattr(o, "tiles", -1), 7, "tiles must not be negative, not -1."),
        (lambda o: setattr(o, "tiles", 1 << 62), 7, "would be larger than the address space."),
        (lambda o: setattr(o, "tiles", 2), 8, "e must have 256 bytes, not 128."),
    ]
    with opened(F16) as instruction, opened(WGMMA) as wgmma:
        for spoil, status, sentence in cases:
            operands = MmaOperands(1, *map(given, (a, b, c, e)), 0, 0, d=given(d, Output))
            instruction.call("mma", ctypes.byref(operands), 1)
            spoil(operands)
            with refuses(sentence, status):
                instruction.call("mma", ctypes.byref(operands), 1)
        wgmma.call("wgmma", ctypes.byref(WgmmaOperands(imm_scale_a=1, imm_scale_b=1)), 1)  # no tiles, no shared memory
        for k in (0, 31, 48, -32):
            with refuses("k must be a multiple of 32, not 1, 1, 1 and"):
                instruction.call("multiply", ctypes.byref(Matrices(1, 1, 1, k)), 1)
        with refuses("is no wgmma instruction."):
            instruction.call("wgmma", ctypes.byref(WgmmaOperands()), 1)
        with refuses("threads must be 1 to 1024, not 0."):
            instruction.call("multiply", ctypes.byref(Matrices()), 0)


@pytest.fixture(scope="session")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Paths of the fuzz program, compiled with sanitizers, and of its file of instructions."""
    folder = tmp_path_factory.mktemp("fuzz")
    write_files(folder / "libsptc")
    flags = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all"
    make = ["make", "-s", "-j2", "-C", str(folder / "libsptc"), f"CXXFLAGS={flags}", "build/libsptc.a"]
    subprocess.run(make, check=True, capture_output=True)
    words = ["-std=c++17", *flags.split(), f"-I{folder}/libsptc/include", str(Path(__file__).parent / "fuzz.cpp")]
    library_words = [f"{folder}/libsptc/build/libsptc.a", "-pthread", "-o", str(folder / "fuzz")]
    subprocess.run([*cxx_compiler(), *words, *library_words], check=True)
    lines = [f"{form.instruction}\t{arch}\n" for form in forms() for arch in form.instruction.architectures]
    lines += [f"{opcode}\tsm_100\n" for opcode in every_opcode() for _ in range(4)]
    (folder / "lines").write_text("".join(lines), encoding="utf-8")
    return folder / "fuzz", folder / "lines"


@pytest.mark.regression
@pytest.mark.parametrize("share", range(4))
def test_random_calls(share: int, fuzzer: tuple[Path, Path], rng: np.random.Generator) -> None:
    """Random calls, which the program `fuzz` makes, have the right status and no errors of a sanitizer."""
    program, lines = fuzzer
    words = [str(program), str(rng.integers(1 << 60)), str(INSTRUCTIONS), str(lines)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}:\n{done.stdout[-500:]}\n{done.stderr[:4000]}"
