"""One face for the two libraries, so that every case is written once.

Tensors of both have the same operators and most function names are PyTorch's; only what differs
stands here. A library is imported when its object is made, in the process that measures it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

VOCABULARY, CLASSES = 64, 8


class Encoder(NamedTuple):
    """The sizes of a training step."""

    width: int
    heads: int
    ff: int
    layers: int
    batch: int
    length: int

    @property
    def detail(self) -> str:
        return ",".join(map(str, self))


def layer_weights(sizes: Encoder, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Starting values of one layer: a matrix (out, in) and a vector (out,) for each product."""
    d, ff = sizes.width, sizes.ff
    shapes = {"q": (d, d), "k": (d, d), "v": (d, d), "o": (d, d), "w_1": (ff, d), "w_2": (d, ff)}
    weights = {}
    for name, (out, wide) in shapes.items():
        bound = 1 / math.sqrt(wide)
        weights[f"{name}.weight"] = rng.uniform(-bound, bound, (out, wide)).astype(np.float32)
        weights[f"{name}.bias"] = rng.uniform(-bound, bound, out).astype(np.float32)
    return weights


class Tensors:
    """What both libraries do alike, given how each makes a tensor of (array, requires_grad)."""

    tensor: Callable[..., Any]

    def constant(self, array: np.ndarray) -> Any:
        return self.tensor(array)

    def derivative(
        self, function: Callable[..., Any], arrays: list[np.ndarray]
    ) -> Callable[[], tuple[Any, list[np.ndarray]]]:
        """Computes the value of a scalar function of arrays, and its gradients."""
        leaves = [self.tensor(array, True) for array in arrays]

        def run() -> tuple[Any, list[np.ndarray]]:
            for leaf in leaves:
                leaf.grad = None
            value = function(*leaves)
            value.backward()
            return value, [leaf.grad.numpy() for leaf in leaves if leaf.grad is not None]

        return run


class TinyAttn(Tensors):
    def __init__(self, options: dict[str, Any]) -> None:
        import tinyattn as ta

        self.ta, self.F = ta, ta.functional

    def tensor(self, array: np.ndarray, requires_grad: bool = False) -> Any:
        return self.ta.tensor(array, requires_grad=requires_grad)

    def masked_softmax(self, scores: Any, lengths: np.ndarray) -> Any:
        return self.F.masked_softmax(scores, lengths)

    def attention(
        self, q: Any, k: Any, v: Any, lengths: np.ndarray | None = None, causal: bool = False
    ) -> Any:
        return self.F.scaled_dot_product_attention(q, k, v, valid_lens=lengths, is_causal=causal)

    def additive(self, size: int, weights: tuple[np.ndarray, ...]) -> Any:
        """A function of queries, keys, values and lengths, and its parameters."""
        module = self.ta.nn.AdditiveAttention(size, size, size)
        for layer, array in zip((module.W_q, module.W_k, module.w_v), weights, strict=True):
            layer.weight.data = array
        return module, [layer.weight for layer in (module.W_q, module.W_k, module.w_v)]

    def encoder(
        self, sizes: Encoder, p: float, rng: np.random.Generator, skip_padding: bool = True
    ) -> tuple[Any, list[Any]]:
        """A function of ids (B, T) and lengths (B,) giving logits (B, T, C), and its parameters."""
        nn = self.ta.nn
        attention = nn.MultiHeadedAttention(sizes.heads, sizes.width, p)
        feed_forward = nn.PositionwiseFeedForward(sizes.width, sizes.ff, p)
        layer = nn.EncoderLayer(sizes.width, attention, feed_forward, p, norm="pre")
        embedding = nn.Embedding(VOCABULARY, sizes.width)
        encoder = nn.Encoder(layer, sizes.layers, skip_padding)
        head = nn.Linear(sizes.width, CLASSES)
        embedding.weight.data = rng.standard_normal(embedding.weight.shape).astype(np.float32)
        for layer in encoder.layers:
            attend, feed = layer.self_attn, layer.feed_forward
            products = {"q": attend.W_q, "k": attend.W_k, "v": attend.W_v, "o": attend.W_o}
            products |= {"w_1": feed.w_1, "w_2": feed.w_2}
            for name, array in layer_weights(sizes, rng).items():
                part, kind = name.split(".")
                getattr(products[part], kind).data = array
        head.weight.data = rng.standard_normal(head.weight.shape).astype(np.float32) / sizes.width
        head.bias.data = np.zeros(CLASSES, np.float32)

        def model(ids: Any, lengths: np.ndarray) -> Any:
            return head(encoder(embedding(ids), valid_lens=lengths))

        parts = (embedding, encoder, head)
        return model, [parameter for part in parts for parameter in part.parameters()]

    def adam(self, parameters: list[Any]) -> Any:
        return self.ta.optim.Adam(parameters)


