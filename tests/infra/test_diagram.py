"""The text in a block diagram has sufficient contrast in the light and in the dark theme."""

import re

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
            for ground in [".paper", *(f".{name}" for name in FILLS if text in (".text", ".strong"))]:
                dark, light = sorted(luminance(colours[name]) for name in (text, ground))
                assert (light + 0.05) / (dark + 0.05) >= 4.5, (theme, text, ground)
