"""Every row of the components' checklist, by the number of the note it comes from.

The five notes: 000 positional encoding and multi-head attention, 001 self-attention and positional
encoding, 002 scoring functions, 003 multi-head and self-attention, 004 the annotated encoder. What
each of their names is called here, and the file it is in, stands in docs/components.md.
"""

from __future__ import annotations

import importlib
import inspect
import math
import re
from pathlib import Path

import numpy as np
import pytest
from common import (
    assert_all_zero,
    assert_close,
    assert_same,
    leaf,
    pull,
    random_parameters,
    rng_of,
    signed,
)
from formulas import reference

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import masks, nn
from tinyattn.kernels.visibility import of_padded


def softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def masked_weights(scores, lens):
    """Softmax of each row over its first lens[b] keys only, written as a reader would."""
    out = np.zeros_like(scores)
    for b, n in enumerate(lens):
        if n:
            out[b, ..., :n] = softmax(scores[b, ..., :n])
    return out


# The example of notes 000 and 002: equal keys, so the weights are uniform over what may be seen.
VALUES = np.arange(40, dtype=np.float32).reshape(1, 10, 4).repeat(2, axis=0)
EXACT = [[[2.0, 3.0, 4.0, 5.0]], [[10.0, 11.0, 12.0, 13.0]]]
UNIFORM = np.zeros((2, 1, 10), np.float32)
UNIFORM[0, 0, :2], UNIFORM[1, 0, :6] = 1 / 2, 1 / 6


def table_of(module):
    """The positions (max_len, D) of a PositionalEncoding, as they are added to float32."""
    return module.P.numpy()[0].astype(np.float32)


# 000: positional encoding and multi-head attention


