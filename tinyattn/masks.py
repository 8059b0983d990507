"""Masks. One meaning everywhere: True (or 1) = may attend, the key is visible to the query.

Other libraries, for comparison:

    scaled_dot_product_attention (PyTorch), Equinox, JAX      True  = may attend   as here
    nn.MultiheadAttention, key_padding_mask (PyTorch)         True  = ignored      the opposite
    Annotated Transformer, Hugging Face                       1     = may attend   as here

The number of dimensions decides how a mask is read:

    (B|1, K|1)              the visible keys of each sample: a padding mask; B|1 is B, or 1 for all
    (B|1, Q|1, K|1)         the visible keys of each query
    (B|1, H|1, Q|1, K|1)    the visible keys of each query in each head

`combine` joins masks of different numbers of dimensions, such as a padding mask with a causal one.

PyTorch reads a 2-D `attn_mask` as (Q, K); here that is written `mask[None]`. Without [None] it is
an error, unless B equals Q, because it then has the shape of a mask (B, K), or Q is 1, where both
mean the same.

If only the first keys are visible, lengths say so in fewer numbers: `valid_lens` (B,), or (B, Q) if
they differ between the queries. A causal mask is such lengths too. The library turns all that is
given into one `Visibility`, see `kernels/visibility.py`.
"""

from __future__ import annotations

from functools import reduce
from operator import and_

import numpy as np

from .base.backend import namespace
from .base.checks import check_size, is_integer
from .engine.autograd import wrap
from .errors import DtypeError, MaskError, ShapeError
from .ops.arguments import ArrayLike, array_like
from .ops.visibility import booleans_of, checked_lens
from .tensors.tensor import Tensor


def from_valid_lens(valid_lens: ArrayLike, num_keys: int) -> Tensor:
    """The mask in which the first `valid_lens` of `num_keys` keys are visible.

    valid_lens (B,) gives (B, K), the same for all queries; (B, Q) gives (B, Q, K).
    Raises MaskError for a length below 0 or above num_keys, ShapeError for another shape.

        >>> from tinyattn import masks
        >>> masks.from_valid_lens([1, 3], 3)
        tensor([[ True, False, False],
                [ True,  True,  True]])
    """
    lens = checked_lens(valid_lens, check_size("num_keys", num_keys, 0))
    return wrap(namespace(lens).arange(num_keys) < lens[..., None])


def causal(n: int, past: int = 0) -> Tensor:
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
    return wrap(np.tri(n, past + n, past, dtype=np.bool_)[None])


subsequent_mask = causal


def padding(ids: ArrayLike, pad_id: int = 0) -> Tensor:
    """(B, K): True where a token id is not `pad_id`.

    Make it from the ids and not from the embeddings, because positions are added to these, so no
    row stays zero.
    Raises ShapeError for ids that are not (B, K), DtypeError for ids that are no integers.

        >>> masks.padding([[5, 7, 0]], pad_id=0)
        tensor([[ True,  True, False]])
    """
    if not is_integer(pad_id):
        raise DtypeError(f"pad_id must be an integer, one of the token ids, got {pad_id!r}")
    array = array_like(ids, "ids")
    if array.dtype.kind not in "iu":
        raise DtypeError(f"padding takes integer token ids, got {array.dtype}")
    if array.ndim != 2:
        raise ShapeError(f"padding takes token ids (B, K), got shape {array.shape}")
    return wrap(array != pad_id)


def combine(*masks: ArrayLike | None) -> Tensor:
    """The mask in which a key is visible if every given mask, of 2, 3 or 4 dimensions, says so.

    None stands for no mask. In a decoder, padding and the future are invisible. (`padding & causal`
    would read (B, K) as (Q, K).)
    Raises MaskError without a mask, and for masks that do not agree in B, Q and K.

        >>> ids = ta.tensor([[5, 7, 0]])
        >>> masks.combine(masks.padding(ids, pad_id=0), masks.causal(3))
        tensor([[[ True, False, False],
                 [ True,  True, False],
                 [ True,  True, False]]])
    """
    arrays = [booleans_of(mask) for mask in masks if mask is not None]
    shapes = [array.shape for array in arrays]
    if not arrays or any(len(shape) not in (2, 3, 4) for shape in shapes):
        raise MaskError(f"combine takes masks of 2, 3 or 4 dimensions, got shapes {shapes}")
    rank = max(map(len, shapes))
    lifted = [a.reshape(len(a), *(1,) * (rank - a.ndim), *a.shape[1:]) for a in arrays]
    try:
        return wrap(reduce(and_, lifted).copy())
    except ValueError:
        raise MaskError(f"combine takes masks that agree in B, Q and K, got {shapes}") from None
