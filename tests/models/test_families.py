"""Every family of published models: folders of transformers in both directions, and settings."""

from __future__ import annotations

import json

import numpy as np
import pytest
from common import assert_close, assert_equal, rng_of
from test_causal import CONFIGS, needs_transformers, random_model

import tinyattn as ta
from tinyattn import generation, nn
from tinyattn.errors import CheckpointError, ShapeError
from tinyattn.models import (
    BertEncoder,
    CausalLM,
    MaskedLM,
    SequenceClassifier,
    bert,
    causal_files,
)
from tinyattn.models.bert import DISTILBERT_NAMES
from tinyattn.models.published import ENCODERS, parts_of

pytestmark = pytest.mark.filterwarnings("ignore")
SIZES = {
    "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 24, "max_position_embeddings": 220,
    "rms_norm_eps": 1e-5, "pad_token_id": None,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
MORE_YARN = YARN | {"beta_fast": 4, "mscale": 0.7, "mscale_all_dim": 0.3, "truncate": False}
WINDOW = {"use_sliding_window": True, "sliding_window": 3}
GPT2 = {"n_embd": 16, "n_layer": 3, "n_head": 4, "n_positions": 220}
CAUSAL = {
    "llama": ("llama", {}),
    "wide heads and biases": (
        "llama",
        {"head_dim": 6, "attention_bias": True, "mlp_bias": True},
    ),
    "llama3 scaling": ("llama", {"rope_scaling": LLAMA3}),
    "linear scaling with its base": (
        "llama",
        {"rope_scaling": {"type": "linear", "factor": 3.0, "rope_theta": 70.0}},
    ),
    "linear scaling": ("llama", {"rope_scaling": {"type": "linear", "factor": 3.0}}),
    "yarn": ("llama", {"rope_scaling": YARN}),
    "yarn with its numbers": ("llama", {"rope_scaling": MORE_YARN}),
    "mistral": ("mistral", {"sliding_window": 4}),
    "mistral without a window": ("mistral", {"sliding_window": None, "head_dim": 8}),
    "qwen2": ("qwen2", {}),
    "qwen2 with windows": ("qwen2", WINDOW | {"max_window_layers": 1, "tie_word_embeddings": True}),
    "qwen3": ("qwen3", {"head_dim": 8}),
    "qwen3 with windows": (
        "qwen3",
        WINDOW | {"max_window_layers": 2, "head_dim": 6, "attention_bias": True},
    ),
    "smollm3": ("smollm3", {}),
    "smollm3 with windows": (
        "smollm3",
        WINDOW | {"no_rope_layer_interval": 2, "attention_bias": True, "mlp_bias": True},
    ),
    "smollm3 by layer": ("smollm3", {"no_rope_layers": [1, 0, 1]}),
    "gpt2": ("gpt2", GPT2),
    "gpt2 with a head of its own": ("gpt2", GPT2 | {"tie_word_embeddings": False}),
}


def in_float64(model):
    """transformers computes angles and the norms of Llama in float32: both in float64."""
    import torch

    def norm(self, x):
        return self.weight * x * (x.square().mean(-1, keepdim=True) + self.variance_epsilon) ** -0.5

    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = norm.__get__(module)

    def forward(self, x, position_ids, **_):
        rates = self.inv_freq.double()
        angles = position_ids[:, :, None].double() * rates
        both = torch.cat([angles, angles], -1)
        scale = self.attention_scaling
        return (both.cos() * scale).to(x.dtype), (both.sin() * scale).to(x.dtype)

    rotary = getattr(model.model, "rotary_emb", None)
    if rotary is not None:
        scaling = rotary.config.rope_parameters
        width = 2 * len(rotary.inv_freq)
        exact = nn.RotaryEmbedding(width, scaling["rope_theta"], dict(scaling)).rates
        assert_close(rotary.inv_freq.numpy(), exact, 1e-6)
        rotary.inv_freq = torch.tensor(exact)
        rotary.forward = forward.__get__(rotary)


@needs_transformers
@pytest.mark.parametrize("name", CAUSAL)
def test_a_language_model_is_that_of_transformers(name, tmp_path):
    """In float32 and float64, padded at the left and right, with a cache, and saved again."""
    import torch
    import transformers

    kind, settings = CAUSAL[name]
    sizes = {"vocab_size": 40} if kind == "gpt2" else SIZES
    config = transformers.AutoConfig.for_model(kind, **(sizes | settings))
    torch.manual_seed(0)
    theirs = transformers.AutoModelForCausalLM.from_config(config).eval()
    for parameter in theirs.parameters():
        parameter.data += torch.randn(parameter.shape) / 4
    ids = rng_of(1).randint(0, 40, (2, 21))
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-10)):
        theirs.to(dtype).save_pretrained(tmp_path / "theirs")
        ours = CausalLM.from_pretrained(tmp_path / "theirs")
        if dtype == torch.float64 and kind != "gpt2":
            in_float64(theirs)
        right = theirs(torch.tensor(ids)).logits.detach().numpy()
        assert_close(ours(ids).numpy(), right, tolerance)
        ours.save_pretrained(tmp_path / "ours")
        back = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours").eval()
        assert_close(back(torch.tensor(ids)).logits.detach().numpy(), right, 1e-6)
        for mask in (np.arange(21) >= 6, np.arange(21) < 15):
            mask = np.stack([np.ones(21, bool), mask])
            places = torch.tensor((mask.cumsum(1) - 1).clip(0))
            given = {"attention_mask": torch.tensor(mask.astype(int)), "position_ids": places}
            right = theirs(torch.tensor(ids), **given).logits.detach().numpy()
            assert_close(ours(ids, mask).numpy()[mask], right[mask], tolerance)
    longer = theirs.generate(
        torch.tensor(ids[:1, :5]), max_new_tokens=200, do_sample=False, eos_token_id=None
    )
    out = ta.generation.generate(ours.next_scores(), ids[:1, :5], 205)
    assert out.tolist() == longer.tolist()


