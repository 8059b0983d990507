"""Softmax, its logarithm, its masked form, and the cross-entropy made from it."""

from __future__ import annotations

from .. import kernels
from ..backend import Array
from ..op import op


@op
def softmax(x: Array) -> Array:
    """exp(x) / sum(exp(x)) over the last dimension."""
    return kernels.masked_softmax(x, None, None)


@softmax.vjp("x")
def _(grad, out):
    return kernels.softmax_backward(grad, out)


@op
def masked_softmax(x: Array, *, limits: Array | None, mask: Array | None) -> Array:
    """Softmax over the keys that may be attended to; the others get exactly 0.

    x (B, H, Q, K); limits (B|1, Q|1): how many of the first keys each query sees;
    mask (B|1, H|1, Q|1, K|1), boolean: True where a key may be seen. Either may be None.
    A query that may see no key gets a row of zeros.
    """
    return kernels.masked_softmax(x, limits, mask)


@masked_softmax.vjp("x")
def _(grad, out, limits, mask):
    return kernels.masked_softmax_backward(grad, out, limits, mask)


@op
def log_softmax(x: Array) -> Array:
    """x - log(sum(exp(x))) over the last dimension."""
    return kernels.log_softmax(x)


@log_softmax.vjp("x")
def _(grad, out):
    return kernels.log_softmax_backward(grad, out)


@op
def cross_entropy(logits: Array, target: Array, *, ignore_index: int) -> Array:
    """-log_softmax(logits)[target] for each row: logits (N, C), target (N,) -> (N,).

    Rows whose target is `ignore_index` give 0.
    """
    losses, log_sums = kernels.cross_entropy(logits, target, ignore_index)
    return losses, log_sums


@cross_entropy.vjp("logits")
def _(grad, logits, target, ignore_index, saved):
    return kernels.cross_entropy_backward(grad, logits, target, ignore_index, saved)
