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


# Each schedule of one optimizer of two groups, whose rates change in its first steps.
MADE: dict[str, Any] = {
    "StepLR": lambda o: schedules.StepLR(o, 1),
    "MultiStepLR": lambda o: schedules.MultiStepLR(o, [1, 2, 3]),
    "ConstantLR": lambda o: schedules.ConstantLR(o, 0.5, 2),
    "LinearLR": lambda o: schedules.LinearLR(o, 0.5),
    "ExponentialLR": lambda o: schedules.ExponentialLR(o, 0.5),
    "PolynomialLR": lambda o: schedules.PolynomialLR(o, 9),
    "CosineAnnealingLR": lambda o: schedules.CosineAnnealingLR(o, 9),
    "CosineAnnealingWarmRestarts": lambda o: schedules.CosineAnnealingWarmRestarts(o, 2, 2),
    "OneCycleLR": lambda o: schedules.OneCycleLR(o, 1.0, 9),
    "LambdaLR": lambda o: schedules.LambdaLR(o, lambda n: 0.5**n),
    "MultiplicativeLR": lambda o: schedules.MultiplicativeLR(o, lambda n: 0.5),
    "SequentialLR": lambda o: schedules.SequentialLR(
        o, [schedules.ConstantLR(o, 0.5, 1), schedules.ExponentialLR(o, 0.5)], [2]
    ),
}
SEVERAL = {
    "SequentialLR at once": lambda o: schedules.SequentialLR(
        o, [schedules.ConstantLR(o, 0.5, 9), schedules.ConstantLR(o, 0.25, 9)], [0]
    ),
    "ChainedScheduler": lambda o: schedules.ChainedScheduler(
        [schedules.ConstantLR(o, 0.5, 1), schedules.ExponentialLR(o, 0.5)]
    ),
    "ReduceLROnPlateau": lambda o: schedules.ReduceLROnPlateau(o, patience=0),
}


def rates_of(optimizer: Any) -> list[float]:
    return [each["lr"] for each in optimizer.param_groups]


@pytest.mark.parametrize("name", [*MADE, *SEVERAL])
def test_the_last_rates_are_those_of_the_optimizer_from_the_start(name: str) -> None:
    optimizer = optim.SGD([group(ta), group(ta, lr=0.3)], lr=0.1, momentum=0.9)
    schedule = (MADE | SEVERAL)[name](optimizer)
    for _ in range(6):
        assert schedule.get_last_lr() == rates_of(optimizer)
        schedule.get_last_lr().clear()  # a list of the caller's own
        schedule.step(*[1.0] * (name == "ReduceLROnPlateau"))
    assert schedule.get_last_lr() == rates_of(optimizer)


