"""Random calls of public functions with wrong arguments: each call returns a result or raises :class:`sptc.Error`."""

import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pytest
import sptc
from sptc.gemm.diagnosis import Identification
from sptc.gemm.unpack import Matrices
from sptc.isa.instruction_descriptor import InstructionDescriptor, encode_instruction_descriptor
from sptc.isa.memory import encode_descriptor
from sptc.isa.tcgen05 import build_instruction, parse_opcode
from sptc.tests.hostile.mutation import mutated_value


@dataclass(frozen=True)
class Call:
    function: Callable[..., Any]
    arguments: dict[str, Any]


def _words(*shape: int) -> np.ndarray:
    return np.full(shape, 0x44444444, np.uint32)


def _mma(instruction: str, a: int, b: int, c: int, **more: Any) -> Call:
    arguments = {"instruction": instruction, "a": _words(32, a), "b": _words(32, b), "c": _words(32, c)}
    return Call(sptc.mma, arguments | {"arch": "sm_90", "backend": "golden", "metadata": "strict"} | more)


def _wgmma(instruction: str, **more: Any) -> Call:
    arguments = {"instruction": instruction, "d": _words(128, 4), "a": _words(128, 4), "e": _words(128), "selector": 0}
    arguments |= {"b": encode_descriptor(0, 256, 128), "smem": np.zeros(2048, np.uint8), "scale_d": True}
    arguments |= {"imm_scale_a": 1, "imm_scale_b": -1, "imm_trans_a": 0, "imm_trans_b": 0, "metadata": "software"}
    return Call(sptc.wgmma, arguments | more)


def _tcgen05() -> Call:
    text = "tcgen05.mma.sp.cta_group::1.kind::f16"
    opcode = parse_opcode(text)
    shape = build_instruction(opcode, m=64, n=8, d="f32", a="f16", b="f16")
    idesc = encode_instruction_descriptor(opcode, InstructionDescriptor(instruction=shape))
    tmem = np.zeros((128, 512), np.uint32)
    tmem[:, 48:52] = 0x44444444
    b = encode_descriptor(0, 256, 128, family="tcgen05")
    arguments = {"instruction": text, "tmem": tmem, "d": 0, "a": 32, "b": b, "idesc": idesc, "e": 48}
    more = {"enable_input_d": True, "scale_input_d": 0, "disable_output_lane": (0, 0, 1, 0), "arch": "sm_100"}
    return Call(sptc.tcgen05_mma, arguments | more | {"smem": np.zeros(4096, np.uint8), "metadata": "silicon"})


def _packing() -> list[Call]:
    found = []
    for text in (
        "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16",
        "tcgen05.mma.sp.cta_group::1.kind::f16 (m64n8k32.f32.f16.f16)",
    ):
        rows, k = (16, 16) if text.startswith("mma") else (64, 16 if "wgmma" in text else 32)
        a, b = np.zeros((rows, k), np.float32), np.ones((k, 8), np.float16)
        held = sptc.pack(text, a, b)
        arguments = {"instruction": text, "a": a, "b": b, "c": np.ones((rows, 8), np.float32), "selector": 0}
        found += [Call(sptc.pack, arguments | {"metadata": "strict"}), Call(sptc.unpack, held)]
    ordered = found[0].arguments["instruction"]
    stored = {"a": np.zeros((2, 16, 8), np.uint16), "nibbles": np.full((2, 16, 4), 4, np.uint8)}
    found.append(Call(sptc.pack, {"instruction": ordered, "b": np.zeros((2, 16, 8)), **stored, "metadata": "software"}))
    found.append(Call(sptc.random_metadata, {"instruction": ordered, "rng": 3, "tiles": 2, "selector": 1}))
    return found


