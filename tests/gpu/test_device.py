"""The op table once more, on "cuda": on a strict stand-in for CuPy, or with `-m gpu` on a GPU.

The same rows and samples as in tests/gradients. What runs is the whole route of a GPU: CuPy's
functions, kernels/gpu with its launches, and the .cu kernels, which the stand-in compiles for
the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import stand_in
from common import HAS_TORCH, HERE, run_python
from op_table import ROWS, OpRow, samples_of
from rows import (
    DIFFERENTIABLE,
    assert_close,
    call,
    cotangents_for,
    each_sample,
    row_test,
    signed,
    tensors_of,
    torch_results,
)
from samples import Sample
from test_op_table import bits, each_bits, error_in_ulps, reference_outputs, with_special

import tinyattn as ta
from tinyattn import ops
from tinyattn.engine.autograd import wrap
from tinyattn.kernels.visibility import of_padded
from tinyattn.testing.op_checks import LAYOUTS as ON_THE_HOST

Array = np.ndarray
Place = Callable[[Array], Any]


def host(tensor: ta.Tensor, cuda: Any) -> Array:
    """The values, from a result that has to be on the device."""
    assert type(tensor._data) is cuda.ndarray
    return tensor.numpy()


def weighted_sum(weights: Any, values: Any, limits: Any, mask: Any) -> Any:
    """As in the table, but with limits and mask on the device."""
    visibility = of_padded(weights.shape, limits=limits, mask=mask)
    visible = visibility.visible_pairs(weights)
    if visible is not None:
        weights = ops.where(wrap(visible), weights, 0.0)
    return ops.weighted_sum(weights, values, visibility=visibility)


# Rows of ops below `functional` and layers, which move masks and weights to the device.
BELOW: dict[str, Any] = {
    "weighted_sum": weighted_sum,
    "attention over rows": None,
    "int8_linear": None,
}


def moved(sample: Sample, cuda: Any) -> Sample:
    """The sample with the arrays among its options on the device."""
    options = {
        name: cuda.asarray(value) if type(value) is np.ndarray else value
        for name, value in sample.options.items()
    }
    return Sample(sample.inputs, options, sample.edge)


def lay_out(cuda: Any, x: Array) -> Any:
    """An array on the device with the strides that `x` has on the host."""
    order = np.argsort([-abs(stride) for stride in x.strides], kind="stable")
    if 0 in x.strides and x.size > 1:
        small = x[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in x.strides)]
        return cuda.broadcast_to(cuda.asarray(np.array(small)), x.shape)
    turned = tuple(slice(None, None, -1) if stride < 0 else slice(None) for stride in x.strides)
    array = cuda.asarray(np.array(x[turned].transpose(order), order="C"))
    return array.transpose(tuple(int(i) for i in np.argsort(order)))[turned]


def results(
    row: OpRow,
    sample: Sample,
    cuda: Any = None,
    place: Place = np.array,
    *,
    cotangents: list[Array] | None = None,
    place_on_device: Place | None = None,
) -> list[Array]:
    """Values and gradients; on the device if `cuda` is its module."""
    lay = place if cuda is None else place_on_device or (lambda x: cuda.asarray(place(x)))
    tensors = tensors_of(row, sample, lay)
    function = row.function
    if cuda is not None and row.name in BELOW:
        function, sample = BELOW[row.name] or function, moved(sample, cuda)
    outputs = call(function, tensors, sample)
    read = (lambda x: x.numpy()) if cuda is None else (lambda x: host(x, cuda))
    found = [read(x) for x in outputs]
    if row.differentiable:
        inputs = [x for x in tensors if x.requires_grad]
        given = cotangents_for(row, outputs) if cotangents is None else cotangents
        sent = [wrap(lay(g.astype(x.dtype))) for g, x in zip(given, outputs, strict=True)]
        gradients = ta.grad(outputs, inputs, sent, allow_unused=True)
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


def of_pytorch(row: OpRow, sample: Sample, cotangents: list[Array], cuda: Any) -> Any:
    """PyTorch's values and gradients, from the GPU if there is one; None if it has no such row."""
    if not HAS_TORCH or not callable(row.torch) or sample.torch:
        return None
    import torch

    on_device = cuda is not stand_in.MODULE and torch.cuda.is_available()
    with torch.device("cuda" if on_device else "cpu"):
        return torch_results(torch, row, sample, cotangents)


@row_test([row for row in ROWS if callable(row.torch)])
def test_pytorch_agrees(row: OpRow, cuda: Any, torch: Any) -> None:
    """float64: PyTorch's values and gradients to 1e-11, where there is a GPU computed on it too."""
    for sample in each_sample(row):
        cotangents = cotangents_for(row, call(row.function, tensors_of(row, sample), sample))
        theirs = of_pytorch(row, sample, cotangents, cuda)
        if theirs is None:
            continue
        for x, right in zip(results(row, sample, cuda), theirs, strict=True):
            assert x.dtype == right.dtype
            if right.dtype.kind == "f":
                assert_close(x, right, 1e-11, row, 1.0)
            else:
                np.testing.assert_array_equal(x, right)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@row_test()
