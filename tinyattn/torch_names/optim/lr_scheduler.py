"""PyTorch's schedules under its names and arguments; tinyattn.optim has its own.

In tinyattn: the schedules are in optim itself
"""

import math
from bisect import bisect_right
from typing import Any

from ...base.checks import check_choice, check_number, check_size, checked_probability, listed
from ...optim import Optimizer
from ...optim.schedules import checked_optimizer
from .factors import *  # noqa: F403
from .factors import LEAST, LRScheduler, of_groups

_LRScheduler = LRScheduler  # its name in older programs


class CosineAnnealingLR(LRScheduler):
    """Down to `eta_min` in T_max steps on half a cosine, then up again.

    The distance to `eta_min` is multiplied by a factor.
    """

    def __init__(
        self, optimizer: Optimizer, T_max: float, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.T_max, self.eta_min = check_number("T_max", T_max, 1), eta_min
        super().__init__(optimizer, last_epoch)

    def height(self, n: float) -> float:
        return (1 + math.cos(math.pi * n / self.T_max)) / 2

    def get_lr(self) -> list[float]:
        if self._is_initial:
            return self.present()
        n = self.last_epoch
        if (n - 1 - self.T_max) % (2 * self.T_max) == 0:  # the distance is 0: no factor changes it
            rises = [(base - self.eta_min) * self.height(self.T_max - 1) for base in self.base_lrs]
            self.check_groups(rises)
            return [rate + rise for rate, rise in zip(self.present(), rises, strict=True)]
        factor = self.height(n) / self.height(n - 1)
        return [factor * (rate - self.eta_min) + self.eta_min for rate in self.present()]

    def _get_closed_form_lr(self) -> list[float]:
        height = self.height(self.last_epoch)
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Down to `eta_min` on half a cosine again and again: in T_0 steps, then each time in T_mult
    times as many. `step(epoch)` takes a fraction of an epoch too.

    Source: Loshchilov and Hutter, "SGDR", 2017.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        self.T_0, self.T_mult = check_size("T_0", T_0), check_size("T_mult", T_mult)
        self.T_cur, self.T_i, self.eta_min = float(last_epoch), T_0, eta_min
        super().__init__(optimizer, last_epoch)

    def _update_lr(self, epoch: float | None = None) -> None:
        if epoch is None and self.last_epoch >= 0:
            self.T_cur, epoch = self.T_cur + 1, self.last_epoch + 1
        else:
            self.T_i = self.T_0
            self.T_cur = epoch = check_number("epoch", epoch or 0, 0)
        while self.T_cur >= self.T_i:
            self.T_cur, self.T_i = self.T_cur - self.T_i, self.T_i * self.T_mult
        super()._update_lr(math.floor(epoch))

    def get_lr(self) -> list[float]:
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]


