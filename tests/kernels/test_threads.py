"""Threads: how work is divided, that no bit depends on it, and what survives forks and errors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from common import run_python, signed
from test_tiled_attention import CASES, compiled, inputs, run

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import ops
from tinyattn.kernels import blas, matmul, threads

pytestmark = pytest.mark.usefixtures("same_threads_afterwards")


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
        chunks = min(threads.CHUNKS_PER_THREAD * number, 3 * 2)  # there are six heads
        names = ["attention_heads"] * 2  # forward and backward
        assert divided == [(name, chunks) for name in names if number > 1]
    assert results[0] == results[1] == results[2] == results[3]


@compiled
def test_number_of_threads_changes_no_bit_of_other_kernels(divided):
    """Dropout, relu, GELU, LayerNorm and Adam."""
    results = []
    for number in (1, 2, 3):
        ta.set_num_threads(number)
        divided.clear()
        ta.manual_seed(3)
        x = ta.randn(811, 101, requires_grad=True)
        weight, bias = (ta.randn(101, requires_grad=True) for _ in range(2))
        out = F.dropout(F.relu(F.layer_norm(F.rms_norm(x, 101, weight), 101, weight, bias)), 0.3)
        out = F.gelu(out) + F.gelu(out, "tanh")
        out.backward(ta.randn(811, 101))
        adam = ta.optim.Adam([x, weight, bias])
        gradients = [t.grad.numpy().tobytes() for t in (x, weight, bias)]
        adam.step()
        values = [t.numpy().tobytes() for t in (out, x)]
        results.append([*values, *gradients])
    assert results[0] == results[1] == results[2]
    assert {name for name, _ in divided} == {
        "dropout_elements", "relu_elements", "norm_rows", "norm_backward_rows",
        "adam_elements", "gelu_elements",
        "gelu_backward_elements", "gelu_tanh_elements", "gelu_tanh_backward_elements",
    }  # fmt: skip


@compiled
def test_many_threads_of_the_caller_share_the_pool(divided):
    ta.set_num_threads(3)
    leaves, gradient = inputs(2, 4, 30, 40, 16)
    expected = [x.tobytes() for x in run(leaves, gradient)]
    before = threading.active_count()
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda _: run(leaves, gradient), range(16)):
            assert [x.tobytes() for x in found] == expected
        assert threading.active_count() <= before + 8
    assert len(divided) == 17 * 2


@compiled
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("blas", ["1", "2", ""])
def test_a_forked_child_starts_threads_of_its_own(blas):
    code = """
import os, signal, threading, tinyattn as ta
from tinyattn import functional as F
from tinyattn.kernels import threads
threads.CHUNK_NANOSECONDS = 1
ta.set_num_threads(2)
q = ta.randn(2, 4, 20, 16)
big = ta.randn(400, 400)
F.scaled_dot_product_attention(q, q, q), big @ big
assert threading.active_count() == 2
pid = os.fork()
if pid == 0:
    signal.alarm(60)  # ends a child that waits for threads it does not have
    F.scaled_dot_product_attention(q, q, q), big @ big
    os._exit(threading.active_count())
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    plain = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    environment = {**plain, **({"OPENBLAS_NUM_THREADS": blas} if blas else {})}
    out = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )
    assert out.stdout.strip() == "2", out.stderr


# Matrix products


