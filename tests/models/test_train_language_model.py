"""The example that trains a language model: its texts, its tokens, whole runs, what is refused."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from test_causal import needs_tokenizers

import tinyattn as ta

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = needs_tokenizers
TEXT = "".join(f"{i} green bottles, hanging on the wall\n" for i in range(400))
TINY = ["--size", "tiny", "--width", "16", "--layers", "1", "--context", "16", "--batch", "4"]


class Killed(BaseException):
    """What no program catches, in the place of `kill -9`."""


@pytest.fixture
def data(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("language_data")


@pytest.fixture
def program(monkeypatch, tmp_path):
    """The program, with options, in a folder of its own."""
    for package in ("tqdm", "matplotlib"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = importlib.import_module("train_language_model")
    (tmp_path / "text.txt").write_text(TEXT, "utf-8")
    monkeypatch.chdir(tmp_path)

    def call(*options):
        monkeypatch.setattr(sys, "argv", ["train_language_model.py", *map(str, options)])
        example.main()

    return call


def complaint(program, capsys, *options):
    with pytest.raises(SystemExit) as caught:
        program(*options)
    assert caught.value.code == 2
    return capsys.readouterr().err.strip().splitlines()[-1]


def test_a_run_learns_writes_and_is_opened(program, capsys, monkeypatch):
    program("text.txt", *TINY, "--steps", "40", "--lr", "0.03")
    out = capsys.readouterr().out
    first, uniform = map(
        float, re.findall(r"held-out loss is (.*), of a uniform guess (\S*)", out)[0]
    )
    assert first == pytest.approx(uniform, rel=0.05)
    for line in ("uniform", "7-grams", "gzip", "this model", "it writes:"):
        assert line in out
    folder = Path("runs/language_model")
    assert (folder / "loss.png").stat().st_size > 1000
    model = ta.models.CausalLM.from_pretrained(folder)
    text = "".join(model.generate_text("4 green", 9))
    assert text
    assert set(text) <= set(TEXT)
    program("--sample", "9 grün", "--length", "40", "--temperature", "0")  # beyond 16 positions
    out, said = capsys.readouterr()
    assert said.startswith("it has never seen 'ü', so it reads the text without them\n")
    assert len(out) == len("9 grün") + 40 + 1
    assert complaint(program, capsys, "text.txt").startswith(
        "train_language_model.py: runs/language_model has a run of 40 of 40 steps"
    )
    chat = importlib.import_module("chat")
    chat.main(["--folder", str(folder), "--tokens", "5", "4 green"])
    assert len(capsys.readouterr().out.strip("\n")) <= 5


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_dropout_is_in_all_places_of_a_new_model(kind, program):
    program("text.txt", *TINY, "--kind", kind, "--steps", "1", "--dropout", "0.25")
    model = ta.models.CausalLM.from_pretrained("runs/language_model")
    drops = {name: m.p for name, m in model.named_modules() if isinstance(m, ta.nn.Dropout)}
    # What is dropped inside of a feed-forward is dropped by no published model.
    inside = "feed_forward.dropout"
    assert len([name for name in drops if inside not in name]) == 4, drops
    assert {p for name, p in drops.items() if inside not in name} == {0.25}


def test_every_kind_of_run_learns_in_training_and_measures_in_evaluation(program, monkeypatch):
    """Also one that goes on with a model or with a run: else it would drop nothing."""
    language = importlib.import_module("train_language_model")
    learn, modes = language.Trainer.learn, []

    def modes_of(model):
        return {module.training for module in model.modules()}

    def learned(self, step):
        modes.append(("learns", modes_of(self.model)))
        return learn(self, step)

    def loss_of(model, *batch, scores_of=language.loss_of):
        if not ta.is_grad_enabled():
            modes.append(("measures", modes_of(model)))
        return scores_of(model, *batch)

    monkeypatch.setattr(language.Trainer, "learn", learned)
    monkeypatch.setattr(language, "loss_of", loss_of)
    more = ["--steps", "2", "--dropout", "0.25"]
    for options in (
        [*TINY, *more, "--out", "first"],
        ["--from", "first", "--steps", "2", "--out", "second"],
        ["--from", "first", "--steps", "2", "--out", "third", "--lora", "2"],
        ["--out", "first", "--resume", "--steps", "4"],
    ):
        modes.clear()
        program(*([] if "--resume" in options else ["text.txt"]), *options)
        assert ("learns", {True}) in modes
        assert {str(mode) for mode in modes} <= {"('learns', {True})", "('measures', {False})"}
    model = ta.models.CausalLM.from_pretrained("second")
    assert {m.p for m in model.modules() if isinstance(m, ta.nn.Dropout)} == {0.25, 0.0}


SIGNALS = [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.extended)]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_run_that_is_stopped_goes_on_bit_by_bit(number, program, capsys, monkeypatch):
    more = ["--dropout", "0.1", "--accumulate", "3", "--seed", "3", "--steps", "15"]
    program("text.txt", *TINY, *more, "--out", "whole")
    loop = importlib.import_module("train_language_model").TrainingLoop
    record = loop.record

    def record_and_stop(self, loss):
        record(self, loss)
        if len(self.losses) in (6, 9):
            os.kill(os.getpid(), number)

    monkeypatch.setattr(loop, "record", record_and_stop)
    with pytest.raises(SystemExit, match="130"):
        program("text.txt", *TINY, *more, "--out", "parts")
    assert "stopped after 6 steps; go on from there with:" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="130"):
        program("--out", "parts", "--resume")
    program("--out", "parts", "--resume")
    for name in ("checkpoint.safetensors", "model.safetensors"):
        first, second = (flat(ta.load(f"{out}/{name}")) for out in ("whole", "parts"))
        assert first.keys() == second.keys()
        for key, value in first.items():
            assert key == ".elapsed" or np.array_equal(value, second[key]), key
    assert complaint(program, capsys, "--out", "parts", "--resume", "--width", "32").endswith(
        "--overwrite or in another folder (--out)"
    )


def flat(state, name=""):
    """The numbers and texts of a checkpoint, by their names."""
    if isinstance(state, dict):
        pairs = [(f"{name}.{key}", value) for key, value in state.items()]
        return {k: v for key, value in pairs for k, v in flat(value, key).items()}
    return {name: state.numpy() if isinstance(state, ta.Tensor) else state}


@pytest.mark.extended
@pytest.mark.parametrize("longer", [40, 100])
def test_a_run_that_goes_on_for_longer_is_measured_on_the_way(longer, program):
    program("text.txt", *TINY, "--steps", "20")
    program("--resume", "--steps", longer)
    state = ta.load("runs/language_model/checkpoint.safetensors")
    steps = [step for step, _ in state["held_out"].tolist()]
    assert steps[:11] == list(range(0, 21, 2))
    assert steps[11:] == list(range(20 + longer // 10, longer + 1, longer // 10))


def test_a_run_of_steps_goes_on_for_minutes(program, monkeypatch):
    """--minutes was taken, and changed nothing, because the run had done its steps."""
    language = importlib.import_module("train_language_model")
    program("text.txt", *TINY, "--steps", "2")
    for options, steps, minutes in (
        (["--minutes", "5"], None, 5),  # which is the default too
        (["--minutes", "0.5"], None, 0.5),
        (["--steps", "9"], 9, None),
        (["--steps", "9", "--minutes", "5"], 9, None),
        ([], 2, None),
    ):
        monkeypatch.setattr(sys, "argv", ["train_language_model.py", "--resume", *options])
        args, _ = language.checked_options(language.options())
        assert (args.steps, args.minutes) == (steps, minutes)
    program("--resume", "--minutes", "0.01")
    state = ta.load("runs/language_model/checkpoint.safetensors")
    assert len(state["losses"]) > 2
    assert (state["settings"]["steps"], state["settings"]["minutes"]) == (None, 0.01)


def test_a_finished_run_says_so(program, capsys):
    more = ["--out", "some", "--minutes", "0.001"]
    program("text.txt", *TINY, *more)
    said = complaint(program, capsys, "text.txt", *TINY, *more)
    assert re.search(r"some has a run of \d+ steps: --resume goes on with it, --over", said)
    capsys.readouterr()
    program("--resume", "--out", "some")
    assert "it goes on with more --minutes\n" in capsys.readouterr().out


def test_a_model_that_is_newer_than_the_checkpoint_has_learned(program, monkeypatch, capsys):
    """It is killed, or the disk is full, after a measurement and before the next checkpoint."""
    loop = importlib.import_module("train_language_model").TrainingLoop
    save = loop.save

    def save_or_fail(self):
        if self.losses:
            raise OSError(28, "No space left on device", str(self.path))
        save(self)

    monkeypatch.setattr(loop, "save", save_or_fail)
    said = complaint(program, capsys, "text.txt", *TINY, "--steps", "20", "--lr", "0.03")
    assert "No space left on device; the best model until now is in runs/language_model" in said
    program("--sample", "4 green", "--length", "5")
    assert "learned nothing" not in capsys.readouterr().err


def test_a_run_whose_best_model_is_the_first_says_so(program, capsys):
    program("text.txt", *TINY, "--steps", "2", "--lr", "0")
    assert "warning: no step made the held-out loss lower" in capsys.readouterr().out
    program("text.txt", *TINY, "--steps", "2", "--lr", "0.01", "--overwrite")
    assert "warning" not in capsys.readouterr().out


def test_the_command_that_is_advised_has_the_begin_of_the_text(program, capsys):
    Path("chinese.txt").write_text("春天的河边有一座小桥。\n孩子们在桥上看鱼。\n" * 300, "utf-8")
    program("chinese.txt", *TINY, "--steps", "1")
    assert "--sample 春天的河边有一座小桥。\n" in capsys.readouterr().out.replace("'", "")


def test_a_killed_run_has_a_checkpoint(program, monkeypatch):
    """Without any signal that it could answer: it saves while it trains."""
    loop = importlib.import_module("train_language_model").TrainingLoop
    monkeypatch.setattr(loop.__init__, "__defaults__", (None, 0.0, 9))  # save_every, patience
    record = loop.record

    def killed(self, loss):
        if len(self.losses) == 5:
            raise Killed
        record(self, loss)

    monkeypatch.setattr(loop, "record", killed)
    with pytest.raises(Killed):
        program("text.txt", *TINY, "--steps", "9")
    assert len(ta.load("runs/language_model/checkpoint.safetensors")["losses"]) == 5


@pytest.mark.extended
def test_a_published_model_is_taught(program, capsys):
    program("text.txt", *TINY, "--steps", "20", "--out", "first", "--kind", "gpt2")
    before = ta.load("first/model.safetensors")
    more = ["--from", "first", "--context", "12", "--batch", "2", "--steps", "3"]
    for options in ([], ["--lora", "2"]):
        program("text.txt", *more, *options, "--out", "second", "--overwrite")
        after = ta.load("second/model.safetensors")
        assert before.keys() == after.keys()
        changed = {k for k in before if not np.array_equal(before[k].numpy(), after[k].numpy())}
        assert ("transformer.wte.weight" in changed or "wte.weight" in changed) != bool(options)
    program("text.txt", "--out", "second", "--resume", "--steps", "4")
    assert len(ta.load("second/checkpoint.safetensors")["losses"]) == 4
    start = ["text.txt", "--from", "first", "--out", "x"]
    for option, value in {"width": "8", "kind": "llama", "dropout": "0.1", "words": "300"}.items():
        said = complaint(program, capsys, *start, f"--{option}", value)
        assert said.endswith(f"--from says what the model is: leave out --{option}")


@pytest.mark.extended
def test_the_loss_that_is_not_finite_ends_it(program, capsys):
    said = complaint(program, capsys, "text.txt", *TINY, "--lr", "9", "--steps", "90",
                     "--weight-decay", "9")  # fmt: skip
    assert ": lower the learning rate" in said


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "there is no text in bad.txt"),
        (b"one line", "the text is too short: it has 7 tokens, and a window has 17"),
        (bytes(range(256)), "bad.txt is not a text, because it has a NUL byte"),
        ("caf\xe9 and more".encode("latin-1"), "bad.txt is not in UTF-8: byte 3 is no character"),
        ("hello\n".encode("utf-16-be"), "bad.txt is probably in UTF-16-BE: save it as UTF-8"),
        ("hello".encode("utf-16"), "bad.txt is in UTF-16: save it as UTF-8"),
        (b"a" * 300_000 + b"\xff" + b"a" * 90, "is not in UTF-8: byte 300,000 is no character"),
        (b"a" * 300_000 + b"\0" + b"a" * 90, "bad.txt is not a text, because it has a NUL byte"),
        (b"text " * 900 + "好".encode()[:2], "bad.txt ends within a character: is it cut short?"),
    ],
)
def test_what_is_no_text_gets_a_sentence(content, words, program, capsys):
    Path("bad.txt").write_bytes(content)
    assert words in complaint(program, capsys, "bad.txt", *TINY)
    assert not Path("runs/language_model/model.safetensors").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["none.txt"], "there is no file none.txt"),
        (["--sample", "a", "--out", "none"], "none is not a folder"),
        (["--sample", "a\udce9"], "the text is not UTF-8 at character 1: 'a\\udce9'"),
        (["--resume", "--overwrite"], "argument --overwrite: not allowed with argument --resume"),
        (["text.txt", "--lora", "4"], "name its folder with --from"),
        (["text.txt", "--heads", "3"], "cannot be split into 3 heads"),
        (["--resume", "--out", "none"], "is not there yet: train first"),
        (["text.txt", "--words", "300", "--tokens", "bpe", "--context", "9000"], "is too short"),
    ],
)
def test_what_cannot_be_done_gets_a_sentence(options, words, program, capsys):
    assert words in complaint(program, capsys, *options)


@pytest.mark.extended
def test_a_full_disk_gets_a_sentence(program, capsys, monkeypatch):
    program("text.txt", *TINY, "--steps", "4")
    before = Path("runs/language_model/checkpoint.safetensors").read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tinyattn.training.checkpoint.write_atomically", full)
    said = complaint(program, capsys, "text.txt", "--resume", "--steps", "8")
    kept = "the best model until now is in runs/language_model"
    assert said == f"train_language_model.py: No space left on device; {kept}"
    assert Path("runs/language_model/checkpoint.safetensors").read_bytes() == before


# What is there stays, and nothing is left unsaid


def files_in(folder):
    return {path: path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


@pytest.fixture
def trained(program, capsys):
    """A folder with a run of two steps."""
    program("text.txt", *TINY, "--steps", "2", "--out", "run")
    capsys.readouterr()
    return Path("run")


def test_a_run_that_is_refused_changes_no_other(program, trained, capsys):
    Path("short.txt").write_text("one line", "utf-8")
    Path("other.txt").write_text(TEXT.upper(), "utf-8")
    before = files_in(trained)
    for options in (
        ["other.txt", "--heads", "3"],
        ["short.txt"],
        ["other.txt", "--context", "100000"],
        ["other.txt", "--context", "100000", "--tokens", "bpe"],
        ["other.txt", "--words", "256", "--tokens", "bpe"],
        ["other.txt", "--from", "run"],
    ):
        complaint(program, capsys, *options, "--out", "run", "--overwrite")
        assert files_in(trained) == before, options
    complaint(program, capsys, "short.txt", "--out", "new")
    assert not Path("new").exists()


def test_a_damaged_run_says_how_to_begin_anew(program, trained, capsys):
    path = trained / "checkpoint.safetensors"
    for content in (path.read_bytes()[:-9], b"{}", b""):
        path.write_bytes(content)
        for options in (["text.txt", *TINY], ["--resume"]):
            said = complaint(program, capsys, *options, "--out", "run")
            assert f"{path} is damaged" in said
            assert "--overwrite" in said
    program("text.txt", *TINY, "--steps", "2", "--out", "run", "--overwrite")


def test_ctrl_c_before_the_first_model_saves_nothing(program, trained, capsys, monkeypatch):
    Path("other.txt").write_text(TEXT.upper(), "utf-8")
    before = files_in(trained)
    training = importlib.import_module("training")
    example = importlib.import_module("train_language_model")
    monkeypatch.setattr(training.Run, "saved", None)

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(example, "ladder", interrupt)
    arguments = ["other.txt", *TINY, "--steps", "2", "--out", "run", "--overwrite"]
    with pytest.raises(SystemExit, match="130"):
        training.run_program(lambda: program(*arguments))
    assert "no model was saved" in capsys.readouterr().out
    after = files_in(trained)
    assert {path: after[path] for path in before} == before
    assert {path.parent.parent.name for path in after.keys() - before.keys()} == {"ids"}
    monkeypatch.undo()


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_model_without_a_checkpoint_is_not_overwritten(name, program, capsys):
    Path("model").mkdir()
    Path("model", name).write_text("{}")
    said = complaint(program, capsys, "text.txt", *TINY, "--out", "model")
    assert f"model has a model already, because {name} is there" in said
    assert Path("model", name).read_text() == "{}"


def test_characters_without_a_token_are_refused(program, trained, capsys):
    Path("zh.txt").write_text("你好世界，" * 400 + TEXT, "utf-8")
    said = complaint(program, capsys, "zh.txt", "--from", "run", "--out", "zh")
    assert re.search(r"2,000 of [\d,]+ characters \(.*%\) have no token .* '世'", said)
    assert not Path("zh").exists()


def test_a_run_goes_on_with_its_own_text_only(program, trained, capsys):
    before = files_in(trained)
    Path("text.txt").write_text(TEXT + "more", "utf-8")
    said = complaint(program, capsys, "--out", "run", "--resume", "--steps", "4")
    assert "the text is not the one that this run has learned from" in said
    assert files_in(trained) == before
    Path("text.txt").write_text(TEXT, "utf-8")  # at another time
    program("--out", "run", "--resume", "--steps", "4")


def test_a_run_goes_on_only_where_what_it_learned_from_is_not_held_out(
    program, trained, data, monkeypatch, capsys
):
    before, divided = files_in(trained), data.divided

    def of_an_older_version(files):
        return data.Parts(*reversed(divided(files)))

    monkeypatch.setattr(data, "divided", of_an_older_version)
    said = complaint(program, capsys, "--out", "run", "--resume", "--steps", "4")
    assert "an older version of this program held out other parts" in said
    assert files_in(trained) == before


def test_a_run_goes_on_in_another_folder_of_work_and_with_a_text_that_was_moved(
    program, trained, monkeypatch, capsys
):
    out = Path("run").resolve()
    program("text.txt", "--from", "run", "--steps", "2", "--out", "second")
    second = Path("second").resolve()
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    program("--out", out, "--resume", "--steps", "4")
    program("--out", second, "--resume", "--steps", "3")
    program("../text.txt", "--out", out, "--resume", "--steps", "5")
    Path("../text.txt").rename("moved.txt")
    assert complaint(program, capsys, "--out", out, "--resume").endswith("text.txt")
    program("moved.txt", "--out", out, "--resume", "--steps", "6")
    assert len(ta.load(out / "checkpoint.safetensors")["losses"]) == 6


def test_what_is_no_folder_is_refused_before_the_pieces_are_chosen(program, capsys, monkeypatch):
    module = importlib.import_module("train_language_model")
    monkeypatch.setattr(module, "tokenizer_of", lambda *_: pytest.fail("too late"))
    for out in ("text.txt", "text.txt/out"):
        assert "text.txt" in complaint(program, capsys, "text.txt", *TINY, "--out", out)


def test_a_run_that_another_program_began_meanwhile_stays(program, trained, capsys, monkeypatch):
    example = importlib.import_module("train_language_model")
    ladder = example.ladder

    def begun(*given):
        shutil.copytree(trained, "late", dirs_exist_ok=True)
        return ladder(*given)

    monkeypatch.setattr(example, "ladder", begun)
    said = complaint(program, capsys, "text.txt", *TINY, "--steps", "4", "--out", "late")
    assert "late has a run of" in said
    for path, content in files_in(trained).items():
        assert (Path("late") / path.relative_to(trained)).read_bytes() == content


def test_what_cannot_be_written_gets_a_sentence(program, capsys):
    """tokenizers' own `save` raises a plain Exception."""
    Path("out/tokenizer.json").mkdir(parents=True)
    said = complaint(program, capsys, "text.txt", *TINY, "--out", "out", "--overwrite")
    assert said.endswith("got 'out/tokenizer.json', which is no file")


