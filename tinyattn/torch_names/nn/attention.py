"""PyTorch's MultiheadAttention: its arguments, its masks, and the names of its parameters."""

import math
from typing import Any

import numpy as np

from ... import masks
from ...base.checks import check_heads, check_size, checked_probability
from ...base.random import Drop, dropout_seed
from ...errors import DtypeError, ShapeError
from ...nn import Linear, Module, Parameter, init
from ...ops.arguments import float_tensor
from ...ops.arithmetic import where
from ...ops.attention import attention, attention_output, attention_weights, default_scale, in_heads
from ...ops.visibility import visibility_of
from ...tensors.tensor import Tensor
from . import functional as F
from .modules import takes

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """PyTorch's multi-head attention. In its masks True means "ignored"!

    Call: query (Q, B, embed_dim), key (K, B, kdim), value (K, B, vdim), or with batch_first
    (B, Q, embed_dim) and so on, or of one sample (Q, embed_dim) -> the output, of the shape of the
    query, and the weights (B, Q, K), or with average_attn_weights=False (B, H, Q, K), or None with
    need_weights=False, which is faster and needs less memory.
    key_padding_mask: (B, K). attn_mask: (Q, K) or (B * H, Q, K). Of booleans, True = ignored; of
        floats, what is added to the scores, where -inf hides a key.
    is_causal: a hint that attn_mask is the causal mask, which is seen here without it.
    Raises ShapeError and DtypeError for arguments that do not fit together, and ValueError for
    add_bias_kv and add_zero_attn, because no key is added here.
    Differs from PyTorch: a query whose keys are all hidden gets zeros, and there may get NaN.

    In tinyattn: write nn.MultiHeadedAttention(num_heads, embed_dim, dropout=0.0)

        >>> import tinyattn.torch_names.nn as nn
        >>> attention, x = nn.MultiheadAttention(8, 2, batch_first=True), ta.randn(3, 5, 8)
        >>> out, weights = attention(x, x, x, key_padding_mask=ta.zeros(3, 5).bool())
        >>> out.shape, weights.shape
        ((3, 5, 8), (3, 5, 5))
    """

    in_proj_weight: Parameter | None = None  # None: what the arguments leave out
    in_proj_bias: Parameter | None = None

    @takes(
        "embed_dim, num_heads, dropout=0.0, bias=True, add_bias_kv=False, add_zero_attn=False, "
        "kdim=None, vdim=None, batch_first=False"
    )
    def __init__(self, given: Any) -> None:
        if given.add_bias_kv or given.add_zero_attn:
            raise ValueError("add_bias_kv, add_zero_attn are not there: add a row to key and value")
        self.embed_dim = size = check_size("embed_dim", given.embed_dim)
        self.num_heads = heads = check_size("num_heads", given.num_heads)
        check_heads(size, heads)
        self.head_dim, self.dropout = size // heads, checked_probability(given.dropout)
        self.batch_first = given.batch_first
        sizes = size, given.kdim or size, given.vdim or size
        shapes: dict[str, tuple[int, ...]] = {"in_proj_weight": (3 * size, size)}
        if sizes != (size, size, size):
            shapes = {f"{x}_proj_weight": (size, n) for x, n in zip("qkv", sizes, strict=True)}
        shapes |= {"in_proj_bias": (3 * size,)} if given.bias else {}
        for name, shape in shapes.items():
            setattr(self, name, Parameter(np.zeros(shape, np.float32)))
        self.out_proj = Linear(size, size, given.bias)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        start = {2: init.xavier_uniform_, 1: init.zeros_}
        for parameter in self._parameters.values():
            start[parameter.ndim](parameter)
        if self.out_proj.bias is not None:
            init.zeros_(self.out_proj.bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        if is_causal and attn_mask is None:
            raise ValueError("with is_causal=True attention takes the causal attn_mask too")
        q, k, v = self.project(query, key, value)  # (B, N, embed_dim)
        shape = len(q), self.num_heads, q.shape[1], k.shape[1]
        visible, bias, is_causal = read_masks(shape, attn_mask, key_padding_mask)
        visibility = visibility_of(shape, None, visible, is_causal, None, q.device)
        heads, scale = (self.num_heads,) * 2, default_scale(self.head_dim)
        p, weights = self.dropout if self.training else 0.0, None
        if need_weights:  # the formula as it is written, so that the weights have a gradient
            q_rows, k_rows, v_rows = (in_heads(x, self.num_heads) for x in (q, k, v))
            weights = F.dropout(attention_weights(q_rows, k_rows, visibility, scale, bias), p)
            out = attention_output(weights, v_rows, visibility).reshape(q.shape)
            weights = weights.mean(1) if average_attn_weights else weights
        else:
            options: dict[str, Any] = {"heads": heads, "visibility": visibility, "scale": scale}
            options["drop"] = Drop(p, dropout_seed() if p else 0)
            out = attention(q, k, v, bias, **options)
        out = self.out_proj(out)
        if query.ndim == 2:
            return out.squeeze(0), None if weights is None else weights.squeeze(0)
        return out if self.batch_first else out.transpose(0, 1).contiguous(), weights

    def project(self, *inputs: Tensor) -> list[Tensor]:
        """Queries, keys and values of all heads, (B, N, embed_dim)."""
        shapes = [float_tensor(x, "an input").shape for x in inputs]
        if {len(shape) for shape in shapes} not in ({2}, {3}):
            raise ShapeError(f"query, key and value are (N, B, D), or all (N, D), got {shapes}")
        # Each input once, because self-attention has one for all three.
        batches = {id(x): self.in_batches(x) for x in inputs}
        (n, _), keys, values = (batches[id(x)].shape[:2] for x in inputs)
        if keys != values or keys[0] != n:
            raise ShapeError(
                f"query, key and value have the same B, and key and value the same N, got {shapes}"
            )
        if len(batches) == 1 and self.in_proj_weight is not None:
            (x,) = batches.values()
            return list(F.linear(x, self.in_proj_weight, self.in_proj_bias).chunk(3, -1))
        if self.in_proj_weight is None:
            weights = tuple(getattr(self, f"{name}_proj_weight") for name in "qkv")
        else:
            weights = self.in_proj_weight.chunk(3)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        by_input = zip(inputs, weights, biases, strict=True)
        return [F.linear(batches[id(x)], weight, bias) for x, weight, bias in by_input]

    def in_batches(self, x: Tensor) -> Tensor:
        """(B, N, D), also in memory, because up to three projections read it."""
        if x.ndim == 2:
            return x.unsqueeze(0)
        return x if self.batch_first else x.transpose(0, 1).contiguous()


def read_masks(
    shape: tuple[int, ...], attn_mask: Tensor | None, key_padding_mask: Tensor | None
) -> tuple[Tensor | None, Tensor | None, bool]:
    """What PyTorch's masks say of scores (B, H, Q, K): which keys are visible, what is added, and
    whether they are causal besides, which attention need not read from an array."""
    batch, heads, queries, keys = shape
    forms = {
        "attn_mask": {(queries, keys): (1, 1), (batch * heads, queries, keys): (batch, heads)},
        "key_padding_mask": {(batch, keys): (batch, 1), (keys,): (1, 1)},
    }
    visible, bias, is_causal = None, None, False
    for (name, form), mask in zip(forms.items(), (attn_mask, key_padding_mask), strict=True):
        if mask is None:
            continue
        if mask.shape not in form or mask.dtype.kind not in "bf":
            raise (ShapeError if mask.shape not in form else DtypeError)(
                f"{name} is {' or '.join(map(str, form))}, of booleans (True = ignored), or of "
                f"floats that are added to the scores, got {mask.dtype} {mask.shape}"
            )
        mask = mask.reshape(*form[mask.shape], -1, keys)
        kept = ~mask if mask.dtype.kind == "b" else mask != -math.inf
        if mask.dtype.kind == "f":
            numbers = where(kept, mask, 0.0)
            if mask.requires_grad or bool((numbers != 0).any()):
                bias = numbers if bias is None else bias + numbers
        if kept.shape == (1, 1, keys, keys) and name == "attn_mask":
            is_causal = bool((kept == masks.causal(keys).to(kept.device)).all())
        if not (is_causal and name == "attn_mask"):
            visible = kept if visible is None else visible & kept
    return visible, bias, is_causal
