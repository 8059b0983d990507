"""A solution of exercise 2."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Rule = Callable[[np.ndarray], np.ndarray]


class Tensor:
    def __init__(self, data: np.ndarray, parents: list[tuple[Tensor, Rule]] | None = None) -> None:
        self.data = np.asarray(data, float)
        self.parents = parents or []
        self.grad = np.zeros_like(self.data)

    def __add__(self, other: Tensor) -> Tensor:
        return Tensor(self.data + other.data, [(self, lambda g: g), (other, lambda g: g)])

    def __mul__(self, other: Tensor) -> Tensor:
        a, b = self.data, other.data
        return Tensor(a * b, [(self, lambda g: g * b), (other, lambda g: g * a)])

    def __matmul__(self, other: Tensor) -> Tensor:
        a, b = self.data, other.data
        return Tensor(a @ b, [(self, lambda g: g @ b.T), (other, lambda g: a.T @ g)])

    def backward(self, grad: np.ndarray) -> None:
        self.grad = grad
        for node in order_of(self):
            for parent, rule in node.parents:
                parent.grad = parent.grad + fit(rule(node.grad), parent.data.shape)


def order_of(root: Tensor) -> list[Tensor]:
    found: set[int] = set()
    order: list[Tensor] = []

    def visit(node: Tensor) -> None:
        if id(node) not in found:
            found.add(id(node))
            for parent, _ in node.parents:
                visit(parent)
            order.append(node)

    visit(root)
    return order[::-1]


def fit(grad: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    while grad.ndim > len(shape):
        grad = grad.sum(0)
    for axis, size in enumerate(shape):
        if size == 1 and grad.shape[axis] != 1:
            grad = grad.sum(axis, keepdims=True)
    return grad
