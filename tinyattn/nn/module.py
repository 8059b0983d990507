"""Module: the base class of layers and models, with parameters and other modules inside."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from types import MappingProxyType as Fixed
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Protocol, Self, TypeVar

import numpy as np

from ..base import checks
from ..base.backend import Array, module_of, to_device
from ..base.checks import DTypeLike
from ..base.names import UnknownNameError, explain_argument
from ..errors import CheckpointError, DtypeError, GraphError, InPlaceError, ShapeError
from ..tensors.create import zeros_like
from ..tensors.tensor import Tensor
from .init import fill

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
AnyModule = TypeVar("AnyModule", bound="Module")


class HasForward(Protocol[P, R_co]):
    """A module whose forward takes P and gives R. So `model(x)` has the types of its forward."""

    _hooks: Any

    def forward(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


class Parameter(Tensor):
    """A tensor that is learned. A module registers it when it is assigned to an attribute.

    data, dtype, device: as for `ta.tensor`; `requires_grad=False` freezes it. Differs from PyTorch:
    the data are copied.
    """

    __slots__ = ()
    _copies_grad = False

    def __init__(
        self,
        data: Any,
        requires_grad: bool = True,
        dtype: DTypeLike = None,
        device: str | None = None,
    ) -> None:
        super().__init__(data, dtype, device)
        checks.require_float(self.dtype, "a Parameter")
        self.requires_grad = requires_grad

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"


def read(name: str, value: Any, tensor: Tensor) -> Tensor:
    """Numbers as a Tensor; lists of floats are as exact as the tensor that takes them."""
    try:
        made = Tensor(value)
    except (DtypeError, ShapeError) as error:
        raise type(error)(f"{name}: {error}") from None
    same_kind = made.dtype.kind == tensor.dtype.kind == "f"
    return Tensor(value, tensor.dtype) if same_kind and not checks.has_dtype(value) else made


class LoadedNames(NamedTuple):
    """What `load_state_dict` returns: names that only the module or only the state has."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class Hook:
    """What `register_forward_hook` returns; `remove()` takes the hook away."""

    def __init__(self, hooks: dict[object, Any], function: Callable[..., Any]) -> None:
        self.hooks, self.key = hooks, object()
        hooks[self.key] = function

    def remove(self) -> None:
        self.hooks.pop(self.key, None)


def copied(module: AnyModule, twins: dict[int, Any] | None = None) -> AnyModule:
    """A deep copy; GraphError names an attribute that cannot be copied.

    twins: by id(part), what stands in the copy in place of some parts.
    """
    try:
        return copy.deepcopy(module, twins)
    except GraphError:
        for name, part in module.named_modules():
            for key, value in part.__dict__.items():
                path = f"{name}.{key}" if name else key
                try:
                    copy.deepcopy(None if isinstance(value, Module) else value)
                except GraphError:
                    raise GraphError(
                        f"{type(module).__name__} is copied here, but its attribute {path} was "
                        "computed and is part of a graph: keep its detach() instead, or None"
                    ) from None
        raise


def tree_of(head: str, parts: Mapping[str, Any]) -> str:
    """The repr of a module: its head, and its parts in lines of their own.

    Numbered parts that follow one another and have the same repr are shown once.
    """
    pairs = [(name, repr(part)) for name, part in parts.items()]
    lines = []
    for _, equal in groupby(pairs, lambda pair: pair[1] if pair[0].isdecimal() else pair):
        names, (text, *_) = zip(*equal, strict=True)
        if len(names) > 1:
            names, text = (f"{names[0]}-{names[-1]}",), f"{len(names)} x {text}"
        lines.append(f"({names[0]}): {text}".replace("\n", "\n  "))
    return head + ("\n  " + "\n  ".join(lines) + "\n)" if lines else ")")


def with_options(module: Any, *sizes: Any, **defaults: Any) -> str:
    """An extra_repr: the sizes, and the options of a module that do not have their default."""
    options = {name: getattr(module, name) for name in defaults}
    if isinstance(defaults.get("bias"), bool) and not isinstance(options["bias"], bool):
        options["bias"] = options["bias"] is not None
    changed = [f"{n}={x!r}" for n, x in options.items() if repr(x) != repr(defaults[n])]
    return ", ".join([*map(str, sizes), *changed])


