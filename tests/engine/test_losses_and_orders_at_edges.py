"""Losses, reductions and orders of Tensors: each way to a value, and to its slope."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from common import assert_same, leaf, signed

import tinyattn as ta
from tinyattn import functional as F

# Losses


def log_softmax(x: np.ndarray, axis: int) -> np.ndarray:
    return x - np.log(np.exp(x).sum(axis, keepdims=True))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(4,), (5, 4), (3, 4, 2), (2, 4, 3, 2)])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy_and_its_slope_are_those_of_the_formula(
    shape: tuple[int, ...], weighted: bool, dtype: Any, reduction: str, rng: Any
) -> None:
    logits, axis = signed(rng, *shape).astype(dtype), min(1, len(shape) - 1)
    places = (*shape[:axis], *shape[axis + 1 :])
    target = rng.integers(0, 4, places)
    if target.size > 1:
        target.flat[1] = -7
    weight = np.array([0.5, 2.0, 1.5, 0.25]).astype(dtype)
    counted = target != -7
    factor = np.where(counted, weight[target * counted] if weighted else 1.0, 0.0)
    one_hot = np.moveaxis(np.eye(4)[target * counted], -1, axis)
    scores = log_softmax(logits.astype(np.float64), axis)
    losses = -(one_hot * scores).sum(axis) * factor
    right = {"none": losses, "sum": losses.sum(), "mean": losses.sum() / factor.sum()}[reduction]
    grad = signed(rng, *np.shape(right)).astype(dtype)
    scale = grad / (factor.sum() if reduction == "mean" else 1)
    slope = (np.exp(scores) - one_hot) * np.expand_dims(factor * scale, axis)

    x, given = leaf(logits), ta.tensor(weight) if weighted else None
    tolerance = 1e-5 if dtype == np.float32 else 1e-12
    for classes in (ta.tensor(target), target):
        loss = F.cross_entropy(x, classes, given, ignore_index=-7, reduction=reduction)
        assert loss.dtype == dtype
        np.testing.assert_allclose(loss.detach().numpy(), right, rtol=tolerance)
        (found,) = ta.grad(loss, x, ta.tensor(grad))
        np.testing.assert_allclose(found.numpy(), slope, rtol=tolerance, atol=tolerance)
    log_probs = ta.tensor(scores.astype(dtype))
    loss = F.nll_loss(log_probs, target, given, ignore_index=-7, reduction=reduction)
    np.testing.assert_allclose(loss.numpy(), right, rtol=tolerance)


@pytest.mark.parametrize("smoothing", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_smoothed_targets_are_mixed_with_all_classes(
    smoothing: float, weighted: bool, rng: Any
) -> None:
    logits, target, weight = signed(rng, 3, 4), np.array([2, 0, 3]), np.array([0.5, 2.0, 1.5, 0.25])
    weight = weight if weighted else np.ones(4)
    mixed = (1 - smoothing) * np.eye(4)[target] + smoothing / 4
    terms = (-log_softmax(logits, 1) * weight * mixed).sum(1)
    given = ta.tensor(weight) if weighted else None
    for classes, total in ((target, weight[target].sum()), (np.eye(4)[target], 3)):
        loss = F.cross_entropy(ta.tensor(logits), classes, given, label_smoothing=smoothing)
        assert loss.item() == pytest.approx(terms.sum() / total)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(0, 3), (2, 3, 0), (0, 3, 2)])
def test_losses_of_no_rows(dtype: Any, shape: tuple[int, ...]) -> None:
    x, places = leaf(np.zeros(shape, dtype)), (shape[0], *shape[2:])
    for function in (F.cross_entropy, F.nll_loss):
        none = function(x, np.zeros(places, int), reduction="none")
        assert (none.shape, none.dtype) == (places, dtype)
        assert function(x, np.zeros(places, int), reduction="sum").item() == 0
        assert np.isnan(function(x, np.zeros(places, int)).item())
        assert ta.grad(none, x, ta.ones(places, dtype=dtype))[0].shape == shape


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_row_that_is_ignored_may_hold_anything(dtype: Any) -> None:
    logits = np.array([[np.nan, 1, 2], [0.0, 0, 0], [np.inf, 1, 2]], dtype)
    x = leaf(logits)
    loss = F.cross_entropy(x, [-100, 1, -100])
    assert loss.item() == pytest.approx(math.log(3))
    (found,) = ta.grad(loss, x)
    np.testing.assert_allclose(
        found.numpy(), [[0, 0, 0], [1 / 3, -2 / 3, 1 / 3], [0, 0, 0]], rtol=1e-6
    )
    with np.errstate(all="ignore"):
        (slope,) = ta.grad(F.cross_entropy(x, [-100, 1, -100]), x, create_graph=True)
        (second,) = ta.grad(slope, x, ta.tensor([[0.0] * 3, [1.0, 0, 0], [0.0] * 3]).to(dtype))
    np.testing.assert_allclose(second.numpy()[1], [2 / 9, -1 / 9, -1 / 9], rtol=1e-6)


def test_second_derivatives_of_cross_entropy(rng: Any) -> None:
    logits, first, second = (signed(rng, 2, 3) for _ in range(3))
    x = leaf(logits)
    loss = F.cross_entropy(x, [2, 0], reduction="none")
    (slope,) = ta.grad(loss, x, ta.tensor(first[:, 0]), create_graph=True)
    (found,) = ta.grad(slope, x, ta.tensor(second))
    p = np.exp(log_softmax(logits, 1))
    right = first[:, :1] * p * (second - (p * second).sum(1, keepdims=True))
    np.testing.assert_allclose(found.numpy(), right, rtol=1e-12)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none", "batchmean"])
@pytest.mark.parametrize("shape", [(), (4,), (3, 4), (2, 3, 4)])
@pytest.mark.parametrize("log_target", [False, True])
def test_a_divergence_is_divided_by_the_first_size(
    shape: tuple[int, ...], reduction: str, log_target: bool, rng: Any
) -> None:
    x, target = -abs(signed(rng, *shape)), abs(signed(rng, *shape))
    terms = target * (np.log(target) - x)
    right = {
        "mean": terms.mean(), "sum": terms.sum(), "none": terms,
        "batchmean": terms.sum() / (shape or (1,))[0],
    }[reduction]  # fmt: skip
    given = ta.tensor(np.log(target) if log_target else target)
    found = F.kl_div(ta.tensor(x), given, reduction=reduction, log_target=log_target)
    np.testing.assert_allclose(found.numpy(), right, rtol=1e-12, atol=1e-14)


def test_a_target_of_zero_beside_an_impossible_event_has_no_slope() -> None:
    x, target = leaf([[-math.inf, -0.5]]), leaf([[0.0, 1.0]])
    loss = F.kl_div(x, target, reduction="sum")
    assert loss.item() == 0.5
    of_x, of_target = ta.grad(loss, (x, target))
    assert of_x.tolist() == [[0, -1]]
    assert of_target.tolist() == [[0, 1.5]]
    x, logs = leaf([[-math.inf, -0.5]]), leaf([[-math.inf, 0.0]])
    loss = F.kl_div(x, logs, reduction="sum", log_target=True)
    assert loss.item() == 0.5
    of_x, of_logs = ta.grad(loss, (x, logs))
    assert of_x.tolist() == [[0, -1]]
    assert of_logs.tolist() == [[0, 1.5]]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_of_each_element_and_their_slopes(reduction: str, rng: Any) -> None:
    x, target = signed(rng, 2, 3), rng.random((2, 3))
    probability = 1 / (1 + np.exp(-x))
    of_bits = -target * np.log(probability) - (1 - target) * np.log(1 - probability)
    for function, terms, slope in (
        (F.mse_loss, (x - target) ** 2, 2 * (x - target)),
        (F.binary_cross_entropy_with_logits, of_bits, probability - target),
    ):
        right = terms if reduction == "none" else getattr(np, reduction)(terms)
        grad = signed(rng, *np.shape(right))
        tensor = leaf(x)
        loss = function(tensor, ta.tensor(target), reduction)
        np.testing.assert_allclose(loss.detach().numpy(), right, rtol=1e-12)
        (found,) = ta.grad(loss, tensor, ta.tensor(grad))
        parts = 6 if reduction == "mean" else 1
        np.testing.assert_allclose(found.numpy(), slope * grad / parts, rtol=1e-12)


# Orders


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [0, 1, 2, 3, 5, 40])
@pytest.mark.parametrize(
    ("shape", "dim"),
    [((40,), 0), ((40,), -1), ((40, 3), 0), ((3, 40), 1), ((3, 40), -1), ((40, 2, 3), 0),
     ((2, 40, 3), 1), ((2, 40, 3), -2), ((2, 3, 40), 2)],
)  # fmt: skip
def test_the_largest_along_each_dimension(
    shape: tuple[int, ...], dim: int, k: int, largest: bool, rng: Any
) -> None:
    numbers = rng.permutation(math.prod(shape)).reshape(shape).astype(np.float64)
    x = leaf(numbers)
    order = np.argsort(-numbers if largest else numbers, dim).take(range(k), dim)
    values, indices = x.topk(k, dim, largest)
    assert indices.dtype == np.int64
    np.testing.assert_array_equal(indices.numpy(), order)
    np.testing.assert_array_equal(values.detach().numpy(), np.take_along_axis(numbers, order, dim))
    grad, right = signed(rng, *order.shape), np.zeros(shape)
    np.put_along_axis(right, order, grad, dim)
    np.testing.assert_array_equal(ta.grad(values, x, ta.tensor(grad))[0].numpy(), right)


@pytest.mark.parametrize("largest", [True, False])
def test_the_largest_of_equal_numbers_are_the_first(largest: bool) -> None:
    x = ta.tensor([[1.0, 2.0] * 20, [2.0, 1.0] * 20])
    values, indices = x.topk(2, 1, largest)
    first = [[1, 3], [0, 2]] if largest else [[0, 2], [1, 3]]
    assert indices.tolist() == first
    assert values.tolist() == [[2.0 if largest else 1.0] * 2] * 2
    numbers = np.arange(40.0)
    numbers[7] = np.nan  # which is the largest of all
    assert ta.tensor(numbers).topk(2, largest=largest).indices.tolist() == (
        [7, 39] if largest else [0, 1]
    )


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int64", "uint64", "float16", "float32", "float64"]
)
def test_equal_numbers_stay_in_their_order_along_each_dimension(
    dtype: str, dim: int, descending: bool, rng: Any
) -> None:
    """NaN is the largest of all, and 0.0 and -0.0 are equal."""
    numbers = rng.integers(0, 2 if dtype == "bool" else 4, (4, 5, 6)).astype(dtype)
    if dtype.startswith("float"):
        numbers.flat[:120:7] = np.nan
        numbers *= rng.choice([1, -1], numbers.shape).astype(dtype)
    keys = np.where(numbers == numbers, numbers, 9).astype(np.float64)
    right = np.argsort(-keys if descending else keys, dim, kind="stable")
    x = ta.tensor(numbers)
    values, indices = x.sort(dim, descending)
    for found in (indices, x.argsort(dim, descending)):
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found.numpy(), right)
    assert_same(values.numpy(), np.take_along_axis(numbers, right, dim))
    if descending:
        np.testing.assert_array_equal(x.argmax(dim).numpy(), right.take(0, dim))
    elif dtype[0] != "f":  # NaN is the smallest too, in argmin alone
        np.testing.assert_array_equal(x.argmin(dim).numpy(), right.take(0, dim))


@pytest.mark.parametrize("replacement", [True, False])
def test_what_has_all_the_weight_is_drawn_from_each_row(replacement: bool) -> None:
    weights = np.eye(5)[[3, 0, 4]] * 7
    drawn = ta.tensor(weights).multinomial(4 if replacement else 1, replacement)
    assert drawn.dtype == np.int64
    assert drawn.tolist() == [[number] * (4 if replacement else 1) for number in (3, 0, 4)]
    drawn = ta.tensor(weights[0]).multinomial(4 if replacement else 1, replacement)
    assert drawn.tolist() == [3] * (4 if replacement else 1)
    wide = ta.tensor([[1e-300, 1e300, 0.0], [1e300, 0.0, 1e-300]], dtype=np.float64)
    assert wide.multinomial(1, replacement).tolist() == [[1], [0]]


def test_without_replacement_each_index_comes_once() -> None:
    rows = ta.tensor([[1.0, 2.0, 0.0, 3.0], [0.0, 1.0, 1e-30, 5.0]]).multinomial(3)
    assert [sorted(row) for row in rows.tolist()] == [[0, 1, 3], [1, 2, 3]]
    assert rows.tolist()[1][2] == 2
    assert sorted(ta.ones(6).multinomial(6).tolist()) == [*range(6)]


@pytest.mark.parametrize("number", [1, 2, 7, 29, 30])
@pytest.mark.parametrize("rows", [0, 3])
def test_without_replacement_indices_come_in_the_order_of_their_drawing(
    rows: int, number: int, rng: Any
) -> None:
    """Each weight is 1e20 times the next one, so the largest that is left is drawn."""
    weights = np.stack(
        [rng.permutation(10.0 ** np.arange(300, -300, -20)) for _ in range(rows or 1)]
    )
    drawn = ta.tensor(weights if rows else weights[0]).multinomial(number).numpy()
    right = np.argsort(-weights, -1)[:, :number]
    np.testing.assert_array_equal(drawn, right if rows else right[0])


@pytest.mark.parametrize("number", [1, 300, 2000, 3999, 4000])
def test_many_indices_come_in_the_order_of_their_drawing_too(number: int, rng: Any) -> None:
    """Each weight of a group of 200 is 1e25 times those of the next group."""
    groups = rng.permuted(np.tile(np.arange(20).repeat(200), (2, 1)), axis=1)
    drawn = ta.tensor(10.0 ** (250 - 25 * groups)).multinomial(number).numpy()
    for row, of_place in zip(drawn, groups, strict=True):
        assert len(set(row.tolist())) == number
        np.testing.assert_array_equal(of_place[row], np.arange(number) // 200)


@pytest.mark.parametrize("number", [1, 10, 600])
def test_fewer_indices_are_the_first_of_more(number: int, rng: Any) -> None:
    weights = ta.tensor(rng.random((2, 1000)))
    drawn = []
    for count in (number, 1000):
        ta.manual_seed(3)
        drawn.append(weights.multinomial(count).numpy())
    np.testing.assert_array_equal(drawn[0], drawn[1][:, :number])


def test_indices_are_drawn_in_proportion_to_their_weights() -> None:
    ta.manual_seed(5)
    weights = ta.tensor([1.0, 0.0, 2.0, 5.0]).expand(2, 4)
    for drawn in (
        weights.multinomial(4000, replacement=True).numpy(),
        ta.tensor([1.0, 0.0, 2.0, 5.0]).expand(8000, 4).multinomial(1).numpy().reshape(2, 4000),
    ):
        for row in drawn:
            shares = np.bincount(row, minlength=4) / 4000
            np.testing.assert_allclose(shares, [0.125, 0, 0.25, 0.625], atol=0.03)


# Reductions


@pytest.mark.parametrize("number", [0.1, 0.7, 1 / 3, -2.3])
@pytest.mark.parametrize("length", [3, 7, 10, 1000])
def test_equal_float64_numbers_have_no_variance(number: float, length: int) -> None:
    x = ta.full((length,), number, dtype=np.float64)
    assert x.var().item() == 0
    assert x.std().item() == 0


@pytest.mark.parametrize("name", ["std", "norm"])
def test_a_length_of_zero_has_the_slope_zero_and_no_curvature(name: str) -> None:
    x = leaf(np.zeros(3))
    assert ta.grad(getattr(x, name)(), x)[0].tolist() == [0, 0, 0]
    (slope,) = ta.grad(getattr(x, name)(), x, create_graph=True)
    assert slope.tolist() == [0, 0, 0]
    (curvature,) = ta.grad(slope, x, ta.tensor([1.0, 2.0, -3.0]).double())
    assert np.isnan(curvature.numpy()).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dim", [0, 1, None])
@pytest.mark.parametrize("name", ["var", "std", "norm", "prod"])
def test_slopes_and_curvatures_of_reductions(name: str, dim: Any, dtype: Any, rng: Any) -> None:
    numbers, step = signed(rng, 3, 5), signed(rng, 3, 5)
    axes = tuple(range(2)) if dim is None else (dim,)
    value = {
        "var": lambda x: x.var(axis=axes, ddof=1),
        "std": lambda x: x.std(axis=axes, ddof=1),
        "norm": lambda x: np.sqrt((x * x).sum(axes)),
        "prod": lambda x: x.prod(axes),
    }[name]
    numbers = numbers.astype(dtype).astype(np.float64)
    grad = signed(rng, *np.shape(value(numbers)))

    def along(t: complex) -> Any:
        return (value(numbers + t * step) * grad).sum()

    x = leaf(numbers.astype(dtype))
    out = getattr(x, name)(**({} if dim is None else {"dim": dim}))
    (slope,) = ta.grad(out, x, ta.tensor(grad.astype(dtype)), create_graph=True)
    (curvature,) = ta.grad(slope, x, ta.tensor(step.astype(dtype)))
    plain = ta.grad(getattr(x, name)(**({} if dim is None else {"dim": dim})), x,
                    ta.tensor(grad.astype(dtype)))[0]  # fmt: skip
    tolerance = 1e-4 if dtype == np.float32 else 1e-5
    h = 1e-4
    first = (along(h) - along(-h)) / (2 * h)
    second = (along(h) - 2 * along(0) + along(-h)) / h**2
    assert slope.dtype == curvature.dtype == plain.dtype == dtype
    assert (plain.numpy() * step).sum() == pytest.approx(first, rel=tolerance, abs=1e-4)
    assert (slope.detach().numpy() * step).sum() == pytest.approx(first, rel=tolerance, abs=1e-4)
    assert (curvature.numpy() * step).sum() == pytest.approx(second, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("numbers", [[0.0, 2.0, 3.0], [0.0, 0.0, 3.0], [1e-30] * 9, [1e30] * 9])
def test_the_slope_of_a_product_is_that_of_the_others(numbers: list[float]) -> None:
    x = leaf(np.array(numbers, np.float64))
    with np.errstate(over="ignore"):
        right = [np.prod(np.delete(x.detach().numpy(), i)) for i in range(len(numbers))]
        np.testing.assert_allclose(ta.grad(x.prod(), x)[0].numpy(), right, rtol=1e-12)
        small = leaf(np.array(numbers, np.float32))
        found = ta.grad(small.prod(), small)[0].numpy()
        np.testing.assert_allclose(found, np.array(right).astype(np.float32), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_slope_of_a_product_of_no_numbers_is_empty(dtype: Any) -> None:
    for x, dim in ((leaf(np.zeros((2, 0), dtype)), 1), (leaf(np.zeros((0, 2), dtype)), 0)):
        out = x.prod(dim)
        assert out.tolist() == [1, 1]
        (found,) = ta.grad(out, x, ta.tensor([0.7, -1.3]).to(dtype))
        assert (found.shape, found.dtype) == (x.shape, dtype)


@pytest.mark.parametrize("target", ["float16", "float32", "float64"])
@pytest.mark.parametrize("x", ["float16", "float32", "float64"])
def test_a_divergence_has_the_dtype_of_its_logarithms(x: str, target: str) -> None:
    logs = ta.tensor([[0.5, 0.5]], dtype=x).log()
    found = F.kl_div(logs, ta.tensor([[0.25, 0.75]], dtype=target), reduction="sum")
    assert found.dtype == x
    expected = 0.25 * np.log(0.5) + 0.75 * np.log(1.5)
    assert found.item() == pytest.approx(expected, rel=2e-3 if "float16" in (x, target) else 1e-6)
