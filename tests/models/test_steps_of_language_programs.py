"""The steps of the programs that train a language model and talk with one: what each passes on,
prints and writes, with stand-ins for what takes time."""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from test_causal import needs_tokenizers

import tinyattn as ta
from tinyattn import nn

pytestmark = needs_tokenizers


@pytest.fixture
def language(example):
    return example("train_language_model")


def options_of(language, *given, **more):
    args = language.options().parse_args([*map(str, given)])
    sizes = language.SIZES["tiny"]
    for name, value in zip(language.NAMES, sizes, strict=True):
        setattr(args, name, getattr(args, name) or value)
    args.kind = args.kind or "llama"
    vars(args).update({"digest": "d", **more})
    return args


def tiny_model(example, signs="abc\n"):
    sizes = {"vocab_size": len(signs), "hidden_size": 8, "num_hidden_layers": 2}
    more = {"num_attention_heads": 2, "intermediate_size": 8, "max_position_embeddings": 16}
    model = ta.models.CausalLM({"model_type": "llama", **sizes, **more})
    model.tokenizer = example("language_data").character_tokenizer(sorted(signs))
    return model


# train_language_model: the model and its text


@pytest.mark.parametrize("rank", [1, 3, 8, 11])
@pytest.mark.parametrize("template", [None, "{{ bos_token }}"])
def test_a_lora_has_the_rank_of_the_option_in_its_three_matrices(
    example, language, noted, tmp_path, rank, template
):
    old = tiny_model(example)
    old.chat_template = template
    old.save_pretrained(tmp_path / "old")
    parts = language.data.Parts([], [])
    noted.put(language, "apart")
    noted.put(language, "read_text", [types.SimpleNamespace(ids=[0] * 99)] * 2)
    noted.put(language.data, "check_tokens")
    args = options_of(language, "--from", tmp_path / "old", "--lora", rank, "--out", tmp_path)
    model, training, held_out = language.model_and_text(args, parts)
    found = {name: x for name, x in model.named_modules() if isinstance(x, nn.LoRA)}
    names = [f"self_attn.{x}" for x in ("W_q", "W_v")] + ["feed_forward.w_2"]
    assert {*found} == {f"encoder.layers.{i}.{name}" for i in range(2) for name in names}
    assert {x.A.shape[0] for x in found.values()} == {x.B.shape[1] for x in found.values()}
    assert {x.A.shape[0] for x in found.values()} == {rank}
    learned = {name.split(".")[-1] for name, x in model.named_parameters() if x.requires_grad}
    assert learned == {"A", "B"}
    assert model.training
    usual = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    assert model.chat_template == (template or usual)
    folder = language.folder_of_ids(args)
    assert noted.calls == [
        ("check_tokens", model.tokenizer, parts),
        ("apart", parts, language.write_ids, args, parts, model.tokenizer),
        ("read_text", folder, parts, 0),
    ]
    assert training is held_out


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize(("width", "inner", "deviation"), [
    (8, 24, 0.1591), (24, 64, 0.0919), (36, 96, 0.075), (60, 160, 0.0581),
])  # fmt: skip
def test_a_new_model_has_the_config_of_the_options(language, kind, width, inner, deviation):
    args = options_of(
        language, "--kind", kind, "--width", width, "--layers", 3, "--heads", 2,
        "--context", 12, "--dropout", 0.25,
    )  # fmt: skip
    config = language.new_model(args, 17).config
    expected = {
        "attention_dropout": 0.25, "resid_pdrop": 0.25, "embd_pdrop": 0.25,
        "initializer_range": 0.02 if kind == "gpt2" else deviation, "model_type": kind,
        "vocab_size": 17, "hidden_size": width, "num_hidden_layers": 3, "num_attention_heads": 2,
        "intermediate_size": 4 * width if kind == "gpt2" else inner,
        "max_position_embeddings": 12, "tie_word_embeddings": True,
    }  # fmt: skip
    assert {name: config[name] for name in expected} == expected


