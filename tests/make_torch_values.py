"""What PyTorch computes for the cases that tests compare with: of layers, optimizers, and each op.

    python tests/make_torch_values.py        writes tests/torch_values.npz (needs PyTorch)

A case draws its arrays from a seed and says what PyTorch makes of them. Only the results are
stored, so a test without PyTorch draws the same arrays and compares with the file, and a test with
PyTorch computes the results anew. Nothing here imports tinyattn, but for the rows of
`gradients/op_table`, whose values and gradients are stored as "op/name of the row".

Arrays are leaves with gradients if they are floating, except "grad", the cotangent. A case's
results are "out" and "d.name" for the gradient of each array.
"""

from __future__ import annotations

import math
import sys
import zlib
from pathlib import Path

import numpy as np

CASES = {}


def case(*variants):
    """Register `function(rng, *variant) -> (arrays, reference)` under its name and the variant."""

    def register(function):
        base = function.__name__
        for variant in variants or ((),):
            name = ".".join([base, *map(str, variant)])
            CASES[name] = (function, variant)
        return function

    return register


def names(base):
    """The cases registered under a function's name."""
    return [name for name in CASES if name == base or name.startswith(f"{base}.")]


def build(name):
    """The arrays of a case, and the function that gives PyTorch's outputs from torch tensors."""
    function, variant = CASES[name]
    # RandomState, since NumPy promises that its numbers stay what they are.
    return function(np.random.RandomState(zlib.crc32(name.encode())), *variant)


def arrays_of(name):
    return build(name)[0]


def torch_results(name):
    """PyTorch's answers: a dict of NumPy arrays."""
    import torch

    arrays, reference = build(name)
    if name.startswith(("sgd", "adam", "clip")):
        return reference(torch)
    t = {key: torch.from_numpy(np.array(value)) for key, value in arrays.items()}
    leaves = {}
    for key, value in t.items():
        if value.is_floating_point() and key != "grad":
            leaves[key] = value.requires_grad_()
    out = reference(torch, t)
    out.backward(t["grad"])
    results = {"out": out.detach().numpy()}
    for key, value in leaves.items():
        results[f"d.{key}"] = value.grad.numpy()
    return results


def signed(rng, *shape):
    return rng.choice([-1.0, 1.0], shape) * rng.uniform(0.5, 1.5, shape)


def draw(rng, **shapes):
    return {name: signed(rng, *shape) for name, shape in shapes.items()}


# Layers


@case((True,), (False,))
def linear(rng, bias):
    arrays = draw(rng, x=(2, 3, 5), weight=(4, 5), grad=(2, 3, 4))
    if bias:
        arrays["bias"] = signed(rng, 4)

    def reference(torch, t):
        return torch.nn.functional.linear(t["x"], t["weight"], t.get("bias"))

    return arrays, reference


LAYER_NORMS = [((6,), 1e-5), ((6,), 1e-12), ((3, 6), 0.1), ((2, 3, 6), 1e-5)]


@case(*[(i,) for i in range(len(LAYER_NORMS))])
def layer_norm(rng, i):
    sizes, eps = LAYER_NORMS[i]
    arrays = draw(rng, x=(2, 3, 6), weight=sizes, bias=sizes, grad=(2, 3, 6))

    def reference(torch, t):
        return torch.nn.functional.layer_norm(t["x"], sizes, t["weight"], t["bias"], eps)

    return arrays, reference


@case((None,), (0,), (3,))
def embedding(rng, padding_idx):
    arrays = draw(rng, weight=(5, 4), grad=(2, 6, 4))
    arrays["ids"] = np.array([[0, 3, 3, 1, 0, 3], [4, 4, 0, 3, 1, 1]])

    def reference(torch, t):
        return torch.nn.functional.embedding(t["ids"], t["weight"], padding_idx)

    return arrays, reference


@case(("none",), ("tanh",))
def gelu(rng, approximate):
    x = np.concatenate([np.linspace(-7, 7, 57), signed(rng, 7)])
    arrays = {"x": x, "grad": signed(rng, 64)}

    def reference(torch, t):
        return torch.nn.functional.gelu(t["x"], approximate=approximate)

    return arrays, reference


