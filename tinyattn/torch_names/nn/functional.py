"""The names of tinyattn.functional, and PyTorch's further functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import functional as _functional
from ...functional import *  # noqa: F403

__all__ = [*_functional.__all__]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        return getattr(_functional, name)
