"""Optimizers and learning-rate schedules, after PyTorch's update rules."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np

from . import kernels
from .base import backend
from .base.backend import FLOAT16, Array, namespace
from .base.checks import check_number, check_size, listed, type_name
from .base.names import UnknownNameError
from .engine.autograd import wrap
from .engine.grad_mode import enable_grad
from .engine.promotion import wider_number
from .engine.versions import Version
from .errors import CheckpointError, GraphError, ShapeError
from .kernels import FLOAT32
from .kernels.reference import AdamStep
from .tensors.create import zeros_like
from .tensors.tensor import Tensor

T = TypeVar("T")
MOMENTS = ("m", "v")
Parameters = Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]]


def listed_parameters(parameters: Any) -> list[Any]:
    """A list of Tensors or of groups, as the caller has given it."""
    if isinstance(parameters, Tensor):
        raise TypeError("parameters must be an iterable of Tensors, such as model.parameters()")
    if hasattr(parameters, "parameters"):
        raise TypeError("an optimizer takes the parameters, not the module: model.parameters()")
    if not isinstance(parameters, Iterable):
        kind = type(parameters).__name__
        raise TypeError(f"an optimizer takes parameters, such as model.parameters(), got a {kind}")
    parameters = listed("an optimizer", parameters)
    if not parameters:
        raise ValueError("an optimizer needs parameters, got an empty list")
    return parameters


def checked_parameters(parameters: Any) -> list[Tensor]:
    parameters = FixedList(listed_parameters(parameters))
    for i, parameter in enumerate(parameters):
        if not isinstance(parameter, Tensor):
            if all(isinstance(pair, tuple) and len(pair) == 2 for pair in parameters):
                return checked_parameters([value for _, value in parameters])
            raise TypeError(f"parameter {i} is a {type(parameter).__name__}, not a Tensor")
        if not parameter.is_leaf:
            raise GraphError(f"parameter {i} was computed; only leaves can be optimized")
    return parameters


class FixedList(list[Any]):
    """A list that only `Optimizer.add_param_group` makes longer, because each parameter has a place
    in the optimizer's state."""

    def __reduce__(self) -> Any:  # a copy is made by its constructor, not by appending
        return FixedList, (list(self),)

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError(
            "call optimizer.add_param_group({'params': [...]}) to add parameters, and make a new "
            "optimizer to leave some out"
        )

    append = extend = insert = remove = pop = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse


class ParamGroup(dict[str, Any]):
    """Parameters ("params") and their settings; a value that is none is refused when it is set."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.update(settings)

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def update(self, *args: Any, **settings: Any) -> None:
        changes = {n: self._checked(n, value) for n, value in dict(*args, **settings).items()}
        group = {**self, **changes}
        if group.get("nesterov") and (not group["momentum"] or group["dampening"]):
            raise ValueError("nesterov needs a momentum > 0 and no dampening")
        super().update(changes)

    def _checked(self, name: str, value: Any) -> Any:
        if self and (name == "params" or name not in self):
            if name in self:
                FixedList()._refuse()
            raise KeyError(f"a parameter group has {list(self)}, got {name!r}")
        if name in ("lr", "momentum", "dampening", "weight_decay", "eps"):
            return check_number(name, value, 0)
        if name == "betas":
            if not isinstance(value, (tuple, list)) or len(value) != 2:
                raise ValueError(f"betas are two numbers, got {value!r}")
            return tuple(check_number(f"betas[{i}]", beta, 0, 1) for i, beta in enumerate(value))
        return value

    def __ior__(self, other: Any) -> ParamGroup:  # type: ignore[override, misc]
        self.update(other)
        return self

    def setdefault(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else self._checked(name, default)

    def __reduce__(self) -> Any:  # all settings at once, because they are checked together
        return ParamGroup, (dict(self),)

    def _refuse(self, *_: Any) -> Any:
        raise TypeError(f"a parameter group keeps {list(self)}: set them to other values")

    __delitem__ = pop = popitem = clear = _refuse


def checked_group(entry: Any, defaults: dict[str, Any]) -> ParamGroup:
    """The group that a dict stands for, with the optimizer's settings where it has none."""
    if not isinstance(entry, dict) or "params" not in entry:
        raise TypeError(f"a parameter group is a dict with the key 'params', got {entry!r}")
    if unknown := entry.keys() - {"params"} - defaults.keys():
        raise ValueError(f"a parameter group has {list(defaults)}, got {sorted(unknown)}")
    params = [entry["params"]] if isinstance(entry["params"], Tensor) else entry["params"]
    return ParamGroup({**defaults, **entry, "params": checked_parameters(params)})


