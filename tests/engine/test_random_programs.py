"""Random programs on tensors, run on the library and on a naive engine beside it.

A step makes a tensor, uses some that are there (again and again, so graphs share parts), cuts or
switches off recording, runs backward with or without keeping the graph, asks for gradients that can
be differentiated again, or tries to change an array in place. After each step both sides must hold
the same numbers, want gradients of the same tensors, and refuse the same things.

All numbers are whole and small enough for float64 to be exact, so the same means equal.
"""

from __future__ import annotations

import os
from typing import Any

import naive_engine as naive
import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from naive_engine import Naive

import tinyattn as ta
from tinyattn.errors import GraphError, InPlaceError

SHAPES = [(), (3,), (2, 3), (2, 1), (3, 3)]
ONE = [
    (lambda x: -x, naive.neg),
    (lambda x: x * x, naive.square),
    (lambda x: x.clamp(-2, 2), naive.clamp),
    (ta.Tensor.relu, naive.relu),
    (ta.Tensor.sum, naive.total),
    (lambda x: x.T, naive.turned),
    (lambda x: x[0], naive.first),
]
TWO = [
    (lambda x, y: x + y, naive.add),
    (lambda x, y: x - y, naive.sub),
    (lambda x, y: x * y, naive.mul),
]
KEPT = 20  # tensors at a time; older ones are dropped, and their graphs with them
picks = st.integers(0, 2**16)


def small(twin: Naive) -> bool:
    """Whether numbers are far from those that float64 would round: all are whole."""
    return np.abs(twin.value).max() < 100


