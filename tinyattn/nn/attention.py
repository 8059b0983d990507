"""Attention, from a single scoring function to many heads.

The classes have the names of the texts that teach them. The d2l book writes
`MultiHeadAttention(key_size, query_size, value_size, num_hiddens, num_heads, dropout)`, the
Annotated Transformer writes `MultiHeadedAttention(head, embedding_dim)`; both compute the same. All
calls take queries, keys, values in this order. The fourth argument is `valid_lens` in the d2l
book's modules and `mask` in the Annotated Transformer's, so pass both by name.

True in a mask means "may attend"; see `tinyattn.masks`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..base.checks import check_heads, check_size, check_type, type_name
from ..base.random import NO_DROP, Drop
from ..engine.autograd import wrap
from ..errors import MaskError, ShapeError
from ..kernels.visibility import Samples, Visibility
from ..ops.arguments import ArrayLike, array_like, checked_bias
from ..ops.attention import (
    attention,
    attention_weights,
    attention_with_weights,
    clear_invisible,
    default_scale,
    device_of_inputs,
    in_heads,
    weighted_sum,
)
from ..ops.softmax import softmax_of_visible
from ..ops.visibility import visibility_of, visibility_of_packed
from ..tensors.tensor import Tensor
from .cache import KeyValueCache
from .functions import Identity
from .layers import Dropout, Linear
from .module import Module
from .position import LearnedPositionalEncoding, PositionalEncoding, RotaryEmbedding


class Attention(Module):
    """What all attention modules share: the step from projections to outputs, and the weights."""

    dropout: Module  # of the weights, in `attend`
    inputs_are_of_caller = False  # True where queries and keys come to `attend` without projections

    def __init__(self) -> None:
        super().__init__()
        self._last_weights: Callable[[], Tensor] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last_weights": None}  # a copy has not been called yet

    @property
    def attention_weights(self) -> Tensor:
        """The weights of the last call, (B, H, Q, K) or (B, Q, K), before dropout, without a graph.

        They are computed when they are read, because most calls never need them.
        """
        if self._last_weights is None:
            raise AttributeError(
                "there are no attention weights: this module has not been called, or its own "
                "forward() does not keep them"
            )
        weights = self._last_weights()
        self._last_weights = lambda: weights
        return weights

    @property
    def attn(self) -> Tensor:
        """The Annotated Transformer's name for `attention_weights`."""
        return self.attention_weights

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        visibility: Visibility,
        heads: tuple[int, int] = (1, 1),
        bias: Tensor | None = None,
    ) -> Tensor:
        """dropout(softmax(q k^T / sqrt(d) + bias)) v in each head, over the visible keys.

        q (B, Q, H * d), k (B, K, G * d), v (B, K, G * e) -> (B, Q, H * e), or packed, (R, H * d)
        and so on. heads: H and G. `ops/attention.py` has the formula in Python.
        """
        check_heads(q.shape[-1], heads[0])
        options: dict[str, Any] = {"heads": heads, "visibility": visibility}
        options["scale"] = default_scale(q.shape[-1] // heads[0])
        self.remember_inputs(q, k, bias, **options)
        if (drop := self.drop_of_kernel()) is not None:
            return attention(q, k, v, bias, **options, drop=drop)
        return attention_with_weights(q, k, v, bias, **options, through=self.dropout)[0]

    def remember_inputs(
        self, q: Tensor, k: Tensor, bias: Tensor | None, heads: tuple[int, int], **options: Any
    ) -> None:
        """Remember what `attention_weights` computes the weights of this call from."""
        # Arrays, so that no graph is kept. Nobody writes to the output of a Linear.
        arrays = [x._data.copy() if self.inputs_are_of_caller else x._data for x in (q, k)]
        bias = None if bias is None else bias.detach().clone()  # its caller may write to it

        def weights() -> Tensor:
            q_rows, k_rows = (in_heads(wrap(x), h) for x, h in zip(arrays, heads, strict=True))
            return attention_weights(q_rows, k_rows, **options, bias=bias)

        # Not by setattr, because that looks for modules and parameters in the value.
        self.__dict__["_last_weights"] = weights

    def drop_of_kernel(self) -> Drop | None:
        """What the kernel of attention drops, or None if `self.dropout` has to see the weights.

        A kernel never makes the array of all weights, so it drops them itself, by a probability
        and a seed. A hook and a module of your own get the weights instead, (B, H, Q, K).
        """
        if type(self.dropout) is Identity and not self.dropout._hooks:
            return NO_DROP
        if type(self.dropout) is Dropout and not self.dropout._hooks:
            return self.dropout.draw()
        return None


def checked_inputs(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    valid_lens: ArrayLike | None,
    mask: ArrayLike | None,
    heads: int | None = None,
    is_causal: bool = False,
    window: int | None = None,
    cache: KeyValueCache | None = None,
) -> tuple[Visibility, Tensor, Tensor]:
    """The visibility of a call, and keys and values without what no query may see; all checked.

    queries, keys, values: (B, N, D); or packed, (R, D), for several heads, and without a cache.
    """
    device = device_of_inputs(queries, keys, values)
    if heads is not None and queries.ndim == 2 and valid_lens is not None and cache is None:
        check_packed(queries, keys, values, mask)
        visibility = visibility_of_packed(valid_lens, len(queries), is_causal, window, device)
        return visibility, keys, values
    check_padded(queries, keys, values, takes_packed=heads is not None)
    expected = "attention takes a KeyValueCache, as new_cache().layers[i].self_attn of an Encoder"
    check_type(expected, cache, KeyValueCache | None)
    past, past_keys = (0, 0) if cache is None else (cache.past, cache.past_keys)
    batch, length, _ = queries.shape
    shape = (batch, heads or 1, length, past_keys + keys.shape[1])  # (B, H, Q, K)
    visibility = visibility_of(shape, valid_lens, mask, is_causal, window, device, past)
    if cache is not None and cache.stored is not None:
        # A memory was cleared in the first call; of a growing cache only the new keys are here.
        return visibility, keys, values
    return visibility, *clear_invisible(visibility, heads or 1, keys, values)


def check_packed(queries: Tensor, keys: Tensor, values: Tensor, mask: ArrayLike | None) -> None:
    """Packed queries, keys and values are (N, D), with one N, and take no mask."""
    shapes = queries.shape, keys.shape, values.shape
    if any(len(shape) != 2 or shape[0] != shapes[0][0] for shape in shapes):
        came = ", ".join(map(str, shapes))
        raise ShapeError(f"packed queries, keys and values are (N, D) with one N, got {came}")
    if mask is not None:
        raise MaskError("packed samples hold no padding: they take valid_lens and no mask")


def check_padded(queries: Tensor, keys: Tensor, values: Tensor, takes_packed: bool) -> None:
    """Queries, keys and values are (B, N, D), and agree in B, keys and values in N too."""
    shapes = {"queries": queries.shape, "keys": keys.shape, "values": values.shape}
    for name, shape in shapes.items():
        if len(shape) != 3:
            hint = "; packed samples, (N, D), are for MultiHeadAttention"
            hint = "; packed, (N, D), they take valid_lens" if takes_packed else hint
            raise ShapeError(f"{name} are (B, N, D), got shape {shape}{hint * (len(shape) == 2)}")
    of_queries, of_keys, of_values = shapes.values()
    if not of_queries[0] == of_keys[0] == of_values[0] or of_keys[1] != of_values[1]:
        raise ShapeError(
            "queries (B, Q, _), keys (B, K, _) and values (B, K, _) must agree in B and K, got "
            f"{of_queries}, {of_keys}, {of_values}"
        )


class DotProductAttention(Attention):
    """softmax(q k^T / sqrt(d)) v for queries and keys of one width d.

    Call: queries (B, Q, d), keys (B, K, d), values (B, K, e), valid_lens (B,) or (B, Q),
    mask -> (B, Q, e).

    Source: Vaswani et al., 2017; the d2l book, "Attention Scoring Functions".

        >>> attention = nn.DotProductAttention().eval()
        >>> keys, values = ta.ones(1, 3, 2), ta.tensor([[[1.0], [2.0], [9.0]]])
        >>> attention(ta.randn(1, 1, 2), keys, values, valid_lens=[2]).tolist()
        [[[1.5]]]
    """

    inputs_are_of_caller = True

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)

    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        valid_lens: ArrayLike | None = None,
        mask: ArrayLike | None = None,
    ) -> Tensor:
        visibility, keys, values = checked_inputs(queries, keys, values, valid_lens, mask)
        if queries.shape[2] != keys.shape[2]:
            raise ShapeError(
                "queries (B, Q, d) and keys (B, K, d) must agree in their width d, got "
                f"{queries.shape} and {keys.shape}"
            )
        return self.attend(queries, keys, values, visibility)

    @property
    def attention_weights(self) -> Tensor:
        return super().attention_weights.squeeze(1)  # (B, Q, K)


