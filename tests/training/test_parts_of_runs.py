"""The parts of examples/training.py: what a run passes on, notes, shows and says, on each rank."""

from __future__ import annotations

import argparse
import importlib
import io
import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import nn

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def training(monkeypatch):
    for package in ("tqdm", "matplotlib"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    program = importlib.import_module("training")
    monkeypatch.setattr(program.Run, "saved", None)
    return program


@pytest.fixture
def ranks(training, monkeypatch):
    """A function that makes this process one rank of several."""

    def become(rank, size):
        monkeypatch.setattr(training, "get_rank", lambda: rank)
        monkeypatch.setattr(training, "get_world_size", lambda: size)

    return become


@pytest.fixture
def run_of(training, tmp_path):
    def run(steps, model=None, **others):
        args = argparse.Namespace(steps=steps, lr=0.1, device="cpu", out=tmp_path, **others)
        return training.Run(model or nn.Linear(2, 1), args)

    return run


def batches_of(training, monkeypatch):
    """The bar, the curves and the files of a training."""
    bars, curves, files = [], [], []

    class Bar:
        def __init__(self, **options):
            bars.append([options, 0])

        def __enter__(self):
            return self

        def __exit__(self, *_):
            bars.append("closed")

        def update(self):
            bars[-1][1] += 1

        def set_postfix_str(self, text, refresh):
            bars[-1].append((text, refresh))

    monkeypatch.setattr(training, "tqdm", Bar)
    monkeypatch.setattr(training.viz, "plot_curves", lambda *a, **o: curves.append((a, o)) or "fig")
    monkeypatch.setattr(training.programs, "save_picture", lambda *given: files.append(given))
    return bars, curves, files


def test_a_training_shows_a_bar_and_draws_both_curves(training, run_of, monkeypatch, tmp_path):
    bars, curves, files = batches_of(training, monkeypatch)
    run, numbers = run_of(12), itertools.count(1)
    run.curve = "a name"

    def loss_of(batch):
        return run.model(ta.tensor(batch)).sum() * 0 + batch.sum(), 0.5, len(batch)

    drawn = (np.full((3, 2), i / 2, np.float32) for i in range(1, 99))
    run.train(drawn, loss_of, lambda: ta.tensor(float(next(numbers))))
    losses = [3.0 * i for i in range(1, 13)]
    assert run.losses == losses
    # The first step has no bar: it may compile kernels.
    options = {"total": 12, "initial": 1, "unit": "step", "disable": False}
    assert bars == [[options, 11, ("loss 16.500, accuracy 50.0%", False)], "closed"]
    ((((drawn_curves),), others),) = curves
    assert [*drawn_curves] == ["a name", "held out"]
    assert drawn_curves["a name"] == losses
    steps, measured = drawn_curves["held out"]
    assert steps.tolist() == measured.tolist() == [*range(1, 13)]
    assert others == {"ylabel": "Cross-entropy", "smooth": 50}
    assert files == [("fig", tmp_path / "loss.png")]


def test_a_run_that_goes_on_leaves_out_the_batches_learned_from(training, run_of, monkeypatch):
    bars, *_ = batches_of(training, monkeypatch)
    run, seen = run_of(5), []
    run.losses += [1.0, 1.0]

    def loss_of(batch):
        seen.append(batch)
        return run.model(ta.ones(1, 2)).sum(), 1.0, 1

    run.train((np.full(1, i) for i in range(9)), loss_of, lambda: ta.tensor(1.0))
    assert [x.item() for x in seen] == [2, 3, 4]
    assert (bars[0][0]["initial"], bars[0][1]) == (3, 2)


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_rank_0_alone_prints_draws_and_goes_on(training, ranks, run_of, monkeypatch, capsys, rank):
    bars, curves, files = batches_of(training, monkeypatch)
    run, seen, measured = run_of(2), [], []
    ranks(rank, 3)
    monkeypatch.setattr(training, "all_reduce", lambda value: 3 * value)

    def loss_of(batch):
        seen.append([x.tolist() for x in batch])
        return run.model(ta.ones(1, 2)).sum(), 1.0, 1

    def held_out():
        measured.append(len(run.losses))
        return ta.tensor(1.0)

    def train():
        run.train(iter([(np.arange(7), np.arange(10, 17))] * 2), loss_of, held_out)

    if rank:
        with pytest.raises(SystemExit) as ended:
            train()
        assert ended.value.code is None
    else:
        train()
    part = [[*range(rank, 7, 3)], [*range(10 + rank, 17, 3)]]
    assert seen == [part, part]
    assert bars[0][0]["disable"] == (rank > 0)
    assert measured == ([] if rank else [1, 2])
    assert len(curves) == len(files) == (0 if rank else 1)
    said = "3 ranks train, each on its part of a batch\n"
    assert capsys.readouterr().out == ("" if rank else said)


@pytest.mark.parametrize("done", [0, 1, 2, 3])
def test_a_training_that_is_stopped_at_any_step_says_so(
    training, run_of, monkeypatch, capsys, tmp_path, done
):
    """Also one that lacks its last step alone."""
    _, curves, files = batches_of(training, monkeypatch)
    monkeypatch.setattr(sys, "argv", ["a.py", "--resume", "--lr", "0.5"])
    run = run_of(3, resume=True)
    monkeypatch.setattr(run, "steps", lambda total: range(done))

    def train():
        run.train(
            iter(np.ones((9, 1))),
            lambda batch: (run.model(ta.ones(1, 2)).sum(), 1.0, 1),
            lambda: ta.tensor(1.0),
        )

    if done == 3:
        train()
    else:
        with pytest.raises(SystemExit) as ended:
            train()
        assert ended.value.code == 130
    said = f"stopped after {done} of 3 steps; {training.how_to_go_on()}\n"
    assert capsys.readouterr().out == ("" if done == 3 else said)
    assert len(run.losses) == done
    assert files == [("fig", tmp_path / "loss.png")]  # of a part too
    (((found,), _),) = curves
    assert found["held out"][0].tolist() == [*range(1, done + 1)]


@pytest.mark.parametrize(("total", "steps"), [
    (1, [1]), (7, [*range(1, 8)]), (25, [*range(1, 26)]), (26, [1, *range(2, 27, 2)]),
    (51, [1, *range(3, 52, 3)]), (60, [1, *range(3, 61, 3)]), (100, [1, *range(4, 101, 4)]),
    (101, [1, *range(5, 101, 5), 101]),
])  # fmt: skip
def test_the_loss_is_measured_about_25_times(run_of, total, steps):
    run, modes = run_of(total), []

    def held_out():
        modes.append((run.model.training, ta.is_grad_enabled()))
        return ta.tensor(len(run.losses) / 4)

    for _ in range(total):
        run.losses.append(0.0)
        run.measure(held_out)
        assert run.model.training
    assert run.held_out == [[float(step), step / 4] for step in steps]
    assert modes == [(False, False)] * len(steps)


def test_a_step_weighs_its_part_and_forgets_the_last_gradient(training, run_of, monkeypatch):
    run, weighed = run_of(9), []
    backward = run.parallel.backward

    def noted(loss, number):
        backward(loss, number)
        weighed.append((run.model.weight.grad.numpy().tolist(), number))

    monkeypatch.setattr(run.parallel, "backward", noted)
    for number in (4, 6):
        run.learn(run.model(ta.tensor([[0.25, -0.5]])).sum(), 1.0, number)
    assert weighed == [([[0.25, -0.5]], 4), ([[0.25, -0.5]], 6)]


def test_a_noted_loss_is_the_mean_of_all_ranks(training, run_of, monkeypatch):
    """Each counts by its number of samples."""
    run, reduced = run_of(9), []

    def all_reduce(value):
        reduced.append(np.array(value).tolist())
        return 24 if len(reduced) == 1 else value + np.array([2.0, 0.25])

    monkeypatch.setattr(training, "all_reduce", all_reduce)
    run.note(ta.tensor(3.0), 0.5, 6)
    assert reduced == [6, [0.75, 0.125]]
    assert (run.losses, [*run.accuracies]) == ([2.75], [0.375])


def test_a_run_says_how_large_it_is_and_what_it_took(training, run_of, monkeypatch, capsys):
    monkeypatch.setattr(training.time, "perf_counter", lambda: 100.0)
    run = run_of(1234, nn.Linear(999, 2), batch_size=5)
    monkeypatch.setattr(training.time, "perf_counter", lambda: 161.7)
    run.introduce(12_345, 6_789, "words")
    run.end("a.png, b.png")
    assert capsys.readouterr().out == (
        "2,000 parameters, 1234 steps of 5; 12,345 words to learn from, 6,789 held out\n"
        f"\n62 seconds; a.png, b.png and the trained model are in {run.args.out}\n"
    )


@pytest.mark.parametrize("rank", [0, 2])
def test_the_program_knows_its_checkpoint_on_rank_0(training, ranks, run_of, monkeypatch, rank):
    run = run_of(3)
    ranks(rank, 3)
    run.save()
    path = run.args.out / "checkpoint.safetensors"
    assert path.exists()
    assert training.Run.saved == (None if rank else path)
    monkeypatch.setattr(sys, "argv", ["a.py", "--overwrite", "--lr", "0.5"])
    go_on = "go on from there with:\n  mpiexec -n 3 python a.py --lr 0.5 --resume"
    said = "stopped before the first step; no model was saved"
    assert training.how_to_go_on() == go_on
    if not rank:
        said = f"stopped; what was learned is in {path}; {go_on}"
    assert training.what_is_kept() == said


def test_settings_are_what_makes_a_run_what_it_is(training, monkeypatch, tmp_path):
    parser = training.argument_parser("", short=2, steps=3, batch_size=4, lr=0.1, dropout=0.5,
                                      d_model=8, heads=2, layers=1, out=tmp_path)  # fmt: skip
    parser.add_argument("--predict")
    assert training.settings_of(parser.parse_args(["--lr", "0.3"])) == {
        "seed": 0, "steps": 3, "batch_size": 4, "lr": 0.3, "dropout": 0.5, "d_model": 8,
        "heads": 2, "layers": 1, "no_positions": False,
    }  # fmt: skip


@pytest.mark.parametrize("is_there", [True, False])
def test_a_folder_without_a_checkpoint_has_nothing_to_go_on_with(training, tmp_path, is_there):
    out = tmp_path / "out"
    if is_there:
        out.mkdir()
        (out / "loss.png").touch()
    with pytest.raises(FileNotFoundError) as caught:
        training.resumed(argparse.ArgumentParser(), out)
    path = out / "checkpoint.safetensors"
    assert str(caught.value) == f"{path} is not there yet: train first"


SETTINGS = {"seed": 4, "steps": 3, "batch_size": 4, "lr": 0.25, "dropout": 0.5, "d_model": 8,
            "heads": 2, "layers": 1, "no_positions": False}  # fmt: skip


def parser_of(training, out):
    return training.argument_parser("", short=2, steps=7, batch_size=5, lr=0.1, dropout=0.25,
                                    d_model=6, heads=3, layers=4, out=out)  # fmt: skip


@pytest.mark.parametrize("changed", [
    [], ["--steps", "3"], ["--steps", "4"], ["--short"], ["--batch-size", "5"], ["--lr", "0.1"],
    ["--dropout", "0.25"], ["--d-model", "6"], ["--heads", "3"], ["--layers", "4"], ["--seed", "0"],
    ["--no-positions"],
], ids=" ".join)  # fmt: skip
@pytest.mark.parametrize("changeable", [(), ("steps", "no_positions")])
def test_an_option_of_a_run_stays_as_it_was_unless_it_may_change(
    training, monkeypatch, tmp_path, changed, changeable
):
    """A value is another one even if it is that of a fresh run."""
    ta.save({"settings": SETTINGS | {"digest": "d"}, "losses": ta.ones(2)},
            tmp_path / "checkpoint.safetensors")  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["a.py", *changed])
    parser = parser_of(training, tmp_path)
    name = changed[0].strip("-").replace("-", "_") if changed else ""
    name = "steps" if name == "short" else name
    value = vars(parser.parse_args()).get(name)
    if not name or name in changeable or value == SETTINGS[name]:
        args, state = training.resumed(parser, tmp_path, changeable)
        assert training.settings_of(args) == SETTINGS | {"digest": "d"} | (
            {name: value} if name else {}
        )
        assert state["losses"].numpy().tolist() == [1, 1]
        return
    with pytest.raises(ValueError, match="on the way") as caught:
        training.resumed(parser, tmp_path, changeable)
    assert str(caught.value) == (
        f"the run in {tmp_path} has {name}={SETTINGS[name]}, which cannot become {value} on the "
        "way: leave that option out, or begin anew with --overwrite or in another folder (--out)"
    )


