"""The other libraries' faces: what of each a chain of operations and an encoder are written with.

One encoder serves all, written in the few operations below; a library puts its own where it has
one (a softmax, a LayerNorm, a compiler), so that each does what its user would write.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from .cases import LackingError


class Adam:
    """For libraries that have none over plain arrays; in place, so that arrays stay the same."""

    def __init__(self, arrays: list[np.ndarray]) -> None:
        self.arrays, self.t = arrays, 0
        self.moments = [(np.zeros_like(a), np.zeros_like(a)) for a in arrays]

    def step(self, gradients: list[np.ndarray]) -> None:
        self.t += 1
        rate = 1e-3 * math.sqrt(1 - 0.999**self.t) / (1 - 0.9**self.t)
        eps = 1e-8 * math.sqrt(1 - 0.999**self.t)
        for a, g, (m, v) in zip(self.arrays, gradients, self.moments, strict=True):
            m += 0.1 * (g - m)
            v += 0.001 * (g * g - v)
            a -= rate * m / (np.sqrt(v) + eps)


class Face:
    """What is the same for libraries that work on NumPy arrays.

    links       replaces entries of operations.LINKS where this library spells them differently
    mean        over the last axis, which stays; for layer_norm, where a library has no better one
    derivative  of a scalar function and arrays: what computes its value and its gradients
    """

    links: dict[str, Callable[..., Any]]
    mean: Callable[[Any], Any]
    derivative: Callable[..., Callable[[], tuple[Any, list[np.ndarray]]]]
    rng = np.random.default_rng(0)

    def constant(self, array: np.ndarray) -> Any:
        return array

    def layer_norm(self, x: Any, weight: Any, bias: Any) -> Any:
        centred = x - self.mean(x)
        return centred * (self.mean(centred * centred) + 1e-5) ** -0.5 * weight + bias

    def dropout(self, x: Any, p: float) -> Any:
        kept = self.rng.random(x.shape, np.float32) >= p
        return x * (kept * np.float32(1 / (1 - p)))

    def training(self, loss: Callable[..., Any], arrays: list[np.ndarray]) -> Callable[[], float]:
        """Takes a step of Adam and gives the loss before it."""
        derivative, adam = self.derivative(loss, arrays), Adam(arrays)

        def step() -> float:
            value, gradients = derivative()
            adam.step(gradients)
            return float(value)

        return step


class Autograd(Face):
    def __init__(self, options: dict[str, Any]) -> None:
        self.autograd = import_module("autograd")
        self.np = anp = import_module("autograd.numpy")
        self.links = {
            "exp(-y)": lambda _, y, x, c, w: anp.exp(-y),
            "relu": lambda _, y, x, c, w: self.relu(y),
            "sum": lambda _, y, x, c, w: anp.sum(y, 0, keepdims=True),
            "softmax": lambda _, y, x, c, w: self.softmax(y),
        }

    def relu(self, x: Any) -> Any:
        return self.np.maximum(x, 0)

    def mean(self, x: Any) -> Any:
        return self.np.mean(x, -1, keepdims=True)

    def softmax(self, x: Any) -> Any:
        exp = self.np.exp(x - self.np.max(x, -1, keepdims=True))
        return exp / self.np.sum(exp, -1, keepdims=True)

    def permute(self, x: Any, axes: tuple[int, ...]) -> Any:
        return self.np.transpose(x, axes)

    def cross_entropy(self, logits: Any, target: np.ndarray, kept: np.ndarray) -> Any:
        """The mean over the rows `kept` of the negative log-probability of `target`."""
        shifted = logits - self.np.max(logits, -1, keepdims=True)
        log_sum = self.np.log(self.np.sum(self.np.exp(shifted), -1))
        return self.np.mean(log_sum[kept] - shifted[kept, target[kept]])

    def derivative(
        self, function: Callable[..., Any], arrays: list[np.ndarray]
    ) -> Callable[[], tuple[Any, list[np.ndarray]]]:
        every = tuple(range(len(arrays)))
        both = self.autograd.value_and_grad(function, every)
        return lambda: both(*arrays)


class MyGrad(Face):
    def __init__(self, options: dict[str, Any]) -> None:
        self.mg = mg = import_module("mygrad")
        activations, self.losses = mg.nnet.activations, mg.nnet.losses
        self.relu, self.softmax = activations.relu, activations.softmax
        self.links = {
            "exp(-y)": lambda _, y, x, c, w: mg.exp(-y),
            "relu": lambda _, y, x, c, w: self.relu(y),
            "sum": lambda _, y, x, c, w: mg.sum(y, axis=0, keepdims=True),
            "softmax": lambda _, y, x, c, w: self.softmax(y),
        }

    def mean(self, x: Any) -> Any:
        return self.mg.mean(x, axis=-1, keepdims=True)

    def permute(self, x: Any, axes: tuple[int, ...]) -> Any:
        return self.mg.transpose(x, axes)

    def cross_entropy(self, logits: Any, target: np.ndarray, kept: np.ndarray) -> Any:
        return self.losses.softmax_crossentropy(logits[kept], target[kept])

    def derivative(
        self, function: Callable[..., Any], arrays: list[np.ndarray]
    ) -> Callable[[], tuple[Any, list[np.ndarray]]]:
        def run() -> tuple[Any, list[np.ndarray]]:
            leaves = [self.mg.tensor(array, copy=False) for array in arrays]
            value = function(*leaves)
            value.backward()
            gradients = [0 * leaf.data if leaf.grad is None else leaf.grad for leaf in leaves]
            return value, gradients

        return run


class DeZero(Face):
    def __init__(self, options: dict[str, Any]) -> None:
        # NumPy 1.24 removed the name, which DeZero uses while it is imported.
        np.int = int  # type: ignore[attr-defined]
        self.dezero = import_module("dezero")
        F = import_module("dezero.functions")
        self.links = {
            "exp(-y)": lambda _, y, x, c, w: F.exp(-y),
            "relu": lambda _, y, x, c, w: F.relu(y),
            "sum": lambda _, y, x, c, w: F.sum(y, 0, True),
            "matmul": lambda _, y, x, c, w: F.matmul(y, w),
            "softmax": lambda _, y, x, c, w: F.softmax(y),
        }

    def derivative(
        self, function: Callable[..., Any], arrays: list[np.ndarray]
    ) -> Callable[[], tuple[Any, list[np.ndarray]]]:
        leaves = [self.dezero.Variable(array) for array in arrays]

        def run() -> tuple[Any, list[np.ndarray]]:
            for leaf in leaves:
                leaf.cleargrad()
            value = function(*leaves)
            value.backward()
            gradients = [np.zeros(()) if v.grad is None else v.grad.data for v in leaves]
            return value.data, gradients

        return run

    def training(self, loss: Callable[..., Any], arrays: list[np.ndarray]) -> Callable[[], float]:
        raise LackingError(
            "its matrix product takes two matrices, not stacks, so it has no attention"
        )


class Tinygrad(Face):
    def __init__(self, options: dict[str, Any]) -> None:
        # Its graphs are walked by recursion.
        sys.setrecursionlimit(100_000)
        self.tinygrad = import_module("tinygrad")
        self.Tensor = self.tinygrad.Tensor
        self.links = {
            "sum": lambda _, y, x, c, w: y.sum(0, keepdim=True),
            "softmax": lambda _, y, x, c, w: y.softmax(-1),
        }

    def constant(self, array: np.ndarray) -> Any:
        return self.Tensor(array).realize()

    def relu(self, x: Any) -> Any:
        return x.relu()

    def softmax(self, x: Any) -> Any:
        return x.softmax(-1)

    def layer_norm(self, x: Any, weight: Any, bias: Any) -> Any:
        return x.layernorm() * weight + bias

    def dropout(self, x: Any, p: float) -> Any:
        return x.dropout(p)

    def permute(self, x: Any, axes: tuple[int, ...]) -> Any:
        return x.permute(axes)

    def cross_entropy(self, logits: Any, target: np.ndarray, kept: np.ndarray) -> Any:
        ids = self.constant(np.where(kept, target, -100).astype(np.int32))
        return logits.sparse_categorical_crossentropy(ids, ignore_index=-100)

    def derivative(
        self, function: Callable[..., Any], arrays: list[np.ndarray]
    ) -> Callable[[], tuple[Any, list[np.ndarray]]]:
        leaves = [self.constant(array) for array in arrays]

        @self.tinygrad.TinyJit
        def both() -> Any:
            value = function(*leaves)
            gradients = value.gradient(*leaves)
            return [each.realize() for each in (value, *gradients)]

        def run() -> tuple[Any, list[np.ndarray]]:
            value, *gradients = (each.numpy() for each in both())
            return value, gradients

        return run

    def training(self, loss: Callable[..., Any], arrays: list[np.ndarray]) -> Callable[[], float]:
        leaves = [self.constant(array) for array in arrays]
        adam = self.tinygrad.nn.optim.Adam(leaves)

        @self.tinygrad.TinyJit
        def step() -> Any:
            adam.zero_grad()
            value = loss(*leaves).backward()
            return value.realize(*adam.schedule_step())

        def run() -> float:
            with self.tinygrad.Context(TRAINING=1):
                return float(step().item())

        return run


OTHER_LIBRARIES = {
    "autograd": Autograd,
    "mygrad": MyGrad,
    "dezero": DeZero,
    "tinygrad": Tinygrad,
}
