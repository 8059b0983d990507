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
    """What the failed tests of each file say."""

    def __init__(self) -> None:
        names = (path.stem.removeprefix("test_") for path in FOLDER.glob("test_*.py"))
        self.failed: dict[str, list[str]] = {name: [] for name in names}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.pytest_runtest_logreport(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed:
            name = Path(report.nodeid.split("::")[0]).stem.removeprefix("test_")
            self.failed[name].append(report.longreprtext)


def result(failed: list[str]) -> str:
    if not failed:
        return say("passed")
    if all(say("is not written yet") in text for text in failed):
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
        print(f"{name:30s} {result(failed)}")
    passed = sum(not failed for failed in card.failed.values())
    print("\n" + say(f"{passed} of {len(card.failed)} exercises are passed"))


if __name__ == "__main__":
    main()