@pytest.fixture
def small_chunks(monkeypatch, divided):
    """Products of some thousand numbers are divided."""
    monkeypatch.setattr(matmul, "WORK", 1 << 18)
    monkeypatch.setattr(matmul, "ROWS", 20)
    if not blas.limit_once():
        pytest.skip("BLAS has threads of its own here")
    return divided


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("n", "k", "m"), [(301, 100, 97), (97, 100, 301), (3000, 800, 1), (7, 9000, 101)]
)
def test_products_are_divided_and_no_bit_depends_on_threads(n, k, m, dtype, small_chunks):
    """By rows or by columns, whatever the layouts."""
    rng = np.random.default_rng(4)
    x, y = signed(rng, n, k).astype(dtype), signed(rng, k, m).astype(dtype)
    exact, sizes = x.astype(np.float64) @ y, np.abs(x) @ np.abs(y)
    for left, right in ((x, y), (x.T.copy().T, y), (x, y.T.copy().T), (x[::-1][::-1], y)):
        results = []
        for number in (1, 2, 4):
            ta.set_num_threads(number)
            small_chunks.clear()
            out = matmul.matrix_product(left, right)
            assert (out.dtype, out.shape, out.flags.c_contiguous) == (dtype, (n, m), True)
            assert (np.abs(out - exact) <= 20 * np.finfo(dtype).eps * sizes).all()
            chunks = min(n * k * m // (1 << 18), max(n, m) // 20)
            even = chunks + chunks % 2  # so that no thread waits for the last chunk of another
            tasks = min(even, threads.CHUNKS_PER_THREAD * number)
            assert small_chunks == [("multiply_chunks", tasks)] * (number > 1)
            results.append(out.tobytes())
        assert results[0] == results[1] == results[2]


def test_divided_products_of_inf_warn_in_no_thread(small_chunks):
    x, y = np.full((300, 60), np.inf), np.zeros((60, 200))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("error")
        for left, right in ((x, y), (y.T, x.T)):  # by rows, by columns
            small_chunks.clear()
            assert np.isnan(matmul.matrix_product(left, right)).all()
            assert [name for name, _ in small_chunks] == ["multiply_chunks"]


@pytest.mark.parametrize(("n", "m"), [(6, 4), (4, 6), (4, 4)])
def test_a_chunk_is_of_rows_or_of_columns(n, m):
    """Of the longer side, so that all threads have as much to do."""
    out, expected = np.zeros((n, m)), np.zeros((n, m))
    matmul.multiply_chunks(np.ones((n, 3)), np.ones((3, m)), out, 2, 1, 2)
    (expected if n >= m else expected.T)[2:4] = 3.0
    assert (out == expected).all()


def test_what_is_no_product_of_two_large_float_matrices_is_left_to_numpy(small_chunks):
    rng = np.random.default_rng(5)
    x = signed(rng, 160, 160)
    for left, right in (
        (x[:60, :60], x[:60, :60]),  # small
        (x.astype(np.int64), x.astype(np.int64)),
        (x, x.astype(np.float32)),
        (np.stack([x] * 4), np.stack([x] * 4)),
        (x, x[0]),
        (np.zeros((800, 0)), np.zeros((0, 800))),
    ):
        found = matmul.matrix_product(left, right)
        assert found.dtype == (left @ right).dtype
        assert (found == left @ right).all()
    assert small_chunks == []


# How many threads BLAS has

BLAS = """
import sys, threadpoolctl
def numbers():
    return sorted(x["num_threads"] for x in threadpoolctl.threadpool_info()
                  if x["user_api"] == "blas")
import numpy as np
before = numbers()
import tinyattn as ta
from tinyattn import functional as F
from tinyattn.kernels import blas
assert numbers() == before, "an import limits nothing"
ta.tensor([1.0]) + ta.tensor([[2, 3]]).sum(), ta.zeros(3, 3) @ ta.zeros(3, 3)
assert numbers() == before, "nor does a small product"
"""
plain_environment = dict.fromkeys(blas.VARIABLES, "")


def blas_after(code, **settings):
    pytest.importorskip("threadpoolctl")
    return eval(run_python(BLAS + code, env={**plain_environment, **settings}))


several_cores = pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="BLAS has one thread anyway")


@several_cores
@pytest.mark.parametrize(
    "first",
    ["F.softmax(ta.ones(2, 3))", "F.scaled_dot_product_attention(*[ta.ones(2, 3, 4)] * 3)",
     "ta.ones(500, 500) @ ta.ones(500, 500)"],
)  # fmt: skip
def test_the_first_kernel_or_large_product_limits_every_blas_to_one_thread(first):
    code = f"""
{first}
alone = numbers()
F.scaled_dot_product_attention(*[ta.ones(2, 3, 4)] * 3)
print([before, alone, numbers(), blas.limit_once(), "scipy" in sys.modules])
"""
    before, alone, after, has_one_thread, has_scipy = blas_after(code)
    assert before[0] > 1
    assert set(alone) == {1}
    assert len(after) == len(before) + has_scipy
    assert set(after) == {1}
    assert has_one_thread


