"""``sptc.save`` and ``sptc.load`` have one file format for all instructions. Commands read the file, too."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sptc
from sptc.errors import FileError, InstructionError, OperandError
from sptc.gemm.sources import Source, read_factor
from sptc.gemm.tile_file import tile_instruction
from sptc.isa.names import subject_named
from sptc.tensors.compressed import Compressed
from sptc.verify.register_file import RegisterFile, read, write

Random = np.random.Generator
F16 = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
DENSE = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"
ONE_CTA = "tcgen05.mma.sp.cta_group::1.kind::f16 (m128n16k32.f32.f16.f16)"
TWO_CTAS = "tcgen05.mma.sp.cta_group::2.kind::f16 (m256n32k32.f32.f16.f16)"
NVFP4 = "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4nvf4.block_scale.scale_vec::2X"
NVFP4 += ".f32.e2m1.e2m1.f32.ue8m0"


def tile_of(text: str, rng: Random, lead: tuple[int, ...] = (), **options: Any) -> dict[str, Any]:
    """Return the packed operands of a tile, or of a batch of A with one B."""
    i = subject_named(text).instruction
    a = rng.integers(-4, 5, (*lead, i.m, i.k)).astype(np.float16)
    if i.sparse:
        a[..., np.arange(i.k) % 4 > 1] = 0
    b = rng.integers(-4, 5, (i.k, i.n)).astype(np.float16)
    if text == NVFP4:
        scales = [rng.integers(120, 130, (lines, 2)).astype(np.uint8) for lines in (i.m, i.n)]
        options |= {"scale_a": (scales[0], 2, 1), "scale_b": (scales[1], 0, 3)}
    return sptc.pack(text, a, b, **options)


def compute(tile: dict[str, Any]) -> np.ndarray:
    text = tile["instruction"]
    if text == NVFP4:
        tile = {**tile, "arch": "sm_120"}
    return {"mm": sptc.mma, "wg": sptc.wgmma, "tc": sptc.tcgen05_mma}[text[:2]](**tile)


def assert_same(one: Any, other: Any) -> None:
    assert one.keys() == other.keys()
    for key, value in one.items():
        for left, right in zip(*((x if isinstance(x, tuple) else (x,)) for x in (value, other[key])), strict=True):
            np.testing.assert_array_equal(left, right, key)


@pytest.mark.parametrize("lead", [(), (2, 3)])
@pytest.mark.parametrize("text", [F16, DENSE, WGMMA, ONE_CTA, TWO_CTAS, NVFP4])
def test_what_pack_returns_comes_back_and_is_a_register_file(
    text: str, lead: tuple[int, ...], tmp_path: Path, rng: Random
) -> None:
    if text in (ONE_CTA, TWO_CTAS) and lead:
        lead = (2,)
    tile, path = tile_of(text, rng, lead), tmp_path / "tile.npz"
    d = compute(tile)
    sptc.save(path, **tile, D=d)
    again = sptc.load(path)
    np.testing.assert_array_equal(again.pop("D"), d)
    assert_same(again, tile)
    np.testing.assert_array_equal(compute(again), d)
    if text != NVFP4:  # numpy cannot save a tuple of an array and two numbers
        np.savez(path, **tile, D=d)
        assert_same({key: value for key, value in sptc.load(path).items() if key != "D"}, tile)
    file = read(path)
    assert file.cases == int(np.prod(lead))
    assert file.d is not None
    np.testing.assert_array_equal(file.run(), file.d)
    assert file.arch == {"mm": "sm_90", "wg": "sm_90", "tc": "sm_100"}[text[:2]] or text == NVFP4
    write(path, file)
    whole = sptc.load(path)
    result = whole.pop("D")
    for key in ("arch", "metadata", "enable_input_d", "scale_input_d"):
        whole.pop(key, None)
    np.testing.assert_array_equal(compute(whole).ravel(), result.ravel())


def test_keys_in_either_case_and_no_case_axis(tmp_path: Path, rng: Random) -> None:
    tile, path = tile_of(F16, rng), tmp_path / "tile.npz"
    d = sptc.mma(**tile)
    capitals = {key.upper() if len(key) == 1 else key: value for key, value in tile.items()}
    for contents in ({**tile, "d": d}, {**capitals, "D": d}, {**tile, "D": d}):
        np.savez(path, **contents)
        file = read(path)
        assert (file.cases, file.d is not None) == (1, True)
        np.testing.assert_array_equal(file.run(), d[None])
        again = sptc.load(path)
        np.testing.assert_array_equal(again.pop("D"), d)
        assert_same(again, tile)
    np.savez(path, **tile, A=tile["a"])
    for use in (read, sptc.load, lambda path: sptc.save(path, **tile, A=tile["a"])):
        with pytest.raises(sptc.Error, match=r"(a and A|A and a) are names of the same operand, but both are present"):
            use(path)
    np.savez(path, **{**tile, "c": np.stack([tile["c"]] * 2), "e": np.stack([tile["e"]] * 3)})
    with pytest.raises(FileError, match=r"tile\.npz: the batch axes of the operands do not broadcast: "):
        read(path)


def test_settings_and_shared_memory(tmp_path: Path, rng: Random) -> None:
    path = tmp_path / "tile.npz"
    tile = tile_of(WGMMA, rng, a_from="shared") | {"scale_d": False, "imm_scale_b": -1, "metadata": "silicon"}
    sptc.save(path, **tile | {"a": np.uint64(tile["a"])}, D=compute(tile))
    file = read(path)
    assert isinstance(file, RegisterFile)
    assert (file.scale_d, file.imm_scale, file.metadata, file.a) == (False, (1, -1), "silicon", None)
    np.testing.assert_array_equal(file.run(), file.d)
    again = sptc.load(path)
    d = again.pop("D")
    np.testing.assert_array_equal(compute(again), d)
    for settings in ({"disable_output_lane": (1, 0, 5, 0), "enable_input_d": False}, {"scale_input_d": 1}):
        tile = tile_of(ONE_CTA, rng, c=rng.standard_normal((128, 16)).astype(np.float32)) | settings
        sptc.save(path, **tile)
        assert_same(sptc.load(path), tile)
        np.testing.assert_array_equal(read(path).run()[0], sptc.tcgen05_mma(**tile))


def test_register_files_of_other_programs(tmp_path: Path, rng: Random) -> None:
    """A register file may have a selector for a dense instruction, and store flags as 0 and 1."""
    path, dense = tmp_path / "tile.npz", WGMMA.replace(".sp", "").replace("k32", "k16")
    tile = tile_of(dense, rng)
    operands = {"A": tile["a"][None], "B": tile["smem"].view(np.uint32)[None], "C": tile["d"][None]}
    np.savez(path, instruction=dense, selector=0, **operands, b_descriptor=np.uint64(tile["b"]), scale_d=0)
    np.testing.assert_array_equal(compute(sptc.load(path)), compute(tile | {"scale_d": False})[None])
    for text, flag in ((dense, "scale_d"), (ONE_CTA, "enable_input_d")):
        tile = tile_of(text, rng)
        np.savez(path, **tile, **{flag: 0})
        np.testing.assert_array_equal(compute(sptc.load(path)), compute(tile | {flag: False}))


def test_a_product_of_the_matrices_of_a_tile(tmp_path: Path, rng: Random) -> None:
    tile, path = tile_of(F16, rng), tmp_path / "tile.npz"
    sptc.save(path, **tile, D=sptc.mma(**tile))
    a, b, y = (read_factor(path, option=f"--{name}-tensor") for name in "aby")
    assert isinstance(a, Compressed)
    np.testing.assert_array_equal(sptc.gemm(a, b, instruction=F16), y)
    np.testing.assert_array_equal(read_factor(path, "B"), b)
    assert Source(str(path), option="--a-tensor").read().compressed.shape == (16, 32)
    assert tile_instruction(path) == (subject_named(F16), None)
    message = r"holds the operands of an instruction: a name must select a, b, c or y"
    with pytest.raises(FileError, match=message):
        read_factor(path)
    sptc.save(path, **tile_of(F16, rng, (2,)))
    for tensor, message in (("a", "holds 2 matrices 'a' instead of one"), ("y", "holds no result registers")):
        with pytest.raises(FileError, match=message):
            read_factor(path, tensor)
    sptc.save(path, **tile_of(NVFP4, rng))
    with pytest.raises(FileError, match="has block scales, which only commands for one instruction accept"):
        read_factor(path, "a")
    of_one_cta = {name: value for name, value in tile_of(ONE_CTA, rng).items() if name != "idesc"}
    for words, message in (
        ({**tile, "arch": "sm_1"}, "arch in .* must be a known architecture, not 'sm_1'"),
        (of_one_cta, "must have the key idesc, the instruction descriptor, as one integer"),
    ):
        sptc.save(path, **words)
        with pytest.raises(FileError, match=message):
            tile_instruction(path)


def test_what_cannot_be_saved_or_loaded(tmp_path: Path, rng: Random) -> None:
    tile, path = tile_of(F16, rng), tmp_path / "tile.npz"
    for words, error, message in (
        ({**tile, "selecter": 1}, OperandError, r"^'selecter' is no argument of mma; did you mean selector\?$"),
        ({**tile, "a": tile["a"].astype(object)}, OperandError, r"^a must be an array of numbers, not array"),
        ({**tile, "selector": object()}, OperandError, r"^selector must be a number .* or a string, not <object"),
        ({**tile_of(NVFP4, rng), "scale_a": tile["e"]}, OperandError, r"^scale_a must be a tuple \(registers, byte id"),
        ({**tile, "e": np.stack([tile["e"]] * 2), "c": tile["c"][None].repeat(3, 0)}, OperandError, "do not broadcast"),
        ({**tile, "instruction": "mma.what"}, InstructionError, "mma"),
    ):
        with pytest.raises(error, match=message):
            sptc.save(path, **words)
        assert not path.exists()
    with pytest.raises(FileError, match=r"tile\.npy must end in \.npz$"):
        sptc.save(tmp_path / "tile.npy", **tile)
    np.savez(path, a=tile["a"])
    with pytest.raises(FileError, match=r"tile\.npz does not name the instruction of its operands$"):
        sptc.load(path)
    np.savez(path, instruction=WGMMA, A=tile["a"])
    with pytest.raises(FileError, match=r"tile\.npz does not hold valid operands of wgmma \('B'\)$"):
        sptc.load(path)
    with pytest.raises(FileError, match=r"cannot be read|not a readable"):
        sptc.load(tmp_path / "none.npz")


def junk(rng: Random) -> np.ndarray:
    """Return a small random array, which is rarely a valid operand."""
    shape = tuple(rng.integers(0, 5, rng.integers(0, 5)).tolist())
    return rng.integers(0, 9, shape).astype(rng.choice(["u1", "u4", "i8", "f4", "U3", "b1", "c8"]))


def test_whatever_a_file_holds_is_taken_or_refused(tmp_path: Path, rng: Random) -> None:
    path = tmp_path / "tile.npz"
    others = ["A", "D", "d", "scale_a", "scale_ids", "imm_scale_a", "smem", "selector", "E"]
    tiles = [tile_of(F16, rng), tile_of(WGMMA, rng), tile_of(WGMMA, rng, a_from="shared"), tile_of(ONE_CTA, rng)]
    refused = []
    for number in range(100):
        contents = dict(tiles[number % len(tiles)])
        for _ in range(rng.integers(1, 3)):
            key = str(rng.choice([*contents, *others]))
            if rng.integers(4) and key != "instruction":
                contents[key] = junk(rng)
            else:
                contents.pop(key, None)
        np.savez(path, **contents)
        for use in (sptc.load, lambda path: read(path).run(), lambda path: read_factor(path, "a")):
            try:
                use(path)
            except sptc.Error as error:
                refused.append(str(error))
    assert 100 < len(refused) < 300
    assert not [message for message in refused if "\n" in message]
