"""What the tests of the exercises share: the exercises, and what their graders say of a folder."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import grading
import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "exercises"
EXERCISES = sorted(path.stem.removeprefix("test_") for path in FOLDER.glob("test_*.py"))


@pytest.fixture(autouse=True)
def english(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the language of the machine is."""
    monkeypatch.setenv("LANGUAGE", "en")


def sentences(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the grader says of the solution in this folder: one sentence for each failed test."""
    monkeypatch.setattr(grading, "FOLDER", folder)
    found, skipped = [], False
    for test, function in runpy.run_path(str(FOLDER / f"test_{name}.py")).items():
        if test.startswith("test_"):
            try:
                function()
            except pytest.fail.Exception as error:
                found.append(str(error))
            except pytest.skip.Exception:
                skipped = True
    assert found or not skipped, "a test is skipped, and no other one fails"
    return found


def score(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(FOLDER / "score.py"), *options],
        env={**os.environ, "TINYATTN_EXERCISES": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
