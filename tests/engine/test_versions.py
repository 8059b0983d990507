"""Changes in place: no way leads to a wrong gradient, and none leaves anything behind."""

from __future__ import annotations

import copy
import pickle
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_engine import equal, leaf

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn, optim
from tinyattn.engine.versions import sharing
from tinyattn.errors import DtypeError, GraphError, InPlaceError, ShapeError

COTANGENT = np.array([1.0, -10.0])
CHANGED = r"mul needs for its gradient has been changed in place.*backward\(\).*clone\(\)"


def cotangent() -> ta.Tensor:
    return ta.tensor(COTANGENT)


# A change between forward and backward


def by_item(x: ta.Tensor) -> None:
    with ta.no_grad():
        x[0] = 5.0


def by_all_items(x: ta.Tensor) -> None:
    with ta.no_grad():
        x[...] = x + 1


def by_a_view(x: ta.Tensor) -> None:
    with ta.no_grad():
        x[1:][0] = 5.0


def by_a_recorded_view(x: ta.Tensor) -> None:
    x.reshape(2, 1).T.detach()[0, 1] = 5.0


def by_a_detached_tensor(x: ta.Tensor) -> None:
    x.detach()[0] = 5.0


def by_a_shallow_copy(x: ta.Tensor) -> None:
    with ta.no_grad():
        copy.copy(x)[0] = 5.0


def by_an_optimizer(x: ta.Tensor) -> None:
    x.grad = ta.tensor(np.array([1.0, 2.0]))
    optim.SGD([x], lr=0.1).step()
    x.grad = None


def by_adam(x: ta.Tensor) -> None:
    x.grad = ta.tensor(np.array([1.0, 2.0]))
    optim.Adam([x], lr=0.1).step()
    x.grad = None


WAYS = [
    by_item,
    by_all_items,
    by_a_view,
    by_a_recorded_view,
    by_a_detached_tensor,
    by_a_shallow_copy,
    by_an_optimizer,
    by_adam,
]
way_to_change = pytest.mark.parametrize("change", WAYS)


@way_to_change
@pytest.mark.parametrize("function", ["backward", "grad", "create_graph"])
def test_backward_through_a_changed_array_is_refused(
    change: Callable[[ta.Tensor], None], function: str
) -> None:
    """The error names the op and changes nothing: the rest of the graph can still be used."""
    x, other = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    square, whole = x * x, other.exp()
    y = square + whole
    kept = square._node.parents, square._node.saved
    change(x)
    values = x.numpy()
    differentiate = {
        "backward": lambda: y.backward(cotangent()),
        "grad": lambda: ta.grad(y, [x, other], cotangent()),
        "create_graph": lambda: y.backward(cotangent(), create_graph=True),
    }[function]
    with pytest.raises(InPlaceError, match=CHANGED):
        differentiate()
    assert x.grad is None
    assert other.grad is None
    assert (square._node.parents, square._node.saved) == kept
    equal(x, values)
    (dother,) = ta.grad(y, other, cotangent())  # needs no array of the square
    np.testing.assert_allclose(dother.numpy(), COTANGENT * np.exp([3.0, 4.0]), rtol=1e-15)
    (x * x).backward(cotangent())  # a graph that was recorded after the change
    equal(x.grad, 2 * values * COTANGENT)


@way_to_change
def test_a_change_before_the_forward_or_after_the_backward_is_none(
    change: Callable[[ta.Tensor], None],
) -> None:
    x = leaf([1.0, 2.0])
    for _ in range(2):
        change(x)
        values = x.numpy()
        (x * x).backward(cotangent())
        equal(x.grad, 2 * values * COTANGENT)
        x.grad = None


@way_to_change
def test_a_change_through_a_view_is_a_change_of_the_owner_and_the_other_way_round(
    change: Callable[[ta.Tensor], None],
) -> None:
    """Whatever is saved, and whichever tensor is written through: they have one memory."""
    for saved in (
        lambda x: x.T,
        lambda x: x[:],
        lambda x: x.reshape(2, 1).squeeze(1),
        lambda x: x.detach(),
        lambda x: x.detach()[:],
        lambda x: x.unsqueeze(0).expand(3, 2)[1],
        lambda x: ta.ops.reshape(x, 2),
    ):
        x, w = leaf([1.0, 2.0]), leaf([3.0, 4.0])
        y = saved(x) * w
        change(x)
        with pytest.raises(InPlaceError, match=CHANGED):
            y.backward(cotangent())
        assert w.grad is None
        with ta.no_grad():
            view = saved(x)
        y = x * w
        if view._data.flags.writeable:
            with ta.no_grad():
                view[0] = 7.0
            with pytest.raises(InPlaceError, match=CHANGED):
                y.backward(cotangent())


