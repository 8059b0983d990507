"""PyTorch's further names, for programs that were written for PyTorch.

    import tinyattn.torch_names as torch
    import tinyattn.torch_names.nn as nn
    from tinyattn.torch_names.nn import functional as F

Each module here has all names of the module of tinyattn beneath it, and more names of PyTorch's.
Nothing in the rest of tinyattn uses this folder: a program that is written for tinyattn needs none
of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tinyattn as _tinyattn

from . import nn, optim, utils

__all__ = [*_tinyattn.__all__, "nn", "optim", "utils"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        return getattr(_tinyattn, name)

    def __dir__() -> list[str]:
        return sorted({*dir(_tinyattn), *__all__})
