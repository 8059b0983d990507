"""Fixtures and settings that all tests share."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`deep` tests run when they are asked for: `pytest -m deep`."""
    if "deep" not in config.getoption("-m"):
        deep = [item for item in items if item.get_closest_marker("deep")]
        config.hook.pytest_deselected(items=deep)
        items[:] = [item for item in items if not item.get_closest_marker("deep")]
