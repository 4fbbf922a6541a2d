"""Counts in texts: a number with its noun in the singular or plural."""

__all__ = ["counted"]


def counted(number: int, noun: str) -> str:
    """Return a number and a noun, e.g. ``"1,200 outputs"`` or ``"1 output"``."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"
