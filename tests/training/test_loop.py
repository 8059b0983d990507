"""The bookkeeping of a training: windows of ids, groups that decay, parts of a batch, stops."""

from __future__ import annotations

import math
import os
import signal
import threading

import numpy as np
import pytest
from common import assert_close, assert_equal

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn, optim
from tinyattn.errors import CheckpointError, ShapeError
from tinyattn.training import TrainingLoop, Windows
from tinyattn.training.distributed import DistributedDataParallel
from tinyattn.training.loop import stop_signals

# Windows


def test_windows_are_anywhere_and_targets_come_one_later():
    windows = Windows(np.arange(20, dtype=np.uint16), length=4, batch_size=300, seed=1)
    ids, targets = windows[3]
    assert ids.shape == targets.shape == (300, 4)
    assert ids.dtype == np.int64
    assert_equal(ids, ids[:, :1] + np.arange(4))
    assert_equal(targets, ids + 1)
    assert {*ids[:, 0]} == {*range(16)}  # the last target is the last id
    for other, is_same in ((windows[3], True), (windows[4], False)):
        assert np.array_equal(other[0], ids) == is_same
    assert not np.array_equal(Windows(windows.ids, 4, 300, seed=2)[3][0], ids)
    for found, first in zip(windows.at(np.array([15, 0])), (0, 1), strict=True):
        assert_equal(found, np.array([[15], [0]]) + np.arange(first, first + 4))
    assert np.array_equal(windows.at([15, 0]), windows.at(np.array([15, 0])))
    for start in (-1, 16):
        with pytest.raises(IndexError, match=rf"a window begins at 0 to 15, got \[2, {start}\]"):
            windows.at([2, start])


def test_windows_of_a_file(tmp_path):
    ids = np.arange(1000, dtype=np.uint16)
    (tmp_path / "ids").write_bytes(ids.tobytes())
    whole = np.memmap(tmp_path / "ids", np.uint16, "r")
    later = np.memmap(tmp_path / "ids", np.uint16, "r", offset=200)
    for some, first in ((whole, 0), (later, 100), (whole[700:], 700), (whole[::2], None)):
        expected = ids[::2] if first is None else ids[first:]
        for x, y in zip(Windows(some, 9, 50)[0], Windows(expected, 9, 50)[0], strict=True):
            assert_equal(x, y)


@pytest.mark.parametrize(
    "ids", [np.arange(5), np.zeros((9, 9), int), np.zeros(9), np.empty(0, int)]
)
def test_windows_need_a_row_of_ids(ids):
    with pytest.raises(ShapeError, match="need a row of more than 5 integers"):
        Windows(ids, 5, 2)


# Groups


def test_matrices_decay_and_vectors_do_not():
    model = nn.Sequential(nn.Embedding(5, 4), nn.LayerNorm(4), nn.Linear(4, 3), nn.RMSNorm(3))
    model[2].weight.requires_grad = False
    groups = optim.decay_groups(model.parameters(), 0.5)
    assert [group["weight_decay"] for group in groups] == [0.5, 0.0]
    assert [p.shape for p in groups[0]["params"]] == [(5, 4)]
    assert [p.ndim for p in groups[1]["params"]] == [1, 1, 1, 1]
    before = [p.numpy().copy() for p in model.parameters()]
    for p in model.parameters():
        p.grad = ta.zeros(*p.shape)
    optim.AdamW(groups, 0.1).step()
    for old, new in zip(before, model.parameters(), strict=True):
        decays = new.ndim == 2 and new.requires_grad
        assert_close(new.numpy(), old * (0.95 if decays else 1), 1e-6)
    assert optim.decay_groups([nn.Parameter([1.0])], 0.5)[0]["weight_decay"] == 0.0
    with pytest.raises(TypeError, match="an optimizer takes parameters"):
        optim.decay_groups(model, 0.5)


# A batch in parts


