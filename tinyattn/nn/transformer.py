"""The Transformer encoder and its parts, as in the Annotated Transformer."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from .. import functional as F
from ..base.checks import check_choice, check_size, check_type
from ..errors import MaskError
from ..ops.arguments import ArrayLike, float_tensor
from ..ops.visibility import lens_of_padding
from ..tensors.create import as_tensor
from ..tensors.tensor import Tensor
from .attention import Attention
from .cache import Cache, KeyValueCache, LayerCache, layer_cache_of, layer_caches_of
from .containers import AnyModule, ModuleList
from .functions import GELU, ReLU
from .init import unfilled
from .layers import Dropout, LayerNorm, Linear
from .module import Module, copied


class PositionwiseFeedForward(Module):
    """w_2(dropout(activation(w_1 x))): the same two layers at every position.

    Call: x (..., d_model) -> (..., d_model). activation: "relu", "gelu" or "gelu_tanh".
    """

    def __init__(
        self, d_model: int, d_ff: int, dropout: float = 0.1, activation: str = "relu"
    ) -> None:
        super().__init__()
        activations = {"relu": ReLU(), "gelu": GELU(), "gelu_tanh": GELU("tanh")}
        self.w_1 = Linear(d_model, d_ff)
        self.activation = activations[check_choice("activation", activation, *activations)]
        self.dropout = Dropout(dropout)
        self.w_2 = Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.w_2(self.dropout(self.activation(self.w_1(x))))


class SwiGLU(Module):
    """w_2(dropout(silu(w_1 x) * w_3 x)): a feed-forward network with a gate, as in Llama.

    Call: x (..., d_model) -> (..., d_model). It has three matrices instead of two, so d_ff is often
    two thirds of what a PositionwiseFeedForward has. Source: Shazeer, "GLU Variants Improve
    Transformer", 2020.

        >>> nn.SwiGLU(8, 16)(ta.randn(2, 3, 8)).shape
        (2, 3, 8)
    """

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.1, bias: bool = False) -> None:
        super().__init__()
        self.w_1 = Linear(d_model, d_ff, bias=bias)
        self.w_2 = Linear(d_ff, d_model, bias=bias)
        self.w_3 = Linear(d_model, d_ff, bias=bias)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.w_2(self.dropout(F.silu(self.w_1(x)) * self.w_3(x)))


NORM_LAYER = (
    "norm_layer is a class of modules that takes the width, such as nn.LayerNorm or nn.RMSNorm, "
    'and norm is "pre" or "post"'
)


def new_norm(norm_layer: Callable[..., Module], size: int, eps: float | None) -> Module:
    """norm_layer(size), or norm_layer(size, eps=eps) if a number is given."""
    try:
        norm = norm_layer(size) if eps is None else norm_layer(size, eps=eps)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{NORM_LAYER}; norm_layer({size}) ended with: {error}") from error
    return check_type(f"{NORM_LAYER}; norm_layer({size}) gives a module", norm, Module)


class SublayerConnection(Module):
    """A residual connection around a sublayer, with a norm before or after it.

    norm="pre":  x + dropout(sublayer(norm(x)))    the Annotated Transformer, GPT-2, most today
    norm="post": norm(x + dropout(sublayer(x)))    the original paper, BERT

    With "pre", x itself passes through all layers without a norm, so deep stacks train without
    warm-up; the stack then needs one more norm at its end. Call: x, and a function of one Tensor.

    norm_layer: the class of the norm, which is called as norm_layer(size), or as
        norm_layer(size, eps=eps) if eps is given.
    """

    def __init__(
        self,
        size: int,
        dropout: float = 0.1,
        norm: str = "pre",
        eps: float | None = None,
        norm_layer: Callable[..., Module] = LayerNorm,
    ) -> None:
        super().__init__()
        if norm not in ("pre", "post"):
            raise ValueError(
                f'norm must be "pre" or "post", got {norm!r}: the class of the norm is norm_layer'
            )
        self.order = norm
        self.norm = new_norm(norm_layer, size, eps)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.order == "pre":
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))

    def extra_repr(self) -> str:
        return f"norm={self.order!r}"


class EncoderLayer(Module):
    """Self-attention, then a feed-forward network, each in a SublayerConnection.

    size: the width D. self_attn: a module that is called as (x, x, x, mask=, valid_lens=), such as
    MultiHeadedAttention. feed_forward: a module of one Tensor. norm, eps, norm_layer: the order,
    the eps and the class of the norms, see SublayerConnection.

    Call: x (B, N, D), mask, valid_lens, is_causal -> (B, N, D); or packed, x (N, D), valid_lens,
    is_causal -> (N, D), see `functional.pack_padded_sequence`. With is_causal=True each position
    sees itself and earlier ones; self_attn then gets this argument too. cache: one of the layers
    of `encoder.new_cache()`. Positions: give self_attn a `rotary`, or add them to x. It then gets
    positions (N,) or (B, N) too, packed (N,), for samples that do not begin at 0.
    """

    def __init__(
        self,
        size: int,
        self_attn: Module,
        feed_forward: Module,
        dropout: float = 0.1,
        norm: str = "pre",
        eps: float | None = None,
        norm_layer: Callable[..., Module] = LayerNorm,
    ) -> None:
        super().__init__()
        check_parts("an encoder layer", self_attn=self_attn, feed_forward=feed_forward)
        self.size = check_size("size", size)
        self.self_attn: Any = self_attn  # what a user gives may have more attributes
        self.feed_forward: Any = feed_forward
        self._norm_layer, self._eps = norm_layer, eps  # of the last norm of a stack too
        self.sublayer = ModuleList(
            SublayerConnection(size, dropout, norm, eps, norm_layer) for _ in range(2)
        )

    def forward(
        self,
        x: Tensor,
        mask: ArrayLike | None = None,
        valid_lens: ArrayLike | None = None,
        is_causal: bool = False,
        cache: LayerCache | None = None,
        positions: ArrayLike | None = None,
    ) -> Tensor:
        if cache is not None and not is_causal:
            raise ValueError(
                "an encoder with a cache takes is_causal=True, because earlier positions would "
                "have to see the new ones otherwise"
            )
        attention_cache = None if cache is None else layer_cache_of(cache).self_attn
        options = attention_options(mask, valid_lens, is_causal, attention_cache, positions)
        first, second = self.sublayer
        x = first(x, lambda y: self.self_attn(y, y, y, **options))
        return second(x, self.feed_forward)


ANY_PART = "; any module can be the self_attn or feed_forward of one"
SUCH_AS = "such as MultiHeadedAttention or PositionwiseFeedForward"


def check_parts(owner: str, **parts: Any) -> None:
    for name, part in parts.items():
        check_type(f"{name} of {owner} is a module, {SUCH_AS}", part, Module)
        feeds = isinstance(part, (PositionwiseFeedForward, SwiGLU))
        if isinstance(part, Attention) if name == "feed_forward" else feeds:
            raise TypeError(f"{owner} takes attention before feed_forward: exchange them")


def attention_options(
    mask: ArrayLike | None,
    valid_lens: ArrayLike | None,
    is_causal: bool,
    cache: KeyValueCache | Cache | None = None,
    positions: ArrayLike | None = None,
) -> dict[str, Any]:
    """The arguments of an attention; is_causal, cache and positions only if they are used, because
    a user's module may not have them."""
    more = ("is_causal", is_causal or None), ("cache", cache), ("positions", positions)
    return {"mask": mask, "valid_lens": valid_lens, **{k: x for k, x in more if x is not None}}


