"""Fixtures and settings that all tests share."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stand_in
from hypothesis import settings

import tinyattn as ta
from tinyattn.kernels import range_checks, threads

# Random, but the same in every run: a failure can be repeated by anybody.
settings.register_profile("default", max_examples=60, deadline=None, derandomize=True)
settings.register_profile("deep", max_examples=2000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


HERE = Path(__file__).parent
CORE = "not extended"  # the -m of setup.cfg
# What `pytest` alone leaves out, because it answers in two minutes: files and folders that are
# listed here, and tests with the mark `extended`. `pytest -m ""` runs them too, and so does a
# command that names a file or a folder.
EXTENDED = {
    *("benchmarks", "gpu", "models", "planted", "port", "typing"),
    *("docs/test_docs.py", "docs/test_encoder_script.py", "docs/test_exercises.py"),
    *("docs/test_exercises_in_chinese.py", "docs/test_guard_of_exercises.py"),
    *("docs/test_files_of_students.py", "docs/test_score_card.py", "docs/test_student_copy.py"),
    *("docs/test_interactive.py", "docs/test_missing_packages.py"),
    *("docs/test_examples_print.py", "docs/test_notebooks.py"),
    *("docs/test_pytorch_names.py", "docs/test_search.py"),
    *("docs/test_site.py", "docs/test_teaching.py"),
    *("docs/test_translations.py", "engine/test_interrupts.py", "engine/test_iterables.py"),
    *("engine/test_numbers.py",),
    *("engine/test_numpy_functions.py", "engine/test_random_programs.py"),
    *("gradients/test_extremes.py", "layers/test_interop.py"),
    *("kernels/test_cache.py", "kernels/test_threads.py", "kernels/test_without_numba.py"),
    *("layers/test_viz.py", "layers/test_viz_texts.py"),
    *("training/test_checkpoint.py", "training/test_distributed.py", "training/test_long_runs.py"),
    *("training/test_small_programs.py", "training/test_sound_data.py"),
    *("training/test_spell_to_sound.py",),
}


def pytest_configure(config: pytest.Config) -> None:
    """The core is for `pytest` alone: what is named on the command line is run whole."""
    asked = any(argument.startswith("-m") for argument in config.invocation_params.args)
    asked = asked or config.option.markexpr != CORE  # such as -qm gpu
    named = config.args_source is not pytest.Config.ArgsSource.TESTPATHS
    if named and not asked and not hasattr(config, "workerinput"):  # of pytest-xdist
        config.option.markexpr = ""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    core = config.option.markexpr == CORE
    return True if core and collection_path.relative_to(HERE).as_posix() in EXTENDED else None


def pytest_collectstart() -> None:
    """Take the methods that `tinyattn.torch_names` gave Tensors when a test imported it, because
    the file that is collected next may ask which methods there are."""
    if methods := sys.modules.get("tinyattn.torch_names.methods"):
        methods.take_methods()


@pytest.fixture(autouse=True)
def tinyattn_alone() -> None:
    """Without these methods, also after a test that imported it."""
    pytest_collectstart()


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


@pytest.fixture
def divided(
    monkeypatch: pytest.MonkeyPatch, same_threads_afterwards: None
) -> list[tuple[str, int]]:
    """Two threads divide work however little it is, and the second does compute: the name of each
    function that was divided, and into how many chunks."""
    tasks: list[tuple[str, int]] = []

    class Recorded(threads.Task):
        def __init__(self, chunks: list[tuple[Any, ...]]) -> None:
            tasks.append((chunks[0][0].__name__, len(chunks)))
            super().__init__(chunks)
            self.caller = threading.current_thread()

        def compute_chunks(self) -> None:
            end = time.monotonic() + 20
            while threading.current_thread() is self.caller and not self.begun:
                assert time.monotonic() < end, "no helper has come"
                time.sleep(1e-5)
            super().compute_chunks()

    monkeypatch.setattr(threads, "Task", Recorded)
    monkeypatch.setattr(threads, "CHUNK_NANOSECONDS", 1)
    ta.set_num_threads(2)
    return tasks


NO_GPU = "no NVIDIA GPU, or no CuPy"


@pytest.fixture(params=["stand-in", pytest.param("device", marks=pytest.mark.gpu)])
def cuda(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The module behind "cuda" while a test runs: the stand-in for CuPy, or CuPy on a GPU."""
    if request.param == "device":
        with warnings.catch_warnings():  # what CuPy says of a machine as it is imported
            warnings.simplefilter("ignore")
            if not ta.cuda_is_available():
                pytest.skip(NO_GPU)
        yield ta.base.backend.module_of("cuda")
        return
    if stand_in.COMPILER is None:
        pytest.skip("no g++, which compiles the CUDA kernels for the host")
    before = ta.base.backend._cuda_module, dict(ta.base.backend.array_types)
    ta.base.backend.register_cuda(stand_in.MODULE)
    range_checks._rows.clear()
    range_checks._table = None
    yield stand_in.MODULE
    range_checks._rows.clear()
    range_checks._table = None
    ta.base.backend._cuda_module = before[0]
    ta.base.backend.array_types.clear()
    ta.base.backend.array_types.update(before[1])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`deep` and `gpu` tests run when they are asked for: `pytest -m deep`, `pytest -m gpu`."""
    for marker in ("deep", "gpu"):
        if marker not in config.getoption("-m"):
            left_out = [item for item in items if item.get_closest_marker(marker)]
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if not item.get_closest_marker(marker)]


@pytest.hookimpl(wrapper=True, tryfirst=True)  # the last word, below the list of what was skipped
def pytest_terminal_summary(terminalreporter: Any) -> Iterator[None]:
    """What was not run: extended tests, and `pytest -m gpu` without a GPU, which is green."""
    yield
    if terminalreporter.config.option.markexpr == CORE:
        terminalreporter.write_line('this was the core: pytest -m "" runs all tests')
    reports = terminalreporter.stats.get("skipped", ())
    number = sum(NO_GPU in str(report.longrepr) for report in reports)
    if number and not ta.cuda_is_available():
        terminalreporter.write_line(f"no GPU: {number} tests skipped, nothing tested on one")
