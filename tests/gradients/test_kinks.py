"""Functions with kinks: what is right passes, near a kink and at it; what is wrong is noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn
from tinyattn.errors import GradcheckError
from tinyattn.testing import check_op, gradcheck, slopes

Function = Callable[..., Any]


# What is right


def maxima_of_windows(x: ta.Tensor) -> ta.Tensor:
    return x.reshape(x.shape[0] // 2, 2, x.shape[1]).amax(1)


FUNCTIONS: dict[str, Function] = {
    "relu": F.relu,
    "leaky relu": lambda x: ta.where(x > 0, x, 0.1 * x),
    "abs": abs,
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "max": lambda x: x.amax(-1),
    "sort": lambda x: x.sort(-1)[0],
    "median": lambda x: x.sort(-1)[0][:, 3],
    "maxima of windows of relu": lambda x: maxima_of_windows(x.relu()),
    "hard mask": lambda x: x * (x > 0.5),
    "a step": lambda x: x * (x - x % 1.0),
    "the distance to the maximum": lambda x: (x.amax(-1, keepdim=True) - x).relu(),
    "mean of distances": lambda x: (x - x.mean(-1, keepdim=True)).abs().mean(),
    "a kink of second order": lambda x: x.relu() ** 2,
    "softmax of relu": lambda x: F.softmax(x.relu(), -1),
    "normed relu": lambda x: F.layer_norm(x.relu(), x.shape[-1]),
    "relu of a product": lambda x: (x @ x.T).relu(),
    "large slopes": lambda x: x.relu() * 1e6,
    "large values": lambda x: x.relu() + 1e5,
}
INPUTS: dict[str, Callable[[np.ndarray, np.random.Generator], np.ndarray]] = {
    "apart": lambda x, rng: x,
    "near": lambda x, rng: x.round(1) + 10.0 ** -rng.integers(3, 10, x.shape) * x,
    "ties": lambda x, rng: x.round(0),
    "zeros": lambda x, rng: np.where((rng.random(x.shape) < 0.3) | (x == x[:1]), 0.0, x),
}
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.extended) for seed in range(1, 6))]
each_shape = pytest.mark.parametrize("shape", [(4, 6), (30, 30)], ids=["full", "projected"])


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@each_shape
@pytest.mark.parametrize("place", INPUTS.values(), ids=INPUTS)
@pytest.mark.parametrize("seed", SEEDS)
def test_right_derivatives_pass(
    function: Function, shape: tuple[int, int], place: Any, seed: int
) -> None:
    """Also where many elements lie at a kink exactly, or are equal."""
    rng = np.random.default_rng(seed)
    x = ta.tensor(place(rng.standard_normal(shape), rng), requires_grad=True)
    assert ta.gradcheck(function, [x], fast=shape[0] > 10)
    assert ta.gradgradcheck(function, [x], fast=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_modules_with_relu_pass(seed: int) -> None:
    ta.manual_seed(seed)
    check_op(nn.PositionwiseFeedForward(16, 32, 0.0), [(ta.randn(2, 5, 16),)])
    x = ta.randn(6, 8)
    x[-2:] = 0.0  # where all kinks of a layer meet
    layers = [layer for _ in range(3) for layer in (nn.Linear(8, 8, bias=False), nn.ReLU())]
    said = check_op(nn.Sequential(*layers), [(x,)])
    assert "at a kink, first sample 0, output 0[4, " in said


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("act", ["relu", "leaky relu", "abs", "clamp"])
def test_layers_without_bias_pass_at_an_input_of_0(act: str, fast: bool) -> None:
    """All numbers of the first layer lie at their kinks there, and move along one line."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        first, second = (
            ta.tensor(rng.normal(size=s), requires_grad=True) for s in ((1, 3), (3, 1))
        )
        x = ta.tensor(np.linspace(-1, 1, 5)[:, None], requires_grad=True)
        assert ta.gradcheck(
            lambda x, a, b: FUNCTIONS[act](x @ a) @ b, [x, first, second], fast=fast, seed=seed
        )


