"""The names of tinyattn.functional, and PyTorch's further functions."""

import math
from typing import TYPE_CHECKING, Any

from ... import functional as _functional
from ...engine.grad_mode import no_grad
from ...functional import *  # noqa: F403
from ...ops.arguments import check_same_shape
from ...ops.arithmetic import where
from ...ops.losses import reduced
from ...tensors.create import rand_like
from ...tensors.tensor import Tensor
from ..functions import one_dim, require_probabilities
from ..marks import under_their_names
from ..methods import in_place
from . import windows
from .windows import *  # noqa: F403


def applied(function: Any, input: Tensor, inplace: bool) -> Tensor:
    """function(input); with `inplace` it is the input itself, which then has these values."""
    return in_place(function)(input) if inplace else function(input)


def relu(input: Tensor, inplace: bool = False) -> Tensor:  # type: ignore[no-redef]
    """max(x, 0) of each element."""
    return applied(_functional.relu, input, inplace)


def silu(input: Tensor, inplace: bool = False) -> Tensor:  # type: ignore[no-redef]
    """x sigmoid(x) of each element."""
    return applied(_functional.silu, input, inplace)


def dropout(  # type: ignore[no-redef]
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """`tinyattn.functional.dropout`, or its values in x itself."""
    return applied(lambda x: _functional.dropout(x, p, training), input, inplace and training)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x where x > 0, else negative_slope x.

    In tinyattn: write ta.where(x > 0, x, slope * x)

    >>> import tinyattn.torch_names.nn.functional as F
    >>> F.leaky_relu(ta.tensor([-2.0, 3.0]), 0.5)
    tensor([-1.,  3.])
    """
    return applied(lambda x: where(x > 0, x, negative_slope * x), input, inplace)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where x > 0, else alpha (exp(x) - 1).

    In tinyattn: write ta.where(x > 0, x, alpha * x.clamp(max=0).expm1())
    """
    return applied(lambda x: where(x > 0, x, alpha * x.clamp(max=0).expm1()), input, inplace)


def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x)) of each element, for any x without overflow.

    In tinyattn: write -F.softplus(-x)
    """
    return -_functional.softplus(-input)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """a sigmoid(b), where a and b are the two halves of the input along `dim`."""
    a, b = input.split([input.shape[one_dim(input, dim)] // 2] * 2, dim)
    return a * b.sigmoid()


def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """|x - target|; as in `mse_loss`, the two shapes are equal.

    In tinyattn: write (x - y).abs().mean()

    >>> import tinyattn.torch_names.nn.functional as F
    >>> F.l1_loss(ta.tensor([1.0, 2.0]), ta.tensor([1.0, 5.0]))
    tensor(1.5)
    """
    check_same_shape("l1_loss", input, target)
    return reduced((input - target).abs(), reduction)


def smooth_l1_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """|x - target| - beta / 2, and where |x - target| < beta its square / (2 beta)."""
    check_same_shape("smooth_l1_loss", input, target)
    error = input - target
    # No `where`, because the square of an infinite error would have the gradient 0 * inf; and no
    # `abs`, because at 0 it would lose the derivative of second order.
    near = error.clamp(-beta, beta)
    return reduced(near * (error - near / 2) / beta if beta else error.abs(), reduction)


def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """-target log(x) - (1 - target) log(1 - x), for x from 0 to 1; each logarithm is >= -100.

    Raises ValueError for another x, such as logits.
    Differs from PyTorch: where x is exactly 0 or 1 the gradient is 0, and there up to 1e12.

    In tinyattn: write F.binary_cross_entropy_with_logits, without the sigmoid
    """
    check_same_shape("binary_cross_entropy", input, target)
    require_probabilities("binary_cross_entropy", input, ": call sigmoid before it")
    least = math.exp(-100)
    log_p, log_q = (where(x > least, x.clamp(min=least).log(), -100.0) for x in (input, 1 - input))
    return weighted(-target * log_p - (1 - target) * log_q, weight, reduction)


def binary_cross_entropy_with_logits(  # type: ignore[no-redef]
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """-pos_weight target log(sigmoid(x)) - (1 - target) log(1 - sigmoid(x)), times `weight`."""
    check_same_shape("binary_cross_entropy_with_logits", input, target)
    of_ones = weighted(target * _functional.softplus(-input), pos_weight, "none")
    return weighted(of_ones + (1 - target) * _functional.softplus(input), weight, reduction)


def weighted(losses: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    """The losses times their weights, or their mean or sum."""
    return reduced(losses if weight is None else losses * weight, reduction)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between x1 and x2 along `dim`, which the result lacks.

    In tinyattn: write (F.normalize(x, dim=-1) * F.normalize(y, dim=-1)).sum(-1)
    """
    shape = (x1 == x2).shape  # each has its length in this shape
    x1, x2 = (_functional.normalize(x.expand(shape), dim=dim, eps=eps) for x in (x1, x2))
    return (x1 * x2).sum(dim)


