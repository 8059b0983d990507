"""Settings in JSON: files that are read and written, kinds of values, and what is known."""

from __future__ import annotations

import collections
import json
import re

import numpy as np
import pytest

from tinyattn.errors import CheckpointError
from tinyattn.models.settings import (
    check_kind,
    check_known,
    is_inert,
    is_there,
    naming,
    read_json,
    settings_in,
    settings_of,
    write_json,
)

VALUES = (None, True, False, 0, 1, 0.5, "", "a", [], ["a"], {}, {"a": 1})
SAID = {bool: "true or false", str: "a string", dict: "an object", list: "a list"}

# Kinds of values


@pytest.mark.parametrize("kind", SAID, ids=[kind.__name__ for kind in SAID])
def test_a_value_has_the_kind_that_is_asked_for_or_both_are_named(kind):
    """No number is true or false, and no text is a list."""
    for value in VALUES:
        if type(value) is kind:
            assert check_kind("x", value, kind) is value
        else:
            with pytest.raises(ValueError, match=r"^x must be") as caught:
                check_kind("x", value, kind)
            assert str(caught.value) == f"x must be {SAID[kind]}, got {value!r}"


def test_a_kind_of_a_kind_is_one_too():
    more = collections.OrderedDict(a=1)
    assert check_kind("x", more, dict) is more


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("a" * 100, "str"),
        ([7] * 100, "list"),
        (np.zeros((2, 3), np.float32), "float32[2, 3]"),
        (b"a", "b'a'"),
    ],
    ids=["str", "list", "array", "bytes"],
)
def test_a_value_of_another_kind_is_described_shortly(value, said):
    with pytest.raises(ValueError, match=r"^x must be an object") as caught:
        check_kind("x", value, dict)
    assert str(caught.value) == f"x must be an object, got {said}"


# What is known

NOTHING = (None, False, 0, 0.0, "", [], {})
SOMETHING = (True, 1, -1, 0.5, "0", " ", [0], [None], [[]], {"a": None})


def test_an_unknown_setting_that_says_something_is_refused_whatever_it_says():
    for value in SOMETHING:
        assert not is_inert("x", value)
        for settings in ({"x": value}, {"a": 1, "x": value, "b": 2}):
            with pytest.raises(ValueError, match=r"^the setting") as caught:
                check_known(settings, {"a": (), "b": (), "X": ()})
            assert str(caught.value) == (
                f"the setting 'x' is unknown here, with the value {value!r}: delete it if it "
                "changes no number"
            )
    for value in NOTHING:
        assert is_inert("x", value)
        assert check_known({"a": 1, "x": value, "b": 2}, {"a": (), "b": ()}) == {"a": 1, "b": 2}


@pytest.mark.parametrize("name", ["_x", "_", "__x", "a.b", "transformers.js_config", ".a", "a."])
def test_settings_that_are_private_or_of_other_programs_are_left_out(name):
    for value in (*NOTHING, *SOMETHING):
        assert is_inert(name, value)
        assert check_known({"a": 1, name: value}, {"a": (), "b": ()}) == {"a": 1}
    assert check_known({name: 3}, {name: ()}) == {name: 3}  # which may be known all the same


@pytest.mark.parametrize("name", ["x_", "a_x", "a-b", ""])
def test_other_signs_in_a_name_make_it_no_private_one(name):
    with pytest.raises(ValueError, match=f"^the setting {name!r} is unknown here"):
        check_known({name: 3}, {"a": ()})


@pytest.mark.parametrize(
    ("values", "taken", "refused"),
    [
        ((), VALUES, ()),
        ((True,), (True,), (False, 1, 1.0, 0, None, "", "True", [], {})),
        ((False,), (False,), (True, 0, 0.0, 1, None, "", [], {})),
        ((1,), (1, 1.0), (True, 0, False, None, "1", [1])),
        ((0, 2), (0, 0.0, 2), (False, 1, True, None, [])),
        (("a", "b"), ("a", "b"), ("", "A", "c", "ab", None, 0, ["a"])),
        ((None, "a"), (None, "a"), (False, 0, "", [])),
        ((1, 2, "c"), (1, 2, "c"), (True, 3, "1")),
    ],
    ids=["any", "true", "false", "one", "numbers", "texts", "null", "three"],
)
def test_a_known_setting_has_one_of_its_values_and_all_are_named(values, taken, refused):
    """Neither true nor false is a number, though Python says that they are equal to 1 and 0."""
    for value in taken:
        found = check_known({"a": 0, "x": value, "b": 0}, {"x": values, "a": (), "b": ()})
        assert repr(found) == repr({"a": 0, "x": value, "b": 0})  # in the order of the file
    for value in refused:
        with pytest.raises(ValueError, match=r"^x must be ") as caught:
            check_known({"a": 0, "x": value}, {"x": values, "a": ()})
        allowed = " or ".join(repr(one) for one in values)
        assert str(caught.value) == f"x must be {allowed} here, got {value!r}"


