"""Threads: how work is divided, that no bit depends on it, and what survives forks and errors."""

from __future__ import annotations

import functools
import math
import os
import subprocess
import sys
import threading
import time
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from common import signed
from test_tiled_attention import CASES, compiled, inputs, run

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import kernels
from tinyattn.kernels import threads

pytestmark = pytest.mark.usefixtures("same_threads_afterwards")
each_way = pytest.mark.usefixtures("waiting")


# No bit depends on them


@compiled
@pytest.mark.parametrize("case", CASES)
def test_number_of_threads_changes_no_bit(case, divided):
    leaves, gradient = inputs(3, 2, 290, 300, 6)
    results = []
    for number in (1, 2, 3, 7):
        ta.set_num_threads(number)
        divided.clear()
        results.append([x.tobytes() for x in run(leaves, gradient, **CASES[case])])
        others = min(number, 3 * 2) - 1  # there are six heads
        assert divided == ["attention_loop"] * others + ["attention_backward_loop"] * others
    assert results[0] == results[1] == results[2] == results[3]


@compiled
def test_number_of_threads_changes_no_bit_of_other_kernels(divided):
    """Dropout, relu, biases, LayerNorm and Adam."""
    results = []
    for number in (1, 2, 3):
        ta.set_num_threads(number)
        divided.clear()
        ta.manual_seed(3)
        x = ta.randn(811, 101, requires_grad=True)
        weight, bias = (ta.randn(101, requires_grad=True) for _ in range(2))
        out = F.dropout(F.relu(F.layer_norm(x, (101,), weight, bias)), 0.3)
        out.backward(ta.randn(811, 101))
        summed = out.detach().clone()
        kernels.add_bias(summed.data, bias.numpy())
        adam = ta.optim.Adam([x, weight, bias])
        gradients = [t.grad.numpy().tobytes() for t in (x, weight, bias)]
        adam.step()
        values = [t.numpy().tobytes() for t in (out, summed, x)]
        results.append([*values, *gradients])
    assert results[0] == results[1] == results[2]
    assert set(divided) == {
        "dropout_flat", "relu_flat", "relu_backward_flat", "add_to_rows", "layer_norm_rows",
        "layer_norm_backward_rows", "adam_flat",
    }  # fmt: skip


@compiled
def test_many_threads_of_the_caller_share_the_pool(divided):
    ta.set_num_threads(3)
    leaves, gradient = inputs(2, 4, 30, 40, 16)
    expected = [x.tobytes() for x in run(leaves, gradient)]
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda _: run(leaves, gradient), range(16)):
            assert [x.tobytes() for x in found] == expected
    assert len(divided) == 17 * 2 * 2


