"""Texts for a language model: files become ids on the disk; and what simpler models make of them.

Everything goes through a piece of a file at a time, because a text may be larger than the memory.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import hashlib
import json
import lzma
import os
import re
import stat
import sys
import sysconfig
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import programs
from text_data import MARKS_OF_FILES, readings, utf_16

from tinyattn.models.settings import read_json, write_json

with programs.needs("tokenizers", "examples,text"):
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

PIECE = 1 << 18  # bytes
FEW = 4_000_000  # bytes, below which a text is cut into characters
MOST_CHARACTERS = 8_000  # kinds of them; with more, most are too rare to be learned
LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "lib2to3", "encodings"}
MANY = 20  # files, from which whole ones are held out
TENTH = 10
# Letters, or spaces, without the other between: DNA, or base64. The trainer's time grows with the
# square of such a run: 5 MB of it had not ended after 200 s.
LONG_RUN = re.compile(r"(\S{4096}|\s{4096})")


class Span(NamedTuple):
    """A part of a file, in bytes."""

    path: Path
    begin: int
    end: int


class Parts(NamedTuple):
    """What is learned from, and what is held out."""

    training: list[Span]
    held_out: list[Span]

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(end - begin for spans in self for _, begin, end in spans)


# Files


def standard_library() -> list[Path]:
    """The Python files of this Python's library, without tests and without tables of encodings."""
    root = Path(sysconfig.get_paths()["stdlib"])
    return [path for path in sorted(root.rglob("*.py")) if not LEFT_OUT & {*path.parts}]


def files_of(names: Sequence[Path], out: Path) -> tuple[list[Path], int, list[str]]:
    """The texts among files and folders; how much in the folders is none or cannot be read, and of
    the first three that may be texts the reasons. What a run wrote, in `out` or beside another
    checkpoint, is not looked at."""
    found: list[Path] = []
    others, reasons = 0, list[str]()
    for name in names:
        if not name.exists():
            raise FileNotFoundError(f"there is no file {name}")
        if not name.is_dir():
            if not name.is_file():  # which is read several times
                raise ValueError(f"{name} is no file, such as a pipe: save its text in a file")
            check_text(name)
            found.append(name)
            continue
        paths = sorted(name.rglob("*"))
        runs = {real(path).parent for path in paths if path.name == "checkpoint.safetensors"}
        runs = {run for run in {*runs, real(out)} if real(name) in run.parents}
        for path in paths:
            if any(part.startswith(".") for part in path.relative_to(name).parts):
                continue
            if runs and not runs.isdisjoint(real(path).parents):
                continue
            try:
                about = path.stat()
                if stat.S_ISDIR(about.st_mode):
                    others += path.is_symlink()  # not followed, because it may lead round
                    os.scandir(path).close()  # an error, if what is in it was not found
                elif stat.S_ISREG(about.st_mode) and about.st_size:
                    check_text(path)
                    for _ in pieces([Span(path, 0, about.st_size)]):  # to its end
                        pass
                    found.append(path)
            except (ValueError, OSError) as error:
                others += 1
                if isinstance(error, ValueError) and "NUL" not in str(error) and len(reasons) < 3:
                    reasons.append(str(error))
    return found, others, reasons


def real(path: Path) -> Path:
    """Where links lead; a link that leads to itself as it is."""
    return Path(os.path.realpath(path))


def distinct(files: Sequence[Path]) -> tuple[list[Path], str, list[tuple[Path, Path]]]:
    """Files of different contents, a digest of all, and pairs (copy, file), which are left out.

    What is held out would be learned too if it stood in a second file.
    """
    found: dict[bytes, Path] = {}
    copies = []
    for path in {path.resolve(): path for path in files}.values():
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").digest()
        if digest in found and path.stat().st_size:
            copies.append((path, found[digest]))
        found.setdefault(digest, path)
    return [*found.values()], hashlib.sha256(b"".join(found)).hexdigest(), copies


def check_text(path: Path) -> None:
    """Raise ValueError if the beginning of a file is no text in UTF-8; the rest is read later."""
    with open(path, "rb") as file:
        begin = file.read(4096)
    for mark, name in MARKS_OF_FILES.items():
        if begin.startswith(mark) and mark != codecs.BOM_UTF8:
            raise ValueError(f"{path} is in {name.upper()}: save it as UTF-8")
    if b"\0" in begin:
        if name := utf_16(begin):
            raise ValueError(f"{path} is probably in {name.upper()}: save it as UTF-8")
        raise ValueError(f"{path} is not a text, because it has a NUL byte")
    checked_utf8(path, begin, 0)


