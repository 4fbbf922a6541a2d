"""``tcgen05.mma`` through the C interface: all of tensor memory, or the error message, equals the golden model's."""

import ctypes
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from sptc.errors import InstructionError, MetadataError, OperandError
from sptc.isa.tcgen05 import KINDS, Opcode, every_opcode, instructions_of, parse_opcode
from sptc.native.library import Input, Output, Tcgen05Operands

from ..api.tcgen05_case import AT, DENSE2, DENSE_WS, F16, F16_2, MXF8, SP, SP2, WS, Case, case
from .held import RefusedError, opened, refuses, run_tensor, tensor_operands
from .products import available

Random = np.random.Generator
SWIZZLES = ("none", "32B", "64B", "128B")
#: Opcodes that may have ``.ashift``; and all opcodes, followed by the opcodes with ``.ashift``.
SHIFTING = [opcode for opcode in every_opcode() if not opcode.weight_stationary and not KINDS[opcode.kind].scales]
OPCODES = [*every_opcode(), *(replace(opcode, shifts_a=True) for opcode in SHIFTING)]
WHOLE = [("tf32", "tf32"), ("f16", "bf16"), ("f8f6f4", "e5m2"), ("i8", "s8")]


def random_case(opcode: Opcode, rng: Random, **fixed: Any) -> Case:
    """Return a random instruction of an opcode, with operands. Attributes and a selector in `fixed` are not random."""
    selector = {name: fixed.pop(name) for name in ("sparsity_selector",) if name in fixed}
    columns = 256 if "n" in fixed or rng.random() > 0.9 else 64
    every = [
        i for i in instructions_of(opcode)
        if i.n <= columns and all(getattr(i, name) == value for name, value in fixed.items())
    ]  # fmt: skip
    while True:
        i = every[rng.integers(len(every))]
        kind = KINDS[opcode.kind]
        options: dict[str, Any] = dict(selector)
        if kind.transposes:
            options |= {"transpose_a": bool(rng.integers(2)), "transpose_b": bool(rng.integers(2))}
        if kind.negates:
            options |= {"negate_a": bool(rng.integers(2)), "negate_b": bool(rng.integers(2))}
        if opcode.weight_stationary:
            options["max_shift"] = int(rng.choice([0, 8, 16, 32]))
        in_tensor = opcode.shifts_a or bool(rng.integers(2))
        if in_tensor:
            options["transpose_a"] = False
        if i.m // opcode.cta_group == 64 and not opcode.weight_stationary and (opcode.sparse or opcode.cta_group == 1):
            options["lane"] = 16 * int(rng.integers(2))
        swizzles = [str(swizzle) for swizzle in rng.choice(SWIZZLES, 2)]
        for place, (name, fmt) in enumerate((("a", i.a), ("b", i.b))):
            if options.get(f"transpose_{name}") and fmt.name == "tf32":
                swizzles[place] = "128B with 32B atoms"
        expected = {name: getattr(i, name) for name in ("m", "n", "satfinite")}
        expected |= {name: getattr(i, name).name for name in "abd"}
        expected |= {"scale_format": i.scale_format.name} if i.scale_format else {}
        try:
            return case(
                str(opcode), rng, a_in="tensor" if in_tensor else "shared", swizzles=(swizzles[0], swizzles[1]),
                options=options, any_nibble=bool(rng.integers(2)), **expected,
            )  # fmt: skip
        except OperandError:  # draw another case, because the layout is undocumented, or operands overlap
            continue


