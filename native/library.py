"""Load libsptc into this process through its C interface. The C++ code is compiled on first use."""

import ctypes
import hashlib
import os
import platform
import re
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from ..infra.cache import built
from ..infra.compiler import compiler_stamp, cxx_compiler, progress, run_tool
from ..infra.loader import load_library

__all__ = [
    "ABI",
    "KERNELS",
    "SOURCES",
    "Input",
    "Matrices",
    "MmaOperands",
    "Output",
    "Shape",
    "Tcgen05Operands",
    "WgmmaOperands",
    "library",
    "library_file",
]

#: Version of libsptc's C interface that this module uses.
ABI = 1
#: Folder with the C++ sources of libsptc.
SOURCES = Path(__file__).parent
#: Python source files that determine the generated C++ header ``tables.h``.
_GENERATORS = tuple(path for room in ("isa", "native") for path in sorted(SOURCES.parent.glob(f"{room}/*.py")))
#: Path of the compiled libsptc inside an installed wheel, which also contains the sources.
_READY = SOURCES / "lib" / "libsptc.so"
_REQUIRED = ("-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-pthread")
#: Names and compiler options of the variants in which ``kernels.cpp`` is compiled. The first variant runs on every
#: processor, all other variants run only on x86-64.
KERNELS = {
    "portable": (),
    "avx2": ("-mavx2",),
    "avx512": ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mprefer-vector-width=512"),
}


#: Text of the C header ``sptc.h``, without comments.
_HEADER = re.sub(r"/\*.*?\*/", "", (SOURCES / "include" / "sptc.h").read_text(encoding="utf-8"), flags=re.DOTALL)
#: Key: type of a field of a C structure. Value: type of :mod:`ctypes`.
_TYPES: dict[str, Any] = {
    **{f"{sign}int{bits}_t": getattr(ctypes, f"c_{sign}int{bits}") for sign in ("", "u") for bits in (32, 64)},
    "size_t": ctypes.c_size_t,
    "void *": ctypes.c_void_p,
}


def _structure(name: str) -> Any:
    """Return the :mod:`ctypes` class of a C structure, with the fields that ``sptc.h`` declares."""
    (body,) = re.findall(rf"typedef struct {name} {{(.*?)}}", _HEADER, re.DOTALL)
    fields = []
    for kind, declared in re.findall(r"(?:const )?(void \*|\w+) ?([^;]+);", body):
        for field, count in re.findall(r"(\w+)(?:\[(\d+)\])?", declared):
            fields.append((field, _TYPES[kind] * int(count) if count else _TYPES[kind]))
    _TYPES[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return _TYPES[name]


#: C structures of an input array and of an output array, each with its size in bytes.
Input, Output = _structure("sptc_input"), _structure("sptc_output")
#: C structures of the operands of a batch of matrix products, and of ``mma``.
Matrices, MmaOperands = _structure("sptc_matrices"), _structure("sptc_mma_operands")
#: C structures of the operands of ``wgmma``, and of ``tcgen05.mma``.
WgmmaOperands, Tcgen05Operands = _structure("sptc_wgmma_operands"), _structure("sptc_tcgen05_operands")
#: C structure of the sizes of an instruction and of its operands.
Shape = _structure("sptc_shape")


def _is_x86() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64")


def _fingerprint() -> str:
    digest = hashlib.sha256(repr((compiler_stamp(), _REQUIRED, KERNELS, platform.machine())).encode())
    for path in (*sorted([*SOURCES.glob("src/*"), *SOURCES.glob("include/*")]), *_GENERATORS):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:24]


def _units() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the name of each object file of libsptc, with the compiler arguments that only this object file needs."""
    for name in sorted(path.stem for path in SOURCES.glob("src/*.cpp") if path.stem != "kernels"):
        yield name, (str(SOURCES / "src" / f"{name}.cpp"),)
    for kernels, options in KERNELS.items():
        if kernels == "portable" or _is_x86():
            names = (f"-DSPTC_KERNELS={kernels}_kernels", f'-DSPTC_KERNELS_NAME="{kernels}"')
            yield f"kernels_{kernels}", (*options, *names, str(SOURCES / "src" / "kernels.cpp"))


def _build(whole: Path) -> None:
    from .tables import header

    progress("building libsptc")
    with tempfile.TemporaryDirectory(dir=whole.parent) as scratch:
        folder = Path(scratch)
        (folder / "tables.h").write_text(header(), encoding="utf-8")
        include = (f"-I{SOURCES / 'include'}", f"-I{SOURCES / 'src'}", f"-I{folder}")

        def compile_with(words: list[str]) -> None:
            run_tool([*cxx_compiler(), *words], folder, "the C++ compiler", "libsptc")

        def compiled(unit: tuple[str, tuple[str, ...]]) -> str:
            compile_with([*_REQUIRED, *include, "-c", "-o", f"{unit[0]}.o", *unit[1]])
            return f"{unit[0]}.o"

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = [*pool.map(compiled, _units())]
        compile_with(["-shared", "-pthread", "-o", "libsptc.so", *objects])
        (folder / "libsptc.so").replace(whole)
    progress("")


def library_file() -> Path:
    """Return the path of libsptc: the compiled file of a wheel, or else a cached file that is compiled on first use."""
    return _READY if _READY.is_file() else built(f"libsptc-{_fingerprint()}.so", _build)


@cache
def library() -> ctypes.CDLL:
    """Load libsptc from :func:`library_file`, and declare the argument types of its functions.

    Raise a `BackendError` if there is no compiler, the compiler fails, or the library cannot be loaded.
    """
    path = library_file()
    loaded = load_library(path, installed=path == _READY)
    handle, text = ctypes.c_void_p, ctypes.c_char_p
    loaded.sptc_open.argtypes = [ctypes.c_int, text, text, ctypes.POINTER(handle)]
    loaded.sptc_close.argtypes = [handle]
    loaded.sptc_close.restype = None
    for name in ("sptc_last_error", "sptc_text"):
        getattr(loaded, name).argtypes, getattr(loaded, name).restype = [handle], text
    loaded.sptc_choose_kernels.argtypes = [handle, text]
    loaded.sptc_set_numerics.argtypes = [handle, *[ctypes.c_int] * 4, text]
    structures = {"multiply": Matrices, "mma": MmaOperands, "wgmma": WgmmaOperands, "tcgen05": Tcgen05Operands}
    for name, structure in structures.items():
        getattr(loaded, f"sptc_{name}").argtypes = [handle, ctypes.POINTER(structure), ctypes.c_int]
    sizes = [ctypes.c_uint32] * 3
    loaded.sptc_encode_descriptor.argtypes = [handle, *sizes, text, ctypes.c_int, ctypes.POINTER(ctypes.c_uint64)]
    loaded.sptc_get_shape.argtypes = [handle, ctypes.POINTER(Shape)]
    loaded.sptc_metadata.argtypes = [handle, ctypes.c_int64, Input, ctypes.c_int32, Output, Output]
    return loaded
