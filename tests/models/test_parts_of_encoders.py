"""Encoders part by part: their usual settings, what is padding, and heads against NumPy."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest
from common import assert_close, assert_equal, rng_of, signed
from test_families import encoder_config
from test_models import CONFIG, published_state, write_folder

import tinyattn as ta
from tinyattn import nn
from tinyattn.errors import CheckpointError, MaskError, ShapeError
from tinyattn.models import BertEncoder, CausalLM, MaskedLM, SequenceClassifier, bert
from tinyattn.models.adapters import Published
from tinyattn.models.heads import EncoderWithHead
from tinyattn.models.published import ENCODERS

kinds = pytest.mark.parametrize("kind", ENCODERS)
IDS = np.array([[2, 7, 19, 3], [2, 29, 5, 3]])
SILENT = ("layer_norm_eps", "hidden_dropout_prob", "attention_probs_dropout_prob", "dropout",
          "attention_dropout", "model_type", "pad_token_id")  # fmt: skip


def random_model(make, config):
    model, rng = make(config), rng_of(0)
    for parameter in model.parameters():
        around = 1 if parameter.ndim == 1 else 0
        parameter.data = ta.tensor(around + rng.normal(size=parameter.shape) / 4)
    return model.double().eval()


def gelu(x):
    return np.vectorize(lambda z: z * math.erfc(-z / math.sqrt(2)) / 2)(x)


def gelu_by_tanh(x):
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def layer_norm(x, norm, eps):
    centred = x - x.mean(-1, keepdims=True)
    scale = np.sqrt((centred**2).mean(-1, keepdims=True) + eps)
    return centred / scale * norm.weight.numpy() + norm.bias.numpy()


@kinds
def test_a_config_that_says_nothing_has_the_usual_numbers(kind):
    config = {k: x for k, x in encoder_config(kind).items() if k not in SILENT or k == "model_type"}
    for make in (BertEncoder, MaskedLM, SequenceClassifier):
        model = make(config)
        norms = [x for x in model.modules() if isinstance(x, nn.LayerNorm)]
        assert {x.eps for x in norms} == {1e-12}
        encoder = model if make is BertEncoder else model.encoder
        assert encoder.dropout.p == 0.1
        for layer in encoder.encoder.layers:
            assert layer.self_attn.dropout.p == 0.1
            assert layer.feed_forward.dropout.p == 0.0
            assert [x.dropout.p for x in layer.sublayer] == [0.1, 0.1]
        assert encoder.config["pad_token_id"] == (1 if "roberta" in kind else 0)
    assert SequenceClassifier(config).dropout.p == 0.1
    assert BertEncoder({k: x for k, x in CONFIG.items() if k not in SILENT}).config[
        "model_type"
    ] == ("bert")


def test_rates_of_a_config_are_those_of_the_layers():
    rates = {"hidden_dropout_prob": 0.25, "attention_probs_dropout_prob": 0.5}
    for more, of_head in (
        ({}, 0.25),
        ({"classifier_dropout": 0.75}, 0.75),
        ({"classifier_dropout": None}, 0.25),
        ({"classifier_dropout": 0.0}, 0.0),
        ({"seq_classif_dropout": 0.125}, 0.125),
        ({"seq_classif_dropout": 0.125, "classifier_dropout": 0.75}, 0.125),
        ({"seq_classif_dropout": None, "classifier_dropout": 0.75}, 0.75),
    ):
        model = SequenceClassifier(CONFIG | rates | more)
        assert model.dropout.p == of_head
        assert model.encoder.dropout.p == 0.25
        for layer in model.encoder.encoder.layers:
            assert layer.self_attn.dropout.p == 0.5
            assert [x.dropout.p for x in layer.sublayer] == [0.25, 0.25]


@kinds
@pytest.mark.parametrize(("pad", "first"), [(None, 1), (0, 1), (1, 2), (5, 6)])
def test_rows_of_positions_before_that_of_the_first_token_are_for_padding_in_roberta(
    pad, first, kind
):
    model = random_model(BertEncoder, encoder_config(kind) | {"pad_token_id": pad})
    first = first if "roberta" in kind else 0
    assert (model.first_position, model.most_tokens) == (first, 34 - first)
    ids = np.arange(6, 40 - first)[None]
    x = model.word(ids).numpy() + model.position.weight.numpy()[first:]
    x = x if kind == "distilbert" else x + model.token_type.weight.numpy()[0]
    x = layer_norm(x, model.norm, 1e-12)
    assert_close(model(ids).numpy(), model.encoder(ta.tensor(x)).numpy(), 1e-10)
    with pytest.raises(ShapeError, match=r"ends at max_len=34"):
        model(np.append(ids, [[39]], 1))


@pytest.mark.parametrize("kind", ["roberta", "xlm-roberta"])
@pytest.mark.parametrize("pad", [None, 0, 1, 5])
def test_positions_do_not_count_padding_within_a_text_in_roberta(pad, kind):
    model = random_model(BertEncoder, encoder_config(kind) | {"pad_token_id": pad})
    ids = [[7, pad or 0, 9, pad or 0, 6, 8], [7, 9, 6, pad or 0, pad or 0, 8]]
    places = [[1, 0, 2, 0, 3, 4], [1, 2, 3, 0, 0, 4]]  # 0 is the place of padding
    places = np.array([[1, 2, 3, 4, 5, 6]] * 2 if pad is None else places) + (pad or 0)
    x = model.word(ids) + model.token_type.weight[0] + model.position.weight[places]
    assert_close(model(ids).numpy(), model.encoder(model.norm(x)).numpy(), 1e-10)


@kinds
def test_every_norm_has_the_eps_of_the_config(kind):
    for make, number in ((BertEncoder, 5), (MaskedLM, 6), (SequenceClassifier, 5)):
        model = make(encoder_config(kind) | {"layer_norm_eps": 0.25})
        found = [x.eps for x in model.modules() if isinstance(x, nn.LayerNorm)]
        assert found == [1e-12 if kind == "distilbert" else 0.25] * number


def test_nothing_is_dropped_in_training_where_the_rates_are_zero():
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    for make in (BertEncoder, MaskedLM, SequenceClassifier):
        model = random_model(make, CONFIG | rates)
        expected = model(IDS).numpy()
        assert_equal(model.train()(IDS).numpy(), expected)


def test_shapes_that_do_not_fit_are_said():
    model = BertEncoder(CONFIG)
    for ids, shape in (([2, 3], r"\(2,\)"), ([[[2, 3, 4]]], r"\(1, 1, 3\)")):
        with pytest.raises(ShapeError, match=rf"token ids \(B, N\), got shape {shape}$"):
            model(ids)
    said = r"^token_types have the shape of ids, \(2, 4\), got \(2, 3\)$"
    with pytest.raises(ShapeError, match=said):
        model(IDS, token_types=np.zeros((2, 3), int))
    with pytest.raises(ValueError, match="DistilBERT has no token_types"):
        BertEncoder(encoder_config("distilbert"))(IDS, token_types=np.zeros((2, 4), int))


@pytest.mark.parametrize(
    ("ids", "lengths"),
    [
        ([[2, 3, 0], [2, 3, 4]], [2, 3]),
        ([[2, 0, 0], [2, 3, 0]], [1, 2]),
        ([[2, 0, 3], [2, 3, 0]], [3, 2]),
        ([[2, 3, 4], [2, 3, 5]], None),
        ([[2, 0, 4]], None),
        ([[0, 0, 0], [2, 3, 4]], [0, 3]),
        ([[2], [0]], [1, 0]),
        (np.zeros((2, 0), int), None),
        ([2, 0], None),
    ],
)
def test_padding_is_what_stands_at_the_end_of_a_row(ids, lengths):
    found = BertEncoder(CONFIG).lengths(ids)
    assert lengths == (None if found is None else found.tolist())
    assert BertEncoder(CONFIG | {"pad_token_id": None}).lengths(ids) is None


def test_a_row_that_begins_with_padding_is_named():
    with pytest.raises(ValueError, match=r"^row 1 of ids begins with pad_token_id 0: BERT counts"):
        BertEncoder(CONFIG)([[2, 3], [0, 3]])


@kinds
def test_a_saved_config_has_the_names_of_its_family(kind, tmp_path):
    config = encoder_config(kind) | {"dtype": "float16"}
    for make in (BertEncoder, MaskedLM, SequenceClassifier):
        make(config).save_pretrained(tmp_path)
        saved = json.loads((tmp_path / "config.json").read_text())
        assert encoder_config(kind).items() <= saved.items()
        assert saved["torch_dtype"] == "float32"
        assert "dtype" not in saved
        assert ("hidden_size" in saved) == (kind != "distilbert")


@pytest.mark.parametrize("kind", ["bert", "distilbert"])
def test_an_encoder_with_fewer_layers_is_saved_with_their_number(kind, tmp_path):
    model = random_model(BertEncoder, encoder_config(kind))
    model.encoder.layers = model.encoder.layers[:1]
    expected = model(IDS).numpy()
    model.save_pretrained(tmp_path)
    again = BertEncoder.from_pretrained(tmp_path)
    assert len(again.encoder.layers) == 1
    assert_equal(again(IDS).numpy(), expected)
    assert {x.split(".")[2] for x in model.published() if ".layer." in x} == {"0"}


def test_a_head_is_left_out_only_where_the_names_have_a_prefix(tmp_path):
    state, head = published_state(), {"cls.predictions.bias": np.zeros(30, np.float32)}
    prefixed = {f"bert.{key}": x for key, x in state.items()} | head
    found = BertEncoder.from_pretrained(write_folder(tmp_path, prefixed))(IDS).numpy()
    plain = BertEncoder.from_pretrained(write_folder(tmp_path, state))(IDS).numpy()
    assert_equal(found, plain)
    with pytest.raises(CheckpointError, match=r"unexpected cls\.predictions\.bias"):
        BertEncoder.from_pretrained(write_folder(tmp_path, state | head))
    with pytest.raises(CheckpointError, match=r"unexpected strange"):
        BertEncoder.from_pretrained(write_folder(tmp_path, prefixed | {"strange": np.ones(1)}))


def test_a_class_of_ones_own_says_which_tensors_it_has():
    with pytest.raises(NotImplementedError):
        Published().published_parts()
    with pytest.raises(NotImplementedError):
        EncoderWithHead.table(CONFIG)


@kinds
@pytest.mark.parametrize("activation", ["gelu", "relu", "gelu_new"])
def test_scores_of_words_are_the_formula(kind, activation):
    name = "activation" if kind == "distilbert" else "hidden_act"
    config = encoder_config(kind) | {name: activation}
    if kind != "distilbert":
        config["layer_norm_eps"] = 0.25
    model = random_model(MaskedLM, config)
    x = model.encoder(IDS).numpy() @ model.dense.weight.numpy().T + model.dense.bias.numpy()
    used = "gelu" if "roberta" in kind else activation
    x = ACTIVATIONS[used](x)
    x = layer_norm(x, model.norm, 1e-12 if kind == "distilbert" else 0.25)
    expected = x @ model.encoder.word.weight.numpy().T + model.bias.numpy()
    assert_close(model(IDS).numpy(), expected, 1e-10)


ACTIVATIONS = {"relu": lambda x: x.clip(0), "gelu": gelu, "gelu_python": gelu}
BY_TANH = "gelu_accurate gelu_fast gelu_new gelu_python_tanh gelu_pytorch_tanh"
ACTIVATIONS |= dict.fromkeys(BY_TANH.split(), gelu_by_tanh)


def test_every_name_of_an_activation_is_tested():
    assert ACTIVATIONS.keys() == bert.ACTIVATIONS.keys()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_name_of_an_activation_is_its_formula_in_layers_and_heads(name):
    x, formula = rng_of(1).normal(size=(5, 12)), ACTIVATIONS[name]
    model = MaskedLM(CONFIG | {"hidden_act": name, "hidden_size": 12})
    assert_close(model.activation(ta.tensor(x)).numpy(), formula(x), 1e-12)
    sizes = {"n_embd": 12, "n_layer": 2, "n_head": 2, "n_positions": 9, "vocab_size": 5}
    gpt2 = CausalLM(sizes | {"model_type": "gpt2", "activation_function": name})
    for layer in (*model.encoder.encoder.layers, *gpt2.encoder.layers):
        network = layer.feed_forward.double().eval()
        hidden = formula(network.w_1(ta.tensor(x)).numpy())
        expected = network.w_2(ta.tensor(hidden)).numpy()
        assert_close(network(ta.tensor(x)).numpy(), expected, 1e-12)


@kinds
def test_scores_of_classes_are_the_formula_of_the_first_token(kind):
    model = random_model(SequenceClassifier, encoder_config(kind))
    x = model.encoder(IDS).numpy()[:, 0] @ model.dense.weight.numpy().T + model.dense.bias.numpy()
    x = x.clip(0) if kind == "distilbert" else np.tanh(x)
    expected = x @ model.out.weight.numpy().T + model.out.bias.numpy()
    assert_close(model(IDS).numpy(), expected, 1e-12)
    assert model.labels == ["good", "bad", "other"]


class Doubled(nn.Module):
    """In the place of a dropout: counts its calls, and doubles."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return x * 2


