"""The example that learns to classify texts of one's own: its files, its parts, a whole run."""

from __future__ import annotations

import csv
import importlib
import json
import re
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

import tinyattn as ta

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def data(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("text_data")


@pytest.fixture
def example(monkeypatch):
    for package in ("tqdm", "sklearn", "matplotlib"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("classify_texts")


def run(example, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["classify_texts.py", *map(str, arguments)])
    example.main()


def rows(count: int = 10) -> str:
    """`count` texts of each of two labels, which one word tells apart."""
    lines = [f"a {word} thing {i},{word[0]}" for i in range(count) for word in ("good", "bad")]
    return "\n".join(["comment,verdict", *lines]) + "\n"


def test_a_file_is_read(data, tmp_path):
    path = tmp_path / "some.csv"
    path.write_text('\ufeffnumber,text,label\n1,"Well, ""this""\nis it", a \n2,文本,b\n', "utf-8")
    assert data.read_csv(path, "text", "label") == (['Well, "this"\nis it', "文本"], ["a", "b"])
    path = tmp_path / "some.tsv"
    path.write_text("text\tlabel\none, two\ta\n")
    assert data.read_csv(path, "text", "label") == (["one, two"], ["a"])
    path = tmp_path / "excel.csv"
    path.write_text(" \r\ntext;label\r\n\r\none, two;a\r\n  \r\n", newline="")
    assert data.read_csv(path, "text", "label", ";") == (["one, two"], ["a"])


def test_a_column_that_is_not_there_is_not_named_as_the_one_of_the_texts(data, tmp_path, capsys):
    path = tmp_path / "some.csv"
    path.write_text("comment,kind\na,b\n")
    with pytest.raises(ValueError, match="no column 'review'"):
        data.read_csv(path, "review", None)
    assert not capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty: its first line must name the columns"),
        (b"\xef\xbb\xbf\n\n", "is empty: its first line must name the columns"),
        (b"text,kind\na,b\n", "no column 'label'; its first line is ['text', 'kind']"),
        (b"text,label,label\na,b,c\n", "two columns 'label'"),
        (b"text,label\na,b\nc\n", "line 3: it has 1 columns and the first line 2"),
        (b"text,label\na,b,c\n", "line 2: it has 3 columns and the first line 2"),
        (b"sep=;\ntext;label\na;b;c\n", "line 3: it has 3 columns and the first line 2"),
        (b"text,label\r\ncaf\xc3\xa9,b\r\ncaf\xe9,b\r\n", "line 3: it is not UTF-8"),
        (b"text,label\ncaf\xe9,b\n", 'save it as UTF-8 (in Excel: "CSV UTF-8")'),
        ("text,label\n我的手机,b\n".encode("gb18030"), "gb18030 '我的手机,b'"),
        ("text,label\nışık,b\n".encode("cp1254"), "cp1254 'ışık,b'"),
        (
            "text,label\na,b\n".encode("utf-16-le"),
            "probably in UTF-16, so try --encoding utf-16-le",
        ),
        (
            "text,label\n一,b\n".encode("utf-16-be"),
            "line 1: it has a NUL byte, which no text has; it",
        ),
        ("text,label\n一,b\n".encode("utf-16-be"), "so try --encoding utf-16-be"),
        (b"\xff\xfea", "line 1: it is not UTF-16"),
        (b"text,label\na,b\na\0c,b\n", "line 3: it has a NUL byte, which no text has; save it as"),
        (b"\x89PNG\r\n\x1a\n\0\0", "line 3: it has a NUL byte"),
        (b'text,label\na,b\n"a "word" b",c\n', "line 3: "),
        (b'text,label\n"a "word" b",c\n', "a quote inside a quoted text is written twice"),
        (b"text;kind\na;b\n", "no column 'label'; its first line is ['text', 'kind']"),
        (b"text,label\nyes, please,b\n", 'is written in quotes: "yes, please"'),
        (b'text,label\na,b\n"c,d\ne,f\n"g",h\n', "lines 3 to 5: "),
        (b'text,label\n"a,b\n', "a quote inside a quoted text is written twice"),
        (b'{"text": "a", "label": "b"}\n{"text": "c", "label": "d"}\n', "it is in JSON: save it"),
        (b'\n[\n {"text": "a", "label": "b"}\n]\n', "it is in JSON: save it as CSV"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(data, tmp_path, content, words):
    path = tmp_path / "some.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"some\.csv") as caught:
        data.read_csv(path, "text", "label")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        "\ufefftext;label\r\nça, là;b\r\n".encode(),
        "\ufeffsep=;\r\ntext;label\r\nça, là;b\r\n".encode(),
        "text\tlabel\r\nça, là\tb\r\n".encode("utf-16"),
        "text|label\nça, là|b\n".encode(),
    ],
)
def test_a_file_of_excel_is_read(data, tmp_path, content):
    path = tmp_path / "some.csv"
    path.write_bytes(content)
    assert data.read_csv(path, "text", "label") == (["ça, là"], ["b"])


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig", "cp1252", "big5"])
def test_an_encoding_that_python_has_is_taken(data, tmp_path, encoding):
    path = tmp_path / "some.csv"
    path.write_bytes("text,label\na,b\n".encode(encoding))
    assert data.read_csv(path, "text", "label", encoding=encoding) == (["a"], ["b"])


@pytest.mark.parametrize("encoding", ["foo", "hex"])
def test_an_encoding_that_python_has_not_is_refused(data, tmp_path, encoding):
    path = tmp_path / "some.csv"
    path.write_bytes(b"text,label\na,b\n")
    with pytest.raises(ValueError, match=f"^--encoding {encoding}: it must be one that Python has"):
        data.read_csv(path, "text", "label", encoding=encoding)


@pytest.mark.parametrize(
    ("content", "given", "found"),
    [
        ("id,text,label\n1,one,a\n", (None, None), ("text", "label")),
        ("Label;Text;id\na;one;1\n", (None, None), ("Text", "Label")),
        ("label,said\na,one\nb,two\n", (None, None), ("said", "label")),
        ("comment,verdict\none,a\ntwo,a\n", (None, None), ("comment", "verdict")),
        ("v1,v2\na,one\na,two\n", (None, None), ("v2", "v1")),
        ("v1\tv2\na\tone\nb\ttwo\n", (None, None), ("v1", "v2")),  # nothing tells them apart
        ("a,text\none,x\ntwo,x\n", ("a", None), ("a", "text")),
        ("text,label\none,x\ntwo,x\n", (None, "text"), ("label", "text")),
        ("a,b,label\none,x,1\n", ("b", None), ("b", "label")),
        ("a;b, or c;label\none;x;1\n", ("b, or c", None), ("b, or c", "label")),
    ],
)
def test_columns_that_are_not_named_are_chosen(data, tmp_path, capsys, content, given, found):
    path = tmp_path / "some.csv"
    path.write_text(content)
    assert data.read_csv(path, *given) == data.read_csv(path, *found)
    said = capsys.readouterr().out
    assert f"the texts are in column {found[0]!r}, and the labels in column {found[1]!r}" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "given", "words"),
    [
        ("a,b,c\n1,2,3\n", (None, None), "with --label; "),
        ("a,b,c\n1,2,3\n", ("b", None), "some.csv, which names the columns, is ['a', 'b', 'c']"),
        ("text\n1\n", (None, None), "some.csv, which names the columns, is ['text']"),
        ("text,text\n1,2\n", (None, None), "has two columns 'text'"),
        ("text,said\n1,2\n", ("other", None), "has no column 'other'"),
        ("text,label\n1,2\n", ("text", "text "), "name the same column twice, 'text'"),
        ("", (None, None), "is empty: its first line must name the columns"),
    ],
)
def test_columns_that_cannot_be_chosen_are_listed(data, tmp_path, content, given, words):
    path = tmp_path / "some.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"some\.csv") as caught:
        data.read_csv(path, *given)
    assert words in str(caught.value)


