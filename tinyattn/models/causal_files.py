"""The files of language models: what their settings and tokens are called there and here.

The settings have Llama's names in the code; GGUF and GPT-2's folders have a column each in the
table. The names of tensors are in `published.py`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .. import nn
from ..base.checks import check_choice, check_heads, check_number, check_size, is_integer
from ..errors import CheckpointError
from .bert import ACTIVATIONS
from .published import GGUF, GPT2, LLAMA, check_tied
from .settings import NOTES, check_kind, check_known, is_there, naming, settings_of
from .tokenizer_files import OPTIONS, SPECIAL, TOKENIZER, read_tokenizer_json, tokenizers_package

# The families, and what their settings are where config.json does not say it, and Llama's differ.
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": 4096},
    "qwen2": {},
    "qwen3": {"head_dim": 128},
    "smollm3": {"rope_theta": 2e6, "no_rope_layer_interval": 4, "tie_word_embeddings": True},
    "gpt2": {"rms_norm_eps": 1e-5, "tie_word_embeddings": True},
}
# Those whose attention may see a window of keys; the windows of Mistral need no switch.
WINDOWED = ("mistral", "qwen2", "qwen3", "smollm3")
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
attention_dropout        -                                 attn_pdrop
"""
ROWS = [line.split() for line in SETTINGS.strip().splitlines()]
FROM_GGUF = {row[GGUF]: row[0] for row in ROWS if row[GGUF] != "-"}
FROM_GPT2 = {row[GPT2]: row[0] for row in ROWS if row[GPT2] != "-"}
SIZES = [row[0] for row in ROWS[:7]]  # integers above 0
# Read here, by the families that have them.
READ = """
attention_bias layer_types max_window_layers mlp_bias model_type no_rope_layer_interval
no_rope_layers pad_token_id rope_parameters rope_scaling sliding_window use_sliding_window
"""
# transformers has the last two in GPT-2 alone, and here every family has them. A config that does
# not say them drops nothing, where transformers' GPT-2 takes 0.1.
DROPOUTS = ("attention_dropout", "resid_pdrop", "embd_pdrop")
KNOWN: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys((*FROM_GGUF.values(), *NOTES.split(), *READ.split(), *DROPOUTS), ()),
    **dict.fromkeys(("is_causal", "scale_attn_weights"), (True,)),
}


def column_of(model_type: str) -> int:
    """The column of the tables of names for the folders of a family."""
    return GPT2 if model_type == "gpt2" else LLAMA


def checked_config(config: dict[str, Any]) -> dict[str, Any]:
    """The config under Llama's names, with every entry that is needed."""
    model_type = check_kind("a config", config, dict).get("model_type")
    check_choice("model_type", model_type, *FAMILIES)
    defaults: dict[str, Any] = {"initializer_range": 0.02, **dict.fromkeys(DROPOUTS, 0.0)}
    defaults |= {"hidden_act": "gelu_new", "rms_norm_eps": 1e-6, "tie_word_embeddings": False}
    if model_type == "gpt2":
        config = {FROM_GPT2.get(name, name): value for name, value in config.items()}
    else:
        defaults |= {"hidden_act": "silu", "rope_theta": 1e4, "use_sliding_window": False}
        # A window of null stays null, because a config that is checked is checked again.
        defaults |= {"attention_bias": False, "mlp_bias": False, "sliding_window": None}
        config = config | {"rope_parameters": None, "rope_scaling": None} | rope_settings(config)
    config = defaults | FAMILIES[str(model_type)] | config
    config = defaults | {name: x for name, x in config.items() if x is not None}
    activations = tuple(ACTIVATIONS) if model_type == "gpt2" else ("silu", "swish")
    config = check_known(config, KNOWN | {"hidden_act": activations})
    config.setdefault("num_key_value_heads", config.get("num_attention_heads"))
    width = check_size("hidden_size", config.get("hidden_size"))
    config["intermediate_size"] = config.get("intermediate_size", 4 * width)
    for name in SIZES:
        check_size(name, config.get(name))
    check_numbers(config)
    return config