@compiled
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("blas", ["1", "2"])
def test_a_forked_child_starts_threads_of_its_own(blas):
    code = """
import os, signal, threading, tinyattn as ta
from tinyattn import functional as F
from tinyattn.kernels import threads
threads.WORTH_A_THREAD = threads.WORTH_A_THREAD_AWAKE = 1
threads.HANDING_OVER = threads.HANDING_OVER_AWAKE = 0
ta.set_num_threads(2)
q = ta.randn(2, 4, 20, 16)
F.scaled_dot_product_attention(q, q, q)
assert threading.active_count() == 2
pid = os.fork()
if pid == 0:
    signal.alarm(60)  # ends a child that waits for threads it does not have
    F.scaled_dot_product_attention(q, q, q)
    os._exit(threading.active_count())
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": blas}
    out = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )
    assert (out.stdout.strip(), out.stderr) == ("2", "")


# Matrix products


@compiled
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("n", "k", "m"), [(301, 100, 97), (97, 100, 301), (3000, 800, 1), (3, 9000, 101)]
)
def test_products_are_divided_while_threads_wait_awake(n, k, m, dtype, divided, waiting):
    """By rows or by columns, whatever the layouts, among as many threads as there are."""
    rng = np.random.default_rng(4)
    x, y = signed(rng, n, k).astype(dtype), signed(rng, k, m).astype(dtype)
    exact, sizes = x.astype(np.float64) @ y, np.abs(x) @ np.abs(y)
    for number in (1, 2, 4):
        ta.set_num_threads(number)
        for left, right in ((x, y), (x.T.copy().T, y), (x, y.T.copy().T), (x[::-1][::-1], y)):
            divided.clear()
            out = kernels.matrix_product(left, right)
            assert (out.dtype, out.shape, out.flags.c_contiguous) == (dtype, (n, m), True)
            assert (np.abs(out - exact) <= 20 * np.finfo(dtype).eps * sizes).all()
            others = min(number, max(n, m)) - 1 if waiting == "awake" else 0
            assert divided == ["multiply_rows" if n >= m else "multiply_columns"] * others


@compiled
@pytest.mark.parametrize("waiting", ["awake"], indirect=True)
def test_divided_products_of_inf_warn_in_no_thread(divided):
    x, y = np.full((300, 60), np.inf), np.zeros((60, 200))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("error")
        for left, right, function in ((x, y, "multiply_rows"), (y.T, x.T, "multiply_columns")):
            divided.clear()
            assert np.isnan(kernels.matrix_product(left, right)).all()
            assert divided == [function]


@compiled
def test_what_is_no_product_of_two_large_float_matrices_is_left_to_numpy(divided):
    rng = np.random.default_rng(5)
    x = signed(rng, 160, 160)
    for left, right in (
        (x[:100, :100], x[:100, :100]),  # small
        (x.astype(np.int64), x.astype(np.int64)),
        (x, x.astype(np.float32)),
        (np.stack([x, x]), np.stack([x, x])),
        (x, x[0]),
        (np.zeros((800, 0)), np.zeros((0, 800))),
    ):
        found = kernels.matrix_product(left, right)
        assert found.dtype == (left @ right).dtype
        assert (found == left @ right).all()
    assert divided == []


# How work is divided


@each_way
def test_parts_cover_everything_once_whatever_the_number_of_threads():
    for number in (1, 2, 3, 5):
        ta.set_num_threads(number)
        for count in (0, 1, 2, 7):
            for nanoseconds in (0, 1e9):
                seen = []
                collect = lambda seen, a, b: seen.extend(range(a, b))  # noqa: E731
                threads.in_parts(count, nanoseconds, collect, seen)
                assert sorted(seen) == list(range(count))


def test_a_part_is_worth_a_thread_or_there_is_none(waiting):
    ta.set_num_threads(5)
    awake = waiting == "awake"
    worth = threads.WORTH_A_THREAD_AWAKE if awake else threads.WORTH_A_THREAD
    for parts in (0.5, 1, 1.9, 2, 3.5, 5, 100):
        seen = []
        nanoseconds = parts * worth
        threads.in_parts(50, nanoseconds, lambda a, b, seen=seen: seen.append((a, b)))
        assert len(seen) == min(5, max(1, int(parts)))


def test_the_first_part_is_longer_by_what_handing_over_takes(waiting):
    awake = waiting == "awake"
    handing_over = threads.HANDING_OVER_AWAKE if awake else threads.HANDING_OVER
    for number, nanoseconds in ((2, 1e6), (3, 2e6)):
        ta.set_num_threads(number)
        parts = []
        threads.in_parts(10**6, nanoseconds, lambda a, b, parts=parts: parts.append((a, b - a)))
        first, *others = (length / 10**6 * nanoseconds for _, length in sorted(parts))
        for length in others:
            assert first - length == pytest.approx(handing_over, abs=3)


def test_work_shorter_than_handing_over_is_still_done_once(divided, monkeypatch):
    monkeypatch.setattr(threads, "HANDING_OVER", 1000)
    monkeypatch.setattr(threads, "HANDING_OVER_AWAKE", 1000)
    ta.set_num_threads(2)
    seen = []
    threads.in_parts(7, 10, lambda a, b: seen.extend(range(a, b)))
    assert divided
    assert sorted(seen) == list(range(7))


@each_way
def test_an_error_in_a_part_reaches_the_caller():
    ta.set_num_threads(2)

    def fail(first, last):
        if first:
            raise KeyError("of the second part")

    with pytest.raises(KeyError, match="second part"):
        threads.in_parts(2, 1e9, fail)


@each_way
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


@each_way
def test_threads_are_started_once_and_hold_no_arrays():
    ta.set_num_threads(3)
    array = np.zeros(10)
    held = weakref.ref(array)
    threads.in_parts(3, 1e9, lambda x, first, last: x[first:last].fill(1), array)
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


@compiled
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("at_once", [1, 3, 1000])
@pytest.mark.parametrize("count", [0, 1, 7, 100])
def test_pieces_are_taken_once_and_waited_for(count, at_once, number, waiting):
    """Of two loops in one kernel; the second reads what other threads wrote in the first."""
    from tinyattn.kernels.cpu import sharing

    ta.set_num_threads(number)
    for _ in range(20):
        first, second = np.zeros(count), np.zeros(count)
        board = sharing.boards(at_once, 1)
        threads.together(count, 1e9, two_loops(), first, second, board)
        assert (first > 0).all()
        assert (first < 2).all()
        assert np.array_equal(second, first[::-1])
        assert board[:, 1].tolist() == [count, count]


@functools.cache
def two_loops():
    from tinyattn.kernels.cpu.sharing import arrive, claimed, leave, wait_for

    from tinyattn.kernels.cpu.compiler import jit

    @jit(cache=False)
    def loops(first, second, board, bell, finished, part):
        arrive(bell, part)
        for i in claimed(board[0], len(first)):
            step = 1 / 1000
            for _ in range(1000):  # so that there is something to wait for
                step = math.sin(step) + 1e-6
            first[i] += 1 + step
        wait_for(board[0], len(first))
        for i in claimed(board[1], len(second)):
            second[i] += first[len(first) - 1 - i]
        leave(finished, part)

    return loops


@compiled
def test_who_waits_awake_is_told_to_come_and_to_go():
    """The first part tells the others to come; the others go when it waits for them, or late."""
    from tinyattn.kernels.cpu.sharing import arrive, leave

    from tinyattn.kernels.cpu.compiler import jit

    @jit(cache=False)
    def visit(bell, finished, part):
        arrive(bell, part)
        leave(finished, part)

    def seconds(finished, part):
        start = time.perf_counter()
        visit(bell, finished, part)
        return time.perf_counter() - start

    bell, waits, is_busy = np.zeros(1, np.int64), np.array([1, 0]), np.array([0, 0])
    visit(bell, waits, 0)
    assert bell[0] == 1
    for part in (1, threads.ALONE):
        visit(bell, waits, part)
        assert bell[0] == 1
    visits = ((waits, 1), (is_busy, 0), (is_busy, threads.ALONE))
    at_once = max(min(seconds(*visit) for _ in range(5)) for visit in visits)
    assert 10 * at_once < min(seconds(is_busy, 1) for _ in range(3)) < 1


@pytest.mark.parametrize("waiting", ["awake"], indirect=True)
def test_what_another_thread_has_done_is_seen_at_once(waiting, monkeypatch):
    """And not when waiting awake is given up."""
    monkeypatch.setattr(threads, "LOOKS", 10**6)  # half a second
    loops, seen = threads._waiting, []

    class Watched:
        MOMENT = loops.MOMENT

        @staticmethod
        def wait(finished, part, board, *arguments):
            found = loops.wait(finished, part, board, *arguments)
            if board is finished:  # and not what a thread looks at that waits for a task
                seen.append(found)
            return found

    monkeypatch.setattr(threads, "_waiting", Watched)
    for _ in range(20):
        threads.in_parts(2, 1e9, lambda first, last: None)
    assert seen == [True] * 20


@pytest.mark.parametrize("waiting", ["awake"], indirect=True)
def test_threads_wait_awake_for_milliseconds(waiting):
    board = np.zeros(1, np.int64)
    wait = functools.partial(threads._waiting.wait, np.zeros(1, np.int64), 0, board, 0, 1, 0)
    assert not wait(1, 0)  # which may have to be compiled
    start = time.perf_counter()
    assert not wait(threads.LOOKS, 0)
    assert time.perf_counter() - start > 2e-4


def test_threads_that_wait_awake_fall_asleep(waiting):
    """Else they would keep a core busy for as long as the process lives."""
    threads.in_parts(2, 1e9, lambda first, last: None)
    time.sleep(0.1)  # LOOKS take two milliseconds, or a few times that on a busy machine
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.1


def test_more_threads_than_tasks_wait_on(waiting):
    for number in (6, 2, 4):
        ta.set_num_threads(number)
        for count in (2, 3, 7) * 20:
            seen = []
            threads.in_parts(count, 1e9, lambda a, b, seen=seen: seen.extend(range(a, b)))
            assert sorted(seen) == list(range(count))


# Their number


@pytest.mark.parametrize("number", [0, -1, 1.5, True, "2", None, 1025, 10**6])
def test_a_number_of_threads_is_an_integer_of_at_least_one_and_no_absurd_one(number):
    before = ta.get_num_threads()
    with pytest.raises(ValueError, match="integer from 1 to 1024, got"):
        ta.set_num_threads(number)
    assert ta.get_num_threads() == before


def number_with(code="import tinyattn as ta; print(ta.get_num_threads())", **settings):
    """What a fresh process prints, its number of threads, and its last line of errors."""
    plain = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    out = subprocess.run(
        [sys.executable, "-c", code], env={**plain, **settings}, capture_output=True, text=True
    )
    return out.stdout.strip(), (out.stderr.splitlines() or [""])[-1]


def test_the_default_number_is_that_of_the_environment():
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    for settings, expected in (
        ({}, cores),
        ({"OPENBLAS_NUM_THREADS": "3"}, 3),
        ({"OMP_NUM_THREADS": "5"}, 5),
        ({"OMP_NUM_THREADS": "5", "OPENBLAS_NUM_THREADS": "3"}, 3),  # as OpenBLAS reads them
        ({"OMP_NUM_THREADS": "4", "OPENBLAS_NUM_THREADS": "many"}, 4),
        ({"OMP_NUM_THREADS": "1000000"}, 1024),
        ({"TINYATTN_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "5"}, 2),
        ({"TINYATTN_NUM_THREADS": "", "OPENBLAS_NUM_THREADS": "5"}, 5),
    ):
        assert number_with(**settings) == (str(expected), "")


@pytest.mark.parametrize("value", ["0", "-2", "two", "1.5", "1025"])
def test_a_bad_number_in_our_own_variable_is_refused(value):
    text = f"ValueError: TINYATTN_NUM_THREADS must be an integer from 1 to 1024, got {value!r}"
    assert number_with(TINYATTN_NUM_THREADS=value) == ("", text)


@compiled
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"OPENBLAS_NUM_THREADS": "1"}, "True False"),
        ({"OMP_NUM_THREADS": "1"}, "True False"),
        ({"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "1"}, "False False"),
        ({"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "2"}, "True False"),
        ({"OPENBLAS_NUM_THREADS": "1", "TINYATTN_JIT": "0"}, "False False"),
        ({"OPENBLAS_NUM_THREADS": "1", "NUMBA_DISABLE_JIT": "1"}, "False False"),
        ({}, "False False"),
    ],
)
def test_threads_wait_awake_where_blas_has_one_and_they_are_several(settings, expected):
    code = """
import tinyattn as ta
from tinyattn.kernels import threads
ta.set_num_threads(2)
several = threads.awake()
ta.set_num_threads(1)
print(several, threads.awake())
"""
    assert number_with(code, **settings) == (expected, "")
