"""What all optimizers share: parameters in groups with settings, and a state that is saved."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar, overload

import numpy as np

from ..base import backend
from ..base.backend import FLOAT16, Array, namespace
from ..base.checks import check_number, check_size, check_type, listed, type_name
from ..engine.grad_mode import enable_grad
from ..engine.versions import Version
from ..errors import CheckpointError, GraphError, ShapeError
from ..kernels import FLOAT32
from ..tensors.create import zeros_like
from ..tensors.tensor import Tensor

T = TypeVar("T")
Parameters = Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]]


def refuse(*_: Any, **__: Any) -> Any:
    """Stands in the place of all methods that would add, remove or exchange parameters or names of
    settings: each parameter has a place in the optimizer's state, and steps read each setting."""
    raise TypeError(
        "call optimizer.add_param_group({'params': [...]}) to add parameters, and make a new "
        "optimizer to leave some out; settings can only be set to other values"
    )


class FixedList(list[Any]):
    """A list that stays as it was made."""

    append = extend = insert = remove = pop = clear = sort = reverse = refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = refuse

    def __reduce__(self) -> Any:  # a copy is made by its constructor, not by appending
        return FixedList, (list(self),)


class ParamGroup(dict[str, Any]):
    """Parameters ("params") and their settings. Settings change by `update` alone, which checks
    them together."""

    __delitem__ = pop = popitem = clear = refuse

    def update(self, *args: Any, **settings: Any) -> None:
        changes = dict(*args, **settings)
        if "params" in changes:
            refuse()
        if unknown := changes.keys() - self.keys():
            raise KeyError(f"a parameter group has {list(self)}, got {sorted(unknown)}")
        super().update(checked_settings({**self, **changes}))

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __ior__(self, other: Any) -> ParamGroup:  # type: ignore[override, misc]
        self.update(other)
        return self

    def setdefault(self, name: str, default: Any = None) -> Any:
        return self[name]

    def __reduce__(self) -> Any:  # a copy is made by its constructor, not one setting after another
        return ParamGroup, (dict(self),)


def checked_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a group with floats for numbers; ValueError for a value that is none."""
    checked = dict(settings)
    for name in ("lr", "momentum", "dampening", "weight_decay", "eps"):
        if name in settings:
            checked[name] = check_number(name, settings[name], 0)
    if "betas" in settings:
        betas = settings["betas"]
        if not isinstance(betas, (tuple, list)) or len(betas) != 2:
            raise ValueError(f"betas are two numbers, got {betas!r}")
        checked["betas"] = tuple(check_number(f"betas[{i}]", b, 0, 1) for i, b in enumerate(betas))
    if settings.get("nesterov") and (not settings["momentum"] or settings["dampening"]):
        raise ValueError("nesterov needs a momentum > 0 and no dampening")
    return checked


def checked_group(entry: Any, defaults: dict[str, Any]) -> ParamGroup:
    """The group that a dict stands for, with the optimizer's settings where it has none."""
    if not isinstance(entry, dict) or "params" not in entry:
        raise TypeError(f"a parameter group is a dict with the key 'params', got {entry!r}")
    if unknown := entry.keys() - {"params"} - defaults.keys():
        raise ValueError(f"a parameter group has {list(defaults)}, got {sorted(unknown)}")
    params = [entry["params"]] if isinstance(entry["params"], Tensor) else entry["params"]
    parameters = FixedList(checked_tensors(listed_parameters(params)))
    for i, parameter in enumerate(parameters):
        if not parameter.is_leaf:
            raise GraphError(f"parameter {i} was computed; only leaves can be optimized")
    return ParamGroup({**checked_settings({**defaults, **entry}), "params": parameters})


def listed_parameters(parameters: Any) -> list[Any]:
    """A list of Tensors, of pairs of a name and a Tensor, or of groups, as the caller gave it."""
    is_one = isinstance(parameters, Tensor) or hasattr(parameters, "parameters")
    if is_one or not isinstance(parameters, Iterable):
        raise TypeError(
            "an optimizer takes parameters, not the module or one Tensor: an iterable such as "
            f"model.parameters(), got a {type_name(parameters)}"
        )
    parameters = listed("an optimizer", parameters)
    if not parameters:
        raise ValueError("an optimizer needs parameters, got an empty list")
    return parameters


def checked_tensors(values: list[Any]) -> list[Tensor]:
    """The Tensors of a list that has nothing else, or pairs of a name and a Tensor."""
    if all(isinstance(value, tuple) and len(value) == 2 for value in values):
        values = [tensor for _, tensor in values]
    for i, value in enumerate(values):
        check_type(f"parameter {i} must be a Tensor", value, Tensor)
    return values


