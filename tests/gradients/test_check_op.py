"""`check_op` accepts what is right and names what is wrong: one planted fault for each property."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn
from tinyattn.errors import GradcheckError
from tinyattn.testing import check_op, layouts


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


def faulty(rule: Any, forward: Any = None) -> Any:
    """An op with a fault in it: x * x unless another forward is given."""

    def square(x):
        return x * x

    op = ta.op(forward or square)
    op.vjp("x")(rule)
    return op


def test_a_wrong_value() -> None:
    with pytest.raises(GradcheckError, match=r"sample 0: output 0 is not what the reference gives"):
        check_op(softsign, samples(), reference=lambda x: x / (1 + x * x))
    with pytest.raises(GradcheckError, match=r"output 0 is \(3, 4\), the reference gives \(4,\)"):
        check_op(softsign, samples(), reference=lambda x: (x / (1 + np.abs(x)))[0])
    with pytest.raises(GradcheckError, match="1 outputs, the reference has 2"):
        check_op(softsign, samples(), reference=lambda x: (x / (1 + np.abs(x)), x))


def test_a_wrong_derivative() -> None:
    with pytest.raises(GradcheckError, match=r"sample 0: .*finite differences"):
        check_op(faulty(lambda grad, x: grad * x), samples())


def test_a_derivative_that_ignores_its_cotangent() -> None:
    with pytest.raises(GradcheckError, match="sample 0"):
        check_op(faulty(lambda grad, x: 2 * x + 0 * grad), samples())


def rule_with_a_grain(grad: Any, x: Any) -> Any:
    return 2 * grad * x + 1e-9


def test_a_derivative_that_is_not_linear_but_nearly_right() -> None:
    """Too small for finite differences, but not 0 for a cotangent of 0."""
    with pytest.raises(GradcheckError, match="not zero for an upstream gradient of zero"):
        check_op(faulty(rule_with_a_grain), samples())


def rule_that_saturates(grad: Any, x: Any) -> Any:
    return 2 * x * (grad - 1e-9 * grad * grad * grad)


def test_a_derivative_that_does_not_double() -> None:
    with pytest.raises(GradcheckError, match="does not double"):
        check_op(faulty(rule_that_saturates), samples())


def rule_for_arrays(grad: Any, x: Any) -> Any:
    return 2 * grad * (x.detach() if isinstance(x, ta.Tensor) else x)


def test_a_wrong_second_derivative() -> None:
    op = faulty(rule_for_arrays)
    with pytest.raises(GradcheckError, match="sample 0: second order"):
        check_op(op, samples())
    check_op(op, samples(), second_order=False)


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
    with pytest.raises(GradcheckError, match="Fortran-ordered inputs give another result"):
        check_op(faulty(lambda grad, x: 2 * grad * x, reads_raw_memory), [(rows,)])


def test_gaps_between_elements_hold_nan() -> None:
    arranged = dict(layouts(np.arange(6.0).reshape(2, 3)))
    strided = arranged["strided"]
    assert np.isnan(strided.base).sum() == 24 - 6
    for array in arranged.values():
        np.testing.assert_array_equal(array, np.arange(6.0).reshape(2, 3))
    assert not arranged["misaligned"].flags.aligned
    assert not arranged["read-only"].flags.writeable


def test_an_input_that_is_changed() -> None:
    def forward(x):
        result = x * x
        if x.flags.writeable:
            x[...] = 0
        return result

    with pytest.raises(GradcheckError, match="chang"):
        check_op(faulty(lambda grad, x: 2 * grad * x, forward), samples())


def test_an_upstream_gradient_that_is_changed() -> None:
    def rule(grad, x):
        result = 2 * grad * x
        if isinstance(grad, np.ndarray):
            grad *= 0.5
        return result

    with pytest.raises(GradcheckError, match="upstream gradient"):
        check_op(faulty(rule), samples())


def test_a_gradient_that_shares_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine keeps gradients apart; if it did not, check_op would say so."""
    kept = ta.autograd.grad
    monkeypatch.setattr(
        ta.autograd, "grad", lambda *args, **options: kept(*args, **options)[:1] * 2
    )
    rows = np.random.default_rng(6).standard_normal(3)
    with pytest.raises(GradcheckError, match="shares memory"):
        check_op(lambda x, y: x + y, [(rows, rows)])


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


def test_samples_are_argument_tuples_and_there_is_at_least_one():
    def cube(x):
        return x * x * x

    with pytest.raises(ValueError, match="at least one sample"):
        check_op(cube, [])
    for samples in (ta.randn(3), [ta.randn(3)]):
        with pytest.raises(TypeError, match="a list of argument tuples"):
            check_op(cube, samples)
