"""Methods of Tensor that are put together from ops, under PyTorch's names.

None of them has a derivative of its own: each is recorded as the ops that it calls. `functions.py`
offers most of them as functions too, `ta.cumsum(x, 0)` beside `x.cumsum(0)`.
"""

from __future__ import annotations

import math
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from .. import ops
from ..base import checks, random
from ..base.backend import namespace, to_device
from ..base.checks import Dims, check_keepdim, is_integer, one_dim, require_float, sizes_of
from ..engine.autograd import TensorBase, wrap
from ..errors import DtypeError, ShapeError
from .in_place import in_place


class ValuesAndIndices(NamedTuple):
    """Values along a dimension, and their places in it: of max, min, sort and topk."""

    values: Any
    indices: Any


def checked_tensor(value: Any, name: str) -> Any:
    if not isinstance(value, TensorBase):
        raise TypeError(
            f"{name} takes a Tensor, got {checks.type_name(value)}: wrap it with ta.tensor(...); "
            "in an op of your own write tinyattn.ops, whose functions take arrays"
        )
    return value


def reflected(operation: Any) -> Any:
    """The method for `y - x` if y is no Tensor."""
    return lambda self, other: operation(other, self)


class Methods:
    """The base of Tensor with everything that needs no more than other methods and ops."""

    __slots__ = ()

    # Products

    matmul = ops.matmul

    def bmm(self: Any, other: Any) -> Any:
        """Products of two stacks of as many matrices: (B, N, K), (B, K, M) -> (B, N, M)."""
        shapes = self.shape, checked_tensor(other, "bmm").shape
        if [len(shape) for shape in shapes] != [3, 3] or shapes[0][0] != shapes[1][0]:
            raise ShapeError(f"bmm takes (B, N, K) and (B, K, M), got {shapes[0]} and {shapes[1]}")
        return ops.matmul(self, other)

    def dot(self: Any, other: Any) -> Any:
        """The sum of x_i y_i: two vectors (N,) -> a 0-d tensor."""
        if self.ndim != 1 or checked_tensor(other, "dot").shape != self.shape:
            raise ShapeError(f"dot takes two vectors (N,), got {self.shape} and {other.shape}")
        return ops.matmul(self, other)

    def outer(self: Any, other: Any) -> Any:
        """x_i y_j for all i and j: (N,), (M,) -> (N, M)."""
        if self.ndim != 1 or checked_tensor(other, "outer").ndim != 1:
            raise ShapeError(f"outer takes (N,) and (M,), got {self.shape} and {other.shape}")
        return self.unsqueeze(1) * other

    # Elementwise

    log1p = ops.log1p
    expm1 = ops.expm1
    sign = ops.sign
    __floordiv__ = ops.floor_divide
    __rfloordiv__ = reflected(ops.floor_divide)
    __ifloordiv__ = in_place(ops.floor_divide)
    __mod__ = remainder = ops.remainder
    __rmod__ = reflected(ops.remainder)
    __imod__ = in_place(ops.remainder)

    def square(self: Any) -> Any:
        """x * x."""
        return self * self

    def rsqrt(self: Any) -> Any:
        """1 / sqrt(x)."""
        return 1 / self.sqrt()

    def reciprocal(self: Any) -> Any:
        """1 / x."""
        return 1 / self

    def clamp(self: Any, min: Any = None, max: Any = None) -> Any:
        """Every element limited to [min, max]: numbers, or Tensors that broadcast.

        Outside of the limits the gradient of x is 0, and a limit that is a Tensor gets it.
        """
        if not isinstance(min, TensorBase) and not isinstance(max, TensorBase):
            checks.check_clamp(min, max)
            return ops.clamp(self, min=min, max=max)
        x = self  # NaN stays NaN, and a limit that is NaN gives NaN
        if min is not None:
            x = ops.where(ops.logical_or(x >= min, x.isnan()), x, min)
        if max is not None:
            x = ops.where(ops.logical_or(x <= max, x.isnan()), x, max)
        return x

    def allclose(
        self: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> bool:
        """True if |x - y| <= atol + rtol |y| everywhere."""
        if self.dtype != checked_tensor(other, "allclose").dtype:
            raise DtypeError(f"allclose takes one dtype, got {self.dtype} and {other.dtype}")
        close = namespace(self._data).allclose
        return bool(close(self._data, other._data, rtol, atol, equal_nan))

    def equal(self: Any, other: Any) -> bool:
        """True if shape and all values are the same; `==` compares each element."""
        return self.shape == checked_tensor(other, "equal").shape and bool((self == other).all())

    # Reductions

    def prod(self: Any, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        """The product over one dimension, or over all, in `dtype`.

        One half is multiplied by the other until one number is left. Nothing is divided by x, so
        derivatives of every order are right at 0 too.
        """
        check_keepdim(keepdim)
        if dtype is not None:
            return self.to(dtype).prod(dim, keepdim).to(dtype)
        x = self if self.dtype.kind == "f" else self.to(np.int64)
        if dim is None or not x.ndim:
            x = x.reshape(-1).prod(0)
            return x.reshape((1,) * self.ndim) if keepdim else x
        dim = one_dim(x, dim)
        while (n := x.shape[dim]) > 1:
            first, second, rest = x.split([n // 2, n // 2, n % 2], dim)
            x = ops.cat(first * second, rest, dim=dim) if n % 2 else first * second
        x = x if n else x.sum(dim, keepdim=True) + 1
        return x if keepdim else x.squeeze(dim)

    def cumsum(self: Any, dim: int, *, dtype: Any = None) -> Any:
        """out_i = x_0 + ... + x_i along `dim`, in `dtype`; float32 is added up in float64."""
        if dtype is not None:
            return self.to(dtype).cumsum(dim).to(dtype)
        dim = one_dim(self, dim)
        return ops.cumsum(self, dim=dim) if self.ndim else self.reshape(1).cumsum(0).reshape(())

    def logsumexp(self: Any, dim: Dims = None, keepdim: bool = False) -> Any:
        """log(sum(exp(x))) over `dim`, by default all; as max(x) + log(sum(exp(x - max(x))))."""
        check_keepdim(keepdim)
        x = self if self.dtype.kind == "f" else self.to(np.float32)
        dims, shift = checks.dims_of(x, dim), 0
        if x.numel():
            shift = x.detach().amax(dims, keepdim=True)
            shift = ops.where(shift.isfinite(), shift, 0)
        result = (x - shift).exp().sum(dims, keepdim=True).log() + shift
        return result if keepdim else result.squeeze(dims)

    def norm(self: Any, p: Any = "fro", dim: Dims = None, keepdim: bool = False) -> Any:
        """The length of vectors: p=2 (or "fro") sqrt(sum(x * x)), p=1 sum(|x|), p=inf max(|x|).

        The gradient is 0 at 0. Differs from PyTorch: another p is a ValueError.
        """
        require_float(self.dtype, "norm")
        if p == math.inf:
            return self.abs().amax(dim, keepdim)
        if p == 1:
            return self.abs().sum(dim, keepdim)
        if p not in ("fro", 2):
            raise ValueError(f'norm takes p=1, 2, float("inf") or "fro" (as 2), got {p!r}')
        squares = self.to(np.float64).square().sum(dim, keepdim)  # float16 would overflow at 256
        zero = squares == 0
        return ops.where(zero, 0.0, ops.where(zero, 1.0, squares).sqrt()).to(self.dtype)

    def softmax(self: Any, dim: int = -1, dtype: Any = None) -> Any:
        """exp(x_i) / sum_j exp(x_j) along `dim`, of x in `dtype`; see `functional.softmax`."""
        x = self if dtype is None else self.to(dtype)
        require_float(x.dtype, "softmax")
        return ops.softmax(x, dim=one_dim(x, dim))

    def log_softmax(self: Any, dim: int = -1, dtype: Any = None) -> Any:
        """x_i - log(sum_j exp(x_j)) along `dim`; see `functional.log_softmax`."""
        x = self if dtype is None else self.to(dtype)
        require_float(x.dtype, "log_softmax")
        return ops.log_softmax(x, dim=one_dim(x, dim))

    # Order

    def argsort(self: Any, dim: int = -1, descending: bool = False, stable: bool = True) -> Any:
        """The indices that sort along `dim`; NaN is largest.

        Equal elements keep their order. `stable` is there because PyTorch has it.
        """
        dim = one_dim(self, dim)
        x, xp = self._data, namespace(self._data)
        if not self.ndim:
            return wrap(xp.zeros((), np.int64))
        if not descending:
            return wrap(xp.argsort(x, axis=dim, kind="stable"))
        back = (*(slice(None),) * dim, slice(None, None, -1))
        return wrap(x.shape[dim] - 1 - xp.argsort(x[back], axis=dim, kind="stable")[back])

    def sort(
        self: Any, dim: int = -1, descending: bool = False, stable: bool = True
    ) -> ValuesAndIndices:
        """A pair (values, indices), sorted along `dim`; see `argsort`."""
        return taken(self, dim, self.argsort(dim, descending))

    def topk(
        self: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
    ) -> ValuesAndIndices:
        """The k largest (or smallest) elements along `dim`: a pair (values, indices).

        They come in order. `sorted` is there because PyTorch has it.
        """
        total = self.shape[one_dim(self, dim)] if self.ndim else 1
        if checks.check_size("k", k, 0) > total:
            raise ShapeError(f"topk: k is {k}, but dim {dim} of {self.shape} has {total} elements")
        indices = self.argsort(dim, descending=largest)
        return taken(self, dim, indices.split([k, total - k], dim)[0] if self.ndim else indices)

    def multinomial(self: Any, num_samples: int, replacement: bool = False) -> Any:
        """Indices drawn with these weights: (N,) -> (num_samples,), (B, N) -> (B, num_samples).

        The weights are >= 0 and need not add up to 1. Without `replacement` no index comes twice.
        ValueError for weights that cannot be drawn from. Random numbers are tinyattn's own.
        """
        require_float(self.dtype, "multinomial")
        weights = to_device(self._data, "cpu").astype(np.float64)
        count = checks.check_size("num_samples", num_samples)
        if weights.ndim not in (1, 2):
            raise ShapeError(f"multinomial takes weights (N,) or (B, N), got {self.shape}")
        least = 1 if replacement else count
        valid = np.isfinite(weights).all() and (weights >= 0).all()
        if not valid or ((weights > 0).sum(-1) < least).any():
            raise ValueError(f"multinomial takes finite weights >= 0, at least {least} of them > 0")
        if replacement:
            sums = weights.cumsum(-1).reshape(-1, weights.shape[-1])
            levels = random.generator().random((len(sums), count)) * sums[:, -1:]
            rows = [a.searchsorted(b, "right") for a, b in zip(sums, levels, strict=True)]
            found = np.array(rows).reshape(*weights.shape[:-1], count)
        else:  # the smallest of exponential random numbers with these rates
            times = random.generator().standard_exponential(weights.shape)
            with np.errstate(divide="ignore"):
                found = np.argsort(times / weights, -1)[..., :count]
        return wrap(to_device(found.astype(np.int64), self.device))

    # Shape

    def repeat(self: Any, *sizes: Any) -> Any:
        """Copies side by side, `sizes[i]` of them along dimension i; as NumPy's tile.

        >>> ta.tensor([1.0, 2.0]).repeat(2, 2)
        tensor([[1., 2., 1., 2.],
                [1., 2., 1., 2.]])
        """
        sizes = sizes_of(sizes)
        extra = len(sizes) - self.ndim
        if extra < 0 or min(sizes, default=0) < 0:
            raise ShapeError(f"repeat takes a size >= 0 per dimension of {self.shape}, got {sizes}")
        shape = (1,) * extra + self.shape
        single = [m for n in shape for m in (1, n)]
        copies = [m for r, n in zip(sizes, shape, strict=True) for m in (r, n)]
        target = [r * n for r, n in zip(sizes, shape, strict=True)]
        return self.reshape(single).expand(copies).reshape(target)

    def repeat_interleave(self: Any, repeats: int, dim: int | None = None) -> Any:
        """Each element `repeats` times, one copy after another, along `dim` or of all elements.

        >>> ta.tensor([1.0, 2.0]).repeat_interleave(2)
        tensor([1., 1., 2., 2.])

        Differs from PyTorch: `repeats` is one integer.
        """
        if not is_integer(repeats) or repeats < 0:
            raise TypeError(f"repeat_interleave takes one integer >= 0, got {repeats!r}")
        x = self.reshape(-1) if dim is None or not self.ndim else self
        dim = one_dim(x, dim or 0)
        before, (n, *after) = x.shape[:dim], x.shape[dim:]
        x = x.unsqueeze(dim + 1).expand(*before, n, repeats, *after)
        return x.reshape(*before, n * repeats, *after)

    def roll(self: Any, shifts: Any, dims: Any = None) -> Any:
        """Element i moves to i + shift along dims (or of all as one row), the last to the front."""
        if dims is None:
            return self.reshape(-1).roll(shifts, 0).reshape(self.shape)
        shifts, dims = (v if isinstance(v, (tuple, list)) else (v,) for v in (shifts, dims))
        if len(shifts) != len(dims) or not all(map(is_integer, shifts)):
            raise ValueError(f"roll takes an integer for each of {dims}, got {shifts}")
        x = self
        for shift, dim in zip(shifts, dims, strict=True):
            dim = one_dim(x, dim)
            n = x.shape[dim]
            first, last = x.split([n - shift % n, shift % n] if n else [0, 0], dim)
            x = ops.cat(last, first, dim=dim)
        return x

    def flip(self: Any, *sizes: Any, dims: Dims = ()) -> Any:
        """The elements along these dimensions in reverse order: x.flip(0, 1), x.flip(dims=0).

        Differs from PyTorch: without dimensions nothing is flipped.
        """
        flipped = checks.dims_of(self, sizes_of(sizes) or dims) or ()
        order = [slice(None, None, -1 if i in flipped else 1) for i in range(self.ndim)]
        return self[tuple(order)]

    def unbind(self: Any, dim: int = 0) -> tuple[Any, ...]:
        """The slices along `dim`, without it."""
        before = (slice(None),) * one_dim(checks.require_dims(self, "unbind"), dim)
        return tuple(self[(*before, i)] for i in range(len(self.transpose(0, dim))))

    @property
    def mT(self: Any) -> Any:
        """This tensor with its last two dimensions exchanged: a matrix, or each of a stack."""
        return self.transpose(-1, -2)

    def t(self: Any) -> Any:
        """A matrix transposed; a vector stays as it is. ShapeError with three dimensions."""
        if self.ndim > 2:
            raise ShapeError(f"t() takes at most two dimensions, got {self.shape}: use mT")
        return self.T

    def diagonal(self: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
        """The elements [i, i + offset] of two dimensions, as the last dimension of the result."""
        a, b = one_dim(self, dim1), one_dim(self, dim2)
        rest = [i for i in range(self.ndim) if i not in (a, b)]
        first = np.arange(max(-offset, 0), max(min(self.shape[a], self.shape[b] - offset), 0))
        return self.permute(*rest, a, b)[..., first, first + offset]

    def triu(self: Any, diagonal: int = 0) -> Any:
        """Matrices (..., N, M) with everything below the diagonal set to 0."""
        return self.masked_fill(triangle(self, diagonal, -1), 0)

    def tril(self: Any, diagonal: int = 0) -> Any:
        """Matrices (..., N, M) with everything above the diagonal set to 0."""
        return self.masked_fill(~triangle(self, diagonal), 0)

    def contiguous(self: Any) -> Any:
        """This tensor if its elements lie in memory one after another, else a copy that does."""
        return self if self._data.flags.c_contiguous else self.clone()

    def expand_as(self: Any, other: Any) -> Any:
        """Broadcast to the shape of `other`."""
        return self.expand(checked_tensor(other, "expand_as").shape)

    def type_as(self: Any, other: Any) -> Any:
        """This tensor in the dtype, and on the device, of `other`."""
        return self.to(checked_tensor(other, "type_as"))


for method in vars(Methods).values():
    if isinstance(method, FunctionType):  # Python's own errors name it, and readers know Tensor
        method.__qualname__ = method.__qualname__.replace("Methods", "Tensor")


def taken(x: Any, dim: int, indices: Any) -> ValuesAndIndices:
    """The elements at these indices along `dim`, and the indices."""
    return ValuesAndIndices(x.gather(dim, indices) if x.ndim else x.clone(), indices)


def triangle(x: Any, diagonal: int, offset: int = 0) -> Any:
    """True on and below the diagonal, for the last two dimensions of x."""
    if not is_integer(diagonal):
        raise TypeError(f"diagonal must be an integer, got {diagonal!r}")
    if x.ndim < 2:
        raise ShapeError(f"a triangle needs at least two dimensions, got shape {x.shape}")
    rows, columns = x.shape[-2:]
    return wrap(np.tri(rows, columns, diagonal + offset, dtype=np.bool_)).to(x.device)