def test_a_first_line_that_is_probably_a_text_is_named(data, tmp_path, capsys):
    path = tmp_path / "some.csv"
    path.write_text("a（x）;one\nb;two\na(x);three\na(x);four\n", "utf-8")
    assert data.read_csv(path) == (["two", "three", "four"], ["b", "a(x)", "a(x)"])
    chosen, warning = capsys.readouterr().out.splitlines()
    assert "the texts are in column 'one'" in chosen
    assert warning.startswith("warning: the column of the labels is called 'a(x)', as one of")
    assert warning.endswith('write a line with names above it, "label;text"')
    path.write_text("label;text\n" + path.read_text("utf-8"), "utf-8")
    assert data.read_csv(path)[0] == ["one", "two", "three", "four"]
    assert capsys.readouterr().out.count("\n") == 1


def test_an_encoding_that_is_named_is_read(data, tmp_path):
    path = tmp_path / "some.csv"
    path.write_bytes("文本,标签\n好,差\n".encode("gb18030"))
    assert data.read_csv(path, "文本", "标签", encoding="gb18030") == (["好"], ["差"])


def test_rows_that_are_empty_are_counted_in_one_line(data, tmp_path, capsys):
    path = tmp_path / "some.csv"
    path.write_text("text,label\na,b\n ,b\n\u200b,c\nd,\n", "utf-8")
    assert data.read_csv(path, "text", "label") == (["a"], ["b"])
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert said.endswith(" are left out; they are 3 of 4, the first in line 3\n")