def checked_utf8(path: Path, content: bytes, place: int) -> int:
    """How many bytes are whole characters in UTF-8; ValueError if some are none."""
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data":  # the rest of a character is to come
            return error.start
        raise ValueError(
            f"{path} is not in UTF-8: byte {place + error.start:,} is no character; save it as "
            "UTF-8, from the encoding in which its words can be read: "
            + readings(content, error.start)
        ) from None
    return len(content)


def divided(files: Sequence[Path]) -> Parts:
    """Nine tenths to learn from, and one held out: of many files each tenth, else the end of each.

    Also the end of each if every tenth file is much more of the text than a tenth, or much less.
    """
    spans = [Span(path, 0, path.stat().st_size) for path in files]
    held_out = spans[TENTH - 1 :: TENTH]
    share = Parts([], held_out).size / max(Parts(spans, []).size, 1)
    if len(spans) >= MANY and 0.5 <= share * TENTH <= 2:
        del spans[TENTH - 1 :: TENTH]
        return Parts(spans, held_out)
    parts = Parts([], [])
    for path, begin, end in spans:
        middle = end * (TENTH - 1) // TENTH
        if middle:
            with open(path, "rb") as file:
                file.seek(middle)
                after = file.read(4)
            inside = {*range(0x80, 0xC0), 0x0A}  # not within a character, nor within \r\n
            middle += next((i for i, byte in enumerate(after) if byte not in inside), len(after))
        for part, span in zip(parts, (Span(path, begin, middle), Span(path, middle, end)),
                              strict=True):  # fmt: skip
            if span.begin < span.end:
                part.append(span)
    return parts


def pieces(spans: Sequence[Span], file: int = 0, place: int = 0) -> Iterator[tuple[str, int, int]]:
    """(text, index of its span, byte after it), from a place on; a piece ends with a line if it
    can. Lines end in \\n alone, and a mark at the beginning of a file is left out."""
    for index in range(file, len(spans)):
        path, begin, end = spans[index]
        at = max(begin, place) if index == file else begin
        with open(path, "rb") as opened:
            while at < end:
                opened.seek(at)
                content = opened.read(min(PIECE, end - at))
                if not content:
                    raise ValueError(f"{path} became shorter while it was read")
                whole = checked_utf8(path, content, at)
                if at + len(content) < end:
                    whole = content.rfind(b"\n", 0, whole) + 1 or whole
                elif whole < len(content):
                    raise ValueError(f"{path} ends within a character: is it cut short?")
                text = content[:whole].decode("utf-8")
                if "\0" in text:
                    raise ValueError(f"{path} is not a text, because it has a NUL byte")
                first = text.removeprefix("\ufeff") if at == 0 else text
                at += whole
                yield first.replace("\r\n", "\n"), index, at


def sample(spans: Sequence[Span], most: int) -> Iterator[str]:
    """Texts from everywhere, of about `most` bytes in all."""
    total = sum(end - begin for _, begin, end in spans)
    every = max(1, round(total / most))
    return (text for text, _, _ in islice(pieces(spans), None, None, every))


# Tokens


def characters_of(parts: Parts) -> list[str] | None:
    """The kinds of characters of a text, or None if they are too many."""
    found: set[str] = set()
    for text, _, _ in pieces([*parts.training, *parts.held_out]):
        found.update(text)
        if len(found) > MOST_CHARACTERS:
            return None
    return sorted(found)


