"""What is computed from float16 has the digits of float64, rounded once or twice, and overflows
only where the result does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common import leaf, rng_of

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn

LENS = np.arange(64) % 16 + 1
CLASSES = np.arange(64) % 16


def of_softmax(grad: np.ndarray, out: np.ndarray) -> np.ndarray:
    return out * (grad - (grad * out).sum(-1, keepdims=True))


# A function, how often its slope is rounded, and the slope by the output where it is made of that.
Row = tuple[Callable[[ta.Tensor], ta.Tensor], int, Callable[..., np.ndarray] | None]
ROWS: dict[str, Row] = {
    "gelu": (F.gelu, 1, None),
    "gelu tanh": (lambda x: F.gelu(x, "tanh"), 1, None),
    "silu": (F.silu, 1, None),
    "softplus": (F.softplus, 2, None),
    "sigmoid": (F.sigmoid, 3, lambda grad, out: grad * out * (1 - out)),
    "tanh": (F.tanh, 1, lambda grad, out: grad * (1 - out * out)),
    "relu": (F.relu, 0, None),
    "erf": (ta.erf, 1, None),
    "sin": (ta.sin, 2, None),
    "cos": (ta.cos, 2, None),
    "exp": (ta.exp, 1, lambda grad, out: grad * out),
    "expm1": (ta.expm1, 2, None),
    "square": (ta.square, 1, None),
    "softmax": (F.softmax, 1, of_softmax),
    "masked_softmax": (lambda x: F.masked_softmax(x, LENS), 1, of_softmax),
    "log_softmax": (
        F.log_softmax,
        1,
        lambda grad, out: grad - np.exp(out) * grad.sum(-1, keepdims=True),
    ),
    "cross_entropy": (lambda x: F.cross_entropy(x, CLASSES, reduction="none"), 2, None),
    "rms_norm": (lambda x: F.rms_norm(x, 16), 2, None),
}


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("scale", [1.0, 4e4])
@pytest.mark.parametrize("name", ROWS)
def test_a_value_and_its_slope_are_those_of_float64(
    name: str, scale: float, create_graph: bool
) -> None:
    """Beside a gradient of the output that is large too: sums of its numbers may overflow."""
    function, roundings, by_output = ROWS[name]
    x = rng_of(0).uniform(-3, 3, (64, 16)).astype(np.float16)
    results = []
    for dtype in (np.float16, np.float64):
        tensor = leaf(x.astype(dtype))
        out = function(tensor)
        grad = rng_of(1).choice([-1.0, 1.0], out.shape) * rng_of(2).uniform(0.5, 1.5, out.shape)
        grad = (scale * grad).astype(np.float16)
        (slope,) = ta.grad(out, tensor, ta.tensor(grad.astype(dtype)), create_graph=create_graph)
        assert out.dtype == slope.dtype == dtype
        results.append([out.detach().numpy(), slope.detach().numpy()])
    (out, slope), (right, right_slope) = results
    if by_output is not None:
        right_slope = by_output(grad.astype(float), out.astype(float))
    for found, exact, limit in ((out, right, 1), (slope, right_slope, roundings)):
        is_number = abs(exact) < np.finfo(np.float16).max
        assert is_number.mean() > 0.25
        found, exact = found[is_number].astype(float), exact[is_number]
        spacing = np.spacing(abs(exact).astype(np.float16)).astype(float)
        # By half a unit each time; of an earlier number it may be twice as large as of the last.
        assert (abs(found - exact) <= max(0.501, limit - 0.499) * spacing).all()


@pytest.mark.parametrize("return_weights", [False, True])
def test_scores_of_float16_may_be_beyond_its_range_before_they_are_scaled(
    return_weights: bool,
) -> None:
    """The products of rows are up to 230,000, and the scores a sixteenth of that."""
    x = rng_of(3).choice([-30.0, 30.0], (1, 2, 5, 256))
    x[..., 1, :] = x[..., 0, :] = 30.0
    arrays = [x, x, rng_of(4).uniform(-1, 1, (1, 2, 5, 8))]
    found = []
    for dtype in (np.float16, np.float64):
        tensors = [leaf(array.astype(dtype)) for array in arrays]
        out = F.scaled_dot_product_attention(*tensors, return_weights=return_weights)
        out, *weights = out if return_weights else (out,)
        grad = ta.tensor(rng_of(5).uniform(-1, 1, out.shape).astype(dtype))
        grads = ta.grad(out, tensors, grad)
        found.append([x.detach().numpy().astype(float) for x in (out, *weights, *grads)])
    for half, exact in zip(*found, strict=True):
        assert np.isfinite(half).all()
        np.testing.assert_allclose(half, exact, rtol=5e-3, atol=2e-2)


@pytest.mark.parametrize("sees_weights", [False, True])
def test_scores_of_a_module_may_be_beyond_float16_before_they_are_scaled(
    sees_weights: bool,
) -> None:
    """Also where a module of one's own in the place of dropout sees the weights."""
    numbers = rng_of(6).choice([-30.0, 30.0], (1, 3, 256))
    numbers[:, 1] = numbers[:, 0]
    results = []
    for dtype in (np.float16, np.float64):
        attention = nn.MultiHeadAttention(*(256,) * 4, 1).to(dtype)
        if sees_weights:
            attention.dropout = nn.ReLU()
        for parameter in attention.parameters():
            parameter.data = np.eye(256, dtype=dtype)
        x = ta.tensor(numbers.astype(dtype))
        results.append([attention(x, x, x).numpy(), attention.attention_weights.numpy()])
    for found, right in zip(*results, strict=True):
        np.testing.assert_allclose(found, right, rtol=2e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ROWS)
def test_other_dtypes_keep_theirs(name: str, dtype: Any) -> None:
    x = leaf(np.linspace(-2, 2, 64 * 16).reshape(64, 16).astype(dtype))
    out = ROWS[name][0](x)
    assert out.dtype == ta.grad(out, x, ta.ones_like(out))[0].dtype == dtype


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_a_bias_brings_a_product_back_that_alone_would_overflow(rows: int) -> None:
    x = ta.full((rows, 8), 128.0, dtype=ta.float16)
    weight = ta.full((2, 8), 100.0, dtype=ta.float16)
    assert np.isinf(F.linear(x, weight).numpy()).all()
    found = F.linear(x, weight, ta.full((2,), -60_000.0, dtype=ta.float16))
    assert (found.dtype, found.tolist()) == (np.float16, [[42_400.0] * 2] * rows)


@pytest.mark.parametrize("create_graph", [False, True])
def test_the_slope_of_layer_norm_is_computed_from_wider_numbers(create_graph: bool) -> None:
    """The squares of the numbers are beyond float16, and their mean is large beside differences."""
    numbers = (rng_of(3).standard_normal((4, 64)) * 2 + 400).astype(np.float16)
    cotangent = rng_of(4).standard_normal((4, 64)).astype(np.float16)
    found = []
    for dtype in (np.float16, np.float64):
        x = leaf(numbers.astype(dtype))
        out = F.layer_norm(x, 64)
        (slope,) = ta.grad(out, x, ta.tensor(cotangent.astype(dtype)), create_graph=create_graph)
        found.append(slope.numpy().astype(np.float64))
    assert np.abs(found[0] - found[1]).max() <= 2.0**-9 * np.abs(found[1]).max()
