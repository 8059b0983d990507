"""What the small programs of examples/ learn from, measure, print and draw, with stand-ins for what
takes time."""

from __future__ import annotations

import argparse
import io
import sys
import types
from itertools import islice

import numpy as np
import pytest

import tinyattn as ta

SIZES = {"d_model": 8, "heads": 2, "layers": 2, "dropout": 0.0, "no_positions": False}


class Run:
    """A run that notes what it is called with."""

    def __init__(self, model, **args):
        self.args = argparse.Namespace(**args)
        self.model, self.losses, self.held_out, self.notes = model, [], [], []

    def introduce(self, *given):
        self.notes.append(given)

    def end(self, pictures):
        self.notes.append(pictures)

    def train(self, drawn, loss_of, held_out):
        self.notes.append((drawn, loss_of("batch"), held_out()))


@pytest.fixture
def pictures(monkeypatch, example):
    """What a program draws: the arguments of show_heatmaps, and the files."""
    found = types.SimpleNamespace(shown=[], files=[])
    programs, viz = example("programs"), example("train_encoder").viz
    monkeypatch.setattr(viz, "show_heatmaps", lambda *a, **o: found.shown.append((a, o)) or "fig")
    for program in (programs, example("train_encoder"), example("spell_to_sound")):
        monkeypatch.setattr(program, "save_picture", lambda *given: found.files.append(given))
    return found


# train_encoder

TRAINING = {"soda": "S OW1 D AH0", "lasso": "L AE1 S OW0", "bow": "B OW1"}
TEST = {"sodah": "S OW1 D AH0", "sofa": "S OW1 F AH0", "solo": "S OW1 L OW2"}


def words_of(data, entries, times=1):
    entries = {word: phonemes.split() for word, phonemes in entries.items()}
    return data.encode([*entries] * times, entries)


@pytest.mark.parametrize("blind", [False, True])
def test_the_encoder_is_measured_beside_its_baseline(example, monkeypatch, capsys, tmp_path, blind):
    program = example("train_encoder")
    data, asked = program.stress_data, []
    training, test = words_of(data, TRAINING), words_of(data, TEST, 600)
    shown = words_of(data, {"so": "S OW1"})
    run = Run("model", predict=None, seed=3, batch_size=5, no_positions=blind, out=tmp_path)

    def start(parser, build):
        assert build is program.StressTagger
        return run

    def loss_of(model, words, rows):
        if words is training:
            return (model, rows)
        assert (model, words is test) == ("model", True)
        assert rows.tolist() == np.random.default_rng(3).permutation(1800)[:500].tolist()
        return ("held out", "accuracy")

    def predict(model, words):
        assert (model, words is test) == ("model", True)
        guess = words.targets.copy()
        guess[1::3, 3], guess[2::3, 3] = 1, 0  # the last vowels of sofa and of solo
        return guess

    def encode_words(words):
        asked.append(words)
        return shown

    for name, other in {"start": start, "loss_of": loss_of, "predict": predict,
                        "batches": lambda *given: given}.items():  # fmt: skip
        monkeypatch.setattr(program, name, other)
    monkeypatch.setattr(data, "load", lambda: (training, test))
    monkeypatch.setattr(data, "encode_words", encode_words)
    monkeypatch.setattr(program, "show", lambda *given: print(*given[:1], given[1].words))
    monkeypatch.setattr(program, "draw", lambda *given: run.notes.append(given))
    program.main()
    assert asked == [program.SHOWN]
    assert run.notes == [
        (3, 1800, "words"),
        ("model", shown, tmp_path / "attention_before.png"),
        ((training.lengths, 5, 3), ("model", "batch"), "held out"),
        ("model", shown, tmp_path / "attention.png"),
        "loss.png, attention_before.png, attention.png",
    ]
    lines = [
        ("on held-out words", "vowels right", "words right"),
        ("most frequent stress of each vowel", "83.3%", "66.7%"),
        ("encoder" + (", no positions" if blind else ""), "66.7%", "33.3%"),
        ("the same, 1,200 of new phonemes", "50.0%", "0.0%"),
    ]
    assert capsys.readouterr().out.splitlines() == [
        "", *(f"{name:<36}{vowels:>14}{words:>14}" for name, vowels, words in lines),
        "more baselines: python examples/stress_baselines.py", "", "model ['so']",
    ]  # fmt: skip


