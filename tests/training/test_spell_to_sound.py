"""The model of examples/spell_to_sound.py, and what --no-cross-attention takes from it."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

import tinyattn as ta

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = {"d_model": 16, "heads": 2, "layers": 2, "dropout": 0.0, "no_positions": False}


@pytest.fixture(scope="module")
def example():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        patch.setenv("OPENBLAS_NUM_THREADS", "1")  # the example sets it; other tests need it unset
        import spell_to_sound
    return spell_to_sound


def model_of(example, no_cross_attention):
    ta.manual_seed(1)
    return example.SpellToSound(Namespace(**SMALL, no_cross_attention=no_cross_attention)).eval()


@pytest.mark.parametrize("no_cross_attention", [False, True])
def test_padding_behind_the_letters_has_no_influence(example, no_cross_attention):
    model = model_of(example, no_cross_attention)
    pairs = example.sound_data.encode(["nation", "nightingale"])
    short, both = pairs.letters[:1, :6], pairs.letters
    alone = model(short, pairs.sounds[:1], short != example.PAD)
    among = model(both, pairs.sounds, both != example.PAD)
    np.testing.assert_allclose(among[:1].detach().numpy(), alone.detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("no_cross_attention", [False, True])
def test_it_says_the_likeliest_sounds_of_the_whole_model(example, no_cross_attention):
    model = model_of(example, no_cross_attention)
    letters = example.sound_data.encode_letters(["nation", "nightingale", "castle"])
    expected = []
    for word in letters:  # without a cache, without a batch, without padding
        word, ids = word[word != example.PAD], [example.START]
        while len(ids) < example.MAX_LENGTH + 2 and ids[-1] != example.STOP:
            states = model(word[None], np.array([ids]))
            ids.append(int(model.generator(states)[0, -1].argmax()))
        expected.append(example.phonemes_of(ids))
    assert example.say(model, letters, beams=1) == expected
    assert len({tuple(sounds) for sounds in expected}) > 1


def test_without_cross_attention_the_decoder_sees_one_mean_of_all_letters(example):
    whole, mean = model_of(example, False), model_of(example, True)
    for own, other in zip(whole.parameters(), mean.parameters(), strict=True):
        np.testing.assert_array_equal(own.detach().numpy(), other.detach().numpy())
    pairs = example.sound_data.encode(["nation", "nightingale"])
    mask = pairs.letters != example.PAD
    memory = whole.encode(pairs.letters, mask).detach().numpy()
    means = [rows[:n].mean(0) for rows, n in zip(memory, pairs.lengths, strict=True)]
    found = mean.encode(pairs.letters, mask)
    np.testing.assert_allclose(found.detach().numpy()[:, 0], means, atol=1e-5)
    assert found.shape == (2, 1, 16)
    assert (example.cross_attention(mean, pairs.letters[0, :6], pairs.sounds[0, :5]) == 1).all()


def test_a_bias_belongs_to_a_distance_of_letters(example):
    model = model_of(example, False)
    attention = model.encoder.layers[0].self_attn
    x = ta.zeros(1, 5, SMALL["d_model"])  # so that the biases alone are scores
    with ta.no_grad():
        attention.biases[0, example.MAX_LENGTH] = 50.0  # one letter behind
    attention(x, x, x)
    weights = attention.attention_weights[0].numpy()
    np.testing.assert_allclose(weights[0, :4], np.eye(5)[1:], atol=1e-5)
    np.testing.assert_allclose(weights[1], np.full((5, 5), 0.2), atol=1e-5)


def test_without_positions_the_order_of_the_letters_has_no_influence(example):
    settings = {**SMALL, "no_positions": True, "no_cross_attention": False}
    ta.manual_seed(1)
    model = example.SpellToSound(Namespace(**settings)).eval()
    pairs = example.sound_data.encode(["nation"])
    letters, backwards = pairs.letters[:, :6], pairs.letters[:, 5::-1]
    states = [model(some, pairs.sounds).detach().numpy() for some in (letters, backwards)]
    np.testing.assert_allclose(*states, atol=1e-5)


def test_only_an_unfinished_run_is_said_to_go_on(example, tmp_path):
    import training

    for done, goes_on in ((3, True), (5, False)):
        state = {"losses": ta.zeros(done), "settings": {"steps": 5}}
        ta.save(state, tmp_path / "checkpoint.safetensors")
        with pytest.raises(ValueError, match=rf"a run of {done} of 5 steps") as caught:
            training.refuse_lost_run(Namespace(out=tmp_path, overwrite=False))
        assert ("--resume goes on" in str(caught.value)) == goes_on
        training.refuse_lost_run(Namespace(out=tmp_path, overwrite=True))


TINY = ["--d-model", "16", "--heads", "2", "--layers", "1", "--batch-size", "4"]


@pytest.fixture
def call(example, monkeypatch, tmp_path):
    """The program with some options, on every twentieth word."""
    pytest.importorskip("matplotlib").use("Agg")
    pairs = example.sound_data.load()
    few = [example.Pairs(*(column[::20] for column in some)) for some in pairs]
    monkeypatch.setattr(example.sound_data, "load", lambda: few)

    def program(*options):
        monkeypatch.setattr("sys.argv", ["spell.py", "--out", str(tmp_path / "run"), *options])
        example.run_program(example.main)

    return program


def test_a_trial_says_what_it_is_scored_on(example, call, monkeypatch, capsys):
    legends = []
    plot = example.viz.plot_curves
    monkeypatch.setattr(
        example.viz, "plot_curves", lambda *a, **k: legends.extend(a[0]) or plot(*a, **k)
    )
    call("--steps", "2", *TINY)
    trial, scoring, _, head, *_ = capsys.readouterr().out.splitlines()[1:]
    assert trial == "a trial: scored on 11 of 525 words, rules from 92"
    assert scoring == "scoring 11 words, greedy and with 4 beams ..."
    assert head.startswith("on held-out words")
    assert legends == ["training, with label smoothing", "held out"]


@pytest.mark.parametrize("options", [["--heads", "5"], ["--dropout", "1.5"]])
def test_a_refused_option_leaves_no_folder(call, tmp_path, options):
    with pytest.raises(SystemExit, match="2"):
        call(*options)
    assert not list(tmp_path.iterdir())


def test_resume_and_overwrite_exclude_each_other(call, capsys):
    with pytest.raises(SystemExit, match="2"):
        call("--resume", "--overwrite")
    assert "not allowed with argument" in capsys.readouterr().err


def test_ctrl_c_while_scoring_prints_the_command_to_go_on(
    example, call, monkeypatch, tmp_path, capsys
):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(example, "say", interrupt)
    with pytest.raises(SystemExit, match="130"):
        call("--overwrite", "--steps", "2", *TINY)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"  python spell.py --out {tmp_path / 'run'} --steps 2 {' '.join(TINY)} --resume"


def test_an_option_is_not_abbreviated(call, capsys):
    with pytest.raises(SystemExit, match="2"):
        call("--overw", "--steps", "2", *TINY)
    assert "unrecognized arguments: --overw" in capsys.readouterr().err


def test_the_pictures_hatch_what_is_no_letter_or_no_sound(example, monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    said = {"nation": ["N", "EY", "SH", "AH", "N"], "so": ["S", "OW"]}
    monkeypatch.setattr(example, "say", lambda *_: list(said.values()))
    figures, show = [], example.viz.show_heatmaps

    def keep(*arguments, **options):
        figures.append((arguments, show(*arguments, **options)))
        return figures[-1][1]

    monkeypatch.setattr(example.viz, "show_heatmaps", keep)
    example.draw(model_of(example, False), list(said), tmp_path / "said.png")
    (arguments, figure) = figures[0]
    mask = arguments[6]
    assert mask.shape == arguments[0].shape == (1, 2, 6, 6)
    assert mask[0, 0].all()
    assert mask[0, 1, :3, :2].all()
    assert mask.sum() == 36 + 6
    np.testing.assert_allclose(arguments[0].sum(-1)[mask.any(-1)], 1, atol=1e-5)
    assert figure.axes[-1].get_ylabel() == "weight, mean of all layers and heads"


def test_the_list_of_words_says_which_answer_is_first(example, capsys):
    example.show(model_of(example, False), ["nation"])
    assert capsys.readouterr().out.startswith(
        "said with 4 beams, and greedy where that differs:\n  nation  "
    )


# With stand-ins for what takes time

ENTRIES = {"so": "S OW1", "ado": "AH0 D UW1", "box": "B AA1 K S", "elks": "EH1 L K S", "a": "AH0"}
ENTRIES = {word: phonemes.split() for word, phonemes in ENTRIES.items()}


@pytest.fixture
def pairs_of(example, monkeypatch):
    monkeypatch.setattr(example.stress_data, "read", lambda: ENTRIES)
    return example.sound_data.encode


@pytest.fixture
def drawn(example, monkeypatch):
    """The pictures: the arguments of show_heatmaps, and the files."""
    found, files = [], []
    monkeypatch.setattr(
        example.viz, "show_heatmaps", lambda *a, **o: found.append((a, o)) or "figure"
    )
    monkeypatch.setattr(example, "save_picture", lambda *given: files.append(given))
    return found, files


@pytest.mark.parametrize(
    ("steps", "blind", "mean"), [(20, False, False), (21, True, False), (21, False, True)]
)
def test_the_program_trains_measures_and_draws(
    example, pairs_of, monkeypatch, capsys, tmp_path, steps, blind, mean
):
    training, test = pairs_of(["so", "ado", "box"] * 20), pairs_of(["so", "elks", "ado"] * 500)
    monkeypatch.setattr(example, "SHOWN", ["ado", "so"])
    notes, asked = [], []
    model = Namespace(history=ta.zeros(27, 17, 16))
    args = Namespace(predict=None, seed=3, batch_size=5, steps=steps, no_positions=blind,
                     no_cross_attention=mean, device="cpu", out=tmp_path)  # fmt: skip

    class Run:
        def __init__(self):
            self.args, self.model, self.held_out = args, model, []

        def introduce(self, *given):
            notes.append(given)

        def end(self, pictures):
            notes.append(pictures)

        def train(self, drawn, loss, held_out):
            notes.extend([self.curve, drawn, loss("rows")])
            for step in (1.0, 7.0):
                assert held_out() == "loss"
                self.held_out.append([step, 0.0])

    def loss_of(some_model, pairs, rows, *smoothing):
        assert some_model is model
        if pairs is training:
            return (rows, smoothing)
        assert pairs is test
        assert smoothing == ()
        assert rows.tolist() == np.random.default_rng(3).permutation(1500)[:250].tolist()
        return ("loss", 0.5)

    def cross_attention(some_model, letters, sounds):
        assert some_model is model
        asked.append((letters.tolist(), sounds.tolist()))
        return np.full((len(sounds), len(letters)), float(len(asked)))

    def start(parser, build):
        assert build is example.SpellToSound
        return Run()

    rates = iter([(0.5, 0.75), (0.4, 0.65), (0.3, 0.55), (0.2, 0.45)])
    scored = []

    def error_rates(said, pairs):
        scored.append((said, len(pairs.words)))
        return next(rates)

    for name, other in {
        "start": start, "loss_of": loss_of, "cross_attention": cross_attention,
        "batches": lambda lengths, *given: (lengths.tolist(), *given), "error_rates": error_rates,
        "say": lambda some, letters, beams: ("said", len(letters), beams),
        "show": lambda *given: notes.append(given), "draw": lambda *given: notes.append(given),
        "draw_history": lambda *given: notes.append(given),
    }.items():  # fmt: skip
        monkeypatch.setattr(example, name, other)
    data = example.sound_data
    monkeypatch.setattr(data, "load", lambda: (training, test))
    monkeypatch.setattr(data, "align", lambda pairs: ("codes", len(pairs.words)))
    monkeypatch.setattr(data, "say_by_rules", lambda learned, codes, pairs, radius: (
        len(learned.words), codes, len(pairs.words), radius))  # fmt: skip
    example.main()

    rows = [18 * 2 + 4 - 1, 18 * 3 + 5 - 1, 18 * 3 + 6 - 1] * 20
    curve, shown = "training, with label smoothing", ["ado", "so"]
    assert notes[:4] == [(60, 1500, "words"), curve, (rows, 5, 3), ("rows", (0.1,))]
    assert notes[4] == (model, shown)
    assert notes[-1] == "pictures"
    if mean:
        assert len(notes) == 6
        assert not model.history.numpy().any()
        assert asked == []
    else:
        assert notes[5] == (model, shown, tmp_path / "attention.png")
        (some_model, pairs, moments, path) = notes[6]
        assert (some_model, pairs.words, moments) == (model, shown, [1.0, 7.0])
        assert path == tmp_path / "attention_history.png"
        assert len(notes) == 8
        history = np.zeros((27, 17, 16))
        history[0, :4, :3], history[1, :4, :3] = 1, 2
        np.testing.assert_array_equal(model.history.numpy(), history)
        ids = [example.SYMBOLS.index(x) for x in ("AH", "D", "UW")]
        assert asked == [([1, 4, 15], [example.START, *ids])] * 2
    learned, number = (2, 30) if steps == 20 else (60, 1500)
    codes = ("codes", learned)
    ways = [(learned, codes, number, 1), (learned, codes, number, 3), ("said", number, 1),
            ("said", number, 4)]  # fmt: skip
    assert scored == [(way, number) for way in ways]
    lacks = ", no positions" * blind + ", no cross-attention" * mean
    lines = [
        ("on held-out words", "phonemes wrong", "words wrong"),
        ("most frequent sounds beside two letters", "50.0%", "75.0%"),
        ("most frequent sounds beside six letters", "40.0%", "65.0%"),
        (f"encoder and decoder{lacks}, greedy", "30.0%", "55.0%"),
        (f"encoder and decoder{lacks}, 4 beams", "20.0%", "45.0%"),
    ]
    trial = ["a trial: scored on 30 of 1,500 words, rules from 2"] if steps == 20 else []
    assert capsys.readouterr().out.splitlines() == [
        *trial, f"scoring {number:,} words, greedy and with 4 beams ...", "",
        *(f"{name:<50}{phonemes:>16}{words:>14}" for name, phonemes, words in lines), "",
    ]  # fmt: skip


def test_the_loss_is_that_of_the_sounds(example, pairs_of):
    """Padding is left out, also beyond the longest word of the batch; smoothing is an option."""
    pairs, symbols = pairs_of(["so", "elks", "ado"]), len(example.SYMBOLS)
    scores, asked = np.random.default_rng(0).normal(size=(2, 4, symbols)), []

    class Model:
        def __call__(self, letters, sounds, mask):
            asked.extend([letters.tolist(), sounds.tolist(), mask.tolist()])
            return ta.tensor(scores)

        def generator(self, states):
            return states

    rows = np.array([2, 0])
    targets = pairs.sounds[rows, 1:5]
    real = targets != 0
    right_ones = np.s_[[0, 0, 1], [0, 2, 1]]  # 3 of 7, and of 8 with padding
    scores[(*right_ones, targets[right_ones])] += 9
    logs = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    picked = np.take_along_axis(logs, targets[..., None], -1)[..., 0][real]
    for given, smoothing in (((), 0.0), ((0.25,), 0.25)):
        loss, right, number = example.loss_of(Model(), pairs, rows, *given)
        smooth = -(1 - smoothing) * picked.mean() - smoothing * logs.mean(-1)[real].mean()
        assert loss.item() == pytest.approx(smooth)
        assert (right, number) == (3 / 7, 7)
    letters = pairs.letters[rows, :3]
    assert asked[:3] == [letters.tolist(), pairs.sounds[rows, :4].tolist(), (letters > 0).tolist()]


def test_words_are_said_by_length_in_parts(example, monkeypatch):
    """About 500 at a time; each word keeps its answer."""
    rng, asked = np.random.default_rng(0), []
    lengths = rng.integers(1, 17, 1100)
    letters = np.where(np.arange(16) < lengths[:, None], rng.integers(1, 27, (1100, 16)), 0)

    class Model:
        def eval(self):
            asked.append("eval")

        def next_scores(self, some, mask):
            assert (mask == (some != 0)).all()
            return some

    def generate(some, first, *given, **options):
        asked.append((some.shape, given, options))
        assert (first == example.START).all()
        assert first.shape == (len(some), 1)
        sounds = [[example.START, *(1 + row[row > 0]), example.STOP, 5] for row in some]
        return Namespace(tolist=lambda: sounds)

    monkeypatch.setattr(example, "generate", generate)
    said = example.say(Model(), letters, 3)
    assert said == [[example.SYMBOLS[1 + i] for i in row if i] for row in letters.tolist()]
    parts = np.array_split(np.sort(lengths), 3)
    given = (18, example.STOP, example.PAD)
    right = [((len(part), part[-1]), given, {"num_beams": 3}) for part in parts]
    assert asked == ["eval", *right]


def test_attention_is_a_mean_of_all_layers_and_heads(example):
    weights, asked = np.random.default_rng(0).uniform(size=(3, 1, 2, 4, 5)), []

    class Model:
        decoder = Namespace(layers=[Namespace(src_attn=Namespace(attention_weights=ta.tensor(x)))
                                    for x in weights])  # fmt: skip

        def eval(self):
            asked.append("eval")
            return self

        def __call__(self, letters, sounds):
            assert not ta.is_grad_enabled()
            asked.extend([letters.tolist(), sounds.tolist()])

    found = example.cross_attention(Model(), np.arange(5), np.arange(4))
    np.testing.assert_allclose(found, weights.mean((0, 1, 2)), rtol=1e-6)
    assert asked == ["eval", [[0, 1, 2, 3, 4]], [[0, 1, 2, 3]]]


def test_four_words_are_drawn_in_a_square(example, monkeypatch, drawn, tmp_path):
    words = ["so", "ado", "box", "a", "elks"]
    names = [["S", "OW"], ["AH"], ["B", "AA", "K", "S"], ["AH"]]
    asked = []

    def say(model, letters, beams):
        asked.append((letters.tolist(), beams))
        return names

    def cross_attention(model, letters, sounds):
        asked.append((model, letters.tolist(), sounds.tolist()))
        return np.full((len(sounds), len(letters)), len(asked) / 4)

    monkeypatch.setattr(example, "say", say)
    monkeypatch.setattr(example, "cross_attention", cross_attention)
    example.draw("model", words, tmp_path / "a.png")
    letters = example.sound_data.encode_letters(words[:4])
    ids = [[example.START, *map(example.SYMBOLS.index, x)] for x in names]
    calls = zip(words[:4], letters.tolist(), ids, strict=True)
    assert asked == [
        (letters.tolist(), 4), *(("model", row[: len(word)], own) for word, row, own in calls)
    ]  # fmt: skip
    maps = np.zeros((2, 2, 5, 3))
    maps[0, 0, :3, :2], maps[0, 1, :2, :3], maps[1, 0], maps[1, 1, :2, :1] = 0.5, 0.75, 1, 1.25
    (((found, *others, mask), options),), files = drawn
    np.testing.assert_array_equal(found, maps)
    np.testing.assert_array_equal(mask, maps > 0)
    titles, rows = words[:4], [[*x, "<stop>"] for x in names]
    assert others == ["letters", "next sound", titles, [[*word] for word in titles], rows]
    assert options == {"vmax": 1.25, "zlabel": "weight, mean of all layers and heads"}
    assert files == [("figure", tmp_path / "a.png")]


@pytest.mark.parametrize(
    ("number", "chosen"),
    [(1, [0]), (3, [0, 1, 2]), (9, [0, 1, 2, 3, 4, 6, 8]), (27, [0, 1, 2, 3, 6, 10, 16, 26])],
)
def test_the_history_has_up_to_eight_moments_most_of_them_early(
    example, pairs_of, drawn, tmp_path, number, chosen
):
    history = np.random.default_rng(0).uniform(size=(27, 17, 16)) / 4
    steps = [float(1 + 3 * i) for i in range(number)]
    pairs = pairs_of(["ado", "elks"])
    example.draw_history(Namespace(history=ta.tensor(history)), pairs, steps, tmp_path / "a.png")
    (((found, *others), options),), files = drawn
    shape = (2, 4, 4, 3) if len(chosen) == 8 else (len(chosen), 4, 3)
    assert found.shape == shape
    np.testing.assert_allclose(found.reshape(-1, 4, 3), history[chosen, :4, :3], rtol=1e-6)
    titles = [f"step {1 + 3 * i}" for i in chosen]
    sounds = ["AH", "D", "UW", "<stop>"]
    assert others == ["letters", "next sound", titles, ["a", "d", "o"], sounds, None]
    assert options["vmax"] == 0.5
    assert files == [("figure", tmp_path / "a.png")]
