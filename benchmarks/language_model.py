"""A language model of SmolLM2's sizes, or of Qwen3-0.6B's: a prompt in one pass, and the next id.

The weights are random. Those of tinyattn are float32, and float16 or int8 in rows that say so.
PyTorch's are float32 in all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from .cases import BOTH, COMPILED, Case, Run
from .encoders import step_limit
from .libraries import Encoder
from .programs import module_of

CONFIG = {
    "model_type": "llama", "vocab_size": 49152, "hidden_size": 576, "num_hidden_layers": 30,
    "num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 1536,
    "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 100000.0,
    "tie_word_embeddings": True,
}  # fmt: skip
SHORT = CONFIG | {"vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 2,
                  "num_attention_heads": 3, "num_key_value_heads": 1,
                  "intermediate_size": 32}  # fmt: skip
# Four of its 28 layers.
QWEN3 = CONFIG | {"model_type": "qwen3", "vocab_size": 151936, "hidden_size": 1024,
                  "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 8,
                  "head_dim": 128, "intermediate_size": 3072, "rms_norm_eps": 1e-6,
                  "rope_theta": 1e6}  # fmt: skip
SHORT_QWEN3 = SHORT | {"model_type": "qwen3", "head_dim": 12}
SIZES = ("hidden_size", "num_attention_heads", "num_key_value_heads", "intermediate_size",
         "num_hidden_layers", "vocab_size")  # fmt: skip
LENGTHS = (16, 128, 512)
IN_A_ROW = 4  # ids, one after the other, because a first one waits for what a prompt displaced


def shapes_of(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Of all weights, under the names of tinyattn's parameters."""
    width, inner = config["hidden_size"], config["intermediate_size"]
    head = width_of_heads(config)
    queries, keys = (head * config[f"num_{n}_heads"] for n in ("attention", "key_value"))
    layer: dict[str, tuple[int, ...]] = {
        "sublayer.0.norm": (width,), "self_attn.W_q": (queries, width),
        "self_attn.W_k": (keys, width), "self_attn.W_v": (keys, width),
        "self_attn.W_o": (width, queries), "sublayer.1.norm": (width,),
        "feed_forward.w_1": (inner, width), "feed_forward.w_3": (inner, width),
        "feed_forward.w_2": (width, inner),
    }  # fmt: skip
    if config["model_type"] == "qwen3":
        layer |= {"self_attn.q_norm": (head,), "self_attn.k_norm": (head,)}
    shapes: dict[str, tuple[int, ...]] = {"word.weight": (config["vocab_size"], width)}
    for i in range(config["num_hidden_layers"]):
        shapes |= {f"encoder.layers.{i}.{name}.weight": s for name, s in layer.items()}
    return shapes | {"encoder.norm.weight": (width,)}


def width_of_heads(config: dict[str, Any]) -> int:
    return config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])


def weights_of(config: dict[str, Any]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        name: rng.standard_normal(shape, np.float32) / np.float32(shape[-1] ** 0.5)
        if len(shape) == 2
        else np.ones(shape, np.float32)
        for name, shape in shapes_of(config).items()
    }


def language_model(
    lib: Any, config: dict[str, Any], lengths: dict[str, int], dtype: str, following: bool
) -> Run:
    """model(ids (1, N), cache or None) -> (scores (1, V) of the last id, cache)."""
    model = lib.language_model(config, weights_of(config), dtype)
    ids = np.random.default_rng(1).integers(0, config["vocab_size"], (1, LENGTHS[-1] + 1))
    caches = {n: model(ids[:, :n], None)[1] for n in lengths.values()}

    def prompt(_: Any, n: int) -> None:
        model(ids[:, :n], None)

    def next_ids(_: Any, n: int) -> None:
        for _ in range(IN_A_ROW):
            caches[n] = model(ids[:, n : n + 1], caches[n])[1]

    def check() -> list[float]:
        scores, cache = model(ids[:, :9], None)
        after, _ = model(ids[:, 9:10], cache)
        return [float(x) for part in (scores, after) for x in (part.std(), part[0, ::7].sum())]

    phase = next_ids if following else prompt
    phases = {name: partial(phase, n=n) for name, n in lengths.items()}
    per = IN_A_ROW if following else 1
    return Run(phases, check=check if dtype == "float32" else None, per=per)


