"""PyTorch's schedules under its names and arguments; tinyattn.optim has its own.

OneCycleLR, SequentialLR and PyTorch's further schedules are not here: write a LambdaLR, which takes
any function of the step, or set group["lr"] of optimizer.param_groups.

In tinyattn: the schedules are in optim itself
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Any

from ...base.checks import check_number, check_size, type_name
from ...optim import Optimizer, Schedule
from ...optim.schedules import checked_optimizer


class LRScheduler(Schedule):
    """The rates that `get_lr()` returns for `last_epoch`, which counts the calls of `step()`.

    A subclass defines `get_lr`, the rate of each parameter group. `base_lrs` are the rates from
    before the optimizer got its first schedule.
    last_epoch= is always -1, because a run goes on by `load_state_dict`.

        >>> from tinyattn.torch_names.optim.lr_scheduler import LRScheduler
        >>> class Halved(LRScheduler):
        ...     def get_lr(self):
        ...         return [base * 0.5**self.last_epoch for base in self.base_lrs]
        >>> schedule = Halved(optim.SGD([ta.zeros(2, requires_grad=True)], lr=1.0))
        >>> schedule.step()
        >>> schedule.get_last_lr()
        [0.5]
    """

    not_saved = ("optimizer", "lr_lambda")

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        checked_optimizer(optimizer)
        if last_epoch != -1:
            raise ValueError(f"last_epoch is -1, got {last_epoch}: call load_state_dict(state)")
        # A second schedule begins with the rates that were there before the first set others.
        initial: list[float] = vars(optimizer).setdefault("_initial_lrs", [])
        initial += [group["lr"] for group in optimizer.param_groups[len(initial) :]]
        self.optimizer, self.base_lrs, self.last_epoch = optimizer, list(initial), last_epoch
        self._initial_step()

    def _initial_step(self) -> None:
        self.step()

    def get_lr(self) -> list[float]:
        raise TypeError(f"{type(self).__name__} defines no get_lr()")

    def step(self, epoch: int | None = None) -> None:
        """Set the rates of the next step, or those after `epoch` steps."""
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        self.set_rates(self.get_lr())

    @property
    def step_count(self) -> int:  # type: ignore[override]
        return self.last_epoch + 1

    _step_count = step_count

    def rates(self, step: int) -> list[float]:
        return self.get_last_lr()  # after load_state_dict: those in the optimizer's state


_LRScheduler = LRScheduler


class LambdaLR(LRScheduler):
    """The first rate times `lr_lambda(n)`: one function, or a list with one for each group.

    The functions are not in the state, even if they are objects.
    """

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1) -> None:
        self.lr_lambda = lr_lambda
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        n, f = len(self.base_lrs), self.lr_lambda
        functions = f if isinstance(f, (list, tuple)) else [f] * n
        if len(functions) != n or not all(map(callable, functions)):
            raise TypeError(f"lr_lambda is a function or a list of {n}, one per group, got {f!r}")
        return [f(self.last_epoch) * base for f, base in zip(functions, self.base_lrs, strict=True)]


class Formula(LRScheduler):
    """A schedule whose `formula` takes a group's rate in `base_lrs` and the schedule's arguments.

    last_epoch= has to be named.
    """

    formula: Any

    def __init__(self, optimizer: Any, *settings: Any, last_epoch: int = -1, **named: Any) -> None:
        self.settings, self.named = settings, named
        present = [group["lr"] for group in getattr(optimizer, "param_groups", ())]
        super().__init__(optimizer, last_epoch)
        # As in PyTorch, a schedule made after another one does not end its warmup.
        self.set_rates([self.formula(lr, *settings, **named) for lr in present])

    def get_lr(self) -> list[float]:
        return [self.formula(base, *self.settings, **self.named) for base in self.base_lrs]


class StepLR(Formula):
    """Times `gamma` after every `step_size` steps."""

    def formula(self, base: float, step_size: int, gamma: float = 0.1) -> float:
        return base * gamma ** (self.last_epoch // check_size("step_size", step_size))


class MultiStepLR(Formula):
    """Times `gamma` after each number of steps in `milestones`."""

    def formula(self, base: float, milestones: list[int], gamma: float = 0.1) -> float:
        return base * gamma ** bisect_right(sorted(milestones), self.last_epoch)


class LinearLR(Formula):
    """Times a factor that goes from `start_factor` to `end_factor` in `total_iters` steps."""

    def formula(
        self, base: float, start_factor: float = 1 / 3, end_factor: float = 1, total_iters: int = 5
    ) -> float:
        part = min(self.last_epoch / check_size("total_iters", total_iters), 1)
        return base * (start_factor + (end_factor - start_factor) * part)


class ExponentialLR(Formula):
    """Times `gamma` after every step."""

    def formula(self, base: float, gamma: float) -> float:
        return base * gamma**self.last_epoch


class CosineAnnealingLR(Formula):
    """Down to `eta_min` in T_max steps on half a cosine, then up again."""

    def formula(self, base: float, T_max: float, eta_min: float = 0.0) -> float:
        turn = math.cos(math.pi * self.last_epoch / check_number("T_max", T_max, 1))
        return eta_min + (base - eta_min) * (1 + turn) / 2


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
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ValueError(
                'mode is "min" or "max", threshold_mode "rel" or "abs", got '
                f"{mode!r} and {threshold_mode!r}"
            )
        if check_number("factor", factor, 0) >= 1:
            raise ValueError(f"factor is at least 0 and below 1, got {factor}")
        self.mode, self.threshold_mode, self.factor = mode, threshold_mode, factor
        self.patience = check_size("patience", patience, 0)
        self.cooldown = check_size("cooldown", cooldown, 0)
        self.threshold = check_number("threshold", threshold, 0)
        self.eps = check_number("eps", eps, 0)
        groups = len(getattr(optimizer, "param_groups", ()))
        least = list(min_lr) if isinstance(min_lr, (list, tuple)) else [min_lr] * groups
        if len(least) != groups:
            raise ValueError(f"min_lr is a number or {groups}, got {min_lr}")
        self.min_lrs = [check_number("min_lr", lr, 0) for lr in least]
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = self.cooldown_counter = 0
        super().__init__(optimizer)

    def _initial_step(self) -> None:
        self.last_epoch = 0  # there is no number yet

    def is_better(self, number: float) -> bool:
        sign = -1 if self.mode == "min" else 1
        margin = sign * self.threshold
        limit = self.best * (1 + margin) if self.threshold_mode == "rel" else self.best + margin
        return sign * (number - limit) > 0

    def lower(self, lr: float, least: float) -> float:
        new = max(lr * self.factor, least)
        return new if lr - new > self.eps else lr

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        try:
            number = float(metrics)
        except (TypeError, ValueError):
            name = type_name(metrics)
            raise TypeError(
                f"step takes the number that should become better, got {name}"
            ) from None
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        better = self.is_better(number)
        self.best = number if better else self.best
        self.num_bad_epochs = 0 if better else self.num_bad_epochs + 1
        if self.cooldown_counter:
            self.cooldown_counter, self.num_bad_epochs = self.cooldown_counter - 1, 0
        if self.num_bad_epochs > self.patience:
            self.set_rates(list(map(self.lower, self.get_last_lr(), self.min_lrs)))
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