def test_an_encoder_that_is_asked_trains_nothing(example, monkeypatch, tmp_path):
    program = example("train_encoder")
    run = Run("model", predict=["so", "no"], out=tmp_path)
    monkeypatch.setattr(program, "start", lambda *_: run)
    monkeypatch.setattr(program.stress_data, "encode_words", lambda words: ("encoded", *words))
    for name in ("show", "draw"):
        monkeypatch.setattr(program, name, lambda *given: run.notes.append(given))
    program.main()
    words = ("encoded", "so", "no")
    assert run.notes == [("model", words), ("model", words, tmp_path / "attention.png")]


@pytest.mark.parametrize("encoding", ["ascii", "UTF-8"])
def test_each_word_gets_its_stress_and_a_verdict(example, monkeypatch, encoding):
    program = example("train_encoder")
    words = words_of(program.stress_data, TEST)
    guess = words.targets.copy()
    guess[1, 1], guess[1, 3] = 0, 1
    monkeypatch.setattr(program, "predict", lambda model, some: guess)
    monkeypatch.setattr(program.stress_data, "in_test", lambda word: word != "solo")
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n")
    monkeypatch.setattr(sys, "stdout", out)
    program.show("model", words)
    out.flush()
    said = out.buffer.getvalue().decode(encoding)
    first, second = ("ˈ", "ˌ") if encoding == "UTF-8" else ("", "")
    one, no, two = ("", "", "") if encoding == "UTF-8" else "102"
    lines = [
        ("sodah", f"S {first}OW{one} D AH{no}", "held out", "right"),
        ("sofa", f"S OW{no} F {first}AH{one}", "held out",
         f"should be S {first}OW{one} F AH{no}"),
        ("solo", f"S {first}OW{one} L {second}OW{two}", "in training", "right"),
    ]  # fmt: skip
    assert said.splitlines() == [f"  {a:<14}  {b:<32}  {c:<11}  {d}" for a, b, c, d in lines]


class Tagger:
    """A model whose scores are those of (id + place) % 3, and which notes what it is given."""

    def __init__(self):
        self.asked, self.training = [], True
        weights = ta.tensor(np.arange(3 * 2 * 4 * 4.0).reshape(3, 2, 4, 4))
        last = types.SimpleNamespace(self_attn=types.SimpleNamespace(attention_weights=weights))
        self.encoder = types.SimpleNamespace(layers=["first", last])
        self.weights = weights

    def eval(self):
        self.training = False
        return self

    def __call__(self, ids):
        assert not self.training
        assert not ta.is_grad_enabled()
        self.asked.append(ids)
        return ta.tensor(np.eye(3)[(ids + np.arange(ids.shape[1])) % 3])


def test_words_are_stressed_by_length_in_parts(example):
    program, model = example("train_encoder"), Tagger()
    rng = np.random.default_rng(0)
    lengths = rng.integers(2, 17, 1100)
    ids = np.where(np.arange(16) < lengths[:, None], rng.integers(1, 40, (1100, 16)), 0)
    words = program.Words([], ids, np.zeros_like(ids), lengths)
    found = program.predict(model, words)
    real = ids != 0
    assert (found[real] == ((ids + np.arange(16)) % 3)[real]).all()
    order = np.argsort(lengths, kind="stable")
    parts = np.array_split(order, 3)
    assert [x.shape for x in model.asked] == [(len(rows), lengths[rows].max()) for rows in parts]


