"""Which tensors a file of weights has: those of every layer, and a head that is the table of words.
And whose the settings of a model are."""

from __future__ import annotations

import copy
import hashlib
import json
import re
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


# Dtypes


DTYPES = ("float16", "float32", "float64")
MAKERS = [BertEncoder, MaskedLM, SequenceClassifier, CausalLM]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_saved_config_says_the_dtype_of_its_tensors_whatever_the_first_said(
    dtype, make, tmp_path
):
    """transformers computes in the dtype that is named there."""
    said = dict(zip(("torch_dtype", "dtype"), [x for x in DTYPES if x != dtype], strict=True))
    for kind in CONFIGS if make is CausalLM else ENCODERS:
        path = write(make(config_of(kind, 1, **said)).to(dtype), tmp_path)
        assert {x.dtype.name for x in ta.load(path).values()} == {dtype}
        config = json.loads((tmp_path / "config.json").read_text())
        assert config["torch_dtype"] == dtype
        assert "dtype" not in config


@pytest.mark.parametrize("place", [0, 5, -1])
@pytest.mark.parametrize("make", [BertEncoder, CausalLM])
def test_one_tensor_of_float64_makes_all_float64(make, place, tmp_path):
    path = write(make(config_of("llama" if make is CausalLM else "bert", 1)), tmp_path)
    state = {key: x.half() for key, x in ta.load(path).items()}
    ta.save(state, path)
    assert {x.dtype.name for x in make.from_pretrained(tmp_path).parameters()} == {"float32"}
    key = [*state][place]
    number = 1 + 2.0**-40  # which float32 does not have
    ta.save(state | {key: ta.full(state[key].shape, number, dtype="float64")}, path)
    parameters = dict(make.from_pretrained(tmp_path).named_parameters())
    assert {x.dtype.name for x in parameters.values()} == {"float64"}
    assert sum((x.numpy() == number).all() for x in parameters.values()) == 1


# Tables of names


@pytest.mark.parametrize("kind", ALL)
def test_matrices_of_gpt2_alone_are_transposed_and_heads_that_turn_have_pairs(kind):
    """Those of Llama in GGUF files lie as here already."""
    check = bert.checked_config if kind in ENCODERS else causal_files.checked_config
    for parts in tables_of(kind, check(config_of(kind))):
        for name, part in parts().items():
            is_layer = kind == "gpt2" and name.startswith("h.")
            assert part.is_transposed == is_layer, name
            is_here = parts.args[1:] == (GGUF,) and kind == "llama"
            turns = kind in CONFIGS and not is_here and kind != "gpt2"
            ends = ("q_proj", "k_proj", "q_norm", "k_norm", "attn_q", "attn_k")
            turns = turns and name.rpartition(".")[0].endswith((*ends, "attn_q_norm"))
            assert part.pairs == (config_of(kind).get("head_dim", 4) if turns else 0), name


BIASES_OF = {  # by their two settings
    "llama": ("W_q W_k W_v W_o", "w_1 w_2 w_3"), "mistral": ("", ""),
    "qwen2": ("", ""), "qwen3": ("W_q W_k W_v W_o", ""),
    "smollm3": ("W_q W_k W_v W_o", "w_1 w_2 w_3"), "gpt2": ("", ""),
}  # fmt: skip
ALWAYS = {"qwen2": "W_q W_k W_v", "gpt2": "W_q W_k W_v W_o w_1 w_2 norm"}


@pytest.mark.parametrize("mlp", [False, True])
@pytest.mark.parametrize("attention", [False, True])
@pytest.mark.parametrize("kind", CONFIGS)
def test_settings_of_biases_count_in_the_families_that_have_them(kind, attention, mlp, tmp_path):
    model = CausalLM(config_of(kind, 1, attention_bias=attention, mlp_bias=mlp))
    of_attention, of_mlp = BIASES_OF[kind]
    right = ALWAYS.get(kind, "") + f" {of_attention * attention} {of_mlp * mlp}"
    names = [name.split(".") for name, _ in model.named_parameters()]
    assert {name[-2] for name in names if name[-1] == "bias"} == {*right.split()}
    write(model, tmp_path)
    again = CausalLM.from_pretrained(tmp_path)
    assert dict(again.named_parameters()).keys() == dict(model.named_parameters()).keys()


# Which file is read


def test_one_file_of_weights_comes_before_an_index_of_several(tmp_path):
    """As in transformers. An index of an older model may lie beside it."""
    old, new = (BertEncoder(config_of("bert", 1)).eval() for _ in range(2))
    ids = np.array([[5, 7, 6]])
    path = write(old, tmp_path)
    state = ta.load(path)
    path.rename(tmp_path / "old.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": dict.fromkeys(state, "old.safetensors")}))
    assert_same(BertEncoder.from_pretrained(tmp_path)(ids).numpy(), old(ids).numpy())
    write(new, tmp_path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    for sha256 in (None, digest):
        found = BertEncoder.from_pretrained(tmp_path, sha256)(ids).numpy()
        assert_same(found, new(ids).numpy())
    path.unlink()
    path.mkdir()  # a folder is no file
    assert_same(BertEncoder.from_pretrained(tmp_path)(ids).numpy(), old(ids).numpy())
    for sha256 in ("", digest):
        said = f"sha256 is of one file, and {tmp_path} has its weights in several"
        with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
            BertEncoder.from_pretrained(tmp_path, sha256)
    index.unlink()
    said = f"{tmp_path} has no model.safetensors, and no other weights are read, because pytorch_m"
    with pytest.raises(FileNotFoundError, match=f"^{re.escape(said)}"):
        BertEncoder.from_pretrained(tmp_path)


@pytest.mark.parametrize("place", [0, 9, -1])
def test_files_of_an_index_lie_beside_it(place, tmp_path):
    path = write(BertEncoder(config_of("bert", 1)), tmp_path / "model")
    state, index = ta.load(path), tmp_path / "model" / "model.safetensors.index.json"
    (tmp_path / "other").mkdir()
    for name in ("model/m.safetensors", "m.safetensors", "other/m.safetensors"):
        ta.save(state, tmp_path / name)
    path.unlink()
    (index.parent / "other").mkdir()
    key, places = [*state][place], dict.fromkeys(state, "m.safetensors")
    index.write_text(json.dumps({"weight_map": places}))
    BertEncoder.from_pretrained(index.parent)
    absolute = str(tmp_path / "m.safetensors")
    for wrong in ("../m.safetensors", absolute, "other/m.safetensors", "./m.safetensors", "", "..",
                  index.name):  # fmt: skip
        index.write_text(json.dumps({"weight_map": places | {key: wrong}}))
        names = sorted(["m.safetensors", wrong])
        said = f"{index}: the files must lie beside it, got {names}"
        with pytest.raises(CheckpointError, match=f"^{re.escape(said)}$"):
            BertEncoder.from_pretrained(index.parent)