@pytest.mark.parametrize("steps", [0, 1, 2, 4])
@pytest.mark.parametrize("error", [ValueError, TypeError, ZeroDivisionError, KeyError, OSError])
@pytest.mark.parametrize("name", MADE)
def test_a_step_that_is_refused_is_taken_later(
    name: str, error: Any, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the error is, and whichever step it is: nothing is counted by it."""
    made = []
    for _ in range(2):
        optimizer = optim.SGD([group(ta), group(ta, lr=0.3)], lr=0.1, momentum=0.9)
        made.append((optimizer, MADE[name](optimizer)))
        for _ in range(steps):
            made[-1][1].step()

    def refuse(self: Any, rates: list[float]) -> None:
        raise error

    (optimizer, schedule), (right, other) = made
    before = dict(vars(schedule)), rates_of(optimizer)
    with monkeypatch.context() as patched:
        patched.setattr(schedules.LRScheduler, "set_rates", refuse)
        for _ in range(2):
            with pytest.raises(error):
                schedule.step()
            assert (dict(vars(schedule)), rates_of(optimizer)) == before
    for _ in range(3):
        schedule.step()
        other.step()
        assert rates_of(optimizer) == rates_of(right)
        assert schedule.last_epoch == other.last_epoch


@pytest.mark.parametrize("error", [ValueError, TypeError, ZeroDivisionError, KeyError, OSError])
@pytest.mark.parametrize("name", ["LambdaLR", "MultiplicativeLR"])
def test_a_step_whose_function_fails_is_taken_later(name: str, error: Any) -> None:
    """As with a function that divides by n - 2, or reads its factors from a file or a dict."""
    optimizer, fails = optimizer_of(), [error]

    def factor(n: int) -> float:
        if n == 2 and fails:
            raise fails.pop()
        return 0.5

    schedule = getattr(schedules, name)(optimizer, factor)
    schedule.step()
    before = schedule.state_dict(), rates_of(optimizer)
    with pytest.raises(error):
        schedule.step()
    assert (schedule.state_dict(), rates_of(optimizer)) == before
    schedule.step()
    assert schedule.last_epoch == 2
    assert rates_of(optimizer) == pytest.approx([0.05 if name == "LambdaLR" else 0.025] * 2)


@pytest.mark.parametrize("milestones", [[], [1], [1, 2], [1, 2, 3]])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_schedules_have_one_milestone_less(number: int, milestones: list[int]) -> None:
    optimizer = optimizer_of()
    parts = [schedules.StepLR(optimizer, 1) for _ in range(number)]
    if len(milestones) == number - 1:
        schedules.SequentialLR(optimizer, parts, milestones)
        return
    with pytest.raises(ValueError) as raised:  # noqa: PT011  the sentence is compared as a whole
        schedules.SequentialLR(optimizer, parts, milestones)
    assert str(raised.value) == f"{number} schedules have one milestone less, got {milestones}"


@pytest.mark.parametrize("listed", [list, tuple])
def test_what_differs_between_groups_comes_in_a_list_or_a_tuple(listed: Any) -> None:
    factors = listed([lambda n: 0.5**n, lambda n: 1 / (n + 1)])
    for name, expected in [
        ("LambdaLR", [[0.1, 0.1], [0.05, 0.05], [0.025, 0.1 / 3]]),
        ("MultiplicativeLR", [[0.1, 0.1], [0.05, 0.05], [0.0125, 0.05 / 3]]),
    ]:
        optimizer = optimizer_of()
        schedule = getattr(schedules, name)(optimizer, factors)
        for rates in expected:
            assert rates_of(optimizer) == pytest.approx(rates)
            schedule.step()
        for wrong in (listed(factors[:1]), listed([*factors, abs]), listed([abs, 0.5]), {"a": abs}):
            with pytest.raises(TypeError) as raised:
                getattr(schedules, name)(optimizer, wrong)
            assert str(raised.value) == (
                f"lr_lambda is a function or a list of 2, one per group, got {wrong!r}"
            )
    optimizer = optimizer_of(momentum=0.9)
    schedules.OneCycleLR(
        optimizer, listed([1.0, 2.0]), 9,
        base_momentum=listed([0.5, 0.6]), max_momentum=listed([0.8, 0.9]),
    )  # fmt: skip
    assert rates_of(optimizer) == pytest.approx([1 / 25, 2 / 25])
    assert [each["momentum"] for each in optimizer.param_groups] == [0.8, 0.9]
    assert [each["base_momentum"] for each in optimizer.param_groups] == [0.5, 0.6]
    optimizer = optimizer_of()
    plateau = schedules.ReduceLROnPlateau(optimizer, patience=0, min_lr=listed([0.02, 0.03]))
    for _ in range(3):
        plateau.step(1.0)
    assert rates_of(optimizer) == [0.02, 0.03]


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_an_option_changes_nothing_or_is_refused(name: str) -> None:
    """What says how PyTorch computes is taken with every value; what gives other numbers is not."""
    w = ta.ones(2, requires_grad=True)
    instead = {
        "maximize": "minimize -loss", "centered": "use Adam", "amsgrad": "leave it out",
        "differentiable": "leave it out",
    }  # fmt: skip
    for option, hint in instead.items():
        with pytest.raises(ValueError) as raised:  # noqa: PT011  the whole sentence is compared
            getattr(optim, name)([w], lr=0.1, **{option: True})
        assert str(raised.value) == f"{option}=True is not there: {hint}"
    usual = getattr(optim, name)([w], lr=0.1)
    for options in (
        dict.fromkeys(instead, False), *({way: value} for way in ("foreach", "fused", "capturable")
                                         for value in (True, False, None)),
    ):  # fmt: skip
        made = getattr(optim, name)([w], lr=0.1, **options)
        assert made.state_dict() == usual.state_dict()
        assert made.defaults == usual.defaults
    with pytest.raises(TypeError, match="'quux'"):
        getattr(optim, name)([w], lr=0.1, quux=False)


@pytest.mark.parametrize("milestones", [[1, 3], [2, 4], [0, 2], [2, 2], [0, 0]], ids=str)
def test_the_schedule_of_a_step_is_that_of_the_milestones_before_it(milestones: list[int]) -> None:
    optimizer, factors = optimizer_of(), (0.5, 0.25, 0.125)
    parts = [schedules.ConstantLR(optimizer, factor, 99) for factor in factors]
    schedule = schedules.SequentialLR(optimizer, parts, milestones)
    for n in range(6):
        expected = 0.1 * factors[sum(n >= milestone for milestone in milestones)]
        assert rates_of(optimizer) == pytest.approx([expected] * 2)
        assert schedule.get_last_lr() == rates_of(optimizer)
        assert schedule.last_epoch == n
        schedule.step()


@pytest.mark.parametrize(
    ("mode", "threshold_mode", "limit"),
    [("min", "rel", 1.5), ("min", "abs", 1.75), ("max", "rel", 2.5), ("max", "abs", 2.25)],
)
def test_a_number_at_the_limit_is_no_better(mode: str, threshold_mode: str, limit: float) -> None:
    """After 2 as the best so far, with a threshold of 1/4."""
    step = 2.0**-20 if mode == "max" else -(2.0**-20)
    for number, falls in ((2.0, True), (limit, True), (limit + step, False), (limit + 1, None)):
        optimizer = optimizer_of()
        plateau = schedules.ReduceLROnPlateau(
            optimizer, mode, 0.5, 0, 0.25, threshold_mode, min_lr=[0.0, 0.1]
        )
        plateau.step(2.0)
        plateau.step(number)
        falls = mode == "min" if falls is None else falls
        assert rates_of(optimizer) == ([0.05, 0.1] if falls else [0.1, 0.1])
        assert plateau.best == (2.0 if falls else number)


@pytest.mark.parametrize("patience", [0, 1, 3])
@pytest.mark.parametrize("cooldown", [0, 1, 2])
def test_a_rate_falls_after_its_patience_and_cooldown(patience: int, cooldown: int) -> None:
    optimizer = optimizer_of(1)
    plateau = schedules.ReduceLROnPlateau(optimizer, "min", 0.5, patience, cooldown=cooldown)
    rates = []
    for _ in range(16):
        plateau.step(1.0)
        rates.append(rates_of(optimizer)[0])
    falls = [n for n in range(1, 16) if rates[n] < rates[n - 1]]
    assert falls == [*range(patience + 1, 16, patience + 1 + cooldown)]
    assert rates[-1] == 0.1 * 0.5 ** len(falls)


def test_a_small_change_of_a_rate_is_not_made() -> None:
    for eps, rate in ((0.25, 0.25), (0.125, 0.25), (0.0625, 0.125)):
        optimizer = optim.SGD([group(ta)], lr=0.25)
        plateau = schedules.ReduceLROnPlateau(optimizer, "min", 0.5, 0, eps=eps)
        plateau.step(1.0)
        plateau.step(1.0)
        assert rates_of(optimizer) == [rate]