@way_to_change
def test_derivatives_of_second_order_need_their_arrays_as_well(
    change: Callable[[ta.Tensor], None],
) -> None:
    """What a rule records saves arrays of the first graph, and they may be a leaf's."""
    for function in (lambda x: x**3, ta.Tensor.sin, ta.Tensor.log, lambda x: 1 / x, F.gelu):
        x = leaf([1.0, 2.0])
        (first,) = ta.grad(function(x), x, cotangent(), create_graph=True)
        change(x)
        with pytest.raises(InPlaceError, match="needs for its gradient has been changed in place"):
            ta.grad(first, x, cotangent())


def test_constants_are_watched_like_leaves() -> None:
    x, constant = leaf([1.0, 2.0]), ta.tensor(np.array([3.0, 4.0]))
    y = x * constant
    constant.reshape(2, 1)[0] = 1.0
    with pytest.raises(InPlaceError, match=CHANGED):
        y.backward(cotangent())
    (x * constant).backward(cotangent())
    equal(x.grad, [1.0, -40.0])


def test_what_is_saved_beside_a_result_is_watched() -> None:
    """Nobody can write to a result, so it has no version; the array beside it has one."""
    x = leaf([1.0, 2.0])
    for y in (x * x.exp(), x.exp() * x):
        by_item(x)
        with pytest.raises(InPlaceError, match=CHANGED):
            y.backward(cotangent())


def test_ops_that_need_no_array_do_not_mind() -> None:
    """x + y and x.sum() need no values for their derivatives."""
    x = leaf([1.0, 2.0])
    y = (x + 1).sum() + x.mean() + x.reshape(2, 1)[0]
    by_item(x)
    y.backward()
    equal(x.grad, [2.5, 1.5])


def test_an_assignment_that_fails_changes_nothing() -> None:
    x = leaf([1.0, 2.0])
    y = x * x
    with ta.no_grad():
        with pytest.raises(IndexError, match="5"):
            x[5] = 1.0
        with pytest.raises(ShapeError, match=r"\(2,\)"):
            x[:] = ta.ones(3)
        with pytest.raises(InPlaceError, match="expand"):
            x.expand(3, 2)[0] = 1.0
    y.backward(cotangent())
    equal(x.grad, [2.0, -40.0])


def test_new_values_in_new_memory_leave_a_graph_its_own() -> None:
    """`x.data = array` and `x += y` write to no memory, so the graph has its old values."""
    x, w = leaf([1.0, 2.0]), leaf([5.0, 6.0])
    y = x * w
    x.data = np.array([10.0, 20.0])
    with ta.no_grad():
        w += 1
        x[0] = w[0] = 7.0
    y.backward(cotangent())
    equal(x.grad, COTANGENT * [5.0, 6.0])
    equal(w.grad, COTANGENT * [1.0, 2.0])
    equal(x, [7.0, 20.0])
    equal(w, [7.0, 7.0])


def test_two_graphs_on_one_array() -> None:
    """A change counts for all graphs that were recorded before it, and for no later one."""
    x = leaf([1.0, 2.0])
    first = x * x
    by_item(x)
    second = x * x
    by_a_view(x)
    third = x * x
    for graph in (first, second):
        with pytest.raises(InPlaceError, match=CHANGED):
            graph.backward(cotangent())
    third.backward(cotangent())
    equal(x.grad, [10.0, -100.0])


def test_a_retained_graph_is_checked_each_time() -> None:
    x = leaf([1.0, 2.0])
    y = x * x
    y.backward(cotangent(), retain_graph=True)
    by_item(x)
    with pytest.raises(InPlaceError, match=CHANGED):
        y.backward(cotangent(), retain_graph=True)
    equal(x.grad, [2.0, -40.0])


# Results of a graph


@pytest.mark.parametrize("function", [lambda x: x * 2, ta.Tensor.exp, ta.Tensor.relu])
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x,
        lambda x: x.T,
        lambda x: x.reshape(4),
        lambda x: x[0],
        lambda x: x.unsqueeze(0).squeeze(0),
        lambda x: x.detach(),
        lambda x: x.detach().T,
        lambda x: ta.ops.reshape(x, 4),
    ],
)
@pytest.mark.parametrize("recorded", [True, False])
def test_nobody_can_write_to_the_result_of_a_graph(
    function: Callable[..., ta.Tensor], view: Callable[[ta.Tensor], ta.Tensor], recorded: bool
) -> None:
    """Nor to a view of it; `+=` gives new memory to one that nobody else shows."""
    x, expected = leaf([[1.0, 2.0], [3.0, 4.0]]), leaf([[1.0, 2.0], [3.0, 4.0]])
    function(expected).backward(expected.detach())
    y = function(x)
    values = y.numpy()
    with ta.set_grad_enabled(recorded):
        other = view(y)
    with ta.no_grad():
        with pytest.raises(InPlaceError, match=r"computed by a recorded operation|cannot be rec"):
            other[...] = 1.0
        fresh = view(y).clone()
        fresh[...] = 1.0
        if other.is_leaf:
            with pytest.raises(InPlaceError, match="view of one that was"):
                other += 1
        lone = view(function(x.clone())).detach()
        lone += 1
        lone[...] = 7.0  # memory of its own
    with pytest.raises(ValueError, match="read-only"):
        y.data[0] = 5.0
    y.numpy()[0] = 5.0  # a copy
    equal(y, values)
    y.backward(x.detach())
    equal(x.grad, expected.grad.numpy())
    with pytest.raises(GraphError, match=r"computed tensor.*detach"):
        y.data = np.zeros(2)


