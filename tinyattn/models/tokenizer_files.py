"""The files of a tokenizer: tokenizer.json decides, and settings beside it may say more.

As in transformers 4, a BertTokenizer has three settings of its normalizer from
tokenizer_config.json. A TokenizersBackend, which was called PreTrainedTokenizerFast, is
tokenizer.json as it stands.
"""

from __future__ import annotations

import json
from typing import Any

from ..base.checks import optional_package
from ..errors import CheckpointError
from .settings import check_kind, check_known

# The first has all of the tokenizer, and the second has settings that come first.
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
AS_IT_STANDS = ("TokenizersBackend", "PreTrainedTokenizerFast")
SPECIAL = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
# Of a BertNormalizer in tokenizer.json: the setting of tokenizer_config.json, and its usual value.
OF_BERT = {
    "lowercase": ("do_lower_case", True),
    "strip_accents": ("strip_accents", None),
    "handle_chinese_chars": ("tokenize_chinese_chars", True),
}
# Notes, what decodes ids, and options of other calls: none changes the ids of a text.
NOTES = """
_commit_hash backend chat_template clean_up_tokenization_spaces from_slow is_local local_files_only
max_length name_or_path pad_to_multiple_of pad_token_type_id processor_class special_tokens_map_file
stride tokenizer_file truncation_strategy verbose
"""
# What tokenizer_config.json may say; () is for any value, which is checked where it is read.
KNOWN: dict[str, tuple[Any, ...]] = {
    "tokenizer_class": ("BertTokenizer", "BertTokenizerFast", *AS_IT_STANDS, None),
    "do_lower_case": (True, False),
    "tokenize_chinese_chars": (True, False),
    "strip_accents": (True, False, None),
    "do_basic_tokenize": (True,),
    "split_special_tokens": (False,),
    "never_split": (None, []),
    "additional_special_tokens": (None, []),
    "extra_special_tokens": (None, [], {}),
    "auto_map": (None, {}),
    **{name: (word,) for name, word in SPECIAL.items()},
    **dict.fromkeys(("padding_side", "truncation_side"), ("right",)),
    **dict.fromkeys(("model_max_length", "max_len"), ()),
    **dict.fromkeys(("model_input_names", "added_tokens_decoder", *NOTES.split()), ()),
}


def tokenizers_package() -> Any:
    return optional_package("tokenizers", "texts need the package tokenizers", "text")


def read_tokenizer_json(content: bytes) -> Any:
    """The tokenizer of the bytes of tokenizer.json."""
    try:
        return tokenizers_package().Tokenizer.from_buffer(content)
    except ValueError as error:
        raise CheckpointError(f"{TOKENIZER[0]} is damaged: {error}") from None


def checked_config(config: dict[str, Any]) -> None:
    """Refuse what this tokenizer is not, and what is unknown."""
    words = {
        name: word.get("content")
        for name, word in config.items()
        if name in SPECIAL and isinstance(word, dict)
    }
    check_known(config | words, KNOWN)
    names = check_kind("model_input_names", config.get("model_input_names") or [], list)
    if names and not all(name in names for name in ("input_ids", "attention_mask")):
        raise ValueError(f"model_input_names must have attention_mask here, got {names!r:.60}")


def normalized(
    content: bytes, tokenizer: dict[str, Any], config: dict[str, Any], lower: bool
) -> bytes:
    """tokenizer.json with the settings of tokenizer_config.json, because these come first.

    content, tokenizer: the bytes of tokenizer.json, and what they say.
    lower: texts become lowercase before anything else.
    """
    before = json.dumps(tokenizer)
    checked_config(config)
    parts = normalizers(tokenizer)
    for part in parts:
        is_bert = part.get("type") == "BertNormalizer"
        if is_bert and config.get("tokenizer_class") not in AS_IT_STANDS:
            part |= {ours: config.get(*theirs) for ours, theirs in OF_BERT.items()}
    if lower and not any(part.get("type") == "Lowercase" for part in parts):
        parts = [{"type": "Lowercase"}, *parts]
        tokenizer["normalizer"] = {"type": "Sequence", "normalizers": parts}
    return content if json.dumps(tokenizer) == before else json.dumps(tokenizer).encode()


def normalizers(tokenizer: Any) -> list[dict[str, Any]]:
    """The steps that a text takes before it becomes words."""
    one = tokenizer.get("normalizer") if isinstance(tokenizer, dict) else None
    parts = one.get("normalizers") if isinstance(one, dict) and "normalizers" in one else [one]
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
