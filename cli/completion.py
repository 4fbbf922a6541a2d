"""``sptc completion``: print a shell script that completes commands, options, choices and files."""

import argparse
from pathlib import Path

from .examples import commands as below
from .options import Commands

__all__ = ["add_parser"]

_SHELLS = ("bash", "zsh", "fish")


def add_parser(commands: Commands) -> None:
    """Add the parser of ``sptc completion`` to the command line."""
    command = commands.add_parser(
        "completion",
        help="print a completion script for bash, zsh or fish",
        description="Print a script with which a shell completes commands, options, choices and files. "
        'bash: eval "$(sptc completion bash)" in ~/.bashrc; zsh: write the script to a file _sptc in a folder of '
        "$fpath; fish: write the script to ~/.config/fish/completions/sptc.fish.",
    )
    command.add_argument("shell", choices=_SHELLS, help="shell for which the script is written")
    command.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> int:
    import shtab

    for _, command in below(options.parser):
        for action in command._actions:
            if action.type is Path:
                folder = str(action.metavar) == "FOLDER"
                action.complete = shtab.DIRECTORY if folder else shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(options.parser, options.shell))
    return 0
