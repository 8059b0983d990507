"""Weights times values without invisible pairs; launches `weighted_sum.cu`."""

from __future__ import annotations

from typing import Any

from ...base.backend import Array, namespace
from ..matmul import matrix_product
from ..sums import in_c_order
from .launch import SCALARS, by_elements, function, visibility_arguments


def weighted_sum(weights: Array, values: Array, visibility: Any, transposed: bool = False) -> Array:
    if visibility is None or visibility.all_visible or not weights.size or not values.size:
        return matrix_product(weights, values)
    xp = namespace(weights)
    batch, heads, rows, terms = weights.shape
    out = xp.empty((batch, heads, rows, values.shape[-1]), weights.dtype)
    weights = in_c_order(weights.swapaxes(-1, -2) if transposed else weights)
    arrays = weights, in_c_order(values), out
    sizes = batch * heads, heads, rows, terms, out.shape[-1], int(transposed)
    arguments = *arrays, *sizes, *visibility_arguments(visibility, weights)
    kernel = function(xp, "weighted_sum", "weighted_sum", SCALARS[weights.dtype])
    kernel(*by_elements(out.size), arguments)
    return out
