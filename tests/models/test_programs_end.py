"""How the programs of examples/ end: what they refuse, and what they print after Ctrl-C."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import nn

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch):
    """A function that imports an example; `call` runs its main with options."""
    for package in ("tqdm", "matplotlib"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module


@pytest.fixture
def call(example, monkeypatch):
    def run(name, *options):
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, options)])
        example(name).main()

    return run


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "too large for the memory"),
        (MemoryError("Unable to allocate 7 TiB"), "too large for the memory: Unable to allocate"),
        (KeyError("no such name"), "no such name"),
        (FileNotFoundError(2, "No such file", "a.txt"), "a.txt: No such file"),
    ],
)
def test_what_cannot_be_done_gets_a_sentence(example, monkeypatch, capsys, error, words):
    monkeypatch.setattr(sys, "argv", ["folder/program.py"])
    with pytest.raises(SystemExit, match="2"), example("programs").complaints():
        raise error
    said = capsys.readouterr().err
    assert said.startswith(f"program.py: {words}")
    assert said.count("\n") == 1


def test_ctrl_c_prints_what_the_program_says_or_stopped(example, capsys):
    programs = example("programs")

    def interrupted():
        raise KeyboardInterrupt

    for main, said in (
        (interrupted, "stopped"),
        (
            lambda: programs.stop(1, 2000, "all is lost"),
            "stopped after 1 of 2,000 steps; all is lost",
        ),
    ):
        with pytest.raises(SystemExit, match="130"):
            programs.run(main)
        assert capsys.readouterr().out == f"\n{said}\n"


@pytest.mark.skipif(os.name == "nt" or getattr(os, "geteuid", lambda: 1)() == 0, reason="root may")
def test_a_folder_in_which_nothing_can_be_written_is_refused(example, tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError):
        example("programs").make_folder(tmp_path)
    tmp_path.chmod(0o700)


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "none"])
def test_a_scaling_law_needs_time(call, capsys, seconds):
    with pytest.raises(SystemExit, match="2"):
        call("record_scaling", "--seconds", seconds)
    assert "argument --seconds: " in capsys.readouterr().err


def test_a_scaling_law_that_cannot_be_kept_is_not_measured(
    example, call, capsys, monkeypatch, tmp_path
):
    begun = []
    monkeypatch.setattr(example("record_scaling"), "python_text", lambda: begun.append(1))
    (tmp_path / "file").write_text("")
    for out in (tmp_path, tmp_path / "file" / "a.json"):
        with pytest.raises(SystemExit, match="2"):
            call("record_scaling", "--out", out)
        said = capsys.readouterr().err
        assert said.startswith("record_scaling.py: ")
        assert said.count("\n") == 1
    assert not begun


def test_a_scaling_law_is_measured_in_the_least_time(example, call, monkeypatch, tmp_path):
    module, threads = example("record_scaling"), ta.get_num_threads()
    text = np.frombuffer(b"def f(x): return x\n" * 500, np.uint8)
    monkeypatch.setattr(module, "python_text", lambda: (text, text))
    monkeypatch.setattr(module, "WIDTHS", {4: 2, 8: 2, 12: 2})
    out = tmp_path / "new" / "law.json"
    call("record_scaling", "--seconds", "0.001", "--out", out)
    ta.set_num_threads(threads)
    law = json.loads(out.read_text("utf-8"))
    assert [run["curve"][-1][0] for run in law["runs"]] == [16 * law["tokens_a_step"]] * 3
    assert law["prediction"]["tokens"] == 16 * law["tokens_a_step"]
    assert 0 < law["prediction"]["bits"] < 20


@pytest.mark.parametrize("can_resume", [True, False])
def test_only_a_program_with_resume_says_how_to_go_on(
    example, monkeypatch, capsys, tmp_path, can_resume
):
    """record_attention.py has no such option, though it uses the same loop."""
    training = example("training")
    args = {"steps": 9, "lr": 0.1, "device": "cpu", "out": tmp_path}
    run = training.Run(
        nn.Linear(2, 1), argparse.Namespace(**args | ({"resume": False} if can_resume else {}))
    )
    monkeypatch.setattr(training.Run, "saved", None)
    monkeypatch.setattr(sys, "argv", ["record_attention.py"])

    def loss_of(batch):
        signal.raise_signal(signal.SIGINT)
        return run.model(ta.tensor(batch)).square().mean(), 1.0, 1

    with pytest.raises(SystemExit, match="130"):
        run.train([np.ones((3, 2), np.float32)] * 9, loss_of, lambda: ta.tensor(1.0))
    said = capsys.readouterr().out
    assert "stopped after 1 of 9 steps" in said
    assert ("--resume" in said) == can_resume


def test_a_run_that_goes_on_is_not_said_to_be_lost(example, monkeypatch):
    """Ctrl-C before its first new step said that no model was saved."""
    training = example("training")
    monkeypatch.setattr(training.Run, "saved", None)
    monkeypatch.setattr(sys, "argv", ["train_encoder.py", "--resume"])
    said = training.what_is_kept()
    assert "the run is as it was" in said
    assert "no model was saved" not in said
    monkeypatch.setattr(sys, "argv", ["train_encoder.py"])
    assert training.what_is_kept() == "stopped before the first step; no model was saved"


def test_a_checkpoint_of_another_program_is_not_replaced(example, tmp_path):
    """It may have no losses and no settings, and is named in a sentence all the same."""
    training = example("training")
    for state in ({}, {"losses": ta.zeros(3)}, {"settings": {}}, {"settings": {"steps": 5}}):
        ta.save(state, tmp_path / "checkpoint.safetensors")
        done = len(state.get("losses", ()))
        with pytest.raises(ValueError, match=rf"has a run of {done}\b") as caught:
            training.refuse_lost_run(argparse.Namespace(out=tmp_path, overwrite=False))
        assert "--overwrite begins anew, --out names another folder" in str(caught.value)
        if "settings" not in state:
            with pytest.raises(ValueError, match="was not made by this program"):
                training.resumed(argparse.ArgumentParser(), tmp_path)
    (tmp_path / "checkpoint.safetensors").unlink()
    training.refuse_lost_run(argparse.Namespace(out=tmp_path, overwrite=False))


@pytest.mark.parametrize(
    ("done", "total", "said"),
    [
        (0, None, "0 steps: --resume goes on with it, "),
        (12, None, "12 steps: --resume goes on with it, "),
        (0, 9, "0 of 9 steps: --resume goes on with it, "),
        (8, 9, "8 of 9 steps: --resume goes on with it, "),
        (9, 9, "9 of 9 steps: "),
    ],
)
def test_a_run_that_would_be_lost_is_done_or_goes_on(example, tmp_path, done, total, said):
    """Of a run of minutes nobody knows how many steps it takes."""
    state = {"losses": ta.zeros(done), "settings": {"steps": total}}
    ta.save(state, tmp_path / "checkpoint.safetensors")
    args = argparse.Namespace(out=tmp_path, overwrite=False)
    with pytest.raises(ValueError, match="--overwrite") as caught:
        example("training").refuse_lost_run(args)
    end = "--overwrite begins anew, --out names another folder"
    assert str(caught.value) == f"{tmp_path} has a run of {said}{end}"


class Halves(nn.Module):
    """One number, which is multiplied."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(np.ones(1, np.float32))

    def forward(self, x):
        return x * self.w


