"""Rotary positions as an option of attention, in every form that a call can have."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
from common import assert_close, pull, rng_of, signed

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import masks, nn
from tinyattn.errors import ShapeError
from tinyattn.nn.cache import KeyValueCache

B, N, HEADS, KEY_HEADS, WIDTH = 3, 7, 4, 2, 24
LENGTHS = [7, 4, 1]
both_dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])
TOLERANCE = {np.float32: 2e-5, np.float64: 1e-12}


def attention(dtype, rotary=True, **options):
    ta.manual_seed(5)
    turn = nn.RotaryEmbedding(WIDTH // HEADS, base=100.0) if rotary else None
    made = nn.MultiHeadAttention(
        *(WIDTH,) * 4, HEADS, num_kv_heads=KEY_HEADS, rotary=turn, **options
    )
    return made.to(dtype).eval()


def inputs(dtype, *shape):
    return ta.tensor(
        signed(rng_of(11), *(shape or (B, N, WIDTH))).astype(dtype), requires_grad=True
    )


def by_hand(module, x, **options):
    """The same in the functional form: heads first, turned by complex numbers."""

    def heads(y):
        return y.reshape(*y.shape[:2], -1, WIDTH // HEADS).transpose(1, 2)  # (B, H, N, d)

    def turned(y):
        half = WIDTH // HEADS // 2
        angles = np.arange(y.shape[2])[:, None] * 100.0 ** (-np.arange(half) / half)
        cos, sin = ta.tensor(np.cos(angles), y.dtype), ta.tensor(np.sin(angles), y.dtype)
        pairs = y.reshape(*y.shape[:-1], half, 2)
        even, odd = pairs[..., 0], pairs[..., 1]
        return ta.stack([even * cos - odd * sin, even * sin + odd * cos], -1).reshape(*y.shape)

    q, k, v = heads(module.W_q(x)), heads(module.W_k(x)), heads(module.W_v(x))
    out = F.scaled_dot_product_attention(turned(q), turned(k), v, enable_gqa=True, **options)
    return module.W_o(out.transpose(1, 2).flatten(2))


def gradients(module, x, out, grad):
    module.zero_grad()
    x.grad = None
    pull(out, grad)
    return [x.grad.numpy(), *(p.grad.numpy() for p in module.parameters())]


@both_dtypes
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"valid_lens": LENGTHS},
        {"mask": np.arange(N) > np.arange(B)[:, None], "is_causal": True},
        {"bias": True},
        {"window": 3},
    ],
    ids=lambda options: "-".join(options) or "all",
)
def test_it_equals_the_formula_by_hand(options, dtype):
    bias = ta.tensor(signed(rng_of(2), HEADS, N, N).astype(dtype))
    options = {name: bias if name == "bias" else value for name, value in options.items()}
    window = options.pop("window", None)
    module, x = attention(dtype, window=window), inputs(dtype)
    grad = signed(rng_of(3), B, N, WIDTH).astype(dtype)
    out = module(x, x, x, **options)
    right = by_hand(module, x, window=window, **options)
    assert_close(out.numpy(), right.numpy(), TOLERANCE[dtype])
    for one, other in zip(
        gradients(module, x, out, grad), gradients(module, x, right, grad), strict=True
    ):
        assert_close(one, other, TOLERANCE[dtype] * 10)


def test_it_is_not_the_attention_without_positions():
    """By much: a permuted input is another one to it."""
    module, plain, x = (
        attention(np.float64),
        attention(np.float64, rotary=False),
        inputs(np.float64),
    )
    assert abs(module(x, x, x) - plain(x, x, x)).max().item() > 0.01
    assert list(module.state_dict()) == list(plain.state_dict())


@both_dtypes
def test_packed_rows_begin_at_position_0_in_each_sample(dtype):
    module, x = attention(dtype), inputs(dtype)
    rows = F.pack_padded_sequence(x, LENGTHS)
    packed = module(rows, rows, rows, valid_lens=LENGTHS, is_causal=True)
    padded = module(x, x, x, valid_lens=LENGTHS, is_causal=True)
    assert_close(packed.numpy(), F.pack_padded_sequence(padded, LENGTHS).numpy(), TOLERANCE[dtype])


@both_dtypes
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("sizes", [(1,) * N, (3, 1, 3), (N,)])
def test_positions_continue_with_a_cache(sizes, window, dtype):
    """Also after samples were selected, as beam search does."""
    module, x = attention(dtype, window=window), inputs(dtype).detach()
    right = module(x, x, x, is_causal=True)
    cache, order, parts = nn.cache.KeyValueCache(grows=True), [2, 0, 1], []
    for i in range(len(sizes)):
        new = x[:, sum(sizes[:i]) : sum(sizes[: i + 1])]
        parts.append(module(new, new, new, is_causal=True, cache=cache))
        cache.select(order)
        x, parts = x[order], [part[order] for part in parts]
        right = right[order]
    assert cache.past == N
    assert_close(ta.cat(parts, 1).numpy(), right.numpy(), TOLERANCE[dtype])


@both_dtypes
def test_attention_to_a_memory_with_a_cache(dtype):
    """Queries continue, the keys of the memory begin at 0 in every call."""
    module, memory, x = attention(dtype), inputs(dtype, B, 5, WIDTH), inputs(dtype)
    right = module(x, memory, memory)
    cache = nn.cache.KeyValueCache(grows=False)
    parts = [module(x[:, t : t + 1], memory, memory, cache=cache) for t in range(N)]
    assert_close(ta.cat(parts, 1).numpy(), right.numpy(), TOLERANCE[dtype])


def test_left_padding_changes_nothing_because_only_distances_count():
    module, x = attention(np.float64), inputs(np.float64, 1, 4, WIDTH).detach()
    right = module(x, x, x, is_causal=True)
    moved = ta.cat([ta.zeros(1, 3, WIDTH, dtype=np.float64), x], 1)
    visible = ta.tensor([[False] * 3 + [True] * 4])
    out = module(moved, moved, moved, mask=visible, is_causal=True)
    assert_close(out[:, 3:].numpy(), right.numpy(), 1e-12)


def test_weights_are_those_of_turned_queries_and_keys():
    module, x = attention(np.float64), inputs(np.float64)
    module(x, x, x, valid_lens=LENGTHS)
    q, k = (
        F.rotary_embedding(layer(x).reshape(B, N, -1, 6).transpose(1, 2), base=100.0)
        for layer in (module.W_q, module.W_k)
    )
    _, right = F.scaled_dot_product_attention(
        q, k, k, valid_lens=LENGTHS, enable_gqa=True, return_weights=True
    )
    assert_close(module.attention_weights.numpy(), right.numpy(), 1e-12)


class Shift(nn.Module):
    """A user's own positions: the module is asked for, not its class."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def forward(self, x, positions):
        self.calls.append((x.shape, positions.tolist()))
        return x * 2