# Attention

SIZES = {"B": 3, "H": 2, "Q": 4, "K": 5}


def keep_mask(rng, kind):
    """True = may attend. No row is empty: there PyTorch has no single answer."""
    B, H, Q, K = SIZES.values()
    if kind == "none":
        return None
    if kind == "lens":
        return np.arange(K) < np.array([5, 2, 1])[:, None]
    shape = {"keys": (B, K), "queries": (B, Q, K), "heads": (B, H, Q, K)}[kind]
    keep = rng.uniform(size=shape) < 0.6
    keep[..., 1] = True
    return keep


def four(keep):
    """(B, K) -> (B, 1, 1, K) and (B, Q, K) -> (B, 1, Q, K)."""
    return keep[:, None, None] if keep.ndim == 2 else keep[:, None] if keep.ndim == 3 else keep


@case(
    *[(kind, causal) for kind in ("none", "lens", "keys", "queries", "heads") for causal in (0, 1)],
    ("scale", 0),
)
def attention(rng, kind, causal):
    B, H, Q, K = SIZES.values()
    arrays = draw(rng, q=(B, H, Q, 6), k=(B, H, K, 6), v=(B, H, K, 3), grad=(B, H, Q, 3))
    keep = None if kind == "scale" else keep_mask(rng, kind)
    if keep is not None:
        if causal:
            keep[..., 0] = True
        arrays["keep"] = keep

    def reference(torch, t):
        mask = None if keep is None else four(t["keep"])
        options = {"scale": 0.3} if kind == "scale" else {}
        if causal:
            if mask is None:
                options["is_causal"] = True
            else:
                mask = mask & torch.ones(Q, K, dtype=torch.bool).tril()
        function = torch.nn.functional.scaled_dot_product_attention
        return function(t["q"], t["k"], t["v"], attn_mask=mask, **options)

    return arrays, reference


def module_case(torch, module, t, *args, prefix="", **kwargs):
    """The output of a torch module with its parameters taken from the arrays."""
    parameters = {name: t[prefix + name] for name, _ in module.named_parameters()}
    return torch.func.functional_call(module, parameters, args, kwargs)


@case(
    *[(kind, bias) for kind in ("none", "lens", "keys", "queries", "heads") for bias in (0, 1)],
    ("self", 1),
)
def multi_head(rng, kind, bias):
    """With key and value sizes of their own, except in "self"."""
    B, H, Q, K = SIZES.values()
    width, key_size, value_size = 6, (6 if kind == "self" else 5), (6 if kind == "self" else 7)
    if kind == "self":
        arrays = draw(rng, x=(B, Q, width), in_proj_weight=(3 * width, width))
    else:
        arrays = draw(
            rng,
            queries=(B, Q, width),
            keys=(B, K, key_size),
            values=(B, K, value_size),
            q_proj_weight=(width, width),
            k_proj_weight=(width, key_size),
            v_proj_weight=(width, value_size),
        )
    arrays["out_proj.weight"] = signed(rng, width, width)
    if bias:
        arrays["in_proj_bias"] = signed(rng, 3 * width)
        arrays["out_proj.bias"] = signed(rng, width)
    arrays["grad"] = signed(rng, B, Q, width)
    keep = None if kind == "self" else keep_mask(rng, kind)
    if keep is not None:
        arrays["keep"] = keep

    def reference(torch, t):
        module = torch.nn.MultiheadAttention(
            width,
            H,
            bias=bool(bias),
            kdim=key_size,
            vdim=value_size,
            batch_first=True,
            dtype=torch.float64,
        )
        options = {"need_weights": False}
        if keep is not None and keep.ndim == 2:
            options["key_padding_mask"] = ~t["keep"]
        elif keep is not None:  # (B * H, Q, K), True = ignored
            options["attn_mask"] = ~four(t["keep"]).expand(B, H, Q, K).reshape(B * H, Q, K)
        inputs = [t["x"]] * 3 if kind == "self" else [t["queries"], t["keys"], t["values"]]
        out, _ = module_case(torch, module, t, *inputs, **options)
        return out

    return arrays, reference


# The encoder

WIDTH, HEADS, INNER, LAYERS = 6, 3, 10, 2


