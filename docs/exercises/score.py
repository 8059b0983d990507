"""Which exercises are passed: `python docs/exercises/score.py`.

For a whole class: `python docs/exercises/score.py FOLDER...` grades the folder of each student.
With --csv it prints a table with a row for each, and with --json what the graders say.

Exercises are graded in another process. If one of them stops it, a new process grades the rest: so
a loop without end, or an exit, costs a student this exercise alone.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import subprocess
import sys
import threading
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

try:
    import pytest
except ModuleNotFoundError:
    sys.exit('pytest is missing: pip install -e ".[test]"')
from grading import FOLDER as YOURS
from grading import missing_file, missing_folder, print_in_any_encoding, say

FOLDER = Path(__file__).parent
NAMES = sorted(path.stem.removeprefix("test_") for path in FOLDER.glob("test_*.py"))
NO_MISTAKE = ("passed", "not begun", "the file is missing")


class Card:
    """What the failed tests of an exercise say, and how many pass."""

    def __init__(self, failed: list[str] | None = None, passed: int = 0) -> None:
        self.failed = failed or []
        self.passed = passed

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.pytest_runtest_logreport(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed:
            self.failed.append(report.longreprtext)
        elif report.passed and report.when == "call":
            self.passed += 1

    def result(self) -> str:
        """A word or two, in English."""
        failed = self.failed
        if not failed:
            return "passed" if self.passed else "no test was run"
        if not self.passed and all(say("is not written yet") in text for text in failed):
            return "not begun"
        if any(say("there is no file") in text for text in failed):
            return "the file is missing"
        return f"{len(failed)} tests fail" if len(failed) > 1 else "1 test fails"

    def as_json(self) -> dict[str, Any]:
        result = self.result()
        says = list(dict.fromkeys(self.failed))  # each sentence once
        return {"passed": result == "passed", "result": say(result), "says": says}


def graded(name: str) -> Card:
    """The card of an exercise in the folder of TINYATTN_EXERCISES, or in this one."""
    card = Card()
    with redirect_stdout(io.StringIO()):
        options = ["-q", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
        pytest.main([*options, str(FOLDER / f"test_{name}.py")], plugins=[card])
    return card


def graded_alone(names: list[str], folder: Path, seconds: float) -> dict[str, Card]:
    """The cards of these exercises, graded in a process of their own: up to the first one that
    stops it, of which the card says so."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--alone", *names],
        env={
            **os.environ,
            "TINYATTN_EXERCISES": str(folder),
            "TINYATTN_SECONDS": str(seconds / 2),  # for one test
        },
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    cards: dict[str, Card] = {}
    for name in names:
        alarm = threading.Timer(seconds, process.kill)
        alarm.start()
        line = process.stdout.readline() if process.stdout else ""
        is_late = alarm.finished.is_set()
        alarm.cancel()
        try:
            cards[name] = Card(**json.loads(line))
        except ValueError:
            process.kill()
            sentence = f"not graded after {seconds:g} seconds: a loop without end?"
            if not is_late:
                sentence = f"Python ended with code {process.wait()} before this was graded"
            cards[name] = Card([say(sentence)])
            break
    process.communicate()
    return cards


def problem_of(folder: Path) -> str:
    """A sentence if this is no folder of a student, or an empty text."""
    if not folder.is_dir():
        return say(f"there is no folder {folder.absolute()}")
    if not any(path.name.lower().startswith("ex") for path in folder.glob("*.py")):
        return say(f"{folder} has no exercise, no file ex_*.py: name the folder of one student")
    return ""


def cards_of(folder: Path, seconds: float) -> dict[str, Card]:
    """The cards of a student. After a loop without end, or an exit, the others are graded too."""
    missing = {name: missing_file(folder, f"ex_{name}") for name in NAMES}
    cards = {name: Card([sentence]) for name, sentence in missing.items() if sentence}
    while left := [name for name in NAMES if name not in cards]:
        cards |= graded_alone(left, folder, seconds)
    return {name: cards[name] for name in NAMES}


def report(folder: Path, seconds: float) -> dict[str, Any]:
    """What --json prints of a student."""
    if error := problem_of(folder):
        return {"folder": str(folder), "error": error}
    exercises = {name: card.as_json() for name, card in cards_of(folder, seconds).items()}
    passed = sum(card["passed"] for card in exercises.values())
    return {
        "folder": str(folder),
        "passed": passed,
        "of": len(exercises),
        "exercises": exercises,
    }


def print_card(card: dict[str, Any]) -> None:
    if "error" in card:
        print(card["error"])
        return
    for name, exercise in card["exercises"].items():
        print(f"{name:30s} {exercise['result']}")
    print("\n" + say(f"{card['passed']} of {card['of']} exercises are passed"))


def print_csv(cards: list[dict[str, Any]]) -> None:
    """A row for each student, with a column for each exercise, as a spreadsheet reads it."""
    table = io.StringIO()
    rows = csv.writer(table, lineterminator="\n")
    rows.writerow(["folder", "passed", *NAMES, "error"])
    for card in cards:
        exercises = card.get("exercises", {})
        results = [exercises[name]["result"] if exercises else "" for name in NAMES]
        rows.writerow([card["folder"], card.get("passed", ""), *results, card.get("error", "")])
    print(table.getvalue(), end="")


def is_fine(card: dict[str, Any]) -> bool:
    """Whether what is begun is passed."""
    results = [exercise["result"] for exercise in card.get("exercises", {}).values()]
    return "error" not in card and set(results) <= set(map(say, NO_MISTAKE))


def main() -> None:
    print_in_any_encoding()
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", nargs="*", help=say("folders of students"))
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--json", action="store_true", help=say("print the score cards as JSON"))
    kinds.add_argument("--csv", action="store_true", help=say("print a row for each folder"))
    kinds.add_argument("--alone", nargs="+", choices=NAMES, help=argparse.SUPPRESS)
    parser.add_argument(
        "--seconds", type=float, default=120.0, help=say("at most for each exercise")
    )
    arguments = parser.parse_args()
    if arguments.alone:
        for name in arguments.alone:
            print(json.dumps(vars(graded(name))), flush=True)
        return
    if not arguments.folders and (sentence := missing_folder()):
        sys.exit(say(sentence))
    folders = [Path(folder) for folder in arguments.folders] or [YOURS]
    cards = [report(folder, arguments.seconds) for folder in folders]
    if arguments.json:
        print(json.dumps(cards, indent=2, ensure_ascii=False))
    elif arguments.csv:
        print_csv(cards)
    else:
        for card in cards:
            if arguments.folders:
                print(f"\n{card['folder']}\n")
            print_card(card)
    if arguments.folders and not all(map(is_fine, cards)):
        sys.exit(1)


if __name__ == "__main__":
    main()
