"""Bad input, odd input, empty input: the value PyTorch gives, or an error that explains itself.

An error names what was expected and what came, is a kind of ValueError, TypeError or IndexError,
comes from a check (so also under `python -O`), and leaves everything as it was.
"""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import masks, nn, ops, optim
from tinyattn.errors import (
    CheckpointError,
    DeviceError,
    DtypeError,
    GraphError,
    MaskError,
    ShapeError,
)

nan, inf = math.nan, math.inf


def ones(*shape: int, dtype: Any = np.float32) -> ta.Tensor:
    return ta.tensor(np.ones(shape, dtype))


class World:
    """Things to call wrongly, which must be the same afterwards."""

    def __init__(self) -> None:
        ta.manual_seed(0)
        self.x = ta.tensor([1.0, 2.0, 3.0], requires_grad=True)
        self.m = ta.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        self.ints = ta.tensor([1, 2, 3])
        self.bools = ta.tensor([True, False, True])
        self.computed = self.x * 2
        self.linear = nn.Linear(3, 2)
        self.attention = nn.MultiHeadAttention(4, 4, 4, 8, 2)
        self.table = nn.Embedding(3, 2)
        attention, inner = nn.MultiHeadedAttention(2, 4), nn.PositionwiseFeedForward(4, 4)
        self.encoder = nn.Encoder(nn.EncoderLayer(4, attention, inner), 1, skip_padding=True)
        self.adam = optim.Adam(self.linear.parameters())
        self.linear(self.m).sum().backward()
        self.adam.step()
        self.freed = self.x * self.x
        self.freed.sum().backward()

    def state(self) -> list[Any]:
        tensors = [self.x, self.m, self.ints, self.bools, self.computed]
        tensors += [*self.linear.parameters(), *self.attention.parameters()]
        tensors += [*self.table.parameters(), *self.encoder.parameters()]
        found: list[Any] = [(t.dtype, t.shape, t.data.tobytes()) for t in tensors]
        found += [None if t.grad_fn or t.grad is None else t.grad.data.tobytes() for t in tensors]
        found += [t.requires_grad for t in tensors]
        found += [t.is_leaf for t in tensors]
        adam = self.adam.state_dict()
        found += [adam["groups"], adam["steps"]]
        found += [array.data.tobytes() for array in adam["arrays"].values()]
        return [*found, ta.get_rng_state(), ta.is_grad_enabled(), np.geterr()]


Bad = tuple[str, Callable[[World], Any], type[Exception], str]

SHAPES: list[Bad] = [
    ("shapes that do not broadcast", lambda w: w.x + ones(2), ShapeError, r"\[3\].*\[2\]"),
    ("a matrix product", lambda w: w.m @ w.m, ShapeError, r"\(2, 3\) must equal .*\(2, 3\)"),
    ("a product with a number", lambda w: w.m @ 2, ShapeError, "one dimension.*use \\*"),
    ("too many elements", lambda w: w.x.reshape(2, 2), ShapeError, r"\[3\].*\(2,\s?2\)"),
    ("a size below -1", lambda w: w.x.reshape(-3), ValueError, "-3"),
    ("a fractional size", lambda w: w.x.reshape(1.5, 2), TypeError, r"integer, got 1\.5"),
    ("a size that is text", lambda w: w.x.reshape("three"), TypeError, "integer, got 'three'"),
    ("no dimension 5", lambda w: w.x.sum(5), IndexError, r"dim 5 .*\(3,\).*-1 to 0"),
    ("a dimension that is text", lambda w: w.x.sum("rows"), TypeError, "integer, got 'rows'"),
    ("a dimension that is True", lambda w: w.m.sum(True), TypeError, "integer, got True"),
    ("a dimension twice", lambda w: w.m.sum((0, 0)), ValueError, r"twice in \(0, 0\)"),
    ("dimensions backwards", lambda w: w.m.flatten(1, 0), ValueError, r"1.*0"),
    ("an unknown option", lambda w: w.m.sum(colour=1), TypeError, "'colour'"),
    ("an element that is not there", lambda w: w.x[3], IndexError, r"index 3 .*size 3"),
    ("too many indices", lambda w: w.x[0, 0], IndexError, "1-dimensional, but 2"),
    ("a float as index", lambda w: w.x[1.0], IndexError, "integers, slices .*, got float"),
    ("floats as indices", lambda w: w.x[ta.tensor([0.0])], DtypeError, r"integers.*got float32"),
    ("a mask of the wrong length", lambda w: w.m[w.bools], IndexError, r"2.*3"),
    ("item of several", lambda w: w.m.item(), ShapeError, r"one element, got shape \(2, 3\)"),
    ("the truth of several", lambda w: bool(w.m), ShapeError, r"\(2, 3\).*any\(\) or all\(\)"),
    ("the length of a number", lambda w: len(ta.tensor(1.0)), TypeError, "0-d"),
    ("sizes that do not add up", lambda w: w.x.split([1, 1]), ShapeError, r"\[1, 1\].* 3 "),
    ("a negative piece", lambda w: w.x.split([4, -1]), ValueError, r"\[4, -1\]"),
    ("pieces of nothing", lambda w: w.x.split(0), ValueError, "0"),
    ("no pieces", lambda w: w.x.chunk(0), ValueError, "0"),
    ("nothing to join", lambda w: ta.cat([]), TypeError, "one or more Tensors"),
    ("joining no sequence", lambda w: ta.cat(3), TypeError, r"cat.*(int|3)"),
    ("joining numbers", lambda w: ta.stack([w.x, 1.0]), TypeError, "Tensors"),
    ("joining ranks", lambda w: ta.cat([w.x, w.m]), ShapeError, r"\[3\].*\[2, 3\]"),
    (
        "stacking shapes",
        lambda w: ta.stack([w.x, ones(2)]),
        ShapeError,
        r"stack takes tensors of one shape, got \[\(3,\), \(2,\)\]",
    ),
    ("bits of floats", lambda w: ~w.x, DtypeError, r"booleans and integers, got .float32\[3\]"),
    ("floats and a truth", lambda w: w.x & True, DtypeError, r"integers, got .float32\[3\], True"),
    ("bits of both", lambda w: w.ints | w.x, DtypeError, r"got .int64\[3\], float32\[3\]"),
    ("bits of a number", lambda w: 1.5 ^ w.ints, DtypeError, r"integers, got .(1\.5, )?int64\[3\]"),
    ("an index in a Tensor", lambda w: w.x[ta.tensor(1.0)], IndexError, "slices .*, got float"),
    ("an index that is a text", lambda w: w.m[0, "a"], IndexError, "integers, slices .*, got str"),
    ("an index that is a set", lambda w: w.m.__setitem__({1}, 2.0), IndexError, "slices .*got set"),
    (
        "a mask of a number",
        lambda w: w.x.sum()[w.x.sum() > 0],
        DtypeError,
        "masks of one dimension or more, got bool",
    ),
    (
        "a write by a mask of a number",
        lambda w: ta.ones(()).__setitem__(ta.ones(()) > 0, 2.0),
        DtypeError,
        "masks of one dimension or more, got bool",
    ),
    ("a triangle of a vector", lambda w: ta.triu(w.x), ShapeError, r"\(3,\)"),
    ("a fractional diagonal", lambda w: ta.tril(w.m, 0.5), TypeError, r"0\.5"),
    ("the maximum of nothing", lambda w: ones(0).max(), ShapeError, r"max .*\[0\]"),
    ("the place in nothing", lambda w: ones(2, 0).argmax(1), ShapeError, r"argmax .*\[2, 0\]"),
    (
        "gathering past the end",
        lambda w: w.x.gather(0, w.ints),
        IndexError,
        "index 3 .*3 elements",
    ),
    ("a linear layer", lambda w: w.linear(w.m.T), ShapeError, r"\(2, 3\).* 3, got .*\(3, 2\)"),
    ("a bias", lambda w: F.linear(w.x, w.m, ones(3)), ShapeError, r"\(2,\), got \(3,\)"),
    ("a norm", lambda w: F.layer_norm(w.m, 2), ShapeError, r"\(2,\).*got shape \(2, 3\)"),
    ("a norm over a fraction", lambda w: F.layer_norm(w.m, 3.0), TypeError, r"3\.0|float"),
    ("a loss", lambda w: F.mse_loss(w.x, ones(2)), ShapeError, r"\(3,\).*\(2,\)"),
    (
        "targets of another length",
        lambda w: F.cross_entropy(w.m, ta.tensor([0])),
        ShapeError,
        r"\(2, 3\).*dimension 1, so the target has shape \(2,\), got \(1,\)$",
    ),
    (
        "classes that come last",
        lambda w: F.nll_loss(ones(2, 5, 3), ta.zeros(2, 5, dtype=ta.int64)),
        ShapeError,
        r"nll_loss.*\(2, 3\), got \(2, 5\); .* logits.transpose\(1, -1\)",
    ),
    (
        "a number as logits",
        lambda w: F.cross_entropy(ta.tensor(1.0), ta.tensor(0)),
        ShapeError,
        r"cross_entropy takes logits with a dimension of classes, got shape \(\)",
    ),
    ("queries without a batch", lambda w: w.attention(*[ones(3, 4)] * 3), ShapeError, r"\(3, 4\)"),
    (
        "widths of queries and keys",
        lambda w: nn.DotProductAttention()(ones(2, 3, 4), ones(2, 3, 5), ones(2, 3, 4)),
        ShapeError,
        r"agree in their width d, got \(2, 3, 4\) and \(2, 3, 5\)",
    ),
    (
        "keys without values",
        lambda w: w.attention(ones(2, 3, 4), ones(2, 3, 4), ones(2, 2, 4)),
        ShapeError,
        r"K.*\(2, 3, 4\), \(2, 3, 4\), \(2, 2, 4\)",
    ),
    ("a negative size", lambda w: ta.zeros(-1), ShapeError, r">= 0, got \(-1,\)"),
    ("a negative random size", lambda w: ta.rand(-1), ValueError, "-1"),
    ("a negative identity", lambda w: ta.eye(-1), ValueError, "-1"),
    ("a fractional identity", lambda w: ta.eye(2.5), TypeError, r"2\.5"),
    ("a negative count", lambda w: ta.linspace(0, 1, -1), ValueError, "-1"),
    ("a step of 0", lambda w: ta.arange(0, 5, 0), ValueError, r"step.*0"),
    ("an empty range", lambda w: ta.randint(5, 2, (3,)), ValueError, r"5.*2"),
    ("ragged lists", lambda w: ta.tensor([[1.0], [1.0, 2.0]]), ShapeError, "rectangular"),
]

