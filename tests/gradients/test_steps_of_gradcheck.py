"""The steps of gradcheck and check_op one by one: which numbers each gets, and what it says."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
from tinyattn.errors import GradcheckError
from tinyattn.testing import finite_differences, op_checks
from tinyattn.testing.finite_differences import DISTANCES, SMALLER, Checker, joined
from tinyattn.testing.slopes import Line

SHARES = [1.0, 0.1, 0.01, 0.001, 0.0001]


def leaf(*numbers: Any) -> ta.Tensor:
    return ta.tensor(numbers, dtype=ta.float64, requires_grad=True)


def checker_of(fn: Any, *inputs: ta.Tensor, **options: Any) -> Checker:
    return Checker(fn, inputs, np.random.default_rng(0), **options)


def line_of(checker: Checker) -> Line:
    (x,) = checker.tensors
    return Line(checker, 0, [x], [np.ones(x.shape)])


# Differences


@pytest.mark.parametrize("slack", [1.0, 3.0])
@pytest.mark.parametrize("least", [0.0, 50.0])
@pytest.mark.parametrize("slope", [1e-5, 0.25, -20.0])
def test_a_tolerance_is_that_of_the_smaller_slope_and_of_the_largest_number(
    slope: float, least: float, slack: float
) -> None:
    checker = checker_of(lambda x: slope * x, leaf(0.5), atol=1e-3, rtol=1e-2)
    line = line_of(checker)
    found = checker.differences(line, np.array([slope]), None, slack, least)
    wrong, bent, slopes, tolerance, step = found
    assert not wrong.any()
    assert not bent.any()
    assert np.allclose(slopes, slope)
    size = min(1.0, max(1e-3, abs(slope)))
    assert np.allclose(tolerance, 1e-3 * size * slack + 1e-2 * max(abs(slope), least))
    assert step == 1e-3 * 1e-4  # a close one, because the first one agrees
    other = checker.differences(line, np.array([slope / 2]), None, slack, least)
    right = 1e-3 * size * slack + 1e-2 * max(abs(slope) / 2, least)
    assert np.allclose(other[3], right)
    assert other[0].item() == (abs(slope) / 2 > right)


def test_steps_get_smaller_until_none_is_wrong_or_rounding_is_larger() -> None:
    assert SMALLER.tolist() == SHARES
    for place, share in zip((0.02, 0.3e-3, 0.3e-4, 0.3e-5), SHARES, strict=False):
        checker = checker_of(lambda x, place=place: (x - place).relu() * 1e-3, leaf(0.0))
        steps: list[float] = []
        line = line_of(checker)
        slope = line.slope
        line.slope = lambda step, slope=slope, steps=steps: steps.append(step) or slope(step)  # type: ignore[method-assign]
        wrong, _, _, _, step = checker.differences(line, np.array([0.0]))
        assert not wrong.any()
        assert step == 1e-3 * SHARES[-1]
        assert np.allclose(steps, 1e-3 * np.array(SHARES[: 1 + SHARES.index(share)]))
    # Of a wrong derivative all are tried, and the last one is said.
    checker = checker_of(lambda x: x * 2, leaf(0.0))
    wrong, bent, slopes, _, step = checker.differences(line_of(checker), np.array([1.0]))
    assert wrong.tolist() == [True]
    assert bent.tolist() == [False]
    assert np.allclose(slopes, 2.0)
    assert math.isclose(step, 1e-7)
    # Where rounding is larger than the tolerance, the one before.
    checker = checker_of(lambda x: x * 2 + 1e6, leaf(0.0))
    assert math.isclose(checker.differences(line_of(checker), np.array([1.0]))[4], 1e-3)


def test_each_number_is_judged_alone_and_a_kink_that_agrees_is_bent() -> None:
    def fn(x: ta.Tensor) -> ta.Tensor:
        return ta.stack([part[0] for part in (abs(x), 3 * x, x * x, x.relu(), (10 * x).exp())])

    checker = checker_of(fn, leaf(0.0))
    wrong, bent, slopes, *_ = checker.differences(
        line_of(checker), np.array([0.0, 3.5, 0.0, 0.0, 10.0])
    )
    assert wrong.tolist() == [False, True, False, True, False]
    assert bent.tolist() == [True, False, False, False, False]
    assert np.allclose(slopes, [0.0, 3.0, 0.0, 0.5, 10.0])


def test_kinks_that_agree_with_different_steps_are_all_bent() -> None:
    """The first agrees with the first step, and the second with a smaller one."""
    checker = checker_of(lambda x: x, leaf(0.0, 0.0, 0.0))
    line = line_of(checker)
    first = checker.eps * SMALLER[0]

    def slope(step: float) -> tuple[np.ndarray, np.ndarray]:
        return np.array([0.0, 5.0 * (step == first), 0.0]), np.array([1.0, 1.0, 0.0])

    line.slope = slope  # type: ignore[method-assign]
    wrong, bent, *_ = checker.differences(line, np.zeros(3))
    assert wrong.tolist() == [False, False, False]
    assert bent.tolist() == [True, True, False]


def test_with_weights_one_sum_is_compared() -> None:
    weights = np.array([2.0, -1.0, 0.5])
    checker = checker_of(lambda x: ta.stack([x[0], 3 * x[0], -4 * x[0]]), leaf(0.7))
    wrong, bent, slopes, *_ = checker.differences(line_of(checker), np.array(-3.0), weights)
    assert wrong.shape == bent.shape == ()
    assert not wrong
    assert np.isclose(slopes, -3.0)
    assert checker.differences(line_of(checker), np.array(-2.9), weights)[0]


@pytest.mark.parametrize("weights", [[1.0, -2.0, 0.5], [0.0, 3.0, 0.0], [0.0, 0.0, 0.0]])
def test_a_projection_is_a_sum_whose_errors_grow_with_the_root_of_its_terms(weights: Any) -> None:
    x, y = leaf(1.0, 2.0, -1.0), leaf(0.5)
    checker = checker_of(lambda x, y: x * y, x, y)
    line = Line(checker, 0, [x, y], [np.array([1.0, -2.0, 0.5]), np.array([3.0])])
    given: list[Any] = []
    checker.differences = lambda *args: given.append(args) or ("all", "of it")  # type: ignore[method-assign]
    gradient = np.array([4.0, 1.0, -2.0, -0.5])
    analytic, *rest = checker.projected(line, gradient, np.array(weights))
    assert rest == ["all", "of it"]
    assert analytic == 4.0 - 2.0 - 1.0 - 1.5
    ((of_line, same, of_weights, slack, least),) = given
    assert of_line is line
    assert same == analytic
    assert of_weights.tolist() == weights
    assert math.isclose(slack, math.sqrt(4 * max(1, np.count_nonzero(weights))))
    assert math.isclose(least, 7.5 / 2)


def test_arrays_are_joined_in_their_order() -> None:
    found = joined([np.array([[1.0, 2.0], [3.0, 4.0]]), np.array(5.0), np.zeros((0, 2))])
    assert found.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]


# Outputs one after the other


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("kinks", [[[], []], [["a", "b"], []], [[], ["c"]], [["a"], ["b", "c"]]])
def test_each_output_is_checked_and_beside_its_first_kink_again(
    kinks: list[list[str]], fast: bool
) -> None:
    """In the way that was asked for, with what has to hold of every gradient before."""
    checker, calls = checker_of(lambda x: (x, x > 0, x * 2), leaf(1.0)), list[Any]()
    checker.check_contract = lambda o, output: calls.append(("contract", o, output.item()))  # type: ignore[method-assign]

    def check(kind: str, o: int, output: ta.Tensor) -> list[str]:
        calls.append((kind, o, output.item()))
        return kinks[o]

    def check_beside(again: Any, first: str) -> None:
        calls.append(("beside", first))
        again()

    checker.check_projection = lambda *args: check("fast", *args)  # type: ignore[method-assign]
    checker.check_jacobian = lambda *args: check("full", *args)  # type: ignore[method-assign]
    checker.check_beside = check_beside  # type: ignore[method-assign]
    assert checker.check(fast) == [*kinks[0], *kinks[1]]
    right = list[Any]()
    for o, value in enumerate((1.0, 2.0)):
        one = ("fast" if fast else "full", o, value)
        right += [("contract", o, value), one]
        right += [("beside", kinks[o][0]), one] if kinks[o] else []
    assert calls == right


@pytest.mark.parametrize("place", [0, 1])
def test_an_output_without_a_graph_is_named(place: int) -> None:
    def fn(x: ta.Tensor) -> Any:
        return [x * 1 if i != place else x.detach() for i in range(2)]

    with pytest.raises(GradcheckError) as caught:
        ta.gradcheck(fn, leaf(1.0))
    said = "depends on no input that requires gradients, or the graph was cut"
    assert str(caught.value) == f"output {place} {said}"


def with_kinks(x: ta.Tensor, y: ta.Tensor) -> ta.Tensor:
    return ta.stack([x[1].abs() * 2, x[0] * y[0], y[0].abs() + x[1].abs(), y[1] * 3])


def test_kinks_are_named_by_their_element_and_input() -> None:
    checker = checker_of(with_kinks, leaf(1.5, 0.0), leaf(0.0, -2.0))
    (output,) = checker.outputs()
    assert checker.check_jacobian(0, output) == [
        "d output 0[0] / d input 0[1]",
        "d output 0[2] / d input 0[1]",
        "d output 0[2] / d input 1[0]",
    ]
    assert checker.check_projection(0, output) == [
        "output 0[0] by input 0",
        "output 0[2] by input 0",
        "output 0[2] by input 1",
    ]


@pytest.mark.parametrize("name", ["input 0", "parameter 'w'"])
@pytest.mark.parametrize(("i", "j"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_the_element_of_a_wrong_derivative_is_named_with_both_numbers(
    i: int, j: int, name: str
) -> None:
    class Product(ta.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = ta.nn.Parameter(ta.tensor([[2.0, 3.0], [5.0, 7.0]], dtype=ta.float64))

        def forward(self, x: ta.Tensor) -> ta.Tensor:
            return self.w @ x

    x = leaf(-1.0, 0.5)
    checker = Checker(Product(), [x], np.random.default_rng(0), hint="!")
    (output,), right = checker.outputs(), checker.gradients

    def gradients(o: int, cotangent: np.ndarray) -> list[np.ndarray]:
        of_x, of_w = (g.copy() for g in right(o, cotangent))
        if name == "input 0":
            of_x[j] += 0.25 * cotangent[i]
        else:
            of_w[i, j] += 0.25 * cotangent[i]
        return [of_x, of_w]

    checker.gradients = gradients  # type: ignore[method-assign]
    with pytest.raises(GradcheckError) as caught:
        checker.check_jacobian(0, output)
    element = [j] if name == "input 0" else [i, j]
    slope = checker.tensors[1].numpy()[i, j] if name == "input 0" else x.numpy()[j]
    assert str(caught.value) == (
        f"d output 0[{i}] / d {name}{element}: the derivative gives {slope + 0.25:.7g}, "
        f"finite differences give {slope:.7g}, no kink is near!"
    )


# Beside a kink


@pytest.mark.parametrize("clean", range(len(DISTANCES)))
@pytest.mark.parametrize("side", [0, 1])
def test_beside_a_kink_both_sides_are_checked_until_there_is_none(clean: int, side: int) -> None:
    assert DISTANCES == (1, 2, 4, 8, 16, 5, 10, 20)
    x, y, seen = leaf(3.0, -40.0), leaf(0.5), list[np.ndarray]()
    checker = checker_of(lambda x, y: x, x, y, eps=1e-2)

    def check() -> list[str]:
        seen.append(np.array([*x.tolist(), *y.tolist()]))
        is_last = len(seen) > 2 * clean
        return [] if is_last or len(seen) % 2 == side else ["again"]

    checker.check_beside(check, "the first")
    assert len(seen) == 2 * clean + 2
    at, scales = np.array([3.0, -40.0, 0.5]), np.array([40.0, 40.0, 1.0])
    for n, (one, other) in enumerate(zip(seen[::2], seen[1::2], strict=True)):
        assert np.allclose(one - at, at - other)
        share = np.abs(one - at) / (scales * 1e-2 * DISTANCES[n])
        assert ((share > 0.499) & (share < 1.501)).all()
    assert x.tolist() == [3.0, -40.0]


def test_where_there_are_kinks_everywhere_the_first_is_named() -> None:
    checker, count = checker_of(lambda x: x, leaf(1.0)), itertools.count()
    with pytest.raises(GradcheckError) as caught:
        checker.check_beside(lambda: [f"kink {next(count)}"], "the first")
    assert next(count) == 2 * len(DISTANCES)
    assert str(caught.value) == (
        "the first: finite differences find a kink here and everywhere close by, so they prove "
        "nothing: is fn random or in float32, or are its values large beside its slopes?"
    )


# What has to hold of every gradient

NOISE = np.array([0.5e-7, -1e-7])
GRADIENTS: list[tuple[Any, Any, str | None]] = [  # for a cotangent, for the opposite one
    (NOISE.astype(np.float32), -NOISE.astype(np.float32), "is float32(2,), the input"),
    (np.ones(3) / 3, -np.ones(3) / 3, "is float64(3,), the input float64(2,)"),
    (np.array([0.5, 0.25]), np.array([-0.5, -0.25]), "has the digits of float32, although"),
    (np.array([0.1, 1 / 3]), np.array([-0.1, -1 / 3]), None),
    (np.array([0.1, 1 / 3]), np.array([-0.1, -0.3]), "two runs gave different gradients of"),
    (np.array([0.1, 1 / 3]), np.array([0.1, 1 / 3]), "two runs gave different gradients of"),
    # Of samples in float32 a rule that forgets the cotangent has few digits, and that is not why.
    (np.array([0.5, 0.25]), np.array([0.5, 0.25]), "or a rule without grad or not linear"),
    (np.array([np.nan, 1 / 3]), np.array([np.nan, -1 / 3]), None),
    (np.array([1e-7, 0.0]), np.array([-1e-7, 0.0]), None),
    (np.array([2.0**-23, 0.0]), np.array([-(2.0**-23), 0.0]), "has the digits of float32"),
    (np.zeros(2), np.zeros(2), None),
]


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("case", range(len(GRADIENTS)))
def test_what_has_to_hold_of_a_gradient_holds_of_each(case: int, place: int) -> None:
    first, second, said = GRADIENTS[case]
    x, y = leaf(1.0, 2.0), leaf(3.0, -1.0)
    checker = checker_of(lambda x, y: x * y, x, y)
    answers = iter([first, second])
    asked: list[np.ndarray] = []

    def gradients(o: int, cotangent: np.ndarray) -> list[np.ndarray]:
        asked.append(cotangent)
        both = [np.array([0.1, 0.3]) * (-1) ** len(asked)] * 2
        both[place] = next(answers)
        return both

    checker.gradients = gradients  # type: ignore[method-assign]
    if said is None:
        checker.check_contract(4, x)
    else:
        with pytest.raises(GradcheckError) as caught:
            checker.check_contract(4, x)
        assert said in str(caught.value)
        assert f"of output 4 for input {place}" in str(caught.value)
    assert np.array_equal(asked[0], -asked[1])
    assert asked[0].shape == (2,)


@pytest.mark.parametrize("place", [0, 1])
def test_an_input_that_a_gradient_changes_is_named(place: int) -> None:
    both = [leaf(1.0, 2.0), leaf(3.0, -1.0)]
    checker = checker_of(lambda x, y: x * y, *both)

    def gradients(o: int, cotangent: np.ndarray) -> list[np.ndarray]:
        both[place]._data = both[place]._data + np.array([0.0, 1e-12])
        return [np.zeros(2), np.zeros(2)]

    checker.gradients = gradients  # type: ignore[method-assign]
    with pytest.raises(GradcheckError) as caught:
        checker.check_contract(1, both[0])
    assert str(caught.value) == f"input {place} was changed by computing output 1 or its gradient"


def test_cotangents_are_random_and_one_for_each_output_with_a_gradient() -> None:
    x = leaf(1.0, 2.0, 3.0)
    found = checker_of(lambda x: (x, x > 2, x.sum(), x[:2]), x).cotangents()
    assert [one.shape for one in found] == [(3,), (), (2,)]
    assert all(one.requires_grad and one.dtype == np.float64 for one in found)
    rng = np.random.default_rng(0)
    for one in found:
        assert np.array_equal(one.numpy(), rng.standard_normal(one.shape))


RECORDED: list[tuple[Any, Any, str]] = [  # without and with a graph, and what is said
    (None, None, ""),
    (None, ta.zeros(2).double(), ""),
    (leaf(0.0, 1.0), leaf(0.0, 1.0), ""),
    (leaf(np.nan, 1.0), leaf(np.nan, 1.0), ""),
    (leaf(np.inf, 1.0), leaf(np.inf, 1.0), ""),
    (leaf(0.0, 1.0), None, "is another with create_graph=True"),
    (None, leaf(0.0, 1.0), "is another with create_graph=True"),
    (leaf(np.nan, 1.0), leaf(0.0, 1.0), "is another with create_graph=True"),
    (leaf(0.0, 1.0), leaf(0.0, -1.0), "is another with create_graph=True"),
    (leaf(0.0, 1.0), leaf(0.0, 1.0).detach(), "loses its graph when it is recorded"),
]


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("case", range(len(RECORDED)))
def test_each_gradient_is_the_same_with_a_graph(
    case: int, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    unrecorded, recorded, said = RECORDED[case]

    def grad(*args: Any, create_graph: bool, allow_unused: bool) -> list[Any]:
        assert allow_unused
        both = [leaf(0.5, -2.0), leaf(0.5, -2.0)]
        both[place] = recorded if create_graph else unrecorded
        return both

    monkeypatch.setattr(finite_differences, "grad", grad)
    checker = checker_of(lambda x, y: x * y, leaf(1.0, 2.0), leaf(3.0, -1.0))
    if not said:
        checker.check_recorded()
        return
    with pytest.raises(GradcheckError) as caught:
        checker.check_recorded()
    assert str(caught.value).startswith(f"the gradient for input {place} {said}")


# check_op

ALL = ["value", "purity", "derivative", "second derivative", "recorded derivative", "linearity",
       "dtypes", "memory layouts", "lifetime"]  # fmt: skip


@pytest.mark.parametrize("has_reference", [False, True])
@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("second", [False, True])
def test_each_option_leaves_out_its_own_checks(
    has_reference: bool, smooth: bool, second: bool
) -> None:
    found = op_checks.checks_for(np.exp if has_reference else None, smooth, second, False, 1e-4)
    out = {"value": has_reference, "derivative": smooth, "second derivative": smooth and second}
    out["recorded derivative"] = second
    assert [*found] == [name for name in ALL if out.get(name, True)]


def test_the_first_sample_with_a_fault_is_named() -> None:
    samples = [(np.array([0.5]),), (np.array([-1.0]),), (np.array([-2.0]),)]
    with pytest.raises(GradcheckError, match=r"^sample 1: output 0\[0\] is 1\.0, the reference "):
        ta.testing.check_op(abs, samples, reference=lambda x: x)


PURE = [
    ("input", "an input was changed, or made read-only"),
    ("flag", "an input was changed, or made read-only"),
    ("state", "NumPy's global random state was used"),
    ("settings", "NumPy's error settings were changed"),
    ("run", "two runs gave different results: is something random in fn, such as dropout?"),
    *((f"shares {what}", "gradient 1 shares memory with something else") for what in
      ("input", "output", "cotangent", "gradient")),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "said"), PURE)
def test_each_thing_that_a_pure_function_leaves_alone(
    fault: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, calls = op_checks.run, itertools.count()
    arguments = [leaf(1.0, 2.0), leaf(3.0, -0.5)]
    y = arguments[1]._data

    def run(fn: Any, given: Any, cotangents: Any) -> Any:
        used: list[np.ndarray] = []
        noted = lambda output: used.append(cotangents(output)) or used[-1]  # noqa: E731
        outputs, gradients = right(fn, given, noted)
        if next(calls) == 0:
            if fault == "input":
                y[1] = -0.25
            elif fault == "flag":
                y.setflags(write=False)
            elif fault == "state":
                np.random.random()
            elif fault == "settings":
                np.seterr(under="raise")
            elif fault == "run":
                gradients[1] = np.nextafter(gradients[1], 9)
            elif fault.startswith("shares"):
                held = {"input": y, "output": outputs[0], "cotangent": used[0]}
                gradients[1] = (held | {"gradient": gradients[0]})[fault.split()[1]][:1]
        return outputs, gradients

    with np.errstate():
        op_checks.check_purity(lambda x, y: x * y, arguments, np.random.default_rng(0))
        monkeypatch.setattr(op_checks, "run", run)
        with pytest.raises(GradcheckError) as caught:
            op_checks.check_purity(lambda x, y: x * y, arguments, np.random.default_rng(0))
    assert str(caught.value) == said
