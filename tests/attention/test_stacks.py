"""Encoders and decoders put together from options: norms, feed-forward networks, caches."""

from __future__ import annotations

import numpy as np
import pytest
from common import assert_close, assert_equal, pull, rng_of, signed

import tinyattn as ta
from tinyattn import nn
from tinyattn.errors import ShapeError

WIDTH = 16
TOLERANCE = {np.float32: 3e-5, np.float64: 1e-12}
both_dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def llama_like(dtype=np.float64, layers=2, **options):
    """RMSNorm, rotary positions, shared heads of keys and SwiGLU, from options alone."""
    ta.manual_seed(3)
    attention = nn.MultiHeadAttention(
        *(WIDTH,) * 4, 4, num_kv_heads=2, rotary=nn.RotaryEmbedding(4)
    )
    layer = nn.EncoderLayer(
        WIDTH, attention, nn.SwiGLU(WIDTH, 24, dropout=0.0), 0.0, norm_layer=nn.RMSNorm, **options
    )
    return nn.Encoder(layer, layers).to(dtype).eval()


def inputs(dtype, *shape):
    return ta.tensor(signed(rng_of(1), *shape).astype(dtype))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_class_of_the_norms_and_their_eps(norm):
    stack = llama_like(norm=norm, eps=1e-3)
    norms = [module for module in stack.modules() if isinstance(module, nn.RMSNorm)]
    assert [n.eps for n in norms] == [1e-3] * (5 if norm == "pre" else 4)
    assert not any(isinstance(module, nn.LayerNorm) for module in stack.modules())
    assert (stack.norm is None) == (norm == "post")


def test_the_default_is_a_layer_norm_with_its_own_eps():
    attention = nn.MultiHeadedAttention(4, WIDTH)
    layer = nn.EncoderLayer(WIDTH, attention, nn.PositionwiseFeedForward(WIDTH, 8))
    norms = [part.norm for part in layer.sublayer] + [nn.Encoder(layer, 1).norm]
    assert [(type(n), n.eps) for n in norms] == [(nn.LayerNorm, 1e-5)] * 3
    assert (
        nn.EncoderLayer(WIDTH, attention, attention.W_o, norm_layer=nn.RMSNorm).sublayer[0].norm.eps
        is None
    )


def test_any_function_of_the_width_makes_the_norms():
    """Also that at the end: it knows no eps, because none was given to the layer."""
    stack = llama_like(norm="pre")
    layer = nn.EncoderLayer(
        8,
        nn.MultiHeadedAttention(2, 8),
        nn.SwiGLU(8, 4),
        norm_layer=lambda size: nn.RMSNorm(size, 1e-2),
    )
    for made in (nn.Encoder(layer, 2), stack):
        assert made.norm.eps == made.layers[0].sublayer[0].norm.eps


@pytest.mark.parametrize(
    "wrong", [lambda size: size, str, "rms", None, nn.RMSNorm(8), nn.Linear, nn.Dropout]
)
def test_a_norm_layer_that_makes_no_norm_is_refused(wrong):
    with pytest.raises(TypeError, match="norm_layer is a class of modules that takes the width"):
        nn.SublayerConnection(8, norm_layer=wrong)


def test_no_norm_at_all():
    part = nn.SublayerConnection(8, dropout=0.0, norm_layer=nn.Identity)
    x = inputs(np.float64, 2, 8)
    assert_equal(part(x, lambda y: 2 * y).numpy(), 3 * x.numpy())


@pytest.mark.parametrize("place", range(2))
def test_parts_of_a_decoder_layer_in_another_order_are_refused(place):
    parts = [nn.MultiHeadedAttention(2, 8), nn.MultiHeadedAttention(2, 8), nn.SwiGLU(8, 4)]
    nn.DecoderLayer(8, *parts)
    parts[place], parts[2] = parts[2], parts[place]
    with pytest.raises(TypeError, match="a decoder layer takes attention before feed_forward"):
        nn.DecoderLayer(8, *parts)


