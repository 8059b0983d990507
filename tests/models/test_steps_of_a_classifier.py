"""What classify_texts.py of examples/ does step by step: which rows it takes, with which options,
and what it prints. Slow parts are replaced by functions that note what they are given."""

from __future__ import annotations

import argparse
import json
from types import SimpleNamespace

import numpy as np
import pytest

import tinyattn as ta

SIZES = {"d_model": 8, "heads": 2, "layers": 2, "dropout": 0.0, "longest": 4}


def classifier(program, texts=("a b c d e",) * 2, labels=("x", "y", "z")):
    ta.manual_seed(0)
    return program.TextClassifier(program.Vocabulary.of(list(texts)), list(labels), dict(SIZES))


def test_an_epoch_has_each_text_once_beside_those_that_are_about_as_long(example):
    program = example("classify_texts")
    lengths = [(7 * i) % 50 for i in range(50)]
    found = [rows.tolist() for rows in program.epoch(lengths, 8, np.random.default_rng(3))]
    rng = np.random.default_rng(3)
    rough = np.argsort(np.array(lengths) + rng.uniform(0, 4, 50), kind="stable")
    parts = np.array_split(rough, 7)
    assert found == [parts[i].tolist() for i in rng.permutation(7)]
    assert sorted(i for rows in found for i in rows) == list(range(50))
    for rows in found:
        row = [lengths[i] for i in rows]
        assert max(row) - min(row) <= 8 + 4


def test_scores_are_those_of_each_text_whatever_its_length(example, monkeypatch):
    program, batches = example("classify_texts"), []
    model = classifier(program).train()

    def ids_of(texts):
        assert not model.training
        assert not ta.is_grad_enabled()
        batches.append(texts)
        return ta.tensor([[float(len(text)), len(text) % 7, 1.0] for text in texts])

    monkeypatch.setattr(model, "ids_of", ids_of)
    monkeypatch.setattr(type(model), "forward", lambda self, ids: ids)
    texts = ["w" * ((37 * i) % 300) for i in range(300)]
    found = model.scores(texts)
    assert (found.dtype, found.shape) == (np.float32, (300, 3))
    assert found.tolist() == [[len(text), len(text) % 7, 1.0] for text in texts]
    assert [len(batch) for batch in batches] == [100, 100, 100]
    assert [len(text) for batch in batches for text in batch] == list(range(300))


def test_loss_and_accuracy_are_those_of_the_scores(example):
    program = example("classify_texts")
    rows = np.random.default_rng(0).normal(size=(5, 3))
    labels = np.array([*rows.argmax(1)[:3], *rows.argmin(1)[3:]])
    model = SimpleNamespace(scores=lambda texts: rows.astype(np.float32))
    part = program.Texts(["t"] * 5, labels)
    assert program.accuracy(model, part) == 0.6
    expected = np.mean(np.log(np.exp(rows).sum(1)) - rows[range(5), labels])
    assert program.loss_on(model, part) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("seed", [0, 6])
