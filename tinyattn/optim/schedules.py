"""Schedules: the learning rate as a function of the number of steps."""

import copy
import math
from collections.abc import Callable
from typing import Any

from ..base.checks import check_number, check_size, check_type
from ..errors import CheckpointError
from .optimizer import Optimizer


def checked_optimizer(optimizer: Any) -> Optimizer:
    return check_type("a schedule takes an optimizer", optimizer, Optimizer)


def first_rates(optimizer: Optimizer) -> list[float]:
    """The rate of each parameter group from before the optimizer got its first schedule."""
    return [group.setdefault("initial_lr", group["lr"]) for group in optimizer.param_groups]


class Schedule:
    """Sets an optimizer's `lr` by a formula of the step number, counted from 1 with `step()`.

    The rate of the first step is set at once: call `step()` after each `optimizer.step()`. The
    formula is that of the first parameter group. The others keep the proportion to it that they
    have when the schedule is made, or when they are added.
    A step multiplies the rates by rate(n) / rate(n - 1), as PyTorch's schedules do. So the rates of
    several schedules on one optimizer are multiplied, and so is a rate that is set by hand.
    """

    not_saved: tuple[str, ...] = ("optimizer",)

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = checked_optimizer(optimizer)
        self.proportions = self.proportions_of(optimizer)
        first_rates(optimizer)
        self.step_count = 0
        self.step()

    def rate(self, step: int) -> float:
        raise TypeError(f"{type(self).__name__} defines no rate()")

    def rates(self, step: int) -> list[float]:
        """The rate of each parameter group."""
        rate = check_number("lr", self.rate(step), 0)
        return [rate * proportion for proportion in self.proportions]

    def take_over(self) -> None:
        """Keep as factors what else has changed the rates since the last step."""
        rate = self.rate(self.step_count)
        for i, lr in enumerate(self.present() if rate else []):
            if i == len(self.proportions):  # a group that was added
                self.proportions.append(lr / rate)
            elif lr != rate * self.proportions[i]:
                self.proportions[i] = lr / rate

    @staticmethod
    def proportions_of(optimizer: Optimizer) -> list[float]:
        """The rate of each parameter group over that of the first one."""
        first, *others = [group["lr"] for group in optimizer.param_groups]
        if not first and any(others):
            raise ValueError(
                "a schedule keeps the proportion of the groups' rates, but the first is 0 and the "
                f"others are {others}"
            )
        return [1.0, *(other / first if first else 1.0 for other in others)]

    def present(self) -> list[float]:
        return [group["lr"] for group in self.optimizer.param_groups]

    def check_groups(self, values: list[Any]) -> None:
        if len(values) != len(self.optimizer.param_groups):
            raise ValueError(
                f"the schedule was made for {len(values)} parameter groups, the optimizer has "
                f"{len(self.optimizer.param_groups)}: make a new schedule after add_param_group"
            )

    def set_rates(self, rates: list[float]) -> None:
        rates = [check_number("lr", rate, 0) for rate in rates]
        self.check_groups(rates)
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate

    def step(self) -> None:
        if self.step_count:
            self.take_over()
        self.set_rates(self.rates(self.step_count + 1))
        self.step_count += 1

    def get_last_lr(self) -> list[float]:
        """The present rate of each parameter group."""
        return self.present()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(step_count={self.step_count}, lr={self.get_last_lr()})"

    def state_dict(self) -> dict[str, Any]:
        """The step number and the numbers of the formula."""
        self.take_over()
        return copy.deepcopy({n: x for n, x in vars(self).items() if n not in self.not_saved})

    def check_names(self, state: Any) -> None:
        """CheckpointError for what is no state of such a schedule."""
        names = list(self.state_dict())
        if not isinstance(state, dict) or set(state) != set(names):
            keys = list(state) if isinstance(state, dict) else type(state).__name__
            raise CheckpointError(f"a {type(self).__name__} has {names}, got {keys}")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state, with the rates that it had."""
        self.check_names(state)
        later = copy.copy(self)
        later.__dict__.update(copy.deepcopy(state))
        try:
            self.set_rates(later.rates(check_size("step_count", later.step_count)))
        except (TypeError, ValueError, ArithmeticError) as error:
            raise CheckpointError(f"not a {type(self).__name__}'s state: {error}") from None
        self.__dict__.update(later.__dict__)


class LambdaLR(Schedule):
    """The first learning rate of each parameter group, times `lr_lambda(n)` after n steps.

    It is the rate from before the optimizer got its first schedule, and nothing else is kept: of
    two LambdaLR the last one decides, as in PyTorch.
    Differs from PyTorch: one function for all groups. It is not in the state.

    Noam's schedule takes one line of code:

        >>> adam = optim.Adam([ta.zeros(2, requires_grad=True)], lr=1.0)
        >>> noam = lambda n: 512**-0.5 * min((n + 1) ** -0.5, (n + 1) * 4000**-1.5)
        >>> optim.LambdaLR(adam, noam).get_last_lr() == [noam(0)]
        True
    """

    not_saved = ("optimizer", "lr_lambda", "proportions")

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[int], float]) -> None:
        check_type("lr_lambda is one function of the steps", lr_lambda, Callable)
        self.lr_lambda, self.base_lrs = lr_lambda, first_rates(checked_optimizer(optimizer))
        super().__init__(optimizer)

    @staticmethod
    def proportions_of(optimizer: Optimizer) -> list[float]:
        return []  # each group has a rate of its own in `base_lrs`

    def take_over(self) -> None:
        pass

    def rates(self, step: int) -> list[float]:
        factor = check_number("what lr_lambda returns", self.lr_lambda(step - 1), 0)
        return [base * factor for base in self.base_lrs]


class WarmupSchedule(Schedule):
    """lr = factor * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5): up, then slowly down.

    The schedule of "Attention Is All You Need", 2017, known as Noam. It does not depend on the
    optimizer's own lr; groups keep the proportion of theirs.
    """

    def __init__(
        self, optimizer: Optimizer, d_model: int, warmup: int = 4000, factor: float = 1.0
    ) -> None:
        for name, value in (("d_model", d_model), ("warmup", warmup)):
            check_number(name, value, 1)
        self.d_model, self.warmup = d_model, warmup
        self.factor = check_number("factor", factor, 0)
        super().__init__(optimizer)

    def rate(self, step: int) -> float:
        return self.factor * self.d_model**-0.5 * min(step**-0.5, step * self.warmup**-1.5)


class CosineSchedule(Schedule):
    """Up linearly over `warmup` steps to the optimizer's lr, then down a half cosine to `final`.

    total: the number of steps at whose end `final` is reached; it stays there. Differs from
    PyTorch: `final` is the rate of the first parameter group, and the others keep their proportion.
    Source: Loshchilov and Hutter, "SGDR", 2017 (one period, without restarts).
    """

    def __init__(
        self, optimizer: Optimizer, total: int, warmup: int = 0, final: float = 0.0
    ) -> None:
        if check_number("total", total, 0) <= check_number("warmup", warmup, 0):
            raise ValueError(f"warmup must lie in [0, total), got {warmup} of {total}")
        self.total, self.warmup, self.final = total, warmup, check_number("final", final, 0)
        self.peak = checked_optimizer(optimizer).param_groups[0]["lr"]
        super().__init__(optimizer)

    def rate(self, step: int) -> float:
        if step <= self.warmup:
            return self.peak * step / self.warmup
        progress = min(1.0, (step - self.warmup) / (self.total - self.warmup))
        return self.final + (self.peak - self.final) * 0.5 * (1 + math.cos(math.pi * progress))
