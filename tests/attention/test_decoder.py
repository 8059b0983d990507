"""Laws of the decoder: the future, the memory's padding, and the cache.

T positions of the target, S of the memory, which has lengths of its own.
"""

from __future__ import annotations

import numpy as np
import pytest
from common import (
    assert_all_zero,
    assert_close,
    assert_equal,
    assert_same,
    leaf,
    pull,
    random_parameters,
    rng_of,
    signed,
)

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import masks, nn
from tinyattn.errors import MaskError, ShapeError

B, T, S, D, H = 3, 5, 7, 6, 2
LENS = np.array([7, 2, 4])  # of the memory
REAL = np.arange(S) < LENS[:, None]  # (B, S)
CLOSE = {np.float32: 3e-5, np.float64: 1e-13}


def layer(norm, dropout=0.0):
    attention = [nn.MultiHeadedAttention(H, D, dropout) for _ in range(2)]
    feed_forward = nn.PositionwiseFeedForward(D, 8, dropout, "gelu")
    return nn.DecoderLayer(D, *attention, feed_forward, dropout, norm)


MAKE = {
    "layer_pre": lambda: layer("pre"),
    "layer_post": lambda: layer("post"),
    "decoder_pre": lambda: nn.Decoder(layer("pre"), 2),
    "decoder_post": lambda: nn.Decoder(layer("post"), 2),
}


def build(kind, dtype):
    return random_parameters(MAKE[kind]().to(dtype), rng_of(1))


def inputs(dtype, seed=2):
    rng = rng_of(seed)
    return signed(rng, B, T, D).astype(dtype), signed(rng, B, S, D).astype(dtype)


def run(module, x, memory, grad, **options):
    """Output, gradients of x and memory, and of the parameters, for a cotangent (B, T, D)."""
    module.zero_grad()
    x, memory = leaf(x), leaf(memory)
    out = module(x, memory, **options)
    pull(out, grad)
    parameters = {name: p.grad.numpy() for name, p in module.named_parameters()}
    return out.numpy(), x.grad.numpy(), memory.grad.numpy(), parameters


every_kind = pytest.mark.parametrize("kind", MAKE)
every_decoder = pytest.mark.parametrize("kind", ["decoder_pre", "decoder_post"])
both_dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])
POISON = {"numbers": None, "nan": np.nan, "inf": np.inf}


# The future


@every_kind
@both_dtypes
@pytest.mark.parametrize("content", POISON)
def test_no_output_moves_when_a_later_target_does(kind, dtype, content):
    module = build(kind, dtype)
    x, memory = inputs(dtype)
    out = module(ta.tensor(x), ta.tensor(memory)).numpy()
    for t in range(1, T):
        other = x.copy()
        later = signed(rng_of(t), B, T - t, D)
        other[:, t:] = 3 * later if content == "numbers" else POISON[content]
        with np.errstate(invalid="ignore"):
            moved = module(ta.tensor(other), ta.tensor(memory)).numpy()
        assert_same(moved[:, :t], out[:, :t])
        assert (moved[:, t:] != out[:, t:]).any(axis=(1, 2)).all()


@every_kind
@both_dtypes
def test_gradient_of_an_early_output_is_zero_for_later_targets(kind, dtype):
    module = build(kind, dtype)
    for t in range(T):
        grad = np.zeros((B, T, D))
        grad[:, t] = signed(rng_of(t), B, D)
        _, dx, dmemory, _ = run(module, *inputs(dtype), grad)
        if t + 1 < T:
            assert_all_zero(dx[:, t + 1 :])
        assert (np.abs(dx[:, : t + 1]).max(axis=(0, 2)) > 0).all()
        assert (np.abs(dmemory).max(axis=(0, 2)) > 0).all()


@every_kind
def test_target_mask_hides_more_than_the_future(kind):
    module = build(kind, np.float64)
    x, memory = inputs(np.float64)
    keep = np.arange(T) < np.array([5, 1, 3])[:, None]
    out = module(ta.tensor(x), ta.tensor(memory), tgt_mask=keep).numpy()
    lens = module(ta.tensor(x), ta.tensor(memory), tgt_valid_lens=[5, 1, 3]).numpy()
    both = masks.combine(keep, masks.causal(T))
    assert_same(lens, out)
    assert_same(module(ta.tensor(x), ta.tensor(memory), tgt_mask=both).numpy(), out)
    other = np.where(keep[..., None], x, np.nan)
    with np.errstate(invalid="ignore"):
        poisoned = module(ta.tensor(other), ta.tensor(memory), tgt_mask=keep).numpy()
    assert_same(poisoned[keep], out[keep])


