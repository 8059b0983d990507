"""The encoders of BERT, DistilBERT, RoBERTa and XLM-RoBERTa, and the folders that they come in.

They are one model here. DistilBERT has no types of tokens, and settings of other names. RoBERTa's
positions begin after pad_token_id, and do not count it.

Source: Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", 2019; Sanh et al.,
"DistilBERT", 2019; Liu et al., "RoBERTa", 2019; Conneau et al., "XLM-R", 2020.
"""

import os
from functools import partial
from typing import Any, Self

import numpy as np

from .. import nn
from ..base import checks
from ..errors import CheckpointError, ShapeError
from ..ops.arguments import array_like
from ..tensors.tensor import Tensor
from .adapters import Published
from .published import BERT, DISTILBERT, ENCODERS, Part, filled, load_tensors, parts_of, read_folder
from .settings import NOTES, check_known

# What config.json must say, because nothing else is built here.
REQUIRED: dict[str, Any] = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "is_encoder_decoder": False,
}
# DistilBERT's names of settings, by BERT's.
DISTILBERT_NAMES = {
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
    "hidden_act": "activation",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
}
# Integers above 0; the four after the first have other names there.
SIZES = ("vocab_size", *[*DISTILBERT_NAMES][:4], "max_position_embeddings", "type_vocab_size")
GELUS_BY_TANH = ("gelu_accurate", "gelu_fast", "gelu_new", "gelu_python_tanh", "gelu_pytorch_tanh")
ACTIVATIONS = {"gelu": "gelu", "gelu_python": "gelu", "relu": "relu"}
ACTIVATIONS |= dict.fromkeys(GELUS_BY_TANH, "gelu_tanh")
OPTIONAL = ("layer_norm_eps", "hidden_dropout_prob", "attention_probs_dropout_prob")
KNOWN: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("model_type", *SIZES, "pad_token_id", *OPTIONAL, *NOTES.split()), ()),
    **{name: (value,) for name, value in REQUIRED.items()},
    "hidden_act": tuple(ACTIVATIONS),
}
# In some files, and of no influence on the hidden states.
IGNORED = (
    "embeddings.position_ids",
    "embeddings.token_type_ids",
    "pooler.dense.weight",
    "pooler.dense.bias",
)
# What stands before the names of an encoder with a head, and how the names of heads begin.
PREFIXES = ("bert.", "roberta.", "distilbert.")
HEADS = ("cls.", "lm_head.", "classifier.", "pre_classifier.", "vocab_", "qa_outputs.")


