"""PyTorch's further functions and methods, each made of what tinyattn has.

BOTH are functions and methods, METHODS methods only, FUNCTIONS functions only. Their arguments are
PyTorch's. Each comes under the name that PyTorch gives it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tinyattn as ta

from .. import ops
from ..base.backend import namespace
from ..base.checks import checked_index, one_dim, sizes_of, type_name
from ..engine.autograd import wrap
from ..tensors.tensor import Tensor
from .devices import MAKERS, adapted, adapted_to, device
from .dtypes import KINDS, set_default_dtype, type_of

Functions = dict[str, Callable[..., Any]]


def by_numpy(name: str) -> Callable[..., Any]:
    """NumPy's function of this name, or CuPy's; its result has no gradient."""

    def function(input, *args, **options):
        arrays = [getattr(arg, "_data", arg) for arg in (tensor_of(name, input), *args)]
        return wrap(getattr(namespace(input._data), name)(*arrays, **options))

    return function


def tensor_of(name: str, x: Any) -> Tensor:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} takes a Tensor, got {type_name(x)}: wrap it in tensor(...)")
    return x


def stepwise(name: str) -> Callable[..., Any]:
    """NumPy's function of floats, with the gradient 0; integers stay as they are."""

    def function(input, **options):
        if input.dtype.kind != "f":
            return input.clone()
        nowhere = ta.zeros_like(input, dtype=ta.bool)
        return ta.where(nowhere, input, by_numpy(name)(input, **options))

    return function


def div(input, other, *, rounding_mode=None):
    if rounding_mode is None:
        return input / other
    floor = input // other
    return floor if rounding_mode == "floor" else BOTH["trunc"](input / other).to(floor.dtype)


# Shape


def movedim(input, source, destination):
    order = np.moveaxis(np.empty(range(input.ndim)), source, destination).shape
    return input.permute(*order)


def tile(input, *dims):
    counts = sizes_of(dims)
    return input.repeat((1,) * (input.ndim - len(counts)) + counts)


def unflatten(input, dim, sizes):
    dim = one_dim(input, dim)
    return input.reshape(*input.shape[:dim], *sizes, *input.shape[dim + 1 :])


def diag(input, diagonal=0):
    if input.ndim != 1:
        return input.diagonal(diagonal)
    n, i = len(input) + abs(diagonal), np.arange(len(input))
    return ops.putitem(input, (i + max(-diagonal, 0), i + max(diagonal, 0)), (n, n))


def meshgrid(*tensors, indexing="ij"):
    tensors = tensors if isinstance(tensors[0], Tensor) else tensors[0]
    sizes = [x.numel() for x in tensors]
    ones = [1] * len(sizes)
    grids = [x.reshape(-1, *ones[i + 1 :]).expand(sizes) for i, x in enumerate(tensors)]
    return tuple(x.transpose(0, 1) if indexing == "xy" and ones[1:] else x for x in grids)


def triangle_indices(name: str) -> Callable[..., Any]:
    def function(row, col, offset=0, **options):
        places = getattr(np, f"{name}_indices")(row, offset, col)
        return MAKERS["tensor"](np.stack(places), **options)

    return function


# Elements by index


def along(input, dim, index):
    """The index of the elements at `index` of one dimension."""
    index = index.reshape(-1) if isinstance(index, Tensor) else index
    return checked_index((*[slice(None)] * one_dim(input, dim), index))


def index_put(input, indices, values, accumulate=False):
    index = checked_index(tuple(indices))
    if not accumulate:
        return ops.setitem(input, values, index)
    return input + ops.putitem(values, index, input.shape)


def index_add(input, dim, index, source, *, alpha=1):
    return index_put(input, along(input, dim, index), alpha * source, True)


def index_copy(input, dim, index, source):
    return index_put(input, along(input, dim, index), source)


def full_index(index, dim):
    """The index of every element that `gather` takes: its own, but `index` along `dim`."""
    grid = list(namespace(index).ogrid[tuple(slice(n) for n in index.shape)])
    if index.ndim == 1:
        grid = [index]
    grid[dim] = index
    return tuple(grid)


def scatter(input, dim, index, src=None, *, value=None, accumulate=False):
    if value is None:
        value = src[tuple(map(slice, index.shape))] if isinstance(src, Tensor) else src
    return index_put(input, full_index(index._data, one_dim(input, dim)), value, accumulate)


def take_along_dim(input, indices, dim=None):
    if dim is None:
        return input.reshape(-1)[indices.reshape(-1)]
    dim = one_dim(input, dim)
    sizes = [indices.shape[i] if i == dim else n for i, n in enumerate(input.shape)]
    return input.gather(dim, indices.expand(sizes))


def nonzero(input, as_tuple=False):
    rows = tensor_of("nonzero", input)
    places = by_numpy("argwhere")(rows.reshape(1) if as_tuple and not rows.ndim else rows)
    return places.unbind(1) if as_tuple else places


