"""Which of the two computes, a formula or its kernel: `with_kernels`, with kernels of one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import kernels

Declare = Callable[..., Any]


@pytest.fixture
def double_with(monkeypatch: pytest.MonkeyPatch) -> Declare:
    """Makes a formula that has this kernel on the CPU."""

    def declare(kernel: Any, is_read: bool = False) -> Any:
        monkeypatch.setattr(kernels, "FORMULAS_ONLY", is_read)
        monkeypatch.setattr(kernels, "cpu_kernel", {"file.double": kernel}.get)
        with mock.patch.dict(kernels.formulas):

            @kernels.with_kernels(cpu="file.double")
            def double(x: Any, factor: int = 2) -> Any:
                return x * factor

        return double

    return declare


def by_kernel(*arguments: Any, **options: Any) -> Any:
    return "kernel", arguments, options


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_kernel_computes_and_gets_all_arguments(double_with: Declare, dtype: Any) -> None:
    double, x = double_with(by_kernel), np.ones(2, dtype)
    assert double(x) == ("kernel", (x,), {})
    word, arguments, options = double(x, factor=3)
    assert (word, options) == ("kernel", {"factor": 3})
    assert len(arguments) == 1
    assert arguments[0] is x


@pytest.mark.parametrize(
    "x", [np.ones(2, np.float16), np.ones(2, int), np.float32(1), ta.ones(2)], ids=repr
)
def test_the_formula_computes_other_dtypes_and_tensors(double_with: Declare, x: Any) -> None:
    assert (double_with(by_kernel)(x, 3) == x * 3).all()


def test_the_formula_computes_what_a_kernel_declines(double_with: Declare) -> None:
    double = double_with(lambda x, factor=2: NotImplemented)
    assert double(np.ones(2), factor=3).tolist() == [3, 3]


def test_the_formula_computes_where_there_is_no_numba(double_with: Declare) -> None:
    assert double_with(None)(np.ones(2)).tolist() == [2, 2]


def test_a_kernel_that_takes_the_formula_gets_it_first(double_with: Declare) -> None:
    def four_times(formula: Any, x: Any) -> Any:
        return formula(formula(x))

    four_times.takes_formula = True  # type: ignore[attr-defined]
    assert double_with(four_times)(np.ones(2)).tolist() == [4, 4]


def test_who_reads_meets_the_formula_alone(double_with: Declare) -> None:
    double = double_with(by_kernel, is_read=True)
    assert double is double.formula
    assert double(np.ones(2)).tolist() == [2, 2]
