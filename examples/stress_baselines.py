"""The accuracy of simple models on the stress task, for comparison with the encoder.

    python examples/stress_baselines.py [--words 20000] [--radius 2 8] [--mlp]

Every model learns from the same training words and is scored on the full test
split. A window of +-8 holds all of 9 words in 10: it is the strong linear baseline. --mlp adds one
hidden layer of 64 on the widest window, the strongest of these models.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import programs
from programs import number_in
from stress_data import IGNORE, PAD, PHONEMES, Words, load, majority_baseline, score

with programs.needs("scikit-learn"):
    from scipy import sparse
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier

SYMBOLS = len(PHONEMES)


def one_hot(columns: np.ndarray) -> sparse.csr_matrix:
    """(V, C) symbols to (V, C * SYMBOLS) indicators, each column with its own block."""
    rows, blocks = columns.shape
    indices = columns + SYMBOLS * np.arange(blocks)
    starts = np.arange(rows + 1) * blocks
    ones = np.ones(indices.size, dtype=np.float32)
    return sparse.csr_matrix((ones, indices.ravel(), starts), shape=(rows, SYMBOLS * blocks))


def bag_features(data: Words) -> sparse.csr_matrix:
    """Per vowel: which vowel it is, and how often each phoneme occurs in its word."""
    row, column = np.nonzero(data.targets != IGNORE)
    counts = np.zeros((len(data.ids), SYMBOLS), dtype=np.float32)  # (N, S)
    word, position = np.nonzero(data.ids != PAD)
    np.add.at(counts, (word, data.ids[word, position]), 1)
    this = one_hot(data.ids[row, column][:, None])
    return sparse.csr_matrix(sparse.hstack([this, sparse.csr_matrix(counts)[row]]))


def window_features(data: Words, radius: int) -> sparse.csr_matrix:
    """Per vowel: the phonemes at distances -radius to radius; padding stands beyond the word."""
    row, column = np.nonzero(data.targets != IGNORE)
    padded = np.pad(data.ids, ((0, 0), (radius, radius)), constant_values=PAD)
    offsets = np.arange(2 * radius + 1)
    return one_hot(padded[row[:, None], column[:, None] + offsets])  # (V, 2 * radius + 1) inside


def fit_and_score(
    model: LogisticRegression | MLPClassifier,
    features: Callable[[Words], sparse.csr_matrix],
    train: Words,
    test: Words,
) -> tuple[float, float]:
    """Vowel and word accuracy of a classifier given one row of features per vowel."""
    model.fit(features(train), train.targets[train.targets != IGNORE])
    predicted = np.full_like(test.targets, IGNORE)
    predicted[test.targets != IGNORE] = model.predict(features(test))
    return score(predicted, test.targets)


def main() -> None:
    parser = argparse.ArgumentParser(description="Baselines of the stress task.")
    from_100, from_0 = number_in(100, 10**6, int), number_in(0, 100, int)
    parser.add_argument("--words", type=from_100, help="training words (default: all)")
    parser.add_argument("--radius", type=from_0, nargs="+", default=[2, 8], help="half-widths")
    parser.add_argument("--mlp", action="store_true", help="also a small neural network")
    parser.add_argument("--seed", type=int, default=0, help="of the words taken and of the network")
    args = parser.parse_args()

    full, test = load()
    chosen = np.random.default_rng(args.seed).permutation(len(full.words))[: args.words]
    train = Words([full.words[i] for i in chosen], *(column[chosen] for column in full[1:]))

    def report(name: str, accuracy: Callable[[], tuple[float, float]]) -> None:
        start = time.perf_counter()
        vowels, words = accuracy()
        print(f"{name:<44}{vowels:>8.1%}{words:>8.1%}{time.perf_counter() - start:>9.1f}")

    print(f"train on {len(train.words):,} words, test on {len(test.words):,}")
    print(f"{'model':<44}{'vowels':>8}{'words':>8}{'seconds':>9}")
    report("majority stress of the vowel", partial(majority_baseline, train, test))
    linear = LogisticRegression(max_iter=1000)
    bag = partial(fit_and_score, linear, bag_features, train, test)
    report("logistic regression, vowel + bag of phonemes", bag)
    models: list[tuple[str, Any, int]] = [("logistic regression", linear, r) for r in args.radius]
    if args.mlp:
        options: dict[str, Any] = {"batch_size": 512}  # stubs say that it is a text
        network = MLPClassifier((64,), early_stopping=True, random_state=args.seed, **options)
        models.append(("one hidden layer of 64", network, max(args.radius)))
    for name, model, radius in models:
        features = partial(window_features, radius=radius)
        window = partial(fit_and_score, model, features, train, test)
        report(f"{name}, window of +-{radius}", window)


if __name__ == "__main__":
    programs.run(main)
