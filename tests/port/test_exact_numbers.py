"""Steps and logarithms at the numbers where a rounding shows: they are PyTorch's, or exact."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import torch_names

POWERS_OF_2 = {np.float32: range(-149, 128), np.float64: range(-1074, 1024)}
POWERS_OF_10 = {np.float32: range(-37, 39), np.float64: range(-307, 309), np.int64: range(19)}
SPECIAL = [0.0, -0.0, 1.5, -1.5, 2.0, -7.25, 0.1, 1e-45, 1e30, 16777217.0, math.inf, -math.inf]
WHOLE = [7, -7, 2**24 + 1, 2**53 + 1, -(2**53 + 1), 2**62 - 1, 0]


@pytest.mark.parametrize("dtype", POWERS_OF_2)
def test_log2_is_exact_at_powers_of_2(dtype: Any) -> None:
    exponents = np.array(POWERS_OF_2[dtype])
    x = ta.tensor(np.array([2.0**n for n in exponents], dtype))
    np.testing.assert_array_equal(torch_names.log2(x).numpy(), exponents)


@pytest.mark.parametrize("dtype", POWERS_OF_10)
def test_log10_is_exact_at_powers_of_10(dtype: Any) -> None:
    exponents = np.array(POWERS_OF_10[dtype])
    x = ta.tensor(
        np.array([int(10**n) if dtype == np.int64 else float(f"1e{n}") for n in exponents]).astype(
            dtype
        )
    )
    assert torch_names.log10(x).numpy().tolist() == exponents.tolist()


def gradients(space: Any, function: Any, *arrays: Any) -> list[Any]:
    inputs = [space.tensor(array, requires_grad=True) for array in arrays]
    out = function(space, *inputs)
    cotangent = np.random.default_rng(3).normal(size=tuple(out.shape)).astype(arrays[0].dtype)
    out.backward(space.tensor(cotangent))
    return [out.detach().numpy(), *(x.grad.numpy() for x in inputs)]


FUNCTIONS = {
    "log2": (lambda space, x, y: space.log2(abs(x) + 0.5) * y),
    "log10": (lambda space, x, y: space.log10(abs(x) + 0.5) * y),
    "trunc": (lambda space, x, y: space.div(x, y, rounding_mode="trunc")),
    "floor": (lambda space, x, y: space.div(x, y, rounding_mode="floor")),
    "trunc of a number": (lambda space, x, y: space.div(x, 0.0, rounding_mode="trunc") + y),
    "smooth l1": lambda space, x, y: space.nn.functional.smooth_l1_loss(
        x, y, reduction="none", beta=0.5
    ),
} | {
    f"lerp {weight}": lambda space, x, y, weight=weight: space.lerp(x, y, weight)
    for weight in (0.0, 0.25, 0.5, 1.0, 2.0, -1.0)
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_special_numbers_are_pytorchs(torch: Any, name: str, dtype: Any) -> None:
    x, y = (
        grid.ravel() for grid in np.meshgrid(np.array(SPECIAL, dtype), np.array(SPECIAL, dtype))
    )
    ours = gradients(torch_names, FUNCTIONS[name], x, y)
    theirs = gradients(torch, FUNCTIONS[name], x, y)
    for mine, right in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, right, 1e-6 if dtype == np.float32 else 1e-14, 2e-45)


def test_equal_numbers_have_the_second_derivative_of_the_square(torch: Any) -> None:
    for t in (torch_names, torch):
        x = t.tensor([1.0, 2.0, 5.0], requires_grad=True)
        loss = t.nn.functional.smooth_l1_loss(x, t.tensor([1.0, 2.5, 1.0]), beta=2.0)
        (first,) = t.autograd.grad(loss, x, create_graph=True)
        (second,) = t.autograd.grad(first, x, t.tensor([3.0, -6.0, 9.0]))
        assert second.tolist() == [0.5, -1.0, 0.0]


def test_digits_of_float16_do_not_overflow(torch: Any) -> None:
    numbers = [65504.0, 710.0, -745.0, 0.126]
    mine, right = (space.tensor(numbers, dtype=space.float16) for space in (torch_names, torch))
    assert mine.round(decimals=2).dtype == np.float16
    assert mine.round(decimals=2).tolist() == right.round(decimals=2).tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_quotients_of_special_numbers_are_numpys(dtype: Any) -> None:
    """Each pair alone, because a kernel leaves the whole array to NumPy for one unusual pair."""
    for x in np.array(SPECIAL, dtype):
        for y in np.array(SPECIAL, dtype):
            found = ta.tensor([x]) % ta.tensor([y]), ta.tensor([x]) // ta.tensor([y])
            right = np.remainder(x, y), np.floor_divide(x, y)
            np.testing.assert_array_equal([each.item() for each in found], right)


def test_a_row_without_a_finite_score_has_the_gradient_0() -> None:
    x = ta.tensor([[-math.inf, -math.inf], [-math.inf, 1.0]], requires_grad=True)
    total = x.logsumexp(-1)
    total.backward(ta.tensor([-0.7, 1.3]))
    assert total.tolist() == [-math.inf, 1.0]
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), np.array([[0, 0], [0, 1.3]], np.float32))


@pytest.mark.parametrize("mode", ["trunc", "floor"])
@pytest.mark.parametrize("divisor", [3, -7])
def test_whole_numbers_are_divided_exactly(mode: str, divisor: int) -> None:
    found = torch_names.div(torch_names.tensor(WHOLE), divisor, rounding_mode=mode)
    right = [n // divisor for n in WHOLE]
    if mode == "trunc":
        right = [abs(n) // abs(divisor) * (1 if n * divisor > 0 else -1) for n in WHOLE]
    assert found.tolist() == right
    assert found.dtype == ta.int64


def test_lerp_takes_weights_of_each_element(torch: Any, rng: Any) -> None:
    x, y, weight = rng.normal(size=(3, 20))
    lerp = lambda space, *inputs: space.lerp(*inputs)  # noqa: E731
    ours, theirs = (gradients(space, lerp, x, y, weight) for space in (torch_names, torch))
    for mine, right in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, right, 1e-12)
    assert torch_names.lerp(ta.tensor([1e8]), ta.tensor([1.0]), 1.0).item() == 1
    assert ta.tensor([1e8]).lerp_(ta.tensor([1.0]), ta.tensor([1.0])).item() == 1
