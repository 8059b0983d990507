"""Optimizers and learning-rate schedules, after PyTorch's update rules."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from . import kernels
from .base import backend
from .base.backend import FLOAT16, Array, namespace
from .base.checks import check_number, check_size
from .base.names import UnknownNameError
from .engine.autograd import wrap
from .engine.versions import Version
from .errors import CheckpointError, GraphError, ShapeError
from .kernels import FLOAT32
from .kernels.reference import AdamStep
from .tensors.create import zeros_like
from .tensors.tensor import Tensor

MOMENTS = ("m", "v")
Parameters = Iterable[Tensor] | Iterable[dict[str, Any]]


def checked_parameters(parameters: Any) -> list[Tensor]:
    if isinstance(parameters, Tensor):
        raise TypeError("parameters must be an iterable of Tensors, such as model.parameters()")
    if hasattr(parameters, "parameters"):
        raise TypeError("an optimizer takes the parameters, not the module: model.parameters()")
    if not isinstance(parameters, Iterable):
        kind = type(parameters).__name__
        raise TypeError(f"an optimizer takes parameters, such as model.parameters(), got a {kind}")
    parameters = list(parameters)
    if not parameters:
        raise ValueError("an optimizer needs parameters, got an empty list")
    for i, parameter in enumerate(parameters):
        if not isinstance(parameter, Tensor):
            raise TypeError(f"parameter {i} is a {type(parameter).__name__}, not a Tensor")
        if not parameter.is_leaf:
            raise GraphError(f"parameter {i} was computed; only leaves can be optimized")
    return parameters


class ParamGroup(dict[str, Any]):
    """Parameters ("params") and their settings; a value that is none is refused when it is set."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name in ("lr", "momentum", "dampening", "weight_decay", "eps"):
            value = check_number(name, value, 0)
        elif name == "betas":
            if not isinstance(value, (tuple, list)) or len(value) != 2:
                raise ValueError(f"betas are two numbers, got {value!r}")
            value = tuple(check_number(f"betas[{i}]", beta, 0, 1) for i, beta in enumerate(value))
        super().__setitem__(name, value)

    def update(self, *args: Any, **settings: Any) -> None:
        for name, value in dict(*args, **settings).items():
            self[name] = value


def param_groups(parameters: Parameters, defaults: dict[str, Any]) -> list[ParamGroup]:
    """The groups of an optimizer: those of a list of dicts, or one that has all parameters."""
    is_one = isinstance(parameters, Tensor) or hasattr(parameters, "parameters")  # or a module
    entries: Any = parameters
    if isinstance(parameters, Iterable) and not is_one:
        entries = list(parameters)
    has_groups = isinstance(entries, list) and entries and isinstance(entries[0], dict)
    groups = []
    for entry in entries if has_groups else [{"params": entries}]:
        if not isinstance(entry, dict) or "params" not in entry:
            raise TypeError(f"a parameter group is a dict with the key 'params', got {entry!r}")
        if unknown := entry.keys() - {"params"} - defaults.keys():
            raise ValueError(f"a parameter group has {list(defaults)}, got {sorted(unknown)}")
        params = entry["params"]
        single = isinstance(params, Tensor) and has_groups
        group = ParamGroup(params=checked_parameters([params] if single else params))
        for name, default in defaults.items():
            group[name] = entry.get(name, default)
        groups.append(group)
    all_parameters = [parameter for group in groups for parameter in group["params"]]
    if len({id(parameter) for parameter in all_parameters}) != len(all_parameters):
        raise ValueError("a parameter is listed twice")
    return groups


