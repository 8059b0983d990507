"""BERT's encoder, which reads and writes the files of Hugging Face's transformers.

Source: Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", 2019.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, Self

import numpy as np

from .. import nn
from ..base.backend import is_finite
from ..base.checks import check_size, shortened
from ..errors import CheckpointError, ShapeError
from ..nn import init
from ..tensors.tensor import Tensor
from ..training.atomic_write import write_atomically
from ..training.checkpoint import load, save

# What config.json must say, because nothing else is built here.
REQUIRED = {
    "model_type": "bert",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}
SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
# Published names of the parts, and ours.
EMBEDDINGS = {
    "word_embeddings": "word",
    "position_embeddings": "position",
    "token_type_embeddings": "token_type",
    "LayerNorm": "norm",
}
LAYER = {
    "attention.self.query": "self_attn.W_q",
    "attention.self.key": "self_attn.W_k",
    "attention.self.value": "self_attn.W_v",
    "attention.output.dense": "self_attn.W_o",
    "attention.output.LayerNorm": "sublayer.0.norm",
    "intermediate.dense": "feed_forward.w_1",
    "output.dense": "feed_forward.w_2",
    "output.LayerNorm": "sublayer.1.norm",
}
# In some files, and of no influence on the hidden states.
IGNORED = ("embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias")


class BertEncoder(nn.Module):
    """BERT without its pooler: token ids -> hidden states.

        x = dropout(norm(word[ids] + token_type[token_types] + position[0..N-1]))
        out = a post-norm nn.Encoder of x

    config: the sizes, under the names of transformers' config.json. Dropout is 0.1 and layer norm's
    eps 1e-12 if it does not say.

    Call: ids (B, N) integers, valid_lens (B,) or a padding mask (B, N), token_types (B, N), all 0
    by default -> (B, N, hidden_size), with 0 in padding, which takes no time.

        >>> sizes = {"vocab_size": 50, "hidden_size": 8, "num_hidden_layers": 2,
        ...          "num_attention_heads": 2, "intermediate_size": 16,
        ...          "max_position_embeddings": 32, "type_vocab_size": 2, "hidden_act": "gelu"}
        >>> ta.models.BertEncoder(sizes)([[2, 7, 3, 0]], valid_lens=[3]).shape
        (1, 4, 8)
    """

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.config = config = checked_config(config)
        width, eps = config["hidden_size"], config.get("layer_norm_eps", 1e-12)
        dropout = config.get("hidden_dropout_prob", 0.1)
        self.word = nn.Embedding(config["vocab_size"], width)
        self.position = nn.LearnedPositionalEncoding(
            width, max_len=config["max_position_embeddings"]
        )
        self.token_type = nn.Embedding(config["type_vocab_size"], width)
        self.norm = nn.LayerNorm(width, eps=eps)
        self.dropout = nn.Dropout(dropout)
        attention = nn.MultiHeadedAttention(
            config["num_attention_heads"], width, config.get("attention_probs_dropout_prob", 0.1)
        )
        activation = ACTIVATIONS[config["hidden_act"]]
        feed_forward = nn.PositionwiseFeedForward(
            width, config["intermediate_size"], 0.0, activation
        )
        layer = nn.EncoderLayer(width, attention, feed_forward, dropout, "post", eps)
        self.encoder = nn.Encoder(layer, config["num_hidden_layers"], skip_padding=True)

    def forward(
        self, ids: Any, valid_lens: Any = None, mask: Any = None, token_types: Any = None
    ) -> Tensor:
        words = self.word(ids)
        if words.ndim != 3:
            raise ShapeError(f"a BertEncoder takes token ids (B, N), got shape {words.shape[:-1]}")
        types = self.token_type.weight[0] if token_types is None else self.token_type(token_types)
        if token_types is not None and types.shape != words.shape:
            raise ShapeError(
                f"token_types have the shape of ids, {words.shape[:-1]}, got {types.shape[:-1]}"
            )
        x = self.dropout(self.norm(self.position(words + types)))
        return self.encoder(x, mask=mask, valid_lens=valid_lens)

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str], sha256: str | None = None) -> Self:
        """The model of a folder with config.json and model.safetensors, in evaluation mode.

        sha256: what model.safetensors must have, in hexadecimal digits. Nothing is downloaded.
        float16 and bfloat16 become float32.

        Raises FileNotFoundError for a missing file. Raises CheckpointError, which names the
        setting or the tensors, for another architecture, a damaged file, another sha256, and
        tensors that are missing, unknown, of another shape, or not finite.
        """
        config = read_json(checked_folder(folder) / "config.json")
        path = Path(folder, "model.safetensors")
        if sha256 is not None:
            check_sha256(path, sha256)
        state = load(path)
        with init.skipped():
            model = cls(config)
        model.take(state, str(path))
        return model.eval()

    def take(self, state: dict[str, Any], name: str) -> None:
        """Make the tensors of a file, under their published names, the parameters."""
        parameters = self.published()
        missing = [key for key in parameters if key not in state]
        unknown = [key for key in state if key not in parameters and key not in IGNORED]
        if missing or unknown:
            raise CheckpointError(
                f"{name} does not fit its config.json: missing {shortened(missing)}, unexpected "
                f"{shortened(unknown)}"
            )
        arrays = {
            key: checked_array(key, state[key], parameter.shape, name)
            for key, parameter in parameters.items()
        }
        dtype = np.result_type(*arrays.values(), np.float32)
        if dtype != np.float32:
            self.to(dtype)
        for key, parameter in parameters.items():
            # In column order, because BLAS multiplies few rows by such a weight a tenth faster.
            order = np.asarray if key.startswith("embeddings.") else np.asfortranarray
            parameter._data = order(arrays[key], dtype)  # `parameter.data =` copies

    def published(self) -> dict[str, nn.Parameter]:
        """The parameters by their published names."""
        parts = {f"embeddings.{theirs}": ours for theirs, ours in EMBEDDINGS.items()}
        for i in range(len(self.encoder.layers)):
            parts |= {f"encoder.layer.{i}.{a}": f"encoder.layers.{i}.{b}" for a, b in LAYER.items()}
        parameters = dict(self.named_parameters())
        return {
            f"{theirs}.{kind}": parameters[f"{ours}.{kind}"]
            for theirs, ours in parts.items()
            for kind in ("weight", "bias")
            if f"{ours}.{kind}" in parameters
        }

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write config.json and model.safetensors, which transformers' BertModel can open.

        The pooler is not in them: `BertModel.from_pretrained(folder, add_pooling_layer=False)`.
        """
        Path(folder).mkdir(parents=True, exist_ok=True)
        save(dict(self.published()), Path(folder, "model.safetensors"))
        write_json(Path(folder, "config.json"), self.config)


