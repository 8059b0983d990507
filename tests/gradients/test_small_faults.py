"""The smallest wrong rules that gradcheck and check_op notice, and right ones that they accept."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import nn
from tinyattn.errors import GradcheckError
from tinyattn.testing import check_op
from tinyattn.testing.finite_differences import FAST_HINT, Checker
from tinyattn.testing.op_checks import LAYOUTS, close
from tinyattn.testing.slopes import Line, random_moves

both_modes = pytest.mark.parametrize("fast", [False, True], ids=["full", "fast"])


def op_with(forward: Callable[..., Any], rule: Callable[..., Any]) -> Any:
    op = ta.op(forward)
    op.vjp("x")(rule)
    return op


def leaf(*numbers: float) -> ta.Tensor:
    return ta.tensor(numbers, dtype=ta.float64, requires_grad=True)


def is_accepted(op: Any, x: ta.Tensor, **options: Any) -> bool:
    try:
        return ta.gradcheck(op, x, **options)
    except GradcheckError as error:
        assert "finite differences give" in str(error)  # noqa: PT017
        return False


# The tolerances


@pytest.mark.parametrize("share", [0.9, 1.1])
def test_one_number_may_differ_by_the_tolerance_and_no_more(share: float) -> None:
    def wrong_by(error: float) -> Any:
        return op_with(lambda x: 3 * x + 1, lambda grad: grad * (3 + error))

    x = leaf(0.5)
    by_atol = is_accepted(wrong_by(share * 1e-3), x, atol=1e-3, rtol=0.0)
    by_rtol = is_accepted(wrong_by(share * 3e-3), x, atol=0.0, rtol=1e-3)
    assert by_atol == by_rtol == (share < 1)


@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (4, 1), (1, 9), (4, 9)])
def test_the_tolerance_of_a_sum_grows_with_the_root_of_its_terms(inputs: int, outputs: int) -> None:
    x, directions, weights = leaf(*[0.5] * inputs), np.ones(inputs), np.ones(outputs)

    def tolerance(**options: float) -> float:
        rng = np.random.default_rng(0)
        checker = Checker(lambda x: 3 * x.sum() + ta.ones(outputs), [x], rng, **options)
        line, gradient = Line(checker, 0, [x], [directions]), np.full(inputs, 3.0 * outputs)
        return float(checker.projected(line, gradient, weights)[4])

    np.testing.assert_allclose(
        tolerance(atol=1e-3, rtol=0.0), 1e-3 * np.sqrt(inputs * outputs), rtol=1e-12
    )
    np.testing.assert_allclose(tolerance(atol=0.0, rtol=1e-3), 3e-3 * inputs * outputs, rtol=1e-9)


@pytest.mark.parametrize(
    ("slope", "error", "is_right"),
    [
        (1e-5, 1e-9, False),  # a thousandth of atol, and not a tenth
        (1e-7, 0.8e-10, True),  # and no less than a thousandth
        (1e-7, 1.2e-10, False),
        (1e-2, 0.9e-9, True),  # as much smaller as the slope
        (1e-2, 1.4e-8, False),
    ],
)
def test_beside_small_numbers_atol_is_as_small_down_to_a_thousandth(
    slope: float, error: float, is_right: bool
) -> None:
    rule = op_with(lambda x: slope * x, lambda grad: grad * (slope + error))
    assert is_accepted(rule, leaf(0.5)) is is_right


@pytest.mark.parametrize(("error", "is_right"), [(1e-13, True), (1e-9, False)])
def test_recorded_gradients_agree_to_eleven_digits(error: float, is_right: bool) -> None:
    def rule(grad: Any, x: Any) -> Any:
        return 2 * grad * x * (1 + error if isinstance(x, ta.Tensor) else 1.0)

    checker = Checker(op_with(lambda x: x * x, rule), leaf(0.5, -2.0), np.random.default_rng(0))
    if is_right:
        checker.check_recorded()
        return
    with pytest.raises(GradcheckError, match="another with create_graph=True"):
        checker.check_recorded()


def test_rounding_beside_the_gradient_of_the_output_is_no_difference() -> None:
    """Also if another output has no elements, and so no gradient to compare with."""
    noisy = op_with(
        lambda x: 0.0 * x, lambda grad: grad * (1e-17 if isinstance(grad, ta.Tensor) else 0.0)
    )
    for fn in (noisy, lambda x: (noisy(x), x[:0] * 2.0)):
        Checker(fn, leaf(0.5, -2.0), np.random.default_rng(0)).check_recorded()


@pytest.mark.parametrize(("error", "is_right"), [(3e-6, True), (1e-4, False)])
def test_second_derivatives_may_differ_in_the_sixth_digit(error: float, is_right: bool) -> None:
    """In check_op as in gradgradcheck."""

    def rule(grad: Any, x: Any) -> Any:
        if isinstance(x, ta.Tensor):  # the same value, and another slope
            x = x.detach() + (x - x.detach()) * (1 + error)
        return 3 * grad * x * x

    cube = op_with(lambda x: x * x * x, rule)
    if is_right:
        check_op(cube, [(np.array([100.0, -300.0]),)])
        return
    with pytest.raises(GradcheckError, match="second order"):
        check_op(cube, [(np.array([100.0, -300.0]),)])


@pytest.mark.parametrize(("error", "is_right"), [(4e-7, True), (1e-4, False)])
def test_second_derivatives_of_0_may_differ_by_a_millionth(error: float, is_right: bool) -> None:
    def rule(grad: Any, x: Any) -> Any:
        return grad * (1 + error * (x - x.detach())) if isinstance(x, ta.Tensor) else grad * 1.0

    same = op_with(lambda x: x * 1.0, rule)
    if is_right:
        check_op(same, [(np.array([0.5, -2.0]),)])
        return
    with pytest.raises(GradcheckError, match="second order"):
        check_op(same, [(np.array([0.5, -2.0]),)])


@pytest.mark.parametrize(("error", "is_right"), [(5e-13, True), (1e-9, False)])
def test_values_agree_with_the_reference_to_twelve_digits(error: float, is_right: bool) -> None:
    """Of the number itself, or of the largest one."""
    for wrong in (np.array([error, 0.0]), np.array([0.0, error])):
        reference = lambda x, wrong=wrong: x + wrong  # noqa: E731
        sample = [(np.array([1.0, 0.0]),)]
        if is_right:
            check_op(lambda x: x * 1.0, sample, reference=reference)
            continue
        with pytest.raises(GradcheckError, match="the reference gives"):
            check_op(lambda x: x * 1.0, sample, reference=reference)


def test_second_derivatives_by_a_parameter_are_checked_too() -> None:
    class Cubed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(ta.tensor([1.5, -2.0], dtype=ta.float64))
            self.cube = op_with(lambda x: x * x * x, lambda grad, x: 3 * grad * wrong_square(x))

        def forward(self, x: ta.Tensor) -> ta.Tensor:
            return x + self.cube(self.weight)

    assert ta.gradcheck(Cubed(), leaf(0.5, -2.0))
    with pytest.raises(GradcheckError, match="parameter 'weight'"):
        ta.gradgradcheck(Cubed(), leaf(0.5, -2.0))


# What is said


@pytest.mark.parametrize(
    ("slope", "said"),
    [(0.0, "0, no kink is near (or fn computes in float32)"), (1.0, "1, no kink is near")],
)
def test_a_slope_of_0_may_come_from_float32(slope: float, said: str) -> None:
    with pytest.raises(GradcheckError) as caught:
        ta.gradcheck(op_with(lambda x: slope * x, lambda grad: 3.0 * grad), leaf(0.5))
    assert str(caught.value).endswith(f"finite differences give {said}")


def test_only_the_fast_check_says_that_the_full_one_names_the_element() -> None:
    first = op_with(lambda x: x * x, lambda grad, x: grad * x)
    second = op_with(lambda x: x * x * x, lambda grad, x: 3 * grad * wrong_square(x))
    for check, wrong in ((ta.gradcheck, first), (ta.gradgradcheck, second)):
        for fast in (False, True):
            with pytest.raises(GradcheckError, match="no kink is near") as caught:
                check(wrong, leaf(0.5, -2.0), fast=fast)
            assert str(caught.value).endswith(FAST_HINT if fast else "no kink is near")


def wrong_square(x: Any) -> Any:
    """x * x, with a wrong derivative."""
    return x * (x.detach() if isinstance(x, ta.Tensor) else x)


def test_only_numbers_at_a_kink_are_counted_and_not_those_near_it() -> None:
    x = np.full(70, 5e-4)
    x[3] = 0.0
    said = check_op(abs, [(x,)], second_order=False)
    assert said.endswith("lifetime; 1 at a kink, first sample 0, output 0[3] by input 0")
    said = check_op(abs, [(x[:5],)], second_order=False)
    assert said.endswith("; 1 at a kink, first sample 0, d output 0[3] / d input 0[3]")


def test_kinks_of_the_second_derivative_are_named_by_output_and_input() -> None:
    said = check_op(lambda x: x.relu() ** 2, [(np.array([1.0, 0.0]),)])
    assert said.endswith("; 1 at a kink, first sample 0, output 0[1] by input 0")


# At a kink


def test_a_derivative_that_is_wrong_only_beside_the_kink() -> None:
    """Five steps of the smallest size away, where no other point is looked at."""
    wrong = op_with(
        lambda x: np.maximum(x, 0), lambda grad, x: grad * np.where(abs(x) < 1e-5, 5.0, x > 0)
    )
    for seed in range(4):
        for number in (-1e-6, 1e-6):
            with pytest.raises(GradcheckError, match="derivative gives 5, finite"):
                ta.gradcheck(wrong, leaf(number), seed=seed)


@pytest.mark.parametrize("value", [50.0, -50.0])
def test_each_number_lies_between_its_own_slopes(value: float) -> None:
    """And not between those of another number of the output."""
    slopes = np.array([1.0, 100.0, -100.0])

    def rule(grad: Any, x: Any) -> Any:
        return (grad * np.where(x == 0, value * np.array([1, 0, 0]), slopes * (x > 0))).sum(
            keepdims=True
        )

    wrong = op_with(lambda x: np.maximum(x, 0) * slopes, rule)
    with pytest.raises(GradcheckError, match=rf"gives {value:g}, .* at a kink"):
        ta.gradcheck(wrong, leaf(0.0))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_0_is_right_at_a_kink_whose_slopes_have_one_sign(sign: float) -> None:
    def with_value(value: float) -> Any:
        return op_with(
            lambda x: sign * np.where(x > 0, x, 0.5 * x),
            lambda grad, x: grad * sign * np.where(x == 0, value, np.where(x > 0, 1.0, 0.5)),
        )

    for value in (0.0, 0.3, 0.5, 0.8, 1.0):
        assert ta.gradcheck(with_value(value), leaf(0.0))
    for value in (-0.1, 1.1):
        with pytest.raises(GradcheckError, match="at a kink"):
            ta.gradcheck(with_value(value), leaf(0.0))


def test_a_small_kink_does_not_excuse_each_number() -> None:
    wrong = op_with(
        lambda x: 1 + 1e-5 * np.maximum(x, 0),
        lambda grad, x: grad * np.where(x == 0, 1e-3, 1e-5 * (x > 0)),
    )
    with pytest.raises(GradcheckError, match=r"gives 0\.001, .* at a kink"):
        ta.gradcheck(wrong, leaf(0.0))


@pytest.mark.parametrize("slope", [1000.0, -1000.0])
def test_a_small_kink_of_a_steep_line_does_not_excuse_each_number(slope: float) -> None:
    sign = np.sign(slope)
    wrong = op_with(
        lambda x: slope * x + sign * np.maximum(x, 0),
        lambda grad, x: grad * (slope + sign * np.where(x == 0, 2.0, x > 0)),
    )
    with pytest.raises(GradcheckError, match=r"gives -?1002, .* at a kink"):
        ta.gradcheck(wrong, leaf(0.0))


@pytest.mark.parametrize("seed", range(3))
def test_a_slope_that_changes_evenly_is_no_kink(seed: int) -> None:
    """Along the line, and from one line to another beside it."""

    def even(x: ta.Tensor, y: ta.Tensor) -> ta.Tensor:
        return 100 * (x * x + 3 * x * y - y * y)

    x, y = leaf(0.5), leaf(-2.0)
    for fn, has_kink in ((even, False), (lambda x, y: even(x, y) + (x - 0.5).relu(), True)):
        line = Line(Checker(fn, [x, y], np.random.default_rng(seed)), 0, [x], [np.ones(1)])
        assert line.kinks(1e-2, 1e-6).here.tolist() == [has_kink]


def test_several_tensors_move_by_steps_that_fit_the_smallest() -> None:
    small, large = leaf(0.5), leaf(-800.0, 2.0)
    checker = Checker(lambda x, y: x * y, [small, large], np.random.default_rng(0))
    assert Line(checker, 0, [large, small], [np.ones(2), np.ones(1)]).scale == 1.0
    assert Line(checker, 0, [large], [np.ones(2)]).scale == 800.0


def test_random_moves_are_relative_to_the_largest_number_of_each_tensor() -> None:
    moves = random_moves([leaf(0.5), leaf(-800.0, *range(50))], 1e-3, np.random.default_rng(0))
    for move, scale in zip(moves, (1.0, 800.0), strict=True):
        assert ((np.abs(move) >= 0.5e-3 * scale) & (np.abs(move) <= 1.5e-3 * scale)).all()
    assert (moves[1] > 0).any()
    assert (moves[1] < 0).any()


# What has to stay as it was


@both_modes
def test_a_rule_that_writes_to_its_cotangent_all_the_same(fast: bool) -> None:
    def rule(grad: Any) -> Any:
        result = 2 * grad
        grad.setflags(write=True)
        grad *= 1.5
        return result

    with pytest.raises(GradcheckError, match="the derivative of output 0 changed its cotangent"):
        ta.gradcheck(op_with(lambda x: x * 2, rule), leaf(0.5, -2.0), fast=fast)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda g: ta.tensor(g.numpy()[:1]), r"float64\(1,\), the input float64\(2,\)"),
        (lambda g: g.to(ta.float32), r"float32\(2,\), the input float64\(2,\)"),
    ],
    ids=["shape", "dtype"],
)
def test_a_gradient_has_the_shape_and_the_dtype_of_its_input(
    monkeypatch: pytest.MonkeyPatch, wrong: Callable[[ta.Tensor], ta.Tensor], said: str
) -> None:
    """The engine sees to it; if it did not, gradcheck would say so."""
    right = ta.engine.autograd.grad
    monkeypatch.setattr(
        "tinyattn.testing.finite_differences.grad",
        lambda *args, **options: tuple(map(wrong, right(*args, **options))),
    )
    with pytest.raises(GradcheckError, match=rf"the gradient of output 0 for input 0 is {said}"):
        ta.gradcheck(lambda x: x * 2.0, leaf(0.3, -2.1))


def test_gradients_are_checked_on_another_device(cuda: Any) -> None:
    x = ta.tensor([0.5, -2.0], dtype=ta.float64, device="cuda", requires_grad=True)
    assert ta.gradcheck(lambda x: x * x, x)


def test_a_frozen_parameter_is_not_checked_and_may_have_another_dtype() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(ta.tensor([1.5, -2.0], dtype=ta.float64))
            self.frozen = nn.Parameter(ta.tensor([3.0, 0.5]), requires_grad=False)

        def forward(self, x: ta.Tensor) -> ta.Tensor:
            return x * self.weight * self.frozen

    assert ta.gradcheck(Scaled(), [leaf(0.5, -2.0)])


# check_op


def test_only_tensors_arrays_lists_and_numbers_become_tensors() -> None:
    """A tuple of numbers, a number of another library's precision or a name is passed on."""
    passed_on = ((0.5, 1.5), np.float32(0.5), 3, True, None, "mean", {"a": 0.5})

    def scaled(x: ta.Tensor, *others: Any) -> ta.Tensor:
        assert [type(other) for other in others] == [type(value) for value in passed_on]
        return x * others[0][1]

    check_op(scaled, [(np.array([0.5, -2.0]), *passed_on)])


