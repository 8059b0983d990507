"""The inputs of the table: arrays of many shapes, with their edge cases named."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import references

import tinyattn as ta
from tinyattn import functional as F
from tinyattn.base.checks import checked_index
from tinyattn.base.random import NO_DROP, Drop

Array = np.ndarray


@dataclass(frozen=True)
class Sample:
    """One call: `inputs` become Tensors, `options` are handed over by name as they are."""

    inputs: tuple[Array, ...]
    options: dict[str, Any] = field(default_factory=dict)
    edge: str = ""  # what makes it an edge case
    smooth: bool = True  # False: a kink, or numbers so large that finite differences mean nothing
    torch: str = ""  # why PyTorch cannot be asked about this one
    special_torch: str = ""  # why it cannot be asked once NaN or inf are in it

    def __post_init__(self) -> None:
        # NumPy gives numbers where a 0-d array was meant.
        object.__setattr__(self, "inputs", tuple(np.asarray(x) for x in self.inputs))

    def has_slope(self) -> bool:
        """Whether finite differences have something to say about it."""
        return self.smooth and all(x.size for x in self.inputs)


# Numbers to try things on


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape)


def away(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Both signs, but nothing within 0.2 of zero: for functions with a kink or a pole there."""
    return rng.choice([-1.0, 1.0], shape) * rng.uniform(0.2, 3.0, shape)


