"""Valid files of every kind that commands read, functions that damage them, and malicious files."""

import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors.numpy import save
from sptc.isa.names import subject_named
from sptc.rtl.config import PRESETS
from sptc.sim.coverage.groups import Coverage
from sptc.tests.hostile.mutation import mutated_bytes, mutated_text
from sptc.verify.conformance import choose_pack, write_pack
from sptc.verify.register_file import read, shipped, write

__all__ = ["good_files", "spoiled", "traps"]

Random = np.random.Generator


class Trap:
    """Pickled object that creates a file when it is loaded. The test fails if this file exists."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, (str(self.mark),)


def good_files(folder: Path, rng: Random, liberty: Path, tensor_memory_file: Callable[..., object]) -> dict[str, bytes]:
    """Return valid files by name. For each file, there is a command that reads it."""
    for family, name in (("mma.sp", "mma.npz"), ("wgmma", "wgmma.npz")):
        write(folder / name, next(read(path) for path in shipped() if path.name.startswith(family)))
    mma = subject_named("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")
    pack = choose_pack(mma, "sm_90", 0)
    write_pack(folder / "pack.npz", pack)
    assert pack.file.d is not None
    (folder / "results.hex").write_text("\n".join(f"{word:08x}" for word in pack.file.d.ravel()))
    write(folder / "tcgen05.npz", tensor_memory_file("tcgen05.mma.sp.cta_group::1.kind::f16", rng, 1))
    values = rng.standard_normal((16, 32)).astype(np.float32)
    values.reshape(16, 8, 4)[..., 2:] = 0
    np.save(folder / "matrix.npy", values)
    np.save(folder / "transpose.npy", values.T)
    np.save(folder / "product.npy", values @ values.T)
    np.savez(folder / "matrices.npz", a=values, b=values.T)
    (folder / "matrix.safetensors").write_bytes(save({"weight": values, "bias": values[0]}))
    Coverage().write(folder / "coverage.json")
    fields = {"name": "mine", "formats": ["s8"], "rows": 1, "columns": 1, "step_bytes": 4, "cuts": ["multiply"]}
    (folder / "config.json").write_text(json.dumps(fields))
    (folder / "cells.lib").write_bytes(liberty.read_bytes())
    way = {"instruction": "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "split_k": [1, 1], "swapped": False}
    (folder / "way.json").write_text(json.dumps({"exact": True, "way": way}))
    assert "tiny" in PRESETS
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def spoiled(name: str, content: bytes, rng: Random) -> bytes:
    """Return the damaged content of a file. Checksums are corrected in some cases."""
    draw = rng.random()
    if name.endswith(".npz") and draw < 0.7:
        return _spoiled_archive(content, rng)
    if name.endswith((".json", ".lib", ".hex")) and draw < 0.7:
        return mutated_text(content.decode(), rng).encode("utf-8", "surrogatepass")
    return mutated_bytes(content, rng)


def _spoiled_archive(content: bytes, rng: Random) -> bytes:
    """Return an archive in which one array is exchanged, damaged, missing, duplicated, or stored under another name."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    names = sorted(members)
    one, other = (names[int(rng.integers(len(names)))] for _ in range(2))
    match int(rng.integers(6)):
        case 0:
            members[one] = members[other]
        case 1:
            del members[one]
        case 2:
            # zipfile truncates a name at its first NUL, and cannot write an empty name.
            name = mutated_text(one, rng).encode("ascii", "replace").decode().partition("\0")[0]
            members[name or "?"] = members[one]
        case 3:
            members[one] = _array(rng)
        case _:
            # The first bytes are the header, where small changes have large effects.
            cut = 128 if rng.random() < 0.5 else len(members[one])
            members[one] = mutated_bytes(members[one][:cut], rng) + members[one][cut:]
    stored = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if rng.random() < 0.5 else zipfile.ZIP_STORED
    with zipfile.ZipFile(stored, "w", method) as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return stored.getvalue()


def _array(rng: Random) -> bytes:
    shape = tuple(rng.integers(0, 5, int(rng.integers(4))).tolist())
    dtype = str(rng.choice(["?", "<u4", ">u4", "<f8", "<c16", "<U5", "|S3", "<M8[s]", "|V7", "<u8", "<i8"]))
    stored = io.BytesIO()
    np.save(stored, np.zeros(shape, dtype))
    return stored.getvalue()


def traps(folder: Path, mark: Path) -> list[Path]:
    """Write files whose pickle creates the file `mark` when it is loaded."""
    trap = np.array([Trap(mark)], dtype=object)
    np.save(folder / "trap.npy", trap, allow_pickle=True)
    np.savez(folder / "trap.npz", instruction=trap, A=trap, selector=trap)
    (folder / "trap.pt").write_bytes(pickle.dumps(Trap(mark)))
    (folder / "trap.safetensors").write_bytes(pickle.dumps(Trap(mark)))
    (folder / "trap.json").write_bytes(pickle.dumps(Trap(mark)))
    return sorted(folder.iterdir())
