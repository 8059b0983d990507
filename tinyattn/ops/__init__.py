"""The differentiable operations. Each is declared once, with its derivative directly beneath it.

    elementwise.py  arithmetic and functions of each element
    shape.py        reshaping, indexing and joining
    reduction.py    sums, means, variances, extremes
    linear.py       matrix products
    activation.py   activation functions
    softmax.py      softmax and cross-entropy
    layers.py       normalization, dropout, embedding, packed samples
    attention.py    scaled dot-product attention

`registry` in `engine/op.py` has all of them by name, for the tests.
"""

# ruff: noqa: F401
from .activation import erf, gelu, gelu_tanh, relu, sigmoid, silu, softplus
from .attention import (
    attention,
    attention_through,
    clear_invisible,
    in_form_of,
    in_heads,
    rotate_pairs,
    weighted_sum,
)
from .elementwise import (
    abs,
    add,
    cast,
    clamp,
    clone,
    cos,
    div,
    equal,
    exp,
    expm1,
    floor_divide,
    greater,
    greater_equal,
    isfinite,
    isnan,
    less,
    less_equal,
    log,
    log1p,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    mul,
    neg,
    not_equal,
    pow,
    remainder,
    sign,
    sin,
    sqrt,
    sub,
    tanh,
    where,
)
from .layers import dropout, embedding, layer_norm, pack, rms_norm, unpack
from .linear import linear, matmul
from .reduction import (
    all,
    any,
    argmax,
    argmin,
    cumsum,
    max,
    mean,
    min,
    norm,
    prod,
    std,
    sum,
    sum_to,
    var,
)
from .shape import (
    cat,
    expand,
    gather,
    getitem,
    permute,
    putitem,
    reshape,
    roll,
    scatter_along,
    setitem,
    transfer,
)
from .softmax import cross_entropy, log_softmax, masked_softmax, softmax
