"""The names of torch.autograd that programs use."""

from typing import Any

from ..engine import autograd
from ..tensors.tensor import Tensor
from ..testing import gradcheck as gradcheck
from ..testing import gradgradcheck as gradgradcheck


def grad(*args: Any, only_inputs: bool = True, **options: Any) -> tuple[Tensor, ...]:
    """`ta.grad`, which changes no `.grad`; so only_inputs, which has to be named, says nothing."""
    return autograd.grad(*args, **options)


def Variable(data: Tensor, requires_grad: bool = False) -> Tensor:
    """The Tensor, detached; the class of this name became the Tensor in PyTorch 0.4."""
    return data.detach().requires_grad_(requires_grad)