def rope_settings(config: dict[str, Any]) -> dict[str, Any]:
    """rope_theta and rope_scaling, which transformers 5 writes together as rope_parameters. As
    there, rope_scaling may have both too, and comes first."""
    given = {name: config.get(name) for name in ("rope_scaling", "rope_parameters")}
    first, second = (check_kind(n, {} if x is None else x, dict) for n, x in given.items())
    scaling = {**(first or second)}
    base = {"rope_theta": scaling.pop("rope_theta")} if "rope_theta" in scaling else {}
    is_plain = scaling.get("rope_type", scaling.get("type", "default")) == "default"
    plain: dict[str, tuple[Any, ...]] = {"rope_type": ("default",), "type": ("default",)}
    known = plain if is_plain else dict.fromkeys(scaling, ())
    check_known(scaling, known | {"partial_rotary_factor": (1,)})
    return base if is_plain else base | {"rope_scaling": scaling}


def check_numbers(config: dict[str, Any]) -> None:
    """What is left to check of a config with sizes."""
    width, heads = config["hidden_size"], config["num_attention_heads"]
    if "head_dim" not in config:
        check_heads(width, heads)
        config["head_dim"] = width // heads
    check_size("head_dim", config["head_dim"])
    if heads % config["num_key_value_heads"]:
        raise ValueError(f"num_key_value_heads {config['num_key_value_heads']} must divide {heads}")
    if config["model_type"] == "gpt2":
        if config["head_dim"] * heads != width:
            raise ValueError(f"head_dim must be {width // heads} here, got {config['head_dim']}")
    else:
        rotary_of(config)
        check_layers(config)
        for name in ("attention_bias", "mlp_bias", "use_sliding_window"):
            check_kind(name, config[name], bool)
    if not check_number("rms_norm_eps", config["rms_norm_eps"], 0):
        raise ValueError("rms_norm_eps must be more than 0")
    check_number("initializer_range", config["initializer_range"], 0)
    for name in DROPOUTS:
        check_number(name, config[name], 0, 1)
    check_kind("tie_word_embeddings", config["tie_word_embeddings"], bool)
    stops_of(config)


def rotary_of(config: dict[str, Any]) -> nn.RotaryEmbedding:
    """The rotation of queries and keys; an error for a wrong base, scaling or width of heads."""
    base, scaling = check_number("rope_theta", config["rope_theta"], 1), config.get("rope_scaling")
    if scaling is not None:
        positions = {"original_max_position_embeddings": config["max_position_embeddings"]}
        scaling = (positions if "yarn" in scaling.values() else {}) | scaling
    return nn.RotaryEmbedding(config["head_dim"], base, scaling)


def turns_in(config: dict[str, Any], layer: int) -> bool:
    """Whether a layer turns queries and keys by their positions."""
    every = config.get("no_rope_layer_interval", config["num_hidden_layers"] + 1)
    given = config.get("no_rope_layers")  # 1 for layers that turn
    return config["model_type"] != "smollm3" or bool(given[layer] if given else (layer + 1) % every)


def window_in(config: dict[str, Any], layer: int) -> int | None:
    """How many keys a query of a layer sees at most, None for all."""
    kind, types = config["model_type"], config.get("layer_types")
    if kind not in WINDOWED or not (kind == "mistral" or config["use_sliding_window"]):
        return None
    if types:
        slides = types[layer] == "sliding_attention"
    elif kind == "smollm3":
        slides = not turns_in(config, layer)
    else:
        slides = kind == "mistral" or layer >= config.get("max_window_layers", 28)
    return config.get("sliding_window") if slides else None


def check_layers(config: dict[str, Any]) -> None:
    """Windows, and the lists that have an entry for each layer."""
    layers = config["num_hidden_layers"]
    if config.get("sliding_window") is not None:
        check_size("sliding_window", config["sliding_window"])
    check_size("max_window_layers", config.get("max_window_layers", 0), 0)
    check_size("no_rope_layer_interval", config.get("no_rope_layer_interval", 1))
    allowed: dict[str, tuple[Any, ...]] = {
        "layer_types": ("full_attention", "sliding_attention"),
        "no_rope_layers": (0, 1),
    }
    for name, values in allowed.items():
        given = check_kind(name, config.get(name, []), list)
        if given and (len(given) != layers or any(one not in values for one in given)):
            raise ValueError(f"{name} are one of {values} for {layers} layers, got {given!r:.60}")


