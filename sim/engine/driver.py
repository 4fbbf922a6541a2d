"""C++ drivers of compiled models: their generated sources, calls from Python, and the inputs that tests drive.

The sources are files of ``drivers/`` and a generated header with the constants of a configuration.
"""

import ctypes
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import IntFlag
from pathlib import Path
from typing import Any, ClassVar

__all__ = ["PATIENCE", "CompiledModel", "CycleBits", "driver", "members"]

#: Time limit: a run is aborted after this number of cycles without a transfer, or without a result that is due. The
#: limit exceeds every gap in a pattern of test events.
PATIENCE = 1 << 14
_FOLDER = Path(__file__).with_name("drivers")
_INCLUDED = re.compile(r'^#include "(\w+\.h)"$', re.M)
_NUMBER = re.compile(r"__(\d+)(?=__|$)")
_CONFIGURATION = "configuration.h"
#: Names of the functions of a C++ driver, without the driver's prefix (such as ``row_``).
_FUNCTIONS = ("create", "run", "destroy")
_HEADER = """\
// Generated header: the model of a top module, its ports, and constants of its configuration.
#ifndef SPTC_CONFIGURATION_H
#define SPTC_CONFIGURATION_H

#include <cstddef>
#include <cstdint>
#include <type_traits>

{lines}

#endif
"""


class CycleBits(IntFlag):
    """Events that a test triggers in one cycle, as bits that the C++ drivers and Python share."""

    OFFER = 1 << 0  #: Offer the next input or command, and keep it offered until it is accepted
    OFFER_C = 1 << 1  #: Offer the next accumulators, and keep them offered until they are accepted
    TAKE = 1 << 2  #: Accept a result at the output in this cycle
    OFFER_MMA = 1 << 3  #: Offer the next ``mma`` instruction to a warpgroup
    #: Accept an ``mma`` result of tensor core 0; the next three bits are for tensor cores 1 to 3.
    TAKE_MMA = 1 << 4
    RESET = 1 << 8  #: Reset the design
    MEET = 1 << 9  #: If a result was stalled in the last cycle: offer every input and accept every result in this cycle
    MEET_RESET = 1 << 10  #: If the last cycle had a transfer or a valid result: reset the design in this cycle
    #: Offer the ``mma`` to one tensor core even if this tensor core is full. The event bits from ARRAY upwards contain
    #: the number of the tensor core.
    BLIND = 1 << 11
    ARRAY = 1 << 12  #: Lowest bit of the field with the number of the tensor core for event BLIND


#: Names and values of C++ constants for the bits of :class:`CycleBits`.
_PATTERN = {f"pattern_{bit.name.lower()}": bit.value for bit in CycleBits if bit.name}


def members(kind: type, *names: str) -> list[tuple[str, type]]:
    """Return entries for `_fields_` of a ctypes structure: one field of type `kind` for each name."""
    return [(name, kind) for name in names]


class CompiledModel:
    """Model that a C++ driver creates; the arguments `create` are passed to the driver's C++ function ``create``."""

    #: `prefix`: prefix of the driver's function names. `arguments`: types of all arguments of ``run`` but the handle.
    prefix: ClassVar[str]
    arguments: ClassVar[tuple[type, ...]]
    checks: ClassVar[bool] = True  #: Whether the C++ function ``run`` returns the violated rule as text

    def __init__(self, library: ctypes.CDLL, *create: object) -> None:
        self.library = library
        make, self._run, self._destroy = (getattr(library, f"{self.prefix}_{name}") for name in _FUNCTIONS)
        make.restype = ctypes.c_void_p
        self._run.restype = ctypes.c_char_p if self.checks else None
        self._run.argtypes = [ctypes.c_void_p, *self.arguments]
        self._destroy.argtypes = [ctypes.c_void_p]
        self.handle = make(*create)

    def run_driver(self, *arguments: Any) -> str:
        """Run the C++ driver; return the rule that the hardware breaks as text, or an empty text if all rules hold."""
        return (self._run(self.handle, *arguments) or b"").decode()

    def select_fault(self, number: int) -> None:
        """Activate one injected fault in a model with selectable faults; number 0 activates no fault."""
        self.library.select_fault(ctypes.c_void_p(self.handle), number)

    def __del__(self) -> None:
        if handle := getattr(self, "handle", None):
            self._destroy(handle)


def driver(name: str, constants: Mapping[str, int], *, top: str = "", ports: Sequence[str] = ()) -> dict[str, str]:
    """Return the C++ source texts that drive a compiled top module. The keys are file names.

    Parameters
    ----------
    name : str
        File of ``drivers/``. The headers that it includes are added.
    constants : mapping of str to int
        Constants of the configuration that the driver uses, in addition to the :class:`CycleBits`, whose names are
        ``pattern_offer`` and so on.
    top : str
        Top module of the Verilator model; empty without a model.
    ports : sequence of str
        Ports of the model. Each port becomes a member of ``Ports``, and ``Ports::every`` points to all ports in this
        order. A member's name has one underscore between the parts of the port's path. Ports whose names differ only in
        a number become an array of pointers: ``memory__data__3`` is ``*memory_data[3]``.
    """
    files = {_CONFIGURATION: _HEADER.format(lines="\n".join(_lines({**_PATTERN, **constants}, top, ports)))}
    waiting = [name]
    while waiting:
        file = waiting.pop(0)
        if file not in files and (_FOLDER / file).exists():
            files[file] = (_FOLDER / file).read_text(encoding="utf-8")
            waiting += _INCLUDED.findall(files[file])
    return files


def _lines(constants: Mapping[str, int], top: str, ports: Sequence[str]) -> Iterator[str]:
    for name, value in constants.items():
        yield f"constexpr int {name} = {int(value)};"
    if not top:
        return
    yield f"using Model = V{top};"
    members: dict[tuple[str, bool], list[str]] = {}
    for port in ports:
        key = _NUMBER.sub("", port).replace("__", "_"), bool(_NUMBER.search(port))
        members.setdefault(key, []).append(_escaped(port))
    declared, initial = [], []
    for (member, is_numbered), names in members.items():
        assert is_numbered or len(names) == 1, f"two ports are called {member}"
        kind = f"decltype(Model::{names[0]})"
        if is_numbered:
            declared.append(f"std::remove_reference_t<{kind}> *{member}[{len(names)}];")
            initial.append(f"{member}{{{', '.join(f'&model.{name}' for name in names)}}}")
        else:
            declared.append(f"{kind} {member};")
            initial.append(f"{member}(model.{names[0]})")
    if members:
        declared.append(f"void *every[{len(ports)}];")
        initial.append(f"every{{{', '.join(f'&model.{_escaped(port)}' for port in ports)}}}")
    yield "struct Ports {"
    yield f"    explicit Ports([[maybe_unused]] Model &model){' : ' * bool(initial)}{', '.join(initial)} {{}}"
    yield from (f"    {line}" for line in declared)
    yield "};"


def _escaped(port: str) -> str:
    """Return the name of a port in Verilator's C++ model, where double underscores are escaped."""
    return port.replace("__", "___05F")
