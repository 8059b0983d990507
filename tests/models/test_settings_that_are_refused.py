"""A setting that is refused is named first, with what it may be and what it was."""

from __future__ import annotations

import itertools
import json
import math
import re

import pytest
from test_causal import CONFIGS, LLAMA, random_model
from test_families import encoder_config
from test_models import CONFIG, write_folder

import tinyattn as ta
from tinyattn.errors import CheckpointError
from tinyattn.models import (
    BertEncoder,
    CausalLM,
    MaskedLM,
    SequenceClassifier,
    causal_files,
    sentence_files,
)
from tinyattn.models.bert import ACTIVATIONS, DISTILBERT_NAMES
from tinyattn.models.published import ENCODERS
from tinyattn.models.tokenizer_files import checked_config as checked_tokenizer

SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
         "max_position_embeddings", "intermediate_size")  # fmt: skip
IN_GPT2 = {"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
           "max_position_embeddings": "n_positions", "intermediate_size": "n_inner"}  # fmt: skip
IN_DISTILBERT = {"hidden_size": "dim", "num_hidden_layers": "n_layers",
                 "num_attention_heads": "n_heads", "intermediate_size": "hidden_dim"}  # fmt: skip


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("kind", CONFIGS)
def test_a_size_of_a_language_model_is_a_positive_integer(kind, name):
    theirs = IN_GPT2.get(name, name) if kind == "gpt2" else name
    for wrong in (0, -1, 2.0, "8", True):
        with pytest.raises(ValueError, match=rf"^{name} must be an integer >= 1, got {wrong!r}$"):
            CausalLM(CONFIGS[kind] | {theirs: wrong})


@pytest.mark.parametrize("name", [*SIZES, "type_vocab_size"])
@pytest.mark.parametrize("kind", ENCODERS)
def test_a_size_of_an_encoder_is_a_positive_integer(kind, name):
    if kind == "distilbert" and name == "type_vocab_size":
        BertEncoder(encoder_config(kind) | {name: 0})  # it has none
        return
    theirs = IN_DISTILBERT.get(name, name) if kind == "distilbert" else name
    for wrong in (0, 2.0, "8"):
        said = rf"^{name} of the config must be an integer >= 1, got {wrong!r}$"
        with pytest.raises(ValueError, match=said):
            BertEncoder(encoder_config(kind) | {theirs: wrong})
    config = encoder_config(kind)
    del config[theirs]
    with pytest.raises(CheckpointError, match=f"^the config of a BertEncoder misses {name}$"):
        BertEncoder(config)


