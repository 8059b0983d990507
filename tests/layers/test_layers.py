"""Layers against PyTorch with copied weights, in float64."""

from __future__ import annotations

import functools

import make_torch_values as cases
import numpy as np
import pytest
from common import (
    assert_all_zero,
    assert_close,
    assert_same,
    compare_results,
    leaf,
    needs_torch,
    pull,
    random_parameters,
    rng_of,
    run_python,
    signed,
    stored_case,
    stored_values,
)

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import interop, nn, ops
from tinyattn.errors import DtypeError, ShapeError
from tinyattn.kernels.visibility import Visibility, samples_of
from tinyattn.nn.position import sinusoids

# Parity with PyTorch. `OURS[base](arrays, *variant)` gives the results of a case by tinyattn.

OURS = {}


def ours(function):
    OURS[function.__name__] = function
    return function


def results(out, grad, **leaves):
    """Backward, then the output and all gradients under the names of the case."""
    pull(out, grad)
    found = {"out": out.numpy()}
    for name, tensor in leaves.items():
        found[f"d.{name}"] = tensor.grad.numpy()
    return found


class Weights:
    """The parameters of a module, with the values and under the names that PyTorch's have in a
    case. (One there may be several here: the three projections of attention are one array.)"""

    def __init__(self, module, arrays, prefix=""):
        self.own = dict(module.to(ta.float64).named_parameters())
        self.names = interop.torch_names(module)
        interop.load_torch_state_dict(module, {n: arrays[prefix + n] for n in self.names})
        self.prefix = prefix

    def gradients(self):
        return {
            f"d.{self.prefix}{name}": np.concatenate(
                [self.own[part].grad.numpy() for part in parts]
            )
            for name, parts in self.names.items()
        }


@ours
def linear(a, bias):
    module = nn.Linear(5, 4, bias=bias)
    weights = Weights(module, a)
    x = leaf(a["x"])
    return results(module(x), a["grad"], x=x) | weights.gradients()


@ours
def layer_norm(a, i):
    sizes, eps = cases.LAYER_NORMS[i]
    module = nn.LayerNorm(sizes if len(sizes) > 1 else sizes[0], eps=eps)
    weights = Weights(module, a)
    x = leaf(a["x"])
    return results(module(x), a["grad"], x=x) | weights.gradients()


@ours
def embedding(a, padding_idx):
    module = nn.Embedding(5, 4, padding_idx=padding_idx)
    weights = Weights(module, a)
    return results(module(a["ids"]), a["grad"]) | weights.gradients()


@ours
def gelu(a, approximate):
    x = leaf(a["x"])
    return results(nn.GELU(approximate)(x), a["grad"], x=x)


@ours
def attention(a, kind, causal):
    q, k, v = (leaf(a[name]) for name in "qkv")
    options = {"scale": 0.3} if kind == "scale" else {}
    if kind == "lens":
        options["valid_lens"] = a["keep"].sum(axis=1)
    elif "keep" in a:
        options["mask"] = a["keep"]
    out = F.scaled_dot_product_attention(q, k, v, is_causal=bool(causal), **options)
    return results(out, a["grad"], q=q, k=k, v=v)


@ours
def multi_head(a, kind, bias):
    alone = kind == "self"
    sizes = {} if alone else {"queries": 6, "keys": 5, "values": 7}
    module = nn.MultiHeadAttention(
        key_size=sizes.get("keys", 6),
        query_size=sizes.get("queries", 6),
        value_size=sizes.get("values", 6),
        num_hiddens=6,
        num_heads=2,
        bias=bool(bias),
    )
    weights = Weights(module, a)
    if alone:
        x = leaf(a["x"])
        return results(module(x, x, x), a["grad"], x=x) | weights.gradients()
    leaves = {name: leaf(a[name]) for name in sizes}
    options = {}
    if kind == "lens":
        options["valid_lens"] = a["keep"].sum(axis=1)
    elif "keep" in a:
        options["mask"] = a["keep"]
    return results(module(**leaves, **options), a["grad"], **leaves) | weights.gradients()


