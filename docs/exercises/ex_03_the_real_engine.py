"""Exercise 3: an engine that needs no recursion, frees what it saved, and notices changed arrays.

Write the three holes, then `pytest docs/exercises/test_03_the_real_engine.py` says what is wrong.
About 35 minutes. The page is docs/course/03_the_real_engine.md, with three hints at its end.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


class Tensor:
    """inputs: the tensors that this was computed from; () for a leaf, None after backward.

    saved: the tensors whose arrays the rule needs. The rule takes the gradient of this tensor and
    these arrays, and returns a gradient for each input. grad: of leaves only.
    """

    def __init__(
        self,
        data: np.ndarray,
        inputs: tuple[Tensor, ...] | None = (),
        rule: Callable[..., tuple[np.ndarray, ...]] | None = None,
        saved: tuple[Tensor, ...] = (),
    ) -> None:
        self.data = np.array(data, float)
        self.inputs, self.rule, self.saved = inputs, rule, saved
        self.changes = 0  # how often the array has been changed in place
        self.changes_of_saved = [tensor.changes for tensor in saved]  # when this was computed
        self.grad: np.ndarray | None = None

    def __setitem__(self, index: object, value: object) -> None:
        self.data[index] = value
        self.changes += 1

    def __add__(self, other: Tensor) -> Tensor:
        return Tensor(self.data + other.data, (self, other), lambda grad: (grad, grad))

    def __mul__(self, other: Tensor) -> Tensor:
        return Tensor(
            self.data * other.data,
            (self, other),
            lambda grad, a, b: (grad * b, grad * a),
            (self, other),
        )


def count_uses(root: Tensor) -> dict[Tensor, int]:
    """Every tensor that the root depends on, itself included, and how often one is an input.

    No recursion, because a graph may be deeper than Python's stack. RuntimeError if the graph has
    been freed.
    """
    raise NotImplementedError


def users_first(uses: dict[Tensor, int]) -> list[Tensor]:
    """The tensors of `uses`, each once, and each after all that have it as an input."""
    raise NotImplementedError


def backward(root: Tensor, grad: np.ndarray, retain_graph: bool = False) -> None:
    """Add to the `.grad` of every leaf.

    RuntimeError, before anything is done, if an array has been changed that a rule needs. Each
    tensor is freed when its rule has run: its inputs are None and its saved are (), unless
    retain_graph.
    """
    raise NotImplementedError
