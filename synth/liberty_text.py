"""Parser of liberty text into a tree of groups, in linear time, and functions to read and merge liberty files."""

import bz2
import gzip
import lzma
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import FileError
from ..infra.reading import TEXT_BYTES, opened

__all__ = ["Group", "decompressed", "merged", "parsed", "plain", "without"]

# Parsers from PyPI are not used: liberty-parser is GPL-3.0 and seven times slower, libparse ends the process on bad
# input, and eda-liberty-parser takes twice as long and accepts an empty file.
# Group 1 of the pattern matches an unclosed comment, which `plain` keeps. Without group 1, the search for `*/` would
# run to the end of the text again for each `/*`, in quadratic time.
_COMMENT = re.compile(r"/\*(?:.*?\*/|(.*))", re.DOTALL)
_LIBRARY = re.compile(r"\s*library\s*\(")
#: Pattern of a token: the end of a group, `name : value;`, `name (words);`, the start of a group, or a semicolon.
_STATEMENT = re.compile(
    r"""[\s\\]*(?:
        (?P<close>\}) | ; |
        (?P<name>[^\s(){}:;,"]+)\s*(?:
            :\s*(?P<value>(?:"[^"]*"|[^;{}"\n])*);? |
            \((?P<words>(?:"[^"]*"|[^()"])*)\)\s*(?P<open>\{)?
        )
    )""",
    re.VERBOSE,
)
_WORD = re.compile(r'"([^"]*)"|([^\s,"\\]+)')
#: Maximum nesting depth of groups. Groups of real libraries have at most 6 levels.
_DEEPEST = 20
_OPENERS: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
#: Statements in the header of a liberty file. Files with different values of these statements cannot be merged.
_HEADER = ("time_unit", "voltage_unit", "leakage_power_unit", "nom_voltage", "nom_temperature", "nom_process")


@dataclass
class Group:
    """A group ``kind (words) { ... }`` of a liberty file."""

    kind: str
    words: list[str]
    start: int  #: Index of the group's first character in the liberty text
    end: int = 0  #: Index of the first character after the group's closing brace in the liberty text
    values: dict[str, str] = field(default_factory=dict)  #: Attributes ``name : value;`` of the group, without quotes
    lists: dict[str, list[str]] = field(default_factory=dict)  #: Liberty attributes ``name (words);`` of the group
    groups: list["Group"] = field(default_factory=list)

    def all(self, kind: str) -> Iterator["Group"]:
        """Yield the liberty groups of one kind, such as ``cell``, that are directly within this group."""
        return (group for group in self.groups if group.kind == kind)

    @property
    def name(self) -> str:
        """Name of this liberty group: the first word in its parentheses, or an empty string."""
        return self.words[0] if self.words else ""


def decompressed(path: Path) -> bytes:
    """Return the content of a file, plain or compressed by gzip, bzip2 or xz.

    Raise a `FileError` if the file cannot be read or decompressed, or its content is larger than 512 MiB.
    """
    with opened(path) as file:
        start = file.read(6)
        file.seek(0)
        opener = next((opener for magic, opener in _OPENERS.items() if start.startswith(magic)), None)
        try:
            data: bytes = (opener(file) if opener else file).read(TEXT_BYTES + 1)
        except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
            raise FileError(f"{path} cannot be decompressed ({error})") from None
    if len(data) > TEXT_BYTES:
        raise FileError(f"{path} cannot be read (it has more than {TEXT_BYTES} bytes)")
    return data


def plain(text: str) -> str:
    """Return the text of a liberty file (cell library) without comments, with the same number of lines."""
    return _COMMENT.sub(lambda m: m[0] if m[1] is not None else " " + "\n" * m[0].count("\n"), text)


def parsed(text: str, name: str) -> Group:
    """Parse the text of a liberty file, without comments, into a tree of groups; return its ``library`` group.

    `name` is the name of the file for messages. Raise a `FileError` if the text is not a liberty file, or its groups
    nest too deeply.
    """
    if not _LIBRARY.match(text):
        raise FileError(f"{name} is not a liberty file that holds cells")
    root = Group("", [], 0)
    open_groups, place, length = [root], 0, len(text.rstrip())
    while place < length:
        match = _STATEMENT.match(text, place)
        if not match or (match["close"] and len(open_groups) == 1):
            line = text.count("\n", 0, place + 1) + 1
            raise FileError(f"{name} is not a liberty file: line {line} is not a statement")
        place, inside = match.end(), open_groups[-1]
        if match["close"]:
            open_groups.pop().end = place
        elif match["words"] is not None:
            words = [(quoted or word).replace("\\", " ") for quoted, word in _WORD.findall(match["words"])]
            if match["open"]:
                group = Group(match["name"], words, match.start("name"))
                inside.groups.append(group)
                open_groups.append(group)
                if len(open_groups) > _DEEPEST:
                    raise FileError(f"the groups of {name} have more than {_DEEPEST} nesting levels")
            else:
                inside.lists[match["name"]] = words
        elif match["name"]:
            inside.values[match["name"]] = match["value"].strip().strip('"').strip()
    libraries = [*root.all("library")]
    if len(open_groups) > 1 or len(libraries) != 1 or not any(libraries[0].all("cell")):
        raise FileError(f"{name} is not a liberty file that holds cells")
    return libraries[0]


def without(text: str, groups: Sequence[Group]) -> str:
    """Return the text of a cell library without the given groups, which must be in the order of the text."""
    places = [0, *(place for group in groups for place in (group.start, group.end)), len(text)]
    return "".join(text[start:end] for start, end in zip(places[::2], places[1::2], strict=True))


def merged(paths: Sequence[Path], texts: Sequence[str]) -> str:
    """Return one merged library text, with the header of the first file and the templates and cells of all files.

    Raise a `FileError` if the files differ in units or corner, or two cells or two different templates have the same
    name.
    """
    first, *others = (parsed(text, str(path)) for path, text in zip(paths, texts, strict=True))
    kept = {(group.kind, group.name): texts[0][group.start : group.end] for group in first.groups}
    added = []
    for path, text, library in zip(paths[1:], texts[1:], others, strict=True):
        for name in _HEADER:
            here, there = library.values.get(name), first.values.get(name)
            if here != there:
                raise FileError(f"{path} has {name} {here}, but {paths[0]} has {there}: the corners differ")
        if library.lists.get("capacitive_load_unit") != first.lists.get("capacitive_load_unit"):
            raise FileError(f"{path} and {paths[0]} have different values of capacitive_load_unit")
        for group in library.groups:
            key, body = (group.kind, group.name), text[group.start : group.end]
            if group.kind == "cell" and key in kept:
                raise FileError(f"{path} has cell {group.name}, which an earlier file also has")
            if group.kind.endswith("_template") and "".join(kept.get(key, body).split()) != "".join(body.split()):
                raise FileError(f"{path} defines {group.kind} {group.name} differently from an earlier file")
            if key not in kept:
                kept[key] = body
                added.append(body)
    end = first.end - 1
    return "\n".join([texts[0][:end], *added, texts[0][end:]])
