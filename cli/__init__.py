"""The command line of sptc: it parses arguments, calls the library and prints results."""

from .main import main

__all__ = ["main"]