class AdditiveAttention(Attention):
    """a(q, k) = w_v^T tanh(W_q q + W_k k), then a masked softmax over the keys.

    Queries and keys may have different widths. Call: as DotProductAttention. The sums of all
    queries and keys are (B, Q, K, num_hiddens) numbers: 512 MiB for B=32, Q=K=128, 256 hiddens.

    Source: Bahdanau et al., 2015; the d2l book, "Attention Scoring Functions".

        >>> attention = nn.AdditiveAttention(key_size=2, query_size=3, num_hiddens=8)
        >>> attention(ta.randn(1, 4, 3), ta.randn(1, 5, 2), ta.randn(1, 5, 6)).shape
        (1, 4, 6)
    """

    def __init__(
        self, key_size: int, query_size: int, num_hiddens: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.W_k = Linear(key_size, num_hiddens, bias=False)
        self.W_q = Linear(query_size, num_hiddens, bias=False)
        self.w_v = Linear(num_hiddens, 1, bias=False)
        self.dropout = Dropout(dropout)

    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        valid_lens: ArrayLike | None = None,
        mask: ArrayLike | None = None,
    ) -> Tensor:
        visibility, keys, values = checked_inputs(queries, keys, values, valid_lens, mask)
        # (B, Q, 1, h) + (B, 1, K, h) -> (B, Q, K, h)
        features = (self.W_q(queries).unsqueeze(2) + self.W_k(keys).unsqueeze(1)).tanh()
        scores = self.w_v(features).reshape(*visibility.scores_shape(1))
        weights = softmax_of_visible(scores, visibility)
        detached = weights.detach()
        self._last_weights = lambda: detached.squeeze(1)
        return weighted_sum(self.dropout(weights), values.unsqueeze(1), visibility).squeeze(1)


