"""The names of tinyattn.optim, and PyTorch's further optimizers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import optim as _optim
from ...optim import *  # noqa: F403

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        return getattr(_optim, name)