DTYPES: list[Bad] = [
    ("text", lambda w: ta.tensor("text"), DtypeError, r"numbers|floats.*got <U4"),
    ("None", lambda w: ta.tensor([1.0, None]), DtypeError, r"floats.*got object"),
    ("complex numbers", lambda w: ta.tensor(1j), DtypeError, r"floats.*got complex128"),
    ("a huge integer", lambda w: ta.tensor(2**70), DtypeError, "64 bits, got object"),
    ("long doubles", lambda w: ta.tensor(np.longdouble(1)), DtypeError, "64 bits, got float"),
    ("dates", lambda w: ta.tensor(np.datetime64("2020-01-01")), DtypeError, "got datetime64"),
    ("a masked array", lambda w: ta.tensor(np.ma.array([1.0])), DtypeError, "lose its mask"),
    ("an unknown dtype", lambda w: w.x.to("float33"), DtypeError, "not a dtype: 'float33'"),
    ("complex as dtype", lambda w: w.x.to(complex), DtypeError, "got complex128"),
    ("adding text", lambda w: w.x + "text", DtypeError, r"add .*float32\[3\], 'text'"),
    ("comparing with text", lambda w: w.x < "text", DtypeError, r"lt .*float32\[3\], 'text'"),
    ("choosing text", lambda w: ta.where(w.bools, "text", w.x), DtypeError, r"where .*'text'"),
    ("filling with text", lambda w: w.x.masked_fill(w.bools, "a"), DtypeError, "'a'"),
    ("clamping to text", lambda w: w.x.clamp("low"), TypeError, "'low'"),
    ("the maximum with text", lambda w: ta.maximum(w.x, "a"), DtypeError, r"maximum .*'a'"),
    ("minus a truth value", lambda w: -w.bools, DtypeError, r"neg .*bool\[3\]"),
    ("truth minus truth", lambda w: w.bools - w.bools, DtypeError, r"sub .*bool\[3\], bool\[3\]"),
    ("floats and floats", lambda w: w.m & w.m, DtypeError, r"logical_and .*float32\[2, 3\]"),
    ("two dtypes in a product", lambda w: w.m @ w.x.double(), DtypeError, "float32 and float64"),
    ("two dtypes in a layer", lambda w: w.linear(w.m.double()), DtypeError, r"float64.*float32"),
    ("integers in a layer", lambda w: w.linear(w.ints), DtypeError, "floating dtype, got int64"),
    ("a softmax of integers", lambda w: F.softmax(w.ints), DtypeError, "floating dtype, got int"),
    ("the mean of integers", lambda w: w.ints.mean(), DtypeError, "floating dtype, got int64"),
    ("an array for a Tensor", lambda w: w.linear(w.m.numpy()), TypeError, "got numpy.ndarray"),
    ("a list for a bias", lambda w: F.linear(w.x, w.m, [1.0, 2.0]), TypeError, r"bias .*list"),
    ("a list for a table", lambda w: F.embedding([0], [[1.0]]), TypeError, r"weight .*list"),
    (
        "a fraction as ignore_index",
        lambda w: F.cross_entropy(w.m, [0, 1], ignore_index=1.5),
        DtypeError,
        "ignore_index .* got 1.5",
    ),
    (
        "an ignore_index beyond 64 bits",
        lambda w: F.cross_entropy(w.m, [0, 1], ignore_index=2**70),
        DtypeError,
        "64 bits",
    ),
    ("a fraction as a target", lambda w: F.cross_entropy(w.m, [0.5, 1.0]), DtypeError, "integers"),
    ("an integer gradient", lambda w: w.ints.requires_grad_(), DtypeError, r"floating .*int64"),
    ("integer parameters", lambda w: nn.Parameter([1, 2]), DtypeError, "floating dtype, got int64"),
    ("an integer module", lambda w: w.linear.to(ta.int64), DtypeError, r"floating .*int64"),
    ("negative powers of integers", lambda w: w.ints**-1, ValueError, r"pow .*int64\[3\], -1"),
    ("random integers as floats", lambda w: ta.rand(2, dtype=ta.int64), DtypeError, "int64"),
    (
        "fractions into integers",
        lambda w: w.ints.masked_fill(w.bools, 1.5),
        DtypeError,
        r"(1\.5|float).*int64|int64.*(1\.5|float)",
    ),
]