def test_a_long_text_is_read_and_the_limit_of_others_stays(data, tmp_path):
    path, limit = tmp_path / "some.csv", csv.field_size_limit()
    path.write_text("text,label\n" + "word " * 27_000 + ",a\n")
    assert len(data.read_csv(path, "text", "label")[0][0]) == 135_000
    assert csv.field_size_limit() == limit


WORDS = {
    "我的手机": "我 的 手 机",
    "ｶﾀカナ": "カ タ カ ナ",
    "กี่ ดี": "กี่ ดี",
    "안녕 하세요!": "안녕 하세요 !",
    "किताब अच्छी है।": "किताब अच्छी है ।",
    "বাংলা ভাষা": "বাংলা ভাষা",
    "كَيْفَ حال؟": "كَيْفَ حال ؟",
    'צה"ל': 'צה"ל',
    "Что-то": "что - то",
    "ΟΔΟΣ": "οδος",
    "IŞIK İyi ısı": "ışık iyi ısı",
    "Fuß\u00adball": "fußball",
    "l’été l'e\u0301te\u0301": "l'été l'été",
    "a 👨\u200d👩\u200d👧 👍🏽👍 🇩🇪🇫🇷": "a 👨\u200d👩\u200d👧 👍🏽 👍 🇩🇪 🇫🇷",
    "❤\ufe0f❤": "❤ ❤",
    "iPhone手机": "iphone 手 机",
    "\u200e": "",
}


@pytest.mark.parametrize("text", WORDS)
def test_words_of_every_script(data, text):
    assert data.words(text) == WORDS[text].split()


def test_signs_of_scripts_without_spaces_make_pairs(data):
    assert data.tokens("你好吗? OK 吧") == ["你", "你好", "好", "好吗", "吗", "?", "ok", "吧"]
    assert data.tokens("two words") == ["two", "words"]
    vocabulary = data.Vocabulary.of(["你好", "你好"])
    assert [vocabulary.names[i] for i in vocabulary.encode("你好", 9)] == ["你", "你好", "好"]


def test_what_share_of_words_a_vocabulary_has(data):
    vocabulary = data.Vocabulary.of(["the cat", "the cat"])
    assert vocabulary.covered(["the dog, 12", "the cat"]) == 0.75
    assert vocabulary.covered(["12 !"]) == 1


@pytest.mark.parametrize("lines", [60, 40_000])  # the reader stops at 131,072 signs of a text
def test_an_open_quote_is_found_where_it_opens(data, tmp_path, lines):
    path = tmp_path / "some.csv"
    path.write_text('text,label\n"a,b\n' + "c,d\n" * lines)
    with pytest.raises(ValueError, match=r"some\.csv, line 2: a quote opens a text here"):
        data.read_csv(path, "text", "label")


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([], "got no texts at all"),
        (["a"] * 30, r"two labels or more are needed, got \['a'\]"),
        (["a"] * 30 + ["b"] * 9, r"1 of 2 labels have fewer \('b' 9\)"),
    ],
)
def test_labels_that_teach_nothing_are_refused(data, labels, words):
    with pytest.raises(ValueError, match=words):
        data.check_labels(labels)


def test_what_is_probably_a_mistake_is_said_in_one_line(data):
    texts = [f"text {i}" for i in range(30)]
    assert not list(data.warnings(texts, ["a", "b"] * 15))
    (line,) = data.warnings([*texts[:28], "Text 1", " text  2"], ["a", "b"] * 15)
    assert line.startswith("warning: of 30 texts only 28 are different")
    (line,) = data.warnings(texts, ["Positive", "positive", "very good", "very  good", "bad"] * 6)
    assert line.endswith("'Positive', 'positive'; 'very  good', 'very good'")


def test_the_definitions_give_no_warning(data):
    assert not list(data.warnings(*data.definitions()))


def test_the_error_bar_of_an_accuracy(example):
    """Wilson's interval is (p + z^2 / 2n +- z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n).
    For p = 0.85, n = 20 and z = 1.96 that is 0.7936 +- 0.1540."""
    said = example.error_bar(17 / 20, 20)
    assert said == ", and of all such texts, with 95 % probability, between 64% and 95%"
    assert example.error_bar(1.0, 20).endswith(", at least 83%")  # 83.9 %
    assert example.error_bar(0.0, 20).endswith(", at most 17%")
    assert example.error_bar(1.0, 1000).endswith(", at least 99%")
    assert example.error_bar(0.0, 1000).endswith(", at most 1%")


