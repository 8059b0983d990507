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

from .. import functional as F
from .. import masks, ops
from ..base import random
from ..base.checks import check_heads, check_size
from ..errors import MaskError, ShapeError
from ..kernels.reference import Drop, attention_weights
from ..kernels.visibility import Visibility
from ..tensors.tensor import Tensor
from .layers import Dropout, Linear
from .module import Module

ONLY_MULTI_HEAD = "; packed samples, (N, D), are for MultiHeadAttention"


class Attention(Module):
    """The part that all attention modules share: the weights of their last call."""

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
        """softmax(q k^T / sqrt(d) + bias) v in each head, with dropout on the weights.

        q (B, Q, H * d), k (B, K, G * d), v (B, K, G * e) -> (B, Q, H * e), or packed.
        `kernels/reference.py` says it in 15 lines, `kernels/cpu/attention.py` computes the same
        block by block.
        """
        scale = F.default_scale(q.shape[-1] // heads[0])
        p = F.checked_probability(self.dropout.p) if self.dropout.training else 0.0
        drop = Drop(p, random.dropout_seed() if p else 0)
        options = {"visibility": visibility, "scale": scale}
        out = ops.attention(q, k, v, bias, heads=heads, **options, drop=drop)
        q, k = self.remembered(q), self.remembered(k)
        bias = None if bias is None else bias.detach().clone()  # its caller may write to it
        self._last_weights = lambda: attention_weights(
            *ops.in_heads(q, k, heads=heads), **options, bias=bias
        )
        return out

    def remembered(self, x: Tensor) -> Tensor:
        """Queries or keys as `attention_weights` reads them later."""
        return x.detach()


def seen(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    valid_lens: Any,
    mask: Any,
    heads: int | None = None,
    is_causal: bool = False,
    window: int | None = None,
    cache: KeyValueCache | None = None,
) -> tuple[Visibility, Tensor, Tensor]:
    """The visibility of a call, all checked, and keys and values without what nobody may see.

    queries, keys, values: (B, N, D), or packed, (N, D), for multi-head attention without a cache.
    heads: None for attention without heads.
    """
    named = {"queries": queries, "keys": keys, "values": values}
    shapes = [F.tensor_of(x, name).shape for name, x in named.items()]
    F.same_kind("attention", **named)
    options = (is_causal, window, queries.device)
    if heads is not None and queries.ndim == 2 and valid_lens is not None and cache is None:
        if any(len(shape) != 2 or shape[0] != shapes[0][0] for shape in shapes):
            raise ShapeError(
                "packed queries, keys and values are (N, D) with one N, got "
                + ", ".join(map(str, shapes))
            )
        if mask is not None:
            raise MaskError("packed samples hold no padding: they take valid_lens and no mask")
        return masks.visibility_of_packed(valid_lens, len(queries), *options), keys, values
    packed = ONLY_MULTI_HEAD if heads is None else "; packed, (N, D), they take valid_lens"
    for name, x in named.items():
        if x.ndim != 3:
            hint = packed if x.ndim == 2 else ""
            raise ShapeError(f"{name} are (B, N, D), got shape {x.shape}{hint}")
    if not len(queries) == len(keys) == len(values) or keys.shape[1] != values.shape[1]:
        raise ShapeError(
            "queries (B, Q, _), keys (B, K, _) and values (B, K, _) must agree in B and K, got "
            f"{queries.shape}, {keys.shape}, {values.shape}"
        )
    past, heads = 0 if cache is None else cache.past, heads or 1
    shape = (len(queries), heads, queries.shape[1], past + keys.shape[1])  # (B, H, Q, K)
    visibility = masks.visibility(shape, valid_lens, mask, *options, past)
    if cache is not None and cache.kept is not None:  # keys are cleared, or not all are here
        return visibility, keys, values
    return visibility, *ops.clear_invisible(visibility, heads, keys, values)


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

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)

    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        valid_lens: Any = None,
        mask: Any = None,
    ) -> Tensor:
        visibility, keys, values = seen(queries, keys, values, valid_lens, mask)
        if queries.shape[2] != keys.shape[2]:
            raise ShapeError(
                "queries (B, Q, d) and keys (B, K, d) must agree in their width d, got "
                f"{queries.shape} and {keys.shape}"
            )
        return self.attend(queries, keys, values, visibility)

    def remembered(self, x: Tensor) -> Tensor:
        return x.detach().clone()  # because the caller may write to queries and keys

    @property
    def attention_weights(self) -> Tensor:
        return super().attention_weights.squeeze(1)  # (B, Q, K)


