"""The model of exercise 20, made again: python docs/exercises/induction_model/make.py

It reads random tokens that repeat after 8 to 24 of them, and learns to predict the next one. In the
first round nothing can be predicted. Later the next token is known from the round before. The
period changes from sample to sample, so no fixed distance helps.

Without more, all heads of layer 1 become induction heads, because nothing else is to be done. So
the loss has a price for what a head reads and writes. One head of each layer is cheap, and learns;
the others give 0 in the end. It takes a minute or two, and prints the loss.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import tinyattn as ta
from tinyattn import functional as F

LENGTH, LAYERS, HEADS, VOCABULARY = 64, 2, 4, 64
CONFIG = {
    "model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": 64,
    "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": 64,
    "max_position_embeddings": 256, "tie_word_embeddings": False,
}  # fmt: skip
PRICES = np.full((LAYERS, HEADS), 0.016, np.float32)
PRICES[0, 2] = PRICES[1, 1] = 0.002


def repeated(rng: np.random.Generator, batch: int) -> np.ndarray:
    """ids (B, LENGTH) that repeat, each sample after a period of its own."""
    periods = rng.integers(8, 25, batch)
    rounds = rng.integers(VOCABULARY, size=(batch, 24))
    return rounds[np.arange(batch)[:, None], np.arange(LENGTH) % periods[:, None]]


def price(model: ta.models.CausalLM) -> ta.Tensor:
    """The norms of W_v and W_o of each head, times its price."""
    total = ta.tensor(0.0)
    for layer, prices in zip(model.encoder.layers, ta.tensor(PRICES), strict=True):
        attention = layer.self_attn
        for weight in (attention.W_v.weight, attention.W_o.weight.T):
            norms = (weight.reshape(HEADS, -1).square().sum(1) + 1e-12).sqrt()
            total = total + (prices * norms).sum()
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    ta.manual_seed(0)
    rng = np.random.default_rng(0)
    model = ta.models.CausalLM(CONFIG)
    optimizer = ta.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    for step in range(options.steps):
        ids = repeated(rng, 32)
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].reshape(-1))
        optimizer.zero_grad()
        (loss + price(model)).backward()
        optimizer.step()
        if step % 200 == 0 or step + 1 == options.steps:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    model.half().save_pretrained(options.folder)


if __name__ == "__main__":
    main()
