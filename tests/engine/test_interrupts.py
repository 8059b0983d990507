"""Ctrl-C at any moment, and threads that share a leaf: nothing is left behind, nothing is wrong.

A real signal raises KeyboardInterrupt between two bytecodes, and only where Python looks for one:
after calls, at the beginning of a function, at the end of a loop's turn. `interrupted_at` is
stricter and reaches every bytecode of the library, one after another.
"""

from __future__ import annotations

import decimal
import gc
import random
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from formulas import reference

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn, optim
from tinyattn.errors import InPlaceError

PACKAGE = str(Path(ta.__file__).parent)
OPTIMIZERS = {
    "adam": lambda parameters: optim.Adam(parameters, lr=0.01),
    "sgd": lambda parameters: optim.SGD(parameters, lr=0.01, momentum=0.9),
}
optimizers = pytest.mark.parametrize("optimizer", OPTIMIZERS)


class Training:
    """Steps of a tiny encoder layer, and what has to hold between them."""

    def __init__(self, optimizer: str) -> None:
        ta.manual_seed(0)
        attention = nn.MultiHeadedAttention(2, 4)
        self.net = nn.EncoderLayer(4, attention, nn.PositionwiseFeedForward(4, 6), 0.1)
        self.parameters = list(self.net.parameters())
        self.optimizer = OPTIMIZERS[optimizer](self.parameters)
        self.x, self.mask = ta.randn(2, 3, 4), ta.tensor([[1, 1, 1], [1, 1, 0]])
        self.settings = np.geterr()
        for _ in range(3):
            self.step()

    def loss(self) -> ta.Tensor:
        return F.mse_loss(self.net(self.x, mask=self.mask), self.x)

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.loss().backward()
        self.optimizer.step()
        self.evaluate()

    @ta.no_grad()
    def evaluate(self) -> None:
        self.net(self.x, mask=self.mask)

    def check(self) -> None:
        assert ta.is_grad_enabled()
        assert np.geterr() == self.settings
        assert all(p.requires_grad and p.is_leaf for p in self.parameters)
        before = [p.numpy() for p in self.parameters]
        self.step()
        assert any((p.numpy() != old).any() for p, old in zip(self.parameters, before, strict=True))
        with ta.no_grad():
            for parameter in self.parameters:
                parameter[...] = parameter * 0.999
                parameter *= 0.999


# Real signals


@pytest.fixture
def alarm() -> Iterator[Callable[[Callable[[], Any], float], None]]:
    """Calls a function again and again, until after so many seconds a signal comes."""
    came = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True
        raise KeyboardInterrupt

    def until_interrupted(function: Callable[[], Any], seconds: float) -> None:
        nonlocal came
        came = False
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            while not came:  # because Python drops what is raised in a weak reference's callback
                function()
                # Python 3.11 can miss a signal until the main thread takes the interpreter's lock
                # again. Small arrays never give that lock away, so this loop would never end.
                time.sleep(0)
        except KeyboardInterrupt:
            pass

    before = signal.signal(signal.SIGALRM, interrupt)
    # Python drops what is raised in a callback of its garbage collector, and Hypothesis has one; or
    # in a destructor, and other tests leave arrays that have one.
    callbacks, gc.callbacks[:] = gc.callbacks[:], []
    gc.collect()
    yield until_interrupted
    gc.callbacks[:] = callbacks
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@optimizers
@pytest.mark.parametrize("times", [150, pytest.param(5000, marks=pytest.mark.deep)])
def test_training_goes_on_after_a_signal(
    optimizer: str, times: int, alarm: Any, rng: np.random.Generator
) -> None:
    training = Training(optimizer)
    for seconds in rng.uniform(1e-5, 6e-3, times):
        alarm(training.step, seconds)
        training.check()


@pytest.mark.parametrize("times", [1000, pytest.param(10_000, marks=pytest.mark.deep)])
def test_no_signal_switches_recording_off(times: int, alarm: Any, rng: np.random.Generator) -> None:
    """In functions that do nothing else than to switch it."""
    w = ta.tensor([1.0, 2.0], requires_grad=True)

    @ta.no_grad()
    @ta.enable_grad()
    @ta.no_grad()
    def switched() -> None:
        pass

    @ta.no_grad()
    def numbers() -> Iterator[int]:
        yield 1
        yield 2

    def all_of_them() -> None:
        switched()
        list(numbers())
        (w * w).sum().backward()
        ta.grad((w * w).sum(), w, create_graph=True)

    settings = np.geterr()
    for seconds in rng.uniform(1e-6, 5e-4, times):
        alarm(all_of_them, seconds)
        assert ta.is_grad_enabled()
        assert np.geterr() == settings


