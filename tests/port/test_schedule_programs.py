"""Random programs of forty steps with several schedules: PyTorch's rates in every step.

Rates are set by hand, groups are added, and runs go on from their states. With a number as its
argument this file tries so many programs: `python -m tests.port.test_schedule_programs 10000`.
"""

from __future__ import annotations

import sys
import warnings
from random import Random
from typing import Any

import pytest

import tinyattn as ta
from tinyattn.torch_names import optim
from tinyattn.torch_names.optim import lr_scheduler


def one_kind(draw: Random, groups: int) -> tuple[str, Any]:
    """The name of a schedule, and its arguments."""
    factor = draw.choice([lambda n: 0.95**n, lambda n: 1 / (n + 1), lambda n: min(1, (n + 1) / 8)])
    part, steps = draw.choice([0.1, 0.5, 0.9, 1 / 3, 1.0]), draw.randint(1, 30)
    return draw.choice(
        [
            ("StepLR", {"step_size": steps, "gamma": part}),
            ("MultiStepLR", {"milestones": draw.choices(range(40), k=4), "gamma": part}),
            ("ConstantLR", {"factor": part, "total_iters": steps}),
            ("LinearLR", {"start_factor": part, "total_iters": steps}),
            ("LinearLR", {"end_factor": draw.choice([0.0, 0.5]), "total_iters": steps}),
            ("ExponentialLR", {"gamma": part}),
            ("PolynomialLR", {"total_iters": steps, "power": draw.choice([0.5, 1.0, 1.7])}),
            ("CosineAnnealingLR", {"T_max": steps}),
            ("CosineAnnealingWarmRestarts", {"T_0": steps, "T_mult": 2, "eta_min": 1e-3}),
            ("LambdaLR", {"lr_lambda": draw.choice([factor, [factor] * groups])}),
            ("MultiplicativeLR", {"lr_lambda": lambda n: 0.9 if n % 3 == 0 else 1.0}),
        ]
    )


def kind(draw: Random, groups: int) -> tuple[str, Any]:
    several = [one_kind(draw, groups) for _ in range(draw.randint(1, 3))]
    milestones = sorted(draw.sample(range(1, 35), len(several) - 1))
    settings = {
        "max_lr": draw.choice([0.5, 0.2]),
        "total_steps": 60,
        "three_phase": draw.random() < 0.5,
    }
    return draw.choices(
        [
            one_kind(draw, groups),
            ("SequentialLR", (several, milestones)),
            ("ChainedScheduler", (several,)),
            ("ReduceLROnPlateau", {"patience": draw.randint(0, 3), "cooldown": 1}),
            ("OneCycleLR", settings),
        ],
        [14, 2, 2, 1, 1],
    )[0]


def made(space: Any, optimizer: Any, name: str, settings: Any) -> Any:
    make = getattr(space, name)
    if isinstance(settings, dict):
        return make(optimizer, **settings)
    schedules = [made(space, optimizer, *each) for each in settings[0]]
    return make(*([optimizer] if len(settings) == 2 else []), schedules, *settings[1:])


def rates_of(optimizers: Any, schedulers: Any, one: Any, seed: int) -> list[Any]:
    """What happens in a program: the rates and momenta in each step, or a refusal."""
    draw = Random(seed)
    groups = draw.randint(1, 3)
    kinds = [kind(draw, groups) for _ in range(draw.choice([1, 1, 2, 3]))]
    rates = [draw.choice([1.0, 0.3, 0.01]) for _ in range(groups)]
    changes = draw.random() < 0.5

    def run() -> tuple[Any, list[Any]]:
        params = [{"params": [one()], "lr": rate} for rate in rates]
        optimizer = optimizers.SGD(params, lr=0.1, momentum=0.9)
        return optimizer, [made(schedulers, optimizer, *each) for each in kinds]

    optimizer, schedules = run()
    found: list[Any] = []
    for _ in range(40):
        event, rate, number = draw.random(), draw.choice([0.2, 0.003]), draw.random()
        try:
            if changes and event < 0.05:
                optimizer.param_groups[draw.randrange(groups)]["lr"] = rate
            elif changes and event < 0.07:
                optimizer.add_param_group({"params": [one()], "lr": rate})
                rates.append(rate)
            elif event > 0.95:
                states = [each.state_dict() for each in (optimizer, *schedules)]
                optimizer, schedules = run()
                for each, state in zip((optimizer, *schedules), states, strict=True):
                    each.load_state_dict(state)
            for (name, _), schedule in zip(kinds, schedules, strict=True):
                schedule.step(*[number] * (name == "ReduceLROnPlateau"))
        except (TypeError, ValueError, KeyError):
            return found + ["refused"] * (40 - len(found))
        found.append([schedule.get_last_lr() for schedule in schedules])
        found[-1] += [[group[n] for n in ("lr", "momentum")] for group in optimizer.param_groups]
    return found


def differs(torch: Any, seed: int) -> str:
    """The first step of a program in which the rates differ, or ""."""
    ours = rates_of(optim, lr_scheduler, lambda: ta.ones(1, requires_grad=True), seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about steps of the schedule without those of optimizers
        leaf = lambda: torch.ones(1, requires_grad=True)  # noqa: E731
        theirs = rates_of(torch.optim, torch.optim.lr_scheduler, leaf, seed)
    for n, (mine, right) in enumerate(zip(ours, theirs, strict=True)):
        refused = "refused" in (mine, right)
        if mine != (right if refused else [pytest.approx(x, rel=1e-11, abs=1e-14) for x in right]):
            return f"program {seed}, step {n}: {mine}, PyTorch: {right}"
    return ""


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_rates_of_random_programs_are_pytorchs(torch: Any, first: int) -> None:
    assert [text for seed in range(first, first + 50) if (text := differs(torch, seed))] == []


if __name__ == "__main__":
    import torch as pytorch

    programs = range(int(sys.argv[1]))
    wrong = [text for seed in programs if (text := differs(pytorch, seed))]
    print(*wrong, f"{len(programs)} programs, {len(wrong)} differ", sep="\n")
