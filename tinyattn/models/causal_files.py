"""The files of language models: what their settings and tokens are called there and here.

The settings have Llama's names in the code; GGUF and GPT-2's folders have a column each in the
table. The names of tensors are in `published.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..base.checks import check_heads, check_number, check_size, describe, is_integer
from ..errors import CheckpointError
from .bert import ACTIVATIONS, NOTES
from .published import GGUF, GPT2, LLAMA
from .settings import check_kind, check_known
from .tokenizer_files import tokenizers_package

COLUMNS = {"llama": LLAMA, "qwen2": LLAMA, "gpt2": GPT2}  # of a folder, by its model_type
IGNORED = (".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias")  # ends of tensors' names
SETTINGS = """
vocab_size               vocab_size                        vocab_size
hidden_size              embedding_length                  n_embd
num_hidden_layers        block_count                       n_layer
num_attention_heads      attention.head_count              n_head
num_key_value_heads      attention.head_count_kv           -
intermediate_size        feed_forward_length               n_inner
max_position_embeddings  context_length                    n_positions
rms_norm_eps             attention.layer_norm_rms_epsilon  layer_norm_epsilon
hidden_act               -                                 activation_function
rope_theta               rope.freq_base                    -
head_dim                 rope.dimension_count              -
head_dim                 attention.key_length              -
head_dim                 attention.value_length            -
"""
FROM_GGUF, FROM_GPT2 = (
    {line.split()[column]: line.split()[0] for line in SETTINGS.strip().splitlines()}
    for column in (GGUF, GPT2)
)
SIZES = [line.split()[0] for line in SETTINGS.strip().splitlines()][:7]
FALSE = """
add_cross_attention attention_bias mlp_bias reorder_and_upcast_attn rope_interleaved
scale_attn_by_inverse_layer_idx use_sliding_window
"""
# Without influence here, as BERT's notes are.
MORE_NOTES = """
attention_dropout attn_pdrop embd_pdrop is_llama_config max_window_layers model_type n_ctx
resid_pdrop sliding_window summary_activation summary_first_dropout summary_proj_to_labels
summary_type summary_use_proj
"""
KNOWN: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys((*FROM_GGUF.values(), *NOTES.split(), *MORE_NOTES.split(), "layer_types"), ()),
    **dict.fromkeys(FALSE.split(), (False,)),
    "scale_attn_weights": (True,),
    "pretraining_tp": (1,),
}
GELUS = tuple(name for name, ours in ACTIVATIONS.items() if ours == "gelu_tanh")


def checked_config(config: dict[str, Any]) -> dict[str, Any]:
    """The config under Llama's names, with every entry that is needed."""
    model_type = check_kind("a config", config, dict).get("model_type")
    column = COLUMNS.get(str(model_type))
    if column is None:
        found = describe(model_type)
        raise CheckpointError(f"model_type must be one of {list(COLUMNS)} here, got {found}")
    config = {name: value for name, value in config.items() if value is not None}
    defaults: dict[str, Any] = {"hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 1e4}
    if column == GPT2:
        config = {FROM_GPT2.get(name, name): value for name, value in config.items()}
        defaults = {"hidden_act": "gelu_new", "rms_norm_eps": 1e-5}
    else:
        rope = check_kind("rope_parameters", config.pop("rope_parameters", {}), dict)
        check_known(rope, {"rope_theta": (), "rope_type": ("default",)})
        config |= {name: value for name, value in rope.items() if name == "rope_theta"}
    config = defaults | {"tie_word_embeddings": column == GPT2} | config
    check_known(config, KNOWN | {"hidden_act": GELUS if column == GPT2 else ("silu",)})
    config.setdefault("num_key_value_heads", config.get("num_attention_heads"))
    width = check_size("hidden_size", config.get("hidden_size"))
    config["intermediate_size"] = config.get("intermediate_size", 4 * width)
    for name in SIZES:
        check_size(name, config.get(name))
    check_numbers(config)
    return config


def check_numbers(config: dict[str, Any]) -> None:
    """What is left to check of a config with sizes."""
    width, heads = config["hidden_size"], config["num_attention_heads"]
    check_heads(width, heads)
    if heads % config["num_key_value_heads"]:
        raise ValueError(f"num_key_value_heads {config['num_key_value_heads']} must divide {heads}")
    if config.setdefault("head_dim", width // heads) != width // heads:
        raise ValueError(f"head_dim must be {width // heads} here, got {config['head_dim']!r:.60}")
    if check_number("rope_theta", config.get("rope_theta", 1), 1) and width // heads % 2:
        raise ValueError(f"heads have an even size, because rotary turns pairs: {width // heads}")
    if not check_number("rms_norm_eps", config["rms_norm_eps"], 0):
        raise ValueError("rms_norm_eps must be more than 0")
    check_kind("tie_word_embeddings", config["tie_word_embeddings"], bool)
    if set(map(str, config.get("layer_types", ()))) - {"full_attention"}:
        raise ValueError(f"layer_types must be full_attention, got {config['layer_types']!r:.60}")
    for id in stops_of(config):
        if not is_integer(id):
            raise ValueError(f"eos_token_id must be a token id, got {describe(id)}")


def stops_of(config: dict[str, Any]) -> list[int]:
    """The ids that end a text."""
    ids = config.get("eos_token_id", [])
    return ids if isinstance(ids, list) else [ids]


def gguf_config(settings: dict[str, Any], is_tied: bool) -> dict[str, Any]:
    """The config that the settings of a GGUF file say."""
    kind = settings.get("general.architecture")
    if kind != "llama":
        raise ValueError(f"general.architecture must be llama here, got {describe(kind)}")
    config = {"model_type": kind, "tie_word_embeddings": is_tied}
    for key, value in settings.items():
        family, _, name = key.partition(".")
        name = FROM_GGUF.get(name, key)
        if family == "llama" and name in config and config[name] != value:
            raise ValueError(f"{key} is {value!r:.60}, and another setting says {config[name]!r}")
        config |= {name: value} if family == "llama" else {}
    ids = ("bos_token_id", "eos_token_id")
    return config | {name: settings.get(f"tokenizer.ggml.{name}") for name in ids}


def used_tensors(state: Mapping[str, Any], is_tied: bool) -> dict[str, Any]:
    """The tensors of a state that count, under names without the prefix of GPT-2."""
    return {
        key.removeprefix("transformer."): value
        for key, value in state.items()
        if not key.endswith(IGNORED) and not (is_tied and key == "lm_head.weight")
    }


def published_config(config: dict[str, Any]) -> dict[str, Any]:
    """The config under the names of its architecture."""
    names = {ours: theirs for theirs, ours in FROM_GPT2.items() if theirs != "-"}
    names = names if config["model_type"] == "gpt2" else {}
    return {names.get(k, k): v for k, v in config.items() if k not in ("dtype", "torch_dtype")}


# SmolLM2's template of a chat, and what its rules say.
CHAT_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


def chat_prompt(template: str | None, messages: Iterable[dict[str, str]]) -> str:
    """The text of a chat, up to where the answer begins."""
    if str(template).replace("\\n", "\n") != CHAT_TEMPLATE:  # a folder writes \n as two letters
        raise ValueError(
            f"this model has {'no' if template is None else 'another'} template of a chat than "
            "SmolLM2's: write the text of the chat yourself, and give it to generate_text"
        )
    messages = list(messages)
    for message in messages:
        if not isinstance(message, dict) or not {"role", "content"} <= set(message):
            raise ValueError(f'a message is {{"role": ..., "content": ...}}, got {message!r:.60}')
    if messages and messages[0]["role"] != "system":
        messages = [{"role": "system", "content": SYSTEM}, *messages]
    parts = [f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages]
    return "".join(parts) + "<|im_start|>assistant\n"


def gguf_tokenizer(settings: dict[str, Any]) -> Any:
    """The tokenizer of a GGUF file like SmolLM2's: byte-level BPE, where digits stand alone."""
    kinds = [settings.get(f"tokenizer.ggml.{name}") for name in ("model", "pre")]
    if kinds != ["gpt2", "smollm"]:
        raise ValueError(f"tokenizer.ggml.model and pre must be gpt2 and smollm, got {kinds}")
    words, merges, types = (
        check_kind(f"tokenizer.ggml.{name}", settings.get(f"tokenizer.ggml.{name}"), list)
        for name in ("tokens", "merges", "token_type")
    )
    package = tokenizers_package()
    pairs = [tuple(merge.split(" ")) for merge in merges]
    ids = {word: i for i, word in enumerate(words)}
    tokenizer = package.Tokenizer(package.models.BPE(ids, pairs))
    tokenizer.pre_tokenizer = package.pre_tokenizers.Sequence(
        [
            package.pre_tokenizers.Digits(individual_digits=True),
            package.pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = package.decoders.ByteLevel()
    special = [word for word, kind in zip(words, types, strict=True) if kind == 3]
    tokenizer.add_special_tokens(
        [package.AddedToken(word, special=True, normalized=False) for word in special]
    )
    return tokenizer
