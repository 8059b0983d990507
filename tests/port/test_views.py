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


def test_a_detached_copy_that_repeats_elements_is_not_written_to() -> None:
    """An element of it stands in several places."""
    rows = (torch_names.ones(2, requires_grad=True) * 2).expand(3, 2).detach()
    with pytest.raises(InPlaceError, match="read-only view"):
        rows[0] = 5.0
    assert rows.tolist() == [[2, 2]] * 3
