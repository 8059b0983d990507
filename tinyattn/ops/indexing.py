"""Elements by index, and pieces; the derivative of each moves elements back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base import backend, checks
from ..base.backend import Array, namespace
from ..base.checks import Dims, dims_of, integer, one_dim, require_dims, sizes_of, split_sizes
from ..engine.autograd import AnyTensor
from ..engine.op import op
from ..errors import DtypeError, ShapeError
from ..kernels import with_kernels
from ..kernels.range_checks import dimensions_indexed, index_for, require_range
from ..kernels.sums import is_large, sum_dtype
from .arguments import Sizes, of_tensors
from .arithmetic import where
from .embedding import add_rows
from .shapes import pieces, reshape


@op
def getitem(x: AnyTensor, index: Any) -> AnyTensor:
    """x[index], of an index that `checked_index` has seen."""
    x, index = numbers_first(x, index)
    if isinstance(index, tuple) and type(x) is np.ndarray and (along := numbers_along(index)):
        ids, dim = along
        return x.take(ids.astype(np.int64, copy=False), axis=dim)
    part = x[index_for(x, index)]
    if isinstance(part, np.generic):  # a copy; NumPy gives a view if ... stands behind the index
        part = x[(*index, ...) if isinstance(index, tuple) else (index, ...)]
    # NumPy puts x[:, rows] into memory in another order, in which `view` could not show it.
    return part if backend.owner_of(part) is backend.owner_of(x) else backend.in_c_order(part)


@getitem.vjp("x")
def dx(grad, shape, index):
    return putitem(grad, index, shape)


def numbers_first(x: Array, index: Any) -> tuple[Array, Any]:
    """x at the single numbers of a mixed index, and the rest of the index.

    PyTorch takes the numbers first. NumPy takes them together with the arrays, and so gives
    x[0, :, rows] the dimension of the rows in front; a ... that stands for nothing does the same.
    """
    if not isinstance(index, tuple) or not any(map(backend.is_array, index)):
        return mask_as_rows(x, index) if is_large(index) else (x, index)
    is_full = sum(map(dimensions_indexed, index)) == x.ndim  # so ... stands for nothing
    first: list[Any] = []
    rest: list[Any] = []
    for part in index:
        is_array = backend.is_array(part)
        first += [slice(None)] * dimensions_indexed(part) if is_array else [part]
        if is_array or (part is Ellipsis and not is_full):
            rest.append(part)
        elif part is None or isinstance(part, slice):
            rest.append(slice(None))
    return (x, index) if len(rest) == len(index) else (x[tuple(first)], tuple(rest))


def mask_as_rows(x: Array, index: Array) -> tuple[Array, Array]:
    """x with the dimensions of a mask as one, and the numbers of its rows, by which NumPy reads and
    writes faster. Other arrays come back as they are, and those that can be written to and are not
    in C order, because a write to a copy would be lost."""
    is_mask = index.dtype == np.bool_ and index.shape == x.shape[: index.ndim]
    if not is_mask or type(x) is not np.ndarray or (x.flags.writeable and not x.flags.c_contiguous):
        return x, index
    return x.reshape(index.size, *x.shape[index.ndim :]), np.flatnonzero(index)


def shape_at(x: Array, index: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the elements at an index into an array of this shape, on the device of x.
    Raises IndexError if the index does not fit."""
    if not is_integer_array(index):
        whole = namespace(x).broadcast_to(namespace(x).zeros((), np.bool_), shape)
        whole, index = numbers_first(whole, index)
        return whole[index_for(whole, index)].shape
    text = f"index {{number}} is out of range for dimension 0 with size {shape[0]}"
    on_device = backend.to_device(index, backend.device_of(x))
    require_range(on_device, -shape[0], shape[0], IndexError, text)
    return index.shape + shape[1:]


@op
def putitem(x: AnyTensor, index: Any, target: tuple[int, ...]) -> AnyTensor:
    """Zeros of shape `target` with `x` added at `index`; the derivative of `getitem`.

    The fastest of four ways that the index allows: places that come once each, numbers of rows,
    rows along one dimension, or any places.
    """
    if x.shape != (shape := shape_at(x, index, target)):  # the kernels do not look
        raise ShapeError(f"putitem takes values of the index' shape {shape}, got {x.shape}")
    if takes_each_once(index if isinstance(index, tuple) else (index,)):
        out = namespace(x).zeros(target, x.dtype)
        part, index = numbers_first(out, index)
        part[index_for(part, index)] = x
        return out
    along = numbers_along(index)
    if along and x.dtype.kind == "f" and x.size and len(target) > 1:
        ids, dim = along
        # From 0, in int64, because the size of a dimension may not fit the dtype of the index.
        ids = backend.on_device_of(ids.astype(np.int64).reshape(-1) % target[dim], x)
        if dim == len(target) - 1 and ids.size <= target[dim] and type(x) is np.ndarray:
            return added_along(x, np.broadcast_to(ids, x.shape), dim, target)
        rows = x.reshape(*target[:dim], ids.size, *target[dim + 1 :]).swapaxes(0, dim)
        table = add_rows(rows.reshape(ids.size, -1), ids, target[dim], None)
        table = table.reshape(target[dim], *rows.shape[1:])
        return backend.in_c_order(table.swapaxes(0, dim))
    return added_at(x, index, target)