def setting(name: str) -> property:
    """A setting of the first group. To set it sets it in every group."""

    def set_all(optimizer: Optimizer, value: Any) -> None:
        for group in optimizer.param_groups:  # all are checked before the first is changed
            ParamGroup(group).update({name: value})
        for group in optimizer.param_groups:
            group[name] = value

    return property(lambda optimizer: optimizer.param_groups[0][name], set_all)


def entries_of(parameters: Any) -> list[Any]:
    """The groups that an optimizer was given: a list of dicts, or one that has all parameters."""
    entries = listed_parameters(parameters)
    return entries if isinstance(entries[0], dict) else [{"params": entries}]


def writable_parameter(parameter: Tensor) -> Array:
    """The array of a parameter, in memory that may be written to.

    A leaf made by detach() shows the memory of a recorded result, which a graph may need.
    """
    array = parameter._data
    is_locked = type(array) is np.ndarray and not array.flags.writeable
    if parameter._version is None or is_locked:
        parameter._data, parameter._version = array.copy(), Version()
    return parameter._data


class Optimizer:
    """What all optimizers share: parameters, their settings, arrays that go with each parameter and
    have its shape, and a state that can be saved and taken up again bitwise.

    params: Tensors, or pairs of a name and a Tensor, as `named_parameters()` gives them; or a list
        of groups: dicts with these under "params" and the settings in which they differ.
        `param_groups` has all settings of each, which may change between steps.
    Differs from PyTorch: a group has no other keys, because a wrong name would have no effect.

        >>> w, b = (ta.zeros(2, requires_grad=True) for _ in range(2))
        >>> groups = [{"params": [w], "weight_decay": 0.1}, {"params": [b], "lr": 0.5}]
        >>> [group["lr"] for group in optim.SGD(groups, lr=0.01).param_groups]
        [0.01, 0.5]
    """

    # Names of the arrays that each parameter has in `state` after its first step, if it has any.
    slots: tuple[str, ...] = ()

    lr = setting("lr")

    def __init__(self, params: Parameters, lr: float, **settings: Any) -> None:
        self.defaults = {"lr": lr, **settings}
        self._take([checked_group(entry, self.defaults) for entry in entries_of(params)])
        self.state: dict[str, list[Array | None]] = {}
        self.steps: list[int] = [0] * len(self._parameters)

    def add_param_group(self, group: dict[str, Any]) -> None:
        """Optimize more parameters: {"params": Tensors} and the settings in which they differ.

        The other settings are those that the optimizer was made with. Raises ValueError for a
        parameter that the optimizer has, and for settings that it does not have.

            >>> w, b = (ta.zeros(2, requires_grad=True) for _ in range(2))
            >>> sgd = optim.SGD([w], lr=0.1)
            >>> sgd.add_param_group({"params": [b], "lr": 0.5})
            >>> [group["lr"] for group in sgd.param_groups]
            [0.1, 0.5]
        """
        added = checked_group(group, self.defaults)
        self._take([*self._param_groups, added])
        more = len(added["params"])
        self.steps = self.steps + [0] * more
        self.state = {name: slots + [None] * more for name, slots in self.state.items()}

    def _take(self, groups: list[ParamGroup]) -> None:
        """Have these groups, the present ones first among them."""
        parameters = [parameter for group in groups for parameter in group["params"]]
        if len({id(parameter) for parameter in parameters}) != len(parameters):
            raise ValueError("a parameter is listed twice")
        self._param_groups = FixedList(groups)
        # The parameters of all groups, and the group of each of them.
        self._parameters = FixedList(parameters)
        self._groups = [group for group in groups for _ in group["params"]]

    @property
    def param_groups(self) -> list[ParamGroup]:
        """The groups of parameters and their settings; `add_param_group` adds one."""
        return self._param_groups

    @param_groups.setter
    def param_groups(self, value: Any) -> None:
        FixedList()._refuse()

    @property
    def parameters(self) -> list[Tensor]:
        """The parameters of all groups, one after another."""
        return self._parameters

    @parameters.setter
    def parameters(self, value: Any) -> None:
        FixedList()._refuse()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, or fill them with 0; otherwise the next backward adds to them."""
        for parameter in self._parameters:
            keep = not set_to_none and parameter.grad is not None
            parameter.grad = zeros_like(parameter) if keep else None

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], T]) -> T: ...
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move every parameter that has a gradient.

        closure: called before, with gradients recorded, to compute them; its value is returned.
        """
        if closure is not None:
            return self.step_after(closure)
        updates: list[tuple[int, Array, Array]] = []
        arrays = next(iter(self.state.values()), [None] * len(self._parameters))
        for i, (parameter, slot) in enumerate(zip(self._parameters, arrays, strict=True)):
            grad = parameter.grad
            if grad is None:
                continue
            array, grad_array = writable_parameter(parameter), grad._data
            if slot is not None and slot.shape != array.shape:
                raise ShapeError(
                    f"parameter {i} had shape {slot.shape} in its last step and has {array.shape} "
                    f"now: make a new {type(self).__name__} for it"
                )
            if grad_array.dtype is not array.dtype:
                grad_array = grad_array.astype(array.dtype, copy=False)
            updates.append((i, array, grad_array))
        if backend.capturing.step is not None:
            backend.capturing.step.optimizer_step(self, updates)
        versions = [self._parameters[i]._version for i, *_ in updates]
        for version in versions:
            version.begin_change()
        try:
            self.count(updates)
            backend.quietly(self.update_all, updates)  # a warning could end it in the middle
        finally:
            for version in versions:
                version.end_change()

    def step_after(self, closure: Callable[[], T]) -> T:
        if not callable(closure):
            raise TypeError(f"a closure is a function, got {closure!r}")
        with enable_grad():
            value = closure()
        self.step()
        return value

    def count(self, updates: list[tuple[int, Array, Array]]) -> None:
        """Another step of these parameters."""
        for i, *_ in updates:
            self.steps[i] += 1

    def update_all(self, updates: list[tuple[int, Array, Array]]) -> None:
        """`update` for each of (number, parameter, gradient)."""
        for i, parameter, grad in updates:
            self.update(i, parameter, grad)

    def update(self, i: int, parameter: Array, grad: Array) -> None:
        """Change the array of parameter number i in place."""
        raise TypeError(f"{type(self).__name__} defines no update()")

    def slot(self, name: str, i: int, like: Array) -> Array:
        """The array `name` that goes with parameter i; zeros at first. For float16 it is float32:
        small squares of gradients, and Adam's eps, are 0 in float16."""
        slots = self.state.get(name)
        if slots is None:
            slots = self.state[name] = [None] * len(self._parameters)
        array = slots[i]
        if array is not None and array.dtype is like.dtype:
            return array
        dtype = FLOAT32 if like.dtype == FLOAT16 else like.dtype
        if array is None:
            array = slots[i] = namespace(like).zeros(like.shape, dtype)
        elif array.dtype != dtype:  # the parameter was converted
            array = slots[i] = array.astype(dtype)
        return array

    def __repr__(self) -> str:
        texts = []
        for group in self._param_groups:
            params = group["params"]
            numbers = {"tensors": len(params), "parameters": sum(x.numel() for x in params)}
            settings = {name: x for name, x in group.items() if name != "params"}
            texts.append(", ".join(f"{name}={x!r}" for name, x in (numbers | settings).items()))
        if len(texts) > 1:
            texts = [f"\n  group {i}: {text}" for i, text in enumerate(texts)] + ["\n"]
        return f"{type(self).__name__}({''.join(texts)})"

    def state_dict(self) -> dict[str, Any]:
        """Copies of everything that changes while training, for `ta.save`."""
        arrays = {
            f"{name}.{i}": Tensor(array)
            for name, slots in self.state.items()
            for i, array in enumerate(slots)
            if array is not None
        }
        groups = [{**group, "params": len(group["params"])} for group in self.param_groups]
        return {
            "kind": type(self).__name__,
            "lr": self.lr,
            "groups": groups,  # with the number of their parameters
            "steps": list(self.steps),
            "arrays": arrays,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state, with its settings; refused as a whole if it does not fit."""
        if isinstance(state, dict) and {"state", "param_groups"} <= state.keys():
            raise CheckpointError(
                "this is the state of an optimizer of PyTorch; one of tinyattn has kind, lr, "
                "groups, steps and arrays, as state_dict() gives them"
            )
        try:
            steps = [check_size("a number of steps", step, 0) for step in state["steps"]]
            lr = check_number("lr", state["lr"], 0)
            kind, entries = str(state["kind"]), dict(state["arrays"])
            # A state of an older version has one learning rate and no groups.
            saved_groups = state.get("groups") or [{"lr": lr}] * len(self.param_groups)
            if saved_groups[0]["lr"] != lr:
                raise ValueError(f"lr is {lr}, and that of the first group {saved_groups[0]['lr']}")
            settings = []
            for group, saved in zip(self.param_groups, saved_groups, strict=True):
                if saved.get("params", len(group["params"])) != len(group["params"]):
                    raise ValueError(f"a group has {len(group['params'])} parameters, got {saved}")
                if unknown := saved.keys() - group.keys():
                    raise ValueError(f"a group has {list(group)}, got {sorted(unknown)}")
                values = {name: saved[name] for name in group.keys() & saved.keys() - {"params"}}
                ParamGroup(group).update(values)  # an error, if they do not fit
                settings.append(values)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise CheckpointError(f"not an optimizer's state: {error!r}") from None
        if kind != type(self).__name__:
            raise CheckpointError(f"the state is of {kind}, the optimizer is {type(self).__name__}")
        if len(steps) != len(self._parameters):
            raise CheckpointError(
                f"the state is for {len(steps)} parameters, the optimizer has "
                f"{len(self._parameters)}"
            )
        loaded: dict[str, list[Array | None]] = {}
        places = {str(i): i for i in range(len(steps))}
        for key, value in entries.items():
            name, _, number = str(key).rpartition(".")
            i = places.get(number, -1)
            known = i >= 0 and isinstance(value, Tensor) and value.dtype.kind == "f"
            if not known or value.shape != self._parameters[i].shape:
                raise CheckpointError(f"the optimizer's state {key!r} fits no parameter")
            array = Tensor(value, device=self._parameters[i].device)._data.copy(order="C")
            loaded.setdefault(name, [None] * len(steps))[i] = array
        if self.slots:
            self.check_slots(steps, loaded)
        self.state, self.steps = loaded, steps
        for group, values in zip(self.param_groups, settings, strict=True):
            group.update(values)

    def check_slots(self, steps: list[int], loaded: dict[str, list[Array | None]]) -> None:
        """Parameters that have been moved have their arrays, and no others."""
        for name in {**loaded, **dict.fromkeys(self.slots)}:
            for i, step in enumerate(steps):
                has = name in loaded and loaded[name][i] is not None
                if has != (name in self.slots and step > 0):
                    raise CheckpointError(
                        f"the optimizer's state {'has' if has else 'lacks'} '{name}.{i}', after "
                        f"{step} steps of that parameter"
                    )


class SGD(Optimizer):
    """Gradient descent: w -= lr * g; with momentum v = momentum * v + (1 - dampening) * g, starting
    at v = g, and w -= lr * v.

    weight_decay adds weight_decay * w to the gradient; nesterov looks ahead by one momentum step.
    """

    momentum, dampening = setting("momentum"), setting("dampening")
    weight_decay, nesterov = setting("weight_decay"), setting("nesterov")

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        settings = {"momentum": momentum, "dampening": dampening, "weight_decay": weight_decay}
        super().__init__(params, lr, **settings, nesterov=nesterov)

    def update_all(self, updates: list[tuple[int, Array, Array]]) -> None:
        """`update` for each; on "cuda" one launch for all of a group and dtype that are alike."""
        alike: dict[Any, list[tuple[int, Array, Array]]] = {}
        for i, parameter, grad in updates:
            if type(parameter) is np.ndarray or not parameter.flags.c_contiguous:
                self.update(i, parameter, grad)
            else:
                key = id(self._groups[i]), parameter.dtype, self.is_first(i)
                alike.setdefault(key, []).append((i, parameter, grad))
        for (_, _, is_first), same in alike.items():
            (first, *_), parameters, grads = zip(*same, strict=True)
            group = self._groups[first]
            momentum = group["momentum"]
            velocities = [self.slot("velocity", i, p) for i, p, _ in same] if momentum else None
            kept = 1.0 if is_first else 1 - group["dampening"]
            numbers = group["lr"], momentum, kept, group["weight_decay"], group["nesterov"]
            kernels.gpu_kernels().optimizer.sgd(parameters, grads, velocities, numbers)

    def is_first(self, i: int) -> bool:
        """Whether parameter i has no velocity yet."""
        return self.state.get("velocity", {i: None})[i] is None

    def update(self, i: int, parameter: Array, grad: Array) -> None:
        group = self._groups[i]
        if grad.dtype == FLOAT16:  # in which small numbers, such as lr, have few digits
            grad = grad.astype(FLOAT32)
        if group["weight_decay"]:
            grad = grad + group["weight_decay"] * parameter.astype(grad.dtype, copy=False)
        if momentum := group["momentum"]:
            is_first = self.is_first(i)
            velocity = self.slot("velocity", i, parameter)
            velocity *= momentum
            velocity += grad if is_first else (1 - group["dampening"]) * grad
            grad = grad + momentum * velocity if group["nesterov"] else velocity
        parameter -= group["lr"] * grad


class Adam(Optimizer):
    """Adam: steps of about lr, scaled for each weight by the spread of its gradients.

    m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2,
    w -= lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)

    weight_decay is added to the gradient; AdamW takes it off the weights instead.
    Source: Kingma and Ba, 2015. Differs from PyTorch: for float16 parameters m and v are float32.
    """

    slots = MOMENTS
    decoupled = False
    betas, eps, weight_decay = setting("betas"), setting("eps"), setting("weight_decay")

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def update_all(self, updates: list[tuple[int, Array, Array]]) -> None:
        """The formula above for all parameters of a group with the same number of steps at once,
        because a call for each takes longer. A subclass overrides this method; `update` is not
        called."""
        alike: dict[Any, list[tuple[int, Array, Array]]] = {}
        for update in updates:
            i, parameter, _ = update
            key = (id(self._groups[i]), type(parameter), self.steps[i])
            alike.setdefault(key, []).append(update)
        for same in alike.values():
            (first, *_), parameters, grads = zip(*same, strict=True)
            ms, vs = ([self.slot(name, i, p) for i, p, _ in same] for name in MOMENTS)
            kernels.adam(parameters, grads, ms, vs, partial(self.numbers, first))

    def numbers(self, i: int) -> AdamStep:
        """The numbers of the present step, for parameter i; a captured step asks again."""
        group = self._groups[i]
        beta1, beta2 = group["betas"]
        decay, step = group["weight_decay"], self.steps[i]
        return AdamStep(group["lr"], beta1, beta2, group["eps"], decay, self.decoupled, step)


class AdamW(Adam):
    """Adam with decoupled weight decay: w -= lr * weight_decay * w beside Adam's step.

    Source: Loshchilov and Hutter, 2019.
    """

    decoupled = True

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)


def checked_optimizer(optimizer: Any) -> Optimizer:
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"a schedule takes an optimizer, got {type_name(optimizer)}")
    return optimizer


class Schedule:
    """Sets an optimizer's `lr` by a formula of the step number, counted from 1 with `step()`.

    The rate of the first step is set at once: call `step()` after each `optimizer.step()`. The
    formula is that of the first parameter group. The others keep the proportion to it that they
    have when the schedule is made.
    """

    not_saved: tuple[str, ...] = ("optimizer",)

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = checked_optimizer(optimizer)
        self.proportions = self.proportions_of(optimizer)
        self.step_count = 0
        self.step()

    def rate(self, step: int) -> float:
        raise TypeError(f"{type(self).__name__} defines no rate()")

    def rates(self, step: int) -> list[float]:
        """The rate of each parameter group."""
        rate = check_number("lr", self.rate(step), 0)
        return [rate * proportion for proportion in self.proportions]

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

    def set_rates(self, rates: list[float]) -> None:
        rates = [check_number("lr", rate, 0) for rate in rates]
        groups = self.optimizer.param_groups
        if len(rates) != len(groups):
            raise ValueError(
                f"the schedule was made for {len(rates)} parameter groups, the optimizer has "
                f"{len(groups)}: make a new schedule after add_param_group"
            )
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate

    def step(self) -> None:
        self.set_rates(self.rates(self.step_count + 1))
        self.step_count += 1

    def get_last_lr(self) -> list[float]:
        """The present rate of each parameter group."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(step_count={self.step_count}, lr={self.get_last_lr()})"

    def state_dict(self) -> dict[str, Any]:
        """The step number and the numbers of the formula."""
        saved = {name: x for name, x in self.__dict__.items() if name not in self.not_saved}
        return copy.deepcopy(saved)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        names = list(self.state_dict())
        # A state of an older version has no proportions: those of the optimizer's groups are taken.
        if not isinstance(state, dict) or {"proportions", *state} != {"proportions", *names}:
            keys = list(state) if isinstance(state, dict) else type(state).__name__
            raise CheckpointError(f"a {type(self).__name__} has {names}, got {keys}")
        later = copy.copy(self)
        later.__dict__.update(state)
        try:
            self.set_rates(later.rates(check_size("step_count", later.step_count)))
        except (TypeError, ValueError, ArithmeticError) as error:
            raise CheckpointError(f"not a {type(self).__name__}'s state: {error}") from None
        self.__dict__.update(copy.deepcopy(state))