def test_an_encoder_layer_with_relu_passes() -> None:
    ta.manual_seed(0)
    attention = nn.MultiHeadedAttention(2, 8, 0.0)
    layer = nn.EncoderLayer(8, attention, nn.PositionwiseFeedForward(8, 32, 0.0), 0.0)
    check_op(layer, [(ta.randn(2, 4, 8),)], second_order=False)


@pytest.mark.parametrize("fast", [False, True])
def test_numbers_that_are_infinite_everywhere_have_slope_0(fast: bool) -> None:
    """As the scores of keys that no query sees."""
    x = ta.tensor(np.random.default_rng(0).normal(size=(4, 4)), requires_grad=True)
    visible = ta.tensor(np.tri(4, dtype=bool))
    assert ta.gradcheck(lambda x: ta.where(visible, x.relu(), -ta.inf), [x], fast=fast)


# What is wrong


@pytest.mark.parametrize("fast", [False, True])
def test_short_waves_are_no_kink(fast: bool) -> None:
    for seed in range(4):
        x = ta.tensor(np.random.default_rng(seed).normal(size=(3, 4)), requires_grad=True)
        assert ta.gradcheck(lambda x: (x * 1e4).sin() * 1e-3, [x], fast=fast, seed=seed)


def test_rounding_of_large_values_is_no_kink() -> None:
    """It moves each slope, and a message about kinks would lead away from the wrong rule."""
    sine = op_with(lambda x: 1e9 + np.sin(x), lambda grad, x: 1.5 * grad * np.cos(x))
    for seed in range(4):
        x = ta.tensor(np.random.default_rng(seed).standard_normal((4, 6)), requires_grad=True)
        with pytest.raises(GradcheckError, match="no kink is near"):
            ta.gradcheck(sine, [x])


def op_with(forward: Function, rule: Function) -> Function:
    op = ta.op(forward)
    op.vjp("x")(rule)
    return op


def relu(x):
    return np.maximum(x, 0)


def leaky(x):
    return np.where(x > 0, x, 0.1 * x)


def clipped(x):
    return np.clip(x, -0.5, 0.5)


def hinge(x):
    return np.maximum(1 - x, 0)


def huber(x):
    return np.where(abs(x) < 1, x * x / 2, abs(x) - 0.5)


def hard_mask(x):
    return x * (x > 0.5)


def steep(x):
    return np.maximum(x, 0) + np.maximum(x - 0.3, 0) - 3 * np.maximum(-x - 0.7, 0)


def remainder(x):
    return x % 0.7


def largest(x):
    return x.max(-1)


def larger_of(x, y):
    return np.maximum(x, y)


def ordered(x):
    return np.sort(x, -1)


