"""Functions that make tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base import checks, random
from ..base.backend import Array, module_of, namespace, to_device
from ..base.checks import DTypeLike
from ..engine.autograd import array_of, wrap
from ..errors import DtypeError, ShapeError
from ..kernels.range_checks import require_range
from ..ops.arguments import ArrayLike, Sizes, any_tensor, array_like
from .tensor import Tensor

CUDA = 2  # DLPack's number of the device


def tensor(
    data: Any, dtype: DTypeLike = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """A Tensor with a copy of `data`; see `Tensor`.

    Of Tensors in a list, those of one element are numbers, as in PyTorch, and others are rows.

    Differs from PyTorch: a number that an integer or boolean dtype cannot hold, such as 1.5 or 300
    in a byte, is a DtypeError, also in an array. `x.to(dtype)` of a Tensor wraps and cuts off.

    >>> ta.tensor([[1, 2], [3, 4]]).shape
    (2, 2)
    """
    return Tensor(data, dtype, device, requires_grad)


def as_tensor(data: Any, dtype: DTypeLike = None, device: str | None = None) -> Tensor:
    """`data` itself if it is a Tensor of this dtype and device, else a Tensor with a copy.

    Differs from PyTorch, which shares the memory of a NumPy array, and wraps 300 to 44 in uint8:
    what an integer or boolean dtype cannot hold is a DtypeError here.
    """
    if not isinstance(data, Tensor):
        return Tensor(data, dtype, device)
    target = data.dtype if dtype is None else checks.checked_dtype(dtype)
    if target.kind != "f" and target != data.dtype:
        checks.cast_exactly(data._data, target)  # DtypeError for what does not fit
    return data.to(target).to(device or data.device)


def from_numpy(array: np.ndarray, copy: bool = True) -> Tensor:
    """A Tensor of a NumPy array: of a copy, or with copy=False of the array's own memory.

    What shared memory means: a write to the array, or to another Tensor of it, changes the Tensor,
    and `backward` does not notice it, so write before the forward or after `backward`.
    `x[i] = value` writes to the array, unless that is read-only; then it is an error. `x += y`
    gives x memory of its own.

    Differs from PyTorch: the memory is copied by default, and there it is always shared.

        >>> array = np.zeros(2)
        >>> x = ta.from_numpy(array, copy=False)
        >>> array[0] = 5; x.tolist()
        [5.0, 0.0]
    """
    checks.check_type("from_numpy takes a NumPy array", array, np.ndarray)
    return Tensor(array) if copy else shared(array)


def from_dlpack(x: Any, copy: bool | None = None) -> Tensor:
    """A Tensor of an array of another library that has `__dlpack__`: PyTorch, JAX, CuPy, NumPy.

    It has a copy, on the same device. With copy=False it shares the memory, as `from_numpy` says.
    NumPy 2.0 cannot share what is read-only, such as a Tensor. Differs from PyTorch, which copies
    only if it must.

    Raises DtypeError for what cannot be read, such as a recorded tensor or bfloat16 of PyTorch.
    """
    if not hasattr(x, "__dlpack__"):
        raise TypeError(f"from_dlpack takes an array with __dlpack__, got {type(x).__name__}")
    module: Any = module_of("cuda" if x.__dlpack_device__()[0] == CUDA else "cpu")
    try:
        array = module.from_dlpack(x) if copy is not False else not_copied(module, x)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise DtypeError(
            f"from_dlpack cannot read this {type(x).__name__} ({error}): a tensor of PyTorch is "
            "passed as x.detach(), and one of bfloat16 as x.detach().float()"
        ) from None
    return shared(array) if copy is False else Tensor(array)


def not_copied(module: Any, x: Any) -> Array:
    """`from_dlpack(x, copy=False)`; without the keyword on NumPy 2.0, which copies nothing."""
    try:
        return module.from_dlpack(x, copy=False)
    except TypeError:
        return module.from_dlpack(x)


def shared(array: Array) -> Tensor:
    """A Tensor on the memory of an array."""
    checks.refuse_masked(array)
    aligned = getattr(array.flags, "aligned", True)  # an array of CuPy always is
    dtype = checks.checked_dtype(array.dtype)
    if not array.dtype.isnative or not aligned:
        raise DtypeError(
            f"an array that is shared has native byte order and is aligned, got {array.dtype.str}: "
            "pass copy=True"
        )
    return wrap(array.view(dtype, np.ndarray) if isinstance(array, np.ndarray) else array)


def made(array: Array, dtype: DTypeLike, device: str | None, requires_grad: bool) -> Tensor:
    """A new NumPy array as a Tensor."""
    dtype = checks.checked_dtype(array.dtype if dtype is None else dtype)
    array = array if array.dtype is dtype else checks.cast_exactly(array, dtype)
    result = wrap(to_device(array, device or "cpu"))
    result.requires_grad = requires_grad
    return result


def checked_sizes(sizes: Sequence[Any]) -> tuple[int, ...]:
    """The shape of a new tensor, checked; given as sizes, or as one sequence of them."""
    shape = checks.sizes_of(sizes)
    if any(size < 0 for size in shape):
        raise ShapeError(f"sizes must be >= 0, got {shape}")
    return shape


def zeros(
    *shape: Sizes,
    dtype: DTypeLike = np.float32,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """All 0: `ta.zeros(2, 3)` or `ta.zeros((2, 3))`.

    `ta.empty` is the same function, because memory without values would make runs differ.
    """
    return full(checks.sizes_of(shape), 0.0, dtype, device, requires_grad)


empty = zeros


def ones(
    *shape: Sizes,
    dtype: DTypeLike = np.float32,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """All 1."""
    return full(checks.sizes_of(shape), 1.0, dtype, device, requires_grad)


def full(
    shape: Sizes,
    fill_value: float,
    dtype: DTypeLike = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """All `fill_value`; the dtype is float32 for a float, int64 for an integer.

    Differs from PyTorch: a number that an integer or boolean dtype cannot hold is a DtypeError.
    """
    value = checks.as_array(array_of(fill_value), dtype, "cpu")
    sizes = checked_sizes((shape,))
    checks.check_broadcast("a value broadcasts to the shape of the tensor", value.shape, sizes)
    return made(np.full(sizes, value), None, device, requires_grad)


def finite(name: str, *values: Any) -> list[float]:
    numbers = [*map(checks.number_of, values)]
    for x in numbers:
        if not (checks.is_integer(x) or isinstance(x, float)) or not math.isfinite(x):
            raise TypeError(f"{name} takes finite numbers, got {x!r}")
    return numbers


def arange(
    start: float,
    end: float | None = None,
    step: float = 1,
    dtype: DTypeLike = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """start, start + step, ... before `end`; `arange(n)` counts from 0. Integers give int64.

    Floats give float32. Their steps are rounded, so the last number may be `end`, as in PyTorch.
    Differs from PyTorch: numbers that an integer dtype cannot hold are a DtypeError.
    """
    if end is None:
        start, end = 0, start
    start, end, step = finite("arange", start, end, step)
    if step == 0 or (end - start) * step < 0:
        raise ValueError(f"arange takes a step from start to end, got {start}, {end} and {step}")
    if dtype is None and any(not checks.is_integer(n) for n in (start, end, step)):
        dtype = np.float32
    return made(np.arange(start, end, step), dtype, device, requires_grad)


def linspace(
    start: float,
    end: float,
    steps: int,
    dtype: DTypeLike = np.float32,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """`steps` numbers from `start` to `end`, at equal distances; both are included.

    Differs from PyTorch: numbers that an integer dtype cannot hold are a DtypeError.
    """
    start, end = finite("linspace", start, end)
    values = np.linspace(start, end, checks.check_size("steps", steps, 0))
    return made(values, dtype, device, requires_grad)


def eye(
    n: int,
    m: int | None = None,
    dtype: DTypeLike = np.float32,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """1 on the diagonal, else 0: (n, m), square by default."""
    rows, columns = checked_sizes((n, n if m is None else m))
    return made(np.eye(rows, columns, dtype=np.float32), dtype, device, requires_grad)


def randn(
    *shape: Sizes,
    dtype: DTypeLike = np.float32,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Normal with mean 0 and variance 1, from tinyattn's generator (`ta.manual_seed`)."""
    dtype = np.float32 if dtype is None else dtype
    checks.require_float(checks.checked_dtype(dtype), "randn")
    values = np.asarray(random.generator().standard_normal(checked_sizes(shape)))
    return made(values, dtype, device, requires_grad)