class LambdaLR(Schedule):
    """The learning rate that each parameter group has now, times `lr_lambda(n)` after n steps.

    Differs from PyTorch: one function for all groups. It is not in the state.

    Noam's schedule is a line:

        >>> adam = optim.Adam([ta.zeros(2, requires_grad=True)], lr=1.0)
        >>> noam = lambda n: 512**-0.5 * min((n + 1) ** -0.5, (n + 1) * 4000**-1.5)
        >>> optim.LambdaLR(adam, noam).get_last_lr() == [noam(0)]
        True
    """

    not_saved = ("optimizer", "lr_lambda", "proportions")

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[int], float]) -> None:
        if not callable(lr_lambda):
            raise TypeError(f"lr_lambda is one function of the steps, got {lr_lambda!r}")
        self.lr_lambda = lr_lambda
        self.base_lrs = [group["lr"] for group in checked_optimizer(optimizer).param_groups]
        super().__init__(optimizer)

    @staticmethod
    def proportions_of(optimizer: Optimizer) -> list[float]:
        return []  # each group has a rate of its own in `base_lrs`

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
        self.peak = checked_optimizer(optimizer).lr
        super().__init__(optimizer)

    def rate(self, step: int) -> float:
        if step <= self.warmup:
            return self.peak * step / self.warmup
        progress = min(1.0, (step - self.warmup) / (self.total - self.warmup))
        return self.final + (self.peak - self.final) * 0.5 * (1 + math.cos(math.pi * progress))