@pytest.mark.parametrize(("given", "name"), [
    ([], "runs/a"), (["--no-positions"], "runs/a-no-positions"),
    (["--no-attention", "--no-positions"], "runs/a-no-positions-no-attention"),
    (["--no-positions", "--out", "runs/b"], "runs/b"), (["--out", "runs/b"], "runs/b"),
])  # fmt: skip
def test_a_run_without_a_part_has_a_folder_of_its_own(training, monkeypatch, tmp_path, given, name):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["a.py", *given])
    parser = parser_of(training, Path("runs/a"))
    parser.add_argument("--no-attention", action="store_true")
    asked = []
    run = training.start(parser, lambda args: asked.append(args) or nn.Linear(2, 1))
    assert (run.args.out, asked) == (Path(name), [run.args])
    assert Path(name).is_dir()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_has_its_own_chance_after_the_model_is_made(training, ranks, monkeypatch, rank):
    """So that dropout differs; the models are alike."""
    seeds, calls = [], []
    monkeypatch.setattr(training.ta, "manual_seed", seeds.append)

    class Loop:
        losses = [1.0] * 7

        def restore(self, state):
            calls.append(state)

    ranks(rank, 2)
    training.go_on(Loop(), "state", 5)
    training.go_on(Loop(), None, 6)
    assert calls == ["state"]
    assert seeds == [5 + 2**32 + 7, 6 + 2**32 + 7][: 2 * rank]


