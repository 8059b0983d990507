"""Equations of einsum that NumPy answers too: letters in every order, in every operand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common import leaf, rng_of, signed

import tinyattn as ta
from tinyattn.errors import ShapeError
from tinyattn.ops.einsum import letters_of, ordered, single, sizes_of_letters, summed

SIZES = dict(zip("abijkmxz", (2, 3, 4, 2, 3, 5, 2, 3), strict=True))
EQUATIONS = """
    kij->ki  kij->ik  zax->x  zax->xz  jik->k  ba  ba->  ij,ji->  ij,ji->i  ij,ji->j  ijk,kji->
    ijk,kij->j  ijk,jki->i  ijk,kjm->im  ijk,kjm->mi  kij,jkm->im  abij,jibm->am  abij,jiab->ba
    zx,xz  ba,ca  ab,ca  ka,bk  ik,k  k,ik  i,j  j,i  i,j->ji  i,i  i,i->i  kb,kb->bk  ij,kj->ik
    ij,jk,k  ij,jk,km->im  mk,kj,ji->im  i,j,k->kij  ij,k,jk->i  ij,a,jm,am->i  i,a,k,ak->i
    ai,b,j,ab->ij  ab,i,j,ba->ji  a,b,i,j,abij->  a,k,b,k->ab  a,k,b,m,kmab->m  k,i,j,kij->k
    aij,ak,am->kij  kai,maj->akm  kai,maj->m  kai,maj->  xk,,k->x  ,ij->ji
"""


@pytest.mark.parametrize("equation", EQUATIONS.split())
def test_values_and_gradients_of_an_equation(equation: str) -> None:
    rng, sizes = rng_of(0), SIZES | {"c": 4}
    names = equation.partition("->")[0].split(",")
    arrays = [signed(rng, *(sizes[letter] for letter in name)) for name in names]
    tensors = [leaf(array) for array in arrays]
    out = ta.einsum(equation, *tensors)
    right = np.einsum(equation, *arrays)
    assert out.shape == right.shape
    np.testing.assert_allclose(out.detach().numpy(), right, rtol=1e-12, atol=1e-12)
    cotangent = signed(rng, *right.shape)
    found = ta.grad(out, tensors, ta.tensor(cotangent))
    for i, gradient in enumerate(found):
        direction = signed(rng, *arrays[i].shape)
        moved = np.einsum(equation, *arrays[:i], direction, *arrays[i + 1 :])  # linear in each
        expected = (moved * cotangent).sum()
        assert gradient.shape == arrays[i].shape
        assert (gradient.numpy() * direction).sum() == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("equation", ["ab,ab->ab", "ab,bc->ac", "ab,ab->", "ab,a->b", "ab,b->a"])
@pytest.mark.parametrize("ones", ["first", "second", "both"])
def test_a_size_of_one_broadcasts_in_either_operand(equation: str, ones: str) -> None:
    rng = rng_of(1)
    first, second = equation.partition("->")[0].split(",")
    x, y = (signed(rng, *(SIZES.get(n, 4) for n in name)) for name in (first, second))
    shared = set(first) & set(second)
    letter = sorted(shared)[0]
    small, large = [], []
    for name, array, others in ((first, x, "second"), (second, y, "first")):
        part = array.take([0], name.index(letter)) if ones != others else array
        small.append(part)
        large.append(np.broadcast_to(part, array.shape) if ones != "both" else part)
    found = ta.einsum(equation, *map(ta.tensor, small))
    np.testing.assert_allclose(found.numpy(), np.einsum(equation, *large), rtol=1e-12)


WRONG: dict[str, tuple[str, tuple[tuple[int, ...], ...]]] = {
    "too few letters": ("i", ((2, 3),)),
    "too many letters": ("ijk", ((2, 3),)),
    "too few letters in the last": ("ij,j", ((2, 3), (3, 4))),
    "two sizes": ("ij,jk", ((2, 3), (4, 5))),
    "two sizes in the last of three": ("ij,jk,k", ((2, 3), (3, 5), (4,))),
    "two sizes in one": ("ii", ((2, 3),)),
    "too few operands": ("ij,jk", ((2, 3),)),
    "too many operands": ("ij", ((2, 3), (3, 4))),
    "a letter of the result alone": ("ij->ik", ((2, 3),)),
    "a letter of the result twice": ("ij->ii", ((2, 3),)),
    "a digit": ("i1->i", ((2, 3),)),
    "fewer dimensions than letters": ("...ijk", ((2, 3),)),
    "dots behind the arrow alone": ("ij->...ij.", ((2, 3),)),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_equation_that_does_not_fit_is_named_with_the_shapes(name: str) -> None:
    equation, shapes = WRONG[name]
    with pytest.raises(ShapeError) as refused:
        ta.einsum(equation, *(ta.ones(shape) for shape in shapes))
    assert str(refused.value).endswith(f"; got {equation!r} and shapes {list(shapes)}")


def test_steps_of_an_equation(rng: Any) -> None:
    assert letters_of(" ba, ac ", [(2, 3), (3, 4)]) == (
        ["ba", "ac"],
        "bc",
        {"b": 2, "a": 3, "c": 4},
    )
    names, out, sizes = letters_of("...a,...->a...", [(5, 2, 3), (2,)])
    assert names == ["cba", "b"]
    assert (out, sizes) == ("acb", {"c": 5, "b": 2, "a": 3})
    assert sizes_of_letters(["ij", "jk"], [(1, 3), (1, 2)]) == {"i": 1, "j": 3, "k": 2}
    assert sizes_of_letters(["ij", "jk"], [(1, 1), (3, 2)]) == {"i": 1, "j": 3, "k": 2}
    assert sizes_of_letters(["i", "i"], [(0,), (1,)]) == {"i": 0}
    assert sizes_of_letters(["i", "i"], [(0,), (2,)]) is None
    x = signed(rng, 3, 1, 2)
    name, part = single("zba", ta.tensor(x), {"z": 3, "b": 4, "a": 2})
    assert name == "za"
    np.testing.assert_array_equal(part.numpy(), x[:, 0])
    name, part = summed("zba", ta.tensor(x), "az")
    assert name == "za"
    np.testing.assert_allclose(part.numpy(), x.sum(1))
    np.testing.assert_array_equal(ordered("zba", ta.tensor(x), "azb").numpy(), x.transpose(2, 0, 1))