def test_a_module_of_ones_own_turns_queries_and_keys():
    module = nn.MultiHeadedAttention(2, 8, dropout=0.0, rotary=Shift())
    plain = copy.deepcopy(module)
    plain.rotary = None
    x = ta.randn(2, 3, 8)
    out = module(x, x, x, mask=masks.causal(3))
    assert module.rotary.calls == [((2, 3, 2, 4), [[0], [1], [2]])] * 2
    sharper = F.scaled_dot_product_attention(
        *(4 * plain.W_q(x).reshape(2, 3, 2, 4).transpose(1, 2),),
        *(layer(x).reshape(2, 3, 2, 4).transpose(1, 2) for layer in (plain.W_k, plain.W_v)),
        is_causal=True,
    )
    assert_close(out.numpy(), plain.W_o(sharper.transpose(1, 2).flatten(2)).numpy(), 1e-5)


def test_each_packed_sample_begins_at_position_0():
    """The output would not tell, because only distances count."""
    module = nn.MultiHeadedAttention(2, 8, dropout=0.0, rotary=Shift())
    rows = ta.randn(5, 8)
    module(rows, rows, rows, valid_lens=[3, 0, 2])
    assert module.rotary.calls == [((5, 2, 4), [[0], [1], [2], [0], [1]])] * 2


def test_heads_of_another_width_are_refused():
    with pytest.raises(ShapeError, match=r"a head has 6 numbers, and its rotary turns 8"):
        nn.MultiHeadAttention(*(WIDTH,) * 4, HEADS, rotary=nn.RotaryEmbedding(8))
    with pytest.raises(ShapeError, match=r"takes x \(..., N, 8\), got .*6\)"):
        nn.RotaryEmbedding(8)(ta.ones(1, 2, 6))


class OfTheFirstNumbers(nn.RotaryEmbedding):
    """As in GPT-NeoX: only the first numbers of a head turn."""

    def forward(self, x, positions=None):
        turned = super().forward(x[..., : self.width], positions)
        return ta.cat([turned, x[..., self.width :]], -1)


