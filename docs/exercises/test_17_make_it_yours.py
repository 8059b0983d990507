"""Grades exercise 17."""

from typing import Any

import numpy as np
from grading import close, exercise, expect, needs, run

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import ops
from tinyattn.errors import GradcheckError

yours = exercise("ex_17_make_it_yours")
rng = np.random.default_rng(17)


def right(x: np.ndarray, cap: float) -> np.ndarray:
    return cap * np.tanh(x / cap)


def test_kernel() -> None:
    for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 1e-6)):
        x = rng.standard_normal(100).astype(dtype) * 5
        given, out = x.copy(), np.full(100, np.nan, dtype)
        run(yours.kernel, x, 2.0, out)
        expect(close(x, given), "the kernel changes x: write into out")
        expect(not np.isnan(out).any(), "the kernel leaves elements of out as they were: fill all")
        expect(not close(out, right(x, 1.0)), "the kernel computes tanh(x), without its cap")
        expect(not close(out, right(x, 2.0) / 2), "the kernel forgets to multiply by cap")
        expect(close(out, right(x, 2.0), tolerance), "the kernel is not cap * tanh(x / cap)")


def test_rule() -> None:
    x, grad = rng.standard_normal((2, 3, 4)) * 3
    out = right(x, 2.0)
    before = grad.copy()
    found = run(yours.dx, grad, out, 2.0)
    expect(close(grad, before), "the rule writes to grad: others have this array too")
    slope = 1 - np.tanh(x / 2) ** 2
    expect(not close(found, slope), "the rule forgets the gradient of the output: multiply by grad")
    expect(
        not close(found, grad * (1 - out**2)),
        "1 - out**2 is right for cap 1 only: divide out by cap",
    )
    expect(close(found, grad * slope), "the rule is not grad * (1 - tanh(x / cap)**2)")


def test_second_derivative() -> None:
    x = ta.tensor(rng.standard_normal(4), requires_grad=True)
    grad = ta.tensor(rng.standard_normal(4), requires_grad=True)
    found = run(yours.dx, grad, right(x.numpy(), 2.0), 2.0)
    expect(
        isinstance(found, ta.Tensor) and found.requires_grad,
        "the rule gives no Tensor for Tensors, so there is no second derivative: use operators",
    )

    def is_right() -> bool:
        try:
            return ta.gradgradcheck(lambda x: yours.softcap(x, cap=2.0), [x])
        except GradcheckError:
            return False

    expect(run(is_right), "the second derivative of softcap is wrong")


def samples() -> list[ta.Tensor]:
    """Queries (2, 3, 4), keys (2, 5, 4), values (2, 5, 6)."""
    shapes = ((2, 3, 4), (2, 5, 4), (2, 5, 6))
    return [ta.tensor(rng.standard_normal(shape) * 2) for shape in shapes]


def test_layer() -> None:
    needs(test_kernel)
    q, k, v = samples()
    found, other = (run(yours.CappedAttention(cap), q, k, v) for cap in (1e6, 1.5))
    expect(
        isinstance(found, ta.Tensor) and found.shape == (2, 3, 6),
        "attention of (2, 3, 4), (2, 5, 4), (2, 5, 6) is a Tensor (2, 3, 6)",
    )
    expect(
        not close(found.numpy(), other.numpy()),
        "caps of 1.5 and a million give the same: call softcap with the cap of the layer",
    )
    plain = F.scaled_dot_product_attention(q, k, v).numpy()
    expect(
        close(found.numpy(), plain, 1e-6),
        "with a cap of a million, capped attention must be scaled dot-product attention",
    )
    scores = q.numpy() @ k.numpy().swapaxes(1, 2)
    e = np.exp(right(scores / 2, 1.5))
    expected = e / e.sum(-1, keepdims=True) @ v.numpy()
    found = other.numpy()
    e = np.exp(right(scores, 1.5) / 2)
    after = e / e.sum(-1, keepdims=True) @ v.numpy()
    expect(not close(found, after), "scores are divided by sqrt(d) first, and capped then")
    expect(close(found, expected), "softmax(softcap(Q K^T / sqrt(d), cap)) V gives other numbers")


def test_padding() -> None:
    needs(test_layer)
    q, k, v = samples()
    layer = yours.CappedAttention(1.5)
    found = run(layer, q, k, v, [2, 5]).numpy()
    others = [ta.cat([x[:, :2], x[:, 2:] + 1], 1) for x in (k, v)]
    expect(
        close(found[:1], run(layer, q, *others, [2, 5]).numpy()[:1]),
        "keys behind valid_lens have influence: mask the capped scores",
    )
    short = run(layer, q[:1], k[:1, :2], v[:1, :2]).numpy()
    expect(
        close(found[:1], short),
        "a key before the end of valid_lens is hidden: give masked_softmax valid_lens as it is",
    )
    expect(
        close(found, np.concatenate([short, run(layer, q[1:], k[1:], v[1:]).numpy()])),
        "a sample of full length is masked too: each sample has a length of its own",
    )


def with_rule(forward: Any, rule: Any) -> Any:
    """An op like softcap with this forward(x, cap) and this rule(grad, x, cap)."""

    @ta.op
    def softcap(x, *, cap=50.0):
        return forward(x, cap)

    @softcap.vjp("x")
    def dx(grad, x, cap):
        return rule(grad, x, cap)

    return softcap


def slope(x: Any, cap: float) -> Any:
    return 1 - ops.tanh(x / cap) ** 2


OPS = {
    "has a rule for cap 1, whatever cap is": (right, lambda g, x, cap: g * slope(x, 1.0)),
    "forgets the gradient of its output": (right, lambda g, x, cap: slope(x, cap) + 0 * g),
    "gives its gradient on unchanged": (right, lambda g, x, cap: g * 1.0),
    "has a gradient of 0 where scores are beyond cap": (
        right, lambda g, x, cap: g * slope(x, cap) * (abs(x) < cap),
    ),
    "computes tanh(x / cap), without the factor cap, with the derivative of that": (
        lambda x, cap: np.tanh(x / cap), lambda g, x, cap: g * slope(x, cap) / cap,
    ),
    "takes a cap of 50, whatever cap is": (
        lambda x, cap: right(x, 50.0), lambda g, x, cap: g * slope(x, 50.0),
    ),
}  # fmt: skip


def accepts(op: Any) -> bool:
    def check() -> bool:
        try:
            yours.check(op)
        except NotImplementedError:
            raise
        except Exception:
            return False
        return True

    return run(check)


def test_check() -> None:
    for fault, (forward, rule) in OPS.items():
        expect(not accepts(with_rule(forward, rule)), f"your check accepts an op that {fault}")
    op = with_rule(right, lambda g, x, cap: g * slope(x, cap))
    expect(accepts(op), "your check rejects a right op")
