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
