"""PyTorch's further functions, each made of what tinyattn has; most are methods too.

`marks.py` explains the rows. Their arguments are PyTorch's.
"""

import math
from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np

import tinyattn as ta

from .. import ops
from ..base.backend import namespace
from ..base.checks import check_choice, checked_index, integer, one_dim, require_dims, sizes_of
from ..engine.autograd import wrap
from ..errors import DtypeError, ShapeError
from ..kernels.range_checks import require_range
from ..ops.arguments import any_tensor
from ..ops.indexing import check_places, row_of, shape_at
from ..tensors.tensor import Tensor as Tensor
from ..training.checkpoint import pieces_of, state_in
from .devices import MAKERS, adapted
from .marks import both, changing, function, rows, with_name


def by_numpy(name: str) -> Callable[..., Any]:
    """NumPy's function of this name, or CuPy's; its result has no gradient."""

    def function(input, *args, **options):
        any_tensor(input, f"{name}: input")
        arrays = [getattr(arg, "_data", arg) for arg in (input, *args)]
        return wrap(getattr(namespace(input._data), name)(*arrays, **options))

    return function


def with_gradient_0(values: Tensor, *inputs: Any) -> Tensor:
    """The values of a function of the inputs that goes in steps."""
    nowhere = ta.zeros_like(values, dtype=ta.bool)
    for x in inputs:
        if isinstance(x, Tensor) and x.dtype.kind == "f":
            values = ta.where(nowhere, x, values)
    return values


def stepwise(name: str) -> Callable[..., Any]:
    """NumPy's function of floats, with the gradient 0; integers stay as they are."""

    def function(input, **options):
        if input.dtype.kind != "f":
            return input.clone()
        wide = input.to(np.promote_types(input.dtype, np.float32))  # 1000 to two digits needs 1e5
        return with_gradient_0(by_numpy(name)(wide, **options).to(input.dtype), input)

    return function


def logarithm(base: int) -> Any:
    """log2 or log10. log(x) / log(base) is not exact at powers of the base, nor is float32."""

    def function(input):
        exact = getattr(namespace(input), f"log{base}")(input.astype("float64"))
        return exact.astype(input.dtype)

    made = ta.op(floats=True)(with_name(function, f"log{base}"))
    made.vjp("input")(lambda grad, input: grad * (1 / math.log(base)) / input)
    return made


# Each element

add = changing(lambda input, other, *, alpha=1: input + (other if alpha == 1 else alpha * other))
sub = changing(
    lambda input, other, *, alpha=1: input - (other if alpha == 1 else alpha * other), "x - y"
)
mul = changing(Tensor.__mul__, "x * y")


@changing
def div(input, other, *, rounding_mode=None):
    """In tinyattn: write x / y"""
    if rounding_mode is None:
        return input / other
    check_choice("rounding_mode", rounding_mode, "trunc", "floor")
    whole = Tensor.__floordiv__(input, other)
    if rounding_mode == "trunc" and whole.dtype.kind == "f":  # of the rounded quotient
        whole = by_numpy("trunc")(input.detach().to(whole.dtype) / other)
    elif rounding_mode == "trunc":
        whole = whole + ((whole < 0) & (whole * other != input))
    return with_gradient_0(whole, input, other)


@changing
def lerp(input, end, weight):
    """From the nearer end, because only so the result is `end` where the weight is 1."""
    rise = end - input
    from_input, from_end = input + weight * rise, end - rise * (1 - weight)
    if not isinstance(weight, Tensor):
        return from_input if abs(weight) < 0.5 else from_end
    return ta.where(abs(weight) < 0.5, from_input, from_end)


