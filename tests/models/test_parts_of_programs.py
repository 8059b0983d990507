"""The parts of the programs of examples/: an option reaches all that it names, and a number that is
printed is what its words say."""

from __future__ import annotations

import argparse
import sys
import types

import numpy as np
import pytest
from test_causal import needs_tokenizers

import tinyattn as ta
from tinyattn import nn

pytestmark = needs_tokenizers

# Models, by their options

SIZES = {"d_model": 24, "heads": 3, "layers": 3, "dropout": 0.25}
MODELS = ["spell_to_sound", "train_encoder", "train_digits", "classify_texts"]


def model_of(example, name, **others):
    program, sizes = example(name), SIZES | {"no_positions": False} | others
    if name == "classify_texts":
        del sizes["no_positions"]
        vocabulary = program.Vocabulary.of(["a b", "a b"])
        return program.TextClassifier(vocabulary, ["x", "y"], sizes | {"longest": 5})
    kinds = {"spell_to_sound": "SpellToSound", "train_encoder": "StressTagger"}
    args = argparse.Namespace(**sizes, no_cross_attention=False)
    return getattr(program, kinds.get(name, "VisionTransformer"))(args)


def inside(model, kind):
    """The modules of a kind, by their names."""
    return {name: module for name, module in model.named_modules() if isinstance(module, kind)}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("layers", "heads", "width"), [(3, 3, 24), (1, 2, 8)])
def test_sizes_are_those_of_the_options_in_all_layers(example, name, layers, heads, width):
    model = model_of(example, name, layers=layers, heads=heads, d_model=width)
    stacks = [x for x in model.modules() if isinstance(x, (nn.Encoder, nn.Decoder))]
    assert [len(x.layers) for x in stacks] == [layers] * (2 if name == "spell_to_sound" else 1)
    attentions = inside(model, nn.MultiHeadedAttention).values()
    assert len(attentions) == layers * (3 if name == "spell_to_sound" else 1)
    assert {x.num_heads for x in attentions} == {heads}
    assert {x.W_q.weight.shape for x in attentions} == {(width, width)}


@pytest.mark.parametrize("name", MODELS)
def test_dropout_is_that_of_the_option_in_all_layers(example, name):
    """Within a layer: in the attention, in the feed-forward network and on both residuals."""
    model = model_of(example, name)
    drops = {x: module.p for x, module in inside(model, nn.Dropout).items() if ".layers." in x}
    assert len(drops) == 3 * (4 + (6 if name == "spell_to_sound" else 0))
    assert set(drops.values()) == {0.25}
    assert {
        x.p for x in model_of(example, name, dropout=0.0).modules() if type(x) is nn.Dropout
    } == {0.0}


@pytest.mark.parametrize(
    ("name", "factor", "activation"),
    [("spell_to_sound", 4, "relu"), ("train_encoder", 2, "relu"), ("train_digits", 2, "gelu")],
)
def test_feed_forward_networks_have_their_width_and_activation(example, name, factor, activation):
    x = ta.randn(2, 24)
    for network in inside(model_of(example, name), nn.PositionwiseFeedForward).values():
        assert network.w_1.weight.shape == (24 * factor, 24)
        right = network.w_2(getattr(ta.functional, activation)(network.w_1(x)))
        np.testing.assert_array_equal(network.eval()(x).detach().numpy(), right.detach().numpy())


@pytest.mark.parametrize("no_positions", [False, True])
def test_the_encoder_of_spellings_knows_distances_unless_it_has_no_positions(example, no_positions):
    program = example("spell_to_sound")
    model = model_of(example, "spell_to_sound", no_positions=no_positions)
    near = {name for name, _ in inside(model, program.AttentionByDistance).items()}
    assert near == (
        {f"encoder.layers.{i}.self_attn" for i in range(3)} if not no_positions else set()
    )
    assert len(inside(model, nn.PositionalEncoding)) == (0 if no_positions else 2)


def test_models_of_the_scaling_law_have_the_parameters_of_their_widths(example):
    """The inner width is 8/3 of the width, to a multiple of 4."""
    program = example("record_scaling")
    found = {
        width: program.new_model(width, heads).config["intermediate_size"]
        for width, heads in program.WIDTHS.items()
    }
    assert found == {28: 76, 48: 128, 88: 236, 160: 428, 280: 748}


