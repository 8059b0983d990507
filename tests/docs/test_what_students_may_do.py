"""Each event that the guard refuses, by its hook alone, and what is seen in the text of a file."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import guard
import pytest
import written

FOLDER = Path(guard.__file__).parent
SECRET = str(FOLDER / "solutions" / "ex_05_softmax.py")
Look = Callable[[str, tuple[Any, ...]], None]


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Look:
    """The hook, which Python would call for ever."""
    hooks: list[Look] = []
    monkeypatch.setattr(guard.sys, "addaudithook", hooks.append)
    monkeypatch.setattr(guard, "texts", [])
    starter = types.ModuleType("_posixsubprocess")
    monkeypatch.setitem(sys.modules, "_posixsubprocess", starter)
    guard.close.__wrapped__(tmp_path / "ex_05_softmax.py")
    assert vars(starter)["fork_exec"] is guard.refuse
    (hook,) = hooks
    return hook


def refused(look: Look, event: str, *args: Any) -> bool:
    words = ""
    try:
        look(event, args)
    except PermissionError as error:
        words = str(error)
    sentence = "solutions, tests and other processes are out of reach while an exercise is graded"
    assert words in ("", sentence)
    return bool(words)


def test_what_starts_a_process_is_refused(look: Look) -> None:
    """The events of https://docs.python.org/3/library/audit_events.html that do."""
    processes = ("exec", "fork", "forkpty", "posix_spawn", "spawn", "startfile", "system")
    others = ("subprocess.Popen", "cpython.PyInterpreterState_New")
    for event in (*(f"os.{name}" for name in processes), *others):
        assert refused(look, event, "a"), event
    for event in ("os.getxattr", "import", "exec", "object.__getattr__", "os.kill", "os.mkdir"):
        assert not refused(look, event, SECRET), event
    calls = ("open", "openat", "fopen", "popen", "system", "fork", "execv", "execve", "syscall")
    for name in calls:
        assert refused(look, "ctypes.dlsym", None, name), name
    for name in ("sin", "opens", "Open"):
        assert not refused(look, "ctypes.dlsym", None, name)
    assert not refused(look, "ctypes.dlopen", "open")


@pytest.mark.parametrize("as_bytes", [False, True])
def test_each_event_that_reads_or_changes_a_file_is_looked_at(
    look: Look, tmp_path: Path, as_bytes: bool
) -> None:
    def name(path: str | Path) -> str | bytes:
        return os.fsencode(path) if as_bytes else str(path)

    mine, other = name(tmp_path / "ex_05_softmax.py"), name(tmp_path / "data.txt")
    grader, library = name(FOLDER / "grading.py"), name(f"{guard.LIBRARY}/ops/softmax.py")
    for event in ("os.listdir", "os.scandir", "os.chdir"):
        assert refused(look, event, name(FOLDER / "solutions"))
        assert not refused(look, event, name(FOLDER))
        assert not refused(look, event, other, name(SECRET))  # no such event has two
        assert not refused(look, event, 5)
        assert not refused(look, event, None)
    for event in ("os.rename", "os.link"):
        assert refused(look, event, grader, other)
        assert refused(look, event, other, grader)
        assert refused(look, event, name(SECRET), other)
        assert not refused(look, event, other, name(tmp_path / "new.txt"))
    for event in ("os.remove", "os.rmdir", "os.truncate", "os.chmod"):
        for path in (grader, library, mine, name(SECRET), name(FOLDER.parent)):
            assert refused(look, event, path), path
        assert not refused(look, event, other)
    for path in (grader, library, other, mine):
        assert not refused(look, "open", path, "r", os.O_RDONLY)
        assert refused(look, "open", path, "w", 0) is (path != other)
    assert not refused(look, "open", 3, "w", os.O_WRONLY)
    assert refused(look, "open", Path(SECRET), "r", 0)


