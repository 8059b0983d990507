"""Which tensors a file of weights has: those of every layer, and a head that is the table of words.
And whose the settings of a model are."""

from __future__ import annotations

import copy
import hashlib
import json
from functools import partial

import numpy as np
import pytest
from common import assert_same
from test_causal import CONFIGS
from test_families import encoder_config
from test_models import CONFIG

import tinyattn as ta
from tinyattn.errors import CheckpointError
from tinyattn.models import (
    BertEncoder,
    CausalLM,
    MaskedLM,
    SentenceEncoder,
    SequenceClassifier,
    bert,
    causal_files,
)
from tinyattn.models.heads import DECODERS
from tinyattn.models.published import ENCODERS, GGUF, parts_of

ALL = CONFIGS | {kind: encoder_config(kind) for kind in ENCODERS}
LAYERS = ("num_hidden_layers", "n_layer", "n_layers")
BIASES = {"attention_bias": False, "mlp_bias": False}


def config_of(kind, layers=2, **more):
    """The config of a small model with so many layers."""
    config = {key: layers if key in LAYERS else value for key, value in ALL[kind].items()}
    config.pop("no_rope_layers", None)  # which lists one number for each layer
    return config | more


def write(model, folder):
    model.save_pretrained(folder)
    return folder / "model.safetensors"


# Layers


def tables_of(kind, config):
    """The function that lists the tensors of each kind of file that such a model has."""
    if kind in ENCODERS:
        return [partial(bert.encoder_parts, config)]
    columns = [causal_files.column_of(kind), *([] if kind == "gpt2" else [GGUF])]
    return [partial(parts_of, config, column) for column in columns]


@pytest.mark.parametrize("kind", ALL)
def test_a_file_has_the_tensors_of_as_many_layers_as_its_config_says(kind):
    """Their number bounds the layers that are looked for, so it must leave out none, whatever a
    layer has: from 9 tensors without biases to 16 with them."""
    check = bert.checked_config if kind in ENCODERS else causal_files.checked_config
    is_causal = kind in CONFIGS and kind != "gpt2"
    for layers in (*range(1, 14), 24, 61):
        for more in ({}, BIASES) if is_causal else ({},):
            for parts in tables_of(kind, check(config_of(kind, layers, **more))):
                right = parts()
                names = [name.split(".") for part in right.values() for name in part.ours]
                numbers = {name[2] for name in names if name[:2] == ["encoder", "layers"]}
                assert numbers == {str(i) for i in range(layers)}
                assert parts(most=len(right)) == right


@pytest.mark.parametrize("kind", ALL)
def test_a_model_of_many_layers_is_read_and_one_more_is_missed(kind, tmp_path):
    make = BertEncoder if kind in ENCODERS else CausalLM
    model = make(config_of(kind, 13))
    write(model, tmp_path)
    again = make.from_pretrained(tmp_path)
    for (name, x), (same, y) in zip(
        model.named_parameters(), again.named_parameters(), strict=True
    ):
        assert name == same
        assert_same(y.numpy(), x.numpy())
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    (key,) = {*LAYERS} & {*config}
    for layers, words in (
        (12, "missing nothing, unexpected "),
        (14, "missing "),
        (10**9, "missing "),
    ):
        path.write_text(json.dumps(config | {key: layers}))
        with pytest.raises(CheckpointError, match=words):
            make.from_pretrained(tmp_path)


def test_an_index_lists_each_tensor_of_each_file(tmp_path):
    model = BertEncoder(CONFIG)
    path = write(model, tmp_path)
    state = ta.load(path)
    path.unlink()
    places = {key: f"{i % 2}.safetensors" for i, key in enumerate(state)}
    for name in ("0.safetensors", "1.safetensors"):
        ta.save({k: x for k, x in state.items() if places[k] == name}, tmp_path / name)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": places}))
    BertEncoder.from_pretrained(tmp_path)
    first, second, *_ = places
    for wrong in (
        {key: name for key, name in places.items() if key != first},
        places | {"more": "0.safetensors"},
        places | {first: "1.safetensors"},
        places | {first: "1.safetensors", second: "0.safetensors"},
    ):
        index.write_text(json.dumps({"weight_map": wrong}))
        with pytest.raises(
            CheckpointError, match=r"does not fit 0\.safetensors: they list other t"
        ):
            BertEncoder.from_pretrained(tmp_path)


