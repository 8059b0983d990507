"""Saved files: what comes back is bitwise what went in, or an error; never something else."""

from __future__ import annotations

import base64
import enum
import errno
import io
import json
import os
import pickle
import signal
import stat
import subprocess
import sys
import time
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
from common import assert_same, leaf, needs_torch, rng_of, run_python, signed

import tinyattn as ta
from tinyattn import checkpoint, nn, optim
from tinyattn.errors import CheckpointError
from tinyattn.training import atomic_write
from tinyattn.training.checkpoint import METADATA

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


linux = pytest.mark.skipif(sys.platform != "linux", reason="permissions, links, locks and kills")


def only_file(path):
    return [p.name for p in path.parent.iterdir()] == [path.name]


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
        {"a.b.c": ta.ones(1), "a": {"b.c": ta.zeros(2), "b": {"c": ta.ones(3)}}},
    ],
)
def test_names_that_run_into_each_other_keep_their_tensors(path, state):
    """Names are joined with dots, and may contain dots themselves."""
    ta.save(state, path)
    same_state(ta.load(path), state)


@pytest.mark.parametrize(
    "state",
    [
        {"tensor": ta.ones(1)},
        {"tensor": 1},
        {"tensor": "x", "x": ta.ones(1)},
        {"a": {"tensor": "a"}},
        {"tensor": {"tensor": [{"tensor": "tensor"}, {"tensor": None}]}},
        {"tensor": []},
        {"tensor": {}},
        {"tensor": ["tensor", {"tensor": ta.zeros(2)}]},
    ],
)
def test_a_key_named_tensor_is_a_key_like_others(path, state):
    """In the file, an object of that one key stands for a tensor."""
    ta.save(state, path)
    same_state(ta.load(path), state)


@pytest.mark.parametrize(
    "state",
    [
        {0: "a", 1: "b"},
        {0: ta.ones(2), 1: ta.zeros(3), "0": 1},
        {0: {"w": ta.ones(1)}, "w": ta.zeros(2), 1: {"__metadata__": 2}},
        {"itos": {0: ta.ones(2), -7: "x", 10**30: None}, "stoi": {"0": 1, "x": [{2: {3: 4}}]}},
        {"tensor": {5: ta.ones(1)}, 5: {"tensor": 1}, "0": {0: {0: ta.zeros(2)}}},
        {"mixed": {1: "one", "1": "text", "tensor": ta.ones(3)}},
    ],
)
def test_integers_as_keys_stay_integers(path, state):
    """As in the index of a text, itos, and in the state of a program's own optimizer."""
    ta.save(state, path)
    same_state(ta.load(path), state)
    assert json.dumps(list(ta.load(path))) == json.dumps(list(state))


class Split(enum.StrEnum):
    TRAIN = "train"


@pytest.mark.parametrize(
    ("key", "plain"),
    [
        (np.str_("a"), "a"),
        (Split.TRAIN, "train"),
        (np.int64(3), 3),
        (np.uint8(255), 255),
        (enum.IntEnum("Kind", "A B").B, 2),
        (True, 1),
    ],
)
def test_keys_of_derived_types_are_those_of_the_base(path, key, plain):
    """As np.unique gives labels and counts."""
    ta.save({"names": {key: ta.ones(2)}, key: 5}, path)
    loaded = ta.load(path)
    same_state(loaded, {"names": {plain: ta.ones(2)}, plain: 5})
    assert [*map(type, (*loaded["names"], *loaded))] == [type(plain), str, type(plain)]


def test_another_library_reads_the_names_of_tensors_under_integers(path):
    from safetensors.numpy import load_file

    kind = enum.Enum("Kind", {"NORM": "norm"}, type=str)  # which prints as Kind.NORM
    ta.save({0: {"w": ta.ones(1)}, "w": ta.zeros(2), kind.NORM: ta.ones(0)}, path)
    names = {name: x.tolist() for name, x in load_file(path).items()}
    assert names == {"0.w": [1], "w": [0, 0], "norm": []}


@pytest.mark.parametrize("key", [1.5, None, (1, 2), b"x", np.float32(3)])
def test_other_keys_are_refused(path, key):
    with pytest.raises(TypeError, match="the keys of itos must be strings or integers"):
        ta.save({"itos": {key: 1}}, path)
    assert not path.exists()


def test_the_one_value_of_an_older_file_is_read(path):
    """{"tensor": 1} was {"tensor": [1]} in it."""
    structure = '{"a": {"tensor": [1]}}'
    metadata = zip(METADATA, ("1", checkpoint.checksum(structure, {}), structure), strict=True)
    forged(path, {}, **dict(metadata))
    assert ta.load(path) == {"a": {"tensor": 1}}


def nested(depth, innermost):
    for level in range(depth):
        innermost = {"k": innermost} if level % 2 else [innermost]
    return innermost


def test_the_deepest_state(path):
    state = {"k": nested(checkpoint.DEEPEST - 2, [ta.ones(1)])}
    ta.save(state, path)
    same_state(ta.load(path), state)


def test_the_largest_integers(path):
    state = {"large": 10**4200, "small": -(10**4200)}
    ta.save(state, path)
    same_state(ta.load(path), state)


