"""The eighth part of Tensor: sorting, the largest elements, and drawing by weight."""

from __future__ import annotations

from typing import Self, TypeVar

import numpy as np

from ..base import random
from ..base.backend import namespace, quietly, to_device
from ..base.checks import check_size, one_dim, require_float
from ..engine.autograd import wrap
from ..errors import ShapeError
from .reductions import Reductions
from .types import ValuesAndIndices

AnyTensor = TypeVar("AnyTensor", bound=Reductions)


def values_at(x: AnyTensor, dim: int, indices: AnyTensor) -> ValuesAndIndices[AnyTensor]:
    """The elements at these indices along `dim`, and the indices."""
    return ValuesAndIndices(x.gather(dim, indices) if x.ndim else x.clone(), indices)


def first_in_order(x: np.ndarray, k: int, largest: bool) -> np.ndarray | None:
    """The indices of the k largest (or smallest) numbers of each row, not sorted, in a fifth of
    the time of sorting all; None if equal numbers or NaN make them more than k."""
    place = x.shape[-1] - k if largest else k - 1
    last = np.partition(x, place, axis=-1)[..., place, None]
    is_among = ~(x < last) if largest else ~(x > last)
    if (is_among.sum(-1) != k).any():
        return None
    return np.nonzero(is_among)[-1].reshape(*x.shape[:-1], k)


class Order(Reductions):
    """Sorting, the largest elements, drawing by weight."""

    __slots__ = ()

    def argsort(self, dim: int = -1, descending: bool = False, stable: bool = True) -> Self:
        """The indices that sort along `dim`; NaN is largest.

        Equal elements keep their order. `stable` is there because PyTorch has it.
        """
        dim = one_dim(self, dim)
        x, xp = self._data, namespace(self._data)
        if not self.ndim:
            return wrap(xp.zeros((), np.int64))
        if not descending:
            return wrap(xp.argsort(x, axis=dim, kind="stable"))
        back = (*(slice(None),) * dim, slice(None, None, -1))
        return wrap(x.shape[dim] - 1 - xp.argsort(x[back], axis=dim, kind="stable")[back])

    def sort(
        self, dim: int = -1, descending: bool = False, stable: bool = True
    ) -> ValuesAndIndices[Self]:
        """A pair (values, indices), sorted along `dim`; see `argsort`."""
        return values_at(self, dim, self.argsort(dim, descending))

    def topk(
        self, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
    ) -> ValuesAndIndices[Self]:
        """The k largest (or smallest) elements along `dim`: a pair (values, indices).

        They come in order. `sorted` is there because PyTorch has it.
        """
        total = self.shape[one_dim(self, dim)] if self.ndim else 1
        if check_size("k", k, 0) > total:
            raise ShapeError(f"topk: k is {k}, but dim {dim} of {self.shape} has {total} elements")
        if 0 < k <= total // 8 and type(self._data) is np.ndarray:
            candidates = first_in_order(np.moveaxis(self._data, dim, -1), k, largest)
            if candidates is not None:
                chosen = wrap(np.moveaxis(candidates, -1, dim))
                order = self.detach().gather(dim, chosen).argsort(dim, descending=largest)
                return values_at(self, dim, chosen.gather(dim, order))
        indices = self.argsort(dim, descending=largest)
        return values_at(self, dim, indices.split([k, total - k], dim)[0] if self.ndim else indices)

    def multinomial(self, num_samples: int, replacement: bool = False) -> Self:
        """Indices drawn with these weights: (N,) -> (num_samples,), (B, N) -> (B, num_samples).

        The weights are >= 0 and need not add up to 1. Without `replacement` no index comes twice.
        ValueError for weights that cannot be drawn from. Random numbers are tinyattn's own.
        """
        require_float(self.dtype, "multinomial")
        weights = to_device(self._data, "cpu").astype(np.float64)
        count = check_size("num_samples", num_samples)
        if weights.ndim not in (1, 2):
            raise ShapeError(f"multinomial takes weights (N,) or (B, N), got {self.shape}")
        least = 1 if replacement else count
        valid = np.isfinite(weights).all() and (weights >= 0).all()
        if not valid or ((weights > 0).sum(-1) < least).any():
            raise ValueError(f"multinomial takes finite weights >= 0, at least {least} of them > 0")
        if replacement:
            weights = weights / weights.max(-1, keepdims=True)  # because their sum may overflow
            sums = weights.cumsum(-1).reshape(-1, weights.shape[-1])
            levels = random.generator().random((len(sums), count)) * sums[:, -1:]
            rows = [a.searchsorted(b, "right") for a, b in zip(sums, levels, strict=True)]
            drawn = np.array(rows).reshape(*weights.shape[:-1], count)
        else:  # the smallest of exponential random numbers with these rates
            times = random.generator().standard_exponential(weights.shape)
            # Logarithms, because times / weights may overflow.
            ratios = np.log(times) - quietly(np.log, weights)
            drawn = np.argsort(ratios, -1)[..., :count]
        return wrap(to_device(drawn.astype(np.int64), self.device))