def test_a_training_reads_the_rows_of_its_epochs_and_forgets_a_twentieth(
    example, monkeypatch, seed
):
    program, read, clipped, bars = example("classify_texts"), [], [], []
    texts = [" ".join("abcd"[: 1 + i % 4]) for i in range(90)]
    model = classifier(program, texts)
    weights = {name: p.numpy().copy() for name, p in model.named_parameters()}
    labels, loss = np.arange(90) % 3, program.F.cross_entropy

    def cross_entropy(scores, wanted, **options):
        read.append((wanted.tolist(), options))
        return loss(scores, wanted, **options)

    def clip(parameters, most):
        clipped.append([p.grad.numpy().copy() for p in parameters])

    class Bar(program.tqdm):
        def __init__(self, **options):
            bars.append(options)
            super().__init__(**options, disable=True)

        def set_postfix_str(self, text, refresh):
            bars.append(text)

    seen = []
    model.register_forward_hook(lambda m, ids, _: m.training and seen.append(ids[0].numpy()))
    monkeypatch.setattr(program.F, "cross_entropy", cross_entropy)
    monkeypatch.setattr(program.optim, "clip_grad_norm_", clip)
    monkeypatch.setattr(program, "tqdm", Bar)
    monkeypatch.setattr(program, "loss_on", lambda of, part: 1.5)
    args = argparse.Namespace(seed=seed, batch_size=32, epochs=2, lr=0.0)
    losses, measured = program.train(model, program.Texts(texts, labels), None, args, 3.0)
    rng, expected = np.random.default_rng(seed), []
    for _ in range(2):
        for rows in program.epoch([1 + i % 4 for i in range(90)], 32, rng):
            ids = model.ids_of([texts[i] for i in rows]).numpy()
            forgotten = (rng.random(ids.shape) < 0.05) & (ids != 0)
            expected.append((labels[rows].tolist(), np.where(forgotten, 1, ids).tolist()))
    assert [ids.tolist() for ids in seen] == [ids for _, ids in expected]
    assert read == [(wanted, {"label_smoothing": 0.1}) for wanted, _ in expected]
    assert any(1 in row for _, ids in expected for row in ids)
    assert measured == [[3, 1.5], [6, 1.5]]
    assert bars[0] == {"total": 6, "unit": "step"}
    assert bars[1:] == [f"loss {np.mean(losses[: i + 1]):.3f}" for i in range(6)]
    for name, p in model.named_parameters():  # because the rate is 0
        np.testing.assert_array_equal(p.numpy(), weights[name])
    for (wanted, ids), value, gradients in zip(expected, losses, clipped, strict=True):
        model.zero_grad()
        again = loss(model(ta.tensor(np.array(ids))), np.array(wanted), label_smoothing=0.1)
        again.backward()
        assert value == pytest.approx(again.item(), rel=1e-5)
        for p, gradient in zip(model.parameters(), gradients, strict=True):
            np.testing.assert_allclose(gradient, p.grad.numpy(), atol=1e-5)


def test_what_a_classifier_looks_at_are_words_of_its_last_layer(example):
    program, given = example("classify_texts"), []
    values = np.arange(32).reshape(1, 2, 4, 4)
    layers = [
        SimpleNamespace(self_attn=SimpleNamespace(attention_weights=ta.tensor(value)))
        for value in (-values, values)
    ]
    model = SimpleNamespace(
        scores=given.append,
        encoder=SimpleNamespace(layers=layers),
        vocabulary=program.Vocabulary(["<pad>", "<unknown>", "a", "b" * 30, "c" * 31]),
    )
    text = f"A {'c' * 31} {'d' * 30} {'b' * 30} a"
    shown, weights = program.looked_at(model, text)
    assert given == [[text]]
    assert shown == ["a", "c" * 29 + "…", f"({'d' * 30})", "b" * 30]
    assert weights.tolist() == values[0].tolist()


def test_answers_have_three_labels_and_a_picture_of_the_last(
    example, monkeypatch, capsys, pictures, tmp_path
):
    program = example("classify_texts")
    found, model = pictures(program), classifier(program, labels=["w", "x", "y", "z"])
    rows = np.array([[0.1, 0.2, 0.3, 0.4], [0.45, 0.05, 0.3, 0.2]], np.float32)
    weights = np.zeros((2, 2, 45, 45), np.float32)  # of each text: heads, lookers, looked at
    weights[0, 0] = np.arange(45) / 50
    weights[0, 1, :, :3] = [0.5, 0.9, 0.7]
    weights[1, 1] = np.arange(45)[::-1] / 50
    weights[1, 0, ::2, 4] = 0.9  # 23 of 45 words look there
    words = [f"w{i}" for i in range(45)]
    looks = {"b c": (words, weights[0]), "q": (words, weights[1])}
    monkeypatch.setattr(model, "scores", lambda texts: np.log(rows))
    monkeypatch.setattr(program, "looked_at", lambda of, text: looks[text])
    program.answer(model, ["b c", "q"], tmp_path)
    path = tmp_path / "attention.png"
    assert capsys.readouterr().out.splitlines() == [
        "b c", "  z 40.0%, y 30.0%, x 20.0%",
        "  most looked at: 'w1' 0.46, 'w44' 0.44, 'w43' 0.43, 'w42' 0.42, 'w41' 0.41",
        "q", "  w 45.0%, y 30.0%, z 20.0%", "  a guess: no word of this text is in the vocabulary",
        "  most looked at: 'w4' 0.63, 'w0' 0.44, 'w1' 0.43, 'w2' 0.42, 'w3' 0.41", "",
        f"words in brackets are not in its vocabulary; {path} has what the heads look at in the "
        "last text, of its first 40 words",
    ]  # fmt: skip
    ((drawn,), options), saved = found
    np.testing.assert_array_equal(drawn, weights[1][None, :, :40, :40])
    assert options == {"titles": ["head 1", "head 2"], "xticks": words[:40], "yticks": words[:40]}
    assert saved == (("figure", path), {})


