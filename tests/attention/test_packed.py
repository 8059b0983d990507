"""Packed sequences: what is computed without the padding is what was computed with it.

Lengths reach from 0 to all of a sample. Cotangents are random and of both signs, and zero where
padding is, since there the two differ on purpose.
"""

from __future__ import annotations

import copy
import importlib
import pickle

import numpy as np
import pytest
from common import (
    assert_all_zero,
    assert_close,
    assert_equal,
    assert_same,
    gradients_of,
    leaf,
    pull,
    random_parameters,
    rng_of,
    signed,
    stored_case,
)
from hypothesis import given
from hypothesis import strategies as st
from test_attention_laws import both_dtypes
from test_tiled_attention import compiled, peak

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import masks, nn, ops
from tinyattn.base.random import Drop
from tinyattn.errors import MaskError, ShapeError
from tinyattn.kernels import threads
from tinyattn.kernels.visibility import Visibility, samples_of

WIDTH, HEADS = 6, 2
LENGTHS = [[3, 0, 5, 1], [4, 4, 4], [5], [0, 2, 0], [1, 1], [40, 7, 33]]
every_length = pytest.mark.parametrize("lengths", LENGTHS, ids=str)
# For results that are mathematically, not bitwise, equal.
CLOSE = {np.dtype(np.float32): 2e-5, np.dtype(np.float64): 1e-12}


def real(lengths, length):
    """(B, L): True where no padding is."""
    return np.arange(length) < np.array(lengths)[:, None]


def layer(norm="pre", p=0.0):
    return nn.EncoderLayer(
        WIDTH,
        nn.MultiHeadedAttention(HEADS, WIDTH, p),
        nn.PositionwiseFeedForward(WIDTH, 8, p, "gelu"),
        dropout=p,
        norm=norm,
    )


def multi_head(bias=True, p=0.0):
    return nn.MultiHeadAttention(WIDTH, WIDTH, WIDTH, WIDTH, HEADS, dropout=p, bias=bias)


def attend(module):
    """A module of attention as one of x alone."""
    return lambda x, **options: module(x, x, x, **options)


MODULES = {
    "multi_head": lambda: multi_head(False),
    "multi_head_bias": multi_head,
    "multi_headed": lambda: nn.MultiHeadedAttention(HEADS, WIDTH, 0.0),
    "layer_pre": layer,
    "layer_post": lambda: layer("post"),
    "encoder_pre": lambda: nn.Encoder(layer(), 2),
    "encoder_post": lambda: nn.Encoder(layer("post"), 2),
}
every_module = pytest.mark.parametrize("kind", MODULES)


def module_of(kind, dtype):
    module = random_parameters(MODULES[kind]().to(dtype), rng_of(50))
    return module, attend(module) if isinstance(module, nn.MultiHeadAttention) else module


def run(module, call, x, grad, **options):
    """The output, and the gradients of x and of all parameters."""
    module.zero_grad()
    x = leaf(x)
    out = call(x, **options)
    pull(out, grad)
    return out.numpy(), x.grad.numpy(), gradients_of(module)


def arrays(lengths, dtype, length=None, width=WIDTH, seed=51):
    """x and a cotangent (B, L, D), the latter zero behind the lengths."""
    rng, length = rng_of(seed), max(lengths) if length is None else length
    x, grad = (signed(rng, len(lengths), length, width).astype(dtype) for _ in range(2))
    return x, np.where(real(lengths, length)[..., None], grad, 0).astype(dtype)


def assert_gradients_close(found, expected, tolerance):
    assert set(found) == set(expected)
    for name, value in expected.items():
        size = max(1.0, np.abs(value).max())
        assert np.abs(found[name] - value).max() <= tolerance * size, name


# Packing by itself

lists_of_lengths = st.lists(st.integers(0, 6), max_size=5)


@given(lists_of_lengths, st.integers(0, 3), st.sampled_from([(), (3,), (2, 2), (0,)]))
def test_padding_what_was_packed_gives_it_back_with_zeros_behind(lengths, more, rest):
    length = max(lengths, default=0) + more
    x = signed(rng_of(52), len(lengths), length, *rest)
    packed = F.pack_padded_sequence(ta.tensor(x), lengths)
    assert packed.shape == (sum(lengths), *rest)
    keep = real(np.array(lengths, int), length).reshape(len(lengths), length, *(1 for _ in rest))
    back = F.pad_packed_sequence(packed, lengths, length)
    assert_same(back.numpy(), np.where(keep, x, 0.0))
    assert_same(F.pack_padded_sequence(back, lengths).numpy(), packed.numpy())


