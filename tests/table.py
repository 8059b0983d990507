"""The table of operations: what each should compute, and on what it is tried.

One `OpRow` for every op and every public differentiable callable. `test_table.py` generates its
tests from the rows, so that a new op needs a row and no new test. A row holds

    function    the callable under test, called with Tensors
    reference   the same in plain NumPy, for complex arrays too; see references.py
    torch       the same in PyTorch, or the reason why PyTorch cannot be asked
    samples     at least 20 calls, at least 4 of them edge cases; see samples.py
    errors      at least 3 calls that must be refused, with what the message must say
    covers      the public names the row stands for: each is called with the same arguments
    spellings   other ways to write it, whose results must be bitwise the same
    reaches     ops that `function` records, found in the graph
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import references as ref
import samples as on
from references import torch_fn, torch_reduce
from samples import Sample, binary, calls, numbers, unary

import tinyattn as ta
from tinyattn import functional as F
from tinyattn.op import registry

ops = SimpleNamespace(**registry)
Samples = Callable[[np.random.Generator, np.dtype], list[Sample]]


@dataclass(frozen=True)
class ErrorInput:
    """A call that must raise `exception` (or a subclass) with a message that `match` finds."""

    call: Callable[[], Any]
    exception: type[Exception]
    match: str


@dataclass(frozen=True, eq=False, repr=False)
class OpRow:
    name: str
    function: Callable[..., Any]
    reference: Callable[..., Any]
    torch: Callable[..., Any] | str
    samples: Samples
    errors: Sequence[ErrorInput]
    covers: tuple[str, ...] = ()
    spellings: dict[str, Callable[..., Any]] = field(default_factory=dict)
    reaches: tuple[str, ...] = ()
    differentiable: tuple[int, ...] | str = (0,)  # positions among the inputs, or "all"
    dtype: str = "same"  # of the result: that of the inputs, or a name
    special_torch: str = ""  # why NaN and inf may come out otherwise than in PyTorch
    elementwise: bool = False  # each element's error counts by itself, not beside the largest
    cancels: float = 1.0  # how many times larger than the gradient the terms are that make it up
    broadcasts: bool = False  # two inputs that broadcast: also tried on random pairs of shapes

    def __repr__(self) -> str:
        return f"the row {self.name!r}"

    def positions(self, sample: Sample) -> tuple[int, ...]:
        """The inputs of this sample that have derivatives."""
        if self.differentiable == "all":
            return tuple(range(len(sample.inputs)))
        return tuple(i for i in self.differentiable if i < len(sample.inputs))  # type: ignore

    def public_names(self) -> set[str]:
        names = {*self.covers, *self.spellings, *(f"ops.{name}" for name in self.reaches)}
        return {name for name in names if " " not in name}

    def writings(self) -> dict[str, Callable[..., Any]]:
        """Everything that must give bitwise what `function` gives."""
        return {**{name: public(name) for name in self.covers}, **self.spellings}


SPACES = {"ta": ta, "F": F, "ops": ops, "Tensor": ta.Tensor}


def public(name: str) -> Callable[..., Any]:
    """The callable behind a name such as `F.softmax` or `Tensor.exp`."""
    space, _, attribute = name.partition(".")
    return getattr(SPACES[space], attribute)


@cache
def samples_of(row: OpRow, dtype: str = "float64") -> list[Sample]:
    """The samples of a row: always the same ones, and read-only."""
    found = row.samples(np.random.default_rng(zlib.crc32(row.name.encode())), np.dtype(dtype))
    for sample in found:
        for array in sample.inputs:
            array.setflags(write=False)
    return found


# Calls that must fail


def error(call: Callable[[], Any], exception: type[Exception], match: str) -> ErrorInput:
    return ErrorInput(call, exception, match)


def t(*shape: int, dtype: Any = np.float32) -> ta.Tensor:
    return ta.tensor(np.ones(shape, dtype))


INTS = ta.tensor([1, 2, 3])
BOOLS = ta.tensor([True, False, True])


def misuse(name: str) -> list[ErrorInput]:
    """What no op of one Tensor takes: a second, an unknown option, nothing at all."""
    function = getattr(ops, name)
    return [
        error(lambda: function(t(3), t(3)), TypeError, rf"{name}\(\) takes .*2 were given"),
        error(lambda: function(t(3), colour=1), TypeError, rf"{name}\(\) .* unexpected .*'colour'"),
        error(lambda: function(), TypeError, rf"{name}\(\) (misses|missing) .*'x'"),
    ]


def misfits(name: str) -> list[ErrorInput]:
    """What no op of two broadcasting Tensors takes."""
    function = getattr(ops, name)
    return [
        error(lambda: function(t(2, 3), t(2)), ValueError, rf"{name} .*32\[2, 3\].*32\[2\]"),
        error(lambda: function(t(3), t(4)), ValueError, rf"{name} .*\[3\].*\[4\]"),
        error(lambda: function(t(3), "text"), TypeError, rf"{name} .*float32\[3\], 'text'"),
        error(lambda: function(t(3)), TypeError, rf"{name}\(\) (misses|missing) .*'y'"),
    ]


def only_floats(function: Callable[..., Any]) -> list[ErrorInput]:
    """What a function in `functional` says to lists, integers and booleans."""
    return [
        error(lambda: function([1.0, 2.0]), TypeError, "must be a Tensor, got list"),
        error(lambda: function(INTS), TypeError, "floating dtype, got int64"),
        error(lambda: function(BOOLS), TypeError, "floating dtype, got bool"),
    ]


def bad_dims(function: Callable[..., Any]) -> list[ErrorInput]:
    """What a function along dimensions says to one that is not there."""
    return [
        error(lambda: function(t(2, 3), 2), IndexError, r"dim 2 .*\(2, 3\).*-2 to 1"),
        error(lambda: function(t(2, 3), -3), IndexError, r"dim -3 .*\(2, 3\).*-2 to 1"),
        error(lambda: function(t(2, 3), 0.5), TypeError, r"integer, got 0\.5"),
    ]


# Kinds of rows


def unary_row(
    name: str,
    reference: Callable[..., Any],
    samples: Samples,
    covers: Sequence[str] = (),
    torch: Callable[..., Any] | str = "",
    **more: Any,
) -> OpRow:
    """A function of each element: an op, and methods or functions of the same kind."""
    return OpRow(
        name,
        getattr(ops, name),
        reference,
        torch or torch_fn(name),
        samples,
        [*misuse(name), *more.pop("errors", [])],
        (f"ops.{name}", *covers),
        **{"elementwise": True, **more},
    )


def arithmetic_row(
    name: str,
    symbol: str,
    function: Callable[..., Any],
    samples: Samples | None = None,
    covers: Sequence[str] = (),
    **more: Any,
) -> OpRow:
    """An operator on two Tensors, whichever of them is asked."""
    backward = public(f"Tensor.__r{symbol}__")
    return OpRow(
        name,
        function,
        more.pop("reference", function),
        function,
        samples or binary(),
        misfits(name),
        (f"ops.{name}", f"Tensor.__{symbol}__", *covers),
        {
            f"Tensor.__r{symbol}__": lambda x, y: backward(y, x),
            "an argument by its name": lambda x, y: getattr(ops, name)(x, y=y),
        },
        differentiable=(0, 1),
        elementwise=True,
        broadcasts=True,
        **more,
    )


def comparison_row(name: str, symbol: str, function: Callable[..., Any]) -> OpRow:
    return OpRow(
        name,
        function,
        function,
        function,
        on.comparable_pairs,
        [e for e in misfits(name) if e.exception is ValueError or "mis" in e.match],
        (f"ops.{name}", f"Tensor.__{symbol}__"),
        differentiable=(),
        dtype="bool",
    )


def logic_row(name: str, symbol: str, function: Callable[..., Any]) -> OpRow:
    backward = public(f"Tensor.__r{symbol}__")
    return OpRow(
        name,
        function,
        function,
        function,
        on.truth_pairs,
        [
            error(lambda: function(t(3), t(3)), TypeError, rf"{name} .*float32\[3\], float32\[3\]"),
            error(lambda: function(BOOLS, t(3)), TypeError, rf"{name} .*bool\[3\], float32\[3\]"),
            error(
                lambda: function(BOOLS, ta.tensor([True, False])),
                ValueError,
                rf"{name} .*bool\[3\], bool\[2\]",
            ),
        ],
        (f"ops.{name}", f"Tensor.__{symbol}__"),
        {f"Tensor.__r{symbol}__": lambda x, y: backward(y, x)},
        differentiable=(),
        dtype="bool",
    )


def reduction_row(name: str, reference: Callable[..., Any], samples: Samples, **more: Any) -> OpRow:
    method = public(f"Tensor.{name}")
    twice = error(lambda: method(t(2, 3), (0, -2)), ValueError, r"twice in \(0, -2\)")
    return OpRow(
        name,
        method,
        reference,
        more.pop("torch", None) or torch_reduce(name),
        samples,
        [*bad_dims(method), twice, *more.pop("errors", [])],
        **{"covers": (f"Tensor.{name}",), **more},
    )


def dims_given(op: Callable[..., Any]) -> Callable[..., Any]:
    """A reduction as an op, which takes its dimensions as a tuple or None."""

    def reduction(x: ta.Tensor, dim: Any = None, keepdim: bool = False) -> ta.Tensor:
        dims = None if dim is None or not x.ndim else ref.axes_of(x, dim)
        return op(x, dim=dims, keepdim=keepdim)

    return reduction


def shape_row(
    name: str,
    function: Callable[..., Any],
    reference: Callable[..., Any],
    torch: Callable[..., Any],
    plans: list[tuple[Any, ...]],
    errors: list[ErrorInput],
    **more: Any,
) -> OpRow:
    """Elements are moved and none is changed; each plan is tried twice."""
    samples = calls(*plans, repeat=2)
    return OpRow(name, function, reference, torch, samples, errors, elementwise=True, **more)


def by_numbers(symbol: str, name: str) -> list[ErrorInput]:
    """What an operator says to things that are no numbers, on either side."""
    forward, backward = (public(f"Tensor.__{side}{symbol}__") for side in ("", "r"))
    return [
        error(lambda: forward(t(3), "text"), TypeError, rf"{name} .*float32\[3\], 'text'"),
        error(lambda: forward(t(3), None), TypeError, rf"{name} .*float32\[3\], None"),
        error(lambda: backward(t(3), "text"), TypeError, rf"{name} .*'text', float32\[3\]"),
    ]


def side_by_side(qkv: ta.Tensor, **settings: Any) -> ta.Tensor:
    """Self-attention of which only what is said here is unusual."""
    usual = {"heads": 1, "lengths": None, "limits": None, "mask": None, "scale": 1.0}
    return ops.self_attention(qkv, **{**usual, **settings})


NO_WEIGHT = "weight must be a Tensor, got list"
RANDOM = "PyTorch draws other random numbers"
OURS = "an op beneath the functional face; its face is compared"

ROWS: list[OpRow] = [
    # Arithmetic
    arithmetic_row("add", "add", lambda x, y: x + y),
    arithmetic_row("sub", "sub", lambda x, y: x - y),
    arithmetic_row("mul", "mul", lambda x, y: x * y),
    arithmetic_row("div", "truediv", lambda x, y: x / y, binary(on.normal, on.away)),
    arithmetic_row(
        "pow", "pow", lambda x, y: x**y, on.pow_samples, ["Tensor.pow"], reference=ref.pow
    ),
    OpRow(
        "add and subtract a number",
        lambda x, n: (x + n, n + x, x - n, n - x),
        lambda x, n: (x + n, n + x, x - n, n - x),
        lambda x, n: (x + n, n + x, x - n, n - x),
        numbers(on.normal, [2, 0.5, -3, 0]),
        [*by_numbers("add", "add"), *by_numbers("sub", "sub")],
        elementwise=True,
    ),
    OpRow(
        "multiply and divide by a number",
        lambda x, n: (x * n, n * x, x / n),
        lambda x, n: (x * n, n * x, x / n),
        lambda x, n: (x * n, n * x, x / n),
        numbers(on.normal, [2, 0.5, -3, 7]),
        by_numbers("mul", "mul"),
        elementwise=True,
    ),
    OpRow(
        "divide a number",
        lambda x, n: n / x,
        lambda x, n: n / x,
        lambda x, n: n / x,
        numbers(on.away, [2, 0.5, -3, 0]),
        by_numbers("truediv", "div"),
        elementwise=True,
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
    ),
    OpRow(
        "raise a number",
        lambda x, n: n**x,
        lambda x, n: np.exp(x * math.log(n)) if np.iscomplexobj(x) else np.power(float(n), x),
        lambda x, n: n**x,
        numbers(on.normal, [2, 0.5, 3.0, 1]),
        by_numbers("pow", "pow"),
        elementwise=True,
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
        ("ops.matmul", "Tensor.__matmul__"),
        {"Tensor.__rmatmul__": lambda x, y: ta.Tensor.__rmatmul__(y, x)},
        differentiable=(0, 1),
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
    ),
    # One element at a time
    unary_row("neg", np.negative, unary(), ["Tensor.__neg__"]),
    unary_row("exp", np.exp, unary(large=4.0), ["Tensor.exp"]),
    unary_row("log", np.log, unary(on.positive), ["Tensor.log"]),
    unary_row("sqrt", np.sqrt, unary(on.positive), ["Tensor.sqrt"]),
    unary_row("sin", np.sin, unary(), ["Tensor.sin"]),
    unary_row("cos", np.cos, unary(), ["Tensor.cos"]),
    unary_row(
        "tanh",
        np.tanh,
        unary(),
        ["Tensor.tanh", "F.tanh"],
        errors=only_floats(F.tanh),
        cancels=2.0,
    ),
    unary_row(
        "sigmoid",
        ref.sigmoid,
        unary(),
        ["Tensor.sigmoid", "F.sigmoid"],
        errors=only_floats(F.sigmoid),
        cancels=2.0,
    ),
    unary_row("erf", ref.erf, unary(large=3.0), ["Tensor.erf"]),
    unary_row(
        "relu",
        lambda x: np.where(ref.real(x) > 0, x, np.where(np.isnan(x), x, 0)),
        unary(on.away, special=[0.0, -0.0, 1.0]),
        ["Tensor.relu", "F.relu"],
        errors=only_floats(F.relu),
    ),
    unary_row(
        "abs",
        lambda x: x * np.sign(ref.real(x)),
        unary(on.away, special=[0.0, -1.0, 1.0]),
        ["Tensor.abs", "Tensor.__abs__"],
        special_torch="there the slope of |NaN| is 0",
    ),
    unary_row(
        "gelu",
        ref.gelu,
        unary(large=5.0),
        ["F.gelu"],
        lambda x: ref.torch_nn().gelu(x),
        errors=[
            *only_floats(F.gelu),
            error(lambda: F.gelu(t(3), "fast"), ValueError, '"none" or "tanh", got \'fast\''),
        ],
        elementwise=False,
    ),
    unary_row(
        "gelu_tanh",
        ref.gelu_tanh,
        unary(large=5.0),
        torch=lambda x: ref.torch_nn().gelu(x, approximate="tanh"),
        spellings={"with an option": lambda x: F.gelu(x, approximate="tanh")},
        elementwise=False,
    ),
    unary_row("clone", np.copy, unary(), ["Tensor.clone"]),
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
        lambda x, wanted: x.to(wanted),
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
            "Tensor.double": lambda x, wanted: x.double(),
            "ops.cast": lambda x, wanted: ops.cast(x, dtype=np.dtype(wanted)),
            "like another tensor": lambda x, wanted: x.to(ta.zeros(1, dtype=wanted)),
        },
        dtype="float64",
        elementwise=True,
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
        reaches=("clamp",),
        elementwise=True,
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
                lambda: t(3).masked_fill(ta.tensor([True]).expand(2, 3), 0.0),
                ValueError,
                r"mask .*\(2, 3\).*\(3,\)",
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
    ),
    # Sums and extremes
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
    # Softmax and what is made of it
    OpRow(
        "softmax",
        F.softmax,
        ref.softmax,
        lambda x, dim: x.softmax(dim),
        on.softmax_samples,
        [*only_floats(F.softmax), *bad_dims(F.softmax)],
        ("F.softmax", "Tensor.softmax"),
        reaches=("softmax",),
    ),
    OpRow(
        "log_softmax",
        F.log_softmax,
        ref.log_softmax,
        lambda x, dim: x.log_softmax(dim),
        on.softmax_samples,
        [*only_floats(F.log_softmax), *bad_dims(F.log_softmax)],
        ("F.log_softmax", "Tensor.log_softmax"),
        reaches=("log_softmax",),
    ),
    OpRow(
        "masked_softmax",
        F.masked_softmax,
        ref.masked_softmax,
        ref.torch_masked_softmax,
        on.masked_softmax_samples,
        [
            *only_floats(F.masked_softmax),
            error(lambda: F.masked_softmax(t(3)), ValueError, r"\(B, Q, K\).*got shape \(3,\)"),
            error(
                lambda: F.masked_softmax(t(1, 2, 3), valid_lens=[4]),
                ValueError,
                "between 0 and .*3, got 4 at index 0",
            ),
            error(
                lambda: F.masked_softmax(t(2, 2, 3), valid_lens=[1, -1]),
                ValueError,
                "between 0 and .*3, got -1 at index 1",
            ),
            error(
                lambda: F.masked_softmax(t(1, 2, 3), valid_lens=[1.5]),
                ValueError,
                "whole numbers, got 1.5",
            ),
            error(
                lambda: F.masked_softmax(t(1, 2, 3), valid_lens=[1, 2, 3]),
                ValueError,
                r"\(B,\) = \(1,\).*got \(3,\)",
            ),
            error(
                lambda: F.masked_softmax(t(1, 2, 3), mask=t(1, 2, 3)),
                TypeError,
                "booleans .*got float32",
            ),
            error(
                lambda: F.masked_softmax(t(1, 2, 3), mask=np.ones((2, 3), bool)),
                ValueError,
                r"\(B, K\), with B=1.*\(2, 3\).*mask\[None\]",
            ),
            error(
                lambda: F.masked_softmax(t(1, 2, 3), mask=np.array([[0, 1, 2]])),
                ValueError,
                "only 0 .* and 1",
            ),
        ],
        ("F.masked_softmax",),
        reaches=("masked_softmax",),
    ),
    OpRow(
        "cross_entropy",
        F.cross_entropy,
        ref.cross_entropy,
        lambda x, target, **options: ref.torch_nn().cross_entropy(
            x, ref.as_torch(target), **options
        ),
        on.cross_entropy_samples,
        [
            error(lambda: F.cross_entropy([[1.0]], [0]), TypeError, "logits .* got list"),
            error(
                lambda: F.cross_entropy(t(2, 3), ta.tensor([0, 3])),
                IndexError,
                r"class 3 .*3 classes \(0 to 2",
            ),
            error(lambda: F.cross_entropy(t(2, 3), ta.tensor([0, -1])), IndexError, "class -1 .*3"),
            error(
                lambda: F.cross_entropy(t(2, 3), ta.tensor([0.0, 1.0])),
                TypeError,
                "integers, got float32",
            ),
            error(
                lambda: F.cross_entropy(t(2, 3), ta.tensor([0])), ValueError, r"\(2, 3\).*\(1,\)"
            ),
            error(
                lambda: F.cross_entropy(t(2, 3), ta.tensor([0, 1]), reduction="average"),
                ValueError,
                '"mean", "sum" or "none", got \'average\'',
            ),
        ],
        ("F.cross_entropy",),
        reaches=("cross_entropy",),
    ),
    OpRow(
        "mse_loss",
        F.mse_loss,
        ref.mse_loss,
        lambda x, y, reduction: ref.torch_nn().mse_loss(x, y, reduction=reduction),
        on.mse_samples,
        [
            error(lambda: F.mse_loss(t(3), t(2)), ValueError, r"\(3,\).*\(2,\)"),
            error(lambda: F.mse_loss(t(3), 1.0), TypeError, "target must be a Tensor, got float"),
            error(lambda: F.mse_loss(INTS, t(3)), TypeError, "floating dtype, got int64"),
            error(lambda: F.mse_loss(t(3), t(3), "all"), ValueError, "\"none\", got 'all'"),
        ],
        ("F.mse_loss",),
        differentiable=(0, 1),
    ),
    # Layers without parameters of their own
    OpRow(
        "linear",
        F.linear,
        lambda x, weight, bias=0.0: x @ weight.T + bias,
        lambda *inputs: ref.torch_nn().linear(*inputs),
        on.linear_samples,
        [
            error(lambda: F.linear([1.0], t(2, 1)), TypeError, "x must be a Tensor, got list"),
            error(lambda: F.linear(t(3), t(3)), ValueError, r"weight is \(out, in\), .*\(3,\)"),
            error(lambda: F.linear(t(2, 3), t(3, 2)), ValueError, r"\(3, 2\) .* 2, got .*\(2, 3\)"),
            error(lambda: F.linear(t(3), t(2, 3), t(3)), ValueError, r"bias .*\(2,\), got \(3,\)"),
            error(
                lambda: F.linear(t(3), t(2, 3, dtype=np.float64)),
                TypeError,
                "x is float32, weight is float64",
            ),
            error(lambda: F.linear(t(3), t(2, 3), [1.0, 2.0]), TypeError, "bias .*list"),
        ],
        ("F.linear", "ops.linear"),
        differentiable=(0, 1, 2),
    ),
    OpRow(
        "embedding",
        F.embedding,
        lambda ids, weight, padding_idx=None: np.where(
            # Ids that may be learned take part; those of the padding row are only numbers.
            (ids == padding_idx)[..., None],
            weight.real[ids],
            weight[ids],
        ),
        lambda ids, weight, **options: ref.torch_nn().embedding(ids, weight, **options),
        on.embedding_samples,
        [
            error(lambda: F.embedding([0, 5], t(3, 2)), IndexError, "0 to 5, .*3 rows"),
            error(lambda: F.embedding([-1, 0], t(3, 2)), IndexError, "-1 to 0, .*3 rows"),
            error(lambda: F.embedding(t(2), t(3, 2)), TypeError, "integer ids, got float32"),
            error(lambda: F.embedding([0], t(3)), ValueError, r"\(V, D\), got .*\(3,\)"),
            error(lambda: F.embedding([0], t(3, 2), 3), IndexError, "padding_idx 3 .*3"),
            error(lambda: F.embedding([0], [[1.0]]), TypeError, NO_WEIGHT),
        ],
        ("F.embedding",),
        reaches=("embedding",),
        differentiable=(1,),
        elementwise=True,
    ),
    OpRow(
        "scatter_rows",
        ops.scatter_rows,
        ref.scatter_rows,
        OURS,
        on.scatter_samples,
        [
            error(
                lambda: ops.scatter_rows(t(2, 3), ids=INTS, num_rows=5, skip=None, colour=1),
                TypeError,
                "scatter_rows.* 'colour'",
            ),
            error(
                lambda: ops.scatter_rows(t(2, 3), num_rows=5, skip=None),
                TypeError,
                "misses .*'ids'",
            ),
            error(
                lambda: ops.scatter_rows(t(2, 3), INTS),
                TypeError,
                "missing .*num_rows",
            ),
        ],
        ("ops.scatter_rows",),
    ),
    OpRow(
        "layer_norm",
        lambda *inputs, **options: F.layer_norm(
            inputs[0], options["normalized_shape"], *inputs[1:], eps=options.get("eps", 1e-5)
        ),
        ref.layer_norm,
        lambda *inputs, **options: ref.torch_nn().layer_norm(
            inputs[0], options["normalized_shape"], *inputs[1:], eps=options.get("eps", 1e-5)
        ),
        on.layer_norm_samples,
        [
            error(lambda: F.layer_norm([1.0], 1), TypeError, "x must be a Tensor, got list"),
            error(lambda: F.layer_norm(INTS, 3), TypeError, "floating dtype, got int64"),
            error(lambda: F.layer_norm(t(2, 3), 2), ValueError, r"\(2,\) .*got \(2, 3\)"),
            error(lambda: F.layer_norm(t(2, 3), (3, 2)), ValueError, r"\(3, 2\) .*got \(2, 3\)"),
            error(lambda: F.layer_norm(t(2, 3), ()), ValueError, r"\(\) .*got \(2, 3\)"),
            error(
                lambda: F.layer_norm(t(2, 3), 3, t(2)), ValueError, r"weight .*\(3,\), got \(2,\)"
            ),
            error(
                lambda: F.layer_norm(t(2, 3), 3, t(3), t(3, dtype=np.float64)),
                TypeError,
                "x is float32, bias is float64",
            ),
            error(lambda: F.layer_norm(t(2, 3), 3, [1.0, 1.0, 1.0]), TypeError, NO_WEIGHT),
        ],
        spellings={
            "F.layer_norm": lambda *inputs, normalized_shape, **options: F.layer_norm(
                inputs[0], list(normalized_shape), *inputs[1:], **options
            )
        },
        reaches=("layer_norm",),
        cancels=1000.0,
        differentiable=(0, 1, 2),
    ),
    OpRow(
        "dropout",
        on.seeded_dropout,
        ref.seeded_dropout,
        RANDOM,
        on.dropout_samples,
        [
            *only_floats(F.dropout),
            error(lambda: F.dropout(t(3), 1.5), ValueError, "between 0 and 1, got 1.5"),
            error(lambda: F.dropout(t(3), -0.1), ValueError, "between 0 and 1, got -0.1"),
            error(lambda: F.dropout(t(3), "half"), ValueError, "between 0 and 1, got 'half'"),
            error(lambda: F.dropout(t(3), math.nan), ValueError, "between 0 and 1, got nan"),
        ],
        reaches=("dropout",),
        spellings={"F.dropout": on.seeded_dropout},
        elementwise=True,
    ),
    OpRow(
        "dropout with a seed",
        ops.dropout,
        ref.dropout,
        RANDOM,
        on.ops_dropout_samples,
        [
            error(lambda: ops.dropout(t(3)), TypeError, "dropout.* missing .*'p'"),
            error(lambda: ops.dropout(t(3), p=0.5), TypeError, "dropout.* missing .*'seed'"),
            error(
                lambda: ops.dropout(t(3), t(3), p=0.5, seed=1),
                TypeError,
                r"dropout\(\) takes 1 .*2 ",
            ),
        ],
        ("ops.dropout",),
        elementwise=True,
    ),
    OpRow(
        "scaled_dot_product_attention",
        F.scaled_dot_product_attention,
        ref.attention,
        ref.torch_attention,
        on.attention_samples,
        [
            error(
                lambda: F.scaled_dot_product_attention([1.0], t(1, 2, 2), t(1, 2, 2)),
                TypeError,
                "query must be a Tensor, got list",
            ),
            error(
                lambda: F.scaled_dot_product_attention(t(2, 2), t(2, 2), t(2, 2)),
                ValueError,
                r"3 dimensions .*got \(2, 2\), \(2, 2\), \(2, 2\)",
            ),
            error(
                lambda: F.scaled_dot_product_attention(t(1, 2, 3), t(1, 2, 2), t(1, 2, 2)),
                ValueError,
                r"query \(1, 2, 3\) and key \(1, 2, 2\) .*width",
            ),
            error(
                lambda: F.scaled_dot_product_attention(t(1, 2, 2), t(1, 3, 2), t(1, 2, 2)),
                ValueError,
                r"key \(1, 3, 2\) and value \(1, 2, 2\)",
            ),
            error(
                lambda: F.scaled_dot_product_attention(t(1, 2, 2), t(2, 2, 2), t(2, 2, 2)),
                ValueError,
                r"same samples .*\(1, 2, 2\), \(2, 2, 2\)",
            ),
            error(
                lambda: F.scaled_dot_product_attention(*[t(1, 2, 2)] * 3, dropout_p=2),
                ValueError,
                "between 0 and 1, got 2",
            ),
            error(
                lambda: F.scaled_dot_product_attention(*[t(1, 2, 2)] * 3, mask=t(1, 2)),
                TypeError,
                "booleans .*got float32",
            ),
            error(
                lambda: F.scaled_dot_product_attention(*[t(1, 2, 2)] * 3, valid_lens=[3]),
                ValueError,
                "between 0 and .*2, got 3",
            ),
            error(
                lambda: F.scaled_dot_product_attention(
                    t(1, 2, 2), t(1, 2, 2), t(1, 2, 2, dtype=np.float64)
                ),
                TypeError,
                "query is float32, value is float64",
            ),
        ],
        ("F.scaled_dot_product_attention",),
        {
            "beside its weights": lambda *inputs, **options: F.scaled_dot_product_attention(
                *inputs, **options, return_weights=True
            )[0]
        },
        reaches=("attention",),
        differentiable=(0, 1, 2),
    ),
    OpRow(
        "attention with dropout",
        ops.attention,
        ref.ops_attention,
        RANDOM,
        on.ops_attention_samples,
        [
            error(lambda: ops.attention(t(1, 1, 2, 2)), TypeError, "attention.* misses .*'k'"),
            error(
                lambda: ops.attention(*[t(1, 1, 2, 2)] * 3),
                TypeError,
                "missing .*limits",
            ),
            error(
                lambda: ops.attention(*[t(1, 1, 2, 2)] * 3, limits=None, mask=None, colour=1),
                TypeError,
                "attention.* 'colour'",
            ),
        ],
        ("ops.attention",),
        differentiable=(0, 1, 2),
    ),
    OpRow(
        "weighted_sum",
        lambda weights, values, limits, mask: ops.weighted_sum(
            # By contract a hidden pair has no weight.
            ta.where(ref.visible(weights.shape, limits, mask), weights, 0.0),
            values,
            limits=limits,
            mask=mask,
        ),
        ref.weighted_sum,
        "PyTorch has no product that leaves out what is hidden",
        on.weighted_sum_samples,
        [
            error(lambda: ops.weighted_sum(t(1, 1, 2, 2)), TypeError, "weighted_sum.* 'values'"),
            error(lambda: ops.weighted_sum(*[t(1, 1, 2, 2)] * 2), TypeError, "missing .*limits"),
            error(
                lambda: ops.weighted_sum(t(1, 1, 2, 3), t(1, 1, 2, 3), limits=None, mask=None),
                ValueError,
                r"weighted_sum .*\[1, 1, 2, 3\], float32\[1, 1, 2, 3\]",
            ),
        ],
        reaches=("weighted_sum",),
        differentiable=(0, 1),
    ),
    OpRow(
        "sequence_mask",
        F.sequence_mask,
        ref.sequence_mask,
        lambda x, valid_lens, value=0: x.masked_fill(
            ref.as_torch(
                np.arange(x.shape[1]) >= np.reshape(valid_lens, (-1, *(1,) * (x.ndim - 1)))
                if x.ndim == 2
                else np.broadcast_to(
                    (np.arange(x.shape[1]) >= np.reshape(valid_lens, (-1, 1)))[:, :, None], x.shape
                )
            ),
            value,
        ),
        calls(*on.SEQUENCES, repeat=2),
        [
            error(lambda: F.sequence_mask([1.0], [1]), TypeError, "x must be a Tensor, got list"),
            error(lambda: F.sequence_mask(t(3), [1]), ValueError, r"\(B, L, .*got shape \(3,\)"),
            error(
                lambda: F.sequence_mask(t(2, 3), [1]), ValueError, r"2 samples.*got shape \(1,\)"
            ),
            error(lambda: F.sequence_mask(t(2, 3), [1, 4]), ValueError, "3, got 4 at index 1"),
            error(lambda: F.sequence_mask(t(2, 3), [1, 2], "text"), TypeError, "'text'"),
        ],
        ("F.sequence_mask",),
        elementwise=True,
    ),
    # Packed sequences
    shape_row(
        "pack_padded_sequence",
        F.pack_padded_sequence,
        ref.pack,
        ref.torch_pack,
        on.PACKS,
        [
            error(lambda: F.pack_padded_sequence([[1.0]], [1]), TypeError, "Tensor, got list"),
            error(lambda: F.pack_padded_sequence(t(3), [1]), ValueError, r"\(B, L, .*\(3,\)"),
            error(
                lambda: F.pack_padded_sequence(t(2, 3), [1]),
                ValueError,
                r"2 samples .*\(2,\), got \(1,\)",
            ),
            error(lambda: F.pack_padded_sequence(t(2, 3), [1, 4]), ValueError, "3, got 4 at .*1"),
            error(lambda: F.pack_padded_sequence(t(2, 3), [1, -1]), ValueError, "got -1 at .*1"),
            error(
                lambda: F.pack_padded_sequence(t(2, 3), [[1, 2, 3], [1, 2, 3]]),
                ValueError,
                r"2 samples .*\(2,\), got \(2, 3\)",
            ),
            error(lambda: ops.pack(t(2, 3)), TypeError, "pack.* missing .*'lengths'"),
        ],
        covers=("F.pack_padded_sequence",),
        spellings={
            "ops.pack": lambda x, valid_lens: ops.pack(x, lengths=np.array(valid_lens, np.int64)),
            "lengths as a Tensor": lambda x, valid_lens: F.pack_padded_sequence(
                x, ta.tensor(np.array(valid_lens, np.int32))
            ),
        },
        reaches=("pack",),
    ),
    shape_row(
        "pad_packed_sequence",
        F.pad_packed_sequence,
        ref.unpack,
        ref.torch_unpack,
        on.UNPACKS,
        [
            error(lambda: F.pad_packed_sequence([1.0], [1]), TypeError, "Tensor, got list"),
            error(lambda: F.pad_packed_sequence(t(), [1]), ValueError, "without dimensions"),
            error(
                lambda: F.pad_packed_sequence(t(3, 2), [1, 1]),
                ValueError,
                r"3 rows .*shape \(2,\) with sum 2",
            ),
            error(lambda: F.pad_packed_sequence(t(3), [1, 2], 1), ValueError, "1 is less .* 2"),
            error(lambda: F.pad_packed_sequence(t(3), [1, 2], 2.5), ValueError, "length .*got 2.5"),
            error(lambda: ops.unpack(t(3), lengths=[3]), TypeError, "unpack.* missing .*'length'"),
        ],
        covers=("F.pad_packed_sequence",),
        spellings={
            "ops.unpack": lambda x, valid_lens, length=None: ops.unpack(
                x,
                lengths=np.array(valid_lens, np.int64),
                length=max([0, *valid_lens]) if length is None else length,
            )
        },
        reaches=("unpack",),
    ),
    OpRow(
        "self-attention side by side",
        ops.self_attention,
        ref.self_attention,
        lambda qkv, p, seed, **options: ref.torch_self_attention(qkv, **options),
        on.self_attention_samples,
        [
            error(lambda: ops.self_attention(t(1, 2, 3)), TypeError, "missing .*heads"),
            error(lambda: side_by_side(t(1, 2, 3), colour=1), TypeError, "self_att.* 'colour'"),
            error(lambda: side_by_side(t(2, 3)), ValueError, r"\(B, N, 3 D\), .*got \(2, 3\)"),
            error(
                lambda: side_by_side(t(1, 2, 3), lengths=np.array([2])),
                ValueError,
                r"\(N, 3 D\), .*got \(1, 2, 3\)",
            ),
            error(lambda: side_by_side(t(1, 2, 9), heads=2), ValueError, r"heads, 2; got .*2, 9"),
            error(lambda: side_by_side(t(1, 2, 9), heads=0), ValueError, r"heads, 0; got .*2, 9"),
            error(
                lambda: side_by_side(t(4, 3), lengths=np.array([2, 3])),
                ValueError,
                r"the 4 rows, got \[2, 3\]",
            ),
            error(
                lambda: side_by_side(t(4, 3), lengths=np.array([-2, 6])),
                ValueError,
                r">= 0 .*, got \[-2, 6\]",
            ),
        ],
        ("ops.self_attention",),
    ),
    shape_row(
        "transpose_qkv",
        F.transpose_qkv,
        ref.transpose_qkv,
        lambda x, num_heads: (
            x.reshape(x.shape[0], x.shape[1], num_heads, x.shape[2] // num_heads)
            .transpose(1, 2)
            .reshape(x.shape[0] * num_heads, x.shape[1], x.shape[2] // num_heads)
        ),
        on.TRANSPOSE_QKVS,
        [
            error(lambda: F.transpose_qkv(t(2, 3), 1), ValueError, r"\(B, N, D\), got .*\(2, 3\)"),
            error(lambda: F.transpose_qkv(t(1, 2, 3), 2), ValueError, "width 3 .* 2 heads"),
            error(lambda: F.transpose_qkv(t(1, 2, 3), 0), ValueError, "width 3 .* 0 heads"),
            error(lambda: F.transpose_qkv(np.ones((1, 2, 2)), 2), TypeError, "Tensor, got ndarray"),
        ],
        covers=("F.transpose_qkv",),
    ),
    shape_row(
        "transpose_output",
        F.transpose_output,
        ref.transpose_output,
        lambda x, num_heads: (
            x.reshape(x.shape[0] // num_heads, num_heads, *x.shape[1:])
            .transpose(1, 2)
            .reshape(x.shape[0] // num_heads, x.shape[1], x.shape[2] * num_heads)
        ),
        on.TRANSPOSE_OUTPUTS,
        [
            error(lambda: F.transpose_output(t(2, 3), 1), ValueError, r"N, d\), got .*\(2, 3\)"),
            error(lambda: F.transpose_output(t(3, 2, 1), 2), ValueError, r"B \* 2.*\(3, 2, 1\)"),
            error(lambda: F.transpose_output(t(2, 2, 1), 0), ValueError, "0"),
        ],
        covers=("F.transpose_output",),
    ),
    # Shapes
    shape_row(
        "reshape",
        lambda x, shape: x.reshape(shape),
        lambda x, shape: x.reshape(shape),
        lambda x, shape: x.reshape(shape),
        on.RESHAPES,
        [
            error(lambda: t(2, 3).reshape(4, 2), ValueError, r"\[2, 3\].*\(4,\s?2\)"),
            error(lambda: t(2, 3).reshape(-1, -1), ValueError, r"\[2, 3\].*one unknown"),
            error(lambda: t(2, 3).reshape(-2, 3), ValueError, "-2"),
            error(lambda: t(2, 3).reshape(1.5, 4), TypeError, "1.5"),
            error(lambda: t(2, 3).reshape("text"), TypeError, "'text'"),
        ],
        spellings={
            "Tensor.reshape": lambda x, shape: x.reshape(*shape) if shape else x.reshape(()),
            "Tensor.view": lambda x, shape: x.view(shape),
        },
        reaches=("reshape",),
    ),
    shape_row(
        "permute",
        lambda x, dims: x.permute(*dims),
        lambda x, dims: x.transpose(dims),
        lambda x, dims: x.permute(dims),
        on.PERMUTES,
        [
            error(lambda: t(2, 3).permute(0, 0), ValueError, r"2 dimensions once, got \(0, 0\)"),
            error(lambda: t(2, 3).permute(0), ValueError, r"2 dimensions once, got \(0,\)"),
            error(lambda: t(2, 3).permute(0, 2), IndexError, r"dim 2 .*\(2, 3\)"),
        ],
        spellings={"Tensor.permute": lambda x, dims: x.permute(dims)},
        reaches=("permute",),
    ),
    shape_row(
        "transpose",
        ta.Tensor.transpose,
        lambda x, dim0, dim1: np.swapaxes(x, dim0, dim1) if x.ndim else x,
        lambda x, dim0, dim1: x.transpose(dim0, dim1),
        on.TRANSPOSES,
        [
            error(lambda: t(2, 3).transpose(0, 2), IndexError, r"dim 2 .*\(2, 3\).*-2 to 1"),
            error(lambda: t(2, 3).transpose(-3, 0), IndexError, r"dim -3 .*\(2, 3\).*-2 to 1"),
            error(lambda: t(2, 3).transpose(0, "1"), TypeError, "integer, got '1'"),
        ],
        covers=("Tensor.transpose", "Tensor.swapaxes"),
    ),
    shape_row(
        "T",
        lambda x: x.T,
        lambda x: x.T,
        lambda x: x.permute(tuple(range(x.ndim - 1, -1, -1))),
        [((), {}, "0-d"), ((3,), {}, "1-d stays"), ((0, 2), {}, "empty"), ((1, 1), {}, "size 1")]
        + [(shape, {}) for shape in [(2, 3), (3, 2), (4, 5), (2, 3, 4), (2, 1, 3), (2, 2, 2, 2)]],
        [
            error(lambda: setattr(t(2, 3), "T", t(3, 2)), AttributeError, "'T'"),
            error(lambda: t(2, 3).T @ t(3), ValueError, r"\(3, 2\) must equal .*\(3,\)"),
            error(lambda: t(2, 3).T + t(2, 3), ValueError, r"\[3, 2\].*\[2, 3\]"),
        ],
        spellings={"Tensor.T": lambda x: x.T},
    ),
    shape_row(
        "expand",
        lambda x, shape: x.expand(shape),
        lambda x, shape: np.broadcast_to(
            x, [x.shape[i - len(shape)] if n == -1 else n for i, n in enumerate(shape)]
        ),
        lambda x, shape: x.expand(shape),
        on.EXPANDS,
        [
            error(lambda: t(2, 3).expand(4, 3), ValueError, r"\[2, 3\].*\(4,\s?3\)"),
            error(lambda: t(2, 3).expand(3), ValueError, r"\[2, 3\]"),
            error(lambda: t(2, 3).expand(-1, 2, 3), ValueError, r"\[2, 3\].*(negative|-1)"),
        ],
        spellings={"Tensor.expand": lambda x, shape: x.expand(*shape)},
        reaches=("expand",),
    ),
    shape_row(
        "squeeze",
        ta.Tensor.squeeze,
        lambda x, dim=None: x.reshape(
            [
                n
                for i, n in enumerate(x.shape)
                if n != 1 or (dim is not None and i not in ref.axes_of(x, dim))
            ]
        ),
        lambda x, dim=None: x.squeeze() if dim is None else x.squeeze(dim),
        on.SQUEEZES,
        bad_dims(ta.Tensor.squeeze),
        covers=("Tensor.squeeze",),
    ),
    shape_row(
        "unsqueeze",
        ta.Tensor.unsqueeze,
        lambda x, dim: np.expand_dims(x, dim),
        lambda x, dim: x.unsqueeze(dim),
        on.UNSQUEEZES,
        [
            error(lambda: t(2, 3).unsqueeze(3), IndexError, "dim 3 .*2 dimensions"),
            error(lambda: t(2, 3).unsqueeze(-4), IndexError, "dim -4 .*2 dimensions"),
            error(lambda: t(2, 3).unsqueeze("0"), TypeError, "integer, got '0'"),
        ],
        covers=("Tensor.unsqueeze",),
    ),
    shape_row(
        "flatten",
        ta.Tensor.flatten,
        ref.flatten,
        lambda x, **options: x.flatten(**options),
        on.FLATTENS,
        [
            error(lambda: t(2, 3).flatten(2), IndexError, r"dim 2 .*\(2, 3\).*-2 to 1"),
            error(lambda: t(2, 3).flatten(0, -3), IndexError, r"dim -3 .*\(2, 3\).*-2 to 1"),
            error(lambda: t(2, 3).flatten(1, 0), ValueError, "start.* 1 .*end.* 0|1.*0"),
        ],
        covers=("Tensor.flatten",),
    ),
    OpRow(
        "getitem",
        lambda x, index: x[index],
        lambda x, index: x[index],
        lambda x, index: x[ref.torch_index(index)],
        on.getitem_samples,
        [
            error(lambda: t(2, 3)[2], IndexError, "index 2 .*axis 0 with size 2"),
            error(lambda: t(2, 3)[:, [0, 3]], IndexError, "index 3 .*axis 1 with size 3"),
            error(lambda: t(2, 3)[0, 0, 0], IndexError, "2-dimensional, but 3"),
            error(lambda: t(3)[t(2)], TypeError, "integers, slices .*got float32"),
            error(lambda: t(3)[True], TypeError, "integers, slices .*got bool"),
            error(lambda: t(3)[BOOLS[:2]], IndexError, "3 .*2"),
            error(lambda: t(3)["a"], IndexError, "integers, slices"),
        ],
        ("Tensor.__getitem__",),
        reaches=("getitem",),
        elementwise=True,
    ),
    OpRow(
        "putitem",
        ops.putitem,
        lambda x, index, target: ref.put(x, index, target),
        OURS,
        on.putitem_samples,
        [
            error(lambda: ops.putitem(t(2), index=[0]), TypeError, "putitem.* missing .*'target'"),
            error(lambda: ops.putitem(t(2), index=5, target=(3,)), IndexError, "index 5 .*size 3"),
            error(
                lambda: ops.putitem(t(2), index=slice(3), target=(3,)),
                ValueError,
                r"putitem .*float32\[2\]",
            ),
        ],
        ("ops.putitem",),
        elementwise=True,
    ),
    OpRow(
        "gather",
        lambda x, index, dim: x.gather(dim, index),
        ref.gather,
        lambda x, index, dim: x.gather(dim, index),
        on.gather_samples,
        [
            error(lambda: t(2, 3).gather(2, INTS), IndexError, r"dim 2 .*\(2, 3\)"),
            error(lambda: t(3).gather(0, ta.tensor([0, 3])), IndexError, "0 to 3, .*0 has 3"),
            error(lambda: t(3).gather(0, ta.tensor([-1])), IndexError, "-1 to -1, .*0 has 3"),
            error(lambda: t(3).gather(0, t(2)), TypeError, "integer index, got float32"),
            error(lambda: t(2, 3).gather(0, INTS), ValueError, r"dim 0 .*\(2, 3\).*got \(3,\)"),
        ],
        spellings={"Tensor.gather": lambda x, index, dim: ta.Tensor.gather(x, dim, index)},
        reaches=("gather",),
        elementwise=True,
    ),
    OpRow(
        "iterate",
        lambda x: tuple(x),
        lambda x: tuple(x),
        lambda x: tuple(x),
        calls(*on.ITERABLES, repeat=2),
        [
            error(lambda: list(t()), TypeError, "0-d"),
            error(lambda: len(t()), TypeError, "0-d"),
            error(lambda: t(2, 3)[0][5], IndexError, "index 5"),
        ],
        spellings={"Tensor.__iter__": lambda x: tuple(x.__iter__())},
        elementwise=True,
    ),
    shape_row(
        "split",
        lambda x, sizes, dim=0: x.split(sizes, dim),
        ref.split,
        lambda x, sizes, dim=0: x.split(sizes, dim),
        on.SPLITS,
        [
            error(lambda: t(4, 3).split(0), ValueError, "size > 0, got 0"),
            error(lambda: t(4, 3).split([1, 2]), ValueError, r"\[1, 2\] .*to 4 \(dim 0\)"),
            error(lambda: t(4, 3).split(2, 2), IndexError, r"dim 2 .*\(4, 3\)"),
            error(lambda: t(4, 3).split([5, -1]), ValueError, r"\[5, -1\]"),
            error(lambda: t(4, 3).split("ab"), TypeError, "integer.*'ab'"),
        ],
        covers=("Tensor.split",),
    ),
    shape_row(
        "chunk",
        lambda x, chunks, dim=0: x.chunk(chunks, dim),
        lambda x, chunks, dim=0: ref.split(x, -(-x.shape[dim] // chunks), dim),
        lambda x, chunks, dim=0: x.chunk(chunks, dim),
        on.CHUNKS,
        [
            error(lambda: t(4, 3).chunk(0), ValueError, "0"),
            error(lambda: t(4, 3).chunk(-1), ValueError, "-1"),
            error(lambda: t(4, 3).chunk(2, 2), IndexError, r"dim 2 .*\(4, 3\)"),
        ],
        covers=("Tensor.chunk",),
    ),
    OpRow(
        "cat",
        lambda *xs, dim: ta.cat(xs, dim),
        lambda *xs, dim: np.concatenate(xs, dim),
        lambda *xs, dim: torch_fn("cat")(xs, dim=dim),
        on.cat_samples,
        [
            error(lambda: ta.cat([]), TypeError, "one or more Tensors"),
            error(lambda: ta.cat([t(3), 1.0]), TypeError, "Tensors"),
            error(lambda: ta.cat([t(3), t(2, 3)]), ValueError, r"dim 0.*1 .*\(2, 3\).*\(3,\)"),
            error(lambda: ta.cat([t(2, 3), t(3, 3)], 1), ValueError, r"dim 1.*\(3, 3\).*\(2, 3\)"),
            error(lambda: ta.cat([t(3)], 1), IndexError, r"dim 1 .*\(3,\)"),
            error(lambda: ta.cat([t(), t()]), ValueError, r"float32\[\]|0-d|zero-dim"),
        ],
        spellings={"ta.cat": lambda *xs, dim: ta.cat(list(xs), dim=dim)},
        reaches=("cat",),
        differentiable="all",
        elementwise=True,
    ),
    OpRow(
        "stack",
        lambda *xs, dim: ta.stack(xs, dim),
        lambda *xs, dim: np.stack(xs, dim),
        lambda *xs, dim: torch_fn("stack")(xs, dim=dim),
        on.stack_samples,
        [
            error(lambda: ta.stack([]), TypeError, "one or more Tensors"),
            error(lambda: ta.stack([t(3), t(2)]), ValueError, r"\(3,\).*number 1.*\(2,\)"),
            error(lambda: ta.stack([t(3), t(3)], 2), IndexError, "dim 2 .*1 dimension"),
        ],
        spellings={"ta.stack": lambda *xs, dim: ta.stack(list(xs), dim=dim)},
        differentiable="all",
        elementwise=True,
    ),
    shape_row(
        "triu",
        ta.triu,
        lambda x, diagonal=0: np.triu(x, diagonal),
        torch_fn("triu"),
        on.TRIANGLES,
        [
            error(lambda: ta.triu(t(3)), ValueError, r"\(3,\)"),
            error(lambda: ta.triu([[1.0]]), TypeError, "Tensor, got list"),
            error(lambda: ta.triu(t(2, 2), "one"), TypeError, "'one'"),
        ],
        covers=("ta.triu",),
    ),
    shape_row(
        "tril",
        ta.tril,
        lambda x, diagonal=0: np.tril(x, diagonal),
        torch_fn("tril"),
        on.TRIANGLES,
        [
            error(lambda: ta.tril(t(3)), ValueError, r"\(3,\)"),
            error(lambda: ta.tril([[1.0]]), TypeError, "Tensor, got list"),
            error(lambda: ta.tril(t(2, 2), "one"), TypeError, "'one'"),
        ],
        covers=("ta.tril",),
    ),
    # Without a derivative: truth values, places, steps
    comparison_row("equal", "eq", lambda x, y: x == y),
    comparison_row("not_equal", "ne", lambda x, y: x != y),
    comparison_row("less", "lt", lambda x, y: x < y),
    comparison_row("less_equal", "le", lambda x, y: x <= y),
    comparison_row("greater", "gt", lambda x, y: x > y),
    comparison_row("greater_equal", "ge", lambda x, y: x >= y),
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
        np.sign,
        unary(special=[0.0, -0.0, 2.0]),
        differentiable=(),
        special_torch="there the sign of NaN is 0",
    ),
    reduction_row(
        "argmax",
        ref.along_one(np.argmax),
        on.arg_samples,
        torch=torch_fn("argmax"),
        spellings={"ops.argmax": dims_given(ops.argmax)},
        differentiable=(),
        dtype="int64",
        errors=[error(lambda: t(0).argmax(), ValueError, r"argmax .*\[0\]")],
    ),
    reduction_row(
        "argmin",
        ref.along_one(np.argmin),
        on.arg_samples,
        torch=torch_fn("argmin"),
        spellings={"ops.argmin": dims_given(ops.argmin)},
        differentiable=(),
        dtype="int64",
        errors=[error(lambda: t(2, 0).argmin(1), ValueError, r"argmin .*\[2, 0\]")],
    ),
    reduction_row(
        "any",
        ref.over_axes(np.any),
        on.truth_reductions,
        spellings={"ops.any": dims_given(ops.any)},
        differentiable=(),
        dtype="bool",
    ),
    reduction_row(
        "all",
        ref.over_axes(np.all),
        on.truth_reductions,
        spellings={"ops.all": dims_given(ops.all)},
        differentiable=(),
        dtype="bool",
    ),
]

BY_NAME = {row.name: row for row in ROWS}

NO_DERIVATIVE = "says or switches something; no numbers come out of numbers"
MAKES = "makes a tensor out of no other; tested in test_tensor.py"
ENGINE = "the engine itself; tested in test_engine.py and test_locks.py"
CHECKER = "checks derivatives; tested in test_gradcheck.py"

# Public callables that need no row, and why.
EXCLUDED = {
    "ops.transfer": "needs a second device: tested where there is a GPU",
    **dict.fromkeys(
        [
            *(
                "F.tensor_of",
                "F.same_kind",
                "F.checked_probability",
                "F.checked_scale",
                "F.check_heads",
            ),
        ],
        "checks arguments; reached by the errors of the functions that call it",
    ),
    "F.without_hidden": "a step of attention; tested with the attention modules",
    "F.attention_weights": "no graph by design; tested with the attention modules",
    **dict.fromkeys(
        [
            *("ta.zeros", "ta.ones", "ta.empty", "ta.full", "ta.arange", "ta.linspace", "ta.eye"),
            *("ta.zeros_like", "ta.ones_like", "ta.full_like", "ta.rand_like", "ta.randn_like"),
            *("ta.rand", "ta.randn", "ta.randint", "ta.randperm", "ta.tensor", "ta.Tensor"),
        ],
        MAKES,
    ),
    **dict.fromkeys(
        [
            *("ta.bool", "ta.float16", "ta.float32", "ta.float64", "ta.uint8"),
            *("ta.int8", "ta.int16", "ta.int32", "ta.int64"),
            *("ta.cuda_is_available", "ta.is_grad_enabled", "ta.capture"),
            *("Tensor.shape", "Tensor.ndim", "Tensor.dtype", "Tensor.device", "Tensor.is_leaf"),
            "Tensor.full",
            *("Tensor.size", "Tensor.dim", "Tensor.numel", "Tensor.requires_grad"),
            "Tensor.__len__",
            *("Tensor.__array_ufunc__", "Tensor.__dlpack_device__"),
        ],
        NO_DERIVATIVE,
    ),
    **dict.fromkeys(
        [
            *("ta.grad", "ta.no_grad", "ta.enable_grad", "ta.set_grad_enabled", "ta.op"),
            *("ta.manual_seed", "ta.get_rng_state", "ta.set_rng_state"),
            *("ta.get_num_threads", "ta.set_num_threads"),
            *("Tensor.backward", "Tensor.grad", "Tensor.data", "Tensor.detach"),
            "Tensor.__deepcopy__",
            *("Tensor.requires_grad_", "Tensor.retain_grad", "Tensor.__setitem__"),
            *("Tensor.__iadd__", "Tensor.__isub__", "Tensor.__imul__", "Tensor.__itruediv__"),
        ],
        ENGINE,
    ),
    **dict.fromkeys(
        [
            *("Tensor.item", "Tensor.tolist", "Tensor.numpy", "Tensor.__array__"),
            *("Tensor.__float__", "Tensor.__int__", "Tensor.__bool__", "Tensor.__index__"),
            "Tensor.__dlpack__",
        ],
        "leaves the graph for Python or another library; tested in test_tensor.py",
    ),
    **dict.fromkeys(
        ["Tensor.cpu", "Tensor.cuda"], "moves to a device; tested where there is a GPU"
    ),
    **dict.fromkeys(
        ["Tensor.float", "Tensor.half", "Tensor.long", "Tensor.bool"],
        "another dtype for `to`, which has a row; tested in test_tensor.py",
    ),
    **dict.fromkeys(["ta.gradcheck", "ta.gradgradcheck"], CHECKER),
    **dict.fromkeys(["ta.save", "ta.load"], "files; tested in test_checkpoint.py"),
}

__all__ = ["BY_NAME", "EXCLUDED", "ROWS", "SPACES", "ErrorInput", "OpRow", "samples_of"]
