"""The format of GGUF files, number by number: what each type holds, and each damage is said."""

from __future__ import annotations

import itertools
import math
import struct

import numpy as np
import pytest
from common import assert_equal, rng_of
from gguf_writer import KINDS, gguf_bytes, string, write_llama

from tinyattn.errors import CheckpointError
from tinyattn.models import CausalLM, gguf

# The types of settings by their numbers, as the description of the format says them.
SETTINGS = {
    "uint8": (0, "B", [0, 1, 200, 2**8 - 1]),
    "int8": (1, "b", [0, -(2**7), 2**7 - 1]),
    "uint16": (2, "H", [0, 258, 2**16 - 1]),
    "int16": (3, "h", [0, -(2**15), 258]),
    "uint32": (4, "I", [0, 16909060, 2**32 - 1]),
    "int32": (5, "i", [0, -(2**31), 16909060]),
    "float32": (6, "f", [0.0, -1.5, 2.0**-149, (2 - 2.0**-23) * 2.0**127, math.inf]),
    "bool": (7, "?", [False, True]),
    "uint64": (10, "Q", [0, 2**53 + 1, 2**64 - 1]),
    "int64": (11, "q", [0, -(2**63), 2**53 + 1]),
    "float64": (12, "d", [0.0, -0.1, 5e-324, -math.inf]),
}


def count(number):
    return struct.pack("<Q", number)


def kind(number):
    return struct.pack("<I", number)


def file_of(path, settings=(), places=(), data=b"", version=3):
    """settings and places: the bytes of each, name included."""
    head = struct.pack("<4sIQQ", b"GGUF", version, len(places), len(settings))
    head += b"".join([*settings, *places])
    path.write_bytes(head + b"\0" * (-len(head) % 32) + data)
    return path


def settings_of(path):
    with gguf.opened(path) as file:
        assert file.left == path.stat().st_size - file.file.tell()
        return file.settings


def said_of(path):
    with pytest.raises(CheckpointError) as caught:
        gguf.opened(path).__enter__()
    return str(caught.value).removeprefix(f"{path} is damaged or no GGUF file: ")


def unpacked(name, content):
    """The numbers of blocks, by the library."""
    kind = gguf.KINDS[KINDS[name]]
    with np.errstate(invalid="ignore"):  # some processors say so of NaN
        out = kind.unpack(np.frombuffer(content, np.uint8).reshape(-1, kind.size))
    assert out.dtype == np.float32
    return out.reshape(-1)


def float16(bits):
    """The number of 16 bits, by the definition."""
    sign, power, part = (-1) ** (bits >> 15), bits >> 10 & 31, bits & 1023
    if power == 31:
        return math.nan if part else sign * math.inf
    return sign * (math.ldexp(1024 + part, power - 25) if power else math.ldexp(part, -24))


# Numbers


def test_all_numbers_of_f16_are_read():
    bits = np.arange(2**16, dtype="<u2")
    right = np.array([float16(n) for n in bits.tolist()], np.float32)
    found = unpacked("F16", bits.tobytes())
    assert_equal(found, right)
    assert_equal(np.signbit(found), bits >> 15 == 1)


def test_all_numbers_of_bf16_are_read():
    """Also those that are smaller or larger than any float16, and each NaN."""
    bits = np.arange(2**16, dtype="<u2")
    right = b"".join(b"\0\0" + bits[i : i + 1].tobytes() for i in range(2**16))
    assert unpacked("BF16", bits.tobytes()).astype("<f4").tobytes() == right


def test_numbers_of_f32_keep_their_bits():
    patterns = rng_of(0).randint(0, 2**32, 4096, dtype=np.uint64).astype("<u4")
    patterns[:6] = 1, 2**31, 0x7F800000, 0xFF800001, 0x7F7FFFFF, 0x00800000
    found = unpacked("F32", patterns.tobytes())
    assert found.astype("<f4").tobytes() == patterns.tobytes()


