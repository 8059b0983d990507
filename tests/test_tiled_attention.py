"""Attention in tiles: memory that grows with the length, and threads that change no bit."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import tracemalloc
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from common import signed

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import kernels, nn, threads
from tinyattn.kernels import reference

compiled = pytest.mark.skipif(
    kernels.jitted() is None or os.environ.get("NUMBA_DISABLE_JIT") == "1",
    reason="the tiled loops are not compiled here; as plain Python they would take minutes",
)


@pytest.fixture(autouse=True)
def same_threads_afterwards():
    before = ta.get_num_threads()
    yield
    ta.set_num_threads(before)


def inputs(batch, heads, queries, keys, width, seed=0):
    rng = np.random.default_rng(seed)
    shapes = [(batch, heads, n, width) for n in (queries, keys, keys)]
    leaves = [ta.tensor(signed(rng, *s).astype(np.float32), requires_grad=True) for s in shapes]
    return leaves, ta.tensor(signed(rng, *shapes[0]).astype(np.float32))


def run(leaves, gradient, seed=None, **options):
    """The output and the three gradients."""
    if seed is not None:
        ta.manual_seed(seed)
    out = F.scaled_dot_product_attention(*leaves, **options)
    return [out.numpy(), *(g.numpy() for g in ta.grad(out, leaves, gradient))]


CASES = {
    "plain": {},
    "causal": {"is_causal": True},
    "padded": {"valid_lens": [3, 130, 0]},
    "dropout": {"dropout_p": 0.3, "seed": 5},
    "a length per query": {
        "valid_lens": np.random.default_rng(1).integers(0, 301, (3, 290)),
        "is_causal": True,
    },
    "mask": {"mask": np.random.default_rng(2).uniform(size=(3, 290, 300)) < 0.4},
    "mask of keys, and dropout": {
        "mask": np.random.default_rng(3).uniform(size=(3, 300)) < 0.4, "dropout_p": 0.2, "seed": 6,
    },
}  # fmt: skip


@compiled
@pytest.mark.parametrize("case", CASES)
def test_tiles_agree_with_whole_rows_in_float64(case):
    """Sizes of several tiles in every direction, none of them full at the end."""
    leaves, gradient = inputs(3, 2, 290, 300, 6)
    wide = [ta.tensor(x.numpy().astype(np.float64), requires_grad=True) for x in leaves]
    found = run(leaves, gradient, **CASES[case])
    expected = run(wide, ta.tensor(gradient.numpy().astype(np.float64)), **CASES[case])
    for actual, exact in zip(found, expected, strict=True):
        assert np.abs(actual - exact).max() <= 4e-6 * max(1, np.abs(exact).max())
        assert np.abs(exact).max() > 0.01


@compiled
@pytest.mark.parametrize("case", CASES)
def test_number_of_threads_changes_no_bit(case):
    leaves, gradient = inputs(3, 2, 290, 300, 6)
    results = []
    for number in (1, 2, 3, 7):
        ta.set_num_threads(number)
        results.append(run(leaves, gradient, **CASES[case]))
    for other in results[1:]:
        for x, y in zip(results[0], other, strict=True):
            assert x.tobytes() == y.tobytes()


@compiled
def test_number_of_threads_changes_no_bit_of_other_kernels():
    """Dropout, relu, biases, LayerNorm and Adam, on arrays large enough for three parts each."""
    results = []
    for number in (1, 2, 3):
        ta.set_num_threads(number)
        ta.manual_seed(3)
        x = ta.randn(1600, 1001, requires_grad=True)
        weight, bias = (ta.randn(1001, requires_grad=True) for _ in range(2))
        out = F.dropout(F.relu(F.layer_norm(x, (1001,), weight, bias)), 0.3)
        out.backward(ta.randn(1600, 1001))
        summed = out.detach().clone()
        kernels.add_bias(summed.data, bias.numpy())
        adam = ta.optim.Adam([x, weight, bias])
        gradients = [t.grad.numpy().tobytes() for t in (x, weight, bias)]
        adam.step()
        values = [t.numpy().tobytes() for t in (out, summed, x)]
        results.append([*values, *gradients])
    assert results[0] == results[1] == results[2]


def peak(function):
    """The most bytes that NumPy held for a call, beyond what it held before."""
    function()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        function()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@compiled
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"dropout_p": 0.1}])
def test_memory_is_linear_in_the_length(options):
    """Forward and backward, graph, scratch and all: no array of queries by keys is made."""
    ta.set_num_threads(1)  # each has scratch of its own
    peaks = []
    for length in (512, 1024, 2048):
        leaves, gradient = inputs(1, 2, length, length, 16)
        peaks.append(peak(lambda x=leaves, g=gradient: run(x, g, seed=1, **options)))
    one_array = leaves[0].numpy().nbytes
    assert peaks[2] < 16 * one_array  # of which there are 128 in the two heads' scores
    assert peaks[2] < 2.2 * peaks[1] < 4.84 * peaks[0]


@compiled
def test_memory_of_a_module_is_linear_in_the_length():
    ta.set_num_threads(1)
    attention = nn.MultiHeadAttention(16, 16, 16, 16, 2, dropout=0.1)
    peaks = []
    for length in (512, 1024, 2048):
        x = ta.randn(1, length, 16, requires_grad=True)
        gradient = ta.randn(1, length, 16)

        def step(x=x, gradient=gradient, length=length):
            attention(x, x, x, valid_lens=[length - 3], is_causal=True).backward(gradient)

        peaks.append(peak(step))
    assert peaks[2] < 2.2 * peaks[1] < 4.84 * peaks[0]
    assert attention.attention_weights.shape == (1, 2, 2048, 2048)  # computed when read


@compiled
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("which", range(4))
def test_nan_and_inf_go_exactly_where_they_are_seen(which, value):
    """In queries, keys, values or the gradient: as the float64 reference has it."""
    rng = np.random.default_rng(4)
    q, k, v, grad = (signed(rng, 1, 2, 9, 5) for _ in range(4))
    for limits, mask in (
        (np.arange(1, 10)[None], None),
        (None, rng.uniform(size=(1, 1, 9, 9)) < 0.5),
    ):
        arrays = [q.copy(), k.copy(), v.copy(), grad.copy()]
        arrays[which][0, 0, 4, 2] = value
        settings = (limits, mask, 0.7, 0.0, 0)
        results = []
        with np.errstate(all="ignore"):
            for dtype in (np.float32, np.float64):
                q_, k_, v_, grad_ = (a.astype(dtype) for a in arrays)
                out, saved = kernels.attention(q_, k_, v_, *settings)
                back = kernels.attention_backward(grad_, q_, k_, v_, *settings, saved)
                results.append((out, *back))
        for actual, exact in zip(*results, strict=True):
            assert (np.isfinite(actual) == np.isfinite(exact)).all()
            sound = np.isfinite(exact)
            assert np.abs(actual[sound] - exact[sound]).max() < 1e-5
        assert any(not np.isfinite(array).all() for array in results[0])


@compiled
def test_a_row_of_nothing_but_minus_infinity_is_undefined_and_an_empty_row_zero():
    q = np.ones((1, 1, 3, 4), np.float32)
    k, v = np.full((1, 1, 2, 4), -np.inf, np.float32), np.ones((1, 1, 2, 4), np.float32)
    for module in (kernels, reference):
        with np.errstate(all="ignore"):
            settings = (np.array([[2, 0, 1]]), None, 1.0, 0.0, 0)
            out, saved = module.attention(q, k, v, *settings)
            dq, dk, dv = module.attention_backward(q, q, k, v, *settings, saved)
        assert np.isnan(out[0, 0, [0, 2]]).all()
        assert (out[0, 0, 1] == 0).all()
        assert np.isnan(dq[0, 0, [0, 2]]).all()
        assert (dq[0, 0, 1] == 0).all()
        assert np.isnan(dk).all()
        assert np.isnan(dv).all()


# Threads


@pytest.mark.parametrize("number", [0, -1, 1.5, True, "2", None, 1025, 10**6])
def test_a_number_of_threads_is_an_integer_of_at_least_one_and_no_absurd_one(number):
    before = ta.get_num_threads()
    with pytest.raises(ValueError, match="integer from 1 to 1024, got"):
        ta.set_num_threads(number)
    assert ta.get_num_threads() == before


def test_parts_cover_everything_once_whatever_the_number_of_threads():
    for number in (1, 2, 3, 5):
        ta.set_num_threads(number)
        for count in (0, 1, 2, 7):
            for work in (0, 1e9):
                seen = []
                threads.in_parts(count, work, lambda a, b, seen=seen: seen.extend(range(a, b)))
                assert sorted(seen) == list(range(count))


def test_an_error_in_a_part_reaches_the_caller():
    ta.set_num_threads(2)

    def fail(first, last):
        if first:
            raise KeyError("of the second part")

    with pytest.raises(KeyError, match="second part"):
        threads.in_parts(2, 1e9, fail)


def test_an_error_of_the_caller_waits_for_the_other_parts():
    """They write to its arrays."""
    ta.set_num_threads(2)
    finished = []

    def fail(first, last):
        if not first:
            raise KeyError("of the first part")
        time.sleep(0.1)
        finished.append(last)

    with pytest.raises(KeyError, match="first part"):
        threads.in_parts(2, 1e9, fail)
    assert finished == [2]


def test_threads_are_started_once_and_hold_no_arrays():
    ta.set_num_threads(3)
    array = np.zeros(10)
    held = weakref.ref(array)
    threads.in_parts(3, 1e9, partial(lambda x, first, last: x[first:last].fill(1), array))
    before = threading.active_count()
    del array
    end = time.monotonic() + 5
    while held() is not None and time.monotonic() < end:  # a thread may just be putting it away
        time.sleep(0.01)
    assert held() is None
    for _ in range(20):
        threads.in_parts(3, 1e9, lambda first, last: None)
    assert threading.active_count() == before
    ta.set_num_threads(2)
    ta.set_num_threads(3)
    threads.in_parts(3, 1e9, lambda first, last: None)
    assert threading.active_count() == before


def test_the_default_number_is_that_of_the_environment():
    code = "import tinyattn as ta; print(ta.get_num_threads())"
    plain = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    for setting, expected in (
        ({}, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        ({"OPENBLAS_NUM_THREADS": "3"}, 3),
        ({"OMP_NUM_THREADS": "5", "OPENBLAS_NUM_THREADS": "3"}, 5),
        ({"OMP_NUM_THREADS": "many", "OPENBLAS_NUM_THREADS": "4"}, 4),
        ({"TINYATTN_NUM_THREADS": "2", "OMP_NUM_THREADS": "5"}, 2),
    ):
        out = subprocess.run(
            [sys.executable, "-c", code], env={**plain, **setting}, capture_output=True, text=True
        )
        assert (out.stdout.strip(), out.stderr) == (str(expected), "")


@compiled
def test_many_threads_of_the_caller_share_the_pool():
    ta.set_num_threads(3)
    leaves, gradient = inputs(2, 4, 130, 140, 16)
    expected = [x.tobytes() for x in run(leaves, gradient)]
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda _: run(leaves, gradient), range(16)):
            assert [x.tobytes() for x in found] == expected


@compiled
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_starts_threads_of_its_own():
    code = """
import os, signal, tinyattn as ta
from tinyattn import functional as F
ta.set_num_threads(2)
q = ta.randn(2, 4, 200, 16)
F.scaled_dot_product_attention(q, q, q)
pid = os.fork()
if pid == 0:
    signal.alarm(60)  # ends a child that waits for threads it does not have
    F.scaled_dot_product_attention(q, q, q)
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (out.stdout.strip(), out.stderr) == ("7", "")