@kinds
def test_roberta_alone_drops_before_its_first_layer_too(kind):
    model = random_model(SequenceClassifier, encoder_config(kind))
    model.dropout = Doubled()
    times = 2.0 if "roberta" in kind else 1.0
    x = times * model.encoder(IDS).numpy()[:, 0] @ model.dense.weight.numpy().T
    x = x + model.dense.bias.numpy()
    x = x.clip(0) if kind == "distilbert" else np.tanh(x)
    expected = 2 * x @ model.out.weight.numpy().T + model.out.bias.numpy()
    assert_close(model(IDS).numpy(), expected, 1e-12)
    assert model.dropout.calls == times


def test_classes_without_names_are_numbered():
    config = {k: x for k, x in CONFIG.items() if k != "id2label"}
    assert SequenceClassifier(config).labels == ["LABEL_0", "LABEL_1"]
    assert SequenceClassifier(config | {"num_labels": 3}).labels == [
        "LABEL_0",
        "LABEL_1",
        "LABEL_2",
    ]
    assert SequenceClassifier(config | {"num_labels": 1}).out.weight.shape == (1, 8)
    named = config | {"id2label": {1: "b", 0: "a"}, "num_labels": 5}
    assert SequenceClassifier(named).labels == ["a", "b"]


@kinds
@pytest.mark.parametrize("is_tied", [True, False])
def test_a_head_of_words_is_saved_under_published_names(kind, is_tied, tmp_path):
    config = encoder_config(kind) | {"tie_word_embeddings": is_tied}
    model = random_model(MaskedLM, config)
    model.save_pretrained(tmp_path)
    keys = set(ta.load(tmp_path / "model.safetensors"))
    own = {"bert": "cls.predictions.decoder", "distilbert": "vocab_projector"}
    own = own.get(kind, "lm_head.decoder")
    assert (f"{own}.weight" in keys) == (not is_tied)
    prefix = kind.removeprefix("xlm-")
    assert f"{prefix}.embeddings.word_embeddings.weight" in keys
    again = MaskedLM.from_pretrained(tmp_path)
    assert not again.training
    assert_equal(again(IDS).numpy(), model(IDS).numpy())
    classifier = random_model(SequenceClassifier, config)
    classifier.save_pretrained(tmp_path)
    again = SequenceClassifier.from_pretrained(tmp_path)
    assert_equal(again(IDS).numpy(), classifier(IDS).numpy())


