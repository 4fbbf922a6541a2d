"""Block diagrams: what stands in a shape can be read, light and dark."""

import re
from xml.etree import ElementTree

import pytest
from sptc.infra.diagram import FILLS, Diagram, Theme


def luminance(colour: str) -> float:
    """Return how light a colour is, by WCAG 2."""
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [Theme.LIGHT, Theme.DARK])
def test_text_is_told_from_what_it_stands_on(theme: Theme) -> None:
    style = Diagram(10, 10, "title", "words", theme).svg().decode()
    colours = {
        name: colour
        for names, colour in re.findall(r"([.\w, ]+) \{ fill: (#\w+)", style)
        for name in names.strip().split(", ")
    }
    for text in (".text", ".strong", ".quiet", ".mark"):
        on = [".paper"] if text in (".quiet", ".mark") else [".paper", *(f".{name}" for name in FILLS)]
        for ground in on:
            dark, light = sorted(luminance(colours[name]) for name in (text, ground))
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (text, ground)


def test_shapes_say_what_they_are_told() -> None:
    picture = Diagram(200, 100, "a < b", 'what "it" shows')
    picture.box((10, 10, 50, 40), ["one", "two"], "logic", copies=9)
    picture.multiplexer((80, 10, 50, 40), ["four & five"])
    picture.arrow((60, 30), (80, 30))
    picture.arrow((90, 30), (90, 80), head=False)
    picture.register(70, 0, 90, "cycle 1")
    root = ElementTree.fromstring(picture.svg())
    tags = [element.tag.rpartition("}")[2] for element in root]
    assert [element.text for element in root if element.text and element.text.strip()][:2] == [
        "a < b",
        'what "it" shows',
    ]
    assert tags.count("rect") == 1 + 3
    assert tags.count("polygon") == 2
    assert tags.count("polyline") == 3
    texts = [element.text for element in root if element.tag.endswith("text")]
    assert texts == ["one", "two", "four & five", "cycle 1"]
