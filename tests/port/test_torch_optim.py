"""torch_names.optim: the same rates and the same weights as PyTorch, step by step."""

from __future__ import annotations

import collections
import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import optim as plain
from tinyattn import torch_names
from tinyattn.errors import CheckpointError, ShapeError
from tinyattn.torch_names import optim
from tinyattn.torch_names.optim import lr_scheduler
from tinyattn.torch_names.optim.lr_scheduler import LambdaLR, LRScheduler, StepLR
from tinyattn.training import TrainingLoop


def both(torch: Any, kind: str = "SGD", **settings: Any) -> tuple[Any, Any]:
    """An optimizer of two groups here, and PyTorch's."""
    ours = [ta.ones(2, dtype=ta.float64, requires_grad=True) for _ in range(2)]
    theirs = [torch.ones(2, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    made = []
    for space, (first, second) in ((optim, ours), (torch.optim, theirs)):
        groups = [{"params": [first]}, {"params": [second], "lr": 0.3}]
        made.append(getattr(space, kind)(groups, lr=0.1, **settings))
    return made[0], made[1]


def values_of(optimizer: Any, name: str) -> list[Any]:
    return [group[name] for group in optimizer.param_groups]


class FromRateToRate(LRScheduler):
    def get_lr(self) -> list[float]:
        return [rate * 0.9 for rate in self.get_last_lr()]


SCHEDULES: list[tuple[str, dict[str, Any]]] = [
    ("StepLR", {"step_size": 3}),
    ("StepLR", {"step_size": 2, "gamma": 0.7, "last_epoch": -1}),
    ("StepLR", {"step_size": 1.0, "gamma": 0.95}),  # as PyTorch's own tutorial writes it
    ("StepLR", {"step_size": 4}),
    ("MultiStepLR", {"milestones": [5, 2, 5, 9], "gamma": 0.5}),
    ("MultiStepLR", {"milestones": [3, 4, 5], "gamma": 0.5}),
    ("LinearLR", {}),
    ("LinearLR", {"start_factor": 0.1, "end_factor": 0.8, "total_iters": 7}),
    ("ExponentialLR", {"gamma": 0.9}),
    ("CosineAnnealingLR", {"T_max": 8}),
    ("CosineAnnealingLR", {"T_max": 5, "eta_min": 0.01}),
    ("CosineAnnealingWarmRestarts", {"T_0": 3}),
    ("CosineAnnealingWarmRestarts", {"T_0": 2, "T_mult": 2, "eta_min": 0.01}),
    ("ConstantLR", {"factor": 0.2, "total_iters": 6}),
    ("ConstantLR", {"factor": 0.2, "total_iters": 4}),  # at which test another schedule begins
    ("LinearLR", {"start_factor": 0.1, "total_iters": 4}),
    ("PolynomialLR", {"total_iters": 4}),
    ("PolynomialLR", {"total_iters": 9, "power": 1.5}),
    ("MultiplicativeLR", {"lr_lambda": [lambda n: 0.9, lambda n: n / (n + 1)]}),
    ("OneCycleLR", {"max_lr": 0.5, "total_steps": 25}),
    ("OneCycleLR", {"max_lr": 0.5, "total_steps": 25, "cycle_momentum": False}),
    ("OneCycleLR", {"max_lr": 0.5, "total_steps": 25, "base_momentum": 0.6,
                    "max_momentum": [0.8, 0.7]}),
    ("OneCycleLR", {"max_lr": 0.5, "total_steps": 25, "epochs": 3, "steps_per_epoch": 7}),
    ("OneCycleLR", {"max_lr": [0.5, 0.2], "epochs": 3, "steps_per_epoch": 7, "three_phase": True}),
    ("OneCycleLR", {"max_lr": 0.5, "total_steps": 20, "anneal_strategy": "linear",
                    "pct_start": 0.5, "div_factor": 4.0, "final_div_factor": 10.0}),
    ("LambdaLR", {"lr_lambda": lambda n: min((n + 1) ** -0.5, (n + 1) * 8**-1.5)}),
    ("LambdaLR", {"lr_lambda": [lambda n: 0.9**n, lambda n: 1 / (n + 1)]}),
]  # fmt: skip


def test_milestones_may_come_one_after_another(torch: Any) -> None:
    ours, theirs = both(torch, momentum=0.9)
    mine = lr_scheduler.MultiStepLR(ours, (n for n in (2, 5, 2)), 0.5)
    right = torch.optim.lr_scheduler.MultiStepLR(theirs, (n for n in (2, 5, 2)), 0.5)
    for _ in range(7):
        assert values_of(ours, "lr") == pytest.approx(values_of(theirs, "lr"), rel=1e-12)
        theirs.step()
        ours.step()
        mine.step()
        right.step()
    assert mine.state_dict()["milestones"] == [2, 5, 2]


@pytest.mark.parametrize(("name", "settings"), SCHEDULES)
def test_schedules_give_pytorchs_rates(torch: Any, name: str, settings: dict[str, Any]) -> None:
    ours, theirs = both(torch, momentum=0.9)
    mine = getattr(lr_scheduler, name)(ours, **settings)
    right = getattr(torch.optim.lr_scheduler, name)(theirs, **settings)
    for n in range(20):
        for each in ("lr", "momentum"):
            assert values_of(ours, each) == pytest.approx(values_of(theirs, each), rel=1e-12)
        assert mine.get_last_lr() == pytest.approx(right.get_last_lr(), rel=1e-12)
        assert mine.last_epoch == right.last_epoch == n
        if n < 19:
            theirs.step()
            ours.step()
            mine.step()
            right.step()


@pytest.mark.filterwarnings("ignore:The epoch parameter", "ignore:Detected call of")
@pytest.mark.parametrize(("name", "settings"), SCHEDULES)
def test_a_step_to_an_epoch_gives_pytorchs_rates(torch: Any, name: str, settings: Any) -> None:
    """Over several restarts, back, and between two steps where PyTorch's rates are for that."""
    ours, theirs = both(torch, momentum=0.9)
    mine = getattr(lr_scheduler, name)(ours, **settings)
    right = getattr(torch.optim.lr_scheduler, name)(theirs, **settings)
    parts = [7.25, 0.5, 13.9] * (name == "CosineAnnealingWarmRestarts")
    for epoch in (None, 4, None, 17, None, 0, 11, *parts, None):
        for schedule in (mine, right):
            schedule.step(*[] if epoch is None else [epoch])
        for each in ("lr", "momentum"):
            assert values_of(ours, each) == pytest.approx(values_of(theirs, each), rel=1e-11)


@pytest.mark.parametrize(("name", "settings"), SCHEDULES)
def test_a_schedule_may_begin_at_the_epoch_of_a_saved_optimizer(
    torch: Any, name: str, settings: dict[str, Any]
) -> None:
    """Its groups have the rates that they had then, and those from before the first schedule."""
    made = []
    for optimizer, space in zip(
        both(torch, momentum=0.9), (lr_scheduler, torch.optim.lr_scheduler), strict=True
    ):
        schedule = getattr(space, name)(optimizer, **settings)
        optimizer.step()
        for _ in range(3):
            schedule.step()
        if "T_mult" in settings and space is not lr_scheduler:
            schedule.step()  # because there its next rate is that of a restart, which is not due
        else:
            schedule = getattr(space, name)(optimizer, **settings | {"last_epoch": 3})
        made.append([])
        for _ in range(6):
            rates = values_of(optimizer, "lr"), values_of(optimizer, "momentum")
            made[-1].append((schedule.last_epoch, *rates[0], *rates[1]))
            schedule.step()
    np.testing.assert_allclose(*made, rtol=1e-12)


def test_one_cycle_has_its_steps_and_no_more(torch: Any) -> None:
    ours, theirs = both(torch, momentum=0.9)
    mine = lr_scheduler.OneCycleLR(ours, 0.5, total_steps=6)
    right = torch.optim.lr_scheduler.OneCycleLR(theirs, 0.5, total_steps=6)
    for _ in range(6):
        theirs.step()
        mine.step()
        right.step()
        assert values_of(ours, "lr") == pytest.approx(values_of(theirs, "lr"), rel=1e-11)
    for schedule in (mine, right):
        with pytest.raises(ValueError, match=r"6|7"):
            schedule.step()


def test_an_optimizer_takes_a_list_of_parameters(torch: Any) -> None:
    """As a learner whose `parameters()` returns its nn.ParameterList; a Sequential is refused."""
    for t in (torch_names, torch):
        weights = t.nn.ParameterList([t.nn.Parameter(t.ones(2)), t.nn.Parameter(t.ones(1))])
        optimizer = t.optim.SGD(weights, lr=0.5)
        sum((w * w).sum() for w in weights).backward()
        optimizer.step()
        assert [w.tolist() for w in weights] == [[0.0, 0.0], [0.0]]
    layers = torch_names.nn.Sequential(torch_names.nn.Linear(2, 2))
    for wrong in (layers, [layers], layers[0], ta.ones(2)):
        with pytest.raises(TypeError, match="an optimizer takes parameters, not the module"):
            torch_names.optim.SGD(wrong, lr=0.5)


def test_alpha_is_checked() -> None:
    """A negative one gave NaN in every parameter, without a word."""
    with pytest.raises(ValueError, match="alpha must be a number >= 0"):
        torch_names.optim.RMSprop([ta.ones(2, requires_grad=True)], alpha=-0.5)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"max_lr": 0.9},
        {"final_div_factor": 10.0},
        {"base_momentum": 0.5, "max_momentum": 0.6},
        {"max_lr": 0.9, "cycle_momentum": False},
    ],
)
def test_several_one_cycles_share_the_limits_of_the_last(torch: Any, changed: dict) -> None:
    """They are in the groups of the optimizer."""
    ours, theirs = both(torch, momentum=0.9)
    pairs = []
    for settings in ({"max_lr": 0.5}, {"max_lr": 0.5} | changed):
        mine = lr_scheduler.OneCycleLR(ours, total_steps=9, **settings)
        right = torch.optim.lr_scheduler.OneCycleLR(theirs, total_steps=9, **settings)
        pairs.append((mine, right))
    theirs.step()
    for i in (0, 0, 1, 0, 1, 1, 0, 1):
        for schedule in pairs[i]:
            schedule.step()
        for name in ("lr", "momentum"):
            found, wanted = values_of(ours, name), values_of(theirs, name)
            assert found == pytest.approx(wanted, rel=1e-11)


