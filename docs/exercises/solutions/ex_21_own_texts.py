"""A solution of exercise 21."""

from collections import Counter

import numpy as np

PAD, UNKNOWN = 0, 1


def vocabulary_of(texts: list[list[str]], least: int) -> list[str]:
    counts = Counter(word for text in texts for word in text)
    return ["<pad>", "<unknown>", *(word for word, n in counts.most_common() if n >= least)]


def batch_of(texts: list[list[str]], vocabulary: list[str]) -> np.ndarray:
    number = {word: i for i, word in enumerate(vocabulary)}
    ids = np.full((len(texts), max(map(len, texts))), PAD)
    for row, text in zip(ids, texts, strict=True):
        row[: len(text)] = [number.get(word, UNKNOWN) for word in text]
    return ids


def mean_of_words(x: np.ndarray, ids: np.ndarray) -> np.ndarray:
    keep = ids != PAD
    count = np.maximum(keep.sum(axis=1, keepdims=True), 1)
    return np.where(keep[:, :, None], x, 0).sum(axis=1) / count


def parts(labels: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    learning, choices, test = [], [], []
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        tenth = len(rows) // 10
        choices.append(rows[:tenth])
        test.append(rows[tenth : 2 * tenth])
        learning.append(rows[2 * tenth :])
    return np.concatenate(learning), np.concatenate(choices), np.concatenate(test)
