"""Weights times values without invisible pairs; launches `weighted_sum.cu`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.backend import Array, namespace
from ..matmul import matrix_product
from ..sums import in_c_order
from .launch import SCALARS, by_rows, function, visibility_arguments


def weighted_sum(weights: Array, values: Array, visibility: Any, transposed: bool = False) -> Array:
    if visibility is None or visibility.all_visible or not weights.size or not values.size:
        return matrix_product(weights, values)
    xp, scalar = namespace(weights), SCALARS[weights.dtype]
    batch, heads, rows, terms = weights.shape
    width, pairs = values.shape[-1], batch * heads
    values = in_c_order(values)
    finite, flags = xp.empty(values.shape, values.dtype), xp.empty(pairs * terms, np.bool_)
    kernel = function(xp, "weighted_sum", "finite_values", scalar)
    kernel(*by_rows(pairs * terms, width), (values, finite, flags, pairs * terms, width))
    out = in_c_order(matrix_product(weights, finite))
    weights = in_c_order(weights.swapaxes(-1, -2) if transposed else weights)
    sizes = pairs * rows, heads, rows, terms, width, int(transposed)
    arguments = weights, values, flags, out, *sizes, *visibility_arguments(visibility, weights)
    kernel = function(xp, "weighted_sum", "add_the_rest", scalar)
    kernel(*by_rows(pairs * rows, max(width, terms)), arguments)
    return out
