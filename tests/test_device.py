"""The op table once more, on "cuda": on a strict stand-in for CuPy, or with `-m gpu` on a GPU.

The same rows and samples as in test_table.py. What runs is the whole route of a GPU: CuPy's
functions, kernels/gpu.py with its launches, and the .cu kernels, which the stand-in compiles for
the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from samples import Sample
from table import ROWS, OpRow
from test_table import (
    DIFFERENTIABLE,
    assert_close,
    call,
    cotangents_for,
    each_bits,
    each_sample,
    error_in_ulps,
    fit_for_differences,
    reference_outputs,
    row_test,
    tensors_of,
    with_special,
)

import tinyattn as ta
from tinyattn.graph import wrap

Array = np.ndarray
Place = Callable[[Array], Any]


def host(tensor: ta.Tensor, cuda: Any) -> Array:
    """The values, from a result that has to be on the device."""
    assert type(tensor._data) is cuda.ndarray
    return tensor.numpy()


def results(row: OpRow, sample: Sample, cuda: Any = None, place: Place = np.array) -> list[Array]:
    """Values and gradients; on the device if `cuda` is its module."""
    lay: Place = place if cuda is None else lambda x: cuda.asarray(place(x))
    tensors = tensors_of(row, sample, lay)
    outputs = call(row.function, tensors, sample)
    read = (lambda x: x.numpy()) if cuda is None else (lambda x: host(x, cuda))
    found = [read(x) for x in outputs]
    if row.differentiable:
        inputs = [x for x in tensors if x.requires_grad]
        given = [wrap(lay(g)) for g in cotangents_for(row, outputs)]
        gradients = ta.grad(outputs, inputs, given, allow_unused=True)
        found += [
            np.zeros(x.shape, x.dtype) if g is None else read(g)
            for g, x in zip(gradients, inputs, strict=True)
        ]
    return found


@row_test()
def test_values_and_gradients(row: OpRow, cuda: Any) -> None:
    """float64: those of the CPU to 1e-12 and 1e-11, on the device all the way."""
    for sample in each_sample(row):
        expected = results(row, sample)
        found = results(row, sample, cuda)
        count = len(reference_outputs(row, list(sample.inputs), sample))
        for i, (x, right) in enumerate(zip(found, expected, strict=True)):
            assert x.dtype == right.dtype
            if right.dtype.kind == "f":
                assert_close(x, right, 1e-12 if i < count else 1e-11, row, 1.0)
            else:
                np.testing.assert_array_equal(x, right)
