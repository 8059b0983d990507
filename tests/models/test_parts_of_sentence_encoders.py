"""Sentence encoders part by part: null, sources of one setting, folders, prompts and poolings."""

from __future__ import annotations

import hashlib
import json
from collections import ChainMap
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from common import assert_close, assert_same, rng_of, signed
from test_models import CONFIG, TEXTS, needs_tokenizers, write_folder, write_tokenizer
from test_sentence_files import edit, exact_pooling, modules_of

import tinyattn as ta
from tinyattn import nn
from tinyattn.errors import CheckpointError
from tinyattn.models import BertEncoder, SentenceEncoder, sentence_files, tokenizer_files
from tinyattn.models.sentence import pooled

OLD = "sentence_transformers.models."
AS_IT_STANDS = "PreTrainedTokenizerFast"
FIRST = [{"type": OLD + "Transformer"}, {"type": OLD + "Pooling"}]


@pytest.fixture
def folder(tmp_path):
    return write_tokenizer(write_folder(tmp_path / "model"))


def read(path):
    return json.loads(path.read_text())


def encoder(**config):
    return BertEncoder(CONFIG | config).eval()


def with_tokenizer(folder, **changes):
    """The model of a folder whose tokenizer.json is taken as it stands, with these changes."""
    edit(folder / "tokenizer_config.json", tokenizer_class=AS_IT_STANDS)
    edit(folder / "tokenizer.json", **changes)
    (folder / "modules.json").write_text(json.dumps(modules_of("Transformer", "Pooling")))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text('{"include_prompt": false}')
    return SentenceEncoder.from_pretrained(folder)


def added(id, content, special=True):
    token = dict.fromkeys(tokenizer_files.OPTIONS, False)
    return token | {"id": id, "content": content, "special": special}


# null, and which of two sources counts

# Of each file its settings, and those of them for which null is not the same as nothing.
NULLS = {
    "tokenizer_config.json": (
        tokenizer_files.KNOWN,
        {"do_lower_case", "tokenize_chinese_chars", "do_basic_tokenize", "split_special_tokens",
         "padding_side", "truncation_side", *tokenizer_files.SPECIAL},
    ),
    "sentence_bert_config.json": (
        sentence_files.TRANSFORMER,
        {"do_lower_case", "modality_config", "transformer_task", "module_output_name",
         "model_args", "model_kwargs", "config_args", "config_kwargs", "tokenizer_args",
         "processor_kwargs"},
    ),
    "tokenizer.json": (
        ("version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
         "post_processor", "decoder", "model"),
        {"model"},
    ),
}  # fmt: skip


@needs_tokenizers
@pytest.mark.parametrize("file", NULLS)
def test_null_is_nothing_or_refused(file, folder):
    names, refused = NULLS[file]
    assert set(names) >= refused
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    path, content = folder / file, read(folder / file)

    def made(settings):
        path.write_text(json.dumps(settings))
        files, length = sentence_files.read_tokenizer(folder, CONFIG, 16)
        return json.loads(files["tokenizer.json"]), length

    usual = made(content)
    for name in names:
        said = content | {name: None}
        if name in refused:
            with pytest.raises(CheckpointError, match=f"{name} must be "):
                made(said)
        else:
            rest = {key: x for key, x in content.items() if key != name}
            words, length = usual if rest == content else made(rest)
            same, as_long = made(said)
            if file == "tokenizer.json":
                words, same = ({name: None} | x for x in (words, same))
            assert (same, as_long) == (words, length), name


def test_null_in_the_settings_of_a_model_is_nothing_and_an_empty_name_is_not():
    for name in ("prompts", "default_prompt_name", "similarity_fn_name", "truncate_dim"):
        assert sentence_files.checked_settings({name: None}) == sentence_files.checked_settings({})
    for name in ("default_prompt_name", "similarity_fn_name"):
        with pytest.raises(ValueError, match=f"^{name} must be .*, got ''$"):
            sentence_files.checked_settings({name: ""})
    named = {"prompts": {"": "x "}, "default_prompt_name": ""}
    assert sentence_files.checked_settings(named).items() >= named.items()


