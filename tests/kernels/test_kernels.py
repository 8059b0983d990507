"""The compiled kernels against their formulas, and against a computation in float64.

The formulas in `tinyattn/ops` are what a reader reads; `kernels/cpu/` is what runs. They may
differ by the order of their sums, never by more than a few units in the last place.

Softmax and what is made of it are in test_softmax_kernels.py, layouts and empty arrays in
test_kernel_layouts.py, and what runs without Numba or its cache in test_without_numba.py.
"""

from __future__ import annotations

import importlib
import math
import operator
import os
import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from common import (
    assert_all_zero,
    assert_close,
    assert_equal,
    assert_same,
    attention_backward_of,
    attention_of,
    rng_of,
    run_python,
    signed,
)
from kernel_checks import (
    SEEDS,
    WIDTHS,
    assert_within,
    both_dtypes,
    cpu,
    exact_softmax,
    hidings,
    needs_numba,
    reference,
    seen_of,
    ulps,
    wide,
)
from kernel_table import KERNELS, kernel_tour
from test_tiled_attention import compiled

import tinyattn as ta
import tinyattn.kernels as package
from tinyattn import functional as F
from tinyattn.kernels import sums
from tinyattn.kernels.compiled import FORMULAS_ONLY
from tinyattn.kernels.visibility import Visibility, of_padded, samples_of
from tinyattn.ops.elementwise import inverse_root
from tinyattn.optim.updates import AdamStep


def test_every_kernel_is_in_the_table():
    """What is added without a line in kernel_table.py is named here."""
    toured = {name.split(".")[0] for name in kernel_tour()}
    assert set(KERNELS) - toured == set(), "add a line to calls_of in tests/kernels/kernel_table.py"
    assert toured - set(KERNELS) == set(), "there is no such kernel any more"
    compiled_ones = {name for name in KERNELS if hasattr(cpu, name)}
    assert len(compiled_ones) >= 31


@needs_numba
def test_every_name_of_a_kernel_is_a_function_of_its_file():
    """What `with_kernels` names above a formula, and what is asked for by `cpu_kernel`."""
    root = Path(ta.__file__).parent
    text = "".join(path.read_text(encoding="utf-8") for path in root.rglob("*.py"))
    places = {("cpu", place) for place in re.findall(r'cpu_kernel\("(.+?)"\)', text)}
    for function in package.formulas.values():
        named = zip(("cpu", "gpu"), function.kernels.values(), strict=True)
        places |= {(folder, place) for folder, place in named if place}
    assert len(places) > 60
    for folder, place in sorted(places):
        file, _, name = place.partition(".")
        module = importlib.import_module(f"tinyattn.kernels.{folder}.{file}")
        assert callable(getattr(module, name, None)), f"kernels/{folder}/{file}.py has no {name}"


def test_every_kernel_has_a_test_of_its_own():
    """The table says nothing about how exact a kernel is; these files do."""
    files = ("test_kernels.py", "test_softmax_kernels.py", "test_kernel_layouts.py")
    text = "".join(Path(__file__).with_name(name).read_text(encoding="utf-8") for name in files)
    forward = {name.removesuffix("_backward") for name in KERNELS}  # which test both
    missing = [name for name in sorted(forward) if not re.search(rf"\b{name}\b", text)]
    assert missing == [], f"write a test of how exact they are in one of {files}"


def test_the_page_of_the_gpu_has_a_row_for_each_of_its_kernels():
    rows = (Path(__file__).parents[2] / "docs" / "gpu.md").read_text("utf-8").splitlines()
    for name, function in package.formulas.items():
        if place := function.kernels["cuda"]:
            formula = function.formula.__module__.rpartition(".")[2]
            files = f"`{formula}.py`", f"`{place.partition('.')[0]}.cu`"
            has_row = any(all(file in row for file in files) for row in rows)
            assert has_row, f"no row of the table in docs/gpu.md has the files {files} of {name}"


# Layer normalization


def exact_layer_norm(x, weight, bias, eps, grad):
    x, weight, bias, grad = wide(x, weight, bias, grad)
    centred = x - x.mean(axis=-1, keepdims=True)
    inv_std = 1 / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + np.longdouble(eps))
    normal = centred * inv_std
    w = 1 if weight is None else weight
    out = normal * w + (0 if bias is None else bias)
    g = grad * w
    dx = inv_std * (g - g.mean(-1, keepdims=True) - normal * (g * normal).mean(-1, keepdims=True))
    size = inv_std * (np.abs(g) + np.abs(g).mean(-1, keepdims=True)
                      + np.abs(normal) * np.abs(g * normal).mean(-1, keepdims=True))  # fmt: skip
    return (
        out,
        dx,
        size,
        (grad * normal).sum(axis=0),
        np.abs(grad * normal).sum(axis=0),
        grad,
        normal,
    )


def check_layer_norm(x, weight, bias, grad, offset):
    dtype, rows, width = x.dtype, *x.shape
    exact, dx, size, dw, dw_size, g, normal = exact_layer_norm(x, weight, bias, 1e-5, grad)
    for module in (cpu, reference):
        out, mean, inv_std = module.layer_norm(x, weight, bias, 1e-5)
        assert (out.dtype, mean.shape) == (dtype, (rows, 1))
        slack = 1 if dtype == np.float32 else 1 + 4 * offset
        assert_within(out, exact, (1 + np.abs(normal)) * 2 * slack, count=4)
        saved = (mean, inv_std)
        found = module.layer_norm_backward(grad, x, weight, 1e-5, saved)
        rounded = found[0].astype(dtype)
        assert_within(rounded, dx, (size + width**-0.5 + 1) * slack, count=8)
        if weight is None:
            assert found[1] is None
        else:
            dweight = np.asarray(found[1]).reshape(-1, width).sum(axis=0).astype(dtype)
            assert_within(dweight, dw, (dw_size + 5) * slack, count=8)
        dbias = np.asarray(found[2]).reshape(-1, width).sum(axis=0).astype(dtype)
        assert_within(dbias, g.sum(axis=0), np.abs(g).sum(axis=0), count=4)


@both_dtypes
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_layer_norm_of_every_width(dtype, offset):
    rng = rng_of(7)
    for width in WIDTHS:
        x = (signed(rng, 5, width) + offset).astype(dtype)
        parts = [signed(rng, width).astype(dtype), signed(rng, width).astype(dtype)]
        grad = signed(rng, 5, width).astype(dtype)
        for weight, bias in (parts, (None, None), (parts[0], None), (None, parts[1])):
            check_layer_norm(x, weight, bias, grad, offset)


@both_dtypes
@pytest.mark.parametrize("rows", [649, 650, 811])
def test_layer_norm_of_so_many_rows_that_backward_sums_them_in_blocks(dtype, rows):
    rng = rng_of(9)
    x, grad = (signed(rng, rows, 101).astype(dtype) for _ in range(2))
    weight, bias = (signed(rng, 101).astype(dtype) for _ in range(2))
    check_layer_norm(x, weight, bias, grad, 0.0)


