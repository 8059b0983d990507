"""Sums, products, powers and matrix products."""

from __future__ import annotations

import math

import numpy as np
import references as ref
import samples as on
from references import torch_fn
from samples import binary, numbers

import tinyattn as ta

from .extremes import at
from .kinds import arithmetic_row, by_numbers
from .refusals import INTS, error, misfits, t
from .row import OpRow

ROWS: list[OpRow] = [
    arithmetic_row("add", "add", lambda x, y: x + y, extremes=at("large,small", "ones,ones")),
    arithmetic_row("sub", "sub", lambda x, y: x - y, extremes=at("large,small", "ones,ones")),
    arithmetic_row(
        "mul",
        "mul",
        lambda x, y: x * y,
        extremes=at("large,positive", "root of large,ones", "large,small"),
        keeps="input 0, input 1",
    ),
    arithmetic_row(
        "div",
        "truediv",
        lambda x, y: x / y,
        binary(on.normal, on.away),
        extremes=at("root of large,positive", "large,large", rtol=8),
        keeps="input 1, output",
    ),
    arithmetic_row(
        "pow",
        "pow",
        lambda x, y: x**y,
        on.pow_samples,
        ["Tensor.pow"],
        reference=ref.pow,
        extremes=at("positive,ones", "large positive,ones", rtol=16),
        keeps="input 0, input 1, output",
    ),
    arithmetic_row(
        "remainder",
        "mod",
        lambda x, y: x % y,
        binary(on.distinct, on.tenths),
        ["Tensor.remainder"],
        reference=ref.remainder,
        keeps="input 0, input 1",
    ),
    arithmetic_row(
        "floor_divide",
        "floordiv",
        lambda x, y: x // y,
        binary(on.distinct, on.tenths),
        differentiable=(),
        broadcasts=False,
    ),
    OpRow(
        "remainder by a number",
        lambda x, n: x % n,
        lambda x, n: ref.remainder(x, n),
        lambda x, n: x % n,
        numbers(on.distinct, [2, 0.7, -3, 7]),
        [
            *by_numbers("mod", "remainder"),
            error(lambda: INTS % 0, ZeroDivisionError, "integer was divided by 0"),
        ],
        elementwise=True,
        extremes=at("large positive", "ones", n=7e4),
    ),
    OpRow(
        "remainder of a number",
        lambda x, n: n % x,
        lambda x, n: ref.remainder(n, x),
        "there it has no derivative",
        numbers(on.away, [0.1, -0.15]),
        [
            *by_numbers("floordiv", "floor_divide"),
            error(lambda: INTS // ta.tensor([1, 0, 2]), ZeroDivisionError, "divided by 0"),
            error(lambda: 1 // (INTS - 1), ZeroDivisionError, "divided by 0"),
        ],
        elementwise=True,
        keeps="input 0",
    ),
    OpRow(
        "add and subtract a number",
        lambda x, n: (x + n, n + x, x - n, n - x),
        lambda x, n: (x + n, n + x, x - n, n - x),
        lambda x, n: (x + n, n + x, x - n, n - x),
        numbers(on.normal, [2, 0.5, -3, 0]),
        [*by_numbers("add", "add"), *by_numbers("sub", "sub")],
        elementwise=True,
        extremes=[
            *at("large", "ones", function=lambda x: x + 1e5),
            *at("large", "ones", function=lambda x: 1e5 - x),
        ],
    ),
    OpRow(
        "multiply and divide by a number",
        lambda x, n: (x * n, n * x, x / n),
        lambda x, n: (x * n, n * x, x / n),
        lambda x, n: (x * n, n * x, x / n),
        numbers(on.normal, [2, 0.5, -3, 7]),
        by_numbers("mul", "mul"),
        elementwise=True,
        extremes=[
            *at("small", "ones", function=lambda x: x * 1e5),
            *at("large", "many large", function=lambda x: x * 1e-8),
            *at("large", function=lambda x: x * 1e-7),  # a number of few digits in float16
            *at("small", function=lambda x: x * 1e39),
            *at("large", function=lambda x: x * 1e-42),
            *at("large", "many large", function=lambda x: x / 70_000),
            *at("small", function=lambda x: x / 1e-8),
        ],
    ),
    OpRow(
        "divide a number",
        lambda x, n: n / x,
        lambda x, n: n / x,
        lambda x, n: n / x,
        numbers(on.away, [2, 0.5, -3, 0]),
        by_numbers("truediv", "div"),
        elementwise=True,
        extremes=at("large", "tens", n=1e5),
        keeps="input 0, output",
    ),
    OpRow(
        "raise to a number",
        lambda x, n: x**n,
        ref.pow_number,
        lambda x, n: x**n,
        on.pow_number_samples,
        [
            *by_numbers("pow", "pow"),
            error(lambda: INTS**-1, ValueError, r"pow .*int64\[3\], -1.*negative"),
        ],
        elementwise=True,
        special_torch="there x ** 0.5 is sqrt(x), and so NaN for -inf",
        extremes=[
            *at("root of large", "ones", n=2),
            *at("ones", "root of small", n=3),
            *at("large", "ones", n=-1),
        ],
        keeps="input 0",
    ),
    OpRow(
        "raise a number",
        lambda x, n: n**x,
        lambda x, n: np.exp(x * math.log(n)) if np.iscomplexobj(x) else np.power(float(n), x),
        lambda x, n: n**x,
        numbers(on.normal, [2, 0.5, 3.0, 1]),
        by_numbers("pow", "pow"),
        elementwise=True,
        extremes=at("ones", "tens", rtol=16, rtol_of_half=2, n=2.0),
        keeps="input 0, output",
    ),
    OpRow(
        "matmul",
        lambda x, y: x @ y,
        lambda x, y: x @ y,
        lambda x, y: x @ y,
        on.matmul_samples,
        [
            error(lambda: t(2, 3) @ t(2, 3), ValueError, r"last .*\(2, 3\) must equal .*\(2, 3\)"),
            error(lambda: t(3) @ t(4), ValueError, r"last .*\(3,\) must equal .*\(4,\)"),
            error(lambda: t() @ t(3), ValueError, "at least one dimension"),
            error(lambda: t(3) @ 2.0, ValueError, "at least one dimension"),
            error(
                lambda: t(2, 2) @ t(2, 2, dtype=np.float64),
                TypeError,
                "one dtype, got float32 and float64",
            ),
            error(lambda: t(2, 3, 4) @ t(3, 4, 2), ValueError, r"matmul .*2, 3, 4.*3, 4, 2"),
        ],
        ("ops.matmul", "Tensor.__matmul__", "Tensor.matmul"),
        {"Tensor.__rmatmul__": lambda x, y: ta.Tensor.__rmatmul__(y, x)},
        differentiable=(0, 1),
        extremes=at(
            "root of large,ones", "small,ones", function=lambda x, y: x @ y.mT, of_largest=True
        ),
        keeps="input 0, input 1",
    ),
    OpRow(
        "maximum",
        ta.maximum,
        ref.pick(np.greater),
        torch_fn("maximum"),
        binary(on.distinct, on.between, special=[(1, 1), (0, 0), (2, 1), (-1, 3)]),
        misfits("maximum"),
        ("ta.maximum", "ops.maximum"),
        differentiable=(0, 1),
        elementwise=True,
        broadcasts=True,
        extremes=at("large", "ones", function=lambda x: ta.maximum(x, 1e5)),
        keeps="input 0, input 1",
    ),
    OpRow(
        "minimum",
        ta.minimum,
        ref.pick(np.less),
        torch_fn("minimum"),
        binary(on.distinct, on.between, special=[(1, 1), (0, 0), (2, 1), (-1, 3)]),
        misfits("minimum"),
        ("ta.minimum", "ops.minimum"),
        differentiable=(0, 1),
        elementwise=True,
        broadcasts=True,
        extremes=at("small positive", "ones", function=lambda x: ta.minimum(x, 1e-8)),
        keeps="input 0, input 1",
    ),
]
