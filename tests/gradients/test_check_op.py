"""`check_op` accepts what is right and names what is wrong: one planted fault for each property."""

from __future__ import annotations

import warnings
import weakref
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn
from tinyattn.errors import GradcheckError
from tinyattn.testing import check_op
from tinyattn.testing.finite_differences import Checker
from tinyattn.testing.op_checks import FULL_CHECK_UP_TO, LAYOUTS


@ta.op
def softsign(x):
    return x / (1 + abs(x))


@softsign.vjp("x")
def _(grad, x):
    return grad / (1 + abs(x)) ** 2


def samples() -> list[tuple[Any, ...]]:
    rng = np.random.default_rng(3)
    return [(rng.standard_normal((3, 4)) + 3,), (rng.standard_normal(5) - 3,), (2.5,)]


def test_the_example_of_the_readme() -> None:
    check_op(softsign, samples(), reference=lambda x: x / (1 + np.abs(x)))


def test_compositions_options_several_outputs_and_layers() -> None:
    rng = np.random.default_rng(4)
    x, y = rng.standard_normal((2, 3)), rng.standard_normal(3)
    check_op(
        lambda x, y: (x * y.exp(), x.sum()),
        [(x, y)],
        reference=lambda x, y: (x * np.exp(y), x.sum()),
    )
    check_op(F.softmax, [(x, 0), (x, 1)])
    check_op(nn.LayerNorm(3), [(x,)])
    check_op(lambda x, index: x[index], [(x, [1, 1, 0])])
    check_op(lambda x, y: x.exp(), [(x, y)])  # y plays no part: its gradient is 0


def faulty(rule: Any, forward: Any = None) -> Any:
    """An op with a fault in it: x * x unless another forward is given."""

    def square(x):
        return x * x

    op = ta.op(forward or square)
    op.vjp("x")(rule)
    return op


def test_a_wrong_value() -> None:
    """The error names the first element that is another, and both values."""
    x, message = (
        np.array([[0.0, 1.0, 3.0]]),
        r"output 0\[0, 2\] is 0\.75, the reference gives 0\.3$",
    )
    with pytest.raises(GradcheckError, match=rf"sample 0: {message}"):
        check_op(softsign, [(x,)], reference=lambda x: x / (1 + x * x))
    with pytest.raises(GradcheckError, match=r"output 0\[\] is 0\.75, the reference gives nan"):
        check_op(softsign, [(3.0,)], reference=lambda x: np.float64("nan"))
    with pytest.raises(
        GradcheckError, match=r"shapes \[\(3, 4\)\], those of the reference \[\(4,\)\]"
    ):
        check_op(softsign, samples(), reference=lambda x: (x / (1 + np.abs(x)))[0])
    with pytest.raises(GradcheckError, match=r"shapes \[.*\], those of the reference \[\(.*\), \("):
        check_op(softsign, samples(), reference=lambda x: (x / (1 + np.abs(x)), x))


@pytest.mark.parametrize("hidden", [-np.inf, np.nan])
def test_a_wrong_value_beside_one_that_is_not_finite(hidden: float) -> None:
    """What is near is measured by the finite values: beside inf all would be near, beside NaN none
    but equal ones."""
    third = ta.tensor(3.0, dtype=ta.float64)
    x = np.array([-1.0, 1.0, 2.0])

    def hiding(x: ta.Tensor) -> ta.Tensor:
        return ta.where(x < 0, hidden, x / third)

    def reference(factor: float) -> Any:
        return lambda x: np.where(x < 0, hidden, x * factor)

    check_op(hiding, [(x,)], reference=reference(1 / 3 * (1 + 1e-15)), smooth=False)
    with pytest.raises(GradcheckError, match=r"sample 0: output 0"):
        check_op(hiding, [(x,)], reference=reference(2.0), smooth=False)


def test_a_wrong_derivative() -> None:
    with pytest.raises(GradcheckError, match=r"sample 0: .*finite differences"):
        check_op(faulty(lambda grad, x: grad * x), samples())


@pytest.mark.parametrize("size", [3, FULL_CHECK_UP_TO + 1])
def test_a_derivative_that_is_wrong_in_the_fifth_digit(size: int) -> None:
    """As exact as gradcheck by itself."""
    x = np.linspace(0.5, 1.0, size)

    def square(factor: float) -> Any:
        op = ta.op(lambda x: x * x)
        op.vjp("x")(lambda grad, x: grad * x * 2 * factor)
        return op

    check_op(square(1.0), [[ta.tensor(x)]], second_order=False)
    with pytest.raises(GradcheckError, match="finite differences"):
        check_op(square(1 + 2e-5), [[ta.tensor(x)]], second_order=False)