@pytest.mark.parametrize(("rank", "asked"), [(0, True), (1, True), (1, False)])
def test_a_start_builds_with_the_seed_and_goes_on(
    training, ranks, monkeypatch, tmp_path, rank, asked
):
    """A question is answered by rank 0 alone."""
    parser = training.argument_parser("", short=2, steps=3, batch_size=4, lr=0.1, out=tmp_path)
    parser.add_argument("--predict")
    calls = []

    def build(args):
        calls.append((args.lr, ta.rand(1).item()))
        return nn.Linear(2, 1)

    def resumed(given, out):
        calls.append((given is parser, out))
        return parser.parse_args(), "state"

    monkeypatch.setattr(training, "resumed", resumed)
    monkeypatch.setattr(training, "go_on", lambda run, *given: calls.append(given))
    ranks(rank, 2)
    given = ["--predict", "x"] if asked else ["--resume"]
    monkeypatch.setattr(sys, "argv", ["a.py", "--seed", "8", *given])
    if rank and asked:
        with pytest.raises(SystemExit):
            training.start(parser, build)
    else:
        assert training.start(parser, build).args.seed == 8
    ta.manual_seed(8)
    assert calls == [(True, tmp_path), (0.1, ta.rand(1).item()), ("state", 8)]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_batch_has_a_sample_for_each_rank(training, ranks, size):
    ranks(0, 3)
    if size < 3:
        with pytest.raises(ValueError, match=f"a batch of {size} is too small for 3 ranks"):
            training.check_batch(size)
    else:
        training.check_batch(size)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_program_prints_on_rank_0(training, ranks, monkeypatch, rank):
    given, out = [], io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(training.programs, "run", lambda *both: given.append(both))
    ranks(rank, 2)
    training.run_program("main", "stopped")
    training.run_program("main")
    assert given == [("main", "stopped"), ("main", training.what_is_kept)]
    assert (sys.stdout is out) == (rank == 0)