def test_a_state_from_before_one_cycle_has_not_its_limits() -> None:
    """In PyTorch the next step ends in a KeyError."""
    optimizer = optim.SGD([ta.ones(2, requires_grad=True)], lr=0.1, momentum=0.9)
    state = optimizer.state_dict()
    schedule = lr_scheduler.OneCycleLR(optimizer, 0.5, 9)
    optimizer.load_state_dict(state)
    with pytest.raises(ValueError, match="a state from before its OneCycleLR"):
        schedule.step()


@pytest.mark.parametrize("parts", [(0,), (1,), (0, 1)])
def test_one_cycle_goes_on_with_a_state_of_the_optimizer_or_of_its_own(
    torch: Any, parts: tuple[int, ...]
) -> None:
    """Of another max_lr: the state of the optimizer decides."""
    makers = lr_scheduler.OneCycleLR, torch.optim.lr_scheduler.OneCycleLR
    firsts = [(o, m(o, 1.0, 9)) for m, o in zip(makers, both(torch, momentum=0.9), strict=True)]
    laters = [(o, m(o, 3.0, 9)) for m, o in zip(makers, both(torch, momentum=0.9), strict=True)]
    for optimizer, schedule in firsts:
        for _ in range(3):
            optimizer.step()
            schedule.step()
    for first, later in zip(firsts, laters, strict=True):
        for i in parts:
            later[i].load_state_dict(first[i].state_dict())
    for _ in range(4):
        for optimizer, schedule in laters:
            optimizer.step()
            schedule.step()
        found, wanted = (values_of(optimizer, "lr") for optimizer, _ in laters)
        assert found == pytest.approx(wanted, rel=1e-11)


def test_a_product_of_factors_has_no_parts_of_steps() -> None:
    optimizer = optim.SGD([ta.ones(1, requires_grad=True)], lr=1.0)
    schedule = lr_scheduler.ExponentialLR(optimizer, 0.9)
    with pytest.raises(ShapeError, match=r"epoch must be an integer >= 0, got 0\.5"):
        schedule.step(0.5)
    assert (schedule.last_epoch, optimizer.param_groups[0]["lr"]) == (0, 1.0)


