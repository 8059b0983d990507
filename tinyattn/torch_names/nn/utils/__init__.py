"""PyTorch's `nn.utils`: gradients and parameters of whole models.

In tinyattn: optim.clip_grad_norm_ and tinyattn.training.pad_sequence are there
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .... import optim
from ....engine.grad_mode import no_grad
from ....errors import ShapeError
from ....ops.shapes import cat
from ....tensors.create import as_tensor
from ....tensors.tensor import Tensor
from . import rnn

__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "parameters_to_vector",
    "rnn",
    "vector_to_parameters",
]


def clip_grad_norm_(parameters: Any, max_norm: float, *args: Any, **options: Any) -> Tensor:
    """`tinyattn.optim.clip_grad_norm_`; here the norm is a Tensor, and foreach= changes nothing."""
    options.pop("foreach", None)
    return as_tensor(optim.clip_grad_norm_(parameters, max_norm, *args, **options))


def clip_grad_value_(parameters: Any, clip_value: float, foreach: Any = None) -> None:
    """Replace every element of every gradient by the nearest number that is <= clip_value in size.

    >>> import tinyattn.torch_names.nn as nn
    >>> w = ta.zeros(2, requires_grad=True)
    >>> w.grad = ta.tensor([3.0, -4.0])
    >>> nn.utils.clip_grad_value_([w], 1.0)
    >>> w.grad
    tensor([ 1., -1.])
    """
    with no_grad():
        for parameter in [parameters] if isinstance(parameters, Tensor) else parameters:
            if parameter.grad is not None:
                parameter.grad = parameter.grad.clamp(-clip_value, clip_value)


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters, one after another, as one vector."""
    return cat([parameter.reshape(-1) for parameter in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """The inverse: give every parameter its values of the vector."""
    parameters = list(parameters)
    sizes = [parameter.numel() for parameter in parameters]
    if vec.shape != (sum(sizes),):
        raise ShapeError(f"the vector of these parameters is ({sum(sizes)},), got {vec.shape}")
    for parameter, part in zip(parameters, vec.detach().split(sizes), strict=True):
        parameter.data = part.reshape(parameter.shape)