@needs_transformers
@pytest.mark.parametrize("kinds", ["full sliding full", "sliding full full", "full full full"])
def test_the_windows_of_mistral_by_layer_are_those_of_transformers(kinds, tmp_path):
    """Ministral says model_type mistral, and which layers have a window."""
    import torch
    import transformers

    types = [f"{kind}_attention" for kind in kinds.split()]
    ours = CausalLM(CONFIGS["mistral"] | {"num_hidden_layers": 3, "layer_types": types}).eval()
    ours.save_pretrained(tmp_path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    ids = rng_of(1).randint(0, 40, (2, 21))
    right = theirs(torch.tensor(ids)).logits.detach().numpy()
    assert_close(ours(ids).numpy(), right, 1e-5)
    assert_equal(CausalLM.from_pretrained(tmp_path)(ids).numpy(), ours(ids).numpy())


@needs_transformers
@pytest.mark.parametrize("kind", [*causal_files.FAMILIES, *ENCODERS])
def test_every_key_that_transformers_writes_passes_at_its_default(kind):
    import transformers

    config = transformers.AutoConfig.for_model(kind).to_dict()
    assert len(config) >= 30
    assert checked(kind, config)


def checked(kind, config):
    files = bert if kind in ENCODERS else causal_files
    return files.checked_config({"model_type": kind, **config})


# Of published config.json's: what changes no number.
INERT = {
    "pretraining_tp": 2, "max_sequence_length": 2048, "predict_special_tokens": True,
    "sentence_transformers": {"version": "4.0.1"}, "sbert_ce_default_activation_function": "x.y",
    "use_mrope": False, "_num_labels": 1, "transformers.js_config": {"kv_cache_dtype": {}},
    "unsloth_fixed": True, "auto_map": {"AutoModel": "x.y"}, "is_llama_config": True,
    "rope_interleaved": False, "_flash_attn_2_enabled": True, "quantization_config": None,
    "transformers_version": "4.57.1", "torch_dtype": "float32", "rope_scaling": None,
}  # fmt: skip


@pytest.mark.parametrize("kind", CONFIGS)
def test_settings_without_influence_pass(kind, tmp_path):
    model = random_model(kind)
    model.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | INERT))
    again = CausalLM.from_pretrained(tmp_path)
    ids = rng_of(2).randint(0, 40, (1, 5))
    assert_equal(again(ids).numpy(), model(ids).numpy())


