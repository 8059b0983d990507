"""The progress bar of the examples shows means, because some batches are harder than others."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import nn

EXAMPLES = Path(__file__).parents[2] / "examples"


class Bar:
    """What a bar of tqdm is asked to show."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def set_postfix_str(self, text: str, refresh: bool) -> None:
        self.shown.append(text)


def test_the_bar_shows_means_of_the_last_50_steps(monkeypatch, tmp_path) -> None:
    pytest.importorskip("tqdm", reason="the examples need tqdm")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import training

    run = training.Run(nn.Linear(2, 2), Namespace(steps=120, lr=0.1, device="cpu", out=tmp_path))
    run.bar = Bar()
    rng = np.random.default_rng(0)
    losses, accuracies = rng.random((2, 120))
    for loss, accuracy in zip(losses, accuracies, strict=True):
        run.note(ta.tensor(loss), accuracy, 1)
    expected = [
        f"loss {losses[max(0, n - 50) : n].mean():.3f}, "
        f"accuracy {accuracies[max(0, n - 50) : n].mean():.1%}"
        for n in range(10, 121, 10)
    ]
    assert run.bar.shown == expected