def encoder_shapes(norm, prefix="", layers=LAYERS):
    shapes = {}
    for i in range(layers):
        name = f"{prefix}layers.{i}."
        shapes[name + "self_attn.in_proj_weight"] = (3 * WIDTH, WIDTH)
        shapes[name + "self_attn.in_proj_bias"] = (3 * WIDTH,)
        shapes[name + "self_attn.out_proj.weight"] = (WIDTH, WIDTH)
        shapes[name + "self_attn.out_proj.bias"] = (WIDTH,)
        shapes[name + "linear1.weight"] = (INNER, WIDTH)
        shapes[name + "linear1.bias"] = (INNER,)
        shapes[name + "linear2.weight"] = (WIDTH, INNER)
        shapes[name + "linear2.bias"] = (WIDTH,)
        for part in ("norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias"):
            shapes[name + part] = (WIDTH,)
    if norm == "pre":
        shapes[prefix + "norm.weight"] = shapes[prefix + "norm.bias"] = (WIDTH,)
    return shapes


def draw_weights(rng, shapes):
    """Signed, and small enough that no layer saturates."""
    return {
        name: signed(rng, *shape) / (math.sqrt(shape[-1]) if len(shape) > 1 else 1.0)
        for name, shape in shapes.items()
    }


def torch_encoder(torch, norm, activation, eps):
    layer = torch.nn.TransformerEncoderLayer(
        WIDTH,
        HEADS,
        INNER,
        dropout=0.0,
        activation=activation,
        layer_norm_eps=eps,
        batch_first=True,
        norm_first=norm == "pre",
        dtype=torch.float64,
    )
    last = torch.nn.LayerNorm(WIDTH, eps=eps, dtype=torch.float64) if norm == "pre" else None
    return torch.nn.TransformerEncoder(layer, LAYERS, norm=last, enable_nested_tensor=False)


@case(*[(norm, act) for norm in ("pre", "post") for act in ("relu", "gelu")])
def encoder_layer(rng, norm, activation):
    arrays = draw(rng, x=(3, 4, WIDTH), grad=(3, 4, WIDTH))
    arrays["keep"] = np.arange(4) < np.array([4, 1, 3])[:, None]
    arrays |= draw_weights(rng, encoder_shapes("post", layers=1))

    def reference(torch, t):
        layer = torch_encoder(torch, norm, activation, 1e-5).layers[0]
        inputs = {"src_key_padding_mask": ~t["keep"]}
        return module_case(torch, layer, t, t["x"], prefix="layers.0.", **inputs)

    return arrays, reference


@case(*[(norm, act) for norm in ("pre", "post") for act in ("relu", "gelu")])
def encoder(rng, norm, activation):
    arrays = draw(rng, x=(3, 4, WIDTH), grad=(3, 4, WIDTH))
    arrays["keep"] = np.arange(4) < np.array([2, 4, 3])[:, None]
    arrays |= draw_weights(rng, encoder_shapes(norm))

    def reference(torch, t):
        module = torch_encoder(torch, norm, activation, 1e-5)
        return module_case(torch, module, t, t["x"], src_key_padding_mask=~t["keep"])

    return arrays, reference


def decoder_shapes(norm, layers=LAYERS):
    """Those of an encoder, with a second attention and its norm in each layer."""
    shapes = encoder_shapes(norm, layers=layers)
    for i in range(layers):
        for part in ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"):
            own = shapes[f"layers.{i}.self_attn.{part}"]
            shapes[f"layers.{i}.multihead_attn.{part}"] = own
        for part in ("weight", "bias"):
            shapes[f"layers.{i}.norm3.{part}"] = (WIDTH,)
    return shapes


def torch_decoder(torch, norm, activation, dtype=None):
    options = {"dropout": 0.0, "batch_first": True, "dtype": dtype or torch.float64}
    layer = torch.nn.TransformerDecoderLayer(
        WIDTH, HEADS, INNER, activation=activation, norm_first=norm == "pre", **options
    )
    last = torch.nn.LayerNorm(WIDTH, dtype=options["dtype"]) if norm == "pre" else None
    return torch.nn.TransformerDecoder(layer, LAYERS, norm=last)


