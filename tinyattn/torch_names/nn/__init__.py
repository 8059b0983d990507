"""The names of tinyattn.nn, and PyTorch's further modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import nn as _nn
from ...nn import *  # noqa: F403
from . import functional  # type: ignore[no-redef]  # with the further functions

__all__ = [*_nn.__all__, "functional"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        return getattr(_nn, name)
