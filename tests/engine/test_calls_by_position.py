"""The order of the arguments of each public function, and what each is if it is left out.

A program that calls by position, `x.std(0, False)`, gets other numbers without an error where two
arguments change places. A change of this table is a change for users, to be named in the notes.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import masks

ORDERS = """
alibi_bias: num_heads queries keys=None dtype=None device=None past=0
all: x dim=None keepdim=False **numpy_names
allclose: x other rtol=1e-05 atol=1e-08 equal_nan=False
amax: x dim=None keepdim=False **numpy_names
amin: x dim=None keepdim=False **numpy_names
any: x dim=None keepdim=False **numpy_names
arange: start end=None step=1 dtype=None device=None requires_grad=False
argmax: x dim=None keepdim=False **numpy_names
argmin: x dim=None keepdim=False **numpy_names
argsort: x dim=-1 descending=False stable=True
as_tensor: data dtype=None device=None
backward: self gradient=None retain_graph=None create_graph=False
binary_cross_entropy_with_logits: x target reduction='mean'
bmm: x other
cat: tensors dim=0
causal: n past=0
chunk: x chunks dim=0
clamp: x min=None max=None
cross_entropy: logits target weight=None ignore_index=-100 reduction='mean' label_smoothing=0.0
cumsum: x dim * dtype=None reverse=False
diagonal: x offset=0 dim1=0 dim2=1
dot: x other
dropout: x p=0.5 training=True
einsum: equation *operands
embedding: ids weight padding_idx=None
empty: *shape dtype=float32 device=None requires_grad=False
enable_grad: function=None
equal: x other
expand: x *sizes
expand_as: x other
eye: n m=None dtype=float32 device=None requires_grad=False
flatten: x start_dim=0 end_dim=-1
flip: x *sizes dims=()
from_dlpack: x copy=None
from_numpy: array copy=True
from_valid_lens: valid_lens num_keys
full: shape fill_value dtype=None device=None requires_grad=False
full_like: x fill_value * dtype=None device=None requires_grad=False
gather: x dim index
gelu: x approximate='none'
grad: outputs inputs grad_outputs=None retain_graph=None create_graph=False allow_unused=False
kl_div: x target reduction='mean' log_target=False
layer_norm: x normalized_shape weight=None bias=None eps=1e-05
linear: x weight bias=None
linspace: start end steps dtype=float32 device=None requires_grad=False
log_softmax: x dim=-1 dtype=None
logsumexp: x dim=None keepdim=False
masked_fill: x mask value
masked_mean: x valid_lens=None mask=None
masked_softmax: scores valid_lens=None mask=None is_causal=False past=0
matmul: x y
max: x dim=None keepdim=False **numpy_names
maximum: x y
mean: x dim=None keepdim=False **numpy_names
min: x dim=None keepdim=False **numpy_names
minimum: x y
mse_loss: x target reduction='mean'
multinomial: x num_samples replacement=False
nll_loss: log_probs target weight=None ignore_index=-100 reduction='mean'
no_grad: function=None
norm: x p='fro' dim=None keepdim=False
normalize: x p=2.0 dim=1 eps=1e-12
one_hot: ids num_classes=-1
ones: *shape dtype=float32 device=None requires_grad=False
ones_like: x * dtype=None device=None requires_grad=False
op: forward=None * promote=False floats=False saves=False differentiable=True
outer: x other
pack_padded_sequence: x valid_lens
pad: x pad mode='constant' value=None
pad_packed_sequence: x valid_lens length=None
padding: ids pad_id=0
permute: x *dims
pow: x y
prefix: prefix_lens n
prod: x dim=None keepdim=False * dtype=None
rand: *shape dtype=float32 device=None requires_grad=False
rand_like: x * dtype=None device=None requires_grad=False
randint: low=0 high=None size=None dtype=int64 device=None
randn: *shape dtype=float32 device=None requires_grad=False
randn_like: x * dtype=None device=None requires_grad=False
randperm: n device=None
remainder: x y
repeat: x *sizes
repeat_interleave: x repeats dim=None
requires_grad_: self requires_grad=True
reshape: x *sizes
rms_norm: x normalized_shape weight=None eps=None
roll: x shifts dims=None
rotary_embedding: x positions=None base=10000.0 rates=None halves=False
scaled_dot_product_attention: query key value mask=None valid_lens=None is_causal=False \
dropout_p=0.0 scale=None return_weights=False bias=None attn_mask=None window=None enable_gqa=False
sequence_mask: x valid_lens value=0
size: self dim=None
softmax: x dim=-1 dtype=None
sort: x dim=-1 descending=False stable=True
split: x sizes dim=0
squeeze: x dim=None
stack: tensors dim=0
std: x dim=None unbiased=True keepdim=False * correction=None **numpy_names
subsequent_mask: n past=0
sum: x dim=None keepdim=False * dtype=None **numpy_names
sum_to: x shape
swapaxes: x dim0 dim1
tensor: data dtype=None device=None requires_grad=False
to: self *args dtype=None device=None
topk: x k dim=-1 largest=True sorted=True
transpose: x dim0 dim1
transpose_output: x num_heads
transpose_qkv: x num_heads
tril: x diagonal=0
triu: x diagonal=0
type_as: self other
unbind: x dim=0
unsqueeze: x dim
var: x dim=None unbiased=True keepdim=False * correction=None **numpy_names
view: x *sizes
where: condition x y
window: n width past=0
zeros: *shape dtype=float32 device=None requires_grad=False
zeros_like: x * dtype=None device=None requires_grad=False
"""


def order_of(function: Any) -> str:
    """As in the table: `*` alone stands before what is given by its name."""
    parts: list[str] = []
    for x in inspect.signature(function).parameters.values():
        default = x.default.__name__ if isinstance(x.default, type) else repr(x.default)
        if x.kind is x.KEYWORD_ONLY and not any(part.startswith("*") for part in parts):
            parts.append("*")
        stars = "*" * (x.kind is x.VAR_POSITIONAL) + "**" * (x.kind is x.VAR_KEYWORD)
        parts.append(stars + x.name + ("" if x.default is x.empty else f"={default}"))
    return " ".join(parts)


def orders() -> Iterator[tuple[str, str]]:
    for owner in (ta, F, masks, ta.Tensor):
        for name in dir(owner):
            if owner is ta and name in ta._LATE_FUNCTIONS:
                continue  # it is there once it has been asked for
            function = inspect.getattr_static(owner, name, None)
            home = getattr(function, "__module__", None) or ""
            if name.startswith("_") or isinstance(function, (type, property)):
                continue
            if callable(function) and home.startswith(f"tinyattn.{'masks' * (owner is masks)}"):
                yield name, order_of(function)


def test_arguments_have_their_order_and_their_defaults() -> None:
    expected = [line.partition(": ") for line in ORDERS.strip().splitlines()]
    table = {name: order for name, _, order in expected}
    found = {name: order for name, order in orders() if len(order.split()) > 1 or "=" in order}
    assert found == table
    for name, order in orders():  # the same function in each place
        assert order == table.get(name, order)


def test_what_is_given_by_position_is_what_its_name_says() -> None:
    x = ta.tensor(np.array([[1.5, -2.0, 4.0], [0.5, 3.0, -1.0]]))
    for name in ("std", "var"):
        call = getattr(x, name)
        for unbiased in (False, True):
            for keepdim in (False, True):
                found = call(1, unbiased, keepdim)
                right = getattr(x.numpy(), name)(1, ddof=int(unbiased), keepdims=keepdim)
                np.testing.assert_allclose(found.numpy(), right, rtol=1e-12)
                assert found.equal(call(keepdim=keepdim, unbiased=unbiased, dim=1))
    for name in ("sum", "mean", "amax", "amin", "argmax", "argmin", "all", "any", "logsumexp"):
        assert getattr(x, name)(1, True).shape == (2, 1)
    assert x.norm(1, 1, True).tolist() == [[7.5], [4.5]]
    assert x.prod(1, True).tolist() == [[-12.0], [-1.5]]
