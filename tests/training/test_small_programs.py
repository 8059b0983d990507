"""The data and the parts of the two small examples: the stress of words, and digits."""

from __future__ import annotations

import argparse
import importlib
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import nn

EXAMPLES = Path(__file__).parents[2] / "examples"
SIZES = {"d_model": 8, "heads": 2, "layers": 1, "dropout": 0.0, "no_positions": False}


@pytest.fixture
def example(monkeypatch):
    for package in ("tqdm", "matplotlib", "sklearn"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module


@pytest.fixture
def stress(example):
    return example("stress_data")


# The stress of words

ENTRIES = {"democrat": "D EH1 M AH0 K R AE2 T", "history": "HH IH1 S T ER0 IY0"}
ENTRIES = {word: phonemes.split() for word, phonemes in ENTRIES.items()}


def test_words_become_ids_and_targets_of_their_vowels(stress):
    found = stress.encode([*ENTRIES], ENTRIES)
    assert found.words == ["democrat", "history"]
    assert found.lengths.tolist() == [8, 6]
    for row, phonemes in enumerate(ENTRIES.values()):
        ids = [stress.PHONEMES.index(p.rstrip("012")) for p in phonemes]
        assert found.ids[row].tolist() == ids + [0] * (16 - len(ids))
        right = [int(p[-1]) if p[-1] in "012" else -100 for p in phonemes]
        assert found.targets[row].tolist() == right + [-100] * (16 - len(ids))
    assert (found.ids.dtype, found.targets.dtype) == (np.int64, np.int64)
    # A target is where a vowel is, and vowels are the first phonemes.
    assert ((found.targets >= 0) == ((found.ids > 0) & (found.ids <= 15))).all()


def test_a_held_out_word_may_sound_as_one_to_learn_from(stress):
    """An eighth of the held-out words was learned under another spelling, and nothing said so."""
    train, test = stress.load()
    known = stress.sounds_known(train, test)
    assert (len(known), known.sum()) == (10_498, 1_283)
    entries = stress.read()
    sounds = {tuple(p.rstrip("012") for p in entries[word]) for word in train.words}
    for word, is_known in zip(test.words[:300], known, strict=False):
        assert (tuple(p.rstrip("012") for p in entries[word]) in sounds) == is_known


def test_the_words_are_divided_by_their_first_five_letters(stress):
    train, test = stress.load()
    assert (len(train.words), len(test.words)) == (91_777, 10_498)
    assert not {word[:5] for word in train.words} & {word[:5] for word in test.words}
    assert all(map(stress.in_test, test.words[:500]))
    assert not any(map(stress.in_test, train.words[:500]))
    assert [stress.in_test(f"demo{end}") for end in ("cracy", "crat", "cratic")] == [True] * 3
    for part in (train, test):
        assert ((part.ids != 0).sum(1) == part.lengths).all()
        assert (part.lengths.min(), part.lengths.max()) == (2, 16)


def test_words_are_looked_up_in_the_order_given_and_in_any_case(stress):
    found = stress.encode_words(["History", "DEMOCRAT", "history"])
    assert found.words == ["history", "democrat", "history"]
    assert (found.ids[0] == found.ids[2]).all()
    with pytest.raises(ValueError, match=r"'histori' is not among the words .* close: historic"):
        stress.encode_words(["democrat", "histori"])
    with pytest.raises(ValueError, match=r"'qqqqqq' is not among .* close: none$"):
        stress.encode_words(["qqqqqq"])


def test_phonemes_are_written_with_their_stress(stress):
    ids = stress.encode(["democrat"], ENTRIES).ids[0]
    stresses = np.array([1, 2, 1, 0, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2])  # counts at vowels alone
    assert stress.render(ids, stresses) == "D EH2 M AH0 K R AE1 T"
    assert stress.render(ids, stresses, marks=True) == "D ˌEH M AH K R ˈAE T"
    every = np.arange(len(stress.PHONEMES))
    text = stress.render(every, np.ones_like(every)).split()
    assert text == [f"{p}1" for p in stress.VOWELS] + stress.CONSONANTS


def test_the_score_counts_vowels_and_whole_words(stress):
    targets = np.array([[1, -100, 0, 2], [-100, 1, 0, -100], [-100, -100, 1, 0]])
    right = np.where(targets < 0, 7, targets)  # what stands at consonants counts nothing
    assert stress.score(right, targets) == (1.0, 1.0)
    wrong = right.copy()
    wrong[0, 0] = 2
    assert stress.score(wrong, targets) == (pytest.approx(6 / 7), pytest.approx(2 / 3))
    wrong[0, 2], wrong[2, 3] = 1, 1
    assert stress.score(wrong, targets) == (pytest.approx(4 / 7), pytest.approx(1 / 3))


def test_the_baseline_says_the_most_frequent_stress_of_each_vowel(stress):
    def words(*rows):
        ids, targets = (np.array(x) for x in zip(*rows, strict=True))
        return stress.Words(["x"] * len(ids), ids, targets, (ids != 0).sum(1))

    # Vowels 1 and 2, and consonant 20: vowel 1 is mostly unstressed, vowel 2 mostly secondary.
    train = words(([1, 1, 2], [0, 1, 2]), ([1, 20, 2], [0, -100, 2]), ([2, 2, 0], [1, 2, -100]))
    test = words(([1, 20, 2], [0, -100, 2]), ([1, 2, 0], [1, 2, -100]))
    assert stress.majority_baseline(train, test) == (0.75, 0.5)


def test_batches_of_words_have_every_word_once_and_similar_lengths(example):
    lengths = np.random.default_rng(0).integers(2, 17, 1000)
    drawn = example("train_encoder").batches(lengths, 8, 0)
    first, second = ([*islice(drawn, 125)] for _ in range(2))
    for epoch in (first, second):
        assert sorted(np.concatenate(epoch).tolist()) == list(range(1000))
    assert np.concatenate(first).tolist() != np.concatenate(second).tolist()
    spread = np.mean([np.ptp(lengths[rows]) for rows in first])
    assert spread < 4  # of random batches it is about 11
    again = example("train_encoder").batches(lengths, 8, 0)
    assert np.array_equal(next(again), first[0])
    assert len(next(example("train_encoder").batches(lengths[:5], 8, 0))) == 5


def test_the_loss_of_words_is_that_of_their_vowels(example):
    program = example("train_encoder")
    ta.manual_seed(0)
    model = program.StressTagger(argparse.Namespace(**SIZES))
    words = program.stress_data.encode([*ENTRIES], ENTRIES)
    loss, right, number = program.loss_of(model, words, np.array([1, 0]))
    assert number == 6
    predicted = program.predict(model, words)
    assert right == pytest.approx(program.score(predicted, words.targets)[0])
    assert not model.training  # after `predict`
    logs, losses = model(words.ids).log_softmax(-1).numpy(), []
    for row, column in zip(*np.nonzero(words.targets >= 0), strict=True):
        losses.append(-logs[row, column, words.targets[row, column]])
    assert loss.item() == pytest.approx(np.mean(losses), rel=1e-5)
    assert (predicted[words.ids != 0] == logs.argmax(-1)[words.ids != 0]).all()
    # Padding has no influence.
    np.testing.assert_allclose(model(words.ids[1:, :6]).numpy(), model(words.ids)[1:, :6].numpy(),
                               atol=1e-6)  # fmt: skip


def test_features_are_the_vowel_and_what_is_around_it(example):
    baselines = example("stress_baselines")
    words = baselines.load.__globals__["encode"](["history"], ENTRIES)
    symbols = len(baselines.PHONEMES)
    bag = baselines.bag_features(words).toarray()
    window = baselines.window_features(words, 1).toarray().reshape(3, 3, symbols)
    ids = words.ids[0, :6]
    for row, place in enumerate((1, 4, 5)):
        assert np.flatnonzero(bag[row, :symbols]).tolist() == [ids[place]]
        assert bag[row, symbols:].tolist() == np.bincount(ids, minlength=symbols).tolist()
        around = [0, *ids, 0][place : place + 3]
        assert window[row].argmax(1).tolist() == around
        assert window[row].sum() == 3


def test_a_classifier_is_scored_on_the_vowels_of_the_test(example):
    baselines = example("stress_baselines")
    encode = baselines.load.__globals__["encode"]
    train, test = (encode([word], ENTRIES) for word in ("democrat", "history"))
    asked = []

    class Model:
        def fit(self, features, targets):
            asked.append((features, targets.tolist()))

        def predict(self, features):
            asked.append(features)
            return np.array([1, 0, 2])

    found = baselines.fit_and_score(Model(), lambda words: words.words[0], train, test)
    assert asked == [("democrat", [1, 0, 2]), "history"]
    assert found == (pytest.approx(2 / 3), 0.0)


@pytest.mark.parametrize(("options", "number", "seed", "radii", "network"), [
    ([], 150, 0, [2, 8], False),
    (["--words", "100", "--seed", "7", "--radius", "3", "1", "--mlp"], 100, 7, [3, 1], True),
])  # fmt: skip
def test_the_baselines_learn_from_the_same_words(
    example, monkeypatch, capsys, options, number, seed, radii, network
):
    """All are scored on the whole test; the network has the widest window."""
    program, asked = example("stress_baselines"), []
    encode = program.load.__globals__["encode"]
    entries = {f"{word}{i}": x for i in range(75) for word, x in ENTRIES.items()}
    full, test = encode([*entries], entries), encode(["democrat", "history"] * 600, ENTRIES)

    def fit_and_score(model, features, train, tested):
        assert tested is test
        asked.append((model, getattr(features, "keywords", features), train))
        return 0.1 * len(asked), 0.05 * len(asked)

    def majority(train, tested):
        assert tested is test
        asked.append(train)
        return 0.9, 0.8

    for name, other in {
        "load": lambda: (full, test), "majority_baseline": majority,
        "fit_and_score": fit_and_score, "bag_features": "bag",
        "LogisticRegression": lambda **options: ("linear", options),
        "MLPClassifier": lambda *sizes, **options: ("network", sizes, options),
    }.items():  # fmt: skip
        monkeypatch.setattr(program, name, other)
    clock = iter(np.cumsum([0, 0.25] * 9).tolist())
    monkeypatch.setattr(program.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr("sys.argv", ["stress_baselines.py", *options])
    program.main()
    train, *others = asked
    chosen = np.random.default_rng(seed).permutation(150)[:number]
    assert train.words == [full.words[i] for i in chosen]
    for found, whole in zip(train[1:], full[1:], strict=True):
        np.testing.assert_array_equal(found, whole[chosen])
    linear = ("linear", {"max_iter": 1000})
    ways = [(linear, "bag", "logistic regression, vowel + bag of phonemes")]
    ways += [(linear, {"radius": r}, f"logistic regression, window of +-{r}") for r in radii]
    if network:
        early = {"early_stopping": True, "random_state": 7, "batch_size": 512}
        name = "one hidden layer of 64, window of +-3"
        ways.append((("network", ((64,),), early), {"radius": 3}, name))
    assert [(model, features) for model, features, _ in others] == [way[:2] for way in ways]
    assert all(given is train for *_, given in others)
    rows = [("majority stress of the vowel", "90.0%", "80.0%")]
    for i, (*_, name) in enumerate(ways, 2):
        rows.append((name, f"{0.1 * i:.1%}", f"{0.05 * i:.1%}"))
    assert capsys.readouterr().out.splitlines() == [
        f"train on {number} words, test on 1,200",
        f"{'model':<44}{'vowels':>8}{'words':>8}{'seconds':>9}",
        *(f"{name:<44}{vowels:>8}{words:>8}{'0.2':>9}" for name, vowels, words in rows),
    ]


# Digits


def test_patches_are_squares_of_four_pixels(example):
    image = np.arange(64.0).reshape(1, 8, 8)
    found = example("train_digits").patches(ta.tensor(image)).numpy()
    for row in range(4):
        for column in range(4):
            square = image[0, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
            assert found[0, 4 * row + column].tolist() == square.ravel().tolist()


def test_images_are_divided_into_those_to_learn_from_and_those_held_out(example):
    images, digits, held_out, theirs = example("train_digits").load()
    assert images.shape == (1437, 8, 8)
    assert held_out.shape == (360, 8, 8)
    assert (len(digits), len(theirs)) == (1437, 360)
    assert images.dtype == np.float32
    assert (images.min(), images.max()) == (0, 1)
    assert np.bincount(theirs).min() > 20  # not in the order of the file
    everything = example("train_digits").load_digits()
    digit_of = {image.tobytes(): d for image, d in zip(everything.images, everything.target,
                                                      strict=True)}  # fmt: skip
    for some, right in ((images, digits), (held_out, theirs)):
        assert all(digit_of[(16 * x).astype(float).tobytes()] == d for x, d in
                   zip(some[:50], right[:50], strict=True))  # fmt: skip


def test_batches_of_digits_have_noise_and_every_image_once(example):
    images = np.repeat(np.arange(40, dtype=np.float32), 64).reshape(40, 8, 8)
    drawn = example("train_digits").batches(images, np.arange(40), 8, 0)
    seen = []
    for some, digits in islice(drawn, 5):
        seen += digits.tolist()
        noise = some - images[digits]
        assert noise.std() == pytest.approx(0.2, rel=0.15)
        assert some.dtype == np.float32
    assert sorted(seen) == list(range(40))
    assert len(next(example("train_digits").batches(images[:3], np.arange(3), 8, 0))[1]) == 3


def test_the_picture_has_what_each_patch_receives(example, monkeypatch, tmp_path):
    program, shown = example("train_digits"), []
    monkeypatch.setattr(program.viz, "show_heatmaps", lambda *a, **o: shown.append((a, o)))
    monkeypatch.setattr(program.programs, "save_picture", lambda *a: None)
    weights = np.zeros((1, 2, 16, 16))  # a sample, heads, the patches that look, those looked at
    weights[0, 0, :, 5] = 1
    weights[0, 1, :8, 0], weights[0, 1, 8:, 15] = 1, 0.5
    image = np.random.default_rng(0).uniform(size=(1, 8, 8))
    program.draw(weights, image, ["a 2"], tmp_path / "a.png")
    (((panels, *_), _),) = shown
    assert panels.shape == (1, 3, 8, 8)
    np.testing.assert_array_equal(panels[0, 0], image[0])
    right = np.zeros((8, 8))
    right[2:4, 2:4] = 1  # patch 5 is in the second row and column
    np.testing.assert_allclose(panels[0, 1], right)
    assert panels[0, 2, 0, 0] == 1
    assert panels[0, 2, 7, 7] == 0.5
    assert shown[0][0][3] == ["a 2", "head 1", "head 2"]


@pytest.mark.parametrize(("name", "kind", "x"), [
    ("train_digits", "VisionTransformer", np.random.default_rng(0).uniform(size=(2, 8, 8))),
    ("train_encoder", "StressTagger", np.array([[1, 20, 2, 21], [21, 2, 20, 1]])),
])  # fmt: skip
def test_without_positions_the_order_has_no_influence(example, name, kind, x):
    results = []
    for no_positions in (True, False):
        ta.manual_seed(0)
        args = SimpleNamespace(**SIZES | {"no_positions": no_positions})
        model: nn.Module = getattr(example(name), kind)(args).eval()
        if name == "train_digits":
            turned = x.reshape(2, 4, 2, 4, 2)[:, ::-1, :, ::-1].reshape(2, 8, 8).copy()
            first, second = (model(ta.tensor(i.astype(np.float32))) for i in (x, turned))
        else:
            out = model(x)
            first, second = out[0].flip(0), out[1]
        results.append(np.allclose(first.detach().numpy(), second.detach().numpy(), atol=1e-5))
    assert results == [True, False]