def test_data_is_read_only() -> None:
    for x in (ta.ones(2), leaf([1.0, 2.0]), leaf([1.0, 2.0]) * 2):
        with pytest.raises(ValueError, match="read-only"):
            x.data[0] = 5.0
        with pytest.raises(ValueError, match="read-only"):
            x.data += 1


# Steps and clears of programs for PyTorch, where `.data` is a Tensor, and what the answer says.
TO_DATA = {
    r"read-only.* write x -= y or x\[i\] = y under ta\.no_grad\(\).*x\.grad = None": """
        w.data -= 0.1 | w.data -= 0.1 * w.grad | w.data += -0.1 * w.grad.data | w.data *= 0.5
        w.data /= 2 | w.data **= 2 | w.data //= 2 | w.data @= np.eye(2) | w.data[0] = 0
        w.data[:] = 1.0 | w.data[w.data < 0] = 0 | w.data[0] += 1 | w.data[:, 0] *= 2
        w.data[0][1] = 7 | w.data.T[0] = 0 | w.data.reshape(-1)[1] = 4 | w.data[[0, 1]] = 2
        w.data[0] = ta.ones(2) | w.data[0] = w.data[1] | w.data += w | w.data[...] -= w.grad
        np.add(w.data, 1, out=w.data) | w.grad.data *= 0.5 | w.grad.data[:] = 0""",
    r"has no Tensor\.\w+_: write ": """
        w.data.zero_() | w.data.fill_(1.0) | w.data.normal_(0, 0.01) | w.data.copy_(w.grad)
        w.data.sub_(0.1 * w.grad) | w.data.add_(w.grad, alpha=-0.1) | w.data.mul_(0.5)
        w.data.clamp_(-1, 1) | w.grad.data.zero_() | w.grad.data.fill_(0) | w.grad.zero_()""",
    r"write x\.detach\(\)\.\w+, of a Tensor": """
        w.data.clone() | w.data.numpy() | w.data.norm() | w.data.abs() | w.grad.data.cpu()""",
    r"a leaf that requires gradients cannot be changed in place .*under ta\.no_grad\(\)": """
        w -= 0.1 * w.grad | w[0] = 0 | w[0] -= 1 | w *= 2""",
}


@pytest.mark.parametrize("text", TO_DATA)
def test_changes_of_data_say_what_to_write(text: str) -> None:
    for code in re.split(r"[|\n]\s*", TO_DATA[text].strip()):
        w = leaf([[1.0, -2.0], [3.0, 4.0]])
        (w * w).sum().backward()
        with pytest.raises((InPlaceError, AttributeError), match=text):
            exec(code, {"w": w, "np": np, "ta": ta})
        equal(w, [[1.0, -2.0], [3.0, 4.0]])
        equal(w.grad, 2 * w.numpy())


def test_data_is_an_array_for_everything_else() -> None:
    x, i = ta.tensor([[1.0, 2.0], [3.0, 4.0]]), ta.tensor([1, 0])
    for made in (x.data * 2, 2 - x.data, x.data.sum(0), np.exp(x.data), x.data @ x.data):
        assert type(made) is np.ndarray
    assert repr(x.data) == repr(x.numpy())
    copied = x.data.copy()
    copied[0] = 5.0
    copied += 1
    equal(x, [[1.0, 2.0], [3.0, 4.0]])
    equal(x[i.data], [[3.0, 4.0], [1.0, 2.0]])
    equal(ta.tensor(x.data), x.numpy())
    with pytest.raises(DtypeError, match="mask"):
        x[np.ma.array([0, 1], mask=[True, False])]
    assert np.sum(x.data, where=(x > 2).data) == np.add.reduce([3.0, 4.0], where=(i > -1).data) == 7
    assert type(pickle.loads(pickle.dumps(x.data))) is np.ndarray


@pytest.mark.parametrize("function", [F.softmax, F.relu, ta.exp, lambda x: F.linear(x, x), F.gelu])
def test_data_is_an_array_for_functions_too(function: Callable[[Any], Any]) -> None:
    x = ta.tensor([[1.0, -2.0], [3.0, 4.0]])
    for given in (x.data, x.data.copy(), x.data.T.T):
        made = function(given)
        assert type(made) is np.ndarray
        np.testing.assert_array_equal(made, function(x).numpy())
    with pytest.raises(DtypeError, match="mask"):
        function(np.ma.array([[0.0, 1.0]], mask=[[True, False]]))


