"""Functions of tensors: each is written once, in one of these files.

An op has its documentation, its checks, its formula on plain arrays and its derivative. The formula
of a small op is its body. That of a large one is a function beneath the derivative, because kernels
stand for the formula and not for the checks. One line above it names them; see
`kernels/__init__.py`. Functions that are made of ops stand beside them. `F.softmax`, `x.softmax()`
and `ta.softmax` are one object. The files, with some of their functions:

    arithmetic.py     + - * / // %, comparisons, logic, where
    elementwise.py    exp, log, pow, tanh, abs, clamp, masked_fill and others
    activations.py    relu, gelu, sigmoid and others
    shapes.py         reshape, permute, expand, roll, repeat, cat, stack
    embedding.py      rows of a table
    indexing.py       x[i], gather, split, diagonal, tril
    reductions.py     sum, mean, var, norm, cumsum, prod, any, all
    order.py          max, min, sort, topk, multinomial, equal
    products.py       matmul, linear
    einsum.py         einsum
    softmax.py        softmax, log_softmax, masked_softmax, logsumexp
    losses.py         cross_entropy and others
    normalization.py  layer_norm, rms_norm, normalize
    dropout.py        dropout
    sequences.py      packed and padded sequences, their means, pad
    scaled_dot_product.py  F.scaled_dot_product_attention, and the heads of the d2l book
    positions.py      rotary positions
    visibility.py     valid_lens, mask, is_causal and window, checked
    attention.py      attention of rows of projections, and its heads
    arguments.py      what arguments may be: their types, and checks

For a derivative rule of your own, `tinyattn.ops.softmax` is the op, and not the file of this name:
`from tinyattn.ops.softmax import softmax_rows` reads the file. Ops take arrays too, and then give
arrays.
"""

from typing import TYPE_CHECKING, Any

from ..engine.op import registry
from . import einsum, losses, normalization, positions, scaled_dot_product  # noqa: F401, all files

globals().update(registry)  # also over the files that have the name of an op

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