# The memory


@every_kind
@both_dtypes
@pytest.mark.parametrize("form", ["lens", "mask"])
@pytest.mark.parametrize("content", POISON)
def test_padding_of_the_memory_has_no_influence(kind, dtype, form, content):
    module = build(kind, dtype)
    x, memory = inputs(dtype)
    options = {"src_valid_lens": LENS} if form == "lens" else {"src_mask": REAL}
    grad = signed(rng_of(3), B, T, D)
    out, dx, dmemory, parameters = run(module, x, memory, grad, **options)
    garbage = 9 * signed(rng_of(4), B, S, D) if content == "numbers" else POISON[content]
    changed = np.where(REAL[..., None], memory, garbage).astype(dtype)
    other, other_dx, other_dmemory, other_parameters = run(module, x, changed, grad, **options)
    assert_same(other, out)
    assert_equal(other_dx, dx)
    assert_close(other_dmemory, dmemory, CLOSE[dtype])  # the layers' parts add in another order
    assert_all_zero(dmemory[~REAL])
    for name, value in parameters.items():
        assert_close(other_parameters[name], value, 10 * CLOSE[dtype])


@every_kind
@both_dtypes
def test_a_longer_padding_of_the_memory_changes_nothing(kind, dtype):
    module = build(kind, dtype)
    x, memory = inputs(dtype)
    grad = signed(rng_of(5), B, T, D)
    out, dx, dmemory, _ = run(module, x, memory, grad, src_valid_lens=LENS)
    longer = np.concatenate([memory, signed(rng_of(6), B, 4, D).astype(dtype)], axis=1)
    found, found_dx, found_dmemory, _ = run(module, x, longer, grad, src_valid_lens=LENS)
    assert_close(found, out, CLOSE[dtype])
    assert_close(found_dx, dx, 10 * CLOSE[dtype])
    assert_close(found_dmemory[:, :S], dmemory, 10 * CLOSE[dtype])


@every_kind
@both_dtypes
@pytest.mark.parametrize("content", POISON)
def test_fully_masked_memory_gives_exactly_zero_attention(kind, dtype, content):
    module = build(kind, dtype)
    x, memory = inputs(dtype)
    lens = np.array([7, 0, 4])
    if content != "numbers":
        memory[1] = POISON[content]
    grad = signed(rng_of(7), B, T, D)
    out, dx, dmemory, parameters = run(module, x, memory, grad, src_valid_lens=lens)
    attention = [part.src_attn for part in module.modules() if isinstance(part, nn.DecoderLayer)]
    for part in attention:
        weights = part.attention_weights.numpy()
        assert_all_zero(weights[1])
        assert_close(weights[[0, 2]].sum(axis=-1), np.ones((2, H, T)), 1e-6)
    assert_all_zero(dmemory[1])
    for value in (out, dx, *parameters.values()):
        assert np.isfinite(value).all()
    # Without a bias the sublayer adds exactly nothing, whatever else its weights are.
    with ta.no_grad():
        for part in attention:
            part.W_o.bias[...] = 0
    silent = module(ta.tensor(x), ta.tensor(memory), src_valid_lens=lens).numpy()
    with ta.no_grad():
        for part in attention:
            part.W_o.weight[...] = 0
    without = module(ta.tensor(x), ta.tensor(memory), src_valid_lens=lens).numpy()
    assert_equal(silent[1], without[1])
    assert (silent[0] != without[0]).any()


@every_kind
@both_dtypes
def test_order_of_the_memory_does_not_matter_and_samples_are_separate(kind, dtype):
    module = build(kind, dtype)
    x, memory = inputs(dtype)
    out = module(ta.tensor(x), ta.tensor(memory)).numpy()
    order = rng_of(8).permutation(S)
    permuted = module(ta.tensor(x), ta.tensor(memory[:, order])).numpy()
    assert_close(permuted, out, CLOSE[dtype])
    memory[1] = np.nan
    with np.errstate(invalid="ignore"):
        beside = module(ta.tensor(x), ta.tensor(memory)).numpy()
    assert_same(beside[[0, 2]], out[[0, 2]])
    assert np.isnan(beside[1]).all()


