"""What to write instead of a name that PyTorch has and tinyattn does not.

`UnknownNameError` is the error for an unknown name. docs/from_pytorch.md shows both tables.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Any

IN_PLACE = {"add_": "+=", "sub_": "-=", "mul_": "*=", "div_": "/=", "pow_": "**="}
DTYPES = {"float": "float32", "double": "float64", "half": "float16", "long": "int64"}
EXPRESSIONS = {
    "add": "x + y",
    "sub": "x - y",
    "mul": "x * y",
    "div": "x / y",
    "floor_divide": "x // y",
    "neg": "-x",
    "mm": "x @ y",
    "mv": "x @ y",
    "subtract": "x - y",
    "multiply": "x * y",
    "divide": "x / y",
    "true_divide": "x / y",
    "negative": "-x",
    "absolute": "abs(x)",
    "not_equal": "x != y",
    "less": "x < y",
    "less_equal": "x <= y",
    "greater": "x > y",
    "greater_equal": "x >= y",
    "isinf": "abs(x) == ta.inf",
    "log2": "x.log() / np.log(2)",
    "log10": "x.log() / np.log(10)",
    "flipud": "x.flip(0)",
    "fliplr": "x.flip(1)",
    "vdot": "x.dot(y)",
    "eq": "x == y",
    "ne": "x != y",
    "lt": "x < y",
    "le": "x <= y",
    "gt": "x > y",
    "ge": "x >= y",
    "logical_not": "x == 0",
    "logical_and": "(x != 0) & (y != 0)",
    "logical_or": "(x != 0) | (y != 0)",
    "logical_xor": "(x != 0) ^ (y != 0)",
    "floor": "np.floor(x.numpy())",
    "ceil": "np.ceil(x.numpy())",
    "round": "np.round(x.numpy())",
    "unique": "np.unique(x.numpy())",
    "median": 'np.quantile(x.numpy(), 0.5, method="lower")',
    "nonzero": "np.argwhere(x.numpy())",
}
FROM_NUMPY = {
    "remainder": "x % y",
    "power": "x ** y",
    "float_power": "x ** y",
    "matmul": "x @ y",
    "dot": "x @ y",
    "vecdot": "(x * y).sum(-1)",
    "fabs": "abs(x)",
    "equal": "x == y",
    "maximum": "ta.maximum(x, y)",
    "minimum": "ta.minimum(x, y)",
    "where": "ta.where(condition, x, y)",
    "clip": "x.clamp(min, max)",
    "concatenate": "ta.cat([x, y])",
    "append": "ta.cat([x, y])",
    "stack": "ta.stack([x, y])",
    "hstack": "ta.hstack([x, y])",
    "vstack": "ta.vstack([x, y])",
    "einsum": "ta.einsum(equation, x, y)",
    "inner": "x @ y.mT",
    "outer": "x.outer(y)",
    "linalg.outer": "x.outer(y)",
    "linalg.matmul": "x @ y",
    "linalg.norm": "x.norm()",
    "linalg.vector_norm": "x.norm()",
    "linalg.diagonal": "x.diagonal(0, -2, -1)",
    "linalg.matrix_transpose": "x.mT",
    "matrix_transpose": "x.mT",
    "transpose": "x.T, or x.permute(dims)",
    "moveaxis": "x.permute(dims)",
    "swapaxes": "x.transpose(dim0, dim1)",
    "expand_dims": "x.unsqueeze(dim)",
    "broadcast_to": "x.expand(shape)",
    "ravel": "x.flatten()",
    "copy": "x.clone()",
    "tile": "x.repeat(sizes)",
    "repeat": "x.repeat_interleave(repeats)",
    "split": "x.chunk(pieces), or x.split(size)",
    "array_split": "x.chunk(pieces), or x.split(size)",
    "take_along_axis": "x.gather(dim, index)",
    "take": "x[index]",
    "pad": "F.pad(x, pad)",
    "sort": "x.sort().values",
    "amax": "x.amax(dim)",
    "amin": "x.amin(dim)",
    "cumsum": "x.cumsum(dim)",
    "tan": "x.sin() / x.cos()",
    "trace": "x.diagonal().sum()",
    "var": "x.var(correction=0)",
    "std": "x.std(correction=0)",
    "array_equal": "x.equal(y)",
    "zeros_like": "ta.zeros_like(x)",
    "ones_like": "ta.ones_like(x)",
    "empty_like": "ta.zeros_like(x)",
    "full_like": "ta.full_like(x, value)",
    "shape": "x.shape",
    "ndim": "x.ndim",
    "size": "x.numel()",
}
# The same name and the same meaning; some of them take a dimension where NumPy needs none.
SAME_IN_NUMPY = """all allclose any argmax argmin argsort cos diagonal exp expm1 flip isfinite isnan
    log log1p max mean min prod reciprocal reshape roll sign sin sqrt square squeeze sum tanh tril
    triu"""
FROM_NUMPY |= {name: f"x.{name}()" for name in SAME_IN_NUMPY.split()}
# Of these NumPy has the names too.
IN_BOTH = """absolute add divide floor_divide greater greater_equal less less_equal logical_and
    logical_not logical_or logical_xor multiply negative not_equal subtract"""
FROM_NUMPY |= {name: EXPRESSIONS[name] for name in IN_BOTH.split()}
OF_A_LEAF = ", under ta.no_grad() if x is a leaf that requires gradients"
OWNERS = ("ta", "Tensor", "nn", "nn.init", "F", "optim")
LEFT_OUT = {
    "ta.amp": "dtypes are explicit: model.to(ta.float16)",
    "ta.autocast": "dtypes are explicit: model.to(ta.float16)",
    "ta.bfloat16": "NumPy has no bfloat16: float16, float32 and float64 are there",
    "ta.cdist": "write ((x[:, None] - y[None]) ** 2).sum(-1).sqrt()",
    "ta.compile": "nothing has to be compiled: kernels are, by Numba, when they are first called",
    "ta.device": 'devices are strings: "cpu" and "cuda"',
    "ta.Generator": "write ta.manual_seed, ta.get_rng_state and ta.set_rng_state",
    "ta.inference_mode": "write ta.no_grad()",
    "ta.is_tensor": "write isinstance(x, ta.Tensor)",
    "ta.jit": "nothing has to be traced: kernels are compiled by Numba",
    "ta.normal": "write mean + std * ta.randn(size)",
    "ta.concat": "write ta.cat",
    "ta.concatenate": "write ta.cat",
    "ta.finfo": "write np.finfo(x.dtype)",
    "ta.iinfo": "write np.iinfo(x.dtype)",
    "ta.meshgrid": "write x[:, None].expand(len(x), len(y)) and y[None].expand(len(x), len(y))",
    "ta.randint_like": "write ta.randint(low, high, x.shape)",
    "ta.range": "write ta.arange(start, end + step, step)",
    "ta.tensordot": "write ta.einsum",
    "ta.utils": "tinyattn.training has DataLoader and pad_sequence; data sets are not here",
    "ta.cuda": "ta.cuda_is_available() is there, and devices are strings",
    "Tensor.get_device": "write x.device",
    "Tensor.is_contiguous": "write x.numpy().flags.c_contiguous",
    "Tensor.reshape_as": "write x.reshape(y.shape)",
    "Tensor.view_as": "write x.reshape(y.shape)",
    "Tensor.type": "write x.to(dtype), or x.dtype",
    "Tensor.scatter_": "write x[ta.arange(len(x))[:, None], index] = values, for dimension 1 of a "
    "matrix",
    "Tensor.index_put_": "write x[indices] = values, with a tuple of index tensors",
    "Tensor.index_copy_": "write x[index] = values, or x[:, index] for dimension 1",
    "Tensor.index_fill_": "write x[index] = value, or x[:, index] for dimension 1",
    "Tensor.index_add": "write x + F.one_hot(index, len(x)).to(x.dtype).mT @ source, for dimension "
    "0 of a matrix",
    "Tensor.index_add_": "write x = x + F.one_hot(index, len(x)).to(x.dtype).mT @ source, for "
    "dimension 0 of a matrix; x[index] += source would count an index once",
    "Tensor.copy_": f"write x[...] = y{OF_A_LEAF}",
    "Tensor.fill_": f"write x[...] = value{OF_A_LEAF}",
    "Tensor.zero_": f"write x[...] = 0{OF_A_LEAF}",
    "Tensor.normal_": "write nn.init.normal_(x)",
    "Tensor.uniform_": "write nn.init.uniform_(x)",
    "Tensor.data_ptr": "x.numpy() is the array",
    "Tensor.index_select": "write x[index], or x[:, index] for dimension 1",
    "Tensor.masked_select": "write x[mask]",
    "Tensor.new_tensor": "write ta.tensor(data, dtype=x.dtype, device=x.device)",
    "Tensor.new_zeros": "write ta.zeros(size, dtype=x.dtype, device=x.device)",
    "Tensor.new_ones": "write ta.ones(size, dtype=x.dtype, device=x.device)",
    "Tensor.register_hook": "x.retain_grad() keeps the gradient of a computed tensor",
    "Tensor.scatter": "write y = x.clone(), then y[ta.arange(len(x))[:, None], index] = values, "
    "for dimension 1 of a matrix",
    "Tensor.scatter_add": "the gradient of x[index] adds: ta.grad(x[index], x, values)",
    "Tensor.unfold": "write ta.stack([x[..., i : i + size] for i in range(0, x.shape[-1] - size + "
    "1, step)], -2), for the last dimension",
    "Tensor.stride": "write x.numpy().strides, in bytes",
    "nn.AdaptiveAvgPool1d": "write x.mean(dim)",
    "nn.BCELoss": "write F.binary_cross_entropy_with_logits, without the sigmoid",
    "nn.BCEWithLogitsLoss": "write F.binary_cross_entropy_with_logits",
    "nn.BatchNorm1d": "write nn.LayerNorm, which attention models use",
    "nn.Conv1d": "write an nn.Linear over x[:, i : i + k] joined with ta.cat; attention needs none",
    "nn.Conv2d": "write an nn.Linear over patches, as examples/train_digits.py does",
    "nn.DataParallel": "write tinyattn.training.distributed.DistributedDataParallel",
    "nn.ELU": "write ta.where(x > 0, x, alpha * x.clamp(max=0).expm1())",
    "nn.L1Loss": "write (x - y).abs().mean()",
    "nn.LazyLinear": "write nn.Linear(in_features, out_features)",
    "nn.LogSigmoid": "write -F.softplus(-x)",
    "nn.LogSoftmax": "write F.log_softmax(x, dim)",
    "nn.parameter": "write nn.Parameter",
    "nn.init.trunc_normal_": "write nn.init.normal_(w, mean, std), then w.clamp(a, b) for w[...] "
    "under ta.no_grad()",
    "nn.Flatten": "write x.flatten(1)",
    "nn.GRU": "write an nn.Linear in a loop over the positions",
    "nn.LSTM": "write an nn.Linear in a loop over the positions",
    "nn.LeakyReLU": "write ta.where(x > 0, x, slope * x)",
    "nn.MultiheadAttention": "write nn.MultiHeadedAttention(num_heads, embed_dim, dropout=0.0)",
    "nn.NLLLoss": "write F.nll_loss",
    "nn.ParameterList": "write nn.ModuleList of modules that hold them",
    "nn.utils": "optim.clip_grad_norm_ and tinyattn.training.pad_sequence are there",
    "nn.Transformer": "write nn.EncoderDecoder(encoder, decoder, src_embed, tgt_embed, generator)",
    "nn.TransformerDecoder": "write nn.Decoder(layer, N)",
    "nn.TransformerDecoderLayer": 'write nn.DecoderLayer(..., norm="post"); the default is "pre"',
    "nn.TransformerEncoder": "write nn.Encoder(layer, N)",
    "nn.TransformerEncoderLayer": 'write nn.EncoderLayer(..., norm="post"); the default is "pre"',
    "F.cosine_similarity": "write (F.normalize(x) * F.normalize(y)).sum(-1)",
    "F.binary_cross_entropy": "write F.binary_cross_entropy_with_logits, without the sigmoid",
    "F.elu": "write ta.where(x > 0, x, alpha * x.clamp(max=0).expm1())",
    "F.l1_loss": "write (x - y).abs().mean()",
    "F.logsigmoid": "write -F.softplus(-x)",
    "F.conv2d": "write F.linear over patches, as examples/train_digits.py does",
    "F.gumbel_softmax": "write F.softmax(x - (-ta.rand_like(x).log()).log())",
    "F.leaky_relu": "write ta.where(x > 0, x, slope * x)",
    "optim.Adagrad": "write optim.Adam",
    "optim.LBFGS": "write scipy.optimize.minimize on x.numpy()",
    "optim.RMSprop": "write optim.Adam; with betas=(0, beta2) only its first steps are smaller",
    "optim.ReduceLROnPlateau": "set group['lr'] of optimizer.param_groups, or take that of "
    "tinyattn.torch_names.optim.lr_scheduler",
    "optim.StepLR": "write optim.LambdaLR(optimizer, lambda epoch: gamma ** (epoch // step_size))",
    "optim.lr_scheduler": "the schedules are in optim itself",
}
LEFT_OUT |= {f"ta.{name}": f"write ta.{dtype}" for name, dtype in DTYPES.items()}
LEFT_OUT |= {
    f"{owner}.{name}": f"write {instead}"
    for owner in ("ta", "Tensor")
    for name, instead in {
        "broadcast_to": "x.expand(shape)",
        "clip": "x.clamp(min, max)",
        "cosh": "(x.exp() + (-x).exp()) / 2",
        "count_nonzero": "(x != 0).sum()",
        "diff": "x[..., 1:] - x[..., :-1]",
        "dist": "(x - y).norm()",
        "erfc": "1 - x.erf(), which loses digits where it is small",
        "index_copy": "y = x.clone(), then y[index] = values",
        "logaddexp": "ta.stack([x, y]).logsumexp(0)",
        "logit": "x.log() - (1 - x).log()",
        "sinh": "(x.exp() - (-x).exp()) / 2, which loses digits where it is small",
        "tan": "x.sin() / x.cos()",
        "tile": "x.repeat(sizes)",
        "unflatten": "x.reshape(sizes)",
    }.items()
}
LEFT_OUT |= {
    f"ta.{name}Tensor": f"write ta.tensor(data, dtype=ta.{dtype}), or ta.zeros for sizes"
    for name, dtype in {
        "Bool": "bool",
        "Byte": "uint8",
        "Double": "float64",
        "Float": "float32",
        "Half": "float16",
        "Int": "int32",
        "Long": "int64",
    }.items()
}
LEFT_OUT |= {
    f"ta.{name}": "there are no complex numbers: nn.RotaryEmbedding turns pairs by cos and sin"
    for name in ("complex64", "complex128", "polar", "view_as_complex", "view_as_real")
}
LEFT_OUT["Tensor.bfloat16"] = LEFT_OUT["ta.bfloat16"]
LEFT_OUT |= {"ta.int": "write ta.int32", "Tensor.int": "write x.to(ta.int32)"}
for name, expression in EXPRESSIONS.items():
    LEFT_OUT |= {f"{owner}.{name}": f"write {expression}" for owner in ("ta", "Tensor")}
# What the folder torch_names adds, for programs that were written for PyTorch, by owner; the first
# are functions, and methods of a Tensor too. "Module" has the methods of a module.
ADDED = {
    "ta Tensor": """
        absolute add addcdiv addcmul addmm addmv argwhere baddbmm bernoulli bincount bitwise_and
        bitwise_not bitwise_or bitwise_xor ceil clamp_max clamp_min clip cumprod diag div divide eq
        fix floor floor_divide ge ger greater greater_equal gt index_add index_copy index_fill
        index_put index_select int is_floating_point isclose isinf le lerp less less_equal log10
        log2 logical_and logical_not logical_or logical_xor lt masked_select mm moveaxis movedim mul
        multiply mv narrow ne neg negative nonzero not_equal ravel round scatter scatter_add select
        short sub subtract swapdims take take_along_dim tan tile trace true_divide trunc unflatten
        unique vdot""",
    "ta": """
        BoolTensor ByteTensor CharTensor DoubleTensor FloatTensor Generator HalfTensor IntTensor
        LongTensor ShortTensor Size asarray autograd backends cdist concat concatenate cuda detach
        device double dtype e empty_like finfo float get_default_device get_default_dtype half iinfo
        inference_mode is_tensor isin long meshgrid newaxis normal set_default_dtype std_mean
        tensordot tril_indices triu_indices utils var_mean""",
    "Tensor": """
        abs_ absolute_ add_ addcdiv_ addcmul_ addmm_ baddbmm_ bernoulli_ byte ceil_ char clamp_
        clamp_max_ clamp_min_ clip_ copy_ cos_ cumprod_ cumsum_ div_ divide_ erf_ exp_ expm1_
        exponential_ fill_ fill_diagonal_ fix_ floor_ floor_divide_ index_add_ index_copy_
        index_fill_ index_put_ is_cuda lerp_ log10_ log1p_ log2_ log_ masked_fill_ maximum minimum
        mul_ multiply_ neg_ negative_ nelement new_empty new_full new_ones new_tensor new_zeros
        normal_ pin_memory pow_ random_ reciprocal_ relu_ remainder_ reshape_as round_ rsqrt_
        scatter_ scatter_add_ sigmoid_ sign_ sin_ sqrt_ square_ sub_ subtract_ tan_ tanh_ tril_
        triu_ true_divide_ trunc_ type uniform_ view_as where zero_""",
    "nn": """
        BCELoss BCEWithLogitsLoss Buffer CosineSimilarity ELU Flatten GLU GRU GRUCell L1Loss LSTM
        LSTMCell LazyLinear LeakyReLU LogSigmoid LogSoftmax MultiheadAttention NLLLoss
        ParameterList RNN RNNCell SmoothL1Loss Softplus Transformer TransformerDecoder
        TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer UninitializedParameter
        parameter utils""",
    "nn.init": "calculate_gain orthogonal_ trunc_normal_",
    "optim": "RMSprop lr_scheduler",
    "F": """
        binary_cross_entropy cosine_similarity elu glu gumbel_softmax l1_loss leaky_relu logsigmoid
        smooth_l1_loss""",
    "Module": """
        add_module get_buffer get_parameter get_submodule register_module register_parameter type
        """,
}
IN_TORCH_NAMES = {
    f"{owner}.{name}"
    for owners, names in ADDED.items()
    for owner in owners.split()
    for name in names.split()
}
# Of a module's attributes, and of the arguments of a module's call.
OF_MODULES = {
    "add_module": "write setattr(module, name, child)",
    "register_module": "write setattr(module, name, child)",
    "register_parameter": "write setattr(module, name, nn.Parameter(data))",
    "get_submodule": "write dict(module.named_modules())[name]",
    "get_parameter": "write dict(module.named_parameters())[name]",
    "get_buffer": "write dict(module.named_buffers())[name]",
    "from_pretrained": "write module.weight.data = array, or module.load_state_dict(state); "
    "ta.interop reads models of PyTorch",
}
VISIBLE = "because here True means that a position is visible"
ARGUMENTS = {
    "attn_mask": f"write mask=~attn_mask[None], {VISIBLE}; is_causal=True for a causal mask",
    "key_padding_mask": f"write mask=~key_padding_mask, {VISIBLE}; or valid_lens=lengths",
    "src_key_padding_mask": f"write mask=~src_key_padding_mask, {VISIBLE}; or valid_lens=lengths",
    "tgt_key_padding_mask": f"write mask=~tgt_key_padding_mask, {VISIBLE}; or valid_lens=lengths",
    "memory_key_padding_mask": f"write src_mask=~memory_key_padding_mask, {VISIBLE}",
    "src_mask": f"write mask=~src_mask[None], {VISIBLE}",
    "tgt_mask": f"write mask=~tgt_mask[None], {VISIBLE}; a decoder is causal without a mask",
    "need_weights": "module.attention_weights has the weights after the call",
    "average_attn_weights": "write module.attention_weights.mean(1) after the call",
}
# PyTorch's names that look like one of ours and mean something else: no guess for them.
NO_GUESS = """
    ASGD Adamax CELU ChainedScheduler CharTensor Dropout1d Dropout2d Dropout3d EmbeddingBag
    GLU Gradient LRScheduler LinearCrossEntropyLoss NAdam PReLU ParameterDict RAdam RReLU
    ReLU6 SELU Softmax2d TensorType acos acosh amp argwhere asin asinh atan atanh bfloat16
    bilinear cdouble celu cfloat chalf cosh cross diagonal_copy distributions dropout1d
    dropout2d dropout3d dsplit dstack elu embedding_bag exp2 fill fmax fmin frexp geqrf
    get_num_interop_threads glu gradient greater hardsigmoid hash_tensor hsplit
    init_num_threads int1 int2 int3 int4 int5 int6 int7 is_distributed is_xla isin ldexp
    linear_cross_entropy logcumsumexp logit logspace masked mode modules msort os prelu qint32
    qint8 quint8 random real register_backward_hook register_forward_pre_hook
    register_full_backward_hook relu6 renorm resize retains_grad rrelu selu
    set_num_interop_threads sgn short signal sinc sinh to_dlpack transpose_copy uint1 uint16
    uint2 uint3 uint32 uint4 uint5 uint6 uint64 uint7 unsqueeze_copy vsplit xlogy
