"""Invalid configurations are rejected, derived values are right, and presets agree with the numerics."""

import dataclasses
import gc
import re
from typing import Any

import pytest
from sptc.isa.formats import FORMATS
from sptc.isa.instructions import every_instruction, parse
from sptc.isa.metadata import MUX_OF_ARCHITECTURE
from sptc.isa.numerics import Method, Rounding, numerics, zero_exponent_for
from sptc.rtl.config import CUTS, PRESET_OF_ARCHITECTURE, PRESETS, ConfigError, CoreConfig, Element
from sptc.rtl.metadata import NibbleDecoder

CASES = [(arch, i) for i in every_instruction() for arch in i.architectures]


def config(*formats: str, **fields: Any) -> CoreConfig:
    return CoreConfig(**{"name": "test", "formats": formats or ("f16",), **fields})


def test_accepted_configurations() -> None:
    assert config("f16", "e4m3", "s8").mux == "mux4"
    assert config("e2m1/4", scales=("ue4m3",)).scales == ("ue4m3",)
    assert config("e4m3", scales=("ue8m0",)).scales == ("ue8m0",)
    assert config(step_bytes=4, rows=1, columns=1).slots == 2
    # Without block scales, a step may have more than four groups of 4-bit elements, that is, more than 32 bytes.
    assert [config("s4", step_bytes=value).slots for value in (40, 64)] == [80, 128]
    for word, least in (("f16", 20), ("tf32", 20), ("bf16", 14), ("e4m3", 8), ("e2m1", 8), ("e5m2", 8), ("s8", 8)):
        assert config(word, alignment_bits=least, fp8_alignment_bits=8).alignment_bits == least
    # Without packed e2m1, block_alignment_bits is not used, and may be below alignment_bits.
    assert config("f16", block_alignment_bits=24).block_alignment_bits == 24
    for cuts in ((), ("select",), ("align", "round"), CUTS):
        assert config(cuts=cuts).latency == len(cuts)


#: Invalid fields of a configuration, each with a regular expression for the beginning of the error message.
REFUSED: list[tuple[dict[str, Any], str]] = [
    *(({name: value}, f"{name} must be an integer from 1 to 256, not {re.escape(repr(value))}$")
      for name in ("rows", "columns", "step_bytes") for value in (0, -4, "4", 4.0, None)),
    *(({"step_bytes": value}, f"step_bytes must be a multiple of 4, not {value}$") for value in (1, 2, 6, 18, 33)),
    # A group has 16 elements of 4 bits, and the elements after the last whole group would be missing in the sum. A step
    # has block scales for at most four groups.
    *(({"formats": (word,), "scales": scales, "step_bytes": value},
       f"step_bytes must be a multiple of 8 .*groups of 16, not {value}$")
      for word, scales in (("e2m1/4", ("ue8m0",)), ("s4", ()), ("u4", ())) for value in (4, 12, 20)),
    *(({"formats": ("e2m1/4",), "scales": ("ue8m0",), "step_bytes": value}, f"step_bytes must be .*, not {value}$")
      for value in (40, 64)),
    *(({"formats": value}, "formats must be a tuple of at least one format, not ")
      for value in ((), [], ["f16"], "f16", None, {"f16"})),
    *(({"formats": value}, "formats") for value in ((1,), (None,), (("f16",),), (b"f16",))),
    *(({"formats": ("f16", word)}, f"formats: {re.escape(repr(word))} is not the name of an element format$")
      for word in ("f64", "", "F16", "f32", "s32", "ue8m0", "ue4m3", "/4", " f16")),
    *(({"formats": (word,)}, f"formats: the container width in {word!r} is invalid for {word.partition('/')[0]}$")
      for word in ("f16/8", "e2m1/16", "e2m1/2", "s8/4", "e4m3/x", "e4m3/-8", "bf16/32", "f16/16/16", "tf32/19",
                   "e3m2/6", "e2m3/6")),
    *(({"formats": words}, r"formats must be a tuple without repetitions, not \(")
      for words in (("f16", "f16"), ("s8", "f16", "s8"), ("f16", "f16/16"), ("e2m1/8", "e2m1"))),
    *(({"formats": ("e4m3",), "scales": value}, "scales must be ")  # no value is a tuple of scale formats
      for value in (None, 1, "ue8m0", ["ue8m0"], {"ue8m0"})),
    ({"formats": ("e4m3",), "scales": ("ue8m1",)}, r"scales must be among ue8m0, ue4m3, not \('ue8m1',\)$"),
    ({"formats": ("e4m3",), "scales": ("ue8m0", "ue8m0")}, r"scales must be a tuple without repetitions, not \("),
    *(({"formats": words, "scales": ("ue8m0",)},
       "scales must be empty without a format that is block-scaled .*'ue8m0'")
      for words in (("f16",), ("s8", "u8"), ("bf16", "tf32", "s4"))),
    *(({"formats": words}, r"scales must be given for packed e2m1, .*, not \(\)$")
      for words in (("e2m1/4",), ("f16", "e4m3", "e2m1/4"))),
    *(({"formats": ("e4m3", "e2m1"), "scales": scales},
       r"scales must be without 'ue4m3' unless formats include e2m1/4, not \(")
      for scales in (("ue4m3",), ("ue8m0", "ue4m3"))),
    *(({name: value}, f"{name} must be an integer from 8 to 40, not {re.escape(repr(value))}$")
      for name in ("alignment_bits", "fp8_alignment_bits", "block_alignment_bits")
      for value in (7, 41, -1, 25.0, "25", None)),
    *(({"formats": (word,), "alignment_bits": least - 1, "fp8_alignment_bits": 8},
       f"alignment_bits must be at least {least}, .*, not {least - 1}$")
      for word, least in (("f16", 20), ("tf32", 20), ("bf16", 14))),
    ({"formats": ("f16", "e4m3"), "alignment_bits": 25, "fp8_alignment_bits": 26},
     "fp8_alignment_bits must be at most alignment_bits .25., not 26$"),
    ({"formats": ("f16", "e2m1/4"), "scales": ("ue8m0",), "block_alignment_bits": 24},
     "block_alignment_bits must be at least alignment_bits .25., not 24$"),
    *(({"mux": value}, f"mux must be 'mux4' or 'mux3', not {value!r}$") for value in ("mux2", "", None, "MUX4", 4)),
    *(({"cuts": value}, r"cuts must be a subset of \('select', .*\) in that order, not ")
      for value in (("round", "select"), ("multiply", "multiply"), ("decode",), ("select", "decode"), "select",
                    ["select"], [], "", None, 1)),
]  # fmt: skip


