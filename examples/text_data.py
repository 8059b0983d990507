"""Texts and their labels from a CSV file, a vocabulary of words, and the parts of a data set."""

from __future__ import annotations

import codecs
import csv
import io
import lzma
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

WORDNET = Path(__file__).parent / "data" / "wordnet_kinds.txt.xz"
PAD, UNKNOWN = 0, 1  # the ids of what is no word of the vocabulary
LEAST = 10  # texts of a label, so that each part has one


class Texts(NamedTuple):
    """N texts, and the index of the label of each, (N,)."""

    texts: list[str]
    labels: np.ndarray


# Files


def wordnet() -> list[list[str]]:
    """4,800 nouns of WordNet: which of twelve kinds of things, the word, its definition."""
    lines = lzma.decompress(WORDNET.read_bytes()).decode("utf-8").splitlines()
    return [line.split("\t") for line in lines]


def definitions() -> tuple[list[str], list[str]]:
    """The definitions, and the kind of each."""
    kinds, _, texts = map(list, zip(*wordnet(), strict=True))
    return texts, kinds


def read_csv(
    path: Path,
    text: str | None = None,
    label: str | None = None,
    separator: str | None = None,
    encoding: str | None = None,
) -> tuple[list[str], list[str]]:
    """The two columns of a CSV file, of which the first line names the columns.

    text, label: the names of the two columns; where one is not given, `chosen` finds it, and a
    printed line names both. separator: what stands between two columns; by default what divides
    the first line so that both columns are there. encoding: by default UTF-8, or what a mark at the
    beginning of the file says.

    A row without a text or a label is left out, and one printed line counts them. Another one says
    if the first line is probably a text. ValueError says what is wrong with a file, and in which
    line.
    """
    text, label = (None if name is None else plain_name(name) for name in (text, label))
    content = decoded(path, encoding)
    if re.match(r'\s*\[?\s*\{\s*"', content):
        raise ValueError(f"{path}: it is in JSON: save it as CSV, whose first line names columns")
    # Excel's own first line
    if excel := re.match('"?sep=(.)"?(\r\n?|\n)', content, re.IGNORECASE):
        content, separator = excel[2] + content[excel.end() :], separator or excel[1]
    separator = separator or separator_of(content, text, label)
    (_, names), *rows = records(path, content, separator) or [(1, [])]
    names = [plain_name(name) for name in names]
    if not names:
        raise ValueError(
            f"{path} is empty: its first line must name the columns, and each further line has a "
            "text and its label"
        )
    is_chosen = text is None or label is None
    if text is None or label is None:
        text, label = chosen(path, names, [row for _, row in rows], text, label)
    for column in (text, label):
        if names.count(column) != 1:
            problem = "two columns" if column in names else "no column"
            raise ValueError(f"{path} has {problem} {column!r}; its first line is {names}")
    if is_chosen:
        print(f"{path}: the texts are in column {text!r}, and the labels in column {label!r} "
              "(--text and --label choose others)")  # fmt: skip
    if text == label:
        raise ValueError(
            f"--text and --label name the same column twice, {text!r}; {path} has {names}"
        )
    places = names.index(text), names.index(label)
    texts, labels, empty = [], [], []
    for line, row in rows:
        if len(row) != len(names):
            raise ValueError(
                f"{path}, line {line}: it has {len(row)} columns and the first line {len(names)}; "
                f'a text that has the separator in it is written in quotes: "yes{separator} please"'
            )
        said, name = (row[place].strip() for place in places)
        if words(said) and words(name):
            texts.append(row[places[0]])
            labels.append(name)
        else:
            empty.append(line)
    if empty:
        print(f"{path}: rows without a text or a label are left out; they are {len(empty):,} of "
              f"{len(rows):,}, the first in line {empty[0]}")  # fmt: skip
    if label in map(plain_name, set(labels)):
        named = {text: "text", label: "label"}
        header = separator.join(named.get(name, name) for name in names)
        print(f"warning: the column of the labels is called {label!r}, as one of the labels is. "
              f"If the first line of {path} is a text with its label, it is not learned: write a "
              f'line with names above it, "{header}"')  # fmt: skip
    return texts, labels


def plain_name(column: str) -> str:
    return in_one_code(column).strip()


def chosen(
    path: Path, names: list[str], rows: list[list[str]], text: str | None, label: str | None
) -> tuple[str, str]:
    """The column of the texts and that of the labels, where one or both are not given: those that
    are named text and label, or the two of a file that has no others. If neither is named so, the
    labels are in the column with fewer different values."""
    by_name = {name.lower(): name for name in names if name not in (text, label)}
    text, label = text or by_name.get("text"), label or by_name.get("label")
    if len(names) == 2:
        different = [len({row[i] for row in rows if len(row) == 2}) for i in (0, 1)]
        ordered = names if different[0] >= different[1] else names[::-1]
        rest = [name for name in ordered if name not in (text, label)] or names
        text, label = text or rest[0], label or rest[-1]
    if text is None or label is None:
        raise ValueError(
            "name the column of the texts with --text and that of the labels with --label; "
            f"the first line of {path}, which names the columns, is {names}"
        )
    return text, label