def test_a_subclass_may_turn_a_part_of_each_head():
    module, x = attention(np.float64), inputs(np.float64)
    rotary = OfTheFirstNumbers(4, base=100.0)
    of_part = nn.MultiHeadAttention(*(WIDTH,) * 4, HEADS, num_kv_heads=KEY_HEADS, rotary=rotary).to(
        np.float64
    )
    of_part.load_state_dict(module.state_dict())
    q, k, v = (
        layer(x).reshape(B, N, -1, 6).transpose(1, 2)
        for layer in (module.W_q, module.W_k, module.W_v)
    )
    q, k = (
        ta.cat([F.rotary_embedding(part[..., :4], base=100.0), part[..., 4:]], -1)
        for part in (q, k)
    )
    right = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    right = module.W_o(right.transpose(1, 2).flatten(2))
    assert_close(of_part(x, x, x).numpy(), right.numpy(), 1e-12)


@pytest.mark.parametrize("wrong", [True, 8, "rotary", nn.RotaryEmbedding, F.rotary_embedding])
def test_rotary_is_a_module(wrong):
    with pytest.raises(TypeError, match=r"rotary is a module, such as nn.RotaryEmbedding\(6\)"):
        nn.MultiHeadAttention(*(WIDTH,) * 4, HEADS, rotary=wrong)


def test_late_positions_in_float32_are_turned_by_exact_angles():
    """The nearest float32 to an angle of a million radians may be wrong by 0.03."""
    x, positions = signed(rng_of(12), 2, WIDTH), [10**6, 10**6 + 1]
    exact = F.rotary_embedding(ta.tensor(x), positions).numpy()
    found = F.rotary_embedding(ta.tensor(x.astype(np.float32)), positions).numpy()
    assert_close(found, exact, 1e-6)


@pytest.mark.parametrize("original", [16, 64, 300, 4096])  # below 201 the first corner is below 0
@pytest.mark.parametrize(
    "more", [{}, {"beta_fast": 8.0, "beta_slow": 0.5}, {"truncate": False}, {"factor": 16.0}]
)
def test_yarn_has_the_rates_of_its_paper(original: int, more: dict[str, Any]) -> None:
    """Pairs that turn more than beta_fast times keep their rates, those below beta_slow are slowed
    by the factor, and those between lie on a line of the pairs' numbers."""
    width, base, turns = 16, 500.0, {"beta_fast": 32.0, "beta_slow": 1.0} | more
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": original}
    rates = nn.RotaryEmbedding(width, base, scaling | more).rates
    factor = more.get("factor", 4.0)
    low, high = (
        width * math.log(original / (turns[name] * 2 * math.pi)) / (2 * math.log(base))
        for name in ("beta_fast", "beta_slow")
    )
    if more.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    high += 0.001 * (low == high)
    for pair in range(width // 2):
        slowed = min(max((pair - low) / (high - low), 0), 1)
        rate = base ** (-2 * pair / width)
        assert rates[pair] == pytest.approx(rate * (1 - slowed + slowed / factor), rel=1e-12)


def test_the_length_of_yarn() -> None:
    """As published models give it: two numbers make it only together."""
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
    grown = 0.1 * math.log(4.0)
    both = (1 + 0.7 * grown) / (1 + 0.3 * grown)
    for more, length in (
        ({}, 1 + grown),
        ({"mscale": 0.7}, 1 + grown),
        ({"mscale_all_dim": 0.3}, 1 + grown),
        ({"mscale": 0.7, "mscale_all_dim": 0.3}, both),
        ({"mscale": 0.7, "mscale_all_dim": 0.3, "attention_factor": 1.5}, 1.5),
    ):
        found = nn.RotaryEmbedding(8, scaling=scaling | more).length
        assert found == pytest.approx(length, rel=1e-12)


def test_halves_are_turned_as_in_the_code_of_llama(rng: np.random.Generator) -> None:
    """x cos + (-second half, first half) sin, with each angle in both halves."""
    x = ta.tensor(rng.standard_normal((2, 3, 4, 6)), requires_grad=True)
    angles = np.arange(4)[:, None] * 50.0 ** (-np.arange(0, 6, 2) / 6)
    cos, sin = (np.concatenate([f(angles)] * 2, axis=1) for f in (np.cos, np.sin))
    first, second = np.split(x.numpy(), 2, axis=-1)
    right = x.numpy() * cos + np.concatenate([-second, first], axis=-1) * sin
    for turned in (
        F.rotary_embedding(x, base=50.0, halves=True),
        nn.RotaryEmbedding(6, base=50.0, halves=True)(x),
    ):
        assert_close(turned.numpy(), right, 1e-12)
    assert ta.gradcheck(lambda x: F.rotary_embedding(x, base=50.0, halves=True), [x], fast=True)


def test_a_repr_of_a_rotation_shows_what_is_no_default() -> None:
    for text in (
        "RotaryEmbedding(8, base=10000.0)",
        "RotaryEmbedding(8, base=500.0, halves=True)",
        "RotaryEmbedding(8, base=500.0, scaling={'rope_type': 'linear', 'factor': 2.0})",
        "RotaryEmbedding(8, base=5.0, scaling={'rope_type': 'default'}, halves=True)",
    ):
        assert repr(eval(f"nn.{text}")) == text


@pytest.mark.parametrize("factor", [0, 0.0, -1, math.nan, "2", None])
@pytest.mark.parametrize("kind", ["linear", "llama3", "yarn"])
def test_a_factor_of_no_length_is_refused(kind: str, factor: Any) -> None:
    numbers = {"original_max_position_embeddings": 16} if kind != "linear" else {}
    numbers |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0} if kind == "llama3" else {}
    assert nn.RotaryEmbedding(8, scaling={"rope_type": kind, "factor": 2.0, **numbers}).width == 8
    with pytest.raises(ValueError, match=r"factor of (a|the) rope scaling"):
        nn.RotaryEmbedding(8, scaling={"rope_type": kind, "factor": factor, **numbers})