class BertEncoder(Published):
    """BERT without its pooler: token ids -> hidden states.

        x = dropout(norm(word[ids] + token_type[token_types] + position[0..N-1]))
        out = a post-norm nn.Encoder of x

    config: the sizes, under the names of transformers' config.json. Dropout is 0.1, layer norm's
    eps 1e-12 and pad_token_id 0 if it does not say.

    Call: ids (B, N) integers, valid_lens (B,) or a padding mask (B, N), token_types (B, N), all 0
    by default -> (B, N, hidden_size), with 0 in padding, which takes no time. Without valid_lens
    and mask, the pad_token_id's at the end of a row are padding. With a pad_token_id of None, all
    positions are text. transformers attends to them, and warns. A row that begins with
    pad_token_id is refused then.

        >>> sizes = {"vocab_size": 50, "hidden_size": 8, "num_hidden_layers": 2,
        ...          "num_attention_heads": 2, "intermediate_size": 16,
        ...          "max_position_embeddings": 32, "type_vocab_size": 2, "hidden_act": "gelu"}
        >>> ta.models.BertEncoder(sizes)([[2, 7, 3, 0]], valid_lens=[3]).shape
        (1, 4, 8)
    """

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.config = config = checked_config(config)
        # RoBERTa's table of positions has rows in front that no text reads.
        is_roberta = config["model_type"] in ("roberta", "xlm-roberta")
        self.first_position = 1 + (config["pad_token_id"] or 0) if is_roberta else 0
        width, eps = config["hidden_size"], config.get("layer_norm_eps", 1e-12)
        dropout = config.get("hidden_dropout_prob", 0.1)
        self.word = nn.Embedding(config["vocab_size"], width)
        positions = config["max_position_embeddings"]
        self.position = nn.LearnedPositionalEncoding(width, max_len=positions)
        self.most_tokens = positions - self.first_position
        types = config.get("type_vocab_size")
        self.token_type = None if types is None else nn.Embedding(types, width)
        self.norm = nn.LayerNorm(width, eps=eps)
        self.dropout = nn.Dropout(dropout)
        of_weights = config.get("attention_probs_dropout_prob", 0.1)
        attention = nn.MultiHeadedAttention(config["num_attention_heads"], width, of_weights)
        inner, activation = config["intermediate_size"], ACTIVATIONS[config["hidden_act"]]
        feed_forward = nn.PositionwiseFeedForward(width, inner, 0.0, activation)
        layer = nn.EncoderLayer(width, attention, feed_forward, dropout, "post", eps)
        self.encoder = nn.Encoder(layer, config["num_hidden_layers"], skip_padding=True)

    def forward(
        self, ids: Any, valid_lens: Any = None, mask: Any = None, token_types: Any = None
    ) -> Tensor:
        words = self.word(ids)
        if words.ndim != 3:
            raise ShapeError(f"a BertEncoder takes token ids (B, N), got shape {words.shape[:-1]}")
        words = self.with_types(words, token_types)
        x = self.position(words, self.first_position)
        if self.first_position:  # RoBERTa does not count pad_token_id, also within a text
            text = array_like(ids, "ids") != self.config["pad_token_id"]
            x = words + self.position.weight[text.cumsum(1) * text + self.first_position - 1]
        if mask is None and valid_lens is None:
            valid_lens = self.lengths(ids)
        return self.encoder(self.dropout(self.norm(x)), mask=mask, valid_lens=valid_lens)

    def with_types(self, words: Tensor, token_types: Any) -> Tensor:
        if self.token_type is None:
            if token_types is not None:
                raise ValueError("DistilBERT has no token_types")
            return words
        if token_types is None:
            return words + self.token_type.weight[0]
        types = self.token_type(token_types)
        if types.shape != words.shape:
            raise ShapeError(
                f"token_types have the shape of ids, {words.shape[:-1]}, got {types.shape[:-1]}"
            )
        return words + types

    def lengths(self, ids: Any) -> Any:
        """The tokens of each row before the padding at its end, (B, N) -> (B,); None for all."""
        pad = self.config["pad_token_id"]
        array = array_like(ids, "ids")
        if pad is None or array.ndim != 2 or not array.shape[1]:
            return None
        text = array[:, ::-1] != pad
        wrong = text.any(1) & ~text[:, -1]
        if wrong.any():
            raise ValueError(
                f"row {int(wrong.argmax())} of ids begins with pad_token_id {pad}: BERT counts "
                "positions from the left, so put padding at the end, or give valid_lens"
            )
        return None if text[:, 0].all() else (array.shape[1] - text.argmax(1)) * text.any(1)

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str], sha256: str | None = None) -> Self:
        """The model of a folder with config.json and model.safetensors, in evaluation mode.

        sha256: what model.safetensors must have, in hexadecimal digits. Nothing is downloaded.
        float16 and bfloat16 become float32.

        The file may have BERT's first names: "bert." before each, gamma and beta. The pooler is
        left out, and with "bert." the heads "cls.". Any other tensor is refused.

        Raises FileNotFoundError for a missing file. Raises CheckpointError, which names the file
        and the setting or the tensors, for another architecture, a damaged file, another sha256,
        and tensors that are missing, unknown, of another shape, or not finite. Settings and sizes
        are checked before anything is built.
        """
        config, path = read_folder(folder, checked_config, sha256)
        state = published_names(load_tensors(path), str(path))
        parts = encoder_parts(config, len(state))
        return filled(partial(cls, config), put_in_column_order, parts, state, path)

    def published_parts(self) -> dict[str, Part]:
        return encoder_parts(self.config | {"num_hidden_layers": len(self.encoder.layers)})

    def published(self) -> dict[str, nn.Parameter]:
        """The parameters by their published names."""
        parameters, parts = dict(self.named_parameters()), self.published_parts().items()
        return {key: parameters[name] for key, part in parts for name in part.ours}

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write config.json and model.safetensors, which transformers' BertModel can open.

        The pooler is not in them: `BertModel.from_pretrained(folder, add_pooling_layer=False)`.
        """
        layers = {"num_hidden_layers": len(self.encoder.layers)}
        self.write(folder, published_config(self.config | layers))


def published_config(config: dict[str, Any]) -> dict[str, Any]:
    """The config under the names of its architecture."""
    names = DISTILBERT_NAMES if config["model_type"] == "distilbert" else {}
    return {names.get(k, k): x for k, x in config.items() if k != "dtype"}


def checked_config(config: dict[str, Any]) -> dict[str, Any]:
    """The config with every entry that is needed; what this model is not is refused."""
    checks.check_type("a config is a dict, such as config.json", config, dict)
    kind = config.get("model_type", "bert")
    checks.check_choice("model_type of an encoder", kind, *ENCODERS)
    sizes = [name for name in SIZES if kind != "distilbert" or name != "type_vocab_size"]
    if kind == "distilbert":
        ours = {theirs: name for name, theirs in DISTILBERT_NAMES.items()}
        config = {ours.get(name, name): value for name, value in config.items()}
        config |= dict.fromkeys(("type_vocab_size", "layer_norm_eps"))  # which it does not have
    defaults = REQUIRED | {"model_type": "bert", "pad_token_id": 1 if "roberta" in kind else 0}
    # null says nothing, but of padding.
    config = defaults | {k: x for k, x in config.items() if x is not None or k == "pad_token_id"}
    config = check_known(config, KNOWN)
    if missing := [name for name in (*sizes, "hidden_act") if name not in config]:
        raise CheckpointError(f"the config of a BertEncoder misses {checks.shortened(missing)}")
    for name in sizes:
        checks.check_size(f"{name} of the config", config[name])
    checks.check_heads(config["hidden_size"], config["num_attention_heads"])
    if not 0 < checks.check_number("layer_norm_eps", config.get("layer_norm_eps", 1e-12), 0):
        raise ValueError("layer_norm_eps must be more than 0")
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        checks.checked_probability(config.get(name, 0.1), name)
    pad = config["pad_token_id"]
    if pad is not None and not (checks.is_integer(pad) and 0 <= pad < config["vocab_size"]):
        raise ValueError(f"pad_token_id must be null or a token id, got {checks.describe(pad)}")
    return config


def encoder_parts(config: dict[str, Any], most: int | None = None) -> dict[str, Part]:
    """The tensors of an encoder's file; `most` is the number that it has, if it is read."""
    return parts_of(config, DISTILBERT if config["model_type"] == "distilbert" else BERT, most)


