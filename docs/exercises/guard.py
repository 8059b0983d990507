"""What the file of a student may not do while it is graded: read solutions and tests, change what
other exercises are graded by, and start processes, which could do both.

Python calls an audit hook before it opens a file or starts a process, and a hook cannot be removed.
It stops what a student tries on an evening. It is no container: code that calls C can do all.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

SENTENCE = "solutions, tests and other processes are out of reach while an exercise is graded"
PROCESSES = {
    *("os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.startfile"),
    *("os.system", "subprocess.Popen", "cpython.PyInterpreterState_New"),
}
READS = {"open", "os.listdir", "os.scandir", "os.chdir"}
CHANGES = {"os.rename", "os.link", "os.remove", "os.rmdir", "os.truncate", "os.chmod"}
FROM_C = {"open", "openat", "fopen", "popen", "system", "fork", "execv", "execve", "syscall"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

texts: list[str] = []  # what was compiled since the guard was closed


def place_of(path: str | Path) -> str:
    """Where a path leads, with / and in small letters, because some systems take both."""
    return os.path.realpath(path).replace(os.sep, "/").casefold()


GRADERS = place_of(Path(__file__).parent)
TESTS = place_of(Path(__file__).parents[2] / "tests")  # they quote solutions
PACKAGE = importlib.util.find_spec("tinyattn")
LIBRARY = place_of(Path(PACKAGE.origin).parent) if PACKAGE and PACKAGE.origin else GRADERS


@functools.cache  # a second hook would look at the same
def close(yours: Path) -> None:
    """Refuse all of it from now on. `yours` is the file that is graded."""
    own = place_of(yours)

    def look(event: str, args: tuple[Any, ...]) -> None:
        if event == "compile" and isinstance(args[0], (str, bytes)) and len(texts) < 99:
            texts.append(args[0] if isinstance(args[0], str) else args[0].decode("utf-8", "ignore"))
        elif event in PROCESSES or (event == "ctypes.dlsym" and args[1] in FROM_C):
            refuse()
        elif event in READS or event in CHANGES:
            changes = event in CHANGES or (event == "open" and writes(*args[1:3]))
            for path in paths(args[: 1 + (event in CHANGES)]):
                place = place_of(path)
                if (changes and is_kept(place)) or (place != own and is_secret(path, place)):
                    refuse()

    # multiprocessing calls it, and no event is raised there.
    if posix := sys.modules.get("_posixsubprocess"):
        vars(posix)["fork_exec"] = refuse
    sys.addaudithook(look)


def refuse(*_: object) -> NoReturn:
    raise PermissionError(SENTENCE)


def paths(args: tuple[Any, ...]) -> Iterator[str]:
    """Those of the arguments that are paths; a number is an open file, which was looked at."""
    for path in args:
        if isinstance(path, (str, bytes, os.PathLike)):
            yield os.fsdecode(path)


def writes(mode: str | None, flags: int) -> bool:
    return bool(set(mode or "") & set("wax+") or flags & WRITING)


def is_kept(place: str) -> bool:
    """Whether it is an exercise of anybody, a grader, a part of the library, or a folder around."""
    if re.search(r"/ex_[^/]*\.py$", place) or f"{place}/".startswith(f"{GRADERS}/"):
        return True
    if f"{GRADERS}/".startswith(f"{place}/") or f"{LIBRARY}/".startswith(f"{place}/"):
        return True
    return place.startswith(f"{LIBRARY}/") and "/__pycache__" not in place  # Numba writes there


def is_secret(path: str, place: str) -> bool:
    """Whether it is a solution, a test, a black box, or a repository that has them."""
    given, place = path.replace(os.sep, "/").casefold(), f"{place}/"
    if re.match(rf"{re.escape(GRADERS)}/(test_[^/]*|black_boxes\.py)/$", place):
        return True
    # A path may begin at an open folder, of which the event says nothing.
    parts = place.split("/")
    if ("exercises", "solutions") in pairwise(parts) or given.split("/")[0] == "solutions":
        return True
    return "/.git/" in place or place.startswith((f"{GRADERS}/solutions/", f"{TESTS}/"))
