"""Sums, means, extremes."""

from __future__ import annotations

import numpy as np
import references as ref
import samples as on
from references import torch_reduce
from samples import calls

import tinyattn as ta

from .extremes import at
from .kinds import reduction_row
from .refusals import INTS, bad_dims, error, misuse, t
from .row import OpRow, ops, public


def extreme_row(name: str) -> OpRow:
    """The largest or the smallest over all dimensions, one or several."""
    method = public(f"Tensor.a{name}")
    return reduction_row(
        f"a{name}",
        ref.extreme(name),
        on.extreme_samples,
        covers=(f"Tensor.a{name}", f"ops.a{name}"),
        errors=[error(lambda: method(t(2, 0), 1), ValueError, rf"{name} .*\[2, 0\]")],
        extremes=at("large", "many"),
        keeps="input 0, output",
    )


def extreme_along_one_row(name: str) -> OpRow:
    """The values of the pair that `x.max(dim)` returns; the indices are those of argmax."""
    method = public(f"Tensor.{name}")

    def values(x: ta.Tensor, dim: int, keepdim: bool = False) -> ta.Tensor:
        return method(x, dim, keepdim).values

    def gathered(x: ta.Tensor, dim: int, keepdim: bool = False) -> ta.Tensor:
        indices = method(x, dim, keepdim=True).indices
        found = x.gather(dim, indices) if x.ndim else x.clone()
        return found if keepdim or not x.ndim else found.squeeze(dim)

    return OpRow(
        f"{name} along a dimension",
        values,
        ref.first_extreme(name),
        lambda x, dim, keepdim=False: getattr(x, name)(dim, keepdim).values,
        on.extreme_samples_along_one,
        [
            *bad_dims(method),
            error(lambda: method(t(2, 3), (0, 1)), TypeError, f"one dimension.* a{name}|amax"),
            error(lambda: method(t(2, 0), 1), ValueError, rf"arg{name} .*\[2, 0\]"),
        ],
        spellings={
            f"Tensor.{name}": lambda x, dim, keepdim=False: method(x, dim=dim, keepdim=keepdim)[0],
            f"ta.{name}": lambda x, dim, keepdim=False: getattr(ta, name)(x, dim, keepdim).values,
            "at the indices": gathered,
        },
        reaches=("gather",),
        elementwise=True,
        keeps="1 more",
    )


ROWS: list[OpRow] = [
    reduction_row(
        "sum",
        ref.sum,
        on.reduction_samples(),
        reaches=("sum",),
        extremes=at("many positive", "many small", of_largest=True),
    ),
    OpRow(
        "sum in another dtype",
        lambda x, **options: x.sum(**options, dtype=ta.float64),
        lambda x, **options: ref.sum(x.astype(np.result_type(x, np.float64)), **options),
        lambda x, **options: torch_reduce("sum")(x.double(), **options),
        on.reduction_samples(),
        [
            error(lambda: t(3).sum(dtype="text"), TypeError, "not a dtype: 'text'"),
            error(lambda: t(3).sum(dtype=complex), TypeError, "up to 64 bits, got complex128"),
            error(lambda: t(3).sum(0, False, ta.float64), TypeError, r"takes 3 .*4 were given"),
        ],
        dtype="float64",
    ),
    reduction_row(
        "mean",
        ref.mean,
        on.reduction_samples(over_nothing=False),
        reaches=("mean",),
        errors=[error(lambda: INTS.mean(), TypeError, "mean needs a floating dtype, got int64")],
        spellings={
            "NumPy's names": lambda x, dim=None, keepdim=False: x.mean(axis=dim, keepdims=keepdim)
        },
        extremes=[
            *at("many large", "many small", "large", "many"),
            *at("many rows", "large", of_largest=True, dim=0),
        ],
    ),
    reduction_row(
        "var",
        ref.var,
        on.var_samples,
        reaches=("var",),
        errors=[error(lambda: INTS.var(), TypeError, "var needs a floating dtype, got int64")],
        extremes=at("many", "root of large", of_largest=True),
        keeps="input 0",
    ),
    reduction_row(
        "std",
        ref.std,
        on.std_samples,
        reaches=("std",),
        cancels=100.0,
        extremes=at("many large", "many of both ends", "many", "large", of_largest=True),
        keeps="input 0, output",
    ),
    extreme_row("max"),
    extreme_row("min"),
    extreme_along_one_row("max"),
    extreme_along_one_row("min"),
    OpRow(
        "sum_to",
        ta.Tensor.sum_to,
        ref.sum_to,
        lambda x, shape: x.sum_to_size(shape),
        calls(*on.SUM_TOS, repeat=2),
        [
            error(lambda: t(3).sum_to((2,)), ValueError, r"\(3,\) is no broadcast of .*\(2,\)"),
            error(lambda: t(3).sum_to((1, 3)), ValueError, r"\(3,\) .*\(1, 3\)"),
            error(lambda: t(2, 3).sum_to((2,)), ValueError, r"\(2, 3\) .*\(2,\)"),
        ],
        ("Tensor.sum_to",),
        {"ops.sum_to": lambda x, shape: ops.sum_to(x, shape)},
        extremes=at("many", "many small", of_largest=True, shape=(1,)),
    ),
    OpRow(
        "sum_rows",
        ops.sum_rows,
        lambda x: x.sum(axis=0),
        lambda x: x.sum(0),
        calls(*on.MATRICES, repeat=2),
        misuse("sum_rows"),
        ("ops.sum_rows",),
        extremes=at("many rows", of_largest=True),
    ),
]
