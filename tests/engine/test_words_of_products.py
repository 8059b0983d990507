"""What products, norms, dropout and tables refuse, in the very words that say why.

A message names the function or the argument, and the number or the shape that came. So the whole
text is compared.
"""

from __future__ import annotations

import numpy as np
import pytest
from messages import NO_DIM_2, NO_TENSOR, Refused, all_differences

import tinyattn as ta
from tinyattn import functional as F
from tinyattn.errors import DtypeError, ShapeError
from tinyattn.ops.embedding import scatter_rows
from tinyattn.ops.products import int8_linear

VECTOR, INTEGERS, NUMBER = ta.tensor([1.0, 2.0, 3.0]), ta.tensor([1, 2, 3]), ta.tensor(1.0)
TABLE = ta.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
INTEGER_TABLE, STACK = ta.tensor([[1, 2], [3, 4]]), ta.ones(2, 3, 4)
INT8, IDS = np.ones((2, 3), np.int8), np.array([0, 4])
NO_FLOATS = " needs a floating dtype, got int64: use .to(ta.float32)"
CONVERT = ": convert one with .to(dtype)"
EPS = "eps must be a number >= 0, got "
SECOND, ONLY = "must equal the second last dimension of", "must equal the only dimension of"


def in_float64(x: ta.Tensor) -> ta.Tensor:
    return x.to(ta.float64)


PRODUCTS: list[Refused] = [
    (
        lambda: TABLE @ TABLE,
        ShapeError,
        "matmul: the last dimension of (2, 3) " + SECOND + " (2, 3)",
    ),
    (
        lambda: VECTOR @ ta.ones(2),
        ShapeError,
        "matmul: the last dimension of (3,) " + ONLY + " (2,)",
    ),
    (
        lambda: TABLE @ ta.ones(2),
        ShapeError,
        "matmul: the last dimension of (2, 3) " + ONLY + " (2,)",
    ),
    (
        lambda: VECTOR @ ta.ones(2, 3),
        ShapeError,
        "matmul: the last dimension of (3,) " + SECOND + " (2, 3)",
    ),
    (
        lambda: VECTOR @ 2,
        ShapeError,
        "matmul takes arrays of at least one dimension; use * for numbers",
    ),
    (
        lambda: VECTOR @ NUMBER,
        ShapeError,
        "matmul takes arrays of at least one dimension; use * for numbers",
    ),
    (
        lambda: VECTOR @ in_float64(VECTOR),
        DtypeError,
        "matmul takes one dtype, got float32 and float64: use .to(dtype)",
    ),
    (
        lambda: INTEGERS @ VECTOR,
        DtypeError,
        "matmul takes one dtype, got int64 and float32: use .to(dtype)",
    ),
    (lambda: F.linear(VECTOR, VECTOR), ShapeError, "linear: weight is (out, in), got shape (3,)"),
    (
        lambda: F.linear(NUMBER, TABLE),
        ShapeError,
        "linear: weight (2, 3) takes inputs whose last dimension is 3, got shape ()",
    ),
    (
        lambda: F.linear(ta.ones(2), TABLE),
        ShapeError,
        "linear: weight (2, 3) takes inputs whose last dimension is 3, got shape (2,)",
    ),
    (
        lambda: F.linear(VECTOR, TABLE, ta.ones(3)),
        ShapeError,
        "linear: bias must have shape (2,), got (3,)",
    ),
    (
        lambda: F.linear(VECTOR, in_float64(TABLE)),
        DtypeError,
        "linear: x is float32, weight is float64" + CONVERT,
    ),
    (
        lambda: F.linear(VECTOR, TABLE, ta.ones(2, dtype=ta.float64)),
        DtypeError,
        "linear: x is float32, bias is float64" + CONVERT,
    ),
    (
        lambda: F.linear(in_float64(VECTOR), TABLE, ta.ones(2)),
        DtypeError,
        "linear: x is float64, weight is float32" + CONVERT,
    ),
    (lambda: F.linear(INTEGERS, ta.tensor([[1, 2, 3]])), DtypeError, "x" + NO_FLOATS),
    (lambda: F.linear(INTEGERS, TABLE), DtypeError, "x" + NO_FLOATS),
    (lambda: F.linear(VECTOR, [[1.0]]), TypeError, "linear: weight" + NO_TENSOR),
    (
        lambda: int8_linear(ta.ones(2), INT8, np.ones(2)),
        ShapeError,
        "this layer takes (..., 3), got (2,)",
    ),
    (
        lambda: int8_linear(NUMBER, INT8, np.ones(2)),
        ShapeError,
        "this layer takes (..., 3), got ()",
    ),
    (lambda: ta.bmm(STACK, [1.0]), TypeError, "other" + NO_TENSOR),
    (
        lambda: ta.bmm(STACK, TABLE),
        ShapeError,
        "bmm takes (B, N, K) and (B, K, M), got (2, 3, 4) and (2, 3)",
    ),
    (
        lambda: ta.bmm(STACK, ta.ones(3, 4, 2)),
        ShapeError,
        "bmm takes (B, N, K) and (B, K, M), got (2, 3, 4) and (3, 4, 2)",
    ),
    (lambda: ta.dot(VECTOR, [1.0]), TypeError, "other" + NO_TENSOR),
    (
        lambda: ta.dot(VECTOR, ta.ones(2)),
        ShapeError,
        "dot takes two vectors (N,), got (3,) and (2,)",
    ),
    (lambda: ta.dot(TABLE, TABLE), ShapeError, "dot takes two vectors (N,), got (2, 3) and (2, 3)"),
    (lambda: ta.outer(VECTOR, [1.0]), TypeError, "other" + NO_TENSOR),
    (lambda: ta.outer(VECTOR, TABLE), ShapeError, "outer takes (N,) and (M,), got (3,) and (2, 3)"),
    (lambda: ta.outer(TABLE, VECTOR), ShapeError, "outer takes (N,) and (M,), got (2, 3) and (3,)"),
]