DEVICES: list[Bad] = [
    ("an unknown device", lambda w: ta.zeros(2, device="tpu"), DeviceError, "\"cuda\", got 'tpu'"),
    ("to an unknown device", lambda w: w.x.to("tpu"), DtypeError, "'tpu'"),
    ("to another GPU", lambda w: w.x.to("cuda:1"), DeviceError, "got 'cuda:1'; CUDA_VISIBLE"),
    ("a module to another GPU", lambda w: w.linear.to("cuda:1"), DeviceError, "got 'cuda:1'"),
    ("an empty module to a GPU", lambda w: nn.ReLU().to("cuda:1"), DeviceError, "got 'cuda:1'"),
    ("a module to an unknown device", lambda w: w.linear.to("tpu"), DtypeError, "'tpu'"),
]

HEADS: list[Bad] = [
    (
        "heads that do not divide",
        lambda w: nn.MultiHeadAttention(4, 4, 4, 6, 4),
        ShapeError,
        "width 6 .* 4 heads",
    ),
    (
        "heads that do not divide, annotated",
        lambda w: nn.MultiHeadedAttention(3, 8),
        ShapeError,
        "width 8 .* 3 heads",
    ),
    ("no heads", lambda w: nn.MultiHeadAttention(4, 4, 4, 8, 0), ShapeError, ">= 1, got 0"),
    (
        "heads by hand",
        lambda w: F.transpose_qkv(ones(1, 2, 3), 2),
        ShapeError,
        "width 3 .* 2 heads",
    ),
    ("back to no heads", lambda w: F.transpose_output(ones(2, 2, 1), 0), ShapeError, "0"),
]

LENGTHS: list[Bad] = [
    (
        "lengths beyond the keys",
        lambda w: F.masked_softmax(w.m[None], valid_lens=[4]),
        MaskError,
        "between 0 and .*3, got 4 at index 0",
    ),
    (
        "negative lengths",
        lambda w: F.masked_softmax(w.m[None], valid_lens=[-1]),
        MaskError,
        "between 0 and .*3, got -1 at index 0",
    ),
    (
        "fractional lengths",
        lambda w: F.masked_softmax(w.m[None], valid_lens=[1.5]),
        MaskError,
        r"whole numbers, got 1\.5 at index 0",
    ),
    (
        "lengths that are NaN",
        lambda w: F.masked_softmax(w.m[None], valid_lens=[nan]),
        MaskError,
        "whole numbers, got nan",
    ),
    (
        "lengths that are text",
        lambda w: F.masked_softmax(w.m[None], valid_lens=["two"]),
        DtypeError,
        "integers, got <U3",
    ),
    (
        "one length for all samples",
        lambda w: F.masked_softmax(w.m[None], valid_lens=2),
        ShapeError,
        r"\(B,\) or \(B, Q\), got \(\)",
    ),
    (
        "too many lengths",
        lambda w: F.masked_softmax(w.m[None], valid_lens=[1, 2, 3]),
        ShapeError,
        r"\(1,\) or .*\(1, 2\), got \(3,\)",
    ),
    (
        "lengths in a module",
        lambda w: w.attention(*[ones(2, 3, 4)] * 3, valid_lens=[1, 4]),
        MaskError,
        "between 0 and .*3, got 4 at index 1",
    ),
    (
        "lengths for too few",
        lambda w: F.sequence_mask(w.m, [1]),
        ShapeError,
        r"2 samples need valid_lens \(2,\), got \(1,\)",
    ),
    (
        "lengths of queries for a sequence",
        lambda w: F.sequence_mask(w.m, [[1, 2], [1, 2]]),
        ShapeError,
        r"2 samples need valid_lens \(2,\), got \(2, 2\)",
    ),
    *(
        (
            f"a mask of {kind} for lengths",
            lambda w, kind=kind: w.attention(
                *[ones(2, 3, 4)] * 3, np.array([[1, 1, 0], [1, 0, 0]], kind)
            ),
            error,
            match,
        )
        for kind, error, match in (
            ("int64", MaskError, r"nothing but 0 and 1.* mask \(B, K\).*mask=\.\.\."),
            ("float32", MaskError, r"nothing but 0 and 1.* mask \(B, K\).*mask=\.\.\."),
            ("bool", DtypeError, r"integers, got bool.*mask=\.\.\."),
        )
    ),
    (
        "a mask of two keys for lengths",
        lambda w: w.attention(*[ones(2, 2, 4)] * 3, [[1, 1], [1, 0]]),
        MaskError,
        r"nothing but 0 and 1.* mask \(B, K\)",
    ),
    (
        "a mask of other queries for lengths",
        lambda w: w.attention(ones(2, 2, 4), *[ones(2, 3, 4)] * 2, [[1, 1, 0], [1, 0, 0]]),
        ShapeError,
        r"\(B, Q\) = \(2, 2\), got \(2, 3\).*mask=\.\.\.",
    ),
    (
        "a causal mask for lengths",
        lambda w: w.attention(*[ones(2, 3, 4)] * 3, np.tri(3, dtype=int)[None]),
        ShapeError,
        r"got \(1, 3, 3\).*mask=\.\.\.",
    ),
    ("ragged lengths", lambda w: masks.from_valid_lens([[1, 2], [1]], 3), ShapeError,
     "valid_lens: not a rectangular"),
    *(
        (
            f"{keys!r} keys",
            lambda w, keys=keys: masks.from_valid_lens([1], keys),
            ShapeError,
            f"num_keys must be an integer >= 0, got {keys!r}",
        )
        for keys in (2.5, "3", None, -1, True)
    ),
    (
        "lengths for a mask",
        lambda w: masks.from_valid_lens([1, 5], 3),
        MaskError,
        "between 0 and .*3, got 5 at index 1",
    ),
    ("a negative triangle", lambda w: masks.causal(-1), ShapeError, ">= 0, got -1"),
]  # fmt: skip

MASKS: list[Bad] = [
    (
        "a float mask",
        lambda w: F.masked_softmax(w.m[None], mask=w.m[None]),
        DtypeError,
        "booleans .*got float32",
    ),
    (
        "a mask of 0, 1 and 2",
        lambda w: F.masked_softmax(w.m[None], mask=[[0, 1, 2]]),
        MaskError,
        r"only 0 .*1",
    ),
    (
        "queries by keys",
        lambda w: F.masked_softmax(w.m[None], mask=np.ones((2, 3), bool)),
        MaskError,
        r"\(B\|1, K\|1\), with B=1.*got shape \(2, 3\).*mask\[None\]",
    ),
    (
        "a mask for other keys",
        lambda w: F.masked_softmax(w.m[None], mask=np.ones((1, 1, 4), bool)),
        MaskError,
        r"K=3; got shape \(1, 1, 4\)",
    ),
    (
        "a mask of five dimensions",
        lambda w: F.masked_softmax(w.m[None], mask=np.ones((1, 1, 1, 1, 3), bool)),
        MaskError,
        r"2, 3 or 4 dimensions, got shape \(1, 1, 1, 1, 3\)",
    ),
    ("True for a mask", lambda w: F.masked_softmax(w.m[None], mask=True), MaskError, r"shape \(\)"),
    (
        "a float mask in a module",
        lambda w: w.attention(*[ones(2, 3, 4)] * 3, mask=ones(2, 3)),
        DtypeError,
        "booleans .*got float32",
    ),
    ("padding of floats", lambda w: masks.padding([[0.5]]), DtypeError, r"integer .*got float64"),
    ("padding of a vector", lambda w: masks.padding([1, 2]), ShapeError, r"\(B, K\), got .*\(2,\)"),
    *(
        (
            f"padding with {pad_id!r}",
            lambda w, pad_id=pad_id: masks.padding([[1, 0]], pad_id),
            DtypeError,
            "pad_id must be an integer.*got " + re.escape(repr(pad_id)),
        )
        for pad_id in (None, 0.5, [0], "0", False)
    ),
    ("ragged ids", lambda w: masks.padding([[1, 2], [1]]), ShapeError, "ids: not a rectangular"),
    (
        "a ragged mask",
        lambda w: F.masked_softmax(w.m[None], mask=[[True, False], [True]]),
        ShapeError,
        "mask: not a rectangular",
    ),
    *(
        (
            f"lengths {lens} for a mask",
            lambda w, lens=lens: F.scaled_dot_product_attention(*[ones(2, 3, 4)] * 3, lens),
            MaskError,
            r"got .*valid_lens=\.\.\.",
        )
        for lens in ([1, 2], [[1, 2, 3], [3, 3, 3]])
    ),
    ("a mask for masked_fill", lambda w: w.x.masked_fill(w.x, 0.0), DtypeError, "got float32"),
    (
        "a long mask for masked_fill",
        lambda w: w.x.masked_fill(ta.tensor([True, False]), 0.0),
        ShapeError,
        r"\(2,\).*\(3,\)",
    ),
]


