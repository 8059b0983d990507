"""PyTorch's further modules that are not attention: activations, losses, lazy layers, lists.

First what all files here need: constructors with many arguments, in one line each.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from types import SimpleNamespace
from typing import Any, Self

from ... import nn as _nn
from ...nn.module import Module, Parameter
from ...ops.arguments import float_tensor
from ...tensors.create import zeros
from ...tensors.tensor import Tensor
from ..marks import under_their_names
from . import functional as F
from .parameter import UninitializedParameter

__all__ = ["ELU", "GLU", "BCELoss", "BCEWithLogitsLoss", "CosineSimilarity", "CrossEntropyLoss"]
__all__ += ["Dropout", "Embedding", "Flatten", "KLDivLoss", "L1Loss", "LazyLinear", "LeakyReLU"]
__all__ += ["LogSoftmax", "MSELoss", "NLLLoss", "ParameterList", "ReLU", "SiLU", "SmoothL1Loss"]
__all__ += ["Softmax", "Softplus"]


def takes(arguments: str) -> Callable[[Callable[[Any, Any], None]], Callable[..., None]]:
    """Decorate the constructor of a module: it takes these arguments, and device and dtype.

    arguments: as in the parentheses of a function. The constructor gets them as the attributes of
    one object. The module then moves to the device and the dtype.
    """
    text = ", ".join(filter(None, ("self", arguments, "device=None, dtype=None")))
    signature = inspect.signature(eval(f"lambda {text}: None"))

    def decorate(build: Callable[[Any, Any], None]) -> Callable[..., None]:
        @wraps(build)
        def constructor(self: Module, *args: Any, **options: Any) -> None:
            bound = signature.bind(self, *args, **options)
            bound.apply_defaults()
            given = SimpleNamespace(**bound.arguments)
            Module.__init__(self)
            build(self, given)
            self.to(device=given.device, dtype=given.dtype)

        constructor.__signature__ = signature  # type: ignore[attr-defined]
        return constructor

    return decorate


class FunctionModule(Module):
    """A module that calls a function of F. Its constructor takes the function's options.

    A Tensor among them, such as the weight of a loss, is a buffer, so it moves with the module.
    """

    names: tuple[str, ...]  # of the options
    __init__: Callable[..., None]

    def build(self, given: Any) -> None:
        for name in self.names:
            value = getattr(given, name)
            (self.register_buffer if isinstance(value, Tensor) else self.__setattr__)(name, value)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self.names)


# Arguments without a default that are no Tensors, and so options.
SIZES = ("kernel_size", "output_size")


def module_of(name: str, function: Callable[..., Tensor]) -> type[FunctionModule]:
    """The class of this name whose modules call the function."""
    parameters = inspect.signature(function).parameters.values()
    options = [p.replace(annotation=p.empty) for p in parameters if p.name != "dtype"]
    options = [p for p in options if p.default is not p.empty or p.name in SIZES]
    names = tuple(p.name for p in options)

    def forward(self: FunctionModule, *inputs: Tensor, **named: Tensor) -> Tensor:
        return function(*inputs, **named, **{name: getattr(self, name) for name in self.names})

    doc = f"`{function.__name__}` of F as a module, with its options."
    attributes: dict[str, Any] = {"__module__": __package__, "__doc__": doc, "names": names}
    constructor = takes(", ".join(map(str, options)))(FunctionModule.build)
    attributes |= {"__init__": under_their_names(constructor, name), "forward": forward}
    return type(name, (FunctionModule,), attributes)


BCELoss = module_of("BCELoss", F.binary_cross_entropy)
BCEWithLogitsLoss = module_of("BCEWithLogitsLoss", F.binary_cross_entropy_with_logits)
CosineSimilarity = module_of("CosineSimilarity", F.cosine_similarity)
CrossEntropyLoss = module_of("CrossEntropyLoss", F.cross_entropy)
ELU = module_of("ELU", F.elu)
GLU = module_of("GLU", F.glu)
KLDivLoss = module_of("KLDivLoss", F.kl_div)
L1Loss = module_of("L1Loss", F.l1_loss)
LeakyReLU = module_of("LeakyReLU", F.leaky_relu)
LogSoftmax = module_of("LogSoftmax", F.log_softmax)
MSELoss = module_of("MSELoss", F.mse_loss)
NLLLoss = module_of("NLLLoss", F.nll_loss)
ReLU = module_of("ReLU", F.relu)
SiLU = module_of("SiLU", F.silu)
SmoothL1Loss = module_of("SmoothL1Loss", F.smooth_l1_loss)
Softmax = module_of("Softmax", F.softmax)
Softplus = module_of("Softplus", F.softplus)


class Flatten(Module):
    """The dimensions from start_dim to end_dim merged into one.

    In tinyattn: write x.flatten(1)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)