# Keys of published config.json's, with the values that tell them from others of their family.
LLAMA3_IDS = {"bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009]}
QWEN = {"use_mrope": False, "use_sliding_window": False, "sliding_window": 32768,
        "max_window_layers": 21, "rope_theta": 1000000.0, "tie_word_embeddings": True}  # fmt: skip
PUBLISHED = {
    "Qwen2.5-1.5B": ("qwen2", QWEN),
    "R1-Distill-Qwen": ("qwen2", QWEN | {"max_window_layers": 28, "sliding_window": 4096}),
    "Qwen2.5-7B, long": ("qwen2", QWEN | {"rope_scaling": {
        "factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"}}),
    "Qwen3-0.6B": ("qwen3", QWEN | {"head_dim": 8, "sliding_window": None, "rope_scaling": None}),
    "Llama-3.2-1B": ("llama", LLAMA3_IDS | {"rope_scaling": LLAMA3, "head_dim": 4}),
    "Llama-2-7b": ("llama", {"_name_or_path": "x", "torch_dtype": "float16", "rope_scaling": None}),
    "vicuna-7b": ("llama", {"max_sequence_length": 2048, "pad_token_id": 0}),
    "SmolLM2-Instruct": ("llama", {
        "is_llama_config": True, "rope_interleaved": False, "pad_token_id": 2,
        "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}}}),
    "SmolLM3-3B": ("smollm3", {
        "layer_types": ["full_attention"] * 3, "no_rope_layers": [1, 1, 0], "pretraining_tp": 2,
        "no_rope_layer_interval": 4, "use_sliding_window": False, "max_window_layers": 28,
        "transformers.js_config": {"use_external_data_format": {"model.onnx": 2}}}),
    "Mistral-7B-v0.1": ("mistral", {"sliding_window": 4096, "tie_word_embeddings": False}),
    "Mistral-Nemo": ("mistral", {"sliding_window": None, "head_dim": 128}),
    "distilgpt2": ("gpt2", {
        "_num_labels": 1, "id2label": {"0": "LABEL_0"}, "summary_first_dropout": 0.1,
        "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}}}),
    "gpt2-large": ("gpt2", {"n_special": 0, "predict_special_tokens": True, "n_ctx": 1024}),
    "Cerebras-GPT": ("gpt2", {"activation_function": "gelu", "n_inner": 3072}),
    "bert-base-multilingual": ("bert", {
        "directionality": "bidi", "pooler_fc_size": 768, "pooler_num_fc_layers": 3}),
    "ms-marco-MiniLM": ("bert", {
        "sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}),
    "distilbert-sst-2": ("distilbert", {
        "finetuning_task": "sst-2", "sinusoidal_pos_embds": False, "tie_weights_": True}),
    "roberta-large-mnli": ("roberta", {"_num_labels": 3, "bos_token_id": 0, "eos_token_id": 2}),
    "xlm-roberta-base": ("xlm-roberta", {"output_past": True, "position_embedding_type": None}),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_settings_pass(name):
    kind, keys = PUBLISHED[name]
    sizes = encoder_config(kind) if kind in ENCODERS else SIZES
    sizes = {"vocab_size": 40, "n_embd": 16, "n_head": 4, "n_layer": 2} if kind == "gpt2" else sizes
    assert checked(kind, sizes | {"n_positions": 34} | keys if kind == "gpt2" else sizes | keys)


OTHERS = """
gemma gemma2 gemma3_text phi phi3 olmo olmo2 gpt_neox gpt_neo gptj falcon mixtral qwen2_moe
qwen3_moe starcoder2 stablelm cohere mamba opt bloom t5 bart electra albert deberta-v2 camembert
modernbert mpnet
"""


@pytest.mark.parametrize("kind", [*OTHERS.split(), None, 3])
def test_other_families_are_named_with_the_list_of_those_that_are_read(kind, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SIZES | {"model_type": kind}))
    lists = {CausalLM: causal_files.FAMILIES, BertEncoder: ENCODERS, MaskedLM: ENCODERS}
    for model, families in (lists | {SequenceClassifier: ENCODERS}).items():
        with pytest.raises(CheckpointError) as told:
            model.from_pretrained(tmp_path)
        assert f"got {kind!r}" in str(told.value)
        assert all(f'"{one}"' in str(told.value) for one in families)


def test_an_activation_may_have_its_second_name():
    """Those of transformers' ACT2CLS that are one function."""
    llama = CausalLM(CONFIGS["llama"] | {"hidden_act": "swish"})
    assert isinstance(llama.encoder.layers[0].feed_forward, ta.nn.SwiGLU)
    assert llama.config["hidden_act"] == "swish"
    for name in ("gelu_python_tanh", "gelu_new"):
        gpt2 = CausalLM(CONFIGS["gpt2"] | {"activation_function": name})
        assert gpt2.encoder.layers[0].feed_forward.activation.approximate == "tanh"
        assert BertEncoder(encoder_config("bert") | {"hidden_act": name})
    for kind, name in (("llama", "relu2"), ("gpt2", "quick_gelu"), ("gpt2", "swish")):
        with pytest.raises(ValueError, match=f"hidden_act must be .* here, got '{name}'"):
            CausalLM(CONFIGS[kind] | {"hidden_act": name})


FOREIGN = {
    "distilbert": {"type_vocab_size": 2, "layer_norm_eps": 0.1},
    "llama": {"no_rope_layers": [0, 0]},
    **{kind: {"no_rope_layers": [0, 0], "attention_bias": True, "mlp_bias": True}
       for kind in ("mistral", "qwen2")},
    "qwen3": {"no_rope_layers": [0, 0], "mlp_bias": True},
}  # fmt: skip


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_setting_that_only_other_families_have_changes_no_number(kind, tmp_path):
    """transformers does not look at it. A table of types of tokens had no values then."""
    encoder = kind in ENCODERS
    model = BertEncoder(encoder_config(kind)).eval() if encoder else random_model(kind)
    model.save_pretrained(tmp_path)
    path, ids = tmp_path / "config.json", rng_of(2).randint(3, 40, (1, 5))
    written = json.loads(path.read_text())
    for config in (written | FOREIGN[kind], FOREIGN[kind] | written):
        path.write_text(json.dumps(config))
        again = type(model).from_pretrained(tmp_path)
        assert_equal(again(ids).numpy(), model(ids).numpy())
        assert len([*again.parameters()]) == len([*model.parameters()])
    if kind == "llama":
        path.write_text(json.dumps(written | {"no_rope_layer_interval": 1}))
        assert_equal(CausalLM.from_pretrained(tmp_path)(ids).numpy(), model(ids).numpy())


def test_a_config_that_is_given_stays_as_it_is():
    scaling = {"rope_type": "linear", "factor": 2.0, "rope_theta": 70.0}
    for name in ("rope_scaling", "rope_parameters"):
        config = CONFIGS["llama"] | {name: dict(scaling)}
        copied = json.loads(json.dumps(config))
        assert CausalLM(config).config["rope_theta"] == 70
        assert config == copied


@pytest.mark.parametrize(
    "names", [{"A": "a"}, {"0": "a", "2": "b"}, {"1": "a"}, {"0": "a", "x": 1}]
)
def test_names_of_classes_are_numbered_from_zero(names, tmp_path):
    config = encoder_config("bert") | {"id2label": names}
    MaskedLM(config).save_pretrained(tmp_path)  # which has no classes
    MaskedLM.from_pretrained(tmp_path)
    with pytest.raises(
        CheckpointError, match=r"config\.json: id2label has the keys 0, 1, 2, .* got"
    ):
        SequenceClassifier.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="id2label has the keys 0, 1, 2"):
        SequenceClassifier(config)


def test_a_folder_with_other_shapes_than_its_config_is_not_written(tmp_path):
    """Nobody could read it again."""
    model = CausalLM(CONFIGS["llama"] | {"tie_word_embeddings": False})
    width = model.config["hidden_size"]
    for name, layer in (("word", nn.Embedding(50, width)), ("head", nn.Linear(width, 50, False))):
        setattr(model, name, layer)
        with pytest.raises(ShapeError, match=rf"config: .*{name}\.weight has shape \(40, .* \(50,"):
            model.save_pretrained(tmp_path / "new")
    assert not [*tmp_path.iterdir()]
    model.config["vocab_size"] = 50
    model.save_pretrained(tmp_path)
    assert_equal(CausalLM.from_pretrained(tmp_path)([[41]]).numpy(), model([[41]]).numpy())


@pytest.mark.parametrize("kind", causal_files.FAMILIES)
def test_null_is_as_if_nothing_were_said(kind):
    """It was a KeyError without a word about the setting."""
    optional = ["tie_word_embeddings", "hidden_act", "rms_norm_eps", "layer_norm_epsilon"]
    optional += ["attention_bias", "mlp_bias", "use_sliding_window", "rope_theta", "rope_scaling"]
    optional += ["rope_parameters", "layer_types", "no_rope_layers", "max_window_layers"]
    for name in optional:
        sizes = {"hidden_act": None} if kind == "gpt2" else {}
        found = causal_files.checked_config(CONFIGS[kind] | sizes | {name: None})
        assert None not in [x for name, x in found.items() if name != "sliding_window"]


@pytest.mark.parametrize("kind", causal_files.FAMILIES)
def test_a_window_of_null_is_no_window_in_the_model_and_in_its_folder(kind, tmp_path):
    """Mistral had 4096 keys then, because its config is checked again when the model is built."""
    model = CausalLM(CONFIGS[kind] | {"sliding_window": None})
    model.save_pretrained(tmp_path)
    for one in (model, CausalLM.from_pretrained(tmp_path)):
        assert {layer.self_attn.window for layer in one.encoder.layers} == {None}


LINEAR = {"rope_type": "linear", "factor": 2.0}


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"rope_parameters": {"a": 1}}, "'a' is unknown here"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor must be 1"),
        ({"rope_scaling": LINEAR | {"partial_rotary_factor": 0.5}}, "rotary_factor must be 1 here"),
        ({"rope_scaling": {"factor": 4.0}}, "'factor' is unknown here"),
        ({"rope_parameters": False}, "rope_parameters must be an object"),
        ({"rope_parameters": 0}, "rope_parameters must be an object"),
        ({"max_window_layers": "x"}, "max_window_layers must be an integer"),
        ({"max_window_layers": -1}, "max_window_layers must be an integer"),
    ],
)
def test_settings_of_rotation_and_windows_are_checked_also_where_they_are_off(wrong, match):
    with pytest.raises((TypeError, ValueError), match=match):
        causal_files.checked_config(CONFIGS["qwen2"] | wrong)


@needs_transformers
def test_processors_are_those_of_transformers():
    """Number by number, and in greedy generation with a cache."""
    import torch
    import transformers

    rng = rng_of(7)
    ids, scores = rng.randint(0, 30, (4, 9)), rng.normal(size=(4, 30)).astype(np.float32)
    given = torch.tensor(ids), torch.tensor(scores)
    for penalty in (0.5, 1.0, 1.3):
        right = transformers.RepetitionPenaltyLogitsProcessor(penalty)(*given).numpy()
        assert_equal(generation.repetition_penalty(penalty)(ids, scores), right)
    for length in (0, 9, 10, 20):
        right = transformers.MinLengthLogitsProcessor(length, [3, 5])(*given).numpy()
        assert_equal(generation.min_length(length, [3, 5])(ids, scores), right)
        more = transformers.MinNewTokensLengthLogitsProcessor(6, length, [3, 5])
        right = more(*given).numpy()
        assert_equal(generation.min_length(6 + length, [3, 5])(ids, scores), right)
    logs = torch.tensor(scores).double().log_softmax(-1)
    for temperature, k, p in ((0.6, None, None), (1.7, 5, None), (1.0, None, 0.4), (0.9, 8, 0.8)):
        right = transformers.TemperatureLogitsWarper(temperature)(given[0], logs)
        if k is not None:
            right = transformers.TopKLogitsWarper(k)(given[0], right)
        if p is not None:
            right = transformers.TopPLogitsWarper(p)(given[0], right)
        found = generation.chances(logs.numpy(), temperature, k, p)
        assert_close(found, right.softmax(-1).numpy(), 1e-12)
    config = transformers.AutoConfig.for_model("llama", **SIZES)
    torch.manual_seed(1)
    theirs = transformers.AutoModelForCausalLM.from_config(config).eval().double()
    for parameter in theirs.parameters():
        parameter.data += torch.randn(parameter.shape) / 4
    ours = CausalLM(SIZES | {"model_type": "llama"}).double().eval()
    state = {k: ta.tensor(x.detach().numpy()) for k, x in theirs.state_dict().items()}
    parts = parts_of(ours.config, 0)
    parameters = dict(ours.named_parameters())
    for key, part in parts.items():
        for name, x in part.to_ours(state[key].numpy()).items():
            parameters[name].data = ta.tensor(x)
    options = {"do_sample": False, "repetition_penalty": 1.4, "min_new_tokens": 12}
    right = theirs.generate(torch.tensor(ids[:1]), max_new_tokens=40, eos_token_id=7, **options)
    processed = generation.Processed(
        ours.next_scores(), generation.repetition_penalty(1.4), generation.min_length(21, 7)
    )
    assert generation.generate(processed, ids[:1], 49, 7).tolist() == right.tolist()


# Encoders

ENCODER = {
    "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 24, "max_position_embeddings": 34, "type_vocab_size": 1,
    "hidden_act": "gelu",
}  # fmt: skip
LABELS = {"0": "good", "1": "bad", "2": "other"}


def encoder_config(kind):
    config = ENCODER
    if kind == "distilbert":
        config = {
            DISTILBERT_NAMES.get(k, k): x for k, x in config.items() if k != "type_vocab_size"
        }
    return {**config, "model_type": kind, "id2label": LABELS}


AUTO = {"BertEncoder": "", "MaskedLM": "ForMaskedLM"}
AUTO |= {"SequenceClassifier": "ForSequenceClassification"}
CLASSES = {"BertEncoder": BertEncoder, "MaskedLM": MaskedLM}
CLASSES |= {"SequenceClassifier": SequenceClassifier}


@needs_transformers
@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("kind", ENCODERS)
def test_an_encoder_is_that_of_transformers(kind, name, is_tied, tmp_path):
    import torch
    import transformers

    auto = getattr(transformers, f"AutoModel{AUTO[name]}")
    own = {"tie_word_embeddings": is_tied}
    config = transformers.AutoConfig.for_model(**encoder_config(kind), **own)
    torch.manual_seed(0)
    theirs = auto.from_config(config).eval()
    for parameter in theirs.parameters():
        parameter.data += torch.randn(parameter.shape) / 4
    ids, mask = rng_of(1).randint(3, 40, (2, 21)), np.ones((2, 21), bool)
    mask[1, 15:] = False
    ids[1, 15:] = ids[0, 4] = config.pad_token_id  # a text may have it too
    given = torch.tensor(ids), torch.tensor(mask.astype(int))
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-10)):
        theirs.to(dtype).save_pretrained(tmp_path / "theirs")
        right = theirs(*given)[0].detach().numpy()
        ours = CLASSES[name].from_pretrained(tmp_path / "theirs")
        assert not ours.training
        shown = mask if right.ndim == 3 else slice(None)
        assert_close(ours(ids, mask=mask).numpy()[shown], right[shown], tolerance)
        assert_close(ours(ids).numpy()[shown], right[shown], tolerance)  # padding is seen
        ours.save_pretrained(tmp_path / "ours")
        back = auto.from_pretrained(tmp_path / "ours").eval()
        assert_close(back(*given)[0].detach().numpy()[shown], right[shown], tolerance)


@pytest.mark.parametrize("kind", ENCODERS)
def test_a_config_that_does_not_say_so_ties_the_words(kind, tmp_path):
    config = encoder_config(kind)
    config.pop("tie_word_embeddings", None)
    assert MaskedLM(config).state_dict().keys() == (
        MaskedLM(config | {"tie_word_embeddings": True}).state_dict().keys()
    )


@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.parametrize("kind", ENCODERS)
def test_heads_are_read_and_written(kind, is_tied, tmp_path):
    config = encoder_config(kind) | {"tie_word_embeddings": is_tied}
    ids = rng_of(3).randint(3, 40, (2, 7))
    for cls in (MaskedLM, SequenceClassifier):
        model = cls(config).eval()
        model.save_pretrained(tmp_path)
        again = cls.from_pretrained(tmp_path)
        assert_equal(again(ids).numpy(), model(ids).numpy())
        # The heads are left out by the encoder alone.
        assert_equal(BertEncoder.from_pretrained(tmp_path)(ids).numpy(), model.encoder(ids).numpy())
        state = ta.load(tmp_path / "model.safetensors")
        name = next(iter(again.head_parts(again.config)))
        ta.save({k: x for k, x in state.items() if k != name}, tmp_path / "model.safetensors")
        with pytest.raises(CheckpointError, match=f"missing {name}"):
            cls.from_pretrained(tmp_path)
    assert again.labels == ["good", "bad", "other"]
    assert again(ids).shape == (2, 3)


def test_a_head_has_the_first_names_of_bert_too(tmp_path):
    """Those of bert-base-uncased: the norm of its head was missing."""
    model, path = MaskedLM(encoder_config("bert")).eval(), tmp_path / "model.safetensors"
    model.norm.weight.data = rng_of(4).rand(*model.norm.weight.shape).astype(np.float32)
    model.save_pretrained(tmp_path)
    state = ta.load(path)
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    first = {}
    for key, x in state.items():
        end = ".".join(key.split(".")[-2:])
        first[key.removesuffix(end) + old.get(end, end)] = x
    ta.save(first, path)
    ids = rng_of(3).randint(3, 40, (2, 7))
    assert_equal(MaskedLM.from_pretrained(tmp_path)(ids).numpy(), model(ids).numpy())
    norm = "cls.predictions.transform.LayerNorm"
    ta.save(first | {f"{norm}.weight": state[f"{norm}.weight"] + 1}, path)
    for cls in (MaskedLM, BertEncoder):
        with pytest.raises(CheckpointError, match=f"{norm}.weight is there twice, under an old"):
            cls.from_pretrained(tmp_path)


def test_a_head_that_should_be_the_table_of_words_is_compared(tmp_path):
    MaskedLM(encoder_config("bert")).save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    state, words = ta.load(path), "bert.embeddings.word_embeddings.weight"
    ta.save(state | {"cls.predictions.decoder.weight": state[words]}, path)
    MaskedLM.from_pretrained(tmp_path)
    ta.save(state | {"cls.predictions.decoder.weight": state[words] + 1}, path)
    with pytest.raises(CheckpointError, match=r"decoder\.weight differs from .*word_emb.*weight"):
        MaskedLM.from_pretrained(tmp_path)


@pytest.mark.parametrize("kind", ["qwen2", "gpt2"])
def test_a_tied_head_that_differs_is_an_error_that_names_both(kind, tmp_path):
    random_model(kind).save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    state = ta.load(path)
    words = "transformer.wte.weight" if kind == "gpt2" else "model.embed_tokens.weight"
    for more in (0, 1):
        ta.save(state | {"lm_head.weight": state[words] + more}, path)
        if not more:
            CausalLM.from_pretrained(tmp_path)
    name = words.removeprefix("transformer.")
    with pytest.raises(CheckpointError, match=rf"lm_head\.weight differs from {name}"):
        CausalLM.from_pretrained(tmp_path)


@pytest.mark.parametrize("kind", ["roberta", "xlm-roberta"])
def test_positions_of_roberta_begin_after_padding(kind):
    model = BertEncoder(encoder_config(kind)).eval()
    ids = rng_of(4).randint(3, 40, (1, 5))
    right = model(ids).numpy()
    table = model.position.weight
    with ta.no_grad():
        table[:2] += 100.0  # rows of padding, which no text reads
    assert_equal(model(ids).numpy(), right)
    with pytest.raises(ta.errors.ShapeError, match="ends at max_len=34"):
        model(rng_of(4).randint(3, 40, (1, 33)))


@pytest.mark.parametrize("kind", ["roberta", "xlm-roberta"])
def test_a_padding_id_within_a_text_of_roberta_is_not_counted(kind):
    """A text may have the word <pad>. Its position is then that of padding, as in transformers."""
    model = BertEncoder(encoder_config(kind)).eval()
    ids = np.array([[7, 8, 1, 9, 1, 6]])
    words = model.word(ids) + model.token_type.weight[0]
    x = model.norm(words + model.position.weight[[2, 3, 1, 4, 1, 5]])
    right = model.encoder(x).numpy()
    assert_close(model(ids).numpy(), right, 1e-6)
    padded = np.pad(ids, ((0, 0), (0, 2)), constant_values=1)
    assert_close(model(padded).numpy()[:, :6], right, 1e-6)
    assert_close(model(padded, valid_lens=[6]).numpy()[:, :6], right, 1e-6)


@pytest.mark.parametrize("kind", ["bert", "xlm-roberta"])
def test_ids_may_be_tensors_of_one_element_in_lists(kind):
    model = BertEncoder(encoder_config(kind)).eval()
    ids = [[ta.tensor([7]), 8], [9, ta.tensor([6])]]
    assert_equal(model(ids).numpy(), model([[7, 8], [9, 6]]).numpy())


def test_distilbert_has_no_types_of_tokens():
    with pytest.raises(ValueError, match="no token_types"):
        BertEncoder(encoder_config("distilbert"))([[4, 5]], token_types=[[0, 0]])


# Files


def test_weights_may_lie_in_several_files(tmp_path):
    model = random_model("qwen3")
    model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    state = ta.load(path)
    path.unlink()
    places = {}
    for i, names in enumerate(np.array_split(sorted(state), 3)):
        file = f"model-0000{i + 1}-of-00003.safetensors"
        ta.save({str(name): state[name] for name in names}, tmp_path / file)
        places |= dict.fromkeys(map(str, names), file)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    ids = rng_of(5).randint(0, 40, (1, 4))
    assert_equal(CausalLM.from_pretrained(tmp_path)(ids).numpy(), model(ids).numpy())
    with pytest.raises(ValueError, match="sha256 is of one file"):
        CausalLM.from_pretrained(tmp_path, sha256="0" * 64)
    for wrong, message in (
        ({**places, "more": file}, "they list other tensors"),
        ({**places, "more": "../x.safetensors"}, "must lie beside it"),
        ({**places, "more": index.name}, "must lie beside it"),
        ({**places, "more": 3}, "a file must be a string"),
        (None, "weight_map must be an object"),
    ):
        index.write_text(json.dumps({"weight_map": wrong}))
        with pytest.raises(CheckpointError, match=message):
            CausalLM.from_pretrained(tmp_path)
    (tmp_path / file).unlink()
    index.write_text(json.dumps({"weight_map": places}))
    with pytest.raises(FileNotFoundError, match=file):
        CausalLM.from_pretrained(tmp_path)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "bert", "roberta"])