def packed(w: World, valid_lens: Any, **options: Any) -> Any:
    """Attention of three packed rows."""
    return w.attention(*[ones(3, 4)] * 3, valid_lens=valid_lens, **options)


PACKED: list[Bad] = [
    *(
        (f"{name}: {text}", lambda w, f=function, lens=lens: f(w, lens), exception, match)
        for name, function, rows in (
            ("attention", packed, 3),
            ("padding", lambda w, lens: F.pad_packed_sequence(ones(3, 4), lens), 3),
        )
        for text, lens, exception, match in (
            ("too few", [1, 1], ShapeError, rf"{rows} rows .*that sum.*\(2,\) with sum 2"),
            ("too many", [1, 1, 1, 1], ShapeError, rf"{rows} rows .*\(4,\) with sum 4"),
            ("one too long", [4], MaskError, r"between 0 and .*3, got 4 at index 0"),
            ("one below 0", [4, -1], MaskError, r"between 0 and .*3, got -1 at index 1|got 4"),
            ("below 0, with the right sum", [3, 1, -1], MaskError, "got -1 at index 2"),
            ("two dimensions", [[1, 2], [0, 0]], ShapeError, r"\(B,\) .*got shape \(2, 2\)"),
            ("fractions", [1.5, 1.5], MaskError, "whole numbers, got 1.5"),
            ("NaN", [nan, 3], MaskError, "whole numbers, got nan"),
            ("truth values", [True, True, True], DtypeError, "integers, got bool"),
            ("text", ["3"], DtypeError, "integers, got <U1|must be integers"),
            ("a number", 3, ShapeError, r"\(B,\) or \(B, Q\), got \(\)"),
            ("ragged", [[1], [1, 1]], ShapeError, "valid_lens: not a rectangular"),
        )
    ),
    *(
        (f"packing: {text}", lambda w, lens=lens: F.pack_padded_sequence(w.m, lens), error, match)
        for text, lens, error, match in (
            ("too few", [1], ShapeError, r"2 samples need valid_lens \(2,\), got \(1,\)"),
            ("too many", [1, 1, 1], ShapeError, r"2 samples .*\(2,\), got \(3,\)"),
            ("too long", [1, 4], MaskError, "between 0 and .*3, got 4 at index 1"),
            ("below 0", [-1, 1], MaskError, "got -1 at index 0"),
            ("a length per position", [[1, 2, 3]] * 2, ShapeError, r"\(2,\), got \(2, 3\)"),
            ("a fraction", [0.5, 1], MaskError, "whole numbers, got 0.5 at index 0"),
            ("no lengths", None, DtypeError, "integers, got object"),
        )
    ),
    (
        "a vector to be packed",
        lambda w: F.pack_padded_sequence(w.x, [3]),
        ShapeError,
        r"\(B, L, \.\.\.\), got shape \(3,\)",
    ),
    (
        "an array to be packed",
        lambda w: F.pack_padded_sequence(np.ones((2, 3)), [1, 1]),
        TypeError,
        "x must be a Tensor, got numpy.ndarray",
    ),
    (
        "an array to be padded",
        lambda w: F.pad_packed_sequence(np.ones(2), [1, 1]),
        TypeError,
        "x must be a Tensor, got numpy.ndarray",
    ),
    (
        "padding to less than the longest",
        lambda w: F.pad_packed_sequence(w.x, [1, 2], 1),
        ShapeError,
        "length 1 is less than the longest sequence, 2",
    ),
    *(
        (
            f"padding to {length!r}",
            lambda w, length=length: F.pad_packed_sequence(w.x, [1, 2], length),
            ShapeError,
            re.escape(f"length must be an integer >= 0, got {length!r}"),
        )
        for length in (2.0, "2", True, (2,), -1)
    ),
    (
        "a mask for packed samples",
        lambda w: packed(w, [1, 2], mask=np.ones((2, 2), bool)),
        MaskError,
        "packed samples hold no padding.*valid_lens and no mask",
    ),
    (
        "packed tensors of other rows",
        lambda w: w.attention(ones(3, 4), ones(2, 4), ones(2, 4), valid_lens=[1, 2]),
        ShapeError,
        r"\(N, D\) with one N, got \(3, 4\), \(2, 4\), \(2, 4\)",
    ),
    (
        "packed queries, padded keys",
        lambda w: w.attention(ones(3, 4), ones(1, 3, 4), ones(1, 3, 4), valid_lens=[3]),
        ShapeError,
        r"\(N, D\) with one N, got \(3, 4\), \(1, 3, 4\), \(1, 3, 4\)",
    ),
    (
        "padded queries, packed keys",
        lambda w: w.attention(ones(1, 3, 4), ones(3, 4), ones(3, 4), valid_lens=[3]),
        ShapeError,
        r"keys are \(B, N, D\), got shape \(3, 4\)",
    ),
    (
        "packed arrays of NumPy",
        lambda w: w.attention(ones(3, 4), np.ones((3, 4)), np.ones((3, 4)), valid_lens=[3]),
        TypeError,
        "keys must be a Tensor, got numpy.ndarray",
    ),
    (
        "packed queries of NumPy",
        lambda w: w.attention(*[np.ones((3, 4))] * 3, valid_lens=[3]),
        TypeError,
        "queries must be a Tensor, got numpy.ndarray",
    ),
    (
        "packed integers",
        lambda w: w.attention(*[ones(3, 4, dtype=np.int64)] * 3, valid_lens=[3]),
        DtypeError,
        "queries .*floating dtype, got int64",
    ),
    (
        "packed tensors of two dtypes",
        lambda w: w.attention(ones(3, 4), ones(3, 4), ones(3, 4, dtype=np.float64), valid_lens=[3]),
        DtypeError,
        "queries is float32, values is float64",
    ),
    (
        "packed rows of another width",
        lambda w: w.attention(*[ones(3, 5)] * 3, valid_lens=[3]),
        ShapeError,
        r"last dimension is 4, got shape \(3, 5\)",
    ),
    (
        "two dimensions without lengths",
        lambda w: w.attention(*[ones(3, 4)] * 3),
        ShapeError,
        r"queries are \(B, N, D\), got shape \(3, 4\); packed, \(N, D\), they take valid_lens",
    ),
    (
        "packed rows in another attention",
        lambda w: nn.DotProductAttention()(*[ones(3, 4)] * 3, valid_lens=[3]),
        ShapeError,
        r"queries are \(B, N, D\), got shape \(3, 4\); packed .* are for MultiHeadAttention",
    ),
    (
        "packed rows in an encoder, without lengths",
        lambda w: w.encoder(ones(3, 4)),
        ShapeError,
        r"\(B, N, D\), got shape \(3, 4\); packed, \(N, D\), they take valid_lens",
    ),
    (
        "packed rows in an encoder, of another sum",
        lambda w: w.encoder(ones(3, 4), valid_lens=[1, 1]),
        ShapeError,
        r"3 rows .*\(2,\) with sum 2",
    ),
    (
        "another width where padding is skipped",
        lambda w: w.encoder(ones(2, 3, 5), valid_lens=[1, 2]),
        ShapeError,
        r"takes inputs that end with \(4,\), got shape \(3, 5\)",
    ),
    (
        "a mask and lengths where padding is skipped",
        lambda w: w.encoder(ones(2, 3, 4), mask=np.ones((2, 3), bool), valid_lens=[1, 2]),
        MaskError,
        "skip_padding takes valid_lens or a mask, not both",
    ),
    (
        "a length per query where padding is skipped",
        lambda w: w.encoder(ones(2, 3, 4), valid_lens=[[1, 2, 3], [3, 3, 3]]),
        ShapeError,
        r"2 samples need valid_lens \(2,\), got \(2, 3\)",
    ),
    (
        "a length too long where padding is skipped",
        lambda w: w.encoder(ones(2, 3, 4), valid_lens=[1, 4]),
        MaskError,
        "between 0 and .*3, got 4 at index 1",
    ),
    (
        "an array where padding is skipped",
        lambda w: w.encoder(np.ones((2, 3, 4), np.float32), valid_lens=[1, 3]),
        TypeError,
        "x must be a Tensor, got numpy.ndarray",
    ),
    (
        "a list where padding is skipped",
        lambda w: w.encoder([[[1.0] * 4]], valid_lens=[1]),
        TypeError,
        "x must be a Tensor, got list",
    ),
    (
        "a list for an encoder layer",
        lambda w: w.encoder.layers[0]([[[1.0] * 4]]),
        TypeError,
        "x must be a Tensor, got list",
    ),
    (
        "integers for an encoder",
        lambda w: w.encoder(ones(2, 3, 4, dtype=np.int64), valid_lens=[1, 3]),
        DtypeError,
        "x .*floating dtype, got int64",
    ),
]