def test_layer_norm_backward_of_a_long_row_takes_little_memory():
    """For its sums no more than for the gradients of weight and bias themselves."""
    x = signed(rng_of(10), 1, 10**5).astype(np.float32)
    weight = np.ones(10**5, np.float32)
    _, *saved = cpu.layer_norm(x, weight, weight, 1e-5)
    cpu.layer_norm_backward(x, x, weight, 1e-5, saved)  # compiled before it is looked at
    tracemalloc.start()
    cpu.layer_norm_backward(x, x, weight, 1e-5, saved)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < x.nbytes + 2 * 8 * x.size + 10**5


@both_dtypes
def test_layer_norm_of_constant_and_extreme_rows(dtype):
    x = np.array(
        [[3.3] * 7, [0.0] * 7, [1e15] * 7, [np.nan] + [1.0] * 6, [np.inf] + [1.0] * 6], dtype
    )
    weight, bias = np.full(7, 2.0, dtype), np.full(7, 0.5, dtype)
    for module in (cpu, reference):
        with np.errstate(invalid="ignore"):
            out, mean, inv_std = module.layer_norm(x, weight, bias, 1e-5)
        assert_close(out[:3], np.full((3, 7), 0.5), 1e-6 if dtype == np.float32 else 1e-9)
        assert np.isnan(out[3:]).all()
        back = module.layer_norm_backward(np.ones((3, 7), dtype), x[:3], weight, 1e-5,
                                          (mean[:3], inv_std[:3]))  # fmt: skip
        assert np.abs(back[0]).max() < 1e-9


@both_dtypes
def test_layer_norm_without_eps_of_a_constant_row_is_nan(dtype):
    """0 / 0, as in PyTorch, and no error of Python's."""
    x = np.array([[2.0, 2.0], [1.0, 3.0]], dtype)
    for module in (cpu, reference):
        with np.errstate(all="ignore"):
            out, _, inv_std = module.layer_norm(x, None, None, 0.0)
        assert_equal(out, np.array([[np.nan, np.nan], [-1, 1]], dtype))
        assert inv_std[0] == np.inf


@both_dtypes
def test_layer_norm_of_large_float32_numbers_does_not_overflow(dtype):
    x = np.array([[1e30, -1e30, 3e30, 2e30]], dtype)
    for module in (cpu, reference):
        out, _, _ = module.layer_norm(x, None, None, 1e-5)
        expected = (x / 1e30 - 1.25) / np.std(x / 1e30)
        assert_close(out, expected, 1e-6)


# RMSNorm


@both_dtypes
@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize("rows", [1, 3, 700])  # in one block, and in several
def test_rms_norm_beside_long_double(dtype, learned, rows):
    rng = rng_of(28)
    for width in (1, 5, 33, 576):
        x, grad = (signed(rng, rows, width).astype(dtype) for _ in range(2))
        weight = signed(rng, width).astype(dtype) if learned else None
        wide_x, wide_grad = wide(x, grad)
        w = wide(weight)[0] if learned else 1
        inverse = 1 / np.sqrt((wide_x**2).mean(-1, keepdims=True) + np.longdouble(1e-5))
        normal, g = wide_x * inverse, wide_grad * w
        dx = inverse * (g - normal * (g * normal).mean(-1, keepdims=True))
        # In float64 a sum rounds at each of its terms, and where nothing is compiled they come one
        # after another: the roundings add up as a random walk does.
        walk = 1 + width**0.5 / 8 if dtype == np.float64 else 1
        terms = np.abs(g * normal).mean(-1, keepdims=True)
        size = inverse * (np.abs(g) + np.abs(normal) * terms) * walk
        for module in (cpu, reference):
            out, kept = module.rms_norm(x, weight, 1e-5)
            assert (out.dtype, kept.shape) == (dtype, (rows, 1))
            assert_within(out, normal * w, np.abs(normal * w) * walk, count=4)
            found = module.rms_norm_backward(grad, x, weight, 1e-5, kept)
            assert_within(found[0].astype(dtype), dx, size, count=8)
            assert (found[1] is not None) == learned
            if learned:
                dweight = np.asarray(found[1]).reshape(-1, width).sum(axis=0).astype(dtype)
                terms = wide_grad * normal
                assert_within(dweight, terms.sum(0), np.abs(terms).sum(0), count=8)


@both_dtypes
def test_rms_norm_of_extreme_rows(dtype):
    """Rows of zeros without eps are 0 / 0, and large numbers do not overflow."""
    huge = [3e30, -4e30, 0.0, 0.0]
    x = np.array([huge, [0.0] * 4, [np.nan, 1, 1, 1], [np.inf, 1, 1, 1]], dtype)
    for module in (cpu, reference):
        with np.errstate(all="ignore"):
            out, inverse = module.rms_norm(x, None, 0.0)
        assert_close(out[0], np.array([1.2, -1.6, 0, 0]), 1e-6)
        assert np.isnan(out[1:3]).all()
        assert np.isnan(out[3, 0])
        assert_equal(out[3, 1:], np.zeros(3, dtype))
        assert inverse[1] == np.inf


# Dropout


@both_dtypes
@pytest.mark.parametrize("p", [0.0, 1e-9, 0.1, 0.5, 0.9, 1 - 1e-12, 1.0])
def test_dropout_masks_are_bitwise_equal(dtype, p):
    x = signed(rng_of(8), 7, 11, 13).astype(dtype)
    for seed in SEEDS:
        assert_same(cpu.dropout(x, p, seed), reference.dropout(x, p, seed))


def test_dropout_masks_are_equal_beyond_four_billion_elements():
    from tinyattn.kernels.cpu.dropout import drop_arguments, is_kept

    numbers = np.arange(200, dtype=np.uint64) * np.uint64(2**31 - 1)
    right = reference.kept(numbers, 0.5, SEEDS[-1])
    assert (right != reference.kept(numbers.astype(np.uint32), 0.5, SEEDS[-1])).any()
    drop = drop_arguments(0.5, SEEDS[-1], np.dtype(np.float32))
    assert_same(np.array([is_kept(int(i), drop) for i in numbers]), right)


def test_dropout_mask_depends_on_the_whole_seed_and_the_index():
    masks = {seed: reference.keep_mask((4000,), 0.5, seed) for seed in SEEDS}
    seeds = list(masks)
    for i, one in enumerate(seeds):
        for other in seeds[:i]:
            assert 0.45 < (masks[one] == masks[other]).mean() < 0.55
    for seed, mask in masks.items():
        assert 0.45 < mask.mean() < 0.55, seed
        for step in (1, 2, 64):
            assert 0.45 < (mask[step:] == mask[:-step]).mean() < 0.55
        # An element's fate does not depend on the shape around it.
        assert_same(reference.keep_mask((40, 100), 0.5, seed).reshape(-1), mask)