def _gemm() -> Call:
    a = np.arange(512, dtype=np.float16).reshape(16, 8, 4)
    a[..., 2:] = 0
    arguments = {"a": a.reshape(16, 32), "b": np.arange(256, dtype=np.float16).reshape(32, 8), "format": "f16"}
    arguments |= {"c": np.ones((16, 8), np.float32), "alpha": 1.0, "beta": 0.5, "bias": np.ones(8, np.float32)}
    arguments |= {"relu": False, "result": "f32", "split_k": 1, "order": "tree", "promote": 1, "swapped": False}
    return Call(sptc.gemm, arguments | {"backend": "golden"})


def _identify() -> Call:
    arguments = _gemm().arguments
    factors = {"a": arguments["a"], "b": arguments["b"], "format": "f16", "result": "f32"}
    y = sptc.gemm(arguments["a"], arguments["b"], format="f16", backend="golden")
    return Call(sptc.identify, factors | {"y": y, "alpha": 1.0, "dense": False, "prune": False, "promote": None})


def _sequence(instruction: str, d: Any, a: Any, groups: int, register: Hashable) -> None:
    """Call all methods of a :class:`sptc.WgmmaSequence`: a register is written, used by ``wgmma``, and read."""
    sequence = sptc.WgmmaSequence()
    sequence.write(register)
    sequence.fence()
    sequence.mma_async(instruction, d, a)
    sequence.commit_group()
    sequence.wait_group(groups)
    sequence.read(register)
    sequence.end()


