"""Settings of model folders, as versions 2 to 6 of sentence-transformers write them, and broken.

test_sentence_transformers.py compares the points with those of sentence-transformers itself.
"""

from __future__ import annotations

import json
import re
import tracemalloc

import numpy as np
import pytest
from common import assert_close, assert_equal, assert_same, rng_of, signed
from test_models import (
    CONFIG,
    IDS,
    LENS,
    TEXTS,
    exact_hidden,
    needs_tokenizers,
    published_state,
    write_folder,
    write_tokenizer,
)

import tinyattn as ta
from tinyattn import models, nn
from tinyattn.errors import CheckpointError
from tinyattn.models import sentence_files

OLD = "sentence_transformers.models."
NEW = {
    "Transformer": "sentence_transformers.base.modules.transformer.Transformer",
    "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    "Dense": "sentence_transformers.base.modules.dense.Dense",
    "Normalize": "sentence_transformers.base.modules.normalize.Normalize",
}
# 1_Pooling/config.json of versions 2, 3 to 5.3, and 5.4 to 6; what the poolings are.
POOLINGS = {
    "2, mean": (
        '{"word_embedding_dimension": 8, "pooling_mode_cls_token": false, '
        '"pooling_mode_mean_tokens": true, "pooling_mode_max_tokens": false, '
        '"pooling_mode_mean_sqrt_len_tokens": false}',
        ["mean"],
    ),
    "3, cls and max": (
        '{"word_embedding_dimension": 8, "pooling_mode_cls_token": true, '
        '"pooling_mode_mean_tokens": false, "pooling_mode_max_tokens": true, '
        '"pooling_mode_mean_sqrt_len_tokens": false, "pooling_mode_weightedmean_tokens": false, '
        '"pooling_mode_lasttoken": false, "include_prompt": true}',
        ["cls", "max"],
    ),
    "6, mean": (
        '{"embedding_dimension": 8, "pooling_mode": "mean", "include_prompt": true}',
        ["mean"],
    ),
    "6, max": ('{"embedding_dimension": 8, "pooling_mode": "max"}', ["max"]),
    "6, two": ('{"embedding_dimension": 8, "pooling_mode": ["mean", "cls"]}', ["mean", "cls"]),
    "6, both": ('{"pooling_mode": "cls", "pooling_mode_mean_tokens": true}', ["cls"]),
    "none": ('{"word_embedding_dimension": 8}', ["mean"]),
}
DENSE = {"in_features": 8, "out_features": 3, "bias": True,
         "activation_function": "torch.nn.modules.activation.Tanh"}  # fmt: skip


def modules_of(*kinds, new=False):
    return [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "",
         "type": NEW[kind] if new else OLD + kind}
        for i, kind in enumerate(kinds)
    ]  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    """Transformer, Pooling, Dense, Normalize."""
    folder = write_tokenizer(write_folder(tmp_path / "model"))
    parts = modules_of("Transformer", "Pooling", "Dense", "Normalize")
    (folder / "modules.json").write_text(json.dumps(parts))
    for name in ("1_Pooling", "2_Dense", "3_Normalize"):
        (folder / name).mkdir()
    (folder / "1_Pooling" / "config.json").write_text(POOLINGS["6, mean"][0])
    (folder / "2_Dense" / "config.json").write_text(json.dumps(DENSE))
    weights = {"linear.weight": signed(rng_of(1), 3, 8), "linear.bias": signed(rng_of(2), 3)}
    ta.save({k: ta.tensor(x).float() for k, x in weights.items()},
            folder / "2_Dense" / "model.safetensors")  # fmt: skip
    (folder / "config_sentence_transformers.json").write_text(
        '{"prompts": {"query": "cat "}, "default_prompt_name": null, "similarity_fn_name": null}'
    )
    return folder


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def exact_pooling(tokens, modes, skipped=0):
    rows = [exact_hidden(published_state(), ids)[skipped:] for ids in tokens]
    rules = {"mean": lambda x: x.mean(0), "max": lambda x: x.max(0), "cls": lambda x: x[0]}
    return np.stack([np.concatenate([rules[mode](row) for mode in modes]) for row in rows])


@needs_tokenizers
@pytest.mark.parametrize("name", POOLINGS)
@pytest.mark.parametrize("new", [False, True])
def test_poolings_of_all_versions(folder, tmp_path, name, new):
    text, modes = POOLINGS[name]
    (folder / "1_Pooling" / "config.json").write_text(text)
    (folder / "modules.json").write_text(json.dumps(modules_of("Transformer", "Pooling", new=new)))
    model = models.SentenceEncoder.from_pretrained(folder)
    expected = exact_pooling(model.tokenize(TEXTS), modes)
    assert np.abs(model.encode(TEXTS, 4) - expected).max() < 1e-5
    assert model.encode([]).shape == (0, 8 * len(modes))
    model.save_pretrained(tmp_path / "new")
    again = models.SentenceEncoder.from_pretrained(tmp_path / "new")
    assert_same(again.encode(TEXTS), model.encode(TEXTS))


@needs_tokenizers
def test_dense_and_normalize_come_in_the_order_of_the_file(folder, tmp_path):
    file = ta.load(folder / "2_Dense" / "model.safetensors")
    weight, bias = (file[f"linear.{x}"].numpy().astype(np.float64) for x in ("weight", "bias"))
    model = models.SentenceEncoder.from_pretrained(folder)
    points = exact_pooling(model.tokenize(TEXTS), ["mean"])

    def unit(x):
        return x / np.linalg.norm(x, axis=1, keepdims=True)

    expected = unit(np.tanh(points @ weight.T + bias))
    assert np.abs(model.encode(TEXTS) - expected).max() < 1e-5
    assert model.encode([]).shape == (0, 3)
    parts = modules_of("Transformer", "Pooling", "Dense", "Normalize")
    (folder / "modules.json").write_text(json.dumps([*parts[:2], parts[3], parts[2]]))
    model = models.SentenceEncoder.from_pretrained(folder)
    expected = np.tanh(unit(points) @ weight.T + bias)
    assert np.abs(model.encode(TEXTS) - expected).max() < 1e-5
    model.save_pretrained(tmp_path / "new")
    again = models.SentenceEncoder.from_pretrained(tmp_path / "new")
    assert_same(again.encode(TEXTS), model.encode(TEXTS))