def rand(
    *shape: Sizes,
    dtype: DTypeLike = np.float32,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Uniform in [0, 1)."""
    dtype = checks.checked_dtype(np.float32 if dtype is None else dtype)
    checks.require_float(dtype, "rand")
    # Drawn in the final precision if possible, because rounding could give 1.
    drawn = dtype if dtype in (np.float32, np.float64) else np.dtype(np.float32)
    values = np.asarray(random.generator().random(checked_sizes(shape), dtype=drawn))
    return made(np.minimum(values, 1 - np.finfo(dtype).epsneg), dtype, device, requires_grad)


def randint(
    low: int = 0,
    high: Any = None,  # or the size
    size: Sequence[int] | None = None,
    dtype: DTypeLike = np.int64,
    device: str | None = None,
) -> Tensor:
    """Integers from `low` to `high` - 1: `randint(2, 5, (3,))`; from 0: `randint(5, (3,))`.

    Raises ValueError if there is no integer between, DtypeError for another dtype than integers.
    Raises DtypeError if the dtype cannot hold all of them.
    """
    if size is None and (high is None or isinstance(high, (tuple, list))):
        low, high, size = 0, low, high
    low, high = map(checks.number_of, (0, low) if high is None else (low, high))
    if not checks.is_integer(low) or not checks.is_integer(high) or size is None:
        raise TypeError(f"randint takes low, high and a size, got {low!r}, {high!r} and {size!r}")
    if not low < high:
        raise ValueError(f"randint draws from low to high - 1, got low={low}, high={high}")
    dtype = checks.checked_dtype(np.int64 if dtype is None else dtype)
    checks.require_integers(dtype, "randint makes integers")
    checks.as_array(np.array([low, high - 1]), dtype, None)  # DtypeError if one does not fit
    values = random.generator().integers(low, high, checked_sizes((size,)))
    return made(np.asarray(values), dtype, device, False)


def randperm(n: int, device: str | None = None) -> Tensor:
    """The integers 0 to n - 1 in random order."""
    order = random.generator().permutation(checks.check_size("n", n, 0))
    return made(order, np.int64, device, False)


def like(
    make: Any, x: Tensor, dtype: DTypeLike, device: str | None, requires_grad: bool, *value: Any
) -> Tensor:
    """What `make` makes in the shape of `x`, with its dtype and device where none is given."""
    x = any_tensor(x, f"x of {make.__name__}_like")
    dtype, device = x.dtype if dtype is None else dtype, device or x.device
    return make(x.shape, *value, dtype=dtype, device=device, requires_grad=requires_grad)


def zeros_like(
    x: Tensor, *, dtype: DTypeLike = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """As `zeros`, in the shape of `x`; dtype and device are those of `x`, if none is given."""
    return like(zeros, x, dtype, device, requires_grad)


def ones_like(
    x: Tensor, *, dtype: DTypeLike = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """As `ones`, in the shape of `x`; dtype and device are those of `x`, if none is given."""
    return like(ones, x, dtype, device, requires_grad)


def full_like(
    x: Tensor,
    fill_value: float,
    *,
    dtype: DTypeLike = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """As `full`, in the shape of `x`; dtype and device are those of `x`, if none is given."""
    return like(full, x, dtype, device, requires_grad, fill_value)


def rand_like(
    x: Tensor, *, dtype: DTypeLike = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """As `rand`, in the shape of `x`; dtype and device are those of `x`, if none is given."""
    return like(rand, x, dtype, device, requires_grad)


def randn_like(
    x: Tensor, *, dtype: DTypeLike = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """As `randn`, in the shape of `x`; dtype and device are those of `x`, if none is given."""
    return like(randn, x, dtype, device, requires_grad)


def one_hot(ids: ArrayLike, num_classes: int = -1) -> Tensor:
    """1 at the place of each id, else 0: integers (...) -> int64 (..., num_classes).

    num_classes: -1 for the largest id plus 1; needed if there are no ids.
    Raises DtypeError if ids are no integers, and IndexError for an id out of range.

    >>> F.one_hot([0, 2]).tolist()
    [[1, 0, 0], [0, 0, 1]]
    """
    array = array_like(ids, "ids")
    checks.require_integers(array.dtype, "one_hot takes integer ids")
    if num_classes == -1:
        if not array.size:
            raise ShapeError("one_hot of no ids needs num_classes, the size of the last dimension")
        num_classes = max(int(array.max()), 0) + 1
    num_classes = checks.check_size("num_classes", num_classes)
    text = f"one_hot: id {{number}} is out of range for {num_classes} classes"
    require_range(array, 0, num_classes, IndexError, text)
    xp = namespace(array)
    out = xp.zeros((array.size, num_classes), np.int64)
    out[xp.arange(array.size), array.reshape(-1)] = 1
    return wrap(out.reshape(*array.shape, num_classes))


def alibi_bias(
    num_heads: int,
    queries: int,
    keys: int | None = None,
    dtype: DTypeLike = None,
    device: str | None = None,
    past: int = 0,
) -> Tensor:
    """The bias -m_h |past + i - j| of query i and key j in head h: (H, Q, K), m_h = 2^(-8 h / H).

    h counts from 1. dtype: a floating one, float32 by default.
    past: how many positions came before the first query, such as those in a cache. keys: past +
        queries by default.
    Heads with a steep slope see what is near, others see further; no position is added to the
    inputs.
    Raises ShapeError for sizes that are none, DtypeError for another dtype.
    Source: Press et al., "Train Short, Test Long", 2022. Their code has other slopes if the number
    of heads is no power of 2.

        >>> F.alibi_bias(2, 3)[0]
        tensor([[-0.    , -0.0625, -0.125 ],
                [-0.0625, -0.    , -0.0625],
                [-0.125 , -0.0625, -0.    ]])
        >>> F.alibi_bias(2, 1, past=2)[0]
        tensor([[-0.125 , -0.0625, -0.    ]])
    """
    checks.check_size("num_heads", num_heads)
    last = checks.check_size("past", past, 0) + checks.check_size("queries", queries, 0)
    keys = last if keys is None else checks.check_size("keys", keys, 0)
    slopes = 2.0 ** (-8 * np.arange(1, num_heads + 1) / num_heads)
    distances = np.abs(np.arange(past, last)[:, None] - np.arange(keys))
    dtype = checks.checked_dtype(dtype or np.float32)
    checks.require_float(dtype, "alibi_bias")
    return Tensor(-slopes[:, None, None] * distances, dtype, device)
