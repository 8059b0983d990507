"""Every row of the table, put to the same tests.

The gradient check is in test_every_op.py, and the comparison with PyTorch too. Here are the other
properties. One test for each row and property goes through all samples of the row. Cotangents are
random and of both signs: the gradient of `softmax(x).sum()` is zero whatever the derivative, so
ones would prove nothing.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_table import BY_NAME, EXCLUDED, ROWS, OpRow, samples_of
from op_table.row import public
from rows import (
    DIFFERENTIABLE,
    IN_TORCH,
    assert_close,
    call,
    cotangents_for,
    each_sample,
    gradients,
    row_test,
    signed,
    tensors_of,
    torch_call,
    torch_gradients,
    torch_results,
    torch_tensors,
)
from samples import Sample

import tinyattn as ta
from tinyattn import functional as F
from tinyattn.base.backend import quietly
from tinyattn.engine.autograd import wrap
from tinyattn.engine.op import registry

Array = np.ndarray
STEP = 1e-100  # of complex differences, which lose nothing however small it is


# The reference of a row


def reference_outputs(row: OpRow, inputs: list[Array], sample: Sample) -> tuple[Array, ...]:
    found = row.reference(*inputs, **sample.options)
    return tuple(np.asarray(x) for x in (found if isinstance(found, tuple) else (found,)))


def reference_gradients(row: OpRow, sample: Sample, cotangents: list[Array]) -> list[Array]:
    """Each element of the gradient from f(x + ih), exact to the last digits."""
    wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in sample.inputs]
    found = []
    for position in row.positions(sample):
        gradient = np.zeros(wide[position].shape)
        for place in np.ndindex(gradient.shape):
            inputs: list[Array] = [
                x.astype(np.complex128) if i in row.positions(sample) else x
                for i, x in enumerate(wide)
            ]
            inputs[position][place] += 1j * STEP
            outputs = reference_outputs(row, inputs, sample)
            gradient[place] = sum(
                float((np.imag(out) / STEP * g.astype(np.float64)).sum())
                for out, g in zip(outputs, cotangents, strict=True)
            )
        found.append(gradient)
    return found


def bits(array: Any) -> tuple[Any, ...]:
    """What two arrays have in common if they are bitwise the same."""
    array = array.numpy() if isinstance(array, ta.Tensor) else np.asarray(array)
    return array.shape, array.dtype, array.tobytes()


def each_bits(array: Array) -> Array:
    """The elements as integers, so that NaN equals NaN and 0 differs from -0."""
    return np.array(array).reshape(-1).view(f"u{array.itemsize}")


# The table is whole


def test_the_table_is_as_large_as_promised() -> None:
    assert len(ROWS) >= 45
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert sum(len(samples_of(row)) for row in ROWS) >= 900


@row_test()
def test_a_row_has_samples_edge_cases_and_errors(row: OpRow) -> None:
    """At least 20 samples, 4 of them edge cases, and 3 calls that must fail."""
    assert len(samples_of(row)) >= 20
    assert sum(bool(sample.edge) for sample in samples_of(row)) >= 4
    assert len(row.errors) >= 3
    assert callable(row.torch) or row.torch  # a reference, or the reason why there is none


def public_callables() -> set[str]:
    """Everything a user can call that might have a derivative."""
    names = {f"ops.{name}" for name in registry}
    names |= {f"F.{name}" for name in F.__all__}
    lazily = getattr(ta, "_LATE_FUNCTIONS", {})
    names |= {
        f"ta.{name}"
        for name, value in {**vars(ta), **dict.fromkeys(lazily, len)}.items()
        if callable(value) and name[0] != "_" and getattr(value, "__module__", "") != "typing"
    }
    of_any_class = set(dir(type("Plain", (), {"__slots__": ()}))) | {
        "__weakref__",
        "__annotations__",
        *("__annotate_func__", "__annotations_cache__"),  # Python 3.14
        *("__firstlineno__", "__static_attributes__"),  # Python 3.13
        "__slotnames__",  # which pickling leaves on a class
    }
    comparisons = {f"__{name}__" for name in ("eq", "ne", "lt", "le", "gt", "ge")}
    for name in set(dir(ta.Tensor)) - of_any_class | comparisons:
        if name[0] != "_" or name[:2] == "__":
            names.add(f"Tensor.{name}")
    return names


def test_every_public_callable_has_a_row_or_a_reason() -> None:
    covered = set().union(*(row.public_names() for row in ROWS))
    missing = public_callables() - covered - set(EXCLUDED)
    assert missing == set(), "add a row to op_table, covers= to a row, or a reason to excluded.py"


def test_the_table_names_nothing_that_does_not_exist() -> None:
    covered = set().union(*(row.public_names() for row in ROWS))
    assert (covered | set(EXCLUDED)) - public_callables() == set()
    assert covered & set(EXCLUDED) == set()


def test_one_function_is_one_object() -> None:
    """ops.softmax, F.softmax, x.softmax and ta.softmax are the same, so they cannot differ."""
    objects: dict[str, list[Any]] = {}
    for name in public_callables() - {"ta.bool", "ta.grad"}:  # not those of a Tensor
        objects.setdefault(name.partition(".")[2], []).append(public(name))
    several = [
        name for name, found in objects.items() if any(other is not found[0] for other in found)
    ]
    assert several == []


def ops_of(row: OpRow) -> set[str]:
    """The ops with a derivative that a row names."""
    names = {name.removeprefix("ops.") for name in row.public_names() if name[:4] == "ops."}
    return {name for name in names if registry[name].spec.rules}


@row_test([row for row in DIFFERENTIABLE if ops_of(row)])
def test_a_row_reaches_the_ops_it_says(row: OpRow) -> None:
    """An op that a row stands for is found in the graph that the row's function records."""
    found: set[str] = set()
    for sample in samples_of(row):
        stack = [output._node for output in call(row.function, tensors_of(row, sample), sample)]
        while stack:
            node = stack.pop()
            if node is not None and node.plan is not None:
                found.add(node.plan.name)
                stack.extend(node.parents)
    assert ops_of(row) <= found


