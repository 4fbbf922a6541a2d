"""Check names, and escape text for Verilog, C++, XML, plots and workflow messages."""

import re

__all__ = ["NAME", "annotation", "comment", "fitted_name", "one_line", "plot_text", "verilog_name", "xml_text"]

#: Pattern of a configuration name, which appears in module names, comments, titles and messages.
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
#: Pattern of characters that XML 1.0 cannot represent, not even as references.
_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def fitted_name(text: str) -> str:
    """Return a text as a valid :data:`NAME`: invalid characters become underscores. At most 64 characters are kept."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", text)
    return (name if NAME.match(name) else f"_{name}")[:64]


def one_line(text: object) -> str:
    """Return a text as one line, with control characters, direction marks and lone surrogates escaped."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in str(text))


def comment(text: object) -> str:
    """Return a text for a ``//`` comment of Verilog or C++: one line without a final backslash, which joins lines."""
    line = one_line(text).rstrip()
    return f"{line}." if line.endswith("\\") else line


def verilog_name(text: str) -> str:
    """Return a text as a Verilog identifier, escaped if the text has characters besides letters, digits and ``_``.

    Raise a `ValueError` if no identifier can hold the text, because the text is empty, or has a space or a character
    that is not printable ASCII.
    """
    if _IDENTIFIER.fullmatch(text):
        return text
    if not re.fullmatch(r"[!-~]+", text):
        raise ValueError(text)
    return f"\\{text} "


def xml_text(text: str) -> str:
    """Replace characters that XML cannot represent by question marks. The XML library escapes ``<`` and ``&``."""
    return _NOT_XML.sub("?", text)


def plot_text(text: str) -> str:
    """Escape a text for matplotlib, where text between dollar signs would be mathematics."""
    return one_line(text).replace("$", r"\$")


def annotation(text: str, *, title: bool = False) -> str:
    """Escape a text for the message or the title of a GitHub workflow command."""
    escaped = "%0A".join(one_line(line) for line in text.replace("%", "%25").replace("\r\n", "\n").split("\n"))
    return escaped.replace(":", "%3A").replace(",", "%2C") if title else escaped
