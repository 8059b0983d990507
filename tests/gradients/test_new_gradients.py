"""What a rule is said to have made is its own: the engine adds to such an array in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from op_table import OpRow, samples_of
from rows import DIFFERENTIABLE, call, cotangents_for, gradients, row_test, tensors_of
from test_saved_arrays import arrays_in

import tinyattn as ta
from tinyattn.engine.op import registry
from tinyattn.engine.rules import Plan

run_rules = Plan.run_rules
called_new: set[str] = set()  # names of ops
tried: set[str] = set()


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rule runs twice, and what it calls new is compared with all that there is."""

    def checked(plan: Plan, node: Any, grad: Any, graph: bool) -> Any:
        first, second = (run_rules(plan, node, grad, graph) for _ in range(2))
        assert [is_new for *_, is_new in first] == [is_new for *_, is_new in second]
        results = [array for _, array, _ in (*first, *second)]
        kept = [*arrays_in(node.saved), grad]
        for i, (_, array, is_new) in enumerate(first):
            tried.add(plan.name)
            if not is_new:
                continue
            called_new.add(plan.name)
            assert type(array) is np.ndarray
            assert array.flags.writeable
            others = [other for j, other in enumerate(results) if j != i]
            for other in (*kept, *others):
                assert not np.shares_memory(array, other), plan.name
        return first

    monkeypatch.setattr(Plan, "run_rules", checked)


@row_test(DIFFERENTIABLE)
def test_a_new_gradient_is_nobody_elses(row: OpRow, watched: None) -> None:
    for sample in samples_of(row, "float32"):
        tensors = tensors_of(row, sample)
        arrays = [(tensor._data, tensor.numpy()) for tensor in tensors]
        outputs = call(row.function, tensors, sample)
        cotangents = cotangents_for(row, outputs)
        gradients(outputs, tensors, cotangents)
        for array, before in arrays:
            np.testing.assert_array_equal(array, before)


def test_every_rule_was_tried(watched: None) -> None:
    """All rows again, because each row above may have run in a process of its own."""
    for row in DIFFERENTIABLE:
        test_a_new_gradient_is_nobody_elses(row, None)
    with_rules = {name for name, function in registry.items() if function.spec.rules}
    assert with_rules - tried <= {"transfer"}  # to another device


@ta.op
def keeper(x):
    return x * 1


ARRAY = np.ones(2)


@keeper.vjp("x")
def _(grad):
    np.multiply(grad, 2, out=ARRAY)
    return ARRAY  # the same memory at every call


def test_an_array_of_a_users_rule_is_never_new() -> None:
    x = ta.tensor(np.array([1.0, 2.0]), requires_grad=True)
    total = keeper(x) + keeper(x) * 5 + keeper(x) * 7
    total.backward(ta.tensor(np.array([1.0, -10.0])))
    np.testing.assert_array_equal(x.grad.numpy(), [26.0, -260.0])
    assert not np.shares_memory(x.grad._data, ARRAY)