SCALES = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x3C00, 0xBC00, 0x3555, 0x7BFF, 0xFBFF]


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q8_0"])
def test_each_byte_of_a_block_is_its_numbers_times_its_scale(name):
    """Every byte at every place, with scales of both signs and of every size."""
    rng = rng_of(0)
    size = 32 if name == "Q8_0" else 16
    content, right = b"", []
    for turn, places in enumerate(itertools.product(range(0, 256, 16), range(16))):
        numbers = [(sum(places) + 17 * i + turn) % 256 for i in range(size)]
        scale, least = SCALES[turn % len(SCALES)], int(rng.choice(SCALES))
        halves = [scale, least] if name == "Q4_1" else [scale]
        content += struct.pack(f"<{len(halves)}H", *halves) + bytes(numbers)
        if name == "Q8_0":
            whole = [n - 256 * (n > 127) for n in numbers]
        else:
            whole = [n % 16 for n in numbers] + [n // 16 for n in numbers]
            whole = [n - 8 * (name == "Q4_0") for n in whole]
        added = float16(least) if name == "Q4_1" else 0.0
        right += [np.float32(float16(scale) * n) + np.float32(added) for n in whole]
    assert_equal(unpacked(name, content), np.array(right, np.float32))


# Settings


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_a_type_are_read_from_the_least_to_the_largest(name, tmp_path):
    number, code, values = SETTINGS[name]
    given = {f"x{i}": kind(number) + struct.pack(f"<{code}", x) for i, x in enumerate(values)}
    listed = kind(9) + kind(number) + count(len(values))
    given["all"] = listed + struct.pack(f"<{len(values)}{code}", *values)
    given["none"] = kind(9) + kind(number) + count(0)
    given["one"] = kind(9) + kind(number) + count(1) + struct.pack(f"<{code}", values[-1])
    contents = [string(key) + content for key, content in given.items()]
    found = settings_of(file_of(tmp_path / "m.gguf", contents))
    right = {f"x{i}": x for i, x in enumerate(values)}
    right |= {"all": values, "none": [], "one": values[-1:]}
    assert found == right
    assert list(found) == list(right)
    assert {type(x) for x in [*list(found.values())[:-3], *found["all"]]} == {type(values[0])}


def test_texts_and_lists_of_lists_are_read(tmp_path):
    texts = ["", "a", "é你\U0001f642\0", "a" * 300]
    words = kind(9) + kind(8) + count(4) + b"".join(map(string, texts))
    inner = [kind(4) + count(2) + struct.pack("<2I", 7, 8), kind(8) + count(1) + string("b")]
    contents = [string(text) + kind(8) + string(text) for text in texts]
    contents += [string("words") + words]
    contents += [string("lists") + kind(9) + kind(9) + count(2) + b"".join(inner)]
    found = settings_of(file_of(tmp_path / "m.gguf", contents))
    assert found == {text: text for text in texts} | {"words": texts, "lists": [[7, 8], ["b"]]}


@pytest.mark.parametrize("number", [13, 14, 255, 2**32 - 1])
def test_a_setting_of_an_unknown_type_is_refused(number, tmp_path):
    said = f"it has a setting of type {number}, which is unknown"
    for content in (kind(number), kind(9) + kind(number) + count(1)):
        path = file_of(tmp_path / "m.gguf", [string("a") + content + bytes(16)])
        assert said_of(path) == said


def test_versions_two_and_three_are_read_and_others_are_named(tmp_path):
    for version in (2, 3):
        assert settings_of(file_of(tmp_path / "m.gguf", version=version)) == {}
    # The last is a file of version 3 with the larger byte first.
    for version in (0, 1, 4, 5, 2**31, 3 << 24):
        path = file_of(tmp_path / "m.gguf", [string("a") + kind(4) + kind(1)], version=version)
        assert said_of(path) == f"it has version {version}, and versions 2 and 3 are read here"


PLACES = {
    "the name of a setting": ([b"%b" + kind(4) + kind(1)], []),
    "a text": ([string("a") + kind(8) + b"%b"], []),
    "a text of a list": ([string("a") + kind(9) + kind(8) + count(2) + string("b") + b"%b"], []),
    "a text of a list of a list": (
        [string("a") + kind(9) + kind(9) + count(1) + kind(8) + count(1) + b"%b"],
        [],
    ),
    "the name of a tensor": ([], [b"%b" + kind(1) + count(4) + kind(0) + count(0)]),
}


def filled(parts, content):
    return [part.replace(b"%b", content) for part in parts]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("content", [b"\xff", b"a\xe9", b"\xed\xa0\x80", b"\xc0\x80"])
def test_what_is_not_utf_8_is_damage(place, content, tmp_path):
    settings, places = (filled(parts, count(len(content)) + content) for parts in PLACES[place])
    path = file_of(tmp_path / "m.gguf", settings, places, bytes(64))
    assert said_of(path).startswith("'utf-8' codec can't decode byte")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 2**31, 1000])