# What a call may say


MAKERS = (BertEncoder, MaskedLM, SequenceClassifier)


def with_types(kind):
    """A config with as many types of tokens as the family may have."""
    return encoder_config(kind) | ({} if kind == "distilbert" else {"type_vocab_size": 3})


@kinds
@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("option", ["valid_lens", "mask", "padding"])
def test_what_is_padding_is_said_in_three_ways(option, make, kind):
    model, lens = random_model(make, with_types(kind)), [4, 2]
    ids = np.array([[2, 7, 19, 3], [2, 29, 5, 6]])
    alone = [model(ids[i : i + 1, :n]).numpy()[0] for i, n in enumerate(lens)]
    mask = np.arange(4) < np.array(lens)[:, None]
    said = {"valid_lens": {"valid_lens": lens}, "mask": {"mask": mask}, "padding": {}}
    if option == "padding":
        ids[1, 2:] = (model if make is BertEncoder else model.encoder).config["pad_token_id"]
    found = model(ids, **said[option]).numpy()
    for right, row, n in zip(alone, found, lens, strict=True):
        assert_close(row if right.ndim == 1 else row[:n], right, 1e-12)


@kinds
@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("shape", [(1, 4), (2, 3), (2, 5), (4, 2), (2, 4, 4), (2, 1, 4)])
def test_a_mask_has_a_row_for_each_text_and_a_column_for_each_id(shape, make, kind):
    model, got = make(encoder_config(kind)), re.escape(str(shape))
    said = rf"^with skip_padding a mask is \(B, N\) = \(2, 4\), got shape {got}"
    with pytest.raises(MaskError, match=said):
        model(IDS, mask=np.ones(shape, bool))


