"""Settings files of published models: JSON that is checked before anything is built from it."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..base.checks import describe
from ..errors import CheckpointError
from ..training.atomic_write import write_atomically

# Of training, of heads, of generation, of speed, of other programs, or notes: none changes the
# hidden states. They are computed in the dtype of the tensors, and in float32 at least.
NOTES = """
architectures attn_implementation auto_map bad_words_ids begin_suppress_tokens bos_token_id
chunk_size_feed_forward classifier_activation classifier_dropout cross_attention_hidden_size
decoder_start_token_id directionality diversity_penalty do_sample dtype early_stopping
encoder_no_repeat_ngram_size eos_token_id exponential_decay_length_penalty finetuning_task
forced_bos_token_id forced_eos_token_id gradient_checkpointing id2label initializer_range
is_llama_config label2id length_penalty max_length max_sequence_length min_length model_max_length
model_name n_ctx name_or_path no_repeat_ngram_size num_beam_groups num_beams num_labels
num_return_sequences output_attentions output_hidden_states output_past output_scores pooler_fc_size
pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type
predict_special_tokens prefix pretraining_tp problem_type qa_dropout remove_invalid_values
repetition_penalty return_dict return_dict_in_generate sbert_ce_default_activation_function
sentence_transformers sep_token_id seq_classif_dropout sinusoidal_pos_embds summary_activation
summary_first_dropout summary_proj_to_labels summary_type summary_use_proj suppress_tokens
task_specific_params temperature tf_legacy_loss tie_encoder_decoder tie_weights_ tie_word_embeddings
tokenizer_class top_k top_p torch_dtype torchscript transformers_version typical_p unsloth_fixed
unsloth_version use_bfloat16 use_cache xla_device
"""

ADVICE = {
    "quantization_config": "its weights are packed, so write the folder anew with dequantize() and "
    "save_pretrained() of transformers"
}


def read_json(path: Path, kind: type = dict) -> Any:
    """The object or the list of a JSON file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8-sig"))  # editors of Windows write a mark
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from None
    with naming(path):
        return check_kind("its content", value, kind)


def is_there(path: Path) -> bool:
    """Whether there is such a file; CheckpointError for a link that leads nowhere."""
    if path.is_symlink() and not path.exists():
        raise CheckpointError(f"{path} is a link to a file that is not there")
    return path.exists()


def settings_in(path: Path) -> dict[str, Any]:
    """The settings of a JSON file; none if there is no such file."""
    return read_json(path) if is_there(path) else {}


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file, and make its folder if there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, [json.dumps(value, indent=2).encode()])


@contextmanager
def settings_of(path: Path, read: Callable[[Path], Any] = settings_in) -> Iterator[Any]:
    """The settings of a JSON file for the checks in a with-block, whose errors name the file too.

    read: read_json, if the file has to be there.
    """
    settings = read(path)
    with naming(path):
        yield settings


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """An error of a setting becomes a CheckpointError that names its file too."""
    try:
        yield
    except (TypeError, ValueError, re.error) as error:
        raise CheckpointError(f"{path}: {error}") from None


def check_kind(name: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        names = {bool: "true or false", str: "a string", dict: "an object", list: "a list"}
        raise ValueError(f"{name} must be {names[kind]}, got {describe(value)}")
    return value


def check_known(settings: dict[str, Any], known: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    """Every setting that says something is known, and has one of its values; a setting of no values
    has any. Returns those that are known."""
    for name, value in settings.items():
        if name not in known and not is_inert(name, value):
            what_to_do = ADVICE.get(name, "delete it if it changes no number")
            raise ValueError(
                f"the setting {name!r} is unknown here, with the value {value!r:.60}: {what_to_do}"
            )
        values, is_bool = known.get(name, ()), isinstance(value, bool)  # because 1 == True
        if values and (value, is_bool) not in [(x, isinstance(x, bool)) for x in values]:
            allowed = " or ".join(repr(one) for one in values)
            raise ValueError(f"{name} must be {allowed} here, got {value!r:.60}")
    return {name: value for name, value in settings.items() if name in known}


def is_inert(name: str, value: Any) -> bool:
    """Whether a setting that is unknown says nothing: it is null or switched off, or private, or of
    another program, as "transformers.js_config"."""
    return value in (None, False, {}, [], "") or name[:1] == "_" or "." in name
