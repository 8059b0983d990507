"""The sixth part of Tensor: other shapes of the same elements, and parts of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Self, TypeVar

import numpy as np

from .. import ops
from ..base.checks import (
    as_array,
    cast_exactly,
    checked_index,
    dims_of,
    is_integer,
    one_dim,
    require_dims,
    sizes_of,
    split_sizes,
)
from ..engine.autograd import wrap
from ..engine.grad_mode import is_grad_enabled
from ..errors import DeviceError, ShapeError
from ..kernels.range_checks import index_for
from ..ops.shape import without_leading_ones
from .elementwise import Elementwise
from .in_place import changed, check_recordable, check_writable
from .types import Dims, Index, Operand, Sizes
from .values import Values, checked_tensor

AnyTensor = TypeVar("AnyTensor", bound=Elementwise)


def triangle(x: AnyTensor, diagonal: int, offset: int = 0) -> AnyTensor:
    """True on and below the diagonal, for the last two dimensions of x."""
    if not is_integer(diagonal):
        raise TypeError(f"diagonal must be an integer, got {diagonal!r}")
    if x.ndim < 2:
        raise ShapeError(f"a triangle needs at least two dimensions, got shape {x.shape}")
    rows, columns = x.shape[-2:]
    return wrap(np.tri(rows, columns, diagonal + offset, dtype=np.bool_)).to(x.device)


class Shapes(Elementwise):
    """Other shapes, other orders of dimensions, and parts: indices, pieces, triangles."""

    __slots__ = ()

    # Another shape

    def reshape(self, *shape: Sizes) -> Self:
        """The same elements in another shape; one size may be -1. Copies if it must."""
        sizes = sizes_of(shape)
        if min(sizes, default=0) < -1:
            raise ShapeError(f"a size is >= 0, or -1 for the one to be found out, got {sizes}")
        return ops.reshape(self, target=sizes)

    def view(self, *shape: Sizes) -> Self:
        """`reshape` without a copy; ShapeError if the memory order does not allow that."""
        result = self.reshape(*shape)
        base = result._data.base
        if base is None or (base is not self._data and base is not self._data.base):
            raise ShapeError(
                f"view: the elements of this {self.shape} tensor do not lie in memory as "
                f"{result.shape} needs; use reshape, which copies"
            )
        return result

    def contiguous(self) -> Self:
        """This tensor if its elements lie in memory one after another, else a copy that does."""
        return self if self._data.flags.c_contiguous else self.clone()

    def squeeze(self, dim: Dims = None) -> Self:
        """This tensor without its dimensions of size 1, or without those in `dim`."""
        drop = range(self.ndim) if dim is None else () if dim == () else dims_of(self, dim) or ()
        return self.reshape([n for i, n in enumerate(self.shape) if not (i in drop and n == 1)])

    def unsqueeze(self, dim: int) -> Self:
        """This tensor with a new dimension of size 1 at `dim`."""
        if isinstance(dim, bool) or not hasattr(dim, "__index__"):
            raise TypeError(f"a dimension is an integer, got {dim!r}")
        if not -self.ndim - 1 <= dim <= self.ndim:
            raise IndexError(f"unsqueeze: dim {dim} is out of range for {self.ndim} dimensions")
        dim = dim if dim >= 0 else dim + self.ndim + 1
        return self.reshape([*self.shape[:dim], 1, *self.shape[dim:]])

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """The dimensions from `start_dim` to `end_dim` merged into one."""
        if not self.ndim:
            return self.reshape(1)
        start, end = one_dim(self, start_dim), one_dim(self, end_dim)
        if start > end:
            raise ShapeError(f"flatten: start_dim {start} lies behind end_dim {end}")
        merged = math.prod(self.shape[start : end + 1])
        return self.reshape([*self.shape[:start], merged, *self.shape[end + 1 :]])

    def expand(self, *shape: Sizes) -> Self:
        """Broadcast to `shape`; -1 keeps a size. No memory is copied."""
        sizes = list(sizes_of(shape))
        extra = len(sizes) - self.ndim
        for i, size in enumerate(sizes):
            if size == -1 and i >= extra:
                sizes[i] = self.shape[i - extra]
        return ops.expand(self, target=tuple(sizes))

    def expand_as(self, other: Values) -> Self:
        """Broadcast to the shape of `other`."""
        return self.expand(checked_tensor(other, "expand_as").shape)

    def sum_to(self, shape: Sequence[int]) -> Self:
        """Undo a broadcast: sum over the dimensions that `shape` lacks or has as 1."""
        return ops.sum_to(self, target=sizes_of((shape,)))

    # Another order of the dimensions

    def permute(self, *dims: Sizes) -> Self:
        """The dimensions in another order: (B, N, D).permute(0, 2, 1) -> (B, D, N)."""
        order = sizes_of(dims)
        if sorted(one_dim(self, dim) for dim in order) != list(range(self.ndim)):
            raise ShapeError(f"permute takes each of {self.ndim} dimensions once, got {order}")
        return ops.permute(self, dims=tuple(one_dim(self, dim) for dim in order))

    def transpose(self, dim0: int, dim1: int) -> Self:
        """This tensor with two dimensions exchanged."""
        a, b = one_dim(self, dim0), one_dim(self, dim1)
        dims = list(range(self.ndim or 1))
        dims[a], dims[b] = dims[b], dims[a]
        return ops.permute(self, dims=tuple(dims[: self.ndim]))

    def swapaxes(self, dim0: int, dim1: int) -> Self:
        """The same as `transpose`, under NumPy's name."""
        return self.transpose(dim0, dim1)

    @property
    def T(self) -> Self:
        """All dimensions in reverse order."""
        return self.permute(*reversed(range(self.ndim)))

    @property
    def mT(self) -> Self:
        """This tensor with its last two dimensions exchanged: a matrix, or each of a stack."""
        return self.transpose(-1, -2)

    def t(self) -> Self:
        """A matrix transposed; a vector stays as it is. ShapeError with three dimensions."""
        if self.ndim > 2:
            raise ShapeError(f"t() takes at most two dimensions, got {self.shape}: use mT")
        return self.T

    # Elements by index

    def __getitem__(self, index: Index) -> Self:
        """Slices, integers, integer arrays, boolean masks, None and Ellipsis, as in NumPy.

        Differs from PyTorch: nested lists are one array of indices, not a tuple of several; uint8
        are indices and no mask.
        A row or a slice is a view. So random.shuffle(x) would lose rows of a matrix: write
        x[ta.randperm(len(x))].
        """
        return ops.getitem(self, index=checked_index(index))

    def __setitem__(self, index: Index, value: Operand) -> None:
        """Write into the tensor's memory; if that is recorded, into new memory, as `x += y` does.

        It is recorded if x or the value requires gradients. The old values of x at the index then
        have the gradient 0.
        Differs from PyTorch: views of x keep the old values, and x[i][j] = value is refused. Where
        an index occurs twice, only the value written last has a gradient.

            >>> rows, h = ta.zeros(2, 2), ta.tensor([1.0, 2.0], requires_grad=True)
            >>> rows[0] = h
            >>> rows[1] = 3 * rows[0]
            >>> rows.sum().backward()
            >>> h.grad
            tensor([4., 4.])

        A number or a list takes the dtype of this tensor. DtypeError for what integers or booleans
        cannot hold: 1.5, NaN, 300 in a byte. A float beyond the range of the dtype becomes inf.
        Raises InPlaceError for a leaf that requires gradients, unless under `ta.no_grad()`, and
        there for the result of a recorded op.
        """
        recorded = self.requires_grad or (isinstance(value, Shapes) and value.requires_grad)
        recorded = recorded and is_grad_enabled()
        (check_recordable if recorded else check_writable)(self)
        if isinstance(value, Values):
            if value.device != self.device:
                raise DeviceError(
                    f"the tensor is on {self.device}, what shall be written on {value.device}: "
                    "use .to(device)"
                )
            array = value._data
        else:
            array = as_array(value, self.dtype, self.device)
        index = checked_index(index)
        if recorded:
            written = value.to(self.dtype) if isinstance(value, Shapes) else array
            changed(self, partial(ops.setitem, index=index), written)
            return
        position = index_for(self._data, index)
        if array.dtype is not self.dtype:
            array = cast_exactly(array, self.dtype)
        version = self._version
        version.begin_change()
        try:
            self._data[position] = without_leading_ones(array)
        except (IndexError, ValueError) as error:
            version.changes -= 2  # no change: NumPy checks index and shape before it writes
            if isinstance(error, IndexError):
                raise
            raise ShapeError(f"cannot write into a tensor of shape {self.shape}: {error}") from None
        finally:
            version.end_change()

    def __iter__(self) -> Iterator[Self]:
        if not self.ndim:
            raise TypeError("a 0-d tensor cannot be iterated over")
        return (self[i] for i in range(len(self)))

    def gather(self, dim: int, index: Self) -> Self:
        """out[i][j][k] = self[index[i][j][k]][j][k] for dim 0, and so on for other dims."""
        if not self.ndim:
            return self.reshape(1).gather(dim, index.reshape(-1)).reshape(index.shape)
        return ops.gather(self, index, dim=one_dim(self, dim))

    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """The elements [i, i + offset] of two dimensions, as the last dimension of the result.

        Differs from PyTorch: they are copied.
        """
        a, b = one_dim(self, dim1), one_dim(self, dim2)
        rest = [i for i in range(self.ndim) if i not in (a, b)]
        first = np.arange(max(-offset, 0), max(min(self.shape[a], self.shape[b] - offset), 0))
        return self.permute(*rest, a, b)[..., first, first + offset]

    def triu(self, diagonal: int = 0) -> Self:
        """Matrices (..., N, M) with everything below the diagonal set to 0."""
        return self.masked_fill(triangle(self, diagonal, -1), 0)

    def tril(self, diagonal: int = 0) -> Self:
        """Matrices (..., N, M) with everything above the diagonal set to 0."""
        return self.masked_fill(~triangle(self, diagonal), 0)

    # Pieces, copies side by side, and other orders of the elements

    def split(self, sizes: int | Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """Pieces along `dim`, all of one size (the last may be smaller), or of the given sizes."""
        dim = one_dim(require_dims(self, "split"), dim)
        sizes = split_sizes(self.shape[dim], sizes, dim)
        ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
        before = (slice(None),) * dim
        return tuple(
            self[(*before, slice(end - size, end))] for size, end in zip(sizes, ends, strict=True)
        )

    def chunk(self, chunks: int, dim: int = 0) -> tuple[Self, ...]:
        """At most `chunks` pieces of equal size along `dim`."""
        if not is_integer(chunks) or chunks <= 0:
            raise ValueError(f"chunk takes a number of pieces > 0, got {chunks!r}")
        total = require_dims(self, "chunk").shape[one_dim(self, dim)]
        return self.split(-(-total // chunks) if total else [0] * chunks, dim)

    def unbind(self, dim: int = 0) -> tuple[Self, ...]:
        """The slices along `dim`, without it."""
        before = (slice(None),) * one_dim(require_dims(self, "unbind"), dim)
        return tuple(self[(*before, i)] for i in range(len(self.transpose(0, dim))))

    def repeat(self, *sizes: Sizes) -> Self:
        """Copies side by side, `sizes[i]` of them along dimension i; as NumPy's tile.

        >>> ta.tensor([1.0, 2.0]).repeat(2, 2)
        tensor([[1., 2., 1., 2.],
                [1., 2., 1., 2.]])
        """
        counts = sizes_of(sizes)
        extra = len(counts) - self.ndim
        if extra < 0 or min(counts, default=0) < 0:
            raise ShapeError(
                f"repeat takes a size >= 0 per dimension of {self.shape}, got {counts}"
            )
        shape = (1,) * extra + self.shape
        single = [m for n in shape for m in (1, n)]
        copies = [m for r, n in zip(counts, shape, strict=True) for m in (r, n)]
        target = [r * n for r, n in zip(counts, shape, strict=True)]
        return self.reshape(single).expand(copies).clone().reshape(target)

    def repeat_interleave(self, repeats: int, dim: int | None = None) -> Self:
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
        x = x.unsqueeze(dim + 1).expand(*before, n, repeats, *after).clone()
        return x.reshape(*before, n * repeats, *after)

    def roll(self, shifts: int | Sequence[int], dims: Dims = None) -> Self:
        """Element i moves to i + shift along dims (or of all as one row), the last to the front."""
        if dims is None:
            return self.reshape(-1).roll(shifts, 0).reshape(self.shape)
        shifts = shifts if isinstance(shifts, (tuple, list)) else (shifts,)
        dims = dims if isinstance(dims, (tuple, list)) else (dims,)
        if len(shifts) != len(dims) or not all(map(is_integer, shifts)):
            raise ValueError(f"roll takes an integer for each of {dims}, got {shifts}")
        x = self
        for shift, dim in zip(shifts, dims, strict=True):
            x = ops.roll(x, shift=int(shift), dim=one_dim(x, dim))
        return x

    def flip(self, *sizes: Sizes, dims: Dims = ()) -> Self:
        """The elements along these dimensions in reverse order: x.flip(0, 1), x.flip(dims=0).

        Differs from PyTorch: without dimensions nothing is flipped, and the result is a view.
        """
        flipped = dims_of(self, sizes_of(sizes) or dims) or ()
        order = [slice(None, None, -1 if i in flipped else 1) for i in range(self.ndim)]
        return self[tuple(order)]