def test_a_sha256_may_be_in_capitals_and_one_digit_matters(tmp_path):
    path = write(BertEncoder(CONFIG), tmp_path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    for same in (digest, digest.upper()):
        BertEncoder.from_pretrained(tmp_path, sha256=same)
    for wrong in (digest[:-1], digest[:-1] + "g", digest[::-1], ""):
        with pytest.raises(CheckpointError, match=f"has the sha256 {digest}, expected {wrong}$"):
            BertEncoder.from_pretrained(tmp_path, sha256=wrong)


# A head that is the table of words


def nearly(array):
    """The same numbers, but one of them is the next one."""
    array = array.copy()
    array[-1, -1] = np.nextafter(array[-1, -1], np.float32(9))
    return array


HEADS = [(kind, "lm_head.weight") for kind in CONFIGS]
HEADS += [(kind, name) for kind in ENCODERS for name in DECODERS]


@pytest.mark.parametrize(("kind", "head"), HEADS)
def test_a_tied_head_is_the_table_of_words_to_the_last_bit(kind, head, tmp_path):
    """One that was trained a little would be left out without a word."""
    make = MaskedLM if kind in ENCODERS else CausalLM
    model = make(config_of(kind, 1, tie_word_embeddings=True)).eval()
    path = write(model, tmp_path)
    state = ta.load(path)
    (words,) = [
        x
        for x in state
        if x.endswith(("word_embeddings.weight", "embed_tokens.weight", "wte.weight"))
    ]
    table = state[words].numpy()
    ids = np.array([[5, 7, 6]])
    for same in (table, table.astype(np.float64)):
        ta.save(state | {head: ta.tensor(same)}, path)
        assert np.abs(make.from_pretrained(tmp_path)(ids).numpy() - model(ids).numpy()).max() < 1e-5
    for other in (nearly(table), table * np.float32(1 + 1e-6), table[:-1], table.T, -table):
        ta.save(state | {head: ta.tensor(other)}, path)
        with pytest.raises(
            CheckpointError, match=rf"safetensors: {head} differs from .*weight, and"
        ):
            make.from_pretrained(tmp_path)


# Settings


@pytest.mark.parametrize("make", [BertEncoder, MaskedLM, SequenceClassifier, CausalLM])
def test_the_config_of_a_caller_is_not_that_of_the_model(make):
    for kind in CONFIGS if make is CausalLM else ENCODERS:
        given = config_of(kind)
        before = copy.deepcopy(given)
        model = make(given)
        config = copy.deepcopy(model.config)
        given["hidden_size"] = given["vocab_size"] = given["more"] = 7
        assert model.config == config
        given = copy.deepcopy(before)
        other = make(given)
        other.config |= {"hidden_size": 7, "more": 1}
        assert given == before


def test_the_settings_of_a_caller_are_not_those_of_a_sentence_encoder():
    """Its prompts too: those that are added later were never checked."""
    prompts = {"a": "b ", "query": "c "}
    settings = {"prompts": prompts, "default_prompt_name": "a", "truncate_dim": 2}
    before = copy.deepcopy(settings)
    pooling = ["mean", "cls"]
    model, other = (
        SentenceEncoder(BertEncoder(CONFIG), {}, 16, pooling, settings=settings) for _ in range(2)
    )
    model.settings["prompts"]["more"] = "d "
    model.settings["truncate_dim"] = 1
    assert settings == before
    prompts["a"] = 3
    del prompts["query"]
    settings.clear()
    pooling.append("max")
    assert other.settings == before | {"similarity_fn_name": "cosine"}
    assert other.pooling == ("mean", "cls")
    assert model.settings["prompts"] == {"a": "b ", "query": "c ", "more": "d "}
    assert [model.chosen_prompt(name, None) for name in (None, "query", "more")] == [
        "b ",
        "c ",
        "d ",
    ]
    assert SentenceEncoder(BertEncoder(CONFIG), {}, 16).settings["prompts"] == {}