@both_dtypes
def test_a_stack_from_options_equals_its_formula(dtype):
    """Written out once more with functions, forward and backward."""
    stack, x = llama_like(dtype), inputs(dtype, 2, 5, WIDTH)

    def rms(y, norm):
        eps = np.finfo(dtype).eps
        return y / ((y * y).mean(-1, keepdim=True) + eps) ** 0.5 * norm.weight

    def attend(y, module):
        q, k, v = (
            layer(y).reshape(2, 5, -1, 4).transpose(1, 2)
            for layer in (module.W_q, module.W_k, module.W_v)
        )
        q, k = module.rotary(q), module.rotary(k).repeat_interleave(2, 1)
        scores = q @ k.mT / 2 + ta.tensor(np.triu(np.full((5, 5), -np.inf), 1), dtype)
        out = scores.softmax(-1) @ v.repeat_interleave(2, 1)
        return module.W_o(out.transpose(1, 2).flatten(2))

    def gate(y, module):
        a = module.w_1(y)
        return module.w_2(a * a.sigmoid() * module.w_3(y))

    def by_hand(y):
        for layer in stack.layers:
            y = y + attend(rms(y, layer.sublayer[0].norm), layer.self_attn)
            y = y + gate(rms(y, layer.sublayer[1].norm), layer.feed_forward)
        return rms(y, stack.norm)

    grad = signed(rng_of(2), 2, 5, WIDTH).astype(dtype)
    results = []
    for function in (lambda y: stack(y, is_causal=True), by_hand):
        stack.zero_grad()
        out = function(x)
        pull(out, grad)
        results.append([out.numpy(), *(p.grad.numpy() for p in stack.parameters())])
    for one, other in zip(*results, strict=True):
        assert_close(one, other, 20 * TOLERANCE[dtype])


@both_dtypes
@pytest.mark.parametrize("sizes", [(1,) * 6, (4, 2), (6,)])
def test_an_encoder_continues_with_its_cache(sizes, dtype):
    stack, x = llama_like(dtype), inputs(dtype, 3, 6, WIDTH)
    lens, cache, parts = [6, 5, 4], stack.new_cache(), []
    right = stack(x, valid_lens=lens, is_causal=True)
    for i, size in enumerate(sizes):
        begin = sum(sizes[:i])
        assert cache.length == begin
        so_far = np.minimum(lens, begin + size)
        parts.append(stack(x[:, begin : begin + size], None, so_far, True, cache=cache))
    out = ta.cat(parts, 1)
    for sample, length in enumerate(lens):  # what padding gives depends on the call
        assert_close(out[sample, :length].numpy(), right[sample, :length].numpy(), TOLERANCE[dtype])


def test_a_refused_call_leaves_the_cache_as_it_was():
    stack, x = llama_like(), inputs(np.float64, 1, 4, WIDTH)
    cache = stack.new_cache()
    right = stack(x, is_causal=True)[:, 3:]
    stack(x[:, :3], is_causal=True, cache=cache)
    stack.layers[1].self_attn.num_heads = 3
    with pytest.raises(ShapeError, match="3 heads"):
        stack(x[:, 3:], is_causal=True, cache=cache)
    stack.layers[1].self_attn.num_heads = 4
    assert cache.length == 3
    assert_close(stack(x[:, 3:], is_causal=True, cache=cache).numpy(), right.numpy(), 1e-12)


def test_samples_of_a_cache_may_be_selected():
    stack, x = llama_like(), inputs(np.float64, 2, 4, WIDTH)
    cache, order = stack.new_cache(), [1, 1, 0]
    stack(x[:, :3], is_causal=True, cache=cache)
    cache.select(order)
    out = stack(x[order][:, 3:], is_causal=True, cache=cache)
    assert_close(out.numpy(), stack(x, is_causal=True)[:, 3:][order].numpy(), 1e-12)


def test_a_cache_without_causality_is_refused():
    stack = llama_like()
    with pytest.raises(ValueError, match="is_causal=True"):
        stack(inputs(np.float64, 1, 2, WIDTH), cache=stack.new_cache())


def test_skip_padding_and_a_cache():
    """With a cache nothing is packed, because the keys of earlier calls are padded."""
    stack, x = llama_like(), inputs(np.float64, 2, 3, WIDTH)
    right = stack(x, valid_lens=[3, 2], is_causal=True, cache=stack.new_cache())
    stack.skip_padding = True
    out = stack(x, valid_lens=[3, 2], is_causal=True, cache=stack.new_cache())
    assert_equal(out.numpy(), right.numpy())