LANGUAGE = [
    ("qwen3", "head_dim", 0, "must be an integer >= 1, got 0"),
    ("llama", "num_key_value_heads", 0, "must be an integer >= 1, got 0"),
    ("llama", "num_key_value_heads", 3, "3 must divide 4"),
    ("mistral", "sliding_window", 0, "must be an integer >= 1, got 0"),
    ("qwen2", "max_window_layers", -1, "must be an integer >= 0, got -1"),
    ("smollm3", "no_rope_layer_interval", 0, "must be an integer >= 1, got 0"),
    ("llama", "attention_bias", 1, "must be true or false, got 1"),
    ("llama", "mlp_bias", "yes", "must be true or false, got 'yes'"),
    ("qwen2", "use_sliding_window", 1, "must be true or false, got 1"),
    ("gpt2", "tie_word_embeddings", 1, "must be true or false, got 1"),
    ("llama", "tie_word_embeddings", "no", "must be true or false, got 'no'"),
    ("llama", "rms_norm_eps", 0, "must be more than 0"),
    ("llama", "rms_norm_eps", -1e-5, "must be a number >= 0, got -1e-05"),
    ("llama", "rope_theta", 0.5, "must be a number >= 1, got 0.5"),
    ("llama", "initializer_range", -0.1, "must be a number >= 0, got -0.1"),
    ("llama", "attention_dropout", 1, r"must be a number in \[0, 1\), got 1"),
    ("llama", "resid_pdrop", -0.1, r"must be a number in \[0, 1\), got -0.1"),
    ("gpt2", "embd_pdrop", 1.5, r"must be a number in \[0, 1\), got 1.5"),
    ("llama", "rope_scaling", [2], "must be an object"),
    ("llama", "rope_parameters", [2], "must be an object"),
    ("llama", "partial_rotary_factor", 0.5, None),
    ("mistral", "layer_types", "all", "must be a list, got 'all'"),
    (
        "mistral",
        "layer_types",
        ["other", "full_attention"],
        r"are one of \('full_attention', 'sliding_attention'\) for 2 layers, got \[",
    ),
    ("mistral", "layer_types", ["full_attention"], "are one of .* for 2 layers"),
    ("mistral", "layer_types", ["full_attention", "chunked_attention"], "are one of"),
    ("mistral", "layer_types", ["full_attention", None], "are one of"),
    ("smollm3", "no_rope_layers", {}, "must be a list"),
    ("smollm3", "no_rope_layers", [1, 2], r"are one of \(0, 1\) for 2 layers, got \[1, 2\]"),
    ("llama", "eos_token_id", "</s>", "must be a token id, got '</s>'"),
    ("llama", "model_type", "gemma", 'must be "llama", .* or "gpt2", got \'gemma\''),
    ("gpt2", "head_dim", 3, "must be 4 here, got 3"),
    ("llama", "hidden_act", "gelu", "must be 'silu' or 'swish' here, got 'gelu'"),
    ("gpt2", "scale_attn_weights", False, "must be True here, got False"),
]


@pytest.mark.parametrize(("kind", "name", "wrong", "said"), LANGUAGE)
def test_a_wrong_setting_of_a_language_model_is_named(kind, name, wrong, said):
    start = f"^the setting '{name}' is unknown here" if said is None else f"^{name} {said}"
    with pytest.raises(ValueError, match=start):
        CausalLM(CONFIGS[kind] | {name: wrong})


@pytest.mark.parametrize("kind", [kind for kind in CONFIGS if kind != "gpt2"])
@pytest.mark.parametrize(
    ("name", "values", "wrong"),
    [
        (
            "layer_types",
            ("full_attention", "sliding_attention"),
            ("chunked_attention", "full", "", None, 0, True, []),
        ),
        ("no_rope_layers", (0, 1), (-1, 2, 0.5, "1", None, [])),
    ],
    ids=["layer_types", "no_rope_layers"],
)
def test_a_list_for_layers_has_one_known_entry_for_each_of_them(name, values, wrong, kind):
    """Neither fewer nor more; the wrong one may be the first, one in the middle or the last."""
    sizes = {"num_hidden_layers": 3, "no_rope_layers": []}
    for right in itertools.product(values, repeat=3):
        config = CONFIGS[kind] | sizes | {name: [*right]}
        assert causal_files.checked_config(config)[name] == [*right]
    lists = [[value] * count for value in values for count in (1, 2, 4, 6)]
    for one, at in itertools.product(wrong, range(3)):
        lists.append([values[1]] * 3)
        lists[-1][at] = one
    for given in lists:
        said = f"{name} are one of {values} for 3 layers, got {given!r:.60}"
        with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
            causal_files.checked_config(CONFIGS[kind] | sizes | {name: given})


def test_a_config_that_names_no_family_is_refused():
    config = {name: value for name, value in CONFIGS["llama"].items() if name != "model_type"}
    with pytest.raises(ValueError, match=r'^model_type must be "llama", .* got None$'):
        CausalLM(config)


@pytest.mark.parametrize("config", [3, None, [LLAMA]])
def test_what_is_no_config_is_said_to_be_none(config):
    with pytest.raises(ValueError, match=r"^a config must be an object, got "):
        CausalLM(config)
    for make in (BertEncoder, MaskedLM, SequenceClassifier):
        with pytest.raises(TypeError, match=r"^a config is a dict, such as config\.json, got "):
            make(config)