def test_the_file_that_is_graded_may_be_read_wherever_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Somebody who grades the solutions, for a trial, gets no other answer."""
    hooks: list[Look] = []
    monkeypatch.setattr(guard.sys, "addaudithook", hooks.append)
    monkeypatch.setitem(sys.modules, "_posixsubprocess", None)
    guard.close.__wrapped__(Path(SECRET))
    assert not refused(hooks[0], "open", SECRET, "r", 0)
    assert refused(hooks[0], "open", SECRET, "a", 0)
    assert refused(hooks[0], "open", SECRET.replace("05_softmax", "06_masks"), "r", 0)


@pytest.mark.parametrize(
    ("mode", "flags", "right"),
    [
        *((mode, 0, False) for mode in ("r", "rb", "rt", "", None)),
        *((mode, 0, True) for mode in ("w", "a", "x", "r+", "wb", "rb+", "xt")),
        *((None, flag, False) for flag in (os.O_RDONLY, os.O_EXCL)),
        *((None, os.O_EXCL | flag, True) for flag in (os.O_WRONLY, os.O_RDWR, os.O_CREAT)),
        *((None, flag, True) for flag in (os.O_TRUNC, os.O_APPEND)),
    ],
)  # fmt: skip
def test_what_writes(mode: str | None, flags: int, right: bool) -> None:
    assert guard.writes(mode, flags) is right


def test_what_is_compiled_is_kept(look: Look) -> None:
    """Up to 99 texts: a file that compiles in a loop fills no memory."""
    look("compile", ("x = 1", "a.py"))
    look("compile", (b"\xff y = 2", "a.py"))
    look("compile", (None, "a.py"))  # a tree
    look("exec", ("z = 3",))
    assert guard.texts == ["x = 1", " y = 2"]
    for i in range(120):
        look("compile", (f"{i}", "a.py"))
    assert guard.texts[2:] == [str(i) for i in range(97)]


def test_secret_places() -> None:
    graders, tests = guard.GRADERS, guard.TESTS
    assert tests.endswith("/tests")
    for path, right in {
        f"{graders}/test_05_softmax.py": True,
        f"{graders}/test_": True,
        f"{graders}/black_boxes.py": True,
        f"{graders}/black_boxes_py": False,
        f"{graders}/my_test_05.py": False,
        f"{graders}/sub/test_05.py": False,
        f"{graders}/solutions": True,
        f"{graders}/solutions_of_mine": False,
        f"{tests}": True,
        f"{tests}/docs/exercises.py": True,
        f"{tests}2/a.py": False,
        "/home/ann/exercises/solutions/ex_05.py": True,
        "/home/ann/exercises/old/solutions/ex_05.py": False,
        "/home/ann/solutions/exercises/ex_05.py": False,
        "/home/ann/.git/HEAD": True,
        "/home/ann/.git": True,
        "/home/ann/.github/a.yml": False,
        "/home/ann/test_05_softmax.py": False,
    }.items():
        assert guard.is_secret(path, path) is right, path
    for given, right in {
        "solutions/ex_05.py": True,
        "Solutions": True,
        "my/solutions/a": False,
        "solutions_2": False,
    }.items():
        assert guard.is_secret(given, "/home/ann/there") is right, given


def test_a_place_is_what_a_path_leads_to(tmp_path: Path) -> None:
    (tmp_path / "Real").mkdir()
    real = os.path.realpath(tmp_path).replace(os.sep, "/").casefold()
    assert guard.place_of(tmp_path / "Real" / ".." / "REAL" / "A.py") == f"{real}/real/a.py"
    assert list(guard.paths((b"a/b", Path("c"), "d", 3, None))) == ["a/b", "c", "d"]


NEEDED = {
    *("__future__", "abc", "black_boxes", "bisect", "collections", "copy", "dataclasses", "enum"),
    *("fractions", "functools", "heapq", "itertools", "math", "matplotlib", "numba", "numpy"),
    *("operator", "random", "re", "scipy", "statistics", "string", "time", "tinyattn", "typing"),
}
BEHIND = {"__builtins__", "__dict__", "__globals__", "__subclasses__", "_getframe", "os", "sys"}
REACHING = {"__builtins__", "__import__", "delattr", "eval", "exec", "globals", "open", "setattr"}
REACHING |= {"vars"}


def test_every_name_by_which_a_grader_is_reached() -> None:
    """And every module that reaches none."""
    for name in NEEDED:
        for text in (f"import {name}", f"import {name}.a as b", f"from {name}.a import b"):
            assert written.reaching(text) == [], text
    for name in ("os", "sys", "pytest", "grading", "gc", "inspect", "importlib", "builtins"):
        for text in (f"import {name}", f"import {name}.a as b", f"from {name}.a import b"):
            assert written.reaching(text) == [name], text
    for name in REACHING:
        assert written.reaching(f"x = {name}") == [name]
        assert written.reaching(f"x = y.{name}") == ([f"y.{name}"] if name in BEHIND else [])
    for name in BEHIND:
        assert written.reaching(f"x.y.{name}(1)") == [f"x.y.{name}"]
    assert written.reaching("import re, os, gc; vars()") == ["gc", "os", "vars"]
    assert written.reaching("from .. import a\nfrom .b import c") == [".", "b"]
    changes = "import numpy.linalg as l, math\nfrom re import sub as s\n{} = 1"
    for name in ("l.a", "math.b", "s.c"):
        assert written.reaching(changes.format(name)) == [name]
        assert written.reaching(f"{changes.format('x')}\ndel {name}") == [name]
        assert written.reaching(changes.format("x") + f"\ny = {name}") == []
    for name in ("numpy.a", "re.b", "sub.c", "x.math"):  # these are names of something else
        assert written.reaching(changes.format(name)) == []
    assert written.reaching("import a.b\na.c = 1") == ["a", "a.c"]


def test_holes_that_are_left(tmp_path: Path) -> None:
    hole = "    raise NotImplementedError\n"
    text = (
        f"async def f():\n    'Words.'\n{hole}\nclass A:\n    x = 1\n    def g(self):\n    {hole}"
    )
    assert written.holes(text) == ["f", "A.g"]
    assert written.holes(f"def f():\n    1\n{hole}") == []
    assert written.holes(f"def f():\n    super().__init__()\n{hole}") == ["f"]
    assert written.holes(f"def f():\n    super().f()\n{hole}") == []
    for last in ("def f():\n    return 1", "f = len", "class f:\n    def g(self):\n        1"):
        assert written.holes(f"def f():\n{hole}{last}") == []  # the last of a name counts
    assert written.holes(f"f = len\ndef f():\n{hole}") == ["f"]
    assert written.holes(f"{text}class A:\n    def h(self):\n        return 1") == ["f"]
    assert written.holes(f"def f():\n    def g():\n    {hole}    return g") == []
    assert written.holes("def f():\n    raise a.NotImplementedError") == []
    assert written.holes("def f():\n    raise") == []
    assert written.holes(f"def f():\n{hole}    return 1") == []
    path = tmp_path / "ex_05_softmax.py"
    assert written.text_of(path) == ""
    assert written.unwritten(path) == ([], False)
    for names, right in (
        (["softmax", "softmax_backward"], True),
        (["softmax", "mine", "softmax_backward"], True),
        (["softmax_backward"], False),
        (["mine"], False),
        ([], False),
    ):
        path.write_text("".join(f"def {name}():\n{hole}" for name in names), "utf-8")
        assert written.unwritten(path) == ([name for name in names if name != "mine"], right)
    path.write_bytes(b"\xef\xbb\xbfx = '\xff'")
    assert written.text_of(path) == "x = '�'"


FUNCTION = "def f(a, b):\n    c = a + len(b)\n    return c * a"


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        ("@cached\ndef g(x: int, y: str = z) -> int:\n    c = x + len(y)\n    return c * x", False),
        (
            "@a\ndef g(x: int, y: A) -> int:\n    'W.'\n    d: int = x + len(y)\n    return d * x",
            True,
        ),
        ("class A:\n    def f(a, b):\n        a2 = a + len(b)\n        return a2 * a", True),
        ("def f(a, b):\n    c = a + max(b)\n    return c * a", False),
        ("def f(a, b):\n    c = a + length(b)\n    return c * a", False),
        ("def f(a, b):\n    c = b + len(a)\n    return c * b", False),
        ("def f(a, b):\n    c = a + len(b)\n    return c * b", False),
        ("def f(a, b):\n    c = a - len(b)\n    return c * a", False),
        ("def f(a, b):\n    c: int\n    c = a + len(b)\n    return c * a", False),
        ("x = 1", False),
    ],
)
def test_a_function_is_the_same_if_only_names_and_words_differ(other: str, is_same: bool) -> None:
    assert (written.shapes(other) == written.shapes(FUNCTION)) is is_same
    assert written.shapes(f"{FUNCTION}\n{other}") == written.shapes(FUNCTION) | written.shapes(
        other
    )


def test_a_body_of_words_alone_is_one_that_passes() -> None:
    assert written.shapes("def f(:") == set()
    assert written.shapes("def f():\n    'W.'") == written.shapes("def g():\n    pass")
    declared = written.shapes("def f():\n    a: int\n    return 1")
    assert declared == written.shapes("def f():\n    pass\n    return 1")


def test_all_that_the_solution_adds_has_to_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(written, "FOLDER", tmp_path)
    (tmp_path / "solutions").mkdir()
    given = "def given():\n    return 7\n"
    first, second = "def f():\n    return 1\n", "def g():\n    return 2\n"
    (tmp_path / "ex_1.py").write_text(given, "utf-8")
    (tmp_path / "solutions" / "ex_1.py").write_text(given + first + second, "utf-8")
    for texts, right in (
        ([first + second], True),
        (["", second + given + first], True),
        ([first, second], False),
        ([given + first], False),
        ([given], False),
        ([], False),
    ):
        assert written.is_the_solution("ex_1.py", texts) is right
    (tmp_path / "solutions" / "ex_1.py").write_text(given, "utf-8")
    assert written.is_the_solution("ex_1.py", [given]) is False
    assert written.is_the_solution("ex_2.py", [given]) is False
