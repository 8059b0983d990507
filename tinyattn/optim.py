"""Optimizers and learning-rate schedules, after PyTorch's update rules."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from . import backend, kernels
from .autograd import wrap
from .backend import FLOAT16, Array, namespace
from .checks import check_size, is_integer
from .errors import CheckpointError, GraphError, ShapeError
from .kernels import FLOAT32
from .kernels.reference import AdamStep
from .names import missing
from .tensor import Tensor
from .versions import Version

MOMENTS = ("m", "v")


def checked_parameters(parameters: Iterable[Tensor] | Tensor) -> list[Tensor]:
    if isinstance(parameters, Tensor):
        raise TypeError("parameters must be an iterable of Tensors, such as model.parameters()")
    if hasattr(parameters, "parameters"):
        raise TypeError("an optimizer takes the parameters, not the module: model.parameters()")
    if not isinstance(parameters, Iterable):
        kind = type(parameters).__name__
        raise TypeError(f"an optimizer takes parameters, such as model.parameters(), got a {kind}")
    found = list(parameters)
    if not found:
        raise ValueError("an optimizer needs parameters, got an empty list")
    for i, parameter in enumerate(found):
        if not isinstance(parameter, Tensor):
            raise TypeError(f"parameter {i} is a {type(parameter).__name__}, not a Tensor")
        if not parameter.is_leaf:
            raise GraphError(f"parameter {i} was computed; only leaves can be optimized")
    if len({id(parameter) for parameter in found}) != len(found):
        raise ValueError("a parameter is listed twice")
    return found


def check(name: str, value: Any, low: float, high: float = math.inf) -> float:
    number = is_integer(value) or isinstance(value, (float, np.floating))
    if not number or not low <= value < high:
        limits = f">= {low}" if high == math.inf else f"in [{low}, {high})"
        raise ValueError(f"{name} must be a number {limits}, got {value!r}")
    return float(value)


def changeable(parameter: Tensor) -> Array:
    """The array of a parameter, in memory that may be written to.

    A leaf made by detach() shows the memory of a recorded result, which a graph may need.
    """
    array = parameter._data
    is_locked = type(array) is np.ndarray and not array.flags.writeable
    if parameter._version is None or is_locked:
        parameter._data, parameter._version = array.copy(), Version()
    return parameter._data


class Optimizer:
    """What all optimizers share: parameters, a learning rate `lr`, arrays that go with each
    parameter and have its shape, and a state that can be saved and taken up again bitwise."""

    # Arrays of `state` that each parameter has once it has been moved, where that is known.
    slots: tuple[str, ...] = ()

    def __init__(self, parameters: Iterable[Tensor], lr: float) -> None:
        self.parameters = checked_parameters(parameters)
        self.lr = lr
        self.state: dict[str, list[Array | None]] = {}
        self.steps: list[int] = [0] * len(self.parameters)

    @property
    def lr(self) -> float:
        """The learning rate; may be set between steps."""
        return self._lr

    @lr.setter
    def lr(self, value: float) -> None:
        self._lr = check("lr", value, 0)

    def zero_grad(self) -> None:
        """Forget all gradients; without it, the next backward adds to them."""
        for parameter in self.parameters:
            parameter.grad = None

    def step(self) -> None:
        """Move every parameter that has a gradient."""
        updates: list[tuple[int, Array, Array]] = []
        slots = next(iter(self.state.values()), [None] * len(self.parameters))
        for i, (parameter, slot) in enumerate(zip(self.parameters, slots, strict=True)):
            grad = parameter.grad
            if grad is None:
                continue
            array, grad_array = changeable(parameter), grad._data
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
        return {
            "kind": type(self).__name__,
            "lr": self.lr,
            "steps": list(self.steps),
            "arrays": arrays,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state; refused as a whole if it does not fit."""
        try:
            steps = [check_size("a number of steps", step, 0) for step in state["steps"]]
            lr = check("lr", state["lr"], 0)
            kind, entries = str(state["kind"]), dict(state["arrays"])
        except (KeyError, TypeError, ValueError) as error:
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
        self.state, self.steps, self.lr = loaded, steps, lr

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

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(parameters, lr)
        self.momentum = check("momentum", momentum, 0)
        self.dampening = check("dampening", dampening, 0)
        self.weight_decay = check("weight_decay", weight_decay, 0)
        if nesterov and (not momentum or dampening):
            raise ValueError("nesterov needs a momentum > 0 and no dampening")
        self.nesterov = nesterov

    def update(self, i: int, parameter: Array, grad: Array) -> None:
        if self.weight_decay:
            grad = grad + self.weight_decay * parameter
        if self.momentum:
            velocity = self.slot("velocity", i, parameter)
            velocity *= self.momentum
            velocity += grad if self.steps[i] == 1 else (1 - self.dampening) * grad
            grad = grad + self.momentum * velocity if self.nesterov else velocity
        parameter -= self.lr * grad


