"""Attention, from a single scoring function to many heads.

Two families of names meet here. The d2l book writes `MultiHeadAttention(key_size, query_size,
value_size, num_hiddens, num_heads, dropout)`, the Annotated Transformer `MultiHeadedAttention(head,
embedding_dim)`; both are the same computation. Calls take queries, keys, values in this order,
whatever the order of sizes in a constructor. Fourth come `valid_lens` in the d2l book's modules and
`mask` in the Annotated Transformer's, as in these texts: name them, and no order can be mistaken.

Masks mean "may attend" everywhere; see `tinyattn.masks`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .. import functional as F
from .. import masks, ops, random
from ..checks import check_size
from ..errors import MaskError, ShapeError
from ..kernels import reference
from ..ops.attention import check_heads
from ..tensor import Tensor
from .layers import Dropout, Linear
from .module import Module, are_own

ONLY_MULTI_HEAD = "; packed samples, (N, D), are for MultiHeadAttention"


class Attention(Module):
    """What all attention modules share: the memory of their last weights."""

    def __init__(self) -> None:
        super().__init__()
        self._last_weights: Callable[[], Tensor] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last_weights": None}  # a copy has not been called yet

    @property
    def attention_weights(self) -> Tensor:
        """The weights of the last call: before dropout, without a graph, (B, H, Q, K) or (B, Q, K).

        Computed when read, so that a call which nobody looks into does not pay for them.
        """
        if self._last_weights is None:
            raise AttributeError("there are no attention weights before the first call")
        weights = self._last_weights()
        self._last_weights = lambda: weights
        return weights

    @property
    def attn(self) -> Tensor:
        """The Annotated Transformer's name for `attention_weights`."""
        return self.attention_weights


def check_qkv(queries: Any, keys: Any, values: Any, packed: str = ONLY_MULTI_HEAD) -> None:
    """Three Tensors (B, N, D) that agree in samples, keys, dtype and device; `packed` is what else
    to say of rows (N, D)."""
    named = {"queries": queries, "keys": keys, "values": values}
    for name, x in named.items():
        F.tensor_of(x, name)
        if x.ndim != 3:
            hint = packed if x.ndim == 2 else ""
            raise ShapeError(f"{name} are (B, N, D), got shape {x.shape}{hint}")
    if not queries.shape[0] == keys.shape[0] == values.shape[0] or keys.shape[1] != values.shape[1]:
        raise ShapeError(
            "queries (B, Q, _), keys (B, K, _) and values (B, K, _) must agree in B and K, got "
            f"{queries.shape}, {keys.shape}, {values.shape}"
        )
    F.same_kind("attention", **named)


def check_packed(queries: Any, keys: Any, values: Any) -> None:
    """Three Tensors (N, D) that agree in N, dtype and device."""
    named = {"queries": queries, "keys": keys, "values": values}
    for name, x in named.items():
        F.tensor_of(x, name)
    if not queries.ndim == keys.ndim == values.ndim == 2 or not (
        len(queries) == len(keys) == len(values)
    ):
        raise ShapeError(
            "packed queries, keys and values are (N, D) with one N, got "
            f"{queries.shape}, {keys.shape}, {values.shape}"
        )
    F.same_kind("attention", **named)


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
        check_qkv(queries, keys, values)
        shape = (len(queries), 1, queries.shape[1], keys.shape[1])  # (B, H, Q, K)
        hidden = masks.canonical(shape, valid_lens, mask, device=queries.device)
        keys, values = F.without_hidden(shape, hidden, keys, values)
        q, k, v = queries.unsqueeze(1), keys.unsqueeze(1), values.unsqueeze(1)
        limits, seen = hidden
        options = softmax_options(q.shape[-1], self.dropout)
        out = ops.attention(q, k, v, limits=limits, mask=seen, **options)
        # A copy: queries and keys may be the caller's own, and be written to before anyone looks.
        q, k = q.detach().clone(), k.detach().clone()
        scale = options["scale"]
        self._last_weights = lambda: F.attention_weights(q, k, limits, seen, scale).squeeze(1)
        return out.squeeze(1)


def softmax_options(width: int, dropout: Dropout) -> dict[str, Any]:
    """What the ops of attention take besides masks: 1 / sqrt(d), and dropout of the weights."""
    p = dropout.p if dropout.training else 0.0
    return {"scale": 1 / math.sqrt(width), "p": p, "seed": random.dropout_seed() if p else 0}


