"""Folders that sentence-transformers writes are read, and ours are read by it, with equal points.

The truth is sentence-transformers itself: `pip install sentence-transformers==6.2.0`. Models are
small and random. test_sentence_files.py has the same settings without that package.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from common import rng_of, signed

from tinyattn import models
from tinyattn.errors import CheckpointError

pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import BertConfig, BertForPreTraining, BertModel, BertTokenizerFast

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a cat dog runs sits far ##ther query : A Cat é e"
TEXTS = ["a cat sits", "", "A Cat runs far", "a dog é", "farther " * 12, "x : cat", "Cat cat A"]
SIZES = {
    "vocab_size": len(WORDS.split()),
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 24,
}


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A folder of transformers, with a random model and a tokenizer."""
    folder = tmp_path_factory.mktemp("bert")
    (folder / "vocab.txt").write_text(WORDS.replace(" ", "\n"), "utf-8")
    torch.manual_seed(0)
    model = BertModel(BertConfig(**SIZES))
    for i, parameter in enumerate(model.parameters()):  # not 0 and 1, which hide faults
        noise = signed(rng_of(i), *parameter.shape).astype(np.float32)
        parameter.data += 0.3 * torch.from_numpy(noise)
    model.save_pretrained(folder)
    BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


def edited(path, **changes):
    path.parent.mkdir(exist_ok=True)
    before = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(before | changes))


def assert_equal_points(theirs, ours, texts=TEXTS, **options):
    expected, found = theirs.encode(texts, **options), ours.encode(texts, **options)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() < 2e-6 * max(1, np.abs(expected).max())


MODULES = {
    "mean": [Pooling(8, "mean")],
    "cls": [Pooling(8, "cls")],
    "max": [Pooling(8, "max"), Normalize()],
    "two": [Pooling(8, ("mean", "cls"))],
    "three": [Pooling(8, ("cls", "max", "mean")), Normalize()],
    "normalize": [Pooling(8, "mean"), Normalize()],
    "tanh": [Pooling(8, "mean"), Dense(8, 5)],
    "dense twice": [
        Pooling(8, "mean"),
        Normalize(),
        Dense(8, 5, bias=False, activation_function=torch.nn.Identity()),
        Dense(5, 6, activation_function=torch.nn.ReLU()),
        Normalize(),
    ],
    "gelu": [Pooling(8, "cls"), Dense(8, 4, activation_function=torch.nn.GELU())],
    "silu": [Pooling(8, "cls"), Dense(8, 4, activation_function=torch.nn.SiLU())],
    "sigmoid": [Pooling(8, "cls"), Dense(8, 4, activation_function=torch.nn.Sigmoid())],
}


@pytest.mark.parametrize("name", MODULES)
def test_points_are_equal_in_both_directions(bert, tmp_path, name):
    theirs = SentenceTransformer(modules=[Transformer(str(bert)), *MODULES[name]])
    theirs.save(str(tmp_path / "theirs"))
    ours = models.SentenceEncoder.from_pretrained(tmp_path / "theirs")
    assert_equal_points(theirs, ours)
    ours.save_pretrained(tmp_path / "ours")
    assert_equal_points(SentenceTransformer(str(tmp_path / "ours")), ours)
    again = models.SentenceEncoder.from_pretrained(tmp_path / "ours")
    assert np.array_equal(again.encode(TEXTS), ours.encode(TEXTS))