def test_a_run_that_is_killed_early_goes_on(program, capsys, monkeypatch):
    example = importlib.import_module("train_language_model")

    def killed(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(example.Trainer, "learn", killed)
        with pytest.raises(Killed):
            program("text.txt", *TINY, "--steps", "4", "--out", "run")
    program("--out", "run", "--sample", "4 green", "--length", "5")
    assert "this model has learned nothing yet" in capsys.readouterr().err
    program("--out", "run", "--resume")
    assert len(ta.load("run/checkpoint.safetensors")["losses"]) == 4
    program("--out", "run", "--sample", "4 green", "--length", "5")
    assert "learned nothing" not in capsys.readouterr().err
    program("text.txt", *TINY, "--steps", "4", "--out", "whole")
    one, two = (ta.load(f"{out}/model.safetensors") for out in ("run", "whole"))
    assert all(np.array_equal(one[name].numpy(), two[name].numpy()) for name in two)


def test_a_run_that_ends_early_says_why(program, capsys, monkeypatch):
    example = importlib.import_module("train_language_model")
    monkeypatch.setattr(example, "held_out_loss", lambda *_: 3.0)
    program("text.txt", *TINY, "--steps", "20", "--patience", "2")
    assert "stopped: 2 times no lower held-out loss" in capsys.readouterr().out


@pytest.mark.parametrize(("most", "every"), [(10**6, 1), (40, 5)])
@pytest.mark.parametrize("training", [True, False])
def test_the_held_out_loss_is_the_mean_of_its_windows(data, training, most, every):
    """25 windows in batches of 13 and 12; dropout is off, and the model stays in its mode."""
    example = importlib.import_module("train_language_model")
    sizes = {"vocab_size": 7, "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 8}
    drops = {"resid_pdrop": 0.5, "embd_pdrop": 0.5, "initializer_range": 0.5}
    model = ta.models.CausalLM({"model_type": "gpt2", **sizes, **drops}).double()
    ids = np.random.default_rng(1).integers(0, 7, 201)
    model.eval()
    losses = [
        example.loss_of(model, ids[None, i : i + 8], ids[None, i + 1 : i + 9]).item()
        for i in range(0, 193, 8)
    ][::every]
    model.train(training)
    found = example.held_out_loss(model, ids, 8, most)
    assert found == pytest.approx(np.mean(losses), rel=1e-12)
    assert model.training == model.encoder.training == training


def megabytes_in_memory(path):
    """Of a mapped file, by the lines `Rss: ... kB` of Linux."""
    found, is_of_file = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if not first.endswith(":"):  # the first line of a mapping
            is_of_file = line.endswith(str(path))
        elif first == "Rss:" and is_of_file:
            found += int(line.split()[1])
    return found / 1000


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux has /proc")
def test_a_large_held_out_text_does_not_stay_in_memory(data, tmp_path, monkeypatch):
    """Each window is in another part of the file, so all of them together touch all of it."""
    example = importlib.import_module("train_language_model")
    path, seen = tmp_path / "ids.bin", []
    np.zeros(20_000_000, np.uint16).tofile(path)
    sizes = {"vocab_size": 1000, "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 8}
    model = ta.models.CausalLM({"model_type": "gpt2", **sizes})

    def loss_of(*_):
        seen.append(megabytes_in_memory(path))
        return ta.tensor(1.0)

    monkeypatch.setattr(example, "loss_of", loss_of)
    ids = np.memmap(path, np.uint16, "r")
    assert example.held_out_loss(model, ids, 256, 500_000) == 1.0
    assert len(seen) > 100
    assert max(seen) < 10


def test_a_large_text_is_read_in_another_process(data):
    example = importlib.import_module("train_language_model")
    for size, is_other in ((data.FEW, True), (data.FEW - 1, False)):
        parts = data.Parts([data.Span(Path("text"), 0, size)], [])
        assert (example.apart(parts, os.getpid) != os.getpid()) == is_other


def test_the_process_that_reads_a_large_text_asks_no_rank(program, data, tmp_path, monkeypatch):
    """It is no rank of MPI, which would end it."""
    example = importlib.import_module("train_language_model")
    monkeypatch.setattr(example, "get_rank", lambda: pytest.fail("it is asked for its rank"))
    args = example.options().parse_args(["--out", str(tmp_path / "out")])
    args.digest, parts = "a", data.divided([tmp_path / "text.txt"])
    example.write_ids(args, parts, None)
    assert len(list(tmp_path.glob("out/ids/*/*.bin"))) == 2


def test_a_copy_of_a_text_counts_once(program, capsys):
    Path("copy.txt").write_text(TEXT, "utf-8")
    files = ["text.txt", "./text.txt", "copy.txt", "."]
    program(*files, *TINY, "--steps", "2")
    out = capsys.readouterr().out
    assert out.startswith(f"1 file of text, {len(TEXT):,} bytes\n")
    assert re.search(r"(copy|text).txt has the contents of (copy|text).txt, so it is left out", out)


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_sample_may_have_its_accents_in_the_other_form(form, program, capsys):
    other = {"NFC": "NFD", "NFD": "NFC"}[form]
    Path("text.txt").write_text(unicodedata.normalize(form, TEXT.replace("gr", "grü")), "utf-8")
    program("text.txt", *TINY, "--steps", "1", "--out", "run")
    capsys.readouterr()
    asked = unicodedata.normalize(other, "grün ß")
    program("--out", "run", "--sample", asked, "--length", "3")
    out, said = capsys.readouterr()
    assert said.startswith("it has never seen 'ß', so it reads the text without them\n")
    assert out.startswith(unicodedata.normalize(form, "grün ß"))
    importlib.import_module("chat").main(["--folder", "run", "--tokens", "3", asked])
    assert "it has never seen 'ß', so it reads the text without them\n" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "[1]", '{"made_of'])
def test_a_damaged_note_of_the_ids_is_written_anew(content, program, trained, capsys):
    (note,) = Path("run/ids").glob("*/training.json")
    before = note.read_text("utf-8")
    note.write_text(content, "utf-8")
    program("--out", "run", "--resume", "--steps", "4")
    assert note.read_text("utf-8") == before


def test_a_damaged_checkpoint_says_how_to_begin_anew(program, trained, capsys):
    (trained / "checkpoint.safetensors").write_bytes(b"")
    for options in (["--resume"], ["text.txt"]):
        said = complaint(program, capsys, *options, "--out", "run")
        assert "run/checkpoint.safetensors is damaged" in said
        assert "train again with --overwrite" in said
    program("text.txt", *TINY, "--steps", "2", "--out", "run", "--overwrite")


def test_a_checkpoint_of_another_program_is_refused_before_a_text_is_read(
    program, capsys, monkeypatch
):
    Path("run").mkdir()
    settings = {"steps": 3, "d_model": 8, "no_positions": False}
    ta.save({"settings": settings, "losses": ta.zeros(3)}, "run/checkpoint.safetensors")
    module = importlib.import_module("language_data")
    monkeypatch.setattr(module, "standard_library", lambda: pytest.fail("too late"))
    said = complaint(program, capsys, "--out", "run", "--resume")
    assert said.endswith("run/checkpoint.safetensors was not made by this program")


def test_texts_that_are_named_are_the_only_ones_that_are_sought(program, monkeypatch):
    module = importlib.import_module("language_data")
    monkeypatch.setattr(module, "standard_library", lambda: pytest.fail("sought"))
    program("text.txt", *TINY, "--steps", "1")


@pytest.mark.parametrize("name", ["width", "batch", "context", "lora"])
def test_sizes_of_a_billion_are_refused(name, program, capsys):
    said = complaint(program, capsys, "text.txt", f"--{name}", "1000000000")
    assert said.endswith("must be 1 or more and at most 1,000,000, got 1000000000")


def test_chat_needs_a_character_with_a_token(program, trained, capsys):
    chat = importlib.import_module("chat")
    for prompt in ("你好", ""):
        with pytest.raises(SystemExit, match="2"):
            chat.main(["--folder", "run", prompt])
        said = capsys.readouterr().err
        assert said.endswith("has a token in this model: nothing is left\n")
    assert complaint(program, capsys, "--sample", "你好", "--out", "run").endswith("is left")


def test_what_options_become(program, monkeypatch):
    """Those that are not given are of --size, of --short, or of the model of --from."""
    language = importlib.import_module("train_language_model")
    program("text.txt", *TINY, "--steps", "1", "--out", "first")  # of 16 positions

    def become(*options):
        monkeypatch.setattr(sys, "argv", ["train_language_model.py", *map(str, options)])
        args, state = language.checked_options(language.options())
        assert state is None
        return [getattr(args, name) for name in (*language.NAMES, "kind", "steps", "minutes")]

    tiny, small, medium = ([2, 2, 64, 64, 16, 6e-3], [4, 4, 128, 256, 4, 2e-3],
                           [6, 6, 384, 256, 16, 1e-3])  # fmt: skip
    first = ["--from", "first"]
    for options, sizes, kind, steps in (
        ([], small, "llama", None),
        (["--size", "tiny"], tiny, "llama", None),
        (["--size", "medium", "--kind", "gpt2"], medium, "gpt2", None),
        (["--short"], tiny, "llama", 20),
        (["--short", "--size", "medium"], tiny, "llama", 20),
        (["--short", "--steps", 3], tiny, "llama", 3),
        (["--steps", 3, "--layers", 1, "--lr", 0], [1, *small[1:5], 0], "llama", 3),
        (first, [*small[:3], 16, *small[4:]], "llama", None),
        ([*first, "--context", 12], [*small[:3], 12, *small[4:]], "llama", None),
        ([*first, "--context", 99], [*small[:3], 16, *small[4:]], "llama", None),
        ([*first, "--short"], [*tiny[:3], 16, *tiny[4:]], "llama", 20),
        ([*first, "--batch", 7, "--lr", 1], [*small[:3], 16, 7, 1], "llama", None),
    ):
        minutes = None if steps else 5.0
        assert become("text.txt", *options) == [*sizes, kind, steps, minutes], options


@pytest.mark.parametrize(("options", "number"), [(["--short"], 62), (["--steps", "1"], 62)])
def test_all_files_that_are_named_are_read(options, number, program, capsys, monkeypatch):
    """A trial reads 60 files of the standard library, and all files of a user."""
    data = importlib.import_module("language_data")
    Path("texts").mkdir()
    for i in range(62):
        Path(f"texts/{i}.txt").write_text(f"{i} " + TEXT[:200])
    monkeypatch.setattr(data, "standard_library", lambda: sorted(Path("texts").glob("*.txt")))
    small = ["--context", "8", "--width", "8", "--layers", "1", "--steps", "1"]
    program("texts", *options, *small, "--out", "named")
    assert capsys.readouterr().out.startswith(f"{number} files of text")
    program(*options, *small, "--out", "library")
    found = 60 if "--short" in options else number
    assert capsys.readouterr().out.startswith(f"{found} files of text")


@pytest.mark.parametrize("option", ["--temperature", "--dropout", "--weight-decay"])
def test_the_least_number_is_said(option, program, capsys):
    said = complaint(program, capsys, "text.txt", option, "-1")
    assert "must be 0 or more and at most " in said


def test_bpe_has_more_pieces_than_bytes(program, capsys):
    said = complaint(program, capsys, "text.txt", "--tokens", "bpe", "--words", "256")
    assert "argument --words: must be 257 or more and at most 1,000,000, got 256" in said


# Texts


def test_a_tenth_is_held_out_by_its_place(data, tmp_path):
    paths = [tmp_path / f"{i}.txt" for i in range(25)]
    for path in paths:
        path.write_text("é" * 50, "utf-8")
    for number in (1, 3, 25):
        training, held_out = data.divided(paths[:number])
        assert sum(end - begin for _, begin, end in held_out) == (
            200 if number == 25 else 10 * number
        )
        texts = [
            "".join(text for text, _, _ in data.pieces(spans)) for spans in (training, held_out)
        ]
        assert "".join(texts) == "é" * 50 * number
        if number < 20:
            assert not {*training} & {*held_out}
            assert [span.path for span in held_out] == paths[:number]


@pytest.mark.parametrize("large", [3, 9])
def test_a_tenth_of_the_bytes_is_held_out_where_one_file_is_large(large, data, tmp_path):
    """Of 21 files the tenth and the twentieth were held out: here 83 %, or nothing, of the text."""
    paths = [tmp_path / f"{i}.txt" for i in range(21)]
    for i, path in enumerate(paths):
        path.write_text("a" * (10_000 if i == large else 100), "utf-8")
    parts = data.divided(paths)
    assert data.Parts([], parts.held_out).size == 1200
    assert [span.path for span in parts.held_out] == paths


def test_few_files_of_many_kinds_are_held_out_alike(data, tmp_path):
    """The last file alone was held out, so the loss on it grew from the first step."""
    texts = {"a.c": "int i;\n", "b.json": "{}\n", "c.txt": "a line\n"}
    paths = [tmp_path / name for name in texts]
    for path in paths:
        path.write_text(texts[path.name] * 1000, "utf-8")
    for spans, share in zip(data.divided(paths), (900, 100), strict=True):
        text = "".join(text for text, _, _ in data.pieces(spans))
        found = {name: text.count(line) for name, line in texts.items()}
        assert all(abs(number - share) <= 1 for number in found.values())


@pytest.mark.parametrize("text", ["\ufeff", "好", "ab😀"])
def test_no_text_is_divided_within_its_last_character(data, tmp_path, text):
    """The program said that the file was cut short."""
    path = tmp_path / "text.txt"
    path.write_text(text, "utf-8")
    parts = data.divided([path])
    assert "".join(x for x, _, _ in data.pieces(parts.training)) == text.removeprefix("\ufeff")
    assert not parts.held_out


@pytest.mark.parametrize("length", range(1, 9))
def test_no_text_is_divided_within_a_line_end_of_windows(length, data, tmp_path):
    """A single \\r was one more kind of character."""
    path = tmp_path / "text.txt"
    path.write_bytes((b"a" * length + b"\r\n") * 11)
    parts = data.divided([path])
    texts = ["".join(text for text, _, _ in data.pieces(spans)) for spans in parts]
    assert "".join(texts) == ("a" * length + "\n") * 11


def test_a_text_is_read_in_pieces(data, tmp_path, monkeypatch):
    monkeypatch.setattr(data, "PIECE", 7)
    text = "好 line\r\nand a long one without an end é\n\nlast"
    path = tmp_path / "text.txt"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    spans = [data.Span(path, 0, path.stat().st_size)] * 2
    found = list(data.pieces(spans))
    assert "".join(text for text, _, _ in found) == 2 * text.replace("\r\n", "\n")
    for i, (_, index, place) in enumerate(found):
        rest = [text for text, _, _ in data.pieces(spans, index, place)]
        assert rest == [text for text, _, _ in found[i + 1 :]]


def test_runs_without_a_space_are_cut_before_pieces_are_chosen(data, monkeypatch):
    """A run of 200,000 letters took minutes, and one of a megabyte would take hours."""
    given = []

    def train(_, texts, __):
        given.extend(texts)

    monkeypatch.setattr(data, "Tokenizer", type("Watched", (), {
        "__init__": lambda *_: None, "train_from_iterator": train
    }))  # fmt: skip
    lines = "a line of words\n" * 1000
    texts = [lines, "ACGT" * 50_000, lines + " " * 9000 + "x"]
    data.bpe_tokenizer(iter(texts), 300)
    assert "".join(given) == "".join(texts)
    assert given[0] == lines
    runs = [run for text in given for run in re.findall(r"\S+|\s+", text)]
    assert max(map(len, runs)) == 4096


@pytest.mark.parametrize("kind", ["characters", "bpe"])
def test_ids_are_written_once_and_go_on_after_an_interrupt(kind, data, tmp_path, monkeypatch):
    monkeypatch.setattr(data, "PIECE", 100)
    path = tmp_path / "text.txt"
    path.write_text(TEXT + "é好", "utf-8")
    parts = data.divided([path])
    if kind == "characters":
        tokenizer = data.character_tokenizer(data.characters_of(parts))
    else:
        tokenizer = data.bpe_tokenizer(data.sample(parts.training, 5000), 300)
    encoder, seen = data.Encoder(tokenizer), []

    def interrupt(number):
        seen.append(number)
        if len(seen) == 90:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        data.encoded(parts.training, encoder, tmp_path / "training.bin", interrupt)
    training = data.encoded(parts.training, encoder, tmp_path / "training.bin", seen.append)
    texts = [text for text, _, _ in data.pieces(parts.training)]
    assert len(seen) == 90 + len(texts) - 64  # it did not begin anew
    ids = np.concatenate([encoder(text) for text in texts])
    assert np.array_equal(training.ids, ids)
    assert training.bytes == parts.training[0].end
    again = data.encoded(parts.training, encoder, tmp_path / "training.bin", pytest.fail)
    assert np.array_equal(again.ids, ids)
    held_out = data.encoded(parts.held_out, encoder, tmp_path / "held_out.bin", seen.append)
    whole = tokenizer.decode([*training.ids.tolist(), *held_out.ids.tolist()])
    assert whole == TEXT + "é好"
    assert encoder("4 green é").tolist() == tokenizer.encode("4 green é").ids
    path.write_text(TEXT, "utf-8")  # another text
    changed = data.encoded(
        data.divided([path]).training, encoder, tmp_path / "training.bin", seen.append
    )
    assert changed.bytes < training.bytes


@pytest.mark.parametrize(
    "damage",
    [
        lambda ids, note: ids.write_bytes(ids.read_bytes()[:-2]),
        lambda ids, note: ids.write_bytes(b""),
        lambda ids, note: ids.unlink(),
        lambda ids, note: note.unlink(),
        lambda ids, note: note.write_text("{}"),
        lambda ids, note: note.write_text(
            note.read_text().replace('"made_of": "', '"made_of": "0')
        ),
        lambda ids, note: note.write_text(note.read_text().replace("true", "false")),
    ],
)
def test_ids_that_are_not_whole_are_written_again(data, tmp_path, damage):
    """After a full disk, or if somebody took one of the two files away."""
    path, ids = tmp_path / "text.txt", tmp_path / "ids.bin"
    path.write_text(TEXT)
    parts = data.divided([path])
    encoder = data.Encoder(data.character_tokenizer(data.characters_of(parts)))
    right = data.encoded(parts.training, encoder, ids, lambda _: None)
    numbers, size = right.ids.tolist(), right.bytes
    del right  # because it reads the file
    damage(ids, tmp_path / "ids.json")
    found = data.encoded(parts.training, encoder, ids, lambda _: None)
    assert (found.ids.tolist(), found.bytes) == (numbers, size)


@pytest.mark.parametrize("place", ["training", "held out"])
def test_characters_without_a_token_are_counted_in_both_parts(data, tmp_path, place):
    texts = {"training": "ab" * 5 + "ééü", "held out": "ba"}
    if place == "held out":
        texts = {"training": "ab" * 5, "held out": "baééü"}
    spans = []
    for name, text in texts.items():
        (tmp_path / name).write_text(text, "utf-8")
        spans.append([data.Span(tmp_path / name, 0, len(text.encode()))])
    parts, tokenizer = data.Parts(*spans), data.character_tokenizer("ab")
    with pytest.raises(ValueError, match=r"^3 of 15 characters \(20.00%\) .*: take") as caught:
        data.check_tokens(tokenizer, parts)
    assert "such as 'é', 'ü': " in str(caught.value)
    data.check_tokens(data.character_tokenizer("abéü"), parts)


def test_characters_may_have_a_token_that_ends_a_text(data):
    """Such a model may be taught further by --from."""
    tokenizer = data.character_tokenizer("abé")
    tokenizer.add_special_tokens(["<|end|>"])
    assert data.Encoder(tokenizer)("ab<|end|>é?a").tolist() == [0, 1, 3, 2, 0]


def test_the_note_of_many_files_is_short(data, tmp_path):
    """It is written often, so a list of all files would take longer than their ids."""
    paths = [tmp_path / f"{i}.txt" for i in range(500)]
    for path in paths:
        path.write_text("a", "utf-8")
    parts = data.divided(paths)
    assert [span.path for span in parts.held_out] == paths[9::10]
    encoder = data.Encoder(data.character_tokenizer("a"))
    assert data.encoded(parts.training, encoder, tmp_path / "ids.bin", lambda _: None).bytes == 450
    assert (tmp_path / "ids.json").stat().st_size < 500


def test_what_is_counted_comes_from_all_files(data):
    """Two languages were compared with each other: one was counted, and the other one asked."""
    ids = np.arange(50_000)
    few = data.spread(ids, 12_000)
    assert len(few) == 12_000
    assert (few[0], few[-1]) == (0, 49_999)
    assert np.diff(np.histogram(few, 5, (0, 50_000))[0]).max() <= 1_000
    assert (np.diff(few) == 1).mean() > 0.99  # so that a token stands behind its own
    assert data.spread(ids, 50_000) is ids


def test_n_grams_of_two_languages_are_those_of_both(program, capsys):
    """They were worse than a uniform guess, and other under other names of the files."""
    Path("two").mkdir()
    for name, letters in {"a": "abcdefgh ", "b": "ijklmnop "}.items():
        signs = np.random.default_rng(0).choice(list(letters), 30_000)
        Path(f"two/{name}.txt").write_text("".join(signs))
    program("two", *TINY, "--steps", "1", "--short")
    rows = dict(re.findall(r"^(uniform|[1-7]-grams) +(\d+\.\d+)", capsys.readouterr().out, re.M))
    assert all(float(rows[f"{n}-grams"]) < float(rows["uniform"]) + 0.05 for n in (1, 2))


def test_n_grams_are_witten_bells(data):
    rng = np.random.default_rng(0)
    training, held_out = (rng.integers(0, 4, n) ** 2 % 5 for n in (200, 60))

    def before(ids, i, n):  # -1 stands before a text
        return tuple([-1] * n + ids[:i].tolist())[i:][:n]

    def chance(history, word):
        shorter = chance(history[1:], word) if history else 1 / 5
        n = len(history)
        after = [word for i, word in enumerate(training) if before(training, i, n) == history]
        kinds = len(set(after))
        if not after:
            return shorter
        return (after.count(word) + kinds * shorter) / (len(after) + kinds)

    found = data.n_grams(training, held_out, 5)
    for order in range(4):
        chances = [chance(before(held_out, i, order), word) for i, word in enumerate(held_out)]
        assert found[order] == pytest.approx(-np.mean(np.log(chances)), rel=1e-12), order


def test_compressors_know_a_text_that_they_have_read(data, tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(np.random.default_rng(0).integers(97, 123, 5000, np.uint8).tobytes())
    (tmp_path / "same.txt").write_bytes(path.read_bytes())
    spans = [[data.Span(tmp_path / name, 0, 5000)] for name in ("text.txt", "same.txt")]
    bits = data.compressed(data.Parts(*spans))
    assert bits["xz"] > 4.6
    assert bits["xz that has read the training text"] < 0.2


def test_a_folder_is_its_texts(data, tmp_path):
    (tmp_path / ".git").mkdir()
    for name, content in {
        ".git/a": b"a",
        "b.txt": b"b",
        "c.png": b"\x89PNG\0",
        "d.md": b"",
    }.items():
        (tmp_path / name).write_bytes(content)
    assert data.files_of([tmp_path], tmp_path) == ([tmp_path / "b.txt"], 1, [])
    assert all("encodings" not in path.parts for path in data.standard_library())


def test_what_is_hidden_in_a_folder_is_left_out_and_a_hidden_folder_that_is_named_is_read(
    data, tmp_path
):
    folder = tmp_path / ".hidden" / "texts"
    for name in ("a.txt", "b/c.txt", ".d.txt", "b/.e/f.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("text")
    found = [folder / "a.txt", folder / "b" / "c.txt"]
    assert data.files_of([folder], tmp_path / "out") == (found, 0, [])
    assert data.files_of([folder / ".d.txt"], tmp_path / "out") == ([folder / ".d.txt"], 0, [])


def test_texts_of_a_folder_in_another_encoding_are_named(program, capsys):
    Path("old").mkdir()
    Path("old/a.txt").write_bytes("مرحبا بكم في المدرسة".encode("cp1256"))
    said = complaint(program, capsys, "old", *TINY)
    assert "there is no text in old: old/a.txt is not in UTF-8: byte 0" in said
    shutil.copy("text.txt", "old")
    program("old", *TINY, "--steps", "1")
    out = capsys.readouterr().out
    assert "1 file of text" in out
    assert "1 files and folders are left out" in out
    assert "\n  old/a.txt is not in UTF-8: byte 0" in out


@pytest.mark.parametrize("end", ["schön".encode("cp1252") + b" " * 9, b"\0", "ö".encode()[:1]])
def test_a_file_of_a_folder_that_is_no_text_behind_its_beginning_is_left_out(data, tmp_path, end):
    (tmp_path / "a.txt").write_text("ä" * 9000, "utf-8")
    (tmp_path / "b.txt").write_bytes(b"begin " * 1000 + end)
    found, others, reasons = data.files_of([tmp_path], tmp_path / "out")
    assert (found, others) == ([tmp_path / "a.txt"], 1)
    assert all("b.txt" in reason for reason in reasons)
    assert len(reasons) == (b"\0" not in end)


def test_files_may_stand_behind_options(program, capsys):
    Path("other.txt").write_text(TEXT.upper(), "utf-8")
    program("text.txt", *TINY, "--steps", "2", "other.txt", "--out", "both")
    assert capsys.readouterr().out.startswith("2 files of text")
    program("--resume", "--out", "both", "--steps", "3")
    assert capsys.readouterr().out.startswith("2 files of text")


def test_links_and_what_cannot_be_read_are_counted(data, tmp_path):
    """A link to itself ended a second run in its folder, and one unreadable file all of them."""
    texts = tmp_path / "texts"
    (texts / "run").mkdir(parents=True)
    for name in ("a.txt", "run/checkpoint.safetensors", "run/a.txt", "run/loop"):
        (texts / name).write_bytes(b"a")
    (tmp_path / "b.txt").write_bytes(b"b")
    try:
        for name, target in {
            "loop": "loop", "up": tmp_path, "gone": "nothing", "link.txt": tmp_path / "b.txt",
        }.items():  # fmt: skip
            (texts / name).symlink_to(target)
    except OSError:
        pytest.skip("no links can be made here")
    assert data.files_of([texts], tmp_path) == ([texts / "a.txt", texts / "link.txt"], 3, [])


@pytest.mark.skipif(os.name == "nt" or getattr(os, "geteuid", lambda: 1)() == 0, reason="root may")
def test_folders_that_cannot_be_read_are_counted(data, tmp_path):
    for name in ("closed", "listed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text("a")
    (tmp_path / "b.txt").write_text("b")
    (tmp_path / "c.txt").write_text("c")
    (tmp_path / "c.txt").chmod(0)
    (tmp_path / "closed").chmod(0)
    (tmp_path / "listed").chmod(0o400)
    try:
        assert data.files_of([tmp_path], Path("out")) == ([tmp_path / "b.txt"], 3, [])
    finally:
        for name in ("closed", "listed"):
            (tmp_path / name).chmod(0o700)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
def test_a_pipe_is_refused(data, tmp_path):
    """Because a text is read several times. Else the program waited for a writer."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe is no file, such as a pipe: save its text"):
        data.files_of([tmp_path / "pipe"], tmp_path)


def test_a_speed_is_printed_once_it_is_known(program, capsys):
    """After the first step no time is measured: 16,000,000,000 tokens a second were printed."""
    program("text.txt", *TINY, "--steps", "2")
    first, second = re.findall("step [12]: .*", capsys.readouterr().out)
    assert "tokens a second" not in first
    assert "minutes left" not in first
    assert 0 < int(re.search("([0-9,]+) tokens a second", second)[1].replace(",", "")) < 10**8


def test_what_a_run_wrote_is_no_text(program, capsys):
    """Else a run in a folder of its text could not go on, and the next would learn its settings."""
    program(".", *TINY, "--steps", "4")
    program("--resume", "--steps", "6")
    program("../" + Path.cwd().name, *TINY, "--steps", "4", "--out", "other")
    out = capsys.readouterr().out
    Path("deep").mkdir()
    Path("deep", "text.txt").write_text(TEXT, "utf-8")
    program("deep", *TINY, "--steps", "4", "--out", ".")  # which is no folder in that of the text
    out += capsys.readouterr().out
    assert out.count("1 file of text") == 4
    assert "left out" not in out


@pytest.mark.extended
def test_what_rank_0_cannot_write_is_said_once(program):
    """The other ranks ended with a traceback, which advised them about numbers of steps."""
    from test_distributed import HAS_MPI, MPIEXEC

    if not (HAS_MPI and MPIEXEC):
        pytest.skip("mpi4py or mpiexec is missing")
    ended = subprocess.run(
        [str(MPIEXEC), "-n", "2", sys.executable, str(EXAMPLES / "train_language_model.py"),
         "text.txt", *TINY, "--steps", "8", "--out", "text.txt"],
        check=False, timeout=200, env=os.environ | {"PYTHONPATH": str(EXAMPLES.parent)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert ended.returncode
    assert "Traceback" not in ended.stderr + ended.stdout
    assert (ended.stderr + ended.stdout).count("Not a directory") == 1


@pytest.mark.extended
def test_two_processes_have_the_same_losses(program, tmp_path):
    from test_distributed import HAS_MPI, MPIEXEC

    if not (HAS_MPI and MPIEXEC):
        pytest.skip("mpi4py or mpiexec is missing")
    program("text.txt", *TINY, "--steps", "8", "--out", "one", "--accumulate", "2")
    subprocess.run(
        [str(MPIEXEC), "-n", "2", sys.executable, str(EXAMPLES / "train_language_model.py"),
         "text.txt", *TINY, "--steps", "8", "--out", "two", "--accumulate", "2"],
        check=True, timeout=200, env=os.environ | {"PYTHONPATH": str(EXAMPLES.parent)},
    )  # fmt: skip
    one, two = (
        ta.load(f"{out}/checkpoint.safetensors")["losses"].numpy() for out in ("one", "two")
    )
    np.testing.assert_allclose(one, two, rtol=1e-5)
