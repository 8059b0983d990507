"""Rows of a table by their numbers, such as the vectors of token ids."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base.backend import Array, namespace, scatter_add, to_device
from ..base.checks import as_array, check_one_device, is_integer, require_integers
from ..engine.autograd import AnyTensor, TensorBase, array_of, wrap
from ..engine.op import op
from ..errors import ShapeError
from ..kernels import with_kernels
from ..kernels.range_checks import require_range
from ..kernels.sums import sum_dtype
from .arguments import ArrayLike, float_tensor


def embedding(ids: ArrayLike, weight: AnyTensor, padding_idx: int | None = None) -> AnyTensor:
    """weight[ids], the row of each id: integers ids (...), weight (V, D) -> (..., D).

    padding_idx: a row that gets no gradient.
    Raises IndexError for an id out of range, and DtypeError if ids are no integers.
    Differs from PyTorch: negative ids, and a negative padding_idx, do not count from the end.

    >>> F.embedding([1, 0, 1], weight=ta.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[3., 4.],
            [1., 2.],
            [3., 4.]])
    """
    weight = float_tensor(weight, "weight")
    array = array_of(ids) if isinstance(ids, TensorBase) else as_array(ids, None, None)
    if weight.ndim != 2:
        raise ShapeError(f"embedding takes a table (V, D), got shape {weight.shape}")
    if array.dtype.kind == "f" and not array.size:
        array = array.astype(np.int64)  # an empty list carries no dtype
    require_integers(array.dtype, "embedding takes integer ids")
    check_padding_idx(padding_idx, len(weight))
    if type(array) is not type(weight._data):
        if isinstance(ids, TensorBase):
            check_one_device("embedding", "ids", array, "weight", weight._data)
        require_range(array, 0, len(weight), IndexError, unknown_id(len(weight)))
        array = to_device(array, weight.device)
    return take_rows(weight, ids if array is array_of(ids) else wrap(array), padding_idx)


def check_padding_idx(padding_idx: int | None, rows: int) -> None:
    """Raise IndexError if padding_idx is neither None nor a row of a table of so many."""
    if padding_idx is not None and not (is_integer(padding_idx) and 0 <= padding_idx < rows):
        raise IndexError(f"padding_idx {padding_idx!r} is no row of a table of {rows}")


def unknown_id(rows: int) -> str:
    return f"token id {{number}} is out of range: the embedding has {rows} rows (0 to {rows - 1})"


@op
def take_rows(weight: AnyTensor, ids: Any, skip: int | None = None) -> AnyTensor:
    """weight[ids]; the row `skip` gets no gradient."""
    require_range(ids, 0, len(weight), IndexError, unknown_id(len(weight)))
    return weight.take(ids, axis=0)


@take_rows.vjp("weight")
def dweight(grad, ids, shape, skip):
    # take_rows has looked at the ids. For Tensors it is an op, which looks again.
    return (scatter_rows if isinstance(grad, TensorBase) else add_rows)(grad, ids, shape[0], skip)


@op
def scatter_rows(grad: AnyTensor, ids: Any, num_rows: int, skip: int | None) -> AnyTensor:
    """Zeros (V, D) with each row of `grad` (..., D) added at its id; `skip` stays zero."""
    if grad.shape[:-1] != ids.shape or not grad.ndim:
        raise ShapeError(f"scatter_rows takes rows of ids {ids.shape}, got shape {grad.shape}")
    if type(ids) is np.ndarray:  # the kernel of a GPU looks at them itself
        require_range(ids, 0, num_rows, IndexError, unknown_id(num_rows))
    return add_rows(grad, ids, num_rows, skip)


@scatter_rows.vjp("grad")
def dgrad(grad, ids, skip):
    rows = take_rows(grad, ids)
    return rows if skip is None else rows * (array_of(ids) != skip)[..., None]


@with_kernels(cpu="sums.scatter_rows", cuda="embedding.scatter_rows")
def add_rows(grad: Array, ids: Array, num_rows: int, skip: int | None) -> Array:
    width = grad.shape[-1]
    table = namespace(grad).zeros((num_rows, width), sum_dtype(grad.dtype))
    scatter_add(table, ids.reshape(-1), grad.reshape(ids.size, width))
    if skip is not None:
        table[skip] = 0
    return table.astype(grad.dtype)
