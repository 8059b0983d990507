"""A copy of the exercises for students runs, and has no solutions."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import grading
import pytest
import student_copy
from exercises import EXERCISES, FOLDER, english, score, sentences  # noqa: F401
from score import Card


def test_a_copy_for_students_has_no_solutions(tmp_path: Path) -> None:
    """Its graders and its score card run, and no answer of a black box can be read in it."""

    def copied(folder: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(FOLDER / "student_copy.py"), str(folder)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    folder = tmp_path / "class" / "exercises"
    assert copied(folder).stdout.startswith(f"{len(EXERCISES)} exercises are in {folder}")
    assert copied(folder).stderr == f"{folder} exists and is not empty: name a new folder\n"
    texts = {path.name: path.read_text("utf-8") for path in folder.rglob("*.py")}
    assert len([name for name in texts if name.startswith("ex_")]) == len(EXERCISES)
    assert not [name for name, text in texts.items() if text.startswith('"""A solution of')]
    assert "student_copy.py" not in texts
    assert {"stress_data.py", "classify_texts.py"} <= set(texts)  # pages 12 and 21 import them
    assert (folder / "examples" / "data" / "cmudict_stress.txt.xz").is_file()
    boxes = runpy.run_path(str(folder / "black_boxes.py"))
    assert len(boxes["ANSWERS"]) == 5
    for name, answer in boxes["ANSWERS"].items():
        assert not re.search(f"{name}.*{answer}", texts["black_boxes.py"])
    run = subprocess.run(
        [sys.executable, str(folder / "score.py")], capture_output=True, text=True, check=False
    )
    assert run.stdout.count("not begun") == len(EXERCISES)
    assert_names_paths_of_the_copy(folder)


def assert_names_paths_of_the_copy(folder: Path) -> None:
    """Before and after its texts are put into Chinese."""
    for language in ("en", "zh_CN"):
        files = [*folder.rglob("*.py"), *folder.rglob("*.po")]
        text = "\n".join(path.read_text("utf-8") for path in files)
        kept = re.findall(r"\bdocs/[\w/]+(?:\.\w+)?", text)
        assert not [path for path in kept if not (folder / path).exists()]
        named = set(re.findall(rf"\b{folder.name}/[\w/.]+", text))
        assert len(named) >= len(EXERCISES)
        assert not [path for path in named if not (folder.parent / path).is_file()]
        if language == "en":
            program = [sys.executable, str(folder / "in_chinese.py")]
            subprocess.run(program, check=True, capture_output=True)
    assert "课程页面是 05_softmax，" in (folder / "ex_05_softmax.py").read_text("utf-8")


def test_a_copy_for_students_needs_the_holes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(FOLDER, tmp_path / "mine")
    path = tmp_path / "mine" / "ex_05_softmax.py"
    head, _, rest = path.read_text("utf-8").partition("raise NotImplementedError")
    assert "raise NotImplementedError" in rest  # the first function alone is written
    path.write_text(f"{head}return x{rest}", "utf-8")
    monkeypatch.setattr(student_copy, "EXERCISES", tmp_path / "mine")
    with pytest.raises(ValueError, match=r"ex_05_softmax\.py is begun"):
        student_copy.copy(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_copy_is_made_where_the_score_card_is_chinese(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And an empty folder is filled, and a file is not overwritten."""
    asked = []

    def reports(*arguments: object) -> list[dict[str, Any]]:
        asked.append(arguments)
        nobody_began = Card([grading.say("is not written yet")]).as_json()
        assert nobody_began["result"] != "not begun"
        return [{"exercises": dict.fromkeys(EXERCISES, nobody_began)}]

    monkeypatch.setenv("LANGUAGE", "zh_CN")
    monkeypatch.setattr(student_copy, "reports", reports)
    (tmp_path / "empty").mkdir()
    assert student_copy.copy(tmp_path / "empty") == len(EXERCISES)
    assert asked == [([FOLDER], 120)]
    (tmp_path / "file").write_text("mine", "utf-8")
    with pytest.raises(FileExistsError, match="file exists and is not empty"):
        student_copy.copy(tmp_path / "file")
    monkeypatch.setattr(student_copy, "reports", lambda *_: [{"error": "no exercise"}])
    with pytest.raises(ValueError, match=r"^no exercise$"):
        student_copy.copy(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
