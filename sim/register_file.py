"""Register files: one instruction, a batch of operands and, where known, the result, in an ``.npz``.

Keys: ``instruction`` (0-d string), ``selector`` (0-d int), ``A``, ``B``, ``C`` (uint32 [case, thread, register]), ``E``
(uint32 [case, thread]) for a sparse instruction, ``D`` if the result is known; optionally ``arch``, ``metadata``,
``scale_a``, ``scale_b`` (uint32 [case, 32]) with ``scale_ids`` = [byte_a, thread_a, byte_b, thread_b]. For ``wgmma``,
``B`` is the shared-memory image (uint32 [case, word]) and ``b_descriptor`` (uint64, 0-d or [case]) points into it, as
does ``a_descriptor`` where it stands instead of ``A``; optionally ``scale_d`` (0-d, 0 or 1), ``imm_scale`` and
``imm_trans`` (two integers each, of A and of B). Shipped recordings add ``recorded`` (where and when) and
``distribution`` (one word a case, comma-separated).
"""

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import FileError, MetadataError
from ..isa.instructions import Instruction, parse
from ..operands import METADATA_POLICIES
from ..operations import mma
from ..warpgroup import wgmma

__all__ = ["RegisterFile", "read", "shipped", "write"]

Registers = NDArray[np.uint32]
_DEFAULT_ARCH = "sm_90"
_ARRAY_MAGIC = b"\x93NUMPY"


