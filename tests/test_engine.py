"""The engine: what is recorded, how gradients flow back, and what may not be touched meanwhile."""

from __future__ import annotations

import contextlib
import copy
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn, optim
from tinyattn.errors import DtypeError, GraphError, InPlaceError, ShapeError
from tinyattn.graph import Leaf, Node


def leaf(*values: Any, dtype: Any = np.float64) -> ta.Tensor:
    data = values[0] if len(values) == 1 else values
    return ta.tensor(np.array(data, dtype), requires_grad=True)


def equal(tensor: ta.Tensor | None, expected: Any) -> None:
    assert tensor is not None
    np.testing.assert_array_equal(tensor.numpy(), expected)


# Reuse and fan-out


@pytest.mark.parametrize(
    ("function", "slope"),
    [
        (lambda x: x * x, lambda x: 2 * x),
        (lambda x: x + x, lambda x: np.full_like(x, 2)),
        (lambda x: x - x, np.zeros_like),
        (lambda x: x / x, np.zeros_like),
        (lambda x: x * x * x, lambda x: 3 * x * x),
        (lambda x: (x + 1) * (x + 2) * (x + 3), lambda x: 3 * x * x + 12 * x + 11),
        (lambda x: ta.cat([x, x, x]).reshape(3, -1).sum(0), lambda x: np.full_like(x, 3)),
        (lambda x: ta.where(x > 0, x, x), np.ones_like),
    ],
)
def test_a_tensor_used_twice_adds_up(
    function: Callable[..., ta.Tensor], slope: Callable[..., np.ndarray]
) -> None:
    values, cotangent = np.array([1.5, -2.0, 3.0]), np.array([1.0, -10.0, 100.0])
    x = leaf(values)
    function(x).backward(ta.tensor(cotangent))
    np.testing.assert_allclose(x.grad.numpy(), slope(values) * cotangent, rtol=1e-14, atol=1e-14)


def test_an_intermediate_result_used_three_times_adds_up() -> None:
    """Its own derivative runs once, with all three cotangents in it."""
    runs = []

    @ta.op
    def triple(x):
        return 3 * x

    @triple.vjp("x")
    def _(grad):
        runs.append(grad.copy())
        return 3 * grad

    x = leaf(2.0)
    y = triple(x)
    (y + y * y + y * 5).backward()
    assert [float(g) for g in runs] == [1 + 2 * 6 + 5]
    equal(x.grad, 3 * (1 + 2 * 6 + 5))


def test_diamonds_cost_linear_time() -> None:
    """y = y + y thirty times: 2^30 paths, thirty steps."""
    x = leaf(1.0)
    y = x
    for _ in range(30):
        y = y + y
    y.backward()
    equal(x.grad, 2.0**30)


def test_a_diamond_waits_for_its_longer_side() -> None:
    """A node is worked on after all its users, however far apart they are."""
    x = leaf(2.0)
    y = x * x
    long = y
    for _ in range(50):
        long = long * 1.0
    (y * long).backward()  # x**4
    equal(x.grad, 32.0)


