"""Masks. One meaning everywhere: True (or 1) = may attend, the key is visible to the query.

Other libraries, for comparison:

    scaled_dot_product_attention (PyTorch), Equinox, JAX      True  = may attend   as here
    nn.MultiheadAttention, key_padding_mask (PyTorch)         True  = ignored      the opposite
    Annotated Transformer, Hugging Face                       1     = may attend   as here

The number of dimensions decides how a mask is read:

    (B|1, K|1)              the visible keys of each sample: a padding mask; B|1 is B, or 1 for all
    (B|1, Q|1, K|1)         the visible keys of each query
    (B|1, H|1, Q|1, K|1)    the visible keys of each query in each head

What this file makes is a `Mask`, a Tensor of booleans. `&` joins two of them, also of different
numbers of dimensions: `masks.padding(ids) & masks.causal(n) & masks.window(n, 4)`. So a new kind of
mask needs no new argument anywhere: it is passed as `mask=`. `valid_lens=`, `is_causal=` and
`window=` of attention say the same in fewer numbers, and are faster, because keys that nobody sees
are then not computed.

PyTorch reads a 2-D `attn_mask` as (Q, K); here that is written `mask[None]`. Without [None] it is
an error. Where B equals Q it has the shape of a mask (B, K) too, and its numbers decide: a causal
mask or a window is an error, what may be padding is read as (B, K). A `Mask` of two dimensions,
such as `padding` makes, is always (B, K), also if its lengths grow by 1 as those of a causal mask.

If only the first keys are visible, lengths say so: `valid_lens` (B,), or (B, Q) if they differ
between the queries. `ops/visibility.py` checks all that is given and makes one
`Visibility` of it; the class stands in `kernels/visibility.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import and_, or_, xor
from typing import Any

import numpy as np

from .base.backend import Array, device_of, namespace, to_device
from .base.checks import check_size, integer, require_integers
from .base.names import offer, own_names
from .engine.versions import Version
from .errors import MaskError, ShapeError
from .ops.arguments import ArrayLike, array_like
from .ops.visibility import booleans_of, checked_lens, refuse_queries_by_keys
from .tensors.tensor import Tensor


class Mask(Tensor):
    """A Tensor of booleans that says which keys are visible. `&`, `|` and `^` join two masks.

    One of the two may be any mask: a Tensor, an array or lists, of 2, 3 or 4 dimensions. `~mask` is
    a Mask, and so is `mask[:, :5]`, because it has as many dimensions. What else is made of a Mask
    is a plain Tensor, and two plain Tensors are joined as NumPy does it.
    Raises MaskError for masks that do not agree in B, Q and K.

        >>> ids = ta.tensor([[5, 7, 0]])
        >>> masks.padding(ids) & masks.causal(3)
        tensor([[[ True, False, False],
                 [ True,  True, False],
                 [ True,  True, False]]])
    """

    __slots__ = ()
    is_mask = True  # tells the functions, which know no Mask, that two dimensions are (B, K)

    def __init__(self, data: ArrayLike, device: str | None = None) -> None:
        array = booleans_of(data)
        refuse_queries_by_keys(data, array)
        super().__init__(array, device=device)

    def __and__(self, other: Any) -> Mask:
        return joined(and_, self, other)

    def __or__(self, other: Any) -> Mask:
        return joined(or_, self, other)

    def __xor__(self, other: Any) -> Mask:
        return joined(xor, self, other)

    # `mask &= other` gives `mask` a new value, because the joined mask may be larger.
    __rand__ = __iand__ = __and__  # type: ignore[assignment]
    __ror__ = __ior__ = __or__  # type: ignore[assignment]
    __rxor__ = __ixor__ = __xor__  # type: ignore[assignment]

    def __invert__(self) -> Mask:
        return mask_of(~self._data)

    def __getitem__(self, index: Any) -> Any:
        part = super().__getitem__(index)
        return mask_of(part._data) if part.ndim == self.ndim else part


def mask_of(array: Array) -> Mask:
    """A Mask of an array of booleans that the library has made."""
    mask: Any = object.__new__(Mask)
    mask._data, mask._node, mask._version, mask._view = array, None, Version(), None
    return mask


def joined(operator: Callable[..., Any], *masks: ArrayLike) -> Mask:
    """The masks as one, of the largest number of dimensions: padding (B, K) becomes (B, 1, K).

    It is on "cuda" if one of them is, because `causal` and `window` make masks on the CPU.
    """
    arrays = [Mask(mask)._data for mask in masks]
    device = "cuda" if "cuda" in map(device_of, arrays) else "cpu"
    arrays = [to_device(array, device) for array in arrays]
    shapes = [array.shape for array in arrays]
    if not arrays:
        raise MaskError("masks of 2, 3 or 4 dimensions are joined, got none")
    rank = max(map(len, shapes))
    lifted = [a.reshape(len(a), *(1,) * (rank - a.ndim), *a.shape[1:]) for a in arrays]
    try:
        return mask_of(reduce(operator, lifted))
    except ValueError:
        text = "masks that are joined agree in B, Q and K, and (Q, K) is written mask[None]"
        raise MaskError(f"{text}, got {shapes}") from None


def from_valid_lens(valid_lens: ArrayLike, num_keys: int) -> Mask:
    """The mask in which the first `valid_lens` of `num_keys` keys are visible.

    valid_lens (B,) gives (B, K), the same for all queries; (B, Q) gives (B, Q, K).
    Raises MaskError for a length below 0 or above num_keys, ShapeError for another shape.

        >>> from tinyattn import masks
        >>> masks.from_valid_lens([1, 3], 3)
        tensor([[ True, False, False],
                [ True,  True,  True]])
    """
    lens = checked_lens(valid_lens, check_size("num_keys", num_keys, 0))
    return mask_of(namespace(lens).arange(num_keys) < lens[..., None])


def causal(n: int, past: int = 0) -> Mask:
    """(1, n, past + n): the keys 0 to past + i are visible to query i.

    past: how many positions came before the first query, such as those in a cache. The Annotated
    Transformer calls this function `subsequent_mask`.

        >>> masks.causal(3)
        tensor([[[ True, False, False],
                 [ True,  True, False],
                 [ True,  True,  True]]])
        >>> masks.causal(1, past=2)
        tensor([[[ True,  True,  True]]])
    """
    n, past = check_size("the sequence length", n, 0), check_size("past", past, 0)
    return mask_of(np.tri(n, past + n, past, dtype=np.bool_)[None])


subsequent_mask = causal


def window(n: int, width: int, past: int = 0) -> Mask:
    """(1, n, past + n): query i sees key k if |past + i - k| < width.

    past: how many positions came before the first query, such as those in a cache. With `causal`
    the last `width` keys are visible, the query's own among them.
    Source: Beltagy et al., "Longformer", 2020.

        >>> masks.window(3, 2) & masks.causal(3)
        tensor([[[ True, False, False],
                 [ True,  True, False],
                 [False,  True,  True]]])
    """
    n, past = check_size("the sequence length", n, 0), check_size("past", past, 0)
    distances = np.arange(past, past + n)[:, None] - np.arange(past + n)
    return mask_of((np.abs(distances) < check_size("width", width))[None])


def prefix(prefix_lens: ArrayLike, n: int) -> Mask:
    """(B, n, n): every query sees the first prefix_lens[b] keys of its sample, and those up to its
    own position.

    So a prefix, such as a question, is read in both directions, and what follows is causal.
    Raises MaskError for a length below 0 or above n.
    Source: Raffel et al., "Exploring the Limits of Transfer Learning", 2020.

        >>> masks.prefix([2], 3)
        tensor([[[ True,  True, False],
                 [ True,  True, False],
                 [ True,  True,  True]]])
    """
    lens = checked_lens(prefix_lens, check_size("n", n, 0), "n", "prefix_lens")
    return causal(n) | mask_of(namespace(lens).arange(n) < lens[..., None])


def padding(ids: ArrayLike, pad_id: int = 0) -> Mask:
    """(B, K): True where a token id is not `pad_id`.

    Make it from the ids and not from the embeddings, because positions are added to these, so no
    row stays zero.
    Raises ShapeError for ids that are not (B, K), DtypeError for ids that are no integers.

        >>> masks.padding([[5, 7, 0]], pad_id=0)
        tensor([[ True,  True, False]])
    """
    pad_id = integer("pad_id", pad_id)
    array = array_like(ids, "ids")
    require_integers(array.dtype, "padding takes integer token ids")
    if array.ndim != 2:
        raise ShapeError(
            f"padding takes token ids (B, K), got shape {array.shape}; from_valid_lens has lengths"
        )
    return mask_of(array != pad_id)


def combine(*masks: ArrayLike | None) -> Mask:
    """The mask in which a key is visible if every given mask says so: `&` of them all.

    None stands for no mask. In a decoder, padding and the future are invisible.
    Raises MaskError without a mask, and for masks that do not agree in B, Q and K.

        >>> ids = ta.tensor([[5, 7, 0]])
        >>> masks.combine(masks.padding(ids, pad_id=0), None, masks.causal(3)).shape
        (1, 3, 3)
    """
    return joined(and_, *(mask for mask in masks if mask is not None))


offer(globals(), "masks", sorted({*own_names(globals())} - {"joined", "mask_of"}))