def decoder_arrays(rng, shapes):
    """A memory of another length than x; the padding of both is masked."""
    arrays = draw(rng, x=(3, 4, WIDTH), memory=(3, 6, WIDTH), grad=(3, 4, WIDTH))
    arrays["keep"] = np.arange(6) < np.array([2, 6, 3])[:, None]
    arrays["tgt_keep"] = np.arange(4) < np.array([4, 2, 1])[:, None]
    return arrays | draw_weights(rng, shapes)


def decoder_inputs(torch, t):
    future = torch.ones(4, 4, dtype=torch.bool).triu(1)
    return {
        "tgt_mask": future,
        "tgt_key_padding_mask": ~t["tgt_keep"],
        "memory_key_padding_mask": ~t["keep"],
    }


@case(("pre", "relu"), ("post", "gelu"))
def decoder_layer(rng, norm, activation):
    arrays = decoder_arrays(rng, decoder_shapes("post", layers=1))

    def reference(torch, t):
        layer = torch_decoder(torch, norm, activation).layers[0]
        inputs = decoder_inputs(torch, t)
        return module_case(torch, layer, t, t["x"], t["memory"], prefix="layers.0.", **inputs)

    return arrays, reference


@case(("pre", "gelu"), ("post", "relu"))
def decoder(rng, norm, activation):
    arrays = decoder_arrays(rng, decoder_shapes(norm))

    def reference(torch, t):
        module = torch_decoder(torch, norm, activation)
        return module_case(torch, module, t, t["x"], t["memory"], **decoder_inputs(torch, t))

    return arrays, reference


PACKED_LENGTHS = [2, 0, 4, 1]


@case(*[(norm, how) for norm in ("pre", "post") for how in ("skip_padding", "packed")])
def packed_encoder(rng, norm, how):
    """Sample by sample, each without its padding: zeros in its place, which have no gradient."""
    arrays = draw(rng, x=(4, 5, WIDTH), grad=(4, 5, WIDTH))
    arrays |= draw_weights(rng, encoder_shapes(norm))

    def reference(torch, t):
        module = torch_encoder(torch, norm, "gelu", 1e-5)
        out = torch.zeros(4, 5, WIDTH, dtype=torch.float64)
        for b, n in enumerate(PACKED_LENGTHS):
            if n:
                out[b, :n] = module_case(torch, module, t, t["x"][b : b + 1, :n])[0]
        return out

    return arrays, reference