divide = true_divide = changing(div, "x / y")
floor_divide = both(Tensor.__floordiv__, "x // y")
neg = both(Tensor.__neg__, "-x")
addcdiv = changing(lambda input, tensor1, tensor2, *, value=1: input + value * tensor1 / tensor2)
addcmul = changing(lambda input, tensor1, tensor2, *, value=1: input + value * tensor1 * tensor2)
pow = both(lambda input, exponent: input**exponent)
clamp_max = changing(lambda input, max: input.clamp(max=max))
clamp_min = changing(lambda input, min: input.clamp(min=min))
clip = both(Tensor.clamp, "x.clamp(min, max)")
ceil = both(stepwise("ceil"), "np.ceil(x.numpy())")
floor = changing(stepwise("floor"), "np.floor(x.numpy())")
round = changing(stepwise("round"), "np.round(x.numpy())")
trunc = both(stepwise("trunc"))
log2 = both(logarithm(2), "x.log() / np.log(2)")
log10 = both(logarithm(10), "x.log() / np.log(10)")
eq = both(Tensor.__eq__, "x == y")
ne = both(Tensor.__ne__, "x != y")
lt = both(Tensor.__lt__, "x < y")
le = both(Tensor.__le__, "x <= y")
gt = greater = both(Tensor.__gt__, "x > y")
ge = both(Tensor.__ge__, "x >= y")
logical_and = both(lambda input, other: (input != 0) & (other != 0), "(x != 0) & (y != 0)")
logical_not = both(lambda input: input == 0, "x == 0")
logical_or = both(lambda input, other: (input != 0) | (other != 0), "(x != 0) | (y != 0)")
isinf = both(by_numpy("isinf"), "abs(x) == ta.inf")
is_floating_point = both(lambda input: input.dtype.kind == "f")
is_tensor = function(lambda obj: isinstance(obj, Tensor), "isinstance(x, ta.Tensor)")


@both
def isclose(input, other, rtol=1e-5, atol=1e-8, equal_nan=False):
    return by_numpy("isclose")(input, other, rtol, atol, equal_nan)


@function
def isin(elements, test_elements, *, assume_unique=False, invert=False):
    return by_numpy("isin")(elements, test_elements, invert=invert)


@function
def where(condition, input=None, other=None):
    """The elements of a pair by a condition, or of a condition alone where it is True."""
    if input is None and other is None:
        return nonzero(any_tensor(condition, "where: condition"), as_tuple=True)
    return ta.where(condition, input, other)


# Shape

concat = concatenate = function(ta.cat, "ta.cat")
ravel = both(lambda input: input.reshape(-1), "x.flatten()")
broadcast_to = both(lambda input, size: input.expand(size), "x.expand(shape)")


@both
def narrow(input, dim, start, length):
    size = require_dims(input, "narrow").shape[one_dim(input, dim)]
    start = integer("start", start)
    start += size if start < 0 else 0
    return input.split([start, length, size - start - integer("length", length)], dim)[1]


@both
def movedim(input, source, destination):
    """In tinyattn: write x.permute(dims)"""
    return input.permute(*np.moveaxis(np.empty(range(input.ndim)), source, destination).shape)


@both
def tile(input, dims, *more):
    """In tinyattn: write x.repeat(sizes)"""
    counts = sizes_of((dims, *more))
    return input.repeat((1,) * (input.ndim - len(counts)) + counts)


@both
def unflatten(input, dim, sizes):
    """In tinyattn: write x.reshape(sizes)"""
    dim = one_dim(input, dim)
    return input.reshape(*input.shape[:dim], *sizes, *input.shape[dim + 1 :])


@both
def diag(input, diagonal=0):
    if input.ndim != 1:
        return input.diagonal(diagonal).clone()
    n, i = len(input) + abs(diagonal), np.arange(len(input))
    return ops.putitem(input, (i + max(-diagonal, 0), i + max(diagonal, 0)), (n, n))


@function
def meshgrid(*tensors, indexing="ij"):
    """In tinyattn: write x[:, None].expand(len(x), len(y)) and y[None].expand(len(x), len(y))"""
    tensors = tensors if isinstance(tensors[0], Tensor) else tensors[0]
    sizes = [x.numel() for x in tensors]
    ones = [1] * len(sizes)
    grids = [x.reshape(-1, *ones[i + 1 :]).expand(sizes) for i, x in enumerate(tensors)]
    return tuple(x.transpose(0, 1) if indexing == "xy" and ones[1:] else x for x in grids)


# Elements by index


def along(input, dim, index, counts_back=False):
    """The index of the elements at `index` of one dimension. As in PyTorch, a negative number in a
    Tensor counts from the end for index_fill only."""
    dim = one_dim(require_dims(input, "an index along one dimension"), dim)
    if isinstance(index, Tensor):
        if index.ndim > 1:
            raise ShapeError(f"an index along one dimension is (N,), got {index.shape}")
        index, size = index.reshape(-1), input.shape[dim]
        text = f"index {{number}} is out of range for {size} elements (dim {dim})"
        checked_index(index)
        require_range(index._data, -size if counts_back else 0, size, IndexError, text)
    return checked_index((*[slice(None)] * dim, index))


