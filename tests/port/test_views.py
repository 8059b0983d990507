"""A change in place through a view changes what the view shows, or is refused."""

from __future__ import annotations

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
    with pytest.raises(InPlaceError, match="view of one that was"):
        (w * 2).data[0] += 1
