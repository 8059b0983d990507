"""Saving and loading safetensors files, which are written whole or not at all.

A safetensors file is the length of its header in 8 bytes, the header, and the numbers. The header
is JSON with the name, dtype, shape and place of each tensor, and with the metadata: a few strings.
Ours are a version, the structure of the state as JSON, and a checksum over everything. The name of
a tensor is its keys joined by dots. There is no pickle, so loading a file runs no code.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from io import BufferedIOBase
from typing import Any

import numpy as np

from ..base.checks import check_type
from ..engine.autograd import wrap
from ..errors import CheckpointError, DtypeError
from ..tensors.tensor import Tensor
from .atomic_write import write_atomically

# Three names, so that a file of ours with one damaged name is still known to be ours.
METADATA = ("tinyattn", "tinyattn.sha256", "tinyattn.structure")
TENSOR = "tensor"  # the key of the JSON object that stands for a tensor
DEEPEST = 100  # lists and dicts inside each other, because Python's recursion has a limit
LARGEST_HEADER = 100_000_000  # bytes, because safetensors reads no larger one
DTYPES = {"BOOL": "bool", "U8": "uint8", "I8": "int8"} | {
    f"{letter}{bits}": f"{kind}{bits}"
    for letter, kind in (("U", "uint"), ("I", "int"), ("F", "float"))
    for bits in (16, 32, 64)
}
HOLDS = (
    "; a checkpoint holds Tensors, numbers, strings, True, False, None, and lists and dicts of "
    "them: of a module or an optimizer write its state_dict(), and of an array ta.tensor(array)"
)


def save(state: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a state (such as `model.state_dict()`) to a safetensors file.

    Differs from PyTorch: no pickle, so nothing in a file is executed.

    A state is a dict with strings or integers as keys. Its values are Tensors, numbers, strings,
    True, False, None, and lists and dicts of them. Tuples come back as lists, NumPy's numbers as
    Python's, Parameters as Tensors, and objects of derived classes as the base, so an OrderedDict
    as a dict.
    The same state gives the same file, byte for byte.

    The file gets its name when it is complete and on the disk, so an interrupt, a kill or a full
    disk leaves the old file or none. The new file has the mode and the owner of the old one. If
    `path` is a symbolic link, the save writes its target. The incomplete file of a
    save that was killed is removed by a save in that folder a day later.

    Raises, before anything is written:
        TypeError: a value has another type (of a Module or an Optimizer save the state_dict(), of
            an array ta.tensor(array)), a key is no string and no integer, a key at the top is
            "__metadata__", because safetensors uses that name itself, or `path` is no name, as an
            open file.
        ValueError: more than 100 lists and dicts are inside each other, an integer has more than
            4,300 digits, or what is not in Tensors needs more than 100 MB.
        OSError: the folder does not exist, the old file is read-only or its owner cannot be kept,
            or the name is too long or not the name of a file.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ta.save({"weight": ta.ones(2), "step": 17}, f"{folder}/run.safetensors")
        ...     ta.load(f"{folder}/run.safetensors")
        {'weight': tensor([1., 1.]), 'step': 17}
    """
    check_type("save takes a dict and then the name of a file", state, dict, HOLDS)
    write_atomically(os.fsdecode(path), pieces_of(state))


def pieces_of(state: dict[str, Any]) -> list[Any]:
    """The bytes and arrays that a file of this state consists of."""
    arrays: dict[str, np.ndarray] = {}
    structure = json.dumps(describe(state, "", arrays))
    # Large items come first, so that each array begins at a multiple of its item size.
    arrays = dict(sorted(arrays.items(), key=lambda pair: (-pair[1].itemsize, pair[0])))
    return [header_of(structure, arrays), *arrays.values()]


def describe(value: Any, name: str, arrays: dict[str, np.ndarray], depth: int = 0) -> Any:
    """`value` for JSON; its tensors go into `arrays`."""
    if name == "__metadata__":
        raise TypeError('"__metadata__" cannot be a key: safetensors uses that name itself')
    if isinstance(value, Tensor):
        name = name.encode(errors="replace").decode()  # UTF-8 has no single surrogates
        while name in arrays:  # keys with dots in them may join to the same name
            name += "'"
        # In C order, as in the file. A copy, because another thread may change the tensor.
        arrays[name] = np.array(value.numpy(), order="C")
        return {TENSOR: name}
    if isinstance(value, (dict, list, tuple)) and depth == DEEPEST:
        raise ValueError(f"more than {DEEPEST} lists and dicts inside each other: {name[:60]}...")
    if isinstance(value, dict):
        if not all(isinstance(key, (str, int, np.integer)) for key in value):
            raise TypeError(f"the keys of {name or 'the state'} must be strings or integers")
        keys = [str.__str__(key) if isinstance(key, str) else int(key) for key in value]
        values = [
            describe(v, f"{name}.{key}" if name else f"{key}", arrays, depth + 1)
            for key, v in zip(keys, value.values(), strict=True)
        ]
        # A tensor has a string under this key. So a dict of this one key is two lists, its keys and
        # its values, and so is one with integers as keys, because JSON has none.
        is_plain = keys != [TENSOR] and all(isinstance(key, str) for key in keys)
        return dict(zip(keys, values, strict=True)) if is_plain else {TENSOR: [keys, values]}
    if isinstance(value, (list, tuple)):
        return [describe(v, f"{name}.{i}", arrays, depth + 1) for i, v in enumerate(value)]
    if isinstance(value, np.generic) and value.dtype.kind in "biufU":
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{name} is a {type(value).__name__}{HOLDS}")