def along_for(source, name, input, dim, index):
    """`along`; ShapeError if the values have another shape than the elements at the index."""
    index = along(input, dim, index)
    shape = shape_at(input._data, index, input.shape)
    if source.shape != shape:
        raise ShapeError(f"{name} takes a source of shape {shape}, got {source.shape}")
    return index


@both
def index_select(input, dim, index):
    """In tinyattn: write x[index], or x[:, index] for dimension 1"""
    return input[along(input, dim, index)]


@both
def select(input, dim, index):
    """In tinyattn: write x[index], or x[:, index] for dimension 1"""
    return index_select(input, dim, integer("index", index))


@both
def masked_select(input, mask):
    """In tinyattn: write x[mask]"""
    shape = np.broadcast_shapes(input.shape, mask.shape)
    return input.expand(shape)[mask.expand(shape)]


@changing
def index_put(input, indices, values, accumulate=False):
    """In place: write x[indices] = values, with a tuple of index tensors"""
    index = checked_index(tuple(indices))
    if not accumulate:
        return ops.setitem(input, values, index)
    shape = shape_at(input._data, index, input.shape)
    return input + ops.putitem(values.expand(shape), index, input.shape)


@changing
def index_add(input, dim, index, source, *, alpha=1):
    """In tinyattn: write x + F.one_hot(index, len(x)).to(x.dtype).mT @ source, for dimension 0 of a
    matrix

    In place: write x = x + F.one_hot(index, len(x)).to(x.dtype).mT @ source, for dimension 0 of a
    matrix; x[index] += source would count an index once
    """
    index = along_for(source, "index_add", input, dim, index)
    return index_put(input, index, alpha * source, True)


@changing
def index_copy(input, dim, index, source):
    """In tinyattn: write y = x.clone(), then y[index] = values

    In place: write x[index] = values, or x[:, index] for dimension 1
    """
    return index_put(input, along_for(source, "index_copy", input, dim, index), source)


@changing
def index_fill(input, dim, index, value):
    """In place: write x[index] = value, or x[:, index] for dimension 1"""
    return index_put(input, along(input, dim, index, counts_back=True), value)


@changing
def scatter(input, dim, index, src=None, *, value=None, reduce=None):
    """In tinyattn: write y = x.clone(), then y[ta.arange(len(x))[:, None], index] = values, for
    dimension 1 of a matrix

    In place: write x[ta.arange(len(x))[:, None], index] = values, for dimension 1 of a matrix
    """
    if reduce not in (None, "add"):
        raise ValueError(f'scatter takes reduce="add" or none, got {reduce!r}')
    x, dim, index = row_of(input), one_dim(input, dim), row_of(any_tensor(index, "scatter: index"))
    if value is None:
        value = row_of(src)[tuple(map(slice, index.shape))] if isinstance(src, Tensor) else src
    check_places("scatter", index._data, x.shape, dim)
    if isinstance(value, Tensor) and value.ndim and value.shape != index.shape:
        raise ShapeError(f"scatter takes a source of at least {index.shape}, got {src.shape}")
    # The index of every element that `gather` takes: its own, but `index` along `dim`.
    places = list(namespace(index._data).ogrid[tuple(map(slice, index.shape))])
    places[dim] = index._data
    return index_put(x, places, value, reduce == "add").reshape(input.shape)


@changing
def scatter_add(input, dim, index, src):
    """In tinyattn: the gradient of x[index] adds: ta.grad(x[index], x, values)"""
    return scatter(input, dim, index, src, reduce="add")


@both
def nonzero(input, as_tuple=False):
    """In tinyattn: write np.argwhere(x.numpy())"""
    rows = any_tensor(input, "nonzero: input")
    places = by_numpy("argwhere")(rows.reshape(1) if as_tuple and not rows.ndim else rows)
    return places.unbind(1) if as_tuple else places


argwhere = both(by_numpy("argwhere"), "np.argwhere(x.numpy())")


@both
def unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None):
    """In tinyattn: write np.unique(x.numpy())"""
    wanted = {"return_inverse": return_inverse, "return_counts": return_counts}
    found = namespace(input._data).unique(input._data, axis=dim, **wanted)
    return tuple(map(wrap, found)) if isinstance(found, tuple) else wrap(found)


# Products and sums


def of_dims(dims, x):
    """x; ShapeError if it has another number of dimensions."""
    if x.ndim != dims:
        raise ShapeError(f"here a tensor of {dims} dimensions is expected, got shape {x.shape}")
    return x


