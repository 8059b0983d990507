"""Every output, every seed and every dtype of a function is checked, wherever the fault lies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common import leaf

import tinyattn as ta
from tinyattn.errors import GradcheckError
from tinyattn.testing import check_op, gradcheck, gradgradcheck
from tinyattn.testing.op_checks import checks_for

both_modes = pytest.mark.parametrize("fast", [False, True], ids=["full", "fast"])
X = np.array([[0.5, -2.0, 1.25], [3.0, -0.75, 1.5]])


def op_of(forward: Callable[..., Any], rule: Callable[..., Any]) -> Any:
    op = ta.op(forward)
    op.vjp("x")(rule)
    return op


def slope_for_arrays(grad: Any, x: Any) -> Any:
    return 2 * grad * (x.detach() if isinstance(x, ta.Tensor) else x)


def in_memory_order(array: Any) -> Any:
    """The numbers as they lie in memory, whatever the strides say."""
    if not isinstance(array, np.ndarray):
        return array
    shown = np.lib.stride_tricks.as_strided(array, (array.size,), (array.itemsize,))
    return shown.reshape(array.shape)


def wide(array: Any) -> Any:
    return array.astype(np.float64)


def squared(x: Any) -> Any:
    return x * x


def slope(grad: Any, x: Any) -> Any:
    return 2 * grad * x


# For each property an op that lacks it, and what is said; `square` is x * x with this fault.
FAULTS: dict[str, tuple[str, Callable[[], Any], str]] = {
    "derivative": ("derivative", lambda: op_of(squared, lambda grad, x: grad * x), "differences"),
    "second derivative": (
        "second derivative", lambda: op_of(squared, slope_for_arrays), "second order: "),
    "not zero": (
        "linearity", lambda: op_of(squared, lambda grad, x: slope(grad, x) + 1e-9), "is not zero"),
    "not linear": (
        "linearity",
        lambda: op_of(squared, lambda grad, x: slope(grad - 1e-9 * grad * grad * grad, x)),
        "is not -2 times its own"),
    "dtype": ("dtypes", lambda: op_of(lambda x: wide(x * x), slope), "gave a result or gradient"),
    "layout of values": (
        "memory layouts", lambda: op_of(lambda x: in_memory_order(x) ** 2, slope), "layout"),
    "layout of cotangents": (
        "memory layouts", lambda: op_of(squared, lambda grad, x: slope(in_memory_order(grad), x)),
        "layout"),
}  # fmt: skip
# Where the outputs with the fault, those without and those without a gradient are.
PLACES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "alone": lambda bad, good, ids: bad,
    "first": lambda bad, good, ids: (bad, good),
    "second": lambda bad, good, ids: (good, bad),
    "last": lambda bad, good, ids: [good, good, bad],
    "behind one without a gradient": lambda bad, good, ids: (ids, bad),
    "between those without a gradient": lambda bad, good, ids: [ids, bad, ids, good],
}


def beside_right_ones(function: Callable[[Any], Any], place: str) -> Callable[..., Any]:
    def several(x: ta.Tensor) -> Any:
        return PLACES[place](function(x), x * x, (x > 0).long())

    return several


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_noticed_in_each_output(fault: str, place: str) -> None:
    """By the check of its own, because another would notice some of them too."""
    name, make, text = FAULTS[fault]
    check = checks_for(None, True, True, False, 1e-3)[name]
    x = leaf(X)
    check(beside_right_ones(squared, place), [x], np.random.default_rng(0))
    with pytest.raises(GradcheckError, match=text):
        check(beside_right_ones(make(), place), [x], np.random.default_rng(0))


@pytest.mark.parametrize("place", PLACES)
def test_results_that_change_from_run_to_run_are_noticed_in_each_output(place: str) -> None:
    rng = np.random.default_rng(1)
    for op in (
        op_of(lambda x: x * rng.uniform(0.9, 1.1), lambda grad: grad),
        op_of(squared, lambda grad, x: slope(grad, x) * rng.uniform(0.9, 1.1)),
    ):
        check = checks_for(None, True, True, False, 1e-3)["purity"]
        with pytest.raises(GradcheckError, match="two runs gave different results"):
            check(beside_right_ones(op, place), [leaf(X)], rng)


KINDS: dict[str, Callable[[ta.Tensor], ta.Tensor]] = {
    "floats": lambda x: x * 2.0,
    "floats without a graph": lambda x: x.detach() * 2.0,
    "integers": lambda x: x.long() + 1,
    "a mask": lambda x: x > 0,
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
def test_no_output_of_any_kind_may_stay_alive(kind: str, place: str) -> None:
    kept: list[ta.Tensor] = []

    def hoarding(x: ta.Tensor) -> ta.Tensor:
        kept.append(KINDS[kind](x))
        return kept[-1]

    check = checks_for(None, True, True, False, 1e-3)["lifetime"]
    check(beside_right_ones(KINDS[kind], place), [leaf(X)], np.random.default_rng(0))
    with pytest.raises(GradcheckError, match=r"^an output stays alive after its last reference"):
        check(beside_right_ones(hoarding, place), [leaf(X)], np.random.default_rng(0))


@both_modes
@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
@pytest.mark.parametrize("kind", [tuple, list])
def test_a_function_returns_its_outputs_as_a_tuple_or_a_list(
    kind: Any, check: Any, fast: bool
) -> None:
    right, wrong = op_of(squared, slope), op_of(squared, lambda grad, x: grad * x)
    if check is gradgradcheck:
        wrong = op_of(squared, slope_for_arrays)
    for outputs in ((right,), (right, right)):
        assert check(lambda x: kind(f(x) for f in outputs), [leaf(X)], fast=fast)  # noqa: B023
    for outputs in ((wrong,), (wrong, right), (right, wrong)):
        with pytest.raises(GradcheckError):
            check(lambda x: kind(f(x) for f in outputs), [leaf(X)], fast=fast)  # noqa: B023


# Inputs

INPUTS: dict[str, Callable[[], ta.Tensor]] = {
    "a leaf": lambda: leaf(X),
    "computed": lambda: leaf(X) * 1.0,
    "a view": lambda: leaf(X.T).T,
    "a row": lambda: leaf(np.stack([X, X]))[0],
    "a parameter": lambda: ta.nn.Parameter(X),
}


@both_modes
@pytest.mark.parametrize("kind", INPUTS)
def test_each_input_that_requires_gradients_is_checked(kind: str, fast: bool) -> None:
    """Alone, and as the second of two."""
    x, other = INPUTS[kind](), leaf(X + 4)
    right, wrong = op_of(squared, slope), op_of(squared, lambda grad, x: grad * x)
    before = x.numpy()
    assert gradcheck(right, [x], fast=fast)
    assert gradgradcheck(right, [x], fast=fast)
    with pytest.raises(GradcheckError, match=r"input 0.*finite differences give"):
        gradcheck(wrong, [x], fast=fast)
    with pytest.raises(GradcheckError, match=r"input 1.*finite differences give"):
        gradcheck(lambda y, x: y * wrong(x), [other, x], fast=fast)
    with pytest.raises(GradcheckError, match="finite differences give"):
        gradgradcheck(op_of(squared, slope_for_arrays), [x], fast=fast)
    np.testing.assert_array_equal(x.numpy(), before)


# Seeds


def drawn_by(call: Callable[[Any], Any]) -> list[bytes]:
    """The cotangents that a rule gets, in their order."""
    drawn: list[bytes] = []

    def rule(grad: Any, x: Any) -> Any:
        if isinstance(grad, np.ndarray):
            drawn.append(grad.tobytes())
        return 2 * grad * x

    call(op_of(squared, rule))
    return drawn


CALLS: dict[str, Callable[[Any, int], Any]] = {
    "check_op": lambda op, seed: check_op(op, [(X,)], seed=seed),
    "check_op without differences": lambda op, seed: check_op(
        op, [(X,)], smooth=False, second_order=False, seed=seed
    ),
    "gradcheck": lambda op, seed: gradcheck(op, [leaf(X)], seed=seed),
    "gradcheck, fast": lambda op, seed: gradcheck(op, [leaf(X)], seed=seed, fast=True),
    "gradgradcheck": lambda op, seed: gradgradcheck(op, [leaf(X)], seed=seed),
    "gradgradcheck, fast": lambda op, seed: gradgradcheck(op, [leaf(X)], seed=seed, fast=True),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_seed_draws_cotangents_of_its_own(name: str) -> None:
    """Equal seeds draw equal ones, others have none in common but 0."""
    draws = [drawn_by(lambda op, seed=seed: CALLS[name](op, seed)) for seed in (0, 0, 1, 2)]
    assert draws[0]
    assert draws[0] == draws[1]
    own = [{draw for draw in drawn if any(draw)} for drawn in draws[1:]]
    for i, one in enumerate(own):
        for other in own[:i]:
            assert not one & other


def test_each_check_of_an_op_draws_cotangents_of_its_own() -> None:
    draws = drawn_by(lambda op: check_op(op, [(X,), (X,)], smooth=False, second_order=False))
    half = len(draws) // 2
    one, other = ({draw for draw in part if any(draw)} for part in (draws[:half], draws[half:]))
    assert len(one) == len(other) > 20
    assert not one & other


# Tolerances


@pytest.mark.parametrize("share", [0.25, 4.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("part", ["value", "gradient"])
def test_layouts_may_differ_by_rounding_in_each_dtype(dtype: Any, share: float, part: str) -> None:
    """By 4096 times the distance of two numbers of this dtype."""
    error = share * 4096 * float(np.finfo(dtype).eps)

    def beside(array: Any) -> Any:
        """The array, and a little more where it does not lie in C order."""
        odd = isinstance(array, np.ndarray) and not array.flags.c_contiguous
        return array * array.dtype.type(1 + error) if odd and array.dtype == dtype else array

    op = {
        "value": op_of(lambda x: beside(x) * 1, lambda grad: grad),
        "gradient": op_of(lambda x: x * 1, lambda grad: beside(grad) * 1),
    }[part]
    options = {"smooth": False, "second_order": False}
    if share < 1:
        check_op(op, [(np.ones((2, 3)),)], **options)
        with pytest.raises(GradcheckError, match="give another result"):
            check_op(op, [(np.ones((2, 3)),)], bitwise=True, **options)
    else:
        with pytest.raises(GradcheckError, match="give another result"):
            check_op(op, [(np.ones((2, 3)),)], **options)


# Steps


@pytest.mark.parametrize("distance", [3e-5, -3e-6])
@pytest.mark.parametrize("first", ["large", "near a kink"])
def test_each_number_is_judged_by_the_step_that_fits_it(first: str, distance: float) -> None:
    """Small steps drown in the rounding of a large value, and large ones cross the kink."""

    def both(x: ta.Tensor) -> ta.Tensor:
        numbers = [x * 0.25 + 1e7, x.relu()]
        return ta.stack(numbers if first == "large" else numbers[::-1])

    assert gradcheck(both, [leaf(np.float64(distance))], atol=1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_the_fast_check_judges_smooth_numbers_without_those_at_a_kink(seed: int) -> None:
    """The first number is at the kink of abs; the last three are squares, wrong by a quarter."""

    def slope_of(factor: float) -> Any:
        def rule(grad: Any, x: Any) -> Any:
            x = x.numpy() if isinstance(x, ta.Tensor) else x
            return grad * np.concatenate([np.sign(x[:3]), factor * x[3:]])

        return op_of(lambda x: np.concatenate([np.abs(x[:3]), x[3:] ** 2]), rule)

    x = leaf(np.array([0.0, 1e-9, -2.0, 1.0, 2.0, 3.0]))
    assert gradcheck(slope_of(2.0), x, fast=True, seed=seed)
    with pytest.raises(GradcheckError, match="without the numbers at a kink"):
        gradcheck(slope_of(2.5), x, fast=True, seed=seed)