def setting(name: str) -> property:
    """A setting of the first group. To set it sets it in every group."""

    def set_all(optimizer: Optimizer, value: Any) -> None:
        for group in optimizer.param_groups:
            group[name] = value

    return property(lambda optimizer: optimizer.param_groups[0][name], set_all)


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

    parameters: Tensors, or a list of groups: dicts with Tensors under "params" and the settings in
        which they differ. `param_groups` has all settings of each, which may change between steps.

        >>> w, b = (ta.zeros(2, requires_grad=True) for _ in range(2))
        >>> groups = [{"params": [w], "weight_decay": 0.1}, {"params": [b], "lr": 0.5}]
        >>> [group["lr"] for group in optim.SGD(groups, lr=0.01).param_groups]
        [0.01, 0.5]
    """

    # Names of the arrays that each parameter has in `state` after its first step, if it has any.
    slots: tuple[str, ...] = ()

    lr = setting("lr")

    def __init__(self, parameters: Parameters, lr: float, **settings: Any) -> None:
        self.param_groups = param_groups(parameters, {"lr": lr, **settings})
        # The parameters of all groups, and the group of each of them.
        self.parameters: list[Tensor] = [p for g in self.param_groups for p in g["params"]]
        self.groups: list[ParamGroup] = [g for g in self.param_groups for _ in g["params"]]
        self.state: dict[str, list[Array | None]] = {}
        self.steps: list[int] = [0] * len(self.parameters)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, or fill them with 0; otherwise the next backward adds to them."""
        for parameter in self.parameters:
            keep = not set_to_none and parameter.grad is not None
            parameter.grad = zeros_like(parameter) if keep else None

    def step(self) -> None:
        """Move every parameter that has a gradient."""
        updates: list[tuple[int, Array, Array]] = []
        arrays = next(iter(self.state.values()), [None] * len(self.parameters))
        for i, (parameter, slot) in enumerate(zip(self.parameters, arrays, strict=True)):
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
        if backend.capture is not None:
            backend.capture.optimizer_step(self, updates)
        versions = [self.parameters[i]._version for i, *_ in updates]
        for version in versions:
            version.begin_change()
        try:
            self.count(updates)
            self.update_all(updates)
        finally:
            for version in versions:
                version.end_change()

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
            slots = self.state[name] = [None] * len(self.parameters)
        array = slots[i]
        if array is not None and array.dtype is like.dtype:
            return array
        dtype = FLOAT32 if like.dtype == FLOAT16 else like.dtype
        if array is None:
            array = slots[i] = namespace(like).zeros(like.shape, dtype)
        elif array.dtype != dtype:  # the parameter was converted
            array = slots[i] = array.astype(dtype)
        return array

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
        try:
            steps = [check_size("a number of steps", step, 0) for step in state["steps"]]
            lr = check_number("lr", state["lr"], 0)
            kind, entries = str(state["kind"]), dict(state["arrays"])
            # A state of an older version has one learning rate and no groups.
            saved_groups = state.get("groups") or [{"lr": lr}] * len(self.param_groups)
            settings = [ParamGroup() for _ in self.param_groups]
            for group, saved, values in zip(self.param_groups, saved_groups, settings, strict=True):
                if saved.get("params", len(group["params"])) != len(group["params"]):
                    raise ValueError(f"a group has {len(group['params'])} parameters, got {saved}")
                for name in group.keys() & saved.keys() - {"params"}:
                    values[name] = saved[name]
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise CheckpointError(f"not an optimizer's state: {error!r}") from None
        if kind != type(self).__name__:
            raise CheckpointError(f"the state is of {kind}, the optimizer is {type(self).__name__}")
        if len(steps) != len(self.parameters):
            raise CheckpointError(
                f"the state is for {len(steps)} parameters, the optimizer has "
                f"{len(self.parameters)}"
            )
        loaded: dict[str, list[Array | None]] = {}
        places = {str(i): i for i in range(len(steps))}
        for key, value in entries.items():
            name, _, number = str(key).rpartition(".")
            i = places.get(number, -1)
            known = i >= 0 and isinstance(value, Tensor) and value.dtype.kind == "f"
            if not known or value.shape != self.parameters[i].shape:
                raise CheckpointError(f"the optimizer's state {key!r} fits no parameter")
            array = Tensor(value, device=self.parameters[i].device)._data.copy(order="C")
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
        parameters: Parameters,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        settings = {"momentum": momentum, "dampening": dampening, "weight_decay": weight_decay}
        super().__init__(parameters, lr, **settings, nesterov=nesterov)
        for group in self.param_groups:
            if group["nesterov"] and (not group["momentum"] or group["dampening"]):
                raise ValueError("nesterov needs a momentum > 0 and no dampening")

    def update(self, i: int, parameter: Array, grad: Array) -> None:
        group = self.groups[i]
        if group["weight_decay"]:
            grad = grad + group["weight_decay"] * parameter
        if momentum := group["momentum"]:
            is_first = self.state.get("velocity", {i: None})[i] is None
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
        parameters: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def update_all(self, updates: list[tuple[int, Array, Array]]) -> None:
        """The formula above for all parameters of a group with the same number of steps at once,
        because a call for each takes longer. A subclass overrides this method; `update` is not
        called."""
        alike: dict[Any, list[tuple[int, Array, Array]]] = {}
        for update in updates:
            i, parameter, _ = update
            key = (id(self.groups[i]), type(parameter), self.steps[i])
            alike.setdefault(key, []).append(update)
        for same in alike.values():
            (first, *_), parameters, grads = zip(*same, strict=True)
            ms, vs = ([self.slot(name, i, p) for i, p, _ in same] for name in MOMENTS)
            kernels.adam(parameters, grads, ms, vs, partial(self.numbers, first))

    def numbers(self, i: int) -> AdamStep:
        """The numbers of the present step, for parameter i; a captured step asks again."""
        group = self.groups[i]
        beta1, beta2 = group["betas"]
        decay = group["weight_decay"]
        return AdamStep(
            group["lr"], beta1, beta2, group["eps"], decay, self.decoupled, self.steps[i]
        )