def stops_of(config: dict[str, Any]) -> list[int]:
    """The ids that end a text; ValueError for what is no id."""
    ids = config.get("eos_token_id")
    if not isinstance(ids, list):
        ids = [] if ids is None else [ids]
    for id in ids:
        if not is_integer(id):
            raise ValueError(f"eos_token_id must be a token id, got {id!r:.60}")
    return ids


# Of tokenizer_config.json: what other libraries do with texts, which no call here does.
KEPT = ("model_max_length", "padding_side", "truncation_side")


def with_end_ids(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The config with the end ids of generation_config.json too."""
    with settings_of(folder / "generation_config.json") as settings:
        ends = stops_of(settings)
    ids = dict.fromkeys([*ends, *stops_of(config)])
    return config | {"eos_token_id": list(ids)} if ends else config


def folder_tokenizer(folder: Path, data: bytes, settings: dict[str, Any]) -> Any:
    """The tokenizer of tokenizer.json, with the tokens that tokenizer_config.json adds.

    It neither pads nor cuts, whatever tokenizer.json says, because texts come one at a time.
    The contents of both are given, because the folder may be gone when a tokenizer is wanted.
    """
    with naming(folder):
        tokenizer = read_tokenizer_json(data)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    there = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    with naming(folder / TOKENIZER[1]):
        for token in tokens_of(settings):
            word = check_kind("the content of a token", token.get("content"), str)
            if word not in there:
                given = {name: bool(token.get(name)) for name in (*OPTIONS, "special")}
                tokenizer.add_tokens([tokenizers_package().AddedToken(word, **given)])
    return tokenizer


def tokens_of(settings: dict[str, Any]) -> list[dict[str, Any]]:
    """The tokens that tokenizer_config.json adds, with the special ones, as in transformers."""
    added = check_kind("added_tokens_decoder", settings.get("added_tokens_decoder", {}), dict)
    special = [settings.get(name) for name in ("bos_token", "eos_token", *SPECIAL)]
    for name in ("additional_special_tokens", "extra_special_tokens"):
        more = settings.get(name) or []
        special += more.values() if isinstance(more, dict) else check_kind(name, more, list)
    words = [x if isinstance(x, dict) else {"content": x} for x in special if x is not None]
    tokens = [check_kind(f"token {id}", added[id], dict) for id in sorted(added, key=int)]
    return tokens + [word | {"special": True} for word in words]


def chat_settings(
    folder: Path, settings: dict[str, Any]
) -> tuple[str | None, dict[str, str | None]]:
    """The template of a chat, and the words that it uses, of a folder with a tokenizer."""
    path = folder / TOKENIZER[1]
    template = settings.get("chat_template")
    if isinstance(template, list):  # of several, by their names
        with naming(path):
            named = {check_kind("a template", one, dict).get("name"): one for one in template}
        template = named.get("default", {}).get("template")
    if is_there(file := folder / "chat_template.jinja"):
        with naming(file):
            template = file.read_text(encoding="utf-8-sig")
    words = {name: settings.get(name) for name in ("bos_token", "eos_token", *SPECIAL)}
    words = {name: x.get("content") if isinstance(x, dict) else x for name, x in words.items()}
    found = {"chat_template": template, **words}
    with naming(path):
        given = {name: check_kind(name, x, str) for name, x in found.items() if x is not None}
    return given.pop("chat_template", None), given


SCALING_IN_GGUF = {
    "rope.scaling.type": "rope_type",
    "rope.scaling.factor": "factor",
    "rope.scaling.original_context_length": "original_max_position_embeddings",
    "rope.scaling.attn_factor": "attention_factor",
    "rope.scaling.finetuned": "finetuned",
}
# The scaling of Llama 3.1 to 3.2, and the ids that end a text or a turn, in GGUF files.
LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 8192}
ENDS = ("eos", "eot", "eom")
# Types of tokens in GGUF files: usual, for what is unknown, control, and added by users.
USUAL, UNKNOWN, CONTROL, OWN = range(1, 5)


def gguf_words(settings: dict[str, Any]) -> dict[str, str | None]:
    """The words of a chat's template, by their ids in a GGUF file."""
    words = dict(enumerate(settings.get("tokenizer.ggml.tokens", ())))
    names = ("bos_token", "eos_token")
    return {name: words.get(settings.get(f"tokenizer.ggml.{name}_id", -1)) for name in names}


def gguf_config(
    settings: dict[str, Any], is_tied: bool, divisors: np.ndarray | None = None
) -> dict[str, Any]:
    """The checked config that the settings of a GGUF file say.

    divisors: of the rates of rotation, which is what such a file has of the scaling of Llama 3.1.
    """
    kind = settings.get("general.architecture")
    check_choice("general.architecture", kind, "llama", "qwen2", "qwen3")
    config: dict[str, Any] = {"model_type": kind, "tie_word_embeddings": is_tied}
    scaling: dict[str, Any] = {}
    for key, value in settings.items():
        family, _, name = key.partition(".")
        if family != kind or name == "vocab_size":
            continue
        if name in SCALING_IN_GGUF:
            scaling[SCALING_IN_GGUF[name]] = value
            continue
        if name not in FROM_GGUF:
            raise ValueError(f"the setting {key} is unknown here, with the value {value!r:.60}")
        name = FROM_GGUF[name]
        if name in config and config[name] != value:
            raise ValueError(f"{key} is {value!r:.60}, and another setting says {config[name]!r}")
        config[name] = value
    words = settings.get("tokenizer.ggml.tokens", ())
    config["vocab_size"] = settings.get(f"{kind}.vocab_size", len(words))
    if scaling.get("rope_type", "none") != "none":
        config["rope_scaling"] = scaling
    ids = {name: settings.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", *ENDS)}
    config["bos_token_id"] = ids["bos"]
    config["eos_token_id"] = [ids[name] for name in ENDS if ids[name] is not None]
    if divisors is None:
        return checked_config(config)
    config.setdefault("rope_scaling", LLAMA3 | {"factor": float(divisors.max())})
    config = checked_config(config)
    plain = nn.RotaryEmbedding(config["head_dim"], config["rope_theta"]).rates
    rates = rotary_of(config).rates
    if divisors.shape != rates.shape or not np.allclose(rates * divisors, plain, 1e-4, 0):
        raise ValueError(f"rope_freqs.weight is another scaling than {config['rope_scaling']}")
    return config


def used_tensors(state: Mapping[str, Any], is_tied: bool, path: Any) -> dict[str, Any]:
    """The tensors of a state that count. GPT-2's names lose their prefix; those of the layers
    alone, as LlamaModel is saved, get the one that they have in a whole model."""
    kept = [key for key in state if not key.endswith(IGNORED)]
    used = {key.removeprefix("transformer."): state[key] for key in kept}
    if "embed_tokens.weight" in used:
        used = {key if key == "lm_head.weight" else f"model.{key}": x for key, x in used.items()}
    if len(used) < len(kept):
        raise CheckpointError(f"{path}: a tensor is there twice, once without the transformer.")
    if is_tied:
        for words in ("model.embed_tokens.weight", "wte.weight"):
            check_tied(used, "lm_head.weight", words, path)
        used.pop("lm_head.weight", None)
    return used


def published_config(config: dict[str, Any]) -> dict[str, Any]:
    """The config under the names of its architecture."""
    is_gpt2 = config["model_type"] == "gpt2"
    names = {ours: theirs for theirs, ours in FROM_GPT2.items()} if is_gpt2 else {}
    # null, where nothing is said, because transformers has other values for some families then.
    config = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id")) | config
    return {names.get(k, k): v for k, v in config.items() if k not in ("dtype", "torch_dtype")}


# How the tokenizers of GGUF files cut a text before BPE, by the regular expression of each.
LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
SPACES = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CUTS = {
    "smollm": None,  # digits alone, and then as GPT-2
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), LETTERS + r"\p{N}" + SPACES),
    "llama-bpe": LETTERS + r"\p{N}{1,3}" + SPACES,
}


