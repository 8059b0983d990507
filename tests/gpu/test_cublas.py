"""Matrix products on a cuBLAS handle of our own: which arguments cuBLAS gets for which arrays.

On the host against a NumPy-backed cuBLAS that reads memory as the real one does, or with
`-m gpu` on the real one.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import stand_in
from common import rng_of
from stand_in.blas import INVALID_VALUE, Library

from tinyattn.errors import DeviceError
from tinyattn.kernels.gpu import cublas


@pytest.fixture
def handle(cuda):
    if cuda is stand_in.MODULE:
        return cublas.Handle(cuda, 0, Library())
    return cublas.Handle(cuda, cuda.cuda.get_current_stream().ptr)


LAYOUTS = {
    "rows": lambda xp, x: xp.asarray(x),
    "columns": lambda xp, x: (
        xp.asarray(np.array(x.swapaxes(-1, -2), order="C")).swapaxes(-1, -2)
        if x.ndim > 1
        else xp.asarray(x)
    ),
    "a part of longer rows": lambda xp, x: xp.asarray(np.concatenate([x, x], -1))[
        ..., : x.shape[-1]
    ],
    "every second element": lambda xp, x: xp.asarray(np.repeat(x, 2, -1))[..., ::2],
    "heads behind positions": lambda xp, x: (
        xp.asarray(np.array(x.transpose(0, 2, 1, 3), order="C")).transpose(0, 2, 1, 3)
        if x.ndim == 4
        else xp.asarray(x)
    ),
    "backwards": lambda xp, x: xp.asarray(np.array(x[::-1], order="C"))[::-1],
}
SHAPES = [
    ((3, 4), (4, 5)),
    ((1, 4), (4, 1)),
    ((3, 1), (1, 5)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((4,), (4,)),
    ((2, 3, 4), (4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 3, 4, 5), (2, 3, 5, 4)),
    ((2, 1, 4, 5), (1, 3, 5, 4)),
    ((2, 3, 4, 5), (1, 1, 5, 1)),
    ((2, 3, 1, 5), (2, 3, 5, 4)),
    ((0, 4), (4, 5)),
    ((3, 0), (0, 5)),
    ((0, 3, 4), (0, 4, 5)),
]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_products(shapes, dtype, handle, cuda):
    """However both arrays lie: NumPy's product."""
    rng = rng_of(1)
    x, y = (rng.randint(-8, 9, shape).astype(dtype) for shape in shapes)  # exact in every dtype
    right = x.astype(np.float64) @ y.astype(np.float64)
    for first, second in itertools.product(LAYOUTS.values(), repeat=2):
        found = handle.matmul(first(cuda, x), second(cuda, y))
        assert found.dtype == dtype
        np.testing.assert_array_equal(found.get().astype(np.float64), right, strict=True)


def test_transposes_are_not_copied(cuda):
    """A weight's transpose and the heads of attention go to cuBLAS as they lie."""
    x = cuda.zeros((2, 5, 3, 4), np.float32)
    for array in (x, x.swapaxes(-1, -2), x[0].swapaxes(-1, -2), x[0, 0].T, x[..., :2]):
        assert cublas.layout(array, array.shape[:-2]) is not None
    assert cublas.layout(x[..., ::2], (2, 5)) is None
    assert cublas.layout(x.transpose(0, 2, 1, 3), (2, 3)) is None  # two strides for the batch


def test_the_workspace_is_set_after_the_stream(cuda):
    """Setting the stream would give back the default one."""
    if cuda is not stand_in.MODULE:
        pytest.skip("calls are recorded by the stand-in")
    library = Library()
    handle = cublas.Handle(cuda, 0, library)
    handle.matmul(cuda.zeros((2, 2)), cuda.zeros((2, 2)))
    assert library.calls == ["create", "math 0", "stream", "workspace", "gemm float64"]


def test_a_refusal_is_an_error(cuda):
    if cuda is not stand_in.MODULE:
        pytest.skip("the stand-in's library is made to fail")
    library = Library()
    library.cublasCreate_v2.function = lambda handle: INVALID_VALUE
    with pytest.raises(DeviceError, match="cublasCreate_v2 failed with cublasStatus_t 7"):
        cublas.Handle(cuda, 0, library)
