"""A model whose matrices are whole numbers; `nn/int8.py` has the layer."""

from .. import nn
from ..errors import DtypeError
from ..nn.int8 import Int8Linear
from ..nn.lora import exchange, places_of


def quantize(model: nn.Module) -> None:
    """Put an Int8Linear in the place of each Linear, and freeze what is left.

    Raises RuntimeError for a model with a LoRA in it, and TypeError for a Linear with a forward of
    its own; nothing is changed then.
    """
    names = {id(module): name for name, module in model.named_modules()}
    if any(isinstance(module, nn.LoRA) for module in model.modules()):
        raise RuntimeError(
            "a model with a LoRA is not quantized: quantize it before LoRA.insert, or, if its "
            "weights are floating numbers, after nn.LoRA.merge_all(model)"
        )

    def int8_of(linear: nn.Linear) -> Int8Linear:
        if type(linear).forward is not nn.Linear.forward:
            text = "has a forward() of its own, which int8 weights do not know"
            raise TypeError(f"{names[id(linear)]}: {type(linear).__name__} {text}")
        try:
            return Int8Linear(linear.weight, linear.bias)
        except (ValueError, DtypeError) as error:
            raise type(error)(f"{names[id(linear)]}: {error}") from None

    exchange(places_of(model, nn.Linear), int8_of)
    model.requires_grad_(False).eval()
