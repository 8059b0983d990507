"""The folders of published models, and their tensors: names there and here, and shapes.

Four kinds of files have a column each in the tables: Llama's and Qwen2's folders, GGUF, GPT-2's
and BERT's folders. The settings have Llama's names in the code.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from .. import nn
from ..base.backend import is_finite, quietly
from ..base.checks import describe, shortened
from ..errors import CheckpointError
from ..nn import init
from ..tensors.tensor import Tensor
from ..training.checkpoint import load
from .settings import naming, read_json

Filled = TypeVar("Filled", bound=nn.Module)
LLAMA, GGUF, GPT2, BERT = 0, 1, 2, 3  # the columns
# What stands before the parts of a layer.
LAYER = ("model.layers.{}.", "blk.{}.", "h.{}.", "encoder.layer.{}.")
# Ours; the shape, by D width, I inner width, K width of keys, V vocabulary, P positions, T types of
# tokens; theirs.
ENDS = """
word          VD  model.embed_tokens  token_embd   wte   embeddings.word_embeddings
position      PD  -                   -            wpe   embeddings.position_embeddings
token_type    TD  -                   -            -     embeddings.token_type_embeddings
norm          D   -                   -            -     embeddings.LayerNorm
encoder.norm  D   model.norm          output_norm  ln_f  -
head          VD  lm_head             output       -     -
"""
PARTS = """
self_attn.W_q    DD  self_attn.q_proj          attn_q       attn.c_attn  attention.self.query
self_attn.W_k    KD  self_attn.k_proj          attn_k       attn.c_attn  attention.self.key
self_attn.W_v    KD  self_attn.v_proj          attn_v       attn.c_attn  attention.self.value
self_attn.W_o    DD  self_attn.o_proj          attn_output  attn.c_proj  attention.output.dense
sublayer.0.norm  D   input_layernorm           attn_norm    ln_1         attention.output.LayerNorm
feed_forward.w_1 ID  mlp.gate_proj             ffn_gate     mlp.c_fc     intermediate.dense
feed_forward.w_3 ID  mlp.up_proj               ffn_up       -            -
feed_forward.w_2 DI  mlp.down_proj             ffn_down     mlp.c_proj   output.dense
sublayer.1.norm  D   post_attention_layernorm  ffn_norm     ln_2         output.LayerNorm
"""
WEIGHTS = "model.safetensors"
# Files of weights that are not read, and why.
OTHER_WEIGHTS = {
    f"{WEIGHTS}.index.json": "is a list of several files, and one file is read here",
    "pytorch_model.bin": "is a pickle, and a pickle can run code",
    "pytorch_model.bin.index.json": "is a list of pickles, and a pickle can run code",
    "tf_model.h5": "is a file of TensorFlow",
    "flax_model.msgpack": "is a file of Flax",
}
WITHOUT_BIAS = ("word", "position", "token_type", "head")


class Part:
    """A tensor of a file: the parameters that it holds, one below the other, and its shape.

    is_transposed: its matrices are, as those of GPT-2's layers.
    pairs: rows of a head whose halves rotary turns there, and neighbours here; else 0.
    """

    def __init__(
        self, ours: dict[str, tuple[int, ...]], is_transposed: bool = False, pairs: int = 0
    ) -> None:
        self.ours = ours
        self.is_transposed, self.pairs = is_transposed, pairs

    @property
    def shape(self) -> tuple[int, ...]:
        shapes = list(self.ours.values())
        shape = (sum(shape[0] for shape in shapes), *shapes[0][1:])
        return shape[::-1] if self.is_transposed else shape

    def to_ours(self, array: np.ndarray) -> dict[str, np.ndarray]:
        """The parameters in an array of this shape."""
        array = array.T if self.is_transposed else array
        if self.pairs:
            array = exchanged(array, 2, self.pairs // 2)
        ends = np.cumsum([shape[0] for shape in self.ours.values()])[:-1]
        return dict(zip(self.ours, np.split(array, ends), strict=True))

    def to_theirs(self, parameters: Mapping[str, Any]) -> np.ndarray:
        """The inverse of `to_ours`."""
        array = np.concatenate([parameters[name].cpu().numpy() for name in self.ours])
        if self.pairs:
            array = exchanged(array, self.pairs // 2, 2)
        return array.T if self.is_transposed else array


def exchanged(x: np.ndarray, a: int, b: int) -> np.ndarray:
    """Rows (..., a, b) become (..., b, a)."""
    return x.reshape(-1, a, b, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def parts_of(config: dict[str, Any], column: int, most: int | None = None) -> dict[str, Part]:
    """The tensors of a file by their names; `most` is the number that it has, if it is read."""
    parts: dict[str, Part] = {}
    for ours, theirs, shape in matrices_of(config, column, most):
        is_transposed = column == GPT2 and ours.startswith("encoder.layers.")
        is_turned = column == LLAMA and ours.endswith(("W_q", "W_k"))
        ends = {"weight": shape}
        if has_bias(config["model_type"], ours):
            ends["bias"] = shape[:1]
        for end, size in ends.items():
            part = Part({}, is_transposed, config["head_dim"] if is_turned else 0)
            parts.setdefault(f"{theirs}.{end}", part).ours[f"{ours}.{end}"] = size
    return parts


def matrices_of(
    config: dict[str, Any], column: int, most: int | None
) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """(our name, their name, shape) of every matrix and of every norm's weights."""
    sizes = {
        "V": config["vocab_size"],
        "D": config["hidden_size"],
        "I": config["intermediate_size"],
        "K": config.get("head_dim", 1) * config.get("num_key_value_heads", config["hidden_size"]),
        "P": config["max_position_embeddings"],
        "T": config.get("type_vocab_size"),
    }
    layers = config["num_hidden_layers"]
    if most is not None:
        # One layer more than the file can have, because a wrong number may be a large one.
        layers = min(layers, most // 6 + 1)
    blocks = [("", "", ENDS)]
    for i in range(layers):
        blocks.append((f"encoder.layers.{i}.", LAYER[column].format(i), PARTS))
    for ours, theirs, table in blocks:
        for row in table.strip().splitlines():
            name, letters, *names = row.split()
            if names[column] == "-" or (name == "head" and config["tie_word_embeddings"]):
                continue
            yield ours + name, theirs + names[column], tuple(sizes[x] for x in letters)


def has_bias(model_type: str, name: str) -> bool:
    if model_type in ("gpt2", "bert"):
        return name not in WITHOUT_BIAS
    return model_type == "qwen2" and name.endswith(("W_q", "W_k", "W_v"))


def load_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file that has nothing else."""
    state = load(path)
    for key, value in state.items():
        if not isinstance(value, Tensor):
            raise CheckpointError(f"{path}: {key} must be a tensor, got {describe(value)}")
    return state


def filled(
    make: Callable[[], Filled],
    prepare: Callable[[Any], None],
    parts: Mapping[str, Part],
    tensors: Mapping[str, Any],
    read: Callable[[str], np.ndarray],
    path: Any,
    settings: str = "config.json",
) -> Filled:
    """What `make` makes, in evaluation mode, with the tensors of a file, after all checks.

    prepare: gets the model before it is filled, with arbitrary values.
    tensors: by name, what has the shape and the dtype of each; `read` gives its array.
    settings: what says which tensors there are.
    """
    shapes = {key: part.shape for key, part in parts.items()}
    check_fit(shapes, {key: x.shape for key, x in tensors.items()}, path, settings)
    dtype = np.result_type(np.float32, *(x.dtype for x in tensors.values()))
    with init.skipped():
        model = make()
    if dtype != np.float32:
        quietly(model.to, dtype)  # a warning would be about memory without numbers
    prepare(model)
    parameters = dict(model.named_parameters())
    for key, part in parts.items():
        array = read(key)
        check_array(array, key, path)
        for name, x in part.to_ours(array).items():
            parameters[name]._data[...] = x
    return model.eval()


def check_fit(
    shapes: Mapping[str, tuple[int, ...]],
    found: Mapping[str, tuple[int, ...]],
    path: Any,
    settings: str,
) -> None:
    """The tensors of a file are those that its settings ask for, in name and shape."""
    missing = [key for key in shapes if key not in found]
    unknown = [key for key in found if key not in shapes]
    if missing or unknown:
        raise CheckpointError(
            f"{path} does not fit its {settings}: missing {shortened(missing)}, unexpected "
            f"{shortened(unknown)}"
        )
    for key, shape in shapes.items():
        if found[key] != shape:
            raise CheckpointError(
                f"{path}: {key} has shape {found[key]}, and {settings} says {shape}"
            )


def check_array(array: np.ndarray, key: str, path: Any) -> None:
    if array.dtype.kind != "f":
        raise CheckpointError(f"{path}: {key} is {array.dtype}, expected floating numbers")
    if not is_finite(array) and not np.isfinite(array).all():
        raise CheckpointError(f"{path}: {key} has numbers that are not finite")


def read_folder(
    folder: str | os.PathLike[str], checked: Callable[[Any], Any], sha256: str | None
) -> tuple[dict[str, Any], Path]:
    """The config of a folder as `checked` gives it, and the file of weights."""
    path = checked_folder(folder) / "config.json"
    config = read_json(path)
    with naming(path):
        config = checked(config)
    path = weights_of(Path(folder))
    check_sha256(path, sha256)
    return config, path


def checked_folder(folder: str | os.PathLike[str]) -> Path:
    if not Path(folder).is_dir():
        raise FileNotFoundError(
            f"{folder} is not a folder. Nothing is downloaded: give the folder of the model, with "
            f"config.json and {WEIGHTS}"
        )
    return Path(folder)


def weights_of(folder: Path) -> Path:
    """The file of weights; an error says what to do about another one."""
    if (folder / "adapter_config.json").is_file():
        raise CheckpointError(
            f"{folder} has adapter_config.json: merge the adapter into the weights first, because "
            "an adapter is not read here"
        )
    if (folder / WEIGHTS).is_file():
        return folder / WEIGHTS
    for name, reason in OTHER_WEIGHTS.items():
        if (folder / name).is_file():
            raise FileNotFoundError(
                f"{folder} has no {WEIGHTS}. Its {name} {reason}: write the folder anew with "
                'model.save_pretrained("new folder", max_shard_size="100GB") of transformers'
            )
    raise FileNotFoundError(f"{folder} has no {WEIGHTS}")


def check_sha256(path: Path, expected: str | None) -> None:
    if expected is None:
        return
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != expected.lower():
        raise CheckpointError(f"{path} has the sha256 {digest}, expected {expected}")