PLATEAUS: list[dict[str, Any]] = [
    {"patience": 1},
    {"patience": 2, "factor": 0.5, "cooldown": 2},
    {"patience": 0, "mode": "max", "threshold": 0.1},
    {"patience": 0, "mode": "max", "threshold": 0.3, "threshold_mode": "abs"},
    {"patience": 0, "threshold": 0.3, "threshold_mode": "abs", "min_lr": [0.02, 0.01]},
    {"patience": 0, "min_lr": 0.05},
    {"patience": 0, "eps": 0.05},
    # At the limits themselves: a change of eps, and numbers that are better by the threshold.
    {"patience": 0, "factor": 0.5, "eps": 0.05},
    {"patience": 0, "threshold": 1.0, "threshold_mode": "abs"},
    {"patience": 0, "mode": "max", "threshold": 1.0, "threshold_mode": "abs"},
    {"patience": 1, "threshold": 0.0},
]


@pytest.mark.parametrize("settings", PLATEAUS)
def test_rates_fall_on_a_plateau_as_pytorchs(torch: Any, settings: dict[str, Any]) -> None:
    """Over numbers that fall, rise, stay, are negative, and of which one is NaN."""
    numbers = [3, 2, 2, 1.9, 1.9, 2.5, float("nan"), 1, -1, -1.05, -0.5, -2, 5, 5, 6, 4]
    ours, theirs = both(torch)
    mine = lr_scheduler.ReduceLROnPlateau(ours, **settings)
    right = torch.optim.lr_scheduler.ReduceLROnPlateau(theirs, **settings)
    rates = []
    for n, number in enumerate(numbers):
        mine.step(ta.tensor(number, dtype=ta.float64) if n % 2 else number)
        right.step(number)
        assert values_of(ours, "lr") == pytest.approx(values_of(theirs, "lr"), rel=1e-12)
        assert mine.get_last_lr() == pytest.approx(right.get_last_lr(), rel=1e-12)
        assert (mine.best, mine.num_bad_epochs) == (right.best, right.num_bad_epochs)
        rates.append(values_of(ours, "lr"))
        if n == 6:  # it goes on from its state
            other = lr_scheduler.ReduceLROnPlateau(ours, **settings)
            other.load_state_dict(mine.state_dict())
            mine = other
    assert rates[0] != rates[-1]


def test_a_plateau_refuses_what_does_not_fit() -> None:
    optimizer = optim.SGD([ta.ones(2, requires_grad=True)], lr=0.1)
    for settings, message in [
        ({"mode": "lowest"}, 'mode must be "min" or "max", got .lowest.'),
        ({"threshold_mode": "none"}, 'threshold_mode must be "rel" or "abs"'),
        ({"factor": 1.0}, r"factor must be a number in \[0, 1\), got 1.0"),
        ({"min_lr": [0.1, 0.2]}, "min_lr is a number or 1"),
        ({"min_lr": "a"}, "min_lr must be a number >= 0, got 'a'"),
        ({"patience": None}, "patience must be an integer >= 0, got None"),
        ({"cooldown": -1}, "cooldown must be an integer >= 0, got -1"),
        ({"threshold": float("nan")}, "threshold must be a number >= 0, got nan"),
        ({"eps": None}, "eps must be a number >= 0, got None"),
    ]:
        with pytest.raises(ValueError, match=message):
            lr_scheduler.ReduceLROnPlateau(optimizer, **settings)
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert not hasattr(optimizer, "_initial_lrs")  # what is refused has left nothing
    with pytest.raises(TypeError, match="a schedule takes an optimizer, got list"):
        lr_scheduler.ReduceLROnPlateau([])
    schedule = lr_scheduler.ReduceLROnPlateau(optimizer)
    for metrics in (None, "a", [1.0]):
        with pytest.raises((TypeError, ValueError), match="float"):
            schedule.step(metrics)
    assert schedule.last_epoch == 0


def test_a_loaded_state_has_the_first_rate_that_it_was_saved_with(torch: Any) -> None:
    """As programs that look for a rate do: they try growing ones, then load the state from before.

    That state has no first rate, so the next schedule begins with the rate of now.
    """
    rates = []
    for optimizer, space in zip(both(torch), (lr_scheduler, torch.optim.lr_scheduler), strict=True):
        saved = copy.deepcopy(optimizer.state_dict())
        for group in optimizer.param_groups:
            group["lr"] = 1e-7
        trial = space.ExponentialLR(optimizer, 2.0)
        optimizer.step()
        trial.step()
        later = copy.deepcopy(optimizer.state_dict())
        optimizer.load_state_dict(saved)
        assert not any("initial_lr" in group for group in optimizer.param_groups)
        schedules = (
            space.LambdaLR(optimizer, lambda n: 0.5**n),
            space.CosineAnnealingLR(optimizer, 3),
        )
        rates.append([values_of(optimizer, "lr")])
        for n in range(10):
            optimizer.step()
            schedules[n > 2].step()
            rates[-1].append(values_of(optimizer, "lr"))
        optimizer.load_state_dict(later)
        rates[-1].append(values_of(optimizer, "initial_lr"))
    assert np.allclose(*rates, rtol=1e-12, atol=1e-15)
    assert rates[0][0] == [0.1, 0.3]


def test_a_loaded_state_of_a_programs_optimizer_forgets_what_it_has_not(torch: Any) -> None:
    """A program begins anew from the state before the first step: no velocity is left."""
    ends = []
    for space in (torch_names, torch):

        class Heavy(space.optim.Optimizer):  # type: ignore[misc, name-defined]
            def __init__(self, params: Any) -> None:
                super().__init__(params, {"lr": 0.1})

            def step(self) -> None:  # type: ignore[override]
                for group in self.param_groups:
                    for p in group["params"]:
                        state = self.state[p]
                        state["velocity"] = 0.9 * state.get("velocity", 0.0) + p.grad
                        p.data.add_(state["velocity"], alpha=-group["lr"])

        w = space.ones(2, dtype=space.float64, requires_grad=True)
        heavy = Heavy([w])
        first = copy.deepcopy(heavy.state_dict())
        for n in range(4):
            heavy.zero_grad()
            (w * w).sum().backward()
            heavy.step()
            if n == 1:
                heavy.load_state_dict(first)
                assert len(heavy.state) == 0
        ends.append(w.tolist())
    assert ends[0] == pytest.approx(ends[1], rel=1e-12)