@given(lists_of_lengths, st.integers(0, 3))
def test_packing_and_padding_are_each_others_transpose(lengths, more):
    """<pack x, y> = <x, pad y>, exactly, on integers; and so are their derivatives."""
    length, rng = max(lengths, default=0) + more, rng_of(53)
    x = leaf(rng.randint(-9, 10, (len(lengths), length, 2)).astype(np.float64))
    y = leaf(rng.randint(-9, 10, (sum(lengths), 2)).astype(np.float64))
    packed, padded = F.pack_padded_sequence(x, lengths), F.pad_packed_sequence(y, lengths, length)
    assert (packed.numpy() * y.numpy()).sum() == (x.numpy() * padded.numpy()).sum()
    (dx,) = ta.grad(packed, x, y.detach())
    (dy,) = ta.grad(padded, y, x.detach())
    assert_same(dx.numpy(), padded.numpy())
    assert_same(dy.numpy(), packed.numpy())


def test_lengths_of_two_dimensions_are_refused_where_there_are_no_rows_too():
    with pytest.raises(ShapeError, match=r"\(B,\) .*got shape \(0, 2\)"):
        F.pad_packed_sequence(ta.ones(0, 3), np.zeros((0, 2), int))


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.int64, np.float16, np.float32, np.float64])
def test_packing_keeps_the_dtype(dtype):
    x = ta.tensor(rng_of(54).randint(0, 2, (3, 4)).astype(dtype))
    packed = F.pack_padded_sequence(x, [2, 0, 4])
    assert packed.dtype == dtype
    padded = F.pad_packed_sequence(packed, [2, 0, 4])
    assert padded.dtype == dtype
    assert_same(padded.numpy(), np.where(real([2, 0, 4], 4), x.numpy(), dtype(0)))


def test_a_packed_tensor_is_a_copy():
    x = ta.ones(2, 3)
    packed = F.pack_padded_sequence(x, [3, 3])
    padded = F.pad_packed_sequence(packed, [3, 3])
    x[:] = 5.0
    packed[:2] = 7.0
    assert packed.tolist() == [7, 7, 1, 1, 1, 1]
    assert_same(padded.numpy(), np.ones((2, 3), np.float32))


def test_nothing_of_the_padding_is_read():
    x = np.where(real([1, 3], 3), 2.0, np.nan)
    packed = F.pack_padded_sequence(leaf(x), [1, 3])
    assert packed.tolist() == [2.0] * 4
    y = leaf(np.ones(4))
    F.pad_packed_sequence(y, [1, 3]).backward(ta.tensor(x))
    assert y.grad.tolist() == [2.0] * 4


# Packed is padded


def settings_of(lengths, causal, packed, p=0.0):
    longest = max(lengths)
    lens, reach = np.array(lengths)[:, None], np.arange(1, longest + 1)[None] if causal else None
    options = {"scale": 0.4, "drop": Drop(p, 7654321)}
    if packed:
        return {**options, "visibility": Visibility(*(samples_of(tuple(lengths)),) * 2, reach)}
    samples = samples_of((longest,) * len(lengths))
    limits = lens if reach is None else np.minimum(lens, reach)
    return {**options, "visibility": Visibility(samples, samples, limits)}


def self_attention(x, **settings):
    """Queries, keys and values are columns of x (..., 3 D) -> (..., D)."""
    rows = x.reshape(-1, 3, WIDTH)  # (R, 3, H * d)
    q, k, v = (rows[:, i] for i in range(3))
    return ops.attention(q, k, v, heads=(HEADS, HEADS), **settings).reshape(*x.shape[:-1], WIDTH)


@both_dtypes
@every_length
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("p", [0.0, 0.3])
def test_packed_self_attention_is_the_padded_one_bit_by_bit(lengths, causal, p, dtype):
    """Dropout too: it counts weights as if samples were padded to the longest."""
    qkv, _ = arrays(lengths, dtype, width=3 * WIDTH)
    _, grad = arrays(lengths, dtype, seed=55)
    keep = real(lengths, max(lengths))
    results = []
    for packed in (False, True):
        x = leaf(qkv[keep] if packed else qkv)
        out = self_attention(x, **settings_of(lengths, causal, packed, p))
        pull(out, grad[keep] if packed else grad)
        results.append((out.numpy(), x.grad.numpy()))
    for padded, packed in zip(*results, strict=True):
        assert packed.dtype == dtype
        assert_equal(packed, padded[keep])
        assert np.abs(packed).max() > 0.1
    assert_all_zero(np.append(results[0][1][~keep], 0))


