"""Functions of each element by itself; launches `elementwise.cu`."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...base.backend import Array, namespace
from .. import reference
from ..sums import in_c_order
from .launch import SCALARS, by_elements, drop_arguments, function


def launched(name: str, *arrays: Array) -> Array:
    """What the kernel of this name makes of one or two arrays of one shape and dtype."""
    xp, first = namespace(arrays[0]), arrays[0]
    out = xp.empty(first.shape, first.dtype)
    if out.size:
        kernel = function(xp, "elementwise", name, SCALARS[first.dtype])
        kernel(*by_elements(out.size), (*map(in_c_order, arrays), out, out.size))
    return out


# Each takes the arrays of its formula in ../elementwise.py.
erf, softplus = partial(launched, "erf_of"), partial(launched, "softplus")
relu, relu_backward = (partial(launched, f"relu{end}") for end in ("", "_backward"))
sigmoid, sigmoid_backward = (partial(launched, f"sigmoid{end}") for end in ("", "_backward"))
silu, silu_backward = (partial(launched, f"silu{end}") for end in ("", "_backward"))
gelu, gelu_backward = (partial(launched, f"gelu{end}") for end in ("", "_backward"))
gelu_tanh, gelu_tanh_backward = (partial(launched, f"gelu_tanh{end}") for end in ("", "_backward"))


# CuPy's own differ from NumPy's: inf // 1.5 is inf there, and 1.5 % inf is NaN.


def remainder(x: Array, y: Any) -> Array:
    return launched("remainder_of_two", *broadcast(x, y))


def floor_divide(x: Array, y: Any) -> Array:
    return launched("floor_divide", *broadcast(x, y))


def broadcast(x: Array, y: Any) -> list[Array]:
    """x and y, which may be a number, in one shape and dtype."""
    xp = namespace(x)
    if type(y) is not xp.ndarray:
        y = xp.full((), y, getattr(y, "dtype", x.dtype))
    dtype = np.result_type(x.dtype, y.dtype)
    shape = np.broadcast_shapes(x.shape, y.shape)
    return [xp.broadcast_to(part.astype(dtype, copy=False), shape) for part in (x, y)]


def dropout(x: Array, p: float, seed: int) -> Array:
    if p >= 1 or not x.size:
        return reference.dropout(x, p, seed)
    xp = namespace(x)
    out = xp.empty(x.shape, x.dtype)
    kernel = function(xp, "elementwise", "dropout", SCALARS[x.dtype])
    kernel(*by_elements(x.size), (in_c_order(x), out, x.size, *drop_arguments(p, seed)))
    return out
