"""The score card of one folder, and of the folders of a class."""

from __future__ import annotations

import csv
import importlib
import json
import re
import shutil
from pathlib import Path

import grading
import pytest
from exercises import EXERCISES, FOLDER, english, score, sentences  # noqa: F401


def test_a_half_solved_exercise_is_begun(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "mine")
    path = tmp_path / "mine" / "ex_05_softmax.py"
    hole, e = "raise NotImplementedError", "np.exp(x - x.max(-1, keepdims=True))"
    solved = f"e = {e}\n    return e / e.sum(-1, keepdims=True)"
    path.write_text(path.read_text("utf-8").replace(hole, solved, 1), "utf-8")
    rows = dict(
        line.split(maxsplit=1) for line in score(path.parent).stdout.splitlines()[: len(EXERCISES)]
    )
    assert rows.pop("05_softmax") == "1 test fails"
    assert set(rows.values()) == {"not begun"}


def test_the_score_card(tmp_path: Path) -> None:
    """One exercise is passed, one is wrong, one cannot be read, one has no file, and the others are
    not begun."""
    for path in FOLDER.glob("*.py"):
        shutil.copy(path, tmp_path)
    solution = (FOLDER / "solutions" / "ex_05_softmax.py").read_text("utf-8")
    (tmp_path / "ex_05_softmax.py").write_text(solution.replace("axis=-1", "axis=0"), "utf-8")
    (tmp_path / "ex_06_masks.py").write_text("def broken(:", "utf-8")
    shutil.copy(FOLDER / "solutions" / "ex_01_soft_lookup.py", tmp_path)
    (tmp_path / "ex_08_layer_norm.py").unlink()
    run = score(tmp_path)
    rows = dict(line.split(maxsplit=1) for line in run.stdout.splitlines()[: len(EXERCISES)])
    assert rows.pop("01_soft_lookup") == "passed", run.stderr
    assert rows.pop("06_masks") == "1 test fails"
    assert rows.pop("08_layer_norm") == "the file is missing"
    assert "tests fail" in rows.pop("05_softmax")
    assert set(rows.values()) == {"not begun"}
    assert f"1 of {len(EXERCISES)} exercises are passed" in run.stdout


def test_a_file_that_ends_python_is_not_passed(tmp_path: Path) -> None:
    for path in FOLDER.glob("*.py"):
        shutil.copy(path, tmp_path)
    (tmp_path / "ex_05_softmax.py").write_text("raise SystemExit", "utf-8")
    (tmp_path / "ex_06_masks.py").write_text(
        "import os\n\n\ndef masked_softmax(*_):\n    exit()\n", "utf-8"
    )
    (card,) = json.loads(score(tmp_path, "--json").stdout)
    assert "when it is read" in card["exercises"]["05_softmax"]["says"][0]
    says = card["exercises"]["06_masks"]["says"]
    assert any("ends Python: write return" in text for text in says), says
    assert not card["passed"]
    assert card["exercises"]["18_published"]["result"] == "not begun"


