"""Arrays that come from other libraries and go to them: copies by default, shared on demand."""

from __future__ import annotations

import numpy as np
import pytest
from common import assert_same, leaf, needs_torch

import tinyattn as ta
from tinyattn.errors import DtypeError, InPlaceError

DTYPES = [np.bool_, np.uint8, np.int16, np.int64, np.float16, np.float32, np.float64]

since_numpy_2_1 = pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.1.0",
    reason="NumPy 2.0 exports nothing that is read-only, and its from_dlpack has no keywords",
)


class Foreign:
    """An array of another library, as far as DLPack shows it."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", [ta.from_numpy, lambda x, **o: ta.from_dlpack(Foreign(x), **o)])
def test_values_come_in_with_their_dtype_copied_or_shared(make, dtype):
    array = np.array([[0, 1, 1], [1, 0, 1]], dtype)[:, ::2]
    before = array.copy()
    copied, alias = make(array), make(array, copy=False)
    assert_same(copied.data, before)
    assert_same(alias.data, before)
    assert np.shares_memory(alias.data, array)
    assert not np.shares_memory(copied.data, array)
    assert not np.shares_memory(make(array, copy=True).data, array)
    array[0, 0] = 1
    assert_same(copied.data, before)
    assert_same(alias.data, array)


def test_writes_to_a_shared_tensor_reach_the_array_but_not_those_of_a_sum():
    array = np.zeros(3)
    x = ta.from_numpy(array, copy=False)
    x[1] = 7.0
    assert array.tolist() == [0, 7, 0]
    x += 1
    assert array.tolist() == [0, 7, 0]
    assert x.tolist() == [1, 8, 1]


def test_a_write_through_the_tensor_is_counted_where_it_is_shared():
    x = ta.from_numpy(np.ones(3), copy=False).requires_grad_()
    out = (x * x).sum()
    with ta.no_grad():
        x[0] = 5.0
    with pytest.raises(InPlaceError, match="changed in place"):
        out.backward()


@since_numpy_2_1
def test_a_shared_array_that_is_read_only_stays_as_it_is():
    array = np.ones(3)
    array.setflags(write=False)
    for x in (ta.from_numpy(array, copy=False), ta.from_dlpack(Foreign(array), copy=False)):
        with pytest.raises(InPlaceError, match="read-only"):
            x[0] = 2.0
        assert (x * 2).tolist() == [2, 2, 2]


def test_a_shared_tensor_has_gradients():
    x = ta.from_numpy(np.array([2.0, 3.0]), copy=False).requires_grad_()
    (x * x).sum().backward()
    assert x.grad.tolist() == [4, 6]


def test_changing_the_shape_of_the_array_changes_no_tensor():
    array = np.zeros((2, 3))
    x = ta.from_numpy(array, copy=False)
    array.resize((6,), refcheck=False)
    assert x.shape == (2, 3)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones(2, ">f4"), "native byte order"),
        (np.frombuffer(bytes(9), np.uint8)[1:].view(np.float64), "aligned"),
        (np.ma.masked_array([1.0], [True]), "lose its mask"),
        (np.ones(2, complex), "64 bits, got complex128"),
        (np.array(["a"]), "got <U1"),
    ],
)
def test_what_cannot_be_shared_is_refused(array, message):
    with pytest.raises(DtypeError, match=message):
        ta.from_numpy(array, copy=False)


def test_what_cannot_be_read_is_refused():
    with pytest.raises(TypeError, match="from_numpy takes a NumPy array, got list"):
        ta.from_numpy([1.0], copy=False)
    with pytest.raises(TypeError, match="with __dlpack__, got list"):
        ta.from_dlpack([1.0])
    with pytest.raises(DtypeError, match="from_dlpack cannot read this ndarray"):
        ta.from_dlpack(np.ones(2, ">f4"))


@since_numpy_2_1
@pytest.mark.parametrize("recorded", [False, True])
def test_a_tensor_goes_out_as_a_copy_or_read_only(recorded):
    x = leaf([1.0, 2.0])
    x = x.exp() if recorded else x
    for options in ({}, {"copy": None}, {"copy": True}):
        array = np.from_dlpack(x, **options)
        assert not np.shares_memory(array, x.data)
        array[0] = 9.0
    shared = np.from_dlpack(x, copy=False)
    assert np.shares_memory(shared, x.data)
    assert not shared.flags.writeable
    assert_same(shared, x.data)
    assert np.shares_memory(ta.from_dlpack(x, copy=False).data, x.data)


@needs_torch
def test_tensors_of_pytorch_come_and_go():
    import torch

    theirs = torch.arange(6.0).reshape(2, 3).T
    copied, alias = ta.from_dlpack(theirs), ta.from_dlpack(theirs, copy=False)
    theirs[0, 0] = 5.0
    assert copied[0, 0].item() == 0
    assert_same(alias.data, theirs.numpy())
    ours = ta.tensor([1.0, 2.0])
    back, shared = torch.from_dlpack(ours), torch.from_dlpack(ours, copy=False)
    with ta.no_grad():
        ours[0] = 7.0
    assert back.tolist() == [1, 2]
    assert shared.tolist() == [7, 2]
    for wrong in (theirs.bfloat16(), theirs.clone().requires_grad_()):
        with pytest.raises(DtypeError, match=r"this Tensor .*x\.detach\(\)\.float\(\)"):
            ta.from_dlpack(wrong)