def test_rejected_configurations() -> None:
    for fields, message in REFUSED:
        with pytest.raises(ConfigError) as caught:
            pytest.fail(f"{fields} are accepted: {config(**fields)}")
        assert re.match(message, str(caught.value)), fields


@pytest.mark.parametrize(
    ("words", "container", "low_bit", "significand", "fixed_point"),
    [
        (("f16",), 16, 0, 11, False), (("bf16",), 16, 0, 8, False), (("tf32",), 32, 13, 11, False),
        (("e4m3", "e2m3"), 8, 0, 4, False), (("e5m2", "e3m2"), 8, 0, 3, False), (("e2m1", "e2m1/8"), 8, 2, 2, False),
        (("e2m1/4", "s4", "u4", "u4/4"), 4, 0, 4, True), (("s8", "u8"), 8, 0, 8, True),
    ],
    ids=str,
)  # fmt: skip
def test_an_element(words: tuple[str, ...], container: int, low_bit: int, significand: int, fixed_point: bool) -> None:
    for word in words:
        element = Element.parse(word)
        assert element.format is FORMATS[word.partition("/")[0]]
        result = (element.container_bits, element.low_bit, element.significand_bits, element.fixed_point)
        assert result == (container, low_bit, significand, fixed_point), word
        assert element.packed_float == (word == "e2m1/4")
        assert str(element) == {"e2m1/8": "e2m1", "u4/4": "u4"}.get(word, word)


def test_an_element_lies_where_the_instruction_has_it() -> None:
    for instruction in {(i.a, i.kind): i for i in every_instruction()}.values():
        word = f"{instruction.a.name}/4" if instruction.container_bits == 4 else instruction.a.name
        element = Element.parse(word)
        assert element == Element(instruction.a, instruction.container_bits), instruction
        assert element.low_bit == instruction.low_bit(instruction.a), instruction


