"""PyTorch's `nn.utils`: gradients of whole models.

In tinyattn: optim.clip_grad_norm_ and tinyattn.training.pad_sequence are there
"""

from typing import Any

from .... import optim
from ....kernels import FLOAT32, FLOAT64
from ....optim.optimizer import tensors_of
from ....tensors.tensor import Tensor
from . import rnn

__all__ = ["clip_grad_norm_", "clip_grad_value_", "rnn"]


def clip_grad_norm_(parameters: Any, max_norm: float, *args: Any, **options: Any) -> Tensor:
    """`tinyattn.optim.clip_grad_norm_`; here the norm is a Tensor, and foreach= changes nothing."""
    options.pop("foreach", None)
    tensors = tensors_of(parameters)
    norm = optim.clip_grad_norm_(tensors, max_norm, *args, **options)
    dtypes = {p.grad.dtype for p in tensors if p.grad is not None}
    return Tensor(norm, FLOAT64 if FLOAT64 in dtypes else FLOAT32)


def clip_grad_value_(parameters: Any, clip_value: float, foreach: Any = None) -> None:
    """Replace every element of every gradient by the nearest number that is <= clip_value in size.

    >>> import tinyattn.torch_names.nn as nn
    >>> w = ta.zeros(2, requires_grad=True)
    >>> w.grad = ta.tensor([3.0, -4.0])
    >>> nn.utils.clip_grad_value_([w], 1.0)
    >>> w.grad
    tensor([ 1., -1.])
    """
    for parameter in tensors_of(parameters):
        if parameter.grad is not None:
            parameter.grad = parameter.grad.detach().clamp(-clip_value, clip_value)
