"""Records of compiled kernels: PTX, launch description and hash of the results. A seed determines the operands."""

import hashlib
import json
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["BYTES", "NAMES", "draw", "fields", "operand", "operands_digest"]

#: Bytes per element of each type. An element of type ``nibbles`` is a byte with two metadata nibbles (2:4 or 1:2).
BYTES = {"f16": 2, "bf16": 2, "e4m3": 1, "e5m2": 1, "f32": 4, "s8": 1, "s32": 4, "e2m1": 1, "ue8m0": 1, "ue4m3": 1,
         "u8": 1, "nibbles": 1, "nibbles_1_2": 1}  # fmt: skip
#: Name of each format in ``ml_dtypes``, PyTorch and TileLang.
NAMES = {"f16": "float16", "bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "tf32": "float32",
         "f32": "float32", "s8": "int8", "s32": "int32"}  # fmt: skip
#: Number of fraction bits and exponent bias of each float format.
_FLOATS = {"f16": (10, 15), "bf16": (7, 127), "e4m3": (3, 7), "e5m2": (2, 15), "f32": (23, 127)}
#: Metadata nibbles that PTX defines, for 2:4 and for 1:2 sparsity.
_NIBBLES = {
    "nibbles": np.array((0x4, 0x8, 0xC, 0x9, 0xD, 0xE), np.uint8),
    "nibbles_1_2": np.array((0x4, 0xE), np.uint8),
}


def operand(kind: str, shape: list[int] | tuple[int, ...], rng: np.random.Generator) -> NDArray:
    """Draw codes of an operand: normal numbers near one of random sign, any integers, or metadata that PTX defines."""
    if kind in _NIBBLES:
        low, high = (rng.choice(_NIBBLES[kind], shape) for _ in range(2))
        return low | high << np.uint8(4)
    size = BYTES[kind]
    bits: NDArray = rng.integers(0, 1 << 8 * size, shape, dtype=f"u{size}")
    if kind == "ue8m0":
        return rng.integers(122, 132, shape, dtype=np.uint8)
    if kind == "ue4m3":
        return rng.integers(0x20, 0x60, shape, dtype=np.uint8)
    if kind not in _FLOATS:
        return bits
    fraction, bias = _FLOATS[kind]
    exponent = rng.integers(bias - 3, bias + 2, shape).astype(bits.dtype)
    top = bits.dtype.type(8 * size - 1)
    return bits >> top << top | exponent << bits.dtype.type(fraction) | bits & bits.dtype.type((1 << fraction) - 1)


def draw(arrays: dict[str, tuple[str, list[int]]], seed: int) -> dict[str, NDArray]:
    """Return the operands of a kernel launch in the order of the launch's arrays, with zeros for the result ``d``."""
    rng = np.random.default_rng(seed)
    return {
        name: np.zeros(shape, f"u{BYTES[kind]}") if name == "d" else operand(kind, shape, rng)
        for name, (kind, shape) in arrays.items()
    }


def operands_digest(arrays: dict[str, NDArray]) -> str:
    """Return the SHA-256 digest of the operands of a kernel launch, without the result ``d``."""
    octets = b"".join(np.ascontiguousarray(array).tobytes() for name, array in arrays.items() if name != "d")
    return hashlib.sha256(octets).hexdigest()


def fields(
    name: str,
    ptx: str,
    launch: dict[str, Any],
    result: NDArray | None = None,
    *,
    whole: bool = False,
    arrays: dict[str, NDArray] | None = None,
) -> dict[str, NDArray[np.uint8]]:
    """Return the record of a kernel as arrays of an ``.npz`` archive.

    Parameters
    ----------
    name : str
        Name of the kernel, the prefix of each array name.
    ptx, launch : str, dict
        PTX text of the kernel, and the geometry, arguments and operands of its launch.
    result : ndarray, optional
        Result that a GPU wrote; its digest is recorded.
    whole : bool
        Record the whole result in addition to its digest.
    arrays : dict, optional
        Arrays of the launch that are recorded, since no seed determines them.
    """
    parts = {"ptx": zlib.compress(ptx.encode(), 9), "launch": json.dumps(launch).encode()}
    if result is not None:
        parts["digest"] = hashlib.sha256(result.tobytes()).digest()
        if whole:
            parts["d"] = zlib.compress(result.tobytes(), 6)
    parts |= {name: zlib.compress(array.tobytes(), 9) for name, array in (arrays or {}).items()}
    return {f"{name}|{part}": np.frombuffer(value, np.uint8) for part, value in parts.items()}