@kinds
@pytest.mark.parametrize("make", MAKERS)
def test_types_of_tokens_are_rows_of_their_table(make, kind):
    model, types = random_model(make, with_types(kind)), np.zeros((2, 4), int)
    encoder = model if make is BertEncoder else model.encoder
    if kind == "distilbert":
        with pytest.raises(ValueError, match=r"^DistilBERT has no token_types$"):
            model(IDS, token_types=types)
        return
    assert_equal(model(IDS, token_types=types).numpy(), model(IDS).numpy())
    table = encoder.token_type.weight.numpy().copy()
    types[1] = [2, 1, 0, 2]
    found = model(IDS, token_types=types).numpy()
    assert_equal(model(IDS, None, None, types).numpy(), found)
    assert_close(found[0], model(IDS).numpy()[0], 1e-12)
    # The types of the second row, as if they were a part of its positions.
    encoder.token_type.weight.data = ta.tensor(0 * table)
    start = encoder.first_position
    with ta.no_grad():
        encoder.position.weight[start : start + 4] += ta.tensor(table[types[1]])
    assert_close(found[1], model(IDS).numpy()[1], 1e-12)


# Heads in files


@kinds
@pytest.mark.parametrize(
    ("said", "labels"),
    [
        ({"id2label": {"0": "a", "1": "b", "2": "c"}, "num_labels": 2}, ["a", "b", "c"]),
        ({"id2label": {"0": "a", "1": "b", "2": "c"}, "num_labels": 5}, ["a", "b", "c"]),
        ({"id2label": {"0": "a"}, "num_labels": 3}, ["a"]),
        ({"id2label": {"1": "b", "0": "a"}, "num_labels": None}, ["a", "b"]),
        ({"id2label": {}, "num_labels": 3}, ["LABEL_0", "LABEL_1", "LABEL_2"]),
        ({"id2label": None, "num_labels": 1}, ["LABEL_0"]),
        ({"id2label": None, "num_labels": None}, ["LABEL_0", "LABEL_1"]),
    ],
)
def test_a_classifier_is_saved_with_the_classes_that_its_config_names(said, labels, kind, tmp_path):
    model = random_model(SequenceClassifier, encoder_config(kind) | said)
    model.save_pretrained(tmp_path)
    again = SequenceClassifier.from_pretrained(tmp_path)
    assert model.labels == again.labels == labels
    assert again.out.weight.shape == (len(labels), 16)
    assert_equal(again(IDS).numpy(), model(IDS).numpy())