def added_at(x: Array, index: Any, target: tuple[int, ...]) -> Array:
    """Zeros of shape `target` with `x` added at an index that may name a place twice."""
    out = namespace(x).zeros(target, sum_dtype(x.dtype))
    wide = x.astype(out.dtype, copy=False)
    if type(out) is np.ndarray:  # by places in one row, because NumPy then adds ten times as fast
        places, index = numbers_first(np.arange(out.size).reshape(target), index)
        backend.scatter_add(out.reshape(-1), places[index].reshape(-1), wide.reshape(-1))
    else:
        part, index = numbers_first(out, index)
        backend.scatter_add(part, index_for(part, index), wide)
    return out.astype(x.dtype, copy=False)


def takes_each_once(index: tuple[Any, ...]) -> bool:
    """True if no element can be taken twice: by slices, single numbers, and one mask."""
    plain = (int, slice, type(...), type(None))
    arrays = [part for part in index if not isinstance(part, plain)]
    return not arrays or (len(arrays) == 1 and getattr(arrays[0], "dtype", None) == np.bool_)


def is_integer_array(index: Any) -> bool:
    """True for an array of row numbers."""
    return backend.is_array(index) and index.dtype.kind in "iu"


def numbers_along(index: Any) -> tuple[Array, int] | None:
    """Row numbers and their dimension: of x[rows], and of x[:, :, rows], where a list of numbers
    stands behind whole dimensions; None for another index."""
    *before, last = index if isinstance(index, tuple) and index else (index,)
    if not is_integer_array(last) or (before and last.ndim > 1):
        return None
    are_whole = all(isinstance(part, slice) and part == slice(None) for part in before)
    return (last, len(before)) if are_whole else None


@putitem.vjp("x")
def dx(grad, index):
    return getitem(grad, index)


@op
def setitem(x: AnyTensor, value: Any, index: Any) -> AnyTensor:
    """A copy of `x` with `value` at `index`."""
    out, value = namespace(x).asarray(x).copy(), without_leading_ones(value)
    part, place = numbers_first(out, index)
    place = index_for(part, place)
    writer = None
    if type(out) is not np.ndarray and getattr(value, "ndim", 0) > 0:
        writer = last_writer(index, out.shape)
    if writer is not None:  # CuPy does not say which of two values stays in one place
        value = namespace(out).broadcast_to(value, writer.shape).reshape(-1)
        value = value[backend.on_device_of(writer, out)]
    part[place] = value
    return out


def without_leading_ones(value: Any) -> Any:
    """`value` without dimensions of size 1 in front: NumPy refuses them for x[0, 0] and masks."""
    while getattr(value, "ndim", 0) and len(value) == 1:
        value = value[0]
    return value


@setitem.vjp("x")
def dx(grad, index):
    return setitem(grad, 0, index)


@setitem.vjp("value")
def dvalue(grad, shapes, index):
    part = getitem(grad, index)
    writer = last_writer(index, shapes[0])
    if writer is not None:
        stays = writer == np.arange(writer.size).reshape(writer.shape)
        part = where(backend.on_device_of(stays, part), part, 0)
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
    writers, place = numbers_first(np.empty(shape, np.int64), place)
    writers[place] = np.arange(writers[place].size).reshape(writers[place].shape)
    return writers[place]


@op
def gather(x: AnyTensor, dim: int, index: Any) -> AnyTensor:
    """out[i][j][k] = x[index[i][j][k]][j][k] for dim 0, and so on for other dims."""
    if not (x.ndim and getattr(index, "ndim", 1)):
        return gather(row_of(x), dim, row_of(index)).reshape(index.shape)
    dim = one_dim(x, dim)
    check_places("gather", index, x.shape, dim)
    return taken_along(x, index, dim)


@gather.vjp("x")
def dx(grad, index, shape, dim):
    return scatter_along(grad, dim, index, shape)


@op
def scatter_along(x: AnyTensor, dim: int, index: Any, target: tuple[int, ...]) -> AnyTensor:
    """Zeros of shape `target` with each element added where `gather` takes it from."""
    if x.shape != index.shape:
        raise ShapeError(f"scatter_along takes an index of shape {x.shape}, got {index.shape}")
    if not (target and x.ndim):
        return scatter_along(row_of(x), dim, row_of(index), target or (1,)).reshape(target)
    dim %= len(target)
    check_places("scatter_along", index, target, dim)
    return added_along(x, index, dim, target)


@scatter_along.vjp("x")
def dx(grad, index, dim):
    return gather(grad, dim, index)


def row_of(x: Any) -> Any:
    """A number, which PyTorch takes as a row of one element here; a tensor of more as it is."""
    return x if getattr(x, "ndim", 1) else x.reshape(1)


