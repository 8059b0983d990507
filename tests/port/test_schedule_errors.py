"""Schedules of torch_names: an error names the argument that does not fit, and several in one."""

from __future__ import annotations

from typing import Any

import pytest

import tinyattn as ta
from tinyattn.errors import CheckpointError
from tinyattn.torch_names import optim
from tinyattn.torch_names.optim import lr_scheduler as schedules


def group(space: Any, **settings: Any) -> dict[str, Any]:
    return {"params": [space.ones(2, requires_grad=True)], **settings}


def optimizer_of(number: int = 2, **settings: Any) -> Any:
    return optim.SGD([group(ta) for _ in range(number)], lr=0.1, **settings)


ONE_CYCLE = {"max_lr": 1.0, "total_steps": 9, "cycle_momentum": False}


@pytest.mark.parametrize(
    ("name", "settings", "error", "message"),
    [
        ("ConstantLR", {"factor": 0.0}, ValueError, "^factor must be a number >= 1e-300, got 0.0"),
        ("ConstantLR", {"factor": 1.5}, ValueError, "^factor lies between 0 and 1, got 1.5"),
        ("LinearLR", {"start_factor": 0.0}, ValueError, "^start_factor must be a number >= 1e-300"),
        ("LinearLR", {"start_factor": -1}, ValueError, "^start_factor lies between 0 and 1"),
        ("LinearLR", {"end_factor": 1.5}, ValueError, "^end_factor lies between 0 and 1, got 1.5"),
        ("LinearLR", {"total_iters": 0}, ValueError, "^total_iters must be an integer >= 1, got 0"),
        ("PolynomialLR", {"total_iters": 0}, ValueError, "^total_iters must be an integer >= 1"),
        ("StepLR", {"step_size": 0.5}, ValueError, "^step_size must be a number >= 1, got 0.5"),
        ("StepLR", {"step_size": 2, "gamma": -1}, ValueError, "^gamma must be a number >= 0"),
        ("ExponentialLR", {"gamma": -0.1}, ValueError, "^gamma must be a number >= 0, got -0.1"),
        ("CosineAnnealingLR", {"T_max": 0.5}, ValueError, "^T_max must be a number >= 1, got 0.5"),
        ("CosineAnnealingWarmRestarts", {"T_0": 0}, ValueError, "^T_0 must be an integer >= 1"),
        ("CosineAnnealingWarmRestarts", {"T_0": 2, "T_mult": 0}, ValueError,
         "^T_mult must be an integer >= 1, got 0"),
        ("OneCycleLR", {**ONE_CYCLE, "total_steps": 0}, ValueError, "^total_steps must be an int"),
        ("OneCycleLR", {**ONE_CYCLE, "total_steps": None, "epochs": 3}, ValueError,
         r"^steps_per_epoch \(or else total_steps\) must be an integer >= 1, got None"),
        ("OneCycleLR", {**ONE_CYCLE, "total_steps": None, "steps_per_epoch": 3}, ValueError,
         r"^epochs \(or else total_steps\) must be an integer >= 1, got None"),
        ("OneCycleLR", {**ONE_CYCLE, "pct_start": 2}, ValueError, "^pct_start lies between 0"),
        ("OneCycleLR", {**ONE_CYCLE, "div_factor": 0.0}, ValueError, "^div_factor must be a n"),
        ("OneCycleLR", {**ONE_CYCLE, "final_div_factor": 0.0}, ValueError,
         "^final_div_factor must be a number >= 1e-300, got 0.0"),
        ("OneCycleLR", {**ONE_CYCLE, "max_lr": [1.0]}, ValueError, "^max_lr is a number or 2, got"),
        ("OneCycleLR", {**ONE_CYCLE, "max_momentum": [1.0]}, ValueError,
         "^max_momentum is a number or 2, got"),
        ("OneCycleLR", {**ONE_CYCLE, "base_momentum": "a"}, ValueError,
         "^base_momentum must be a number >= 0, got 'a'"),
        ("OneCycleLR", {**ONE_CYCLE, "anneal_strategy": "log"}, ValueError, "^anneal_strategy mu"),
        ("SequentialLR", {"schedulers": 3, "milestones": []}, TypeError,
         "^schedulers takes a list, got int"),
    ],
)  # fmt: skip
def test_an_error_names_the_argument(
    name: str, settings: dict[str, Any], error: Any, message: str
) -> None:
    with pytest.raises(error, match=message):
        getattr(schedules, name)(optimizer_of(), **settings)


