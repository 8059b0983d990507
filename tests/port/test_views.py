"""A change in place through a view changes what the view shows, or is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tinyattn import torch_names
from tinyattn.errors import InPlaceError


def test_an_element_is_a_view() -> None:
    x = torch_names.tensor([[1.0, 2.0], [3.0, 4.0]])
    x[0, 1].fill_(9.0)
    for row in x:
        row[0].mul_(2.0)
        for element in row:
            element.add_(1.0)
    assert x.tolist() == [[3, 10], [7, 5]]


def test_a_change_through_a_view_of_a_recorded_tensor_reaches_it() -> None:
    w = torch_names.ones(4, requires_grad=True)
    x = w * 3
    for view in (x.view(2, 2), x.view(2, 2).view(4), x[:], x.view(1, 4).mT):
        view.mul_(2)
    assert x.tolist() == [48, 48, 48, 48]
    x.sum().backward()
    assert w.grad.tolist() == [48, 48, 48, 48]


def test_data_shares_the_memory() -> None:
    w = torch_names.ones(4, requires_grad=True)
    rows = w.detach().view(2, 2)
    w.data += torch_names.ones(4)
    w.data[0] -= 5
    assert rows.tolist() == [[-3, 2], [2, 2]]
    product = w * 2
    with pytest.raises(InPlaceError, match="view of one that was"):
        product.data[0] += 1


def test_a_detached_copy_can_be_changed(torch: Any) -> None:
    """As in x.clone().detach(): no tensor of the graph shows the memory any more."""
    for t in (torch_names, torch):
        w = t.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        y = w.clone().detach()
        row = y[1]
        y[0] = 0
        y[0, 1] += 1
        row.mul_(2)
        y.view(-1)[0] = 9
        assert y.tolist() == [[9, 1], [6, 8]]
        assert row.tolist() == [6, 8]
        with t.no_grad():
            (w * 1).detach().t()[0].fill_(7)
        y = (w * 1).detach()
        column = y.t().detach()[0]
        column.fill_(7)
        assert y.tolist() == [[7, 2], [7, 4]]
        assert w.tolist() == [[1, 2], [3, 4]]


def test_a_graph_keeps_what_a_detached_copy_had(torch: Any) -> None:
    """PyTorch refuses this backward; the values that the graph needs are kept here."""
    w = torch_names.tensor([1.0, 2.0], requires_grad=True)
    y = w.exp()
    loss, powers = y.sum(), y.tolist()
    y = y.detach()
    y[0] = 0
    y.mul_(2)
    loss.backward()
    assert w.grad.tolist() == powers
    assert y.tolist() == [0, 2 * powers[1]]
    product = w * 2
    seen = product.detach()
    for change in (lambda: seen.mul_(2), lambda: seen.view(2).add_(1), lambda: seen[0].fill_(1)):
        with pytest.raises(InPlaceError, match="computed by a recorded"):
            change()
    assert product.tolist() == [2, 4]


def test_a_leaf_of_a_detached_copy_can_be_changed_and_stays_one(torch: Any) -> None:
    """As an attack moves x.clone().detach().requires_grad_(): once it could not be changed."""
    for t in (torch_names, torch):
        w = t.tensor([1.0, 2.0, 3.0], requires_grad=True)
        x = w.clone().detach().requires_grad_()
        (x * x).sum().backward()
        x.data += 0.5 * x.grad
        x.data.clamp_(max=5.0)
        with t.no_grad():
            x[0] = 7
            x -= 1
        x.grad.zero_()
        (x * x).sum().backward()
        assert (x.is_leaf, x.requires_grad) == (True, True)
        assert (x.tolist(), x.grad.tolist()) == ([6, 3, 4], [12, 6, 8])
        assert w.grad is None


def test_a_leaf_that_shows_a_changed_result_stays_one(torch: Any) -> None:
    """y += 1 gives x the values of y; once x no longer required gradients, and lost its own."""
    for t in (torch_names, torch):
        y = t.tensor([1.0, 2.0], requires_grad=True) * 2
        x = y.detach().requires_grad_()
        (3 * x).sum().backward()
        y += 1
        y[0] = 9.0
        assert x.is_leaf
        assert x.requires_grad
        (x * x).sum().backward()
        assert (x.tolist(), x.grad.tolist()) == ([9, 5], [21, 13])


@pytest.mark.parametrize("part", [lambda w: w.data, lambda w: w.detach()[1:], lambda w: w.data.T])
def test_a_recorded_change_of_data_reaches_the_memory(torch: Any, part: Any) -> None:
    """As LoRA merges: w.data += B @ A, where B and A are trained. The data has the graph."""
    results = []
    for library in (torch_names, torch):
        w = library.nn.Parameter(library.ones(2, 2))
        b, a = (library.tensor([[1.0], [2.0]], requires_grad=True) for _ in range(2))
        once = 3 * w
        w.data += b @ a.T
        w.data -= 3 * (b @ a.T)
        shown = part(w)
        shown *= b[: len(shown)]
        assert all([w.is_leaf, w.requires_grad, shown.requires_grad, not w.data.requires_grad])
        (shown * library.tensor([[1.5, -2.0]])).sum().backward()
        assert w.grad is a.grad is None
        once.sum().backward()
        results.append([x.tolist() for x in (w, shown, b.grad, w.grad)])
    assert results[0] == results[1]


def test_a_detached_copy_that_repeats_elements_is_not_written_to() -> None:
    """An element of it stands in several places."""
    rows = (torch_names.ones(2, requires_grad=True) * 2).expand(3, 2).detach()
    with pytest.raises(InPlaceError, match="read-only view"):
        rows[0] = 5.0
    assert rows.tolist() == [[2, 2]] * 3


def test_a_diagonal_is_a_view(torch: Any) -> None:
    """As in c.diagonal().fill_(0), recorded or not, of a matrix in any order."""
    for t in (torch_names, torch):
        x = t.zeros(3, 4)
        x.diagonal().fill_(5)
        x.diagonal(1)[0] = 7
        t.diagonal(x, -1).add_(1)
        x.t().diagonal(-2).copy_(t.tensor([8.0, 9.0]))
        assert x.tolist() == [[5, 7, 8, 0], [1, 5, 0, 9], [0, 1, 5, 0]]
        stack = t.zeros(2, 3, 3)
        stack[:, 1:].diagonal(0, 1, 2)[:, 1] = t.tensor([3.0, 4.0])
        assert stack[:, 2, 1].tolist() == [3, 4]
        assert stack.sum() == 7
        t.diag(x).mul_(0)  # a copy
        assert x[0, 0] == 5
        w = t.tensor([[1.0, 2.0], [3.0, float("nan")]], requires_grad=True)
        z = w * 2
        z.t().diagonal(1).mul_(3)
        z.diagonal()[0] += w[0, 1]
        (z * t.tensor([[1.0, 10.0], [100.0, 0.0]])).sum().backward()
        assert z.tolist()[0] == [4, 4]
        assert z[1, 0] == 18
        assert w.grad.tolist() == [[2, 21], [600, 0]]


def test_a_diagonal_of_what_is_repeated_is_not_written_to() -> None:
    rows = torch_names.ones(3).expand(3, 3)
    with pytest.raises(InPlaceError, match="read-only view"):
        rows.diagonal().fill_(2)
