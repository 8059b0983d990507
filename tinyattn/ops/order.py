"""The largest elements, sorting, and drawing by weight."""

from __future__ import annotations

from typing import Any, overload

import numpy as np

from ..base import checks, random
from ..base.backend import namespace, quietly, to_device
from ..base.checks import Dims
from ..engine.autograd import AnyTensor, TensorBase, wrap
from ..engine.op import op
from ..errors import DtypeError, ShapeError
from .arguments import ValuesAndIndices, any_tensor, of_tensors
from .arithmetic import cast, div, eq, maximum, minimum, where
from .indexing import gather, split
from .reductions import sum, with_ones
from .shapes import squeeze

# Extremes


@op
def amax(x: AnyTensor, dim: Dims = None, keepdim: bool = False, **numpy_names: Dims) -> AnyTensor:
    """The largest values; elements that tie share the gradient."""
    return x.max(axis=checks.dims_of(x, dim, keepdim), keepdims=bool(keepdim))


@op
def amin(x: AnyTensor, dim: Dims = None, keepdim: bool = False, **numpy_names: Dims) -> AnyTensor:
    """The smallest values; elements that tie share the gradient."""
    return x.min(axis=checks.dims_of(x, dim, keepdim), keepdims=bool(keepdim))


@amax.vjp("x")
@amin.vjp("x")
def dx(grad, x, out, shape, dim):
    ties = eq(x, with_ones(out, shape, dim))
    number = sum(cast(ties, np.promote_types(grad.dtype, np.float32)), dim, True)
    return div(where(ties, with_ones(grad, shape, dim), 0.0), number)


@op(differentiable=False)
def argmax(
    x: AnyTensor, dim: int | None = None, keepdim: bool = False, **numpy_names: Dims
) -> AnyTensor:
    """The index of the largest element along `dim`, the first if several tie."""
    return x.argmax(axis=single_axis(x, "argmax", dim, keepdim), keepdims=keepdim)


@op(differentiable=False)
def argmin(
    x: AnyTensor, dim: int | None = None, keepdim: bool = False, **numpy_names: Dims
) -> AnyTensor:
    """The index of the smallest element along `dim`, the first if several tie."""
    return x.argmin(axis=single_axis(x, "argmin", dim, keepdim), keepdims=keepdim)


def single_axis(x: Any, name: str, dim: Any, keepdim: bool) -> int | None:
    """The only dimension, or None for all elements."""
    dims = checks.dims_of(x, dim, keepdim)
    if dims is not None and len(dims) != 1:
        raise ShapeError(f"{name} takes one dimension, or None for all elements, got {dims}")
    return None if dims is None else dims[0]


@overload
def max(
    x: AnyTensor, dim: None = None, keepdim: bool = False, *, keepdims: bool = False
) -> AnyTensor: ...
@overload
def max(
    x: AnyTensor, dim: int, keepdim: bool = False, *, keepdims: bool = False
) -> ValuesAndIndices[AnyTensor]: ...
@overload
def max(
    x: AnyTensor, *, axis: int, keepdim: bool = False, keepdims: bool = False
) -> ValuesAndIndices[AnyTensor]: ...
@overload
def max(x: AnyTensor, dim: TensorBase) -> AnyTensor: ...
@of_tensors
def max(x: Any, dim: Any = None, keepdim: bool = False, **numpy_names: Any) -> Any:
    """The largest element, or along `dim` a pair (values, indices); with a Tensor, `maximum`.

    Elements that tie share the gradient. Along a dimension the gradient goes to the element at
    the index. `amax` gives the values alone, along one dimension or several.
    Differs from PyTorch: with a NaN the gradient of the largest of all is NaN everywhere.
    """
    return extreme(x, (amax, argmax, maximum), dim, keepdim)


@overload
def min(
    x: AnyTensor, dim: None = None, keepdim: bool = False, *, keepdims: bool = False
) -> AnyTensor: ...
@overload
def min(
    x: AnyTensor, dim: int, keepdim: bool = False, *, keepdims: bool = False
) -> ValuesAndIndices[AnyTensor]: ...
@overload
def min(
    x: AnyTensor, *, axis: int, keepdim: bool = False, keepdims: bool = False
) -> ValuesAndIndices[AnyTensor]: ...
@overload
def min(x: AnyTensor, dim: TensorBase) -> AnyTensor: ...
@of_tensors
def min(x: Any, dim: Any = None, keepdim: bool = False, **numpy_names: Any) -> Any:
    """The smallest element, or along `dim` a pair (values, indices); see `max`."""
    return extreme(x, (amin, argmin, minimum), dim, keepdim)


def extreme(
    x: AnyTensor, functions: tuple[Any, Any, Any], dim: Any, keepdim: bool
) -> AnyTensor | ValuesAndIndices[AnyTensor]:
    """`max` or `min`, by its functions of all elements, of indices, and of two Tensors."""
    of_all, index_of, of_two = functions
    if isinstance(dim, TensorBase):
        return of_two(x, dim)
    if dim is None:
        return of_all(x, None, keepdim)
    checks.check_keepdim(keepdim)
    if isinstance(dim, (tuple, list)):
        raise TypeError(f"max and min take one dimension, got {dim}: amax and amin take several")
    dim = checks.one_dim(x, dim)
    values, indices = found = values_at(x, dim, index_of(x, dim, True))
    return found if keepdim else ValuesAndIndices(squeeze(values, dim), squeeze(indices, dim))


# Order