def test_a_text_that_is_longer_than_its_file_is_refused_before_it_is_read(place, length, tmp_path):
    settings, places = (filled(parts, count(length) + b"abc") for parts in PLACES[place])
    path = file_of(tmp_path / "m.gguf", settings, places, bytes(64))
    content = path.read_bytes()
    left = len(content) - content.index(count(length) + b"abc") - 8
    assert said_of(path) == f"it is cut short: {length} items do not fit in {left} bytes"


@pytest.mark.parametrize("name", [*SETTINGS, "string", "array"])
@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 100])
def test_a_list_that_is_longer_than_its_file_is_refused_before_it_is_read(name, length, tmp_path):
    number = SETTINGS[name][0] if name in SETTINGS else {"string": 8, "array": 9}[name]
    content = string("a") + kind(9) + kind(number) + count(length)
    path = file_of(tmp_path / "m.gguf", [content], data=bytes(32))
    left = path.stat().st_size - 24 - len(content)
    assert said_of(path) == f"it is cut short: {length} items do not fit in {left} bytes"


@pytest.mark.parametrize("rank", [2**32 - 1, 2**31, 50])
def test_a_shape_that_is_longer_than_its_file_is_refused(rank, tmp_path):
    path = file_of(tmp_path / "m.gguf", [], [string("x") + kind(rank) + bytes(64)])
    said = said_of(path)
    assert said == f"it is cut short: {rank} items do not fit in {path.stat().st_size - 37} bytes"


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, 10, 4])
def test_more_things_than_a_file_has_bytes_for_are_refused(number, tmp_path):
    """A setting has 12 bytes at least, and a tensor 24."""
    for counts, least in (((0, number), 12), ((number, 0), 24)):
        path, left = tmp_path / "m.gguf", min(least * number - 1, 95)
        path.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, *counts) + bytes(left))
        assert said_of(path) == f"it is cut short: {number} items do not fit in {left} bytes"


# Tensors


def in_order(order, gap=0, sizes=(16, 24, 8)):
    """Headers of the tensors x0, x1 and x2, and their numbers, which lie in the given order."""
    offsets, data = {}, b""
    for i in order:
        data += b"\0" * (-len(data) % 32) + b"\xff" * gap
        offsets[i] = len(data)
        data += np.arange(100 * i, 100 * i + sizes[i], dtype="<f4").tobytes()
    places = [
        string(f"x{i}") + kind(1) + count(sizes[i]) + kind(0) + count(offsets[i]) for i in range(3)
    ]
    return places, data


@pytest.mark.parametrize("order", ["012", "021", "102", "120", "201", "210"])
@pytest.mark.parametrize("gap", [0, 32])
def test_tensors_may_lie_in_any_order(order, gap, tmp_path):
    places, data = in_order([int(i) for i in order], gap)
    with gguf.opened(file_of(tmp_path / "m.gguf", [], places, data)) as file:
        assert list(file.places) == ["x0", "x1", "x2"]
        for i, size in enumerate((16, 24, 8)):
            right = np.arange(100 * i, 100 * i + size, dtype=np.float32)
            assert_equal(file.array(f"x{i}"), right)


@pytest.mark.parametrize("order", ["012", "021", "102", "120", "201", "210"])
def test_of_two_tensors_with_common_bytes_the_one_that_lies_behind_is_named(order, tmp_path):
    order = [int(i) for i in order]
    places, data = in_order(order)
    path = tmp_path / "m.gguf"
    for before, behind in itertools.pairwise(order):
        offset = struct.unpack("<Q", places[behind][-8:])[0]
        end = struct.unpack("<Q", places[before][-8:])[0] + 4 * (16, 24, 8)[before]
        moved = list(places)
        moved[behind] = places[behind][:-8] + count(end)  # they touch
        with gguf.opened(file_of(path, [], moved, data + bytes(128))):
            pass
        moved[behind] = places[behind][:-8] + count(end - 1)
        said = said_of(file_of(path, [], moved, data + bytes(128)))
        assert offset >= end
        assert said == f"the place of x{behind} is that of another tensor"