@needs_tokenizers
@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.parametrize("beside", [None, "BertTokenizer", AS_IT_STANDS])
@pytest.mark.parametrize("own", [None, "BertTokenizer", AS_IT_STANDS])
def test_a_class_counts_in_this_order(own, beside, family, folder):
    """That of tokenizer_config.json, then that of config.json, then the usual one."""
    words = read(folder / "tokenizer.json")
    words["normalizer"]["lowercase"] = False  # which the tokenizer of BERT makes True
    (folder / "tokenizer.json").write_text(json.dumps(words))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": own}))
    config = CONFIG | {"tokenizer_class": beside, "model_type": family}
    files, _ = sentence_files.read_tokenizer(folder, config, 16)
    kind = own or beside or ("BertTokenizer" if family == "bert" else "RobertaTokenizer")
    lower = json.loads(files["tokenizer.json"])["normalizer"]["lowercase"]
    assert lower == (kind == "BertTokenizer")


@needs_tokenizers
def test_a_length_counts_in_this_order(folder):
    edit(folder / "tokenizer_config.json", model_max_length=6, max_len=5)
    for length in (9, 4, None):
        (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": length}))
        assert sentence_files.read_tokenizer(folder, CONFIG, 16)[1] == (length or 6)


@needs_tokenizers
@pytest.mark.parametrize("kind", ["albert", "camembert", "distilbert", "mpnet", "roberta",
                                  "xlm-roberta", "xlnet"])  # fmt: skip
def test_old_versions_name_a_file_after_the_kind_of_the_model(kind, folder):
    (folder / f"sentence_{kind}_config.json").write_text('{"max_seq_length": 7}')
    assert sentence_files.read_tokenizer(folder, CONFIG, 16)[1] == 9  # sentence_bert_config.json
    (folder / "sentence_bert_config.json").unlink()
    assert sentence_files.read_tokenizer(folder, CONFIG, 16)[1] == 7


# Folders


def test_a_folder_may_be_named_in_any_way(tmp_path, monkeypatch):
    (tmp_path / "model" / "p").mkdir(parents=True)
    (tmp_path / "model" / "p" / "config.json").write_text("{}")
    modules = [FIRST[0], {**FIRST[1], "path": "p"}]
    (tmp_path / "model" / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "link").symlink_to(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    for name in ("model", "./model", "link", "model/../model", tmp_path / "link"):
        assert sentence_files.read_modules(Path(name))[1] == ("Pooling", Path(name) / "p")
    monkeypatch.chdir(tmp_path / "model")
    assert sentence_files.read_modules(Path("."))[1] == ("Pooling", Path("p"))


@needs_tokenizers
def test_every_module_may_have_a_folder_of_its_own(tmp_path):
    """The settings of the whole stay beside modules.json."""
    inner = tmp_path / "in"
    write_tokenizer(write_folder(inner))
    kinds = {"Transformer": "in", "Pooling": "p", "Dense": "deep/d", "Normalize": "n"}
    parts = [{"type": OLD + kind, "path": path} for kind, path in kinds.items()]
    (tmp_path / "modules.json").write_text(json.dumps(parts))
    sentence_files.write_json(tmp_path / "p" / "config.json", {"pooling_mode": ["max", "cls"]})
    dense = sentence_files.Dense(16, 3, True, "SiLU")
    (tmp_path / "deep" / "d").mkdir(parents=True)
    ta.save(dense.state_dict(), tmp_path / "deep" / "d" / "model.safetensors")
    (tmp_path / "deep" / "d" / "config.json").write_text(
        '{"in_features": 16, "out_features": 3, "activation_function": "torch.nn.SiLU"}'
    )
    name = "config_sentence_transformers.json"
    (tmp_path / name).write_text('{"prompts": {"query": "cat "}, "default_prompt_name": "query"}')
    (inner / name).write_text('{"truncate_dim": 1}')
    weights = (inner / "model.safetensors").read_bytes()
    model = SentenceEncoder.from_pretrained(tmp_path, hashlib.sha256(weights).hexdigest())
    assert not any(part.training for part in model.modules())
    assert model.settings == sentence_files.checked_settings(read(tmp_path / name))
    points = exact_pooling(model.tokenize([f"cat {text}" for text in TEXTS]), ["max", "cls"])
    expected = dense(ta.tensor(points).float()).numpy()
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert_close(model.encode(TEXTS), expected, 1e-5)
    with pytest.raises(CheckpointError, match="has the sha256"):
        SentenceEncoder.from_pretrained(tmp_path, "0" * 64)


@needs_tokenizers
def test_without_a_list_of_modules_the_pooling_says_its_mode(folder):
    sentence_files.write_json(folder / "1_Pooling" / "config.json", {"pooling_mode": "max"})
    model = SentenceEncoder.from_pretrained(folder)
    assert model.pooling == ("max",)
    assert [type(part).__name__ for part in model.head] == ["Normalize"]


WRONG_MODULES = {
    "no package": ([{"type": "Transformer"}], "type of module 0 must be one of .*, got Transf"),
    "another package": (
        [FIRST[0], {"type": "sentence_transformers_x.models.Pooling"}],
        r"type of module 1 must be one of .*, got sentence_transformers_x\.models\.Pooling",
    ),
    "a null path": ([{**FIRST[0], "path": None}], "path of module 0 must be a string, got None"),
    "a name twice": (
        [{**FIRST[0], "name": "a"}, {**FIRST[1], "name": "b"},
         {"type": OLD + "Normalize", "name": "a"}],
        "two modules have the name 'a'",
    ),
    "two Transformers": ([*FIRST, FIRST[0]], "the modules must be a Transformer, a Pooling"),
    "a late Pooling": (
        [*FIRST, {"type": OLD + "Normalize"}, {"type": OLD + "Normalize"}, FIRST[1]],
        "the modules must be a Transformer, a Pooling",
    ),
    "a link out": ([FIRST[0], {**FIRST[1], "path": "out"}], "path of module 1 must be inside"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_MODULES)
def test_a_list_of_modules_that_is_wrong_later_is_refused(name, tmp_path):
    modules, said = WRONG_MODULES[name]
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "out").symlink_to(tmp_path)
    (tmp_path / "inner" / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(CheckpointError, match=rf"modules\.json: {said}"):
        sentence_files.read_modules(tmp_path / "inner")


WRONG_POOLINGS = [
    *(({name: size}, f"{name} must be the hidden_size 8, got {size}")
      for name in ("word_embedding_dimension", "embedding_dimension") for size in (7, 9)),
    *(({"pooling_mode": mode}, "pooling_mode must be") for mode in (None, "", {"mean": 1}, ["x"])),
    *(({f"pooling_mode_{name}": True}, f"the setting 'pooling_mode_{name}' is unknown here")
      for name in ("mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "said"), WRONG_POOLINGS)
def test_a_pooling_that_is_not_here_is_refused(settings, said, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True} | settings))
    with pytest.raises(CheckpointError, match=said):
        sentence_files.read_pooling(tmp_path, 8)


def test_a_dense_layer_says_its_sizes_and_the_package_of_its_function(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        sentence_files.read_dense(tmp_path, 8)
    sizes = {"in_features": 8, "out_features": 8}
    ta.save(sentence_files.Dense(8, 8).state_dict(), tmp_path / "model.safetensors")
    wrong = [(sizes | {"activation_function": f"{package}Tanh"}, "activation_function must be one")
             for package in ("", "torch.", "torch.nnx.", "nn.", "torchx.nn.")]  # fmt: skip
    for name in sizes:
        wrong.append(({key: 8 for key in sizes if key != name}, f"{name} must be an integer >= 1"))
    for settings, said in wrong:
        (tmp_path / "config.json").write_text(json.dumps(settings))
        with pytest.raises(CheckpointError, match=said):
            sentence_files.read_dense(tmp_path, 8)


# What is saved


@needs_tokenizers
def test_every_file_of_a_tokenizer_is_kept_byte_for_byte(folder, tmp_path):
    (folder / "special_tokens_map.json").write_text('{ "pad_token": "[PAD]"}')
    (folder / "vocab.txt").write_text("[PAD]\n\u00e9\n", encoding="utf-8")
    names = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
    model = SentenceEncoder.from_pretrained(folder)
    assert tuple(model.files) == names
    model.save_pretrained(tmp_path / "new")
    for name in names:
        assert (tmp_path / "new" / name).read_bytes() == model.files[name]
    for name in names[1:]:
        assert model.files[name] == (folder / name).read_bytes()


@pytest.mark.parametrize("pad", [0, 1, 2, 5, 9, None])
def test_a_new_tokenizer_config_names_the_padding_of_the_encoder(pad, tmp_path):
    words = {2: "</s>", 1: "<pad>", 0: "<s>", 9: "x"}
    content = json.dumps({"added_tokens": [added(i, word) for i, word in words.items()]})
    family = "bert" if pad is None else "roberta"
    model = encoder(model_type=family, pad_token_id=pad)
    model = SentenceEncoder(model, {"tokenizer.json": content.encode()}, 4)
    sentence_files.write_modules(tmp_path, model)
    said = {"tokenizer_class": AS_IT_STANDS, "pad_token": words.get(pad)}
    assert read(tmp_path / "tokenizer_config.json") == said


STEPS = {
    "none": (None, False),
    "lower": ({"type": "Lowercase"}, True),
    "first": ({"type": "Sequence", "normalizers": [{"type": "Lowercase"}, {"type": "NFC"}]}, True),
    "last": ({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}, False),
    "of BERT": ({"type": "BertNormalizer", "lowercase": True}, False),
}


@pytest.mark.parametrize("name", STEPS)
def test_lowercase_before_anything_else_is_said_in_the_settings_too(name, tmp_path):
    steps, is_lower = STEPS[name]
    files = {"tokenizer.json": json.dumps({"normalizer": steps}).encode()}
    sentence_files.write_modules(tmp_path, SentenceEncoder(encoder(), files, 4))
    said = {"max_seq_length": 4} | ({"do_lower_case": True} if is_lower else {})
    assert read(tmp_path / "sentence_bert_config.json") == said


def test_a_head_that_no_folder_can_have_is_refused_before_anything_is_written(tmp_path):
    model, dense, normalize = encoder(), sentence_files.Dense(8, 8), sentence_files.Normalize()
    for other in (nn.Linear(8, 8), nn.Tanh(), nn.Dropout(0.5), nn.Identity()):
        for head in ([other], [dense, other], [dense, normalize, other, normalize]):
            with pytest.raises(TypeError, match=f"after the pooling, got {type(other).__name__}"):
                SentenceEncoder(model, {}, 4, head=head).save_pretrained(tmp_path / "new")
            assert not (tmp_path / "new").exists()


def test_a_model_without_a_tokenizer_leaves_that_of_its_folder(tmp_path):
    paths = [tmp_path / name for name in tokenizer_files.TOKENIZER]
    for path in paths:
        path.write_text("{}")
    SentenceEncoder(encoder(), {}, 4).save_pretrained(tmp_path)
    assert [path.read_text() for path in paths] == 4 * ["{}"]


# The words of a tokenizer


@needs_tokenizers
def test_words_that_are_added_are_each_there_once_in_order(folder):
    words = read(folder / "tokenizer.json")
    own = added(3, "[SEP]", False) | {"rstrip": True}
    words["added_tokens"] = [added(7, "runs", False), own, added(5, "cat", False)]
    tokenizer_files.make_bert(words, {})
    found = words["added_tokens"]
    assert [token["id"] for token in found] == [0, 1, 2, 3, 5, 7]
    assert found[3] == own
    assert [token["special"] for token in found] == [True, True, True, False, False, False]


def test_an_added_word_that_is_wrong_later_is_refused():
    right = added(1, "a")
    for wrong in (3, {"id": 2}, {"id": "2", "content": "b"}):
        said = "an added token must " + ("be an object" if wrong == 3 else "have an id and its")
        for words in ([right, wrong], [right, right, wrong, right]):
            with pytest.raises(ValueError, match=said):
                tokenizer_files.added_tokens({"added_tokens": words})


@pytest.mark.parametrize("option", tokenizer_files.OPTIONS)
def test_every_option_of_a_word_is_that_of_both_files(option):
    for value in (True, False):
        token = added(4, "a") | {option: value}
        words = {"added_tokens": [added(1, "x"), token]}
        tokenizer_files.check_added(words, {"4": token | {"special": False}})
        with pytest.raises(ValueError, match=r"^added_tokens_decoder has .* for id 4, and"):
            tokenizer_files.check_added(words, {"1": added(1, "x"), "4": {option: not value}})
    for off in (False, None):
        tokenizer_files.checked_config({"cls_token": {"content": "[CLS]", option: off}}, None)
    with pytest.raises(ValueError, match=r"^cls_token must be '\[CLS\]' here"):
        tokenizer_files.checked_config({"cls_token": {"content": "[CLS]", option: True}}, None)


@pytest.mark.parametrize("kind", [*tokenizer_files.BERTS, None, *tokenizer_files.AS_IT_STANDS])
@pytest.mark.parametrize("name", [*tokenizer_files.SPECIAL, "bos_token", "add_prefix_space"])
def test_words_of_ones_own_are_for_a_tokenizer_that_is_taken_as_it_stands(name, kind):
    for value in ("<s>", {"content": "<s>", "lstrip": True}):
        if kind in tokenizer_files.AS_IT_STANDS:
            tokenizer_files.checked_config({name: value}, kind)
        else:
            with pytest.raises(ValueError, match=name):
                tokenizer_files.checked_config({name: value}, kind)


# Texts, prompts and poolings


@needs_tokenizers
def test_what_gives_no_texts_in_their_order_is_refused():
    words: dict[str, Any] = {"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "a"}
    words |= {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    content = json.dumps({"model": words}).encode()
    model = SentenceEncoder(encoder(), {"tokenizer.json": content}, 4)
    wrong: list[Any] = [bytearray(b"a"), frozenset("a"), {"a": 1}.keys(), ChainMap({"a": 1})]
    for texts in [*wrong, MappingProxyType({"a": 1})]:
        for call in (model.encode, model.tokenize):
            with pytest.raises(TypeError, match=f"^texts are .*, got a .*{type(texts).__name__}$"):
                call(texts)


def test_a_prompt_stands_before_each_text_as_it_is(monkeypatch):
    prompts = {"query": "cat ", "none": "", "": "dog "}
    settings = {"prompts": prompts, "default_prompt_name": "query"}
    model = SentenceEncoder(encoder(), {}, 4, settings=settings)
    seen: list[str] = []
    monkeypatch.setattr(model, "tokenize", lambda x: [[2, 3]] * len(seen.__iadd__(x)))
    texts = [" a", "b\n", ""]
    for named, given, expected in (
        (None, None, "cat "),
        ("query", None, "cat "),
        ("none", None, ""),
        ("", None, "dog "),
        (None, "", ""),
        (None, " x", " x"),
    ):
        seen.clear()
        model.encode(texts, prompt_name=named, prompt=given)
        assert seen == [expected + text for text in texts], (named, given)
    for prompt in ("", "x"):
        for name in ("", "query"):
            with pytest.raises(ValueError, match="give prompt or prompt_name, not both"):
                model.encode(texts, prompt=prompt, prompt_name=name)
    del model.settings["prompts"][""]
    with pytest.raises(
        ValueError, match=r"^prompt_name must be one of \['query', 'none'\], got ''"
    ):
        model.encode(texts, prompt_name="")


@needs_tokenizers
@pytest.mark.parametrize(
    ("prompt", "skipped"),
    [("", 0), ("cat ", 2), ("[SEP] cat ", 3), ("cat dog ", 3), ("[SEP] ", 1), ("dog [SEP] ", 2)],
)
def test_a_prompt_is_left_out_up_to_a_special_word_at_its_end(prompt, skipped, folder):
    """Which may be that of every text, and so is not the prompt's."""
    parts = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}},
             {"Sequence": {"id": "A", "type_id": 0}}]  # fmt: skip
    words = {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]}}
    template = {"type": "TemplateProcessing", "single": parts, "pair": parts,
                "special_tokens": words}  # fmt: skip
    some = [added(3, "[SEP]"), added(5, "cat", False)]
    model = with_tokenizer(folder, post_processor=template, added_tokens=some)
    texts = ["dog runs", "cat", "a"]
    tokens = model.tokenize([prompt + text for text in texts])
    expected = exact_pooling(tokens, ["mean"], skipped)
    assert_close(model.encode(texts, prompt=prompt), expected, 1e-5)
    assert_close(model.encode(texts), exact_pooling(model.tokenize(texts), ["mean"]), 1e-5)


@needs_tokenizers
def test_the_word_of_padding_counts_in_a_text(folder):
    model = with_tokenizer(folder, post_processor=None, added_tokens=[added(0, "[PAD]")])
    texts = ["cat [PAD]", "[PAD] cat", "cat dog runs"]
    tokens = model.tokenize(texts)
    assert tokens == [[5, 0], [0, 5], [5, 6, 7]]
    assert_close(model.encode(texts), exact_pooling(tokens, ["mean"]), 1e-5)


@needs_tokenizers
def test_another_tokenizer_counts_from_its_next_text_on(folder):
    model = SentenceEncoder.from_pretrained(folder)
    first = model.files["tokenizer.json"]
    words = json.loads(first)
    vocabulary = words["model"]["vocab"]
    vocabulary["cat"], vocabulary["dog"] = vocabulary["dog"], vocabulary["cat"]
    for model.files["tokenizer.json"], id in ((first, 5), (json.dumps(words).encode(), 6)):
        assert model.tokenize(["cat"]) == [[2, id, 3]]


@needs_tokenizers
def test_nothing_of_the_head_is_dropped_in_encode(folder):
    model = SentenceEncoder.from_pretrained(folder)
    kept = SentenceEncoder(model.encoder, model.files, 16, head=[]).encode(TEXTS)
    model = SentenceEncoder(model.encoder, model.files, 16, head=[nn.Dropout(0.5)]).train()
    assert_same(model.encode(TEXTS), kept)


def test_lengths_of_embed_may_be_of_any_kind():
    model = SentenceEncoder(encoder(), {}, 16, ["mean", "max"])
    ids = np.array([[2, 7, 9, 3], [2, 0, 3, 9], [2, 3, 0, 0]])
    for skipped in (0, 1):
        expected = model.embed(ids, [4, 3, 2], skipped).numpy()
        for lengths in ((4, 3, 2), np.array([4, 3, 2]), ta.tensor([4, 3, 2])):
            for given in (ids, ids.tolist(), ta.tensor(ids)):
                assert_same(model.embed(given, lengths, skipped).numpy(), expected)


@pytest.mark.parametrize("skipped", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("lens", [None, [5, 3, 4, 1, 5, 2]], ids=["all", "lengths"])
def test_a_pooling_is_that_of_each_text_without_the_words_before(lens, skipped):
    hidden = signed(rng_of(0), 6, 5, 3) - 3  # a max of padding would be 0
    rules = {"max": lambda x: x.max(0), "cls": lambda x: x[0], "mean": lambda x: x.mean(0)}
    for modes in (["max"], ["cls"], ["mean"], ["max", "cls", "mean"], ["mean", "max", "mean"]):
        found = pooled(ta.tensor(hidden), lens, modes, skipped).numpy()
        assert found.shape == (6, 3 * len(modes))
        for i, row in enumerate(hidden):
            length = 5 if lens is None else lens[i]
            if length > skipped:
                text = row[skipped:length]
                assert_close(found[i], np.concatenate([rules[mode](text) for mode in modes]))
            elif modes == ["mean"]:
                assert_same(found[i], np.zeros(3))
