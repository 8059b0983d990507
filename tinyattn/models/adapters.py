"""Adapters: corrections of low rank for a published model, in the files of PEFT."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from .. import nn
from ..base.checks import check_number, check_shapes, check_size, check_type, checked_probability
from ..engine.autograd import wrap
from ..errors import CheckpointError
from ..interop import get, put
from ..nn.lora import AdaptedLinear
from ..tensors.tensor import Tensor
from ..training.checkpoint import save
from .published import WEIGHTS, Part, check_array, check_fit, load_tensors
from .settings import check_kind, is_inert, naming, read_json, settings_of, write_json

CONFIG, ADAPTER = "adapter_config.json", "adapter_model.safetensors"
KEY = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")
# What stands before the names of layers, in one class of transformers and not in another.
PREFIX = re.compile(r"^((model|transformer|bert|roberta|distilbert)\.)*")
NUMBER = re.compile(r"\.\d+\.")
# Settings that are read; then those of which the tensors say enough, and notes.
KNOWN = """
alpha_pattern lora_alpha lora_dropout r rank_pattern use_rslora
auto_mapping base_model_name_or_path exclude_modules fan_in_fan_out inference_mode layers_pattern
layers_to_transform megatron_core peft_version qalora_group_size revision runtime_config
target_modules task_type
"""
# What others must say; or nothing. Other ways to begin change the model's own weights too.
PLAIN: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "init_lora_weights": (True, "gaussian", "orthogonal", "eva"),
}


class Adapters:
    """The adapters of a model by name. No module, because those that wait are no part of it."""

    def __init__(self) -> None:
        self.loras: dict[str, dict[str, nn.LoRA]] = {}  # by name, and by place in the model
        self.linears: dict[str, Any] = {}  # what stands at these places without an adapter
        self.active: str | None = None


class Published(nn.Module):
    """A model with files as transformers writes them, and adapters as PEFT writes them.

    Of the adapters, which have names, one is active.
    """

    task_type: ClassVar[str | None] = None  # PEFT's word for what such a model is used for

    def __init__(self) -> None:
        super().__init__()
        self.adapters = Adapters()

    def published_parts(self) -> dict[str, Part]:
        """The tensors of a file by the names that transformers gives them."""
        raise NotImplementedError

    def write(self, folder: str | os.PathLike[str], config: dict[str, Any]) -> None:
        """Write model.safetensors, then config.json, with the dtype in it: on a full disk none."""
        if any(isinstance(module, nn.LoRA) for module in self.modules()):
            raise RuntimeError(
                "LoRA has no place in this format: call nn.LoRA.merge_all(model), or save_adapter"
            )
        if Path(folder, CONFIG).exists():
            raise FileExistsError(f"{folder} has an adapter, which would count twice: take another")
        own, parts = dict(self._named_state()), self.published_parts().items()
        check_fit("its config", {n: x for _, part in parts for n, x in part.ours.items()}, own)
        Path(folder).mkdir(parents=True, exist_ok=True)
        save({key: wrap(x.to_theirs(own)) for key, x in parts}, Path(folder, WEIGHTS))
        # transformers 5 computes in the dtype that is named here.
        config = config | {"torch_dtype": next(self.parameters()).dtype.name}
        write_json(Path(folder, "config.json"), config)

    def load_adapter(self, folder: str | os.PathLike[str], name: str = "default") -> None:
        """Read an adapter that PEFT or `save_adapter` has written, and make it the active one.

        Each matrix that it corrects gets an `nn.LoRA`, which can learn further; the rest of the
        model is frozen. One of the same name is replaced. `quantize()` may come before.

        Raises FileNotFoundError for a missing file, and CheckpointError, which names the file and
        the setting or tensor, for what is not LoRA alone, such as DoRA, trained biases or whole
        modules, and for tensors that do not fit or are missing. Nothing is changed then.
        """
        corrections, own = read_adapter(folder, self.published_parts()), self.adapters
        there = dict(self.named_modules()) | own.linears
        linears: dict[str, Any] = {place: there.get(place) for place in corrections}
        with naming(Path(folder)):
            for place, linear in linears.items():
                check_type(f"{place} must be a Linear, which LoRA adapts", linear, AdaptedLinear)
        self.set_adapter(None)
        self.requires_grad_(False)
        own.linears |= linears
        own.loras[name] = {}
        with nn.init.skipped():
            for place, (a, b, scale, dropout) in corrections.items():
                own.loras[name][place] = lora = nn.LoRA(linears[place], len(a), scale, dropout)
                lora.A, lora.B = a, nn.Parameter(b)
        self.set_adapter(name)

    def set_adapter(self, name: str | None) -> None:
        """Make the adapter of this name the active one; None: none of them.

        Raises ValueError for an unknown name, and RuntimeError if the model has other layers than
        those that the adapters were loaded for. What LoRA.insert put in stays.
        """
        own = self.adapters
        if name is not None and name not in own.loras:
            raise ValueError(f"the adapters are {list(own.loras)}, got {name!r:.60}")
        before, after = (own.loras[x] if x is not None else {} for x in (own.active, name))
        for place, linear in own.linears.items():
            if get(self, place) is not before.get(place, linear):
                raise RuntimeError(
                    f"{place} is another layer than the one that the adapters were loaded for, "
                    "as after merge_all or quantize: load the model and the adapters anew"
                )
        some = next(self.parameters())
        for place, linear in own.linears.items():
            put(self, place, after.get(place, linear))
        for lora in after.values():
            for x in (lora.A, lora.B):
                x.data = x.detach().to(some.dtype).to(some.device)
        self.train(self.training)
        own.active = name

    def save_adapter(self, folder: str | os.PathLike[str]) -> None:
        """Write the LoRAs that are in the model, wherever they come from, as PEFT reads them."""
        loras = {place: x for place, x in self.named_modules() if isinstance(x, nn.LoRA)}
        if not loras:
            raise ValueError("this model has no LoRA: insert one, or make an adapter active")
        learn = [name for name, x in self.named_parameters() if x.requires_grad]
        if more := [name for name in learn if name.rpartition(".")[0] not in loras]:
            raise ValueError(
                f"{more[0]} may have learned too, and an adapter has no place for it: call its "
                "requires_grad_(False), or save the whole model after nn.LoRA.merge_all(model)"
            )
        tensors, ranks, alphas, left, is_turned = {}, {}, {}, set(loras), False
        for theirs, part in self.published_parts().items():
            here = [loras.get(place) for place in places(part)]
            if any(here) and theirs.endswith(".weight"):
                name = theirs.removesuffix(".weight")
                a, b, scale = joined(name, part, here)
                ranks[name], alphas[name] = len(a), scale * len(a)
                tensors[f"base_model.model.{name}.lora_A.weight"] = wrap(a)
                tensors[f"base_model.model.{name}.lora_B.weight"] = wrap(b)
                left, is_turned = left - {*places(part)}, part.is_transposed
        if left:
            raise ValueError(f"no matrix of a published model is {min(left)}")
        rank, alpha = next(iter(ranks.values())), next(iter(alphas.values()))
        config = {
            "peft_type": "LORA",
            "task_type": self.task_type,
            "base_model_name_or_path": None,
            "r": rank,
            "lora_alpha": alpha,
            "rank_pattern": {name: x for name, x in ranks.items() if x != rank},
            "alpha_pattern": {name: x for name, x in alphas.items() if x != alpha},
            "lora_dropout": next(iter(loras.values())).dropout.p,
            "target_modules": list(ranks),
            "fan_in_fan_out": is_turned,
            "bias": "none",
            "inference_mode": True,
        }
        write_json(Path(folder, CONFIG), config)
        save(tensors, Path(folder, ADAPTER))


def places(part: Part) -> list[str]:
    """The layers of whose weights a tensor consists."""
    return [name.rpartition(".")[0] for name in part.ours]


def joined(
    name: str, part: Part, loras: list[nn.LoRA | None]
) -> tuple[np.ndarray, np.ndarray, float]:
    """A, B and scale of one tensor of a file, which may be several layers here, as in GPT-2.

    Each A that they have stands once; the rows of B are 0 where they belong to another A.
    """
    given = [lora for lora in loras if lora is not None]
    if len({lora.scale for lora in given}) > 1:
        raise ValueError(f"{name} is one matrix in a file, so its LoRAs have one scale")
    found = {id(lora.A): lora.A.cpu().numpy() for lora in given}
    blocks: dict[str, Tensor] = {}
    for (ours, shape), lora in zip(part.ours.items(), loras, strict=True):
        columns = [np.zeros((shape[0], len(a)), a.dtype) for a in found.values()]
        if lora is not None:
            columns[[*found].index(id(lora.A))] = lora.B.cpu().numpy()
        blocks[ours] = wrap(np.concatenate(columns, 1))
    turned = Part({ours: block.shape for ours, block in blocks.items()}, pairs=part.pairs)
    return np.concatenate([*found.values()]), turned.to_theirs(blocks), given[0].scale


Correction = tuple[nn.Parameter, np.ndarray, float, float]  # A, B, scale, dropout


def read_adapter(folder: str | os.PathLike[str], parts: dict[str, Part]) -> dict[str, Correction]:
    """The corrections of a folder by our places, after all checks."""
    with settings_of(Path(folder, CONFIG), read_json) as config:
        check_config(config)
    path = Path(folder, ADAPTER)
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} has no {ADAPTER}: write the adapter anew with PEFT's save_pretrained"
        )
    known = {PREFIX.sub("", key): part for key, part in parts.items() if key.endswith(".weight")}
    corrections: dict[str, Correction] = {}
    for name, pair in pairs_of(load_tensors(path), path).items():
        part = known.get(PREFIX.sub("", f"{name}.weight"))
        if part is None and name.endswith("pooler.dense"):
            continue  # `all-linear` names it, and a model without it does not read it
        if part is None or len(part.shape) != 2:
            raise CheckpointError(f"{path}: {name} is no matrix of this model")
        with naming(path.with_name(CONFIG)):
            rank = check_size("r", of_pattern(config, "rank_pattern", name, "r"))
            alpha = of_pattern(config, "alpha_pattern", name, "lora_alpha")
            divisor = rank**0.5 if config.get("use_rslora") else rank
            scale = check_number("lora_alpha", alpha, 0) / divisor
        outputs, inputs = part.shape[:: -1 if part.is_transposed else 1]
        with naming(path):
            check_shapes(f"LoRA of {name}", {"A": (rank, inputs), "B": (outputs, rank)}, pair)
        blocks = Part({ours: (x[0], rank) for ours, x in part.ours.items()}, pairs=part.pairs)
        shared = nn.Parameter(pair["A"])  # by the layers that are one matrix in the file
        for place, b in zip(places(part), blocks.to_ours(pair["B"]).values(), strict=True):
            corrections[place] = shared, b, scale, config.get("lora_dropout", 0.0)
    kinds = {NUMBER.sub("", place) for place in corrections}  # without the number of a layer
    with naming(path.with_name(CONFIG)):
        for key, part in parts.items() if config.get("layers_to_transform") is None else ():
            place, name = places(part)[0], key.removesuffix(".weight")
            is_left_out = place not in corrections and NUMBER.sub("", place) in kinds
            targets, others = (config.get(f"{x}_modules") for x in ("target", "exclude"))
            if is_left_out and is_named(targets, name) and not is_named(others, name):
                raise ValueError(
                    f"target_modules name {name}, and {ADAPTER} has nothing for it: was it made "
                    "for a model with fewer layers?"
                )
    return corrections


def is_named(names: Any, name: str) -> bool:
    """Whether a setting of PEFT, a regular expression or ends of names, names a matrix."""
    if not isinstance(names, str):
        names = rf"(.*\.)?({'|'.join(names or ())})"
    return re.fullmatch(names, name) is not None


def check_config(config: dict[str, Any]) -> None:
    """Only what is LoRA alone is read."""
    for name, value in config.items():
        is_plain = name in KNOWN.split() or value in PLAIN.get(name, ())
        if not is_plain and not is_inert(name, value):
            raise ValueError(
                f"{name} {value!r:.60} is not read here: make a whole model of it with PEFT's "
                "merge_and_unload() and save_pretrained(), and read that"
            )
    checked_probability(config.get("lora_dropout", 0.0), "lora_dropout")
    check_kind("use_rslora", config.get("use_rslora", False), bool)


def pairs_of(state: Mapping[str, Tensor], path: Path) -> dict[str, dict[str, np.ndarray]]:
    """A and B of each matrix, by its name, of the tensors of a file."""
    pairs: dict[str, dict[str, np.ndarray]] = {}
    for key, value in state.items():
        found = KEY.fullmatch(key)
        if found is None:
            raise CheckpointError(
                f"{path}: {key} is not the A or B of a LoRA. If it is as in the model, PEFT leaves "
                "it out with save_pretrained(folder, save_embedding_layers=False)"
            )
        check_array(value._data, key, path)
        pairs.setdefault(found[1], {})[found[2]] = value._data
    for name, pair in pairs.items():
        if len(pair) < 2:
            raise CheckpointError(f"{path}: {name} has lora_{next(iter(pair))} alone")
    if not pairs:
        raise CheckpointError(f"{path} has no tensors")
    return pairs


def of_pattern(config: dict[str, Any], pattern: str, name: str, default: str) -> Any:
    """The value for a matrix: of the first regular expression that its name ends with."""
    values = check_kind(pattern, config.get(pattern) or {}, dict)
    keys = (key for key in values if re.match(rf"(.*\.)?({key})$", name))
    return next((values[key] for key in keys), config.get(default))
