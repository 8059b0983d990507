"""The texts of language models in their pieces, chats, and what programs share: exact values,
sentences and calls."""

from __future__ import annotations

import argparse
import bz2
import gzip
import hashlib
import json
import lzma
import os
import types
from pathlib import Path

import numpy as np
import pytest
from test_causal import needs_tokenizers

pytestmark = needs_tokenizers


# language_data


@pytest.fixture
def data(example):
    return example("language_data")


def test_the_standard_library_is_its_python_without_tests_and_tables(data, monkeypatch, tmp_path):
    left_out = (
        "test",
        "tests",
        "idle_test",
        "site-packages",
        "dist-packages",
        "lib2to3",
        "encodings",
    )
    kept = ["b.py", "json/a.py", "json/tool/c.py", "testing/d.py"]
    for name in (*kept, "e.pyc", "f.txt", *(f"{x}/g.py" for x in left_out), "json/tests/h.py",
                 *(f"json/{x}/data/i.py" for x in left_out)):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setattr(data.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    assert data.standard_library() == [tmp_path / name for name in kept]


def test_three_reasons_are_kept_of_files_that_may_be_texts(data, tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for i in range(5):
        (folder / f"{i}.txt").write_bytes(b"\xff")
    (folder / "0.png").write_bytes(b"\0")
    (folder / "z.txt").write_bytes(b"z")
    found, others, reasons = data.files_of([folder, folder / "z.txt"], tmp_path)
    assert (found, others) == ([folder / "z.txt"] * 2, 6)
    assert [reason.split(" ")[0] for reason in reasons] == [
        str(folder / f"{i}.txt") for i in range(3)
    ]


def test_copies_are_named_with_the_first_file_of_their_contents(data, tmp_path):
    paths = [tmp_path / name for name in "abcdef"]
    for path, content in zip(paths, ["x", "y", "x", "", "y", ""], strict=True):
        path.write_text(content)
    a, b, c, d, e, _ = paths
    found, digest, copies = data.distinct([*paths, a])  # a file that is named twice is no copy
    assert (found, copies) == ([a, b, d], [(c, a), (e, b)])
    digests = [hashlib.sha256(x).digest() for x in (b"x", b"y", b"")]
    assert digest == hashlib.sha256(b"".join(digests)).hexdigest()
    assert data.distinct([b, a])[1] != data.distinct([a, b])[1]


@pytest.mark.parametrize("place", [4095, 4096])
def test_the_first_4096_bytes_of_a_file_say_whether_it_is_a_text(data, tmp_path, place):
    path = tmp_path / "a.txt"
    for wrong in (b"\0", b"\xff"):
        path.write_bytes(b"a" * place + wrong + b"a")
        if place == 4096:
            data.check_text(path)
            continue
        with pytest.raises(ValueError, match=f"{path.name} is not"):
            data.check_text(path)
    path.write_bytes(b"\xef\xbb\xbfa")  # the mark of UTF-8
    data.check_text(path)
    path.write_bytes(b"a" * (place - 1) + "é".encode())  # cut within a character, or not
    data.check_text(path)


def test_bytes_that_are_no_characters_are_named_by_their_place(data):
    assert data.checked_utf8(Path("a"), "aé".encode(), 5) == 3
    assert data.checked_utf8(Path("a"), "aé".encode()[:2], 5) == 1
    assert data.checked_utf8(Path("a"), b"", 5) == 0
    with pytest.raises(ValueError, match=r"^a is not in UTF-8: byte 1,002 is no character; save"):
        data.checked_utf8(Path("a"), b"ab\xffc", 1000)


@pytest.mark.parametrize(("number", "large", "whole"), [
    (19, 10, False), (20, 10, True), (20, 4, False), (20, 5, True), (20, 21, True),
    (20, 23, False), (29, 10, True), (200, 10, True),
])  # fmt: skip
def test_whole_files_are_held_out_where_each_tenth_is_a_tenth_of_the_bytes(
    data, tmp_path, number, large, whole
):
    """From half as much to twice as much: `large` to 10 bytes of another file."""
    paths = [tmp_path / f"{i:03}" for i in range(number)]
    for i, path in enumerate(paths):
        path.write_bytes(b"a" * (large if i % 10 == 9 else 10))
    parts = data.divided(paths)
    if whole:
        assert parts.held_out == [data.Span(path, 0, large) for path in paths[9::10]]
        rest = [path for i, path in enumerate(paths) if i % 10 != 9]
        assert parts.training == [data.Span(path, 0, 10) for path in rest]
        return
    ends = [large if i % 10 == 9 else 10 for i in range(number)]
    middles = [end * 9 // 10 for end in ends]
    assert parts.training == [data.Span(*x) for x in zip(paths, [0] * number, middles, strict=True)]
    assert parts.held_out == [data.Span(*x) for x in zip(paths, middles, ends, strict=True)]
    assert parts.size == sum(ends)


MARKED = {"utf-8-sig": None, "utf-32-le": "UTF-32", "utf-32-be": "UTF-32", "utf-16-le": "UTF-16",
          "utf-16-be": "UTF-16"}  # fmt: skip


@pytest.mark.parametrize("code", MARKED)
def test_a_file_in_another_code_is_named_by_its_mark(data, tmp_path, code):
    path = tmp_path / "a.txt"
    path.write_bytes(("" if code == "utf-8-sig" else "\ufeff").encode(code) + "é".encode(code))
    if MARKED[code] is None:
        data.check_text(path)
        return
    with pytest.raises(ValueError, match="save") as caught:
        data.check_text(path)
    assert str(caught.value) == f"{path} is in {MARKED[code]}: save it as UTF-8"


def test_a_text_that_cannot_be_read_to_its_end_is_named(data, tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"ab")
    assert [*data.pieces([data.Span(path, 0, 2)])] == [("ab", 0, 2)]
    for content, end, problem in (
        (b"ab", 3, "became shorter while it was read"),
        (b"a\0b", 3, "is not a text, because it has a NUL byte"),
        ("é".encode(), 1, "ends within a character: is it cut short?"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="a") as caught:
            list(data.pieces([data.Span(path, 0, end)]))
        assert str(caught.value) == f"{path} {problem}"


def test_a_piece_ends_with_a_line_or_a_character_if_it_can(data, monkeypatch, tmp_path):
    monkeypatch.setattr(data, "PIECE", 10)
    path = tmp_path / "a.txt"
    path.write_text("ab\ncdef\nghéijkéénoprs\nt\nuvwxyzäöü\n\n", "utf-8", newline="")
    spans = [data.Span(path, 1, path.stat().st_size), data.Span(path, 0, 5)]
    found = [*data.pieces(spans)]
    texts = ["b\ncdef\n", "ghéijké", "énoprs\nt\n", "uvwxyzäö", "ü\n\n", "ab\ncd"]
    assert [text for text, *_ in found] == texts
    ends = [8, 17, 27, 37, 41]
    assert [(index, end) for _, index, end in found] == [*((0, end) for end in ends), (1, 5)]


def test_a_mark_is_left_out_where_a_file_begins_alone(data, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("\ufeffa\n\ufeffb\n", "utf-8")
    whole = data.Span(path, 0, path.stat().st_size)
    assert "".join(text for text, *_ in data.pieces([whole])) == "a\n\ufeffb\n"
    assert "".join(text for text, *_ in data.pieces([whole._replace(begin=5)])) == "\ufeffb\n"
    spans = [whole, whole._replace(begin=8, end=9)]
    assert [*data.pieces(spans, 0, 5)] == [("\ufeffb\n", 0, 10), ("b", 1, 9)]
    assert [*data.pieces(spans, 1, 3)] == [("b", 1, 9)]  # not before what a span has


@pytest.mark.parametrize("change", ["", "time", "begin", "end", "order", "path", "tokenizer"])
def test_ids_are_written_again_for_another_text_or_tokenizer(data, tmp_path, change):
    """Also if the text has as many bytes as before."""
    paths, out, told = [tmp_path / "a", tmp_path / "b"], tmp_path / "ids.bin", []
    for path, text in zip(paths, ("abcd", "dcba"), strict=True):
        path.write_text(text)
    (tmp_path / "c").write_text("aaaa")
    spans = [data.Span(path, 1, 3) for path in paths]
    signs = "abcd"
    data.encoded(spans, data.Encoder(data.character_tokenizer(signs)), out, told.append)
    if change == "time":
        paths[0].write_text("adda")
        os.utime(paths[0], ns=(0, 5))
    elif change == "path":
        spans[1] = spans[1]._replace(path=tmp_path / "c")
    elif change == "begin":
        spans[1] = spans[1]._replace(begin=2)
    elif change == "end":
        spans[1] = spans[1]._replace(end=4)
    elif change == "order":
        spans.reverse()
    elif change == "tokenizer":
        signs = "dcba"
    encoder = data.Encoder(data.character_tokenizer(signs))
    found = data.encoded(spans, encoder, out, told.append)
    text = "".join(span.path.read_text()[span.begin : span.end] for span in spans)
    assert found.ids.tolist() == [signs.index(sign) for sign in text]
    assert found.bytes == len(text)
    assert sum(told) == 4 + (len(text) if change else 0)


@pytest.mark.parametrize("out", ["new", "new/below", "elsewhere", ""])
def test_what_stands_in_the_folder_of_a_run_is_no_text(data, tmp_path, out):
    """A folder that is itself named is read, whatever it is."""
    texts = tmp_path / "texts"
    names = ["a", "new/b", "new/below/c", "old/checkpoint.safetensors", "old/d", "old/e/f",
             "other/checkpoint.safetensors.txt"]  # fmt: skip
    for name in names:
        (texts / name).parent.mkdir(parents=True, exist_ok=True)
        (texts / name).write_text("a")
    left_out = {"new": ("new",), "new/below": ("new/below",)}.get(out, ())
    found, *rest = data.files_of([texts], tmp_path / out if out == "elsewhere" else texts / out)
    assert rest == [0, []]
    assert [path.relative_to(texts).as_posix() for path in found] == [
        name for name in names if not name.startswith(("old", *left_out))
    ]
    assert data.files_of([texts / "new"], texts / "new")[0] == [
        texts / "new" / "b", texts / "new" / "below" / "c",
    ]  # fmt: skip


def test_what_is_named_and_no_text_is_refused(data, tmp_path):
    for name, content, problem in (
        ("a", b"\0", "is not a text, because it has a NUL byte"), ("none", None, None),
    ):  # fmt: skip
        path = tmp_path / name
        if content is None:
            with pytest.raises(FileNotFoundError) as caught:
                data.files_of([path], tmp_path)
            assert str(caught.value) == f"there is no file {path}"
        else:
            path.write_bytes(content)
            with pytest.raises(ValueError, match="NUL") as caught:
                data.files_of([path], tmp_path)
            assert str(caught.value) == f"{path} {problem}"
    (tmp_path / "empty").touch()
    assert data.files_of([tmp_path / "empty"], tmp_path) == ([tmp_path / "empty"], 0, [])


@pytest.mark.parametrize("size", [1, 9, 10, 11, 25])
@pytest.mark.parametrize("text", ["a", "é", "a\n", "好"])
def test_the_end_of_a_text_is_a_tenth_of_whole_characters(data, tmp_path, text, size):
    """A line end stays with its line."""
    path = tmp_path / "a"
    path.write_bytes((text * size).encode())
    end = path.stat().st_size
    middle = end * 9 // 10
    while 0 < middle < end and path.read_bytes()[middle : middle + 1][0] in {10, *range(128, 192)}:
        middle += 1
    parts = data.divided([path])
    assert parts.training == ([data.Span(path, 0, middle)] if middle else [])
    assert parts.held_out == ([data.Span(path, middle, end)] if middle < end else [])


@pytest.mark.parametrize(
    ("most", "every"), [(1000, 1), (100, 1), (67, 1), (66, 2), (40, 2), (34, 3)]
)
def test_a_sample_has_each_of_so_many_pieces(data, noted, most, every):
    noted.put(data, "pieces", lambda spans: ((str(i), 0, i) for i in range(10)))
    spans = [data.Span(Path("a"), 10, 70), data.Span(Path("b"), 0, 40)]
    assert list(data.sample(spans, most)) == [str(i) for i in range(0, 10, every)]
    assert noted.calls == [("pieces", spans)]


@pytest.mark.parametrize("more", [0, 1])
def test_a_text_may_have_so_many_kinds_of_characters(data, noted, monkeypatch, more):
    assert data.MOST_CHARACTERS == 8000
    monkeypatch.setattr(data, "MOST_CHARACTERS", 5)
    noted.put(data, "pieces", [("cab", 0, 0), ("a\nb" + "d" * 9, 0, 0), ("e" * more, 0, 0)])
    found = data.characters_of(data.Parts(["a"], ["b"]))
    assert found == ([*"\nabcd"] if not more else None)
    assert noted.calls == [("pieces", ["a", "b"])]


@pytest.mark.parametrize("words", [257, 260])
def test_bytes_that_stand_together_often_are_joined(data, words):
    tokenizer = data.bpe_tokenizer(iter(["the the then thé", "the other"]), words)
    assert tokenizer.get_vocab_size() == words
    assert tokenizer.token_to_id("th") == 256
    for text in ("the \tother\n 好", " a", "a"):  # no space is put before a text
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert len(tokenizer.encode("the").ids) == (2 if words == 257 else 1)


@pytest.mark.parametrize(("signs", "text", "read", "unknown"), [
    ("aé", "é", "é", ""), ("aé", "e\u0301", "é", ""), ("ae\u0301", "é", "e\u0301", ""),
    ("aé", "zaéy", "zaéy", "'y', 'z'"), ("ae", "aé", "aé", "'é'"),
])  # fmt: skip
def test_a_text_is_read_in_the_form_that_the_model_knows(data, capsys, signs, text, read, unknown):
    tokenizer = data.character_tokenizer(sorted(signs))
    assert data.readable(tokenizer, text) == read
    line = f"it has never seen {unknown}, so it reads the text without them\n"
    assert capsys.readouterr().err == line * bool(unknown)
    with pytest.raises(ValueError, match=r"^no character of the text has a token in this model: n"):
        data.readable(tokenizer, "xyz")


def test_the_most_frequent_five_characters_without_a_token_are_named(data, noted):
    noted.put(data, "pieces", [("abcdefg" + "gfedcb" * 200, 0, 0), ("gfe" * 3 + "g", 0, 0)])
    with pytest.raises(ValueError, match=r"^1,216 of 1,217 characters \(99.92%\) have") as caught:
        data.check_tokens(data.character_tokenizer("a"), data.Parts(["a"], ["b"]))
    assert "no token in the model of --from, such as 'g', 'e', 'f', 'b', 'c': " in str(caught.value)
    assert noted.calls == [("pieces", ["a", "b"])]


@pytest.mark.parametrize(("number", "dtype"), [(65_536, "uint16"), (65_537, "uint32")])
def test_ids_have_the_bytes_that_the_highest_needs(data, number, dtype):
    words = {chr(0x10000 + i): i for i in range(number)}
    tokenizer = types.SimpleNamespace(decoder=data.decoders.Fuse(), get_vocab=lambda: words)
    encoder = data.Encoder(tokenizer)
    assert encoder.dtype == dtype
    found = encoder("".join([*words][-2:]) + "x" + next(iter(words)))
    assert (found.tolist(), found.dtype) == ([number - 2, number - 1, 0], dtype)
    words["two signs"] = 5
    asked = []
    tokenizer.encode = lambda text, **options: asked.append((text, options)) or (
        types.SimpleNamespace(ids=[7, 8]))  # fmt: skip
    found = data.Encoder(tokenizer)("ab")
    assert (found.tolist(), found.dtype) == ([7, 8], dtype)
    assert asked == [("ab", {"add_special_tokens": False})]


def test_the_bytes_of_a_part_are_those_of_its_text(data, tmp_path):
    """Of the text as it is read: without a mark, and with line ends of one byte."""
    path, seen = tmp_path / "a.txt", []
    path.write_bytes("\ufeffaé\r\nb".encode())
    encoder = data.Encoder(data.character_tokenizer("\nabé"))
    span = data.Span(path, 0, path.stat().st_size)
    found = data.encoded([span], encoder, tmp_path / "ids.bin", seen.append)
    assert (found.ids.tolist(), found.ids.dtype, found.bytes, seen) == (
        [1, 3, 0, 2],
        "uint16",
        5,
        [5],
    )
    note = json.loads((tmp_path / "ids.json").read_text())
    assert {**note, "made_of": ""} == {"made_of": "", "file": 0, "place": 9, "ids": 4, "bytes": 5,
                                       "is_done": True}  # fmt: skip
    found = data.encoded([], encoder, tmp_path / "none.bin", seen.append)
    assert (found.ids.tolist(), found.ids.dtype, found.bytes) == ([], "uint16", 0)


def test_a_spread_of_ids_has_whole_runs_from_the_first_to_the_last(data):
    ids = np.arange(10_001)
    assert data.RUN == 1000
    found = data.spread(ids, 3_999)
    starts = [0, 4500, 9001]
    assert found.tolist() == [start + i for start in starts for i in range(1000)]
    assert data.spread(ids, 10_001) is ids
    assert len(data.spread(ids, 10_000)) == 10_000


def test_compressors_say_bits_of_a_byte(data, noted, monkeypatch):
    held_out, training = b"some text " * 30, b"another text " * 20
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 10 << 20}]

    def xz(text):
        return len(lzma.compress(text, lzma.FORMAT_XZ, filters=filters))

    noted.put(data, "pieces", lambda part: [(part.decode()[:50], 0, 0), (part.decode()[50:], 0, 0)])
    monkeypatch.setattr(data, "MOST_READ", 250)  # of the held-out text, and more of the other
    found = data.compressed(data.Parts(training, held_out))
    text = held_out[:250]
    assert found == {
        "gzip": 8 * len(gzip.compress(text)) / 250, "bzip2": 8 * len(bz2.compress(text)) / 250,
        "xz": 8 * xz(text) / 250,
        "xz that has read the training text": 8 * (xz(training + text) - xz(training)) / 250,
    }  # fmt: skip


# chat


@pytest.mark.parametrize("given", [
    {"folder": Path("f")}, {"gguf": Path("g")}, {}, {"int8": True}, {"folder": "f", "int8": True},
], ids=["folder", "gguf", "package", "int8", "folder int8"])  # fmt: skip
def test_a_chat_has_the_model_of_the_options(example, noted, given):
    chat = example("chat")
    quantized = types.SimpleNamespace(quantize=lambda kind: f"quantized to {kind}")
    noted.put(chat.ta.models.CausalLM, "from_pretrained", quantized)
    noted.put(chat.ta.models.CausalLM, "from_gguf", quantized)
    noted.put(chat, "weights", Path("w"))
    options = argparse.Namespace(**{"folder": None, "gguf": None, "int8": False} | given)
    right = "quantized to int8" if options.int8 else quantized
    assert chat.loaded(options) is right or chat.loaded(options) == right
    expected = ("from_gguf", Path("w"), chat.SHA256)
    if options.folder:
        expected = ("from_pretrained", options.folder)
    elif options.gguf:
        expected = ("from_gguf", Path("g"), None)
    assert next(call for call in noted.calls if call != ("weights",)) == expected


@pytest.mark.parametrize("is_stopped", [False, True])
def test_an_answer_is_shown_with_its_speed(example, noted, capsys, monkeypatch, is_stopped):
    chat, times, ends = example("chat"), iter([10.0, 10.75]), []

    def pieces():
        try:
            yield "Wh"
            yield "y?"
            if is_stopped:
                raise KeyboardInterrupt
        finally:
            ends.append("closed")

    monkeypatch.setattr(chat, "time", types.SimpleNamespace(perf_counter=lambda: next(times)))
    tokenizer = types.SimpleNamespace(encode=None)
    noted.put(tokenizer, "encode", types.SimpleNamespace(ids=[1, 2, 3]))
    chat.show(pieces(), tokenizer)
    assert capsys.readouterr() == ("Why?", "\n(3 tokens, 4.0 a second)\n")
    assert noted.calls == [("encode", ("Why?",), {"add_special_tokens": False})]
    assert ends == ["closed"]


@pytest.mark.parametrize("dropped", [0, 2])
def test_a_conversation_asks_what_is_typed(example, noted, monkeypatch, capsys, dropped):
    """A blank line asks nothing; a question that is refused says why."""
    chat, typed = example("chat"), iter(["one", "  ", "wrong", "two "])

    def ask(text):
        if text == "WRONG":
            raise ValueError("no")
        return f"answer to {text}"

    def read(sign):
        assert sign == "> "
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None

    conversation = types.SimpleNamespace(ask=ask, dropped=dropped)
    model = types.SimpleNamespace(tokenizer="tokenizer", chat=lambda **options: (
        noted.calls.append(options) or conversation))  # fmt: skip
    noted.put(chat, "loaded", model)
    noted.put(chat, "show")
    noted.put(example("language_data"), "readable", lambda _, text: text.upper())
    monkeypatch.setattr("builtins.input", read)
    chat.main(["--temperature", "0.5", "--top-p", "0.25", "--tokens", "7"])
    assert noted.calls[1] == {"temperature": 0.5, "top_p": 0.25, "max_new_tokens": 7}
    assert noted.calls[2:] == [
        ("readable", "tokenizer", "one"), ("show", "answer to ONE", "tokenizer"),
        ("readable", "tokenizer", "wrong"),
        ("readable", "tokenizer", "two "), ("show", "answer to TWO ", "tokenizer"),
    ]  # fmt: skip
    out, said = capsys.readouterr()
    line = ["(without the oldest 2 messages)"] * (dropped > 0)
    assert (out, said.splitlines()) == ("\n", [*line, *line, "no", *line, *line])