def test_half_a_pair_of_unicode_in_a_key(path):
    """No file name and no JSON reader of others takes it, but Python does."""
    state = {chr(0xD800): ta.ones(1), chr(0xD801): ta.zeros(2), "?": ta.ones(3)}
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
    assert list(json.loads(content[8 : 8 + size])["__metadata__"]) == ["format", *METADATA]


def test_files_with_the_metadata_in_any_order_load(path):
    """As safetensors, and this library before, wrote them."""
    from safetensors.numpy import load_file, save_file

    state = small_state()
    ta.save(state, path)
    content = path.read_bytes()
    metadata = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    save_file(load_file(path), path, metadata=dict(reversed(metadata.items())))
    same_state(ta.load(path), state)


# A file that safetensors wrote for this library, before the library wrote its files itself.
OLD_FILE = (
    "uAIAAAAAAAB7Il9fbWV0YWRhdGFfXyI6eyJ0aW55YXR0biI6IjEiLCJ0aW55YXR0bi5zaGEyNTYiOiI3M2EyZWEwZmRl"
    "ZjE4YWJjOGM5YzkyOTk3MjBkNGYzNDQzMDQ2NWIzMjYwMWE2OWRlOGQzZDlkMzM3NDM3NmM0IiwidGlueWF0dG4uc3Ry"
    "dWN0dXJlIjoie1wibW9kZWxcIjoge1wid1wiOiB7XCJ0ZW5zb3JcIjogXCJtb2RlbC53XCJ9LCBcImJcIjoge1widGVu"
    "c29yXCI6IFwibW9kZWwuYlwifX0sIFwiYS5iXCI6IHtcInRlbnNvclwiOiBcImEuYlwifSwgXCJhXCI6IHtcImJcIjog"
    "e1widGVuc29yXCI6IFwiYS5iJ1wifX0sIFwic3RlcFwiOiAxNywgXCJ0ZXh0XCI6IFwiR3JcXHUwMGY2XFx1MDBkZmVc"
    "IiwgXCJsaXN0XCI6IFtudWxsLCAxLjUsIHtcInRlbnNvclwiOiBcImxpc3QuMlwifV19In0sImEuYiciOnsiZHR5cGUi"
    "OiJJNjQiLCJzaGFwZSI6WzFdLCJkYXRhX29mZnNldHMiOlswLDhdfSwiYS5iIjp7ImR0eXBlIjoiRjY0Iiwic2hhcGUi"
    "OltdLCJkYXRhX29mZnNldHMiOls4LDE2XX0sImxpc3QuMiI6eyJkdHlwZSI6IkYzMiIsInNoYXBlIjpbMCwzXSwiZGF0"
    "YV9vZmZzZXRzIjpbMTYsMTZdfSwibW9kZWwudyI6eyJkdHlwZSI6IkYzMiIsInNoYXBlIjpbMiwzXSwiZGF0YV9vZmZz"
    "ZXRzIjpbMTYsNDBdfSwibW9kZWwuYiI6eyJkdHlwZSI6IkJPT0wiLCJzaGFwZSI6WzJdLCJkYXRhX29mZnNldHMiOls0"
    "MCw0Ml19fSAgICAgICAHAAAAAAAAAAAAAAAAAOA/AAAAAAAAgD8AAABAAABAQAAAgEAAAKBAAQA="
)


def test_files_of_the_version_before_load(path):
    state = {
        "model": {"w": ta.arange(6, dtype=ta.float32).reshape(2, 3), "b": ta.tensor([True, False])},
        "a.b": ta.tensor(0.5, dtype=ta.float64),
        "a": {"b": ta.tensor([7])},
        "step": 17,
        "text": "Größe",
        "list": [None, 1.5, ta.zeros(0, 3)],
    }
    path.write_bytes(base64.b64decode(OLD_FILE))
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


def test_every_array_begins_at_a_multiple_of_its_item_size(path):
    state = {str(i): ta.tensor(np.ones(3, d)) for i, d in enumerate(DTYPES + DTYPES[::-1])}
    ta.save(state, path)
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    del header["__metadata__"]
    assert len(header) == len(state)
    for name, entry in header.items():
        assert entry["data_offsets"][0] % state[name].dtype.itemsize == 0
    assert (8 + size) % 8 == 0


def write_raw(path, header, numbers=b""):
    """A file with a header of one's own: a dict, or text."""
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + numbers)


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_a_header_names_its_arrays_in_any_order(path):
    """Programs of others write the names sorted, and the numbers in another order."""
    from safetensors.numpy import load_file

    numbers = np.arange(5, dtype=np.float32)
    write_raw(
        path, {"a": entry("F32", [3], 8, 20), "b": entry("F32", [2], 0, 8)}, numbers.tobytes()
    )
    found = ta.load(path)
    for name, array in load_file(path).items():
        assert_same(found[name].numpy(), array)
    assert found["b"].tolist() == [0.0, 1.0]


