"""The methods of Tensor as functions: `ta.sum(x, 0)` is `x.sum(0)`."""

from __future__ import annotations

import functools
from typing import Any

from ..base.backend import Function
from .tensor import Tensor
from .values import checked_tensor

__all__ = [
    "abs",
    "all",
    "allclose",
    "amax",
    "amin",
    "any",
    "argmax",
    "argmin",
    "argsort",
    "bmm",
    "chunk",
    "clamp",
    "clone",
    "cos",
    "cumsum",
    "diagonal",
    "dot",
    "equal",
    "erf",
    "exp",
    "expm1",
    "flatten",
    "flip",
    "gather",
    "isfinite",
    "isnan",
    "log",
    "log1p",
    "log_softmax",
    "logsumexp",
    "masked_fill",
    "matmul",
    "max",
    "mean",
    "min",
    "multinomial",
    "norm",
    "numel",
    "outer",
    "permute",
    "pow",
    "prod",
    "reciprocal",
    "relu",
    "remainder",
    "repeat_interleave",
    "reshape",
    "roll",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "softmax",
    "sort",
    "split",
    "sqrt",
    "square",
    "squeeze",
    "std",
    "sum",
    "swapaxes",
    "t",
    "tanh",
    "topk",
    "transpose",
    "tril",
    "triu",
    "unbind",
    "unsqueeze",
    "var",
]


def function_of(method: Function) -> Function:
    """A method as a function, whose first argument is the Tensor and is called `input`.

    The type is that of the method, so type checkers know the arguments and the result.
    """
    name = method.__name__

    @functools.wraps(method, assigned=("__name__", "__doc__", "__annotations__"))
    def call(input: Any, *args: Any, **options: Any) -> Any:
        return method(checked_tensor(input, name), *args, **options)

    call.__qualname__ = name
    return call  # type: ignore[return-value]


# Each element

abs = function_of(Tensor.abs)
clamp = function_of(Tensor.clamp)
clone = function_of(Tensor.clone)
cos = function_of(Tensor.cos)
erf = function_of(Tensor.erf)
exp = function_of(Tensor.exp)
expm1 = function_of(Tensor.expm1)
isfinite = function_of(Tensor.isfinite)
isnan = function_of(Tensor.isnan)
log = function_of(Tensor.log)
log1p = function_of(Tensor.log1p)
masked_fill = function_of(Tensor.masked_fill)
pow = function_of(Tensor.pow)
reciprocal = function_of(Tensor.reciprocal)
relu = function_of(Tensor.relu)
remainder = function_of(Tensor.remainder)
rsqrt = function_of(Tensor.rsqrt)
sigmoid = function_of(Tensor.sigmoid)
sign = function_of(Tensor.sign)
sin = function_of(Tensor.sin)
sqrt = function_of(Tensor.sqrt)
square = function_of(Tensor.square)
tanh = function_of(Tensor.tanh)

# Over one dimension or several

all = function_of(Tensor.all)
allclose = function_of(Tensor.allclose)
amax = function_of(Tensor.amax)
amin = function_of(Tensor.amin)
any = function_of(Tensor.any)
argmax = function_of(Tensor.argmax)
argmin = function_of(Tensor.argmin)
cumsum = function_of(Tensor.cumsum)
equal = function_of(Tensor.equal)
log_softmax = function_of(Tensor.log_softmax)
logsumexp = function_of(Tensor.logsumexp)
max = function_of(Tensor.max)
mean = function_of(Tensor.mean)
min = function_of(Tensor.min)
norm = function_of(Tensor.norm)
prod = function_of(Tensor.prod)
softmax = function_of(Tensor.softmax)
std = function_of(Tensor.std)
sum = function_of(Tensor.sum)
var = function_of(Tensor.var)

# Products

bmm = function_of(Tensor.bmm)
dot = function_of(Tensor.dot)
matmul = function_of(Tensor.matmul)
outer = function_of(Tensor.outer)

# Order

argsort = function_of(Tensor.argsort)
multinomial = function_of(Tensor.multinomial)
sort = function_of(Tensor.sort)
topk = function_of(Tensor.topk)

# Shape

chunk = function_of(Tensor.chunk)
diagonal = function_of(Tensor.diagonal)
flatten = function_of(Tensor.flatten)
flip = function_of(Tensor.flip)
gather = function_of(Tensor.gather)
numel = function_of(Tensor.numel)
permute = function_of(Tensor.permute)
repeat_interleave = function_of(Tensor.repeat_interleave)
reshape = function_of(Tensor.reshape)
roll = function_of(Tensor.roll)
split = function_of(Tensor.split)
squeeze = function_of(Tensor.squeeze)
swapaxes = function_of(Tensor.swapaxes)
t = function_of(Tensor.t)
transpose = function_of(Tensor.transpose)
tril = function_of(Tensor.tril)
triu = function_of(Tensor.triu)
unbind = function_of(Tensor.unbind)
unsqueeze = function_of(Tensor.unsqueeze)
