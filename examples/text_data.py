"""Texts and their labels from a CSV file, a vocabulary of words, and the parts of a data set."""

from __future__ import annotations

import csv
import lzma
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

WORDNET = Path(__file__).parent / "data" / "wordnet_kinds.txt.xz"
PAD, UNKNOWN = 0, 1  # the ids of what is no word of the vocabulary
SPECIAL = ["<pad>", "<unknown>"]
LEAST = 10  # texts of a label, so that each part has one
ENDINGS = {".csv": ",", ".tsv": "\t"}


class Texts(NamedTuple):
    """N texts, and the index of the label of each, (N,)."""

    texts: list[str]
    labels: np.ndarray


# Files


def definitions() -> tuple[list[str], list[str]]:
    """4,800 definitions of WordNet, and of which of twelve kinds each thing is."""
    lines = lzma.decompress(WORDNET.read_bytes()).decode("utf-8").splitlines()
    kinds, _, texts = zip(*(line.split("\t") for line in lines), strict=True)
    return list(texts), list(kinds)


def read_csv(path: Path, text: str, label: str) -> tuple[list[str], list[str]]:
    """The two columns of a CSV file in UTF-8, of which the first line names the columns.

    A file that ends in .tsv has tabs between its columns. ValueError says what is wrong with a
    file, and in which line.
    """
    texts, labels = [], []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(
                file, delimiter=ENDINGS.get(path.suffix.lower(), ","), strict=True
            )
            names = list(rows.fieldnames or [])
            for column in (text, label):
                if names.count(column) != 1:
                    problem = "two columns" if column in names else "no column"
                    line = "".join(names)
                    hint = "; are its columns separated by ;?" if ";" in line else ""
                    hint = "; with tabs its name must end in .tsv" if "\t" in line else hint
                    raise ValueError(
                        f"{path} has {problem} {column!r}; its first line is {names}{hint}"
                    )
            for row in rows:
                place = f"{path}, line {rows.line_num}"
                if row[text] is None or row[label] is None or None in row:
                    raise ValueError(
                        f"{place}: it has not as many columns as the first line; a text with a "
                        'comma is written in quotes: "yes, please"'
                    )
                for column in (text, label):
                    if not row[column].strip():
                        raise ValueError(f"{place}: the column {column!r} is empty")
                texts.append(row[text])
                labels.append(row[label].strip())
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 (byte {error.start}): save it as UTF-8 in the program it is from"
        ) from None
    except csv.Error as error:
        raise ValueError(
            f"{path}, line {rows.reader.line_num}: {error}; a quote inside a quoted text is "
            "written twice"
        ) from None
    return texts, labels


def check_labels(labels: Sequence[str]) -> None:
    """Raise ValueError if nothing can be learned from these labels, or tested."""
    counts = Counter(labels)
    if len(counts) < 2:
        raise ValueError(f"two labels or more are needed, got {list(counts) or 'no texts at all'}")
    if rare := {name: count for name, count in counts.items() if count < LEAST}:
        few = ", ".join(f"{name!r} {count}" for name, count in sorted(rare.items())[:5])
        raise ValueError(
            f"a label needs {LEAST} texts, because some of them are held out; {len(rare)} of "
            f"{len(counts)} labels have fewer ({few}{', ...' * (len(rare) > 5)}): leave out their "
            "texts, or join labels"
        )


# Words


def words(text: str) -> list[str]:
    """Words in small letters, and each other sign alone: "Don't!" -> ["don't", "!"]."""
    return re.findall(r"\w+(?:['’]\w+)*|[^\w\s]", text.lower())


class Vocabulary:
    """Words and their ids. All words that it does not have share the id UNKNOWN."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self.ids = {name: i for i, name in enumerate(self.names)}

    @classmethod
    def of(cls, texts: Sequence[str], least: int = 2, most: int = 20_000) -> Vocabulary:
        """The words that occur `least` times, and of these the `most` frequent."""
        counts = Counter(word for text in texts for word in words(text))
        frequent = [word for word, count in counts.most_common(most) if count >= least]
        return cls([*SPECIAL, *frequent])

    def __len__(self) -> int:
        return len(self.names)

    def encode(self, text: str, longest: int) -> list[int]:
        """The ids of the first `longest` words; a text without words is one unknown word."""
        return [self.ids.get(word, UNKNOWN) for word in words(text)[:longest]] or [UNKNOWN]


# Parts


def split(labels: np.ndarray, seed: int) -> list[np.ndarray]:
    """Which texts to learn from, to choose with, and to test: 8, 1 and 1 of ten of each label."""
    rng = np.random.default_rng(seed)
    parts: list[list[np.ndarray]] = [[], [], []]
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        tenth = len(rows) // 10
        for part, chosen in zip(
            parts, (rows[2 * tenth :], rows[:tenth], rows[tenth : 2 * tenth]), strict=True
        ):
            part.append(chosen)
    return [rng.permutation(np.concatenate(part)) for part in parts]
