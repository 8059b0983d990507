"""Functions of each element."""

from __future__ import annotations

from functools import partial

import numpy as np
import references as ref
import samples as on
from references import torch_fn
from samples import both, unary

import tinyattn as ta
from tinyattn import functional as F

from .extremes import ENDS, at
from .kinds import method_row, unary_row
from .refusals import BOOLS, error, misuse, only_tensors, t
from .row import OpRow, ops

ROWS: list[OpRow] = [
    unary_row("neg", np.negative, unary(), ["Tensor.__neg__"], extremes=at(*ENDS)),
    unary_row(
        "exp",
        np.exp,
        unary(large=4.0),
        ["Tensor.exp"],
        extremes=at("tens", "small", rtol=8),
        keeps="output",
    ),
    unary_row(
        "log",
        np.log,
        unary(on.positive),
        ["Tensor.log"],
        extremes=at("large positive", "positive", rtol=8),
        keeps="input 0",
    ),
    *(
        unary_row(
            f"log{base}",
            partial(ref.logarithm, base=base),
            unary(on.positive),
            misuse=misuse(f"log{base}", "input"),
            extremes=at("large positive", "positive", rtol=8),
            keeps="input 0",
        )
        for base in (2, 10)
    ),
    unary_row(
        "log1p",
        ref.log1p,
        unary(on.positive, special=[0.0, -0.5]),
        ["Tensor.log1p"],
        extremes=at("large positive", "small", "positive", rtol=8),
        keeps="input 0",
    ),
    unary_row(
        "expm1",
        ref.expm1,
        unary(large=4.0),
        ["Tensor.expm1"],
        extremes=at("tens", "small", rtol=8),
        keeps="input 0",
    ),
    method_row("square", lambda x: x * x, unary(), keeps="input 0"),
    method_row(
        "rsqrt",
        lambda x: 1 / np.sqrt(x),
        unary(on.positive),
        extremes=at("large positive", "positive", rtol=8, rtol_of_half=2),
        keeps="output, 1 more",
    ),
    method_row(
        "reciprocal",
        lambda x: 1 / x,
        unary(on.away, small=None),
        extremes=at("large", "ones"),
        keeps="input 0, output",
    ),
    unary_row(
        "sqrt",
        np.sqrt,
        unary(on.positive),
        ["Tensor.sqrt"],
        extremes=at("large positive", "small positive"),
        keeps="output",
    ),
    unary_row(
        "sin", np.sin, unary(), ["Tensor.sin"], extremes=at("small", "ones"), keeps="input 0"
    ),
    unary_row(
        "cos", np.cos, unary(), ["Tensor.cos"], extremes=at("small", "ones"), keeps="input 0"
    ),
    unary_row(
        "tanh",
        np.tanh,
        unary(),
        ["Tensor.tanh", "F.tanh"],
        errors=only_tensors(F.tanh),
        cancels=2.0,
        extremes=at(*ENDS, of_largest=True, rtol_of_half=2),  # its gradient is of a float16
        keeps="output",
    ),
    unary_row(
        "sigmoid",
        ref.sigmoid,
        unary(),
        ["Tensor.sigmoid", "F.sigmoid"],
        errors=only_tensors(F.sigmoid),
        cancels=2.0,
        extremes=at(*ENDS, of_largest=True, rtol_of_half=2),  # its gradient is of a float16
        keeps="output",
    ),
    unary_row(
        "erf",
        ref.erf,
        unary(large=3.0),
        ["Tensor.erf"],
        extremes=at(*ENDS, of_largest=True),
        keeps="input 0",
    ),
    unary_row(
        "relu",
        lambda x: np.where(ref.real(x) > 0, x, np.where(np.isnan(x), x, 0)),
        unary(on.away, special=[0.0, -0.0, 1.0]),
        ["Tensor.relu", "F.relu"],
        errors=only_tensors(F.relu),
        extremes=at(*ENDS),
        keeps="output",
    ),
    unary_row(
        "abs",
        lambda x: x * np.sign(ref.real(x)),
        unary(on.away, special=[0.0, -1.0, 1.0]),
        ["Tensor.abs", "Tensor.__abs__"],
        extremes=at(*ENDS),
        keeps="input 0",
    ),
    unary_row(
        "gelu",
        ref.gelu,
        both(unary(large=5.0), unary(large=5.0, approximate="tanh")),
        ["F.gelu"],
        lambda x, **options: ref.torch_nn().gelu(x, **options),
        misuse=misuse("gelu")[1:],  # because it takes two arguments
        errors=[
            *only_tensors(F.gelu),
            error(lambda: F.gelu(t(3), t(3)), ValueError, '"none" or "tanh", got array'),
            error(lambda: F.gelu(t(3), "fast"), ValueError, '"none" or "tanh", got \'fast\''),
        ],
        elementwise=False,
        extremes=[
            *at(*ENDS, rtol=8, of_largest=True),
            *at(*ENDS, rtol=16, of_largest=True, approximate="tanh"),
        ],
        keeps="input 0",
    ),
    unary_row("clone", np.copy, unary(), ["Tensor.clone"], extremes=at(*ENDS)),
    OpRow(
        "pos",
        lambda x: +x,
        lambda x: +x,
        lambda x: +x,
        unary(),
        [
            error(lambda: ta.Tensor.__pos__(t(3), 1), TypeError, "takes 1 .*2 were given"),
            error(lambda: ta.Tensor.__pos__(), TypeError, "missing 1"),
            error(lambda: ta.Tensor.__pos__(t(3), colour=1), TypeError, "unexpected .*'colour'"),
        ],
        ("Tensor.__pos__",),
        elementwise=True,
    ),
    OpRow(
        "cast",
        lambda x, wanted: ops.cast(x, dtype=np.dtype(wanted)),  # a `to` may have nothing to do
        lambda x, wanted: x.astype(np.complex128 if np.iscomplexobj(x) else wanted),
        lambda x, wanted: x.double(),
        on.cast_samples,
        [
            error(lambda: t(3).to("nonsense"), TypeError, "not a dtype: 'nonsense'"),
            error(lambda: t(3).to(complex), TypeError, "up to 64 bits, got complex128"),
            error(lambda: t(3).to(np.longdouble), TypeError, "up to 64 bits, got"),
        ],
        spellings={
            "Tensor.to": lambda x, wanted: x.to(dtype=np.dtype(wanted)),
            "by its name alone": lambda x, wanted: x.to(wanted),
            "Tensor.double": lambda x, wanted: x.double(),
            "like another tensor": lambda x, wanted: x.to(ta.zeros(1, dtype=wanted)),
        },
        dtype="float64",
        elementwise=True,
        reaches=("cast",),
        extremes=at(*ENDS, function=lambda x: x.double().to(x.dtype)),
    ),
    OpRow(
        "clamp",
        ta.Tensor.clamp,
        ref.clamp,
        torch_fn("clamp"),
        on.clamp_samples,
        [
            error(lambda: t(3).clamp(), ValueError, "min, max or both"),
            error(lambda: t(3).clamp("low"), TypeError, "clamp .*'low'|number.*'low'"),
            error(lambda: t(3).clamp(0, [1]), TypeError, r"clamp .*\[1\]|number.*\[1\]|list"),
        ],
        ("Tensor.clamp",),
        {"ops.clip": lambda x, min=None, max=None: ops.clip(x, min, max)},
        elementwise=True,
        extremes=at("large", "ones", min=-1e5, max=1e5),
        keeps="input 0",
    ),
    OpRow(
        "clamp between tensors",
        ta.Tensor.clamp,
        ref.clamp_between,
        torch_fn("clamp"),
        on.clamp_between_samples,
        [
            error(lambda: t(3).clamp(t(2)), ValueError, r"ge .*\[3\].*\[2\]"),
            error(lambda: t(3).clamp(t(3), "1"), TypeError, "'1'"),
            error(lambda: t(3).clamp(t(3), None, t(3)), TypeError, "takes 3 arguments but 4"),
        ],
        ("ta.clamp",),
        {"one after the other": lambda x, low, high: x.clamp(min=low).clamp(max=high)},
        differentiable=(0, 1, 2),
        elementwise=True,
        special_torch="there a NaN gets no gradient",
        keeps="2 more",
    ),
    OpRow(
        "where",
        ta.where,
        lambda condition, x, y: np.where(condition, x, y),
        torch_fn("where"),
        on.where_samples,
        [
            error(lambda: ta.where(BOOLS, t(3), t(2)), ValueError, r"where .*\[3\].*\[3\].*\[2\]"),
            error(lambda: ta.where(BOOLS, t(2, 2), 0.0), ValueError, r"where .*\[3\].*\[2, 2\]"),
            error(lambda: ta.where(BOOLS, "text", t(3)), TypeError, "where .*'text'"),
            error(lambda: ta.where(BOOLS, t(3), None), TypeError, "where .*None"),
        ],
        ("ta.where", "ops.where"),
        differentiable=(1, 2),
        elementwise=True,
        extremes=at("small positive", "ones", function=lambda x: ta.where(x > 1e-8, x, 0.5)),
        keeps="input 0",
    ),
    OpRow(
        "masked_fill",
        ta.Tensor.masked_fill,
        lambda x, mask, value: np.where(mask, value, x),
        lambda x, mask, value: x.masked_fill(mask, value),
        on.masked_fill_samples,
        [
            error(lambda: t(3).masked_fill(t(3), 0.0), TypeError, "boolean mask, got float32"),
            error(
                lambda: t(3).masked_fill(ta.tensor([True]).expand(3, 2), 0.0),
                ValueError,
                r"mask .*\(3, 2\).*\(3,\)",
            ),
            error(
                lambda: t(3).masked_fill(ta.tensor([True, False]), 0.0),
                ValueError,
                r"mask .*\(2,\).*\(3,\)",
            ),
            error(lambda: t(3).masked_fill(BOOLS, "text"), TypeError, "'text'"),
        ],
        ("Tensor.masked_fill",),
        elementwise=True,
        keeps="input 1",
    ),
]
