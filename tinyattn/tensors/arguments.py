"""Checks of arguments that are Tensors: of `functional`, and of the layers.

What needs no Tensor stands in `base/checks.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from ..base.checks import (
    are_groups,
    check_broadcast,
    has_dtype,
    is_integer,
    listed,
    require_float,
    type_name,
)
from ..errors import DeviceError, DtypeError, ShapeError
from ..kernels import sum_dtype
from ..ops.softmax import check_class_range
from .tensor import Tensor
from .types import CudaArray

# What may stand for integers or booleans: a Tensor, an array, nested lists, a number.
ArrayLike: TypeAlias = Tensor | np.ndarray | CudaArray | Sequence[Any] | int


def any_tensor(value: Any, name: str) -> Tensor:
    """`value` if it is a Tensor, else an error that names the argument."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{name} must be a Tensor, got {type_name(value)}: wrap it with ta.tensor(...)"
        )
    return value


def float_tensor(value: Any, name: str) -> Tensor:
    """`value` if it is a Tensor of floats, else an error that names the argument."""
    if not (isinstance(value, Tensor) and value._data.dtype.kind == "f"):
        require_float(any_tensor(value, name).dtype, name)
    return value


def at_least_float32(x: Tensor) -> Tensor:
    """x, but float16 as float32, because a square overflows in float16 from 256 on."""
    return x.float() if x.dtype == np.float16 else x


def widened(x: Tensor) -> Tensor:
    """x in the dtype in which its numbers are added up, for sums that may overflow in its own."""
    return x.to(sum_dtype(x.dtype))


def check_same_dtype_and_device(function: str, **arguments: Tensor | None) -> None:
    """Raise an error that names two arguments if their dtypes or devices differ."""
    first: tuple[str, Tensor] | None = None
    for name, value in arguments.items():
        if value is None:
            continue
        if not isinstance(value, Tensor):
            raise TypeError(f"{function}: {name} must be a Tensor, got {type_name(value)}")
        if first is None:
            first = (name, value)
            kind, dtype = type(value._data), value._data.dtype
        elif type(value._data) is kind and value._data.dtype is dtype:
            continue
        elif value.device != first[1].device:
            raise DeviceError(
                f"{function}: {first[0]} is on {first[1].device}, {name} on {value.device}: "
                "move one with .to(device)"
            )
        elif value.dtype != first[1].dtype:
            raise DtypeError(
                f"{function}: {first[0]} is {first[1].dtype}, {name} is {value.dtype}: convert "
                "one with .to(dtype)"
            )


def check_same_shape(function: str, x: Any, target: Any) -> None:
    if float_tensor(x, "x").shape != float_tensor(target, "target").shape:
        raise ShapeError(f"{function}: x {x.shape} and target {target.shape} must have one shape")


def normalized_sizes(
    function: str, x: Tensor, sizes: int | Sequence[int], **learned: Tensor | None
) -> tuple[int, ...]:
    """The sizes that are normalized: x ends with them, and weight and bias have them."""
    if not isinstance(sizes, tuple):
        sizes = (sizes,) if isinstance(sizes, (int, np.integer)) else tuple(listed(function, sizes))
    if not sizes or x.shape[-len(sizes) :] != sizes:
        raise ShapeError(
            f"{function} over {sizes} takes inputs of shape (..., "
            f"{', '.join(map(str, sizes))}), got {x.shape}"
        )
    check_same_dtype_and_device(function, x=x, **learned)
    for name, value in learned.items():
        if value is not None and value.shape != sizes:
            raise ShapeError(f"{function}: {name} must have shape {sizes}, got {value.shape}")
    return sizes


