"""Saved files: what comes back is bitwise what went in, or an error; never something else."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

import numpy as np
import pytest
from common import assert_same, leaf, rng_of, run_python, signed

import tinyattn as ta
from tinyattn import nn, optim
from tinyattn.checkpoint import METADATA
from tinyattn.errors import CheckpointError

DTYPES = [np.bool_, np.uint8, np.int8, np.int16, np.int32, np.int64,
          np.float16, np.float32, np.float64]  # fmt: skip


def same_state(actual, expected):
    """Equal structures, with tensors bitwise equal."""
    if isinstance(expected, ta.Tensor):
        assert isinstance(actual, ta.Tensor)
        assert_same(actual.numpy(), expected.numpy())
    elif isinstance(expected, dict):
        assert isinstance(actual, dict)
        assert list(actual) == list(expected)
        for key in expected:
            same_state(actual[key], expected[key])
    elif isinstance(expected, (list, tuple)):
        assert isinstance(actual, list)
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected, strict=True):
            same_state(a, e)
    elif isinstance(expected, float) and expected != expected:
        assert actual != actual
    else:
        assert type(actual) is type(expected)
        assert actual == expected


def nested_state():
    rng = rng_of(0)
    arrays = {np.dtype(d).name: ta.tensor((5 * signed(rng, 3, 4)).astype(d)) for d in DTYPES}
    return {
        "model": arrays,
        "numbers": {"int": 3, "big": 2**80, "float": 0.1, "tiny": 5e-324, "inf": float("-inf"),
                    "nan": float("nan"), "true": True, "none": None},
        "texts": ["", "Größe", "日本", "a.b", "\x00\n", "\ud800"],
        "list": [ta.tensor([1.5]), [ta.tensor(2), {"x": ta.zeros(0, 3)}], []],
        "empty": {},
        "": {"a key": ta.ones(1), ".": ta.zeros(1), "ключ": ta.ones(2)},
    }  # fmt: skip


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.safetensors"


# Round trips


def test_nested_state_comes_back_bitwise(path):
    state = nested_state()
    ta.save(state, path)
    same_state(ta.load(path), state)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (1, 1, 1), (4, 5)])
def test_every_dtype_and_shape(path, dtype, shape):
    array = np.array((7 * signed(rng_of(1), *shape)).astype(dtype)).reshape(shape)
    ta.save({"x": ta.tensor(array)}, path)
    assert_same(ta.load(path)["x"].numpy(), array)


def test_special_numbers_keep_their_bits(path):
    bits = np.array([0x7FC00001, 0xFFC00000, 0x7F800000, 0xFF800000, 0x80000000, 1], np.uint32)
    x = ta.tensor(bits.view(np.float32))
    ta.save({"x": x}, path)
    assert ta.load(path)["x"].numpy().view(np.uint32).tolist() == bits.tolist()


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.T,
        lambda x: x[::2],
        lambda x: x[:, ::-1],
        lambda x: x[1:, 2],
        lambda x: x[:1].expand(5, 6),
        lambda x: x.reshape(2, 2, 6).permute(2, 0, 1),
    ],
)
def test_strided_tensors_are_saved_in_order(path, view):
    """A safetensors file of a strided array, written without care, holds other numbers."""
    x = view(ta.tensor(signed(rng_of(2), 4, 6)))
    ta.save({"x": x}, path)
    assert_same(ta.load(path)["x"].numpy(), np.ascontiguousarray(x.numpy()))


def test_tuples_become_lists_and_numpy_numbers_python_ones(path):
    ta.save({"a": (1, (ta.ones(1),)), "b": np.float64(0.5), "c": np.int32(3)}, path)
    same_state(ta.load(path), {"a": [1, [ta.ones(1)]], "b": 0.5, "c": 3})


def test_one_tensor_under_two_names(path):
    x = ta.randn(3)
    ta.save({"a": x, "b": {"c": x}}, path)
    same_state(ta.load(path), {"a": x, "b": {"c": x}})


@pytest.mark.parametrize(
    "state",
    [
        {"a.b": ta.ones(1), "a": {"b": ta.zeros(1)}},
        {"a": {"b": ta.zeros(1)}, "a.b": ta.ones(1)},
        {"x": [ta.ones(1)], "x.0": ta.zeros(1)},
        {"": {"b": ta.ones(2)}, "b": ta.zeros(2)},
    ],
)
def test_names_that_run_into_each_other_keep_their_tensors(path, state):
    """Names are joined with dots, and may contain dots themselves."""
    ta.save(state, path)
    same_state(ta.load(path), state)


def test_parameters_come_back_as_plain_tensors(path):
    ta.save({"w": nn.Parameter([1.0, 2.0])}, path)
    found = ta.load(path)["w"]
    assert type(found) is ta.Tensor
    assert not found.requires_grad


def test_loaded_tensors_can_be_written_to_and_outlive_the_file(path):
    ta.save({"x": ta.ones(3)}, path)
    x = ta.load(path)["x"]
    path.write_bytes(b"")
    path.unlink()
    x += 1
    assert x.tolist() == [2, 2, 2]


def test_saving_over_a_loaded_file(path):
    ta.save({"x": ta.ones(3)}, path)
    state = ta.load(path)
    ta.save({"x": state["x"] + 1}, path)
    assert ta.load(path)["x"].tolist() == [2, 2, 2]
    assert state["x"].tolist() == [1, 1, 1]


def test_equal_states_give_equal_files_in_every_process(path):
    """safetensors by itself orders the metadata by a hash that differs between processes."""
    ta.save(nested_state(), path)
    content = path.read_bytes()
    code = "import sys, test_checkpoint as t; t.ta.save(t.nested_state(), sys.argv[1])"
    for seed in ("0", "1", "2"):
        other = path.with_name(f"{seed}.safetensors")
        run_python(code, env={"PYTHONHASHSEED": seed}, args=[other])
        assert other.read_bytes() == content
    size = int.from_bytes(content[:8], "little")
    assert size % 8 == 0
    assert list(json.loads(content[8 : 8 + size])["__metadata__"]) == sorted(METADATA)


def test_files_with_the_metadata_in_any_order_load(path):
    """As safetensors, and this library before, wrote them."""
    from safetensors.numpy import load_file, save_file

    state = small_state()
    ta.save(state, path)
    content = path.read_bytes()
    metadata = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    save_file(load_file(path), path, metadata=dict(reversed(metadata.items())))
    same_state(ta.load(path), state)


def test_path_may_be_a_string(tmp_path):
    name = os.path.join(str(tmp_path), "x.safetensors")
    ta.save({"x": ta.ones(1)}, name)
    assert ta.load(name)["x"].item() == 1


def test_file_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ta.save({"x": ta.ones(1)}, "x.safetensors")
    assert ta.load("x.safetensors")["x"].item() == 1
    assert os.listdir() == ["x.safetensors"]


# Files of others


def test_file_from_elsewhere_is_a_flat_dict(path):
    from safetensors.numpy import save_file

    arrays = {"a.weight": np.arange(6.0).reshape(2, 3), "b": np.array([1], np.int64)}
    for metadata in (None, {"format": "pt"}):
        save_file(arrays, path, metadata=metadata)
        found = ta.load(path)
        assert sorted(found) == ["a.weight", "b"]
        for name, array in arrays.items():
            assert_same(found[name].numpy(), array)


def test_our_file_is_a_safetensors_file_for_others(path):
    from safetensors.numpy import load_file

    model = nn.Linear(3, 2)
    ta.save(model.state_dict(), path)
    found = load_file(path)
    assert sorted(found) == ["bias", "weight"]
    assert_same(found["weight"], model.weight.numpy())


def test_file_of_a_state_dict_of_another_library_loads_into_a_module(path):
    from safetensors.numpy import save_file

    weights = {"weight": np.ones((2, 3), np.float32), "bias": np.zeros(2, np.float32)}
    save_file(weights, path)
    model = nn.Linear(3, 2)
    model.load_state_dict(ta.load(path))
    assert_same(model.weight.numpy(), weights["weight"])


# Damage


def small_state():
    rng = rng_of(3)
    weights = {"weight": ta.tensor(signed(rng, 3, 4).astype(np.float32)),
               "bias": ta.tensor(signed(rng, 3))}  # fmt: skip
    return {"model": weights, "step": 17, "rng": {"state": "123456789"}, "names": ["a", "b"]}


def loads_equal_or_is_refused(path, content, state):
    path.write_bytes(content)
    try:
        found = ta.load(path)
    except CheckpointError as error:
        message = str(error)
    else:
        same_state(found, state)
        return True
    assert str(path) in message
    return False


def test_file_cut_short_at_any_97th_byte_is_refused(path):
    state = nested_state()
    ta.save(state, path)
    content = path.read_bytes()
    assert len(content) > 20 * 97
    for end in [*range(0, len(content), 97), len(content) - 1, 1, 7, 8, 9]:
        assert not loads_equal_or_is_refused(path, content[:end], state), end
    assert not loads_equal_or_is_refused(path, content + b"\0", state)
    assert loads_equal_or_is_refused(path, content, state)


@pytest.mark.parametrize("count", [2000, pytest.param(10000, marks=pytest.mark.deep)])
def test_random_mutations_are_refused_or_load_equal(path, count):
    state = small_state()
    ta.save(state, path)
    content = path.read_bytes()
    rng = rng_of(count)
    refused = 0
    for _ in range(count):
        changed = bytearray(content)
        for _ in range(rng.randint(1, 4)):
            changed[rng.randint(len(changed))] = rng.randint(256)
        refused += not loads_equal_or_is_refused(path, bytes(changed), state)
    assert refused > 0.95 * count


def test_every_single_byte_of_the_header_is_protected(path):
    """The names of the metadata too: a file must not pass for one from elsewhere, unchecked."""
    state = small_state()
    ta.save(state, path)
    content = path.read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    unseen = []
    for place in range(header):
        changed = bytearray(content)
        changed[place] ^= 1
        try:
            loads_equal_or_is_refused(path, bytes(changed), state)
        except AssertionError:
            unseen.append((place, content[place : place + 12]))
    assert not unseen


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 8,
        b"\xff" * 64,
        b"\xff\xff\xff\xff\xff\xff\xff\x7f{}",
        b"not a checkpoint at all, but a text of some length",
        b"PK\x03\x04" + b"\0" * 100,
        (2).to_bytes(8, "little") + b"[]",
        (4).to_bytes(8, "little") + b"null",
        (100000).to_bytes(8, "little") + b"[" * 100000,
    ],
)
def test_what_is_no_checkpoint_is_refused(path, content):
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="safetensors"):
        ta.load(path)


def forged(path, state, **metadata):
    """A file with metadata of one's own."""
    from safetensors.numpy import save_file

    arrays = {name: np.ones(2, np.float32) for name in state}
    save_file(arrays, path, metadata=metadata)


