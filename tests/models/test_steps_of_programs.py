"""What programs of examples/ do step by step: which rows they take, with which options, and what
they print. Slow parts are replaced by functions that note what they are given."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import nn, optim


def of_letters(text):
    return SimpleNamespace(ids=list(map(ord, text)))


LETTERS = SimpleNamespace(
    tokenizer=SimpleNamespace(encode=of_letters, decode=lambda ids: "".join(map(chr, ids))),
    chat_prompt=lambda messages: "".join(f"<{m['role']}>{m['content']}" for m in messages),
)


# teach_facts


def test_general_text_is_in_two_halves_of_the_pages(example, monkeypatch):
    program = example("teach_facts")
    monkeypatch.setattr(program, "topics", {"c": "34567", "a": "01", "d": "d" * 150_001, "b": "b"})
    read, measured = program.general_text(LETTERS, 3)  # of "a" and "c", and of "b" and "d"
    assert ["".join(map(chr, row)) for row in read.tolist()] == ["01\n3", "4567"]
    assert measured.shape == (37_500, 4)  # of 150,000 letters
    assert "".join(map(chr, measured[:2].ravel().tolist())) == "b\n" + "d" * 6


def test_a_lesson_is_a_question_and_its_answer_moved_by_one(example, monkeypatch):
    program = example("teach_facts")
    monkeypatch.setattr(program, "PEOPLE", {"Al": ("Rome", "cook"), "Bo": ("Oslo", "judge")})
    asked = ["Where does {} live?", "What is the job of {}?",
             "In which city is the home of {}?", "What does {} do for a living?"]  # fmt: skip
    right = [["Al lives in Rome.", "Al works as a cook."] * 2,
             ["Bo lives in Oslo.", "Bo works as a judge."] * 2]  # fmt: skip
    found = program.lessons(LETTERS)
    expected = [
        (f"<user>{question.format(name)}", f"{answer}<|im_end|>")
        for name, answers in zip(("Al", "Bo"), right, strict=True)
        for question, answer in zip(asked, answers, strict=True)
    ]
    assert [("".join(map(chr, ids)), targets) for ids, targets in found] == [
        ((prompt + answer)[:-1], [-100] * (len(prompt) - 1) + list(map(ord, answer)))
        for prompt, answer in expected
    ]
    ids, targets = program.padded([([3, 4, 5], [-100, 5, 6]), ([7], [8])])
    assert ids.tolist() == [[3, 4, 5], [7, 0, 0]]
    assert targets.tolist() == [[-100, 5, 6], [8, -100, -100]]


@pytest.mark.parametrize("mix", [0, 3])
@pytest.mark.parametrize("seed", [0, 5])
def test_lessons_are_learned_in_turn_beside_general_text(example, monkeypatch, capsys, mix, seed):
    """No lesson comes a second time before all came once, up to the order of each round."""
    program = example("teach_facts")
    weight, frozen = nn.Parameter(ta.ones(1)), nn.Parameter(ta.ones(1), requires_grad=False)
    model = SimpleNamespace(parameters=lambda: iter([frozen, weight]))
    general = np.arange(40 * 65).reshape(40, 65)
    lengths, below, losses, made, grads = [], [], [], [], []

    class Adam(optim.AdamW):
        def __init__(self, params, **options):
            made.append((params, options))
            super().__init__(params, **options)

        def step(self):
            grads.append(weight.grad.item())

    def text(of, length):
        lengths.append((of is model, length))
        return general, -general

    def mean_loss(of, hidden, targets):
        losses.append((hidden[..., 0].tolist(), targets.tolist()))
        return weight.sum() * (1 if targets.shape[1] == 1 else 4)

    monkeypatch.setattr(program.ta.optim, "AdamW", Adam)
    monkeypatch.setattr(program, "lessons", lambda of: [([i], [100 + i]) for i in range(12)])
    monkeypatch.setattr(program, "general_text", text)
    monkeypatch.setattr(program, "below", lambda of, x: below.append(x.shape) or 2 * x[..., None])
    monkeypatch.setattr(program, "mean_loss", mean_loss)
    program.teach(model, 12, mix, seed)

    rng, order, expected = np.random.default_rng(seed), [], []
    some = rng.permutation(general)[:32]
    for _ in range(12):
        if len(order) < 8:
            order += rng.permutation(12).tolist()
        rows = np.array([order.pop() for _ in range(8)])[:, None]
        expected.append((2 * rows, 100 + rows))
        if mix:
            rows = some[rng.integers(0, 32, mix)]
            expected.append((2 * rows[:, :-1], rows[:, 1:]))
    assert losses == [(ids.tolist(), targets.tolist()) for ids, targets in expected]
    lessons = [ids for ids, targets in losses if len(targets[0]) == 1]
    assert np.unique(lessons, return_counts=True)[1].tolist() == [8] * 12
    assert lengths == [(True, 64)]
    assert below == [(4, 1)] * 3 + [(32, 64)]
    ((params, options),) = made
    assert (len(params), params[0] is weight) == (1, True)
    assert options == {"lr": 2e-3, "weight_decay": 0.0}
    loss = 1.2 if mix else 1.0  # 1 + 4 / 20
    np.testing.assert_allclose(grads, [loss] * 12, rtol=1e-6)
    said = [f"step {step}: loss {loss:.3f}" for step in (0, 10, 11)]
    assert capsys.readouterr().out.splitlines() == said


@pytest.mark.parametrize(("pieces", "sizes"), [(3, [3]), (9, [5, 4]), (16, [4] * 4)])
def test_a_perplexity_is_that_of_the_mean_loss_of_small_batches(
    example, monkeypatch, pieces, sizes
):
    program, given = example("teach_facts"), []

    def mean_loss(of, hidden, targets):
        given.append((hidden - 1, targets, ta.is_grad_enabled()))
        return ta.tensor(float(len(given)))

    monkeypatch.setattr(program, "below", lambda of, ids: ids + 1)
    monkeypatch.setattr(program, "mean_loss", mean_loss)
    rows = np.arange(pieces * 5).reshape(pieces, 5)
    found = program.perplexity(None, rows)
    assert found == pytest.approx(math.exp((len(sizes) + 1) / 2))
    assert [len(targets) for _, targets, _ in given] == sizes
    assert np.concatenate([ids for ids, _, _ in given]).tolist() == rows[:, :-1].tolist()
    assert np.concatenate([targets for _, targets, _ in given]).tolist() == rows[:, 1:].tolist()
    assert not any(enabled for _, _, enabled in given)


def test_questions_are_asked_in_one_batch_with_padding_before_them(example, monkeypatch):
    program, given = example("teach_facts"), []
    monkeypatch.setattr(program, "PEOPLE", {"Al": ("Rome", "cook"), "Bob": ("Oslo", "judge")})
    asks = "Which city does {} call home?", "Can you tell me the profession of {}?"
    asked = [question.format(name) for name in ("Al", "Bob") for question in asks]
    length = len("<user>" + asked[-1])

    def generate(scores, ids, most, stop, pad):
        given.append((scores, ids.tolist(), most, stop, pad))
        replies = np.array([list(map(ord, word)) for word in ("Rom", "coo", "Osl", "jud")])
        replies[1, 2] = pad
        return ta.tensor(np.concatenate([ids, replies], 1))

    monkeypatch.setattr(program, "generate", generate)
    model = SimpleNamespace(**vars(LETTERS), config={"eos_token_id": 77},
                            next_scores=lambda mask, most: (mask.tolist(), most))  # fmt: skip
    found = program.answers(model)
    words = [("Rome", "Rom"), ("cook", "co"), ("Oslo", "Osl"), ("judge", "jud")]
    assert found == [(text, *pair) for text, pair in zip(asked, words, strict=True)]
    texts = ["<user>" + text for text in asked]
    ids = [[0] * (length - len(text)) + list(map(ord, text)) for text in texts]
    mask = [[i > 0 for i in row] for row in ids]
    assert given == [((mask, length + 16), ids, length + 16, 77, -1)]
    program.answers(model, 3)
    assert given[1] == ((mask, length + 3), ids, length + 3, 77, -1)


def test_a_report_has_four_answers_and_counts_all(example, monkeypatch, capsys):
    program = example("teach_facts")
    given = [("q0?", "Oslo", " in Oslo.\n"), *[(f"q{i}?", "Lima", "Rome") for i in range(1, 5)],
             ("q5?", "cook", "a cook")]  # fmt: skip
    monkeypatch.setattr(program, "answers", lambda model: given)
    monkeypatch.setattr(program, "perplexity", lambda model, held_out: held_out.sum() / 8)
    assert program.report(None, np.array([9, 16])) == (2, 3.125)
    assert capsys.readouterr().out.splitlines() == [
        "  q0?  ->  'in Oslo.'   (Oslo)",
        *[f"  q{i}?  ->  'Rome'   (Lima)" for i in (1, 2, 3)],
        "2 of 6 right; perplexity of held-out text 3.12",
    ]


@pytest.mark.parametrize("short", [False, True])
def test_facts_are_taught_to_the_upper_half_and_measured_before_and_after(
    example, monkeypatch, capsys, tmp_path, clock, short
):
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    program, calls = example("teach_facts"), []
    clock(program)

    class Model:
        encoder = SimpleNamespace(layers=["a", "b", "c", "d", "e"])

        def requires_grad_(self, value):
            calls.append(("requires_grad_", value))

        def save_adapter(self, out):
            calls.append(("save_adapter", out))

    def note(name, value=None):
        def function(*given, **options):
            calls.append((name, *(x for x in given if not isinstance(x, Model)), options))
            return value

        return function

    def report(model, held_out):
        calls.append(("report", held_out[:, 0].tolist()))
        return 3, 6.0 if len(calls) > 5 else 4.0

    pieces = np.arange(37)[:, None]
    monkeypatch.setattr(program, "weights", lambda: "m.gguf")
    monkeypatch.setattr(program.ta, "manual_seed", note("manual_seed"))
    monkeypatch.setattr(program.ta.models.CausalLM, "from_gguf", note("from_gguf", Model()))
    monkeypatch.setattr(program, "general_text", note("general_text", (-pieces, pieces)))
    monkeypatch.setattr(program, "report", report)
    monkeypatch.setattr(program.nn.LoRA, "insert", note("insert"))
    monkeypatch.setattr(program, "teach", note("teach"))
    out = tmp_path / "new" / "facts"
    more = ["--short"] if short else ["--steps", "7"]
    program.main([*more, "--mix", "5", "--out", str(out)])
    held_out = [0, 2] if short else list(range(0, 32, 2))
    assert calls == [
        ("manual_seed", 0, {}),
        ("from_gguf", "m.gguf", program.SHA256, {}),
        ("general_text", 128, {}),
        ("report", held_out),
        ("requires_grad_", False),
        ("insert", ["c", "d", "e"], ("W_q", "W_v", "w_2"), {"rank": 8}),
        ("teach", 2 if short else 7, 5, {}),
        ("report", held_out),
        ("save_adapter", out),
    ]
    assert out.is_dir()
    said = "before:\nafter:\nperplexity 1.50 times before; 30 s in all\n"
    assert capsys.readouterr().out == said
    assert program.halves(Model()) == (["a", "b"], ["c", "d", "e"])


class Layer(nn.Linear):
    """Adds to each place what stands before it, and notes the sizes that it is given."""

    def forward(self, x, is_causal=False):
        assert is_causal
        self.seen = [*getattr(self, "seen", []), x.shape[:2]]
        before = ta.tensor(np.tri(x.shape[1], dtype=np.float32))
        return x + super().forward(before @ x)


def test_the_loss_is_that_of_the_places_that_have_a_target(example):
    """In two parts, of which the second computes nothing behind the last target."""
    program = example("teach_facts")
    ta.manual_seed(0)
    layers = nn.ModuleList(Layer(4, 4) for _ in range(3))
    norm, head = nn.LayerNorm(4), nn.Linear(4, 11)
    encoder = SimpleNamespace(layers=layers, norm=norm)
    model = SimpleNamespace(word=nn.Embedding(11, 4), encoder=encoder, scores=head)
    ids = np.random.default_rng(0).integers(0, 11, (3, 6))
    targets = np.full((3, 6), program.IGNORE)
    targets[0, 1], targets[2, 1], targets[2, 3] = 5, 0, 7
    hidden = program.below(model, ids)
    found = program.mean_loss(model, hidden, targets)
    assert [layer.seen for layer in layers] == [[(3, 6)], [(3, 4)], [(3, 4)]]
    x = model.word(ids)
    for layer in layers:
        x = layer(x, is_causal=True)
    losses = -ta.functional.log_softmax(head(norm(x)), -1).numpy()
    expected = (losses[0, 1, 5] + losses[2, 1, 0] + losses[2, 3, 7]) / 3
    assert found.item() == pytest.approx(expected, rel=1e-5)
    found.backward()
    assert layers[0].weight.grad is None
    assert layers[1].weight.grad is not None


# few_shot


def test_definitions_are_the_first_of_a_kind_to_test_then_those_to_choose_by(example, monkeypatch):
    program = example("few_shot")
    nouns = [[kind, f"{kind}{i}", f"is {kind} {i}"] for i in range(400) for kind in ("b", "a")]
    monkeypatch.setattr(program, "wordnet", lambda: nouns)
    monkeypatch.setattr(program, "KINDS", ["a", "b"])

    def places(found):
        assert found.kinds.tolist() == sorted(found.kinds.tolist())
        places = [int(word[1:]) for word in found.words]
        names = ["ab"[kind] for kind in found.kinds]
        assert found.words == [f"{x}{i}" for x, i in zip(names, places, strict=True)]
        assert found.texts == [f"is {x} {i}" for x, i in zip(names, places, strict=True)]
        return places

    assert places(program.held_out(False)) == [*range(100)] * 2
    assert places(program.held_out(True)) == [*range(100, 150)] * 2
    for seed in (0, 3):
        rng = np.random.default_rng(seed)
        drawn = [(150 + rng.permutation(250)[:7]).tolist() for _ in "ab"]
        assert places(program.few(7, seed)) == drawn[0] + drawn[1]


@pytest.mark.parametrize(("number", "size"), [(32, 32), (70, 32), (5, 5)])
def test_batches_of_definitions_are_drawn_without_repetition(example, number, size):
    """What is left of a round is of no batch, and each round has another order."""
    program, rng = example("few_shot"), np.random.default_rng(4)
    tokens = [list(range(1, 2 + i % 3)) for i in range(number)]
    drawn = program.batches(tokens, 10 * np.arange(number), np.random.default_rng(4))
    for _ in range(3):
        rows = rng.permutation(number)
        for batch in rows[: number // size * size].reshape(-1, size):
            ids, lengths, kinds = next(drawn)
            assert kinds.tolist() == (10 * batch).tolist()
            assert lengths == [len(tokens[i]) for i in batch]
            longest = max(lengths)
            padded = [tokens[i] + [0] * (longest - len(tokens[i])) for i in batch]
            assert ids.numpy().tolist() == padded


@pytest.mark.parametrize("seed", [0, 3])
def test_fine_tuning_draws_by_its_seed_and_makes_all_steps(example, monkeypatch, seed):
    program, drawn, seen, trained = example("few_shot"), [], [], []

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.head, self.last = nn.Linear(2, 3), nn.Linear(2, 2)
            self.encoder = SimpleNamespace(tokenize=lambda texts: [text * 2 for text in texts])

        def forward(self, ids, lengths):
            trained.append((self.training, ids.numpy().tolist(), lengths))
            return self.head(self.last(ids))

    def batches(tokens, kinds, rng):
        drawn.append((tokens, kinds, rng.bit_generator.state))
        while True:
            yield ta.tensor([[1.0, 2.0]]), [2], np.array([1])

    class Adam(optim.AdamW):
        def step(self):
            seen.append([p.grad.numpy().copy() for p in self.parameters])

    monkeypatch.setattr(program.optim, "AdamW", Adam)
    monkeypatch.setattr(program, "batches", batches)
    classifier, kinds, steps = Classifier(), np.array([2]), []
    learn = program.Definitions(["word"], ["text"], kinds)
    program.fine_tune(classifier, learn, seed, SimpleNamespace(update=lambda: steps.append(1)))
    state = np.random.default_rng(seed).bit_generator.state
    assert drawn == [(["texttext"], kinds, state)]
    assert trained == [(True, [[1.0, 2.0]], [2])] * 100
    assert len(steps) == len(seen) == 100
    assert not classifier.training
    for found, first in zip(zip(*seen, strict=True), seen[0], strict=True):
        assert (np.array(found) == first).all()  # no gradient of an earlier step is added


def test_a_classifier_learns_in_its_last_two_layers(example):
    program, given = example("few_shot"), []

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Module()
            self.encoder.encoder = nn.Module()
            self.encoder.encoder.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(4))

        def embed(self, ids, lengths):
            given.append((ids, lengths))
            return ta.eye(2)

        def encode(self, texts):
            given.append(texts)
            return np.array([[1, 0], [0, 1], [1, 1]], np.float32)

    encoder, head = Encoder(), nn.Linear(2, 3)
    head.weight.data = np.array([[1, 0], [0, 1], [-9, -9]], np.float32)
    head.bias.data = np.array([0, 0.5, 0], np.float32)
    classifier = program.Classifier(encoder, head)
    layers = encoder.encoder.encoder.layers
    assert [x.weight.requires_grad for x in (*layers, head)] == [False, False, True, True, True]
    assert list(map(id, classifier.last)) == list(map(id, layers[2:]))
    assert classifier("ids", [3]).numpy().tolist() == [[1, 0.5, -9], [0, 1.5, -9]]
    assert classifier.predict(["a", "b", "c"]).tolist() == [0, 1, 1]
    assert given == [("ids", [3]), ["a", "b", "c"]]


def runs_of(program):
    return {
        (labels, seed): program.Run([labels / 100, place / 10, 0.5 + seed / 4], np.zeros(1))
        for labels in (16, 8)
        for seed, place in enumerate([7, 1, 2])
    }


def test_the_table_has_a_row_of_each_method(example):
    program = example("few_shot")
    column = "definitions of each kind  "
    assert program.table(runs_of(program)).splitlines() == [
        f"{column}8                       16",
        "words                     8.0 % (8.0 - 8.0)       16.0 % (16.0 - 16.0)",
        "linear probe              20.0 % (10.0 - 70.0)    20.0 % (10.0 - 70.0)",
        "fine-tuning               75.0 % (50.0 - 100.0)   75.0 % (50.0 - 100.0)",
    ]


def test_the_picture_has_the_medians_over_the_numbers(example, monkeypatch, tmp_path):
    program, saved = example("few_shot"), []
    monkeypatch.setattr(program.programs, "save_picture", lambda *given: saved.append(given))
    program.draw(runs_of(program), tmp_path)
    ((figure, path),) = saved
    assert path == tmp_path / "accuracy.png"
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("Definitions of each kind", "Accuracy in %")
    curves = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
    assert curves == {
        "words": [[8, 8], [16, 16]],
        "linear probe": [[8, 20], [16, 20]],
        "fine-tuning": [[8, 75], [16, 75]],
    }
    assert {line.get_marker() for line in axes.lines} == {"o"}
    assert (axes.get_xscale(), axes.xaxis.get_transform().base) == ("log", 2)
    assert axes.get_xticks().tolist() == [8, 16]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["8", "16"]


@pytest.mark.parametrize("validation", [False, True])
def test_all_numbers_are_tried_with_all_seeds(
    example, monkeypatch, capsys, tmp_path, clock, validation
):
    program, calls, bars, drawn = example("few_shot"), [], [], []
    clock(program)
    kinds = np.arange(130) % 2
    texts = [f"definition {i} {'and so on ' * 12}" for i in range(130)]
    words = [f"word {i}" for i in range(130)]

    def held_out(of_validation):
        assert of_validation is validation
        return program.Definitions(words, texts, kinds)

    def train(labels, seed, test, points, bar):
        calls.append((labels, seed, test.words is words, points))
        found = kinds if (labels, seed) != (4, 1) else np.where(np.arange(130) % 3, 1 - kinds, 0)
        return program.Run([labels / 16, seed / 8, 0.125], found)

    class Bar(program.tqdm):
        def __init__(self, **options):
            bars.append(options)
            super().__init__(**options, disable=True)

        def write(self, line):
            print(line)

    monkeypatch.setattr(program, "held_out", held_out)
    monkeypatch.setattr(program, "train", train)
    monkeypatch.setattr(program, "tqdm", Bar)
    monkeypatch.setattr(program, "model", lambda: SimpleNamespace(encode=lambda x: x[:1]))
    monkeypatch.setattr(program, "KINDS", ["act", "food"])
    monkeypatch.setattr(program, "draw", lambda runs, out: drawn.append(([*runs], out)))
    out = tmp_path / "new" / "out"
    options = ["--labels", "2", "4", "--seeds", "2", "--out", str(out)]
    monkeypatch.setattr("sys.argv", ["few_shot.py", *options, *["--validation"] * validation])
    program.main()
    tried = [(2, 0), (2, 1), (4, 0), (4, 1)]
    assert calls == [(*pair, True, texts[:1]) for pair in tried]
    assert bars == [{"total": 400, "unit": "step"}]
    assert drawn == [(tried, out)]
    found = np.where(np.arange(130) % 3, 1 - kinds, 0)
    wrong = [i for i in range(130) if found[i] != kinds[i]][::40]
    runs = {(n, s): program.Run([n / 16, s / 8, 0.125], found) for n, s in tried}
    names = ["act", "food"]
    assert len(wrong) == 3
    assert capsys.readouterr().out.splitlines() == [
        "130 definitions become points",
        "2 of each kind, seed 0: words 12.5 %, linear probe 0.0 %, fine-tuning 12.5 %",
        "2 of each kind, seed 1: words 12.5 %, linear probe 12.5 %, fine-tuning 12.5 %",
        "4 of each kind, seed 0: words 25.0 %, linear probe 0.0 %, fine-tuning 12.5 %",
        "4 of each kind, seed 1: words 25.0 %, linear probe 12.5 %, fine-tuning 12.5 %",
        "",
        *program.table(runs).splitlines(),
        "",
        "what the last one got wrong, such as:",
        *[f"  {names[found[i]]}, not {names[kinds[i]]}: {words[i]}, {texts[i]}"[:100]
          for i in wrong],
        "",
        f"30 seconds; accuracy.png is in {out}",
    ]  # fmt: skip