@pytest.mark.parametrize("given", [None, "characters", "bpe"])
@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize("are_many", [False, True])
def test_tokens_are_characters_of_a_small_text_or_as_the_option_says(
    language, noted, capsys, given, is_large, are_many
):
    few = language.data.FEW
    assert few == 4_000_000
    spans = [language.data.Span(Path("a"), 0, few - 1 + is_large)]
    parts = language.data.Parts(spans, [])
    noted.put(language.data, "characters_of", None if are_many else ["a"] * 1234)
    noted.put(language.data, "character_tokenizer", "of characters")
    noted.put(language.data, "sample", "texts")
    bpe = types.SimpleNamespace(get_vocab_size=lambda: 5678)
    noted.put(language.data, "bpe_tokenizer", bpe)
    args = options_of(language, *(["--tokens", given] if given else []), "--words", 300)
    found, said = language.tokenizer_of(args, parts), capsys.readouterr().out
    asked = given == "characters" or (given is None and not is_large)
    calls = [("characters_of", parts)] * asked
    if asked and not are_many:
        assert found == "of characters"
        assert said == "its tokens are 1,234 kinds of characters\n"
        assert noted.calls == [*calls, ("character_tokenizer", ["a"] * 1234)]
        return
    assert found is bpe
    assert said == "its tokens are 5,678 pieces of bytes, by byte-level BPE\n"
    more = [("sample", spans, 8_000_000), ("bpe_tokenizer", "texts", 300)]
    assert noted.calls == [*calls, *more]


def test_a_run_that_goes_on_has_the_tokens_that_it_had(language, noted, tmp_path):
    (tmp_path / "tokenizer.json").write_bytes(b"some")
    noted.put(language, "read_tokenizer_json", "the old one")
    args = options_of(language, "--resume", "--out", tmp_path)
    assert language.tokenizer_of(args, language.data.Parts([], [])) == "the old one"
    assert noted.calls == [("read_tokenizer_json", b"some")]


@pytest.mark.parametrize("is_given", [False, True])
def test_the_tokens_are_written_beside_the_ids(language, noted, tmp_path, is_given):
    own, other = (types.SimpleNamespace(to_str=lambda x=x: x) for x in ("öwn", "other"))
    noted.put(language, "tokenizer_of", own)
    noted.put(language, "read_text")
    args, parts = options_of(language, "--out", tmp_path), language.data.Parts([], [])
    language.write_ids(args, parts, other if is_given else None)
    folder = language.folder_of_ids(args)
    assert (folder / "tokenizer.json").read_text("utf-8") == ("other" if is_given else "öwn")
    first = [] if is_given else [("tokenizer_of", args, parts)]
    assert noted.calls == [*first, ("read_text", folder, parts, 0)]


@pytest.mark.parametrize("rank", [0, 1])
def test_both_parts_are_read_with_a_bar_of_their_bytes(example, language, noted, tmp_path, rank):
    tokenizer = example("language_data").character_tokenizer("abc")
    (tmp_path / "tokenizer.json").write_text(tokenizer.to_str(), "utf-8")
    bars = []

    class Bar:
        def __init__(self, **options):
            bars.append(options)

        def __enter__(self):
            return types.SimpleNamespace(update=len(bars))

        def __exit__(self, *_):
            bars.append("end")

    noted.put(language, "tqdm", Bar)
    noted.put(language.data, "encoded", lambda *given: given[0][0])
    parts = language.data.Parts([("a", 2, 9), ("b", 0, 4)], [("c", 1, 3)])
    assert language.read_text(tmp_path, parts, rank) == [("a", 2, 9), ("c", 1, 3)]
    always = {"unit": "B", "unit_scale": True, "leave": False, "disable": True if rank else None}
    assert bars == [
        {"total": 11, "desc": "reading, training"} | always, "end",
        {"total": 2, "desc": "reading, held out"} | always, "end",
    ]  # fmt: skip
    first, second = (call for call in noted.calls if call[0] == "encoded")
    assert (first[1], *first[3:]) == (parts.training, tmp_path / "training.bin", 1)
    assert (second[1], *second[3:]) == (parts.held_out, tmp_path / "held_out.bin", 3)
    assert first[2] is second[2]
    assert first[2]("cab").tolist() == [2, 0, 1]


# train_language_model: the steps of the training


