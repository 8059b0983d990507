"""where: a choice for each element.

NumPy branches at each element, and a branch that the processor cannot foresee costs more than ten
elements. Here both values are read, and no branch is left.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiler import jit
from .layout import broadcast_flat


@jit
def where_elements(condition, x, y, out):
    for i in range(len(out)):
        first, second = x[i], y[i]
        out[i] = first if condition[i] != 0 else second


@jit
def where_or_number(condition, x, number, out):
    for i in range(len(out)):
        value = x[i]
        out[i] = value if condition[i] != 0 else number


def is_number(x: Any) -> bool:
    return isinstance(x, (int, float)) or (x.dtype == np.float32 and not x.ndim)


def where(condition: np.ndarray, x: Any, y: Any) -> Any:
    """Of float32 arrays, of which one may be a number."""
    numbers = is_number(x) + is_number(y)
    dtypes = [a.dtype for a in (x, y) if hasattr(a, "dtype")]
    if numbers == 2 or any(d != np.float32 for d in dtypes) or condition.dtype != np.bool_:
        return NotImplemented
    if is_number(x):
        condition, x, y = ~condition, y, x
    shape = np.broadcast_shapes(condition.shape, x.shape, np.shape(y))
    out = np.empty(shape, np.float32)
    mask, x = broadcast_flat(shape, condition.view(np.uint8), x)
    if is_number(y):
        where_or_number(mask, x, np.float32(y), out.reshape(-1))
    else:
        where_elements(mask, x, *broadcast_flat(shape, y), out.reshape(-1))
    return out