def test_the_bar_shows_means_of_the_last_fifty_steps(training, run_of, monkeypatch):
    bars, *_ = batches_of(training, monkeypatch)
    run = run_of(70)
    run.bar = training.tqdm()
    for i in range(70):
        run.note(ta.tensor(float(i)), i / 100, 3)
    means = [(0, 9), (0, 19), (0, 29), (0, 39), (0, 49), (10, 59), (20, 69)]
    assert bars[0][2:] == [
        (f"loss {(a + b) / 2:.3f}, accuracy {(a + b) / 2:.1f}%", False) for a, b in means
    ]


def test_the_options_of_a_training_say_their_defaults(training):
    """A switch has none."""
    parser = parser_of(training, Path("runs/a"))
    shown = " (default: %(default)s)"
    assert {action.dest: action.help for action in parser._actions if action.dest != "help"} == {
        "steps": "a trial, the same as --steps 2", "batch_size": f"examples in a batch{shown}",
        "lr": f"highest learning rate{shown}", "dropout": f"its probability{shown}",
        "seed": f"of everything random{shown}", "d_model": f"width{shown}",
        "heads": f"attention heads in a layer{shown}", "layers": f"encoder layers{shown}",
        "no_positions": "do not tell it what stands where", "out": f"folder for its files{shown}",
        "resume": "go on with the run in --out",
        "overwrite": "begin anew where --out has a run already",
        "device": f"where to compute{shown}",
    }  # fmt: skip
    steps, short = (action for action in parser._actions if action.dest == "steps")
    assert steps.help == f"batches to learn from{shown}"
    assert (steps.default, short.const) == (7, 2)
    mean = "The progress bar shows the mean loss and accuracy of the last 50 steps."
    assert (parser.epilog, parser.usage) == (mean, "%(prog)s [options]")