D, V, C = (16,), (40,), (3,)
HEADS_IN_FILES = {
    ("MaskedLM", "bert"): {"cls.predictions.transform.dense.weight": D + D,
                           "cls.predictions.transform.dense.bias": D,
                           "cls.predictions.transform.LayerNorm.weight": D,
                           "cls.predictions.transform.LayerNorm.bias": D},
    ("MaskedLM", "distilbert"): {"vocab_transform.weight": D + D, "vocab_transform.bias": D,
                                 "vocab_layer_norm.weight": D, "vocab_layer_norm.bias": D},
    ("MaskedLM", "roberta"): {"lm_head.dense.weight": D + D, "lm_head.dense.bias": D,
                              "lm_head.layer_norm.weight": D, "lm_head.layer_norm.bias": D},
    ("SequenceClassifier", "bert"): {"bert.pooler.dense.weight": D + D, "bert.pooler.dense.bias": D,
                                     "classifier.weight": C + D, "classifier.bias": C},
    ("SequenceClassifier", "distilbert"): {
        "pre_classifier.weight": D + D, "pre_classifier.bias": D,
        "classifier.weight": C + D, "classifier.bias": C},
    ("SequenceClassifier", "roberta"): {
        "classifier.dense.weight": D + D, "classifier.dense.bias": D,
        "classifier.out_proj.weight": C + D, "classifier.out_proj.bias": C},
}  # fmt: skip
OF_WORDS = {
    "bert": ({"cls.predictions.bias": V},
             {"cls.predictions.decoder.weight": V + D, "cls.predictions.decoder.bias": V}),
    "distilbert": ({"vocab_projector.bias": V},
                   {"vocab_projector.weight": V + D, "vocab_projector.bias": V}),
    "roberta": ({"lm_head.bias": V}, {"lm_head.decoder.weight": V + D, "lm_head.decoder.bias": V}),
}  # fmt: skip