@pytest.mark.parametrize("shape", [[65536], [256, 1, 256], [0, 3], []])
def test_bfloat16_is_loaded_as_float32(path, shape):
    """All of its numbers: they are the upper halves of float32 ones, so nothing is rounded."""
    bits = np.arange(65536, dtype=np.uint16)[: int(np.prod(shape))] + 0x3F80 * (shape == [])
    write_raw(path, {"w": entry("BF16", shape, 0, bits.nbytes)}, bits.tobytes())
    found = ta.load(path)["w"]
    assert found.dtype == np.float32
    assert found.shape == tuple(shape)
    assert np.array_equal(found.numpy().view(np.uint32).ravel(), bits.astype(np.uint32) << 16)
    found += 1


@needs_torch
def test_bfloat16_of_pytorch(path, torch):
    from safetensors.torch import save_file

    x = torch.tensor(signed(rng_of(4), 3, 5)).bfloat16()
    save_file({"x": x, "y": x.double()}, path)
    assert_same(ta.load(path)["x"].numpy(), x.float().numpy())
    assert_same(ta.load(path)["y"].numpy(), x.double().numpy())


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("F8_E4M3", "float8"),
        ("F8_E5M2", "float8"),
        ("F8_E8M0", "float8"),
        ("F8_E4M3FNUZ", "float8"),
        ("F6_E2M3", "float6"),
        ("F4", "float4"),
        ("C64", "complex"),
    ],
)
def test_files_of_other_dtypes_are_named_for_what_they_are(path, dtype, name):
    write_raw(path, {"layer.w": entry(dtype, [8], 0, 8)}, bytes(8))
    with pytest.raises(CheckpointError) as error:
        ta.load(path)
    for word in (str(path), "layer.w", name, dtype, "float32"):
        assert word in str(error.value)
    assert "damaged" not in str(error.value)


GOOD = {"a": entry("F32", [2], 0, 8), "b": entry("I8", [3], 8, 11)}


@pytest.mark.parametrize(
    "header",
    [
        {"a": GOOD["a"]},
        {"b": GOOD["b"]},
        {**GOOD, "c": entry("I8", [1], 11, 12)},
        {**GOOD, "c": entry("I8", [3], 8, 11)},
        {**GOOD, "b": entry("I8", [3], 7, 10)},
        {**GOOD, "b": entry("I8", [2], 9, 11)},
        {**GOOD, "b": entry("I8", [2], 8, 11)},
        {**GOOD, "b": entry("I8", [-3], 8, 11)},
        {**GOOD, "b": entry("I8", [-3, -1], 8, 11)},
        {**GOOD, "b": entry("I8", [3.0], 8, 11)},
        {**GOOD, "b": entry("I8", "3", 8, 11)},
        {**GOOD, "b": entry("I8", None, 8, 11)},
        {**GOOD, "b": entry("I8", [3], 11, 8)},
        {**GOOD, "b": entry("I9", [3], 8, 11)},
        {**GOOD, "b": entry("", [3], 8, 11)},
        {**GOOD, "b": entry(["I8"], [3], 8, 11)},
        {**GOOD, "b": entry(8, [3], 8, 11)},
        {**GOOD, "b": {"dtype": "I8", "shape": [3]}},
        {**GOOD, "b": {"dtype": "I8", "shape": [3], "data_offsets": [8, 10, 11]}},
        {**GOOD, "b": None},
        {**GOOD, "b": [1]},
        {**GOOD, "c": entry("I8", [0, 2**63], 11, 11)},
        {**GOOD, "c": entry("I8", [0, 10**30], 11, 11)},
        {**GOOD, "c": entry("I8", [1] * 99 + [0], 11, 11)},
        {**GOOD, "c": entry("F64", [10**12], 11, 11 + 8 * 10**12)},
        {**GOOD, "b": entry("I8", [10**16], 8, 11)},  # nobody asks for the memory
        {**GOOD, "__metadata__": ["tinyattn"]},
        {**GOOD, "__metadata__": {"format": 1}},
        {**GOOD, "__metadata__": "pt"},
        {**GOOD, "__metadata__": None},
        "null",
        [GOOD],
        "",
        json.dumps(GOOD)[:-1] + ', "a": ' + json.dumps(GOOD["a"]) + "}",
        json.dumps(GOOD).replace('"shape"', '"shape": [2], "shape"'),
        "[" * 100000,
        '{"a":' * 100000,
        json.dumps(GOOD).replace("11", "1" * 5000),
    ],
)
def test_headers_that_do_not_fit_their_numbers_are_refused(path, header):
    write_raw(path, GOOD, bytes(11))
    assert sorted(ta.load(path)) == ["a", "b"]
    write_raw(path, header, bytes(11))
    with pytest.raises(CheckpointError, match="damaged or not a safetensors file") as error:
        ta.load(path)
    assert str(path) in str(error.value)


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


@pytest.mark.parametrize(
    ("write", "word"),
    [
        (lambda file: np.savez(file, x=np.ones(2)), "b'PK"),
        (lambda file: np.save(file, np.ones(2)), "NUMPY"),
        (lambda file: pickle.dump({"a": 1}, file), "x80"),
        (lambda file: file.write(b"GGUF" + bytes(100)), "b'GGUF"),
        (lambda file: file.write(b"\x89HDF\r\n\x1a\n" + bytes(100)), "HDF"),
        (
            lambda file: file.write(b"version https://git-lfs.github.com/spec/v1\n"),
            "run git lfs pull",
        ),
        (lambda file: file.write(b""), "its 0 bytes begin"),
        (lambda file: file.write((0x4B50).to_bytes(8, "little") + b"{" * 9), "its 17 bytes begin"),
    ],
)
def test_a_file_of_others_is_shown_by_how_it_begins(path, write, word):
    with path.open("wb") as file:
        write(file)
    with pytest.raises(CheckpointError, match=r"safetensors file: its .*numpy\.load") as error:
        ta.load(path)
    assert word in str(error.value)
    assert str(path) in str(error.value)