def test_what_is_written_has_all_layers_and_no_others(kind, tmp_path):
    """Of an encoder the first layers may be kept. What a config does not say would be lost."""
    ids = rng_of(2).randint(3, 40, (1, 5))
    classes = (BertEncoder, MaskedLM, SequenceClassifier) if kind in ENCODERS else (CausalLM,)
    for cls in classes:
        model = cls(encoder_config(kind) if kind in ENCODERS else CONFIGS[kind]).eval()
        encoder = model.encoder if cls in (BertEncoder, CausalLM) else model.encoder.encoder
        encoder.layers = nn.ModuleList([encoder.layers[0]])
        for change in ("fewer", "more"):
            if cls != BertEncoder:
                name = {"fewer": "missing", "more": "unexpected"}[change]
                name += r" (encoder\.)?encoder\.layers\.[12]"
                with pytest.raises(CheckpointError, match=f"does not fit its config: .*{name}"):
                    model.save_pretrained(tmp_path / "no")
                assert not (tmp_path / "no").exists()
                model.config["num_hidden_layers"] = len(encoder.layers)
            model.save_pretrained(tmp_path)
            assert_equal(cls.from_pretrained(tmp_path)(ids).numpy(), model(ids).numpy())
            encoder.layers.append(nn.clones(encoder.layers[0], 1)[0])
            encoder.layers.append(nn.clones(encoder.layers[0], 1)[0])