# A file says by its first bytes if it is in one of these.
MARKS_OF_FILES = {
    codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16",
}  # fmt: skip
# What older programs of Windows write: in China, Japan, Korea, Thailand; then in Poland, Russia,
# Western Europe, Greece, Turkey, Israel, Arabic countries.
WINDOWS = ("gb18030", "cp932", "cp949", "cp874", *(f"cp{i}" for i in range(1250, 1257)))


def decoded(path: Path, encoding: str | None = None) -> str:
    """The text of a file: in `encoding`, or as a mark at its beginning says, or in UTF-8."""
    content = path.read_bytes()
    marked = [name for mark, name in MARKS_OF_FILES.items() if content.startswith(mark)]
    encoding = encoding or next(iter(marked), "utf-8")
    try:
        # A file with bytes 0 is none of `WINDOWS` either.
        text = content.decode("latin-1" if encoding == "utf-8" and b"\0" in content else encoding)
    except UnicodeDecodeError as error:
        before = content[: error.start].decode(encoding, "replace")
        raise ValueError(
            f"{path}, line {line_after(before)}: it is not {encoding.upper()}; save it as UTF-8 "
            '(in Excel: "CSV UTF-8"), or choose the --encoding in which its words can be read: '
            + readings(content, error.start)
        ) from None
    except LookupError:
        raise ValueError(
            f"--encoding {encoding}: it must be one that Python has, such as gb18030 or utf-16-le"
        ) from None
    if "\0" in text:
        advice = 'save it as text in UTF-8 (in Excel: "CSV UTF-8")'
        if name := utf_16(content):
            advice = f"it is probably in UTF-16, so try --encoding {name}"
        raise ValueError(
            f"{path}, line {line_after(text[: text.index(chr(0))])}: it has a NUL byte, which no "
            f"text has; {advice}"
        )
    return text.removeprefix("\ufeff")


def utf_16(content: bytes) -> str:
    """The kind of UTF-16 that a file without a mark is probably in, or an empty text: in the other
    kind, and in what is no text, line ends are other signs."""
    for name in ("utf-16-le", "utf-16-be"):
        text = content.decode(name, "replace")
        if "\n" in text and "\0" not in text and "\ufffd" not in text:
            return name
    return ""


def readings(content: bytes, place: int) -> str:
    """How the line at a place reads in each encoding, because no program knows the right one."""
    near = content[max(content.rfind(b"\n", 0, place) + 1, place - 20) :][:40].split(b"\n")[0]
    return ", ".join(f"{name} {near.decode(name, 'replace').strip()!r}" for name in WINDOWS)


def line_after(text: str) -> int:
    """The number of the line that stands after a text."""
    return len(re.findall("\r\n?|\n", text)) + 1


def separator_of(content: str, text: str | None, label: str | None) -> str:
    """The sign that divides the first line so that the columns that are named are there (text and
    label, if none is); else the most frequent one."""
    wanted = {text, label} - {None} or {"text", "label"}
    first = next((line for line in content.splitlines() if line.strip()), "")
    for sign in ",;\t|":
        if wanted <= {plain_name(name) for name in next(csv.reader([first], delimiter=sign))}:
            return sign
    return max(",;\t|", key=first.count)


