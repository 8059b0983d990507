"""Random programs on tensors, run on the library and on a naive engine beside it.

A step makes a tensor, uses some that are there (again and again, so graphs share parts), cuts or
switches off recording, runs backward with or without keeping the graph, asks for gradients that can
be differentiated again, or changes a tensor in place: its memory, which views and detached tensors
share, or its values, by `+=` and by `.data =`. After each step both sides must hold the same
numbers, want gradients of the same tensors, and refuse the same things.

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
from naive_engine import Memory, Naive

import tinyattn as ta
from tinyattn import optim
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


class Pair:
    """A tensor and what it should be."""

    def __init__(self, tensor: ta.Tensor, twin: Naive) -> None:
        self.tensor, self.twin = tensor, twin

    def give(self, values: Any) -> None:
        """New values in new memory."""
        self.twin.value, self.twin.memory = np.array(values), Memory(computed=False)

    @property
    def is_leaf(self) -> bool:
        return not self.twin.parents

    @property
    def writable(self) -> bool:
        return not self.twin.memory.computed


class Graphs(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.step = 0
        self.pairs: list[Pair] = []
        self.leaves: list[Pair] = []

    def keep(self, pair: Pair) -> None:
        assert pair.tensor.requires_grad == pair.twin.recorded
        assert pair.tensor.is_leaf == pair.is_leaf
        self.same(pair.tensor, pair.twin)
        self.pairs = [*self.pairs[-KEPT + 1 :], pair]

    def same(self, tensor: ta.Tensor, twin: Naive) -> None:
        np.testing.assert_array_equal(tensor.numpy(), twin.value, strict=True)

    def any(self, rng: np.random.RandomState) -> Pair:
        """Mostly a late one that is recorded, so that graphs grow deep, or a leaf."""
        if self.leaves and not rng.randint(4):
            return self.leaves[rng.randint(len(self.leaves))]
        recorded = [pair for pair in self.pairs if pair.twin.recorded]
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
        self.new_leaf(
            ta.tensor(values, requires_grad=recorded), Naive(np.array(values), leaf=recorded)
        )

    def new_leaf(self, tensor: ta.Tensor, twin: Naive) -> None:
        pair = Pair(tensor, twin)
        if twin.leaf:
            self.leaves = [*self.leaves[-5:], pair]
        self.keep(pair)

    def computed(self, rng: np.random.RandomState, recorded: bool = True) -> Pair:
        """Something new out of one or two that are there."""
        x, x_twin = self.chosen(rng, recorded)
        if rng.randint(2):
            y, y_twin = self.chosen(rng, recorded)
            ours, theirs = TWO[rng.randint(len(TWO))]
            try:
                np.broadcast_shapes(x.shape, y.shape)
            except ValueError:
                x, x_twin = x.sum(), naive.total(x_twin)
            out, twin = ours(x, y), theirs(x_twin, y_twin)
            return Pair(out, twin) if small(twin) else Pair(out.clamp(-2, 2), naive.clamp(twin))
        ours, theirs = ONE[rng.randint(len(ONE) - (not x.ndim))]
        return Pair(ours(x), theirs(x_twin))

    def chosen(self, rng: np.random.RandomState, recorded: bool) -> tuple[ta.Tensor, Naive]:
        pair = self.any(rng)
        return pair.tensor, pair.twin if recorded else pair.twin.detached()

    @rule(pick=picks)
    def operations(self, pick: int) -> None:
        for _ in range(8):
            self.keep(self.computed(self.rng(pick)))

    @rule(pick=picks)
    def operation_without_recording(self, pick: int) -> None:
        with ta.no_grad():
            pair = self.computed(self.rng(pick), recorded=False)
        self.keep(pair)

    @rule(pick=picks, recorded=st.booleans())
    def detach(self, pick: int, recorded: bool) -> None:
        """The same memory, as a constant or as a leaf of its own."""
        pair = self.any(self.rng(pick))
        twin = Naive(pair.twin.value, leaf=recorded, memory=pair.twin.memory)
        self.new_leaf(pair.tensor.detach().requires_grad_(recorded), twin)

    def output(self, rng: np.random.RandomState) -> Pair | None:
        """A tensor to differentiate."""
        pair = self.pairs[rng.randint(len(self.pairs))] if rng.randint(2) else self.any(rng)
        if pair.twin.recorded:
            return pair
        try:
            pair.tensor.backward(ta.tensor(np.ones(pair.tensor.shape)))
        except GraphError:
            return None
        raise AssertionError("backward of what was not recorded")

    def cotangent(self, pair: Pair, rng: np.random.RandomState) -> tuple[ta.Tensor, Naive]:
        values = rng.choice([-2.0, -1.0, 1.0, 2.0], pair.tensor.shape)
        return ta.tensor(values), Naive(values)

    @rule(pick=picks, retain=st.booleans())
    def backward(self, pick: int, retain: bool) -> None:
        rng = self.rng(pick)
        pair = self.output(rng)
        if pair is not None:
            self.check_backward(pair, rng, retain)

    def check_backward(self, pair: Pair, rng: np.random.RandomState, retain: bool) -> None:
        """Right, or refused because the graph is freed or one of its arrays was changed."""
        cotangent, cotangent_twin = self.cotangent(pair, rng)
        below = pair.twin.below()
        whole = not any(node.freed for node in below)
        changed = any(node.changed for node in below)
        try:
            pair.tensor.backward(cotangent, retain_graph=retain)
        except InPlaceError:
            assert whole
            assert changed
        except GraphError:
            assert not whole
        else:
            assert whole
            assert not changed
            for node, grad in naive.gradients(pair.twin, cotangent_twin).items():
                if node.leaf:
                    node.grad = grad.value if node.grad is None else node.grad + grad.value
            for node in below:
                node.freed |= not retain and node.saves_arrays
        self.leaves_have_their_gradients()

    @rule(pick=picks)
    def gradients_with_a_graph(self, pick: int) -> None:
        rng = self.rng(pick)
        pair = self.output(rng)
        if pair is None:
            return
        tensor, twin = pair.tensor, pair.twin
        cotangent, cotangent_twin = self.cotangent(pair, rng)
        recorded = [p for p in (*self.pairs, pair) if p.twin.recorded]
        # Given twice, the second gradient would be a copy of the first, and depend on it.
        inputs = [recorded[rng.randint(len(recorded))] for _ in range(2)]
        inputs = inputs[: 1 + (inputs[0].twin is not inputs[1].twin)]
        targets = [pair.twin for pair in inputs]
        whole = not any(node.freed for node in twin.below())
        changed = any(node.changed for node in twin.dependent_on(targets) & set(twin.below()))
        try:
            found = ta.grad(
                tensor, [p.tensor for p in inputs], cotangent, create_graph=True, allow_unused=True
            )
        except InPlaceError:
            assert whole
            assert changed
            return
        except GraphError:
            assert not whole
            return
        assert whole
        assert not changed
        expected = naive.gradients(twin, cotangent_twin)
        for x, gradient in zip(targets, found, strict=True):
            assert (gradient is None) == (x not in expected)
            if gradient is not None:
                self.same(gradient, expected[x])
                if small(expected[x]):
                    self.keep(Pair(gradient, naive.copied(expected[x])))

    @rule(pick=picks)
    def forget_gradient(self, pick: int) -> None:
        for pair in self.leaves[pick % 6 :][:1]:
            pair.tensor.grad = pair.twin.grad = None

    @rule(pick=picks)
    def change_in_place(self, pick: int) -> None:
        """Often a leaf that the last result was computed from, which then is differentiated."""
        rng = self.rng(pick)
        used = set(self.pairs[-1].twin.below())
        leaves = [pair for pair in self.leaves if pair.twin in used]
        pair = leaves[rng.randint(len(leaves))] if leaves and rng.randint(3) else self.any(rng)
        ways = (self.write, self.step_of_an_optimizer, self.add_in_place, self.replace_data)
        ways[rng.choice(4, p=[0.4, 0.2, 0.3, 0.1])](pair, rng)
        self.all_the_same()
        if self.pairs[-1].twin.recorded:
            self.check_backward(self.pairs[-1], rng, retain=bool(rng.randint(2)))

    def is_left_by_its_result(self, pair: Pair) -> bool:
        """Whether leaves alone show memory that was computed.

        What becomes of them if one changes is in tests/port/test_views.py.
        """
        alive = [p.tensor for p in (*self.pairs, *self.leaves)]
        showing = [x for x in alive if np.shares_memory(x._data, pair.tensor._data)]
        are_leaves = all(x.is_leaf for x in showing) and any(x.requires_grad for x in showing)
        return not pair.writable and are_leaves

    def write(self, pair: Pair, rng: np.random.RandomState) -> None:
        """Into memory that nobody has computed; refused otherwise."""
        if self.is_left_by_its_result(pair):
            return
        index = 0 if rng.randint(2) and pair.tensor.ndim else ...
        before = pair.tensor.numpy()
        try:
            with ta.no_grad():
                pair.tensor[index] = -before[index]
        except InPlaceError:
            assert not pair.writable
        else:
            assert pair.writable
            pair.twin.value[index] = -before[index]
            pair.twin.memory.changes += 1

    def step_of_an_optimizer(self, pair: Pair, rng: np.random.RandomState) -> None:
        """In place, and in memory of its own if that of the parameter was computed."""
        tensor, twin = pair.tensor, pair.twin
        if not twin.leaf:
            return
        before, tensor.grad = tensor.grad, ta.tensor(np.sign(twin.value))
        optim.SGD([tensor], lr=1.0).step()
        tensor.grad = before
        if not pair.writable:
            pair.give(twin.value)
        twin.value -= np.sign(twin.value)
        twin.memory.changes += 1

    def add_in_place(self, pair: Pair, rng: np.random.RandomState) -> None:
        """New values for this tensor object, in new memory if no other tensor shows it.

        What a recorded change does to the others is in tests/port/test_in_place_programs.py.
        """
        other, recorded = self.any(rng), bool(rng.randint(2))
        tensor, twin = pair.tensor, pair.twin
        try:
            fits = np.broadcast_shapes(tensor.shape, other.tensor.shape) == tensor.shape
        except ValueError:
            fits = False
        y, y_twin = (other.tensor, other.twin) if fits else (1.0, Naive(1.0))
        y_twin = y_twin if recorded else y_twin.detached()
        if not small(naive.add(twin, y_twin)):
            return
        alive = [p.tensor for p in (*self.pairs, *self.leaves) if p.tensor is not tensor]
        shared = any(np.shares_memory(x._data, tensor._data) for x in alive)
        if recorded and shared and (y_twin.recorded or twin.recorded):
            return
        if not recorded and self.is_left_by_its_result(pair):
            return
        refused = twin.leaf if recorded else not pair.writable and (shared or not pair.is_leaf)
        try:
            with ta.set_grad_enabled(recorded):
                tensor += y
        except InPlaceError:
            assert refused or (shared and not pair.writable)
        else:
            assert not refused
            if not recorded or not (twin.parents or y_twin.recorded):
                values = twin.value + y_twin.value
                if shared:
                    twin.value[...] = values
                    twin.memory.changes += 1
                else:
                    pair.give(values)
            else:
                pair.twin = naive.add(twin, y_twin)
            assert tensor is pair.tensor
            assert tensor.requires_grad == pair.twin.recorded

    def replace_data(self, pair: Pair, rng: np.random.RandomState) -> None:
        values = np.clip(pair.tensor.numpy() + 1, -3, 3)
        try:
            pair.tensor.data = values
        except GraphError:
            assert not pair.is_leaf
        else:
            assert pair.is_leaf
            pair.give(values)

    @rule(pick=picks)
    def drop(self, pick: int) -> None:
        if len(self.pairs) > 3:
            del self.pairs[pick % len(self.pairs)]

    def leaves_have_their_gradients(self) -> None:
        for pair in self.leaves:
            tensor, twin = pair.tensor, pair.twin
            assert (tensor.grad is None) == (twin.grad is None)
            if tensor.grad is not None:
                np.testing.assert_array_equal(tensor.grad.numpy(), twin.grad, strict=True)

    def all_the_same(self) -> None:
        for pair in (*self.pairs, *self.leaves):
            self.same(pair.tensor, pair.twin)

    def teardown(self) -> None:
        self.all_the_same()
        self.leaves_have_their_gradients()
        assert ta.is_grad_enabled()


deep = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
Graphs.TestCase.settings = settings(
    max_examples=1000 if deep else 120,
    stateful_step_count=100,
    suppress_health_check=list(HealthCheck),
)
TestGraphs = Graphs.TestCase