def test_milestones_are_a_list() -> None:
    optimizer = optimizer_of()
    two = [schedules.StepLR(optimizer, 1), schedules.StepLR(optimizer, 2)]
    with pytest.raises(TypeError, match=r"^milestones takes a list, got int"):
        schedules.SequentialLR(optimizer, two, 3)


@pytest.mark.parametrize("with_first_rate", [0, 1])
def test_a_later_epoch_needs_the_first_rate_of_every_group(
    torch: Any, with_first_rate: int
) -> None:
    for space, made_of in ((ta, optim), (torch, torch.optim)):
        groups = [group(space), group(space)]
        groups[with_first_rate]["initial_lr"] = 0.5
        optimizer = made_of.SGD(groups, lr=0.1)
        with pytest.raises((ValueError, KeyError), match="initial_lr"):
            made_of.lr_scheduler.StepLR(optimizer, 2, last_epoch=3)
        assert [each["lr"] for each in optimizer.param_groups] == [0.1, 0.1]


@pytest.mark.parametrize(
    ("name", "settings", "steps"),
    [
        ("LambdaLR", {"lr_lambda": lambda n: 0.5}, 0),
        ("MultiplicativeLR", {"lr_lambda": lambda n: 0.5}, 0),
        ("CosineAnnealingLR", {"T_max": 2}, 2),
        ("CosineAnnealingWarmRestarts", {"T_0": 2}, 0),
        ("OneCycleLR", {**ONE_CYCLE}, 0),
    ],
)
def test_a_group_that_is_added_needs_a_new_schedule(
    name: str, settings: dict[str, Any], steps: int
) -> None:
    optimizer = optimizer_of(2)
    schedule = getattr(schedules, name)(optimizer, **settings)
    for _ in range(steps):
        schedule.step()
    optimizer.add_param_group(group(ta))
    before = schedule.last_epoch, [each["lr"] for each in optimizer.param_groups]
    with pytest.raises(ValueError, match=r"was made for 2 parameter groups.* make a new schedule"):
        schedule.step()
    assert before == (schedule.last_epoch, [each["lr"] for each in optimizer.param_groups])


def test_the_text_of_a_schedule_counts_the_rates_that_were_set() -> None:
    schedule = schedules.ExponentialLR(optimizer_of(1), 0.5)
    assert schedule.step_count == 1
    assert repr(schedule) == "ExponentialLR(step_count=1, lr=[0.1])"
    schedule.step()
    schedule.step()
    assert schedule.step_count == 3
    assert repr(schedule) == "ExponentialLR(step_count=3, lr=[0.025])"


@pytest.mark.parametrize("cycle_momentum", [True, False])
def test_one_cycle_leaves_pytorchs_settings_in_a_group(torch: Any, cycle_momentum: bool) -> None:
    found = []
    for space, made_of in ((ta, optim), (torch, torch.optim)):
        optimizer = made_of.SGD([group(space)], lr=0.1, momentum=0.9)
        made_of.lr_scheduler.OneCycleLR(
            optimizer, 1.0, total_steps=9, cycle_momentum=cycle_momentum
        )
        names = ("initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum", "momentum")
        found.append({n: x for n, x in optimizer.param_groups[0].items() if n in names})
    assert found[0] == pytest.approx(found[1])