def test_the_files_of_a_classifier_have_its_labels_sizes_and_words(example, tmp_path):
    program, out = example("classify_texts"), tmp_path / "new" / "out"
    model = classifier(program, ["é b"] * 2, ["好", "bad"])
    model.save(out)
    words = ["<pad>", "<unknown>", "é", "b"]
    about = {"labels": ["好", "bad"], "sizes": SIZES, "vocabulary": words}
    text = (out / "classifier.json").read_bytes().decode("utf-8")
    assert text == json.dumps(about, ensure_ascii=False, indent=1) + "\n"
    loaded = ta.load(out / "model.safetensors")
    assert {name: x.numpy().tolist() for name, x in loaded.items()} == {
        name: x.numpy().tolist() for name, x in model.state_dict().items()
    }


def test_what_is_learned_from_what_is_printed(example, capsys):
    program = example("classify_texts")
    model = classifier(program, ["好 a"] * 2, [f"l{i:02}" for i in range(23)])
    names = [name for i, name in enumerate(model.labels) for _ in range(40 - i)] + ["l00"] * 1000
    texts = [f"text {i}" for i in range(len(names))]
    parts = [program.Texts([text] * n, np.zeros(n)) for text, n in (("a", 1200), ("b", 7))]
    program.introduce(model, texts, names, [*parts, program.Texts(["a a a b", "!"], np.zeros(2))])
    counts = ", ".join(f"l{i:02} {40 - i}" for i in range(1, 20))
    size = sum(p.numpy().size for p in model.parameters())
    assert capsys.readouterr().out.splitlines() == [
        f"1,667 texts, 23 labels: l00 1,040, {counts}, and 3 labels more",
        f"1,200 to learn from, 7 to choose, 2 to test; 4 words, {size:,} parameters",
        "of a script without spaces, such as Chinese, each sign is a word, and each pair too",
        "warning: the vocabulary has 75% of the words of the test texts; the model reads all "
        "others as one unknown word: more texts would help",
    ]
    ten = program.Texts(["a " * 9 + "b"], np.zeros(1))  # nine of ten words are enough
    program.introduce(model, texts, names, [*parts, ten])
    assert len(capsys.readouterr().out.splitlines()) == 3


@pytest.mark.parametrize("number", [2, 19, 20, 21])
def test_labels_beyond_twenty_are_counted(example, capsys, number):
    program = example("classify_texts")
    model = classifier(program, ["a"] * 2, [f"l{i:02}" for i in range(number)])
    parts = [program.Texts(["a"], np.zeros(1))] * 3
    program.introduce(model, [f"text {i}" for i in range(number)], model.labels, parts)
    counts = ", ".join(f"l{i:02} 1" for i in range(min(number, 20)))
    more = ", and 1 labels more" if number == 21 else ""
    said, sizes = capsys.readouterr().out.splitlines()
    assert said == f"{number} texts, {number} labels: {counts}{more}"
    assert sizes.startswith("1 to learn from, 1 to choose, 1 to test; 3 words, ")


OF_A_FILE = [("--text", "a"), ("--label", "a"), ("--separator", ";"), ("--encoding", "utf-8")]


