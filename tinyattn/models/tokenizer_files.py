"""The files of a tokenizer: what transformers makes of them, said in tokenizer.json alone.

transformers 5 makes a BertTokenizer from the words of tokenizer.json and the settings of
tokenizer_config.json, whatever else tokenizer.json says. It takes a TokenizersBackend, which was
called PreTrainedTokenizerFast, from tokenizer.json as it stands; so are those of RoBERTa here.
"""

import json
from typing import Any

from ..base.checks import optional_package
from ..errors import CheckpointError
from .settings import check_kind, check_known

# The first has all of the tokenizer, and the second has settings that come first.
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
BERTS = [f"{x}BertTokenizer{y}" for x in ("", "Distil") for y in ("", "Fast")]
AS_IT_STANDS = ["TokenizersBackend", "PreTrainedTokenizerFast"]
AS_IT_STANDS += [f"{x}RobertaTokenizer{y}" for x in ("", "XLM") for y in ("", "Fast")]
SPECIAL = {  # in the order in which transformers adds those that are new
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}
# Of a token that is added to a tokenizer: where it is found in a text.
OPTIONS = ("single_word", "lstrip", "rstrip", "normalized")
# Notes, what decodes ids, and options of other calls: none changes the ids of a text.
NOTES = """
_commit_hash backend chat_template clean_up_tokenization_spaces from_slow is_local local_files_only
max_length name_or_path pad_to_multiple_of pad_token_type_id processor_class special_tokens_map_file
stride tokenizer_file truncation_strategy use_fast verbose vocab_file
"""
# What tokenizer_config.json may say; () is for any value, which is checked where it is read.
KNOWN: dict[str, tuple[Any, ...]] = {
    "tokenizer_class": (*BERTS, *AS_IT_STANDS, None),
    **dict.fromkeys(("do_lower_case", "tokenize_chinese_chars"), (True, False)),
    "strip_accents": (True, False, None),
    "do_basic_tokenize": (True,),
    "split_special_tokens": (False,),
    **dict.fromkeys(("never_split", "additional_special_tokens"), (None, [])),
    "extra_special_tokens": (None, [], {}),
    "auto_map": (None, {}),
    **{name: (word,) for name, word in SPECIAL.items()},
    **dict.fromkeys(("model_max_length", "max_len", "padding_side", "truncation_side"), ()),
    **dict.fromkeys(("model_input_names", "added_tokens_decoder", *NOTES.split()), ()),
}
# Of a tokenizer that is taken as it stands, tokenizer.json alone counts, for special words too.
SAID_TWICE = "add_prefix_space bos_token eos_token errors sp_model_kwargs trim_offsets"


def tokenizers_package() -> Any:
    return optional_package("tokenizers", "texts need the package tokenizers", "text")


def checked_text(name: str, text: Any) -> str:
    """ValueError for what is no text, also for one with halves of characters, which the package
    tokenizers does not take: a terminal makes them of bytes that are not UTF-8."""
    if not isinstance(text, str):
        raise ValueError(f"{name} is a text, got {text!r:.60}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name} is not UTF-8 at character {error.start}: {text!r:.60}; half of a surrogate "
            'pair is no character, and text.encode(errors="replace").decode() replaces it'
        ) from None
    return text


def read_tokenizer_json(content: bytes) -> Any:
    """The tokenizer of the bytes of tokenizer.json."""
    try:
        return tokenizers_package().Tokenizer.from_buffer(content)
    except ValueError as error:
        raise CheckpointError(f"{TOKENIZER[0]} is damaged: {error}") from None


def checked_config(config: dict[str, Any], kind: Any) -> None:
    """Refuse what a tokenizer of the class `kind` is not, and what is unknown."""
    words = {n: x["content"] for n, x in config.items() if n in SPECIAL and is_plain(x)}
    others = (*SPECIAL, *SAID_TWICE.split()) if kind in AS_IT_STANDS else ()
    check_known(config | words, KNOWN | dict.fromkeys(others, ()))
    names = check_kind("model_input_names", config.get("model_input_names") or [], list)
    if names and not all(name in names for name in ("input_ids", "attention_mask")):
        raise ValueError(f"model_input_names must have attention_mask here, got {names!r:.60}")


def is_plain(token: Any) -> bool:
    """Whether a special token is an object without options that change where it is found."""
    known = {*OPTIONS, "content", "special", "__type", "id"}
    return (
        isinstance(token, dict)
        and isinstance(token.get("content"), str)
        and set(token) <= known
        and not any(token.get(option) for option in OPTIONS)
    )


