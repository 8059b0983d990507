"""What methods of a Tensor take and return, in words for type checkers."""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import Any, Generic, NamedTuple, Protocol, SupportsIndex, TypeAlias, TypeVar

import numpy as np

from ..base.checks import Dims as Dims
from ..base.checks import DTypeLike as DTypeLike
from ..engine.autograd import TensorBase

T = TypeVar("T")


class CudaArray(Protocol):
    """An array of CuPy, or of another library on the GPU."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...


# The other side of an operator: a Tensor, a number, or an array on the Tensor's device.
Operand: TypeAlias = TensorBase | float | np.generic | np.ndarray | CudaArray
Number: TypeAlias = float | int  # a bool is an int
# Sizes or dimensions: one by one, `x.reshape(2, 3)`, or as one sequence, `x.reshape((2, 3))`.
Sizes: TypeAlias = SupportsIndex | Sequence[SupportsIndex]
IndexPart: TypeAlias = (
    SupportsIndex | slice | EllipsisType | list[Any] | np.ndarray | CudaArray | TensorBase | None
)
Index: TypeAlias = IndexPart | tuple[IndexPart, ...]


class ValuesAndIndices(NamedTuple, Generic[T]):
    """Values along a dimension, and their places in it: of max, min, sort and topk."""

    values: T
    indices: T