class AdditiveAttention(Attention):
    """a(q, k) = w_v^T tanh(W_q q + W_k k), then a masked softmax over the keys.

    Queries and keys may have different sizes. Call as DotProductAttention. The sum of every query
    with every key takes (B, Q, K, num_hiddens) numbers: 512 MiB for B=32, Q=K=128, 256 hiddens.

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
        check_qkv(queries, keys, values)
        shape = (len(queries), 1, queries.shape[1], keys.shape[1])  # (B, H, Q, K)
        limits, seen = masks.canonical(shape, valid_lens, mask, device=queries.device)
        keys, values = F.without_hidden(shape, (limits, seen), keys, values)
        # (B, Q, 1, h) + (B, 1, K, h) -> (B, Q, K, h)
        features = (self.W_q(queries).unsqueeze(2) + self.W_k(keys).unsqueeze(1)).tanh()
        scores = self.w_v(features).reshape(*shape)
        weights = ops.masked_softmax(scores, limits=limits, mask=seen)
        recorded = weights.detach()
        self._last_weights = lambda: recorded.squeeze(1)
        dropped = self.dropout(weights)
        out = ops.weighted_sum(dropped, values.unsqueeze(1), limits=limits, mask=seen)
        return out.squeeze(1)


class MultiHeadAttention(Attention):
    """Attention in `num_heads` projected subspaces at once, joined by a last projection.

    Every head reads the whole input, projected by its own rows of W_q, W_k, W_v to
    d = num_hiddens / num_heads numbers; what is split is the projection, not the input.

    key_size, query_size, value_size: the widths of what is passed in; call order is queries, keys,
        values all the same, so name them where they differ.
    num_hiddens: the width of the output; a multiple of num_heads.
    dropout: on the attention weights. bias: for the four projections.

    Call: queries (B, Q, query_size), keys (B, K, key_size), values (B, K, value_size),
    valid_lens (B,) or (B, Q), mask, is_causal -> (B, Q, num_hiddens).
    Or packed, for self-attention: queries, keys and values (N, size), valid_lens (B,) with sum N,
    is_causal -> (N, num_hiddens); see `functional.pack_padded_sequence`.

    Source: Vaswani et al., 2017; the d2l book, "Multi-Head Attention". Differs from
    nn.MultiheadAttention of PyTorch: its boolean masks mean the opposite, and it returns weights
    (`need_weights`); here a call gives the output, and weights are read from `attention_weights`.
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
    ) -> None:
        super().__init__()
        check_size("num_heads", num_heads)
        check_heads(check_size("num_hiddens", num_hiddens), num_heads)
        self.num_heads = num_heads
        self.dropout = Dropout(dropout)
        self.W_q = Linear(query_size, num_hiddens, bias=bias)
        self.W_k = Linear(key_size, num_hiddens, bias=bias)
        self.W_v = Linear(value_size, num_hiddens, bias=bias)
        self.W_o = Linear(num_hiddens, num_hiddens, bias=bias)

    def split(self, x: Tensor) -> Tensor:
        """(B, N, D) -> (B, H, N, d): the heads as a dimension of their own."""
        batch, n, width = x.shape
        x = x.reshape(batch, n, self.num_heads, width // self.num_heads)  # (B, N, H, d)
        return x.permute(0, 2, 1, 3)

    def merge(self, x: Tensor) -> Tensor:
        """(B, H, N, d) -> (B, N, D)."""
        batch, heads, n, width = x.shape
        return x.permute(0, 2, 1, 3).reshape(batch, n, heads * width)

    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        valid_lens: Any = None,
        mask: Any = None,
        is_causal: bool = False,
    ) -> Tensor:
        if isinstance(queries, Tensor) and queries.ndim == 2 and valid_lens is not None:
            return self.forward_packed(queries, keys, values, valid_lens, mask, is_causal)
        check_qkv(queries, keys, values, "; packed, (N, D), they take valid_lens")
        shape = (len(queries), self.num_heads, queries.shape[1], keys.shape[1])  # (B, H, Q, K)
        limits, seen = masks.canonical(shape, valid_lens, mask, is_causal, queries.device)
        keys, values = F.without_hidden(shape, (limits, seen), keys, values)
        if queries is keys is values and self.projects_alike():
            return self.W_o(self.attend_to_itself(self.project(queries), None, limits, seen))
        q, k, v = map(self.split, (self.W_q(queries), self.W_k(keys), self.W_v(values)))
        options = softmax_options(q.shape[-1], self.dropout)
        heads = ops.attention(q, k, v, limits=limits, mask=seen, **options)
        q, k, scale = q.detach(), k.detach(), options["scale"]
        self._last_weights = lambda: F.attention_weights(q, k, limits, seen, scale)
        return self.W_o(self.merge(heads))

    def forward_packed(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        valid_lens: Any,
        mask: Any,
        is_causal: bool,
    ) -> Tensor:
        """Self-attention of packed samples (N, D)."""
        check_packed(queries, keys, values)
        lengths, limits = self.within_samples(len(queries), valid_lens, mask, is_causal)
        if queries is keys is values and self.projects_alike():
            qkv = self.project(queries)
        else:
            parts = (self.W_q(queries), self.W_k(keys), self.W_v(values))
            if not parts[0].shape == parts[1].shape == parts[2].shape:
                raise ShapeError(
                    "packed samples need projections of one width, got "
                    + ", ".join(str(part.shape) for part in parts)
                )
            qkv = ops.cat(*parts, dim=1)
        return self.W_o(self.attend_to_itself(qkv, lengths, limits, None))

    def within_samples(
        self, number: int, valid_lens: Any, mask: Any, is_causal: bool
    ) -> tuple[Any, Any]:
        """lengths and limits of packed samples, of `number` rows together."""
        if mask is not None:
            raise MaskError("packed samples hold no padding: they take valid_lens and no mask")
        lengths = masks.packed_lens(valid_lens, number)
        if not is_causal:
            return lengths, None
        longest = int(lengths.max(initial=0))
        return lengths, masks.canonical((1, 1, longest, longest), is_causal=True)[0]

    def projects_alike(self) -> bool:
        """Whether W_q, W_k and W_v can be one product: Linear itself, of one shape, all or none of
        them with a bias."""
        q, k, v = self.W_q, self.W_k, self.W_v
        return (
            are_own(Linear, q, k, v)
            and q.weight.shape == k.weight.shape == v.weight.shape
            and (q.bias is None) is (k.bias is None) is (v.bias is None)
        )

    def joined(self) -> tuple[Tensor, Tensor | None]:
        """The weights of W_q, W_k and W_v one below the other, and the biases."""
        parts = (self.W_q, self.W_k, self.W_v)
        weight = ops.cat(*(part.weight for part in parts), dim=0)
        biases = [part.bias for part in parts if part.bias is not None]
        return weight, ops.cat(*biases, dim=0) if biases else None

    def project(self, x: Tensor) -> Tensor:
        """x (..., size) -> projected queries, keys and values side by side, (..., 3 D)."""
        return F.linear(x, *self.joined())

    def attend_to_itself(self, qkv: Tensor, lengths: Any, limits: Any, seen: Any) -> Tensor:
        """From projections side by side, packed if there are lengths, to all heads (..., D)."""
        options = softmax_options(qkv.shape[-1] // 3 // self.num_heads, self.dropout)
        hiding = {"heads": self.num_heads, "lengths": lengths, "limits": limits, "mask": seen}
        heads = ops.self_attention(qkv, **hiding, **options)
        self.remember(qkv.detach(), lengths, limits, seen)
        return heads

    def remember(self, qkv: Tensor, lengths: Any, limits: Any, seen: Any) -> None:
        """What the weights can be computed from, if anyone asks for them."""

        def weights() -> Tensor:
            width = qkv.shape[-1] // 3
            x = qkv if lengths is None else F.pad_packed_sequence(qkv, lengths)
            q, k = self.split(x[..., :width]), self.split(x[..., width : 2 * width])
            seen_here = reference.within(lengths, limits, q._data)
            return F.attention_weights(q, k, seen_here, seen, 1 / math.sqrt(q.shape[-1]))

        self._last_weights = weights


class MultiHeadedAttention(MultiHeadAttention):
    """The Annotated Transformer's multi-head attention: one width everywhere, biases, dropout 0.1.

    Call: query, key, value (B, N, embedding_dim), mask, valid_lens, is_causal ->
    (B, N, embedding_dim), or packed, as MultiHeadAttention. A mask of two dimensions is (B, K).
    (In the original, a (B, K) mask runs only where B equals the number of heads, and then hides
    heads instead of samples.)

    The projections are four Linear layers of their own, not clones of one with equal weights.
    """

    def __init__(self, head: int, embedding_dim: int, dropout: float = 0.1) -> None:
        super().__init__(
            embedding_dim, embedding_dim, embedding_dim, embedding_dim, head, dropout, bias=True
        )

    def forward(  # type: ignore[override]
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Any = None,
        valid_lens: Any = None,
        is_causal: bool = False,
    ) -> Tensor:
        return super().forward(query, key, value, valid_lens, mask, is_causal)


class SelfAttention(Attention):
    """One head over one sequence: softmax(q k^T / sqrt(h)) v with q, k, v projected from x.

    Call: x (B, N, embed_size), valid_lens, mask -> (B, N, hidden_size). Without positions in x it
    is blind to order: permuting x permutes the output.
    """

    def __init__(self, embed_size: int, hidden_size: int) -> None:
        super().__init__()
        self.linear_q = Linear(embed_size, hidden_size)
        self.linear_k = Linear(embed_size, hidden_size)
        self.linear_v = Linear(embed_size, hidden_size)
        self.attention = DotProductAttention()

    def forward(self, x: Tensor, valid_lens: Any = None, mask: Any = None) -> Tensor:
        out = self.attention(self.linear_q(x), self.linear_k(x), self.linear_v(x), valid_lens, mask)
        self._last_weights = self.attention._last_weights
        return out
