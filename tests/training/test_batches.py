"""Sequences of different lengths as one tensor, and the loader."""

from __future__ import annotations

from collections import OrderedDict, namedtuple

import numpy as np
import pytest
from common import assert_same, leaf, needs_torch, rng_of, signed

import tinyattn as ta
from tinyattn.errors import DtypeError, ShapeError
from tinyattn.training.batches import DataLoader, Windows, pad_sequence


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


Pair = namedtuple("Pair", "x y")


def same_batch(ours, theirs, torch):
    """Equal forms and numbers; a batch of tuples is a list there, and numbers are float64."""
    if isinstance(theirs, torch.Tensor):
        assert isinstance(ours, ta.Tensor)
        assert ours.shape == tuple(theirs.shape)
        assert np.array_equal(ours.numpy(), theirs.numpy().astype(ours.dtype))
        assert (ours.dtype.kind, theirs.numpy().dtype.kind) in [("f", "f"), ("i", "i"), ("b", "b")]
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        for key in theirs:
            same_batch(ours[key], theirs[key], torch)
    elif theirs and isinstance(theirs[0], (str, bytes)):
        assert list(ours) == list(theirs)
    else:
        assert type(ours) is type(theirs) or (type(ours), type(theirs)) == (tuple, list)
        for one, other in zip(ours, theirs, strict=True):
            same_batch(one, other, torch)


@needs_torch
@pytest.mark.parametrize(
    "samples",
    [
        [[0.5, 1], [0.25, 0]],
        [{"x": 0.5, "y": 1}, {"y": 2, "x": 0.75}],
        [OrderedDict(b=1, a=2.5), OrderedDict(b=3, a=4.5)],
        [(0.5, "a"), (1.5, "b")],
        ["a", "bcd"],
        [b"a", b"bcd"],
        [Pair(1, 2.5), Pair(3, 4.5)],
        [(1, (2, {"a": [1, 2], "b": "text"})), (3, (4, {"a": [5, 6], "b": "other"}))],
        [[[1, 2], [3, 4]], [[5, 6], [7, 8]]],
        [[], []],
        [{}, {}],
        [True, False],
        [1, 2],
        [1.5, 2.5],
        [np.float32(1.5), np.float32(2.5)],
        [np.float64(1.5), np.float64(2.5)],
        [np.ones((2, 3)), np.zeros((2, 3))],
        [(np.arange(2), [1.5]), (np.arange(2), [2.5])],
    ],
    ids=str,
)
def test_samples_become_batches_as_in_pytorch(samples, torch):
    (ours,) = DataLoader(samples, batch_size=2)
    same_batch(ours, torch.utils.data.default_collate(samples), torch)


def test_batches_have_the_dtype_of_the_samples():
    (batch,) = DataLoader([{"x": np.float64(1), "y": ta.tensor([1, 2])}] * 2, 2)
    assert batch["x"].dtype == np.float64
    assert batch["y"].dtype == np.int64
    assert batch["y"].shape == (2, 2)
    (batch,) = DataLoader([[0.5, 1]] * 2, 2)
    assert [x.dtype.name for x in batch] == ["float32", "int64"]
    assert type(batch) is list