def test_a_second_schedule_begins_with_the_first_rate(torch: Any) -> None:
    """As programs write a warmup: the second takes over after it, though it is made before."""
    rates = []
    for optimizer, space in zip(both(torch), (lr_scheduler, torch.optim.lr_scheduler), strict=True):
        warmup = space.LinearLR(optimizer, 0.1, total_iters=4)
        later = space.CosineAnnealingLR(optimizer, 12)
        assert later.base_lrs == [0.1, 0.3]
        rates.append([])
        for n in range(12):
            rates[-1].append(values_of(optimizer, "lr"))
            optimizer.step()
            if n < 4:
                warmup.step()
            else:
                later.step()
    np.testing.assert_allclose(*rates, rtol=1e-12)


def test_a_schedule_of_ones_own(torch: Any) -> None:
    """As programs write the rates of "Attention Is All You Need", and one from rate to rate."""

    def noam(base: Any) -> Any:
        class NoamLR(base):
            def __init__(self, optimizer: Any, warmup: int, last_epoch: int = -1) -> None:
                self.warmup = warmup
                super().__init__(optimizer, last_epoch)

            def get_lr(self) -> list[float]:
                step = self._step_count
                factor = min(step**-0.5, step * self.warmup**-1.5)
                return [base * factor for base in self.base_lrs]

        return NoamLR

    def halving(base: Any) -> Any:
        class Halving(base):
            def get_lr(self) -> list[float]:
                factor = 0.5 if self.last_epoch in (2, 4) else 1
                return [group["lr"] * factor for group in self.optimizer.param_groups]

        return Halving

    for make, settings in ((noam, (5,)), (halving, ())):
        ours, theirs = both(torch)
        mine = make(lr_scheduler._LRScheduler)(ours, *settings)
        right = make(torch.optim.lr_scheduler.LRScheduler)(theirs, *settings)
        for _ in range(10):
            assert values_of(ours, "lr") == pytest.approx(values_of(theirs, "lr"), rel=1e-12)
            for each in (theirs, ours, mine, right):
                each.step()
    with pytest.raises(TypeError, match=r"LRScheduler defines no get_lr\(\)"):
        LRScheduler(ours)


@pytest.mark.filterwarnings("ignore:The epoch parameter:UserWarning")
def test_a_schedule_takes_the_number_of_the_epoch(torch: Any) -> None:
    ours, theirs = both(torch)
    mine = StepLR(ours, 3, 0.5)
    right = torch.optim.lr_scheduler.StepLR(theirs, 3, 0.5)
    theirs.step()
    for epoch in (1, 2, 3, 8, 9, 20, 4, 0):
        mine.step(epoch)
        right.step(epoch)
        assert values_of(ours, "lr") == pytest.approx(values_of(theirs, "lr"), rel=1e-12)


@pytest.mark.parametrize(
    "make",
    [
        lambda optimizer: StepLR(optimizer, 2, gamma=0.5),
        lambda optimizer: LambdaLR(optimizer, lambda n: 0.9**n),
        lambda optimizer: lr_scheduler.MultiStepLR(optimizer, [2, 4, 7]),
        lambda optimizer: FromRateToRate(optimizer),
    ],
)
def test_a_schedule_goes_on_from_its_state(tmp_path: Any, make: Any) -> None:
    def training() -> tuple[Any, Any]:
        optimizer = optim.Adam([ta.ones(2, requires_grad=True)], lr=0.1)
        return optimizer, make(optimizer)

    first, schedule = training()
    for _ in range(3):
        schedule.step()
    ta.save({"schedule": schedule.state_dict(), "adam": first.state_dict()}, tmp_path / "state")
    second, later = training()
    saved = ta.load(tmp_path / "state")
    second.load_state_dict(saved["adam"])
    later.load_state_dict(saved["schedule"])
    for _ in range(6):
        assert later.last_epoch == schedule.last_epoch
        assert (second.lr, second.betas) == (first.lr, first.betas)
        schedule.step()
        later.step()
    with pytest.raises(CheckpointError, match=r"has \[.*last_epoch.*\], got"):
        later.load_state_dict({"last_epoch": 3})


def without_momentum() -> Any:
    class Plain(optim.Optimizer):
        def step(self) -> None:
            pass

    return Plain([ta.ones(2, requires_grad=True)], {"lr": 0.1})


def steps(schedule: Any, number: int) -> None:
    for _ in range(number):
        schedule.optimizer.step()
        schedule.step()