def test_a_derivative_that_ignores_its_cotangent() -> None:
    with pytest.raises(GradcheckError, match="sample 0"):
        check_op(faulty(lambda grad, x: 2 * x + 0 * grad), samples())


def rule_with_a_grain(grad: Any, x: Any) -> Any:
    return 2 * grad * x + 1e-9


def test_a_derivative_that_is_not_linear_but_nearly_right() -> None:
    """Too small for finite differences, but not 0 for a cotangent of 0."""
    with pytest.raises(GradcheckError, match="not zero for a cotangent of zero"):
        check_op(faulty(rule_with_a_grain), samples(), smooth=False)


def rule_that_saturates(grad: Any, x: Any) -> Any:
    return 2 * x * (grad - 1e-9 * grad * grad * grad)


def test_a_derivative_that_is_not_linear() -> None:
    with pytest.raises(GradcheckError, match="not -2 times its own"):
        check_op(faulty(rule_that_saturates), samples())


@pytest.mark.parametrize("seed", range(9))
def test_a_derivative_of_one_sign(seed: int) -> None:
    """Also where all the random cotangents are positive, as some seeds draw few of them."""
    op, x = faulty(lambda grad, x: 2 * abs(grad) * x), ta.randn(1, dtype=ta.float64)
    with pytest.raises(GradcheckError):
        check_op(op, [(x,)], seed=seed, smooth=False)
    for fast in (True, False):
        with pytest.raises(GradcheckError, match="not linear"):
            ta.gradcheck(op, [x.requires_grad_()], seed=seed, fast=fast)


def rule_for_arrays(grad: Any, x: Any) -> Any:
    return 2 * grad * (x.detach() if isinstance(x, ta.Tensor) else x)


def test_a_wrong_second_derivative() -> None:
    op = faulty(rule_for_arrays)
    with pytest.raises(GradcheckError, match="sample 0: second order"):
        check_op(op, samples())
    check_op(op, samples(), second_order=False)


def test_an_op_that_draws_from_the_state_of_numpy() -> None:
    def forward(x: Any) -> Any:
        np.random.random()
        return x * x

    state = np.random.get_state()
    with pytest.raises(GradcheckError, match="NumPy's global random state was used"):
        check_op(faulty(lambda grad, x: 2 * grad * x, forward), samples())
    np.random.set_state(state)


def test_a_result_of_another_dtype() -> None:
    op = faulty(lambda grad, x: 2 * grad * x, lambda x: np.asarray(x * x, np.float64))
    with pytest.raises(GradcheckError, match="float32 gave a result or gradient of float64"):
        check_op(op, samples())


def reads_raw_memory(x):
    """As if x lay in C order: what a kernel without a door does."""
    start = np.lib.stride_tricks.as_strided(x, (x.size,), (x.itemsize,)) if x.size else x
    return (start * start).reshape(x.shape)


def test_a_forward_that_reads_another_layout_wrongly() -> None:
    rows = np.random.default_rng(5).standard_normal((4, 3))
    with pytest.raises(GradcheckError, match="layout 'Fortran' give another result"):
        check_op(faulty(lambda grad, x: 2 * grad * x, reads_raw_memory), [(rows,)])


def rule_that_reads_raw_memory(grad: Any, x: Any) -> Any:
    """Right while grad lies in C order."""
    if isinstance(grad, np.ndarray):
        grad = np.lib.stride_tricks.as_strided(grad, (grad.size,), (grad.itemsize,))
        grad = grad.reshape(x.shape)
    return 2 * grad * x


def test_a_rule_that_reads_another_layout_of_its_cotangent_wrongly() -> None:
    rows = np.random.default_rng(5).standard_normal((4, 3))
    with pytest.raises(GradcheckError, match="give another result"):
        check_op(faulty(rule_that_reads_raw_memory), [(rows,)])


def test_a_fault_in_float32_alone() -> None:
    """As a kernel for one dtype may have it."""

    def forward(x):
        return reads_raw_memory(x) if x.dtype == np.float32 else x * x

    rows = np.random.default_rng(5).standard_normal((4, 3))
    with pytest.raises(GradcheckError, match="give another result"):
        check_op(faulty(lambda grad, x: 2 * grad * x, forward), [(rows,)])


