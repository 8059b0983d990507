"""Optimizers and learning-rate schedules, after PyTorch's update rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..base.names import UnknownNameError
from .clipping import clip_grad_norm_
from .optimizer import Optimizer
from .schedules import CosineSchedule, LambdaLR, Schedule, WarmupSchedule
from .updates import SGD, Adam, AdamW

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "CosineSchedule",
    "LambdaLR",
    "Optimizer",
    "Schedule",
    "WarmupSchedule",
    "clip_grad_norm_",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        raise UnknownNameError("optim", name, __all__)
