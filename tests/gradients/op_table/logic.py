"""Comparisons, truths, places: what has no derivative."""

from __future__ import annotations

import numpy as np
import references as ref
import samples as on
from references import torch_fn
from samples import unary

from .kinds import comparison_row, logic_row, reduction_row, unary_row
from .refusals import error, t
from .row import OpRow

ROWS: list[OpRow] = [
    comparison_row("eq", lambda x, y: x == y),
    comparison_row("ne", lambda x, y: x != y),
    comparison_row("lt", lambda x, y: x < y),
    comparison_row("le", lambda x, y: x <= y),
    comparison_row("gt", lambda x, y: x > y),
    comparison_row("ge", lambda x, y: x >= y),
    logic_row("logical_and", "and", lambda x, y: x & y),
    logic_row("logical_or", "or", lambda x, y: x | y),
    logic_row("logical_xor", "xor", lambda x, y: x ^ y),
    unary_row(
        "logical_not",
        np.logical_not,
        on.single_truths,
        ["Tensor.__invert__"],
        errors=[error(lambda: ~t(3), TypeError, r"logical_not .*float32\[3\]")],
        differentiable=(),
        dtype="bool",
    ),
    unary_row("isnan", np.isnan, on.odd_numbers, ["Tensor.isnan"], differentiable=(), dtype="bool"),
    unary_row(
        "isfinite",
        np.isfinite,
        on.odd_numbers,
        ["Tensor.isfinite"],
        differentiable=(),
        dtype="bool",
    ),
    unary_row(
        "sign",
        lambda x: np.where(np.isnan(x), 0, np.sign(x)).astype(x.dtype),
        unary(special=[0.0, -0.0, 2.0]),
        ["Tensor.sign"],
        differentiable=(),
    ),
    reduction_row(
        "argmax",
        ref.along_one(np.argmax),
        on.arg_samples,
        torch=torch_fn("argmax"),
        differentiable=(),
        dtype="int64",
        errors=[error(lambda: t(0).argmax(), ValueError, r"argmax .*\[0\]")],
    ),
    reduction_row(
        "argmin",
        ref.along_one(np.argmin),
        on.arg_samples,
        torch=torch_fn("argmin"),
        differentiable=(),
        dtype="int64",
        errors=[error(lambda: t(2, 0).argmin(1), ValueError, r"argmin .*\[2, 0\]")],
    ),
    reduction_row(
        "any",
        ref.over_axes(np.any),
        on.truth_reductions,
        differentiable=(),
        dtype="bool",
    ),
    reduction_row(
        "all",
        ref.over_axes(np.all),
        on.truth_reductions,
        differentiable=(),
        dtype="bool",
    ),
]