def test_an_op_of_a_user_gets_arrays_of_numpy() -> None:
    kinds = []

    @ta.op
    def times(x, y):
        kinds.extend([type(x), type(y)])
        return x * y

    @times.vjp("y")
    def _(grad, x):
        kinds.append(type(x))
        return grad * x

    w = leaf([1.0, 2.0])
    times(ta.tensor([3.0, 4.0], dtype=ta.float64).data, w).backward(cotangent())
    equal(w.grad, np.array([3.0, 4.0]) * COTANGENT)
    assert kinds == [np.ndarray] * 3


@pytest.mark.parametrize("kind", ["data", "memmap"])
def test_arrays_of_other_classes_in_a_graph_are_copied(kind: str, tmp_path: Path) -> None:
    w, t = leaf([1.0, 1.0]), ta.tensor([1.0, 2.0], dtype=ta.float64)
    given = t.data if kind == "data" else np.memmap(tmp_path / "x", np.float64, "w+", shape=2)
    if kind == "memmap":
        given[:] = t.data
    y = w * given + given * w
    t[...] = 5.0
    if kind == "memmap":
        given[:] = 5.0
    y.backward(cotangent())
    equal(w.grad, 2 * np.array([1.0, 2.0]) * COTANGENT)


def test_numpy_arrays_in_a_graph_are_copied() -> None:
    """A user's own array stays the user's: it may be written, and the graph does not notice."""
    x, array = leaf([1.0, 2.0]), np.array([3.0, 4.0])
    y, z = x * array, ta.cat([x, x]) @ np.eye(4)
    array += 100
    y.backward(cotangent())
    equal(x.grad, [3.0, -40.0])
    assert z.shape == (4,)


@pytest.mark.parametrize(
    "index", [ta.tensor([1, 0]), np.array([1, 0]), [1, 0], (ta.tensor([1, 0]),)]
)
def test_an_index_may_be_changed_afterwards(index: Any) -> None:
    x = leaf([1.0, 2.0])
    y = x[index]
    (index[0] if isinstance(index, tuple) else index)[0] = 0
    y.backward(cotangent())
    equal(x.grad, [-10.0, 1.0])


# Ops of a user


@ta.op
def itself(x):
    return x


@itself.vjp("x")
def _(grad, out):
    return grad * out


@ta.op(saves=True)
def remembered(x, y):
    return x * y, x.T


@remembered.vjp("x", "y")
def _(grad, y, saved):
    return grad * y, grad * saved


@pytest.mark.parametrize("function", [itself, lambda x: remembered(x, ta.ones(2, dtype="float64"))])
def test_an_output_or_a_saved_array_that_is_a_view_is_watched(
    function: Callable[[ta.Tensor], ta.Tensor],
) -> None:
    x = leaf([1.0, 2.0])
    y = function(x)
    by_item(x)
    with pytest.raises(InPlaceError, match="needs for its gradient has been changed in place"):
        y.backward(cotangent())
    function(x).backward(cotangent())


def test_a_result_that_is_its_argument_shares_its_changes() -> None:
    x, w = ta.tensor(np.array([1.0, 2.0])), leaf([3.0, 4.0])
    y = itself(x) * w
    x[0] = 5.0
    with pytest.raises(InPlaceError, match=CHANGED):
        y.backward(cotangent())
    with pytest.raises(InPlaceError, match="read-only view"):
        itself(x)[0] = 7.0


def writes_x(x, y):
    x *= 2
    return x + y


def writes_y(x, y):
    np.multiply(y, 2, out=y)
    return x + y


def writes_a_view(x, y):
    x.reshape(-1)[:1] = 0
    return x + y


@pytest.mark.parametrize("forward", [writes_x, writes_y, writes_a_view])
@pytest.mark.parametrize("recorded", [True, False])
def test_a_forward_that_writes_to_its_arguments_is_refused(
    forward: Callable[..., Any], recorded: bool
) -> None:
    """Before a tensor or an array of the caller's is changed."""
    function = ta.op(forward)
    function.vjp("x", "y")(lambda grad: (grad, grad))
    x, y, array = leaf([1.0, 2.0]), leaf([3.0, 4.0]), np.array([3.0, 4.0])
    with ta.set_grad_enabled(recorded):
        for arguments in ((x, y), (x.detach(), y), (x, array)):
            with pytest.raises(InPlaceError, match="writes to an argument"):
                function(*arguments)
    equal(x, [1.0, 2.0])
    equal(y, [3.0, 4.0])
    np.testing.assert_array_equal(array, [3.0, 4.0])


# += and its kind


IN_PLACE = {
    "+=": ("__iadd__", 2.0),
    "-=": ("__isub__", 2.0),
    "*=": ("__imul__", 2.0),
    "/=": ("__itruediv__", 2.0),
    "**=": ("__ipow__", 2.0),
    "@=": ("__imatmul__", np.array([[1.0, 2.0], [3.0, 4.0]])),
    "&=": ("__iand__", np.array([True, False])),
    "|=": ("__ior__", np.array([True, False])),
    "^=": ("__ixor__", np.array([True, False])),
}