@every_module
@both_dtypes
@every_length
def test_module_on_packed_samples_agrees_with_padded_ones(kind, dtype, lengths):
    module, call = module_of(kind, dtype)
    x, grad = arrays(lengths, dtype)
    keep, tolerance = real(lengths, max(lengths)), CLOSE[np.dtype(dtype)]
    out, dx, slopes = run(module, call, x, grad, valid_lens=lengths)
    packed = run(module, call, x[keep], grad[keep], valid_lens=lengths)
    assert packed[0].shape == (sum(lengths), WIDTH)
    assert_close(packed[0], out[keep], tolerance)
    assert_close(packed[1], dx[keep], 10 * tolerance)
    assert_gradients_close(packed[2], slopes, 10 * tolerance)


@both_dtypes
@every_length
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_attention_with_dropout_on_packed_samples_agrees(dtype, lengths, causal, bias):
    """The same seed drops the same weights, packed or padded to the longest."""
    module = random_parameters(multi_head(bias, 0.4).to(dtype), rng_of(56))
    x, grad = arrays(lengths, dtype)
    keep, tolerance = real(lengths, max(lengths)), CLOSE[np.dtype(dtype)]
    found = []
    for inputs, upstream in ((x, grad), (x[keep], grad[keep])):
        ta.manual_seed(9)
        found.append(
            run(module, attend(module), inputs, upstream, valid_lens=lengths, is_causal=causal)
        )
    (out, dx, slopes), packed = found
    assert_close(packed[0], out[keep], tolerance)
    assert_close(packed[1], dx[keep], 10 * tolerance)
    assert_gradients_close(packed[2], slopes, 10 * tolerance)


def test_packed_encoder_agrees_with_pytorch_in_float32():
    """PyTorch's float64 values, sample by sample; test_layers.py compares float64."""
    import make_torch_values as cases
    from test_layers import Weights, make_layer

    for norm in ("pre", "post"):
        name = f"packed_encoder.{norm}.skip_padding"
        given_, expected = cases.arrays_of(name), stored_case(name)
        module = nn.Encoder(make_layer(norm, "gelu"), cases.LAYERS, skip_padding=True)
        weights = Weights(module, given_)
        module.to(ta.float32)
        x = leaf(given_["x"], np.float32)
        out = module(x, valid_lens=cases.PACKED_LENGTHS)
        pull(out, given_["grad"])
        assert out.dtype == np.float32
        assert_close(out.numpy(), expected["out"], 2e-6)
        assert_close(x.grad.numpy(), expected["d.x"], 1e-5)
        for key, value in weights.gradients().items():
            size = max(1.0, np.abs(expected[key]).max())
            assert np.abs(value - expected[key]).max() <= 1e-5 * size, key


# Samples do not see each other


@both_dtypes
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("which", range(4))
def test_a_sample_changes_no_bit_of_the_others(dtype, causal, which):
    lengths = [3, 17, 0, 40]
    starts = np.cumsum([0, *lengths])
    mine = slice(starts[which], starts[which + 1])
    others = np.ones(sum(lengths), bool)
    others[mine] = False
    module = random_parameters(multi_head().to(dtype), rng_of(57))
    x, grad = (signed(rng_of(seed), sum(lengths), WIDTH).astype(dtype) for seed in (58, 59))
    changed, upstream = x.copy(), grad.copy()
    changed[mine] *= 3
    upstream[mine] *= -5
    results = [
        run(module, attend(module), *both, valid_lens=lengths, is_causal=causal)
        for both in ((x, grad), (changed, upstream))
    ]
    for one, two in zip(results[0][:2], results[1][:2], strict=True):
        assert_same(one[others], two[others])
        assert lengths[which] == 0 or np.abs(one[mine] - two[mine]).min() > 0


@both_dtypes
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["input", "cotangent"])
def test_nan_in_a_sample_reaches_no_other(dtype, causal, value, where):
    """Neither forward nor backward, whether the odd sample is the longest, the first or between."""
    lengths = [5, 70, 0, 3, 9]
    starts, rng = np.cumsum([0, *lengths]), rng_of(60)
    qkv = signed(rng, sum(lengths), 3 * WIDTH).astype(dtype)
    grad = signed(rng, sum(lengths), WIDTH).astype(dtype)
    options = settings_of(lengths, causal, True)
    for which in (0, 1, 3, 4):
        mine = np.zeros(sum(lengths), bool)
        mine[starts[which] : starts[which + 1]] = True
        results = []
        for content in (1.0, value):
            x, upstream = qkv.copy(), grad.copy()
            (x if where == "input" else upstream)[mine] = content
            x = leaf(x)
            out = self_attention(x, **options)
            with np.errstate(all="ignore"):
                pull(out, upstream)
            results.append((out.numpy(), x.grad.numpy()))
        for clean, odd in zip(*results, strict=True):
            if causal:  # a loop that looks for NaN, compiled by itself
                assert_close(odd[~mine], clean[~mine], 4 * np.finfo(dtype).eps)
            else:
                assert_same(odd[~mine], clean[~mine])
        assert not np.isfinite(results[1][1][mine]).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("which", ["query", "key", "value", "cotangent"])