def test_a_run_learns_each_batch_once_in_training_and_measures_in_evaluation(
    example, monkeypatch, tmp_path
):
    """Also one that goes on: it leaves out the batches that were learned from."""
    training = example("training")
    limits = []
    clip = training.optim.clip_grad_norm_

    def clipped(parameters, most):
        limits.append(most)
        return clip(parameters, most)

    monkeypatch.setattr(training.optim, "clip_grad_norm_", clipped)
    monkeypatch.setattr(training.Run, "saved", None)
    args = argparse.Namespace(steps=60, lr=0.1, device="cpu", out=tmp_path)
    seen = []

    def run_of(number):
        run = training.Run(Halves(), args)
        if number:
            run.restore(ta.load(tmp_path / "checkpoint.safetensors"))

        def loss_of(batch):
            assert run.model.training
            seen.append(batch.item())
            if batch.item() == 44 and not number:
                signal.raise_signal(signal.SIGINT)
            return run.model(ta.tensor(batch)).square().mean(), 1.0, 1

        def held_out():
            assert not run.model.training
            assert not ta.is_grad_enabled()
            return run.model(ta.ones(1)).mean()

        run.train((np.full(1, i, np.float32) for i in range(60)), loss_of, held_out)
        return run

    with pytest.raises(SystemExit, match="130"):
        run_of(0)
    run = run_of(1)
    assert seen == list(range(60))
    assert limits == [1.0] * 60
    steps = [step for step, _ in run.held_out]
    assert steps == [1, *range(3, 61, 3)]  # 60 steps are measured 20 times, and the first too
    assert all(loss <= 1 for _, loss in run.held_out)
    assert (tmp_path / "loss.png").stat().st_size > 1000


