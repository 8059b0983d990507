"""A bias of attention has any shape that broadcasts to the scores; the others are refused in words
that name it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common import assert_close, leaf, pull, rng_of, signed

import tinyattn as ta
from tinyattn import functional as F
from tinyattn.errors import DtypeError, ShapeError

INPUTS = {  # of query, key and value: leading dimensions, queries, keys
    "samples": ((2,), 3, 4),
    "samples and heads": ((2, 3), 3, 4),
    "one sample": ((), 3, 4),
    "more dimensions": ((2, 2, 3), 3, 4),
}


def shapes_of_biases(full: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Of every number of dimensions, with each dimension whole or 1."""
    found: list[tuple[int, ...]] = []
    for ndim in range(1, len(full) + 1):
        for bits in range(1 << ndim):
            sizes = full[len(full) - ndim :]
            found.append(tuple(n if bits >> i & 1 else 1 for i, n in enumerate(sizes)))
    return found


@pytest.mark.parametrize("argument", ["bias", "attn_mask"])
@pytest.mark.parametrize("name", INPUTS)
def test_biases_of_every_shape(name: str, argument: str) -> None:
    lead, queries, keys = INPUTS[name]
    rng = rng_of(0)
    query, key, value = (ta.tensor(signed(rng, *lead, n, 4)) for n in (queries, keys, keys))
    cotangent = signed(rng, *lead, queries, 4)
    for shape in shapes_of_biases((*lead, queries, keys)):
        bias = leaf(signed(rng, *shape))
        out = F.scaled_dot_product_attention(query, key, value, **{argument: bias})
        pull(out, cotangent)
        expected, slope = by_formula(query, key, value, bias.numpy(), cotangent)
        assert_close(out.detach().numpy(), expected)
        np.testing.assert_allclose(bias.grad.numpy(), slope, rtol=1e-10, atol=1e-13)


def by_formula(query: Any, key: Any, value: Any, bias: Any, cotangent: Any) -> tuple[Any, Any]:
    query, key, value = (x.numpy() for x in (query, key, value))
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1]) + bias
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    slope = cotangent @ value.swapaxes(-1, -2)
    slope = weights * (slope - (weights * slope).sum(-1, keepdims=True))
    extra = slope.ndim - bias.ndim
    axes = [i for i in range(slope.ndim) if i < extra or bias.shape[i - extra] == 1]
    return weights @ value, slope.sum(tuple(axes), keepdims=True).reshape(bias.shape)


@pytest.mark.parametrize("argument", ["bias", "attn_mask"])
def test_a_bias_that_does_not_fit_is_named(argument: str) -> None:
    x = ta.ones(2, 3, 4)

    def said(error: type[Exception], bias: Any) -> str:
        with pytest.raises(error) as caught:
            F.scaled_dot_product_attention(x, x, x, **{argument: bias})
        return str(caught.value)

    assert said(DtypeError, ta.zeros(3, 3, dtype=ta.float64)) == (
        f"attention: query is float32, {argument} is float64: convert one with .to(dtype)"
    )
    for shape in ((2, 3), (3, 4), (2, 2, 3, 3), (3, 3, 3)):
        assert said(ShapeError, ta.zeros(*shape)) == (
            f"{argument} must broadcast to the scores, (2, 3, 3), got shape {shape}"
        )


def test_a_bias_is_a_tensor_of_floats() -> None:
    x = ta.ones(2, 3, 4)
    with pytest.raises(DtypeError) as caught:
        F.scaled_dot_product_attention(x, x, x, bias=ta.ones(3, 3, dtype=ta.int64))
    assert str(caught.value) == "bias needs a floating dtype, got int64: use .to(ta.float32)"
    with pytest.raises(TypeError) as refused:
        F.scaled_dot_product_attention(x, x, x, bias=[[0.0]])
    assert str(refused.value) == "bias must be a Tensor, got list: wrap it with ta.tensor(...)"
