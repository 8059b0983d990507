"""What pieces, products and norms promise beside their values: every bit of a gradient, the order
in memory, the digits of long sums, and what an argument is if it is left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common import assert_close, assert_same, leaf, pull, rng_of, signed

import tinyattn as ta
from tinyattn import functional as F
from tinyattn.errors import ShapeError
from tinyattn.ops.products import int8_linear

PIECES: dict[str, Any] = {
    "a number": 1,
    "a slice": slice(1, 3),
    "every second": slice(None, None, 2),
    "numbers": (1, 2),
    "a number behind all": (slice(None), -1),
    "a new dimension": (None, slice(0, 2)),
    "the last": (..., 0),
    "a mask": np.array([True, False, True, True]),
    "a mask of both": np.arange(12).reshape(4, 3) % 2 == 0,
    "a mask in a tuple": (np.array([True, False, True, True]),),
}


@pytest.mark.parametrize("name", PIECES)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_gradient_of_a_piece_is_the_cotangent_bit_for_bit(name: str, dtype: str) -> None:
    """Nothing is added where nothing is taken twice: -0.0 stays -0.0, and NaN itself."""
    index = PIECES[name]
    values = signed(rng_of(0), 4, 3).astype(dtype)
    x = leaf(values)
    piece = x[index]
    cotangent = np.asarray(signed(rng_of(1), *piece.shape), dtype)
    cotangent.reshape(-1)[:1] = -0.0
    pull(piece, cotangent)
    expected = np.zeros_like(values)
    expected[index] = cotangent
    assert_same(piece.numpy(), values[index])
    assert_same(x.grad.numpy(), expected)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("norm", [F.layer_norm, F.rms_norm])
def test_a_norm_of_a_transposed_tensor_lies_in_c_order(norm: Any, dtype: str) -> None:
    """So `view` takes it, and it has the digits that a copy in C order has."""
    values = signed(rng_of(0), 4, 6, 5).astype(dtype)
    x = ta.tensor(values).transpose(0, 2)
    out = norm(x, 4)
    assert_same(out.view(120).numpy(), norm(x.contiguous(), 4).numpy().reshape(120))
    assert_same(norm(x, x.shape).numpy(), norm(x.contiguous(), x.shape).numpy())


@pytest.mark.parametrize(("terms", "columns"), [(1 << 14, 16), (1 << 16, 2)])
def test_a_vector_times_a_matrix_keeps_the_digits_of_a_long_sum(terms: int, columns: int) -> None:
    rng = rng_of(0)
    x = rng.uniform(0.5, 1.5, terms).astype(np.float32)
    y = rng.uniform(0.5, 1.5, (terms, columns)).astype(np.float32)
    expected = x.astype(np.float64) @ y.astype(np.float64)
    assert_close((ta.tensor(x) @ ta.tensor(y)).numpy(), expected, 4e-7)
    assert_close((ta.tensor(y.T.copy()) @ ta.tensor(x)).numpy(), expected, 4e-7)


def test_all_slopes_of_a_product_of_integers_and_scales_are_those_of_its_matrix() -> None:
    """Also the second derivative, through a gradient that is a Tensor."""
    rng = rng_of(0)
    numbers = rng.randint(-127, 128, (3, 5)).astype(np.int8)
    scale = rng.uniform(0.1, 0.2, 3)
    weight = numbers * scale[:, None]
    for shape in ((5,), (2, 5), (2, 4, 5)):
        x = leaf(signed(rng, *shape))
        cotangent, direction = signed(rng, *shape[:-1], 3), signed(rng, *shape)
        out = int8_linear(x * x, numbers, scale)
        (slope,) = ta.grad(out, [x], ta.tensor(cotangent), create_graph=True)
        assert_close(out.detach().numpy(), x.numpy() ** 2 @ weight.T)
        assert_close(slope.detach().numpy(), 2 * x.numpy() * (cotangent @ weight))
        pull(slope, direction)
        assert_close(x.grad.numpy(), 2 * direction * (cotangent @ weight))


VECTOR = ta.tensor(signed(rng_of(2), 6))
TABLE = ta.tensor(signed(rng_of(3), 3, 4))
CUBE = ta.tensor(signed(rng_of(4), 3, 4, 3))
Pair = tuple[Callable[[], Any], Callable[[], Any]]

LEFT_OUT: dict[str, Pair] = {
    "triu": (TABLE.triu, lambda: TABLE.triu(0)),
    "tril": (TABLE.tril, lambda: TABLE.tril(0)),
    "diagonal": (CUBE.diagonal, lambda: CUBE.diagonal(0, 0, 1)),
    "split": (lambda: TABLE.split(2), lambda: TABLE.split(2, 0)),
    "chunk": (lambda: TABLE.chunk(2), lambda: TABLE.chunk(2, 0)),
    "unbind": (TABLE.unbind, lambda: TABLE.unbind(0)),
    "flip": (TABLE.flip, TABLE.clone),
    "flatten": (CUBE.flatten, lambda: CUBE.flatten(0, 2)),
    "flatten from": (lambda: CUBE.flatten(1), lambda: CUBE.flatten(1, -1)),
    "squeeze": (TABLE[None, :, None].squeeze, TABLE.clone),
    "roll": (lambda: TABLE.roll(5), lambda: TABLE.reshape(-1).roll(5, 0).reshape(3, 4)),
    "cat": (lambda: ta.cat([TABLE, TABLE]), lambda: ta.cat([TABLE, TABLE], 0)),
    "stack": (lambda: ta.stack([TABLE, TABLE]), lambda: ta.stack([TABLE, TABLE], 0)),
    "repeat_interleave": (
        lambda: TABLE.repeat_interleave(2),
        lambda: TABLE.reshape(-1).repeat_interleave(2, 0),
    ),
    "layer_norm": (lambda: F.layer_norm(TABLE, 4), lambda: F.layer_norm(TABLE, 4, eps=1e-5)),
    "rms_norm": (lambda: F.rms_norm(TABLE, 4), lambda: F.rms_norm(TABLE, 4, eps=2.0**-52)),
    "normalize": (lambda: F.normalize(TABLE), lambda: F.normalize(TABLE, 2.0, 1)),
    "normalize nothing": (lambda: F.normalize(TABLE * 1e-13), lambda: TABLE * 1e-13 / 1e-12),
    "embedding": (
        lambda: F.embedding([1, 0], TABLE),
        lambda: F.embedding([1, 0], TABLE, padding_idx=None),
    ),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_an_argument_is_that_is_left_out(name: str) -> None:
    short, long = (call() for call in LEFT_OUT[name])
    shorts, longs = (x if isinstance(x, tuple) else (x,) for x in (short, long))
    assert len(shorts) == len(longs)
    for found, expected in zip(shorts, longs, strict=True):
        assert_close(found.numpy(), expected.numpy(), 1e-13)


def test_dropout_that_is_told_nothing_is_in_training_and_drops_one_half() -> None:
    x = ta.ones(4000)
    ta.manual_seed(0)
    found = F.dropout(x).numpy()
    ta.manual_seed(0)
    assert_same(found, F.dropout(x, 0.5, True).numpy())
    assert set(found.tolist()) == {0.0, 2.0}
    assert 1800 < np.count_nonzero(found) < 2200


def test_every_slope_of_dropout_has_the_mask_of_its_values() -> None:
    x = leaf(signed(rng_of(0), 50))
    cotangent = signed(rng_of(1), 50)
    out = F.dropout(x, 0.2)
    kept = out.numpy() != 0
    pull(out, cotangent)
    assert 0 < kept.sum() < 50
    assert_close(out.numpy(), np.where(kept, x.numpy() / 0.8, 0))
    assert_close(x.grad.numpy(), np.where(kept, cotangent / 0.8, 0))


def test_an_empty_vector_fits_every_shape_in_cat() -> None:
    empty = ta.tensor([])
    for dim in (0, 1, -1, -2):
        assert_same(ta.cat([empty, ta.ones(2, 3)], dim).numpy(), np.ones((2, 3), np.float32))
        assert_same(ta.cat([ta.ones(2, 3), empty], dim).numpy(), np.ones((2, 3), np.float32))
    assert_same(ta.cat([empty, ta.ones(2)]).numpy(), np.ones(2, np.float32))
    assert ta.cat([empty, empty]).shape == (0,)
    with pytest.raises(ShapeError):
        ta.cat([ta.ones(2, 3), ta.ones(3)])


NOT_IN_C_ORDER: dict[str, Callable[[ta.Tensor], ta.Tensor]] = {
    "roll": lambda x: x.roll(1, 0),
    "triu": lambda x: x.triu(),
    "cat": lambda x: ta.cat([x, x], 1),
    "stack": lambda x: ta.stack([x, x]),
    "repeat": lambda x: x.repeat(1, 1),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 0),
    "rows": lambda x: x[ta.tensor([2, 0])],
    "columns": lambda x: x[:, ta.tensor([2, 0])],
    "a mask": lambda x: x[x > 0],
    "gather": lambda x: x.gather(0, ta.tensor([[0, 1, 0]])),
    "linear": lambda x: F.linear(x, ta.ones(2, 3, dtype=ta.float64)),
    "matmul": lambda x: x @ ta.ones(3, 2, dtype=ta.float64),
    "embedding": lambda x: F.embedding([1, 0], x),
    "dropout": lambda x: F.dropout(x, 0.5),
    "normalize": lambda x: F.normalize(x).clone(),
    "flip": lambda x: x.flip(0),
}


@pytest.mark.parametrize("name", NOT_IN_C_ORDER)
def test_the_result_of_a_transposed_tensor_can_be_viewed_as_one_row(name: str) -> None:
    values = signed(rng_of(0), 3, 4)
    function = NOT_IN_C_ORDER[name]
    ta.manual_seed(0)
    found = function(ta.tensor(values).T)
    ta.manual_seed(0)
    expected = function(ta.tensor(values.T.copy())).numpy()
    assert_close(found.view(expected.size).numpy(), expected.reshape(-1), 1e-15)
