"""The thirty bugs of the source notes: for each, a test that here the right thing happens.

The table of them, with what each note says, stands in docs/components.md. Where the bug is one of
wording, the test checks the fact that the corrected wording states.
"""

from __future__ import annotations

import ast
import inspect
import math
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

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import masks, nn
from tinyattn.errors import MaskError, ShapeError

X = signed(rng_of(100), 2, 5, 6)


def self_attention(embed=6, hidden=4):
    return random_parameters(nn.SelfAttention(embed, hidden).to(ta.float64), rng_of(101))


def multi_head(embed=6, heads=2, dropout=0.0):
    module = nn.MultiHeadedAttention(heads, embed, dropout).to(ta.float64)
    return random_parameters(module, rng_of(102))


def encoder(embed=6, heads=2, layers=2, **options):
    layer = nn.EncoderLayer(
        embed,
        nn.MultiHeadedAttention(heads, embed),
        nn.PositionwiseFeedForward(embed, 8),
        **options,
    )
    return random_parameters(nn.Encoder(layer, layers).to(ta.float64), rng_of(103)).eval()


def test_bug_01_queries_keys_and_values_have_projections_of_their_own():
    module = self_attention()
    out = module(ta.tensor(X))
    pull(out, signed(rng_of(104), *out.shape))
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        if name != "linear_k.bias":  # moves all scores of a row alike: its gradient is zero
            assert np.abs(parameter.grad.numpy()).max() > 1e-3, name
    x = X @ module.linear_q.weight.numpy().T + module.linear_q.bias.numpy()
    y = X @ module.linear_k.weight.numpy().T + module.linear_k.bias.numpy()
    scores = x @ y.swapaxes(1, 2)
    assert np.abs(scores - scores.swapaxes(1, 2)).max() > 0.1
    recovered = np.log(module.attention_weights.numpy())
    centred = scores / 2 - (scores / 2).mean(axis=-1, keepdims=True)
    assert_close(recovered - recovered.mean(axis=-1, keepdims=True), centred)