@pytest.mark.parametrize("option", [(), *OF_A_FILE], ids=" ".join)
@pytest.mark.parametrize("has_file", [False, True])
@pytest.mark.parametrize("asks", [False, True])
def test_what_is_of_a_file_is_taken_with_a_file_that_is_learned(
    example, monkeypatch, capsys, option, has_file, asks
):
    """A question has no file, and an option of a file without one would do nothing."""
    program = example("classify_texts")
    given = [*["a.csv"] * has_file, *option, *["--predict", "a", "b c"] * asks]
    monkeypatch.setattr("sys.argv", ["classify_texts.py", *given])
    problem = None
    if asks and (has_file or option):
        problem = (
            "--predict asks the classifier in --out: leave out the file, --text, --label and "
            "--separator, and --encoding, or learn without --predict"
        )
    elif option and not has_file:
        problem = "--text, --label, --separator and --encoding are of a file: name it first"
    if problem is None:
        args = program.options()
        assert args.predict == (["a", "b c"] if asks else None)
        assert (args.file and str(args.file)) == ("a.csv" if has_file else None)
        assert [getattr(args, name[2:]) for name, _ in OF_A_FILE] == [
            option[1] if option[:1] == (name,) else None for name, _ in OF_A_FILE
        ]
        return
    with pytest.raises(SystemExit, match="2"):
        program.options()
    assert capsys.readouterr().err.endswith(f"error: {problem}\n")


def test_a_separator_is_one_sign_and_no_quote(example):
    separator = example("classify_texts").separator
    for sign in (";", "\t", " ", "|", "界", "'"):
        assert separator(sign) == sign
    for text in ("", ";;", '"', "\r", "\n", "\r\n"):
        with pytest.raises(argparse.ArgumentTypeError) as caught:
            separator(text)
        assert str(caught.value) == f'must be one sign, as ";", and no quote, got {text!r}'


def test_a_text_to_ask_about_has_words(example):
    with_words = example("classify_texts").with_words
    for text in ("a", " a ", "!", "好"):
        assert with_words(text) == text
    for text in ("", " ", "\u200b"):
        with pytest.raises(argparse.ArgumentTypeError) as caught:
            with_words(text)
        assert str(caught.value) == f"a text must have words, got {text!r}"


@pytest.mark.parametrize(("right", "number", "said"), [
    (0.0, 10, "at most 28%"), (1.0, 10, "at least 72%"), (0.5, 10, "between 24% and 76%"),
    (0.9, 10, "between 60% and 98%"), (0.1, 10, "between 2% and 40%"),
    (0.999, 1000, "between 99% and 100%"), (2 / 3, 3, "between 21% and 94%"),
    (0.29, 100, "between 21% and 39%"), (0.0, 3, "at most 57%"), (1.0, 3, "at least 43%"),
])  # fmt: skip
def test_an_error_bar_holds_for_all_such_texts(example, right, number, said):
    found = example("classify_texts").error_bar(right, number)
    assert found == f", and of all such texts, with 95 % probability, {said}"


@pytest.mark.parametrize("missing", ["both", "model.safetensors", "classifier.json"])
def test_a_classifier_that_is_not_whole_is_not_loaded(example, tmp_path, missing):
    program = example("classify_texts")
    if missing != "both":
        classifier(program).save(tmp_path)
        (tmp_path / missing).unlink()
    with pytest.raises(OSError, match="class") as caught:
        program.TextClassifier.load(tmp_path)
    if missing != "classifier.json":
        said = f"{tmp_path} has no trained classifier yet: train one first"
        assert (type(caught.value), str(caught.value)) == (FileNotFoundError, said)


@pytest.mark.parametrize(("best", "rises"), [(3, 4), (1, 5), (2, 6)])
def test_a_training_ends_five_epochs_after_its_best(example, monkeypatch, best, rises):
    """With the weights of the best."""
    program, epochs = example("classify_texts"), best + rises
    model, kept = classifier(program, ["a b"] * 9), []
    losses = [*range(20, 20 - best, -1), *[30.0] * rises]

    def loss_on(of, part):
        kept.append({name: p.numpy().copy() for name, p in of.named_parameters()})
        return float(losses[len(kept) - 1])

    monkeypatch.setattr(program, "loss_on", loss_on)
    args = argparse.Namespace(seed=0, batch_size=9, epochs=epochs, lr=0.01)
    part = program.Texts(["a b"] * 9, np.arange(9) % 3)
    steps, measured = program.train(model, part, part, args)
    assert len(steps) == len(measured) == best + min(rises, 5)
    for name, p in model.named_parameters():
        np.testing.assert_array_equal(p.numpy(), kept[best - 1][name])


