"""Which exercises are passed: `python docs/exercises/score.py`.

For a whole class: `python docs/exercises/score.py FOLDER...` grades the folder of each student.
With --csv it prints a table with a row for each, and with --json what the graders say.

Each exercise is graded in a process of its own, so a loop without end, an exit, or a file that
changes its grader, costs a student this exercise alone. What can be seen without running the file
is looked at here: whether it is there, whether its holes are filled, whether its text is that of
the solution, and whether it names what reaches its grader.
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
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

try:
    import pytest
except ModuleNotFoundError:
    sys.exit('pytest is missing: pip install -e ".[test]"')
from grading import FOLDER as YOURS
from grading import missing_file, missing_folder, print_in_any_encoding, say
from guard import texts
from written import is_the_solution, reaching, text_of, unwritten

FOLDER = Path(__file__).parent
NAMES = sorted(path.stem.removeprefix("test_") for path in FOLDER.glob("test_*.py"))
NO_MISTAKE = ("passed", "not begun", "the file is missing")


class Card:
    """What the failed tests of an exercise say, how many pass, and what the file compiled."""

    is_begun = False  # True if a part of its file is written

    def __init__(
        self, failed: list[str] | None = None, passed: int = 0, texts: list[str] | None = None
    ) -> None:
        self.failed = failed or []
        self.passed = passed
        self.texts = texts or []

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
        no_more = all(say("is not written yet") in text for text in failed)
        if not self.passed and not self.is_begun and no_more:
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
    card.texts = texts
    return card


def graded_alone(name: str, folder: Path, seconds: float) -> Card:
    """The card of an exercise that is graded in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--alone", name],
        env={
            **os.environ,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # they take longer to load than most tests
            "TINYATTN_EXERCISES": str(folder),
            "TINYATTN_GUARDED": "1",
            "TINYATTN_SECONDS": str(seconds / 2),  # for one test
        },
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    alarm = threading.Timer(seconds, process.kill)
    with process.stdout or io.StringIO() as answers:
        answers.readline()  # Python and pytest are loaded, which may take long
        alarm.start()
        line = answers.readline()
    is_late = alarm.finished.is_set()
    code = process.wait()  # the alarm still waits with it
    alarm.cancel()
    try:
        return Card(**json.loads(line))
    except (TypeError, ValueError):
        sentence = f"not graded after {seconds:g} seconds: a loop without end?"
        if not is_late:
            sentence = f"Python ended with code {code} before this was graded"
        return Card([say(sentence)])


def card_of(name: str, folder: Path, seconds: float) -> Card:
    """The card of one exercise of a student."""
    path = folder / f"ex_{name}.py"
    if sentence := missing_file(folder, path.stem):
        return Card([sentence])
    left, all_left = unwritten(path)
    sentences = [say(f"{hole.rpartition('.')[2]} is not written yet") for hole in left]
    if all_left:
        return Card(sentences)
    card = graded_alone(name, folder, seconds)
    card = Card(sentences) if card.result() == "passed" and left else card
    card.is_begun = True
    return card


def problem_of(folder: Path) -> str:
    """A sentence if this is no folder of a student, or an empty text."""
    if not folder.is_dir():
        return say(f"there is no folder {folder.absolute()}")
    if not any(path.name.lower().startswith("ex") for path in folder.glob("*.py")):
        return say(f"{folder} has no exercise, no file ex_*.py: name the folder of one student")
    return ""


def reports(folders: list[Path], seconds: float) -> list[dict[str, Any]]:
    """What --json prints of each student. As many exercises are graded at once as there are
    processors."""
    errors = {folder: problem_of(folder) for folder in folders}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        waiting = {
            folder: {name: pool.submit(card_of, name, folder, seconds) for name in NAMES}
            for folder, error in errors.items()
            if not error
        }
    return [
        {"folder": str(folder), "error": error}
        if error
        else report(folder, {name: card.result() for name, card in waiting[folder].items()})
        for folder, error in errors.items()
    ]


def report(folder: Path, cards: dict[str, Card]) -> dict[str, Any]:
    """What --json prints of a student."""
    exercises = {name: card.as_json() for name, card in cards.items()}
    texts = {name: [text_of(folder / f"ex_{name}.py"), *cards[name].texts] for name in NAMES}
    return {
        "folder": str(folder),
        "passed": sum(card["passed"] for card in exercises.values()),
        "of": len(exercises),
        "as_in_the_solution": [x for x in NAMES if is_the_solution(f"ex_{x}.py", texts[x])],
        "to_read": {x: found for x in NAMES if (found := reaching(texts[x][0]))},
        "exercises": exercises,
    }


def print_card(card: dict[str, Any]) -> None:
    if "error" in card:
        print(card["error"])
        return
    for name, exercise in card["exercises"].items():
        print(f"{name:30s} {exercise['result']}")
    if names := ", ".join(card["as_in_the_solution"]):
        print("\n" + say(f"the text is that of the solution: {names}"))
    for name, reached in card["to_read"].items():
        print("\n" + say(f"{name} has what no exercise needs: {', '.join(reached)}"))
    print("\n" + say(f"{card['passed']} of {card['of']} exercises are passed"))


def print_csv(cards: list[dict[str, Any]]) -> None:
    """A row for each student, with a column for each exercise, as a spreadsheet reads it."""
    table = io.StringIO()
    rows = csv.writer(table, lineterminator="\n")
    rows.writerow(["folder", "passed", *NAMES, "as_in_the_solution", "to_read", "error"])
    for card in cards:
        exercises = card.get("exercises", {})
        results = [exercises[name]["result"] if exercises else "" for name in NAMES]
        same = " ".join(card.get("as_in_the_solution", []))
        read = " ".join(card.get("to_read", {}))
        error = card.get("error", "")
        rows.writerow([card["folder"], card.get("passed", ""), *results, same, read, error])
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
    kinds.add_argument("--alone", choices=NAMES, help=argparse.SUPPRESS)
    parser.add_argument(
        "--seconds", type=float, default=120.0, help=say("at most for each exercise")
    )
    arguments = parser.parse_args()
    if arguments.alone:
        print("loaded", flush=True)
        print(json.dumps(vars(graded(arguments.alone))), flush=True)
        return
    if not arguments.folders and (sentence := missing_folder()):
        sys.exit(say(sentence))
    folders = [Path(folder) for folder in arguments.folders] or [YOURS]
    cards = reports(folders, arguments.seconds)
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