def test_parts_count_by_their_tokens():
    """Four parts of other sizes, one of them empty, have the gradients of the whole batch."""
    ta.manual_seed(0)
    model = nn.Linear(3, 4).double()
    x, y = ta.randn(13, 3).double(), np.arange(13) % 4
    weight = ta.tensor(np.random.default_rng(1).normal(size=13))

    def loss_of(rows):
        return (F.cross_entropy(model(x[rows]), y[rows], reduction="none") * weight[rows]).mean()

    whole = loss_of(slice(None))
    whole.backward()
    expected = [p.grad.numpy() for p in model.parameters()]
    model.zero_grad()
    parts = [slice(0, 6), slice(6, 6), slice(6, 7), slice(7, 13)]
    loss = DistributedDataParallel(model).accumulate(
        (lambda rows=rows: loss_of(rows) for rows in parts), [6, 0, 1, 6]
    )
    assert loss == pytest.approx(whole.item(), rel=1e-12)
    for p, grad in zip(model.parameters(), expected, strict=True):
        assert_close(p.grad.numpy(), grad, 1e-12)
    with pytest.raises(ValueError, match="the weight is 0 in every part"):
        DistributedDataParallel(model).accumulate([], [])
    with pytest.raises(ValueError, match="weight must be a number >= 0"):
        DistributedDataParallel(model).accumulate([lambda: loss_of(parts[0])], [-1])


# The loop


class Training:
    """A small training, which a checkpoint continues."""

    def __init__(self, path, **options):
        ta.manual_seed(0)
        self.model = nn.Linear(3, 1)
        self.optimizer = optim.AdamW(self.model.parameters(), 0.1)
        parts = {"model": self.model, "optimizer": self.optimizer}
        self.loop = TrainingLoop(path, parts, {"width": 3}, **options)

    def step(self):
        loss = F.dropout(self.model(ta.randn(5, 3)), 0.5).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.loop.record(loss.item() / 3)  # which no float32 is


def test_a_loop_goes_on_bit_by_bit(tmp_path):
    whole, path = Training(tmp_path / "whole"), tmp_path / "parts"
    assert [step for step in whole.loop.steps(7) if whole.step() is None] == [*range(7)]
    first = Training(path, save_every=0.0)
    for step in first.loop.steps(7):
        first.step()
        if step == 3:
            break  # as a kill, after which the checkpoint of step 3 is there
    second = Training(path)
    second.loop.restore(ta.load(path))
    steps = [step for step in second.loop.steps(7) if second.step() is None]
    assert steps == [3, 4, 5, 6]
    assert second.loop.losses == whole.loop.losses
    assert_equal(second.model.weight.numpy(), whole.model.weight.numpy())
    assert ta.load(path)["settings"] == {"width": 3}


def test_a_loop_that_is_left_is_saved_by_a_call(tmp_path):
    training, path = Training(tmp_path / "run"), tmp_path / "run"
    for step in training.loop.steps(9):
        training.step()
        if step == 1:
            break
    assert not path.exists()
    training.loop.save()
    assert len(ta.load(path)["losses"]) == 2


SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_the_loop_after_a_whole_step(number, tmp_path):
    # A test may run under nohup.
    before = signal.signal(number, signal.SIG_DFL)
    training = Training(tmp_path / "run")
    try:
        for step in training.loop.steps(9):
            if step == 2:
                os.kill(os.getpid(), number)
            training.step()
        assert training.loop.is_stopped
        assert len(ta.load(tmp_path / "run")["losses"]) == 3
        assert signal.getsignal(number) is signal.SIG_DFL
        # As a notebook's cell that restores and goes on; without `restore` the loop has ended.
        assert not [*training.loop.steps(9)]
        training.loop.restore(ta.load(tmp_path / "run"))
        for _ in training.loop.steps(9):
            training.step()
        assert len(training.loop.losses) == 9
    finally:
        signal.signal(number, before)


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has no SIGHUP")
def test_what_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_signals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.is_set()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_ctrl_c_interrupts():
    # A shell starts programs in the background with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with stop_signals() as stop:
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.is_set()
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_thread_trains_without_signals(tmp_path):
    training = Training(tmp_path / "run")
    thread = threading.Thread(target=lambda: [training.step() for _ in training.loop.steps(2)])
    thread.start()
    thread.join()
    assert len(training.loop.losses) == 2


