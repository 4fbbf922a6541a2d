"""Names that are checked, and foreign text made safe for the language that it is written into."""

import re

__all__ = ["NAME", "annotation", "comment", "fitted_name", "one_line", "plot_text", "verilog_name", "xml_text"]

#: Name of a configuration: it appears in module names, comments, titles and messages.
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
#: Characters that XML 1.0 cannot hold, not even as references.
_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def fitted_name(text: str) -> str:
    """Return a text as a :data:`NAME`: other characters become underscores, and it is cut off after 64."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", text)
    return (name if NAME.match(name) else f"_{name}")[:64]


def one_line(text: object) -> str:
    """Return a text as one line, with control characters, direction marks and lone surrogates escaped."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in str(text))


def comment(text: object) -> str:
    """Return a text for a ``//`` comment of Verilog, SystemVerilog or C++, where a backslash would join lines."""
    line = one_line(text).rstrip()
    return f"{line}." if line.endswith("\\") else line


def verilog_name(text: str) -> str:
    """Return an identifier of Verilog; with characters other than those of a name it is an escaped identifier.

    Raises
    ------
    ValueError
        No identifier can hold the text: it is empty, or has a space or a character that is not printable ASCII.
    """
    if _IDENTIFIER.fullmatch(text):
        return text
    if not re.fullmatch(r"[!-~]+", text):
        raise ValueError(text)
    return f"\\{text} "


def xml_text(text: str) -> str:
    """Return a text with question marks for what XML cannot hold; the XML library escapes the rest."""
    return _NOT_XML.sub("?", text)


def plot_text(text: str) -> str:
    """Return a text for matplotlib's SVG, where dollars would begin mathematics."""
    return one_line(text).replace("$", r"\$")


def annotation(text: str, *, title: bool = False) -> str:
    """Return a text for the message of a GitHub workflow command, or for its title."""
    escaped = "%0A".join(one_line(line) for line in text.replace("%", "%25").replace("\r\n", "\n").split("\n"))
    return escaped.replace(":", "%3A").replace(",", "%2C") if title else escaped