def test_a_chain_of_200000_ops() -> None:
    """Built, differentiated and freed under a recursion limit of 1,000."""
    code = """
import sys
import tinyattn as ta
sys.setrecursionlimit(1000)
x = ta.tensor(0.0, dtype=ta.float64, requires_grad=True)
y = x
for _ in range(200_000):
    y = y + 1.0
y.backward()
assert x.grad.item() == 1.0 and y.item() == 200_000
del y
y = x
for _ in range(200_000):
    y = y + 1.0
del y  # freed without having been differentiated
y = x
for _ in range(200_000):
    y = y * 1.0
(slope,) = ta.grad(y, x, create_graph=True)
del y, slope
print("done")
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout.strip()) == (0, "done"), run.stderr


# backward


def test_backward_twice_needs_retain_graph() -> None:
    x = leaf(3.0)
    y = x * x
    y.backward(retain_graph=True)
    y.backward()
    equal(x.grad, 12.0)
    with pytest.raises(GraphError, match=r"freed.*retain_graph=True"):
        y.backward()
    with pytest.raises(RuntimeError, match="freed"):  # which is what PyTorch raises
        ta.grad(y, x)
    equal(x.grad, 12.0)


def test_a_graph_that_shares_a_freed_part_is_freed_too() -> None:
    x = leaf(3.0)
    shared = x.exp()
    first, second = shared * 2, shared * 3
    first.backward()
    with pytest.raises(GraphError, match="freed"):
        second.backward()


def test_backward_needs_a_gradient_unless_there_is_one_element() -> None:
    x = leaf([1.0, 2.0])
    with pytest.raises(GraphError, match=r"shape \(2,\).*gradient="):
        (x * 2).backward()
    with pytest.raises(ShapeError, match=r"\(2,\), got \(3,\)"):
        (x * 2).backward(ta.ones(3))
    with pytest.raises(TypeError, match="Tensor, got list"):
        (x * 2).backward([1.0, 1.0])  # type: ignore[arg-type]
    assert x.grad is None
    (x[:1] * 2).backward()  # one element, though not 0-d
    equal(x.grad, [2.0, 0.0])


def test_backward_of_what_was_not_recorded() -> None:
    with pytest.raises(GraphError, match="not recorded"):
        ta.ones(1).backward()
    with ta.no_grad():
        y = leaf(1.0) * 2
    with pytest.raises(GraphError, match="no_grad"):
        y.backward()


def test_backward_adds_to_grad_in_a_new_array() -> None:
    """Whoever keeps the gradient of the last call keeps it unchanged."""
    x = leaf([1.0, 2.0])
    (x * 3).sum().backward()
    old, old_array = x.grad, x.grad.data
    (x * 4).sum().backward()
    equal(old, [3.0, 3.0])
    np.testing.assert_array_equal(old_array, [3.0, 3.0])
    equal(x.grad, [7.0, 7.0])
    assert not np.shares_memory(x.grad.data, old_array)


def test_backward_of_a_leaf() -> None:
    x = leaf(5.0)
    x.backward()
    equal(x.grad, 1.0)


def test_the_cotangent_is_neither_kept_nor_changed() -> None:
    x = leaf([1.0, 2.0])
    given = ta.tensor([5.0, 6.0], dtype=ta.float64)
    (x + 0).backward(given)
    given += 1
    equal(x.grad, [5.0, 6.0])
    x.grad += 1
    equal(given, [6.0, 7.0])


@ta.op
def twin(x, y):
    return x + y


@twin.vjp("x", "y")
def _(grad):
    same = grad * 2
    return same, same  # one array for both


@ta.op
def keeper(x):
    return x * 3


@keeper.vjp("x")
def _(grad, x):
    return x  # what was saved, and so somebody else's


@ta.op
def passer(x):
    return x * 1


@passer.vjp("x")
def _(grad):
    return grad  # the cotangent itself


@ta.op
def viewer(x):
    return x * 1


@viewer.vjp("x")
def _(grad):
    return grad[::-1]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x + y,
        lambda x, y: x.reshape(2, 1) + y.reshape(2, 1),
        lambda x, y: ta.cat([x, y]),
        lambda x, y: ta.stack([x, y]),
        lambda x, y: x.T + y.T,
        lambda x, y: x[:] + y[::-1],
        lambda x, y: x.expand(3, 2) + y.expand(3, 2),
        twin,
        lambda x, y: keeper(x) + keeper(y) + keeper(x),
        lambda x, y: passer(x) + passer(y),
        lambda x, y: viewer(x) - viewer(passer(y)),
    ],
)
@pytest.mark.parametrize("create_graph", [False, True])
def test_gradients_of_two_leaves_never_share_memory(
    function: Callable[..., ta.Tensor], create_graph: bool
) -> None:
    """Nor with the leaves, nor with the cotangent: each may be changed without the others."""
    x, y = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    out = function(x, y)
    given = ta.tensor(np.arange(1.0, out.numel() + 1).reshape(out.shape))
    out.backward(given, create_graph=create_graph)
    arrays = [x.grad.data, y.grad.data, x.data, y.data, given.data]
    for i, first in enumerate(arrays):
        for second in arrays[:i]:
            assert not np.shares_memory(first, second)
    assert x.grad is not given
    if not create_graph:
        assert x.grad.data.flags.writeable
        assert y.grad.data.flags.writeable


def test_keeping_what_a_rule_was_given_does_no_harm() -> None:
    """A rule may hand on one array to several; adding up never writes into it."""
    x = leaf([1.0, 2.0])
    y = passer(x)
    z = passer(y) + passer(y) + twin(y, y)
    z.backward(ta.tensor([1.0, 10.0], dtype=ta.float64))
    equal(x.grad, [6.0, 60.0])


# grad


def test_grad_of_several_outputs_and_inputs() -> None:
    x, y = leaf(2.0), leaf([1.0, 3.0])
    outputs = [x * y, (y * y).sum()]
    weights = [ta.tensor([1.0, -1.0], dtype=ta.float64), None]
    dx, dy = ta.grad(outputs, [x, y], weights)
    equal(dx, 1.0 - 3.0)
    equal(dy, [2.0 + 2.0, -2.0 + 6.0])
    assert x.grad is None
    assert y.grad is None


def test_grad_of_an_output_given_twice() -> None:
    x = leaf(2.0)
    y = x * 3
    (dx,) = ta.grad([y, y], x)
    equal(dx, 6.0)


def test_grad_with_respect_to_an_input_given_twice() -> None:
    x = leaf(2.0)
    first, second = ta.grad(x * 3, [x, x])
    equal(first, 3.0)
    equal(second, 3.0)
    assert not np.shares_memory(first.data, second.data)


def test_grad_of_an_output_on_the_way_to_another() -> None:
    x = leaf(2.0)
    y = x * x
    (dx,) = ta.grad([y, y * 3], x)
    equal(dx, 16.0)


def test_grad_with_respect_to_intermediate_results() -> None:
    """A computed tensor may be an input, beside what it was computed from."""
    x = leaf(2.0)
    y = x * x
    z = y * y
    dy, dx = ta.grad(z, [y, x])
    equal(dy, 8.0)
    equal(dx, 32.0)
    w = x * 5
    (itself,) = ta.grad(w, w)
    equal(itself, 1.0)


def test_grad_of_an_input_that_plays_no_part() -> None:
    x, unused = leaf(1.0), leaf(1.0)
    with pytest.raises(GraphError, match=r"input 1.*allow_unused=True"):
        ta.grad(x * 2, [x, unused])
    y = x * 2
    dx, none = ta.grad(y, [x, unused], allow_unused=True)
    equal(dx, 2.0)
    assert none is None


def test_grad_refuses_what_it_cannot_do() -> None:
    x = leaf([1.0, 2.0])
    y = x * 2
    with pytest.raises(GraphError, match="input 0 does not require"):
        ta.grad(y.sum(), ta.ones(2))
    with pytest.raises(GraphError, match=r"shape \(2,\)"):
        ta.grad(y, x)
    with pytest.raises(ValueError, match="2 outputs but 1 grad_outputs"):
        ta.grad([y, y], x, [ta.ones(2)])
    with pytest.raises(ShapeError, match=r"\(2,\), got \(1,\)"):
        ta.grad(y, x, ta.ones(1))
    equal(ta.grad(y, x, ta.ones(2))[0], [2.0, 2.0])  # y was still whole


def test_grad_goes_only_where_it_must() -> None:
    """Branches that lead to no wanted input are not differentiated."""

    @ta.op
    def explosive(x):
        return x * 1

    @explosive.vjp("x")
    def _(grad):
        raise ValueError("differentiated")

    x, y = leaf(1.0), leaf(2.0)
    z = explosive(x) * y
    (dy,) = ta.grad(z, y)
    equal(dy, 1.0)
    with pytest.raises(ValueError, match="differentiated"):
        (explosive(x) * y).backward()


def test_retain_grad_keeps_a_gradient_on_the_way() -> None:
    x = leaf(2.0)
    y, z = x * 3, x * 4
    y.retain_grad()
    (y * z).backward()
    equal(y.grad, 8.0)
    assert z.grad is None
    with pytest.raises(GraphError, match="does not require"):
        ta.ones(1).retain_grad()


# Higher order


def test_derivatives_of_a_power_to_the_fifth_order() -> None:
    x = leaf(1.5)
    y, orders = x**4, []
    for _ in range(5):
        (y,) = ta.grad(y, x, create_graph=True)
        orders.append(y.item())
    assert orders == pytest.approx([4 * 1.5**3, 12 * 1.5**2, 24 * 1.5, 24, 0], rel=1e-14, abs=0)


def test_third_derivative_of_tanh() -> None:
    """tanh''' = -2 (1 - t^2) (1 - 3 t^2)."""
    x = leaf(0.4)
    (first,) = ta.grad(x.tanh(), x, create_graph=True)
    (second,) = ta.grad(first, x, create_graph=True)
    (third,) = ta.grad(second, x)
    t = np.tanh(0.4)
    assert first.item() == pytest.approx(1 - t**2, rel=1e-14)
    assert second.item() == pytest.approx(-2 * t * (1 - t**2), rel=1e-14)
    assert third.item() == pytest.approx(-2 * (1 - t**2) * (1 - 3 * t**2), rel=1e-13)


def test_hessian_of_a_softmax() -> None:
    """The Hessian of log(sum(exp(x))) is diag(s) - s s^T, row by row."""
    x = leaf([0.3, -1.2, 2.0])
    loss = -F.log_softmax(x)[0] + x[0]
    (gradient,) = ta.grad(loss, x, create_graph=True)
    rows = [ta.grad(gradient[i], x, retain_graph=True)[0].numpy() for i in range(3)]
    s = np.exp(x.numpy()) / np.exp(x.numpy()).sum()
    np.testing.assert_allclose(np.array(rows), np.diag(s) - np.outer(s, s), rtol=1e-13, atol=1e-16)


def test_hessian_vector_product_of_a_small_net() -> None:
    """d/dx of (gradient . v) against the analytic Hessian of tanh(w x)."""
    w = np.array([[0.5, -1.0], [2.0, 0.3]])
    x, v = leaf([0.7, -0.2]), np.array([1.0, -3.0])
    (gradient,) = ta.grad((ta.tensor(w) @ x).tanh().sum(), x, create_graph=True)
    (product,) = ta.grad((gradient * ta.tensor(v)).sum(), x)
    t = np.tanh(w @ x.numpy())
    hessian = sum(-2 * t[i] * (1 - t[i] ** 2) * np.outer(w[i], w[i]) for i in range(2))
    np.testing.assert_allclose(product.numpy(), hessian @ v, rtol=1e-13)


def test_backward_with_create_graph_leaves_gradients_that_can_be_differentiated() -> None:
    x = leaf(3.0)
    (x**3).backward(create_graph=True)
    assert x.grad.requires_grad
    penalty = x.grad * x.grad
    x.grad = None
    penalty.backward()
    equal(x.grad, 2 * 27 * 18)  # 2 f' f''


def test_without_create_graph_gradients_have_no_graph() -> None:
    x = leaf(3.0)
    (slope,) = ta.grad(x**3, x)
    assert not slope.requires_grad
    (x**3).backward()
    assert not x.grad.requires_grad


def test_create_graph_keeps_the_graph() -> None:
    x = leaf(3.0)
    y = x**3
    (first,) = ta.grad(y, x, create_graph=True)
    (again,) = ta.grad(y, x)
    equal(again, 27.0)
    (second,) = ta.grad(first, x, allow_unused=True)
    equal(second, 18.0)


# Recording on and off


def test_no_grad_as_block_decorator_and_nested() -> None:
    x = leaf(1.0)

    @ta.no_grad()
    def silent() -> ta.Tensor:
        assert not ta.is_grad_enabled()
        return x * 2

    @ta.enable_grad()
    def loud() -> ta.Tensor:
        return x * 2

    assert ta.is_grad_enabled()
    assert not silent().requires_grad
    with ta.no_grad():
        assert not (x * 2).requires_grad
        assert loud().requires_grad
        with ta.enable_grad():
            assert (x * 2).requires_grad
            with ta.no_grad():
                assert not (x * 2).requires_grad
            assert (x * 2).requires_grad
        assert not (x * 2).requires_grad
    assert (x * 2).requires_grad
    with ta.set_grad_enabled(False):
        assert not (x * 2).requires_grad


def test_recording_is_switched_back_after_an_exception() -> None:
    def fail() -> None:
        with ta.no_grad():
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert ta.is_grad_enabled()
    with pytest.raises(KeyError):
        ta.no_grad()(fail)()
    assert ta.is_grad_enabled()


def test_one_switch_may_be_entered_again_inside() -> None:
    switch = ta.no_grad()
    with switch:
        with switch:
            pass
        assert not ta.is_grad_enabled()
    assert ta.is_grad_enabled()


def test_a_decorated_generator_records_nothing_in_its_body() -> None:
    """And everything in between, where the caller is at work."""
    x = leaf(1.0)

    @ta.no_grad()
    def batches() -> Any:
        for _ in range(3):
            yield x * 2

    for batch in batches():
        assert not batch.requires_grad
        assert ta.is_grad_enabled()
        assert (x * 2).requires_grad


def test_recording_is_switched_for_one_thread_only() -> None:
    seen = {}
    inside, done = threading.Event(), threading.Event()

    def other() -> None:
        seen["at first"] = ta.is_grad_enabled()
        with ta.no_grad():
            inside.set()
            done.wait(10)
            seen["inside"] = ta.is_grad_enabled()

    with ta.no_grad():
        thread = threading.Thread(target=other)
        thread.start()
        inside.wait(10)
        with ta.enable_grad():
            seen["here"] = ta.is_grad_enabled()
            done.set()
            thread.join()
    assert seen == {"at first": True, "inside": False, "here": True}


def test_gradients_are_computed_under_no_grad_too() -> None:
    """Only recording is off; what was recorded before can be differentiated."""
    x = leaf(3.0)
    y = x * x
    with ta.no_grad():
        y.backward()
        assert not ta.is_grad_enabled()
    equal(x.grad, 6.0)


def test_detach_cuts_the_graph() -> None:
    x = leaf(3.0)
    y = x * x
    (y.detach() * x).backward()
    equal(x.grad, 9.0)
    assert not y.detach().requires_grad
    assert y.detach().is_leaf


# Leaves


def test_what_is_a_leaf() -> None:
    x, constant = leaf(1.0), ta.ones(1)
    y = x * 2
    assert (x.is_leaf, constant.is_leaf, (constant * 2).is_leaf, y.is_leaf) == (True,) * 3 + (
        False,
    )
    assert (x.requires_grad, constant.requires_grad, y.requires_grad) == (True, False, True)


def test_requires_grad_can_be_switched_on_leaves_only() -> None:
    x = ta.ones(2)
    assert x.requires_grad_() is x
    assert x.requires_grad
    y = x * 2
    x.requires_grad = False
    assert not (x * 2).requires_grad
    with pytest.raises(GraphError, match=r"only a leaf.*detach"):
        y.requires_grad = False
    y.requires_grad = True  # it does already


def test_integers_cannot_require_gradients() -> None:
    for dtype in (ta.int64, ta.uint8, ta.bool):
        with pytest.raises(DtypeError, match="floating dtype, got"):
            ta.tensor([1, 0], dtype=dtype, requires_grad=True)
        with pytest.raises(DtypeError, match="floating dtype, got"):
            ta.tensor([1, 0], dtype=dtype).requires_grad_()
    assert not ta.tensor([1, 2]).requires_grad


def test_only_a_fitting_tensor_can_be_a_gradient() -> None:
    x = leaf([1.0, 2.0])
    x.grad = ta.ones(2, dtype=ta.float64)
    with pytest.raises(ShapeError, match=r"\(2,\), got \(3,\)"):
        x.grad = ta.ones(3)
    with pytest.raises(TypeError, match="Tensor or None, got list"):
        x.grad = [1.0, 1.0]  # type: ignore[assignment]
    with pytest.raises(GraphError, match="does not require"):
        ta.ones(2).grad = ta.ones(2)
    equal(x.grad, [1.0, 1.0])
    x.grad = None
    assert x.grad is None


def test_a_deep_copy_is_independent() -> None:
    x = leaf([1.0, 2.0])
    (x * 3).sum().backward()
    twin_ = copy.deepcopy(x)
    (twin_ * 5).sum().backward()
    equal(x.grad, [3.0, 3.0])
    equal(twin_.grad, [8.0, 8.0])
    twin_.data[0] = 9
    equal(x, [1.0, 2.0])
    with pytest.raises(GraphError, match="leaves"):
        copy.deepcopy(x * 2)


# Arrays that a graph needs


def test_an_array_that_a_live_graph_needs_cannot_be_written() -> None:
    """And can again once the graph has gone: after backward, or when it was dropped."""
    x = leaf([1.0, 2.0])
    y = (x * x).sum()
    with pytest.raises(ValueError, match="read-only"):
        x.data[0] = 5.0
    equal(x, [1.0, 2.0])
    y.backward()
    equal(x.grad, [2.0, 4.0])
    x.data[0] = 5.0
    equal(x, [5.0, 2.0])

    y = x * x
    with pytest.raises(ValueError, match="read-only"):
        x.data[0] = 6.0
    del y
    x.data[0] = 6.0
    equal(x, [6.0, 2.0])


def test_a_retained_graph_keeps_its_arrays_from_being_written() -> None:
    x = leaf([1.0, 2.0])
    y = (x * x).sum()
    y.backward(retain_graph=True)
    with pytest.raises(ValueError, match="read-only"):
        x.data[0] = 5.0
    with pytest.raises(InPlaceError, match="graph still needs"), ta.no_grad():
        x += 1
    equal(x, [1.0, 2.0])
    del y
    x.data[0] = 5.0


def test_two_graphs_on_one_array() -> None:
    """The array is free again when the last graph that needs it has gone."""
    x = leaf([1.0, 2.0])
    first, second = x * x, x.exp() * x
    del first
    with pytest.raises(ValueError, match="read-only"):
        x.data[0] = 5.0
    del second
    x.data[0] = 5.0


def test_ops_that_need_no_array_lock_none() -> None:
    """x + y and x.sum() need no values for their derivatives."""
    x = leaf([1.0, 2.0])
    y = (x + 1).sum()
    x.data[0] = 5.0
    y.backward()
    equal(x.grad, [1.0, 1.0])


def test_constants_and_views_are_kept_from_being_written() -> None:
    """What a graph needs may belong to a tensor without gradients, or to a view of one."""
    x, constant = leaf([1.0, 2.0]), ta.tensor([3.0, 4.0], dtype=ta.float64)
    y = (x * constant).sum()
    with pytest.raises(InPlaceError, match="graph still needs"):
        constant += 1
    with pytest.raises(InPlaceError, match="graph still needs"):
        constant[0] = 1.0
    with pytest.raises(InPlaceError, match="graph still needs"):
        constant.reshape(2, 1)[0] = 1.0
    view = constant[:1]
    with pytest.raises(InPlaceError, match="graph still needs"):
        view += 1
    equal(constant, [3.0, 4.0])
    y.backward()
    equal(x.grad, [3.0, 4.0])
    constant += 1
    equal(constant, [4.0, 5.0])


def test_a_view_that_a_graph_needs_protects_its_owner() -> None:
    x, table = leaf([1.0, 2.0]), ta.tensor([[3.0, 4.0], [5.0, 6.0]], dtype=ta.float64)
    y = (x * table[0]).sum()
    with pytest.raises(InPlaceError, match="graph still needs"):
        table += 1
    with pytest.raises(ValueError, match="read-only"):
        table.data[0, 0] = 1.0
    y.backward()
    equal(x.grad, [3.0, 4.0])
    table.data[0, 0] = 1.0


@pytest.mark.parametrize("function", [lambda x: x * 2, ta.Tensor.exp, lambda x: x.tanh() * 2])
def test_a_detached_result_shares_no_danger(function: Callable[..., ta.Tensor]) -> None:
    """Writing to y.detach() is refused while a graph needs y, or does not reach y at all."""
    x, expected = leaf([1.0, 2.0]), leaf([1.0, 2.0])
    (function(expected) * function(expected)).sum().backward()
    y = function(x)
    z = (y * y).sum()
    detached = y.detach()
    for write in (
        lambda: detached.__iadd__(100.0),
        lambda: detached.__setitem__(0, 100.0),
        lambda: detached.data.__setitem__(0, 100.0),
        lambda: detached.reshape(2, 1).__imul__(0.0),
    ):
        with contextlib.suppress(InPlaceError, ValueError):
            write()
    z.backward()
    np.testing.assert_allclose(x.grad.numpy(), expected.grad.numpy(), rtol=1e-14)


def test_a_computed_tensor_is_not_changed_under_no_grad_while_a_graph_needs_it() -> None:
    x = leaf([1.0, 2.0])
    y = x * 2
    z = (y * y).sum()
    with pytest.raises(InPlaceError, match="graph still needs"), ta.no_grad():
        y += 1
    z.backward()
    equal(x.grad, [8.0, 16.0])


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.T,
        lambda x: x.reshape(4),
        lambda x: x[0],
        lambda x: x.unsqueeze(0).squeeze(0),
        lambda x: x.detach().T,
        lambda x: ta.ops.reshape(x=x, target=(4,)),
    ],
)
def test_a_view_made_without_recording_cannot_change_what_a_graph_needs(
    view: Callable[[ta.Tensor], ta.Tensor],
) -> None:
    """relu keeps its result for the derivative; a view of it lies in the same memory."""
    x = leaf([[-1.0, 2.0], [3.0, -4.0]])
    y = x.relu()
    with ta.no_grad():
        other = view(y)
        with pytest.raises(InPlaceError, match="read-only"):
            other += 1
        with pytest.raises(InPlaceError, match="read-only"):
            other[...] = 1.0
        fresh = view(y).clone()
        fresh += 1
        sums = F.linear(y, ta.ones(2, 2, dtype=ta.float64))
        sums += 1  # nobody else's memory
    y.backward(ta.ones(2, 2, dtype=ta.float64))
    equal(x.grad, [[0.0, 1.0], [1.0, 0.0]])


def test_numpy_arrays_in_a_graph_are_copied() -> None:
    """A user's own array stays the user's: it may be written, and the graph does not notice."""
    x, array = leaf([1.0, 2.0]), np.array([3.0, 4.0])
    y = (x * array).sum()
    array += 100
    y.backward()
    equal(x.grad, [3.0, 4.0])


def test_results_of_a_graph_are_read_only() -> None:
    x = leaf([1.0, 2.0])
    y = x * 2
    with pytest.raises(ValueError, match="read-only"):
        y.data[0] = 5.0
    y.numpy()[0] = 5.0  # a copy
    equal(y, [2.0, 4.0])
    with pytest.raises(GraphError, match=r"computed tensor.*detach"):
        y.data = np.zeros(2)


def test_replacing_the_array_of_a_leaf_leaves_the_graph_its_values() -> None:
    """As an optimizer does: the old array goes on in the graph, the new one is the tensor's."""
    x = leaf([1.0, 2.0])
    y = (x * x).sum()
    x.data = np.array([10.0, 20.0])
    y.backward()
    equal(x.grad, [2.0, 4.0])
    equal(x, [10.0, 20.0])


def test_in_place_arithmetic_on_a_leaf_is_refused_while_recording() -> None:
    x = leaf([1.0, 2.0])
    for operation in ("__iadd__", "__isub__", "__imul__", "__itruediv__"):
        with pytest.raises(InPlaceError, match=r"leaf.*no_grad.*x = x \+ y"):
            getattr(x, operation)(1.0)
    equal(x, [1.0, 2.0])


def test_in_place_arithmetic_on_a_computed_tensor_is_a_new_tensor() -> None:
    x = leaf([1.0, 2.0])
    y = old = x * 2
    y += 1
    y *= y
    equal(old, [2.0, 4.0])
    y.backward(ta.tensor([1.0, 10.0], dtype=ta.float64))
    equal(x.grad, [2 * 3 * 2, 10 * 2 * 5 * 2])  # 2 (2x + 1) 2


def test_in_place_arithmetic_without_a_graph_changes_the_tensor() -> None:
    x = same = ta.tensor([1.0, 2.0])
    x += 1
    x *= ta.tensor([2.0, 3.0])
    x -= np.array([1.0, 1.0])
    x /= 2
    assert x is same
    equal(x, [1.5, 4.0])
    with pytest.raises(ShapeError, match=r"keep the shape \(2,\), got \(3, 2\)"):
        x += ta.ones(3, 2)
    integers = ta.tensor([1, 2])
    with pytest.raises(DtypeError, match=r"float32 .*int64"):
        integers += 1.5
    with pytest.raises(DtypeError, match=r"float32 .*int64"):
        integers /= 2
    equal(x, [1.5, 4.0])
    equal(integers, [1, 2])


def test_an_update_under_no_grad() -> None:
    """What an optimizer does by hand, between two steps."""
    w = leaf([1.0, 2.0])
    for _ in range(2):
        (w * w).sum().backward()
        with ta.no_grad():
            w -= 0.1 * w.grad
        w.grad = None
    np.testing.assert_allclose(w.numpy(), [0.64, 1.28], rtol=1e-15)
    assert w.is_leaf
    assert w.requires_grad


def test_writing_elements() -> None:
    x = ta.zeros(3)
    x[0] = 1
    x[1:] = ta.tensor([2.0, 3.0])
    x[ta.tensor([True, False, False])] = 9.0
    x[[1, 2]] = np.array([7.0, 8.0])
    equal(x, [9.0, 7.0, 8.0])
    with pytest.raises(ShapeError, match=r"\(3,\)"):
        x[:2] = ta.ones(3)
    with pytest.raises(IndexError, match="5"):
        x[5] = 1.0
    with pytest.raises((TypeError, ValueError), match="'a'"):
        x[0] = "a"
    equal(x, [9.0, 7.0, 8.0])


def test_writing_elements_cannot_be_recorded() -> None:
    w = leaf([1.0, 2.0, 3.0], dtype=np.float32)
    x = ta.zeros(3)
    with pytest.raises(InPlaceError, match=r"cannot be recorded.*no_grad"):
        x[0] = w[0]
    with pytest.raises(InPlaceError, match="cannot be recorded"):
        w[0] = 1.0
    y = w * 2
    with pytest.raises(InPlaceError, match="cannot be recorded"):
        y[0] = 1.0
    with ta.no_grad():
        w[0] = 5.0
        x[0] = w[0]
        with pytest.raises(InPlaceError):
            y[0] = 1.0
    equal(w, [5.0, 2.0, 3.0])
    equal(x, [5.0, 0.0, 0.0])
    equal(y, [2.0, 4.0, 6.0])


def test_assigning_data_checks_what_comes() -> None:
    x = leaf([1.0, 2.0])
    with pytest.raises(DtypeError, match="floating dtype, got int64"):
        x.data = np.array([1, 2])
    x.data = [3.0, 4.0]
    equal(x, [3.0, 4.0])
    source = np.arange(6.0)
    x.data = source[::3]  # a view: its memory is somebody else's, so it is copied
    source[0] = 100.0
    equal(x, [0.0, 3.0])


# Ops of one's own


@ta.op
def scaled(x, weight, *, power=1.0):
    """weight * x ** power: an example with an option and two derivatives."""
    return weight * x**power


@scaled.vjp("x")
def _(grad, x, weight, power):
    return grad * weight * power * x ** (power - 1)


@scaled.vjp("weight")
def _(grad, x, power):
    return grad * x**power


def test_an_op_of_ones_own() -> None:
    """Declared in a few lines, it broadcasts, has derivatives of any order and passes gradcheck."""
    x, weight = leaf([[1.0, 2.0], [3.0, 4.0]]), leaf([0.5, -1.0])
    out = scaled(x, weight, power=3.0)
    np.testing.assert_allclose(out.numpy(), weight.numpy() * x.numpy() ** 3)
    given = np.array([[1.0, -2.0], [3.0, 0.5]])
    out.backward(ta.tensor(given))
    np.testing.assert_allclose(x.grad.numpy(), given * weight.numpy() * 3 * x.numpy() ** 2)
    np.testing.assert_allclose(weight.grad.numpy(), (given * x.numpy() ** 3).sum(0))
    assert ta.gradcheck(lambda x, w: scaled(x, w, power=3.0), [x, weight])
    assert ta.gradgradcheck(lambda x, w: scaled(x, w, power=3.0), [x, weight])
    assert ta.gradcheck(lambda x, w: scaled(weight=w, x=x), [x, weight])


def test_an_op_on_plain_arrays_is_its_forward() -> None:
    out = scaled(np.array([1.0, 2.0]), 3.0, power=2)
    assert type(out) is np.ndarray
    np.testing.assert_array_equal(out, [3.0, 12.0])


@ta.op
def hypotenuse(x, y):
    root = np.sqrt(x * x + y * y)
    return root, (x / root, y / root)


@hypotenuse.vjp("x", "y")
def _(grad, x, y, saved):
    if saved is None:  # a graph of the gradient is wanted
        root = (x * x + y * y).sqrt()
        saved = x / root, y / root
    return grad * saved[0], grad * saved[1]


def test_an_op_that_keeps_something_for_its_derivative() -> None:
    x, y = leaf([3.0, 5.0]), leaf([4.0, 12.0])
    out = hypotenuse(x, y)
    equal(out, [5.0, 13.0])
    out.backward(ta.tensor([1.0, 10.0], dtype=ta.float64))
    np.testing.assert_allclose(x.grad.numpy(), [0.6, 50 / 13])
    np.testing.assert_allclose(y.grad.numpy(), [0.8, 120 / 13])
    assert ta.gradcheck(hypotenuse, [x, y])
    assert ta.gradgradcheck(hypotenuse, [x, y])


def test_an_op_with_any_number_of_arguments() -> None:
    """A rule for `*xs` returns as many gradients as there were arguments."""

    @ta.op
    def total(*xs, weight=1.0):
        return weight * sum(xs)

    @total.vjp("xs")
    def _(grad, shapes, weight):
        return tuple(grad * weight for _ in shapes)

    x, y, z = leaf([1.0, 2.0]), leaf(3.0), leaf([[4.0], [5.0]])
    out = total(x, y, z, weight=2.0)
    assert out.shape == (2, 2)
    out.backward(ta.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=ta.float64))
    equal(x.grad, [8.0, 12.0])
    equal(y.grad, 20.0)
    equal(z.grad, [[6.0], [14.0]])
    for count in (1, 2, 3):
        assert ta.gradcheck(lambda *xs: total(*xs, weight=2.0), [x, y, z][:count])
        assert ta.gradgradcheck(lambda *xs: total(*xs, weight=2.0), [x, y, z][:count])


def test_an_op_whose_rule_asks_for_any_number_of_arguments() -> None:
    """`*xs` in the rule is what `*xs` is in the forward."""

    @ta.op
    def product(*xs):
        out = xs[0]
        for x in xs[1:]:
            out = out * x
        return out

    @product.vjp("xs")
    def _(grad, *xs):
        gradients = []
        for i in range(len(xs)):
            others = grad
            for x in (*xs[:i], *xs[i + 1 :]):
                others = others * x
            gradients.append(others)
        return tuple(gradients)

    arguments = [leaf([1.0, 2.0]), leaf(3.0), leaf([[4.0], [5.0]]), leaf([0.5])]
    for count in (1, 2, 3, 4):
        assert ta.gradcheck(product, arguments[:count])
        assert ta.gradgradcheck(product, arguments[:count])
    assert ta.gradcheck(lambda x: product(x, 2.0, x), [arguments[0]])


def test_an_op_with_a_default_argument() -> None:
    @ta.op
    def shifted(x, shift=None):
        return x.copy() if shift is None else x + shift

    @shifted.vjp("x")
    def _(grad):
        return grad

    @shifted.vjp("shift")
    def _(grad):
        return grad

    x, shift = leaf([1.0, 2.0]), leaf(3.0)
    assert ta.gradcheck(shifted, [x])
    assert ta.gradcheck(shifted, [x, shift])
    assert ta.gradcheck(lambda s: shifted(ta.ones(2, dtype=ta.float64), shift=s), [shift])


def test_an_op_may_name_its_shape_and_its_output() -> None:
    @ta.op
    def spread(x, *, times):
        return np.repeat(x[None], times, 0)

    @spread.vjp("x")
    def _(grad, shape, times):
        return grad.sum(0).reshape(shape)

    @ta.op
    def root(x):
        return np.sqrt(x)

    @root.vjp("x")
    def _(grad, out):
        return grad / (2 * out)

    x = leaf([1.0, 4.0])
    assert ta.gradcheck(lambda x: spread(x, times=3), [x])
    assert ta.gradcheck(root, [x])
    assert ta.gradgradcheck(root, [x])


@ta.op
def one_sided(x, y):
    return x * y


@one_sided.vjp("x")
def _(grad, y):
    return grad * y


def test_a_missing_rule_is_named() -> None:
    x, y = leaf(2.0), leaf(3.0)
    one_sided(x, y.detach()).backward()
    equal(x.grad, 3.0)
    with pytest.raises(GraphError, match=r"one_sided has no derivative .*'y'.*@one_sided.vjp"):
        one_sided(x, y)
    with ta.no_grad():
        one_sided(x, y)


def test_a_rule_for_an_argument_that_is_not_there_is_refused() -> None:
    @ta.op
    def twice(x, *, n=2):
        return n * x

    with pytest.raises(TypeError, match=r"twice.*\['x'\].*\['y'\]"):

        @twice.vjp("y")
        def _(grad):
            return grad

    with pytest.raises(TypeError, match=r"twice.*\['x'\].*\[\]"):

        @twice.vjp()
        def _(grad):
            return grad

    with pytest.raises(TypeError, match=r"twice asks for \['z'\].*'out'"):

        @twice.vjp("x")
        def _(grad, z):
            return grad


def test_a_rule_with_too_few_gradients_is_named() -> None:
    @ta.op
    def plus(x, y):
        return x + y

    @plus.vjp("x", "y")
    def _(grad):
        return grad

    with pytest.raises(GraphError, match=r"rule of plus covers 2 arguments.*tuple"):
        plus(leaf(1.0), leaf(2.0)).backward()


def test_a_gradient_of_the_wrong_shape_is_named() -> None:
    @ta.op
    def last(x):
        return x[-1]

    @last.vjp("x")
    def _(grad):
        return np.ones(5)

    x = leaf([1.0, 2.0])
    with pytest.raises(GraphError, match=r"rule of last .*\(5,\).*\(2,\)"):
        last(x).backward()
    assert x.grad is None


def test_what_was_broadcast_is_summed_by_the_engine() -> None:
    """A rule returns a gradient as large as the output; each argument gets its own shape back."""
    small, column, number = leaf([1.0, 2.0, 3.0]), leaf([[1.0], [2.0]]), leaf(4.0)
    out = twin(twin(small, column), number)
    given = np.array([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]])
    out.backward(ta.tensor(given))
    equal(small.grad, 4 * given.sum(0) * 2 / 2)
    equal(column.grad, 4 * given.sum(1, keepdims=True))
    equal(number.grad, 2 * given.sum())


def test_a_gradient_comes_in_the_dtype_of_its_tensor() -> None:
    x = ta.tensor([1.0, 2.0], requires_grad=True)
    y = leaf([1.0, 2.0])
    out = x * y
    assert out.dtype == np.float64
    out.backward(ta.ones(2))
    assert (x.grad.dtype, y.grad.dtype) == (np.float32, np.float64)


def test_an_op_without_a_derivative() -> None:
    @ta.op(differentiable=False)
    def larger(x, y):
        return x > y

    out = larger(leaf([1.0, 2.0]), leaf([2.0, 1.0]))
    assert not out.requires_grad
    equal(out, [False, True])


def test_a_forward_that_fails_is_explained() -> None:
    x = ta.ones(2)
    with pytest.raises(ShapeError, match=r"scaled .*float32\[2\], float32\[3\]"):
        scaled(x, ta.ones(3))
    with pytest.raises(TypeError, match=r"scaled.*'weight'"):
        scaled(x)


def test_an_op_saves_no_more_than_its_derivative_asks_for() -> None:
    """softmax keeps its output only; a sum keeps no array at all."""

    def saved(out: ta.Tensor) -> list[np.ndarray]:
        return [part for part in out._node.saved if isinstance(part, np.ndarray)]

    x = leaf(np.ones((4, 5)))
    for out in (F.softmax(x), x.tanh(), x.sigmoid(), x.exp()):
        assert [part is out._data for part in saved(out)] == [True]
    for out in (x.sum(), x + x, x.reshape(20), x[0], F.dropout(x, 0.5), x.T, x - 1):
        assert saved(out) == []
    for out in (x * 2.0, x / 2.0):
        assert saved(out) == []
    assert len(saved(x * x)) == 2
    assert len(saved(F.layer_norm(x, 5))) == 1


# Memory and time


def test_300_training_steps_leave_nothing_behind(no_gc: None) -> None:
    """Without the garbage collector the number of tensors and nodes stays what it was."""
    ta.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3))
    optimizer = optim.Adam(net.parameters())
    x, target = ta.randn(5, 4), ta.tensor([0, 1, 2, 0, 1])
    watched: list[weakref.ref] = []

    def step() -> float:
        optimizer.zero_grad()
        hidden = F.softmax(net(x))
        loss = F.cross_entropy(hidden, target)
        watched[:] = [weakref.ref(hidden), weakref.ref(loss)]
        loss.backward()
        optimizer.step()
        return loss.item()

    for _ in range(3):
        step()
    gc.collect()
    before = sum(type(obj) in (Node, Leaf) for obj in gc.get_objects())
    for _ in range(300):
        loss = step()
        assert [ref() for ref in watched] == [None, None]
    after = sum(type(obj) in (Node, Leaf) for obj in gc.get_objects())
    assert after == before
    assert loss < 1.2


def test_higher_order_graphs_are_freed_by_reference_counting(no_gc: None) -> None:
    x = leaf([0.5, 1.5])

    def second() -> list[weakref.ref]:
        y = F.softmax(x * x).tanh().sum()
        (first,) = ta.grad(y, x, create_graph=True)
        (again,) = ta.grad(first.sum(), x, create_graph=True)
        return [weakref.ref(t) for t in (y, first, again)]

    assert [ref() for ref in second()] == [None] * 3
    x.data[0] = 1.0  # nothing holds it any more


def test_a_tensor_that_a_graph_was_made_from_may_die_first() -> None:
    x = leaf([1.0, 2.0])
    y = x * x
    (z,) = ta.grad(y, x, ta.ones(2), retain_graph=True)
    watched = weakref.ref(x)
    del x
    assert watched() is None
    y.backward(ta.ones(2))
    equal(z, [2.0, 4.0])


def test_float32_sums_do_not_stop_at_2_to_the_24() -> None:
    """A float32 that counts ones stops at 16,777,216; sums and gradients are kept wider."""
    n = 2**24 + 1000
    ones = ta.ones(1, requires_grad=True)
    wide = ones.expand(n)
    assert wide.sum().item() == n
    wide.sum().backward()
    assert ones.grad.item() == n
    column = ta.ones(n, 1)
    assert column.sum(0).item() == n
    assert column.mean(0).item() == 1.0


# Threads and interrupts


def trained(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    net = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.LayerNorm(5), nn.Linear(5, 3))
    for parameter in net.parameters():
        parameter.data = rng.standard_normal(parameter.shape).astype(np.float32)
    optimizer = optim.Adam(net.parameters(), lr=0.01)
    x = ta.tensor(rng.standard_normal((7, 6)).astype(np.float32))
    target = ta.tensor(rng.integers(0, 3, 7))
    for _ in range(30):
        optimizer.zero_grad()
        F.cross_entropy(net(x), target).backward()
        optimizer.step()
    return [parameter.numpy() for parameter in net.parameters()]


def test_four_threads_train_as_one_does() -> None:
    """Separate models in separate threads end bitwise where they end alone."""
    alone = [trained(seed) for seed in range(4)]
    found: dict[int, list[np.ndarray]] = {}
    threads = [
        threading.Thread(target=lambda seed=seed: found.update({seed: trained(seed)}))
        for seed in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in range(4):
        for here, there in zip(alone[seed], found[seed], strict=True):
            assert here.tobytes() == there.tobytes()


def test_an_interrupt_in_backward_leaves_everything_usable() -> None:
    """Ctrl-C in the middle: every .grad is what it was, and the next step works."""
    armed = [True]

    @ta.op
    def fuse(x):
        return x * 1

    @fuse.vjp("x")
    def _(grad):
        if armed[0]:
            raise KeyboardInterrupt
        return grad

    ta.manual_seed(0)
    net = nn.Linear(3, 2)
    x = ta.randn(4, 3, requires_grad=True)
    net(x).sum().backward()
    before = [p.grad.numpy() for p in (*net.parameters(), x)]
    for create_graph in (False, True):
        with pytest.raises(KeyboardInterrupt):
            # The weights are reached before the fuse, x after it.
            (net(fuse(x)) * 2).sum().backward(create_graph=create_graph)
        assert ta.is_grad_enabled()
    for old, p in zip(before, (*net.parameters(), x), strict=True):
        np.testing.assert_array_equal(p.grad.numpy(), old)
    armed[0] = False
    (net(fuse(x)) * 2).sum().backward()
    for old, p in zip(before, (*net.parameters(), x), strict=True):
        np.testing.assert_allclose(p.grad.numpy(), 3 * old, rtol=1e-6)
    with ta.no_grad():
        for p in net.parameters():
            p -= 0.1 * p.grad


def test_an_error_in_a_rule_leaves_every_grad_as_it_was() -> None:
    @ta.op
    def broken(x):
        return x * 1

    @broken.vjp("x")
    def _(grad):
        raise ZeroDivisionError("in a rule")

    x, y = leaf(1.0), leaf(2.0)
    with pytest.raises(ZeroDivisionError, match="in a rule"):
        (broken(x) * y).backward()
    assert x.grad is None
    assert y.grad is None


# Creation, dtypes, other libraries


def test_default_dtypes() -> None:
    """Python floats are float32, integers int64, truth values bool; arrays keep theirs."""
    for data, dtype in (
        (1.0, "float32"),
        ([1, 2.5], "float32"),
        ([], "float32"),
        (1, "int64"),
        ([[1], [2]], "int64"),
        (True, "bool"),
        (np.float64(1.0), "float64"),
        (np.ones(2), "float64"),
        (np.ones(2, np.float16), "float16"),
        (np.ones(2, ">f8"), "float64"),
        (np.int32(1), "int32"),
        (ta.ones(2, dtype=ta.float64), "float64"),
    ):
        assert ta.tensor(data).dtype == np.dtype(dtype), data
    for made in (ta.zeros(2), ta.ones(2), ta.empty(2), ta.eye(2), ta.rand(2), ta.randn(2)):
        assert made.dtype == np.float32
    assert ta.full((2,), 1.5).dtype == np.float32
    assert ta.full((2,), 1).dtype == np.int64
    assert ta.arange(3).dtype == np.int64
    assert ta.arange(3.0).dtype == np.float32
    assert ta.linspace(0, 1, 3).dtype == np.float32


def test_creation() -> None:
    equal(ta.zeros(2, 3), np.zeros((2, 3)))
    equal(ta.ones((2, 3)), np.ones((2, 3)))
    equal(ta.empty(2), np.zeros(2))
    equal(ta.full((2,), 7.0), [7.0, 7.0])
    equal(ta.arange(4), [0, 1, 2, 3])
    equal(ta.arange(2, 11, 3), [2, 5, 8])
    equal(ta.arange(5, 2, -1), [5, 4, 3])
    equal(ta.linspace(0, 1, 5), [0, 0.25, 0.5, 0.75, 1])
    equal(ta.eye(2, 3), np.eye(2, 3))
    x = ta.tensor([[1.0, 2.0]], dtype=ta.float64)
    for made, expected in (
        (ta.zeros_like(x), 0.0),
        (ta.ones_like(x), 1.0),
        (ta.full_like(x, 3), 3.0),
    ):
        equal(made, np.full((1, 2), expected))
        assert made.dtype == np.float64
    for made in (ta.randn_like(x), ta.rand_like(x)):
        assert (made.shape, made.dtype) == ((1, 2), np.float64)
    assert ta.zeros(2, requires_grad=True).requires_grad
    assert ta.zeros(()).shape == ()


def test_tensors_copy_what_they_are_made_from() -> None:
    array = np.array([1.0, 2.0])
    x = ta.tensor(array)
    y = ta.tensor(x)
    array[0] = 5.0
    x.data[0] = 6.0
    equal(x, [6.0, 2.0])
    equal(y, [1.0, 2.0])


def test_random_numbers_come_from_one_seed() -> None:
    """Equal seeds, equal numbers; NumPy's own state is left alone."""
    before = np.random.get_state()[1].tobytes()

    def draw() -> list[Any]:
        ta.manual_seed(3)
        first = [ta.randn(3), ta.rand(3), ta.randint(0, 9, (4,)), ta.randperm(5)]
        return [x.tolist() for x in (*first, F.dropout(ta.ones(50), 0.5))]

    assert draw() == draw()
    ta.manual_seed(4)
    assert ta.randn(3).tolist() != draw()[0]
    state = ta.get_rng_state()
    following = ta.randn(5).tolist()
    ta.set_rng_state(state)
    assert ta.randn(5).tolist() == following
    assert np.random.get_state()[1].tobytes() == before


def test_random_numbers_are_what_they_are_called() -> None:
    ta.manual_seed(1)
    uniform, normal = ta.rand(20_000).numpy(), ta.randn(20_000).numpy()
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 0.01
    assert abs(normal.mean()) < 0.03
    assert abs(normal.std() - 1) < 0.03
    integers = ta.randint(-1, 3, (2000,)).numpy()
    assert set(integers) == {-1, 0, 1, 2}
    assert sorted(ta.randperm(9).tolist()) == list(range(9))
    assert (ta.rand(3000, dtype=ta.float16).numpy() < 1).all()


def test_float16_stays_float16() -> None:
    x = leaf([1.0, 2.0], dtype=np.float16)
    y = ((x * 2 + 1).exp() / 3.0 - 1).sum()
    assert y.dtype == np.float16
    y.backward()
    assert x.grad.dtype == np.float16


def test_python_numbers_and_0d_tensors_do_not_widen() -> None:
    """A float32 stays one beside Python numbers, NumPy scalars, 0-d float64 and integer tensors."""
    x = ta.ones(2)
    for other in (2, 2.5, True, np.float64(2), ta.tensor(2.0, dtype=ta.float64), ta.tensor([1, 2])):
        for out in (x + other, x * other, other - x, x / other):
            assert out.dtype == np.float32, other
    assert (x * ta.ones(2, dtype=ta.float64)).dtype == np.float64
    assert (ta.tensor([1, 2]) + 1.5).dtype == np.float32
    assert (ta.tensor([1, 2]) / 2).dtype == np.float32
    assert (ta.tensor([True]) + 1).dtype == np.int64


def test_conversions_of_dtype() -> None:
    x = ta.tensor([1.75, -2.5, 0.0])
    for method, dtype in (
        ("float", "float32"), ("double", "float64"), ("half", "float16"),
        ("long", "int64"), ("bool", "bool"),
    ):  # fmt: skip
        converted = getattr(x, method)()
        np.testing.assert_array_equal(converted.numpy(), x.numpy().astype(dtype), strict=True)
    assert x.to(ta.float32) is x
    y = leaf([1.5, 2.5])
    y.half().float().backward(ta.tensor([1.0, 2.0]))
    equal(y.grad, [1.0, 2.0])
    assert y.grad.dtype == np.float64
    assert not y.long().requires_grad


def test_leaving_for_python_and_numpy() -> None:
    x = leaf([[1.5, 2.0]], dtype=np.float32)
    assert x.tolist() == [[1.5, 2.0]]
    assert x[0, 0].item() == 1.5
    assert float(x[0, 0]) == 1.5
    assert int(x[0, 1]) == 2
    assert bool(x[0, 0] > 1)
    assert [10, 20, 30][ta.tensor(1)] == 20
    assert len(x) == 1
    assert (x.size(), x.size(1), x.dim(), x.numel(), x.ndim) == ((1, 2), 2, 2, 2, 2)
    for array in (x.numpy(), np.asarray(x), np.array(x, dtype=np.float64)):
        np.testing.assert_array_equal(array, [[1.5, 2.0]])
        array[0, 0] = 100.0  # a copy of its own
    equal(x, [[1.5, 2.0]])
    np.testing.assert_array_equal(np.from_dlpack(x.detach()), [[1.5, 2.0]])


@pytest.mark.parametrize("operator", ["+", "-", "*", "/", "@", "**", "<", "=="])
def test_numpy_arrays_on_the_left_give_tensors(operator: str) -> None:
    """array * tensor is a Tensor, with its graph, and not an array of objects."""
    array, values = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    x = leaf(values)
    out = eval(f"array {operator} x", {"array": array, "x": x})
    assert isinstance(out, ta.Tensor)
    expected = eval(f"array {operator} values", {"array": array, "values": values})
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-15)
    assert out.requires_grad == (operator not in ("<", "=="))
    flipped = eval(f"x {operator} array", {"array": array, "x": x})
    assert isinstance(flipped, ta.Tensor)


def test_numpy_functions_refuse_tensors() -> None:
    """They would lose the graph; the error is NumPy's."""
    with pytest.raises(TypeError, match="Tensor"):
        np.add(np.ones(2), leaf([1.0, 2.0]))
    array = np.ones(2)
    with pytest.raises(TypeError, match="Tensor"):
        array += leaf([1.0, 2.0])
    np.testing.assert_array_equal(array, [1.0, 1.0])


def test_repr_says_what_matters() -> None:
    x = ta.tensor([1.0, 2.0], requires_grad=True)
    assert repr(x) == "tensor([1., 2.], requires_grad=True)"
    assert repr(ta.tensor([1, 2])) == "tensor([1, 2])"
    assert repr(ta.ones(1, dtype=ta.float64)) == "tensor([1.], dtype=float64)"
    assert "made_by=mul" in repr(x * 2)


def test_tensors_can_be_kept_in_sets_and_dicts() -> None:
    """== compares elements, hashing goes by identity."""
    x, y = ta.ones(2), ta.ones(2)
    assert len({x, y, x}) == 2
    equal(x == y, [True, True])