def test_a_yarn_of_less_than_1_keeps_the_length() -> None:
    numbers = {"rope_type": "yarn", "original_max_position_embeddings": 16}
    assert nn.RotaryEmbedding(8, scaling={**numbers, "factor": 0.5}).length == 1
    assert nn.RotaryEmbedding(8, scaling={**numbers, "factor": 2.0}).length > 1


@pytest.mark.parametrize("scaling", ["linear", [1], 2.0])
def test_a_scaling_that_is_no_dict_is_refused(scaling: Any) -> None:
    with pytest.raises(TypeError, match="scaling is a dict, got "):
        nn.RotaryEmbedding(8, scaling=scaling)


def test_rates_are_one_for_each_pair() -> None:
    for rates in ([1.0], [1.0, 2.0, 3.0], [[1.0, 2.0]], 1.0):
        with pytest.raises(ShapeError, match=r"rates are of pairs: \(2,\), got"):
            F.rotary_embedding(ta.ones(3, 4), rates=rates)


def with_norms(names: str, rotary: bool) -> Any:
    made = attention(np.float64, rotary)
    for name in names.split():
        norm = nn.RMSNorm(WIDTH // HEADS).double()
        nn.init.uniform_(norm.weight, 0.5, 2.0)
        setattr(made, name, norm)
    return made


NORMS = ["", "q_norm", "k_norm", "q_norm k_norm"]


@pytest.mark.parametrize("rotary", [True, False])
@pytest.mark.parametrize("names", NORMS)
def test_norms_of_heads_stand_before_the_rotation_in_each_form(names: str, rotary: bool) -> None:
    """Alone, padded, packed and with a cache, against heads that are normed by hand."""
    module, x = with_norms(names, rotary), inputs(np.float64)
    q, k, v = (
        layer(x).reshape(B, N, -1, WIDTH // HEADS) for layer in (module.W_q, module.W_k, module.W_v)
    )
    q = module.q_norm(q) if "q_norm" in names else q
    k = module.k_norm(k) if "k_norm" in names else k
    if rotary:
        q, k = (module.rotary(part, np.arange(N)[:, None]) for part in (q, k))
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    right = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    right = module.W_o(right.transpose(1, 2).flatten(2)).numpy()
    assert_close(module(x, x, x, is_causal=True).numpy(), right, 1e-12)

    rows = F.pack_padded_sequence(x, LENGTHS)
    out = module(rows, rows, rows, valid_lens=LENGTHS, is_causal=True).numpy()
    packed = np.concatenate([sample[:n] for sample, n in zip(right, LENGTHS, strict=True)])
    assert_close(out, packed, 1e-12)

    cache = KeyValueCache(grows=True)
    parts = [module(y, y, y, is_causal=True, cache=cache) for y in x.split([3, 1, 3], 1)]
    assert_close(ta.cat(parts, 1).numpy(), right, 1e-12)


@pytest.mark.parametrize("names", NORMS)
def test_positions_without_a_rotary_are_refused_whatever_norms_there_are(names: str) -> None:
    x, rows = inputs(np.float64), inputs(np.float64, 5, WIDTH)
    message = "^positions are for an attention with `rotary`, this one has none$"
    for given, options in ((x, {}), (rows, {"valid_lens": [3, 2]})):
        for positions in (np.arange(given.shape[-2]), np.zeros(given.shape[:-1], int)):
            with pytest.raises(ValueError, match=message):
                with_norms(names, False)(given, given, given, positions=positions, **options)
            with_norms(names, True)(given, given, given, positions=positions, **options)
