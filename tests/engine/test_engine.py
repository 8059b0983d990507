"""The engine: what is recorded, how gradients flow back, and what may not be touched meanwhile."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import functional as F
from tinyattn.errors import DtypeError, GraphError, InPlaceError, ShapeError


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


def test_a_chain_of_50000_ops() -> None:
    """Built, differentiated and freed under a recursion limit of 1,000."""
    code = """
import sys
import tinyattn as ta
sys.setrecursionlimit(1000)
x = ta.tensor(0.0, dtype=ta.float64, requires_grad=True)
y = x
for _ in range(50_000):
    y = y + 1.0
y.backward()
assert x.grad.item() == 1.0 and y.item() == 50_000
del y
y = x
for _ in range(50_000):
    y = y + 1.0
del y  # freed without having been differentiated
y = x
for _ in range(50_000):
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


def test_who_asks_to_free_the_graph_is_heard_beside_create_graph() -> None:
    x = ta.tensor([2.0], requires_grad=True)
    for retain in (None, True, False):
        y = x * x * x
        (dx,) = ta.grad(y, x, create_graph=True, retain_graph=retain)
        assert dx.item() == 12
        if retain is False:
            with pytest.raises(GraphError, match="freed"):
                ta.grad(y, x)
        else:
            assert ta.grad(y, x)[0].item() == 12


def test_what_saves_no_array_is_not_freed() -> None:
    """As in PyTorch, where programs convert or cut the inputs once, before the loop of training."""
    leaves = [ta.tensor(np.ones((4, 2)), requires_grad=True) for _ in range(2)]
    x, y = leaves[0].to("float32"), leaves[1] + 1
    columns = [ta.cat([x, y.to("float32")]).unsqueeze(0)[..., i] for i in range(2)]
    cotangents = np.random.default_rng(0).standard_normal((3, 1, 8), np.float32)
    for cotangent in cotangents:
        loss = (columns[0] * columns[1].exp() * ta.tensor(cotangent)).sum()
        loss.backward()
        with pytest.raises(GraphError, match="freed"):
            loss.backward()
    total = cotangents.sum((0, 1))
    for part, values, value in zip((total[:4], total[4:]), leaves, (1.0, 2.0), strict=True):
        expected = part[:, None] * np.exp(value) * [1.0, value]
        np.testing.assert_allclose(values.grad.numpy(), expected, rtol=1e-5)


def test_an_index_of_arrays_is_freed() -> None:
    """It stands in a tuple. A program that keeps its losses would keep all indices of a training,
    because each loss has its graph."""
    rows, columns = np.arange(4), np.array([1, 0, 1, 1])
    cotangents = np.random.default_rng(0).standard_normal((2, 4))
    for index, is_freed in (((rows, columns), True), ((slice(4), 1), False)):
        x = ta.tensor(np.ones((4, 2)), requires_grad=True)
        picked = x[index]
        picked.backward(ta.tensor(cotangents[0]))
        if is_freed:
            with pytest.raises(GraphError, match="freed"):
                picked.backward(ta.tensor(cotangents[1]))
        else:
            picked.backward(ta.tensor(cotangents[1]))
        expected = np.zeros((4, 2))
        expected[index] = cotangents[0] if is_freed else cotangents.sum(0)
        np.testing.assert_allclose(x.grad.numpy(), expected)


@pytest.mark.parametrize(
    "part",
    [
        lambda x: x.tril(),
        lambda x: x.triu(1),
        lambda x: x.T.flip(0),
        lambda x: x.repeat_interleave(2, 0),
        lambda x: F.dropout(x, 0.5),
    ],
)
def test_linear_ops_save_no_array(part: Callable[[ta.Tensor], ta.Tensor]) -> None:
    """So a part of a weight can be taken once, before the loop of training."""
    x = leaf(np.arange(9.0).reshape(3, 3))
    weight = part(x)
    weight.square().sum().backward()
    once = x.grad
    weight.square().sum().backward()
    assert once is not None
    equal(x.grad, 2 * once.numpy())


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
    losses = [leaf(1.0) * 2, leaf(3.0) * 2]
    with pytest.raises(GraphError, match=r"ta.tensor\(losses\) copies, ta.stack"):
        ta.tensor(losses).mean().backward()
    ta.stack(losses).mean().backward()


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
        x.grad[0], y.grad[0] = 70.0, 80.0
        assert (x.grad[0].item(), y.grad[0].item()) == (70.0, 80.0)


