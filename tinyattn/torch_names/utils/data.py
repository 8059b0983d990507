"""PyTorch's `torch.utils.data`: data sets, samplers and DataLoader.

What PyTorch has in torch.utils.data.dataset, .dataloader and .sampler is found there too.
A generator is a torch.Generator; without one the numbers are those of `torch.manual_seed`.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from itertools import accumulate, islice
from typing import Any, Generic, TypeVar

from ...base import random
from ...base.checks import check_size, check_type
from ...errors import ShapeError
from ...ops.arguments import any_tensor
from ...tensors.tensor import Tensor
from ...training import batches

for name in ("dataloader", "dataset", "sampler"):
    sys.modules[f"{__name__}.{name}"] = globals()[name] = sys.modules[__name__]
T = TypeVar("T")
# About the processes that load samples, of which there are none.
OF_WORKERS = {"num_workers", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context"}
OF_WORKERS |= {"prefetch_factor", "persistent_workers", "pin_memory_device", "in_order"}


def numbers_of(generator: Any) -> Any:
    return random.generator() if generator is None else generator.numbers


class Sampler(Generic[T]):
    """Indices of samples, or lists of them: a subclass defines `__iter__`."""


class SequentialSampler(Sampler[int]):
    """0, 1, ... up to the number of samples."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __len__(self) -> int:
        return len(self.data_source)

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))


class RandomSampler(SequentialSampler):
    """The samples in random order, or `num_samples` of them: in one order after another, or with
    replacement each drawn from all samples.

    >>> from tinyattn.torch_names.utils.data import RandomSampler
    >>> sorted(RandomSampler("abc"))
    [0, 1, 2]
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Any = None,
    ) -> None:
        self.data_source, self.replacement = data_source, replacement
        self.num_samples, self.generator = num_samples, generator

    def __len__(self) -> int:
        return self.num_samples or len(self.data_source)

    def __iter__(self) -> Iterator[int]:
        numbers, n = numbers_of(self.generator), len(self.data_source)
        for start in range(0, len(self), max(n, 1)):
            rows = numbers.integers(n, size=n) if self.replacement else numbers.permutation(n)
            yield from rows[: len(self) - start].tolist()


class BatchSampler(Sampler[list[int]]):
    """Lists of `batch_size` of the sampler's indices; the last one may be shorter."""

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        self.sampler, self.drop_last = sampler, drop_last
        self.batch_size = check_size("batch_size", batch_size)

    def __len__(self) -> int:
        more = 0 if self.drop_last else self.batch_size - 1
        return (len(self.sampler) + more) // self.batch_size  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch


class Dataset(Generic[T]):
    """Samples: a subclass defines `__getitem__` of an integer and `__len__`."""

    def __add__(self, other: Any) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T]):
    """Samples that come one after another: a subclass defines `__iter__`."""


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Sample i is row i of each Tensor.

    >>> from tinyattn.torch_names.utils.data import TensorDataset
    >>> TensorDataset(ta.arange(3), ta.eye(3))[1]
    (tensor(1), tensor([0., 1., 0.]))
    """

    def __init__(self, *tensors: Tensor) -> None:
        shapes = [any_tensor(x, "each argument of a TensorDataset").shape for x in tensors]
        if len({shape[:1] for shape in shapes}) != 1 or () in shapes:
            raise ShapeError(f"data are Tensors of one length, got {shapes}")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return len(self.tensors[0])


class ConcatDataset(Dataset[Any]):
    """The samples of several data sets, one set after another."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        self.cumulative_sizes = list(accumulate(map(len, self.datasets)))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> Any:
        index = range(len(self))[index]  # an index from the end, and the error for one beyond it
        place = bisect_right(self.cumulative_sizes, index)
        return self.datasets[place][index - [0, *self.cumulative_sizes][place]]


class Subset(Dataset[Any]):
    """The samples of a data set that have these indices."""

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: Any) -> Any:
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(dataset: Any, lengths: Sequence[float], generator: Any = None) -> list[Subset]:
    """Subsets of these lengths, or of these parts of the samples, with random samples each.

    >>> from tinyattn.torch_names.utils.data import random_split
    >>> [len(part) for part in random_split(range(11), [0.8, 0.2])]
    [9, 2]
    """
    n, sizes = len(dataset), list(lengths)
    if math.isclose(sum(sizes), 1) and sum(sizes) <= 1:
        sizes = [math.floor(n * part) for part in sizes]
        for i in range(n - int(sum(sizes))):
            sizes[i % len(sizes)] += 1
    if sum(sizes) != n:
        raise ValueError(f"lengths must add up to the {n} samples, got {sizes}")
    order, ends = numbers_of(generator).permutation(n).tolist(), list(accumulate(sizes))
    return [Subset(dataset, order[end - size : end]) for end, size in zip(ends, sizes, strict=True)]


def default_collate(batch: Sequence[Any]) -> Any:
    """A batch of samples: one Tensor of Tensors, arrays or numbers, the texts as they are, and
    of tuples, lists and dicts a list or dict with a batch of each field."""
    return batches.collate(batch, like_pytorch=True)


class DataLoader:
    """Goes through a data set in batches. Only one of shuffle, sampler, batch_sampler and an
    IterableDataset gives the order.

    Batches are made in the process that asks for them, one at a time. So
    num_workers, pin_memory and the other arguments about workers change nothing, and
    worker_init_fn is not called. batch_size=None is left out, and arguments from collate_fn on
    have to be named.

        >>> from tinyattn.torch_names.utils.data import DataLoader, TensorDataset
        >>> loader = DataLoader(TensorDataset(ta.arange(3), ta.eye(3)), batch_size=2, num_workers=4)
        >>> for i, row in loader:
        ...     print(i, row.shape)
        tensor([0, 1]) (2, 3)
        tensor([2]) (1, 3)
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool | None = False,
        sampler: Any = None,
        batch_sampler: Any = None,
        *,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        drop_last: bool = False,
        generator: Any = None,
        **of_workers: Any,
    ) -> None:
        if unknown := of_workers.keys() - OF_WORKERS:
            raise TypeError(f"DataLoader takes no arguments {sorted(unknown)}")
        self.is_stream, own = isinstance(dataset, IterableDataset), batch_sampler is not None
        orders = bool(shuffle) + (sampler is not None) + own + self.is_stream
        if orders > 1 or (own and (batch_size != 1 or drop_last)):
            raise ValueError("one order only: shuffle, sampler or batch_sampler without batch_size")
        if shuffle or (sampler is None and not own and not self.is_stream):
            batches.check_samples(dataset)
        check_type("collate_fn must be a function", collate_fn, Callable | None)
        if shuffle:
            sampler = RandomSampler(dataset, generator=generator)
        elif sampler is None:
            sampler = dataset if self.is_stream else SequentialSampler(dataset)
        made = batch_sampler if own else BatchSampler(sampler, batch_size, drop_last)
        self.dataset, self.sampler, self.batch_sampler = dataset, sampler, made
        self.batch_size, self.collate_fn = batch_size, collate_fn or default_collate

    def __len__(self) -> int:
        """The number of batches."""
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        data, collate = self.dataset, self.collate_fn
        if self.is_stream:
            return map(collate, self.batch_sampler)
        if type(data) is TensorDataset and collate is default_collate:
            # The same as row by row, but sooner.
            return (list(data[list(rows)]) for rows in self.batch_sampler)
        return (collate([data[i] for i in rows]) for rows in self.batch_sampler)