TOKENIZERS = {
    "max_seq_length": ("sentence_bert_config.json", {"max_seq_length": 5}),
    "the longest": ("sentence_bert_config.json", {"max_seq_length": 24}),
    "none": ("sentence_bert_config.json", {"max_seq_length": None}),
    "do_lower_case": ("sentence_bert_config.json", {"do_lower_case": True}),
    "model_max_length": ("tokenizer_config.json", {"model_max_length": 6}),
    "no limit": ("tokenizer_config.json", {"model_max_length": 10**30}),
    "cased": ("tokenizer_config.json", {"do_lower_case": False}),
    "accents": ("tokenizer_config.json", {"strip_accents": False}),
    "no accents": ("tokenizer_config.json", {"do_lower_case": False, "strip_accents": True}),
    "both": ("tokenizer_config.json", {"model_max_length": 6, "do_lower_case": False}),
    "eps": ("config.json", {"layer_norm_eps": 0.1}),
    "gelu_new": ("config.json", {"hidden_act": "gelu_new"}),
    "gelu_fast": ("config.json", {"hidden_act": "gelu_fast"}),
    "gelu_accurate": ("config.json", {"hidden_act": "gelu_accurate"}),
    "gelu_python": ("config.json", {"hidden_act": "gelu_python"}),
    "relu": ("config.json", {"hidden_act": "relu"}),
    "old pooling": (
        "1_Pooling/config.json",
        {"pooling_mode": "max", "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True},
    ),
    "truncate_dim": ("config_sentence_transformers.json", {"truncate_dim": 3}),
    "a large truncate_dim": ("config_sentence_transformers.json", {"truncate_dim": 99}),
    "dot": ("config_sentence_transformers.json", {"similarity_fn_name": "dot"}),
    "a prompt": (
        "config_sentence_transformers.json",
        {"prompts": {"query": "query : "}, "default_prompt_name": "query"},
    ),
}


@pytest.mark.parametrize(
    ("name", "cased"),
    [*((name, False) for name in TOKENIZERS), ("do_lower_case", True), ("accents", True)],
)
def test_settings_of_files_change_the_points_as_there(bert, tmp_path, name, cased):
    if cased:
        edited(bert / "tokenizer_config.json", do_lower_case=False)
    try:
        modules = [Transformer(str(bert)), Pooling(8, "mean"), Normalize()]
    finally:
        edited(bert / "tokenizer_config.json", do_lower_case=True)
    SentenceTransformer(modules=modules).save(str(tmp_path / "theirs"))
    file, changes = TOKENIZERS[name]
    edited(tmp_path / "theirs" / file, **changes)
    theirs = SentenceTransformer(str(tmp_path / "theirs"))
    ours = models.SentenceEncoder.from_pretrained(tmp_path / "theirs")
    assert ours.max_length == theirs.max_seq_length
    assert ours.settings["similarity_fn_name"] == theirs.similarity_fn_name
    assert_equal_points(theirs, ours)
    ours.save_pretrained(tmp_path / "ours")
    assert_equal_points(SentenceTransformer(str(tmp_path / "ours")), ours)


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
@pytest.mark.parametrize("include_prompt", [True, False])
def test_prompts_are_those_of_sentence_transformers(bert, tmp_path, pooling, include_prompt):
    theirs = SentenceTransformer(
        modules=[Transformer(str(bert)), Pooling(8, pooling, include_prompt=include_prompt)],
        prompts={"query": "query : ", "far": "far"},
        default_prompt_name="far",
    )
    theirs.save(str(tmp_path / "theirs"))
    ours = models.SentenceEncoder.from_pretrained(tmp_path / "theirs")
    for options in ({}, {"prompt_name": "query"}, {"prompt": "a cat runs "}, {"prompt": ""}):
        assert_equal_points(theirs, ours, **options)
    ours.save_pretrained(tmp_path / "ours")
    assert_equal_points(SentenceTransformer(str(tmp_path / "ours")), ours)


def test_a_folder_whose_transformer_lies_deeper(bert, tmp_path):
    theirs = SentenceTransformer(modules=[Transformer(str(bert)), Pooling(8, "max"), Dense(8, 3)])
    theirs.save(str(tmp_path))
    (tmp_path / "0_Transformer").mkdir()
    of_all = ("modules.json", "README.md", "config_sentence_transformers.json")
    for path in list(tmp_path.iterdir()):
        if path.is_file() and path.name not in of_all:
            path.rename(tmp_path / "0_Transformer" / path.name)
    modules = json.loads((tmp_path / "modules.json").read_text())
    modules[0]["path"], modules[1]["path"] = "0_Transformer", "pool"
    (tmp_path / "1_Pooling").rename(tmp_path / "pool")
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    ours = models.SentenceEncoder.from_pretrained(tmp_path)
    assert_equal_points(SentenceTransformer(str(tmp_path)), ours)


def test_poolings_and_modules_that_are_not_here_are_refused(bert, tmp_path):
    for mode in ("mean_sqrt_len_tokens", "weightedmean", "lasttoken", ("mean", "lasttoken")):
        theirs = SentenceTransformer(modules=[Transformer(str(bert)), Pooling(8, mode)])
        theirs.save(str(tmp_path / "theirs"))
        with pytest.raises(CheckpointError, match=r"1_Pooling/config\.json: pooling_mode must be"):
            models.SentenceEncoder.from_pretrained(tmp_path / "theirs")
    parts = [Transformer(str(bert)), Pooling(8, "mean"), Dense(8, 8, use_residual=True)]
    SentenceTransformer(modules=parts).save(str(tmp_path / "theirs"))
    with pytest.raises(CheckpointError, match=r"2_Dense/config\.json: use_residual must be False"):
        models.SentenceEncoder.from_pretrained(tmp_path / "theirs")
    for side in ("padding_side", "truncation_side"):
        SentenceTransformer(modules=parts[:2]).save(str(tmp_path / side))
        edited(tmp_path / side / "tokenizer_config.json", **{side: "left"})
        with pytest.raises(CheckpointError, match=f"{side} must be 'right', got 'left'"):
            models.SentenceEncoder.from_pretrained(tmp_path / side)


def test_a_file_of_pretraining_gives_the_hidden_states(bert, tmp_path):
    """With "bert." before the names, and with heads; gamma and beta are in older files."""
    model = BertForPreTraining(BertConfig(**SIZES)).eval()
    model.save_pretrained(tmp_path)
    ids = torch.tensor([[2, 7, 8, 3]])
    ours = models.BertEncoder.from_pretrained(tmp_path)
    expected = model.bert(ids).last_hidden_state.detach().numpy()
    assert np.abs(ours(ids.numpy()).numpy() - expected).max() < 1e-5


def test_padding_without_lengths_is_that_of_an_attention_mask(bert):
    ids = np.array([[2, 5, 6, 3], [2, 5, 3, 0], [2, 3, 0, 0]])
    model = BertModel.from_pretrained(bert).eval()
    keep = torch.tensor(ids != 0)
    expected = model(torch.tensor(ids), attention_mask=keep).last_hidden_state.detach().numpy()
    found = models.BertEncoder.from_pretrained(bert)(ids).numpy()
    assert np.abs(found - expected * keep.numpy()[..., None]).max() < 1e-5


# Of tokenizer_config.json, and of tokenizer.json by its path.
TOKENS = [
    ({"do_lower_case": None}, {"normalizer.lowercase": False}),
    ({"strip_accents": None}, {"normalizer.strip_accents": False}),
    ({}, {"normalizer.clean_text": False}),
    ({"tokenize_chinese_chars": False}, {}),
    ({}, {"normalizer": None}),
    ({}, {"pre_tokenizer": {"type": "Whitespace"}}),
    ({}, {"post_processor": None}),
    ({}, {"added_tokens": []}),
    ({"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": False}, {}),
    ({"tokenizer_class": "DistilBertTokenizer"}, {}),
    ({"tokenizer_class": "DistilBertTokenizerFast", "do_lower_case": False}, {"normalizer": None}),
    ({"tokenizer_class": "TokenizersBackend"}, {"normalizer.lowercase": False}),
    ({"tokenizer_class": "TokenizersBackend"}, {"pre_tokenizer": {"type": "Whitespace"}}),
    ({"model_max_length": None, "max_len": 6}, {}),
]
MORE = [*TEXTS, "a [SEP] cat [MASK]", "a\x00 \ufffdcat", "cat\u4e2d\u56fd", "cat:dog a"]


@pytest.mark.parametrize(("config", "changes"), TOKENS)
def test_tokens_are_those_of_transformers(bert, tmp_path, config, changes):
    SentenceTransformer(modules=[Transformer(str(bert)), Pooling(8, "mean")]).save(str(tmp_path))
    path = tmp_path / "tokenizer_config.json"
    settings = json.loads(path.read_text()) | config
    path.write_text(json.dumps({k: x for k, x in settings.items() if x is not None}))
    words = json.loads((tmp_path / "tokenizer.json").read_text())
    for name, value in changes.items():
        *places, last = name.split(".")
        owner = words
        for place in places:
            owner = owner[place]
        owner[last] = value
    (tmp_path / "tokenizer.json").write_text(json.dumps(words))
    ours = models.SentenceEncoder.from_pretrained(tmp_path)
    assert_equal_points(SentenceTransformer(str(tmp_path)), ours, MORE)
    ours.save_pretrained(tmp_path / "ours")
    assert_equal_points(SentenceTransformer(str(tmp_path / "ours")), ours, MORE)


def test_half_precision_is_saved_as_what_it_is_here(bert, tmp_path):
    """In a folder of float16 the dtype is float16 there, and ours are float32."""
    theirs = SentenceTransformer(modules=[Transformer(str(bert)), Pooling(8, "mean")])
    theirs.half().save(str(tmp_path / "theirs"))
    ours = models.SentenceEncoder.from_pretrained(tmp_path / "theirs")
    ours.save_pretrained(tmp_path / "ours")
    assert_equal_points(SentenceTransformer(str(tmp_path / "ours")), ours)