def where(condition, input=None, other=None):
    """The elements of a pair by a condition, or of a condition alone where it is True."""
    if input is None and other is None:
        return nonzero(tensor_of("where", condition), as_tuple=True)
    return ta.where(condition, input, other)


def bincount(input, weights=None, minlength=0):
    counts = by_numpy("bincount")(input, weights, minlength)
    return counts if weights is None else counts.to(weights.dtype)


def unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None):
    wanted = {"return_inverse": return_inverse, "return_counts": return_counts}
    found = namespace(input._data).unique(input._data, axis=dim, **wanted)
    return tuple(map(wrap, found)) if isinstance(found, tuple) else wrap(found)


# Products, and random numbers


def cumprod(input, dim, *, dtype=None):
    """Each step multiplies twice as many elements; nothing is divided by x, which may be 0."""
    x, step = input.to(dtype or (input.dtype if input.dtype.kind == "f" else ta.int64)), 1
    x = x.transpose(0, dim)
    while x.ndim and step < len(x):
        x, step = ta.cat([x[:step], x[step:] * x[:-step]]), 2 * step
    return x.transpose(0, dim)


def tensordot(a, b, dims=2):
    left, right = (range(a.ndim - dims, a.ndim), range(dims)) if isinstance(dims, int) else dims
    n = len(left)
    x, y = movedim(a, [*left], [*range(-n, 0)]), movedim(b, [*right], [*range(n)])
    product = x.flatten(-n) @ y.reshape(-1, math.prod(y.shape[n:]))
    return product.reshape(*x.shape[:-n], *y.shape[n:])


def with_mean(spread: Callable[..., Any]) -> Callable[..., Any]:
    """std_mean of std, var_mean of var."""

    def function(input, dim=None, unbiased=True, keepdim=False, **options):
        return spread(input, dim, unbiased, keepdim, **options), input.mean(dim, keepdim)

    return function


def normal(mean=0.0, std=1.0, size=None, **options):
    if size is None:
        size = np.broadcast_shapes(*[getattr(x, "shape", ()) for x in (mean, std)])
    return mean + std * ta.randn(size, **options)


def bernoulli(input, p=None):
    return (ta.rand_like(input) < (input if p is None else p)).to(input.dtype)


def integers(input, low, high=None):
    """Integers from low to high - 1; of one number, from 0 to it."""
    low, high = (0, low) if high is None else (low, high)
    return ta.randint(low, high, input.shape, device=input.device).to(input.dtype)


def new_like(name: str) -> Callable[..., Any]:
    """new_zeros of zeros: with the dtype and the device of the Tensor."""
    return lambda input, *args, **options: MAKERS[name](
        *args, **{"dtype": input.dtype, "device": input.device} | options
    )


BOTH: Functions = {name: stepwise(name) for name in ("ceil", "floor", "round", "trunc")}
BOTH |= {name: by_numpy(name) for name in ("isclose", "isinf")}
DEFINED = (
    bincount,
    cumprod,
    diag,
    div,
    index_add,
    index_copy,
    index_put,
    movedim,
    nonzero,
    scatter,
)
BOTH |= {f.__name__: f for f in (*DEFINED, take_along_dim, tile, unflatten, unique)}
BOTH |= {
    "add": lambda input, other, *, alpha=1: input + (other if alpha == 1 else alpha * other),
    "addcdiv": lambda input, tensor1, tensor2, *, value=1: input + value * tensor1 / tensor2,
    "addcmul": lambda input, tensor1, tensor2, *, value=1: input + value * tensor1 * tensor2,
    "addmm": lambda input, mat1, mat2, *, beta=1, alpha=1: beta * input + alpha * (mat1 @ mat2),
    "bernoulli": adapted(bernoulli),
    "clamp_max": lambda input, max: input.clamp(max=max),
    "clamp_min": lambda input, min: input.clamp(min=min),
    "index_fill": lambda input, dim, index, value: index_copy(input, dim, index, value),
    "index_select": lambda input, dim, index: input[along(input, dim, index)],
    "is_floating_point": lambda input: input.dtype.kind == "f",
    "lerp": lambda input, end, weight: input + weight * (end - input),
    "log2": lambda input: input.log() / math.log(2),
    "log10": lambda input: input.log() / math.log(10),
    "logical_and": lambda input, other: (input != 0) & (other != 0),
    "logical_not": lambda input: input == 0,
    "logical_or": lambda input, other: (input != 0) | (other != 0),
    "logical_xor": lambda input, other: (input != 0) ^ (other != 0),
    "masked_select": lambda input, mask: input.expand(mask.shape)[mask],
    "multinomial": adapted(Tensor.multinomial),
    "narrow": lambda input, dim, start, length: input.split(
        [start, length, input.shape[dim] - start - length], dim
    )[1],
    "pow": lambda input, exponent: input**exponent,
    "ravel": lambda input: input.reshape(-1),
    "scatter_add": lambda input, dim, index, src: scatter(input, dim, index, src, accumulate=True),
    "select": lambda input, dim, index: input[along(input, dim, index)],
    "sub": lambda input, other, *, alpha=1: input - (other if alpha == 1 else alpha * other),
    "take": lambda input, index: input.reshape(-1)[index],
    "tan": lambda input: input.sin() / input.cos(),
    "trace": lambda input: input.diagonal().sum(),
}
# What has a second name, or another name in tinyattn.
SAME = """absolute:abs addmv:addmm argwhere:nonzero baddbmm:addmm bitwise_and:__and__
    bitwise_not:__invert__ bitwise_or:__or__ bitwise_xor:__xor__ clip:clamp divide:div eq:__eq__
    fix:trunc floor_divide:__floordiv__ ge:__ge__ ger:outer greater:__gt__ greater_equal:__ge__
    gt:__gt__ le:__le__ less:__lt__ less_equal:__le__ lt:__lt__ mm:matmul moveaxis:movedim
    mul:__mul__ multiply:__mul__ mv:matmul ne:__ne__ neg:__neg__ negative:__neg__ not_equal:__ne__
    subtract:sub swapdims:transpose true_divide:__truediv__ vdot:dot"""
