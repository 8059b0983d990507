"""Random states, and files of others with a random fault: what comes back is right, or an error."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest
from common import assert_same, rng_of
from test_checkpoint import same_state

import tinyattn as ta
from tinyattn import checkpoint
from tinyattn.errors import CheckpointError

# Names that mean something in a file, that join to one name, or that JSON writes in another way.
KEYS = ["tensor", "a", "b", "a.b", "", ".", "0", "1", "größe", 0, 1, -1]
TEXTS = ["", "a", "b", "a.b", "tensor", "tensor.a", "größe"]
DTYPES = ["float32", "float64", "float16", "int64", "uint8", "bool"]


def loaded(content: bytes) -> dict[str, Any]:
    """What `ta.load` reads in a file, without a disk."""
    return checkpoint.state_in(io.BytesIO(content), "run.safetensors")


def joined(pieces: list[Any]) -> bytes:
    file = io.BytesIO()
    for piece in pieces:
        file.write(piece)
    return file.getvalue()


def saved_and_loaded(state: dict[Any, Any]) -> dict[Any, Any]:
    return loaded(joined(checkpoint.pieces_of(state)))


def refused(content: bytes, words: str) -> None:
    with pytest.raises(CheckpointError, match=f"^run.safetensors is damaged or not a .*: {words}"):
        loaded(content)


def random_dict(rng: np.random.RandomState, depth: int) -> dict[Any, Any]:
    keys = [KEYS[i] for i in rng.choice(len(KEYS), rng.randint(0, 4), replace=False)]
    return {key: random_value(rng, depth - 1) for key in keys}


def random_value(rng: np.random.RandomState, depth: int) -> Any:
    kind = rng.randint(7 if depth else 5)
    if kind < 2:
        shape = [(), (2,), (0,), (2, 1)][rng.randint(4)]
        return ta.tensor(np.array(rng.randint(0, 9, shape), DTYPES[rng.randint(6)]))
    if kind == 2:
        return [None, True, 0, 1.5, -(2**70)][rng.randint(5)]
    if kind < 5:
        return TEXTS[rng.randint(len(TEXTS))]
    if kind == 5:
        return [random_value(rng, depth - 1) for _ in range(rng.randint(3))]
    return random_dict(rng, depth)


@pytest.mark.parametrize("seed", range(8))
def test_a_state_drawn_at_random_comes_back(seed: int) -> None:
    rng = rng_of(seed)
    for _ in range(25):
        state = random_dict(rng, 4)
        same_state(saved_and_loaded(state), state)


@pytest.mark.parametrize("key", ["tensor", 0])
@pytest.mark.parametrize("value", ["a", "tensor", "other", 1, None, ["a"], {"tensor": "a"}])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_value_under_the_name_of_tensors_may_be_anywhere(
    place: int, value: Any, key: Any
) -> None:
    """Alone, first or last; also where its text is the name of a tensor of the file."""
    others: dict[Any, Any] = {"a": ta.ones(2), "b": "a"}
    state = [{key: value}, {key: value} | others, others | {key: value}][place]
    for whole in (state, {"a": ta.zeros(1), "in": [state, {key: ta.ones(3)}]}):
        same_state(saved_and_loaded(whole), whole)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tensor_that_changes_while_it_is_written_is_written_as_it_was(dtype: str) -> None:
    """Another thread may train on; the checksum would not fit its numbers."""
    x = ta.tensor(np.array([[1, 0, 1], [0, 0, 1]], dtype))
    for view in (x, x[:, 1:], x.T, x[1], x[0, 0]):
        right = view.numpy().copy()
        pieces = checkpoint.pieces_of({"x": view})
        with ta.no_grad():
            x[...] = 1 - x.numpy()
        assert not np.array_equal(view.numpy(), right)
        assert_same(loaded(joined(pieces))["x"].numpy(), right)


# Files of other libraries, which have no checksum

ENTRIES = {"größe.w": ("F32", [2, 3], 24), "b": ("I64", [1], 8), "日本": ("U8", [5], 5)}


def header_of_another(**changes: dict[str, Any]) -> dict[str, Any]:
    """Three tensors and a text; `changes` are of the entry "b"."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt", "author": "Zoë"}}
    end = 0
    for name, (dtype, shape, size) in ENTRIES.items():
        begin, end = end, end + size
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    header["b"] |= changes
    return header