def test_an_index_that_is_read_in_another_layout_wrongly() -> None:
    def take(x, ids):
        flat = np.lib.stride_tricks.as_strided(ids, (ids.size,), (ids.itemsize,))
        return x[flat % len(x)].reshape(ids.shape)

    op = faulty(lambda grad, shape, ids: ta.ops.putitem(grad, ids, shape), take)
    ids = ta.tensor([[0, 1], [2, 0], [1, 1]])
    with pytest.raises(GradcheckError, match="give another result"):
        check_op(op, [(np.array([1.0, 2.0, 3.0]), ids)], smooth=False, second_order=False)


def test_a_sum_in_another_order_is_right_but_not_bitwise() -> None:
    @ta.op
    def total(x):
        return x.sum(axis=0)

    @total.vjp("x")
    def dx(grad, shape):
        return ta.ops.expand(grad, shape)

    rows = np.random.default_rng(5).standard_normal((40, 3))
    check_op(total, [(rows,)])
    with pytest.raises(GradcheckError, match="give another result"):
        check_op(total, [(rows,)], bitwise=True)
    check_op(lambda x: x.sum(0), [(rows,)], bitwise=True)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32, np.bool_])
def test_layouts(dtype: Any) -> None:
    """Each says what its name says, and holds the same numbers, apart from those repeated."""
    array = (np.arange(24).reshape(2, 3, 4) % 5).astype(dtype)
    arranged = {name: lay(array) for name, lay in LAYOUTS.items()}
    for name, found in arranged.items():
        right = np.broadcast_to(array[:1], array.shape) if name == "stride 0" else array
        np.testing.assert_array_equal(found, right, strict=True)
    assert arranged["Fortran"].flags.f_contiguous
    assert all(stride < 0 for stride in arranged["reversed"].strides)
    assert arranged["gaps"].strides == tuple(2 ** (3 - i) * n for i, n in enumerate(array.strides))
    assert arranged["transposed"].strides[-1] > arranged["transposed"].strides[-2]
    assert arranged["stride 0"].strides[0] == 0
    assert not arranged["misaligned"].flags.aligned or dtype is np.bool_
    assert not arranged["read-only"].flags.writeable
    between = arranged["gaps"].base[1::2]
    assert np.isnan(between).all() if between.dtype.kind == "f" else (between == dtype(-1)).all()
    for lay in LAYOUTS.values():
        for shape in ((), (0,), (2, 0)):
            assert lay(np.zeros(shape, dtype)).shape == shape


def test_an_input_that_is_changed() -> None:
    """By a composition: an op gets its arrays read-only."""

    def spoil(x):
        result = x + 1
        with ta.no_grad():
            x[...] = 0
        return result

    with pytest.raises(GradcheckError, match="an input was changed"):
        check_op(spoil, samples())


def test_an_index_that_is_changed() -> None:
    def spoil(x, ids):
        result = x[ids]
        ids[...] = 0
        return result

    with pytest.raises(GradcheckError, match="an input was changed"):
        check_op(spoil, [(np.array([1.0, 2.0]), np.array([1, 1, 0]))])


def test_an_input_that_is_made_read_only() -> None:
    def spoil(x):
        x._data.flags.writeable = False
        return x + 1

    with pytest.raises(GradcheckError, match="made read-only"):
        check_op(spoil, samples())


def test_results_that_are_random() -> None:
    rng = np.random.default_rng(9)

    def forward(x):
        return x * x * rng.uniform(0.9, 1.1)

    with pytest.raises(GradcheckError, match="two runs gave different results"):
        check_op(faulty(lambda grad, x: 2 * grad * x, forward), samples())


def test_a_rule_that_writes_to_the_cotangent() -> None:
    def rule(grad, x):
        result = 2 * grad * x
        if isinstance(grad, np.ndarray):
            grad *= 0.5
        return result

    with pytest.raises(GradcheckError, match=r"sample 0: a derivative rule of .* writes to an arg"):
        check_op(faulty(rule), samples())


