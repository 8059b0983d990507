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


class Summing(Optimizer):
    """It adds up the gradients of each parameter in place, and keeps a list of the steps."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 1.0})

    @ta.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(total=ta.zeros_like(p), array=np.zeros(2), steps=[], part={"n": 0})
                state["total"] += p.grad
                state["array"] += 1
                state["steps"].append(len(state["steps"]))
                state["part"]["n"] += 1


def contents(state: Any) -> Any:
    """The state of each parameter in numbers of its own."""
    return {
        i: (x["total"].tolist(), x["array"].tolist(), list(x["steps"]), dict(x["part"]))
        for i, x in state.items()
    }


def test_a_state_stays_what_it_was_whoever_goes_on_from_it() -> None:
    """Whatever a program keeps there: tensors, arrays, lists and dicts."""
    first, second = parameters(), parameters()
    optimizer, other = Summing(first), Summing(second)

    def go_on(one: Summing, tensors: list[ta.Tensor]) -> Any:
        for i, x in enumerate(tensors):
            x.grad = ta.full_like(x, 1.0 + i)
        one.step()
        return contents({i: one.state[x] for i, x in enumerate(tensors)})

    assert optimizer.state_dict()["state"] == {}
    go_on(optimizer, first)
    saved = optimizer.state_dict()
    before = contents(saved["state"])
    assert before == {i: ([1.0 + i] * 2, [1.0] * 2, [0], {"n": 1}) for i in range(2)}
    twice = {i: ([2 * (1.0 + i)] * 2, [2.0] * 2, [0, 1], {"n": 2}) for i in range(2)}
    assert go_on(optimizer, first) == twice
    assert contents(saved["state"]) == before
    for one, tensors in ((other, second), (optimizer, first)):
        one.load_state_dict(saved)
        assert go_on(one, tensors) == twice
        assert contents(saved["state"]) == before
        one.param_groups[0]["lr"] = 9.0
        assert saved["param_groups"][0]["lr"] == 1.0
    one_alone = Summing(alone := parameters(3))
    alone[1].grad = ta.ones_like(alone[1])
    one_alone.state[alone[1]]["kept"] = 3  # a state of one parameter has its number
    assert one_alone.state_dict()["state"] == {1: {"kept": 3}}
