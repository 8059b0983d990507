"""The folders of published models, and their tensors: names there and here, and shapes.

Five kinds of files have a column each in the tables: Llama's folders, which Qwen and Mistral have
too, GGUF, GPT-2's, BERT's and DistilBERT's folders. The settings have Llama's names in the code.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from .. import nn
from ..base.backend import is_finite, quietly
from ..base.checks import check_names, check_shapes, describe
from ..errors import CheckpointError
from ..tensors.tensor import Tensor
from ..training.checkpoint import load
from .settings import check_kind, naming, read_json, settings_of

Filled = TypeVar("Filled", bound=nn.Module)
LLAMA, GGUF, GPT2, BERT, DISTILBERT = range(5)  # the columns; the last two have tables of their own
# What stands before the parts of a layer.
LAYER = ("model.layers.{}.", "blk.{}.", "h.{}.", "encoder.layer.{}.", "transformer.layer.{}.")
# Ours; the shape, by D width, I inner width, Q and K widths of all queries and keys, H that of a
# head, V vocabulary, P positions, T types of tokens; theirs.
ENDS = """
word          VD  model.embed_tokens  token_embd   wte
position      PD  -                   -            wpe
encoder.norm  D   model.norm          output_norm  ln_f
head          VD  lm_head             output       lm_head
"""
PARTS = """
self_attn.W_q    QD  self_attn.q_proj          attn_q       attn.c_attn
self_attn.W_k    KD  self_attn.k_proj          attn_k       attn.c_attn
self_attn.W_v    KD  self_attn.v_proj          attn_v       attn.c_attn
self_attn.W_o    DQ  self_attn.o_proj          attn_output  attn.c_proj
self_attn.q_norm H   self_attn.q_norm          attn_q_norm  -
self_attn.k_norm H   self_attn.k_norm          attn_k_norm  -
sublayer.0.norm  D   input_layernorm           attn_norm    ln_1
feed_forward.w_1 ID  mlp.gate_proj             ffn_gate     mlp.c_fc
feed_forward.w_3 ID  mlp.up_proj               ffn_up       -
feed_forward.w_2 DI  mlp.down_proj             ffn_down     mlp.c_proj
sublayer.1.norm  D   post_attention_layernorm  ffn_norm     ln_2
"""
# Ours; the shape, by the same letters; the names of BERT, which RoBERTa has too, and of DistilBERT.
ENCODER_ENDS = """
word        VD  embeddings.word_embeddings        embeddings.word_embeddings
position    PD  embeddings.position_embeddings    embeddings.position_embeddings
token_type  TD  embeddings.token_type_embeddings  -
norm        D   embeddings.LayerNorm              embeddings.LayerNorm
"""
ENCODER_PARTS = """
self_attn.W_q    DD  attention.self.query        attention.q_lin
self_attn.W_k    DD  attention.self.key          attention.k_lin
self_attn.W_v    DD  attention.self.value        attention.v_lin
self_attn.W_o    DD  attention.output.dense      attention.out_lin
sublayer.0.norm  D   attention.output.LayerNorm  sa_layer_norm
feed_forward.w_1 ID  intermediate.dense          ffn.lin1
feed_forward.w_2 DI  output.dense                ffn.lin2
sublayer.1.norm  D   output.LayerNorm            output_layer_norm
"""
ENCODERS = ("bert", "distilbert", "roberta", "xlm-roberta")
WEIGHTS = "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"  # of the files that hold the tensors, if there are several
WITHOUT_BIAS = ("word", "position", "token_type", "head")
TURNED = ("W_q", "W_k", "q_norm", "k_norm")  # what acts on heads before rotary turns them
WITH_HEAD_NORMS = ("qwen3",)


class Part(NamedTuple):
    """A tensor of a file: the parameters that it holds, one below the other, and its shape.

    is_transposed: its matrices are, as those of GPT-2's layers.
    pairs: rows of a head whose halves rotary turns there, and neighbours here; else 0.
    """

    ours: dict[str, tuple[int, ...]]
    is_transposed: bool = False
    pairs: int = 0

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
        arrays = [parameters[name].cpu().numpy() for name in self.ours]
        array = np.concatenate(arrays) if len(arrays) > 1 else arrays[0]
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
        # llama.cpp writes the pairs of Llama as neighbours, and those of Qwen as halves.
        has_halves = column == LLAMA or (column == GGUF and config["model_type"] != "llama")
        is_turned = has_halves and ours.endswith(TURNED)
        ends = {"weight": shape}
        if has_bias(config, ours):
            ends["bias"] = shape[:1]
        for end, size in ends.items():
            part = Part({}, is_transposed, config["head_dim"] if is_turned else 0)
            parts.setdefault(f"{theirs}.{end}", part).ours[f"{ours}.{end}"] = size
    return parts


def matrices_of(
    config: dict[str, Any], column: int, most: int | None
) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """(our name, their name, shape) of every matrix and of every norm's weights."""
    width = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    sizes = {
        "V": config["vocab_size"],
        "D": config["hidden_size"],
        "I": config["intermediate_size"],
        "H": width,
        "Q": width * config["num_attention_heads"],
        "K": width * config.get("num_key_value_heads", config["num_attention_heads"]),
        "P": config["max_position_embeddings"],
        "T": config.get("type_vocab_size"),
    }
    layers = config["num_hidden_layers"]
    if most is not None:
        # One layer more than the file can have, because a wrong number may be a large one. A layer
        # has six tensors at least: those of GPT-2, whose queries, keys and values are one.
        layers = min(layers, most // 6 + 1)
    is_encoder = column in (BERT, DISTILBERT)
    ends, parts = (ENCODER_ENDS, ENCODER_PARTS) if is_encoder else (ENDS, PARTS)
    blocks = [(f"encoder.layers.{i}.", LAYER[column].format(i), parts) for i in range(layers)]
    for ours, theirs, table in [("", "", ends), *blocks]:
        for row in table.strip().splitlines():
            name, letters, *names = row.split()
            their_name = names[column - BERT if is_encoder else column]
            if their_name == "-" or (name == "head" and config["tie_word_embeddings"]):
                continue
            if letters == "H" and config["model_type"] not in WITH_HEAD_NORMS:
                continue
            yield ours + name, theirs + their_name, tuple(sizes[x] for x in letters)


def has_bias(config: dict[str, Any], name: str) -> bool:
    kind, part = config["model_type"], name.rpartition(".")[2]
    if kind in ("gpt2", *ENCODERS):
        return name not in WITHOUT_BIAS
    if part.startswith("w_"):
        return config["mlp_bias"] and kind in ("llama", "smollm3")
    is_biased = part != "W_o" if kind == "qwen2" else config["attention_bias"] and kind != "mistral"
    return part.startswith("W_") and is_biased


def load_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file that has nothing else, or of all files that an index lists."""
    if path.name == INDEX:
        return listed_tensors(path)
    state = load(path)
    for key, value in state.items():
        if not isinstance(value, Tensor):
            raise CheckpointError(f"{path}: {key} must be a tensor, got {describe(value)}")
    return state


def listed_tensors(path: Path) -> dict[str, Tensor]:
    with settings_of(path, read_json) as index:
        places = check_kind("weight_map", index.get("weight_map"), dict)
        names = {check_kind("a file", name, str) for name in places.values()}
        if any(Path(name).name != name or name in ("", "..", INDEX) for name in names):
            raise ValueError(f"the files must lie beside it, got {sorted(names)}")
    state: dict[str, Tensor] = {}
    for name in sorted(names):
        part = load_tensors(path.with_name(name))
        if part.keys() != {key for key, file in places.items() if file == name}:
            raise CheckpointError(f"{path} does not fit {name}: they list other tensors")
        state |= part
    return state


def filled(
    make: Callable[[], Filled],
    prepare: Callable[[Any], None],
    parts: Mapping[str, Part],
    tensors: dict[str, Any],
    path: Any,
    settings: str = "config.json",
    read: Callable[[str], np.ndarray] | None = None,
) -> Filled:
    """What `make` makes, in evaluation mode, with the tensors of a file, after all checks.

    What is not in the file, as layers of a subclass, keeps the starting values that it draws.
    prepare: gets the model before it is filled, with arbitrary values.
    tensors: by name, what has the shape and the dtype of each. `read` gives its array; without it
        they are Tensors, which are taken out, so that their memory is free.
    settings: what says which tensors there are.
    """
    with naming(path):
        check_fit(settings, {key: part.shape for key, part in parts.items()}, tensors)
    dtype = np.result_type(np.float32, *(x.dtype for x in tensors.values()))
    with nn.init.skipped():
        model = make()
    if len([*model.parameters()]) > sum(len(part.ours) for part in parts.values()):
        model, prepare = make(), lambda _: None  # the layers of a subclass have starting values
    if dtype != np.float32:
        quietly(model.to, dtype)  # a warning would be about memory without numbers
    prepare(model)
    parameters = dict(model.named_parameters())
    for key in reversed([*tensors]):  # as they lie in memory, which then becomes free at its end
        array = read(key) if read else tensors.pop(key)._data
        check_array(array, key, path)
        for name, x in parts[key].to_ours(array).items():
            own = parameters[name]._data
            has_place = own.base is not None or not own.flags.c_contiguous  # see `prepare`
            if x.dtype == own.dtype and x.flags.c_contiguous and not has_place:
                parameters[name]._data = x  # a copy of the table of words would take memory
            else:
                own[...] = x
    return model.eval()


def check_fit(settings: str, shapes: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
    """Names and shapes are those that the settings say."""
    check_names(settings, shapes, tensors)
    check_shapes(settings, shapes, tensors)


def check_tied(state: Mapping[str, Tensor], head: str, words: str, path: Any) -> None:
    """A head that is the table of words, as config.json says, is equal to it, if both are there."""
    x, y = state.get(head), state.get(words)
    if x is not None and y is not None and not np.array_equal(x._data, y._data):
        raise CheckpointError(
            f"{path}: {head} differs from {words}, and config.json says that they are one: write "
            "tie_word_embeddings: false there to keep both"
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
    with settings_of(checked_folder(folder) / "config.json", read_json) as config:
        config = checked(config)
    path = weights_of(Path(folder))
    if path.name == INDEX and sha256 is not None:
        raise ValueError(f"sha256 is of one file, and {folder} has its weights in several")
    check_sha256(path, sha256)
    return config, path


def checked_folder(folder: str | os.PathLike[str]) -> Path:
    if not Path(folder).is_dir():
        raise FileNotFoundError(
            f"{folder} is not a folder. Nothing is downloaded: give the folder of the model, with "
            f"config.json and {WEIGHTS}"
        )
    if Path(folder, "adapter_config.json").is_file():
        raise CheckpointError(
            f"{folder} has adapter_config.json: read the model that it was made for, and call its "
            "load_adapter, or that of its encoder; if both are here, each needs a folder of its own"
        )
    return Path(folder)


def weights_of(folder: Path) -> Path:
    """The file of weights, or their index; the error says how to make it of others."""
    for name in (WEIGHTS, INDEX):
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(
        f"{folder} has no {WEIGHTS}, and no other weights are read, because pytorch_model.bin is a "
        "pickle, which can run code: write the folder anew with "
        'model.save_pretrained("new folder", max_shard_size="100GB") of transformers'
    )


def check_sha256(path: Path, expected: str | None) -> None:
    if expected is None:
        return
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != expected.lower():
        raise CheckpointError(f"{path} has the sha256 {digest}, expected {expected}")
