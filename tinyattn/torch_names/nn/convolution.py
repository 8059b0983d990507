"""Convolutions, pooling and batch norm as modules; `windows.py` has the functions."""

from typing import Any

from ...base.checks import check_number, check_size, checked_probability
from ...errors import ShapeError
from ...nn import init
from ...nn.module import Module, Parameter, with_options
from ...ops.arguments import float_tensor
from ...tensors.create import ones, tensor, zeros
from ...tensors.tensor import Tensor
from . import windows
from .functional import batch_norm
from .modules import module_of, takes

__all__ = ["AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AvgPool1d", "AvgPool2d", "BatchNorm1d"]
__all__ += ["BatchNorm2d", "Conv1d", "Conv2d", "MaxPool1d", "MaxPool2d"]

AdaptiveAvgPool1d = module_of("AdaptiveAvgPool1d", windows.adaptive_avg_pool1d)
AdaptiveAvgPool2d = module_of("AdaptiveAvgPool2d", windows.adaptive_avg_pool2d)
AvgPool1d = module_of("AvgPool1d", windows.avg_pool1d)
AvgPool2d = module_of("AvgPool2d", windows.avg_pool2d)
MaxPool1d = module_of("MaxPool1d", windows.max_pool1d)
MaxPool2d = module_of("MaxPool2d", windows.max_pool2d)


class Convolution(Module):
    """What Conv1d and Conv2d share. Neither is the other, because programs ask which one it is."""

    function, dims = staticmethod(windows.conv1d), 1
    options = ("stride", "padding", "dilation", "groups")
    groups: int

    @takes(
        "in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, "
        "bias=True, padding_mode='zeros'"
    )
    def __init__(self, given: Any) -> None:
        for name in ("in_channels", "out_channels", "groups"):
            check_size(name, getattr(given, name))
        for name in ("stride", "dilation"):
            setattr(given, name, windows.sizes_of(name, getattr(given, name), self.dims))
        if given.padding not in ("same", "valid"):
            given.padding = windows.sizes_of("padding", given.padding, self.dims, 0)
        is_divided = given.in_channels % given.groups == given.out_channels % given.groups == 0
        if given.padding_mode != "zeros" or not is_divided:
            raise ValueError(
                'padding_mode is "zeros", and groups divide in_channels and out_channels, got '
                f"{given.padding_mode!r}, {given.groups}, {given.in_channels}, {given.out_channels}"
            )
        for name in ("in_channels", "out_channels", "padding_mode", *self.options):
            setattr(self, name, getattr(given, name))
        self.kernel_size = windows.sizes_of("kernel_size", given.kernel_size, self.dims)
        sizes = given.out_channels, given.in_channels // given.groups, *self.kernel_size
        self.weight = Parameter(zeros(sizes))
        self.bias = Parameter(zeros(given.out_channels)) if given.bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        init.linear_default_(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Programs override it under PyTorch's name."""
        options = {name: getattr(self, name) for name in self.options}
        return type(self).function(input, weight, bias, **options)

    def extra_repr(self) -> str:
        out, inputs, *_ = self.weight.shape
        sizes = inputs * self.groups, out, f"kernel_size={self.kernel_size}"
        ones, none = (1,) * self.dims, (0,) * self.dims
        options = {"stride": ones, "padding": none, "dilation": ones, "groups": 1, "bias": True}
        return with_options(self, *sizes, **options)


class Conv1d(Convolution):
    """`conv1d` of F with a learned weight (out, in / groups, K) and bias (out,).

    They start as in PyTorch, uniform between -1/sqrt(n) and 1/sqrt(n), of n numbers in a window.
    Raises ValueError for another padding_mode than "zeros".

    In tinyattn: write an nn.Linear over x[:, i : i + k] joined with ta.cat; attention needs none

        >>> import tinyattn.torch_names.nn as nn
        >>> nn.Conv1d(4, 8, kernel_size=3, padding=1)(ta.zeros(2, 4, 10)).shape
        (2, 8, 10)
    """


class Conv2d(Convolution):
    """`conv2d` of F with a learned weight (out, in / groups, K, K) and bias; see Conv1d.

    In tinyattn: write an nn.Linear over patches, as examples/train_digits.py does
    """

    function, dims = staticmethod(windows.conv2d), 2


class BatchNorm(Module):
    """What BatchNorm1d and BatchNorm2d share. Neither is the other, as with convolutions."""

    dims: tuple[int, ...] = (2, 3)  # of x
    running_mean: Any
    running_var: Any
    num_batches_tracked: Any

    @takes("num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True")
    def __init__(self, given: Any) -> None:
        self.num_features = n = check_size("num_features", given.num_features)
        self.eps, self.momentum = check_number("eps", given.eps, 0), given.momentum
        checked_probability(0 if given.momentum is None else given.momentum, "momentum")
        self.affine, self.track_running_stats = given.affine, given.track_running_stats
        self.weight = Parameter(ones(n)) if given.affine else None
        self.bias = Parameter(zeros(n)) if given.affine else None
        self.register_buffer("running_mean", zeros(n) if self.track_running_stats else None)
        self.register_buffer("running_var", ones(n) if self.track_running_stats else None)
        self.register_buffer("num_batches_tracked", tensor(0) if self.track_running_stats else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        if self.track_running_stats:
            self.running_mean[...], self.running_var[...] = 0.0, 1.0
            self.num_batches_tracked[...] = 0

    def reset_parameters(self) -> None:
        self.reset_running_stats()
        if self.weight is not None and self.bias is not None:
            init.ones_(self.weight)
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        if float_tensor(input, "x").ndim not in self.dims or input.shape[1] != self.num_features:
            raise ShapeError(
                f"{type(self).__name__} takes {' or '.join(map(str, self.dims))} dimensions, "
                f"{self.num_features} channels in the second, got {input.shape}"
            )
        momentum, running = self.momentum, (self.running_mean, self.running_var)
        if self.training and not self.track_running_stats:  # which a program may change
            running = (None, None)
        elif self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked += 1
            momentum = 1 / self.num_batches_tracked.item() if momentum is None else momentum
        training = self.training or self.running_mean is None
        return batch_norm(input, *running, self.weight, self.bias, training, momentum, self.eps)

    def extra_repr(self) -> str:
        options = {"momentum": 0.1, "affine": True, "track_running_stats": True}
        return with_options(self, self.num_features, eps=1e-5, **options)


class BatchNorm1d(BatchNorm):
    """`batch_norm` of F for x (B, C) or (B, C, L), with running means and variances as buffers.

    momentum: None for the mean of all batches so far.

    In tinyattn: write nn.LayerNorm, which attention models use
    """


class BatchNorm2d(BatchNorm):
    """`batch_norm` of F for x (B, C, H, W); see BatchNorm1d."""

    dims = (4,)
