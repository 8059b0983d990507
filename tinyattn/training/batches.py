"""Batches of samples. Data sets, workers and samplers are the business of other libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .. import functional as F
from ..base import random
from ..base.checks import check_size
from ..errors import ShapeError
from ..tensors.create import cat, stack
from ..tensors.tensor import Tensor


def pad_sequence(
    sequences: Sequence[Tensor], batch_first: bool = False, padding_value: float = 0
) -> Tensor:
    """Tensors (L_i, ...) as one, with `padding_value` after each.

    The result is (L, B, ...) as in PyTorch, or with batch_first=True (B, L, ...), as attention
    takes it.

    >>> from tinyattn.training import pad_sequence
    >>> pad_sequence([ta.tensor([5, 7, 2]), ta.tensor([4])], batch_first=True).tolist()
    [[5, 7, 2], [4, 0, 0]]
    """
    tensors = [x if isinstance(x, Tensor) else Tensor(x) for x in sequences]
    shapes = [x.shape for x in tensors]
    if not tensors or any(len(s) < 1 or s[1:] != shapes[0][1:] for s in shapes):
        raise ShapeError(
            f"pad_sequence takes one or more sequences (L, ...) that differ in L only, got {shapes}"
        )
    # All rows one after another, and one row of padding as the last, which many places take.
    lengths = np.array([len(x) for x in tensors])
    one = (0, 0) * (tensors[0].ndim - 1) + (0, 1)
    rows = F.pad(cat(tensors), one, value=padding_value)
    steps = np.arange(lengths.max())
    starts = np.cumsum(lengths) - lengths
    places = np.where(steps < lengths[:, None], starts[:, None] + steps, lengths.sum())
    return rows[places if batch_first else places.T]


def collate(samples: Sequence[Any]) -> Any:
    """A batch of samples: one Tensor, or of samples that are tuples a tuple of Tensors."""
    if isinstance(samples[0], tuple):
        return tuple(collate(column) for column in zip(*samples, strict=True))
    if isinstance(samples[0], Tensor):
        return stack(list(samples))
    return Tensor(list(samples))


class DataLoader:
    """Goes through `data` in batches; with `shuffle` in a new order each time, from ta's generator.

    data: a tuple of Tensors or arrays, whose rows belong together (it takes the place of PyTorch's
        TensorDataset), or a sequence of samples, of which `collate_fn` makes a batch.
    drop_last: leave out the last batch if it is smaller.

        >>> from tinyattn.training import DataLoader
        >>> for x, y in DataLoader((ta.arange(3), ta.arange(3) * 10), batch_size=2):
        ...     print(x, y)
        tensor([0, 1]) tensor([ 0, 10])
        tensor([2]) tensor([20])
    """

    def __init__(
        self,
        data: Any,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        collate_fn: Callable[[Sequence[Any]], Any] = collate,
    ) -> None:
        self.batch_size = check_size("batch_size", batch_size)
        self.shuffle, self.drop_last, self.collate_fn = shuffle, drop_last, collate_fn
        if isinstance(data, tuple):
            data = tuple(x if isinstance(x, Tensor) else Tensor(x) for x in data)
        lengths = {len(x) for x in data} if isinstance(data, tuple) else {len(data)}
        if len(lengths) != 1:
            raise ShapeError(f"data are columns of one length, got lengths {sorted(lengths)}")
        self.data, self.length = data, lengths.pop()

    def __len__(self) -> int:
        """The number of batches."""
        return (self.length + (0 if self.drop_last else self.batch_size - 1)) // self.batch_size

    def __iter__(self) -> Iterator[Any]:
        order = np.arange(self.length)
        if self.shuffle:
            order = random.generator().permutation(self.length)
        for i in range(len(self)):
            rows = order[i * self.batch_size : (i + 1) * self.batch_size]
            if isinstance(self.data, tuple):
                yield tuple(x[rows] for x in self.data)
            else:
                yield self.collate_fn([self.data[i] for i in rows.tolist()])