@pytest.mark.parametrize("sign", IN_PLACE)
def test_in_place_arithmetic_means_one_thing_recorded_or_not(sign: str) -> None:
    """The example of a skip connection: a module must not compute other numbers in evaluation."""
    name, value = IN_PLACE[sign]
    other = ta.tensor(value)
    truth = other.dtype == np.bool_

    def function(w: ta.Tensor) -> list[np.ndarray]:
        h = w > 1 if truth else w * 3
        skip, alias, view, detached = h, h[:], h.T, h.detach()
        same = getattr(h, name)(other)
        assert same is h
        return [t.numpy() for t in (h, skip, alias, view, detached)]

    w = leaf([[2.0, 1.0], [0.5, 4.0]])
    recorded = function(w)
    with ta.no_grad():
        unrecorded = function(w)
    constant = function(w.detach())
    before = w.numpy() > 1 if truth else w.numpy() * 3
    after = getattr(before, name.replace("__i", "__", 1))(other.numpy())
    for found in (recorded, unrecorded, constant):
        for array, expected in zip(found, [after, after, after, after.T, after], strict=True):
            np.testing.assert_array_equal(array, expected, strict=True)


def test_a_change_behind_a_long_chain_of_detached_tensors_is_fast() -> None:
    """Its time grew with the square of the chain: 30,000 took 15 seconds."""
    x = y = ta.zeros(3)
    for _ in range(30_000):
        y = y.detach()
    begin = time.perf_counter()
    y += 1
    assert time.perf_counter() - begin < 3
    assert x.tolist() == [1, 1, 1]


def test_a_change_of_each_of_many_rows_is_fast() -> None:
    """Each looked at all rows: 3,000 took half a minute."""
    x = ta.zeros(3000, 2)
    rows = list(x)
    begin = time.perf_counter()
    for row in rows:
        row += 1
    assert time.perf_counter() - begin < 5
    assert x.sum().item() == 6000


def test_the_skip_of_the_issue() -> None:
    def f(w: ta.Tensor, x: ta.Tensor) -> ta.Tensor:
        h = w * x
        skip = h
        h += 1
        return h + skip

    w, x = ta.tensor([2.0], requires_grad=True), ta.tensor([3.0])
    out = f(w, x)
    with ta.no_grad():
        assert f(w, x).item() == out.item() == 14.0
    out.backward()
    equal(w.grad, [6.0])


@pytest.mark.parametrize("sign", ["+=", "-=", "*=", "/=", "**="])
def test_gradients_of_in_place_arithmetic(sign: str) -> None:
    name = IN_PLACE[sign][0]
    x, w = leaf([1.5, 2.0]), leaf([0.5, 3.0])
    h = x * 2
    graph = h * h  # has the old values
    getattr(h, name)(w)
    (h * h + graph).backward(cotangent())
    a, b = leaf([1.5, 2.0]), leaf([0.5, 3.0])
    old = a * 2
    new = getattr(old, name.replace("__i", "__", 1))(b)
    (new * new + old * old).backward(cotangent())
    np.testing.assert_allclose(x.grad.numpy(), a.grad.numpy(), rtol=1e-15)
    np.testing.assert_allclose(w.grad.numpy(), b.grad.numpy(), rtol=1e-15)


def test_in_place_arithmetic_on_a_leaf_is_refused_while_recording() -> None:
    x = leaf([1.0, 2.0])
    for operation in ("__iadd__", "__isub__", "__imul__", "__itruediv__", "__ipow__"):
        with pytest.raises(InPlaceError, match=r"leaf.*no_grad.*x = x \+ y"):
            getattr(x, operation)(1.0)
    equal(x, [1.0, 2.0])
    y = x * 2
    with (
        pytest.raises(InPlaceError, match=r"recorded operation.*no_grad.*x = x \+ y"),
        ta.no_grad(),
    ):
        y += 1
    equal(y, [2.0, 4.0])


def test_a_constant_that_becomes_part_of_a_graph() -> None:
    w, h = leaf([1.0, 2.0]), ta.tensor(np.array([3.0, 4.0]))
    before = h * w
    h += w
    assert not h.is_leaf
    (h * before).backward(cotangent())
    equal(w.grad, COTANGENT * [3.0 * (3 + 2 * 1), 4.0 * (4 + 2 * 2)])  # of (h + w) h w


def test_in_place_arithmetic_without_a_graph_changes_the_tensor() -> None:
    x = same = ta.tensor([1.0, 2.0])
    x += 1
    x *= ta.tensor([2.0, 3.0])
    x -= np.array([1.0, 1.0])
    x /= 2
    assert x is same
    equal(x, [1.5, 4.0])
    with pytest.raises(ShapeError, match=r"keeps the shape \(2,\), got \(3, 2\)"):
        x += ta.ones(3, 2)
    integers = ta.tensor([1, 2])
    with pytest.raises(DtypeError, match=r"float32 .*int64"):
        integers += 1.5
    with pytest.raises(DtypeError, match=r"float32 .*int64"):
        integers /= 2
    equal(x, [1.5, 4.0])
    equal(integers, [1, 2])


