"""No two threads of a kernel use the same memory, one of them writing, without a barrier between.

The stand-in looks at each access to memory. Barriers that are missing show here even where no order
of the threads would change a result.
"""

from __future__ import annotations

import numpy as np
import pytest
import stand_in
from formulas import gpu
from stand_in.launch import KernelError, Races, RawModule, launches
from test_cuda_kernels import check_attention, hiding, made, on_device, samples_and_rows, send

from tinyattn.kernels.gpu.checks import check_range
from tinyattn.kernels.gpu.optimizer import adam
from tinyattn.optim.updates import AdamStep

FLOAT32 = np.dtype(np.float32)


@pytest.fixture
def watched(cuda, monkeypatch):
    if cuda is not stand_in.MODULE:
        pytest.skip("races are looked for by the stand-in")
    monkeypatch.setattr(Races, "looked_for", True)
    return cuda


def rows(cuda):
    """Short rows, of a warp each, and rows of several warps."""
    for columns in (40, 1100):
        x, grad, weight = send(cuda, *made(FLOAT32, (5, columns), (5, columns), (columns,)))
        gpu.masked_softmax_backward(grad, gpu.softmax(x), None)
        gpu.log_softmax_backward(grad, gpu.log_softmax(x))
        out, *saved = gpu.layer_norm(x, weight, weight, 1e-5)
        gpu.layer_norm_backward(grad, out, weight, 1e-5, saved)
        target = cuda.asarray(np.array([3, 0, -100, 39, 7]))
        losses, log_sums = gpu.cross_entropy(x, target, -100)
        gpu.cross_entropy_backward(losses, x, target, -100, log_sums)


def sums(cuda):
    for count in (40, 4100):
        gpu.sum_rows(*send(cuda, *made(FLOAT32, (count, 33))))


def embedding(cuda):
    """Ids that occur in several groups of positions, in rows wider than a block."""
    ids = cuda.asarray(np.arange(600) % 7)
    (grad,) = send(cuda, *made(FLOAT32, (600, 300)))
    gpu.scatter_rows(grad, ids, 7, None)


def masks(cuda):
    """Softmax of scores of which some are visible, and what else goes by the mask."""
    visibility = on_device(cuda, hiding("all", (1, 2, 3, 40)))
    weights, values = send(cuda, *made(FLOAT32, (1, 2, 3, 40), (1, 2, 40, 5)))
    gpu.weighted_sum(gpu.masked_softmax(weights, visibility), values, visibility)
    slot = cuda.zeros(2, np.int64)
    check_range(cuda.asarray(np.arange(300)), slot, 0, 200, -1)


def attention(cuda):
    """Whole tiles and slices of tiles."""
    for width, value_width in ((5, 5), (600, 600)):
        arrays = samples_and_rows(FLOAT32, [9], [40], 1, width, value_width)[1]
        check_attention(cuda, arrays, hiding("causal", (1, 1, 9, 40)), 0.2, 8 + width)


def optimizer(cuda):
    arrays = [send(cuda, *made(FLOAT32, (5000,), (3,))) for _ in range(4)]
    adam(AdamStep(0.1, 0.9, 0.99, 1e-8, 0.0, True, 1), *arrays)


def elements(cuda):
    x, grad = send(cuda, *made(FLOAT32, (70, 9), (70, 9)))
    gpu.dropout(gpu.gelu_backward(grad, x), 0.3, 5)


@pytest.mark.parametrize("kernels", [rows, sums, embedding, masks, attention, optimizer, elements])
def test_kernels_have_no_races(kernels, watched):
    count = len(launches)
    kernels(watched)
    assert len(launches) > count


SHARED = "__shared__ float all[64]; all[threadIdx.x] = x[threadIdx.x];\n"
CODES = {
    "a barrier of the block": (
        SHARED + "__syncthreads();\nx[threadIdx.x] += all[63 - threadIdx.x];", ""
    ),
    "none": (SHARED + "x[threadIdx.x] += all[63 - threadIdx.x];", "no barrier"),
    "a barrier of the warp": (
        SHARED + "__syncwarp();\nx[threadIdx.x] += all[threadIdx.x ^ 1];", ""
    ),
    "a barrier of one of two warps": (
        SHARED + "__syncwarp();\nx[threadIdx.x] += all[threadIdx.x ^ 32];", "no barrier"
    ),
    "none before the next write": (
        SHARED + "__syncthreads();\nfloat y = all[63 - threadIdx.x]; all[threadIdx.x] = y;",
        "no barrier",
    ),
    "memory that a block before has written": (
        "__shared__ float all[64];\n"
        "if (blockIdx.x == 0) all[threadIdx.x] = 1; else x[threadIdx.x] = all[threadIdx.x];",
        "has not written",
    ),
    "two blocks": ("__syncthreads();\nx[threadIdx.x] = blockIdx.x;", "no barrier"),
}  # fmt: skip


@pytest.mark.parametrize("name", CODES)
def test_races_are_found(name, watched):
    body, message = CODES[name]
    code = f'extern "C" __global__ void test(float* x) {{ {body} }}'
    kernel, x = RawModule(code=code).get_function("test"), watched.zeros(64, np.float32)
    arguments = (2 if "block" in name and "barrier" not in name else 1,), (64,), (x,)
    if message:
        with pytest.raises(KernelError, match=message):
            kernel(*arguments)
    else:
        kernel(*arguments)
