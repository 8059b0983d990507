"""Which keys each query may see: `valid_lens`, `mask`, `is_causal` and `window`, checked, as one
`Visibility`.

`tinyattn.masks` says what a mask means.
"""

from __future__ import annotations

import numpy as np

from ..base.backend import Array, namespace, to_device
from ..base.checks import check_size, describe
from ..engine.autograd import TensorBase
from ..errors import DtypeError, MaskError, ShapeError
from ..kernels.range_checks import require_range
from ..kernels.visibility import Visibility, of_padded, samples_of
from .arguments import ArrayLike, array_like

NOT_A_MASK = " (what may be attended to goes into mask=...)"
FORMS = {2: "(B|1, K|1)", 3: "(B|1, Q|1, K|1)", 4: "(B|1, H|1, Q|1, K|1)"}  # of a mask
LIKE_QUERIES = (
    "a mask of 2 dimensions is samples by keys (B, K), and this one looks like queries by keys: "
    "write mask[None] for (Q, K), and masks.from_valid_lens(lens, K) if it is padding"
)
NOT_LENGTHS = " (numbers of keys go into valid_lens=...)"


def checked_lens(
    lens: ArrayLike, most: int, of: str = "the number of keys", name: str = "valid_lens"
) -> Array:
    """Lengths as int64 (B,) or (B, Q), checked to lie between 0 and `most`, called `of`."""
    array = array_like(lens, name)
    if array.dtype.kind not in "iuf":
        raise DtypeError(f"{name} must be integers, got {array.dtype}{NOT_A_MASK}")
    if array.ndim not in (1, 2):
        raise ShapeError(
            f"{name} has shape (B,) or (B, Q), got {array.shape}: one length for each sample, "
            f"or one for each query{NOT_A_MASK}"
        )
    if array.dtype.kind == "f" and array.size and not bool((array == array.round()).all()):
        raise MaskError(f"{name} must be whole numbers, got {first_bad(array, array % 1 != 0)}")
    text = f"{name} must lie between 0 and {of}, {most}, got "
    if type(array) is not np.ndarray:
        require_range(array, 0, most + 1, MaskError, text + "{number}")
    elif np.count_nonzero(bad := (array < 0) | (array > most)):  # faster than any()
        raise MaskError(text + first_bad(array, bad))
    return array.astype(np.int64)


def sample_lens(valid_lens: ArrayLike, batch: int, length: int) -> Array:
    """valid_lens (B,) of padded samples (B, L), checked."""
    lengths = checked_lens(valid_lens, length, "the length of the samples")
    if lengths.shape != (batch,):
        raise ShapeError(f"{batch} samples need valid_lens ({batch},), got {lengths.shape}")
    return lengths


def packed_lens(valid_lens: ArrayLike, total: int) -> tuple[int, ...]:
    """valid_lens of packed samples with `total` rows, as integers on the host."""
    lengths = to_device(checked_lens(valid_lens, total, "the number of rows"), "cpu")
    listed = tuple(lengths.tolist()) if lengths.ndim == 1 else ()
    if lengths.ndim != 1 or sum(listed) != total:
        raise ShapeError(
            f"packed sequences of {total} rows need valid_lens (B,) with that sum, got shape "
            f"{lengths.shape} with sum {lengths.sum()}"
        )
    return listed


def first_bad(array: Array, bad: Array) -> str:
    index = tuple(int(i[0]) for i in bad.nonzero())
    return f"{array[index].item()} at index {index[0] if len(index) == 1 else index}"


def booleans_of(mask: ArrayLike) -> Array:
    """The array of a mask of booleans, or of the integers 0 and 1."""
    if isinstance(mask, (list, tuple)) and any(getattr(part, "ndim", 0) > 1 for part in mask):
        raise MaskError(
            "a mask is one array, got a list of arrays: join masks with a & b, and stack those of "
            "several samples with ta.stack"
        )
    array = mask._data if isinstance(mask, TensorBase) else array_like(mask, "mask")
    if array.dtype.kind == "f":
        raise DtypeError(
            f"a mask holds booleans (True = may attend), got {array.dtype}: write mask != 0 for "
            "one of 1 and 0, mask == 0 for one of 0 and -inf; numbers that are added to the scores "
            "go into bias=..., PyTorch's masks into attn_mask=... of scaled_dot_product_attention"
        )
    if array.dtype.kind in "iu":
        text = "a mask of integers holds only 0 (invisible) and 1 (may attend), got {number}"
        require_range(array, 0, 2, MaskError, text + NOT_LENGTHS)
        array = array != 0
    if array.dtype.kind == "b" and array.ndim not in FORMS:
        raise MaskError(f"a mask has 2, 3 or 4 dimensions, got shape {array.shape}{NOT_LENGTHS}")
    if array.dtype.kind != "b":
        raise DtypeError(
            f"a mask holds booleans (True = may attend), got {describe(mask)}: a function of "
            "tinyattn.masks is called, as in masks.causal(n)"
        )
    return array


def refuse_queries_by_keys(mask: ArrayLike, array: Array, queries: int | None = None) -> None:
    """MaskError for the array (N, K) of a mask that would be read as samples by keys, and means
    queries by keys: causal, a window, or the like, where the distance decides what is visible.

    queries: how many there are; as many as keys by default. A `Mask` of two dimensions is always
    samples by keys. Of others these stay, which may be padding: the last rows are equal, or every
    sample ends with a visible key; and two samples, unless there are two keys.
    """
    samples, keys = array.shape if array.ndim == 2 else (0, 0)
    may_be_queries = samples == (keys if queries is None else queries) and samples > 1
    if not may_be_queries or samples == 2 != keys or getattr(mask, "is_mask", False):
        return
    by_distance = (array[1:, 1:] == array[:-1, :-1]).all(keepdims=True)
    differ = (array[-1:] != array[-2:-1]).any(keepdims=True)
    found = by_distance & differ & ~array[:, -1:].all(keepdims=True)
    require_range(found, 0, 1, MaskError, LIKE_QUERIES)