class Module:
    """The base class of layers and models: subclass it and define `forward`.

    Parameters and Modules that are assigned to attributes, and buffers (`register_buffer`), are
    found by `parameters()`, `state_dict()` and the rest: first all of the module's own, then those
    of each Module inside it, in the order of assignment. A plain Tensor is not, even if it requires
    gradients, as in PyTorch: make it an nn.Parameter, so that it is trained. Modules in a plain
    list or dict would not be found, so these raise TypeError; use ModuleList.

        >>> class Double(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.weight = nn.Parameter([2.0])
        ...     def forward(self, x):
        ...         return x * self.weight
        >>> Double()(ta.tensor([3.0])).item()
        6.0
    """

    # Until __init__ has been called. Numbers may be set before it, and parts may not.
    training: bool = True
    _buffer_names: Mapping[str, bool] = Fixed({})  # and whether each is saved
    _hooks: Any = Fixed({})

    def __init__(self) -> None:
        # Not through our own __setattr__, because that needs them.
        self.__dict__.update(_buffer_names={}, _hooks={}, training=True)

    # All three kinds are plain attributes, because Python finds these fastest. These are read only,
    # because what one wrote to them would be lost: set and delete the attribute.

    @property
    def _parameters(self) -> Fixed[str, Parameter]:
        return Fixed({name: x for name, x in self.__dict__.items() if isinstance(x, Parameter)})

    @property
    def _buffers(self) -> Fixed[str, Tensor]:
        names = self._buffer_names
        return Fixed({n: x for n, x in self.__dict__.items() if n in names and x is not None})

    @property
    def _modules(self) -> Fixed[str, Module]:
        return Fixed({name: x for name, x in self.__dict__.items() if isinstance(x, Module)})

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes. A subclass defines it, with the arguments that it needs."""
        raise TypeError(f"{type(self).__name__} defines no forward()")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):  # a property, whose own error led here
                return object.__getattribute__(self, name)
            raise UnknownNameError(type(self).__name__, name, self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)  # Python would ask a __getattr__ of a subclass for this method

    def __call__(self: HasForward[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            out = self.forward(*args, **kwargs)
        except TypeError as error:
            explain_argument(error)
            raise
        if self._hooks:
            for hook in list(self._hooks.values()):
                replacement = hook(self, args, out)
                out = out if replacement is None else replacement
        return out

    def register_forward_hook(self, hook: Callable[..., Any]) -> Hook:
        """Call `hook(module, args, output)` after each call; a result takes its place.

        >>> seen, layer = [], nn.Linear(3, 2)
        >>> handle = layer.register_forward_hook(lambda m, args, out: seen.append(out.shape))
        >>> _ = layer(ta.zeros(5, 3)); handle.remove(); _ = layer(ta.zeros(5, 3)); seen
        [(5, 2)]
        """
        return Hook(self._hooks, hook)

    def __setattr__(self, name: str, value: Any) -> None:
        if "training" not in self.__dict__ and isinstance(value, (Module, Tensor)):
            raise TypeError(f"call super().__init__() before setting {name!r}")
        checks.check_container(name, value, (Module, Parameter), self.__dict__)
        if isinstance(value, (Module, Tensor)) and hasattr(Module, name):
            raise TypeError(f"{name!r} is a method of every Module: choose another name")
        if isinstance(value, (Module, Parameter)):
            self._forget_buffer(name)
        elif value is not None:
            self._check_replacement(name, value)
        object.__setattr__(self, name, value)

    def _check_replacement(self, name: str, value: Any) -> None:
        """Refuse to replace a Parameter, Module or buffer by something of another kind."""
        old, kind = self.__dict__.get(name), type(value).__name__
        if isinstance(old, Parameter):
            raise TypeError(
                f"{name!r} is a Parameter, got {kind}, which nobody would train: assign an "
                f"nn.Parameter or None, or new values to {name}.data"
            )
        if isinstance(old, Module):
            raise TypeError(
                f"{name!r} is a module ({type(old).__name__}), got {kind}: assign a module or None"
            )
        if name in self._buffer_names and not isinstance(value, Tensor):
            raise TypeError(f"{name!r} is a buffer, got {kind}: assign a Tensor or None")

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        self._forget_buffer(name)

    def register_buffer(self, name: str, value: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is moved and saved with the module but not learned.

        persistent=False: it is not in the state_dict. It may be None, now or later, and a Tensor
        again. For a type checker, declare it in the class: `steps: ta.Tensor`.
        """
        if isinstance(value, Parameter) or not isinstance(value, (Tensor, NoneType)):
            raise TypeError(f"a buffer is a Tensor, got {type(value).__name__}")
        if not isinstance(name, str) or not name or "." in name:
            raise ValueError(f"the name of a buffer is a word without dots, got {name!r}")
        if name not in self._buffer_names and hasattr(self, name):
            raise ValueError(f"{type(self).__name__} has an attribute {name!r} already")
        setattr(self, name, value)
        self.__dict__["_buffer_names"] = {**self._buffer_names, name: persistent}

    def _forget_buffer(self, name: str) -> None:
        self.__dict__["_buffer_names"] = {n: x for n, x in self._buffer_names.items() if n != name}

    # Modules and parameters inside

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(name, module) of the modules that this one has itself, each once."""
        self._check_containers()
        return self._each_once("_modules", "", recurse=False)

    def children(self) -> Iterator[Module]:
        """The modules that this one has itself."""
        yield from (module for _, module in self.named_children())

    def apply(self, function: Callable[[Module], Any]) -> Self:
        """Call a function with every module inside, then with this one. Returns self."""
        for module in self.children():
            module.apply(function)
        function(self)
        return self

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module and all modules inside it, each once, with dotted names."""
        seen: set[int] = set()
        stack: list[tuple[str, Module]] = [(prefix, self)]
        while stack:
            name, module = stack.pop()
            if id(module) in seen:
                continue
            seen.add(id(module))
            yield name, module
            module._check_containers()
            below = [(f"{name}.{key}" if name else key, m) for key, m in module._modules.items()]
            stack.extend(reversed(below))

    def modules(self) -> Iterator[Module]:
        """This module and all those inside it."""
        yield from (module for _, module in self.named_modules())

    def named_parameters(
        self, prefix: str = "", recurse: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Every parameter once, with its dotted name behind the prefix.

        recurse=False: only those of this module itself, which come first, in order of assignment.
        """
        return self._each_once("_parameters", prefix, recurse)

    def _each_once(self, kind: str, start: str, recurse: bool) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        for prefix, module in self.named_modules(start) if recurse else [(start, self)]:
            for key, value in getattr(module, kind).items():
                if id(value) not in seen:
                    seen.add(id(value))
                    yield (f"{prefix}.{key}" if prefix else key), value

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters of this module and of all those inside it, each once."""
        yield from (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
        """(name, buffer) of this module and of all those inside it, each once."""
        return self._each_once("_buffers", prefix, recurse)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers of this module and of all those inside it."""
        yield from (buffer for _, buffer in self.named_buffers(recurse=recurse))

    # Modes, gradients, devices

    def train(self, mode: bool = True) -> Self:
        """Training mode: dropout is on. Returns self.

        A module inside may have a `train` of its own, which merges weights, or keeps a part in
        evaluation mode.
        """
        object.__setattr__(self, "training", bool(mode))
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Self:
        """Evaluation mode: dropout is off. Returns self."""
        return self.train(False)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, or fill them with 0."""
        for parameter in self.parameters():
            keep = not set_to_none and parameter.grad is not None
            parameter.grad = zeros_like(parameter) if keep else None

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Freeze (False) or unfreeze all parameters. Returns self."""
        for parameter in self.parameters():
            parameter.requires_grad = requires_grad
        return self

    def to(self, *targets: DTypeLike, device: str | None = None, dtype: DTypeLike = None) -> Self:
        """Move to a device ("cpu", "cuda"), convert to a floating dtype, or both, in place."""
        targets = tuple(x for x in (*targets, device, dtype) if x is not None)
        for target in targets:
            if checks.names_device(target):
                module_of(str(target))
            else:
                checks.require_float(checks.checked_dtype(target), "a module")
        for target in targets:
            self._convert(target)
        return self

    def _convert(self, target: DTypeLike) -> None:
        for parameter in self.parameters():
            grad = parameter.grad
            parameter.data = parameter.detach().to(target)._data
            if grad is not None:
                parameter.grad = grad.to(target)
        for module in self.modules():
            for name, buffer in module._buffers.items():
                if checks.names_device(target):
                    buffer.data = buffer.detach().to(target)._data
                elif buffer.dtype.kind == "f":
                    buffer.data = module.converted_buffer(name, checks.checked_dtype(target))._data

    def half(self) -> Self:
        """Convert to float16, in place. Returns self."""
        return self.to(np.float16)

    def float(self) -> Self:
        """Convert to float32, in place. Returns self."""
        return self.to(np.float32)

    def double(self) -> Self:
        """Convert to float64, in place. Returns self."""
        return self.to(np.float64)

    def cpu(self) -> Self:
        """Move to the CPU, in place. Returns self."""
        return self.to("cpu")

    def cuda(self) -> Self:
        """Move to the GPU, in place. Returns self."""
        return self.to("cuda")

    def converted_buffer(self, name: str, dtype: np.dtype) -> Tensor:
        """A floating buffer in another dtype. A module may compute it anew instead of rounding."""
        return self._buffers[name].to(dtype)

    # State

    def state_dict(self) -> dict[str, Tensor]:
        """All parameters and buffers, by dotted name. Differs from PyTorch: copies."""
        return {name: tensor.detach().clone() for name, tensor in self._named_state()}

    def _named_state(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        """Like `state_dict`; a shared tensor comes under each of its names."""
        self._check_containers()
        for key, tensor in {**self._parameters, **self._buffers}.items():
            if self._buffer_names.get(key, True):
                yield prefix + key, tensor
        for key, module in self._modules.items():
            yield from module._named_state(f"{prefix}{key}.")

    def _check_containers(self) -> None:
        """Again, because a list may have been filled after assignment."""
        for name, value in self.__dict__.items():
            checks.check_container(name, value, (Module, Parameter), self.__dict__)

    def load_state_dict(self, state: dict[str, Any], strict: bool = True) -> LoadedNames:
        """Copy values from `state` by name. If one does not fit, nothing is changed.

        strict: the names must be the same; otherwise only common names are copied.
        Returns the names (missing_keys, unexpected_keys) that were not copied; with `strict` none.
        Raises CheckpointError for names, ShapeError and DtypeError for values that do not fit,
        GraphError for a buffer that is part of a graph.

            >>> layer = nn.Linear(3, 2)
            >>> layer.load_state_dict({"weight": ta.ones(2, 3), "scale": ta.ones(2)}, strict=False)
            LoadedNames(missing_keys=['bias'], unexpected_keys=['scale'])
        """
        hint = ": read a file with ta.load first"
        checks.check_type("load_state_dict takes a dict of tensors", state, dict, hint)
        if wrong := [name for name in state if not isinstance(name, str)]:
            raise TypeError(f"the names in a state are strings, got {wrong[0]!r}")
        tensors, owner = dict(self._named_state()), type(self).__name__
        if strict:
            checks.check_names(owner, tensors, state)
        values = {
            name: value if isinstance(value, Tensor) else read(name, value, tensors[name])
            for name, value in state.items()
            if name in tensors
        }
        checks.check_shapes(owner, {name: tensors[name].shape for name in values}, values)
        arrays: list[tuple[Tensor, Array]] = []
        first_names: dict[int, str] = {}
        for name, value in values.items():
            tensor = tensors[name]
            first = first_names.setdefault(id(tensor), name)
            if first != name and not values[first].equal(value):
                raise CheckpointError(
                    f"{first} and {name} are one tensor here, and have other numbers in the state"
                )
            if tensor.dtype.kind == "f" and value.dtype.kind != "f":
                raise DtypeError(f"{name} is {tensor.dtype}, got {value.dtype}")
            if not tensor.is_leaf:
                raise GraphError(f"{name} was computed by a recorded op: detach() it in the module")
            array = checks.cast_exactly(to_device(value._data, tensor.device), tensor.dtype, "C")
            arrays.append((tensor, array))
        for tensor, array in arrays:  # nothing can fail any more
            try:  # so that what shows this memory has the values too
                fill(tensor, array)
            except InPlaceError:  # it is read-only, or a graph needs it
                tensor.data = array
        missing = [name for name in tensors if name not in state]
        return LoadedNames(missing, [name for name in state if name not in tensors])

    def extra_repr(self) -> str:
        """The text in the parentheses of this module's repr."""
        return ""

    def __repr__(self) -> str:
        return tree_of(f"{type(self).__name__}({self.extra_repr()}", self._modules)


@contextmanager
def evaluated(module: Module) -> Iterator[None]:
    """A with-block in eval(); afterwards each part has the mode that it had."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            if part.training != mode:  # by its own train(), which may take back what eval() did
                part.train(mode)
        for part, mode in modes:  # train() of a later parent reaches a shared part again
            part.training = mode