def clip_grad_norm_(
    parameters: Iterable[Tensor] | Tensor,
    max_norm: float,
    norm_type: float | str = 2.0,
    error_if_nonfinite: bool = False,
) -> Any:
    """Scale all gradients together so that their joint norm is at most `max_norm`.

    norm_type: p of the norm (sum |g|^p)^(1/p); inf or "inf" for the largest |g|.
    max_norm: inf only measures.
    Returns the norm from before: a float, or on "cuda" a 0-d Tensor, since a float would have to be
    waited for; there gradients are scaled in place, unless a graph needs them. As in PyTorch, the
    factor is max_norm / (norm + 1e-6). A norm that is not finite is returned and nothing is scaled;
    with error_if_nonfinite it raises RuntimeError.
    Differs from PyTorch: a gradient that occurs twice counts once.

        >>> w = ta.zeros(2, requires_grad=True)
        >>> w.grad = ta.tensor([3.0, 4.0])
        >>> optim.clip_grad_norm_([w], 1.0), w.grad.norm().item() < 1
        (5.0, True)
    """
    p: Any = math.inf if norm_type == "inf" else norm_type
    for name, value in (("max_norm", max_norm), ("norm_type", p)):
        if value != math.inf:
            check_number(name, value, 0)
    if p == 0:
        raise ValueError("norm_type must be a number > 0, got 0")
    tensors = [parameters] if isinstance(parameters, Tensor) else listed_parameters(parameters)
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"parameter {i} is a {type(tensor).__name__}, not a Tensor")
    grads = {id(p.grad): p.grad for p in tensors if p.grad is not None}.values()
    arrays = {id(grad._data): grad._data for grad in grads}  # which Tensors may share
    on_cuda = bool(grads) and all(grad.device == "cuda" for grad in grads)
    if on_cuda and p == 2 and not error_if_nonfinite:
        arrays = {id(grad._data): writable_gradient(grad) for grad in grads}
        norm: Any = wrap(kernels.gpu_kernels().optimizer.clip(list(arrays.values()), max_norm))
    else:
        norm = joint_norm(list(arrays.values()), p)
        if error_if_nonfinite and not math.isfinite(norm):
            raise RuntimeError(f"the joint norm of the gradients is {norm}: nothing was scaled")
        factor = max_norm / (norm + 1e-6)
        if factor < 1 and math.isfinite(norm):
            arrays = {key: scaled(array, factor) for key, array in arrays.items()}
    for grad in grads:
        grad._data = arrays[id(grad._data)]
    return norm