@needs_tokenizers
@pytest.mark.parametrize("pooling", ["mean", "max", "cls"])
def test_prompts_are_taken_and_left_out_of_the_pooling(folder, pooling):
    (folder / "modules.json").write_text(json.dumps(modules_of("Transformer", "Pooling")))
    path, settings = folder / "1_Pooling" / "config.json", "config_sentence_transformers.json"
    edit(path, pooling_mode=pooling)
    model = models.SentenceEncoder.from_pretrained(folder)
    texts = ["a", "dog runs", ""]
    with_prompt = [f"cat {text}" for text in texts]
    assert_same(model.encode(texts, prompt="cat "), model.encode(with_prompt))
    assert_same(model.encode(texts, prompt_name="query"), model.encode(with_prompt))
    edit(folder / settings, default_prompt_name="query")
    edit(path, include_prompt=False)
    model = models.SentenceEncoder.from_pretrained(folder)
    expected = exact_pooling(model.tokenize(with_prompt), [pooling], 2)  # [CLS] cat
    assert np.abs(model.encode(texts) - expected).max() < 1e-5
    assert_same(model.encode(texts, prompt=""), model.encode(texts, prompt=""))
    assert np.abs(model.encode(texts, prompt="") - expected).max() > 1e-2
    for options, message in {
        "both": ({"prompt": "a", "prompt_name": "query"}, "not both"),
        "unknown": ({"prompt_name": "passage"}, r"one of \['query'\], got 'passage'"),
        "surrogate": ({"prompt": "a\ud800"}, "half of a surrogate"),
    }.values():
        with pytest.raises(ValueError, match=message):
            model.encode(texts, **options)
    with pytest.raises(TypeError, match="for text 0, got int"):
        model.encode(texts, prompt=3)


@needs_tokenizers
def test_truncate_dim_and_lengths(folder):
    full = models.SentenceEncoder.from_pretrained(folder)
    edit(folder / "config_sentence_transformers.json", truncate_dim=2)
    (folder / "sentence_bert_config.json").unlink()
    edit(folder / "tokenizer_config.json", model_max_length=5)
    model = models.SentenceEncoder.from_pretrained(folder)
    assert model.max_length == 5
    assert_close(model.encode(["a cat"]), full.encode(["a cat"])[:, :2])
    assert model.encode([]).shape == (0, 2)
    model.max_length = 4
    assert model.tokenize(["a a a a a"]) == [[2, 4, 4, 3]]
    (folder / "sentence_roberta_config.json").write_text('{"max_seq_length": 3}')
    assert models.SentenceEncoder.from_pretrained(folder).max_length == 3


@needs_tokenizers
def test_lowercase_of_either_file(folder, tmp_path):
    path = folder / "tokenizer_config.json"
    edit(path, do_lower_case=False)
    cased = models.SentenceEncoder.from_pretrained(folder)
    assert cased.tokenize(["Cat cat"]) == [[2, 1, 5, 3]]
    edit(folder / "sentence_bert_config.json", do_lower_case=True)
    model = models.SentenceEncoder.from_pretrained(folder)
    assert model.tokenize(["Cat cat"]) == [[2, 5, 5, 3]]
    model.save_pretrained(tmp_path / "new")
    again = models.SentenceEncoder.from_pretrained(tmp_path / "new")
    assert again.files == model.files
    # As in transformers, a BertTokenizer has a normalizer of its own.
    edit(tmp_path / "new" / "sentence_bert_config.json", do_lower_case=False)
    again = models.SentenceEncoder.from_pretrained(tmp_path / "new")
    assert again.tokenize(["Cat cat"]) == [[2, 1, 5, 3]]


