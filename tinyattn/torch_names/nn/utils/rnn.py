"""PyTorch's `nn.utils.rnn`: sequences of different lengths for recurrent layers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ....errors import ShapeError
from ....ops.arguments import ArrayLike
from ....tensors.create import as_tensor
from ....tensors.tensor import Tensor
from ....training.batches import pad_sequence
from .. import functional as F

__all__ = ["PackedSequence", "pack_padded_sequence", "pad_packed_sequence", "pad_sequence"]


class PackedSequence(NamedTuple):
    """The rows of all samples: the first of each sample, then the second of each, and so on.

    The samples stand in the order of their lengths, the longest first.
    """

    data: Tensor  # (rows, ...)
    batch_sizes: Tensor  # (L,): how many samples have a row at each position
    sorted_indices: Tensor | None = None  # the samples in this order; None if it is their own
    unsorted_indices: Tensor | None = None


def pack_padded_sequence(
    input: Tensor, lengths: ArrayLike, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Samples (L, B, ...), or with batch_first (B, L, ...), without what follows their lengths.

    enforce_sorted: the lengths must fall. Without it they are sorted here.
    Raises ShapeError for lengths that do not fit.

    >>> import tinyattn.torch_names.nn as nn
    >>> x = ta.tensor([[1, 2, 3], [4, 5, 0]])
    >>> nn.utils.rnn.pack_padded_sequence(x, [3, 2], batch_first=True).data
    tensor([1, 4, 2, 5, 3])
    """
    x, lens = (input.transpose(0, 1) if batch_first else input), np.asarray(lengths)
    if lens.shape != x.shape[1:2] or not lens.size or lens.min() < 1 or lens.max() > len(x):
        raise ShapeError(
            f"lengths are one for each of {x.shape[1]} samples, from 1 to {len(x)}, got {lengths}"
        )
    order = np.argsort(-lens, kind="stable")
    if enforce_sorted and (lens[order] != lens).any():
        raise ShapeError(f"lengths must fall, or pass enforce_sorted=False, got {lengths}")
    exists = np.arange(lens.max())[:, None] < lens[order]  # (L, B)
    positions, samples = exists.nonzero()
    data = x[positions, order[samples]]
    if enforce_sorted:
        return PackedSequence(data, as_tensor(exists.sum(1)))
    orders = (as_tensor(order), as_tensor(np.argsort(order)))
    return PackedSequence(data, as_tensor(exists.sum(1)), *orders)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Undo `pack_padded_sequence`: the samples with `padding_value` after each, and the lengths."""
    data, sizes = sequence.data, sequence.batch_sizes.numpy()
    length = len(sizes) if total_length is None else total_length
    if length < len(sizes):
        raise ShapeError(f"total_length {length} is less than the longest sample, {len(sizes)}")
    exists = np.zeros((length, sizes[0]), bool)
    exists[: len(sizes)] = np.arange(sizes[0]) < sizes[:, None]
    places = np.where(exists, exists.cumsum().reshape(exists.shape) - 1, len(data))
    if sequence.unsorted_indices is not None:
        order = sequence.unsorted_indices.numpy()
        places, exists = places[:, order], exists[:, order]
    # One row of padding as the last, which many places take.
    rows = F.pad(data, (0, 0) * (data.ndim - 1) + (0, 1), value=padding_value)
    return rows[places.T if batch_first else places], as_tensor(exists.sum(0))
