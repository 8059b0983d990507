"""What gradcheck is made of: slopes along a line, the kinks near it, and what is said of them."""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import nn
from tinyattn.errors import DtypeError, GradcheckError
from tinyattn.testing import check_op, finite_differences, gradcheck, gradgradcheck, op_checks
from tinyattn.testing.finite_differences import Checker, index
from tinyattn.testing.slopes import BESIDE, PLACES, Kinks, Line, even_parts, moved, scale_of, signed

EPS = float(np.finfo(np.float64).eps)


def leaf(*numbers: Any) -> ta.Tensor:
    return ta.tensor(numbers, dtype=ta.float64, requires_grad=True)


def checker_of(fn: Callable[..., Any], *inputs: ta.Tensor, **options: Any) -> Checker:
    return Checker(fn, inputs, np.random.default_rng(0), **options)


def line_of(fn: Callable[..., Any], x: ta.Tensor, *direction: float, o: int = 0) -> Line:
    return Line(checker_of(fn, x), o, [x], [np.array(direction)])


# Values and slopes along a line


def test_values_stand_at_their_steps_and_count_from_the_largest_number() -> None:
    x = leaf(-2.0, 0.5)
    line = line_of(lambda x: (x * 0, 10 * x), x, 1.0, -3.0, o=1)
    found = line.values([-1.0, 0.0, 0.25])
    assert np.allclose(found, [[-40.0, 65.0], [-20.0, 5.0], [-15.0, -10.0]])
    assert x.tolist() == [-2.0, 0.5]
    assert np.allclose(line.largest, [40.0, 65.0])
    line.values([0.0])
    assert np.allclose(line.largest, [40.0, 65.0])
    line.values([2.0])
    assert np.allclose(line.largest, [40.0, 115.0])


@pytest.mark.parametrize("value", [0.0, 3.5, -np.inf, np.inf])
def test_only_what_is_the_same_everywhere_counts_as_0(value: float) -> None:
    """A jump is seen, though one of its sides is infinite."""

    def fn(x: ta.Tensor) -> ta.Tensor:
        return ta.where(ta.tensor([True, False, False]) | (x > 0.75), x * 0 + value, x)

    found = line_of(fn, leaf(0.5, 0.5, 0.5), 0.0, 1.0, -1.0).values([0.0, 1.0, 0.125])
    assert found.tolist() == [[0.0, 0.5, 0.5], [0.0, value, -0.5], [0.0, 0.625, 0.375]]
    largest = line_of(fn, leaf(0.5, 0.5, 0.5), 0.0, 1.0, -1.0)
    largest.values([0.0, 1.0])
    one = abs(value) if np.isfinite(value) else 0.0
    assert largest.largest.tolist() == [one, max(one, 0.5), 0.5]


def test_a_function_that_needs_a_graph_has_its_values_everywhere() -> None:
    def fn(x: ta.Tensor) -> ta.Tensor:
        inner = ta.tensor(x.numpy(), requires_grad=True)
        (inner**3).sum().backward()
        return x * inner.grad

    line = line_of(fn, leaf(2.0), 1.0)
    with ta.no_grad():
        assert line.values([0.0]).tolist() == [[0.0]]
        assert np.allclose(line.values([0.0, 0.5]), [[24.0], [81.0]])


@pytest.mark.parametrize("power", range(1, 7))
@pytest.mark.parametrize("direction", [1.0, -1.0, 0.5])
def test_slopes_are_those_of_the_five_point_rule(power: int, direction: float) -> None:
    """It is exact up to the fourth power, and bends are 0 up to the third."""
    for at in (0.5, -2.0, 40.0):
        scale = max(1.0, abs(at))
        for step in (1e-1, 1e-2):
            slope, bend = line_of(lambda x: x**power, leaf(at), direction).slope(step)
            h = step * scale * direction
            a, b, c, d = ((at + place * h) ** power for place in (-2, -1, 1, 2))
            near = {"rtol": 1e-9, "atol": 1e-9 * scale ** (power - 1)}
            below = 12 * step * scale
            assert np.allclose(slope, (a - 8 * b + 8 * c - d) / below, **near)
            assert np.allclose(bend, (a - 4 * b + 6 * at**power - 4 * c + d) / below, **near)
            if power < 5:
                assert np.allclose(slope, power * at ** (power - 1) * direction, **near)
            if power < 4:
                assert np.allclose(bend, 0.0, **near)


@pytest.mark.parametrize("size", [0.25, 1.0, 800.0])
def test_rounding_is_that_of_the_largest_values_over_the_length_of_a_step(size: float) -> None:
    line = line_of(lambda x: ta.stack([3 * x[0], -7 * x[0]]), leaf(-size), 1.0)
    line.values([0.0])
    for step in (1e-3, 0.5):
        right = np.array([3.0, 7.0]) * size * 8 * EPS / (step * max(size, 1.0))
        assert np.allclose(line.rounding(step), right, rtol=1e-12, atol=0)