def gumbel_softmax(
    logits: Tensor, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """softmax((logits + noise) / tau), a random sample of softmax(logits) with a gradient.

    hard: the largest as 1, the others as 0, with the gradient of the soft sample.
    Source: Jang et al., "Categorical Reparameterization with Gumbel-Softmax", 2017.

    In tinyattn: write F.softmax(x - (-ta.rand_like(x).log()).log())
    """
    soft = ((logits - (-rand_like(logits).log()).log()) / tau).softmax(dim)
    if not hard:
        return soft
    largest = soft.transpose(dim, -1).argmax(-1)
    one_hot = _functional.one_hot(largest, soft.shape[dim]).to(soft.dtype).transpose(dim, -1)
    return one_hot - soft.detach() + soft


def batch_norm(
    input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5
):
    """(x - mean) / sqrt(var + eps) * weight + bias for each channel of x (B, C, ...).

    In training mean and variance are those of the batch, and the running ones move towards them by
    `momentum`; else the running ones are taken. ValueError in training with one number per channel.
    Source: Ioffe and Szegedy, "Batch Normalization", 2015.
    """
    dims = [i for i in range(input.ndim) if i != 1]
    n = math.prod(input.shape[i] for i in dims)
    mean, var = running_mean, running_var
    if training:
        if n < 2:
            raise ValueError(f"batch_norm needs two numbers per channel to train, x {input.shape}")
        mean, var = input.mean(dims), input.var(dims, correction=0)
        with no_grad():
            for running, new in ((running_mean, mean), (running_var, var * n / (n - 1))):
                if running is not None:
                    running[...] = (1 - momentum) * running + momentum * new
    shape = (-1, *[1] * (input.ndim - 2))
    out = (input - mean.reshape(shape)) / (var.reshape(shape) + eps).sqrt()
    out = out if weight is None else out * weight.reshape(shape)
    return out if bias is None else out + bias.reshape(shape)


def implicit_dim(input: Tensor, dim: int | None) -> int:
    """`dim`, or where it is left out the dimension that PyTorch takes."""
    return int(input.ndim not in (0, 1, 3)) if dim is None else dim


def softmax(input, dim=None, dtype=None):  # type: ignore[no-redef]
    """As in tinyattn, but without `dim` over dimension 0 of 1 or 3, else over dimension 1."""
    return _functional.softmax(input, implicit_dim(input, dim), dtype)


def log_softmax(input, dim=None, dtype=None):  # type: ignore[no-redef]
    """As in tinyattn, but without `dim` over dimension 0 of 1 or 3, else over dimension 1."""
    return _functional.log_softmax(input, implicit_dim(input, dim), dtype)


def softplus(  # type: ignore[no-redef]
    input: Tensor, beta: float = 1.0, threshold: float = 20.0
) -> Tensor:
    """log(1 + exp(beta x)) / beta; x itself where beta x is above a threshold of less than 20.

    Above 20 both are the same but for 2e-9.
    """
    soft = _functional.softplus(input * beta) / beta
    return soft if threshold >= 20 else where(input * beta > threshold, input, soft)


def scaled_dot_product_attention(  # type: ignore[no-redef]
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **options: Any,
) -> Tensor:
    """`tinyattn.functional.scaled_dot_product_attention` with PyTorch's order of arguments.

    attn_mask: booleans, True = visible, or numbers that are added to the scores (B, H, Q, K).

    >>> import tinyattn.torch_names.nn.functional as F
    >>> x = ta.randn(1, 2, 3, 4)
    >>> F.scaled_dot_product_attention(x, x, x, ta.ones(3, 3).tril().bool()).shape
    (1, 2, 3, 4)
    """
    options |= {"attn_mask": attn_mask, "dropout_p": dropout_p, "is_causal": is_causal}
    return _functional.scaled_dot_product_attention(query, key, value, **options)


if not TYPE_CHECKING:
    __all__ = [*dir(_functional), *windows.__all__]
    __all__ += """batch_norm binary_cross_entropy cosine_similarity elu glu gumbel_softmax l1_loss
        leaky_relu logsigmoid smooth_l1_loss""".split()  # noqa: SIM905

    for name in __all__:
        globals()[name] = under_their_names(globals()[name], name)

    def __getattr__(name: str) -> Any:
        return getattr(_functional, name)
