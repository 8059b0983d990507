"""Train a small Transformer encoder on texts of your own, and ask it.

The file is a CSV file, as Excel writes it, in any script. Its first line names the columns; one of
them has the texts, one their labels. If they are called text and label, or if there are no others,
--text and --label can be left out. Without a file it learns from 4,800 definitions of WordNet what
kind of thing each one defines.

  python examples/classify_texts.py
  python examples/classify_texts.py FILE.csv
  python examples/classify_texts.py FILE.csv --text COLUMN --label COLUMN
  python examples/classify_texts.py FILE.csv --text COLUMN --label COLUMN --separator ";"
  python examples/classify_texts.py --predict "a small portable timepiece"

Of ten texts of each label, it learns from eight. The loss on the ninth says when to stop (early
stopping). The tenth is for the test: nothing is chosen by it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import programs
import text_data
from programs import at_least_one, complaints, number_in, size
from text_data import PAD, UNKNOWN, Texts, Vocabulary, read_csv, tokens, words

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn, optim, viz
from tinyattn.training import TrainingLoop, atomic_write, pad_sequence
from tinyattn.training.loop import stop_signals

with programs.needs("scikit-learn"):
    from scipy.stats import binomtest
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from tqdm import tqdm

SIZES = ("d_model", "heads", "layers", "dropout", "longest")
PATIENCE = 5  # epochs without a lower validation loss, after which the training ends
STEPS = 60  # of an epoch, at least; so the batches of a small file are small
SMOOTHING = 0.1  # of the labels, so that the model is not sure of what it has learned by heart
# The rate of the vectors of words, divided by that of the layers. With equal rates the layers would
# learn a small file by heart before the vectors have learned much.
FASTER = 70.0
FORGOTTEN = 0.05  # of the words are made unknown in training, so that this id is learned too
DRAWN = 40  # words of a text that are drawn: 256 would be a picture of 160 million points
SETTINGS, WEIGHTS = "classifier.json", "model.safetensors"


class TextClassifier(nn.Module):
    """Word ids (B, T), padded, to the scores of the labels (B, C)."""

    def __init__(self, vocabulary: Vocabulary, labels: list[str], sizes: dict[str, Any]) -> None:
        super().__init__()
        self.vocabulary, self.labels, self.sizes = vocabulary, labels, sizes
        d_model, dropout = sizes["d_model"], sizes["dropout"]
        self.embedding = nn.Embedding(len(vocabulary), d_model, padding_idx=PAD)
        self.positions = nn.PositionalEncoding(d_model, dropout, max_len=sizes["longest"])
        attention = nn.MultiHeadedAttention(sizes["heads"], d_model, dropout)
        feed_forward = nn.PositionwiseFeedForward(d_model, 2 * d_model, dropout)
        layer = nn.EncoderLayer(d_model, attention, feed_forward, dropout)
        self.encoder = nn.Encoder(layer, sizes["layers"], skip_padding=True)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(d_model, len(labels))

    def forward(self, ids: ta.Tensor) -> ta.Tensor:
        lengths = (ids != PAD).sum(1)
        x = self.positions(self.embedding(ids))  # (B, T, D)
        x = self.encoder(x, valid_lens=lengths)
        return self.output(self.dropout(F.masked_mean(x, valid_lens=lengths)))

    def ids_of(self, texts: list[str]) -> ta.Tensor:
        """(B, T), as long as the longest of these texts."""
        rows = [self.vocabulary.encode(text, self.sizes["longest"]) for text in texts]
        return pad_sequence([ta.tensor(row) for row in rows], batch_first=True, padding_value=PAD)

    @ta.no_grad()
    def scores(self, texts: list[str]) -> np.ndarray:
        """(N, C), in batches of texts that are about equally long."""
        self.eval()
        found = np.zeros((len(texts), len(self.labels)), np.float32)
        order = np.argsort([len(text) for text in texts], kind="stable")
        for rows in np.array_split(order, 1 + len(texts) // 128):
            found[rows] = self(self.ids_of([texts[i] for i in rows])).numpy()
        return found

    def save(self, folder: Path) -> None:
        """The old files stay until the new ones are written, because neither is of use alone."""
        folder.mkdir(parents=True, exist_ok=True)
        target, _ = atomic_write.target_of(folder / WEIGHTS)  # an error if it may not be replaced
        new = target.with_name(f"new_{WEIGHTS}")
        about = {"labels": self.labels, "sizes": self.sizes, "vocabulary": self.vocabulary.names}
        text = json.dumps(about, ensure_ascii=False, indent=1)
        try:
            ta.save(self.state_dict(), new)
            atomic_write.write_atomically(folder / SETTINGS, [text.encode() + b"\n"])
            new.replace(target)
        finally:
            new.unlink(missing_ok=True)

    @classmethod
    def load(cls, folder: Path) -> TextClassifier:
        if not (folder / WEIGHTS).exists():
            raise FileNotFoundError(f"{folder} has no trained classifier yet: train one first")
        with programs.reading(folder / SETTINGS):
            about = json.loads((folder / SETTINGS).read_text("utf-8"))
            model = cls(Vocabulary(about["vocabulary"]), about["labels"], about["sizes"])
            model.load_state_dict(ta.load(folder / WEIGHTS))
        return model.eval()


# Training


def epoch(lengths: list[int], size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """The rows of each batch, all texts once. Those of a batch are about equally long, so that
    little of it is padding."""
    rough = np.argsort(np.array(lengths) + rng.uniform(0, 4, len(lengths)), kind="stable")
    batches = np.array_split(rough, -(-len(rough) // size))
    for i in rng.permutation(len(batches)):
        yield batches[i]


def loss_on(model: TextClassifier, part: Texts) -> float:
    return F.cross_entropy(ta.tensor(model.scores(part.texts)), part.labels).item()


def accuracy(model: TextClassifier, part: Texts) -> float:
    return float((model.scores(part.texts).argmax(1) == part.labels).mean())


def train(
    model: TextClassifier, learn: Texts, validation: Texts, args: argparse.Namespace,
    faster: float = 1.0,
) -> tuple[list[float], list[list[float]]]:  # fmt: skip
    """The loss of each step, and (step, loss) on the validation texts after each epoch.

    faster: how many times the learning rate args.lr the vectors of words have.
    The model ends with the weights of its lowest validation loss. Ctrl-C ends the training after
    a step; KeyboardInterrupt if no epoch is whole yet.
    """
    rng = np.random.default_rng(args.seed)
    vectors, *others = model.parameters()
    groups = [{"params": [vectors], "lr": faster * args.lr}, {"params": others}]
    optimizer = optim.AdamW(groups, args.lr, weight_decay=0.1)
    total = args.epochs * -(-len(learn.texts) // args.batch_size)
    schedule = optim.CosineSchedule(optimizer, total, min(100, total // 10))
    loop = TrainingLoop("", {"model": model})  # which keeps the best model, and saves nothing here
    lengths = [len(tokens(text)) for text in learn.texts]
    with stop_signals() as stop, tqdm(total=total, unit="step") as bar:
        for _ in range(args.epochs):
            model.train()
            for rows in epoch(lengths, args.batch_size, rng):
                if stop.is_set():
                    break
                ids = model.ids_of([learn.texts[i] for i in rows])
                forgotten = (rng.random(ids.shape) < FORGOTTEN) & (ids.numpy() != PAD)
                scores = model(ids.masked_fill(forgotten, UNKNOWN))
                loss = F.cross_entropy(scores, learn.labels[rows], label_smoothing=SMOOTHING)
                optimizer.zero_grad()
                loss.backward()
                optim.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                loop.losses.append(loss.item())
                bar.set_postfix_str(f"loss {np.mean(loop.losses[-50:]):.3f}", refresh=False)
                bar.update()
            else:  # only a whole epoch has a validation loss
                loop.measured(loss_on(model, validation))
            if stop.is_set() or loop.since_best >= PATIENCE:
                break
    if not loop.held_out:
        programs.stop(len(loop.losses), total, "nothing is saved, because no epoch is whole")
    if loop.best is None or not any(np.isfinite(loss) for _, loss in loop.held_out):
        raise ValueError(f"the loss is not finite, so nothing was learned: lower --lr {args.lr}")
    model.load_state_dict(loop.best)
    return loop.losses, loop.held_out


def by_words(learn: Texts, test: Texts) -> float:
    """The accuracy of a logistic regression on counts of words: a baseline."""
    options: dict[str, Any] = {"tokenizer": words, "token_pattern": None, "lowercase": False}
    vectorizer = TfidfVectorizer(sublinear_tf=True, **options)
    baseline = make_pipeline(vectorizer, LogisticRegression(C=10.0, max_iter=1000))
    return float(baseline.fit(learn.texts, learn.labels).score(test.texts, test.labels))


def error_bar(right: float, number: int) -> str:
    """What an accuracy on `number` texts says about all texts of their kind, in words."""
    low, high = binomtest(round(right * number), number).proportion_ci(0.95, method="wilson")
    # Rounded to whole percents they would promise too much: "at least 100%".
    at_ends = {0.0: f"at most {-(-100 * high // 1):.0f}%", 1.0: f"at least {int(100 * low)}%"}
    bounds = at_ends.get(right, f"between {low:.0%} and {high:.0%}")
    return f", and of all such texts, with 95 % probability, {bounds}"


# Answers


def looked_at(model: TextClassifier, text: str) -> tuple[list[str], np.ndarray]:
    """The words of a text, and the weights of the last layer, (H, T, T)."""
    model.scores([text])
    weights = model.encoder.layers[-1].self_attn.attention_weights.numpy()[0]
    known, shown = model.vocabulary.ids, []
    for word in tokens(text)[: weights.shape[-1]]:
        short = word if len(word) <= 30 else word[:29] + "…"  # a longer one would fill the picture
        shown.append(short if word in known else f"({short})")
    return shown, weights


def answer(model: TextClassifier, texts: list[str], out: Path) -> None:
    """Print the three likeliest labels of each text; draw what the heads look at in the last."""
    probabilities = F.softmax(ta.tensor(model.scores(texts)), -1).numpy()
    looks = [looked_at(model, text) for text in texts]
    for text, row, (shown, weights) in zip(texts, probabilities, looks, strict=True):
        likeliest = np.argsort(-row)[:3]
        print(f"{text}\n  " + ", ".join(f"{model.labels[i]} {row[i]:.1%}" for i in likeliest))
        if not any(word in model.vocabulary.ids for word in words(text)):
            print("  a guess: no word of this text is in the vocabulary")
        received = weights.mean(axis=(0, 1))  # over heads and over the words that look
        # In quotes, because a comma or a quote may be a word too.
        most = ", ".join(f"{shown[i]!r} {received[i]:.2f}" for i in np.argsort(-received)[:5])
        print(f"  most looked at: {most}")
    shown, weights = looks[-1]
    shown, weights = shown[:DRAWN], weights[:, :DRAWN, :DRAWN]
    titles = [f"head {head}" for head in range(1, len(weights) + 1)]
    figure = viz.show_heatmaps(weights[None], titles=titles, xticks=shown, yticks=shown)
    programs.save_picture(figure, out / "attention.png")
    print(f"\nwords in brackets are not in its vocabulary; {out / 'attention.png'} has what the "
          f"heads look at in the last text, of its first {DRAWN} words")  # fmt: skip


# The program


def separator(text: str) -> str:
    if len(text) != 1 or text in '"\r\n':
        raise argparse.ArgumentTypeError(f'must be one sign, as ";", and no quote, got {text!r}')
    return text


def with_words(text: str) -> str:
    if not words(text):
        raise argparse.ArgumentTypeError(f"a text must have words, got {text!r}")
    return text


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("file", nargs="?", type=Path, metavar="FILE.csv")
    add("--text", metavar="COLUMN", help="the column of the texts (text, or one of two)")
    add("--label", metavar="COLUMN", help="the column of the labels (label, or one of two)")
    add("--separator", type=separator, metavar="SIGN", help="between columns (as in line 1)")
    add("--encoding", metavar="NAME", help="of the file, such as gb18030 (UTF-8)")
    add("--predict", type=with_words, nargs="+", metavar="TEXT", help="ask the classifier in --out")
    add("--out", type=Path, default=Path("runs/texts"), metavar="FOLDER", help="(%(default)s)")
    add("--overwrite", action="store_true", help="replace the classifier in --out")
    add("--epochs", type=at_least_one, default=30, metavar="N", help="at most (%(default)s)")
    add("--short", action="store_const", dest="epochs", const=1, help="the same as --epochs 1")
    whole: dict[str, Any] = {"type": size, "metavar": "N"}
    add("--batch-size", help="texts in a batch (64; of a small file fewer)", **whole)
    add("--d-model", default=96, help="width (%(default)s)", **whole)
    add("--heads", default=4, help="attention heads in a layer (%(default)s)", **whole)
    add("--layers", default=2, help="encoder layers (%(default)s)", **whole)
    add("--longest", default=256, help="words of a text that are read (%(default)s)", **whole)
    add("--lr", type=number_in(0, 10), help="highest, of the layers (0.0003; small batches: lower)")
    add("--dropout", type=float, default=0.4, metavar="P", help="(%(default)s)")
    add("--seed", type=int, default=0, help="of everything random (%(default)s)")
    args = parser.parse_args()
    of_a_file = args.text or args.label or args.separator or args.encoding
    if args.predict and (args.file or of_a_file):
        parser.error("--predict asks the classifier in --out: leave out the file, --text, --label "
                     "and --separator, and --encoding, or learn without --predict")  # fmt: skip
    if of_a_file and args.file is None:
        parser.error("--text, --label, --separator and --encoding are of a file: name it first")
    return args


def read(args: argparse.Namespace) -> tuple[list[str], list[str]]:
    """The texts, and the label of each."""
    texts, names = text_data.definitions()
    if args.file is not None:
        texts, names = read_csv(args.file, args.text, args.label, args.separator, args.encoding)
    text_data.check_labels(names)
    programs.refuse_others(args.out / SETTINGS, (WEIGHTS, "config.json", "checkpoint.safetensors"))
    programs.refuse_lost(args.out / WEIGHTS, args.overwrite, "a classifier")
    return texts, names


def introduce(
    model: TextClassifier, texts: list[str], names: list[str], parts: Sequence[Texts]
) -> None:
    """Print what is learned from what, and what is probably wrong with it."""
    learn, validation, test = (len(part.texts) for part in parts)
    labels, known = model.labels, model.vocabulary
    counts = ", ".join(f"{name} {count:,}" for name, count in Counter(names).most_common(20))
    more = f", and {len(labels) - 20} labels more" if len(labels) > 20 else ""
    print(f"{len(texts):,} texts, {len(labels)} labels: {counts}{more}")
    print(f"{learn:,} to learn from, {validation:,} to choose, {test:,} to test; "
          f"{len(known):,} words, {sum(p.numel() for p in model.parameters()):,} "
          "parameters")  # fmt: skip
    if any(text_data.SIGN.match(name) for name in known.names):
        print("of a script without spaces, such as Chinese, each sign is a word, and each pair too")
    for line in text_data.warnings(texts, names):
        print(line)
    covered = known.covered(parts[-1].texts)
    if covered < 0.9:
        print(f"warning: the vocabulary has {covered:.0%} of the words of the test texts; the "
              "model reads all others as one unknown word: more texts would help")  # fmt: skip


def compare(model: TextClassifier, learn: Texts, test: Texts) -> None:
    """Print the accuracy of the model on the test texts, and that of simpler ways."""
    print(f"{f'on {len(test.texts):,} test texts':<38}{'right':>6}")
    most_frequent = np.bincount(learn.labels).argmax()
    for name, right in {
        "the most frequent label": float((test.labels == most_frequent).mean()),
        "counts of words, logistic regression": by_words(learn, test),
        "encoder": accuracy(model, test),
    }.items():
        print(f"{name:<38}{right:>6.1%}{error_bar(right, len(test.texts))}")


def learn_and_test(args: argparse.Namespace, texts: list[str], names: list[str]) -> None:
    began = time.perf_counter()
    ta.manual_seed(args.seed)
    labels = sorted(set(names))
    numbers = np.array([labels.index(name) for name in names])
    rows = text_data.split(numbers, args.seed)
    learn, validation, test = (Texts([texts[i] for i in part], numbers[part]) for part in rows)
    args.batch_size = args.batch_size or min(64, max(8, len(learn.texts) // STEPS))
    if args.lr is None:
        args.lr = 3e-4 * (args.batch_size / 64) ** 0.5
    sizes = {name: getattr(args, name) for name in SIZES}
    model = TextClassifier(Vocabulary.of(learn.texts), labels, sizes)
    # Now, and not after the training.
    programs.make_folder(args.out, sum(p.numpy().nbytes for p in model.parameters()))
    introduce(model, texts, names, (learn, validation, test))
    losses, measured = train(model, learn, validation, args, FASTER)
    # Again, because another training may have ended there meanwhile.
    programs.refuse_lost(args.out / WEIGHTS, args.overwrite, "a classifier")
    model.save(args.out)
    curves = {"training": losses, "validation": tuple(np.array(measured).T)}
    figure = viz.plot_curves(curves, ylabel="Cross-entropy", smooth=50)
    programs.save_picture(figure, args.out / "loss.png")
    best = min(range(len(measured)), key=lambda i: measured[i][1])
    print(f"the weights are those after epoch {best + 1} of {len(measured)}\n")
    compare(model, learn, test)
    print(f"\n{time.perf_counter() - began:.0f} s; the classifier and loss.png are in {args.out}")
    asked = [sys.argv[0], "--out", str(args.out), "--predict", "a text"]
    print(f"ask it: python {programs.command(asked)}")
    total = args.epochs * -(-len(learn.texts) // args.batch_size)
    if len(losses) < total and len(measured) - 1 - best < PATIENCE:  # by Ctrl-C
        programs.stop(len(losses), total, f"the classifier of the best epoch is in {args.out}")


@complaints()
def main() -> None:
    args = options()
    programs.need_pictures()
    if args.predict:
        answer(TextClassifier.load(args.out), args.predict, args.out)
    else:
        learn_and_test(args, *read(args))


if __name__ == "__main__":
    programs.run(main)
