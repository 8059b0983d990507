"""What an operation keeps for its derivative: memory that a training step pays for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from op_table import OpRow, samples_of
from rows import DIFFERENTIABLE, call, row_test, tensors_of
from samples import Sample

import tinyattn as ta
from tinyattn import functional as F
from tinyattn.engine.autograd import count_uses
from tinyattn.kernels.compiled import cpu_kernels
from tinyattn.kernels.packing import Samples

# Called by the library alone, which gives them arrays of its own as options.
INTERNAL = ("attention over rows", "weighted_sum", "putitem")


def arrays_in(value: Any) -> Iterator[np.ndarray]:
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, Samples):  # remembered, one for all ops that have the same lengths
        return
    elif isinstance(value, (tuple, list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from arrays_in(part)


def kept_by(outputs: tuple[ta.Tensor, ...]) -> list[np.ndarray]:
    """Every array that the graph of these outputs holds, once, empty ones aside."""
    arrays = [array for node in nodes_of(outputs) for array in arrays_in(node.saved)]
    return list({id(array): array for array in arrays if array.size}.values())


def nodes_of(outputs: tuple[ta.Tensor, ...]) -> list[Any]:
    nodes = count_uses([output._node for output in outputs if output._node is not None])
    return [node for node in nodes if node.plan is not None]


@row_test()
def test_a_change_in_place_of_what_is_kept_is_noticed(row: OpRow) -> None:
    """An array that shares memory with an input has its version; an option's array is a copy."""
    for sample in samples_of(row):
        tensors = tensors_of(row, sample)
        for node in nodes_of(call(row.function, tensors, sample)):
            versions = [version for version, _ in node.versions]
            for array in arrays_in(node.saved):
                for x in tensors:
                    if np.shares_memory(array, x._data):
                        assert x._version in versions
                for given in arrays_in(tuple(sample.options.values())):
                    assert row.name in INTERNAL or not np.shares_memory(array, given)


@row_test()
def test_views_share_the_version(row: OpRow) -> None:
    """With the input that they show, and with no other."""
    for sample in samples_of(row):
        with ta.no_grad():
            tensors = tensors_of(row, sample)
            outputs = call(row.function, tensors, sample)
        for out in outputs:
            for x in tensors if isinstance(out, ta.Tensor) else ():
                if out.numel() and x.numel():
                    shares = np.shares_memory(out._data, x._data)
                    assert (out._version is x._version) == shares


def sorts_of(row: OpRow, sample: Sample) -> tuple[set[str], int]:
    """Which of inputs and output are kept, and how many arrays besides."""
    tensors = tensors_of(row, sample)
    outputs = call(row.function, tensors, sample)
    names, more = set(), 0
    for array in kept_by(outputs):
        inputs = [i for i, x in enumerate(tensors) if np.shares_memory(array, x._data)]
        if inputs:
            names.add(f"input {inputs[0]}")
        elif any(np.shares_memory(array, out._data) for out in outputs):
            names.add("output")
        else:
            more += 1
    return names, more


@row_test(DIFFERENTIABLE)
def test_a_row_keeps_what_it_says(row: OpRow) -> None:
    """Over all its samples: not more, and not less, so that the table stays true.

    "more" are arrays that are neither input nor output: masks and limits, statistics of a row, the
    weights of attention, copies of queries, keys and values if the heads lie before the rows, the
    results on the way of those rows that are made of several ops.
    """
    found = [sorts_of(row, sample) for sample in samples_of(row)]
    more = max(number for _, number in found)
    names = sorted(set().union(*(names for names, _ in found)))
    words = names + ([f"{more} more"] if more else [])
    assert ", ".join(words) == row.keeps


def own_memory_of_attention(keys: int, dtype: Any, p: float) -> int:
    """Bytes kept beside queries, keys, values and the output: B 2, H 3, Q 8, d 4.

    They lie in memory as a projection leaves them, (B, N, H, d).
    """
    lengths = (8, keys, keys)
    q, k, v = (
        ta.randn(2, n, 3, 4, dtype=dtype, requires_grad=True).transpose(1, 2) for n in lengths
    )
    out = F.scaled_dot_product_attention(q, k, v, dropout_p=p)
    others = [x._data for x in (q, k, v, out)]
    own = [a for a in kept_by((out,)) if not any(np.shares_memory(a, x) for x in others)]
    return sum(array.nbytes for array in own)


@pytest.mark.parametrize("p", [0.0, 0.5])
def test_memory_of_attention(p: float) -> None:
    """At most the weights, once; the compiled kernel keeps no array of queries by keys at all."""
    for keys in (8, 80):
        assert own_memory_of_attention(keys, ta.float64, p) <= 2 * 3 * 8 * keys * 8
    if cpu_kernels() is not None:
        assert own_memory_of_attention(8, ta.float32, p) == own_memory_of_attention(
            80, ta.float32, p
        )


def test_what_is_not_differentiated_is_not_kept() -> None:
    x, w = ta.randn(3, 4, requires_grad=True), ta.randn(5, 4)
    kept = kept_by((F.linear(x, w),))
    assert len(kept) == 1
    assert kept[0] is w._data