def test_a_matrix_in_two_places_is_written_twice(tmp_path):
    """As with a head that is tied by hand. It was a KeyError."""
    model = CausalLM(CONFIGS["llama"] | {"tie_word_embeddings": False}).eval()
    model.head.weight = model.word.weight
    model.encoder.layers[1].self_attn.W_q.weight = model.encoder.layers[0].self_attn.W_q.weight
    model.save_pretrained(tmp_path)
    ids = rng_of(2).randint(3, 40, (1, 5))
    assert_equal(CausalLM.from_pretrained(tmp_path)(ids).numpy(), model(ids).numpy())


def test_a_tensor_of_gpt2_is_there_once(tmp_path):
    random_model("gpt2").save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    state = ta.load(path)
    ta.save(state | {"wpe.weight": state["transformer.wpe.weight"] + 1}, path)
    with pytest.raises(CheckpointError, match=r"twice, once without the transformer\."):
        CausalLM.from_pretrained(tmp_path)


def test_nothing_is_written_through_the_links_of_a_cache(tmp_path):
    """Other revisions of huggingface_hub's cache have the same files."""
    model, blobs, folder = random_model("llama"), tmp_path / "blobs", tmp_path / "snapshots" / "a"
    model.save_pretrained(blobs)
    folder.mkdir(parents=True)
    for path in blobs.iterdir():
        (folder / path.name).symlink_to(f"../../blobs/{path.name}")
    again = CausalLM.from_pretrained(folder)
    before = {path: path.read_bytes() for path in blobs.iterdir()}
    again.word.weight.data = again.word.weight.numpy() + 1
    with pytest.raises(FileExistsError, match="links into a cache of huggingface_hub"):
        again.save_pretrained(folder)
    assert {path: path.read_bytes() for path in blobs.iterdir()} == before
    again.save_pretrained(tmp_path / "own")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "model.safetensors").symlink_to("../own/model.safetensors")
    again.save_pretrained(tmp_path / "linked")  # a link of one's own is written through
    assert (tmp_path / "linked" / "model.safetensors").is_symlink()


