"""Modules that hold modules: ModuleList, ModuleDict and Sequential."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, MutableSequence
from copy import copy
from types import NoneType
from typing import Any, Self, overload

from ..base.checks import check_type, listed
from ..tensors.tensor import Tensor
from .module import AnyModule, Module


class Modules(Module, MutableSequence[AnyModule]):
    """What ModuleList and Sequential share. Neither is the other, because programs ask which."""

    _kinds: tuple[type, ...] = (Module, NoneType)

    def __init__(self, modules: Iterable[AnyModule] = ()) -> None:
        super().__init__()
        self._fill(modules)

    def _fill(self, modules: Iterable[AnyModule]) -> None:
        kind = type(self).__name__
        modules = listed(f"a {kind}", modules)
        for module in modules:
            hint = ": one by one, not in a list" if isinstance(module, list) else ""
            check_type(f"a {kind} holds modules", module, self._kinds, hint)
        # An element with a name of its own keeps it; the others are numbered by their places.
        names = {id(x): name for name, x in self._elements.items() if not name.isdecimal()}
        for name in self._elements:
            delattr(self, name)
        for i, module in enumerate(modules):
            setattr(self, names.pop(id(module), str(i)), module)

    @property
    def _elements(self) -> Mapping[str, Any]:
        own, kinds = self.__dict__.items(), self._kinds
        return {name: x for name, x in own if name.isdecimal() and isinstance(x, kinds)}

    def __add__(self, other: Iterable[AnyModule]) -> Modules[AnyModule]:
        """A new ModuleList or Sequential of the modules of both; of a class of yours no other."""
        kinds: tuple[type[Modules[Any]], ...] = (ModuleList, Sequential)
        plain = [kind() for kind in kinds if isinstance(self, kind)]
        return (plain or [self[:0]])[0].extend([*self, *listed("+", other)])

    def __len__(self) -> int:
        return len(self._elements)

    def __iter__(self) -> Iterator[AnyModule]:
        return iter(self._elements.values())

    @overload
    def __getitem__(self, index: int) -> AnyModule: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> AnyModule | Self:
        if isinstance(index, slice):
            part = copy(self)  # its constructor may make other modules
            part.__dict__["_hooks"] = {}
            part._fill(list(self)[index])
            return part
        return list(self)[index]

    def __setitem__(self, index: Any, module: Any) -> None:
        modules = list(self)
        modules[index] = module
        self._fill(modules)

    def __delitem__(self, index: int | slice) -> None:
        modules = list(self)
        del modules[index]
        self._fill(modules)

    def append(self, module: AnyModule) -> Self:  # type: ignore[override]
        """Add a module at the end. Returns self, as in PyTorch."""
        self.insert(len(self), module)
        return self

    def extend(self, modules: Iterable[AnyModule]) -> Self:  # type: ignore[override]
        """Add modules at the end. Returns self."""
        self._fill([*self, *listed("extend", modules)])
        return self

    def insert(self, index: int, module: AnyModule) -> None:
        """Add a module in front of the one at `index`."""
        modules = list(self)
        modules.insert(index, module)
        self._fill(modules)


class ModuleList(Modules[AnyModule]):
    """A list of modules that `parameters()` and the rest find.

    The names of its elements are numbers. None is an element too, for a module that is left out.
    Differs from PyTorch: attributes with other names are no elements.
    """


class ModuleDict(Module, MutableMapping[str, AnyModule]):
    """A dict of modules that `parameters()` and the rest find. Keys are names of attributes.

    >>> norms = nn.ModuleDict({"layer": nn.LayerNorm(4), "rms": nn.RMSNorm(4)})
    >>> norms["rms"](ta.ones(4)).shape, list(norms)
    ((4,), ['layer', 'rms'])
    """

    # A mapping compares its items; modules are compared by identity.
    __eq__, __hash__ = Module.__eq__, Module.__hash__

    def __init__(
        self, modules: Mapping[str, AnyModule] | Iterable[tuple[str, AnyModule]] = ()
    ) -> None:
        super().__init__()
        try:
            self.update(dict(modules))
        except (TypeError, ValueError) as error:
            raise TypeError(f"a ModuleDict takes a dict or pairs (name, module): {error}") from None

    def __getitem__(self, key: str) -> AnyModule:
        modules: Mapping[str, Any] = self._modules
        return modules[key]

    def __setitem__(self, key: str, module: AnyModule) -> None:
        is_name = isinstance(key, str) and key and "." not in key
        if not is_name or (key not in self and hasattr(self, key)):
            raise KeyError(f"a key is a word without dots, no attribute of ModuleDict, got {key!r}")
        check_type("a ModuleDict holds modules", module, Module)
        setattr(self, key, module)

    def __delitem__(self, key: str) -> None:
        self[key]  # raises KeyError for an unknown one
        delattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


class Sequential(Modules[Module]):
    """Modules one after the other: `Sequential(a, b)(x)` is `b(a(x))`.

    A module that is set as an attribute, `model.head = c`, is the next one. In one dict of modules
    each has a name.
    Differs from PyTorch: the modules of a slice are numbered from 0, which their names show.

    >>> nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))(ta.ones(3, 4)).shape
    (3, 2)
    >>> nn.Sequential({"up": nn.Linear(4, 8), "act": nn.ReLU()}).up
    Linear(4, 8, bias=True)
    """

    _kinds = (Module,)

    def __init__(self, *modules: Module | dict[str, Module]) -> None:
        if len(modules) == 1 and isinstance(modules[0], dict):
            super().__init__()
            for name, module in ModuleDict(modules[0]).items():  # which checks them
                setattr(self, name, module)
            return
        super().__init__(modules)  # type: ignore[arg-type]

    @property
    def _elements(self) -> Mapping[str, Any]:
        return self._modules

    def __setitem__(self, index: Any, module: Any) -> None:
        if isinstance(index, slice):
            super().__setitem__(index, module)
        else:  # it has the name of the one whose place it takes
            check_type("a Sequential holds modules", module, Module)
            setattr(self, [*self._modules][index], module)

    def forward(self, input: Any) -> Tensor:
        """The Tensor that the last module makes; the input is what the first one takes."""
        for module in self:
            input = module(input)
        return input
