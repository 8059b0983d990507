"""The parts of the program that trains a language model: what they count, and what they leave."""

from __future__ import annotations

import argparse
import lzma
import math
import types

import numpy as np
import pytest
from test_causal import needs_tokenizers

import tinyattn as ta
from tinyattn import nn

pytestmark = needs_tokenizers


# language_data


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_character_without_a_token_is_named_wherever_the_unknown_one_stands(example, place):
    from tokenizers import Tokenizer, models

    pieces = [("a", -1.0), ("b", -2.0)]
    pieces.insert(place, ("<unk>", 0.0))
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=place))
    assert example("language_data").unknown_in(tokenizer, "abca") == "c"


@pytest.mark.parametrize("sign", ["a", "é", "好"])
def test_xz_reads_the_bytes_before_the_held_out_text_that_it_can_know(example, monkeypatch, sign):
    data, read = example("language_data"), []
    most = data.MOST_READ

    class Compressor:
        def __init__(self, *_, filters):
            assert filters[0]["dict_size"] > most  # so that it remembers all that it reads
            read.append(b"")

        def compress(self, text):
            read[-1] += text
            return b""

        def flush(self):
            return b""

    monkeypatch.setattr(data, "lzma", types.SimpleNamespace(
        LZMACompressor=Compressor, FILTER_LZMA2=lzma.FILTER_LZMA2, FORMAT_XZ=0))  # fmt: skip
    monkeypatch.setattr(data, "MOST_READ", 1000)
    size = len(sign.encode())
    texts = {"training": [f"{i}" + sign * (299 // size) for i in range(9)], "held_out": ["end"]}
    monkeypatch.setattr(data, "pieces", lambda part: ((x, 0, 0) for x in texts[part]))
    data.compressed(types.SimpleNamespace(training="training", held_out="held_out"))
    last = "".join(texts["training"][-4:]).encode()  # 1000 bytes and the rest of a piece
    assert read == [b"end", last + b"end", last]


@pytest.mark.parametrize("kinds", [1, 2, 9])
def test_every_kind_of_key_is_counted(example, kinds):
    """Also the lowest and the highest one; and wanted keys that are between, below and above."""
    keys = np.random.default_rng(kinds).integers(0, kinds, 40).astype(np.uint64) * 2 + 3
    wanted = np.arange(2 * kinds + 5, dtype=np.uint64)
    found, first = example("language_data").counted(keys, wanted)
    assert found.tolist() == [keys.tolist().count(key) for key in wanted.tolist()]
    assert first.tolist() == [keys.tolist().index(key) for key in sorted(set(keys.tolist()))]


# train_language_model


@pytest.fixture
def language(example):
    return example("train_language_model")


def test_a_sample_leaves_random_numbers_and_mode_as_they_were(language):
    class Model:
        training = True
        tokenizer = types.SimpleNamespace(encode=lambda text: types.SimpleNamespace(ids=[1]))
        drawn: list[float]

        def eval(self):
            self.training = False
            return self

        def train(self, mode):
            self.training = mode

        def next_scores(self):
            return None

        def pieces(self, *_):
            assert not self.training
            self.drawn = ta.rand(3).tolist()
            yield "a"

    model = Model()
    args = argparse.Namespace(seed=5, temperature=0.8, top_p=None)
    ta.manual_seed(9)
    right = ta.rand(3).tolist()
    ta.manual_seed(9)
    assert list(language.sampled(model, "x", args, 3)) == ["a"]
    assert ta.rand(3).tolist() == right
    assert model.training
    ta.manual_seed(5)
    assert model.drawn == ta.rand(3).tolist()  # the same whatever was drawn before


@pytest.mark.parametrize(("accumulate", "sizes"), [(1, [5]), (2, [3, 2]), (3, [2, 2, 1])])
def test_parts_of_a_batch_count_by_their_sizes(language, monkeypatch, accumulate, sizes):
    given = []
    model = nn.Linear(1, 1)
    monkeypatch.setattr(language, "loss_of", lambda model, ids, targets: ids.shape)
    trainer = types.SimpleNamespace(
        args=argparse.Namespace(accumulate=accumulate, steps=9, lr=0.1),
        progress=0.5, model=model, optimizer=ta.optim.SGD(model.parameters(), 0.1),
        windows=[(np.zeros((5, 4), int), np.zeros((5, 4), int))], record=given.append,
        parallel=types.SimpleNamespace(accumulate=lambda losses, weights: (
            [loss() for loss in losses], weights)),
    )  # fmt: skip
    model(ta.ones(1, 1)).sum().backward()
    language.Trainer.learn(trainer, 0)
    assert given == [([(size, 4) for size in sizes], [4 * size for size in sizes])]


@pytest.mark.parametrize("number", [20, 21, 33])
def test_a_held_out_loss_counts_every_window_alike(language, monkeypatch, number):
    """Batches have 16 windows at most, and their sizes may differ."""
    batches = []

    def loss_of(model, ids, targets):
        batches.append(len(ids))
        return ta.tensor(float(ids[:, 0].mean()))

    monkeypatch.setattr(language, "loss_of", loss_of)
    model = nn.Linear(1, 1)
    model.config = {"vocab_size": 7}
    ids = np.arange(4 * number + 1) ** 2
    found = language.held_out_loss(model, ids, 4, 10**9)
    assert found == pytest.approx(np.mean(ids[:-1:4]), rel=1e-6)
    assert sum(batches) == number
    assert max(batches) <= 16


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_rivals_count_the_ids_of_the_files(language, monkeypatch, tmp_path, dtype):
    """Of a model with many words the file has numbers of four bytes."""
    ids = [np.array(x, dtype) for x in ([1, 2, 65_000, 3], [4, 5])]
    if dtype == "uint32":
        ids[0][2] = 100_000
    files = [(str(tmp_path / f"{i}.bin"), np.dtype(dtype).str, 8) for i in range(2)]
    for (path, *_), some in zip(files, ids, strict=True):
        some.tofile(path)
    seen = []
    monkeypatch.setattr(language.data, "n_grams", lambda *a: seen.append(a) or [1.0])
    monkeypatch.setattr(language.data, "compressed", lambda parts: {"gzip": 3.0})
    rows = language.rivals(files, 7, 1000, None)
    ((training, held_out, words),) = seen
    assert (training.tolist(), held_out.tolist(), words) == (ids[0].tolist(), ids[1].tolist(), 7)
    bits = 2 / 8 / math.log(2)
    assert rows == [
        ("uniform", math.log(7), pytest.approx(math.log(7) * bits)),
        ("1-grams", 1.0, pytest.approx(bits)),
        ("gzip", None, 3.0),
    ]


@pytest.mark.parametrize("name", ["digest", "tokens", "words", "start"])
def test_each_text_with_its_tokens_has_a_folder_of_its_own(language, tmp_path, name):
    given = {"digest": "a", "tokens": "bpe", "words": 300, "start": None, "out": tmp_path}
    folder = language.folder_of_ids(argparse.Namespace(**given))
    assert folder.parent == tmp_path / "ids"
    assert language.folder_of_ids(argparse.Namespace(**given, seed=5, lora=2)) == folder
    other = given | {name: {"words": 301}.get(name, "b")}
    assert language.folder_of_ids(argparse.Namespace(**other)) != folder


@pytest.mark.parametrize(("is_short", "context", "length", "calls"), [
    (True, 50, 50, [8]), (True, 200, 200, [8]), (False, 201, 200, [25] * 8),
])  # fmt: skip
def test_functions_are_drawn_with_half_the_temperature_from_one_seed(
    language, monkeypatch, capsys, is_short, context, length, calls
):
    drawn = []

    def generate(scores, prompts, *given, **options):
        assert len({tuple(prompt) for prompt in prompts}) == 1
        drawn.append((scores, len(prompts), given, options, ta.rand(1).item()))
        return ta.tensor([[1, 2]] * len(prompts))

    monkeypatch.setattr(language, "generate", generate)
    model = types.SimpleNamespace(
        next_scores=lambda: "scores",
        tokenizer=types.SimpleNamespace(
            encode=lambda text: types.SimpleNamespace(ids=[1, 2]),
            decode=lambda ids: "def f(): pass\n" if ids[-1] == 2 else "def (:\n",
        ),
    )
    args = argparse.Namespace(context=context, short=is_short, seed=3)
    language.functions(model, args, np.array([1, 2, 0, 1, 2, 0]))
    assert [(scores, number) for scores, number, *_ in drawn] == [("scores", n) for n in calls]
    for _, _, given, options, _ in drawn:
        assert (given, options) == ((length,), {"pad": -1, "temperature": 0.5})
    ta.manual_seed(3)
    assert [number for *_, number in drawn] == [ta.rand(1).item() for _ in calls]
    assert capsys.readouterr().out.splitlines() == [
        f"of {sum(calls)} functions it writes Python's parser takes {sum(calls)}",
        "of 2 functions of real ones, cut alike, Python's parser takes 0",
    ]


@pytest.mark.parametrize(("is_short", "steps", "expected"), [
    (True, 8, [0, 4, 8]), (True, 9, [0, 5, 9]), (False, 8, [*range(9)]),
    (False, 40, [*range(0, 41, 4)]), (False, 43, [0, 5, 10, 15, 20, 25, 30, 35, 40, 43]),
])  # fmt: skip
def test_a_held_out_loss_is_measured_at_the_step_where_it_is_due(
    language, monkeypatch, is_short, steps, expected
):
    assert language.MEASURED == 10

    class Trainer(language.Trainer):
        is_stopped = False

        def __init__(self):
            self.args = argparse.Namespace(steps=steps, minutes=None, short=is_short)
            self.losses, self.held_out = [], []

        def steps(self, number, end):
            yield from range(number)
            self.save()

        def learn(self, step):
            self.losses.append(1.0)

        def measure(self):
            self.held_out.append((len(self.losses), 1.0))

        def save(self):
            self.saved = list(self.held_out)

    trainer = Trainer()
    trainer.run()
    assert [step for step, _ in trainer.held_out] == expected
    assert trainer.saved == trainer.held_out


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError("no number"), "no number"),
        (OSError(28, "No space left", "a.bin"), "a.bin: No space left; the best model until now is "
         "in {}"),
    ],
)  # fmt: skip
def test_an_error_of_the_system_says_where_the_best_model_is(
    language, monkeypatch, tmp_path, capsys, error, said
):
    """One without a text of the system keeps its own words."""
    out = tmp_path / "out"

    class Trainer:
        progress = 0.0

        def __init__(self, *_):
            out.mkdir()
            (out / "model.safetensors").touch()

        def run(self):
            raise error

    model, ids = nn.Linear(1, 1), types.SimpleNamespace(ids=[])
    model.config = {"vocab_size": 7, "model_type": "llama"}
    (tmp_path / "a.txt").write_text("some text\n" * 99)
    monkeypatch.setattr(language, "model_and_text", lambda *_: (model, ids, ids))
    monkeypatch.setattr(language, "ladder", lambda *_: [])
    monkeypatch.setattr(language, "Trainer", Trainer)
    monkeypatch.setattr(language, "go_on", lambda *_: None)
    monkeypatch.setattr("sys.argv", ["a.py", str(tmp_path / "a.txt"), "--out", str(out)])
    with pytest.raises(SystemExit, match="2"):
        language.main()
    assert capsys.readouterr().err.splitlines()[-1] == f"a.py: {said.format(out)}"