def normalized(
    content: bytes, tokenizer: dict[str, Any], config: dict[str, Any], lower: bool
) -> bytes:
    """tokenizer.json with the settings of tokenizer_config.json, because these come first.

    content, tokenizer: the bytes of tokenizer.json, and what they say.
    lower: texts become lowercase before anything else.
    """
    before = json.dumps(tokenizer)
    checked_config(config, config.get("tokenizer_class"))
    for part, side in (("padding", "padding_side"), ("truncation", "truncation_side")):
        given = tokenizer.get(part)
        direction = given.get("direction", "Right") if isinstance(given, dict) else "Right"
        if str(config.get(side, direction)).lower() != "right":
            raise ValueError(f"{side} must be 'right', got {config.get(side, direction)!r:.60}")
    if config.get("tokenizer_class") not in AS_IT_STANDS:
        make_bert(tokenizer, config)
    check_added(tokenizer, config.get("added_tokens_decoder") or {})
    parts = normalizers(tokenizer)
    if lower and not any(part.get("type") == "Lowercase" for part in parts):
        parts = [{"type": "Lowercase"}, *parts]
        tokenizer["normalizer"] = {"type": "Sequence", "normalizers": parts}
    return content if json.dumps(tokenizer) == before else json.dumps(tokenizer).encode()


def make_bert(tokenizer: dict[str, Any], config: dict[str, Any]) -> None:
    """Everything but the words becomes that of transformers' BertTokenizer."""
    model = tokenizer["model"]
    usual = {
        "type": "WordPiece",
        "unk_token": SPECIAL["unk_token"],
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
    }
    for key, expected in usual.items():
        found = model.get(key, expected)
        if found != expected:
            raise ValueError(f"{TOKENIZER[0]}: model.{key} must be {expected!r}, got {found!r:.60}")
    vocab = model.get("vocab")
    ids = {word: vocab.get(word) for word in SPECIAL.values()} if isinstance(vocab, dict) else {}
    for name in ("unk_token", "cls_token", "sep_token"):
        if ids.get(SPECIAL[name]) is None:
            raise ValueError(f"{TOKENIZER[0]} must have the word {SPECIAL[name]}, the {name}")
    tokenizer["normalizer"] = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": config.get("tokenize_chinese_chars", True),
        "strip_accents": config.get("strip_accents"),
        "lowercase": config.get("do_lower_case", True),
    }
    tokenizer["pre_tokenizer"] = {"type": "BertPreTokenizer"}
    ends = {key: [f"[{key.upper()}]", ids[f"[{key.upper()}]"]] for key in ("sep", "cls")}
    tokenizer["post_processor"] = {"type": "BertProcessing", **ends}
    added = added_tokens(tokenizer)
    there = {token["content"] for token in added}
    for word, id in ids.items():
        if id is not None and word not in there:
            options = dict.fromkeys(OPTIONS, False)
            added.append({"id": id, "content": word, **options, "special": True})
    tokenizer["added_tokens"] = sorted(added, key=lambda token: token["id"])


def added_tokens(tokenizer: dict[str, Any]) -> list[dict[str, Any]]:
    added = check_kind("added_tokens", tokenizer.get("added_tokens") or [], list)
    for token in added:
        check_kind("an added token", token, dict)
        if not isinstance(token.get("id"), int) or not isinstance(token.get("content"), str):
            raise ValueError(f"an added token must have an id and its content, got {token!r:.60}")
    return list(added)


def check_added(tokenizer: dict[str, Any], theirs: Any) -> None:
    """What tokenizer_config.json adds is in tokenizer.json too, in the same form."""
    ours = {str(token["id"]): token for token in added_tokens(tokenizer)}
    for id, token in check_kind("added_tokens_decoder", theirs, dict).items():
        check_kind(f"token {id} of added_tokens_decoder", token, dict)
        same = ours.get(id, {})
        if any(name in token and token[name] != same.get(name) for name in ("content", *OPTIONS)):
            raise ValueError(
                f"added_tokens_decoder has {token!r:.90} for id {id}, and {TOKENIZER[0]} has "
                f"{same or 'none'}"
            )


def normalizers(tokenizer: Any) -> list[dict[str, Any]]:
    """The steps that a text takes before it becomes words."""
    one = tokenizer.get("normalizer") if isinstance(tokenizer, dict) else None
    parts = one.get("normalizers") if isinstance(one, dict) and "normalizers" in one else [one]
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