NORMALIZATION: list[Refused] = [
    (lambda: F.layer_norm(TABLE, 3, eps=-1), ValueError, EPS + "-1"),
    (lambda: F.layer_norm(TABLE, 3, eps="a"), ValueError, EPS + "'a'"),
    (lambda: F.layer_norm([1.0], 1), TypeError, "layer_norm: x" + NO_TENSOR),
    (lambda: F.layer_norm(INTEGERS, 3), DtypeError, "x" + NO_FLOATS),
    (
        lambda: F.layer_norm(TABLE, ()),
        ShapeError,
        "layer_norm takes inputs that end with (), got shape (2, 3)",
    ),
    (
        lambda: F.layer_norm(TABLE, [2]),
        ShapeError,
        "layer_norm takes inputs that end with (2,), got shape (2, 3)",
    ),
    (lambda: F.layer_norm(TABLE, {3}), TypeError, "layer_norm takes a list, got set"),
    (lambda: F.layer_norm(TABLE, 3.0), TypeError, "layer_norm takes a list, got float"),
    (
        lambda: F.layer_norm(TABLE, 3, in_float64(VECTOR)),
        DtypeError,
        "layer_norm: x is float32, weight is float64" + CONVERT,
    ),
    (
        lambda: F.layer_norm(TABLE, 3, VECTOR, in_float64(VECTOR)),
        DtypeError,
        "layer_norm: x is float32, bias is float64" + CONVERT,
    ),
    (
        lambda: F.layer_norm(TABLE, 3, TABLE),
        ShapeError,
        "layer_norm: weight must have shape (3,), got (2, 3)",
    ),
    (
        lambda: F.layer_norm(TABLE, 3, VECTOR, ta.ones(2)),
        ShapeError,
        "layer_norm: bias must have shape (3,), got (2,)",
    ),
    (lambda: F.rms_norm(TABLE, 3, eps=-1), ValueError, EPS + "-1"),
    (
        lambda: F.rms_norm(TABLE, 2),
        ShapeError,
        "rms_norm takes inputs that end with (2,), got shape (2, 3)",
    ),
    (lambda: F.rms_norm(TABLE, {3}), TypeError, "rms_norm takes a list, got set"),
    (lambda: F.rms_norm(INTEGERS, 3), DtypeError, "x" + NO_FLOATS),
    (
        lambda: F.rms_norm(TABLE, 3, in_float64(VECTOR)),
        DtypeError,
        "rms_norm: x is float32, weight is float64" + CONVERT,
    ),
    (
        lambda: F.rms_norm(TABLE, 3, TABLE),
        ShapeError,
        "rms_norm: weight must have shape (3,), got (2, 3)",
    ),
    (lambda: F.normalize([1.0]), TypeError, "x" + NO_TENSOR),
    (lambda: F.normalize(INTEGERS), DtypeError, "x" + NO_FLOATS),
    (lambda: F.normalize(TABLE, eps=-1), ValueError, EPS + "-1"),
    (lambda: F.normalize(TABLE, p=3), ValueError, "normalize takes p = 1 or 2, got 3"),
    (lambda: F.normalize(TABLE, dim=2), IndexError, NO_DIM_2),
]

