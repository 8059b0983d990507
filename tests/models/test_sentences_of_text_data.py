"""What text_data.py of examples/ says and finds: its whole sentences, and its parts one by one."""

from __future__ import annotations

import importlib
import unicodedata
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
    ("a|b;c", (None, "a"), "|"),
    ("a|b;c", ("a", None), "|"),
    ("a,b|c,b;d", ("a,b", "c,b;d"), "|"),
    ("a;b|c;b,d", ("a", "d"), ";"),  # no sign gives both; it is the most frequent
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


CODES = ("utf-8-sig", "utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be")


@pytest.mark.parametrize("code", CODES)
def test_a_mark_says_in_which_code_a_file_is(data, tmp_path, code):
    path = tmp_path / "some.csv"
    mark = "" if code == "utf-8-sig" else "\ufeff"
    path.write_bytes(f"{mark}text,label\né好,b\n".encode(code))
    assert data.decoded(path) == "text,label\né好,b\n"
    assert data.read_csv(path, "text", "label") == (["é好"], ["b"])


@pytest.mark.parametrize(("content", "given", "sign"), [
    ("sep=;\n", None, ";"), ('"sep=|"\r\n', None, "|"), ("SEP=|\r", None, "|"),
    ("Sep=\t\n", None, "\t"), ("sep=;\n", "|", "|"), ("", "|", "|"), ("", None, ","),
])  # fmt: skip
def test_a_separator_that_is_given_comes_before_that_of_excel(data, tmp_path, content, given, sign):
    path = tmp_path / "some.csv"
    end = "\r\n" if "\r\n" in content else "\r" if "\r" in content else "\n"
    rows = [f"text{sign}label", f"a, b; c{sign}x" if sign != "," else "a,x"]
    rows = [row if sign != ";" else row.replace("b;", "b:") for row in rows]
    path.write_bytes((content + end.join([*rows, "wrong"])).encode())
    line = 4 if content else 3
    with pytest.raises(ValueError, match=f"line {line}: it has 1 columns and the first line 2"):
        data.read_csv(path, "text", "label", given)
    path.write_bytes((content + end.join(rows)).encode())
    assert data.read_csv(path, "text", "label", given) == ([rows[1].split(sign)[0]], ["x"])


@pytest.mark.parametrize("first", ["{text},label", "[text],label", "{,label", "[,label", '"{",b'])
def test_a_file_with_brackets_may_be_csv(data, tmp_path, first):
    path = tmp_path / "some.csv"
    path.write_text(f"{first}\na,b\n")
    assert data.read_csv(path)[0] in (["a"], ["b"])


@pytest.mark.parametrize(
    "given", [(None, None), ("text", None), (None, "label"), ("text", "label")]
)
def test_columns_are_said_unless_both_are_given(data, tmp_path, capsys, given):
    path = tmp_path / "some.csv"
    path.write_text("label,text\na,b\n")
    assert data.read_csv(path, *given) == (["b"], ["a"])
    assert bool(capsys.readouterr().out) == (given != ("text", "label"))


@pytest.mark.parametrize(("names", "rows", "given", "found"), [
    ("ab", ["xy"], (None, None), "ab"), ("ab", ["xy", "xz"], (None, None), "ba"),
    ("ab", ["xy", "zy"], (None, None), "ab"), ("ab", ["xy", "xzz"], (None, None), "ab"),
    ("ab", ["xy", "xz"], ("a", None), "ab"), ("ab", ["xy", "zy"], (None, "a"), "ba"),
    ("ab", ["xy", "zy"], ("b", None), "ba"), ("ab", ["xy", "xz"], (None, "b"), "ab"),
    ("ab", ["xy"], ("c", None), "cb"), ("ab", ["xy"], (None, "c"), "ac"),
    (["TEXT", "b", "Label"], [], (None, None), ["TEXT", "Label"]),
    (["text", "b", "label"], [], ("b", None), ["b", "label"]),
    (["text", "b", "label"], [], (None, "b"), ["text", "b"]),
    (["b", "text"], ["xy", "zy"], (None, None), ["text", "b"]),
    (["label", "b"], ["xy", "xz"], (None, None), ["b", "label"]),
])  # fmt: skip
def test_a_column_is_found_by_its_name_or_by_its_values(data, names, rows, given, found):
    assert data.chosen(Path("a"), [*names], [[*row] for row in rows], *given) == tuple(found)