GRAPHS: list[Bad] = [
    ("backward of several", lambda w: w.computed.backward(), GraphError, r"\(3,\).*gradient="),
    ("backward of a constant", lambda w: w.m.sum().backward(), GraphError, "not recorded"),
    ("a second backward", lambda w: w.freed.sum().backward(), GraphError, r"freed.*retain_graph"),
    (
        "a gradient of the wrong shape",
        lambda w: w.computed.backward(ones(2)),
        ShapeError,
        r"\(3,\), got \(2,\)",
    ),
    (
        "a gradient that is a list",
        lambda w: w.computed.backward([1.0, 1.0, 1.0]),
        TypeError,
        "Tensor, got list",
    ),
    ("grad of a number", lambda w: ta.grad(3.0, w.x), TypeError, r"Tensor.*float|float.*Tensor"),
    ("grad by a number", lambda w: ta.grad(w.computed.sum(), 3.0), TypeError, "float"),
    ("grad by a constant", lambda w: ta.grad(w.computed.sum(), w.m), GraphError, "input 0"),
    (
        "grad by a stranger",
        lambda w: ta.grad(w.computed.sum(), w.linear.weight),
        GraphError,
        "input 0.*allow_unused",
    ),
    ("changing a leaf", lambda w: w.x.__iadd__(1.0), GraphError, r"leaf.*no_grad"),
    ("writing into a leaf", lambda w: w.x.__setitem__(0, 1.0), GraphError, r"leaf.*no_grad"),
    ("a grad of another shape", lambda w: setattr(w.x, "grad", w.m), ShapeError, r"\(3,\), got"),
    ("a grad that is no tensor", lambda w: setattr(w.x, "grad", 1.0), TypeError, "got float"),
    (
        "a grad of another dtype",
        lambda w: setattr(w.x, "grad", w.x.detach().double()),
        DtypeError,
        "float32, got float64",
    ),
    (
        "data of a computed tensor",
        lambda w: setattr(w.computed, "data", np.ones(3)),
        GraphError,
        "computed",
    ),
    ("data of integers", lambda w: setattr(w.x, "data", np.arange(3)), DtypeError, "got int64"),
    (
        "switching off a computed tensor",
        lambda w: setattr(w.computed, "requires_grad", False),
        GraphError,
        r"leaf.*detach",
    ),
]

IDS: list[Bad] = [
    ("ragged ids", lambda w: w.table([[0, 1], [2]]), ShapeError, "rectangular"),
    ("a ragged index", lambda w: w.m[[[0, 1], [1]]], ShapeError, "an index: not a rectangular"),
    ("an id too large", lambda w: w.table(ta.tensor([0, 3])), IndexError, "token id 3 .*3 rows"),
    ("a negative id", lambda w: w.table(ta.tensor([-1])), IndexError, "token id -1 .*3 rows"),
    ("ids that are floats", lambda w: w.table(ones(2)), DtypeError, "integer ids, got float32"),
    ("ids that are truths", lambda w: w.table(w.bools), DtypeError, "integer ids, got bool"),
    (
        "a padding row",
        lambda w: nn.Embedding(3, 2, padding_idx=3),
        IndexError,
        r"padding_idx 3 .*3",
    ),
    (
        "an id that is negative in 64 bits",
        lambda w: F.embedding(np.array([2**64 - 1], np.uint64), w.m),
        IndexError,
        "token id 18446744073709551615",
    ),
    ("a class too large", lambda w: F.cross_entropy(w.m, [0, 3]), IndexError, r"class 3 .*3"),
    ("a negative class", lambda w: F.cross_entropy(w.m, [0, -1]), IndexError, r"class -1 .*3"),
]