def test_a_long_value_is_cut_in_what_is_said_of_it():
    long = "a" * 99
    for known, said in (({}, f"the value '{'a' * 59}: "), ({"x": (1,)}, f", got '{'a' * 59}")):
        with pytest.raises(ValueError, match=re.escape(said)):
            check_known({"x": long}, known)


def test_packed_weights_are_said_to_be_written_anew():
    with pytest.raises(
        ValueError, match="its weights are packed, so write the folder anew with de"
    ):
        check_known({"quantization_config": {"bits": 4}}, {})
    assert check_known({"quantization_config": None}, {}) == {}


# Errors that name a file


@pytest.mark.parametrize("error", [TypeError, ValueError, re.error, UnicodeError, CheckpointError])
def test_an_error_of_a_setting_names_its_file(error, tmp_path):
    with pytest.raises(CheckpointError) as caught, naming(tmp_path / "a.json"):
        raise error("what is wrong")
    assert type(caught.value) is CheckpointError
    assert str(caught.value) == f"{tmp_path / 'a.json'}: what is wrong"
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("error", [OSError, KeyError, MemoryError, KeyboardInterrupt])
def test_an_error_that_is_of_no_setting_stays_as_it_is(error, tmp_path):
    one = error("what is wrong")
    with pytest.raises(error) as caught, naming(tmp_path):
        raise one
    assert caught.value is one


# Files


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1,]", "{'a': 1}", "[" * 200_000, b"\xff\xfe{}", b'{"\xe9": 1}'],
    ids=["empty", "open", "comma", "quotes", "deep", "utf-16", "latin-1"],
)
def test_what_is_no_json_is_a_damaged_file(text, tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    for read in (read_json, settings_in):
        with pytest.raises(CheckpointError, match=f"^{re.escape(str(path))} is damaged: "):
            read(path)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "marked"])
def test_a_file_is_an_object_or_what_is_asked_for(mark, tmp_path):
    path = tmp_path / "a.json"
    for value in ({}, {"é": "你"}, [], [{"a": 1}], "a", 3, None, True):
        path.write_bytes(mark + json.dumps(value, ensure_ascii=False).encode())
        for kind in (dict, list):
            if isinstance(value, kind):
                assert read_json(path, kind) == value
                continue
            said = f"{path}: its content must be {SAID[kind]}, got {value!r}"
            with pytest.raises(CheckpointError, match=f"^{re.escape(said)}$"):
                read_json(path, kind)


def test_a_file_that_is_missing_has_no_settings_unless_it_has_to_be_there(tmp_path):
    path = tmp_path / "none" / "a.json"
    assert settings_in(path) == {}
    with settings_of(path) as settings:
        assert settings == {}
    with pytest.raises(FileNotFoundError), settings_of(path, read_json):
        raise AssertionError
    assert not path.parent.exists()


def test_a_link_is_what_it_leads_to(tmp_path):
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "a.json")
    said = f"^{re.escape(str(link))} is a link to a file that is not there$"
    for read in (is_there, settings_in):
        with pytest.raises(CheckpointError, match=said):
            read(link)
    write_json(tmp_path / "a.json", {"a": 1})
    assert is_there(link)
    assert settings_in(link) == {"a": 1}
    folder = tmp_path / "folder"
    folder.symlink_to(tmp_path, target_is_directory=True)
    assert is_there(folder)
    assert settings_in(folder / "a.json") == {"a": 1}


def test_a_file_is_written_in_the_order_that_is_given_and_in_ascii(tmp_path):
    """In a folder that need not be there; another file of the name is replaced."""
    path = tmp_path / "b" / "c" / "a.json"
    for value in ({"b": {"d": 1, "c": None}, "a": ["é你", 0.1]}, [], ["b", "a"], {}):
        write_json(path, value)
        assert path.read_text(encoding="ascii") == json.dumps(value, indent=2)
        assert [x.name for x in path.parent.iterdir()] == ["a.json"]
    with pytest.raises(TypeError):
        write_json(path, {"a": {1}})
    assert path.read_text() == "{}"
