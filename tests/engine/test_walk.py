"""How far a reader walks: what `y = x * w; y.backward(g)` runs in the package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tracing import measured, product, product_forward

PAGE = Path(__file__).parents[2] / "docs" / "course" / "03_the_real_engine.md"
NUMBERS = ["no", "one", "two", "three", "four", "five", "six", "seven"]


def test_the_walk_of_a_product_is_short() -> None:
    """Once it has run before, so that the plan of `mul` is there."""
    walk = measured(product.__doc__)
    assert walk.lines <= 300
    assert walk.files <= 6


def test_page_3_says_how_long_the_walk_is() -> None:
    """Versions of Python count a line more or less."""
    text = " ".join(PAGE.read_text("utf-8").split())
    said = re.search(
        r"forward runs (\d+) lines in (\w+) files, .* back (\d+) lines in (\w+)\.", text
    )
    for i, action in enumerate((product_forward, product)):
        walk, (lines, files) = measured(action.__doc__), said.groups()[2 * i : 2 * i + 2]
        assert abs(walk.lines - int(lines)) <= 3
        assert walk.files == NUMBERS.index(files)


def test_a_longer_walk_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tracer counts what a helper in another file runs."""
    import tinyattn as ta

    before = measured(product.__doc__)
    backward = ta.Tensor.backward

    def with_a_detour(self: ta.Tensor, gradient: ta.Tensor) -> None:
        ta.base.checks.check_choice("a device", "cpu", "cpu")
        backward(self, gradient)

    monkeypatch.setattr(ta.Tensor, "backward", with_a_detour)
    after = measured(product.__doc__)
    assert after.lines == before.lines + 2
    assert (after.calls, after.files) == (before.calls + 1, before.files + 1)
