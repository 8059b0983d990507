"""A second engine, as plain as it gets: what the library's should compute, in fifty lines.

Numbers instead of counters give the order (what is made later comes later), every rule is written
with these same operations, so that gradients of gradients need nothing more, and nothing is ever
freed, reused or added in place. What a rule needs is a copy from the time of the forward; beside it
stands whether the original has been changed since.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

numbers = itertools.count()


class Memory:
    """Of an array and all its views: how often it was written to, and whether it may be."""

    def __init__(self, computed: bool) -> None:
        self.changes, self.computed = 0, computed


class Naive:
    def __init__(
        self, value: Any, parents: Any = (), leaf: bool = False, memory: Memory | None = None
    ) -> None:
        self.value = np.asarray(value)
        self.parents = [(p, rule) for p, rule in parents if p.recorded]
        self.leaf, self.number, self.freed = leaf, next(numbers), False
        self.memory = memory or Memory(computed=bool(self.parents))
        self.since: int | None = None  # changes of the memory when this copy was made
        self.needs: list[tuple[Memory, int]] = []
        self.saves_arrays = False  # if so, backward frees it
        self.grad: np.ndarray | None = None

    def then(self) -> Naive:
        """A copy for a rule, in which later changes do not show."""
        twin = Naive(self.value.copy(), [(self, lambda g: g)], memory=self.memory)
        twin.since = self.memory.changes if self.since is None else self.since
        return twin

    def need(self, *copies: Naive) -> Naive:
        self.needs += [(copy.memory, copy.since) for copy in copies]
        self.saves_arrays = self.saves_arrays or bool(copies)
        return self

    @property
    def changed(self) -> bool:
        """Whether an array that the rules need has been changed."""
        return any(memory.changes != since for memory, since in self.needs)

    @property
    def recorded(self) -> bool:
        return self.leaf or bool(self.parents)

    def detached(self) -> Naive:
        return Naive(self.value, memory=self.memory)

    def below(self) -> list[Naive]:
        """Everything this was computed from, and itself, the latest first."""
        found = {self}
        todo = [self]
        while todo:
            new = {parent for parent, _ in todo.pop().parents} - found
            found |= new
            todo += new
        return sorted(found, key=lambda node: -node.number)

    def dependent_on(self, targets: list[Naive]) -> set[Naive]:
        """The nodes whose rules a derivative by the targets runs: those that use a target."""
        reached, found = set(targets), set()
        for node in reversed(self.below()):
            if any(parent in reached for parent, _ in node.parents):
                reached.add(node)
                found.add(node)
        return found


def gradients(output: Naive, cotangent: Naive) -> dict[Naive, Naive]:
    found = {output: cotangent}
    for node in output.below():
        for parent, rule in node.parents if node in found else ():
            part = rule(found[node])
            found[parent] = add(found[parent], part) if parent in found else part
    return found


def fit(grad: Naive, shape: tuple[int, ...]) -> Naive:
    """Sum what was broadcast; its derivative broadcasts again."""
    if grad.value.shape == shape:
        return grad
    extra = grad.value.ndim - len(shape)
    axes = tuple(i for i in range(grad.value.ndim) if i < extra or shape[i - extra] == 1)
    value = grad.value.sum(axis=axes, keepdims=True).reshape(shape)
    return Naive(value, [(grad, lambda g: spread(g, grad.value.shape))])


def copied(x: Naive) -> Naive:
    return Naive(x.value.copy(), [(x, lambda g: g)])


def spread(x: Naive, shape: tuple[int, ...]) -> Naive:
    return Naive(np.broadcast_to(x.value, shape), [(x, lambda g: fit(g, x.value.shape))])


def add(x: Naive, y: Naive) -> Naive:
    rules = [(x, lambda g: fit(g, x.value.shape)), (y, lambda g: fit(g, y.value.shape))]
    return Naive(x.value + y.value, rules)


def mul(x: Naive, y: Naive) -> Naive:
    a, b = x.then(), y.then()
    to_x = lambda g: fit(mul(g, b), x.value.shape)  # noqa: E731
    out = Naive(x.value * y.value, [(x, to_x), (y, lambda g: fit(mul(g, a), y.value.shape))])
    return out.need(*([b] if x.recorded else []), *([a] if y.recorded else []))


def neg(x: Naive) -> Naive:
    return Naive(-x.value, [(x, neg)])


def sub(x: Naive, y: Naive) -> Naive:
    return add(x, neg(y))


def square(x: Naive) -> Naive:
    return mul(x, x)


def clamp(x: Naive) -> Naive:
    """Limited to [-2, 2]; its slope, a step function, has no derivative."""
    inside = Naive(np.abs(x.value) <= 2)
    return Naive(np.clip(x.value, -2, 2), [(x, lambda g: mul(g, inside))]).need(x.then())


def relu(x: Naive) -> Naive:
    inside = Naive(x.value > 0)
    out = Naive(np.maximum(x.value, 0), [(x, lambda g: mul(g, inside))])
    return out.need(out.then())


def total(x: Naive) -> Naive:
    return Naive(x.value.sum(), [(x, lambda g: spread(g, x.value.shape))])


def turned(x: Naive) -> Naive:
    """Transposed: a view of the same memory."""
    return Naive(x.value.T, [(x, turned)], memory=x.memory)


def first(x: Naive) -> Naive:
    """x[0]: a view of the same memory, also of a number."""
    return Naive(x.value[0, ...], [(x, lambda g: put_first(g, x.value.shape))], memory=x.memory)


def put_first(x: Naive, shape: tuple[int, ...]) -> Naive:
    value = np.zeros(shape)
    value[0] = x.value
    return Naive(value, [(x, first)])
