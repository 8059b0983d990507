"""PyTorch's module of the class Parameter, and what stands for one before its size is known.

In tinyattn: write nn.Parameter
"""

from __future__ import annotations

from typing import Any

from ...nn import Module, Parameter
from ...tensors.tensor import Tensor

__all__ = ["Buffer", "Parameter", "UninitializedParameter"]


class UninitializedParameter(Parameter):
    """A parameter of a lazy layer that has not been called yet, so it has no shape.

    An optimizer may take it, because the first call makes a Parameter of this object.
    """

    __slots__ = ()

    @property
    def shape(self) -> tuple[int, ...]:
        raise ValueError(
            "a lazy layer has no weight before its first call: call the model on a batch first"
        )


class Buffer(Tensor):
    """A Tensor that becomes a buffer when it is assigned to an attribute of a module.

    >>> import tinyattn.torch_names.nn as nn
    >>> module = nn.Module()
    >>> module.steps = nn.Buffer(ta.zeros(1))
    >>> list(module.state_dict())
    ['steps']
    """

    persistent = True

    def __init__(self, data: Any, persistent: bool = True) -> None:
        super().__init__(data)
        self.persistent = persistent


check_replacement = Module._check_replacement


def register_buffer(module: Module, name: str, value: Any) -> None:
    """What a module does before it sets an attribute: it registers a Buffer."""
    check_replacement(module, name, value)
    if isinstance(value, Buffer):
        module.register_buffer(name, value.detach(), value.persistent)


Module._check_replacement = register_buffer  # type: ignore[method-assign, assignment]