for name, old in (pair.split(":") for pair in SAME.split()):
    BOTH[name] = BOTH.get(old) or getattr(Tensor, old)
METHODS: Functions = {name: lambda input, kind=kind: input.to(kind) for name, kind in KINDS.items()}
METHODS |= {f"new_{name}": new_like(name) for name in ("empty", "full", "ones", "tensor", "zeros")}
METHODS |= {
    "cuda": lambda input, device=None, non_blocking=False: input.to("cuda"),
    "maximum": ta.maximum,
    "minimum": ta.minimum,
    "nelement": Tensor.numel,
    "pin_memory": lambda input: input,
    "reshape_as": lambda input, other: input.reshape(other.shape),
    "to": adapted_to(Tensor.to),
    "type": type_of,
    "view_as": lambda input, other: input.view(other.shape),
    "where": lambda input, condition, other: ta.where(condition, input, other),
}
FUNCTIONS: Functions = MAKERS | {
    "cdist": lambda x1, x2, p=2.0: (x1.unsqueeze(-2) - x2.unsqueeze(-3)).norm(p, -1),
    "concat": ta.cat,
    "concatenate": ta.cat,
    "detach": Tensor.detach,
    "finfo": np.finfo,
    "get_default_device": lambda: device("cpu"),
    "get_default_dtype": lambda: np.dtype(np.float32),
    "iinfo": np.iinfo,
    "inference_mode": ta.no_grad,
    "is_tensor": lambda obj: isinstance(obj, Tensor),
    "isin": by_numpy("isin"),
    "load": lambda f, map_location=None, weights_only=True: ta.load(f),
    "meshgrid": meshgrid,
    "normal": adapted(normal),
    "set_default_dtype": set_default_dtype,
    "std_mean": with_mean(Tensor.std),
    "tensordot": tensordot,
    "tril_indices": triangle_indices("tril"),
    "triu_indices": triangle_indices("triu"),
    "var_mean": with_mean(Tensor.var),
    "where": where,
}
# What a method of this name with a "_" fills the tensor with.
FILLS: Functions = {
    "bernoulli": adapted(lambda input, p=0.5: bernoulli(input, p)),
    "copy": lambda input, src, non_blocking=False: src.to(input).expand(input.shape).clone(),
    "exponential": adapted(lambda input, lambd=1.0: -(-ta.rand_like(input)).log1p() / lambd),
    "fill": lambda input, value: ta.zeros_like(input) + value,
    "fill_diagonal": lambda input, value: input.masked_fill(np.eye(*input.shape) == 1, value),
    "normal": adapted(lambda input, mean=0.0, std=1.0: mean + std * ta.randn_like(input)),
    "random": adapted(integers),
    "uniform": adapted(lambda input, low=0.0, high=1.0: low + (high - low) * ta.rand_like(input)),
    "zero": ta.zeros_like,
}
IN_PLACE = """abs absolute add addcdiv addcmul addmm baddbmm bernoulli ceil clamp clamp_max
    clamp_min clip copy cos cumprod cumsum div divide erf exp expm1 exponential fill fill_diagonal
    fix floor floor_divide index_add index_copy index_fill index_put lerp log log10 log1p log2
    masked_fill mul multiply neg negative normal pow random reciprocal relu remainder round rsqrt
    scatter scatter_add sigmoid sign sin sqrt square sub subtract tan tanh tril triu true_divide
    trunc uniform zero"""
for table in (BOTH, METHODS, FUNCTIONS, FILLS):
    for name, function in table.items():
        if function.__name__ == "<lambda>":  # Python's errors name it
            function.__name__ = function.__qualname__ = name