# A file, a setting of it with a value that is refused, and what the error says.
REFUSED = [
    ("modules.json", modules_of("Transformer"), r"the modules must be a Transformer, a Pooling"),
    ("modules.json", modules_of("Pooling", "Transformer"), "the modules must be"),
    ("modules.json", modules_of("Transformer", "Pooling", "Pooling"), "the modules must be"),
    ("modules.json", modules_of("Transformer", "Pooling", "LSTM"), "got .*models.LSTM"),
    ("modules.json", {}, "its content must be a list"),
    ("modules.json", [3], "module 0 must be an object"),
    ("modules.json", [{"type": 3}], "type of module 0 must be a string"),
    ("modules.json", [{"type": "custom.Transformer"}], "got custom.Transformer"),
    ("modules.json", [{"type": OLD + "Transformer", "path": "../x"}], "inside the folder"),
    ("modules.json", [{"type": OLD + "Transformer", "path": "/"}], "inside the folder"),
    ("modules.json", [{"type": OLD + "Transformer", "path": "\0"}], "inside the folder"),
    ("modules.json", 2 * modules_of("Transformer"), "two modules have the name '0'"),
    ("1_Pooling/config.json", {"pooling_mode": "lasttoken"}, "got .*lasttoken"),
    ("1_Pooling/config.json", {"pooling_mode": []}, "pooling_mode must be one or more"),
    ("1_Pooling/config.json", {"pooling_mode": [["mean"]]}, "pooling_mode must be one or more"),
    ("1_Pooling/config.json", {"pooling_mode_lasttoken": True}, "'pooling_mode_lasttoken'"),
    ("1_Pooling/config.json", {"embedding_dimension": 9}, "must be the hidden_size 8, got 9"),
    ("1_Pooling/config.json", {"include_prompt": 1}, "include_prompt must be true or false"),
    ("1_Pooling/config.json", {"new_setting": 1}, "'new_setting' is unknown here"),
    ("2_Dense/config.json", {"in_features": 7}, "in_features must be 8"),
    ("2_Dense/config.json", {"out_features": 10**12}, r"linear.weight has shape .*got \(3, 8\)"),
    ("2_Dense/config.json", {"bias": False}, "missing nothing, unexpected linear.bias"),
    ("2_Dense/config.json", {"bias": 1}, "bias must be true or false"),
    ("2_Dense/config.json", {"use_residual": True}, "use_residual must be False"),
    ("2_Dense/config.json", {"module_input_name": "token_embeddings"}, "module_input_name must be"),
    (
        "2_Dense/config.json",
        {"activation_function": "torch.nn.Softplus"},
        "got .*Softplus",
    ),
    ("2_Dense/config.json", {"activation_function": "mine.Tanh"}, "got 'mine.Tanh'"),
    ("3_Normalize/config.json", {"module_output_name": "token_embeddings"}, "module_output_name"),
    ("3_Normalize/config.json", {"module_input_name": "token_embeddings"}, "module_input_name"),
    ("sentence_bert_config.json", {"max_seq_length": 1}, "max_seq_length must be an integer >= 2"),
    ("sentence_bert_config.json", {"max_seq_length": 0}, "max_seq_length must be an integer >= 2"),
    ("sentence_bert_config.json", {"do_lower_case": "yes"}, "do_lower_case must be true or false"),
    ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "transformer_task must be"),
    ("sentence_bert_config.json", {"processing_kwargs": {"text": {}}}, "processing_kwargs must"),
    ("sentence_bert_config.json", {"query_length": 32}, "query_length must be None"),
    ("sentence_bert_config.json", {"model_args": {"attn": 1}}, "model_args must be {}"),
    ("sentence_bert_config.json", {"modality_config": {"image": {}}}, "modality_config must be"),
    ("tokenizer_config.json", {"truncation_side": "left"}, "truncation_side must be 'right'"),
    ("tokenizer_config.json", {"padding_side": "left"}, "padding_side must be 'right'"),
    ("tokenizer_config.json", {"tokenize_chinese_chars": "x"}, "tokenize_chinese_chars must be"),
    ("tokenizer_config.json", {"tokenizer_class": "MPNetTokenizer"}, "tokenizer_class must be"),
    ("tokenizer_config.json", {"do_lower_case": 1}, "do_lower_case must be True or False"),
    ("tokenizer_config.json", {"strip_accents": 0}, "strip_accents must be"),
    ("tokenizer_config.json", {"do_basic_tokenize": False}, "do_basic_tokenize must be True"),
    ("tokenizer_config.json", {"split_special_tokens": True}, "split_special_tokens must be False"),
    ("tokenizer_config.json", {"never_split": ["cat"]}, "never_split must be"),
    ("tokenizer_config.json", {"additional_special_tokens": ["cat"]}, "additional_special_tokens"),
    ("tokenizer_config.json", {"extra_special_tokens": {"x": "cat"}}, "extra_special_tokens must"),
    ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["x", None]}}, "auto_map must be"),
    ("tokenizer_config.json", {"model_input_names": ["input_ids"]}, "must have attention_mask"),
    ("tokenizer_config.json", {"model_input_names": 3}, "model_input_names must be a list"),
    ("tokenizer_config.json", {"add_bos_token": True}, "'add_bos_token' is unknown here"),
    *(
        ("tokenizer_config.json", {name: value}, f"{name} must be '")
        for name in ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
        for value in ("<s>", {"content": "<s>"}, {"content": "[CLS]", "lstrip": True}, 3)
    ),
    ("tokenizer_config.json", {"sep_token": {"content": "[SEP]", "x": False}}, "sep_token must"),
    ("tokenizer_config.json", {"added_tokens_decoder": {"5": {"content": "dog"}}}, "for id 5"),
    ("tokenizer_config.json", {"added_tokens_decoder": {"2": {"lstrip": True}}}, "for id 2"),
    ("tokenizer_config.json", {"added_tokens_decoder": {"2": 3}}, "token 2 of added_tokens_dec"),
    ("special_tokens_map.json", {"unk_token": "<unk>"}, "unk_token must be"),
    ("tokenizer.json", {"model": {"type": "BPE"}}, "model.type must be 'WordPiece'"),
    ("tokenizer.json", {"model": 3}, r"tokenizer\.json: model must be an object"),
    ("tokenizer.json", {"model": None}, r"tokenizer\.json: model must be an object"),
    ("tokenizer.json", {"model": {"vocab": {"[CLS]": 2}}}, r"must have the word \[UNK\]"),
    ("tokenizer.json", {"model": {"vocab": [["a", 1]]}}, r"must have the word \[UNK\]"),
    ("tokenizer.json", {"model": {"unk_token": "a"}}, "model.unk_token"),
    ("tokenizer.json", {"model": {"continuing_subword_prefix": ""}}, "continuing_subword_prefix"),
    ("tokenizer.json", {"model": {"max_input_chars_per_word": 9}}, "chars_per_word must be 100"),
    ("tokenizer.json", {"added_tokens": [{"content": "a"}]}, "an added token must have an id"),
    ("tokenizer.json", {"added_tokens": [{"id": 1}]}, "must have an id and its content"),
    ("tokenizer.json", {"added_tokens": 3}, "added_tokens must be a list"),
    ("tokenizer.json", {"added_tokens": [3]}, "an added token must be an object"),
    ("config_sentence_transformers.json", {"precision": "int8"}, "'precision' is unknown here"),
    ("config.json", {"is_encoder_decoder": True}, "is_encoder_decoder must be False here, got"),
    ("config.json", {"quantization_config": {"bits": 8}}, "packed, so write .* dequantize"),
    ("config.json", {"window": 3}, "'window' is unknown here"),
    ("config_sentence_transformers.json", {"default_prompt_name": "x"}, "one of .*query.*got 'x'"),
    ("config_sentence_transformers.json", {"prompts": {"a": None}}, "the prompt 'a' must be"),
    ("config_sentence_transformers.json", {"truncate_dim": 0}, "truncate_dim must be an integer"),
    ("config_sentence_transformers.json", {"similarity_fn_name": "x"}, "similarity_fn_name must"),
    ("config_sentence_transformers.json", {"model_type": "SparseEncoder"}, "model_type must be"),
    ("config.json", {"pruned_heads": {"0": [1]}}, "'pruned_heads' is unknown here"),
    ("config.json", {"num_attention_heads": 3}, "the width 8 cannot be split into 3 heads"),
    ("config.json", {"layer_norm_eps": 0}, "layer_norm_eps must be more than 0"),
    ("config.json", {"pad_token_id": 30}, "pad_token_id must be null or a token id, got 30"),
    ("config.json", {"pad_token_id": -1}, "pad_token_id must be null or a token id, got -1"),
    ("config.json", {"hidden_dropout_prob": 1.5}, "hidden_dropout_prob lies between 0 and 1"),
    ("config.json", {"num_hidden_layers": 10**9}, "missing encoder.layer.2"),
    ("config.json", {"vocab_size": 10**12}, "word_embeddings.weight has shape"),
]