def checksum(structure: str, arrays: dict[str, np.ndarray]) -> str:
    """SHA-256 over the structure and every array's name, dtype, shape and bytes."""
    digest = hashlib.sha256(structure.encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"\0{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        digest.update(array.data)
    return digest.hexdigest()


def header_of(structure: str, arrays: dict[str, np.ndarray]) -> bytes:
    """The length and the header: all bytes of the file before its numbers."""
    metadata = zip(METADATA, ("1", checksum(structure, arrays), structure), strict=True)
    # transformers opens no file whose metadata names no format; "pt" is that of a plain state.
    header: dict[str, Any] = {"__metadata__": {"format": "pt"} | dict(metadata)}
    codes = {dtype: code for code, dtype in DTYPES.items()}
    end = 0
    for name, array in arrays.items():
        begin, end = end, end + array.nbytes
        header[name] = {
            "dtype": codes[array.dtype.name],
            "shape": array.shape,
            "data_offsets": (begin, end),
        }
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # because numbers begin at a multiple of 8
    if len(text) > LARGEST_HEADER:
        raise ValueError(
            f"what is not in Tensors needs a header of {len(text):,} bytes, and safetensors reads "
            f"at most {LARGEST_HEADER:,}: save large data as Tensors"
        )
    return len(text).to_bytes(8, "little") + text


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a state, on the CPU. The example of `save` shows both.

    A safetensors file of another library gives a flat dict of its tensors, by name. Their dtypes
    stay, except that bfloat16 becomes float32, which is exact. A file with float8, float6, float4
    or complex numbers is refused, because no Tensor has these dtypes.

    Raises FileNotFoundError if there is no such file. Raises CheckpointError, which names the file,
    if it is damaged, cut short, no safetensors file, or has a dtype that no Tensor has. The error
    shows how another file begins, and says what reads those of torch.save, NumPy and git-lfs.
    """
    name = os.fsdecode(path)
    with open(name, "rb") as file:
        return state_in(file, name)


def state_in(file: BufferedIOBase, name: str) -> dict[str, Any]:
    """The state in an open file; errors give it this name."""
    try:
        metadata, arrays = read(file)
        if not any(key in metadata for key in METADATA):
            return {key: wrap(array) for key, array in arrays.items()}
        version, digest, structure = (metadata[key] for key in METADATA)
        if version != "1" or checksum(structure, arrays) != digest:
            raise ValueError("its checksum does not fit its content")
        return check_type("its structure is a dict", rebuild(json.loads(structure), arrays), dict)
    except DtypeError as error:
        raise CheckpointError(f"{name}: {error}") from None
    except (LookupError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise CheckpointError(f"{name} is damaged or not a safetensors file: {error}") from None


def read(file: BufferedIOBase) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """(metadata, arrays) of a file.

    The arrays are copies. With a memory map, this process would die of SIGBUS if another process
    cut the file short meanwhile.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    beginning = file.read(24)
    length = int.from_bytes(beginning[:8], "little")
    if size < 8 + length:
        raise ValueError(
            f"its {size} bytes begin with {beginning!r} and end before its header: if torch.save "
            "wrote it, pass what torch.load reads to ta.interop.load_torch_state_dict; if NumPy "
            "wrote it, numpy.load reads it; if it stands for a file of git-lfs, run git lfs pull"
        )
    file.seek(8)
    if length > LARGEST_HEADER:  # because JSON takes much more memory than its text
        raise ValueError(f"its header has {length:,} bytes, more than {LARGEST_HEADER:,}")
    header = json.loads(file.read(length).decode(), object_pairs_hook=without_doubles)
    metadata = header.pop("__metadata__", {}) if isinstance(header, dict) else None
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise ValueError("its header is not one of safetensors")
    arrays, place = {}, 0
    for name, entry in sorted(header.items(), key=lambda pair: pair[1]["data_offsets"]):
        code, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        if code != "BF16" and code not in DTYPES:
            kind = {"F": "float", "C": "complex"}[code[0]] + code[1:].partition("_")[0]
            raise DtypeError(
                f"{name!r} is {kind} ({code}), and no Tensor has that dtype: convert "
                "it to float32 with the library that wrote it"
            )
        dtype = np.dtype(DTYPES["U16" if code == "BF16" else code])
        if begin != place or end != begin + math.prod(shape) * dtype.itemsize:
            raise ValueError(f"the place of {name!r} does not fit its shape")
        if 8 + length + end > size:
            raise ValueError("it is cut short")
        array = np.empty(shape, dtype)
        if file.readinto(array.data) != end - begin:
            raise ValueError("it was cut short while it was read")
        if code == "BF16":  # its bits are the upper half of a float32's
            array = np.asarray(array.astype(np.uint32) << 16).view(np.float32)
        arrays[name], place = array, end
    if file.read(1):
        raise ValueError("it is longer than its header says")
    return metadata, arrays


def without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. No name may be in it twice, because one of the two would get lost."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a name is twice in its header")
    return dict(pairs)


def rebuild(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """The inverse of `describe`."""
    if isinstance(value, list):
        return [rebuild(v, arrays) for v in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and isinstance(value.get(TENSOR), str):
        return wrap(arrays.pop(value[TENSOR]))
    entries = {key: rebuild(v, arrays) for key, v in value.items()}
    if set(entries) != {TENSOR}:
        return entries
    pair = entries[TENSOR]  # or the one value alone, in an older file
    return dict(zip(pair[0], pair[1], strict=True)) if pair[1:] else {TENSOR: pair[0]}
