"""GGUF files: settings, and tensors whose numbers may be packed.

A file is a header with the settings, the header of the tensors with the name, shape, type and place
of each, and the numbers. A packed type has blocks of 32 numbers with one scale. Nothing in a file
is executed, and no number of its header is believed before it is compared with the file's size.
"""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from io import BufferedReader
from typing import Any, NamedTuple

import numpy as np

from ..base.checks import check_size, optional_package
from ..errors import CheckpointError

# The types of settings by their numbers.
NUMBERS = dict(enumerate(("<u1", "<i1", "<u2", "<i2", "<u4", "<i4", "<f4", "?")))
NUMBERS |= {10: "<u8", 11: "<i8", 12: "<f8"}
STRING, ARRAY = 8, 9


def scales_of(blocks: np.ndarray, number: int) -> np.ndarray:
    """The float16 numbers that each block begins with, as float32: (blocks, number)."""
    return blocks[:, : 2 * number].copy().view("<f2").astype(np.float32)


def nibbles(packed: np.ndarray) -> np.ndarray:
    """Numbers of 4 bits: the lower halves of 16 bytes are the first 16, the upper halves follow."""
    return np.concatenate([packed & 15, packed >> 4], axis=1)


def q4_0(blocks: np.ndarray) -> np.ndarray:
    return scales_of(blocks, 1) * (nibbles(blocks[:, 2:]).view(np.int8) - np.int8(8))


def q4_1(blocks: np.ndarray) -> np.ndarray:
    scale, least = np.hsplit(scales_of(blocks, 2), 2)
    out = scale * nibbles(blocks[:, 4:])
    out += least
    return out


def q8_0(blocks: np.ndarray) -> np.ndarray:
    return scales_of(blocks, 1) * blocks[:, 2:].view(np.int8)


def bf16(blocks: np.ndarray) -> np.ndarray:
    """The upper halves of float32 numbers."""
    wide = blocks.view("<u2").astype(np.uint32)
    wide <<= 16
    return wide.view(np.float32)


class Kind(NamedTuple):
    """How the numbers of a tensor lie in the file."""

    numbers: int  # in a block
    size: int  # its bytes
    unpack: Callable[[np.ndarray], np.ndarray]  # blocks (B, size) of bytes -> float32


KINDS = {
    0: Kind(1, 4, lambda blocks: blocks.view("<f4")),  # F32
    1: Kind(1, 2, lambda blocks: blocks.view("<f2").astype(np.float32)),  # F16
    2: Kind(32, 18, q4_0),
    3: Kind(32, 20, q4_1),
    8: Kind(32, 34, q8_0),
    30: Kind(1, 2, bf16),
}


def kind_of_package(number: int) -> Kind:
    """A type that the package gguf unpacks, such as Q4_K, Q5_K and Q6_K."""
    text = f"numbers of type {number} need the package gguf; F32, F16, BF16, Q8_0, Q4_0 and Q4_1 do"
    package = optional_package("gguf", f"{text} not", "gguf")
    try:
        kind = package.GGMLQuantizationType(number)
        numbers, size = package.GGML_QUANT_SIZES[kind]
        unpack = partial(package.quants.dequantize, qtype=kind)
        unpack(np.zeros((1, size), np.uint8))
    except (ValueError, LookupError, NotImplementedError):
        raise ValueError(f"the package gguf does not unpack numbers of type {number}") from None
    return Kind(numbers, size, unpack)


class Place(NamedTuple):
    """A tensor in the file."""

    shape: tuple[int, ...]
    kind: Kind
    offset: int  # from the end of the header

    @property
    def dtype(self) -> np.dtype:
        """The dtype that it is unpacked to."""
        return np.dtype(np.float32)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) // self.kind.numbers * self.kind.size


