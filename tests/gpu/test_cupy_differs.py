"""Where CuPy and a device differ from NumPy and the host, "cuda" computes what "cpu" does.

On the stand-in for CuPy, or with `-m gpu` on a GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import stand_in
from common import assert_same
from formulas import gpu, reference
from stand_in.functions import Device
from stand_in.launch import KernelError

import tinyattn as ta
from tinyattn import ops
from tinyattn.base import backend
from tinyattn.kernels.gpu.launch import function, source
from tinyattn.kernels.gpu.tiled_attention import shared_memory, tiled
from tinyattn.training.distributed import take_gpu

SPECIAL = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1.5, -1.5, 2.0, -7.25, 1e30, 16777217.0]


@pytest.fixture
def only_stand_in(cuda: Any) -> Any:
    if cuda is not stand_in.MODULE:
        pytest.skip("a device of the stand-in's is changed")
    return cuda


def both(compute: Any) -> list[Any]:
    """What compute(device) gives on either device, or the type of its error."""
    found: list[Any] = []
    for device in ("cpu", "cuda"):
        try:
            found.append(compute(device).numpy())
        except Exception as error:
            found.append(type(error))
    return found


def assert_alike(found: Any, right: Any) -> None:
    """Equal, the sign of a zero included; that of a NaN may differ."""
    assert found.dtype == right.dtype
    np.testing.assert_array_equal(found, right)
    signs = [np.signbit(x) & ~np.isnan(x) for x in (found, right)]
    np.testing.assert_array_equal(*signs)


# Arithmetic


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("operation", [ops.remainder, ops.floor_divide])
def test_division_of_special_numbers(operation: Any, dtype: Any, cuda: Any) -> None:
    """Of all pairs; and of an array and a number, on either side."""
    values = backend.converted(np.array(SPECIAL), np.dtype(dtype))
    column = lambda device: ta.tensor(values[:, None], device=device)  # noqa: E731
    row = lambda device: ta.tensor(values, device=device)  # noqa: E731
    assert_alike(*both(lambda device: operation(column(device), row(device))))
    for number in (3, 1.5, dtype(-2.0)):
        assert_alike(*both(lambda device, y=number: operation(row(device), y)))
        assert_alike(*both(lambda device, x=number: operation(x, row(device))))
    whole = lambda device: ta.tensor(np.arange(len(values)), device=device)  # noqa: E731
    assert_alike(*both(lambda device: operation(whole(device), row(device))))


MISTAKES: dict[str, tuple[Any, type[Exception]]] = {
    "an integer to a negative number": (lambda x: x**-1, ValueError),
    "an integer to a small negative number": (lambda x: x**-9, ValueError),
    "integers to negative integers": (lambda x: x ** (x - 2), ValueError),
    "a number to negative integers": (lambda x: 2 ** (x - 2), ValueError),
    "integers divided by integers with a 0": (lambda x: x // (x - 1), ZeroDivisionError),
    "a remainder by 0": (lambda x: x % (x - 1), ZeroDivisionError),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_with_integers(name: str, cuda: Any) -> None:
    """CuPy gives 0 without a word."""
    compute, error = MISTAKES[name]
    for device in ("cpu", "cuda"):
        with pytest.raises(error):
            compute(ta.tensor([1, 2], device=device)).numpy()
    assert (ta.tensor([1, 2], device="cuda") ** ta.tensor([3, 0], device="cuda")).tolist() == [1, 1]


def test_an_array_of_numpy_beside_a_device_is_refused(cuda: Any) -> None:
    """Also one without dimensions, as NumPy's functions give them; a number of NumPy is taken."""
    x = ta.ones(2, device="cuda")
    for array, name in ((np.array([2.0]), r"float64\[1\]"), (np.array(2.0), r"float64\[\]")):
        for compute in (lambda y: x + y, lambda y: y - x, lambda y: ops.where(x > 0, x, y)):
            with pytest.raises(ta.errors.DeviceError, match=name):
                compute(array)
    assert (x + np.float64(2)).tolist() == [3, 3]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_gelu_has_its_tail(dtype: Any, cuda: Any) -> None:
    """1 + erf would be 0 there."""
    x = np.array([-6.0, -4.0, -3.0], dtype)
    found = gpu.gelu(cuda.asarray(x)).get()
    right = reference.gelu(x.astype(np.float64))
    tolerance = {2: 0.07, 4: 1e-5, 8: 1e-13}[x.itemsize]  # a half of -6e-9 is 0
    np.testing.assert_allclose(found[x.itemsize == 2 :], right[x.itemsize == 2 :], rtol=tolerance)


