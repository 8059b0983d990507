"""Schedules of torch_names beside their closed formulas, in every step and after a jump."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
from tinyattn.torch_names import optim
from tinyattn.torch_names.optim import lr_scheduler as schedules

FIRST = (0.25, 1.5)  # the first rates of two groups


def optimizer_of(**settings: Any) -> Any:
    groups = [{"params": [ta.ones(2, requires_grad=True)], "lr": rate} for rate in FIRST]
    return optim.SGD(groups, lr=0.1, **settings)


def rates_of(optimizer: Any) -> list[float]:
    return [group["lr"] for group in optimizer.param_groups]


def cosine(part: float) -> float:
    return (1 + math.cos(math.pi * part)) / 2


def since_restart(n: float, first: int, times: int) -> float:
    """The part of its period that is over at n."""
    length = first
    while n >= length:
        n, length = n - length, length * times
    return n / length


# The name, its arguments, and the rate after n steps of a group that began with the rate r.
FORMULAS: list[tuple[str, dict[str, Any], Callable[[float, float], float]]] = [
    ("StepLR", {"step_size": 3, "gamma": 0.5}, lambda r, n: r * 0.5 ** (n // 3)),
    ("StepLR", {"step_size": 1}, lambda r, n: r * 0.1**n),
    ("MultiStepLR", {"milestones": [2, 5, 5], "gamma": 0.5},
     lambda r, n: r * 0.5 ** ((n >= 2) + 2 * (n >= 5))),
    ("ConstantLR", {}, lambda r, n: r / 3 if n < 5 else r),
    ("ConstantLR", {"factor": 0.2, "total_iters": 1}, lambda r, n: r / 5 if n < 1 else r),
    ("LinearLR", {}, lambda r, n: r * (1 / 3 + 2 / 3 * min(n, 5) / 5)),
    ("LinearLR", {"start_factor": 0.8, "end_factor": 0.2, "total_iters": 4},
     lambda r, n: r * (0.8 - 0.6 * min(n, 4) / 4)),
    ("ExponentialLR", {"gamma": 0.75}, lambda r, n: r * 0.75**n),
    ("PolynomialLR", {}, lambda r, n: r * (1 - min(n, 5) / 5)),
    ("PolynomialLR", {"total_iters": 4, "power": 2.0}, lambda r, n: r * (1 - min(n, 4) / 4) ** 2),
    ("LambdaLR", {"lr_lambda": lambda n: 1 / (n + 2)}, lambda r, n: r / (n + 2)),
    ("CosineAnnealingLR", {"T_max": 4}, lambda r, n: r * cosine(n / 4)),
    ("CosineAnnealingLR", {"T_max": 3, "eta_min": 0.125},
     lambda r, n: 0.125 + (r - 0.125) * cosine(n / 3)),
    ("CosineAnnealingWarmRestarts", {"T_0": 3}, lambda r, n: r * cosine(n % 3 / 3)),
    ("CosineAnnealingWarmRestarts", {"T_0": 2, "T_mult": 3, "eta_min": 0.125},
     lambda r, n: 0.125 + (r - 0.125) * cosine(since_restart(n, 2, 3))),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(FORMULAS)))
def test_a_rate_is_that_of_the_formula(number: int) -> None:
    name, settings, formula = FORMULAS[number]
    optimizer = optimizer_of()
    schedule = getattr(schedules, name)(optimizer, **settings)
    for n in range(12):
        expected = [formula(rate, n) for rate in FIRST]
        np.testing.assert_allclose(rates_of(optimizer), expected, rtol=1e-12, atol=1e-16)
        assert schedule.get_last_lr() == rates_of(optimizer)
        assert (schedule.last_epoch, schedule.base_lrs) == (n, list(FIRST))
        schedule.step()
    jumps = (4, 0, 7, 1)
    for n in (*jumps, 2.5, 6.75) if name.endswith("Restarts") else jumps:
        schedule.step(n)
        expected = [formula(rate, n) for rate in FIRST]
        np.testing.assert_allclose(rates_of(optimizer), expected, rtol=1e-12, atol=1e-16)
        assert schedule.last_epoch == math.floor(n)
        assert type(schedule.last_epoch) is int


# Schedules without a formula for the time before the first step, and what an epoch is there.
NEGATIVE = {
    "CosineAnnealingWarmRestarts": "a number", "StepLR": "an integer", "MultiStepLR": "an integer",
    "ConstantLR": "an integer", "LinearLR": "an integer", "ExponentialLR": "an integer",
    "PolynomialLR": "an integer",
}  # fmt: skip


@pytest.mark.parametrize("steps", [0, 1, 5])
@pytest.mark.parametrize("number", [i for i, each in enumerate(FORMULAS) if each[0] in NEGATIVE])
def test_an_epoch_before_the_first_is_refused_and_changes_nothing(number: int, steps: int) -> None:
    name, settings, _ = FORMULAS[number]
    optimizer = optimizer_of()
    schedule = getattr(schedules, name)(optimizer, **settings)
    for _ in range(steps):
        schedule.step()
    before = dict(vars(schedule)), rates_of(optimizer)
    for epoch in (-1, -2, *[-0.25] * (NEGATIVE[name] == "a number")):
        with pytest.raises(ValueError) as raised:  # noqa: PT011  the whole sentence is compared
            schedule.step(epoch)
        assert str(raised.value) == f"epoch must be {NEGATIVE[name]} >= 0, got {epoch}"
        assert (dict(vars(schedule)), rates_of(optimizer)) == before


@pytest.mark.parametrize("three_phase", [False, True])
@pytest.mark.parametrize("strategy", ["cos", "linear"])
@pytest.mark.parametrize(
    ("steps", "part"),
    [(10, 0.1), (10, 0.3), (10, 0.45), (8, 0.5), (4, 0.25), (8, 1.0), (8, 0.0), (1, 1.0), (2, 0.5)],
)
def test_one_cycle_goes_from_turn_to_turn(
    steps: int, part: float, strategy: str, three_phase: bool
) -> None:
    """Also where a phase has one step, in which the rate is at its end at once."""
    optimizer = optimizer_of(momentum=0.9)
    schedule = schedules.OneCycleLR(
        optimizer, [1.0, 3.0], steps, pct_start=part, anneal_strategy=strategy,
        base_momentum=[0.5, 0.6], max_momentum=[0.8, 0.9], div_factor=4.0, final_div_factor=8.0,
        three_phase=three_phase,
    )  # fmt: skip
    up = part * steps
    turns = [0.0, up - 1, *[2 * up - 2] * three_phase, steps - 1]
    for n in range(steps + 1):
        i = next((i for i, end in enumerate(turns[1:]) if n <= end), len(turns) - 2)
        start, end = turns[i : i + 2]
        done = 1.0 if start == end else (n - start) / (end - start)
        done = 1 - cosine(done) if strategy == "cos" else done
        for group, most, low, high in zip(
            optimizer.param_groups, (1.0, 3.0), (0.5, 0.6), (0.8, 0.9), strict=True
        ):
            first = most / 4
            rates = [first, most, *[first] * three_phase, first / 8]
            momenta = [high, low, *[high] * three_phase, high]
            for name, points in (("lr", rates), ("momentum", momenta)):
                expected = max(points[i] + (points[i + 1] - points[i]) * done, 0)
                assert group[name] == pytest.approx(expected, rel=1e-12), (n, name)
            limits = [group[key] for key in ("initial_lr", "max_lr", "min_lr")]
            assert limits == [first, most, first / 8]
        if n < steps:
            schedule.step()
    with pytest.raises(ValueError) as raised:  # noqa: PT011  the whole sentence is compared
        schedule.step()
    assert str(raised.value) == f"this OneCycleLR has {steps} steps, got step {steps + 1}"


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW"])
def test_a_cycle_of_momentum_changes_it_or_the_first_of_the_betas(kind: str) -> None:
    settings = {"momentum": 0.7} if kind == "SGD" else {"betas": (0.7, 0.8)}
    for cycles in (False, True):
        optimizer = getattr(optim, kind)([ta.ones(2, requires_grad=True)], lr=0.5, **settings)
        schedule = schedules.OneCycleLR(optimizer, 1.0, 5, pct_start=0.4, cycle_momentum=cycles)
        (group,) = optimizer.param_groups
        for momentum in (0.95, 0.85, 0.85 + 0.1 / 4):
            expected = momentum if cycles else 0.7
            found = group["momentum"] if kind == "SGD" else group["betas"][0]
            assert found == pytest.approx(expected)
            assert kind == "SGD" or group["betas"][1] == 0.8
            assert ("max_momentum" in group) == cycles
            schedule.step()
    bare = optim.RMSprop([ta.ones(2, requires_grad=True)], lr=0.5)
    assert schedules.OneCycleLR(bare, 1.0, 5).total_steps == 5
    own = optim.Optimizer([ta.ones(2, requires_grad=True)], {"lr": 0.5})
    with pytest.raises(ValueError, match=r"^cycle_momentum needs an optimizer with a momentum or "):
        schedules.OneCycleLR(own, 1.0, 5)
