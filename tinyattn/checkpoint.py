"""Saving and loading safetensors files, which are written whole or not at all.

A state is a nested dict of Tensors, numbers, strings, lists and None. Tensors become the file's
tensors, and their names are the keys joined by dots. All the rest is JSON in the file's metadata,
with a checksum over everything. There is no pickle, so loading a file runs no code.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from .errors import CheckpointError
from .tensor import Tensor

# Three names, so that a file of ours with one damaged name is still known to be ours.
METADATA = ("tinyattn", "tinyattn.structure", "tinyattn.sha256")
TENSOR = "tensor"  # the key of the JSON object that stands for a tensor


def save(state: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a state (such as `model.state_dict()`) to a safetensors file.

    The file gets its name when it is complete and on the disk, so an interrupt leaves the old file
    or none. Equal states give equal files, byte for byte. Raises TypeError for values that cannot
    be stored.
    """
    from safetensors.numpy import save as to_bytes

    if not isinstance(state, dict):
        raise TypeError(f"save takes a dict, got {type(state).__name__}")
    arrays: dict[str, np.ndarray] = {}
    structure = json.dumps(describe(state, "", arrays), allow_nan=True)
    metadata = dict(zip(METADATA, ("1", structure, checksum(structure, arrays)), strict=True))
    header, numbers = in_fixed_order(to_bytes(arrays, metadata))
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to save {path.name} in")
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(header)
            file.write(numbers)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~current_umask())  # because mkstemp's are the owner's only
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def in_fixed_order(content: bytes) -> tuple[bytes, memoryview]:
    """(header, numbers) of a file, with the metadata of the header in alphabetical order.

    safetensors writes them in the order of a hash table, which differs between processes, so two
    files of one state would differ.
    """
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # because numbers begin at a multiple of 8
    return len(text).to_bytes(8, "little") + text, memoryview(content)[8 + size :]


def current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def describe(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """`value` for JSON; its tensors go into `arrays`."""
    if isinstance(value, Tensor):
        while name in arrays:  # keys with dots in them may join to the same name
            name += "'"
        # In C order, because safetensors stores wrong numbers for other arrays, without an error.
        arrays[name] = np.array(value.numpy(), order="C")
        return {TENSOR: name}
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value) or set(value) == {TENSOR}:
            raise TypeError(f"the keys of {name or 'the state'} must be strings (not {TENSOR!r})")
        return {key: describe(v, f"{name}.{key}" if name else key, arrays)
                for key, v in value.items()}  # fmt: skip
    if isinstance(value, (list, tuple)):
        return [describe(v, f"{name}.{i}", arrays) for i, v in enumerate(value)]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{name} is a {type(value).__name__}, which a checkpoint cannot hold")


def checksum(structure: str, arrays: dict[str, np.ndarray]) -> str:
    """SHA-256 over the structure and every array's name, dtype, shape and bytes."""
    digest = hashlib.sha256(structure.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"\0{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a state, on the CPU. A file of another library gives a flat dict of its tensors.

    Raises CheckpointError if the file is damaged, cut short, or no safetensors file.
    """
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise FileNotFoundError(f"no checkpoint at {os.fspath(path)}")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if not any(name in metadata for name in METADATA):
            return {name: Tensor(array) for name, array in arrays.items()}
        version, structure, digest = (metadata[name] for name in METADATA)
        if version != "1" or checksum(structure, arrays) != digest:
            raise CheckpointError("its checksum does not fit its content")
        return rebuild(json.loads(structure), arrays)
    except (SafetensorError, CheckpointError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{os.fspath(path)} is damaged or not a safetensors file: {error}"
        ) from None


def rebuild(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """The inverse of `describe`."""
    if isinstance(value, list):
        return [rebuild(v, arrays) for v in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {TENSOR}:
        return Tensor(arrays[value[TENSOR]])
    return {key: rebuild(v, arrays) for key, v in value.items()}
