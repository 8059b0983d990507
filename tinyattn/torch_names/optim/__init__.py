"""The names of tinyattn.optim, with PyTorch's arguments, RMSprop and the schedules."""

from typing import Any

from ... import optim as _optim
from ...optim import *  # noqa: F403
from . import lr_scheduler as lr_scheduler
from .optimizer import *  # type: ignore[assignment]  # noqa: F403

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "RMSprop", "clip_grad_norm_", "lr_scheduler"]  # noqa: F405


def __getattr__(name: str) -> Any:
    return getattr(_optim, name)
