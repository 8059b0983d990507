"""How far a reader walks: what `y = x * w; y.backward(g)` runs in the package."""

from __future__ import annotations

import pytest
from tracing import measured, product


def test_the_walk_of_a_product_is_short() -> None:
    """Once it has run before, so that the plan of `mul` is there."""
    walk = measured(product.__doc__)
    assert walk.lines <= 300
    assert walk.files <= 6


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