def test_in_place_arithmetic_keeps_the_dtype() -> None:
    for dtype, wider in ((np.float16, np.float32), (np.float32, np.float64), (np.int32, np.int64)):
        x = ta.tensor([1, 2], dtype=dtype)
        x += ta.tensor([3, 4], dtype=wider)
        assert x.dtype == dtype
        equal(x, [4, 6])


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


# Assignment


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


def test_leaves_and_results_of_a_graph_are_written_to_where_that_is_safe() -> None:
    w = leaf([1.0, 2.0, 3.0], dtype=np.float32)
    x, y = ta.zeros(3), w * 2
    for change in (lambda: w.__setitem__(0, 1.0), lambda: w.__setitem__(0, w[1])):
        with pytest.raises(InPlaceError, match=r"a leaf that requires gradients.*no_grad"):
            change()
    with ta.no_grad():
        w[0] = 5.0
        x[0] = w[0]
        with pytest.raises(InPlaceError, match="computed by a recorded operation"):
            y[0] = 1.0
    assert not x.requires_grad
    equal(w, [5.0, 2.0, 3.0])
    equal(x, [5.0, 0.0, 0.0])
    equal(y, [2.0, 4.0, 6.0])


def test_a_buffer_is_filled_row_by_row() -> None:
    """As a recurrent network fills it; each row depends on the one before, which is read again."""
    w, x = leaf([[0.5, -1.0], [2.0, 0.3]]), leaf([[0.1, 0.2], [0.3, -0.4], [0.5, 0.6]])
    filled, rows = ta.zeros(2, 4, dtype=np.float64), [ta.zeros(2, dtype=np.float64)]
    for t in range(3):
        filled[:, t + 1] = (filled[:, t] @ w + x[t]).tanh()
        rows.append((rows[-1] @ w + x[t]).tanh())
    joined = ta.stack(rows, 1)
    np.testing.assert_array_equal(filled.numpy(), joined.numpy())
    upstream = ta.tensor(np.arange(8.0).reshape(2, 4) - 3.3)
    for mine, right in zip(
        ta.grad(filled, [w, x], upstream), ta.grad(joined, [w, x], upstream), strict=True
    ):
        np.testing.assert_allclose(mine.numpy(), right.numpy(), rtol=1e-14)


@pytest.mark.parametrize("index", [0, slice(1), [0], np.array([True, False]), ta.tensor([0])])
def test_elements_are_changed_in_place_while_operations_are_recorded(index: Any) -> None:
    """`x[i] += v` reads x[i], adds, and writes the sum."""
    w, v = leaf([3.0, 4.0]), leaf(5.0)
    x = w * w
    x[index] += v * w[1]
    x[index] *= 2
    equal(x, [58.0, 16.0])
    x.backward(cotangent())
    equal(w.grad, [2 * 6.0, 2 * 5.0 - 10 * 8.0])
    equal(v.grad, 2 * 4.0)


def test_an_element_that_is_written_twice_has_the_gradient_of_the_last_value() -> None:
    """In PyTorch both values get it, though x depends on the last one alone."""
    w, v = leaf([1.0, 2.0]), leaf([3.0, 4.0, 5.0])
    x = w * 2
    x[[1, 1, 1]] = v
    equal(x, [2.0, 5.0])
    x.backward(cotangent())
    equal(v.grad, [0.0, 0.0, -10.0])
    equal(w.grad, [2.0, 0.0])


def test_a_recorded_assignment_reaches_views_and_leaves_graphs_as_they_are() -> None:
    w = leaf([1.0, 2.0])
    x = w * 3
    view, square = x.reshape(2, 1), x * x
    x[0] = 7.0
    equal(x, [7.0, 6.0])
    equal(view, [[7.0], [6.0]])
    (square + x + view.reshape(2)).backward(cotangent())
    equal(w.grad, [18.0, -360.0 - 60.0])


def test_a_recorded_assignment_to_a_view_reaches_what_it_shows() -> None:
    w = leaf([[1.0, 2.0], [3.0, 4.0]])
    for x, own in ((w * 2, 2.0), (ta.tensor(np.array([[2.0, 4.0], [6.0, 8.0]])), 0.0)):
        row, column, flat = x[0], x[:, 1], x.reshape(-1)
        row[0] = w[1, 1]
        column[1] = 9.0 * w[0, 0]
        flat[2] = 5.0 * w[0, 1]
        equal(x, [[4.0, 4.0], [10.0, 9.0]])
        equal(row, [4.0, 4.0])
        equal(column, [4.0, 9.0])
        equal(flat, [4.0, 4.0, 10.0, 9.0])
        grad = ta.grad((x * ta.tensor(np.array([[1.0, -2.0], [3.0, 0.5]]))).sum(), w)[0]
        equal(grad, [[4.5, 15.0 - 2.0 * own], [0.0, 1.0]])


