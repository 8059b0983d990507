"""With what the programs of examples/ learn: the rates of all steps, and the other settings."""

from __future__ import annotations

import argparse
import importlib
import math
from pathlib import Path

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import nn, optim

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch):
    for package in ("tqdm", "matplotlib", "sklearn", "tokenizers"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module


class Seen:
    """Of each step the rate of each group; the other settings, limits of norms, and smoothings."""

    def __init__(self):
        self.rates, self.settings, self.limits, self.smoothings = [], [], [], []


@pytest.fixture
def seen(monkeypatch):
    found, step, clip = Seen(), optim.AdamW.step, optim.clip_grad_norm_
    loss = ta.functional.cross_entropy

    def recorded(self):
        groups = self.param_groups
        found.rates.append([group["lr"] for group in groups])
        found.settings = [(*group["betas"], group["weight_decay"]) for group in groups]
        return step(self)

    def clipped(parameters, most, *more):
        found.limits.append(most)
        return clip(parameters, most, *more)

    def smoothed(*args, **options):
        if ta.is_grad_enabled():
            found.smoothings.append(options.get("label_smoothing", 0.0))
        return loss(*args, **options)

    monkeypatch.setattr(optim.AdamW, "step", recorded)
    monkeypatch.setattr(optim, "clip_grad_norm_", clipped)
    monkeypatch.setattr(ta.functional, "cross_entropy", smoothed)
    return found


def cosine(high, n, total, warmup):
    """The rate of step n, which counts from 1."""
    if n <= warmup:
        return high * n / warmup
    return high * (1 + math.cos(math.pi * (n - warmup) / (total - warmup))) / 2


class Encoder(nn.Module):
    """As much of a SentenceEncoder as fine-tuning needs, with two layers."""

    def __init__(self):
        super().__init__()
        self.word = nn.Embedding(9, 4)
        self.encoder = nn.Module()
        self.encoder.encoder = nn.Module()
        self.encoder.encoder.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def tokenize(self, texts):
        return [[1 + i % 8, 2] for i in range(len(texts))]

    def embed(self, ids, lengths):
        x = self.word(ids).mean(1)
        for layer in self.encoder.encoder.layers:
            x = layer(x)
        return x


def test_fine_tuning_rises_in_a_tenth_of_its_steps_and_falls_to_0(example, seen, monkeypatch):
    program = example("few_shot")
    monkeypatch.setattr(program, "TRAINED", 1)
    classifier = program.Classifier(Encoder(), nn.Linear(4, 3))
    texts = ["a"] * 6
    learn = program.Definitions(texts, texts, np.arange(6) % 3)
    with program.tqdm(disable=True) as bar:
        program.fine_tune(classifier, learn, 0, bar)
    parts = [min((n + 1) / 10, 1 - n / 100) for n in range(100)]
    expected = [[5e-3 * part, 3e-4 * part] for part in parts]
    np.testing.assert_allclose(seen.rates, expected, rtol=1e-6)
    assert seen.limits == [1.0] * 100
    assert seen.settings == [(0.9, 0.999, 0.01)] * 2
    assert set(seen.smoothings) == {0.0}


def test_the_probe_has_one_rate(example, seen, monkeypatch):
    program = example("few_shot")
    monkeypatch.setattr(program, "KINDS", ["a", "b", "c"])
    head = program.probe(np.eye(3, 4, dtype=np.float32), np.arange(3))
    assert seen.rates == [[0.05]] * 200
    assert seen.settings == [(0.9, 0.999, 2.0)]
    assert (seen.limits, set(seen.smoothings)) == ([], {0.0})
    assert head.weight.shape == (3, 4)


def test_a_classifier_learns_on_a_cosine_with_smoothed_labels(example, seen):
    program = example("classify_texts")
    sizes = {"d_model": 8, "heads": 2, "layers": 1, "dropout": 0.0, "longest": 3}
    texts = ["a b", "b"] * 20
    model = program.TextClassifier(program.Vocabulary.of(texts), ["x", "y"], sizes)
    part = program.Texts(texts, np.array([0, 1] * 20))
    args = argparse.Namespace(seed=0, batch_size=2, epochs=2, lr=1e-3)
    program.train(model, part, part, args, 5.0)
    rates = [cosine(1e-3, n, 40, 4) for n in range(1, 41)]
    np.testing.assert_allclose(seen.rates, [[5 * rate, rate] for rate in rates], atol=1e-12)
    assert seen.settings == [(0.9, 0.999, 0.1)] * 2
    assert seen.limits == [1.0] * 40
    assert seen.smoothings[0] == 0.1


@pytest.mark.parametrize(("steps", "warmup"), [(7, 0), (30, 3), (1500, 100)])
def test_a_run_learns_on_a_cosine(example, seen, tmp_path, steps, warmup):
    args = argparse.Namespace(steps=steps, lr=0.01, device="cpu", out=tmp_path)
    run = example("training").Run(nn.Linear(2, 1), args)
    for _ in range(steps):
        run.learn(run.model(ta.ones(1, 2)).square().mean(), 1.0, 1)
    right = [[cosine(0.01, n, steps, warmup)] for n in range(1, steps + 1)]
    np.testing.assert_allclose(seen.rates, right, atol=1e-12)
    assert seen.settings == [(0.9, 0.98, 0.1)]
    assert seen.limits == [1.0] * steps


@pytest.mark.parametrize(("steps", "warmup"), [(4, 1), (30, 3)])
def test_a_language_model_falls_to_a_tenth(example, seen, monkeypatch, tmp_path, steps, warmup):
    program = example("train_language_model")
    (tmp_path / "text.txt").write_text("".join(f"{i} green bottles\n" for i in range(300)))
    options = ["text.txt", "--size", "tiny", "--width", "8", "--layers", "1", "--context", "8",
               "--lr", "0.01", "--weight-decay", "0.3", "--steps", str(steps)]  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["train_language_model.py", *options])
    program.main()
    falls = [0.1 + 0.9 * (1 + math.cos(math.pi * n / steps)) / 2 for n in range(steps)]
    rates = [0.01 * fall * min(1, (n + 1) / warmup) for n, fall in enumerate(falls)]
    np.testing.assert_allclose(seen.rates, [[rate] * 2 for rate in rates], rtol=1e-9)
    assert sorted(seen.settings) == [(0.9, 0.99, 0.0), (0.9, 0.99, 0.3)]
    assert seen.limits == [1.0] * steps
    assert set(seen.smoothings) == {0.0}
