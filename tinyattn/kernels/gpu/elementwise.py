"""Functions of each element by itself; launches `elementwise.cu`."""

from __future__ import annotations

from ...base.backend import Array, namespace
from .. import reference
from ..elementwise import INV_SQRT_2PI, SQRT_HALF
from ..float16 import in_float32
from ..sums import in_c_order
from .launch import SCALARS, by_elements, drop_arguments, function


def erf(x: Array) -> Array:
    xp = namespace(x)
    out = xp.empty(x.shape, x.dtype)
    if x.size:
        kernel = function(xp, "elementwise", "erf_of", SCALARS[x.dtype])
        kernel(*by_elements(x.size), (in_c_order(x), out, x.size))
    return out


def normal_cdf(x: Array) -> Array:
    return 0.5 * (1 + erf(x * SQRT_HALF))


@in_float32
def gelu(x: Array) -> Array:
    return x * normal_cdf(x)


@in_float32
def gelu_backward(grad: Array, x: Array) -> Array:
    phi = namespace(x).exp(x * x * -0.5) * INV_SQRT_2PI
    return grad * (normal_cdf(x) + x * phi)


def relu_backward(grad: Array, out: Array) -> Array:
    xp = namespace(out)
    result = xp.empty(out.shape, out.dtype)
    if out.size:
        kernel = function(xp, "elementwise", "relu_backward", SCALARS[out.dtype])
        kernel(*by_elements(out.size), (in_c_order(grad), in_c_order(out), result, out.size))
    return result


def dropout(x: Array, p: float, seed: int) -> Array:
    if p >= 1 or not x.size:
        return reference.dropout(x, p, seed)
    xp = namespace(x)
    out = xp.empty(x.shape, x.dtype)
    kernel = function(xp, "elementwise", "dropout", SCALARS[x.dtype])
    kernel(*by_elements(x.size), (in_c_order(x), out, x.size, *drop_arguments(p, seed)))
    return out