def test_words_and_their_ids(data):
    assert data.words("Don't touch!  Café-2") == ["don't", "touch", "!", "café", "-", "2"]
    vocabulary = data.Vocabulary.of(["the cat", "the dog", "the cat sat"])
    assert vocabulary.names == ["<pad>", "<unknown>", "the", "cat"]
    assert vocabulary.encode("the dog saw the cat", 4) == [2, data.UNKNOWN, data.UNKNOWN, 2]
    assert vocabulary.encode(" ", 4) == [data.UNKNOWN]
    assert data.Vocabulary.of(["the cat", "the cat"], most=1).names[2:] == ["the"]


def test_each_text_is_in_one_part_and_each_label_in_all(data):
    labels = np.repeat([0, 1, 2], [10, 25, 100])
    parts = data.split(labels, seed=0)
    assert sorted(np.concatenate(parts).tolist()) == list(range(135))
    counts = [np.bincount(labels[part]).tolist() for part in parts]
    assert counts == [[8, 21, 80], [1, 2, 10], [1, 2, 10]]
    assert parts[0].tolist() != data.split(labels, seed=1)[0].tolist()


@pytest.mark.parametrize("number", [1, 2, 5, 9, 10, 11, 19, 20, 21, 99])
def test_of_few_texts_of_a_label_none_is_held_out(data, number):
    """A tenth of a label, rounded down: a label of nine texts would lose two of them."""
    labels = np.repeat([3, 5], [number, 40])
    learn, validation, test = data.split(labels, seed=1)
    counts = [int((labels[part] == 3).sum()) for part in (learn, validation, test)]
    assert counts == [number - 2 * (number // 10), number // 10, number // 10]
    assert sorted([*learn, *validation, *test]) == list(range(number + 40))


def test_a_run_learns_one_word_saves_and_answers(example, tmp_path, monkeypatch, capsys):
    file, out = tmp_path / "some.csv", tmp_path / "out"
    file.write_text(rows(60))
    columns = ["--text", "comment", "--label", "verdict", "--out", out]
    run(example, monkeypatch, file, *columns, "--epochs", 6, "--batch-size", 8, "--d-model", 16)
    said = capsys.readouterr().out
    assert "120 texts, 2 labels: g 60, b 60" in said
    assert "96 to learn from, 12 to choose, 12 to test" in said
    bounds = ", and of all such texts, with 95 % probability, at least 75%\n"  # by 12 texts
    assert f"encoder                               100.0%{bounds}" in said
    assert re.search(r"\nthe weights are those after epoch \d of 6\n", said)
    assert "warning" not in said
    with pytest.raises(SystemExit, match="2"):
        run(example, monkeypatch, file, *columns)
    assert f"{out} has a classifier: --overwrite replaces it" in capsys.readouterr().err
    assert (out / "loss.png").stat().st_size > 5000

    run(example, monkeypatch, "--out", out, "--predict", "a bad thing", "strangely good")
    said = capsys.readouterr().out.splitlines()
    assert said[1].startswith("  b ")
    assert said[4].startswith("  g ")
    assert "'(strangely)'" in said[5]
    assert (out / "attention.png").stat().st_size > 5000


@pytest.mark.parametrize("words", [40, 256])
def test_of_a_long_text_the_first_words_are_drawn(example, tmp_path, capsys, words):
    """All of them would take a minute, and gigabytes."""
    vocabulary = example.Vocabulary(["<pad>", "<unknown>", "good", "bad"])
    sizes = {"d_model": 8, "heads": 4, "layers": 1, "dropout": 0.0, "longest": 256}
    model = example.TextClassifier(vocabulary, ["b", "g"], sizes)
    example.answer(model, ["bad", "good " * words], tmp_path)
    picture = (tmp_path / "attention.png").read_bytes()
    width, height = (int.from_bytes(picture[i : i + 4], "big") for i in (16, 20))
    assert 1000 < width < 6000
    assert 500 < height < 3000
    assert capsys.readouterr().out.endswith("in the last text, of its first 40 words\n")


@pytest.mark.parametrize(("number", "size"), [(20, 8), (400, 10), (4000, 64)])
def test_a_small_file_has_small_batches(example, tmp_path, monkeypatch, number, size):
    """So that an epoch has 60 steps or more; a step of fewer texts is a smaller one."""
    file, given = tmp_path / "some.csv", []

    def train(model, learn, validation, args, faster):
        given.append((args.batch_size, args.lr))
        raise ValueError("enough")

    monkeypatch.setattr(example, "train", train)
    file.write_text(rows(number))
    columns = ["--text", "comment", "--label", "verdict", "--out", tmp_path / "out"]
    for more in ([], ["--batch-size", 7, "--lr", 0.5]):
        with pytest.raises(SystemExit):
            run(example, monkeypatch, file, *columns, *more)
    assert given == [(size, pytest.approx(3e-4 * (size / 64) ** 0.5)), (7, 0.5)]


def test_a_run_reads_semicolons_and_warns(example, tmp_path, monkeypatch, capsys):
    file, out = tmp_path / "some.csv", tmp_path / "out"
    file.write_text(rows().replace(",", ";") + "A  good thing 1;G \n" * 10)
    columns = ["--text", "comment", "--label", "verdict", "--out", out, "--separator", ";"]
    run(example, monkeypatch, file, *columns, "--short", "--d-model", 8)
    said = capsys.readouterr().out
    assert "warning: of 30 texts only 20 are different" in said
    assert "count as different labels: 'G', 'g'" in said
    assert "\nthe weights are those after epoch 1 of 1\n" in said


def test_a_classifier_of_another_training_that_ended_meanwhile_stays(
    example, tmp_path, monkeypatch, capsys
):
    file, first, out = tmp_path / "some.csv", tmp_path / "first", tmp_path / "out"
    file.write_text(rows())
    train, arguments = example.train, (file, "--short", "--d-model", 8, "--out")
    run(example, monkeypatch, *arguments, first)

    def beside_another(*given):
        shutil.copytree(first, out, dirs_exist_ok=True)
        return train(*given)

    monkeypatch.setattr(example, "train", beside_another)
    with pytest.raises(SystemExit, match="2"):
        run(example, monkeypatch, *arguments, out, "--seed", 1)
    assert f"{out} has a classifier: --overwrite replaces it" in capsys.readouterr().err
    for path in first.iterdir():
        assert (out / path.name).read_bytes() == path.read_bytes()
    run(example, monkeypatch, *arguments, out, "--seed", 1, "--overwrite")
    weights = "model.safetensors"
    assert (out / weights).read_bytes() != (first / weights).read_bytes()


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "checkpoint.safetensors"])
@pytest.mark.parametrize("more", [[], ["--overwrite"]])
def test_files_of_another_program_stay(example, tmp_path, monkeypatch, capsys, name, more):
    file, out = tmp_path / "some.csv", tmp_path / "out"
    file.write_text(rows())
    out.mkdir()
    for other in (name, "loss.png"):
        (out / other).write_text("of another program")
    with pytest.raises(SystemExit, match="2"):
        run(example, monkeypatch, file, "--short", "--d-model", 8, "--out", out, *more)
    said = capsys.readouterr().err
    assert f"{out} has files of another program, such as {name}: name another --out" in said
    assert {path.name: path.read_text() for path in out.iterdir()} == dict.fromkeys(
        (name, "loss.png"), "of another program"
    )