@pytest.mark.parametrize("context", [3, 4])
@pytest.mark.parametrize("part", ["text", "held-out part"])
def test_a_part_has_a_window_and_its_target(example, language, noted, tmp_path, part, context):
    texts = [types.SimpleNamespace(ids=[0] * (4 if name == part else 99))
             for name in ("text", "held-out part")]  # fmt: skip
    for name, result in {"apart": None, "read_text": texts}.items():
        noted.put(language, name, result)
    args = options_of(language, "--context", context, "--out", tmp_path / "x")
    folder = language.folder_of_ids(args)
    folder.mkdir(parents=True)
    tokenizer = example("language_data").character_tokenizer("abc")
    (folder / "tokenizer.json").write_text(tokenizer.to_str(), "utf-8")
    if context == 4:
        said = f"^the {part} is too short: it has 4 tokens, and a window has 5; give more text, or"
        with pytest.raises(ValueError, match=f"{said} a smaller --context$"):
            language.model_and_text(args, language.data.Parts([], []))
        assert folder.exists()  # it was there before
        return
    model, *found = language.model_and_text(args, language.data.Parts([], []))
    assert found == texts
    assert model.config["vocab_size"] == model.tokenizer.get_vocab_size() == 3


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("failure", [None, ValueError, OSError, KeyError])
@pytest.mark.parametrize("is_new", [False, True])
def test_a_text_that_is_refused_leaves_no_folder_and_ends_all_ranks(
    example, language, noted, tmp_path, rank, failure, is_new
):
    """Rank 0 alone writes; a folder that was there stays, and one after an error of the disk."""
    args, parts = options_of(language, "--out", tmp_path / "a"), language.data.Parts([], [])
    folder = language.folder_of_ids(args)

    def make(*_):
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer = example("language_data").character_tokenizer("abc")
        (folder / "tokenizer.json").write_text(tokenizer.to_str(), "utf-8")
        if failure:
            raise failure("no")

    if not is_new or rank:  # of another rank the first has made it
        with contextlib.suppress(Exception):
            make()
    noted.put(language, "get_rank", rank)
    noted.put(language, "all_reduce", lambda failed: failed or int(failure is not None and rank))
    noted.put(language, "apart", make)
    noted.put(language, "read_text", [types.SimpleNamespace(ids=[0] * 99)] * 2)
    if failure is None:
        language.model_and_text(args, parts)
        assert ("read_text", folder, parts, rank) in noted.calls
        assert [call for call in noted.calls if call[0] == "all_reduce"] == [("all_reduce", 0)] * 2
    elif rank:
        with pytest.raises(SystemExit, match="2"):
            language.model_and_text(args, parts)
    else:
        with pytest.raises(failure, match="no"):
            language.model_and_text(args, parts)
    assert (("apart", parts, language.write_ids, args, parts, None) in noted.calls) == (not rank)
    is_gone = failure is ValueError and is_new and not rank
    assert (folder.exists(), args.out.exists()) == (not is_gone, not is_gone)


@pytest.mark.parametrize(("steps", "warmup"), [
    (None, 100), (1, 1), (9, 1), (10, 1), (25, 2), (999, 99), (1000, 100), (5000, 100),
])  # fmt: skip
def test_the_rate_rises_and_falls_as_a_cosine_to_a_tenth(language, steps, warmup):
    args = argparse.Namespace(steps=steps, lr=0.02)
    for progress, share in ((0.0, 1.0), (1 / 3, 0.775), (0.5, 0.55), (1.0, 0.1), (1.5, 0.1)):
        for step in {0, warmup // 2, warmup - 1, warmup, 10 * warmup}:
            expected = 0.02 * share * min(1, (step + 1) / warmup)
            assert language.rate_at(args, step, progress) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("system", "said"), [("linux", ", 1573 MB"), ("darwin", ", 2 MB")])
def test_the_memory_is_counted_in_the_unit_of_the_system(language, monkeypatch, system, said):
    resource = types.SimpleNamespace(
        RUSAGE_SELF="own", getrusage=lambda who: types.SimpleNamespace(ru_maxrss=1_536_000)
    )
    monkeypatch.setitem(sys.modules, "resource", resource)
    monkeypatch.setattr(sys, "platform", system)
    assert language.memory() == said
    monkeypatch.setitem(sys.modules, "resource", None)
    assert language.memory() == ""


