"""What to write instead of a name that PyTorch has and tinyattn does not.

`UnknownNameError` is the error for an unknown name. docs/from_pytorch.md shows both tables.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

DATA = "data sets and files are other libraries' business"
IN_PLACE = {"add_": "+=", "sub_": "-=", "mul_": "*=", "div_": "/=", "pow_": "**="}
OWNERS = ("ta", "Tensor", "nn", "F", "optim")
LEFT_OUT = {
    "ta.autocast": "dtypes are explicit: model.to(ta.float16)",
    "ta.bfloat16": "NumPy has no bfloat16: float16, float32 and float64 are there",
    "ta.cdist": "((x[:, None] - y[None]) ** 2).sum(-1).sqrt()",
    "ta.compile": "nothing has to be compiled: kernels are, by Numba, when they are first called",
    "ta.complex64": "tensors are real",
    "ta.device": 'devices are strings: "cpu" and "cuda"',
    "ta.float": "ta.float32",
    "ta.double": "ta.float64",
    "ta.half": "ta.float16",
    "ta.int": "ta.int32",
    "ta.long": "ta.int64",
    "ta.FloatTensor": "ta.tensor(data, dtype=ta.float32)",
    "ta.LongTensor": "ta.tensor(data, dtype=ta.int64)",
    "ta.Generator": "ta.manual_seed, ta.get_rng_state and ta.set_rng_state",
    "ta.inference_mode": "ta.no_grad()",
    "ta.is_tensor": "isinstance(x, ta.Tensor)",
    "ta.jit": "nothing has to be traced: kernels are compiled by Numba",
    "ta.mm": "x @ y",
    "ta.mv": "x @ y",
    "ta.normal": "mean + std * ta.randn(size)",
    "ta.utils": DATA,
    "Tensor.apply_": "ta.tensor(function(x.numpy()))",
    "Tensor.data_ptr": "x.data is the array",
    "Tensor.grad_fn": "docs/engine.md shows the recorded graph",
    "Tensor.index_select": "x[index], or x[:, index] for dimension 1",
    "Tensor.int": "x.to(ta.int32)",
    "Tensor.masked_select": "x[mask]",
    "Tensor.new_tensor": "ta.tensor(data, dtype=x.dtype, device=x.device)",
    "Tensor.new_zeros": "ta.zeros(size, dtype=x.dtype, device=x.device)",
    "Tensor.new_ones": "ta.ones(size, dtype=x.dtype, device=x.device)",
    "Tensor.register_hook": "x.retain_grad() keeps the gradient of a computed tensor",
    "Tensor.scatter": "ta.where, or x[index] = value under ta.no_grad()",
    "Tensor.scatter_add": "the gradient of x[index] adds: ta.grad(x[index], x, values)",
    "Tensor.storage": "x.data is the array",
    "Tensor.stride": "x.numpy().strides, in bytes",
    "Tensor.type": "x.dtype, and x.to(dtype)",
    "nn.AdaptiveAvgPool1d": "x.mean(dim)",
    "nn.BatchNorm1d": "nn.LayerNorm, which attention models use",
    "nn.Conv1d": "an nn.Linear over x[:, i : i + k] joined with ta.cat; attention needs none",
    "nn.Conv2d": "an nn.Linear over patches, as examples/train_digits.py does",
    "nn.DataParallel": "one process computes; its threads are tinyattn's own",
    "nn.Flatten": "x.flatten(1)",
    "nn.GRU": "an nn.Linear in a loop over the positions",
    "nn.LSTM": "an nn.Linear in a loop over the positions",
    "nn.MultiheadAttention": "nn.MultiHeadAttention (d2l) or nn.MultiHeadedAttention",
    "nn.ParameterList": "nn.ModuleList of modules that hold them",
    "nn.TransformerEncoder": "nn.Encoder(layer, N)",
    "nn.TransformerEncoderLayer": "nn.EncoderLayer(width, attention, feed_forward, dropout)",
    "F.conv1d": "F.linear over windows",
    "F.conv2d": "F.linear over patches, as examples/train_digits.py does",
    "F.gumbel_softmax": "F.softmax(x - (-ta.rand_like(x).log()).log())",
    "F.multi_head_attention_forward": "nn.MultiHeadAttention",
    "optim.Adagrad": "optim.Adam",
    "optim.LBFGS": "scipy.optimize.minimize on x.numpy()",
    "optim.RMSprop": "optim.Adam with betas=(0, beta2)",
    "optim.lr_scheduler": "the schedules are in optim itself",
}
DIFFERS = {
    "Tensor.data": "a read-only view of the array; values change through x[i] = v",
    "Tensor.__iadd__": "x += y puts its result into new memory, so views keep the old values",
    "Tensor.view": "an error wherever the memory would have to be copied",
    "ta.Tensor": "the same as ta.tensor: integers stay integers",
    "ta.empty": "zeros, so that runs can be repeated",
    "ta.save": "a safetensors file, without pickle",
    "F.softmax": "dim is -1 unless given",
    "F.log_softmax": "dim is -1 unless given",
    "F.mse_loss": "the two shapes must be equal; nothing is broadcast",
    "F.scaled_dot_product_attention": "valid_lens or mask (True = visible); an empty row gives 0",
    "nn.Embedding": "negative ids are errors too",
}


class UnknownNameError(AttributeError):
    """`space` lacks a name: the text says what to write instead, or which names are close.

    The text is made when it is read, because many errors of this kind are only caught: a library
    asks with hasattr whether a Tensor is an array of its own.
    """

    def __init__(self, owner: str, name: str, space: Any) -> None:
        super().__init__(owner, name)
        self.space = space

    def __str__(self) -> str:
        owner, name = self.args
        # A module of nn, or of the user, is no part of the table.
        known = f"tinyattn has no {owner}.{name}"
        text = known if owner in OWNERS else f"{owner!r} object has no attribute {name!r}"
        names = self.space if isinstance(self.space, (dict, list)) else dir(self.space)
        names = [other for other in names if not other.startswith("_")]
        instead = LEFT_OUT.get(f"{owner}.{name}")
        if instead is None and name in IN_PLACE:
            instead = f"x {IN_PLACE[name]} y under ta.no_grad()"
        elif instead is None and name.endswith("_") and name[:-1] in names:
            instead = f"x = x.{name[:-1]}(...), or x[...] = value under ta.no_grad()"
        if instead is not None:
            return f"{text}: write {instead}"
        close = [] if name.startswith("_") else get_close_matches(name, names, n=3)
        return text + (f"; did you mean {', '.join(close)}?" if close else "")