@needs_tokenizers
@pytest.mark.parametrize(("file", "changes", "message"), REFUSED)
def test_a_setting_that_is_not_here_is_refused_by_name(folder, file, changes, message):
    path = folder / file
    if file == "modules.json":
        path.write_text(json.dumps(changes))
    else:
        path.write_text(path.read_text() if path.exists() else "{}")
        edit(path, **changes)
    with pytest.raises(CheckpointError, match=message) as error:
        models.SentenceEncoder.from_pretrained(folder)
    assert str(folder) in str(error.value)


FILES = ["tokenizer_config.json", "special_tokens_map.json", "1_Pooling/config.json"]
FILES += ["2_Dense/config.json", "sentence_bert_config.json", "config_sentence_transformers.json"]


@needs_tokenizers
@pytest.mark.parametrize("file", [*FILES, "config.json"])
def test_an_unknown_setting_that_says_nothing_is_none(folder, file):
    """As "full_tokenizer_file": null of LaBSE, and "init_inputs": [] of older tokenizers."""
    expected = models.SentenceEncoder.from_pretrained(folder).encode(["a cat"]).tolist()
    path = folder / file
    path.write_text(path.read_text() if path.exists() else "{}")
    edit(path, full_tokenizer_file=None, init_inputs=[], new_setting=False)
    if file == "tokenizer_config.json":  # notes of other programs
        edit(path, use_fast=True, vocab_file="vocab.txt")
    assert models.SentenceEncoder.from_pretrained(folder).encode(["a cat"]).tolist() == expected


# Of each file what may be left out, and the value that it then has.
USUAL = {
    "modules.json": {},
    "config.json": {"layer_norm_eps": 1e-12, "pad_token_id": 0, "model_type": "bert",
                    "is_decoder": False, "position_embedding_type": "absolute"},
    "1_Pooling/config.json": {"embedding_dimension": 8, "pooling_mode": "mean",
                              "include_prompt": True},
    "2_Dense/config.json": {"bias": True,
                            "activation_function": "torch.nn.modules.activation.Tanh"},
    "tokenizer_config.json": {"do_lower_case": True, "strip_accents": None,
                              "tokenize_chinese_chars": True, "padding_side": "right",
                              "truncation_side": "right", "model_max_length": 16},
    "sentence_bert_config.json": {"max_seq_length": 16, "do_lower_case": False},
    "config_sentence_transformers.json": {"prompts": {}, "default_prompt_name": None,
                                          "similarity_fn_name": "cosine", "truncate_dim": None},
}  # fmt: skip


@needs_tokenizers
@pytest.mark.parametrize("file", USUAL)
def test_what_a_file_does_not_say_has_its_usual_value(folder, file):
    """And the usual value makes the model that it makes where it is said."""
    prompt = folder / "config_sentence_transformers.json"
    prompt.write_text('{"prompts": {"query": "cat "}, "default_prompt_name": "query"}')
    path, usual = folder / file, USUAL[file]
    base = json.loads(path.read_text()) if path.exists() else {}
    texts = ["CAT runs", "d\u00f6g", "a cat sits far" * 4, ""]

    def made(settings):
        path.write_text(json.dumps(settings))
        model = models.SentenceEncoder.from_pretrained(folder)
        return model, model.encode(texts)

    whole = base if isinstance(base, list) else base | usual
    model, points = made(whole)
    for name in usual:
        other, found = made({key: x for key, x in whole.items() if key != name})
        assert_equal(found, points)
        assert (other.max_length, other.settings) == (model.max_length, model.settings), name
        assert (other.pooling, other.include_prompt) == (model.pooling, model.include_prompt)
        said = {**usual} if file == "config.json" else {}
        assert said | other.encoder.config == said | model.encoder.config


def test_a_dense_of_ones_own_has_the_usual_values():
    """Those of sentence-transformers."""
    dense = sentence_files.Dense(3, 2)
    assert isinstance(dense.activation, nn.Tanh)
    assert dense.linear.bias is not None
    x = ta.randn(4, 3)
    assert_equal(dense(x).numpy(), dense.linear(x).tanh().numpy())
    assert sentence_files.Dense(3, 2, False).linear.bias is None


BROKEN = [None, True, -1, 0, 2.5, 10**18, 1e300, float("nan"), float("inf"), "", "x", [], [[]],
          "a" * 10**5, "\ud800", "\0", [{}], {"content": 3}, {"x": None},
          ["gelu"], {}, {"a": {}}]  # fmt: skip


