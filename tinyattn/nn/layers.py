"""Linear, LayerNorm, RMSNorm, Dropout and Embedding as modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import functional as F
from ..base.checks import DTypeLike, check_number, check_size, checked_probability, listed
from ..base.random import NO_DROP, Drop, dropout_seed
from ..ops.arguments import ArrayLike
from ..ops.embedding import check_padding_idx
from ..tensors.tensor import Tensor
from . import init
from .module import Module, Parameter


def size_of_weight(dim: int) -> property:
    """A size of a module's weight, which is written down nowhere else.

    A program that gives the module another weight may set its size too, but no other number.
    """

    def same(module: Any, size: int) -> None:
        if size != (kept := module.weight.shape[dim]):
            raise AttributeError(f"the weight has the size {kept}: set another weight, got {size}")

    return property(lambda module: module.weight.shape[dim], same)


def new_parameter(value: float, shape: Any, dtype: DTypeLike, device: str | None) -> Parameter:
    if init.is_skipped.get():
        return init.untouched(Parameter(np.float32(value), dtype=dtype, device=device), shape)
    return Parameter(np.full(shape, value, np.float32), dtype=dtype, device=device)


class Linear(Module):
    """x weight^T + bias: (..., in_features) -> (..., out_features).

    weight (out_features, in_features) and bias (out_features,) start as in PyTorch, uniform
    between -1/sqrt(in_features) and 1/sqrt(in_features). They are made on `device`, as `dtype`,
    float32 by default. Errors: see `functional.linear`.

        >>> nn.Linear(3, 2)(ta.zeros(5, 3)).shape
        (5, 2)
        >>> nn.Linear(3, 2, dtype=ta.float64).weight.dtype
        dtype('float64')
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: str | None = None,
        dtype: DTypeLike = None,
    ) -> None:
        super().__init__()
        check_size("in_features", in_features, 0)
        check_size("out_features", out_features, 0)
        self.weight = new_parameter(0, (out_features, in_features), dtype, device)
        self.bias = new_parameter(0, out_features, dtype, device) if bias else None
        self.reset_parameters()

    in_features, out_features = size_of_weight(1), size_of_weight(0)

    def reset_parameters(self) -> None:
        init.linear_default_(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


class LayerNorm(Module):
    """(x - mean) / sqrt(var + eps) * weight + bias over the trailing `normalized_shape`.

    The weight starts at 1, the bias at 0. elementwise_affine=False leaves out both, bias=False the
    bias. device, dtype: as for Linear. The variance is biased; see `functional.layer_norm`.
    Raises ShapeError for an input that does not end with normalized_shape.

        >>> nn.LayerNorm(2)(ta.tensor([[-3.0, 3.0]])).tolist()[0][1] > 0.99
        True
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: str | None = None,
        dtype: DTypeLike = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = sizes = checked_sizes(normalized_shape)
        self.eps = check_number("eps", eps, 0)
        self.weight = new_parameter(1, sizes, dtype, device) if elementwise_affine else None
        self.bias = new_parameter(0, sizes, dtype, device) if elementwise_affine and bias else None

    def reset_parameters(self) -> None:
        # Drawn, though all are equal: without this, other weights of a seed would be other numbers.
        if self.weight is not None:
            init.uniform_(self.weight, 1, 1)
        if self.bias is not None:
            init.uniform_(self.bias, 0, 0)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        affine = f"elementwise_affine={self.weight is not None}, bias={self.bias is not None}"
        return f"{self.normalized_shape}, eps={self.eps}, {affine}"


class RMSNorm(Module):
    """x / sqrt(mean(x^2) + eps) * weight over the trailing `normalized_shape`.

    The weight starts at 1; elementwise_affine=False leaves it out. device, dtype: as for Linear.
    See `functional.rms_norm`.
    Raises ShapeError for an input that does not end with normalized_shape.

        >>> nn.RMSNorm(4)(ta.randn(2, 3, 4)).shape
        (2, 3, 4)
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: str | None = None,
        dtype: DTypeLike = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = sizes = checked_sizes(normalized_shape)
        self.eps = None if eps is None else check_number("eps", eps, 0)
        self.weight = new_parameter(1, sizes, dtype, device) if elementwise_affine else None

    def reset_parameters(self) -> None:
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        affine = f"elementwise_affine={self.weight is not None}"
        return f"{self.normalized_shape}, eps={self.eps}, {affine}"


def checked_sizes(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    single = isinstance(normalized_shape, (int, np.integer))
    sizes = [normalized_shape] if single else listed("normalized_shape", normalized_shape)
    return tuple(check_size("normalized_shape", n) for n in sizes)


class Dropout(Module):
    """In training, set each element to 0 with probability p, and divide the others by 1 - p.

    Attention drops its weights inside its kernel, which calls `draw` instead of `forward`.
    Raises ValueError if p does not lie between 0 and 1.

        >>> nn.Dropout(0.5).eval()(ta.ones(3))
        tensor([1., 1., 1.])
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = checked_probability(p)

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training)

    def draw(self) -> Drop:
        """What one call drops, for a kernel that drops by itself: a probability and a seed."""
        p = checked_probability(self.p) if self.training else 0.0
        return Drop(p, dropout_seed()) if p else NO_DROP

    def extra_repr(self) -> str:
        return f"p={self.p}"


class Embedding(Module):
    """The rows of a learned table at integer ids: (...) -> (..., embedding_dim).

    weight (num_embeddings, embedding_dim) starts with normal numbers. The row `padding_idx` starts
    at 0 and gets no gradient here, so an optimizer leaves it at 0. It changes if another module has
    the same weight, or if the weight gets other starting values. device, dtype: as for Linear.
    Raises IndexError for an id out of range, and for a padding_idx that is no row.
    Differs from PyTorch: padding_idx is not negative.

        >>> nn.Embedding(4, 3, padding_idx=0)([0, 2]).tolist()[0]
        [0.0, 0.0, 0.0]
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        device: str | None = None,
        dtype: DTypeLike = None,
    ) -> None:
        super().__init__()
        check_size("num_embeddings", num_embeddings)
        check_size("embedding_dim", embedding_dim)
        check_padding_idx(padding_idx, num_embeddings)
        self.padding_idx = padding_idx
        self.weight = new_parameter(0, (num_embeddings, embedding_dim), dtype, device)
        self.reset_parameters()

    num_embeddings, embedding_dim = size_of_weight(0), size_of_weight(1)

    def reset_parameters(self) -> None:
        init.normal_(self.weight)
        if self.padding_idx is not None:
            self.weight._data[self.padding_idx] = 0

    def forward(self, input: ArrayLike) -> Tensor:
        return F.embedding(input, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"
