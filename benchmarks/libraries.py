"""The libraries behind the same methods, so that every case is written once.

Tensors of tinyattn and PyTorch have the same operators, and most function names are PyTorch's. Here
stands only what differs; JAX has a file of its own, because its steps are single functions. A
library is imported when its object is made, in the process that measures it.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

IGNORE = -100


class Encoder(NamedTuple):
    """The sizes of a training step."""

    width: int
    heads: int
    ff: int
    layers: int
    batch: int
    length: int
    words: int = 64
    classes: int = 8

    @property
    def detail(self) -> str:
        return ",".join(map(str, self[:6]))


def layer_weights(sizes: Encoder, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Initial values of one layer: a matrix (out, in) and a vector (out,) for each product."""
    d, ff = sizes.width, sizes.ff
    shapes = {"q": (d, d), "k": (d, d), "v": (d, d), "o": (d, d), "w_1": (ff, d), "w_2": (d, ff)}
    weights = {}
    for name, (outputs, inputs) in shapes.items():
        bound = 1 / math.sqrt(inputs)
        weights[f"{name}.weight"] = rng.uniform(-bound, bound, (outputs, inputs)).astype(np.float32)
        weights[f"{name}.bias"] = rng.uniform(-bound, bound, outputs).astype(np.float32)
    return weights


def encoder_weights(sizes: Encoder, rng: np.random.Generator) -> tuple[Any, ...]:
    """The table, the layers, the last norm and the head; drawn in the order of tinyattn's.

    Queries, keys and values are one product, as in PyTorch's own layer."""
    d = sizes.width
    norm = np.ones(d, np.float32), np.zeros(d, np.float32)
    table = rng.standard_normal((sizes.words, d)).astype(np.float32)
    layers = []
    for _ in range(sizes.layers):
        w = layer_weights(sizes, rng)
        for kind in ("weight", "bias"):
            w[f"qkv.{kind}"] = np.concatenate([w.pop(f"{name}.{kind}") for name in "qkv"])
        products = [(w[f"{n}.weight"], w[f"{n}.bias"]) for n in ("qkv", "o", "w_1", "w_2")]
        layers.append((norm, norm, *products))
    head = rng.standard_normal((sizes.classes, d)).astype(np.float32) / d
    return table, layers, norm, (head, np.zeros(sizes.classes, np.float32))


def decoder_weights(sizes: Encoder, rng: np.random.Generator) -> list[dict[str, np.ndarray]]:
    """Of each layer: those of an encoder layer, and q, k, v, o of the attention to the memory."""
    layers = []
    for _ in range(sizes.layers):
        own, source = layer_weights(sizes, rng), layer_weights(sizes, rng)
        layers.append(own | {f"src {n}": array for n, array in source.items() if n[0] in "qkvo"})
    return layers


class Library:
    F: Any

    def encoder_step(
        self,
        sizes: Encoder,
        p: float,
        rng: np.random.Generator,
        lengths: np.ndarray | None,
        **choice: bool,
    ) -> Callable[[Any, Any], Any]:
        """A training step of an encoder, a function of ids (B, N) and targets that gives the loss:
        forward, cross-entropy, backward, Adam."""
        model, parameters = self.encoder(sizes, p, rng, **choice)
        optimizer = self.adam(parameters)

        def step(ids: Any, target: Any) -> Any:
            logits = model(ids, lengths).reshape(-1, sizes.classes)
            loss = self.F.cross_entropy(logits, target, ignore_index=IGNORE)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        return step

    def program(self, text: str) -> str:
        """The text of a program that is written for PyTorch, as this library runs it."""
        return text