def checked_folder(folder: str | os.PathLike[str]) -> Path:
    if not Path(folder).is_dir():
        raise FileNotFoundError(
            f"{folder} is not a folder. Nothing is downloaded: give the folder of the model, with "
            "config.json and model.safetensors"
        )
    return Path(folder)


def checked_config(config: dict[str, Any]) -> dict[str, Any]:
    """The config with every entry that is needed; what this model is not is refused."""
    if not isinstance(config, dict):
        raise TypeError(f"a config is a dict, such as config.json, got {type(config).__name__}")
    config = REQUIRED | config
    for name, value in REQUIRED.items():
        if config[name] != value:
            raise CheckpointError(f"a BertEncoder has {name} {value!r}, got {config[name]!r}")
    if missing := [name for name in (*SIZES, "hidden_act") if name not in config]:
        raise CheckpointError(f"the config of a BertEncoder misses {shortened(missing)}")
    for name in SIZES:
        check_size(f"{name} of the config", config[name])
    if config["hidden_act"] not in ACTIVATIONS:
        raise CheckpointError(
            f"hidden_act must be one of {list(ACTIVATIONS)}, got {config['hidden_act']!r}"
        )
    return config


def checked_array(key: str, tensor: Tensor, shape: tuple[int, ...], name: str) -> np.ndarray:
    if tensor.shape != shape:
        raise CheckpointError(
            f"{name}: {key} has shape {tensor.shape}, and config.json says {shape}"
        )
    if tensor.dtype.kind != "f":
        raise CheckpointError(f"{name}: {key} is {tensor.dtype}, expected floating numbers")
    if not is_finite(tensor._data) and not np.isfinite(tensor._data).all():
        raise CheckpointError(f"{name}: {key} has numbers that are not finite")
    return tensor._data


def check_sha256(path: Path, expected: str) -> None:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != expected.lower():
        raise CheckpointError(f"{path} has the sha256 {digest}, expected {expected}")


def read_json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: {error}") from None


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, [json.dumps(value, indent=2).encode()])