def random_options(one: Case, rng: Random) -> dict[str, Any]:
    opcode = parse_opcode(one.text)
    found: dict[str, Any] = {"metadata": str(rng.choice(["strict", "software", "silicon", "silicon"]))}
    if rng.random() < 0.3:
        found["enable_input_d"] = False
    if opcode.scales_input_d and rng.random() < 0.3:
        found["scale_input_d"] = int(rng.integers(16))
    if not (opcode.weight_stationary or opcode.scale_size or opcode.cta_group == 2) and rng.random() < 0.5:
        found["disable_output_lane"] = tuple(int(word) for word in rng.integers(1, 1 << 32, 4))
    if opcode.weight_stationary and rng.random() < 0.8:
        mask = int(rng.integers(1 << 36)) | int(rng.integers(1 << 10)) << 39 & ~(0xF0 << 40)
        found["zero_column_mask"] = mask | int(rng.integers(16)) << 48 | int(rng.choice([0, 3, 8, 17])) << 56
    return found


def mended(options: dict[str, Any]) -> dict[str, Any]:
    """Return arguments without causes of errors: undefined metadata, subnormal numbers in D, too large shifts."""
    mask = {"zero_column_mask": options["zero_column_mask"] & (1 << 56) - 1} if "zero_column_mask" in options else {}
    return {**options, "metadata": "silicon", "scale_input_d": 0, **mask}


def text_taken(text: str) -> str:
    with opened(text, "sm_100") as instruction:
        return str(instruction.text)


def outcome(run: Callable[..., Any], **arguments: Any) -> Any:
    try:
        return run(**arguments)
    except (InstructionError, OperandError, MetadataError, RefusedError) as error:
        return str(error).removesuffix(".").replace("metadata at image 0, ", "metadata at ")


def numbers_of(one: Case) -> dict[str, int]:
    return {name: one.arguments[name] for name in ("d", "a", "b", "e", "idesc")}


def agree(one: Case, arguments: dict[str, Any], kernels: str = "") -> bool:
    """Assert that the library and the golden model agree. Return False if both refuse the instruction."""
    expected = outcome(one.run, **arguments)
    result = outcome(run_tensor, text=one.text, kernels=kernels, **{**one.arguments, **arguments})
    if isinstance(expected, str) or isinstance(result, str):
        assert isinstance(expected, str), result
        assert isinstance(result, str), expected
        assert result == expected or expected.startswith("descriptor ")
        return False
    np.testing.assert_array_equal(result, expected, f"{one.text} with {one.instruction}")
    return True


@pytest.mark.parametrize("opcode", OPCODES, ids=str)
def test_random_cases(opcode: Opcode, rng: Random) -> None:
    """Every M (hence every layout) and every selector is compared, and block scales also with N = 128."""
    for m in opcode.rows:
        selectors = next(i for i in instructions_of(opcode) if i.m == m).sparsity_selectors
        fixed = [{"sparsity_selector": selector} for selector in range(selectors)]
        for words in fixed + [{"n": 128}] * bool(opcode.scale_size):
            one = random_case(opcode, rng, m=m, **words)
            options = random_options(one, rng)
            assert agree(one, options) or agree(one, mended(options))


@pytest.mark.regression
@pytest.mark.parametrize("kernels", available())
@pytest.mark.parametrize("opcode", OPCODES, ids=str)
def test_many_cases(opcode: Opcode, kernels: str, rng: Random) -> None:
    for _ in range(20):
        one = random_case(opcode, rng)
        agree(one, random_options(one, rng), kernels)


@pytest.mark.parametrize("text", [F16, F16_2, MXF8, f"{DENSE_WS}.kind::i8", f"{WS}.kind::tf32"])
def test_inverted_bits_of_descriptors_and_addresses(text: str, rng: Random) -> None:
    """Every bit of the instruction descriptor is inverted, and addresses are random: results or messages are equal."""
    one = case(text, rng, n=64)
    numbers = [name for name in ("d", "e", "a", "b", "scale_a", "scale_b") if name in one.arguments]
    changes = [{"idesc": one.arguments["idesc"] ^ 1 << bit} for bit in range(32)]
    for name in numbers:
        changes += [{name: one.arguments[name] ^ 1 << bit} for bit in range(64 if name in "ab" else 23)]
        changes += [{name: int(rng.integers(512)) | int(rng.integers(8)) << 20} for _ in range(4)]
    if "ws" in text:
        changes += [{"zero_column_mask": 1 << bit} for bit in range(64)]
    assert 30 < sum(not agree(one, change) for change in changes) < len(changes)