def another() -> Any:
    return optim.SGD([ta.ones(2, requires_grad=True)], lr=0.1)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda o: StepLR(o, 0), ValueError, "step_size must be a number >= 1, got 0"),
        (lambda o: StepLR(o), TypeError, "missing a required argument: 'step_size'"),
        (lambda o: StepLR(o, 2, factor=3), TypeError, "unexpected keyword argument 'factor'"),
        (lambda o: StepLR(o, 2, last_epoch=3), ValueError, "last_epoch is -1, got 3: call load_"),
        (lambda o: StepLR(ta.nn.Linear(2, 2), 2), TypeError, "takes an optimizer, got .*Linear"),
        (lambda o: LambdaLR(o, 0.5), TypeError, "lr_lambda is a function or a list of 2"),
        (lambda o: LambdaLR(o, [abs] * 3), TypeError, "a list of 2, one per group, got"),
        (lambda o: lr_scheduler.LinearLR(o, total_iters=0), ta.errors.ShapeError, "total_iters mu"),
        (lambda o: lr_scheduler.CosineAnnealingLR(o, 0), ValueError, "T_max must be a number >= 1"),
        (lambda o: lr_scheduler.OneCycleLR(o, 1, 9, anneal_strategy="log", cycle_momentum=False),
         ValueError, 'anneal_strategy .* "cos" or "linear", got .log.'),
        (lambda o: lr_scheduler.OneCycleLR(o, 1, 9, total_step=9), TypeError, "'total_step'"),
        (lambda o: lr_scheduler.OneCycleLR(without_momentum(), 1, 9),
         ValueError, "cycle_momentum needs an optimizer with a momentum or betas"),
        (lambda o: steps(lr_scheduler.OneCycleLR(o, 1, 2, cycle_momentum=False), 3),
         ValueError, "this OneCycleLR has 2 steps, got step 3"),
        (lambda o: lr_scheduler.ConstantLR(o, 1.5), ValueError, "factor"),
        (lambda o: lr_scheduler.SequentialLR(o, [StepLR(o, 1), StepLR(o, 1)], [1, 2]),
         ValueError, r"2 schedules have one milestone less, got \[1, 2\]"),
        *[
            (make, ValueError, "takes schedules of one optimizer, and no ReduceLROnPlateau")
            for kind in (
                lr_scheduler.ChainedScheduler,
                lambda several: lr_scheduler.SequentialLR(
                    several[0].optimizer if several else None, several, [1] * (len(several) - 1)
                ),
            )
            for make in (
                lambda o, kind=kind: kind([lr_scheduler.ReduceLROnPlateau(o)]),
                lambda o, kind=kind: kind([StepLR(o, 1), lr_scheduler.ReduceLROnPlateau(o)]),
                lambda o, kind=kind: kind([StepLR(o, 1), StepLR(another(), 1)]),
                lambda o, kind=kind: kind([StepLR(o, 1), o]),
            )
        ],
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(make: Any, error: Any, message: str) -> None:
    groups = [{"params": [ta.ones(2, requires_grad=True)]} for _ in range(2)]
    optimizer = optim.SGD(groups, lr=0.1)
    with pytest.raises(error, match=message):
        make(optimizer)


def test_a_schedule_that_is_refused_leaves_the_groups_as_they_were() -> None:
    optimizer = another()
    before = dict(optimizer.param_groups[0])
    for make in (
        lambda: lr_scheduler.LinearLR(optimizer, 0.5, total_iters=0),
        lambda: lr_scheduler.ConstantLR(optimizer, 1.5),
        lambda: StepLR(optimizer, 0),
    ):
        with pytest.raises(ValueError, match=r"total_iters|factor|step_size"):
            make()
        assert optimizer.param_groups[0] == before


OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "foreach": False}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.2, "weight_decay": 0.1, "fused": False}),
    ("Adam", {"lr": 0.05, "foreach": True, "capturable": False}),
    ("Adam", {"lr": 0.05, "amsgrad": False, "weight_decay": 0.1, "betas": (0.8, 0.9)}),
    ("AdamW", {"lr": 0.05, "maximize": False}),
    ("AdamW", {"lr": 0.05, "weight_decay": 0.1, "eps": 1e-3}),
    ("RMSprop", {}),
    ("RMSprop", {"lr": 0.02, "alpha": 0.8, "eps": 1e-3, "weight_decay": 0.1, "foreach": False}),
    ("RMSprop", {"lr": 0.02, "momentum": 0.7, "centered": False}),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 1e-5)])
@pytest.mark.parametrize(("name", "settings"), OPTIMIZERS)
def test_optimizers_are_pytorchs(
    torch: Any, rng: Any, name: str, settings: dict[str, Any], dtype: str, tolerance: float
) -> None:
    """Over twenty steps, in which a parameter sometimes has no gradient."""
    values = [rng.normal(size=shape).astype(dtype) for shape in ((3, 4), (5,))]
    ours = [ta.tensor(value, requires_grad=True) for value in values]
    theirs = [torch.tensor(value, requires_grad=True) for value in values]
    mine = getattr(optim, name)(params=ours, **settings)
    right = getattr(torch.optim, name)(params=theirs, **settings)
    for step in range(20):
        for i, value in enumerate(values):
            grad = (rng.normal(size=value.shape) / (1 + step)).astype(dtype)
            ours[i].grad = None if (i, step % 5) == (1, 2) else ta.tensor(grad)
            theirs[i].grad = None if (i, step % 5) == (1, 2) else torch.tensor(grad)
        mine.step()
        right.step()
        for x, y in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(x.numpy(), y.detach().numpy(), tolerance, tolerance)


# Of each optimizer, what it keeps of earlier gradients: much, little and nothing.
MEMORIES = [("SGD", {"lr": 1e-3, "momentum": m}) for m in (0.0, 0.01, 0.9)]
MEMORIES += [(n, {"betas": (b, b)}) for n in ("Adam", "AdamW") for b in (0.0, 1e-4, 0.9)]
MEMORIES += [("RMSprop", {"alpha": a, "momentum": m}) for a in (0.0, 1e-4, 0.9) for m in (0, 0.5)]


@pytest.mark.parametrize(("name", "settings"), MEMORIES)
def test_a_small_gradient_after_a_large_one(torch: Any, rng: Any, name: str, settings: Any) -> None:
    """Where little is kept, the small one counts, though the large one has more digits."""
    value = rng.normal(size=5).astype("float32")
    ours, theirs = (lib.tensor(value, requires_grad=True) for lib in (ta, torch))
    mine, right = (
        getattr(o, name)([w], **settings) for o, w in ((optim, ours), (torch.optim, theirs))
    )
    for size in (1e4, 1e-1, 1e-3, 1e3, 1e-2):
        grad = (size * rng.normal(size=5)).astype("float32")
        ours.grad, theirs.grad = ta.tensor(grad), torch.tensor(grad)
        mine.step()
        right.step()
        np.testing.assert_allclose(ours.numpy(), theirs.detach().numpy(), 1e-5, 1e-5)


@pytest.mark.parametrize(("name", "settings"), OPTIMIZERS)
def test_an_optimizer_goes_on_from_its_state(
    rng: Any, tmp_path: Any, name: str, settings: dict[str, Any]
) -> None:
    w = ta.tensor(rng.normal(size=(3,)), requires_grad=True)
    first = getattr(optim, name)([w], **settings)
    grads = [ta.tensor(rng.normal(size=(3,))) for _ in range(4)]
    for grad in grads[:2]:
        w.grad = grad
        first.step()
    ta.save(first.state_dict(), tmp_path / "state")
    copy = w.detach().clone().requires_grad_()
    second = getattr(optim, name)([copy], **settings)
    second.load_state_dict(ta.load(tmp_path / "state"))
    for grad in grads[2:]:
        for parameter, optimizer in ((w, first), (copy, second)):
            parameter.grad = grad
            optimizer.step()
    np.testing.assert_array_equal(copy.numpy(), w.numpy())


