"""Optimizers and learning-rate schedules, after PyTorch's update rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..base.names import UnknownNameError
from .clipping import clip_grad_norm_ as clip_grad_norm_
from .optimizer import Optimizer as Optimizer
from .optimizer import decay_groups as decay_groups
from .schedules import CosineSchedule as CosineSchedule
from .schedules import LambdaLR as LambdaLR
from .schedules import Schedule as Schedule
from .schedules import WarmupSchedule as WarmupSchedule
from .updates import SGD as SGD
from .updates import Adam as Adam
from .updates import AdamW as AdamW

if not TYPE_CHECKING:  # type checkers read the lines above
    _own = [n for n, x in globals().items() if getattr(x, "__module__", "").startswith(__name__)]
    __all__ = sorted(_own)

    def __dir__() -> list[str]:
        return __all__

    def __getattr__(name: str) -> Any:
        raise UnknownNameError("optim", name, __all__)
