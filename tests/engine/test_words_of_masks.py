"""What is visible, at each edge, and the whole text of each error of masks and lengths."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest
from common import rng_of
from messages import Refused, all_differences

import tinyattn as ta
from tinyattn.errors import DtypeError, MaskError, ShapeError
from tinyattn.ops import visibility as of

NOT_A_MASK = " (what may be attended to goes into mask=...)"
NOT_LENGTHS = " (numbers of keys go into valid_lens=...)"
CALLED = (
    "a mask holds booleans (True = may attend), got {}: a function of tinyattn.masks is called, as "
    "in masks.causal(n)"
)
SHAPE = 2, 3, 4, 5  # samples, heads, queries, keys
LETTERS = "with B=2, H=3, Q=4, K=5; got shape"
GAP = (
    "with skip_padding a mask is True up to the length of a sample and False behind it; sample {} "
    "has a gap, or begins with padding"
)


def masked(*shape: int) -> Any:
    return lambda: of.checked_mask(np.ones(shape, bool), SHAPE)


def sees(mask: list[list[int]]) -> Any:
    return lambda: of.lens_of_padding(np.array(mask, bool), (len(mask), len(mask[0])))


REFUSED: list[Refused] = [
    (
        lambda: of.checked_lens(np.array([True]), 3),
        DtypeError,
        f"valid_lens must be integers, got bool{NOT_A_MASK}",
    ),
    (
        lambda: of.checked_lens(np.ones((2, 3, 1), int), 3, name="lens"),
        ShapeError,
        "lens has shape (B,) or (B, Q), got (2, 3, 1): one length for each sample, or one for each "
        f"query{NOT_A_MASK}",
    ),
    (
        lambda: of.checked_lens(np.array(3), 3),
        ShapeError,
        "valid_lens has shape (B,) or (B, Q), got (): one length for each sample, or one for each "
        f"query{NOT_A_MASK}",
    ),
    (
        lambda: of.checked_lens(np.array([1.0, 2.5, 0.5]), 3),
        MaskError,
        "valid_lens must be whole numbers, got 2.5 at index 1",
    ),
    (
        lambda: of.checked_lens(np.array([[1.0, 2.0], [3.0, 0.5]]), 3),
        MaskError,
        "valid_lens must be whole numbers, got 0.5 at index (1, 1)",
    ),
    (
        lambda: of.checked_lens(np.array([3, 4, 5]), 3),
        MaskError,
        "valid_lens must lie between 0 and the number of keys, 3, got 4 at index 1",
    ),
    (
        lambda: of.checked_lens(np.array([[3, 0], [-1, 2]]), 3, "the length", "lens"),
        MaskError,
        "lens must lie between 0 and the length, 3, got -1 at index (1, 0)",
    ),
    (
        lambda: of.sample_lens([1, 2, 3], 2, 3),
        ShapeError,
        "2 samples need valid_lens (2,), got (3,)",
    ),
    (
        lambda: of.sample_lens([1, 4], 2, 3),
        MaskError,
        "valid_lens must lie between 0 and the length of the samples, 3, got 4 at index 1",
    ),
    (
        lambda: of.packed_lens([2, 3], 6),
        ShapeError,
        "packed sequences of 6 rows need valid_lens (B,) with that sum, got shape (2,) with sum 5",
    ),
    (
        lambda: of.packed_lens([[2, 4]], 6),
        ShapeError,
        "packed sequences of 6 rows need valid_lens (B,) with that sum, got shape (1, 2) with "
        "sum 6",
    ),
    (
        lambda: of.packed_lens([7], 6),
        MaskError,
        "valid_lens must lie between 0 and the number of rows, 6, got 7 at index 0",
    ),
    (
        lambda: of.booleans_of([1, np.ones((2, 2), bool)]),
        MaskError,
        "a mask is one array, got a list of arrays: join masks with a & b, and stack those of "
        "several samples with ta.stack",
    ),
    (
        lambda: of.booleans_of(np.ones((2, 3), np.float32)),
        DtypeError,
        "a mask holds booleans (True = may attend), got float32: write mask != 0 for one of 1 and "
        "0, mask == 0 for one of 0 and -inf; numbers that are added to the scores go into "
        "bias=..., PyTorch's masks into attn_mask=... of scaled_dot_product_attention",
    ),
    (
        lambda: of.booleans_of(np.array([[1, 0], [2, 1]])),
        MaskError,
        "a mask of integers holds only 0 (invisible) and 1 (may attend), got 2" + NOT_LENGTHS,
    ),
    (
        lambda: of.booleans_of(np.array([[1, 0], [0, -1]])),
        MaskError,
        "a mask of integers holds only 0 (invisible) and 1 (may attend), got -1" + NOT_LENGTHS,
    ),
    *(
        (
            lambda n=n: of.booleans_of(np.ones((1,) * n, bool)),
            MaskError,
            f"a mask has 2, 3 or 4 dimensions, got shape {(1,) * n}{NOT_LENGTHS}",
        )
        for n in (0, 1, 5)
    ),
    (
        masked(2, 4),
        MaskError,
        f"a mask of 2 dimensions is (B|1, K|1), {LETTERS} (2, 4); two dimensions mean samples by "
        "keys, three mean queries by keys as well",
    ),
    (
        masked(4, 5),
        MaskError,
        f"a mask of 2 dimensions is (B|1, K|1), {LETTERS} (4, 5); a mask of queries by keys (Q, K) "
        "is written mask[None]",
    ),
    (
        masked(2, 5, 4),
        MaskError,
        f"a mask of 3 dimensions is (B|1, Q|1, K|1), {LETTERS} (2, 5, 4)",
    ),
    (
        masked(2, 2, 4, 5),
        MaskError,
        f"a mask of 4 dimensions is (B|1, H|1, Q|1, K|1), {LETTERS} (2, 2, 4, 5)",
    ),
    (
        lambda: of.visibility_of(SHAPE, is_causal=1),  # type: ignore[arg-type]
        DtypeError,
        "is_causal is True or False, got 1: a mask goes into mask=... or attn_mask=...",
    ),
    (
        lambda: of.checked_limits([1, 2, 3], SHAPE),
        ShapeError,
        f"valid_lens has shape (B,) = (2,) or (B, Q) = (2, 4), got (3,){NOT_A_MASK}",
    ),
    (
        lambda: of.checked_limits(np.ones((2, 5), int), SHAPE),
        ShapeError,
        f"valid_lens has shape (B,) = (2,) or (B, Q) = (2, 4), got (2, 5){NOT_A_MASK}",
    ),
    (
        lambda: of.checked_limits(np.ones((2, 3), int), (2, 1, 3, 3)),
        MaskError,
        "valid_lens (B, Q) of nothing but 0 and 1, where Q equals K, may be a mask (B, K): pass a "
        "mask as mask=..., such lengths as mask=masks.from_valid_lens(valid_lens, K)",
    ),
    (
        lambda: of.lens_of_padding(np.ones((2, 4), bool), (2, 5)),
        MaskError,
        "with skip_padding a mask is (B, N) = (2, 5), got shape (2, 4)",
    ),
    (lambda: of.booleans_of("text"), DtypeError, CALLED.format("'text'")),
    (lambda: of.booleans_of(np.array([["a"]])), DtypeError, CALLED.format("<U1[1, 1]")),
    (
        lambda: of.booleans_of(np.ones((1, 2), complex)),
        DtypeError,
        CALLED.format("complex128[1, 2]"),
    ),
    (sees([[1, 1, 0], [1, 0, 1]]), MaskError, GAP.format(1)),
    (sees([[0, 1, 1], [1, 0, 1]]), MaskError, GAP.format(0)),
]


def test_each_error_says_its_whole_text() -> None:
    assert not all_differences(REFUSED)


def test_lengths_and_masks_are_taken_up_to_their_edges() -> None:
    for lens in ([0, 3], [3.0, 0.0], [[0, 3], [3, 0]], np.array([3, 0], np.uint8), []):
        found = of.checked_lens(np.array(lens), 3)
        assert (found.dtype, found.tolist()) == (np.int64, np.array(lens).tolist())
    assert of.packed_lens([0, 2, 1, 0], 3) == (0, 2, 1, 0)
    assert of.sample_lens([3, 0], 2, 3).tolist() == [3, 0]
    assert of.checked_limits([5, 0], SHAPE).tolist() == [[5], [0]]
    per_query = [[5, 4, 0, 1], [0, 1, 2, 3]]
    assert of.checked_limits(per_query, SHAPE).tolist() == per_query
    square = 2, 1, 3, 3  # nothing but zeros, and one length above 1, can only be lengths
    for found in (np.zeros((2, 3), int), np.array([[0, 0, 0], [0, 2, 1]])):
        assert of.checked_limits(found, square).tolist() == found.tolist()
    assert of.checked_limits([[1], [0]], (2, 1, 1, 1)).tolist() == [[1], [0]]
    for array in (np.array([[1, 0]]), np.array([[True, False]]), np.array([[1, 0]], np.uint8)):
        assert of.booleans_of(array).tolist() == [[True, False]]
        assert of.booleans_of(ta.tensor(array)).tolist() == [[True, False]]
    padded = np.array([[1, 1, 0], [0, 0, 0], [1, 1, 1], [1, 0, 0]])
    assert of.lens_of_padding(padded, (4, 3)).tolist() == [2, 0, 3, 1]


@pytest.mark.parametrize("n", [2, 3, 4])
def test_a_mask_that_looks_like_queries_by_keys_is_refused_and_padding_is_not(n: int) -> None:
    """As many samples as queries: by the rule of its docstring, over all small masks."""
    rng = rng_of(n)
    tables = itertools.product([False, True], repeat=n * n) if n < 4 else rng.rand(300, 16) < 0.5
    few = [np.tri(n, dtype=bool), np.tri(n, dtype=bool).T, np.eye(n, dtype=bool)]
    for array in [np.reshape(table, (n, n)) for table in tables] + few:
        by_distance = all(
            array[i, j] == array[i - 1, j - 1] for i in range(1, n) for j in range(1, n)
        )
        looks = by_distance and (array[-1] != array[-2]).any() and not array[:, -1].all()
        if looks and n != 2:
            with pytest.raises(MaskError, match="^" + re.escape(of.LIKE_QUERIES) + "$"):
                of.refuse_queries_by_keys(array, array)
        elif not looks:
            of.refuse_queries_by_keys(array, array)
    of.refuse_queries_by_keys(np.tri(n), np.tri(n, dtype=bool), n + 1)  # another number of queries
    of.refuse_queries_by_keys(ta.masks.padding(np.tri(n, dtype=int)), np.tri(n, dtype=bool))


WIDE, LONG = (2, 2, 3, 5), (2, 1, 5, 3)


@pytest.mark.parametrize("shape", [(2, 2, 4, 4), WIDE, LONG, (1, 1, 1, 3), (1, 2, 3, 1)], ids=str)
@pytest.mark.parametrize("window", [None, 1, 2, 7])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("past", [0, 1, 2])
def test_a_key_is_visible_where_the_definition_says_so(
    shape: tuple[int, ...], window: int | None, is_causal: bool, past: int
) -> None:
    batch, _, queries, keys = shape
    rng = rng_of(3)
    lens, mask = rng.randint(0, keys + 1, batch), rng.rand(batch, 1, queries, keys) < 0.7
    for valid_lens, by_mask in ((None, None), (lens, None), (None, mask), (lens, mask)):
        visible = np.ones(shape, bool)
        for b, h, q, k in np.ndindex(*shape):
            position = past + q
            visible[b, h, q, k] = (
                (not is_causal or k <= position)
                and (window is None or position - window < k < position + window)
                and (valid_lens is None or k < valid_lens[b])
                and (by_mask is None or by_mask[b, 0, q, k])
            )
        found = of.visibility_of(shape, valid_lens, by_mask, is_causal, window, past=past)
        pairs = found.visible_pairs(visible)
        pairs = np.broadcast_to(True if pairs is None else pairs, shape)
        np.testing.assert_array_equal(pairs, visible)
        if found.each_key_seen:
            assert visible.any((0, 1, 2)).all()
        elif is_causal and past + 1 < keys <= past + queries:
            assert not (valid_lens is by_mask is window is None)
        assert valid_lens is not None or by_mask is not None or window or is_causal or (
            found.limits is found.mask is found.starts is None
        )  # fmt: skip
