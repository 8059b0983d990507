"""The losses as modules, with the arguments of their functions in `tinyattn.functional`."""

from __future__ import annotations

from .. import functional as F
from ..base.checks import check_reduction, checked_probability
from ..ops.arguments import ArrayLike
from ..tensors.tensor import Tensor
from .module import Module


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
