"""torch_names.utils.data: the same batches as PyTorch's."""

from __future__ import annotations

import itertools
from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import training
from tinyattn.torch_names.utils import data
from tinyattn.torch_names.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    TensorDataset,
)

Pair = namedtuple("Pair", "x y")


def plain(batch: Any) -> Any:
    """A batch as something that can be compared, with the dtype of each Tensor."""
    if isinstance(batch, dict):
        return {key: plain(value) for key, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        return type(batch).__name__, [plain(value) for value in batch]
    if hasattr(batch, "numpy"):
        return str(batch.numpy().dtype), batch.tolist()
    return batch


class Samples:
    """For a base class Dataset: each sample is made of its index."""

    def __init__(self, make: Any, count: int = 7) -> None:
        self.make, self.count = make, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


MAKES = [
    lambda t, i: i,
    lambda t, i: i / 4,
    lambda t, i: i % 2 == 0,
    lambda t, i: np.full((2,), i, np.float32),
    lambda t, i: np.float64(i),
    lambda t, i: t.tensor([i, i + 0.5]),
    lambda t, i: "a" * i,
    lambda t, i: (t.tensor(i), i / 2),
    lambda t, i: [i, (i, "a")],
    lambda t, i: {"ids": t.tensor([i]), "length": i, "text": "a"},
    lambda t, i: Pair(i, t.tensor([0.5])),
]


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize(
    "options",
    [{}, {"batch_size": 3}, {"batch_size": 3, "drop_last": True, "num_workers": 0},
     {"batch_sampler": [[0, 2], [1]]}, {"sampler": [4, 2, 2], "batch_size": 2},
     {"batch_size": 2, "collate_fn": lambda samples: len(samples)},
     {"batch_size": 7, "shuffle": False, "pin_memory": False, "persistent_workers": False}],
)  # fmt: skip
def test_batches_are_pytorchs(torch: Any, make: Any, options: dict[str, Any]) -> None:
    batches = []
    for space, loader in ((ta, data.DataLoader), (torch, torch.utils.data.DataLoader)):
        samples = Samples(lambda i, space=space: make(space, i))
        made = loader(samples, **options)
        batches.append([plain(batch) for batch in made])
        assert len(made) == len(batches[-1])
    assert batches[0] == batches[1]


def test_a_tensor_dataset_gives_the_same_in_one_step(torch: Any) -> None:
    """Columns are indexed at once, without a sample for each row."""
    x, y = np.arange(10.0).reshape(5, 2), np.arange(5)
    batches = []
    for space, of in ((ta, data), (torch, torch.utils.data)):
        rows = of.TensorDataset(space.tensor(x), space.tensor(y))
        batches.append([plain(batch) for batch in of.DataLoader(rows, batch_size=2)])
        assert plain(rows[3]) == ("tuple", [("float64", [6.0, 7.0]), ("int64", 3)])
    assert batches[0] == batches[1]
    seen = []
    loader = DataLoader(rows := TensorDataset(ta.tensor(y)), 2, collate_fn=seen.append)
    assert list(loader) == [None] * 3
    assert seen[0][1][0].item() == rows[1][0].item() == 1


@pytest.mark.parametrize("options", [{}, {"batch_size": 2}, {"sampler": [4, 2], "batch_size": 2}])
def test_a_dict_with_the_indices_as_keys_has_samples(torch: Any, options: dict[str, Any]) -> None:
    rows = {i: {0: i / 2, 1: [i, "a"], "b": i} for i in range(5)}
    ours, theirs = DataLoader(rows, **options), torch.utils.data.DataLoader(rows, **options)
    assert [plain(batch) for batch in ours] == [plain(batch) for batch in theirs]
    seen = [int(i) for batch in DataLoader(rows, 2, shuffle=True) for i in batch["b"]]
    assert sorted(seen) == [0, 1, 2, 3, 4]
    assert [batch["b"].tolist() for batch in training.DataLoader(rows, 3)] == [[0, 1, 2], [3, 4]]


def test_samples_one_after_another(torch: Any) -> None:
    batches = []
    for of in (data, torch.utils.data):

        class Stream(of.IterableDataset):
            def __iter__(self) -> Any:
                yield from range(10)

        batches.append([b.tolist() for b in of.DataLoader(Stream(), batch_size=4)])
    assert batches[0] == batches[1]
    with pytest.raises(TypeError, match=r"len\(\) and integer indices, got"):
        len(data.DataLoader(Stream(), batch_size=4))


def test_datasets_of_datasets(torch: Any) -> None:
    rows = []
    for of in (data, torch.utils.data):

        class Numbers(of.Dataset[int]):
            def __init__(self, first: int, count: int) -> None:
                self.first, self.count = first, count

            def __len__(self) -> int:
                return self.count

            def __getitem__(self, index: int) -> int:
                return self.first + index

        joined = Numbers(0, 3) + Numbers(10, 2)
        part = of.Subset(of.ConcatDataset([joined, Numbers(20, 4)]), [8, 0, 4])
        rows.append([joined[-1], joined[3], len(joined), len(part), [part[i] for i in range(3)]])
    assert rows[0] == rows[1] == [11, 10, 5, 3, [23, 0, 11]]
    joined = data.ConcatDataset([range(3)])
    with pytest.raises(IndexError):
        joined[3]


@pytest.mark.parametrize("lengths", [[4, 7], [0.5, 0.5], [0.8, 0.1, 0.1], [0.25] * 4, [0.3, 0.3]])
def test_random_split(torch: Any, lengths: list[float]) -> None:
    if sum(lengths) == 0.6:
        with pytest.raises(ValueError, match="lengths must add up to the 11 samples"):
            data.random_split(range(11), lengths)
        with pytest.raises(ValueError, match=r"got \[3, 4\]"):
            data.random_split(range(11), (n for n in (3, 4)))  # type: ignore[arg-type]
        return
    parts = data.random_split(range(10, 21), lengths)
    right = torch.utils.data.random_split(range(10, 21), lengths)
    assert [len(part) for part in parts] == [len(part) for part in right]
    found = [part[i] for part in parts for i in range(len(part))]
    assert sorted(found) == list(range(10, 21))
    assert found != sorted(found)


def test_orders_are_random_and_can_be_repeated() -> None:
    makes = [
        lambda g: RandomSampler(range(20), generator=g),
        lambda g: [int(i) for i in data.DataLoader(range(20), shuffle=True, generator=g)],
        lambda g: data.random_split(range(20), [15, 5], g)[0].indices,
    ]
    for make in makes:
        for seeds in ((3, 3), (None, None)):
            orders = []
            for seed, other in zip(seeds, (4, 5), strict=True):
                # Either the one generator of tinyattn is seeded, or one of one's own is given.
                ta.manual_seed(other if seed is None else seed)
                own = SimpleNamespace(numbers=np.random.default_rng(3)) if seed is None else None
                orders.append(list(make(own)))
            first = orders[0]
            assert first == orders[1]
            assert first != sorted(first)
        assert first != list(make(None))


def test_a_random_sampler_draws_as_many_as_it_says() -> None:
    orders = list(RandomSampler(range(5), num_samples=12))
    assert sorted(orders[:5]) == sorted(orders[5:10]) == list(range(5))
    assert len(orders) == len(RandomSampler(range(5), False, 12)) == 12
    assert orders[:5] != orders[5:10] or sorted(orders[:5]) != orders[:5]
    drawn = list(RandomSampler(range(5), replacement=True, num_samples=500))
    assert set(drawn) == set(range(5))
    assert any(len(set(drawn[i : i + 5])) < 5 for i in range(0, 500, 5))
    endless = RandomSampler(range(5), True, int(1e10))  # as minGPT has it
    assert len(list(itertools.islice(endless, 7))) == 7


def test_each_sampler_takes_what_it_says() -> None:
    assert list(data.SequentialSampler("abc")) == [0, 1, 2]
    assert sorted(RandomSampler(range(4))) == [0, 1, 2, 3]
    assert len(RandomSampler(range(4))) == 4
    assert list(BatchSampler([3, 1, 2], 2, False)) == [[3, 1], [2]]
    assert list(BatchSampler([3, 1, 2], 2, True)) == [[3, 1]]
    endless = BatchSampler(itertools.count(), 2, True)  # is asked for as many as are wanted
    assert list(itertools.islice(endless, 2)) == [[0, 1], [2, 3]]
    batches = DataLoader(range(9), batch_sampler=itertools.cycle([[0, 1], [4]]))
    assert [b.tolist() for b in itertools.islice(batches, 3)] == [[0, 1], [4], [0, 1]]
    assert len(BatchSampler([3, 1, 2], 2, True)) == 1
    assert not list(RandomSampler([]))


def test_a_loader_shuffles_anew_and_needs_no_workers() -> None:
    def fails(worker: int) -> None:
        raise AssertionError

    loader = data.DataLoader(
        range(30), 4, True, num_workers=8, pin_memory=True, worker_init_fn=fails, timeout=5,
        prefetch_factor=2, persistent_workers=True,
    )  # fmt: skip
    first, second = ([int(i) for batch in loader for i in batch] for _ in range(2))
    assert first != second
    assert sorted(first) == sorted(second) == list(range(30))
    assert (len(loader), len(loader.dataset), loader.batch_size) == (8, 30, 4)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: DataLoader([1], workers=2), TypeError, r"takes no arguments \['workers'\]"),
        (lambda: DataLoader([1], shuffle=True, sampler=[0]), ValueError, "one order only"),
        (lambda: DataLoader([1], batch_size=2, batch_sampler=[[0]]), ValueError, "without batch_s"),
        (lambda: DataLoader([1], sampler=[0], batch_sampler=[[0]]), ValueError, "one order only"),
        (lambda: DataLoader([1], batch_sampler=[[0]], drop_last=True), ValueError, "without batch"),
        (lambda: DataLoader([1], batch_sampler=[[0]], shuffle=True), ValueError, "one order only"),
        (lambda: DataLoader(IterableDataset(), shuffle=True), ValueError, "one order only"),
        (lambda: DataLoader([1], batch_size=0), ta.errors.ShapeError, "batch_size must be"),
        (lambda: list(DataLoader([(1, 2), (3,)], 2)), ta.errors.ShapeError, "tuple of 1 fields"),
        (lambda: list(DataLoader([1, "a"], 2)), ta.errors.ShapeError, "1 is a text: give"),
        (lambda: list(DataLoader([{1}], 1)), TypeError, "samples of type set"),
        (lambda: TensorDataset(ta.ones(2), ta.ones(3)), ta.errors.ShapeError, "of one length"),
        (lambda: TensorDataset(), ta.errors.ShapeError, "of one length"),
        (lambda: data.Dataset()[0], TypeError, "'Dataset' object is not subscriptable"),
        (lambda: iter(data.Sampler()), TypeError, "'Sampler' object is not iterable"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_a_subclass_of_a_data_set_of_tensors_gives_its_own_rows() -> None:
    """They are read together only where nobody can tell."""

    class Doubled(TensorDataset):
        def __getitem__(self, index: Any) -> tuple[Any, ...]:
            return tuple(2 * column for column in super().__getitem__(index))

    x = ta.tensor([[1.0], [2.0], [3.0]])
    for kind, factor in ((TensorDataset, 1), (Doubled, 2)):
        batches = [batch.tolist() for (batch,) in DataLoader(kind(x), batch_size=2)]
        assert batches == [[[factor * 1.0], [factor * 2.0]], [[factor * 3.0]]]
    seen: list[int] = []

    class Noted(TensorDataset):
        def __getitem__(self, index: Any) -> Any:
            assert isinstance(index, int)
            seen.append(index)
            return super().__getitem__(index)

    assert len(list(DataLoader(Noted(x), batch_size=2))) == 2
    assert seen == [0, 1, 2]
