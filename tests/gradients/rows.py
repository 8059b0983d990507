"""How a row of the table is called, in tinyattn and in PyTorch, and how results are compared."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from common import HAS_TORCH, stored_values
from op_table import ROWS, OpRow, samples_of
from samples import Sample

import tinyattn as ta
from tinyattn.engine.autograd import wrap

Array = np.ndarray
DIFFERENTIABLE = [row for row in ROWS if row.differentiable]
IN_TORCH = [row for row in ROWS if callable(row.torch)]


def row_test(rows: list[OpRow] = ROWS) -> Any:
    return pytest.mark.parametrize("row", rows, ids=lambda row: row.name)


def tensors_of(row: OpRow, sample: Sample, layout: Callable[[Array], Array] = np.array) -> list:
    """The inputs as Tensors; those with derivatives require gradients."""
    tensors = [wrap(layout(array)) for array in sample.inputs]
    for position in row.positions(sample):
        tensors[position].requires_grad = True
    return tensors


def call(function: Callable[..., Any], tensors: list, sample: Sample) -> tuple[Any, ...]:
    """The outputs as a tuple."""
    found = function(*tensors, **sample.options)
    return found if isinstance(found, tuple) else (found,)


def signed(rng: np.random.Generator, array: Any) -> Array:
    """A cotangent: both signs, nothing near 0, in the shape and dtype of `array`."""
    values = rng.choice([-1.0, 1.0], array.shape) * rng.uniform(0.5, 1.5, array.shape)
    return np.asarray(values, array.dtype)


def cotangents_for(row: OpRow, outputs: tuple[Any, ...]) -> list[Array]:
    rng = np.random.default_rng(zlib.crc32(row.name.encode()) + 1)
    return [signed(rng, output) for output in outputs]


def gradients(outputs: tuple, tensors: list, cotangents: list[Array], **options: Any) -> list:
    """The gradients as arrays; zeros where an input plays no part."""
    inputs = [tensor for tensor in tensors if tensor.requires_grad]
    given_ = [wrap(np.array(cotangent)) for cotangent in cotangents]
    found = ta.grad(outputs, inputs, given_, allow_unused=True, **options)
    return [
        np.zeros(x.shape) if g is None else g.numpy() for g, x in zip(found, inputs, strict=True)
    ]


def assert_close(actual: Array, expected: Array, rtol: float, row: OpRow, scale: Any = 0) -> None:
    """Within rtol of each element, or of the largest where a row adds elements up.

    A difference of a few roundings of the numbers that went in (`scale`) is always allowed.
    """
    assert actual.shape == expected.shape
    if not actual.size:
        return
    np.testing.assert_array_equal(np.isfinite(actual), np.isfinite(expected))
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(actual[~finite], expected[~finite])
    actual, expected = actual[finite], expected[finite]
    largest = np.abs(expected).max(initial=0.0)
    relative_to = np.abs(expected) if row.elementwise else largest
    floor = max(largest, row.cancels * np.max(np.abs(scale), initial=0.0))
    allowed = rtol * relative_to + 1e-15 * floor
    wrong = ~(np.abs(actual - expected) <= allowed)
    assert not wrong.any(), f"{actual[wrong][:4]} should be {expected[wrong][:4]}"


def each_sample(row: OpRow, dtype: str = "float64") -> Any:
    """The samples of a row; the last one printed is the one that failed."""
    for number, sample in enumerate(samples_of(row, dtype)):
        shapes = [array.shape for array in sample.inputs]
        print(f"sample {number}: {dtype} {shapes} {sample.options} {sample.edge}")
        yield sample


# In PyTorch


def asked(row: OpRow) -> Iterator[Sample]:
    """The samples of a row that PyTorch can be asked about."""
    return (sample for sample in each_sample(row) if not sample.torch)


def torch_tensors(torch: Any, row: OpRow, sample: Sample) -> list[Any]:
    tensors = [torch.tensor(np.array(array)) for array in sample.inputs]
    for position in row.positions(sample):
        tensors[position].requires_grad_()
    return tensors


def torch_call(row: OpRow, tensors: list[Any], sample: Sample) -> tuple[Any, ...]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own, on variances without degrees of freedom
        found = row.torch(*tensors, **sample.options)  # type: ignore[operator]
    return tuple(found) if isinstance(found, (tuple, list)) else (found,)


def torch_gradients(torch: Any, outputs: Any, inputs: Any, given_: Any, **options: Any) -> list:
    pairs = [(out, g) for out, g in zip(outputs, given_, strict=True) if out.requires_grad]
    if not pairs:
        return [torch.zeros_like(x) for x in inputs]
    starts, sent = zip(*pairs, strict=True)
    found = torch.autograd.grad(starts, inputs, sent, allow_unused=True, **options)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(found, inputs, strict=True)]


def torch_results(
    torch: Any, row: OpRow, sample: Sample, cotangents: list[Array] | None = None
) -> list[Array]:
    """Values and gradients."""
    tensors = torch_tensors(torch, row, sample)
    outputs = torch_call(row, tensors, sample)
    inputs = [tensor for tensor in tensors if tensor.requires_grad]
    values = [x.detach().numpy(force=True) for x in outputs]
    given_ = [torch.tensor(g) for g in cotangents or cotangents_for(row, values)]
    found = torch_gradients(torch, outputs, inputs, given_)
    return [*values, *(x.detach().numpy(force=True) for x in found)]


def computed_answers(row: OpRow) -> Iterator[Array]:
    """PyTorch's values and gradients, of one sample after the other."""
    import torch

    for sample in samples_of(row):
        if not sample.torch:
            yield from torch_results(torch, row, sample)


def as_vector(answers: Iterator[Array]) -> Array:
    """Arrays one behind the other, each behind its number of dimensions and its shape."""
    parts = [np.append((x.ndim, *x.shape), x.reshape(-1)) for x in answers]
    return np.concatenate(parts).astype(np.float64)


def stored_answers(row: OpRow) -> Iterator[Array]:
    """What `computed_answers` gave when `make_torch_values.py` ran."""
    vector = stored_values().get(f"op/{row.name}")
    assert vector is not None, f"no stored values of {row}: run python tests/make_torch_values.py"
    while len(vector):
        ndim = int(vector[0])
        shape = vector[1 : 1 + ndim].astype(int)
        end = 1 + ndim + int(shape.prod())
        yield vector[1 + ndim : end].reshape(shape)
        vector = vector[end:]


def pytorchs_answers(row: OpRow) -> Iterator[Array]:
    return computed_answers(row) if HAS_TORCH else stored_answers(row)