VIEWS: dict[str, Callable[[ta.Tensor], ta.Tensor]] = {
    "reshape": lambda x: x.view(-1),
    "permute": lambda x: x.T,
    "transpose": lambda x: x.mT,
    "row": lambda x: x[1],
    "element": lambda x: x[0, 1],
    "slice": lambda x: x[:, :1],
    "iterated": lambda x: [*x][1],
    "of a view": lambda x: x.T[1].unsqueeze(0),
    "unbind": lambda x: x.unbind(1)[1],
    "chunk": lambda x: x.chunk(2)[0],
}


@pytest.mark.parametrize("kind", VIEWS)
@pytest.mark.parametrize("recorded", [True, False])
def test_a_change_through_a_view_changes_what_it_shows(kind: str, recorded: bool) -> None:
    """And a change of the whole changes the view; gradients are those of the same by where()."""
    view, cotangents = VIEWS[kind], ta.tensor(np.array([[1.0, -2.0], [3.0, -0.5]]))
    w = leaf([[1.0, 2.0], [3.0, 4.0]])
    x = w * 3 if recorded else w.detach() * 3
    y, other = view(x), x.reshape(4)
    y *= w[1, 1] if recorded else 4.0
    numbers = np.arange(4).reshape(2, 2)
    shown = np.isin(numbers, view(ta.tensor(numbers)).numpy())
    values = np.where(shown, 4.0, 1.0) * w.numpy() * 3
    equal(x, values)
    equal(other, values.reshape(4))
    equal(y, view(ta.tensor(values)))
    x += 1
    equal(y, view(ta.tensor(values + 1)))
    equal(other, values.reshape(4) + 1)
    if recorded:
        expected = ta.where(ta.tensor(shown), w * 3 * w[1, 1], w * 3)
        for found in (x, other.reshape(2, 2)):
            mine = ta.grad(found, w, cotangents, retain_graph=True)[0]
            equal(mine, ta.grad(expected, w, cotangents, retain_graph=True)[0].numpy())


def test_every_row_shows_the_whole_after_another_row_has_changed() -> None:
    w = leaf([[1.0, 2.0], [3.0, 4.0]])
    x = w * 2
    rows = [*x]
    for i, row in enumerate(rows):
        row *= w[0, 1] * (i + 1)
    equal(x, [[4.0, 8.0], [24.0, 32.0]])
    equal(rows[0], [4.0, 8.0])
    (dx,) = ta.grad(x, w, ta.tensor(np.array([[1.0, -2.0], [3.0, -0.5]])))
    equal(dx, [[4.0, -8.0 + 2 - 8 + 36 - 8], [24.0, -4.0]])


def test_a_change_that_cannot_reach_the_others_is_refused() -> None:
    w = leaf([[1.0, 2.0], [3.0, 4.0]])
    x = w * 2
    wide, rows = (w * 2).reshape(4), w.view(4)
    first, second = wide[:3], wide[1:]
    del wide  # the views overlap, and neither shows all of the other
    made: list[Callable[[], ta.Tensor]] = [
        *(x.detach, lambda: x.expand(3, 2, 2), lambda: x[:, :1].expand(2, 3)),
        *(lambda: rows, lambda: first, x.reshape(1, 4).detach, lambda: itself(x)),
    ]
    for make in made:  # each alone, because the others could not follow either
        y = make()
        values = y.numpy()
        with pytest.raises(InPlaceError, match=r"cannot follow: write y = y \+ x|clone\(\)"):
            y *= w[0, 0]
        equal(y, values)
    equal(x, [[2.0, 4.0], [6.0, 8.0]])
    equal(second, [4.0, 6.0, 8.0])
    lone = (x * 1).view(4).detach()  # no other tensor shows it
    lone *= 2.0
    equal(lone, [4.0, 8.0, 12.0, 16.0])


def test_views_are_forgotten_with_their_tensors() -> None:
    x = ta.zeros(3)
    views = [x[i] for i in range(3)]
    assert len(sharing(x)) == 4
    del views
    assert len(sharing(x)) == 1
    assert len(sharing(pickle.loads(pickle.dumps(x[:2])))) == 1


def test_a_recorded_assignment_keeps_the_dtype() -> None:
    w = leaf([1.0, 2.0], dtype=np.float32)
    x = w * 2
    x[0] = leaf(0.1, dtype=np.float64)
    x[1] = 1e300
    assert x.dtype == np.float32
    equal(x, np.array([0.1, np.inf], np.float32))
    integers = ta.tensor([1, 2])
    with pytest.raises(DtypeError, match=r"written into floats, got int64.*detach\(\)"):
        integers[0] = w[0]
    with pytest.raises(DtypeError, match="'a'"):
        x[0] = "a"
    equal(integers, [1, 2])


