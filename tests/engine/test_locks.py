"""Arrays that a live graph needs: no way leads to a wrong gradient."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np
import pytest
from test_engine import equal, leaf

import tinyattn as ta
from tinyattn import functional as F
from tinyattn.errors import DtypeError, GraphError, InPlaceError, ShapeError


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


def test_a_view_is_free_again_when_its_owner_is() -> None:
    """Also if the graph that needed the view was the first to go."""
    x = leaf([1.0, 2.0])
    view = x.detach()[1:]
    of_owner, of_view = x * x, leaf([3.0]) * view
    del of_view
    assert not view._data.flags.writeable
    del of_owner
    view._data[0] = 5.0
    equal(x, [1.0, 5.0])


def test_what_was_read_only_before_stays_so() -> None:
    x = leaf([1.0, 2.0])
    x._data.setflags(write=False)
    (x * x).sum().backward()
    equal(x.grad, [2.0, 4.0])
    assert not x._data.flags.writeable


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
