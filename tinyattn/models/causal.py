"""A language model: it reads the ids of a text, and gives scores for the id after each of them.

Llama, Qwen2 and GPT-2 are one model here, an embedding and a causal `nn.Encoder`, with different
norms, positions and feed-forward networks.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from .. import functional as F
from .. import nn
from ..base.backend import to_device
from ..base.checks import type_name
from ..errors import MaskError, ShapeError
from ..generation import generate
from ..masks import mask_of
from ..nn.cache import Cache, checked_rows
from ..nn.decoder import NextScores
from ..nn.int8 import Int8Linear
from ..ops.arguments import ArrayLike, array_like
from ..ops.visibility import booleans_of
from ..tensors.tensor import Tensor
from ..training.atomic_write import write_atomically
from . import causal_files as files
from . import gguf, published
from .adapters import Published
from .bert import ACTIVATIONS
from .chat import Conversation, chat_prompt, check_options
from .int8 import quantize
from .published import GGUF, Part, check_sha256, filled, load_tensors, parts_of, read_folder
from .settings import is_there, naming, settings_in, write_json
from .tokenizer_files import TOKENIZER, checked_text

RATES = "rope_freqs.weight"  # of a GGUF file: divisors of the rates of rotation


class CausalLM(Published):
    """A decoder without a memory: token ids -> scores of the next id at each position.

        x = word[ids], and position[0..N-1] is added in GPT-2
        out = head(encoder(x)), where the encoder is causal, with pre-norm; head is word if tied

    config: the sizes, under the names of transformers' config.json, with a model_type such as
    "llama" or "gpt2"; docs/models.md names all.

    A new model starts as `reset_parameters` says, so its first loss is about ln(vocab_size). In
    train() it drops attention weights, what a layer adds, and embeddings, as attention_dropout
    (attn_pdrop in GPT-2), resid_pdrop and embd_pdrop say, which are 0 where a config has none.

    Call: ids (B, N) integers -> (B, N, vocab_size). mask (B, N): False in padding, at the left or
    at the right; positions count what is True. cache: one of `new_cache()`; ids are then those
    after it, and the mask (B, past + N) speaks of all ids up to now.

        >>> sizes = {"model_type": "llama", "vocab_size": 50, "hidden_size": 8,
        ...          "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16,
        ...          "max_position_embeddings": 32}
        >>> model = ta.models.CausalLM(sizes)
        >>> model([[2, 7, 3]]).shape
        (1, 3, 50)
        >>> ta.generation.generate(model.next_scores(), [[2, 7, 3]], max_len=6).shape
        (1, 6)
    """

    task_type = "CAUSAL_LM"

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.config = config = files.checked_config(config)
        vocab, width = config["vocab_size"], config["hidden_size"]
        has_positions = config["model_type"] == "gpt2"
        self.word = nn.Embedding(vocab, width)
        positions = config["max_position_embeddings"]
        self.position = nn.Embedding(positions, width) if has_positions else None
        self.dropout = nn.Dropout(config["embd_pdrop"])
        self.encoder = nn.Encoder(new_layer(config), config["num_hidden_layers"])
        if not has_positions:
            set_layers(self.encoder, config)
        is_tied = config["tie_word_embeddings"]
        self.head: nn.Module | None = None if is_tied else nn.Linear(width, vocab, bias=False)
        self.chat_template: str | None = None
        self.special_words: dict[str, str | None] = {}  # bos_token and others, as text
        self.kept_settings: dict[str, Any] = {}  # of its tokenizer in other libraries
        self._new_tokenizer: Callable[[], Any] | None = None
        self._tokenizer: Any = None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """New starting values: N(0, initializer_range^2) for matrices, 0 for biases.

        In GPT-2 a matrix whose output is added to the residual stream has a deviation that is
        sqrt(2 num_hidden_layers) times smaller, because so many of them are added. Source: Radford
        et al., "Language Models are Unsupervised Multitask Learners", 2019.
        """
        std = self.config["initializer_range"]
        is_gpt2 = self.config["model_type"] == "gpt2"
        residual = std / (2 * self.config["num_hidden_layers"]) ** 0.5 if is_gpt2 else std
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.ndim == 2:
                is_residual = name.endswith(("W_o.weight", "w_2.weight"))
                nn.init.normal_(parameter, 0.0, residual if is_residual else std)

    def forward(
        self, ids: ArrayLike, mask: ArrayLike | None = None, cache: Cache | None = None
    ) -> Tensor:
        return self.scores(self.hidden(ids, mask, cache))

    def hidden(
        self, ids: ArrayLike, mask: ArrayLike | None = None, cache: Cache | None = None
    ) -> Tensor:
        """As a call, without the head: (B, N, hidden_size)."""
        x = self.word(ids)
        if x.ndim != 3:
            raise ShapeError(f"a CausalLM takes ids (B, N), got shape {x.shape[:-1]}")
        past = 0 if cache is None else cache.length
        end, most = past + x.shape[1], self.config["max_position_embeddings"]
        if end > most:
            raise ShapeError(f"this model has {most} positions, and the ids have {end}")
        positions = np.arange(past, end)[None]  # (1, N)
        if mask is not None:
            is_real = booleans_of(mask)
            if is_real.shape != (len(x), end):
                raise MaskError(f"the mask is {(len(x), end)} here, got shape {is_real.shape}")
            # Text begins behind padding once in a row that begins with padding, else never.
            has_gap = (is_real[:, 1:] > is_real[:, :-1]).sum(1) > ~is_real[:, 0]
            layers = range(self.config["num_hidden_layers"])
            if has_gap.any() and any(files.window_in(self.config, i) for i in layers):
                raise MaskError(
                    "a model with a window takes padding at the left, because the window counts "
                    f"the positions between two parts of sample {int(has_gap.argmax())} too"
                )
            positions = (is_real.cumsum(1) - 1).clip(0)[:, past:]  # (B, N)
            mask = mask_of(is_real)  # of padding, whatever it looks like
        if self.position is not None:
            x = x + self.position(positions)
        x = self.dropout(x)
        turned = None if self.position is not None or mask is None else positions
        return self.encoder(x, mask, is_causal=True, cache=cache, positions=turned)

    def scores(self, hidden: Tensor) -> Tensor:
        """Hidden states (..., hidden_size) -> scores (..., vocab_size)."""
        return F.linear(hidden, self.word.weight) if self.head is None else self.head(hidden)

    def new_cache(self, length: int = 0) -> Cache:
        """An empty cache; see `nn.Encoder.new_cache`."""
        return self.encoder.new_cache(length)

    def next_scores(self, mask: ArrayLike | None = None, length: int = 0) -> CausalScores:
        """What `tinyattn.generation.generate` takes: the scores of the next id, with a cache.

        Of more ids than the model has positions the oldest are forgotten, half of the positions at
        once.

        mask (B, P): False in the padding of prompts (B, P), at the left or at the right, which are
        then read in one pass; give `generate` another `pad`, such as -1. length: for how many
        positions memory is reserved.
        """
        return CausalScores(self, mask, length)

    def quantize(self, kind: str = "int8") -> Self:
        """Weights of whole numbers, in place, which do not learn. Returns self.

            weight[i, j] = scale[i] * numbers[i, j], where scale[i] = max |weight[i]| / 127

        The matrices of the layers and the head take a quarter of the bytes, so a step of one id,
        which reads all of them once, takes less time. The perplexity that SmolLM2-135M has of a
        text rose by 0.7 %. The table of words stays as it is, because a step reads one row of it.

        What learns afterwards is a LoRA, by `nn.LoRA.insert` or `load_adapter`: its gradients go
        through the whole numbers. save_pretrained raises RuntimeError: save before. A state_dict is
        exact, for a model that is quantized too.
        """
        if kind != "int8":
            raise ValueError(f'quantize takes "int8", got {kind!r:.60}')
        head = Int8Linear(self.word.weight) if self.head is None else None
        quantize(self)
        self.head = self.head if head is None else head.eval()
        return self

    @property
    def is_quantized(self) -> bool:
        return any(isinstance(layer, Int8Linear) for layer in self.modules())

    def published_parts(self) -> dict[str, Part]:
        prefix = "transformer." if self.config["model_type"] == "gpt2" else ""
        parts = parts_of(self.config, files.column_of(self.config["model_type"]))
        return {prefix * (name != "lm_head.weight") + name: part for name, part in parts.items()}

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of the file, of the package tokenizers: `pip install -e ".[text]"`.

        A model of your own gets one by `model.tokenizer = ...`.
        """
        if self._new_tokenizer is None:
            raise ValueError(
                "this model has no tokenizer, because no file with one was read: a folder needs "
                "tokenizer.json. transformers makes it of other files, and of a tokenizer.model of "
                "SentencePiece with the packages sentencepiece and protobuf: "
                "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
            )
        self._tokenizer = self._tokenizer or self._new_tokenizer()
        return self._tokenizer

    @tokenizer.setter
    def tokenizer(self, tokenizer: Any) -> None:
        if not hasattr(tokenizer, "get_vocab_size"):
            raise TypeError(f"a tokenizer is of the package tokenizers, got {type_name(tokenizer)}")
        words, ids = tokenizer.get_vocab_size(), self.config["vocab_size"]
        if words > ids:
            raise ValueError(f"the tokenizer has {words} words, and this model {ids}")
        self._new_tokenizer, self._tokenizer = partial(copy.copy, tokenizer), tokenizer

    @property
    def end_ids(self) -> list[int]:
        """The ids that end a text: those of the config, and that of the tokenizer's eos_token."""
        word, ids = self.special_words.get("eos_token"), files.stops_of(self.config)
        own = self.tokenizer.token_to_id(word) if word and self._new_tokenizer else None
        return ids if own is None or own in ids else [*ids, own]

    def generate_text(
        self, prompt: str, max_new_tokens: int = 256, **options: Any
    ) -> Iterator[str]:
        """The continuation of a text, in pieces that come as soon as they are complete.

        It ends with an id of `end_ids`, after max_new_tokens, or with the positions of the model.
        options: stop, texts of which each ends the continuation and is left out; temperature,
        top_k, top_p: see `generation.generate`. Raises ShapeError for a prompt without ids, and for
        one that leaves no position free.
        """
        ids = self.tokenizer.encode(checked_text("a prompt", prompt)).ids
        return self.continued(ids, self.next_scores(), max_new_tokens, **options)

    def continued(
        self,
        ids: list[int],
        scores: NextScores,
        max_new_tokens: int = 256,
        stop: Sequence[str] = (),
        **choice: Any,
    ) -> Iterator[str]:
        """The text after ids, in pieces; `scores` may have read a part of the ids before."""
        positions = self.config["max_position_embeddings"]
        if not 0 < len(ids) < positions:
            raise ShapeError(
                "a prompt has one id at least, and leaves one of the model's "
                f"{positions} positions free, got {len(ids)} ids"
            )
        check_options(max_new_tokens, stop, **choice)
        end = min(len(ids) + int(max_new_tokens), positions)
        return self.pieces(ids, end, scores, stop, choice)

    def pieces(
        self, ids: list[int], end: int, scores: NextScores, stop: Sequence[str], choice: dict
    ) -> Iterator[str]:
        """The text after ids, up to `end` ids in all."""
        start, shown, text, ends = len(ids), 0, "", self.end_ids
        decode = self.tokenizer.decode
        # A decoder of SentencePiece leaves out the space before the first word, and a character may
        # be four ids. So the last ids of the prompt are decoded too, but not shown. They begin with
        # a whole character, because ids of bytes that begin within one are no text for it.
        places = range(max(start - 8, 0), max(start - 12, -1), -1)
        near = next((i for i in places if decode(ids[i:])[:1] != "\ufffd"), places[0])
        before = len(decode(ids[near:]).rstrip("\ufffd"))
        while len(ids) < end:
            # A function, because `generate` would let the scores begin anew.
            longer = generate(lambda x: scores(x), [ids], len(ids) + 1, pad=-1, **choice)
            ids = longer[0].tolist()
            if ids[-1] in ends:
                break
            text = decode(ids[near:])[before:]
            if found := [place for word in stop if (place := text.find(word)) >= 0]:
                text = text[: min(found)]
                break
            # A character may have bytes to come, and a text that stops may go on.
            ready = 0 if text.endswith("\ufffd") else len(text) - unfinished(text, stop)
            if ready > shown:
                yield text[shown:ready]
                shown = ready
        if len(text) > shown:
            yield text[shown:]

    def chat_prompt(self, messages: Iterable[dict[str, str]]) -> str:
        """The text of a chat, as the template of the model writes it, up to the next answer."""
        return chat_prompt(self.chat_template, messages, **self.special_words)

    def chat(self, messages: Iterable[dict[str, str]] = (), **options: Any) -> Conversation:
        """A conversation that begins with messages [{"role": "user", "content": ...}, ...].

        To iterate over it gives the answer in pieces, and `ask` goes on; see `chat.Conversation`.
        options: see `generate_text`. ValueError for a model without a template of a chat.

            for piece in model.chat([{"role": "user", "content": "What is a noun?"}]):
                print(piece, end="", flush=True)
        """
        return Conversation(self, messages, **options)

    @classmethod
    def from_gguf(cls, path: str | os.PathLike[str], sha256: str | None = None) -> Self:
        """The model and the tokenizer of a GGUF file of the architectures llama, qwen2 and qwen3.

        sha256: what the file must have. Its numbers become float32: from F32, F16, BF16, Q8_0,
        Q4_0 and Q4_1, and from what the package gguf unpacks too, such as Q4_K and Q6_K.

        Raises FileNotFoundError for a missing file, and CheckpointError, which names the file and
        the setting or tensor, for a damaged file, another sha256, other architectures, unknown
        settings, and tensors that are missing, unknown, of another shape, or not finite. Settings
        and sizes are checked before memory is taken.
        """
        with gguf.opened(path) as file:
            check_sha256(Path(path), sha256)
            divisors = file.array(RATES) if RATES in file.places else None
            with naming(Path(path)):
                is_tied = "output.weight" not in file.places
                config = files.gguf_config(file.settings, is_tied, divisors)
            places = {name: place for name, place in file.places.items() if name != RATES}
            make, parts = partial(cls, config), parts_of(config, GGUF, len(places))
            model = filled(make, put_in_one_memory, parts, places, path, "header", file.array)
            model.chat_template = file.settings.get("tokenizer.chat_template")
            model.special_words = files.gguf_words(file.settings)
            model._new_tokenizer = partial(files.gguf_tokenizer, file.settings)
        return model

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str], sha256: str | None = None) -> Self:
        """The model of a folder with config.json and model.safetensors, as transformers writes it.

        sha256: what model.safetensors must have. float16 and bfloat16 become float32. The weights
        may lie in several files with model.safetensors.index.json, and be the layers alone, as
        LlamaModel is saved, if the head is tied. With tokenizer.json it has a tokenizer. It ends
        texts at the ids of config.json and of generation_config.json.
        Errors: as `from_gguf`.
        """
        config, path = read_folder(folder, files.checked_config, sha256)
        config = files.with_end_ids(config, Path(folder))
        state = files.used_tensors(load_tensors(path), config["tie_word_embeddings"], path)
        parts = parts_of(config, files.column_of(config["model_type"]), len(state))
        model = filled(partial(cls, config), put_in_one_memory, parts, state, path)
        settings = settings_in(Path(folder, TOKENIZER[1]))
        if "added_tokens_decoder" not in settings:  # as in transformers
            settings |= settings_in(Path(folder, TOKENIZER[2]))
        if is_there(path := Path(folder, TOKENIZER[0])):
            contents = Path(folder), path.read_bytes(), settings
            model._new_tokenizer = partial(files.folder_tokenizer, *contents)
        model.chat_template, model.special_words = files.chat_settings(Path(folder), settings)
        model.kept_settings = {name: settings[name] for name in files.KEPT if name in settings}
        return model

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write config.json, model.safetensors and the tokenizer, which transformers can open."""
        if self.is_quantized:
            raise RuntimeError("int8 weights have no place in this format: save before quantize()")
        read = files.with_end_ids(self.config, Path(folder))  # an error before anything is written
        self.write(folder, files.published_config(self.config))
        if self._new_tokenizer is not None:
            # The tokenizer's own `save` raises no OSError.
            write_atomically(Path(folder, TOKENIZER[0]), [self.tokenizer.to_str(True).encode()])
            settings = {"tokenizer_class": "PreTrainedTokenizerFast", **self.special_words}
            template = {} if self.chat_template is None else {"chat_template": self.chat_template}
            write_json(Path(folder, TOKENIZER[1]), settings | self.kept_settings | template)
            for name in ("chat_template.jinja", TOKENIZER[2]):  # which would come first
                Path(folder, name).unlink(missing_ok=True)
        if {*files.stops_of(read)} != {*self.end_ids}:  # with those of another model
            Path(folder, "generation_config.json").unlink(missing_ok=True)


def new_layer(config: dict[str, Any]) -> nn.EncoderLayer:
    """A layer of the model; `set_layers` says what differs from layer to layer."""
    width, inner = config["hidden_size"], config["intermediate_size"]
    heads, head_dim = config["num_attention_heads"], config["head_dim"]
    kind, eps, dropout = config["model_type"], config["rms_norm_eps"], config["resid_pdrop"]
    has_bias = {part: published.has_bias(config, part) for part in ("W_q", "W_o", "w_1")}
    sizes, groups = (width, width, width, heads * head_dim, heads), config["num_key_value_heads"]
    attention = nn.MultiHeadAttention(*sizes, config["attention_dropout"], has_bias["W_q"], groups)
    attention.W_o = nn.Linear(heads * head_dim, width, bias=has_bias["W_o"])
    if kind in published.WITH_HEAD_NORMS:
        attention.q_norm = nn.RMSNorm(head_dim, eps)
        attention.k_norm = nn.RMSNorm(head_dim, eps)
    if kind == "gpt2":
        activation = ACTIVATIONS[config["hidden_act"]]
        feed_forward = nn.PositionwiseFeedForward(width, inner, 0.0, activation)
        return nn.EncoderLayer(width, attention, feed_forward, dropout, "pre", eps)
    swiglu = nn.SwiGLU(width, inner, 0.0, bias=has_bias["w_1"])
    return nn.EncoderLayer(width, attention, swiglu, dropout, "pre", eps, nn.RMSNorm)


def set_layers(encoder: nn.Encoder, config: dict[str, Any]) -> None:
    """Give each layer its rotation and its window."""
    rotary = files.rotary_of(config)
    for i, layer in enumerate(encoder.layers):
        layer.self_attn.window = files.window_in(config, i)
        layer.self_attn.rotary = rotary if files.turns_in(config, i) else Unturned()


class Unturned(nn.Module):
    """In the place of a rotation: queries or keys as they are, whatever their positions."""

    def forward(self, x: Tensor, positions: ArrayLike) -> Tensor:
        return x


def put_in_one_memory(model: CausalLM) -> None:
    """Give the matrices of the layers, which have no values yet, parts of one array.

    A system has larger pages for large arrays, so a step that reads all weights takes a tenth less
    time.
    """
    matrices = [x for x in model.encoder.parameters() if x.ndim == 2]
    ends = np.cumsum([x.numel() for x in matrices])
    memory = np.empty(ends[-1], matrices[0].dtype)
    for x, part in zip(matrices, np.split(memory, ends[:-1]), strict=True):
        x._data = part.reshape(x.shape)  # `x.data =` copies


def unfinished(text: str, stop: Sequence[str]) -> int:
    """How many letters at the end of a text may be the beginning of one that stops it."""
    begun = (n for word in stop for n in range(len(word) - 1, 0, -1) if text.endswith(word[:n]))
    return max(begun, default=0)


class CausalScores(NextScores):
    """The scores of the id after ids (B, T), for `generate`; see `CausalLM.next_scores`."""

    def __init__(self, model: CausalLM, mask: ArrayLike | None = None, length: int = 0) -> None:
        self.model, self.length = model, length
        self.prompts = None if mask is None else booleans_of(mask).copy()  # (B, P)
        if self.prompts is not None and not (self.prompts.ndim == 2 and self.prompts.any(1).all()):
            raise MaskError("the mask of prompts is (B, P), with an id in each prompt")
        self.start()

    def new_cache(self) -> Cache:
        return self.model.new_cache(length=self.length)

    def start(self) -> None:
        self.prompt_mask = self.prompts
        super().start()
        self.first = 0

    def first_read(self, length: int) -> int:
        """The first of `length` ids that is read. If they are more than the positions, the oldest
        half of what was read is forgotten at once, because the cache is then of use until the
        positions are full again."""
        positions = self.model.config["max_position_embeddings"]
        half = -(-positions // 2)
        return max(0, -(-(length - positions) // half) * half)

    def scores(self, ids: Any) -> Tensor:
        ids = to_device(array_like(ids, "ids"), "cpu")
        if (first := self.first_read(ids.shape[1])) != self.first:
            self.cache, self.first = self.new_cache(), first
        start = first + self.cache.length
        if self.prompt_mask is None:
            new, mask = ids[:, start:], None
        else:
            more = ids.shape[1] - self.prompt_mask.shape[1]
            if more < 0 or len(ids) != len(self.prompt_mask):
                raise MaskError(
                    f"the mask is of prompts {self.prompt_mask.shape}, and the ids are {ids.shape}"
                )
            is_real = np.pad(self.prompt_mask, ((0, 0), (0, more)), constant_values=True)
            # Padding comes first, so that the last id is one of the text.
            order = is_real.argsort(1, kind="stable")
            ids, is_real = (np.take_along_axis(x, order, 1) for x in (ids, is_real))
            new, mask = ids[:, start:], is_real[:, first:]
        return self.model.scores(self.model.hidden(new, mask, self.cache)[:, -1])

    def keep(self, length: int) -> None:
        # With a mask, the ids in the cache stand in another order.
        kept = max(0, length - self.first)
        super().keep(kept if self.prompt_mask is None or kept == self.cache.length else 0)

    def select(self, rows: Any) -> None:
        index = checked_rows(rows)
        self.prompt_mask = None if self.prompt_mask is None else self.prompt_mask[index]
        super().select(index)