def test_rows_are_numbered_by_their_first_line(data, tmp_path):
    text = 'a,"b\n\nc"\n\n  \n,\n"d\r\ne",f\rg\n'
    found = data.records(tmp_path, text, ",")
    assert found == [
        (1, ["a", "b\n\nc"]), (6, ["", ""]), (7, ["d\r\ne", "f"]), (9, ["g"]),
    ]  # fmt: skip
    assert data.records(tmp_path, "a;b,c", ";") == [(1, ["a", "b,c"])]
    assert data.records(tmp_path, "", ",") == []


@pytest.mark.parametrize(("text", "name"), [
    ("a\nb", "utf-16-le"), ("a\nb", "utf-16-be"), ("好\n", "utf-16-be"), ("ab", None),
    ("a\0\n", None),
])  # fmt: skip
def test_lines_say_which_utf_16_a_file_is(data, text, name):
    assert data.utf_16(text.encode(name or "utf-16-le")) == (name or "")
    assert data.utf_16(text.encode(name or "utf-16-le") + b"a") == ""  # half of a sign


SPELLED = {
    "col·lecció": "col·lecció", "צה״ל": "צה״ל", "ג׳ירף": "ג׳ירף", 'a"b': 'a " b',
    'א"': 'א "', '"א': '" א', "می\u200cخواهم": "می\u200cخواهم", "a\u200bb": "a b",
    "\U0001f3f4\U000e0067\U000e0062\U000e007f!": "\U0001f3f4\U000e0067\U000e0062\U000e007f !",
    "a_b 3.5": "a_b 3 . 5", "rock'n'roll'": "rock'n'roll '", "ﬁn ＡＢ １": "fin ab 1",
    "İI": "iı", "Iİ": "ıi", "II": "ii", "ıI": "ıı", "É": "é", "’": "'", "a’b": "a'b",
    "❤\u200d🔥🔥": "❤\u200d🔥 🔥", "...": ". . .", "🇩🇪🇫": "🇩🇪 🇫", "各a": "各 a", "가가": "가가",
}  # fmt: skip


@pytest.mark.parametrize("text", SPELLED)
def test_a_word_ends_where_its_script_says(data, text):
    assert data.words(text) == SPELLED[text].split(" ")


def test_scripts_without_spaces_are_cut_into_their_signs(data):
    """All letters of these scripts, and none of others."""
    unspaced = (
        "THAI ", "LAO ", "MYANMAR ", "KHMER ", "TAI ", "NEW TAI ", "JAVANESE ", "CJK ", "YI ",
        "HIRAGANA ", "KATAKANA", "BOPOMOFO ", "IDEOGRAPHIC ITERATION", "HENTAIGANA ",
    )  # fmt: skip
    others = (
        "LATIN ", "GREEK ", "CYRILLIC ", "HEBREW ", "ARABIC ", "DEVANAGARI ", "HANGUL SYLLABLE",
        "TIBETAN ", "GEORGIAN ", "ETHIOPIC ", "MONGOLIAN ", "CHEROKEE ", "VAI ", "LISU ", "TAMIL ",
    )  # fmt: skip
    counts = {True: 0, False: 0}
    for i in (*range(0xA0, 0x10000, 3), *range(0x20000, 0x32000, 64), *range(0x1B000, 0x1B123)):
        sign = unicodedata.normalize("NFKC", chr(i))
        if unicodedata.category(sign[0])[0] != "L" or len(sign) > 1:
            continue
        name = unicodedata.name(sign, "")
        if name.startswith(unspaced + others):
            is_sign = name.startswith(unspaced)
            assert bool(data.SIGN.match(sign)) == is_sign, name
            counts[is_sign] += 1
    assert min(counts.values()) > 1000


@pytest.mark.parametrize("code", [
    0xAD, 0x61C, 0x180E, 0x200E, 0x200F, 0x202A, 0x202E, 0x2060, 0x206F, 0xFE00, 0xFE0F, 0xFEFF,
    0xE0100, 0xE01EF,
])  # fmt: skip
def test_what_nobody_sees_is_left_out(data, code):
    assert data.in_one_code(f"a{chr(code)}b") == "ab"
    assert data.words(f"a{chr(code)}b") == ["ab"]


def test_accents_and_vowel_signs_are_no_words(data):
    for i in range(0x300, 0x1F000, 7):
        if unicodedata.category(chr(i))[0] == "M":
            assert len(data.words(f"b{chr(i)}b")) == 1, hex(i)


def test_labels_that_differ_in_case_spaces_or_code_are_the_same(data):
    assert data.plain("  Very \n GOOD ") == "very good"
    assert data.plain("ＡＢ\u200bSTRASSE") == data.plain("ab straße") == "ab strasse"
    assert data.plain_name(" A\u200b ") == "A"
    assert data.plain_name("Ａ b") == "A b"
