"""What only shows after a while, or when something goes wrong: memory, threads, forks, kills."""

from __future__ import annotations

import gc
import json
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from common import run_python

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import masks, nn, optim
from tinyattn.engine.autograd import Leaf, Node, count_uses
from tinyattn.engine.rules import Plan
from tinyattn.engine.versions import Version


def encoder(dropout: float = 0.0) -> nn.Module:
    """Small, with everything in it."""
    layer = nn.EncoderLayer(
        8,
        nn.MultiHeadedAttention(2, 8, dropout),
        nn.PositionwiseFeedForward(8, 12, dropout),
        dropout,
    )
    parts = nn.ModuleList([nn.Embedding(10, 8), nn.PositionalEncoding(8, dropout, 16)])
    parts.append(nn.Encoder(layer, 1))
    parts.append(nn.Linear(8, 10))
    return parts


def loss_of(model: nn.Module, ids: np.ndarray) -> ta.Tensor:
    embed, position, body, head = model
    tokens = ta.tensor(ids)
    hidden = body(position(embed(tokens)), mask=masks.padding(tokens, 0))
    return F.cross_entropy(head(hidden).reshape(-1, 10), tokens.reshape(-1), ignore_index=0)


def batches(seed: int) -> np.ndarray:
    ids = np.random.default_rng(seed).integers(1, 10, (4, 3, 6))
    ids[:, 1, 4:] = 0
    return ids


def train(model: nn.Module, ids: np.ndarray, steps: int) -> list[float]:
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, ids[step % len(ids)])
        loss.backward()
        optim.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def hex_of(numbers: list[float]) -> str:
    return " ".join(number.hex() for number in numbers)


# Memory


def resident() -> int:
    """Bytes of this process in memory."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * 4096


def living() -> dict[str, int]:
    counts: dict[str, int] = {}
    for thing in gc.get_objects():
        for kind in (ta.Tensor, Node, Leaf, Version):
            if issubclass(type(thing), kind):  # isinstance also asks the thing, and some warn
                counts[kind.__name__] = counts.get(kind.__name__, 0) + 1
    return counts


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")
@pytest.mark.parametrize("steps", [2000, pytest.param(20000, marks=pytest.mark.deep)])
def test_training_without_the_garbage_collector_does_not_grow(no_gc: None, steps: int) -> None:
    """No tensor, node or version is left behind, and less than 2 MB of anything else."""
    ta.manual_seed(0)
    model, ids = encoder(0.1), batches(0)
    train(model, ids, 100)
    before, growth = living(), []
    while not growth or (growth[-1] >= 2 * 2**20 and len(growth) < 3):
        # A leak grows every time; a heap that other tests have left in pieces settles once.
        memory = resident()
        train(model, ids, steps)
        growth.append(resident() - memory)
        assert living() == before
    assert growth[-1] < 2 * 2**20, growth


# Threads, forks, processes


def test_eight_threads_train_as_one_does() -> None:
    ta.manual_seed(1)
    twins = [[encoder() for _ in range(8)]]
    ta.manual_seed(1)
    twins.append([encoder() for _ in range(8)])
    alone = [train(model, batches(i), 12) for i, model in enumerate(twins[0])]
    together: dict[int, list[float]] = {}
    threads = [
        threading.Thread(
            target=lambda i=i, m=m: together.update({i: train(m, batches(i), 12)})  # type: ignore
        )
        for i, m in enumerate(twins[1])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[i] for i in range(8)] == alone
    for one, two in zip(*twins, strict=True):
        for p, q in zip(one.parameters(), two.parameters(), strict=True):
            assert p.numpy().tobytes() == q.numpy().tobytes()


FORK = """
import os, sys
import tinyattn as ta
from test_long_runs import batches, encoder, hex_of, train
ta.manual_seed(2)
train(encoder(0.1), batches(2), 2)  # compiles what there is to compile
def run():
    ta.manual_seed(3)
    return hex_of(train(encoder(0.1), batches(3), 5))
children = []
for _ in range(3):
    read, write = os.pipe()
    if not os.fork():
        os.write(write, run().encode())
        os._exit(0)
    os.close(write)
    children.append(read)
own = run()
for read in children:
    with os.fdopen(read) as pipe:
        assert pipe.read() == own
for _ in children:
    assert os.wait()[1] == 0
print("equal")
"""


@pytest.mark.skipif(not hasattr(sys, "getrefcount") or sys.platform == "win32", reason="no fork")
def test_forked_children_train_as_their_parent_does() -> None:
    """After the kernels were used: a pool of threads would not survive the fork."""
    assert run_python(FORK).strip() == "equal"


RUN = """
import sys
import tinyattn as ta
from test_long_runs import batches, encoder, hex_of, train
ta.manual_seed(4)
model = encoder(0.1)
print(hex_of(train(model, batches(4), 6)))
ta.save(model.state_dict(), sys.argv[1])
"""


def test_five_processes_give_bitwise_the_same(tmp_path: Path) -> None:
    """Whatever the hash seed and the interpreter's flags: losses and the saved file."""
    flags: list[tuple[str, ...]] = [
        ("-W", "error"),
        ("-O", "-W", "error"),
        ("-OO",),
        ("-X", "dev", "-W", "error"),
        ("-bb", "-W", "error"),
    ]
    losses, files = set(), set()
    for i, given in enumerate(flags):
        path = tmp_path / f"{i}.safetensors"
        env = {"PYTHONHASHSEED": str(17 * i + 1)}
        losses.add(run_python(RUN, env=env, args=[path], flags=given))
        files.add(path.read_bytes())
    assert len(losses) == 1
    assert len(files) == 1
    assert len(set(losses.pop().split())) == 6


