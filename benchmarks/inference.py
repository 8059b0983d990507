"""Inference of a sentence encoder of MiniLM's sizes, with random weights: nobody needs its file.

The time is that of the processor, and not of the clock, because a batch takes long enough for other
programs to come between.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from time import process_time
from typing import Any

import numpy as np

from .cases import BOTH, Case, Run

CONFIG = {
    "vocab_size": 30522, "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12,
    "intermediate_size": 1536, "max_position_embeddings": 512, "type_vocab_size": 2,
    "hidden_act": "gelu", "layer_norm_eps": 1e-12,
}  # fmt: skip
# Of the base model, with fewer words, because a text reads only its own rows.
XLM_R = CONFIG | {"model_type": "xlm-roberta", "hidden_size": 768, "num_hidden_layers": 12,
                  "intermediate_size": 3072, "max_position_embeddings": 514, "type_vocab_size": 1,
                  "layer_norm_eps": 1e-5}  # fmt: skip
SHORT = CONFIG | {"vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 1,
                  "intermediate_size": 32}  # fmt: skip
BATCH = 32
# Up to 32 texts are equally long. Of 256, a batch has texts of similar lengths, or of any.
KINDS = {"1 text": 1, "8 texts": 8, "32 texts": 32, "256 texts, sorted": 256,
         "256 texts, unsorted": 256}  # fmt: skip


def weights(config: dict[str, Any]) -> dict[str, np.ndarray]:
    """Random weights under their published names."""
    rng = np.random.default_rng(0)
    width, inner = config["hidden_size"], config["intermediate_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (config["vocab_size"], width),
        "embeddings.position_embeddings.weight": (config["max_position_embeddings"], width),
        "embeddings.token_type_embeddings.weight": (config["type_vocab_size"], width),
    }
    products = {f"attention.self.{name}": (width, width) for name in ("query", "key", "value")}
    products |= {"attention.output.dense": (width, width), "intermediate.dense": (inner, width),
                 "output.dense": (width, inner)}  # fmt: skip
    norms = ["embeddings.LayerNorm"]
    for i in range(config["num_hidden_layers"]):
        prefix = f"encoder.layer.{i}."
        for name, shape in products.items():
            shapes |= {f"{prefix}{name}.weight": shape, f"{prefix}{name}.bias": shape[:1]}
        norms += [f"{prefix}attention.output.LayerNorm", f"{prefix}output.LayerNorm"]
    state = {name: rng.standard_normal(shape, np.float32) / np.float32(shape[-1] ** 0.5)
             for name, shape in shapes.items()}  # fmt: skip
    for name in norms:
        state[f"{name}.weight"] = np.ones(width, np.float32)
        state[f"{name}.bias"] = np.zeros(width, np.float32)
    return state


def batches(kind: str, words: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """(ids (B, N), lengths (B,)) of each batch."""
    rng, count = np.random.default_rng(1), KINDS[kind]
    lengths = np.full(count, 16)
    if count > BATCH:  # as those of sentences are: half have at most 16 tokens, few have 60
        lengths = np.clip(np.exp(rng.normal(2.8, 0.6, count)), 4, 128).astype(int)
    if kind.endswith(" sorted"):
        lengths = np.sort(lengths)[::-1].copy()
    found = []
    for start in range(0, count, BATCH):
        some = lengths[start : start + BATCH]
        real = np.arange(some.max()) < some[:, None]
        # 0 and 1 are the ids of padding of BERT and of XLM-R, which does not count them.
        found.append((np.where(real, rng.integers(2, words, real.shape), 0), some))
    return found


def inference(lib: Any, kind: str, config: dict[str, Any]) -> Run:
    model = lib.bert(config, weights(config))
    given = batches(kind, config["vocab_size"])

    def check() -> list[float]:
        """Means over each text, because libraries differ in what they compute of padding."""
        numbers = []
        for ids, lengths in given:
            real = np.arange(ids.shape[1]) < lengths[:, None]
            means = (model(ids, lengths) * real[..., None]).sum(1) / lengths[:, None]
            numbers += [float(np.linalg.norm(means)), float(means.reshape(-1)[::7].sum())]
        return numbers

    def run(_: Any) -> None:
        for ids, lengths in given:
            model(ids, lengths)

    return Run({"": run}, check=check, clock=process_time)


def inferences(short: bool) -> Iterator[Case]:
    for kind in KINDS:
        yield Case(
            "inference of a sentence encoder, CPU time; 16 tokens, or 4 to 128 of 256 texts",
            f"inference {kind}",
            "width 384, 12 heads, ff 1536, 6 layers",
            partial(inference, kind=kind, config=SHORT if short else CONFIG),
            parts=("",),
            sides=(*BOTH, "onnxruntime"),
        )
    short_xlm = XLM_R | {name: SHORT[name] for name in ("vocab_size", "hidden_size")}
    short_xlm |= {"num_hidden_layers": 1, "intermediate_size": 32}
    yield Case(
        "inference of an encoder of XLM-R's sizes, CPU time; 16 tokens",
        "inference XLM-R 8 texts",
        "width 768, 12 heads, ff 3072, 12 layers",
        partial(inference, kind="8 texts", config=short_xlm if short else XLM_R),
        parts=("",),
        sides=BOTH,
    )