NUMBERS: list[Bad] = [
    ("a probability above 1", lambda w: F.dropout(w.x, 1.5), ValueError, "0 and 1, got 1.5"),
    ("a probability of NaN", lambda w: F.dropout(w.x, nan), ValueError, "0 and 1, got nan"),
    ("a probability of a module", lambda w: nn.Dropout(-0.1), ValueError, "0 and 1, got -0.1"),
    (
        "a probability of attention",
        lambda w: F.scaled_dot_product_attention(*[ones(1, 2, 2)] * 3, dropout_p=2),
        ValueError,
        "0 and 1, got 2",
    ),
    *(
        (
            f"a scale of {scale!r}",
            lambda w, scale=scale: F.scaled_dot_product_attention(
                *[ones(1, 2, 2)] * 3, scale=scale
            ),
            ValueError,
            "scale must be a finite number, got " + re.escape(repr(scale)),
        )
        for scale in (nan, -inf, "1", ta.tensor(1.0))
    ),
    ("a reduction", lambda w: F.mse_loss(w.x, w.x, "all"), ValueError, "\"none\", got 'all'"),
    ("a kind of GELU", lambda w: F.gelu(w.x, "fast"), ValueError, "\"tanh\", got 'fast'"),
    ("clamp to nothing", lambda w: w.x.clamp(), ValueError, "min, max or both"),
    ("a seed", lambda w: ta.manual_seed(-1), ValueError, ">= 0, got -1"),
    ("a fractional seed", lambda w: ta.manual_seed(1.5), ValueError, r">= 0, got 1\.5"),
    ("positions beyond the table", lambda w: nn.PositionalEncoding(4, max_len=3)(ones(1, 5, 4)),
     ShapeError, r"5 positions.*max_len=3"),
    ("positions of another width", lambda w: nn.PositionalEncoding(4)(ones(1, 5, 6)),
     ShapeError, r"width 4 .*\(1, 5, 6\)"),
    ("a layer of negative width", lambda w: nn.Linear(3, -1), ShapeError, ">= 0, got -1"),
    ("a layer of fractional width", lambda w: nn.Linear(2.5, 1), ValueError, r"got 2\.5"),
    ("no parameters", lambda w: optim.SGD([]), ValueError, "parameters, got an empty"),
    ("a method", lambda w: optim.SGD(w.linear.parameters), TypeError, "got the method parameters"),
    ("a negative rate", lambda w: optim.SGD([w.x], lr=-1.0), ValueError, r">= 0, got -1\.0"),
    (
        "a state that does not fit",
        lambda w: w.linear.load_state_dict({}),
        CheckpointError,
        "missing weight, bias",
    ),
    (
        "a state of another shape",
        lambda w: w.linear.load_state_dict({"weight": ones(2, 2), "bias": ones(2)}),
        ShapeError,
        r"weight has shape \(2, 3\), got \(2, 2\)",
    ),
    (
        "a state whose last entry does not fit",
        lambda w: w.linear.load_state_dict({"weight": ones(2, 3), "bias": ones(3)}),
        ShapeError,
        r"bias has shape \(2,\), got \(3,\)",
    ),
]  # fmt: skip

ALL = {
    f"{kind}: {name}": (call, exception, match)
    for kind, cases in {
        "shape": SHAPES, "dtype": DTYPES, "device": DEVICES, "heads": HEADS, "lengths": LENGTHS,
        "mask": MASKS, "packed": PACKED, "graph": GRAPHS, "ids": IDS, "number": NUMBERS,
    }.items()
    for name, call, exception, match in cases
}  # fmt: skip


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.mark.parametrize("name", ALL)
def test_bad_input_is_refused_and_changes_nothing(name: str, world: World) -> None:
    call, exception, match = ALL[name]
    before = world.state()
    with pytest.raises(exception, match=match) as caught:
        call(world)
    assert isinstance(caught.value, (ValueError, TypeError, LookupError))
    assert world.state() == before