# Values


@row_test()
def test_value(row: OpRow) -> None:
    """The value is that of the reference, in shape, dtype and to 1e-12."""
    for sample in each_sample(row):
        outputs = call(row.function, tensors_of(row, sample), sample)
        expected = reference_outputs(row, list(sample.inputs), sample)
        assert len(outputs) == len(expected)
        for out, right in zip(outputs, expected, strict=True):
            assert isinstance(out, ta.Tensor)
            assert out.dtype == right.dtype
            if right.dtype.kind == "f":
                assert_close(out.numpy(), right, 1e-12, row)
            else:
                np.testing.assert_array_equal(out.numpy(), right, strict=True)


@row_test([row for row in ROWS if row.writings()])
def test_all_spellings_agree(row: OpRow) -> None:
    """Ways to write it that are no names of one object give bitwise the same."""
    for sample in each_sample(row):
        expected = call(row.function, tensors_of(row, sample), sample)
        for name, function in row.writings().items():
            found = call(function, tensors_of(row, sample), sample)
            assert [bits(x) for x in found] == [bits(x) for x in expected], name


def with_integers_of_numpy(value: Any) -> Any:
    if type(value) in (tuple, list):
        return type(value)(map(with_integers_of_numpy, value))
    return np.int64(value) if type(value) is int else value


def as_list(value: Any) -> Any:
    return list(value) if type(value) is tuple else value


@row_test([row for row in ROWS if not row.name.startswith("raise ")])  # x ** n: n is an operand
def test_integers_of_numpy_and_lists_are_taken_too(row: OpRow) -> None:
    """A size, a dimension or a number of things may come from an array."""
    forms = [with_integers_of_numpy]
    if row.name not in ("getitem", "setitem", "putitem"):  # in an index, a list is an array
        forms.append(as_list)
    for sample in each_sample(row):
        expected = call(row.function, tensors_of(row, sample), sample)
        for form in forms:
            options = {name: form(value) for name, value in sample.options.items()}
            found = call(row.function, tensors_of(row, sample), replace(sample, options=options))
            assert [bits(x) for x in found] == [bits(x) for x in expected], options


