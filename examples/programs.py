"""What the programs of this folder share: numbers of options, what they need and
print, how they end."""

from __future__ import annotations

import argparse
import io
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn


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
size = number_in(1, 10**6, int)  # NumPy refuses an array of their square at once


def say_stopped(kind: Any, error: Any, traceback: Any) -> None:
    """One line for Ctrl-C while a program imports, because `run` has not begun yet."""
    if issubclass(kind, KeyboardInterrupt):
        print("\nstopped", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, traceback)


sys.excepthook = say_stopped


def in_any_encoding() -> None:
    r"""Print a sign as an escape, such as \u597d, where stdout or stderr cannot encode it.

    A pipe or a file on Windows is in cp1252, which has few signs.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # without a console, where tqdm would end the program
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """What is wrong with the contents of a file that a program wrote names the file."""
    try:
        yield
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise ValueError(
            f"{path} is damaged, or does not fit the file beside it: train again with --overwrite "
            f"({type(error).__name__}: {error})"
        ) from None


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What prevents the writing of a file, such as a full disk, names the file."""
    try:
        yield
    except OSError as error:
        if error.errno:  # others, as those of a picture, have a text of their own
            error.filename = error.filename or str(path)
        raise


def save_picture(figure: Any, path: Path, **options: Any) -> None:
    with writing(path):
        figure.savefig(path, **{"dpi": 120, **options})


@contextmanager
def needs(package: str, extras: str = "examples") -> Iterator[None]:
    """Where an import in it fails, the program ends with what to install."""
    try:
        yield
    except ModuleNotFoundError:
        sys.exit(f'{package} is missing: pip install -e ".[{extras}]"')


def need_pictures() -> None:
    """End a program without matplotlib now, and not after its training."""
    with needs("matplotlib"):
        import_module("matplotlib")


def refuse_lost(path: Path, overwrite: bool, what: str) -> None:
    """ValueError if `path` is there, because its folder has what the program would replace."""
    if path.exists() and not overwrite:
        raise ValueError(
            f"{path.parent} has {what}: --overwrite replaces it, or name another --out"
        )


def refuse_others(own: Path, names: Sequence[str]) -> None:
    """ValueError if files of these names are in the folder of a file that is not there."""
    found = [] if own.exists() else [name for name in names if (own.parent / name).exists()]
    if found:
        raise ValueError(
            f"{own.parent} has files of another program, such as {found[0]}: name another --out"
        )


def make_folder(path: Path, room: int = 0) -> None:
    """Make a folder, or refuse it if no file of `room` bytes can be written there, before a long
    run begins."""
    path.mkdir(parents=True, exist_ok=True)
    with writing(path), tempfile.TemporaryFile(dir=path) as file:
        file.write(bytes(room))
        file.flush()


def command(arguments: list[str]) -> str:
    """The arguments as the shell of this system takes them."""
    return subprocess.list2cmdline(arguments) if os.name == "nt" else shlex.join(arguments)


def run(main: Callable[[], None], stopped: Callable[[], str] = lambda: "stopped") -> None:
    """A whole program. After Ctrl-C it prints a line: that of `main`, or what `stopped` returns."""
    in_any_encoding()
    try:
        with complaints():
            main()
    except KeyboardInterrupt as interrupt:
        print(f"\n{str(interrupt) or stopped()}")
        sys.exit(130)  # what a shell expects of a program ended by Ctrl-C


def stop(done: int, total: int, kept: str) -> NoReturn:
    """End a training after Ctrl-C: `run` prints this line."""
    raise KeyboardInterrupt(f"stopped after {done:,} of {total:,} steps; {kept}")


@contextmanager
def complaints() -> Iterator[None]:
    """What cannot be done in it ends the program with one line that says why."""
    try:
        yield
    except (
        ValueError, KeyError, OSError, FloatingPointError, MemoryError, ImportError,
    ) as error:  # fmt: skip
        # The text of a KeyError has quotes, and that of an OSError a number.
        reason: object = error.args[0] if isinstance(error, KeyError) else error
        if isinstance(error, OSError) and error.strerror:
            reason = ": ".join(str(x) for x in (error.filename, error.strerror) if x)
        elif isinstance(error, MemoryError):  # Python's own has no text
            reason = ": ".join(filter(None, ("too large for the memory", str(error))))
        print(f"{Path(sys.argv[0]).name}: {reason}", file=sys.stderr)
        sys.exit(2)
