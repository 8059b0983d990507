"""`python -m benchmarks.gpu` says that it needs a GPU; its dry run does all but the figures."""

from __future__ import annotations

import importlib.util
import json
import os
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


@needs_matplotlib
@pytest.mark.skipif(COMPILER is None, reason="no g++ to compile the kernels with")
def test_the_dry_run(tmp_path):
    """Every kind of row, computing the same as PyTorch; the table last; JSON and plot."""
    done = run("--dry-run", "--json", tmp_path / "gpu.json")
    # An exit status of 0 also says that all sides computed the same numbers.
    assert done.returncode == 0, done.stdout + done.stderr
    content = json.loads((tmp_path / "gpu.json").read_text())
    rows = {row["name"]: row for row in content["rows"]}
    for kind in ("copy", "softmax", "layer norm", "step", "attention"):
        (row,) = (row for name, row in rows.items() if name.startswith(f"gpu {kind}")
                  and row["unit"] == "s")  # fmt: skip
        assert row["medians"]["tinyattn"] > 0
        assert row["name"] in done.stdout
    assert "TF32 off for both" in content["precision"]
    assert "no figures" in done.stdout.split("gpu copy")[0]
    if importlib.util.find_spec("torch"):
        assert (tmp_path / "gpu.png").stat().st_size > 1000


@needs_matplotlib
@pytest.mark.skipif(COMPILER is None, reason="no g++ to compile the kernels with")
def test_the_first_minutes_without_a_gpu(tmp_path):
    """Tests and benchmark, each with a file of its own."""
    done = run("--first-minutes", tmp_path / "results", "--dry-run")
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "results" / "steps.json").read_text())
    assert [(step["name"], step["ended"]) for step in results] == [
        ("tests", "well"), ("benchmark", "well")
    ]  # fmt: skip
    assert " passed" in (tmp_path / "results" / "tests.txt").read_text()
    assert json.loads((tmp_path / "results" / "benchmark.json").read_text())["rows"]


def test_the_first_minutes_have_nine(tmp_path, monkeypatch, capsys):
    """A step that takes longer is ended with its own processes, what is not installed is told."""
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.gpu import first_minutes as module

    planned = list(module.steps(tmp_path, False))
    assert [step.name for step in planned] == [
        "tests", "benchmark", "racecheck", "memcheck", "profile"
    ]  # fmt: skip
    assert sum(step.seconds for step in planned) <= module.SECONDS <= 540
    waits = "import time; print('begun', flush=True); time.sleep(60)"
    fake = [
        module.Step("long", 1.5, [sys.executable, "-c", waits]),
        module.Step("missing", 9, ["no-such-program"]),
        module.Step("fails", 20, [sys.executable, "-c", "raise SystemExit(3)"]),
        module.Step("good", 20, [sys.executable, "-c", "print('done')"]),
    ]
    monkeypatch.setattr(module, "steps", lambda folder, dry_run: iter(fake))
    assert module.first_minutes(tmp_path, False) == 1
    ended = [step["ended"] for step in json.loads((tmp_path / "steps.json").read_text())]
    assert ended == ["ended after 2 s", "not installed", "exit status 3", "well"]
    assert (tmp_path / "long.txt").read_text() == "begun\n"
    assert module.first_minutes(tmp_path, False, 0.0) == 1
    assert "no time left" in capsys.readouterr().out