def test_an_equal_loss_is_not_below_the_lowest(tmp_path):
    training = Training(tmp_path / "run", patience=2)
    loop, weights = training.loop, []
    for step in loop.steps(9):
        training.step()
        weights.append(training.model.weight.numpy().copy())
        loop.measured([2.0, 1.5, 1.5, 1.5, 1.0][step])
        assert loop.since_best == max(0, step - 1)
    assert len(weights) == 4
    assert_equal(loop.best["weight"].numpy(), weights[1])


def test_the_best_model_is_kept(tmp_path):
    training = Training(tmp_path / "run", patience=2)
    loop, weights = training.loop, []
    assert loop.best is None
    for step in loop.steps(9):
        training.step()
        weights.append(training.model.weight.numpy().copy())
        loop.measured([3.0, 2.0, 1.5, 1.7, 1.6][step])
        assert loop.since_best == max(0, step - 2)
    assert len(weights) == 5  # two were not lower
    assert loop.held_out == [[1, 3], [2, 2], [3, 1.5], [4, 1.7], [5, 1.6]]
    again = Training(tmp_path / "run", patience=2)
    again.loop.restore(ta.load(tmp_path / "run"))
    assert not [*again.loop.steps(9)]
    again.model.load_state_dict(again.loop.best)
    assert_equal(again.model.weight.numpy(), weights[2])


class Two:
    """A part of two models, whose state shows their memory."""

    def __init__(self):
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)

    def state_dict(self):
        return {"first": {"weight": self.first.weight.detach()}, "second": self.second.state_dict()}


def test_a_held_out_loss_that_is_no_number_is_never_the_lowest(tmp_path):
    """One in the first place stayed the lowest, so the best model was never noted again."""
    loop = TrainingLoop(tmp_path / "run", {"model": nn.Linear(2, 1)})
    weight = loop.parts["model"].weight
    for loss, since in ((math.nan, 0), (0.5, 0), (math.nan, 1), (0.4, 0), (0.6, 1)):
        with ta.no_grad():
            weight[...] = 0.0 if math.isnan(loss) else loss
        loop.measured(loss)
        assert loop.since_best == since
    assert loop.best["weight"].tolist() == [[pytest.approx(0.4)] * 2]


def test_a_recorded_loss_keeps_no_graph(tmp_path):
    """A loop that records the Tensor of each step would keep the graphs of all."""
    loop = TrainingLoop(tmp_path / "run", {"model": nn.Linear(2, 1)})
    for _ in loop.steps(2):
        loss = loop.parts["model"](ta.ones(2)).sum()
        loop.record(loss)
        loop.measured(loss)
    assert [type(x) for x in (*loop.losses, loop.held_out[0][1])] == [float, float, float]


def test_a_step_with_two_losses_is_named(tmp_path):
    """A loss of each part of a batch ended the training after a part of its steps."""
    training = Training(tmp_path / "run")
    steps = training.loop.steps(9)
    next(steps)
    training.step()
    training.step()
    with pytest.raises(RuntimeError, match=r"step 0 calls record\(loss\) once, not 2 times"):
        next(steps)


def test_a_loop_may_go_back_to_its_checkpoint(tmp_path):
    training = Training(tmp_path / "run")
    done = []
    for step in training.loop.steps(4):
        training.step()
        done.append(step)
        if done == [0]:
            training.loop.save()
        if done == [0, 1, 2]:
            training.loop.restore(ta.load(tmp_path / "run"))
    assert done == [0, 1, 2, 1, 2, 3]


def test_a_step_without_its_loss_is_named(tmp_path):
    """It was the same step again, without an end."""
    training = Training(tmp_path / "run")
    steps = training.loop.steps(9)
    next(steps)
    training.step()
    assert next(steps) == 1
    with pytest.raises(RuntimeError, match=r"step 1 calls record\(loss\) once, not 0 times"):
        next(steps)


