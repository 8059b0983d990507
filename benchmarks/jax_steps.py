"""Training steps in JAX: the loss, its gradients and Adam, which jit compiles as one function.

JAX has no layers and no optimizers, so both are written out, as PyTorch's are in `libraries.py`.
Dropout draws from JAX's own default generator. Padding is computed, because compiled code has fixed
sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .libraries import IGNORE, Encoder, Library, encoder_weights


def linear(x: Any, product: tuple[Any, Any]) -> Any:
    weight, bias = product
    return x @ weight.T + bias


def layer_norm(x: Any, norm: tuple[Any, Any]) -> Any:
    weight, bias = norm
    difference = x - x.mean(-1, keepdims=True)
    variance = jnp.square(difference).mean(-1, keepdims=True)
    return difference * jax.lax.rsqrt(variance + 1e-5) * weight + bias


def dropped(x: Any, p: float, keys: Iterator[Any]) -> Any:
    return jnp.where(jax.random.bernoulli(next(keys), 1 - p, x.shape), x / (1 - p), 0) if p else x


def attention(
    x: Any, products: tuple[Any, Any], heads: int, visible: Any, p: float, keys: Iterator[Any]
) -> Any:
    """products: queries, keys and values as one, and the output; visible: a mask of the scores."""
    inputs, output = products
    batch, n, d = x.shape
    q, k, v = jnp.moveaxis(linear(x, inputs).reshape(batch, n, 3, heads, -1), (2, 3), (0, 2))
    scores = (q / math.sqrt(d // heads)) @ k.swapaxes(-1, -2)
    weights = jax.nn.softmax(jnp.where(visible, scores, -jnp.inf), -1)
    out = dropped(weights, p, keys) @ v  # (B, H, N, D / H)
    return linear(out.swapaxes(1, 2).reshape(batch, n, d), output)


def layer(
    x: Any, weights: Any, heads: int, visible: Any, activation: Callable[[Any], Any],
    p: float, keys: Iterator[Any],
) -> Any:  # fmt: skip
    """A layer of an encoder or of GPT-2: both normalize before attention and before the rest."""
    first, second, qkv, o, w_1, w_2 = weights
    y = attention(layer_norm(x, first), (qkv, o), heads, visible, p, keys)
    x = x + dropped(y, p, keys)
    y = dropped(activation(linear(layer_norm(x, second), w_1)), p, keys)
    return x + dropped(linear(y, w_2), p, keys)


def cross_entropy(logits: Any, target: Any) -> Any:
    """The mean over the positions whose target is not IGNORE."""
    counted = target != IGNORE
    of_target = jnp.take_along_axis(logits, jnp.where(counted, target, 0)[..., None], -1)[..., 0]
    losses = jax.nn.logsumexp(logits, -1) - of_target
    return jnp.where(counted, losses, 0).sum() / counted.sum()


def clipped(gradients: Any, most: float) -> Any:
    """Gradients whose norm, all together, is at most this."""
    norm = jnp.sqrt(sum(jnp.square(g).sum() for g in jax.tree.leaves(gradients)))
    factor = jnp.minimum(1, most / (norm + 1e-6))
    return jax.tree.map(lambda g: g * factor, gradients)


def compiled_step(
    loss_of: Callable[..., Any],
    weights: Any,
    rate: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    decay: float = 0.0,
    most: float = 0.0,
) -> Callable[..., Any]:
    """A function of a batch that takes one step of Adam and gives the loss.

    loss_of  of the weights, a key for random numbers, and the batch
    decay    AdamW's, of matrices only
    most     the greatest norm of the gradients; 0 leaves them as they are
    """

    def moved(w: Any, m: Any, v: Any, count: Any) -> Any:
        step = m / (1 - betas[0] ** count) / (jnp.sqrt(v / (1 - betas[1] ** count)) + 1e-8)
        return w * (1 - rate * decay * (w.ndim > 1)) - rate * step

    def step(weights: Any, m: Any, v: Any, count: Any, *batch: Any) -> Any:
        key = jax.random.fold_in(jax.random.key(0), count)
        loss, gradients = jax.value_and_grad(loss_of)(weights, key, *batch)
        if most:
            gradients = clipped(gradients, most)
        m = jax.tree.map(lambda m, g: betas[0] * m + (1 - betas[0]) * g, m, gradients)
        v = jax.tree.map(lambda v, g: betas[1] * v + (1 - betas[1]) * g * g, v, gradients)
        weights = jax.tree.map(lambda w, m, v: moved(w, m, v, count), weights, m, v)
        return (weights, m, v, count + 1), loss

    function = jax.jit(step, donate_argnums=(0, 1, 2))  # their memory holds the new ones
    weights = jax.tree.map(jnp.array, weights)  # copies, which may be given away
    state = (weights, *(jax.tree.map(jnp.zeros_like, weights) for _ in range(2)), 1)

    def run(*batch: Any) -> Any:
        nonlocal state
        state, loss = function(*state, *batch)
        return loss.block_until_ready()

    return run


class Jax(Library):
    """It has no option for the number of threads: `processes.py` sets the cores that it sees."""

    def tensor(self, array: np.ndarray) -> Any:
        return jnp.asarray(array)

    def encoder_step(
        self, sizes: Encoder, p: float, rng: np.random.Generator, lengths: np.ndarray | None
    ) -> Callable[..., Any]:
        n = sizes.length
        limits = n if lengths is None else jnp.asarray(lengths)[:, None, None, None]

        def loss_of(weights: Any, key: Any, ids: Any, target: Any) -> Any:
            table, layers, last, head = weights
            keys = iter(jax.random.split(key, 4 * len(layers)))
            x = table[ids]
            for each in layers:
                x = layer(x, each, sizes.heads, jnp.arange(n) < limits, jax.nn.relu, p, keys)
            logits = linear(layer_norm(x, last), head)
            return cross_entropy(logits.reshape(-1, sizes.classes), target)

        return compiled_step(loss_of, encoder_weights(sizes, rng))

    def gpt2_step(self, weights: Any, heads: int, **settings: Any) -> Callable[..., Any]:
        """weights: ids, positions, layers as an encoder's, the last norm."""

        def loss_of(weights: Any, _: Any, ids: Any, target: Any) -> Any:
            words, positions, layers, last = weights
            n = ids.shape[1]
            x = words[ids] + positions[:n]
            for each in layers:
                x = layer(x, each, heads, jnp.tri(n, dtype=bool), jax.nn.gelu, 0.0, iter(()))
            return cross_entropy(layer_norm(x, last) @ words.T, target)

        return compiled_step(loss_of, weights, **settings)
