"""What text_data.py of examples/ says and finds: its whole sentences, and its parts one by one."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def data(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("text_data")


READINGS = (
    "gb18030 'caf閝b', cp932 'caf駲b', cp949 'caf\N{REPLACEMENT CHARACTER}qb', cp874 'caf้qb', "
    "cp1250 'caféqb', cp1251 'cafйqb', cp1252 'caféqb', cp1253 'cafιqb', cp1254 'caféqb', "
    "cp1255 'cafיqb', cp1256 'caféqb'"
)
REFUSED = {
    b"": "{path} is empty: its first line must name the columns, and each further line has a text "
    "and its label",
    b"text,kind\n": "{path} has no column 'label'; its first line is ['text', 'kind']",
    b"text,label,text\n": "{path} has two columns 'text'; its first line is ['text', 'label', "
    "'text']",
    b"text;label\na;b\n\nc\n": "{path}, line 4: it has 1 columns and the first line 2; a text that "
    'has the separator in it is written in quotes: "yes; please"',
    b"text,label\ncaf\xe9qb\nx": "{path}, line 2: it is not UTF-8; save it as UTF-8 (in Excel: "
    '"CSV UTF-8"), or choose the --encoding in which its words can be read: ' + READINGS,
    b"text,label\r\na\0,b\r\n": "{path}, line 2: it has a NUL byte, which no text has; save it as "
    'text in UTF-8 (in Excel: "CSV UTF-8")',
    "text,label\n".encode("utf-16-le"): "{path}, line 1: it has a NUL byte, which no text has; it "
    "is probably in UTF-16, so try --encoding utf-16-le",
    b'text,label\n"a,b\n': "{path}, line 2: a quote opens a text here, and no quote ends it; a "
    "quote inside a quoted text is written twice",
    b' [ {"text": 1}]': "{path}: it is in JSON: save it as CSV, whose first line names columns",
}


@pytest.mark.parametrize("place", range(len(REFUSED)))
def test_a_file_is_refused_in_a_whole_sentence(data, tmp_path, place):
    content, words = list(REFUSED.items())[place]
    path = tmp_path / "some.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="some") as caught:
        data.read_csv(path, "text", "label")
    assert str(caught.value) == words.replace("{path}", str(path))


def test_columns_are_refused_in_a_whole_sentence(data, tmp_path):
    path = tmp_path / "some.csv"
    path.write_text("a,b,c\n1,2,3\n")
    names = "['a', 'b', 'c']"
    for given, words in (
        (("a", " a"), f"--text and --label name the same column twice, 'a'; {path} has {names}"),
        ((None, "a"), "name the column of the texts with --text and that of the labels with "
         f"--label; the first line of {path}, which names the columns, is {names}"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="--label") as caught:
            data.read_csv(path, *given)
        assert str(caught.value) == words


def test_what_is_chosen_and_left_out_is_said(data, tmp_path, capsys):
    path = tmp_path / "some.csv"
    path.write_text("id;text;good\n1;a b ;x\n2;;y\n3;c; good \n" + "4;;\n" * 1000)
    assert data.read_csv(path, None, "good") == (["a b ", "c"], ["x", "good"])
    assert capsys.readouterr().out.splitlines() == [
        f"{path}: the texts are in column 'text', and the labels in column 'good' (--text and "
        "--label choose others)",
        f"{path}: rows without a text or a label are left out; they are 1,001 of 1,003, the first "
        "in line 3",
        "warning: the column of the labels is called 'good', as one of the labels is. If the first "
        f"line of {path} is a text with its label, it is not learned: write a line with names "
        'above it, "id;text;label"',
    ]


def test_what_is_probably_a_mistake_is_said_in_whole_sentences(data):
    texts = [f"text {i}" for i in range(1000)] + [f" Text  {i}" for i in range(1200)]
    names = ["A", "a", "b"] * 733 + ["b"]
    assert list(data.warnings(texts, names)) == [
        "warning: of 2,200 texts only 1,200 are different. A repeated text can be learned and "
        "tested too, so the test is too good: remove the 1,000 repeated",
        "warning: some labels differ only in case or spaces, and count as different labels: 'A', "
        "'a'",
    ]


@pytest.mark.parametrize(("labels", "words"), [
    ([], "two labels or more are needed, got no texts at all"),
    (["a"] * 20, "two labels or more are needed, got ['a']"),
    (["b"] * 9 + ["a"] * 2 + ["c"] * 10, "a label needs 10 texts, because some of them are held "
     "out; 2 of 3 labels have fewer ('a' 2, 'b' 9): leave out their texts, or join labels"),
])  # fmt: skip
def test_labels_are_refused_in_a_whole_sentence(data, labels, words):
    with pytest.raises(ValueError, match="label") as caught:
        data.check_labels(labels)
    assert str(caught.value) == words
    data.check_labels(["a"] * 10 + ["b"] * 10)


@pytest.mark.parametrize(("first", "named", "sign"), [
    ("text;label,x", (None, None), ","),  # neither gives both; they are as frequent
    ("text;label,label;x", (None, None), ";"),
    ("text,label;text;label", (None, None), ";"),
    ("text\tlabel,a,b,c", (None, None), ","),
    ("\n \ntext|label|a,b,c,d", (None, None), "|"),
    ("a,b|text|label", (None, None), "|"),
    ("a|b,text,label", ("a", None), "|"),
    ("a|b,text,label", (None, "label"), ","),
    ("a\tb,c\td", ("a", "d"), "\t"),
    ("", (None, None), ","),
])  # fmt: skip
def test_the_sign_between_columns_is_that_which_gives_the_columns(data, first, named, sign):
    assert data.separator_of(first + "\nA,B,C,D\n", *named) == sign


def test_lines_are_counted_at_every_end(data):
    assert [data.line_after(x) for x in ("", "a", "a\n", "a\r\nb", "\r\r", "\n\r\n\r")] == [
        1, 1, 2, 2, 3, 4,
    ]  # fmt: skip


def test_what_is_near_to_a_wrong_byte_is_read_in_all_encodings(data):
    content = b"before\n" + b"x" * 30 + b"\xe9" + b"y" * 30 + b"\nafter"
    found = data.readings(content, 37)
    near = b"x" * 20 + b"\xe9" + b"y" * 19
    signs = ("gb18030", "cp932", "cp949", "cp874", *(f"cp{i}" for i in range(1250, 1257)))
    assert found == ", ".join(f"{name} {near.decode(name, 'replace')!r}" for name in signs)
    assert data.readings(b"ab\n c\xe9 \nd", 5).startswith("gb18030 'c\ufffd', ")


def test_a_vocabulary_has_the_most_frequent_words(data):
    texts = ["b b b a a c", "a a d d", "e"]
    assert data.Vocabulary.of(texts).names == ["<pad>", "<unknown>", "a", "b", "d"]
    assert data.Vocabulary.of(texts, 3).names[2:] == ["a", "b"]
    assert data.Vocabulary.of(texts, 1, 4).names[2:] == ["a", "b", "d", "c"]
    many = [f"w{i} w{i}" for i in range(20_001)]
    assert len(data.Vocabulary.of(many)) == 20_002
    vocabulary = data.Vocabulary(["<pad>", "<unknown>", "a", "b"])
    assert vocabulary.covered(["a a c", "b 7", "d !"]) == 0.6
    assert vocabulary.encode("b c a b", 3) == [3, 1, 2]
    assert vocabulary.encode("", 3) == [1]


def test_the_definitions_are_the_last_column_and_the_kinds_the_first(data, monkeypatch):
    monkeypatch.setattr(data, "wordnet", lambda: [["k", "w", "d"], ["l", "v", "e"]])
    assert data.definitions() == (["d", "e"], ["k", "l"])