# Every bytecode


def interrupted_at(count: int, function: Callable[[], Any]) -> bool:
    """Whether KeyboardInterrupt was raised before bytecode number `count` of the library."""
    left = [count]

    def at_bytecode(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode":
            left[0] -= 1
            if left[0] == 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return at_bytecode

    def at_call(frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        frame.f_trace_opcodes = True
        return at_bytecode

    before = sys.gettrace()
    sys.settrace(at_call)
    try:
        function()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def bytecodes_of(function: Callable[[], Any]) -> int:
    interrupted_at(1, function)  # because Python 3.12 traces no bytecode the first time
    low, high = 1, 2
    while interrupted_at(high, function):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if interrupted_at(middle, function) else (low, middle)
    return low


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("function", ["backward", "grad"])
def test_backward_leaves_all_settings_alone_wherever_it_is_interrupted(
    function: str, create_graph: bool
) -> None:
    w = ta.tensor([1.0, 2.0], requires_grad=True)
    cotangent = ta.tensor([1.0, -3.0])
    settings = np.geterr()

    def differentiate() -> ta.Tensor | None:
        w.grad = None
        if function == "backward":
            (w * w).backward(cotangent, create_graph=create_graph)
            return w.grad
        return ta.grad(w * w, w, cotangent, create_graph=create_graph)[0]

    total = bytecodes_of(differentiate)
    assert total > 500
    for count in range(1, total + 1):
        interrupted_at(count, differentiate)
        assert ta.is_grad_enabled()
        assert np.geterr() == settings
        if w.grad is not None:  # the very end: all of it is there
            np.testing.assert_array_equal(w.grad.numpy(), [2.0, -12.0])
    np.testing.assert_array_equal(differentiate().numpy(), [2.0, -12.0])


@optimizers
def test_a_step_that_is_interrupted_makes_no_gradient_wrong(
    optimizer: str, rng: np.random.Generator
) -> None:
    """A graph from before the step is refused, or the step has not changed the weights."""
    ta.manual_seed(0)
    w, b = (ta.randn(2, 3, requires_grad=True) for _ in range(2))
    moves = OPTIMIZERS[optimizer]([w, b])

    def step() -> None:
        moves.zero_grad()
        (w * b).sum().backward()
        moves.step()

    for _ in range(3):
        step()
    refused = 0
    for count in rng.permutation(bytecodes_of(step))[:400] + 1:
        graph = w * b
        old = w.numpy(), b.numpy()
        interrupted_at(int(count), step)
        moves.zero_grad()
        cotangent = ta.tensor(rng.standard_normal((2, 3)).astype(np.float32))
        try:
            graph.backward(cotangent)
        except InPlaceError:
            refused += 1
        else:
            np.testing.assert_array_equal(w.grad.numpy(), cotangent.numpy() * old[1])
            np.testing.assert_array_equal(b.grad.numpy(), cotangent.numpy() * old[0])
        step()
    assert 10 < refused < 390


# Threads


@pytest.fixture
def many_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("way", ["item", "sgd", "adam"])
def test_threads_that_share_a_leaf_get_right_gradients_or_none(
    way: str, many_switches: None
) -> None:
    """All numbers of w are the same, so its gradient can be told from the product itself."""
    w = ta.tensor(np.full(3, 2.0), requires_grad=True)
    twin = w.detach().requires_grad_(True)
    twin.grad = ta.tensor(np.ones(3))
    moves = OPTIMIZERS["adam" if way == "adam" else "sgd"]([twin])
    moves.step()  # compiles
    over, errors, outcomes = threading.Event(), [], {"right": 0, "refused": 0}

    def work(function: Callable[[], None], times: int | None = None) -> None:
        try:
            while not over.is_set() and times != 0:
                function()
                times = None if times is None else times - 1
        except BaseException as error:
            errors.append(error)
            over.set()

    def write() -> None:
        if way == "item":
            with ta.no_grad():
                w[...] = w[0].item() % 7 + 1
        else:
            moves.step()
        time.sleep(random.uniform(0, 1e-3))

    def differentiate() -> None:
        y = w * w
        root = np.sqrt(y.numpy())
        try:
            (gradient,) = ta.grad(y, w, ta.tensor(np.full(3, -3.0)))
        except InPlaceError:
            outcomes["refused"] += 1
        else:
            np.testing.assert_allclose(np.abs(gradient.numpy()), 6 * root, rtol=1e-14)
            outcomes["right"] += 1

    readers = [threading.Thread(target=work, args=(differentiate, 2000)) for _ in range(2)]
    writer = threading.Thread(target=work, args=(write,))
    for thread in (writer, *readers):
        thread.start()
    for thread in readers:
        thread.join()
    over.set()
    writer.join()
    assert not errors
    assert outcomes["right"] > 10
    assert outcomes["refused"] > 10
    with ta.no_grad():
        w[0] = 1.0


@pytest.mark.parametrize("kind", [optim.SGD, optim.Adam])
def test_a_graph_that_is_recorded_during_a_step_is_refused(kind: Any) -> None:
    """As another thread may do it, between the count of a change and the change."""
    w = ta.tensor([1.0, 2.0], requires_grad=True)
    graphs = []

    class Watched(kind):  # type: ignore[misc, valid-type]
        def update_all(self, updates: Any) -> None:
            graphs.append(w * w)
            super().update_all(updates)

    w.grad = ta.ones(2)
    Watched([w], lr=0.1).step()
    w.grad = None
    with pytest.raises(InPlaceError, match="mul needs"):
        graphs[0].backward(ta.ones(2))
    assert w.grad is None


def gradient_of_square(w: ta.Tensor) -> list[float]:
    (gradient,) = ta.grad(w * w, w, ta.tensor([-1.0, 3.0]))
    return gradient.tolist()


def in_another_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *arguments).result()


def test_a_change_that_never_ended_refuses_another_threads_graphs_until_the_next_change() -> None:
    w = ta.tensor([1.0, 2.0], requires_grad=True)
    w._version.begin_change()  # as an interrupt behind it leaves it
    assert gradient_of_square(w) == [-2, 12]
    with pytest.raises(InPlaceError, match="mul needs"):
        in_another_thread(gradient_of_square, w)
    with ta.no_grad():
        w[0] = 5.0
    assert in_another_thread(gradient_of_square, w) == gradient_of_square(w) == [-10, 12]


@pytest.mark.parametrize("kind", [optim.SGD, optim.Adam])
def test_a_graph_from_before_a_step_is_refused_to_another_thread_during_the_step(kind: Any) -> None:
    class Watched(kind):  # type: ignore[misc, valid-type]
        def update_all(self, updates: Any) -> None:
            super().update_all(updates)
            with pytest.raises(InPlaceError, match="mul needs"):
                in_another_thread(graph.backward, ta.ones(2))

    w = ta.tensor([1.0, 2.0], requires_grad=True)
    w.grad = ta.ones(2)
    graph = w * w
    Watched([w], lr=0.1).step()
    assert w.grad.tolist() == [1, 1]


def test_a_step_that_fails_is_over_for_another_thread() -> None:
    class Failing(optim.SGD):
        def update(self, i: int, parameter: Any, grad: Any) -> None:
            raise ArithmeticError("in the middle")

    w = ta.tensor([1.0, 2.0], requires_grad=True)
    w.grad = ta.ones(2)
    with pytest.raises(ArithmeticError, match="in the middle"):
        Failing([w], lr=0.1).step()
    assert in_another_thread(gradient_of_square, w) == [-2, 12]


def test_recording_is_switched_for_one_thread() -> None:
    found = []
    with ta.no_grad():
        thread = threading.Thread(target=lambda: found.append(ta.is_grad_enabled()))
        thread.start()
        thread.join()
    assert found == [True]


# NumPy's settings

HUGE, SMALL = np.float32(3e38), ta.full((2,), 1e-38)
QUIET_CALLS: dict[str, Callable[[], Any]] = {
    "masked_softmax": lambda: reference.masked_softmax(np.array([[np.inf, 1.0]]), None),
    "log_softmax": lambda: reference.log_softmax(np.array([[np.inf, -np.inf]])),
    "cross_entropy": lambda: reference.cross_entropy(
        np.array([[np.inf, -np.inf]]), np.array([0]), -100
    ),
    "attention": lambda: F.scaled_dot_product_attention(*[ta.full((1, 2, 2), HUGE)] * 3),
    "matmul": lambda: ta.full((2, 2), HUGE) @ ta.full((2, 2), HUGE),
    "overflow": lambda: ta.full((2,), HUGE) * 10,
    "invalid": lambda: ta.tensor([np.inf]) - ta.tensor([np.inf]),
    "divide": lambda: ta.ones(2) / ta.zeros(2),
    "underflow": lambda: SMALL * SMALL,
    "log": lambda: ta.tensor([-1.0, 0.0]).log(),
    "half": lambda: ta.full((2,), 6e4).half() * 2,
    "cast": lambda: ta.full((2,), HUGE).half(),
    "int": lambda: ta.tensor([1.0, np.nan]).long(),
    "multinomial": lambda: ta.multinomial(ta.tensor([0.0, 1.0]), 1),
    "softmax": lambda: ta.tensor([np.inf, 1.0]).softmax(0),
    "layer_norm": lambda: F.layer_norm(ta.tensor([[np.inf, 1.0]]), 2),
    "gelu": lambda: F.gelu(ta.tensor([-1e30, 1e30, -np.inf])),
    "sigmoid": lambda: ta.tensor([-1e4, 1e4]).sigmoid(),
    "backward": lambda: slope_of(lambda x: x.sqrt(), 0.0),
    "backward of log": lambda: slope_of(lambda x: x.log(), 0.0),
    "create_graph": lambda: slope_of(lambda x: x.sqrt(), 0.0, create_graph=True),
    "std": lambda: slope_of(lambda x: x.expand(3).std(), 1.0),
    "logsumexp": lambda: ta.tensor([-np.inf, -np.inf]).logsumexp(0),
    "cumsum": lambda: ta.full((3,), HUGE).cumsum(0),
    "sum": lambda: ta.full((3,), HUGE).sum(),
    "clip": lambda: optim.clip_grad_norm_(with_gradient(np.inf), 1.0),
    "adam": lambda: optim.Adam([with_gradient(1e38)], lr=0.1).step(),
    "sgd": lambda: optim.SGD([with_gradient(np.inf)], lr=0.1, momentum=0.9).step(),
}  # fmt: skip


def slope_of(function: Callable[[ta.Tensor], ta.Tensor], at: float, **options: Any) -> Any:
    x = ta.tensor([at], requires_grad=True)
    return ta.grad(function(x).sum(), x, **options)


def with_gradient(value: float) -> ta.Tensor:
    x = ta.ones(2, requires_grad=True)
    x.grad = ta.full((2,), value)
    return x


def arrays_of(result: Any) -> list[np.ndarray]:
    parts = result if isinstance(result, (tuple, list)) else [result]
    return [np.asarray(part) for part in parts if part is not None]


@pytest.mark.parametrize("name", QUIET_CALLS)
def test_numpys_settings_change_no_result_and_are_not_changed(name: str) -> None:
    """Settings that make errors of inf and NaN, of Python's warnings, and of how arrays look."""
    expected = arrays_of(QUIET_CALLS[name]())
    looks = np.get_printoptions()
    for settings in ({"all": "raise"}, {"all": "warn"}, {"all": "ignore"}, {"over": "raise"}):
        with warnings.catch_warnings(), np.errstate(**settings), np.printoptions(precision=1):
            warnings.simplefilter("error")
            before, filters = np.geterr(), list(warnings.filters)
            with decimal.localcontext(decimal.Context(prec=2)):
                ta.manual_seed(0)
                found = arrays_of(QUIET_CALLS[name]())
            assert np.geterr() == before
            assert warnings.filters == filters
            assert np.get_printoptions()["precision"] == 1
        assert len(found) == len(expected)
        if name != "multinomial":
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_array_equal(one, other, strict=True)
    assert np.get_printoptions() == looks


@pytest.mark.parametrize("name", ["masked_softmax", "log_softmax", "cross_entropy"])
def test_a_kernel_that_fails_leaves_numpys_settings(name: str) -> None:
    with np.errstate(over="raise", under="warn"):
        before = np.geterr()
        with pytest.raises((TypeError, ValueError, AttributeError)):
            getattr(reference, name)(*["text"] * (3 if name == "cross_entropy" else 1))
        assert np.geterr() == before


def test_only_one_function_changes_numpys_settings() -> None:
    """What `quiet` calls in a copy of the context; errstate can be left open by an interrupt."""
    found = {
        str(path.relative_to(PACKAGE)): len(words)
        for path in Path(PACKAGE).rglob("*.py")
        if (words := re.findall(r"(?:with |@)np\.errstate|np\.seterr", path.read_text("utf-8")))
    }
    assert found == {"base/backend.py": 1}
