"""How the programs of this folder print."""

import io
import os
import shlex
import subprocess
import sys


def in_any_encoding() -> None:
    r"""Print a sign as an escape, such as \u597d, where stdout or stderr cannot encode it.

    A pipe or a file on Windows is in cp1252, which has few signs.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # None in a program without a console
            stream.reconfigure(errors="backslashreplace")


def command(arguments: list[str]) -> str:
    """The arguments as the shell of this system takes them."""
    return subprocess.list2cmdline(arguments) if os.name == "nt" else shlex.join(arguments)
