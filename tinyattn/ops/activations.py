"""Activation functions."""

import math
from typing import Any

from ..base.backend import is_tensor, namespace
from ..base.checks import check_choice, require_float
from ..engine.autograd import AnyTensor
from ..engine.op import op
from ..engine.promotion import in_float32
from ..kernels import with_kernels
from .arithmetic import where
from .elementwise import by_python, erf, exp

SQRT_HALF = math.sqrt(0.5)
INV_SQRT_2PI = 1 / math.sqrt(2 * math.pi)
GELU_CUBIC = 0.044715  # Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016
GELU_SCALE = math.sqrt(2 / math.pi)


@op
@with_kernels(cpu="elementwise.relu", cuda="elementwise.relu")
def relu(x: AnyTensor) -> AnyTensor:
    """max(x, 0) of each element; the gradient at 0 is 0.

    >>> F.relu(ta.tensor([-2.0, 3.0]))
    tensor([0., 3.])
    """
    xp = namespace(x)
    return xp.maximum(x, xp.zeros((), x.dtype))  # an array: numbers are slower to convert


@relu.vjp("x")
@with_kernels(cpu="elementwise.relu_backward", cuda="elementwise.relu_backward")
def dx(grad, out):
    return where(out <= 0, 0.0, grad)  # a NaN is not <= 0


@op(floats=True)
@with_kernels(cpu="elementwise.sigmoid", cuda="elementwise.sigmoid")
@in_float32
def sigmoid(x: AnyTensor) -> AnyTensor:
    """1 / (1 + exp(-x)) of each element, computed so that it cannot overflow.

    >>> F.sigmoid(ta.tensor([-1000.0, 0.0, 1000.0]))
    tensor([0. , 0.5, 1. ])
    """
    xp = namespace(x)
    small = xp.exp(-xp.abs(x))
    return xp.where(x >= 0, 1, small) / (1 + small)


@sigmoid.vjp("x")
@with_kernels(cpu="elementwise.sigmoid_backward", cuda="elementwise.sigmoid_backward")
def dx(grad, out):
    return grad * out * (1 - out)


@op
@with_kernels(cuda="elementwise.silu")
@in_float32
def silu(x: AnyTensor) -> AnyTensor:
    """x * sigmoid(x) of each element, also called swish.

    Source: Elfwing et al., "Sigmoid-Weighted Linear Units", 2017.

    >>> F.silu(ta.tensor([-1000.0, 0.0, 1000.0]))
    tensor([  -0.,    0., 1000.])
    """
    require_float(x.dtype, "x")
    return x * sigmoid(x)


@silu.vjp("x")
@with_kernels(cpu="elementwise.silu_backward", cuda="elementwise.silu_backward")
@in_float32
def dx(grad, x):
    part = sigmoid(x)
    return grad * (part + x * part * (1 - part))


@op
@with_kernels(cuda="elementwise.softplus")
@in_float32
def softplus(x: AnyTensor) -> AnyTensor:
    """log(1 + exp(x)) of each element, a smooth form of relu, computed so that it cannot overflow.

    Differs from PyTorch, which gives x itself above 20.

    >>> F.softplus(ta.tensor([-1000.0, 0.0, 100.0]))
    tensor([  0.    ,   0.6931, 100.    ])
    """
    require_float(x.dtype, "x")
    xp = namespace(x)
    return xp.maximum(x, 0) + xp.log1p(xp.exp(-xp.abs(x)))


@softplus.vjp("x")
def dx(grad, x):
    return grad * sigmoid(x)


@op
def gelu(x: AnyTensor, approximate: str = "none") -> AnyTensor:
    """x Phi(x) of each element, where Phi is the distribution function of the normal distribution.

    approximate: "tanh" for x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.
    Raises ValueError for another value of `approximate`.
    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.

    >>> F.gelu(ta.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.1587,  0.    ,  0.8413])
    """
    require_float(x.dtype, "x")
    check_choice("approximate", approximate, "none", "tanh")
    return gelu_exact(x) if approximate == "none" else gelu_tanh(x)


@gelu.vjp("x")
def dx(grad, x, approximate):
    backward = gelu_exact_backward if approximate == "none" else gelu_tanh_backward
    return backward(grad, x)


@with_kernels(cpu="elementwise.gelu", cuda="elementwise.gelu")
@in_float32
def gelu_exact(x: Any) -> Any:
    return x * normal_cdf(x)


@with_kernels(cpu="elementwise.gelu_backward", cuda="elementwise.gelu_backward")
@in_float32
def gelu_exact_backward(grad: Any, x: Any) -> Any:
    phi = exp(x * x * -0.5) * INV_SQRT_2PI  # the slope of Phi
    return grad * (normal_cdf(x) + x * phi)


@with_kernels(cpu="elementwise.normal_cdf")
def normal_cdf(x: Any) -> Any:
    """Phi(x) = erfc(-x / sqrt(2)) / 2, because 1 + erf would lose the digits of a small Phi."""
    if is_tensor(x):
        return 0.5 * (1 + erf(x * SQRT_HALF))
    return by_python(lambda number: 0.5 * math.erfc(-SQRT_HALF * number), x)


@with_kernels(cpu="elementwise.gelu_tanh", cuda="elementwise.gelu_tanh")
@in_float32
def gelu_tanh(x: Any) -> Any:
    """x sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3).

    This is 0.5 x (1 + tanh(u)), and 1 + tanh(u) loses digits if tanh(u) is close to -1.
    """
    return x * sigmoid(2 * GELU_SCALE * (x + GELU_CUBIC * x * x * x))


@with_kernels(cpu="elementwise.gelu_tanh_backward", cuda="elementwise.gelu_tanh_backward")
@in_float32
def gelu_tanh_backward(grad: Any, x: Any) -> Any:
    part = sigmoid(2 * GELU_SCALE * (x + GELU_CUBIC * x * x * x))
    # 0 where `part` is 0 or 1 anyway, because x * x may be inf there, and 0 * inf is NaN.
    slope = where(abs(x) < 100, 2 * GELU_SCALE * (1 + 3 * GELU_CUBIC * x * x), 0.0)
    return grad * (part + x * part * (1 - part) * slope)
