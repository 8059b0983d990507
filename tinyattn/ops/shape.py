"""Reshaping, indexing and joining; the derivative of each moves elements back."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from ..base import backend
from ..base.backend import Array, namespace
from ..engine.op import op
from ..engine.promotion import promoted
from ..errors import DtypeError, ShapeError
from ..kernels import sum_dtype
from ..kernels.range_checks import index_for, require_range


@op
def reshape(x: Array, *, target: tuple[int, ...]) -> Array:
    return x.reshape(target)


@reshape.vjp("x")
def dx(grad, shape):
    return reshape(grad, target=shape)


@op
def permute(x: Array, *, dims: tuple[int, ...]) -> Array:
    return x.transpose(dims)


@permute.vjp("x")
def dx(grad, dims):
    inverse = sorted(range(len(dims)), key=dims.__getitem__)
    return permute(grad, dims=tuple(inverse))


@op
def expand(x: Array, *, target: tuple[int, ...]) -> Array:
    return namespace(x).broadcast_to(x, target)


@expand.vjp("x")
def dx(grad):
    return grad  # `Plan.in_shape_of` sums it


@op
def transfer(x: Array, *, device: str) -> Array:
    """A copy on another device; the gradient is copied back."""
    return backend.to_device(x, device)


@transfer.vjp("x")
def dx(grad, device):
    return transfer(grad, device="cpu" if device == "cuda" else "cuda")


@op
def getitem(x: Array, *, index: Any) -> Array:
    return x[index_for(x, index)]


@getitem.vjp("x")
def dx(grad, shape, index):
    return putitem(grad, index=index, target=shape)


@op
def putitem(x: Array, *, index: Any, target: tuple[int, ...]) -> Array:
    """Zeros of shape `target` with `x` added at `index`; the derivative of `getitem`."""
    parts = index if isinstance(index, tuple) else (index,)
    each_once = all(part is None or isinstance(part, (int, slice, type(...))) for part in parts)
    out = namespace(x).zeros(target, x.dtype if each_once else sum_dtype(x.dtype))
    index = index_for(out, index)
    if each_once:
        out[index] = x
        return out
    backend.scatter_add(out, index, x)
    return out.astype(x.dtype, copy=False)


@putitem.vjp("x")
def dx(grad, index):
    return getitem(grad, index=index)


@op
def gather(x: Array, index: Array, *, dim: int) -> Array:
    if getattr(index, "dtype", np.dtype(object)).kind not in "iu":
        raise DtypeError(f"gather takes an integer index, got {getattr(index, 'dtype', index)}")
    fits = index.ndim == x.ndim and all(
        i == dim or n <= x.shape[i] for i, n in enumerate(index.shape)
    )
    if not fits:
        raise ShapeError(
            f"gather along dim {dim} of shape {x.shape} takes an index of as many dimensions, "
            f"no longer in the others, got {index.shape}"
        )
    text = f"gather: index {{number}} is out of range for {x.shape[dim]} elements (dim {dim})"
    require_range(index, 0, x.shape[dim], IndexError, text)
    return x[full_index(index, dim)]


@gather.vjp("x")
def dx(grad, index, shape, dim):
    return putitem(grad, index=full_index(getattr(index, "_data", index), dim), target=shape)


def full_index(index: Array, dim: int) -> tuple[Array, ...]:
    """The index of every element that `gather` takes: its own, but `index` along `dim`."""
    grid = list(namespace(index).ogrid[tuple(slice(n) for n in index.shape)])
    if index.ndim == 1:
        grid = [index]
    grid[dim] = index
    return tuple(grid)


@op
def cat(*xs: Array, dim: int) -> Array:
    return promoted(namespace(xs[0]).concatenate(xs, axis=dim), xs)


@cat.vjp("xs")
def dxs(grad, shapes, dim):
    ends = [0]
    for shape in shapes:
        ends.append(ends[-1] + shape[dim])
    before = (slice(None),) * dim
    return tuple(grad[(*before, slice(a, b))] for a, b in pairwise(ends))