def gguf_tokenizer(settings: dict[str, Any]) -> Any:
    """The tokenizer of a GGUF file: BPE of bytes, or that of SentencePiece, as Llama 2 has it."""
    kind, cut = (settings.get(f"tokenizer.ggml.{name}") for name in ("model", "pre"))
    if kind != "llama" and (kind != "gpt2" or cut not in CUTS):
        raise ValueError(
            f"tokenizer.ggml.model must be llama, or gpt2 with pre one of {list(CUTS)}, got "
            f"{[kind, cut]}: give the model another one by model.tokenizer = ..."
        )
    words, types = gguf_list(settings, "tokens"), gguf_list(settings, "token_type")
    package, ids = tokenizers_package(), {word: i for i, word in enumerate(words)}
    if kind == "llama":
        tokenizer = sentencepiece_bpe(package, ids, types, settings)
    else:
        tokenizer = bytes_bpe(package, ids, str(cut), settings)
    for word, number in zip(words, types, strict=True):
        if number in (CONTROL, OWN):
            token = package.AddedToken(word, special=number == CONTROL, normalized=False)
            tokenizer.add_tokens([token])
    first = gguf_words(settings).get("bos_token")
    # llama.cpp adds the first token of Llama's files, where they do not say it.
    is_added = settings.get("tokenizer.ggml.add_bos_token", "llama" in (kind, str(cut)[:5]))
    if is_added and first is not None:
        tokenizer.post_processor = package.processors.TemplateProcessing(
            single=f"{first} $A", special_tokens=[(first, ids[first])]
        )
    return tokenizer


