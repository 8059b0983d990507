"""Train a Transformer encoder to stress English words, on a CPU in minutes.

The phonemes of a word go in (D EH M AH K R AE T); for each vowel comes out whether it is not
stressed, carries the primary stress or a secondary one. An ending can move the stress, as in
democrat, democracy, democratic, so a vowel has to look at the whole word: that is attention's work.

  python examples/train_encoder.py                              train, score, draw
  python examples/train_encoder.py --predict history historic   ask the trained encoder
  python examples/train_encoder.py --no-positions               one that is blind to order
  mpiexec -n 2 python examples/train_encoder.py                 train in two processes
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import stress_data
from programs import complaints, save_picture
from stress_data import IGNORE, PAD, PHONEMES, Words, score
from training import argument_parser, run_program, start

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import masks, nn, viz
from tinyattn.training.distributed import get_rank

SHOWN = ["democrat", "democracy", "democratic", "history", "historic"]  # all of them held out


class StressTagger(nn.Module):
    """Phoneme ids (B, T) to the scores of the three stresses at each position (B, T, 3)."""

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        d_model, dropout = args.d_model, args.dropout
        self.embedding = nn.Embedding(len(PHONEMES), d_model, padding_idx=PAD)
        self.positions = nn.Identity() if args.no_positions else nn.PositionalEncoding(d_model)
        self.dropout = nn.Dropout(dropout)
        attention = nn.MultiHeadedAttention(args.heads, d_model, dropout)
        feed_forward = nn.PositionwiseFeedForward(d_model, 2 * d_model, dropout)
        layer = nn.EncoderLayer(d_model, attention, feed_forward, dropout)
        self.encoder = nn.Encoder(layer, args.layers)
        self.output = nn.Linear(d_model, 3)

    def forward(self, ids: np.ndarray) -> ta.Tensor:
        x = self.positions(self.embedding(ids))  # (B, T, D)
        x = self.encoder(self.dropout(x), mask=masks.padding(ids, PAD))
        return self.output(x)  # (B, T, 3)


def batches(lengths: np.ndarray, size: int, seed: int) -> Iterator[np.ndarray]:
    """Which words are in the first batch, in the second, and so on without end.

    The words of a batch are of similar length, so that little of it is padding.
    """
    rng = np.random.default_rng(seed)
    size = min(size, len(lengths))
    whole = len(lengths) - len(lengths) % size
    while True:
        rows = rng.permutation(len(lengths))[:whole]
        pieces = [rows[first : first + 16 * size] for first in range(0, whole, 16 * size)]
        pieces = [piece[np.argsort(lengths[piece], kind="stable")] for piece in pieces]
        yield from rng.permutation(np.concatenate(pieces).reshape(-1, size))


@ta.no_grad()
def predict(model: nn.Module, words: Words) -> np.ndarray:
    """The likeliest stress at each position: (N, T)."""
    model.eval()
    predicted = np.zeros_like(words.targets)
    by_length = np.argsort(words.lengths, kind="stable")
    for rows in np.array_split(by_length, 1 + len(by_length) // 500):
        longest = words.lengths[rows].max()
        predicted[rows, :longest] = model(words.ids[rows, :longest]).argmax(-1).cpu().numpy()
    return predicted


def show(model: nn.Module, words: Words) -> None:
    """Print how the model stresses some words."""
    # Without utf, stress is written as digits; without a console, sys.stdout is None.
    marks = "utf" in (getattr(sys.stdout, "encoding", None) or "").lower()
    for word, ids, guess, truth in zip(
        words.words, words.ids, predict(model, words), words.targets, strict=True
    ):
        guess, truth = (stress_data.render(ids, stress, marks) for stress in (guess, truth))
        verdict = "right" if guess == truth else f"should be {truth}"
        origin = "held out" if stress_data.in_test(word) else "in training"
        print(f"  {word:<14}  {guess:<32}  {origin:<11}  {verdict}")


def draw(model: Any, words: Words, path: Path) -> None:
    """What the heads of the last layer attend to, in the first three words: more are too large."""
    ids = words.ids[:3, : words.lengths[:3].max()]
    with ta.no_grad():
        model.eval()(ids)
    weights = model.encoder.layers[-1].self_attn.attention_weights  # (B, H, T, T)
    symbols = [[PHONEMES[i] for i in row if i != PAD] for row in ids]
    heads = range(1, weights.shape[1] + 1)
    titles = [f"{word}, head {head}" for word in words.words[:3] for head in heads]
    figure = viz.show_heatmaps(
        weights, titles=titles, xticks=symbols, yticks=symbols, mask=masks.padding(ids, PAD)
    )
    save_picture(figure, path)


def loss_of(model: nn.Module, words: Words, rows: np.ndarray) -> tuple[ta.Tensor, float, int]:
    """The loss of some words, the share of vowels that are right, and how many vowels there are."""
    longest = words.lengths[rows].max()
    ids, targets = words.ids[rows, :longest], words.targets[rows, :longest]
    logits = model(ids)
    vowels_right, _ = score(logits.argmax(-1).cpu().numpy(), targets)
    # Consonants and padding have the target that cross_entropy leaves out.
    loss = F.cross_entropy(logits.reshape(-1, 3), targets.reshape(-1))
    return loss, vowels_right, int((targets != IGNORE).sum())


def main() -> None:
    parser = argument_parser(
        __doc__, short=100, steps=1300, batch_size=256, lr=5e-3, dropout=0.0, d_model=64, heads=4,
        layers=4, out=Path("runs/encoder"),
    )  # fmt: skip
    parser.add_argument("--predict", nargs="+", metavar="WORD", help="stress words; train nothing")
    run = start(parser, StressTagger)
    args, model = run.args, run.model
    if args.predict:
        with complaints():
            words = stress_data.encode_words(args.predict)
        show(model, words)
        draw(model, words, args.out / "attention.png")
        return

    training, test = stress_data.load()
    run.introduce(len(training.words), len(test.words), "words")
    shown = stress_data.encode_words(SHOWN)
    if not run.losses and get_rank() == 0:
        draw(model, shown, args.out / "attention_before.png")
    some = np.random.default_rng(args.seed).permutation(len(test.words))[:500]
    drawn = batches(training.lengths, args.batch_size, args.seed)
    run.train(drawn, partial(loss_of, model, training), lambda: loss_of(model, test, some)[0])

    print(f"\n{'on held-out words':<36}{'vowels right':>14}{'words right':>14}")
    encoder, guess = "encoder" + ", no positions" * args.no_positions, predict(model, test)
    new = ~stress_data.sounds_known(training, test)  # "marsha" is left out: "marcia" is learned
    for name, (vowels, whole) in {
        "most frequent stress of each vowel": stress_data.majority_baseline(training, test),
        encoder: score(guess, test.targets),
        f"the same, {new.sum():,} of new phonemes": score(guess[new], test.targets[new]),
    }.items():
        print(f"{name:<36}{vowels:>14.1%}{whole:>14.1%}")
    print("more baselines: python examples/stress_baselines.py\n")
    show(model, shown)
    draw(model, shown, args.out / "attention.png")
    run.end("loss.png, attention_before.png, attention.png")


if __name__ == "__main__":
    run_program(main)
