"""The arguments of every kernel, once for all tests that go through all kernels.

A kernel that is added needs a line in `calls_of`; `test_every_kernel_is_in_the_table` names it
until it has one. How exact each kernel must be is tested kernel by kernel in test_kernels.py and
test_softmax_kernels.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from common import rng_of, signed
from formulas import KERNELS as KERNELS
from formulas import kernels, reference

from tinyattn.kernels.visibility import Visibility, of_padded, samples_of
from tinyattn.optim.updates import AdamStep

IGNORED = -100


def calls_of(dtype: Any) -> dict[str, list[tuple[Any, ...]]]:
    """The calls of each kernel, but for adam, which writes into what it is given.

    The arrays are made anew, and are always the same.
    """
    rng = rng_of(7)

    def make(*shape: int) -> np.ndarray:
        return signed(rng, *shape).astype(dtype)

    x, grad = make(2, 3, 4, 5), make(2, 3, 4, 5)
    limits, mask = np.array([[5, 0, 2, 3], [1, 5, 4, 0]]), rng.uniform(size=(2, 1, 4, 5)) < 0.7
    of_scores = of_padded(x.shape, limits=limits, mask=mask)
    weights = kernels.masked_softmax(x, of_scores)
    rows, row_grad, weight, bias = make(6, 5), make(6, 5), make(5), make(5)
    target, ids = np.array([0, 4, IGNORED, 2, 1, 1]), np.array([[0, 2], [1, 2], [0, 0]])
    places = rng.randint(0, 3, x.shape)
    wide = x.astype(np.float64)
    integers = np.arange(-10, 10, dtype=np.int8).reshape(4, 5)
    q, k, v, dout = make(8, 3, 6), make(10, 3, 6), make(10, 3, 7), make(8, 3, 7)
    padded = Visibility(samples_of((4, 4)), samples_of((5, 5)), limits, mask)
    hidden = padded, 0.4, reference.Drop(0.25, 98765432109876)
    lengths = samples_of((4, 0, 3))
    packed = [make(7, 2, 3) for _ in range(4)]
    causal = Visibility(lengths, lengths, np.arange(1, 5)[None]), 0.4, reference.Drop(0.25, 7)
    of_each = {
        name: [(x,)] for name in ("softmax", "log_softmax", "relu", "sigmoid", "silu", "softplus")
    }
    return {
        **of_each,
        **{name: [(x,)] for name in ("erf", "gelu", "gelu_tanh", "normal_cdf")},
        **{
            f"{name}_backward": [(grad, x)]
            for name in ("relu", "sigmoid", "silu", "gelu", "gelu_tanh", "log_softmax")
        },
        **{name: [(x, grad)] for name in ("remainder", "floor_divide")},
        **{name: [(rows,)] for name in ("sum_squares", "sum_rows")},
        "products": [(x, 3), (rows, 1)],
        "scaled_distances": [(x, wide[:, :1], 1), (rows, wide[0, 0, 0, 0], None)],
        "running_sum": [(x, 1, False), (rows, 1, True)],
        "taken_along": [(x, places, 1), (rows, places[:, :, 0, :3].reshape(6, 3), 1)],
        "added_along": [
            (x, places, 1, (2, 7, 4, 5)),
            (rows, places[:, :, 0].reshape(6, 5), 1, (6, 3)),
        ],
        "where": [(mask, x, grad), (mask, x, 0.5)],
        "scatter_rows": [(make(3, 2, 4), ids, 4, None), (make(3, 2, 4), ids, 4, 1)],
        "int8_product": [(rows, integers, make(4))],
        "dropout": [(x, 0.3, 1234567890123456789)],
        "masked_softmax": [(x, of_scores)],
        "softmax_backward": [(grad, weights)],
        "masked_softmax_backward": [(grad, weights, of_scores)],
        "cross_entropy": [(rows, target, IGNORED)],
        "cross_entropy_backward": [
            (make(6), rows, target, IGNORED, kernels.cross_entropy(rows, target, IGNORED)[1])
        ],
        "layer_norm": [(rows, weight, bias, 1e-5)],
        "layer_norm_backward": [
            (row_grad, rows, weight, 1e-5, kernels.layer_norm(rows, weight, bias, 1e-5)[1:])
        ],
        "rms_norm": [(rows, weight, 1e-5)],
        "rms_norm_backward": [
            (row_grad, rows, weight, 1e-5, kernels.rms_norm(rows, weight, 1e-5)[1])
        ],
        "weighted_sum": [(weights, make(2, 3, 5, 7), of_scores)],
        "attention": [(q, k, v, hidden), (*packed[:3], causal)],
        "attention_backward": [
            (dout, q, k, v, hidden, None, kernels.attention(q, k, v, hidden)[1]),
            (packed[3], *packed[:3], causal, None, kernels.attention(*packed[:3], causal)[1]),
        ],
    }


def arrays_in(result: Any) -> Iterator[np.ndarray]:
    """All arrays of a kernel's result, those it keeps for backward among them."""
    if isinstance(result, tuple):
        for part in result:
            yield from arrays_in(part)
    elif result is not None:
        yield np.asarray(result)


def results_of(name: str, arguments: tuple[Any, ...]) -> list[np.ndarray]:
    """The arrays of a call that must be equal however they were computed."""
    result = getattr(kernels, name)(*arguments)
    if name == "attention":
        return [result[0]]  # what is kept depends on the kernel, which not every layout takes
    if name == "cross_entropy":  # the sum of an ignored row means nothing
        return [result[0], np.where(arguments[1] == IGNORED, 0, result[1])]
    if name in ("layer_norm_backward", "rms_norm_backward"):  # parts may wait for their sum
        width = arguments[1].shape[-1]
        return [result[0], *(part.reshape(-1, width).sum(axis=0) for part in result[1:])]
    return list(arrays_in(result))


def kernel_tour() -> dict[str, np.ndarray]:
    """Every kernel on small arrays, by the functions that the ops call."""
    results = {}
    for dtype in (np.float32, np.float64):
        kind = np.dtype(dtype).name
        for name, calls in calls_of(dtype).items():
            for number, arguments in enumerate(calls):
                for part, array in enumerate(results_of(name, arguments)):
                    results[f"{name}.{kind}.{number}.{part}"] = array
        rng = rng_of(8)
        p, grad, m, v = (signed(rng, 11).astype(dtype) for _ in range(4))
        v = np.abs(v)
        step = AdamStep(0.01, 0.9, 0.99, 1e-8, 0.1, True, 3)
        kernels.adam(m, v, p, grad, step)
        for part, array in enumerate((p, m, v)):
            results[f"adam.{kind}.{part}"] = array
    return results