mm = both(lambda input, mat2: of_dims(2, input) @ of_dims(2, mat2), "x @ y")
mv = both(lambda input, vec: of_dims(2, input) @ of_dims(1, vec), "x @ y")
addmm = changing(lambda input, mat1, mat2, *, beta=1, alpha=1: beta * input + alpha * (mat1 @ mat2))
baddbmm = both(
    lambda input, batch1, batch2, *, beta=1, alpha=1: beta * input + alpha * (batch1 @ batch2)
)
trace = both(lambda input: of_dims(2, input).diagonal().sum(), "x.diagonal().sum()")


@both
def cumprod(input, dim, *, dtype=None):
    """Each step multiplies twice as many elements; nothing is divided by x, which may be 0."""
    x, step = input.to(dtype or (input.dtype if input.dtype.kind == "f" else ta.int64)), 1
    x = x.transpose(0, dim)
    while x.ndim and step < len(x):
        x, step = ta.cat([x[:step], x[step:] * x[:-step]]), 2 * step
    return x.transpose(0, dim).clone()


# Random numbers

multinomial = both(adapted(Tensor.multinomial))


def require_probabilities(name, x, hint=""):
    """ValueError unless all numbers lie between 0 and 1; on a GPU it may come later."""
    fits = ((x >= 0) & (x <= 1)).reshape(-1)._data.all(keepdims=True)
    require_range(fits, 1, 2, ValueError, f"{name} takes numbers from 0 to 1{hint}")


@both
@adapted
def bernoulli(input, p=None):
    p = input if p is None else ta.as_tensor(p, device=input.device)
    require_probabilities("bernoulli", p)
    return (ta.rand_like(input) < p).to(input.dtype)


@function
@adapted
def normal(mean=0.0, std=1.0, size=None, *, requires_grad=False, **options):
    """A sample has no gradient to mean or std.

    In tinyattn: write mean + std * ta.randn(size)
    """
    if size is None:
        size = np.broadcast_shapes(*[getattr(x, "shape", ()) for x in (mean, std)])
    return (mean + std * ta.randn(size, **options)).detach().requires_grad_(requires_grad)


# Of the whole library

empty_like = function(MAKERS["zeros_like"], "ta.zeros_like(x)")
finfo = function(np.finfo, "np.finfo(x.dtype)")
iinfo = function(np.iinfo, "np.iinfo(x.dtype)")
inference_mode = function(ta.no_grad, "ta.no_grad()")
get_default_dtype = function(lambda: np.dtype(np.float32))
WHOLE = "the state"  # the key in a file of what is no dict


@function
def save(obj, f):
    """`ta.save`, which takes a dict; here one Tensor or a list too. A tuple becomes a list,
    and a Parameter a Tensor that requires no gradients.

    f: the name of a file, or an open binary file such as an `io.BytesIO`.

    Differs from PyTorch: no pickle, so nothing in a file is executed.
    """
    state = obj if isinstance(obj, dict) and obj.keys() != {WHOLE} else {WHOLE: obj}
    if hasattr(f, "write"):
        f.write(b"".join(pieces_of(state)))
    else:
        ta.save(state, f)


@function
def load(f, map_location=None, weights_only=True):
    """What `save` wrote to f, which is a name or an open binary file. This is read to its end."""
    is_file = hasattr(f, "read")
    state = state_in(BytesIO(f.read()), "the rest of the file") if is_file else ta.load(f)
    return state[WHOLE] if state.keys() == {WHOLE} else state


@function
def set_default_dtype(d):
    """Take float32, which is the default.

    Differs from PyTorch: every other dtype is a DtypeError, so write dtype= or model.double()
    """
    if np.dtype(d) != np.float32:
        raise DtypeError(f"the default dtype is float32 and stays so, got {d}: write dtype=")


@function
def compile(model=None, **options):
    """The model or function as it is; `@torch.compile(mode=...)` too.

    In tinyattn: nothing has to be compiled: kernels are, by Numba, when they are first called
    """
    return (lambda function: function) if model is None else model


@function
def use_deterministic_algorithms(mode, *, warn_only=False):
    """Nothing happens: a run is repeatable.

    In tinyattn: delete it: a run is repeatable
    """


@function
def set_float32_matmul_precision(precision):
    """Nothing happens: products are as exact as "highest", which the others only permit to miss.

    In tinyattn: delete it: products are as exact as they can be
    """
    check_choice("precision", precision, "highest", "high", "medium")


FUNCTIONS = MAKERS | rows(globals(), function, both, changing)
METHODS = rows(globals(), both, changing)
CHANGING = rows(globals(), changing)
