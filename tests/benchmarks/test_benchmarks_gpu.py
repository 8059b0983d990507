"""`python -m benchmarks.gpu` says that it needs a GPU; its dry run does all but the figures."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from stand_in import COMPILER

import tinyattn as ta

ROOT = Path(__file__).parents[2]
needs_matplotlib = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="no matplotlib to draw with"
)


def run(*arguments):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}
    command = [sys.executable, "-m", "benchmarks.gpu", *map(str, arguments)]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.skipif(ta.cuda_is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_that_it_needs_one():
    done = run()
    assert done.returncode == 2
    assert "needs an NVIDIA GPU" in done.stderr
    assert "--dry-run" in done.stderr


def test_a_side_that_fails_costs_nobody_else_a_figure(monkeypatch):
    """While it is made ready, or in the third round, as when memory runs out."""
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.gpu import measure
    from benchmarks.gpu.cases import COPY, Case

    calls = []

    def third():
        calls.append(1)
        if len(calls) == 3:
            raise MemoryError("no more")

    def build(case, side, device):
        if side == "torch":
            raise ValueError("not today")
        run = third if side == "captured" else lambda: None
        return run, lambda: ta.ones(2)

    monkeypatch.setattr(measure.sides, "build", build)
    monkeypatch.setattr(measure, "repetitions", lambda *_: 1)
    monkeypatch.setattr(measure.Device, "wait", lambda *_: None)
    monkeypatch.setattr(measure.Device, "empty", lambda *_: None)
    monkeypatch.setattr(measure.Device, "held", lambda *_: 0)
    device = measure.Device(None, object(), trial=False)
    case = Case(COPY, "copy", 2, ("tinyattn", "captured", "torch"))
    row = measure.measured(case, device, float("inf"))
    assert {side: len(rounds) for side, rounds in row.seconds.items()} == {
        "tinyattn": measure.ROUNDS, "captured": measure.ROUNDS - 1
    }  # fmt: skip
    assert row.notes == {"captured": "MemoryError: no more", "torch": "ValueError: not today"}


@pytest.mark.parametrize("wrong", [False, True])
def test_a_captured_step_is_held_against_an_eager_one(wrong, cuda, monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.gpu import sides
    from benchmarks.gpu.cases import Size

    def capture(step, *batch):
        """As good as a graph, or one that has taken a step too few."""
        for _ in range(2 if wrong else 3):
            step(*batch)
        return step

    monkeypatch.setattr(ta, "capture", capture)
    size = Size(16, 2, 32, 1, 2, 3)
    if not wrong:
        sides.check_replay(size)
        return
    with pytest.raises(AssertionError, match="the captured step's loss is"):
        sides.check_replay(size)


@needs_matplotlib
@pytest.mark.skipif(COMPILER is None, reason="no g++ to compile the kernels with")
def test_the_dry_run(tmp_path):
    """Every kind of row, computing the same as PyTorch; the table last; JSON and plot."""
    done = run("--dry-run", "--out", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    content = json.loads((tmp_path / "gpu.json").read_text())
    assert {row["kind"] for row in content["rows"]} == {
        "copy", "softmax", "layer_norm", "step", "attention"
    }  # fmt: skip
    assert all(row["tinyattn"]["seconds"] > 0 for row in content["rows"])
    assert all(not row["notes"] for row in content["rows"])
    (step,) = [row for row in content["rows"] if row["kind"] == "step"]
    assert "captured" in step
    assert "TF32 off for both" in content["about"]["precision"]
    assert (tmp_path / "gpu.png").stat().st_size > 1000
    assert "no figures" in done.stdout.split("microseconds")[0]
    (line,) = re.findall(r" s  step tiny: (.*)", done.stdout)
    shown = dict(figure.split(" ", 1) for figure in line.split(", "))  # as soon as it is known
    measured = {side for side, figure in shown.items() if re.fullmatch(r"[\d,.]+ us", figure)}
    assert measured == {side for side in shown if side in step} >= {"tinyattn", "captured"}
