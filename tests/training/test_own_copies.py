"""What an object keeps of its arguments, and what it gives away, is no memory of both sides."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import rng_of, signed

import tinyattn as ta
from tinyattn import nn, optim
from tinyattn.errors import CheckpointError
from tinyattn.training import DataLoader, TrainingLoop

KINDS = [optim.SGD, optim.Adam, optim.AdamW]


def trained(kind: Any, steps: int = 2) -> optim.Optimizer:
    """An optimizer with two groups, whose arrays hold numbers of both signs."""
    options = {"momentum": 0.5} if kind is optim.SGD else {"betas": [0.5, 0.75]}
    groups = [{"params": [ta.zeros(2, 3, requires_grad=True)], "lr": 0.5}]
    groups += [{"params": [ta.zeros(n, requires_grad=True) for n in (1, 4)]}]
    optimizer = kind(groups, lr=0.25, **options)
    for step in range(steps):
        step_with(optimizer, step)
    return optimizer


def step_with(optimizer: optim.Optimizer, seed: int) -> None:
    rng = rng_of(seed)
    for parameter in optimizer.parameters:
        parameter.grad = ta.tensor(signed(rng, *parameter.shape)).float()
    optimizer.step()


def plain(value: Any) -> Any:
    """A state as lists and numbers, which later changes do not reach."""
    if isinstance(value, (ta.Tensor, np.ndarray)):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(x) for key, x in value.items()}
    return [plain(x) for x in value] if isinstance(value, (list, tuple)) else value


def spoil(value: Any) -> None:
    """Change all that can be changed in a state: numbers of Tensors, entries of dicts and lists."""
    if isinstance(value, ta.Tensor):
        with ta.no_grad():
            value[...] = 7
    elif isinstance(value, dict):
        for x in [*value.values()]:
            spoil(x)
        value["spoilt"] = 1
    elif isinstance(value, list):
        for x in value:
            spoil(x)
        value.append(1)


# Optimizers and schedules


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_that_was_given_away_may_be_changed(kind: Any) -> None:
    optimizer = trained(kind)
    before = plain(optimizer.state_dict())
    spoil(optimizer.state_dict())
    assert plain(optimizer.state_dict()) == before
    state = optimizer.state_dict()
    for step in range(2):
        step_with(optimizer, step + 5)
    optimizer.lr = 0.125
    assert plain(state) == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_that_was_loaded_may_be_changed_and_loaded_again(kind: Any) -> None:
    """Two optimizers that went on from one state would move each other's arrays."""
    state = trained(kind).state_dict()
    before = plain(state)
    one, two = trained(kind, 0), trained(kind, 0)
    for optimizer in (one, two):
        optimizer.load_state_dict(state)
    step_with(one, 5)
    one.lr = 0.125
    assert plain(state) == plain(two.state_dict()) == before
    spoil(state)
    assert plain(two.state_dict()) == before


@pytest.mark.parametrize("kind", KINDS)
def test_groups_and_lists_of_the_caller_may_be_changed(kind: Any) -> None:
    first, second = (ta.zeros(n, requires_grad=True) for n in (1, 2))
    parameters = [first]
    group: dict[str, Any] = {"params": parameters, "lr": 0.5}
    groups = [group]
    optimizer = kind(groups)
    later: dict[str, Any] = {"params": [second], "lr": 0.25}
    optimizer.add_param_group(later)
    before = plain(optimizer.state_dict())
    assert group == {"params": parameters, "lr": 0.5}
    assert later == {"params": [second], "lr": 0.25}
    parameters.append(second)
    groups.clear()
    for changed in (group, later):
        changed |= {"lr": 7.0, "other": 1}
        changed["params"].clear()
    step_with(optimizer, 0)
    found = plain(optimizer.state_dict())
    assert (found["groups"], found["steps"]) == (before["groups"], [1, 1])
    assert (first.tolist(), second.tolist()) != ([0.0], [0.0, 0.0])


@pytest.mark.parametrize("name", ["cosine", "warmup", "lambda"])
def test_the_state_of_a_schedule_is_a_copy_both_ways(name: str) -> None:
    make: Any = {
        "cosine": lambda o: optim.CosineSchedule(o, 9, 2),
        "warmup": lambda o: optim.WarmupSchedule(o, 8, 3),
        "lambda": lambda o: optim.LambdaLR(o, lambda n: 0.5**n),
    }[name]
    schedule, other = make(trained(optim.SGD)), make(trained(optim.SGD))
    schedule.step()
    state = schedule.state_dict()
    before = copy.deepcopy(state)
    other.load_state_dict(state)
    rates = other.get_last_lr()
    schedule.step()
    assert state == before
    spoil(state)
    assert other.state_dict() == before
    assert other.get_last_lr() == rates
    spoil(other.state_dict())
    assert other.state_dict() == before


# Loops


