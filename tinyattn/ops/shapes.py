"""Other shapes of the same elements, other orders of dimensions, and tensors joined into one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from ..base.backend import in_c_order, namespace, to_device
from ..base.checks import Dims, check_type, dims_of, is_integer, number_of, one_dim, sizes_of
from ..engine.autograd import AnyTensor, TensorBase
from ..engine.op import op
from ..engine.promotion import promoted
from ..errors import DeviceError, ShapeError
from ..kernels import sums
from .arguments import ArrayLike, Sizes, any_tensor, array_like, of_tensors

# Another shape


@op
def reshape(x: AnyTensor, *sizes: Sizes) -> AnyTensor:
    """The same elements in another shape; one size may be -1. Copies if it must."""
    target = sizes_of(sizes)
    if target and min(target) < -1:
        raise ShapeError(f"a size is >= 0, or -1 for the one to be found out, got {target}")
    return x.reshape(target)


@reshape.vjp("x")
def dx(grad, shape):
    return reshape(grad, shape)


@of_tensors
def view(x: AnyTensor, *sizes: Sizes) -> AnyTensor:
    """`reshape` without a copy; ShapeError if the memory order does not allow that."""
    result = reshape(x, *sizes)
    base = result._data.base
    if base is None or (base is not x._data and base is not x._data.base):
        raise ShapeError(
            f"view: the elements of this {x.shape} tensor do not lie in memory as "
            f"{result.shape} needs; use reshape, which copies"
        )
    return result


@of_tensors
def squeeze(x: AnyTensor, dim: Dims = None) -> AnyTensor:
    """This tensor without its dimensions of size 1, or without those in `dim`."""
    drop = range(x.ndim) if dim is None else dims_of(x, dim) or ()
    return reshape(x, [n for i, n in enumerate(x.shape) if not (i in drop and n == 1)])


@of_tensors
def unsqueeze(x: AnyTensor, dim: int) -> AnyTensor:
    """This tensor with a new dimension of size 1 at `dim`."""
    dim = one_dim(x, dim, more=1)
    return reshape(x, [*x.shape[:dim], 1, *x.shape[dim:]])


@of_tensors
def flatten(x: AnyTensor, start_dim: int = 0, end_dim: int = -1) -> AnyTensor:
    """The dimensions from `start_dim` to `end_dim` merged into one; x itself if they are one."""
    if not x.ndim:
        return reshape(x, 1)
    start, end = one_dim(x, start_dim), one_dim(x, end_dim)
    if start > end:
        raise ShapeError(f"flatten: start_dim {start} lies behind end_dim {end}")
    if start == end:
        return x
    merged = math.prod(x.shape[start : end + 1])
    return reshape(x, [*x.shape[:start], merged, *x.shape[end + 1 :]])


@op
def expand(x: AnyTensor, *sizes: Sizes) -> AnyTensor:
    """Broadcast to these sizes; -1 keeps a size. No memory is copied."""
    target = list(sizes_of(sizes))
    extra = len(target) - x.ndim
    for i, size in enumerate(target):
        if size == -1 and i >= extra:
            target[i] = x.shape[i - extra]
    return namespace(x).broadcast_to(x, target)


@expand.vjp("x")
def dx(grad):
    return grad  # `Plan.in_shape_of` sums it


@of_tensors
def expand_as(x: AnyTensor, other: TensorBase) -> AnyTensor:
    """Broadcast to the shape of `other`."""
    return expand(x, any_tensor(other, "other").shape)


@op
def sum_to(x: AnyTensor, shape: Sequence[int]) -> AnyTensor:
    """Undo a broadcast: sum over the dimensions that `shape` lacks or has as 1."""
    return sums.sum_to(x, sizes_of((shape,)))


@sum_to.vjp("x")
def dx(grad, shapes):
    return expand(grad, shapes[0])


# Another order of the dimensions, or of the elements


@op
def permute(x: AnyTensor, *dims: Sizes) -> AnyTensor:
    """The dimensions in another order: (B, N, D).permute(0, 2, 1) -> (B, D, N)."""
    return x.transpose(order_of(x, dims))


@permute.vjp("x")
def dx(grad, *dims):
    order = order_of(grad, dims)
    return permute(grad, sorted(range(len(order)), key=order.__getitem__))


def order_of(x: Any, dims: Sequence[Sizes]) -> tuple[int, ...]:
    """The dimensions of x in the order that `permute` is asked for."""
    order = tuple(one_dim(x, dim) for dim in sizes_of(dims))
    if sorted(order) != list(range(x.ndim)):
        raise ShapeError(f"permute takes each of {x.ndim} dimensions once, got {sizes_of(dims)}")
    return order


@op
def transpose(x: AnyTensor, dim0: int, dim1: int) -> AnyTensor:
    """This tensor with two dimensions exchanged."""
    first, second = one_dim(x, dim0), one_dim(x, dim1)
    return x.swapaxes(first, second) if x.ndim else x.reshape(())


@transpose.vjp("x")
def dx(grad, dim0, dim1):
    return transpose(grad, dim0, dim1)


swapaxes = transpose  # NumPy's name


@of_tensors
def t(x: AnyTensor) -> AnyTensor:
    """A matrix transposed; a vector stays as it is. ShapeError with three dimensions."""
    if x.ndim > 2:
        raise ShapeError(f"t() takes at most two dimensions, got {x.shape}: use mT")
    return x.T


@of_tensors
def roll(x: AnyTensor, shifts: int | Sequence[int], dims: Dims = None) -> AnyTensor:
    """Element i moves to i + shift along dims (or of all as one row), the last to the front."""
    if dims is None:
        return reshape(roll(reshape(x, -1), shifts, 0), x.shape)
    shifts = tuple(map(number_of, shifts if isinstance(shifts, (tuple, list)) else (shifts,)))
    dims = dims if isinstance(dims, (tuple, list)) else (dims,)
    if len(shifts) != len(dims) or not all(map(is_integer, shifts)):
        raise ValueError(f"roll takes an integer for each of {dims}, got {shifts}")
    for shift, dim in zip(shifts, dims, strict=True):
        x = roll_one(x, int(shift), one_dim(x, dim))
    return x


@op
def roll_one(x: AnyTensor, shift: int, dim: int) -> AnyTensor:
    """`roll` along one dimension."""
    return in_c_order(namespace(x).roll(x, shift, dim))


@roll_one.vjp("x")
def dx(grad, shift, dim):
    return roll_one(grad, -shift, dim)


# Copies, and tensors joined into one


@op
def transfer(x: AnyTensor, device: str) -> AnyTensor:
    """A copy on another device; the gradient is copied back."""
    return to_device(x, device)


@transfer.vjp("x")
def dx(grad, device):
    return transfer(grad, "cpu" if device == "cuda" else "cuda")


@of_tensors
def repeat(x: AnyTensor, *sizes: Sizes) -> AnyTensor:
    """Copies side by side, `sizes[i]` of them along dimension i; as NumPy's tile.

    >>> ta.tensor([1.0, 2.0]).repeat(2, 2)
    tensor([[1., 2., 1., 2.],
            [1., 2., 1., 2.]])
    """
    counts = sizes_of(sizes)
    extra = len(counts) - x.ndim
    if extra < 0 or min(counts, default=0) < 0:
        raise ShapeError(f"repeat takes a size >= 0 per dimension of {x.shape}, got {counts}")
    shape = (1,) * extra + x.shape
    # Before each dimension one more, of the copies: (N, M) as (1, N, 1, M), then (r, N, s, M).
    single = [m for n in shape for m in (1, n)]
    copies = [m for r, n in zip(counts, shape, strict=True) for m in (r, n)]
    target = [r * n for r, n in zip(counts, shape, strict=True)]
    return reshape(reshape(x, single).expand(copies).clone(), target)


@of_tensors
def repeat_interleave(x: AnyTensor, repeats: int | ArrayLike, dim: int | None = None) -> AnyTensor:
    """Each element `repeats` times, one copy after another, along `dim` or of all elements.

    repeats: an integer, or one for each element along `dim`.

    >>> ta.tensor([1.0, 2.0]).repeat_interleave(2)
    tensor([1., 1., 2., 2.])
    >>> ta.tensor([1.0, 2.0]).repeat_interleave([3, 1])
    tensor([1., 1., 1., 2.])
    """
    x = reshape(x, -1) if dim is None or not x.ndim else x
    dim = one_dim(x, dim or 0)
    before, (n, *after) = x.shape[:dim], x.shape[dim:]
    counts = to_device(array_like(repeats, "repeats"), "cpu")
    if counts.dtype.kind not in "iu" or counts.shape not in ((), (1,), (n,)) or (counts < 0).any():
        raise TypeError(f"repeats is one integer >= 0, or {n} along dim {dim}, got {repeats!r}")
    if counts.shape == (n,):
        return x[(*(slice(None),) * dim, np.repeat(np.arange(n), counts))]
    number = int(counts.item())
    x = unsqueeze(x, dim + 1).expand(*before, n, number, *after).clone()
    return reshape(x, [*before, n * number, *after])


def cat(tensors: Sequence[AnyTensor], dim: int = 0) -> AnyTensor:
    """Tensors joined along `dim`. An empty vector, `ta.tensor([])`, fits every shape.

    Raises ShapeError if they differ in another dimension.

    >>> ta.cat([ta.ones(2, 1), ta.zeros(2, 2)], dim=1).shape
    (2, 3)
    """
    tensors = checked_sequence("cat", tensors)
    first = next((x for x in tensors if x.shape != (0,)), tensors[0])
    dim = one_dim(first, dim)
    if first.ndim > 1:  # an empty vector, because programs begin with one in a loop
        none = (*first.shape[:dim], 0, *first.shape[dim + 1 :])
        tensors = [x.reshape(none) if x.shape == (0,) else x for x in tensors]
    return concatenate(*tensors, dim=dim)


@op
def concatenate(*xs: Any, dim: int) -> Any:
    """`cat` of arguments that are checked."""
    return promoted(in_c_order(namespace(xs[0]).concatenate(xs, axis=dim)), xs)


@concatenate.vjp("xs")
def dxs(grad, shapes, dim):
    return tuple(pieces(grad, [shape[dim] for shape in shapes], dim))


def pieces(x: Any, sizes: Sequence[int], dim: int) -> list[Any]:
    """x cut along `dim` into pieces of these sizes."""
    ends, before = [0, *accumulate(sizes)], (slice(None),) * dim
    return [x[(*before, slice(a, b))] for a, b in pairwise(ends)]


def stack(tensors: Sequence[AnyTensor], dim: int = 0) -> AnyTensor:
    """Tensors of one shape along a new dimension; ShapeError for several shapes.

    >>> ta.stack([ta.tensor([1, 2]), ta.tensor([3, 4])], dim=1).tolist()
    [[1, 3], [2, 4]]
    """
    shapes = [x.shape for x in checked_sequence("stack", tensors)]
    if len({*shapes}) > 1:
        raise ShapeError(f"stack takes tensors of one shape, got {shapes}")
    return cat([unsqueeze(x, dim) for x in tensors], dim)


def hstack(tensors: Sequence[AnyTensor]) -> AnyTensor:
    """Tensors joined side by side: vectors along their dimension, all others along dimension 1."""
    rows = [x if x.ndim else reshape(x, 1) for x in checked_sequence("hstack", tensors)]
    return cat(rows, min(rows[0].ndim - 1, 1))


def vstack(tensors: Sequence[AnyTensor]) -> AnyTensor:
    """Tensors joined one below another, along dimension 0; a vector is one row."""
    rows = checked_sequence("vstack", tensors)
    return cat([x if x.ndim > 1 else reshape(x, 1, -1) for x in rows])


def checked_sequence(name: str, tensors: Any) -> list[Any]:
    check_type(f"{name} takes a list or tuple of Tensors", tensors, (list, tuple))
    if not tensors or not all(isinstance(x, TensorBase) for x in tensors):
        raise TypeError(f"{name} takes one or more Tensors in a sequence")
    if len({x.device for x in tensors}) > 1:
        raise DeviceError(f"{name} takes tensors on one device, got {[x.device for x in tensors]}")
    return list(tensors)
