"""Each function of score.py, student_copy.py and in_chinese.py, with stand-ins for the graders."""

from __future__ import annotations

import io
import json
import os
import runpy
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

import grading
import in_chinese
import pytest
import score as card
import student_copy
from exercises import EXERCISES, FOLDER, english  # noqa: F401

Card = card.Card
HOLE = "f is not written yet"


@pytest.mark.parametrize(
    ("failed", "passed", "right"),
    [
        ([], 3, "passed"),
        ([], 0, "no test was run"),
        ([HOLE, HOLE], 0, "not begun"),
        ([HOLE], 1, "1 test fails"),
        ([HOLE, "wrong"], 0, "2 tests fail"),
        (["there is no file ex_1.py in the folder a"], 0, "the file is missing"),
        ([HOLE, "there is no file ex_1.py in the folder a"], 2, "the file is missing"),
        (["rename a to b"], 0, "1 test fails"),
        (["wrong", "wrong", "other"], 9, "3 tests fail"),
    ],
)
def test_the_result_of_each_card(failed: list[str], passed: int, right: str) -> None:
    one = Card(failed, passed, ["text"])
    assert one.result() == right
    says = [text for i, text in enumerate(failed) if text not in failed[:i]]
    assert one.as_json() == {"passed": right == "passed", "result": right, "says": says}
    assert vars(one) == {"failed": failed, "passed": passed, "texts": ["text"]}
    assert vars(Card()) == {"failed": [], "passed": 0, "texts": []}


def test_a_card_counts_calls_that_pass_and_everything_that_fails() -> None:
    one = Card()
    reports = [
        (failed, passed, when)
        for failed, passed in ((True, False), (False, True), (False, False))
        for when in ("setup", "call", "teardown")
    ]
    for failed, passed, when in reports:
        report: Any = types.SimpleNamespace(
            failed=failed, passed=passed, when=when, longreprtext=f"fails at {when}"
        )
        one.pytest_runtest_logreport(report)
    assert one.failed == ["fails at setup", "fails at call", "fails at teardown"]
    assert one.passed == 1
    whole: Any = types.SimpleNamespace(failed=True, passed=False, longreprtext="cannot be read")
    one.pytest_collectreport(whole)
    assert one.failed[3:] == ["cannot be read"]


def test_a_grader_runs_without_a_cache_and_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = []

    def main(options: list[str], plugins: list[Any]) -> None:
        print("dots of pytest")
        plugins[0].passed = 4
        seen.append(options)

    monkeypatch.setattr(card.pytest, "main", main)
    monkeypatch.setattr(card, "texts", ["compiled"])
    found = card.graded("05_softmax")
    assert (found.passed, found.texts, capsys.readouterr().out) == (4, ["compiled"], "")
    file = str(FOLDER / "test_05_softmax.py")
    assert seen == [["-q", "-p", "no:cacheprovider", "--continue-on-collection-errors", file]]