def error_and_memory(folder, traced):
    """What the load of a folder says, and the memory that it took, if that is asked for."""
    if traced:
        tracemalloc.start()
    try:
        models.SentenceEncoder.from_pretrained(folder)
    except (CheckpointError, FileNotFoundError) as error:
        return str(error), tracemalloc.get_traced_memory()[1] if traced else 0
    finally:
        tracemalloc.stop()
    return None, 0


@needs_tokenizers
def test_any_value_of_any_setting_is_taken_or_refused_with_its_file(folder):
    """No raw error, and no memory beyond that of the files."""
    extra = {"sentence_bert_config.json": ["do_lower_case", "modality_config", "model_args"],
             "config.json": ["pad_token_id", "pruned_heads", "is_decoder"],
             "tokenizer_config.json": ["model_max_length", "strip_accents", "padding_side",
                                       "cls_token",
                                       "added_tokens_decoder", "model_input_names"],
             "config_sentence_transformers.json": ["truncate_dim", "model_type"],
             "2_Dense/config.json": ["module_output_name", "use_residual"]}  # fmt: skip
    tried = 0
    for path in sorted(folder.rglob("*.json")):
        before = path.read_text()
        whole = ["3", "null", "[]", "{", '"x"', "[" * 100_000, '{"a":' * 100_000, "\ufeff{}", "{}"]
        content = json.loads(before)
        names = list(content) if isinstance(content, dict) else []
        names += extra.get(str(path.relative_to(folder)), [])
        texts = whole + [
            json.dumps(content | {name: x}) for name in names for x in BROKEN
        ]  # fmt: skip
        if isinstance(content, list):
            texts += [
                json.dumps([*content[:i], content[i] | {key: x}, *content[i + 1 :]])
                for i in range(len(content)) for key in content[i] for x in BROKEN
            ]  # fmt: skip
        for text in texts:
            path.write_text(text)
            tried += 1
            error, peak = error_and_memory(folder, "1000000000000000000" in text)
            assert error is None or str(folder) in error or "tokenizer.json" in error
            assert peak < 2e7, (path, text[:100])
        path.write_text(before)
    assert tried > 600


# BERT's own names


def first_names(state):
    endings = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    for end, old in endings.items():
        state = {f"{k.removesuffix(end)}{old}" if k.endswith(end) else k: x
                 for k, x in state.items()}  # fmt: skip
    return {f"bert.{name}": x for name, x in state.items()}


def test_the_first_names_are_read(tmp_path):
    heads = {"cls.predictions.bias": np.ones(30), "classifier.bias": np.ones(2),
             "bert.pooler.dense.bias": np.ones(8),
             "bert.embeddings.position_ids": np.arange(16)}  # fmt: skip
    write_folder(tmp_path, first_names(published_state()) | heads)
    found = models.BertEncoder.from_pretrained(tmp_path)(IDS[:1]).numpy()[0]
    assert_close(found, exact_hidden(published_state(), IDS[0]), 1e-6)
    for extra in ("unknown.weight", "bert.unknown", "bert.cls.x"):
        write_folder(tmp_path, first_names(published_state()) | {extra: np.ones(2)})
        with pytest.raises(CheckpointError, match=f"unexpected {extra.removeprefix('bert.')}"):
            models.BertEncoder.from_pretrained(tmp_path)
    both = first_names(published_state()) | published_state()
    with pytest.raises(CheckpointError, match="is there twice, under an old and a new name"):
        models.BertEncoder.from_pretrained(write_folder(tmp_path, both))


def test_other_files_of_weights_say_what_to_do(tmp_path):
    write_folder(tmp_path)
    (tmp_path / "pytorch_model.bin").write_text("{}")
    models.BertEncoder.from_pretrained(tmp_path)  # the other file does not disturb
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"no model\.safetensors, .* pickle.*save_p"):
        models.BertEncoder.from_pretrained(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="call its load_adapter, or that of its encoder"):
        models.BertEncoder.from_pretrained(tmp_path)


def test_a_name_or_a_file_in_place_of_a_folder_says_what_to_give(folder):
    for name in ("google-bert/bert-base-uncased", folder / "config.json"):
        with pytest.raises(FileNotFoundError, match=r"is not a folder\. Nothing is downloaded"):
            models.SentenceEncoder.from_pretrained(name)


# Texts and padding


@needs_tokenizers
def test_texts_may_be_any_iterable_of_strings(folder):
    model = models.SentenceEncoder.from_pretrained(folder)
    expected = model.encode(TEXTS)
    array = np.array(TEXTS)
    for texts in (iter(TEXTS), (t for t in TEXTS), tuple(TEXTS), array, array.astype(object)):
        assert_same(model.encode(texts), expected)
    assert model.tokenize(iter(["a"])) == [[2, 4, 3]]
    for texts, message in {
        "str": ("a cat", "got a str"),
        "bytes": (b"a cat", "got a bytes"),
        "number": (3, "got a int"),
        "none": (None, "got a NoneType"),
        "dict": ({"a": 1}, "got a dict"),
        "set": ({"a"}, "got a set"),
        "second": (["a", b"b"], "for text 1, got bytes"),
        "rows": (np.array([["a"]]), "for text 0, got numpy.ndarray"),
    }.values():
        with pytest.raises(TypeError, match=message):
            model.encode(texts)
    with pytest.raises(ValueError, match=r"text 1 is not UTF-8 at character 4: 'bad .*'; half of"):
        model.encode(["fine", "bad \ud800 text"])