def records(path: Path, text: str, separator: str) -> list[tuple[int, list[str]]]:
    """The rows of a CSV file, and the line where each begins. Empty lines are left out."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    rows, first = [], 1
    limit = csv.field_size_limit(2**31 - 1)  # a text may have more than 131,072 letters
    try:
        for row in reader:
            if len(row) > 1 or "".join(row).strip():
                rows.append((first, row))
            first = reader.line_num + 1
    except csv.Error as error:
        problem, place = str(error), f"line {first}"
        if "end of data" in problem:  # far from the quote
            problem = "a quote opens a text here, and no quote ends it"
        elif reader.line_num > first:
            place = f"lines {first} to {reader.line_num}"
        raise ValueError(
            f"{path}, {place}: {problem}; a quote inside a quoted text is written twice"
        ) from None
    finally:
        csv.field_size_limit(limit)
    return rows


def warnings(texts: Sequence[str], labels: Sequence[str]) -> Iterator[str]:
    """A line for each thing that can be read and learned, and is probably a mistake."""
    different = len({plain(text) for text in texts})
    if repeated := len(texts) - different:
        yield (
            f"warning: of {len(texts):,} texts only {different:,} are different. A repeated text "
            f"can be learned and tested too, so the test is too good: remove the {repeated:,} "
            "repeated"
        )
    kinds: dict[str, list[str]] = {}
    for name in sorted(set(labels)):
        kinds.setdefault(plain(name), []).append(name)
    if same := [names for names in kinds.values() if len(names) > 1]:
        groups = "; ".join(", ".join(map(repr, names)) for names in same[:5])
        yield (
            f"warning: some labels differ only in case or spaces, and count as different labels: "
            f"{groups}{'; ...' * (len(same) > 5)}"
        )


def plain(text: str) -> str:
    """A text in small letters and one code, with one space between two words."""
    return " ".join(in_one_code(text).casefold().split())


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

# Scripts that put no space between two words: Thai and Lao, Burmese, Khmer, those of Tai and Java,
# Han (Chinese), kana (Japanese), Yi.
UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u1aaf\u2e80-\u2fff\u3005-\u3007\u3021-\u3035"
    r"\u3040-\u312f\u31a0-\u31ff\u3400-\u4dbf\u4e00-\ua4cf\ua980-\ua9ff\uaa60-\uaadf\uf900-\ufaff"
    r"\U0001b000-\U0001b2ff\U00020000-\U0003ffff"
)
# Accents, vowel signs and other marks belong to the sign before them; for `re` they are no letters.
MARKS = "".join(chr(i) for i in range(0x300, 0x1F000) if unicodedata.category(chr(i))[0] == "M")
# Greedy, because possessive ones (`*+`) lose letters in some runs of Python 3.11.2.
MARK = rf"[{MARKS}\u200c\u200d\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]*"
LETTERS = rf"(?:[^\W{UNSPACED}]+{MARK})+"
HEBREW = "\u05d0-\u05ea"  # where a quote marks an abbreviation
WORDS = re.compile(
    rf"[{UNSPACED}]{MARK}"
    rf"|{LETTERS}(?:(?:['’·\u05f3\u05f4]|(?<=[{HEBREW}])\"(?=[{HEBREW}])){LETTERS})*"
    r"|[\U0001f1e6-\U0001f1ff]{2}"  # a flag
    rf"|[^\w\s]{MARK}(?:(?<=\u200d)[^\w\s]{MARK})*"  # an emoji may be joined of several
)
SIGN = re.compile(f"[{UNSPACED}]")
# Soft hyphens, marks of direction and of the shape of a sign: what nobody sees.
INVISIBLE = re.compile(
    "[\u00ad\u061c\u180e\u200e\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef]"
)


def words(text: str) -> list[str]:
    """Words in small letters, and each other sign alone: "Don't!" -> ["don't", "!"].

    Scripts that have no spaces are divided into their signs, "你好" -> ["你", "好"]. Accents and
    vowel signs stay with their letters. Signs that differ only in how they are coded, or in how
    wide they are, become the same.
    """
    return WORDS.findall(in_small_letters(text))


def tokens(text: str) -> list[str]:
    """The words, and after each sign of a script without spaces the pair with the next one.

    "你好吗" -> ["你", "你好", "好", "好吗", "吗"]. Most words of these scripts have two signs or
    more, and one sign says little.
    """
    found = []
    for word, after in pairwise([*words(text), ""]):
        found.append(word)
        if SIGN.match(word) and SIGN.match(after):
            found.append(word + after)
    return found


def in_small_letters(text: str) -> str:
    """A text in small letters, each sign in one code, without what nobody sees."""
    if not text.isascii():
        text = in_one_code(text).replace("’", "'")
        if "ı" in text or "İ" in text:  # Turkish has two letters i, with a dot and without
            text = text.replace("I", "ı").replace("İ", "i")
    return text.lower()


def in_one_code(text: str) -> str:
    """Each sign in one code and of one width, without what nobody sees (Unicode's NFKC)."""
    return INVISIBLE.sub("", unicodedata.normalize("NFKC", text)).replace("\u200b", " ")


class Vocabulary:
    """Words, as `tokens` gives them, and their ids. All others share the id UNKNOWN."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self.ids = {name: i for i, name in enumerate(self.names)}

    @classmethod
    def of(cls, texts: Sequence[str], least: int = 2, most: int = 20_000) -> Vocabulary:
        """The words that occur `least` times, and of these the `most` frequent."""
        counts = Counter(word for text in texts for word in tokens(text))
        frequent = [word for word, count in counts.most_common(most) if count >= least]
        return cls(["<pad>", "<unknown>", *frequent])

    def __len__(self) -> int:
        return len(self.names)

    def covered(self, texts: Sequence[str]) -> float:
        """The share of the words of these texts that it has. Numbers and signs are not counted."""
        found = [word in self.ids for text in texts for word in words(text) if word.isalpha()]
        return float(np.mean(found)) if found else 1.0

    def encode(self, text: str, longest: int) -> list[int]:
        """The ids of the first `longest` words; a text without words is one unknown word."""
        return [self.ids.get(word, UNKNOWN) for word in tokens(text)[:longest]] or [UNKNOWN]


# Parts


def split(labels: np.ndarray, seed: int) -> list[np.ndarray]:
    """Which texts to learn from, to choose with, and to test: 8, 1 and 1 of ten of each label."""
    rng = np.random.default_rng(seed)
    parts = []
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        tenth = len(rows) // 10
        parts.append((rows[2 * tenth :], rows[:tenth], rows[tenth : 2 * tenth]))
    return [rng.permutation(np.concatenate(part)) for part in zip(*parts, strict=True)]