class Stack(Module):
    """What an Encoder and a Decoder share: N copies of a layer, and a norm if these are pre-norm.

    attends_memory: whether its layers do, so that a cache keeps keys and values of it.
    """

    attends_memory = False

    def __init__(self, layer: Any, N: int) -> None:
        super().__init__()
        self.layers = clones(layer, N)
        is_post = layer.sublayer[0].order == "post"
        self.norm = None if is_post else new_norm(layer._norm_layer, layer.size, layer._eps)

    def new_cache(self, length: int = 0) -> Cache:
        """An empty cache for the positions of one batch.

        length: for how many positions memory is reserved at once. If more come, the memory grows.
        """
        return Cache(len(self.layers), self.attends_memory, length)

    def run_layers(self, x: Tensor, *args: Any, cache: Cache | None = None, **options: Any) -> Any:
        if cache is None:
            for layer in self.layers:
                x = layer(x, *args, **options)
            return x if self.norm is None else self.norm(x)
        layer_caches = layer_caches_of(cache, len(self.layers))
        with cache.restored_after_errors():
            for layer, layer_cache in zip(self.layers, layer_caches, strict=True):
                x = layer(x, *args, cache=layer_cache, **options)
            return x if self.norm is None else self.norm(x)


class Encoder(Stack):
    """N copies of a layer, each with its own starting values; with pre-norm, a norm at the end.

    skip_padding: compute the first valid_lens[b] positions of each sample only. Their output is the
        same, and the output of padding is 0. This saves the time that padding takes. It needs
        valid_lens (B,), or a mask (B, N) that is True up to some length in each sample; attention
        weights are (B, H, L, L), L the longest length. On a GPU pass them as a list or NumPy array,
        because the host has to know them. (PyTorch's TransformerEncoder skips padding in evaluation
        only.)

    Call: as EncoderLayer. With a cache from `new_cache()` and is_causal=True, x are the positions
    after those of earlier calls, and mask and valid_lens speak of all positions up to now. The
    output is that of the full call at these positions, up to rounding; nothing is packed.

        >>> layer = nn.EncoderLayer(
        ...     32, nn.MultiHeadedAttention(4, 32), nn.PositionwiseFeedForward(32, 64))
        >>> nn.Encoder(layer, 2)(ta.randn(3, 5, 32), mask=ta.ones(3, 5).bool()).shape
        (3, 5, 32)
    """

    def __init__(self, layer: EncoderLayer, N: int, skip_padding: bool = False) -> None:
        check_type("an Encoder takes an EncoderLayer", layer, EncoderLayer, ANY_PART)
        super().__init__(layer, N)
        self.skip_padding = skip_padding

    def forward(
        self,
        x: Tensor,
        mask: ArrayLike | None = None,
        valid_lens: ArrayLike | None = None,
        is_causal: bool = False,
        cache: Cache | None = None,
        positions: ArrayLike | None = None,
    ) -> Tensor:
        skip_padding = self.skip_padding and cache is None
        if skip_padding and mask is not None:
            if valid_lens is not None:
                raise MaskError("an encoder with skip_padding takes valid_lens or a mask, not both")
            valid_lens, mask = lens_of_padding(mask, float_tensor(x, "x").shape[:2]), None
        options = attention_options(mask, valid_lens, is_causal, cache, positions)
        if not skip_padding or valid_lens is None or float_tensor(x, "x").ndim != 3:
            return self.run_layers(x, **options)
        if positions is not None:  # those of the rows that stay
            of_all = as_tensor(positions, device=x.device).expand(x.shape[:2])
            options["positions"] = F.pack_padded_sequence(of_all, valid_lens)
        packed = self.run_layers(F.pack_padded_sequence(x, valid_lens), **options)
        return F.pad_packed_sequence(packed, valid_lens, x.shape[1])


