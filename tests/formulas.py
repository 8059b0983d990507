"""The formulas that have kernels, by the names of these, in three forms.

kernels: what an op calls, so a kernel where one takes the arrays.
reference: the formula alone, without the kernels of what it is made of.
cpu, gpu: the kernel alone; the formula for what it leaves.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from functools import wraps
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest import mock

import numpy as np

import tinyattn.kernels as package
import tinyattn.optim  # noqa: F401, because it declares formulas, as the ops do
from tinyattn.base.random import NO_DROP, Drop, drop_threshold, halves
from tinyattn.kernels.matmul import matrix_product
from tinyattn.ops.arithmetic import where
from tinyattn.ops.attention import attention_weights
from tinyattn.ops.dropout import keep_mask, kept

HAS_NUMBA = importlib.util.find_spec("numba") is not None

by_name = {
    (function.kernels["cpu"] or function.kernels["cuda"]).partition(".")[2]: function
    for function in package.formulas.values()
}
KERNELS = sorted({*by_name, "where"})


parts = {
    "Drop": Drop,
    "NO_DROP": NO_DROP,
    "attention_weights": attention_weights,
    "drop_threshold": drop_threshold,
    "halves": halves,
    "keep_mask": keep_mask,
    "kept": kept,
    "matrix_product": matrix_product,
}
kernels = SimpleNamespace(**by_name, where=where)


def alone(formula: Callable[..., Any]) -> Callable[..., Any]:
    """A formula during which no dtype has kernels, because it calls other formulas."""

    @wraps(formula)
    def computed(*arguments: Any, **options: Any) -> Any:
        with mock.patch.multiple(package, FLOAT32=None, FLOAT64=None):
            return formula(*arguments, **options)

    return computed


reference = SimpleNamespace(
    **{name: alone(function.formula) for name, function in by_name.items()},
    **parts,
    where=where,  # whose arrays are large where it asks for a kernel
)


def or_formula(formula: Any, kernel: Any) -> Callable[..., Any]:
    """The kernel; the formula for what it leaves."""

    def computed(*arguments: Any, **options: Any) -> Any:
        first = (formula,) if getattr(kernel, "takes_formula", False) else ()
        out = kernel(*first, *arguments, **options)
        return formula(*arguments, **options) if out is NotImplemented else out

    return computed


class Kernels:
    """The kernels of kernels/cpu or of kernels/gpu as attributes."""

    def __init__(self, device: str) -> None:
        self.device = device

    def __getattr__(self, name: str) -> Any:
        function = by_name.get(name)
        place = None if function is None else function.kernels[self.device]
        if place is None:
            raise AttributeError(f"no kernel {name!r} for {self.device}")
        return or_formula(function.formula, self.kernel(place))

    def kernel(self, place: str) -> Any:
        if self.device == "cpu":
            return importlib.import_module("tinyattn.kernels.cpu").kernel(place)
        return package.gpu_kernel(place)


class KernelsOfTheCpu(Kernels):
    """Beside those of formulas: what `where`, sums, products and float16 call."""

    OTHERS: ClassVar = {
        "where": "elementwise.where",
        "sum_large": "sums.sum_large",
        "few_rows_product": "few_rows.few_rows_product",
        "float32_of": "float16.float32_of",
    }

    def __getattr__(self, name: str) -> Any:
        if name in self.OTHERS:
            kernel = self.kernel(self.OTHERS[name])
            return or_formula(np.where, kernel) if name == "where" else kernel
        return super().__getattr__(name)


cpu = KernelsOfTheCpu("cpu") if HAS_NUMBA else reference
gpu = Kernels("cuda")
