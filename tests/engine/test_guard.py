"""Ops of a user: each measure of `guard.py` is there, on the CPU and on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_engine import leaf

import tinyattn as ta
from tinyattn.errors import GraphError, InPlaceError


class Subclass(np.ndarray):
    """An array of a class of its own, as np.memmap is one."""


def doubled_into(buffer: Any) -> Any:
    """An op that returns the same array from every call."""

    @ta.op
    def doubled(x):
        buffer[...] = 2 * x
        return buffer

    doubled.vjp("x")(lambda grad: 2 * grad)
    return doubled


@pytest.mark.parametrize("buffer", [np.empty(2), np.empty(4)[::2], Subclass(2)])
@pytest.mark.parametrize("requires_grad", [True, False])
def test_a_result_that_the_forward_stores_is_copied(buffer: Any, requires_grad: bool) -> None:
    doubled = doubled_into(buffer)
    x = ta.tensor(np.array([1.0, 2.0]), requires_grad=requires_grad)
    first = doubled(x)
    doubled(x * 10)
    assert first.tolist() == [2.0, 4.0]
    assert type(first._data) is np.ndarray


@pytest.mark.parametrize("requires_grad", [True, False])
def test_a_result_that_is_a_view_of_the_callers_array_is_copied(requires_grad: bool) -> None:
    """The caller may write to that array, and no Version would count it."""

    @ta.op
    def second(x, y):
        return y[::-1]

    second.vjp("x", "y")(lambda grad, x: (0 * x, grad[::-1]))
    array = np.array([3.0, 4.0])
    out = second(ta.tensor(np.ones(2), requires_grad=requires_grad), array)
    array[...] = 100.0
    assert out.tolist() == [4.0, 3.0]


@pytest.mark.parametrize("argument", ["grad", "x", "out", "saved"])
@pytest.mark.parametrize("create_graph", [False, True])
def test_a_rule_can_write_to_none_of_its_arguments(argument: str, create_graph: bool) -> None:
    @ta.op(saves=True)
    def tripled(x, y):
        return 3 * x, x.copy()

    @tripled.vjp("x")
    def _(grad, y, out, saved):
        arrays = {"grad": grad, "x": y, "out": out, "saved": saved}
        if arrays[argument] is not None:
            arrays[argument][0] = 7.0
        return 3 * grad

    x, y, cotangent = leaf([1.0, 2.0]), ta.tensor(np.ones(2)), ta.tensor(np.array([5.0, 6.0]))
    out = tripled(x, y)
    # Then `saved` is None, and what is written into `out` is recorded, in new memory.
    if create_graph and argument in ("saved", "out"):
        (slope,) = ta.grad(out, x, cotangent, create_graph=True)
        assert slope.tolist() == [15.0, 18.0]
    else:
        with pytest.raises(InPlaceError):
            ta.grad(out, x, cotangent, create_graph=create_graph)
    assert (y.tolist(), out.tolist(), cotangent.tolist()) == ([1, 1], [3, 6], [5, 6])


@pytest.mark.parametrize("stored", [np.empty(2), Subclass(2)])
@pytest.mark.parametrize("count", [1, 2])
def test_a_gradient_that_the_rule_stores_is_copied(stored: Any, count: int) -> None:
    """From a rule for one argument, and from a rule for several."""

    @ta.op
    def total(*xs):
        return sum(xs)

    @total.vjp("xs")
    def _(grad, *xs):
        stored[...] = grad
        return (stored,) * len(xs) if len(xs) > 1 else stored

    leaves = [leaf([1.0, 2.0]) for _ in range(count)]
    total(*leaves).backward(ta.tensor(np.array([5.0, 6.0])))
    stored[...] = 100.0
    assert [x.grad.tolist() for x in leaves] == [[5.0, 6.0]] * count
    assert len({id(x.grad._data) for x in leaves}) == count
    cotangents = [ta.tensor(np.array(pair)) for pair in ([5.0, 6.0], [70.0, -80.0])]
    for slope in ta.grad([total(*leaves), total(*leaves)], leaves, cotangents):
        assert slope.tolist() == [75.0, -74.0]


@pytest.mark.parametrize(
    "made",
    [
        lambda grad: np.ones(2),
        lambda grad: 2 * grad.numpy() if isinstance(grad, ta.Tensor) else 2 * grad,
        lambda grad: np.ones(2).view(Subclass),
    ],
)
@pytest.mark.parametrize("count", [1, 2])
def test_a_rule_that_gives_an_array_is_refused_where_it_is_recorded(made: Any, count: int) -> None:
    """The array has no graph, so the derivative of second order would be 0, or wrong."""

    @ta.op
    def total(*xs):
        return 2 * sum(xs)

    total.vjp("xs")(lambda grad, *xs: (made(grad),) * len(xs) if len(xs) > 1 else made(grad))
    leaves = [leaf([1.0, 2.0]) for _ in range(count)]
    total(*leaves).sum().backward()
    for call in (
        lambda: total(*leaves).sum().backward(create_graph=True),
        lambda: ta.grad(total(*leaves).sum(), leaves, create_graph=True),
    ):
        with pytest.raises(GraphError, match=r"rule of total uses NumPy .*second order"):
            call()


@pytest.mark.parametrize("forward", [lambda x: x, lambda x: x[::-1]])
def test_a_result_on_a_gpu_is_a_copy_or_shares_its_version(forward: Any, cuda: Any) -> None:
    same = ta.op(forward)
    same.vjp("x")(lambda grad: grad)
    w = ta.tensor([3.0, 4.0], device="cuda", requires_grad=True)
    x = ta.tensor([1.0, 2.0], device="cuda")
    values = same(x).tolist()
    y = same(x) * w
    x[0] = 5.0
    try:
        y.backward(ta.ones(2, device="cuda"))
    except InPlaceError:
        return
    assert w.grad.tolist() == values


def test_what_is_stored_on_a_gpu_is_copied(cuda: Any) -> None:
    doubled = doubled_into(cuda.asarray(np.empty(2, np.float32)))
    x = ta.tensor([1.0, 2.0], device="cuda", requires_grad=True)
    first = doubled(x)
    doubled(x * 10)
    assert first.tolist() == [2.0, 4.0]