@pytest.mark.parametrize("name", ["losses", "held_out", "settings", "best", "elapsed", "random"])
def test_a_part_has_a_name_of_its_own(name, tmp_path):
    """Its state was not saved, and one called best came back with the weights of the model."""
    with pytest.raises(ValueError, match=f"{name!r} of the loop itself"):
        TrainingLoop(tmp_path / "run", {"model": nn.Linear(2, 1), name: nn.Linear(2, 1)})


def test_another_file_is_no_checkpoint_of_a_loop(tmp_path):
    loop = TrainingLoop(tmp_path / "run", {"model": nn.Linear(2, 1)})
    for wrong in ({}, loop.parts["model"].state_dict(), {"model": {}, "random": {}}):
        with pytest.raises(CheckpointError, match=r"a checkpoint of this loop has .*'losses'"):
            loop.restore(wrong)


def test_a_checkpoint_that_is_refused_changes_nothing(tmp_path):
    """The model had the weights of the checkpoint when the optimizer refused its own."""
    training = Training(tmp_path / "run")
    for _ in training.loop.steps(3):
        training.step()
    state = ta.load(tmp_path / "run")
    for wrong in ({"optimizer": {"kind": "SGD"}}, {"random": {}}):
        loop = (other := Training(tmp_path / "run")).loop
        for _ in range(2):
            other.step()
        before = {name: part.state_dict() for name, part in loop.parts.items()}
        numbers = ta.get_rng_state()
        with pytest.raises(ValueError, match="not a state"):
            loop.restore(state | wrong)
        ta.save(before, tmp_path / "before")
        ta.save({n: part.state_dict() for n, part in loop.parts.items()}, tmp_path / "after")
        assert (tmp_path / "after").read_bytes() == (tmp_path / "before").read_bytes()
        assert len(loop.losses) == 2
        assert ta.get_rng_state() == numbers


def test_parts_are_named_and_a_state_is_no_file(tmp_path):
    """The error was of Python: an object has no attribute 'items', or 'keys'."""
    for wrong in (nn.Linear(2, 1), [nn.Linear(2, 1)]):
        with pytest.raises(TypeError, match="parts is a dict of names to parts, got"):
            TrainingLoop(tmp_path / "run", wrong)
    with pytest.raises(CheckpointError, match="a checkpoint of this loop has"):
        TrainingLoop(tmp_path / "run", {"model": nn.Linear(2, 1)}).restore("run")


def test_the_best_state_of_any_form_is_a_copy(tmp_path):
    part = Two()
    loop, first = TrainingLoop(tmp_path / "run", {"model": part}), part.first.weight.numpy().copy()
    loop.losses.append(1.0)
    loop.measured(1.0)
    with ta.no_grad():
        part.first.weight -= 1
    assert_equal(loop.best["first"]["weight"].numpy(), first)
    loop.save()
    assert_equal(ta.load(tmp_path / "run")["best"]["first"]["weight"].numpy(), first)


def test_a_loop_ends_in_time(tmp_path):
    training = Training(tmp_path / "run")
    for _ in training.loop.steps(10**6, seconds=0.2):
        training.step()
    assert 0.2 <= training.loop.elapsed < 5
    again = Training(tmp_path / "run")
    again.loop.restore(ta.load(tmp_path / "run"))
    assert not [*again.loop.steps(10**6, seconds=0.2)]
    for _ in again.loop.steps(len(again.loop.losses) + 1):
        again.step()
    assert again.loop.elapsed > training.loop.elapsed  # the seconds of all runs


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_not_saved(wrong, tmp_path):
    training = Training(tmp_path / "run", save_every=0.0)
    for step in training.loop.steps(9):
        if step == 2:
            with pytest.raises(FloatingPointError, match=f"the loss of step 3 is {wrong}: lower"):
                training.loop.record(wrong)
            break
        training.step()
    assert len(ta.load(tmp_path / "run")["losses"]) == 2