def middle(x):
    return np.sort(x, -1)[..., x.shape[-1] // 2]


def pairs(x):
    return x.reshape(*x.shape[:-1], -1, 2).max(-1)


def slope(formula: Function) -> Function:
    """The rule of a function of each element, by its slope."""
    return lambda grad, x: grad * formula(x)


def to_number(*from_above: int, share: float = 1.0) -> Function:
    """The gradient of one number of each row, given to those that are so many below the top."""

    def rule(grad, x):
        numbers = np.sort(x, -1)[..., [-1 - k for k in from_above]]
        return grad[..., None] * share * (x[..., None] == numbers[..., None, :]).any(-1)

    return rule


def to_places(shift: int, rows: Any = slice(None)) -> Function:
    """The gradient of a sorted row, given back by indices that are shifted in some rows."""

    def rule(grad, x):
        places = np.argsort(x, -1)
        places[rows] = np.roll(places[rows], shift, -1)
        return np.take_along_axis(grad, np.argsort(places, -1), -1)

    return rule


def to_pairs(choose: Function) -> Function:
    def rule(grad, x):
        windows = x.reshape(*x.shape[:-1], -1, 2)
        return (grad[..., None] * choose(windows)).reshape(x.shape)

    return rule


ONE, SIGN = np.ones_like, np.sign
WRONG: dict[str, tuple[Function, Function]] = {
    "relu: a slope above": (relu, slope(lambda x: (x > 0) * (1 + 1e-4))),
    "relu: a slope below": (relu, slope(lambda x: np.where(x > 0, 1, 1e-4))),
    "relu: a threshold below 0": (relu, slope(lambda x: x > -0.01)),
    "relu: a threshold above 0": (relu, slope(lambda x: x > 0.01)),
    "relu: one below for one element": (relu, slope(lambda x: (x > 0) | (x == x.min()))),
    "relu: zero for one element": (relu, slope(lambda x: (x > 0) & (x < x.max()))),
    "relu: a sign below": (relu, slope(lambda x: SIGN(x))),
    "relu: sides exchanged": (relu, slope(lambda x: x < 0)),
    "relu: always 1": (relu, slope(ONE)),
    "relu: always 0": (relu, slope(np.zeros_like)),
    "relu: always half": (relu, slope(lambda x: 0.5 * ONE(x))),
    "relu: smooth": (relu, slope(lambda x: 1 / (1 + np.exp(-100 * x)))),
    "relu: by the sign of the gradient": (relu, lambda grad, x: grad * ((x > 0) & (grad > 0))),
    "leaky: a slope below": (leaky, slope(lambda x: np.where(x > 0, 1, 0.1001))),
    "leaky: a slope above": (leaky, slope(lambda x: np.where(x > 0, 0.9999, 0.1))),
    "leaky: a sign below": (leaky, slope(lambda x: np.where(x > 0, 1, -0.1))),
    "leaky: zero below": (leaky, slope(lambda x: x > 0)),
    "leaky: sides exchanged": (leaky, slope(lambda x: np.where(x > 0, 0.1, 1))),
    "leaky: between the slopes": (leaky, slope(lambda x: 0.55 * ONE(x))),
    "abs: no sign": (abs, slope(ONE)),
    "abs: a sign": (abs, slope(lambda x: -SIGN(x))),
    "abs: zero below": (abs, slope(lambda x: x > 0)),
    "abs: a little below": (abs, slope(lambda x: SIGN(x) - 1e-4 * (x < 0))),
    "abs: a step apart": (abs, slope(lambda x: SIGN(x - 0.01))),
    "clip: outside above": (clipped, slope(lambda x: x >= -0.5)),
    "clip: outside below": (clipped, slope(lambda x: x <= 0.5)),
    "clip: just outside": (clipped, slope(lambda x: abs(x) <= 0.52)),
    "clip: just inside": (clipped, slope(lambda x: abs(x) <= 0.48)),
    "clip: one side twice": (clipped, slope(lambda x: (abs(x) < 0.5) * (1.0 + (x > 0)))),
    "hinge: a sign": (hinge, slope(lambda x: x < 1)),
    "hinge: another margin": (hinge, slope(lambda x: -1.0 * (x < 0.9))),
    "hinge: everywhere": (hinge, slope(lambda x: -ONE(x))),
    "huber: quadratic outside": (huber, slope(lambda x: x)),
    "huber: sign inside": (huber, slope(SIGN)),
    "huber: another bound": (huber, slope(lambda x: np.where(abs(x) < 1.05, x, SIGN(x)))),
    "huber: a sign on one side": (huber, slope(lambda x: np.where(x > -1, np.minimum(x, 1), 1))),
    "mask: the other side": (hard_mask, slope(lambda x: x <= 0.5)),
    "mask: everywhere": (hard_mask, slope(ONE)),
    "mask: a bound": (hard_mask, slope(lambda x: x > 0.45)),
    "steep: the middle": (steep, slope(lambda x: 1.0 * (x > 0.3) + 3 * (x < -0.7))),
    "steep: the last": (steep, slope(lambda x: 1.0 * (x > 0) + 3 * (x < -0.7))),
    "steep: a sign": (steep, slope(lambda x: 1.0 * (x > 0) + (x > 0.3) - 3 * (x < -0.7))),
    "remainder: zero": (remainder, slope(np.zeros_like)),
    "remainder: below zero": (remainder, slope(SIGN)),
    "max: the second": (largest, to_number(1)),
    "max: the smallest": (largest, to_number(-1 % 4)),
    "max: two": (largest, to_number(0, 1)),
    "max: a factor": (largest, to_number(0, share=1.001)),
    "median: its neighbour": (middle, to_number(0)),
    "sort: shifted": (ordered, to_places(1)),
    "sort: shifted in one row": (ordered, to_places(-1, -1)),
    "sort: not undone": (ordered, lambda grad, x: np.take_along_axis(grad, np.argsort(x, -1), -1)),
    "sort: nothing": (ordered, lambda grad: 1.0 * grad),
    "pairs: the first": (pairs, to_pairs(lambda w: np.arange(2) == 0)),
    "pairs: both": (pairs, to_pairs(ONE)),
    "pairs: half": (pairs, to_pairs(lambda w: 0.5 * ONE(w))),
    "pairs: the smaller": (pairs, to_pairs(lambda w: w == w.min(-1, keepdims=True))),
    "pairs: both if near": (pairs, to_pairs(lambda w: w > w.max(-1, keepdims=True) - 0.05)),
}


def sample(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """With elements on both sides of each kink, and near it."""
    x = rng.standard_normal(shape)
    x[0] = np.resize([-0.005, 0.005, 0.51, -0.51, 0.49, 1e-5, 0.95, 1.02], shape[1])
    x[1, :2] = 0.52, 0.50  # a pair with a near maximum
    return x


@pytest.mark.parametrize("fault", WRONG)
@pytest.mark.parametrize("shape", [(4, 8), (30, 30)], ids=["full", "projected"])
def test_wrong_derivatives_are_noticed(
    fault: str, shape: tuple[int, int], rng: np.random.Generator
) -> None:
    with pytest.raises(GradcheckError, match=r"finite differences give|not linear|-2 times"):
        check_op(op_with(*WRONG[fault]), [(sample(rng, shape),)], second_order=False)


RIGHT: dict[str, tuple[Function, Function]] = {
    "huber": (huber, slope(lambda x: np.clip(x, -1, 1))),
    "steep": (steep, slope(lambda x: 1.0 * (x > 0) + (x > 0.3) + 3 * (x < -0.7))),
    "hinge": (hinge, slope(lambda x: -1.0 * (x < 1))),
    "max": (largest, to_number(0)),
    "median": (middle, to_number(3)),
    "sort": (ordered, to_places(0)),
    "pairs": (pairs, to_pairs(lambda w: w == w.max(-1, keepdims=True))),
}


@pytest.mark.parametrize("name", RIGHT)
def test_the_right_rules_beside_the_wrong_ones(name: str, rng: np.random.Generator) -> None:
    """Or a fault above might be noticed for another reason."""
    check_op(op_with(*RIGHT[name]), [(rng.standard_normal((4, 8)),)], second_order=False)


@each_shape
@pytest.mark.parametrize("value", [-1.0, -0.002, 1.01, 5.0])
def test_what_is_not_between_the_slopes_is_wrong_at_a_kink(
    value: float, shape: tuple[int, int], rng: np.random.Generator
) -> None:
    x = sample(rng, shape)
    x[1:3] = 0.0
    wrong = op_with(relu, lambda grad, x: grad * ((x > 0) + value * (x == 0)))
    with pytest.raises(GradcheckError, match=r"finite differences give .* to .* at a kink"):
        check_op(wrong, [(x,)], second_order=False)
    half = op_with(relu, lambda grad, x: grad * ((x > 0) + 0.5 * (x == 0)))
    check_op(half, [(x,)], second_order=False)


@pytest.mark.parametrize(
    ("above", "below"), [(1.0, 0.0), (1.0, 0.1 + 1e-5), (0.9, 0.1), (0.1, 0.1)]
)
def test_one_side_is_noticed_where_all_elements_lie_at_the_kink(above: float, below: float) -> None:
    rule = slope(lambda x: np.where(x > 0, above, np.where(x < 0, below, 0.5)))
    with pytest.raises(GradcheckError, match=r"d output 0\[0\] / d input 0\[0\].* no kink is near"):
        check_op(op_with(leaky, rule), [(np.zeros(1),)], second_order=False)


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize(("above", "below"), [(1.0, -1.0), (1.0, 0.0), (1.0, -0.9), (0.0, 0.0)])
def test_one_side_is_noticed_where_the_differences_agree_at_the_kink(
    above: float, below: float, fast: bool
) -> None:
    """The slope 0 of |x| at 0 is that of the differences too; no number is below 0."""
    rule = slope(lambda x: np.where(x > 0, above, np.where(x < 0, below, 0.0)))
    for seed in range(6):
        for numbers in ([0.0], [0.5, 0.0, 0.0, 2.0], [[-0.0, 0.0], [0.0, 0.0]]):
            x = ta.tensor(np.array(numbers), requires_grad=True)
            if (above, below) == (1.0, -1.0):
                gradcheck(op_with(np.abs, rule), x, fast=fast, seed=seed)
                continue
            with pytest.raises(GradcheckError, match=r"derivative gives"):
                gradcheck(op_with(np.abs, rule), x, fast=fast, seed=seed)


@each_shape
def test_a_maximum_that_is_not_shared_by_those_that_tie(shape: tuple[int, int]) -> None:
    """Each element alone lies between the slopes; only the sum is wrong."""
    x = np.random.default_rng(5).standard_normal(shape)
    x[:, 1] = x[:, 0] = 4.0
    with pytest.raises(GradcheckError, match="at a kink"):
        check_op(op_with(largest, to_number(0)), [(x,)], second_order=False)
    check_op(lambda x: x.amax(-1), [(x,)])


@pytest.mark.parametrize("seed", range(6))
def test_a_tie_of_two_numbers_is_noticed_alone(seed: int) -> None:
    """Moved in different directions, both gradients of 1 add up to one between the slopes."""
    x = ta.tensor([[1.0, 1.0]], dtype=ta.float64, requires_grad=True)
    with pytest.raises(GradcheckError, match="finite differences give"):
        ta.gradcheck(op_with(largest, to_number(0)), [x], seed=seed)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("of_x", "of_y", "is_right"),
    [(1.0, 1.0, False), (0.0, 0.0, False), (1.0, 0.0, True), (0.5, 0.5, True), (0.2, 0.7, False)],
)
def test_a_tie_of_two_inputs(of_x: float, of_y: float, is_right: bool, seed: int) -> None:
    """While one input moves, each number from 0 to 1 is right for it."""
    larger = ta.op(larger_of)
    larger.vjp("x")(lambda grad, x, y: grad * ((x > y) + of_x * (x == y)))
    larger.vjp("y")(lambda grad, x, y: grad * ((x < y) + of_y * (x == y)))
    x, y = (ta.tensor(a, dtype=ta.float64, requires_grad=True) for a in ([1.0, 0.0], [1.0, 3.0]))
    if is_right:
        assert ta.gradcheck(larger, [x, y], seed=seed)
        return
    with pytest.raises(GradcheckError, match=r"input 0 and input 1, .*no kink is near"):
        ta.gradcheck(larger, [x, y], seed=seed)


def test_equal_slopes_on_both_sides_are_no_proof() -> None:
    """The middle of three equal numbers moves with none of them alone."""
    x = np.ones((2, 3))
    said = check_op(lambda x: x.sort(-1)[0][:, 1], [(x,)])
    assert "at a kink" in said
    identity = op_with(lambda x: 1.0 * x, lambda grad, x: grad * (x != 1))
    with pytest.raises(GradcheckError, match="gives 0, finite differences give 1, no kink is near"):
        check_op(identity, [(x,)])


def test_kinks_that_cancel_are_no_kink() -> None:
    """Both rules of relu give 0 at 0, which is not the slope of x."""
    function = lambda x: x.relu() - (-x).relu()  # noqa: E731
    check_op(function, [(np.array([0.5, -0.5, 1e-9]),)])
    with pytest.raises(GradcheckError, match="gives 0, finite differences give 1, no kink is near"):
        check_op(function, [(np.zeros(2),)])


def squared(x):
    return np.maximum(x, 0) ** 2


@pytest.mark.parametrize("below", [False, True])
@each_shape
def test_wrong_second_derivatives_are_noticed(
    below: bool, shape: tuple[int, int], rng: np.random.Generator
) -> None:
    """Of relu(x)^2: 0 instead of 2 above zero, or 2 instead of 0 below."""

    def rule(grad, x):
        if not isinstance(x, ta.Tensor):
            return 2 * grad * np.maximum(x, 0)
        return 2 * grad * (x.detach().relu() + (x - x.detach() if below else 0.0))

    op, x = op_with(squared, rule), sample(rng, shape)
    check_op(op, [(x,)], second_order=False)
    with pytest.raises(GradcheckError, match="second order"):
        check_op(op, [(x,)])


def test_a_rule_that_loses_its_graph_is_noticed() -> None:
    """The second derivative of relu is 0, so only the gradient of the output shows it."""

    def rule(grad, x):
        return grad.detach() * (x > 0) if isinstance(grad, ta.Tensor) else grad * (x > 0)

    x = np.array([[0.5, -2.0], [1.5, 3.0]])
    op = op_with(relu, rule)
    check_op(op, [(x,)], second_order=False)
    for fn in (op, lambda x: (op(x), x * 1.0)):
        with pytest.raises(GradcheckError, match=r"loses its graph|second order"):
            check_op(fn, [(x,)])
    with pytest.raises(GradcheckError, match="input 0 loses its graph"):
        ta.gradgradcheck(op, [ta.tensor(x, requires_grad=True)])


@pytest.mark.parametrize("fast", [False, True])
def test_what_has_kinks_everywhere_is_rejected(fast: bool, rng: np.random.Generator) -> None:
    """As if it were computed in float32."""
    rough = op_with(
        lambda x: np.sin(x.astype(np.float32)).astype(x.dtype), lambda grad, x: grad * np.cos(x)
    )
    x = ta.tensor(rng.standard_normal((3, 4)), requires_grad=True)
    with pytest.raises(
        GradcheckError, match=r"everywhere close by.*float32|computes in float32|numbers at a kink"
    ):
        ta.gradcheck(rough, [x], fast=fast)


@pytest.mark.parametrize("fast", [False, True])
def test_kinks_that_are_closer_than_the_smallest_step(fast: bool, rng: np.random.Generator) -> None:
    x = ta.tensor(rng.standard_normal(5), requires_grad=True)
    with pytest.raises(GradcheckError, match="a kink here and everywhere close by"):
        ta.gradcheck(lambda x: abs((x * 1e7).sin()) / 1e7, [x], fast=fast)


@each_shape
def test_a_wrong_smooth_derivative_of_large_values(shape: tuple[int, int]) -> None:
    """There is no smaller step, because rounding is too large for it."""
    x = np.random.default_rng(2).standard_normal(shape)
    wrong = op_with(lambda x: np.sin(x) + 1e5, lambda grad, x: grad * np.cos(x) * 1.01)
    with pytest.raises(GradcheckError, match="finite differences"):
        check_op(wrong, [(x,)], second_order=False)


def test_numbers_are_as_before(rng: np.random.Generator) -> None:
    """Also those that were moved to a place beside the kink."""
    x = ta.tensor(rng.standard_normal((3, 4)).round(0), requires_grad=True)
    array, values = x._data, x.numpy()
    ta.gradcheck(lambda x, y: ta.maximum(x, y), [x, x])
    assert x._data is array
    np.testing.assert_array_equal(x.numpy(), values)


def test_the_step_can_be_chosen() -> None:
    fast = lambda x: (1e4 * x).sin().relu() / 1e4  # noqa: E731
    x = np.random.default_rng(1).standard_normal(100)
    check_op(fast, [(x,)], eps=1e-6, second_order=False)
    wrong = op_with(lambda x: x * (1 + abs(x)), slope(lambda x: 1 + 2 * abs(x) + 2e-4 * x))
    with pytest.raises(GradcheckError, match="finite differences"):
        check_op(wrong, [(x,)], eps=1e-2, second_order=False)


@pytest.mark.parametrize("numbers", [[-8.0, 2.0], [2.0, 8.0], [0.0, -8.0]])
def test_steps_are_relative_to_the_largest_number_of_either_sign(numbers: list[float]) -> None:
    assert slopes.scale_of(ta.tensor(numbers)) == 8.0
    assert slopes.scale_of(ta.tensor([-0.25])) == slopes.scale_of(ta.zeros(0)) == 1.0
