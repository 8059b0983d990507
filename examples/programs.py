"""What the programs of this folder share: numbers of options, what they print, how they end."""

from __future__ import annotations

import argparse
import io
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def number_in(least: float, most: float, kind: type = float) -> Callable[[str], float]:
    """The type of an option that is a number in an interval."""

    def number(text: str) -> float:
        value = kind(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(
                f"must be {least:,} or more and at most {most:,}, got {text}"
            )
        return value

    number.__name__ = kind.__name__  # for the message about what is no number
    return number


at_least_one = number_in(1, 10**9, int)


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


def run(main: Callable[[], None], stopped: Callable[[], str] = lambda: "stopped") -> None:
    """A whole program. After Ctrl-C it prints a line, what `stopped` returns."""
    in_any_encoding()
    try:
        main()
    except KeyboardInterrupt:
        print(f"\n{stopped()}")
        sys.exit(130)  # what a shell expects of a program ended by Ctrl-C


@contextmanager
def complaints() -> Iterator[None]:
    """What cannot be done in it ends the program with one line that says why."""
    try:
        yield
    except (ValueError, KeyError, OSError, FloatingPointError) as error:
        # The text of a KeyError has quotes, and that of an OSError a number.
        reason: object = error.args[0] if isinstance(error, KeyError) else error
        if isinstance(error, OSError) and error.strerror:
            reason = ": ".join(str(x) for x in (error.filename, error.strerror) if x)
        print(f"{Path(sys.argv[0]).name}: {reason}", file=sys.stderr)
        sys.exit(2)
