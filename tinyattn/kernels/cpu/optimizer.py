"""Adam's update."""

from __future__ import annotations

import math

import numpy as np

from .. import reference
from .compiler import jit, ready


@jit
def adam_flat(
    parameter, grad, m, v, shrink, decay, beta1, rest1, beta2, rest2, rate, inv_root, eps
):
    for i in range(len(parameter)):
        w = parameter[i] * shrink
        g = grad[i] + decay * w
        m[i] = m[i] * beta1 + rest1 * g
        v[i] = v[i] * beta2 + rest2 * g * g
        parameter[i] = w - rate * m[i] / (np.sqrt(v[i]) * inv_root + eps)


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
    in_place = all(a.flags.c_contiguous and a.flags.aligned for a in (parameter, m, v))
    if not (in_place and parameter.dtype == grad.dtype == m.dtype == v.dtype):
        arguments = (rate, beta1, beta2, eps, decay, decoupled, step)
        return reference.adam(parameter, grad, m, v, *arguments)
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
    adam_flat(
        parameter.reshape(-1),
        ready(grad).reshape(-1),
        m.reshape(-1),
        v.reshape(-1),
        *(parameter.dtype.type(number) for number in numbers),
    )
