"""Gradients with a joint norm that is not too large."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..base.backend import Array, namespace, quiet
from ..base.checks import check_number
from ..engine.autograd import wrap
from ..engine.promotion import wider_number
from ..ops.reductions import sum_squares
from ..ops.shapes import pieces
from ..tensors.tensor import Tensor
from .optimizer import tensors_of


def clip_grad_norm_(
    parameters: Iterable[Tensor] | Tensor,
    max_norm: float,
    norm_type: float | str = 2.0,
    error_if_nonfinite: bool = False,
) -> float | Tensor:
    """Scale all gradients together so that their joint norm is at most `max_norm`.

    norm_type: p of the norm (sum |g|^p)^(1/p); inf or "inf" for the largest |g|.
    max_norm: inf only measures.
    Returns the norm before the scaling: a float, or on "cuda" a 0-d Tensor, because Python would
    wait for a float. As in PyTorch, the factor is max_norm / (norm + 1e-6). A norm that is not
    finite is returned and nothing is scaled; with error_if_nonfinite it raises RuntimeError.
    Differs from PyTorch: a gradient that occurs twice counts once.

        >>> w = ta.zeros(2, requires_grad=True)
        >>> w.grad = ta.tensor([3.0, 4.0])
        >>> optim.clip_grad_norm_([w], 1.0), w.grad.norm().item() < 1
        (5.0, True)
    """
    p: Any = math.inf if norm_type == "inf" else norm_type
    for name, value in (("max_norm", max_norm), ("norm_type", p)):
        if value != math.inf:
            check_number(name, value, 0)
    if p == 0:
        raise ValueError("norm_type must be a number > 0, got 0")
    grads = {id(p.grad): p.grad for p in tensors_of(parameters) if p.grad is not None}.values()
    arrays = {id(grad._data): grad._data for grad in grads}  # which Tensors may share
    on_cuda = bool(grads) and all(grad.device == "cuda" for grad in grads)
    if on_cuda and p == 2 and not error_if_nonfinite:
        of_device, parts = clipped_together(list(arrays.values()), max_norm)
        norm: Any = wrap(of_device)
        arrays = dict(zip(arrays, parts, strict=True))
    else:
        norm = joint_norm(list(arrays.values()), p)
        if error_if_nonfinite and not math.isfinite(norm):
            raise RuntimeError(f"the joint norm of the gradients is {norm}: nothing was scaled")
        factor = max_norm / (norm + 1e-6)
        if factor < 1 and math.isfinite(norm):
            arrays = {key: scaled(array, factor) for key, array in arrays.items()}
    for grad in grads:
        grad._data = arrays[id(grad._data)]
    return norm


@quiet
def joint_norm(arrays: list[Array], p: float) -> float:
    """The norm of all elements of these arrays, in float64.

    The numbers are divided by the largest, because powers of them may be 0 or inf.
    """
    arrays = [array for array in arrays if array.size]
    if p == 2:
        norm = math.sqrt(sum(float(sum_squares(x.reshape(1, -1))[0]) for x in arrays))
        if 1e-140 < norm < math.inf:  # all squares are in the range of float64
            return norm
    flat = [array.reshape(-1).astype("float64") for array in arrays]
    largest = float(np.max([0.0, *(float(abs(x).max()) for x in flat)]))  # NaN stays NaN
    if p == math.inf or not 0 < largest < math.inf:
        return largest
    total = sum(float(((abs(x) / largest) ** p).sum()) for x in flat)
    return largest * float(np.float64(total) ** (1 / p))


@quiet
def scaled(array: Array, factor: float) -> Array:
    """array * factor, which may be smaller than the numbers of the dtype."""
    return (array * wider_number(factor, array.dtype)).astype(array.dtype, copy=False)


def clipped_together(arrays: list[Array], max_norm: float) -> tuple[Array, list[Array]]:
    """The joint norm, as an array without dimensions, and the arrays scaled.

    Nobody waits for the norm, and the arrays are joined, because a GPU needs time for each.
    """
    xp = namespace(arrays[0])
    joined = xp.concatenate([array.reshape(-1) for array in arrays])
    norm = xp.sqrt(sum_squares(joined[None])[0])
    factor = xp.where(xp.isfinite(norm), xp.minimum(max_norm / (norm + 1e-6), 1.0), 1.0)
    joined = (joined * factor).astype(joined.dtype, copy=False)
    parts = zip(arrays, pieces(joined, [array.size for array in arrays], 0), strict=True)
    return norm, [part.reshape(x.shape).astype(x.dtype, copy=False) for x, part in parts]