@both_dtypes
@pytest.mark.parametrize("p", [0.25, 0.75])
def test_dropout_share_and_scale(dtype, p):
    x = np.ones((300, 300), dtype)
    for module in (cpu, reference):
        out = module.dropout(x, p, 99)
        assert abs((out == 0).mean() - p) < 5 * math.sqrt(p * (1 - p) / x.size)
        assert set(np.unique(out)) == {dtype(0), dtype(1 / (1 - p))}


@both_dtypes
def test_dropped_elements_are_zero_whatever_they_were(dtype):
    x = np.full(200, np.nan, dtype)
    for module in (cpu, reference):
        out = module.dropout(x, 0.5, 3)
        assert 60 < (out == 0).sum() < 140
        assert_all_zero(module.dropout(x, 1.0, 3))


# Embedding, sums, erf, relu, Adam


@both_dtypes
@pytest.mark.parametrize("skip", [None, 0, 3])
def test_scatter_rows(dtype, skip):
    rng = rng_of(9)
    for width in (1, 2, 5, 16, 33):
        ids = rng.randint(0, 6, (4, 50))
        grad = signed(rng, 4, 50, width).astype(dtype)
        exact = np.zeros((8, width), np.longdouble)
        sizes = np.zeros((8, width))
        for row, value in zip(ids.reshape(-1), grad.reshape(-1, width), strict=True):
            exact[row] += value
            sizes[row] += np.abs(value)
        if skip is not None:
            exact[skip] = 0
        for module in (cpu, reference):
            for kind in (np.int64, np.int32, np.uint8):
                found = module.scatter_rows(grad, ids.astype(kind), 8, skip)
                assert found.dtype == dtype
                count = 1 if dtype == np.float32 else 50
                assert_within(found, exact, sizes, count=count)
                assert_all_zero(found[6:])


def test_scatter_rows_into_a_large_table_takes_memory_for_the_rows_that_occur():
    grad, ids = np.ones((3, 64), np.float32), np.array([7, 1, 7])
    cpu.scatter_rows(grad, ids, 20000, None)  # compiled before it is looked at
    tracemalloc.start()
    table = cpu.scatter_rows(grad, ids, 20000, None)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.1 * table.nbytes
    assert table[[1, 7], 0].tolist() == [1, 2]


def test_sums_of_float32_do_not_stall():
    """A float32 that counts ones stops at 2**24; the accumulators are wider."""
    n = 2**24 + 1000
    ones = np.broadcast_to(np.float32(1), (n, 1))
    assert cpu.sum_rows(ones).tolist() == [float(np.float32(n))]
    assert reference.sum_rows(ones).tolist() == [float(np.float32(n))]


def test_small_parts_of_sums_are_not_lost():
    """Each is half of what a float32 loses beside 1."""
    grad = np.full((4096, 1), 2.0**-25, np.float32)
    grad[0] = 1
    for module in (cpu, reference):
        table = module.scatter_rows(grad, np.zeros(4096, np.int64), 1, None)
        assert table.tolist() == [[float(np.float32(1 + 4095 * 2.0**-25))]]
        assert module.sum_rows(np.repeat(grad, 2, axis=1)).tolist() == 2 * table.tolist()[0]


@both_dtypes
def test_sum_rows(dtype):
    rng = rng_of(10)
    for rows, width in ((0, 3), (1, 1), (7, 5), (1000, 33), (3, 0)):
        x = signed(rng, rows, width).astype(dtype)
        for module in (cpu, reference):
            found = module.sum_rows(x)
            assert (found.dtype, found.shape) == (dtype, (width,))
            assert_within(found, wide(x)[0].sum(axis=0), np.abs(x).sum(axis=0) + 1e-300, count=8)


@both_dtypes
def test_erf(dtype):
    x = np.concatenate([np.linspace(-6, 6, 2001), [0.0, -0.0, 1e-30, 30.0, -30.0]]).astype(dtype)
    exact = np.array([math.erf(float(value)) for value in x])
    for module in (cpu, reference):
        found = module.erf(x)
        assert found.dtype == dtype
        assert ulps(found, exact) <= 2
        special = module.erf(np.array([np.inf, -np.inf, np.nan], dtype))
        assert special[:2].tolist() == [1, -1]
        assert np.isnan(special[2])


def exact_sigmoid(x):
    return 1 / (1 + np.exp(-x))


EXACT = {
    "sigmoid": exact_sigmoid,
    "erf": lambda x: np.array([math.erf(value) for value in x]),
}


@pytest.mark.parametrize("name", EXACT)
def test_functions_of_float32_are_within_one_unit_in_the_last_place(name, same_threads_afterwards):
    """From the smallest number to the largest; infinities and NaN as NumPy has them."""
    ta.set_num_threads(1)  # because NumPy's settings below are those of this thread
    rng = rng_of(43)
    scales = [1e-42, 1e-30, 1e-9, 1e-4, 1e-2, 0.3, 1, 3, 10, 40, 100, 1000, 3e37]
    drawn = [rng.normal(size=4000) * scale for scale in scales]
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 88.7, 89.0, -88.0, -103.9, -104.0]
    x = np.concatenate([*drawn, special]).astype(np.float32)
    with np.errstate(all="ignore"):
        exact = np.asarray(EXACT[name](x.astype(np.float64)), np.float64)
        rounded = exact.astype(np.float32)
        found = getattr(cpu, name)(x)
    finite = np.isfinite(rounded)
    assert finite.sum() > 20_000
    assert_equal(found[~finite], rounded[~finite])
    assert ulps(found[finite], exact[finite]) <= 1


@pytest.mark.parametrize("kind", ["silu", "gelu"])
def test_minus_infinity_times_0_is_nan_as_in_the_formula(kind):
    """A sigmoid that is nearly 0 there would make it -inf."""
    x = ta.tensor(np.full(9, -np.inf, np.float32), requires_grad=True)
    with np.errstate(invalid="ignore"):
        out = F.silu(x) if kind == "silu" else F.gelu(x, "tanh")
        out.backward(ta.ones(9))
    assert np.isnan(out.numpy()).all()
    assert np.isnan(x.grad.numpy()).all()


def test_softplus_is_within_four_units_in_the_last_place():
    """It has no kernel, and NumPy's exp and log1p of float32 are each off by up to two."""
    x = np.concatenate([signed(rng_of(43), 4000) * scale for scale in (1e-4, 1, 10, 100)])
    x = x.astype(np.float32)
    exact = np.logaddexp(0, x.astype(np.float64))
    assert ulps(reference.softplus(x), exact) <= 4


def test_silu_is_within_two_units_in_the_last_place():
    """It has no kernel: the rounded product of x and its rounded sigmoid. Without the kernel of
    sigmoid it is within four, because the formula rounds exp(-x) and 1 + exp(-x) too."""
    x = np.concatenate([signed(rng_of(44), 4000) * scale for scale in (1e-4, 1, 10, 30)])
    x = x.astype(np.float32)
    exact = x.astype(np.float64) * exact_sigmoid(x.astype(np.float64))
    limit = 4 if FORMULAS_ONLY else 2
    assert ulps(ta.functional.silu(ta.tensor(x)).numpy(), exact) <= limit