@pytest.mark.parametrize("form", ["packed", "padded"])
def test_nan_in_a_sample_goes_where_it_is_seen_and_to_no_position_before(form, which, value):
    """Causal, in float32 as in float64; queries, keys and values are columns of one array."""
    lengths = [3, 9, 0, 6]
    padded, upstream = arrays(lengths, np.float64, width=3 * WIDTH)[0], arrays(lengths, np.float64)
    place = {"query": 1, "key": WIDTH + 1, "value": 2 * WIDTH + 1, "cotangent": 1}[which]
    (upstream[1] if which == "cotangent" else padded)[1, 4, place] = value
    keep = real(lengths, max(lengths))
    options = settings_of(lengths, True, form == "packed")
    results = []
    for dtype in (np.float32, np.float64):
        qkv, grad = (x.astype(dtype) for x in (padded, upstream[1]))
        qkv = leaf(qkv[keep] if form == "packed" else qkv)
        out = self_attention(qkv, **options)
        with np.errstate(all="ignore"):
            pull(out, grad[keep] if form == "packed" else grad)
        results.append([out.numpy(), qkv.grad.numpy()])
    if form == "padded":
        results = [[x[keep] for x in pair] for pair in results]
    for actual, exact in zip(*results, strict=True):
        sound = np.isfinite(exact)
        assert (np.isfinite(actual) == sound).all()
        assert np.abs(actual[sound] - exact[sound]).max() < 1e-5
    first = lengths[0] + 4
    out, slope = results[0]
    assert np.isfinite(out[:first]).all()
    assert np.isfinite(out).all() == (which == "cotangent")
    assert not np.isfinite(slope).all()
    assert np.isfinite(np.delete(slope, range(lengths[0], lengths[0] + 9), axis=0)).all()


