"""What PyTorch's schedules share, and those that multiply the present rates by a factor."""

import inspect
import math
from typing import Any

from ...base.checks import check_number, check_size, checked_probability
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
        """Nothing: `get_lr` of most subclasses goes on from the present rates."""

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

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a saved state. The rates are in the state of the optimizer."""
        self.check_names(state_dict)
        vars(self).update(state_dict)


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
        bound = inspect.signature(self.change).bind(0, *settings, **named)
        bound.apply_defaults()
        check_number("gamma", bound.arguments.get("gamma", 0), 0)
        self.change(*bound.args, **bound.kwargs)  # which refuses values that do not fit
        self.settings = [name for name in bound.arguments if name != "n"]
        vars(self).update((name, bound.arguments[name]) for name in self.settings)
        super().__init__(optimizer, last_epoch)

    def factor_of(self, n: int) -> float:
        return self.change(n, *[getattr(self, name) for name in self.settings])

    def get_lr(self) -> list[float]:
        if self._is_initial and self.last_epoch and self.keeps_rates:
            return self.present()
        return [rate * self.factor_of(self.last_epoch) for rate in self.present()]

    def _get_closed_form_lr(self) -> list[float]:
        factor = math.prod(map(self.factor_of, range(check_size("epoch", self.last_epoch, 0) + 1)))
        return [base * factor for base in self.base_lrs]


class StepLR(Chained):
    """Times `gamma` after every `step_size` steps."""

    keeps_rates = False

    def change(self, n: int, step_size: int, gamma: float = 0.1) -> float:
        return 1 if n % check_number("step_size", step_size, 1) or not n else gamma


class MultiStepLR(Chained):
    """Times `gamma` after each number of steps in `milestones`."""

    keeps_rates = False

    def __init__(self, optimizer: Any, milestones: Any, *settings: Any, **named: Any) -> None:
        super().__init__(optimizer, list(milestones), *settings, **named)

    def change(self, n: int, milestones: Any, gamma: float = 0.1) -> float:
        return gamma ** list(milestones).count(n)


class ConstantLR(Chained):
    """Times `factor` for the first `total_iters` steps."""

    keeps_rates = False

    def change(self, n: int, factor: float = 1 / 3, total_iters: int = 5) -> float:
        check_number("factor", checked_probability(factor, "factor"), LEAST)
        return factor if n == 0 else 1 / factor if n == total_iters else 1


class LinearLR(Chained):
    """Times a factor that goes from `start_factor` to `end_factor` in `total_iters` steps."""

    def change(
        self, n: int, start_factor: float = 1 / 3, end_factor: float = 1, total_iters: int = 5
    ) -> float:
        check_number("start_factor", checked_probability(start_factor, "start_factor"), LEAST)
        rise = checked_probability(end_factor, "end_factor") - start_factor
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
