"""The command line: parses arguments, calls the library, prints results."""

from .main import main

__all__ = ["main"]
