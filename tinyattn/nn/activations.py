"""The activations as modules: each calls the function of its name, see `tinyattn.functional`."""

from __future__ import annotations

from collections.abc import Callable

from .. import functional as F
from ..tensors.tensor import Tensor
from .module import Module


def calling(name: str, function: Callable[[Tensor], Tensor]) -> type[Module]:
    """A class of modules without settings, whose forward is a function."""
    methods = {"forward": staticmethod(function), "__doc__": function.__doc__}
    return type(name, (Module,), {**methods, "__module__": __name__})


def identity(x: Tensor) -> Tensor:
    """x itself. Takes the place of a module that is left out."""
    return x


Identity = calling("Identity", identity)
ReLU = calling("ReLU", F.relu)
Sigmoid = calling("Sigmoid", F.sigmoid)
SiLU = calling("SiLU", F.silu)
Tanh = calling("Tanh", F.tanh)


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
        if approximate not in ("none", "tanh"):
            raise ValueError(f'approximate must be "none" or "tanh", got {approximate!r}')
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"
