"""What to write instead of a name that PyTorch or NumPy has and tinyattn does not.

Nothing here is needed to compute: it is imported when the text of an error is read. The hints for
what `torch_names` has stand there, each in the row or in the docstring of its function. To import
it would give Tensor further methods, so `python tests/make_hints.py` writes them to a file, which
is read here. Below are the hints for names that `torch_names` lacks too.
"""

import json
import re
from difflib import get_close_matches
from functools import cache
from pathlib import Path

import numpy as np

from .base import names

NO_COMPLEX = "there are no complex numbers: nn.RotaryEmbedding turns pairs by cos and sin"
OF_A_LEAF = ", under ta.no_grad() if x is a leaf that requires gradients"
ABSENT = {
    "ta.amp ta.autocast cuda.amp": "delete autocast and GradScaler: dtypes are explicit, "
    "model.to(ta.float16)",
    "ta.bfloat16 Tensor.bfloat16": "NumPy has no bfloat16: float16, float32 and float64 are there",
    "ta.jit": "nothing has to be traced, so delete it: Numba compiles the kernels",
    "ta.asarray": "write ta.as_tensor(data)",
    "ta.cdist": "write (x[..., None, :] - y[..., None, :, :]).norm(dim=-1)",
    "ta.detach": "write x.detach()",
    "ta.distributions": "F.softmax(logits, -1).multinomial(1) draws from a Categorical, and "
    "F.log_softmax(logits, -1).gather(-1, index) has its log_prob",
    "ta.e": "write np.e",
    "ta.fft ta.linalg": "write np.fft or np.linalg with x.numpy(), which records no gradient",
    "ta.complex64 ta.complex128 ta.polar ta.view_as_complex ta.view_as_real": NO_COMPLEX,
    "ta.cfloat ta.cdouble Tensor.cfloat Tensor.cdouble": NO_COMPLEX,
    "ta.count_nonzero Tensor.count_nonzero": "write (x != 0).sum()",
    "ta.diff Tensor.diff": "write x[..., 1:] - x[..., :-1]",
    "ta.median Tensor.median": 'write np.quantile(x.numpy(), 0.5, method="lower")',
    "Tensor.data_ptr": "x.numpy() is the array",
    "Tensor.get_device": "write x.device",
    "Tensor.new": "write ta.zeros(size, dtype=x.dtype, device=x.device)",
    "Tensor.pow_": f"write x **= y{OF_A_LEAF}",
    "Tensor.register_hook Tensor.retains_grad": "x.retain_grad() keeps x.grad of a computed x",
    "Module.register_full_backward_hook": "call x.retain_grad() in forward, and read x.grad",
    "Module.register_forward_pre_hook": "write a module whose forward does it, and calls this one",
    "Tensor.stride": "write x.numpy().strides, in bytes",
    "ta.func ta.vmap": "write functions of whole batches, and ta.grad with create_graph=True",
    "nn.GroupNorm F.group_norm nn.InstanceNorm1d nn.InstanceNorm2d F.instance_norm": "write "
    "F.layer_norm of x.reshape(B, groups, -1), then scale it; instance norm has C groups",
    "nn.HuberLoss F.huber_loss": "write delta * F.smooth_l1_loss(x, y, beta=delta) of torch_names",
    "nn.LazyConv2d nn.LazyBatchNorm1d nn.LazyBatchNorm2d": "leave Lazy out, and write the channels",
    "nn.Mish F.mish": "write x * F.softplus(x).tanh()",
    "nn.PReLU F.prelu": "write ta.where(x > 0, x, weight * x), with an nn.Parameter as weight",
    "nn.ReLU6 nn.Hardtanh F.relu6 F.hardtanh": "write x.clamp(0, 6), or x.clamp(-1, 1)",
    "nn.TripletMarginLoss F.triplet_margin_loss": "write F.relu(margin + d(a, p) - d(a, n)).mean()",
    "nn.Unflatten nn.PixelShuffle F.pixel_shuffle": "write x.reshape(sizes), and x.permute(dims)",
    "nn.ZeroPad2d nn.ConstantPad1d nn.ConstantPad2d": "write F.pad(x, pad, value=value)",
    "nn.ConvTranspose2d nn.Upsample F.interpolate": "write x.repeat_interleave(2, -1), then Conv2d",
    "nn.PairwiseDistance F.pairwise_distance": "write (x - y + 1e-6).norm(dim=-1)",
    "nn.init.eye_": "write w[...] = ta.eye(len(w)), under ta.no_grad()",
    "nn.Buffer": "write module.register_buffer(name, tensor)",
    "nn.DataParallel": "write the module itself: there is one GPU",
    "nn.ParameterDict": "write setattr(module, name, nn.Parameter(data)), and getattr",
    "nn.LogSigmoid": "write -F.softplus(-x)",
    "optim.Adadelta optim.Adagrad optim.Adamax optim.NAdam optim.RAdam": "write optim.Adam",
    "optim.LBFGS": "write scipy.optimize.minimize on x.numpy()",
    "optim.ReduceLROnPlateau": "tinyattn.torch_names.optim.lr_scheduler has it",
    "optim.StepLR": "write optim.LambdaLR(optimizer, lambda epoch: gamma ** (epoch // step_size))",
    "nn.utils.weight_norm nn.utils.spectral_norm": "compute the weight in forward, for F.linear",
    "nn.utils.parameters_to_vector": "write torch.cat([p.reshape(-1) for p in parameters])",
    "nn.utils.vector_to_parameters": "write p.copy_(part.view_as(p)) under torch.no_grad(), for p, "
    "part in zip(parameters, vector.split([p.numel() for p in parameters]))",
    "nn.utils.rnn.PackedSequence nn.utils.rnn.pack_sequence nn.utils.rnn.pack_padded_sequence "
    "nn.utils.rnn.pad_packed_sequence": "give the layer the padded batch: row i ends with output[i,"
    " lengths[i] - 1], but a reversed direction reads the padding first",
    "optim.lr_scheduler.CyclicLR": "write a LambdaLR, which takes any function of the step",
    "utils.data.SubsetRandomSampler": "write DataLoader(Subset(dataset, indices), shuffle=True)",
    "utils.data.WeightedRandomSampler": "write a Sampler whose __iter__ returns "
    "iter(torch.multinomial(weights, num_samples, replacement=True).tolist())",
    "autograd.Function": "write an op with its derivative by @ta.op: the README has one",
    "autograd.detect_anomaly autograd.set_detect_anomaly": "delete it, and ask x.isnan().any()",
    "Module.from_pretrained": "write module.weight.data = array, or module.load_state_dict(state); "
    "ta.interop.load_torch_state_dict reads one of PyTorch",
    "Module.type": "write module.to(dtype)",
}
# Of NumPy, which gives most of these names to PyTorch too; {} stands for the name. What torch_names
# has under a name of NumPy, as `clip`, has its hint there.
FROM_NUMPY = {
    # Some of these methods take a dimension where NumPy needs none.
    "x.{}()": "all allclose amax amin any argmax argmin argsort cos cumsum diagonal exp expm1 "
    "isfinite isnan log log1p max mean min prod reciprocal reshape roll sign sin sqrt square "
    "squeeze sum tanh tril triu",
    "x.{}": "shape ndim",
    "x.{}(correction=0)": "var std",
    "ta.{}(x)": "zeros_like ones_like",
    "ta.{}(x, y)": "maximum minimum",
    "ta.{}([x, y])": "stack hstack vstack",
    "x + y": "add",
    "x - y": "subtract",
    "x * y": "multiply",
    "x % y": "remainder",
    "x ** y": "power float_power",
    "x @ y": "matmul dot linalg.matmul",
    "x == y": "equal",
    "x != y": "not_equal",
    "x < y": "less",
    "x <= y": "less_equal",
    "x >= y": "greater_equal",
    "-x": "negative",
    "abs(x)": "absolute fabs",
    "(x != 0) ^ (y != 0)": "logical_xor",
    "ta.where(condition, x, y)": "where",
    "x.sin() / x.cos()": "tan",
    "x @ y.mT": "inner",
    "x.outer(y)": "outer linalg.outer",
    "ta.einsum(equation, x, y)": "einsum",
    "x.norm()": "linalg.norm linalg.vector_norm",
    "x.T, or x.permute(dims)": "transpose",
    "x.permute(dims)": "moveaxis",
    "x.transpose(dim0, dim1)": "swapaxes",
    "x.unsqueeze(dim)": "expand_dims",
    "x.clone()": "copy",
    "x.repeat_interleave(repeats)": "repeat",
    "x.chunk(pieces), or x.split(size)": "split array_split",
    "ta.cat([x, y])": "concatenate append",
    "x.gather(dim, index)": "take_along_axis",
    "x.flip(dims)": "flip",
    "x.reshape(-1)[index]": "take",
    "F.pad(x, pad)": "pad",
    "x.sort().values": "sort",
    "x.equal(y)": "array_equal",
    "ta.full_like(x, value)": "full_like",
    "x.numel()": "size",
}
# Of the arguments of a module's call.
VISIBLE = "because here True means that a position is visible"
ARGUMENTS = {
    "attn_mask": f"write mask=~attn_mask[None], {VISIBLE}; is_causal=True for a causal mask",
    "key_padding_mask": f"write mask=~key_padding_mask, {VISIBLE}; or valid_lens=lengths",
    "src_key_padding_mask": f"write mask=~src_key_padding_mask, {VISIBLE}; or valid_lens=lengths",
    "tgt_key_padding_mask": f"write mask=~tgt_key_padding_mask, {VISIBLE}; or valid_lens=lengths",
    "memory_key_padding_mask": f"write src_mask=~memory_key_padding_mask, {VISIBLE}",
    "src_mask": f"write mask=~src_mask[None], {VISIBLE}",
    "tgt_mask": f"write mask=~tgt_mask[None], {VISIBLE}; a decoder is causal without a mask",
    "out": "write y = f(x), or y[...] = f(x)",
    "cache": "take cache=, and call its joined(k, v) and store(k, v, N) as MultiHeadAttention does",
    "is_causal": "take is_causal=, and hide later keys as F.scaled_dot_product_attention does",
    "need_weights": "module.attention_weights has the weights after the call",
    "average_attn_weights": "write module.attention_weights.mean(1) after the call",
}
# From the names that PyTorch gives to dtypes, and to the methods that return them, to ours.
PAIRS = """half:float16 float:float32 double:float64 char:int8 short:int16 int:int32 long:int64
    byte:uint8 bool:bool"""