@pytest.mark.extended
def test_bad_input_is_refused_without_assertions() -> None:
    """The same under `python -O`, which removes assertions."""
    code = """
import re
from test_bad_input import ALL, World
world = World()
for name, (call, exception, match) in ALL.items():
    before = world.state()
    try:
        call(world)
    except Exception as error:
        if not isinstance(error, exception) or not re.search(match, str(error)):
            print(name, repr(error))
    else:
        print(name, "was not refused")
    if world.state() != before:
        print(name, "changed something")
"""
    run = subprocess.run(
        [sys.executable, "-O", "-c", code],
        cwd=Path(__file__).parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout == ""


# Odd input that has a value: PyTorch's


def slopes(L: Any, function: Callable[[Any], Any], values: Any) -> Any:
    """The gradient of a function at `values`, in either library."""
    x = L.tensor(values, dtype=L.float64, requires_grad=True)
    out = function(x)
    out.backward(L.ones_like(out.detach()))
    return x.grad


# An expression that both libraries understand, and what it gives. L is the library, F its
# functional part, d the gradient of a function at some values.
ODD: list[tuple[str, str, Any]] = [
    # Empty
    ("L.tensor([]).sum()", "float32", 0.0),
    ("L.tensor([]).mean()", "float32", nan),
    ("L.zeros(0, 3).sum(0)", "float32", [0.0, 0.0, 0.0]),
    ("L.zeros(0, 3).mean(0)", "float32", [nan, nan, nan]),
    ("L.zeros(2, 0).sum(1)", "float32", [0.0, 0.0]),
    ("L.zeros(2, 0) @ L.zeros(0, 3)", "float32", np.zeros((2, 3))),
    ("L.zeros(0, 3) @ L.zeros(3, 2)", "float32", np.zeros((0, 2))),
    ("L.zeros(0) @ L.zeros(0)", "float32", 0.0),
    ("L.zeros(0, 3).softmax(1)", "float32", np.zeros((0, 3))),
    ("L.zeros(2, 0).softmax(1)", "float32", np.zeros((2, 0))),
    ("F.linear(L.zeros(0, 3), L.zeros(2, 3))", "float32", np.zeros((0, 2))),
    ("F.layer_norm(L.zeros(0, 3), (3,))", "float32", np.zeros((0, 3))),
    ("F.embedding(L.zeros(0, 2, dtype=L.int64), L.zeros(3, 4))", "float32", np.zeros((0, 2, 4))),
    ("L.cat([L.zeros(0, 2), L.ones(1, 2)])", "float32", [[1.0, 1.0]]),
    ("L.zeros(0, 2).reshape(2, 0)", "float32", np.zeros((2, 0))),
    ("L.zeros(0, 3).flatten()", "float32", np.zeros(0)),
    ("L.tensor([1.0, 2.0])[L.tensor([False, False])]", "float32", np.zeros(0)),
    ("L.zeros(0, dtype=L.bool).any()", "bool", False),
    ("L.zeros(0, dtype=L.bool).all()", "bool", True),
    ("F.mse_loss(L.zeros(0), L.zeros(0))", "float32", nan),
    ("d(lambda x: x.sum(), [])", "float64", np.zeros(0)),
    ("d(lambda x: x * 2, [])", "float64", np.zeros(0)),
    # NaN and infinity
    ("L.tensor([1.0, 0.0, -1.0]).log()", "float32", [0.0, -inf, nan]),
    ("L.tensor([4.0, 0.0, -1.0]).sqrt()", "float32", [2.0, 0.0, nan]),
    ("L.tensor([1000.0, -1000.0, nan]).exp()", "float32", [inf, 0.0, nan]),
    ("L.tensor([1.0, -1.0, 0.0]) / 0", "float32", [inf, -inf, nan]),
    ("1 / L.tensor([0.0, -0.0, inf])", "float32", [inf, -inf, 0.0]),
    ("L.tensor([inf, -inf, nan]).tanh()", "float32", [1.0, -1.0, nan]),
    ("L.tensor([inf, -inf, nan]).sigmoid()", "float32", [1.0, 0.0, nan]),
    ("L.tensor([inf, -inf, nan]).relu()", "float32", [inf, 0.0, nan]),
    ("L.tensor([inf, -inf, nan]).abs()", "float32", [inf, inf, nan]),
    ("L.tensor([inf, -inf, nan]).erf()", "float32", [1.0, -1.0, nan]),
    ("F.gelu(L.tensor([nan, 0.0]))", "float32", [nan, 0.0]),
    ("L.tensor([inf, -inf, nan]).clamp(-1, 1)", "float32", [1.0, -1.0, nan]),
    ("L.tensor([0.0, inf, nan]) ** 0", "float32", [1.0, 1.0, 1.0]),
    ("L.tensor([0.0, -2.0, inf]) ** -1", "float32", [inf, -0.5, 0.0]),
    ("L.tensor([-8.0, 4.0]) ** 0.5", "float32", [nan, 2.0]),
    ("L.tensor([0.0, 2.0]) ** L.tensor([0.0, -1.0])", "float32", [1.0, 0.5]),
    ("L.tensor([1.0, nan, 3.0]).amax()", "float32", nan),
    ("L.tensor([1.0, nan, 3.0]).amin()", "float32", nan),
    ("L.tensor([1.0, nan, 3.0]).argmax()", "int64", 1),
    ("L.tensor([1.0, nan, nan]).argmin()", "int64", 1),
    ("L.tensor([1.0, nan]).sum()", "float32", nan),
    ("L.tensor([inf, -inf]).sum()", "float32", nan),
    ("L.maximum(L.tensor([1.0, nan]), L.tensor([nan, 1.0]))", "float32", [nan, nan]),
    ("L.tensor([nan, 1.0]) == L.tensor([nan, 1.0])", "bool", [False, True]),
    ("L.tensor([nan, 1.0]) != L.tensor([nan, 1.0])", "bool", [True, False]),
    ("L.tensor([nan, 1.0]) < 2", "bool", [False, True]),
    ("L.tensor([nan, 0.0, inf]).isnan()", "bool", [True, False, False]),
    ("L.tensor([nan, 0.0, inf]).isfinite()", "bool", [False, True, False]),
    ("L.tensor([nan, 0.0, 2.0]).bool()", "bool", [True, False, True]),
    ("L.where(L.tensor([True, False]), L.tensor(nan), L.tensor([1.0, 2.0]))", "float32", [nan, 2]),
    ("L.tensor([0.0, 0.0, -inf]).softmax(0)", "float32", [0.5, 0.5, 0.0]),
    ("L.tensor([-inf, -inf]).softmax(0)", "float32", [nan, nan]),
    ("L.tensor([0.0, inf]).softmax(0)", "float32", [nan, nan]),
    ("L.tensor([[nan, 0.0], [0.0, 0.0]]).softmax(1)", "float32", [[nan, nan], [0.5, 0.5]]),
    ("L.tensor([1e30, 1e30]).softmax(0)", "float32", [0.5, 0.5]),
    ("L.tensor([0.0, -inf]).log_softmax(0)", "float32", [0.0, -inf]),
    ("L.tensor([-inf, -inf]).log_softmax(0)", "float32", [nan, nan]),
    ("L.tensor([0.0, -1000.0]).log_softmax(0)", "float32", [0.0, -1000.0]),
    ("F.layer_norm(L.tensor([[nan, 1.0], [3.0, 3.0]]), (2,))", "float32", [[nan, nan], [0, 0]]),
    ("F.layer_norm(L.tensor([[5.0], [7.0]]), (1,))", "float32", [[0.0], [0.0]]),
    ("F.cross_entropy(L.tensor([[0.0, 0.0]]), L.tensor([-100]))", "float32", nan),
    ("F.cross_entropy(L.tensor([[0.0, 1000.0]]), L.tensor([0]))", "float32", 1000.0),
    ("F.cross_entropy(L.tensor([[0.0, -inf]]), L.tensor([1]))", "float32", inf),
    ("L.tensor([3.0]).var()", "float32", nan),
    ("L.tensor([3.0]).var(unbiased=False)", "float32", 0.0),
    ("L.tensor([3.0]).std()", "float32", nan),
    # Integers and truth values where floats are expected, and the other way round
    ("L.tensor([1, 0]).exp()", "float32", [math.e, 1.0]),
    ("L.tensor([1, 4]).sqrt()", "float32", [1.0, 2.0]),
    ("L.tensor([1, 2]).log()", "float32", [0.0, math.log(2)]),
    ("L.tensor([0, 1]).tanh()", "float32", [0.0, math.tanh(1)]),
    ("L.tensor([0, 1]).sigmoid()", "float32", [0.5, 1 / (1 + math.exp(-1))]),
    ("L.tensor([0, 1]).erf()", "float32", [0.0, math.erf(1)]),
    ("L.tensor([0, 1]).sin()", "float32", [0.0, math.sin(1)]),
    ("L.tensor([0, 1]).cos()", "float32", [1.0, math.cos(1)]),
    ("L.tensor([True, False]).exp()", "float32", [math.e, 1.0]),
    ("L.tensor([True, False]).sigmoid()", "float32", [1 / (1 + math.exp(-1)), 0.5]),
    ("L.tensor([-1, 2]).relu()", "int64", [0, 2]),
    ("L.tensor([-1, 2]).abs()", "int64", [1, 2]),
    ("L.tensor([1, 2]) / 2", "float32", [0.5, 1.0]),
    ("L.tensor([1, 2]) / L.tensor([2, 2])", "float32", [0.5, 1.0]),
    ("L.tensor([1, 2]) ** 2", "int64", [1, 4]),
    ("L.tensor([1, 2]) + 0.5", "float32", [1.5, 2.5]),
    ("L.tensor([1, 2]) * L.tensor([0.5, 0.5])", "float32", [0.5, 1.0]),
    ("L.tensor([1, 2]) + L.tensor(0.5, dtype=L.float64)", "float64", [1.5, 2.5]),
    ("L.tensor([1.0, 2.0]) + L.tensor(0.5, dtype=L.float64)", "float32", [1.5, 2.5]),
    ("L.tensor([True, True]) + 1", "int64", [2, 2]),
    ("L.tensor([True, True]) + L.tensor([True, False])", "bool", [True, True]),
    ("L.tensor([True, False]) & L.tensor([3, 3])", "int64", [1, 0]),
    ("~L.tensor([1, 0])", "int64", [-2, -1]),
    ("L.tensor([True, True]).sum()", "int64", 2),
    ("L.tensor([1, 2], dtype=L.int32).sum()", "int64", 3),
    ("L.tensor([2, 1]).amax()", "int64", 2),
    ("L.tensor([1, 3]).clamp(2)", "int64", [2, 3]),
    ("L.tensor([1, 3]).clamp(1.5)", "float32", [1.5, 3.0]),
    ("L.where(L.tensor([True, False]), 1.0, 2.0)", "float32", [1.0, 2.0]),
    ("L.where(L.tensor([True, False]), 1, 2)", "int64", [1, 2]),
    ("L.where(L.tensor([True, False]), L.tensor([1, 2]), L.tensor([0.5, 0.5]))",
     "float32", [1.0, 0.5]),
    ("L.where(L.tensor([True, False]), L.tensor([1, 2]), 0.5)", "float32", [1.0, 0.5]),
    ("L.maximum(L.tensor([1, 2]), L.tensor([1.5, 1.5]))", "float32", [1.5, 2.0]),
    ("L.cat([L.tensor([1.0]), L.tensor([2])])", "float32", [1.0, 2.0]),
    ("L.cat([L.tensor([1.0]), L.tensor([2.0], dtype=L.float64)])", "float64", [1.0, 2.0]),
    ("L.stack([L.tensor(1), L.tensor(True)])", "int64", [1, 1]),
    ("L.tensor([1.75, -1.75]).long()", "int64", [1, -1]),
    ("L.tensor([1.0, 2.0]).clamp(3, 1)", "float32", [1.0, 1.0]),
    # Slopes where there is a choice
    ("d(lambda x: x.relu(), [0.0, -0.0, 1.0])", "float64", [0.0, 0.0, 1.0]),
    ("d(lambda x: x.abs(), [0.0, -2.0])", "float64", [0.0, -1.0]),
    ("d(lambda x: x.sqrt(), [0.0, 4.0])", "float64", [inf, 0.25]),
    ("d(lambda x: x.log(), [0.0, 2.0])", "float64", [inf, 0.5]),
    ("d(lambda x: x.clamp(-1, 1), [-1.0, 1.0, 2.0])", "float64", [1.0, 1.0, 0.0]),
    ("d(lambda x: x.amax(), [1.0, 3.0, 3.0])", "float64", [0.0, 0.5, 0.5]),
    ("d(lambda x: x.amin(), [3.0, 1.0, 1.0, 1.0])", "float64", [0, 1 / 3, 1 / 3, 1 / 3]),
    ("d(lambda x: L.maximum(x, L.ones_like(x)), [1.0, 2.0])", "float64", [0.5, 1.0]),
    ("d(lambda x: x ** 0, [0.0, 2.0])", "float64", [0.0, 0.0]),
    ("d(lambda x: x ** 1, [0.0, 2.0])", "float64", [1.0, 1.0]),
    ("d(lambda x: x ** 2, [0.0, -2.0])", "float64", [0.0, -4.0]),
    ("d(lambda x: x ** 3.0, [-2.0])", "float64", [12.0]),
    ("d(lambda x: x ** 0.5, [0.0, 4.0])", "float64", [inf, 0.25]),
    ("d(lambda x: 0.0 ** x, [0.0, 1.0, 2.0])", "float64", [0.0, 0.0, 0.0]),
    ("d(lambda x: L.tensor([0.0, -2.0], dtype=L.float64) ** x, [2.0, 3.0])", "float64", [0, nan]),
    ("d(lambda x: x.std(), [3.0, 3.0])", "float64", [0.0, 0.0]),
    ("d(lambda x: x.var(), [3.0])", "float64", [nan]),
    ("d(lambda x: x.mean(), [1.0, 2.0])", "float64", [0.5, 0.5]),
    ("d(lambda x: x.softmax(0), [-inf, 0.0])", "float64", [0.0, 0.0]),
    ("d(lambda x: x[[0, 0, 1]], [1.0, 2.0])", "float64", [2.0, 1.0]),
    ("d(lambda x: L.where(x > 0, x.log(), L.zeros_like(x)), [-1.0, 2.0])", "float64", [0.0, 0.5]),
    ("d(lambda x: x.masked_fill(x > 0, inf), [-1.0, 2.0])", "float64", [1.0, 0.0]),
    ("d(lambda x: x.relu(), [nan, 1.0])", "float64", [1.0, 1.0]),
    ("d(lambda x: L.maximum(x, L.zeros_like(x)), [nan, 1.0])", "float64", [1.0, 1.0]),
    # Ranks that are easily mistaken
    ("L.tensor(2.0).sum(0)", "float32", 2.0),
    ("L.tensor(2.0).softmax(0)", "float32", 1.0),
    ("L.tensor(2.0).transpose(0, 0)", "float32", 2.0),
    ("L.tensor(2.0).flatten()", "float32", [2.0]),
    ("L.tensor(2.0).squeeze(0)", "float32", 2.0),
    ("L.tensor(2.0).unsqueeze(0)", "float32", [2.0]),
    ("L.tensor([1.0, 2.0]).squeeze(0)", "float32", [1.0, 2.0]),
    ("L.tensor([[1.0], [2.0]]).expand(-1, 3)", "float32", [[1.0] * 3, [2.0] * 3]),
    ("L.cat([L.tensor([1.0])])", "float32", [1.0]),
    ("d(lambda x: L.cat([x]), [1.0, 2.0])", "float64", [1.0, 1.0]),
    ("d(lambda x: L.stack([x]), [1.0, 2.0])", "float64", [1.0, 1.0]),
    ("L.tensor([1.0, 2.0, 3.0])[None, ..., 1]", "float32", [2.0]),
    ("L.tensor([1.0, 2.0, 3.0])[L.tensor(1)]", "float32", 2.0),
    ("L.tensor([1.0, 2.0, 3.0]).split(2)[1]", "float32", [3.0]),
    ("L.tensor([1.0, 2.0, 3.0]).chunk(5)[2]", "float32", [3.0]),
    ("F.cross_entropy(L.tensor([0.0, 0.0]), L.tensor(1))", "float32", math.log(2)),
]  # fmt: skip


def evaluated(expression: str, library: Any, functional: Any) -> Any:
    names = {"L": library, "F": functional, "nan": nan, "inf": inf, "math": math}
    names["d"] = lambda function, values: slopes(library, function, values)
    return eval(expression, names)


def assert_value(found: np.ndarray, dtype: str, value: Any) -> None:
    expected = np.asarray(value, dtype)
    assert found.dtype == np.dtype(dtype)
    assert found.shape == expected.shape
    if found.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=2e-7, atol=0, equal_nan=True)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("expression", "dtype", "value"), ODD, ids=[case[0] for case in ODD])