def test_bug_02_exponent_counts_pairs_of_columns_not_columns():
    width = 32
    table = nn.PositionalEncoding(width, max_len=50).P.numpy()[0]
    position, column = np.arange(50)[:, None], np.arange(width)[None]
    waves = [np.where(column % 2, np.cos(a), np.sin(a))
             for a in (position / 10000 ** (column // 2 * 2 / width),
                       position / 10000 ** (2 * column / width))]  # fmt: skip
    assert_close(table, waves[0], 1e-7)
    wrong = np.abs(table - waves[1]).max(axis=0) > 1e-5
    assert wrong.sum() == 31
    assert not wrong[0]


def test_bug_03_i_is_the_number_of_a_pair_of_sine_and_cosine():
    table = nn.PositionalEncoding(16, max_len=30).P.numpy()[0].astype(np.float64)
    for i in range(8):
        # One angle for both columns of a pair, another for the next pair.
        assert_close(table[:, 2 * i] ** 2 + table[:, 2 * i + 1] ** 2, np.ones(30), 1e-6)
        if i < 4:
            mixed = table[:, 2 * i] ** 2 + table[:, 2 * i + 3] ** 2
            assert np.abs(mixed - 1).max() > 0.1


def test_bug_04_self_attention_gives_the_hidden_width_and_adds_no_positions():
    module = self_attention(6, 4)
    assert module(ta.tensor(X)).shape == (2, 5, 4)
    stack = nn.Sequential(self_attention(6, 6), self_attention(6, 6))
    order = rng_of(105).permutation(5)
    out, permuted = stack(ta.tensor(X)).numpy(), stack(ta.tensor(X[:, order])).numpy()
    assert_close(permuted, out[:, order], 1e-14)
    assert not any("P" in name.split(".") for name in module.state_dict())


def test_bug_04_positions_follow_the_dtype_of_the_input():
    """Not computed in float32 for an input in float64: that would be off by 6e-8."""
    column = np.arange(6)
    angle = np.arange(5)[:, None] / 10000 ** (column // 2 * 2 / 6)
    exact = np.where(column % 2, np.cos(angle), np.sin(angle))
    zeros = np.zeros((1, 5, 6))
    for module in (nn.PositionalEncoding(6), nn.PositionalEncoding(6).to(ta.float64)):
        out = module(ta.tensor(zeros))
        assert out.dtype == np.float64
        assert_close(out.numpy()[0], exact, 1e-15)
    for dtype in (np.float16, np.float32):
        out = nn.PositionalEncoding(6)(ta.tensor(zeros.astype(dtype)))
        assert out.dtype == dtype
        assert_close(out.numpy()[0], exact, np.finfo(dtype).eps)


def test_bug_05_one_array_library_and_no_other_framework():
    package = Path(ta.__file__).parent
    imported = set()
    exchange_with_pytorch = package / "interop.py"
    for path in set(package.rglob("*.py")) - {exchange_with_pytorch}:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add(node.module.split(".")[0])
    assert "numpy" in imported
    assert not imported & {"mxnet", "torch", "tensorflow", "jax", "d2l"}


@pytest.mark.parametrize("width", [1, 3, 7, 33])
def test_bug_06_odd_widths_work(width):
    out = nn.PositionalEncoding(width)(ta.zeros(1, 4, width)).numpy()[0]
    assert out.shape == (4, width)
    last = 10000 ** (-(width - 1) / width)
    assert_close(out[:, -1], np.sin(np.arange(4) * last), 1e-6)


def test_bug_06_sequence_that_is_too_long_is_named():
    with pytest.raises(ShapeError, match="11") as caught:
        nn.PositionalEncoding(4, max_len=10)(ta.zeros(1, 11, 4))
    assert "10" in str(caught.value)


def test_bug_06_table_is_a_buffer():
    module = nn.PositionalEncoding(4, max_len=10)
    assert list(module.state_dict()) == ["P"]
    assert not list(module.parameters())
    assert module.to(ta.float64).P.dtype == np.float64
    assert not module.P.requires_grad


def test_bug_07_masking_leaves_the_callers_scores_alone():
    scores = leaf(signed(rng_of(106), 3, 4))
    before = scores.numpy()
    out = F.sequence_mask(scores, [1, 2, 0], value=-1e6)
    assert_same(scores.numpy(), before)
    assert not np.shares_memory(out.data, scores.data)
    grad = signed(rng_of(107), 3, 4)
    pull(out, grad)
    keep = np.arange(4) < np.array([1, 2, 0])[:, None]
    assert_same(scores.grad.numpy(), np.where(keep, grad, 0))
    three = leaf(signed(rng_of(108), 2, 3, 4))
    before = three.numpy()
    F.masked_softmax(three, [1, 3])
    assert_same(three.numpy(), before)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_bug_08_nothing_to_attend_to_gives_exact_zeros(dtype):
    scores = leaf(signed(rng_of(109), 2, 3, 4).astype(dtype))
    out = F.masked_softmax(scores, [0, 3])
    assert out.dtype == dtype
    assert_all_zero(out.numpy()[0])
    assert_close(out.numpy()[1].sum(axis=-1), np.ones(3), 4 * np.finfo(dtype).eps)
    pull(out, signed(rng_of(110), 2, 3, 4))
    assert_all_zero(scores.grad.numpy()[0])
    assert_all_zero(scores.grad.numpy()[1, :, 3:])
    assert (scores.grad.numpy()[1, :, :3] != 0).mean() > 0.8


def test_bug_08_no_score_is_low_enough_to_let_padding_in():
    """Below a fill value of -1e6 or -1e9, padding would win."""
    scores = np.array([[[-3e9, -3e9 - 1024, 0.0, 5.0]]])
    out = F.masked_softmax(ta.tensor(scores), [2]).numpy()
    assert out.tolist() == [[[1.0, 0.0, 0.0, 0.0]]]


def test_bug_09_first_dimension_of_the_weights_is_the_sample_not_the_query():
    module = nn.DotProductAttention()
    q, k, v = ta.randn(2, 1, 3), ta.randn(2, 10, 3), ta.randn(2, 10, 4)
    module(q, k, v, valid_lens=[2, 6])
    weights = module.attention_weights.numpy()
    assert weights.shape == (2, 1, 10)
    for b in range(2):  # one panel for each sample
        module(q[b : b + 1], k[b : b + 1], v[b : b + 1], valid_lens=[[2, 6][b]])
        assert_close(module.attention_weights.numpy()[0], weights[b], 1e-6)


def test_bug_10_lengths_are_optional_everywhere():
    attentions = (
        nn.DotProductAttention(),
        nn.AdditiveAttention(6, 6, 4),
        nn.MultiHeadAttention(6, 6, 6, 6, 2),
        nn.MultiHeadedAttention(2, 6, 0.0),
    )
    x = ta.tensor(X.astype(np.float32))
    for module in attentions:
        assert inspect.signature(module.forward).parameters["valid_lens"].default is None
        assert_same(module(x, x, x).numpy(), module(x, x, x, valid_lens=None).numpy())
        full = module(x, x, x, valid_lens=[5, 5])
        assert_close(full.numpy(), module(x, x, x).numpy(), 1e-6)
    assert inspect.signature(F.masked_softmax).parameters["valid_lens"].default is None
    assert nn.SelfAttention(6, 4)(x).shape == (2, 5, 4)


def test_bug_11_sizes_are_key_query_value_and_calls_query_key_value():
    module = nn.MultiHeadAttention(
        key_size=3, query_size=4, value_size=5, num_hiddens=6, num_heads=2
    )
    assert module.W_q.weight.shape == (6, 4)
    assert module.W_k.weight.shape == (6, 3)
    assert module.W_v.weight.shape == (6, 5)
    q, k, v = ta.randn(2, 7, 4), ta.randn(2, 8, 3), ta.randn(2, 8, 5)
    assert module(queries=q, keys=k, values=v).shape == (2, 7, 6)
    with pytest.raises(ShapeError, match="4"):
        module(k, q, v)
    additive = nn.AdditiveAttention(key_size=3, query_size=4, num_hiddens=6)
    assert additive(q, k, v).shape == (2, 7, 5)


def test_bug_12_six_positional_arguments_work():
    module = nn.MultiHeadAttention(100, 100, 100, 100, 5, 0.5)
    assert module.num_heads == 5
    assert module.dropout.p == 0.5
    assert module.W_q.bias is None


def test_bug_13_paths_are_short_and_cost_grows_with_the_square():
    """Good at long texts (every pair one step apart), slow on them (n x n weights)."""
    sizes = []
    for n in (6, 12, 24):
        x = leaf(signed(rng_of(111), 1, n, 4))
        out, weights = F.scaled_dot_product_attention(x, x, x, return_weights=True)
        grad = np.zeros((1, n, 4))
        grad[0, -1] = signed(rng_of(112), 4)
        pull(out, grad)
        assert (np.abs(x.grad.numpy()).max(axis=-1) > 0).all()
        sizes.append(weights.numel())
    assert sizes[1] == 4 * sizes[0]
    assert sizes[2] == 4 * sizes[1]


def test_bug_14_random_inputs_tell_wrong_projections_from_right_ones():
    """All-ones inputs cannot: every key is equal, whatever projects it."""
    module = multi_head()
    wrong = multi_head()
    wrong.load_state_dict({**module.state_dict(), "W_q.weight": module.W_k.weight})
    ones, x = ta.ones(2, 5, 6, dtype=ta.float64), ta.tensor(X)
    assert_close(wrong(ones, ones, ones).numpy(), module(ones, ones, ones).numpy(), 1e-14)
    assert np.abs(wrong(x, x, x).numpy() - module(x, x, x).numpy()).max() > 0.01


def test_bug_15_width_must_be_a_multiple_of_heads():
    assert nn.MultiHeadedAttention(8, 512).num_heads == 8
    for head, width in ((8, 10), (3, 512), (8, 4)):
        with pytest.raises(ValueError, match=str(width)) as caught:
            nn.MultiHeadedAttention(head, width)
        assert str(head) in str(caught.value)


def test_bug_16_forward_of_multi_headed_attention_runs_and_keeps_its_weights():
    module = multi_head()
    x = ta.tensor(X)
    assert module(x, x, x).shape == (2, 5, 6)
    assert module.attn.shape == (2, 2, 5, 5)
    assert_close(module.attn.numpy().sum(axis=-1), np.ones((2, 2, 5)))


def test_bug_17_feed_forward_goes_to_d_ff_and_back():
    module = nn.PositionwiseFeedForward(6, 20)
    assert module.w_1.weight.shape == (20, 6)
    assert module.w_2.weight.shape == (6, 20)
    assert module(ta.randn(2, 3, 6)).shape == (2, 3, 6)


@pytest.mark.parametrize(("batch", "heads"), [(4, 2), (8, 8), (2, 8)])
def test_bug_18_two_dimensional_mask_hides_keys_of_samples(batch, heads):
    """Also where batch == heads, which in the note runs and hides heads."""
    module = random_parameters(nn.MultiHeadedAttention(heads, 16, 0.0).to(ta.float64), rng_of(113))
    x = signed(rng_of(114), batch, 5, 16)
    mask = np.ones((batch, 5), np.uint8)
    mask[1, 2:] = 0
    out = module(*[ta.tensor(x)] * 3, mask)
    weights = module.attn.numpy()
    assert_all_zero(weights[1, :, :, 2:])
    assert (np.delete(weights, 1, axis=0) > 0).all()
    for b in range(batch):
        n = 2 if b == 1 else 5
        alone = module(ta.tensor(x[b : b + 1]), *[ta.tensor(x[b : b + 1, :n])] * 2)
        assert_close(out.numpy()[b], alone.numpy()[0])


def test_bug_18_mask_of_a_wrong_size_names_both_readings():
    x = ta.randn(4, 5, 16)
    with pytest.raises(MaskError, match=r"mask\[None\]") as caught:
        nn.MultiHeadedAttention(2, 16)(x, x, x, np.ones((5, 5), bool))
    assert "(B|1, K|1)" in str(caught.value)
    with pytest.raises(MaskError, match="samples by keys"):
        nn.MultiHeadedAttention(2, 16)(x, x, x, np.ones((3, 5), bool))


def test_bug_19_layer_norm_divides_by_d_with_eps_under_the_root():
    out = nn.LayerNorm(4, eps=0.0)(ta.tensor([[1.0, 0.0, 0.0, 0.0]])).numpy()
    assert abs(out[0, 0] - math.sqrt(3)) < 1e-6, "1.732; 1.5 with an unbiased deviation"
    x = signed(rng_of(115), 3, 4)
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 0.25)
    assert_close(nn.LayerNorm(4, eps=0.25).to(ta.float64)(ta.tensor(x)).numpy(), expected)
    for d, ratio in ((4, 0.866), (512, 0.999)):
        assert abs(math.sqrt((d - 1) / d) - ratio) < 5e-4


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bug_19_single_feature_is_no_nan(dtype):
    module = nn.LayerNorm(1).to(dtype)
    x = leaf(np.array([[3.0], [-7.0]], dtype))
    out = module(x)
    assert out.tolist() == [[0.0], [0.0]]
    pull(out, np.array([[2.0], [-3.0]]))
    assert_all_zero(x.grad.numpy())
    assert_all_zero(module.weight.grad.numpy())
    assert module.bias.grad.tolist() == [-1.0]


def test_bug_19_gradient_of_a_nearly_constant_row_is_bounded():
    """At most 1 / sqrt(eps) times that of the output; with eps outside the root it explodes."""
    x = leaf(1 + 1e-9 * signed(rng_of(116), 8, 16))
    grad = signed(rng_of(117), 8, 16)
    pull(nn.LayerNorm(16).to(ta.float64)(x), grad)
    norms = [np.linalg.norm(a, axis=-1) for a in (x.grad.numpy(), grad)]
    assert (norms[0] <= norms[1] / math.sqrt(1e-5)).all()
    assert (norms[0] > 0.5 * norms[1] / math.sqrt(1e-5)).all()


def test_bug_20_clones_do_not_begin_alike():
    ta.manual_seed(0)
    module = nn.MultiHeadedAttention(2, 8)
    four = [module.W_q, module.W_k, module.W_v, module.W_o]
    layer = nn.EncoderLayer(8, module, nn.PositionwiseFeedForward(8, 16))
    stack = nn.Encoder(layer, 3)
    for group in (four, [part.self_attn.W_q for part in (layer, *stack.layers)],
                  [part.feed_forward.w_1 for part in (layer, *stack.layers)]):  # fmt: skip
        for i in range(len(group)):
            for j in range(i):
                assert (group[i].weight.numpy() != group[j].weight.numpy()).all()


def test_bug_21_demo_mask_shows_the_past_and_hides_the_future():
    scores = ta.tensor(signed(rng_of(118), 1, 5, 5))
    weights = F.masked_softmax(scores, mask=masks.subsequent_mask(5))
    assert weights.shape == (1, 5, 5)
    past = np.tri(5, dtype=bool)
    assert (weights.numpy()[0][past] > 0).all()
    assert_all_zero(weights.numpy()[0][~past])
    assert_close(weights.numpy().sum(axis=-1), np.ones((1, 5)))
    # The triangle that was not inverted hides all from the last query: zeros here, not uniform.
    upside_down = F.masked_softmax(scores, mask=ta.triu(ta.ones(5, 5), 1).bool()[None])
    assert_all_zero(upside_down.numpy()[0, -1])


def test_bug_22_no_name_shadows_another():
    """Arguments called `input` or `mask` after a function: neither is needed."""
    mask = masks.subsequent_mask(5)
    assert callable(masks.subsequent_mask)
    assert masks.subsequent_mask(5).tolist() == mask.tolist()
    for module in (F, masks):
        for name, function in vars(module).items():
            if inspect.isfunction(function) and function.__module__ == module.__name__:
                assert "input" not in inspect.signature(function).parameters, name


def test_bug_23_inverting_turns_0_into_1_and_1_into_0():
    upper = ta.triu(ta.ones(5, 5), diagonal=1)
    inverted = (1 - upper).numpy()
    assert_same(inverted == 1, upper.numpy() == 0)
    assert_same(inverted.astype(bool), masks.subsequent_mask(5).numpy()[0])
    assert (~upper.bool()).tolist() == masks.subsequent_mask(5)[0].tolist()


def test_bug_24_size_of_the_causal_mask_is_the_sequence_length():
    module = multi_head(6, 2)
    x = ta.tensor(X)  # n = 5 and d_model = 6
    assert module(x, x, x, masks.subsequent_mask(5)).shape == (2, 5, 6)
    with pytest.raises(MaskError, match="K=5"):
        module(x, x, x, masks.subsequent_mask(6))


def test_bug_25_weights_are_queries_by_keys():
    q = ta.randn(2, 4, 512)
    out, p_attn = F.scaled_dot_product_attention(q, q, q, return_weights=True)
    assert p_attn.shape == (2, 4, 4)
    assert out.shape == (2, 4, 512)


@pytest.mark.parametrize("heads", [1, 2, 8])
def test_bug_26_d_k_is_d_model_only_for_one_head(heads):
    """And the scores are divided by the root of d_k = d_model / h."""
    module = multi_head(16, heads)
    x = ta.tensor(signed(rng_of(119), 1, 3, 16))
    module(x, x, x)
    d_k = 16 // heads
    q, k = (F.transpose_qkv(w(x), heads).numpy() for w in (module.W_q, module.W_k))
    assert q.shape == (heads, 3, d_k)
    powers = np.exp(q @ k.swapaxes(1, 2) / math.sqrt(d_k))
    assert_close(module.attn.numpy()[0], powers / powers.sum(axis=-1, keepdims=True))


def test_bug_27_every_head_reads_the_whole_input():
    """What is split is the projection: each head's queries depend on every input feature."""
    module = multi_head(6, 3)
    for h in range(3):
        x = leaf(X)
        heads = F.transpose_qkv(module.W_q(x), 3)  # (B * H, N, d)
        grad = np.zeros(heads.shape)
        grad[h::3] = signed(rng_of(120), *grad[h::3].shape)
        pull(heads, grad)
        assert (np.abs(x.grad.numpy()) > 1e-6).all()


def test_bug_28_weights_are_recorded_before_dropout():
    ta.manual_seed(0)
    module = multi_head(6, 2, dropout=0.5)
    x = ta.tensor(X)
    out = module(x, x, x)
    recorded = module.attn.numpy()
    assert_close(recorded.sum(axis=-1), np.ones((2, 2, 5)))
    module.eval()
    assert np.abs(module(x, x, x).numpy() - out.numpy()).max() > 0.01
    assert_same(module.attn.numpy(), recorded)
    _, weights = F.scaled_dot_product_attention(x, x, x, dropout_p=0.5, return_weights=True)
    assert_close(weights.numpy().sum(axis=-1), np.ones((2, 5)))


def test_bug_29_norm_before_and_norm_after_the_sublayer():
    x = ta.tensor(X)
    norm = random_parameters(nn.LayerNorm(6).to(ta.float64), rng_of(121))
    found = {}
    for order in ("pre", "post"):
        module = nn.SublayerConnection(6, norm=order).to(ta.float64).eval()
        module.norm.load_state_dict(norm.state_dict())
        found[order] = module(x, lambda y: y * y).numpy()
    inner = norm(x)
    assert_close(found["pre"], (x + inner * inner).numpy())
    assert_close(found["post"], norm(x + x * x).numpy())
    assert np.abs(found["pre"] - found["post"]).max() > 0.1
    assert inspect.signature(nn.SublayerConnection).parameters["norm"].default == "pre"


def test_bug_30_an_encoder_sees_the_future_and_its_mask_hides_padding():
    module = encoder()
    changed = X.copy()
    changed[:, -1, 0] += 1.0  # one feature: a norm would take out a change of all alike
    out, moved = module(ta.tensor(X)).numpy(), module(ta.tensor(changed)).numpy()
    assert (np.abs(moved - out).max(axis=-1) > 1e-6).all(), "no causal mask unless asked for"
    padding = masks.padding(np.array([[4, 2, 7, 1, 0]] * 2), pad_id=0)
    out, moved = (module(ta.tensor(a), padding).numpy() for a in (X, changed))
    assert_same(moved[:, :4], out[:, :4])
    causal = masks.subsequent_mask(5)
    out, moved = (module(ta.tensor(a), causal).numpy() for a in (X, changed))
    assert_same(moved[:, :4], out[:, :4])


def test_bug_30_plain_tensors_scores_first_and_dtype_names_that_exist():
    x = ta.tensor([[1.0, 2.0]], requires_grad=True)  # no Variable around it
    x.sum().backward()
    assert x.grad.tolist() == [[1.0, 1.0]]
    assert next(iter(inspect.signature(F.masked_softmax).parameters)) == "scores"
    mask = masks.subsequent_mask(3)
    assert mask.to(ta.uint8).dtype == np.uint8
    assert not hasattr(ta, "unit8")
    scores = ta.randn(1, 3, 3)
    assert_same(
        F.masked_softmax(scores, mask=mask.to(ta.uint8)).numpy(),
        F.masked_softmax(scores, mask=mask).numpy(),
    )