def test_metadata_that_lacks_something_is_refused(path):
    forged(path, ["x"], tinyattn="1")
    with pytest.raises(CheckpointError):
        ta.load(path)
    forged(path, ["x"], tinyattn="1", structure=json.dumps({"x": {"tensor": "x"}}))
    with pytest.raises(CheckpointError):
        ta.load(path)
    forged(path, ["x"], tinyattn="1", structure="{", sha256="0")
    with pytest.raises(CheckpointError):
        ta.load(path)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.safetensors"):
        ta.load(tmp_path / "nothing.safetensors")
    with pytest.raises(OSError, match=str(tmp_path)):
        ta.load(tmp_path)
    with pytest.raises(FileNotFoundError):
        ta.save({"x": ta.ones(1)}, tmp_path / "no" / "folder")


# Refused states


@pytest.mark.parametrize(
    ("state", "word"),
    [
        ([ta.ones(1)], "dict"),
        (ta.ones(1), "dict"),
        ({1: ta.ones(1)}, "string"),
        ({"a": {2: 3}}, "a"),
        ({"a": object()}, "object"),
        ({"a": {"b": [1, lambda: 0]}}, r"a\.b\.1"),
        ({"a": {1, 2}}, "set"),
        ({"a": b"bytes"}, "bytes"),
        ({"a": 1j}, "complex"),
        ({"a": np.ones(2)}, "ndarray"),
        ({"a": nn.Linear(1, 1)}, "Linear"),
        ({"a": {"tensor": 1}}, "tensor"),
    ],
)
def test_what_a_file_cannot_hold_is_refused_before_anything_is_written(path, state, word):
    ta.save({"old": ta.ones(1)}, path)
    with pytest.raises(TypeError, match=word):
        ta.save(state, path)
    same_state(ta.load(path), {"old": ta.ones(1)})
    assert [p.name for p in path.parent.iterdir()] == [path.name]


