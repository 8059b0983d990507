"""Sequences of different lengths as one tensor, and the loader."""

from __future__ import annotations

import numpy as np
import pytest
from common import assert_same, leaf, needs_torch, rng_of, signed
from tinyattn.batches import DataLoader, pad_sequence

import tinyattn as ta
from tinyattn.errors import DtypeError, ShapeError


@needs_torch
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pad_sequence_is_pytorchs(batch_first, dtype, torch):
    rng = rng_of(0)
    arrays = [signed(rng, n, 2).astype(dtype) for n in (3, 0, 5)]
    ours = [leaf(a) for a in arrays]
    theirs = [torch.tensor(a, requires_grad=True) for a in arrays]
    pad = torch.nn.utils.rnn.pad_sequence
    out, right = pad_sequence(ours, batch_first, -2.0), pad(theirs, batch_first, -2.0)
    assert_same(out.numpy(), right.detach().numpy())
    grad = signed(rng, *out.shape).astype(dtype)
    found = ta.grad(out, ours, ta.tensor(grad))
    for g, r in zip(found, torch.autograd.grad(right, theirs, torch.tensor(grad)), strict=True):
        assert_same(g.numpy(), r.numpy())


def test_padding_has_the_dtype_of_all_sequences_together():
    mixed = [ta.tensor([1, 2]), ta.tensor([0.5])]
    for sequences in (mixed, mixed[::-1]):
        out = pad_sequence(sequences, padding_value=-0.25)
        assert out.dtype == np.float32
        assert -0.25 in out.tolist()[1]
    with pytest.raises(DtypeError, match="int64"):
        pad_sequence([ta.tensor([1, 2]), ta.tensor([3])], padding_value=0.5)


def test_pad_sequence_takes_lists_and_refuses_what_does_not_fit():
    assert pad_sequence([[1, 2], [3]], batch_first=True).tolist() == [[1, 2], [3, 0]]
    for wrong in ([], [ta.tensor(1.0)], [ta.ones(2, 3), ta.ones(2, 4)]):
        with pytest.raises(ShapeError, match="sequences"):
            pad_sequence(wrong)


def seen(loader):
    return [x.tolist() for x, _ in loader]


def test_batches_of_columns():
    x, y = ta.arange(7), np.arange(7.0) * 2
    loader = DataLoader((x, y), batch_size=3)
    batches = list(loader)
    assert [a.tolist() for a, _ in batches] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [b.tolist() for _, b in batches] == [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0], [12.0]]
    assert batches[0][1].dtype == np.float64
    assert len(loader) == 3
    short = DataLoader((x, y), batch_size=3, drop_last=True)
    assert seen(short) == [[0, 1, 2], [3, 4, 5]]
    assert len(short) == 2
    assert list(DataLoader((ta.zeros(0),), 2)) == []


def test_shuffling_keeps_rows_together_and_follows_the_seed():
    x = ta.arange(50)
    loader = DataLoader((x, x * 10), batch_size=8, shuffle=True)
    ta.manual_seed(3)
    first, second = seen(loader), seen(loader)
    assert first != second
    for epoch in (first, second):
        assert sorted(i for batch in epoch for i in batch) == list(range(50))
    ta.manual_seed(3)
    for a, b in loader:
        assert (a * 10).tolist() == b.tolist()
    ta.manual_seed(3)
    assert seen(loader) == first


def test_batches_of_samples():
    samples = [(ta.tensor([float(i), 1.0]), i) for i in range(3)]
    (x, y), (rest, _) = DataLoader(samples, batch_size=2)
    assert x.tolist() == [[0.0, 1.0], [1.0, 1.0]]
    assert (y.tolist(), y.dtype) == ([0, 1], np.int64)
    assert rest.shape == (1, 2)
    assert [b.tolist() for b in DataLoader(ta.arange(3), 2)] == [[0, 1], [2]]
    assert [b.tolist() for b in DataLoader([np.ones(2)] * 2, 2)] == [[[1.0, 1.0], [1.0, 1.0]]]
    lengths = DataLoader([[1, 2], [3]], 2, collate_fn=lambda s: pad_sequence(s, True))
    assert [b.tolist() for b in lengths] == [[[1, 2], [3, 0]]]


def test_loaders_that_cannot_be():
    with pytest.raises(ShapeError, match=r"lengths \[2, 3\]"):
        DataLoader((ta.ones(2), ta.ones(3)))
    with pytest.raises(ShapeError, match="batch_size"):
        DataLoader((ta.ones(2),), batch_size=0)