ENCODER = [
    ({"model_type": "gpt2"}, "^model_type of an encoder must be \"bert\", .*, got 'gpt2'"),
    ({"num_attention_heads": 3}, "^the width 8 cannot be split into 3 heads"),
    ({"layer_norm_eps": 0}, "^layer_norm_eps must be more than 0"),
    ({"layer_norm_eps": -1}, "^layer_norm_eps must be a number >= 0, got -1"),
    ({"hidden_dropout_prob": 1.5}, "^hidden_dropout_prob lies between 0 and 1, got 1.5"),
    ({"attention_probs_dropout_prob": -1}, "^attention_probs_dropout_prob lies between 0 and 1"),
    ({"hidden_act": "silu"}, "^hidden_act must be 'gelu' or "),
    ({"pad_token_id": "0"}, "^pad_token_id must be null or a token id, got '0'"),
    ({"is_decoder": True}, "^is_decoder must be False here, got True"),
    ({"position_embedding_type": "relative_key"}, "^position_embedding_type must be 'absolute'"),
    ({"window": 3}, "^the setting 'window' is unknown here, with the value 3: delete it if"),
]


@pytest.mark.parametrize(("changes", "said"), ENCODER)
def test_a_wrong_setting_of_an_encoder_is_named(changes, said):
    with pytest.raises(ValueError, match=said):
        BertEncoder(CONFIG | changes)


@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.parametrize(
    ("name", "taken", "refused"),
    [
        ("position_embedding_type", ["absolute"], ["relative_key", "rotary", 3]),
        ("is_decoder", [False], [True, 0, 1, "no"]),
        ("add_cross_attention", [False], [True, 0, 1]),
        ("is_encoder_decoder", [False], [True, 0, 1]),
        ("pad_token_id", [0, 1, 39, None], [40, -1, 1.0, True, "0", [1]]),
        ("layer_norm_eps", [1e-12, 1, 1e-5], [0, -1e-12, "1e-12", True, math.nan, math.inf]),
        ("hidden_dropout_prob", [0, 0.0, 0.5, 1, 1.0], [-0.1, 1.1, "0.1", True, math.nan]),
        ("attention_probs_dropout_prob", [0, 0.5, 1], [-0.1, 1.1, "0.1", False, math.nan]),
        ("hidden_act", [*ACTIVATIONS], ["silu", "tanh", "GELU", 3, True, ["gelu"]]),
    ],
)
def test_the_ends_of_what_a_setting_of_an_encoder_may_be(name, taken, refused, kind):
    theirs = DISTILBERT_NAMES.get(name, name) if kind == "distilbert" else name
    for value in taken:
        model = BertEncoder(encoder_config(kind) | {theirs: value})
        if (kind, name) != ("distilbert", "layer_norm_eps"):  # which it does not have
            assert model.config[name] == value
    for value in refused:
        if (kind, name) == ("distilbert", "layer_norm_eps"):
            model = BertEncoder(encoder_config(kind) | {theirs: value})
            assert model.norm.eps == 1e-12
            continue
        for make in (BertEncoder, MaskedLM, SequenceClassifier):
            with pytest.raises(
                ValueError, match=f"^{name} .*{re.escape(repr(value))}$|^{name} must"
            ):
                make(encoder_config(kind) | {theirs: value})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_labels": 0}, "^num_labels must be an integer >= 1, got 0"),
        ({"id2label": ["a"]}, "^id2label must be an object"),
        ({"id2label": {"0": "a", "2": "b"}}, r"^id2label has the keys 0, 1, 2.*got \['0', '2'\]"),
    ],
)
def test_wrong_names_of_classes_are_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        SequenceClassifier(CONFIG | changes)


