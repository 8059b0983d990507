"""A wrong argument of a layer is named with its own name, and what is left out stays left out."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common import rng_of, signed

import tinyattn as ta
from tinyattn import interop, masks, models, nn, viz
from tinyattn.errors import GraphError, MaskError, ShapeError

SIZES: dict[Any, dict[str, Any]] = {
    nn.Linear: {"in_features": 2, "out_features": 3},
    nn.Embedding: {"num_embeddings": 3, "embedding_dim": 2},
    nn.LayerNorm: {"normalized_shape": 2},
    nn.RMSNorm: {"normalized_shape": 2},
    nn.PositionalEncoding: {"num_hiddens": 4, "max_len": 3},
    nn.LearnedPositionalEncoding: {"num_hiddens": 4, "max_len": 3},
    nn.MultiHeadAttention: {
        "key_size": 4, "query_size": 4, "value_size": 4, "num_hiddens": 4, "num_heads": 2,
        "num_kv_heads": 1, "window": 2,
    },
}  # fmt: skip
NAMES = {"key_size": "in_features", "query_size": "in_features", "value_size": "in_features"}


MAY_BE_0 = {"in_features", "out_features", "key_size", "query_size", "value_size"}


@pytest.mark.parametrize("wrong", [0, -1, -4, 2.0, True, "2"])
@pytest.mark.parametrize(
    ("layer", "name"), [(layer, name) for layer, sizes in SIZES.items() for name in sizes]
)
def test_a_wrong_size_of_a_layer_is_named(layer: Any, name: str, wrong: Any) -> None:
    sizes = SIZES[layer] | {name: [wrong] if name == "normalized_shape" else wrong}
    least = 0 if name in MAY_BE_0 else 1
    if type(wrong) is int and wrong >= least:
        assert {*layer(**sizes).parameters()}
        return
    message = f"{NAMES.get(name, name)} must be an integer >= {least}, got {wrong!r}"
    with pytest.raises(ShapeError, match=f"^{re.escape(message)}$"):
        layer(**sizes)


@pytest.mark.parametrize("heads", range(-1, 9))
@pytest.mark.parametrize("width", range(9))
def test_a_width_is_divided_by_its_heads(width: int, heads: int) -> None:
    for make in (
        lambda: nn.MultiHeadAttention(3, 3, 3, width, heads),
        lambda: nn.MultiHeadedAttention(heads, width),
    ):
        if heads >= 1 and width >= 1 and width % heads == 0:
            assert make().W_o.weight.shape == (width, width)
            continue
        message = f"the width {width} cannot be split into {heads} heads of one size"
        message = f"num_hiddens must be an integer >= 1, got {width}" if width < 1 else message
        message = f"num_heads must be an integer >= 1, got {heads}" if heads < 1 else message
        with pytest.raises(ShapeError, match=f"^{message}$"):
            make()


@pytest.mark.parametrize("shared", range(1, 8))
@pytest.mark.parametrize("heads", range(1, 7))
def test_heads_of_keys_divide_those_of_queries(heads: int, shared: int) -> None:
    if heads % shared:
        message = f"^num_kv_heads {shared} does not divide num_heads {heads}$"
        with pytest.raises(ShapeError, match=message):
            nn.MultiHeadedAttention(heads, 2 * heads, num_kv_heads=shared)
    else:
        made = nn.MultiHeadedAttention(heads, 2 * heads, num_kv_heads=shared)
        assert made.W_k.out_features == made.W_v.out_features == 2 * shared
        assert made.W_q.out_features == 2 * heads


@pytest.mark.parametrize("turned", range(2, 13, 2))
@pytest.mark.parametrize("kind", [nn.MultiHeadAttention, nn.MultiHeadedAttention])
def test_a_rotary_turns_whole_heads(kind: Any, turned: int) -> None:
    """A narrower one is refused as a wider one, when the layer is made."""
    sizes = (2, 12) if kind is nn.MultiHeadedAttention else (12, 12, 12, 12, 2)
    rotary = nn.RotaryEmbedding(turned)
    if turned == 6:
        assert kind(*sizes, rotary=rotary).rotary is rotary
    else:
        message = f"^a head has 6 numbers, and its rotary turns {turned}$"
        with pytest.raises(ShapeError, match=message):
            kind(*sizes, rotary=rotary)


def encoder(layers: int = 2) -> nn.Encoder:
    parts = nn.MultiHeadedAttention(2, 8), nn.PositionwiseFeedForward(8, 16)
    return nn.Encoder(nn.EncoderLayer(8, *parts), layers)


def attention(**options: Any) -> nn.MultiHeadAttention:
    return nn.MultiHeadAttention(4, 4, 4, 4, 2, **options)


X = ta.zeros(1, 3, 4)
MESSAGES: list[tuple[Callable[[], Any], str]] = [
    (lambda: encoder().new_cache(length=-1), "length must be an integer >= 0, got -1"),
    (lambda: encoder().new_cache().cut(-1), "length must be an integer >= 0, got -1"),
    (lambda: nn.ModuleList([[nn.ReLU()]]),
     "a ModuleList holds modules, got list: one by one, not in a list"),
    (lambda: nn.Sequential(3), "a Sequential holds modules, got int 3"),
    (lambda: nn.DecoderLayer(8, nn.Linear(8, 8), 3, nn.ReLU()),
     "src_attn of a decoder layer is a module, such as MultiHeadedAttention or "
     "PositionwiseFeedForward, got int 3"),
    (lambda: nn.Encoder(nn.Linear(2, 2), 2),
     "an Encoder takes an EncoderLayer, got Linear; any module can be the self_attn or "
     "feed_forward of one"),
    (lambda: nn.RotaryEmbedding(4, scaling={"rope_type": "linear", "factor": "x"}),
     "factor of the rope scaling linear must be a number >= 0, got 'x'"),
    (lambda: attention()(X, X, X, bias=ta.zeros(5, 7, 9)),
     "bias must broadcast to the scores, (1, 2, 3, 3), got shape (5, 7, 9)"),
    (lambda: attention()(X, X, X, cache=3),
     "attention takes a KeyValueCache, as new_cache().layers[i].self_attn of an Encoder, got int "
     "3"),
    (lambda: viz.show_heatmaps([1.0, 2.0]),
     "show_heatmaps takes matrices (rows, columns, Q, K), (n, Q, K) or (Q, K) of at least one "
     "cell, got shape (2,)"),
    (lambda: attention()(X, X, X, positions=[0, 1, 2]),
     "positions are for an attention with `rotary`, this one has none"),
    (lambda: models.observed(encoder(), weights=3).__enter__(),
     "weights is a list of layers and heads, got int 3"),
    (lambda: models.ablated(encoder(), 3).__enter__(),
     "heads is a list of pairs (layer, head), got int 3"),
    (lambda: interop.load_torch_state_dict(nn.ReLU(), 3),
     "a state dict is a dict of tensors, got int 3"),
    (lambda: setattr(nn.Linear(2, 3), "in_features", 3),
     "the weight has the size 2: set another weight, got 3"),
    (lambda: masks.window(3, 0), "width must be an integer >= 1, got 0"),
    (lambda: masks.window(3, 2, past=-1), "past must be an integer >= 0, got -1"),
    (lambda: masks.prefix([1], -1), "n must be an integer >= 0, got -1"),
    (lambda: masks.prefix([4], 3), "prefix_lens must lie between 0 and n, 3, got 4 at index 0"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), MESSAGES, ids=[text for _, text in MESSAGES])
def test_the_message_of_a_wrong_argument(call: Callable[[], Any], message: str) -> None:
    errors = (ShapeError, TypeError, ValueError, AttributeError, MaskError)
    with pytest.raises(errors, match=f"^{re.escape(message)}$"):
        call()


@pytest.mark.parametrize("name", ["reshap", "zzz", "_reshap", "cdist", "expand_dims", "unflatten"])
def test_the_message_of_a_missing_name_ends_where_it_should(name: str) -> None:
    ends = {
        "reshap": "; did you mean reshape?",
        "cdist": ": write (x[..., None, :] - y[..., None, :, :]).norm(dim=-1)",
        "expand_dims": ": write x.unsqueeze(dim)",
        "unflatten": ": write x.reshape(sizes); tinyattn.torch_names has it",
    }
    with pytest.raises(AttributeError) as error:
        getattr(ta, name)
    assert str(error.value) == f"tinyattn has no ta.{name}{ends.get(name, '')}"


def test_a_size_that_is_that_of_the_weight_may_be_set() -> None:
    layer = nn.Linear(2, 3)
    layer.in_features, layer.out_features = 2, 3
    layer.weight = nn.Parameter(ta.zeros(5, 4))
    layer.in_features, layer.out_features = 4, 5
    assert repr(layer) == "Linear(4, 5, bias=True)"


def test_empty_masks() -> None:
    assert masks.window(0, 2).shape == (1, 0, 0)
    assert masks.prefix([0], 0).shape == (1, 0, 0)


@pytest.mark.parametrize("bias", [False, True])
def test_projections_have_a_bias_where_it_is_asked_for(bias: bool) -> None:
    found = {name for name in attention(bias=bias).state_dict() if name.endswith("bias")}
    assert found == ({f"W_{part}.bias" for part in "qkvo"} if bias else set())
    assert not any("bias" in name for name in nn.AdditiveAttention(2, 3, 4).state_dict())


@pytest.mark.parametrize("padding_idx", [None, 0, 2])
def test_an_embedding_shows_its_padding(padding_idx: int | None) -> None:
    layer = nn.Embedding(3, 2, padding_idx)
    expected = "" if padding_idx is None else f", padding_idx={padding_idx}"
    assert repr(layer) == f"Embedding(3, 2{expected})"
    is_zero = (layer.weight.numpy() == 0).all(1)
    assert is_zero.tolist() == [i == padding_idx for i in range(3)]


def test_learned_positions_start_as_those_of_bert() -> None:
    ta.manual_seed(0)
    weight = nn.LearnedPositionalEncoding(64, max_len=100).weight.numpy()
    assert weight.std() == pytest.approx(0.02, rel=0.05)
    assert abs(weight.mean()) < 0.001


def test_one_copy_has_no_equal_one() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter([1.0, 2.0])

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(nn.clones(Own(), 1)) == 1
    with pytest.warns(UserWarning, match="scale"):
        nn.clones(Own(), 2)


def test_weights_are_those_of_the_call_after_its_inputs_changed() -> None:
    rng, scorer = rng_of(0), nn.DotProductAttention()
    x = ta.tensor(signed(rng, 1, 3, 4))
    scorer(x, x, x)
    expected = scorer.attention_weights.numpy().copy()
    scorer(x, x, x)
    x[...] = 7.0
    np.testing.assert_array_equal(scorer.attention_weights.numpy(), expected)


def test_a_starting_value_is_a_change_that_backward_sees() -> None:
    weight = nn.Parameter([1.0, 2.0])
    squares = weight * weight
    nn.init.zeros_(weight)
    with pytest.raises(GraphError, match="changed"):
        squares.backward(ta.tensor([1.0, -2.0]))


def test_a_name_as_a_text_is_one_name() -> None:
    model = nn.Sequential(attention(), nn.Linear(4, 4))
    inserted = nn.LoRA.insert(model, "W_q", rank=1)
    assert len(inserted) == 1
    assert model[0].W_q is inserted[0]


def test_a_parameter_in_the_place_of_a_buffer_is_no_buffer() -> None:
    module = nn.Module()
    module.register_buffer("table", ta.zeros(2))
    module.table = nn.Parameter([1.0, 2.0])
    assert not dict(module.named_buffers())
    assert [name for name, _ in module.named_parameters()] == ["table"]


def test_a_module_with_buffers_moves_to_a_device_by_name() -> None:
    module = nn.PositionalEncoding(4, max_len=3)
    module.register_buffer("counts", ta.tensor([1, 2]))
    module.to(None).to("cpu").to(dtype=None, device="cpu")
    assert (module.P.dtype, module.counts.dtype) == (np.float32, np.int64)


def test_arrays_without_a_place_are_named_in_order() -> None:
    layer = nn.EncoderLayer(8, nn.MultiHeadedAttention(2, 8), nn.PositionwiseFeedForward(8, 16))
    layer.sublayer[0].extra = nn.Linear(1, 1)
    with pytest.raises(TypeError, match=r"no place for.*extra.bias.*extra.weight"):
        interop.named_tensors(layer)
    narrow = nn.MultiHeadAttention(4, 4, 4, 6, 2)
    message = "got W_q 4, 6, bias=False, W_k 4, 6, bias=False, W_v 4, 6, bias=False, W_o 6, 6"
    with pytest.raises(ShapeError, match=re.escape(message)):
        interop.torch_names(narrow)
    with pytest.raises(TypeError, match=r"^expected a module of tinyattn's, got int 3$"):
        interop.named_tensors(3)


def test_a_misspelt_part_of_a_module_is_named_with_the_one_that_is_meant() -> None:
    """Of each kind: a Parameter, a module, a buffer, another attribute, and a method."""
    net = nn.Sequential(nn.Linear(2, 2))
    net.temperature = nn.Parameter([1.0])
    net.projection = nn.Linear(2, 2)
    net.register_buffer("running_mean", ta.zeros(2))
    net.hidden_size = 2
    for name, meant in (
        ("temperture", "temperature"),
        ("projecton", "projection"),
        ("runing_mean", "running_mean"),
        ("hiden_size", "hidden_size"),
        ("named_paramters", "named_parameters"),
    ):
        with pytest.raises(AttributeError) as error:
            getattr(net, name)
        assert f"did you mean {meant}" in str(error.value)
        assert repr(name) in str(error.value)


@pytest.mark.parametrize("wrong", [-0.1, 1.5, float("nan"), "x"], ids=["-", "+", "nan", "text"])
def test_each_probability_is_named_with_its_own_name(wrong: Any) -> None:
    of_dropout = "a dropout probability"
    for make, name, said in (
        (nn.CrossEntropyLoss, "label_smoothing", "label_smoothing"),
        (nn.Dropout, "p", of_dropout),
        (functools.partial(nn.SwiGLU, 2, 2), "dropout", of_dropout),
    ):
        message = re.escape(f"{said} lies between 0 and 1, got {wrong!r}")
        with pytest.raises(ValueError, match=f"^{message}$"):
            make(**{name: wrong})


@pytest.mark.parametrize(
    ("rows", "came"),
    [(0, "int64 ()"), ([[0]], "int64 (1, 1)"), ([0.0, 1.0], "float64 (2,)"),
     (np.array([0.5], "f"), "float32 (1,)"), (np.zeros((0, 2)), "int64 (0, 2)"),
     (ta.tensor(1), "int64 ()"), ([[True, False]], "bool (1, 2)")],
    ids=["number", "matrix", "floats", "float32", "empty", "tensor", "booleans"],
)  # fmt: skip
def test_what_selects_no_samples_of_a_cache_is_named(rows: Any, came: str) -> None:
    stack, x = encoder(), ta.ones(2, 3, 8)
    cache = stack.new_cache()
    stack(x, is_causal=True, cache=cache)
    before = [part.stored for part in cache.parts()]
    message = f"select takes numbers of samples (B',), got {came}"
    with pytest.raises(ShapeError, match=f"^{re.escape(message)}$"):
        cache.select(rows)
    assert [part.stored for part in cache.parts()] == before
    cache.select([])
    assert stack(x[:0], is_causal=True, cache=cache).shape == (0, 3, 8)


class OfOtherKinds(nn.Module):
    """Attributes that are computed when they are read, and whose own error is an AttributeError."""

    @property
    def one(self) -> Any:
        return self.lacking_one

    @functools.cached_property
    def two(self) -> Any:
        return self.lacking_two

    class Own:
        def __get__(self, module: Any, kind: Any) -> Any:
            return self if module is None else module.lacking_three

    three = Own()


@pytest.mark.parametrize("name", ["one", "two", "three"])
def test_an_error_within_what_is_computed_names_what_is_lacking(name: str) -> None:
    message = f"^'OfOtherKinds' object has no attribute 'lacking_{name}'"
    with pytest.raises(AttributeError, match=message):
        getattr(OfOtherKinds(), name)
