"""What tensor cores would round in attention of float16: `python -m benchmarks.gpu.tensor_cores`.

A tensor core multiplies halves and adds in float32. Queries, keys, values and gradients are halves
already. But the weights and the gradients of the scores, which are factors of the second products,
would have to become halves; kernels/gpu/tiled_attention.cu has them in float32. This computes both
in NumPy, in float64 but for the roundings in question. No GPU is needed, and no time is measured.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

KEYS, WIDTH = 2048, 64
SIZES = (1.0, 1e-2, 1e-4)  # of the gradient of the output
Rounding = Callable[[np.ndarray], np.ndarray]


def in_float32(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32).astype(np.float64)


def in_half(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float16).astype(np.float64)


def in_tf32(x: np.ndarray) -> np.ndarray:
    """The digits of float16 and the range of float32: 13 bits of the float32 are rounded off."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)


def in_two_halves(x: np.ndarray) -> np.ndarray:
    """As a sum of two, which costs a second product."""
    return in_half(x) + in_half(x - in_half(x))


ROUNDINGS = {
    "float32": in_float32,
    "float16": in_half,
    "two float16": in_two_halves,
    "TF32": in_tf32,
}


def attention(
    arrays: tuple[np.ndarray, ...], rounded: Rounding
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The output and the gradients of q, k and v of one head, (N, d) each."""
    q, k, v, grad = arrays
    scale = 1 / np.sqrt(q.shape[1])
    scores = q @ k.T * scale
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    total = powers.sum(axis=1, keepdims=True)
    weights, dweights = powers / total, grad @ v.T
    dscores = weights * (dweights - (weights * dweights).sum(axis=1, keepdims=True))
    dscores = rounded(dscores)
    out = rounded(powers) @ v / total
    return out, dscores @ k * scale, dscores.T @ q * scale, rounded(weights).T @ grad


def roundings(size: float) -> dict[str, list[float]]:
    """How far the results are off, in roundings of the largest number to float16."""
    rng = np.random.default_rng(0)
    q, k, v, grad = (rng.standard_normal((KEYS, WIDTH)).astype(np.float16) for _ in range(4))
    halves = q, k, v, (grad * size).astype(np.float16)
    arrays = tuple(x.astype(np.float64) for x in halves)
    right = attention(arrays, lambda x: x)
    return {
        name: [
            float(np.abs(in_half(found) - exact).max() / np.abs(exact).max() / 2**-10)
            for found, exact in zip(attention(arrays, rounded), right, strict=True)
        ]
        for name, rounded in ROUNDINGS.items()
    }


def table() -> str:
    """Roundings of the largest number, as a table of Markdown."""
    lines = ["| gradient of the output | in | out | dq | dk | dv |"]
    lines.append("| --- | --- |" + " ---: |" * 4)
    for size in SIZES:
        for name, numbers in roundings(size).items():
            cells = " | ".join(f"{number:.1f}" for number in numbers)
            lines.append(f"| {size:g} | {name} | {cells} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
