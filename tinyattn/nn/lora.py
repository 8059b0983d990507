"""Low-rank adaptation: a few new numbers teach a large Linear, whose own numbers stay."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator
from types import UnionType
from typing import Any

from .. import functional as F
from ..base.checks import check_container, check_number, check_size, check_type
from ..engine.grad_mode import no_grad
from ..tensors.tensor import Tensor
from . import init
from .int8 import Int8Linear
from .layers import Dropout, Linear, new_parameter
from .module import Module, Parameter

AdaptedLinear = Linear | Int8Linear


class LoRA(Module):
    """linear(x) + scale * (dropout(x) A^T) B^T: a frozen Linear, and a correction to learn.

    Call: x (..., in) -> (..., out). A (rank, in) starts as the weight of a Linear does, B
    (out, rank) at 0, so the module begins as the Linear alone. A matrix of 576 x 576 has 331,776
    numbers, and its correction of rank 8 has 9,216.

    linear: a Linear, also one with int8 weights, as `CausalLM.quantize` makes them. dropout: the
    probability with which numbers of x are left out of the correction, in training.

    `merge()` puts a Linear in its place whose weight has scale * B A added to it, so it costs no
    more than before; `unmerge()` brings the old Linear back. Nothing is written to the old one,
    because it, or its weight, may stand in another place too, as in a head that is tied to an
    embedding.
    Raises TypeError for a module that is no Linear.
    Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021. Their scale is
    alpha / rank.

        >>> layer = nn.LoRA(nn.Linear(6, 4), rank=2)
        >>> [name for name, p in layer.named_parameters() if p.requires_grad]
        ['A', 'B']
    """

    def __init__(
        self, linear: AdaptedLinear, rank: int = 8, scale: float = 1.0, dropout: float = 0.0
    ) -> None:
        super().__init__()
        check_type("LoRA adapts an nn.Linear", linear, AdaptedLinear)
        outputs, inputs = linear.out_features, linear.in_features
        numbers = linear.scale if isinstance(linear, Int8Linear) else linear.weight
        options = numbers.dtype, numbers.device
        self.A = new_parameter(0, (check_size("rank", rank), inputs), *options)
        self.B = new_parameter(0, (outputs, rank), *options)
        self.scale = check_number("scale", scale, 0)
        self.dropout = Dropout(dropout)
        self.linear = linear.requires_grad_(False)
        self.unmerged: AdaptedLinear | None = None  # the Linear as it was, while merged
        init.linear_default_(self.A, None)
        self.train(linear.training)

    @property
    def is_merged(self) -> bool:
        return self.unmerged is not None

    def forward(self, input: Tensor) -> Tensor:
        out = self.linear(input)
        if self.is_merged:
            return out
        # A layer with int8 weights takes float16 too, and a LoRA that is made for it has float32.
        x = self.dropout(input).to(self.A.dtype)
        return out + (self.scale * F.linear(F.linear(x, self.A), self.B)).to(out.dtype)

    @no_grad()
    def merge(self) -> None:
        """Take a Linear with the correction in its weight; nothing happens if it is there.

        RuntimeError for int8 weights, which would be rounded once more.
        """
        if isinstance(self.linear, Int8Linear):
            raise RuntimeError("int8 weights take no correction: merge it into floating weights")
        if self.unmerged is None:
            self.unmerged, self.linear = self.linear, copy.copy(self.linear)
            merged = self.unmerged.weight + self.scale * self.B @ self.A
            self.linear.weight = Parameter(merged, requires_grad=False)

    def unmerge(self) -> None:
        """Undo `merge`, so that the correction can be learned further."""
        if self.unmerged is not None:
            self.linear, self.unmerged = self.unmerged, None

    def _named_state(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        if self.is_merged:
            raise RuntimeError(
                "a LoRA that is merged has no state of its own, because its correction would count "
                "twice: unmerge() it, or take it out with LoRA.merge_all(model)"
            )
        yield from super()._named_state(prefix)

    @staticmethod
    def insert(
        model: Module,
        names: Collection[str],
        rank: int = 8,
        scale: float = 1.0,
        dropout: float = 0.0,
    ) -> list[LoRA]:
        """Freeze the model, and put a LoRA in the place of each Linear with one of these names.

        names: those of attributes, such as ("W_q", "W_v"). A Linear that stands in several places
        gets one LoRA, in all of them. One in a LoRA has its own already, which learns further.
        Raises ValueError if there is none.
        """
        check_type('names are attributes, such as ("W_q", "W_v")', names, Collection)
        names = [names] if isinstance(names, str) else list(names)
        places = places_of(model, AdaptedLinear)
        wanted = {id(linear) for _, name, linear in places if name in names}
        wanted -= {id(x.linear) for x in model.modules() if isinstance(x, LoRA)}
        if not wanted:
            raise ValueError(f"no Linear with a name of {list(names)} that is not in a LoRA yet")
        places = [place for place in places if id(place[2]) in wanted]
        inserted = exchange(places, lambda linear: LoRA(linear, rank, scale, dropout))
        learned = [p for x in model.modules() if isinstance(x, LoRA) for p in (x.A, x.B)]
        for parameter in model.parameters():
            if not any(parameter is p for p in learned):
                parameter.requires_grad = False
        return inserted

    @staticmethod
    def merge_all(model: Module) -> None:
        """Put the merged Linear in the place of each LoRA: the model is then as it was built.

        A weight that stood in another place too, as that of a tied head, is then another one there.
        Raises ValueError if the model is a LoRA itself.
        """
        if isinstance(model, LoRA):
            raise ValueError("this is a LoRA itself: after merge() its Linear is lora.linear")
        for _, _, lora in (places := places_of(model, LoRA)):
            lora.merge()
        exchange(places, lambda lora: lora.linear)

    def extra_repr(self) -> str:
        return f"rank={self.A.shape[0]}, scale={self.scale}"


def places_of(model: Module, kind: type[Module] | UnionType) -> list[tuple[Module, str, Any]]:
    """(parent, name, module) of each place of a module of this kind."""
    check_type("a LoRA is put into a module", model, Module)
    return [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent._modules.items()
        if isinstance(child, kind)
    ]


def exchange(places: list[tuple[Module, str, Any]], make: Callable[[Any], Any]) -> list[Any]:
    """Put make(module) in each place of each module, and return what was made.

    One for each module, because one that stands in two places stays one. All are made before the
    first is exchanged, because one may be refused. TypeError if one is in a list of its parent too,
    where it would stay.
    """
    for parent, _, module in places:
        others = {name: x for name, x in vars(parent).items() if x is not module}
        for name, x in others.items():
            check_container(name, x, (Module, Parameter), others)
    made = {id(module): module for _, _, module in places}
    made = {key: make(module) for key, module in made.items()}
    for parent, name, module in places:
        setattr(parent, name, made[id(module)])
    return [*made.values()]
