"""Masks and options where only the first, a middle or the last sample differs from the others."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import masks, nn
from tinyattn.kernels.visibility import Visibility, samples_of
from tinyattn.ops.attention import weighted_sum, weighted_sum_of_queries


def test_masks_are_turned_round_and_joined_sample_by_sample() -> None:
    lens = masks.from_valid_lens([1, 3, 0], 3)
    assert (~lens).tolist() == (~lens.numpy()).tolist()
    assert isinstance(~lens, masks.Mask)
    for n, prefixes in ((4, [1, 3, 0]), (3, [3, 0, 2])):
        found = masks.prefix(prefixes, n).numpy()
        for row, prefix in zip(found, prefixes, strict=True):
            right = np.tri(n, dtype=bool)
            right[:, :prefix] = True
            np.testing.assert_array_equal(row, right)


@pytest.mark.parametrize("past", [0, 1, 3, 6])
@pytest.mark.parametrize("width", [1, 2, 4])
def test_a_window_and_a_causal_mask_after_a_past_are_rows_of_the_whole(
    past: int, width: int
) -> None:
    n = 3
    for kind in (lambda *args: masks.window(args[0], width, *args[1:]), masks.causal):
        whole, rows = kind(past + n).numpy(), kind(n, past).numpy()
        np.testing.assert_array_equal(rows, whole[:, past:])


def test_a_part_of_a_mask_that_lost_a_dimension_is_no_mask() -> None:
    mask = masks.causal(4)
    assert isinstance(mask[:, :2], masks.Mask)
    for part in (mask[0], mask[:, 1], mask[0, 0, 0]):
        assert type(part) is ta.Tensor


@pytest.mark.parametrize("bad", [0, 1, 2])
@pytest.mark.parametrize("heads_differ", [False, True])
def test_one_sample_or_head_of_another_mask(bad: int, heads_differ: bool) -> None:
    rng = np.random.default_rng(bad)
    q, k, v = (ta.tensor(rng.standard_normal((3, 4, n, 5))) for n in (6, 7, 7))
    mask = np.ones((3, 4, 6, 7), bool)
    where = (slice(None), bad) if heads_differ else (bad,)
    mask[where] = rng.random(mask[where].shape) < 0.5
    mask[..., 0] = True
    out = F.scaled_dot_product_attention(q, k, v, ta.tensor(mask)).numpy()
    scores = q.numpy() @ k.numpy().swapaxes(-1, -2) / np.sqrt(5)
    weights = np.where(mask, np.exp(scores), 0)
    right = weights / weights.sum(-1, keepdims=True) @ v.numpy()
    np.testing.assert_allclose(out, right, rtol=1e-10)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_gap_in_the_padding_of_any_sample(place: int) -> None:
    ids = np.array([[5, 6, 7, 0, 0]] * 3)
    ids[place] = [5, 0, 7, 8, 0]
    mask = masks.padding(ids)
    assert mask.numpy().tolist() == (ids != 0).tolist()
    layer = nn.MultiHeadAttention(*(8,) * 4, 2).eval()
    x = ta.tensor(np.random.default_rng(0).standard_normal((3, 5, 8)).astype(np.float32))
    out = layer(x, x, x, mask=mask)
    for i in range(3):
        kept = x[i : i + 1, np.flatnonzero(ids[i])]
        alone = layer(x[i : i + 1], kept, kept)
        np.testing.assert_allclose(out[i].numpy(), alone[0].numpy(), rtol=1e-4, atol=1e-6)


def test_a_cache_goes_on_after_a_conversion_a_refusal_and_a_selection_of_none() -> None:
    attention = nn.MultiHeadAttention(*(8,) * 4, 2, bias=True)
    feed_forward = nn.PositionwiseFeedForward(8, 16, 0.0)
    encoder = nn.Encoder(nn.EncoderLayer(8, attention, feed_forward, 0.0), 2)
    encoder.eval().double()
    x = ta.tensor(np.random.default_rng(1).standard_normal((2, 9, 8)))
    right = encoder(x, is_causal=True).numpy()
    for length in (0, 4, 20):
        cache = encoder.new_cache(length=length)
        with ta.no_grad():
            first = encoder(x[:, :3], is_causal=True, cache=cache)
            with pytest.raises(ta.errors.ShapeError):
                encoder(x[:1, 3:], is_causal=True, cache=cache)
            kept = copy.deepcopy(cache)
            second = encoder(x[:, 3:8], is_causal=True, cache=cache)
            last = encoder(x[:, 8:], is_causal=True, cache=cache)
            again = encoder(x[:, 3:], is_causal=True, cache=kept)
        found = np.concatenate([part.numpy() for part in (first, second, last)], 1)
        np.testing.assert_allclose(found, right, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(again.numpy(), right[:, 3:], rtol=1e-9, atol=1e-12)
        cache.select([])
        assert cache.layers[0].self_attn.stored[0].shape[0] == 0
    empty = encoder.new_cache()
    empty.select([2, 0])
    assert encoder(x[:, :1], cache=empty, is_causal=True).shape == (2, 1, 8)


def test_a_cache_goes_on_in_the_dtype_to_which_a_model_is_converted() -> None:
    attention, feed_forward = nn.MultiHeadAttention(*(8,) * 4, 2), nn.PositionwiseFeedForward(8, 9)
    encoder = nn.Encoder(nn.EncoderLayer(8, attention, feed_forward), 2).eval()
    x = ta.tensor(np.random.default_rng(2).standard_normal((2, 6, 8)))
    for length in (0, 4, 20):
        cache = encoder.float().new_cache(length=length)
        with ta.no_grad():
            encoder(x[:, :3].float(), is_causal=True, cache=cache)
            encoder.double()
            for t in (3, 4, 5):
                out = encoder(x[:, t : t + 1], is_causal=True, cache=cache)
                right = encoder(x[:, : t + 1], is_causal=True)[:, -1:]
                assert out.dtype == np.float64
                np.testing.assert_allclose(out.numpy(), right.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bad", [(0,), (1,), (4,), (0, 3), (1, 4), (0, 1, 2, 3, 4)])
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_any_value_may_be_bad_and_counts_where_it_is_visible(
    bad: tuple[int, ...], number: float
) -> None:
    """The first, one in the middle, the last, several; forward, and as a gradient of outputs."""
    rng = np.random.RandomState(0)
    weights, values = rng.uniform(0.1, 1, (1, 2, 3, 5)), rng.uniform(0.1, 1, (1, 2, 5, 2))
    seen = rng.rand(1, 1, 3, 5) < 0.5
    seen[0, 0, 2] = [True, False, True, False, True]
    weights = np.where(seen, weights, 0.0)
    values[0, 1, list(bad), 1] = number
    visibility = Visibility(samples_of((3,)), samples_of((5,)), mask=seen)
    products = weights[..., None] * np.where(seen[..., None], values[:, :, None], 0.0)
    right = products.sum(-2)
    found = weighted_sum(ta.tensor(weights), ta.tensor(values), visibility).numpy()
    np.testing.assert_allclose(found, right, rtol=1e-12)
    assert np.isfinite(found[0, 0]).all()
    turned = Visibility(samples_of((5,)), samples_of((3,)), mask=seen.swapaxes(-1, -2).copy())
    back = weighted_sum_of_queries(weights.swapaxes(-1, -2).copy(), values, turned)
    np.testing.assert_allclose(back, right, rtol=1e-12)