@row_test()
def test_dtype_is_kept(row: OpRow) -> None:
    """float16, float32 and float64 stay what they are, in values and gradients."""
    for dtype in ("float16", "float32", "float64"):
        for sample in each_sample(row, dtype):
            tensors = tensors_of(row, sample)
            outputs = call(row.function, tensors, sample)
            kinds = [x.dtype for x in sample.inputs if x.dtype.kind == "f"]
            wanted = {"same": kinds[0] if kinds else sample.inputs[0].dtype}.get(
                row.dtype, row.dtype
            )
            assert {out.dtype for out in outputs} <= {np.dtype(wanted)}
            if row.differentiable:
                given_ = [wrap(g) for g in cotangents_for(row, outputs)]
                inputs = [x for x in tensors if x.requires_grad]
                found = ta.grad(outputs, inputs, given_, allow_unused=True)
                for gradient, x in zip(found, inputs, strict=True):
                    assert gradient is None or gradient.dtype == x.dtype
                    assert gradient is None or gradient.shape == x.shape


def error_in_ulps(actual: Array, exact: Array, elementwise: bool) -> float:
    """The largest error, in units of the last place of the element, or of the largest element.

    Of terms that cancel to 0, as in the gradient of x / |x|, roundings of float64 may be left.
    """
    if not exact.size or not (elementwise or exact.any() or np.abs(actual).max() > 1e-15):
        return 0.0
    with np.errstate(over="ignore"):
        size = np.abs(exact).astype(actual.dtype)
    size = size if elementwise else size.max()
    with np.errstate(invalid="ignore"):
        errors = np.abs(actual.astype(np.float64) - exact) / np.spacing(size).astype(np.float64)
    return float(np.nanmax(np.where(actual == exact, 0, errors)))


@pytest.mark.extended
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@row_test([row for row in DIFFERENTIABLE if callable(row.torch) and row.dtype == "same"])
def test_rounding_is_no_worse_than_pytorch(row: OpRow, dtype: str, torch: Any) -> None:
    """The error against float64 is at most twice PyTorch's, or 4 units in the last place, of a row
    of many steps their square root times as much."""
    for sample in each_sample(row, dtype):
        if sample.torch:
            continue
        tensors = tensors_of(row, sample)
        outputs = call(row.function, tensors, sample)
        cotangents = cotangents_for(row, outputs)
        wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in sample.inputs]
        ours = [out.numpy() for out in outputs] + gradients(outputs, tensors, cotangents)
        exact = list(reference_outputs(row, wide, sample))
        exact += reference_gradients(row, sample, cotangents)
        theirs = torch_results(torch, row, sample, cotangents)
        for i, (x, y, right) in enumerate(zip(ours, theirs, exact, strict=True)):
            single = row.elementwise and (i < len(outputs) or row.cancels == 1)
            allowed = max(2 * error_in_ulps(y, right, single), 4.0 * row.steps**0.5)
            assert error_in_ulps(x, right, single) <= allowed


# In units of the last place, because a few steps are taken in float16; the others take one at most,
# or compute in float32. Not these: with the numbers of float64 they compute from other saved ones.
MORE_ROUNDINGS = {
    **{"cos": 2, "sin": 2, "div": 2, "expm1": 2, "log1p": 2, "log2": 2, "log10": 2, "pow": 3},
    **{"sigmoid": 2, "softplus": 2, "softmax_of_visible": 1},
}
OTHER_NUMBERS = {"layer_norm", "recurrent_states", "rotate_pairs"}


def nodes_beneath(outputs: tuple[ta.Tensor, ...]) -> list[Any]:
    left, found = [out.grad_fn for out in outputs], {}
    while left:
        node = left.pop()
        if node is not None and node.plan is not None and id(node) not in found:
            found[id(node)] = node
            left += node.parents
    return list(found.values())