@needs_torch
@pytest.mark.parametrize("zipped", [True, False])
def test_files_of_pytorch_point_to_interop(path, torch, zipped):
    torch.save({"w": torch.ones(2)}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(CheckpointError, match=r"torch\.save .*ta\.interop\.load_torch_state_dict"):
        ta.load(path)


@linux
def test_a_header_beyond_what_safetensors_reads_is_refused_before_it_is_read(path):
    length = checkpoint.LARGEST_HEADER + 1
    path.write_bytes(length.to_bytes(8, "little") + b'{"a":')
    os.truncate(path, 8 + length + 100)  # nothing of it is on the disk
    with pytest.raises(CheckpointError, match="its header has 100,000,001 bytes, more than"):
        ta.load(path)


VALUES = [
    *(None, True, -1, 0, 1, 2, 3, 2**31, 2**63, 2**64, 10**30, 1.5, 1e308, "", "a", "F32", "BF16"),
    *("I64", [], [0], [1], [2], [-1], [0, 4], [0, 8], [8, 0], [2**62, 2**62, 4], [[1]], {}),
    *({"a": 1}, [0, 2**63], [0.0, 8.0], [None, None], ["0", "8"], [True], [1] * 70),
]


@pytest.mark.parametrize("count", [3000, pytest.param(100_000, marks=pytest.mark.deep)])
def test_any_header_loads_or_is_refused_by_name(path, count):
    """Headers made of right and wrong values; numbers of 8 bytes follow."""
    rng = rng_of(count)

    def value(right):
        return right if rng.uniform() < 0.7 else VALUES[rng.randint(len(VALUES))]

    loaded = 0
    for _ in range(count):
        header = {}
        for name, begin in (("a", 0), ("b", 4)):
            fields = {"dtype": value("F32"), "shape": value([1])}
            fields["data_offsets"] = value([begin, begin + 4])
            for field in list(fields):
                if rng.uniform() < 0.03:
                    del fields[field]
            header[name] = value(fields)
        if rng.uniform() < 0.2:
            header["__metadata__"] = value({"format": value("pt")})
        write_raw(path, value(header), bytes(8))
        try:
            state = ta.load(path)
        except CheckpointError as error:
            assert str(path) in str(error)  # noqa: PT017
        else:
            loaded += 1
            assert sum(x.numel() * x.dtype.itemsize for x in state.values()) in (0, 8, 12, 16)
    assert 0.02 * count < loaded < 0.9 * count


def forged(path, state, **metadata):
    """A file with metadata of one's own."""
    from safetensors.numpy import save_file

    arrays = {name: np.ones(2, np.float32) for name in state}
    save_file(arrays, path, metadata=metadata)


@pytest.mark.parametrize(
    "structure",
    [
        "[" * 100000,
        '{"a":' * 100000,
        "[1]",
        "3",
        '{"tensor": "x"}',
        '{"a": {"tensor": "y"}}',
        '{"a": {"tensor": 3}}',
        '{"a": {"tensor": []}}',
        '{"a": {"tensor": "x"}, "b": {"tensor": "x"}}',
        '{"a": {"tensor": {"b": 1}}}',
        '{"a": {"tensor": {"b": 1, "c": 2}}}',
        '{"a": {"tensor": [["b"], [1, 2]]}}',
        '{"a": {"tensor": [[["b"]], [1]]}}',
        '{"a": ' + "1" * 5000 + "}",
    ],
    ids=lambda text: text[:20],
)
def test_structures_that_are_not_ours_are_refused(path, structure):
    """With a checksum that fits: what comes back is a dict, or the file is named as damaged."""
    arrays = {"x": np.ones(2, np.float32)}

    def write(structure):
        metadata = ("1", checkpoint.checksum(structure, arrays), structure)
        header = {"__metadata__": dict(zip(METADATA, metadata, strict=True))}
        write_raw(path, {**header, "x": entry("F32", [2], 0, 8)}, arrays["x"].tobytes())

    write('{"a": {"tensor": "x"}}')
    same_state(ta.load(path), {"a": ta.ones(2)})
    write(structure)
    with pytest.raises(CheckpointError, match=r"state\.safetensors is damaged"):
        ta.load(path)


SHRINKING = """
import os, signal, sys, time
import tinyattn as ta
path, size = sys.argv[1], os.path.getsize(sys.argv[1])
with open(path, "rb") as file:
    content = file.read()
reader = os.getpid()
writer = os.fork()
if not writer:
    while os.getppid() == reader:
        with open(path, "r+b") as file:
            file.truncate(5000)
            time.sleep(0.001)
            file.write(content)
        time.sleep(0.001)
    os._exit(0)
found = {"whole": 0, "refused": 0}
signal.alarm(60)
try:
    end = time.monotonic() + float(sys.argv[2])
    while not found["refused"] or time.monotonic() < end:
        try:
            assert ta.load(path)["x"].shape == (1000, 1000)
            found["whole"] += 1
        except ta.errors.CheckpointError:
            found["refused"] += 1
finally:
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
print(found["refused"])
"""


@linux
def test_a_file_cut_short_by_another_process_while_it_is_read_is_refused(path, monkeypatch):
    """A file that is mapped into memory would end this process with SIGBUS."""
    ta.save({"x": ta.ones(1000, 1000)}, path)
    assert int(run_python(SHRINKING, args=[path, 0.5])) > 0

    real = json.loads

    def cut_first(*args, **kwargs):
        os.truncate(path, 5000)
        return real(*args, **kwargs)

    ta.save({"x": ta.ones(1000, 1000)}, path)
    monkeypatch.setattr(json, "loads", cut_first)
    with pytest.raises(CheckpointError, match="cut short"):
        ta.load(path)


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


def test_a_file_of_a_later_version_is_refused(path):
    """Its checksum fits, but nobody knows what it means."""
    ta.save({"x": ta.ones(1)}, path)
    content = path.read_bytes()
    assert content.count(b'"tinyattn":"1"') == 1
    path.write_bytes(content.replace(b'"tinyattn":"1"', b'"tinyattn":"2"'))
    with pytest.raises(CheckpointError):
        ta.load(path)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.safetensors"):
        ta.load(tmp_path / "nothing.safetensors")
    with pytest.raises(OSError, match=str(tmp_path)):
        ta.load(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*no to save folder in"):
        ta.save({"x": ta.ones(1)}, tmp_path / "no" / "folder")


# Refused states


@pytest.mark.parametrize(
    ("state", "word"),
    [
        ([ta.ones(1)], "dict"),
        (ta.ones(1), "dict"),
        ({1.0: ta.ones(1)}, "string"),
        ({"a": {2.5: 3}}, "a"),
        ({"a": object()}, "object"),
        ({"a": {"b": [1, lambda: 0]}}, r"a\.b\.1"),
        ({"a": {1, 2}}, "set"),
        ({"a": b"bytes"}, "bytes"),
        ({"a": 1j}, "complex"),
        ({"a": np.ones(2)}, "ndarray"),
        ({"a": nn.Linear(1, 1)}, "Linear"),
        ({"a": np.datetime64("2026-01-01", "ns")}, "datetime64"),
        ({"a": np.timedelta64(1, "ns")}, "timedelta64"),
        ({"a": np.longdouble(1)}, "longdouble"),
        ({"__metadata__": ta.ones(1)}, "__metadata__"),
        ({"__metadata__": {"a": ta.ones(1)}}, "__metadata__"),
        ({"": {"__metadata__": ta.ones(1)}}, "__metadata__"),
    ],
)
def test_what_a_file_cannot_hold_is_refused_before_anything_is_written(path, state, word):
    ta.save({"old": ta.ones(1)}, path)
    with pytest.raises(TypeError, match=word):
        ta.save(state, path)
    same_state(ta.load(path), {"old": ta.ones(1)})
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({"m": nn.Linear(1, 1)}, r"^m is a Linear; .* write its state_dict\(\)"),
        ({"a": [nn.Linear(1, 1)]}, r"^a\.0 is a Linear; .* write its state_dict\(\)"),
        (nn.Linear(1, 1), r"save takes a dict .*, got Linear; .* write its state_dict\(\)"),
        (ta.ones(1), "got Tensor; a checkpoint holds"),
        ({"a": np.ones(2)}, r"^a is a ndarray; .* ta\.tensor\(array\)"),
        ({"f": lambda: 0}, "^f is a function; a checkpoint holds"),
        ([1], "got list; a checkpoint holds Tensors"),
        ({"p": Path("x")}, "^p is a .*Path; a checkpoint holds Tensors"),
        ("state.safetensors", "a dict and then the name of a file, got str"),
    ],
)
def test_what_is_refused_says_what_to_save(path, state, text):
    with pytest.raises(TypeError, match=text):
        ta.save(state, path)
    assert list(path.parent.iterdir()) == []


