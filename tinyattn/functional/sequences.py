"""Sequences of different lengths: padded, packed, and their means."""

from __future__ import annotations

import numpy as np

from .. import masks, ops
from ..base.backend import namespace
from ..base.checks import (
    check_size,
)
from ..engine.autograd import wrap
from ..errors import ShapeError
from ..tensors.arguments import (
    ArrayLike,
    any_tensor,
    float_tensor,
)
from ..tensors.tensor import Tensor


def sequence_mask(x: Tensor, valid_lens: ArrayLike, value: float = 0) -> Tensor:
    """`x` (B, L, ...) with `value` at every position from valid_lens[b] on.

    valid_lens: (B,), one length for each sample, from 0 to L.
    Returns a new tensor. (The d2l book's version changes `x`.)
    Raises ShapeError if valid_lens is not (B,), and MaskError for a length out of range.

    >>> F.sequence_mask(ta.tensor([[1, 2, 3], [4, 5, 6]]), valid_lens=[1, 2], value=-1)
    tensor([[ 1, -1, -1],
            [ 4,  5, -1]])
    """
    if any_tensor(x, "x").ndim < 2:
        raise ShapeError(f"sequence_mask takes (B, L, ...), got shape {x.shape}")
    visible = masks.from_valid_lens(valid_lens, x.shape[1])
    if visible.shape != x.shape[:2]:
        raise ShapeError(
            f"sequence_mask takes a length for each of the {x.shape[0]} samples, valid_lens (B,), "
            f"got shape {visible.shape[:-1]}"
        )
    visible = visible.to(x.device).reshape(*visible.shape, *(1,) * (x.ndim - 2))
    return ops.where(visible, x, value)


def masked_mean(
    x: Tensor, valid_lens: ArrayLike | None = None, mask: ArrayLike | None = None
) -> Tensor:
    """The mean over the visible positions of each sample: x (B, N, ...) -> (B, ...).

    valid_lens (B,), a mask (B, N), or both; neither for all positions. The mean of none is 0. What
    stands in an invisible position has no influence, even if it is NaN.
    Raises ShapeError or MaskError if valid_lens or mask do not fit x.

        >>> F.masked_mean(ta.tensor([[[1.0], [3.0], [8.0]]]), valid_lens=[2])
        tensor([[2.]])
    """
    if float_tensor(x, "x").ndim < 2:
        raise ShapeError(f"masked_mean takes (B, N, ...), got shape {x.shape}")
    shape = (len(x), 1, 1, x.shape[1])  # of scores (B, H, Q, K) with one query
    visible = masks.visibility(shape, valid_lens, mask, device=x.device).visible_pairs(x)
    if visible is None:
        return x.mean(1) if x.shape[1] else x.sum(1)
    keep = wrap(namespace(visible).broadcast_to(visible, shape)[:, 0, 0])  # (B, N)
    count = keep.sum(1).clamp(min=1).reshape(len(x), *(1,) * (x.ndim - 2))
    summands = x.float() if x.dtype == np.float16 else x  # because a sum may overflow in float16
    kept = ops.where(keep.reshape(*keep.shape, *(1,) * (x.ndim - 2)), summands, 0)
    return (kept.sum(1) / count).to(x.dtype)


def pack_padded_sequence(x: Tensor, valid_lens: ArrayLike) -> Tensor:
    """The first valid_lens[b] rows of each sample, one after another: x (B, L, ...) -> (N, ...).

    N is the sum of valid_lens (B,). Linear, LayerNorm and feed-forward networks compute each row
    alone, so on packed rows they give the same and do not compute padding. Multi-head attention
    takes packed rows together with valid_lens. `pad_packed_sequence` undoes this function.

    Raises ShapeError if valid_lens is not (B,), and MaskError for a length out of range.
    Differs from PyTorch's function of this name: that one returns an object in which the rows of
    all samples alternate, for recurrent networks.

    >>> x = ta.tensor([[1, 2, 0], [3, 0, 0]])
    >>> F.pack_padded_sequence(x, valid_lens=[2, 1])
    tensor([1, 2, 3])
    """
    if any_tensor(x, "x").ndim < 2:
        raise ShapeError(f"pack_padded_sequence takes (B, L, ...), got shape {x.shape}")
    return ops.pack(x, lengths=masks.sample_lens(valid_lens, *x.shape[:2]))


def pad_packed_sequence(x: Tensor, valid_lens: ArrayLike, length: int | None = None) -> Tensor:
    """Undo `pack_padded_sequence`: x (N, ...) -> (B, length, ...), with zeros after each sample.

    length: the longest of valid_lens by default; PyTorch calls it `total_length`.
    Raises ShapeError if the sum of valid_lens is not N, or if `length` is too short.
    Differs from PyTorch's function of this name: that one takes the object of PyTorch's
    `pack_padded_sequence`, and returns the lengths too.

    >>> F.pad_packed_sequence(ta.tensor([1, 2, 3]), valid_lens=[2, 1])
    tensor([[1, 2],
            [3, 0]])
    """
    if not any_tensor(x, "x").ndim:
        raise ShapeError("pad_packed_sequence takes (N, ...), got a tensor without dimensions")
    lengths = masks.packed_lens(valid_lens, len(x))
    longest = max(lengths, default=0)
    length = longest if length is None else check_size("length", length, 0)
    if length < longest:
        raise ShapeError(f"length {length} is less than the longest sequence, {longest}")
    return ops.unpack(x, lengths=lengths, length=length)