def test_schedules_side_by_side_count_their_steps() -> None:
    optimizer = optimizer_of(1)
    chained = schedules.ChainedScheduler(
        [schedules.StepLR(optimizer, 2), schedules.ConstantLR(optimizer, 0.5, 1)]
    )
    assert (chained.last_epoch, chained.step_count) == (0, 1)
    for n in (1, 2, 3):
        chained.step()
        assert (chained.last_epoch, chained.step_count) == (n, n + 1)
        assert chained.get_last_lr() == [each["lr"] for each in optimizer.param_groups]
    assert chained.get_last_lr() == pytest.approx([0.01])


@pytest.mark.parametrize("kind", ["ChainedScheduler", "SequentialLR"])
def test_no_schedules_are_refused(kind: str) -> None:
    given = ([],) if kind == "ChainedScheduler" else (optimizer_of(), [], [])
    with pytest.raises(ValueError, match=f"^{kind} takes schedules of one optimizer, .* got None"):
        getattr(schedules, kind)(*given)


@pytest.mark.parametrize("kind", ["ChainedScheduler", "SequentialLR"])
def test_a_state_of_one_schedule_is_no_state_of_several(kind: str) -> None:
    optimizer = optimizer_of(1)
    two = [schedules.StepLR(optimizer, 2), schedules.ExponentialLR(optimizer, 0.5)]
    several: Any = (
        schedules.ChainedScheduler(two)
        if kind == "ChainedScheduler"
        else schedules.SequentialLR(optimizer, two, [2])
    )
    state = several.state_dict()
    for wrong in (two[0].state_dict(), {**state, "more": 1}, [], {"_schedulers": []}):
        with pytest.raises(CheckpointError, match=f"a {kind} has "):
            several.load_state_dict(wrong)
    assert several.state_dict() == state


@pytest.mark.parametrize("milestones", [[1], [2], [4]])
def test_a_second_schedule_begins_at_its_milestone(torch: Any, milestones: list[int]) -> None:
    rates = []
    for space, made_of in ((ta, optim), (torch, torch.optim)):
        optimizer = made_of.SGD([group(space)], lr=0.1)
        found = made_of.lr_scheduler
        parts = [found.ConstantLR(optimizer, 0.1, 9), found.ExponentialLR(optimizer, 0.5)]
        schedule = found.SequentialLR(optimizer, parts, milestones)
        rates.append([optimizer.param_groups[0]["lr"]])
        for _ in range(6):
            optimizer.step()
            schedule.step()
            rates[-1].append(optimizer.param_groups[0]["lr"])
            assert schedule.get_last_lr() == [rates[-1][-1]]
    assert rates[0] == pytest.approx(rates[1])


def test_a_plateau_counts_its_epochs(torch: Any) -> None:
    for space, made_of in ((ta, optim), (torch, torch.optim)):
        optimizer = made_of.SGD([group(space)], lr=0.1)
        plateau = made_of.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
        epochs = [plateau.last_epoch]
        for metric in (1.0, 0.5, 0.7):
            plateau.step(metric)
            epochs.append(plateau.last_epoch)
        assert epochs == [0, 1, 2, 3]
        assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01)


def test_an_option_that_rmsprop_lacks_is_named() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'beta'"):
        optim.RMSprop([ta.ones(2, requires_grad=True)], beta=0.9)
    with pytest.raises(ValueError, match=r"^alpha must be a number >= 0, got -1"):
        optim.RMSprop([ta.ones(2, requires_grad=True)], alpha=-1)


def test_rmsprop_keeps_a_velocity_with_momentum_alone() -> None:
    for momentum, names in ((0.0, {"v.0"}), (0.5, {"v.0", "velocity.0"})):
        x = ta.ones(2, requires_grad=True)
        optimizer = optim.RMSprop([x], momentum=momentum)
        (x * x).sum().backward()
        optimizer.step()
        assert set(optimizer.state_dict()["arrays"]) == names