@pytest.mark.parametrize(
    ("answer", "is_late", "failed", "passed"),
    [
        ('{"failed": ["wrong"], "passed": 2, "texts": ["t"]}', False, ["wrong"], 2),
        ('{"failed": [], "passed": 3, "texts": []}', True, [], 3),
        ("", True, ["not graded after 9.5 seconds: a loop without end?"], 0),
        ("", False, ["Python ended with code 6 before this was graded"], 0),
        ("5", False, ["Python ended with code 6 before this was graded"], 0),
        ('{"else": 1}', False, ["Python ended with code 6 before this was graded"], 0),
        ("no JSON", False, ["Python ended with code 6 before this was graded"], 0),
    ],
    ids=["wrong", "late but whole", "late", "ended", "number", "other keys", "no json"],
)
def test_an_exercise_is_graded_in_a_process_with_half_its_time_for_a_test(
    answer: str,
    is_late: bool,
    failed: list[str],
    passed: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time begins when Python and pytest are loaded."""
    seen: list[Any] = []

    class Answers(io.StringIO):
        def readline(self, *_: Any) -> str:
            seen.append("readline")
            return super().readline()

    class Process:
        def __init__(self, command: list[str], **options: Any) -> None:
            seen.append((command, options))
            self.stdout = Answers(f"loaded\n{answer}\n")

        def kill(self) -> None:
            seen.append("kill")

        def wait(self) -> int:
            seen.append("wait")
            return 6

    class Timer:
        def __init__(self, seconds: float, function: Any) -> None:
            self.finished = threading.Event()
            seen.append(seconds)
            self.function = function

        def start(self) -> None:
            seen.append("start")
            if is_late:
                self.function()
                self.finished.set()

        def cancel(self) -> None:
            seen.append("cancel")

    monkeypatch.setattr(card.subprocess, "Popen", Process)
    monkeypatch.setattr(card, "threading", types.SimpleNamespace(Timer=Timer))
    monkeypatch.setenv("SOMETHING_ELSE", "kept")
    found = card.graded_alone("05_softmax", tmp_path, 9.5)
    assert (found.failed, found.passed) == (failed, passed)
    assert found.texts == (["t"] if passed == 2 else [])
    command, options = seen.pop(0)
    assert command == [sys.executable, card.__file__, "--alone", "05_softmax"]
    env = {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "TINYATTN_EXERCISES": str(tmp_path),
        "TINYATTN_GUARDED": "1",
        "TINYATTN_SECONDS": "4.75",
    }
    right = {"env": {**os.environ, **env}, "stdout": subprocess.PIPE, "encoding": "utf-8"}
    assert options == right
    rung = ["kill"] if is_late else []
    assert seen == [9.5, "readline", "start", *rung, "readline", "wait", "cancel"]


def test_only_what_is_begun_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, result = [], Card([], 5)

    def graded_alone(*how: Any) -> Any:
        asked.append(how)
        return result

    monkeypatch.setattr(card, "graded_alone", graded_alone)
    name, path = "05_softmax", tmp_path / "ex_05_softmax.py"
    missing = card.card_of(name, tmp_path, 3)
    assert missing.failed == [f"there is no file ex_{name}.py in the folder {tmp_path}"]
    starter = (FOLDER / path.name).read_text("utf-8")
    path.write_text(starter, "utf-8")
    holes = [f"{x} is not written yet" for x in ("softmax", "softmax_backward")]
    assert card.card_of(name, tmp_path, 3).failed == holes
    assert asked == []
    path.write_text(starter.replace("raise NotImplementedError", "return 1", 1), "utf-8")
    half = card.card_of(name, tmp_path, 3)
    assert (half.failed, half.passed) == (holes[1:], 0)  # whatever its own file has done
    result = Card(["wrong"], 1)
    assert card.card_of(name, tmp_path, 3) is result
    path.write_text("class A:\n    def f(self):\n        raise NotImplementedError\n", "utf-8")
    result = Card([], 1)
    assert card.card_of(name, tmp_path, 4) is result  # f is no hole of this exercise
    path.write_text("x = 1\n", "utf-8")
    assert card.card_of(name, tmp_path, 4) is result
    assert asked == [(name, tmp_path, seconds) for seconds in (3, 3, 4, 4)]


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card, "NAMES", ["05_softmax", "06_masks"])


@pytest.mark.usefixtures("two")
def test_the_report_of_a_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the folders, each exercise with what its own card says."""
    ada, ben, none = (tmp_path / name for name in ("ada", "ben", "none"))
    for folder in (ada, ben):
        folder.mkdir()
        (folder / "ex_05_softmax.py").write_text(f"{folder.name}_5 = 1", "utf-8")
        (folder / "ex_06_masks.py").write_text(f"{folder.name}_6 = 1", "utf-8")
    asked, read = [], []

    def card_of(name: str, folder: Path, seconds: float) -> Any:
        asked.append((name, folder, seconds))
        if folder == ada:
            return Card([], 2, ["compiled"])
        return Card([f"{name} is wrong"], 0) if name == "06_masks" else Card([HOLE], 0)

    def is_the_solution(name: str, texts: list[str]) -> bool:
        read.append((name, texts))
        return "compiled" in texts and name == "ex_06_masks.py"

    monkeypatch.setattr(card, "card_of", card_of)
    monkeypatch.setattr(card, "is_the_solution", is_the_solution)
    monkeypatch.setattr(card, "reaching", lambda text: ["os"] if text == "ben_6 = 1" else [])
    found = card.reports([ben, none, ada], 8.0)
    assert sorted(asked) == [
        (name, folder, 8.0) for name in ("05_softmax", "06_masks") for folder in (ada, ben)
    ]
    right = {"passed": True, "result": "passed", "says": []}
    assert found == [
        {
            "folder": str(ben),
            "passed": 0,
            "of": 2,
            "as_in_the_solution": [],
            "to_read": {"06_masks": ["os"]},
            "exercises": {
                "05_softmax": {"passed": False, "result": "not begun", "says": [HOLE]},
                "06_masks": {
                    "passed": False, "result": "1 test fails", "says": ["06_masks is wrong"],
                },
            },
        },
        {"folder": str(none), "error": f"there is no folder {none}"},
        {
            "folder": str(ada),
            "passed": 2,
            "of": 2,
            "as_in_the_solution": ["06_masks"],
            "to_read": {},
            "exercises": {"05_softmax": right, "06_masks": right},
        },
    ]  # fmt: skip
    (ben / "ex_05_softmax.py").rename(ben / "softmax.py")
    (ben / "ex_06_masks.py").unlink()
    words = f"{ben} has no exercise, no file ex_*.py: name the folder of one student"
    assert card.problem_of(ben) == words
    assert read == [
        ("ex_05_softmax.py", ["ben_5 = 1"]),
        ("ex_06_masks.py", ["ben_6 = 1"]),
        ("ex_05_softmax.py", ["ada_5 = 1", "compiled"]),
        ("ex_06_masks.py", ["ada_6 = 1", "compiled"]),
    ]
    assert [card.is_fine(one) for one in found] == [False, False, True]


CARDS: list[dict[str, Any]] = [
    {
        "folder": "a",
        "passed": 1,
        "of": 2,
        "as_in_the_solution": ["05_softmax", "06_masks"],
        "to_read": {"05_softmax": ["os", "sys"], "06_masks": ["vars"]},
        "exercises": {
            "05_softmax": {"result": "passed"}, "06_masks": {"result": "é, 2 tests fail"},
        },
    },
    {
        "folder": "b",
        "passed": 0,
        "of": 2,
        "as_in_the_solution": [],
        "to_read": {},
        "exercises": {
            "05_softmax": {"result": "not begun"}, "06_masks": {"result": "the file is missing"},
        },
    },
    {"folder": "c", "error": "there is no folder c"},
]  # fmt: skip
FIRST = """05_softmax                     passed
06_masks                       é, 2 tests fail

the text is that of the solution: 05_softmax, 06_masks

05_softmax has what no exercise needs: os, sys

06_masks has what no exercise needs: vars

1 of 2 exercises are passed
"""
SECOND = """05_softmax                     not begun
06_masks                       the file is missing

0 of 2 exercises are passed
"""
TABLE = """folder,passed,05_softmax,06_masks,as_in_the_solution,to_read,error
a,1,passed,"é, 2 tests fail",05_softmax 06_masks,05_softmax 06_masks,
b,0,not begun,the file is missing,,,
c,,,,,,there is no folder c
"""


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize(
    ("options", "asked", "seconds", "out", "status"),
    [
        ([], [0], 120, FIRST, None),  # one's own folder: a mistake is no error of the command
        (["--seconds", "7.5"], [1], 7.5, SECOND, None),
        (["a"], [0], 120, f"\na\n\n{FIRST}", 1),
        (["b"], [1], 120, f"\nb\n\n{SECOND}", None),
        (["c"], [2], 120, "\nc\n\nthere is no folder c\n", 1),
        (["b", "c", "a"], [1, 2, 0], 120, None, 1),
        (["--csv", "a", "b", "c"], [0, 1, 2], 120, TABLE, 1),
        (["--csv"], [1], 120, "\n".join(TABLE.splitlines()[::2]) + "\n", None),
        (["--json", "b"], [1], 120, None, None),
        (["--json"], [0], 120, None, None),
    ],
    ids=range(10),
)
def test_the_command_prints_every_card(
    options: list[str],
    asked: list[int],
    seconds: float,
    out: str | None,
    status: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen, cards = [], [CARDS[i] for i in asked]
    monkeypatch.setattr(card, "reports", lambda *how: seen.append(how) or cards)
    monkeypatch.setattr(card, "YOURS", tmp_path)
    monkeypatch.setattr(grading, "FOLDER", tmp_path)
    monkeypatch.setattr(card, "print_in_any_encoding", lambda: seen.append("encoding"))
    monkeypatch.setattr(sys, "argv", ["score.py", *options])
    if status is None:
        card.main()
    else:
        with pytest.raises(SystemExit) as ended:
            card.main()
        assert ended.value.code == status
    named = [Path(x) for x in options if x in "abc"] or [tmp_path]
    assert seen == ["encoding", (named, seconds)]
    printed = capsys.readouterr().out
    if "--json" in options:
        assert printed == json.dumps(cards, indent=2, ensure_ascii=False) + "\n"
    elif out is None:
        first = f"\na\n\n{FIRST}"
        assert printed == f"\nb\n\n{SECOND}\nc\n\nthere is no folder c\n{first}"
    else:
        assert printed == out


def test_the_command_that_grades_one_exercise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says first that it is loaded, at once, because the time begins then."""
    asked, given, pipe = [], Card(["é"], 2, ["t"]), io.BytesIO()

    def graded(name: str) -> Any:
        asked.append((name, pipe.getvalue()))
        return given

    monkeypatch.setattr(card, "graded", graded)
    monkeypatch.setattr(sys, "argv", ["score.py", "--alone", "06_masks"])
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", io.TextIOWrapper(pipe, newline="\n"))
        card.main()
        right = b'{"failed": ["\\u00e9"], "passed": 2, "texts": ["t"]}\n'
        assert pipe.getvalue() == b"loaded\n" + right
    assert asked == [("06_masks", b"loaded\n")]
    monkeypatch.setattr(grading, "FOLDER", tmp_path / "no")
    monkeypatch.setattr(sys, "argv", ["score.py"])
    with pytest.raises(SystemExit) as ended:
        card.main()
    assert str(ended.value) == (
        f"there is no folder {tmp_path / 'no'}, which TINYATTN_EXERCISES names"
    )
    for wrong in (["--alone", "x"], ["--csv", "--json"], ["--seconds", "x"]):
        monkeypatch.setattr(sys, "argv", ["score.py", *wrong])
        with pytest.raises(SystemExit) as ended:
            card.main()
        assert ended.value.code == 2
    assert card.NAMES == EXERCISES


def reported(*results: str) -> list[dict[str, Any]]:
    return [{"exercises": {x: {"result": y} for x, y in zip(EXERCISES, results, strict=False)}}]


def test_the_files_of_a_copy_for_students(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, and nothing else; the repository's names are those of the copy."""
    seen = []
    begun = ["not begun"] * len(EXERCISES)
    monkeypatch.setattr(student_copy, "reports", lambda *how: seen.append(how) or reported(*begun))
    folder = tmp_path / "class" / "mine"
    assert student_copy.copy(folder) == len(EXERCISES)
    assert seen == [([FOLDER], 120)]
    found = {path.name for path in folder.iterdir()}
    programs = {"conftest", "grading", "elsewhere", "guard", "in_chinese", "score", "written"}
    assert found == {
        *(f"{kind}_{name}.py" for kind in ("ex", "test") for name in EXERCISES),
        *(f"{name}.py" for name in (*programs, "black_boxes")),
        *("README.md", "README_zh.md", "zh_CN", "induction_model", "examples"),
    }
    root = FOLDER.parents[1]
    for name in ("README.md", "README_zh.md", "induction_model/model.safetensors"):
        source = root / name if "README" in name else FOLDER / name
        assert (folder / name).read_bytes() == source.read_bytes()
    examples = {
        path.relative_to(root) for path in root.glob("examples/**/*")
        if "__pycache__" not in path.parts and path.name != "record_attention.py"
    }  # fmt: skip
    copied = {path.relative_to(folder) for path in folder.glob("examples/**/*")}
    assert copied == examples
    for name in ("ex_05_softmax.py", "score.py", "zh_CN/texts.po"):
        text, right = ((x / name).read_text("utf-8") for x in (folder, FOLDER))
        assert "docs/" not in text
        assert text.count("mine/") == right.count("docs/exercises/") > 0
    with pytest.raises(FileExistsError) as error:
        student_copy.copy(folder)
    assert str(error.value) == f"{folder} exists and is not empty: name a new folder"
    with pytest.raises(FileExistsError):
        student_copy.copy(folder / "score.py")
    assert len(seen) == 1


def test_a_copy_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "mine"
    second = FOLDER / f"ex_{EXERCISES[1]}.py"
    for cards, words in (
        ([{"error": "there is no folder"}], "there is no folder"),
        (
            reported("not begun", "passed", "not begun"),
            f"{second} is begun: students would get what you have written there",
        ),
    ):
        monkeypatch.setattr(student_copy, "reports", lambda *_, cards=cards: cards)
        with pytest.raises(ValueError) as error:  # noqa: PT011
            student_copy.copy(folder)
        assert str(error.value) == words
        assert not folder.exists()
    folder.mkdir()  # an empty one is filled
    monkeypatch.setattr(student_copy, "reports", lambda *_: reported("not begun"))
    monkeypatch.setattr(student_copy, "FOLDERS", ())
    assert student_copy.copy(folder) == len(EXERCISES)
    monkeypatch.setattr(sys, "argv", ["student_copy.py", str(folder)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(student_copy.__file__, run_name="__main__")
    assert ended.value.code == f"{folder} exists and is not empty: name a new folder"


def test_the_longest_text_is_translated_first_at_every_margin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pairs = {"ab": "x", "ab cd\nef": "long\ntext", "cd\nef": "y"}
    monkeypatch.setattr(in_chinese, "catalogue", lambda name: pairs if name == "texts" else {})
    source = (
        "ab cd\nef\n    ab cd\n    ef\n        cd\n        ef\n            cd\n            ef ab"
    )
    right = "long\ntext\n    long\n    text\n        y\n            cd\n            ef x"
    assert in_chinese.in_chinese(source) == right


def test_the_command_that_translates_counts_the_files_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    starters = sorted(FOLDER.glob("ex_0[5-7]_*.py"))
    for path in starters:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    done = tmp_path / starters[0].name
    done.write_text(in_chinese.in_chinese(done.read_text("utf-8")), "utf-8")
    other = tmp_path / "my_ex_05.py"
    other.write_bytes(starters[0].read_bytes())
    monkeypatch.setattr(grading, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["in_chinese.py"])
    for changed in (2, 0):
        runpy.run_path(in_chinese.__file__, run_name="__main__")
        told = f"{tmp_path} 中各个练习的说明现在是中文（改了 {changed} 个文件）\n"
        assert capsys.readouterr().out == told
    for path in starters:
        right = in_chinese.in_chinese(path.read_text("utf-8"))
        assert (tmp_path / path.name).read_text("utf-8") == right
    assert other.read_bytes() == starters[0].read_bytes()
    monkeypatch.setattr(grading, "FOLDER", tmp_path / "no")
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(in_chinese.__file__, run_name="__main__")
    assert str(ended.value) == (
        f"there is no folder {tmp_path / 'no'}, which TINYATTN_EXERCISES names"
    )
