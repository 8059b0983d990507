"""The settings in a folder of sentence-transformers, as its versions 2 to 6 write them.

modules.json lists the modules and their folders. Each module has settings of its own. A setting
that changes the points is taken over or refused; an error names the file and the setting.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

from .. import nn
from ..base.checks import check_choice, check_size
from ..ops.normalization import normalize
from ..tensors.tensor import Tensor
from ..training.checkpoint import save
from .published import WEIGHTS, Part, filled, load_tensors, weights_of
from .settings import check_kind, check_known, is_there, naming, read_json, settings_of, write_json
from .tokenizer_files import TOKENIZER, added_tokens, checked_config, normalized, normalizers

KINDS = ("Transformer", "Pooling", "Dense", "Normalize")
# Old settings of Pooling, in the order in which old versions join their results.
POOLINGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
}
ACTIVATIONS = ("GELU", "Identity", "ReLU", "SiLU", "Sigmoid", "Tanh")
MODEL = "config_sentence_transformers.json"
MODEL_SETTINGS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("prompts", "default_prompt_name", "similarity_fn_name", "truncate_dim"), ()),
    **dict.fromkeys(("__version__", "requirements"), ()),  # of packages
    "model_type": ("SentenceTransformer",),
}
LENGTHS = "sentence_bert_config.json"
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
TEXT = {"method": "forward", "method_output_name": "last_hidden_state"}
# Settings of Transformer: () is for any value, because it is read elsewhere or changes no point.
TRANSFORMER: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("max_seq_length", "do_lower_case", "unpad_inputs"), ()),
    "modality_config": ({"text": TEXT},),
    "transformer_task": ("feature-extraction",),
    "module_output_name": ("token_embeddings",),
    **{name: (None, {}) for name in ("processing_kwargs", "query_expansion")},
    **dict.fromkeys(("query_length", "document_length"), (None,)),
    **{f"{part}_{end}": ({},) for part in ("model", "config") for end in ("args", "kwargs")},
    **{name: ({},) for name in ("tokenizer_args", "processor_kwargs")},
}
# What the modules after Pooling read and write.
VECTORS = dict.fromkeys(("module_input_name", "module_output_name"), ("sentence_embedding", None))


class Dense(nn.Module):
    """activation(linear(x)), on points (B, D)."""

    def __init__(self, n_in: int, n_out: int, bias: bool = True, activation: str = "Tanh") -> None:
        super().__init__()
        self.linear = nn.Linear(n_in, n_out, bias)
        self.activation = getattr(nn, activation)()

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.linear(x))


class Normalize(nn.Module):
    """x / |x|, on points (B, D)."""

    def forward(self, x: Tensor) -> Tensor:
        return normalize(x, dim=1)


def read_modules(folder: Path) -> list[tuple[str, Path]]:
    """The modules of modules.json in their order, each with its folder.

    Without that file: the Pooling in 1_Pooling, by default the mean, and Normalize.
    """
    path = folder / "modules.json"
    if not is_there(path):
        paths = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
        return [(kind, folder / path) for kind, path in paths.items()]
    modules, names = [], set()
    with settings_of(path, partial(read_json, kind=list)) as entries:
        for i, entry in enumerate(entries):
            check_kind(f"module {i}", entry, dict)
            name = check_kind(f"name of module {i}", entry.get("name", str(i)), str)
            kind = check_kind(f"type of module {i}", entry.get("type"), str)
            place = check_kind(f"path of module {i}", entry.get("path", ""), str)
            package, _, kind = kind.rpartition(".")
            if package.partition(".")[0] != "sentence_transformers" or kind not in KINDS:
                raise ValueError(f"type of module {i} must be one of {KINDS}, got {entry['type']}")
            is_path = "\0" not in place and len(place) <= 200  # some systems refuse longer ones
            if not is_path or not (folder / place).resolve().is_relative_to(folder.resolve()):
                raise ValueError(f"path of module {i} must be inside the folder, got {place!r:.60}")
            if name in names:
                raise ValueError(f"two modules have the name {name!r}")
            names.add(name)
            modules.append((kind, folder / place))
        kinds = [kind for kind, _ in modules]
        if kinds[:2] != ["Transformer", "Pooling"] or set(kinds[2:]) & {*KINDS[:2]}:
            raise ValueError(
                f"the modules must be a Transformer, a Pooling, Dense and Normalize, got {kinds}"
            )
        if not is_there(modules[1][1] / "config.json"):
            raise ValueError(f"the Pooling has no config.json in {modules[1][1].name}")
    return modules


def read_pooling(folder: Path, width: int) -> tuple[tuple[str, ...], bool]:
    """(the poolings, include_prompt)"""
    with settings_of(folder / "config.json") as settings:
        names = ("word_embedding_dimension", "embedding_dimension", "pooling_mode")
        known = dict.fromkeys((*names, "include_prompt", *POOLINGS), ())
        # Poolings that are not here have a flag too.
        check_known(settings, known)
        for name in names[:2]:
            if check_size(name, settings.get(name, width)) != width:
                raise ValueError(f"{name} must be the hidden_size {width}, got {settings[name]}")
        flags = {name: check_kind(name, settings.get(name, False), bool) for name in POOLINGS}
        found = [mode for name, mode in POOLINGS.items() if flags[name]]
        modes = settings.get("pooling_mode", found or "mean")
        modes = [modes] if isinstance(modes, str) else check_kind("pooling_mode", modes, list)
        check_poolings(modes)
        include_prompt = check_kind("include_prompt", settings.get("include_prompt", True), bool)
    return tuple(modes), include_prompt


def check_poolings(modes: Any) -> None:
    known = list(POOLINGS.values())
    if not modes or any(mode not in known for mode in modes):
        raise ValueError(f"pooling_mode must be one or more of {known}, got {list(modes)!r:.200}")


def read_head(modules: list[tuple[str, Path]], width: int) -> list[nn.Module]:
    """The modules after Pooling."""
    head: list[nn.Module] = []
    for kind, folder in modules:
        if kind == "Normalize":
            # It divides the vectors of texts, and none of tokens.
            with settings_of(folder / "config.json") as settings:
                check_known({n: x for n, x in settings.items() if n in VECTORS}, VECTORS)
            head.append(Normalize())
        else:
            dense = read_dense(folder, width)
            head.append(dense)
            width = len(dense.linear.weight)
    return head


def read_dense(folder: Path, width: int) -> Dense:
    with settings_of(folder / "config.json", read_json) as settings:
        own = dict.fromkeys(("in_features", "out_features", "bias", "activation_function"), ())
        check_known(settings, {**own, **VECTORS, "use_residual": (False,)})
        if check_size("in_features", settings.get("in_features")) != width:
            raise ValueError(f"in_features must be {width} here, got {settings['in_features']}")
        n_out = check_size("out_features", settings.get("out_features"))
        bias = check_kind("bias", settings.get("bias", True), bool)
        function = settings.get("activation_function", "torch.nn.modules.activation.Tanh")
        package, _, activation = check_kind("activation_function", function, str).rpartition(".")
        if not f"{package}.".startswith("torch.nn.") or activation not in ACTIVATIONS:
            raise ValueError(
                f"activation_function must be one of torch.nn's {ACTIVATIONS}, got {function!r:.60}"
            )
    shapes = {"linear.weight": (n_out, width)} | ({"linear.bias": (n_out,)} if bias else {})
    parts = {key: Part({key: shape}) for key, shape in shapes.items()}
    file = weights_of(folder)
    make = partial(Dense, width, n_out, bias, activation)
    return filled(make, lambda _: None, parts, load_tensors(file), file)


def read_model_settings(folder: Path) -> dict[str, Any]:
    """prompts, default_prompt_name, similarity_fn_name and truncate_dim."""
    with settings_of(folder / MODEL) as settings:
        check_known(settings, MODEL_SETTINGS)
        return checked_settings(settings)


def checked_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """These four, each with its value or its default."""
    prompts = check_kind("prompts", settings.get("prompts") or {}, dict)
    for name, prompt in prompts.items():
        check_kind(f"the prompt {name!r}", prompt, str)
    default = settings.get("default_prompt_name")
    if default is not None and check_kind("default_prompt_name", default, str) not in prompts:
        raise ValueError(f"default_prompt_name must be one of {list(prompts)}, got {default!r:.60}")
    similarity = settings.get("similarity_fn_name")
    if similarity is not None:
        check_choice("similarity_fn_name", similarity, *SIMILARITIES)
    size = settings.get("truncate_dim")
    if size is not None:
        check_size("truncate_dim", size)
    return {
        "prompts": dict(prompts),
        "default_prompt_name": default,
        "similarity_fn_name": similarity or "cosine",
        "truncate_dim": size,
    }


def read_tokenizer(
    folder: Path, model: dict[str, Any], positions: int
) -> tuple[dict[str, bytes], int]:
    """(the files of the tokenizer, the number of tokens that a text is cut to)

    model: config.json of the encoder. positions: the tokens that it takes at most.
    """
    if not (folder / TOKENIZER[0]).is_file():
        raise FileNotFoundError(
            f"{folder} has no {TOKENIZER[0]}: write it with "
            'transformers.AutoTokenizer.from_pretrained("the folder").save_pretrained("the folder")'
        )
    files = {name: (folder / name).read_bytes() for name in TOKENIZER if (folder / name).is_file()}
    path = folder / LENGTHS
    if not is_there(path):  # old versions name the file after the kind of the model
        path = next(iter(sorted(folder.glob("sentence_*_config.json"))), path)
    with settings_of(path) as settings:
        check_known(settings, TRANSFORMER)
        lower = check_kind("do_lower_case", settings.get("do_lower_case", False), bool)
        length = settings.get("max_seq_length")
        if length is not None:
            check_size("max_seq_length", length, 2)
    with settings_of(folder / TOKENIZER[1]) as config:
        # As in transformers, config.json says the class if tokenizer_config.json does not.
        kind = config.get("tokenizer_class") or model.get("tokenizer_class")
        usual = "RobertaTokenizer" if "roberta" in str(model.get("model_type")) else None
        config |= {"tokenizer_class": kind or usual}
    if TOKENIZER[2] in files:  # it repeats a part of tokenizer_config.json
        with settings_of(folder / TOKENIZER[2], read_json) as special:
            checked_config(special, config["tokenizer_class"])
    with settings_of(folder / TOKENIZER[0], read_json) as words:
        check_kind("model", words.get("model"), dict)
    with naming(folder / TOKENIZER[1]):
        if length is None:  # version 6 has the length there, and transformers 3 had max_len
            most = config.get("model_max_length", config.get("max_len"))
            if isinstance(most, float) and most.is_integer():
                most = int(most)  # 1e30 stands for no limit
            length = positions if most is None else check_size("model_max_length", most, 2)
        files[TOKENIZER[0]] = normalized(files[TOKENIZER[0]], words, config, lower)
    return files, min(length, positions)


def write_modules(folder: Path, model: Any) -> None:
    """The settings of a SentenceEncoder, under names that versions 2 to 6 read."""
    kinds = ["Transformer", "Pooling", *(type(part).__name__ for part in model.head)]
    paths = ["", *(f"{i}_{kind}" for i, kind in enumerate(kinds[1:], 1))]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(zip(kinds, paths, strict=True))
    ]
    write_json(folder / "modules.json", modules)
    for part, path in zip(model.head, paths[2:], strict=True):
        if isinstance(part, Normalize):
            (folder / path).mkdir(exist_ok=True)
            continue
        group = "linear" if isinstance(part.activation, nn.Identity) else "activation"
        settings = {
            "in_features": part.linear.in_features,
            "out_features": part.linear.out_features,
            "bias": part.linear.bias is not None,
            "activation_function": f"torch.nn.modules.{group}.{type(part.activation).__name__}",
        }
        write_json(folder / path / "config.json", settings)
        save(part.state_dict(), folder / path / WEIGHTS)
    write_json(folder / paths[1] / "config.json", pooling_settings(model))
    # transformers 5 makes the normalizer anew, so that a Lowercase in tokenizer.json gets lost.
    tokenizer = json.loads(model.files.get(TOKENIZER[0]) or "{}")
    is_lower = normalizers(tokenizer)[:1] == [{"type": "Lowercase"}]
    lower = {"do_lower_case": True} if is_lower else {}
    write_json(folder / LENGTHS, {"max_seq_length": model.max_length} | lower)
    write_json(folder / MODEL, {name: x for name, x in model.settings.items() if x is not None})
    if tokenizer and TOKENIZER[1] not in model.files:  # it would be made a BertTokenizer
        words = {token["id"]: token["content"] for token in added_tokens(tokenizer)}
        pad = {"pad_token": words.get(model.encoder.config["pad_token_id"])}
        write_json(folder / TOKENIZER[1], {"tokenizer_class": "PreTrainedTokenizerFast"} | pad)


def pooling_settings(model: Any) -> dict[str, Any]:
    """Old versions know one order only, and no include_prompt before 2.3."""
    settings: dict[str, Any] = {"word_embedding_dimension": model.encoder.config["hidden_size"]}
    if list(model.pooling) == [mode for mode in POOLINGS.values() if mode in model.pooling]:
        settings |= {name: mode in model.pooling for name, mode in POOLINGS.items()}
    else:
        settings["pooling_mode"] = list(model.pooling)
    return settings | ({} if model.include_prompt else {"include_prompt": False})