@needs_torch
def test_tensors_of_pytorch_are_refused_with_what_to_write(path, torch):
    with pytest.raises(TypeError, match=r"t\.0 is a Tensor; .* ta\.tensor"):
        ta.save({"t": [torch.ones(2)]}, path)
    assert ta.tensor(torch.ones(2)).tolist() == [1, 1]


def test_derived_classes_come_back_as_their_base(path):
    class Name(str):
        pass

    class Color(enum.IntEnum):
        RED = 3

    state = {"o": OrderedDict(a=1), "s": Name("x"), "e": Color.RED, "b": np.bool_(True)}
    ta.save(state, path)
    same_state(ta.load(path), {"o": {"a": 1}, "s": "x", "e": 3, "b": True})


def test_a_path_is_a_name(path):
    ta.save({"a": 1}, os.fsencode(path))
    assert ta.load(os.fsencode(path)) == ta.load(path) == ta.load(str(path)) == {"a": 1}
    for wrong in (5, None, ["a"], 1.5, io.BytesIO()):
        for call in (
            lambda wrong=wrong: ta.save({"a": 1}, wrong),
            lambda wrong=wrong: ta.load(wrong),
        ):
            with pytest.raises(TypeError, match=f"os.PathLike object, not {type(wrong).__name__}"):
                call()
    for call in (lambda: ta.save({"a": 1}, "a\0b"), lambda: ta.load("a\0b")):
        with pytest.raises((ValueError, CheckpointError), match="null byte"):
            call()
    assert only_file(path)


