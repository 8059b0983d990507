"""The seventh part of Tensor: sums, means, extremes, products, over one dimension or several."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol, Self, TypeVar, overload

import numpy as np

from .. import ops
from ..base.backend import namespace
from ..base.checks import (
    check_keepdim,
    check_size,
    dims_of,
    from_numpy_names,
    one_dim,
    require_float,
)
from ..engine.autograd import TensorBase
from ..errors import DtypeError, ShapeError
from .shapes import Shapes
from .types import Dims, DTypeLike, Operand, ValuesAndIndices
from .values import checked_tensor


AnyTensor = TypeVar("AnyTensor", bound=TensorBase)


class AlongADim(Protocol):
    """The type of `softmax` and `log_softmax` as methods."""

    def __call__(self, x: AnyTensor, /, dim: int = -1, dtype: DTypeLike = None) -> AnyTensor: ...


def along_a_dim(op: Any) -> AlongADim:
    return op


class Reductions(Shapes):
    """What makes fewer elements of many. NumPy's names `axis` and `keepdims` work too."""

    __slots__ = ()

    # Sums and means

    def _reduced(
        self,
        operation: Callable[..., Self],
        dim: Dims,
        keepdim: bool,
        names: dict[str, Any],
        **options: Any,
    ) -> Self:
        if names:
            dim, keepdim = from_numpy_names(dim, keepdim, names)
        check_keepdim(keepdim)
        return operation(self, dim=dims_of(self, dim), keepdim=keepdim, **options)

    def sum(
        self,
        dim: Dims = None,
        keepdim: bool = False,
        *,
        dtype: DTypeLike = None,
        **numpy_names: Dims,
    ) -> Self:
        """Sum over one dimension, several, or all, in `dtype`."""
        if dtype is not None:
            return self.to(dtype)._reduced(ops.sum, dim, keepdim, numpy_names).to(dtype)
        return self._reduced(ops.sum, dim, keepdim, numpy_names)

    def mean(self, dim: Dims = None, keepdim: bool = False, **numpy_names: Dims) -> Self:
        """Mean over one dimension, several, or all."""
        require_float(self.dtype, "mean")
        return self._reduced(ops.mean, dim, keepdim, numpy_names)

    def var(
        self,
        dim: Dims = None,
        unbiased: bool = True,
        keepdim: bool = False,
        *,
        correction: int | None = None,
        **numpy_names: Dims,
    ) -> Self:
        """Variance: the squares are divided by n - 1 as in PyTorch, or by n if not `unbiased`.

        correction: an integer to subtract from n instead.
        """
        require_float(self.dtype, "var")
        correction = (
            int(unbiased) if correction is None else check_size("correction", correction, 0)
        )
        return self._reduced(ops.var, dim, keepdim, numpy_names, correction=correction)

    def std(
        self,
        dim: Dims = None,
        unbiased: bool = True,
        keepdim: bool = False,
        *,
        correction: int | None = None,
        **numpy_names: Dims,
    ) -> Self:
        """The root of `var`; its gradient is 0 if the root is 0, as in PyTorch."""
        require_float(self.dtype, "std")
        correction = (
            int(unbiased) if correction is None else check_size("correction", correction, 0)
        )
        return self._reduced(ops.std, dim, keepdim, numpy_names, correction=correction)

    # Extremes

    @overload
    def max(
        self, dim: None = None, keepdim: bool = False, *, axis: None = None, keepdims: bool = False
    ) -> Self: ...
    @overload
    def max(
        self, dim: int, keepdim: bool = False, *, keepdims: bool = False
    ) -> ValuesAndIndices[Self]: ...
    @overload
    def max(
        self, *, axis: int, keepdim: bool = False, keepdims: bool = False
    ) -> ValuesAndIndices[Self]: ...
    @overload
    def max(self, dim: TensorBase) -> Self: ...
    def max(
        self, dim: int | TensorBase | None = None, keepdim: bool = False, **numpy_names: Dims
    ) -> Self | ValuesAndIndices[Self]:
        """The largest element, or along `dim` a pair (values, indices); with a Tensor, `maximum`.

        Elements that tie share the gradient. Along a dimension the gradient goes to the element at
        the index. `amax` gives the values alone, along one dimension or several.
        Differs from PyTorch: with a NaN the gradient of the largest of all is NaN everywhere.
        """
        return self._extreme(ops.max, ops.argmax, ops.maximum, dim, keepdim, numpy_names)

    @overload
    def min(
        self, dim: None = None, keepdim: bool = False, *, axis: None = None, keepdims: bool = False
    ) -> Self: ...
    @overload
    def min(
        self, dim: int, keepdim: bool = False, *, keepdims: bool = False
    ) -> ValuesAndIndices[Self]: ...
    @overload
    def min(
        self, *, axis: int, keepdim: bool = False, keepdims: bool = False
    ) -> ValuesAndIndices[Self]: ...
    @overload
    def min(self, dim: TensorBase) -> Self: ...
    def min(
        self, dim: int | TensorBase | None = None, keepdim: bool = False, **numpy_names: Dims
    ) -> Self | ValuesAndIndices[Self]:
        """The smallest element, or along `dim` a pair (values, indices); see `max`."""
        return self._extreme(ops.min, ops.argmin, ops.minimum, dim, keepdim, numpy_names)

    def _extreme(
        self,
        of_all: Callable[..., Self],
        index_of: Callable[..., Self],
        of_two: Callable[..., Self],
        dim: Any,
        keepdim: bool,
        names: dict[str, Any],
    ) -> Self | ValuesAndIndices[Self]:
        if isinstance(dim, TensorBase):
            return of_two(self, dim)
        if names:
            dim, keepdim = from_numpy_names(dim, keepdim, names)
        if dim is None:
            return self._reduced(of_all, dim, keepdim, {})
        check_keepdim(keepdim)
        if isinstance(dim, (tuple, list)):
            raise TypeError(
                f"max and min take one dimension, got {dim}: amax and amin take several"
            )
        dim = one_dim(self, dim)
        indices = index_of(self, dim=(dim,) if self.ndim else None, keepdim=self.ndim > 0)
        values = self.gather(dim, indices) if self.ndim else self.clone()
        if keepdim or not self.ndim:
            return ValuesAndIndices(values, indices)
        return ValuesAndIndices(values.squeeze(dim), indices.squeeze(dim))

    def amax(self, dim: Dims = None, keepdim: bool = False, **numpy_names: Dims) -> Self:
        """The largest values; elements that tie share the gradient."""
        return self._reduced(ops.max, dim, keepdim, numpy_names)

    def amin(self, dim: Dims = None, keepdim: bool = False, **numpy_names: Dims) -> Self:
        """The smallest values; elements that tie share the gradient."""
        return self._reduced(ops.min, dim, keepdim, numpy_names)

    def argmax(self, dim: int | None = None, keepdim: bool = False, **numpy_names: Dims) -> Self:
        """The index of the largest element along `dim`, the first if several tie."""
        return self._reduced(ops.argmax, dim, keepdim, numpy_names)

    def argmin(self, dim: int | None = None, keepdim: bool = False, **numpy_names: Dims) -> Self:
        """The index of the smallest element along `dim`, the first if several tie."""
        return self._reduced(ops.argmin, dim, keepdim, numpy_names)

    # Truth

    def any(self, dim: Dims = None, keepdim: bool = False, **numpy_names: Dims) -> Self:
        """True where any element along `dim` is not 0. Differs from PyTorch: of uint8 too."""
        return self._reduced(ops.any, dim, keepdim, numpy_names)

    def all(self, dim: Dims = None, keepdim: bool = False, **numpy_names: Dims) -> Self:
        """True where all elements along `dim` are not 0. Differs from PyTorch: of uint8 too."""
        return self._reduced(ops.all, dim, keepdim, numpy_names)

    def allclose(
        self, other: Self, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> bool:
        """True if |x - y| <= atol + rtol |y| everywhere."""
        if self.dtype != checked_tensor(other, "allclose").dtype:
            raise DtypeError(f"allclose takes one dtype, got {self.dtype} and {other.dtype}")
        close = namespace(self._data).allclose
        return bool(close(self._data, other._data, rtol, atol, equal_nan))

    def equal(self, other: Self) -> bool:
        """True if shape and all values are the same; `==` compares each element."""
        return self.shape == checked_tensor(other, "equal").shape and bool((self == other).all())

    # Products, and functions of whole rows; recorded as the ops that they call

    def matmul(self, other: Operand) -> Self:
        """x @ y by NumPy's rules: a vector x is one row, a vector y one column."""
        return ops.matmul(self, other)

    def bmm(self, other: Self) -> Self:
        """Products of two stacks of as many matrices: (B, N, K), (B, K, M) -> (B, N, M)."""
        shapes = self.shape, checked_tensor(other, "bmm").shape
        if [len(shape) for shape in shapes] != [3, 3] or shapes[0][0] != shapes[1][0]:
            raise ShapeError(f"bmm takes (B, N, K) and (B, K, M), got {shapes[0]} and {shapes[1]}")
        return ops.matmul(self, other)

    def dot(self, other: Self) -> Self:
        """The sum of x_i y_i: two vectors (N,) -> a 0-d tensor."""
        if self.ndim != 1 or checked_tensor(other, "dot").shape != self.shape:
            raise ShapeError(f"dot takes two vectors (N,), got {self.shape} and {other.shape}")
        return ops.matmul(self, other)

    def outer(self, other: Self) -> Self:
        """x_i y_j for all i and j: (N,), (M,) -> (N, M)."""
        if self.ndim != 1 or checked_tensor(other, "outer").ndim != 1:
            raise ShapeError(f"outer takes (N,) and (M,), got {self.shape} and {other.shape}")
        return self.unsqueeze(1) * other

    def prod(
        self, dim: int | None = None, keepdim: bool = False, *, dtype: DTypeLike = None
    ) -> Self:
        """The product over one dimension, or over all, in `dtype`."""
        check_keepdim(keepdim)
        if dtype is not None:
            return self.to(dtype).prod(dim, keepdim).to(dtype)
        x = self if self.dtype.kind == "f" else self.to(np.int64)
        if dim is None or not x.ndim:
            x = x.reshape(-1).prod(0)
            return x.reshape((1,) * self.ndim) if keepdim else x
        dim = one_dim(x, dim)
        x = ops.prod(x, dim=dim)
        return x if keepdim else x.squeeze(dim)

    def cumsum(self, dim: int, *, dtype: DTypeLike = None) -> Self:
        """out_i = x_0 + ... + x_i along `dim`, in `dtype`; float32 is added up in float64."""
        if dtype is not None:
            return self.to(dtype).cumsum(dim).to(dtype)
        dim = one_dim(self, dim)
        return ops.cumsum(self, dim=dim) if self.ndim else self.reshape(1).cumsum(0).reshape(())

    def logsumexp(self, dim: Dims = None, keepdim: bool = False) -> Self:
        """log(sum(exp(x))) over `dim`, by default all; as max(x) + log(sum(exp(x - max(x))))."""
        check_keepdim(keepdim)
        if self.dtype == np.float16:  # whose sums overflow at 65,504 equal elements
            return self.float().logsumexp(dim, keepdim).to(self.dtype)
        x = self if self.dtype.kind == "f" else self.to(np.float32)
        dims = dims_of(x, dim)
        shift: Self | int = 0
        if x.numel():
            shift = x.detach().amax(dims, keepdim=True)
            shift = ops.where(shift.isfinite(), shift, 0)
        result = (x - shift).exp().sum(dims, keepdim=True).log() + shift
        return result if keepdim else result.squeeze(dims)

    def norm(self, p: float | str = "fro", dim: Dims = None, keepdim: bool = False) -> Self:
        """The length of vectors: p=2 (or "fro") sqrt(sum(x * x)), p=1 sum(|x|), p=inf max(|x|).

        The gradient is 0 at 0, and derivatives of second order are NaN there, as in PyTorch: for
        those of the square write (x * x).sum(). Differs from PyTorch: another p is a ValueError.
        """
        require_float(self.dtype, "norm")
        if p == math.inf:
            return self.abs().amax(dim, keepdim)
        if p == 1:
            return self.abs().sum(dim, keepdim)
        if p not in ("fro", 2):
            raise ValueError(f'norm takes p=1, 2, float("inf") or "fro" (as 2), got {p!r}')
        return self._reduced(ops.norm, dim, keepdim, {})

    softmax, log_softmax = along_a_dim(ops.softmax), along_a_dim(ops.log_softmax)