def between(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """As `distinct`, and in the middle between its numbers."""
    return distinct(rng, shape) + 0.125


def positive(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.uniform(0.3, 3.0, shape)


def distinct(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """No two within 0.2 of each other, and none near 0: for functions that compare."""
    n = math.prod(shape)
    return (rng.permutation(n) - n // 2 + 0.5).reshape(shape) * 0.25


def tenths(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Both signs; no multiple of one of them is a number of `distinct`, which are odd eighths."""
    return rng.choice([-1.0, 1.0], shape) * rng.uniform(0.3, 3.0, shape).round(1)


def truths(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.asarray(rng.random(shape) < 0.5)


SHAPES = [
    ((), "0-d"),
    ((1,), "size 1"),
    ((0,), "empty"),
    ((2, 0, 3), "empty in the middle"),
    ((1, 1, 1), "size 1 in three dimensions"),
    *((shape, "") for shape in [(3,), (2, 3), (4, 5), (2, 3, 4), (1, 5), (5, 1), (2, 1, 3)]),
    *((shape, "") for shape in [(2, 2, 2, 2), (7,), (3, 3), (6, 2), (1, 4, 2), (9,)]),
]

SHAPE_PAIRS = [
    ((), (), "0-d"),
    ((3,), (), "an array and a 0-d array"),
    ((), (2, 3), "a 0-d array and an array"),
    ((2, 3), (3,), "the second broadcasts"),
    ((3,), (2, 3), "the first broadcasts"),
    ((2, 1), (1, 3), "both broadcast"),
    ((1, 3), (2, 1), "both broadcast"),
    ((1,), (1,), "size 1"),
    ((0,), (1,), "empty"),
    ((2, 0, 3), (3,), "empty in the middle"),
    ((2, 3, 4), (4,), ""),
    ((2, 3, 4), (3, 1), ""),
    ((3, 1), (2, 3, 4), ""),
    ((4, 5), (4, 5), ""),
    ((5,), (5,), ""),
    ((2, 2, 2, 2), (2, 1, 2), ""),
    ((1, 1), (3, 2), ""),
    ((6, 2), (6, 1), ""),
]


def unary(
    draw: Callable[[np.random.Generator, tuple[int, ...]], Array] = normal,
    large: float | None = 30.0,
    small: float | None = 1e-3,
    special: Sequence[float] = (),
    **options: Any,
) -> Callable[[np.random.Generator, np.dtype], list[Sample]]:
    """Samples of a function of one array; `special` is a list of values at its kinks."""

    def samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
        found = [Sample((draw(rng, shape).astype(dtype),), options, edge) for shape, edge in SHAPES]
        for factor, edge in ((large, "large numbers"), (small, "small numbers")):
            if factor is not None:
                x = (draw(rng, (2, 3)) * factor).astype(dtype)
                found.append(Sample((x,), options, edge, smooth=False))
        if special:
            x = np.array(special, dtype)
            found.append(Sample((x,), options, "values at a kink", smooth=False))
        while len(found) < 20:
            found.append(Sample((draw(rng, (3, 2)).astype(dtype),), options))
        return found

    return samples


def binary(
    first: Callable[..., Array] = normal,
    second: Callable[..., Array] = normal,
    scale: float = 100.0,
    special: Sequence[tuple[float, float]] = (),
) -> Callable[[np.random.Generator, np.dtype], list[Sample]]:
    """Samples of a function of two arrays that broadcast."""

    def samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
        found = [
            Sample((first(rng, a).astype(dtype), second(rng, b).astype(dtype)), {}, edge)
            for a, b, edge in SHAPE_PAIRS
        ]
        for factor, edge in ((scale, "large numbers"), (1 / scale, "small numbers")):
            x, y = first(rng, (2, 3)) * factor, second(rng, (2, 3)) * factor
            found.append(Sample((x.astype(dtype), y.astype(dtype)), {}, edge, smooth=False))
        if special:
            x, y = np.array(special, dtype).T.copy()
            found.append(Sample((x, y), {}, "values at a kink", smooth=False))
        return found

    return samples


def calls(
    *shapes_and_options: tuple[Any, ...], draw: Callable[..., Array] = normal, repeat: int = 1
) -> Callable[[np.random.Generator, np.dtype], list[Sample]]:
    """Samples written out as (shape or shapes, options) or (…, options, edge)."""

    def samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
        found = []
        for _ in range(repeat):
            for shapes, options, *edge in shapes_and_options:
                shapes = shapes if isinstance(shapes, list) else [shapes]
                inputs = tuple(np.asarray(draw(rng, shape), dtype) for shape in shapes)
                found.append(Sample(inputs, options, *edge))
        return found

    return samples


def both(*parts: Callable[..., list[Sample]]) -> Callable[..., list[Sample]]:
    """The samples of one part after those of the other."""
    return lambda rng, dtype: [sample for part in parts for sample in part(rng, dtype)]


# Samples of the functions whose arguments hang together


def clamp_between_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    plans = [
        ((), (), (), "0-d"),
        ((0,), (1,), (), "empty"),
        ((2, 3), (), (), "0-d limits"),
        ((2, 3), (3,), (2, 1), "limits that broadcast"),
        ((3,), (2, 3), (1,), "the result is larger"),
        *[((2, 3), (2, 3), (2, 3), "")] * 5,
        *[((4, 5), (5,), (5,), "")] * 5,
        *[((2, 3, 4), (3, 1), (4,), "")] * 4,
    ]
    found = []
    for shape, low, high, edge in plans:
        x = distinct(rng, shape)
        limits = (rng.integers(-4, 1, low) * 0.25, rng.integers(1, 5, high) * 0.25)
        refused = "it refuses to derive a result larger than x" if "larger" in edge else ""
        inputs = tuple(a.astype(dtype) for a in map(np.asarray, (x, *limits)))
        found.append(Sample(inputs, {}, edge, torch=refused))
    x = np.array([1.0, 2.0, -3.0], dtype)
    for low, high, edge in (
        ([1.0, 0.0, 0.0], [2.0, 2.0, 2.0], "at the limits"),
        ([2.0, 3.0, 2.0], [1.0, 0.0, 1.0], "the lower limit is above the upper"),
    ):
        inputs = (x, np.array(low, dtype), np.array(high, dtype))
        found.append(Sample(inputs, {}, edge, smooth=False))
    return found


def matmul_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    shapes = [
        ((3,), (3,), "vector times vector"),
        ((2, 3), (3,), "matrix times vector"),
        ((3,), (3, 2), "vector times matrix"),
        ((4, 2, 3), (3,), "stack times vector"),
        ((3,), (4, 3, 2), "vector times stack"),
        ((0, 3), (3, 2), "no rows"),
        ((2, 0), (0, 3), "sums over nothing"),
        ((0,), (0,), "vectors of nothing"),
        ((1, 1), (1, 1), "size 1"),
        ((2, 3), (3, 4), ""),
        ((5, 2), (2, 5), ""),
        ((2, 3, 4), (4, 2), "the matrix is shared by the stack"),
        ((3, 4), (2, 4, 2), "the matrix is shared by the stack"),
        ((2, 3, 4), (2, 4, 3), ""),
        ((2, 1, 3, 2), (1, 3, 2, 3), "both broadcast"),
        ((1, 2, 3), (2, 2, 3, 1), ""),
        ((2, 2, 2, 3), (2, 2, 3, 2), ""),
        ((1, 5), (5, 1), ""),
        ((5, 1), (1, 5), ""),
        ((3, 3), (3, 3), ""),
        ((2, 2, 3), (1, 3, 2), ""),
    ]
    found = [
        Sample((normal(rng, a).astype(dtype), normal(rng, b).astype(dtype)), {}, edge)
        for a, b, edge in shapes
    ]
    for scale, edge in ((30.0, "large numbers"), (1e-2, "small numbers")):
        x, y = normal(rng, (3, 4)) * scale, normal(rng, (4, 2)) * scale
        found.append(Sample((x.astype(dtype), y.astype(dtype)), {}, edge, smooth=False))
    return found


def linear_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    shapes = [
        ((3,), 2, "a single vector"),
        ((0, 3), 2, "no rows"),
        ((1, 1), 1, "size 1"),
        ((2, 0), 3, "no input features"),
        ((2, 3), 0, "no output features"),
        ((2, 3), 4, ""),
        ((5, 2), 5, ""),
        ((2, 3, 4), 2, ""),
        ((2, 2, 2, 3), 3, ""),
        ((1, 4), 1, ""),
    ]
    found = []
    for shape, width, edge in shapes:
        x, weight = normal(rng, shape), normal(rng, (width, shape[-1]))
        bias = normal(rng, (width,))
        found.append(Sample(tuple(a.astype(dtype) for a in (x, weight, bias)), {}, edge))
        found.append(Sample(tuple(a.astype(dtype) for a in (x, weight)), {}, edge or "no bias"))
    return found


def layer_norm_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    plans = [
        ((4,), (4,), 3, {}, ""),
        ((2, 3), (3,), 3, {}, ""),
        ((2, 3), (3,), 2, {}, "no bias"),
        ((2, 3), (3,), 1, {}, "neither weight nor bias"),
        ((2, 3, 4), (4,), 3, {}, ""),
        ((2, 3, 4), (3, 4), 3, {}, "over two dimensions"),
        ((2, 3, 4), (2, 3, 4), 1, {}, "over all dimensions"),
        ((5, 8), (8,), 3, {}, ""),
        ((2, 2, 2, 4), (4,), 2, {}, ""),
        ((2, 5), (5,), 3, {"eps": 1e-12}, "a tiny eps"),
        ((2, 5), (5,), 3, {"eps": 0.5}, "a large eps"),
        ((3, 1), (1,), 3, {}, "size 1: all zeros, and no slope"),
        ((0, 3), (3,), 3, {}, "empty"),
        ((2, 0, 3), (3,), 3, {}, "empty in the middle"),
        ((1, 7), (7,), 3, {}, ""),
        ((7, 2), (2,), 3, {}, ""),
        ((3, 3), (3,), 2, {}, ""),
        ((4, 6), (6,), 1, {}, ""),
    ]
    found = []
    for shape, sizes, count, options, edge in plans:
        arrays = (normal(rng, shape), 1 + 0.3 * normal(rng, sizes), normal(rng, sizes))[:count]
        arrays = tuple(a.astype(dtype) for a in arrays)
        smooth = "size 1" not in edge and options.get("eps", 1) > 1e-6
        found.append(Sample(arrays, {"normalized_shape": sizes, **options}, edge, smooth))
    for x, edge in (
        (np.full((2, 4), 3.0), "constant rows"),
        (normal(rng, (3, 4)) * 30, "large numbers"),
        (normal(rng, (3, 4)) * 1e-2, "small numbers"),
    ):
        arrays = (x, 1 + 0.3 * normal(rng, (4,)), normal(rng, (4,)))
        arrays = tuple(a.astype(dtype) for a in arrays)
        found.append(Sample(arrays, {"normalized_shape": (4,)}, edge, smooth=False))
    return found


def mask_of(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.random(shape) < 0.6


POISONED = "there 0 times a NaN under the mask is NaN"
IGNORED = "there the gradient of an ignored row is NaN if the row is"


def masked_softmax_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    hidden_rows = np.ones((2, 3, 4), bool)
    hidden_rows[0, 1] = hidden_rows[1] = False
    plans: list[tuple[tuple[int, ...], dict[str, Any], str]] = [
        ((2, 3, 4), {}, "no mask at all"),
        ((2, 3, 4), {"valid_lens": [2, 3]}, ""),
        ((2, 3, 4), {"valid_lens": [0, 4]}, "a sample that sees nothing, one that sees all"),
        ((2, 3, 4), {"valid_lens": [[1, 2, 3], [4, 0, 2]]}, "a length for each query"),
        ((2, 3, 4), {"mask": mask_of(rng, (2, 4))}, ""),
        ((2, 3, 4), {"mask": mask_of(rng, (2, 3, 4))}, ""),
        ((2, 3, 4), {"mask": mask_of(rng, (1, 3, 4))}, "one mask for all samples"),
        ((2, 3, 4), {"mask": mask_of(rng, (2, 1, 4))}, "one mask for all queries"),
        ((2, 3, 4), {"mask": hidden_rows}, "rows that see nothing"),
        ((2, 3, 4), {"mask": np.zeros((2, 4), bool)}, "nothing is seen anywhere"),
        ((2, 3, 4), {"mask": mask_of(rng, (2, 4)).astype(np.int64)}, "0 and 1 for a mask"),
        ((2, 3, 4), {"mask": mask_of(rng, (2, 4)), "valid_lens": [3, 2]}, "both are ANDed"),
        ((2, 2, 3, 4), {}, ""),
        ((2, 2, 3, 4), {"valid_lens": [2, 3]}, ""),
        ((2, 2, 3, 4), {"valid_lens": [[1, 2, 3], [4, 0, 2]]}, ""),
        ((2, 2, 3, 4), {"mask": mask_of(rng, (2, 2, 3, 4))}, ""),
        ((2, 2, 3, 4), {"mask": mask_of(rng, (1, 2, 1, 4))}, "a mask for each head"),
        ((2, 2, 3, 4), {"mask": mask_of(rng, (2, 4))}, "as many heads as samples"),
        ((1, 1, 1), {}, "size 1"),
        ((1, 1, 1), {"valid_lens": [0]}, "size 1, hidden"),
        ((0, 3, 4), {}, "no samples"),
        ((2, 0, 4), {"valid_lens": [1, 2]}, "no queries"),
        ((2, 3, 0), {}, "no keys"),
        ((1, 2, 9), {"valid_lens": [5]}, ""),
    ]
    found = [
        Sample(
            (normal(rng, s).astype(dtype),),
            options,
            edge,
            special_torch=POISONED if options else "",
        )
        for s, options, edge in plans
    ]
    x = (normal(rng, (2, 3, 4)) * 30).astype(dtype)
    options = {"valid_lens": [2, 4]}
    found.append(Sample((x,), options, "large numbers", smooth=False, special_torch=POISONED))
    # Below any finite fill value that float16 or the -1e6 of the textbooks would allow.
    x = (normal(rng, (2, 3, 4)) - 6e4).astype(dtype)
    options = {"valid_lens": [2, 3]}
    edge = "scores far below zero"
    found.append(Sample((x,), options, edge, smooth=False, special_torch=POISONED))
    return found


def attention_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    plans: list[tuple[tuple[int, ...], tuple[int, ...], int, dict[str, Any], str]] = [
        ((2, 3, 4), (2, 5, 4), 4, {}, ""),
        ((2, 3, 4), (2, 5, 4), 2, {}, "values narrower than keys"),
        ((2, 3, 2), (2, 3, 2), 3, {"is_causal": True}, ""),
        ((2, 4, 2), (2, 3, 2), 2, {"is_causal": True}, "causal, more queries than keys"),
        ((2, 2, 2), (2, 4, 2), 2, {"is_causal": True}, "causal, more keys than queries"),
        ((2, 3, 4), (2, 5, 4), 4, {"valid_lens": [2, 5]}, ""),
        ((2, 3, 4), (2, 5, 4), 4, {"valid_lens": [0, 3]}, "a sample that sees nothing"),
        ((2, 3, 2), (2, 4, 2), 2, {"valid_lens": [[0, 1, 4], [2, 3, 1]]}, "a length per query"),
        ((2, 3, 2), (2, 4, 2), 2, {"mask": mask_of(rng, (2, 4))}, ""),
        ((2, 3, 2), (2, 4, 2), 2, {"mask": mask_of(rng, (2, 3, 4))}, ""),
        ((2, 3, 2), (2, 4, 2), 2, {"mask": mask_of(rng, (1, 3, 4))}, "one mask for all samples"),
        ((2, 3, 2), (2, 3, 2), 2, {"mask": mask_of(rng, (2, 3)), "is_causal": True}, "two masks"),
        ((2, 3, 2), (2, 3, 2), 2, {"valid_lens": [1, 3], "is_causal": True}, "both are ANDed"),
        (
            (2, 3, 2),
            (2, 3, 2),
            2,
            {"valid_lens": [[3, 1, 2], [1, 3, 3]], "is_causal": True},
            "a length per query, and causal",
        ),
        (
            (2, 3, 2),
            (2, 4, 2),
            2,
            {"valid_lens": [2, 4], "mask": mask_of(rng, (2, 3, 4)), "is_causal": True},
            "all three are ANDed",
        ),
        ((2, 3, 2), (2, 4, 2), 2, {"scale": 0.3}, ""),
        ((2, 3, 2), (2, 4, 2), 2, {"scale": -1.5}, "a negative scale"),
        ((2, 2, 3, 2), (2, 2, 4, 2), 3, {}, "heads"),
        ((2, 2, 3, 2), (2, 2, 4, 2), 3, {"valid_lens": [1, 3]}, "as many heads as samples"),
        ((1, 2, 3, 2), (1, 2, 4, 2), 2, {"mask": mask_of(rng, (1, 2, 3, 4))}, ""),
        ((2, 2, 3, 1), (2, 2, 3, 1), 1, {"mask": mask_of(rng, (2, 1, 1, 3))}, "width 1"),
        ((2, 2, 3, 2), (2, 2, 3, 2), 2, {"is_causal": True}, ""),
        ((1, 1, 1), (1, 1, 1), 1, {}, "size 1"),
        ((0, 3, 2), (0, 4, 2), 2, {}, "no samples"),
        ((2, 0, 2), (2, 4, 2), 2, {}, "no queries"),
        ((2, 3, 2), (2, 0, 2), 2, {}, "no keys"),
    ]
    found = [attention_sample(rng, dtype, *plan) for plan in plans]
    arrays = (normal(rng, (1, 3, 2)) * 10, normal(rng, (1, 4, 2)) * 10, normal(rng, (1, 4, 2)))
    found.append(Sample(tuple(a.astype(dtype) for a in arrays), {}, "large numbers", smooth=False))
    variants: list[tuple[tuple[int, ...], tuple[int, ...], int, dict[str, Any], str]] = [
        ((2, 4, 2), (2, 4, 2), 2, {"window": 2}, "a window"),
        ((2, 4, 2), (2, 4, 2), 2, {"window": 2, "is_causal": True}, "a window behind"),
        ((2, 4, 2), (2, 3, 2), 2, {"window": 1, "valid_lens": [1, 3]}, "queries that see nothing"),
        ((1, 2, 5, 2), (1, 2, 3, 2), 2, {"window": 2}, "a window, more queries than keys"),
        ((2, 2, 2), (2, 3, 2), 2, {"window": 9}, "a window of everything"),
        ((2, 4, 3, 2), (2, 2, 4, 2), 3, {"enable_gqa": True}, "grouped queries"),
        (
            (1, 3, 3, 2),
            (1, 1, 3, 2),
            2,
            {"enable_gqa": True, "is_causal": True},
            "one head of keys",
        ),
        ((2, 2, 3, 2), (2, 1, 4, 2), 2, {"enable_gqa": True, "valid_lens": [0, 3]}, "groups"),
        ((2, 2, 3, 2), (2, 2, 4, 2), 2, {"attn_mask": mask_of(rng, (3, 4))}, "queries by keys"),
        ((2, 3, 2), (2, 4, 2), 2, {"attn_mask": mask_of(rng, (2, 3, 4)), "valid_lens": [1, 4]}, ""),
    ]
    return found + [attention_sample(rng, dtype, *plan) for plan in variants]


def attention_sample(
    rng: np.random.Generator, dtype: np.dtype, queries: Any, keys: Any, width: int,
    options: dict[str, Any], edge: str,
) -> Sample:  # fmt: skip
    arrays = (normal(rng, queries), normal(rng, keys), normal(rng, (*keys[:-1], width)))
    poisoned = POISONED if {*options} - {"scale"} else ""
    return Sample(tuple(a.astype(dtype) for a in arrays), options, edge, special_torch=poisoned)


def biased_attention_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    """The bias is the fourth input.

    One number for a whole row of scores has the gradient 0, of which no digit can be compared: its
    law is in tests/attention/test_variants.py.
    """
    three, four = ((2, 3, 2), (2, 4, 2)), ((2, 2, 3, 2), (2, 2, 4, 2))
    plans: list[tuple[Any, tuple[int, ...], dict[str, Any], str]] = [
        (three, (2, 3, 4), {}, ""),
        (three, (1, 3, 4), {}, "one bias for all samples"),
        (three, (3, 4), {}, "queries by keys"),
        (three, (4,), {}, "one number for each key"),
        (three, (2, 3, 4), {"valid_lens": [0, 3]}, "a sample that sees nothing"),
        (three, (3, 4), {"is_causal": True}, ""),
        (three, (3, 4), {"mask": mask_of(rng, (2, 3, 4))}, ""),
        (three, (3, 4), {"window": 2}, "a window"),
        (three, (3, 4), {"attn_mask": mask_of(rng, (3, 4))}, "two kinds of attn_mask"),
        (three, (3, 4), {"scale": -0.7}, "a scale"),
        (four, (2, 3, 4), {}, "heads, queries by keys"),
        (four, (2, 2, 3, 4), {}, ""),
        (four, (2, 1, 1, 4), {}, "samples by keys"),
        (four, (2, 1, 4), {"is_causal": True}, ""),
        (four, (2, 3, 4), {"valid_lens": [1, 3], "window": 3}, ""),
        (((1, 4, 3, 2), (1, 2, 4, 2)), (4, 3, 4), {"enable_gqa": True}, "grouped queries"),
        (((1, 1, 1), (1, 1, 1)), (1, 1), {}, "size 1"),
        (((0, 3, 2), (0, 4, 2)), (3, 4), {}, "no samples"),
        (((2, 0, 2), (2, 4, 2)), (0, 4), {}, "no queries"),
        (((2, 3, 2), (2, 0, 2)), (3, 0), {}, "no keys"),
    ]
    found = []
    for (queries, keys), bias, options, edge in plans:
        shapes = (queries, keys, keys, bias)
        arrays = tuple(np.asarray(normal(rng, shape), dtype) for shape in shapes)
        poisoned = POISONED if {*options} - {"scale"} else ""
        found.append(Sample(arrays, options, edge, special_torch=poisoned))
    return found


def rotary_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    plans: list[tuple[tuple[int, ...], dict[str, Any], str]] = [
        ((3, 4), {}, ""),
        ((2, 3, 4), {}, ""),
        ((2, 2, 3, 6), {}, "heads"),
        ((5, 2), {"base": 7.0}, "one pair"),
        ((3, 4), {"positions": np.array([5, 0, 2])}, "positions"),
        ((2, 3, 4), {"positions": np.array([[0, 1, 2], [7, 8, 9]])}, "positions of each sample"),
        ((3, 2, 4), {"positions": np.array([[4], [0], [1]])}, "one position for each row of heads"),
        ((2, 3, 4), {"positions": np.array([1000, 1001, 1002])}, "far positions"),
        ((1, 2), {}, "size 1"),
        ((0, 4), {}, "no rows"),
        ((3, 0), {}, "width 0"),
    ]
    return [
        Sample((normal(rng, shape).astype(dtype),), options, edge)
        for shape, options, edge in plans
        for _ in range(2)
    ]


def cross_entropy_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    found = []
    plans = [
        ((4, 3), {}, ""),
        ((1, 5), {}, ""),
        ((6, 2), {}, ""),
        ((3,), {}, "a single row without a batch"),
        ((2, 3, 4), {}, "classes in the middle"),
        ((2, 3, 2, 2), {}, "classes in the middle"),
        ((1, 1), {}, "one class"),
        ((0, 3), {"reduction": "sum"}, "empty"),
        ((5, 4), {"ignore_index": 1}, "some targets are ignored"),
    ]
    for shape, options, edge in plans:
        for reduction in ("mean", "sum", "none"):
            if shape[0] == 0 and reduction == "mean":
                continue
            sizes = shape[:1] + shape[2:] if len(shape) > 1 else ()
            classes = shape[min(1, len(shape) - 1)]
            target = rng.integers(0, classes, sizes)
            if "ignore_index" in options:
                target[:2] = [1, 0]
            filled = {**options, "target": target, "reduction": reduction}
            reason = IGNORED if "ignore_index" in options else ""
            x = normal(rng, shape).astype(dtype)
            found.append(Sample((x,), filled, edge, special_torch=reason))
    x = (normal(rng, (3, 4)) * 30).astype(dtype)
    options = {"target": np.array([0, 3, 1])}
    found.append(Sample((x,), options, "large numbers", smooth=False))
    options = {"target": np.array([-100, -100]), "reduction": "sum"}
    x = normal(rng, (2, 3)).astype(dtype)
    found.append(Sample((x,), options, "all are ignored", special_torch=IGNORED))
    return found


def embedding_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    found = []
    for shape, rows, width, padding, edge in [
        ((), 3, 2, None, "a single id"),
        ((4,), 3, 2, None, ""),
        ((4,), 3, 2, 1, "a row without gradient"),
        ((2, 3), 5, 2, None, ""),
        ((2, 3), 5, 2, 0, ""),
        ((6,), 2, 3, None, "ids that occur often"),
        ((6,), 1, 1, None, "size 1"),
        ((0,), 3, 2, None, "no ids"),
        ((2, 0), 3, 2, None, "no ids"),
        ((2, 2, 2), 4, 1, None, ""),
        ((3,), 4, 0, None, "width 0"),
        ((1, 1), 7, 3, None, ""),
        ((5,), 4, 4, 3, ""),
    ]:
        for _ in range(1 if edge else 3):
            ids = rng.integers(0, rows, shape)
            table = normal(rng, (rows, width)).astype(dtype)
            options = {} if padding is None else {"padding_idx": padding}
            # The gradient of the padding row is left out on purpose: differences would find it.
            found.append(Sample((np.asarray(ids), table), options, edge, padding is None))
    return found


def scatter_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    found = []
    for sample in embedding_samples(rng, dtype):
        ids, table = sample.inputs
        grad = normal(rng, (*ids.shape, table.shape[1])).astype(dtype)
        options = {"num_rows": len(table), "skip": sample.options.get("padding_idx")}
        found.append(Sample((grad, ids), options, sample.edge))
    return found


def gather_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    found = []
    for shape, index, dim, edge in [
        ((4,), (3,), 0, ""),
        ((1,), (5,), 0, "one element taken often"),
        ((4,), (), 0, "a number as index"),
        ((), (), 0, "0-d"),
        ((), (3,), 0, "of a number"),
        ((3, 4), (3, 4), 0, ""),
        ((3, 4), (3, 4), 1, ""),
        ((3, 4), (2, 4), 0, "fewer rows"),
        ((3, 4), (3, 1), 1, "one of each row"),
        ((3, 4), (2, 2), 1, "fewer rows and columns"),
        ((2, 3, 4), (2, 3, 2), 2, ""),
        ((2, 3, 4), (2, 5, 4), 1, "more than there are"),
        ((2, 3, 4), (1, 1, 1), 0, ""),
        ((3, 4), (0, 4), 0, "empty"),
        ((3, 4), (3, 0), 1, "empty"),
        ((1, 1), (1, 1), 1, "size 1"),
        ((2, 2), (2, 2), 1, ""),
    ]:
        for _ in range(2 if not edge else 1):
            places = np.asarray(rng.integers(0, shape[dim] if shape else 1, index))
            x = np.asarray(normal(rng, shape), dtype)
            found.append(Sample((x, places), {"dim": dim}, edge))
    return found


def scatter_along_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    found = []
    for sample in gather_samples(rng, dtype):
        x, index = sample.inputs
        options = {"dim": sample.options["dim"], "target": x.shape}
        values = np.asarray(normal(rng, index.shape), dtype)
        found.append(Sample((values, index), options, sample.edge))
    return found


INDICES: list[tuple[tuple[int, ...], Any, str]] = [
    ((5,), 2, "one element"),
    ((5,), -1, "from the end"),
    ((5,), slice(1, 4), ""),
    ((5,), slice(None, None, -2), "backwards with a step"),
    ((5,), slice(3, 3), "empty"),
    ((5,), [0, 0, 3], "an element taken twice"),
    ((5,), np.array([True, False, True, False, False]), "a mask"),
    ((5,), np.zeros(5, bool), "a mask that takes nothing"),
    ((3, 4), 1, ""),
    ((3, 4), (1, 2), "one element"),
    ((3, 4), (slice(None), 2), ""),
    ((3, 4), (slice(None), [1, 1, 0]), "a column taken twice"),
    ((3, 4), ([0, 2], [1, 1]), "pairs"),
    ((3, 4), (np.array([[0], [2]]), np.array([[1, 1, 3]])), "index arrays, one with 1 twice"),
    ((3, 4), np.eye(3, 4, dtype=bool), "a mask of both dimensions"),
    ((3, 4), (Ellipsis, 0), ""),
    ((3, 4), (None, slice(None), None, 1), "new dimensions"),
    ((3, 4), (slice(2, 0, -1), slice(None, None, 3)), ""),
    ((2, 3, 4), (0, Ellipsis, [0, 3]), "integers and lists mixed"),
    ((2, 3, 4), ([1, 0], slice(None), [0, 3]), "index arrays apart"),
    ((2, 3, 4), (slice(None), np.array([True, False, True])), "a mask in the middle"),
    ((3, 4), (np.array([True, False, True]), np.array([[0], [0]])), "a mask and a column twice"),
    ((2, 3, 4), Ellipsis, "everything"),
    ((2, 3, 4), (np.int64(1), -2), "NumPy's integers"),
    ((), (), "0-d"),
    ((), None, "0-d to 1-d"),
]


def getitem_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    return [
        Sample(
            (np.asarray(normal(rng, shape), dtype),),
            {"index": index},
            edge,
            torch=torch_refuses(index),
        )
        for shape, index, edge in INDICES
    ]


def torch_refuses(index: Any) -> str:
    """Why PyTorch cannot be asked about an index."""
    parts = index if isinstance(index, tuple) else (index,)
    if any(isinstance(part, slice) and (part.step or 1) < 0 for part in parts):
        return "PyTorch takes no negative steps"
    return ""


def putitem_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    found = []
    for shape, index, edge in INDICES:
        index = checked_index(index)
        taken = ta.zeros(shape)[index].shape
        x = np.asarray(normal(rng, taken), dtype)
        found.append(Sample((x,), {"index": index, "target": shape}, edge))
    return found


def setitem_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    """Values of the shape of x[index], and others that broadcast to it."""
    found = []
    twice = "PyTorch gives a gradient to each value that is written to one place"
    for shape, index, edge in INDICES:
        checked = checked_index(index)
        taken = ta.zeros(shape)[checked].shape
        torch = twice if "twice" in edge else torch_refuses(index)
        x = np.asarray(normal(rng, shape), dtype)
        shapes = {taken: "", (1,) * len(taken): "one value"}
        if len(taken) > 1 and "mask" not in edge:
            shapes |= {taken[1:]: "a row", (1, *taken): "a dimension of 1 in front"}
        for of_value, more in shapes.items():
            value = np.asarray(normal(rng, of_value), dtype)
            both = ", ".join(filter(None, (edge, more)))
            found.append(Sample((x, value), {"index": index}, both, torch=torch))
    return found


def cat_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    return calls(
        ([(3,), (2,)], {"dim": 0}),
        ([(3,)], {"dim": 0}, "a single one"),
        ([(2, 3), (2, 1), (2, 2)], {"dim": 1}),
        ([(2, 3), (4, 3)], {"dim": 0}),
        ([(2, 3), (2, 3)], {"dim": -1}),
        ([(2, 3), (0, 3)], {"dim": 0}, "one is empty"),
        ([(0,), (0,)], {"dim": 0}, "all are empty"),
        ([(1,), (1,), (1,), (1,)], {"dim": 0}, "size 1"),
        ([(2, 1, 2), (2, 3, 2)], {"dim": 1}),
        ([(2, 1, 2), (2, 1, 2)], {"dim": -3}),
        repeat=2,
    )(rng, dtype)


def stack_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    return calls(
        ([(3,), (3,)], {"dim": 0}),
        ([(3,), (3,)], {"dim": 1}),
        ([(3,)], {"dim": -1}, "a single one"),
        ([(), ()], {"dim": 0}, "0-d"),
        ([(0,), (0,)], {"dim": 1}, "empty"),
        ([(2, 3), (2, 3), (2, 3)], {"dim": 0}),
        ([(2, 3), (2, 3)], {"dim": 1}),
        ([(2, 3), (2, 3)], {"dim": -2}),
        ([(1,), (1,)], {"dim": 0}, "size 1"),
        ([(2, 1, 2), (2, 1, 2)], {"dim": 2}),
        repeat=2,
    )(rng, dtype)


def where_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    found = []
    for a, b, edge in SHAPE_PAIRS:
        shape = np.broadcast_shapes(a, b)
        condition = truths(rng, shape)
        x, y = (np.asarray(normal(rng, s), dtype) for s in (a, b))
        found.append(Sample((condition, x, y), {}, edge))
    for a, b, edge in SHAPE_PAIRS[3:6]:
        x, y = (np.asarray(normal(rng, s), dtype) for s in (a, b))
        found.append(Sample((truths(rng, (4, 1, 1)), x, y), {}, f"{edge}, so does the condition"))
    return found


def masked_fill_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    found = []
    for shape, edge in SHAPES:
        mask = truths(rng, shape)
        value = float(rng.choice([-math.inf, -1.5, 0.0, 7.0]))
        found.append(
            Sample(
                (np.asarray(normal(rng, shape), dtype), mask),
                {"value": value},
                edge,
                smooth=math.isfinite(value),
            )
        )
    for shape, mask_shape in [((2, 3), (3,)), ((2, 3), (2, 1)), ((2, 3, 4), (1, 4)), ((2, 3), ())]:
        x, mask = np.asarray(normal(rng, shape), dtype), truths(rng, mask_shape)
        found.append(Sample((x, mask), {"value": 2.0}, "the mask broadcasts"))
    return found


REDUCTIONS: list[tuple[Any, ...]] = [
    ((), {}, "0-d"),
    ((1,), {}, "size 1"),
    ((3,), {}),
    ((3,), {"dim": 0}),
    ((3,), {"dim": -1, "keepdim": True}),
    ((2, 3), {}),
    ((2, 3), {"dim": 0}),
    ((2, 3), {"dim": 1}),
    ((2, 3), {"dim": 1, "keepdim": True}),
    ((2, 3), {"dim": (0, 1)}, "all dimensions by number"),
    ((2, 3), {"keepdim": True}, "all dimensions, kept"),
    ((2, 3, 4), {"dim": (0, 2)}, "two dimensions apart"),
    ((2, 3, 4), {"dim": (-1, 0), "keepdim": True}, "two dimensions, out of order"),
    ((2, 3, 4), {"dim": 1}),
    ((2, 3, 4), {"dim": -1}),
    ((2, 2, 2, 2), {"dim": (1, 2)}),
    ((5, 1), {"dim": 1}, "over a dimension of size 1"),
    ((5, 1), {"dim": 0}),
    ((7,), {}),
    ((4, 5), {"dim": 0, "keepdim": True}),
    ((3, 0), {"dim": 0}, "empty, and so is the result"),
]
OVER_NOTHING: list[tuple[Any, ...]] = [
    ((0,), {}, "over nothing"),
    ((2, 0), {"dim": 1}, "over nothing"),
    ((0, 3), {"dim": 0, "keepdim": True}, "over nothing"),
]


def reduction_samples(
    draw: Callable[..., Array] = normal, over_nothing: bool = True, **fixed: Any
) -> Callable[[np.random.Generator, np.dtype], list[Sample]]:
    def samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
        wanted = REDUCTIONS + (OVER_NOTHING if over_nothing else [])
        found = calls(*wanted, draw=draw)(rng, dtype)
        found = [Sample(s.inputs, {**s.options, **fixed}, s.edge, s.smooth) for s in found]
        for scale, edge in ((50.0, "large numbers"), (1e-2, "small numbers")):
            x = (draw(rng, (3, 4)) * scale).astype(dtype)
            found.append(Sample((x,), {"dim": 1, **fixed}, edge, smooth=False))
        return found

    return samples


def reduced(sample: Sample) -> int:
    """How many elements each result is made from."""
    x = sample.inputs[0]
    return math.prod(x.shape[d] for d in references.axes_of(x, sample.options.get("dim")))


def var_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    found = []
    for unbiased in (True, False):
        for sample in reduction_samples(over_nothing=False)(rng, dtype):
            if reduced(sample) - unbiased < 1:
                continue  # NaN: in test_bad_input.py
            found.append(
                Sample(
                    sample.inputs,
                    {**sample.options, "unbiased": unbiased},
                    sample.edge,
                    sample.smooth,
                )
            )
    return found


def std_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    """As for var, without the places where the root has no slope."""
    return [s for s in var_samples(rng, dtype) if reduced(s) > 1]


def extreme_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    found = reduction_samples(distinct, over_nothing=False)(rng, dtype)
    ties = np.array([[1.0, 1.0, 0.0], [2.0, 2.0, 2.0], [0.0, -1.0, -1.0]], dtype)
    return [
        *found,
        Sample((ties.copy(),), {"dim": 1}, "ties", smooth=False),
        Sample((ties.copy(),), {}, "ties", smooth=False),
        Sample((np.zeros((2, 2), dtype),), {"dim": 0}, "all tie", smooth=False),
    ]


def extreme_samples_along_one(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    return [s for s in extreme_samples(rng, dtype) if isinstance(s.options.get("dim"), int)] * 2


def arg_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    found = []
    for sample in reduction_samples(distinct, over_nothing=False)(rng, dtype):
        if not isinstance(sample.options.get("dim"), tuple):
            found.append(sample)
    ties = np.array([[1.0, 1.0, 0.0], [0.0, 2.0, 2.0]], dtype)
    found.append(Sample((ties,), {"dim": 1}, "the first of those that tie"))
    found.append(Sample((ties.copy(),), {}, "the first of those that tie"))
    return found


def truth_reductions(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    found = calls(*REDUCTIONS, *OVER_NOTHING, draw=truths)(rng, np.dtype(bool))
    return [*found, Sample((np.array([0.0, 2.0, 0.0], dtype),), {}, "numbers: true unless 0")]


def single_truths(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    shapes = [*SHAPES, ((8,), ""), ((2, 4), "")]
    return [Sample((truths(rng, shape),), {}, edge) for shape, edge in shapes]


def truth_pairs(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    return [Sample((truths(rng, a), truths(rng, b)), {}, edge) for a, b, edge in SHAPE_PAIRS] + [
        Sample((truths(rng, (3, 3)), truths(rng, (3, 3))), {}, "") for _ in range(3)
    ]


def comparable_pairs(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    """Small whole numbers, so that equality happens; and what IEEE says about zeros and NaN."""
    found = []
    for a, b, edge in SHAPE_PAIRS:
        x, y = (np.asarray(rng.integers(-1, 2, s), dtype) for s in (a, b))
        found.append(Sample((x, y), {}, edge))
    odd = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], dtype)
    found.append(Sample((odd[:, None].copy(), odd.copy()), {}, "zeros, infinities and NaN"))
    x = rng.integers(-2, 3, (3, 4))
    found.append(Sample((x, rng.integers(-2, 3, (4,))), {}, "integers"))
    return found


def odd_numbers(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    """Arrays with NaN and infinities strewn in."""
    found = []
    for shape, edge in [*SHAPES, ((3, 3), ""), ((4,), "")]:
        x = np.asarray(normal(rng, shape), dtype)
        for value in (np.nan, np.inf, -np.inf):
            x = np.where(rng.random(shape) < 0.2, dtype.type(value), x)
        found.append(Sample((np.asarray(x, dtype),), {}, edge))
    return found


def numbers(
    draw: Callable[..., Array], values: Sequence[float], name: str = "n", smooth: bool = True
) -> Callable[[np.random.Generator, np.dtype], list[Sample]]:
    """An array and a Python number, over every shape."""

    def samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
        found = []
        for i, (shape, edge) in enumerate([*SHAPES, ((2, 2), ""), ((3,), "")]):
            x = np.asarray(draw(rng, shape), dtype)
            found.append(Sample((x,), {name: values[i % len(values)]}, edge, smooth))
        return found

    return samples


def pow_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    found = binary(positive, away, scale=3.0)(rng, dtype)
    x, y = np.array([0.0, 0.0, 0.0, 2.0, 1.0, 0.0], dtype), np.array([0, 1, 2, 0, 5, 3], dtype)
    return [*found, Sample((x, y), {}, "zeros as base and as exponent", smooth=False)]


def pow_number_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    found = numbers(positive, [2, 3, -1, 0.5, -2.5, 1, 0, 1.5])(rng, dtype)
    for n, edge in ((2, "a square"), (3, "a cube"), (-3, "a reciprocal"), (0, "always 1")):
        found.append(Sample((away(rng, (2, 3)).astype(dtype),), {"n": n}, edge))
    for n in (2, 1, 0, 3):
        x = np.array([0.0, 1.0], dtype)
        found.append(Sample((x,), {"n": n}, "zero as base", smooth=False))
    return found


def clamp_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    bounds = [{"min": -1.1, "max": 1.1}, {"min": 0.1}, {"max": 0.1}]
    found = []
    for i, (shape, edge) in enumerate([*SHAPES, ((2, 3), "")]):
        x = distinct(rng, shape)  # multiples of 0.125, so 0.1 and 1.1 are never hit
        found.append(Sample((np.asarray(x, dtype),), bounds[i % 3], edge))
    x = np.array([-1.0, 0.0, 1.0, 2.0, -5.0], dtype)
    found.append(Sample((x,), {"min": -1.0, "max": 1.0}, "values on the bounds", smooth=False))
    found.append(Sample((x.copy(),), {"min": 1.0, "max": -1.0}, "bounds crossed", smooth=False))
    return found


RESHAPES: list[tuple[Any, ...]] = [
    ((), {"shape": (1, 1)}, "0-d to 2-d"),
    ((1,), {"shape": ()}, "to 0-d"),
    ((0, 3), {"shape": (3, 0)}, "empty"),
    ((0,), {"shape": (2, 0, -1)[:2]}, "empty"),
    ((6,), {"shape": (2, 3)}),
    ((2, 3), {"shape": (6,)}),
    ((2, 3), {"shape": (3, 2)}),
    ((2, 3), {"shape": (-1,)}, "a size left open"),
    ((2, 3, 4), {"shape": (6, -1)}),
    ((2, 3, 4), {"shape": (4, 3, 2)}),
    ((2, 3, 4), {"shape": (2, 3, 4)}, "as it was"),
    ((2, 2, 2, 2), {"shape": (4, 4)}),
    ((1, 5), {"shape": (5,)}),
]
PERMUTES: list[tuple[Any, ...]] = [
    ((), {"dims": ()}, "0-d"),
    ((3,), {"dims": (0,)}, "nothing to permute"),
    ((2, 0), {"dims": (1, 0)}, "empty"),
    ((1, 1), {"dims": (1, 0)}, "size 1"),
    ((2, 3), {"dims": (1, 0)}),
    ((2, 3), {"dims": (-1, 0)}, "counted from the end"),
    ((2, 3, 4), {"dims": (2, 0, 1)}),
    ((2, 3, 4), {"dims": (0, 2, 1)}),
    ((2, 3, 4), {"dims": (1, 2, 0)}),
    ((2, 1, 3, 2), {"dims": (3, 1, 0, 2)}),
]
TRANSPOSES: list[tuple[Any, ...]] = [
    ((), {"dim0": 0, "dim1": 0}, "0-d"),
    ((3,), {"dim0": 0, "dim1": 0}, "with itself"),
    ((2, 0), {"dim0": 0, "dim1": 1}, "empty"),
    ((1, 1), {"dim0": 0, "dim1": 1}, "size 1"),
    ((2, 3), {"dim0": 0, "dim1": 1}),
    ((2, 3), {"dim0": -1, "dim1": -2}),
    ((2, 3, 4), {"dim0": 0, "dim1": 2}),
    ((2, 3, 4), {"dim0": 1, "dim1": 2}),
    ((2, 3, 4), {"dim0": 0, "dim1": 1}),
    ((2, 1, 3, 2), {"dim0": 1, "dim1": 2}),
]
EXPANDS: list[tuple[Any, ...]] = [
    ((), {"shape": (3,)}, "from 0-d"),
    ((), {"shape": ()}, "0-d stays 0-d"),
    ((1,), {"shape": (0,)}, "to nothing"),
    ((1,), {"shape": (4,)}),
    ((3,), {"shape": (2, 3)}),
    ((3,), {"shape": (2, -1)}, "a size kept by -1"),
    ((2, 1), {"shape": (2, 3)}),
    ((2, 1), {"shape": (-1, 4)}, "a size kept by -1"),
    ((1, 3, 1), {"shape": (2, 3, 2)}),
    ((2, 1, 3), {"shape": (2, 2, 4, 3)}),
    ((2, 3), {"shape": (2, 3)}, "as it was"),
]
SQUEEZES: list[tuple[Any, ...]] = [
    ((), {}, "0-d"),
    ((1,), {}, "to 0-d"),
    ((1, 0), {}, "empty"),
    ((1, 3, 1), {}),
    ((1, 3, 1), {"dim": 0}),
    ((1, 3, 1), {"dim": -1}),
    ((1, 3, 1), {"dim": (0, 2)}),
    ((1, 3, 1), {"dim": 1}, "a dimension that is not 1"),
    ((2, 3), {}, "nothing to squeeze"),
    ((2, 1, 2), {"dim": 1}),
]
UNSQUEEZES: list[tuple[Any, ...]] = [
    ((), {"dim": 0}, "0-d"),
    ((), {"dim": -1}, "0-d"),
    ((0,), {"dim": 1}, "empty"),
    ((3,), {"dim": 0}),
    ((3,), {"dim": -1}),
    ((3,), {"dim": 1}),
    ((2, 3), {"dim": 1}),
    ((2, 3), {"dim": -3}),
    ((2, 3), {"dim": 2}),
    ((1,), {"dim": 0}, "size 1"),
]
FLATTENS: list[tuple[Any, ...]] = [
    ((), {}, "0-d"),
    ((1,), {}, "size 1"),
    ((0, 3), {}, "empty"),
    ((3,), {}),
    ((2, 3), {}),
    ((2, 3, 4), {}),
    ((2, 3, 4), {"start_dim": 1}),
    ((2, 3, 4), {"end_dim": 1}),
    ((2, 3, 4), {"start_dim": 1, "end_dim": 1}, "one dimension only"),
    ((2, 2, 2, 2), {"start_dim": -3, "end_dim": -2}),
]
SPLITS: list[tuple[Any, ...]] = [
    ((6,), {"sizes": 2}),
    ((7,), {"sizes": 3}, "the last is shorter"),
    ((3,), {"sizes": 5}, "one that is shorter"),
    ((1,), {"sizes": 1}, "size 1"),
    ((0,), {"sizes": 2}, "empty"),
    ((4, 3), {"sizes": [1, 3]}),
    ((4, 3), {"sizes": [1, 2], "dim": 1}),
    ((4, 3), {"sizes": [0, 3], "dim": -1}, "an empty piece"),
    ((4, 3), {"sizes": 3, "dim": 1}),
    ((2, 3, 4), {"sizes": [2, 2], "dim": 2}),
]
CHUNKS: list[tuple[Any, ...]] = [
    ((6,), {"chunks": 2}),
    ((7,), {"chunks": 3}, "the last is shorter"),
    ((3,), {"chunks": 5}, "fewer than asked for"),
    ((1,), {"chunks": 1}, "size 1"),
    ((4, 3), {"chunks": 2}),
    ((4, 3), {"chunks": 3, "dim": 1}),
    ((4, 3), {"chunks": 2, "dim": -1}, "the last is shorter"),
    ((2, 3, 4), {"chunks": 4, "dim": 2}),
    ((2, 3, 4), {"chunks": 1, "dim": 1}, "a single one"),
    ((2, 3), {"chunks": 2}),
]
MATRICES: list[tuple[Any, ...]] = [
    ((2, 3), {}),
    ((5, 4), {}),
    ((0, 3), {}, "no rows"),
    ((3, 0), {}, "no columns"),
    ((1, 1), {}, "size 1"),
    ((1, 4), {}, "one row"),
    ((7, 1), {}),
    ((20, 3), {}),
    ((3, 20), {}),
    ((6, 6), {}),
]
ITERABLES: list[tuple[Any, ...]] = [
    ((3,), {}),
    ((1,), {}, "size 1"),
    ((2, 3), {}),
    ((4, 1), {}),
    ((2, 0), {}, "of nothing"),
    ((1, 1), {}, "size 1"),
    ((2, 2, 2), {}),
    ((3, 2, 1), {}),
    ((5,), {}),
    ((1, 5), {}, "a single one"),
]
TRIANGLES: list[tuple[Any, ...]] = [
    ((1, 1), {}, "size 1"),
    ((0, 3), {}, "empty"),
    ((3, 3), {}),
    ((3, 3), {"diagonal": 1}),
    ((3, 3), {"diagonal": -1}),
    ((3, 3), {"diagonal": 5}, "beyond the matrix"),
    ((3, 3), {"diagonal": -5}, "beyond the matrix"),
    ((2, 4), {}),
    ((4, 2), {}),
    ((2, 3, 3), {"diagonal": 1}, "a stack of matrices"),
]
SUM_TOS: list[tuple[Any, ...]] = [
    ((), {"shape": ()}, "0-d"),
    ((3,), {"shape": ()}, "to 0-d"),
    ((3,), {"shape": (1,)}),
    ((3,), {"shape": (3,)}, "as it was"),
    ((0, 3), {"shape": (3,)}, "sums over nothing"),
    ((2, 3), {"shape": (3,)}),
    ((2, 3), {"shape": (2, 1)}),
    ((2, 3), {"shape": (1, 1)}),
    ((2, 3, 4), {"shape": (3, 1)}),
    ((2, 3, 4), {"shape": (1, 4)}),
]
TRANSPOSE_QKVS: list[tuple[Any, ...]] = [
    ((2, 3, 4), {"num_heads": 2}),
    ((2, 3, 4), {"num_heads": 1}, "one head"),
    ((2, 3, 4), {"num_heads": 4}, "heads of width 1"),
    ((1, 1, 1), {"num_heads": 1}, "size 1"),
    ((0, 3, 4), {"num_heads": 2}, "no samples"),
    ((2, 0, 4), {"num_heads": 2}, "no positions"),
    ((3, 2, 6), {"num_heads": 3}),
    ((3, 2, 6), {"num_heads": 2}),
    ((1, 5, 4), {"num_heads": 2}),
    ((4, 1, 4), {"num_heads": 4}),
]
TRANSPOSE_OUTPUTS: list[tuple[Any, ...]] = [
    ((4, 3, 2), {"num_heads": 2}),
    ((2, 3, 4), {"num_heads": 1}, "one head"),
    ((8, 3, 1), {"num_heads": 4}, "heads of width 1"),
    ((1, 1, 1), {"num_heads": 1}, "size 1"),
    ((0, 3, 2), {"num_heads": 2}, "no samples"),
    ((4, 0, 2), {"num_heads": 2}, "no positions"),
    ((6, 2, 2), {"num_heads": 3}),
    ((6, 2, 3), {"num_heads": 2}),
    ((2, 5, 2), {"num_heads": 2}),
    ((4, 1, 1), {"num_heads": 4}),
]
SEQUENCES: list[tuple[Any, ...]] = [
    ((2, 3), {"valid_lens": [1, 3]}),
    ((2, 3), {"valid_lens": [0, 0]}, "nothing is kept"),
    ((2, 3), {"valid_lens": [3, 3]}, "everything is kept"),
    ((2, 3), {"valid_lens": [1, 2], "value": -1e4}),
    ((2, 3, 2), {"valid_lens": [2, 1]}, "vectors at each position"),
    ((2, 3, 2), {"valid_lens": [2, 1], "value": 5.0}),
    ((1, 1), {"valid_lens": [0]}, "size 1"),
    ((0, 3), {"valid_lens": np.zeros(0, np.int64)}, "no samples"),
    ((2, 0), {"valid_lens": [0, 0]}, "no positions"),
    ((3, 4), {"valid_lens": [4, 2, 0]}),
]
MEANS: list[tuple[Any, ...]] = [
    ((2, 3), {"valid_lens": [1, 3]}),
    ((2, 3), {}, "all positions"),
    ((2, 3), {"valid_lens": [0, 2]}, "nothing is visible"),
    ((2, 3, 2), {"valid_lens": [2, 1]}, "vectors at each position"),
    ((2, 3, 2), {"mask": np.array([[1, 0, 1], [0, 1, 0]], bool)}, "a mask with gaps"),
    ((2, 3), {"mask": np.array([[1, 0, 1], [0, 0, 0]], bool), "valid_lens": [2, 3]}, "both"),
    ((1, 1), {"valid_lens": [1]}, "size 1"),
    ((0, 3), {"valid_lens": np.zeros(0, np.int64)}, "no samples"),
    ((2, 0, 2), {"valid_lens": [0, 0]}, "no positions"),
    ((3, 4, 2, 2), {"valid_lens": [4, 2, 3]}, "matrices at each position"),
]
PACKS: list[tuple[Any, ...]] = [
    ((2, 3), {"valid_lens": [1, 3]}),
    ((2, 3), {"valid_lens": [0, 0]}, "nothing is kept"),
    ((2, 3), {"valid_lens": [3, 3]}, "everything is kept"),
    ((3, 4, 2), {"valid_lens": [2, 0, 4]}, "a sample without rows"),
    ((3, 4, 2), {"valid_lens": [1, 3, 2]}),
    ((2, 3, 2, 2), {"valid_lens": [3, 1]}, "matrices at each position"),
    ((1, 5, 3), {"valid_lens": [4]}, "one sample"),
    ((1, 1), {"valid_lens": [1]}, "size 1"),
    ((0, 3, 2), {"valid_lens": np.zeros(0, np.int64)}, "no samples"),
    ((2, 0, 2), {"valid_lens": [0, 0]}, "no positions"),
    ((2, 3, 0), {"valid_lens": [2, 1]}, "rows of nothing"),
]
UNPACKS: list[tuple[Any, ...]] = [
    ((4,), {"valid_lens": [1, 3]}),
    ((4, 2), {"valid_lens": [3, 1], "length": 5}, "longer than the longest"),
    ((4, 2), {"valid_lens": [3, 1], "length": 3}, "as long as the longest"),
    ((6, 2), {"valid_lens": [2, 0, 4]}, "a sample without rows"),
    ((6, 3), {"valid_lens": [1, 3, 2]}),
    ((4, 2, 2), {"valid_lens": [3, 1]}, "matrices at each position"),
    ((4, 3), {"valid_lens": [4]}, "one sample"),
    ((1,), {"valid_lens": [1]}, "size 1"),
    ((0, 2), {"valid_lens": [0, 0]}, "nothing at all"),
    ((0, 2), {"valid_lens": [0, 0], "length": 2}, "nothing but padding"),
    ((0, 2), {"valid_lens": np.zeros(0, np.int64)}, "no samples"),
]
SOFTMAXES: list[tuple[Any, ...]] = [
    ((), {"dim": -1}, "0-d"),
    ((), {"dim": 0}, "0-d"),
    ((1,), {"dim": 0}, "size 1"),
    ((3,), {"dim": -1}),
    ((0,), {"dim": 0}, "empty"),
    ((2, 0), {"dim": 1}, "empty rows"),
    ((0, 3), {"dim": 1}, "no rows"),
    ((2, 3), {"dim": 1}),
    ((2, 3), {"dim": 0}),
    ((2, 3), {"dim": -2}),
    ((4, 5), {"dim": -1}),
    ((2, 3, 4), {"dim": 0}),
    ((2, 3, 4), {"dim": 1}),
    ((2, 3, 4), {"dim": 2}),
    ((2, 1, 3), {"dim": 1}, "over a dimension of size 1"),
    ((2, 2, 2, 2), {"dim": 2}),
    ((1, 17), {"dim": -1}, "longer than a vector register"),
    ((3, 16), {"dim": -1}),
    ((5, 1), {"dim": 0}),
    ((7,), {"dim": 0}),
]


def softmax_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    found = calls(*SOFTMAXES)(rng, dtype)
    for scale, edge in ((40.0, "large numbers"), (1e-2, "small numbers")):
        x = (normal(rng, (2, 5)) * scale).astype(dtype)
        found.append(Sample((x,), {"dim": -1}, edge, smooth=False))
    x = (normal(rng, (2, 5)) - 5e4).astype(dtype)
    return [*found, Sample((x,), {"dim": -1}, "far below zero", smooth=False)]


def mse_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    found = []
    for i, (shape, edge) in enumerate([*SHAPES, ((2, 2), ""), ((3,), "")]):
        x, y = (np.asarray(normal(rng, shape), dtype) for _ in range(2))
        empty = x.size == 0
        reduction = ("sum", "none")[i % 2] if empty else ("mean", "sum", "none")[i % 3]
        found.append(Sample((x, y), {"reduction": reduction}, edge))
    return found


def cast_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    return unary(normal, 30.0, 1e-3, wanted="float64")(rng, dtype)


def norm_of(rng: np.random.Generator, width: int) -> tuple[Array, Array]:
    return 1 + 0.3 * normal(rng, (width,)), normal(rng, (width,))


def linear_of(rng: np.random.Generator, out: int, width: int) -> tuple[Array, Array]:
    return normal(rng, (out, width)) / np.sqrt(width), normal(rng, (out,))


def attention_rows_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    """Samples of equal and of different lengths; dropout, which only the op itself lets fix.

    A plan: lengths of queries and of keys, (heads, width of keys, width of values), the rest.
    """
    causal = np.arange(1, 5)[None]
    n3, n4, packed = (3, 3), (4, 4), (3, 1, 2)
    plans: list[tuple[Any, Any, tuple[int, int, int], dict[str, Any], str]] = [
        (n3, n3, (2, 2, 2), {}, ""),
        (n3, n4, (2, 2, 3), {}, "other keys than queries"),
        (n3, n3, (1, 2, 2), {}, "one head"),
        (n3, n3, (2, 1, 1), {}, "width 1"),
        ((4,), (4,), (2, 2, 2), {"limits": causal}, "one sample, causal"),
        (n4, n4, (1, 2, 2), {"limits": np.array([[2], [4]])}, ""),
        (n4, n4, (1, 2, 2), {"limits": np.array([[0], [3]])}, "a sample without visible keys"),
        (n4, n4, (2, 2, 2), {"limits": np.array([[0, 1, 4, 2], [4, 2, 3, 1]])}, "for each query"),
        (n3, n3, (2, 2, 2), {"mask": mask_of(rng, (2, 2, 3, 3))}, "a mask"),
        (n3, n4, (2, 2, 2), {"mask": mask_of(rng, (1, 2, 1, 4))}, "a mask for each head"),
        (n3, n3, (2, 2, 2), {"limits": np.array([[2]]), "mask": mask_of(rng, (2, 1, 3, 3))}, ""),
        (n3, n4, (2, 2, 3), {"scale": -1.5, "drop": Drop(0.3, 7)}, "dropout"),
        (n3, n4, (2, 2, 2), {"drop": Drop(0.25, 2**40 + 3)}, "dropout, a large seed"),
        (n3, n3, (2, 2, 2), {"limits": np.array([[2], [0]]), "drop": Drop(0.5, 1)}, "dropout"),
        (n3, n3, (2, 2, 2), {"drop": Drop(1.0, 7)}, "everything is dropped"),
        ((), (), (2, 2, 2), {}, "no samples"),
        ((0, 0), (0, 0), (2, 2, 2), {}, "no rows"),
        ((2, 1), (0, 0), (2, 2, 2), {}, "no keys"),
        (packed, packed, (2, 2, 2), {}, "packed"),
        (packed, (1, 4, 2), (2, 2, 3), {}, "packed, other keys than queries"),
        (packed, packed, (1, 2, 2), {}, "packed, one head"),
        ((1, 1, 1), (1, 1, 1), (2, 2, 2), {}, "samples of one row"),
        ((0, 4, 0, 2, 0), (0, 4, 0, 2, 0), (2, 2, 2), {}, "packed, samples without rows"),
        ((2, 0, 1), (0, 3, 1), (2, 2, 2), {}, "packed, samples without keys"),
        ((3, 4), (3, 4), (2, 2, 2), {"limits": causal}, "packed, causal"),
        ((4, 0, 3), (4, 0, 3), (2, 1, 1), {"limits": causal}, "packed, causal"),
        ((4, 2), (4, 2), (2, 2, 2), {"limits": np.array([[3], [0]])}, "packed, invisible keys"),
        ((4, 2), (1, 3), (2, 2, 2), {"mask": mask_of(rng, (2, 1, 4, 3))}, "packed, a mask"),
        ((2, 4), (2, 4), (2, 2, 2), {"drop": Drop(0.4, 2**33 + 1)}, "packed, dropout"),
        ((4, 3), (4, 3), (2, 2, 2), {"limits": causal, "drop": Drop(0.5, 9)}, "packed, dropout"),
        ((2, 4), (2, 4), (2, 2, 2), {"drop": Drop(1.0, 1)}, "packed, everything is dropped"),
    ]
    found = []
    for queries, keys, (heads, d, e), settings, edge in plans:
        shapes = [(sum(queries), heads, d), (sum(keys), heads, d), (sum(keys), heads, e)]
        usual = {"limits": None, "mask": None, "scale": 0.7, "drop": NO_DROP}
        options = {"lengths": (queries, keys), **usual, **settings}
        hides = options["limits"] is not None or options["mask"] is not None
        reason = "" if queries else "there nothing can be joined"
        found.append(
            Sample(
                tuple(normal(rng, shape).astype(dtype) for shape in shapes),
                options,
                edge,
                torch="PyTorch draws other random numbers" if options["drop"].p else reason,
                special_torch=POISONED if hides else "",
            )
        )
    large = tuple((normal(rng, (6, 2, 2)) * 2).astype(dtype) for _ in range(3))
    options = {"lengths": (packed, packed), **usual, "scale": 1.0}
    found.append(Sample(large, options, "packed, large numbers", smooth=False))
    return found


def weighted_sum_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    hidden: list[tuple[Any, Any, str]] = [
        (None, None, "nothing is hidden"),
        (np.array([[2], [3]]), None, ""),
        (np.array([[0, 1, 4], [4, 2, 3]]), None, "a query that sees nothing"),
        (None, mask_of(rng, (2, 1, 3, 4)), ""),
        (None, mask_of(rng, (1, 2, 1, 4)), "a mask for each head"),
        (np.array([[1, 2, 3]]), mask_of(rng, (2, 1, 1, 4)), "both are ANDed"),
        (None, np.zeros((1, 1, 1, 4), bool), "everything is hidden"),
    ]
    found = []
    for limits, mask, edge in hidden * 3:
        arrays = (rng.random((2, 2, 3, 4)), normal(rng, (2, 2, 4, 1 + len(found) % 3)))
        arrays = tuple(a.astype(dtype) for a in arrays)
        found.append(Sample(arrays, {"limits": limits, "mask": mask}, edge))
    return found


def seeded_dropout(x: ta.Tensor, p: float = 0.5, training: bool = True) -> ta.Tensor:
    ta.manual_seed(references.DROPOUT_SEED)
    return F.dropout(x, p, training)


def dropout_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    found = numbers(normal, [0.1, 0.5, 0.9], "p")(rng, dtype)
    x = normal(rng, (2, 3)).astype(dtype)
    found.append(Sample((x,), {"p": 0.0}, "nothing is dropped"))
    found.append(Sample((x.copy(),), {"p": 1.0}, "everything is dropped"))
    found.append(Sample((x.copy(),), {"p": 0.5, "training": False}, "not in training"))
    return found


def ops_dropout_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    found = numbers(normal, [0.1, 0.5, 0.9], "p")(rng, dtype)
    seeds = [0, 1, 2**32 - 1, 2**32, 2**63 - 1]
    return [
        Sample(s.inputs, {**s.options, "seed": seeds[i % 5]}, s.edge) for i, s in enumerate(found)
    ]


# Samples of the methods that are put together from others

STACKS: list[tuple[Any, ...]] = [
    ([(1, 1, 1), (1, 1, 1)], {}, "size 1"),
    ([(0, 2, 3), (0, 3, 2)], {}, "no matrices"),
    ([(2, 0, 3), (2, 3, 2)], {}, "no rows"),
    ([(2, 3, 0), (2, 0, 2)], {}, "sums over nothing"),
    *(([(b, n, k), (b, k, m)], {}) for b, n, k, m in [(2, 3, 4, 2), (1, 3, 2, 5), (3, 1, 2, 1)]),
    *(([(b, n, k), (b, k, m)], {}) for b, n, k, m in [(4, 2, 2, 2), (2, 1, 5, 3), (5, 3, 1, 3)]),
]
VECTOR_PAIRS: list[tuple[Any, ...]] = [
    ([(1,), (1,)], {}, "size 1"),
    ([(0,), (0,)], {}, "empty"),
    *(([(n,), (n,)], {}) for n in (2, 3, 4, 5, 6, 7, 8, 9)),
]
EINSUMS: list[tuple[Any, ...]] = [
    ([(2, 3, 4), (2, 5, 4)], {"equation": "bqd,bkd->bqk"}),
    ([(2, 2, 3, 5), (2, 5, 2, 4)], {"equation": "bhqk,bkhd->bqhd"}),
    ([(2, 3, 2, 4), (2, 5, 2, 4)], {"equation": "bqhd,bkhd->bhqk"}),
    ([(2, 2, 3, 4), (2, 2, 5, 4)], {"equation": "bhid,bhjd->bhij"}),
    ([(2, 3, 5), (2, 5, 4)], {"equation": "bqk,bkd->bqd"}),
    ([(2, 3, 4), (4, 2, 5)], {"equation": "bnd,dhe->bhne"}),
    ([(2, 3), (3, 4)], {"equation": "ij,jk->ik"}),
    ([(2, 3), (3, 4)], {"equation": "ij,jk->ki"}),
    ([(2, 3), (3,)], {"equation": "ij,j->i"}),
    ([(3,), (3,)], {"equation": "i,i->"}, "all letters are summed over"),
    ([(3,), (3,)], {"equation": "i,i->i"}, "none is"),
    ([(3,), (2,)], {"equation": "i,j->ij"}, "nothing in common"),
    ([(2, 3), (2, 3)], {"equation": "ij,ij->j"}),
    ([(2, 3), (4, 5)], {"equation": "ij,kl->jk"}, "sums of one operand"),
    ([(2, 0), (0, 3)], {"equation": "ij,jk->ik"}, "sums over nothing"),
    ([(0, 2), (2, 3)], {"equation": "ij,jk->ik"}, "empty"),
    ([(1, 1), (1, 1)], {"equation": "ij,jk->ik"}, "size 1"),
    ([(2, 1, 3, 4), (5, 4, 2)], {"equation": "...ij,...jk->...ik"}, "broadcast"),
    ([(2, 3, 4), (2, 4)], {"equation": "i...j,ij"}, "result not written"),
    ([(1, 3), (2, 3)], {"equation": "ij,ij->i"}, "of size 1 broadcasts"),
    ([(3, 3)], {"equation": "ii"}, "trace"),
    ([(3, 2, 3), (3,)], {"equation": "iji,i->ji"}, "diagonal"),
    ([(2, 3), (3, 4), (4, 2)], {"equation": "ij,jk,kl->il"}, "three operands"),
    ([(2,), (3,), (2,)], {"equation": "i,j,i->ji"}, "three operands, kept until the end"),
    ([(2, 3)], {"equation": "ij->ji"}),
    ([(2, 3)], {"equation": "ij->j"}),
    ([(2, 3)], {"equation": "ij->"}, "all letters are summed over"),
    ([(2, 3, 4)], {"equation": "abc->ca"}),
    ([(2, 3, 4)], {"equation": "bQd->dbQ"}),
]
STACKED: list[tuple[Any, ...]] = [
    ([(), ()], {}, "0-d"),
    ([(3,), (3,)], {}),
    ([(3,)], {}, "a single one"),
    ([(1,), (1,), (1,)], {}, "size 1"),
    ([(0,), (0,)], {}, "empty"),
    ([(2, 3), (2, 3)], {}),
    ([(1, 1), (1, 1)], {}, "size 1"),
    ([(2, 3, 4), (2, 3, 4)], {}),
    ([(4, 1), (4, 1)], {}),
    ([(2, 2, 2), (2, 2, 2), (2, 2, 2)], {}),
]
SORTED: list[tuple[Any, ...]] = [
    ((), {}, "0-d"),
    ((1,), {}, "size 1"),
    ((0,), {}, "empty"),
    ((2, 0, 3), {"dim": 2}, "empty in the middle"),
    ((5,), {}),
    ((2, 3), {}),
    ((2, 3), {"dim": 0}),
    ((3, 4), {"dim": -2}),
    ((2, 3, 4), {"dim": 1}),
    ((2, 1, 3), {"dim": 1}, "size 1 along it"),
]


def sort_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    plans = [(s, {**o, "descending": d}, *edge) for d in (False, True) for s, o, *edge in SORTED]
    found = calls(*plans, draw=distinct)(rng, dtype)
    for descending in (False, True):
        ties = np.array([[1.0, 0.0, 1.0, 0.0], [2.0, 2.0, 2.0, 3.0]], dtype)
        options = {"descending": descending}
        found.append(Sample((ties,), options, "the first of those that tie", smooth=False))
    return found


def topk_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    plans = [
        ((), {"k": 1}, "0-d"),
        ((1,), {"k": 1}, "size 1"),
        ((3,), {"k": 0}, "none"),
        ((3,), {"k": 3}, "all"),
        ((5,), {"k": 2}),
        ((2, 5), {"k": 2}),
        ((2, 5), {"k": 3, "dim": 1}),
        ((4, 2), {"k": 2, "dim": 0}),
        ((2, 3, 4), {"k": 2, "dim": 1}),
        ((2, 3, 4), {"k": 1, "dim": -3}),
    ]
    plans = [(s, {**o, "largest": up}, *edge) for up in (True, False) for s, o, *edge in plans]
    return calls(*plans, draw=distinct)(rng, dtype)


def cumsum_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    plans = [(s, {"dim": o.get("dim", -1)}, *edge) for s, o, *edge in SORTED]
    found = calls(*plans, repeat=2)(rng, dtype)
    for scale, edge in ((30.0, "large numbers"), (1e-2, "small numbers")):
        x = (normal(rng, (3, 4)) * scale).astype(dtype)
        found.append(Sample((x,), {"dim": 0}, edge, smooth=False))
    return found


def prod_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    found = []
    for sample in calls(*REDUCTIONS, *OVER_NOTHING, draw=away)(rng, dtype):
        options = sample.options
        if isinstance(options.get("dim"), tuple) or (options.get("keepdim") and len(options) == 1):
            continue
        found.append(sample)
    for zeros in ([0], [1, 3], [0, 1, 2, 3, 4]):
        x = away(rng, (5,))
        x[zeros] = 0
        edge = f"{len(zeros)} of 5 are zero"
        found.append(Sample((x.astype(dtype),), {}, edge))
        found.append(Sample((np.stack([x, x + 1]).astype(dtype),), {"dim": 1}, edge))
    return found


def norm_samples(rng: np.random.Generator, dtype: np.dtype) -> list[Sample]:
    found = []
    for i, sample in enumerate(reduction_samples(distinct, over_nothing=False)(rng, dtype)):
        x = sample.inputs[0] + np.asarray(0.03, dtype)  # no two of one size
        p = (2, 1, np.inf, "fro")[i % 4]
        found.append(Sample((x,), {**sample.options, "p": p}, sample.edge, sample.smooth))
    for p in (2, 1, np.inf):
        options = {"p": p, "dim": 1}
        x = np.zeros((2, 3), dtype)
        x[1] = [3.0, 0.0, -4.0]
        found.append(Sample((x,), options, "a vector of length 0", smooth=False))
        x = (distinct(rng, (3, 4)) * 300).astype(dtype)
        found.append(Sample((x,), options, "squares beyond float16", smooth=False))
    return found


REPEATS: list[tuple[Any, ...]] = [
    ((), {"sizes": (3,)}, "from 0-d"),
    ((3,), {"sizes": (2,)}),
    ((3,), {"sizes": (2, 2)}, "a new dimension"),
    ((3,), {"sizes": (0,)}, "no copy"),
    ((2, 0), {"sizes": (1, 2)}, "empty"),
    ((2, 3), {"sizes": (1, 1)}, "one copy"),
    ((2, 3), {"sizes": (2, 3)}),
    ((2, 3), {"sizes": (2, 1, 2)}),
    ((2, 1, 3), {"sizes": (1, 4, 1)}),
    ((1, 4), {"sizes": (3, 2)}),
]
INTERLEAVED: list[tuple[Any, ...]] = [
    ((), {"repeats": 2}, "0-d"),
    ((3,), {"repeats": 0}, "no copy"),
    ((2, 0), {"repeats": 2, "dim": 0}, "empty"),
    ((2, 3), {"repeats": 1, "dim": 1}, "one copy"),
    ((3,), {"repeats": 2}),
    ((2, 3), {"repeats": 2}),
    ((2, 3), {"repeats": 2, "dim": 0}),
    ((2, 3), {"repeats": 3, "dim": -1}),
    ((2, 3, 4), {"repeats": 2, "dim": 1}),
    ((2, 2, 1, 3), {"repeats": 2, "dim": -3}),
]
ROLLS: list[tuple[Any, ...]] = [
    ((1,), {"shifts": 1}, "size 1"),
    ((0,), {"shifts": 1, "dims": 0}, "empty"),
    ((3,), {"shifts": 0}, "not at all"),
    ((3,), {"shifts": 7}, "more than once round"),
    ((3,), {"shifts": -1, "dims": 0}),
    ((2, 3), {"shifts": 2}),
    ((2, 3), {"shifts": 1, "dims": 1}),
    ((2, 3), {"shifts": (1, 2), "dims": (0, 1)}),
    ((2, 3, 4), {"shifts": -2, "dims": -1}),
    ((4, 4), {"shifts": (1, 1), "dims": (1, 1)}, "twice along one"),
]
FLIPS: list[tuple[Any, ...]] = [
    ((), {"dims": ()}, "0-d"),
    ((1,), {"dims": (0,)}, "size 1"),
    ((0, 3), {"dims": (1,)}, "empty"),
    ((3,), {"dims": (0,)}),
    ((2, 3), {"dims": ()}, "none"),
    ((2, 3), {"dims": (1,)}),
    ((2, 3), {"dims": (-2,)}),
    ((2, 3), {"dims": (0, 1)}),
    ((2, 3, 4), {"dims": (0, 2)}),
    ((2, 2, 2, 2), {"dims": (1, 2)}),
]
UNBINDS: list[tuple[Any, ...]] = [
    ((3,), {}),
    ((1,), {}, "size 1"),
    ((2, 3), {}),
    ((2, 3), {"dim": 1}),
    ((2, 3), {"dim": -2}),
    ((2, 0), {}, "of nothing"),
    ((1, 1), {"dim": 1}, "size 1"),
    ((2, 3, 4), {"dim": 1}),
    ((2, 3, 4), {"dim": -1}),
    ((1, 5), {}, "a single one"),
]
MATRIX_STACKS: list[tuple[Any, ...]] = [
    ((1, 1), {}, "size 1"),
    ((0, 3), {}, "empty"),
    ((2, 3), {}),
    ((3, 2), {}),
    ((1, 4), {}, "one row"),
    ((4, 1), {}, "one column"),
    ((2, 3, 4), {}),
    ((2, 1, 3), {}),
    ((2, 2, 3, 2), {}),
    ((5, 5), {}),
]
UP_TO_MATRICES: list[tuple[Any, ...]] = [
    ((), {}, "0-d"),
    ((3,), {}, "a vector"),
    ((0,), {}, "empty"),
    ((1, 1), {}, "size 1"),
    *((shape, {}) for shape in [(2, 3), (3, 2), (4, 1), (1, 4), (3, 3), (5, 2)]),
]
DIAGONALS: list[tuple[Any, ...]] = [
    ((1, 1), {}, "size 1"),
    ((0, 3), {}, "empty"),
    ((3, 3), {}),
    ((2, 4), {"offset": 1}),
    ((4, 2), {"offset": -2}),
    ((3, 3), {"offset": 5}, "beyond the matrix"),
    ((3, 3), {"offset": -5}, "beyond the matrix"),
    ((2, 3, 3), {"dim1": 1, "dim2": 2}),
    ((2, 3, 4), {"dim1": -1, "dim2": 0, "offset": 1}),
    ((2, 3, 2, 4), {"dim1": 3, "dim2": 1, "offset": -1}),
]
TRANSPOSED: list[tuple[Any, ...]] = [
    ((), {}, "0-d"),
    ((3,), {}, "a vector"),
    ((0, 3), {}, "empty"),
    ((1, 1), {}, "size 1"),
    *((shape, {}) for shape in [(2, 3), (3, 2), (2, 3, 4), (4, 1, 2), (3, 3), (2, 2, 2, 2)]),
]