@of_tensors
def argsort(
    x: AnyTensor, dim: int = -1, descending: bool = False, stable: bool = True
) -> AnyTensor:
    """The indices that sort along `dim`; NaN is largest.

    Equal elements keep their order. `stable` is there because PyTorch has it.
    """
    dim = checks.one_dim(x, dim)
    array, xp = x._data, namespace(x._data)
    if not x.ndim:
        return wrap(xp.zeros((), np.int64))
    if not descending:
        return wrap(xp.argsort(array, axis=dim, kind="stable"))
    back = (*(slice(None),) * dim, slice(None, None, -1))
    return wrap(x.shape[dim] - 1 - xp.argsort(array[back], axis=dim, kind="stable")[back])


@of_tensors
def sort(
    x: AnyTensor, dim: int = -1, descending: bool = False, stable: bool = True
) -> ValuesAndIndices[AnyTensor]:
    """A pair (values, indices), sorted along `dim`; see `argsort`."""
    return values_at(x, dim, argsort(x, dim, descending))


def values_at(x: AnyTensor, dim: int, indices: AnyTensor) -> ValuesAndIndices[AnyTensor]:
    """The elements at these indices along `dim`, and the indices."""
    return ValuesAndIndices(gather(x, dim, indices), indices)


@of_tensors
def topk(
    x: AnyTensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> ValuesAndIndices[AnyTensor]:
    """The k largest (or smallest) elements along `dim`: a pair (values, indices).

    They come in order. `sorted` is there because PyTorch has it.
    """
    total = x.shape[checks.one_dim(x, dim)] if x.ndim else 1
    if (k := checks.check_size("k", k, 0)) > total:
        raise ShapeError(f"topk: k is {k}, but dim {dim} of {x.shape} has {total} elements")
    if 0 < k <= total // 8 and type(x._data) is np.ndarray:
        candidates = first_in_order(np.moveaxis(x._data, dim, -1), k, largest)
        if candidates is not None:
            chosen = wrap(np.moveaxis(candidates, -1, dim))
            order = argsort(gather(x.detach(), dim, chosen), dim, descending=largest)
            return values_at(x, dim, gather(chosen, dim, order))
    indices = argsort(x, dim, descending=largest)
    return values_at(x, dim, split(indices, [k, total - k], dim)[0] if x.ndim else indices)


def first_in_order(x: np.ndarray, k: int, largest: bool) -> np.ndarray | None:
    """The indices of the k largest (or smallest) numbers of each row, not sorted, in a fifth of
    the time of sorting all; None if equal numbers or NaN make them more than k."""
    place = x.shape[-1] - k if largest else k - 1
    last = np.partition(x, place, axis=-1)[..., place, None]
    is_among = ~(x < last) if largest else ~(x > last)
    if (is_among.sum(-1) != k).any():
        return None
    return np.nonzero(is_among)[-1].reshape(*x.shape[:-1], k)


@of_tensors
def multinomial(x: AnyTensor, num_samples: int, replacement: bool = False) -> AnyTensor:
    """Indices drawn with these weights: (N,) -> (num_samples,), (B, N) -> (B, num_samples).

    The weights are >= 0 and need not add up to 1. Without `replacement` no index comes twice.
    ValueError for weights that cannot be drawn from. Random numbers are tinyattn's own.
    """
    checks.require_float(x.dtype, "multinomial")
    weights = to_device(x._data, "cpu").astype(np.float64)
    number = checks.check_size("num_samples", num_samples)
    if weights.ndim not in (1, 2):
        raise ShapeError(f"multinomial takes weights (N,) or (B, N), got {x.shape}")
    least = 1 if replacement else number
    wrong = weights[~(np.isfinite(weights) & (weights >= 0))]
    if wrong.size:
        text = "multinomial takes finite weights >= 0, as softmax makes them of scores, got"
        raise ValueError(f"{text} {wrong[0]}")
    if (found := (weights > 0).sum(-1).min(initial=number)) < least:
        raise ValueError(f"multinomial takes {least} weights > 0 at least in a row, got {found}")
    if replacement:
        weights = weights / weights.max(-1, keepdims=True)  # because their sum may overflow
        sums = weights.cumsum(-1).reshape(-1, weights.shape[-1])
        levels = random.generator().random((len(sums), number)) * sums[:, -1:]
        rows = [a.searchsorted(b, "right") for a, b in zip(sums, levels, strict=True)]
        drawn = np.array(rows).reshape(*weights.shape[:-1], number)
    else:  # the smallest of exponential random numbers with these rates
        times = random.generator().standard_exponential(weights.shape)
        # Logarithms, because times / weights may overflow.
        ratios = np.log(times) - quietly(np.log, weights)
        drawn = np.argsort(ratios, -1)[..., :number]
    return wrap(to_device(drawn.astype(np.int64), x.device))


# Comparisons of whole tensors


@of_tensors
def allclose(
    x: AnyTensor, other: AnyTensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """True if |x - y| <= atol + rtol |y| everywhere."""
    if x.dtype != any_tensor(other, "other").dtype:
        raise DtypeError(f"allclose takes one dtype, got {x.dtype} and {other.dtype}")
    return bool(namespace(x._data).allclose(x._data, other._data, rtol, atol, equal_nan))


@of_tensors
def equal(x: AnyTensor, other: AnyTensor) -> bool:
    """True if shape and all values are the same; `==` compares each element."""
    return x.shape == any_tensor(other, "other").shape and bool((x == other).all())