OBJECTS = ([], ["a", "b"], 0, False, "", "ab", ())
KEYS = (["1"], ["0", "2"], ["1", "2"], ["00"], ["0", "01"], [" 0"], ["0.0"], ["a"], ["0", "-1"],
        [0, "0"], [0.0], [True], ["0", None], ["0", "1", "3"])  # fmt: skip


@pytest.mark.parametrize("kind", ENCODERS)
def test_the_keys_of_names_of_classes_are_their_numbers(kind):
    config = encoder_config(kind)
    for wrong in OBJECTS:
        with pytest.raises(ValueError, match=r"^id2label must be an object, got "):
            SequenceClassifier(config | {"id2label": wrong})
    for keys in KEYS:
        said = f"id2label has the keys 0, 1, 2, ... of classes, got {keys}"
        with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
            SequenceClassifier(config | {"id2label": dict.fromkeys(keys, "a")})
    for wrong in (0, -1, 2.0, True, "2", []):
        with pytest.raises(ValueError, match=r"^num_labels must be an integer >= 1, got "):
            SequenceClassifier(config | {"num_labels": wrong})


@pytest.mark.parametrize("make", [BertEncoder, MaskedLM, SequenceClassifier])
@pytest.mark.parametrize("wrong", [None, "", "BERT", "bert ", "albert", "distil", 3, False])
def test_an_encoder_is_of_a_family_that_is_known(wrong, make):
    said = 'model_type of an encoder must be "bert", "distilbert", "roberta" or "xlm-roberta"'
    with pytest.raises(ValueError, match=f"^{said}, got {wrong!r}$"):
        make(CONFIG | {"model_type": wrong})


@pytest.mark.parametrize("wrong", [0, 1, 1.0, "true", "", [], {}], ids=repr)
def test_a_wrong_tie_of_the_head_of_words_is_refused(wrong):
    """Zero and what is empty too, which `if` takes for false."""
    said = f"tie_word_embeddings must be true or false, got {wrong!r}"
    for kind in ENCODERS:
        with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
            MaskedLM(encoder_config(kind) | {"tie_word_embeddings": wrong})


MODEL = [
    ({"prompts": ["a"]}, "^prompts must be an object"),
    ({"prompts": {"a": 3}}, "^the prompt 'a' must be a string, got 3"),
    ({"default_prompt_name": 3}, "^default_prompt_name must be a string, got 3"),
    ({"default_prompt_name": "x"}, r"^default_prompt_name must be one of \[\], got 'x'"),
    ({"similarity_fn_name": "x"}, '^similarity_fn_name must be "cosine", .*"manhattan", got \'x\''),
    ({"truncate_dim": 0}, "^truncate_dim must be an integer >= 1, got 0"),
]


@pytest.mark.parametrize(("settings", "said"), MODEL)
def test_a_wrong_setting_of_a_sentence_encoder_is_named(settings, said):
    with pytest.raises(ValueError, match=said):
        sentence_files.checked_settings(settings)
    with pytest.raises(ValueError, match=said):
        ta.models.SentenceEncoder(BertEncoder(CONFIG), {}, 16, settings=settings)


POOLING = [
    ({"word_embedding_dimension": 9}, "word_embedding_dimension must be the hidden_size 8, got 9"),
    ({"embedding_dimension": 0}, "embedding_dimension must be an integer >= 1, got 0"),
    ({"pooling_mode": 3}, "pooling_mode must be a list, got 3"),
    ({"pooling_mode": []}, r"pooling_mode must be one or more of \['cls', 'max', 'mean'\], got \["),
    ({"pooling_mode": ["mean", "last"]}, "pooling_mode must be one or more of .*'last'"),
    ({"include_prompt": 1}, "include_prompt must be true or false, got 1"),
    ({"pooling_mode_max_tokens": 1}, "pooling_mode_max_tokens must be true or false, got 1"),
    ({"pooling_mode_lasttoken": True}, "the setting 'pooling_mode_lasttoken' is unknown here"),
]