def gguf_list(settings: dict[str, Any], name: str) -> list[Any]:
    """What a tokenizer has for each word, or its merges."""
    return check_kind(f"tokenizer.ggml.{name}", settings.get(f"tokenizer.ggml.{name}"), list)


def bytes_bpe(package: Any, ids: dict[str, int], cut: str, settings: dict[str, Any]) -> Any:
    """BPE of the bytes of a text that is cut into words before."""
    pairs = [tuple(merge.split(" ")) for merge in gguf_list(settings, "merges")]
    # Llama 3 takes a word that it has whole, also where its pairs do not lead to it.
    bpe = package.models.BPE(ids, pairs, ignore_merges=cut == "llama-bpe")
    tokenizer, pieces, pattern = package.Tokenizer(bpe), package.pre_tokenizers, CUTS[cut]
    if pattern is None:
        first = pieces.Digits(individual_digits=True)
    else:
        first = pieces.Split(package.Regex(pattern), "isolated")
    bytes_ = pieces.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    tokenizer.pre_tokenizer = pieces.Sequence([first, bytes_])
    if pattern == CUTS["qwen2"]:
        tokenizer.normalizer = package.normalizers.NFC()
    tokenizer.decoder = package.decoders.ByteLevel()
    return tokenizer


def sentencepiece_bpe(
    package: Any, ids: dict[str, int], types: list[int], settings: dict[str, Any]
) -> Any:
    """BPE of letters that joins the pair with the highest score; other letters become bytes."""
    scores = gguf_list(settings, "scores")
    joined = (word for word, i in ids.items() if types[i] == USUAL)
    pairs = ((word[:n], word[n:]) for word in joined for n in range(1, len(word)))
    known = [(a, b) for a, b in pairs if a in ids and b in ids]
    known.sort(key=lambda pair: -scores[ids["".join(pair)]])
    unknown = next((word for word, i in ids.items() if types[i] == UNKNOWN), None)
    options = {"unk_token": unknown, "fuse_unk": True, "byte_fallback": True}
    tokenizer = package.Tokenizer(package.models.BPE(ids, known, **options))
    before, after = package.normalizers, package.decoders
    spaces, steps = [before.Replace(" ", "▁")], [after.Replace("▁", " "), after.ByteFallback()]
    steps.append(after.Fuse())
    if settings.get("tokenizer.ggml.add_space_prefix", True):
        spaces, steps = [before.Prepend("▁"), *spaces], [*steps, after.Strip(" ", 1, 0)]
    tokenizer.normalizer, tokenizer.decoder = before.Sequence(spaces), after.Sequence(steps)
    return tokenizer
