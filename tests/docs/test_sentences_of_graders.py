"""Each function of grading.py, which all graders share: its sentences, whole, and its limits."""

from __future__ import annotations

import io
import os
import re
import runpy
import sys
import warnings
from pathlib import Path
from typing import Any

import grading
import numpy as np
import pytest
from exercises import english  # noqa: F401

TRANSPOSE = "; one has the shape of the other's transpose: is a .T missing, or too many?"
PRODUCT = "; * multiplies number by number: the product of matrices is A @ B"
PAIRS = "; for all pairs of rows, give the first an axis more: {}[:, None]"
KEEP = "; if one is a sum or a maximum of rows, keep its axis with keepdims=True"
SUMS = "; np.diag and np.outer are for one row: here are many, so use sums of rows"
LENGTHS = "; lengths (B,) need axes: write lengths[:, None, None]"
# A line of a student, and what is said after the words of NumPy.
HINTS = {
    "np.ones((2, 3)) @ np.ones((4, 5))": "; is a .T missing, or is one too many?",
    "np.ones((2, 3, 4)).transpose(1, 2)": "; transpose of NumPy takes all axes: swapaxes(1, 2) "
    "exchanges two of them",
    "targets = 5; np.ones(3)[targets]": "; [targets] takes whole rows: p[np.arange(N), targets] "
    "takes one number of each row",
    "other = 5; np.ones(3)[other]": "",
    "targets = 'a'; {}[targets]": "",  # no IndexError
    "np.ones((2, 3)) + np.diag(np.ones(2))": SUMS,
    "np.ones((2, 3)) * np.outer(np.ones(3), np.ones(2))": SUMS,
    "lengths = np.ones(2); np.arange(5) < lengths": LENGTHS,
    "x = np.ones(2); np.arange(5) < len(x) * x": "",
    "np.ones((2, 3)) + np.ones((3, 2))": TRANSPOSE,
    "a, b = np.ones((2, 3)), np.ones((3, 2)); a * b": TRANSPOSE,
    "a, b = np.ones((2, 3)), np.ones((3, 4)); a * b": PRODUCT,
    "a, b = np.ones((2, 3)), np.ones((3, 4)); a + b": "",
    "a, b = np.ones((2, 3)), np.ones((4, 3)); a - b": PAIRS.format("a"),
    "a, bb = np.ones((2, 3)), np.ones((4, 3)); bb * a": PAIRS.format("bb"),
    "a, b = np.ones((2, 3)), np.ones((4, 3)); b + a": PAIRS.format("b"),
    "a, b = np.ones((2, 3)), np.ones((4, 3)); b / a": PAIRS.format("b"),
    "np.add(np.ones((2, 3)), np.ones((4, 3)))": PAIRS.format("a"),
    "np.ones((2, 3)) - np.ones(2)": KEEP,
    "np.ones(2) - np.ones((2, 3))": KEEP,
    "np.ones((4, 2, 3)) - np.ones((4, 2))": KEEP,
    "np.ones((4, 2, 3)) - np.ones(2)": "",
    "np.ones((4, 2, 3)) - np.ones((3, 2, 4))": "",
    "np.ones(2) - np.ones(3)": "",
}
MATMUL = "in A @ B, the columns of A are 3 and the rows of B are 4"