def checked_mask(mask: ArrayLike, shape: tuple[int, ...]) -> Array:
    """A mask in any of its forms as booleans (B|1, H|1, Q|1, K|1), for scores (B, H, Q, K)."""
    array = booleans_of(mask)
    lifted = array.reshape(len(array), *(1,) * (4 - array.ndim), *array.shape[1:])
    if any(n not in (1, of_scores) for n, of_scores in zip(lifted.shape, shape, strict=True)):
        raise MaskError(wrong_mask(array.shape, shape))
    refuse_queries_by_keys(mask, array, shape[2])
    return lifted.copy()  # because the graph saves it, and the caller may write to the original


def wrong_mask(sizes: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """What to say of a mask of these sizes, for scores of this shape (B, H, Q, K)."""
    batch, heads, queries, keys = shape
    hint = ""
    if sizes == (queries, keys):
        hint = "; a mask of queries by keys (Q, K) is written mask[None]"
    elif len(sizes) == 2:
        hint = "; two dimensions mean samples by keys, three mean queries by keys as well"
    return (
        f"a mask of {len(sizes)} dimensions is {FORMS[len(sizes)]}, with B={batch}, H={heads}, "
        f"Q={queries}, K={keys}; got shape {sizes}{hint}"
    )


def visibility_of(
    shape: tuple[int, ...],
    valid_lens: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    is_causal: bool = False,
    window: int | None = None,
    device: str = "cpu",
    past: int = 0,
) -> Visibility:
    """All that makes keys invisible to queries, checked, for scores of this shape (B, H, Q, K).

    Lengths, causality and the end of a window become one array: how many first keys each query may
    see. past: the position of the first query; so many keys come before its own.
    """
    if type(is_causal) not in (bool, np.bool_):
        text = f"is_causal is True or False, got {describe(is_causal)}"
        raise DtypeError(f"{text}: a mask goes into mask=... or attn_mask=...")
    batch, _, queries, keys = shape
    starts, seen = None, False
    limits = None if valid_lens is None else to_device(checked_limits(valid_lens, shape), device)
    mask = None if mask is None else to_device(checked_mask(mask, shape), device)
    positions = np.arange(past, past + queries)[None]  # of the queries, (1, Q)
    # is_causal changes nothing without samples, or if the first query sees all keys.
    if is_causal and batch and past + 1 < keys:
        alone = limits is None and mask is None and window is None
        seen = alone and past + queries >= keys  # each key, by the last query
        limits = smaller(limits, positions + 1, device)
    if window is not None:
        starts = to_device(np.maximum(positions + 1 - check_size("window", window), 0), device)
        limits = smaller(limits, positions + int(window), device)
    return of_padded(shape, limits=limits, mask=mask, starts=starts, each_key_seen=seen)


def smaller(limits: Array | None, ends: np.ndarray, device: str) -> Array:
    """How many first keys each query sees, if both say so; None hides no key."""
    ends = to_device(ends, device)
    return ends if limits is None else namespace(limits).minimum(limits, ends)


def visibility_of_packed(
    valid_lens: ArrayLike, rows: int, is_causal: bool, window: int | None, device: str
) -> Visibility:
    """A query of packed samples with so many rows in all sees the keys of its own sample."""
    samples = samples_of(packed_lens(valid_lens, rows))
    shape = (1, 1, samples.longest, samples.longest)
    one_sample = visibility_of(shape, None, None, is_causal, window, device)
    return one_sample._replace(queries=samples, keys=samples)


def checked_limits(valid_lens: ArrayLike, shape: tuple[int, ...]) -> Array:
    """valid_lens for scores of this shape, (B, H, Q, K), as limits (B, Q|1)."""
    batch, _, queries, keys = shape
    limits = checked_lens(valid_lens, keys)
    if limits.shape != ((batch,) if limits.ndim == 1 else (batch, queries)):
        raise ShapeError(
            f"valid_lens has shape (B,) = ({batch},) or (B, Q) = ({batch}, {queries}), got "
            f"{limits.shape}{NOT_A_MASK}"
        )
    if limits.ndim == 2 and queries == keys > 1 and limits.size:
        # A mask passed as valid_lens would be read as lengths. All 0 can only mean lengths.
        text = (
            "valid_lens (B, Q) of nothing but 0 and 1, where Q equals K, may be a mask (B, K): "
            "pass a mask as mask=..., such lengths as mask=masks.from_valid_lens(valid_lens, K)"
        )
        require_range(limits.max(keepdims=True), 2, keys + 1, MaskError, text, also_allowed=0)
    return limits if limits.ndim == 2 else limits[:, None]


def lens_of_padding(mask: ArrayLike, shape: tuple[int, ...]) -> Array:
    """valid_lens (B,) of a padding mask of this shape (B, N): the inverse of `from_valid_lens`."""
    array = booleans_of(mask)
    if array.shape != shape:
        raise MaskError(f"with skip_padding a mask is (B, N) = {shape}, got shape {array.shape}")
    refuse_queries_by_keys(mask, array)
    lens = array.sum(axis=1)
    wrong = (array != (namespace(array).arange(array.shape[1]) < lens[:, None])).any(axis=1)
    if bool(wrong.any()):
        raise MaskError(
            "with skip_padding a mask is True up to the length of a sample and False behind it; "
            f"sample {int(wrong.argmax())} has a gap, or begins with padding"
        )
    return lens