def test_a_decoder_with_rms_norms_and_rotary_positions():
    attentions = [
        nn.MultiHeadAttention(*(WIDTH,) * 4, 4, rotary=nn.RotaryEmbedding(4)) for _ in range(2)
    ]
    layer = nn.DecoderLayer(WIDTH, *attentions, nn.SwiGLU(WIDTH, 24), norm_layer=nn.RMSNorm)
    decoder = nn.Decoder(layer, 2).to(np.float64).eval()
    assert isinstance(decoder.norm, nn.RMSNorm)
    x, memory = inputs(np.float64, 2, 5, WIDTH), inputs(np.float64, 2, 3, WIDTH)
    cache, right = decoder.new_cache(), decoder(x, memory)
    steps = [decoder(x[:, t : t + 1], memory, cache=cache) for t in range(5)]
    assert_close(ta.cat(steps, 1).numpy(), right.numpy(), 1e-12)


def test_a_layer_takes_the_cache_of_one_layer():
    stack, x = llama_like(), inputs(np.float64, 1, 2, WIDTH)
    cache = stack.new_cache()
    with pytest.raises(TypeError, match=r"new_cache\(\).layers\[i\] .*got Cache"):
        stack.layers[0](x, is_causal=True, cache=cache)
    stack.layers[0](x, is_causal=True, cache=cache.layers[0])
    assert cache.length == 2


def test_a_cache_of_the_wrong_kind_or_depth_is_refused():
    stack, x = llama_like(), inputs(np.float64, 1, 2, WIDTH)
    cache = stack.new_cache()
    for wrong, came in ((cache.layers[0], "LayerCache"), ({}, "dict"), (True, "bool")):
        with pytest.raises(TypeError, match=f"stack of 2 layers .*got {came}"):
            stack(x, is_causal=True, cache=wrong)
    with pytest.raises(TypeError, match=r"got Cache\(3 layers, 0 positions\)"):
        stack(x, is_causal=True, cache=llama_like(layers=3).new_cache())
    attention = stack.layers[0].self_attn
    for wrong in (cache, cache.layers[0]):
        with pytest.raises(TypeError, match="attention takes a KeyValueCache"):
            attention(x, x, x, is_causal=True, cache=wrong)
    with pytest.raises(ValueError, match="is_causal=True"):
        stack.layers[0](x, cache=cache.layers[0])
    decoder = nn.Decoder(
        nn.DecoderLayer(
            WIDTH, *(nn.MultiHeadedAttention(2, WIDTH) for _ in range(2)), nn.SwiGLU(WIDTH, 4)
        ),
        2,
    )
    with pytest.raises(TypeError, match="stack of 2 layers"):
        decoder(x, x, cache={})


def refuse(error):
    def hook(*_):
        raise error

    return hook


def all_of(cache):
    """Numbers and positions that a cache holds."""
    held = [
        (part.past, part.stored and [x.tolist() for x in part.stored]) for part in cache.parts()
    ]
    return held, repr(cache)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("place", ["layers.0", "layers.1", "layers.2", "norm"])
@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_a_call_that_ends_anywhere_leaves_the_cache_as_it_was(kind, place, error):
    """In the first call, which fills the cache, and in a later one; by Ctrl-C too."""
    stack, x = llama_like(layers=3), inputs(np.float64, 2, 5, WIDTH)
    call = {"is_causal": True}
    if kind == "decoder":
        attentions = (nn.MultiHeadAttention(*(WIDTH,) * 4, 4) for _ in range(2))
        layer = nn.DecoderLayer(WIDTH, *attentions, nn.SwiGLU(WIDTH, 24, 0.0), 0.0)
        stack = nn.Decoder(layer, 3).double().eval()
        call = {"memory": inputs(np.float64, 2, 4, WIDTH)}
    right, cache = stack(x, **call).numpy(), stack.new_cache(3)
    for begin, end in ((0, 2), (2, 3), (3, 5)):
        before = all_of(cache)
        last = dict(stack.named_modules())[place].register_forward_hook(refuse(error))
        with pytest.raises(error):
            stack(x[:, begin:end], cache=cache, **call)
        last.remove()
        assert all_of(cache) == before
        out = stack(x[:, begin:end], cache=cache, **call).numpy()
        assert_close(out, right[:, begin:end], 1e-12)