class Adam(Optimizer):
    """Adam: steps of about lr, scaled for each weight by the spread of its gradients.

    m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2,
    w -= lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)

    weight_decay is added to the gradient; AdamW takes it off the weights instead.
    Source: Kingma and Ba, 2015. Differs from PyTorch: for float16 parameters m and v are float32.
    """

    slots = MOMENTS
    decoupled = False

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, lr)
        self.betas = (check("betas[0]", betas[0], 0, 1), check("betas[1]", betas[1], 0, 1))
        self.eps = check("eps", eps, 0)
        self.weight_decay = check("weight_decay", weight_decay, 0)

    def update_all(self, updates: list[tuple[int, Array, Array]]) -> None:
        """The formula above for all parameters with the same number of steps at once, because a
        call for each takes longer. A subclass overrides this method; `update` is not called."""
        groups: dict[Any, list[tuple[int, Array, Array]]] = {}
        for update in updates:
            i, parameter, _ = update
            groups.setdefault((type(parameter), self.steps[i]), []).append(update)
        for group in groups.values():
            numbers, parameters, grads = zip(*group, strict=True)
            ms, vs = ([self.slot(name, i, p) for i, p, _ in group] for name in MOMENTS)
            kernels.adam(parameters, grads, ms, vs, partial(self.numbers, numbers[0]))

    def numbers(self, i: int) -> AdamStep:
        """The numbers of the present step, for parameter i."""
        settings = (self.lr, *self.betas, self.eps, self.weight_decay, self.decoupled)
        return AdamStep(*settings, step=self.steps[i])


class AdamW(Adam):
    """Adam with decoupled weight decay: w -= lr * weight_decay * w beside Adam's step.

    Source: Loshchilov and Hutter, 2019.
    """

    decoupled = True

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        super().__init__(parameters, lr, betas, eps, weight_decay)


class Schedule:
    """Sets an optimizer's `lr` by a formula of the step number, counted from 1 with `step()`.

    The rate of the first step is set at once: call `step()` after each `optimizer.step()`.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.step_count = 0
        self.step()

    def rate(self, step: int) -> float:
        raise TypeError(f"{type(self).__name__} defines no rate()")

    def step(self) -> None:
        self.step_count += 1
        self.optimizer.lr = self.rate(self.step_count)

    def state_dict(self) -> dict[str, float]:
        """The step number and the numbers of the formula."""
        return {name: value for name, value in self.__dict__.items() if name != "optimizer"}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Go on from a saved state."""
        own = self.state_dict()
        if not isinstance(state, dict) or set(state) != set(own):
            found = list(state) if isinstance(state, dict) else type(state).__name__
            raise CheckpointError(f"a {type(self).__name__} has {list(own)}, got {found}")
        later = copy.copy(self)
        later.__dict__.update(state)
        try:
            self.optimizer.lr = later.rate(check_size("step_count", later.step_count))
        except (TypeError, ValueError, ArithmeticError) as error:
            raise CheckpointError(f"not a {type(self).__name__}'s state: {error}") from None
        self.__dict__.update(state)


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
        self.total, self.warmup, self.final = total, warmup, check("final", final, 0)
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
    check("max_norm", max_norm, 0)
    found = [parameters] if isinstance(parameters, Tensor) else parameters
    grads = {id(p.grad): p.grad for p in found if p.grad is not None}.values()
    arrays = {id(grad._data): grad._data for grad in grads}  # which Tensors may share
    if grads and all(grad.device == "cuda" for grad in grads):
        arrays = {id(grad._data): array_to_scale(grad) for grad in grads}
        norm: Any = wrap(kernels.on_gpu().optimizer.clip(list(arrays.values()), max_norm))
    else:
        squares = [array.reshape(-1).astype("float64") for array in arrays.values()]
        norm = math.sqrt(sum(float(s @ s) for s in squares))
        factor = max_norm / (norm + 1e-6)
        if factor < 1 and math.isfinite(norm):
            arrays = {key: a * a.dtype.type(factor) for key, a in arrays.items()}
    for grad in grads:
        grad._data = arrays[id(grad._data)]
    return norm


def array_to_scale(grad: Tensor) -> Array:
    """The array of a gradient, in C order and in memory that the kernel may write to."""
    array = grad._data
    if grad._version is None or array.base is not None or not array.flags.c_contiguous:
        return array.copy(order="C")
    grad._version.changes += 1
    return array


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        raise missing("optim", name, globals())
