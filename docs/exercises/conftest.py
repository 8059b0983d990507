"""An error in a grader, as of a result of another kind, becomes a sentence too, and so does a loop
without end."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from grading import limited, place_of, say


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    with limited(item.path.stem):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    error = call.excinfo.value if call.excinfo else None
    if isinstance(error, Exception):
        kind = type(error).__name__
        report.longrepr = say(
            f"the grader cannot use what your code gives ({kind}: {error}): does it have the type "
            "and the shape that the exercise asks for?"
        ) + place_of(error)
    return report