@dataclass(frozen=True, eq=False, kw_only=True)
class RegisterFile:
    """Contents of a register file; see the module for the meaning of the fields.

    Attributes
    ----------
    instruction : Instruction
        What ran.
    selector : int
        Sparsity selector; 0 for a dense instruction.
    a, b, c : ndarray of uint32
        Operands, one leading case axis; `a` is None where a descriptor leads to A.
    e : ndarray of uint32, shape (cases, threads), or None
        Metadata.
    d : ndarray of uint32 or None
        Known result.
    arch : str
        Architecture.
    metadata : str
        Policy for undefined nibbles, as in :func:`sptc.mma`.
    scale_a, scale_b : ndarray of uint32, shape (cases, 32), or None
        Block scale data.
    scale_ids : tuple of int
        byte_a, thread_a, byte_b, thread_b.
    a_descriptor, b_descriptor : ndarray of uint64, shape (cases,), or None
        Shared-memory descriptors of A and B for ``wgmma``.
    scale_d : bool
        Whether ``wgmma`` adds D.
    imm_scale, imm_trans : tuple of int
        Of A and B, as in :func:`sptc.wgmma`.
    """

    instruction: Instruction
    selector: int
    a: Registers | None = None
    b: Registers
    c: Registers
    e: Registers | None = None
    d: Registers | None = None
    arch: str = _DEFAULT_ARCH
    metadata: str = "strict"
    scale_a: Registers | None = None
    scale_b: Registers | None = None
    scale_ids: tuple[int, int, int, int] = field(default=(0, 0, 0, 0))
    a_descriptor: NDArray[np.uint64] | None = None
    b_descriptor: NDArray[np.uint64] | None = None
    scale_d: bool = True
    imm_scale: tuple[int, int] = (1, 1)
    imm_trans: tuple[int, int] = (0, 0)

    @property
    def cases(self) -> int:
        """Number of tiles."""
        return len(self.c)

    def take(self, cases: NDArray[np.intp] | slice) -> "RegisterFile":
        """Return the same file with some of its cases."""
        names = (*_KEYS.values(), *_DESCRIPTORS)
        parts = {name: getattr(self, name) for name in names}
        return replace(self, **{name: part[cases] for name, part in parts.items() if part is not None})

    def run(self, backend: str = "golden") -> Registers:
        """Compute D on a back end.

        Raises
        ------
        Error
            As :func:`sptc.mma` and :func:`sptc.wgmma`.
        """
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
            self.selector,
            scale_a=None if self.scale_a is None else (self.scale_a, byte_a, thread_a),
            scale_b=None if self.scale_b is None else (self.scale_b, byte_b, thread_b),
            arch=self.arch,
            backend=backend,
            metadata=self.metadata,
        )

    def _run_wgmma(self, backend: str) -> Registers:
        """Compute the cases of each pair of descriptors together."""
        assert self.b_descriptor is not None
        pairs = np.stack([self.b_descriptor if x is None else x for x in (self.a_descriptor, self.b_descriptor)], 1)
        distinct, which = np.unique(pairs, axis=0, return_inverse=True)
        d = np.empty_like(self.c)
        for index, (a_descriptor, b_descriptor) in enumerate(distinct.tolist()):
            cases = np.flatnonzero(which.reshape(-1) == index)
            part = self.take(cases)
            assert part.e is not None
            try:
                d[cases] = wgmma(
                    str(part.instruction),
                    part.c,
                    a_descriptor if part.a is None else part.a,
                    b_descriptor,
                    part.e,
                    part.selector,
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


_DESCRIPTORS = ("a_descriptor", "b_descriptor")
_KEYS = {
    "A": "a",
    "B": "b",
    "C": "c",
    "D": "d",
    "E": "e",
    "scale_a": "scale_a",
    "scale_b": "scale_b",
}


def read(path: str | Path) -> RegisterFile:
    """Read a register file.

    Parameters
    ----------
    path : str or Path
        The ``.npz``.

    Raises
    ------
    FileError
        The file is unreadable, truncated, or lacks something; one sentence that names it.
    InstructionError
        Its instruction does not parse.
    """
    path = Path(path)
    if not path.exists():
        raise FileError(f"{path} does not exist")
    try:
        with path.open("rb") as stream:
            if stream.read(6) == _ARRAY_MAGIC:
                raise FileError(f"{path} is a single array, not an .npz register file")
            if not zipfile.is_zipfile(stream):
                raise FileError(f"{path} is not a readable .npz register file (it is no zip archive)")
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as archive:
                contents = {key: archive[key] for key in archive.files}
    except FileError:
        raise
    except Exception as error:  # a damaged archive fails in as many ways as zip, zlib and numpy have
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FileError(f"{path} is not a readable .npz register file ({reason})") from None
    return _interpret(contents, str(path))


def _interpret(contents: dict[str, NDArray], path: str) -> RegisterFile:
    required = ["instruction", "selector", "B", "C"]
    text = contents.get("instruction")
    if text is not None:
        if text.ndim or text.dtype.kind != "U":
            raise FileError(f"{path}: instruction must be a 0-d string, not {text.dtype} of shape {text.shape}")
        instruction = parse(str(text))
        required += ["E"] if instruction.sparse else []
        required += ["scale_a", "scale_b", "scale_ids"] if instruction.scale_size else []
        required += ["b_descriptor"] if instruction.family == "wgmma" else []
        by_descriptor = instruction.family == "wgmma" and "a_descriptor" in contents
        required += ["a_descriptor"] if by_descriptor else ["A"]
        if by_descriptor and "A" in contents:
            raise FileError(f"{path} holds A and a_descriptor; one of them says where A is")
    for key in required:
        if key not in contents:
            held = ", ".join(name if name.isprintable() else repr(name) for name in sorted(contents)) or "nothing"
            raise FileError(f"{path} lacks the key {key!r}; it holds {held}")

    def integer(key: str) -> int:
        value = contents[key]
        if value.ndim or value.dtype.kind not in "iu":
            raise FileError(f"{path}: {key} must be a 0-d integer, not {value.dtype} of shape {value.shape}")
        return int(value)

    def string(key: str, default: str) -> str:
        value = contents.get(key, np.array(default))
        if value.ndim or value.dtype.kind != "U":
            raise FileError(f"{path}: {key} must be a 0-d string, not {value.dtype} of shape {value.shape}")
        return str(value)

    def pair(key: str, default: int) -> tuple[int, int]:
        value = contents.get(key, np.full(2, default))
        if value.shape != (2,) or value.dtype.kind not in "iu":
            raise FileError(f"{path}: {key} must be two integers, not {value.dtype} of shape {value.shape}")
        return int(value[0]), int(value[1])

    def flag(key: str, default: int) -> int:
        value = contents.get(key, np.array(default))
        if value.ndim or value.dtype.kind not in "biu" or value not in (0, 1):
            raise FileError(f"{path}: {key} must be 0 or 1, not {value.dtype} of shape {value.shape}: {value!s:.20}")
        return int(value)

    def descriptors(key: str) -> NDArray[np.uint64]:
        value = contents[key]
        if value.dtype.kind not in "iu" or value.shape not in ((), (case_count,)):
            raise FileError(
                f"{path}: {key} must be one integer or one for each of {case_count} cases, "
                f"not {value.dtype} of shape {value.shape}"
            )
        return np.broadcast_to(value.astype(np.uint64), (case_count,))

    arrays: dict[str, Any] = {}
    for key, name in _KEYS.items():
        if key in contents and (key != "E" or instruction.sparse):
            value = contents[key]
            axes = 2 if key in ("E", "scale_a", "scale_b") or (key == "B" and instruction.family == "wgmma") else 3
            if value.dtype != np.uint32 or value.ndim != axes:
                wanted = "[case, thread, register]" if axes == 3 else "[case, word]" if key == "B" else "[case, thread]"
                raise FileError(
                    f"{path}: {key} must be a uint32 array with a leading case axis, "
                    f"not {value.dtype} of shape {value.shape}; wanted {wanted}"
                )
            arrays[name] = value
    cases = {key: len(arrays[name]) for key, name in _KEYS.items() if name in arrays}
    if not min(cases.values()):
        raise FileError(f"{path} holds no cases")
    if len(set(cases.values())) > 1:
        listed = ", ".join(f"{key} {count}" for key, count in cases.items())
        raise FileError(f"{path}: the arrays disagree on the number of cases ({listed})")
    case_count = len(arrays["c"])
    if "d" in arrays and arrays["d"].shape != arrays["c"].shape:
        raise FileError(f"{path}: D has shape {arrays['d'].shape}, but C has {arrays['c'].shape}")
    metadata = string("metadata", "strict")
    if metadata not in METADATA_POLICIES:
        raise FileError(f"{path}: metadata must be {' or '.join(map(repr, METADATA_POLICIES))}, not {metadata!r}")
    scale_ids = contents.get("scale_ids", np.zeros(4, int))
    if scale_ids.shape != (4,) or scale_ids.dtype.kind not in "iu":
        raise FileError(f"{path}: scale_ids must be four integers, not {scale_ids.dtype} of shape {scale_ids.shape}")
    byte_a, thread_a, byte_b, thread_b = (int(number) for number in scale_ids)
    return RegisterFile(
        instruction=instruction,
        selector=integer("selector"),
        arch=string("arch", _DEFAULT_ARCH),
        metadata=metadata,
        scale_ids=(byte_a, thread_a, byte_b, thread_b),
        scale_d=bool(flag("scale_d", 1)),
        imm_scale=pair("imm_scale", 1),
        imm_trans=pair("imm_trans", 0),
        **arrays | {key: descriptors(key) for key in _DESCRIPTORS if key in contents},
    )


def write(path: str | Path, file: RegisterFile) -> None:
    """Write a register file.

    Parameters
    ----------
    path : str or Path
        Where to, with its ``.npz`` suffix.
    file : RegisterFile
        What.
    """
    contents: dict[str, object] = {
        "instruction": str(file.instruction),
        "selector": file.selector,
        "arch": file.arch,
        "metadata": file.metadata,
    }
    contents |= {key: value for key, name in _KEYS.items() if (value := getattr(file, name)) is not None}
    if file.scale_a is not None:
        contents["scale_ids"] = np.array(file.scale_ids)
    contents |= {key: value for key in _DESCRIPTORS if (value := getattr(file, key)) is not None}
    if file.instruction.family == "wgmma":
        contents |= {"scale_d": file.scale_d, "imm_scale": file.imm_scale, "imm_trans": file.imm_trans}
    np.savez_compressed(path, allow_pickle=False, **contents)  # type: ignore[arg-type]


def shipped() -> Iterator[Path]:
    """Yield the recordings that ship with the package, sorted by name."""
    with resources.as_file(resources.files("sptc") / "recordings") as folder:
        yield from sorted(folder.glob("*.npz"))
