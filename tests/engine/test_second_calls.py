"""What the first order, the first call or the first argument does not show of ops and checks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common import leaf

import tinyattn as ta
from tinyattn import nn
from tinyattn.errors import GradcheckError, GraphError, InPlaceError
from tinyattn.testing import gradcheck, gradgradcheck


def wrong_square() -> Any:
    """x * x with half of its derivative."""

    @ta.op
    def square(x: Any) -> Any:
        return x * x

    @square.vjp("x")
    def dx(grad: Any, x: Any) -> Any:
        return grad * x

    return square


def cube(square: Any) -> Any:
    """x ** 3, whose derivative is right, and is computed with `square`."""

    @ta.op
    def cube(x: Any) -> Any:
        return x * x * x

    @cube.vjp("x")
    def dx(grad: Any, x: Any) -> Any:
        return grad * square(x) * 3.0

    return cube


class Mixed(nn.Module):
    """x + cube(w), or x * cube(w)."""

    def __init__(self, function: Any, times: bool) -> None:
        super().__init__()
        self.w = nn.Parameter(ta.tensor([0.5, -1.2], dtype=np.float64))
        self.function, self.times = function, times

    def forward(self, x: ta.Tensor) -> ta.Tensor:
        y = self.function(self.w)
        return x * y if self.times else x + y


@pytest.mark.parametrize("times", [False, True])
@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("fast", [False, True])
def test_second_derivatives_of_parameters_are_checked(
    times: bool, recorded: bool, fast: bool
) -> None:
    x = ta.tensor([[1.0, 2.0]], dtype=np.float64, requires_grad=recorded)
    right, wrong = Mixed(lambda w: w * w * w, times), Mixed(cube(wrong_square()), times)
    assert gradcheck(right, x, fast=fast)
    assert gradcheck(wrong, x, fast=fast)  # of first order it is right
    assert gradgradcheck(right, x, fast=fast)
    with pytest.raises(GradcheckError):
        gradgradcheck(wrong, x, fast=fast)


@pytest.mark.parametrize("size", [1.0, 1e2, 1e4])
def test_gradcheck_takes_inputs_of_any_size(size: float) -> None:
    x = ta.tensor(np.array([1.5, -0.7]) * size, requires_grad=True)
    assert gradcheck(lambda x: (x / size) ** 3, x)
    assert gradcheck(lambda x: (x / size).exp(), x)


def test_a_change_after_the_first_derivative_is_noticed_by_the_second() -> None:
    x = leaf([1.0, 2.0])
    (first,) = ta.grad(cube(lambda x: x * x)(x).sum(), x, create_graph=True)
    with ta.no_grad():
        x[0] = 5.0
    with pytest.raises((GraphError, InPlaceError)):
        ta.grad(first.sum(), x)


def test_what_a_rule_stores_is_no_part_of_the_gradients() -> None:
    stored: list[Any] = []

    @ta.op
    def product(x: Any, y: Any) -> Any:
        return x * y

    @product.vjp("x", "y")
    def dxy(grad: Any, x: Any, y: Any) -> Any:
        stored[:] = grad * y, grad * x
        return tuple(stored)

    x, y = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    product(x, y).sum().backward()
    for array in stored:
        array[...] = 100
    assert x.grad.tolist() == [3, 4]
    assert y.grad.tolist() == [1, 2]


def test_a_rule_that_changes_an_array_of_the_graph_is_noticed() -> None:
    held: list[ta.Tensor] = []

    @ta.op
    def twice(x: Any) -> Any:
        return x * 2

    @twice.vjp("x")
    def dx(grad: Any) -> Any:
        with ta.no_grad():
            held[0][0] = 9.0
        return grad * 2.0

    x = leaf([1.0, 2.0])
    held.append(weight := ta.tensor([3.0, 4.0]))
    out = (twice(x) * weight).sum()
    with pytest.raises(GraphError):
        out.backward()
    assert x.grad is None


def test_one_tensor_twice_among_the_inputs_gives_two_gradients() -> None:
    x = leaf([1.0, 2.0])
    one, other = ta.grad((x * x).sum(), [x, x])
    assert not np.shares_memory(one.data, other.data)
    assert one.tolist() == other.tolist() == [2, 4]


def test_a_gradient_that_is_passed_is_copied_to_where_it_arrives_unchanged() -> None:
    x, start = leaf([1.0, 2.0]), ta.tensor([3.0, 4.0])
    y = x + 0.0
    y.retain_grad()
    y.backward(start)
    x.backward(start)
    with ta.no_grad():
        start[0] = 100.0
    assert y.grad.tolist() == [3, 4]
    assert x.grad.tolist() == [6, 8]