class Graphs(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.step = 0
        self.pairs: list[tuple[ta.Tensor, Naive]] = []
        self.leaves: list[tuple[ta.Tensor, Naive]] = []

    def keep(self, tensor: ta.Tensor, twin: Naive) -> None:
        assert tensor.requires_grad == twin.recorded
        self.same(tensor, twin)
        self.pairs = [*self.pairs[-KEPT + 1 :], (tensor, twin)]

    def same(self, tensor: ta.Tensor, twin: Naive) -> None:
        np.testing.assert_array_equal(tensor.numpy(), twin.value, strict=True)

    def any(self, rng: np.random.RandomState) -> tuple[ta.Tensor, Naive]:
        """Mostly a late one that is recorded, so that graphs grow deep."""
        recorded = [pair for pair in self.pairs if pair[1].recorded]
        choice = recorded if recorded and rng.randint(8) else self.pairs
        return choice[-min(rng.geometric(0.3), len(choice))]

    def rng(self, pick: int) -> np.random.RandomState:
        """Another one at every step, however often a number is picked."""
        self.step += 1
        return np.random.RandomState((pick, self.step))

    @initialize(pick=picks)
    def start(self, pick: int) -> None:
        for i in range(3):
            self.leaf(pick + i)

    @rule(pick=picks)
    def leaf(self, pick: int) -> None:
        rng = self.rng(pick)
        values = rng.randint(-3, 4, SHAPES[rng.randint(len(SHAPES))]).astype(float)
        recorded = rng.randint(4) > 0
        pair = ta.tensor(values, requires_grad=recorded), Naive(np.array(values), leaf=recorded)
        if recorded:
            self.leaves = [*self.leaves[-5:], pair]
        self.keep(*pair)

    def computed(self, rng: np.random.RandomState) -> tuple[Any, Any]:
        """Something new out of one or two that are there."""
        x, x_twin = self.any(rng)
        if rng.randint(2):
            y, y_twin = self.any(rng)
            ours, theirs = TWO[rng.randint(len(TWO))]
            try:
                np.broadcast_shapes(x.shape, y.shape)
            except ValueError:
                x, x_twin = x.sum(), naive.total(x_twin)
            out, twin = ours(x, y), theirs(x_twin, y_twin)
            return (out, twin) if small(twin) else (out.clamp(-2, 2), naive.clamp(twin))
        ours, theirs = ONE[rng.randint(len(ONE) - (not x.ndim))]
        return ours(x), theirs(x_twin)

    @rule(pick=picks)
    def operations(self, pick: int) -> None:
        for _ in range(8):
            self.keep(*self.computed(self.rng(pick)))

    @rule(pick=picks)
    def operation_without_recording(self, pick: int) -> None:
        with ta.no_grad():
            out, twin = self.computed(self.rng(pick))
        self.keep(out, twin.detached())

    @rule(pick=picks)
    def detach(self, pick: int) -> None:
        tensor, twin = self.any(self.rng(pick))
        self.keep(tensor.detach(), twin.detached())

    def output(self, rng: np.random.RandomState) -> Any:
        """A tensor to differentiate, a random cotangent, and whether its graph is whole."""
        tensor, twin = self.any(rng)
        if not tensor.requires_grad:
            try:
                tensor.backward(ta.tensor(np.ones(tensor.shape)))
            except GraphError:
                return None
            raise AssertionError("backward of what was not recorded")
        cotangent = rng.choice([-2.0, -1.0, 1.0, 2.0], tensor.shape)
        return tensor, twin, ta.tensor(cotangent), Naive(cotangent)

    @rule(pick=picks, retain=st.booleans())
    def backward(self, pick: int, retain: bool) -> None:
        chosen = self.output(self.rng(pick))
        if chosen is None:
            return
        tensor, twin, cotangent, cotangent_twin = chosen
        below = twin.below()
        whole = not any(node.freed for node in below)
        try:
            tensor.backward(cotangent, retain_graph=retain)
        except GraphError:
            assert not whole
        else:
            assert whole
            for node, grad in naive.gradients(twin, cotangent_twin).items():
                if node.leaf:
                    node.grad = grad.value if node.grad is None else node.grad + grad.value
            for node in below:
                node.freed |= not retain and not node.leaf
        self.leaves_have_their_gradients()

    @rule(pick=picks)
    def gradients_with_a_graph(self, pick: int) -> None:
        rng = self.rng(pick)
        chosen = self.output(rng)
        if chosen is None:
            return
        tensor, twin, cotangent, cotangent_twin = chosen
        recorded = [pair for pair in self.pairs if pair[0].requires_grad]
        # Given twice, the second gradient would be a copy of the first, and depend on it.
        inputs = [recorded[i] for i in {rng.randint(len(recorded)) for _ in range(2)}]
        whole = not any(node.freed for node in twin.below())
        try:
            found = ta.grad(
                tensor, [x for x, _ in inputs], cotangent, create_graph=True, allow_unused=True
            )
        except GraphError:
            assert not whole
            return
        assert whole
        expected = naive.gradients(twin, cotangent_twin)
        for (_, x), gradient in zip(inputs, found, strict=True):
            assert (gradient is None) == (x not in expected)
            if gradient is not None:
                self.same(gradient, expected[x])
                if small(expected[x]):
                    self.keep(gradient, naive.copied(expected[x]))

    @rule(pick=picks)
    def forget_gradient(self, pick: int) -> None:
        for tensor, twin in self.leaves[pick % 6 :][:1]:
            tensor.grad = twin.grad = None

    @rule(pick=picks, written=st.booleans())
    def change_in_place(self, pick: int, written: bool) -> None:
        """Refused, or no living graph needs the old numbers: gradients stay right either way."""
        tensor, twin = self.any(self.rng(pick))
        before = tensor.numpy()
        try:
            if written:
                tensor.data[...] = tensor.numpy() + 1
            else:
                with ta.no_grad():
                    tensor += 1
        except (InPlaceError, ValueError):
            np.testing.assert_array_equal(tensor.numpy(), before)
        else:
            assert tensor.is_leaf
            twin.value[...] = twin.value + 1
            self.all_the_same()

    @rule(pick=picks)
    def drop(self, pick: int) -> None:
        if len(self.pairs) > 3:
            del self.pairs[pick % len(self.pairs)]

    def leaves_have_their_gradients(self) -> None:
        for tensor, twin in self.leaves:
            assert (tensor.grad is None) == (twin.grad is None)
            if tensor.grad is not None:
                np.testing.assert_array_equal(tensor.grad.numpy(), twin.grad, strict=True)

    def all_the_same(self) -> None:
        for tensor, twin in (*self.pairs, *self.leaves):
            self.same(tensor, twin)

    def teardown(self) -> None:
        self.all_the_same()
        self.leaves_have_their_gradients()
        leaves = [tensor for tensor, _ in self.leaves]
        self.pairs, self.leaves = [], []
        assert all(tensor.data.flags.writeable for tensor in leaves)


deep = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
Graphs.TestCase.settings = settings(
    max_examples=1000 if deep else 200,
    stateful_step_count=100,
    suppress_health_check=list(HealthCheck),
)
TestGraphs = Graphs.TestCase