def test_rounding(row: OpRow, dtype: str, cuda: Any) -> None:
    """Dtypes are kept; errors against float64 are at most twice PyTorch's, or 4 last places.

    Where PyTorch has no such row, and on the stand-in as well, at most twice those of the CPU.
    """
    for sample in each_sample(row, dtype):
        exact_sample = Sample(
            tuple(x.astype(np.float64) if x.dtype.kind == "f" else x for x in sample.inputs),
            sample.options,
        )
        cpu, found = results(row, sample), results(row, sample, cuda)
        cotangents = cotangents_for(row, call(row.function, tensors_of(row, sample), sample))
        exact = results(row, exact_sample, cotangents=cotangents)
        theirs = of_pytorch(row, sample, cotangents, cuda) if row.dtype == "same" else None
        judges = [cpu] if theirs is None or cuda is stand_in.MODULE else []
        judges += [theirs] if theirs is not None else []
        for i, (x, y, right) in enumerate(zip(found, cpu, exact, strict=True)):
            assert x.dtype == y.dtype
            if x.dtype.kind == "f" and bits(x) != bits(y):
                errors = [error_in_ulps(judge[i], right, False) for judge in judges]
                assert error_in_ulps(x, right, False) <= max(2 * min(errors), 4.0 * row.steps**0.5)
            else:
                np.testing.assert_array_equal(x, y)


def second_order(row: OpRow, sample: Sample, cuda: Any = None) -> list[Array]:
    """Derivatives of the gradients along fixed directions."""
    lay: Place = np.array if cuda is None else cuda.asarray
    tensors = tensors_of(row, sample, lay)
    function = row.function
    if cuda is not None and row.name in BELOW:
        function, sample = BELOW[row.name] or function, moved(sample, cuda)
    outputs = call(function, tensors, sample)
    inputs = [x for x in tensors if x.requires_grad]
    given = [ta.tensor(lay(g), requires_grad=True) for g in cotangents_for(row, outputs)]
    first = ta.grad(outputs, inputs, given, create_graph=True, allow_unused=True)
    kept = [g for g in first if g is not None and g.requires_grad]
    if not kept:
        return []
    directions = [wrap(lay(signed(np.random.default_rng(i), g))) for i, g in enumerate(kept)]
    second = ta.grad(kept, [*inputs, *given], directions, allow_unused=True)
    return [np.zeros(0) if g is None else g.numpy() for g in second]


@row_test(DIFFERENTIABLE)
def test_second_order(row: OpRow, cuda: Any) -> None:
    """Derivatives of gradients: those of the CPU."""
    small = [s for s in samples_of(row) if s.has_slope() and sum(x.size for x in s.inputs) <= 200]
    for sample in small[:6]:
        expected, found = second_order(row, sample), second_order(row, sample, cuda)
        for x, right in zip(found, expected, strict=True):
            assert_close(x, right, 1e-11, row, 10.0)


def adds_in_any_order(row: OpRow, cuda: Any) -> bool:
    """The gradient of gather is CuPy's add.at, whose atomic additions come in any order."""
    return row.name in ("gather", "scatter_along") and cuda is not stand_in.MODULE


LAYOUTS: dict[str, Place] = {
    "Fortran": ON_THE_HOST["Fortran"],
    "reversed": ON_THE_HOST["reversed"],
    "step 2": lambda x: np.repeat(x, 2, axis=-1)[..., ::2] if x.ndim else x,
    "stride 0": ON_THE_HOST["stride 0"],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@row_test()
def test_memory_layout_makes_no_difference(row: OpRow, layout: str, cuda: Any) -> None:
    """However the arrays lie on the device, values and gradients are bitwise the same."""
    lay = LAYOUTS[layout]
    for sample in samples_of(row)[::4]:
        straight = results(row, sample, cuda, lambda x: np.array(lay(x), order="C"))
        crooked = results(row, sample, cuda, place_on_device=lambda x: lay_out(cuda, lay(x)))
        for one, other in zip(straight, crooked, strict=True):
            if adds_in_any_order(row, cuda):
                assert_close(one, other, 1e-15, row, 4.0)
            else:
                assert bits(one) == bits(other)


@row_test()
def test_nan_and_inf_go_where_they_belong(row: OpRow, cuda: Any) -> None:
    """One NaN or infinity at a time gives what it gives on the CPU, and nothing else changes."""
    rng = np.random.default_rng(1)
    for sample in samples_of(row)[::3]:
        count = len(reference_outputs(row, list(sample.inputs), sample))
        clean = results(row, sample, cuda)[:count]
        clean_right = results(row, sample)[:count]
        for special in with_special(rng, row, sample):
            found, expected = (results(row, special, c)[:count] for c in (cuda, None))
            for out, right, old, old_right in zip(found, expected, clean, clean_right, strict=True):
                same = each_bits(right) == each_bits(old_right)
                parts = out.reshape(-1)[same], old.reshape(-1)[same]
                if adds_in_any_order(row, cuda):
                    assert_close(*parts, 1e-15, row, 4.0)
                else:
                    assert bits(parts[0]) == bits(parts[1])
                if right.dtype.kind == "f":
                    assert_close(out, right, 1e-12, row)
                else:
                    np.testing.assert_array_equal(out, right)


@pytest.mark.skipif(ta.cuda_is_available(), reason="there is a GPU")
def test_a_run_without_a_gpu_says_what_it_has_not_tested():
    code = "import sys, pytest; sys.exit(pytest.main(['-qm', 'gpu', sys.argv[1]]))"
    *_, word, count = run_python(code, args=[HERE / "gpu" / "test_device_laws.py"]).splitlines()
    number = count.split()[0]
    assert int(number) > 0
    assert word == f"no GPU: {number} tests skipped, nothing tested on one"
