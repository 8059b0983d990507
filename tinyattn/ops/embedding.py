"""Rows of a table, looked up by integer ids."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import kernels
from ..backend import Array
from ..errors import DtypeError, ShapeError
from ..faults import note
from ..op import op


@op
def embedding(ids: Array, weight: Array, *, padding_idx: int | None = None) -> Array:
    """weight[ids]: ids (...), weight (V, D) -> (..., D)."""
    if getattr(ids, "dtype", np.dtype(object)).kind not in "iu":
        raise DtypeError(
            f"embedding takes integer ids, got {getattr(ids, 'dtype', type(ids).__name__)}"
        )
    if weight.ndim != 2:
        raise ShapeError(f"embedding takes a table (V, D), got shape {weight.shape}")
    if type(weight) is not np.ndarray:
        return kernels.cuda_kernels().take_rows(
            weight, ids, note(IndexError, no_row_text(len(weight)))
        )
    if ids.size and not (int(ids.min()) >= 0 and int(ids.max()) < len(weight)):
        raise IndexError(
            f"token ids go from {int(ids.min())} to {int(ids.max())}, but the embedding has "
            f"{len(weight)} rows (0 to {len(weight) - 1})"
        )
    return weight.take(ids, axis=0)


def no_row_text(count: int) -> str:
    return f"token id {{number}} is out of range: the embedding has {count} rows (0 to {count - 1})"


@embedding.vjp("weight")
def _(grad, ids, shapes, padding_idx):
    return scatter_rows(grad, ids, num_rows=shapes[1][0], skip=padding_idx)


@op
def scatter_rows(grad: Array, ids: Array, *, num_rows: int, skip: int | None) -> Array:
    """Zeros (V, D) with each row of `grad` (..., D) added at its id; `skip` stays zero."""
    return kernels.scatter_rows(grad, ids, num_rows, skip)


@scatter_rows.vjp("grad")
def _(grad, ids, skip) -> Any:
    rows = embedding(ids, grad)
    if skip is None:
        return rows
    ids = getattr(ids, "_data", ids)
    return rows * (ids != skip)[..., None]
