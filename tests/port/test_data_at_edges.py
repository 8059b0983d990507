"""Loaders of torch_names refuse by name, take what a program's own order needs, and assert_close
passes its options on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinyattn.torch_names as ours
from tinyattn.torch_names.testing import assert_close
from tinyattn.torch_names.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    random_split,
)

ROWS = [[0, 2], [1]]


class WithoutALength:
    """Samples that a program numbers itself."""

    def __getitem__(self, index: int) -> float:
        return 10.0 * index


def test_the_samples_of_an_order_of_ones_own_need_no_length(torch: Any) -> None:
    """Only without an order the loader asks how many samples there are."""
    for space in (ours, torch):
        made = space.utils.data.DataLoader
        for options in ({"batch_sampler": ROWS}, {"sampler": [0, 2, 1], "batch_size": 2}):
            batches = [batch.tolist() for batch in made(WithoutALength(), **options)]
            assert batches == [[0.0, 20.0], [10.0]]
    for options in ({}, {"shuffle": True}, {"batch_size": 2}):
        with pytest.raises(TypeError, match=r"^data are samples with len\(\) and integer indices"):
            DataLoader(WithoutALength(), **options)


def test_unknown_arguments_of_a_loader_are_named_in_order() -> None:
    options: Any = dict.fromkeys("zebra yak xerus walrus viper urial tapir seal".split(), 1)  # noqa: SIM905
    with pytest.raises(TypeError) as raised:
        DataLoader([1, 2], num_workers=2, **options)
    assert str(raised.value) == f"DataLoader takes no arguments {sorted(options)}"


@pytest.mark.parametrize(
    "options",
    [
        {"shuffle": True, "sampler": [0]},
        {"shuffle": True, "batch_sampler": ROWS},
        {"sampler": [0], "batch_sampler": ROWS},
        {"batch_sampler": ROWS, "batch_size": 2},
        {"batch_sampler": ROWS, "drop_last": True},
    ],
)
def test_a_loader_has_one_order(torch: Any, options: Any) -> None:
    with pytest.raises(ValueError, match=r"^one order only: shuffle, sampler or batch_sampler"):
        DataLoader([1, 2, 3], **options)
    with pytest.raises(ValueError, match="mutually exclusive"):
        torch.utils.data.DataLoader([1, 2, 3], **options)


def test_what_a_loader_shows_of_itself() -> None:
    data = [1.0, 2.0, 3.0]
    loader = DataLoader(data, 2)
    assert loader.dataset is data
    assert (loader.batch_size, len(loader)) == (2, 2)
    assert list(loader.sampler) == [0, 1, 2]
    assert list(loader.batch_sampler) == [[0, 1], [2]]
    assert isinstance(DataLoader(data, shuffle=True).sampler, RandomSampler)
    assert len(DataLoader(data, 2, drop_last=True)) == 1
    assert [*DataLoader(data, 2, collate_fn=sum)] == [3.0, 3.0]
    with pytest.raises(TypeError, match=r"^collate_fn must be a function"):
        DataLoader(data, collate_fn=3)  # type: ignore[arg-type]


def test_parts_that_are_more_than_all_are_refused(torch: Any) -> None:
    """Also by the last digit: then they are lengths, as in PyTorch."""
    for parts in ([0.5, 0.5 + 4e-16], [0.5, 0.6], [1.5, 0.5], [3, 3]):
        for space in (ours, torch):
            with pytest.raises(ValueError, match=r"[Ll]ength"):
                space.utils.data.random_split(range(4), parts)
    for parts, sizes in (
        ([0.5, 0.5], [2, 2]), ([1.0], [4]), ([0.3, 0.3, 0.4], [2, 1, 1]), ([1, 3], [1, 3]),
    ):  # fmt: skip
        for space in (ours, torch):
            found = space.utils.data.random_split(range(4), parts)
            assert [len(part) for part in found] == sizes
    together = sorted(x for part in random_split(range(9), [2, 3, 4]) for x in part)
    assert together == list(range(9))


def test_options_reach_every_place_of_nested_values(torch: Any) -> None:
    for space in (ours, torch):
        close = space.testing.assert_close
        one, other, nan = (space.tensor([x]) for x in (100.0, 109.0, float("nan")))
        for wrap in (lambda x: x, lambda x: [x], lambda x: {"a": x}, lambda x: (1, [x])):
            close(wrap(one), wrap(other), rtol=0.1, atol=0.0)
            close(wrap(one), wrap(other), rtol=0.0, atol=9.5)
            close(wrap(nan), wrap(nan), equal_nan=True)
            close(wrap(one), wrap(one.to(space.float64)), check_dtype=False)
            for options in ({"rtol": 0.0, "atol": 8.5}, {"rtol": 0.08, "atol": 0.0}, {}):
                with pytest.raises(AssertionError, match="mine"):
                    close(wrap(one), wrap(other), msg="mine", **options)
            for wrong in (nan, space.tensor([1.0, 2.0]), one.to(space.float64)):
                with pytest.raises(AssertionError, match="mine"):
                    close(wrap(wrong), wrap(one), msg="mine")


def test_integers_have_no_tolerance(torch: Any) -> None:
    for space in (ours, torch):
        for one, other in ((100, 101), (1000, 1009), (1, 2)):
            with pytest.raises(AssertionError):
                space.testing.assert_close(space.tensor([one]), space.tensor([other]))
        with pytest.raises(AssertionError):
            space.testing.assert_close(space.tensor([True]), space.tensor([False]))
        space.testing.assert_close(space.tensor([100]), space.tensor([100]))


def test_what_is_not_close_says_why() -> None:
    x = ours.ones(2)
    for actual, expected, message in [
        (x, ours.ones(3), r"^the shape \(2,\) is not \(3,\)"),
        (x, ours.ones(2, dtype=np.float64), "^the dtype float32 is not float64"),
        ([x], [x, x], "^1 are not 2"),
        ({"a": x}, {"b": x}, r"^\['a'\] are not \['b'\]"),
    ]:
        with pytest.raises(AssertionError, match=message):
            assert_close(actual, expected)
    with pytest.raises(ValueError, match=r"^rtol and atol go together, got 0.1 and None"):
        assert_close(x, x, rtol=0.1)


@pytest.mark.parametrize("kind", [list, tuple, np.array])
@pytest.mark.parametrize(
    "indices", [[], [3], [0, 1, 2, 3, 4], [2, 2], [4, 0, 4, 4, 1, 0], [-1, 4, -5]], ids=str
)
def test_a_subset_has_the_samples_of_its_indices(kind: Any, indices: list[int]) -> None:
    """In their order, and as often as they are there: one that draws with replacement repeats."""
    samples = [10.0, 11.0, 12.0, 13.0, 14.0]
    part = Subset(samples, kind(indices))
    expected = [samples[i] for i in indices]
    assert len(part) == len(indices)
    assert [part[i] for i in range(len(part))] == expected
    assert [part[-i - 1] for i in range(len(part))] == expected[::-1]
    for size in (1, 2, 4):
        batches = [batch.tolist() for batch in DataLoader(part, size)]
        assert batches == [expected[i : i + size] for i in range(0, len(expected), size)]
        assert len(DataLoader(part, size)) == len(batches)
    if indices:
        shuffled = [x for batch in DataLoader(part, 2, shuffle=True) for x in batch.tolist()]
        assert sorted(shuffled) == sorted(expected)
        assert len(part + part) == 2 * len(part)
        assert [(part + part)[i] for i in range(2 * len(part))] == expected * 2
        inner = Subset(part, [*range(len(part))] * 2)
        assert [inner[i] for i in range(len(inner))] == expected * 2


class Stream(IterableDataset[int]):
    def __init__(self, number: int) -> None:
        self.number = number

    def __iter__(self) -> Any:
        return iter(range(self.number))


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_a_loader_says_how_many_batches_there_are(size: int, drop_last: bool) -> None:
    """Of every number of samples and in every order; a batch that is dropped is not full."""
    for n in range(9):
        whole = [[*range(i, min(i + size, n))] for i in range(0, n, size)]
        expected = [rows for rows in whole if len(rows) == size or not drop_last]
        sampler = BatchSampler(SequentialSampler(range(n)), size, drop_last)
        assert list(sampler) == expected
        assert len(sampler) == len(expected)
        for options in (
            {},
            {"shuffle": True},
            {"sampler": range(n)},
            {"sampler": [*range(n)][::-1]},
        ):
            loader = DataLoader(np.arange(n), size, drop_last=drop_last, **options)  # type: ignore[arg-type]
            batches = [batch.tolist() for batch in loader]
            assert [len(batch) for batch in batches] == [len(rows) for rows in expected]
            assert len(loader) == len(batches)
            assert len({x for batch in batches for x in batch}) == sum(map(len, expected))
        found = DataLoader(Stream(n), size, drop_last=drop_last)
        assert [batch.tolist() for batch in found] == expected


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize("number", [None, 1, 3, 4, 5, 8, 9, 13])
def test_a_random_sampler_draws_one_order_after_another(number: Any, replacement: bool) -> None:
    sampler = RandomSampler("abcd", replacement, number, ours.Generator().manual_seed(3))
    drawn = list(sampler)
    assert len(sampler) == len(drawn) == (number or 4)
    assert set(drawn) <= {0, 1, 2, 3}
    if not replacement:
        for start in range(0, len(drawn), 4):
            assert len(set(drawn[start : start + 4])) == len(drawn[start : start + 4])
    assert drawn == list(
        RandomSampler("abcd", replacement, number, ours.Generator().manual_seed(3))
    )


@pytest.mark.parametrize(
    "sizes", [[3], [3, 2], [1, 1, 1], [0, 2], [2, 0, 3], [2, 0, 0, 1], [2, 0]], ids=str
)
def test_joined_sets_are_one_list(sizes: list[int]) -> None:
    """At every index from both ends, also beside a set without samples."""
    parts = [[10 * i + j for j in range(size)] for i, size in enumerate(sizes)]
    flat, joined = [x for part in parts for x in part], ConcatDataset(parts)
    assert len(joined) == len(flat)
    for i in range(-len(flat), len(flat)):
        assert joined[i] == flat[i]
    for i in (len(flat), -len(flat) - 1):
        with pytest.raises(IndexError):
            joined[i]
    assert [x for batch in DataLoader(joined, 2) for x in batch.tolist()] == flat


def test_parts_of_the_samples_are_rounded_down_and_the_rest_goes_round() -> None:
    for n in range(1, 12):
        for parts in ([0.5, 0.5], [0.7, 0.2, 0.1], [0.25] * 4, [0.9, 0.1], [1.0]):
            sizes = [int(n * part + 1e-9) for part in parts]
            for i in range(n - sum(sizes)):
                sizes[i % len(sizes)] += 1
            found = random_split(range(n), parts)
            assert [len(part) for part in found] == sizes
            assert sorted(part[i] for part in found for i in range(len(part))) == [*range(n)]
        for lengths in ([n], [n - 1, 1], [0, n]):
            assert [len(part) for part in random_split(range(n), lengths)] == lengths