def spacing_of_half(exact: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.spacing(np.abs(exact).astype(np.float16)).astype(np.float64)


def widened(value: Any) -> Any:
    return value.astype(np.float64) if getattr(value, "dtype", None) == np.float16 else value


@pytest.mark.extended
@row_test(DIFFERENTIABLE)
def test_a_derivative_in_float16_is_rounded_once(row: OpRow) -> None:
    """It is that of float64 from the same saved arrays."""
    for sample in each_sample(row, "float16"):
        for node in nodes_beneath(call(row.function, tensors_of(row, sample), sample)):
            if node.name in OTHER_NUMBERS or node.dtype != np.float16:
                continue
            grad = signed(np.random.default_rng(0), np.empty(node.shape, np.float16))
            for rule, needed, _ in node.plan.rules:
                saved = [node.saved[i] for i in needed]
                found = quietly(rule, grad, *saved)
                right = quietly(rule, widened(grad), *map(widened, saved))
                if type(found) is not tuple:
                    found, right = (found,), (right,)
                limit = MORE_ROUNDINGS.get(node.name, 0.51)
                for actual, exact in zip(found, right, strict=True):
                    if actual is None or actual.dtype != np.float16 or not exact.size:
                        continue  # another dtype is rounded later
                    # Terms that cancel have the digits of float32 at most.
                    floor = 1e-6 * np.abs(exact).max()
                    wrong = np.abs(actual - exact) > floor + limit * spacing_of_half(exact)
                    assert not wrong.any(), f"{node.name}: {actual[wrong][:4]}, {exact[wrong][:4]}"


# Derivatives


@pytest.mark.extended
@row_test(DIFFERENTIABLE)
def test_gradient_against_complex_step(row: OpRow) -> None:
    """Every element of a vector-Jacobian product, to 1e-10 of f(x + ih)."""
    for sample in each_sample(row):
        tensors = tensors_of(row, sample)
        outputs = call(row.function, tensors, sample)
        cotangents = cotangents_for(row, outputs)
        found = gradients(outputs, tensors, cotangents)
        expected = reference_gradients(row, sample, cotangents)
        scale = [np.abs(g).max(initial=0.0) for g in cotangents]
        for gradient, right in zip(found, expected, strict=True):
            assert_close(gradient, right, 1e-10, row, scale)


@row_test(DIFFERENTIABLE)
def test_nothing_is_recorded_under_no_grad(row: OpRow) -> None:
    """The same values, and no graph."""
    for sample in each_sample(row):
        tensors = tensors_of(row, sample)
        expected = call(row.function, tensors, sample)
        with ta.no_grad():
            found = call(row.function, tensors, sample)
        assert [bits(x) for x in found] == [bits(x) for x in expected]
        passed_on = {id(x) for x in tensors}
        assert not any(out.requires_grad for out in found if id(out) not in passed_on)


# Against PyTorch


@pytest.mark.extended
@row_test([row for row in DIFFERENTIABLE if callable(row.torch)])
def test_pytorch_agrees_in_second_order(row: OpRow, torch: Any) -> None:
    """Derivatives of the gradients with respect to inputs and cotangents."""
    for sample in each_sample(row):
        if sample.torch or not sample.smooth or not all(x.size for x in sample.inputs):
            continue
        tensors = tensors_of(row, sample)
        outputs = call(row.function, tensors, sample)
        cotangents = cotangents_for(row, outputs)
        inputs = [tensor for tensor in tensors if tensor.requires_grad]
        given_ = [ta.tensor(g, requires_grad=True) for g in cotangents]
        first = ta.grad(outputs, inputs, given_, create_graph=True, allow_unused=True)
        kept = [g for g in first if g is not None and g.requires_grad]
        again = [signed(np.random.default_rng(i), g) for i, g in enumerate(first) if g is not None]
        pairs = [(g, a) for g, a in zip((g for g in first if g is not None), again, strict=True)]
        kept = [(g, a) for g, a in pairs if g.requires_grad]
        variables = [*inputs, *given_]
        second = ta.grad(
            [g for g, _ in kept], variables, [wrap(a) for _, a in kept], allow_unused=True
        ) if kept else [None] * len(variables)  # fmt: skip

        theirs = torch_tensors(torch, row, sample)
        their_outputs = torch_call(row, theirs, sample)
        their_inputs = [tensor for tensor in theirs if tensor.requires_grad]
        their_given = [torch.tensor(g, requires_grad=True) for g in cotangents]
        their_first = torch_gradients(
            torch, their_outputs, their_inputs, their_given, create_graph=True
        )
        present = [g for g, ours in zip(their_first, first, strict=True) if ours is not None]
        their_second = torch_gradients(
            torch, present, [*their_inputs, *their_given], [torch.tensor(a) for a in again]
        )
        scale = [np.abs(a).max(initial=0.0) for a in (*cotangents, *again)]
        for ours, right in zip(second, their_second, strict=True):
            found = np.zeros(right.shape) if ours is None else ours.numpy()
            assert_close(found, right.detach().numpy(force=True), 1e-11, row, scale)


# Special values


def with_special(rng: np.random.Generator, row: OpRow, sample: Sample) -> Any:
    """The sample with one element replaced by NaN or an infinity, again and again."""
    for position in row.positions(sample) or range(len(sample.inputs)):
        x = sample.inputs[position]
        if x.dtype.kind != "f" or not x.size:
            continue
        for value in (np.nan, np.inf, -np.inf):
            changed = x.copy()
            changed.flat[rng.integers(x.size)] = value
            inputs = (*sample.inputs[:position], changed, *sample.inputs[position + 1 :])
            yield Sample(inputs, sample.options, sample.edge)


@row_test()
def test_nan_and_inf_go_where_they_belong(row: OpRow) -> None:
    """One NaN or infinity at a time: the reference's value, and every other element unchanged.

    So a NaN in one row, head or sample leaves the others bitwise as they were, and one behind a
    mask shows nowhere.
    """
    rng = np.random.default_rng(1)
    for sample in each_sample(row):
        clean = [x.numpy() for x in call(row.function, tensors_of(row, sample), sample)]
        clean_right = reference_outputs(row, list(sample.inputs), sample)
        for special in with_special(rng, row, sample):
            found = [x.numpy() for x in call(row.function, tensors_of(row, special), special)]
            with np.errstate(all="ignore"):
                expected = reference_outputs(row, list(special.inputs), special)
            for out, right, old, old_right in zip(found, expected, clean, clean_right, strict=True):
                same = each_bits(right) == each_bits(old_right)
                assert bits(out.reshape(-1)[same]) == bits(old.reshape(-1)[same])
                if right.dtype.kind == "f":
                    assert_close(out, right, 1e-12, row)
                else:
                    np.testing.assert_array_equal(out, right)


@pytest.mark.extended
@row_test(IN_TORCH)
def test_pytorch_agrees_about_nan_and_inf(row: OpRow, torch: Any) -> None:
    """Values, and gradients up to the difference of NaN and inf, where one element is either."""
    if row.special_torch:
        pytest.skip(f"{row.name}: {row.special_torch}")
    rng = np.random.default_rng(2)
    for sample in each_sample(row):
        if sample.torch or sample.special_torch:
            continue
        for special in with_special(rng, row, sample):
            tensors = tensors_of(row, special)
            outputs = call(row.function, tensors, special)
            cotangents = cotangents_for(row, outputs)
            ours = [x.numpy() for x in outputs]
            if row.differentiable:
                ours += gradients(outputs, tensors, cotangents)
            theirs = torch_results(torch, row, special, cotangents)
            for i, (x, right) in enumerate(zip(ours, theirs, strict=True)):
                if i >= len(outputs):  # which of the two a slope is depends on the order of steps
                    x, right = (np.where(np.isfinite(a), a, np.nan) for a in (x, right))
                if right.dtype.kind == "f":
                    assert_close(x, right, 1e-11, row, 1.0)
                else:
                    np.testing.assert_array_equal(x, right)


# Broadcasting


def check_broadcast(row: OpRow, sample: Sample) -> None:
    """Value, and along a random direction the derivative, of two inputs of any shapes."""
    tensors = tensors_of(row, sample)
    outputs = call(row.function, tensors, sample)
    (right,) = reference_outputs(row, list(sample.inputs), sample)
    assert outputs[0].shape == right.shape
    assert_close(outputs[0].numpy(), right, 1e-12, row)
    cotangents = cotangents_for(row, outputs)
    found = gradients(outputs, tensors, cotangents)
    rng = np.random.default_rng(3)
    for i, gradient in enumerate(found):
        position = row.positions(sample)[i]
        x = sample.inputs[position]
        assert gradient.shape == x.shape
        direction = signed(rng, x)
        moved = [y.astype(complex) for y in sample.inputs]
        moved[position] = moved[position] + 1j * STEP * direction
        (changed,) = reference_outputs(row, moved, sample)
        expected = (changed.imag / STEP * cotangents[0]).sum()
        scale = np.abs(gradient).sum() + 1
        assert abs((gradient * direction).sum() - expected) <= 1e-10 * scale


@row_test([row for row in ROWS if row.broadcasts])
def test_broadcasting(row: OpRow) -> None:
    """Any two shapes that broadcast: the engine sums the gradients back."""

    @given(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, min_side=0, max_side=3))
    def check(shapes: Any) -> None:
        rng = np.random.default_rng(4)
        first, second = (rng.uniform(0.5, 2.0, shape) for shape in shapes.input_shapes)
        check_broadcast(row, Sample((first, second)))

    check()