def file_of(header: Any, numbers: int = 37) -> bytes:
    """Its bytes; the numbers are zeros. The header is a dict, or the text of one."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(numbers)


@pytest.mark.parametrize("byte", [0x80, 0xBF, 0xC3, 0xE6, 0xF8, 0xFF])
def test_a_byte_that_is_no_utf8_is_refused_wherever_it_stands(byte: int) -> None:
    """A name would be changed without a word, because the file has no checksum of ours."""
    text = json.dumps(header_of_another(), ensure_ascii=False).encode()
    assert [*loaded(file_of(text))] == [*ENTRIES]
    for place in range(len(text) + 1):
        content = text[:place] + bytes([byte]) + text[place:]
        try:
            content.decode()
        except UnicodeDecodeError:
            refused(file_of(content), "'utf-8' codec can't decode byte")


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16-le", "utf-16-be", "utf-32-le"])
def test_a_header_in_another_encoding_is_refused(encoding: str) -> None:
    header = header_of_another()
    del header["日本"]
    text = json.dumps(header, ensure_ascii=False)
    assert [*loaded(file_of(text.encode(), 32))] == ["größe.w", "b"]
    refused(file_of(text.encode(encoding), 32), "")


@pytest.mark.parametrize("value", [1, 1.5, True, None, [], ["a"], {}, {"a": "b"}])
def test_metadata_are_texts_alone(value: Any) -> None:
    for metadata in ({"a": value}, {"a": "b", "c": value}, {"c": value, "a": "b"}):
        header = header_of_another() | {"__metadata__": metadata}
        refused(file_of(header), "its header is not one of safetensors$")
    for good in ({}, {"a": ""}):
        assert [*loaded(file_of(header_of_another() | {"__metadata__": good}))] == [*ENTRIES]


@pytest.mark.parametrize("end", [31, 32, 33, 34])
@pytest.mark.parametrize("begin", [23, 24, 25])
def test_a_tensor_in_the_middle_has_the_place_of_its_bytes(begin: int, end: int) -> None:
    """Not one byte more, fewer, earlier or later, although the file has bytes there."""
    content = file_of(header_of_another(data_offsets=[begin, end]))
    if (begin, end) == (24, 32):
        assert loaded(content)["b"].tolist() == [0]
    else:
        refused(content, "the place of 'b' does not fit its shape$")


@pytest.mark.parametrize("size", [0, 6, 7, 8, 9, 16])
@pytest.mark.parametrize("dtype", ["I8", "U8", "BOOL", "F16", "BF16", "I32", "F64"])
def test_the_bytes_of_a_tensor_are_those_of_its_shape_and_dtype(dtype: str, size: int) -> None:
    item = {"F16": 2, "BF16": 2, "I32": 4, "F64": 8}.get(dtype, 1)
    entry = {"dtype": dtype, "shape": [8 // item], "data_offsets": [0, size]}
    content = file_of({"x": entry}, size)
    if size == 8:
        assert loaded(content)["x"].shape == (8 // item,)
    else:
        refused(content, "the place of 'x' does not fit its shape$")


@pytest.mark.parametrize("shape", ["[1, 2]", "[2.0, 1]", "[[2]]", "{}", "2", "[null]", '["2"]',
                                   "[1e999]", "[0, 1e999]", "[-1, -2]", "[0.5, 4]", "[]",
                                   f"[1{400 * '0'}, 0.5]", f"[0, 1{400 * '0'}]"])  # fmt: skip
@pytest.mark.parametrize("end", ["2", "1e999", "null", '"2"', f"1{400 * '0'}"])
def test_what_is_no_shape_is_refused_whatever_error_it_would_be(shape: str, end: str) -> None:
    """A number beyond those of float64 too: the one error of `ta.load` names the file."""
    text = f'{{"x": {{"dtype": "U8", "shape": {shape}, "data_offsets": [0, {end}]}}}}'
    if (shape, end) == ("[1, 2]", "2"):
        assert loaded(file_of(text.encode(), 2))["x"].shape == (1, 2)
    else:
        refused(file_of(text.encode(), 2), "")