def test_padding_ids_are_padding_without_lengths():
    model = models.BertEncoder(CONFIG).eval()
    sentence = models.SentenceEncoder(model, {}, 16).eval()
    ids = np.concatenate([IDS, np.array([[2, 0, 7, 3], [0, 0, 0, 0]])])  # 0 in the middle is text
    lens = [*LENS, 4, 0]
    for given in (ids, ids.tolist(), ta.tensor(ids)):
        assert_same(model(given).numpy(), model(ids, lens).numpy())
        assert_same(sentence.embed(given).numpy(), sentence.embed(ids, lens).numpy())
    everything = model(ids, [4] * 5).numpy()
    for mask in ({"valid_lens": [4] * 5}, {"mask": np.ones((5, 4), bool)}):
        assert_close(model(ids, **mask).numpy(), everything)
    model.config["pad_token_id"] = None
    assert_same(model(ids).numpy(), everything)
    model.config["pad_token_id"] = 3
    assert_same(model(ids).numpy(), model(ids, [3, 4, 4, 3, 4]).numpy())


def test_lengths_count_and_not_the_ids_behind_them():
    model = models.SentenceEncoder(models.BertEncoder(CONFIG), {}, 16).eval()
    others = np.where(np.arange(IDS.shape[1]) < np.array(LENS)[:, None], IDS, 7)  # no padding ids
    assert_close(model.embed(others, LENS).numpy(), model.embed(IDS, LENS).numpy(), 1e-6)


@pytest.mark.parametrize("pooling", ["mean", "max", "cls", ("max", "cls")])
def test_embed_without_lengths_pools_all_positions(pooling):
    encoder = models.BertEncoder(CONFIG).eval()
    model = models.SentenceEncoder(encoder, {}, 16, pooling, head=[]).eval()
    ids = np.maximum(IDS, 1)
    hidden = encoder(ids).numpy()
    rules = {"mean": hidden.mean(1), "max": hidden.max(1), "cls": hidden[:, 0]}
    modes = [pooling] if isinstance(pooling, str) else pooling
    expected = np.concatenate([rules[mode] for mode in modes], 1)
    assert_close(model.embed(ids).numpy(), expected, 1e-6)
    later = {"mean": hidden[:, 1:].mean(1), "max": hidden[:, 1:].max(1), "cls": hidden[:, 1]}
    expected = np.concatenate([later[mode] for mode in modes], 1)
    assert_close(model.embed(ids, prompt_length=1).numpy(), expected, 1e-6)


@needs_tokenizers
def test_dense_after_dense_and_no_limit(folder, tmp_path):
    parts = modules_of("Transformer", "Pooling", "Dense", "Dense")
    (folder / "modules.json").write_text(json.dumps(parts))
    (folder / "3_Dense").mkdir()
    settings = DENSE | {"in_features": 3, "out_features": 2, "bias": False}
    (folder / "3_Dense" / "config.json").write_text(json.dumps(settings))
    weight = signed(rng_of(3), 2, 3).astype(np.float32)
    ta.save({"linear.weight": ta.tensor(weight)}, folder / "3_Dense" / "model.safetensors")
    (folder / "sentence_bert_config.json").write_text("{}")
    edit(folder / "tokenizer_config.json", model_max_length=10**30)
    model = models.SentenceEncoder.from_pretrained(folder)
    assert model.max_length == 16
    # RoBERTa reads its first text from position pad_token_id + 1 on.
    edit(folder / "config.json", model_type="roberta", pad_token_id=0)
    roberta = models.SentenceEncoder.from_pretrained(folder)
    assert roberta.max_length == 15
    assert np.isfinite(roberta.encode(["cat " * 30])).all()
    first = ta.nn.Sequential(*list(model.head)[:1])
    assert model.encode(["cat " * 30]).shape == (1, 2)
    points = exact_pooling(model.tokenize(TEXTS), ["mean"]).astype(np.float32)
    expected = np.tanh(first(ta.tensor(points)).numpy() @ weight.T)
    assert np.abs(model.encode(TEXTS) - expected).max() < 1e-5


HEADS = {
    "one number": (lambda width: [nn.Linear(width, 1)], 1),
    "wider": (lambda width: [nn.Linear(width, 16)], 16),
    "a stack": (lambda width: [nn.Sequential(nn.Linear(width, 4), nn.Tanh())], 4),
    "dropout behind a Dense": (
        lambda width: [sentence_files.Dense(width, 6, True, "Tanh"), nn.Dropout(0.5)],
        6,
    ),
    "LoRA": (lambda width: [sentence_files.Dense(width, 5, True, "Tanh")], 5),
    "nothing": (lambda width: [], CONFIG["hidden_size"]),
}


@needs_tokenizers
@pytest.mark.parametrize("name", HEADS)
def test_any_module_may_be_a_head_and_gives_points_their_width(folder, name):
    """encode made room for as many numbers as the encoder gives. And it sends nothing else through
    the head than the texts, because a hook or the head itself may count them."""
    of_folder = models.SentenceEncoder.from_pretrained(folder)
    make, width = HEADS[name]
    head = make(CONFIG["hidden_size"])
    made = models.SentenceEncoder(of_folder.encoder, of_folder.files, 8, head=head)
    if name == "LoRA":
        nn.LoRA.insert(made, ["linear"])
    made.train()
    seen: list[int] = []
    hook = made.head.register_forward_hook(lambda _, args, out: seen.append(len(args[0])))
    found = made.encode(TEXTS, batch_size=2)
    hook.remove()
    assert found.shape == (len(TEXTS), width)
    assert sum(seen) == len(TEXTS)
    assert max(seen) == 2
    assert made.encode([]).shape == (0, width)
    assert all(part.training for part in made.modules())
    made.eval()
    for text, point in zip(TEXTS, found, strict=True):
        right = made.embed(made.tokenize([text])).detach().numpy()[0]
        assert_close(point, right, 1e-5)


