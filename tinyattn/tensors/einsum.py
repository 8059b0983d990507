"""einsum: a sum of products of Tensors, written with a letter for each dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence
from string import ascii_letters

from .. import ops
from ..errors import ShapeError
from .tensor import Tensor
from .values import checked_tensor


def einsum(equation: str, *operands: Tensor) -> Tensor:
    """A sum of products of Tensors, with a letter for each dimension.

    "bqd,bkd->bqk": what has the same letter is multiplied, and summed over the letters that the
    result lacks. "..." stands for any dimensions in front, a letter twice in one Tensor for its
    diagonal, and without "->" the result has the letters that come once, in alphabetical order.
    Tensors are multiplied from left to right by `matmul`, as stacks of matrices.

    ShapeError if the equation does not fit the shapes.

        >>> queries, keys = ta.ones(2, 3, 4), ta.ones(2, 5, 4)
        >>> ta.einsum("bqd,bkd->bqk", queries, keys).shape
        (2, 3, 5)
    """
    names, out = letters_of(equation, [checked_tensor(x, "einsum").shape for x in operands])
    sizes: dict[str, int] = {}
    for name, x in zip(names, operands, strict=True):
        sizes |= {a: n for a, n in zip(name, x.shape, strict=True) if n != 1 or a not in sizes}
    name, x = single(names[0], operands[0], sizes)
    for i in range(1, len(names)):
        kept = out + "".join(names[i + 1 :])
        name, x = contracted(name, x, *single(names[i], operands[i], sizes), kept)
    return ordered(*summed(name, x, out), out)


def letters_of(equation: str, shapes: Sequence[tuple[int, ...]]) -> tuple[list[str], str]:
    """The letters of each operand and of the result, with letters in place of "..."."""
    inputs, arrow, out = str(equation).replace(" ", "").partition("->")
    names = inputs.split(",")
    unused = [letter for letter in ascii_letters if letter not in inputs]
    fits, longest = len(names) == len(shapes) > 0, ""
    for i, (name, shape) in enumerate(zip(names, shapes, strict=False)):
        extra = len(shape) - len(name) + 3 if "..." in name else 0
        dots = "".join(unused[:extra][::-1])  # the last dimension has the same letter everywhere
        longest = max(longest, dots, key=len)
        names[i] = name.replace("...", dots, 1)
        fits = fits and extra >= 0 and len(names[i]) == len(shape)
    letters = "".join(names)
    if not arrow:
        out = "..." + "".join(
            a for a in sorted(set(inputs)) if inputs.count(a) == 1 and a.isalpha()
        )
    out = out.replace("...", longest, 1)
    named = [zip(*parts, strict=False) for parts in zip(names, shapes, strict=False)]
    sizes = {(letter, n) for pairs in named for letter, n in pairs if n != 1}
    uneven = len({letter for letter, _ in sizes}) < len(sizes)
    known = set(out) <= set(letters) <= set(ascii_letters) and len(set(out)) == len(out)
    if uneven or not (fits and known):
        raise ShapeError(
            "einsum takes an equation such as 'bqd,bkd->bqk': a letter for each dimension of each "
            "Tensor, of one size everywhere, and after -> letters of the result, each once; got "
            f"{equation!r} and shapes {list(shapes)}"
        )
    return names, out


def single(name: str, x: Tensor, sizes: dict[str, int]) -> tuple[str, Tensor]:
    """x with each letter once: a diagonal where one came twice; without what is to broadcast."""
    for letter in sorted(set(name)):
        while name.count(letter) > 1:
            i, j = name.index(letter), name.rindex(letter)
            x = x.diagonal(0, i, j)
            name = name[:i] + name[i + 1 : j] + name[j + 1 :] + letter
        if x.shape[name.index(letter)] != sizes[letter]:
            x, name = x.squeeze(name.index(letter)), name.replace(letter, "")
    return name, x


def contracted(a: str, x: Tensor, b: str, y: Tensor, kept: str) -> tuple[str, Tensor]:
    """The letters and the product of two Tensors; letters that are not kept are summed over."""
    a, x = summed(a, x, b + kept)
    b, y = summed(b, y, a + kept)
    shared = [i for i in a if i in b and i in kept]
    inner = [i for i in a if i in b and i not in kept]
    rows, columns = ([i for i in name if i not in shared + inner] for name in (a, b))
    sizes = dict(zip(a, x.shape, strict=True)) | dict(zip(b, y.shape, strict=True))
    stack, n, k, m = (math.prod(sizes[i] for i in part) for part in (shared, rows, inner, columns))
    out = ops.matmul(
        ordered(a, x, shared + rows + inner).reshape(stack, n, k),
        ordered(b, y, shared + inner + columns).reshape(stack, k, m),
    )
    letters = "".join(shared + rows + columns)
    return letters, out.reshape([sizes[i] for i in letters])


def summed(name: str, x: Tensor, kept: str) -> tuple[str, Tensor]:
    """Letters and x, without the dimensions that are not kept."""
    gone = tuple(i for i, letter in enumerate(name) if letter not in kept)
    return "".join(a for a in name if a in kept), x.sum(gone) if gone else x


def ordered(name: Sequence[str], x: Tensor, order: Sequence[str]) -> Tensor:
    """x, whose dimensions have these names, with its dimensions in another order."""
    return x.permute([name.index(letter) for letter in order])
