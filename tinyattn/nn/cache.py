"""What attention keeps from call to call, so that a new position does not compute the old ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from ..base.backend import Array, namespace, to_device
from ..base.checks import check_size, check_type
from ..engine.autograd import wrap
from ..errors import ShapeError
from ..ops.arguments import array_like
from ..ops.shapes import concatenate
from ..tensors.tensor import Tensor


class KeyValueCache:
    """The projected keys and values of one attention.

    grows: True for self-attention, because each call brings new positions. False for attention to a
        memory: its keys and values are projected in the first call only.
    length: for how many positions memory is reserved. More of them double it.
    past: how many queries came in earlier calls; so it is the position of the next one.
    """

    def __init__(self, grows: bool, length: int = 0) -> None:
        self.grows, self.length = grows, length
        self.past = 0
        self.stored: tuple[Tensor, Tensor] | None = None  # keys and values, (B, K, G * d)
        self.reserved: list[Array | None] = [None, None]  # arrays that begin with `stored`

    @property
    def past_keys(self) -> int:
        """How many keys come before those of the next call."""
        return self.past if self.grows else 0

    def memory(self, keys: Tensor) -> tuple[Tensor, Tensor] | None:
        """What an earlier call has projected of this memory (B, K, D); None of new keys."""
        if self.stored is None:
            return None
        batch, length = self.stored[0].shape[:2]
        if batch != len(keys) or (not self.grows and length != keys.shape[1]):
            what = "" if self.grows else f" and a memory of {length} positions"
            raise ShapeError(
                f"the cache is of {batch} samples{what}, got {len(keys)} and {keys.shape[1]}: "
                "begin with a new cache, or select its samples"
            )
        return None if self.grows else self.stored

    def joined(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """The stored keys and values with these after them; a memory as it is."""
        if not self.grows:
            return keys, values
        return self.with_stored(0, keys), self.with_stored(1, values)

    def with_stored(self, which: int, new: Tensor) -> Tensor:
        """The stored keys (which = 0) or values (1) with the new ones after them.

        Only the positions after the stored ones are written, so results of earlier calls stay.
        """
        old = None if self.stored is None else self.stored[which]
        if old is None and (new.requires_grad or not self.length):
            return new
        if old is not None and (old.dtype != new.dtype or old.requires_grad or new.requires_grad):
            self.reserved[which] = None
            return concatenate(old, new, dim=1)  # as a part of the graph
        batch, _, width = new.shape
        end, array = self.past + new.shape[1], self.reserved[which]
        if array is None or old is None or array.shape[1] < end:
            size = max(self.length, end if old is None else 2 * end)
            array = namespace(new._data).empty((batch, size, width), new.dtype)
            if old is not None:
                array[:, : self.past] = old._data
            self.reserved[which] = array
        array[:, self.past : end] = new._data
        return wrap(array[:, :end])

    def store(self, keys: Tensor, values: Tensor, queries: int) -> None:
        """Store the keys and values of a call with so many queries, after it has succeeded."""
        self.stored = keys, values
        self.past += queries

    def cut(self, length: int) -> None:
        """Forget the positions from `length` on; a memory stays."""
        if self.stored is not None and self.grows:
            self.stored = self.stored[0][:, :length], self.stored[1][:, :length]
            self.reserved = [None, None]
        self.past = min(self.past, length)

    def select(self, rows: list[int] | np.ndarray | Tensor) -> None:
        """Go on with the samples `rows` (B',), in this order; one may be there several times."""
        index = checked_rows(rows)
        if self.stored is not None:
            keys, values = self.stored
            self.stored = keys[index], values[index]
        self.reserved = [None, None]


def checked_rows(rows: Any) -> np.ndarray:
    """Numbers of samples (B',), or booleans (B,) that say which samples are taken, on the host."""
    index = to_device(array_like(rows, "rows"), "cpu")
    index = index if index.size else index.astype(np.int64)  # an empty list holds floats
    if index.ndim != 1 or index.dtype.kind not in "iub":
        raise ShapeError(f"select takes numbers of samples (B',), got {index.dtype} {index.shape}")
    return index


class LayerCache(NamedTuple):
    """The caches of one layer; an encoder's has no attention to a memory."""

    self_attn: KeyValueCache
    src_attn: KeyValueCache | None = None


def layer_cache_of(cache: Any) -> LayerCache:
    """The cache of one layer, checked."""
    expected = "a layer takes one layer's cache, new_cache().layers[i] of an Encoder or Decoder"
    return check_type(expected, cache, LayerCache, ": pass the whole cache to the whole stack")


class Cache:
    """The caches of all layers of an encoder or a decoder; `new_cache()` of the stack makes it.

    With a memory, its samples belong to this memory and its mask: take another cache for another
    memory.
    """

    def __init__(self, layers: int, with_memory: bool, length: int = 0) -> None:
        check_size("length", length, 0)
        self.layers = [
            LayerCache(KeyValueCache(True, length), KeyValueCache(False) if with_memory else None)
            for _ in range(layers)
        ]

    @property
    def length(self) -> int:
        """The number of positions computed so far."""
        return self.layers[0].self_attn.past

    def parts(self) -> list[KeyValueCache]:
        """The caches of all attentions."""
        return [part for layer in self.layers for part in layer if part is not None]

    def cut(self, length: int) -> None:
        """Forget the positions from `length` on, to go on in another way."""
        check_size("length", length, 0)
        for part in self.parts():
            part.cut(length)

    def select(self, rows: list[int] | np.ndarray | Tensor) -> None:
        """Go on with the samples `rows` (B',), in this order; one may be there several times.

        Beam search copies the better beginnings over the worse. The memory and its mask have to be
        selected in the same way.
        """
        for part in self.parts():
            part.select(rows)

    def __repr__(self) -> str:
        return f"Cache({len(self.layers)} layers, {self.length} positions)"

    @contextmanager
    def restored_after_errors(self) -> Iterator[None]:
        """A with-block that leaves the cache as it was if it ends with an error."""
        before = [(part, part.stored, part.past) for part in self.parts()]
        try:
            yield
        except BaseException:
            # The first layers have stored keys and values of a refused call.
            for part, stored, past in before:
                part.stored, part.past = stored, past
            raise


def layer_caches_of(cache: Any, layers: int) -> list[LayerCache]:
    """The caches of all layers of a stack of so many, checked."""
    if not isinstance(cache, Cache) or len(cache.layers) != layers:
        came = repr(cache) if isinstance(cache, Cache) else type(cache).__name__
        raise TypeError(f"a stack of {layers} layers takes a cache of its new_cache(), got {came}")
    return cache.layers
