"""Loaders, splits, clipping and optimizers at the edges of their options."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import optim
from tinyattn.errors import ShapeError
from tinyattn.torch_names.utils import data
from tinyattn.training import DataLoader
from tinyattn.training.distributed import all_reduce

Pair = namedtuple("Pair", "x y")


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("n", [0, 1, 5, 6, 7, 8, 9, 12])
def test_every_sample_comes_once_whatever_the_batch_size(n: int, drop_last: bool) -> None:
    columns = ta.arange(n)
    for size in (1, 2, 3, 4, 5, 13):
        kept = n - n % size if drop_last else n
        for loader in (
            DataLoader((columns,), size, drop_last=drop_last),
            DataLoader(list(range(n)), size, drop_last=drop_last),
            data.DataLoader(data.TensorDataset(columns), size, drop_last=drop_last),
            data.DataLoader(list(range(n)), size, drop_last=drop_last),
        ):
            batches = [b[0] if isinstance(b, (tuple, list)) else b for b in loader]
            assert [i for batch in batches for i in batch.tolist()] == list(range(kept))
            assert len(batches) == len(loader) == (kept + size - 1) // size


@pytest.mark.parametrize("place", [0, 1, 2, 3])
@pytest.mark.parametrize("other", [[1.0, 2.0], np.ones(3), "text", {"a": 1}, (1, 2, 3), 4])
def test_a_sample_of_another_kind_is_noticed_wherever_it_is(place: int, other: Any) -> None:
    samples: list[Any] = [(1, 2)] * 4
    samples[place] = other
    for loader in (DataLoader(samples, 4), data.DataLoader(samples, 4)):
        with pytest.raises((ShapeError, TypeError)):
            list(loader)


def test_named_fields_keep_their_names() -> None:
    (batch,) = DataLoader([Pair(1, 2.0), Pair(3, 4.0)], 2)
    assert type(batch) is Pair
    assert (batch.x.tolist(), batch.y.tolist()) == ([1, 3], [2, 4])
    (batch,) = DataLoader([[1, 2], [3, 4]], 2)
    assert type(batch) is list


@pytest.mark.parametrize(
    ("n", "parts", "sizes"),
    [
        (11, [0.34, 0.33, 0.33], [4, 4, 3]), (11, [0.25] * 4, [3, 3, 3, 2]),
        (7, [0.3, 0.3, 0.4], [3, 2, 2]), (3, [0.5, 0.5], [2, 1]), (0, [0.5, 0.5], [0, 0]),
        (5, [5, 0], [5, 0]),
    ],
)  # fmt: skip
def test_what_is_left_of_a_split_goes_round(n: int, parts: list, sizes: list[int]) -> None:
    found = data.random_split(range(n), parts)
    assert [len(part) for part in found] == sizes
    assert sorted(i for part in found for i in part.indices) == list(range(n))


def test_an_index_beyond_a_dataset_of_datasets_is_an_error() -> None:
    both = data.ConcatDataset([range(3), range(10, 12)])
    assert [both[i] for i in range(-5, 5)] == [0, 1, 2, 10, 11] * 2
    for index in (5, -6, 10):
        with pytest.raises(IndexError):
            both[index]


@pytest.mark.parametrize("size", [1e-170, 1e-161, 1e-150, 1e-20, 1.0, 1e20, 1e150, 1e170])
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, np.inf])
def test_gradients_of_any_size_have_their_norm(size: float, p: float) -> None:
    x = ta.tensor([1.0, 1.0, 1.0], dtype=np.float64, requires_grad=True)
    x.grad = ta.tensor(np.array([3.0, -4.0, 0.0]) * size)
    found = optim.clip_grad_norm_([x], np.inf, p)
    right = np.linalg.norm([3.0, -4.0, 0.0], p) * size
    assert float(found) == pytest.approx(right, rel=1e-12, abs=0)


def test_clipping_takes_a_number_that_becomes_too_small_where_numpy_raises() -> None:
    x = ta.zeros(2, requires_grad=True)
    x.grad = ta.tensor([1e-37, 5.0])
    with np.errstate(all="raise"):
        assert optim.clip_grad_norm_([x], 1e-3) == 5
    assert x.grad.tolist() == pytest.approx([2e-41, 1e-3], rel=1e-3)


def test_a_gradient_that_two_tensors_share_is_clipped_once() -> None:
    x, y = (ta.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    x.grad = y.grad = ta.tensor([3.0, 4.0])
    assert float(optim.clip_grad_norm_([x, y], 1.0)) == pytest.approx(5)
    np.testing.assert_allclose(x.grad.numpy(), [0.6, 0.8], rtol=1e-5)
    assert y.grad is not None
    np.testing.assert_allclose(y.grad.numpy(), [0.6, 0.8], rtol=1e-5)


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9, "dampening": 0.1}, {"dampening": 0.1}])
def test_nesterov_needs_a_momentum_and_no_dampening(options: dict[str, float]) -> None:
    x = ta.tensor([1.0], requires_grad=True)
    with pytest.raises(ValueError, match="nesterov needs a momentum > 0 and no dampening"):
        optim.SGD([x], 0.1, nesterov=True, **options)
    x.grad = ta.ones(1)
    for name, value in (("momentum", 0.0), ("dampening", 0.5)):
        optimizer = optim.SGD([x], 0.1, momentum=0.9, nesterov=True)
        optimizer.param_groups[0][name] = value
        with pytest.raises(ValueError, match="nesterov"):
            optimizer.step()
    assert x.tolist() == [1]


class Asked:
    """Samples that note by what they are asked for."""

    def __init__(self) -> None:
        self.indices: list[Any] = []

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: Any) -> int:
        self.indices.append(index)
        return index


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("kind", ["ours", "theirs", "subset", "split", "both"])
def test_samples_are_asked_for_by_integers_of_python(kind: str, shuffle: bool) -> None:
    """A dict of samples, or a name made of the number, would take no number of NumPy."""
    samples = Asked()
    of_kind: dict[str, Any] = {
        "subset": lambda: data.Subset(samples, range(5)),
        "split": lambda: data.random_split(samples, [5])[0],
        "both": lambda: data.ConcatDataset([samples, [0]]),
    }
    made = of_kind.get(kind, lambda: samples)()
    loader: Any = DataLoader if kind == "ours" else data.DataLoader
    batches = list(loader(made, 2, shuffle))
    assert sorted(samples.indices) == [*range(5)]
    assert {type(index) for index in samples.indices} == {int}
    assert len(batches) == 3


@pytest.mark.parametrize("form", [list, tuple, iter, lambda parts: dict(enumerate(parts)).values()],
                         ids=["list", "tuple", "iter", "values"])  # fmt: skip
def test_datasets_in_a_row_may_come_from_any_iterable(form: Any) -> None:
    made = data.ConcatDataset(form([[1, 2], [3], [4, 5]]))
    assert (len(made), [*map(made.__getitem__, range(5))]) == (5, [1, 2, 3, 4, 5])
    assert made.datasets == [[1, 2], [3], [4, 5]]
    assert made.cumulative_sizes == [2, 3, 5]


@pytest.mark.parametrize("values", [[1.0, 2.5], [[3.0]], 4.0], ids=["row", "matrix", "number"])
def test_a_sum_of_ranks_is_an_array_of_its_own(values: Any) -> None:
    for given in (np.array(values), np.array(values, np.float32), ta.tensor(values)):
        before = given.tolist()
        sums = all_reduce(given)
        assert (sums.dtype, sums.tolist()) == (np.float64, before)
        sums += 1
        assert given.tolist() == before


@pytest.mark.parametrize("p", [1, 1.5, 2, 3, float("inf"), "inf"], ids=str)
@pytest.mark.parametrize("max_norm", [0.0, 0.5, 1e3, float("inf")])
def test_each_gradient_counts_whoever_has_it(p: Any, max_norm: float) -> None:
    """Also that of a frozen parameter, of a number, of one without elements, and of float16."""
    rng = np.random.default_rng(5)
    kinds: list[tuple[Any, Any, bool]] = [
        ((2, 3), ta.float32, True), ((3,), ta.float64, False), ((), ta.float32, True),
        ((0, 2), ta.float32, True), ((4,), ta.float16, False), ((1, 1, 2), ta.float64, True),
    ]  # fmt: skip
    parameters, grads = [], []
    for shape, dtype, trained in kinds:
        x = ta.zeros(shape, dtype=dtype, requires_grad=True)
        x.grad = ta.tensor(rng.standard_normal(shape), dtype=dtype)
        grads.append(x.grad.numpy().copy())
        x.requires_grad = trained
        parameters.append(x)
    parameters.insert(1, ta.zeros(2, requires_grad=True))  # without a gradient
    every = np.abs(np.concatenate([grad.astype(np.float64).ravel() for grad in grads]))
    norm = every.max() if float(p) == np.inf else (every ** float(p)).sum() ** (1 / float(p))
    for form in (list, iter, lambda xs: [(f"{i}", x) for i, x in enumerate(xs)]):
        for x, grad in zip((x for x in parameters if x.grad is not None), grads, strict=True):
            x.grad = ta.tensor(grad)
        found = optim.clip_grad_norm_(form(parameters), max_norm, p)
        assert type(found) is float
        assert found == pytest.approx(norm, rel=1e-12)
        factor = min(max_norm / (norm + 1e-6), 1.0)
        clipped = [x.grad for x in parameters if x.grad is not None]
        for new, old in zip(clipped, grads, strict=True):
            assert (new.dtype, new.shape) == (old.dtype, old.shape)
            right = (old.astype(np.float64) * factor).astype(old.dtype)
            np.testing.assert_allclose(new.numpy(), right, rtol=2 * np.finfo(old.dtype).eps)
        assert parameters[1].grad is None


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("max_norm", -1.0, "max_norm must be a number >= 0, got -1.0"),
        ("max_norm", float("nan"), "max_norm must be a number >= 0, got nan"),
        ("max_norm", -float("inf"), "max_norm must be a number >= 0, got -inf"),
        ("norm_type", -2, "norm_type must be a number >= 0, got -2"),
        ("norm_type", 0, "norm_type must be a number > 0, got 0"),
        ("norm_type", -float("inf"), "norm_type must be a number >= 0, got -inf"),
    ],
)
def test_a_wrong_number_is_refused_before_a_gradient_changes(
    name: str, value: float, message: str
) -> None:
    x = ta.zeros(2, requires_grad=True)
    x.grad = ta.tensor([3.0, 4.0])
    with pytest.raises(ValueError) as raised:  # noqa: PT011  the whole sentence is compared
        optim.clip_grad_norm_([x], **{"max_norm": 1.0, name: value})
    assert str(raised.value) == message
    assert x.grad.tolist() == [3.0, 4.0]