@every_kind
def test_gradients_agree_with_finite_differences(kind):
    module = build(kind, np.float64)
    x, memory = (leaf(a) for a in inputs(np.float64))
    assert ta.gradcheck(module, [x, memory, REAL], fast=True)


@pytest.mark.parametrize("shape", [(0, T, S), (B, 0, S), (B, T, 0)])
def test_empty_batches_targets_and_memories(shape):
    batch, length, source = shape
    module = build("decoder_pre", np.float64)
    x, memory = leaf(np.ones((batch, length, D))), leaf(np.ones((batch, source, D)))
    out = module(x, memory)
    assert out.shape == (batch, length, D)
    pull(out, np.ones(out.shape))
    assert np.isfinite(x.grad.numpy()).all()
    assert memory.grad.shape == memory.shape
    cache = module.new_cache()
    for t in range(length):
        module(x[:, t : t + 1], memory, cache=cache)
    assert cache.length == length


# The cache


@every_decoder
@both_dtypes
@pytest.mark.parametrize("form", ["none", "lens", "mask", "empty", "target"])
def test_steps_with_a_cache_equal_the_full_pass_at_every_position(kind, dtype, form):
    module = build(kind, dtype).eval()
    x, memory = (ta.tensor(a) for a in inputs(dtype))
    options = {
        "none": {},
        "lens": {"src_valid_lens": LENS},
        "mask": {"src_mask": REAL},
        "empty": {"src_valid_lens": [7, 0, 4]},
        "target": {"src_mask": REAL, "tgt_mask": np.arange(T) < np.array([5, 1, 3])[:, None]},
    }[form]
    full = module(x, memory, **options).numpy()
    cache = module.new_cache()
    for t in range(T):
        now = dict(options)
        if form == "target":
            now["tgt_mask"] = options["tgt_mask"][:, : t + 1]
        out = module(x[:, t : t + 1], memory, **now, cache=cache).numpy()
        assert cache.length == t + 1
        assert_close(out[:, 0], full[:, t], CLOSE[dtype])


@every_decoder
@both_dtypes
@pytest.mark.parametrize("sizes", [(5,), (3, 2), (1, 3, 1), (2, 0, 3)])
def test_a_cache_takes_several_positions_at_once(kind, dtype, sizes):
    module = build(kind, dtype).eval()
    x, memory = (ta.tensor(a) for a in inputs(dtype))
    cache, parts, start = module.new_cache(), [], 0
    for size in sizes:
        parts.append(module(x[:, start : start + size], memory, REAL, cache=cache))
        start += size
    full = module(x, memory, REAL).numpy()
    assert_close(ta.cat(parts, 1).numpy(), full, CLOSE[dtype])


@every_decoder
def test_gradients_flow_through_the_cache(kind):
    module = build(kind, np.float64)
    grad = signed(rng_of(9), B, T, D)
    _, dx, dmemory, parameters = run(module, *inputs(np.float64), grad, src_mask=REAL)
    module.zero_grad()
    x, memory = (leaf(a) for a in inputs(np.float64))
    cache = module.new_cache()
    steps = [module(x[:, t : t + 1], memory, REAL, cache=cache) for t in range(T)]
    pull(ta.cat(steps, 1), grad)
    assert_close(x.grad.numpy(), dx, 1e-12)
    assert_close(memory.grad.numpy(), dmemory, 1e-12)
    for name, p in module.named_parameters():
        if not name.endswith("W_k.bias"):  # zero but for rounding
            assert_close(p.grad.numpy(), parameters[name], 1e-12)


