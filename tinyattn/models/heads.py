"""Encoders with a head: for the words behind [MASK], and for the class of a text."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from .. import functional as F
from .. import nn
from ..base.checks import check_size
from ..nn import init
from ..tensors.tensor import Tensor
from ..training.checkpoint import save
from .bert import ACTIVATIONS, BertEncoder, checked_config, checked_state
from .published import check_array, check_fit, check_tied, read_folder, read_weights
from .settings import check_kind

GELUS = {"gelu": "none", "gelu_tanh": "tanh"}
PREFIXES = {"bert": "bert.", "distilbert": "distilbert."}  # of the encoder's names; or "roberta."


class EncoderWithHead(nn.Module):
    """A BertEncoder and layers after it, in one folder. See `MaskedLM` and `SequenceClassifier`."""

    # The published name of each part of the head, by family, RoBERTa's for the others.
    names: ClassVar[dict[str, dict[str, str]]] = {}

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.encoder = BertEncoder(config)
        self.config = self.encoder.config

    @property
    def is_tied(self) -> bool:
        """Whether the table of words is the last matrix of the head too."""
        return self.config.get("tie_word_embeddings", True)

    @property
    def of_family(self) -> dict[str, str]:
        return self.names.get(self.config["model_type"], self.names["roberta"])

    def published_head(self) -> dict[str, nn.Parameter]:
        """The parameters of the head by their published names."""
        found = {}
        for name, parameter in self.named_parameters():
            part, _, end = name.partition(".")
            if part != "encoder":
                found[".".join(filter(None, (self.of_family[part], end)))] = parameter
        return found

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str], sha256: str | None = None) -> Self:
        """The model of a folder with config.json and model.safetensors, in evaluation mode.

        See `BertEncoder.from_pretrained`, which has the same arguments and errors.
        """
        config, path = read_folder(folder, checked_config, sha256)
        state = read_weights(path)
        arrays = checked_state(state, config, str(path))
        with init.skipped():
            model = cls(config)
        model.encoder.take(arrays)
        model.to(model.encoder.word.weight.dtype)
        head = model.published_head()
        key = model.of_family.get("own")
        if model.is_tied and key in state:
            check_tied(state[key], key, model.encoder.word.weight, path)
        shapes = {key: parameter.shape for key, parameter in head.items()}
        check_fit(shapes, {key: state[key].shape for key in shapes if key in state}, path)
        for key, parameter in head.items():
            check_array(state[key]._data, key, path)
            parameter.data = state[key].to(parameter.dtype)
        return model.eval()

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write config.json and model.safetensors, which transformers opens."""
        self.encoder.save_pretrained(folder)
        prefix = PREFIXES.get(self.config["model_type"], "roberta.")
        parts = {f"{prefix}{key}": x for key, x in self.encoder.published().items()}
        save(parts | self.published_head(), Path(folder, "model.safetensors"))


