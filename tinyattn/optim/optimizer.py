"""What all optimizers share: parameters in groups with settings, and a state that is saved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, overload

import numpy as np

from ..base.backend import FLOAT16, Array, namespace, quietly
from ..base.checks import check_number, check_size, check_type, describe, listed, type_name
from ..engine.grad_mode import enable_grad
from ..engine.versions import Version
from ..errors import CheckpointError, GraphError, ShapeError
from ..kernels import FLOAT32
from ..tensors.create import zeros_like
from ..tensors.tensor import Tensor

T = TypeVar("T")
BETAS = ("betas[0]", "betas[1]")
KEEPS = "an optimizer keeps its parameters: add_param_group adds others; or make a new optimizer"
Parameters = Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]]


def listed_parameters(parameters: Any) -> list[Any]:
    """A list of Tensors, of pairs of a name and a Tensor, or of groups, as the caller gave it."""
    is_one = isinstance(parameters, (Tensor, Mapping)) or not isinstance(parameters, Iterable)
    values = [parameters] if is_one else listed("an optimizer", parameters)
    if is_one or any(hasattr(type(value), "parameters") for value in values):
        raise TypeError(
            "an optimizer takes parameters, not the module or one Tensor: an iterable such as "
            f"model.parameters(), got {type_name(parameters)}"
        )
    if not values:
        raise ValueError("an optimizer needs parameters, got an empty list")
    return values


def checked_tensors(values: list[Any]) -> list[Tensor]:
    """The Tensors of a list that has nothing else, or pairs of a name and a Tensor."""
    if all(isinstance(value, tuple) and len(value) == 2 for value in values):
        values = [tensor for _, tensor in values]
    for i, value in enumerate(values):
        check_type(f"parameter {i} must be a Tensor", value, Tensor)
    return values


def tensors_of(parameters: Any) -> list[Tensor]:
    """A list of parameters, of which one may come without a list."""
    is_one = isinstance(parameters, Tensor)
    return checked_tensors([parameters] if is_one else listed_parameters(parameters))


def decay_groups(parameters: Any, weight_decay: float) -> list[dict[str, Any]]:
    """Groups for an optimizer: matrices decay, and biases and the weights of norms do not.

    Parameters that are frozen are left out.

        >>> groups = optim.decay_groups(nn.Linear(3, 2).parameters(), 0.1)
        >>> [(group["params"][0].shape, group["weight_decay"]) for group in groups]
        [((2, 3), 0.1), ((2,), 0.0)]
    """
    trained = [p for p in checked_tensors(listed_parameters(parameters)) if p.requires_grad]
    matrices, others = [p for p in trained if p.ndim > 1], [p for p in trained if p.ndim < 2]
    pairs = ((matrices, weight_decay), (others, 0.0))
    return [{"params": some, "weight_decay": decay} for some, decay in pairs if some]


def setting(name: str) -> property:
    """A setting of the first group. To set it sets it in every group."""

    def set_all(optimizer: Optimizer, value: Any) -> None:
        optimizer.set_groups([{**group, name: value} for group in optimizer.param_groups])

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


def called(closure: Callable[[], Any]) -> Any:
    return enable_grad(check_type("a closure is a function", closure, Callable))()


class State(dict[str, dict[int, Array]]):
    """The arrays of an optimizer by their names, and by the number of the parameter.

    PyTorch has a dict for each parameter: what a program wrote there would change nothing here.
    """

    def __missing__(self, key: Any) -> Any:
        raise KeyError(f"state has arrays by name and number, here {[*self]}, got {describe(key)}")

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(key, str):
            self.__missing__(key)
        super().__setitem__(key, value)


class Optimizer:
    """What all optimizers share: parameters, their settings, arrays that go with each parameter and
    have its shape, and a state that can be saved and taken up again bitwise.

    params: Tensors, or pairs of a name and a Tensor, as `named_parameters()` gives them; or a list
        of groups: dicts with these under "params" and the settings in which they differ.
        `param_groups` has all settings of each, which may change between steps. The next step
        checks them: ValueError for a wrong value. `add_param_group` adds a group.
        The first schedule adds "initial_lr", the rate from before it.
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
        # Each group, and a copy of it as it was checked.
        self._checked: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._groups: list[dict[str, Any]] = []  # of each parameter
        self.state: Any = State()  # by the names in `slots`
        self.steps: list[int] = []
        entries = listed_parameters(params)
        for group in entries if isinstance(entries[0], dict) else [{"params": entries}]:
            self.add_param_group(group)

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
        if not isinstance(group, dict) or "params" not in group:
            raise TypeError(f"a parameter group is a dict with the key 'params', got {group!r}")
        tensors = tuple(tensors_of(group["params"]))
        added = self.checked_group({**self.defaults, **group, "params": tensors})
        for i, parameter in enumerate(tensors):
            if not parameter.is_leaf:
                raise GraphError(f"parameter {i} was computed; only leaves can be optimized")
        parameters = [*self.parameters, *tensors]
        if len({id(parameter) for parameter in parameters}) != len(parameters):
            raise ValueError("a parameter is listed twice")
        self._checked.append((added, dict(added)))
        self._groups += [added] * len(tensors)
        self.steps += [0] * len(tensors)

    @property
    def param_groups(self) -> tuple[dict[str, Any], ...]:
        """The groups of parameters and their settings; `add_param_group` adds one."""
        return tuple(group for group, _ in self._checked)

    @param_groups.setter
    def param_groups(self, groups: Any) -> None:
        """Those of another optimizer with the same parameters, which then shares them; or of one
        that moves nothing, whose `__init__` calls no other."""
        params = [id(p) for group in groups for p in group.get("params", ())]
        if hasattr(self, "defaults") and params != list(map(id, self.parameters)):
            raise TypeError(KEEPS)
        self._checked = [(group, dict(group)) for group in groups]

    @property
    def parameters(self) -> list[Tensor]:
        """The parameters of all groups, one after another."""
        return [x for _, checked in self._checked for x in checked["params"]]

    def checked_group(self, group: dict[str, Any]) -> dict[str, Any]:
        """A group with floats for numbers; ValueError for a missing, unknown or wrong setting."""
        if group.keys() - {"initial_lr"} != {"params", *self.defaults}:
            raise ValueError(f"a parameter group has {['params', *self.defaults]}, got {[*group]}")
        checked = dict(group)
        for name in ("lr", "initial_lr", "momentum", "dampening", "weight_decay", "eps"):
            if name in group:
                checked[name] = check_number(name, group[name], 0)
        if "betas" in group:
            betas = group["betas"]
            if not isinstance(betas, (tuple, list)) or len(betas) != 2:
                raise ValueError(f"betas are two numbers, got {betas!r}")
            checked["betas"] = tuple(map(check_number, BETAS, betas, (0, 0), (1, 1)))
        if group.get("nesterov") and (not group["momentum"] or group["dampening"]):
            raise ValueError("nesterov needs a momentum > 0 and no dampening")
        return checked

    def set_groups(self, groups: list[dict[str, Any]]) -> None:
        """Give all groups these settings alone, or change none if one of them is wrong.

        What they lack is forgotten, as an "initial_lr" that a saved state does not have.
        """
        checked = [self.checked_group(group) for group in groups]
        for group, settings in zip(self.param_groups, checked, strict=True):
            group.clear()
            group.update(settings)

    def check_groups(self) -> None:
        """Refuse a step with wrong settings, or with other parameters than were added."""
        for group, checked in self._checked:
            if group.get("params") is not checked["params"]:
                raise TypeError(KEEPS)
        if any(group != checked for group, checked in self._checked):  # a user has set a value
            self.set_groups([*self.param_groups])
            self._checked = [(group, dict(group)) for group in self.param_groups]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, or fill them with 0; otherwise the next backward adds to them."""
        for parameter in self.parameters:
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
        value = None if closure is None else called(closure)
        self.check_groups()
        parameters = self.parameters
        updates = self.updates(parameters)
        self.steps = self._counted_steps()
        versions = [parameters[i]._version for i, *_ in updates]
        for version in versions:
            version.begin_change()
        try:
            for i, *_ in updates:
                self.steps[i] += 1
            quietly(self.update_all, updates)  # a warning could end it in the middle
        finally:
            for version in versions:
                version.end_change()
        return value

    def _counted_steps(self) -> list[int]:
        """The steps of each parameter; none if a program has emptied the state, to begin anew."""
        return [0] * len(self.steps) if self.slots and not self.state else self.steps

    def updates(self, parameters: list[Tensor]) -> list[tuple[int, Array, Array]]:
        """(number, parameter, gradient) of each parameter that has a gradient."""
        updates: list[tuple[int, Array, Array]] = []
        arrays: dict[int, Array] = next(iter(self.state.values()), {})
        for i, parameter in enumerate(parameters):
            grad, slot = parameter.grad, arrays.get(i)
            if grad is None:
                continue
            array = writable_parameter(parameter)
            if slot is not None and slot.shape != array.shape:
                raise ShapeError(
                    f"parameter {i} had shape {slot.shape} in its last step and has {array.shape} "
                    f"now: make a new {type(self).__name__} for it"
                )
            updates.append((i, array, grad._data.astype(array.dtype, copy=False)))
        return updates

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
        arrays = self.state.setdefault(name, {})
        array = arrays.get(i)
        dtype = FLOAT32 if like.dtype == FLOAT16 else like.dtype
        if array is None:
            array = arrays[i] = namespace(like).zeros(like.shape, dtype)
        elif array.dtype is not dtype:  # the parameter was converted; or the array is of a pickle
            array = arrays[i] = array.astype(dtype)
        return array

    def __repr__(self) -> str:
        texts = []
        for group in self.param_groups:
            settings = dict(group)
            params = settings.pop("params", ())
            numbers = {"tensors": len(params), "parameters": sum(x.numel() for x in params)}
            texts.append(", ".join(f"{name}={x!r}" for name, x in (numbers | settings).items()))
        if len(texts) > 1:
            texts = [f"\n  group {i}: {text}" for i, text in enumerate(texts)] + ["\n"]
        return f"{type(self).__name__}({''.join(texts)})"

    def state_dict(self) -> dict[str, Any]:
        """Copies of everything that changes while training, for `ta.save`."""
        arrays = {
            f"{name}.{i}": Tensor(array)
            for name, values in self.state.items()
            for i, array in sorted(values.items())
        }
        groups = [{**group, "params": len(group["params"])} for group in self.param_groups]
        return {
            "kind": type(self).__name__,
            "groups": groups,  # with the number of their parameters
            "steps": list(self._counted_steps()),
            "arrays": arrays,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state, with its settings; refused as a whole if it does not fit."""
        if isinstance(state, dict) and {"state", "param_groups"} <= state.keys():
            raise CheckpointError(
                "this is the state of an optimizer of PyTorch; one of tinyattn has kind, "
                "groups, steps and arrays, as state_dict() gives them"
            )
        try:
            if state["kind"] != type(self).__name__:
                raise ValueError(f"it is of {state['kind']}")
            groups = self.groups_in(state)
            steps = [check_size("a number of steps", step, 0) for step in state["steps"]]
            if len(steps) != len(self.steps):
                raise ValueError(f"it is for {len(steps)} parameters of {len(self.steps)}")
            arrays = self.arrays_in(state, steps)
            self.set_groups(groups)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            kind = type(self).__name__
            raise CheckpointError(f"not a state_dict() of this {kind}: {error!r}") from None
        self.state, self.steps = State(arrays), steps

    def groups_in(self, state: dict[str, Any]) -> list[dict[str, Any]]:
        """The groups with the settings of a state; an error if it has others."""
        groups = []
        for group, saved in zip(self.param_groups, state["groups"], strict=True):
            if saved["params"] != len(group["params"]):
                raise ValueError(f"a group has {len(group['params'])} parameters, got {saved}")
            groups.append({**saved, "params": group["params"]})
        return groups

    def arrays_in(self, state: dict[str, Any], steps: list[int]) -> dict[str, dict[int, Array]]:
        """The arrays of each parameter; an error if one has another shape, or if a parameter that
        has moved lacks one of `slots`."""
        places = {str(i): i for i in range(len(steps))}
        parameters = self.parameters
        arrays: dict[str, dict[int, Array]] = {}
        for key, value in dict(state["arrays"]).items():
            name, _, number = str(key).rpartition(".")
            i = places.get(number, -1)
            known = i >= 0 and isinstance(value, Tensor) and value.dtype.kind == "f"
            if not known or value.shape != parameters[i].shape:
                raise ValueError(f"{key!r} fits no parameter")
            array = Tensor(value, device=parameters[i].device)._data.copy(order="C")
            arrays.setdefault(name, {})[i] = array
        if self.slots:
            wanted = {f"{name}.{i}" for name in self.slots for i, step in enumerate(steps) if step}
            for key in sorted(wanted ^ state["arrays"].keys()):
                what = "missing" if key in wanted else "there before its parameter has moved"
                raise ValueError(f"{key!r} is {what}")
        return arrays
