"""The kernels on the CPU, compiled by Numba.

A kernel of a formula brings arrays into the one layout that its loop is compiled for (`layout.py`),
then calls the loop, perhaps on several threads (`../threads.py`). Loops release the GIL. They use
no fast-math flag that lets the compiler assume there are no NaN or inf. Sums are kept in float64.

    tiled_attention.py   attention, one block of queries after another
    attention_blocks.py  the steps for one block
    softmax.py           softmax over visible keys, its logarithm, and cross-entropy
    layer_norm.py        layer normalization and RMSNorm
    elementwise.py       activations, such as relu and gelu, erf, and where
    dropout.py           dropout by a hash
    sums.py              sums over rows, as of an embedding's gradient; squares
    lines.py             along one dimension: running sums, elements by index
    few_rows.py          products of few rows with a large matrix
    float16.py           float16 to float32
    optimizer.py         Adam
    row_functions.py     functions of one row, which the kernels above call
    not_finite.py        what attention does about NaN and inf
    layout.py            the one layout of arrays that kernels take
    compiler.py          how Numba compiles kernels, and keeps their code
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import scipy.linalg.cython_blas  # noqa: F401, what `np.dot` calls in a compiled function

from ..compiled import function_of
from . import compiler, elementwise

compiler.delete_stale_code(elementwise.erf_elements)


@cache
def kernel(name: str) -> Callable[..., Any]:
    """The kernel "file.function" of this folder."""
    return compiler.retrying(function_of(__name__, name))


compiler.watch_compilation()