@given(
    hnp.mutually_broadcastable_shapes(
        signature="(n?,k),(k,m?)->(n?,m?)", max_dims=3, min_side=0, max_side=3
    )
)
def test_broadcasting_of_matmul(shapes: Any) -> None:
    """Vectors, matrices and stacks of them, empty ones too."""
    rng = np.random.default_rng(5)
    first, second = (rng.standard_normal(shape) for shape in shapes.input_shapes)
    check_broadcast(BY_NAME["matmul"], Sample((first, second)))


@given(
    hnp.mutually_broadcastable_shapes(num_shapes=3, max_dims=3, min_side=0, max_side=3),
    st.integers(0, 100),
)
def test_broadcasting_of_where(shapes: Any, seed: int) -> None:
    """The condition broadcasts as well."""
    rng = np.random.default_rng(seed)
    condition, x, y = (rng.standard_normal(shape) for shape in shapes.input_shapes)
    sample = Sample((np.asarray(condition > 0), x, y))
    tensors = tensors_of(BY_NAME["where"], sample)
    out = ta.where(*tensors)
    right = np.where(sample.inputs[0], x, y)
    np.testing.assert_array_equal(out.numpy(), right, strict=True)
    grad = signed(rng, right)
    found = gradients((out,), tensors, [grad])
    for gradient, chosen, array in zip(found, (condition > 0, condition <= 0), (x, y), strict=True):
        full = np.where(np.broadcast_to(chosen, right.shape), grad, 0)
        extra = full.ndim - array.ndim
        axes = tuple(i for i in range(full.ndim) if i < extra or array.shape[i - extra] == 1)
        expected = full.sum(axis=axes, keepdims=True).reshape(array.shape)
        np.testing.assert_allclose(gradient, expected, rtol=1e-13, atol=1e-14)


# Errors


@row_test()
def test_bad_calls_are_refused(row: OpRow) -> None:
    """The exception a reader would expect, saying what was wanted and what came.

    A failed call leaves the random numbers where they were.
    """
    state = ta.get_rng_state()
    for number, bad in enumerate(row.errors):
        with pytest.raises(bad.exception, match=bad.match) as caught:
            bad.call()
        assert not isinstance(caught.value, AssertionError), number
    assert ta.get_rng_state() == state


@pytest.mark.extended
def test_bad_calls_are_refused_without_assertions() -> None:
    """`python -O` removes assertions; no check depends on one."""
    code = """
import re, sys
from op_table import ROWS
if __debug__:
    sys.exit("assertions are on")
for row in ROWS:
    for bad in row.errors:
        try:
            bad.call()
        except Exception as error:
            if not isinstance(error, bad.exception) or not re.search(bad.match, str(error)):
                print(row.name, bad.match, repr(error))
        else:
            print(row.name, bad.match, "was not raised")
"""
    run = subprocess.run(
        [sys.executable, "-O", "-c", code],
        cwd=Path(__file__).parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout == ""