@pytest.mark.parametrize("align", [1, 2, 8, 16, 256])
def test_numbers_begin_at_the_next_multiple_of_the_alignment(align, tmp_path):
    """Headers of every length up to the alignment, of which one fits exactly."""
    x = np.arange(8.0)
    for length in range(1, min(align, 16) + 1):
        settings = {"general.alignment": align, "a" * length: 1}
        content = gguf_bytes(settings, {"x": (x, "F32"), "y": (x + 8, "F32")}, align=align)
        (tmp_path / "m.gguf").write_bytes(content)
        with gguf.opened(tmp_path / "m.gguf") as file:
            assert file.start % align == 0
            assert_equal(file.array("x"), x.astype(np.float32))
            assert_equal(file.array("y"), (x + 8).astype(np.float32))
            assert file.start + file.places["y"].offset + 32 == len(content)


@pytest.mark.parametrize("wrong", [0, -32, 32.0, True, "32", [32]])
def test_an_alignment_is_a_positive_integer(wrong, tmp_path):
    content = {"a": 1, "general.alignment": wrong}
    number = kind(5) + struct.pack("<i", wrong) if wrong == -32 else None
    if number is None:
        (tmp_path / "m.gguf").write_bytes(gguf_bytes(content, {}))
    else:
        file_of(tmp_path / "m.gguf", [string("general.alignment") + number])
    said = f"general.alignment must be an integer >= 1, got {wrong!r}"
    assert said_of(tmp_path / "m.gguf") == said


@pytest.mark.parametrize("name", KINDS)
def test_a_file_ends_with_its_last_number(name, tmp_path):
    """Of every type: one byte less is not enough."""
    x = rng_of(0).normal(size=(3, 2, 64))
    content = gguf_bytes({}, {"x": (x, name)})
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with gguf.opened(path) as file:
        place = file.places["x"]
        assert place.shape == (3, 2, 64)
        assert place.dtype == np.float32
        assert file.start + place.nbytes == len(content)
        assert file.array("x").shape == (3, 2, 64)
    path.write_bytes(content[:-1])
    assert said_of(path) == "it is cut short: its tensors end after it"


@pytest.mark.parametrize("shape", [(2**62,), (2**32, 2**31), (2**63, 2**63, 2**63)])
def test_a_shape_with_more_numbers_than_its_file_is_refused(shape, tmp_path):
    sizes = b"".join(map(count, shape))
    place = string("x") + kind(len(shape)) + sizes + kind(0) + count(0)
    path = file_of(tmp_path / "m.gguf", [], [place], bytes(64))
    assert said_of(path) == "it is cut short: its tensors end after it"


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q8_0"])
@pytest.mark.parametrize("width", [1, 16, 31, 33, 48])
def test_rows_of_a_packed_type_have_whole_blocks(name, width, tmp_path):
    """Of the last dimension: 32 rows of one number have none."""
    place = string("x") + kind(2) + count(width) + count(32) + kind(KINDS[name]) + count(0)
    path = file_of(tmp_path / "m.gguf", [], [place], bytes(4096))
    assert said_of(path) == f"a tensor (32, {width}) has no whole blocks of 32 numbers"


@pytest.mark.parametrize("which", ["settings", "places"])
def test_a_name_that_is_there_twice_is_refused(which, tmp_path):
    place = kind(1) + count(4) + kind(0)
    given = {
        "settings": ([string("a") + kind(4) + kind(i) for i in range(2)], []),
        "places": ([], [string("a") + place + count(32 * i) for i in range(2)]),
    }[which]
    assert said_of(file_of(tmp_path / "m.gguf", *given, bytes(64))) == "a is there twice"


