"""Exercise 2: the three pieces of an engine.

Write the three holes, then `pytest docs/exercises/test_02_an_engine.py` says what is wrong. About
40 minutes. The page is docs/course/02_an_engine.md, with three hints at its end.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Rule = Callable[[np.ndarray], np.ndarray]


class Tensor:
    """parents: pairs (tensor, rule); a rule makes the gradient of the parent from that of this."""

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
        """The product of two matrices, with the rule of each."""
        raise NotImplementedError

    def backward(self, grad: np.ndarray) -> None:
        """Give every tensor that this was made of its gradient, each one when it is complete."""
        raise NotImplementedError


def fit(grad: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """`grad`, summed over what was broadcast, so that it has this shape."""
    raise NotImplementedError
