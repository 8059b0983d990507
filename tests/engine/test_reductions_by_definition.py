"""Each reduction and each sum of gradients beside its definition: every dimension, kept or not, in
every dtype; backward by arrays and by recorded Tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common import leaf, rng_of, signed
from messages import Refused, all_differences

import tinyattn as ta
from tinyattn import functional as F
from tinyattn.errors import DtypeError, ShapeError
from tinyattn.ops import reductions
from tinyattn.ops.indexing import added_along, added_at, putitem

SHAPE = 3, 2, 4
ONE = [0, 1, 2, -1, -3]
SEVERAL: list[Any] = [*ONE, None, (), (0,), (0, 2), (-1, 1), [1, 0], (0, 1, 2)]
TOLERANCES = {"float16": 4e-3, "float32": 2e-6, "float64": 1e-13}


def axes_of(dim: Any) -> tuple[int, ...]:
    dims = (dim,) if isinstance(dim, int) else tuple(dim or ())
    return tuple(i % 3 for i in dims) or (0, 1, 2)


def deviation(x: np.ndarray, axes: Any, ddof: int, root: bool) -> tuple[np.ndarray, Any]:
    number = np.prod([SHAPE[i] for i in axes])
    away = x - x.mean(axes, keepdims=True)
    var = (away**2).sum(axes, keepdims=True) / (number - ddof)
    out = np.sqrt(var) if root else var
    return out, away / (number - ddof) / out if root else 2 * away / (number - ddof)


def length(x: np.ndarray, axes: Any) -> tuple[np.ndarray, Any]:
    out = np.sqrt((x**2).sum(axes, keepdims=True))
    return out, x / out


def smooth(x: np.ndarray, axes: Any) -> tuple[np.ndarray, Any]:
    out = np.log(np.exp(x).sum(axes, keepdims=True))
    return out, np.exp(x - out)


# A call, and by the axes the result with its dimensions kept, and the slope beside each element.
Row = tuple[Callable[..., Any], Callable[[np.ndarray, Any], tuple[np.ndarray, Any]]]
REDUCTIONS: dict[str, Row] = {
    "sum": (ta.sum, lambda x, axes: (x.sum(axes, keepdims=True), np.ones_like(x))),
    "mean": (
        ta.mean,
        lambda x, axes: (x.mean(axes, keepdims=True), np.full(SHAPE, x.mean(axes).size / x.size)),
    ),
    "var": (
        lambda x, dim, keepdim: x.var(dim, True, keepdim),
        lambda x, axes: deviation(x, axes, 1, False),
    ),
    "var of all": (
        lambda x, dim, keepdim: x.var(dim, False, keepdim),
        lambda x, axes: deviation(x, axes, 0, False),
    ),
    "var corrected": (
        lambda x, dim, keepdim: x.var(dim, keepdim=keepdim, correction=0),
        lambda x, axes: deviation(x, axes, 0, False),
    ),
    "std": (
        lambda x, dim, keepdim: x.std(dim, True, keepdim),
        lambda x, axes: deviation(x, axes, 1, True),
    ),
    "std of all": (
        lambda x, dim, keepdim: x.std(dim, False, keepdim),
        lambda x, axes: deviation(x, axes, 0, True),
    ),
    "std corrected": (
        lambda x, dim, keepdim: x.std(dim, False, keepdim, correction=1),
        lambda x, axes: deviation(x, axes, 1, True),
    ),
    "norm": (lambda x, dim, keepdim: x.norm(2, dim, keepdim), length),
    "norm fro": (lambda x, dim, keepdim: x.norm(dim=dim, keepdim=keepdim), length),
    "norm 1": (
        lambda x, dim, keepdim: x.norm(1, dim, keepdim),
        lambda x, axes: (abs(x).sum(axes, keepdims=True), np.sign(x)),
    ),
    "norm inf": (
        lambda x, dim, keepdim: x.norm(np.inf, dim, keepdim),
        lambda x, axes: (
            abs(x).max(axes, keepdims=True),
            np.sign(x) * (abs(x) == abs(x).max(axes, keepdims=True)),
        ),
    ),
    "logsumexp": (ta.logsumexp, smooth),
    "amax": (
        ta.amax,
        lambda x, axes: (x.max(axes, keepdims=True), 1.0 * (x == x.max(axes, keepdims=True))),
    ),
    "amin": (
        ta.amin,
        lambda x, axes: (x.min(axes, keepdims=True), 1.0 * (x == x.min(axes, keepdims=True))),
    ),
}


def numbers(dtype: str) -> np.ndarray:
    """All of another size, so that the largest is one."""
    rng = rng_of(0)
    sizes = rng.permutation(np.linspace(0.5, 2.0, 24)).reshape(SHAPE)
    return (sizes * rng.choice([-1.0, 1.0], SHAPE)).astype(dtype)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_reduction_and_its_slope_along_all_dimensions(name: str, dtype: str) -> None:
    call, definition = REDUCTIONS[name]
    values, near = numbers(dtype), TOLERANCES[dtype]
    for dim in SEVERAL:
        axes = axes_of(dim)
        kept, slope = definition(values.astype(float), axes)
        cotangent = signed(rng_of(1), *kept.shape).astype(dtype)
        for keepdim in (False, True):
            x = leaf(values, dtype)
            out = call(x, dim, keepdim)
            right = kept if keepdim else kept.squeeze(axes)
            assert (out.shape, out.dtype) == (right.shape, dtype)
            np.testing.assert_allclose(out.detach().numpy(), right, rtol=near, atol=near)
            grad = ta.tensor(cotangent.reshape(right.shape))
            for create_graph in (True, False):
                (found,) = ta.grad(out, x, grad, create_graph=create_graph)
                assert found.dtype == dtype
                np.testing.assert_allclose(
                    found.detach().numpy(), slope * cotangent.astype(float), rtol=near, atol=near
                )


@pytest.mark.parametrize("dtype", [*TOLERANCES, "int8", "bool"])
@pytest.mark.parametrize("dim", ONE)
def test_running_sums_and_products_along_one_dimension(dim: int, dtype: str) -> None:
    values = numbers("float64") * (2 if dtype == "int8" else 1)
    values = (values > 0 if dtype == "bool" else values).astype(dtype)
    x, wide = ta.tensor(values), values.astype(float)
    near = TOLERANCES.get(dtype, 1e-13)
    target = dtype if dtype in TOLERANCES else "int64"
    backwards = np.flip(np.flip(wide, dim).cumsum(dim), dim)
    for found, right in (
        (x.cumsum(dim), wide.cumsum(dim)),
        (reductions.cumsum(x, dim, reverse=True), backwards),
        (x.prod(dim), wide.prod(dim)),
        (x.prod(dim, True), wide.prod(dim, keepdims=True)),
        (x.prod(), wide.prod()),
        (x.prod(keepdim=True), wide.prod(keepdims=True)),
        (x.sum(dim), wide.sum(dim)),
    ):
        assert (found.dtype, found.shape) == (target, right.shape)
        np.testing.assert_allclose(found.numpy().astype(float), right, rtol=4 * near, atol=near)
    for other in TOLERANCES:
        for found, right in (
            (x.cumsum(dim, dtype=other), wide.cumsum(dim)),
            (x.sum(dim, dtype=other), wide.sum(dim)),
            (x.prod(dim, dtype=other), wide.prod(dim)),
        ):
            near = max(TOLERANCES[other], TOLERANCES.get(dtype, 0))
            assert found.dtype == other
            np.testing.assert_allclose(found.numpy().astype(float), right, rtol=4 * near, atol=near)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_the_slope_of_a_product_leaves_out_one_number(size: int, dtype: str) -> None:
    """Also where one number is 0, or two are."""
    near = TOLERANCES[dtype]
    for zeros in ((), (0,), (size - 1,), (0, size - 1)):
        values = signed(rng_of(2), 2, size, 3)
        values[:, list(zeros)] = 0.0
        values = values.astype(dtype)
        grad = signed(rng_of(3), 2, 1, 3).astype(dtype)
        wide = values.astype(float)
        others = [np.delete(wide, i, 1).prod(1) for i in range(size)]
        right = np.stack(others, 1) * grad.astype(float)
        for create_graph in (True, False):
            x = leaf(values, dtype)
            out = x.prod(1, True)
            (found,) = ta.grad(out, x, ta.tensor(grad), create_graph=create_graph)
            np.testing.assert_allclose(found.detach().numpy(), right, rtol=4 * near, atol=near)
            right_sum = np.stack([grad.astype(float).squeeze(1)] * size, 1)
            flow = np.flip(np.cumsum(np.flip(right_sum, 1), 1), 1)
            (found,) = ta.grad(x.cumsum(1), x, ta.tensor(right_sum.astype(dtype)))
            np.testing.assert_allclose(found.numpy(), flow, rtol=4 * near, atol=near)


PLACES = np.zeros(4096, np.int64)
READS: dict[str, Callable[[ta.Tensor], ta.Tensor]] = {  # of a row of (2, 2) each
    "rows": lambda x: x[PLACES],
    "rows in a tuple": lambda x: x[PLACES,],
    "columns": lambda x: x[:, PLACES],
    "places": lambda x: x[PLACES, PLACES],
    "a row and places": lambda x: x[0, PLACES],
    "places of a column": lambda x: x[PLACES, 0],
    "rows with a new dimension": lambda x: x[PLACES, None],
    "rows of two dimensions": lambda x: x[PLACES.reshape(64, 64)],
    "columns of two dimensions": lambda x: x[:, PLACES.reshape(64, 64)],
    "a row of numbers": lambda x: x[0][PLACES],
    "gather": lambda x: x.gather(0, ta.tensor(PLACES[:, None])),
    "gather along a row": lambda x: x.gather(1, ta.tensor(PLACES[None])),
    "embedding": lambda x: F.embedding(PLACES, x),
    "expand": lambda x: x[:1, :1].expand(4096, 1),
    "repeat": lambda x: x.repeat(4096, 1)[::2],
    "repeat_interleave": lambda x: x[:1].repeat_interleave(4096, 0),
    "broadcast": lambda x: x[:1] + ta.zeros(4096, 2, dtype=ta.float16),
}


@pytest.mark.parametrize("name", READS)
def test_what_is_read_4096_times_has_a_gradient_of_all(name: str) -> None:
    """A sum in float16 would end at 2048, where 1 is half a unit."""
    x = leaf(np.array([[1.0, -2.0], [3.0, 4.0]]), "float16")
    out = READS[name](x)
    (found,) = ta.grad(out, x, ta.ones_like(out))
    assert found.dtype == np.float16
    assert found[0, 0].item() == 4096.0
    (found,) = ta.grad(READS[name](x), x, ta.ones_like(out), create_graph=True)
    assert found[0, 0].item() == 4096.0


def test_sums_of_many_small_numbers_beside_a_large_one() -> None:
    places = np.zeros(2049, np.int64)
    values = np.ones(2049, np.float16)
    values[0] = 2048.0
    assert added_at(values, (places,), (2,)).tolist() == [4096.0, 0.0]
    assert added_along(values, places, 0, (2,)).tolist() == [4096.0, 0.0]
    numbers: Any = values
    assert putitem(numbers, (places,), (2,)).tolist() == [4096.0, 0.0]
    assert putitem(numbers.reshape(-1, 1), places, (2, 1)).tolist() == [[4096.0], [0.0]]


def test_each_error_says_its_whole_text() -> None:
    x, ints, floats = ta.ones(2, 3), ta.ones(2, 3).long(), "needs a floating dtype, got int64: use "
    refused: list[Refused] = [
        *((getattr(ints, name), DtypeError, f"{name} {floats}.to(ta.float32)")
          for name in ("mean", "var", "std", "norm")),
        (lambda: x.norm(3), ValueError,
         'norm takes p=1, 2, float("inf") or "fro" (as 2), got 3'),
        (lambda: x.norm("nuc"), ValueError,
         'norm takes p=1, 2, float("inf") or "fro" (as 2), got \'nuc\''),
        *((lambda f=f: f(correction=-1), ShapeError,
           "correction must be an integer >= 0, got -1") for f in (x.var, x.std)),
    ]  # fmt: skip
    assert not all_differences(refused)


def test_shapes_of_reductions() -> None:
    for dim in SEVERAL:
        axes = axes_of(dim)
        kept = tuple(1 if i in axes else n for i, n in enumerate(SHAPE))
        assert reductions.reduced_shape(SHAPE, dim) == kept
        assert reductions.count(SHAPE, dim) == np.prod([SHAPE[i] for i in axes])
    assert reductions.reduced_shape((), None) == reductions.reduced_shape((), 0) == ()
    assert reductions.count((), None) == 1
    assert reductions.count((0, 3), 0) == 0
    for unbiased, correction, degrees in (
        (True, None, 2.0), (False, None, 3.0), (True, 0, 3.0), (False, 1, 2.0), (True, 2, 1.0),
        (True, 3, 0.0), (True, 4, 0.0),
    ):  # fmt: skip
        assert reductions.degrees_of_freedom((2, 3), 1, unbiased, correction) == degrees
