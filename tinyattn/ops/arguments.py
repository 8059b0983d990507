"""What functions and layers take and return: types for type checkers, and checks of Tensors.

Checks of what needs no Tensor stand in `base/checks.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import wraps
from types import EllipsisType
from typing import Any, Generic, NamedTuple, Protocol, SupportsIndex, TypeAlias, TypeVar

import numpy as np

from ..base import checks
from ..base.backend import Array, Function, is_array
from ..engine.autograd import AnyTensor, TensorBase
from ..engine.rules import Spec
from ..errors import ShapeError
from ..kernels.sums import sum_dtype

T = TypeVar("T")


class CudaArray(Protocol):
    """An array of CuPy, or of another library on the GPU."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...


# What may stand for integers or booleans: a Tensor, an array, nested lists, a number.
ArrayLike: TypeAlias = TensorBase | np.ndarray | CudaArray | Sequence[Any] | int
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


def of_tensors(function: Function) -> Function:
    """A function that is made of ops: TypeError if its first argument is no Tensor."""
    spec = Spec(function)

    @wraps(function)
    def checked(*arguments: Any, **options: Any) -> Any:
        arguments = spec.bind(arguments, options)
        any_tensor(arguments[0], f"{spec.name}: x")
        return function(*arguments, **options)

    checked.spec = spec
    return checked


def any_tensor(value: AnyTensor, name: str) -> AnyTensor:
    """`value` if it is a Tensor, else an error that names the argument."""
    return checks.check_tensor(name, value, TensorBase)


def float_tensor(value: AnyTensor, name: str) -> AnyTensor:
    """`value` if it is a Tensor of floats, else an error that names the argument."""
    if not (isinstance(value, TensorBase) and value._data.dtype.kind == "f"):
        checks.require_float(any_tensor(value, name).dtype, name)
    return value


def array_like(value: Any, name: str) -> Array:
    """The array of a Tensor; an array as it is; lists as a NumPy array."""
    if isinstance(value, TensorBase):
        return value._data
    return value if is_array(value) else checks.rectangular(checks.one_each(value), name)


def at_least_float32(x: AnyTensor) -> AnyTensor:
    """x, but float16 as float32, because there a square overflows from 256 on, and sums too."""
    return x.float() if x.dtype == np.float16 else x


def widened(x: AnyTensor) -> AnyTensor:
    """x in the dtype in which its numbers are added up, for sums that may overflow in its own."""
    return x.to(sum_dtype(x.dtype))


def check_same_dtype_and_device(function: str, **arguments: Any) -> None:
    """Raise an error that names two arguments if their dtypes or devices differ."""
    given = {name: value for name, value in arguments.items() if value is not None}
    arrays = {name: any_tensor(given[name], f"{function}: {name}")._data for name in given}
    checks.check_one_dtype_and_device(function, **arrays)


def check_same_shape(function: str, x: Any, target: Any) -> None:
    if float_tensor(x, "x").shape != float_tensor(target, "target").shape:
        raise ShapeError(f"{function}: x {x.shape} and target {target.shape} must have one shape")


def checked_bias(
    name: str, bias: Any, query: Any, shape: tuple[int, ...], scores: tuple[int, ...] | None = None
) -> Any:
    """A bias as (B|1, H|1, Q|1, K|1), of the dtype and device of query; see `lifted`."""
    check_same_dtype_and_device("attention", **{"query": query, name: float_tensor(bias, name)})
    return lifted(name, bias, shape, shape if scores is None else scores)


def lifted(name: str, x: Any, shape: tuple[int, ...], scores: tuple[int, ...]) -> Any:
    """x as (B|1, H|1, Q|1, K|1), which broadcasts to scores of `shape` (B, H, Q, K).

    scores: the caller's shape of the same scores, to which x broadcasts, such as (B, Q, K).
    """
    checks.check_broadcast(f"{name} must broadcast to the scores", x.shape, scores)
    x = x.reshape((1,) * (len(scores) - x.ndim) + x.shape)
    if len(scores) == 4:
        return x
    sizes = x.shape[-2:]
    if math.prod(x.shape[:-2]) == 1:
        return x.reshape(1, 1, *sizes)
    return x.expand(*scores[:-2], *sizes).reshape(*shape[:2], *sizes)
