"""Division of float32 numbers with a whole quotient, bit for bit as NumPy has it; and by a root.

For a remainder NumPy calls the C library's fmod for each pair, which divides bit by bit. In float64
the quotient of two float32 numbers is on the right side of every integer, and a whole quotient
times the divisor is exact, as long as the quotient is below 2^22. For others, and for inf, NaN and
division by 0, the whole array is left to NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .compiler import jit
from .layout import broadcast_flat, of_elements

LARGEST_QUOTIENT = 2.0**22
INF = np.float32(math.inf)


@jit
def is_unusual(quotient, divisor):
    # NaN is not smaller. A quotient by inf is 0, whose sign does not say on which side of 0 it is.
    return 0 if abs(quotient) < LARGEST_QUOTIENT and abs(divisor) < INF else 1


@jit
def remainder_elements(x, y, out):
    unusual = 0
    for i in range(len(x)):
        a, b = np.float64(x[i]), np.float64(y[i])
        quotient = a / b
        unusual += is_unusual(quotient, b)
        rest = np.float32(a - np.trunc(quotient) * b)
        moved = rest + y[i] if (rest < 0.0) != (b < 0.0) else rest
        out[i] = moved if rest != 0.0 else math.copysign(0.0, b)
    return unusual


@jit
def floor_elements(x, y, out):
    unusual = 0
    for i in range(len(x)):
        quotient = np.float64(x[i]) / np.float64(y[i])
        unusual += is_unusual(quotient, y[i])
        out[i] = np.floor(quotient)
    return unusual


@jit
def inverse_root_elements(x, out, first, last):
    x, out = x[first:last], out[first:last]
    zero, one = x.dtype.type(0), x.dtype.type(1)
    for i in range(len(x)):
        value = x[i]
        power = one / np.sqrt(value)
        power = INF if value == zero else power  # that of -0.0 too
        out[i] = zero if value == -INF else power


inverse_root = of_elements(inverse_root_elements, 0.6)


def for_usual_quotients(elements: Any) -> Callable[..., Any]:
    """A kernel that calls `elements` on float32; it leaves what would not be exact."""

    def kernel(x: np.ndarray, y: Any) -> Any:
        is_float32 = type(y) in (int, float) or getattr(y, "dtype", None) == np.float32
        if x.dtype != np.float32 or not is_float32:
            return NotImplemented
        divisor = np.asarray(y, np.float32)
        shape = np.broadcast_shapes(x.shape, divisor.shape)
        flat = broadcast_flat(shape, x, divisor)
        out = np.empty(shape, np.float32)
        return NotImplemented if elements(*flat, out.reshape(-1)) else out

    return kernel


remainder = for_usual_quotients(remainder_elements)
floor_divide = for_usual_quotients(floor_elements)
