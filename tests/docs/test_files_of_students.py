"""A file that cannot run, never ends or lacks a name gets a sentence that says so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import grading
import pytest
from exercises import EXERCISES, FOLDER, english, score, sentences  # noqa: F401


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import numbpy", "raised ModuleNotFoundError when it was read: No module"),
        ("x = y", "raised NameError when it was read"),
        ("x = 1\n# caf\xe9", "is not in UTF-8, see line 2: save it"),
        (
            "name = input()",
            r"calls input\(\), but nobody answers a test: remove it, in line 1: name",
        ),
        ("import numpy\n\nx = [][0]", "raised .* when it was read: .*, in line 3: x = "),
    ],
)
def test_a_file_that_cannot_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    (tmp_path / "ex_06_masks.py").write_bytes(text.encode("latin-1"))
    monkeypatch.setattr(grading, "FOLDER", tmp_path)
    with pytest.raises(pytest.fail.Exception, match=f"^ex_06_masks.py {words}"):
        grading.exercise("ex_06_masks")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\n  y = = 2", "line 2: unexpected indent: y = = 2"),
        ("x = 1\ny = = 2  # two", "line 2: invalid syntax: y = = 2  # two"),
        ("raise SyntaxError('no line')", "line None: no line: "),  # nor has that of a NUL byte
    ],
)
def test_a_file_that_is_no_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    (tmp_path / "ex_06_masks.py").write_text(text)
    monkeypatch.setattr(grading, "FOLDER", tmp_path)
    with pytest.raises(pytest.fail.Exception) as caught:
        grading.exercise("ex_06_masks")
    assert str(caught.value) == f"Python cannot read ex_06_masks.py, {words}"


def test_a_result_of_another_kind_gets_a_sentence(tmp_path: Path) -> None:
    text = (FOLDER / "solutions" / "ex_00_text_to_numbers.py").read_text("utf-8")
    assert "numbers.get(word, unknown)" in text
    text = text.replace("numbers.get(word, unknown)", "numbers.get(word)")  # None
    (tmp_path / "ex_00_text_to_numbers.py").write_text(text, "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", str(FOLDER / "test_00_text_to_numbers.py")]
    run = subprocess.run(
        [*command, "-p", "no:cacheprovider"],
        env={**os.environ, "TINYATTN_EXERCISES": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 1
    assert "the grader cannot use what your code gives (TypeError: " in run.stdout
    assert "Traceback" not in run.stdout
    assert len(run.stdout.splitlines()) < 40


def own_pytest(
    name: str, folder: Path, seconds: str, *before: str
) -> subprocess.CompletedProcess[str]:
    command = [*before, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, str(FOLDER / f"test_{name}.py")],
        env={**os.environ, "TINYATTN_EXERCISES": str(folder), "TINYATTN_SECONDS": seconds},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def test_what_cannot_be_judged_is_skipped_with_a_reason(tmp_path: Path) -> None:
    solution = (FOLDER / "solutions" / "ex_22_own_language_model.py").read_text("utf-8")
    wrong = solution.replace("pieces[:, :-1], pieces[:, 1:]", "pieces[:, :-1], pieces[:, :-1]")
    (tmp_path / "ex_22_own_language_model.py").write_text(wrong, "utf-8")
    run = own_pytest("22_own_language_model", tmp_path, "60")
    assert "1 failed, 6 passed, 1 skipped" in run.stdout
    assert "not judged yet, because another test fails: mend that first" in run.stdout


def test_a_loop_without_end_is_stopped_and_its_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ex_05_softmax.py"
    sentence = "no end after 0.5 seconds (a loop without end?), in line {}: {}"
    solution = (FOLDER / "solutions" / "ex_05_softmax.py").read_text("utf-8")
    path.write_text(solution.replace("    e = np", "    while True:\n        x = 1\n    e = np"))
    run = own_pytest("05_softmax", tmp_path, "0.5")
    assert run.returncode == 1
    places = sentence.format(7, "while True:"), sentence.format(8, "x = 1")
    assert any(place in run.stdout for place in places), run.stdout
    assert "During handling" not in run.stdout
    assert "4 failed, 1 passed" in run.stdout  # softmax_backward is right
    path.write_text("while True:\n    pass\n", "utf-8")
    run = own_pytest("05_softmax", tmp_path, "0.5")
    places = sentence.format(1, "while True:"), sentence.format(2, "pass")
    assert any(place in run.stdout for place in places), run.stdout


@pytest.mark.skipif(os.name == "nt", reason="a shell of Windows ignores no interrupt")
def test_a_loop_without_end_is_stopped_in_the_background(tmp_path: Path) -> None:
    """A shell starts it there without SIGINT."""
    (tmp_path / "ex_05_softmax.py").write_text("while True:\n    pass\n", "utf-8")
    shell = "sh", "-c", "trap '' INT; exec \"$@\"", "sh"
    run = own_pytest("05_softmax", tmp_path, "0.5", *shell)
    assert "no end after 0.5 seconds (a loop without end?), in line " in run.stdout


def test_an_error_in_a_class_that_the_grader_calls_has_its_line(tmp_path: Path) -> None:
    solution = (FOLDER / "solutions" / "ex_02_an_engine.py").read_text("utf-8")
    broken = "    def __init__(self, *_, **__):\n        [][3]\n\n    def old"
    assert solution.count("    def __init__") == 1
    text = solution.replace("    def __init__", broken)
    (tmp_path / "ex_02_an_engine.py").write_text(text, "utf-8")
    run = own_pytest("02_an_engine", tmp_path, "60")
    assert re.search(r"the exercise asks for\?, in line \d+: \[\]\[3\]", run.stdout), run.stdout


def test_a_file_with_nearly_the_right_name_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grading, "FOLDER", tmp_path)
    for other in ("Ex_09_heads.py", "ex_9_heads.py", "ex_09_heads (1).py"):
        (tmp_path / other).write_text("", "utf-8")
        with pytest.raises(
            pytest.fail.Exception, match=re.escape(f"rename {other} to ex_09_heads.py in")
        ):
            grading.exercise("ex_09_heads")
        (tmp_path / other).unlink()
    (tmp_path / "ex_08_layer_norm.py").write_text("", "utf-8")
    with pytest.raises(pytest.fail.Exception, match=f"{tmp_path}$"):
        grading.exercise("ex_09_heads")


def test_a_file_that_python_cannot_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ex_06_masks.py").write_text("import numpy\n\ndef broken(:\n", "utf-8")
    monkeypatch.setattr(grading, "FOLDER", tmp_path)
    with pytest.raises(pytest.fail.Exception, match=r"cannot read ex_06_masks\.py, line 3"):
        grading.exercise("ex_06_masks")


def test_a_file_or_a_name_that_is_missing_cannot_be_graded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grading, "FOLDER", tmp_path)
    with pytest.raises(pytest.fail.Exception, match=r"there is no file ex_06_masks\.py in the"):
        grading.exercise("ex_06_masks")
    (tmp_path / "ex_09_heads.py").write_text("def split(x, num_heads):\n    return x\n", "utf-8")
    found = sentences("09_heads", tmp_path, monkeypatch)
    assert "ex_09_heads.py has no function split_heads" in found
    assert "ex_09_heads.py has no function multi_head_attention" in found
    with pytest.raises(pytest.fail.Exception, match=r"ex_09_heads\.py has no class Tensor"):
        _ = grading.exercise("ex_09_heads").Tensor


def test_a_file_may_use_an_exercise_before_it(tmp_path: Path) -> None:
    """That of the student, and not the holes beside the grader, also in the score card."""
    use = "from ex_05_softmax import softmax\n{}assert softmax(np.zeros((1, 2))).sum() == 1\n{}"
    later = f"\nsolved = masked_softmax\ndef masked_softmax(*x):\n    {use.format('    ', '    ')}"
    use = f"\n{use.format('', '')}{later}return solved(*x)\n"
    for path, more in (("ex_05_softmax.py", ""), ("ex_06_masks.py", use)):
        text = (FOLDER / "solutions" / path).read_text("utf-8")
        (tmp_path / path).write_text(text + more, "utf-8")
    run = own_pytest("06_masks", tmp_path, "60")
    assert run.returncode == 0, run.stdout
    assert re.search("^06_masks +passed$", score(tmp_path).stdout, re.M)


@pytest.mark.parametrize("place", ["above", "below", "in a branch"])
def test_a_raise_that_was_left_is_named(place: str, tmp_path: Path) -> None:
    """If something is written, "is not written yet" is not true."""
    text = (FOLDER / "solutions" / "ex_05_softmax.py").read_text("utf-8")
    start = "def softmax(x: np.ndarray) -> np.ndarray:\n"
    assert start in text
    left = {"above": "x = x * 1\n    ", "below": "", "in a branch": "if x.ndim:\n        "}[place]
    text = text.replace(start, f"{start}    {left}raise NotImplementedError\n")
    (tmp_path / "ex_05_softmax.py").write_text(text, "utf-8")
    said = own_pytest("05_softmax", tmp_path, "60").stdout
    line = 1 + text[: text.index("raise Not")].count("\n")
    sentence = "softmax still raises NotImplementedError: remove that, in line"
    assert f"{sentence} {line}: raise NotImplementedError" in said
    assert "is not written yet" not in said


def test_the_hole_is_named_and_not_who_calls_it(tmp_path: Path) -> None:
    """And an exercise of which a part is written is begun."""
    text = (FOLDER / "solutions" / "ex_02_an_engine.py").read_text("utf-8")
    head = text[: text.index("    while grad.ndim")]
    (tmp_path / "ex_02_an_engine.py").write_text(f"{head}    raise NotImplementedError\n", "utf-8")
    said = own_pytest("02_an_engine", tmp_path, "60").stdout
    assert "fit is not written yet" in said
    assert "backward is not written yet" not in said
    assert re.search("^02_an_engine +9 tests fail$", score(tmp_path).stdout, re.M)
    hole = (FOLDER / "ex_02_an_engine.py").read_text("utf-8")
    (tmp_path / "ex_02_an_engine.py").write_text(hole, "utf-8")
    assert re.search("^02_an_engine +not begun$", score(tmp_path).stdout, re.M)


@pytest.mark.parametrize("place", ["beside the grader", "beside it", "in a helper"])
def test_a_hole_in_another_file_is_named(place: str, tmp_path: Path) -> None:
    """And nobody is told to remove a raise that is not there."""
    text = (FOLDER / "solutions" / "ex_06_masks.py").read_text("utf-8")
    source = "helper" if place == "in a helper" else "ex_05_softmax"
    start = "    shown = np.where"
    assert start in text
    use = f"    from {source} import softmax\n    softmax(scores)\n"
    (tmp_path / "ex_06_masks.py").write_text(text.replace(start, use + start), "utf-8")
    hole = (FOLDER / "ex_05_softmax.py").read_text("utf-8")
    if place != "beside the grader":  # where there is one too
        (tmp_path / f"{source}.py").write_text(hole, "utf-8")
    for folder in (tmp_path, Path(os.path.relpath(tmp_path))):
        said = own_pytest("06_masks", folder, "60").stdout
        assert "softmax is not written yet" in said
        assert "masked_softmax is not written yet" not in said
        assert "still raises" not in said