# Kinks


def test_walks_pass_the_point_and_leave_it_as_it_was() -> None:
    x = leaf(4.0, -0.5)
    before = x._data
    line = line_of(lambda x: ta.stack([3 * x[0] - x[1], x[0] * x[0], x[1]]), x, 1.0, -2.0)
    slopes = line.walks(1e-2)
    assert slopes.shape == (len(BESIDE), len(PLACES) - 1, 3)
    assert x._data is before
    assert np.allclose(slopes[:, :, 0], 5.0)
    assert np.allclose(slopes[:, :, 2], -2.0)
    # Of a square, the slope is that of the middle of two places.
    middles = (PLACES[1:] + PLACES[:-1]) / 2
    assert np.allclose(slopes[0, :, 1], 2 * (4.0 + 4.0 * middles * 1e-2))
    away = slopes[:, :, 1] - slopes[0, :, 1]
    assert np.allclose(away, away[:, :1])
    far = away[1::2, 0]
    assert np.allclose(far, -away[2::2, 0])
    sizes = np.abs(far) / (2 * 1e-2 * 4.0 * np.array(BESIDE[1::2]))
    assert ((sizes >= 0.5) & (sizes <= 1.5)).all()


def test_even_parts_are_a_constant_the_place_and_the_distance_in_each_pair() -> None:
    parts = even_parts()
    count = len(PLACES) - 1
    assert parts.shape == (len(BESIDE) * count, 5)
    middles = (PLACES[1:] + PLACES[:-1]) / 2
    assert (parts[:, 0] == 1).all()
    assert parts[:, 1].tolist() == [*middles] * len(BESIDE)
    for pair in (1, 2, 3):
        column = parts[:, 1 + pair].reshape(len(BESIDE), count)
        for walk, beside in enumerate(BESIDE):
            right = beside if walk in (2 * pair - 1, 2 * pair) else 0.0
            assert (column[walk] == right).all()


def test_a_kink_has_the_slopes_of_both_sides_and_none_where_several_meet() -> None:
    def fn(x: ta.Tensor) -> ta.Tensor:
        jump = ta.where(x > 1.001, 5 * x, 0 * x)
        zigzag = abs(x - 0.999) - 3 * abs(x - 1.001)
        parts = [2 * x, -3 * (x - 1).relu() + x, abs(x - 1), jump, zigzag, x * x]
        return ta.stack([part[0] for part in parts])

    tolerance = np.array([1e-6, 1e-6, 1e-6, 1e-6, 1e-6, 1e-2])
    found = line_of(fn, leaf(1.0), 1.0).kinks(1e-3, tolerance)
    assert found.here.tolist() == [False, True, True, True, True, False]
    assert np.allclose(found.low[:3], [2.0, -2.0, -1.0])
    assert np.allclose(found.high[:3], [2.0, 1.0, 1.0])
    assert np.allclose(found.margin[:3], 1e-6 + np.array([0.0, 3.0, 2.0]) / 1000, rtol=1e-4)
    assert found.low[3:5].tolist() == [-np.inf] * 2
    assert found.high[3:5].tolist() == [np.inf] * 2


@pytest.mark.parametrize("numbers", [(), (0.0,), (0.5, -0.9), (1.0,), (-7.0, 3.0), (2.0, 9.0)])
def test_a_scale_is_the_largest_number_of_either_sign_and_1_at_least(numbers: Any) -> None:
    assert scale_of(ta.tensor(numbers, dtype=ta.float64)) == max([1.0, *map(abs, numbers)])


def test_signed_numbers_have_both_signs_and_sizes_from_a_half_to_one_and_a_half() -> None:
    found = signed(np.random.default_rng(0), (40, 25))
    assert found.shape == (40, 25)
    assert 0.5 <= np.abs(found).min() < 0.51
    assert 1.49 < np.abs(found).max() <= 1.5
    assert 400 < (found > 0).sum() < 600


def test_each_tensor_moves_by_its_own_and_comes_back_also_after_an_error() -> None:
    x, y = leaf(1.0, 2.0), ta.tensor(5.0, dtype=ta.float64)
    before = x._data, y._data

    def within() -> None:
        with moved([x, y], [np.array([0.5, -1.0]), np.array(-2.0)]):
            assert x.tolist() == [1.5, 1.0]
            assert y.tolist() == 3.0
            assert isinstance(y._data, np.ndarray)
            raise KeyError

    with pytest.raises(KeyError):
        within()
    assert x._data is before[0]
    assert y._data is before[1]


# What is said


def kinks_of(here: list[bool], low: float, high: float, margin: float) -> Kinks:
    return Kinks(np.array(here), *(np.full(len(here), one) for one in (low, high, margin)))