@needs_tokenizers
def test_include_prompt_is_saved_and_so_are_the_other_settings(folder, tmp_path):
    edit(folder / "1_Pooling" / "config.json", include_prompt=False)
    edit(
        folder / "config_sentence_transformers.json",
        similarity_fn_name="dot",
        truncate_dim=2,
        default_prompt_name="query",
    )
    model = models.SentenceEncoder.from_pretrained(folder)
    model.save_pretrained(tmp_path / "new")
    again = models.SentenceEncoder.from_pretrained(tmp_path / "new")
    assert not again.include_prompt
    assert (
        again.settings
        == model.settings
        == {
            "prompts": {"query": "cat "},
            "default_prompt_name": "query",
            "similarity_fn_name": "dot",
            "truncate_dim": 2,
        }
    )
    assert_same(again.encode(TEXTS), model.encode(TEXTS))


@needs_tokenizers
def test_words_of_a_bert_tokenizer_alone_count(folder):
    """As in transformers: the rest of tokenizer.json is that of a BertTokenizer."""
    path, config = folder / "tokenizer.json", folder / "tokenizer_config.json"
    text = ["Cat a [SEP] cat", "a\x00 cat,dog"]
    expected = models.SentenceEncoder.from_pretrained(folder).tokenize(text)
    assert expected == [[2, 5, 4, 3, 5, 3], [2, 4, 5, 1, 6, 3]]
    words = json.loads(path.read_text())
    for change in ({"normalizer": None}, {"pre_tokenizer": {"type": "WhitespaceSplit"}},
                   {"post_processor": None}, {"added_tokens": []}):  # fmt: skip
        path.write_text(json.dumps(words | change))
        for settings in ("{}", '{"tokenizer_class": "BertTokenizerFast", "cls_token": "[CLS]"}',
                         '{"tokenizer_class": "BertTokenizer"}', '{"tokenizer_class": null}',
                         '{"tokenizer_class": "DistilBertTokenizer"}',
                         '{"tokenizer_class": "DistilBertTokenizerFast"}',
                         '{"sep_token": {"content": "[SEP]", "lstrip": false}}'):  # fmt: skip
            config.write_text(settings)
            assert models.SentenceEncoder.from_pretrained(folder).tokenize(text) == expected
    config.unlink()
    assert models.SentenceEncoder.from_pretrained(folder).tokenize(text) == expected


@needs_tokenizers
@pytest.mark.parametrize("file", ["tokenizer_config.json", "config.json"])
@pytest.mark.parametrize("name", ["TokenizersBackend", "PreTrainedTokenizerFast",
                                  "RobertaTokenizer", "RobertaTokenizerFast",
                                  "XLMRobertaTokenizer", "XLMRobertaTokenizerFast"])  # fmt: skip
def test_another_class_is_tokenizer_json_as_it_stands(folder, file, name):
    """Those of RoBERTa have other special words than BERT, and settings of their own."""
    special = {"unk_token": "<unk>", "mask_token": {"content": "<mask>", "lstrip": True}}
    special |= {"bos_token": "<s>", "eos_token": "</s>"}
    (folder / "special_tokens_map.json").write_text(json.dumps(special))
    own = {"add_prefix_space": False, "trim_offsets": True, "errors": "replace"}
    edit(folder / "tokenizer_config.json", **special, **own, sp_model_kwargs={})
    words = json.loads((folder / "tokenizer.json").read_text())
    words["normalizer"]["lowercase"] = False
    (folder / "tokenizer.json").write_text(json.dumps(words))
    edit(folder / file, tokenizer_class=name)
    model = models.SentenceEncoder.from_pretrained(folder)
    assert model.tokenize(["Cat cat"]) == [[2, 1, 5, 3]]
    edit(folder / "sentence_bert_config.json", do_lower_case=True)
    model = models.SentenceEncoder.from_pretrained(folder)
    assert model.tokenize(["Cat cat"]) == [[2, 5, 5, 3]]
    words["post_processor"] = None
    (folder / "tokenizer.json").write_text(json.dumps(words))
    with pytest.raises(ValueError, match="text 1 has no token"):
        models.SentenceEncoder.from_pretrained(folder).encode(["a", ""])


@needs_tokenizers
@pytest.mark.parametrize("kind", ["roberta", "xlm-roberta"])
@pytest.mark.parametrize("settings", [None, {}, {"tokenizer_class": None}])
def test_a_folder_of_roberta_that_names_no_class_has_the_tokenizer_of_roberta(
    folder, kind, settings
):
    """The first folders of roberta-base and xlm-roberta-base say no class, or have no such file."""
    edit(folder / "config.json", model_type=kind)
    path = folder / "tokenizer_config.json"
    path.unlink() if settings is None else path.write_text(json.dumps(settings))
    words = json.loads((folder / "tokenizer.json").read_text())
    words["normalizer"]["lowercase"] = False  # which the tokenizer of BERT would make True
    (folder / "tokenizer.json").write_text(json.dumps(words))
    assert models.SentenceEncoder.from_pretrained(folder).tokenize(["Cat cat"]) == [[2, 1, 5, 3]]


@needs_tokenizers
def test_added_tokens_and_old_lengths_are_read(folder):
    token = {"content": "[CLS]", "lstrip": False, "normalized": False, "special": True}
    edit(folder / "tokenizer_config.json", added_tokens_decoder={"2": token}, max_len=5)
    (folder / "sentence_bert_config.json").unlink()
    assert models.SentenceEncoder.from_pretrained(folder).max_length == 5
    edit(folder / "tokenizer_config.json", model_max_length=6)
    assert models.SentenceEncoder.from_pretrained(folder).max_length == 6


def test_a_text_within_its_prompt_leaves_nothing(folder):
    """Its mean is 0, and the texts beside it get theirs."""
    model = models.SentenceEncoder.from_pretrained(folder)
    ids = np.array([[2, 7, 8, 9, 3], [2, 3, 0, 0, 0], [2, 7, 3, 0, 0]])
    points = model.embed(ids, [5, 2, 3], 3).numpy()
    alone = model.embed(ids[:1], [5], 3).numpy()
    np.testing.assert_allclose(points[:1], alone, atol=1e-6)
    np.testing.assert_array_equal(points[1:], model.head(ta.zeros(2, 8)).numpy())


