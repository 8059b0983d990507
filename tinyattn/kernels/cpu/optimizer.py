"""Adam's update."""

import math
from functools import lru_cache
from typing import Any

import numpy as np

from ..threads import parallel_for
from .compiler import jit, retrying
from .layout import as_input

# parallel_for divides fewer numbers among no threads, and takes 2 microseconds to find that out.
SMALL = 1 << 16


@retrying  # each chunk alone: a second try of all would move the finished ones again
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
def step_numbers(numbers: Any, dtype: np.dtype) -> np.ndarray:
    """The numbers of a step as one array, because nine arguments take longer to hand over."""
    rate, beta1, beta2, eps, decay, decoupled, step = numbers
    shrink, added = (1 - rate * decay, 0.0) if decoupled else (1.0, decay)
    means = beta1, 1 - beta1, beta2, 1 - beta2
    corrected = rate / (1 - beta1**step), 1 / math.sqrt(1 - beta2**step)
    return as_input(np.array((shrink, added, *means, *corrected, eps), dtype))


def adam(
    m: np.ndarray, v: np.ndarray, parameter: np.ndarray, grad: np.ndarray, numbers: Any
) -> Any:
    dtype, size, flags = parameter.dtype, parameter.size, parameter.flags
    if flags.fnc:  # in column order
        parameter, grad, m, v = parameter.T, grad.T, m.T, v.T
        flags = parameter.flags
    in_place = flags.carray and m.flags.carray and v.flags.carray
    if not (in_place and dtype is grad.dtype is m.dtype is v.dtype):
        return NotImplemented
    # Numba would compile once more for a read-only gradient, which is of another type to it.
    grad = grad if grad.flags.carray else grad.copy(order="C")
    flat = parameter, grad, m, v
    if parameter.ndim != 1:
        flat = parameter.reshape(-1), grad.reshape(-1), m.reshape(-1), v.reshape(-1)
    if size < SMALL:
        adam_elements(*flat, step_numbers(numbers, dtype), 0, size)
    else:
        parallel_for(size, 0.6 * size, adam_elements, *flat, step_numbers(numbers, dtype))
    return None
