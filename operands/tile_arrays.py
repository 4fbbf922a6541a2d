"""Read the arrays of one instruction from an ``.npz`` file of recorded registers or of Python arguments.

If ``np.savez`` stores the result of :func:`sptc.pack`, the arrays have the names of the arguments of :func:`sptc.mma`,
:func:`sptc.wgmma` or :func:`sptc.tcgen05_mma`, and any batch axes. A register file, which ``sptc gpu record`` writes,
names its arrays by capital letters, and these arrays have one case axis. In both kinds of files the result is named
``D``; for ``mma``, which has no argument ``d``, the result may also be named ``d``.
"""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError
from .packing import common_batch

__all__ = ["KEYS", "family_of", "register_keys", "renamed"]

Arrays = dict[str, NDArray[Any]]

#: Key: name of an array. Value: number of axes after the batch axis (one element per execution) in this array.
_AXES = {"A": 2, "B": 2, "C": 2, "D": 2, "E": 1, "scale_a": 1, "scale_b": 1}
_IMAGES = {"tmem": 2, "smem": 1, "D": 2}
_CAPITALS = {"a": "A", "b": "B", "c": "C", "d": "D", "e": "E"}
#: Key: name of an array of a register file (``.npz``) that stores two arguments of ``wgmma``: one for A, such as
#: ``imm_scale_a``, and one for B. Value: default of both arguments.
_PAIRS = {"imm_scale": 1, "imm_trans": 0}
#: Names of all arrays that are read from a file. Arrays with other names are ignored.
KEYS = frozenset(
    [
        *("instruction", "selector", "arch", "metadata", "recorded", *"ABCDE", *"abcde", "smem", "tmem", "idesc"),
        *("scale_a", "scale_b", "scale_ids", "a_descriptor", "b_descriptor", "scale_d", "enable_input_d"),
        *("imm_scale", "imm_scale_a", "imm_scale_b", "imm_trans", "imm_trans_a", "imm_trans_b"),
        *("scale_input_d", "disable_output_lane", "zero_column_mask"),
    ]
)


def family_of(text: str) -> str:
    """Return the family of an instruction from its text: ``mma``, ``wgmma`` or ``tcgen05``."""
    return next((name for name in ("tcgen05", "wgmma") if text.strip().startswith(name)), "mma")


def register_keys(arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    """Return arrays under their names in ``.npz`` files of ``sptc gpu record``, with all batch axes merged into one.

    `arrays` have the names of arguments, and batch axes that broadcast; or the names of a register file, and the case
    axis may be missing in all arrays. Arrays with other names are returned unchanged. Raise an `OperandError` if an
    array is present under both of its names, or batch axes do not broadcast.
    """
    text = arrays.get("instruction")
    if text is None or text.shape != () or text.dtype.kind != "U":
        return dict(arrays)
    family = family_of(str(text))
    if family == "tcgen05":
        return _of_tensor_memory(str(text), arrays)
    by_argument = family == "wgmma" and "smem" in arrays
    named = _of_wgmma(arrays) if by_argument else renamed(arrays, _CAPITALS)
    axes = {**_AXES, "B": 1} if family == "wgmma" else _AXES
    operands = {key: array for key, array in named.items() if key in axes and array.ndim >= axes[key]}
    leads = {key: array.shape[: array.ndim - axes[key]] for key, array in operands.items()}
    if by_argument or not leads.keys() & arrays.keys() - {"D", "scale_a", "scale_b"}:
        lead = common_batch(leads)
        for key, array in operands.items():
            tail = array.shape[array.ndim - axes[key] :]
            named[key] = np.broadcast_to(array, (*lead, *tail)).reshape(prod(lead), *tail)
    elif not any(leads.values()) and len(operands) == len(named.keys() & axes.keys()):
        named |= {key: array[None] for key, array in operands.items()}
    return named


def renamed(arrays: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Rename the arrays that `names` lists, from old to new name. Raise an error if both names are present."""
    for name, other in names.items():
        if name in arrays and other in arrays:
            raise OperandError(f"{name} and {other} are names of the same operand, but both are present")
    return {names.get(name, name): array for name, array in arrays.items()}


def _of_wgmma(arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    """Rename arguments of ``wgmma`` as in the files of ``sptc gpu record``: `d` to ``C``, `b` to ``b_descriptor``."""
    of_a = "A" if "a" in arrays and arrays["a"].ndim >= 2 else "a_descriptor"
    named = renamed(arrays, {"a": of_a, "b": "b_descriptor", "d": "C", "e": "E", "smem": "B"})
    octets = np.ascontiguousarray(named["B"])
    if octets.dtype == np.uint8 and octets.ndim:
        named["B"] = np.pad(octets, [(0, 0)] * (octets.ndim - 1) + [(0, -octets.shape[-1] % 4)]).view(np.uint32)
    for name, default in _PAIRS.items():
        keys = [f"{name}_{operand}" for operand in "ab"]
        pair = [np.asarray(named.pop(key, default)) for key in keys]
        if any(key in arrays for key in keys):
            if any(value.shape != () or value.dtype.kind not in "biu" for value in pair):
                raise OperandError(f"{keys[0]} and {keys[1]} must be integers")
            named[name] = np.array([int(value) for value in pair])
    return named


def _of_tensor_memory(text: str, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    """Merge the batch axes of the arguments of ``tcgen05.mma`` into one axis, which follows the axis of CTAs."""
    named = {**arrays, "instruction": np.array(text.strip().partition(" ")[0])}
    ctas = 1 if ".cta_group::2" in text else 0
    images = {key: array for key, array in named.items() if key in _IMAGES}
    leads = {key: array.ndim - _IMAGES[key] - ctas for key, array in images.items()}
    if len({*leads.values()}) == 1 and min(leads.values()) >= 0:
        for key, array in images.items():
            lead, tail = np.split(array.shape[ctas:], [array.ndim - ctas - _IMAGES[key]])
            named[key] = array.reshape(*array.shape[:ctas], prod(lead.tolist()), *tail)
    return named