def test_operands_that_are_rejected(rng: Random) -> None:
    """Operands that the opcode does not take are rejected, and so are copies of an operand with different contents."""
    sparse, dense = case(f"{SP}.kind::i8", rng, n=32), case(DENSE2 + ".kind::f16", rng, n=32)
    pair = case(f"{DENSE2}.kind::mxf4.block_scale", rng, m=128, n=64, a_in="tensor")
    changes: list[tuple[Case, dict[str, Any]]] = [
        *((sparse, {name: 1}) for name in ("scale_input_d", "zero_column_mask", "scale_a")),
        *((dense, change) for change in ({"e": 2}, {"scale_input_d": 16}, {"scale_input_d": -1})),
        (dense, {"disable_output_lane": (1, 0, 0, 0)}),
        (case(MXF8, rng, n=32), {"disable_output_lane": (0, 0, 0, 1)}),
    ]
    for name in ("a", "scale_a", "scale_b"):
        tmem = pair.arguments["tmem"].copy()
        tmem[1, 32 if "scale" in name else 64, pair.arguments[name] & 0xFFFF] ^= 0xFFFFFFFF
        changes.append((pair, {"tmem": tmem}))
    for number, (one, change) in enumerate(changes):
        assert not agree(one, change), f"change {number} of {one.text}, {[*change]}"


@pytest.mark.parametrize("text", [f"{WS}.kind::f16", f"{DENSE_WS}.kind::i8"])
def test_shifts_of_columns(text: str, rng: Random) -> None:
    """Shifts of B are accepted up to the limit of the descriptor: at most 16 columns for M = 32, else 32 columns."""
    for m in parse_opcode(text).rows:
        most = 16 if m == 32 else 32
        for allowed in (0, 8, 16, 32):
            one = case(text, rng, m=m, n=64, options={"max_shift": allowed})
            for shift in (0, 7, 8, 9, 16, 17, 32, 33):
                change = {"zero_column_mask": shift << 56}
                assert agree(one, change) == (shift <= min(allowed, most)), f"m = {m}, {shift} of {allowed}"


@pytest.mark.parametrize(("text", "d", "fraction_bits"), [(F16, "f16", 10), (f"{SP}.kind::tf32", "f32", 23)])
def test_the_least_number_that_may_be_scaled(text: str, d: str, fraction_bits: int, rng: Random) -> None:
    """A number of D is scaled down to exponent field 1 (normal: accepted) or exponent field 0 (subnormal: rejected)."""
    one = case(text, rng, n=8, d=d, distribution="narrow")
    for scale, field, fraction in product((1, 8), (0, 1), (0, 1)):
        tmem = one.arguments["tmem"].copy()
        sign = int(rng.integers(2)) << (15 if d == "f16" else 31)
        tmem[5, AT.d + 3] = sign | scale + field << fraction_bits | fraction
        assert agree(one, {"tmem": tmem, "scale_input_d": scale}) == bool(field), hex(tmem[5, AT.d + 3])


