"""What stands in a checkpoint, byte for byte, and the words for a file that is none."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import checkpoint
from tinyattn.errors import CheckpointError
from tinyattn.training import atomic_write


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.safetensors"


def header_of(path: Path) -> tuple[dict[str, Any], bytes, bytes]:
    """(the header, its text, the bytes after it)"""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    text = content[8 : 8 + length]
    return json.loads(text), text, content[8 + length :]


def write(path: Path, header: Any, numbers: bytes = b"") -> None:
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + numbers)


# What is written


def test_every_byte_of_a_checkpoint_has_its_meaning(path: Path) -> None:
    half = np.array([[1.5, -2.0], [0.25, 3.0]], np.float16)
    ta.save({"größe": {"w": ta.tensor(half), 3: ta.arange(2)}, "on": [True, None]}, path)
    structure = (
        '{"gr\\u00f6\\u00dfe": {"tensor": [["w", 3], [{"tensor": "gr\\u00f6\\u00dfe.w"}, '
        '{"tensor": "gr\\u00f6\\u00dfe.3"}]]}, "on": [true, null]}'
    )
    digest = hashlib.sha256(structure.encode())
    for name, dtype, array in (
        ("größe.3", "<i8", np.arange(2)),
        ("größe.w", "<f2", half),
    ):
        digest.update(f"\0{name}\0{dtype}\0{array.shape}\0".encode() + array.tobytes())
    header, text, numbers = header_of(path)
    assert header == {
        "__metadata__": {
            "format": "pt",  # or transformers refuses the file
            "tinyattn": "1",
            "tinyattn.sha256": digest.hexdigest(),
            "tinyattn.structure": structure,
        },
        "größe.3": {"dtype": "I64", "shape": [2], "data_offsets": [0, 16]},
        "größe.w": {"dtype": "F16", "shape": [2, 2], "data_offsets": [16, 24]},
    }
    assert [*header][1:] == ["größe.3", "größe.w"]  # large numbers first
    assert numbers == np.arange(2).tobytes() + half.tobytes()
    assert "größe.w".encode() in text, "names are UTF-8 and not escaped"
    assert len(text) % 8 == 0
    assert text == text.rstrip() + b" " * (len(text) - len(text.rstrip()))
    assert len(text) - len(text.rstrip()) < 8


def test_keys_that_join_to_one_name_get_a_prime_each(path: Path) -> None:
    a, b, c = (ta.tensor([i]) for i in (1, 2, 3))
    ta.save({"a.b.c": a, "a.b": {"c": b}, "a": {"b.c": c}}, path)
    header, _, numbers = header_of(path)
    assert [*header][1:] == ["a.b.c", "a.b.c'", "a.b.c''"]
    assert np.frombuffer(numbers, np.int64).tolist() == [1, 2, 3]


def test_half_a_character_in_a_key_is_a_question_mark_in_the_name(path: Path) -> None:
    """Other libraries read UTF-8 alone. The keys of the state itself keep what they are."""
    keys = ["a\ud800", "a\udfff", "\udc80b.c"]
    ta.save({key: ta.tensor([i]) for i, key in enumerate(keys)}, path)
    assert [*header_of(path)[0]][1:] == ["?b.c", "a?", "a?'"]
    assert {key: x.tolist() for key, x in ta.load(path).items()} == {
        key: [i] for i, key in enumerate(keys)
    }


def test_columns_are_written_row_by_row(path: Path) -> None:
    array = np.arange(6.0).reshape(2, 3)
    for view in (array.T, np.asfortranarray(array), array[:, ::-1], array[::-1]):
        ta.save({"x": ta.tensor(view)}, path)
        header, _, numbers = header_of(path)
        assert header["x"]["shape"] == [*view.shape]
        assert numbers == view.tobytes("C")
    x = ta.tensor(array)
    ta.save({"x": x.T, "y": x[:, 1]}, path)
    assert header_of(path)[2] == array.T.tobytes("C") + array[:, 1].tobytes()


def test_a_state_at_the_limit_of_a_header_is_saved_and_loaded(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ta.save({"a": "text"}, path)
    length = len(header_of(path)[1])
    before = path.read_bytes()
    monkeypatch.setattr(checkpoint, "LARGEST_HEADER", length)
    ta.save({"a": "text"}, path)
    assert ta.load(path) == {"a": "text"}
    monkeypatch.setattr(checkpoint, "LARGEST_HEADER", length - 1)
    with pytest.raises(ValueError, match=f"needs a header of {length} bytes, .* most {length - 1}"):
        ta.save({"a": "text"}, path)
    with pytest.raises(CheckpointError, match=f"has {length} bytes, more than {length - 1}"):
        ta.load(path)
    assert path.read_bytes() == before


# What is refused when it is saved


@pytest.mark.parametrize("first", ["a", 1])
@pytest.mark.parametrize("key", [1.5, None, (1,), b"a"])
def test_every_key_is_a_text_or_an_integer(path: Path, first: Any, key: Any) -> None:
    for state, where in (
        ({first: 1, key: 2}, "the state"),
        ({key: 2, first: 1}, "the state"),
        ({"in": {first: 1, key: 2}}, "in"),
        ({"in": [{"to": {key: 1}}]}, "in.0.to"),
    ):
        with pytest.raises(TypeError) as found:
            ta.save(state, path)
        assert str(found.value) == f"the keys of {where} must be strings or integers"
    assert not path.exists()


@pytest.mark.parametrize("value", [1, ta.ones(1), {}])
def test_the_name_of_the_metadata_is_no_key(path: Path, value: Any) -> None:
    with pytest.raises(TypeError) as found:
        ta.save({"a": 1, "__metadata__": value}, path)
    assert str(found.value) == '"__metadata__" cannot be a key: safetensors uses that name itself'
    assert not path.exists()
    ta.save({"a": {"__metadata__": 1}}, path)
    assert ta.load(path) == {"a": {"__metadata__": 1}}


def nested(depth: int, make: Any) -> Any:
    """1, inside so many lists or dicts."""
    value: Any = 1
    for _ in range(depth):
        value = make(value)
    return value


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda value: {"abc": value}, 15 * "abc."),
        (lambda value: [value], "abc" + 28 * ".0" + "."),
        (lambda value: (value,), "abc" + 28 * ".0" + "."),
    ],
)
def test_the_depth_of_a_state_has_a_limit(path: Path, make: Any, name: str) -> None:
    state = {"abc": nested(99, make)}
    ta.save(state, path)
    assert json.dumps(ta.load(path)) == json.dumps(state)
    text = f"more than 100 lists and dicts inside each other: {name}..."
    with pytest.raises(ValueError, match="more than 100 lists") as found:
        ta.save({"abc": nested(100, make)}, path)
    assert len(name) == 60
    assert str(found.value) == text


@pytest.mark.parametrize("value", [object(), np.ones(1), 1j, {1}, b"a", np.complex64(1)])
def test_a_value_of_another_kind_is_named_by_its_keys(path: Path, value: Any) -> None:
    with pytest.raises(TypeError) as found:
        ta.save({"a": [1, {"b": value}]}, path)
    assert str(found.value).startswith(f"a.1.b is a {type(value).__name__}; a checkpoint holds ")
    with pytest.raises(TypeError, match=r"^save takes a dict and then the name of a file, got "):
        ta.save([value], path)


# What is refused when it is loaded


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ([], "its header is not one of safetensors"),
        ([1], "its header is not one of safetensors"),
        ("null", "its header is not one of safetensors"),
        ({"__metadata__": []}, "its header is not one of safetensors"),
        ({"__metadata__": {"a": 1}}, "its header is not one of safetensors"),
        ({"__metadata__": {"a": "1", "b": None}}, "its header is not one of safetensors"),
        ('{"x": {}, "x": {}}', "a name is twice in its header"),
        ('{"__metadata__": {"a": "1", "a": "2"}}', "a name is twice in its header"),
        (
            {"x": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}},
            "it is cut short",
        ),
        (
            {"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}},
            "it is longer than its header says",
        ),
        (
            {"x": {"dtype": "U8", "shape": [7], "data_offsets": [0, 7]}},
            "it is longer than its header says",
        ),
        (
            {"x": {"dtype": "F32", "shape": [2], "data_offsets": [4, 8]}},
            "the place of 'x' does not fit its shape",
        ),
        (
            {"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 8]}},
            "the place of 'x' does not fit its shape",
        ),
        (
            {
                "x": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
                "y": {"dtype": "U8", "shape": [4], "data_offsets": [4, 8]},
            },
            "the place of 'y' does not fit its shape",
        ),
        (
            {
                "x": {"dtype": "U8", "shape": [5], "data_offsets": [0, 5]},
                "y": {"dtype": "U8", "shape": [4], "data_offsets": [4, 8]},
            },
            "the place of 'y' does not fit its shape",
        ),
    ],
)
def test_a_header_that_is_wrong_is_refused_in_words(path: Path, header: Any, words: str) -> None:
    write(path, header, bytes(8))
    with pytest.raises(CheckpointError) as found:
        ta.load(path)
    assert str(found.value) == f"{path} is damaged or not a safetensors file: {words}"


@pytest.mark.parametrize("place", range(8))
def test_each_byte_of_the_length_of_the_header_counts(path: Path, place: int) -> None:
    ta.save({"x": ta.arange(3)}, path)
    content = bytearray(path.read_bytes())
    content[place] ^= 64
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="is damaged or not a safetensors file"):
        ta.load(path)


@pytest.mark.parametrize("missing", [1, 2, 8, 11, 12])
def test_a_file_that_lacks_its_last_bytes_is_cut_short(path: Path, missing: int) -> None:
    ta.save({"x": ta.arange(3, dtype=ta.float32)}, path)
    path.write_bytes(path.read_bytes()[:-missing])
    with pytest.raises(CheckpointError, match=r"file: it is cut short$"):
        ta.load(path)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        *(("F8_E4M3", "float8"), ("F8_E5M2", "float8"), ("F6_E2M3", "float6"), ("F4", "float4")),
        ("C64", "complex64"),
    ],
)
def test_a_dtype_that_no_tensor_has_is_named(path: Path, code: str, kind: str) -> None:
    write(path, {"x": {"dtype": code, "shape": [1], "data_offsets": [0, 1]}}, b"a")
    with pytest.raises(CheckpointError) as found:
        ta.load(path)
    assert str(found.value) == (
        f"{path}: 'x' is {kind} ({code}), and no Tensor has that dtype: convert it to float32 with "
        "the library that wrote it"
    )


@pytest.mark.parametrize("size", [0, 1, 7, 23, 24, 25, 40])
def test_another_file_is_shown_by_its_first_bytes(path: Path, size: int) -> None:
    content = (b"\x89HDF and then other bytes than those of a header")[:size]
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as found:
        ta.load(path)
    words = f"its {size} bytes begin with {content[:24]!r} and end before its header: if torch.save"
    assert words in str(found.value)


@pytest.mark.parametrize("structure", ["[]", "1", '"a"', "null"])
def test_a_structure_that_is_no_dict_is_refused(path: Path, structure: str) -> None:
    digest = checkpoint.checksum(structure, {})
    values = ("1", digest, structure)
    write(path, {"__metadata__": dict(zip(checkpoint.METADATA, values, strict=True))})
    with pytest.raises(CheckpointError, match="safetensors file: its structure is a dict, got "):
        ta.load(path)


# How it is written


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_interrupt_beside_the_renaming_is_what_is_raised(
    path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After it, the new file has its name, and no incomplete one is there to remove."""
    ta.save({"a": 1}, path)
    real = os.replace

    def replace(source: Any, target: Any) -> None:
        if moment == "after":
            real(source, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        ta.save({"a": 2}, path)
    assert ta.load(path) == {"a": 2 if moment == "after" else 1}
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("name", [None, "another"])
def test_an_error_of_the_disk_names_a_file(
    path: Path, name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of a full disk names none, so it gets that of the checkpoint; others keep theirs."""

    def fsync(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", name)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="No space left on device") as found:
        ta.save({"a": 1}, path)
    assert found.value.filename == (name or str(path))
    assert [*path.parent.iterdir()] == []


def test_an_incomplete_file_is_closed_and_named_so_that_a_later_save_removes_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = []
    real, new_file = os.replace, atomic_write.new_file
    files: list[Any] = []

    def noted(*arguments: Any) -> Any:
        files.append(new_file(*arguments))
        return files[-1]

    def replace(source: Any, target: Any) -> None:
        names.append(Path(source).name)
        assert files[-1].closed, "Windows does not rename an open file"
        real(source, target)

    monkeypatch.setattr(atomic_write, "new_file", noted)
    monkeypatch.setattr(os, "replace", replace)
    ta.save({"a": 1}, path)
    assert re.fullmatch(r"\.tinyattn-[0-9a-f]{16}", names[0])
    left = path.with_name(names[0])
    now = 1_700_000_000.0
    monkeypatch.setattr("time.time", lambda: now)
    for age, is_there in ((0, True), (24 * 60 * 60, True), (24 * 60 * 60 + 1, False)):
        left.write_text("half")
        os.utime(left, (now - age, now - age))
        ta.save({"a": 1}, path)
        assert left.exists() == is_there
        left.unlink(missing_ok=True)
    assert len({*names}) == len(names) == 4


@pytest.mark.parametrize("call", ["stat", "unlink"])
@pytest.mark.parametrize(
    "error", [FileNotFoundError, PermissionError, IsADirectoryError, InterruptedError, OSError]
)
def test_a_leftover_that_cannot_be_removed_stays_and_the_save_goes_on(
    path: Path, call: str, error: type[OSError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of another user in a shared folder, or one that another save removed just then."""
    left = [path.with_name(".tinyattn-" + 16 * digit) for digit in "0af"]
    for file in left:
        file.write_text("half")
        os.utime(file, (0, 0))
    real = getattr(Path, call)

    def refused(file: Path, *arguments: Any, **options: Any) -> Any:
        if file.name == left[1].name:
            raise error(errno.EIO, "refused")
        return real(file, *arguments, **options)

    monkeypatch.setattr(Path, call, refused)
    for step in range(2):
        ta.save({"step": step}, path)
        assert ta.load(path) == {"step": step}
    monkeypatch.undo()
    assert sorted(file.name for file in path.parent.iterdir()) == [left[1].name, path.name]
    ta.save({"step": 2}, path)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_folder_with_the_name_of_a_leftover_stays(path: Path) -> None:
    folder = path.with_name(".tinyattn-" + 16 * "0")
    folder.mkdir()
    os.utime(folder, (0, 0))
    ta.save({"a": 1}, path)
    assert ta.load(path) == {"a": 1}
    assert folder.is_dir()