@both_dtypes
@pytest.mark.parametrize("kernel", ["fast", "plain"])
def test_silu_backward(dtype, kernel):
    x = np.linspace(-30, 30, 4001).astype(dtype)
    wide_x = x.astype(np.longdouble)
    part = exact_sigmoid(wide_x)
    rest = wide_x * part * (1 - part)
    grad = signed(rng_of(44), x.size).astype(dtype)
    found = (cpu if kernel == "fast" else reference).silu_backward(grad, x)
    assert found.dtype == dtype
    # 1 - part loses a digit of part for each factor of ten that it is smaller.
    size = part + np.abs(wide_x) * part
    assert_within(found, (part + rest) * grad, size * np.abs(grad), count=4)


@both_dtypes
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_cumsum(dtype, reverse, axis):
    """The float32 sums keep what 2**24 + 1 would lose."""
    x = signed(rng_of(45), 3, 50, 4).astype(dtype)
    x[0, 0, 0] = 2.0**24

    def exact(values):
        values = np.flip(values, axis) if reverse else values
        total = values.astype(np.longdouble).cumsum(axis)
        return np.flip(total, axis) if reverse else total

    for module in (cpu, reference):
        found = module.running_sum(x, axis, reverse)
        assert found.dtype == dtype
        if dtype == np.float32:
            assert ulps(found, exact(x)) <= 1
        assert_within(found, exact(x), exact(np.abs(x)), count=50)


@both_dtypes
@pytest.mark.parametrize("integers", [np.int64, np.int32, np.uint8])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_elements_by_index_and_their_sums(dtype, integers, dim):
    """Several come to one place. Sums keep what 2**24 + 1 would lose."""
    rng = rng_of(46)
    x, shape = signed(rng, 3, 7, 5).astype(dtype), [3, 7, 5]
    shape[dim] = 11
    index = rng.randint(0, x.shape[dim], shape).astype(integers)
    values = signed(rng, *shape).astype(dtype)
    values.flat[0] = 2.0**24
    wanted, sizes = np.zeros((2, *x.shape), np.longdouble)
    for place in np.ndindex(*shape):
        target = (*place[:dim], index[place], *place[dim + 1 :])
        wanted[target] += values[place]
        sizes[target] += abs(values[place])
    for module in (cpu, reference):
        taken = module.taken_along(x, index, dim)
        assert_equal(taken, np.take_along_axis(x, index.astype(np.int64), dim))
        added = module.added_along(values, index, dim, x.shape)
        assert added.dtype == dtype
        assert_within(added, wanted, sizes, count=shape[dim])
        if dtype == np.float32:
            assert ulps(added, wanted) <= 1


@both_dtypes
@pytest.mark.parametrize(
    ("dim", "sizes"), [(1, (3, 1, 5, 4)), (1, (3, 2, 5, 4)), (2, (3, 3, 2, 6)), (3, (2, 4, 5, 2))]
)
def test_an_index_may_be_shorter_in_other_dimensions(dtype, dim, sizes):
    """Where it has one element along dim, no two come to one place."""
    shape, rng = (3, 4, 5, 6), rng_of(47)
    x, values = signed(rng, *shape).astype(dtype), signed(rng, *sizes).astype(dtype)
    index = rng.randint(0, 2, sizes)
    taken, added = np.zeros(sizes, dtype), np.zeros(shape, dtype)
    for place in np.ndindex(*sizes):
        target = (*place[:dim], index[place], *place[dim + 1 :])
        taken[place] = x[target]
        added[target] += values[place]
    for module in (cpu, reference):
        assert_equal(module.taken_along(x, index, dim), taken)
        assert_equal(module.added_along(values, index, dim, shape), added)


@pytest.mark.parametrize("name", ["remainder", "floor_divide"])
def test_whole_quotients_are_pythons_to_the_bit(name):
    operation = {"remainder": operator.mod, "floor_divide": operator.floordiv}[name]
    numbers = [0.0, -0.0, 1.0, -1.0, 0.75, -2.5, 1e10, -1e-10, math.inf, -math.inf]
    pairs = [(x, y) for x in numbers for y in numbers if y and math.isfinite(x)]
    found = getattr(reference, name)(*np.array(pairs).T)
    assert found.tobytes() == np.array([operation(x, y) for x, y in pairs]).tobytes()


@pytest.mark.parametrize("name", ["remainder", "floor_divide"])
@pytest.mark.parametrize("scale", [1e-40, 1e-3, 1.0, 1e6, 1e15, 1e30])
def test_whole_quotients_are_numpys_to_the_bit(name, scale):
    """Those that the kernel leaves to the formula too."""
    rng = rng_of(46)
    x, y = rng.normal(size=3000) * scale, signed(rng, 3000)
    x[1000:2000], y[1000:2000] = np.round(4 * x[1000:2000]) / 4, np.ceil(4 * y[1000:2000] + 0.5) / 4
    x[:6], y[:6] = [0.0, -0.0, 0.0, -1.0, 3.0, 1e-45], [1.0, 1.0, -1.0, 1.0, -1.0, -1.0]
    x, y = x.astype(np.float32), np.where(y == 0, 1, y).astype(np.float32)
    special = np.array([np.inf, -np.inf, np.nan, 1, 1, -1, 0], np.float32)
    cases = [(x, y), (x[None, :7], y[:5, None]), (x, 0.75), (x, -2), (special, special[::-1])]
    cases += [(y, math.inf), (special[3:], np.float32(-math.inf)), (x.astype(np.float64), y)]
    for arguments in [*cases, (x[:0], y[:0])]:
        with np.errstate(all="ignore"):
            found, expected = getattr(cpu, name)(*arguments), getattr(np, name)(*arguments)
        assert found.dtype == expected.dtype
        assert found.tobytes() == expected.tobytes()


@both_dtypes
def test_sigmoid_backward(dtype):
    out = np.concatenate([[0, 1, 1e-30, 0.5], rng_of(54).uniform(size=40)]).astype(dtype)
    grad = signed(rng_of(55), 44).astype(dtype)
    g, s = wide(grad, out)
    for module in (cpu, reference):
        found = module.sigmoid_backward(grad, out)
        assert found.dtype == dtype
        assert_within(found, g * s * (1 - s), np.abs(g) * s, count=3)


@both_dtypes
def test_inverse_root(dtype):
    x = np.concatenate([signed(rng_of(52), 40) ** 2, [1, 0, -0.0, np.inf, -np.inf, np.nan, -1]])
    x = x.astype(dtype)
    with np.errstate(all="ignore"):
        root, found = x.astype(np.longdouble) ** -0.5, inverse_root(x)
    assert found.dtype == dtype
    assert ulps(found[:41], root[:41]) <= 1.5
    np.testing.assert_array_equal(found[41:], root[41:].astype(dtype))