def clones(module: AnyModule, N: int) -> ModuleList[AnyModule]:
    """N independent copies of a module, each with new starting values; the first is a copy too.

    The new values are drawn by `reset_parameters()` of each module inside, which all layers of `nn`
    have. It draws anew what was loaded or set before: load into the copies. Define it in a class of
    your own with Parameters; without it, its parameters have equal values in all copies, and a
    warning says so if they are not constant.
    Differs from the Annotated Transformer, which copies the values as well, so that all its layers
    begin as the same function.

        >>> first, second = nn.clones(nn.Linear(3, 2), 2)
        >>> first.weight.equal(second.weight)
        False
    """
    check_size("N", N)
    copies: ModuleList[AnyModule] = ModuleList(copied(module, unfilled(module)) for _ in range(N))
    for twin in copies:
        for part in twin.modules():
            if hasattr(part, "reset_parameters"):
                part.reset_parameters()
    if N > 1:
        warn_of_equal_copies(module)
    return copies


def warn_of_equal_copies(module: Module) -> None:
    for name, part in module.named_modules():
        varied = [n for n, x in part._parameters.items() if x.numel() and x.amin() != x.amax()]
        if varied and not hasattr(part, "reset_parameters"):
            kind = type(part).__name__
            warnings.warn(
                f"all copies of {kind}{f' ({name})' if name else ''} begin with equal values of "
                f"{', '.join(varied)}: define {kind}.reset_parameters(), which draws them",
                UserWarning,
                stacklevel=4,
            )