def character_tokenizer(characters: Sequence[str]) -> Tokenizer:
    """A token for each character. BPE without merges, because it leaves out unknown ones."""
    tokenizer = Tokenizer(models.BPE({sign: i for i, sign in enumerate(characters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("\n"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def bpe_tokenizer(texts: Iterator[str], words: int) -> Tokenizer:
    """Byte-level BPE: it can write every text, and joins bytes that stand together often."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=words, initial_alphabet=alphabet, show_progress=False, special_tokens=[]
    )
    parts = (part for text in texts for part in LONG_RUN.split(text))
    tokenizer.train_from_iterator(parts, trainer)
    return tokenizer


def unknown_in(tokenizer: Any, text: Iterable[str]) -> str:
    """The characters of a text that have no token, or that of the unknown."""
    model = json.loads(tokenizer.to_str())["model"]
    unknown = model.get("unk_id")
    if unknown is None and model.get("unk_token") is not None:
        unknown = tokenizer.token_to_id(model["unk_token"])
    has_spaces = isinstance(tokenizer.decoder, decoders.Fuse)  # others may cut at them

    def is_unknown(sign: str) -> bool:
        ids = tokenizer.encode(sign, add_special_tokens=False).ids
        return not ids or unknown in ids

    return "".join(sorted(
        sign for sign in set(text) if (has_spaces or not sign.isspace()) and is_unknown(sign)
    ))  # fmt: skip


def readable(tokenizer: Any, text: str) -> str:
    """A text as it is, or with its accents joined to their letters or apart: whichever has the
    fewest characters without a token. A line on stderr names these; ValueError if no character
    has a token."""
    forms = dict.fromkeys([text, *(unicodedata.normalize(form, text) for form in ("NFC", "NFD"))])
    unknown, best = min(
        ((unknown_in(tokenizer, form), form) for form in forms), key=lambda pair: len(pair[0])
    )
    if not tokenizer.encode(best, add_special_tokens=False).ids:
        raise ValueError("no character of the text has a token in this model: nothing is left")
    if unknown:
        print(f"it has never seen {', '.join(map(repr, unknown))}, so it reads the text "
              "without them", file=sys.stderr)  # fmt: skip
    return best


def check_tokens(tokenizer: Any, parts: Parts) -> None:
    """ValueError for characters without a token: a loss without them is not that of the text."""
    counts: Counter[str] = Counter()
    for text, _, _ in pieces([*parts.training, *parts.held_out]):
        counts.update(text)
    if missing := sorted(unknown_in(tokenizer, counts), key=lambda sign: -counts[sign]):
        number = sum(counts[sign] for sign in missing)
        raise ValueError(
            f"{number:,} of {counts.total():,} characters ({number / counts.total():.2%}) have no "
            f"token in the model of --from, such as {', '.join(map(repr, missing[:5]))}: take them "
            "out of the text, or begin without --from"
        )


class Encoder:
    """A tokenizer, with a table where its tokens are characters, because that is much faster."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        words = tokenizer.get_vocab()
        # The model of --from may have other tokens too, such as one that ends a text.
        are_signs = isinstance(tokenizer.decoder, decoders.Fuse) and {*map(len, words)} == {1}
        signs = sorted(words) if are_signs else []
        self.codes = np.array([ord(sign) for sign in signs], "<u4")
        self.ids = np.array([words[sign] for sign in signs], np.int64)
        most = max(words.values(), default=0)
        self.dtype = np.dtype(np.uint16 if most < 1 << 16 else np.uint32)

    def __call__(self, text: str) -> np.ndarray:
        if not len(self.codes):
            ids = self.tokenizer.encode(text, add_special_tokens=False).ids
            return np.array(ids, self.dtype)
        found = np.frombuffer(text.encode("utf-32-le"), "<u4")
        places = np.searchsorted(self.codes, found).clip(0, len(self.codes) - 1)
        return self.ids[places[self.codes[places] == found]].astype(self.dtype)


class Encoded(NamedTuple):
    """The ids of a part, in a file, and the bytes of its text."""

    ids: Any
    bytes: int


def encoded(spans: Sequence[Span], encoder: Encoder, path: Path, progress: Any) -> Encoded:
    """The ids of a part, written to a file once; after an interrupt the writing goes on.

    progress: a function of the bytes of a piece, for a bar.
    """
    note = path.with_suffix(".json")
    texts = [[str(span.path.resolve()), span.begin, span.end, span.path.stat().st_mtime_ns]
             for span in spans]  # fmt: skip
    # A digest of them, because the note is written often, and a list of many files is long.
    made_of = hashlib.sha256(repr((texts, encoder.tokenizer.to_str())).encode()).hexdigest()
    state: dict[str, Any] = {"made_of": made_of, "file": 0, "place": 0, "ids": 0, "bytes": 0,
                             "is_done": False}  # fmt: skip
    with suppress(OSError, ValueError):  # without a note, or with a damaged one, it begins anew
        old = read_json(note)
        is_whole = path.stat().st_size >= old.get("ids", 0) * encoder.dtype.itemsize
        if is_whole and old.get("made_of") == made_of:
            state = old
    if not state["is_done"]:
        with programs.writing(path), open(path, "r+b" if state["ids"] else "wb") as file:
            file.truncate(state["ids"] * encoder.dtype.itemsize)
            file.seek(0, 2)
            for i, (text, index, place) in enumerate(pieces(spans, state["file"], state["place"])):
                ids = encoder(text)
                file.write(ids.tobytes())
                state |= {"file": index, "place": place, "ids": state["ids"] + len(ids),
                          "bytes": state["bytes"] + len(text.encode())}  # fmt: skip
                progress(len(text.encode()))
                if i % 64 == 63:
                    file.flush()
                    write_json(note, state)
        write_json(note, state | {"is_done": True})
    if not state["ids"]:
        return Encoded(np.empty(0, encoder.dtype), 0)
    return Encoded(np.memmap(path, encoder.dtype, "r"), state["bytes"])


# What a loss is compared with

ORDER = 7
RUN = 1_000  # ids of a text that stand together where only some are counted
MOST_READ = 10_000_000  # bytes of it that xz reads before the held-out text


def counted(keys: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How often each wanted key is among the keys, and where each kind of key comes first."""
    kinds, first, counts = np.unique(keys, return_index=True, return_counts=True)
    places = np.searchsorted(kinds, wanted).clip(0, len(kinds) - 1)
    return np.where(kinds[places] == wanted, counts[places], 0), first


def spread(ids: np.ndarray, most: int) -> np.ndarray:
    """At most so many ids, in runs from everywhere, because the files of a text differ."""
    if len(ids) <= most:
        return ids
    starts = np.linspace(0, len(ids) - RUN, most // RUN).astype(np.int64)
    return np.concatenate([ids[start : start + RUN] for start in starts])


def n_grams(training: np.ndarray, held_out: np.ndarray, words: int) -> list[float]:
    """The loss of the held-out ids, in nats, by the counts of 1, 2, ... ids (Witten-Bell).

        p(w | h) = (c(h, w) + t(h) p(w | shorter h)) / (c(h) + t(h))

    c counts in the training text, and t(h) is how many different ids stood after h there. Ids
    become one number, their hash, modulo 2^64.
    """
    rows = [np.asarray(ids, np.uint64) + np.uint64(1) for ids in (training, held_out)]
    factor = np.uint64(0x9E3779B97F4A7C15)
    # Of the ids before each place.
    hashes: list[np.ndarray] = [np.zeros(len(row), np.uint64) for row in rows]
    chances = np.full(len(rows[1]), 1 / words)
    losses = []
    for order in range(ORDER):
        if order:
            for i, row in enumerate(rows):
                before = np.concatenate([np.zeros(order, np.uint64), row[:-order]])
                hashes[i] = hashes[i] + before * factor ** np.uint64(order)
        seen, asked = hashes
        whole = [h * factor + row for h, row in zip(hashes, rows, strict=True)]
        number, first = counted(*whole)
        total, _ = counted(seen, asked)
        types, _ = counted(seen[first], asked)
        known = total > 0
        chances[known] = ((number + types * chances) / np.maximum(total + types, 1))[known]
        losses.append(float(-np.log(chances).mean()))
    return losses


def compressed(parts: Parts) -> dict[str, float]:
    """Bits that compressors need for a byte of the held-out text; xz also after the training."""
    held_out = chain.from_iterable(text.encode() for text, _, _ in pieces(parts.held_out))
    text = bytes(islice(held_out, MOST_READ))
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 10 << 20}]

    def by_xz(*texts: bytes) -> int:
        compressor = lzma.LZMACompressor(lzma.FORMAT_XZ, filters=filters)
        return sum(map(len, map(compressor.compress, texts))) + len(compressor.flush())

    found = {"gzip": len(gzip.compress(text)), "bzip2": len(bz2.compress(text)), "xz": by_xz(text)}
    before, size = [], 0
    for piece, _, _ in pieces(parts.training):
        before.append(piece.encode())
        size += len(before[-1])
        while size - len(before[0]) > MOST_READ:
            size -= len(before.pop(0))
    found["xz that has read the training text"] = by_xz(*before, text) - by_xz(*before)
    return {name: 8 * size / len(text) for name, size in found.items()}
