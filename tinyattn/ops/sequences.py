"""Sequences of different lengths: padded, packed, and their means."""

from __future__ import annotations

from collections.abc import Sequence

from ..base.backend import namespace, to_device
from ..base.checks import as_array, check_size, check_type, is_integer, number_of
from ..engine.autograd import AnyTensor, array_of, wrap
from ..engine.op import op
from ..errors import ShapeError
from ..kernels.packing import pack_rows, pad_rows
from .arguments import ArrayLike, any_tensor, at_least_float32, float_tensor
from .arithmetic import where
from .indexing import setitem
from .visibility import packed_lens, sample_lens, visibility_of


def sequence_mask(x: AnyTensor, valid_lens: ArrayLike, value: float = 0) -> AnyTensor:
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
    lens = sample_lens(valid_lens, *x.shape[:2])
    visible = wrap(namespace(lens).arange(x.shape[1]) < lens[:, None])
    visible = visible.to(x.device).reshape(*visible.shape, *(1,) * (x.ndim - 2))
    return where(visible, x, value)


def masked_mean(
    x: AnyTensor, valid_lens: ArrayLike | None = None, mask: ArrayLike | None = None
) -> AnyTensor:
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
    visible = visibility_of(shape, valid_lens, mask, device=x.device).visible_pairs(x)
    if visible is None:
        return x.mean(1) if x.shape[1] else x.sum(1)
    keep = wrap(namespace(visible).broadcast_to(visible, shape)[:, 0, 0])  # (B, N)
    count = keep.sum(1).clamp(min=1).reshape(len(x), *(1,) * (x.ndim - 2))
    kept = where(keep.reshape(*keep.shape, *(1,) * (x.ndim - 2)), at_least_float32(x), 0)
    return (kept.sum(1) / count).to(x.dtype)


def pack_padded_sequence(x: AnyTensor, valid_lens: ArrayLike) -> AnyTensor:
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
    lengths = sample_lens(valid_lens, *x.shape[:2])
    return pack(x, tuple(to_device(lengths, "cpu").tolist()))


def pad_packed_sequence(
    x: AnyTensor, valid_lens: ArrayLike, length: int | None = None
) -> AnyTensor:
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
    lengths = packed_lens(valid_lens, len(x))
    longest = max(lengths, default=0)
    length = longest if length is None else check_size("length", length, 0)
    if length < longest:
        raise ShapeError(f"length {length} is less than the longest sequence, {longest}")
    return unpack(x, lengths, length)


@op
def pack(x: AnyTensor, lengths: tuple[int, ...]) -> AnyTensor:
    """The first lengths[b] rows of each sample, one after another: (B, L, ...) -> (R, ...)."""
    return pack_rows(x, lengths)


@pack.vjp("x")
def dx(grad, shape, lengths):
    return unpack(grad, lengths, shape[1])


@op
def unpack(x: AnyTensor, lengths: tuple[int, ...], length: int) -> AnyTensor:
    """(R, ...) -> (B, length, ...), with zeros after the end of each sample."""
    return pad_rows(x, lengths, length)


@unpack.vjp("x")
def dx(grad, lengths):
    return pack(grad, lengths)


def pad(
    x: AnyTensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> AnyTensor:
    """`x` with `value` around it, by default 0.

    pad: how many elements before and after the last dimension, then the one before it, and so on.
        A negative number takes elements away.
    Raises ShapeError for an odd number of sizes, for more than x has dimensions or elements, and
    for another mode.
    Differs from PyTorch: "constant" is the only mode.

    >>> F.pad(ta.tensor([[1, 2]]), (0, 1, 1, 0), value=7).tolist()
    [[7, 7, 7], [1, 2, 7]]
    """
    x = any_tensor(x, "x")
    check_type("pad is a tuple such as (1, 1), before and after", pad, (tuple, list))
    around = [*map(number_of, pad), *[0] * (2 * x.ndim - len(pad))]
    is_right = mode == "constant" and len(pad) % 2 == 0 and len(around) == 2 * x.ndim
    if not is_right or not all(map(is_integer, around)):
        raise ShapeError(
            f'pad takes two integers for each of up to {x.ndim} dimensions, and mode "constant", '
            f"got {pad} and {mode!r} for x {x.shape}"
        )
    shape, kept, places = [], [], []
    for before, after, n in zip(around[-2::-2], around[::-2], x.shape, strict=True):
        first, last = max(-before, 0), n - max(-after, 0)  # of the elements that stay
        if first > last:
            raise ShapeError(f"pad takes {first} and {n - last} of {n} elements away, x {x.shape}")
        kept.append(slice(first, last))
        places.append(slice(max(before, 0), max(before, 0) + last - first))
        shape.append(n + before + after)
    number = as_array(array_of(0 if value is None else value), x.dtype, x.device)
    filled = wrap(namespace(number).broadcast_to(number, shape).copy())
    return setitem(filled, x[tuple(kept)], tuple(places))