def test_the_last_layer_of_three_words_is_drawn(example, pictures, tmp_path):
    program, model = example("train_encoder"), Tagger()
    entries = {"so": "S OW1", "ado": "AH0 D UW1", "solo": "S OW1 L OW2", "banana": "B AH0 N AE1 N"}
    words = words_of(program.stress_data, entries)
    program.draw(model, words, tmp_path / "a.png")
    (ids,) = model.asked
    np.testing.assert_array_equal(ids, words.ids[:3, :4])
    (((weights,), options),) = pictures.shown
    assert weights is model.weights
    symbols = [["S", "OW"], ["AH", "D", "UW"], ["S", "OW", "L", "OW"]]
    assert options["xticks"] == options["yticks"] == symbols
    assert options["titles"] == [f"{x}, head {h}" for x in ("so", "ado", "solo") for h in (1, 2)]
    seen = options["mask"].numpy().reshape(3, 4)
    assert seen.tolist() == (words.ids[:3, :4] != 0).tolist()
    assert pictures.files == [("fig", tmp_path / "a.png")]


@pytest.mark.parametrize(("number", "size"), [(170, 4), (64, 4), (7, 3), (5, 9)])
def test_batches_of_words_are_those_of_their_seed(example, number, size):
    """Sixteen batches at a time are sorted by length; then all are in an order by chance."""
    lengths = np.random.default_rng(5).integers(2, 17, number)
    drawn = example("train_encoder").batches(lengths, size, 7)
    size, rng = min(size, number), np.random.default_rng(7)
    for _ in range(2):
        rows = rng.permutation(number).tolist()[: number // size * size]
        ordered = []
        for first in range(0, len(rows), 16 * size):
            ordered += sorted(rows[first : first + 16 * size], key=lambda row: lengths[row])
        right = rng.permutation(np.reshape(ordered, (-1, size))).tolist()
        assert [x.tolist() for x in islice(drawn, len(right))] == right


# train_digits


def test_digits_are_those_of_the_first_seed(example):
    program = example("train_digits")
    data, order = program.load_digits(), np.random.default_rng(0).permutation(1797)
    for found, rows in zip(np.split(np.arange(4), 2), (order[360:], order[:360]), strict=True):
        images, digits = (program.load()[i] for i in found)
        np.testing.assert_array_equal(images, data.images[rows] / 16)
        np.testing.assert_array_equal(digits, data.target[rows])


def test_batches_of_digits_are_those_of_their_seed(example):
    images = np.random.default_rng(5).uniform(size=(11, 8, 8)).astype(np.float32)
    drawn = example("train_digits").batches(images, np.arange(11) % 3, 4, 7)
    rng = np.random.default_rng(7)
    for _ in range(2):
        order = rng.permutation(11)
        for first in (0, 4):
            rows = order[first : first + 4]
            some, digits = next(drawn)
            noise = rng.normal(0, 0.2, (4, 8, 8)).astype(np.float32)
            np.testing.assert_array_equal(some, images[rows] + noise)
            assert digits.tolist() == (rows % 3).tolist()


def test_a_vision_transformer_takes_the_largest_value_of_each_feature(example):
    program = example("train_digits")
    ta.manual_seed(0)
    model = program.VisionTransformer(argparse.Namespace(**SIZES | {"d_model": 64})).eval()
    assert model.positions.weight.numpy().std() == pytest.approx(0.3, rel=0.05)
    images = ta.rand(3, 8, 8)
    patches = program.patches(images)
    x = model.encoder(model.embedding(patches) + model.positions.weight[:16])
    right = model.output(ta.tensor(x.detach().numpy().max(1)))
    np.testing.assert_allclose(model(images).detach().numpy(), right.detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("blind", [False, True])
def test_digits_are_read_beside_a_logistic_regression(
    example, monkeypatch, capsys, tmp_path, blind
):
    program, asked = example("train_digits"), []
    rng = np.random.default_rng(0)
    images, held_out = (rng.uniform(size=(n, 8, 8)).astype(np.float32) for n in (6, 8))
    digits, theirs = np.arange(6), np.array([9, 2, 6, 2, 4, 4, 6, 1])
    weights = rng.uniform(size=(8, 2, 16, 16))
    layer = types.SimpleNamespace(
        self_attn=types.SimpleNamespace(attention_weights=ta.tensor(weights))
    )

    class Model:
        encoder = types.SimpleNamespace(layers=["first", layer])
        training = True

        def eval(self):
            self.training = False
            return self

        def __call__(self, pixels):
            if pixels.shape[0] == 2:
                return ta.tensor(np.eye(10)[[3, 5]])
            asked.append((self.training, ta.is_grad_enabled()))
            np.testing.assert_array_equal(pixels.numpy(), held_out)
            guess = theirs.copy()
            guess[1], guess[4], guess[7] = 7, 8, 0
            return ta.tensor(np.eye(10)[guess])

    class Linear:
        def __init__(self, **options):
            asked.append(options)

        def fit(self, x, y):
            np.testing.assert_array_equal(x, images.reshape(6, 64))
            assert y is digits
            return self

        def predict(self, x):
            np.testing.assert_array_equal(x, held_out.reshape(8, 64))
            return np.array([9, 2, 6, 2, 4, 4, 6, 0])

    class OwnRun(Run):
        def train(self, drawn, loss_of, held_out):
            loss, right, number = loss_of((np.ones((2, 8, 8), np.float32), np.array([3, 6])))
            shares = np.log(9 + np.e) - np.array([1, 0])
            assert loss.item() == pytest.approx(shares.mean())
            self.notes.append((drawn, right, number))
            measured = np.log(9 + np.e) - 5 / 8
            assert held_out().item() == pytest.approx(measured)

    model = Model()
    run = OwnRun(model, seed=3, batch_size=5, no_positions=blind, out=tmp_path, device="cpu")

    def start(parser, build):
        assert build is program.VisionTransformer
        return run

    for name, other in {
        "start": start, "TEST": 8, "load": lambda: (images, digits, held_out, theirs),
        "LogisticRegression": Linear, "batches": lambda *given: given,
        "draw": lambda *given: run.notes.append(given),
    }.items():  # fmt: skip
        monkeypatch.setattr(program, name, other)
    program.main()
    assert asked == [(True, True), (False, False), {"max_iter": 1000}]
    introduced, learned, drawn, ended = run.notes
    assert introduced == (6, 8, "images")
    assert learned == ((images, digits, 5, 3), 0.5, 2)
    np.testing.assert_array_equal(drawn[0], weights.astype(drawn[0].dtype)[[1, 4, 2]])
    np.testing.assert_array_equal(drawn[1], held_out[[1, 4, 2]])
    names = ["a 2, read as 7", "a 4, read as 8", "a 6, read as 6"]
    assert drawn[2:] == (names, tmp_path / "attention.png")
    assert ended == "loss.png, attention.png"
    lines = [
        ("on held-out images", "right", "wrong"),
        ("logistic regression", "87.5%", "1"),
        ("encoder" + (", no positions" if blind else ""), "62.5%", "3"),
    ]
    said = capsys.readouterr().out.splitlines()
    assert said == ["", *(f"{name:<28}{right:>8}{wrong:>8}" for name, right, wrong in lines)]


def test_the_picture_of_digits_says_what_it_shows(example, pictures, tmp_path):
    program = example("train_digits")
    weights, images = np.ones((2, 3, 16, 16)), np.zeros((2, 8, 8))
    program.draw(weights, images, ["a", "b"], tmp_path / "a.png")
    (((panels, *others), options),) = pictures.shown
    assert panels.shape == (2, 4, 8, 8)
    heads = ["head 1", "head 2", "head 3"]
    assert others == ["", "", ["a", *heads, "b", *heads]]
    zlabel = "pixel, or weight divided by the largest of its head"
    assert options == {"xticks": [], "yticks": [], "figsize": (10, 6.3), "zlabel": zlabel}
    assert pictures.files == [("fig", tmp_path / "a.png")]


# attention_by_hand


def rows(numbers):
    return " ".join(f"{number:7.3f}" for number in np.ravel(numbers))


def test_attention_by_hand_prints_each_step(example, monkeypatch, capsys):
    """The numbers are those of NumPy, forward and backward."""
    program = example("attention_by_hand")
    keys, values = np.array(program.KEYS), np.array(program.VALUES)
    grad, lines, ends = np.array(program.GRAD), [f"keys   {program.KEYS}"], []
    lines.append(f"values {program.VALUES}")
    for sample, (query, valid) in enumerate(zip(program.QUERIES, program.VALID_LENS, strict=True)):
        scores, mask = keys @ query / np.sqrt(2), np.arange(6) < valid
        powers = np.where(mask, np.exp(scores), 0)
        weights = powers / powers.sum()
        output, dweights = weights @ values, values @ grad
        dscores = weights * (dweights - weights @ dweights)
        dquery = dscores @ keys / np.sqrt(2)
        lines += [
            "", f"sample {sample}: query {query}, the first {valid} of 6 keys are visible",
            f"  scores    q k / sqrt(2)              {rows(scores)}",
            f"  mask      key < {valid}                    {rows(mask.astype(float))}",
            f"  softmax   exp / sum(exp)             {rows(weights)}",
            f"  output    weights V                  {rows(output)}",
            f"  grad      of a loss, chosen          {rows(grad)}",
            f"  dweights  V grad                     {rows(dweights)}",
            f"  mean      weights dweights           {rows(weights @ dweights)}",
            f"  dscores   weights (dweights - mean)  {rows(dscores)}",
            f"  dquery    dscores K / sqrt(2)        {rows(dquery)}",
        ]  # fmt: skip
        ends += [
            f"  sample {sample}: weights {rows(weights)}",
            f"            output {rows(output)}   dquery {rows(dquery)}",
        ]
        if not sample:
            one_call = f"  nn.DotProductAttention, the same in one call: {rows(output)}"
    monkeypatch.setattr(sys, "argv", ["attention_by_hand.py"])
    program.main()
    ta.manual_seed(0)
    wide, additive = ta.randn(2, 1, 20), program.nn.AdditiveAttention(2, 20, 8)
    both = ta.tensor(np.stack([keys, keys]), dtype=np.float32)
    sums = additive.W_q(wide).unsqueeze(2) + additive.W_k(both).unsqueeze(1)
    scores = additive.w_v(sums.tanh()).squeeze(-1).detach().numpy()
    powers = np.exp(scores) * (np.arange(6) < np.array([[[3]], [[5]]]))
    random = powers / powers.sum(-1, keepdims=True) @ values
    said = capsys.readouterr().out.replace("-0.000", " 0.000").splitlines()
    assert said == [x.replace("-0.000", " 0.000") for x in [
        *lines, "",
        "tinyattn: queries (2, 1, 2), keys (2, 6, 2), values (2, 6, 2)",
        "  scores (2, 1, 6) -> weights (2, 1, 6) -> output (2, 1, 2)",
        *ends, one_call, "",
        "additive: queries (2, 1, 20), keys (2, 6, 2)",
        "  W_q q (2, 1, 1, 8) + W_k k (2, 1, 6, 8) -> tanh (2, 1, 6, 8)",
        "  scores w_v tanh (2, 1, 6)",
        f"  output of random weights: {rows(random[0])}  and  {rows(random[1])}",
    ]]  # fmt: skip


def test_the_picture_by_hand_has_both_samples(example, pictures, capsys, tmp_path):
    program = example("attention_by_hand")
    program.by_tinyattn(tmp_path / "new" / "a.png")
    (((weights,), options),) = pictures.shown
    scores = np.array(program.QUERIES) @ np.array(program.KEYS).T / np.sqrt(2)
    mask = np.arange(6) < np.array([[3], [5]])
    powers = np.exp(scores) * mask
    np.testing.assert_allclose(weights.numpy()[:, 0], powers / powers.sum(1, keepdims=True),
                               atol=1e-6)  # fmt: skip
    assert options["titles"] == ["sample 0", "sample 1"]
    np.testing.assert_array_equal(options["mask"].numpy().reshape(2, 6), mask)
    assert pictures.files == [("fig", tmp_path / "new" / "a.png")]
    assert (tmp_path / "new").is_dir()
    assert capsys.readouterr().out.endswith(
        f"\n\nthe weights are drawn in {pictures.files[0][1]}\n"
    )