def calls() -> list[Call]:
    sparse = "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    scaled = "mma.sp::ordered_metadata.sync.aligned.kind::mxf4.block_scale.scale_vec::2X.m16n8k128.row.col"
    scaled += ".f32.e2m1.e2m1.f32.ue8m0"
    wgmma = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"
    move = {"smem": np.zeros(512, np.uint8), "addresses": np.arange(0, 512, 16)}
    stored = {"registers": _words(32, 2), **move}
    scales = {"scale_a": (_words(32), 0, 1), "scale_b": (_words(32), 2, 3)}
    registers = [f"d{number}" for number in range(4)]
    return [
        _mma(sparse, 2, 2, 4, e=_words(32), selector=1),
        _mma("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 4, 2, 4),
        _mma("mma.sp.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32", 2, 2, 4, e=_words(32), selector=0),
        _mma(scaled, 4, 4, 4, e=_words(32), selector=0, arch="sm_120", **scales),
        _wgmma(wgmma),
        _wgmma(wgmma, a=encode_descriptor(0, 256, 128), smem=np.zeros(8192, np.uint8), imm_trans_a=1),
        _tcgen05(),
        Call(sptc.ldmatrix, {"instruction": "ldmatrix.sync.aligned.m8n8.x2.shared.b16"} | move),
        Call(sptc.stmatrix, {"instruction": "stmatrix.sync.aligned.m8n8.x2.shared.b16", **stored}),
        Call(sptc.evidence, {"instruction": wgmma, "arch": "sm_90", "a_from": "shared"}),
        Call(_sequence, {"instruction": wgmma, "d": registers, "a": None, "groups": 0, "register": "d0"}),
        _gemm(),
        *_packing(),
    ]


CALLS = calls()
#: The regression makes SHARES times SHARE calls (200,000). The quick tier makes QUICK calls.
SHARE, SHARES, QUICK = 50_000, 4, 2_000


def _try(call: Call, rng: np.random.Generator) -> bool:
    """Call a function with one or two arguments changed. Return False if the call raised an :class:`sptc.Error`."""
    arguments = dict(call.arguments)
    for _ in range(1 + int(rng.random() < 0.3)):
        name = str(rng.choice([*arguments]))
        arguments[name] = mutated_value(arguments[name], rng)
    arrays = {name: value for name, value in arguments.items() if isinstance(value, np.ndarray)}
    before = {name: array.copy() for name, array in arrays.items()}
    try:
        result = call.function(**arguments)
    except sptc.Error as error:
        message = str(error)
        assert message.isprintable()  # a printable message has only one line
        assert len(message) < 1_200, "the message is too long"
        return False
    finally:
        for name, array in before.items():
            assert array.dtype.hasobject or array.tobytes() == arrays[name].tobytes(), "an operand was modified"
    assert result is None or isinstance(result, (np.ndarray, str, dict, Matrices, Identification))
    if isinstance(result, np.ndarray):
        assert result.flags.writeable
        shared = (np.may_share_memory(result, array) for array in arrays.values())
        assert not any(shared), "the result shares memory with an operand"
    return True


def _fuzz(count: int, rng: np.random.Generator, calls: list[Call]) -> None:
    taken = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(count):
            call = calls[number % len(calls)]
            state = rng.bit_generator.state
            try:
                taken += _try(call, rng)
            except Exception as error:
                name, kind = call.function.__name__, type(error).__name__
                raise AssertionError(f"call {number}, {name}: {kind}: {error}; generator state: {state}") from error
    assert 0.1 * count < taken < 0.5 * count, f"{taken} of {count} calls give a result: too many or too few"


@pytest.mark.parametrize("count", [QUICK, *[pytest.param(SHARE, marks=pytest.mark.regression)] * SHARES])
def test_calls(count: int, rng: np.random.Generator) -> None:
    for call in CALLS:  # valid calls raise no error
        call.function(**call.arguments)
    _fuzz(count, rng, CALLS)


@pytest.mark.regression
def test_calls_of_identify(rng: np.random.Generator) -> None:
    _fuzz(300, rng, [_identify()])


def _read_only(value: np.ndarray) -> np.ndarray:
    copy = value.copy()
    copy.flags.writeable = False
    return copy


#: Changes of all array arguments of a call, by name. With each change: True if the call must still give the same
#: result, False if it must raise an error, None if it may do either.
ARRAYS: dict[str, tuple[Callable[[np.ndarray], Any], bool | None]] = {
    "read-only": (_read_only, True),
    "negative strides": (lambda value: np.flip(np.flip(value).copy()), True),
    "not contiguous": (lambda value: np.repeat(value, 2, -1)[..., ::2], True),
    "big-endian": (lambda value: value.astype(value.dtype.newbyteorder(">")), None),
    "objects": (lambda value: value.astype(object), False),
    "without axes": (lambda value: value.ravel()[0].reshape(()), False),
    "no batch": (lambda value: value[None][:0], None),
}


def _bytes_of(result: Any) -> Any:
    if isinstance(result, Matrices):
        result = {field.name: getattr(result, field.name) for field in fields(result)}
    if isinstance(result, dict):
        return {name: _bytes_of(value) for name, value in result.items()}
    return (result.shape, result.tobytes()) if isinstance(result, np.ndarray) else result


@pytest.mark.parametrize("name", ARRAYS)
def test_unusual_arrays(name: str, rng: np.random.Generator) -> None:
    change, expected = ARRAYS[name]
    for call in CALLS:
        arrays = {key: value for key, value in call.arguments.items() if isinstance(value, np.ndarray)}
        for key in arrays.keys() & {"a", "b", "c", "d", "registers", "smem"}:
            if arrays[key].dtype.kind == "u":  # floats stay unchanged, so that A stays sparse
                octets = rng.integers(0, 256, arrays[key].nbytes, np.uint8)
                arrays[key] = octets.view(arrays[key].dtype).reshape(arrays[key].shape)
        if not arrays:
            continue
        changed = {key: change(value) for key, value in arrays.items()}
        try:
            result = call.function(**call.arguments | changed)
        except sptc.Error:
            assert expected is not True, call
            continue
        assert expected is not False, call
        if name == "no batch":
            assert not isinstance(result, np.ndarray) or result.size == 0
        else:
            assert _bytes_of(result) == _bytes_of(call.function(**call.arguments | arrays)), call


def test_a_mistake_is_seen(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    monkeypatch.setattr("sptc.api.matrix_moves._addresses", lambda addresses, move: addresses)
    with pytest.raises(AssertionError, match=r"(ld|st)matrix"):
        _fuzz(QUICK, rng, CALLS)
