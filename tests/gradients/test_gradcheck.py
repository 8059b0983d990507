"""The checker checked: it accepts what is right and rejects planted faults.

Most of these faults pass a check that only differentiates `f(x).sum()`: rows of softmax sum to 1
and rows of LayerNorm to 0, so there the gradient is zero whatever the derivative says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn
from tinyattn.errors import DtypeError, GradcheckError


@pytest.fixture
def x(rng: np.random.Generator) -> ta.Tensor:
    return ta.tensor(rng.standard_normal((3, 4)), requires_grad=True)


both_modes = pytest.mark.parametrize("fast", [False, True], ids=["full", "fast"])


# What is right


def mixed(x: ta.Tensor, y: ta.Tensor) -> tuple[ta.Tensor, ta.Tensor]:
    return (x * y).exp(), (x @ x.T).sum(0) / y


@both_modes
@pytest.mark.parametrize(
    "function",
    [
        F.softmax,
        F.log_softmax,
        F.gelu,
        lambda x: F.layer_norm(x, 4),
        lambda x: x.var(1),
        lambda x: x[[0, 0, 2]] * x[1],
        lambda x: x.reshape(2, 6) @ x.reshape(6, 2),
        lambda x: x.sum(),
        lambda x: x * 1e6,
        lambda x: x * 1e-6,
        lambda x: [x.tanh(), x.sin()],
        lambda x: x + 5.0,
    ],
)
def test_right_derivatives_pass(x: ta.Tensor, function: Callable[..., Any], fast: bool) -> None:
    assert ta.gradcheck(function, [x], fast=fast) is True


def wrong_product(factor: float) -> Any:
    @ta.op
    def scaled_square(x):
        return factor * x * x

    @scaled_square.vjp("x")
    def dx(grad, x):
        return grad * (2.1 * factor) * x

    return scaled_square


@both_modes
@pytest.mark.parametrize("factor", [1e-3, 1e-5, 1e-7])
def test_small_derivatives_are_judged_beside_small_values(
    x: ta.Tensor, factor: float, fast: bool
) -> None:
    with pytest.raises(GradcheckError, match="finite differences give"):
        ta.gradcheck(wrong_product(factor), [x], fast=fast)
    assert ta.gradcheck(lambda x: factor * x * x, [x], fast=fast)
    assert ta.gradcheck(lambda x: factor * F.softmax(x).log(), [x], fast=fast)
    # Beside a value of size 1 rounding hides them.
    assert ta.gradcheck(lambda x: 1 + factor * x.sin(), [x], fast=fast)
    assert ta.gradcheck(lambda x: F.softmax(1e3 * factor * x + 1e3) - 0.25, [x], fast=fast)
    assert ta.gradcheck(lambda x: (factor * x.tanh()).relu(), [x], fast=fast)


@both_modes
def test_several_inputs_and_outputs(x: ta.Tensor, fast: bool) -> None:
    y = ta.tensor([[0.5], [1.5], [-1.0]], dtype=ta.float64, requires_grad=True)
    constant = ta.tensor([1, 2, 3, 4])
    assert ta.gradcheck(
        lambda x, y, z: (x * y, ((x + z) / y).tanh(), (x > 0)), [x, y, constant], fast=fast
    )


@both_modes
def test_a_single_tensor_needs_no_list(x: ta.Tensor, fast: bool) -> None:
    assert ta.gradcheck(F.softmax, x, fast=fast)


@both_modes
def test_empty_and_0d_inputs(fast: bool) -> None:
    empty = ta.zeros(0, 3, dtype=ta.float64, requires_grad=True)
    number = ta.tensor(0.7, dtype=ta.float64, requires_grad=True)
    assert ta.gradcheck(lambda e, n: (e * n, n.exp()), [empty, number], fast=fast)


class Scaler(nn.Module):
    def __init__(self, fault: float = 1.0) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)
        self.scale = nn.Parameter([1.5, -0.5])
        self.frozen = nn.Parameter([1.0], requires_grad=False)
        self.fault = fault

    def forward(self, x: ta.Tensor) -> ta.Tensor:
        return faulty(self.linear(x), self.scale, fault=self.fault) * self.frozen


@ta.op
def faulty(x, scale, *, fault):
    return x * scale


@faulty.vjp("x")
def _(grad, scale):
    return grad * scale


@faulty.vjp("scale")
def _(grad, x, fault):
    return grad * x * fault


@both_modes
def test_all_parameters_of_a_module_are_checked(x: ta.Tensor, fast: bool) -> None:
    """Also when the input itself needs no gradient."""
    ta.manual_seed(0)
    assert ta.gradcheck(Scaler().to(ta.float64), [x], fast=fast)
    assert ta.gradcheck(Scaler().to(ta.float64), [x.detach()], fast=fast)
    with pytest.raises(GradcheckError, match="parameter 'scale'"):
        ta.gradcheck(Scaler(fault=1.001).to(ta.float64), [x], fast=fast)
    with pytest.raises(GradcheckError, match="parameter 'scale'"):
        ta.gradcheck(Scaler(fault=1.001).to(ta.float64), [x.detach()], fast=fast)


def test_the_inputs_are_as_before(x: ta.Tensor) -> None:
    """Neither values nor `.grad` nor the array object are touched."""
    array, values, changes = x._data, x.numpy(), x._version.changes
    ta.gradcheck(F.softmax, [x])
    ta.gradgradcheck(F.softmax, [x])
    assert x._data is array
    assert x._version.changes == changes
    np.testing.assert_array_equal(x.numpy(), values)
    assert x.grad is None


# Planted faults


def op_with(
    forward: Callable[..., Any], *rules: Callable[..., Any], names: str = "x"
) -> Callable[..., Any]:
    """An op with the given derivative for each of its arguments."""
    op = ta.op(forward)
    for name, rule in zip(names, rules, strict=True):
        op.vjp(name)(rule)
    return op


def softmax(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def norm(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def centred(grad):
    return grad - grad.mean(axis=-1, keepdims=True)


def deviation(x):
    return (x.var(-1, unbiased=False, keepdim=True) + 1e-5) ** 0.5 if hasattr(x, "_node") else (
        np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    )  # fmt: skip


def without_variance(grad, x):
    return centred(grad) / deviation(x)


def without_mean(grad, x, out):
    return (grad - out * (grad * out).mean(axis=-1, keepdims=True)) / deviation(x)


def unbiased(grad, x, out):
    slope = centred(grad) - out * (grad * out).mean(axis=-1, keepdims=True)
    return slope / deviation(x) * math.sqrt(3 / 4)


FAULTS = {
    "softmax returning zeros": op_with(softmax, lambda grad, out: grad * 0),
    "softmax halved": op_with(
        softmax, lambda grad, out: out * (grad - (grad * out).sum(axis=-1, keepdims=True)) * 0.5
    ),
    "softmax with the wrong sign": op_with(
        softmax, lambda grad, out: -out * (grad - (grad * out).sum(axis=-1, keepdims=True))
    ),
    "softmax without its sum": op_with(softmax, lambda grad, out: out * grad),
    "softmax as if elementwise": op_with(softmax, lambda grad, out: grad * out * (1 - out)),
    "softmax over the other axis": op_with(
        softmax, lambda grad, out: out * (grad - (grad * out).sum(axis=0, keepdims=True))
    ),
    "LayerNorm without the variance": op_with(norm, without_variance),
    "LayerNorm without the mean": op_with(norm, without_mean),
    "LayerNorm with n - 1": op_with(norm, unbiased),
    "a sign flip": op_with(np.sin, lambda grad, x: -grad * np.cos(x)),
    "a factor 2": op_with(lambda x: x * x, lambda grad, x: grad * x * 4),
    "a relative error of 1e-5": op_with(
        lambda x: x * x, lambda grad, x: grad * x * 2 * (1 + 1e-5)
    ),
    "an absolute error of 1e-5": op_with(
        lambda x: x * x, lambda grad, x: grad * (x * 2 + 1e-5)
    ),
    "the cotangent ignored": op_with(lambda x: x * x, lambda grad, x: x * 2),
    "the cotangent used twice": op_with(
        lambda x: x * x, lambda grad, x: grad * grad * x * 2
    ),
    "the cotangent as its sign": op_with(
        lambda x: x * 3, lambda grad: np.sign(grad) * 3
    ),
    "elements in the wrong order": op_with(lambda x: x * 1.0, lambda grad: grad[:, ::-1]),
    "transposed without transposing back": op_with(
        lambda x: x[:3, :3].T, lambda grad, shape: np.pad(grad, ((0, 0), (0, 1)))
    ),
    "one element forgotten": op_with(
        lambda x: x * 3, lambda grad: grad * 3 * (np.arange(12) != 7).reshape(3, 4)
    ),
    "relu that lets everything pass": op_with(lambda x: np.maximum(x, 0), lambda grad: grad),
    "no gradient at all": op_with(lambda x: x * 3, lambda grad: None),
    "float32 in the rule": op_with(
        lambda x: x * x, lambda grad, x: (grad * x * 2).astype(np.float32)
    ),
}  # fmt: skip


@both_modes
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_rejected(x: ta.Tensor, fault: str, fast: bool) -> None:
    with pytest.raises(GradcheckError):
        ta.gradcheck(FAULTS[fault], [x], fast=fast)


# A single number cannot show in every direction what is as small as that.
IN_EVERY_DIRECTION = [
    (fault, fast) for fault in FAULTS for fast in (False, True) if not (fast and "1e-5" in fault)
]


@pytest.mark.parametrize(("fault", "fast"), IN_EVERY_DIRECTION)
def test_planted_faults_are_rejected_for_every_seed(x: ta.Tensor, fault: str, fast: bool) -> None:
    """No lucky random direction hides them."""
    for seed in range(1, 6):
        with pytest.raises(GradcheckError):
            ta.gradcheck(FAULTS[fault], [x], fast=fast, seed=seed)


def test_a_check_with_ones_would_not_see_them(x: ta.Tensor) -> None:
    """Why cotangents are random: the sum of a softmax has no gradient, right or wrong."""
    for fault in ("softmax returning zeros", "softmax halved", "softmax with the wrong sign"):
        (found,) = ta.grad(FAULTS[fault](x).sum(), x)
        np.testing.assert_allclose(found.numpy(), 0, atol=1e-15)


@both_modes
def test_a_missing_broadcast_sum_is_rejected(x: ta.Tensor, fast: bool) -> None:
    """The bias gets the gradient of one row only, broadcast shapes and all in order."""
    biased = op_with(
        lambda x, b: x + b, lambda grad: grad, lambda grad: grad[0], names="xb"
    )  # fmt: skip
    bias = ta.tensor([0.1, 0.2, 0.3, 0.4], dtype=ta.float64, requires_grad=True)
    with pytest.raises(GradcheckError, match="input 1"):
        ta.gradcheck(biased, [x, bias], fast=fast)


@both_modes
def test_a_mean_instead_of_a_broadcast_sum_is_rejected(x: ta.Tensor, fast: bool) -> None:
    biased = op_with(
        lambda x, b: x + b, lambda grad: grad, lambda grad: grad.mean(0), names="xb"
    )  # fmt: skip
    bias = ta.tensor([0.1, 0.2, 0.3, 0.4], dtype=ta.float64, requires_grad=True)
    with pytest.raises(GradcheckError, match="input 1"):
        ta.gradcheck(biased, [x, bias], fast=fast)


@both_modes
def test_gradients_exchanged_between_inputs_are_rejected(x: ta.Tensor, fast: bool) -> None:
    exchanged = op_with(
        lambda x, y: x * y, lambda grad, x: grad * x, lambda grad, y: grad * y, names="xy"
    )  # fmt: skip
    other = ta.tensor(x.numpy()[::-1] + 0.5, requires_grad=True)
    with pytest.raises(GradcheckError, match="input 0"):
        ta.gradcheck(exchanged, [x, other], fast=fast)


@both_modes
def test_a_fault_in_the_second_output_is_rejected(x: ta.Tensor, fast: bool) -> None:
    with pytest.raises(GradcheckError, match="output 1"):
        ta.gradcheck(lambda x: (x * 2, FAULTS["a factor 2"](x)), [x], fast=fast)


@both_modes
def test_a_random_function_is_rejected(x: ta.Tensor, fast: bool) -> None:
    with pytest.raises(GradcheckError, match=r"random.*dropout"):
        ta.gradcheck(lambda x: F.dropout(x, 0.5), [x], fast=fast)


@both_modes
def test_a_random_value_under_a_steady_rule_is_called_random(x: ta.Tensor, fast: bool) -> None:
    noise = np.random.default_rng(0)
    shaky = op_with(lambda x: x * noise.random(), lambda grad: grad)
    with pytest.raises(GradcheckError, match="is fn random"):
        ta.gradcheck(shaky, [x], fast=fast)


def test_a_rule_without_the_cotangent_is_told_so(x: ta.Tensor) -> None:
    with pytest.raises(GradcheckError, match="a rule without grad or not linear"):
        ta.gradcheck(FAULTS["the cotangent ignored"], [x])


@both_modes
def test_a_random_derivative_is_rejected(x: ta.Tensor, fast: bool) -> None:
    noise = np.random.default_rng(0)
    shaky = op_with(lambda x: x * 2, lambda grad: grad * (2 + 1e-12 * noise.standard_normal()))
    with pytest.raises(GradcheckError, match="two runs"):
        ta.gradcheck(shaky, [x], fast=fast)


@both_modes
def test_a_forward_that_changes_its_input_is_rejected(x: ta.Tensor, fast: bool) -> None:
    def spoil(x):
        x[0, 0] += 1e-3
        return x * 2

    with pytest.raises((GradcheckError, ValueError), match=r"changed|read-only"):
        ta.gradcheck(op_with(spoil, lambda grad: grad * 2), [x], fast=fast)


@both_modes
def test_a_rule_that_changes_the_input_is_rejected(x: ta.Tensor, fast: bool) -> None:
    def rule(grad, x):
        x.setflags(write=True)
        x[0, 0] += 1e-3
        return grad * 2

    with pytest.raises((GradcheckError, ValueError), match=r"changed|read-only|WRITEABLE"):
        ta.gradcheck(op_with(lambda x: x * 2, rule), [x], fast=fast)


@both_modes
def test_a_rule_that_changes_its_cotangent_is_rejected(x: ta.Tensor, fast: bool) -> None:
    def rule(grad):
        grad *= 2
        return grad

    with pytest.raises(GradcheckError, match="writes to an argument"):
        ta.gradcheck(op_with(lambda x: x * 2, rule), [x], fast=fast)


@both_modes
def test_a_result_that_is_nan_is_rejected(x: ta.Tensor, fast: bool) -> None:
    """NaN agrees with nothing, not even with NaN."""
    nan = op_with(lambda x: x * 2, lambda grad: grad * np.nan)
    with pytest.raises(GradcheckError, match="nan"):
        ta.gradcheck(nan, [x], fast=fast)
    with pytest.raises(GradcheckError, match="nan"):
        ta.gradcheck(lambda x: x.log(), [x], fast=fast)  # of negative numbers


@both_modes
def test_a_graph_that_was_cut_is_rejected(x: ta.Tensor, fast: bool) -> None:
    with pytest.raises(GradcheckError, match=r"output 0 depends on no input.*cut"):
        ta.gradcheck(lambda x: x.detach() * 2, [x], fast=fast)
    with pytest.raises(GradcheckError, match="output 1 depends on no input"):
        ta.gradcheck(lambda x: (x, x.detach()), [x], fast=fast)


@both_modes
def test_a_part_that_was_cut_is_rejected(x: ta.Tensor, fast: bool) -> None:
    """The derivative is there, but a term of it is missing."""
    with pytest.raises(GradcheckError, match="output 0"):
        ta.gradcheck(lambda x: x * x.detach(), [x], fast=fast)
    y = ta.tensor(x.numpy() + 2, requires_grad=True)
    with pytest.raises(GradcheckError, match="input 1"):
        ta.gradcheck(lambda x, y: x * y.detach(), [x, y], fast=fast)


# What the message says


def test_the_element_is_named(x: ta.Tensor) -> None:
    """Output, input, both indices, both numbers."""
    wrong = op_with(
        lambda x: x.T * 3, lambda grad: (grad * (3 + (np.arange(12) == 7).reshape(4, 3))).T
    )
    message = (
        r"d output 0\[2, 1\] / d input 0\[1, 2\]: the derivative gives 4, "
        r"finite differences give (3|2\.99999)"
    )
    with pytest.raises(GradcheckError, match=message):
        ta.gradcheck(wrong, [x])


def test_the_fast_mode_names_input_and_output(x: ta.Tensor) -> None:
    with pytest.raises(GradcheckError, match=r"output 0 by input 0.*fast=False"):
        ta.gradcheck(FAULTS["a factor 2"], [x], fast=True)


# What cannot be checked


@pytest.mark.parametrize("dtype", [ta.float32, ta.float16])
def test_only_float64_can_be_checked(dtype: Any) -> None:
    low = ta.ones(2, dtype=dtype, requires_grad=True)
    with pytest.raises(DtypeError, match=rf"float64, input 0 is {np.dtype(dtype)}"):
        ta.gradcheck(F.softmax, [low])
    with pytest.raises(DtypeError, match="float64, input 0"):
        ta.gradgradcheck(F.softmax, [low])
    with pytest.raises(DtypeError, match="float64, parameter 'weight' is float32"):
        ta.gradcheck(nn.Linear(2, 2), [ta.ones(1, 2)])


def test_something_must_require_a_gradient() -> None:
    with pytest.raises(ValueError, match="a float64 input or parameter with requires_grad=True"):
        ta.gradcheck(F.softmax, [ta.ones(2, dtype=ta.float64)])


def test_the_function_must_return_tensors(x: ta.Tensor) -> None:
    with pytest.raises(TypeError, match="output 0 of fn must be a Tensor, got float"):
        ta.gradcheck(lambda x: x.sum().item(), [x])


def test_an_error_of_the_function_comes_through(x: ta.Tensor) -> None:
    """And leaves the input as it was."""
    calls = []

    def fails_later(x: ta.Tensor) -> ta.Tensor:
        calls.append(1)
        if len(calls) > 5:
            raise KeyError("in the function")
        return x * 2

    before = x.numpy()
    with pytest.raises(KeyError, match="in the function"):
        ta.gradcheck(fails_later, [x])
    np.testing.assert_array_equal(x.numpy(), before)


# Second order


@both_modes
@pytest.mark.parametrize(
    "function",
    [
        F.softmax,
        F.gelu,
        lambda x: F.layer_norm(x, 4),
        lambda x: x**3,
        lambda x: x.sum(0),
        lambda x: (x * 2, x @ x.T),
    ],
)
def test_right_second_derivatives_pass(
    x: ta.Tensor, function: Callable[..., Any], fast: bool
) -> None:
    assert ta.gradgradcheck(function, [x], fast=fast) is True


@both_modes
def test_second_derivatives_of_several_inputs_and_of_modules(x: ta.Tensor, fast: bool) -> None:
    ta.manual_seed(0)
    y = ta.tensor([[0.5], [1.5], [-1.0]], dtype=ta.float64, requires_grad=True)
    assert ta.gradgradcheck(lambda x, y: (x * y).tanh(), [x, y], fast=fast)
    assert ta.gradgradcheck(lambda x, y: x**3, [x, y], fast=fast)  # y plays no part
    assert ta.gradgradcheck(Scaler().to(ta.float64), [x], fast=fast)


def graph_only(right: Callable[..., Any], wrong: Callable[..., Any]) -> Callable[..., Any]:
    """A rule that is right on arrays, and wrong on the Tensors of a second derivative."""

    def rule(grad, x):
        return wrong(grad, x) if isinstance(x, ta.Tensor) else right(grad, x)

    return rule


def cube(x):
    return x**3


def cube_slope(grad, x):
    return grad * 3 * x**2


SECOND_FAULTS = {
    "a constant where there is none": op_with(
        cube, graph_only(cube_slope, lambda grad, x: grad * 3 * x.detach() ** 2)
    ),
    "a factor 2": op_with(cube, graph_only(cube_slope, lambda grad, x: grad * 6 * x**2)),
    "another power": op_with(
        cube, graph_only(cube_slope, lambda grad, x: grad * 3 * x**3 / x.detach())
    ),
    "the cotangent cut off": op_with(
        cube, graph_only(cube_slope, lambda grad, x: grad.detach() * 3 * x**2)
    ),
    "a sign": op_with(
        cube, graph_only(cube_slope, lambda grad, x: grad * (6 * x.detach() ** 2 - 3 * x**2))
    ),
}


@both_modes
@pytest.mark.parametrize("fault", SECOND_FAULTS)
def test_wrong_second_derivatives_are_rejected(x: ta.Tensor, fault: str, fast: bool) -> None:
    """Of first derivatives that are right."""
    assert ta.gradcheck(SECOND_FAULTS[fault], [x], fast=fast)
    with pytest.raises(GradcheckError):
        ta.gradgradcheck(SECOND_FAULTS[fault], [x], fast=fast)


@both_modes
def test_a_wrong_first_derivative_is_not_hidden_by_a_consistent_second(
    x: ta.Tensor, fast: bool
) -> None:
    """gradgradcheck checks the gradient against itself; gradcheck has to come first."""
    wrong = op_with(lambda x: x**3, lambda grad, x: grad * 6 * x**2)
    with pytest.raises(GradcheckError):
        ta.gradcheck(wrong, [x], fast=fast)


@pytest.mark.parametrize("fast", [False, True])
def test_an_input_may_be_nan_where_it_plays_no_part(fast: bool) -> None:
    """NaN is unlike itself, and is no change."""
    x = ta.tensor([np.nan, 0.5, -2.0], requires_grad=True, dtype=ta.float64)
    assert ta.testing.gradcheck(lambda x: x[1:] ** 3, [x], fast=fast)
    assert ta.testing.gradcheck(lambda x: ta.where(x > -9.0, x, 0.0) ** 3, [x], fast=fast)