@pytest.mark.parametrize(("settings", "said"), POOLING)
def test_a_wrong_setting_of_a_pooling_is_named(settings, said, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(CheckpointError, match=rf"config\.json: {said}"):
        sentence_files.read_pooling(tmp_path, 8)


DENSE = {"in_features": 8, "out_features": 3}
WRONG_DENSE = [
    ({"in_features": 0}, "in_features must be an integer >= 1, got 0"),
    ({"in_features": 7}, "in_features must be 8 here, got 7"),
    ({"out_features": None}, "out_features must be an integer >= 1, got None"),
    ({"bias": 1}, "bias must be true or false, got 1"),
    ({"activation_function": 3}, "activation_function must be a string, got 3"),
    ({"activation_function": "torch.nn.Softplus"}, "activation_function must be one of torch.nn's"),
    ({"activation_function": "mine.Tanh"}, "activation_function must be one .*, got 'mine.Tanh'"),
    ({"use_residual": True}, "use_residual must be False here, got True"),
    ({"strange": 1}, "the setting 'strange' is unknown here"),
]


@pytest.mark.parametrize(("changes", "said"), WRONG_DENSE)
def test_a_wrong_setting_of_a_dense_layer_is_named(changes, said, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(DENSE | changes))
    with pytest.raises(CheckpointError, match=rf"config\.json: {said}"):
        sentence_files.read_dense(tmp_path, 8)


TYPE = "sentence_transformers.models."
MODULES = [
    ([3], "module 0 must be an object, got 3"),
    ([{"type": TYPE + "Transformer", "name": 3}], "name of module 0 must be a string, got 3"),
    ([{"type": 3}], "type of module 0 must be a string, got 3"),
    ([{"type": TYPE + "Transformer", "path": 3}], "path of module 0 must be a string, got 3"),
    ([{"type": "mine.Dense"}], "type of module 0 must be one of .*, got mine.Dense"),
    ([{"type": TYPE + "Dense", "path": ".."}], r"path of module 0 must be inside .*, got '\.\.'"),
    ([{"type": TYPE + "Dense", "path": "x" * 201}], "path of module 0 must be inside the folder"),
    (2 * [{"type": TYPE + "Transformer", "name": "a"}], "two modules have the name 'a'"),
    ([{"type": TYPE + "Transformer"}], r"the modules must be a Transformer.*got \['Transformer'\]"),
    (
        [{"type": TYPE + "Transformer"}, {"type": TYPE + "Pooling", "path": "p"}],
        "the Pooling has no config.json in p",
    ),
]


@pytest.mark.parametrize(("modules", "said"), MODULES)
def test_a_wrong_list_of_modules_is_refused(modules, said, tmp_path):
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(CheckpointError, match=rf"modules\.json: {said}"):
        sentence_files.read_modules(tmp_path)


@pytest.mark.parametrize("length", [200, 100])
def test_a_long_path_of_a_module_is_taken(length, tmp_path):
    parts = [{"type": TYPE + "Transformer"}, {"type": TYPE + "Pooling", "path": "p" * length}]
    (tmp_path / ("p" * length)).mkdir()
    (tmp_path / ("p" * length) / "config.json").write_text("{}")
    (tmp_path / "modules.json").write_text(json.dumps(parts))
    assert sentence_files.read_modules(tmp_path) == [
        ("Transformer", tmp_path),
        ("Pooling", tmp_path / ("p" * length)),
    ]


def test_what_modules_after_the_pooling_say_of_other_things_is_not_read(tmp_path):
    (tmp_path / "config.json").write_text('{"strange": 1, "module_input_name": null}')
    head = sentence_files.read_head([("Normalize", tmp_path)], 8)
    assert [type(part).__name__ for part in head] == ["Normalize"]
    (tmp_path / "config.json").write_text('{"module_input_name": "token_embeddings"}')
    with pytest.raises(CheckpointError, match=r"module_input_name must be 'sentence_embedding' or"):
        sentence_files.read_head([("Normalize", tmp_path)], 8)


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ({}, "weight_map must be an object, got None"),
        ({"weight_map": ["a"]}, "weight_map must be an object"),
        ({"weight_map": {"a": 3}}, "a file must be a string, got 3"),
        (
            {"weight_map": {"a": "z", "b": "../y", "c": "x", "d": "w"}},
            r"the files must lie beside it, got \['../y', 'w', 'x', 'z'\]",
        ),
        ({"weight_map": {"a": "model.safetensors.index.json"}}, "the files must lie beside it"),
    ],
)
def test_a_wrong_index_of_weights_is_refused(index, said, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=rf"safetensors\.index\.json: {said}"):
        BertEncoder.from_pretrained(tmp_path)


