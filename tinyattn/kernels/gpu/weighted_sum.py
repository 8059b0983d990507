"""Weights times values without invisible pairs; launches `weighted_sum.cu`."""

from typing import Any

import numpy as np

from ...base.backend import Array, in_c_order, namespace
from ..matmul import matrix_product
from .launch import by_rows, run, visibility_arguments


def weighted_sum(weights: Array, values: Array, visibility: Any, transposed: bool = False) -> Array:
    if visibility is None or visibility.all_visible or not weights.size or not values.size:
        return matrix_product(weights, values)
    xp = namespace(weights)
    batch, heads, rows, terms = weights.shape
    width, pairs = values.shape[-1], batch * heads
    values = in_c_order(values)
    finite, flags = xp.empty(values.shape, values.dtype), xp.empty(pairs * terms, np.bool_)
    sizes = pairs * terms, width
    run("weighted_sum", "finite_values", values, by_rows(*sizes), values, finite, flags, *sizes)
    out = in_c_order(matrix_product(weights, finite))
    weights = in_c_order(weights.swapaxes(-1, -2) if transposed else weights)
    numbers = pairs * rows, heads, rows, terms, width, int(transposed)
    arguments = weights, values, flags, out, *numbers, *visibility_arguments(visibility, weights)
    threads = by_rows(pairs * rows, max(width, terms))
    run("weighted_sum", "add_the_rest", weights, threads, *arguments)
    return out
