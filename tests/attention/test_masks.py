"""What a mask means, how one is made, and what is refused."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from common import (
    assert_all_zero,
    assert_close,
    assert_same,
    leaf,
    needs_torch,
    pull,
    rng_of,
    signed,
)

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import masks, nn, optim
from tinyattn.errors import DtypeError, MaskError, ShapeError

# Lengths


@pytest.mark.parametrize("lens", [[0, 3, 5], (0, 3, 5), np.array([0, 3, 5], np.int8)])
def test_lengths_of_samples(lens):
    mask = masks.from_valid_lens(lens, 5)
    assert mask.dtype == np.bool_
    assert mask.tolist() == [[False] * 5, [True] * 3 + [False] * 2, [True] * 5]


def test_lengths_of_queries():
    mask = masks.from_valid_lens([[1, 0], [2, 3]], 3)
    assert mask.shape == (2, 2, 3)
    assert mask.numpy().sum(axis=-1).tolist() == [[1, 0], [2, 3]]
    assert mask.tolist()[1] == [[True, True, False], [True] * 3]


def test_lengths_as_tensors_unsigned_and_whole_floats():
    expected = [[True, False], [True, True]]
    for lens in (
        ta.tensor([1, 2]),
        np.array([1, 2], np.uint64),
        np.array([1.0, 2.0]),
        ta.tensor([1.0, 2.0]),
    ):
        assert masks.from_valid_lens(lens, 2).tolist() == expected


@pytest.mark.parametrize("lens", [[], np.zeros((0,), int), np.zeros((0, 3), int)])
def test_no_lengths_at_all(lens):
    assert masks.from_valid_lens(lens, 4).shape == (*np.shape(lens), 4)


def test_no_keys():
    assert masks.from_valid_lens([0, 0], 0).shape == (2, 0)


@pytest.mark.parametrize(
    ("lens", "error", "words"),
    [
        ([1, 6], MaskError, ["6", "5", "index 1"]),
        ([-1, 2], MaskError, ["-1", "index 0"]),
        ([[1, 2], [3, 9]], MaskError, ["9", "(1, 1)"]),
        ([1.5, 2], MaskError, ["1.5", "whole"]),
        ([float("nan")], MaskError, ["nan"]),
        ([float("inf")], MaskError, ["inf"]),
        ([-float("inf")], MaskError, ["-inf"]),
        ([True, False], DtypeError, ["bool"]),
        (["3"], DtypeError, []),
        ([None], DtypeError, []),
        ([1j], DtypeError, ["complex"]),
        (3, ShapeError, ["()", "(B,)"]),
        ([[[1]]], ShapeError, ["(1, 1, 1)"]),
    ],
)
def test_bad_lengths(lens, error, words):
    with pytest.raises(error) as caught:
        masks.from_valid_lens(lens, 5)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("lens", [2**63, 2**64 - 1])
def test_lengths_too_large_for_int64(lens):
    with pytest.raises(MaskError, match=str(lens)):
        masks.from_valid_lens(np.array([lens], np.uint64), 5)


# Causal


def test_causal_shows_the_past_and_the_present():
    for n in range(7):
        mask = masks.causal(n).numpy()
        assert mask.shape == (1, n, n)
        for q in range(n):
            for k in range(n):
                assert mask[0, q, k] == (k <= q)


@pytest.mark.parametrize("n", [-1, 2.0, True, None, "3", [3]])
def test_causal_takes_a_length(n):
    with pytest.raises(ValueError, match="length"):
        masks.causal(n)


def test_causal_takes_a_numpy_integer():
    assert masks.causal(np.int32(3)).shape == (1, 3, 3)


# Padding


def test_padding_hides_one_id():
    ids = [[5, 7, 0], [0, 0, 1]]
    expected = [[True, True, False], [False, False, True]]
    for given in (ids, np.array(ids, np.uint8), ta.tensor(ids)):
        assert masks.padding(given, pad_id=0).tolist() == expected
    assert masks.padding(ids, pad_id=7).tolist() == [[True, False, True], [True] * 3]
    assert masks.padding(np.zeros((2, 0), int)).shape == (2, 0)


@pytest.mark.parametrize(
    ("ids", "error"),
    [([[0.5]], DtypeError), ([[True]], DtypeError), ([1, 2], ShapeError), ([[[1]]], ShapeError)],
)
def test_padding_takes_ids_of_samples(ids, error):
    with pytest.raises(error):
        masks.padding(ids)


def test_padding_is_made_from_ids_since_no_embedding_with_positions_is_zero():
    words, places = nn.Embedding(5, 4, padding_idx=0), nn.PositionalEncoding(4)
    ids = np.array([[3, 2, 0]])
    x = places(words(ids)).numpy()
    assert (np.abs(x).sum(axis=-1) > 0).all()
    assert masks.padding(ids).tolist() == [[True, True, False]]


# Combined


def test_masks_combine_with_and():
    ids = np.array([[4, 2, 0], [1, 1, 1]])
    both = masks.causal(3) & masks.padding(ids).unsqueeze(1)
    assert both.shape == (2, 3, 3)
    first = [[True, False, False], [True, True, False], [True, True, False]]
    assert both.numpy()[0].tolist() == first
    assert_same(both.numpy()[1], np.tri(3, dtype=bool))
    scores = ta.randn(2, 3, 3)
    one = F.masked_softmax(scores, mask=both)
    two = F.masked_softmax(scores, [2, 3], mask=masks.causal(3))
    assert_same(one.numpy(), two.numpy())
    assert (~both).numpy().sum() == (both.numpy() == 0).sum()


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_padding_and_causal_in_one_call(batch):
    """Also where B is 1 or equals Q, and `&` would broadcast without an error."""
    ids = np.array([[4, 2, 0], [1, 1, 1], [7, 0, 0]])[:batch]
    both = masks.combine(masks.padding(ids), masks.causal(3))
    expected = (ids != 0)[:, None, :] & np.tri(3, dtype=bool)
    assert_same(both.numpy(), expected)
    assert_same(masks.combine(masks.causal(3), masks.padding(ids)).numpy(), expected)


def test_masks_of_any_number_of_dimensions_combine():
    shapes = [(B, K), (1, Q, K), (B, H, 1, K)]
    keys, queries, heads = (rng_of(i).uniform(size=s) < 0.6 for i, s in enumerate(shapes))
    found = masks.combine(keys, ta.tensor(queries.astype(int)), heads).numpy()
    assert_same(found, keys[:, None, None] & queries[:, None] & heads)
    assert_same(weights_for(found) > 0, found)
    assert_same(masks.combine(keys).numpy(), keys)
    assert_same(masks.combine(None, keys, None).numpy(), keys)
    assert_same(masks.combine(keys, keys[:1]).numpy(), keys & keys[:1])
    assert masks.combine(np.zeros((0, 4), bool), masks.causal(4)).shape == (0, 4, 4)
    one = masks.combine(keys)
    keys[:] = False
    assert one.numpy().any()


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ((), MaskError, "2, 3 or 4"),
        ((None,), MaskError, "2, 3 or 4"),
        ((np.ones(3, bool),), MaskError, r"\(3,\)"),
        ((np.ones((2, 3), bool), np.ones((1, 4, 4), bool)), MaskError, "agree"),
        ((np.ones((2, 3)),), DtypeError, "float64"),
        ((np.full((2, 3), 2),), MaskError, "0 .*1"),
    ],
)
def test_masks_that_cannot_be_combined(given, error, words):
    with pytest.raises(error, match=words):
        masks.combine(*given)


def test_lengths_of_queries_that_could_not_be_meant_as_a_mask_are_lengths():
    """Refused is only what means two things; and there is a way to write that, too."""
    scores = ta.randn(2, 3, 3)
    nothing = F.masked_softmax(scores, np.zeros((2, 3), int))
    assert_all_zero(nothing.numpy())
    two = F.masked_softmax(scores, [[1, 1, 1], [1, 0, 2]])
    seen = masks.from_valid_lens([[1, 1, 1], [1, 0, 2]], 3)
    assert_same(two.numpy(), F.masked_softmax(scores, mask=seen).numpy())
    ambiguous = [[1, 1, 0], [1, 0, 1]]
    with pytest.raises(MaskError, match="from_valid_lens"):
        F.masked_softmax(scores, ambiguous)
    found = F.masked_softmax(scores, mask=masks.from_valid_lens(ambiguous, 3)).numpy()
    assert_same(found[..., 0], np.array(ambiguous, np.float32))
    for shape in ((2, 3, 4), (2, 1, 1), (0, 3, 3)):
        lens = np.ones(shape[:2], int)
        found = F.masked_softmax(ta.zeros(shape), lens).numpy()
        assert_same(found, np.broadcast_to(np.arange(shape[2]) < 1, shape).astype(np.float32))


# What each number of dimensions means

B, H, Q, K = 2, 3, 4, 5


def weights_for(mask):
    return F.masked_softmax(ta.zeros(B, H, Q, K), mask=mask).numpy()


def test_two_dimensions_are_samples_by_keys():
    mask = np.ones((B, K), bool)
    mask[1, 2:] = False
    found = weights_for(mask) > 0
    assert_same(found, np.broadcast_to(mask[:, None, None], (B, H, Q, K)))


def test_three_dimensions_are_samples_by_queries_by_keys():
    mask = rng_of(0).uniform(size=(B, Q, K)) < 0.6
    assert_same(weights_for(mask) > 0, np.broadcast_to(mask[:, None], (B, H, Q, K)))
    assert_same(weights_for(mask[:1]) > 0, np.broadcast_to(mask[:1, None], (B, H, Q, K)))
    assert_same(weights_for(mask[:, :1]) > 0, np.broadcast_to(mask[:, None, :1], (B, H, Q, K)))


def test_four_dimensions_are_samples_by_heads_by_queries_by_keys():
    mask = rng_of(1).uniform(size=(B, H, Q, K)) < 0.6
    assert_same(weights_for(mask) > 0, mask)
    for index in (np.s_[:1], np.s_[:, :1], np.s_[:, :, :1], np.s_[:1, :1, :1]):
        part = mask[index]
        assert_same(weights_for(part) > 0, np.broadcast_to(part, (B, H, Q, K)))


def queries_by_keys(n):
    """Masks (Q, K) that a user writes, none of which is padding."""
    distance = np.arange(n) - np.arange(n)[:, None]
    yield from (distance <= 0, distance < 0, distance > 0, distance != 0)
    yield from (abs(distance) < width for width in range(1, n))
    yield from ((distance <= 0) & (distance > -width) for width in range(1, n))


@pytest.mark.parametrize("n", [2, 3, 5, 16])
@pytest.mark.parametrize("as_type", [np.asarray, ta.tensor, np.ndarray.tolist, masks.Mask])
def test_a_square_mask_of_queries_is_not_read_as_one_of_samples(n, as_type):
    """B = Q = K: such a mask was applied to samples, without a word."""
    x, attention = ta.randn(n, n, 4), nn.MultiHeadedAttention(2, 4).eval()
    encoder = nn.Encoder(
        nn.EncoderLayer(4, attention, nn.PositionwiseFeedForward(4, 4)), 1, skip_padding=True
    )
    for mask in queries_by_keys(n):
        for read in (
            lambda m: F.scaled_dot_product_attention(x, x, x, m),
            lambda m: F.masked_softmax(ta.zeros(n, n, n), mask=m),
            lambda m: attention(x, x, x, m),
            lambda m: encoder(x, m),
            lambda m: masks.causal(n) & m,
            lambda m: masks.combine(masks.padding(np.ones((1, n), int)), m),
        ):
            with pytest.raises(MaskError, match=r"write mask\[None\]"):
                read(as_type(mask))
        by_query = F.masked_softmax(ta.zeros(n, n, n), mask=mask[None]).numpy()
        assert_same(by_query > 0, np.broadcast_to(mask, (n, n, n)))


def test_a_mask_of_three_queries_by_more_keys_is_not_read_as_one_of_samples():
    x, keys = ta.randn(3, 3, 4), ta.randn(3, 5, 4)
    for mask in (np.tri(3, 5), np.tri(3, 5, 2)):
        with pytest.raises(MaskError, match="looks like queries by keys"):
            F.scaled_dot_product_attention(x, keys, keys, mask=mask.astype(bool))


@pytest.mark.parametrize("n", [2, 3, 4, 7])
def test_padding_of_as_many_samples_as_positions_stays_padding(n):
    rng = np.random.default_rng(n)
    lens = [rng.integers(1, n + 1, n) for _ in range(50)]
    lens += [np.full(n, n), np.minimum(np.arange(n) + 2, n)]
    for length in lens:
        right, left = np.arange(n) < length[:, None], np.arange(n) >= n - length[:, None]
        for seen in (left,) if (length == np.arange(n) + 1).all() else (left, right):
            weights = F.masked_softmax(ta.zeros(n, n, n), mask=seen).numpy()
            assert_same(weights > 0, np.broadcast_to(seen[:, None], (n, n, n)))


def test_a_mask_of_the_library_is_samples_by_keys_whatever_its_numbers_are():
    """Also in a CausalLM and a Decoder, whose prompts may have the lengths 1, 2, ..."""
    ids = np.tril(np.ones((3, 3), int))
    for mask in (masks.padding(ids), masks.from_valid_lens([1, 2, 3], 3), ~masks.padding(1 - ids)):
        assert isinstance(mask, masks.Mask)
        by_lens = F.masked_softmax(ta.zeros(3, 3, 3), [1, 2, 3]).numpy()
        assert_same(F.masked_softmax(ta.zeros(3, 3, 3), mask=mask).numpy(), by_lens)
        x = ta.randn(3, 3, 4)
        options = {"mask": mask}, {"attn_mask": mask}, {"valid_lens": [1, 2, 3]}
        outs = [F.scaled_dot_product_attention(x, x, x, **each).numpy() for each in options]
        assert_same(outs[0], outs[2])
        assert_same(outs[1], outs[2])


def test_what_is_no_mask_is_told_what_a_mask_is():
    padding, x = masks.padding([[5, 0], [4, 6]]), ta.zeros(2, 2, 2)
    for wrong, error, words in (
        ([padding, masks.causal(2)], MaskError, "join masks with a & b"),
        ((padding, padding), MaskError, "join masks with a & b"),
        (masks.causal, DtypeError, r"function causal .* is called, as in masks\.causal\(n\)"),
        ("causal", DtypeError, r"'causal': .* masks\.causal\(n\)"),
    ):
        with pytest.raises(error, match=words):
            F.masked_softmax(x, mask=wrong)
    with pytest.raises(DtypeError, match="a mask holds booleans"):
        masks.Mask([[0.5, 0]])
    with pytest.raises(MaskError, match="2, 3 or 4 dimensions"):
        masks.Mask([True, False])
    assert masks.Mask([[1, 0]]).dtype == bool
    assert {"causal", "padding", "Mask"} <= set(dir(masks))
    assert {"np", "Any", "mask_of", "and_"}.isdisjoint(dir(masks))
    assert {"Any", "TYPE_CHECKING"}.isdisjoint(dir(optim))


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((K,), ["2, 3 or 4", "(5,)"]),
        ((1, 1, 1, 1, K), ["2, 3 or 4"]),
        ((3, K), ["(B|1, K|1)", "B=2", "samples by keys"]),
        ((Q, K), ["(B|1, K|1)", "mask[None]"]),
        ((B, K + 1), ["K=5", "(2, 6)"]),
        ((B, Q, 2), ["(B|1, Q|1, K|1)", "(2, 4, 2)"]),
        ((B, Q + 1, K), ["Q=4"]),
        ((B + 1, Q, K), ["B=2"]),
        ((B, H + 1, Q, K), ["H=3"]),
        ((B, Q, H, K), ["(B|1, H|1, Q|1, K|1)"]),
    ],
)
def test_masks_of_a_wrong_shape_say_what_was_expected(shape, words):
    with pytest.raises(MaskError) as caught:
        weights_for(np.ones(shape, bool))
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("mask", "error", "word"),
    [
        (np.ones((B, K)), DtypeError, "float64"),
        (np.zeros((B, K), np.float32), DtypeError, "mask == 0"),
        (np.full((B, K), -np.inf), DtypeError, "added"),
        (np.full((B, K), 2), MaskError, "0 .*1"),
        (np.full((B, K), -1), MaskError, "0 .*1"),
        (np.ones((B, K), complex), DtypeError, "complex"),
        (np.full((B, K), "yes"), DtypeError, "booleans"),
        (np.full((B, K), None), DtypeError, "booleans"),
    ],
)
def test_masks_of_a_wrong_kind_are_refused(mask, error, word):
    with pytest.raises(error, match=word):
        weights_for(mask)


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int8, np.int32, np.int64, np.uint64])
def test_masks_of_ones_and_zeros_are_taken_in_any_integer_type(dtype):
    mask = rng_of(2).uniform(size=(B, Q, K)) < 0.5
    assert_same(weights_for(mask.astype(dtype)), weights_for(mask))
    assert_same(weights_for(ta.tensor(mask.astype(dtype))), weights_for(mask))
    assert_same(weights_for(np.asfortranarray(mask.astype(dtype))), weights_for(mask))


def test_read_only_and_broadcast_masks():
    mask = np.broadcast_to(np.arange(K) < 3, (B, H, Q, K))
    assert not mask.flags.writeable
    assert (weights_for(mask)[..., :3] > 0).all()


# Softmax over what may be seen


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_masked_softmax_keeps_dtype_and_shape(dtype):
    for shape in ((B, Q, K), (B, H, Q, K)):
        scores = ta.tensor(signed(rng_of(3), *shape).astype(dtype))
        out = F.masked_softmax(scores, [5, 0])
        assert (out.shape, out.dtype) == (shape, dtype)


@pytest.mark.parametrize("shape", [(), (1, 1, 1, 1, 2)])
def test_masked_softmax_takes_one_to_four_dimensions(shape):
    with pytest.raises(ShapeError, match="scores"):
        F.masked_softmax(ta.zeros(shape))


def test_masked_softmax_takes_floating_tensors():
    with pytest.raises(TypeError, match="scores"):
        F.masked_softmax(np.zeros((1, 2, 3)))
    with pytest.raises(DtypeError, match="scores"):
        F.masked_softmax(ta.zeros(1, 2, 3).long())


def test_masked_softmax_without_anything_hidden_is_softmax():
    x = ta.tensor(signed(rng_of(4), B, Q, K))
    assert_same(F.masked_softmax(x).numpy(), F.softmax(x).numpy())
    everything = F.masked_softmax(x, [K, K], mask=np.ones((B, K), bool))
    assert_close(everything.numpy(), F.softmax(x).numpy(), 1e-15)


def test_masked_softmax_gradient_agrees_with_finite_differences():
    mask = rng_of(5).uniform(size=(B, Q, K)) < 0.6
    x = leaf(signed(rng_of(6), B, Q, K))
    assert ta.gradcheck(lambda x: F.masked_softmax(x, [4, 0], mask=mask), [x])
    assert ta.gradgradcheck(lambda x: F.masked_softmax(x, [4, 0], mask=mask), [x], fast=True)


# Sequence mask


@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 2), (3, 4, 2, 2)])
@pytest.mark.parametrize("value", [0, -1.5, float("-inf"), float("nan")])
def test_sequence_mask_replaces_what_comes_after_the_length(shape, value):
    x = leaf(signed(rng_of(7), *shape))
    out = F.sequence_mask(x, [2, 4, 0], value=value)
    keep = np.arange(4) < np.array([2, 4, 0])[:, None]
    keep = np.broadcast_to(keep.reshape(3, 4, *[1] * (len(shape) - 2)), shape)
    assert_same(out.numpy(), np.where(keep, x.numpy(), value))
    grad = signed(rng_of(8), *shape)
    pull(out, grad)
    assert_same(x.grad.numpy(), np.where(keep, grad, 0))


@pytest.mark.parametrize(
    ("x", "lens", "error"),
    [
        (np.zeros((2, 3)), [1, 2], TypeError),
        (ta.zeros(3), [1], ShapeError),
        (ta.zeros(2, 3), [1], ShapeError),
        (ta.zeros(2, 3), [1, 4], MaskError),
        (ta.zeros(2, 3), [1, -1], MaskError),
    ],
)
def test_sequence_mask_refuses_what_does_not_fit(x, lens, error):
    with pytest.raises(error):
        F.sequence_mask(x, lens)


def test_sequence_mask_keeps_the_dtype():
    for dtype in (np.float16, np.float32, np.float64, np.int64):
        x = ta.tensor(np.ones((2, 3), dtype))
        assert F.sequence_mask(x, [1, 2]).dtype == dtype


# The table at the top of masks.py, run


@needs_torch
def test_polarity_table_against_pytorch():
    import torch

    rng = rng_of(9)
    x = signed(rng, 2, 3, 4)
    keep = np.array([[True, True, False], [True, False, True]])
    expected = F.scaled_dot_product_attention(*[ta.tensor(x)] * 3, mask=keep).numpy()
    t = torch.from_numpy(x)
    same = torch.nn.functional.scaled_dot_product_attention(
        t, t, t, attn_mask=torch.from_numpy(keep)[:, None]
    )
    assert_close(same.numpy(), expected)
    module = torch.nn.MultiheadAttention(4, 1, batch_first=True, bias=False, dtype=torch.float64)
    with torch.no_grad():
        module.in_proj_weight.copy_(torch.eye(4, dtype=torch.float64).repeat(3, 1))
        module.out_proj.weight.copy_(torch.eye(4))
        opposite, _ = module(t, t, t, key_padding_mask=torch.from_numpy(~keep))
        wrong, _ = module(t, t, t, key_padding_mask=torch.from_numpy(keep))
    assert_close(opposite.numpy(), expected)
    assert np.abs(wrong.numpy() - expected).max() > 0.01


def test_polarity_is_one_means_may_attend():
    weights = F.masked_softmax(ta.zeros(1, 1, 3), mask=[[1, 0, 1]])
    assert weights.tolist() == [[[0.5, 0.0, 0.5]]]


@pytest.mark.parametrize("flip", [False, True])
def test_masks_of_all_kinds_are_joined_and_passed_as_one(flip: bool) -> None:
    """They say what valid_lens, is_causal and window say, gradients included."""
    ids = ta.tensor([[5, 7, 0, 0, 0], [1, 2, 3, 4, 0]])
    kinds = [masks.padding(ids), masks.causal(5), masks.window(5, 2)]
    first, second, third = reversed(kinds) if flip else kinds
    mask = first & second & third
    assert isinstance(mask, masks.Mask)
    assert mask.shape == (2, 5, 5)
    rng = np.random.default_rng(3)
    upstream = ta.tensor(rng.normal(size=(2, 3, 5, 4)))
    found = []
    for options in ({"mask": mask}, {"valid_lens": [2, 4], "is_causal": True, "window": 2}):
        q, k, v = (
            ta.tensor(np.random.default_rng(i).normal(size=(2, 3, 5, 4)), requires_grad=True)
            for i in range(3)
        )
        out = F.scaled_dot_product_attention(q, k, v, **options)
        out.backward(upstream)
        found.append([out.detach(), q.grad, k.grad, v.grad])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-12, atol=1e-14)


def test_a_prefix_is_read_in_both_directions() -> None:
    mask = masks.prefix([3, 0], 4)
    for b, length in enumerate((3, 0)):
        for q in range(4):
            for k in range(4):
                assert mask.numpy()[b, q, k] == (k < length or k <= q)
    with pytest.raises(MaskError, match="prefix_lens must lie between 0 and n, 4, got 5"):
        masks.prefix([5], 4)
    with pytest.raises(MaskError, match="prefix_lens must be whole"):
        masks.prefix([1.5], 4)
    with pytest.raises(ShapeError, match=r"prefix_lens has shape \(B,\)"):
        masks.prefix(3, 4)


def test_a_window_has_the_width_of_the_argument() -> None:
    for past in (0, 3):
        mask = masks.window(4, 2, past).numpy()[0]
        for q in range(4):
            for k in range(past + 4):
                assert mask[q, k] == (abs(past + q - k) < 2)
    with pytest.raises(ShapeError, match="width"):
        masks.window(4, 0)
    x = ta.randn(1, 4, 2)
    right = F.scaled_dot_product_attention(x, x, x, window=2)
    for width in (np.int8(2), ta.tensor(2)):
        assert F.scaled_dot_product_attention(x, x, x, window=width).equal(right)


def test_a_mask_is_joined_with_any_mask_from_either_side() -> None:
    rows = ta.tensor([[True, True, False]])
    both = masks.causal(3) & masks.padding([[5, 7, 0]])
    for joined in (rows & masks.causal(3), masks.causal(3) & rows):
        assert isinstance(joined, masks.Mask)
        assert joined.equal(both)
    assert (masks.causal(3) & [[1, 1, 0]]).equal(both)
    of_heads = masks.causal(2) & np.ones((1, 3, 1, 2), bool)
    assert of_heads.shape == (1, 3, 2, 2)
    assert (masks.causal(3) | rows).tolist()[0][0] == [True, True, False]
    with pytest.raises(MaskError, match="agree in B, Q and K"):
        masks.causal(3) & masks.causal(4)
    with pytest.raises(DtypeError, match="booleans"):
        masks.causal(3) & ta.ones(3, 3)


def test_the_opposite_of_a_mask_is_a_mask() -> None:
    """Samples stay samples, as in a program that writes masks of True = ignored."""
    ids = np.array([[5, 7, 0], [5, 0, 0], [5, 7, 9]])  # as many samples as queries
    ignored = ~masks.padding(ids) | ~masks.causal(3)
    assert isinstance(ignored, masks.Mask)
    assert (~ignored).equal(masks.padding(ids) & masks.causal(3))


@pytest.mark.parametrize("name", ["and", "or", "xor"])
def test_parts_of_masks_are_joined_also_in_place(name: str) -> None:
    """As many samples as queries, so that a mask (B, K) would have the shape of (Q, K) too."""
    padding = masks.padding(np.array([[5, 7, 0, 0], [5, 0, 0, 0], [5, 7, 9, 0]]))[:, :3]
    causal = masks.causal(8)[:, :3, :3]
    both, in_place = getattr(operator, f"__{name}__"), getattr(operator, f"__i{name}__")
    expected = both(padding.numpy()[:, None], causal.numpy())
    for joined in (both(padding, causal), both(causal, padding), in_place(causal, padding)):
        assert isinstance(joined, masks.Mask)
        assert np.array_equal(joined.numpy(), expected)
    for part in (padding[0], causal[0]):  # a query, a sample, or (Q, K) is no mask of samples
        assert not isinstance(part, masks.Mask)


def test_a_joined_mask_keeps_its_numbers() -> None:
    first = masks.padding([[5, 0]])
    joined = first & masks.causal(2)
    first[0, 0] = False
    assert joined.tolist() == [[[True, False], [True, False]]]
