"""einsum: a sum of products of Tensors, written with a letter for each dimension."""

import math
from collections.abc import Sequence
from string import ascii_letters
from typing import NoReturn

from ..engine.autograd import AnyTensor
from ..errors import ShapeError
from .arguments import any_tensor
from .indexing import diagonal
from .products import matmul
from .reductions import sum
from .shapes import permute, squeeze


def einsum(equation: str, *operands: AnyTensor) -> AnyTensor:
    """A sum of products of Tensors, with a letter for each dimension.

    "bqd,bkd->bqk": what has the same letter is multiplied, and summed over the letters that the
    result lacks. "..." stands for any dimensions in front, a letter twice in one Tensor for its
    diagonal, and without "->" the result has the letters that come once, in alphabetical order.
    Tensors are multiplied from left to right by `matmul`, as stacks of matrices. They may come as
    one list.

    ShapeError if the equation does not fit the shapes.

        >>> queries, keys = ta.ones(2, 3, 4), ta.ones(2, 5, 4)
        >>> ta.einsum("bqd,bkd->bqk", queries, keys).shape
        (2, 3, 5)
    """
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    shapes = [any_tensor(x, "an operand of einsum").shape for x in operands]
    names, out, sizes = letters_of(equation, shapes)
    name, x = single(names[0], operands[0], sizes)
    for i in range(1, len(names)):
        kept = out + "".join(names[i + 1 :])
        name, x = contracted(name, x, *single(names[i], operands[i], sizes), kept)
    return ordered(*summed(name, x, out), out)


def letters_of(
    equation: str, shapes: Sequence[tuple[int, ...]]
) -> tuple[list[str], str, dict[str, int]]:
    """The letters of each operand and of the result, with letters in place of "...", and sizes."""
    inputs, arrow, out = str(equation).replace(" ", "").partition("->")
    names = inputs.split(",")
    if len(names) != len(shapes):
        raise_wrong_equation(equation, shapes)
    unused, dots = [letter for letter in ascii_letters if letter not in inputs], []
    for name, shape in zip(names, shapes, strict=True):
        number = len(shape) - (len(name) - 3) if "..." in name else 0
        # The last dimension has the same letter everywhere.
        dots.append("".join(reversed(unused[: max(number, 0)])))
    names = [name.replace("...", letters, 1) for name, letters in zip(names, dots, strict=True)]
    if not arrow:
        once = [a for a in sorted(set(inputs)) if inputs.count(a) == 1 and a.isalpha()]
        out = "..." + "".join(once)
    out = out.replace("...", max(dots, key=len), 1)
    known = set(out) <= set("".join(names)) <= set(ascii_letters) and len(set(out)) == len(out)
    sizes = sizes_of_letters(names, shapes)
    if not known or sizes is None:
        raise_wrong_equation(equation, shapes)
    return names, out, sizes


def sizes_of_letters(names: list[str], shapes: Sequence[tuple[int, ...]]) -> dict[str, int] | None:
    """The size of each letter, of which 1 broadcasts. None if an operand has not a letter for each
    dimension, or a letter has two sizes."""
    sizes: dict[str, int] = {}
    for name, shape in zip(names, shapes, strict=True):
        if len(name) != len(shape):
            return None
        for letter, n in zip(name, shape, strict=True):
            if sizes.get(letter, 1) == 1:
                sizes[letter] = n
            elif n not in (1, sizes[letter]):
                return None
    return sizes


def raise_wrong_equation(equation: str, shapes: Sequence[tuple[int, ...]]) -> NoReturn:
    raise ShapeError(
        "einsum takes an equation such as 'bqd,bkd->bqk': a letter for each dimension of each "
        "Tensor, of one size everywhere, and after -> letters of the result, each once; got "
        f"{equation!r} and shapes {list(shapes)}"
    )


def single(name: str, x: AnyTensor, sizes: dict[str, int]) -> tuple[str, AnyTensor]:
    """x with each letter once: a diagonal where one came twice; without what is to broadcast."""
    for letter in sorted(set(name)):
        while name.count(letter) > 1:
            i, j = name.index(letter), name.rindex(letter)
            x = diagonal(x, 0, i, j)
            name = name[:i] + name[i + 1 : j] + name[j + 1 :] + letter
        if x.shape[name.index(letter)] != sizes[letter]:
            x, name = squeeze(x, name.index(letter)), name.replace(letter, "")
    return name, x


def contracted(a: str, x: AnyTensor, b: str, y: AnyTensor, kept: str) -> tuple[str, AnyTensor]:
    """The letters and the product of two Tensors; letters that are not kept are summed over."""
    a, x = summed(a, x, b + kept)
    b, y = summed(b, y, a + kept)
    shared = [i for i in a if i in b and i in kept]
    inner = [i for i in a if i in b and i not in kept]
    rows, columns = ([i for i in name if i not in shared + inner] for name in (a, b))
    sizes = dict(zip(a, x.shape, strict=True)) | dict(zip(b, y.shape, strict=True))
    stack, n, k, m = (math.prod(sizes[i] for i in part) for part in (shared, rows, inner, columns))
    out = matmul(
        ordered(a, x, shared + rows + inner).reshape(stack, n, k),
        ordered(b, y, shared + inner + columns).reshape(stack, k, m),
    )
    letters = "".join(shared + rows + columns)
    return letters, out.reshape([sizes[i] for i in letters])


def summed(name: str, x: AnyTensor, kept: str) -> tuple[str, AnyTensor]:
    """Letters and x, without the dimensions that are not kept."""
    gone = tuple(i for i, letter in enumerate(name) if letter not in kept)
    return "".join(a for a in name if a in kept), sum(x, gone) if gone else x


def ordered(name: Sequence[str], x: AnyTensor, order: Sequence[str]) -> AnyTensor:
    """x, whose dimensions have these names, with its dimensions in another order."""
    return permute(x, [name.index(letter) for letter in order])