class GGUF:
    """An open file: its settings, and where its tensors are; `array` reads one of them."""

    def __init__(self, file: BufferedReader) -> None:
        self.file, self.left = file, os.fstat(file.fileno()).st_size
        if self.left < 24 or self.take(4) != b"GGUF":
            raise ValueError("it does not begin with GGUF")
        version, tensors, settings = self.number("<u4"), self.number("<u8"), self.number("<u8")
        if version not in (2, 3):
            raise ValueError(f"it has version {version}, and versions 2 and 3 are read here")
        self.settings: dict[str, Any] = {}
        self.places: dict[str, Place] = {}
        for _ in range(self.affordable(settings, 12)):
            self.add(self.settings, self.string(), lambda: self.value(self.number("<u4")))
        for _ in range(self.affordable(tensors, 24)):
            self.add(self.places, self.string(), self.place)
        self.start = self.check_places()

    def take(self, size: int) -> bytes:
        self.left -= self.affordable(size)
        content = self.file.read(size)
        if len(content) != size:
            raise ValueError("it was cut short while it was read")
        return content

    def affordable(self, count: int, size: int = 1) -> int:
        """The count, if so many things of at least so many bytes can follow."""
        if count * size > self.left:
            raise ValueError(f"it is cut short: {count} items do not fit in {self.left} bytes")
        return count

    def add(self, to: dict[str, Any], name: str, read: Callable[[], Any]) -> None:
        if name in to:
            raise ValueError(f"{name} is there twice")
        to[name] = read()

    def number(self, dtype: str) -> Any:
        return np.frombuffer(self.take(np.dtype(dtype).itemsize), dtype)[0].item()

    def string(self) -> str:
        return self.take(int.from_bytes(self.take(8), "little")).decode()

    def value(self, kind: int) -> Any:
        """A setting: a number, a string, or a list of one kind."""
        if kind in NUMBERS:
            return self.number(NUMBERS[kind])
        if kind == STRING:
            return self.string()
        if kind != ARRAY:
            raise ValueError(f"it has a setting of type {kind}, which is unknown")
        kind, count = self.number("<u4"), self.number("<u8")
        if kind in NUMBERS:
            size = np.dtype(NUMBERS[kind]).itemsize
            content = self.take(self.affordable(count, size) * size)
            return np.frombuffer(content, NUMBERS[kind]).tolist()
        return [self.value(kind) for _ in range(self.affordable(count, 8))]

    def place(self) -> Place:
        rank = self.number("<u4")
        # The file has the last dimension first.
        shape = tuple(self.number("<u8") for _ in range(self.affordable(rank, 8)))[::-1]
        kind, offset = self.number("<u4"), self.number("<u8")
        packed = KINDS.get(kind) or kind_of_package(kind)
        if not shape or shape[-1] % packed.numbers:
            raise ValueError(f"a tensor {shape} has no whole blocks of {packed.numbers} numbers")
        return Place(shape, packed, offset)

    def check_places(self) -> int:
        """Where the numbers begin; an error if two tensors overlap or one ends after the file."""
        align = check_size("general.alignment", self.settings.get("general.alignment", 32))
        gap, end = -self.file.tell() % align, 0
        for name, place in sorted(self.places.items(), key=lambda pair: pair[1].offset):
            if place.offset < end:
                raise ValueError(f"the place of {name} is that of another tensor")
            end = place.offset + place.nbytes
        if self.places and gap + end > self.left:
            raise ValueError("it is cut short: its tensors end after it")
        return self.file.tell() + gap

    def array(self, name: str) -> np.ndarray:
        """The numbers of a tensor in float32."""
        place = self.places[name]
        blocks = np.empty((place.nbytes // place.kind.size, place.kind.size), np.uint8)
        self.file.seek(self.start + place.offset)
        if self.file.readinto(blocks.data) != blocks.nbytes:
            raise ValueError("it was cut short while it was read")
        return place.kind.unpack(blocks).reshape(place.shape)


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[GGUF]:
    """A GGUF file; CheckpointError, which names it, if it is damaged."""
    try:
        with open(path, "rb") as file:
            yield GGUF(file)
    except CheckpointError:
        raise
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged or no GGUF file: {error}") from None
