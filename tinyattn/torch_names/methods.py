"""Puts the further methods on Tensor and Module: programs call them on every tensor and model."""

from __future__ import annotations

from typing import Any

from ..nn.module import Module
from ..tensors.tensor import Tensor, read_only
from .devices import adapted_to, device
from .functions import BOTH, FILLS, IN_PLACE, METHODS
from .in_place import in_place

plain: Any = Tensor  # its properties, for which type checkers know no fget
of_data, of_device = plain.data, plain.device
OF_TENSORS: dict[str, Any] = BOTH | METHODS
OF_TENSORS |= {
    f"{name}_": in_place(FILLS.get(name) or BOTH.get(name) or getattr(Tensor, name))
    for name in IN_PLACE.split()
}
OF_TENSORS |= {
    # The methods that end in "_" write into its memory, so they change the tensor itself.
    "data": property(lambda x: x.detach(), of_data.fset),
    "device": read_only("device", property(lambda x: device(of_device.fget(x)))),
    "is_cuda": property(lambda x: x.device == "cuda"),
}


def found(named: Any, target: str) -> Any:
    parts = dict(named)
    if target not in parts:
        raise AttributeError(f"this module has no {target!r}, but {[*parts]}")
    return parts[target]


OF_MODULES: dict[str, Any] = {
    "add_module": lambda self, name, module: setattr(self, name, module),
    "cuda": lambda self, device=None: self.to("cuda"),
    "get_buffer": lambda self, target: found(self.named_buffers(), target),
    "get_parameter": lambda self, target: found(self.named_parameters(), target),
    "get_submodule": lambda self, target: found(self.named_modules(), target),
    "register_module": lambda self, name, module: setattr(self, name, module),
    "register_parameter": lambda self, name, param: setattr(self, name, param),
    "to": adapted_to(Module.to),
    "type": lambda self, dst_type: self.to(dst_type),
}
GIVEN: dict[type, dict[str, Any]] = {Tensor: OF_TENSORS, Module: OF_MODULES}
BEFORE = {kind: {name: vars(kind).get(name) for name in given} for kind, given in GIVEN.items()}


def give_methods() -> None:
    """Put the methods on Tensor and Module; importing tinyattn.torch_names does so."""
    for kind, methods in GIVEN.items():
        for name, method in methods.items():
            setattr(kind, name, method)


def take_methods() -> None:
    """Take them away again, for tests of tinyattn alone."""
    for kind, methods in BEFORE.items():
        for name, method in methods.items():
            if method is not None:
                setattr(kind, name, method)
            elif name in vars(kind):
                delattr(kind, name)
