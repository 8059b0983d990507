"""Which exercises are passed: `python docs/exercises/score.py`.

For a whole class: `python docs/exercises/score.py --json FOLDER...` grades the folder of each
student in a process of its own, and prints what the graders say as JSON.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

try:
    import pytest
except ModuleNotFoundError:
    sys.exit('pytest is missing: pip install -e ".[test]"')
from grading import FOLDER as YOURS
from grading import missing_folder, say

FOLDER = Path(__file__).parent


class Card:
    """What the failed tests of each file say, and how many pass."""

    def __init__(self) -> None:
        names = (path.stem.removeprefix("test_") for path in FOLDER.glob("test_*.py"))
        self.failed: dict[str, list[str]] = {name: [] for name in sorted(names)}
        self.passed = dict.fromkeys(self.failed, 0)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.pytest_runtest_logreport(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        name = Path(report.nodeid.split("::")[0]).stem.removeprefix("test_")
        if report.failed:
            self.failed[name].append(report.longreprtext)
        elif report.passed and report.when == "call":
            self.passed[name] += 1

    def is_passed(self, name: str) -> bool:
        """Whether tests ran and none failed."""
        return not self.failed[name] and self.passed[name] > 0

    def result(self, name: str) -> str:
        failed = self.failed[name]
        if self.is_passed(name):
            return say("passed")
        if not failed:
            return say("no test was run")
        if not self.passed[name] and all(say("is not written yet") in text for text in failed):
            return say("not begun")
        if any(say("there is no file") in text for text in failed):
            return say("the file is missing")
        return say(f"{len(failed)} tests fail" if len(failed) > 1 else "1 test fails")

    def as_json(self) -> dict[str, Any]:
        exercises = {
            name: {"passed": self.is_passed(name), "result": self.result(name), "says": failed}
            for name, failed in self.failed.items()
        }
        passed = sum(map(self.is_passed, exercises))
        return {
            "folder": str(YOURS),
            "passed": passed,
            "of": len(exercises),
            "exercises": exercises,
        }


def graded() -> Card:
    """The card of the folder of TINYATTN_EXERCISES, or of this one."""
    card = Card()
    with redirect_stdout(io.StringIO()):
        options = ["-q", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
        pytest.main([*options, str(FOLDER)], plugins=[card])
    return card


def graded_alone(folder: str, seconds: float) -> dict[str, Any]:
    """The card of one student; what goes wrong is in it, so that the others are graded too."""
    if not Path(folder).is_dir():
        return {"folder": folder, "error": say(f"there is no folder {Path(folder).absolute()}")}
    try:
        run = subprocess.run(
            [sys.executable, __file__, "--json"],
            env={**os.environ, "TINYATTN_EXERCISES": folder},
            capture_output=True,
            encoding="utf-8",
            timeout=seconds,
            check=True,
        )
        return json.loads(run.stdout)[0]
    except subprocess.TimeoutExpired:
        error = f"not graded after {seconds:g} seconds: a loop without end?"
    except subprocess.CalledProcessError as failed:
        lines = failed.stderr.strip().splitlines()
        error = lines[-1] if lines else f"Python ended with code {failed.returncode}"
    except ValueError:
        error = "the exercises ended Python before they were graded"
    return {"folder": folder, "error": say(error)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="*", help=say("folders of students, with --json"))
    parser.add_argument("--json", action="store_true", help=say("print the score cards as JSON"))
    parser.add_argument("--seconds", type=float, default=600.0, help=say("at most for each folder"))
    arguments = parser.parse_args()
    if arguments.folders:
        if not arguments.json:
            parser.error(say("folders of students are graded with --json"))
        cards = [graded_alone(folder, arguments.seconds) for folder in arguments.folders]
        print(json.dumps(cards, indent=2, ensure_ascii=False))
        return
    if sentence := missing_folder():
        sys.exit(say(sentence))
    card = graded()
    if arguments.json:
        print(json.dumps([card.as_json()], indent=2, ensure_ascii=False))
        return
    for name in card.failed:
        print(f"{name:30s} {card.result(name)}")
    passed = sum(map(card.is_passed, card.failed))
    print("\n" + say(f"{passed} of {len(card.failed)} exercises are passed"))


if __name__ == "__main__":
    main()