@pytest.mark.parametrize(
    ("x_shape", "y_shape"), [((6, 50), (6, 50)), ((50,), (6, 1)), ((6, 50), ()), ((), (1, 50))]
)
def test_where_reads_both_and_branches_nowhere(x_shape, y_shape):
    rng = rng_of(53)
    x, y = (rng.standard_normal(shape).astype(np.float32) for shape in (x_shape, y_shape))
    condition = rng.uniform(size=(2, 6, 50)) < 0.5
    for mask in (condition, condition[:, ::-1], condition[0, 0], condition[..., :1]):
        expected = np.where(mask, x, y)
        for module in (cpu, reference):
            found = module.where(mask, x, y)
            assert found.tobytes() == expected.tobytes()
            assert (found.dtype, found.shape) == (np.float32, expected.shape)
    wide_x, integers = x.astype(np.float64), rng.randint(0, 9, (6, 50))
    for pair in ((wide_x, y), (x, integers), (0.5, 2), (x, np.float64(0.1)), (x, True)):
        for swapped in (pair, pair[::-1]):
            found, expected = cpu.where(condition, *swapped), np.where(condition, *swapped)
            assert (found.dtype, found.tobytes()) == (expected.dtype, expected.tobytes())
    with_nan = np.array([np.nan, -0.0, np.inf, 1e-45], np.float32)
    for number in (math.nan, -0.0, math.inf, 3, 0.1):
        mask = np.array([True, False, True, False])
        assert (
            cpu.where(mask, with_nan, number).tobytes()
            == np.where(mask, with_nan, np.float32(number)).tobytes()
        )
    assert cpu.where(condition * 2, x, y).tobytes() == np.where(condition, x, y).tobytes()


@both_dtypes
@pytest.mark.parametrize("rows", [1, 3, 8, 9])
@pytest.mark.parametrize("shape", [(1, 1), (7, 33), (300, 576), (4, 0), (0, 4)])
def test_int8_product(dtype, rows, shape):
    rng = rng_of(27)
    x = signed(rng, rows, shape[1]).astype(dtype)
    numbers, scale = rng.randint(-127, 128, shape).astype(np.int8), rng.uniform(1, 2, shape[0])
    scale = scale.astype(dtype)
    terms = wide(np.abs(x))[0] @ np.abs(numbers.T.astype(float)) * np.abs(scale)
    exact = wide(x)[0] @ numbers.T.astype(float) * scale
    for module in (cpu, reference):
        found = module.int8_product(x, numbers, scale)
        assert (found.dtype, found.shape) == (dtype, (rows, shape[0]))
        assert_within(found, exact, terms, count=8)


@both_dtypes
def test_products_of_rows(dtype):
    """A part of a product may be too large for the dtype, and is computed in a wider one."""
    x = signed(rng_of(49), 5, 100).astype(dtype)
    x[:, 50:] = 1 / x[:, 49::-1] * x[:, :1]
    x[1, 3] = 0
    for n in (0, 1, 2, 15, 16, 33, 100):
        found, exact = ta.tensor(x[:, :n]).prod(1).numpy(), wide(x[:, :n])[0].prod(axis=1)
        assert found.dtype == dtype
        rounding = 1e-13 if dtype == np.float64 else 2 * np.finfo(np.float32).eps
        np.testing.assert_allclose(found, exact.astype(np.float64), rtol=rounding)
    for module in (cpu, reference):
        found = module.products(x[:1], 1)
        assert found.dtype == np.float64
        assert found.shape == (1, 1)
        assert_within(found, wide(x[:1])[0].prod(axis=1, keepdims=True), np.abs(found), count=100)
    assert ta.tensor(x[:0]).prod(1).shape == (0,)
    ends = ta.tensor(np.array([[1e300, 1e300, 1e-300, 1e-300]]))
    assert ends.prod(1).tolist() == [1.0]  # by halves, not inf * 0
    for first, last in [(1e38, 1e-38), (1e-38, 1e38)]:  # beyond float64, and below it
        row = ta.tensor(np.repeat(np.array([first, last], np.float32), 1000)[None])
        assert abs(row.prod(1).item() - 1) < 1e-3  # 1e-38 is rounded 1,000 times


@pytest.mark.parametrize(("numbers", "grad"), [([1e200, 1e40], 1e100), ([1e-200, 1e-40], 1e-100)])
def test_the_gradient_of_a_product_stays_in_range(numbers, grad):
    """The product times its gradient may be beyond float64, and is not computed."""
    x = ta.tensor(numbers, dtype=ta.float64, requires_grad=True)
    x.prod().backward(ta.tensor(grad, dtype=ta.float64))
    whole = np.array(numbers, np.longdouble)
    exact = [np.prod(np.delete(whole, i)) * np.longdouble(grad) for i in range(len(whole))]
    np.testing.assert_allclose(x.grad.numpy(), np.array(exact, np.float64), rtol=1e-15)


@pytest.mark.parametrize("name", ["var", "std"])
@pytest.mark.parametrize("dim", [None, 0, -1])
def test_a_number_has_no_variance(name, dim):
    x = ta.tensor(2.0, requires_grad=True)
    getattr(x, name)(dim, unbiased=False).backward()
    assert x.grad.tolist() == 0.0


@pytest.mark.parametrize("dim", [None, 0, 1, 2, -1, (0, 2)])
def test_scaled_distances(dim):
    """From the mean that float64 has, because all numbers may be large and nearly equal."""
    x = (signed(rng_of(48), 3, 7, 5) + 1e4).astype(np.float32)
    mean = wide(x)[0].mean(axis=dim, keepdims=True)
    factor = signed(rng_of(49), *mean.shape)
    for module in (cpu, reference):
        found = module.scaled_distances(x, factor, dim).astype(np.float32)
        assert ulps(found, (x - mean) * factor) <= 1
        assert module.scaled_distances(x[:0], factor[:0], 1).shape == (0, 7, 5)


@both_dtypes
def test_sum_squares(dtype):
    x = signed(rng_of(47), 5, 100).astype(dtype)
    for module in (cpu, reference):
        found = module.sum_squares(x)
        assert found.dtype == np.float64
        assert_within(found, (wide(x)[0] ** 2).sum(axis=1), (x**2).sum(axis=1), count=8)
        assert module.sum_squares(x[:, :0]).tolist() == [0.0] * 5
        assert module.sum_squares(x[:0]).shape == (0,)


AXES = [None, 0, -1, (0, 1), (1, 2), (2, 0), (), (0, 1, 2), 1]


@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize("axis", AXES)
def test_large_sums_are_those_of_float64(axis, keepdims):
    x = signed(rng_of(48), 7, 60, 50).astype(np.float32)
    x[1, 2, 3] = 1e8  # beside which a sum in float32 loses the others
    assert x.size >= sums.LARGE
    exact = x.sum(axis=axis, keepdims=keepdims, dtype=np.float64)
    found = cpu.sum_large(x, axis, keepdims)
    assert (found.dtype, found.shape) == (np.float64, exact.shape)
    np.testing.assert_allclose(found, exact, rtol=1e-13, atol=1e-9)
    backwards = x[:, :, ::-1].copy()[:, :, ::-1]
    for array in (x, backwards, np.asfortranarray(x)):
        for mean, expected in ((False, exact), (True, exact * exact.size / x.size)):
            total = sums.reduce_sum(array, axis, keepdims, mean)
            assert (total.dtype, total.shape) == (np.float32, exact.shape)
            assert ulps(total, expected) <= 0.51