def test_a_step_projects_one_position_and_the_memory_only_once(monkeypatch):
    module = build("decoder_pre", np.float32).eval()
    x, memory = (ta.tensor(a) for a in inputs(np.float32))
    rows = []
    forward = nn.Linear.forward

    def counting(self, y):
        rows.append(y.shape[1])
        return forward(self, y)

    monkeypatch.setattr(nn.Linear, "forward", counting)
    cache = module.new_cache()
    for t in range(T):
        rows.clear()
        module(x[:, t : t + 1], memory, cache=cache)
        layers = len(module.layers)
        assert rows.count(S) == (2 * layers if t == 0 else 0)  # W_k and W_v of the memory
        assert rows.count(1) == 8 * layers


@every_decoder
def test_selected_samples_of_a_cache_go_on_as_themselves(kind):
    module = build(kind, np.float64).eval()
    x, memory = (ta.tensor(a) for a in inputs(np.float64))
    full = module(x, memory, REAL).numpy()
    cache = module.new_cache()
    module(x[:, :2], memory, REAL, cache=cache)
    rows = np.array([2, 0, 2, 1])
    cache.select(rows)
    out = module(x[rows][:, 2:], memory[rows], REAL[rows], cache=cache).numpy()
    assert_close(out, full[rows][:, 2:], 1e-13)


def test_weights_of_a_step_are_those_of_its_position():
    module = build("layer_pre", np.float64)
    x, memory = (ta.tensor(a) for a in inputs(np.float64))
    module(x, memory, REAL)
    own, source = (m.attention_weights.numpy() for m in (module.self_attn, module.src_attn))
    decoder = nn.Decoder(module, 1).to(ta.float64)
    decoder.layers[0].load_state_dict(module.state_dict())
    cache = decoder.new_cache()
    for t in range(T):
        decoder(x[:, t : t + 1], memory, REAL, cache=cache)
    step = decoder.layers[0]
    assert_close(step.self_attn.attention_weights.numpy(), own[:, :, -1:], 1e-13)
    assert_close(step.src_attn.attention_weights.numpy(), source[:, :, -1:], 1e-13)


# Errors


def test_a_cache_refuses_other_samples_and_another_memory():
    module = build("decoder_pre", np.float32).eval()
    x, memory = (ta.tensor(a) for a in inputs(np.float32))
    cache = module.new_cache()
    module(x[:, :1], memory, cache=cache)
    with pytest.raises(ShapeError, match="cache is of 3 samples, got 2"):
        module(x[:2, 1:2], memory[:2], cache=cache)
    with pytest.raises(ShapeError, match="a memory of 7 positions, got 3 and 6"):
        module(x[:, 1:2], memory[:, :6], cache=cache)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda m, x, s: m(x[0], s), ShapeError, r"are \(B, N, D\), got shape \(5, 6\)"),
        (
            lambda m, x, s: m(x, s[:2]),
            ShapeError,
            r"agree in B and K, got \(3, 5, 6\), \(2, 7, 6\)",
        ),
        (
            lambda m, x, s: m(x[:2], s),
            ShapeError,
            r"\(2, 5, 6\), \(3, 7, 6\)",
        ),
        (lambda m, x, s: m(x, s[..., :4]), ShapeError, r"\(3, 7, 4\)"),
        (lambda m, x, s: m(x, s, tgt_mask=REAL), MaskError, r"\(3, 7\)"),
        (lambda m, x, s: m(x, s, src_valid_lens=[8, 1, 1]), MaskError, "8 at index 0"),
        (lambda m, x, s: m(x, s.numpy()), TypeError, "must be a Tensor, got numpy"),
    ],
)
def test_bad_inputs_are_refused(call, error, words):
    x, memory = (ta.tensor(a) for a in inputs(np.float32))
    with pytest.raises(error, match=words):
        call(build("decoder_pre", np.float32), x, memory)


def test_what_is_no_part_of_a_decoder_is_refused():
    attention, feed_forward = nn.MultiHeadedAttention(H, D), nn.PositionwiseFeedForward(D, 8)
    with pytest.raises(TypeError, match="src_attn of a decoder layer is a module"):
        nn.DecoderLayer(D, attention, None, feed_forward)
    with pytest.raises(ValueError, match="got one module twice"):
        nn.DecoderLayer(D, attention, attention, feed_forward)
    for network in (feed_forward, nn.SwiGLU(D, 8)):
        with pytest.raises(TypeError, match="takes attention before feed_forward"):
            nn.DecoderLayer(D, attention, network, feed_forward)
        with pytest.raises(TypeError, match="takes attention before feed_forward"):
            nn.EncoderLayer(D, network, feed_forward)
    with pytest.raises(TypeError, match="takes a DecoderLayer, got Linear"):
        nn.Decoder(nn.Linear(D, D), 2)
    with pytest.raises(ValueError, match="both"):
        layer("both")
    encoder = nn.Encoder(nn.EncoderLayer(D, attention, feed_forward), 1)
    with pytest.raises(TypeError, match=r"a Decoder, .* got Encoder second"):
        nn.EncoderDecoder(encoder, encoder, None, None, None)


