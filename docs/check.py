"""Check the built web site: ``python docs/check.py build/site``. The exit status is 1 if the site has problems.

The script checks that links and anchors have targets, pictures have alternative text, no heading level is skipped,
pages are small, text has enough contrast, and pages load no file from a network and can be read without scripts.
"""

import re
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["findings"]

#: Maximum size of an HTML page in bytes without pictures, and larger limits of single pages.
_LARGEST, _LARGEST_OF = 500_000, {"playground.html": 1_500_000}
#: Minimum contrast ratio of text for WCAG level AA.
_CONTRAST = 4.5
#: Theme variables for text colours, and for the background colour.
_TEXT = ("--color-foreground-primary", "--color-foreground-secondary", "--color-link", "--color-content-foreground")
_BACKGROUND = "--color-background-primary"
#: Name of the only page that needs scripts.
_SCRIPTED = "search.html"
#: Elements that load another file, and the attribute that names the file.
_FETCHES = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}


class _Page(HTMLParser):
    """Links, anchors, headings, pictures and scripts of an HTML page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = set()
        self.headings: list[int] = []
        self.nameless: list[str] = []
        self.language = ""
        self.words = 0
        self._hidden = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Record links, anchors and headings from the tag of an element."""
        values = {name: value or "" for name, value in attributes}
        self.anchors.add(values.get("id", ""))
        self._hidden += tag in ("script", "style", "svg")
        if tag == "html":
            self.language = values.get("lang", "")
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in _FETCHES and _FETCHES[tag] in values:
            self.fetched.append(values[_FETCHES[tag]])
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag == "img" and not values.get("alt"):
            self.nameless.append(values.get("src", ""))

    def handle_endtag(self, tag: str) -> None:
        """Record the end of a hidden element, such as a script."""
        self._hidden -= tag in ("script", "style", "svg")

    def handle_data(self, data: str) -> None:
        """Count the words that are readable without scripts."""
        self.words += 0 if self._hidden else len(data.split())


@cache
def _page(path: Path) -> _Page:
    return _Page(path.read_text(encoding="utf-8"))


def findings(site: Path) -> Iterator[str]:
    """Yield a sentence for each problem of the built web site in a folder."""
    for path in sorted(set(site.rglob("*.html")) - {site / _SCRIPTED}):
        page, name = _page(path), path.relative_to(site).as_posix()
        if path.stat().st_size > _LARGEST_OF.get(name, _LARGEST):
            yield f"{name}: {path.stat().st_size} bytes exceed the maximum size of a page"
        if not page.language:
            yield f"{name}: the page does not state its language"
        if page.words < 20:
            yield f"{name}: the page has only {page.words} words outside of scripts"
        yield from (f"{name}: picture {picture} has no alternative text" for picture in page.nameless)
        yield from (f"{name}: the page fetches {address}" for address in page.fetched if urlsplit(address).netloc)
        if page.headings.count(1) != 1:
            yield f"{name}: the page has {page.headings.count(1)} headings of level 1 instead of one"
        for before, after in zip(page.headings, page.headings[1:], strict=False):
            if after > before + 1:
                yield f"{name}: a heading of level {after} follows a heading of level {before}"
        yield from (f"{name}: link {link} has no target" for link in page.links if not _leads(link, path, site))
    yield from _contrasts(site)


def _leads(link: str, path: Path, site: Path) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return parts.scheme in ("https", "mailto")
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
    if target.is_dir():
        target /= "index.html"
    if not (target.is_relative_to(site.resolve()) and target.exists()):
        return False
    return target.suffix != ".html" or not parts.fragment or unquote(parts.fragment) in _page(target).anchors


def _contrasts(site: Path) -> Iterator[str]:
    """Yield a sentence for each text colour that contrasts too little with the background, in light and dark theme."""
    style = "\n".join(path.read_text(encoding="utf-8") for path in (site / "_static" / "styles").glob("furo*.css"))
    schemes = [block for block in re.findall(r"\{([^{}]*)\}", style) if f"{_BACKGROUND}:" in block]
    if len(schemes) < 2:
        yield "furo*.css does not define the colours of the light and the dark theme"
    for block in schemes:
        colours = dict(re.findall(r"(--color-[\w-]+):\s*(#[0-9a-fA-F]{3,6})", block))
        for name in _TEXT:
            if name in colours and _contrast(colours[name], colours[_BACKGROUND]) < _CONTRAST:
                yield f"{name} {colours[name]} on {colours[_BACKGROUND]} has too little contrast for WCAG level AA"


def _contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours, as WCAG 2 defines the ratio."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    channels = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


if __name__ == "__main__":
    problems = [*findings(Path(sys.argv[1]))]
    print("\n".join(problems) or "no problems found")
    sys.exit(bool(problems))
