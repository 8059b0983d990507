"""Functions of each element by itself; launches `elementwise.cu`."""

from functools import partial
from typing import Any

import numpy as np

from ...base.backend import Array, in_c_order, namespace
from .launch import by_elements, drop_arguments, run


def launched(kernel: str, *arrays: Array, options: tuple[Any, ...] = ()) -> Array:
    """What a kernel makes of one or two arrays of one shape and dtype."""
    out = namespace(arrays[0]).empty(arrays[0].shape, arrays[0].dtype)
    if size := out.size:
        arguments = *map(in_c_order, arrays), out, size, *options
        run("elementwise", kernel, out, by_elements(size), *arguments)
    return out


# Each takes the arrays of its formula in tinyattn/ops.
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


def dropout(x: Array, p: float, seed: int) -> Any:
    if p >= 1:
        return NotImplemented
    return launched("dropout", x, options=drop_arguments(p, seed))