TOKENIZER = [
    ({"do_basic_tokenize": False}, None, "^do_basic_tokenize must be True here, got False"),
    ({"pad_token": "<pad>"}, None, r"^pad_token must be '\[PAD\]' here, got '<pad>'"),
    ({"cls_token": {"content": "[CLS]", "lstrip": True}}, None, "^cls_token must be"),
    ({"cls_token": {"content": "[CLS]", "single_word": True}}, None, "^cls_token must be"),
    ({"cls_token": {"content": "[CLS]", "strange": 0}}, None, "^cls_token must be"),
    ({"cls_token": {"content": 3}}, None, "^cls_token must be"),
    ({"add_prefix_space": True}, None, "^the setting 'add_prefix_space' is unknown here"),
    ({"model_input_names": "ids"}, None, "^model_input_names must be a list, got 'ids'"),
    ({"model_input_names": ["input_ids"]}, None, r"must have attention_mask here, got \['input"),
    ({"model_input_names": ["attention_mask"]}, None, "^model_input_names must have"),
]


@pytest.mark.parametrize(("config", "kind", "said"), TOKENIZER)
def test_a_wrong_setting_of_a_tokenizer_is_named(config, kind, said):
    with pytest.raises(ValueError, match=said):
        checked_tokenizer(config, kind)


def test_settings_of_a_tokenizer_that_are_usual_are_taken():
    token = {"content": "[CLS]", "lstrip": False, "special": True, "__type": "AddedToken", "id": 2}
    names = ["input_ids", "token_type_ids", "attention_mask"]
    checked_tokenizer({"cls_token": token, "model_input_names": names, "auto_map": {}}, None)
    words = {"pad_token": "<pad>", "cls_token": {"content": "<s>", "lstrip": True}}
    checked_tokenizer(words | {"add_prefix_space": True}, "RobertaTokenizer")


def test_heads_divide_the_width_and_have_an_even_one():
    with pytest.raises(ValueError, match="18 cannot be split into 4 heads"):
        CausalLM(LLAMA | {"hidden_size": 18})
    with pytest.raises(ValueError, match="width is even"):
        CausalLM(LLAMA | {"head_dim": 3})


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_folder_names_the_file_of_a_wrong_setting(kind, tmp_path):
    random_model(kind).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"vocab_size": 0}))
    with pytest.raises(CheckpointError, match=r"config\.json: vocab_size must be an integer >= 1"):
        CausalLM.from_pretrained(tmp_path)


def test_a_folder_of_an_encoder_names_the_file_of_a_wrong_setting(tmp_path):
    for name, wrong in (("vocab_size", 0), ("num_attention_heads", 3), ("layer_norm_eps", 0)):
        folder = write_folder(tmp_path, config=CONFIG | {name: wrong})
        for make in (BertEncoder, MaskedLM, SequenceClassifier):
            with pytest.raises(CheckpointError, match=r"config\.json: "):
                make.from_pretrained(folder)
