"""PyTorch's schedules under its names and arguments; tinyattn.optim has its own.

CyclicLR is not here: write a LambdaLR, which takes any function of the step, or set group["lr"] of
optimizer.param_groups.

In tinyattn: the schedules are in optim itself
"""

from __future__ import annotations

import inspect
import math
from bisect import bisect_right
from typing import Any

from ...base.checks import check_number, check_size, listed, type_name
from ...optim import Optimizer, Schedule
from ...optim.schedules import checked_optimizer, first_rates

LEAST = 1e-300  # of what divides


class LRScheduler(Schedule):
    """The rates that `get_lr()` returns for `last_epoch`, which counts the calls of `step()`.

    A subclass defines `get_lr`, the rate of each parameter group. Most schedules multiply the
    present rates by a factor. So they can be used together, and a rate that is set by hand stays.
    `base_lrs` are the rates from before the optimizer got its first schedule: group["initial_lr"].
    last_epoch: -1, or the epoch of a saved optimizer whose rates are kept.
    A rate below 0 is refused, because a step would go uphill.

        >>> from tinyattn.torch_names.optim.lr_scheduler import LRScheduler
        >>> class Halved(LRScheduler):
        ...     def get_lr(self):
        ...         return [base * 0.5**self.last_epoch for base in self.base_lrs]
        >>> schedule = Halved(optim.SGD([ta.zeros(2, requires_grad=True)], lr=1.0))
        >>> schedule.step()
        >>> schedule.get_last_lr()
        [0.5]
    """

    not_saved = ("optimizer", "lr_lambdas", "_schedulers")
    _is_initial = False

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        groups = checked_optimizer(optimizer).param_groups
        if last_epoch != -1 and any("initial_lr" not in group for group in groups):
            raise ValueError(
                f"last_epoch is -1, got {last_epoch}: call load_state_dict(state), or give each "
                "parameter group its initial_lr"
            )
        self.optimizer, self.base_lrs, self.last_epoch = optimizer, [], last_epoch
        self.base_lrs = first_rates(optimizer)
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count, self._is_initial = 0, True
        self.step()
        self._is_initial = False

    def get_lr(self) -> list[float]:
        raise TypeError(f"{type(self).__name__} defines no get_lr()")

    def take_over(self) -> None:
        pass

    def step(self, epoch: int | None = None) -> None:
        """Set the rates of the next step, or those after `epoch` steps."""
        before = dict(vars(self))
        self._step_count += 1
        try:
            self._update_lr(epoch)
        except Exception:
            vars(self).update(before)  # a step that is refused changes nothing
            raise

    def _update_lr(self, epoch: int | None = None) -> None:
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        closed = getattr(self, "_get_closed_form_lr", self.get_lr)
        self.set_rates(self.get_lr() if epoch is None else closed())

    def undo(self) -> None:
        """Take back the step of the constructor, for schedules that begin later."""
        self.last_epoch -= 1

    def set_rates(self, rates: list[float]) -> None:
        super().set_rates(rates)
        self._last_lr = self.present()

    def get_last_lr(self) -> list[float]:
        """The rate of each parameter group after the last step of this schedule."""
        return list(vars(self).get("_last_lr") or self.present())

    @property
    def step_count(self) -> int:  # type: ignore[override]
        return self.last_epoch + 1

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state. The rates are in the state of the optimizer."""
        self.check_names(state)
        vars(self).update(state)


class _LRScheduler(LRScheduler):
    pass


class LambdaLR(LRScheduler):
    """The first rate times `lr_lambda(n)`: one function, or a list with one for each group.

    The functions are not in the state, even if they are objects.
    """

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1) -> None:
        n = len(checked_optimizer(optimizer).param_groups)
        functions = lr_lambda if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * n
        if len(functions) != n or not all(map(callable, functions)):
            raise TypeError(
                f"lr_lambda is a function or a list of {n}, one per group, got {lr_lambda!r}"
            )
        self.lr_lambdas = list(functions)
        super().__init__(optimizer, last_epoch)

    def times_factors(self, rates: list[float]) -> list[float]:
        self.check_groups(self.lr_lambdas)
        pairs = zip(rates, self.lr_lambdas, strict=True)
        return [rate * factor(self.last_epoch) for rate, factor in pairs]

    def get_lr(self) -> list[float]:
        return self.times_factors(self.base_lrs)


class MultiplicativeLR(LambdaLR):
    """In each step the present rate times `lr_lambda(n)`."""

    def get_lr(self) -> list[float]:
        return self.present() if self._is_initial else self.times_factors(self.present())


def check_part(name: str, value: Any, least: float = LEAST) -> float:
    if check_number(name, value, 0) > 1 or value < least:
        raise ValueError(f"{name} lies between 0 and 1, got {value!r}")
    return float(value)


def of_groups(name: str, value: Any, groups: Any) -> list[float]:
    """A number for each parameter group: a list of them, or one for all."""
    values = value if isinstance(value, (list, tuple)) else [value] * len(groups)
    if len(values) != len(groups):
        raise ValueError(f"{name} is a number or {len(groups)}, got {value}")
    return [check_number(name, x, 0) for x in values]


class Chained(LRScheduler):
    """A schedule that multiplies the present rates by `change(n, ...)` in step n.

    n is 0 when the schedule is made. Its arguments are those of `change` after n, and last_epoch,
    which has to be named. As in PyTorch they are attributes, which may change between steps.
    """

    keeps_rates = True  # when it is made with a last_epoch
    change: Any

    def __init__(self, optimizer: Any, *settings: Any, last_epoch: int = -1, **named: Any) -> None:
        self.change(0, *settings, **named)  # which refuses arguments that do not fit
        bound = inspect.signature(self.change).bind(0, *settings, **named)
        bound.apply_defaults()
        self.settings = [name for name in bound.arguments if name != "n"]
        vars(self).update((name, bound.arguments[name]) for name in self.settings)
        super().__init__(optimizer, last_epoch)

    def factor_of(self, n: int) -> float:
        return self.change(n, *[getattr(self, name) for name in self.settings])

    def get_lr(self) -> list[float]:
        if self._is_initial and self.last_epoch and self.keeps_rates:
            return self.present()
        factor = self.factor_of(self.last_epoch)
        return [rate * factor for rate in self.present()]

    def _get_closed_form_lr(self) -> list[float]:
        factor = math.prod(map(self.factor_of, range(int(self.last_epoch) + 1)))
        return [base * factor for base in self.base_lrs]


class StepLR(Chained):
    """Times `gamma` after every `step_size` steps."""

    keeps_rates = False

    def change(self, n: int, step_size: int, gamma: float = 0.1) -> float:
        return 1 if n % check_size("step_size", step_size) or not n else gamma


class MultiStepLR(Chained):
    """Times `gamma` after each number of steps in `milestones`."""

    keeps_rates = False

    def change(self, n: int, milestones: Any, gamma: float = 0.1) -> float:
        return gamma ** list(milestones).count(n)


class ConstantLR(Chained):
    """Times `factor` for the first `total_iters` steps."""

    keeps_rates = False

    def change(self, n: int, factor: float = 1 / 3, total_iters: int = 5) -> float:
        check_part("factor", factor)
        return factor if n == 0 else 1 / factor if n == total_iters else 1


class LinearLR(Chained):
    """Times a factor that goes from `start_factor` to `end_factor` in `total_iters` steps."""

    def change(
        self, n: int, start_factor: float = 1 / 3, end_factor: float = 1, total_iters: int = 5
    ) -> float:
        check_part("start_factor", start_factor)
        rise = check_part("end_factor", end_factor, 0) - start_factor
        if n > check_size("total_iters", total_iters) or n == 0:
            return 1 if n else start_factor
        return max(1 + rise / (total_iters * start_factor + (n - 1) * rise), 0)


class ExponentialLR(Chained):
    """Times `gamma` after every step."""

    def change(self, n: int, gamma: float) -> float:
        return gamma if n else 1


class PolynomialLR(Chained):
    """Down to 0 in `total_iters` steps: the first rate times (1 - n / total_iters) ** power."""

    def change(self, n: int, total_iters: int = 5, power: float = 1.0) -> float:
        left = check_size("total_iters", total_iters) - n
        return (left / (left + 1)) ** power if n and left >= 0 else 1


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
    three_phase= and last_epoch= have to be named. No rate is below 0.
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
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f'anneal_strategy is "cos" or "linear", got {anneal_strategy!r}')
        groups = checked_optimizer(optimizer).param_groups
        if total_steps is None:
            total_steps = check_size("epochs", epochs) * check_size(
                "steps_per_epoch", steps_per_epoch
            )
        self.total_steps = n = check_size("total_steps", total_steps)
        self.anneal_strategy, third = anneal_strategy, named.get("three_phase", False)
        up = check_part("pct_start", pct_start, 0) * n
        self.ends = [up - 1, 2 * up - 2, n - 1] if third else [up - 1, n - 1]
        check_number("div_factor", div_factor, LEAST)
        check_number("final_div_factor", final_div_factor, LEAST)
        self.corners = []
        for high in of_groups("max_lr", max_lr, groups):
            low = high / div_factor
            self.corners.append([low, high, *[low] * third, low / final_div_factor])
        self.momentum = "betas" if "betas" in groups[0] else "momentum"
        if cycle_momentum and self.momentum not in groups[0]:
            raise ValueError("cycle_momentum needs an optimizer with a momentum or betas")
        most = of_groups("max_momentum", max_momentum, groups)
        least = of_groups("base_momentum", base_momentum, groups)
        pairs = zip(most, least, strict=True) if cycle_momentum else ()
        self.momenta = [[high, low, *[high] * third, high] for high, low in pairs]
        for group, corners in zip(groups, self.corners, strict=True):
            group["initial_lr"] = corners[0]
        super().__init__(optimizer, named.get("last_epoch", -1))

    def get_lr(self) -> list[float]:
        n, ends = self.last_epoch, self.ends
        if n > self.total_steps:
            raise ValueError(f"this OneCycleLR has {self.total_steps} steps, got step {n}")
        self.check_groups(self.corners)
        i = next((i for i, end in enumerate(ends) if n <= end), len(ends) - 1)
        start = ends[i - 1] if i else 0.0
        left = (ends[i] - n) / (ends[i] - start) if ends[i] != start else 0.0
        if self.anneal_strategy == "cos":
            left = (1 - math.cos(math.pi * left)) / 2
        rates, momenta = (
            [max(p[i + 1] + (p[i] - p[i + 1]) * left, 0.0) for p in points]
            for points in (self.corners, self.momenta)
        )
        for group, momentum in zip(self.optimizer.param_groups, momenta, strict=False):
            is_pair = self.momentum == "betas"
            group[self.momentum] = (momentum, group["betas"][1]) if is_pair else momentum
        return rates


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

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.check_names(state)
        pairs = list(zip(self._schedulers, state["_schedulers"], strict=True))
        for schedule, each in pairs:
            schedule.check_names(each)
        for schedule, each in pairs:
            schedule.load_state_dict(each)
        super().load_state_dict({**state, "_schedulers": self._schedulers})


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
        self.last_epoch += 1
        i = bisect_right(self._milestones, self.last_epoch)
        if i and self._milestones[i - 1] == self.last_epoch:
            self._schedulers[i]._update_lr(0)
        else:
            self._schedulers[i].step()
        self._last_lr = self.present()


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
            least = of_groups("min_lr", self.min_lr, self.optimizer.param_groups)
            self.set_rates(list(map(self.lower, self.present(), least)))
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = self.present()