@pytest.mark.parametrize("uses", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("value", [3.0, [3.0]])
def test_a_leaf_used_many_times_gets_the_sum(uses: int, value: Any) -> None:
    """Also a 0-d one: NumPy's sum of two 0-d arrays is a scalar, which += does not change."""
    for function, slope in ((lambda x: x, 1.0), (lambda x: 2 * x, 2.0), (lambda x: x * x, 6.0)):
        x = leaf(value)
        total = function(x)
        for _ in range(uses - 1):
            total = total + function(x)
        total.backward(ta.tensor(np.full(total.shape, -0.5)))
        equal(x.grad, np.full(x.shape, -0.5 * slope * uses))
        assert type(x.grad._data) is np.ndarray  # no number of NumPy


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


def test_the_cotangent_of_an_output_on_the_way_to_another_is_not_changed() -> None:
    x = leaf([2.0, -1.0])
    y = x * 3
    z = y * 5
    of_y, of_z = ta.tensor([1.0, -2.0], dtype=x.dtype), ta.tensor([0.5, 4.0], dtype=x.dtype)
    for outputs, cotangents in (([y, z], [of_y, of_z]), ([y, y], [of_y, of_z])):
        (dx,) = ta.grad(outputs, x, cotangents, retain_graph=True)
        equal(of_y, [1.0, -2.0])
        equal(of_z, [0.5, 4.0])
    equal(dx, [4.5, 6.0])


def test_grad_with_respect_to_an_input_given_twice() -> None:
    x = leaf(2.0)
    first, second = ta.grad(x * 3, [x, x])
    equal(first, 3.0)
    equal(second, 3.0)
    assert not np.shares_memory(first.data, second.data)
    z = leaf(5.0)
    first, other, second = ta.grad(x * z, [x, z, x])  # another input between them
    equal(first, 5.0)
    equal(second, 5.0)
    equal(other, 2.0)
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
    with pytest.warns(UserWarning, match="mul computed this tensor"):
        assert z.grad is None
    with pytest.raises(GraphError, match="does not require"):
        ta.ones(1).retain_grad()


def test_reading_the_grad_of_a_computed_tensor_warns_as_in_pytorch() -> None:
    """The first error of beginners: `w = w - rate * w.grad` makes another tensor, and no leaf."""
    w = leaf([1.0, -2.0])
    for step in range(2):
        (w * w).sum().backward()
        if step:
            said = pytest.warns(UserWarning, match=r"sub computed .* w -= lr \* w.grad")
            with said, pytest.raises(TypeError, match="NoneType"):
                w - 0.1 * w.grad
        else:
            w = w - 0.1 * w.grad
    # Nothing is said of leaves without a gradient, of what learns nothing, of a gradient that will
    # come, and of a copy. The tests take a warning for an error.
    y = leaf(1.0) * 2
    y.retain_grad()
    silent = [leaf(1.0), leaf(1.0).detach(), ta.ones(2), y, leaf(1.0).requires_grad_(False)]
    assert [x.grad for x in silent] == [None] * 5
    assert copy.copy(w).grad_fn is w.grad_fn
    assert copy.copy(leaf(1.0) * 2).requires_grad


def test_a_change_in_place_keeps_a_retained_gradient(torch: Any) -> None:
    """Also one through a view, and what an earlier backward left."""
    results = []
    for library in (ta, torch):
        x = library.tensor([2.0, -3.0], requires_grad=True)
        y, z, whole = x * 3, x * 4, x * 5
        part = whole[:1]
        for tensor in (y, z, whole, part):
            tensor.retain_grad()
        y.sum().backward(retain_graph=True)
        y += 1
        first = y.grad.tolist()
        z[1] = 7.0
        part *= 2
        (library.tensor([3.0, -5.0]) * (y * z * whole - part)).sum().backward()
        results.append([first, *(t.grad.tolist() for t in (y, z, whole, part, x))])
    assert results[0] == results[1]


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


def test_set_grad_enabled_is_a_statement_too() -> None:
    """As in PyTorch: it holds from there on, and a with-block returns to what was before."""
    x = leaf(1.0)
    try:
        ta.set_grad_enabled(False)
        assert not ta.is_grad_enabled()
        assert not (x * 2).requires_grad
        with ta.set_grad_enabled(True):
            assert (x * 2).requires_grad
        assert not ta.is_grad_enabled()
    finally:
        ta.set_grad_enabled(True)
    assert (x * 2).requires_grad


def test_create_graph_records_under_no_grad() -> None:
    """And gradients without it are not recorded, although everything else is."""
    x = leaf([2.0, -3.0])
    y = x * x * x
    with ta.no_grad():
        (first,) = ta.grad(y, x, ta.tensor(np.array([1.0, -2.0])), create_graph=True)
        assert first.requires_grad
    (second,) = ta.grad(first, x, ta.tensor(np.array([1.0, 1.0])))
    equal(second, [6 * 2.0, -2 * 6 * -3.0])
    assert not second.requires_grad


def test_as_a_decorator_set_grad_enabled_switches_the_function_alone() -> None:
    @ta.set_grad_enabled(False)
    def is_enabled() -> bool:
        return ta.is_grad_enabled()

    assert ta.is_grad_enabled()
    assert not is_enabled()
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
    with pytest.raises(DtypeError, match="float64, got float32"):
        x.grad = ta.ones(2)
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
    third = copy.deepcopy(x)
    x.grad[0] = 7.0
    equal(third.grad, [3.0, 3.0])
    with ta.no_grad():
        twin_[0] = 9
    equal(x, [1.0, 2.0])
    with pytest.raises(GraphError, match="leaves"):
        copy.deepcopy(x * 2)


def test_pickle_keeps_a_leaf_and_refuses_what_was_computed() -> None:
    x = leaf([1.0, 2.0])
    again = pickle.loads(pickle.dumps(x))
    equal(again, [1.0, 2.0])
    assert again.requires_grad
    with pytest.raises(GraphError, match="only leaves can be pickled: detach"):
        pickle.dumps(x * 2)
    large = pickle.loads(pickle.dumps(ta.ones(64, 64, requires_grad=True)))
    graph = large * large
    with ta.no_grad():
        large[0] = 3
    assert large.data[0, 0] == 3
    with pytest.raises(InPlaceError, match="mul needs"):
        graph.sum().backward()
    equal(pickle.loads(pickle.dumps((x * 2).detach())), [2.0, 4.0])
    assert large.dtype is np.dtype(np.float32)  # by which the fast paths know it


def test_a_shallow_copy_has_the_same_array_and_a_gradient_of_its_own() -> None:
    """As in PyTorch: so that one of both can be frozen, and the other still learns."""
    x = leaf([1.0, 2.0])
    computed = x * 2
    for tensor in (x, computed):
        twin_ = copy.copy(tensor)
        assert twin_ is not tensor
        assert twin_.data.base is tensor.data.base
        (twin_ * 3).sum().backward(retain_graph=True)
    equal(x.grad, [6.0, 6.0])  # of the copy of what was computed from it
    other = copy.copy(x)
    x.requires_grad_(False)
    (other * 3).sum().backward()
    equal(other.grad, [9.0, 9.0])
    frozen = copy.copy(x)
    assert not frozen.requires_grad
    equal(frozen.grad, [6.0, 6.0])


class Named(ta.nn.Parameter):
    pass


def test_copies_keep_the_attributes_of_a_subclass() -> None:
    x = Named([1.0])
    x.names = ["weights"]  # type: ignore[attr-defined]
    for twin_ in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert twin_.names == ["weights"]
    assert copy.copy(x).names is x.names  # type: ignore[attr-defined]
    assert copy.deepcopy(x).names is not x.names  # type: ignore[attr-defined]


def test_numbers_are_found_in_a_tensor() -> None:
    x = ta.tensor([[1.0, 2.0], [3.0, -0.0]])
    assert 3 in x
    assert 0.0 in x
    assert ta.tensor([5.0, 2.0]) in x
    assert 4 not in x
    assert float("nan") not in x
    assert 1 not in ta.zeros(0, 2)
    assert "a" not in x
    assert None not in x


def test_backward_with_create_graph_keeps_the_graph() -> None:
    """Because the graph of the gradient leads through it."""
    x = leaf([1.0, 2.0])
    y = x**3
    y.backward(ta.tensor(np.array([1.0, -10.0])), create_graph=True)
    slope = x.grad
    (second,) = ta.grad(slope, x, ta.tensor(np.array([1.0, 1.0])))
    equal(second, [6.0, -120.0])
    (again,) = ta.grad(y, x, ta.tensor(np.array([1.0, 1.0])))
    equal(again, [3.0, 12.0])


def test_a_gradient_of_another_dtype_is_converted_first() -> None:
    """A rule gets it, and `.grad` keeps it, in the dtype of the output."""
    x = leaf([1.0, 2.0])
    y = x * 3.0
    y.retain_grad()
    y.backward(ta.tensor([1.0, -10.0], dtype=ta.float32))
    assert y.grad.dtype == x.grad.dtype == np.float64
    equal(x.grad, [3.0, -30.0])


def test_a_gradient_does_not_share_memory_with_the_cotangent() -> None:
    x, cotangent = leaf([1.0, 2.0]), ta.tensor(np.array([1.0, -10.0]))
    y = x * 2
    y.retain_grad()
    y.backward(cotangent)
    (same,) = ta.grad(x, x, cotangent)
    x.backward(cotangent)
    for gradient in (x.grad, y.grad, same):
        assert not np.shares_memory(gradient._data, cotangent._data)
    equal(x.grad, [3.0, -30.0])


def test_a_sum_of_gradients_of_a_number_is_an_array() -> None:
    """NumPy's sum of two 0-d arrays is a scalar, which no rule expects."""
    kinds = []

    @ta.op
    def doubled(x):
        return 2 * x

    @doubled.vjp("x")
    def _(grad):
        kinds.append(type(grad))
        return 2 * grad

    x = leaf(3.0)
    y = doubled(x)
    (y * y + y).backward()
    equal(x.grad, 26.0)
    assert kinds == [np.ndarray]


@pytest.mark.parametrize("differentiate", ["backward", "grad"])
def test_infinite_gradients_come_without_a_warning(differentiate: str) -> None:
    """They are values like any other; warnings are errors in these tests."""
    x = leaf([0.0, 2.0])
    y = x.log().sum()
    if differentiate == "backward":
        y.backward()
        slope = x.grad
    else:
        (slope,) = ta.grad(y, x)
    equal(slope, [np.inf, 0.5])