@pytest.mark.parametrize(("words", "sizes"), [(7, [15, 15, 14, 14, 14]), (1 << 17, [8] * 9)])
def test_a_batch_that_is_measured_has_not_too_many_scores(language, noted, words, sizes):
    noted.put(language, "loss_of", ta.tensor(2.0))
    model = nn.Linear(1, 1)
    model.config = {"vocab_size": words}
    assert language.MOST_SCORES == 1 << 22
    assert language.held_out_loss(model, np.zeros(72 * 4 + 1, int), 4, 10**9) == 2.0
    assert [len(ids) for _, _, ids, _ in noted.calls] == sizes
    noted.calls.clear()
    model.config = {"vocab_size": 1 << 23}
    language.held_out_loss(model, np.zeros(13, int), 4, 10**9)
    assert [len(ids) for _, _, ids, _ in noted.calls] == [1] * 3


def trainer_of(example, language, tmp_path, *given, **more):
    model = tiny_model(example)
    ids = np.arange(200) % 4
    training = language.data.Encoded(ids, 200)
    held_out = language.data.Encoded(ids[:90].astype(np.uint16), 150)
    sizes = ["--context", 8, "--batch", 3, "--out", tmp_path]
    args = options_of(language, *sizes, *given, **more)
    return language.Trainer(args, model, training, held_out)