def published_shapes(kind):
    """The names of an encoder in the files of transformers, and the shapes of its tensors."""
    shapes = {"embeddings.word_embeddings.weight": V + D, "embeddings.LayerNorm.weight": D,
              "embeddings.position_embeddings.weight": (34, 16),
              "embeddings.LayerNorm.bias": D}  # fmt: skip
    if kind == "distilbert":
        layer, norms = "transformer.layer", ("sa_layer_norm", "output_layer_norm")
        parts = {f"attention.{x}_lin": D + D for x in ("q", "k", "v", "out")}
        parts |= {"ffn.lin1": (24, 16), "ffn.lin2": (16, 24)}
    else:
        shapes["embeddings.token_type_embeddings.weight"] = (1, 16)
        layer, norms = "encoder.layer", ("attention.output.LayerNorm", "output.LayerNorm")
        parts = {f"attention.self.{x}": D + D for x in ("query", "key", "value")}
        parts |= {"attention.output.dense": D + D}
        parts |= {"intermediate.dense": (24, 16), "output.dense": (16, 24)}
    for i in range(2):
        for name, shape in (parts | dict.fromkeys(norms, D)).items():
            shapes[f"{layer}.{i}.{name}.weight"] = shape
            shapes[f"{layer}.{i}.{name}.bias"] = shape[:1]
    return shapes


@kinds
@pytest.mark.parametrize("is_tied", [True, False])
def test_a_file_has_the_names_and_the_shapes_of_transformers(is_tied, kind, tmp_path):
    for make in MAKERS:
        make(encoder_config(kind) | {"tie_word_embeddings": is_tied}).save_pretrained(tmp_path)
        found = {key: x.shape for key, x in ta.load(tmp_path / "model.safetensors").items()}
        shapes, family = published_shapes(kind), kind.removeprefix("xlm-")
        if make is not BertEncoder:
            shapes = {f"{family}.{name}": shape for name, shape in shapes.items()}
            shapes |= HEADS_IN_FILES[make.__name__, family]
        if make is MaskedLM:
            shapes |= OF_WORDS[family][not is_tied]
        assert found == shapes


@kinds
@pytest.mark.parametrize("make", MAKERS)
def test_a_folder_gives_every_parameter_back(make, kind, tmp_path):
    model = random_model(make, encoder_config(kind) | {"tie_word_embeddings": False})
    model.save_pretrained(tmp_path)
    again = dict(make.from_pretrained(tmp_path).named_parameters())
    assert again.keys() == dict(model.named_parameters()).keys()
    for name, x in model.named_parameters():
        assert_equal(again[name].numpy(), x.numpy())


@kinds
@pytest.mark.parametrize("make", MAKERS)
def test_all_that_a_call_needs_gets_a_gradient(make, kind):
    model = random_model(make, encoder_config(kind) | {"tie_word_embeddings": False}).train()
    out = model(IDS)
    out.backward(ta.tensor(signed(rng_of(5), *out.shape)))
    for name, x in model.named_parameters():
        assert x.grad is not None, name
        # A bias of keys moves all scores of a query alike.
        assert name.endswith("W_k.bias") or abs(x.grad.numpy()).max() > 1e-9, name
