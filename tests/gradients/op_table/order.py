"""Sorting, running sums, products of all elements, lengths of vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import references as ref
import samples as on
from references import torch_fn

import tinyattn as ta

from .extremes import at
from .kinds import reduction_row
from .refusals import INTS, bad_dims, error, misuse, t
from .row import OpRow


def values_of(name: str) -> Callable[..., Any]:
    return lambda x, **options: getattr(x, name)(**options).values


ROWS: list[OpRow] = [
    OpRow(
        "argsort",
        ta.Tensor.argsort,
        ref.order,
        lambda x, **options: x.argsort(stable=True, **options),
        on.sort_samples,
        bad_dims(ta.Tensor.argsort),
        ("Tensor.argsort",),
        differentiable=(),
        dtype="int64",
    ),
    OpRow(
        "sort",
        values_of("sort"),
        ref.sort,
        values_of("sort"),
        on.sort_samples,
        bad_dims(ta.Tensor.sort),
        spellings={
            "Tensor.sort": lambda x, **options: x.sort(**options)[0],
            "ta.sort": lambda x, **options: ta.sort(x, **options).values,
            "at the indices": lambda x, **options: (
                x.gather(options.get("dim", -1), x.sort(**options).indices) if x.ndim else x.clone()
            ),
        },
        elementwise=True,
        keeps="1 more",
    ),
    OpRow(
        "topk",
        values_of("topk"),
        ref.topk,
        values_of("topk"),
        on.topk_samples,
        [
            error(lambda: t(2, 3).topk(4), ValueError, r"k is 4, .*dim -1 .*\(2, 3\) has 3"),
            error(lambda: t(2, 3).topk(-1), ValueError, "k must be an integer >= 0, got -1"),
            error(lambda: t(2, 3).topk(1.0), ValueError, r"k must be an integer >= 0, got 1\.0"),
            error(lambda: t(2, 3).topk(1, 2), IndexError, r"dim 2 .*\(2, 3\)"),
        ],
        spellings={
            "Tensor.topk": lambda x, **options: x.topk(**options)[0],
            "ta.topk": lambda x, **options: ta.topk(x, **options).values,
        },
        elementwise=True,
        keeps="1 more",
    ),
    OpRow(
        "cumsum",
        ta.Tensor.cumsum,
        ref.cumsum,
        torch_fn("cumsum"),
        on.cumsum_samples,
        [
            *bad_dims(ta.Tensor.cumsum),
            *misuse("cumsum")[2:],
            error(lambda: t(3).cumsum(), TypeError, r"cumsum\(\) misses .*'dim'"),
            error(
                lambda: t(3).cumsum(0, colour=1),
                TypeError,
                r"cumsum\(\) .* unexpected .*'colour'",
            ),
            error(lambda: t(3).cumsum(0, dtype="text"), TypeError, "not a dtype: 'text'"),
        ],
        ("Tensor.cumsum",),
        {
            "from the end": lambda x, dim: (
                x.flip(dim).cumsum(dim, reverse=True).flip(dim) if x.ndim else x.cumsum(dim)
            )
        },
        extremes=at("many", "many small", of_largest=True, dim=0),
    ),
    OpRow(
        "prod",
        ta.Tensor.prod,
        ref.prod,
        lambda x, dim=None, **options: x.prod() if dim is None else x.prod(dim, **options),
        on.prod_samples,
        [
            *bad_dims(ta.Tensor.prod),
            error(lambda: t(2, 3).prod((0, 1)), TypeError, r"integer, got \(0, 1\)"),
            error(lambda: t(2, 3).prod(0, 1), TypeError, "keepdim is True or False, got 1"),
        ],
        ("Tensor.prod",),
        elementwise=True,
        reaches=("product_along",),
        steps=4,
        special_torch="there the product is divided by x, which is NaN for inf",
        extremes=[
            *at("ones", of_largest=True),
            *at(
                "large,small",
                function=lambda x, y: ta.cat([x, y])[[0, 3, 1, 4]].prod(0),
                of_largest=True,
            ),
        ],
        keeps="input 0",
    ),
    reduction_row(
        "logsumexp",
        ref.logsumexp,
        on.reduction_samples(),
        errors=[error(lambda: t(2, 3).logsumexp(0, 1), TypeError, "keepdim is True or False")],
        steps=2,
        extremes=[
            *at("many", "large", "many large", of_largest=True),
            *at("ones", "many rows", of_largest=True, dim=1, keepdim=True),
        ],
        torch=ref.torch_logsumexp,
        keeps="3 more",
    ),
    OpRow(
        "norm",
        ta.Tensor.norm,
        ref.norm,
        lambda x, p, dim=None, keepdim=False: torch_fn("norm")(
            x, 2 if p == "fro" else p, tuple(range(x.ndim)) if dim is None else dim, keepdim
        ),
        on.norm_samples,
        [
            *bad_dims(lambda x, dim: x.norm(2, dim)),
            *bad_dims(lambda x, dim: x.norm(1, dim)),
            error(lambda: t(3).norm(3), ValueError, 'p=1, 2, .*"inf".* got 3'),
            error(lambda: INTS.norm(), TypeError, "norm needs a floating dtype, got int64"),
        ],
        ("Tensor.norm",),
        reaches=("euclidean_norm",),
        special_torch="there the slope of |NaN| is 0",
        extremes=[
            *at("small", "large", "many", "many small", of_largest=True),
            *at("small", "many", of_largest=True, p=1),
            *at("large", "many", p=float("inf")),
        ],
        keeps="input 0, output, 1 more",
    ),
]