class MultiHeadAttention(Attention):
    """`num_heads` attentions side by side, each on its own projections, joined by a projection.

        head_h = softmax(q_h k_h^T / sqrt(d)) v_h,  q_h = W_q[h] queries,  k_h and v_h likewise
        out = W_o [head_1, ..., head_H]

    Every head reads the whole input. W_q[h] are the rows of W_q that belong to head h, so q_h has
    d = num_hiddens / num_heads numbers.

    key_size, query_size, value_size: the widths of the inputs. The constructor begins with the
        keys, as in the d2l book, so name these arguments if they differ.
    num_hiddens: the width of the output; a multiple of num_heads.
    dropout: on the attention weights. bias: for the four projections.
    num_kv_heads: a divisor of num_heads: so many heads of keys and values, each for num_heads /
        num_kv_heads heads of queries that follow each other (1: multi-query attention).
    window: query i sees key k only if |i - k| < window; with is_causal the last `window` keys.
    q_norm, k_norm: attributes: None, or norms of heads before they are rotated, as RMSNorm(d).
    rotary: a module that rotates queries and keys by their positions, such as RotaryEmbedding(d).
        It is called as rotary(x, positions), x (B, N, H, d) and positions (N, 1), or packed, x
        (R, H, d) and positions (R, 1); keys have num_kv_heads heads.

    Call: queries (B, Q, query_size), keys (B, K, key_size), values (B, K, value_size),
    valid_lens (B,) or (B, Q), mask, is_causal, bias -> (B, Q, num_hiddens). The bias is a Tensor
    that broadcasts to the scores (B, H, Q, K), to which it is added.
    Or packed, for self-attention: queries, keys and values (R, size), valid_lens (B,) with sum R,
    is_causal -> (R, num_hiddens); see `functional.pack_padded_sequence`.
    positions: those of queries and keys for `rotary`, integers (N,) or (B, N), or packed, (R,). By
    default they count from 0, and go on after those in the cache, padding included.
    cache: a KeyValueCache of `nn/cache.py`; the queries then come after the positions of earlier
    calls, and valid_lens, mask and bias speak of the keys of all calls, so a bias of distances is
    F.alibi_bias(H, Q, past=cache.past). See `nn.Decoder`.
    Raises ShapeError, MaskError or DtypeError for arguments that do not fit together.

        >>> attention = nn.MultiHeadAttention(8, 8, 8, num_hiddens=6, num_heads=2)
        >>> attention(ta.randn(1, 3, 8), *[ta.randn(1, 5, 8)] * 2, valid_lens=[4]).shape
        (1, 3, 6)

    Source: Vaswani et al., 2017; the d2l book, "Multi-Head Attention". Differs from PyTorch's
    nn.MultiheadAttention: True in a mask means "ignored" there, and "may attend" here. PyTorch's
    module returns the weights too; here they are `attention_weights`.
    """

    q_norm: Module | None = None
    k_norm: Module | None = None

    def __init__(
        self,
        key_size: int,
        query_size: int,
        value_size: int,
        num_hiddens: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = False,
        num_kv_heads: int | None = None,
        window: int | None = None,
        rotary: Module | None = None,
    ) -> None:
        super().__init__()
        check_size("num_heads", num_heads)
        check_heads(check_size("num_hiddens", num_hiddens), num_heads)
        self.num_heads = num_heads
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if num_heads % check_size("num_kv_heads", self.num_kv_heads):
            raise ShapeError(f"num_kv_heads {num_kv_heads} does not divide num_heads {num_heads}")
        self.window = None if window is None else check_size("window", window)
        width = num_hiddens // num_heads
        such_as = f"rotary is a module, such as nn.RotaryEmbedding({width})"
        self.rotary = check_type(such_as, rotary, Module | None)
        if isinstance(rotary, (PositionalEncoding, LearnedPositionalEncoding)):
            raise TypeError(f"{such_as}, got {type_name(rotary)}, which is added to the inputs")
        if type(rotary) is RotaryEmbedding and rotary.width != width:
            raise ShapeError(f"a head has {width} numbers, and its rotary turns {rotary.width}")
        kv_width = width * self.num_kv_heads
        self.dropout = Dropout(dropout)
        self.W_q = Linear(query_size, num_hiddens, bias=bias)
        self.W_k = Linear(key_size, kv_width, bias=bias)
        self.W_v = Linear(value_size, kv_width, bias=bias)
        self.W_o = Linear(num_hiddens, num_hiddens, bias=bias)

    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        valid_lens: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        is_causal: bool = False,
        bias: Tensor | None = None,
        cache: KeyValueCache | None = None,
        positions: ArrayLike | None = None,
    ) -> Tensor:
        heads = self.num_heads, self.num_kv_heads
        visibility, keys, values = checked_inputs(
            queries, keys, values, valid_lens, mask, self.num_heads, is_causal, self.window, cache
        )
        if bias is not None:
            bias = checked_bias("bias", bias, queries, visibility.scores_shape(self.num_heads))
        past, past_keys = (0, 0) if cache is None else (cache.past, cache.past_keys)
        # Positions alone too, because they are an error without `rotary`.
        rotates = any(x is not None for x in (self.rotary, self.q_norm, self.k_norm, positions))
        q = self.W_q(queries)
        if rotates:
            q = self.rotated(q, heads[0], self.q_norm, visibility.queries, past, positions)
        # The output of an encoder is projected in the first call only.
        memory = None if cache is None else cache.memory(keys)
        if memory is not None:
            k, v = memory
        else:
            k, v = self.W_k(keys), self.W_v(values)  # (B, K, G * d), (B, K, G * e)
            if rotates:
                k = self.rotated(k, heads[1], self.k_norm, visibility.keys, past_keys, positions)
        if cache is not None:
            k, v = cache.joined(k, v)
        out = self.W_o(self.attend(q, k, v, visibility, heads, bias))
        if cache is not None:  # now, because a call that ends with an error leaves it as it was
            cache.store(k, v, queries.shape[1])
        return out

    def rotated(
        self,
        x: Tensor,
        heads: int,
        norm: Module | None,
        samples: Samples,
        first_position: int,
        positions: ArrayLike | None = None,
    ) -> Tensor:
        """Queries or keys, whose heads go through the norm, and are rotated by their positions.

        x (B, N, H * d), or packed, (R, H * d), where each sample begins at position 0.
        """
        check_heads(x.shape[-1], heads)
        split = x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads)  # (B, N, H, d)
        split = split if norm is None else norm(split)
        if self.rotary is None:
            if positions is not None:
                raise ValueError("positions are for an attention with `rotary`, this one has none")
            return split.reshape(x.shape)
        if positions is None:
            own = np.arange(first_position, first_position + x.shape[1])
            positions = samples.positions() if x.ndim == 2 else own
        rows = array_like(positions, "positions")[..., None]
        return self.rotary(split, rows).reshape(x.shape)


