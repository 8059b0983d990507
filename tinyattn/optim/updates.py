"""How a step changes parameters: SGD, Adam and AdamW."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ..base.backend import FLOAT16, Array, namespace, quiet
from ..kernels import FLOAT32, gpu_kernel, with_kernels
from .optimizer import Optimizer, Parameters, setting

MOMENTS = ("m", "v")


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

    def update(self, i: int, parameter: Array, grad: Array) -> None:
        group = self._groups[i]
        if grad.dtype == FLOAT16:  # in which small numbers, such as lr, have few digits
            grad = grad.astype(FLOAT32)
        if group["weight_decay"]:
            grad = grad + group["weight_decay"] * parameter.astype(grad.dtype, copy=False)
        if momentum := group["momentum"]:
            is_first = i not in self.state.get("velocity", ())
            velocity = self.slot("velocity", i, parameter)
            velocity *= momentum
            velocity += grad if is_first else (1 - group["dampening"]) * grad
            grad = grad + momentum * velocity if group["nesterov"] else velocity
        parameter -= group["lr"] * grad


class AdamStep(NamedTuple):
    """The numbers of one step of Adam."""

    rate: float
    beta1: float
    beta2: float
    eps: float
    decay: float
    decoupled: bool  # whether decay is subtracted from the weights, or added to the gradient
    step: int  # counted from 1


@with_kernels(cpu="optimizer.adam")  # on a GPU, `Adam.update_all` launches one for all parameters
@quiet
def adam(m: Array, v: Array, parameter: Array, grad: Array, numbers: AdamStep) -> None:
    """One step of Adam (or AdamW, with `decoupled` decay), in place on m, v and the parameter.

    m and v are the running means of the gradient and of its square. They start at zero, so they are
    divided by 1 - beta^step (Kingma and Ba, "Adam", 2015; Loshchilov and Hutter, "Decoupled Weight
    Decay Regularization", 2019). The step is computed in the dtype of m and v, which for a float16
    parameter are float32. So m is the first array, whose dtype chooses the kernel.
    """
    rate, beta1, beta2, eps, decay, decoupled, step = numbers
    w, grad = (array.astype(m.dtype, copy=False) for array in (parameter, grad))
    if decay and decoupled:
        w *= 1 - rate * decay
    elif decay:
        grad = grad + decay * w
    m *= beta1
    m += (1 - beta1) * grad
    v *= beta2
    v += (1 - beta2) * grad * grad
    root = namespace(v).sqrt(v) / math.sqrt(1 - beta2**step) + eps
    w -= (rate / (1 - beta1**step)) * m / root
    if w is not parameter:
        parameter[...] = w


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
        """`adam` for all parameters, with the same numbers for those with one group and one number
        of steps; on "cuda" one launch for those of one dtype. `update` is not called: a subclass
        with another rule overrides this method."""
        alike: dict[Any, list[tuple[int, Array, Array]]] = {}
        for i, parameter, grad in updates:
            # The kernel of a GPU reads arrays in C order.
            in_one_launch = type(parameter) is not np.ndarray and parameter.flags.c_contiguous
            key = id(self._groups[i]), self.steps[i], parameter.dtype if in_one_launch else None
            alike.setdefault(key, []).append((i, parameter, grad))
        for (_, _, dtype_of_launch), same in alike.items():
            (first, *_), parameters, grads = zip(*same, strict=True)
            ms, vs = ([self.slot(name, i, p) for i, p, _ in same] for name in MOMENTS)
            numbers = self.numbers(first)
            if dtype_of_launch is not None:
                gpu_kernel("optimizer.adam")(numbers, parameters, grads, ms, vs)
                continue
            for arrays in zip(ms, vs, parameters, grads, strict=True):
                adam(*arrays, numbers)

    def numbers(self, i: int) -> AdamStep:
        """The numbers of the present step, for parameter i."""
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