@several_cores
@pytest.mark.parametrize("name", ["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"])
def test_a_variable_of_blas_decides(name):
    code = """
F.softmax(ta.ones(2, 3))
print([set(numbers()) == set(before), blas.limit_once()])
"""
    assert blas_after(code, **{name: "2"}) == [True, False]
    assert blas_after(code, **{name: "1"}) == [True, True]


@several_cores
def test_who_asks_for_threads_is_heard_although_a_variable_of_blas_is_set():
    """Before the first kernel and after it."""
    ask = "ta.set_num_threads(1)\n"
    kernel = "F.softmax(ta.ones(2, 3))\n"
    show = "print([max(numbers()), blas.limit_once()])\n"
    for code in (ask + kernel, kernel + ask):
        assert blas_after(code + show, OMP_NUM_THREADS="2") == [1, True]


# How work is divided


def test_chunks_cover_everything_once_whatever_the_number_of_threads():
    for number in (1, 2, 3, 5):
        ta.set_num_threads(number)
        for count in (0, 1, 2, 7):
            for nanoseconds in (0, 1e9):
                seen = []
                collect = lambda seen, a, b: seen.extend(range(a, b))  # noqa: E731
                threads.parallel_for(count, nanoseconds, collect, seen)
                assert sorted(seen) == list(range(count))


def test_a_chunk_takes_long_enough_or_there_is_none():
    ta.set_num_threads(5)
    most = 5 * threads.CHUNKS_PER_THREAD
    for chunks in (0.5, 1, 1.9, 2, 3.5, 5, 100):
        seen = []
        nanoseconds = chunks * threads.CHUNK_NANOSECONDS
        threads.parallel_for(50, nanoseconds, lambda a, b, seen=seen: seen.append((a, b)))
        assert len(seen) == min(most, max(1, int(chunks)))


def test_the_caller_waits_for_nobody_who_has_not_begun():
    """On a machine that is busy with something else: helpers come when all is done."""
    ta.set_num_threads(2)
    threads.parallel_for(2, 1e9, lambda first, last: time.sleep(0.05))  # starts a helper
    late, tasks = threading.Event(), threads._tasks
    blocker = threads.Task([(late.wait, 20)])
    tasks.put(blocker)
    while not blocker.begun:
        time.sleep(1e-4)
    seen = []
    try:
        threads.parallel_for(7, 1e9, lambda a, b: seen.extend(range(a, b)))
        assert not blocker.ended
    finally:
        late.set()
    assert seen == list(range(7))


def test_an_error_in_a_chunk_of_a_helper_reaches_the_caller(divided):
    caller = threading.current_thread()

    def fail(first, last):
        if threading.current_thread() is not caller:
            raise KeyError("of a helper")
        time.sleep(0.01)

    with pytest.raises(KeyError, match="of a helper"):
        threads.parallel_for(4, 1e9, fail)


def test_an_error_of_the_caller_waits_for_its_helpers(divided):
    """They write to its arrays. Chunks that nobody has begun are left."""
    caller, computed = threading.current_thread(), []

    def fail(first, last):
        if threading.current_thread() is caller:
            raise KeyError("of the caller")
        time.sleep(0.1)
        computed.append(first)

    with pytest.raises(KeyError, match="of the caller"):
        threads.parallel_for(4, 1e9, fail)
    found = list(computed)
    time.sleep(0.15)
    assert computed == found
    assert len(found) <= 2


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer that interrupts")
@pytest.mark.parametrize("where", ["computing", "waiting"])
def test_an_interrupt_of_the_caller_waits_for_its_helpers(where, divided):
    caller, begun, ended = threading.current_thread(), [], []

    def slow(first, last):
        if threading.current_thread() is not caller:
            begun.append(first)
            time.sleep(0.3)
            ended.append(first)
        elif where == "computing":
            time.sleep(2)

    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            threads.parallel_for(2, 1e9, slow)
        found = list(ended)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert found == begun
    assert begun