def stopped_after(example, monkeypatch, capsys, number, *arguments):
    """What a run prints that Ctrl-C stops in a step, and the weights after each whole epoch."""
    steps, states, loss_on = [], [], example.loss_on
    clip, measured = example.optim.clip_grad_norm_, example.TrainingLoop.measured

    def clip_and_stop(*given):
        steps.append(given)
        if len(steps) == number:
            signal.raise_signal(signal.SIGINT)
        return clip(*given)

    def note(loop, loss):
        states.append(loop.parts["model"].state_dict())
        measured(loop, loss)

    monkeypatch.setattr(example.optim, "clip_grad_norm_", clip_and_stop)
    monkeypatch.setattr(example.TrainingLoop, "measured", note)
    with pytest.raises(SystemExit, match="130"):
        example.programs.run(lambda: run(example, monkeypatch, *arguments))
    assert (len(steps), example.loss_on) == (number, loss_on)
    return capsys.readouterr().out, states


def test_ctrl_c_in_the_first_epoch_keeps_the_old_classifier(example, tmp_path, monkeypatch, capsys):
    file, out = tmp_path / "some.csv", tmp_path / "out"
    file.write_text(rows(20))  # 4 steps an epoch
    arguments = file, "--epochs", 3, "--d-model", 8, "--out", out, "--overwrite"
    run(example, monkeypatch, *arguments)
    before = {path: path.read_bytes() for path in out.iterdir()}
    said, states = stopped_after(example, monkeypatch, capsys, 2, *arguments)
    assert said.endswith(
        "\nstopped after 2 of 12 steps; nothing is saved, because no epoch is whole\n"
    )
    assert not states
    assert "the weights are those" not in said.rpartition("to learn from")[2]
    assert {path: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.parametrize("step", [4, 6])
def test_ctrl_c_later_keeps_the_best_of_the_whole_epochs(
    example, tmp_path, monkeypatch, capsys, step
):
    file, out = tmp_path / "some.csv", tmp_path / "out"
    file.write_text(rows(20))
    arguments = file, "--epochs", 3, "--d-model", 8, "--out", out
    said, states = stopped_after(example, monkeypatch, capsys, step, *arguments)
    words = f"stopped after {step} of 12 steps; the classifier of the best epoch is in {out}"
    assert said.splitlines()[-1] == words
    assert "\nthe weights are those after epoch 1 of 1\n" in said
    assert len(states) == 1
    found = example.TextClassifier.load(out).state_dict()
    for name, value in states[0].items():
        np.testing.assert_array_equal(found[name].numpy(), value.numpy())


@pytest.mark.parametrize(("epochs", "measured"), [(9, 6), (1, 1)])
def test_a_run_that_ends_by_itself_is_not_stopped(
    example, tmp_path, monkeypatch, capsys, epochs, measured
):
    """It ends with its patience, or with its last epoch, after which Ctrl-C comes too late."""
    file, found = tmp_path / "some.csv", []

    def loss_on(*_):
        found.append(1.0)
        if len(found) == measured:
            signal.raise_signal(signal.SIGINT)
        return 1.0

    monkeypatch.setattr(example, "loss_on", loss_on)
    file.write_text(rows(20))
    run(example, monkeypatch, file, "--epochs", epochs, "--d-model", 8, "--out", tmp_path / "out")
    said = capsys.readouterr().out
    assert f"\nthe weights are those after epoch 1 of {measured}\n" in said
    assert "stopped" not in said


def test_of_many_labels_some_are_counted(example, tmp_path, monkeypatch, capsys):
    file = tmp_path / "some.csv"
    lines = [f"a {label} thing,{label}" for label in range(22) for _ in range(10)]
    file.write_text("\n".join(["text,label", *lines]))
    run(example, monkeypatch, file, "--short", "--d-model", 8, "--out", tmp_path / "out")
    assert re.search(r", 22 labels: 0 10, .*, 19 10, and 2 labels more\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"\xff", b"[1]", {"labels": 3}, {"labels": ["x"]}, {"vocabulary": [[1]]},
     {"sizes": {}}, {"sizes": {"d_model": "8"}}],
)  # fmt: skip
def test_a_damaged_classifier_is_named(example, tmp_path, monkeypatch, capsys, content):
    sizes = {"d_model": 8, "heads": 2, "layers": 1, "dropout": 0.5, "longest": 3}
    model = example.TextClassifier(example.Vocabulary.of(["a b c"] * 2), ["x", "y"], sizes)
    model.save(tmp_path)
    path = tmp_path / "classifier.json"
    if isinstance(content, dict):
        content = json.dumps(json.loads(path.read_bytes()) | content).encode()
    path.write_bytes(content)
    with pytest.raises(SystemExit, match="2"):
        run(example, monkeypatch, "--out", tmp_path, "--predict", "a")
    said = capsys.readouterr().err
    assert said.startswith(f"classify_texts.py: {path} is damaged")
    assert said.count("\n") == 1