def test_a_run_makes_the_folders_that_it_is_given(example, monkeypatch, tmp_path):
    training = example("training")
    out = tmp_path / "some" / "folders"
    parser = training.argument_parser("", short=2, steps=3, batch_size=4, lr=0.1, out=tmp_path)
    monkeypatch.setattr(sys, "argv", ["a.py", "--out", str(out)])
    run = training.start(parser, lambda args: nn.Linear(2, 1))
    assert out.is_dir()
    assert run.args.out == out
    monkeypatch.setattr(sys, "argv", ["a.py", "--no-positions"])
    usual = tmp_path.with_name(f"{tmp_path.name}-no-positions")
    assert training.start(parser, lambda args: nn.Linear(2, 1)).args.out == usual
    monkeypatch.setattr(sys, "argv", ["a.py", "--no-positions", "--out", str(out)])
    assert training.start(parser, lambda args: nn.Linear(2, 1)).args.out == out


@pytest.mark.parametrize(
    ("out", "written"),
    [("a.png", "a.png"), ("pictures", "pictures.png"), ("folder", "folder/weights.png")],
)
def test_a_picture_has_the_name_that_is_said(call, capsys, monkeypatch, tmp_path, out, written):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    call("attention_by_hand", "--out", out)
    assert capsys.readouterr().out.endswith(f"\nthe weights are drawn in {Path(written)}\n")
    assert [path for path in Path().rglob("*") if path.is_file()] == [Path(written)]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("train_digits", ["--steps", 1]),
        ("classify_texts", ["--short"]),
        ("train_language_model", ["--short"]),
        ("few_shot", ["--short"]),
    ],
)
def test_without_matplotlib_nothing_is_trained(
    name, options, example, call, monkeypatch, capsys, tmp_path
):
    """A traceback ended such a program when its training was over."""
    for package in ("sklearn", "tokenizers"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    example(name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SystemExit) as ended:
        call(name, *options, "--out", tmp_path / "out")
    assert ended.value.code == 'matplotlib is missing: pip install -e ".[examples]"'
    assert capsys.readouterr() == ("", "")


def test_a_picture_without_matplotlib_gets_a_sentence(example, call, monkeypatch, capsys, tmp_path):
    def no_picture(*_, **__):
        raise ImportError("tinyattn.viz needs matplotlib")

    monkeypatch.setattr(example("attention_by_hand").viz, "show_heatmaps", no_picture)
    with pytest.raises(SystemExit, match="2"):
        call("attention_by_hand", "--out", tmp_path / "a.png")
    said = capsys.readouterr().err
    assert said == "attention_by_hand.py: tinyattn.viz needs matplotlib\n"


def test_a_picture_of_an_unknown_format_gets_a_sentence(call, capsys, tmp_path):
    with pytest.raises(SystemExit, match="2"):
        call("attention_by_hand", "--out", tmp_path / "a.xyz")
    said = capsys.readouterr().err
    assert said.startswith("attention_by_hand.py: Format 'xyz' is not supported")
    assert said.count("\n") == 1


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py")))
def test_ctrl_c_while_a_program_imports_shows_no_traceback(name, tmp_path):
    """A package in the place of tinyattn presses Ctrl-C."""
    if "programs" not in (text := (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")):
        pytest.skip("it is no program, or has no line but its own")
    if "import tinyattn" not in text:
        pytest.skip("it imports no tinyattn")
    (tmp_path / "tinyattn").mkdir()
    (tmp_path / "tinyattn" / "__init__.py").write_text("raise KeyboardInterrupt\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    program = [sys.executable, str(EXAMPLES / f"{name}.py")]
    ended = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    assert (ended.stdout, ended.stderr) == ("", "\nstopped\n")


def test_what_a_sample_would_ignore_is_refused(call, capsys, tmp_path):
    for options, name in (
        (["--steps", 3], "--steps"),
        (["--weight-decay", 0.5], "--weight-decay"),
        (["--from", tmp_path], "--from"),
        ([tmp_path / "a.txt"], "the files"),
        (["--resume"], "--resume"),
    ):
        with pytest.raises(SystemExit, match="2"):
            call("train_language_model", "--sample", "x", "--out", tmp_path, *options)
        assert f"--sample trains nothing: leave out {name}\n" in capsys.readouterr().err


@pytest.mark.skipif(os.name == "nt", reason="the shell of Windows closes no stream")
@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_a_program_needs_no_console(example, tmp_path, closed):
    pytest.importorskip("sklearn", reason="sklearn is not installed")
    command = [sys.executable, str(EXAMPLES / "train_digits.py"), "--short"]
    ended = subprocess.run(
        f"{shlex.join([*command, '--out', str(tmp_path / 'out')])} {closed}",
        shell=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent)},
    )
    assert ended.returncode == 0
    assert (tmp_path / "out" / "loss.png").exists()


@pytest.mark.parametrize("rate", ["-1", "nan", "inf", "fast"])
def test_a_wrong_rate_of_the_layers_is_named_as_it_was_given(call, capsys, rate):
    """That of the vectors of words is many times as high."""
    with pytest.raises(SystemExit, match="2"):
        call("classify_texts", "--lr", rate)
    said = capsys.readouterr().err
    assert "argument --lr: " in said
    assert rate in said.splitlines()[-1]


LIMITED = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)  # as a full disk refuses
sys.argv[:] = sys.argv[2:]
sys.path.insert(0, {folder!r})
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no limit of the size of a file")
@pytest.mark.parametrize(
    ("program", "limit", "named"),
    [
        ("train_language_model", 20, "tokenizer.json"),
        ("train_language_model", 2000, "training.bin"),
        ("train_language_model", 20_000, "model.safetensors"),
        ("train_digits", 20_000, "checkpoint.safetensors"),
        ("classify_texts", 20_000, "classify_texts.py: out: "),
        ("attention_by_hand", 2000, "weights.png"),
    ],
)
def test_a_full_disk_names_the_file_and_leaves_no_half_of_a_model(
    example, tmp_path, program, limit, named
):
    for package in ("sklearn", "tokenizers"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    words = ["the", "cat", "sat", "on", "a", "mat", "while", "rain", "fell", "over", "hills"]
    text = "\n".join(" ".join(words[i % 7 : i % 7 + 4]) for i in range(400))
    (tmp_path / "text.txt").write_text(text)
    rows = [f"{line},{'ab'[i % 2]}" for i, line in enumerate(text.splitlines())]
    (tmp_path / "text.csv").write_text("\n".join(["text,label", *rows]))
    out = Path("weights.png" if program == "attention_by_hand" else "out")
    options = {
        "train_language_model": ["text.txt", "--short", "--out", out],
        "train_digits": ["--short", "--out", out],
        "classify_texts": ["text.csv", "--short", "--out", out],
        "attention_by_hand": ["--out", out],
    }
    ended = subprocess.run(
        [sys.executable, "-c", LIMITED.format(folder=str(EXAMPLES)), str(limit),
         str(EXAMPLES / f"{program}.py"), *options[program]],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent)},
    )  # fmt: skip
    last = ended.stderr.splitlines()[-1]
    assert ended.returncode == 2, ended.stderr
    assert last.startswith(f"{program}.py: ")
    assert named in last
    assert not (tmp_path / out / "config.json").exists()
    assert program != "classify_texts" or "step/s" not in ended.stderr  # before it learned
