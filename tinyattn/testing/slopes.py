"""Slopes of a function along a straight line, and whether there is a kink.

A kink is a point where the slope changes at once, as that of relu does at 0. Values of the function
show it. Close to a point, the slope of a smooth function changes evenly: from one place on the line
to the next, and from a line to another beside it. What is left without this even part is a kink.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from ..base.backend import namespace, quietly, to_device
from ..engine.grad_mode import enable_grad
from ..tensors.tensor import Tensor

# f'(x) from f(x - 2h), f(x - h), f(x + h), f(x + 2h), each with its weight, divided by 12 h. With
# f(x) and the weights of BEND a smooth function gives about 0, and one with a kink at x does not.
FIVE_POINTS = (-2.0, -1.0, 1.0, 2.0, 0.0)
SLOPE = (1.0, -8.0, 8.0, -1.0)
BEND = (1.0, -4.0, -4.0, 1.0, 6.0)
ROUNDING = 8 * float(np.finfo(np.float64).eps)  # of a difference of two values of size 1
# Walks along the line, all past the point: one through it, the others beside it, on both sides.
BESIDE = (0.0, 0.1, -0.1, 0.3, -0.3, 1.0, -1.0)
PLACES = np.array([-8, -4, -2, -1, -0.5, 0, 0.5, 1, 2, 4, 8])


class Kinks(NamedTuple):
    """What is seen close to a point, for each number of the output."""

    here: np.ndarray  # True at a kink
    low: np.ndarray  # the slopes of both sides; infinite where several kinks meet, or values jump
    high: np.ndarray
    margin: np.ndarray  # how exact these are


class Line:
    """Output `o` of the function of a Checker, while each Tensor moves along its direction."""

    def __init__(
        self, checker: Any, o: int, tensors: list[Tensor], directions: list[np.ndarray]
    ) -> None:
        self.checker, self.o, self.tensors, self.directions = checker, o, tensors, directions
        self.scale = min(map(scale_of, tensors))
        self.largest: Any = 0.0  # of the values, for each number of the output

    def values(self, steps: Iterable[float]) -> np.ndarray:
        """The values at so many steps from here, less those that are the same everywhere."""
        values = []
        for step in steps:
            moves = [step * self.scale * direction for direction in self.directions]
            with moved(self.tensors, moves), enable_grad():  # fn itself may need it
                values.append(self.checker.outputs()[self.o].numpy())
        stack = np.array(values)
        largest = np.where(np.isfinite(stack), np.abs(stack), 0.0).max(axis=0)
        self.largest = np.maximum(self.largest, largest)
        # A constant has slope 0, even if it is infinite.
        return np.where((stack == stack[0]).all(axis=0), 0.0, stack)

    def slope(self, step: float) -> tuple[np.ndarray, np.ndarray]:
        """d output / d step, by finite differences; and a number that is about 0 without a kink."""
        values = self.values([place * step for place in FIVE_POINTS])
        slope = quietly(np.tensordot, SLOPE, values[:4], 1)
        bend = quietly(np.tensordot, BEND, values, 1)
        return slope / (12 * step * self.scale), bend / (12 * step * self.scale)

    def rounding(self, step: Any) -> np.ndarray:
        """How much rounding may change a slope."""
        return ROUNDING * self.largest / (step * self.scale)

    def walks(self, unit: float) -> np.ndarray:
        """The slopes between neighbouring places, for each walk past the point."""
        tensors, slopes = self.checker.tensors, []
        for beside in BESIDE:
            if beside >= 0:  # else on the other side of the point
                moves = random_moves(tensors, unit, self.checker.rng)
            with moved(tensors, [beside * move for move in moves]):
                values = self.values(unit * PLACES)
            steps = quietly(np.diff, values, axis=0)
            slopes.append((steps.T / (np.diff(PLACES) * unit * self.scale)).T)
        return np.array(slopes)

    def kinks(self, step: float, tolerance: Any) -> Kinks:
        """Look at the function within some steps of this point, on the line and beside it."""
        slopes = self.walks(2 * step)
        tolerance = tolerance + self.rounding(step)
        even, flat = even_parts(), slopes.reshape(-1, *slopes.shape[2:])
        fit = quietly(np.tensordot, even @ np.linalg.pinv(even), flat, 1)
        here = np.abs(flat - fit).max(axis=0) > tolerance
        # At one kink there are two slopes. A walk passes from one to the other at most once.
        ends = slopes[:, [0, -1]]
        low, high = ends.min(axis=(0, 1)), ends.max(axis=(0, 1))
        margin = (high - low) / 1000 + tolerance
        between = (slopes > low + margin) & (slopes < high - margin)
        outside = (slopes < low - margin) | (slopes > high + margin)
        several = (between.sum(axis=1) > 1).any(axis=0) | outside.any(axis=(0, 1))
        return Kinks(here, np.where(several, -np.inf, low), np.where(several, np.inf, high), margin)


def even_parts() -> np.ndarray:
    """The ways in which the slopes of all walks may change evenly, as the columns of a matrix.

    All together, from place to place, and from one walk of a pair to the other.
    """
    middles = (PLACES[1:] + PLACES[:-1]) / 2
    walk, place = np.indices((len(BESIDE), len(middles))).reshape(2, -1)
    pairs = [np.where((walk + 1) // 2 == pair, np.array(BESIDE)[walk], 0) for pair in (1, 2, 3)]
    return np.stack([np.ones(len(walk)), middles[place], *pairs], axis=1)


@contextmanager
def moved(tensors: list[Tensor], moves: list[np.ndarray]) -> Iterator[None]:
    """Tensors with other numbers, until the end of the block."""
    before = [tensor._data for tensor in tensors]
    try:
        for tensor, move in zip(tensors, moves, strict=True):
            data = tensor._data + to_device(move, tensor.device)
            tensor._data = namespace(tensor._data).asarray(data)  # a sum may be a number
        yield
    finally:
        for tensor, data in zip(tensors, before, strict=True):
            tensor._data = data


def random_moves(tensors: list[Tensor], step: float, rng: Generator) -> list[np.ndarray]:
    return [step * scale_of(tensor) * signed(rng, tensor.shape) for tensor in tensors]


def scale_of(tensor: Tensor) -> float:
    """Steps of a Tensor are relative to its largest number."""
    return max(1.0, float(np.abs(tensor.numpy()).max(initial=0.0)))


def signed(rng: Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Random numbers of both signs, none close to 0, so that each element counts."""
    return rng.choice([-1.0, 1.0], shape) * rng.uniform(0.5, 1.5, shape)