def make_layer(norm, activation, eps=1e-5):
    return nn.EncoderLayer(
        cases.WIDTH,
        nn.MultiHeadedAttention(cases.HEADS, cases.WIDTH, dropout=0.0),
        nn.PositionwiseFeedForward(cases.WIDTH, cases.INNER, 0.0, activation=activation),
        dropout=0.0,
        norm=norm,
        eps=eps,
    )


@ours
def encoder_layer(a, norm, activation):
    module = make_layer(norm, activation)
    weights = Weights(module, a, "layers.0.")
    x = leaf(a["x"])
    return results(module(x, mask=a["keep"]), a["grad"], x=x) | weights.gradients()


@ours
def encoder(a, norm, activation):
    module = nn.Encoder(make_layer(norm, activation), cases.LAYERS)
    weights = Weights(module, a)
    x = leaf(a["x"])
    out = module(x, valid_lens=a["keep"].sum(axis=1))
    return results(out, a["grad"], x=x) | weights.gradients()


def make_decoder_layer(norm, activation):
    attention = [nn.MultiHeadedAttention(cases.HEADS, cases.WIDTH, dropout=0.0) for _ in range(2)]
    feed_forward = nn.PositionwiseFeedForward(cases.WIDTH, cases.INNER, 0.0, activation=activation)
    return nn.DecoderLayer(cases.WIDTH, *attention, feed_forward, dropout=0.0, norm=norm)


def decoder_results(module, a, prefix=""):
    weights = Weights(module, a, prefix)
    x, memory = leaf(a["x"]), leaf(a["memory"])
    out = module(x, memory, a["keep"], a["tgt_keep"])
    return results(out, a["grad"], x=x, memory=memory) | weights.gradients()


@ours
def decoder_layer(a, norm, activation):
    return decoder_results(make_decoder_layer(norm, activation), a, "layers.0.")


@ours
def decoder(a, norm, activation):
    return decoder_results(nn.Decoder(make_decoder_layer(norm, activation), cases.LAYERS), a)


@ours
def packed_encoder(a, norm, how):
    module = nn.Encoder(make_layer(norm, "gelu"), cases.LAYERS, skip_padding=how == "skip_padding")
    weights = Weights(module, a)
    x, lens = leaf(a["x"]), cases.PACKED_LENGTHS
    if how == "skip_padding":
        out = module(x, valid_lens=lens)
    else:
        packed = module(F.pack_padded_sequence(x, lens), valid_lens=lens)
        out = F.pad_packed_sequence(packed, lens, length=x.shape[1])
    return results(out, a["grad"], x=x) | weights.gradients()


@ours
def packed_attention(a, causal):
    qkv, samples = leaf(a["qkv"]), samples_of(tuple(cases.PACKED_LENGTHS))
    q, k, v = qkv.chunk(3, -1)  # (R, H * d)
    limits = np.arange(1, samples.longest + 1)[None] if causal else None
    visibility = Visibility(samples, samples, limits)
    out = ops.attention(q, k, v, heads=(2, 2), visibility=visibility, scale=1 / 3**0.5)
    return results(out, a["grad"], qkv=qkv)


class Bert(nn.Module):
    """A BERT-like model, put together from what tinyattn has."""

    def __init__(self, words, max_len, types, eps=1e-12):
        super().__init__()
        width = cases.WIDTH
        self.word = nn.Embedding(words, width)
        self.type = nn.Embedding(types, width)
        self.position = nn.LearnedPositionalEncoding(width, max_len=max_len)
        self.norm = nn.LayerNorm(width, eps=eps)
        self.encoder = nn.Encoder(make_layer("post", "gelu", eps=eps), cases.LAYERS)

    def forward(self, ids, types, mask):
        x = self.norm(self.position(self.word(ids) + self.type(types)))
        return self.encoder(x, mask=mask)


@ours
def bert(a):
    module = Bert(11, 8, 2)
    weights = Weights(module, a)
    out = module(a["ids"], a["types"], a["keep"])
    return results(out, a["grad"]) | weights.gradients()


LAYER_CASES = [name for name in cases.CASES if cases.CASES[name][0].__name__ in OURS]


@functools.cache
def our_results(name):
    function, variant = cases.CASES[name]
    return OURS[function.__name__](cases.arrays_of(name), *variant)


