"""Activations, and softmax."""

from __future__ import annotations

from .. import ops
from ..base.checks import (
    DTypeLike,
)
from ..tensors.arguments import (
    any_tensor,
    float_tensor,
)
from ..tensors.tensor import Tensor


def softmax(x: Tensor, dim: int = -1, dtype: DTypeLike = None) -> Tensor:
    """exp(x_i) / sum_j exp(x_j) along `dim`: numbers >= 0 whose sum is 1.

    x (...) -> (...), of the same shape. dtype: compute in this dtype; that of x by default.
    Raises IndexError if x has no such dimension, and DtypeError for integers without a dtype.
    Differs from PyTorch: `dim` may be left out.

    >>> F.softmax(ta.tensor([0.0, 0.0]))
    tensor([0.5, 0.5])
    """
    return any_tensor(x, "x").softmax(dim, dtype)


def log_softmax(x: Tensor, dim: int = -1, dtype: DTypeLike = None) -> Tensor:
    """x_i - log(sum_j exp(x_j)) along `dim`; more exact than `softmax(x).log()`.

    x (...) -> (...), of the same shape. dtype: compute in this dtype; that of x by default.
    Raises IndexError if x has no such dimension, and DtypeError for integers without a dtype.
    Differs from PyTorch: `dim` may be left out.

    >>> F.log_softmax(ta.tensor([0.0, 1000.0]))
    tensor([-1000.,     0.])
    """
    return any_tensor(x, "x").log_softmax(dim, dtype)


def relu(x: Tensor) -> Tensor:
    """max(x, 0) of each element; the gradient at 0 is 0.

    Differs from PyTorch: a Tensor of integers is refused; the method `x.relu()` takes it.

    >>> F.relu(ta.tensor([-2.0, 3.0]))
    tensor([0., 3.])
    """
    return ops.relu(float_tensor(x, "x"))


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x Phi(x) of each element, where Phi is the distribution function of the normal distribution.

    approximate: "tanh" for x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.
    Raises ValueError for another value of `approximate`.
    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.

    >>> F.gelu(ta.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.1587,  0.    ,  0.8413])
    """
    if approximate not in ("none", "tanh"):
        raise ValueError(f'approximate must be "none" or "tanh", got {approximate!r}')
    return (ops.gelu if approximate == "none" else ops.gelu_tanh)(float_tensor(x, "x"))


def tanh(x: Tensor) -> Tensor:
    """(exp(x) - exp(-x)) / (exp(x) + exp(-x)) of each element, the hyperbolic tangent.

    Differs from PyTorch: a Tensor of integers is refused; the method `x.tanh()` takes it.

    >>> F.tanh(ta.tensor([-100.0, 0.0, 100.0]))
    tensor([-1.,  0.,  1.])
    """
    return ops.tanh(float_tensor(x, "x"))


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x)) of each element, computed so that it cannot overflow.

    Differs from PyTorch: a Tensor of integers is refused; the method `x.sigmoid()` takes it.

    >>> F.sigmoid(ta.tensor([-1000.0, 0.0, 1000.0]))
    tensor([0. , 0.5, 1. ])
    """
    return ops.sigmoid(float_tensor(x, "x"))


def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x) of each element, also called swish.

    Source: Elfwing et al., "Sigmoid-Weighted Linear Units", 2017.

    >>> F.silu(ta.tensor([-1000.0, 0.0, 1000.0]))
    tensor([  -0.,    0., 1000.])
    """
    return ops.silu(float_tensor(x, "x"))


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)) of each element, a smooth form of relu, computed so that it cannot overflow.

    Differs from PyTorch, which gives x itself above 20.

    >>> F.softplus(ta.tensor([-1000.0, 0.0, 100.0]))
    tensor([  0.    ,   0.6931, 100.    ])
    """
    return ops.softplus(float_tensor(x, "x"))