def test_an_output_may_be_an_argument_itself() -> None:
    check_op(lambda x: (x, x * 2.0), [(np.array([0.5, -2.0]),)])


def test_an_output_that_stays_alive_until_backward() -> None:
    kept: list[ta.Tensor] = []

    def rule(grad: Any) -> Any:
        kept.clear()
        return 2 * grad

    double = op_with(lambda x: x * 2, rule)

    def hoarding(x: ta.Tensor) -> ta.Tensor:
        kept.append(double(x))
        return kept[-1]

    with pytest.raises(GradcheckError, match="an output stays alive"):
        check_op(hoarding, [(np.array([0.5, -2.0]),)])


@pytest.mark.parametrize("collecting", [True, False])
def test_the_garbage_collector_is_on_or_off_as_before(collecting: bool) -> None:
    """Also after an error in the last check, which switches it off."""
    kept: list[ta.Tensor] = []

    def hoarding(x: ta.Tensor) -> ta.Tensor:
        kept.append(x * 2.0)
        return kept[-1]

    was_collecting = gc.isenabled()
    try:
        (gc.enable if collecting else gc.disable)()
        check_op(lambda x: x * 2.0, [(np.array([0.5]),)])
        assert gc.isenabled() is collecting
        with pytest.raises(GradcheckError, match="stays alive"):
            check_op(hoarding, [(np.array([0.5]),)])
        assert gc.isenabled() is collecting
    finally:
        (gc.enable if was_collecting else gc.disable)()