@pytest.mark.parametrize("rows", [None, 1, [0.5], "a", [[0]], [3], [[0], [1, 2]], [True]])
def test_rows_that_are_no_samples_are_refused_and_nothing_is_selected(rows):
    model = build("decoder_pre", np.float32).eval()
    x, memory = (ta.tensor(a) for a in inputs(np.float32))
    cache = model.new_cache()
    model(x[:, :1], memory, cache=cache)
    before = [part.stored for part in cache.parts()]
    with pytest.raises((ValueError, TypeError, IndexError)):
        cache.select(rows)
    assert [part.stored for part in cache.parts()] == before
    cache.select([])
    assert model(x[:0, 1:2], memory[:0], cache=cache).shape == (0, 1, D)


class Refusal(nn.Module):
    def forward(self, x):
        raise RuntimeError("refused")


def test_a_step_that_a_later_layer_refuses_leaves_the_cache_as_it_was():
    module = build("decoder_pre", np.float64).eval()
    x, memory = (ta.tensor(a) for a in inputs(np.float64))
    full, cache = module(x, memory, REAL).numpy(), module.new_cache()
    for t in range(T):
        last = module.layers[-1].feed_forward
        module.layers[-1].feed_forward = Refusal()
        with pytest.raises(RuntimeError, match="refused"):
            module(x[:, t : t + 1], memory, REAL, cache=cache)
        module.layers[-1].feed_forward = last
        assert [part.past for part in cache.parts()] == [t] * len(cache.parts())
        out = module(x[:, t : t + 1], memory, REAL, cache=cache).numpy()
        assert_close(out[:, 0], full[:, t], 1e-13)


class OwnAttention(nn.Module):
    """It takes what an encoder layer promises to give, and no cache."""

    def forward(self, queries, keys, values, mask, valid_lens):
        return F.scaled_dot_product_attention(queries, keys, values, mask, valid_lens)


def test_an_own_attention_needs_no_argument_for_a_cache():
    feed_forward = nn.PositionwiseFeedForward(D, 8, 0.0)
    x, memory = (ta.tensor(a) for a in inputs(np.float32))
    encoder = nn.EncoderLayer(D, OwnAttention(), feed_forward, 0.0).to(x.device)
    assert encoder(memory, valid_lens=LENS).shape == memory.shape
    decoder = nn.DecoderLayer(D, nn.MultiHeadedAttention(H, D), OwnAttention(), feed_forward, 0.0)
    decoder = decoder.to(x.device)
    assert decoder(x, memory, src_mask=REAL).shape == x.shape


def test_a_gated_network_drops_what_its_gate_gives():
    module = nn.SwiGLU(D, 8, dropout=1.0)
    x = ta.tensor(inputs(np.float32)[0])
    assert (module(x) == 0).all().item()
    assert (module.eval()(x) != 0).any().item()


def test_steps_of_an_encoder_see_what_the_mask_shows():
    layer = nn.EncoderLayer(
        D, nn.MultiHeadedAttention(H, D, 0.0), nn.PositionwiseFeedForward(D, 8, 0.0), 0.0
    )
    module = nn.Encoder(layer, 2).double().eval()
    x = ta.tensor(inputs(np.float64)[1])
    mask = np.arange(S) != np.array([0, 2, 3])[:, None]
    full, cache = module(x, mask, is_causal=True).numpy(), module.new_cache()
    assert np.abs(full - module(x, is_causal=True).numpy()).max() > 0.01
    for t in range(S):
        out = module(x[:, t : t + 1], mask[:, : t + 1], is_causal=True, cache=cache).numpy()
        assert_close(out[:, 0], full[:, t], 1e-13)