def test_a_training_has_the_settings_of_the_options(example, language, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    given = ["a.txt", "--seed", 5, "--weight-decay", 0.3, "--lr", 0.02, "--patience", 3]
    trainer = trainer_of(example, language, tmp_path, *given)
    windows = language.Windows(np.arange(200) % 4, 8, 3, 5)
    for step in (0, 7):
        for mine, right in zip(trainer.windows[step], windows[step], strict=True):
            assert mine.tolist() == right.tolist()
    matrices, others = trainer.optimizer.param_groups
    assert {p.ndim for p in matrices["params"]} == {2}
    assert {p.ndim for p in others["params"]} == {1}
    assert (matrices["weight_decay"], others["weight_decay"]) == (0.3, 0.0)
    assert {(group["lr"], group["betas"]) for group in (matrices, others)} == {(0.02, (0.9, 0.99))}
    assert (trainer.patience, trainer.path) == (3, tmp_path / "checkpoint.safetensors")
    assert trainer.parts == {"model": trainer.model, "optimizer": trainer.optimizer}
    assert trainer.settings["texts"] == [str(tmp_path / "a.txt")]
    assert trainer.settings["seed"] == 5
    assert not {"out", "resume", "overwrite"} & {*trainer.settings}


def test_a_step_learns_from_its_batch_with_its_rate(example, language, noted, tmp_path):
    trainer = trainer_of(example, language, tmp_path, "--steps", 20, "--accumulate", 2)
    noted.put(language, "rate_at", 0.125)
    noted.put(language.optim, "clip_grad_norm_")
    noted.put(trainer.optimizer, "step")
    noted.put(trainer.optimizer, "zero_grad")
    noted.put(trainer, "record")
    noted.put(language, "loss_of", lambda model, ids, _: ta.tensor(float(len(ids))))
    noted.put(trainer.parallel, "accumulate", lambda losses, weights: [x().item() for x in losses])
    trainer.losses = [1.0] * 5
    trainer.learn(5)
    assert {group["lr"] for group in trainer.optimizer.param_groups} == {0.125}
    assert [name for name, *_ in noted.calls] == [
        "rate_at", "rate_at", "zero_grad", "accumulate", "loss_of", "loss_of", "clip_grad_norm_",
        "step", "record",
    ]  # fmt: skip
    assert noted.calls[0] == ("rate_at", trainer.args, 5, 0.25)
    rows = [(ids.tolist(), targets.tolist()) for _, _, ids, targets in noted.calls[4:6]]
    whole = [x.tolist() for x in trainer.windows[5]]
    assert rows == [tuple(x[:2] for x in whole), tuple(x[2:] for x in whole)]
    assert noted.calls[3][2] == [16, 8]
    _, parameters, most = noted.calls[6]
    assert [id(p) for p in parameters] == [id(p) for p in trainer.model.parameters()]
    assert most == 1.0
    assert noted.calls[-1] == ("record", [2.0, 1.0])


@pytest.mark.parametrize(("given", "expected", "progress", "since"), [
    (["--steps", 50], (50, math.inf), 0.2, 0.12), (["--minutes", 2], (sys.maxsize, 120), 0.5, 0.3),
])  # fmt: skip
def test_a_run_has_steps_or_minutes(
    example, language, noted, tmp_path, given, expected, progress, since
):
    trainer = trainer_of(example, language, tmp_path, *given)
    noted.put(trainer, "measure", lambda: trainer.held_out.append([len(trainer.losses), 1.0]))
    noted.put(trainer, "steps", ())
    trainer.run()
    assert noted.calls == [("measure",), ("steps", *expected)]
    trainer.losses, trainer.elapsed, trainer.held_out = [1.0] * 10, 60.0, [[0, 1.0], [4, 2.0]]
    assert trainer.progress == pytest.approx(progress)
    assert trainer.since_measured == pytest.approx(since)


def test_the_best_model_has_its_loras_merged_and_leaves_the_one_in_training(
    example, language, tmp_path
):
    trainer = trainer_of(example, language, tmp_path)
    nn.LoRA.insert(trainer.model, ["W_q"], 2)
    trainer.measured(1.0)
    best = {name: x.numpy().copy() for name, x in trainer.model.state_dict().items()}
    for x in trainer.model.parameters():
        x.data = x + 1
    found = trainer.best_model()
    assert not [x for x in found.modules() if isinstance(x, nn.LoRA)]
    assert len([x for x in trainer.model.modules() if isinstance(x, nn.LoRA)]) == 2
    for name, x in found.state_dict().items():
        if name in best:
            assert np.array_equal(x.numpy(), best[name]), name
    trainer.best = None
    table = trainer.best_model().state_dict()["word.weight"]
    assert np.array_equal(table.numpy(), best["word.weight"] + 1)


def test_a_measurement_says_how_it_goes(example, language, noted, capsys, monkeypatch, tmp_path):
    """In the place of the run that was there: the folders of ids of others go."""
    trainer = trainer_of(example, language, tmp_path, "--steps", 40)
    monkeypatch.setattr(language.Run, "saved", None)
    own = language.folder_of_ids(trainer.args)
    for folder in (own, tmp_path / "ids" / "other"):
        folder.mkdir(parents=True)
    trainer.path.touch()
    losses = iter([1.3, 1.2, 1.25, 1.1, 1.15, 1.0])
    noted.put(language, "held_out_loss", lambda *_: next(losses))
    noted.put(language, "memory", ", 7 MB")
    noted.put(language, "sampled", lambda *_: iter(["\na", "b\nc"]))
    noted.put(language, "refuse_lost_run", lambda _: noted.calls.append(trainer.path.exists()))
    noted.put(trainer, "save", lambda: noted.calls.append(trainer.path.exists()))
    noted.put(ta.models.CausalLM, "save_pretrained")
    trainer.measure()
    assert [x for x in noted.calls if isinstance(x, bool)] == [True, False]
    assert list((tmp_path / "ids").iterdir()) == [own]
    assert language.Run.saved == trainer.path
    held_out = ("held_out_loss", trainer.model, trainer.text.ids, 8, 16_384)
    assert noted.calls[0] == held_out
    first = "before the first step the held-out loss is 1.300, of a uniform guess 1.386"
    assert capsys.readouterr().out == f"{first} nats a token\n"
    trainer.losses = [9.0] * 9 + [2.0] * 1
    trainer.measure()
    begin = "step 10: loss 8.300, held out 1.200, 1.039 bits a byte"
    assert capsys.readouterr().out == f"{begin}, 7 MB, the best\n"
    trainer.elapsed = 30.0
    trainer.measure()
    trainer.losses = [9.0] * 1000 + [2.0] * 49 + [4.5]
    trainer.args.steps = 1400
    trainer.measure()
    second, third = capsys.readouterr().out.splitlines()
    more = "8 tokens a second, 7 MB, 1.5 minutes left"
    assert second == f"step 10: loss 8.300, held out 1.250, 1.082 bits a byte; {more}"
    more = "840 tokens a second, 7 MB, 0.2 minutes left, the best"
    assert third == f"step 1,050: loss 2.050, held out 1.100, 0.952 bits a byte; {more}"
    trainer.measure()
    assert capsys.readouterr().out.splitlines()[1:] == ["    ab", "    c"]
    assert noted.calls[-1] == ("sampled", trainer.model, "\n", trainer.args, 100)
    trainer.measure()
    assert len(capsys.readouterr().out.splitlines()) == 1
    saved = [x for x in noted.calls if not isinstance(x, bool) and x[0] == "save_pretrained"]
    assert [out for _, _, out in saved] == [tmp_path] * 4  # each time that it is the best