def test_every_case_of_a_layer_is_compared():
    bases = {cases.CASES[name][0].__name__ for name in LAYER_CASES}
    assert bases == set(OURS)
    assert len(LAYER_CASES) == 52


@pytest.mark.parametrize("name", LAYER_CASES)
def test_layer_agrees_with_stored_pytorch_values(name):
    compare_results(our_results(name), stored_case(name))


@needs_torch
@pytest.mark.parametrize("name", LAYER_CASES)
def test_layer_agrees_with_live_pytorch(name):
    compare_results(our_results(name), cases.torch_results(name))


@pytest.mark.parametrize(
    "name", ["linear.True", "multi_head.self.1", "encoder.pre.gelu", "decoder.post.relu", "bert"]
)
def test_comparison_notices_a_wrong_result(name):
    """The comparison itself must be able to fail, for every result it looks at."""
    expected = stored_case(name)
    for key in expected:
        wrong = {k: v.copy() for k, v in our_results(name).items()}
        wrong[key].flat[0] += 1e-10 * np.abs(expected[key]).max()
        with pytest.raises(AssertionError, match="relative error"):
            compare_results(wrong, expected)


@needs_torch
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("to_torch", [True, False])
def test_decoder_in_float32_agrees_with_pytorch_and_states_go_both_ways(norm, to_torch):
    """Our state in PyTorch's module, or PyTorch's in ours: one output, and the same gradients."""
    import torch

    arrays = cases.decoder_arrays(rng_of(4), {})
    a = {n: x.astype(np.float32) if x.dtype.kind == "f" else x for n, x in arrays.items()}
    ours = nn.Decoder(make_decoder_layer(norm, "gelu"), cases.LAYERS)
    theirs = cases.torch_decoder(torch, norm, "gelu", torch.float32)
    if to_torch:
        theirs.load_state_dict(interop.torch_state_dict(random_parameters(ours, rng_of(3))))
    else:
        interop.load_torch_state_dict(ours, theirs.state_dict())
    t = {name: torch.from_numpy(value) for name, value in a.items()}
    x, memory = t["x"].requires_grad_(), t["memory"].requires_grad_()
    expected = theirs(x, memory, **cases.decoder_inputs(torch, t))
    expected.backward(t["grad"])
    own_x, own_memory = leaf(a["x"]), leaf(a["memory"])
    out = ours(own_x, own_memory, a["keep"], a["tgt_keep"])
    pull(out, a["grad"])
    assert out.dtype == np.float32
    assert_close(out.numpy(), expected.detach().numpy(), 1e-5)
    assert_close(own_x.grad.numpy(), x.grad.numpy(), 1e-5)
    assert_close(own_memory.grad.numpy(), memory.grad.numpy(), 1e-5)
    own, names = dict(ours.named_parameters()), interop.torch_names(ours)
    for name, parameter in theirs.named_parameters():
        joined = np.concatenate([own[part].grad.numpy() for part in names[name]])
        assert_close(joined, parameter.grad.numpy(), 1e-5)


def test_multi_head_attention_with_three_sizes_is_its_formula():
    """Query size different from num_hiddens too, which PyTorch's module cannot have."""
    rng = rng_of(1)
    module = nn.MultiHeadAttention(
        key_size=3, query_size=4, value_size=5, num_hiddens=6, num_heads=2, bias=True
    )
    random_parameters(module.to(ta.float64), rng)
    q, k, v = signed(rng, 2, 3, 4), signed(rng, 2, 7, 3), signed(rng, 2, 7, 5)
    lens = np.array([7, 2])
    w = {name: p.numpy() for name, p in module.named_parameters()}
    joined = []
    for h in range(2):
        rows = slice(3 * h, 3 * h + 3)
        qh = q @ w["W_q.weight"][rows].T + w["W_q.bias"][rows]
        kh = k @ w["W_k.weight"][rows].T + w["W_k.bias"][rows]
        vh = v @ w["W_v.weight"][rows].T + w["W_v.bias"][rows]
        scores = np.exp(qh @ kh.swapaxes(1, 2) / np.sqrt(3)) * (np.arange(7) < lens[:, None, None])
        joined.append(scores / scores.sum(axis=-1, keepdims=True) @ vh)
    expected = np.concatenate(joined, axis=-1) @ w["W_o.weight"].T + w["W_o.bias"]
    out = module(ta.tensor(q), ta.tensor(k), ta.tensor(v), valid_lens=lens)
    assert_close(out.numpy(), expected)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_encoder_gradients_agree_with_finite_differences(norm):
    rng = rng_of(2)
    module = random_parameters(nn.Encoder(make_layer(norm, "gelu"), 2).to(ta.float64), rng)
    x = leaf(signed(rng, 2, 3, cases.WIDTH))
    assert ta.gradcheck(module, [x, np.array([[1, 1, 0], [1, 1, 1]], bool)], fast=True)


