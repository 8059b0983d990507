"""What the programs of language models say and write at the end, and how they talk, with stand-ins
for what takes time."""

from __future__ import annotations

import argparse
import os
import sys
import types

import numpy as np
import pytest
from test_causal import needs_tokenizers

import tinyattn as ta

pytestmark = needs_tokenizers


@pytest.fixture
def language(example):
    return example("train_language_model")


def model_of(example):
    sizes = {"vocab_size": 4, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    more = {"intermediate_size": 8, "max_position_embeddings": 16, "model_type": "llama"}
    model = ta.models.CausalLM(sizes | more)
    model.tokenizer = example("language_data").character_tokenizer("\nabc")
    return model


# train_language_model: what it writes


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize(("prompt", "ids"), [("", [0]), ("ca", [3, 1])])
def test_a_sample_has_the_options_and_so_many_tokens(
    example, language, noted, temperature, prompt, ids
):
    model = model_of(example)
    noted.put(model, "pieces", lambda *_: iter(["x", "y"]))
    noted.put(model, "next_scores", "scores")
    args = argparse.Namespace(seed=1, temperature=temperature, top_p=0.9)
    assert list(language.sampled(model, prompt, args, 7)) == ["x", "y"]
    choice = {"temperature": temperature, "top_p": 0.9 if temperature else None}
    assert noted.calls[1:] == [("pieces", ids, len(ids) + 7, "scores", (), choice)]


@pytest.mark.parametrize(("held_out", "start", "age", "is_said"), [
    ([[0, 2.0], [5, 3.0]], None, 0, True), ([[0, 2.0], [5, 1.0]], None, 0, False),
    ([[0, 2.0], [5, 3.0]], "old", 0, False), ([[0, 2.0], [5, 3.0]], None, -9, False),
    ([[0, 2.0], [5, 3.0]], None, 9, True), ([], None, 0, False),
])  # fmt: skip
def test_a_model_that_learned_nothing_says_so_before_it_writes(
    example, language, noted, capsys, tmp_path, held_out, start, age, is_said
):
    """Only if the checkpoint is not older than the model."""
    (tmp_path / "model.safetensors").touch()
    held_out = ta.tensor(held_out or np.empty((0, 2)), dtype="float64")
    ta.save(
        {"held_out": held_out, "settings": {"start": start}}, tmp_path / "checkpoint.safetensors"
    )
    for name, time in {"model": 1000, "checkpoint": 1000 + age}.items():
        os.utime(tmp_path / f"{name}.safetensors", (time, time))
    model = model_of(example)
    noted.put(language.CausalLM, "from_pretrained", lambda _: model)
    noted.put(language, "sampled", lambda *_: iter(["b", "c"]))
    noted.put(language.data, "readable", lambda _, text: text.upper())
    noted.calls.clear()
    language.write(argparse.Namespace(out=tmp_path, sample="a", length=12))
    out, said = capsys.readouterr()
    assert out == "Abc\n"
    text = ("this model has learned nothing yet: its training was stopped before a lower held-out "
            "loss was measured, it writes by chance\n")  # fmt: skip
    assert said == text * is_said
    assert noted.calls[:2] == [("from_pretrained", tmp_path), ("readable", model.tokenizer, "a")]
    assert noted.calls[2][:3] == ("sampled", model, "A")
    assert noted.calls[2][4] == 12


@pytest.mark.parametrize(("text", "right"), [
    ("", True), ("\n\n", True), ("def f(:", False), ("def f(): pass", True), ("def f():", False),
    ("def f():\n    return 1\n    x = (", True), ("def f():\n    return (\n    x", False),
    ("def f():\n    return 1\n\nclass :", True), ("def f():\n    return 1\n)\nx", False),
    ("def f(\n    a,\n):\n    return a\n    cut", True), ("def f():\n\treturn 1\n\tcu(", True),
    ("def f():\n    x = [\n]\n    y = {\n}\n    cut (", True),
    ("def f():\n    return 1\n# a remark\n    cut (", True), ("def f():\n    a\0\n    b", False),
])  # fmt: skip
def test_a_function_ends_before_the_next_one_or_with_its_last_whole_line(language, text, right):
    assert language.is_python(text) is right


@pytest.mark.parametrize(("is_short", "number", "real"), [
    (True, 7, [*range(7)]), (True, 8, [*range(8)]), (True, 16, [*range(0, 16, 2)]),
    (True, 23, [*range(0, 16, 2)]), (False, 400, [*range(0, 400, 2)]),
])  # fmt: skip
def test_real_functions_are_from_everywhere_and_as_long(
    language, noted, capsys, is_short, number, real
):
    decoded = []

    def decode(ids):
        decoded.append(ids)
        return "x"

    tokenizer = types.SimpleNamespace(
        encode=lambda text: types.SimpleNamespace(ids=[1, 2]), decode=decode
    )
    noted.put(
        language, "generate", lambda _, prompts, *__, **___: ta.tensor([[1, 2]] * len(prompts))
    )
    model = types.SimpleNamespace(next_scores=lambda: "scores", tokenizer=tokenizer)
    held_out = np.concatenate([[1, 2, 10 + i, 1, 3] for i in range(number)])
    args = argparse.Namespace(context=4, short=is_short, seed=3)
    language.functions(model, args, held_out)
    assert decoded[8 if is_short else 200 :] == [[1, 2, 10 + i, 1] for i in real]
    assert f"of {len(real)} functions of real ones, cut alike," in capsys.readouterr().out


@pytest.mark.parametrize(("is_short", "most"), [(False, 1_200_000), (True, 12_000)])
def test_n_grams_are_counted_in_the_files_of_ids(language, noted, tmp_path, is_short, most):
    """Of the held-out text in a quarter as many."""
    texts = []
    for name, dtype in {"a.bin": "<u2", "b.bin": "<u4"}.items():
        np.arange(9).astype(dtype).tofile(tmp_path / name)
        ids = np.memmap(tmp_path / name, dtype, "r")
        texts.append(language.data.Encoded(ids, 5 + len(texts)))
    noted.put(language, "apart", "rows")
    assert language.ladder(argparse.Namespace(short=is_short), 7, texts, "parts") == "rows"
    files = [(str(tmp_path / "a.bin"), "<u2", 5), (str(tmp_path / "b.bin"), "<u4", 6)]
    assert noted.calls == [("apart", "parts", language.rivals, files, 7, most, "parts")]
    noted.put(language.data, "spread", lambda ids, _: ids)
    noted.put(language.data, "n_grams", [2.0, 1.5])
    noted.put(language.data, "compressed", {})
    rows = language.rivals(files, 7, 1002, "parts")
    assert [(name, loss) for name, loss, _ in rows[1:]] == [("1-grams", 2.0), ("2-grams", 1.5)]
    calls = {name: given for name, *given in noted.calls[1:]}
    spreads = [(len(ids), ids.dtype.str, n) for name, ids, n in noted.calls[1:3]]
    assert spreads == [(9, "<u2", 1002), (9, "<u4", 250)]
    assert calls["compressed"] == ["parts"]


@pytest.mark.parametrize(("is_short", "texts", "best"), [
    (False, [], 1), (True, ["a.txt"], 1), (False, ["a.txt"], 0),
])  # fmt: skip
def test_a_report_has_the_loss_beside_those_of_others(
    example, language, noted, capsys, monkeypatch, tmp_path, is_short, texts, best
):
    model, args = model_of(example), argparse.Namespace(
        short=is_short, texts=texts, context=8, out=tmp_path, length=33
    )  # fmt: skip
    ids = np.array([0, 1, 2, 3, 0, 1] * 30)
    trainer = types.SimpleNamespace(
        best_model=lambda: model, text=language.data.Encoded(ids, 360), losses=[3.0, 2.0],
        held_out=[[0.0, 2.0], [9.0, 1.0 if best else 2.0], [10.0, 2.5]],
        windows=types.SimpleNamespace(ids=ids),
    )  # fmt: skip
    noted.put(language, "held_out_loss", 1.5)
    noted.put(language.viz, "plot_curves", "figure")
    noted.put(language.programs, "save_picture")
    noted.put(language, "sampled", lambda *_: iter(["\na", "b\n\nc\n"]))
    noted.put(language, "functions")
    monkeypatch.setattr(sys, "argv", ["a b.py", "--short"])
    language.report(args, trainer, [("uniform", 2.0, 1.25), ("gzip", None, 33.0)])
    warning = ("warning: no step made the held-out loss lower, so this is the model from before "
               "the first step; is the held-out text of another kind?")  # fmt: skip
    command = language.programs.command(["a b.py", "--out", str(tmp_path), "--sample", "abc"])
    assert capsys.readouterr().out.splitlines() == [
        "", f"{'on the held-out text':<40} nats a token  bits a byte",
        f"{'uniform':<40}        2.000        1.250", f"{'gzip':<40}{'':13}       33.000",
        f"{'this model':<40}        1.500        1.082",
        *[warning] * (not best), "", "it writes:", "    ab", "    ", "    c",
        "", f"the best model and loss.png are in {tmp_path}; let it write:", f"  python {command}",
    ]  # fmt: skip
    calls = {call[0]: call[1:] for call in noted.calls}
    assert calls["held_out_loss"][0] is model
    assert calls["held_out_loss"][1] is ids
    assert calls["held_out_loss"][2:] == (8, 16_384 if is_short else 1_000_000)
    (curves,), options = calls["plot_curves"]
    assert options == {"ylabel": "Nats a token", "smooth": 50}
    assert curves["training"] == [3.0, 2.0]
    assert [x.tolist() for x in curves["held out"]] == [[9.0, 10.0], [[2.0, 1.0][best], 2.5]]
    assert calls["save_picture"] == ("figure", tmp_path / "loss.png")
    assert calls["sampled"] == (model, "\n", args, 33)
    assert ("functions" in calls) == (not texts)
    if not texts:
        assert calls["functions"][:2] == (model, args)
        assert calls["functions"][2] is ids


@pytest.mark.parametrize(("text", "begin"), [
    ("  \n abcdefghijklmnopqrstuvwxyz\nmore", "abcdefghijklmnopqrst"), (" \n ", "a text"),
])  # fmt: skip
def test_the_advice_begins_as_the_text_does(language, noted, capsys, tmp_path, text, begin):
    model = types.SimpleNamespace(tokenizer=types.SimpleNamespace(
        decode=lambda ids: text if ids == [5] * 100 else "other"))  # fmt: skip
    for place, name, result in (
        (language, "held_out_loss", 1.5), (language.viz, "plot_curves", None),
        (language.programs, "save_picture", None), (language, "sampled", []),
    ):  # fmt: skip
        noted.put(place, name, result)
    noted.put(language.programs, "command", " ".join)
    trainer = types.SimpleNamespace(
        best_model=lambda: model, text=language.data.Encoded(np.zeros(9), 9), losses=[],
        held_out=[[0.0, 2.0], [9.0, 1.0]], windows=types.SimpleNamespace(ids=np.array([5] * 101)),
    )  # fmt: skip
    args = argparse.Namespace(short=True, texts=["a"], context=8, out=tmp_path, length=3)
    language.report(args, trainer, [])
    assert capsys.readouterr().out.endswith(f" --out {tmp_path} --sample {begin}\n")


# train_language_model: the program as a whole


class TrainerOf:
    """What a training has when its program asks for it."""

    def __init__(self, path, **settings):
        self.losses, self.path, self.is_stopped = [1.0] * 1234, path, False
        self.since_best, self.progress, self.ran = 0, 0.5, 0
        vars(self).update(settings)

    def run(self):
        self.ran += 1


@pytest.mark.parametrize("settings", [
    {}, {"since_best": 3}, {"since_best": 2}, {"since_best": 3, "progress": 1.0},
    {"progress": 1.0}, {"is_stopped": True},
], ids=["ends", "patience", "almost", "patience at the end", "done", "stopped"])  # fmt: skip
@pytest.mark.parametrize("steps", [None, 9])
def test_a_training_says_what_it_reads_learns_and_why_it_ends(
    language, noted, capsys, monkeypatch, tmp_path, settings, steps
):
    for name in ("b", "a", "copy", "more"):
        (tmp_path / f"{name}.txt").write_text({"b": "b", "more": "a"}.get(name, "a") * 50)
    (tmp_path / "none.png").write_bytes(b"\0")
    (tmp_path / "wrong.txt").write_bytes(b"a\xff")
    out = tmp_path / "out"
    monkeypatch.setattr(language.Run, "saved", None)
    trainer = TrainerOf(tmp_path / "checkpoint", **settings)
    frozen, model = ta.nn.Linear(3, 500), ta.nn.Linear(1, 1)
    model.more = frozen.requires_grad_(False)
    model.config = {"vocab_size": 7, "model_type": "gpt2"}
    training, held_out = (types.SimpleNamespace(ids=range(n)) for n in (1000, 2345))
    noted.put(language.programs, "need_pictures")
    noted.put(language.ta, "manual_seed")
    noted.put(language, "model_and_text", (model, training, held_out))
    noted.put(language, "ladder", "rows")
    noted.put(language, "Trainer", trainer)
    noted.put(language, "go_on")
    noted.put(language, "report")
    noted.put(language, "how_to_go_on", "go on")
    args = argparse.Namespace(texts=[str(tmp_path)], out=out, short=False, seed=5, patience=3,
                              steps=steps)  # fmt: skip
    if trainer.is_stopped:
        with pytest.raises(SystemExit, match="130"):
            language.train(args, "state")
    else:
        language.train(args, "state")
    names = [call[0] for call in noted.calls]
    assert names == ["need_pictures", "manual_seed", "model_and_text", "ladder", "Trainer", "go_on",
                     "how_to_go_on" if trainer.is_stopped else "report"]  # fmt: skip
    parts = noted.calls[2][2]
    assert noted.calls[1:6] == [
        ("manual_seed", 5), ("model_and_text", args, parts),
        ("ladder", args, 7, (training, held_out), parts),
        ("Trainer", args, model, training, held_out), ("go_on", trainer, "state", 5),
    ]  # fmt: skip
    assert parts == language.data.divided([tmp_path / "a.txt", tmp_path / "b.txt"])
    assert (trainer.ran, language.Run.saved) == (1, trainer.path)
    if not trainer.is_stopped:
        assert noted.calls[-1] == ("report", args, trainer, "rows")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == ("2 files of text, 100 bytes; 2 files and folders are left out: no texts, "
                        "links to folders, or not readable")  # fmt: skip
    assert lines[1].startswith(f"  {tmp_path / 'wrong.txt'} is not in UTF-8: byte 1")
    a, copy = tmp_path / "a.txt", tmp_path / "copy.txt"
    done = "this run has done all that it was asked for: it goes on with more "
    assert lines[2:] == [
        f"{copy} has the contents of {a}, so it is left out, and so on of 2 copies",
        *[done + ("--steps" if steps else "--minutes")] * (trainer.progress >= 1),
        "1,000 tokens to learn from, 2,345 held out; a gpt2 model, which learns 2 numbers",
        *["stopped after 1,234 steps; go on"] * trainer.is_stopped,
        *["stopped: 3 times no lower held-out loss"] * (settings == {"since_best": 3}),
    ]
    with pytest.raises(ValueError, match="the text is not the one that this run has learned from"):
        language.train(argparse.Namespace(**vars(args) | {"digest": "other"}), None)


@pytest.mark.parametrize("sample", [None, "", "some"])
def test_a_program_writes_or_trains(language, noted, capsys, sample):
    args, times = argparse.Namespace(sample=sample), iter([10.0, 22.6])
    noted.put(language, "options", "parser")
    noted.put(language, "checked_options", (args, "state"))
    noted.put(language, "write")
    noted.put(language, "train")
    noted.put(language, "memory", ", 7 MB")
    noted.put(language.time, "perf_counter", lambda: next(times))
    language.main()
    calls = [call for call in noted.calls if call[0] in ("checked_options", "write", "train")]
    does = ("train", args, "state") if sample is None else ("write", args)
    assert calls == [("checked_options", "parser"), does]
    assert capsys.readouterr().out == ("13 seconds, 7 MB\n" if sample is None else "")