@pytest.mark.parametrize("hint", ["", "; see there"])
@pytest.mark.parametrize(
    ("i", "here", "said"),
    [
        (None, [False, False], "0.25, no kink is near"),
        (None, [False, True], "0.25, without the numbers at a kink"),
        (0, [False, True], "0.25, no kink is near"),
        (1, [False, True], "-1.5 to 2.5 at a kink"),
    ],
)
def test_a_wrong_derivative_is_said_beside_the_slope_or_those_of_the_kink(
    i: int | None, here: list[bool], said: str, hint: str
) -> None:
    checker = checker_of(lambda x: x, leaf(1.0), hint=hint)
    with pytest.raises(GradcheckError) as caught:
        checker.judge("d y / d x", i, 7.0, 0.25, kinks_of(here, -1.5, 2.5, 0.5))
    right = f"d y / d x: the derivative gives 7, finite differences give {said}{hint}"
    assert str(caught.value) == right


@pytest.mark.parametrize(
    ("low", "high", "right", "wrong"),
    [
        (-1.0, 2.0, (-1.49, -1.0, 0.0, 2.0, 2.49), (-1.51, 2.51)),
        (1.0, 2.0, (-0.49, 0.0, 0.5, 2.49), (-0.51, 2.51)),
        (-2.0, -1.0, (-2.49, -0.5, 0.0, 0.49), (-2.51, 0.51)),
        (-np.inf, np.inf, (-1e9, 0.0, 1e9), ()),
    ],
)
def test_at_a_kink_all_between_both_slopes_and_0_is_right(
    low: float, high: float, right: tuple[float, ...], wrong: tuple[float, ...]
) -> None:
    checker, kinks = checker_of(lambda x: x, leaf(1.0)), kinks_of([False, True], low, high, 0.5)
    for analytic in right:
        checker.judge("", 1, analytic, 0.25, kinks)
        for i in (0, None):  # which is no number at the kink
            with pytest.raises(GradcheckError):
                checker.judge("", i, analytic, 0.25, kinks)
    for analytic in wrong:
        with pytest.raises(GradcheckError, match=f"gives {analytic:.7g}, .* at a kink"):
            checker.judge("", 1, analytic, 0.25, kinks)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 1, 4)])
def test_an_element_is_named_by_its_index(shape: tuple[int, ...]) -> None:
    x = ta.tensor(np.zeros(shape))
    for i, place in enumerate(np.ndindex(shape)):
        assert index(i, x) == index(i, x.numpy()) == str(list(place))


# Arguments