@pytest.mark.parametrize("given", [[], ["--overwrite"]])
@pytest.mark.parametrize("content", [None, b"none", "whole"])
def test_a_run_that_is_there_is_replaced_by_overwrite_alone(
    training, monkeypatch, capsys, tmp_path, given, content
):
    """Even a damaged one."""
    path = tmp_path / "checkpoint.safetensors"
    if content == "whole":
        ta.save({"settings": SETTINGS, "losses": ta.ones(2)}, path)
    elif content:
        path.write_bytes(content)
    monkeypatch.setattr(sys, "argv", ["a.py", *given])
    parser = parser_of(training, tmp_path)
    if given or content is None:
        run = training.start(parser, lambda args: nn.Linear(2, 1))
        assert (run.losses, run.args.steps) == ([], 7)
        return
    with pytest.raises(SystemExit, match="2"):
        training.start(parser, lambda args: nn.Linear(2, 1))
    said = capsys.readouterr().err
    if content == "whole":
        problem = f"{tmp_path} has a run of 2 of 3 steps: --resume goes on with it, --overwrite"
    else:
        problem = f"{path} is damaged, or does not fit the file beside it: train again"
    assert said.startswith(f"a.py: {problem}")


def test_a_batch_that_is_too_small_is_refused_before_the_model_is_built(
    training, ranks, monkeypatch, capsys, tmp_path
):
    ranks(0, 6)
    monkeypatch.setattr(sys, "argv", ["a.py"])
    with pytest.raises(SystemExit, match="2"):
        training.start(parser_of(training, tmp_path / "out"), pytest.fail)
    assert capsys.readouterr().err == "a.py: a batch of 5 is too small for 6 ranks\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("arguments", [
    ["a.py"], ["a.py", "--resume"], ["a.py", "--overwrite", "--steps", "9"],
    ["a b.py", "--out", "c d", "--resume"],
], ids=" ".join)  # fmt: skip
def test_the_advice_to_go_on_has_the_options_once(training, monkeypatch, arguments):
    monkeypatch.setattr(sys, "argv", arguments)
    rest = [arg for arg in arguments if arg not in ("--resume", "--overwrite")]
    line = training.programs.command([*rest, "--resume"])
    assert training.how_to_go_on() == f"go on from there with:\n  python {line}"
