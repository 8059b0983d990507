"""What functions of Tensors say when they refuse an argument, word for word.

A message that names another argument than the wrong one sends its reader to the wrong place.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import functional as F
from tinyattn.errors import DtypeError, ShapeError

ROW = ta.tensor([[1.0, 2.0, 3.0]])
LINE = ta.tensor([1.0, 2.0, 3.0])
BLOCK = ta.ones(2, 3, 4)
INTEGERS = ta.tensor([1, 2, 3])
DOUBLES = ta.tensor([1.0, 2.0, 3.0], dtype=np.float64)
NO_FLOATS = "needs a floating dtype, got int64: use .to(ta.float32)"
NO_TENSOR = "must be a Tensor, got list: wrap it with ta.tensor(...)"
EINSUM = (
    "einsum takes an equation such as 'bqd,bkd->bqk': a letter for each dimension of each Tensor, "
    "of one size everywhere, and after -> letters of the result, each once; got "
)


class Foreign:
    """An array of another library."""

    def __array__(self, *arguments: Any, **options: Any) -> np.ndarray:
        return np.array([True])


Refused = tuple[Callable[[], Any], type[Exception], str]

REFUSED: dict[str, Refused] = {
    "silu of integers": (lambda: F.silu(INTEGERS), DtypeError, f"x {NO_FLOATS}"),
    "softplus of integers": (lambda: F.softplus(INTEGERS), DtypeError, f"x {NO_FLOATS}"),
    "gelu of integers": (lambda: F.gelu(INTEGERS), DtypeError, f"x {NO_FLOATS}"),
    "another form of gelu": (
        lambda: F.gelu(LINE, "sigmoid"),
        ValueError,
        'approximate must be "none" or "tanh", got \'sigmoid\'',
    ),
    "where of an array of others": (
        lambda: ta.where(Foreign(), LINE, 0.0),
        DtypeError,
        f"where does not take a {__name__}.Foreign: make it a Tensor with ta.tensor(...)",
    ),
    "where of text": (
        lambda: ta.where(LINE > 0, LINE, "0"),
        DtypeError,
        "where takes tensors and numbers, got '0'",
    ),
    "clamp without limits": (LINE.clamp, ValueError, "clamp takes min, max or both"),
    "clamp to a text": (
        lambda: LINE.clamp("low"),
        TypeError,
        "clamp takes a number as a limit, got 'low'",
    ),
    "clamp below a list": (
        lambda: LINE.clamp(max=[1.0]),
        TypeError,
        "clamp takes a number as a limit, got [1.0]",
    ),
    "masked_fill by integers": (
        lambda: LINE.masked_fill([1, 0, 1], 0.0),
        DtypeError,
        "masked_fill takes a boolean mask, got int64",
    ),
    "masked_fill by a mask of another size": (
        lambda: LINE.masked_fill([True, False], 0.0),
        ShapeError,
        "masked_fill: a mask (2,) does not broadcast with (3,)",
    ),
    "an operand of einsum that is a list": (
        lambda: ta.einsum("i,i->", LINE, [1.0, 2.0, 3.0]),
        TypeError,
        f"an operand of einsum {NO_TENSOR}",
    ),
    "a list beside an operand of einsum": (
        lambda: ta.einsum("i,i->", [1.0], LINE),
        TypeError,
        f"an operand of einsum {NO_TENSOR}",
    ),
    "a diagonal of two sizes": (
        lambda: ta.einsum("ii->i", BLOCK[0]),
        ShapeError,
        f"{EINSUM}'ii->i' and shapes [(3, 4)]",
    ),
    "all other dimensions twice in a result": (
        lambda: ta.einsum("i->......i", LINE),
        ShapeError,
        f"{EINSUM}'i->......i' and shapes [(3,)]",
    ),
    "all other dimensions twice in an operand": (
        lambda: ta.einsum("...i...->i", LINE),
        ShapeError,
        f"{EINSUM}'...i...->i' and shapes [(3,)]",
    ),
    "logits in a list": (
        lambda: F.cross_entropy([[1.0, 2.0]], [1]),
        TypeError,
        f"logits {NO_TENSOR}",
    ),
    "logits that are integers": (
        lambda: F.cross_entropy(INTEGERS, 1),
        DtypeError,
        f"logits {NO_FLOATS}",
    ),
    "log_probs in a list": (lambda: F.nll_loss([[1.0]], [0]), TypeError, f"log_probs {NO_TENSOR}"),
    "log_probs that are integers": (
        lambda: F.nll_loss(INTEGERS, 1),
        DtypeError,
        f"log_probs {NO_FLOATS}",
    ),
    "too much smoothing": (
        lambda: F.cross_entropy(ROW, [1], label_smoothing=1.5),
        ValueError,
        "label_smoothing lies between 0 and 1, got 1.5",
    ),
    "logits without classes": (
        lambda: F.cross_entropy(ta.tensor(1.0), 0),
        ShapeError,
        "cross_entropy takes logits with a dimension of classes, got shape ()",
    ),
    "log_probs without classes": (
        lambda: F.nll_loss(ta.tensor(1.0), 0),
        ShapeError,
        "nll_loss takes logits with a dimension of classes, got shape ()",
    ),
    "classes that are fractions": (
        lambda: F.cross_entropy(ROW, [1.0]),
        DtypeError,
        "cross_entropy takes class numbers as integers, got float32",
    ),
    "classes of nll_loss that are fractions": (
        lambda: F.nll_loss(ROW, ta.tensor([1.0])),
        DtypeError,
        "nll_loss takes class numbers as integers, got float32",
    ),
    "probabilities for nll_loss": (
        lambda: F.nll_loss(ROW, ROW),
        DtypeError,
        "nll_loss takes class numbers as integers, got float32",
    ),
    "classes that are truths": (
        lambda: F.nll_loss(ROW, [True]),
        DtypeError,
        "nll_loss takes class numbers as integers, got bool",
    ),
    "probabilities of another dtype": (
        lambda: F.cross_entropy(LINE, DOUBLES),
        DtypeError,
        "cross_entropy: logits is float32, target is float64: convert one with .to(dtype)",
    ),
    "too many classes": (
        lambda: F.cross_entropy(ROW, [0, 1]),
        ShapeError,
        "cross_entropy: logits (1, 3) have the classes in dimension 1, so the target has shape "
        "(1,), got (2,)",
    ),
    "targets that fit nowhere": (
        lambda: F.cross_entropy(BLOCK, [0, 1]),
        ShapeError,
        "cross_entropy: logits (2, 3, 4) have the classes in dimension 1, so the target has shape "
        "(2, 4), got (2,)",
    ),
    "classes in the last dimension": (
        lambda: F.nll_loss(BLOCK, np.zeros((2, 3), int)),
        ShapeError,
        "nll_loss: logits (2, 3, 4) have the classes in dimension 1, so the target has shape "
        "(2, 4), got (2, 3); if the classes come last, write logits.transpose(1, -1)",
    ),
    "a class too large": (
        lambda: F.cross_entropy(ROW, [3], ignore_index=-1),
        IndexError,
        "cross_entropy: class 3 is out of range for 3 classes (0 to 2, or ignore_index=-1)",
    ),
    "a negative class": (
        lambda: F.nll_loss(ROW, [-1]),
        IndexError,
        "cross_entropy: class -1 is out of range for 3 classes (0 to 2, or ignore_index=-100)",
    ),
    "weights of another dtype": (
        lambda: F.cross_entropy(ROW, [1], DOUBLES),
        DtypeError,
        "a weighted loss: scores is float32, weight is float64: convert one with .to(dtype)",
    ),
    "weights of nll_loss in a list": (
        lambda: F.nll_loss(ROW, [1], [1.0, 2.0, 3.0]),
        TypeError,
        f"a weighted loss: weight {NO_TENSOR}",
    ),
    "targets of other shape": (
        lambda: F.mse_loss(ROW, LINE),
        ShapeError,
        "mse_loss: x (1, 3) and target (3,) must have one shape",
    ),
    "logarithms of other shape": (
        lambda: F.kl_div(ROW, LINE),
        ShapeError,
        "kl_div: x (1, 3) and target (3,) must have one shape",
    ),
    "truths of other shape": (
        lambda: F.binary_cross_entropy_with_logits(ROW, LINE),
        ShapeError,
        "binary_cross_entropy_with_logits: x (1, 3) and target (3,) must have one shape",
    ),
    "a loss of integers": (lambda: F.mse_loss(INTEGERS, LINE), DtypeError, f"x {NO_FLOATS}"),
    "a target that is whole": (
        lambda: F.mse_loss(LINE, INTEGERS),
        DtypeError,
        f"target {NO_FLOATS}",
    ),
    "a target in a list": (
        lambda: F.kl_div(LINE, [1.0, 2.0, 3.0]),
        TypeError,
        f"target {NO_TENSOR}",
    ),
    "a divergence reduced to the middle": (
        lambda: F.kl_div(LINE, LINE, reduction="middle"),
        ValueError,
        'reduction must be "batchmean", "mean", "sum" or "none", got \'middle\'',
    ),
    "argmax of two dimensions": (
        lambda: ROW.argmax((0, 1)),
        ShapeError,
        "argmax takes one dimension, or None for all elements, got (0, 1)",
    ),
    "argmin of two dimensions": (
        lambda: ROW.argmin((0, 1)),
        ShapeError,
        "argmin takes one dimension, or None for all elements, got (0, 1)",
    ),
    "max of two dimensions": (
        lambda: ROW.max((0, 1)),
        TypeError,
        "max and min take one dimension, got (0, 1): amax and amin take several",
    ),
    "more than there are": (
        lambda: ROW.topk(4),
        ShapeError,
        "topk: k is 4, but dim -1 of (1, 3) has 3 elements",
    ),
    "a negative number of the largest": (
        lambda: ROW.topk(-1),
        ShapeError,
        "k must be an integer >= 0, got -1",
    ),
    "weights that are integers": (
        lambda: INTEGERS.multinomial(1),
        DtypeError,
        f"multinomial {NO_FLOATS}",
    ),
    "no drawing": (
        lambda: LINE.multinomial(0),
        ShapeError,
        "num_samples must be an integer >= 1, got 0",
    ),
    "weights in three dimensions": (
        lambda: BLOCK.multinomial(1),
        ShapeError,
        "multinomial takes weights (N,) or (B, N), got (2, 3, 4)",
    ),
    "a negative weight": (
        lambda: ta.tensor([1.0, -2.0, -3.0]).multinomial(1),
        ValueError,
        "multinomial takes finite weights >= 0, as softmax makes them of scores, got -2.0",
    ),
    "too few weights": (
        lambda: ta.tensor([[1.0, 2.0, 3.0], [0.0, 5.0, 0.0]]).multinomial(2),
        ValueError,
        "multinomial takes 2 weights > 0 at least in a row, got 1",
    ),
    "no weight to draw again and again": (
        lambda: ta.zeros(3).multinomial(2, replacement=True),
        ValueError,
        "multinomial takes 1 weights > 0 at least in a row, got 0",
    ),
    "numbers close to those of another dtype": (
        lambda: LINE.allclose(DOUBLES),
        DtypeError,
        "allclose takes one dtype, got float32 and float64",
    ),
    "close to a list": (lambda: LINE.allclose([1.0]), TypeError, f"other {NO_TENSOR}"),
    "equal to a list": (lambda: LINE.equal([1.0]), TypeError, f"other {NO_TENSOR}"),
    **{
        f"{name} of integers": (getattr(INTEGERS, name), DtypeError, f"{name} {NO_FLOATS}")
        for name in ("mean", "var", "std", "norm")
    },
    "another norm": (
        lambda: LINE.norm(3),
        ValueError,
        'norm takes p=1, 2, float("inf") or "fro" (as 2), got 3',
    ),
    **{
        f"a negative correction of {name}": (
            lambda name=name: getattr(LINE, name)(correction=-1),
            ShapeError,
            "correction must be an integer >= 0, got -1",
        )
        for name in ("var", "std")
    },
    "a remainder of nothing": (
        lambda: INTEGERS % 0,
        ZeroDivisionError,
        "an integer was divided by 0: use .to(ta.float32) for inf or NaN",
    ),
    "a quotient by nothing": (
        lambda: INTEGERS // (INTEGERS - 1),
        ZeroDivisionError,
        "an integer was divided by 0: use .to(ta.float32) for inf or NaN",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_message_names_the_function_the_argument_and_what_came(name: str) -> None:
    call, kind, message = REFUSED[name]
    with pytest.raises(kind) as found:
        call()
    assert type(found.value) is kind
    assert str(found.value) == message


LOSSES: dict[str, Callable[..., Any]] = {
    "cross_entropy": lambda **options: F.cross_entropy(ROW, [1], **options),
    "cross_entropy with weights": lambda **options: F.cross_entropy(ROW, [1], LINE, **options),
    "cross_entropy of probabilities": lambda **options: F.cross_entropy(ROW, ROW, **options),
    "cross_entropy of places": lambda **options: F.cross_entropy(
        BLOCK, np.zeros((2, 4), int), **options
    ),
    "nll_loss": lambda **options: F.nll_loss(ROW, [1], **options),
    "nll_loss with weights": lambda **options: F.nll_loss(ROW, [1], LINE, **options),
    "mse_loss": lambda **options: F.mse_loss(LINE, LINE, **options),
    "binary_cross_entropy_with_logits": lambda **options: F.binary_cross_entropy_with_logits(
        LINE, LINE, **options
    ),
}


@pytest.mark.parametrize("reduction", ["middle", "batchmean", "numel", None])
@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_refuses_another_reduction(name: str, reduction: Any) -> None:
    with pytest.raises(ValueError, match="reduction") as found:
        LOSSES[name](reduction=reduction)
    assert str(found.value) == f'reduction must be "mean", "sum" or "none", got {reduction!r}'


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
@pytest.mark.parametrize("shape", [(1, 3), (1, 3, 2), (3,)])
@pytest.mark.parametrize("sizes", [(), (0,), (1,), (2,), (4,), (1, 3), (3, 1), (3, 2), (1, 3, 1)])
def test_there_is_one_weight_for_each_class(
    name: str, shape: tuple[int, ...], sizes: tuple[int, ...]
) -> None:
    target = np.zeros((*shape[:1], *shape[2:]) if len(shape) > 1 else (), int)
    with pytest.raises(ShapeError) as found:
        getattr(F, name)(ta.ones(shape), target, ta.ones(sizes))
    assert str(found.value) == f"weight must have shape (3,), got {sizes}"


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
@pytest.mark.parametrize("number", [-(2**63), 2**63 - 1, np.int8(2)])
def test_an_ignored_class_is_any_integer_of_64_bits(name: str, number: Any) -> None:
    loss = getattr(F, name)(ROW, [0], ignore_index=number, reduction="none")
    assert loss.item() == pytest.approx({"nll_loss": -1.0, "cross_entropy": 2.4076059}[name])


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
@pytest.mark.parametrize("number", [-(2**63) - 1, 2**63, 1.0, True, None, "0"])
def test_an_ignored_class_that_is_no_integer_of_64_bits_is_refused(name: str, number: Any) -> None:
    with pytest.raises(DtypeError) as found:
        getattr(F, name)(ROW, [0], ignore_index=number)
    assert str(found.value) == f"ignore_index must be an integer of 64 bits, got {number!r}"


@pytest.mark.parametrize("sizes", [(0, 3, 2), (2, 3, 0)])
def test_arrays_without_numbers_have_one_dtype_too(sizes: tuple[int, int, int]) -> None:
    rows, width, columns = sizes
    x, weight = ta.zeros(rows, width), ta.zeros(columns, width, dtype=ta.float64)
    message = r"^linear: x is float32, weight is float64: convert one with \.to\(dtype\)$"
    with pytest.raises(DtypeError, match=message):
        F.linear(x, weight)


@pytest.mark.parametrize("shape", [(2, 3), (1, 1, 3), (3, 1), (1, 2)])
def test_a_value_does_not_enlarge_the_tensor_that_it_fills(shape: tuple[int, ...]) -> None:
    message = r"^a value broadcasts to the shape of the tensor, \(1, 3\), got shape "
    with pytest.raises(ShapeError, match=message + re.escape(str(shape))):
        ta.full((1, 3), ta.zeros(*shape))
