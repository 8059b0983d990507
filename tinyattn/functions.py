"""The methods of Tensor as functions, `ta.sum(x, 0)` for `x.sum(0)`, and functions of several."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

from . import ops
from .create import cat, checked_sequence
from .errors import ShapeError
from .methods import checked_tensor
from .tensor import Tensor

NAMES = """
    abs clamp clone cos erf exp expm1 isfinite isnan log log1p masked_fill pow reciprocal relu
    remainder rsqrt sigmoid sign sin sqrt square tanh
    all allclose amax amin any argmax argmin cumsum equal logsumexp max mean min norm prod std sum
    var log_softmax softmax argsort multinomial sort topk
    bmm dot matmul outer
    chunk diagonal flatten flip gather numel permute repeat_interleave reshape roll split squeeze
    swapaxes t transpose tril triu unbind unsqueeze
""".split()  # noqa: SIM905


def function_of(name: str) -> Callable[..., Any]:
    """The method of this name as a function whose first argument is the Tensor."""
    method = getattr(Tensor, name)

    def call(input: Any, *args: Any, **options: Any) -> Any:
        return method(checked_tensor(input, name), *args, **options)

    signature = inspect.signature(method)
    first, *others = signature.parameters.values()
    parameters = [first.replace(name="input"), *others]
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__name__ = call.__qualname__ = name
    call.__doc__ = method.__doc__ or f"The same as `x.{name}(...)`."
    return call


FUNCTIONS: dict[str, Callable[..., Any]] = {name: function_of(name) for name in NAMES}


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors joined side by side: vectors along their dimension, all others along dimension 1."""
    found = [x if x.ndim else x.reshape(1) for x in checked_sequence("hstack", tensors)]
    return cat(found, min(found[0].ndim - 1, 1))


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors joined one below another, along dimension 0; a vector is one row."""
    found = checked_sequence("vstack", tensors)
    return cat([x if x.ndim > 1 else x.reshape(1, -1) for x in found])


def einsum(equation: str, *operands: Tensor) -> Tensor:
    """A sum of products of one Tensor or two, with a letter for each dimension.

    "bqd,bkd->bqk": what has the same letter is multiplied, and summed over the letters that the
    result lacks. Two operands are multiplied by `matmul`, as stacks of matrices.

    ShapeError if the shapes do not fit. Differs from PyTorch: one operand or two, the result is
    always written, no "...", no letter twice in one operand, and sizes are equal, none broadcasts.

        >>> queries, keys = ta.ones(2, 3, 4), ta.ones(2, 5, 4)
        >>> ta.einsum("bqd,bkd->bqk", queries, keys).shape
        (2, 3, 5)
    """
    inputs, arrow, out = str(equation).replace(" ", "").partition("->")
    names = inputs.split(",")
    shapes = [checked_tensor(x, "einsum").shape for x in operands]
    pairs = [
        pair for parts in zip(names, shapes, strict=False) for pair in zip(*parts, strict=False)
    ]
    sizes = dict(pairs)
    fits = shapes == [tuple(map(sizes.get, name)) for name in names] and len(names) < 3
    single = all(len(set(name)) == len(name) for name in (*names, out))
    if not (arrow and fits and single and set(out) <= set(sizes)):
        raise ShapeError(
            "einsum takes one or two Tensors and an equation such as 'bqd,bkd->bqk': a letter for "
            "each dimension, none twice in one Tensor, of one size everywhere, and after -> the "
            f"letters of the result; got {equation!r} and shapes {shapes}"
        )
    a, x = summed(names[0], operands[0], out + names[-1] * (len(names) - 1))
    if len(operands) == 1:
        return ordered(a, x, out)
    b, y = summed(names[1], operands[1], out + a)
    shared = [i for i in a if i in b and i in out]
    inner = [i for i in a if i in b and i not in out]
    rows, columns = ([i for i in name if i not in shared + inner] for name in (a, b))
    stack, n, k, m = (math.prod(sizes[i] for i in part) for part in (shared, rows, inner, columns))
    product = ops.matmul(
        ordered(a, x, shared + rows + inner).reshape(stack, n, k),
        ordered(b, y, shared + inner + columns).reshape(stack, k, m),
    )
    found = shared + rows + columns
    return ordered(found, product.reshape([sizes[i] for i in found]), out)


def summed(name: str, x: Tensor, kept: str) -> tuple[str, Tensor]:
    """Letters and x, without the dimensions that are not kept."""
    gone = tuple(i for i, letter in enumerate(name) if letter not in kept)
    return "".join(a for a in name if a in kept), x.sum(gone) if gone else x


def ordered(name: Sequence[str], x: Tensor, wanted: Sequence[str]) -> Tensor:
    """x, whose dimensions have these names, with its dimensions in another order."""
    return x.permute([name.index(letter) for letter in wanted])
