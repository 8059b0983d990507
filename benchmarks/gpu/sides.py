"""The cases, once for each library: `build(case, side)` gives a function to be timed.

Every function does one whole operation and leaves it running on the device; `wait(side)` waits for
it. Both libraries compute in float32 proper: TF32 is off.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import kernels, nn, optim

from .cases import ATTENTION, COPY, LAYER_NORM, SOFTMAX, STEP, Case, Size

Timed = Callable[[], Any]
DROPOUT = 0.1  # as in the CPU's benchmark
LARGE = 1 << 20  # numbers in a batch: of such a model two more would take memory and minutes


def array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


# tinyattn


def encoder(size: Size, p: float = DROPOUT) -> nn.Module:
    ta.manual_seed(0)
    attention = nn.MultiHeadedAttention(size.heads, size.d_model, p)
    feed_forward = nn.PositionwiseFeedForward(size.d_model, size.d_ff, p)
    layer = nn.EncoderLayer(size.d_model, attention, feed_forward, p)
    return nn.Encoder(layer, size.layers)


def trainer(size: Size, p: float) -> tuple[nn.Module, tuple[Any, Any], Callable[..., Any]]:
    """A model on the device, a batch, and a step."""
    model = encoder(size, p).to("cuda")
    optimizer = optim.Adam(model.parameters(), 1e-4)
    x = ta.tensor(array(size.batch, size.length, size.d_model), device="cuda")
    y = ta.tensor(array(*x.shape, seed=1), device="cuda")

    def step(x: Any, y: Any) -> Any:
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return model, (x, y), step


def tinyattn_step(size: Size, captured: bool) -> tuple[Timed, Timed]:
    """A step, and the loss without dropout, in which the libraries must agree."""
    model, (x, y), step = trainer(size, DROPOUT)

    def loss() -> Any:
        if captured and size.batch * size.length * size.d_model < LARGE:
            check_replay(size)
        with ta.no_grad():
            found = F.mse_loss(model.eval()(x), y)
        model.train()
        return found

    chosen = step

    def run() -> Any:
        nonlocal chosen
        if captured and chosen is step:
            chosen = ta.capture(step, x, y)
            run.pools = (chosen.pool,)  # a graph has its own memory
        return chosen(x, y)

    return run, loss


def check_replay(size: Size) -> None:
    """The fourth step, without dropout, is the same from Python and as a launch of the graph."""
    losses = []
    for captured in (False, True):
        _, batch, step = trainer(size, 0.0)
        if captured:
            step = ta.capture(step, *batch)  # which takes three
        else:
            for _ in range(3):
                step(*batch)
        losses.append(step(*batch).item())
    eager, replayed = losses
    if not abs(replayed - eager) <= 1e-4 * abs(eager):
        raise AssertionError(f"the captured step's loss is {replayed}, the eager step's {eager}")


def tinyattn_attention(shape: tuple[int, ...]) -> Timed:
    q, k, v = (ta.tensor(array(*shape, seed=i), device="cuda", requires_grad=True)
               for i in range(3))  # fmt: skip
    grad = ta.tensor(array(*shape, seed=3), device="cuda")

    def run() -> Any:
        for leaf in (q, k, v):
            leaf.grad = None
        F.scaled_dot_product_attention(q, k, v).backward(grad)
        return q.grad

    return run


def tinyattn_rows(kind: str, shape: Any) -> Timed:
    if kind == COPY:
        x = ta.tensor(array(shape), device="cuda")._data
        return x.copy
    x = ta.tensor(array(*shape), device="cuda")._data
    if kind == SOFTMAX:
        return lambda: kernels.masked_softmax(x, None, None)
    weight = ta.ones(shape[1], device="cuda")._data
    return lambda: kernels.layer_norm(x, weight, weight, 1e-5)


# PyTorch


def torch_step(size: Size, device: str, compiled: bool) -> tuple[Timed, Timed]:
    """The same in PyTorch, from the same weights."""
    import torch

    ours = encoder(size)
    layer = torch.nn.TransformerEncoderLayer(
        size.d_model, size.heads, size.d_ff, DROPOUT, batch_first=True, norm_first=True
    )
    model = torch.nn.TransformerEncoder(
        layer, size.layers, torch.nn.LayerNorm(size.d_model), enable_nested_tensor=False
    )
    copy_weights(ours, model)
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4, fused=True)
    x = torch.tensor(array(size.batch, size.length, size.d_model), device=device)
    y = torch.tensor(array(*x.shape, seed=1), device=device)

    def loss_of(x: Any, y: Any) -> Any:
        return torch.nn.functional.mse_loss(model(x), y)

    forward = loss_of
    if compiled:
        torch.compiler.reset()  # else it tries what it compiled for the sizes before, each time
        forward = torch.compile(loss_of, dynamic=False)

    def step() -> Any:
        loss = forward(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss

    def loss() -> Any:
        # Through the same code as a training step: in eval mode PyTorch has another.
        chances = {m: m.p for m in model.modules() if isinstance(m, torch.nn.Dropout)}
        attentions = {m: m.dropout for m in model.modules() if hasattr(m, "in_proj_weight")}
        for module in chances:
            module.p = 0.0
        for module in attentions:
            module.dropout = 0.0
        with torch.no_grad():
            found = loss_of(x, y)
        for module, p in chances.items():
            module.p = p
        for module, p in attentions.items():
            module.dropout = p
        return found

    return step, loss


def copy_weights(ours: Any, theirs: Any) -> None:
    """The same start for both, so that their losses can be compared."""
    import torch

    tensor = lambda *parts: torch.tensor(np.concatenate([p.numpy() for p in parts]))  # noqa: E731
    state: dict[str, Any] = {}
    for i, layer in enumerate(ours.layers):
        a, f, (first, second) = layer.self_attn, layer.feed_forward, layer.sublayer
        at = f"layers.{i}."
        state[at + "self_attn.in_proj_weight"] = tensor(a.W_q.weight, a.W_k.weight, a.W_v.weight)
        state[at + "self_attn.in_proj_bias"] = tensor(a.W_q.bias, a.W_k.bias, a.W_v.bias)
        pairs = {
            "self_attn.out_proj": a.W_o, "linear1": f.w_1, "linear2": f.w_2,
            "norm1": first.norm, "norm2": second.norm,
        }  # fmt: skip
        for name, module in pairs.items():
            state |= {f"{at}{name}.weight": tensor(module.weight),
                      f"{at}{name}.bias": tensor(module.bias)}  # fmt: skip
    state |= {"norm.weight": tensor(ours.norm.weight), "norm.bias": tensor(ours.norm.bias)}
    theirs.load_state_dict(state)


def torch_attention(shape: tuple[int, ...], device: str, plain: bool) -> Timed:
    import torch

    q, k, v = (torch.tensor(array(*shape, seed=i), device=device, requires_grad=True)
               for i in range(3))  # fmt: skip
    grad = torch.tensor(array(*shape, seed=3), device=device)

    def run() -> Any:
        for leaf in (q, k, v):
            leaf.grad = None
        if plain:
            scores = (q @ k.transpose(-1, -2)) / math.sqrt(shape[-1])
            out = torch.softmax(scores, -1) @ v
        else:
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        out.backward(grad)
        return q.grad

    return run


def torch_rows(kind: str, shape: Any, device: str) -> Timed:
    import torch

    if kind == COPY:
        return torch.tensor(array(shape), device=device).clone
    x = torch.tensor(array(*shape), device=device)
    if kind == SOFTMAX:
        return lambda: torch.softmax(x, -1)
    weight = torch.ones(shape[1], device=device)
    return lambda: torch.nn.functional.layer_norm(x, (shape[1],), weight, weight)


def build(case: Case, side: str, device: str) -> tuple[Timed, Timed]:
    """The function to time, and one whose result must be the same for all sides; `device` is where
    PyTorch computes, "cpu" in a dry run."""
    if case.kind == STEP:
        if side in ("tinyattn", "captured"):
            return tinyattn_step(case.shape, side == "captured")
        return torch_step(case.shape, device, side == "torch.compile")
    run = operation(case, side, device)
    return run, run


def operation(case: Case, side: str, device: str) -> Timed:
    if side in ("tinyattn", "captured"):
        if case.kind == ATTENTION:
            return tinyattn_attention(case.shape)
        return tinyattn_rows(case.kind, case.shape)
    if case.kind == ATTENTION:
        return torch_attention(case.shape, device, side == "torch plain")
    assert case.kind in (COPY, SOFTMAX, LAYER_NORM)
    return torch_rows(case.kind, case.shape, device)


def result(value: Any) -> np.ndarray:
    """What an operation left, on the host."""
    if isinstance(value, tuple):
        value = value[0]
    if isinstance(value, ta.Tensor):
        return value.numpy()
    if hasattr(value, "detach"):
        return value.detach().cpu().numpy()
    return ta.backend.to_device(value, "cpu")
