"""PyTorch's optimizers under its arguments, RMSprop, and the base class of a program's own.

Adagrad is not here: write Adam.
"""

import copy
from collections import defaultdict
from typing import Any

from ... import optim
from ...base.backend import Array, namespace
from ...base.checks import check_number

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "RMSprop"]
REFUSED = {"maximize": "minimize -loss", "centered": "use Adam"}
REFUSED |= dict.fromkeys(("amsgrad", "differentiable"), "leave it out")


def without_ways(named: dict[str, Any]) -> dict[str, Any]:
    """The arguments without those that say how PyTorch computes the same numbers."""
    for name, instead in REFUSED.items():
        if named.pop(name, False):
            raise ValueError(f"{name}=True is not there: {instead}")
    return {n: v for n, v in named.items() if n not in ("foreach", "fused", "capturable")}


class Optimizer(optim.Optimizer):
    """PyTorch's base class: a program's own optimizer gives it the defaults of its groups, and
    writes `step`. In it `self.state[p]` is a dict for each parameter. A group keeps its other keys,
    as "lr_scale", which only the program reads.

        >>> from tinyattn.torch_names.optim import Optimizer
        >>> class Sign(Optimizer):
        ...     def __init__(self, params, lr):
        ...         super().__init__(params, {"lr": lr})
        ...     @ta.no_grad()
        ...     def step(self):
        ...         for group in self.param_groups:
        ...             for p in group["params"]:
        ...                 p -= group["lr"] * p.grad.sign()
        >>> w = ta.ones(2, requires_grad=True)
        >>> (w * w).sum().backward()
        >>> Sign([w], lr=0.5).step()
        >>> w
        tensor([0.5, 0.5], requires_grad=True)
    """

    lr: Any = None  # an attribute of the program, as any other: groups have the rate

    def checked_group(self, group: dict[str, Any]) -> dict[str, Any]:
        if self._is_own:  # its settings mean what the program says: Adafactor has lr=None
            return dict(group)
        known = {"params", "initial_lr", *self.defaults}
        return group | super().checked_group({n: x for n, x in group.items() if n in known})

    def __init__(self, params: Any, defaults: Any, **settings: Any) -> None:
        self._is_own = isinstance(defaults, dict)
        settings = {"lr": 0.0, **defaults} if self._is_own else {"lr": defaults, **settings}
        super().__init__(params, **settings)
        if self._is_own:
            self.state = defaultdict(dict)

    def state_dict(self) -> dict[str, Any]:
        """As in tinyattn, with "param_groups", which programs read and change; of a program's own
        the state of each parameter by its number."""
        groups = [{**group, "params": len(group["params"])} for group in self.param_groups]
        if not self._is_own:
            return {**super().state_dict(), "param_groups": groups}
        state = {i: dict(self.state[p]) for i, p in enumerate(self.parameters) if p in self.state}
        return copy.deepcopy({"state": state, "param_groups": groups})

    def groups_in(self, state: dict[str, Any]) -> list[dict[str, Any]]:
        return super().groups_in({"groups": state.get("param_groups") or state["groups"]})

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        if not self._is_own:
            return super().load_state_dict(state_dict)
        self.set_groups(self.groups_in(state_dict))
        states = copy.deepcopy(state_dict["state"])
        self.state = defaultdict(dict, {self.parameters[i]: x for i, x in states.items()})


class OfTinyattn:
    """The constructor of tinyattn's optimizers: here the first argument is `params`."""

    def __init__(self, params: Any, *settings: Any, **named: Any) -> None:
        super().__init__(params, *settings, **without_ways(named))  # type: ignore[call-arg]


class SGD(OfTinyattn, optim.SGD, Optimizer):
    """tinyattn.optim.SGD, with PyTorch's arguments."""


class Adam(OfTinyattn, optim.Adam, Optimizer):
    """tinyattn.optim.Adam, with PyTorch's arguments. There is no amsgrad=True.

    >>> from tinyattn.torch_names.optim import Adam
    >>> w = ta.ones(2, requires_grad=True)
    >>> adam = Adam(params=[w], lr=0.5, fused=False)
    >>> (w * w).sum().backward()
    >>> adam.step()
    >>> w
    tensor([0.5, 0.5], requires_grad=True)
    """


class AdamW(Adam, optim.AdamW):
    """tinyattn.optim.AdamW, with the arguments of Adam above."""


class RMSprop(Optimizer):
    """w -= lr * g / (sqrt(v) + eps), v = alpha v + (1 - alpha) g^2; momentum adds up the steps.

    Source: Hinton, lecture 6 of "Neural Networks for Machine Learning", 2012.
    There is no centered=True.

    In tinyattn: write optim.Adam; with betas=(0, beta2) only its first steps are smaller

        >>> from tinyattn.torch_names.optim import RMSprop
        >>> w = ta.ones(2, requires_grad=True)
        >>> (w * w).sum().backward()
        >>> RMSprop([w], lr=0.05).step()
        >>> w
        tensor([0.5, 0.5], requires_grad=True)
    """

    def __init__(self, params: Any, lr: float = 1e-2, alpha: float = 0.99, **named: Any) -> None:
        defaults = {"eps": 1e-8, "weight_decay": 0.0, "momentum": 0.0}
        settings = {**defaults, **without_ways(named)}
        if unknown := settings.keys() - defaults.keys():
            raise TypeError(f"got an unexpected keyword argument {min(unknown)!r}")
        super().__init__(params, lr, alpha=check_number("alpha", alpha, 0), **settings)

    def update(self, i: int, parameter: Array, grad: Array) -> None:
        group, v = self._groups[i], self.slot("v", i, parameter)
        grad = grad.astype(v.dtype, copy=False) + group["weight_decay"] * parameter
        v *= group["alpha"]  # v + (1 - alpha) * (g^2 - v) would lose g^2 beside a large v
        v += (1 - group["alpha"]) * grad * grad
        step = grad / (namespace(v).sqrt(v) + group["eps"])
        if group["momentum"]:
            velocity = self.slot("velocity", i, parameter)
            step = velocity[...] = group["momentum"] * velocity + step
        parameter -= group["lr"] * step
