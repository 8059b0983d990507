"""The bounds of docs/gpu.md are those that `python -m benchmarks.gpu.roofline` computes."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_has_the_table(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.gpu import roofline

    assert roofline.table() in (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")


def test_a_bound_is_the_longer_of_two_times(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.gpu.roofline import Card, Work

    card = Card("test", 10.0, 2.0, "")
    assert Work("operations", 20, 2, 1.5).seconds(card) == 3
    assert Work("bytes", 20, 8, 1.5).seconds(card) == 4