def test_large_sums_may_leave_float32_and_a_mean_stays():
    x = np.full((400, 6000), 3e38, np.float32)
    np.testing.assert_array_equal(sums.reduce_sum(x, 0, mean=True), x[0])
    x[3, 4] = np.nan
    with np.errstate(over="ignore"):
        assert sums.reduce_sum(x[:3], (0, 1)) == np.inf
        assert np.isnan(sums.reduce_sum(x, 1)).nonzero()[0].tolist() == [3]


def exact_normal_cdf(x):
    """erfc(-x / sqrt(2)) / 2, in extended precision though erfc is a float64's: its argument's
    rounding error times its slope is taken off."""
    z = -x.astype(np.longdouble) / np.sqrt(np.longdouble(2))
    rounded = z.astype(np.float64)
    erfc = np.array([math.erfc(value) for value in rounded], np.longdouble)
    slope = -2 / np.sqrt(np.longdouble(math.pi)) * np.exp(-(z**2))
    return (erfc + slope * (z - rounded)) / 2


@both_dtypes
def test_normal_cdf(dtype):
    """In float64 the argument of erfc is rounded, and the slope there is steep."""
    x, most = np.linspace(-9, 9, 4001).astype(dtype), 1 if dtype == np.float32 else 100
    for module in (cpu, reference):
        found = module.normal_cdf(x)
        assert found.dtype == dtype
        assert ulps(found, exact_normal_cdf(x).astype(np.float64)) <= most


def exact_gelu(x, approximate):
    """The value, the slope, and how large the terms of the slope are."""
    wide_x = x.astype(np.longdouble)
    if approximate == "none":
        cdf = exact_normal_cdf(x)
        rest = wide_x * np.exp(-(wide_x**2) / 2) / np.sqrt(2 * np.longdouble(math.pi))
    else:
        scale, cubic = 2 * np.sqrt(2 / np.longdouble(math.pi)), np.longdouble(0.044715)
        cdf = 1 / (1 + np.exp(-scale * (wide_x + cubic * wide_x**3)))
        rest = wide_x * cdf * (1 - cdf) * scale * (1 + 3 * cubic * wide_x**2)
    return wide_x * cdf, cdf + rest, cdf + np.abs(rest)


GELUS = {"none": "gelu", "tanh": "gelu_tanh"}


@pytest.mark.parametrize("approximate", GELUS)
def test_gelu_of_float32_is_within_two_units_in_the_last_place(approximate):
    """Also where 1 + erf would have no correct digit, and where results are below the smallest
    normal number."""
    dense = np.linspace(-15, 15, 60001)
    x = np.concatenate([dense, rng_of(40).normal(size=5000), [0.0, -0.0, 1e-30, -1e-44, 9e37]])
    x = x.astype(np.float32)
    with np.errstate(over="ignore"):
        value, slope, size = exact_gelu(x, approximate)
    found = getattr(cpu, GELUS[approximate])(x)
    assert found.dtype == np.float32
    assert ulps(found, value) <= 1
    grad = signed(rng_of(41), x.size).astype(np.float32)
    back = getattr(cpu, GELUS[approximate] + "_backward")(grad, x)
    assert back.dtype == np.float32
    near = np.abs(x) < 1e10  # beyond, the exact slope is inf * 0
    assert_within(back[near], (slope * grad)[near], (size * np.abs(grad))[near], count=1)


@both_dtypes
@pytest.mark.parametrize("kernel", ["fast", "plain"])
@pytest.mark.parametrize("approximate", GELUS)
def test_gelu(dtype, kernel, approximate):
    """A rounding error in the argument of exp, which grows as x^2 or x^4, is a relative one."""
    module, name = cpu if kernel == "fast" else reference, GELUS[approximate]
    x = np.linspace(-9, 9, 4001).astype(dtype)
    value, slope, size = exact_gelu(x, approximate)
    growth = 4 + x.astype(np.float64) ** (2 if approximate == "none" else 4)
    assert_within(getattr(module, name)(x), value, np.abs(value) * growth, count=1)
    grad = signed(rng_of(42), x.size).astype(dtype)
    back = getattr(module, f"{name}_backward")(grad, x)
    assert back.dtype == dtype
    assert_within(back, slope * grad, size * np.abs(grad) * growth, count=1)


@both_dtypes
@pytest.mark.parametrize("kernel", ["fast", "plain"])
@pytest.mark.parametrize("approximate", GELUS)
def test_gelu_of_special_numbers(dtype, kernel, approximate):
    """-inf times a Phi of 0 is NaN, as in PyTorch."""
    module, name = cpu if kernel == "fast" else reference, GELUS[approximate]
    x = np.array([np.nan, -np.inf, np.inf, -1e12, -100, -0.0, 0.0, 100, 1e12], dtype)
    with np.errstate(all="ignore"):
        found = getattr(module, name)(x)
        back = getattr(module, f"{name}_backward")(np.full(9, 2, dtype), x)
    assert_equal(found, np.array([np.nan, np.nan, np.inf, 0, 0, 0, 0, 100, 1e12], dtype))
    assert_equal(back, np.array([np.nan, np.nan, np.nan, 0, 0, 1, 1, 2, 2], dtype))


@both_dtypes
def test_relu_backward(dtype):
    out = np.maximum(signed(rng_of(11), 3, 7), 0).astype(dtype)
    grad = signed(rng_of(12), 3, 7).astype(dtype)
    grad[out == 0] = np.nan
    for module in (cpu, reference):
        assert_equal(np.asarray(module.relu_backward(grad, out)), np.where(out > 0, grad, dtype(0)))


@both_dtypes
@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam(dtype, decay, decoupled):
    rng = rng_of(13)
    start = [signed(rng, 37), 0.1 * signed(rng, 37), np.abs(signed(rng, 37))]
    grads = [signed(rng, 37).astype(dtype) for _ in range(20)]
    settings = (0.01, 0.9, 0.99, 1e-8, decay, decoupled)
    results = []
    for module, kind in ((cpu, dtype), (reference, dtype), (reference, np.longdouble)):
        state = [a.astype(kind) for a in start]
        for step, grad in enumerate(grads, 1):
            before = grad.copy()
            parameter, m, v = state
            module.adam(m, v, parameter, grad.astype(kind), AdamStep(*settings, step))
            assert_same(grad, before)
        results.append(state)
    for state in results[:2]:
        for array, exact in zip(state, results[2], strict=True):
            assert array.dtype == dtype
            assert_close(array, exact, 60 * np.finfo(dtype).eps)