def test_dimensions_of_1_in_front_of_a_value_are_dropped() -> None:
    x = ta.zeros(2, 3)
    x[0, 1] = ta.ones(1, 1)
    x[1] = ta.ones(1, 3)
    x[ta.tensor([[False, False, True], [False, False, False]])] = ta.ones(1, 1)
    equal(x, [[0.0, 1.0, 1.0], [1.0, 1.0, 1.0]])


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


# Freezing


def test_freezing_between_forward_and_backward_loses_no_gradient() -> None:
    w = leaf([1.0, 2.0])
    y = w * w
    w.requires_grad_(False)
    assert w.grad is None
    w.requires_grad_(True)
    y.backward(cotangent())
    equal(w.grad, [2.0, -40.0])


def test_a_frozen_leaf_gets_no_gradient() -> None:
    """What came while it was frozen does not count, and what came before stays, as in PyTorch."""
    w = leaf([1.0, 2.0])
    w.requires_grad_(False)
    (leaf([1.0, 1.0]) * w).backward(cotangent())
    w.requires_grad_(True)
    y = w * w
    y.backward(cotangent(), retain_graph=True)
    w.requires_grad_(False)
    y.backward(cotangent(), retain_graph=True)
    equal(w.grad, [2.0, -40.0])
    w.requires_grad_(True)
    equal(w.grad, [2.0, -40.0])
    y.backward(cotangent())
    equal(w.grad, [4.0, -80.0])


def copies_of(w: Any) -> list[Any]:
    return [w, copy.copy(w), copy.deepcopy(w), pickle.loads(pickle.dumps(w))]


def test_the_gradient_of_a_frozen_leaf_is_seen_copied_and_forgotten() -> None:
    for i in range(4):
        w = leaf([1.0, 2.0])
        (w * w).backward(cotangent())
        w.requires_grad_(False)
        w = copies_of(w)[i]
        assert not w.requires_grad
        equal(w.grad, [2.0, -40.0])
        w.requires_grad_(True)
        (w * w).backward(cotangent())
        equal(w.grad, [4.0, -80.0])
        w.requires_grad_(False)
        w.grad = None
        assert w.requires_grad_(True).grad is None
    with pytest.raises(GraphError, match="does not require gradients has no grad"):
        ta.ones(2).grad = ta.ones(2)
    net = nn.Linear(2, 2)
    net(ta.ones(1, 2)).backward(ta.ones(1, 2))
    before = net.weight.grad.numpy()
    net.requires_grad_(False).double()
    equal(net.weight.grad, before)
    assert net.weight.grad.dtype == ta.float64
    net.zero_grad()
    assert net.weight.grad is None


def test_a_leaf_that_was_replaced_while_frozen_is_another() -> None:
    w = leaf([1.0, 2.0])
    y = w * w
    w.requires_grad_(False)
    w.data = np.ones(3)
    w.requires_grad_(True)
    y.backward(cotangent())
    assert w.grad is None
    (w * 2).backward(ta.ones(3, dtype=ta.float64))
    equal(w.grad, [2.0, 2.0, 2.0])


# Whole training steps


@pytest.mark.parametrize("kind", [optim.SGD, optim.Adam, optim.AdamW])
def test_a_step_while_a_graph_is_alive_is_refused_in_backward(kind: Any) -> None:
    """As in PyTorch: the weights that the graph needs are no longer there."""
    ta.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    optimizer = kind(net.parameters(), lr=0.1)
    out = net(ta.randn(5, 3))
    F.mse_loss(out, ta.zeros(5, 2)).backward(retain_graph=True)
    optimizer.step()
    before = [p.grad.numpy() for p in net.parameters()]
    with pytest.raises(InPlaceError, match=r"linear needs .* changed in place"):
        out.backward(ta.randn(5, 2))
    for parameter, grad in zip(net.parameters(), before, strict=True):
        equal(parameter.grad, grad)


def test_a_neighbour_whose_whole_is_gone_is_no_hindrance() -> None:
    whole = ta.ones(4, requires_grad=True) * 2
    first, second = whole[:2], whole[2:]
    del whole
    first += ta.ones(2, requires_grad=True)
    assert first.tolist() == [3, 3]
    assert second.tolist() == [2, 2]


def add_one(x: ta.Tensor) -> None:
    x += 1.0


@pytest.mark.parametrize("write", [by_item, by_all_items, by_a_view, add_one])
@pytest.mark.parametrize(
    "compute",
    [lambda x: x.clone(), lambda x: x * 1.5, lambda x: x.exp(), lambda x: x.softmax(-1)],
)
def test_what_is_left_of_a_result_gets_memory_of_its_own(compute: Any, write: Any) -> None:
    """Only its detach() is left, so it may be written to. A graph still needs the old values."""

    def gradient(is_written: bool) -> ta.Tensor:
        x = leaf([0.5, -1.0])
        result = compute(x)
        out, rest = result * result, result.detach()
        del result
        if is_written:
            before = rest.tolist()
            write(rest)
            assert rest.tolist() != before
        (found,) = ta.grad(out, x, cotangent())
        return found

    equal(gradient(True), gradient(False))