def test_a_loop_keeps_the_parts_that_it_was_made_with(tmp_path: Path) -> None:
    """Those that come into the dict later were never checked, and have no names of their own."""
    model, optimizer = nn.Linear(2, 1), trained(optim.SGD)
    parts: dict[str, Any] = {"model": model, "optimizer": optimizer}
    loop = TrainingLoop(tmp_path / "run", parts)
    parts["best"] = nn.Linear(5, 5)
    parts["model"] = nn.Linear(7, 7)
    del parts["optimizer"]
    loop.measured(0.5)
    loop.save()
    state = ta.load(tmp_path / "run")
    assert {name: x.shape for name, x in state["model"].items()} == {"weight": (1, 2), "bias": (1,)}
    assert {name: x.shape for name, x in state["best"].items()} == {"weight": (1, 2), "bias": (1,)}
    assert plain(state["optimizer"]) == plain(optimizer.state_dict())
    loop.parts["more"] = model
    assert "more" not in parts


def test_a_loop_that_was_restored_goes_on_without_changing_the_checkpoint(tmp_path: Path) -> None:
    def new_loop() -> TrainingLoop:
        return TrainingLoop(tmp_path / "run", {"model": nn.Linear(2, 1)})

    loop = new_loop()
    for loss in (0.5, 0.25):
        loop.record(loss)
        loop.measured(loss)
    loop.save()
    state = ta.load(tmp_path / "run")
    before = plain(state)
    one, two = new_loop(), new_loop()
    for other in (one, two):
        other.restore(state)
    one.record(0.125)
    one.measured(0.125)
    spoil(one.parts["model"].state_dict())
    assert plain(state) == before
    assert (two.losses, two.held_out) == ([0.5, 0.25], [[1, 0.5], [2, 0.25]])
    del state["losses"]
    with pytest.raises(CheckpointError, match=r"a checkpoint of this loop has \['losses'\]"):
        two.restore(state)


class Shared:
    """A part whose state is its own memory, as that of a program's own object may be."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {"x": ta.zeros(2), "list": [1]}

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state["x"][...] = state["x"]
        self.state["list"][:] = state["list"]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_part_whose_state_is_its_memory_is_as_before_if_another_is_refused(
    place: int, tmp_path: Path
) -> None:
    kept, model = Shared(), nn.Linear(2, 1)
    parts = [("kept", kept), ("sgd", optim.SGD(model.parameters()))]
    parts.insert(place, ("model", model))
    loop = TrainingLoop(tmp_path / "run", dict(parts))
    loop.save()
    state = ta.load(tmp_path / "run")
    weight = model.weight.tolist()
    kept.state["x"][...] = 5
    kept.state["list"].append(2)
    with ta.no_grad():
        model.weight[...] = 3.0
    with pytest.raises(CheckpointError, match=r"not a state_dict\(\) of this SGD"):
        loop.restore(state | {"sgd": {}})
    assert (plain(kept.state), model.weight.tolist()) == ({"x": [5, 5], "list": [1, 2]}, [[3, 3]])
    loop.restore(state)
    assert (plain(kept.state), model.weight.tolist()) == ({"x": [0, 0], "list": [1]}, weight)


# Loaders


DATA: dict[str, Any] = {
    "columns": (ta.arange(5), np.arange(5) * 0.5, ta.arange(10).reshape(5, 2)),
    "one column": (ta.arange(5),),
    "tuples": [(i, i / 2) for i in range(5)],
    "lists": [[i, i / 2] for i in range(5)],
    "dicts": [{"a": i} for i in range(5)],
    "numbers": list(range(5)),
    "texts": ["a", "bc", "", "d", "e"],
    "a Tensor": ta.arange(5),
    "an array": np.arange(5),
}


@pytest.mark.parametrize("size", [1, 2, 5, 7])
@pytest.mark.parametrize("name", DATA)
def test_a_collate_fn_gets_a_new_list_of_the_samples(name: str, size: int) -> None:
    """Rows of columns are tuples, as in PyTorch; other samples are as the data give them."""
    data, batches = DATA[name], []

    def noted(samples: list[Any]) -> int:
        assert type(samples) is list
        batches.append(list(samples))
        samples.clear()
        return len(batches)

    for _ in range(2):
        batches.clear()
        assert [*DataLoader(data, size, collate_fn=noted)] == [
            *range(1, (5 + size - 1) // size + 1)
        ]
        assert [len(batch) for batch in batches] == [
            len(range(i, min(i + size, 5))) for i in range(0, 5, size)
        ]
        samples = [sample for batch in batches for sample in batch]
        rows = [*zip(*data, strict=True)] if isinstance(data, tuple) else data
        for sample, row in zip(samples, rows, strict=True):
            assert isinstance(sample, ta.Tensor if isinstance(row, ta.Tensor) else type(row))
            assert plain(sample) == plain(row)
            if isinstance(data, tuple):
                assert [type(field) for field in sample] == [ta.Tensor] * len(data)