@pytest.mark.parametrize("width", [2, 6, 32])
def test_000_positional_encoding(width):
    module = nn.PositionalEncoding(width, dropout=0.0, max_len=70)
    assert module.P.shape == (1, 70, width)
    position = np.arange(70)[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    table = table_of(module)
    assert_close(table[:, 0::2], np.sin(position), 1e-7)
    assert_close(table[:, 1::2], np.cos(position), 1e-7)
    x = ta.randn(2, 60, width)
    assert_same(module(x).numpy(), x.numpy() + table[:60])
    assert inspect.signature(nn.PositionalEncoding).parameters["max_len"].default == 1000


def test_000_positional_encoding_drops_out_after_the_sum():
    ta.manual_seed(1)
    module = nn.PositionalEncoding(8, dropout=0.5)
    x = ta.zeros(50, 20, 8)
    out, table = module(x).numpy(), table_of(module)[:20]
    kept = out != 0
    assert 0.4 < kept[:, 1:, 0].mean() < 0.6
    assert_same(out, np.where(kept, np.broadcast_to(table * 2, out.shape), np.float32(0)))
    assert_same(module.eval()(x).numpy()[3], table)


@pytest.mark.parametrize("lens", [None, [2, 3], [[1, 4], [0, 2]]])
def test_000_masked_softmax(lens):
    scores = signed(rng_of(0), 2, 2, 4)
    out = F.masked_softmax(ta.tensor(scores), lens).numpy()
    expected = np.zeros((2, 2, 4))
    for b in range(2):
        for q in range(2):
            n = 4 if lens is None else np.broadcast_to(np.array(lens).reshape(2, -1), (2, 2))[b, q]
            if n:
                expected[b, q, :n] = softmax(scores[b, q, :n])
    assert_close(out, expected, 1e-15)
    assert_all_zero(np.append(out[expected == 0], 0))


def test_000_sequence_mask():
    x = ta.arange(12).reshape(3, 4).to(ta.float32)
    before = x.numpy()
    out = F.sequence_mask(x, [1, 4, 0], value=-1e6)
    expected = before.copy()
    expected[0, 1:] = expected[2] = -1e6
    assert_same(out.numpy(), expected)
    assert_same(x.numpy(), before)
    deep = F.sequence_mask(ta.ones(2, 3, 4), [1, 2])
    assert deep.numpy().sum(axis=(1, 2)).tolist() == [4, 8]


@pytest.mark.parametrize(("queries", "keys", "width", "values"), [(3, 5, 4, 7), (1, 1, 1, 1)])
def test_000_dot_product_attention(queries, keys, width, values):
    rng = rng_of(2)
    q, k, v = (signed(rng, 2, *size) for size in ((queries, width), (keys, width), (keys, values)))
    lens = [keys, 1]
    module = nn.DotProductAttention()
    out = module(*map(ta.tensor, (q, k, v)), valid_lens=lens)
    weights = masked_weights(q @ k.swapaxes(1, 2) / math.sqrt(width), lens)
    assert out.shape == (2, queries, values)
    assert_close(out.numpy(), weights @ v)
    assert_close(module.attention_weights.numpy(), weights)


def test_000_dot_product_attention_weights_are_from_before_dropout():
    ta.manual_seed(0)
    q = ta.randn(2, 6, 4)
    module = nn.DotProductAttention(dropout=0.5)
    out = module(q, q, q)
    plain = nn.DotProductAttention()
    plain(q, q, q)
    weights = module.attention_weights
    assert_same(weights.numpy(), plain.attention_weights.numpy())
    assert_close(weights.numpy().sum(axis=-1), np.ones((2, 6)), 1e-6)
    assert np.abs(out.numpy() - weights.numpy() @ q.numpy()).max() > 0.01, "nothing was dropped"


def test_000_transpose_qkv():
    x = np.arange(2 * 3 * 8, dtype=np.float32).reshape(2, 3, 8)
    out = F.transpose_qkv(ta.tensor(x), 4)
    assert out.shape == (8, 3, 2)
    for b in range(2):
        for h in range(4):
            assert_same(out.numpy()[b * 4 + h], x[b, :, 2 * h : 2 * h + 2])
    assert_same(F.transpose_output(out, 4).numpy(), x)


def test_000_transpose_output_is_the_exact_inverse_with_gradients():
    x = leaf(signed(rng_of(3), 3, 5, 6))
    back = F.transpose_output(F.transpose_qkv(x, 3), 3)
    assert_same(back.numpy(), x.numpy())
    grad = signed(rng_of(4), 3, 5, 6)
    pull(back, grad)
    assert_same(x.grad.numpy(), grad)


def test_000_heads_as_samples_equal_heads_as_a_dimension():
    """The d2l book's form, with lengths repeated [3, 3, 2, 2], against the dimension kept."""
    rng = rng_of(5)
    module = random_parameters(
        nn.MultiHeadAttention(6, 6, 6, 6, 2, bias=True).to(ta.float64), rng
    ).eval()
    x, lens = ta.tensor(signed(rng, 2, 4, 6)), np.array([3, 2])
    q, k, v = (F.transpose_qkv(w(x), 2) for w in (module.W_q, module.W_k, module.W_v))
    right = nn.DotProductAttention()(q, k, v, valid_lens=np.repeat(lens, 2))
    expected = module.W_o(F.transpose_output(right, 2)).numpy()
    assert_close(module(x, x, x, valid_lens=lens).numpy(), expected)
    wrong = nn.DotProductAttention()(q, k, v, valid_lens=np.tile(lens, 2))
    assert np.abs(module.W_o(F.transpose_output(wrong, 2)).numpy() - expected).max() > 0.1


def test_000_multi_head_attention():
    names = list(inspect.signature(nn.MultiHeadAttention).parameters)
    sizes = ["key_size", "query_size", "value_size", "num_hiddens", "num_heads"]
    assert names[:7] == [*sizes, "dropout", "bias"]  # those of the variants follow
    module = nn.MultiHeadAttention(3, 4, 5, 8, 2)
    shapes = {name: p.shape for name, p in module.named_parameters()}
    assert shapes == {
        "W_q.weight": (8, 4),
        "W_k.weight": (8, 3),
        "W_v.weight": (8, 5),
        "W_o.weight": (8, 8),
    }
    out = module(ta.randn(2, 6, 4), ta.randn(2, 7, 3), ta.randn(2, 7, 5))
    assert out.shape == (2, 6, 8)
    assert module.attention_weights.shape == (2, 2, 6, 7)


def test_000_heads_read_different_subspaces_of_the_same_input():
    rng = rng_of(6)
    module = random_parameters(nn.MultiHeadAttention(8, 8, 8, 8, 4).to(ta.float64), rng)
    x = ta.tensor(signed(rng, 1, 5, 8))
    module(x, x, x)
    weights = module.attention_weights.numpy()[0]
    for i in range(4):
        for j in range(i):
            assert np.abs(weights[i] - weights[j]).max() > 0.01


# 001: self-attention and positional encoding


def make_self_attention(embed=6, hidden=4, seed=7):
    module = nn.SelfAttention(embed, hidden).to(ta.float64)
    return random_parameters(module, rng_of(seed))


def test_001_self_attention():
    module = make_self_attention(6, 4)
    x = signed(rng_of(8), 2, 5, 6)
    w = {name: p.numpy() for name, p in module.named_parameters()}
    q, k, v = (x @ w[f"linear_{c}.weight"].T + w[f"linear_{c}.bias"] for c in "qkv")
    assert q.shape == (2, 5, 4)
    weights = softmax(q @ k.swapaxes(1, 2) / math.sqrt(4))
    out = module(ta.tensor(x))
    assert out.shape == (2, 5, 4)
    assert_close(out.numpy(), weights @ v)
    assert_close(module.attention_weights.numpy(), weights)
    assert_close(module.attention_weights.numpy().sum(axis=2), np.ones((2, 5)))


def test_001_queries_keys_and_values_come_from_one_input_of_shape_b_n_e():
    module = nn.MultiHeadAttention(6, 6, 6, 6, 2)
    x = ta.randn(3, 5, 6)
    assert module(x, x, x).shape == x.shape


def test_001_output_depends_on_the_context():
    """The same word in another sentence comes out as another vector."""
    module = make_self_attention()
    rng = rng_of(9)
    word, one, two = signed(rng, 1, 6), signed(rng, 3, 6), signed(rng, 3, 6)
    out = [module(ta.tensor(np.concatenate([word, rest])[None])).numpy() for rest in (one, two)]
    assert np.abs(out[0][0, 0] - out[1][0, 0]).max() > 0.05


ORDERLESS = {
    "self_attention": lambda: make_self_attention(),
    "multi_head": lambda: random_parameters(
        nn.MultiHeadedAttention(2, 6, dropout=0.0).to(ta.float64), rng_of(10)
    ),
    "encoder": lambda: random_parameters(
        nn.Encoder(
            nn.EncoderLayer(6, nn.MultiHeadedAttention(2, 6), nn.PositionwiseFeedForward(6, 8)),
            2,
        ).to(ta.float64),
        rng_of(11),
    ).eval(),
}


@pytest.mark.parametrize("kind", ORDERLESS)
def test_001_without_positions_attention_is_orderless(kind):
    module = ORDERLESS[kind]()
    call = (lambda x: module(x, x, x)) if kind == "multi_head" else module
    rng = rng_of(12)
    x, order = signed(rng, 2, 7, 6), rng.permutation(7)
    out, permuted = call(ta.tensor(x)).numpy(), call(ta.tensor(x[:, order])).numpy()
    assert_close(permuted, out[:, order], 1e-14)
    assert np.abs(out - out[:, order]).max() > 0.01
    places = nn.PositionalEncoding(6).to(ta.float64)
    out, permuted = (call(places(ta.tensor(a))).numpy() for a in (x, x[:, order]))
    assert np.abs(permuted - out[:, order]).max() > 0.01, "positions make the order count"


def test_001_positions_go_in_right_after_the_embedding():
    """A model of embedding, positions and layers: the positions are added once, before all."""
    words, places = nn.Embedding(9, 6), nn.PositionalEncoding(6)
    seen = []

    class Spy(nn.Module):
        def forward(self, x):
            seen.append(x.numpy())
            return x

    ids = np.array([[1, 2, 3], [3, 1, 1]])
    nn.Sequential(words, places, Spy(), Spy())(ids)
    expected = words.weight.numpy()[ids] + table_of(places)[:3]
    assert_same(seen[0], expected)
    assert_same(seen[1], expected)


def test_001_every_sample_gets_the_same_positions():
    module = nn.PositionalEncoding(6)
    x = np.zeros((4, 5, 6), np.float32)
    out = module(ta.tensor(x)).numpy()
    for sample in out:
        assert_same(sample, out[0])


def test_001_two_position_formulas():
    """P[i, 2j] = sin(i / 10000^(2j/D)) and P[i, 2j+1] = cos(the same), element by element."""
    table = nn.PositionalEncoding(6, max_len=20).P.numpy()[0]
    for i in range(20):
        for j in range(3):
            angle = i / 10000 ** (2 * j / 6)
            assert abs(table[i, 2 * j] - math.sin(angle)) < 1e-7
            assert abs(table[i, 2 * j + 1] - math.cos(angle)) < 1e-7


@pytest.mark.parametrize("width", [1, 3, 5, 31])
def test_001_position_encoder_takes_odd_widths_and_any_length(width):
    module = nn.PositionalEncoding(width, max_len=2500)
    out = module(ta.zeros(1, 2500, width)).numpy()[0]
    positions = np.arange(2500)[:, None]
    columns = np.arange(width)[None]
    angle = positions / 10000 ** (columns // 2 * 2 / width)
    assert_close(out, np.where(columns % 2 == 0, np.sin(angle), np.cos(angle)), 1e-7)


# 002: scoring functions


def test_002_masked_softmax_example():
    out = F.masked_softmax(ta.rand(2, 2, 4), [2, 3]).numpy()
    assert (out != 0).tolist() == [[[1, 1, 0, 0]] * 2, [[1, 1, 1, 0]] * 2]
    assert_close(out.sum(axis=-1), np.ones((2, 2)), 1e-6)


def test_002_broadcast_walk_through():
    x = ta.arange(10).reshape(2, 5)
    assert x.tolist() == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    lens = ta.tensor([2, 3])
    counted = ta.arange(5)
    assert counted.tolist() == [0, 1, 2, 3, 4]
    assert counted[None, :].shape == (1, 5)
    assert lens[:, None].tolist() == [[2], [3]]
    mask = counted[None, :] < lens[:, None]
    table = [[True, True, False, False, False], [True, True, True, False, False]]
    assert mask.tolist() == table
    assert (~mask).tolist() == [[not value for value in row] for row in table]
    assert masks.from_valid_lens([2, 3], 5).tolist() == table
    filled = F.sequence_mask(x.to(ta.float32), lens, value=-1e6)
    assert filled.tolist() == [[0, 1, -1e6, -1e6, -1e6], [5, 6, 7, -1e6, -1e6]]


def test_002_additive_scoring_function():
    """a(q, k) = w_v^T tanh(W_q q + W_k k), pair by pair."""
    module = random_parameters(
        nn.AdditiveAttention(key_size=3, query_size=4, num_hiddens=5).to(ta.float64), rng_of(13)
    )
    w = {name: p.numpy() for name, p in module.named_parameters()}
    shapes = {"W_k.weight": (5, 3), "W_q.weight": (5, 4), "w_v.weight": (1, 5)}
    assert {name: value.shape for name, value in w.items()} == shapes
    rng = rng_of(14)
    q, k, v = signed(rng, 2, 3, 4), signed(rng, 2, 6, 3), signed(rng, 2, 6, 2)
    scores = np.empty((2, 3, 6))
    for b in range(2):
        for i in range(3):
            for j in range(6):
                hidden = np.tanh(w["W_q.weight"] @ q[b, i] + w["W_k.weight"] @ k[b, j])
                scores[b, i, j] = (w["w_v.weight"] @ hidden).item()
    weights = masked_weights(scores, [6, 2])
    out = module(ta.tensor(q), ta.tensor(k), ta.tensor(v), valid_lens=[6, 2])
    assert_close(module.attention_weights.numpy(), weights)
    assert_close(out.numpy(), weights @ v)


def test_002_additive_attention_example():
    ta.manual_seed(0)
    queries, keys = ta.randn(2, 1, 20), ta.ones(2, 10, 2)
    module = nn.AdditiveAttention(key_size=2, query_size=20, num_hiddens=8, dropout=0.1).eval()
    out = module(queries, keys, ta.tensor(VALUES), valid_lens=[2, 6])
    assert out.shape == (2, 1, 4)
    assert_close(out.numpy(), EXACT, 2e-7)


def test_002_additive_attention_example_is_exact_in_float64():
    module = nn.AdditiveAttention(key_size=2, query_size=20, num_hiddens=8).to(ta.float64)
    queries, keys = ta.randn(2, 1, 20, dtype=ta.float64), ta.ones(2, 10, 2, dtype=ta.float64)
    out = module(queries, keys, ta.tensor(VALUES, dtype=ta.float64), valid_lens=[2, 6])
    assert_close(out.numpy(), EXACT, 1e-15)


def test_002_additive_attention_weights_for_the_heat_map():
    module = nn.AdditiveAttention(key_size=2, query_size=20, num_hiddens=8, dropout=0.1).eval()
    module(ta.randn(2, 1, 20), ta.ones(2, 10, 2), ta.tensor(VALUES), valid_lens=[2, 6])
    weights = module.attention_weights
    assert weights.shape == (2, 1, 10)
    assert_close(weights.numpy(), UNIFORM, 1e-7)
    assert_all_zero(weights.numpy()[UNIFORM == 0])


def test_002_scaled_dot_product_scoring_function():
    rng = rng_of(15)
    q, k, v = signed(rng, 1, 3, 16), signed(rng, 1, 5, 16), signed(rng, 1, 5, 7)
    out, weights = F.scaled_dot_product_attention(
        ta.tensor(q), ta.tensor(k), ta.tensor(v), return_weights=True
    )
    expected = softmax(q @ k.swapaxes(1, 2) / 4.0)
    assert_close(weights.numpy(), expected)
    assert out.shape == (1, 3, 7)
    assert_close(out.numpy(), expected @ v)


def test_002_dot_product_attention_example():
    """Exactly, in float32: equal scores have exactly equal weights."""
    ta.manual_seed(0)
    queries, keys = ta.randn(2, 1, 2), ta.ones(2, 10, 2)
    module = nn.DotProductAttention(dropout=0.5).eval()
    out = module(queries, keys, ta.tensor(VALUES), valid_lens=[2, 6])
    assert out.shape == (2, 1, 4)
    assert_close(out.numpy(), EXACT, 2e-7)
    exact = module(queries.to(ta.float64), keys.to(ta.float64), ta.tensor(VALUES).double(), [2, 6])
    assert_close(exact.numpy(), EXACT, 1e-15)
    # What the note prints, to four digits.
    assert np.round(out.numpy(), 4).tolist() == EXACT


def test_002_dot_product_attention_weights_for_the_second_heat_map():
    module = nn.DotProductAttention(dropout=0.5).eval()
    module(ta.randn(2, 1, 2), ta.ones(2, 10, 2), ta.tensor(VALUES), valid_lens=[2, 6])
    assert module.attention_weights.shape == (2, 1, 10)
    assert_close(module.attention_weights.numpy(), UNIFORM, 1e-7)


def test_002_heat_maps_show_one_panel_for_each_sample():
    """Not, as in the note, two samples as two queries of one panel (bug 9)."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: no heat maps to draw")
    from tinyattn import viz

    module = nn.AdditiveAttention(key_size=2, query_size=20, num_hiddens=8).eval()
    module(ta.randn(2, 1, 20), ta.ones(2, 10, 2), ta.tensor(VALUES), valid_lens=[2, 6])
    figure = viz.show_heatmaps(module.attention_weights, xlabel="Keys", ylabel="Queries")
    panels = [axes for axes in figure.axes if axes.images or axes.collections]
    shown = [axes for axes in panels if axes.get_xlabel() == "Keys"]
    assert len(shown) == 2
    assert shown[0].get_ylabel() == "Queries"


# 003: multi-head attention, self-attention, positional encoding


def test_003_each_head_is_a_small_attention_and_w_o_joins_them():
    """h_i = f(W_i^q q, W_i^k k, W_i^v v) of size p_o / h; W_o is p_o x (h p_v)."""
    rng = rng_of(16)
    module = random_parameters(nn.MultiHeadAttention(5, 6, 7, 12, 3).to(ta.float64), rng)
    q, k, v = (ta.tensor(signed(rng, 2, n, d)) for n, d in ((3, 6), (4, 5), (4, 7)))
    heads = []
    for i in range(3):
        small = [
            nn.Linear(w.in_features, 4, bias=False).to(ta.float64)
            for w in (module.W_q, module.W_k, module.W_v)
        ]
        for layer, w in zip(small, (module.W_q, module.W_k, module.W_v), strict=True):
            layer.load_state_dict({"weight": w.weight[4 * i : 4 * i + 4]})
        heads.append(nn.DotProductAttention()(small[0](q), small[1](k), small[2](v), [4, 2]))
        assert heads[-1].shape == (2, 3, 4)
    assert module.W_o.weight.shape == (12, 12)
    assert_close(module(q, k, v, [4, 2]).numpy(), module.W_o(ta.cat(heads, dim=-1)).numpy())


def test_003_heads_may_score_additively():
    """f may be additive as well: the heads as samples, through AdditiveAttention."""
    x = ta.randn(2, 4, 6)
    heads = F.transpose_qkv(x, 3)
    module = nn.AdditiveAttention(2, 2, 5)
    out = F.transpose_output(module(heads, heads, heads, np.repeat([4, 2], 3)), 3)
    assert out.shape == (2, 4, 6)
    assert_all_zero(module.attention_weights.numpy()[3:, :, 2:])


def test_003_multi_head_attention_example():
    module = nn.MultiHeadAttention(100, 100, 100, 100, 5, 0.5).eval()
    x, y = ta.ones(2, 4, 100), ta.ones(2, 6, 100)
    out = module(x, y, y, valid_lens=[3, 2])
    assert out.shape == (2, 4, 100)
    # Equal keys: uniform over three keys and over two, in every head.
    weights = module.attention_weights.numpy()
    assert_close(weights[0, :, :, :3], np.full((5, 4, 3), 1 / 3), 1e-6)
    assert_close(weights[1, :, :, :2], np.full((5, 4, 2), 1 / 2), 1e-6)
    assert_all_zero(weights[0, :, :, 3:])


def test_003_self_attention_example():
    module = nn.MultiHeadAttention(100, 100, 100, 100, 5, 0.5).eval()
    x = ta.ones(2, 4, 100)
    assert module(x, x, x, valid_lens=[3, 2]).shape == (2, 4, 100)


def test_003_self_attention_maps_n_vectors_to_n_vectors():
    """y_i = f(x_i, (x_1, x_1) ... (x_n, x_n)): row i queries all pairs."""
    x = ta.tensor(signed(rng_of(17), 1, 6, 5))
    out = nn.DotProductAttention()(x, x, x)
    assert out.shape == (1, 6, 5)
    for i in range(6):
        alone = nn.DotProductAttention()(x[:, i : i + 1], x, x)
        assert_close(alone.numpy()[:, 0], out.numpy()[:, i])


ATTENTION = importlib.import_module("tinyattn.ops.attention")  # the file, not the op


def count_products(monkeypatch, function):
    """Multiplications of scalars in matrix products, and the number of products in a row."""
    counted = []

    def product(x, y):
        out = x @ y
        counted.append(out.size * x.shape[-1])
        return out

    monkeypatch.setattr(ATTENTION, "matrix_product", product)
    function()
    monkeypatch.undo()
    return sum(counted), len(counted)


def test_003_comparison_table_cost_and_sequential_steps(monkeypatch):
    """Self-attention: O(n^2 d) operations in O(1) steps; a recurrent layer: O(n d^2) in O(n)."""

    def attention(n, d):
        x, visibility = np.ones((n, 1, d)), of_padded((1, 1, n, n))
        options = visibility, 1.0, reference.NO_DROP
        return count_products(monkeypatch, lambda: reference.attention(x, x, x, options))

    def recurrent(n, d):
        def run():
            state = np.zeros((1, d))
            for _ in range(n):
                state = np.tanh(ATTENTION.matrix_product(state, np.ones((d, d))) + 1)

        return count_products(monkeypatch, run)

    for n in (8, 16, 64):
        for d in (4, 12):
            assert attention(n, d) == (2 * n * n * d, 2)
            assert recurrent(n, d) == (n * d * d, n)


def reach(layers, n, mask):
    """How far back the last output looks after some layers: from the gradient of x."""
    x = leaf(signed(rng_of(18), 1, n, 4))
    y = x
    for _ in range(layers):
        y = F.scaled_dot_product_attention(y, y, y, mask=mask)
    grad = np.zeros((1, n, 4))
    grad[0, -1] = signed(rng_of(19), 4)
    pull(y, grad)
    touched = np.flatnonzero(np.abs(x.grad.numpy()[0]).max(axis=-1))
    return n - 1 - int(touched.min())


def test_003_comparison_table_longest_path():
    """Self-attention joins any two positions in one layer; a window of k (as in a convolution)
    needs n / k layers."""
    n, k = 24, 4
    assert reach(1, n, None) == n - 1
    distance = np.arange(n)[:, None] - np.arange(n)[None]
    window = ((distance >= 0) & (distance < k))[None]
    for layers in (1, 2, 5):
        assert reach(layers, n, window) == layers * (k - 1)


def test_003_cost_of_memory_is_quadratic():
    for n in (8, 16, 32):
        x = ta.randn(1, n, 4)
        _, weights = F.scaled_dot_product_attention(x, x, x, return_weights=True)
        assert weights.numel() == n * n


def test_003_positional_encoding_shifts_are_rotations():
    """(P[i+s, 2j], P[i+s, 2j+1]) is (P[i, 2j], P[i, 2j+1]) turned by s w_j, whatever i is."""
    width, length = 32, 60
    module = nn.PositionalEncoding(width, max_len=length)
    zeros = ta.zeros(1, length, width, dtype=ta.float64)
    table = module.to(ta.float64)(zeros).numpy()[0]
    rates = 10000.0 ** (-np.arange(0, width, 2) / width)
    for shift in (1, 7, 30):
        cos, sin = np.cos(shift * rates), np.sin(shift * rates)
        even, odd = table[:-shift, 0::2], table[:-shift, 1::2]
        error = max(
            np.abs(cos * even + sin * odd - table[shift:, 0::2]).max(),
            np.abs(-sin * even + cos * odd - table[shift:, 1::2]).max(),
        )
        assert error < 1e-14, f"shift {shift}: {error:.2g}"


def test_003_positional_encoding_example():
    module = nn.PositionalEncoding(32, 0).eval()
    x = ta.zeros(1, 60, 32)
    out = module(x)
    assert (out.shape, module.P[:, :60].shape, module.P.shape) == (
        (1, 60, 32),
        (1, 60, 32),
        (1, 1000, 32),
    )
    assert_same(out.numpy()[0], table_of(module)[:60])


def test_003_curves_of_columns_6_to_9():
    """Each column is slower than the last pair; 6 and 7, and 8 and 9, are sine and cosine."""
    table = nn.PositionalEncoding(32, 0).P.numpy()[0, :60].astype(np.float64)
    for column in range(6, 10):
        rate = 10000 ** (-(column // 2 * 2) / 32)
        wave = (np.sin, np.cos)[column % 2]
        assert_close(table[:, column], wave(np.arange(60) * rate), 1e-7)
    crossings = [int((np.diff(np.sign(table[:, c])) != 0).sum()) for c in (6, 8)]
    assert crossings[0] > crossings[1]


def test_003_all_positions_are_computed_in_parallel():
    """No position waits for another: each row of a batch can be computed alone."""
    x = ta.tensor(signed(rng_of(20), 1, 5, 6))
    module = make_self_attention()
    whole = module(x).numpy()
    mask = np.eye(5, dtype=bool)[None]
    alone = module(x, mask=mask).numpy()
    for i in range(5):
        assert_close(module(x[:, i : i + 1]).numpy()[:, 0], alone[:, i])
    assert np.abs(whole - alone).max() > 0.01


def test_003_dropout_of_positions_hides_some_of_them_in_training_only():
    ta.manual_seed(0)
    module = nn.PositionalEncoding(32, dropout=0.3)
    x = ta.zeros(1, 60, 32)
    dropped = (module(x).numpy() == 0).mean()
    assert 0.2 < dropped < 0.4
    assert_same(module.eval()(x).numpy()[0], table_of(module)[:60])


# 004: the annotated encoder


def test_004_subsequent_mask():
    for n in (0, 1, 5):
        mask = masks.subsequent_mask(n)
        assert mask.shape == (1, n, n)
        assert mask.dtype == np.bool_
        assert_same(mask.numpy()[0].astype(np.uint8), np.tri(n, dtype=np.uint8))
    assert masks.subsequent_mask is masks.causal


def test_004_triu_table():
    table = ta.triu(ta.ones(5, 5), diagonal=1).numpy()
    expected = [[0, 1, 1, 1, 1], [0, 0, 1, 1, 1], [0, 0, 0, 1, 1], [0, 0, 0, 0, 1], [0] * 5]
    assert table.tolist() == expected
    assert_same(masks.subsequent_mask(5).numpy()[0], table == 0)


def test_004_masked_fill_demo():
    x = leaf(signed(rng_of(21), 1, 5, 5))
    filled = x.masked_fill(masks.subsequent_mask(5) == 0, -1e9)
    assert filled.shape == (1, 5, 5)
    below = np.tri(5, dtype=bool)
    assert_same(filled.numpy()[0][below], x.numpy()[0][below])
    assert (filled.numpy()[0][~below] == -1e9).all()
    pull(filled, np.ones((1, 5, 5)))
    assert_same(x.grad.numpy()[0], below.astype(np.float64))


def test_004_unsqueeze_demo():
    x = ta.randn(5, 5)
    assert x.unsqueeze(1).shape == (5, 1, 5)
    assert x.unsqueeze(0).shape == (1, 5, 5)
    assert_same(x.unsqueeze(1).numpy()[:, 0], x.numpy())


def test_004_attention_function():
    """attention(query, key, value, mask) -> (output, p_attn), where 0 in the mask is blocked."""
    rng = rng_of(22)
    q, k, v = (signed(rng, 2, 4, 5, 8) for _ in range(3))
    mask = np.ones((2, 1, 1, 5), np.uint8)
    mask[1, ..., 3:] = 0
    out, p_attn = F.scaled_dot_product_attention(
        *map(ta.tensor, (q, k, v)), mask=mask, return_weights=True
    )
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(8)
    expected = masked_weights(scores, [5, 3])
    assert_close(p_attn.numpy(), expected)
    assert_close(out.numpy(), expected @ v)
    assert_all_zero(p_attn.numpy()[1, ..., 3:])


def test_004_attention_function_drops_weights_out():
    ta.manual_seed(0)
    q = ta.randn(1, 2, 20, 8)
    eye = ta.eye(20).expand(1, 2, 20, 20)
    out, weights = F.scaled_dot_product_attention(q, q, eye, dropout_p=0.4, return_weights=True)
    kept = out.numpy() != 0
    assert 0.5 < kept.mean() < 0.7
    assert_close(out.numpy(), np.where(kept, weights.numpy() / 0.6, 0), 1e-6)


def test_004_clones():
    copies = nn.clones(nn.Linear(4, 4), 4)
    assert len(copies) == 4
    assert len({id(part) for part in copies}) == 4
    assert len(list(copies.parameters())) == 8


def test_004_multi_headed_attention():
    names = list(inspect.signature(nn.MultiHeadedAttention).parameters)
    assert names[:3] == ["head", "embedding_dim", "dropout"]  # those of the variants follow
    assert inspect.signature(nn.MultiHeadedAttention).parameters["dropout"].default == 0.1
    module = nn.MultiHeadedAttention(8, 512, dropout=0.2)
    assert [p.shape for p in module.parameters()] == [(512, 512), (512,)] * 4
    x = ta.randn(2, 4, 512)
    out = module(x, x, x, masks.subsequent_mask(4))
    assert out.shape == (2, 4, 512)
    assert module.attn.shape == (2, 8, 4, 4)
    assert_same(module.attn.numpy(), module.attention_weights.numpy())
    assert_all_zero(module.attn.numpy()[..., np.tri(4) == 0])


def test_004_positionwise_feed_forward():
    rng = rng_of(23)
    module = random_parameters(nn.PositionwiseFeedForward(4, 6).to(ta.float64), rng).eval()
    w = {name: p.numpy() for name, p in module.named_parameters()}
    x = signed(rng, 2, 3, 4)
    hidden = np.maximum(x @ w["w_1.weight"].T + w["w_1.bias"], 0)
    expected = hidden @ w["w_2.weight"].T + w["w_2.bias"]
    assert_close(module(ta.tensor(x)).numpy(), expected)
    alone = module(ta.tensor(x[:, 1:2])).numpy()
    assert_close(alone, expected[:, 1:2])


def test_004_positionwise_feed_forward_drops_the_hidden_layer():
    """Before w_2, which here sums the hidden layer: all outputs share what was dropped."""
    ta.manual_seed(0)
    module = nn.PositionwiseFeedForward(300, 300, dropout=0.5)
    module.w_1.load_state_dict({"weight": ta.eye(300), "bias": ta.zeros(300)})
    module.w_2.load_state_dict({"weight": ta.ones(300, 300), "bias": ta.zeros(300)})
    out = module(ta.ones(1, 10, 300)).numpy()
    assert_same(out, np.broadcast_to(out[..., :1], out.shape))
    kept = out[0, :, 0] / 2
    assert (np.abs(kept - 150) < 50).all()
    assert len(set(kept.tolist())) > 3


def test_004_layer_norm():
    x = signed(rng_of(24), 3, 5)
    module = nn.LayerNorm(5, eps=1e-6).to(ta.float64)
    assert [name for name, _ in module.named_parameters()] == ["weight", "bias"]  # a2, b2
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
    assert_close(module(ta.tensor(x)).numpy(), expected)
    random_parameters(module, rng_of(25))
    scaled = expected * module.weight.numpy() + module.bias.numpy()
    assert_close(module(ta.tensor(x)).numpy(), scaled)


def test_004_sublayer_connection():
    """x + dropout(sublayer(norm(x)))"""
    module = nn.SublayerConnection(6, dropout=0.1).to(ta.float64).eval()
    random_parameters(module, rng_of(26))
    x = ta.tensor(signed(rng_of(27), 2, 3, 6))
    out = module(x, lambda y: y * y)
    normal = module.norm(x).numpy()
    assert_close(out.numpy(), x.numpy() + normal * normal)


def test_004_sublayer_connection_drops_the_branch_and_not_the_residual():
    ta.manual_seed(0)
    module = nn.SublayerConnection(6, dropout=0.5)
    x = ta.full((50, 40, 6), 10.0)
    out = module(x, lambda y: ta.ones_like(y)).numpy()
    assert set(np.unique(out)) == {10.0, 12.0}
    assert 0.45 < (out == 10).mean() < 0.55


def make_layer(size=6, heads=2, inner=8, **options):
    return nn.EncoderLayer(
        size,
        nn.MultiHeadedAttention(heads, size),
        nn.PositionwiseFeedForward(size, inner),
        **options,
    )


def test_004_encoder_layer():
    module = random_parameters(make_layer().to(ta.float64), rng_of(28)).eval()
    x = ta.tensor(signed(rng_of(29), 2, 4, 6))
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0]])
    first, second = module.sublayer
    y = first.norm(x)
    x1 = x + module.self_attn(y, y, y, mask)
    expected = x1 + module.feed_forward(second.norm(x1))
    assert_close(module(x, mask).numpy(), expected.numpy())
    assert module.size == 6


def test_004_encoder():
    module = random_parameters(nn.Encoder(make_layer(), 3).to(ta.float64), rng_of(30)).eval()
    assert len(module.layers) == 3
    x = ta.tensor(signed(rng_of(31), 2, 4, 6))
    mask = np.array([[1, 1, 1, 0], [1, 0, 1, 1]])
    y = x
    for layer in module.layers:
        y = layer(y, mask)
    assert_close(module(x, mask).numpy(), module.norm(y).numpy())


def test_encoder_takes_an_encoder_layer():
    with pytest.raises(TypeError, match="takes an EncoderLayer, got Linear"):
        nn.Encoder(nn.Linear(3, 3), 2)
    parts = [nn.MultiHeadedAttention(2, 6), nn.PositionwiseFeedForward(6, 8)]
    for i, name in enumerate(("self_attn", "feed_forward")):
        with pytest.raises(TypeError, match=f"{name} of an encoder layer is a module"):
            nn.EncoderLayer(6, *[None if i == j else part for j, part in enumerate(parts)])
    with pytest.raises(TypeError, match="attention before feed_forward: exchange them"):
        nn.EncoderLayer(6, *parts[::-1])


def test_004_closing_example_forward_and_backward():
    """The annotated encoder, whole: 512/2048, 8 heads, 6 layers, x (32, 10, 512), all ones."""
    ta.manual_seed(0)
    size, d_ff, head, layers, dropout = 512, 2048, 8, 6, 0.1
    attention = nn.MultiHeadedAttention(head, size)
    feed_forward = nn.PositionwiseFeedForward(size, d_ff, dropout)
    encoder = nn.Encoder(nn.EncoderLayer(size, attention, feed_forward, dropout), layers)
    per_layer = 4 * (size * size + size) + 2 * size * d_ff + d_ff + size + 4 * size
    assert sum(p.numel() for p in encoder.parameters()) == 6 * per_layer + 2 * size
    x = ta.randn(32, 10, 512, requires_grad=True)
    out = encoder(x, ta.ones(32, 10).bool())
    assert out.shape == (32, 10, 512)
    # The last norm: every row has mean 0 and variance 1.
    assert np.abs(out.numpy().mean(axis=-1)).max() < 1e-5
    assert np.abs(out.numpy().var(axis=-1) - 1).max() < 1e-3
    pull(out, signed(rng_of(32), 32, 10, 512))
    assert x.grad.shape == x.shape
    for name, parameter in encoder.named_parameters():
        grad = parameter.grad.numpy()
        assert np.isfinite(grad).all(), name
        if not name.endswith("W_k.bias"):  # whose gradient is zero but for rounding
            assert (grad != 0).mean() > 0.5, name


@pytest.mark.parametrize("size", [4, 8])
def test_004_mask_hides_samples_also_where_batch_equals_heads(size):
    """A mask (B, K) with B == H: in the note it then hides heads instead of samples."""
    module = random_parameters(nn.MultiHeadedAttention(size, 8 * size, 0.0), rng_of(33))
    mask = np.ones((size, size), np.uint8)
    mask[1, 3:] = mask[2, :2] = 0
    x = ta.tensor(signed(rng_of(34), size, size, 8 * size).astype(np.float32))
    module(x, x, x, mask)
    weights = module.attn.numpy()
    for b in range(size):
        hidden = mask[b] == 0
        assert (weights[b][..., ~hidden] > 0).all()
        assert (weights[b][..., hidden] == 0).all()


def test_004_float_mask_of_ones_is_refused_with_its_remedy():
    """The note passes torch.ones(32, 10), a float: here a mask is boolean or of integers."""
    with pytest.raises(TypeError, match="mask == 0"):
        make_layer()(ta.ones(3, 4, 6), ta.ones(3, 4))


# The table of names


def test_table_of_names_is_complete_and_true():
    """docs/components.md names every test of the checklist and of the bugs, and only such."""
    here = Path(__file__).parent
    root = here.parents[1]
    text = (root / "docs" / "components.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_(?:0\d\d|bug_\d\d)_\w+)`", text))
    defined = set()
    for file in ("test_components.py", "test_bugs_in_notes.py"):
        source = (here / file).read_text(encoding="utf-8")
        defined |= set(re.findall(r"^def (test_(?:0\d\d|bug_\d\d)_\w+)", source, re.MULTILINE))
    assert named - defined == set()
    assert defined - named == set()
    assert {name[5:11] for name in defined if "bug" in name} == {
        f"bug_{i:02}" for i in range(1, 31)
    }
    for path in set(re.findall(r"`((?:tinyattn|tests)/[\w/]+\.py)`", text)):
        assert (root / path).is_file(), path
    spaces = {"nn": nn, "F": F, "masks": masks, "ta": ta}
    references = re.findall(r"`(nn|F|masks|ta)\.(\w+)", text)
    assert len(references) > 30
    for space, name in references:
        assert hasattr(spaces[space], name), f"{space}.{name}"