class Torch(Tensors):
    """PyTorch; `attention` is "fused" (scaled_dot_product_attention) or "plain".

    With `compile`, functions and encoders go through torch.compile.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        import torch

        torch.set_num_threads(options["threads"])
        self.torch, self.F = torch, torch.nn.functional
        self.fused = options["attention"] == "fused"
        self.compiled = torch.compile if options.get("compile") else lambda function: function

    def tensor(self, array: np.ndarray, requires_grad: bool = False) -> Any:
        return self.torch.tensor(array, requires_grad=requires_grad)

    def derivative(
        self, function: Callable[..., Any], arrays: list[np.ndarray]
    ) -> Callable[[], tuple[Any, list[np.ndarray]]]:
        return super().derivative(self.compiled(function), arrays)

    def seen(self, lengths: np.ndarray, keys: int) -> Any:
        """(B, 1, 1, K): which keys may be seen."""
        return self.torch.arange(keys) < self.torch.as_tensor(lengths)[:, None, None, None]

    def masked_softmax(self, scores: Any, lengths: np.ndarray) -> Any:
        hidden = ~self.seen(lengths, scores.shape[-1])
        return scores.masked_fill(hidden, -math.inf).softmax(-1)

    def attention(
        self, q: Any, k: Any, v: Any, lengths: np.ndarray | None = None, causal: bool = False
    ) -> Any:
        seen = None if lengths is None else self.seen(lengths, k.shape[-2])
        return self.attend(q, k, v, seen, causal, 0.0)

    def attend(self, q: Any, k: Any, v: Any, seen: Any, causal: bool, p: float) -> Any:
        if self.fused:
            attention = self.F.scaled_dot_product_attention
            return attention(q, k, v, attn_mask=seen, dropout_p=p, is_causal=causal)
        if causal:
            seen = self.torch.ones(q.shape[-2], k.shape[-2], dtype=self.torch.bool).tril()
        scores = (q * (1 / math.sqrt(q.shape[-1]))) @ k.transpose(-1, -2)
        scores = scores if seen is None else scores.masked_fill(~seen, -math.inf)
        weights = scores.softmax(-1)
        return (self.F.dropout(weights, p) if p else weights) @ v

    def additive(self, size: int, weights: tuple[np.ndarray, ...]) -> Any:
        w_q, w_k, w_v = parameters = [self.tensor(array, True) for array in weights]
        linear = self.F.linear

        def module(q: Any, k: Any, v: Any, lengths: np.ndarray) -> Any:
            features = (linear(q, w_q)[:, :, None] + linear(k, w_k)[:, None]).tanh()
            hidden = ~self.seen(lengths, k.shape[1])[:, 0]  # (B, 1, K)
            scores = linear(features, w_v).squeeze(-1)  # (B, Q, K)
            return scores.masked_fill(hidden, -math.inf).softmax(-1) @ v

        return module, parameters

    def encoder(
        self, sizes: Encoder, p: float, rng: np.random.Generator, skip_padding: bool = False
    ) -> tuple[Any, list[Any]]:
        """With skip_padding it is packed by hand, for which PyTorch has no option: attention gets
        padded samples, everything else the rows before each sample's length."""
        F = self.F
        d, heads = sizes.width, sizes.heads
        parameters: list[Any] = []

        def parameter(array: np.ndarray) -> Any:
            parameters.append(self.tensor(array, True))
            return parameters[-1]

        def norm() -> tuple[Any, Any]:
            return parameter(np.ones(d, np.float32)), parameter(np.zeros(d, np.float32))

        table = parameter(rng.standard_normal((VOCABULARY, d)).astype(np.float32))
        layers = []
        for _ in range(sizes.layers):
            w = layer_weights(sizes, rng)
            # Queries, keys and values as one product: PyTorch's own layer packs them too.
            for kind in ("weight", "bias"):
                w[f"qkv.{kind}"] = np.concatenate([w.pop(f"{name}.{kind}") for name in "qkv"])
            parts = [
                [parameter(w[f"{name}.{kind}"]) for kind in ("weight", "bias")]
                for name in ("qkv", "o", "w_1", "w_2")
            ]
            layers.append((norm(), norm(), *parts))
        last = norm()
        head = parameter(rng.standard_normal((CLASSES, d)).astype(np.float32) / d)
        head_bias = parameter(np.zeros(CLASSES, np.float32))

        def dropped(x: Any) -> Any:
            return F.dropout(x, p) if p else x

        def packed(x: Any, rows: Any) -> Any:
            """(B, N, ...) -> (rows, ...)"""
            return x.flatten(0, 1)[rows] if skip_padding else x

        def padded(x: Any, rows: Any, batch: int, n: int) -> Any:
            """The way back, zeros where nothing was."""
            if not skip_padding:
                return x
            out = x.new_zeros(batch * n, *x.shape[1:]).index_copy(0, rows, x)
            return out.view(batch, n, *x.shape[1:])

        @self.compiled
        def model(ids: Any, seen: Any, rows: Any) -> Any:
            batch, n = ids.shape
            x = packed(F.embedding(ids, table), rows)
            for first, second, qkv, o, w_1, w_2 in layers:
                y = padded(F.linear(F.layer_norm(x, (d,), *first), *qkv), rows, batch, n)
                q, k, v = y.view(batch, n, 3, heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
                y = self.attend(q, k, v, seen, False, p)  # (B, H, N, d)
                y = packed(y.transpose(1, 2).reshape(batch, n, d), rows)
                x = x + dropped(F.linear(y, *o))
                y = dropped(F.relu(F.linear(F.layer_norm(x, (d,), *second), *w_1)))
                x = x + dropped(F.linear(y, *w_2))
            x = padded(F.layer_norm(x, (d,), *last), rows, batch, n)
            return F.linear(x, head, head_bias)

        def run(ids: Any, lengths: np.ndarray) -> Any:
            seen = self.seen(lengths, ids.shape[1])
            return model(ids, seen, seen.flatten().nonzero().squeeze(1) if skip_padding else None)

        return run, parameters

    def adam(self, parameters: list[Any]) -> Any:
        return self.torch.optim.Adam(parameters, fused=True)


LIBRARIES = {"tinyattn": TinyAttn, "torch": Torch}