FIRST_STEP = AdamStep(0.1, 0.9, 0.999, 1e-8, 0.0, False, 1)


@both_dtypes
def test_adam_first_step_with_a_zero_gradient_moves_nothing(dtype):
    for module in (cpu, reference):
        parameter, m, v, grad = np.ones(3, dtype), *np.zeros((3, 3), dtype)
        module.adam(m, v, parameter, grad, FIRST_STEP)
        assert parameter.tolist() == [1, 1, 1]


@compiled
@both_dtypes
def test_adam_is_compiled_once_for_each_dtype(dtype):
    """Whatever gradients look like: a read-only one is of another type to Numba."""
    from tinyattn.kernels.cpu.optimizer import adam_elements

    fixed = np.ones((2, 3), dtype)
    fixed.setflags(write=False)
    for grad in (np.ones((2, 3), dtype), fixed, np.ones((3, 2), dtype).T):
        m, v, parameter = np.ones((3, 2, 3), dtype)
        cpu.adam(m, v, parameter, grad, FIRST_STEP)
    compiled = [types[0].dtype.name for types in adam_elements.__wrapped__.signatures]
    assert compiled.count(np.dtype(dtype).name) == 1


# Attention


# Queries, keys, widths: several tiles of keys and several blocks of queries backward; then forward
# too. As plain Python these would take minutes.
TILES = [(40, 70, 20, 9), (260, 300, 4, 5)] if os.environ.get("NUMBA_DISABLE_JIT") != "1" else []


def exact_attention(q, k, v, seen, scale, keep):
    q, k, v = wide(q, k, v)
    weights = exact_softmax(q @ k.swapaxes(-1, -2) * scale, seen)
    return (weights * keep) @ v, weights


@both_dtypes
@pytest.mark.parametrize("p", [0.0, 0.3])
def test_attention_and_its_backward(dtype, p):
    rng = rng_of(14)
    tolerance = 60 * np.finfo(dtype).eps
    for queries, keys, width, value_width in (
        (1, 1, 1, 1),
        (3, 5, 4, 7),
        (6, 33, 8, 3),
        (4, 17, 5, 5),
        *TILES,
    ):
        heads = 3 if queries < 100 else 1  # products of long doubles take long
        shape = (2, heads, queries, keys)
        q, k = (signed(rng, 2, heads, n, width).astype(dtype) for n in (queries, keys))
        v = signed(rng, 2, heads, keys, value_width).astype(dtype)
        grad = signed(rng, 2, heads, queries, value_width).astype(dtype)
        for limits, mask in hidings(rng, shape):
            seen = seen_of(shape, limits, mask)
            keep = reference.keep_mask(shape, p, 77) / (1 - p) if p else np.ones(shape)
            exact, exact_weights = exact_attention(q, k, v, seen, 0.4, keep)
            dweights = np.where(seen, (wide(grad)[0] @ wide(v)[0].swapaxes(-1, -2)) * keep, 0)
            inner = (dweights * exact_weights).sum(axis=-1, keepdims=True)
            dscores = exact_weights * (dweights - inner) * 0.4
            expected = (
                dscores @ wide(k)[0],
                dscores.swapaxes(-1, -2) @ wide(q)[0],
                (exact_weights * keep).swapaxes(-1, -2) @ wide(grad)[0],
            )
            for module in (cpu, reference):
                settings = (limits, mask, 0.4, p, 77)
                out, saved = attention_of(module, q, k, v, *settings)
                found = attention_backward_of(module, grad, q, k, v, *settings, saved)
                pairs = [(out, exact), *zip(found, expected, strict=True)]
                if module is reference:  # the compiled kernel never has all weights
                    assert_all_zero(np.append(saved[~seen], 0))
                    pairs.append((saved, exact_weights))
                for actual, wanted in pairs:
                    assert actual.dtype == dtype
                    scale = max(1.0, float(np.abs(wanted).max(initial=0)))
                    assert np.abs(actual - wanted).max(initial=0) <= tolerance * scale
                hidden = ~seen.any(axis=2)
                assert_all_zero(np.append(found[1][hidden], 0))
                assert_all_zero(np.append(found[2][hidden], 0))


@both_dtypes
@pytest.mark.parametrize("transposed", [False, True])
def test_weighted_sum_leaves_hidden_nan_out(dtype, transposed):
    rng = rng_of(15)
    function = getattr(cpu, "weighted_sum", reference.weighted_sum)
    weights = rng.uniform(size=(2, 1, 3, 4)).astype(dtype)
    mask = rng.uniform(size=(2, 1, 3, 4)) < 0.6
    mask[0, 0, :, 1] = False
    mask[0, 0, 2] = False
    weights[~mask] = 0
    visibility = of_padded(weights.shape, mask=mask)
    values = signed(rng, 2, 1, 3 if transposed else 4, 5).astype(dtype)
    given = weights.swapaxes(-1, -2) if transposed else weights
    clean = function(given, values, visibility, transposed)
    assert_close(clean, given @ values, 1e-6)
    row = 2 if transposed else 1
    for value in (np.nan, np.inf):
        poisoned = values.copy()
        poisoned[0, 0, row] = value
        with np.errstate(invalid="ignore"):  # the ops' business, not the kernel's
            assert_equal(function(given, poisoned, visibility, transposed), clean)
            visible = values.copy()
            visible[1, 0, 0] = value
            assert not np.isfinite(function(given, visible, visibility, transposed)).all()


# Attention of packed samples


def exact_packed_attention(q, k, v, grad, lengths, limits, scale, keep):
    """Output and gradients (R, H, d) of packed samples, one by one, in extended precision."""
    results, start = [], 0
    for b, n in ((b, n) for b, n in enumerate(lengths) if n):
        rows = slice(start, start + n)
        of_sample = (np.moveaxis(x[rows], 1, 0)[None] for x in (q, k, v, grad))  # (1, H, n, d)
        q_, k_, v_, g = wide(*of_sample)
        shape, kept = (1, q.shape[1], n, n), keep[b : b + 1, :, :n, :n]
        seen = seen_of(shape, None if limits is None else limits[b % len(limits)][None, :n], None)
        out, weights = exact_attention(q_, k_, v_, seen, scale, kept)
        dweights = np.where(seen, (g @ v_.swapaxes(-1, -2)) * kept, 0)
        dscores = weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True)) * scale
        dropped = (weights * kept).swapaxes(-1, -2)
        found = out, dscores @ k_, dscores.swapaxes(-1, -2) @ q_, dropped @ g
        results.append([np.moveaxis(x[0], 0, 1) for x in found])
        start += n
    return [np.concatenate(x) for x in zip(*results, strict=True)]


PACKED_LENGTHS = [[1], [5], [3, 1, 2], [0, 4, 0, 7], [9, 9, 9], [33, 2, 40, 0]]
PACKED_LENGTHS += [[300, 1, 65, 257]] if TILES else []