def test_threads_are_started_once_and_hold_no_arrays():
    ta.set_num_threads(3)
    array = np.zeros(10)
    held = weakref.ref(array)
    threads.parallel_for(3, 1e9, lambda x, first, last: x[first:last].fill(1), array)
    before = threading.active_count()
    del array
    end = time.monotonic() + 5
    while held() is not None and time.monotonic() < end:  # a thread may just be putting it away
        time.sleep(0.01)
    assert held() is None
    for _ in range(20):
        threads.parallel_for(3, 1e9, lambda first, last: None)
    assert threading.active_count() == before
    ta.set_num_threads(2)
    ta.set_num_threads(3)
    threads.parallel_for(3, 1e9, lambda first, last: None)
    assert threading.active_count() == before


def test_where_no_thread_can_be_started_the_caller_computes_alone(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(threads, "_helpers", 0)
    ta.set_num_threads(4)
    seen = []
    threads.parallel_for(100, 1e9, lambda a, b: seen.extend(range(a, b)))
    assert seen == list(range(100))


def test_threads_sleep_while_they_have_nothing_to_do():
    threads.parallel_for(2, 1e9, lambda first, last: None)
    time.sleep(0.1)
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.1


def test_more_threads_than_chunks():
    for number in (6, 2, 4):
        ta.set_num_threads(number)
        for count in (2, 3, 7) * 20:
            seen = []
            threads.parallel_for(count, 1e9, lambda a, b, seen=seen: seen.extend(range(a, b)))
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
        ({"OMP_NUM_THREADS": "6", "OPENBLAS_NUM_THREADS": "0"}, 6),
        ({"OMP_NUM_THREADS": "1000000"}, 1024),
        ({"TINYATTN_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "5"}, 2),
        ({"TINYATTN_NUM_THREADS": "", "OPENBLAS_NUM_THREADS": "5"}, 5),
    ):
        assert number_with(**settings) == (str(expected), "")


@pytest.mark.parametrize("value", ["0", "-2", "two", "1.5", "1025"])
def test_a_bad_number_in_our_own_variable_is_refused(value):
    text = f"ValueError: TINYATTN_NUM_THREADS must be an integer from 1 to 1024, got {value!r}"
    assert number_with(TINYATTN_NUM_THREADS=value) == ("", text)


@pytest.mark.parametrize("rows", [1, 2, 6, 7, 8, 16, 48, 49])
@pytest.mark.parametrize(
    ("inner", "columns"), [(2000, 16), (2000, 48), (300, 200), (2000, 3000), (9000, 100)]
)
def test_few_rows_by_a_matrix_in_column_order(rows, inner, columns):
    """The smaller matrix stands second then; where both have few rows it must end too."""
    rng = np.random.default_rng(rows)
    for dtype in (np.float32, np.float64):
        x, weight = rng.normal(size=(rows, inner)).astype(dtype), rng.normal(size=(columns, inner))
        weight = weight.astype(dtype)
        found = matmul.matrix_product(x, weight.T)
        assert found.flags.c_contiguous
        assert found.dtype == dtype
        exact = x.astype(np.float64) @ weight.T.astype(np.float64)
        sizes = np.abs(x).astype(np.float64) @ np.abs(weight.T)
        assert (np.abs(found - exact) <= 20 * np.finfo(dtype).eps * sizes).all()
        ta.set_num_threads(3)
        assert matmul.matrix_product(x, weight.T).tobytes() == found.tobytes()
        ta.set_num_threads(1)


@pytest.mark.parametrize("rows", [1, 2, 6, 7, 50])
@pytest.mark.parametrize(("inner", "columns"), [(300, 2000), (2000, 16), (33, 9000)])
def test_few_rows_by_a_matrix_of_float16(rows, inner, columns):
    """Computed in float32: the only rounding that counts is that of the result."""
    rng = np.random.default_rng(rows)
    x, weight = (signed(rng, n, inner).astype(np.float16) for n in (rows, columns))
    weight[::7] *= np.float16(1e-5)  # subnormal numbers
    exact = x.astype(np.float64) @ weight.T.astype(np.float64)
    found = matmul.matrix_product(x, weight.T)
    assert found.dtype == np.float16
    sums = np.abs(x).astype(np.float64) @ np.abs(weight.T).astype(np.float64)
    rounding = np.spacing(np.abs(exact).astype(np.float16)).astype(np.float64) / 2
    assert (np.abs(found - exact) <= 1.01 * rounding + 1e-6 * sums).all()
    ta.set_num_threads(3)
    assert matmul.matrix_product(x, weight.T).tobytes() == found.tobytes()
    ta.set_num_threads(1)
    with np.errstate(invalid="ignore"):
        weight[3, 2], weight[5, 1] = np.nan, np.inf
        found = matmul.matrix_product(x, weight.T)
    assert np.isnan(found[:, 3]).all()
    assert (found[:, 5] == np.sign(x[:, 1]) * np.inf).all()


@pytest.mark.parametrize("rows", [1, 6, 7])
def test_a_linear_layer_of_float16_is_rounded_once(rows):
    """The product alone is beyond 65,504, and where the bias cancels it, digits would be lost."""
    x, weight = np.full((rows, 64), 100, np.float16), np.full((8, 64), 16, np.float16)
    bias = np.full(8, -60000, np.float16)
    assert (ops.linear(x, weight, bias) == 42400).all()
    rng = np.random.default_rng(rows)
    x, weight = (signed(rng, n, 600).astype(np.float16) for n in (rows, 300))
    product = x.astype(np.float64) @ weight.T.astype(np.float64)
    bias = -product[0].astype(np.float16)
    exact = product + bias
    found = ops.linear(ta.tensor(x), ta.tensor(weight), ta.tensor(bias)).numpy()
    assert found.dtype == np.float16
    sums = np.abs(x).astype(np.float64) @ np.abs(weight.T).astype(np.float64)
    rounding = np.spacing(np.abs(exact).astype(np.float16)).astype(np.float64) / 2
    assert (np.abs(found - exact) <= 1.01 * rounding + 1e-6 * sums).all()


@pytest.mark.parametrize("shape", [(3, 70_000, 4), (1, 5000, 100), (9, 5001, 9)])
def test_small_products_of_long_rows_lose_no_digits(shape):
    rng = np.random.default_rng(1)
    x, y = np.ones(shape[:2], np.float32), signed(rng, *shape[1:]).astype(np.float32)
    found, exact = matmul.matrix_product(x, y), x.astype(np.float64) @ y
    assert found.dtype == np.float32
    assert abs(found - exact).max() <= 8 * np.finfo(np.float32).eps * abs(exact).max()
    integers = matmul.matrix_product(x.astype(int), y.astype(int))
    assert integers.dtype == int


def test_a_transposed_matrix_is_multiplied_without_a_copy(monkeypatch):
    seen = []

    def product(x, y):
        seen.append(y)
        return x @ y

    monkeypatch.setattr(sys.modules["tinyattn.ops.products"], "matrix_product", product)
    x, weight = np.ones((3, 6)), np.ones((5, 6))
    assert (ta.tensor(x) @ ta.tensor(weight).T).tolist() == [[6.0] * 5] * 3
    assert seen[0].flags.f_contiguous
    ops.matmul(x, weight[:, ::-1].T)
    assert seen[1].flags.c_contiguous


def test_the_kernel_for_few_rows_takes_floats_of_one_dtype_where_there_is_one(monkeypatch):
    x, weight = np.ones((2, 600)), np.ones((600, 600))
    for left, right in ((x.astype(int), weight.astype(int)), (x, weight.astype(np.float32))):
        found = matmul.matrix_product(left, right.T)
        assert found.dtype == (left @ right.T).dtype
        assert (found == 600).all()
    monkeypatch.setattr(matmul, "cpu_kernel", lambda name: None)
    assert (matmul.matrix_product(x, weight.T) == 600).all()
