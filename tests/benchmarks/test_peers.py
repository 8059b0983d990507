"""torch.compile and JAX in the benchmarks: that they compute what tinyattn computes."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import tinyattn as ta
from benchmarks import harness, language_model, report, worker
from benchmarks.cases import COMPILED, lengths_of
from benchmarks.encoders import SHORTEST, token_ids
from benchmarks.harness import Row, every_case
from benchmarks.libraries import LIBRARIES, Encoder
from benchmarks.processes import SIDES, Settings, Side

SHORT = Settings(threads=1, repeats=1, short=True)
OPTIONS = {"threads": 1}
needs_jax = pytest.mark.skipif(
    not importlib.util.find_spec("jax"), reason="JAX is missing: pip install jax"
)


def losses_of(lib: Any, sizes: Encoder, p: float, is_padded: bool) -> list[float]:
    """Of the first steps of an encoder."""
    rng = np.random.default_rng(5)
    full = np.full(sizes.batch, sizes.length)
    lengths = lengths_of(sizes.batch, sizes.length) if is_padded else full
    step = lib.encoder_step(sizes, p, rng, lengths if is_padded else None)
    batch = [lib.tensor(array) for array in token_ids(sizes, lengths, rng)]
    return [step(*batch).item() for _ in range(4)]


@needs_jax
@pytest.mark.parametrize("is_padded", [True, False])
@pytest.mark.parametrize("sizes", [SHORTEST, Encoder(24, 3, 48, 3, 5, 9, 30, 4)])
def test_an_encoder_in_jax_has_our_losses(sizes: Encoder, is_padded: bool) -> None:
    ours, theirs = (
        losses_of(LIBRARIES[name](OPTIONS), sizes, 0.0, is_padded) for name in ("tinyattn", "jax")
    )
    assert theirs[0] == pytest.approx(ours[0], abs=1e-5)
    # Later ones agree only if gradients and Adam do. Where a gradient is nearly 0, Adam makes a
    # whole step of its rounding.
    assert theirs == pytest.approx(ours, abs=1e-4)


@needs_jax
def test_a_language_model_in_jax_has_our_losses() -> None:
    sizes = (2, 3, 24, 9, 4, 30)  # layers, heads, width, context, batch, words
    rng = np.random.default_rng(1)
    batch = rng.integers(0, 30, (2, 4, 9))
    losses = []
    for make, name in (
        (partial(language_model.of_tinyattn, kind="gpt2"), "tinyattn"),
        (language_model.of_jax, "jax"),
    ):
        ta.manual_seed(2)
        lib = LIBRARIES[name](OPTIONS)
        step = make(lib, sizes=sizes)
        losses.append([step(*map(lib.tensor, batch)).item() for _ in range(4)])
    assert losses[1][0] == pytest.approx(losses[0][0], abs=1e-5)
    assert losses[1] == pytest.approx(losses[0], abs=1e-4)


@needs_jax
def test_dropout_in_jax_keeps_the_mean_and_draws_anew_in_each_step() -> None:
    jax_steps = importlib.import_module("benchmarks.jax_steps")
    keys = iter(jax_steps.jax.random.split(jax_steps.jax.random.key(3), 2))
    first, second = (np.asarray(jax_steps.dropped(np.ones(10_000), 0.1, keys)) for _ in range(2))
    assert set(np.unique(first)) == {0, np.float32(1 / 0.9)}
    assert first.mean() == pytest.approx(1, abs=0.02)
    assert (first != second).any()
    losses = {p: losses_of(LIBRARIES["jax"](OPTIONS), SHORTEST, p, True) for p in (0.0, 0.5)}
    assert losses[0.0][0] != pytest.approx(losses[0.5][0], abs=1e-3)


@pytest.mark.parametrize("name", COMPILED)
def test_a_peer_that_compiles_is_measured_and_its_first_call_told_apart(name: str) -> None:
    if not SIDES[name].is_installed:
        pytest.skip(f"{name} is missing, or its C++ compiler")
    sides = {side: SIDES[side] for side in (name, "tinyattn")}
    case = every_case(short=True)["step tiny p=0"]
    # They have computed the same losses, or the row would complain.
    ((time, memory),) = harness.measure_together([case], sides, SHORT)
    assert time.complaints == memory.complaints == []
    assert time.first[name][0] > time.known(name)[0] > 0
    assert memory.known(name) == []
    if name == "torch.compile":
        return
    step = every_case(short=True)["language model step gpt2"]
    ((row,),) = harness.measure_together([step], sides, SHORT)
    assert row.complaints == []
    assert row.known(name)[0] > 0


def test_a_line_tells_a_peers_ratio_and_its_first_call() -> None:
    row = Row("step", "section", "", values={"tinyattn": [2e-3], "jax": [3e-3]})
    row.first = {"tinyattn": [0.5], "jax": [4.0]}
    assert report.line(row).split()[-4:] == ["0%", "1.50", "4.00", "s"]
    row.values["torch.compile"] = [None]
    assert "-           -           -" in report.line(row)  # it failed


def test_a_peer_without_its_compiler_is_not_installed() -> None:
    assert not replace(SIDES["tinyattn"], programs=("no such compiler",)).is_installed
    assert not Side("jax", needs=("no_such_package",)).is_installed


def test_memory_of_a_compiler_is_not_told() -> None:
    case = every_case(short=True)["step tiny p=0"]
    assert worker.counts_memory(case, {})
    assert not worker.counts_memory(case, {"compile": True})
    assert worker.counts_memory(case, {"compile": True, "device": "cuda"})  # the GPU's memory
