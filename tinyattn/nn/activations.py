"""The activations as modules: each calls the function of its name, see `tinyattn.functional`."""

from __future__ import annotations

from typing import Any

from .. import functional as F
from ..base.checks import check_choice
from ..tensors.tensor import Tensor
from .module import Module


class Identity(Module):
    """x itself. Takes the place of a module that is left out, so it takes any arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x


class ReLU(Module):
    """max(x, 0) of each element; see `functional.relu`."""

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x)


class Sigmoid(Module):
    """1 / (1 + exp(-x)) of each element; see `functional.sigmoid`."""

    def forward(self, x: Tensor) -> Tensor:
        return F.sigmoid(x)


class SiLU(Module):
    """x / (1 + exp(-x)) of each element; see `functional.silu`."""

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(x)


class Tanh(Module):
    """The hyperbolic tangent of each element; see `functional.tanh`."""

    def forward(self, x: Tensor) -> Tensor:
        return F.tanh(x)


class Softmax(Module):
    """exp(x_i) / sum_j exp(x_j) along `dim`. Differs from PyTorch: `dim` may be left out."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        return F.softmax(x, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class GELU(Module):
    """x * Phi(x), Phi the normal distribution function; or its approximation by tanh."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = check_choice("approximate", approximate, "none", "tanh")

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"
