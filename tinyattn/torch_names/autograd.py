"""The names of torch.autograd that programs use."""

from __future__ import annotations

from ..engine.autograd import grad as grad
from ..tensors.tensor import Tensor
from ..testing import gradcheck as gradcheck
from ..testing import gradgradcheck as gradgradcheck


def Variable(data: Tensor, requires_grad: bool = False) -> Tensor:
    """The Tensor, detached; the class of this name became the Tensor in PyTorch 0.4."""
    return data.detach().requires_grad_(requires_grad)