@pytest.mark.parametrize("settings", [[], [string("a") + kind(4) + kind(7)]], ids=len)
def test_a_file_without_tensors_ends_with_its_header(settings, tmp_path):
    """Nothing is aligned then, so a file of 24 bytes is whole."""
    path = tmp_path / "m.gguf"
    path.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 0, len(settings)) + b"".join(settings))
    assert settings_of(path) == ({"a": 7} if settings else {})


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("shape", [(0, 32), (3, 0), (2, 0, 32), (0,)])
def test_tensors_without_numbers_are_read_between_others(name, shape, tmp_path):
    x = rng_of(0).normal(size=(2, 32))
    tensors = {"a": (x, "F32"), "none": (np.zeros(shape), name), "b": (x + 1, "F32")}
    (tmp_path / "m.gguf").write_bytes(gguf_bytes({}, tensors))
    with gguf.opened(tmp_path / "m.gguf") as file:
        found = {key: file.array(key) for key in tensors}
    assert found["none"].shape == shape
    assert found["none"].dtype == np.float32
    assert_equal(found["a"], x.astype(np.float32))
    assert_equal(found["b"], (x + 1).astype(np.float32))


@pytest.mark.parametrize("shape", [(0, 2**63), (2**64 - 1, 0)])
def test_a_dimension_that_no_array_has_is_damage(shape, tmp_path):
    """The tensor has no numbers, so it fits in every file."""
    place = string("x") + kind(2) + count(shape[1]) + count(shape[0]) + kind(0) + count(0)
    path = file_of(tmp_path / "m.gguf", [], [place])
    with (
        pytest.raises(CheckpointError, match=r"m\.gguf is damaged or no GGUF file: "),
        gguf.opened(path) as file,
    ):
        file.array("x")


def test_lists_in_lists_without_end_are_damage(tmp_path):
    content = string("a") + kind(9) + (kind(9) + count(1)) * 3000 + kind(4) + count(0)
    assert "recursion" in said_of(file_of(tmp_path / "m.gguf", [content]))


@pytest.mark.parametrize("ids", [[1], ["a"], [0.5]])
def test_an_id_of_a_word_is_no_list(ids, tmp_path):
    path = write_llama(tmp_path / "m.gguf", **{"tokenizer.ggml.bos_token_id": ids})
    with pytest.raises(CheckpointError, match=r"m\.gguf"):
        CausalLM.from_gguf(path)


@pytest.mark.parametrize("cut", [1, 8, 16, 30, 47])
def test_a_header_that_is_cut_while_it_is_read_is_refused(cut, tmp_path, monkeypatch):
    """The size of the file was asked for before."""
    content = gguf_bytes({"a" * 32: 1}, {})
    assert len(content) == 96
    (tmp_path / "m.gguf").write_bytes(content)
    whole = (tmp_path / "m.gguf").stat()
    (tmp_path / "m.gguf").write_bytes(content[: 24 + cut])
    monkeypatch.setattr(gguf.os, "fstat", lambda number: whole)
    said = "it was cut short while it was read"
    with pytest.raises(CheckpointError, match=f"m.gguf is damaged or no GGUF file: {said}$"):
        gguf.opened(tmp_path / "m.gguf").__enter__()


@pytest.mark.parametrize("place", range(4))
def test_a_file_begins_with_four_letters(place, tmp_path):
    content = bytearray(gguf_bytes({}, {}))
    content[place] ^= 32  # of the other case
    (tmp_path / "m.gguf").write_bytes(content)
    assert said_of(tmp_path / "m.gguf") == "it does not begin with GGUF"


@pytest.mark.parametrize("error", [TypeError, ValueError, OverflowError, RecursionError])
def test_what_is_wrong_while_a_file_is_open_is_damage_that_names_it(error, tmp_path):
    """Also a number of its header that is too large for an array."""
    path = file_of(tmp_path / "m.gguf", [])
    with pytest.raises(CheckpointError) as caught, gguf.opened(path):
        raise error("too much")
    assert str(caught.value) == f"{path} is damaged or no GGUF file: too much"


@pytest.mark.parametrize("error", [CheckpointError, KeyError, OSError, MemoryError])
def test_what_is_no_damage_of_a_file_stays_as_it_is(error, tmp_path):
    path = file_of(tmp_path / "m.gguf", [])
    with pytest.raises(error) as caught, gguf.opened(path):
        raise error("too much")
    assert caught.type is error
    assert caught.value.args == ("too much",)