def test_optimizers_are_those_of_tinyattn() -> None:
    w = ta.ones(2, requires_grad=True)
    for name in ("SGD", "Adam", "AdamW"):
        assert isinstance(getattr(optim, name)([w]), getattr(plain, name))
        assert isinstance(getattr(optim, name)([w]), optim.Optimizer)
    assert optim.Adam([w], 0.1, (0.5, 0.6), 1e-3, 0.2).param_groups[0]["betas"] == (0.5, 0.6)
    assert optim.AdamW([w]).weight_decay == plain.AdamW([w]).weight_decay


def test_small_squares_of_float16_are_kept() -> None:
    for name, settings in OPTIMIZERS:
        w = ta.ones(2, dtype=ta.float16, requires_grad=True)
        optimizer = getattr(optim, name)([w], **settings)
        w.grad = ta.full((2,), 1e-4, dtype=ta.float16)
        optimizer.step()
        assert w.dtype == ta.float16
        assert np.isfinite(w.numpy()).all()


@pytest.mark.parametrize("name", ["SGD", "AdamW", "RMSprop"])
def test_a_group_keeps_other_keys_of_a_program(torch: Any, name: str) -> None:
    """As layer-wise rates have "lr_scale"; from a state too."""
    found = []
    for space, made in ((ta, optim), (torch, torch.optim)):
        params = [space.ones(2, requires_grad=True) for _ in range(2)]
        groups = [
            {"params": [p], "lr_scale": 0.5 * i, "name": f"p{i}"} for i, p in enumerate(params)
        ]
        optimizer = getattr(made, name)(groups, lr=0.1)
        other = getattr(made, name)([{"params": [p]} for p in params], lr=0.7)
        other.load_state_dict(optimizer.state_dict())
        for step in range(3):
            for group in other.param_groups:
                group["lr"] = group["lr_scale"] / (step + 1)
                group["step"] = step
            (params[0] * params[0] + params[1]).sum().backward()
            other.step()
        keys = ("lr", "lr_scale", "name", "step")
        found.append([[group[key] for key in keys] for group in other.param_groups])
        found[-1] += [np.round(p.detach().numpy(), 6).tolist() for p in params]
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_programs_read_and_change_the_groups_of_a_state(
    torch: Any, name: str, tmp_path: Any
) -> None:
    found = []
    for space, made in ((ta, optim), (torch, torch.optim)):
        w = space.ones(2, requires_grad=True)
        optimizer = getattr(made, name)([w], lr=0.5)
        state = optimizer.state_dict()
        found.append([state["param_groups"][0]["lr"]])
        space.save({"optimizer": state}, str(tmp_path / name))
        state = space.load(str(tmp_path / name))["optimizer"]
        state["param_groups"][0]["lr"] = 0.25
        optimizer.load_state_dict(state)
        found[-1].append(optimizer.param_groups[0]["lr"])
    assert found[0] == found[1] == [0.5, 0.25]


def test_arguments_that_change_numbers_are_refused() -> None:
    w = ta.ones(2, requires_grad=True)
    for name in ("SGD", "Adam", "AdamW", "RMSprop"):
        make = getattr(optim, name)
        with pytest.raises(ValueError, match="maximize=True is not there: minimize -loss"):
            make([w], maximize=True)
        with pytest.raises(ValueError, match="differentiable=True is not there"):
            make([w], differentiable=True)
        with pytest.raises(TypeError, match="unexpected keyword argument 'nestorov'"):
            make([w], nestorov=True)
    for name in ("Adam", "AdamW"):
        with pytest.raises(ValueError, match="amsgrad=True is not there: leave it out"):
            getattr(optim, name)([w], amsgrad=True)
    with pytest.raises(ValueError, match="centered=True is not there: use Adam"):
        optim.RMSprop([w], centered=True)


class Own:
    """Adam without bias correction, by PyTorch's base class, for either library."""

    @staticmethod
    def made(base: Any, params: Any, lr: float) -> Any:
        class Optimizer(base):
            def __init__(self, params: Any, lr: float) -> None:
                self.lr = 0.5  # of the program
                super().__init__(params, {"lr": lr, "betas": (0.8, 0.9), "eps": 1e-6})

            def step(self, closure: Any = None) -> None:
                for group in self.param_groups:
                    for p in group["params"]:
                        if p.grad is None:
                            continue
                        state = self.state[p]
                        if not state:
                            state["step"], state["m"], state["v"] = 0, p.grad * 0, p.grad * 0
                        (a, b), state["step"] = group["betas"], state["step"] + 1
                        state["m"].mul_(a).add_(p.grad, alpha=1 - a)
                        state["v"].mul_(b).addcmul_(p.grad, p.grad, value=1 - b)
                        root = state["v"].sqrt().add_(group["eps"])
                        p.data.addcdiv_(state["m"], root, value=-group["lr"])

        return Optimizer(params, lr)


def test_optimizers_of_a_program_are_pytorchs(torch: Any, rng: Any) -> None:
    """Also with a group that is added later, and from a state."""
    values = [rng.normal(size=shape) for shape in ((3, 4), (5,))]
    made = []
    for space in (ta, torch):
        params = [space.tensor(value, requires_grad=True) for value in values]
        base = optim.Optimizer if space is ta else torch.optim.Optimizer
        made.append((space, params, Own.made(base, params[:1], 0.1)))
        made[-1][2].add_param_group({"params": params[1:], "lr": 0.3})
    for step in range(12):
        grads = [rng.normal(size=value.shape) for value in values]
        for i, (space, params, optimizer) in enumerate(made):
            if step == 6:
                state = optimizer.state_dict()
                base = type(optimizer).__mro__[1]
                optimizer = Own.made(base, params[:1], 0.9)
                optimizer.add_param_group({"params": params[1:], "lr": 0.9})
                optimizer.load_state_dict(state)
                made[i] = (space, params, optimizer)
            for parameter, grad in zip(params, grads, strict=True):
                parameter.grad = None if step % 5 == 2 else space.tensor(grad)
            optimizer.step()
            optimizer.zero_grad()
            assert optimizer.lr == 0.5
        for x, y in zip(made[0][1], made[1][1], strict=True):
            np.testing.assert_allclose(x.numpy(), y.detach().numpy(), 1e-12, 1e-12)


