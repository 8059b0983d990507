"""Ops of a user are called as their forward is, whatever its signature, and stay the user's."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common import leaf, rng_of, signed
from messages import all_differences

import tinyattn as ta
from tinyattn.engine.op import registry
from tinyattn.engine.versions import UNREACHED
from tinyattn.errors import DtypeError, GraphError, InPlaceError

# Each with the names that its rule covers, and whether it has the option `scale`.
FORWARDS: dict[str, tuple[Callable[..., Any], tuple[str, ...], bool]] = {
    "one": (lambda x: 1 * x, ("x",), False),
    "positional only": (lambda x, /: 1 * x, ("x",), False),
    "two": (lambda x, y: x + y, ("x", "y"), False),
    "a default": (lambda x, y=2.0: x + y, ("x", "y"), False),
    "any number": (lambda *xs: sum(xs), ("xs",), False),
    "one and more": (lambda x, *xs: x + sum(xs), ("x", "xs"), False),
    "a default and more": (lambda x, y=2.0, *xs: x + y + sum(xs), ("x", "y", "xs"), False),
    "an option": (lambda x, *, scale: x * scale, ("x",), True),
    "an option with a default": (lambda x, *, scale=3.0: x * scale, ("x",), True),
    "any options": (lambda x, **options: 1 * x, ("x",), False),
    "a default and any options": (lambda x, y=2.0, **options: x + y, ("x", "y"), False),
    "an option and any options": (lambda x, *, scale=3.0, **options: x * scale, ("x",), True),
    "any number and an option": (lambda *xs, scale=3.0: sum(xs) * scale, ("xs",), True),
    "any number and any options": (lambda *xs, **options: sum(xs), ("xs",), False),
}


def op_of(name: str) -> Any:
    """The op of a forward that adds its arguments, and its derivative."""
    forward, covered, has_scale = FORWARDS[name]
    op = ta.op(forward)
    if has_scale:
        op.vjp(*covered)(lambda grad, shapes, scale: (grad * scale,) * len(shapes))
    else:
        op.vjp(*covered)(lambda grad, shapes: (grad,) * len(shapes))
    return op


@pytest.mark.parametrize("names", [(), ("y",), ("scale",), ("y", "scale")], ids="+".join)
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("name", FORWARDS)
def test_an_op_takes_the_calls_that_its_forward_takes(
    name: str, count: int, names: tuple[str, ...]
) -> None:
    """With the values of the forward, and the gradient of each Tensor; others are a TypeError."""
    forward, covered, has_scale = FORWARDS[name]
    rng = rng_of(5)
    arrays, cotangent = [signed(rng, 3) for _ in range(count)], signed(rng, 3)
    given: dict[str, Any] = {"y": signed(rng, 3), "scale": -2.5}
    known = (*covered, "scale") if has_scale else covered
    # An op gives `**options` nothing, because an argument that no rule knows has no meaning to it.
    given = {
        option: given[option] for option in names if option in known or "any options" not in name
    }
    leaves = [leaf(array) for array in arrays]
    options = given | {option: leaf(given[option]) for option in given if option == "y"}
    op = op_of(name)
    try:
        expected = forward(*arrays, **given)
    except TypeError:
        with pytest.raises(TypeError, match=r"<lambda>\(\) (misses|got|takes)|missing"):
            op(*leaves, **options)
        return
    found = op(*leaves, **options)
    np.testing.assert_array_equal(found.numpy(), expected)
    tensors = [*leaves, *(value for value in options.values() if isinstance(value, ta.Tensor))]
    scale = given.get("scale", 3.0) if has_scale else 1.0
    for gradient in ta.grad(found, tensors, ta.tensor(cotangent)):
        np.testing.assert_array_equal(gradient.numpy(), cotangent * scale)


def test_a_call_that_does_not_fit_says_which_argument() -> None:
    @ta.op
    def mixed(x, y=2.0, *, scale=1.0):
        return (x + y) * scale

    @ta.op
    def total(x, *xs):
        return x + sum(xs)

    x = ta.ones(2)
    assert not all_differences([
        (lambda: mixed(), TypeError, "mixed() misses its argument 'x'"),
        (lambda: mixed(y=x), TypeError, "mixed() misses its argument 'x'"),
        (lambda: mixed(x, x, x), TypeError, "mixed() takes 2 arguments but 3 were given"),
        (lambda: mixed(x, x=x), TypeError, "mixed() got multiple values for argument 'x'"),
        (lambda: mixed(x, x, y=x), TypeError, "mixed() got multiple values for argument 'y'"),
        (lambda: mixed(x, z=x), TypeError, "mixed() got an unexpected argument 'z'"),
        (lambda: mixed(x, size=2), TypeError, "mixed() got an unexpected argument 'size'"),
        (lambda: mixed(x, input=x), TypeError, "mixed() got an unexpected argument 'input'"),
        (lambda: total(), TypeError, "total() misses its argument 'x'"),
        (lambda: total(x, xs=x), TypeError, "total() got an unexpected argument 'xs'"),
        (lambda: total(x, shape=2), TypeError, "total() got an unexpected argument 'shape'"),
    ])  # fmt: skip


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("returned", range(5))
@pytest.mark.parametrize("covered", [("x",), ("x", "y"), ("x", "y", "z"), ("y", "z")], ids="".join)
def test_a_rule_returns_as_many_gradients_as_it_covers(
    covered: tuple[str, ...], returned: int, create_graph: bool
) -> None:
    @ta.op
    def added(x, y, z):
        return x + y + z

    added.vjp(*covered)(lambda grad: (grad,) * returned)
    tensors = {name: leaf([1.0, 2.0]) for name in covered}
    arguments = [tensors.get(name, ta.ones(2)) for name in "xyz"]
    out, cotangent = added(*arguments), ta.tensor([-3.0, 5.0])
    if returned == len(covered):
        for gradient in ta.grad(out, [*tensors.values()], cotangent, create_graph=create_graph):
            assert gradient.tolist() == [-3, 5]
        return
    with pytest.raises(GraphError) as caught:
        ta.grad(out, [*tensors.values()], cotangent, create_graph=create_graph)
    text = str(caught.value)
    start, _, end = text.partition(", got ")
    expected = f"a derivative rule of added covers {len(covered)} arguments and returns a tuple of"
    assert start == f"{expected} as many"
    assert end.startswith(f"{returned}: ")


# What belongs to the user


@pytest.mark.parametrize("name", ["mul", "getitem", "softmax", "own_function"])
def test_an_op_of_a_user_is_none_of_the_librarys_whatever_its_name(name: str) -> None:
    def forward(x):
        return x * 7

    before = dict(registry)
    forward.__name__ = name
    op = ta.op(forward)
    op.vjp("x")(lambda grad: grad * 7)
    assert registry == before
    assert all(found.spec.name == known for known, found in registry.items())
    x = leaf([2.0, 3.0])
    assert op(x).tolist() == [14, 21]
    assert (x * 1.0)[0].item() == 2


VIEWS: dict[str, Callable[[Any], Any]] = {
    "all": lambda x: x,
    "reversed": lambda x: x[::-1],
    "a row": lambda x: x[1],
    "transposed": lambda x: x.T,
}


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("name", VIEWS)
def test_a_recorded_change_beneath_a_view_that_an_own_op_made_is_refused(
    name: str, recorded: bool
) -> None:
    """The library does not call the op again, because it may do more than to look."""
    calls: list[int] = []

    def forward(x):
        calls.append(1)
        return VIEWS[name](x)

    looked = ta.op(forward)
    values = signed(rng_of(6), 2, 2)
    x, w = ta.tensor(values), leaf([5.0, 6.0])
    x = x.clone() if recorded else x
    view = looked(x)
    shown = view.numpy()
    with pytest.raises(InPlaceError, match=re.escape(UNREACHED)):
        x[0] = w
    assert calls == [1]
    np.testing.assert_array_equal(x.numpy(), values)
    np.testing.assert_array_equal(view.numpy(), shown)
    del view
    x[0] = w  # no Tensor has to follow any more
    assert x.tolist() == [[5, 6], values[1].tolist()]
    assert x.requires_grad


def test_pairs_of_own_ops_keep_to_themselves() -> None:
    """Rules, options and plans of one op are never those of another with the same name."""

    def made(factor: float) -> Any:
        @ta.op
        def scaled(x, *, times=factor):
            return x * times

        @scaled.vjp("x")
        def dx(grad, times):
            return grad * times

        return scaled

    ops = [made(factor) for factor in (2.0, -3.0, 0.5)]
    for one, other in itertools.permutations(ops, 2):
        x = leaf([1.0, -2.0])
        (gradient,) = ta.grad(one(other(x)), x, ta.tensor([1.0, 10.0]))
        factor = one.spec.options["times"] * other.spec.options["times"]
        assert gradient.tolist() == [factor, 10 * factor]


@pytest.mark.parametrize("hidden", [False, True])
def test_a_forward_that_returns_a_masked_array_is_refused(hidden: bool) -> None:
    """Whatever it hides, because the Tensor has no place for a mask."""
    op = ta.op(lambda x: np.ma.array(x * 1, mask=[hidden, False]))
    for x in (ta.ones(2), leaf([1.0, 2.0])):
        with pytest.raises(DtypeError, match=r"^a masked array would lose its mask: pass \.filled"):
            op(x)


def test_the_first_argument_of_an_op_of_floats_may_be_a_number() -> None:
    """A number becomes a float beside the floats; an array of integers becomes float32."""

    @ta.op(promote=True, floats=True)
    def logaddexp(x, y):
        return np.logaddexp(x, y)

    @logaddexp.vjp("y")
    def dy(grad, x, y, out):
        return grad * np.exp(y - out)

    y = leaf([1.0, -2.0])
    for x in (0.5, 0, [0.5, 1.5], np.array([1, 2])):
        out = logaddexp(x, y)
        wanted = np.logaddexp(np.asarray(x, np.float64), [1.0, -2.0])
        np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-6)
        assert out.dtype == np.float32
        (gradient,) = ta.grad(out, y, ta.tensor([1.0, 10.0]))
        slope = np.exp([1.0, -2.0] - wanted) * [1.0, 10.0]
        np.testing.assert_allclose(gradient.numpy(), slope, rtol=1e-6)
    assert logaddexp(2.0, 1.0) == np.logaddexp(2.0, 1.0)


def test_an_array_may_be_a_default() -> None:
    kernel = np.array([0.25, 0.5, 0.25])

    @ta.op
    def smooth(x, kernel=kernel):
        return np.convolve(x, kernel, "same")

    @smooth.vjp("x")
    def dx(grad, kernel):
        return smooth(grad, kernel[::-1])

    x = leaf([1.0, -2.0, 3.0])
    out = smooth(x)
    assert out.tolist() == np.convolve([1.0, -2.0, 3.0], kernel, "same").tolist()
    assert ta.grad(out, x, ta.tensor([1.0, 0.0, 0.0]))[0].tolist() == [0.5, 0.25, 0.0]
    assert smooth(x, np.array([0.0, 1.0, 0.0])).tolist() == x.tolist()