def test_a_gradient_that_shares_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine keeps gradients apart; if it did not, check_op would say so."""
    kept = ta.engine.autograd.grad
    monkeypatch.setattr(
        "tinyattn.testing.op_checks.grad", lambda *args, **options: kept(*args, **options)[:1] * 2
    )
    rows = np.random.default_rng(6).standard_normal(3)
    with pytest.raises(GradcheckError, match="shares memory"):
        check_op(lambda x, y: x + y, [(rows, rows)])


def test_a_gradient_that_shares_memory_with_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = []

    def hoarding(x):
        outputs.append(x * 2.0)
        return outputs[-1]

    monkeypatch.setattr(
        "tinyattn.testing.op_checks.grad", lambda *args, **options: (outputs[-1].detach(),)
    )
    with pytest.raises(GradcheckError, match="shares memory"):
        check_op(hoarding, [(np.array([1.0, 2.0]),)])


def test_global_random_numbers() -> None:
    def forward(x):
        np.random.random()
        return x * x

    with pytest.raises(GradcheckError, match="random state"):
        check_op(faulty(lambda grad, x: 2 * grad * x, forward), samples())


def test_changed_error_settings() -> None:
    def forward(x):
        np.seterr(over="ignore")
        return x * x

    before = np.geterr()
    try:
        with pytest.raises(GradcheckError, match="error settings"):
            check_op(faulty(lambda grad, x: 2 * grad * x, forward), samples())
    finally:
        np.seterr(**before)


def test_an_output_that_stays_alive() -> None:
    kept = []

    def hoarding(x):
        kept.append(x * x)
        return kept[-1]

    with pytest.raises(GradcheckError, match="stays alive"):
        check_op(hoarding, samples())


def test_an_output_that_stays_alive_after_backward() -> None:
    last, kept = [], []

    @ta.op
    def double(x):
        return 2 * x

    @double.vjp("x")
    def dx(grad):
        kept.extend(reference() for reference in last)
        return 2 * grad

    def watched(x):
        out = double(x)
        last[:] = [weakref.ref(out)]
        return out

    with pytest.raises(GradcheckError, match="stays alive"):
        check_op(watched, samples())


def test_float16_has_to_stay_float16() -> None:
    @ta.op
    def halved(x):
        return x.astype(np.float32 if x.dtype == np.float16 else x.dtype) / 2

    @halved.vjp("x")
    def dx(grad):
        return grad / 2

    with pytest.raises(GradcheckError, match="float16 gave a result or gradient of float32"):
        check_op(halved, samples())


def test_recorded_derivatives_are_compared_beside_one_that_is_infinite() -> None:
    def rule(grad: Any, x: Any) -> Any:
        return grad / x * (1 if isinstance(x, ta.Tensor) else 1.5)

    x = ta.tensor([0.0, 1.0, 2.0], dtype="float64", requires_grad=True)
    checker = Checker(faulty(rule), [x], np.random.default_rng(0))
    with np.errstate(divide="ignore"), pytest.raises(GradcheckError, match="with create_graph"):
        checker.check_recorded()


# What is left out, and what is said


def test_a_kink_is_counted_and_named() -> None:
    """Five-point differences of relu give a half at 0, and relu gives 0."""
    said = check_op(F.relu, [(np.array([1.0, 0.0, -0.0]),)])
    assert said.endswith("lifetime; 4 at a kink, first sample 0, d output 0[1] / d input 0[1]")


def test_kinks_of_every_output_are_counted() -> None:
    said = check_op(lambda x: (F.relu(x), x.abs(), x * 1), [(np.array([1.0, 0.0]),)])
    assert said.endswith("; 3 at a kink, first sample 0, d output 0[1] / d input 0[1]")


def test_without_differences_all_the_rest_is_checked() -> None:
    kinks = [(np.array([0.0, 1.0, -0.0]),)]
    said = check_op(F.relu, kinks, smooth=False)
    assert "recorded derivative, linearity" in said
    with pytest.raises(GradcheckError, match="not zero for a cotangent of zero"):
        check_op(faulty(rule_with_a_grain), kinks, smooth=False)
    with pytest.raises(GradcheckError, match="another with create_graph=True"):
        check_op(
            faulty(lambda grad, x: 2 * grad * x * (1 if isinstance(x, ta.Tensor) else 1.5)),
            kinks,
            smooth=False,
        )


def test_a_function_without_a_derivative() -> None:
    """Comparisons are pure too, and read every layout."""
    rows = np.random.default_rng(5).standard_normal((4, 3))
    check_op(lambda x: x > 0, [(rows,)], smooth=False, second_order=False, bitwise=True)
    with pytest.raises(GradcheckError, match="output 0 depends on no input"):
        check_op(lambda x: x.detach() * 2, [(rows,)])

    @ta.op(differentiable=False)
    def is_positive(x):
        return reads_raw_memory(x) * np.sign(reads_raw_memory(x)) > 0.5

    with pytest.raises(GradcheckError, match="give another result"):
        check_op(is_positive, [(rows,)], smooth=False, second_order=False)


def test_parameters_of_a_module_take_part_in_every_property() -> None:
    class Scaled(nn.Module):
        def __init__(self, rule: Any) -> None:
            super().__init__()
            self.weight = nn.Parameter(ta.tensor([1.5, -2.0]))
            self.op = faulty(rule)

        def forward(self, x: ta.Tensor) -> ta.Tensor:
            return x * self.op(self.weight)

    rows = np.random.default_rng(5).standard_normal((4, 2))
    check_op(Scaled(lambda grad, x: 2 * grad * x), [(rows,)])
    with pytest.raises(GradcheckError, match="gradient 1 is not zero"):
        check_op(Scaled(rule_with_a_grain), [(rows,)], smooth=False)

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(ta.tensor([1.5, -2.0]))

        def forward(self, x: ta.Tensor) -> ta.Tensor:
            with ta.no_grad():
                self.weight[0] = 7.0
            return x + self.weight

    with pytest.raises(GradcheckError, match="an input was changed"):
        check_op(Counting(), [(rows,)])


def test_what_was_checked_is_said() -> None:
    assert check_op(softsign, samples()) == (
        "softsign, 3 samples: purity, derivative, second derivative, recorded derivative, "
        "linearity, dtypes, memory layouts, lifetime"
    )
    said = check_op(nn.LayerNorm(3), [(np.eye(3),)], second_order=False, reference=layer_norm)
    assert said == (
        "LayerNorm, 1 sample: value, purity, derivative, linearity, dtypes, memory layouts, "
        "lifetime"
    )


def test_the_step_is_that_of_both_derivatives() -> None:
    """Counted by the calls of fn that are far from the sample."""
    distances: list[float] = []

    def cube(x: ta.Tensor) -> ta.Tensor:
        distances.append(float(np.abs(x.double().detach().numpy() - 0.5).max()))
        return x * x * x

    def calls_far_away(eps: float, second_order: bool) -> int:
        distances.clear()
        check_op(cube, [(np.array([0.5]),)], eps=eps, second_order=second_order)
        return sum(distance > 5e-3 for distance in distances)

    assert calls_far_away(1e-3, second_order=True) == 0
    assert 0 < calls_far_away(1e-2, second_order=False) < calls_far_away(1e-2, second_order=True)


def layer_norm(x: np.ndarray) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def test_how_the_element_is_named_in_a_large_sample() -> None:
    """check_op has no argument `fast`, so its hint speaks of the sample."""
    wrong = faulty(lambda grad, x: grad * x)
    large = np.ones(FULL_CHECK_UP_TO + 1)
    with pytest.raises(GradcheckError, match="at most 64 numbers in inputs") as caught:
        check_op(wrong, [(large,)])
    assert "fast" not in str(caught.value)
    with pytest.raises(
        GradcheckError, match=r"d output 0\[0\] / d input 0\[0\]: .* give 2, no kink is near$"
    ):
        check_op(wrong, [(np.ones(FULL_CHECK_UP_TO),)])


def test_samples_are_argument_tuples_and_there_is_at_least_one():
    def cube(x):
        return x * x * x

    with pytest.raises(ValueError, match="at least one sample"):
        check_op(cube, [])
    for samples in (ta.randn(3), [ta.randn(3)]):
        with pytest.raises(TypeError, match="a list of argument tuples"):
            check_op(cube, samples)


def test_arguments_that_are_too_large_for_float16_do_not_warn() -> None:
    x = np.array([1e5, -2e5])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_op(lambda x: x * 2.0, [(x,)])


def test_the_reference_has_as_many_outputs() -> None:
    x = np.array([1.0, 2.0])
    for fn, reference, message in (
        (lambda x: (x * 2.0, x * 3.0), lambda x: 2 * x, "those of the reference"),
        (lambda x: x * 2.0, lambda x: (2 * x, 3 * x), "those of the reference"),
    ):
        with pytest.raises(GradcheckError, match=message):
            check_op(fn, [(x,)], reference=reference)


def test_an_output_without_elements_is_compared() -> None:
    check_op(lambda x: x * 2.0, [(np.zeros((0, 3)),)], reference=lambda x: 2 * x)


def test_an_argument_may_play_no_part() -> None:
    check_op(lambda x, y: x * x, [(np.array([0.5, -2.0]), np.array([1.5, 3.0]))])