@case((0,), (1,))
def packed_attention(rng, causal):
    """scaled_dot_product_attention of one sample after the other, of their heads side by side."""
    rows, width, heads = sum(PACKED_LENGTHS), 6, 2
    arrays = draw(rng, qkv=(rows, 3 * width), grad=(rows, width))

    def reference(torch, t):
        outs = []
        for sample in t["qkv"].split([n for n in PACKED_LENGTHS if n]):
            parts = sample.reshape(len(sample), 3, heads, width // heads).permute(1, 2, 0, 3)
            function = torch.nn.functional.scaled_dot_product_attention
            out = function(*parts[:, None], is_causal=bool(causal))  # (1, H, n, d)
            outs.append(out[0].transpose(0, 1).reshape(len(sample), width))
        return torch.cat(outs)

    return arrays, reference


@case()
def bert(rng):
    """Token, position and token-type embeddings, a norm after them, post-norm layers, exact GELU,
    eps 1e-12."""
    shapes = {
        "word.weight": (11, WIDTH),
        "position.weight": (8, WIDTH),
        "type.weight": (2, WIDTH),
        "norm.weight": (WIDTH,),
        "norm.bias": (WIDTH,),
        **encoder_shapes("post", prefix="encoder."),
    }
    arrays = draw_weights(rng, shapes)
    arrays["grad"] = signed(rng, 3, 5, WIDTH)
    arrays["ids"] = rng.randint(1, 11, (3, 5))
    arrays["types"] = rng.randint(0, 2, (3, 5))
    arrays["keep"] = np.arange(5) < np.array([5, 2, 4])[:, None]

    def reference(torch, t):
        embed = torch.nn.functional.embedding
        x = embed(t["ids"], t["word.weight"]) + embed(t["types"], t["type.weight"])
        x = x + t["position.weight"][: x.shape[1]]
        x = torch.nn.functional.layer_norm(x, (WIDTH,), t["norm.weight"], t["norm.bias"], 1e-12)
        module = torch_encoder(torch, "post", "gelu", 1e-12)
        mask = ~t["keep"]
        return module_case(torch, module, t, x, prefix="encoder.", src_key_padding_mask=mask)

    return arrays, reference


# Optimizers: 50 steps on a loss that is neither quadratic nor symmetric.

STEPS = 50
OPTIMIZERS = {
    "sgd.plain": ("SGD", {"lr": 0.05}),
    "sgd.decay": ("SGD", {"lr": 0.05, "weight_decay": 0.1}),
    "sgd.momentum": ("SGD", {"lr": 0.02, "momentum": 0.9}),
    "sgd.momentum_decay": ("SGD", {"lr": 0.02, "momentum": 0.8, "weight_decay": 0.1}),
    "sgd.nesterov": ("SGD", {"lr": 0.02, "momentum": 0.9, "nesterov": True}),
    "sgd.nesterov_decay": (
        "SGD",
        {"lr": 0.02, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    ),
    "adam.plain": ("Adam", {"lr": 0.02}),
    "adam.decay": ("Adam", {"lr": 0.02, "weight_decay": 0.1}),
    "adam.betas": ("Adam", {"lr": 0.05, "betas": (0.7, 0.9), "eps": 1e-3}),
    "adamw.plain": ("AdamW", {"lr": 0.02}),
    "adamw.decay": ("AdamW", {"lr": 0.05, "betas": (0.8, 0.95), "weight_decay": 0.3}),
}


def optimizer_arrays(rng):
    return draw(rng, x=(7, 4), y=(7, 3), weight=(4, 3), bias=(3,))


def register_optimizer(name):
    kind, options = OPTIMIZERS[name]

    def function(rng):
        arrays = optimizer_arrays(rng)

        def reference(torch):
            x, y = (torch.from_numpy(arrays[key]) for key in ("x", "y"))
            weight, bias = (
                torch.nn.Parameter(torch.from_numpy(arrays[key].copy()))
                for key in ("weight", "bias")
            )
            optimizer = getattr(torch.optim, kind)([weight, bias], **options)
            results = {}
            for step in range(1, STEPS + 1):
                optimizer.zero_grad()
                ((torch.tanh(x @ weight + bias) - y) ** 2).sum().backward()
                optimizer.step()
                if step in (1, 2, 10, STEPS):
                    results[f"weight.{step}"] = weight.detach().numpy().copy()
                    results[f"bias.{step}"] = bias.detach().numpy().copy()
            return results

        return arrays, reference

    CASES[name] = (function, ())


for optimizer_name in OPTIMIZERS:
    register_optimizer(optimizer_name)


@case((0.5,), (100.0,), (0.0,))
def clip(rng, max_norm):
    """The last two: nothing to clip, and everything."""
    arrays = draw(rng, a=(3, 4), b=(5,))

    def reference(torch):
        parameters = []
        for name in ("a", "b"):
            parameter = torch.zeros(arrays[name].shape, dtype=torch.float64, requires_grad=True)
            parameter.grad = torch.from_numpy(arrays[name].copy())
            parameters.append(parameter)
        total = torch.nn.utils.clip_grad_norm_(parameters, max_norm)
        results = {"norm": np.array(float(total))}
        for name, parameter in zip(("a", "b"), parameters, strict=True):
            results[name] = parameter.grad.numpy()
        return results

    return arrays, reference


def main():
    here = Path(__file__).parent
    sys.path += [str(here), str(here / "gradients")]
    import rows

    found = {}
    for name in CASES:
        for key, value in torch_results(name).items():
            found[f"{name}/{key}"] = value
    cases = len(CASES) + len(rows.IN_TORCH)
    for row in rows.IN_TORCH:
        found[f"op/{row.name}"] = rows.as_vector(rows.computed_answers(row))
    path = Path(__file__).with_name("torch_values.npz")
    np.savez_compressed(path, **found)
    print(f"{path.name}: {cases} cases, {len(found)} arrays, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