class MultiHeadedAttention(MultiHeadAttention):
    """The Annotated Transformer's multi-head attention: one width everywhere, biases, dropout 0.1.

    Call: query, key, value (B, N, embedding_dim), mask, valid_lens, is_causal, bias ->
    (B, N, embedding_dim), or packed, as MultiHeadAttention. A mask of two dimensions is (B, K).

    Differs from the original: there a mask (B, K) works only if B equals the number of heads, and
    is then applied to heads instead of samples; and the four projections start with equal weights.
    """

    def __init__(
        self,
        head: int,
        embedding_dim: int,
        dropout: float = 0.1,
        num_kv_heads: int | None = None,
        window: int | None = None,
        rotary: Module | None = None,
    ) -> None:
        sizes, bias = (embedding_dim,) * 4, True
        super().__init__(*sizes, head, dropout, bias, num_kv_heads, window, rotary)

    def forward(  # type: ignore[override]
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: ArrayLike | None = None,
        valid_lens: ArrayLike | None = None,
        is_causal: bool = False,
        bias: Tensor | None = None,
        cache: KeyValueCache | None = None,
        positions: ArrayLike | None = None,
    ) -> Tensor:
        return super().forward(
            query, key, value, valid_lens, mask, is_causal, bias, cache, positions
        )


class SelfAttention(Attention):
    """One head over one sequence: softmax(q k^T / sqrt(h)) v with q, k, v projected from x.

    Call: x (B, N, embed_size), valid_lens, mask -> (B, N, hidden_size). Without positions in x the
    order has no influence: if x is permuted, the output is permuted in the same way.

        >>> nn.SelfAttention(4, 6)(ta.randn(2, 3, 4)).shape
        (2, 3, 6)
    """

    def __init__(self, embed_size: int, hidden_size: int) -> None:
        super().__init__()
        self.linear_q = Linear(embed_size, hidden_size)
        self.linear_k = Linear(embed_size, hidden_size)
        self.linear_v = Linear(embed_size, hidden_size)
        self.attention = DotProductAttention()

    def forward(
        self, x: Tensor, valid_lens: ArrayLike | None = None, mask: ArrayLike | None = None
    ) -> Tensor:
        q, k, v = self.linear_q(x), self.linear_k(x), self.linear_v(x)
        return self.attention(q, k, v, valid_lens, mask)

    @property
    def attention_weights(self) -> Tensor:
        return self.attention.attention_weights
