"""Sums, means, extremes."""

from __future__ import annotations

import references as ref
import samples as on
from references import torch_reduce
from samples import calls

import tinyattn as ta

from .kinds import reduction_row
from .refusals import INTS, error, misuse, t
from .row import OpRow, ops

ROWS: list[OpRow] = [
    reduction_row("sum", ref.sum, on.reduction_samples(), reaches=("sum",)),
    reduction_row(
        "mean",
        ref.mean,
        on.reduction_samples(over_nothing=False),
        reaches=("mean",),
        errors=[error(lambda: INTS.mean(), TypeError, "mean needs a floating dtype, got int64")],
        spellings={
            "NumPy's names": lambda x, dim=None, keepdim=False: x.mean(axis=dim, keepdims=keepdim)
        },
    ),
    reduction_row(
        "var",
        ref.var,
        on.var_samples,
        reaches=("var",),
        errors=[error(lambda: INTS.var(), TypeError, "var needs a floating dtype, got int64")],
    ),
    reduction_row("std", ref.std, on.std_samples, reaches=("std",), cancels=100.0),
    reduction_row(
        "max",
        ref.extreme("max"),
        on.extreme_samples,
        torch=torch_reduce("amax"),
        covers=("Tensor.max", "Tensor.amax"),
        reaches=("max",),
        errors=[error(lambda: t(0).max(), ValueError, r"max .*\[0\]")],
    ),
    reduction_row(
        "min",
        ref.extreme("min"),
        on.extreme_samples,
        torch=torch_reduce("amin"),
        covers=("Tensor.min", "Tensor.amin"),
        reaches=("min",),
        errors=[error(lambda: t(2, 0).min(1), ValueError, r"min .*\[2, 0\]")],
    ),
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
        {"ops.sum_to": lambda x, shape: ops.sum_to(x, target=shape)},
    ),
    OpRow(
        "sum_rows",
        ops.sum_rows,
        lambda x: x.sum(axis=0),
        lambda x: x.sum(0),
        calls(*on.MATRICES, repeat=2),
        misuse("sum_rows"),
        ("ops.sum_rows",),
    ),
]
