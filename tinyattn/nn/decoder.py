"""The Transformer decoder, and encoder and decoder together, as in the Annotated Transformer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np

from ..base.backend import to_device
from ..base.checks import check_size, check_type
from ..engine.grad_mode import no_grad
from ..errors import ShapeError
from ..masks import Mask, mask_of
from ..ops.arguments import ArrayLike, array_like
from ..ops.visibility import booleans_of
from ..tensors.tensor import Tensor
from .cache import Cache, LayerCache, checked_rows, layer_cache_of
from .containers import ModuleList
from .layers import LayerNorm
from .module import Module, evaluated
from .transformer import Stack, SublayerConnection, attention_options, check_parts


class DecoderLayer(Module):
    """Causal self-attention, attention to a memory, then a feed-forward network.

    Each is in a SublayerConnection. The memory is what an encoder gave. Queries come from x; keys
    and values of the second attention come from the memory, which has a length of its own.

    size: the width D. self_attn, src_attn: modules that are called as (q, k, v, mask=,
    valid_lens=), such as MultiHeadedAttention; self_attn gets is_causal=True too. feed_forward: a
    module of one Tensor. norm, eps, norm_layer: see SublayerConnection.

    Call: x (B, T, D), memory (B, S, D), src_mask over the memory's positions, tgt_mask over those
    of x, src_valid_lens and tgt_valid_lens likewise -> (B, T, D). Position t sees 0 to t of x.

    Source: Vaswani et al., 2017. Differs from PyTorch and the Annotated Transformer: it is causal
    without a mask; tgt_mask hides more, such as padding.
    """

    def __init__(
        self,
        size: int,
        self_attn: Module,
        src_attn: Module,
        feed_forward: Module,
        dropout: float = 0.1,
        norm: str = "pre",
        eps: float | None = None,
        norm_layer: Callable[..., Module] = LayerNorm,
    ) -> None:
        super().__init__()
        parts = {"self_attn": self_attn, "src_attn": src_attn, "feed_forward": feed_forward}
        check_parts("a decoder layer", **parts)
        if self_attn is src_attn:
            raise ValueError(
                "self_attn and src_attn of a decoder layer are two modules with weights of their "
                "own, got one module twice"
            )
        self.size = check_size("size", size)
        self.self_attn: Any = self_attn  # what a user gives may have more attributes
        self.src_attn: Any = src_attn
        self.feed_forward: Any = feed_forward
        self._norm_layer, self._eps = norm_layer, eps  # of the last norm of a stack too
        self.sublayer = ModuleList(
            SublayerConnection(size, dropout, norm, eps, norm_layer) for _ in range(3)
        )

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        src_mask: ArrayLike | None = None,
        tgt_mask: ArrayLike | None = None,
        src_valid_lens: ArrayLike | None = None,
        tgt_valid_lens: ArrayLike | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        target_cache, memory_cache = (None, None) if cache is None else layer_cache_of(cache)
        itself = attention_options(tgt_mask, tgt_valid_lens, True, target_cache)
        source = attention_options(src_mask, src_valid_lens, False, memory_cache)
        x = self.sublayer[0](x, lambda y: self.self_attn(y, y, y, **itself))
        x = self.sublayer[1](x, lambda y: self.src_attn(y, memory, memory, **source))
        return self.sublayer[2](x, self.feed_forward)


class Decoder(Stack):
    """N copies of a layer, each with its own starting values; with pre-norm, a norm at the end.

    Call: as DecoderLayer. With a cache from `new_cache()`, x are the positions after those of
    earlier calls, and masks and lengths of the target speak of all positions up to now. The output
    is that of the full call at these positions, up to rounding. Keys and values of the memory are
    projected in the first call only.

        >>> attention = [nn.MultiHeadedAttention(4, 32) for _ in range(2)]
        >>> layer = nn.DecoderLayer(32, *attention, nn.PositionwiseFeedForward(32, 64))
        >>> decoder = nn.Decoder(layer, 2).eval()
        >>> x, memory = ta.randn(3, 5, 32), ta.randn(3, 7, 32)
        >>> cache = decoder.new_cache()
        >>> steps = [decoder(x[:, t : t + 1], memory, cache=cache) for t in range(5)]
        >>> bool(abs(ta.cat(steps, 1) - decoder(x, memory)).max() < 1e-5)
        True
    """

    attends_memory = True

    def __init__(self, layer: DecoderLayer, N: int) -> None:
        check_type("a Decoder takes a DecoderLayer", layer, DecoderLayer)
        super().__init__(layer, N)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        src_mask: ArrayLike | None = None,
        tgt_mask: ArrayLike | None = None,
        src_valid_lens: ArrayLike | None = None,
        tgt_valid_lens: ArrayLike | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        options = (src_mask, tgt_mask, src_valid_lens, tgt_valid_lens)
        return self.run_layers(x, memory, *options, cache=cache)


class NextScores:
    """A function of ids (B, T) that gives the scores (B, V) of the id after them, for `generate`.

    Only ids after those that the call before had too are computed, in eval(), whatever the mode of
    the model is. All are computed if the model has learned since, or has other parts, numbers or
    hooks. A subclass has `new_cache`, and `scores`, which computes what is not in the cache.
    If threads share the model, call eval() first, because the mode of its parts is theirs too.
    """

    model: Any
    cache: Cache
    last_ids: np.ndarray | None  # those of the call before
    state: list[Any]  # of the model, when the cache was made

    def new_cache(self) -> Cache:
        raise NotImplementedError

    def scores(self, ids: Any) -> Tensor:
        """The scores (B, V) after ids (B, T), of which the cache has the first."""
        raise NotImplementedError

    def start(self) -> None:
        """Forget earlier calls, and the samples that were selected; `generate` begins with it."""
        self.forget()

    def forget(self) -> None:
        """Forget what earlier calls computed."""
        self.cache, self.last_ids, self.state = self.new_cache(), None, state_of(self.model)

    @no_grad()
    def __call__(self, ids: ArrayLike) -> Tensor:
        before = vars(self).copy()
        if state_of(self.model) != self.state:
            self.forget()
        mode = evaluated(self.model) if self.model.training else nullcontext()
        try:
            with mode, self.cache.restored_after_errors():
                return self.scores_after(ids)
        except BaseException:  # a refused call may have begun anew
            vars(self).update(before)
            raise

    def scores_after(self, ids: ArrayLike) -> Tensor:
        now = to_device(array_like(ids, "ids"), "cpu")
        if now.ndim != 2 or not now.shape[1]:
            raise ShapeError(f"next_scores takes ids (B, T) with T >= 1, got shape {now.shape}")
        if self.last_ids is not None:
            self.keep(common_length(self.last_ids, now))
        self.last_ids = now.copy()
        return self.scores(ids)

    def keep(self, length: int) -> None:
        """Go on after the first `length` ids of the call before, or begin anew."""
        if not length:
            self.start()
        elif length < self.cache.length:
            self.cache.cut(length)

    def select(self, rows: list[int] | np.ndarray | Tensor) -> None:
        """Go on with the samples `rows` (B',), in this order; one may be there several times."""
        index = checked_rows(rows)
        self.cache.select(index)
        self.last_ids = None if self.last_ids is None else self.last_ids[index]


def state_of(model: Module) -> list[Any]:
    """What differs after a step of training, a load, or a change of parts, numbers or hooks.

    A step of generation calls it, so it reads the attributes themselves: `parameters()` checks the
    lists of each module too, which takes ten times as long.
    """
    state, parts, seen = [], [model], {id(model)}
    for part in parts:
        state += part._hooks.values()
        for value in vars(part).values():
            if isinstance(value, Module):
                if id(value) not in seen:  # it may stand in several places, and know its parent
                    seen.add(id(value))
                    parts.append(value)
            elif isinstance(value, Tensor):
                state += value._version, getattr(value._version, "changes", 0)
            elif type(value) in (int, float):  # such as the scale of a LoRA, and no mode
                state.append(value)
    return state


def common_length(old: np.ndarray, new: np.ndarray) -> int:
    """How many first ids (B, T) of all samples are equal in both; one of the new ones is left."""
    if len(old) != len(new):
        return 0
    length = min(old.shape[1], new.shape[1] - 1)
    differs = (old[:, :length] != new[:, :length]).any(0)
    return int(differs.argmax()) if differs.any() else length


class DecoderScores(NextScores):
    """The scores of an EncoderDecoder, which encodes the source once after each start."""

    def __init__(
        self, model: EncoderDecoder, src: ArrayLike, src_mask: ArrayLike | None = None
    ) -> None:
        self.model, self.source = model, (src, src_mask)
        self.start()

    def new_cache(self) -> Cache:
        return self.model.decoder.new_cache()

    def start(self) -> None:
        self.chosen: np.ndarray | None = None  # the samples of the source, after `select`
        super().start()

    def forget(self) -> None:
        self.encoded: tuple[Tensor, Mask | None] | None = None  # the model may have learned since
        super().forget()

    def memory(self) -> tuple[Tensor, Mask | None]:
        """What the encoder gives of the source, and the mask of the source."""
        if self.encoded is None:
            src, mask = self.source
            with evaluated(self.model), no_grad():
                memory = self.model.encode(src, mask)
            self.encoded = memory, None if mask is None else mask_of(booleans_of(mask))
            if self.chosen is not None:
                self.encoded = rows_of(*self.encoded, self.chosen)
        return self.encoded

    def scores(self, ids: Any) -> Tensor:
        memory, mask = self.memory()
        ids = ids.to(memory.device) if isinstance(ids, Tensor) else ids
        states = self.model.decode(memory, mask, ids, cache=self.cache)
        return self.model.generator(states[:, -1])

    def select(self, rows: list[int] | np.ndarray | Tensor) -> None:
        index, (memory, mask) = checked_rows(rows), self.memory()
        self.encoded = rows_of(memory, mask, index)
        self.chosen = (np.arange(len(memory)) if self.chosen is None else self.chosen)[index]
        super().select(index)


def rows_of(memory: Tensor, mask: Mask | None, index: np.ndarray) -> tuple[Tensor, Mask | None]:
    """The samples `index` of a memory and of its mask, which may be one for all."""
    return memory[index], mask if mask is None or len(mask) == 1 else mask[index]


class EncoderDecoder(Module):
    """An encoder of one sequence, the source, and a decoder of another, the target.

    src_embed, tgt_embed: modules from ids (B, N) to (B, N, D), such as
        nn.Sequential(nn.Embedding(V, D), nn.PositionalEncoding(D)).
    generator: from the decoder's output to the scores of the target's symbols, such as
        nn.Linear(D, V). As in the Annotated Transformer, forward() does not call it.

    Call: src ids (B, S), tgt ids (B, T), src_mask, tgt_mask -> (B, T, D). Position t of the target
    sees its ids 0 to t, so generator(output[:, t]) are scores for the id t + 1.

    Source: Vaswani et al., 2017; the Annotated Transformer.
    """

    def __init__(
        self,
        encoder: Module,
        decoder: Decoder,
        src_embed: Module,
        tgt_embed: Module,
        generator: Module,
    ) -> None:
        super().__init__()
        expected = "an EncoderDecoder takes an encoder, a Decoder, src_embed, tgt_embed, generator"
        check_type(expected, encoder, Module, " first")
        check_type(expected, decoder, Decoder, " second")
        self.encoder = encoder
        self.decoder = decoder
        self.src_embed = src_embed
        self.tgt_embed = tgt_embed
        self.generator = generator

    def forward(
        self,
        src: ArrayLike,
        tgt: ArrayLike,
        src_mask: ArrayLike | None = None,
        tgt_mask: ArrayLike | None = None,
    ) -> Tensor:
        return self.decode(self.encode(src, src_mask), src_mask, tgt, tgt_mask)

    def encode(self, src: ArrayLike, src_mask: ArrayLike | None = None) -> Tensor:
        """The memory (B, S, D) of the source's ids (B, S)."""
        return self.encoder(self.src_embed(src), mask=src_mask)

    def decode(
        self,
        memory: Tensor,
        src_mask: ArrayLike | None,
        tgt: ArrayLike,
        tgt_mask: ArrayLike | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """tgt ids (B, T) -> (B, T, D); with a cache, of the positions that it does not have.

        With a cache tgt are all ids up to now, because tgt_embed may depend on the position.
        """
        x = self.tgt_embed(tgt)
        x = x[:, cache.length :] if cache is not None else x
        return self.decoder(x, memory, src_mask, tgt_mask, cache=cache)

    def next_scores(self, src: ArrayLike, src_mask: ArrayLike | None = None) -> NextScores:
        """What `tinyattn.generation.generate` takes: the scores of the target's next id."""
        return DecoderScores(self, src, src_mask)
