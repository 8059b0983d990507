"""Which exercises are passed: `python docs/exercises/score.py`."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


class Card:
    """Counts the failed tests of each file."""

    def __init__(self) -> None:
        self.failed: dict[str, int] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.failed = {item.path.stem.removeprefix("test_"): 0 for item in session.items}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed[Path(report.nodeid.split("::")[0]).stem.removeprefix("test_")] += 1


def main() -> None:
    card = Card()
    with redirect_stdout(io.StringIO()):
        pytest.main(["-q", "-p", "no:cacheprovider", str(FOLDER)], plugins=[card])
    for name, failed in sorted(card.failed.items()):
        print(f"{name:30s} {f'{failed} tests fail' if failed else 'passed'}")
    passed = sum(not failed for failed in card.failed.values())
    print(f"\n{passed} of {len(card.failed)} exercises are passed")


if __name__ == "__main__":
    main()
