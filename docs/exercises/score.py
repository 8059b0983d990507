"""Which exercises are passed: `python docs/exercises/score.py`."""

from __future__ import annotations

import argparse
import io
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from grading import missing_folder, say

FOLDER = Path(__file__).parent


class Card:
    """What the failed tests of each file say, and how many pass."""

    def __init__(self) -> None:
        names = (path.stem.removeprefix("test_") for path in FOLDER.glob("test_*.py"))
        self.failed: dict[str, list[str]] = {name: [] for name in names}
        self.passed = dict.fromkeys(self.failed, 0)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.pytest_runtest_logreport(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        name = Path(report.nodeid.split("::")[0]).stem.removeprefix("test_")
        if report.failed:
            self.failed[name].append(report.longreprtext)
        elif report.passed and report.when == "call":
            self.passed[name] += 1


def result(failed: list[str], passed: int) -> str:
    if not failed:
        return say("passed")
    if not passed and all(say("is not written yet") in text for text in failed):
        return say("not begun")
    if any(say("there is no file") in text for text in failed):
        return say("the file is missing")
    return say(f"{len(failed)} tests fail" if len(failed) > 1 else "1 test fails")


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    if sentence := missing_folder():
        sys.exit(say(sentence))
    card = Card()
    with redirect_stdout(io.StringIO()):
        options = ["-q", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
        pytest.main([*options, str(FOLDER)], plugins=[card])
    for name, failed in sorted(card.failed.items()):
        print(f"{name:30s} {result(failed, card.passed[name])}")
    passed = sum(not failed for failed in card.failed.values())
    print("\n" + say(f"{passed} of {len(card.failed)} exercises are passed"))


if __name__ == "__main__":
    main()