# Interrupts


def test_an_interrupt_anywhere_in_backward_leaves_a_usable_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl-C at each op on the way back: no gradient has moved, and training goes on."""
    ta.manual_seed(5)
    model, ids = encoder(), batches(5)

    def both_losses() -> ta.Tensor:
        return loss_of(model, ids[0]) + loss_of(model, ids[1])

    both_losses().backward()
    before = [p.grad.numpy() for p in model.parameters()]
    run_rules = Plan.run_rules
    left = [0]

    def interrupted(*arguments: object) -> object:
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        return run_rules(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Plan, "run_rules", interrupted)
    calls = 0
    while True:
        left[0] = calls
        loss = both_losses()
        try:
            loss.backward()
            break
        except KeyboardInterrupt:
            calls += 1
        del loss
        for old, p in zip(before, model.parameters(), strict=True):
            assert p.grad.numpy().tobytes() == old.tobytes()
            assert p._data.flags.writeable
    monkeypatch.undo()
    ops = [node for node in count_uses([both_losses()._node]) if node.plan is not None]
    assert calls == len(ops) > 20
    for old, p in zip(before, model.parameters(), strict=True):
        np.testing.assert_allclose(p.grad.numpy(), 2 * old, rtol=1e-5, atol=1e-7)
    assert all(np.isfinite(train(model, batches(5), 3)))


# Kills

KILL = """
import json, os, signal, sys, time
import numpy as np
import tinyattn as ta
from tinyattn.training import atomic_write
path = sys.argv[1]
old = {"x": ta.tensor(np.arange(5.0)), "step": 1}
new = {"x": ta.tensor(np.arange(3000.0)), "step": 2}
ta.save(new, path)
new_file = open(path, "rb").read()
ta.save(old, path)
old_file = open(path, "rb").read()

def child(kill):
    "Saves, and is killed at event number `kill` on the way: a call of a C function, or its end."
    count = 0
    def at_event(frame, event, argument):
        nonlocal count
        if event in ("c_call", "c_return"):
            if count == kill:
                os.kill(os.getpid(), signal.SIGKILL)
            count += 1
    def unbuffered(name, mode, **options):
        return open(name, mode, buffering=0, **options)  # so that each write is one
    atomic_write.open = unbuffered
    sys.setprofile(at_event)
    ta.save(new, path)
    sys.setprofile(None)
    os._exit(0)

killed = {"old": 0, "new": 0}
for kill in range(100000):
    pid = os.fork()
    if not pid:
        child(kill)
    status = os.waitpid(pid, 0)[1]
    content = open(path, "rb").read()
    assert content in (old_file, new_file), (kill, len(content))
    found = ta.load(path)
    assert found["step"] == (1 if content == old_file else 2)
    if not os.WIFSIGNALED(status):
        assert content == new_file
        break
    killed["old" if content == old_file else "new"] += 1
    folder = os.path.dirname(path)
    left = set(os.listdir(folder)) - {os.path.basename(path)}
    assert len(left) <= 1, left
    ta.save(old, path)  # what the killed one left behind stops no save; it may still be written
    assert open(path, "rb").read() == old_file
    assert set(os.listdir(folder)) == {os.path.basename(path), *left}
    for name in left:  # after a day the next save removes it
        os.utime(os.path.join(folder, name), (time.time() - 90000,) * 2)
    ta.save(old, path)
    assert open(path, "rb").read() == old_file
    assert os.listdir(folder) == [os.path.basename(path)]
print(json.dumps(killed))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="forks and kills")
def test_a_kill_at_any_moment_of_a_save_leaves_the_old_file_or_the_new(tmp_path: Path) -> None:
    """SIGKILL before and after every call on the way, each in a process of its own."""
    killed = json.loads(run_python(KILL, args=[tmp_path / "state.safetensors"]))
    assert killed["old"] > 100
    assert killed["new"] > 0


PARTS = """
import os, signal, sys
import tinyattn as ta
from tinyattn.training import atomic_write
path = sys.argv[1]
ta.save({"step": 1, "x": ta.ones(2)}, path)
old = open(path, "rb").read()

class Cut:
    "A file that ends the process in the middle of what it writes."
    def __init__(self, name, mode, **options):
        self.file = open(name, mode, buffering=0, **options)
        self.left = limit
    def __enter__(self):
        return self
    def __exit__(self, *_):
        self.file.close()
    def write(self, content):
        content = memoryview(content).cast("B")
        self.file.write(content[: self.left])
        self.left -= len(content)
        if self.left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
    def __getattr__(self, name):
        return getattr(self.file, name)

atomic_write.open = Cut
for limit in range(1, 600, 37):
    pid = os.fork()
    if not pid:
        ta.save({"step": 2, "x": ta.ones(200)}, path)
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    assert open(path, "rb").read() == old
print("old")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="forks and kills")
def test_a_kill_in_the_middle_of_a_write_leaves_the_old_file(tmp_path: Path) -> None:
    assert run_python(PARTS, args=[tmp_path / "state.safetensors"]).strip() == "old"
