"""Folders of sentence encoders and adapters: which files are read, written, removed, or left."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
from common import assert_close, assert_equal, assert_same, rng_of
from test_adapters import changed, learned
from test_causal import ids_of, random_model
from test_models import CONFIG, TEXTS, needs_tokenizers, write_folder, write_tokenizer

import tinyattn as ta
from tinyattn import nn
from tinyattn.errors import CheckpointError
from tinyattn.models import BertEncoder, SentenceEncoder, sentence, sentence_files
from tinyattn.models.adapters import ADAPTER
from tinyattn.models.tokenizer_files import normalized, normalizers

FLAGS = dict.fromkeys(sentence_files.POOLINGS, False)


@pytest.fixture
def folder(tmp_path):
    return write_tokenizer(write_folder(tmp_path / "model"))


def read(path):
    return json.loads(path.read_text())


def edit(path, **changes):
    path.write_text(json.dumps(read(path) | changes))


def encoder(**config):
    return BertEncoder(CONFIG | config).eval()


# Sentence encoders


@pytest.mark.parametrize(
    ("pooling", "said"),
    [
        ("mean", FLAGS | {"pooling_mode_mean_tokens": True}),
        ("cls", FLAGS | {"pooling_mode_cls_token": True}),
        ("max", FLAGS | {"pooling_mode_max_tokens": True}),
        (
            ("cls", "mean"),
            FLAGS | {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True},
        ),
        (("mean", "cls"), {"pooling_mode": ["mean", "cls"]}),
        (("mean", "mean"), {"pooling_mode": ["mean", "mean"]}),
    ],
)
@pytest.mark.parametrize("include", [True, False])
def test_a_pooling_is_saved_as_old_versions_read_it_where_they_can(
    pooling, said, include, tmp_path
):
    model = SentenceEncoder(encoder(), {}, 16, pooling, include_prompt=include)
    model.save_pretrained(tmp_path)
    expected = {"word_embedding_dimension": 8} | said
    expected |= {} if include else {"include_prompt": False}
    assert read(tmp_path / "1_Pooling" / "config.json") == expected
    again = sentence_files.read_pooling(tmp_path / "1_Pooling", 8)
    assert again == (model.pooling, include)


def test_a_model_without_a_tokenizer_is_saved_without_its_files(tmp_path):
    head = [sentence_files.Dense(8, 3, True, "ReLU"), sentence_files.Normalize()]
    head.append(sentence_files.Dense(3, 2, False, "Identity"))
    settings = {"prompts": {"a": "b "}, "truncate_dim": 2}
    model = SentenceEncoder(encoder(), {}, 12, head=head, settings=settings)
    for _ in range(2):  # also into a folder that has all of them
        model.save_pretrained(tmp_path)
    assert sorted(str(x.relative_to(tmp_path)) for x in tmp_path.rglob("*")) == [
        "1_Pooling", "1_Pooling/config.json", "2_Dense", "2_Dense/config.json",
        "2_Dense/model.safetensors", "3_Normalize", "4_Dense", "4_Dense/config.json",
        "4_Dense/model.safetensors", "config.json", "config_sentence_transformers.json",
        "model.safetensors", "modules.json", "sentence_bert_config.json",
    ]  # fmt: skip
    kinds = ("Transformer", "Pooling", "Dense", "Normalize", "Dense")
    assert read(tmp_path / "modules.json") == [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "",
         "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(kinds)
    ]  # fmt: skip
    assert read(tmp_path / "2_Dense" / "config.json") == {
        "in_features": 8, "out_features": 3, "bias": True,
        "activation_function": "torch.nn.modules.activation.ReLU",
    }  # fmt: skip
    assert read(tmp_path / "4_Dense" / "config.json") == {
        "in_features": 3, "out_features": 2, "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity",
    }  # fmt: skip
    assert read(tmp_path / "sentence_bert_config.json") == {"max_seq_length": 12}
    assert read(tmp_path / "config_sentence_transformers.json") == {
        "prompts": {"a": "b "}, "similarity_fn_name": "cosine", "truncate_dim": 2,
    }  # fmt: skip
    modules = sentence_files.read_modules(tmp_path)
    again = sentence_files.read_head(modules[2:], 8)
    points = rng_of(0).normal(size=(3, 8)).astype(np.float32)
    expected, found = ta.tensor(points), ta.tensor(points)
    for part, same in zip(model.head, again, strict=True):
        expected, found = part(expected), same(found)
    assert_same(found.numpy(), expected.numpy())


def test_a_dense_layer_that_says_little_is_a_tanh_with_a_bias(tmp_path):
    for more, bias, kind in (
        ({}, True, nn.Tanh),
        ({"bias": False}, False, nn.Tanh),
        ({"activation_function": "torch.nn.Sigmoid"}, True, nn.Sigmoid),
        ({"activation_function": "torch.nn.modules.linear.Identity"}, True, nn.Identity),
    ):
        dense = sentence_files.Dense(8, 3, bias)
        ta.save(dense.state_dict(), tmp_path / "model.safetensors")
        settings = {"in_features": 8, "out_features": 3} | more
        (tmp_path / "config.json").write_text(json.dumps(settings))
        again = sentence_files.read_dense(tmp_path, 8)
        assert (again.linear.bias is not None) == bias
        assert isinstance(again.activation, kind)
        assert_same(again.linear.weight.numpy(), dense.linear.weight.numpy())
        assert not again.training


def test_points_are_divided_by_their_norms():
    points = rng_of(1).normal(size=(3, 5))
    expected = points / np.linalg.norm(points, axis=1, keepdims=True)
    assert_close(sentence_files.Normalize()(ta.tensor(points)).numpy(), expected)


@needs_tokenizers
def test_a_tokenizer_config_is_written_only_where_there_is_none(folder, tmp_path):
    model = SentenceEncoder.from_pretrained(folder)
    model.save_pretrained(tmp_path / "whole")
    assert read(tmp_path / "whole" / "tokenizer_config.json") == {"do_lower_case": True}
    files = {"tokenizer.json": model.files["tokenizer.json"]}
    alone = SentenceEncoder(model.encoder, files, 16)
    alone.save_pretrained(tmp_path / "whole")  # where there is another one
    expected = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]"}
    assert read(tmp_path / "whole" / "tokenizer_config.json") == expected
    again = SentenceEncoder.from_pretrained(tmp_path / "whole")
    assert again.tokenize(TEXTS) == alone.tokenize(TEXTS)


@needs_tokenizers
def test_files_of_another_tokenizer_are_removed(folder, tmp_path):
    model = SentenceEncoder.from_pretrained(folder)
    (tmp_path / "special_tokens_map.json").write_text('{"unk_token": "?"}')
    (tmp_path / "vocab.txt").write_text("other")
    model.save_pretrained(tmp_path)
    assert not (tmp_path / "special_tokens_map.json").exists()
    assert not (tmp_path / "vocab.txt").exists()
    assert_same(SentenceEncoder.from_pretrained(tmp_path).encode(TEXTS), model.encode(TEXTS))


@needs_tokenizers
def test_a_folder_needs_tokenizer_json_alone_of_its_tokenizer(folder):
    (folder / "tokenizer_config.json").unlink()
    (folder / "sentence_bert_config.json").unlink()
    model = SentenceEncoder.from_pretrained(folder)
    assert list(model.files) == ["tokenizer.json"]
    assert model.max_length == 16  # the positions of the encoder
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no tokenizer\.json: write it with transf"):
        SentenceEncoder.from_pretrained(folder)


@needs_tokenizers
@pytest.mark.parametrize(
    ("name", "said", "length"),
    [
        ("model_max_length", 2, 2),
        ("model_max_length", 5.0, 5),
        ("model_max_length", 1e30, 16),
        ("model_max_length", 17, 16),
        ("model_max_length", None, 16),
        ("max_len", 7, 7),
        ("model_max_length", 1, "model_max_length must be an integer >= 2, got 1$"),
        ("model_max_length", 5.5, "model_max_length must be an integer >= 2, got 5.5$"),
        ("model_max_length", "5", "model_max_length must be an integer >= 2, got '5'$"),
    ],
)
def test_a_tokenizer_says_how_long_texts_are(folder, name, said, length):
    (folder / "sentence_bert_config.json").unlink()
    edit(folder / "tokenizer_config.json", **{name: said})
    if isinstance(length, str):
        with pytest.raises(CheckpointError, match=rf"tokenizer_config\.json: {length}"):
            SentenceEncoder.from_pretrained(folder)
        return
    assert SentenceEncoder.from_pretrained(folder).max_length == length


@needs_tokenizers
@pytest.mark.parametrize(
    ("said", "length"),
    [
        (2, 2),
        (16, 16),
        (99, 16),
        (None, 16),
        (1, "max_seq_length must be an integer >= 2, got 1$"),
        ("9", "max_seq_length must be an integer >= 2, got '9'$"),
    ],
)
def test_the_settings_of_the_encoder_say_how_long_texts_are(folder, said, length):
    edit(folder / "sentence_bert_config.json", max_seq_length=said)
    if isinstance(length, str):
        with pytest.raises(CheckpointError, match=rf"sentence_bert_config\.json: {length}"):
            SentenceEncoder.from_pretrained(folder)
        return
    assert SentenceEncoder.from_pretrained(folder).max_length == length


def test_a_length_beyond_the_positions_is_refused():
    SentenceEncoder(encoder(), {}, 16)
    SentenceEncoder(encoder(), {}, 2)
    with pytest.raises(ValueError, match=r"^max_length 17 is more than the encoder's 16 positions"):
        SentenceEncoder(encoder(), {}, 17)
    with pytest.raises(ValueError, match=r"^max_length must be an integer >= 2, got 1"):
        SentenceEncoder(encoder(), {}, 1)


@needs_tokenizers
def test_texts_of_similar_lengths_are_computed_together(folder, monkeypatch):
    model, shapes = SentenceEncoder.from_pretrained(folder), []
    texts = ["a", "a cat sits", "cat", "a dog runs", ""]
    embed = model.embed
    expected = np.concatenate([model.encode([text]) for text in texts])

    def noted(ids, lengths, skipped):
        shapes.append((ids.shape, lengths, skipped))
        return embed(ids, lengths, skipped)

    monkeypatch.setattr(model, "embed", noted)
    assert_close(model.encode(texts, batch_size=2), expected, 1e-6)
    assert shapes == [((2, 5), [5, 5], 0), ((2, 3), [3, 3], 0), ((1, 2), [2], 0)]
    with pytest.raises(ValueError, match=r"^batch_size must be an integer >= 1, got 0"):
        model.encode(texts, batch_size=0)


@needs_tokenizers
def test_a_tokenizer_is_read_once_for_each_length(folder, monkeypatch):
    model, contents = SentenceEncoder.from_pretrained(folder), []
    make = sentence.read_tokenizer_json
    monkeypatch.setattr(
        sentence,
        "read_tokenizer_json",
        lambda content: (contents.append(content), make(content))[1],
    )
    for _ in range(3):
        model.tokenize(TEXTS)
    assert len(contents) == 1
    model.max_length = 4
    assert max(map(len, model.tokenize(TEXTS))) == 4
    assert len(contents) == 2


# The files of tokenizers


@needs_tokenizers
def test_a_tokenizer_that_is_taken_as_it_stands_keeps_its_bytes(folder):
    content = (folder / "tokenizer.json").read_bytes()
    assert b"\n" in content  # not as json.dumps writes it
    words = json.loads(content)
    config = {"tokenizer_class": "PreTrainedTokenizerFast"}
    assert normalized(content, copy.deepcopy(words), config, False) == content
    lower = json.loads(normalized(content, copy.deepcopy(words), config, True))
    steps = [{"type": "Lowercase"}, words["normalizer"]]
    assert lower == words | {"normalizer": {"type": "Sequence", "normalizers": steps}}
    again = json.dumps(lower).encode()
    assert normalized(again, copy.deepcopy(lower), config, True) == again


@needs_tokenizers
def test_a_bert_tokenizer_is_made_of_its_words(folder):
    content = (folder / "tokenizer.json").read_bytes()
    words = json.loads(content) | {"normalizer": None, "pre_tokenizer": None, "added_tokens": []}
    config = {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False}
    made = json.loads(normalized(content, copy.deepcopy(words), config, False))
    assert made["normalizer"] == {
        "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": False,
        "strip_accents": True, "lowercase": False,
    }  # fmt: skip
    assert made["pre_tokenizer"] == {"type": "BertPreTokenizer"}
    ends = {"sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
    assert made["post_processor"] == {"type": "BertProcessing"} | ends
    assert made["added_tokens"] == [
        {"id": i, "content": word, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for i, word in enumerate(("[PAD]", "[UNK]", "[CLS]", "[SEP]"))
    ]  # fmt: skip
    made = json.loads(normalized(content, copy.deepcopy(words), {}, False))
    assert made["normalizer"]["lowercase"] is True
    assert made["normalizer"]["handle_chinese_chars"] is True
    assert made["normalizer"]["strip_accents"] is None


@needs_tokenizers
@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"type": "BPE"}, "model.type must be 'WordPiece', got 'BPE'"),
        ({"unk_token": "?"}, r"model.unk_token must be '\[UNK\]', got '\?'"),
        ({"continuing_subword_prefix": "@"}, "model.continuing_subword_prefix must be '##', got"),
        ({"max_input_chars_per_word": 9}, "model.max_input_chars_per_word must be 100, got 9"),
        ({"vocab": {"[UNK]": 0, "[SEP]": 1}}, r"must have the word \[CLS\], the cls_token"),
        ({"vocab": {"[UNK]": 0, "[CLS]": 1}}, r"must have the word \[SEP\], the sep_token"),
        ({"vocab": {"[SEP]": 0, "[CLS]": 1}}, r"must have the word \[UNK\], the unk_token"),
        ({"vocab": []}, r"must have the word \[UNK\], the unk_token"),
    ],
)
def test_words_that_make_no_bert_tokenizer_are_refused(folder, model, said):
    content = (folder / "tokenizer.json").read_bytes()
    words = json.loads(content)
    words["model"] |= model
    with pytest.raises(ValueError, match=rf"^tokenizer\.json:? {said}"):
        normalized(content, words, {}, False)


@needs_tokenizers
@pytest.mark.parametrize(
    ("added", "said"),
    [
        ({"9": {"content": "x"}}, r"^added_tokens_decoder has .*'x'} for id 9, and .* has none$"),
        ({"4": {"content": "a", "lstrip": True}}, r"for id 4, and tokenizer\.json has \{'id': 4"),
        ({"4": 3}, "^token 4 of added_tokens_decoder must be an object, got 3"),
        ([3], "^added_tokens_decoder must be an object"),
    ],
)
def test_added_tokens_of_both_files_are_alike(folder, added, said):
    content = (folder / "tokenizer.json").read_bytes()
    token = {"id": 4, "content": "a", "lstrip": False}
    words, kind = json.loads(content) | {"added_tokens": [token]}, "PreTrainedTokenizerFast"
    same = {"tokenizer_class": kind, "added_tokens_decoder": {"4": {"content": "a"}}}
    normalized(content, copy.deepcopy(words), same, False)
    with pytest.raises(ValueError, match=said):
        normalized(content, words, same | {"added_tokens_decoder": added}, False)


@needs_tokenizers
@pytest.mark.parametrize(("part", "side"), [("padding", "padding_side"),
                                            ("truncation", "truncation_side")])  # fmt: skip
def test_texts_are_padded_and_cut_at_the_right(folder, part, side):
    content = (folder / "tokenizer.json").read_bytes()
    words = json.loads(content)
    for given in (None, {"direction": "Right"}, {}, 3, {"direction": "Left"}):
        for config in ({side: "right"}, {side: "RIGHT"}):
            normalized(content, copy.deepcopy(words | {part: given}), config, False)
    for given, config in (
        ({"direction": "Left"}, {}),
        (None, {side: "left"}),
        ({"direction": "Right"}, {side: "left"}),
    ):
        with pytest.raises(ValueError, match=f"^{side} must be 'right', got '[Ll]eft'"):
            normalized(content, copy.deepcopy(words | {part: given}), config, False)


@pytest.mark.parametrize(
    ("normalizer", "steps"),
    [
        (None, []),
        (3, []),
        ({"type": "Lowercase"}, [{"type": "Lowercase"}]),
        ({"type": "Sequence", "normalizers": [{"type": "NFC"}, 3]}, [{"type": "NFC"}]),
        ({"type": "Sequence", "normalizers": 3}, []),
    ],
)
def test_steps_before_words_are_one_or_several(normalizer, steps):
    assert normalizers({"normalizer": normalizer}) == steps
    assert normalizers({}) == normalizers([3]) == normalizers(None) == []


# Adapters


def test_an_adapter_that_waits_keeps_what_learns(tmp_path):
    learned(random_model("llama")).save_adapter(tmp_path)
    model, ids = random_model("llama"), ids_of(1, 4)
    model.load_adapter(tmp_path, "a")
    found = model(ids).numpy()
    model.load_adapter(tmp_path, "b")
    for name in ("a", "b"):
        model.set_adapter(name)
        learns = {x for x, p in model.named_parameters() if p.requires_grad}
        assert learns
        assert all(x.endswith((".A", ".B")) for x in learns)
        assert_equal(model(ids).numpy(), found)


def test_an_adapter_of_the_same_name_is_replaced(tmp_path):
    ids, rights = ids_of(1, 4), []
    for seed in (1, 2):
        model = learned(random_model("llama"), ("W_q", "w_1")[:seed], seed=seed)
        model.save_adapter(tmp_path / str(seed))
        rights.append(model(ids).numpy())
    model = random_model("llama")
    for i in (0, 1, 0):
        model.load_adapter(tmp_path / str(i + 1))
        assert model.adapters.active == "default"
        assert_close(model(ids).numpy(), rights[i], 1e-12)
        assert list(model.adapters.loras) == ["default"]


@pytest.mark.parametrize("alpha", [0, 0.5, 0.75])
def test_a_scale_may_be_small(alpha, tmp_path):
    learned(random_model("llama"), rank=3).save_adapter(tmp_path)
    model = random_model("llama")
    model.load_adapter(changed(tmp_path, lora_alpha=alpha))
    assert {x.scale for x in model.modules() if isinstance(x, nn.LoRA)} == {alpha / 3}
    with pytest.raises(CheckpointError, match=r"json: lora_alpha must be a number >= 0, got -1"):
        random_model("llama").load_adapter(changed(tmp_path, lora_alpha=-1))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"lora_dropout": 1.5}, "lora_dropout lies between 0 and 1, got 1.5"),
        ({"use_rslora": 1}, "use_rslora must be true or false, got 1"),
        ({"r": 0}, "r must be an integer >= 1, got 0"),
        ({"rank_pattern": 3}, "rank_pattern must be an object, got 3"),
        ({"alpha_pattern": 3}, "alpha_pattern must be an object, got 3"),
        ({"alpha_pattern": {"q_proj": "a"}}, "lora_alpha must be a number >= 0, got 'a'"),
        ({"use_dora": True}, "use_dora True is not read here: make a whole model"),
        ({"bias": "all"}, "bias 'all' is not read here"),
    ],
)
def test_a_wrong_setting_of_an_adapter_is_named(wrong, said, tmp_path):
    learned(random_model("llama")).save_adapter(tmp_path)
    with pytest.raises(CheckpointError, match=rf"adapter_config\.json: {said}"):
        random_model("llama").load_adapter(changed(tmp_path, **wrong))


def test_an_adapter_may_name_matrices_of_which_its_file_has_none(tmp_path):
    learned(random_model("llama"), ("W_q",)).save_adapter(tmp_path)
    model, ids = random_model("llama"), ids_of(1, 4)
    model.load_adapter(tmp_path)
    again = random_model("llama")
    again.load_adapter(changed(tmp_path, target_modules=["q_proj", "v_proj", "lm_head"]))
    assert_equal(again(ids).numpy(), model(ids).numpy())
    state = ta.load(tmp_path / ADAPTER)
    ta.save({k: x for k, x in state.items() if ".layers.0." in k}, tmp_path / ADAPTER)
    named = r"target_modules name model\.layers\.1\.self_attn\.q_proj, and"
    with pytest.raises(CheckpointError, match=named):
        random_model("llama").load_adapter(tmp_path)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_the_settings_of_a_saved_adapter_are_those_of_its_layers(kind, tmp_path):
    model = learned(random_model(kind), ("W_o", "w_2"), rank=3, scale=0.5, dropout=0.25)
    model.save_adapter(tmp_path)
    names = {"llama": "model.layers.{}.self_attn.o_proj model.layers.{}.mlp.down_proj",
             "gpt2": "transformer.h.{}.attn.c_proj transformer.h.{}.mlp.c_proj"}[kind]  # fmt: skip
    assert read(tmp_path / "adapter_config.json") == {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": None, "r": 3,
        "lora_alpha": 1.5, "rank_pattern": {}, "alpha_pattern": {}, "lora_dropout": 0.25,
        "target_modules": " ".join(names.format(i, i) for i in range(2)).split(),
        "fan_in_fan_out": kind == "gpt2", "bias": "none", "inference_mode": True,
    }  # fmt: skip
    again = random_model(kind)
    again.load_adapter(tmp_path)
    loras = [x for x in again.modules() if isinstance(x, nn.LoRA)]
    assert {(len(x.A), x.scale, x.dropout.p) for x in loras} == {(3, 0.5, 0.25)}
    assert not again.training
    assert not any(x.training for x in loras)
