"""The command line: parses words, calls, prints."""

from .main import main

__all__ = ["main"]
