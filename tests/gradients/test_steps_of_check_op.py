"""The steps of check_op one by one: calls of a function, layouts, and what is said of them."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import nn
from tinyattn.errors import GradcheckError
from tinyattn.testing import op_checks
from tinyattn.testing.finite_differences import Checker
from tinyattn.testing.op_checks import LAYOUTS


def leaf(*numbers: Any) -> ta.Tensor:
    return ta.tensor(numbers, dtype=ta.float64, requires_grad=True)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


# Calls


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_run_gives_all_outputs_and_a_gradient_for_each_input(dtype: Any) -> None:
    """Cotangents are asked for those outputs alone that have a graph."""
    x, y, z = (ta.tensor(n, dtype=dtype, requires_grad=True) for n in ([1.0, 2.0], [3.0], [5.0]))
    asked: list[Any] = []

    def cotangents(output: ta.Tensor) -> np.ndarray:
        asked.append(output.shape)
        return np.full(output.shape, 0.5 if output.ndim else -2.0, dtype)

    def fn(x: ta.Tensor, factor: float, y: ta.Tensor, z: ta.Tensor) -> Any:
        return x * factor, x > 1, (x * y).sum(), z.detach()

    outputs, gradients = op_checks.run(fn, [x, 4.0, y, z], cotangents)
    assert asked == [(2,), ()]
    assert [one.tolist() for one in outputs] == [[4.0, 8.0], [False, True], 9.0, [5.0]]
    assert [one.tolist() for one in gradients] == [[-4.0, -4.0], [-6.0], [0.0]]
    assert all(one.dtype == dtype for one in gradients)
    outputs, gradients = op_checks.run(lambda x: x > 1, [x], cotangents)
    assert len(asked) == 2
    assert gradients[0].tolist() == [0.0, 0.0]


def test_parameters_that_learn_come_after_the_arguments_that_do() -> None:
    model, x, y = nn.Linear(2, 3), leaf(1.0, 2.0), ta.ones(2)
    found = op_checks.tensors_to_check(model, [y, x, "text", None])
    for one, right in zip(found, (x, model.weight, model.bias), strict=True):
        assert one is right
    model.weight.requires_grad_(False)
    (one,) = op_checks.tensors_to_check(model, [y])
    assert one is model.bias
    assert op_checks.tensors_to_check(abs, [y]) == []


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_cotangents_are_those_of_their_seed(dtype: Any) -> None:
    outputs = [ta.tensor(np.zeros(shape, dtype)) for shape in ((3, 4), (), (50,))]
    first, again, other = map(op_checks.random_cotangents, (5, 5, 6))
    for output in outputs:
        x = first(output)
        assert x.dtype == dtype
        assert x.shape == output.shape
        assert op_checks.bits(x) == op_checks.bits(again(output))
        assert (x != other(output)).any()
        assert ((np.abs(x) >= 0.5) & (np.abs(x) <= 1.5)).all()
    numbers = [op_checks.draw(np.random.default_rng(seed)) for seed in range(200)]
    assert 0 <= min(numbers) < 2**27
    assert 2**31 - 2**27 < max(numbers) < 2**31


def test_bits_are_equal_for_the_same_array_alone() -> None:
    x = np.array([[0.0, np.nan], [1.0, 2.0]])
    assert op_checks.bits(x) == op_checks.bits(np.asfortranarray(x.copy()))
    for other in (-x, x.reshape(4), x.astype(np.float32), x.view(np.int64), x.T):
        assert op_checks.bits(x) != op_checks.bits(other)


# Values


@pytest.mark.parametrize("several", [False, True])
def test_the_first_number_that_differs_from_the_reference_is_named(several: bool) -> None:
    x = leaf(1.0, 2.0, 3.0)
    right = np.array([1.0, 2.0, 3.0])
    wrong = np.array([1.0, 2.5, 7.0])

    def compare(*targets: Any) -> None:
        fn = lambda x: (x * 1, x * 2) if several else x * 1  # noqa: E731
        op_checks.check_value(lambda x: targets if several else targets[0], fn, [x], rng())

    compare(right, 2 * right)
    compare(right + 1e-13, 2 * right)
    with pytest.raises(GradcheckError) as caught:
        compare(wrong, 2 * right)
    assert str(caught.value) == "output 0[1] is 2.0, the reference gives 2.5"
    if several:
        with pytest.raises(GradcheckError) as caught:
            compare(right, 2 * wrong)
        assert str(caught.value) == "output 1[1] is 4.0, the reference gives 5.0"
    with pytest.raises(GradcheckError) as caught:
        compare(right[:2], 2 * right)
    shapes = "[(3,), (3,)], those of the reference [(2,), (3,)]"
    shapes = shapes if several else "[(3,)], those of the reference [(2,)]"
    assert str(caught.value) == f"outputs have the shapes {shapes}"


# Derivatives


@pytest.mark.parametrize(
    ("inputs", "outputs", "is_fast"),
    [(1, 1, False), (64, 1, False), (65, 1, True), (1, 64, False), (1, 65, True), (64, 64, False)],
)
def test_up_to_64_numbers_each_element_is_checked(
    inputs: int, outputs: int, is_fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all inputs together, and of all outputs together."""
    seen: list[Any] = []

    def check(self: Checker, fast: bool) -> list[str]:
        seen.append((fast, self.eps, self.atol, self.rtol, bool(self.hint)))
        return ["a kink"]

    monkeypatch.setattr(Checker, "check", check)

    def fn(x: ta.Tensor, y: ta.Tensor) -> Any:
        total = x.sum() + y.sum()
        return total * ta.ones(outputs - outputs // 2), total * ta.ones(outputs // 2)

    both = leaf(*np.ones(inputs - inputs // 2)), leaf(*np.ones(inputs // 2))
    assert op_checks.check_derivative(1e-4, fn, both, rng()) == ["a kink"]
    assert seen.pop() == (is_fast, 1e-4, 1e-7, 1e-6, is_fast)
    if inputs > 1:
        assert op_checks.check_second_derivative(1e-4, fn, both, rng()) == ["a kink"]
        assert seen.pop() == (True, 1e-4, 1e-6, 1e-5, False)


def test_the_order_of_a_derivative_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(self: Checker, fast: bool) -> list[str]:
        raise GradcheckError("wrong")

    monkeypatch.setattr(Checker, "check", check)
    arguments = [leaf(1.0)]
    with pytest.raises(GradcheckError, match=r"^wrong$"):
        op_checks.check_derivative(1e-3, lambda x: x * x, arguments, rng())
    with pytest.raises(GradcheckError, match=r"^second order: wrong$"):
        op_checks.check_second_derivative(1e-3, lambda x: x * x, arguments, rng())


# Layouts


def test_arguments_and_cotangents_go_through_each_layout_in_turn() -> None:
    x, y = leaf(1.0, 2.0), ta.tensor([3.0, 4.0])
    seen: list[Any] = []

    def fn(x: ta.Tensor, n: int, y: ta.Tensor) -> ta.Tensor:
        seen.append((x.tolist(), x.requires_grad, n, y.tolist(), y.requires_grad))
        return x * 1

    plain = op_checks.run_laid_out(fn, [x, 5, y], [], 3)
    found = op_checks.run_laid_out(fn, [x, 5, y], [lambda a: a + 1, lambda a: a * 2], 3)
    assert seen == [
        ([1.0, 2.0], True, 5, [3.0, 4.0], False),
        ([4.0, 6.0], True, 5, [8.0, 10.0], False),
    ]
    assert [one.tolist() for one in found[:1]] == [[4.0, 6.0]]
    assert np.array_equal(found[1], (plain[1] + 1) * 2)
    assert len(plain) == len(found) == 2


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_layout_that_gives_another_result_is_named(
    name: str, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone, it is compared with its contiguous copy, by bits or as sums in another order round."""
    error = 0.0

    def run(fn: Any, inputs: Any, layouts: Any, seed: int) -> list[np.ndarray]:
        assert layouts[1:] in ([], [op_checks.contiguous])
        out = np.full(3, 2.0, inputs[0].dtype)
        is_here = layouts == [LAYOUTS[name]] and inputs[0].dtype == dtype
        out[2] += error * 2.0 * is_here
        return [np.ones(1), out]

    monkeypatch.setattr(op_checks, "run_laid_out", run)
    eps = float(np.finfo(dtype).eps)
    for size, passes, passes_bitwise in (
        (0, True, True),
        (3000, True, False),
        (9000, False, False),
    ):
        error = size * eps
        for bitwise, is_right in ((False, passes), (True, passes_bitwise)):
            if is_right:
                op_checks.check_layouts(bitwise, abs, [leaf(1.0)], rng())
                continue
            with pytest.raises(GradcheckError) as caught:
                op_checks.check_layouts(bitwise, abs, [leaf(1.0)], rng())
            said = f"arrays in the layout {name!r} give another result than contiguous ones"
            assert str(caught.value) == said


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 4), (2, 3, 4), (2, 0)])
@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int8, np.bool_])
def test_a_layout_keeps_shape_and_dtype_and_leaves_the_array(
    dtype: Any, shape: tuple[int, ...], name: str
) -> None:
    x = np.array(np.arange(np.prod(shape, dtype=int)).reshape(shape) % 3, dtype)
    before = x.copy()
    found = LAYOUTS[name](x)
    assert (found.shape, found.dtype) == (shape, dtype)
    right = np.broadcast_to(x[:1], shape) if name == "stride 0" and x.size and x.ndim else x
    assert np.array_equal(found, right)
    assert np.array_equal(x, before)
    assert x.flags.writeable
    if x.size and x.ndim:
        assert not np.shares_memory(found, x)
    if shape in ((3, 4), (2, 3, 4)):
        holds = {
            "Fortran": found.flags.f_contiguous,
            "reversed": all(step < 0 for step in found.strides),
            "gaps": found.strides[-1] == 2 * found.itemsize,
            "transposed": found.swapaxes(-1, -2).flags.c_contiguous,
            "stride 0": found.strides[0] == 0,
            "misaligned": found.itemsize == 1 or not found.flags.aligned,
            "read-only": not found.flags.writeable,
        }
        assert holds[name]


def test_gaps_hold_what_would_be_seen() -> None:
    assert np.isnan(op_checks.with_gaps(np.ones((2, 3))).base[1]).all()
    assert (op_checks.with_gaps(np.ones((2, 3), np.int8)).base[:, 1::2] == -1).all()
    assert op_checks.with_gaps(np.zeros(3, bool)).base.tolist() == [False, True] * 3


# Lifetime


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("place", [0, 1])
def test_each_output_that_stays_alive_is_noticed(place: int, backward: bool) -> None:
    """Also one that stays alive only after its gradient was asked for."""
    held: list[Any] = []
    calls: list[int] = []

    def fn(x: ta.Tensor) -> Any:
        outputs = x * 2, x.exp()
        calls.append(0)
        if len(calls) == 1 + backward:
            held.append(outputs[place])
        return outputs

    assert gc.isenabled()
    with pytest.raises(GradcheckError) as caught:
        op_checks.check_lifetime(fn, [leaf(1.0)], rng())
    assert str(caught.value) == "an output stays alive after its last reference is gone"
    assert len(calls) == 1 + backward
    assert gc.isenabled()
    held.clear()
    calls[:] = [0] * 9
    op_checks.check_lifetime(fn, [leaf(1.0)], rng())


# What is asked for


@pytest.mark.parametrize("slope", [0.1, np.array(0.1), ta.tensor(0.1)])
def test_a_constant_without_a_rule_is_hidden(slope: Any) -> None:
    """The sentence says how, because check_op itself makes it require a gradient."""

    @ta.op
    def leaky(x, slope=0.01):
        return np.where(x > 0, x, slope * x)

    @leaky.vjp("x")
    def dx(grad, x, slope):
        return grad * (x > 0) + slope * grad * (x <= 0)

    x = np.array([1.0, -2.0, 0.5])
    said = "has no derivative with respect to 'slope', which requires one: detach"
    with pytest.raises(GradcheckError, match=f"^sample 0: leaky {said}") as caught:
        op_checks.check_op(leaky, [(x, slope)])
    assert str(caught.value).endswith("of a constant write lambda x: fn(x, constant)")
    op_checks.check_op(lambda x: leaky(x, float(slope)), [(x,)])
    op_checks.check_op(leaky, [(x,)])
