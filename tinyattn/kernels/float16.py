"""float16 computed in float32, because its steps would lose digits and overflow from 65,520 on."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np


def in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays or Tensors; for float16 it runs in float32, and its result is float16.

    Other dtypes it computes as they are.
    """

    @wraps(function)
    def computed(*arrays: Any) -> Any:
        if arrays[0].dtype != np.float16:
            return function(*arrays)
        return in_dtype(function(*(in_dtype(x, np.float32) for x in arrays)), np.float16)

    return computed


def in_dtype(x: Any, dtype: Any) -> Any:
    """An array or a Tensor in this dtype."""
    return x.to(dtype) if hasattr(x, "to") else x.astype(dtype, copy=False)