class AdditiveAttention(Attention):
    """a(q, k) = w_v^T tanh(W_q q + W_k k), then a masked softmax over the keys.

    Queries and keys may have different widths. Call: as DotProductAttention. The sums of all
    queries and keys are (B, Q, K, num_hiddens) numbers: 512 MiB for B=32, Q=K=128, 256 hiddens.

    Source: Bahdanau et al., 2015; the d2l book, "Attention Scoring Functions".
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
        valid_lens: Any = None,
        mask: Any = None,
    ) -> Tensor:
        visibility, keys, values = seen(queries, keys, values, valid_lens, mask)
        # (B, Q, 1, h) + (B, 1, K, h) -> (B, Q, K, h)
        features = (self.W_q(queries).unsqueeze(2) + self.W_k(keys).unsqueeze(1)).tanh()
        scores = self.w_v(features).reshape(*visibility.shape(1))
        weights = ops.masked_softmax(scores, visibility=visibility)
        recorded = weights.detach()
        self._last_weights = lambda: recorded.squeeze(1)
        dropped = self.dropout(weights)
        out = ops.weighted_sum(dropped, values.unsqueeze(1), visibility=visibility)
        return out.squeeze(1)


class KeyValueCache:
    """The projected keys and values of one attention, kept from call to call.

    grows: True for self-attention, because each call brings new positions. False for attention to a
        memory: its keys and values are projected in the first call only.
    """

    def __init__(self, grows: bool) -> None:
        self.grows = grows
        self.kept: tuple[Tensor, ...] | None = None  # k and v, (B, K, G * d)

    @property
    def past(self) -> int:
        """How many positions come before those of the next call."""
        return self.kept[0].shape[1] if self.grows and self.kept else 0

    def keys_and_values(self, project: Callable[[], Any], shape: tuple[int, int]) -> Any:
        """k and v of all positions, (B, K, G * d); project() gives those of this call's keys, of
        which there are `shape`, (B, K)."""
        batch, keys = shape
        had = shape if self.kept is None else self.kept[0].shape[:2]
        if had[0] != batch or (not self.grows and had[1] != keys):
            what = "" if self.grows else f" and a memory of {had[1]} positions"
            raise ShapeError(
                f"the cache is of {had[0]} samples{what}, got {batch} and {keys}: begin with a new "
                "cache, or select its samples"
            )
        if self.kept is None:
            self.kept = project()
        elif self.grows:
            self.kept = tuple(
                ops.cat(*pair, dim=1) for pair in zip(self.kept, project(), strict=True)
            )
        return self.kept

    def select(self, rows: Any) -> None:
        """Go on with the samples `rows` (B',), in this order; one may be there several times."""
        self.kept = tuple(x[rows] for x in self.kept) if self.kept else None


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

    Call: queries (B, Q, query_size), keys (B, K, key_size), values (B, K, value_size),
    valid_lens (B,) or (B, Q), mask, is_causal, bias -> (B, Q, num_hiddens). The bias is a Tensor
    that broadcasts to the scores (B, H, Q, K), to which it is added.
    Or packed, for self-attention: queries, keys and values (N, size), valid_lens (B,) with sum N,
    is_causal -> (N, num_hiddens); see `functional.pack_padded_sequence`.
    cache: a KeyValueCache; the queries then come after the positions of earlier calls, and
    valid_lens and mask speak of the keys of all calls. See `nn.Decoder`.

    Source: Vaswani et al., 2017; the d2l book, "Multi-Head Attention". Differs from PyTorch's
    nn.MultiheadAttention: True in its masks means "ignored", and it returns the weights too.
    """

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
    ) -> None:
        super().__init__()
        check_size("num_heads", num_heads)
        check_heads(check_size("num_hiddens", num_hiddens), num_heads)
        self.num_heads = num_heads
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if num_heads % check_size("num_kv_heads", self.num_kv_heads):
            raise ShapeError(f"num_kv_heads {num_kv_heads} does not divide num_heads {num_heads}")
        self.window = None if window is None else check_size("window", window)
        of_keys = num_hiddens // num_heads * self.num_kv_heads
        self.dropout = Dropout(dropout)
        self.W_q = Linear(query_size, num_hiddens, bias=bias)
        self.W_k = Linear(key_size, of_keys, bias=bias)
        self.W_v = Linear(value_size, of_keys, bias=bias)
        self.W_o = Linear(num_hiddens, num_hiddens, bias=bias)

    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        valid_lens: Any = None,
        mask: Any = None,
        is_causal: bool = False,
        bias: Tensor | None = None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        visibility, keys, values = seen(
            queries, keys, values, valid_lens, mask, self.num_heads, is_causal, self.window, cache
        )
        if bias is not None:
            bias = F.checked_bias("bias", bias, queries, visibility.shape(self.num_heads))

        q = self.W_q(queries)  # (B, Q, H * d), or packed, (R, H * d)
        if cache is None:
            k, v = self.W_k(keys), self.W_v(values)
        else:
            k, v = cache.keys_and_values(lambda: (self.W_k(keys), self.W_v(values)), keys.shape[:2])
        heads = self.num_heads, self.num_kv_heads
        return self.W_o(self.attend(q, k, v, visibility, heads, bias))


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
    ) -> None:
        super().__init__(
            *(embedding_dim,) * 4,
            head,
            dropout,
            bias=True,
            num_kv_heads=num_kv_heads,
            window=window,
        )

    def forward(  # type: ignore[override]
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Any = None,
        valid_lens: Any = None,
        is_causal: bool = False,
        bias: Tensor | None = None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        return super().forward(query, key, value, valid_lens, mask, is_causal, bias, cache)


class SelfAttention(Attention):
    """One head over one sequence: softmax(q k^T / sqrt(h)) v with q, k, v projected from x.

    Call: x (B, N, embed_size), valid_lens, mask -> (B, N, hidden_size). Without positions in x the
    order has no influence: if x is permuted, the output is permuted in the same way.
    """

    def __init__(self, embed_size: int, hidden_size: int) -> None:
        super().__init__()
        self.linear_q = Linear(embed_size, hidden_size)
        self.linear_k = Linear(embed_size, hidden_size)
        self.linear_v = Linear(embed_size, hidden_size)
        self.attention = DotProductAttention()

    def forward(self, x: Tensor, valid_lens: Any = None, mask: Any = None) -> Tensor:
        q, k, v = self.linear_q(x), self.linear_k(x), self.linear_v(x)
        return self.attention(q, k, v, valid_lens, mask)

    @property
    def attention_weights(self) -> Tensor:
        return self.attention.attention_weights
