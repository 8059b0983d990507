"""Reshaping, indexing and joining; the derivative of each moves elements back."""

from __future__ import annotations

import math
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from .. import kernels
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
def roll(x: Array, *, shift: int, dim: int) -> Array:
    return namespace(x).roll(x, shift, dim)


@roll.vjp("x")
def dx(grad, shift, dim):
    return roll(grad, shift=-shift, dim=dim)


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
    if len(target) > 1 and x.size and x.dtype.kind == "f" and is_integer_array(index):
        width = math.prod(target[1:])
        ids = backend.to_device(counted_from_0(index, target[0]), backend.device_of(x))
        return kernels.scatter_rows(x.reshape(-1, width), ids, target[0], None).reshape(target)
    dim = only_integer_array(index)
    if dim is not None and type(x) is np.ndarray and x.dtype.kind == "f":
        ids = counted_from_0(index[dim], target[dim]).reshape(-1, *(1,) * (x.ndim - dim - 1))
        return kernels.scatter_along(x, np.broadcast_to(ids, x.shape), dim, target)
    each_once = takes_each_once(index if isinstance(index, tuple) else (index,))
    out = namespace(x).zeros(target, x.dtype if each_once else sum_dtype(x.dtype))
    index = index_for(out, index)
    if each_once:
        out[index] = x
        return out
    x, dtype = x.astype(out.dtype, copy=False), x.dtype
    if type(out) is np.ndarray:  # by places in one row, because NumPy then adds ten times as fast
        in_row = out.ndim == 1 and is_integer_array(index)
        places = index if in_row else np.arange(out.size).reshape(target)[index]
        backend.scatter_add(out.reshape(-1), places.reshape(-1), x.reshape(-1))
    else:
        backend.scatter_add(out, index, x)
    return out.astype(dtype, copy=False)


def takes_each_once(index: tuple[Any, ...]) -> bool:
    """True if no element can be taken twice: by slices, single numbers, and one mask."""
    plain = (int, slice, type(...), type(None))
    arrays = [part for part in index if not isinstance(part, plain)]
    return not arrays or (len(arrays) == 1 and getattr(arrays[0], "dtype", None) == np.bool_)


def is_integer_array(index: Any) -> bool:
    """True for an array of row numbers."""
    return backend.is_array(index) and index.dtype.kind in "iu"


def counted_from_0(index: Array, size: int) -> Array:
    """Row numbers of which negative ones count from the end. In int64, because `size` may not fit
    the dtype of the index."""
    return index.astype(np.int64) % size


def only_integer_array(index: Any) -> int | None:
    """The dimension of x[:, :, rows], where a list of numbers stands behind whole dimensions."""
    if not isinstance(index, tuple) or not index or not is_integer_array(index[-1]):
        return None
    are_whole = all(isinstance(part, slice) and part == slice(None) for part in index[:-1])
    return len(index) - 1 if are_whole and index[-1].ndim == 1 else None


@putitem.vjp("x")
def dx(grad, index):
    return getitem(grad, index=index)


@op
def setitem(x: Array, value: Array, *, index: Any) -> Array:
    """A copy of `x` with `value` at `index`."""
    out, value = namespace(x).asarray(x).copy(), without_leading_ones(value)
    place = index_for(out, index)
    writer = None
    if type(out) is not np.ndarray and getattr(value, "ndim", 0) > 0:
        writer = last_writer(index, out.shape)
    if writer is not None:  # CuPy does not say which of two values stays in one place
        value = namespace(out).broadcast_to(value, writer.shape).reshape(-1)
        value = value[backend.on_device_of(writer, out)]
    out[place] = value
    return out


def without_leading_ones(value: Any) -> Any:
    """`value` without dimensions of size 1 in front: NumPy refuses them for x[0, 0] and masks."""
    while getattr(value, "ndim", 0) and len(value) == 1:
        value = value[0]
    return value


@setitem.vjp("x")
def dx(grad, index):
    return setitem(grad, 0, index=index)


@setitem.vjp("value")
def dvalue(grad, shapes, index):
    part = getitem(grad, index=index)
    writer = last_writer(index, shapes[0])
    if writer is not None:
        stays = writer == np.arange(writer.size).reshape(writer.shape)
        part = namespace(part).where(backend.on_device_of(stays, part), part, 0)
    ones = (1,) * (len(shapes[1]) - part.ndim)  # as x[0] = value, for a value of shape (1, N)
    return part.reshape(ones + part.shape)


def last_writer(index: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    """Of all values that are written to an index, the number of the one that stays in each place.

    It is None if no place can be named twice: integer arrays alone can do that. It is found on the
    host, because there the last of several values stays.
    """
    parts = index if isinstance(index, tuple) else (index,)
    if not any(getattr(part, "ndim", 0) and part.dtype.kind in "iu" for part in parts):
        return None
    on_host = [backend.to_device(p, "cpu") if backend.is_array(p) else p for p in parts]
    place = tuple(on_host) if isinstance(index, tuple) else on_host[0]
    writers = np.empty(shape, np.int64)
    numbers = np.arange(writers[place].size).reshape(writers[place].shape)
    writers[place] = numbers
    return writers[place]


@op
def gather(x: Array, index: Array, *, dim: int) -> Array:
    """out[i, j, k] = x[i, index[i, j, k], k] along dimension 1 of three, for instance."""
    check_places("gather", index, x.shape, dim)
    return kernels.gather(x, index, dim)


@gather.vjp("x")
def dx(grad, index, shape, dim):
    return scatter_along(grad, index, dim=dim, target=shape)


@op
def scatter_along(x: Array, index: Array, *, dim: int, target: tuple[int, ...]) -> Array:
    """Zeros of shape `target` with each element added where `gather` takes it from."""
    if x.shape != index.shape:
        raise ShapeError(f"scatter_along takes an index of shape {x.shape}, got {index.shape}")
    check_places("scatter_along", index, target, dim)
    return kernels.scatter_along(x, index, dim, target)


@scatter_along.vjp("x")
def dx(grad, index, dim):
    return gather(grad, index, dim=dim)


def check_places(name: str, index: Array, shape: tuple[int, ...], dim: int) -> None:
    """Kernels read and write at these places without looking."""
    if getattr(index, "dtype", np.dtype(object)).kind not in "iu":
        raise DtypeError(f"{name} takes an integer index, got {getattr(index, 'dtype', index)}")
    fits = index.ndim == len(shape) and all(
        i == dim or n <= shape[i] for i, n in enumerate(index.shape)
    )
    if not fits:
        raise ShapeError(
            f"{name} along dim {dim} of shape {shape} takes an index of as many dimensions, "
            f"no longer in the others, got {index.shape}"
        )
    text = f"{name}: index {{number}} is out of range for {shape[dim]} elements (dim {dim})"
    require_range(index, 0, shape[dim], IndexError, text)


@op
def cat(*xs: Array, dim: int) -> Array:
    return promoted(namespace(xs[0]).concatenate(xs, axis=dim), xs)


@cat.vjp("xs")
def dxs(grad, shapes, dim):
    return tuple(pieces(grad, [shape[dim] for shape in shapes], dim))


def pieces(x: Any, sizes: list[int], dim: int) -> list[Any]:
    """x cut along `dim` into pieces of these sizes."""
    ends, before = [0, *accumulate(sizes)], (slice(None),) * dim
    return [x[(*before, slice(a, b))] for a, b in pairwise(ends)]