# Dropout


def test_dropout_keeps_the_expectation_and_drops_the_right_share():
    ta.manual_seed(0)
    x = ta.ones(1000, 1000)
    for p in (0.1, 0.5, 0.9):
        y = nn.Dropout(p)(x).numpy()
        n = y.size
        dropped = (y == 0).mean()
        # Five standard deviations of a binomial share.
        assert abs(dropped - p) < 5 * np.sqrt(p * (1 - p) / n)
        assert set(np.unique(y)) == {np.float32(0), np.float32(1 / (1 - p))}
        rows = (y == 0).mean(axis=1)
        # Independent elements: the rows' shares spread as a binomial's do.
        assert 0.8 < rows.std() / np.sqrt(p * (1 - p) / 1000) < 1.2
        neighbours = np.corrcoef(y[:, :-1].ravel(), y[:, 1:].ravel())[0, 1]
        assert abs(neighbours) < 5 / np.sqrt(n)


def test_dropout_differs_from_call_to_call_and_repeats_with_the_seed():
    x = ta.ones(40, 40)
    layer = nn.Dropout(0.5)
    ta.manual_seed(3)
    first, second = layer(x).numpy(), layer(x).numpy()
    assert (first != second).any()
    ta.manual_seed(3)
    assert_same(layer(x).numpy(), first)
    assert_same(layer(x).numpy(), second)
    ta.manual_seed(4)
    assert (layer(x).numpy() != first).any()


def test_dropout_mask_is_the_same_in_another_process():
    code = """
import tinyattn as ta
from tinyattn import functional as F
ta.manual_seed(11)
print(F.dropout(ta.ones(64), 0.4).tolist())
"""
    ta.manual_seed(11)
    assert run_python(code).strip() == str(F.dropout(ta.ones(64), 0.4).tolist())


def test_dropout_gradient_passes_where_the_value_passed():
    ta.manual_seed(5)
    x = leaf(signed(rng_of(5), 30, 20))
    y = nn.Dropout(0.25)(x)
    grad = signed(rng_of(6), 30, 20)
    pull(y, grad)
    kept = y.numpy() != 0
    assert 0.6 < kept.mean() < 0.9
    assert_close(x.grad.numpy(), np.where(kept, grad / 0.75, 0), 1e-15)


def test_dropout_does_nothing_in_eval_mode_or_with_p_0():
    x = ta.ones(50)
    assert_same(nn.Dropout(0.9).eval()(x).numpy(), x.numpy())
    assert_same(nn.Dropout(0.0)(x).numpy(), x.numpy())
    assert_same(F.dropout(x, 0.9, training=False).numpy(), x.numpy())


def test_dropout_of_everything_is_zero_with_zero_gradient():
    x = leaf(np.array([1.0, -2.0, np.inf]))
    y = nn.Dropout(1.0)(x)
    assert_all_zero(y.numpy())
    pull(y, np.array([1.0, 2.0, -3.0]))
    assert_all_zero(x.grad.numpy())


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan"), "0.5", None, True])
def test_dropout_refuses_what_is_no_probability(p):
    with pytest.raises((ValueError, TypeError), match="probability"):
        nn.Dropout(p)


# Layers beyond parity


