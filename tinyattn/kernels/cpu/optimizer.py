"""Adam's update."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from ...threads import in_parts
from .. import reference
from .compiler import jit, ready


@jit
def adam_flat(parameter, grad, m, v, numbers, first, last):
    shrink, decay, beta1, rest1, beta2 = numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]
    rest2, rate, inv_root, eps = numbers[5], numbers[6], numbers[7], numbers[8]
    parameter, grad = parameter[first:last], grad[first:last]
    m, v = m[first:last], v[first:last]
    for i in range(len(parameter)):
        w = parameter[i] * shrink
        g = grad[i] + decay * w
        m[i] = m[i] * beta1 + rest1 * g
        v[i] = v[i] * beta2 + rest2 * g * g
        parameter[i] = w - rate * m[i] / (np.sqrt(v[i]) * inv_root + eps)


@lru_cache(maxsize=16)
def step_numbers(
    dtype: np.dtype, rate: float, beta1: float, beta2: float, eps: float, decay: float,
    decoupled: bool, step: int,
) -> np.ndarray:  # fmt: skip
    """What all parameters of a step share."""
    numbers = (
        1 - rate * decay if decoupled else 1.0,
        0.0 if decoupled else decay,
        beta1,
        1 - beta1,
        beta2,
        1 - beta2,
        rate / (1 - beta1**step),
        1 / math.sqrt(1 - beta2**step),
        eps,
    )
    return ready(np.array(numbers, dtype))  # an array: nine numbers take longer to hand over


def adam(
    parameter: np.ndarray,
    grad: np.ndarray,
    m: np.ndarray,
    v: np.ndarray,
    rate: float,
    beta1: float,
    beta2: float,
    eps: float,
    decay: float,
    decoupled: bool,
    step: int,
) -> None:
    settings = (rate, beta1, beta2, eps, decay, decoupled, step)
    in_place = parameter.flags.carray and m.flags.carray and v.flags.carray
    if not (in_place and parameter.dtype is grad.dtype is m.dtype is v.dtype):
        return reference.adam(parameter, grad, m, v, *settings)
    arguments = (
        parameter.reshape(-1), ready(grad).reshape(-1), m.reshape(-1), v.reshape(-1),
        step_numbers(parameter.dtype, *settings),
    )  # fmt: skip
    in_parts(parameter.size, 0.6 * parameter.size, adam_flat, *arguments)
