"""The activations and the losses of `tinyattn.functional` as modules, with their arguments."""

from __future__ import annotations

from typing import Any

from .. import functional as F
from ..base.checks import check_choice, check_reduction, checked_probability
from ..ops.arguments import ArrayLike
from ..tensors.tensor import Tensor
from .module import Module


class Identity(Module):
    """x itself. Takes the place of a module that is left out, so it takes any arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class ReLU(Module):
    """max(x, 0) of each element; see `functional.relu`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(input)


class Sigmoid(Module):
    """1 / (1 + exp(-x)) of each element; see `functional.sigmoid`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.sigmoid(input)


class SiLU(Module):
    """x / (1 + exp(-x)) of each element; see `functional.silu`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.silu(input)


class Tanh(Module):
    """The hyperbolic tangent of each element; see `functional.tanh`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.tanh(input)


class Softmax(Module):
    """exp(x_i) / sum_j exp(x_j) along `dim`. Differs from PyTorch: `dim` may be left out."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return F.softmax(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class GELU(Module):
    """x * Phi(x), Phi the normal distribution function; or its approximation by tanh."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = check_choice("approximate", approximate, "none", "tanh")

    def forward(self, input: Tensor) -> Tensor:
        return F.gelu(input, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class CrossEntropyLoss(Module):
    """`functional.cross_entropy`. The weight is a buffer, so it moves with the module."""

    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        self.ignore_index, self.reduction = ignore_index, check_reduction(reduction)
        self.label_smoothing = checked_probability(label_smoothing, "label_smoothing")
        self.register_buffer("weight", weight)

    def forward(self, logits: Tensor, target: ArrayLike) -> Tensor:
        options = self.ignore_index, self.reduction, self.label_smoothing
        return F.cross_entropy(logits, target, self.weight, *options)


class MSELoss(Module):
    """`functional.mse_loss`."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = check_reduction(reduction)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(x, target, self.reduction)


class KLDivLoss(Module):
    """`functional.kl_div`."""

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__()
        self.reduction, self.log_target = check_reduction(reduction, "batchmean"), log_target

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return F.kl_div(x, target, self.reduction, self.log_target)