def test_the_global_generator_may_be_of_another_kind() -> None:
    before = np.random.get_bit_generator()
    try:
        np.random.set_bit_generator(np.random.PCG64(0))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check_op(lambda x: x * 2.0, [(np.array([0.5]),)])
    finally:
        np.random.set_bit_generator(before)


@pytest.mark.parametrize(
    ("one", "other", "is_close"),
    [
        ([1.5e-6, 0.5], [0.0, 0.5], False),
        ([0.9e-6, 0.5], [0.0, 0.5], True),  # beside 1, although the largest is smaller
        ([9e-6, 10.0], [0.0, 10.0], True),
        ([11e-6, 10.0], [0.0, 10.0], False),
        ([1.0, np.inf], [1.0 + 3e-6, np.inf], False),
        ([np.nan, np.inf], [-np.nan, np.inf], True),
        ([np.nan, np.inf], [np.nan, -np.inf], False),
    ],
)
def test_layouts_are_compared_beside_the_largest_finite_number(
    one: list[float], other: list[float], is_close: bool
) -> None:
    assert close(np.array(one), np.array(other), 1e-6) is is_close


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4)])
def test_a_matrix_is_transposed_too(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    found = LAYOUTS["transposed"](array)
    np.testing.assert_array_equal(found, array)
    assert found.strides[-2] == array.itemsize < found.strides[-1]


@pytest.mark.parametrize("wrong", [slice(6), slice(6, None)])
def test_of_many_numbers_at_a_kink_some_are_drawn_by_the_seed(wrong: slice) -> None:
    """Each half is as likely to be among them, so neither may hide a wrong rule for ever."""

    def rule(grad: Any, x: Any) -> Any:
        slope = (x > 0) * 1.0
        slope[wrong] += 4 * (np.abs(x[wrong]) < 1e-5)  # right beside the kink
        return grad * slope

    rectified = op_with(lambda x: np.maximum(x, 0), rule)
    accepted = [is_accepted(rectified, leaf(*[1e-9] * 12), fast=True, seed=i) for i in range(4)]
    assert sum(accepted) <= 1


@pytest.mark.parametrize("smooth", [False, True])
def test_a_function_that_writes_to_its_argument_is_told_so(smooth: bool) -> None:
    def forward(x: Any) -> Any:
        x += 1
        return x * 1.0

    writing = op_with(forward, lambda grad: grad * 1.0)
    with pytest.raises(GradcheckError, match="writes to an argument"):
        check_op(writing, [(leaf(1.0, 2.0),)], smooth=smooth)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("inputs", [1, 2])
def test_numbers_that_tie_share_one_gradient(inputs: int, seed: int) -> None:
    """Each part may lie between the slopes, so only a move of all together shows their sum."""

    def rule(grad: Any, x: Any, out: Any) -> Any:
        return grad * (x == out) / (x == out).sum()

    in_parts = op_with(lambda x: x.max(), rule)
    of_each = op_with(lambda x: x.max(), lambda grad, x, out: grad * (x == out))

    def is_right(largest: Any) -> bool:
        xs = [leaf(0.5, 0.5, -1.0) for _ in range(inputs)]
        try:
            return ta.gradcheck(lambda *xs: sum(map(largest, xs)), xs, fast=True, seed=seed)
        except GradcheckError:
            return False

    assert is_right(in_parts)
    assert not is_right(of_each)
