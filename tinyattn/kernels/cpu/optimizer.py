"""Adam's update."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from .. import FLOAT32, FLOAT64, reference
from ..reference import AdamStep
from ..threads import parallel_for
from .compiler import jit
from .layout import as_input

SMALL = 2048  # numbers in a parameter that is joined with others


@jit
def adam_elements(parameter, grad, m, v, numbers, first, last):
    shrink, decay, beta1, rest1, beta2 = numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]
    rest2, rate, inv_root, eps = numbers[5], numbers[6], numbers[7], numbers[8]
    parameter, grad, m, v = parameter[first:last], grad[first:last], m[first:last], v[first:last]
    for i in range(len(parameter)):
        w = parameter[i] * shrink
        g = grad[i] + decay * w
        m[i] = m[i] * beta1 + rest1 * g
        v[i] = v[i] * beta2 + rest2 * g * g
        parameter[i] = w - rate * m[i] / (np.sqrt(v[i]) * inv_root + eps)


@lru_cache(maxsize=16)
def step_numbers(numbers: AdamStep, dtype: np.dtype) -> np.ndarray:
    """The numbers as one array, because nine arguments take longer to hand over."""
    rate, beta1, beta2, eps, decay, decoupled, step = numbers
    shrink, added = (1 - rate * decay, 0.0) if decoupled else (1.0, decay)
    found = (shrink, added, beta1, 1 - beta1, beta2, 1 - beta2, rate / (1 - beta1**step),
             1 / math.sqrt(1 - beta2**step), eps)  # fmt: skip
    return as_input(np.array(found, dtype))


def adam(
    parameters: Sequence[np.ndarray],
    grads: Sequence[np.ndarray],
    ms: Sequence[np.ndarray],
    vs: Sequence[np.ndarray],
    numbers: Callable[[], AdamStep],
) -> None:
    small: list[tuple[np.ndarray, ...]] = []
    owners: set[int] = set()
    for arrays in zip(parameters, grads, ms, vs, strict=True):
        parameter = arrays[0]
        # Not with an array that shares its memory: both would start at the same values.
        is_alone = parameter.base is None and id(parameter) not in owners
        owners.add(id(parameter))
        if parameter.size <= SMALL and is_alone and are_plain(arrays, FLOAT32):
            small.append(arrays)
        else:
            move(arrays, numbers)
    if len(small) > 1:
        move_together(small, numbers)
    elif small:
        move(small[0], numbers)


def are_plain(arrays: tuple[np.ndarray, ...], dtype: np.dtype) -> bool:
    """Whether all are of this dtype, and those that change can be changed as they lie."""
    parameter, grad, m, v = arrays
    in_place = parameter.flags.carray and m.flags.carray and v.flags.carray
    return in_place and parameter.dtype is grad.dtype is m.dtype is v.dtype is dtype


def move(arrays: tuple[np.ndarray, ...], numbers: Callable[[], AdamStep]) -> None:
    parameter, grad, m, v = arrays
    dtype = parameter.dtype
    if dtype not in (FLOAT32, FLOAT64) or not are_plain(arrays, dtype):
        reference.adam([parameter], [grad], [m], [v], numbers)
        return
    # Numba would compile once more for a read-only gradient, which is of another type to it.
    grad = grad if grad.flags.carray else grad.copy(order="C")
    flat = (parameter.ravel(), grad.ravel(), m.ravel(), v.ravel())
    parallel_for(grad.size, 0.6 * grad.size, adam_elements, *flat, step_numbers(numbers(), dtype))


def move_together(
    several: Sequence[tuple[np.ndarray, ...]], numbers: Callable[[], AdamStep]
) -> None:
    """Small parameters as one array: copies take less time than a call of the kernel for each."""
    parameters, grads, ms, vs = zip(*several, strict=True)
    joined = [np.concatenate(arrays, axis=None) for arrays in (parameters, grads, ms, vs)]
    parameter, _, m, v = joined
    adam_elements(*joined, step_numbers(numbers(), FLOAT32), 0, len(parameter))
    end = 0
    for w, _, old_m, old_v in several:
        start, end = end, end + w.size
        for array, moved in ((w, parameter), (old_m, m), (old_v, v)):
            array.reshape(-1)[:] = moved[start:end]
