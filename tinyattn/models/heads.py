"""Encoders with a head: for the words behind [MASK], and for the class of a text."""

import os
from functools import partial
from typing import Any, Self

import numpy as np

from .. import functional as F
from .. import nn
from ..base.checks import check_size
from ..tensors.tensor import Tensor
from . import bert
from .adapters import Published
from .published import Part, check_tied, filled, load_tensors, read_folder
from .settings import check_kind, naming

GELUS = {"gelu": "none", "gelu_tanh": "tanh"}
WORDS = "embeddings.word_embeddings.weight"
COLUMNS = {"bert": 0, "distilbert": 1}  # of the tables, see `EncoderWithHead.table`; or 2
OF_WORDS = """
dense  DD  cls.predictions.transform.dense      vocab_transform         lm_head.dense
norm   D   cls.predictions.transform.LayerNorm  vocab_layer_norm        lm_head.layer_norm
"""
TIED = """
bias   V   cls.predictions.bias                 vocab_projector.bias    lm_head.bias
"""
OWN = """
own    VD  cls.predictions.decoder.weight       vocab_projector.weight  lm_head.decoder.weight
bias   V   cls.predictions.decoder.bias         vocab_projector.bias    lm_head.decoder.bias
"""
OF_CLASSES = """
dense  DD  bert.pooler.dense                    pre_classifier          classifier.dense
out    CD  classifier                           classifier              classifier.out_proj
"""
DECODERS = OWN.split()[2:5]  # what `own` is called in each kind of file


class EncoderWithHead(Published):
    """A BertEncoder and layers after it, in one folder. See `MaskedLM` and `SequenceClassifier`."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.encoder = bert.BertEncoder(config)
        self.config = self.encoder.config

    @classmethod
    def table(cls, config: dict[str, Any]) -> str:
        """The head, a row for each part: its name here; its shape, by D width, V vocabulary and C
        classes; its names in the files of BERT, of DistilBERT and of RoBERTa."""
        raise NotImplementedError

    @classmethod
    def head_parts(cls, config: dict[str, Any]) -> dict[str, Part]:
        """The tensors of the head in a file, by their published names."""
        sizes = {"D": config["hidden_size"], "V": config["vocab_size"]}
        column, parts = COLUMNS.get(config["model_type"], 2), dict[str, Part]()
        for row in filter(None, cls.table(config).splitlines()):
            ours, letters, *theirs = row.split()
            shape = tuple(len(labels_of(config)) if x == "C" else sizes[x] for x in letters)
            is_layer = ours not in ("bias", "own")
            ends = {".weight": shape, ".bias": shape[:1]} if is_layer else {"": shape}
            parts |= {theirs[column] + end: Part({ours + end: x}) for end, x in ends.items()}
        return parts

    @classmethod
    def parts_in(
        cls, config: dict[str, Any], most: int | None = None, prefix: str = ""
    ) -> dict[str, Part]:
        """The tensors of a file; see `parts_of`. prefix: what stands before the encoder's names."""
        inner = {
            prefix + key: Part({f"encoder.{name}": shape for name, shape in part.ours.items()})
            for key, part in bert.encoder_parts(config, most).items()
        }
        return inner | cls.head_parts(config)

    def published_parts(self) -> dict[str, Part]:
        prefix = self.config["model_type"].removeprefix("xlm-") + "."
        return self.parts_in(self.config, prefix=prefix)

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str], sha256: str | None = None) -> Self:
        """The model of a folder with config.json and model.safetensors, in evaluation mode.

        See `BertEncoder.from_pretrained`, which has the same arguments and errors.
        """
        config, path = read_folder(folder, bert.checked_config, sha256)
        state = load_tensors(path)
        encoder = bert.published_names(state, str(path))
        with naming(path.with_name("config.json")):
            parts = cls.head_parts(config)
        head = {bert.today(key): x for key, x in state.items() if bert.today(key) in parts}
        for own in DECODERS if is_tied(config) else ():
            check_tied(encoder | state, own, WORDS, path)
        parts, tensors = cls.parts_in(config, len(encoder)), encoder | head
        for names in (state, encoder, head):
            names.clear()  # what is read becomes free
        prepare = lambda model: bert.put_in_column_order(model.encoder)  # noqa: E731
        return filled(partial(cls, config), prepare, parts, tensors, path)

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write config.json and model.safetensors, which transformers opens."""
        self.write(folder, bert.published_config(self.config))


def is_tied(config: dict[str, Any]) -> bool:
    """Whether the table of words is the last matrix of the head too."""
    return check_kind("tie_word_embeddings", config.get("tie_word_embeddings", True), bool)


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

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        config = self.config
        width, eps = config["hidden_size"], config.get("layer_norm_eps", 1e-12)
        is_roberta = "roberta" in config["model_type"]
        activation = "gelu" if is_roberta else bert.ACTIVATIONS[config["hidden_act"]]
        self.dense = nn.Linear(width, width)
        self.activation = nn.ReLU() if activation == "relu" else nn.GELU(GELUS[activation])
        self.norm = nn.LayerNorm(width, eps=eps)
        self.bias = nn.Parameter(np.zeros(config["vocab_size"], np.float32))
        self.own = None if is_tied(config) else nn.Embedding(config["vocab_size"], width).weight

    @classmethod
    def table(cls, config: dict[str, Any]) -> str:
        return OF_WORDS + (TIED if is_tied(config) else OWN)

    def forward(
        self, ids: Any, valid_lens: Any = None, mask: Any = None, token_types: Any = None
    ) -> Tensor:
        x = self.norm(self.activation(self.dense(self.encoder(ids, valid_lens, mask, token_types))))
        return F.linear(x, self.encoder.word.weight if self.own is None else self.own, self.bias)


class SequenceClassifier(EncoderWithHead):
    """Scores of the class of a text, from its first token: ids (B, N) -> (B, classes).

        scores = out(dropout(activation(dense hidden[:, 0]))), with tanh; with relu in DistilBERT

    config: as BertEncoder; its id2label has the names of the classes, `labels` here, or its
    num_labels says how many there are, 2 by default. `from_pretrained` reads a folder that has a
    classifier. To begin one from a BertEncoder, such as that of bert-base, write
    SequenceClassifier(encoder.config | {"num_labels": 3, "id2label": None}), and set its `encoder`.

        >>> sizes = {"vocab_size": 50, "hidden_size": 8, "num_hidden_layers": 2, "num_labels": 3,
        ...          "num_attention_heads": 2, "intermediate_size": 16,
        ...          "max_position_embeddings": 32, "type_vocab_size": 2, "hidden_act": "gelu"}
        >>> ta.models.SequenceClassifier(sizes)([[2, 7, 3]]).shape
        (1, 3)
    """

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        config, width = self.config, self.config["hidden_size"]
        self.labels = labels_of(config)
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

    @classmethod
    def table(cls, config: dict[str, Any]) -> str:
        return OF_CLASSES


def labels_of(config: dict[str, Any]) -> list[str]:
    """The names of the classes, by their numbers."""
    number = check_size("num_labels", config.get("num_labels", 2))
    names = check_kind("id2label", config.get("id2label", {}), dict)
    labels = {str(i): label for i, label in names.items()}  # JSON has no other keys than texts
    if labels.keys() != {str(i) for i in range(len(names))}:
        raise ValueError(f"id2label has the keys 0, 1, 2, ... of classes, got {list(names)!r:.60}")
    return [labels[str(i)] for i in range(len(names))] or [f"LABEL_{i}" for i in range(number)]
