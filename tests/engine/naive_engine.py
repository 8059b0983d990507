"""A second engine, as plain as it gets: what the library's should compute, in forty lines.

Numbers instead of counters give the order (what is made later comes later), every rule is written
with these same operations, so that gradients of gradients need nothing more, and nothing is ever
freed, locked, reused or added in place.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

numbers = itertools.count()


class Naive:
    def __init__(self, value: Any, parents: Any = (), leaf: bool = False) -> None:
        self.value = np.asarray(value)
        self.parents = [(p, rule) for p, rule in parents if p.recorded]
        self.leaf, self.number, self.freed = leaf, next(numbers), False
        self.grad: np.ndarray | None = None

    @property
    def recorded(self) -> bool:
        return self.leaf or bool(self.parents)

    def detached(self) -> Naive:
        return Naive(self.value)

    def below(self) -> list[Naive]:
        """Everything this was computed from, and itself, the latest first."""
        found = {self}
        todo = [self]
        while todo:
            new = {parent for parent, _ in todo.pop().parents} - found
            found |= new
            todo += new
        return sorted(found, key=lambda node: -node.number)


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
    to_x = lambda g: fit(mul(g, y), x.value.shape)  # noqa: E731
    return Naive(x.value * y.value, [(x, to_x), (y, lambda g: fit(mul(g, x), y.value.shape))])


def neg(x: Naive) -> Naive:
    return Naive(-x.value, [(x, neg)])


def sub(x: Naive, y: Naive) -> Naive:
    return add(x, neg(y))


def square(x: Naive) -> Naive:
    return mul(x, x)


def clamp(x: Naive) -> Naive:
    """Limited to [-2, 2]; its slope, a step function, has no derivative."""
    inside = Naive(np.abs(x.value) <= 2)
    return Naive(np.clip(x.value, -2, 2), [(x, lambda g: mul(g, inside))])


def relu(x: Naive) -> Naive:
    inside = Naive(x.value > 0)
    return Naive(np.maximum(x.value, 0), [(x, lambda g: mul(g, inside))])


def total(x: Naive) -> Naive:
    return Naive(x.value.sum(), [(x, lambda g: spread(g, x.value.shape))])


def turned(x: Naive) -> Naive:
    """Transposed: a view of the same memory."""
    return Naive(x.value.T, [(x, turned)])


def first(x: Naive) -> Naive:
    """x[0], another view."""
    return Naive(x.value[0], [(x, lambda g: put_first(g, x.value.shape))])


def put_first(x: Naive, shape: tuple[int, ...]) -> Naive:
    value = np.zeros(shape)
    value[0] = x.value
    return Naive(value, [(x, first)])