def test_the_time_of_a_step_is_a_median_without_the_first_five(example):
    program = example("record_scaling")
    trained = program.Trained(nn.Linear(1, 1), np.zeros(1), 0.1)
    trained.seconds = [60.0] * 5 + [1.0, 2.0, 90.0]
    assert trained.median() == 2.0


# Simpler ways, by their settings


@pytest.fixture
def made(monkeypatch, example):
    """A function of a program and the names of classes in it: what they are made with."""

    def watched(program, *names):
        found = []
        for name in names:
            kind = getattr(program, name)

            def make(*args, kind=kind, **options):
                found.append((kind.__name__, args, options))
                return kind(*args, **options)

            monkeypatch.setattr(program, name, make)
        return found

    return watched


def test_few_shot_counts_words_in_logarithms(example, made):
    program = example("few_shot")
    found = made(program, "LogisticRegression", "TfidfVectorizer")
    some = program.Definitions(["x", "y"], ["a cat", "a dog"], np.arange(2))
    program.by_words(some, some)
    assert found == [
        ("LogisticRegression", (), {"C": 100.0, "max_iter": 1000}),
        ("TfidfVectorizer", (), {"sublinear_tf": True}),
    ]


def test_the_baseline_of_a_classifier_has_the_words_of_its_vocabulary(example, made):
    program = example("classify_texts")
    found = made(program, "LogisticRegression", "TfidfVectorizer")
    some = program.Texts(["a cat", "a dog"], np.arange(2))
    program.by_words(some, some)
    words = {"tokenizer": program.words, "token_pattern": None, "lowercase": False}
    assert found == [
        ("TfidfVectorizer", (), {"sublinear_tf": True, **words}),
        ("LogisticRegression", (), {"C": 10.0, "max_iter": 1000}),
    ]


def test_windows_of_phonemes_reach_equally_far_to_both_sides(example):
    program = example("stress_baselines")
    words = program.Words(["x"], np.array([[1, 2, 3, 4]]), np.array([[-100, 1, -100, -100]]),
                          np.array([4]))  # fmt: skip
    for radius, around in ((0, [2]), (1, [1, 2, 3]), (2, [0, 1, 2, 3, 4])):
        found = program.window_features(words, radius).toarray().reshape(len(around), -1)
        assert found.argmax(1).tolist() == around
        assert found.sum() == len(around)


# few_shot, ask_stdlib, chat