def test_all_end_ids_end_a_text(tmp_path):
    model = random_model("llama")
    model.config["eos_token_id"] = 3
    model.save_pretrained(tmp_path)
    generation = tmp_path / "generation_config.json"
    for ends, right in (([5, 3, 7], [5, 3, 7]), (5, [5, 3]), (None, [3])):
        generation.write_text(json.dumps({"eos_token_id": ends, "temperature": 0.6}))
        assert CausalLM.from_pretrained(tmp_path).end_ids == right
    generation.write_text('{"eos_token_id": "a"}')
    model.config["bos_token_id"] = 9
    text = (tmp_path / "config.json").read_text()
    for use in (CausalLM.from_pretrained, model.save_pretrained):
        with pytest.raises(CheckpointError, match=r"generation_config\.json: eos_token_id must be"):
            use(tmp_path)
        assert (tmp_path / "config.json").read_text() == text  # nothing was written


def test_a_saved_model_does_not_end_at_the_ids_of_the_model_that_was_there(tmp_path):
    """Its own file of the same ids stays, because transformers reads a temperature in it too."""
    model = random_model("llama")
    model.config["eos_token_id"] = [3, 5]
    generation = tmp_path / "generation_config.json"
    for ends, stays in (([7], False), ([5, 7], False), ([5, 3], True), (3, True), (None, True)):
        generation.write_text(json.dumps({"eos_token_id": ends, "temperature": 0.6}))
        model.save_pretrained(tmp_path)
        assert generation.exists() == stays
        again = CausalLM.from_pretrained(tmp_path)
        assert set(again.end_ids) == {3, 5}
        again.save_pretrained(tmp_path)
        assert generation.exists() == stays
    generation.unlink()
    model.save_pretrained(tmp_path / "new")
    assert not generation.exists()


