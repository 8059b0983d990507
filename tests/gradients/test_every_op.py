"""The gradient check of every operation.

    pytest tests/gradients/test_every_op.py -v              all of them
    pytest tests/gradients/test_every_op.py -v -k softmax   those with this word in their name

The operations stand in the folder `op_table`, each in a row of its own: how tinyattn writes it,
how NumPy and PyTorch write it, and with which arguments all are called. Two tests run on each row:

    test_gradient          `check_op` compares the derivative with finite differences, and more
    test_same_as_pytorch   value and gradient are PyTorch's

If PyTorch is not installed, the second reads what PyTorch computed from tests/torch_values.npz.
test_op_table.py has more tests of each row, and test_extremes.py tries very large numbers.

A new operation needs a row, and `python tests/make_torch_values.py` adds PyTorch's values of it. A
test fails as long as one of them is missing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import HAS_TORCH, needs_torch, stored_values
from op_table import ROWS, OpRow
from rows import (
    IN_TORCH,
    asked,
    assert_close,
    call,
    computed_answers,
    cotangents_for,
    each_sample,
    gradients,
    pytorchs_answers,
    row_test,
    stored_answers,
    tensors_of,
)
from samples import Sample

import tinyattn as ta
from tinyattn.engine.op import registry
from tinyattn.testing import check_op

NO_ROW = {"transfer"}  # copies to a GPU and back: tests/gpu/test_device.py


@row_test()
def test_gradient(row: OpRow) -> None:
    """Finite differences, a recorded gradient, linearity, layouts, purity, lifetime."""
    for sample in each_sample(row):

        def function(*inputs: ta.Tensor, sample: Sample = sample) -> tuple[Any, ...]:
            outputs = call(row.function, list(inputs), sample)
            if row.differentiable and row.dtype != "same":  # a cast; check_op wants the input's
                return tuple(out.to(inputs[0].dtype) for out in outputs)
            return outputs

        check_op(
            function,
            [[ta.tensor(x) for x in sample.inputs]],
            smooth=bool(row.differentiable) and sample.has_slope(),
            second_order=bool(row.differentiable),
            bitwise=True,
        )


@row_test(IN_TORCH)
def test_same_as_pytorch(row: OpRow) -> None:
    """The value to 1e-12, and the gradient for a random upstream gradient to 1e-11."""
    answers = pytorchs_answers(row)
    for sample in asked(row):
        tensors = tensors_of(row, sample)
        outputs = call(row.function, tensors, sample)
        # Of both signs: the gradient of softmax(x).sum() is zero whatever the derivative says.
        upstream = cotangents_for(row, outputs)
        for out in outputs:
            right = next(answers)
            assert out.dtype == right.dtype or not HAS_TORCH  # what is stored is float64
            if out.dtype.kind == "f":
                assert_close(out.numpy(), right, 1e-12, row)
            else:
                np.testing.assert_array_equal(out.numpy(), right)
        if row.differentiable:
            scale = [np.abs(g).max(initial=0.0) for g in upstream]
            for gradient in gradients(outputs, tensors, upstream):
                assert_close(gradient, next(answers), 1e-11, row, scale)
    assert next(answers, None) is None


@needs_torch
def test_stored_values_are_pytorchs() -> None:
    """If they are not, a row has changed: `python tests/make_torch_values.py` writes new ones."""
    for row in IN_TORCH:
        print(row)
        for stored, right in zip(stored_answers(row), computed_answers(row), strict=True):
            assert_close(stored, right.astype(np.float64), 1e-12, row, 1.0)


def test_every_row_has_stored_values() -> None:
    stored = {name.removeprefix("op/") for name in stored_values() if name.startswith("op/")}
    rows = {row.name for row in IN_TORCH}
    assert rows - stored == set(), "run python tests/make_torch_values.py, which needs PyTorch"
    assert stored - rows == set(), "there is no such row any more: make_torch_values.py"


def test_every_operation_has_a_row() -> None:
    """An op with a derivative is named by a row, and test_op_table.py finds it in its graph."""
    named = {name.removeprefix("ops.") for row in ROWS for name in row.public_names()}
    with_a_derivative = {name for name, op in registry.items() if op.spec.rules}
    assert with_a_derivative - NO_ROW - named == set(), "add a row to tests/gradients/op_table"
