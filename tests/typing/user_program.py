"""What a user writes, and the types that a type checker must know.

test_types.py runs it, and mypy and basedpyright over it: each type that they reveal must be the one
in the comment of its line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, reveal_type

import numpy as np

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import masks, nn, optim, viz
from tinyattn.training import DataLoader, pad_sequence

x = ta.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
reveal_type(x)  # Tensor
reveal_type(ta.zeros(2, 3))  # Tensor
reveal_type(ta.zeros_like(x))  # Tensor
reveal_type(ta.randint(5, (3,)))  # Tensor
reveal_type(ta.cat([x, x]))  # Tensor

# Operators
reveal_type(x * 2)  # Tensor
reveal_type(2 * x)  # Tensor
reveal_type(1 - x / 3)  # Tensor
reveal_type(x @ x)  # Tensor
reveal_type(-x)  # Tensor
reveal_type(x**2)  # Tensor
reveal_type(x + np.ones(2))  # Tensor
reveal_type(x > 0)  # Tensor
reveal_type(x == x)  # Tensor
reveal_type((x > 0) & (x < 3))  # Tensor
reveal_type(x[0])  # Tensor
reveal_type(x[:, None, ..., x[0] > 0])  # Tensor
total = ta.zeros(2, 2)
total += x.detach()
total[0] = 1.5
reveal_type(total)  # Tensor

# Methods, and the same as functions
reveal_type(x.exp())  # Tensor
reveal_type(ta.exp(x))  # Tensor
reveal_type(x.softmax(-1))  # Tensor
reveal_type(ta.softmax(x, dim=-1))  # Tensor
reveal_type(x.sum())  # Tensor
reveal_type(x.sum(axis=0, keepdims=True))  # Tensor
reveal_type(ta.sum(x, (0, 1)))  # Tensor
reveal_type(x.max())  # Tensor
reveal_type(x.max(0))  # ValuesAndIndices[Tensor]
reveal_type(x.max(0).values)  # Tensor
reveal_type(x.max(x))  # Tensor
reveal_type(ta.max(x, 0).indices)  # Tensor
reveal_type(ta.max(x))  # Tensor
reveal_type(x.topk(1).values)  # Tensor
reveal_type(x.reshape(4).view(2, 2).T)  # Tensor
reveal_type(x.split(1))  # tuple[Tensor, ...]
reveal_type(ta.einsum("ij,jk->ik", x, x))  # Tensor
reveal_type(x.to("cpu", ta.float64).float())  # Tensor
reveal_type(x.shape)  # tuple[int, ...]
reveal_type(x.size(0))  # int
reveal_type(x.numel())  # int
reveal_type(x.sum().item())  # float | int
reveal_type(x.tolist())  # list[Any]
reveal_type(bool(x.sum() > 0))  # bool
reveal_type(x.allclose(x))  # bool
for row in x:
    reveal_type(row)  # Tensor

# Gradients
(x * x).sum().backward()
reveal_type(x.grad)  # Tensor | None
reveal_type(ta.grad((x * x).sum(), [x])[0])  # Tensor


@ta.no_grad()
def doubled(x: ta.Tensor, times: int = 1) -> ta.Tensor:
    return x * 2 * times


@ta.enable_grad
def halved(x: ta.Tensor) -> ta.Tensor:
    return x / 2


@ta.set_grad_enabled(True)
def rows(x: ta.Tensor) -> Iterator[ta.Tensor]:
    yield from x


with ta.no_grad():
    reveal_type(doubled(x, times=2))  # Tensor
reveal_type(halved(x))  # Tensor
reveal_type(rows(x))  # Iterator[Tensor]


@ta.op
def scaled(x: Any, *, factor: float) -> Any:
    return x * factor


@scaled.vjp("x")
def dx(grad: Any, factor: float) -> Any:
    return grad * factor


reveal_type(scaled(x, factor=2.0))  # Tensor

# Functions
reveal_type(F.softmax(x))  # Tensor
reveal_type(F.cross_entropy(x, ta.tensor([0, 1])))  # Tensor
q = ta.randn(2, 3, 4)
reveal_type(F.scaled_dot_product_attention(q, q, q))  # Tensor
reveal_type(masks.causal(3))  # Mask

# Modules


class Classifier(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.out = nn.Linear(width, 2)

    def forward(self, x: ta.Tensor, flag: bool = False) -> tuple[ta.Tensor, int]:
        for layer in self.layers:
            x = layer(x).relu()
        return self.out(x), int(flag)


model = Classifier(2)
reveal_type(model(x, flag=True))  # tuple[Tensor, int]
reveal_type(model.layers[0](x))  # Tensor
reveal_type(model.eval().double().float())  # Classifier
reveal_type(nn.Linear(2, 3)(x))  # Tensor
reveal_type(nn.ReLU()(x))  # Tensor
reveal_type(nn.Dropout(0.1)(x))  # Tensor
reveal_type(nn.Sequential(nn.Linear(2, 3), nn.Tanh())(x))  # Tensor
reveal_type(nn.ModuleDict({"a": nn.Linear(2, 2)})["a"](x))  # Tensor
reveal_type(nn.MultiHeadAttention(4, 4, 4, 4, 2)(q, q, q))  # Tensor
reveal_type(model.parameters())  # Iterator[Parameter]
reveal_type(model.state_dict())  # dict[str, Tensor]
optimizer = optim.Adam(model.parameters(), lr=0.01)
reveal_type(optim.clip_grad_norm_(model.parameters(), 1.0))  # float | Tensor
reveal_type(optimizer.step())  # None
reveal_type(optimizer.step(lambda: 1.5))  # float

# What is imported when it is first used
reveal_type(pad_sequence([x, x]))  # Tensor
for columns in DataLoader((x, [0, 1]), 2, shuffle=True):
    reveal_type(columns)  # tuple[Tensor, ...]
for text in DataLoader(["a", "b"], batch_size=2, collate_fn=lambda texts: "".join(texts)):
    reveal_type(text)  # str


def joined(texts: list[str]) -> str:
    return "".join(texts)


reveal_type(DataLoader(["a", "b"], 2, collate_fn=joined))  # DataLoader[str]
for batch in DataLoader([(x, 1)], 1, True, drop_last=True):
    reveal_type(batch)  # Any
reveal_type(ta.batches.DataLoader([(x, 1)], 1))  # DataLoader[Any]
layer = nn.EncoderLayer(4, nn.MultiHeadedAttention(2, 4), nn.PositionwiseFeedForward(4, 8))
print(nn.Encoder(layer, 1)(q), layer.self_attn.num_heads, layer.feed_forward.w_1.weight)
w = ta.randn(3, dtype=ta.float64, requires_grad=True)
reveal_type(ta.gradcheck(lambda w: w.exp(), [w]))  # bool
reveal_type(ta.cuda_is_available())  # bool
ta.save(model.state_dict(), "model.safetensors")
reveal_type(ta.load("model.safetensors"))  # dict[str, Any]
late: list[object] = [ta.gradgradcheck, ta.testing.check_op, ta.checkpoint.save]
late += [ta.generation.generate, ta.interop.torch_state_dict, ta.distributed.get_rank]
late += [viz.show_heatmaps, ta.viz.show_graph, ta.models.BertEncoder]
error: type[Exception] = ta.errors.ShapeError