@needs_tokenizers
@pytest.mark.parametrize("end", [[], [["[SEP]", 3]]], ids=["nothing", "a special token"])
def test_a_prompt_has_all_its_words_where_nothing_ends_a_text(folder, end):
    """Its last word was taken for [SEP]."""
    edit(folder / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    words = json.loads((folder / "tokenizer.json").read_text())
    parts = [
        {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
    ]
    parts += [{"SpecialToken": {"id": word, "type_id": 0}} for word, _ in end]
    known = {x: {"id": x, "ids": [i], "tokens": [x]} for x, i in [["[CLS]", 2], *end]}
    words["post_processor"] = {
        "type": "TemplateProcessing", "single": parts, "pair": parts, "special_tokens": known
    }  # fmt: skip
    token = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    words["added_tokens"] = [token | {"id": 3, "content": "[SEP]", "special": True}]
    (folder / "tokenizer.json").write_text(json.dumps(words))
    (folder / "modules.json").write_text(json.dumps(modules_of("Transformer", "Pooling")))
    edit(folder / "1_Pooling" / "config.json", include_prompt=False)
    model = models.SentenceEncoder.from_pretrained(folder)
    tokens = model.tokenize(["cat dog runs"])
    assert tokens == [[2, 5, *model.tokenize(["dog runs"])[0][1:]]]
    expected = exact_pooling(tokens, ["mean"], 2)  # [CLS] cat
    assert_close(model.encode(["dog runs"], prompt="cat "), expected, 1e-5)


@needs_tokenizers
@pytest.mark.parametrize(
    "said", [{}, {"id": 2}, {"__type": "AddedToken"}, {"special": True}, {"single_word": False}]
)
def test_a_special_token_may_be_an_object(folder, said):
    edit(folder / "tokenizer_config.json", cls_token={"content": "[CLS]", **said})
    assert models.SentenceEncoder.from_pretrained(folder).max_length


@pytest.mark.parametrize("places", [np.arange(16)[::-1], np.zeros(16), np.arange(1, 17)[None]])
def test_positions_in_another_order_are_refused(folder, places):
    write_folder(folder, published_state() | {"embeddings.position_ids": places})
    with pytest.raises(CheckpointError, match="position_ids must be 0, 1, 2"):
        models.BertEncoder.from_pretrained(folder)


def test_ids_that_begin_with_padding_are_refused(folder):
    model = models.SentenceEncoder.from_pretrained(folder)
    ids = np.array([[2, 7, 3], [0, 2, 3]])
    for call in (model.encoder, model.embed, model.encoder.lengths):
        with pytest.raises(ValueError, match="row 1 of ids begins with pad_token_id 0"):
            call(ids)
    assert model.encoder(ids, valid_lens=[3, 3]).shape == (2, 3, 8)
    assert model.encoder.lengths([[2, 0, 3], [0, 0, 0]]).tolist() == [3, 0]


def test_a_saved_config_says_the_dtype_of_its_tensors(folder, tmp_path):
    """transformers 5 computes in that dtype."""
    edit(folder / "config.json", dtype="float16")
    model = models.BertEncoder.from_pretrained(folder)
    for dtype in ("float32", "float64"):
        model.to(dtype).save_pretrained(tmp_path / "new")
        config = json.loads((tmp_path / "new" / "config.json").read_text())
        assert (config.get("dtype"), config["torch_dtype"]) == (None, dtype)
    assert models.BertEncoder.from_pretrained(tmp_path / "new").word.weight.dtype == np.float64


@needs_tokenizers
def test_accents_and_chinese_characters_are_settings(folder):
    for settings, text, ids in (
        ({}, "d\u00f3g", [6]),
        ({"strip_accents": False}, "d\u00f3g", [1]),
        ({"do_lower_case": False}, "d\u00f3g", [1]),
        ({"do_lower_case": False, "strip_accents": True}, "d\u00f3g", [6]),
        ({}, "\u4e2dcat", [1, 5]),
        ({"tokenize_chinese_chars": False}, "\u4e2dcat", [1]),
        ({}, "cat,dog", [5, 1, 6]),
    ):
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        model = models.SentenceEncoder.from_pretrained(folder)
        assert model.tokenize([text]) == [[2, *ids, 3]]


@pytest.mark.parametrize(
    "name", ["1_Pooling/config.json", "modules.json", "sentence_bert_config.json"]
)
def test_a_link_that_leads_nowhere_is_not_taken_for_no_file(folder, name):
    """As a cache leaves it whose files were deleted."""
    path = folder / name
    path.unlink(missing_ok=True)
    path.symlink_to(folder / "gone.json")
    with pytest.raises(CheckpointError, match=rf"{name} is a link to a file that is not there"):
        models.SentenceEncoder.from_pretrained(folder)


def test_a_pooling_without_its_file_is_refused(folder):
    (folder / "1_Pooling" / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"has no config\.json in 1_Pooling"):
        models.SentenceEncoder.from_pretrained(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "is damaged"), ("[]", "its content must be an object"), ("{}", "model must be")],
)
def test_a_tokenizer_that_says_nothing_is_refused_under_its_own_name(folder, text, message):
    (folder / "tokenizer.json").write_text(text)
    with pytest.raises(CheckpointError, match=rf"tokenizer\.json:? {message}"):
        models.SentenceEncoder.from_pretrained(folder)


@pytest.mark.parametrize(
    "name", ["modules.json", "special_tokens_map.json", "model.safetensors.index.json"]
)
def test_a_damaged_file_is_named_once(folder, name):
    if name == "model.safetensors.index.json":  # which is read in the place of one file of weights
        (folder / "model.safetensors").unlink()
    (folder / name).write_text("{")
    message = re.escape(f"{folder / name} is damaged: ")
    with pytest.raises(CheckpointError, match=f"^{message}"):
        models.SentenceEncoder.from_pretrained(folder)