def setting(name: str) -> property:
    """A setting of the first group. To set it sets it in every group."""

    def set_all(optimizer: Optimizer, value: Any) -> None:
        # On copies, because an error in the second group must leave the first as it was.
        for group in optimizer.param_groups:
            ParamGroup(group)[name] = value
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
        self._param_groups, self._parameters = FixedList(), FixedList()
        self._groups: list[ParamGroup] = []  # of each parameter
        self.state: dict[str, list[Array | None]] = {}
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
        added = checked_group(group, self.defaults)
        more = len(added["params"])
        parameters = [*self._parameters, *added["params"]]
        if len({id(parameter) for parameter in parameters}) != len(parameters):
            raise ValueError("a parameter is listed twice")
        self._param_groups = FixedList([*self._param_groups, added])
        self._parameters = FixedList(parameters)
        self._groups = self._groups + [added] * more
        self.steps = self.steps + [0] * more
        self.state = {name: slots + [None] * more for name, slots in self.state.items()}

    @property
    def param_groups(self) -> list[ParamGroup]:
        """The groups of parameters and their settings; `add_param_group` adds one."""
        return self._param_groups

    @param_groups.setter
    def param_groups(self, value: Any) -> None:
        refuse()

    @property
    def parameters(self) -> list[Tensor]:
        """The parameters of all groups, one after another."""
        return self._parameters

    @parameters.setter
    def parameters(self, value: Any) -> None:
        refuse()

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
        value = None
        if closure is not None:
            check_type("a closure is a function", closure, Callable)
            with enable_grad():
                value = closure()
        updates = self.updates()
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
        return value

    def updates(self) -> list[tuple[int, Array, Array]]:
        """(number, parameter, gradient) of each parameter that has a gradient."""
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
        return updates

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
            settings = dict(group)
            params = settings.pop("params")
            numbers = {"tensors": len(params), "parameters": sum(x.numel() for x in params)}
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
            "lr": self.param_groups[0]["lr"],
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
            if state["kind"] != type(self).__name__:
                raise ValueError(f"it is of {state['kind']}")
            settings = self.settings_in(state)
            steps = [check_size("a number of steps", step, 0) for step in state["steps"]]
            if len(steps) != len(self._parameters):
                raise ValueError(f"it is for {len(steps)} parameters of {len(self._parameters)}")
            arrays = self.arrays_in(state, steps)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            kind = type(self).__name__
            raise CheckpointError(f"not a state of this {kind}: {error!r}") from None
        self.state, self.steps = arrays, steps
        for group, values in zip(self.param_groups, settings, strict=True):
            group.update(values)

    def settings_in(self, state: dict[str, Any]) -> list[dict[str, Any]]:
        """The settings of each group; an error if they do not fit the groups of this optimizer."""
        lr = check_number("lr", state["lr"], 0)
        # A state of an older version has one learning rate and no groups.
        saved_groups = state.get("groups") or [{"lr": lr}] * len(self.param_groups)
        if saved_groups[0]["lr"] != lr:
            raise ValueError(f"lr is {lr}, and that of the first group {saved_groups[0]['lr']}")
        settings = []
        for group, saved in zip(self.param_groups, saved_groups, strict=True):
            values = {**saved}
            if values.pop("params", len(group["params"])) != len(group["params"]):
                raise ValueError(f"a group has {len(group['params'])} parameters, got {saved}")
            ParamGroup(group).update(values)
            settings.append(values)
        return settings

    def arrays_in(self, state: dict[str, Any], steps: list[int]) -> dict[str, list[Array | None]]:
        """The arrays of each parameter; an error if one has another shape, or if a parameter that
        has moved lacks one of `slots`."""
        places = {str(i): i for i in range(len(steps))}
        arrays: dict[str, list[Array | None]] = {}
        for key, value in dict(state["arrays"]).items():
            name, _, number = str(key).rpartition(".")
            i = places.get(number, -1)
            known = i >= 0 and isinstance(value, Tensor) and value.dtype.kind == "f"
            if not known or value.shape != self._parameters[i].shape:
                raise ValueError(f"{key!r} fits no parameter")
            array = Tensor(value, device=self._parameters[i].device)._data.copy(order="C")
            arrays.setdefault(name, [None] * len(steps))[i] = array
        if self.slots:
            wanted = {f"{name}.{i}" for name in self.slots for i, step in enumerate(steps) if step}
            for key in sorted(wanted ^ state["arrays"].keys()):
                what = "missing" if key in wanted else "there before its parameter has moved"
                raise ValueError(f"{key!r} is {what}")
        return arrays