class TinyAttn(Library):
    """tinyattn."""

    def __init__(self, options: dict[str, Any]) -> None:
        import tinyattn as ta

        self.stand_in = options.get("stand_in", False)
        if self.stand_in:
            from .gpu import use_stand_in

            use_stand_in()
        ta.set_num_threads(options["threads"])
        self.ta, self.F, self.where, self.maximum = ta, ta.functional, ta.where, ta.maximum
        self.device = options.get("device", "cpu")

    def tensor(self, array: np.ndarray, requires_grad: bool = False) -> Any:
        return self.ta.tensor(array, requires_grad=requires_grad, device=self.device)

    def copy(self, x: Any) -> Any:
        return x.data.copy()

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
        """A function of ids (B, N) and lengths (B,) giving logits (B, N, C), and its parameters."""
        nn = self.ta.nn
        attention = nn.MultiHeadedAttention(sizes.heads, sizes.width, p)
        feed_forward = nn.PositionwiseFeedForward(sizes.width, sizes.ff, p)
        layer = nn.EncoderLayer(sizes.width, attention, feed_forward, p, norm="pre")
        embedding = nn.Embedding(sizes.words, sizes.width)
        encoder = nn.Encoder(layer, sizes.layers, skip_padding)
        head = nn.Linear(sizes.width, sizes.classes)
        embedding.weight.data = rng.standard_normal(embedding.weight.shape).astype(np.float32)
        for layer in encoder.layers:
            attend, feed = layer.self_attn, layer.feed_forward
            products = {"q": attend.W_q, "k": attend.W_k, "v": attend.W_v, "o": attend.W_o}
            products |= {"w_1": feed.w_1, "w_2": feed.w_2}
            for name, array in layer_weights(sizes, rng).items():
                product, kind = name.split(".")
                getattr(products[product], kind).data = array
        head.weight.data = rng.standard_normal(head.weight.shape).astype(np.float32) / sizes.width
        head.bias.data = np.zeros(sizes.classes, np.float32)
        modules = [module.to(self.device) for module in (embedding, encoder, head)]

        def model(ids: Any, lengths: np.ndarray | None) -> Any:
            return head(encoder(embedding(ids), valid_lens=lengths))

        return model, [parameter for module in modules for parameter in module.parameters()]

    def decoder(self, sizes: Encoder, rng: np.random.Generator) -> Callable[..., Any]:
        """A function of x (B, N, D), a memory (B, S, D) and what was kept of earlier positions;
        it gives the output and what to keep."""
        nn = self.ta.nn
        attention = [nn.MultiHeadedAttention(sizes.heads, sizes.width, 0.0) for _ in range(2)]
        feed_forward = nn.PositionwiseFeedForward(sizes.width, sizes.ff, 0.0)
        layer = nn.DecoderLayer(sizes.width, *attention, feed_forward, 0.0)
        decoder = nn.Decoder(layer, sizes.layers).eval()
        for layer, weights in zip(decoder.layers, decoder_weights(sizes, rng), strict=True):
            own, source, feed = layer.self_attn, layer.src_attn, layer.feed_forward
            products = {x: getattr(own, f"W_{x}") for x in "qkvo"}
            products |= {f"src {x}": getattr(source, f"W_{x}") for x in "qkvo"}
            products |= {"w_1": feed.w_1, "w_2": feed.w_2}
            for name, array in weights.items():
                product, kind = name.split(".")
                getattr(products[product], kind).data = array

        @self.ta.no_grad()
        def decode(x: Any, memory: Any, kept: Any) -> Any:
            cache = decoder.new_cache()
            caches = [part for layer in cache.layers for part in layer]
            for part, tensors in zip(caches, kept or [None] * len(caches), strict=True):
                part.kept = tensors
            return decoder(x, memory, cache=cache), [part.kept for part in caches]

        return decode

    def bert(self, config: dict[str, Any], weights: dict[str, np.ndarray]) -> Any:
        """A function of ids (B, N) and lengths (B,) giving hidden states as an array (B, N, D)."""
        from tinyattn.models.bert import put_in_column_order

        model = self.ta.models.BertEncoder(config).eval()
        put_in_column_order(model)  # as those of a file are
        for key, parameter in model.published().items():
            parameter._data[...] = weights[key]

        def run(ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
            with self.ta.no_grad():
                return model(ids, lengths).numpy()

        return run

    def language_model(
        self, config: dict[str, Any], weights: dict[str, np.ndarray], dtype: str
    ) -> Callable[..., Any]:
        """A function of ids (1, N) and a cache that gives scores (1, V) and the cache."""
        from tinyattn.models.causal import put_in_one_memory

        with self.ta.nn.init.skipped():
            model = self.ta.models.CausalLM(config)
        put_in_one_memory(model)  # as those of a file are
        with self.ta.no_grad():
            for name, parameter in model.named_parameters():
                parameter[...] = weights[name]
        model.eval()
        if dtype == "int8":
            model.quantize("int8")
        if dtype == "float16":
            model.half()

        def run(ids: np.ndarray, cache: Any) -> Any:
            with self.ta.no_grad():
                cache = model.new_cache(length=640) if cache is None else cache
                return model.scores(model.hidden(ids, cache=cache)[:, -1]).numpy(), cache

        return run

    def adam(self, parameters: list[Any]) -> Any:
        return self.ta.optim.Adam(parameters)

    def program(self, text: str) -> str:
        from tinyattn.torch_names.scan import rewritten

        return rewritten(text)

    # On a GPU

    def wait(self) -> None:
        self.ta.base.backend.module_of("cuda").cuda.get_current_stream().synchronize()

    def memory_taken(self, release: bool = False) -> int:
        """Bytes of the GPU's memory that are not free; `release` frees first what is not used."""
        if self.stand_in:
            return 0
        xp = self.ta.base.backend.module_of("cuda")
        if release:
            xp.get_default_memory_pool().free_all_blocks()
        free, total = xp.cuda.runtime.memGetInfo()
        return total - free


class Torch(Library):
    """PyTorch; `attention` is "fused" (scaled_dot_product_attention) or "plain".

    With the option `compile` encoders go through torch.compile; with `export` the sentence encoder
    goes to onnxruntime.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        import torch

        torch.set_num_threads(options["threads"])
        self.torch, self.F = torch, torch.nn.functional
        self.where, self.maximum = torch.where, torch.maximum
        self.fused, self.compile = options["attention"] == "fused", options.get("compile", False)
        self.device, self.export = options.get("device", "cpu"), options.get("export", False)

    def tensor(self, array: np.ndarray, requires_grad: bool = False) -> Any:
        return self.torch.tensor(array, requires_grad=requires_grad, device=self.device)

    def copy(self, x: Any) -> Any:
        return x.clone()

    def visible(self, lengths: np.ndarray | None, keys: int) -> Any:
        """(B, 1, 1, K): which keys a query may see; None where it may see all."""
        if lengths is None:
            return None
        limits = self.torch.as_tensor(lengths, device=self.device)[:, None, None, None]
        return self.torch.arange(keys, device=self.device) < limits

    def masked_softmax(self, scores: Any, lengths: np.ndarray) -> Any:
        visible = self.visible(lengths, scores.shape[-1])
        return scores.masked_fill(~visible, -math.inf).softmax(-1)

    def attention(
        self, q: Any, k: Any, v: Any, lengths: np.ndarray | None = None, causal: bool = False
    ) -> Any:
        return self.attend(q, k, v, self.visible(lengths, k.shape[-2]), causal, 0.0)

    def attend(self, q: Any, k: Any, v: Any, visible: Any, causal: bool, p: float) -> Any:
        if self.fused:
            attention = self.F.scaled_dot_product_attention
            return attention(q, k, v, attn_mask=visible, dropout_p=p, is_causal=causal)
        if causal:
            visible = q.new_ones(q.shape[-2], k.shape[-2], dtype=self.torch.bool).tril()
        scores = (q * (1 / math.sqrt(q.shape[-1]))) @ k.transpose(-1, -2)
        scores = scores if visible is None else scores.masked_fill(~visible, -math.inf)
        weights = scores.softmax(-1)
        return (self.F.dropout(weights, p) if p else weights) @ v

    def additive(self, size: int, weights: tuple[np.ndarray, ...]) -> Any:
        w_q, w_k, w_v = parameters = [self.tensor(array, True) for array in weights]
        linear = self.F.linear

        def module(q: Any, k: Any, v: Any, lengths: np.ndarray) -> Any:
            features = (linear(q, w_q)[:, :, None] + linear(k, w_k)[:, None]).tanh()
            visible = self.visible(lengths, k.shape[1])[:, 0]  # (B, 1, K)
            scores = linear(features, w_v).squeeze(-1)  # (B, Q, K)
            return scores.masked_fill(~visible, -math.inf).softmax(-1) @ v

        return module, parameters

    def encoder(
        self, sizes: Encoder, p: float, rng: np.random.Generator, skip_padding: bool = False
    ) -> tuple[Any, list[Any]]:
        """With skip_padding the samples are packed by hand, because PyTorch has no option for it:
        attention gets padded samples, everything else gets the rows up to each sample's length."""
        F = self.F
        d, heads = sizes.width, sizes.heads
        parameter = partial(self.tensor, requires_grad=True)
        table, layers, last, head = weights = mapped(parameter, encoder_weights(sizes, rng))

        def dropped(x: Any) -> Any:
            return F.dropout(x, p) if p else x

        def packed(x: Any, rows: Any) -> Any:
            """(B, N, ...) -> (rows, ...)"""
            return x.flatten(0, 1)[rows] if skip_padding else x

        def padded(x: Any, rows: Any, batch: int, n: int) -> Any:
            """(rows, ...) -> (B, N, ...), zeros where padding was."""
            if not skip_padding:
                return x
            out = x.new_zeros(batch * n, *x.shape[1:]).index_copy(0, rows, x)
            return out.view(batch, n, *x.shape[1:])

        def model(ids: Any, visible: Any, rows: Any) -> Any:
            batch, n = ids.shape
            x = packed(F.embedding(ids, table), rows)
            for first, second, qkv, o, w_1, w_2 in layers:
                y = padded(F.linear(F.layer_norm(x, (d,), *first), *qkv), rows, batch, n)
                q, k, v = y.view(batch, n, 3, heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
                y = self.attend(q, k, v, visible, False, p)  # (B, H, N, D / H)
                y = packed(y.transpose(1, 2).reshape(batch, n, d), rows)  # (B, N, D)
                x = x + dropped(F.linear(y, *o))
                y = dropped(F.relu(F.linear(F.layer_norm(x, (d,), *second), *w_1)))
                x = x + dropped(F.linear(y, *w_2))
            x = padded(F.layer_norm(x, (d,), *last), rows, batch, n)
            return F.linear(x, *head)

        if self.compile:
            self.torch.compiler.reset()  # else it first tries what it compiled for other sizes
            model = self.torch.compile(model, dynamic=False)

        def run(ids: Any, lengths: np.ndarray | None) -> Any:
            visible = self.visible(lengths, ids.shape[1])
            rows = visible.flatten().nonzero().squeeze(1) if skip_padding else None
            return model(ids, visible, rows)

        return run, flat(weights)

    def decoder(self, sizes: Encoder, rng: np.random.Generator) -> Callable[..., Any]:
        """As tinyattn's; written out, because PyTorch's own decoder layer has no cache."""
        F, cat, shape = self.F, self.torch.cat, (sizes.width,)
        layers = []
        for weights in decoder_weights(sizes, rng):
            arrays = {name: self.tensor(array) for name, array in weights.items()}
            names = {name.split(".")[0] for name in arrays}
            layers.append({n: (arrays[f"{n}.weight"], arrays[f"{n}.bias"]) for n in names})

        def heads(x: Any, product: tuple[Any, Any]) -> Any:
            """(B, N, D) -> (B, H, N, D / H)"""
            return F.linear(x, *product).unflatten(-1, (sizes.heads, -1)).transpose(1, 2)

        def attend(q: Any, k: Any, v: Any, causal: bool, product: tuple[Any, Any]) -> Any:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            return F.linear(y.transpose(1, 2).flatten(2), *product)

        @self.torch.no_grad()
        def decode(x: Any, memory: Any, kept: Any) -> Any:
            now = []
            for w, old in zip(layers, kept or [None] * len(layers), strict=True):
                y = F.layer_norm(x, shape)
                k, v = heads(y, w["k"]), heads(y, w["v"])
                if old is None:
                    source = heads(memory, w["src k"]), heads(memory, w["src v"])
                else:
                    k, v, source = cat((old[0], k), 2), cat((old[1], v), 2), old[2]
                now.append((k, v, source))
                x = x + attend(heads(y, w["q"]), k, v, old is None, w["o"])
                y = F.layer_norm(x, shape)
                x = x + attend(heads(y, w["src q"]), *source, False, w["src o"])
                y = F.relu(F.linear(F.layer_norm(x, shape), *w["w_1"]))
                x = x + F.linear(y, *w["w_2"])
            return F.layer_norm(x, shape), now

        return decode

    def language_model(
        self, config: dict[str, Any], weights: dict[str, np.ndarray], dtype: str
    ) -> Callable[..., Any]:
        """As tinyattn's, always in float32; written as transformers writes Llama."""
        F, cat, heads = self.F, self.torch.cat, config["num_attention_heads"]
        half = config.get("head_dim", config["hidden_size"] // heads) // 2
        groups = config["num_key_value_heads"]
        w = {name.removesuffix(".weight"): self.tensor(x) for name, x in weights.items()}
        for name in w:  # transformers turns the pairs (j, j + d/2), tinyattn (2j, 2j + 1)
            if name.endswith(("W_q", "W_k")):
                w[name] = w[name].unflatten(0, (-1, half, 2)).transpose(1, 2).flatten(0, 2)
        rates = config["rope_theta"] ** (-self.torch.arange(half) / half)

        def norm(name: str, x: Any) -> Any:
            eps = config["rms_norm_eps"]
            if self.export:  # which knows no rms_norm
                return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * w[name]
            return F.rms_norm(x, x.shape[-1:], w[name], eps)

        def split(name: str, x: Any) -> Any:
            """(1, N, D) -> (1, H, N, d)"""
            return F.linear(x, w[name]).view(*x.shape[:2], -1, 2 * half).transpose(1, 2)

        def turned(x: Any, cos: Any, sin: Any) -> Any:
            return x * cos + cat((-x[..., half:], x[..., :half]), -1) * sin

        def attend(q: Any, k: Any, v: Any, causal: bool) -> Any:
            if self.fused:
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
            of_group = heads // groups
            k, v = (x.unsqueeze(2).expand(-1, -1, of_group, -1, -1).flatten(1, 2) for x in (k, v))
            return self.attend(q, k, v, None, causal, 0.0)

        def step(ids: Any, cache: Any) -> Any:
            past = 0 if cache is None else cache[0][0].shape[2]
            x, now = F.embedding(ids, w["word"]), []
            angles = self.torch.arange(past, past + ids.shape[1])[:, None] * rates
            cos, sin = cat((angles.cos(),) * 2, -1), cat((angles.sin(),) * 2, -1)
            for i in range(config["num_hidden_layers"]):
                name = f"encoder.layers.{i}."
                y = norm(f"{name}sublayer.0.norm", x)
                q, k, v = (split(f"{name}self_attn.W_{one}", y) for one in "qkv")
                if config["model_type"] == "qwen3":
                    q, k = (norm(f"{name}self_attn.{n}_norm", y) for n, y in (("q", q), ("k", k)))
                q, k = turned(q, cos, sin), turned(k, cos, sin)
                if cache is not None:
                    k, v = cat((cache[i][0], k), 2), cat((cache[i][1], v), 2)
                now.append((k, v))
                y = attend(q, k, v, cache is None)
                x = x + F.linear(y.transpose(1, 2).flatten(2), w[f"{name}self_attn.W_o"])
                y = norm(f"{name}sublayer.1.norm", x)
                gate, up = (F.linear(y, w[f"{name}feed_forward.w_{n}"]) for n in (1, 3))
                x = x + F.linear(F.silu(gate) * up, w[f"{name}feed_forward.w_2"])
            return F.linear(norm("encoder.norm", x[:, -1]), w["word"]), now

        @self.torch.no_grad()
        def run(ids: np.ndarray, cache: Any) -> Any:
            scores, now = step(self.tensor(ids), cache)
            return scores.numpy(), now

        return self.onnx_steps(step, config["num_hidden_layers"]) if self.export else run

    def bert(self, config: dict[str, Any], weights: dict[str, np.ndarray]) -> Any:
        """Queries, keys and values are one product, as in PyTorch's own layer."""
        F, heads, width = self.F, config["num_attention_heads"], config["hidden_size"]
        layers, eps = range(config["num_hidden_layers"]), config["layer_norm_eps"]
        # RoBERTa's positions begin after padding.
        first = 2 if config.get("model_type") == "xlm-roberta" else 0
        for i, kind in product(layers, ("weight", "bias")):
            names = [
                f"encoder.layer.{i}.attention.self.{n}.{kind}" for n in ("query", "key", "value")
            ]
            weights[f"encoder.layer.{i}.qkv.{kind}"] = np.concatenate([weights[n] for n in names])
        w = {name: self.tensor(array) for name, array in weights.items()}

        def linear(name: str, x: Any) -> Any:
            return F.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

        def norm(name: str, x: Any) -> Any:
            return F.layer_norm(x, (width,), w[f"{name}.weight"], w[f"{name}.bias"], eps)

        def hidden(ids: Any, visible: Any) -> Any:
            batch, n = ids.shape
            x = F.embedding(ids, w["embeddings.word_embeddings.weight"])
            x = x + w["embeddings.token_type_embeddings.weight"][0]
            x = x + w["embeddings.position_embeddings.weight"][first : first + n]
            x = norm("embeddings.LayerNorm", x)
            for name in (f"encoder.layer.{i}" for i in layers):
                y = linear(f"{name}.qkv", x).view(batch, n, 3, heads, -1)
                y = self.attend(*y.permute(2, 0, 3, 1, 4).unbind(0), visible, False, 0.0)
                y = linear(f"{name}.attention.output.dense", y.transpose(1, 2).flatten(2))
                x = norm(f"{name}.attention.output.LayerNorm", x + y)
                y = linear(f"{name}.output.dense", F.gelu(linear(f"{name}.intermediate.dense", x)))
                x = norm(f"{name}.output.LayerNorm", x + y)
            return x

        def run(ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
            visible = (
                None if (lengths == ids.shape[1]).all() else self.visible(lengths, ids.shape[1])
            )
            with self.torch.inference_mode():
                return hidden(self.tensor(ids), visible).numpy()

        return self.onnx(hidden) if self.export else run

    def onnx(self, hidden: Callable[[Any, Any], Any]) -> Any:
        """The same model in onnxruntime, which fuses its operations."""
        ids = self.torch.ones(2, 3, dtype=self.torch.int64)
        axes = {"ids": {0: "B", 1: "N"}, "visible": {0: "B", 3: "N"}}
        session = self.onnx_session(hidden, (ids, ids[:, None, None] > 0), axes)

        def run(ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
            visible = (np.arange(ids.shape[1]) < lengths[:, None])[:, None, None]
            return session.run(None, {"ids": ids, "visible": visible})[0]

        return run

    def onnx_steps(self, step: Callable[[Any, Any], Any], layers: int) -> Any:
        """A language model in onnxruntime: a session for prompts, and one for what follows."""

        def of_prompt(ids: Any) -> Any:
            scores, now = step(ids, None)
            return scores, *(x for pair in now for x in pair)

        def of_next(ids: Any, *kept: Any) -> Any:
            scores, now = step(ids, list(zip(kept[::2], kept[1::2], strict=True)))
            return scores, *(x for pair in now for x in pair)

        names = [f"{kind}{i}" for i in range(layers) for kind in "kv"]
        ids = self.torch.ones(1, 3, dtype=self.torch.int64)
        kept = of_prompt(ids)[1:]
        axes = {"ids": {1: "N"}} | {name: {2: "past"} for name in names}
        prompt = self.onnx_session(of_prompt, (ids,), {"ids": {1: "N"}})
        following = self.onnx_session(of_next, (ids[:, :1], *kept), axes)

        def run(ids: np.ndarray, cache: Any) -> Any:
            session, given = (prompt, []) if cache is None else (following, cache)
            scores, *now = session.run(None, {"ids": ids, **dict(zip(names, given, strict=False))})
            return scores, now

        return run

    def onnx_session(self, function: Any, arguments: Any, axes: dict[str, dict[int, str]]) -> Any:
        """A session of onnxruntime for a function; axes: the inputs, and which sizes may differ."""
        import onnxruntime

        class Model(self.torch.nn.Module):  # type: ignore[name-defined]
            def forward(self, *inputs: Any) -> Any:
                return function(*inputs)

        file = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the exporter's next version
            self.torch.onnx.export(
                Model(), arguments, file, dynamo=False, input_names=list(axes), dynamic_axes=axes
            )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.torch.get_num_threads()
        return onnxruntime.InferenceSession(file.getvalue(), options)

    def adam(self, parameters: list[Any]) -> Any:
        return self.torch.optim.Adam(parameters, fused=True)

    # On a GPU

    def wait(self) -> None:
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def memory_taken(self, release: bool = False) -> int:
        if self.device == "cpu":
            return 0
        if release:
            self.torch.cuda.empty_cache()
        free, total = self.torch.cuda.mem_get_info()
        return total - free


def flat(nested: Any) -> list[Any]:
    """The tensors of nested lists and tuples, in their order."""
    if isinstance(nested, (list, tuple)):
        return [tensor for each in nested for tensor in flat(each)]
    return [nested]


def mapped(function: Callable[[Any], Any], nested: Any) -> Any:
    """Nested lists and tuples with function(each) in place of each array."""
    if isinstance(nested, (list, tuple)):
        return type(nested)(mapped(function, each) for each in nested)
    return function(nested)


def jax(_: dict[str, Any]) -> Library:
    from .jax_steps import Jax

    return Jax()


LIBRARIES = {"tinyattn": TinyAttn, "torch": Torch, "jax": jax}