class MaskedLM(EncoderWithHead):
    """Scores of the word at each position: ids (B, N) -> (B, N, vocab_size).

        hidden = encoder(ids);  scores = norm(activation(dense hidden)) word^T + bias

    config: as BertEncoder, of a model_type "bert", "distilbert", "roberta" or "xlm-roberta".
    With tie_word_embeddings: false the scores have a matrix of their own.

        >>> sizes = {"vocab_size": 50, "hidden_size": 8, "num_hidden_layers": 2,
        ...          "num_attention_heads": 2, "intermediate_size": 16,
        ...          "max_position_embeddings": 32, "type_vocab_size": 2, "hidden_act": "gelu"}
        >>> ta.models.MaskedLM(sizes)([[2, 7, 3]]).shape
        (1, 3, 50)
    """

    names: ClassVar = {
        "bert": {
            "dense": "cls.predictions.transform.dense",
            "norm": "cls.predictions.transform.LayerNorm",
            "bias": "cls.predictions.bias",
            "own": "cls.predictions.decoder.weight",
        },
        "distilbert": {
            "dense": "vocab_transform",
            "norm": "vocab_layer_norm",
            "bias": "vocab_projector.bias",
            "own": "vocab_projector.weight",
        },
        "roberta": {
            "dense": "lm_head.dense",
            "norm": "lm_head.layer_norm",
            "bias": "lm_head.bias",
            "own": "lm_head.decoder.weight",
        },
    }

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        config = self.config
        width, eps = config["hidden_size"], config.get("layer_norm_eps", 1e-12)
        is_roberta = "roberta" in config["model_type"]
        activation = "gelu" if is_roberta else ACTIVATIONS[config["hidden_act"]]
        self.dense = nn.Linear(width, width)
        self.activation = nn.ReLU() if activation == "relu" else nn.GELU(GELUS[activation])
        self.norm = nn.LayerNorm(width, eps=eps)
        self.bias = nn.Parameter(np.zeros(config["vocab_size"], np.float32))
        check_kind("tie_word_embeddings", self.is_tied, bool)
        self.own = None if self.is_tied else nn.Embedding(config["vocab_size"], width).weight

    @property
    def of_family(self) -> dict[str, str]:
        names = super().of_family
        # A matrix of its own has a bias of its own.
        own = {} if self.is_tied else {"bias": names["own"].removesuffix("weight") + "bias"}
        return names | own

    def forward(
        self, ids: Any, valid_lens: Any = None, mask: Any = None, token_types: Any = None
    ) -> Tensor:
        x = self.norm(self.activation(self.dense(self.encoder(ids, valid_lens, mask, token_types))))
        return F.linear(x, self.encoder.word.weight if self.own is None else self.own, self.bias)


class SequenceClassifier(EncoderWithHead):
    """Scores of the class of a text, from its first token: ids (B, N) -> (B, classes).

        scores = out(dropout(activation(dense hidden[:, 0]))), with tanh; with relu in DistilBERT

    config: as BertEncoder; its id2label has the names of the classes, `labels` here, or its
    num_labels says how many there are, 2 by default.

        >>> sizes = {"vocab_size": 50, "hidden_size": 8, "num_hidden_layers": 2, "num_labels": 3,
        ...          "num_attention_heads": 2, "intermediate_size": 16,
        ...          "max_position_embeddings": 32, "type_vocab_size": 2, "hidden_act": "gelu"}
        >>> ta.models.SequenceClassifier(sizes)([[2, 7, 3]]).shape
        (1, 3)
    """

    names: ClassVar = {
        "bert": {"dense": "bert.pooler.dense", "out": "classifier"},
        "distilbert": {"dense": "pre_classifier", "out": "classifier"},
        "roberta": {"dense": "classifier.dense", "out": "classifier.out_proj"},
    }

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        config, width = self.config, self.config["hidden_size"]
        number = check_size("num_labels", config.get("num_labels", 2))
        names = check_kind("id2label", config.get("id2label", {}), dict)
        self.labels = [names[i] for i in sorted(names, key=int)]
        self.labels = self.labels or [f"LABEL_{i}" for i in range(number)]
        rate = config.get("seq_classif_dropout", config.get("classifier_dropout"))
        self.dropout = nn.Dropout(config.get("hidden_dropout_prob", 0.1) if rate is None else rate)
        self.dense = nn.Linear(width, width)
        self.out = nn.Linear(width, len(self.labels))

    def forward(
        self, ids: Any, valid_lens: Any = None, mask: Any = None, token_types: Any = None
    ) -> Tensor:
        x = self.encoder(ids, valid_lens, mask, token_types)[:, 0]
        if "roberta" in self.config["model_type"]:
            x = self.dropout(x)
        x = self.dense(x)
        x = F.relu(x) if self.config["model_type"] == "distilbert" else x.tanh()
        return self.out(self.dropout(x))
