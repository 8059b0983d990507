"""Train a tiny Vision Transformer to read handwritten digits, on a CPU in half a minute.

An image of 8 x 8 pixels is cut into 16 patches of 2 x 2; each patch becomes a token, as a word does
in a text, and an encoder lets the tokens look at each other. Attention does not know where a patch
was: without positions, all that is left of an image is which patches it has.

  python examples/train_digits.py                  train, score, draw
  python examples/train_digits.py --no-positions   one that is blind to where a patch was
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import programs
from training import argument_parser, run_program, start

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn, viz

with programs.needs("scikit-learn"):
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

TEST = 360  # of 1,797 images


class VisionTransformer(nn.Module):
    """Images (B, 8, 8) to the scores of ten digits (B, 10)."""

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        d_model, dropout = args.d_model, args.dropout
        self.embedding = nn.Linear(4, d_model)
        self.positions: nn.Module = nn.Identity()
        if not args.no_positions:
            self.positions = nn.LearnedPositionalEncoding(d_model)
            # As large as what the pixels give; it starts too small to be heard in 900 steps.
            nn.init.normal_(self.positions.weight, std=0.3)
        self.dropout = nn.Dropout(dropout)
        attention = nn.MultiHeadedAttention(args.heads, d_model, dropout)
        feed_forward = nn.PositionwiseFeedForward(d_model, 2 * d_model, dropout, "gelu")
        layer = nn.EncoderLayer(d_model, attention, feed_forward, dropout)
        self.encoder = nn.Encoder(layer, args.layers)
        self.output = nn.Linear(d_model, 10)

    def forward(self, images: ta.Tensor) -> ta.Tensor:
        x = self.positions(self.embedding(patches(images)))  # (B, 16, D)
        x = self.encoder(self.dropout(x))
        return self.output(x.amax(dim=1))  # of each feature its largest value: (B, 10)


def patches(images: ta.Tensor) -> ta.Tensor:
    """(B, 8, 8) -> (B, 16, 4): four rows of four patches, each with its four pixels."""
    x = images.reshape(-1, 4, 2, 4, 2)  # (B, row of patches, y, column of patches, x)
    return x.permute(0, 1, 3, 2, 4).reshape(-1, 16, 4)


def load() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images (N, 8, 8), pixels from 0 to 1, and their digits (N,): for training, then held out."""
    data: Any = load_digits()
    order = np.random.default_rng(0).permutation(len(data.images))
    images, digits = data.images[order].astype(np.float32) / 16, data.target[order]
    return images[TEST:], digits[TEST:], images[:TEST], digits[:TEST]


def batches(
    images: np.ndarray, digits: np.ndarray, size: int, seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Images (B, 8, 8) and their digits (B,), batch after batch without end.

    Noise makes an image a little different every time; else so few are soon learned by heart.
    """
    rng = np.random.default_rng(seed)
    size = min(size, len(digits))
    while True:
        for rows in rng.permutation(len(digits))[: len(digits) // size * size].reshape(-1, size):
            noise = rng.normal(0, 0.2, images[rows].shape).astype(np.float32)
            yield images[rows] + noise, digits[rows]


def draw(weights: np.ndarray, images: np.ndarray, names: list[str], path: Path) -> None:
    """Images (B, 8, 8), and beside each what heads look at in it: weights (B, H, 16, 16)."""
    looked_at = weights.mean(axis=2)  # over the patches that look: (B, H, 16)
    looked_at /= looked_at.max(axis=-1, keepdims=True)  # else 1/16 of a scale from 0 to 1
    looked_at = looked_at.reshape(*looked_at.shape[:2], 4, 4).repeat(2, axis=-1).repeat(2, axis=-2)
    panels = np.concatenate([images[:, None], looked_at], axis=1)  # (B, 1 + H, 8, 8)
    heads = [f"head {head}" for head in range(1, panels.shape[1])]
    titles = [title for name in names for title in [name, *heads]]
    figure = viz.show_heatmaps(
        panels, "", "", titles, xticks=[], yticks=[], figsize=(10, 6.3),
        zlabel="pixel, or weight divided by the largest of its head",
    )  # fmt: skip
    programs.save_picture(figure, path)


def main() -> None:
    parser = argument_parser(
        __doc__, short=100, steps=900, batch_size=64, lr=3e-3, dropout=0.0, d_model=48, heads=4,
        layers=2, out=Path("runs/digits"),
    )  # fmt: skip
    run = start(parser, VisionTransformer)
    args, model = run.args, run.model

    images, digits, test_images, test_digits = load()
    run.introduce(len(digits), TEST, "images")

    def loss_of(batch: tuple[np.ndarray, np.ndarray]) -> tuple[ta.Tensor, float, int]:
        pixels, targets = batch
        logits = model(ta.tensor(pixels, device=args.device))  # (B, 10)
        right = logits.argmax(-1).cpu().numpy() == targets
        return F.cross_entropy(logits, targets), float(right.mean()), len(targets)

    drawn = batches(images, digits, args.batch_size, args.seed)
    run.train(drawn, loss_of, lambda: loss_of((test_images, test_digits))[0])

    with ta.no_grad():
        read = model.eval()(ta.tensor(test_images, device=args.device)).argmax(-1).cpu().numpy()
    linear = LogisticRegression(max_iter=1000).fit(images.reshape(-1, 64), digits)
    print(f"\n{'on held-out images':<28}{'right':>8}{'wrong':>8}")
    for name, guess in {
        "logistic regression": linear.predict(test_images.reshape(-1, 64)),
        "encoder" + ", no positions" * args.no_positions: read,
    }.items():
        wrong = int((guess != test_digits).sum())
        print(f"{name:<28}{1 - wrong / TEST:>8.1%}{wrong:>8}")
    shown = [int(np.flatnonzero(test_digits == digit)[0]) for digit in (2, 4, 6)]
    names = [f"a {test_digits[i]}, read as {read[i]}" for i in shown]
    weights = model.encoder.layers[-1].self_attn.attention_weights.cpu().numpy()[shown]
    draw(weights, test_images[shown], names, args.out / "attention.png")
    run.end("loss.png, attention.png")


if __name__ == "__main__":
    run_program(main)
