"""C++ sources of drivers: files of ``drivers/``, and a generated header with the constants of a configuration."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

__all__ = ["driver"]

_FOLDER = Path(__file__).with_name("drivers")
_INCLUDED = re.compile(r'^#include "(\w+\.h)"$', re.M)
_NUMBER = re.compile(r"__(\d+)(?=__|$)")
_CONFIGURATION = "configuration.h"
_HEADER = """\
// Generated: the model of a top, its ports, and numbers of its configuration.
#ifndef SPTC_CONFIGURATION_H
#define SPTC_CONFIGURATION_H

#include <cstddef>
#include <cstdint>
#include <type_traits>

{lines}

#endif
"""


def driver(
    name: str, constants: Mapping[str, int], *, top: str = "", ports: Sequence[str] = (), more: Sequence[str] = ()
) -> dict[str, str]:
    """Return the C++ sources that drive a compiled top, by file name.

    Parameters
    ----------
    name : str
        File of ``drivers/``. The headers that it includes are added.
    constants : mapping of str to int
        Constants of the configuration that the driver uses.
    top : str
        Top module of the Verilator model; empty without a model.
    ports : sequence of str
        Ports of the model. Each becomes a member of ``Ports``, and ``Ports::every`` points to all of them in this
        order. A member's name has one underscore between the parts of the port's path. Ports whose names differ only in
        a number become an array of pointers: ``memory__data__3`` is ``*memory_data[3]``.
    more : sequence of str
        Further driver files for the same model.
    """
    files = {_CONFIGURATION: _HEADER.format(lines="\n".join(_lines(constants, top, ports)))}
    waiting = [name, *more]
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
    """Return the C++ name of a port: Verilator reserves double underscores and escapes them."""
    return port.replace("__", "___05F")