def checked_target(
    function: str, scores: Tensor, target: ArrayLike, ignore_index: int
) -> tuple[Tensor, int]:
    """The target as a Tensor on the device of the scores, and the dimension of the classes."""
    classes = target if isinstance(target, Tensor) else Tensor(target)
    if classes.dtype.kind == "f" and not has_dtype(target):
        classes = Tensor(target, scores.dtype)  # numbers of Python are as exact as the scores
    if not is_integer(ignore_index) or not -(2**63) <= ignore_index < 2**63:
        raise DtypeError(f"ignore_index must be an integer of 64 bits, got {ignore_index!r}")
    axis = min(1, scores.ndim - 1)
    are_probabilities = classes.dtype.kind == "f" and scores.ndim and classes.shape == scores.shape
    if are_probabilities and function == "cross_entropy":
        check_same_dtype_and_device(function, logits=scores, target=classes)
        return classes, axis
    if classes.dtype.kind not in "iu":
        raise DtypeError(f"{function} takes class numbers as integers, got {classes.dtype}")
    if isinstance(target, Tensor) and classes.device != scores.device:
        raise DeviceError(f"logits are on {scores.device}, target is on {classes.device}")
    if not scores.ndim or classes.shape != (*scores.shape[:axis], *scores.shape[axis + 1 :]):
        raise ShapeError(
            f"{function}: logits {scores.shape} need a target of their shape without the "
            f"classes (dimension {max(axis, 0)}), got {classes.shape}"
        )
    if classes.device != scores.device:  # here they can be checked at once
        check_class_range(classes._data, scores.shape[axis], ignore_index)
        classes = classes.to(scores.device)
    return classes, axis


def checked_heads(query: Any, key: Any, value: Any, enable_gqa: bool = False) -> list[Tensor]:
    """query, key and value as (B, H, N, d), checked; H is 1 if they have no heads."""
    inputs = {"query": query, "key": key, "value": value}
    q, k, v = (float_tensor(x, name).shape for name, x in inputs.items())
    ndim = len(q)
    if ndim not in (3, 4) or not ndim == len(k) == len(v):
        raise ShapeError(
            "attention takes query, key and value of 3 dimensions (B, N, d) or of 4 (B, H, N, d), "
            f"got {q}, {k}, {v}"
        )
    if q[-1] != k[-1]:
        raise ShapeError(f"query {q} and key {k} must have one width")
    if k[-2] != v[-2]:
        raise ShapeError(f"key {k} and value {v} must agree in the number of keys, K")
    agree = q[:-2] == k[:-2]
    if enable_gqa and ndim == 4:
        agree = q[0] == k[0] and are_groups(q[1], k[1])
    if not agree or k[:-2] != v[:-2]:
        of_heads = ndim == 4 and q[0] == k[0] and k[:-2] == v[:-2]
        hint = "; with enable_gqa=True the heads of key and value are a divisor of query's"
        raise ShapeError(
            "query, key and value must have the same samples (and heads), got "
            f"{q}, {k}, {v}{hint if of_heads else ''}"
        )
    check_same_dtype_and_device("attention", **inputs)
    return [x if ndim == 4 else x.unsqueeze(1) for x in inputs.values()]


def checked_bias(
    name: str, bias: Any, query: Tensor, shape: tuple[int, ...], ndim: int = 4
) -> Tensor:
    """A bias as (B|1, H|1, Q|1, K|1), of the dtype and device of query; see `as_scores`."""
    check_same_dtype_and_device("attention", **{"query": query, name: float_tensor(bias, name)})
    return as_scores(name, bias, ndim, shape)


def as_scores(name: str, x: Tensor, ndim: int, shape: tuple[int, ...]) -> Tensor:
    """x as (B|1, H|1, Q|1, K|1), which broadcasts to scores of `shape` (B, H, Q, K).

    ndim: 4; or 3 if the caller's scores have no heads, (B, Q, K), and x broadcasts to these.
    """
    scores = shape if ndim == 4 else (shape[0], *shape[2:])
    check_broadcast(f"{name} must broadcast to the scores", x.shape, scores)
    x = x.reshape((1,) * (len(scores) - x.ndim) + x.shape)
    return x if ndim == 4 else x.unsqueeze(1)
