"""Optimizers that a program writes by PyTorch's base class: their groups are what the program made
of them, whichever of `step` and `update` it defines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinyattn as ta
from tinyattn.torch_names.optim import Optimizer


class ByStep(Optimizer):
    """w -= rate * grad, as PyTorch's documentation writes it."""

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        super().__init__(params, defaults)

    @ta.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p -= group.get("rate", group.get("lr")) * p.grad


class ByUpdate(Optimizer):
    """The same with the `step` of tinyattn."""

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        super().__init__(params, defaults)

    def update(self, i: int, parameter: Any, grad: Any) -> None:
        group = self._groups[i]
        parameter -= group.get("rate", group.get("lr")) * grad


KINDS = [ByStep, ByUpdate]


def parameters(number: int = 2) -> list[ta.Tensor]:
    return [ta.ones(2, dtype=ta.float64, requires_grad=True) for _ in range(number)]


def moved(optimizer: Any, tensors: list[ta.Tensor]) -> list[float]:
    """By how much a step with a gradient of 1 moves each of the tensors."""
    before = [x.numpy().copy() for x in tensors]
    for x in tensors:
        x.grad = ta.ones_like(x)
    optimizer.step()
    moves = [old - x.numpy() for old, x in zip(before, tensors, strict=True)]
    assert all(np.ptp(move) == 0 for move in moves)
    return [float(move[0]) for move in moves]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["lr", "rate"])
def test_a_rate_has_the_name_that_the_program_gives_it(kind: Any, name: str) -> None:
    """Also where no setting is named lr."""
    first, second, third = parameters(3)
    optimizer = kind([{"params": [first]}, {"params": [second], name: 0.25}], {name: 0.5})
    optimizer.add_param_group({"params": [third], name: 0.125})
    assert [group[name] for group in optimizer.param_groups] == [0.5, 0.25, 0.125]
    assert moved(optimizer, [first, second, third]) == [0.5, 0.25, 0.125]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["lr", "rate"])
def test_what_is_changed_in_a_group_counts_from_the_next_step_on(kind: Any, name: str) -> None:
    tensors = parameters()
    groups = [{"params": [x], "mine": i} for i, x in enumerate(tensors)]
    optimizer = kind(groups, {name: 0.5, "kept": "a"})
    assert all(set(group) == {"params", "mine"} for group in groups)  # those of the program
    before = optimizer.param_groups
    for rates in ([0.5, 0.5], [0.25, 0.5], [0.25, 0.0], [1.0, 2.0]):
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group[name] = rate
        assert moved(optimizer, tensors) == rates
        assert moved(optimizer, tensors) == rates
        assert all(new is old for new, old in zip(optimizer.param_groups, before, strict=True))
        for i, group in enumerate(optimizer.param_groups):
            assert group["params"][0] is tensors[i]
            assert (group[name], group["kept"], group["mine"]) == (rates[i], "a", i)
    optimizer.param_groups[1]["later"] = 3  # which only the program reads
    assert moved(optimizer, tensors) == [1.0, 2.0]
    assert [group.get("later") for group in optimizer.param_groups] == [None, 3]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["lr", "rate"])
def test_groups_go_on_from_a_state_and_are_not_part_of_it(kind: Any, name: str) -> None:
    tensors = parameters()
    optimizer = kind([{"params": [x]} for x in tensors], {name: 0.5})
    optimizer.param_groups[1][name] = 0.125
    state = optimizer.state_dict()
    assert [group[name] for group in state["param_groups"]] == [0.5, 0.125]
    again = kind([{"params": [x]} for x in tensors], {name: 4.0})
    again.load_state_dict(state)
    assert moved(again, tensors) == [0.5, 0.125]
    again.param_groups[0][name] = 2.0
    assert moved(again, tensors) == [2.0, 0.125]
    assert [group[name] for group in state["param_groups"]] == [0.5, 0.125]
    assert moved(optimizer, tensors) == [0.5, 0.125]