@pytest.mark.parametrize(
    ("samples", "error", "text"),
    [
        ([[1, 2], [3]], ShapeError, "sample 0 .* a list of 2 fields, and sample 1 is a list of 1"),
        ([(1, 2), (3,)], ShapeError, "sample 1 is a tuple of 1 fields"),
        ([(1, 2), [1, 2]], ShapeError, "sample 1 is a list of 2 fields"),
        ([ta.ones(2), ta.ones(3)], ShapeError, r"sample 1 is a Tensor of shape \(3,\)"),
        ([np.ones(2), np.ones(3)], ShapeError, r"sample 1 is an array of shape \(3,\)"),
        ([ta.ones(2), np.ones(2)], ShapeError, "sample 1 is an array"),
        ([(ta.ones(2), 1), (ta.ones(3), 1)], ShapeError, r"Tensor of shape \(3,\)"),
        ([{"a": [1]}, {"a": [1, 2]}], ShapeError, "list of 2 fields"),
        ([{"a": 1}, {"b": 1}], ShapeError, r"a dict with the keys \[\"'a'\"\], and sample 1 is"),
        ([{"a": 1}, {"a": 1, "b": 2}], ShapeError, "sample 1 is a dict"),
        ([1, "a"], ShapeError, "sample 0 of a batch is a number, and sample 1 is a text"),
        ([1, 1], None, ""),
        ([1, None], TypeError, "NoneType"),
        ([None, None], TypeError, "NoneType"),
        ([{1}, {2}], TypeError, "set"),
        ([object()] * 2, TypeError, "object"),
        ([1j, 2j], TypeError, "complex"),
    ],
)
def test_samples_that_are_no_batch_name_collate_fn(samples, error, text):
    loader = DataLoader(samples, 2)
    if error is None:
        assert len(list(loader)) == 1
        return
    with pytest.raises(error, match=text) as found:
        next(iter(loader))
    assert "collate_fn" in str(found.value)
    assert "pad_sequence" in str(found.value)
    (batch,) = DataLoader(samples, 2, collate_fn=list)
    assert len(batch) == 2


