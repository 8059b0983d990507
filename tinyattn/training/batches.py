"""Batches of samples. Data sets, workers and samplers are the business of other libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from mmap import mmap
from typing import Any, Generic, TypeVar, overload

import numpy as np

from .. import functional as F
from ..base import random
from ..base.checks import check_size, check_type, listed, type_name
from ..errors import ShapeError
from ..ops.shapes import cat, stack
from ..tensors.tensor import Tensor

Batch = TypeVar("Batch")


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
    tensors = [x if isinstance(x, Tensor) else Tensor(x) for x in listed("pad_sequence", sequences)]
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


HINT = "give DataLoader a collate_fn that makes a batch of them; it may call pad_sequence"


def collate(samples: Sequence[Any], like_pytorch: bool = False) -> Any:
    """A batch of samples: one Tensor of Tensors, arrays or numbers, a list of texts.

    Samples that are tuples, lists or dicts give one of these, with a batch of each field.
    like_pytorch: tuples give a list, texts stay in what they are in, and floats are float64.
    """
    kinds = [kind_of(sample) for sample in samples]
    for i, kind in enumerate(kinds):
        if kind != kinds[0]:
            raise ShapeError(f"sample 0 of a batch is {kinds[0]}, and sample {i} is {kind}: {HINT}")
    first = samples[0]
    if isinstance(first, (str, bytes)):
        return samples if like_pytorch else list(samples)
    if isinstance(first, Mapping):
        return {key: collate([s[key] for s in samples], like_pytorch) for key in first}
    if isinstance(first, (tuple, list)):
        fields = [collate(field, like_pytorch) for field in zip(*samples, strict=True)]
        form = list if like_pytorch else type(first)
        return type(first)(*fields) if hasattr(first, "_fields") else form(fields)
    dtype = np.float64 if like_pytorch and isinstance(first, float) else None
    return stack(list(samples)) if isinstance(first, Tensor) else Tensor(list(samples), dtype)


def kind_of(sample: Any) -> str:
    """What all samples of a batch must have alike."""
    if isinstance(sample, Mapping):
        return f"a dict with the keys {sorted(map(repr, sample))}"
    if isinstance(sample, (tuple, list)):
        return f"a {type(sample).__name__} of {len(sample)} fields"
    if isinstance(sample, (str, bytes)):
        return "a text"
    if isinstance(sample, (Tensor, np.ndarray)):
        return f"{'a Tensor' if isinstance(sample, Tensor) else 'an array'} of shape {sample.shape}"
    if isinstance(sample, (bool, int, float, np.generic)):
        return "a number"
    raise TypeError(f"samples of type {type(sample).__name__} are not made a batch: {HINT}")


def check_samples(data: Any) -> None:
    """TypeError for what has no samples with numbers."""
    has_rows = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    # {0: a, 1: b} has samples.
    if not has_rows or isinstance(data, type) or (isinstance(data, Mapping) and 0 not in data):
        raise TypeError(
            f"data are samples with len() and integer indices, got {type_name(data)}: pass "
            "list(data) of a generator; a dict of columns is tuple(data.values()), or in "
            "torch_names TensorDataset(*data.values())"
        )


def columns_of(data: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """Tensors of one length."""
    columns = tuple(x if isinstance(x, Tensor) else Tensor(x) for x in data)
    lengths = {len(column) if column.ndim else None for column in columns}
    if len(lengths) != 1 or None in lengths:
        shapes = [column.shape for column in columns]
        raise ShapeError(
            f"data in a tuple are columns of one length, got {shapes}: pass samples as a list"
        )
    return columns


class DataLoader(Generic[Batch]):
    """Goes through `data` in batches; with `shuffle` in a new order each time, from ta's generator.

    data: a tuple of Tensors or arrays, whose rows belong together (it takes the place of PyTorch's
        TensorDataset), or samples: an object with len() and integer indices.
    drop_last: leave out the last batch if it is smaller.
    collate_fn: makes a batch of a list of samples. Without it, Tensors, arrays and numbers become
        one Tensor, and texts a list. Tuples, lists and dicts keep their form, with a batch of each
        field.

    Raises TypeError if data are neither, as a generator, ShapeError if columns differ in length.
    A batch of samples of other shapes or kinds needs a collate_fn: ShapeError or TypeError.
    Differs from PyTorch: numbers have the dtype that `ta.tensor` gives them, float32, and a batch
    of tuples is a tuple.

        >>> from tinyattn.training import DataLoader
        >>> for x, y in DataLoader((ta.arange(3), ta.arange(3) * 10), batch_size=2):
        ...     print(x, y)
        tensor([0, 1]) tensor([ 0, 10])
        tensor([2]) tensor([20])
    """

    @overload
    def __init__(
        self: DataLoader[tuple[Tensor, ...]],
        data: tuple[Any, ...],
        batch_size: int = ...,
        shuffle: bool = ...,
        drop_last: bool = ...,
    ) -> None: ...
    @overload
    def __init__(
        self,
        data: Any,
        batch_size: int = ...,
        shuffle: bool = ...,
        drop_last: bool = ...,
        *,
        collate_fn: Callable[[list[Any]], Batch],
    ) -> None: ...
    @overload
    def __init__(
        self: DataLoader[Any],
        data: Any,
        batch_size: int = ...,
        shuffle: bool = ...,
        drop_last: bool = ...,
        collate_fn: None = ...,
    ) -> None: ...
    def __init__(
        self,
        data: Any,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        collate_fn: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        self.batch_size = check_size("batch_size", batch_size)
        check_type("collate_fn must be a function", collate_fn, Callable | None)
        self.shuffle, self.drop_last, self.collate_fn = shuffle, drop_last, collate_fn
        check_samples(data)
        self.data = columns_of(data) if isinstance(data, tuple) else data
        self.length()

    def length(self) -> int:
        """The number of samples."""
        return len(self.data[0] if isinstance(self.data, tuple) else self.data)

    def __len__(self) -> int:
        """The number of batches."""
        more = 0 if self.drop_last else self.batch_size - 1
        return (self.length() + more) // self.batch_size

    def __iter__(self) -> Iterator[Batch]:
        length, collate_fn = self.length(), self.collate_fn
        order = random.generator().permutation(length) if self.shuffle else np.arange(length)
        for i in range(len(self)):
            rows = order[i * self.batch_size : (i + 1) * self.batch_size]
            if not isinstance(self.data, tuple):
                yield (collate_fn or collate)([self.data[i] for i in rows.tolist()])
            elif collate_fn is None:
                columns: Any = tuple(column[rows] for column in self.data)
                yield columns
            else:
                yield collate_fn([tuple(x[i] for x in self.data) for i in rows.tolist()])


class Windows:
    """Batches for a language model: windows of a long row of ids, anywhere in it.

        ids, targets = windows[step]   # (batch_size, length) each; targets are the ids one later

    A batch depends on `seed` and `step` alone, so a training that goes on gets what it would have
    got. `windows.at(starts)` gives those that begin at places of your choice. ids (L,): an array of
    integers. A np.memmap is opened anew for each batch, because else all pages that were read once
    count as memory of this process.
    Raises ShapeError if the ids are too few for one window and its last target.

        >>> from tinyattn.training import Windows
        >>> ids, targets = Windows(np.arange(100), length=5, batch_size=2)[7]
        >>> ids.shape, bool((targets == ids + 1).all())
        ((2, 5), True)
    """

    def __init__(self, ids: np.ndarray, length: int, batch_size: int, seed: int = 0) -> None:
        check_type("ids must be an array", ids, np.ndarray)
        self.length = check_size("length", length)
        self.batch_size = check_size("batch_size", batch_size)
        if ids.ndim != 1 or ids.dtype.kind not in "iu" or len(ids) <= length:
            raise ShapeError(
                f"windows of {length} ids and their targets need a row of more than {length} "
                f"integers, got {ids.dtype} of shape {ids.shape}"
            )
        self.ids, self.seed = ids, seed

    def __getitem__(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng([self.seed, step])
        return self.at(rng.integers(0, len(self.ids) - self.length, self.batch_size))

    def at(self, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The windows that begin at these places (B,), and their targets.

        Raises IndexError for a place below 0, or with too few ids after it.
        """
        ids, most = self.ids, len(self.ids) - self.length - 1
        if any(not 0 <= start <= most for start in starts):
            raise IndexError(f"a window begins at 0 to {most}, got {starts}")
        if isinstance(ids, np.memmap) and isinstance(ids.base, mmap):  # and no part of another
            ids = np.memmap(str(ids.filename), ids.dtype, "r", ids.offset, ids.shape)
        rows = np.asarray(ids[np.asarray(starts)[:, None] + np.arange(self.length + 1)], np.int64)
        return rows[:, :-1], rows[:, 1:]
