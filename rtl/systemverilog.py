"""SystemVerilog for an emitted module: a package with the types of its ports, and a wrapper with typed ports."""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from .config import CoreConfig
from .ports import Array, Bits, Enumeration, Field, Port, Structure, Type, ports

__all__ = ["lines_of_ports", "package"]


def package(config: CoreConfig, top: str, name: str) -> str:
    """Return a package with the types of a module's ports, and a wrapper module with ports of these types.

    Parameters
    ----------
    config, top, name
        The same parameters as those of :func:`~sptc.rtl.emit.emit`. The package has the name ``NAME_pkg``, and the
        wrapper module the name ``NAME_typed``.
    """
    types = _Types()
    members, connections = [], []
    for stem, alike in _numbered(ports(config, top)):
        first, port = alike[0], stem.replace("__", "_")
        is_array = first.name != stem
        kind = Array(first.type, len(alike)) if is_array else first.type
        word = types.enter(f"{port}_t", kind) if kind.width > 1 else "logic"
        members.append(f"  {'input ' if first.is_input else 'output'} {word} {port}")
        for number, inner in enumerate(alike):
            connections.append(f"    .{inner.name}({port}{f'[{number}]' if is_array else ''})")
    constants = {"STEP_BYTES": config.step_bytes, "CHUNKS": config.chunks, "UNIT_LATENCY": config.latency}
    if top not in ("unit", "row"):
        constants |= {"ROWS": config.rows, "COLUMNS": config.columns}
    lines = [
        # Lint exceptions: the module name differs from the file name, constants may be unused, and one field has the
        # name `long`, a reserved word of C++.
        *(f"/* verilator lint_off {rule} */" for rule in ("DECLFILENAME", "UNUSEDPARAM", "SYMRSVDWORD")),
        f"package {name}_pkg;",
        *(f"  localparam int {constant} = {value};" for constant, value in constants.items()),
        *types.lines,
        "endpackage",
        "",
        f"module {name}_typed import {name}_pkg::*; (",
        ",\n".join(members),
        ");",
        f"  {name} {top} (",
        ",\n".join(connections),
        "  );",
        "endmodule",
    ]
    return "\n".join(lines) + "\n"


def _numbered(members: Iterable[Port]) -> Iterator[tuple[str, list[Port]]]:
    """Yield groups of ports by name. Numbered ports whose names differ only in the number form one group."""
    for stem, alike in groupby(members, key=lambda port: re.sub(r"__\d+$", "", port.name)):
        yield stem, list(alike)


class _Types:
    """Type definitions in SystemVerilog, each before its first use. Attribute `lines` is the text of the types."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._named: dict[Type, str] = {}

    def enter(self, name: str, kind: Type) -> str:
        """Define a SystemVerilog type under a name, unless the type exists. Return its text for port declarations.

        Icarus Verilog 11 accepts neither names of array types nor arrays of structures for ports. The type of an array
        port is therefore written out, with vectors in place of structures and enumerations.
        """
        if isinstance(kind, Structure) and kind not in self._named:
            self._structure(name, kind)
            return name
        element = "_element" if isinstance(kind, Array) else ""
        word, dimensions = self._reference(f"{name.removesuffix('_t')}{element}", kind)
        self.lines.append(f"  typedef {word}{dimensions} {name};")
        if isinstance(kind, Array) and isinstance(kind.element, Structure | Enumeration):
            return f"logic [{kind.count - 1}:0][{kind.element.width - 1}:0]"
        return f"{word}{dimensions}"

    def _reference(self, name: str, kind: Type) -> tuple[str, str]:
        """Return the name of a type and its packed dimensions.

        If the type contains a structure or an enumeration that has no typedef yet, add its typedef to the lines first.
        """
        if isinstance(kind, Bits):
            sign = " signed" if kind.signed else ""
            return f"logic{sign}", f" [{kind.width - 1}:0]" if kind.width > 1 else ""
        if isinstance(kind, Array):
            word, dimensions = self._reference(name, kind.element)
            return word, f" [{kind.count - 1}:0]{dimensions.lstrip()}"
        if kind not in self._named:
            if isinstance(kind, Enumeration):
                self._enumeration(kind)
            else:
                self._structure(f"{name}_t", kind)
        return self._named[kind], ""

    def _structure(self, name: str, kind: Structure) -> None:
        members = [(field, self._reference(field.name, field.type)) for field in kind.fields]
        name = self._free(name)
        # A packed structure in SystemVerilog starts with its highest bits. An Amaranth layout starts with its lowest
        # bits.
        lines = [
            f"    {word}{dimensions} {field.name};{_remark(field)}" for field, (word, dimensions) in reversed(members)
        ]
        self.lines += ["  typedef struct packed {", *lines, f"  }} {name};  // {kind.width} bits"]
        self._named[kind] = name

    def _enumeration(self, kind: Enumeration) -> None:
        stem = re.sub(r"(?<!^)(?=[A-Z])", "_", kind.name).lower()
        values = [f"    {stem.upper()}_{value} = {kind.width}'d{code}" for value, code in kind.values]
        name = self._free(f"{stem}_t")
        self.lines += [f"  typedef enum logic [{kind.width - 1}:0] {{", ",\n".join(values), f"  }} {name};"]
        self._named[kind] = name

    def _free(self, name: str) -> str:
        """Return a type name that no other type has. If the name is in use, a number is appended."""
        taken, number = set(self._named.values()), 2
        stem = name.removesuffix("_t")
        while name in taken:
            name, number = f"{stem}{number}_t", number + 1
        return name


def _remark(field: Field) -> str:
    return f"  // [{field.low + field.type.width - 1}:{field.low}] {field.meaning}".rstrip()


def lines_of_ports(members: Iterable[Port]) -> list[str]:
    """Return the lines of a table of ports and their fields, with the bit range of each field."""
    rows = [("port", "bits", "what", "meaning")]
    for name, each in _numbered(members):
        first = each[0]
        shown = first.name if first.name == name else f"{name}__0 to {name}__{len(each) - 1}"
        direction = "input" if first.is_input else "output"
        rows.append((shown, str(first.type.width), f"{direction}, {_kind(first.type)}", first.meaning))
        rows += _rows(first.type, 0, 1)
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return [
        "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=False)) + f"  {row[3]}" for row in rows
    ]


def _rows(kind: Type, low: int, depth: int, path: str = "") -> Iterator[tuple[str, str, str, str]]:
    if isinstance(kind, Array):  # list the fields of element 0 only, as all elements of an array have equal fields
        yield from _rows(kind.element, low, depth, f"{path}[0].")
    if isinstance(kind, Structure):
        for field in kind.fields:
            first, last = low + field.low, low + field.low + field.type.width - 1
            bits = f"[{last}:{first}]" if last > first else f"[{first}]"
            yield f"{'  ' * depth}{path}{field.name}", bits, _kind(field.type), field.meaning
            yield from _rows(field.type, first, depth + 1)


def _kind(kind: Type) -> str:
    if isinstance(kind, Array):
        counts, element = [kind.count], kind.element
        while isinstance(element, Array):
            counts.append(element.count)
            element = element.element
        return f"{' x '.join(map(str, counts))} x {_kind(element)}"
    if isinstance(kind, Enumeration):
        return ", ".join(f"{code} {name}" for name, code in kind.values)
    if isinstance(kind, Structure):
        return "fields"
    return f"{'signed ' if kind.signed else ''}{kind.width} bit{'s' if kind.width > 1 else ''}"
