"""Products of vectors and of stacks of matrices, and einsum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import references as ref
import samples as on
from references import torch_fn
from samples import calls

import tinyattn as ta

from .extremes import at
from .refusals import error, t
from .row import OpRow, ops

# Whole numbers of a weight (2, 4), and the scale of each row.
WHOLE = np.array([[3, -127, 0, 25], [127, 1, -60, -1]], np.int8)
SCALE = np.array([0.5, 0.03125])


def int8_samples(rng, dtype):
    shapes = ((3, 4), {}), ((2, 3, 4), {}), ((4,), {}, "a vector"), ((0, 4), {}, "no rows")
    options = {"numbers": WHOLE, "scale": SCALE.astype(dtype)}
    return [replace(sample, options=options) for sample in calls(*shapes, repeat=6)(rng, dtype)]


ROWS: list[OpRow] = [
    OpRow(
        "bmm",
        ta.Tensor.bmm,
        lambda x, y: x @ y,
        torch_fn("bmm"),
        calls(*on.STACKS, repeat=2),
        [
            error(lambda: t(2, 3).bmm(t(2, 3)), ValueError, r"\(B, N, K\).*got \(2, 3\)"),
            error(lambda: t(2, 3, 4).bmm(t(1, 4, 2)), ValueError, r"\(2, 3, 4\) and \(1, 4, 2\)"),
            error(lambda: t(2, 3, 4).bmm(t(2, 3, 4)), ValueError, r"last .*\(2, 3, 4\) must"),
            error(
                lambda: t(2, 3, 4).bmm(2.0),
                TypeError,
                "other must be a Tensor, got float 2.0: wrap",
            ),
            error(
                lambda: ta.bmm([1.0], t(2, 3, 4)), TypeError, "bmm: x must be a Tensor, got list"
            ),
        ],
        ("Tensor.bmm",),
        differentiable=(0, 1),
        keeps="input 0, input 1",
    ),
    OpRow(
        "dot",
        ta.Tensor.dot,
        lambda x, y: (x * y).sum(),
        torch_fn("dot"),
        calls(*on.VECTOR_PAIRS, repeat=2),
        [
            error(lambda: t(3).dot(t(4)), ValueError, r"two vectors .*\(3,\) and \(4,\)"),
            error(lambda: t(2, 3).dot(t(2, 3)), ValueError, r"two vectors .*\(2, 3\)"),
            error(lambda: t(3).dot(2.0), TypeError, "other must be a Tensor, got float"),
            error(lambda: t(3).dot(t(3, dtype=np.float64)), TypeError, "one dtype, got float32"),
        ],
        ("Tensor.dot",),
        differentiable=(0, 1),
        keeps="input 0, input 1",
    ),
    OpRow(
        "outer",
        ta.Tensor.outer,
        np.outer,
        torch_fn("outer"),
        calls(*on.VECTOR_PAIRS, ([(3,), (2,)], {}), ([(1,), (4,)], {}), repeat=2),
        [
            error(lambda: t(3).outer(t(2, 3)), ValueError, r"\(N,\) and \(M,\).*\(2, 3\)"),
            error(lambda: t().outer(t(3)), ValueError, r"got \(\) and \(3,\)"),
            error(lambda: t(3).outer(np.ones(3)), TypeError, "other .*a Tensor, got numpy.ndarray"),
        ],
        ("Tensor.outer",),
        differentiable=(0, 1),
        elementwise=True,
        cancels=2.0,
        keeps="input 0, input 1",
    ),
    OpRow(
        "int8_linear",
        ops.int8_linear,
        lambda x, numbers, scale: x @ (numbers * scale[:, None]).T,
        lambda x, numbers, scale: x @ x.new_tensor(numbers * scale[:, None]).T,
        int8_samples,
        [
            error(lambda: ops.int8_linear(t(2, 4), WHOLE), TypeError, "misses .*'scale'"),
            error(lambda: ops.int8_linear(t(4), WHOLE, SCALE, 1), TypeError, "4 were given"),
            error(
                lambda: ops.int8_linear(t(2, 3), WHOLE, SCALE),
                ValueError,
                r"takes \(..., 4\), got \(2, 3",
            ),
        ],
        ("ops.int8_linear",),
        cancels=4.0,
        extremes=at(
            "ones",
            function=lambda x: ops.int8_linear(x, WHOLE, SCALE.astype(x.dtype)),
            of_largest=True,
        ),
        keeps="2 more",
    ),
    OpRow(
        "einsum",
        lambda *xs, equation: ta.einsum(equation, *xs),
        ref.einsum,
        lambda *xs, equation: torch_fn("einsum")(equation, *xs),
        calls(*on.EINSUMS),
        [
            *(
                error(lambda e=equation, xs=xs: ta.einsum(e, *xs), ValueError, match)
                for equation, xs, match in (
                    ("ij->k", [t(2, 3)], "after -> letters of the result.*'ij->k'"),
                    ("ij.->i", [t(2, 3)], r"letter for each dimension.*'ij.->i'"),
                    ("...ij", [t(2)], r"'...ij' and shapes \[\(2,\)\]"),
                    ("ii->i", [t(2, 3)], r"one size everywhere.*\(2, 3\)"),
                    ("i1->i", [t(2, 2)], "'i1->i'"),
                    ("i->ii", [t(2)], "each once; got 'i->ii'"),
                    ("i,i->i", [t(2)], r"'i,i->i' and shapes \[\(2,\)\]"),
                    ("i->i", [t(2), t(2)], r"'i->i' and shapes \[\(2,\), \(2,\)\]"),
                    ("i->i", [], r"'i->i' and shapes \[\]"),
                    ("ij->i", [t(2)], r"'ij->i' and shapes \[\(2,\)\]"),
                    ("i->i", [t(2, 3)], r"'i->i' and shapes \[\(2, 3\)\]"),
                    ("ij,jk->ik", [t(2, 3), t(2, 3)], r"one size everywhere.*\(2, 3\)"),
                    (t(2), [t(2)], "an equation such as"),
                )
            ),
            error(lambda: ta.einsum("i,i->i", t(2), [1, 2]), TypeError, "einsum .*got list: wrap"),
        ],
        spellings={"ta.einsum": lambda *xs, equation: ta.einsum(equation.replace(",", " , "), *xs)},
        differentiable="all",
        keeps="input 0, input 1, input 2, 2 more",
    ),
    OpRow(
        "hstack",
        lambda *xs: ta.hstack(xs),
        lambda *xs: np.hstack(xs),
        lambda *xs: torch_fn("hstack")(xs),
        calls(*on.STACKED, repeat=2),
        [
            error(lambda: ta.hstack([]), TypeError, "hstack takes one or more Tensors"),
            error(lambda: ta.hstack(t(3)), TypeError, "hstack takes a list or tuple"),
            error(lambda: ta.hstack([t(2, 3), t(3, 3)]), ValueError, r"\[2, 3\].*\[3, 3\]"),
        ],
        spellings={"ta.hstack": lambda *xs: ta.hstack(list(xs))},
        differentiable="all",
        elementwise=True,
    ),
    OpRow(
        "vstack",
        lambda *xs: ta.vstack(xs),
        lambda *xs: np.vstack(xs),
        lambda *xs: torch_fn("vstack")(xs),
        calls(*on.STACKED, repeat=2),
        [
            error(lambda: ta.vstack([]), TypeError, "vstack takes one or more Tensors"),
            error(lambda: ta.vstack([t(3), 1.0]), TypeError, "vstack takes .*Tensors"),
            error(lambda: ta.vstack([t(3), t(4)]), ValueError, r"\[1, 3\].*\[1, 4\]"),
        ],
        spellings={"ta.vstack": lambda *xs: ta.vstack(list(xs))},
        differentiable="all",
        elementwise=True,
    ),
]
