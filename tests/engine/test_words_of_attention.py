"""An error of attention, of masks and of sequences names the argument and the numbers that came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common import assert_close, rng_of, signed

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import masks, nn
from tinyattn.errors import DtypeError, MaskError, ShapeError


def ones(*shape: int, dtype: Any = np.float32) -> ta.Tensor:
    return ta.tensor(np.ones(shape, dtype))


def attend(
    query: Any = None, key: Any = None, value: Any = None, **options: Any
) -> Callable[[], Any]:
    """A call with two samples, three queries and four keys, right but for what is given."""
    query = ones(2, 3, 4) if query is None else query
    key, value = (ones(2, 4, 4) if x is None else x for x in (key, value))
    return lambda: F.scaled_dot_product_attention(query, key, value, **options)


def attend_by_module(
    queries: Any = None, keys: Any = None, values: Any = None, **options: Any
) -> Callable[[], Any]:
    queries = ones(2, 3, 4) if queries is None else queries
    keys, values = (ones(2, 4, 4) if x is None else x for x in (keys, values))
    return lambda: nn.DotProductAttention()(queries, keys, values, **options)


def softmax_of(*shape: int, **options: Any) -> Callable[[], Any]:
    return lambda: F.masked_softmax(ones(*shape), **options)


def turn(*shape: int, **options: Any) -> Callable[[], Any]:
    return lambda: F.rotary_embedding(ones(*shape), **options)


integers, doubles = ones(2, 4, 4, dtype=np.int64), ones(2, 4, 4, dtype=np.float64)
NOT_RECTANGULAR = [[1], [1, 2]]

ATTENTION = [
    (
        attend(query=ones(2, 3, 4, dtype=np.int64)),
        DtypeError,
        "query needs a floating dtype, got i",
    ),
    (attend(key=integers), DtypeError, "key needs a floating dtype, got int64"),
    (attend(value=integers), DtypeError, "value needs a floating dtype, got int64"),
    (attend(query=[1.0]), TypeError, "query must be a Tensor"),
    (attend(key=np.ones(4)), TypeError, "key must be a Tensor"),
    (attend(value=()), TypeError, "value must be a Tensor"),
    (attend(key=doubles), DtypeError, "attention: query is float32, key is float64"),
    (attend(value=doubles), DtypeError, "attention: query is float32, value is float64"),
    (attend(key=ones(2, 4, 5)), ShapeError, r"query \(2, 3, 4\) and key \(2, 4, 5\) must have one"),
    (attend(value=ones(2, 5, 4)), ShapeError, r"key \(2, 4, 4\) and value \(2, 5, 4\) must agree"),
    (attend(key=ones(3, 4, 4)), ShapeError, r"query, key and value .*\(3, 4, 4\), \(2, 4, 4\)$"),
    (
        attend(ones(2, 4, 3, 4), ones(2, 3, 4, 4), ones(2, 3, 4, 4)),
        ShapeError,
        "query, key and value .*; with enable_gqa=True the heads of key and value are a divisor",
    ),
    (
        attend(ones(2, 4, 3, 4), ones(3, 4, 4, 4), ones(3, 4, 4, 4)),
        ShapeError,
        r"query, key and value .*, got \(2, 4, 3, 4\), \(3, 4, 4, 4\), \(3, 4, 4, 4\)$",
    ),
    (attend(scale=np.inf), ValueError, "scale must be a finite number, got inf"),
    (attend(scale="1"), ValueError, "scale must be a finite number, got '1'"),
    (attend(dropout_p=1.5), ValueError, "a dropout probability lies between 0 and 1, got 1.5"),
    (attend(window=0), ShapeError, "window must be an integer >= 1, got 0"),
    (attend(is_causal=1), DtypeError, "is_causal is True or False, got 1: a mask goes into mask="),
    (attend(bias=ones(3, 5)), ShapeError, r"bias must broadcast to the scores, \(2, 3, 4\), got"),
    (attend(bias=ones(4, dtype=np.float64)), DtypeError, "attention: query is float32, bias is f"),
    (attend(bias=ones(4, dtype=bool)), DtypeError, "bias needs a floating dtype, got bool"),
    (attend(bias=np.ones(4)), TypeError, "bias must be a Tensor"),
    (
        attend(attn_mask=ones(3, 5)),
        ShapeError,
        r"attn_mask must broadcast to the scores, \(2, 3, 4\), got shape \(3, 5\)",
    ),
    (
        attend(attn_mask=ones(3, 5, dtype=bool)),
        ShapeError,
        r"attn_mask must broadcast to the scores, \(2, 3, 4\), got shape \(3, 5\)",
    ),
    (
        attend(attn_mask=ones(4, dtype=np.float64)),
        DtypeError,
        "attention: query is float32, attn_mask is float64",
    ),
    (attend(attn_mask=ones(4, dtype=np.int8)), DtypeError, "attn_mask holds booleans .*, got int8"),
    (attend(attn_mask=ones(4, dtype=np.uint8)), DtypeError, "attn_mask holds booleans .*got uint8"),
    (attend_by_module(queries=integers), DtypeError, "queries needs a floating dtype, got int64"),
    (attend_by_module(keys=integers), DtypeError, "keys needs a floating dtype, got int64"),
    (attend_by_module(values=integers), DtypeError, "values needs a floating dtype, got int64"),
    (attend_by_module(queries=[1.0]), TypeError, "queries must be a Tensor"),
    (attend_by_module(keys=[1.0]), TypeError, "keys must be a Tensor"),
    (attend_by_module(values=[1.0]), TypeError, "values must be a Tensor"),
    (attend_by_module(keys=doubles), DtypeError, "attention: queries is float32, keys is float64"),
    (
        attend_by_module(values=doubles),
        DtypeError,
        "attention: queries is float32, values is float",
    ),
    (lambda: F.transpose_qkv(ones(2, 4), 2), ShapeError, r"transpose_qkv .*, got shape \(2, 4\)"),
    (
        lambda: F.transpose_qkv(ones(2, 3, 4, 4), 2),
        ShapeError,
        r"transpose_qkv takes \(B, N, D\), got shape \(2, 3, 4, 4\)",
    ),
    (lambda: F.transpose_qkv(integers, 2), DtypeError, "x needs a floating dtype"),
    (lambda: F.transpose_qkv(ones(2, 3, 4), 3), ShapeError, "the width 4 cannot be split into 3 h"),
    (lambda: F.transpose_output(ones(2, 3, 4), 0), ShapeError, "num_heads must be an integer >= 1"),
    (
        lambda: F.transpose_output(ones(3, 3, 4), 2),
        ShapeError,
        r"transpose_output takes \(B \* 2, N, d\), got shape \(3, 3, 4\)",
    ),
    (lambda: F.transpose_output(ones(4, 4), 2), ShapeError, r"transpose_output takes \(B \* 2, N"),
    (lambda: F.transpose_output(integers, 2), DtypeError, "x needs a floating dtype"),
]

SOFTMAX = [
    (lambda: F.softmax(integers), DtypeError, "softmax needs a floating dtype, got int64"),
    (lambda: F.log_softmax(integers), DtypeError, "log_softmax needs a floating dtype, got int64"),
    (lambda: F.masked_softmax(integers), DtypeError, "scores needs a floating dtype, got int64"),
    (lambda: F.masked_softmax([1.0]), TypeError, "scores must be a Tensor"),
    (softmax_of(), ShapeError, r"scores are \(B, Q, K\), .*, got shape \(\)"),
    (softmax_of(1, 1, 1, 1, 2), ShapeError, r"scores are .*, got shape \(1, 1, 1, 1, 2\)"),
    (softmax_of(2, mask=NOT_RECTANGULAR), ShapeError, "mask: not a rectangular array of numbers"),
    (softmax_of(2, 1, 2, mask=NOT_RECTANGULAR), ShapeError, "mask: not a rectangular array"),
    (softmax_of(2, valid_lens=NOT_RECTANGULAR), ShapeError, "valid_lens: not a rectangular array"),
    (softmax_of(2, 1, 2, valid_lens=NOT_RECTANGULAR), ShapeError, "valid_lens: not a rectangular"),
    (softmax_of(2, past=-1), ShapeError, "past must be an integer >= 0, got -1"),
    (softmax_of(2, past=1.0), ShapeError, "past must be an integer >= 0, got 1.0"),
]

LENGTHS = [
    (
        softmax_of(2, 1, 3, valid_lens=[1, 4]),
        MaskError,
        "valid_lens must lie between 0 and the number of keys, 3, got 4 at index 1$",
    ),
    (
        softmax_of(2, 2, 3, valid_lens=[[1, 2], [-1, 3]]),
        MaskError,
        r"valid_lens must lie between 0 and the number of keys, 3, got -1 at index \(1, 0\)$",
    ),
    (
        lambda: F.sequence_mask(ones(2, 3), [1, 4]),
        MaskError,
        "valid_lens must lie between 0 and the length of the samples, 3, got 4 at index 1$",
    ),
    (
        lambda: F.pack_padded_sequence(ones(2, 3), [-2, 3]),
        MaskError,
        "valid_lens must lie between 0 and the length of the samples, 3, got -2 at index 0$",
    ),
    (
        lambda: F.pad_packed_sequence(ones(3, 2), [0, 2, 4]),
        MaskError,
        "valid_lens must lie between 0 and the number of rows, 3, got 4 at index 2$",
    ),
    (
        lambda: F.pad_packed_sequence(ones(3, 2), [1, 1]),
        ShapeError,
        r"packed sequences of 3 rows need .*, got shape \(2,\) with sum 2$",
    ),
    (
        lambda: F.pad_packed_sequence(ones(3), [1, 2], length=1),
        ShapeError,
        "length 1 is less than the longest sequence, 2$",
    ),
    (
        lambda: F.pad_packed_sequence(ones(3), [1, 2], length=-1),
        ShapeError,
        "length must be an integer >= 0, got -1",
    ),
    (
        softmax_of(3, 1, 3, valid_lens=[2, 1, 1.5]),
        MaskError,
        "valid_lens must be whole numbers, got 1.5 at index 2$",
    ),
    (
        softmax_of(2, 2, 3, valid_lens=[[2, 0.25], [1, 1.5]]),
        MaskError,
        r"valid_lens must be whole numbers, got 0.25 at index \(0, 1\)$",
    ),
    (
        softmax_of(2, 1, 3, valid_lens=[True, False]),
        DtypeError,
        r"valid_lens must be integers, got bool \(what may be attended to goes into mask=",
    ),
    (
        softmax_of(2, 1, 3, valid_lens=2),
        ShapeError,
        r"valid_lens has shape \(B,\) or \(B, Q\), got \(\): one length for each sample",
    ),
    (
        softmax_of(2, 1, 3, valid_lens=[1, 2, 3]),
        ShapeError,
        r"valid_lens has shape \(B,\) = \(2,\) or \(B, Q\) = \(2, 1\), got \(3,\) \(what may",
    ),
    (
        lambda: F.sequence_mask(ones(2, 3), [1]),
        ShapeError,
        r"2 samples need valid_lens \(2,\), got \(1,\)$",
    ),
    (
        lambda: F.sequence_mask(ones(2), [1]),
        ShapeError,
        r"sequence_mask takes .*, got shape \(2,\)",
    ),
    (
        lambda: F.pack_padded_sequence(ones(2), [1]),
        ShapeError,
        r"pack_padded_sequence takes .*, got shape \(2,\)",
    ),
    (lambda: F.masked_mean(ones(2)), ShapeError, r"masked_mean takes .*, got shape \(2,\)"),
    (lambda: F.pad_packed_sequence(ones(), [1]), ShapeError, r"pad_packed_sequence takes \(N"),
    (lambda: F.sequence_mask([1], [1]), TypeError, "x must be a Tensor"),
    (lambda: F.pack_padded_sequence([1], [1]), TypeError, "x must be a Tensor"),
    (lambda: F.pad_packed_sequence([1], [1]), TypeError, "x must be a Tensor"),
    (lambda: F.masked_mean(integers), DtypeError, "x needs a floating dtype"),
    (lambda: F.pad([1, 2], (1, 1)), TypeError, "x must be a Tensor"),
    (lambda: F.pad(ones(2), 1), TypeError, r"pad is a tuple such as \(1, 1\)"),
]

MASKS = [
    (
        softmax_of(2, 3, 4, mask=np.ones((2, 5), bool)),
        r"a mask of 2 dimensions is \(B\|1, K\|1\), with B=2, H=1, Q=3, K=4; got shape \(2, 5\); "
        r"two dimensions mean samples by keys, three mean queries by keys as well$",
    ),
    (
        softmax_of(2, 3, 4, mask=np.ones((3, 4), bool)),
        r"got shape \(3, 4\); a mask of queries by keys \(Q, K\) is written mask\[None\]$",
    ),
    (
        softmax_of(2, 3, 4, mask=np.ones((2, 2, 4), bool)),
        r"a mask of 3 dimensions is \(B\|1, Q\|1, K\|1\), with .*; got shape \(2, 2, 4\)$",
    ),
    (
        softmax_of(2, 6, 3, 4, mask=np.ones((2, 5, 3, 4), bool)),
        r"a mask of 4 dimensions is \(B\|1, H\|1, Q\|1, K\|1\), with B=2, H=6, Q=3, K=4; "
        r"got shape \(2, 5, 3, 4\)$",
    ),
    (
        softmax_of(2, 3, 4, mask=np.ones((1, 1, 1, 1, 4), bool)),
        r"a mask has 2, 3 or 4 dimensions, got shape \(1, 1, 1, 1, 4\) \(numbers of keys go into",
    ),
    (
        softmax_of(2, 3, 4, mask=[[1, 2, 0, 0]]),
        r"a mask of integers holds only 0 .*, got 2 \(numbers of keys go into valid_lens=...\)$",
    ),
    (
        softmax_of(2, 3, 3, valid_lens=[[1, 1, 0], [1, 0, 0]]),
        r"valid_lens \(B, Q\) of nothing but 0 and 1, where Q equals K, may be a mask \(B, K\)",
    ),
]


def assert_refused(call: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=f"^{words}") as caught:
        call()
    assert caught.type is error


@pytest.mark.parametrize(("call", "error", "words"), ATTENTION)
def test_an_argument_of_attention_is_named(call: Any, error: Any, words: str) -> None:
    assert_refused(call, error, words)


@pytest.mark.parametrize(("call", "error", "words"), SOFTMAX)
def test_an_argument_of_a_softmax_is_named(call: Any, error: Any, words: str) -> None:
    assert_refused(call, error, words)


@pytest.mark.parametrize(("call", "error", "words"), LENGTHS)
def test_a_wrong_length_is_shown_with_its_place(call: Any, error: Any, words: str) -> None:
    assert_refused(call, error, words)


@pytest.mark.parametrize(("call", "words"), MASKS)
def test_a_mask_that_does_not_fit_is_told_what_would(call: Any, words: str) -> None:
    with pytest.raises(MaskError, match=words):
        call()


# Rotary positions

POSITIONS = [
    (turn(4), ShapeError, r"rotary_embedding takes x \(..., N, d\), got shape \(4,\)"),
    (turn(2, 4, 5), ShapeError, "rotary_embedding turns pairs: the width is even, got 5$"),
    (turn(2, 4, positions=[0.0, 1.0]), DtypeError, "positions must be integers, got float64$"),
    (turn(2, 4, positions=[True, False]), DtypeError, "positions must be integers, got bool$"),
    (turn(2, 4, positions=NOT_RECTANGULAR), ShapeError, "positions: not a rectangular array"),
    (turn(2, 4, positions=[0, -1]), ShapeError, "positions must be >= 0, got -1"),
    (
        turn(3, 2, 4, positions=[0, 1, 2]),
        ShapeError,
        r"positions must broadcast to the rows, \(3, 2\), got shape \(3,\)$",
    ),
    (turn(2, 4, base=0.99), ValueError, "base must be a number >= 1, got 0.99"),
    (turn(2, 4, base=np.inf), ValueError, "base must be a number >= 1, got inf"),
    (turn(2, 4, base="1"), ValueError, "base must be a number >= 1, got '1'"),
    (turn(2, 4, rates=np.ones(4)), ShapeError, r"rates are of pairs: \(2,\), got \(4,\)"),
    (lambda: F.rotary_embedding([1.0]), TypeError, "x must be a Tensor"),
    (lambda: F.rotary_embedding(integers), DtypeError, "x needs a floating dtype"),
]


@pytest.mark.parametrize(("call", "error", "words"), POSITIONS)
def test_what_rotary_positions_refuse(call: Any, error: Any, words: str) -> None:
    assert_refused(call, error, words)


@pytest.mark.parametrize("base", [1, 1.25, 2])
def test_a_base_from_1_on_turns_by_its_powers(base: float) -> None:
    x = signed(rng_of(1), 3, 4)
    angles = np.array([0, 2, 5])[:, None] * np.array([1.0, base**-0.5])
    turned = (x[:, ::2] + 1j * x[:, 1::2]) * np.exp(1j * angles)
    right = np.stack([turned.real, turned.imag], axis=-1).reshape(3, 4)
    for kind in (np.float64, np.float32):
        given = ta.tensor(x.astype(kind))
        found = F.rotary_embedding(given, positions=[0, 2, 5], base=base)
        assert_close(found.numpy(), right, 1e-12 if kind is np.float64 else 1e-6)
        assert found.dtype == kind
        np.testing.assert_array_equal(given.numpy(), x.astype(kind))


# Padding around a tensor

SIZES = [
    ((1,), {}),
    ((1, 1, 1), {}),
    ((1, 1) * 3, {}),
    ((1, 1.5), {}),
    ((1.5, 1), {}),
    ((0.0, 0.0), {}),
    ((True, 1), {}),
    ((1, None), {}),
    (("1", 1), {}),
    ((1, 1), {"mode": "reflect"}),
    ((1, 1), {"mode": None}),
]


@pytest.mark.parametrize(("sizes", "options"), SIZES)
def test_sizes_of_a_border_are_pairs_of_integers(sizes: Any, options: Any) -> None:
    words = r'^pad takes two integers for each of up to 2 dimensions, and mode "constant", got \('
    with pytest.raises(ShapeError, match=rf"{words}.* for x \(2, 3\)$"):
        F.pad(ones(2, 3), sizes, **options)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ((-2, -2), r"^pad takes 2 and 2 of 3 elements away, x \(2, 3\)$"),
        ((0, -4), r"^pad takes 0 and 4 of 3 elements away"),
        ((0, 0, -3, 0), r"^pad takes 3 and 0 of 2 elements away"),
    ],
)
def test_a_border_takes_no_more_away_than_there_is(sizes: Any, words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        F.pad(ones(2, 3), sizes)
    assert F.pad(ones(2, 3), (-1, -2)).shape == (2, 0)


@pytest.mark.parametrize(
    "sizes", [(), (1, 2), [2, 0], (0, -2), (-1, 3, 2, 1), (np.int8(1), 1, 0, 2)]
)
@pytest.mark.parametrize("value", [None, 0, 7.5, -np.inf])
def test_a_border_as_numpy_makes_it(sizes: Any, value: float | None) -> None:
    x, number = signed(rng_of(2), 3, 4), 0 if value is None else value
    pairs = [(0, 0), *((sizes[i], sizes[i + 1]) for i in range(len(sizes) - 2, -1, -2))][-2:]
    pairs = [(0, 0)] * (2 - len(pairs)) + pairs
    wide = np.pad(x, [(max(a, 0), max(b, 0)) for a, b in pairs], constant_values=number)
    cut = tuple(
        slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(pairs, wide.shape, strict=True)
    )
    found = F.pad(ta.tensor(x), sizes, value=value)
    np.testing.assert_array_equal(found.numpy(), wide[cut])


# What is accepted beside it


def test_masks_of_every_library_and_kind_mean_the_same() -> None:
    rows = [[True, False, True], [True, True, False]]
    scores = ta.tensor(signed(rng_of(0), 2, 1, 3))
    right = F.masked_softmax(scores, mask=rows)
    kinds: list[Any] = [np.array(rows), ta.tensor(rows), np.array(rows, np.uint8)]
    kinds += [np.array(rows, np.int64), ta.tensor(np.array(rows, np.int32)), tuple(rows)]
    for mask in kinds:
        assert F.masked_softmax(scores, mask=mask).equal(right)
    assert masks.padding(ta.tensor([[1, 0, 1], [1, 1, 0]]), 0).tolist() == rows