def put_in_column_order(model: BertEncoder) -> None:
    """Give the weights of the layers, which have no values yet, memory in which BLAS multiplies few
    rows by them a tenth faster."""
    for x in model.encoder.parameters():
        x._data = np.empty(x.shape, x.dtype, order="F")


def today(key: str) -> str:
    """The name of a tensor whose name may be that in the files of TensorFlow's BERT."""
    key = key.replace("LayerNorm.gamma", "LayerNorm.weight")
    return key.replace("LayerNorm.beta", "LayerNorm.bias")


def published_names(state: dict[str, Any], name: str) -> dict[str, Any]:
    """What counts of a state, under today's names; with a prefix its heads are left out."""
    prefix = next((p for p in PREFIXES if any(key.startswith(p) for key in state)), "")
    left_out = [today(key) for key in state if prefix and key.startswith(HEADS)]
    renamed: dict[str, Any] = {}
    for key, value in state.items():
        new = today(key).removeprefix(prefix)
        if new in renamed:
            raise CheckpointError(f"{name}: {new} is there twice, under an old and a new name")
        renamed[new] = value
    places = np.ravel(np.asarray(renamed.get(IGNORED[0], ())))
    if not np.array_equal(places, np.arange(len(places))):
        raise CheckpointError(f"{name}: {IGNORED[0]} must be 0, 1, 2, ..., as they are used here")
    return {key: value for key, value in renamed.items() if key not in (*IGNORED, *left_out)}
