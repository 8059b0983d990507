"""Fixtures and settings that all tests share."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
import stand_in
from hypothesis import settings

import tinyattn as ta
from tinyattn.kernels import threads

if os.environ.get("TINYATTN_TEST_WITHOUT_TORCH"):  # as if PyTorch were not installed
    sys.modules["torch"] = None  # type: ignore[assignment]

# Random, but the same in every run: a failure can be repeated by anybody.
settings.register_profile("default", max_examples=60, deadline=None, derandomize=True)
settings.register_profile("deep", max_examples=2000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20171206)


@pytest.fixture(scope="session")
def torch() -> Any:
    """PyTorch, for tests that compare with it."""
    return pytest.importorskip(
        "torch", reason="PyTorch is not installed, so nothing to compare with", exc_type=ImportError
    )


@pytest.fixture
def no_gc() -> Iterator[None]:
    """Without the garbage collector: what is freed, reference counting freed."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def same_threads_afterwards() -> Iterator[None]:
    before = ta.get_num_threads()
    yield
    ta.set_num_threads(before)


@pytest.fixture(params=["asleep", "awake"])
def waiting(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, same_threads_afterwards: None
) -> str:
    """How threads wait for work."""
    monkeypatch.setattr(threads, "_stay_awake", request.param == "awake")
    ta.set_num_threads(2)
    if request.param == "awake" and not threads.awake():
        pytest.skip("without compiled loops, or sched_yield, threads do not wait awake")
    return request.param


@pytest.fixture
def divided(monkeypatch: pytest.MonkeyPatch, waiting: str) -> list[str]:
    """Work is divided however little it is: the names of what other threads were given."""
    functions: list[str] = []

    class Recorded(SimpleQueue):  # type: ignore[type-arg]
        def put(self, task: Any) -> None:
            functions.append(task[0].__name__)
            super().put(task)

    for name, value in (("WORTH_A_THREAD", 1), ("HANDING_OVER", 0)):
        monkeypatch.setattr(threads, name, value)
        monkeypatch.setattr(threads, f"{name}_AWAKE", value)
    monkeypatch.setattr(threads, "_tasks", Recorded())
    monkeypatch.setattr(threads, "_started", 0)  # those that were started do not know this queue
    return functions


NO_GPU = "no NVIDIA GPU, or no CuPy"


@pytest.fixture(params=["stand-in", pytest.param("device", marks=pytest.mark.gpu)])
def cuda(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The module behind "cuda" while a test runs: the stand-in for CuPy, or CuPy on a GPU."""
    if request.param == "device":
        with warnings.catch_warnings():  # what CuPy says of a machine as it is imported
            warnings.simplefilter("ignore")
            if not ta.cuda_is_available():
                pytest.skip(NO_GPU)
        yield ta.backend.module_of("cuda")
        return
    if stand_in.COMPILER is None:
        pytest.skip("no g++, which compiles the CUDA kernels for the host")
    before = ta.backend._cuda_module, dict(ta.backend._namespaces)
    ta.backend.register_cuda(stand_in.MODULE)
    yield stand_in.MODULE
    ta.backend._cuda_module = before[0]
    ta.backend._namespaces.clear()
    ta.backend._namespaces.update(before[1])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`deep` and `gpu` tests run when they are asked for: `pytest -m deep`, `pytest -m gpu`."""
    for marker in ("deep", "gpu"):
        if marker not in config.getoption("-m"):
            left_out = [item for item in items if item.get_closest_marker(marker)]
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if not item.get_closest_marker(marker)]


@pytest.hookimpl(wrapper=True, tryfirst=True)  # the last word, below the list of what was skipped
def pytest_terminal_summary(terminalreporter: Any) -> Iterator[None]:
    """`pytest -m gpu` without a GPU is green, has shown nothing, and says so."""
    yield
    reports = terminalreporter.stats.get("skipped", ())
    number = sum(NO_GPU in str(report.longrepr) for report in reports)
    if number and not ta.cuda_is_available():
        terminalreporter.write_line(f"no GPU: {number} tests skipped, nothing tested on one")