@pytest.mark.parametrize("number", range(len(HINTS)))
def test_every_error_of_numpy_has_its_hint(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the error and its line, which is the last one of the student."""
    line, hint = list(HINTS.items())[number]
    monkeypatch.setattr(grading, "FOLDER", tmp_path)
    text = f"import numpy as np\n\n\ndef inner():\n    {line}\n\n\ndef f():\n    inner()\n"
    (tmp_path / "ex_05_softmax.py").write_text(text, "utf-8")
    yours = grading.exercise("ex_05_softmax")
    with pytest.raises(Exception) as error:  # noqa: PT011
        yours.f()
    words = MATMUL if "@" in line else str(error.value).strip()
    with pytest.raises(pytest.fail.Exception) as caught:
        grading.run(yours.f)
    kind = type(error.value).__name__
    assert str(caught.value) == f"f raised {kind}: {words}, in line 5: {line}{hint}"
    assert caught.value.pytrace is False


def f_of(body: str) -> Any:
    names: dict[str, Any] = {}
    exec(f"import numpy as np\ndef f(*a, **b):\n    {body}\n", names)
    return names["f"]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("pass", "f returns nothing: end it with a return"),
        ("raise NotImplementedError", "f is not written yet"),
        ("exit()", "f ends Python: write return, not exit() or quit()"),
        ("raise ValueError(' a\\n b ')", "f raised ValueError: a\n b"),
        (
            "raise OSError('reading from stdin!')",
            "f calls input(), but nobody answers a test: remove it",
        ),
    ],
)
def test_every_way_to_fail_has_its_sentence(body: str, sentence: str) -> None:
    with pytest.raises(pytest.fail.Exception) as caught:
        grading.run(f_of(body))
    assert str(caught.value) == sentence


def test_a_function_gets_its_arguments_and_numpy_warns_nobody() -> None:
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        right = ((1, 2), {"c": 3})
        assert grading.run(f_of("np.ones(1) / np.zeros(1); return a, b"), 1, 2, c=3) == right
        assert grading.run(f_of("np.mean([]); return 0")) == 0
        with pytest.raises(FloatingPointError):
            np.ones(1) / np.zeros(1)
        with pytest.raises(pytest.fail.Exception, match="UserWarning: mine"):
            grading.run(f_of("import warnings; warnings.warn('mine')"))


@pytest.mark.parametrize("name", ["backward", "kernel", "resume", "save", "loss", "other"])
def test_some_functions_return_nothing(name: str) -> None:
    function = f_of("return None")
    function.__name__ = name
    if name in {"backward", "kernel", "resume", "save"}:
        assert grading.run(function) is None
    else:
        with pytest.raises(pytest.fail.Exception, match=f"^{name} returns nothing"):
            grading.run(function)

    class Nameless:
        def __call__(self) -> None:
            pass

    with pytest.raises(pytest.fail.Exception, match=r"^it returns nothing: end it with a return$"):
        grading.run(Nameless())


def test_two_arrays_are_close_if_their_shapes_are_equal_too() -> None:
    assert grading.close([1.0, 2.0], np.array([1, 2]))
    assert not grading.close([[1.0]], [1.0])
    assert not grading.close(1.0, [1.0])
    assert grading.close(0.9e-7, 0.0)
    assert not grading.close(1.1e-7, 0.0)
    assert grading.close(1000 + 0.9e-4, 1000.0)  # 1e-7 of the right number
    assert not grading.close(1000 + 1.1e-4, 1000.0)
    assert grading.close([0.9e-3], [0.0], 1e-3)
    assert not grading.close([1.1e-3], [0.0], tolerance=1e-3)
    assert not grading.close(1.0009, 1000.0, 1e-3)
    assert not grading.close(np.nan, np.nan)
    assert grading.close(np.inf, np.inf)


def test_finite_differences_go_one_step_of_a_millionth_to_each_side() -> None:
    x, asked = np.array([[1.0, -2.0], [0.5, 3.0]]), []
    kept, cotangent = x.copy(), np.array([2.0, -1.0])

    def function(x: np.ndarray) -> np.ndarray:
        asked.append(x - kept)
        return np.array([(x**2).sum(), x[0, 0] * x[1, 1]])

    found = grading.finite_differences(function, x, cotangent)
    right = 4 * x - np.array([[x[1, 1], 0], [0, x[0, 0]]])
    np.testing.assert_allclose(found, right, atol=1e-8)
    np.testing.assert_array_equal(x, kept)
    steps = [sign * 1e-6 * np.eye(4)[i].reshape(2, 2) for i in range(4) for sign in (1, -1)]
    np.testing.assert_allclose(asked, steps, atol=1e-12)


def test_a_test_that_needs_another_one_is_skipped_or_is_not_written() -> None:
    called = []

    def fails(sentence: str) -> Any:
        return lambda: grading.expect(False, sentence)

    grading.needs()
    grading.needs(lambda: called.append(1), lambda: called.append(2))
    assert called == [1, 2]
    with pytest.raises(pytest.skip.Exception) as skipped:
        grading.needs(lambda: None, fails("wrong"), lambda: called.append(3))
    assert str(skipped.value) == "not judged yet, because another test fails: mend that first"
    with pytest.raises(pytest.fail.Exception, match=r"^f is not written yet \(hint\)$"):
        grading.needs(fails("f is not written yet (hint)"))
    with pytest.raises(ZeroDivisionError):
        grading.needs(lambda: 1 / 0)
    assert called == [1, 2]
    grading.expect([0], "said if it is empty")
    for nothing in ([], 0, None, False):
        with pytest.raises(pytest.fail.Exception) as failed:
            grading.expect(nothing, "said if it is empty")
        assert (str(failed.value), failed.value.pytrace) == ("said if it is empty", False)


class Timer:
    """A stand-in for the clock, which a test lets ring."""

    all: list[Timer]

    def __init__(self, seconds: float, function: Any) -> None:
        self.seconds, self.function, self.daemon = seconds, function, False
        self.seen: list[object] = []
        self.all.append(self)

    def start(self) -> None:
        self.seen.append(("start", self.daemon))

    def cancel(self) -> None:
        self.seen.append("cancel")


def test_a_grader_in_which_a_loop_did_not_end_waits_for_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Timer, "all", [], raising=False)
    monkeypatch.setattr(grading, "endless", {"ex_other"})
    monkeypatch.setattr(grading.threading, "Timer", Timer)
    monkeypatch.setattr(grading, "SECONDS", 60.5)

    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(grading._thread, "interrupt_main", interrupt)
    for seconds in ("60.5", "5"):
        with pytest.raises(pytest.fail.Exception) as caught, grading.limited("ex_1"):
            Timer.all[-1].function()  # it rings
        sentence = f"no end after {seconds} seconds (a loop without end?)"
        assert (str(caught.value), caught.value.pytrace) == (sentence, False)
        assert caught.value.__suppress_context__
        assert grading.endless == {"ex_1", "ex_other"}
    with pytest.raises(KeyboardInterrupt), grading.limited("ex_2"):
        interrupt()  # by somebody who presses Ctrl-C
    with pytest.raises(ZeroDivisionError), grading.limited("ex_2"):
        1 / 0  # noqa: B018
    monkeypatch.setattr(grading, "SECONDS", 2.0)
    for name in ("ex_1", "ex_2"):
        with grading.limited(name):
            assert Timer.all[-1].seen == [("start", True)]
    assert [alarm.seconds for alarm in Timer.all] == [60.5, 5, 60.5, 60.5, 2, 2]
    assert all(alarm.seen == [("start", True), "cancel"] for alarm in Timer.all)
    assert grading.endless == {"ex_1", "ex_other"}


def test_an_exercise_is_read_with_what_windows_writes_and_guarded_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grading, "FOLDER", tmp_path)
    path, closed = tmp_path / "ex_1_a.py", []
    monkeypatch.setattr(grading.guard, "close", closed.append)
    path.write_bytes(b"\xef\xbb\xbfx = '\xc3\xa9'\r\nname = __name__\r\n")
    for guarded in (False, True):
        monkeypatch.setattr(grading, "GUARDED", guarded)
        grading.said.add("a sentence")
        yours = grading.exercise("ex_1_a")
        assert (yours.x, yours.name, yours.__name__) == ("é", "ex_1_a", "ex_1_a")
        assert closed == [path] * guarded
        assert grading.said == set()
    assert not hasattr(yours, "__file__")  # as hasattr and copy ask for it
    for name, kind in (("relu", "function"), ("Tensor", "class"), ("_X", "function")):
        with pytest.raises(pytest.fail.Exception) as caught:
            getattr(yours, name)
        assert str(caught.value) == f"ex_1_a.py has no {kind} {name}"
    for text, sentence in {
        b"exit()": "ex_1_a.py ends Python when it is read: remove exit() or quit()",
        b"\n\n1 / 0": "ex_1_a.py raised ZeroDivisionError when it was read: division by zero, "
        "in line 3: 1 / 0",
        b"x = (1,\n": "Python cannot read ex_1_a.py, line 1: '(' was never closed: x = (1,",
        b"\n# \xff": "ex_1_a.py is not in UTF-8, see line 2: save it with this encoding, which the "
        "editor offers at Save As",
    }.items():
        path.write_bytes(text)
        with pytest.raises(pytest.fail.Exception) as caught:
            grading.exercise("ex_1_a")
        assert (str(caught.value), caught.value.pytrace) == (sentence, False)


@pytest.mark.parametrize(
    ("files", "renamed"),
    [
        (["EX_05_SOFTMAX.py"], "EX_05_SOFTMAX.py"),
        (["ex05_softmax.py", "ex_05_softmx.py"], "ex_05_softmx.py"),  # the nearest
        (["ex_5_softmax.py", "notes.txt"], "ex_5_softmax.py"),
        (["ex5.py"], None),
        (["x_05_softmax.py", "my_ex_05_softmax.py"], None),  # does not begin like an exercise
        (["ex__5_softmax.py"], None),
        (["ex_05_softmax.txt"], None),
        (["ex_06_masks.py"], None),
        ([], None),
    ],
)  # fmt: skip
def test_a_missing_file_is_one_to_rename_or_to_write(
    files: list[str], renamed: str | None, tmp_path: Path
) -> None:
    for name in files:
        (tmp_path / name).write_text("", "utf-8")
    right = f"there is no file ex_05_softmax.py in the folder {tmp_path}"
    if renamed:
        right = f"rename {renamed} to ex_05_softmax.py in the folder {tmp_path}"
    assert grading.missing_file(tmp_path, "ex_05_softmax") == right
    (tmp_path / "ex_05_softmax.py").mkdir()
    assert grading.missing_file(tmp_path, "ex_05_softmax") == right
    (tmp_path / "ex_05_softmax.py").rmdir()
    (tmp_path / "ex_05_softmax.py").write_text("", "utf-8")
    assert grading.missing_file(tmp_path, "ex_05_softmax") == ""


def test_what_the_environment_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("TINYATTN_EXERCISES", "TINYATTN_SECONDS", "TINYATTN_GUARDED")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    read = runpy.run_path(grading.__file__)
    assert [read[x] for x in ("FOLDER", "SECONDS", "GUARDED")] == [
        Path(grading.__file__).parent, 60, False,
    ]  # fmt: skip
    for name, value in zip(names, (str(tmp_path / "no"), "2.5", ""), strict=True):
        monkeypatch.setenv(name, value)
    read = runpy.run_path(grading.__file__)
    assert [read[x] for x in ("FOLDER", "SECONDS", "GUARDED")] == [tmp_path / "no", 2.5, True]
    sentence = f"there is no folder {tmp_path / 'no'}, which TINYATTN_EXERCISES names"
    assert read["missing_folder"]() == sentence
    (tmp_path / "no").mkdir()
    assert read["missing_folder"]() == ""


def test_signs_that_an_encoding_lacks_are_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = [io.TextIOWrapper(io.BytesIO(), "ascii", write_through=True) for _ in range(2)]
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    grading.print_in_any_encoding()
    for stream in streams:
        stream.write("a√")
        assert stream.buffer.getvalue() == b"a\\u221a"
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    grading.print_in_any_encoding()


def test_a_sentence_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grading, "said", {"c"})
    assert [grading.say_once(x) for x in ("a", "b", "a", "c")] == ["a", "b", "", ""]


def test_the_line_of_an_error_is_the_last_one_of_your_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grading, "FOLDER", tmp_path)
    (tmp_path / "sub").mkdir()

    def function(path: Path, text: str, **names: Any) -> Any:
        path.write_text(text, "utf-8")
        exec(compile(text, str(path), "exec"), names)
        return names["f"]

    helper = function(tmp_path / "other.py", "def f():\n    return 1 / 0\n")
    below = function(tmp_path / "sub" / "ex_1.py", "def f():\n    return g()\n", g=helper)
    own = function(tmp_path / "ex_1.py", "\ndef f():\n    # one\n    return g(  )\n", g=below)
    for call, right, place in (
        (own, (4, "return g(  )"), ", in line 4: return g(  )"),
        (below, (0, ""), ""),
    ):
        with pytest.raises(ZeroDivisionError) as caught:
            call()
        assert grading.line_of(caught.value) == right
        assert grading.place_of(caught.value) == place


def test_every_text_of_a_catalogue_is_read() -> None:
    for name in ("messages", "texts"):
        text = (Path(grading.__file__).parent / "zh_CN" / f"{name}.po").read_text("utf-8")
        entries = len(re.findall("^msgid ", text, re.M)) - 1  # the first is the header
        found = grading.catalogue(name)
        assert len(found) == entries
        assert "" not in found
        assert all(isinstance(x, str) and x for x in found.values())
        assert grading.catalogue(name) is found
    assert os.environ["LANGUAGE"] == "en"
    assert all(grading.say(sentence) == sentence for sentence in grading.catalogue("messages"))
