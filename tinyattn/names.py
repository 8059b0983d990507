"""What to write instead of a name that PyTorch has and tinyattn does not.

`UnknownNameError` is the error for an unknown name. docs/from_pytorch.md shows both tables.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

IN_PLACE = {"add_": "+=", "sub_": "-=", "mul_": "*=", "div_": "/=", "pow_": "**="}
OWNERS = ("ta", "Tensor", "nn", "F", "optim")
LEFT_OUT = {
    "ta.autocast": "dtypes are explicit: model.to(ta.float16)",
    "ta.bfloat16": "NumPy has no bfloat16: float16, float32 and float64 are there",
    "ta.cdist": "write ((x[:, None] - y[None]) ** 2).sum(-1).sqrt()",
    "ta.compile": "nothing has to be compiled: kernels are, by Numba, when they are first called",
    "ta.complex64": "tensors are real",
    "ta.device": 'devices are strings: "cpu" and "cuda"',
    "ta.float": "write ta.float32",
    "ta.double": "write ta.float64",
    "ta.half": "write ta.float16",
    "ta.int": "write ta.int32",
    "ta.long": "write ta.int64",
    "ta.FloatTensor": "write ta.tensor(data, dtype=ta.float32)",
    "ta.LongTensor": "write ta.tensor(data, dtype=ta.int64)",
    "ta.Generator": "write ta.manual_seed, ta.get_rng_state and ta.set_rng_state",
    "ta.inference_mode": "write ta.no_grad()",
    "ta.is_tensor": "write isinstance(x, ta.Tensor)",
    "ta.jit": "nothing has to be traced: kernels are compiled by Numba",
    "ta.mm": "write x @ y",
    "ta.mv": "write x @ y",
    "ta.normal": "write mean + std * ta.randn(size)",
    "ta.utils": "tinyattn.batches has DataLoader and pad_sequence; data sets are not here",
    "ta.add": "write x + y",
    "ta.sub": "write x - y",
    "ta.mul": "write x * y",
    "ta.div": "write x / y",
    "ta.neg": "write -x",
    "ta.floor_divide": "write x // y",
    "ta.logical_not": "write ~x",
    "ta.seed": "write ta.manual_seed(seed)",
    "ta.cuda": "ta.cuda_is_available() is there, and devices are strings",
    "Tensor.add": "write x + y",
    "Tensor.sub": "write x - y",
    "Tensor.mul": "write x * y",
    "Tensor.div": "write x / y",
    "Tensor.neg": "write -x",
    "Tensor.copy_": "write x[...] = y under ta.no_grad()",
    "Tensor.fill_": "write x[...] = value under ta.no_grad()",
    "Tensor.zero_": "write x[...] = 0 under ta.no_grad()",
    "Tensor.normal_": "write nn.init.normal_(x)",
    "Tensor.uniform_": "write nn.init.uniform_(x)",
    "Tensor.apply_": "write ta.tensor(function(x.numpy()))",
    "Tensor.data_ptr": "x.data is the array",
    "Tensor.index_select": "write x[index], or x[:, index] for dimension 1",
    "Tensor.int": "write x.to(ta.int32)",
    "Tensor.masked_select": "write x[mask]",
    "Tensor.new_tensor": "write ta.tensor(data, dtype=x.dtype, device=x.device)",
    "Tensor.new_zeros": "write ta.zeros(size, dtype=x.dtype, device=x.device)",
    "Tensor.new_ones": "write ta.ones(size, dtype=x.dtype, device=x.device)",
    "Tensor.register_hook": "x.retain_grad() keeps the gradient of a computed tensor",
    "Tensor.scatter": "write ta.where, or x[index] = value under ta.no_grad()",
    "Tensor.scatter_add": "the gradient of x[index] adds: ta.grad(x[index], x, values)",
    "Tensor.storage": "x.data is the array",
    "Tensor.stride": "write x.numpy().strides, in bytes",
    "Tensor.type": "write x.dtype, and x.to(dtype)",
    "nn.AdaptiveAvgPool1d": "write x.mean(dim)",
    "nn.BatchNorm1d": "write nn.LayerNorm, which attention models use",
    "nn.Conv1d": "write an nn.Linear over x[:, i : i + k] joined with ta.cat; attention needs none",
    "nn.Conv2d": "write an nn.Linear over patches, as examples/train_digits.py does",
    "nn.DataParallel": "write tinyattn.distributed.DistributedDataParallel",
    "nn.Flatten": "write x.flatten(1)",
    "nn.GRU": "write an nn.Linear in a loop over the positions",
    "nn.LSTM": "write an nn.Linear in a loop over the positions",
    "nn.MultiheadAttention": "write nn.MultiHeadedAttention(num_heads, embed_dim)",
    "nn.ParameterList": "write nn.ModuleList of modules that hold them",
    "nn.utils": "optim.clip_grad_norm_ and tinyattn.batches.pad_sequence are there",
    "nn.Transformer": "write nn.EncoderDecoder(encoder, decoder, src_embed, tgt_embed, generator)",
    "nn.TransformerDecoder": "write nn.Decoder(layer, N)",
    "nn.TransformerDecoderLayer": "write nn.DecoderLayer(width, self_attn, src_attn, feed_forward)",
    "nn.TransformerEncoder": "write nn.Encoder(layer, N)",
    "nn.TransformerEncoderLayer": "write nn.EncoderLayer(width, attention, feed_forward, dropout)",
    "F.cosine_similarity": "write (F.normalize(x) * F.normalize(y)).sum(-1)",
    "F.conv1d": "write F.linear over windows",
    "F.conv2d": "write F.linear over patches, as examples/train_digits.py does",
    "F.gumbel_softmax": "write F.softmax(x - (-ta.rand_like(x).log()).log())",
    "F.multi_head_attention_forward": "write nn.MultiHeadAttention",
    "optim.Adagrad": "write optim.Adam",
    "optim.LBFGS": "write scipy.optimize.minimize on x.numpy()",
    "optim.RMSprop": "write optim.Adam with betas=(0, beta2)",
    "optim.lr_scheduler": "the schedules are in optim itself",
}
DIFFERS = {
    "Tensor.data": "a read-only view of the array; values change through x[i] = v",
    "Tensor.__iadd__": "x += y puts its result into new memory, so views keep the old values",
    "Tensor.grad_fn": "a Node with name, parents and saved_values(); it takes no hooks",
    "Tensor.norm": "p is 1, 2 or inf",
    "Tensor.flip": "without dims nothing is flipped",
    "ta.Tensor": "the same as ta.tensor: integers stay integers",
    "ta.empty": "zeros, so that runs can be repeated",
    "ta.from_dlpack": "copies, unless copy=False",
    "ta.from_numpy": "copies, unless copy=False",
    "ta.save": "a safetensors file, without pickle",
    "F.softmax": "dim is -1 unless given",
    "F.log_softmax": "dim is -1 unless given",
    "F.binary_cross_entropy_with_logits": "no weights; reduction comes third",
    "F.cross_entropy": "ignore_index and reduction come fourth and fifth",
    "F.kl_div": "reduction comes third",
    "F.nll_loss": "ignore_index and reduction come fourth and fifth",
    "F.normalize": "p is 1 or 2",
    "F.mse_loss": "the two shapes must be equal; nothing is broadcast",
    "F.scaled_dot_product_attention": "valid_lens or mask (True = visible); an empty row gives 0",
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
        names = self.space if isinstance(self.space, list) else dir(self.space)
        names = [other for other in names if not other.startswith("_")]
        instead = LEFT_OUT.get(f"{owner}.{name}")
        if instead is None and name in IN_PLACE:
            instead = f"write x {IN_PLACE[name]} y under ta.no_grad()"
        elif instead is None and name.endswith("_") and name[:-1] in names:
            instead = f"write x = x.{name[:-1]}(...), or x[...] = value under ta.no_grad()"
        elif instead is None and name.endswith("_") and not name.startswith("_"):
            instead = "methods do not change x; write x[...] = value under ta.no_grad()"
        if instead is not None:
            return f"{text}: {instead}"
        close = [] if name.startswith("_") else get_close_matches(name, names, n=3)
        return text + (f"; did you mean {', '.join(close)}?" if close else "")
