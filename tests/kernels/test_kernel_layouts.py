"""Kernels take arrays however they lie in memory, and empty ones."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys

import numpy as np
import pytest
from common import (
    assert_all_zero,
    assert_close,
    attention_backward_of,
    attention_of,
    kernels,
    misaligned,
    read_only,
    rng_of,
    signed,
)
from kernel_checks import (
    both_dtypes,
    cpu,
    exact_softmax,
    needs_numba,
    reference,
    seen_of,
    ulps,
)
from kernel_table import calls_of, results_of

import tinyattn as ta
from tinyattn import functional as F
from tinyattn.kernels import sums
from tinyattn.kernels.visibility import Visibility, of_padded
from tinyattn.optim.updates import AdamStep

# Shapes with nothing in them


@both_dtypes
@pytest.mark.parametrize(
    "shape", [(0, 1, 2, 3), (2, 0, 2, 3), (2, 1, 0, 3), (2, 1, 2, 0), (0, 0, 0, 0)]
)
def test_empty_arrays(dtype, shape):
    x = np.zeros(shape, dtype)
    batch, heads, queries, keys = shape
    for module in (cpu, reference):
        for limits, mask in ((None, None), (np.zeros((batch, 1), int), np.ones(shape, bool))):
            visibility = of_padded(shape, limits=limits, mask=mask)
            out = module.masked_softmax(x, visibility)
            assert (out.shape, out.dtype) == (shape, dtype)
            assert module.masked_softmax_backward(x, out, visibility).shape == shape
        assert module.softmax_backward(x, x).shape == shape
        assert module.log_softmax(x).shape == shape
        assert module.dropout(x, 0.5, 1).shape == shape
        assert module.erf(x).shape == shape
        for name in ("gelu", "gelu_tanh"):
            assert getattr(module, name)(x).shape == shape
            assert getattr(module, f"{name}_backward")(x, x).shape == shape
        assert module.relu(x).shape == shape
        assert np.asarray(module.relu_backward(x, x)).shape == shape
        q, k = np.zeros((batch, heads, queries, 4), dtype), np.zeros((batch, heads, keys, 4), dtype)
        out, saved = attention_of(module, q, k, k, None, None, 1.0, 0.0, 0)
        assert (out.shape, out.dtype) == (q.shape, dtype)
        back = attention_backward_of(module, q, q, k, k, None, None, 1.0, 0.0, 0, saved)
        assert [g.shape for g in back] == [q.shape, k.shape, k.shape]
        if keys:
            out, mean, _ = module.layer_norm(x, None, None, 1e-5)
            assert (out.shape, mean.shape) == (shape, (*shape[:-1], 1))


@both_dtypes
def test_empty_rows_classes_and_tables(dtype):
    for module in (cpu, reference):
        empty = np.zeros((0, 3), dtype)
        losses, log_sums = module.cross_entropy(empty, np.zeros(0, int), -100)
        assert (losses.shape, losses.dtype) == ((0,), dtype)
        back = module.cross_entropy_backward(losses, empty, np.zeros(0, int), -100, log_sums)
        assert back.shape == (0, 3)
        table = module.scatter_rows(np.zeros((0, 3), dtype), np.zeros(0, int), 4, None)
        assert_all_zero(table)
        assert (table.shape, table.dtype) == ((4, 3), dtype)


# Layouts


LAYOUTS = {
    "Fortran": np.asfortranarray,
    "strided": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "reversed": lambda a: np.ascontiguousarray(a[..., ::-1])[..., ::-1],
    "read-only": read_only,
    "transposed": lambda a: np.ascontiguousarray(a.T).T,
    "byte-swapped": lambda a: a.astype(a.dtype.newbyteorder()) if a.dtype.itemsize > 1 else a,
    "misaligned": misaligned,
    "broadcast": lambda a: np.broadcast_to(a[None], (3, *a.shape))[1],
}


def in_layout(change, argument):
    """An argument of a kernel with all its arrays in another layout."""
    if isinstance(argument, np.ndarray):
        return change(argument)
    if isinstance(argument, Visibility):
        arrays = {name: getattr(argument, name) for name in ("limits", "mask")}
        return argument._replace(**{n: a if a is None else change(a) for n, a in arrays.items()})
    if isinstance(argument, tuple) and isinstance(argument[0], Visibility):  # of attention
        return (in_layout(change, argument[0]), *argument[1:])
    return argument


@both_dtypes
@pytest.mark.parametrize("layout", LAYOUTS)
def test_kernels_take_arrays_of_any_layout(dtype, layout):
    """By the function that the ops call, with every input in that layout."""
    change = LAYOUTS[layout]
    for name, calls in calls_of(dtype).items():
        for arguments in calls:
            changed = tuple(in_layout(change, argument) for argument in arguments)
            if name == "layer_norm_backward":
                changed = *changed[:-1], tuple(change(a) for a in arguments[-1])
            if name == "attention_backward":  # what is kept fits the kernel that is chosen
                changed = *changed[:-1], kernels.attention(*changed[1:-2])[1]
            try:
                for x, y in zip(
                    results_of(name, changed), results_of(name, arguments), strict=True
                ):
                    assert_close(x, y, 8 * np.finfo(dtype).eps)
            except Exception as error:
                raise AssertionError(f"{name}: {error!r}") from error


@needs_numba
@pytest.mark.parametrize("layout", [*LAYOUTS, "as it is"])
def test_an_input_of_a_kernel_has_one_layout_and_the_callers_array_stays_as_it_is(layout):
    from tinyattn.kernels.cpu.layout import as_input

    values = signed(rng_of(36), 3, 4)
    array = LAYOUTS.get(layout, np.array)(values)
    before = array.copy(), array.strides, array.flags.writeable, array.dtype
    given = as_input(array)
    assert (given.flags.c_contiguous, given.flags.aligned, given.flags.writeable) == (1, 1, 0)
    assert given.dtype.isnative
    np.testing.assert_array_equal(given, before[0])
    assert (array.strides, array.flags.writeable, array.dtype) == before[1:]


@both_dtypes
@pytest.mark.parametrize("decoupled", [True, False])
@pytest.mark.parametrize("layout", ["Fortran", "strided", "transposed", "misaligned"])
def test_adam_writes_through_any_layout(dtype, layout, decoupled):
    """All of its arrays, or one among others as they usually lie."""
    rng = rng_of(17)
    arrays = [signed(rng, 3, 4).astype(dtype), signed(rng, 3, 4).astype(dtype)]
    arrays += [np.abs(signed(rng, 3, 4)).astype(dtype) for _ in range(2)]
    usual, changed = [a.copy() for a in arrays], [LAYOUTS[layout](a.copy()) for a in arrays]
    gradient = usual[1].copy()
    gradient.setflags(write=False)
    another = [a.copy() for a in arrays]
    another[1] = gradient
    one_of_them = [[a.copy() for a in arrays] for _ in arrays]
    for i, copies in enumerate(one_of_them):
        copies[i] = LAYOUTS[layout](copies[i])
    numbers = AdamStep(0.01, 0.9, 0.99, 1e-8, 0.1, decoupled, 4)
    every = [usual, changed, another, *one_of_them]
    expected = [a.copy() for a in arrays]
    for function, (parameter, grad, m, v) in (
        *((kernels.adam, found) for found in every),
        (reference.adam, expected),
    ):
        function(m, v, parameter, grad, numbers)
    for found in every:
        for actual, wanted in zip(found, expected, strict=True):
            assert_close(actual, wanted, 8 * np.finfo(dtype).eps)
    for _, grad, *_ in (*every, expected):
        np.testing.assert_array_equal(grad, arrays[1])
    assert np.abs(expected[0] - arrays[0]).max() > 1e-3


@needs_numba
def test_float16_becomes_float32_bit_by_bit():
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    for x in (
        every,
        every.reshape(256, 256).T,
        every.reshape(4, 128, 128)[:, ::-1, ::3],
        every[:0],
    ):
        found, expected = cpu.float32_of(x), x.astype(np.float32)
        assert found.dtype == np.float32
        assert found.shape == x.shape
        assert np.array_equal(found.view(np.uint32), expected.view(np.uint32))
    assert cpu.float32_of(every.reshape(256, 256).T).flags.f_contiguous
    wide = every.astype(np.float32)
    assert sums.float32_of(wide) is wide


FLUSHING = """
import ctypes, sys
import numpy as np
import tinyattn as ta
from tinyattn.kernels.cpu.float16 import float32_of
small = (np.arange(1, 1024) * 2.0**-24).astype(np.float16)
y = ta.tensor(np.tile(small, 1024)[: 1024 * 512].reshape(1024, 512))
one = ta.zeros(64, 1024).to(np.float16)
one[0, 0] = 1.0
ctypes.CDLL(sys.argv[1])
assert not np.array([1e-40], np.float32)[0] * np.float32(1), "this compiler sets nothing"
assert np.array_equal(float32_of(small), small.astype(np.float32))
assert np.array_equal((one @ y).numpy()[0], small[:512])
assert np.array_equal((one[:1] @ y.mT.clone().mT).numpy()[0], small[:512])
"""


@needs_numba
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a compiler")
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="x86-64 only")
def test_small_float16_are_kept_where_a_library_flushes_to_zero(tmp_path):
    """As a library that is compiled with -ffast-math sets the thread that loads it."""
    (tmp_path / "f.c").write_text("int nothing(void) { return 0; }\n", encoding="utf-8")
    library, source = tmp_path / "f.so", tmp_path / "f.c"
    compiler = ["gcc", "-shared", "-fPIC", "-ffast-math", "-o", library, source]
    subprocess.run(compiler, check=True)
    command = [sys.executable, "-c", FLUSHING, library]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "this compiler sets nothing" in done.stderr:
        pytest.skip("this compiler sets nothing")
    assert done.returncode == 0, done.stderr


def test_float16_goes_through_the_plain_code():
    x = ta.tensor(signed(rng_of(18), 2, 3, 4).astype(np.float16))
    out = F.masked_softmax(x, [4, 2])
    exact = exact_softmax(
        x.numpy(), seen_of((2, 1, 3, 4), None, np.arange(4) < [[[[4]]], [[[2]]]])[:, 0]
    )
    assert out.dtype == np.float16
    assert ulps(out.numpy(), exact) <= 2