def defaults_of(fn: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(fn).parameters.values()
    return {x.name: x.default for x in parameters if x.default is not x.empty}


def test_defaults_of_the_checks() -> None:
    usual = {"eps": 1e-3, "atol": 1e-7, "rtol": 1e-6}
    more = {"inputs": (), "fast": False, "seed": 0}
    assert defaults_of(gradcheck) == usual | more
    assert defaults_of(gradgradcheck) == usual | more | {"atol": 1e-6, "rtol": 1e-5}
    assert defaults_of(Checker.__init__) == usual | {"hint": ""}
    of_ops = {"reference": None, "smooth": True, "second_order": True, "bitwise": False}
    assert defaults_of(check_op) == of_ops | {"eps": 1e-3, "seed": 0}


OPTIONS = {"eps": 1e-4, "atol": 3e-6, "rtol": 2e-5}


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
def test_each_option_of_a_check_comes_where_it_belongs(
    check: Any, fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also to the Checker of the gradient, whose inputs are the cotangents too."""
    seen = []

    def note(self: Checker, fast: bool) -> list[str]:
        options = {name: getattr(self, name) for name in OPTIONS}
        seen.append((options, self.hint, fast, len(self.checked), self.rng.random()))
        return []

    monkeypatch.setattr(Checker, "check", note)
    inputs = leaf(1.0), leaf(2.0)
    for seed in (5, 6):
        assert check(lambda x, y: x * y, inputs, fast=fast, seed=seed, **OPTIONS) is True
    numbers = [number for *_, number in seen]
    for options, hint, is_fast, count, _ in seen:
        assert options == OPTIONS
        assert hint == (finite_differences.FAST_HINT if fast else "")
        assert is_fast is fast
        assert count == (2 if check is gradcheck else 3)
    assert numbers[0] != numbers[1]
    if check is gradcheck:
        assert numbers == [np.random.default_rng(seed).random() for seed in (5, 6)]


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.b = nn.Parameter(ta.tensor([1.0], dtype=ta.float64))
        self.frozen = nn.Parameter(ta.tensor([1.0]), requires_grad=False)
        self.a = nn.Parameter(ta.tensor([2.0, 3.0], dtype=ta.float64))

    def forward(self, *inputs: Any) -> ta.Tensor:
        return inputs[0] * self.a * self.b


def test_inputs_come_before_parameters_each_by_its_place_and_name() -> None:
    x, y, model = leaf(1.0), leaf(4.0), Two()
    checker = Checker(model, [x, "text", ta.ones(1), 3, y], np.random.default_rng(0))
    named = {"input 0": x, "input 4": y, "parameter 'b'": model.b, "parameter 'a'": model.a}
    assert [name for name, _ in checker.checked] == [*named]
    for found, right in zip(checker.tensors, named.values(), strict=True):
        assert found is right
    for found, right in zip(checker.parameters, model.parameters(), strict=True):
        assert found is right
    (single,) = Checker(model, x, np.random.default_rng(0)).inputs
    assert single is x


@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
def test_wrong_arguments_of_a_check_are_named(check: Any) -> None:
    x, wide = leaf(1.0), ta.tensor([1.0], requires_grad=True)
    said = "gradcheck needs float64, input 1 is float32: finite differences lose half of the digits"
    for fn, inputs, options, error, words in [
        (3, [x], {}, TypeError, "fn is a function of Tensors, or a module, got int 3"),
        (abs, 3, {}, TypeError, "inputs "),
        (abs, [x], {"eps": 0.0}, ValueError, "eps must be a number >= 1e-12, got 0.0"),
        (abs, [x], {"eps": 9e-13}, ValueError, "eps must be a number >= 1e-12, got 9e-13"),
        (abs, [ta.ones(1), 2.0], {}, ValueError, "gradcheck needs a float64 input or parameter "),
        (abs, [x, wide], {}, DtypeError, said),
        (lambda x: (x, 1.0), [x], {}, TypeError, "output 1 of fn must be a Tensor, got float 1.0"),
    ]:
        with pytest.raises(error, match=f"^{re.escape(words)}"):
            check(fn, inputs, **options)


def test_outputs_are_counted_as_they_come_and_only_floats_have_gradients() -> None:
    x, n = leaf(1.0), ta.tensor([3])
    y = x * 2
    for several in ((x, n, y), [x, n, y]):
        for found, right in zip(finite_differences.tensors_in(several), several, strict=True):
            assert found is right
        for found, right in zip(finite_differences.floats_in(several), (x, y), strict=True):
            assert found is right
    assert finite_differences.tensors_in(n)[0] is n
    assert finite_differences.floats_in(n) == ()
    of_kinds = [finite_differences.requires(one) for one in (x, n, ta.ones(1), 3.0, None)]
    assert of_kinds == [True, False, False, False, False]


# check_op


@pytest.mark.parametrize("low", ["float32", "float16"])
@pytest.mark.parametrize("place", ["result", "gradient 0", "gradient 1"])
def test_results_and_gradients_have_the_dtype_of_the_inputs(
    place: str, low: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine gives gradients theirs; if it did not, check_op would say so."""
    right = op_checks.run

    def run(*args: Any) -> Any:
        outputs, gradients = right(*args)
        if outputs[0].dtype == low and place == "result":
            outputs = [outputs[0].astype(np.float64)]
        elif outputs[0].dtype == low:
            gradients[int(place[-1])] = gradients[int(place[-1])].astype(np.float64)
        return outputs, gradients

    arguments = [leaf(1.0, 2.0), leaf(3.0, -0.5)]
    op_checks.check_dtypes(operator.mul, arguments, np.random.default_rng(0))
    monkeypatch.setattr(op_checks, "run", run)
    with pytest.raises(GradcheckError) as caught:
        op_checks.check_dtypes(operator.mul, arguments, np.random.default_rng(0))
    assert str(caught.value) == f"inputs of {low} gave a result or gradient of float64"


@pytest.mark.parametrize("factor", [0, 1, -2])
@pytest.mark.parametrize("i", [0, 1])
def test_each_gradient_is_linear_in_the_cotangent(
    factor: int, i: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, calls = op_checks.run, []

    def run(*args: Any) -> Any:
        outputs, gradients = right(*args)
        calls.append(factor)
        if [0, 1, -2].index(factor) == len(calls) - 1:
            gradients[i] = gradients[i] + np.array([0.0, 1e-9])
        return outputs, gradients

    arguments = [leaf(1.0, 2.0), leaf(3.0, -0.5)]
    op_checks.check_linearity(operator.mul, arguments, np.random.default_rng(0))
    monkeypatch.setattr(op_checks, "run", run)
    with pytest.raises(GradcheckError) as caught:
        op_checks.check_linearity(operator.mul, arguments, np.random.default_rng(0))
    of_two = "of -2 times a cotangent is not -2 times its own"
    said = of_two if factor else "is not zero for a cotangent of zero"
    assert str(caught.value) == f"gradient {i} {said}"
