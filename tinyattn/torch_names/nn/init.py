"""The names of tinyattn.nn.init, and PyTorch's further starting values."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.random import generator
from ...nn import init as _init
from ...tensors.tensor import Tensor
from ..devices import adapted


def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0
) -> Tensor:
    """N(mean, std^2) of which only what lies between a and b is taken.

    Raises ValueError if nothing can lie there. It needs SciPy.

    In tinyattn: write nn.init.normal_(w, mean, std), then w.clamp(a, b) for w[...] under
    ta.no_grad()
    """
    from scipy.special import ndtr, ndtri  # all else here runs without SciPy

    low, high = ndtr((np.array([a, b]) - mean) / std)
    if not low < high:
        raise ValueError(f"no number of N({mean}, {std}^2) lies between a={a} and b={b}")
    numbers = mean + std * ndtri(generator().uniform(low, high, _init.checked(tensor).shape))
    return _init.fill(tensor, numbers.clip(a, b))


def orthogonal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """A matrix (rows, ...) with orthogonal rows or columns, times gain: Saxe et al., 2013."""
    _init.fans(tensor)  # because a vector has no rows
    rows, columns = len(tensor), tensor.numel() // len(tensor)
    q, r = np.linalg.qr(generator().standard_normal((max(rows, columns), min(rows, columns))))
    q = q * np.sign(np.diag(r))  # so that all such matrices are equally probable
    return _init.fill(tensor, gain * (q if rows >= columns else q.T).reshape(tensor.shape))


_calculate_fan_in_and_fan_out = _init.fans  # which programs call, though it is private


if TYPE_CHECKING:
    from ...nn.init import *  # noqa: F403
else:
    __all__ = ["orthogonal_", "trunc_normal_"]
    FOUND = vars(_init) | globals()
    FUNCTIONS = {name: adapted(x) for name, x in FOUND.items() if name[-1] == "_" != name[0]}
    globals().update(FUNCTIONS)

    def __getattr__(name: str) -> Any:  # of PyTorch's old names too, which have no _ at their end
        return FUNCTIONS.get(f"{name}_") or getattr(_init, name)