def language_models(short: bool) -> Iterator[Case]:
    lengths = {str(n): n // 8 if short else n for n in LENGTHS}
    llama, qwen3 = (SHORT, SHORT_QWEN3) if short else (CONFIG, QWEN3)
    kinds = {"": (llama, "float32"), "float16 ": (llama, "float16"), "int8 ": (llama, "int8"),
             "Qwen3 ": (qwen3, "float32")}  # fmt: skip
    for words, (config, dtype) in kinds.items():
        for following in (False, True):
            options = {"config": config, "lengths": lengths, "dtype": dtype, "following": following}
            yield Case(
                "language model: a prompt of so many ids, or the next id after so many; width, "
                "heads, heads of keys, ff, layers, words",
                f"language model {words}{'next' if following else 'prompt'}",
                ",".join(str(config[name]) for name in SIZES),
                partial(language_model, **options),
                parts=tuple(lengths),
                process="language model",
                sides=BOTH if words else (*BOTH, "onnxruntime"),
            )


# A training step as nanoGPT's settings for a CPU have it; PyTorch's side is written as nanoGPT is,
# and JAX's computes what tinyattn's GPT-2 does.

NANO = (4, 4, 128, 64, 12, 65)  # layers, heads, width, context, batch, words
SMALLEST = (1, 2, 16, 8, 2, 65)
DECAY, RATE, BETAS, MOST = 0.1, 1e-3, (0.9, 0.99), 1.0


def of_tinyattn(lib: Any, kind: str, sizes: tuple[int, ...]) -> Callable[[Any, Any], Any]:
    """A training step: a function of ids and targets that gives the loss."""
    words = sizes[-1]
    model = nano_model(lib.ta, kind, sizes)

    def loss_of(ids: Any, targets: Any) -> Any:
        return lib.F.cross_entropy(model(ids).reshape(-1, words), targets.reshape(-1))

    groups = lib.ta.optim.decay_groups(model.parameters(), DECAY)
    optimizer = lib.ta.optim.AdamW(groups, RATE, BETAS)
    return eager_step(model, loss_of, optimizer, lib.ta.optim.clip_grad_norm_)


def nano_model(ta: Any, kind: str, sizes: tuple[int, ...]) -> Any:
    layers, heads, width, context, _, words = sizes
    return ta.models.CausalLM({
        "model_type": kind, "vocab_size": words, "hidden_size": width, "num_hidden_layers": layers,
        "num_attention_heads": heads, "max_position_embeddings": context,
        "intermediate_size": 4 * width if kind == "gpt2" else 8 * width // 3 // 8 * 8,
        "tie_word_embeddings": True,
    })  # fmt: skip


def of_torch(lib: Any, sizes: tuple[int, ...]) -> Callable[[Any, Any], Any]:
    """The same, of GPT with PyTorch's own attention, as nanoGPT has it."""
    layers, heads, width, context, _, words = sizes
    program = module_of(lib, "nano_gpt")
    config = program.GPTConfig(context, words, layers, heads, width, flash=True)
    model = program.GPT(config)
    optimizer = model.configure_optimizers(DECAY, RATE, BETAS, "cpu")
    run = lib.torch.compile(model, dynamic=False) if lib.compile else model
    clip = lib.torch.nn.utils.clip_grad_norm_
    return eager_step(model, lambda ids, targets: run(ids, targets)[1], optimizer, clip)


def eager_step(
    model: Any, loss_of: Callable[[Any, Any], Any], optimizer: Any, clip: Callable[..., Any]
) -> Callable[[Any, Any], Any]:
    def step(ids: Any, targets: Any) -> Any:
        loss = loss_of(ids, targets)
        optimizer.zero_grad()
        loss.backward()
        clip(model.parameters(), MOST)
        optimizer.step()
        return loss

    return step


def of_jax(lib: Any, sizes: tuple[int, ...]) -> Callable[[Any, Any], Any]:
    """The same in JAX, with the weights that tinyattn begins with."""
    import tinyattn as ta

    weights = nested_weights(nano_model(ta, "gpt2", sizes))
    return lib.gpt2_step(weights, sizes[1], rate=RATE, betas=BETAS, decay=DECAY, most=MOST)


def nested_weights(model: Any) -> tuple[Any, ...]:
    """Of a GPT-2: ids, positions, layers as those of `libraries.encoder_weights`, the last norm."""

    def pair(module: Any) -> tuple[np.ndarray, np.ndarray]:
        return module.weight.numpy(), module.bias.numpy()

    layers = []
    for layer in model.encoder.layers:
        attend, feed = layer.self_attn, layer.feed_forward
        queries, keys, values = (pair(each) for each in (attend.W_q, attend.W_k, attend.W_v))
        inputs = tuple(np.concatenate(parts) for parts in zip(queries, keys, values, strict=True))
        norms = [pair(sublayer.norm) for sublayer in layer.sublayer]
        layers.append((*norms, inputs, pair(attend.W_o), pair(feed.w_1), pair(feed.w_2)))
    words, positions = (table.weight.numpy() for table in (model.word, model.position))
    return words, positions, layers, pair(model.encoder.norm)


def training_step(lib: Any, kind: str, sizes: tuple[int, ...]) -> Run:
    if hasattr(lib, "ta"):
        step = of_tinyattn(lib, kind, sizes)
    else:
        step = of_torch(lib, sizes) if hasattr(lib, "torch") else of_jax(lib, sizes)
    *_, context, batch, words = sizes
    rows = np.random.default_rng(0).integers(0, words, (batch, context + 1))
    ids, targets = (lib.tensor(np.ascontiguousarray(x)) for x in (rows[:, :-1], rows[:, 1:]))

    def timed(_: Any) -> None:
        step(ids, targets).item()

    return Run({"": timed})  # which numbers come first is left to chance in each library


def language_model_steps(short: bool) -> Iterator[Case]:
    sizes = SMALLEST if short else NANO
    layers, heads, width, context, batch, words = sizes
    gpt2 = Encoder(width, heads, 4 * width, layers, batch, context, context, words)
    for kind in ("gpt2", "llama"):
        yield Case(
            "training step of a language model; PyTorch as nanoGPT is written; layers, heads, "
            "width, context, batch, words",
            f"language model step {kind}",
            ",".join(map(str, sizes)),
            partial(training_step, kind=kind, sizes=sizes),
            partial(step_limit, gpt2) if kind == "gpt2" else None,
            parts=("",),
            sides=(*BOTH, *COMPILED, "limit") if kind == "gpt2" else BOTH,
        )
