"""What a training loop has at first, when it writes its checkpoint, and what it leaves behind."""

from __future__ import annotations

import math
import signal

import pytest
from test_loop import SIGNALS, Training

import tinyattn as ta
from tinyattn import nn
from tinyattn.training import TrainingLoop


def test_a_loop_begins_with_nothing(tmp_path):
    model = nn.Linear(3, 1)
    loop = TrainingLoop(str(tmp_path / "run"), {"model": model})
    assert (loop.losses, loop.held_out, loop.best, loop.is_stopped) == ([], [], None, False)
    assert (loop.settings, loop.elapsed, loop.since_best) == ({}, 0, 0)
    assert (loop.save_every, loop.patience) == (30, math.inf)
    loop.save()
    state = ta.load(tmp_path / "run")
    assert {*state} == {"model", "losses", "held_out", "settings", "best", "elapsed", "random"}
    assert (state["settings"], state["elapsed"], state["best"]) == ({}, 0, None)
    assert [state[name].tolist() for name in ("losses", "held_out")] == [[], []]


def test_a_checkpoint_from_before_there_was_a_clock_begins_at_zero(tmp_path):
    loop = Training(tmp_path / "run").loop
    loop.save()
    state = ta.load(tmp_path / "run")
    del state["elapsed"], state["best"]
    loop.elapsed, loop.best = 9.0, {"weight": ta.ones(1)}
    loop.restore(state)
    assert (loop.elapsed, loop.best) == (0, None)


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still but where a test sets it."""
    now = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    return now


def test_a_checkpoint_is_written_when_its_seconds_have_passed(tmp_path, clock):
    path = tmp_path / "run"
    training = Training(path, save_every=10.0)
    times = [104.0, 109.875, 110.0, 119.875, 120.0]  # after the steps 0 to 4
    written = []
    for step in training.loop.steps(5):
        written.append(len(ta.load(path)["losses"]) if path.exists() else 0)
        training.step()
        clock[0] = times[step]
    assert written == [0, 0, 0, 3, 3]  # before each step
    assert len(ta.load(path)["losses"]) == 5
    assert ta.load(path)["elapsed"] == 20


def test_the_seconds_of_earlier_programs_count(tmp_path, clock):
    training = Training(tmp_path / "run")
    for _ in training.loop.steps(9, seconds=3.0):
        training.step()
        clock[0] += 1
    assert (len(training.loop.losses), training.loop.elapsed) == (3, 3)
    again = Training(tmp_path / "run")
    again.loop.restore(ta.load(tmp_path / "run"))
    clock[0] += 1000  # no program ran
    for _ in again.loop.steps(9, seconds=5.0):
        again.step()
        clock[0] += 1
    assert (len(again.loop.losses), again.loop.elapsed) == (5, 5)


def test_ranks_stop_together_and_the_first_alone_writes(tmp_path, clock, monkeypatch):
    """Three ranks: this one is the last, and another of them gets a signal in the second step."""
    training = Training(tmp_path / "run")

    def all_reduce(values):
        stopped, elapsed, one = values
        others = [len(training.loop.losses) > 1, 2 * elapsed + 1.5, 2]
        return ta.tensor([stopped + others[0], elapsed + others[1], one + others[2]])

    monkeypatch.setattr("tinyattn.training.loop.all_reduce", all_reduce)
    monkeypatch.setattr("tinyattn.training.loop.get_rank", lambda: 2)
    for _ in training.loop.steps(9):
        training.step()
        clock[0] += 1
    assert (len(training.loop.losses), training.loop.is_stopped) == (2, True)
    assert training.loop.elapsed == 2.5  # the mean of the ranks
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("interrupted", [False, True])
def test_a_loop_leaves_the_signals_as_they_were(number, interrupted, tmp_path):
    def handler(*_):
        raise AssertionError("no signal came")

    before = signal.signal(number, handler)
    training = Training(tmp_path / "run")
    try:
        for _ in training.loop.steps(2):
            assert signal.getsignal(number) is not handler
            training.step()
            if interrupted:
                break
        training.loop.steps(9).close()
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)


LOSSES = [3.0, 2.0, 2.0, 1.0, math.nan, 1.5, 0.5, 1.0, math.inf, 0.75, 0.5, 2.0]


@pytest.mark.parametrize("patience", [0, 1, 2, 3, 4, 5, math.inf])
def test_a_loop_ends_after_so_many_losses_as_its_patience(tmp_path, patience):
    training, weights = Training(tmp_path / "run", patience=patience), []
    for step in training.loop.steps(len(LOSSES)):
        training.step()
        training.loop.measured(LOSSES[step])
        weights.append(training.model.weight.numpy().copy())
    finite = [math.inf if math.isnan(x) else x for x in LOSSES]
    since = [n - 1 - min(range(n), key=finite.__getitem__) if n else 0 for n in range(13)]
    done = next(n for n in range(13) if since[n] >= patience or n == 12)
    assert len(training.loop.losses) == len(training.loop.held_out) == done
    assert [step for step, _ in training.loop.held_out] == [*range(1, done + 1)]
    assert training.loop.since_best == since[done]
    assert (tmp_path / "run").exists()
    if done:
        best = training.loop.best["weight"].numpy()
        assert (best == weights[done - 1 - since[done]]).all()
    else:
        assert training.loop.best is None


@pytest.mark.parametrize("save_every", [0, 0.5, 1, 2, 2.5, 3, math.inf])
def test_a_checkpoint_is_written_each_time_so_many_seconds_have_passed(tmp_path, clock, save_every):
    training, written = Training(tmp_path / "run", save_every=save_every), []
    save = training.loop.save
    training.loop.save = lambda: (written.append(len(training.loop.losses)), save())
    for _ in training.loop.steps(7):
        training.step()
        clock[0] += 1
    every = max(1, math.ceil(save_every)) if save_every < math.inf else 8
    assert written == [*range(every, 8, every), 7]