def test_definitions_of_the_test_become_points(example, monkeypatch, tmp_path):
    program, asked, given = example("few_shot"), [], []

    class Encoder:
        def encode(self, texts):
            asked.append(texts)
            return np.arange(len(texts))

    def train(labels, seed, test, points, bar):
        given.append((test.texts, points.tolist()))
        raise ValueError("enough")

    monkeypatch.setattr(program, "model", Encoder)
    monkeypatch.setattr(program, "train", train)
    monkeypatch.setattr(program, "TEST", 1)
    monkeypatch.setattr(sys, "argv", ["few_shot.py", "--short", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        program.main()
    test = program.held_out(False)
    assert test.texts != test.words
    assert asked == [test.texts]
    assert given == [(test.texts, list(range(12)))]


@pytest.mark.parametrize("evaluate", [False, True])
def test_a_question_is_answered_beside_an_evaluation(example, monkeypatch, capsys, evaluate):
    program = example("ask_stdlib")

    class Encoder:
        def encode(self, texts):
            return np.ones((len(texts), 1))

    points = np.array([[0.2], [0.9], [0.5]])
    index = (["a.b", "a.c", "a.d"], ["b: B", "c: C", "d: D"], points, np.zeros(3))
    monkeypatch.setattr(program, "model", lambda then: Encoder())
    monkeypatch.setattr(program, "read_index", lambda path: index)
    monkeypatch.setattr(program, "QUESTIONS", [("x", {"a.d"})])
    monkeypatch.setattr(sys, "argv", ["ask_stdlib.py", *["--evaluate"] * evaluate, "a word"])
    program.main()
    lines = capsys.readouterr().out.splitlines()
    rows = ["by meaning   hit@5 1 of 1, MRR 0.50", "BM25         hit@5 1 of 1, MRR 0.33"]
    assert lines[: 2 * evaluate] == rows * evaluate
    assert lines[2 * evaluate :][:4] == ["0.900  a.c", "       C", "0.500  a.d", "       D"]


@pytest.mark.parametrize("prompt", [None, "", "Hello"])
def test_a_prompt_is_one_question_and_none_begins_a_conversation(example, monkeypatch, prompt):
    """An empty prompt, as of a variable of a shell that is not set, does not wait for input."""
    program, asked, typed = example("chat"), [], []

    class Chat:
        dropped = 0

        def ask(self, text):
            asked.append(text)

    def read(_):
        typed.append(_)
        raise EOFError

    monkeypatch.setattr("builtins.input", read)
    monkeypatch.setattr(program, "loaded", lambda options: types.SimpleNamespace(
        chat=lambda **options: Chat(), tokenizer=None))  # fmt: skip
    monkeypatch.setattr(program, "show", lambda pieces, tokenizer: None)
    monkeypatch.setattr(example("language_data"), "readable", lambda tokenizer, text: text)
    program.main([] if prompt is None else [prompt])
    assert asked == ([] if prompt is None else [prompt])
    assert len(typed) == (1 if prompt is None else 0)


# text_data


@pytest.mark.parametrize("number", [4, 5, 6, 9])
def test_of_many_labels_five_are_named(example, number):
    data = example("text_data")
    groups = [f"{sign}x" for sign in "abcdefghi"[:number]]
    (line,) = data.warnings([f"text {i}" for i in range(2 * number)],
                            [*groups, *map(str.upper, groups)])  # fmt: skip
    named = "; ".join(f"'{x.upper()}', '{x}'" for x in groups[:5])
    assert line.endswith(f": {named}{'; ...' if number > 5 else ''}")
    with pytest.raises(ValueError, match="texts, because") as caught:
        data.check_labels(groups + ["many"] * data.LEAST)
    named = ", ".join(f"'{x}' 1" for x in groups[:5])
    assert f"({named}{', ...' if number > 5 else ''}): leave" in str(caught.value)


@pytest.mark.parametrize(("line", "number"), [("c", 1), ("c,d,e", 3), ("c,d,e,f", 4)])
@pytest.mark.parametrize("named", [("said", "kind"), ("said", None), (None, "kind"), (None, None)])
def test_a_line_with_other_columns_is_named_whatever_columns_are_given(
    example, tmp_path, line, number, named
):
    path = tmp_path / "some.csv"
    path.write_text(f"said,kind\na,b\n{line}\n")
    with pytest.raises(ValueError, match=f"line 3: it has {number} columns and the first line 2"):
        example("text_data").read_csv(path, *named)


# spell_to_sound


def test_each_word_is_said_to_be_right_or_what_it_should_be(example, monkeypatch, capsys):
    program = example("spell_to_sound")
    entries = {"cat": ["K", "AE1", "T"], "dog": ["D", "AO1", "G"], "fox": ["F", "AA1"]}
    monkeypatch.setattr(program.stress_data, "read", lambda: entries)
    monkeypatch.setattr(program.stress_data, "in_test", lambda word: word == "dog")
    said = {1: ["K AE T", "D AO", "F", "Z"], program.BEAMS: ["K AE T", "D AO", "F AA", "Z Z"]}
    monkeypatch.setattr(program, "say", lambda model, letters, beams: [x.split() for x in
                                                                      said[beams]])  # fmt: skip
    program.show(None, ["cat", "dog", "fox", "zz"])
    assert [line.split("  ", 1)[1] for line in capsys.readouterr().out.splitlines()[1:]] == [
        f"cat             {'K AE T':<32}  in training  right",
        f"dog             {'D AO':<32}  held out     should be D AO G",
        f"fox             {'F AA':<32}  in training  right  greedy: F",
        f"zz              {'Z Z':<32}  unknown        greedy: Z",
    ]
    said[1][3] = "Z Z"
    program.show(None, ["cat", "dog", "fox", "zz"])
    assert capsys.readouterr().out.endswith(f"  zz              {'Z Z':<32}  unknown\n")


def test_words_to_say_may_have_capital_letters(example, monkeypatch, tmp_path):
    program, asked = example("spell_to_sound"), []
    args = argparse.Namespace(predict=["Hello", "WORLD"], no_cross_attention=False, out=tmp_path)
    run = types.SimpleNamespace(args=args, model=None)
    monkeypatch.setattr(program, "start", lambda parser, build: run)
    monkeypatch.setattr(program, "show", lambda model, words: asked.append(words))
    monkeypatch.setattr(program, "draw", lambda model, words, path: asked.append(words))
    program.main()
    assert asked == [["hello", "world"]] * 2


@pytest.mark.parametrize(("highest", "darkest"), [(0.3, 0.5), (0.5, 0.5), (0.8, 0.8)])
def test_the_darkest_color_is_the_highest_weight_or_a_half(
    example, monkeypatch, tmp_path, highest, darkest
):
    program, shown = example("spell_to_sound"), []
    monkeypatch.setattr(program.viz, "show_heatmaps", lambda *a, **o: shown.append(o["vmax"]))
    monkeypatch.setattr(program, "save_picture", lambda figure, path: None)
    program.heatmaps(tmp_path, np.array([[[[0.1, highest]]]]), [], [], [])
    assert shown == [darkest]


# The runs of training.py


@pytest.mark.parametrize("name", ["seed", "dropout", "lr", "steps", "layers", "no_positions"])
def test_a_run_goes_on_with_its_own_options_alone(example, monkeypatch, tmp_path, name):
    """Another value is refused, also 0; the same one is taken."""
    training = example("training")
    parser = training.argument_parser("", short=2, steps=3, batch_size=4, lr=0.1, dropout=0.5,
                                      d_model=8, heads=2, layers=1, out=tmp_path)  # fmt: skip
    old = {"steps": 3, "batch_size": 4, "lr": 0.2, "dropout": 0.5, "seed": 7, "d_model": 8,
           "heads": 2, "layers": 1, "no_positions": False}  # fmt: skip
    ta.save({"settings": old}, tmp_path / "checkpoint.safetensors")
    option = f"--{name.replace('_', '-')}"
    others = {"seed": ["0", "8"], "dropout": ["0", "0.1"], "lr": ["0", "0.1"], "steps": ["5"],
              "layers": ["2"], "no_positions": [None]}[name]  # fmt: skip
    for other in others:
        given = [option] if other is None else [option, other]
        monkeypatch.setattr(sys, "argv", ["a.py", "--resume", *given])
        with pytest.raises(ValueError, match=f"has {name}={old[name]}, which cannot become"):
            training.resumed(parser, tmp_path)
    same = [] if name == "no_positions" else [option, str(old[name])]
    monkeypatch.setattr(sys, "argv", ["a.py", "--resume", *same])
    args, state = training.resumed(parser, tmp_path)
    assert {key: getattr(args, key) for key in old} == state["settings"] == old


@pytest.mark.parametrize("losses", [[], [1.0, 0.9]])
def test_the_picture_before_a_training_is_not_drawn_when_it_goes_on(
    example, monkeypatch, tmp_path, losses
):
    program, drawn = example("train_encoder"), []
    words = program.stress_data.encode(["so"], {"so": ["S", "OW1"]})
    args = argparse.Namespace(predict=None, seed=0, batch_size=1, no_positions=False, out=tmp_path)
    run = types.SimpleNamespace(
        args=args, model=None, losses=losses, introduce=lambda *_: None,
        train=lambda *_: drawn.append("training"), end=lambda _: None,
    )  # fmt: skip
    monkeypatch.setattr(program, "start", lambda parser, build: run)
    monkeypatch.setattr(program.stress_data, "load", lambda: (words, words))
    monkeypatch.setattr(program.stress_data, "encode_words", lambda _: words)
    monkeypatch.setattr(program.stress_data, "sounds_known", lambda *_: np.zeros(1, bool))
    monkeypatch.setattr(program, "predict", lambda model, some: some.targets)
    monkeypatch.setattr(program, "show", lambda model, some: None)
    monkeypatch.setattr(program, "draw", lambda model, some, path: drawn.append(path.name))
    program.main()
    before = [] if losses else ["attention_before.png"]
    assert drawn == [*before, "training", "attention.png"]


# classify_texts


def table(number):
    lines = [f"a {word} thing {i},{word[0]}" for i in range(number) for word in ("good", "bad")]
    return "\n".join(["text,label", *lines]) + "\n"


def classify(program, monkeypatch, folder, *options):
    (folder / "some.csv").write_text(table(20))
    given = ["classify_texts.py", str(folder / "some.csv"), "--d-model", "8", "--out",
             str(folder / "out"), *options]  # fmt: skip
    monkeypatch.setattr(sys, "argv", given)
    program.main()


def test_a_vocabulary_is_of_the_texts_to_learn_from(example, monkeypatch, tmp_path):
    program, found = example("classify_texts"), []

    def train(model, learn, *_):
        found.append((model.vocabulary.names, learn.texts))
        raise ValueError("enough")

    monkeypatch.setattr(program, "train", train)
    vocabulary = program.Vocabulary

    class OfOne(vocabulary):  # also words that one text has
        @classmethod
        def of(cls, texts, *_):
            return vocabulary.of([*texts, *texts])

    monkeypatch.setattr(program, "Vocabulary", OfOne)
    with pytest.raises(SystemExit, match="2"):
        classify(program, monkeypatch, tmp_path)
    ((names, texts),) = found
    assert len(texts) == 32
    assert set(names[2:]) == {word for text in texts for word in text.split()}


def test_a_classifier_learns_with_dropout_in_each_epoch(example, monkeypatch):
    program, modes = example("classify_texts"), []
    texts, clip = ["a b", "b"] * 8, program.optim.clip_grad_norm_
    sizes = {"d_model": 8, "heads": 2, "layers": 1, "dropout": 0.1, "longest": 3}
    model = program.TextClassifier(program.Vocabulary.of(texts), ["x", "y"], sizes)

    def clipped(*given):
        modes.append({x.training for x in model.modules()})
        return clip(*given)

    monkeypatch.setattr(program.optim, "clip_grad_norm_", clipped)
    part = program.Texts(texts, np.array([0, 1] * 8))
    args = argparse.Namespace(seed=0, batch_size=8, epochs=3, lr=1e-3)
    program.train(model, part, part, args)
    assert modes == [{True}] * 6


@pytest.mark.parametrize(("size", "steps"), [(5, 4), (8, 2), (15, 2), (16, 1), (99, 1)])
def test_the_rate_of_a_classifier_falls_until_its_last_step(example, made, size, steps):
    """Also if the last batch of an epoch is small, or the only one."""
    program = example("classify_texts")
    found, texts = made(program.optim, "CosineSchedule"), ["a b", "b"] * 8
    sizes = {"d_model": 8, "heads": 2, "layers": 1, "dropout": 0.1, "longest": 3}
    model = program.TextClassifier(program.Vocabulary.of(texts), ["x", "y"], sizes)
    part = program.Texts(texts, np.array([0, 1] * 8))
    args = argparse.Namespace(seed=0, batch_size=size, epochs=3, lr=1e-3)
    losses, _ = program.train(model, part, part, args)
    ((_, (_, total, warmup), _),) = found
    assert (len(losses), total, warmup) == (3 * steps, 3 * steps, 3 * steps // 10)


@pytest.mark.parametrize(("epochs", "measured", "is_stopped"), [
    (30, [2.0, 1.0, 3.0], True),
    (30, [1.0, *[2.0] * 4], True),
    (30, [1.0, *[2.0] * 5], False),
    (3, [2.0, 3.0, 1.0], False),
])  # fmt: skip
def test_only_ctrl_c_stops_a_training(
    example, monkeypatch, tmp_path, capsys, epochs, measured, is_stopped
):
    """Five epochs without a lower loss end it too."""
    program = example("classify_texts")
    assert program.PATIENCE == 5
    pairs = [[4.0 * (i + 1), loss] for i, loss in enumerate(measured)]
    monkeypatch.setattr(program, "train", lambda *_: ([1.0] * (4 * len(pairs)), pairs))
    monkeypatch.setattr(program, "compare", lambda *_: None)
    monkeypatch.setattr(program.programs, "save_picture", lambda *_: None)
    if is_stopped:
        with pytest.raises(SystemExit, match="130"):
            program.programs.run(lambda: classify(program, monkeypatch, tmp_path, "--epochs",
                                                  str(epochs)))  # fmt: skip
    else:
        classify(program, monkeypatch, tmp_path, "--epochs", str(epochs))
    said = capsys.readouterr().out
    best = 1 + int(np.argmin(measured))
    assert f"\nthe weights are those after epoch {best} of {len(measured)}\n" in said
    assert ("stopped after" in said) == is_stopped