class AdamW(Adam):
    """Adam with decoupled weight decay: w -= lr * weight_decay * w beside Adam's step.

    Source: Loshchilov and Hutter, 2019.
    """

    decoupled = True

    def __init__(
        self,
        parameters: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        super().__init__(parameters, lr, betas, eps, weight_decay)


class Schedule:
    """Sets an optimizer's `lr` by a formula of the step number, counted from 1 with `step()`.

    The rate of the first step is set at once: call `step()` after each `optimizer.step()`. All
    parameter groups get this rate; `LambdaLR` multiplies the rate of each.
    """

    not_saved: tuple[str, ...] = ("optimizer",)

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.step_count = 0
        self.step()

    def rate(self, step: int) -> float:
        raise TypeError(f"{type(self).__name__} defines no rate()")

    def rates(self, step: int) -> list[float]:
        """The rate of each parameter group."""
        return [self.rate(step)] * len(self.optimizer.param_groups)

    def set_rates(self, rates: list[float]) -> None:
        rates = [check_number("lr", rate, 0) for rate in rates]
        # `list`, so that too few or too many rates are refused before the first is set.
        for group, rate in list(zip(self.optimizer.param_groups, rates, strict=True)):
            group["lr"] = rate

    def step(self) -> None:
        self.step_count += 1
        self.set_rates(self.rates(self.step_count))

    def get_last_lr(self) -> list[float]:
        """The present rate of each parameter group."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """The step number and the numbers of the formula."""
        return {name: x for name, x in self.__dict__.items() if name not in self.not_saved}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        names = list(self.state_dict())
        if not isinstance(state, dict) or set(state) != set(names):
            keys = list(state) if isinstance(state, dict) else type(state).__name__
            raise CheckpointError(f"a {type(self).__name__} has {names}, got {keys}")
        later = copy.copy(self)
        later.__dict__.update(state)
        try:
            self.set_rates(later.rates(check_size("step_count", later.step_count)))
        except (TypeError, ValueError, ArithmeticError) as error:
            raise CheckpointError(f"not a {type(self).__name__}'s state: {error}") from None
        self.__dict__.update(state)


class LambdaLR(Schedule):
    """The learning rate that each parameter group has now, times `lr_lambda(n)` after n steps.

    Differs from PyTorch: one function for all groups. It is not in the state. Noam's is a line:

        >>> adam = optim.Adam([ta.zeros(2, requires_grad=True)], lr=1.0)
        >>> noam = lambda n: 512**-0.5 * min((n + 1) ** -0.5, (n + 1) * 4000**-1.5)
        >>> optim.LambdaLR(adam, noam).get_last_lr() == [noam(0)]
        True
    """

    not_saved = ("optimizer", "lr_lambda")

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[int], float]) -> None:
        if not callable(lr_lambda):
            raise TypeError(f"lr_lambda is one function of the steps, got {lr_lambda!r}")
        self.lr_lambda = lr_lambda
        self.base_lrs = [group["lr"] for group in optimizer.param_groups]
        super().__init__(optimizer)

    def rates(self, step: int) -> list[float]:
        return [base * self.lr_lambda(step - 1) for base in self.base_lrs]


class WarmupSchedule(Schedule):
    """lr = factor * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5): up, then slowly down.

    The schedule of "Attention Is All You Need", 2017, known as Noam.
    """

    def __init__(
        self, optimizer: Optimizer, d_model: int, warmup: int = 4000, factor: float = 1.0
    ) -> None:
        if d_model < 1 or warmup < 1:
            raise ValueError(f"d_model and warmup must be >= 1, got {d_model} and {warmup}")
        self.d_model, self.warmup, self.factor = d_model, warmup, factor
        super().__init__(optimizer)

    def rate(self, step: int) -> float:
        return self.factor * self.d_model**-0.5 * min(step**-0.5, step * self.warmup**-1.5)


class CosineSchedule(Schedule):
    """Up linearly over `warmup` steps to the optimizer's lr, then down a half cosine to `final`.

    total: the number of steps at whose end `final` is reached; it stays there.
    Source: Loshchilov and Hutter, "SGDR", 2017 (one period, without restarts).
    """

    def __init__(
        self, optimizer: Optimizer, total: int, warmup: int = 0, final: float = 0.0
    ) -> None:
        if not 0 <= warmup < total:
            raise ValueError(f"warmup must lie in [0, total), got {warmup} of {total}")
        self.total, self.warmup, self.final = total, warmup, check_number("final", final, 0)
        self.peak = optimizer.lr
        super().__init__(optimizer)

    def rate(self, step: int) -> float:
        if step <= self.warmup:
            return self.peak * step / self.warmup
        progress = min(1.0, (step - self.warmup) / (self.total - self.warmup))
        return self.final + (self.peak - self.final) * 0.5 * (1 + math.cos(math.pi * progress))


def clip_grad_norm_(parameters: Iterable[Tensor] | Tensor, max_norm: float) -> Any:
    """Scale all gradients together so that their joint Euclidean norm is at most `max_norm`.

    Returns the norm from before: a float, or on "cuda" a 0-d Tensor, since a float would have to be
    waited for; there gradients are scaled in place, unless a graph needs them. As in PyTorch, the
    factor is max_norm / (norm + 1e-6). A norm that is not finite is returned and nothing is scaled.
    Differs from PyTorch: a gradient that occurs twice counts once.
    """
    check_number("max_norm", max_norm, 0)
    tensors = [parameters] if isinstance(parameters, Tensor) else parameters
    grads = {id(p.grad): p.grad for p in tensors if p.grad is not None}.values()
    arrays = {id(grad._data): grad._data for grad in grads}  # which Tensors may share
    if grads and all(grad.device == "cuda" for grad in grads):
        arrays = {id(grad._data): writable_gradient(grad) for grad in grads}
        norm: Any = wrap(kernels.gpu_kernels().optimizer.clip(list(arrays.values()), max_norm))
    else:
        squares = [array.reshape(-1).astype("float64") for array in arrays.values()]
        norm = math.sqrt(sum(float(s @ s) for s in squares))
        factor = max_norm / (norm + 1e-6)
        if factor < 1 and math.isfinite(norm):
            arrays = {key: a * a.dtype.type(factor) for key, a in arrays.items()}
    for grad in grads:
        grad._data = arrays[id(grad._data)]
    return norm


def writable_gradient(grad: Tensor) -> Array:
    """The array of a gradient, in C order and in memory that the kernel may write to."""
    array = grad._data
    if grad._version is None or array.base is not None or not array.flags.c_contiguous:
        return array.copy(order="C")
    grad._version.changes += 1
    return array


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        names = [n for n, v in globals().items() if getattr(v, "__module__", "") == __name__]
        raise UnknownNameError("optim", name, names)