@pytest.mark.parametrize("rows", [1, 2, 7, 8, 9, 31, 64, 65, 255, 256, 257, 511, 513, 1030])
def test_linear_is_its_formula_for_any_number_of_rows(rows):
    """Every row gets the bias, by kernels and by formulas, which go through rows in blocks."""
    for dtype, tolerance in (("float64", 1e-13), ("float32", 1e-5)):
        rng = rng_of(rows)
        x, weight, bias = (signed(rng, *s).astype(dtype) for s in ((rows, 3), (5, 3), (5,)))
        leaves = [leaf(a) for a in (x, weight, bias)]
        out = F.linear(*leaves)
        exact = [a.astype(np.float64) for a in (x, weight, bias)]
        assert_close(out.numpy(), exact[0] @ exact[1].T + exact[2], tolerance)
        grad = signed(rng, rows, 5).astype(dtype)
        pull(out, grad)
        assert_close(leaves[0].grad.numpy(), grad @ exact[1], tolerance)
        assert_close(leaves[1].grad.numpy(), grad.T @ exact[0], rows * tolerance)
        assert_close(leaves[2].grad.numpy(), grad.sum(0, dtype=np.float64), rows * tolerance)


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5), (0, 5), (2, 0, 5), (1, 1, 1, 5)])
def test_linear_takes_any_leading_dimensions(shape):
    rng = rng_of(8)
    module = random_parameters(nn.Linear(5, 4).to(ta.float64), rng)
    x = leaf(rng.standard_normal(shape))
    out = module(x)
    expected = x.numpy() @ module.weight.numpy().T + module.bias.numpy()
    assert out.shape == (*shape[:-1], 4)
    assert_close(out.numpy(), expected)
    pull(out, signed(rng, *out.shape))
    assert x.grad.shape == shape
    assert module.weight.grad.shape == (4, 5)


def test_starting_values_are_pytorchs():
    ta.manual_seed(0)
    module = nn.Linear(400, 300)
    bound = 1 / np.sqrt(400)
    for parameter in (module.weight, module.bias):
        values = parameter.numpy()
        assert np.abs(values).max() <= bound
        assert np.abs(values).max() > 0.98 * bound
        # The standard deviation of a uniform distribution.
        assert abs(values.std() / (bound / np.sqrt(3)) - 1) < 0.1
    table = nn.Embedding(200, 100, padding_idx=4).weight.numpy()
    assert_all_zero(table[4])
    assert abs(np.delete(table, 4, axis=0).std() - 1) < 0.02
    norm = nn.LayerNorm(7)
    assert (norm.weight.numpy() == 1).all()
    assert_all_zero(norm.bias.numpy())


def test_seed_fixes_the_starting_values():
    def values():
        ta.manual_seed(21)
        module = nn.Encoder(make_layer("pre", "relu"), 2)
        return {name: p.numpy() for name, p in module.named_parameters()}

    first, second = values(), values()
    for name in first:
        assert_same(first[name], second[name])


def test_embedding_takes_lists_tensors_and_nothing():
    module = nn.Embedding(6, 3)
    table = module.weight.numpy()
    assert_same(module([[1, 5], [0, 1]]).numpy(), table[[[1, 5], [0, 1]]])
    assert_same(module(ta.tensor(2)).numpy(), table[2])
    assert module(np.zeros((2, 0), np.int32)).shape == (2, 0, 3)
    assert module([]).shape == (0, 3)


@pytest.mark.parametrize("ids", [[-1], [6], [[0, 99]], [0.0], [True]])
def test_embedding_refuses_what_is_no_id(ids):
    with pytest.raises((IndexError, TypeError)):
        nn.Embedding(6, 3)(ids)


def test_layer_norm_without_bias():
    rng = rng_of(9)
    module = nn.LayerNorm(5, bias=False).to(ta.float64)
    assert [name for name, _ in module.named_parameters()] == ["weight"]
    x = signed(rng, 4, 5)
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    assert_close(module(ta.tensor(x)).numpy(), expected)