# Dropout's mask


def test_dropout_goes_on_beyond_four_billion_elements(cuda: Any) -> None:
    """The mask does not begin anew there."""
    numbers = np.arange(200, dtype=np.uint64) * np.uint64(2**31 - 1)
    right = reference.kept(numbers, 0.5, 2**40 + 3)
    assert 60 < np.count_nonzero(right) < 140
    assert (right != reference.kept(numbers.astype(np.uint32), 0.5, 2**40 + 3)).any()
    code = (
        source("checks")
        + """
    extern "C" __global__ void kept(
        const long long* numbers, bool* out, long long size, DROP_PARAMETERS) {
        Drop drop = drop_of(DROP);
        FOR_EACH(i, size) out[i] = drop.keeps(numbers[i]);
    }"""
    )
    kernel = cuda.RawModule(code=code, options=("--std=c++17", "-DSCALAR=32")).get_function("kept")
    out = cuda.empty(200, np.bool_)
    kernel((1,), (64,), (cuda.asarray(numbers.astype(np.int64)), out, 200, 0.5, 2**31, 2**40 + 3))
    assert_same(out.get(), right)


# Memory and waiting


def test_an_array_of_the_device_is_shared(cuda: Any) -> None:
    array = cuda.asarray(np.array([1.0, 2.0]))
    x, y = ta.from_dlpack(array, copy=False), ta.from_dlpack(array)
    array[...] = 5.0
    assert (x.tolist(), y.tolist()) == ([5.0, 5.0], [1.0, 2.0])


def test_reading_waits_once(only_stand_in: Any) -> None:
    """And twice where a number may be out of range, because its slot is read, too."""
    table, ids = ta.ones(3, 2, device="cuda"), ta.tensor([0, 2], device="cuda")
    for compute, waits in ((lambda: table.sum(), 1), (lambda: table[ids].sum(), 2)):
        value = compute()
        before = len(stand_in.synchronisations)
        value.item()
        assert len(stand_in.synchronisations) == before + waits
        value.item()
        assert len(stand_in.synchronisations) == before + waits + 1


# Several devices, and small ones


def test_kernels_ask_each_device_for_memory(only_stand_in: Any, monkeypatch: Any) -> None:
    """CuPy sets an attribute of a kernel for the current device only."""
    x = ta.ones(1, 1, 1, 100, device="cuda", dtype="float64")  # 59 KiB for a block
    for number in (0, 1):
        monkeypatch.setattr(Device, "current", number)
        assert ta.functional.scaled_dot_product_attention(x, x, x).tolist() == x.tolist()


def test_tiles_fit_a_device_with_less_memory(only_stand_in: Any, monkeypatch: Any) -> None:
    """Compute capability 6 has 48 KiB for a block."""
    monkeypatch.setattr(Device, "shared_memory", 48 * 1024)
    for cached in (shared_memory, tiled, function):
        cached.cache_clear()
    q, k, v = (np.random.default_rng(i).normal(size=(1, 1, 40, 100)) for i in range(3))
    right, found = both(
        lambda device: ta.functional.scaled_dot_product_attention(
            *(ta.tensor(x, device=device) for x in (q, k, v))
        )
    )
    np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-12)
    for cached in (shared_memory, tiled, function):
        cached.cache_clear()
    kernel = function(only_stand_in, "sums", "end_sums", 32)
    with pytest.raises(KernelError, match="less than 50000 bytes to share"):
        kernel.max_dynamic_shared_size_bytes = 50000


def test_ranks_take_a_device_of_their_own_after_cuda_began(
    only_stand_in: Any, monkeypatch: Any
) -> None:
    """CUDA_VISIBLE_DEVICES would come too late."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(Device, "count", 3)
    monkeypatch.setattr(Device, "current", 0)
    for rank, number in ((0, 0), (1, 1), (4, 1)):
        take_gpu(rank, 5)
        assert Device.current == number