DTYPES: dict[str, str] = dict(pair.split(":") for pair in PAIRS.split())
OWNERS = {"Tensor", *names.OWNERS.values()}


@cache
def added() -> dict[str, str]:
    """The names that torch_names has, with what to write without it, or ""."""
    file = Path(__file__).parent / "torch_names" / "hints.json"
    return json.loads(file.read_text(encoding="utf-8"))


def absent() -> dict[str, str]:
    """The names that neither has, with what to write."""
    return {name: text for names, text in ABSENT.items() for name in names.split()}


def from_numpy(name: str) -> str:
    """What to write instead of a function of NumPy, "" if nothing is known."""
    texts = {name: text for text, names in FROM_NUMPY.items() for name in names.split()}
    return texts.get(name, "").format(name) or added().get(f"ta.{name}", "").removeprefix("write ")


def instead(owner: str, name: str, names: list[str]) -> str:
    """What to write instead of owner.name, where the names are those of the owner."""
    key = f"{owner}.{name}"
    if text := absent().get(key) or added().get(key):
        return text + OF_A_LEAF if text.startswith("write x[...] = ") else text
    if owner in ("ta", "Tensor") and (text := from_numpy(name)):
        return f"write {text}"
    for module in (np, np.linalg) if owner in ("ta", "Tensor") else ():
        if callable(found := vars(module).get(name)) and not isinstance(found, type):
            return f"{module.__name__}.{name} has it, of x.numpy(), and records no gradient"
    if not name.endswith("_") or name.startswith("_"):
        return ""
    if operator := re.fullmatch(r"write x ([-+*/]+) y", instead(owner, name[:-1], names)):
        return f"write x {operator[1]}= y{OF_A_LEAF}"
    if name[:-1] in names:
        return f"write x = x.{name[:-1]}(...), or x[...] = value{OF_A_LEAF}"
    text = f"methods do not change x: make a new tensor, or write x[...] = value{OF_A_LEAF}"
    return text if owner == "Tensor" else ""


def close_to(name: str, names: list[str]) -> list[str]:
    """The names that somebody may have meant, who left out a letter or swapped two. What differs
    more, as `acos` and `cos`, means something else."""
    letters = name[:1].lower(), sorted(name.lower())
    swapped = [n for n in names if (n[:1].lower(), sorted(n.lower())) == letters]
    if swapped and not name.isupper():
        return swapped
    longer = [n for n in names if n in (f"{name}_", f"{name}_loss")]
    return longer or get_close_matches(name, names, cutoff=0.92)


def explained(owner: str, name: str, names: list[str]) -> str:
    """The text of the error for a name that an owner lacks, which has these names."""
    # A module of nn, or of the user, is no part of the tables.
    part = owner if owner in OWNERS else "Module"
    text = f"tinyattn has no {owner}.{name}"
    text = text if owner in OWNERS else f"{owner!r} object has no attribute {name!r}"
    names = [other for other in names if not other.startswith("_")]
    is_there = f"{part}.{name}" in added()
    if told := instead(part, name, names):
        text += f": {told}"
    elif not name.startswith("_") and not is_there and (close := close_to(name, names)):
        text += f"; did you mean {', '.join(close)}?"
    return text + ("; tinyattn.torch_names has it" if is_there else "")