def test_odd_input_has_the_value_pytorch_gives(expression: str, dtype: str, value: Any) -> None:
    assert_value(evaluated(expression, ta, F).numpy(), dtype, value)


@pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's, on degrees of freedom
@pytest.mark.parametrize(("expression", "dtype", "value"), ODD, ids=[case[0] for case in ODD])
def test_the_stored_value_is_pytorchs(expression: str, dtype: str, value: Any, torch: Any) -> None:
    found = evaluated(expression, torch, torch.nn.functional)
    assert_value(found.detach().numpy(), dtype, value)


def test_odd_widths_empty_batches_and_single_positions() -> None:
    """Modules take what has a meaning, however small."""
    ta.manual_seed(0)
    assert nn.PositionalEncoding(5)(ones(1, 3, 5)).shape == (1, 3, 5)
    attention = nn.MultiHeadAttention(3, 5, 7, 9, 3).eval()
    for batch, queries, keys in ((0, 2, 3), (2, 0, 3), (1, 1, 1)):
        out = attention(ones(batch, queries, 5), ones(batch, keys, 3), ones(batch, keys, 7))
        assert out.shape == (batch, queries, 9)
        out.backward(ta.ones_like(out))
    no_keys = attention(ones(2, 3, 5), ones(2, 0, 3), ones(2, 0, 7))
    np.testing.assert_array_equal(no_keys.numpy(), np.zeros((2, 3, 9)))


def test_nan_in_one_sample_stays_there() -> None:
    """In values and, through a shared layer, in none of the other samples' results."""
    ta.manual_seed(0)
    attention = nn.MultiHeadAttention(4, 4, 4, 8, 2).eval()
    x = np.random.default_rng(0).standard_normal((3, 5, 4)).astype(np.float32)
    clean = attention(*[ta.tensor(x)] * 3).numpy()
    x[1, 2] = nan
    found = attention(*[ta.tensor(x)] * 3).numpy()
    np.testing.assert_array_equal(found[[0, 2]], clean[[0, 2]])
    assert np.isnan(found[1]).any()


@pytest.mark.parametrize("target", [[0], [0] * 5, [[0], [1]], 0, [0.0, 1.0]])
def test_the_kernel_of_cross_entropy_gets_a_class_for_each_row(target: Any) -> None:
    """By the op itself too: with fewer numbers the kernel would read beyond them."""
    with pytest.raises((ShapeError, DtypeError)):
        ops.losses.cross_entropy_of_rows(ones(2, 3), np.array(target), -100)
