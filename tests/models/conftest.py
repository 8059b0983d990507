"""What tests of the programs in examples/ share: their import, and stand-ins for slow parts."""

from __future__ import annotations

import importlib
import types
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch):
    """A function that imports a program by its name."""
    for package in ("tqdm", "matplotlib", "sklearn"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")  # an example sets it; other tests need it unset
    return importlib.import_module


@pytest.fixture
def noted(monkeypatch):
    """A function that puts a stand-in in a place, and the list of all calls of stand-ins."""
    calls = []

    def stand_in(place, name, result=None):
        def call(*args, **options):
            calls.append((name, args, options) if options else (name, *args))
            return result(*args, **options) if callable(result) else result

        monkeypatch.setattr(place, name, call)

    return types.SimpleNamespace(calls=calls, put=stand_in)


@pytest.fixture
def clock(monkeypatch):
    """A function that gives a program a clock, which it reads twice: 30 seconds go by."""
    times = iter([12.0, 42.0])
    of = types.SimpleNamespace(perf_counter=lambda: next(times))
    return lambda program: monkeypatch.setattr(program, "time", of)


@pytest.fixture
def pictures(monkeypatch):
    """A function that notes how a program draws and saves pictures instead of doing so."""

    def noted(program):
        found = []

        def draw(*given, **options):
            found.append((given, options))
            return "figure"

        monkeypatch.setattr(program.viz, "show_heatmaps", draw)
        monkeypatch.setattr(program.viz, "plot_curves", draw)
        monkeypatch.setattr(program.programs, "save_picture", draw)
        return found

    return noted