@pytest.mark.parametrize("empty", [
    lambda optimizer: setattr(optimizer, "state", collections.defaultdict(dict)),
    lambda optimizer: optimizer.state.clear(),
])  # fmt: skip
@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD", "RMSprop"])
def test_an_emptied_state_begins_anew_and_is_saved(torch: Any, name: str, empty: Any) -> None:
    """As programs forget momenta. The steps were those of one that goes on, and after
    `optimizer.state = defaultdict(dict)` nothing of the state was saved."""
    found = []
    more = {"momentum": 0.9} if name in ("SGD", "RMSprop") else {}
    for space in (ta, torch):
        x = space.tensor([1.0, -2.0], requires_grad=True)
        make = getattr(optim if space is ta else torch.optim, name)
        optimizer = make([x], lr=0.1, **more)
        for step in range(9):
            if step == 4:
                empty(optimizer)
            if step == 7:
                state = optimizer.state_dict()
                optimizer = make([x], lr=0.7, **more)
                optimizer.load_state_dict(state)
            x.grad = space.tensor([0.3 + step, -1.0 / (step + 1)])
            optimizer.step()
        found.append(x.tolist())
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_an_emptied_state_is_saved_before_the_next_step() -> None:
    """It had the number of steps and no moments, so that no optimizer could load it."""
    x = ta.tensor([1.0, -2.0], requires_grad=True)
    found = []
    adam = optim.Adam([x], lr=0.1)
    for start in (0, 3):
        x.data = np.array([1.0, -2.0], np.float32)
        for step in range(3):
            x.grad = ta.tensor([0.3 + step, -1.0 / (step + 1)])
            adam.step()
        found.append(x.tolist())
        adam.state.clear()
        state = adam.state_dict()
        assert (state["steps"], state["arrays"]) == ([0], {}), start
        adam = optim.Adam([x], lr=0.7)
        adam.load_state_dict(state)
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD"])
def test_a_pickled_optimizer_goes_on_bitwise(name: str) -> None:
    """Arrays of a pickle have a dtype object of their own, for which no kernel was taken."""
    more = {"momentum": 0.9} if name == "SGD" else {}
    parameters = [
        ta.tensor(np.linspace(-1, 1, 60), dtype=d, requires_grad=True)
        for d in (ta.float32, ta.float64)
    ]
    first = getattr(optim, name)(parameters, lr=0.1, **more)
    both: Any = [first]
    rng = np.random.default_rng(3)
    for step in range(6):
        if step == 2:
            both.append(pickle.loads(pickle.dumps(first)))
        grads = [rng.standard_normal(60) for _ in parameters]
        for optimizer in both:
            for parameter, grad in zip(optimizer.parameters, grads, strict=True):
                parameter.grad = ta.tensor(grad, dtype=parameter.dtype)
            optimizer.step()
    for x, y in zip(*(optimizer.parameters for optimizer in both), strict=True):
        np.testing.assert_array_equal(x.numpy(), y.numpy())


def test_the_state_has_no_dict_of_a_parameter() -> None:
    """What PyTorch's has. To write one would change nothing, so it is a KeyError too."""
    x = ta.ones(3, requires_grad=True)
    adam = optim.Adam([x])
    for names in ("", "'m', 'v'"):
        for use in (lambda: adam.state[x], lambda: adam.state.__setitem__(x, {})):
            with pytest.raises(KeyError, match=rf"by name and number, here \[{names}\], got float"):
                use()
        assert x not in adam.state
        x.grad = ta.ones(3)
        adam.step()
    for again in (copy.deepcopy(adam), pickle.loads(pickle.dumps(adam))):
        assert again.state["m"][0].tolist() == adam.state["m"][0].tolist()
        with pytest.raises(KeyError, match="by name and number"):
            again.state[again.parameters[0]]


def test_a_state_of_a_program_is_a_copy() -> None:
    parameter = ta.ones(2, requires_grad=True)
    optimizer = Own.made(optim.Optimizer, [parameter], 0.1)
    parameter.grad = ta.ones(2)
    optimizer.step()
    state = optimizer.state_dict()
    before = state["state"][0]["m"].tolist()
    parameter.grad = ta.full((2,), 3.0)
    optimizer.step()
    assert optimizer.state[parameter]["m"].tolist() != before
    assert state["state"][0]["m"].tolist() == before
    state["state"][0]["m"].zero_()
    assert optimizer.state[parameter]["m"].tolist() != [0, 0]


def test_a_run_with_an_optimizer_of_ones_own_goes_on(tmp_path: Path) -> None:
    """By torch.save of its state, whose keys are integers, and by a TrainingLoop."""

    def parts() -> dict[str, Any]:
        torch_names.manual_seed(0)
        model = torch_names.nn.Linear(2, 1)
        return {"model": model, "optimizer": Own.made(optim.Optimizer, model.parameters(), 0.1)}

    def step(parts: dict[str, Any], n: int) -> None:
        parts["optimizer"].zero_grad()
        parts["model"](ta.tensor([[1.0, n]])).square().sum().backward()
        parts["optimizer"].step()

    def weights(parts: dict[str, Any]) -> list[Any]:
        return [p.tolist() for p in parts["model"].parameters()]

    whole, first, second = parts(), parts(), parts()
    for n in range(6):
        step(whole, n)
    for n in range(3):
        step(first, n)
    torch_names.save({k: part.state_dict() for k, part in first.items()}, tmp_path / "a.pt")
    for name, state in torch_names.load(tmp_path / "a.pt").items():
        second[name].load_state_dict(state)
    for n in range(3, 6):
        step(second, n)
    assert weights(second) == weights(whole)

    path, third = tmp_path / "b.safetensors", parts()
    loop = TrainingLoop(path, third)
    for n in loop.steps(3):
        step(third, n)
        loop.record(0.0)
    again = parts()
    loop = TrainingLoop(path, again)
    loop.restore(ta.load(path))
    for n in loop.steps(6):
        step(again, n)
        loop.record(0.0)
    assert weights(again) == weights(whole)