def endless():
    state = {"a": {}}
    state["a"]["a"] = state["a"]
    return state


@pytest.mark.parametrize(
    ("state", "word"),
    [
        ({"a": 10**4300}, "4300 digits"),
        ({"b": [10**5000]}, "4300 digits"),
        ({"a": -(10**4300)}, "4300 digits"),
        ({"k": nested(checkpoint.DEEPEST - 1, [1])}, "inside each other"),
        ({"k": nested(500, {"tensor": ta.ones(1)})}, "inside each other"),
        ({"k": nested(100_000, [1])}, "inside each other"),
        (endless(), "inside each other"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_what_is_too_large_is_refused_before_anything_is_written(path, state, word):
    ta.save({"old": ta.ones(1)}, path)
    with pytest.raises(ValueError, match=word):
        ta.save(state, path)
    same_state(ta.load(path), {"old": ta.ones(1)})
    assert only_file(path)


def test_texts_beyond_what_a_safetensors_header_holds_are_refused(path, monkeypatch):
    ta.save({"old": "text"}, path)
    monkeypatch.setattr(checkpoint, "LARGEST_HEADER", 10_000)
    ta.save({"old": "a" * 9_000}, path)
    for state in ({"a": "b" * 10_000}, {"a": ["b"] * 5000}, {"k" * 10_000: ta.ones(1)}):
        with pytest.raises(ValueError, match=r"header .*10,000"):
            ta.save(state, path)
    same_state(ta.load(path), {"old": "a" * 9_000})
    assert only_file(path)


@pytest.mark.deep
def test_the_longest_text_that_safetensors_reads(path):
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    state = {"a": "b" * (checkpoint.LARGEST_HEADER - 200)}
    ta.save(state, path)
    assert load_file(path) == {}
    assert ta.load(path) == state
    with pytest.raises(ValueError, match="header"):
        ta.save({"a": "b" * checkpoint.LARGEST_HEADER}, path)
    assert ta.load(path) == state
    write_raw(path, "{}" + " " * (checkpoint.LARGEST_HEADER - 1))
    with pytest.raises(SafetensorError):
        load_file(path)


# Names and what is there already


@pytest.mark.parametrize("name", ["x" * 255, "я" * 127, "x"])
def test_the_longest_names_a_file_may_have(tmp_path, name):
    path = tmp_path / name
    for value in (1, 2):
        ta.save({"a": value}, path)
        assert ta.load(path) == {"a": value}
        assert only_file(path)


@linux
@pytest.mark.parametrize("name", ["x" * 256, "я" * 128])
def test_names_that_are_too_long_are_refused_before_anything_is_written(tmp_path, name):
    with pytest.raises(OSError, match="too long") as error:
        ta.save(small_state(), tmp_path / name)
    assert name in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_names_no_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    for path in ("", ".", "folder", str(tmp_path), tmp_path):
        with pytest.raises(OSError, match="name of a file") as error:
            ta.save(small_state(), path)
        assert repr(str(path)) in str(error.value)
    with pytest.raises(OSError, match="''"):
        ta.load("")
    assert os.listdir() == ["folder"]


@linux
def test_what_is_no_file_is_not_replaced(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(OSError, match="name of a file"):
        ta.save(small_state(), path)
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert only_file(path)


@linux
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o640, 0o666, 0o755])
@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_overwriting_keeps_the_mode(path, mode, umask):
    ta.save({"a": 1}, path)
    path.chmod(mode)
    old = os.umask(umask)
    try:
        ta.save({"a": 2}, path)
    finally:
        os.umask(old)
    assert ta.load(path) == {"a": 2}
    assert stat.S_IMODE(path.stat().st_mode) == mode


@linux
def test_nobody_may_read_the_new_file_who_could_not_read_the_old(path, monkeypatch):
    """Not even while it is written."""
    ta.save({"a": 1}, path)
    path.chmod(0o600)
    modes = []
    for name in ("open", "fstat", "chmod", "fsync", "replace"):
        real = getattr(os, name)

        def call(*args, real=real, **kwargs):
            result = real(*args, **kwargs)
            for file in path.parent.iterdir():
                modes.append(stat.S_IMODE(file.stat().st_mode))
            return result

        monkeypatch.setattr(os, name, call)
    ta.save({"a": 2}, path)
    assert len(modes) > 4
    assert set(modes) == {0o600}


@linux
def test_overwriting_keeps_the_owner(path):
    ta.save({"a": 1}, path)
    try:
        os.chown(path, 12345, 54321)
    except PermissionError:
        pytest.skip("only root gives files away")
    path.chmod(0o640)
    ta.save({"a": 2}, path)
    found = path.stat()
    assert (found.st_uid, found.st_gid) == (12345, 54321)
    assert stat.S_IMODE(found.st_mode) == 0o640


@linux
def test_overwriting_keeps_the_group(path):
    ta.save({"a": 1}, path)
    try:
        os.chown(path, -1, 54321)
    except PermissionError:
        pytest.skip("only root gives files away")
    ta.save({"a": 2}, path)
    assert path.stat().st_gid == 54321


@linux
def test_a_file_that_this_user_may_not_write_is_not_replaced(path, monkeypatch):
    """Its mode lets others write it."""
    ta.save({"a": 1}, path)
    monkeypatch.setattr(os, "access", lambda name, mode: mode != os.W_OK)
    with pytest.raises(PermissionError, match="read-only"):
        ta.save({"a": 2}, path)
    assert ta.load(path) == {"a": 1}
    assert only_file(path)


@linux
def test_a_file_whose_owner_cannot_be_kept_is_not_replaced(path, monkeypatch):
    ta.save({"a": 1}, path)
    real = os.stat

    def of_another(name, *args, **kwargs):
        found = real(name, *args, **kwargs)
        if os.fspath(name) != str(path):
            return found
        return os.stat_result((*found[:4], 12345, *found[5:]))

    def refused(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "stat", of_another)
    monkeypatch.setattr(os, "chown", refused)
    with pytest.raises(PermissionError, match="another user or group") as error:
        ta.save({"a": 2}, path)
    monkeypatch.undo()
    assert str(path) in str(error.value)
    assert ta.load(path) == {"a": 1}
    assert only_file(path)


@linux
@pytest.mark.parametrize("mode", [0o444, 0o400])
def test_a_read_only_file_is_refused(path, mode):
    """Root may write to it, but whoever made it so did not want that."""
    ta.save({"a": 1}, path)
    path.chmod(mode)
    with pytest.raises(PermissionError, match="read-only") as error:
        ta.save({"a": 2}, path)
    assert str(path) in str(error.value)
    assert ta.load(path) == {"a": 1}
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert only_file(path)


@linux
@pytest.mark.parametrize("name", ["blobs", "Blobs", "blobs.old"])
def test_only_a_link_into_blobs_is_one_of_a_cache(tmp_path, name):
    """A file in a folder of this name may be written, and so may a link to elsewhere."""
    (tmp_path / name).mkdir()
    ta.save({"a": 1}, tmp_path / name / "new.safetensors")
    ta.save({"a": 2}, tmp_path / name / "new.safetensors")
    assert ta.load(tmp_path / name / "new.safetensors") == {"a": 2}
    link = tmp_path / name / "link"
    link.symlink_to(tmp_path / "outside")
    ta.save({"a": 3}, link)
    assert link.is_symlink()
    assert ta.load(tmp_path / "outside") == {"a": 3}
    into = tmp_path / "into"
    into.symlink_to(tmp_path / name / "new.safetensors")
    if name == "blobs":
        with pytest.raises(FileExistsError, match="huggingface_hub"):
            ta.save({"a": 4}, into)
    else:
        ta.save({"a": 4}, into)
    kept = ta.load(tmp_path / name / "new.safetensors")
    assert kept == {"a": 2 if name == "blobs" else 4}


@linux
def test_a_symbolic_link_stays_and_its_target_is_written(tmp_path, monkeypatch):
    runs = tmp_path / "runs"
    runs.mkdir()
    target, link, second = runs / "7.st", tmp_path / "latest.st", tmp_path / "again.st"
    link.symlink_to("runs/7.st")
    second.symlink_to(link)
    for value, path in enumerate([link, second, "latest.st", target]):
        monkeypatch.chdir(tmp_path)
        ta.save({"a": value}, path)  # the first finds no target
        assert ta.load(target) == {"a": value}
        assert os.readlink(link) == "runs/7.st"
        assert os.readlink(second) == str(link)
        assert not target.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["again.st", "latest.st", "runs"]
    assert os.listdir(runs) == ["7.st"]


@linux
def test_links_without_an_end_are_refused(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.symlink_to(two)
    two.symlink_to(one)
    with pytest.raises(OSError, match="symbolic links"):
        ta.save({"a": 1}, one)
    nowhere = tmp_path / "nowhere"
    nowhere.symlink_to(tmp_path / "no" / "folder")
    with pytest.raises(FileNotFoundError, match="no folder"):
        ta.save({"a": 1}, nowhere)


def test_the_umask_of_the_process_is_left_alone(path, monkeypatch):
    """It belongs to all threads: another one may make a file just then."""

    def refused(_):
        raise AssertionError("umask")

    monkeypatch.setattr(os, "umask", refused)
    ta.save({"a": 1}, path)
    ta.save({"a": 2}, path)


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


@pytest.mark.parametrize("name", ["fsync", "replace", "open", "chmod"])
def test_interrupted_write_leaves_the_old_file_and_no_other(path, monkeypatch, name):
    old = small_state()
    ta.save(old, path)
    path.chmod(0o666)  # so that the new file's mode has to be changed
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

    class Failing:
        def __init__(self, *args, **kwargs):
            self.file = open(*args, **kwargs)  # noqa: SIM115

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

    monkeypatch.setattr(atomic_write, "open", Failing, raising=False)
    with pytest.raises((Killed, OSError)):
        ta.save({"new": ta.zeros(1000)}, path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert only_file(path)


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


# What a killed save leaves behind, and several at once


def start(code, *args):
    """A process of its own, which somebody will kill."""
    environment = {**os.environ, "PYTHONPATH": str(Path(ta.__file__).parents[1])}
    output = subprocess.PIPE if code == SAVING else None
    return subprocess.Popen([sys.executable, "-c", code, *map(str, args)], env=environment,
                            stdout=output)  # fmt: skip


def leftovers(path):
    return [p for p in path.parent.iterdir() if p != path]


def make_old(file):
    a_day_ago = time.time() - 24 * 60 * 60
    os.utime(file, (a_day_ago, a_day_ago))


HALF = """
import os, signal, sys
import tinyattn as ta
os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
ta.save({"a": ta.ones(1000)}, sys.argv[1])
"""


@linux
def test_a_save_removes_what_a_killed_one_left_a_day_ago(path):
    """Not earlier, because another process may be writing it."""
    ta.save({"a": 1}, path)
    assert start(HALF, path).wait() == -signal.SIGKILL
    left = leftovers(path)
    assert len(left) == 1
    assert ta.load(path) == {"a": 1}
    ta.save({"a": 2}, path)
    assert ta.load(path) == {"a": 2}
    assert leftovers(path) == left
    make_old(left[0])
    ta.save({"a": 3}, path)
    assert only_file(path)


@linux
def test_files_of_the_user_are_not_removed(path):
    """A name that begins like that of an incomplete file is not one."""
    names = [
        ".tinyattn-notes",
        ".tinyattn-" + 15 * "a",
        ".tinyattn-" + 17 * "a",
        ".tinyattn-" + 16 * "g",
    ]
    for name in names:
        path.with_name(name).write_text("mine")
        make_old(path.with_name(name))
    ta.save({"a": 1}, path)
    assert sorted(p.name for p in leftovers(path)) == sorted(names)


@linux
def test_a_new_file_is_never_one_that_is_there(path, monkeypatch):
    """Two saves that draw one name do not write one file."""
    import secrets

    monkeypatch.setattr(secrets, "token_hex", lambda _: 16 * "z")
    mine = path.with_name(".tinyattn-" + 16 * "z")
    mine.write_text("of another save")
    with pytest.raises(FileExistsError):
        ta.save({"a": 1}, path)
    assert mine.read_text() == "of another save"


@linux
def test_a_file_that_another_save_writes_is_not_removed(path, monkeypatch):
    real, inside = os.fsync, []

    def fsync(handle):
        real(handle)
        if not inside:
            inside.append(leftovers(path))
            ta.save({"a": "inner"}, path)
            assert leftovers(path) == inside[0]

    monkeypatch.setattr(os, "fsync", fsync)
    ta.save({"a": "outer"}, path)
    assert len(inside[0]) == 1
    assert ta.load(path) == {"a": "outer"}
    assert only_file(path)


SAVING = """
import sys
import numpy as np
import tinyattn as ta
path, mine = sys.argv[1], int(sys.argv[2])
for step in range(10**9):
    x = np.full(1 + (step * 7919) % 100_000, step, np.float64)
    ta.save({"mine": mine, "step": step, "x": ta.tensor(x)}, path)
    print(step, flush=True)
"""


@linux
@pytest.mark.parametrize("kills", [12, pytest.param(100, marks=pytest.mark.deep)])
def test_nothing_is_lost_when_saves_are_killed_at_random_moments(path, kills):
    """Two processes save under one name all the time, until they are killed."""
    rng = rng_of(kills)
    for _ in range(kills // 2):
        children = [start(SAVING, path, mine) for mine in range(2)]
        for child in children:
            assert child.stdout.readline() == b"0\n"
        for mine, child in enumerate(children):
            time.sleep(rng.uniform(0, 0.1))
            child.kill()
            steps = [0, *map(int, child.communicate()[0].split())]
            assert child.returncode == -signal.SIGKILL
            found = ta.load(path)
            assert np.array_equal(found["x"].numpy(), np.full(found["x"].shape, found["step"]))
            assert found["mine"] != mine or found["step"] >= steps[-1]
        for left in leftovers(path):
            make_old(left)
        ta.save({"a": 1}, path)
        assert only_file(path)


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


def test_what_pytorch_raises_as_runtime_errors_are_runtime_errors():
    """A program catches them around load_state_dict, or where shapes and dtypes do not fit."""
    layer = nn.Linear(2, 3)
    bad = [
        lambda: layer.load_state_dict({}),
        lambda: layer.load_state_dict({"weight": ta.ones(2, 2), "bias": ta.ones(3)}),
        lambda: layer(ta.ones(4, 3)),
        lambda: ta.ones(2, 3).view(5),
        lambda: ta.cat([ta.ones(2, 3), ta.ones(3, 2)]),
        lambda: ta.tensor([1, 2]).requires_grad_(),
        lambda: ta.ones(2).backward(),
    ]
    for call in bad:
        with pytest.raises(RuntimeError):
            call()