@with_kernels(cpu="lines.taken_along")
def taken_along(x: Array, index: Array, dim: int) -> Array:
    return x.reshape(-1).take(flat_index(index, x.shape, dim))


@with_kernels(cpu="lines.added_along")
def added_along(x: Array, index: Array, dim: int, target: tuple[int, ...]) -> Array:
    if index.shape[dim] == 1:  # so no two elements come to one place
        total = namespace(x).zeros(math.prod(target), x.dtype)
        total[flat_index(index, target, dim).reshape(-1)] = x.reshape(-1)
        return total.reshape(target)
    total = namespace(x).zeros(math.prod(target), sum_dtype(x.dtype))
    values = x.reshape(-1).astype(total.dtype, copy=False)
    backend.scatter_add(total, flat_index(index, target, dim).reshape(-1), values)
    return total.reshape(target).astype(x.dtype, copy=False)


def flat_index(index: Array, shape: tuple[int, ...], dim: int) -> Array:
    """Where each element that `gather` takes stands in the flattened array of this shape."""
    first = namespace(index).zeros((1,) * index.ndim, np.int64)  # of the line that an index is in
    for i, n in enumerate(index.shape):
        if i != dim:
            steps = namespace(index).arange(n) * math.prod(shape[i + 1 :])
            first = first + steps.reshape(n, *(1,) * (index.ndim - i - 1))
    index, step = index.astype(np.int64, copy=False), math.prod(shape[dim + 1 :])
    return first + (index if step == 1 else index * step)


def check_places(name: str, index: Array, shape: tuple[int, ...], dim: int) -> None:
    """What reads and writes at these places looks at none of them."""
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
def diagonal(x: AnyTensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> AnyTensor:
    """The elements [i, i + offset] of two dimensions, as the last dimension of the result: a view.

    >>> x = ta.zeros(2, 2)
    >>> x.diagonal()[...] = 1
    >>> x.tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    out = x.diagonal(integer("offset", offset), one_dim(x, dim1), one_dim(x, dim2))
    if type(x) is np.ndarray:  # whose diagonal is read-only at first
        out.flags.writeable = x.flags.writeable
    return out


@diagonal.vjp("x")
def dx(grad, shape, offset, dim1, dim2):
    places = np.arange(math.prod(shape)).reshape(shape).diagonal(offset, dim1, dim2)
    return reshape(putitem(grad, places, (math.prod(shape),)), shape)


@op
def triangle(x: AnyTensor, diagonal: int, upper: bool) -> AnyTensor:
    """Matrices (..., N, M) with everything on the other side of the diagonal set to 0."""
    if x.ndim < 2:
        raise ShapeError(f"a triangle needs at least two dimensions, got shape {x.shape}")
    keep = namespace(x).triu if upper else namespace(x).tril
    return backend.in_c_order(keep(x, integer("diagonal", diagonal)))


@triangle.vjp("x")
def dx(grad, diagonal, upper):
    return triangle(grad, diagonal, upper)


# Made of the ops above


@of_tensors
def triu(x: AnyTensor, diagonal: int = 0) -> AnyTensor:
    """Matrices (..., N, M) with everything below the diagonal set to 0."""
    return triangle(x, diagonal, True)


@of_tensors
def tril(x: AnyTensor, diagonal: int = 0) -> AnyTensor:
    """Matrices (..., N, M) with everything above the diagonal set to 0."""
    return triangle(x, diagonal, False)


@of_tensors
def split(x: AnyTensor, sizes: int | Sequence[int], dim: int = 0) -> tuple[AnyTensor, ...]:
    """Pieces along `dim`, all of one size (the last may be smaller), or of the given sizes."""
    dim = one_dim(require_dims(x, "split"), dim)
    return tuple(pieces(x, split_sizes(x.shape[dim], sizes, dim), dim))


@of_tensors
def chunk(x: AnyTensor, chunks: int, dim: int = 0) -> tuple[AnyTensor, ...]:
    """At most `chunks` pieces of equal size along `dim`."""
    chunks = checks.check_size("chunks", chunks)
    total = require_dims(x, "chunk").shape[one_dim(x, dim)]
    return split(x, -(-total // chunks) if total else [0] * chunks, dim)


@of_tensors
def unbind(x: AnyTensor, dim: int = 0) -> tuple[AnyTensor, ...]:
    """The slices along `dim`, without it."""
    dim = one_dim(require_dims(x, "unbind"), dim)
    return tuple(x[(*(slice(None),) * dim, i)] for i in range(x.shape[dim]))


@of_tensors
def flip(x: AnyTensor, *sizes: Sizes, dims: Dims = ()) -> AnyTensor:
    """The elements along these dimensions in reverse order: x.flip(0, 1), x.flip(dims=0).

    Differs from PyTorch: without dimensions nothing is flipped.
    """
    flipped = dims_of(x, sizes_of(sizes) or dims) or ()
    order = [slice(None, None, -1 if i in flipped else 1) for i in range(x.ndim)]
    return x[tuple(order)].clone()  # no view, because PyTorch's is none
