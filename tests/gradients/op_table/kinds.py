"""Rows that differ from others of their kind in little."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import samples as on
from references import torch_fn, torch_reduce
from samples import binary, calls

import tinyattn as ta

from .refusals import BOOLS, bad_dims, error, misfits, misuse, t
from .row import ErrorInput, OpRow, Samples, ops, public


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
        [*more.pop("misuse", misuse(name)), *more.pop("errors", [])],
        (f"ops.{name}", *covers),
        **{"elementwise": True, **more},
    )


def method_row(name: str, reference: Callable[..., Any], samples: Samples, **more: Any) -> OpRow:
    """A function of each element that is put together from other ops."""
    method = public(f"Tensor.{name}")
    function = public(f"ta.{name}")
    errors = [
        error(lambda: method(t(3), t(3)), TypeError, rf"{name}\(\) takes .*2 were given"),
        error(
            lambda: function([1.0]), TypeError, rf"{name}: x must be a Tensor, got list: wrap it"
        ),
        error(
            lambda: function(np.ones(3)),
            TypeError,
            rf"{name}: x .*got numpy.ndarray: .*ta.tensor\(",
        ),
    ]
    return OpRow(
        name,
        method,
        reference,
        torch_fn(name),
        samples,
        errors,
        (f"Tensor.{name}",),
        elementwise=True,
        **more,
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
            "by PyTorch's names": lambda x, y: getattr(ops, name)(input=x, other=y),
        },
        elementwise=True,
        **{"differentiable": (0, 1), "broadcasts": True, **more},
    )


def comparison_row(name: str, function: Callable[..., Any]) -> OpRow:
    return OpRow(
        name,
        function,
        function,
        function,
        on.comparable_pairs,
        [e for e in misfits(name) if e.exception is ValueError or "mis" in e.match],
        (f"ops.{name}", f"Tensor.__{name}__"),
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


NO_WEIGHT = "weight must be a Tensor, got list"