@backend.quiet
def joint_norm(arrays: list[Array], p: float) -> float:
    """The norm of all elements of these arrays, in float64.

    The numbers are divided by the largest, because powers of them may be 0 or inf.
    """
    arrays = [array for array in arrays if array.size]
    if p == 2:
        norm = math.sqrt(sum(float(kernels.sum_squares(x.reshape(1, -1))[0]) for x in arrays))
        if 1e-140 < norm < math.inf:  # all squares are in the range of float64
            return norm
    flat = [array.reshape(-1).astype("float64") for array in arrays]
    largest = float(np.max([0.0, *(float(abs(x).max()) for x in flat)]))  # NaN stays NaN
    if p == math.inf or not 0 < largest < math.inf:
        return largest
    total = sum(float(((abs(x) / largest) ** p).sum()) for x in flat)
    return largest * float(np.float64(total) ** (1 / p))


def scaled(array: Array, factor: float) -> Array:
    """array * factor, which may be smaller than the numbers of the dtype."""
    return (array * wider_number(factor, array.dtype)).astype(array.dtype, copy=False)


def writable_gradient(grad: Tensor) -> Array:
    """The array of a gradient, in C order and in memory that the kernel may write to."""
    array = grad._data
    if grad._version is None or array.base is not None or not array.flags.c_contiguous:
        return array.copy(order="C")
    grad._version.changes += 1
    return array


__path__: list[str] = []  # so that Python asks base/short_names.py for what is not here
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        names = [n for n, v in globals().items() if getattr(v, "__module__", "") == __name__]
        raise UnknownNameError("optim", name, names)