@pytest.mark.parametrize("text", [F16, F16_2])
@pytest.mark.parametrize("threads", [1, 3])
def test_many_images(text: str, threads: int, rng: Random) -> None:
    """Images have own or common shared memory, or are updated in place. If an image is rejected, no image changes."""
    one = case(text, rng, n=16)
    pair = one.ctas == 2
    axis = one.ctas - 1
    tmem, smem = (np.stack([one.arguments[name]] * 7, axis) for name in ("tmem", "smem"))
    smem[..., ::3] ^= rng.integers(0, 2, smem[..., ::3].shape, dtype=np.uint8)
    given_images = {**one.arguments, "tmem": tmem, "smem": smem}
    np.testing.assert_array_equal(run_tensor(text, threads, **given_images), one.run(tmem=tmem, smem=smem))
    images = {"tmem": tmem, "smem": smem}
    if pair:
        images = {name: np.ascontiguousarray(np.moveaxis(image, 0, 1)) for name, image in images.items()}
    numbers = numbers_of(one)
    with opened(text, "sm_100") as instruction:
        in_place = images["tmem"].copy()
        operands = tensor_operands(in_place, in_place, images["smem"], **numbers)
        operands.smem_stride, operands.smem.bytes = 0, images["smem"][0].nbytes
        instruction.call("tcgen05", ctypes.byref(operands), threads)
        first = one.run(tmem=tmem, smem=np.stack([smem[:, 0] if pair else smem[0]] * 7, axis))
        np.testing.assert_array_equal(np.moveaxis(in_place, 1, 0) if pair else in_place, first)
        spoilt = images["tmem"].copy()
        spoilt[5, ..., :, one.arguments["e"] & 0xFFFF :][..., :2] = 0
        before = spoilt.copy()
        operands = tensor_operands(spoilt, spoilt, images["smem"], **numbers)
        with refuses("undefined metadata at image 5, row 0, chunk 0 (lane 0, column 4"):
            instruction.call("tcgen05", ctypes.byref(operands), threads)
        np.testing.assert_array_equal(spoilt, before)


def test_operands(rng: Random) -> None:
    one = case(F16, rng, n=8)
    images = (one.arguments["tmem"][None, None], one.arguments["smem"][None, None])
    result = np.full_like(images[0], 7)
    cases: list[tuple[Callable[[Any], None], int, str]] = [
        (lambda o: setattr(o, "images", -1), 7, "images must not be negative, not -1."),
        (lambda o: setattr(o, "images", 1 << 60), 7, "tmem would be larger than the address space."),
        (lambda o: setattr(o, "tmem", Input()), 2, "tmem must not be NULL."),
        (lambda o: setattr(o.tmem, "bytes", 262143), 8, "tmem must have 262144 bytes, not 262143."),
        (lambda o: setattr(o, "result", Output()), 2, "result must not be NULL."),
        (lambda o: setattr(o.result, "bytes", 4), 8, "result must have 262144 bytes, not 4."),
        (lambda o: setattr(o, "smem", Input()), 2, "smem must not be NULL."),
        (lambda o: setattr(o.smem, "bytes", 100), 8, "descriptor a reaches byte "),
        (lambda o: setattr(o, "a", 1 << 40), 9, "a must be a 32-bit address of tensor memory, not 1099511627776."),
        (lambda o: setattr(o, "d", 512), 9, "d must be an address of lane 0 to 127 and column 0 to 511"),
        (lambda o: setattr(o, "zero_column_mask", 1), 10, "takes no zero_column_mask, which only '.ws' has."),
        (lambda o: setattr(o, "metadata", 3), 9, "metadata must be 0 to 2, not 3."),
        (lambda o: setattr(o, "enable_input_d", 2), 9, "enable_input_d must be 0 to 1, not 2."),
    ]
    with opened(F16, "sm_100") as instruction:
        for spoil, status, sentence in cases:
            operands = tensor_operands(result, *images, **numbers_of(one))
            spoil(operands)
            with refuses(sentence, status):
                instruction.call("tcgen05", ctypes.byref(operands), 1)
            assert (result == 7).all(), sentence
    one = case(F16_2, rng, n=16)
    images = (one.arguments["tmem"][None], one.arguments["smem"][None])
    operands = tensor_operands(images[0], *images, **numbers_of(one))
    operands.smem.bytes -= 1
    with (
        opened(F16_2, "sm_100") as instruction,
        refuses("a multiple of 2 bytes, an equal share for each CTA, not 262143"),
    ):
        instruction.call("tcgen05", ctypes.byref(operands), 1)