@pytest.mark.parametrize("full", ["weights", "settings"])
def test_a_full_disk_leaves_the_old_classifier(example, tmp_path, monkeypatch, full):
    """Its words were written first, so those of the new one stood beside the old weights."""
    sizes = {"d_model": 8, "heads": 2, "layers": 1, "dropout": 0.0, "longest": 16}
    old, new = (
        example.TextClassifier(example.Vocabulary(["<pad>", "<unknown>", *words]), names, sizes)
        for words, names in ((["good", "bad"], ["b", "g"]), (["bad", "good"], ["x", "y"]))
    )
    old.save(tmp_path)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def no_space(*_):
        raise OSError(28, "No space left on device")

    writer = (
        (example.ta, "save") if full == "weights" else (example.atomic_write, "write_atomically")
    )
    monkeypatch.setattr(*writer, no_space)
    with pytest.raises(OSError, match="No space left"):
        new.save(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files
    monkeypatch.undo()
    weights = tmp_path / example.WEIGHTS
    new.save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == files.keys()
    weights.chmod(0o400)
    with pytest.raises(PermissionError, match="is read-only"):
        old.save(tmp_path)
    weights.chmod(0o600)


def test_what_is_loaded_computes_the_same(example, tmp_path):
    sizes = {"d_model": 8, "heads": 2, "layers": 1, "dropout": 0.5, "longest": 3}
    model = example.TextClassifier(example.Vocabulary.of(["a b c"] * 2), ["x", "y"], sizes)
    model.save(tmp_path)
    texts = ["a b", "c unseen a b", "b"]
    loaded = example.TextClassifier.load(tmp_path)
    np.testing.assert_array_equal(loaded.scores(texts), model.scores(texts))
    # Padding, and words beyond the longest text, change nothing.
    np.testing.assert_allclose(model.scores(texts)[2], model.scores(["b"])[0], rtol=1e-5)
    np.testing.assert_array_equal(model.scores(["c z a"]), model.scores(["c z a b b"]))


def test_what_is_loaded_is_in_evaluation(example, tmp_path):
    sizes = {"d_model": 8, "heads": 2, "layers": 1, "dropout": 0.5, "longest": 3}
    model = example.TextClassifier(example.Vocabulary.of(["a b c"] * 2), ["x", "y"], sizes)
    model.save(tmp_path)
    loaded = example.TextClassifier.load(tmp_path)
    assert not any(module.training for module in loaded.modules())
    ids = loaded.ids_of(["a b", "c"])
    np.testing.assert_array_equal(loaded(ids).numpy(), loaded(ids).numpy())


def test_a_training_forgets_words_and_no_padding(example, monkeypatch):
    """Padding that became a word would be attended to."""
    monkeypatch.setattr(example, "FORGOTTEN", 1.0)
    sizes = {"d_model": 8, "heads": 2, "layers": 1, "dropout": 0.0, "longest": 3}
    texts = ["a b c", "a"] * 4
    model = example.TextClassifier(example.Vocabulary.of(texts), ["x", "y"], sizes)
    seen = []
    model.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0].numpy()))
    part = example.Texts(texts, np.array([0, 1] * 4))
    args = example.argparse.Namespace(seed=0, batch_size=8, epochs=1, lr=0.1)
    example.train(model, part, part, args)
    learned, measured = seen
    assert sorted(learned.tolist()) == [[1, 0, 0]] * 4 + [[1, 1, 1]] * 4
    assert measured.max() > 1