class OneCycleLR(LRScheduler):
    """Up to `max_lr` in the part `pct_start` of all steps, then down.

    The rate begins at max_lr / div_factor and ends at 1 / final_div_factor of that. With
    three_phase it first goes down to where it began, in as many steps as up. With cycle_momentum
    the momentum, or the first of the betas, goes from max_momentum to base_momentum and back.
    Source: Smith and Topin, "Super-Convergence", 2018.
    three_phase= and last_epoch= have to be named. No rate is below 0. The limits are in the groups
    of the optimizer, as in PyTorch: several on one optimizer share those of the last.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: Any,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.85,
        max_momentum: Any = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        **named: Any,
    ) -> None:
        if unknown := named.keys() - {"three_phase", "last_epoch"}:
            raise TypeError(f"got an unexpected keyword argument {min(unknown)!r}")
        check_choice("anneal_strategy", anneal_strategy, "cos", "linear")
        groups = checked_optimizer(optimizer).param_groups
        if total_steps is None:
            total_steps = check_size("steps_per_epoch (or else total_steps)", steps_per_epoch)
            total_steps *= check_size("epochs (or else total_steps)", epochs)
        self.total_steps = n = check_size("total_steps", total_steps)
        self.anneal_strategy, third = anneal_strategy, named.get("three_phase", False)
        up = checked_probability(pct_start, "pct_start") * n
        self.ends = [up - 1, 2 * up - 2, n - 1] if third else [up - 1, n - 1]
        check_number("div_factor", div_factor, LEAST)
        check_number("final_div_factor", final_div_factor, LEAST)
        if cycle_momentum and not {"momentum", "betas"} & groups[0].keys():
            raise ValueError("cycle_momentum needs an optimizer with a momentum or betas")
        self.cycle_momentum, self.three_phase = cycle_momentum, third
        limits = {"max_lr": max_lr, "max_momentum": max_momentum, "base_momentum": base_momentum}
        lists = {name: of_groups(name, value, groups) for name, value in limits.items()}
        for i, group in enumerate(groups):
            used = lists if cycle_momentum else ["max_lr"]
            group |= {name: lists[name][i] for name in used}
            group["initial_lr"] = group["max_lr"] / div_factor
            group["min_lr"] = group["initial_lr"] / final_div_factor
        super().__init__(optimizer, named.get("last_epoch", -1))

    def get_lr(self) -> list[float]:
        n, ends, groups = self.last_epoch, self.ends, self.optimizer.param_groups
        if n > self.total_steps:
            raise ValueError(f"this OneCycleLR has {self.total_steps} steps, got step {n}")
        self.check_groups(self.base_lrs)
        if any("min_lr" not in group for group in groups):
            raise ValueError("the optimizer has a state from before its OneCycleLR: make that anew")
        i = next((i for i, end in enumerate(ends) if n <= end), len(ends) - 1)
        start = ends[i - 1] if i else 0.0
        left = (ends[i] - n) / (ends[i] - start) if ends[i] != start else 0.0
        if self.anneal_strategy == "cos":
            left = (1 - math.cos(math.pi * left)) / 2

        def between(group: dict[str, Any], *names: str) -> float:
            """Of the settings that are reached one after another."""
            first, second, last = (group[name] for name in names)
            points = [first, second, *[first] * self.three_phase, last]
            return max(points[i + 1] + (points[i] - points[i + 1]) * left, 0.0)

        for group in groups if self.cycle_momentum else ():
            momentum = between(group, "max_momentum", "base_momentum", "max_momentum")
            is_pair = "betas" in group
            group |= {"betas": (momentum, group["betas"][1])} if is_pair else {"momentum": momentum}
        return [between(group, "initial_lr", "max_lr", "min_lr") for group in groups]


class Several(LRScheduler):
    """Schedules of one optimizer, which are saved together."""

    def __init__(self, optimizer: Any, schedulers: Any) -> None:
        self._schedulers, self.last_epoch = listed("schedulers", schedulers), 0
        first: Any = self._schedulers[0] if self._schedulers else None
        self.optimizer: Any = optimizer or getattr(first, "optimizer", None)
        for schedule in self._schedulers or [None]:
            fits = isinstance(schedule, LRScheduler) and schedule.optimizer is self.optimizer
            if not fits or isinstance(schedule, ReduceLROnPlateau):
                raise ValueError(
                    f"{type(self).__name__} takes schedules of one optimizer, and no "
                    f"ReduceLROnPlateau, which needs a number in each step, got {schedule!r}"
                )

    def undo(self) -> None:
        for schedule in self._schedulers:
            schedule.undo()

    def state_dict(self) -> dict[str, Any]:
        states = [schedule.state_dict() for schedule in self._schedulers]
        return {**super().state_dict(), "_schedulers": states}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.check_names(state_dict)
        pairs = list(zip(self._schedulers, state_dict["_schedulers"], strict=True))
        for schedule, each in pairs:
            schedule.check_names(each)
        for schedule, each in pairs:
            schedule.load_state_dict(each)
        super().load_state_dict({**state_dict, "_schedulers": self._schedulers})


class ChainedScheduler(Several):
    """Steps all of `schedulers` in each step."""

    def __init__(self, schedulers: Any, optimizer: Optimizer | None = None) -> None:
        super().__init__(optimizer, schedulers)
        self._last_lr = self.present()

    def step(self) -> None:  # type: ignore[override]
        for schedule in self._schedulers:
            schedule.step()
        self.last_epoch, self._last_lr = self.last_epoch + 1, self.present()


class SequentialLR(Several):
    """One of `schedulers` after another: the next begins after the number of steps in `milestones`.

    Each begins with the first rate of the optimizer.
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Any, milestones: Any, last_epoch: int = -1
    ) -> None:
        super().__init__(checked_optimizer(optimizer), schedulers)
        self._milestones, self.last_epoch = listed("milestones", milestones), last_epoch + 1
        if len(self._milestones) != len(self._schedulers) - 1:
            raise ValueError(
                f"{len(self._schedulers)} schedules have one milestone less, got {milestones}"
            )
        self.set_rates([group["initial_lr"] for group in optimizer.param_groups])
        self.undo()
        self._schedulers[bisect_right(self._milestones, 0)]._initial_step()
        self._last_lr = self.present()

    def step(self) -> None:  # type: ignore[override]
        n = self.last_epoch + 1
        i = bisect_right(self._milestones, n)
        if i and self._milestones[i - 1] == n:
            self._schedulers[i]._update_lr(0)
        else:
            self._schedulers[i].step()
        self.last_epoch, self._last_lr = n, self.present()


class ReduceLROnPlateau(LRScheduler):
    """Times `factor` when the numbers given to `step` are no better for more than `patience` calls.

    A number is better than the best before if it is below best * (1 - threshold), or with
    threshold_mode="abs" below best - threshold; with mode="max" above the same with a plus. After
    a change `cooldown` calls count nothing. min_lr: a number, or one for each group. A change of
    at most `eps` is not made.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: Any = 0.0,
        eps: float = 1e-8,
    ) -> None:
        check_choice("mode", mode, "min", "max")
        check_choice("threshold_mode", threshold_mode, "rel", "abs")
        check_number("factor", factor, 0, 1)
        self.mode, self.threshold_mode, self.factor = mode, threshold_mode, factor
        self.patience = check_size("patience", patience, 0)
        self.cooldown = check_size("cooldown", cooldown, 0)
        self.threshold = check_number("threshold", threshold, 0)
        self.eps = check_number("eps", eps, 0)
        self.optimizer, self.last_epoch = checked_optimizer(optimizer), 0
        self.min_lr = min_lr
        of_groups("min_lr", min_lr, optimizer.param_groups)
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = self.cooldown_counter = 0
        self._last_lr = self.present()

    def is_better(self, number: float) -> bool:
        sign = -1 if self.mode == "min" else 1
        margin = sign * self.threshold
        limit = self.best * (1 + margin) if self.threshold_mode == "rel" else self.best + margin
        return sign * (number - limit) > 0

    def lower(self, lr: float, least: float) -> float:
        new = max(lr * self.factor, least)
        return new if lr - new > self.eps else lr

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        number = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        better = self.is_better(number)
        self.best = number if better else self.best
        self.num_bad_epochs = 0 if better else self.num_bad_epochs + 1
        if self.cooldown_counter:
            self.cooldown_counter, self.num_bad_epochs = self.cooldown_counter - 1, 0
        if self.num_bad_epochs > self.patience:
            least = of_groups("min_lr", self.min_lr, self.optimizer.param_groups)
            self.set_rates(list(map(self.lower, self.present(), least)))
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = self.present()
