"""The gradient of a table whose rows are taken by their numbers; launches `embedding.cu`."""

import numpy as np

from ...base.backend import Array, in_c_order, namespace
from .launch import by_elements, run

CHUNK = 256  # positions, as in embedding.cu


def scatter_rows(grad: Array, ids: Array, num_rows: int, skip: int | None) -> Array:
    xp = namespace(grad)
    width = grad.shape[-1]
    table = xp.zeros((num_rows, width), grad.dtype)
    if grad.size:
        ids = in_c_order(ids.astype(np.int64, copy=False))
        words = -(-ids.size // (64 * CHUNK))
        masks = xp.zeros((num_rows, words), np.int64)
        sizes = ids.size, num_rows, words
        run("embedding", "mark_chunks", grad, by_elements(ids.size), ids, masks, *sizes)
        arguments = in_c_order(grad), ids, masks, table, *sizes, width, -1 if skip is None else skip
        run("embedding", "scatter_rows", grad, ((ids.size,), (CHUNK,)), *arguments)
    return table