def test_a_subclass_has_a_rate_of_its_own(torch: Any) -> None:
    """As a schedule of the paper has that is written as an optimizer."""
    found = []
    for space, names in ((ta, optim), (torch, torch.optim)):

        class Noam(names.Adam):  # type: ignore[name-defined, misc]
            def __init__(self, params: Any) -> None:
                self.lr, self.n = 0, 0
                super().__init__(params, betas=(0.9, 0.98))

            def step(self) -> None:
                self.n += 1
                self.lr = 0.1 * self.n
                for group in self.param_groups:
                    group["lr"] = self.lr / 2
                super().step()

        w = space.ones(2, requires_grad=True)
        optimizer = Noam([w])
        assert isinstance(optimizer, names.Optimizer)
        for _ in range(3):
            optimizer.zero_grad()
            (w * w).sum().backward()
            optimizer.step()
        assert optimizer.lr == pytest.approx(0.3)
        assert optimizer.state_dict()
        found.append(w.tolist())
    np.testing.assert_allclose(*found, rtol=1e-6)


def test_an_optimizer_that_moves_nothing_sets_its_groups(torch: Any) -> None:
    """As the Annotated Transformer has it, for its epochs of evaluation."""
    for base in (optim.Optimizer, torch.optim.Optimizer):

        class DummyOptimizer(base):  # type: ignore[misc, valid-type]
            def __init__(self) -> None:
                self.param_groups = [{"lr": 0}]

            def step(self) -> None:
                pass

        dummy = DummyOptimizer()
        dummy.step()
        assert dummy.param_groups[0]["lr"] == 0
        assert "lr" in repr(dummy)
    adam = optim.Adam([ta.ones(2, requires_grad=True)])
    with pytest.raises(TypeError, match="keeps its parameters: add_param_group adds others"):
        adam.param_groups = []
    assert len(adam.param_groups) == 1


def test_an_optimizer_shares_the_groups_of_another(torch: Any) -> None:
    """As SAM and Lookahead do, so that both have the rate that a schedule sets."""

    class Around(torch.optim.Optimizer):  # type: ignore[misc, name-defined]
        def __init__(self, params: Any, base: Any, **settings: Any) -> None:
            super().__init__(params, {"rho": 0.5, **settings})
            self.base = base(self.param_groups, **settings)
            self.param_groups = self.base.param_groups

    w = torch.ones(2, requires_grad=True)
    outer = Around([w], torch.optim.SGD, lr=0.1)
    outer.param_groups[0]["lr"] = 0.5
    (w * w).sum().backward()
    outer.base.step()
    assert w.tolist() == [0, 0]
    assert outer.param_groups[0]["rho"] == 0.5


def test_settings_of_a_program_mean_what_it_says(torch: Any) -> None:
    """Adafactor has no rate, lr=None, and Muon a nesterov without the dampening of SGD."""
    settings = {"lr": None, "momentum": 0.5, "nesterov": True, "betas": None, "eps": (1e-3, 1e-8)}
    for library in (optim.Optimizer, torch.optim.Optimizer):

        class Muon(library):  # type: ignore[misc, valid-type]
            def __init__(self, params: Any) -> None:
                super().__init__(params, dict(settings))

        space = ta if library is optim.Optimizer else torch
        optimizer = Muon([space.ones(2, requires_grad=True)])
        optimizer.load_state_dict(optimizer.state_dict())
        optimizer.add_param_group({"params": [space.ones(1, requires_grad=True)], "lr": "slow"})
        found = [{name: group[name] for name in settings} for group in optimizer.param_groups]
        assert found == [settings, {**settings, "lr": "slow"}]


@pytest.mark.parametrize("kind", ["ChainedScheduler", "SequentialLR"])
@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_a_state_of_several_that_is_refused_changes_none_of_them(kind: str, wrong: int) -> None:
    """Whichever of them it does not fit."""

    def made() -> tuple[Any, list[Any]]:
        optimizer = optim.SGD([ta.zeros(2, requires_grad=True)], lr=1.0)
        parts = [StepLR(optimizer, 2), lr_scheduler.ExponentialLR(optimizer, 0.9),
                 lr_scheduler.LinearLR(optimizer)]  # fmt: skip
        if kind == "ChainedScheduler":
            return lr_scheduler.ChainedScheduler(parts), parts
        return lr_scheduler.SequentialLR(optimizer, parts, [2, 4]), parts

    saved, _ = made()
    for _ in range(3):
        saved.step()
    right, (fresh, parts) = saved.state_dict(), made()
    before = copy.deepcopy(fresh.state_dict())
    states = list(right["_schedulers"])
    states[wrong] = {"last_epoch": 7}
    with pytest.raises(CheckpointError, match="last_epoch"):
        fresh.load_state_dict(right | {"_schedulers": states})
    assert fresh.state_dict() == before
    with pytest.raises((CheckpointError, ValueError)):
        fresh.load_state_dict(right | {"_schedulers": states[:2]})
    assert fresh.state_dict() == before
    fresh.load_state_dict(right)
    assert fresh.state_dict() == right
    assert [part.last_epoch for part in parts] == [part["last_epoch"] for part in
                                                   right["_schedulers"]]  # fmt: skip


@pytest.mark.parametrize(("name", "settings"), SCHEDULES)
def test_the_last_rates_are_those_of_the_schedules_own_step(
    torch: Any, name: str, settings: dict[str, Any]
) -> None:
    """Not those that somebody has set since."""
    last = []
    for optimizer, space in zip(
        both(torch, momentum=0.9), (lr_scheduler, torch.optim.lr_scheduler), strict=True
    ):
        schedule = getattr(space, name)(optimizer, **settings)
        last.append([])
        for _ in range(3):
            optimizer.step()
            schedule.step()
            before = [float(rate) for rate in schedule.get_last_lr()]
            for group in optimizer.param_groups:
                group["lr"] *= 3
            assert [float(rate) for rate in schedule.get_last_lr()] == before
            last[-1].append(before)
    np.testing.assert_allclose(*last, rtol=1e-12)
