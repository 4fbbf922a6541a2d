"""Register files (files on disk): one instruction, a batch of operands and, if known, the result, stored as ``.npz``.

Register files of ``tcgen05`` hold tensor memory: see :mod:`sptc.verify.tensor_memory_file`. All others have the keys:

``instruction`` (0-d string), ``selector`` (0-d int), ``A``, ``B``, ``C`` (uint32 [case, thread, register]); ``E``
(uint32 [case, thread]) for a sparse instruction; ``D`` if the result is known; optionally ``arch``, ``metadata``,
``scale_a``, ``scale_b`` (uint32 [case, 32]) with ``scale_ids`` = [byte_a, thread_a, byte_b, thread_b]. For ``wgmma``,
``B`` is the shared-memory image (uint32 [case, word]), addressed by ``b_descriptor`` (uint64, 0-d or [case]) and by
``a_descriptor``, which may replace ``A``; optionally ``scale_d`` (0-d, 0 or 1), ``imm_scale`` and ``imm_trans`` (two
integers each, for A and B). Recordings add ``recorded`` (GPU, software and date). Recordings that ship with the package
add ``distribution`` (one word for each case, comma-separated).

Arrays may also have the names of the arguments of :func:`sptc.mma`, :func:`sptc.wgmma` and :func:`sptc.tcgen05_mma`,
and any batch axes or none: see :func:`sptc.operands.tile_arrays.register_keys`.

After a recording was added, run ``python -m sptc.verify.register_file`` to rewrite ``recordings/manifest.json``, the
manifest of the recordings that ship with the package.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import resources
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api.backends import Backend
from ..api.warp import mma
from ..api.warpgroup import wgmma
from ..errors import FileError, MetadataError, OperandError
from ..infra.files import write_whole
from ..isa.architectures import same_numerics, target_named
from ..isa.fragments import accumulator_fragment
from ..isa.instructions import Instruction, parse
from ..isa.memory import SharedMap, decode_descriptor, operand_map
from ..isa.operands import Immediates
from ..operands.registers import from_registers
from ..operands.tile_arrays import register_keys
from . import tensor_memory_file
from .archive import Archive, Replayable, load

__all__ = ["DESCRIPTORS", "RegisterFile", "interpret", "manifest", "read", "shipped", "write"]

Registers = NDArray[np.uint32]
_DEFAULT_ARCH = "sm_90"


@dataclass(frozen=True, eq=False, kw_only=True)
class RegisterFile(Replayable):
    """Contents of a register file of ``mma`` or ``wgmma``; the docstring of the module explains the fields."""

    case_fields = ("c", "a", "b", "d", "e", "scale_a", "scale_b", "a_descriptor", "b_descriptor")

    instruction: Instruction
    sparsity_selector: int  #: Sparsity selector; 0 for a dense instruction
    #: Registers with A, B and C; the first axis is the tile. For ``wgmma``, `b` is the image of shared memory, and `a`
    #: is None if A is in shared memory.
    a: Registers | None = None
    b: Registers
    c: Registers
    e: Registers | None = None  #: Metadata registers, shape (cases, threads)
    d: Registers | None = None  #: Result registers; None if the result is unknown
    arch: str = _DEFAULT_ARCH
    target: str = ""
    metadata: str = "strict"  #: Policy for undefined metadata nibbles, as in :func:`sptc.mma`
    #: Registers with the block scales, shape (cases, 32).
    scale_a: Registers | None = None
    scale_b: Registers | None = None
    #: Byte ids and thread ids of the block scales, in the order byte_a, thread_a, byte_b, thread_b.
    scale_ids: tuple[int, int, int, int] = (0, 0, 0, 0)
    #: Shared-memory descriptors of A and B for ``wgmma``, shape (cases,).
    a_descriptor: NDArray[np.uint64] | None = None
    b_descriptor: NDArray[np.uint64] | None = None
    scale_d: bool = True  #: Whether ``wgmma`` adds the accumulator
    #: Immediates of ``wgmma`` for A and for B, as in :func:`sptc.wgmma`: sign, 1 or -1, and transposition, 0 or 1.
    imm_scale: tuple[int, int] = (1, 1)
    imm_trans: tuple[int, int] = (0, 0)
    recorded: str = ""  #: GPU, software and date of the recording of D; empty if D was not recorded

    @property
    def a_from(self) -> str | None:
        """Location of A of a ``wgmma``, ``"registers"`` or ``"shared"``; None for ``mma``."""
        if self.instruction.family != "wgmma":
            return None
        return "registers" if self.a_descriptor is None else "shared"

    @property
    def before(self) -> Registers:
        """Accumulator registers C before the instruction."""
        return self.c

    @property
    def operands(self) -> dict[str, Registers]:
        """Contents of registers and, for ``wgmma``, of shared memory, by operand."""
        names = ("a", "b", "c", "e", "scale_a", "scale_b")
        return {name: array for name in names if (array := getattr(self, name)) is not None}

    @property
    def immediates(self) -> Immediates:
        """Immediate operands of the instruction."""
        return Immediates(
            sparsity_selector=self.sparsity_selector,
            scale_ids=self.scale_ids,
            a_in_registers=self.a is not None,
            scale_d=self.scale_d,
            imm_scale=self.imm_scale,
            imm_trans=self.imm_trans,
        )

    @property
    def shared_maps(self) -> dict[str, SharedMap]:
        """Placement in shared memory of each operand that has a descriptor, by operand name, for the first tile."""
        maps = {}
        for name, descriptors, transposed in zip(
            "ab", (self.a_descriptor, self.b_descriptor), self.imm_trans, strict=True
        ):
            if descriptors is not None:
                descriptor = decode_descriptor(int(descriptors[0]))
                maps[name] = operand_map(self.instruction, name, descriptor, transposed=bool(transposed))
        return maps

    def run(self, backend: str | Backend = "golden") -> Registers:
        """Compute D of all cases (recorded executions) on a back end."""
        if self.instruction.family == "wgmma":
            return self._run_wgmma(backend)
        assert self.a is not None
        byte_a, thread_a, byte_b, thread_b = self.scale_ids
        return mma(
            str(self.instruction),
            self.a,
            self.b,
            self.c,
            self.e,
            self.sparsity_selector,
            scale_a=None if self.scale_a is None else (self.scale_a, byte_a, thread_a),
            scale_b=None if self.scale_b is None else (self.scale_b, byte_b, thread_b),
            arch=self.arch,
            backend=backend,
            metadata=self.metadata,
        )

    def _run_wgmma(self, backend: str | Backend) -> Registers:
        """Compute D of ``wgmma``; operands with equal descriptors are computed in one call."""
        assert self.b_descriptor is not None
        pairs = np.stack([self.b_descriptor if x is None else x for x in (self.a_descriptor, self.b_descriptor)], 1)
        distinct, indices = np.unique(pairs, axis=0, return_inverse=True)
        d = np.empty_like(self.c)
        for index, (a_descriptor, b_descriptor) in enumerate(distinct.tolist()):
            cases = np.flatnonzero(indices.reshape(-1) == index)
            part = self.take(cases)
            try:
                d[cases] = wgmma(
                    str(part.instruction),
                    part.c,
                    a_descriptor if part.a is None else part.a,
                    b_descriptor,
                    part.e,
                    part.sparsity_selector if part.instruction.sparse else None,
                    smem=np.ascontiguousarray(part.b).view(np.uint8),
                    scale_d=part.scale_d,
                    imm_scale_a=part.imm_scale[0],
                    imm_scale_b=part.imm_scale[1],
                    imm_trans_a=part.imm_trans[0],
                    imm_trans_b=part.imm_trans[1],
                    backend=backend,
                    metadata=part.metadata,
                )
            except MetadataError as error:
                raise error.at((int(cases[error.batch[0]]),)) from None
        return d

    def matrix(self, result: Registers) -> NDArray:
        """Return the codes of D from accumulator registers, shape (cases, m, n)."""
        return from_registers(result, accumulator_fragment(self.instruction))

    def contents(self) -> dict[str, Any]:
        """Return all arrays, by key, to store this register file (operands and results) as an ``.npz`` archive."""
        contents: dict[str, Any] = {
            "instruction": str(self.instruction),
            "selector": self.sparsity_selector,
            "arch": self.target or self.arch,
            "metadata": self.metadata,
        }
        contents |= {key: value for key, name in _KEYS.items() if (value := getattr(self, name)) is not None}
        if self.scale_a is not None:
            contents["scale_ids"] = np.array(self.scale_ids)
        if self.recorded:
            contents["recorded"] = self.recorded
        contents |= {key: value for key in DESCRIPTORS if (value := getattr(self, key)) is not None}
        if self.instruction.family == "wgmma":
            contents |= {"scale_d": self.scale_d, "imm_scale": self.imm_scale, "imm_trans": self.imm_trans}
        return contents


#: Keys of the shared-memory descriptors of ``wgmma`` in an ``.npz`` archive.
DESCRIPTORS = ("a_descriptor", "b_descriptor")
_KEYS = {"A": "a", "B": "b", "C": "c", "D": "d", "E": "e", "scale_a": "scale_a", "scale_b": "scale_b"}


def read(path: str | Path) -> Replayable:
    """Read a register file (``.npz`` file of operands and, if known, results) of any instruction.

    Raise a `FileError` if the file is unreadable or truncated, or a key is missing; and an `InstructionError` if the
    instruction does not parse.
    """
    return interpret(load(path))


def interpret(archive: Archive) -> Replayable:
    """Return the register file that an ``.npz`` archive holds; raise the errors of :func:`read`."""
    try:
        archive = replace(archive, arrays=register_keys(archive.arrays))
    except OperandError as error:
        raise FileError(f"{archive.path}: {error}") from None
    if "instruction" in archive.arrays and archive.string("instruction", "").strip().startswith("tcgen05."):
        return tensor_memory_file.interpret(archive)
    return _interpret(archive)


def _interpret(archive: Archive) -> RegisterFile:
    contents, path = archive.arrays, archive.path
    required = ["instruction", "B", "C"]
    if "instruction" in contents:
        instruction = parse(archive.string("instruction", ""))
        required += ["selector", "E"] if instruction.sparse else []
        required += ["scale_a", "scale_b", "scale_ids"] if instruction.scale_size else []
        required += ["b_descriptor"] if instruction.family == "wgmma" else []
        by_descriptor = instruction.family == "wgmma" and "a_descriptor" in contents
        required += ["a_descriptor"] if by_descriptor else ["A"]
        if by_descriptor and "A" in contents:
            raise FileError(
                f"{path} has both keys A and a_descriptor, but A is either in registers or in shared memory"
            )
    archive.require(required)

    arrays: dict[str, Any] = {}
    for key, name in _KEYS.items():
        if key in contents and (key != "E" or instruction.sparse):
            value = contents[key]
            axes = 2 if key in ("E", "scale_a", "scale_b") or (key == "B" and instruction.family == "wgmma") else 3
            if value.dtype != np.uint32 or value.ndim != axes:
                names = "[case, thread, register]" if axes == 3 else "[case, word]" if key == "B" else "[case, thread]"
                raise FileError(
                    f"{archive.refuse(key, 'a uint32 array with a first axis of test cases')}; its axes must be {names}"
                )
            arrays[name] = value
    cases = archive.count_cases({key: len(arrays[name]) for key, name in _KEYS.items() if name in arrays})
    if "d" in arrays and arrays["d"].shape != arrays["c"].shape:
        raise FileError(f"{path}: D has shape {arrays['d'].shape}, but C has {arrays['c'].shape}")
    for key in DESCRIPTORS:
        if key in contents:
            value = contents[key]
            if value.dtype.kind not in "iu" or value.shape not in ((), (cases,)):
                raise archive.refuse(key, f"a single integer, or an array of {cases} integers (one for each case)")
            arrays[key] = np.broadcast_to(value.astype(np.uint64), (cases,))
    first_arch = instruction.architectures[0]
    default_arch = _DEFAULT_ARCH if _DEFAULT_ARCH in instruction.architectures else first_arch
    target = archive.string("arch", default_arch)
    pairs: dict[str, Any] = {
        "scale_ids": archive.integers("scale_ids", (0, 0, 0, 0)),
        "imm_scale": archive.integers("imm_scale", (1, 1)),
        "imm_trans": archive.integers("imm_trans", (0, 0)),
    }
    file = RegisterFile(
        instruction=instruction,
        sparsity_selector=archive.integer("selector", 0),
        arch=same_numerics(target),
        metadata=archive.policy(),
        scale_d=archive.flag("scale_d", True),
        recorded=archive.string("recorded", ""),
        **pairs,
        **arrays,
    )
    return file if target == file.arch else file.assuming(target, None)


def write(path: str | Path, file: Replayable, **others: NDArray | str) -> None:
    """Write a register file as ``.npz``, atomically; equal contents give equal bytes.

    `others` are further members of the archive, which :func:`read` ignores. Raise a `FileError` if the file cannot be
    written.
    """
    archive = BytesIO()
    np.savez_compressed(archive, allow_pickle=False, **file.contents(), **others)
    write_whole(Path(path), archive.getvalue())


def shipped() -> Iterator[Path]:
    """Yield the paths of the recordings that ship with the package, sorted by name."""
    with resources.as_file(resources.files("sptc") / "recordings") as folder:
        yield from sorted(folder.glob("*.npz"))


def manifest() -> str:
    """Return a JSON manifest of the recordings in the package, from which levels of evidence are derived.

    The manifest is JSON with one line per file: its instruction, by architecture and location of A.
    """
    architectures: dict[str, dict[str, dict[str, str]]] = {}
    for path in shipped():
        file = read(path)
        is_evidence = target_named(file.target or file.arch).same_chip
        if isinstance(file, RegisterFile) and file.d is not None and file.recorded and is_evidence:
            places = architectures.setdefault(file.arch, {"registers": {}, "shared": {}})
            places[file.a_from or "registers"][path.name] = str(file.instruction)
    return json.dumps(architectures, indent=0, sort_keys=True) + "\n"


if __name__ == "__main__":
    write_whole(Path(__file__).parents[1] / "recordings" / "manifest.json", manifest().encode())