@pytest.mark.parametrize("asks", [None, ["a"]])
def test_a_program_answers_or_learns_and_needs_pictures_first(example, monkeypatch, noted, asks):
    program = example("classify_texts")
    args = argparse.Namespace(predict=asks, out="out")
    noted.put(program, "options", args)
    noted.put(program.programs, "need_pictures")
    noted.put(program.TextClassifier, "load", "model")
    noted.put(program, "read", ("texts", "names"))
    noted.put(program, "answer")
    noted.put(program, "learn_and_test")
    program.main()
    learns = [("read", args), ("learn_and_test", args, "texts", "names")]
    answers = [("load", "out"), ("answer", "model", ["a"], "out")]
    assert noted.calls == [("options",), ("need_pictures",), *(answers if asks else learns)]


@pytest.mark.parametrize(("number", "given", "size", "rate"), [
    (20, None, 8, None), (600, None, 8, None), (675, None, 9, None), (4800, None, 64, None),
    (6000, None, 64, None), (600, 3, 3, None), (600, 200, 200, None), (600, None, 8, 0.5),
])  # fmt: skip
def test_small_files_have_small_batches_and_small_batches_a_lower_rate(
    example, monkeypatch, noted, tmp_path, number, given, size, rate
):
    program = example("classify_texts")
    for name in ("introduce", "compare"):
        noted.put(program, name)
    noted.put(program.programs, "save_picture")
    noted.put(program.viz, "plot_curves")
    noted.put(program.TextClassifier, "save")
    noted.put(program.text_data.Vocabulary, "of", program.Vocabulary(["<pad>", "<unknown>"]))
    noted.put(program, "train", lambda *of: ([0.5] * of[3].epochs * 10**4, [[1, 1.0]]))
    args = argparse.Namespace(**SIZES, seed=0, batch_size=given, lr=rate, epochs=1, out=tmp_path,
                              overwrite=True)  # fmt: skip
    program.learn_and_test(args, ["a"] * number, ["x", "y"] * (number // 2))
    assert args.batch_size == size
    assert args.lr == pytest.approx(3e-4 * (size / 64) ** 0.5 if rate is None else rate)


def test_an_encoder_is_compared_with_two_simpler_ways(example, monkeypatch, capsys):
    program, given = example("classify_texts"), []
    learn = program.Texts(["a"] * 3, np.array([2, 2, 0]))
    test = program.Texts(["b"] * 1000, np.arange(1000) % 5 // 2)
    monkeypatch.setattr(program, "by_words", lambda *of: given.append(of) or 0.75)
    monkeypatch.setattr(program, "accuracy", lambda *of: given.append(of) or 1.0)
    program.compare("model", learn, test)
    assert [tuple(map(id, of)) for of in given] == [(id(learn), id(test)), (id("model"), id(test))]
    bars = [program.error_bar(right, 1000) for right in (0.2, 0.75, 1.0)]
    assert capsys.readouterr().out.splitlines() == [
        "on 1,000 test texts                    right",
        f"the most frequent label                20.0%{bars[0]}",
        f"counts of words, logistic regression   75.0%{bars[1]}",
        f"encoder                               100.0%{bars[2]}",
    ]


def test_a_classifier_is_learned_saved_drawn_and_compared(
    example, monkeypatch, capsys, pictures, tmp_path, clock
):
    program, calls = example("classify_texts"), []
    clock(program)
    found, out = pictures(program), tmp_path / "a b"

    def note(name, value=None):
        def function(*given):
            calls.append((name, given))
            return value

        return function

    losses, measured = [0.5] * 12, [[4, 2.0], [8, 1.0], [12, 3.0]]
    monkeypatch.setattr(program.ta, "manual_seed", note("manual_seed"))
    monkeypatch.setattr(program.programs, "make_folder", note("make_folder"))
    monkeypatch.setattr(program.programs, "refuse_lost", note("refuse_lost"))
    monkeypatch.setattr(program.TextClassifier, "save", note("save"))
    monkeypatch.setattr(program, "train", note("train", (losses, measured)))
    for name in ("introduce", "compare"):
        monkeypatch.setattr(program, name, note(name))
    args = argparse.Namespace(**SIZES, seed=4, batch_size=None, lr=None, epochs=3, out=out,
                              overwrite="maybe")  # fmt: skip
    texts = [f"text {i}" for i in range(40)]
    monkeypatch.setattr("sys.argv", ["classify_texts.py"])
    program.learn_and_test(args, texts, ["y", "x"] * 20)
    order = ["manual_seed", "make_folder", "introduce", "train", "refuse_lost", "save", "compare"]
    assert [name for name, _ in calls] == order
    given = dict(calls)
    model, learn, validation, *more = given["train"]
    rows = example("text_data").split(np.array([1, 0] * 20), 4)
    parts = given["introduce"][3]
    assert [(part.texts, part.labels.tolist()) for part in parts] == [
        ([texts[i] for i in part], [1 - i % 2 for i in part]) for part in rows
    ]
    assert (learn is parts[0], validation is parts[1], more) == (True, True, [args, 70])
    assert given["manual_seed"] == (4,)
    assert given["make_folder"] == (out, 4 * sum(p.numpy().size for p in model.parameters()))
    assert given["introduce"][:3] == (model, texts, ["y", "x"] * 20)
    assert given["refuse_lost"] == (out / "model.safetensors", "maybe", "a classifier")
    assert given["save"] == (model, out)
    assert list(map(id, given["compare"])) == [id(model), id(learn), id(parts[2])]
    assert (model.labels, model.sizes, args.batch_size) == (["x", "y"], SIZES, 8)
    ((curves,), options), saved = found
    assert list(curves) == ["training", "validation"]
    assert curves["training"] is losses
    assert [x.tolist() for x in curves["validation"]] == [[4, 8, 12], [2, 1, 3]]
    assert options == {"ylabel": "Cross-entropy", "smooth": 50}
    assert saved == (("figure", out / "loss.png"), {})
    words = ["classify_texts.py", "--out", str(out), "--predict", "a text"]
    assert capsys.readouterr().out.splitlines() == [
        "the weights are those after epoch 2 of 3", "", "",
        f"30 s; the classifier and loss.png are in {out}",
        f"ask it: python {program.programs.command(words)}",
    ]  # fmt: skip


def test_a_file_is_read_with_its_options_and_what_would_be_lost_is_refused(
    example, monkeypatch, tmp_path
):
    program, calls = example("classify_texts"), []
    pair = ["a text"] * 20, ["x", "y"] * 10
    for of, name in ((program, "read_csv"), (program.text_data, "definitions"),
                     (program.programs, "refuse_others"), (program.programs, "refuse_lost"),
                     (program.text_data, "check_labels")):  # fmt: skip

        def function(*given, name=name):
            calls.append((name, *given))
            return pair

        monkeypatch.setattr(of, name, function)
    args = argparse.Namespace(file="f", text="t", label="l", separator=";", encoding="e",
                              out=tmp_path, overwrite="maybe")  # fmt: skip
    assert program.read(args) == pair
    checks = [
        ("check_labels", pair[1]),
        ("refuse_others", tmp_path / "classifier.json",
         ("model.safetensors", "config.json", "checkpoint.safetensors")),
        ("refuse_lost", tmp_path / "model.safetensors", "maybe", "a classifier"),
    ]  # fmt: skip
    assert calls == [("definitions",), ("read_csv", "f", "t", "l", ";", "e"), *checks]
    calls.clear()
    args.file = None
    assert program.read(args) == pair
    assert calls == [("definitions",), *checks]


@pytest.mark.parametrize("seed", [0, 7])
def test_the_parts_of_a_data_set_are_drawn_by_its_seed(example, seed):
    labels = np.array([0, 1, 1] * 21)
    found = example("text_data").split(labels, seed)
    rng = np.random.default_rng(seed)
    ones, twos = (rng.permutation(np.flatnonzero(labels == label)) for label in (0, 1))
    parts = [[*ones[4:], *twos[8:]], [*ones[:2], *twos[:4]], [*ones[2:4], *twos[4:8]]]
    assert [part.tolist() for part in found] == [rng.permutation(part).tolist() for part in parts]
