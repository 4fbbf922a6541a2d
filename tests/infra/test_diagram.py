"""The text in a block diagram has sufficient contrast in the light and in the dark theme."""

import re
from xml.etree import ElementTree

from sptc.infra.diagram import FILLS, Diagram, Theme


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour (#rrggbb), as the accessibility guidelines WCAG 2 define it."""
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_contrast_of_text() -> None:
    for theme in (Theme.LIGHT, Theme.DARK):
        rules = re.findall(r"([.\w, ]+) \{ fill: (#\w+)", Diagram(10, 10, "title", "words", theme).svg().decode())
        colours = {name: colour for names, colour in rules for name in names.strip().split(", ")}
        for text in (".text", ".strong", ".quiet", ".mark"):
            grounds = [".paper", *(f".{name}" for name in FILLS if text in (".text", ".strong"))]
            for ground in grounds:
                dark, light = sorted(luminance(colours[name]) for name in (text, ground))
                assert (light + 0.05) / (dark + 0.05) >= 4.5, (theme, text, ground)


def test_shapes_of_a_diagram() -> None:
    picture = Diagram(200, 100, "a < b", 'what "it" shows')
    picture.box((10, 10, 50, 40), ["one", "two"], "logic", copies=9)
    picture.multiplexer((80, 10, 50, 40), ["four & five"])
    picture.arrow((60, 30), (80, 30))
    picture.arrow((90, 30), (90, 80), head=False)
    picture.register(70, 0, 90, "cycle 1")
    root = ElementTree.fromstring(picture.svg())
    tags = [element.tag.rpartition("}")[2] for element in root]
    texts = [element.text for element in root if element.text and element.text.strip()]
    assert texts == ["a < b", 'what "it" shows', texts[2], "one", "two", "four & five", "cycle 1"]
    assert tags.count("rect") == 1 + 3
    assert tags.count("polygon") == 2
    assert tags.count("polyline") == 3