class Squares:
    """What has a length and indices."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        return i, float(i * i)


def test_all_kinds_of_samples():
    (x, y), (x_rest, _) = DataLoader(Squares(3), 2)
    assert (x.tolist(), y.tolist(), x_rest.tolist()) == ([0, 1], [0.0, 1.0], [2])
    for data in ([0, 1, 2], range(3), np.arange(3), ta.arange(3)):
        assert [b.tolist() for b in DataLoader(data, 2)] == [[0, 1], [2]]
    assert list(DataLoader("abc", 2)) == [["a", "b"], ["c"]]
    assert list(DataLoader([], 2)) == []
    assert next(iter(DataLoader([1, 2], 10**30))).tolist() == [1, 2]
    samples = [1]
    loader = DataLoader(samples, 1)
    samples.append(2)
    assert len(loader) == len(list(loader)) == 2


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ((i for i in range(3)), "generator"),
        ({1, 2}, "set"),
        ({"x": ta.ones(2), "y": ta.ones(2)}, "dict"),
        (None, "NoneType"),
        (5, "int"),
        (map(int, "12"), "map"),
        (ta.tensor(1.0), "0-d"),
        (np.array(1.0), "unsized"),
    ],
)
def test_data_without_length_or_indices_are_refused(data, kind):
    with pytest.raises(TypeError, match=kind):
        DataLoader(data, 2)


def test_a_dict_of_samples_by_their_numbers_has_samples():
    samples = {0: (1, "a"), 1: (2, "b"), 2: (3, "c")}
    assert [(x.tolist(), y) for x, y in DataLoader(samples, 2)] == [
        ([1, 2], ["a", "b"]),
        ([3], ["c"]),
    ]
    for data in ({1: (2, "b")}, {"0": (1, "a")}, {}):
        with pytest.raises(TypeError, match=r"samples with len\(\) and integer indices, got dict:"):
            DataLoader(data, 2)


def test_the_sentence_about_a_dict_of_columns_says_what_is_right():
    columns = {"x": ta.arange(3), "y": ta.arange(3) * 10}
    said = r"a dict of columns is tuple\(data\.values\(\)\), or in torch_names TensorDataset\("
    with pytest.raises(TypeError, match=said):
        DataLoader(columns, 2)
    assert [y.tolist() for _, y in DataLoader(tuple(columns.values()), 2)] == [[0, 10], [20]]


def test_a_collate_fn_gets_the_rows_of_columns_too():
    loader = DataLoader((ta.arange(3), ta.arange(3) * 10), 2, collate_fn=list)
    found = [[(x.item(), y.item()) for x, y in batch] for batch in loader]
    assert found == [[(0, 0), (1, 10)], [(2, 20)]]
    assert len(list(DataLoader([1, 2], 2, collate_fn=None))) == 1
    with pytest.raises(TypeError, match="collate_fn must be a function, got int"):
        DataLoader([1, 2], 2, collate_fn=3)


def test_iterators_do_not_share_their_place():
    loader = DataLoader(ta.arange(5), 2, shuffle=True)
    ta.manual_seed(0)
    one, two = iter(loader), iter(loader)
    mixed = [(next(one).tolist(), next(two).tolist()) for _ in range(3)]
    for column in zip(*mixed, strict=True):
        assert sorted(i for batch in column for i in batch) == list(range(5))
    for _ in loader:  # left in the middle
        break
    assert len(list(loader)) == 3
    assert len(list(loader)) == 3


def test_padding_of_what_is_no_list_is_refused():
    for wrong, error, match in (
        (5, TypeError, "pad_sequence takes a list, got int"),
        (None, TypeError, "pad_sequence takes a list, got None"),
        ("ab", DtypeError, "got <U1"),
        ({1: 2}, ShapeError, "sequences"),
    ):
        with pytest.raises(error, match=match):
            pad_sequence(wrong)
    sequences = (x for x in ([1.0, 2.0], [3.0]))
    assert pad_sequence(sequences, batch_first=True).tolist() == [[1, 2], [3, 0]]


def test_loaders_that_cannot_be():
    with pytest.raises(ShapeError, match=r"got \[\(2,\), \(3,\)\]"):
        DataLoader((ta.ones(2), ta.ones(3)))
    for data in ((), (1, 2, 3), (ta.tensor(1.0),)):
        with pytest.raises(ShapeError, match=r"columns of one length.* pass samples as a list"):
            DataLoader(data)
    for column, error in ((["a", "b"], DtypeError), ([[1], [2, 3]], ShapeError)):
        with pytest.raises(error, match=r"tensors hold booleans|rows of one length"):
            DataLoader((ta.ones(2), column))
    for sample in (2**70, np.datetime64("2020-01-01"), np.array(["a"])):
        with pytest.raises(DtypeError, match="tensors hold booleans"):
            list(DataLoader([sample] * 2, 2))
    for wrong in (0, -1, True, 1.0, "2", None, float("nan")):
        with pytest.raises(ShapeError, match="batch_size"):
            DataLoader((ta.ones(2),), batch_size=wrong)


# Forms


def test_fields_keep_their_forms():
    """A batch of texts is a list, also inside samples, and one of tuples is a tuple."""
    (batch,) = DataLoader([(1, "a"), (2, "b")], 2)
    assert type(batch) is tuple
    assert (batch[0].tolist(), batch[1]) == ([1, 2], ["a", "b"])
    (batch,) = DataLoader([[b"a", (1, 2)], [b"b", (3, 4)]], 2)
    assert [type(part) for part in (batch, *batch)] == [list, list, tuple]
    assert [part.tolist() for part in batch[1]] == [[1, 3], [2, 4]]
    (batch,) = DataLoader([{"b": "x", "a": 1}, {"a": 2, "b": "y"}], 2)
    assert [*batch] == ["b", "a"]  # in the order of the first sample
    assert (batch["b"], batch["a"].tolist()) == (["x", "y"], [1, 2])
    (batch,) = DataLoader(["a", "b"], 2)
    assert batch == ["a", "b"]


def test_columns_are_the_tensors_themselves():
    """A gradient of a batch reaches its column, and a column that is filled later is read."""
    x, y = leaf([1.0, 2.0, 3.0]), ta.zeros(3)
    loader = DataLoader((x, y, np.arange(3)), 2)
    assert loader.data[0] is x
    y[1] = 7.0
    cotangents = iter(([0.5, -2.0], [3.0]))
    seen = []
    for rows, zeros, numbers in loader:
        (rows * rows).backward(ta.tensor(next(cotangents), dtype=rows.dtype))
        seen.append((zeros.tolist(), numbers.tolist()))
    assert x.grad.tolist() == [1.0, -8.0, 18.0]
    assert seen == [([0, 7], [0, 1]), ([0], [2])]


def test_windows_of_two_seeds_are_not_those_of_other_steps():
    ids = np.arange(10_000)
    drawn = {(seed, step): Windows(ids, 1, 3, seed)[step][0].tobytes()
             for seed in range(4) for step in range(4)}  # fmt: skip
    assert len({*drawn.values()}) == len(drawn)