class Dropout(_nn.Dropout):
    """`tinyattn.nn.Dropout`; with `inplace` its input gets the values."""

    @takes("p=0.5, inplace=False")
    def __init__(self, given: Any) -> None:
        _nn.Dropout.__init__(self, given.p)
        self.inplace = given.inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training, self.inplace)  # type: ignore[call-arg]


class Embedding(_nn.Embedding):
    """`tinyattn.nn.Embedding` with PyTorch's options; a negative padding_idx counts from the end.

    Raises ValueError for max_norm and scale_grad_by_freq. `sparse` changes nothing.
    """

    @takes(
        "num_embeddings, embedding_dim, padding_idx=None, max_norm=None, norm_type=2.0, "
        "scale_grad_by_freq=False, sparse=False"
    )
    def __init__(self, given: Any) -> None:
        if given.max_norm is not None or given.scale_grad_by_freq:
            raise ValueError("an Embedding has no max_norm and no scale_grad_by_freq here")
        rows, padding_idx = given.num_embeddings, given.padding_idx
        if padding_idx is not None and -rows <= padding_idx < 0:
            padding_idx += rows
        super().__init__(rows, given.embedding_dim, padding_idx)

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None
    ) -> Self:
        """An Embedding with these rows; freeze=True: they are not learned."""
        made = cls(*embeddings.shape, padding_idx)
        made.weight.data = embeddings
        return made.requires_grad_(not freeze)


class ParameterList(_nn.containers.Modules[Any]):
    """Parameters that `parameters()` and the rest find, in a list. Of a Tensor it makes one.

    In tinyattn: write setattr(module, f"w{i}", nn.Parameter(data)) for each, and getattr

        >>> import tinyattn.torch_names.nn as nn
        >>> weights = nn.ParameterList(ta.ones(n) for n in (2, 3))
        >>> [(name, parameter.shape) for name, parameter in weights.named_parameters()]
        [('0', (2,)), ('1', (3,))]
    """

    _kinds = (Parameter,)

    def _fill(self, modules: Any) -> None:
        super()._fill([x if isinstance(x, Parameter) else Parameter(x) for x in modules])


class LazyLinear(_nn.Linear):
    """A Linear whose in_features are those of the first input; it then is a Linear.

    Before that its parameters have no shape. An optimizer may take them.

    In tinyattn: write nn.Linear(in_features, out_features)

        >>> import tinyattn.torch_names.nn as nn
        >>> layer = nn.LazyLinear(2)
        >>> layer(ta.zeros(5, 3)).shape, layer
        ((5, 2), Linear(3, 2, bias=True))
    """

    @takes("out_features, bias=True")
    def __init__(self, given: Any) -> None:
        super().__init__(0, given.out_features, given.bias)
        for parameter in self.parameters():
            parameter.__class__ = UninitializedParameter

    def forward(self, input: Tensor) -> Tensor:
        for parameter in self.parameters():
            parameter.__class__ = Parameter
        sizes = self.out_features, *float_tensor(input, "input").shape[-1:]
        self.weight.data = zeros(sizes, dtype=self.weight.dtype, device=self.weight.device)
        self.reset_parameters()
        self.__class__ = _nn.Linear  # type: ignore[assignment]
        return self(input)

    def extra_repr(self) -> str:
        return f"out_features={len(self.weight._data)}, bias={self.bias is not None}"