@both_dtypes
@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize("lengths", PACKED_LENGTHS, ids=str)
def test_attention_and_its_backward_of_packed_samples(dtype, p, lengths):
    """Against each sample by itself: widths that fill no vector, several blocks, empty samples."""
    rng = rng_of(31)
    tolerance = 60 * np.finfo(dtype).eps
    longest, total = max(lengths), sum(lengths)
    samples = (samples_of(tuple(lengths)),) * 2
    for heads, d in ((1, 1), (2, 5), (3, 4), (2, 16)):
        shape = (len(lengths), heads, longest, longest)
        keep = reference.keep_mask(shape, p, 77) / (1 - p) if p else np.ones(shape)
        arrays = [signed(rng, total, heads, d).astype(dtype) for _ in range(4)]
        before = [x.copy() for x in arrays]
        q, k, v, grad = arrays
        causal = np.arange(1, longest + 1)[None]
        for limits in (None, causal, rng.randint(0, longest + 1, (len(lengths), 1))):
            exact = exact_packed_attention(q, k, v, grad, lengths, limits, 0.4, keep)
            for module in (cpu, reference):
                settings = Visibility(*samples, limits), 0.4, reference.Drop(p, 77)
                out, saved = module.attention(q, k, v, settings)
                back = module.attention_backward(grad, q, k, v, settings, None, saved)
                for actual, wanted in zip((out, *back), exact, strict=True):
                    assert actual.dtype == dtype
                    assert actual.shape == wanted.shape
                    size = max(1.0, float(np.abs(wanted).max(initial=0)))
                    assert np.abs(actual - wanted).max(initial=0) <= tolerance * size
        for x, unchanged in zip(arrays, before, strict=True):
            assert_same(x, unchanged)


@both_dtypes
@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize("lengths", PACKED_LENGTHS[2:], ids=str)
def test_packed_attention_is_the_padded_one_bit_by_bit(dtype, p, lengths):
    """Whatever stands in the padding. Where a sample has few keys and many queries, a block of
    another width would add up the gradients of the keys in another order."""
    rng = rng_of(32)
    longest, batch, heads, d = max(lengths), len(lengths), 2, 5
    causal = np.arange(1, longest + 1)[None]
    for key_lengths, limits in ((lengths, None), (lengths, causal), (lengths[::-1], None)):
        of_queries, of_keys = (
            np.arange(longest) < np.array(counts)[:, None] for counts in (lengths, key_lengths)
        )  # (B, L)
        exists = (of_queries, of_keys, of_keys, of_queries)  # rows of q, k, v and grad
        padded = [signed(rng, batch, longest, heads, d).astype(dtype) for _ in exists]
        padded[3][~of_queries] = 0
        packed = [x[rows] for x, rows in zip(padded, exists, strict=True)]
        flat = [x.reshape(batch * longest, heads, d) for x in padded]
        lens = np.array(key_lengths)[:, None]
        results = []
        for arrays, samples, reach in (
            (packed, (tuple(lengths), tuple(key_lengths)), limits),
            (flat, ((longest,) * batch,) * 2, lens if limits is None else np.minimum(lens, limits)),
        ):
            q, k, v, grad = arrays
            visibility = Visibility(*map(samples_of, samples), reach)
            settings = visibility, 0.4, reference.Drop(p, 77)
            out, saved = cpu.attention(q, k, v, settings)
            dq, dk, dv = cpu.attention_backward(grad, q, k, v, settings, None, saved)
            results.append((dq, dk, dv, out))
        for one, other, rows in zip(*results, exists, strict=True):
            assert_equal(one, other[rows.reshape(-1)])


def test_the_limits_and_the_mask_of_kernels_are_the_visible_pairs():
    """Kernels read a Visibility as two arrays, the reference as it is defined."""
    rng = rng_of(35)
    shape = batch, _, queries, keys = 3, 2, 5, 6
    packed = samples_of((5, 0, 2)), samples_of((3, 6, 1))
    padded = of_padded(shape)[:2]
    limits, starts = rng.randint(0, keys + 2, (2, batch, queries))
    mask = rng.uniform(size=shape) < 0.7
    place = np.arange(keys)
    for samples, lens in ((packed, np.array([3, 6, 1])), (padded, np.full(3, keys))):
        for a, b, c in np.ndindex(2, 2, 2):
            hidden = (limits if a else None, mask if b else None, starts if c else None)
            visibility = Visibility(*samples, *hidden)
            two = visibility.as_limits_and_mask(mask)
            visible, of_two = (
                x.visible_pairs(mask) for x in (visibility, Visibility(*padded, *two))
            )
            assert (visible is None) == (of_two is None) == visibility.all_visible
            if visible is not None:
                assert_equal(*(np.broadcast_to(x, shape) for x in (visible, of_two)))
                expected = np.broadcast_to(place < lens[:, None, None, None], shape)
                expected = expected & (place < limits[:, None, :, None]) if a else expected
                expected = expected & mask if b else expected
                expected = expected & (place >= starts[:, None, :, None]) if c else expected
                # Of queries that are padding nothing is asked.
                is_query = (np.arange(queries) < samples[0].lengths[:, None])[:, None, :, None]
                assert_equal(*(np.broadcast_to(x, shape) & is_query for x in (visible, expected)))


# Relu


@both_dtypes
@pytest.mark.parametrize("kernel", ["fast", "plain"])
def test_relu_of_every_kind_of_number(dtype, kernel):
    function = (cpu if kernel == "fast" else reference).relu
    tiny = np.finfo(dtype).smallest_subnormal
    x = np.array([-np.inf, -1, -tiny, -0.0, 0.0, tiny, 1.5, np.inf, np.nan, -np.nan], dtype)
    expected = np.array([0, 0, 0, 0, 0, tiny, 1.5, np.inf, np.nan, np.nan], dtype)
    for times in (1, 2000):  # the kernel takes many numbers
        x, expected = np.tile(x, times), np.tile(expected, times)
        assert_equal(function(x), expected)
        assert_equal(function(x.reshape(2, -1).T), expected.reshape(2, -1).T)
    for width in WIDTHS:
        values = signed(rng_of(width), 3, width).astype(dtype)
        before = values.copy()
        assert_same(function(values), np.where(values > 0, values, dtype(0)))
        assert_same(values, before)
    assert_same(np.asarray(function(np.array(-2.0, dtype))), np.array(0, dtype))


# How they are compiled


@compiled
def test_functions_that_only_kernels_call_leave_no_file(tmp_path):
    """Numba keeps on the disk only what Python calls."""
    code = (
        "import numpy as np; from tinyattn.kernels import cpu_kernel; "
        "x = np.ones((2, 3), np.float32); "
        "cpu_kernel('layer_norm.layer_norm')(x, None, None, 1e-5)"
    )
    run_python(code, env={"NUMBA_CACHE_DIR": str(tmp_path)})
    kept = {path.name.split("-")[0] for path in tmp_path.rglob("*.nbi")}
    assert kept == {"layer_norm.norm_rows"}
