"""The programs that record what the pages show: each number they keep, and what they pass on."""

from __future__ import annotations

import argparse
import base64
import json
import sys
import types
import zlib

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import nn


@pytest.fixture
def scaling(example):
    return example("record_scaling")


# record_scaling, its text and its model


def test_the_text_is_in_an_order_by_chance_and_a_twentieth_is_held_out(
    scaling, monkeypatch, tmp_path
):
    (tmp_path / "deep").mkdir()
    texts = {f"{'deep/' * (i % 2)}{i}.py": f"<{i}>".encode() for i in range(45)}
    for i in range(3):  # not in ASCII
        texts[f"other{i}.py"] = "é".encode()
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text)
    monkeypatch.setattr(scaling.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    monkeypatch.setattr(scaling, "standard_library", lambda: [tmp_path / name for name in texts])
    order = sorted(texts, key=lambda name: zlib.crc32(name.encode()))
    kept = [texts[name] for name in order if texts[name].isascii()]
    learned, held_out = scaling.python_text()
    assert held_out.tobytes() == b"".join(kept[:2])
    assert learned.tobytes() == b"".join(kept[2:])
    assert learned.dtype == held_out.dtype == np.uint8


def test_the_model_of_bytes_is_a_small_llama(scaling):
    model = scaling.new_model(24, 3, 1)
    wanted = {
        "model_type": "llama", "vocab_size": 128, "hidden_size": 24, "num_hidden_layers": 1,
        "num_attention_heads": 3, "intermediate_size": 64, "max_position_embeddings": 128,
        "tie_word_embeddings": True,
    }  # fmt: skip
    assert {name: model.config[name] for name in wanted} == wanted
    assert scaling.new_model(24, 3).config["num_hidden_layers"] == 2
    assert scaling.parameters_of(nn.Linear(3, 5)) == 20
    assert (scaling.CONTEXT, scaling.BATCH) == (128, 8)


def test_a_window_has_128_ids_and_the_id_after_each(scaling):
    ids, after = scaling.windows(np.arange(300).astype(np.uint16), np.array([3, 171]))
    assert ids.tolist() == [[*range(3, 131)], [*range(171, 299)]]
    assert after.tolist() == [[*range(4, 132)], [*range(172, 300)]]
    assert ids.dtype == after.dtype == np.int64


def test_the_bits_are_those_of_pieces_at_equal_distances(scaling, monkeypatch):
    """The last one ends with the text."""
    text, asked = np.arange(1000), []

    def loss_of(model, ids, targets):
        assert not ta.is_grad_enabled()
        assert (targets == ids + 1).all()
        asked.append((model, ids[:, 0].tolist()))
        return ta.tensor(float(len(asked)))

    monkeypatch.setattr(scaling, "loss_of", loss_of)
    assert scaling.bits_of("model", text) == pytest.approx(4.5 / np.log(2))
    starts = np.linspace(0, 871, 256).astype(int)
    assert asked == [("model", part.tolist()) for part in starts.reshape(8, 32)]
    asked.clear()
    assert scaling.bits_of("model", text, 64) == pytest.approx(1.5 / np.log(2))
    assert [starts[-1] for _, starts in asked][-1] == 871


def test_the_loss_is_the_mean_over_all_ids(scaling):
    scores = np.random.default_rng(0).normal(size=(2, 3, 5))
    targets = np.array([[0, 4, 2], [1, 1, 3]])
    found = scaling.loss_of(lambda ids: ta.tensor(scores)[ids], np.array([1, 0]), targets)
    shares = np.exp(scores[::-1]) / np.exp(scores[::-1]).sum(-1, keepdims=True)
    right = np.take_along_axis(shares, targets[:, :, None], -1)
    assert found.item() == pytest.approx(-np.log(right).mean())


# record_scaling, its training


class Recorded(nn.Module):
    """A model with one number; each id gets the scores of that number and of 127 zeros."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(np.full(1, 3.0, np.float32))
        self.asked = []

    def forward(self, ids):
        self.asked.append(ids)
        return ta.cat([self.w, ta.zeros(127)]) + ta.zeros(*ids.shape, 128)


def test_a_step_learns_from_eight_windows_of_the_text(scaling, monkeypatch):
    text, clipped, rates = (np.arange(150) % 128).astype(np.uint8), [], []
    clipped_at = []
    clip = scaling.optim.clip_grad_norm_

    def clip_grad_norm_(parameters, most):
        (w,) = parameters = list(parameters)
        clipped.append((w.grad.item(), most))
        clipped_at.append(w.item())
        rates.append(trained.optimizer.lr)
        return clip(parameters, most)

    monkeypatch.setattr(scaling.optim, "clip_grad_norm_", clip_grad_norm_)
    clock = iter([5.0, 7.0, 10.0, 14.0, *range(200)])
    monkeypatch.setattr(scaling.time, "process_time", lambda: next(clock))
    model = Recorded()
    trained = scaling.Trained(model, text, 0.25)
    optimizer = trained.optimizer
    assert type(optimizer) is scaling.optim.AdamW
    assert (optimizer.betas, optimizer.weight_decay) == ((0.9, 0.98), 0.1)
    before = model.w.item()
    trained.step()
    trained.step()
    assert trained.seconds == [2.0, 4.0]
    assert clipped_at[0] == before != clipped_at[1] != model.w.item()  # clipped, then changed
    rng = np.random.default_rng(0)
    for ids in model.asked:
        starts = rng.integers(150 - 128, size=8)
        np.testing.assert_array_equal(ids, (starts[:, None] + np.arange(128)) % 128)
    # The gradient of one step alone, because that of the step before is gone.
    assert [most for _, most in clipped] == [1.0, 1.0]
    assert abs(clipped[1][0] - clipped[0][0]) < 0.1 * abs(clipped[0][0])
    for _ in range(52):
        trained.step()
    assert rates == pytest.approx([0.25 * min(1, i / 50) for i in range(1, 55)])


def test_a_law_is_a_line_of_logarithms(scaling):
    sizes = [10, 40, 90, 1000]
    slope, constant = scaling.line_through(sizes, [8.0 * x**-0.25 for x in sizes])
    assert slope == pytest.approx(-0.25)
    assert constant == pytest.approx(np.log(8))
    curve = [[100, 5.0], [1000, 3.0], [10_000, 2.0]]
    for tokens, bits in ((100, 5.0), (10**2.5, 4.0), (1000, 3.0), (10**3.5, 2.5), (10**5, 2.0)):
        assert scaling.bits_at(curve, tokens) == pytest.approx(bits)


def test_a_size_is_predicted_from_the_last_four(scaling):
    """At equal tokens, where each has its law; another one is left out, these count."""
    sizes, off = [10, 20, 50, 100, 400], np.array([99, 1.1, 1, 0.9, 1])
    runs = [
        {"parameters": x, "curve": [[10, 9 * y * x**-0.5], [1000, 7 * y * x**-0.5]]}
        for x, y in zip(sizes, off, strict=True)
    ]
    slope, constant = np.polyfit(np.log(sizes[1:]), np.log(off[1:]) - np.log(sizes[1:]) / 2, 1)
    for tokens, factor in ((10, 9), (100, 8), (1000, 7)):
        right = factor * np.exp(constant) * 2500**slope
        assert scaling.predicted(runs, 2500, tokens) == pytest.approx(right)


@pytest.mark.parametrize(("seconds", "steps"), [
    (0.5, [16]), (16, [16]), (17, [16, 17]), (23, [16, 23]), (50, [16, 23, 32, 45, 50]),
    (64, [16, 23, 32, 45, 64]),
])  # fmt: skip
def test_a_training_ends_with_its_time_and_is_measured_on_the_way(
    scaling, monkeypatch, seconds, steps
):
    measured = []

    class Trained:
        model = "model"

        def __init__(self):
            self.seconds = []

        def median(self):
            return 1.0

        def step(self):
            self.seconds.append(1.0)

    def bits_of(*given):
        measured.append(given)
        return 1.23456

    trained = Trained()
    monkeypatch.setattr(scaling, "bits_of", bits_of)
    curve = scaling.learned(trained, "held out", seconds)
    assert curve == [[1024 * step, 1.2346] for step in steps]
    assert measured == [("model", "held out")] * len(steps)
    assert len(trained.seconds) == steps[-1]


@pytest.mark.parametrize(("sample", "text", "copied"), [
    (b"abcdef", b"xxcdexxab", b"cde"), (b"abab", b"abab", b"abab"), (b"xyz", b"abc", b""),
    (b"ab", b"ba", b"a"), (b"zabzabc", b"abcab", b"abc"), (b"", b"a", b""), (b"ab", b"", b""),
])  # fmt: skip
def test_the_longest_copied_piece(scaling, sample, text, copied):
    assert scaling.longest_copied(sample, text) == copied


def test_a_model_writes_at_five_temperatures(scaling, monkeypatch):
    """Each from the same seed; what cannot be shown is a question mark."""
    asked = []

    def generate(*given, **options):
        asked.append((given, options, ta.rand(1).item()))
        return ta.tensor([[*b"    def f\x07\n\tx"]])

    monkeypatch.setattr(scaling, "generate", generate)
    model = types.SimpleNamespace(next_scores=lambda: "scores")
    found = scaling.written(model, np.frombuffer(b"a def f\x07b", np.uint8))
    ways = [(0.0, None), (0.5, None), (1.0, 0.9), (1.0, None), (1.5, None)]
    text = "    def f?\n?x"
    assert found == [{"temperature": t, "top_p": p, "copied": 7, "text": text} for t, p in ways]
    ta.manual_seed(1)
    first = ta.rand(1).item()
    prompt = [[*b"    def "]]
    assert asked == [(("scores", prompt, 300, None, -1, t), {"top_p": p}, first) for t, p in ways]


def test_five_sizes_are_recorded_and_the_last_is_predicted(scaling, monkeypatch, capsys, tmp_path):
    """Each learns from the same seed, the wider more slowly; the best of them writes."""
    made, seeds, predicted, learned, written, threads = [], [], [], [], [], []
    sizes = {28: 1000, 48: 2000, 88: 4000, 160: 8000, 280: 16000}
    bits = {28: 4.0, 48: 3.5, 88: 3.0, 160: 2.0, 280: 2.5}

    class Trained:
        def __init__(self, model, text, rate):
            self.width, self.seconds = model[0], []
            made.append((model, text, rate))

        def step(self):
            self.seconds.append(0.5)

        def median(self):
            return 0.001234567 * self.width

    def new_model(*given):
        seeds.append(ta.rand(1).item())
        return given

    def learned_(trained, held_out, seconds):
        learned.append((trained.width, len(trained.seconds), held_out, seconds))
        return [[100, 9.0], [12_345, bits[trained.width]]]

    def predicted_(runs, size, tokens):
        predicted.append(([run["width"] for run in runs], size, tokens))
        return 2.34567

    def written_(*given):
        written.append(given)
        return [{"text": "x"}]

    for name, other in {
        "Trained": Trained, "new_model": new_model, "learned": learned_, "written": written_,
        "predicted": predicted_, "python_text": lambda: ("text", "held out"),
        "parameters_of": lambda model: sizes[model[0]],
    }.items():  # fmt: skip
        monkeypatch.setattr(scaling, name, other)
    monkeypatch.setattr(scaling.ta, "set_num_threads", threads.append)
    out = tmp_path / "some" / "law.json"
    monkeypatch.setattr(sys, "argv", ["record_scaling.py", "--seconds", "7", "--out", str(out)])
    scaling.main()
    heads = {28: 2, 48: 2, 88: 4, 160: 4, 280: 4}
    assert made == [((w, heads[w]), "text", pytest.approx(0.25 / w)) for w in sizes]
    ta.manual_seed(0)
    assert seeds == [ta.rand(1).item()] * 5
    assert threads == [1]
    assert learned == [(w, 16 if w == 280 else 0, "held out", 7.0) for w in sizes]
    tokens = int(7 / (0.001234567 * 280)) * 1024
    assert predicted == [([28, 48, 88, 160], 16000, tokens)]
    assert written == [((160, 4), "text")]
    runs = [
        {"width": w, "heads": heads[w], "parameters": sizes[w],
         "curve": [[100, 9.0], [12_345, bits[w]]], "seconds_a_step": round(0.001234567 * w, 5)}
        for w in sizes
    ]  # fmt: skip
    assert json.loads(out.read_text("utf-8")) == {
        "tokens_a_step": 1024, "runs": runs, "prediction": {"tokens": tokens, "bits": 2.34567},
        "samples": [{"text": "x"}],
    }  # fmt: skip
    lines = [
        f"{sizes[w]:9,} parameters, {1.234567 * w:.1f} ms a step: {bits[w]:.3f} bits a byte after "
        "12,345 bytes"
        for w in sizes
    ]
    lines.insert(4, "predicted for 16,000 parameters: 2.346")
    assert capsys.readouterr().out.splitlines() == lines
    # With less time than 16 steps take, these are done all the same.
    monkeypatch.setattr(sys, "argv", ["a.py", "--seconds", "0.1", "--out", str(out)])
    scaling.main()
    assert predicted[1] == ([28, 48, 88, 160], 16000, 16 * 1024)


def test_a_folder_is_no_name_of_a_recording(scaling, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "argv", ["record_scaling.py", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        scaling.main()
    said = capsys.readouterr().err
    assert said == f"record_scaling.py: {tmp_path} is a folder: name a file with --out\n"


# record_attention


def test_what_a_page_shows_of_a_word_ends_with_the_word(example, monkeypatch):
    program = example("record_attention")
    weights = np.random.default_rng(0).uniform(size=(2, 2, 3, 4, 4))  # layers, B, H, T, T
    layers = [
        types.SimpleNamespace(self_attn=types.SimpleNamespace(attention_weights=ta.tensor(x)))
        for x in weights
    ]
    asked = []

    class Model:
        encoder = types.SimpleNamespace(layers=layers)

        def __call__(self, ids):
            assert not ta.is_grad_enabled()
            asked.append(ids)

    stress = np.array([[1, 0, 2, 9], [0, 2, 1, 0]])
    monkeypatch.setattr(program, "predict", lambda model, words: stress)
    words = argparse.Namespace(ids="ids", lengths=np.array([3, 2]))
    found = program.look(Model(), words)
    assert asked == ["ids"]
    for i, length in enumerate((3, 2)):
        of_word = np.rint(100 * weights[:, i, :, :length, :length]).astype(int)
        assert found[i] == {"stress": stress[i, :length].tolist(), "weights": of_word.tolist()}


def test_parameters_are_kept_as_numbers_of_16_bits(example):
    program, model = example("record_attention"), nn.Linear(3, 2)
    found = program.weights_of(model, 5)
    numbers = np.frombuffer(base64.b64decode(found.pop("float16")), "<f2")
    expected = [*model.weight.numpy().ravel(), *model.bias.numpy()]
    np.testing.assert_array_equal(numbers, np.array(expected, np.float16))
    data = program.stress_data
    assert found == {
        "heads": 5, "longest": 16, "phonemes": data.PHONEMES, "vowels": data.VOWELS,
        "shapes": {"weight": [2, 3], "bias": [2]},
    }  # fmt: skip


def test_words_to_type_are_those_held_out_and_those_that_definitions_use(example, monkeypatch):
    program = example("record_attention")
    entries = {"zebra": ["Z", "AA1"], "dog": ["D", "AA0"], "ox": ["AA2", "ZH"], "elk": ["AE0"],
               "cat": ["B"]}  # fmt: skip
    monkeypatch.setattr(program.stress_data, "read", lambda: entries)
    monkeypatch.setattr(program.stress_data, "in_test", lambda word: word in ("zebra", "cat"))
    definitions = (["an Ox, a DOG", "a cat9 or a gnu"], ["elk"])
    monkeypatch.setattr(program.text_data, "definitions", lambda: definitions)
    found = program.words_to_type()
    vowels = [f"{vowel}{digit}" for vowel in program.stress_data.VOWELS for digit in "012"]
    assert found["symbols"] == vowels + program.stress_data.CONSONANTS
    sign = {symbol: chr(48 + i) for i, symbol in enumerate(found["symbols"])}
    assert found["heldOut"] == f"\ncat {sign['B']}\nzebra {sign['Z']}{sign['AA1']}\n"
    dog, ox = sign["D"] + sign["AA0"], sign["AA2"] + sign["ZH"]
    assert found["training"] == f"\ndog {dog}\nox {ox}\n"


def test_the_recorder_of_attention_keeps_what_was_learned(example, monkeypatch, capsys, tmp_path):
    """The film has a frame at each measurement, the last one of the parameters that are kept."""
    program = example("record_attention")
    data, seeds, calls = program.stress_data, [], []
    entries = {"ox": ["AA1", "K"], "elk": ["EH1", "L", "K"], "dodo": ["D", "OW1", "D", "OW0"]}
    training, test = (data.encode(words, entries) for words in (["ox"], ["elk", "dodo"] * 300))
    shown = data.encode(["dodo", "elk"], entries)
    settings = {**vars(program.SETTINGS), "seed": 3, "out": tmp_path / "a" / "run"}
    settings |= {"steps": 7, "batch_size": 5, "heads": 9}

    class Run:
        def __init__(self, model, args):
            calls.append((model, args.seed))
            self.model, self.losses = self, []

        def half(self):
            calls.append("half")
            return self

        def float(self):
            calls.append("float")

        def train(self, drawn, loss, held_out):
            calls.append((drawn, loss("rows")))
            self.losses += [1.23456]
            assert held_out().item() == 0.123456
            self.losses += [0.98765]
            held_out()

    def loss_of(model, words, rows):
        if words is training:
            return ("learned", rows)
        assert words is test
        assert rows.tolist() == np.random.default_rng(3).permutation(600)[:500].tolist()
        loss = 0.123456 if "half" not in calls else 0.5
        return ta.tensor(loss, dtype=np.float64), 1.0, 1

    def look(model, words):
        assert words is shown
        return [{"stress": [i], "half": "half" in calls} for i in range(2)]

    def tagger(args):
        seeds.append(ta.rand(1).item())
        return ("tagger", args.batch_size)

    def predict(model, words):
        assert words is test
        return "guess"

    for name, other in {
        "SETTINGS": argparse.Namespace(**settings), "STATIC": tmp_path, "WORDS": ["dodo", "elk"],
        "FILM": "elk", "Run": Run, "StressTagger": tagger, "loss_of": loss_of, "look": look,
        "batches": lambda *given: given, "predict": predict,
        "weights_of": lambda model, heads: {"w": heads}, "words_to_type": lambda: {"x": 1},
    }.items():  # fmt: skip
        monkeypatch.setattr(program, name, other)
    monkeypatch.setattr(data, "load", lambda: (training, test))
    monkeypatch.setattr(data, "encode_words", lambda words: shown)
    monkeypatch.setattr(data, "score", lambda guess, targets: (0.912345, 0.8123456))
    monkeypatch.setattr(sys, "argv", ["record_attention.py"])
    program.main()
    ta.manual_seed(3)
    assert seeds == [ta.rand(1).item()]
    assert calls == [
        (("tagger", 5), 3), ((training.lengths, 5, 3), ("learned", "rows")), "half", "float",
    ]  # fmt: skip
    assert (tmp_path / "a" / "run").is_dir()
    frames = [
        {"step": 1, "loss": 0.1235, "stress": [1], "half": False},
        {"step": 2, "loss": 0.5, "stress": [1], "half": True},
    ]
    words = [
        {"word": "dodo", "phonemes": ["D", "OW", "D", "OW"], "truth": [-100, 1, -100, 0],
         "stress": [0], "half": True},
        {"word": "elk", "phonemes": ["EH", "L", "K"], "truth": [1, -100, -100], "stress": [1],
         "half": True},
    ]  # fmt: skip
    record = {
        "steps": 7, "vowels_right": 0.9123, "words_right": 0.8123, "losses": [1.235, 0.988],
        "words": words, "film": {"word": "elk", "frames": frames},
    }  # fmt: skip
    text = json.dumps(record, separators=(",", ":")) + "\n"
    by = "written by examples/record_attention.py"
    made = {
        "encoder_attention.json": text,
        "encoder_weights.js": f"// Parameters of an encoder, {by}\n"
        'const encoderWeights = {"w":9};\n',
        "encoder_words.js": f'// {program.DICTIONARY}, {by}\nconst encoderWords = {{"x":1}};\n',
    }
    assert {name: (tmp_path / name).read_text("utf-8") for name in made} == made
    lines = [f"{name}: {(tmp_path / name).stat().st_size:,} bytes" for name in made]
    assert capsys.readouterr().out.splitlines() == [*lines, "91.2% of vowels, 81.2% of words right"]