def test_codes_are_positions_in_the_list_of_formats() -> None:
    made = config("f16", "e2m1", "e2m1/4", "s4", scales=("ue8m0",))
    assert [made.element_code(e.format, e.container_bits) for e in made.elements] == [0, 1, 2, 3]
    assert made.element_code(FORMATS["e2m1"], 8) == 1
    assert made.element_code(FORMATS["e2m1"], 4) == 2
    with pytest.raises(ConfigError, match=r"^formats of test \(f16, e2m1, e2m1/4, s4\) do not include bf16$"):
        made.element_code(FORMATS["bf16"], 16)
    with pytest.raises(ConfigError, match=r"^formats of test \(f16\) do not include e2m1/4$"):
        config().element_code(FORMATS["e2m1"], 4)


def test_instructions_that_a_configuration_supports() -> None:
    text = "mma.sp::ordered_metadata.sync.aligned.m16n8k{}.row.col.kind::{}"
    mixed = parse(text.format(64, "f8f6f4.f32.e4m3.e2m1.f32"))
    scaled = parse(text.format(64, "mxf8f6f4.block_scale.f32.e4m3.e2m1.f32.ue8m0"))
    packed = parse(text.format(128, "mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"))
    assert config("e4m3", "e2m1").holds(mixed)
    assert not config("e4m3", "e5m2").holds(mixed)
    assert not config("e4m3", "e2m1/4", scales=("ue8m0",)).holds(mixed)
    assert not config("e4m3", "e2m1").holds(scaled)
    assert config("e4m3", "e2m1", scales=("ue8m0",)).holds(scaled)
    assert config("e2m1/4", scales=("ue4m3",)).holds(packed)
    assert not config("e2m1/4", scales=("ue8m0",)).holds(packed)
    assert not config("e2m1", scales=("ue8m0",)).holds(packed)


@pytest.mark.parametrize("arch", PRESET_OF_ARCHITECTURE)
def test_a_preset_computes_as_its_architecture(arch: str) -> None:
    made = PRESETS[PRESET_OF_ARCHITECTURE[arch]]
    assert made.mux == MUX_OF_ARCHITECTURE[arch]
    native = 0
    for instruction in (i for a, i in CASES if a == arch):
        rules = numerics(instruction, arch)
        if rules.method is Method.EMULATED or not made.holds(instruction):
            # The assembler emulates fp8 by f16 and, from sm_90 on, 4-bit integers by 8-bit integers.
            assert made.step_bytes == 32
            assert instruction.family == "mma"
            assert instruction.a.name in ("e4m3", "e5m2", "s4", "u4"), instruction
            continue
        native += 1
        assert made.step_bytes * 8 / instruction.container_bits == rules.step, instruction
        if rules.method is Method.INTEGER:
            continue
        grouped, half = rules.method is Method.GROUPED, instruction.d.name == "f16"
        of_datapath = made.block_alignment_bits if grouped else made.alignment_bits
        kept = made.fp8_alignment_bits if instruction.container_bits == 8 and not grouped else of_datapath
        assert kept == rules.alignment_bits, instruction
        floor = zero_exponent_for(of_datapath, half_result=half, grouped=grouped)
        assert floor == rules.zero_exponent, instruction
        assert (rules.rounding is Rounding.RZ_E8M13) == (kept < made.alignment_bits and not half), instruction
    assert native >= 80


def test_presets_carry_their_names_and_use_every_format() -> None:
    assert list(PRESETS) == [made.name for made in PRESETS.values()]
    assert set(PRESET_OF_ARCHITECTURE.values()) | {"tiny"} == set(PRESETS)
    used: dict[str, set[Element]] = {name: set() for name in PRESETS}
    for arch, instruction in CASES:
        for fmt in (instruction.a, instruction.b):
            used[PRESET_OF_ARCHITECTURE[arch]].add(Element(fmt, instruction.container_bits))
    for name in set(PRESETS) - {"tiny", "blackwell"}:
        assert set(PRESETS[name].elements) <= used[name], name
    # On sm_100, mma uses few formats of the datapath, and tcgen05 uses all formats. The datapath equals that of sm_120.
    assert PRESETS["blackwell"] == dataclasses.replace(PRESETS["rtx-blackwell"], name="blackwell")


@pytest.mark.filterwarnings("ignore:.*created but never used")
def test_an_unknown_mux() -> None:
    with pytest.raises(ValueError, match=r"^mux must be 'mux4' or 'mux3', not 'mux2'$"):
        NibbleDecoder("mux2")
    gc.collect()  # Free the unused component here, where Amaranth's warning about unused components is off.