EMBEDDING: list[Refused] = [
    (lambda: F.dropout([1.0]), TypeError, "x" + NO_TENSOR),
    (lambda: F.dropout(INTEGERS), DtypeError, "x" + NO_FLOATS),
    (
        lambda: F.dropout(VECTOR, 1.5),
        ValueError,
        "a dropout probability lies between 0 and 1, got 1.5",
    ),
    (lambda: F.embedding([0], [[1.0]]), TypeError, "weight" + NO_TENSOR),
    (lambda: F.embedding([0], INTEGER_TABLE), DtypeError, "weight" + NO_FLOATS),
    (
        lambda: F.embedding([0], VECTOR),
        ShapeError,
        "embedding takes a table (V, D), got shape (3,)",
    ),
    (lambda: F.embedding([0.5], TABLE), DtypeError, "embedding takes integer ids, got float32"),
    (lambda: F.embedding([True], TABLE), DtypeError, "embedding takes integer ids, got bool"),
    (
        lambda: F.embedding([2], TABLE),
        IndexError,
        "token id 2 is out of range: the embedding has 2 rows (0 to 1)",
    ),
    (
        lambda: F.embedding(ta.tensor([-1]), TABLE),
        IndexError,
        "token id -1 is out of range: the embedding has 2 rows (0 to 1)",
    ),
    (
        lambda: F.embedding([0], TABLE, padding_idx=2),
        IndexError,
        "padding_idx 2 is no row of a table of 2",
    ),
    (
        lambda: F.embedding([0], TABLE, padding_idx=-1),
        IndexError,
        "padding_idx -1 is no row of a table of 2",
    ),
    (
        lambda: F.embedding([0], TABLE, padding_idx=True),
        IndexError,
        "padding_idx True is no row of a table of 2",
    ),
    (
        lambda: F.embedding([0], TABLE, padding_idx=1.0),
        IndexError,
        "padding_idx 1.0 is no row of a table of 2",
    ),
    (
        lambda: scatter_rows(ta.ones(2, 3), np.array([0, 1, 1]), 4, None),
        ShapeError,
        "scatter_rows takes rows of ids (3,), got shape (2, 3)",
    ),
    (
        lambda: scatter_rows(ta.ones(2, 3), IDS, 4, None),
        IndexError,
        "token id 4 is out of range: the embedding has 4 rows (0 to 3)",
    ),
]


@pytest.mark.parametrize(
    "table", [PRODUCTS, NORMALIZATION, EMBEDDING], ids=["products", "normalization", "embedding"]
)
def test_the_whole_message(table: list[Refused]) -> None:
    assert not all_differences(table)