def test_the_words_that_most_words_look_at_are_printed_first(
    example, tmp_path, monkeypatch, capsys
):
    sizes = {"d_model": 8, "heads": 2, "layers": 1, "dropout": 0.0, "longest": 9}
    model = example.TextClassifier(example.Vocabulary.of(["a b c"] * 2), ["x", "y", "z"], sizes)
    weights = np.zeros((2, 3, 3), np.float32)  # heads, the words that look, those looked at
    weights[0, :, 1], weights[1, :, 1], weights[1, :, 2] = 1, 0.25, 0.75
    scores = np.log(np.array([[0.2, 0.7, 0.1]], np.float32))
    monkeypatch.setattr(example.TextClassifier, "scores", lambda *_: scores)
    monkeypatch.setattr(example, "looked_at", lambda *_: (["a", "(d)", "c"], weights))
    example.answer(model, ["a d c"], tmp_path)
    said = capsys.readouterr().out.splitlines()
    assert said[:3] == [
        "a d c",
        "  y 70.0%, x 20.0%, z 10.0%",
        "  most looked at: '(d)' 0.62, 'c' 0.38, 'a' 0.00",
    ]


def test_a_separator_that_is_named_comes_before_that_of_the_first_line(data, tmp_path):
    path = tmp_path / "some.csv"
    path.write_text("sep=;\ntext|label\none; two|a\n")
    assert data.read_csv(path, "text", "label", "|") == (["one; two"], ["a"])
    path.write_text("text,label\nsaid;a,b\n")
    with pytest.raises(ValueError, match="no column 'text'"):
        data.read_csv(path, "text", "label", ";")


def test_the_words_of_the_test_are_looked_for_in_the_vocabulary(example, capsys):
    """Those that are learned from are in it, and say nothing."""
    sizes = {"d_model": 8, "heads": 2, "layers": 1, "dropout": 0.0, "longest": 3}
    model = example.TextClassifier(example.Vocabulary.of(["a b"] * 9), ["x", "y"], sizes)
    labels = np.array([0, 1] * 5)
    known, unknown = (example.Texts([text] * 10, labels) for text in ("a b", "c d"))
    for parts, said in (((known,) * 3, None), ((known, known, unknown), "0%"),
                        ((unknown, unknown, known), None)):  # fmt: skip
        texts = [text for part in parts for text in part.texts]
        example.introduce(model, texts, ["x", "y"] * 15, parts)
        out = capsys.readouterr().out
        assert out.startswith("30 texts, 2 labels: x 15, y 15\n10 to learn from, 10 to choose, 10 ")
        warned = re.findall(r"the vocabulary has (\d+%) of the words of the test texts", out)
        assert warned == ([said] if said else [])


def test_a_baseline_knows_nothing_of_the_test(example, monkeypatch, capsys):
    """The most frequent label is that of the texts that are learned from."""
    learn = example.Texts(["a"] * 5, np.array([0, 0, 0, 1, 1]))
    test = example.Texts(["a"] * 4, np.array([0, 1, 1, 1]))
    monkeypatch.setattr(example, "by_words", lambda learn, test: 0.5)
    monkeypatch.setattr(example, "accuracy", lambda model, part: len(part.texts) / 4)
    example.compare(None, learn, test)
    said = capsys.readouterr().out.splitlines()
    assert said[0].split() == ["on", "4", "test", "texts", "right"]
    for line, right in zip(said[1:], ("25.0%", "50.0%", "100.0%"), strict=True):
        assert f" {right}, and of all such texts" in line