""".split()  # noqa: SIM905
DIFFERS = {
    "Tensor.data": "a NumPy array, which is a read-only view: x.detach() has the methods of a "
    "Tensor, and values change through x[i] = v",
    "Tensor.dtype": "a NumPy dtype: compare it with ==, not with `is`",
    "Tensor.device": 'a string, "cpu" or "cuda"',
    "Tensor.__getitem__": "nested lists are one array of indices; uint8 are indices and no mask",
    "Tensor.__setitem__": "recorded, x[i] = v puts its result into new memory, so views keep the "
    "old values, and x[i][j] = v is refused; where an index occurs twice, only the value written "
    "last has a gradient",
    "Tensor.__iadd__": "x += y puts its result into new memory, so views keep the old values",
    "Tensor.abs": "the gradient at NaN is NaN, where there it is 0",
    "Tensor.all": "boolean also of uint8",
    "Tensor.any": "boolean also of uint8",
    "Tensor.add_": "as `x += y`: what is recorded gets new memory, so its views keep the old "
    "values. All methods that end in `_` do so",
    "Tensor.backward": "frees all of the graph, also ops that save nothing, as x + y",
    "Tensor.diagonal": "a copy, no view",
    "Tensor.grad": "each backward makes a new Tensor; one that you have keeps its values",
    "Tensor.grad_fn": "a Node with name, parents and saved_values(); it takes no hooks",
    "Tensor.max": "with a NaN the gradient of the largest of all is NaN everywhere",
    "Tensor.masked_fill": "a value that integers or booleans cannot hold is refused",
    "Tensor.norm": "p is 1, 2 or inf",
    "Tensor.numpy": "a copy, also of a tensor that requires gradients; np.asarray(x) is the same, "
    "and NumPy's functions refuse Tensors",
    "Tensor.flip": "without dims nothing is flipped; the result is a view",
    "Tensor.repeat_interleave": "`repeats` is one integer",
    "Tensor.sign": "it has no gradient, where there it is 0",
    "ta.LongTensor": "and the classes like it: a tuple is data, also if it is a shape",
    "ta.Tensor": "the same as ta.tensor: integers stay integers",
    "ta.arange": "numbers that an integer dtype cannot hold are refused",
    "ta.as_tensor": "copies a NumPy array; what an integer or boolean dtype cannot hold is refused",
    "ta.device": 'also a string, "cpu" or "cuda"; the index does not count when two are compared',
    "ta.empty": "zeros, so that runs can be repeated",
    "ta.from_dlpack": "copies, unless copy=False",
    "ta.from_numpy": "copies, unless copy=False",
    "ta.full": "a number that an integer or boolean dtype cannot hold is refused",
    "ta.get_rng_state": "a dict",
    "ta.gradcheck": "smaller tolerances, and an error names the element",
    "ta.linspace": "numbers that an integer dtype cannot hold are refused",
    "ta.manual_seed": "the same seed gives other random numbers; it is >= 0",
    "ta.save": "a safetensors file, without pickle",
    "ta.set_num_threads": "the threads sleep while they wait, and BLAS gets one",
    "ta.tensor": "what an integer or boolean dtype cannot hold is refused, in arrays too",
    "nn.DecoderLayer": "causal without a mask",
    "nn.Embedding": "padding_idx is not negative",
    "nn.Module.state_dict": "copies",
    "nn.ModuleList": "attributes whose names are no numbers are no elements",
    "nn.MultiHeadAttention": "True in a mask is visible; the weights are `attention_weights`",
    "nn.MultiheadAttention": "a query whose keys are all hidden gets zeros, and there may get NaN",
    "nn.Parameter": "copies its data",
    "nn.Sequential": "the modules of a slice are numbered from 0",
    "nn.Softmax": "dim is -1 unless given",
    "nn.TransformerEncoder": "the output of padding is computed in evaluation too, where there it "
    "is 0",
    "F.softmax": "dim is -1 unless given",
    "F.softplus": "exact above 20 too, where there it is x",
    "F.log_softmax": "dim is -1 unless given",
    "F.binary_cross_entropy": "where x is exactly 0 or 1 the gradient is 0, and there up to 1e12",
    "F.binary_cross_entropy_with_logits": "no weights; reduction comes third",
    "F.cross_entropy": "ignore_index and reduction come fourth and fifth",
    "F.dropout": "what is dropped is 0 even if it was NaN or infinite",
    "F.embedding": "ids and padding_idx are not negative",
    "F.leaky_relu": "a new tensor, also with `inplace`; so are those of all functions that take it",
    "F.kl_div": "reduction comes third; nothing is broadcast",
    "F.nll_loss": "ignore_index and reduction come fourth and fifth",
    "F.normalize": "p is 1 or 2",
    "F.mse_loss": "the two shapes must be equal; nothing is broadcast",
    "F.pack_padded_sequence": "a Tensor, with the rows of one sample after those of another",
    "F.pad": "constant values only, and nothing is cropped",
    "F.pad_packed_sequence": "takes a Tensor and valid_lens, and returns a Tensor only",
    "F.relu": "integers are refused; x.relu() takes them",
    "F.sigmoid": "integers are refused; x.sigmoid() takes them",
    "F.tanh": "integers are refused; x.tanh() takes them",
    "F.scaled_dot_product_attention": "an empty row gives 0. The fourth argument is `mask`, whose "
    "two dimensions are (B, K), and the fifth `valid_lens`: name attn_mask= and dropout_p=",
    "optim.Adam": "of float16 parameters the state is float32",
    "optim.CosineSchedule": "`final` is that of the first parameter group",
    "optim.LambdaLR": "one function for all groups; it is not in the state",
    "optim.Optimizer": 'a parameter group has no keys of your own, such as "name"',
    "optim.clip_grad_norm_": "a gradient that occurs twice counts once",
    "batches.DataLoader": "numbers are float32; a batch of tuples is a tuple",
    "distributed.DistributedDataParallel": "no Module; `backward` is called on it, with a weight",
    "distributed.all_reduce": "takes numbers and returns an array",
}


def explain_argument(error: TypeError) -> None:
    """Raise the error for an argument that PyTorch's modules take, with what to write instead."""
    known = r"unexpected keyword argument '(\w+)'$"
    if (found := re.search(known, str(error))) and found[1] in ARGUMENTS:
        raise TypeError(f"{error}: {ARGUMENTS[found[1]]}") from None


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
        key = f"{owner if owner in OWNERS else 'Module'}.{name}"
        if key in IN_TORCH_NAMES:
            return f"{self.explained(guess=False)}; tinyattn.torch_names has it"
        return self.explained(guess=True)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __reduce__(self) -> Any:  # another process gets the names, not the module itself
        names = self.space if isinstance(self.space, list) else dir(self.space)
        return type(self), (*self.args, names)

    def explained(self, guess: bool) -> str:
        owner, name = self.args
        # A module of nn, or of the user, is no part of the table.
        known = f"tinyattn has no {owner}.{name}"
        text = known if owner in OWNERS else f"{owner!r} object has no attribute {name!r}"
        names = self.space if isinstance(self.space, list) else dir(self.space)
        names = [other for other in names if not other.startswith("_")]
        instead = LEFT_OUT.get(f"{owner}.{name}") or (
            None if owner in OWNERS else OF_MODULES.get(name)
        )
        if instead is None and name in IN_PLACE:
            instead = f"write x {IN_PLACE[name]} y{OF_A_LEAF}"
        elif instead is None and name.endswith("_") and name[:-1] in names:
            instead = f"write x = x.{name[:-1]}(...), or x[...] = value{OF_A_LEAF}"
        elif instead is None and name.endswith("_") and not name.startswith("_"):
            instead = (
                f"methods do not change x: make a new tensor, or write x[...] = value{OF_A_LEAF}"
            )
        if instead is not None:
            return f"{text}: {instead}"
        close = [other for other in names if other.startswith(f"{name}_")]
        if name.startswith("_") or name in NO_GUESS or not guess:
            close = []
        elif not close:
            close = get_close_matches(name, names, n=3, cutoff=0.75)
        return text + (f"; did you mean {', '.join(close)}?" if close else "")