@pytest.mark.parametrize("opcode", OPCODES, ids=str)
def test_texts(opcode: Opcode, rng: Random) -> None:
    """The library and the Python parser normalise texts equally, or reject them with equal messages."""
    collectors = [f"collector::{'b2' if opcode.weight_stationary else 'a'}::{use}" for use in ("lastuse", "discard")]
    words = [word for word in KINDS[opcode.kind].scales if KINDS[opcode.kind].scales[word] == opcode.scale_size]
    for collector in ("", *collectors):
        for word in words or [""]:
            text = str(replace(opcode, collector=collector, scale_word=word))
            head = 3 if opcode.weight_stationary else 2
            qualifiers = text.split(".")
            shuffled = ".".join([*qualifiers[:head], *rng.permutation(qualifiers[head:])])
            assert text_taken(text) == text_taken(f"  {shuffled} ;") == text
    text = str(opcode)
    extra = ["ws", "sp", "kind::f16", "kind::f4", "cta_group::3", "cta_group::2", "ashift", "block_scale", "block16",
             "scale_vec::2X", "collector::a::use", "collector::b0::fill", "collector::c", "sync"]  # fmt: skip
    spoilt = [f"{text}.{word}" for word in extra] + [text.replace(f".{word}", "") for word in text.split(".")[1:]]
    for wrong in spoilt:
        expected = str(outcome(parse_opcode, text=wrong)).replace("…", "...")
        assert outcome(text_taken, text=wrong) == expected


def test_misuse_of_opcodes() -> None:
    shaped = f"{F16}.collector::a::fill (m128n8k32.f32.f16.f16)"
    with opened(F16, "sm_100") as instruction:
        for name in ("multiply", "mma", "wgmma", "tcgen05"):
            with refuses("must not be NULL."):
                instruction.call(name, None, 1)
        with refuses("is an opcode without shape and types"):
            instruction.call("metadata", 1, Input(), 0, Output(), Output())
    with opened(shaped, "sm_100") as instruction:
        assert instruction.text == "tcgen05.mma.sp.kind::f16 (m128n8k32.f32.f16.f16)"
        with refuses("is no opcode of tcgen05 without shape and types"):
            instruction.call("tcgen05", ctypes.byref(Tcgen05Operands()), 1)
    for text, arch, sentence in (
        (shaped.replace("m128", "m256"), "sm_100", "no instruction has this combination"),
        (F16, "sm_90", f"sm_90 does not have '{F16}'; these have it: sm_100"),
        (shaped.replace(" (", " (sync."), "sm_100", "is no part of tcgen05"),
        (shaped[:-1], "sm_100", "must end in a closing parenthesis"),
    ):
        with refuses(sentence), opened(text, arch):
            pass


@pytest.mark.parametrize(
    ("tail", "a", "a_in"),
    [*((*row, place) for row in WHOLE for place in ("shared", "tensor")), ("f8f6f4", "e2m1", "shared")],
)
def test_nibbles_that_software_writes(tail: str, a: str, a_in: str, rng: Random) -> None:
    """A nibble of zero is accepted only if its chunk stores zeros of either sign."""
    one = case(f"{SP2}.kind::{tail}", rng, n=32, a=a, a_in=a_in)
    image = "smem" if a_in == "shared" else "tmem"
    sign = {"tf32": 0x80000000, "bf16": 0x80008000, "e5m2": 0x80808080}.get(a, 0)
    computed = 0
    for allowed in (0, sign, sign | 1 << 13, 0x7FFFFFFF):
        words = one.arguments[image].copy().view(np.uint32)
        words &= np.uint32(allowed)
        arguments = {image: words.view(one.arguments[image].dtype), "metadata": "software"}
        tmem = arguments.get("tmem", one.arguments["tmem"]).copy()
        e = one.arguments["e"] & 0xFFFF
        tmem[..., e : e + 2] &= np.uint32(0x0FF00FF0)
        computed += agree(one, {**arguments, "tmem": tmem})
        assert not agree(one, {**arguments, "tmem": tmem, "metadata": "strict"})
    assert 0 < computed < 4
