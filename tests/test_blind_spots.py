"""Cases that nothing else noticed: each from a planted fault that all other tests passed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common import assert_all_zero, assert_close, assert_same, leaf, rng_of, signed

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import kernels, ops
from tinyattn.errors import InPlaceError
from tinyattn.kernels import reference


def test_second_derivatives_of_a_power_at_the_base_0() -> None:
    """0 ** y stays 0 while y moves; log(0) must not come in, not even times 0."""
    x, y = leaf([0.0, 0.0, 2.0]), leaf([2.0, 3.0, 2.0])
    first = ta.grad((x**y).sum(), [x, y], create_graph=True)
    second = ta.grad(sum((g.sum() for g in first[1:]), first[0].sum()), [x, y])
    for gradient in (*first, *second):
        assert np.isfinite(gradient.numpy()).all()
    assert_all_zero(first[1].numpy()[:2])


@pytest.mark.parametrize(("dtype", "x"), [(np.float16, -14.0), (np.float32, -95.0)])
def test_sigmoid_below_the_range_of_exp(dtype: Any, x: float) -> None:
    """1 / (1 + exp(-x)) is 0 there, since exp(-x) is infinite; the value is not."""
    value = F.sigmoid(ta.tensor([x], dtype=dtype)).numpy().astype(np.float64)
    np.testing.assert_allclose(value, np.exp(x), rtol=0.05)


@pytest.mark.parametrize("kind", [ta.tensor, np.array])
def test_an_index_may_be_reused_before_backward(kind: Any) -> None:
    x, index = leaf([1.0, 2.0, 3.0]), kind([0, 2])
    out = x[index]
    (index.data if isinstance(index, ta.Tensor) else index)[...] = 1
    out.sum().backward()
    assert x.grad.tolist() == [1, 0, 1]


@pytest.mark.parametrize("function", [ta.Tensor.sin, ta.Tensor.log, lambda y: y.clamp(0, 9)])
def test_a_computed_view_protects_the_memory_it_looks_into(function: Any) -> None:
    """y is computed, but a view: its memory is that of x, which anybody can reach."""
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    for view in (lambda x: x.T, lambda x: x.reshape(4), lambda x: x[1]):
        out = function(view(x))
        with ta.no_grad(), pytest.raises(InPlaceError, match="still needs"):
            x += 1
        del out
    with ta.no_grad():
        x += 1


def test_a_weighted_sum_hides_in_both_directions() -> None:
    """NaN in a value reaches no weight, NaN in a cotangent no value, from behind the mask."""
    rng = rng_of(30)
    mask = np.ones((1, 1, 2, 3), bool)
    mask[0, 0, 0, 1] = False  # query 0 does not see key 1
    weights, values, grad = (signed(rng, 1, 1, *s) for s in ((2, 3), (3, 4), (2, 4)))
    weights *= mask

    def pulled(values: np.ndarray, grad: np.ndarray) -> list[np.ndarray]:
        w, v = leaf(weights), leaf(values)
        out = ops.weighted_sum(w, v, limits=None, mask=mask)
        return [g.numpy() for g in ta.grad(out, [w, v], ta.tensor(grad))]

    dw, dv = pulled(values, grad)
    poisoned = values.copy()
    poisoned[0, 0, 1] = np.nan
    other, _ = pulled(poisoned, grad)
    assert_same(other[0, 0, 0] + 0.0, dw[0, 0, 0] + 0.0)
    poisoned = grad.copy()
    poisoned[0, 0, 0] = np.nan
    _, other = pulled(values, poisoned)
    assert_close(other[0, 0, 1], dv[0, 0, 1], 1e-15)


def test_float32_sums_down_a_column_are_wide() -> None:
    """NumPy adds the rows one by one there, and 2^24 + 1 is 2^24 in float32."""
    x = np.ones((500, 3), np.float32)
    x[0] = 2**24
    assert ta.tensor(x).sum(0).tolist() == [2**24 + 499 + 1] * 3  # to the nearest even
    np.testing.assert_array_equal(kernels.sum_rows(x), np.float32(2**24 + 499))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("module", [kernels, reference])
@pytest.mark.parametrize("level", [-1e7, -1e9, -1e30])
def test_scores_below_any_sentinel(module: Any, dtype: Any, level: float) -> None:
    """With -1e6 or -1e9 for hidden scores, all weight would go to them."""
    x = np.full((1, 1, 2, 4), level, dtype)
    mask = np.array([True, False, True, False]).reshape(1, 1, 1, 4)
    expected = np.broadcast_to([0.5, 0, 0.5, 0], x.shape).astype(dtype)
    np.testing.assert_array_equal(module.masked_softmax(x, None, mask), expected)
    limits = np.array([[2, 2]])
    expected = np.broadcast_to([0.5, 0.5, 0, 0], x.shape).astype(dtype)
    np.testing.assert_array_equal(module.masked_softmax(x, limits, None), expected)


def test_what_was_read_only_stays_so_when_a_graph_lets_go() -> None:
    """A lock makes an array writable again only if it was."""
    x = leaf([1.0, 2.0])
    broadcast = ta.ones(2, dtype=ta.float64).expand(3, 2)
    out = x * broadcast
    del out
    assert not broadcast._data.flags.writeable
    with pytest.raises(InPlaceError, match="read-only"):
        broadcast += 1