@both_dtypes
@pytest.mark.parametrize("where", ["query", "value", "cotangent"])
def test_nan_of_a_query_stays_out_of_keys_it_does_not_see_whatever_its_tile_is_padded_to(
    where, dtype
):
    """The first 32 queries, a tile in backward, see 5 keys; a vector of 16 has the next 11 too."""
    rng, lengths = rng_of(80), [40]
    qkv, grad = (signed(rng, 40, width).astype(dtype) for width in (3 * WIDTH, WIDTH))
    if where == "value":  # of the sixth key, which the last eight queries see
        qkv[5, 2 * WIDTH + 1] = np.nan
    else:
        (qkv if where == "query" else grad)[7, 1] = np.nan
    limits = np.where(np.arange(40) < 32, 5, 40)[None]
    options = settings_of(lengths, False, True)
    options["visibility"] = options["visibility"]._replace(limits=limits)
    x = leaf(qkv)
    out = self_attention(x, **options)
    with np.errstate(all="ignore"):
        pull(out, grad)
    found = x.grad.numpy()
    if where == "value":
        assert np.isfinite(found[:32, :WIDTH]).all()
        assert np.isnan(found[32:, : WIDTH // 2]).all()
    else:
        assert np.isfinite(np.delete(found, [0, 1, 2, 3, 4, 7], axis=0)).all()
        assert np.isnan(found[:5]).any()


@both_dtypes
def test_nan_in_a_value_nobody_sees_reaches_nothing(dtype):
    """Padding is no query either: as one that sees the value it would spread it in backward."""
    rng, lengths = rng_of(81), [2, 5]
    qkv, grad = (signed(rng, 7, width).astype(dtype) for width in (3 * WIDTH, WIDTH))
    qkv[1, 2 * WIDTH + 1] = np.nan
    limits = np.array([[1, 1, 5, 5, 5], [5, 5, 5, 5, 5]])
    x = leaf(qkv)
    options = settings_of(lengths, False, True)
    options["visibility"] = options["visibility"]._replace(limits=limits)
    out = self_attention(x, **options)
    pull(out, grad)
    assert np.isfinite(out.numpy()).all()
    assert np.isfinite(x.grad.numpy()).all()


@both_dtypes
@pytest.mark.parametrize("causal", [False, True])
def test_permuting_samples_permutes_outputs_and_gradients(dtype, causal):
    lengths, order = [3, 17, 0, 40, 1], [4, 2, 1, 0, 3]
    module = random_parameters(multi_head().to(dtype), rng_of(61))
    parts = [signed(rng_of(62 + n), n, WIDTH).astype(dtype) for n in lengths]
    grads = [signed(rng_of(63 + n), n, WIDTH).astype(dtype) for n in lengths]
    results = []
    for places in (range(5), order):
        lens = [lengths[i] for i in places]
        x, grad = (np.concatenate([whole[i] for i in places]) for whole in (parts, grads))
        found = run(module, attend(module), x, grad, valid_lens=lens, is_causal=causal)
        results.append([np.split(array, np.cumsum(lens)[:-1]) for array in found[:2]])
    for straight, permuted in zip(*results, strict=True):
        for place, i in enumerate(order):
            size = np.abs(straight[i]).max(initial=1)
            difference = np.abs(permuted[place] - straight[i]).max(initial=0)
            assert difference <= 8 * np.finfo(dtype).eps * size


# Encoder(skip_padding=True)


def twin_encoders(norm, dtype, p=0.0, training=True):
    """The same encoder twice, of which the second skips padding."""
    plain = random_parameters(nn.Encoder(layer(norm, p), 2).to(dtype), rng_of(64)).train(training)
    skipping = nn.Encoder(layer(norm, p), 2, skip_padding=True).to(dtype).train(training)
    skipping.load_state_dict(plain.state_dict())
    return plain, skipping


@both_dtypes
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("causal", [True, False])
@every_length
def test_skipping_padding_changes_nothing_but_the_padding(norm, dtype, training, causal, lengths):
    """In training without dropout and in evaluation with it; longer than the longest sample."""
    plain, skipping = twin_encoders(norm, dtype, 0.0 if training else 0.5, training)
    x, grad = arrays(lengths, dtype, length=max(lengths) + 2)
    keep, tolerance = real(lengths, max(lengths) + 2), CLOSE[np.dtype(dtype)]
    hiding = {"valid_lens": lengths, "is_causal": causal}
    out, dx, slopes = run(plain, plain, x, grad, **hiding)
    found = run(skipping, skipping, x, grad, **hiding)
    assert found[0].shape == out.shape
    assert_close(found[0][keep], out[keep], tolerance)
    assert_close(found[1], dx, 10 * tolerance)
    assert_gradients_close(found[2], slopes, 10 * tolerance)
    assert_all_zero(found[0][~keep])
    assert_all_zero(found[1][~keep])


@pytest.mark.parametrize("kind", [list, np.array, ta.tensor])
@pytest.mark.parametrize("lengths", [[3, 4], [5, 2], [7, 7]])  # the sum of two is the length
def test_skipping_padding_keeps_the_position_of_each_row(lengths, kind):
    attention = nn.MultiHeadedAttention(2, 8, 0.0, rotary=nn.RotaryEmbedding(4))
    layer = nn.EncoderLayer(8, attention, nn.PositionwiseFeedForward(8, 8, 0.0), 0.0)
    plain = random_parameters(nn.Encoder(layer, 2).double(), rng_of(64))
    skipping = nn.Encoder(layer, 2, skip_padding=True).double()
    skipping.load_state_dict(plain.state_dict())
    x, grad = arrays(lengths, np.float64, length=7, width=8)
    keep, own = real(lengths, 7), [0, 1, 9, 10, 30, 31, 35]
    for positions in (own, [own, own[::-1]]):
        options = {"valid_lens": lengths, "positions": kind(positions)}
        found, expected = (run(m, m, x, grad, **options) for m in (skipping, plain))
        assert_close(found[0][keep], expected[0][keep], CLOSE[np.dtype(np.float64)])
        assert_gradients_close(found[2], expected[2], 10 * CLOSE[np.dtype(np.float64)])
    with pytest.raises(ShapeError, match="6"):
        skipping(ta.tensor(x), valid_lens=lengths, positions=own[:6])


@both_dtypes
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_causal_encoder_is_one_with_a_causal_mask(norm, dtype):
    module, _ = twin_encoders(norm, dtype)
    lengths, tolerance = [7, 4, 1], CLOSE[np.dtype(dtype)]
    x, grad = arrays(lengths, dtype)
    found = run(module, module, x, grad, valid_lens=lengths, is_causal=True)
    expected = run(module, module, x, grad, valid_lens=lengths, mask=masks.causal(7))
    seeing_all = run(module, module, x, grad, valid_lens=lengths)
    for actual, exact, other in zip(found[:2], expected[:2], seeing_all[:2], strict=True):
        assert_close(actual, exact, 10 * tolerance)
        assert np.abs(actual - other).max() > 0.01
    assert_gradients_close(found[2], expected[2], 10 * tolerance)


@both_dtypes
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_what_stands_in_skipped_padding_reaches_nothing(norm, dtype, value):
    """Not the output, not a gradient, not those of the weights; nor does its cotangent."""
    _, module = twin_encoders(norm, dtype)
    lengths = [3, 0, 5, 1]
    x, grad = arrays(lengths, dtype, length=6)
    clean = run(module, module, x, grad, valid_lens=lengths)
    padding = ~real(lengths, 6)
    x[padding], grad[padding] = value, -value
    odd = run(module, module, x, grad, valid_lens=lengths)
    assert_same(odd[0], clean[0])
    assert_same(odd[1], clean[1])
    for name, slope in clean[2].items():
        assert_same(odd[2][name], slope)


def test_without_lengths_nothing_is_skipped():
    plain, skipping = twin_encoders("pre", np.float64)
    x = ta.tensor(arrays([3, 5], np.float64)[0])
    assert_same(skipping(x).numpy(), plain(x).numpy())


def test_a_padding_mask_says_the_lengths_to_skip():
    """As booleans, as integers, as a Tensor; another mask is refused, and not in silence."""
    _, module = twin_encoders("pre", np.float64)
    lengths = [3, 5, 0]
    x = ta.tensor(arrays(lengths, np.float64)[0])
    expected = module(x, valid_lens=lengths).numpy()
    mask = real(lengths, 5)
    for form in (mask, mask.astype(np.int64), ta.tensor(mask), mask.tolist()):
        assert_same(module(x, mask=form).numpy(), expected)
    for wrong, message in (
        (mask[:, ::-1], "sample 0 has a gap, or begins with padding"),
        (np.array([[1, 1, 1, 1, 1], [1, 0, 1, 1, 1], [0] * 5]), "sample 1 has a gap"),
        (mask[:, :4], r"\(B, N\) = \(3, 5\), got shape \(3, 4\)"),
        (masks.causal(5), r"\(B, N\) = \(3, 5\), got shape \(1, 5, 5\)"),
    ):
        with pytest.raises(MaskError, match=message):
            module(x, mask=wrong)
    with pytest.raises(MaskError, match="not both"):
        module(x, mask=mask, valid_lens=lengths)


def test_samples_without_positions_only():
    _, module = twin_encoders("pre", np.float64)
    x = leaf(signed(rng_of(65), 2, 3, WIDTH))
    out = module(x, valid_lens=[0, 0])
    assert_all_zero(out.numpy())
    pull(out, signed(rng_of(66), 2, 3, WIDTH))
    assert_all_zero(x.grad.numpy())
    for name, slope in gradients_of(module).items():
        if name != "norm.bias":
            assert_all_zero(slope)
    none = module(leaf(np.zeros((0, 3, WIDTH))), valid_lens=[])
    assert none.shape == (0, 3, WIDTH)


def test_dropout_falls_on_every_position_that_is_kept_and_is_repeated_by_its_seed():
    module = nn.Encoder(layer(), 1, skip_padding=True)
    module.layers[0].sublayer[0].dropout.p = 0.5
    x = ta.randn(8, 40, WIDTH)
    lengths = [40, 3, 17, 0, 25, 40, 1, 9]
    runs = []
    for _ in range(2):
        ta.manual_seed(2)
        runs.append(np.stack([module(x, valid_lens=lengths).numpy() for _ in range(12)]))
    assert_same(*runs)
    keep = real(lengths, 40)
    assert (runs[0] != runs[0][:1]).any(axis=(0, -1))[keep].all()
    assert_all_zero(runs[0][:, ~keep])


# Modules


def test_second_derivatives_of_packed_modules():
    rng, lengths = rng_of(67), [2, 0, 1]
    for kind in ("multi_head_bias", "layer_pre"):
        module, call = module_of(kind, np.float64)
        x = leaf(signed(rng, 3, WIDTH))
        ta.gradgradcheck(lambda x, c=call: c(x, valid_lens=lengths), [x], fast=True)
    module = random_parameters(nn.Encoder(layer(), 1, True).to(np.float64), rng_of(68))
    x = leaf(signed(rng, 3, 2, WIDTH))
    ta.gradcheck(lambda x: module(x, valid_lens=lengths), [x], fast=True)
    ta.gradgradcheck(lambda x: module(x, valid_lens=lengths), [x], fast=True)


@both_dtypes
@every_length
@pytest.mark.parametrize("causal", [False, True])
def test_attention_weights_of_packed_samples_are_those_of_padded_ones(dtype, lengths, causal):
    module = random_parameters(multi_head(p=0.3).to(dtype), rng_of(69))
    x, _ = arrays(lengths, dtype)
    keep = real(lengths, max(lengths))
    options = {"valid_lens": lengths, "is_causal": causal}
    attend(module)(ta.tensor(x), **options)
    expected = module.attention_weights.numpy()
    packed = ta.tensor(x[keep], requires_grad=True)
    attend(module)(packed, **options)
    found = module.attention_weights
    assert not found.requires_grad
    assert found.shape == (len(lengths), HEADS, max(lengths), max(lengths))
    queries = np.broadcast_to(keep[:, None, :], found.shape[:3])
    assert_close(found.numpy()[queries], expected[queries], CLOSE[np.dtype(dtype)])
    hidden = np.broadcast_to(~keep[:, None, None], found.shape)
    assert_all_zero(np.append(found.numpy()[hidden], 0))
    assert_close(found.numpy()[queries].sum(axis=-1), np.ones(queries.sum()), 1e-6)
    assert module.attention_weights is found
    for b, n in enumerate(lengths):  # by their formula
        rows = ta.tensor(x[b : b + 1, :n])
        q, k = heads_of(module, module.W_q(rows)), heads_of(module, module.W_k(rows))
        scores = q @ k.transpose(-1, -2) / (WIDTH / HEADS) ** 0.5
        right = F.masked_softmax(scores, mask=np.tri(n, dtype=bool)[None] if causal else None)
        assert_close(found.numpy()[b, :, :n, :n], right.numpy()[0], CLOSE[np.dtype(dtype)])


def test_copies_files_and_states_do_not_know_of_packing():
    plain, module = twin_encoders("pre", np.float32)
    assert list(module.state_dict()) == list(plain.state_dict())
    x, lengths = ta.tensor(arrays([3, 1], np.float32)[0]), [3, 1]
    expected = module(x, valid_lens=lengths).numpy()
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert twin.skip_padding is True
        assert_same(twin(x, valid_lens=lengths).numpy(), expected)
        with pytest.raises(AttributeError, match="has not been called"):
            copy.deepcopy(twin).layers[0].self_attn.attention_weights  # noqa: B018
    assert plain.skip_padding is False


class Doubled(nn.Linear):
    """A projection that is more than its weight."""

    def forward(self, x):
        return super().forward(x) * 2


def heads_of(module, x):
    """(B, N, D) -> (B, H, N, d)"""
    batch, length, width = x.shape
    split = x.reshape(batch, length, module.num_heads, width // module.num_heads)
    return split.swapaxes(1, 2)


def plain_attention(module, x, lengths):
    """Attention of each sample by its formula, from what the projections give."""
    out, start = [], 0
    for n in lengths:
        rows = x[start : start + n].unsqueeze(0)
        q, k, v = (heads_of(module, w(rows)) for w in (module.W_q, module.W_k, module.W_v))
        heads = F.scaled_dot_product_attention(q, k, v)  # (1, H, n, d)
        out.append(module.W_o(heads.swapaxes(1, 2).flatten(2)).squeeze(0))
        start += n
    return ta.cat(out)


@pytest.mark.parametrize("form", ["packed", "padded"])
@pytest.mark.parametrize("biases", range(8))
@pytest.mark.parametrize("special", [None, "W_q", "W_k", "W_v"])
def test_projections_of_any_kind_agree_with_their_formula(form, biases, special):
    """Also where a bias is missing, or where a projection is another module."""
    module = multi_head(False)
    for i, name in enumerate(("W_q", "W_k", "W_v")):
        kind = Doubled if name == special else nn.Linear
        setattr(module, name, kind(WIDTH, WIDTH, bias=bool(biases >> i & 1)))
    random_parameters(module.to(np.float64), rng_of(70))
    lengths = [3, 2]
    x, grad = arrays(lengths, np.float64)
    keep = real(lengths, 3)
    expected = run(module, lambda x: plain_attention(module, x, lengths), x[keep], grad[keep])
    if form == "padded":
        found = run(module, attend(module), x, grad, valid_lens=lengths)
        found = found[0][keep], found[1][keep], found[2]
    else:
        found = run(module, attend(module), x[keep], grad[keep], valid_lens=lengths)
    assert_close(found[0], expected[0], 1e-12)
    assert_close(found[1], expected[1], 1e-11)
    assert_gradients_close(found[2], expected[2], 1e-11)


def test_values_may_be_wider_than_queries():
    """Once cut at a third of the sum of the widths, which 8 + 8 + 20 has."""
    module = nn.MultiHeadAttention(4, 4, 4, 8, 2)
    module.W_v, module.W_o = nn.Linear(4, 20, bias=False), nn.Linear(20, 8)
    random_parameters(module.to(np.float64), rng_of(71))
    x = ta.tensor(signed(rng_of(72), 3, 4))
    expected = plain_attention(module, x, [3]).numpy()
    padded = x.unsqueeze(0)
    assert_close(module(padded, padded, padded).numpy()[0], expected, 1e-12)
    assert_close(module(padded, padded, padded, valid_lens=[3]).numpy()[0], expected, 1e-12)
    assert_close(module(x, x, x, valid_lens=[3]).numpy(), expected, 1e-12)


def test_packed_tensors_that_are_equal_but_not_one_agree():
    """Queries, keys and values of their own rows: projected one by one."""
    module = random_parameters(multi_head().to(np.float64), rng_of(73))
    x = signed(rng_of(74), 5, WIDTH)
    whole = leaf(x)
    expected = module(whole, whole, whole, valid_lens=[2, 3])
    pull(expected, x)
    parts = [leaf(x) for _ in range(3)]
    found = module(*parts, valid_lens=[2, 3])
    pull(found, x)
    assert_close(found.numpy(), expected.numpy(), 1e-13)
    assert_close(sum(p.grad.numpy() for p in parts), whole.grad.numpy(), 1e-12)


def test_changing_what_packed_attention_needs_for_its_gradient_is_an_error():
    qkv = leaf(signed(rng_of(75), 5, 3 * WIDTH).astype(np.float32))
    out = self_attention(qkv * 1.0, **settings_of([2, 3], False, True))
    with pytest.raises(ValueError, match="read-only"):
        out.data[0] = 0


# Threads and memory


@compiled
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("p", [0.0, 0.3])
def test_number_of_threads_changes_no_bit_of_packed_attention(causal, p, divided):
    lengths = [290, 3, 0, 131, 64]
    rng = rng_of(76)
    qkv = leaf(signed(rng, sum(lengths), 3 * WIDTH).astype(np.float32))
    grad = ta.tensor(signed(rng, sum(lengths), WIDTH).astype(np.float32))
    results = []
    for number in (1, 2, 3, 7):
        ta.set_num_threads(number)
        divided.clear()
        out = self_attention(qkv, **settings_of(lengths, causal, True, p))
        results.append((out.numpy().tobytes(), ta.grad(out, qkv, grad)[0].numpy().tobytes()))
        names = ["attention_heads"] * 2  # forward and backward
        chunks = min(len(lengths) * HEADS, threads.CHUNKS_PER_THREAD * number)
        assert divided == [(name, chunks) for name in names if number > 1]
    assert len(set(results)) == 1


@compiled
def test_work_is_divided_by_what_the_samples_take_not_their_padding(monkeypatch):
    """About heads times the sum of squared lengths, and backward has 5 products, forward 2."""
    module = importlib.import_module("tinyattn.kernels.cpu.tiled_attention")
    calls = []

    def recorded(count, nanoseconds, function, *arguments):
        calls.append((count, nanoseconds))
        function(*arguments, 0, count)

    monkeypatch.setattr(module, "parallel_for", recorded)
    found = []
    for lengths in ([2000, 3], [2000, 2000]):
        calls.clear()
        qkv = leaf(signed(rng_of(77), sum(lengths), 3 * WIDTH).astype(np.float32))
        out = self_attention(qkv, **settings_of(lengths, False, True))
        pull(out, signed(rng_of(78), sum(lengths), WIDTH))
        (count, forward), (again, backward) = calls
        assert count == again == len(lengths) * HEADS
        assert backward == 2.5 * forward > 0
        found.append(forward)
    assert found[0] / found[1] == pytest.approx((2000**2 + 3**2) / (2 * 2000**2), rel=0.01)


@compiled
@pytest.mark.parametrize("options", [{}, {"is_causal": True}])
def test_memory_of_packed_attention_is_linear_in_the_length(options, same_threads_afterwards):
    """Forward and backward of the module, where one sample is as long as all the others."""
    ta.set_num_threads(1)
    attention = nn.MultiHeadAttention(16, 16, 16, 16, 2, dropout=0.1)
    peaks = []
    for length in (512, 1024, 2048):
        lengths = [length, *[length // 8] * 8]
        x = ta.randn(2 * length, 16, requires_grad=True)
        gradient = ta.randn(2 * length, 16)

        def step(x=x, gradient=gradient, lengths=lengths):
            attention(x, x, x, valid_lens=lengths, **options).backward(gradient)

        peaks.append(peak(step))
    assert peaks[2] < 2.2 * peaks[1] < 4.84 * peaks[0]
    assert peaks[2] < 30 * x.numpy().nbytes  # padded it would be 9 samples of 2,048


@compiled
def test_memory_of_packed_attention_does_not_grow_with_the_padding(same_threads_afterwards):
    """Many short samples beside a long one: padded they would be eight times as much."""
    ta.set_num_threads(1)
    attention = nn.MultiHeadAttention(16, 16, 16, 16, 2)
    peaks = []
    for lengths in ([1024, 1024], [1024, *[16] * 64]):
        x, gradient = ta.randn(2048, 16, requires_grad=True), ta.randn(2048, 16)

        def step(x=x, gradient=gradient, lengths=lengths):
            attention(x, x, x, valid_lens=lengths).backward(gradient)

        peaks.append(peak(step))
    assert peaks[1] < 1.1 * peaks[0]
