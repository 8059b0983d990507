"""What shapes, indices and joins of tensors refuse, in the very words that say why.

A message names the function or the argument, and the number or the shape that came. So the whole
text is compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from messages import NO_DIM_2, NO_TENSOR, Refused, all_differences

import tinyattn as ta
from tinyattn import ops
from tinyattn.errors import DeviceError, DtypeError, ShapeError
from tinyattn.ops.indexing import putitem, scatter_along

VECTOR, NUMBER, STACK = ta.tensor([1.0, 2.0, 3.0]), ta.tensor(1.0), ta.ones(2, 3, 4)
TABLE = ta.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
NO_NUMBER = " takes a tensor of one dimension or more, got a 0-d tensor"
AS_MANY = "takes an index of as many dimensions, no longer in the others, got "
NO_VIEW = (
    "view: the elements of this (3, 2) tensor do not lie in memory as (6,) needs; use reshape, "
    "which copies"
)

SHAPES: list[Refused] = [
    (lambda: ta.flatten([1.0]), TypeError, "flatten: x" + NO_TENSOR),
    (lambda: ta.squeeze(x=[1.0]), TypeError, "squeeze: x" + NO_TENSOR),
    (
        lambda: TABLE.reshape(-2, 3),
        ShapeError,
        "a size is >= 0, or -1 for the one to be found out, got (-2, 3)",
    ),
    (lambda: TABLE.reshape(4), ShapeError, "reshape does not take (float32[2, 3], 4): ..."),
    (lambda: TABLE.T.view(6), ShapeError, NO_VIEW),
    (lambda: TABLE.squeeze(2), IndexError, NO_DIM_2),
    (
        lambda: TABLE.unsqueeze(3),
        IndexError,
        "dim 3 is out of range for shape (2, 3): expected -3 to 2",
    ),
    (
        lambda: TABLE.unsqueeze(-4),
        IndexError,
        "dim -4 is out of range for shape (2, 3): expected -3 to 2",
    ),
    (lambda: TABLE.flatten(1, 0), ShapeError, "flatten: start_dim 1 lies behind end_dim 0"),
    (lambda: TABLE.flatten(0, 2), IndexError, NO_DIM_2),
    (lambda: TABLE.flatten(2, 2), IndexError, NO_DIM_2),
    (lambda: TABLE.expand(2), ShapeError, "expand does not take (float32[2, 3], 2): ..."),
    (lambda: TABLE.expand(4, 3), ShapeError, "expand does not take (float32[2, 3], 4, 3): ..."),
    (lambda: TABLE.expand_as([1.0]), TypeError, "other" + NO_TENSOR),
    (
        lambda: TABLE.expand_as(ta.ones(4, 3)),
        ShapeError,
        "expand does not take (float32[2, 3], (4, 3)): ...",
    ),
    (
        lambda: ops.sum_to(TABLE, (4,)),
        ShapeError,
        "an array of shape (2, 3) is no broadcast of shape (4,)",
    ),
    (lambda: TABLE.permute(0), ShapeError, "permute takes each of 2 dimensions once, got (0,)"),
    (
        lambda: TABLE.permute(0, 0),
        ShapeError,
        "permute takes each of 2 dimensions once, got (0, 0)",
    ),
    (lambda: TABLE.permute(0, 2), IndexError, NO_DIM_2),
    (lambda: TABLE.transpose(0, 2), IndexError, NO_DIM_2),
    (lambda: STACK.t(), ShapeError, "t() takes at most two dimensions, got (2, 3, 4): use mT"),
    (
        lambda: TABLE.roll((1, 2), 0),
        ValueError,
        "roll takes an integer for each of (0,), got (1, 2)",
    ),
    (lambda: TABLE.roll(0.5, 0), ValueError, "roll takes an integer for each of (0,), got (0.5,)"),
    (
        lambda: TABLE.roll(True, 0),
        ValueError,
        "roll takes an integer for each of (0,), got (True,)",
    ),
    (lambda: TABLE.roll(1, 2), IndexError, NO_DIM_2),
    (
        lambda: TABLE.repeat(2),
        ShapeError,
        "repeat takes a size >= 0 per dimension of (2, 3), got (2,)",
    ),
    (
        lambda: TABLE.repeat(2, -1),
        ShapeError,
        "repeat takes a size >= 0 per dimension of (2, 3), got (2, -1)",
    ),
    (
        lambda: TABLE.repeat_interleave(-1),
        TypeError,
        "repeats is one integer >= 0, or 6 along dim 0, got -1",
    ),
    (
        lambda: TABLE.repeat_interleave([1, 2], 1),
        TypeError,
        "repeats is one integer >= 0, or 3 along dim 1, got [1, 2]",
    ),
    (
        lambda: TABLE.repeat_interleave(0.5),
        TypeError,
        "repeats is one integer >= 0, or 6 along dim 0, got 0.5",
    ),
    (
        lambda: TABLE.repeat_interleave([[1], [1, 2]]),
        ShapeError,
        "repeats: not a rectangular array of numbers, with rows of one length: ...",
    ),
    (lambda: TABLE.repeat_interleave(2, 2), IndexError, NO_DIM_2),
    (lambda: ta.cat(VECTOR), TypeError, "cat takes a list or tuple of Tensors, got Tensor"),
    (lambda: ta.cat([]), TypeError, "cat takes one or more Tensors in a sequence"),
    (lambda: ta.cat([VECTOR, 1.0]), TypeError, "cat takes one or more Tensors in a sequence"),
    (
        lambda: ta.cat([VECTOR, TABLE]),
        ShapeError,
        "concatenate does not take (float32[3], float32[2, 3]): ...",
    ),
    (lambda: ta.cat([TABLE, TABLE], 2), IndexError, NO_DIM_2),
    (
        lambda: ta.cat([TABLE, ta.ones(2, 2)]),
        ShapeError,
        "concatenate does not take (float32[2, 3], float32[2, 2]): ...",
    ),
    (lambda: ta.stack(VECTOR), TypeError, "stack takes a list or tuple of Tensors, got Tensor"),
    (lambda: ta.stack([]), TypeError, "stack takes one or more Tensors in a sequence"),
    (
        lambda: ta.stack([VECTOR, TABLE]),
        ShapeError,
        "stack takes tensors of one shape, got [(3,), (2, 3)]",
    ),
    (
        lambda: ta.stack([VECTOR, VECTOR], 2),
        IndexError,
        "dim 2 is out of range for shape (3,): expected -2 to 1",
    ),
    (lambda: ta.hstack(VECTOR), TypeError, "hstack takes a list or tuple of Tensors, got Tensor"),
    (lambda: ta.hstack([]), TypeError, "hstack takes one or more Tensors in a sequence"),
    (lambda: ta.vstack(VECTOR), TypeError, "vstack takes a list or tuple of Tensors, got Tensor"),
    (lambda: ta.vstack(()), TypeError, "vstack takes one or more Tensors in a sequence"),
    (
        lambda: ta.vstack([VECTOR, ta.ones(2)]),
        ShapeError,
        "concatenate does not take (float32[1, 3], float32[1, 2]): ...",
    ),
]

INDEXING: list[Refused] = [
    (
        lambda: ta.triu(3),
        TypeError,
        "triu: x must be a Tensor, got int 3: wrap it with ta.tensor(...)",
    ),
    (
        lambda: putitem(VECTOR, np.array([0, 1, 3]), (3,)),
        IndexError,
        "index 3 is out of range for dimension 0 with size 3",
    ),
    (
        lambda: putitem(VECTOR, np.array([0, -4, 1]), (3,)),
        IndexError,
        "index -4 is out of range for dimension 0 with size 3",
    ),
    (
        lambda: putitem(VECTOR, slice(0, 2), (3,)),
        ShapeError,
        "putitem takes values of the index' shape (2,), got (3,)",
    ),
    (
        lambda: scatter_along(VECTOR, 0, np.array([0, 1]), (3,)),
        ShapeError,
        "scatter_along takes an index of shape (3,), got (2,)",
    ),
    (
        lambda: scatter_along(VECTOR, 0, np.array([0, 1, 3]), (3,)),
        IndexError,
        "scatter_along: index 3 is out of range for 3 elements (dim 0)",
    ),
    (
        lambda: scatter_along(VECTOR, 0, np.array([0, 1, 2.0]), (3,)),
        DtypeError,
        "scatter_along takes an integer index, got float64",
    ),
    (
        lambda: TABLE.gather(1, ta.tensor([[0], [3]])),
        IndexError,
        "gather: index 3 is out of range for 3 elements (dim 1)",
    ),
    (
        lambda: TABLE.gather(0, ta.tensor([[0, 1, 0, 1]])),
        ShapeError,
        "gather along dim 0 of shape (2, 3) " + AS_MANY + "(1, 4)",
    ),
    (
        lambda: TABLE.gather(1, ta.tensor([[0], [0], [0]])),
        ShapeError,
        "gather along dim 1 of shape (2, 3) " + AS_MANY + "(3, 1)",
    ),
    (
        lambda: TABLE.gather(1, ta.tensor([0])),
        ShapeError,
        "gather along dim 1 of shape (2, 3) " + AS_MANY + "(1,)",
    ),
    (
        lambda: TABLE.gather(1, ta.tensor([[0.5]])),
        DtypeError,
        "gather takes an integer index, got float32",
    ),
    (
        lambda: TABLE.gather(1, ta.tensor([[True], [False]])),
        DtypeError,
        "gather takes an integer index, got bool",
    ),
    (
        lambda: scatter_along(ta.ones(1, 3), 0, np.ones((1, 3), bool), (2, 3)),
        DtypeError,
        "scatter_along takes an integer index, got bool",
    ),
    (
        lambda: scatter_along(ta.ones(1, 3), 0, np.ones((1, 2), np.int64), (2, 3)),
        ShapeError,
        "scatter_along takes an index of shape (1, 3), got (1, 2)",
    ),
    (
        lambda: scatter_along(ta.ones(1, 3), 1, np.full((1, 3), 3), (2, 3)),
        IndexError,
        "scatter_along: index 3 is out of range for 3 elements (dim 1)",
    ),
    (
        lambda: scatter_along(ta.ones(3, 1), 1, np.zeros((3, 1), np.int64), (2, 3)),
        ShapeError,
        "scatter_along along dim 1 of shape (2, 3) " + AS_MANY + "(3, 1)",
    ),
    (lambda: TABLE.gather(1, "a"), DtypeError, "gather takes an integer index, got a"),
    (lambda: TABLE.gather(1, [[0]]), DtypeError, "gather takes an integer index, got [[0]]"),
    (lambda: TABLE.gather(2, ta.tensor([[0]])), IndexError, NO_DIM_2),
    (lambda: TABLE.diagonal(0.5), DtypeError, "offset must be an integer, got 0.5"),
    (lambda: TABLE.diagonal(0, 0, 2), IndexError, NO_DIM_2),
    (lambda: TABLE.diagonal(0, 2, 0), IndexError, NO_DIM_2),
    (
        lambda: TABLE.diagonal(0, 0, 0),
        ShapeError,
        "diagonal does not take (float32[2, 3], 0, 0, 0): ...",
    ),
    (
        lambda: VECTOR.diagonal(),
        IndexError,
        "dim 1 is out of range for shape (3,): expected -1 to 0",
    ),
    (lambda: ta.triu(TABLE, 0.5), DtypeError, "diagonal must be an integer, got 0.5"),
    (lambda: ta.tril(TABLE, True), DtypeError, "diagonal must be an integer, got True"),
    (
        lambda: ta.triu(VECTOR),
        ShapeError,
        "a triangle needs at least two dimensions, got shape (3,)",
    ),
    (lambda: NUMBER.split(1), ShapeError, "split" + NO_NUMBER),
    (lambda: NUMBER.chunk(1), ShapeError, "chunk" + NO_NUMBER),
    (lambda: NUMBER.unbind(), ShapeError, "unbind" + NO_NUMBER),
    (lambda: TABLE.split(1, 2), IndexError, NO_DIM_2),
    (lambda: TABLE.split("a"), TypeError, "split takes integers as sizes, got 'a'"),
    (lambda: TABLE.chunk(0), ShapeError, "chunks must be an integer >= 1, got 0"),
    (lambda: TABLE.chunk(1.5), ShapeError, "chunks must be an integer >= 1, got 1.5"),
    (lambda: TABLE.chunk(1, 2), IndexError, NO_DIM_2),
    (lambda: TABLE.unbind(2), IndexError, NO_DIM_2),
    (lambda: TABLE.flip(2), IndexError, NO_DIM_2),
    (lambda: TABLE.flip(0, 0), ValueError, "a dimension is named twice in (0, 0)"),
]


@pytest.mark.parametrize("table", [SHAPES, INDEXING], ids=["shapes", "indexing"])
def test_the_whole_message(table: list[Refused]) -> None:
    assert not all_differences(table)


MADE_OF_OPS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("triu", "tril", "unbind", "flip", "max", "min", "argsort", "sort"), ()),
    **dict.fromkeys(("square", "rsqrt", "reciprocal", "norm", "prod", "logsumexp"), ()),
    **dict.fromkeys(("squeeze", "flatten", "t"), ()),
    **dict.fromkeys(("split", "chunk", "topk", "multinomial", "view", "unsqueeze"), (1,)),
    **dict.fromkeys(("roll", "repeat", "repeat_interleave"), (1,)),
    **dict.fromkeys(("bmm", "dot", "outer", "expand_as", "allclose", "equal"), (VECTOR,)),
    "clamp": (0.0,),
    "masked_fill": (VECTOR > 0, 0.0),
}


@pytest.mark.parametrize(("given", "came"), [([1.0], "list"), (2.5, "float 2.5"), ("a", "str")])
def test_a_function_names_itself_if_it_is_given_no_tensor(given: Any, came: str) -> None:
    for name, arguments in MADE_OF_OPS.items():
        with pytest.raises(TypeError) as caught:
            getattr(ta.Tensor, name)(given, *arguments)
        assert str(caught.value) == (
            f"{name}: x must be a Tensor, got {came}: wrap it with ta.tensor(...)"
        )


def test_a_function_made_of_ops_knows_the_other_names_of_its_arguments() -> None:
    assert ta.Tensor.flatten.spec.other_names == {"input": "x"}
    assert ta.Tensor.squeeze.spec.other_names == {"input": "x", "axis": "dim"}
    assert ta.Tensor.logsumexp.spec.other_names == {
        "input": "x",
        "axis": "dim",
        "keepdims": "keepdim",
    }


@pytest.mark.parametrize("name", ["cat", "stack", "hstack", "vstack"])
def test_tensors_of_two_devices_are_not_joined(cuda: Any, name: str) -> None:
    with pytest.raises(DeviceError) as caught:
        getattr(ta, name)([TABLE, TABLE.to("cuda")])
    assert str(caught.value) == f"{name} takes tensors on one device, got ['cpu', 'cuda']"
