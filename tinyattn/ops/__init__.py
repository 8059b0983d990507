"""The differentiable operations. Each is declared once, its derivative directly beneath it.

`registry` in `op.py` lists them all by name; the tests go through that list.
"""

from .activation import erf, gelu, gelu_tanh, relu, sigmoid
from .attention import attention
from .dropout import dropout
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
    greater,
    greater_equal,
    isfinite,
    isnan,
    less,
    less_equal,
    log,
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
    sign,
    sin,
    sqrt,
    sub,
    tanh,
    where,
)
from .embedding import embedding
from .linear import linear, matmul
from .normalization import layer_norm
from .reduction import all, any, argmax, argmin, max, mean, min, sum, sum_to, var
from .shape import (
    cat,
    expand,
    gather,
    getitem,
    permute,
    plain_index,
    putitem,
    reshape,
    transfer,
)
from .softmax import cross_entropy, log_softmax, masked_softmax, softmax
