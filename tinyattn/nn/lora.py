"""Low-rank adaptation: a few new numbers teach a large Linear, whose own numbers stay."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from .. import functional as F
from ..base.checks import check_number, check_size, check_type
from ..engine.grad_mode import no_grad
from ..tensors.tensor import Tensor
from . import init
from .layers import Linear, new_parameter
from .module import Module


class LoRA(Module):
    """linear(x) + scale * (x A^T) B^T: a frozen Linear, and a correction of rank `rank` to learn.

    Call: x (..., in) -> (..., out). A (rank, in) starts as the weight of a Linear does, B
    (out, rank) at 0, so the module begins as the Linear alone. A matrix of 576 x 576 has 331,776
    numbers, and its correction of rank 8 has 9,216.

    `merge()` adds scale * B A to the weight of the Linear, which then costs no more than before;
    `unmerge()` brings the old weight back, to the last bit.
    Raises TypeError for a module that is no Linear.
    Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021. Their scale is
    alpha / rank.

        >>> layer = nn.LoRA(nn.Linear(6, 4), rank=2)
        >>> [name for name, p in layer.named_parameters() if p.requires_grad]
        ['A', 'B']
    """

    own_weight: Tensor | None

    def __init__(self, linear: Linear, rank: int = 8, scale: float = 1.0) -> None:
        super().__init__()
        check_type("LoRA adapts an nn.Linear", linear, Linear)
        outputs, inputs = linear.weight.shape
        options = linear.weight.dtype, linear.weight.device
        self.A = new_parameter(0, (check_size("rank", rank), inputs), *options)
        self.B = new_parameter(0, (outputs, rank), *options)
        self.scale = check_number("scale", scale, 0)
        self.linear = linear.requires_grad_(False)
        self.register_buffer("own_weight", None, persistent=False)  # of the Linear, while merged
        init.linear_default_(self.A, None)

    @property
    def is_merged(self) -> bool:
        return self.own_weight is not None

    def forward(self, x: Tensor) -> Tensor:
        out = self.linear(x)
        return out if self.is_merged else out + self.scale * F.linear(F.linear(x, self.A), self.B)

    @no_grad()
    def merge(self) -> None:
        """Add the correction to the weight of the Linear; nothing happens if it is there."""
        if not self.is_merged:
            self.own_weight = self.linear.weight.detach().clone()
            self.linear.weight.data = self.own_weight + self.scale * self.B @ self.A

    def unmerge(self) -> None:
        """Undo `merge`, so that the correction can be learned further."""
        if self.own_weight is not None:
            self.linear.weight.data, self.own_weight = self.own_weight, None

    def _named_state(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        if self.is_merged:
            raise RuntimeError(
                "a LoRA that is merged has no state of its own, because its correction would count "
                "twice: unmerge() it, or take it out with LoRA.merge_all(model)"
            )
        yield from super()._named_state(prefix)

    @staticmethod
    def insert(
        model: Module, names: Collection[str], rank: int = 8, scale: float = 1.0
    ) -> list[LoRA]:
        """Freeze the model, and put a LoRA in the place of each Linear with one of these names.

        names: those of attributes, such as ("W_q", "W_v"). Raises ValueError if there is none.
        """
        found = [place for place in places_of(model, Linear) if place[1] in names]
        if not found:
            raise ValueError(f"this model has no Linear with a name of {list(names)}")
        model.requires_grad_(False)
        inserted = [LoRA(linear, rank, scale) for _, _, linear in found]
        for (parent, name, _), lora in zip(found, inserted, strict=True):
            setattr(parent, name, lora)
        return inserted

    @staticmethod
    def merge_all(model: Module) -> None:
        """Put the merged Linear in the place of each LoRA: the model is then as it was built."""
        for parent, name, lora in places_of(model, LoRA):
            lora.merge()
            setattr(parent, name, lora.linear)

    def extra_repr(self) -> str:
        return f"rank={self.A.shape[0]}, scale={self.scale}"


def places_of(model: Module, kind: type[Module]) -> list[tuple[Module, str, Any]]:
    """(parent, name, module) of each module of this kind inside, but not inside another LoRA."""
    parents = [parent for parent in model.modules() if not isinstance(parent, LoRA)]
    return [
        (parent, name, child)
        for parent in parents
        for name, child in parent.named_children()
        if isinstance(child, kind)
    ]
