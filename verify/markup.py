"""HTML by elements. All text that is not markup is escaped, so that names and messages cannot inject any."""

import html
from collections.abc import Iterable, Sequence

__all__ = ["Markup", "bar", "element", "joined", "page", "table"]

_STYLE = """\
:root { color-scheme: light dark; --ground: #fff; --ink: #1c2024; --quiet: #5b6470; --line: #d9dde2; --raised: #f5f6f8;
  --good: #16794c; --bad: #b3261e; --accent: #2f6fbd; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171a; --ink: #e4e7ea; --quiet: #9aa4af; --line: #343a41;
  --raised: #1d2125; --good: #5cc792; --bad: #ff8a80; --accent: #79b0f2; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 70rem; padding: 1rem; background: var(--ground); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; margin: .5rem 0; } h2 { font-size: 1.25rem; margin: 2.5rem 0 .5rem; } h3 { font-size: 1rem; }
p, ul { margin: .5rem 0; } ul { padding-left: 1.25rem; } .quiet { color: var(--quiet); }
.good { color: var(--good); } .bad { color: var(--bad); }
nav { display: grid; gap: .5rem; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); margin: 1rem 0; }
nav a { display: block; padding: .6rem .8rem; border: 1px solid var(--line); border-radius: .5rem;
  background: var(--raised); color: inherit; text-decoration: none; }
nav b { display: block; font-size: 1.15rem; }
nav a:focus-visible, summary:focus-visible { outline: 2px solid var(--accent); }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th { color: var(--quiet); font-weight: 600; white-space: nowrap; }
td:first-child { min-width: 9rem; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
details { border: 1px solid var(--line); border-radius: .5rem; margin: .5rem 0; padding: .4rem .8rem; }
summary { cursor: pointer; } code, pre { font: .85rem/1.45 ui-monospace, monospace; }
pre { white-space: pre-wrap; margin: .5rem 0; max-height: 30rem; overflow: auto; }
meter { width: 100%; min-width: 2.5rem; height: .8rem; }
@media (max-width: 40rem) { table { font-size: .8rem; }
  th, td { padding-right: .5rem; } td:first-child { min-width: 7rem; } }
"""
#: Content security policy: the page loads nothing and runs no script.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


class Markup(str):
    """HTML that is not escaped again."""

    __slots__ = ()


def _escaped(content: object) -> str:
    if isinstance(content, Markup):
        return content
    letters = (letter if letter.isprintable() or letter in "\n\t" else repr(letter)[1:-1] for letter in str(content))
    return html.escape("".join(letters))


def joined(*contents: object) -> Markup:
    """Concatenate contents, escaped unless they are markup."""
    return Markup("".join(map(_escaped, contents)))


def element(name: str, *contents: object, **attributes: object) -> Markup:
    """Return an HTML element.

    Parameters
    ----------
    name : str
        Name of the element.
    *contents : object
        Markup, or values that are converted to text and escaped.
    **attributes : object
        Attributes; values are escaped. True gives an attribute without value, None gives none. ``class_`` is ``class``.
    """
    words = [name]
    for key, value in attributes.items():
        if value is not None:
            words.append(key.rstrip("_") + ("" if value is True else f'="{_escaped(value)}"'))
    return Markup(f"<{' '.join(words)}>{joined(*contents)}</{name}>")


def table(head: Sequence[object], rows: Iterable[Sequence[object]], numbers: int = 0) -> Markup:
    """Return a table that scrolls sideways where it is too wide.

    Parameters
    ----------
    head : sequence
        Heads of the columns.
    rows : iterable of sequences
        Cells of each row.
    numbers : int
        Number of last columns with numbers, which are aligned right.
    """
    first = len(head) - numbers

    def line(cell: str, contents: Sequence[object]) -> Markup:
        cells = (
            element(cell, content, class_="number" if place >= first else None)
            for place, content in enumerate(contents)
        )
        return element("tr", *cells)

    body = element("tbody", *(line("td", row) for row in rows))
    return element("div", element("table", element("thead", line("th", head)), body), class_="wide")


def bar(value: float, whole: float) -> Markup:
    """Return a bar with the length of a share."""
    return element("meter", value=f"{value:g}", max=f"{whole:g}") if whole > 0 else Markup("")


def page(title: str, *contents: object) -> bytes:
    """Return a self-contained HTML page."""
    head = element(
        "head",
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        element("title", title),
        Markup(f"<style>\n{_STYLE}</style>"),
    )
    body = element("body", element("main", element("h1", title), *contents))
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n".encode()