def test_the_folders_of_a_class_are_graded(tmp_path: Path) -> None:
    """A right solution, a wrong one, two that stop Python or never end, and two wrong folders."""
    names = ("ada", "ben", "cyd", "missing", "empty")
    ada, ben, cyd, missing, empty = (tmp_path / name for name in names)
    solution = (FOLDER / "solutions" / "ex_01_soft_lookup.py").read_text("utf-8")
    for folder in (ada, ben, cyd, empty):
        folder.mkdir()
        (folder / "ex_01_soft_lookup.py").write_text(solution, "utf-8")
    (ben / "ex_01_soft_lookup.py").write_text(solution.replace(" / np.sqrt(d)", ""), "utf-8")
    (ben / "ex_06_masks.py").write_text("def visible_keys(*_):\n    return []\n", "utf-8")
    (empty / "ex_01_soft_lookup.py").rename(empty / "soft_lookup.py")
    (cyd / "ex_00_text_to_numbers.py").write_text("import os\n\nos._exit(0)\n", "utf-8")
    endless = "while True:\n    try:\n        while True:\n            pass\n    except: pass\n"
    (cyd / "ex_05_softmax.py").write_text("while True:\n    pass\n", "utf-8")
    (cyd / "ex_06_masks.py").write_text(endless, "utf-8")
    shutil.copy(FOLDER / "solutions" / "ex_09_heads.py", cyd)
    folders = list(map(str, (ada, ben, cyd, missing, empty)))

    run = score(tmp_path, "--json", "--seconds", "16", *folders)
    assert run.returncode == 1
    cards = json.loads(run.stdout)
    found = {card["folder"]: card.get("exercises") for card in cards}
    assert [cards[0]["passed"], cards[0]["of"]] == [1, len(EXERCISES)]
    right = {"passed": True, "result": "passed", "says": []}
    assert found[str(ada)]["01_soft_lookup"] == right
    assert found[str(ada)]["02_an_engine"]["result"] == "the file is missing"
    assert found[str(ben)]["01_soft_lookup"]["says"] == ["the scores are not divided by sqrt(d)"]
    result = found[str(ben)]["06_masks"]
    assert result["says"].count("ex_06_masks.py has no function masked_softmax") == 1
    assert int(result["result"].removesuffix(" tests fail")) > len(result["says"])
    for name in ("01_soft_lookup", "09_heads"):
        assert found[str(cyd)][name] == right, "the loops and the exit cost other exercises"
    (exit_,), (loop,), (deaf,) = (
        found[str(cyd)][name]["says"] for name in ("00_text_to_numbers", "05_softmax", "06_masks")
    )
    assert exit_ == "Python ended with code 0 before this was graded"
    assert loop.startswith("no end after 8 seconds (a loop without end?), in line ")
    assert deaf == "not graded after 16 seconds: a loop without end?"
    assert cards[3]["error"] == f"there is no folder {missing}"
    assert cards[4]["error"].startswith(f"{empty} has no exercise, no file ex_*.py: name")


@pytest.mark.parametrize("name", ["ex_05_softmax.py", "Ex_05_softmax.py", "EX5.py"])
def test_a_folder_whose_files_are_named_otherwise_is_graded(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The card says then how to rename them."""
    monkeypatch.syspath_prepend(str(FOLDER))
    card = importlib.import_module("score")
    (tmp_path / "notes.py").write_text("", "utf-8")
    assert card.problem_of(tmp_path).startswith(f"{tmp_path} has no exercise, no file ex_*.py: ")
    (tmp_path / name).write_text("", "utf-8")
    assert card.problem_of(tmp_path) == ""


def test_the_grades_of_a_class_as_a_table(tmp_path: Path) -> None:
    """What is begun and wrong gives the exit status 1, and what is not begun gives 0."""
    for name in ("ada", "ben"):
        (tmp_path / name).mkdir()
        shutil.copy(FOLDER / "solutions" / "ex_01_soft_lookup.py", tmp_path / name)
        shutil.copy(FOLDER / "ex_05_softmax.py", tmp_path / name)
    ada, ben = str(tmp_path / "ada"), str(tmp_path / "ben")
    run = score(tmp_path, ada)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.startswith(f"\n{ada}\n\n00_text_to_numbers             the file is missing\n")
    (tmp_path / "ada" / "ex_05_softmax.py").rename(tmp_path / "ada" / "ex_5_softmax.py")
    assert score(tmp_path, ada).returncode == 1
    (tmp_path / "ada" / "ex_5_softmax.py").rename(tmp_path / "ada" / "ex_05_softmax.py")
    (tmp_path / "ben" / "ex_05_softmax.py").write_text("def softmax(:", "utf-8")
    (tmp_path / "ben" / "ex_06_masks.py").write_text("import pytest", "utf-8")
    run = score(tmp_path, "--csv", ada, ben, str(tmp_path / "cyd"))
    assert (run.returncode, run.stderr) == (1, "")
    rows = list(csv.DictReader(run.stdout.splitlines()))
    columns = ("folder", "passed", "05_softmax", "to_read", "error")
    shown = [[row[name] for name in columns] for row in rows[:2]]
    assert shown == [[ada, "1", "not begun", "", ""], [ben, "1", "1 test fails", "06_masks", ""]]
    assert rows[2]["error"].startswith("there is no folder")


def test_a_folder_that_does_not_exist_cannot_be_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "exercises"
    sentence = f"there is no folder {folder}, which TINYATTN_EXERCISES names"
    run = score(folder)
    assert (run.returncode, run.stdout, run.stderr) == (1, "", f"{sentence}\n")
    assert score(folder, "--help").stdout.startswith("usage: score.py")
    monkeypatch.setattr(grading, "FOLDER", folder)
    with pytest.raises(pytest.fail.Exception, match=re.escape(sentence)):
        grading.exercise("ex_06_masks")