def test_the_weights_of_the_lowest_validation_loss_are_kept(example, monkeypatch):
    five = [2.0, 1.5, 1.2, 1.1, 1.3]  # that are not lower
    losses = iter([3.0, 1.0, *five, 9.0])
    states = []

    def measured(model, part):
        states.append(model.output.weight.numpy().copy())
        return next(losses)

    monkeypatch.setattr(example, "loss_on", measured)
    sizes = {"d_model": 8, "heads": 2, "layers": 1, "dropout": 0.0, "longest": 3}
    model = example.TextClassifier(example.Vocabulary.of(["a b"] * 2), ["x", "y"], sizes)
    part = example.Texts(["a", "b"], np.array([0, 1]))
    parser = example.argparse.Namespace(seed=0, batch_size=2, epochs=9, lr=0.1)
    _, found = example.train(model, part, part, parser)
    assert [loss for _, loss in found] == [3.0, 1.0, *five]
    np.testing.assert_array_equal(model.output.weight.numpy(), states[1])
    assert not np.array_equal(states[1], states[-1])


def test_vectors_of_words_learn_faster_than_layers(example):
    ta.manual_seed(0)
    sizes = {"d_model": 8, "heads": 2, "layers": 1, "dropout": 0.0, "longest": 3}
    model = example.TextClassifier(example.Vocabulary.of(["a b"] * 2), ["x", "y"], sizes)
    part = example.Texts(["a", "b"], np.array([0, 1]))
    before = {name: p.numpy().copy() for name, p in model.named_parameters()}
    # The rate of the first step is half of the highest one, and that of the second is 0.
    args = example.argparse.Namespace(seed=0, batch_size=2, epochs=2, lr=2e-4)
    example.train(model, part, part, args, 70.0)
    for name, rate in (("embedding.weight", 7e-3), ("output.weight", 1e-4)):
        moved = abs(model.state_dict()[name].numpy() - before[name]).max()
        assert moved == pytest.approx(rate, rel=0.25)  # Adam's first step, and weight decay


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.csv"], "No such file or directory"),
        (["none.csv", "--text", "a", "--label", "b"], "No such file or directory"),
        (["--predict", "a", " "], "--predict: a text must have words, got ' '"),
        (["--predict", "a"], "has no trained classifier yet: train one first"),
    ],
)
def test_what_cannot_be_done_ends_with_one_line(
    example, tmp_path, monkeypatch, capsys, arguments, words
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        run(example, monkeypatch, *arguments)
    assert words in capsys.readouterr().err


def test_the_definitions_are_whole(data):
    texts, kinds = data.definitions()
    assert len(texts) == len(set(texts)) == 4800
    assert len(set(kinds)) == 12
    assert ta.tensor([len(data.words(text)) for text in texts]).max().item() < 128


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--text", "comment", "--label", "verdict"], "name it first"),
        (["--separator", ";"], "name it first"),
        (["--separator", ";", "--predict", "a thing"], "leave out the file, --text, --label and"),
        (["FILE", "--separator", ";;"], "must be one sign"),
        (["FILE", "--predict", "a thing"], "leave out the file, --text, --label and"),
        (["--text", "comment", "--predict", "a thing"], "leave out the file, --text, --label and"),
    ],
)
def test_arguments_that_would_be_ignored_are_refused(
    example, monkeypatch, tmp_path, capsys, arguments, words
):
    path = tmp_path / "some.csv"
    path.write_text(rows())
    arguments = [path if word == "FILE" else word for word in arguments]
    with pytest.raises(SystemExit) as caught:
        run(example, monkeypatch, *arguments, "--out", tmp_path / "out")
    assert words in f"{caught.value}{capsys.readouterr().err}"
    assert not (tmp_path / "out").exists()


def test_a_training_that_cannot_be_kept_is_refused(example, monkeypatch, tmp_path, capsys):
    """A folder that cannot be made, before the training; a loss that is never finite, after it."""
    path = tmp_path / "some.csv"
    path.write_text(rows())
    columns = path, "--text", "comment", "--label", "verdict", "--epochs", 1
    trained = []
    monkeypatch.setattr(example, "train", lambda *args: trained.append(args))
    with pytest.raises(SystemExit):
        run(example, monkeypatch, *columns, "--out", path)
    assert not trained
    monkeypatch.undo()
    monkeypatch.setattr(example, "loss_on", lambda *args: float("nan"))
    with pytest.raises(SystemExit) as caught:
        run(example, monkeypatch, *columns, "--out", tmp_path / "out")
    assert "the loss is not finite" in f"{caught.value}{capsys.readouterr().err}"
    assert not list((tmp_path / "out").iterdir())
