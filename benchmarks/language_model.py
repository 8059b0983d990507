"""A language model of SmolLM2's sizes, with random weights: a prompt in one pass, and the next id.

tinyattn's weights are float32, and int8 in rows that say so; PyTorch's are float32 in all.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from .cases import Case, Run

CONFIG = {
    "model_type": "llama", "vocab_size": 49152, "hidden_size": 576, "num_hidden_layers": 30,
    "num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 1536,
    "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 100000.0,
    "tie_word_embeddings": True,
}  # fmt: skip
SHORT = CONFIG | {"vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 2,
                  "num_attention_heads": 3, "num_key_value_heads": 1,
                  "intermediate_size": 32}  # fmt: skip
SIZES = ("hidden_size", "num_attention_heads", "num_key_value_heads", "intermediate_size",
         "num_hidden_layers", "vocab_size")  # fmt: skip
LENGTHS = (16, 128, 512)


def shapes_of(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Of all weights, under the names of tinyattn's parameters."""
    width, inner = config["hidden_size"], config["intermediate_size"]
    keys = width // config["num_attention_heads"] * config["num_key_value_heads"]
    layer: dict[str, tuple[int, ...]] = {
        "sublayer.0.norm": (width,), "self_attn.W_q": (width, width),
        "self_attn.W_k": (keys, width), "self_attn.W_v": (keys, width),
        "self_attn.W_o": (width, width), "sublayer.1.norm": (width,),
        "feed_forward.w_1": (inner, width), "feed_forward.w_3": (inner, width),
        "feed_forward.w_2": (width, inner),
    }  # fmt: skip
    shapes: dict[str, tuple[int, ...]] = {"word.weight": (config["vocab_size"], width)}
    for i in range(config["num_hidden_layers"]):
        shapes |= {f"encoder.layers.{i}.{name}.weight": s for name, s in layer.items()}
    return shapes | {"encoder.norm.weight": (width,)}


def weights_of(config: dict[str, Any]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        name: rng.standard_normal(shape, np.float32) / np.float32(shape[-1] ** 0.5)
        if len(shape) == 2
        else np.ones(shape, np.float32)
        for name, shape in shapes_of(config).items()
    }


def phases_of(short: bool) -> dict[str, int]:
    lengths = {n: n // 8 if short else n for n in LENGTHS}
    return {f"{kind} {n}": used for kind in ("prompt", "next") for n, used in lengths.items()}


def language_model(lib: Any, config: dict[str, Any], int8: bool, short: bool) -> Run:
    """model(ids (1, N), cache or None) -> (scores (1, V) of the last id, cache)."""
    model = lib.language_model(config, weights_of(config), int8)
    ids = np.random.default_rng(1).integers(0, config["vocab_size"], (1, LENGTHS[-1] + 1))
    caches = {n: model(ids[:, :n], None)[1] for n in phases_of(short).values()}

    def prompt(_: Any, n: int) -> None:
        model(ids[:, :n], None)

    def following(_: Any, n: int) -> None:
        caches[n] = model(ids[:, n : n + 1], caches[n])[1]

    def check() -> list[float]:
        scores, cache = model(ids[:, :9], None)
        after, _ = model(ids[:, 9:10], cache)
        return [float(x) for part in (scores, after) for x in (part.std(), part[0, ::7].sum())]

    phases = {
        name: partial(prompt if name.startswith("prompt") else following, n=n)
        for name, n in phases_of(short).items()
    }
    return Run(phases, check=None if int8 else check)


def language_models(short: bool) -> Iterator[Case]:
    config = SHORT if short else CONFIG
    for int8 in (False, True):
        yield Case(
            "language model: a prompt of so many ids, or the next id after so many; width, heads, "
            "heads of keys, ff, layers, words",
            "language model" + " int8" * int8,
            ",".join(str(config[name]) for name in SIZES),
            partial(language_model, config=config, int8=int8, short=short),
            parts=tuple(phases_of(short)),
            process="language model",
        )
