"""Formulas of float16 computed in float32, because their steps would lose digits and overflow."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from ..base.backend import is_tensor
from ..kernels.float16 import float32_of

Formula = TypeVar("Formula", bound=Callable[..., Any])


def in_float32(formula: Formula) -> Formula:
    """A formula of arrays or Tensors; float16 is computed in float32, and rounded at the end.

    Other dtypes it computes as they are.
    """

    @wraps(formula)
    def computed(*arguments: Any) -> Any:
        if arguments[0].dtype != np.float16:
            return formula(*arguments)
        return in_dtype(formula(*(in_dtype(x, np.float32) for x in arguments)), np.float16)

    return computed


def in_dtype(x: Any, dtype: Any) -> Any:
    """An array or a Tensor in this dtype; a number as it is."""
    if is_tensor(x):
        return x.to(dtype)
    if not hasattr(x, "dtype"):
        return x
    return float32_of(x) if dtype == np.float32 else x.astype(dtype, copy=False)