def test_post_norm_encoder_has_no_last_norm_and_pre_norm_has_one():
    assert nn.Encoder(make_layer("post", "relu"), 2).norm is None
    assert isinstance(nn.Encoder(make_layer("pre", "relu", eps=1e-3), 2).norm, nn.LayerNorm)
    assert nn.Encoder(make_layer("pre", "relu", eps=1e-3), 2).norm.eps == 1e-3


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: nn.Linear(-1, 2), ValueError, ["in_features", "-1"]),
        (lambda: nn.Linear(2.0, 2), ValueError, ["in_features", "2.0"]),
        (lambda: nn.LayerNorm(0), ValueError, ["normalized_shape", "0"]),
        (lambda: nn.Embedding(0, 3), ValueError, ["num_embeddings", "0"]),
        (lambda: nn.Embedding(3, 3, padding_idx=3), IndexError, ["padding_idx", "3"]),
        (lambda: nn.Embedding(3, 3, padding_idx=-1), IndexError, ["padding_idx", "-1"]),
        (lambda: F.embedding([0], ta.ones(3, 2), -1), IndexError, ["padding_idx", "-1"]),
        (lambda: nn.GELU("erf"), ValueError, ["approximate", "erf"]),
        (lambda: nn.MultiHeadAttention(8, 8, 8, 8, 3), ValueError, ["8", "3"]),
        (lambda: nn.MultiHeadAttention(8, 8, 8, 8, 0), ValueError, ["num_heads", "0"]),
        (lambda: nn.MultiHeadedAttention(3, 8), ValueError, ["8", "3"]),
        (lambda: nn.PositionwiseFeedForward(4, 8, activation="swish"), ValueError, ["swish"]),
        (lambda: nn.SublayerConnection(4, norm="both"), ValueError, ["both"]),
        (lambda: nn.PositionalEncoding(0), ValueError, ["num_hiddens", "0"]),
        (lambda: nn.clones(nn.Linear(2, 2), 0), ValueError, ["N", "0"]),
    ],
)
def test_bad_sizes_are_refused_when_the_layer_is_made(make, error, words):
    with pytest.raises(error) as caught:
        make()
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: nn.Linear(3, 2)(ta.ones(4, 5)), ["3", "(4, 5)"]),
        (lambda: nn.LayerNorm(3)(ta.ones(4, 5)), ["3", "(4, 5)"]),
        (lambda: nn.PositionalEncoding(4)(ta.ones(2, 3, 5)), ["4", "(2, 3, 5)"]),
        (lambda: nn.PositionalEncoding(4, max_len=2)(ta.ones(2, 3, 4)), ["3", "max_len=2"]),
        (lambda: nn.DotProductAttention()(*[ta.ones(2, 3)] * 3), ["queries", "(2, 3)"]),
        (
            lambda: nn.DotProductAttention()(ta.ones(2, 3, 4), ta.ones(2, 5, 4), ta.ones(2, 6, 4)),
            ["(2, 5, 4)", "(2, 6, 4)"],
        ),
        (lambda: make_layer("pre", "relu")(ta.ones(2, 3, 5)), ["6", "(2, 3, 5)"]),
    ],
)
def test_wrong_shapes_are_named(call, words):
    with pytest.raises(ShapeError) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


def test_mixed_dtypes_are_named():
    with pytest.raises(DtypeError, match="float64") as caught:
        nn.Linear(3, 2)(ta.ones(4, 3, dtype=ta.float64))
    assert "float32" in str(caught.value)


def test_stored_values_are_those_of_the_cases():
    """None missing and none left over: make_torch_values.py writes them all. Those of the ops,
    "op/...", are counted in test_every_op.py."""
    assert {key.partition("/")[0] for key in stored_values()} - {"op"} == set(cases.CASES)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_positions_come_from_the_buffer_whatever_the_dtype(dtype):
    """A table that was loaded or replaced counts, in float64 too."""
    module = nn.PositionalEncoding(4, max_len=6)
    module.load_state_dict({"P": ta.full((1, 6, 4), 7.0)})
    out = module.to(dtype)(ta.zeros(1, 3, 4, dtype=dtype))
    assert_same(out.numpy(), np.full((1, 3, 4), 7, dtype))


def test_positions_in_float64_are_computed_not_converted_from_float32():
    module = nn.PositionalEncoding(6, max_len=50).to(ta.float64)
    assert_same(module.P.numpy()[0], sinusoids(50, 6))
    assert_same(module(ta.zeros(1, 50, 6, dtype=ta.float64)).numpy()[0], sinusoids(50, 6))
    other = nn.PositionalEncoding(6, max_len=50)
    assert_same(other(ta.zeros(1, 50, 6, dtype=ta.float64)).numpy()[0], sinusoids(50, 6))