def test_a_tokenizer_of_sentencepiece_says_what_to_do(tmp_path):
    random_model("llama").save_pretrained(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"\n\x0e\n\x05<unk>")
    model = CausalLM.from_pretrained(tmp_path)
    match = r"tokenizer\.model of SentencePiece with the packages sentencepiece and protobuf: Auto"
    with pytest.raises(ValueError, match=match):
        model.generate_text("a")


def test_a_template_stands_in_one_of_two_files(tmp_path):
    random_model("llama").save_pretrained(tmp_path)
    settings = tmp_path / "tokenizer_config.json"
    named = [{"name": "tool_use", "template": "a"}, {"name": "default", "template": "b"}]
    for written, right in (("c", "c"), (named, "b"), (None, None)):
        others = {f"{name}_token": f"<{name}>" for name in ("unk", "sep", "pad", "cls", "mask")}
        words = {"bos_token": {"content": "<s>"}, "eos_token": "</s>", **others}
        settings.write_text(json.dumps({"chat_template": written, **words}))
        model = CausalLM.from_pretrained(tmp_path)
        assert model.chat_template == right
        assert model.special_words == words | {"bos_token": "<s>"}  # a template may have all
    (tmp_path / "chat_template.jinja").write_text("d\ne", encoding="utf-8")
    assert CausalLM.from_pretrained(tmp_path).chat_template == "d\ne"
    for name in ("chat_template.jinja", "config.json"):  # as editors of Windows save them
        text = (tmp_path / name).read_text("utf-8")
        (tmp_path / name).write_bytes(text.replace("\n", "\r\n").encode("utf-8-sig"))
    assert CausalLM.from_pretrained(tmp_path).chat_template == "d\ne"
    settings.write_text('{"eos_token": 3}')
    with pytest.raises(CheckpointError, match="eos_token must be a string"):
        CausalLM.from_pretrained(tmp_path)
