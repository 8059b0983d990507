"""Public callables that need no row, and why."""

from __future__ import annotations

NO_DERIVATIVE = "says or switches something; no numbers come out of numbers"
MAKES = "makes a tensor out of no other; tested in test_tensor.py"
ENGINE = "the engine itself; tested in test_engine.py and test_locks.py"
CHECKER = "checks derivatives; tested in test_gradcheck.py"

EXCLUDED = {
    "ops.transfer": "needs a second device: tested where there is a GPU",
    **dict.fromkeys(
        [
            *("ta.zeros", "ta.ones", "ta.empty", "ta.full", "ta.arange", "ta.linspace", "ta.eye"),
            *("ta.zeros_like", "ta.ones_like", "ta.full_like", "ta.rand_like", "ta.randn_like"),
            *("ta.as_tensor", "ta.from_numpy", "ta.from_dlpack"),
            *("ta.rand", "ta.randn", "ta.randint", "ta.randperm", "ta.tensor", "ta.Tensor"),
        ],
        MAKES,
    ),
    **dict.fromkeys(
        [
            *("ta.bool", "ta.float16", "ta.float32", "ta.float64", "ta.uint8"),
            *("ta.int8", "ta.int16", "ta.int32", "ta.int64"),
            *("ta.cuda_is_available", "ta.is_grad_enabled"),
            *("Tensor.shape", "Tensor.ndim", "Tensor.dtype", "Tensor.device", "Tensor.is_leaf"),
            *("Tensor.tensor_class", "Tensor.grad_fn"),
            *("Tensor.allclose", "ta.allclose", "Tensor.equal", "ta.equal", "ta.numel"),
            *("Tensor.size", "Tensor.dim", "Tensor.numel", "Tensor.requires_grad"),
            *("Tensor.__len__", "Tensor.__contains__"),
            "Tensor.__array_function__",
            *("Tensor.__array_ufunc__", "Tensor.__dlpack_device__", "Tensor.__getattr__"),
        ],
        NO_DERIVATIVE,
    ),
    **dict.fromkeys(
        [
            *("ta.grad", "ta.no_grad", "ta.enable_grad", "ta.set_grad_enabled", "ta.op"),
            *("ta.manual_seed", "ta.get_rng_state", "ta.set_rng_state"),
            *("ta.get_num_threads", "ta.set_num_threads"),
            *("Tensor.backward", "Tensor.grad", "Tensor.data", "Tensor.detach"),
            "Tensor.__copy__",
            "Tensor.__setstate__",
            "Tensor.__deepcopy__",
            *("Tensor.requires_grad_", "Tensor.retain_grad", "Tensor.__setitem__"),
            *("Tensor.__iadd__", "Tensor.__isub__", "Tensor.__imul__", "Tensor.__itruediv__"),
            *("Tensor.__ipow__", "Tensor.__imatmul__"),
            *("Tensor.__ifloordiv__", "Tensor.__imod__"),
            *("Tensor.__iand__", "Tensor.__ior__", "Tensor.__ixor__"),
        ],
        ENGINE,
    ),
    **dict.fromkeys(
        [
            *("Tensor.item", "Tensor.tolist", "Tensor.numpy", "Tensor.__array__"),
            *("Tensor.__float__", "Tensor.__int__", "Tensor.__bool__", "Tensor.__index__"),
            "Tensor.__dlpack__",
        ],
        "leaves the graph for Python or another library; tested in test_tensor.py",
    ),
    **dict.fromkeys(
        ["Tensor.cpu", "Tensor.cuda"], "moves to a device; tested where there is a GPU"
    ),
    **dict.fromkeys(
        ["Tensor.float", "Tensor.half", "Tensor.long", "Tensor.bool", "Tensor.type_as"],
        "another dtype for `to`, which has a row; tested in test_tensor.py",
    ),
    "F.alibi_bias": "makes a tensor out of no other; tested in tests/attention/test_variants.py",
    **dict.fromkeys(
        ["Tensor.multinomial", "ta.multinomial"], "draws indices; tested in test_names.py"
    ),
    **dict.fromkeys(["ta.gradcheck", "ta.gradgradcheck"], CHECKER),
    **dict.fromkeys(["ta.save", "ta.load"], "files; tested in test_checkpoint.py"),
}