# Interrupted writes


class Killed(BaseException):
    """Not an Exception, as Ctrl-C is none."""


def killing(function, calls_before):
    left = [calls_before]

    def wrapped(*args, **kwargs):
        if left[0] == 0:
            raise Killed
        left[0] -= 1
        return function(*args, **kwargs)

    return wrapped


@pytest.mark.parametrize("name", ["fsync", "replace", "fdopen", "chmod"])
def test_interrupted_write_leaves_the_old_file_and_no_other(path, monkeypatch, name):
    old = small_state()
    ta.save(old, path)
    before = path.read_bytes()
    monkeypatch.setattr(os, name, killing(getattr(os, name), 0))
    with pytest.raises(Killed):
        ta.save({"new": ta.zeros(100)}, path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    same_state(ta.load(path), old)


@pytest.mark.parametrize("error", [Killed, OSError(28, "No space left on device")])
@pytest.mark.parametrize("name", ["write", "flush", "close"])
def test_write_that_fails_in_the_middle_leaves_the_old_file_and_no_other(
    path, monkeypatch, name, error
):
    old = small_state()
    ta.save(old, path)
    before = path.read_bytes()
    real = os.fdopen

    class Failing:
        def __init__(self, *args, **kwargs):
            self.file = real(*args, **kwargs)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.file.close()
            if name == "close" and _[0] is None:
                raise error

        def __getattr__(self, attribute):
            if attribute == name:
                return self.fail
            return getattr(self.file, attribute)

        def fail(self, content=b""):
            self.file.write(content[: len(content) // 2])
            raise error

    monkeypatch.setattr(os, "fdopen", Failing)
    with pytest.raises((Killed, OSError)):
        ta.save({"new": ta.zeros(1000)}, path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_first_write_that_is_interrupted_leaves_nothing(path, monkeypatch):
    monkeypatch.setattr(os, "replace", killing(os.replace, 0))
    with pytest.raises(Killed):
        ta.save(small_state(), path)
    assert list(path.parent.iterdir()) == []


def test_content_is_on_the_disk_before_it_gets_its_name(path, monkeypatch):
    events = []
    real_sync, real_replace = os.fsync, os.replace

    def fsync(handle):
        events.append(("fsync", os.fstat(handle).st_size))
        real_sync(handle)

    def replace(source, target):
        events.append(("replace", Path(source).stat().st_size))
        assert Path(source).parent == Path(target).parent, "another disk cannot be renamed to"
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    ta.save(small_state(), path)
    size = path.stat().st_size
    assert ("fsync", size) in events
    assert events.index(("fsync", size)) < events.index(("replace", size))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such permissions")
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_permissions_follow_the_umask(path, umask):
    old = os.umask(umask)
    try:
        ta.save(small_state(), path)
        assert os.umask(umask) == umask, "the umask is as it was"
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


# Whole runs


WIDTH = 8


def make_run():
    ta.manual_seed(5)
    layer = nn.EncoderLayer(
        WIDTH,
        nn.MultiHeadedAttention(2, WIDTH, 0.3),
        nn.PositionwiseFeedForward(WIDTH, 16, 0.3),
        0.3,
    )
    model = nn.Encoder(layer, 2)
    optimizer = optim.AdamW(model.parameters(), lr=0.01)
    schedule = optim.CosineSchedule(optimizer, 50, warmup=5)
    return model, optimizer, schedule


def train(model, optimizer, schedule, steps):
    losses = []
    for _ in range(steps):
        x = ta.randn(4, 5, WIDTH)
        optimizer.zero_grad()
        loss = ((model(x, valid_lens=[5, 3, 1, 4]) - x) ** 2).mean()
        loss.backward()
        optim.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


def test_run_resumed_from_a_file_continues_bitwise(path):
    """Model, optimizer, schedule and random numbers, with dropout."""
    model, optimizer, schedule = run = make_run()
    train(*run, 4)
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
        "rng": ta.get_rng_state(),
    }
    ta.save(state, path)
    expected = train(*run, 6)
    assert len(set(expected)) == 6
    model2, optimizer2, schedule2 = other = make_run()
    ta.manual_seed(99)
    loaded = ta.load(path)
    same_state(loaded, state)
    model2.load_state_dict(loaded["model"])
    optimizer2.load_state_dict(loaded["optimizer"])
    schedule2.load_state_dict(loaded["schedule"])
    ta.set_rng_state(loaded["rng"])
    assert train(*other, 6) == expected
    for mine, theirs in zip(model.parameters(), model2.parameters(), strict=True):
        assert_same(theirs.numpy(), mine.numpy())


def test_run_resumed_in_another_process_continues_bitwise(path):
    code = """
import sys
import tinyattn as ta
from test_checkpoint import make_run, train
model, optimizer, schedule = make_run()
state = ta.load(sys.argv[1])
model.load_state_dict(state["model"])
optimizer.load_state_dict(state["optimizer"])
schedule.load_state_dict(state["schedule"])
ta.set_rng_state(state["rng"])
print(train(model, optimizer, schedule, 3))
"""
    model, optimizer, schedule = run = make_run()
    train(*run, 2)
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
        "rng": ta.get_rng_state(),
    }
    ta.save(state, path)
    expected = str(train(*run, 3))
    assert run_python(code, args=[path], flags=()).strip() == expected


def test_random_state_round_trip(path):
    ta.manual_seed(8)
    ta.randn(3)
    ta.save({"rng": ta.get_rng_state()}, path)
    first = (ta.randn(5).numpy(), ta.randint(0, 100, (4,)).numpy(), ta.randperm(9).numpy())
    ta.manual_seed(0)
    ta.set_rng_state(ta.load(path)["rng"])
    second = (ta.randn(5).numpy(), ta.randint(0, 100, (4,)).numpy(), ta.randperm(9).numpy())
    for one, two in zip(first, second, strict=True):
        assert_same(two, one)


def test_saving_leaves_no_trace_in_the_model(path):
    model = nn.Linear(3, 2)
    x = leaf(np.ones((1, 3), np.float32))
    out = model(x).sum()
    ta.save({"model": model.state_dict(), "weight": model.weight}, path)
    out.backward()
    assert model.weight.grad is not None
    with ta.no_grad():
        model.weight[0, 0] = 1.0
