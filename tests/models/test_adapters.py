"""Adapters in PEFT's files: both ways, several by name, on int8 weights, and what is refused."""

from __future__ import annotations

import copy
import importlib.util
import json

import numpy as np
import pytest
from common import assert_close, assert_equal, rng_of, signed
from test_causal import CONFIGS, HAS_TRANSFORMERS, ids_of, kinds, random_model
from test_families import encoder_config, in_float64

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn
from tinyattn.errors import CheckpointError
from tinyattn.models import BertEncoder, CausalLM, MaskedLM, SequenceClassifier
from tinyattn.models.adapters import ADAPTER, CONFIG
from tinyattn.models.published import ENCODERS, WEIGHTS
from tinyattn.nn.int8 import Int8Linear

HAS_PEFT = HAS_TRANSFORMERS and importlib.util.find_spec("peft") is not None
needs_peft = pytest.mark.skipif(not HAS_PEFT, reason="peft is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")
NAMES = ("W_q", "W_v", "W_o", "w_1", "w_2")


def learned(model, names=NAMES, rank=3, scale=0.7, seed=5, **options):
    """The model with corrections that are not 0."""
    rng = rng_of(seed)
    for lora in nn.LoRA.insert(model, names, rank, scale, **options):
        lora.A.data = ta.tensor(rng.normal(size=lora.A.shape)).to(lora.A.dtype)
        lora.B.data = ta.tensor(rng.normal(size=lora.B.shape) / 4).to(lora.B.dtype)
    return model


def random_encoder(kind, new):
    model, rng = new(encoder_config(kind)), rng_of(0)
    for parameter in model.parameters():
        around = 1 if parameter.ndim == 1 else 0
        parameter.data = ta.tensor(around + rng.normal(size=parameter.shape) / 4)
    return model.double().eval()


def settings_of(folder):
    return json.loads((folder / CONFIG).read_text())


def changed(folder, **settings):
    (folder / CONFIG).write_text(json.dumps(settings_of(folder) | settings))
    return folder


# Without PEFT


@kinds
def test_an_adapter_that_is_saved_is_loaded_again(kind, tmp_path):
    model, ids = random_model(kind), ids_of(2, 7)
    plain = model(ids).numpy()
    learned(model)
    right = model(ids).numpy()
    assert abs(right - plain).max() > 0.01
    model.save_adapter(tmp_path)
    again = random_model(kind)
    again.load_adapter(tmp_path)
    assert_close(again(ids).numpy(), right, 1e-12)
    assert {n.rpartition(".")[2] for n, p in again.named_parameters() if p.requires_grad} == set(
        "AB"
    )
    again.save_adapter(tmp_path / "twice")
    third = random_model(kind)
    third.load_adapter(tmp_path / "twice")
    assert_close(third(ids).numpy(), right, 1e-12)
    again.set_adapter(None)
    assert_equal(again(ids).numpy(), plain)
    assert not any(isinstance(module, nn.LoRA) for module in again.modules())


@kinds
@pytest.mark.parametrize("other", ["", "model.", "transformer.", "model.model."])
def test_an_adapter_of_another_class_of_the_same_model_is_read(kind, other, tmp_path):
    """transformers' classes with a head put a word before the names of the layers."""
    model, ids = learned(random_model(kind), NAMES[-1:]), ids_of(2, 7)
    model.save_adapter(tmp_path)
    start, tensors = "base_model.model.", ta.load(tmp_path / ADAPTER)
    names = {
        key: key.removeprefix(start).removeprefix("model.").removeprefix("transformer.")
        for key in tensors
    }
    ta.save({f"{start}{other}{names[key]}": x for key, x in tensors.items()}, tmp_path / ADAPTER)
    again = random_model(kind)
    again.load_adapter(tmp_path)
    assert_close(again(ids).numpy(), model(ids).numpy(), 1e-12)


@kinds
def test_a_correction_in_a_file_belongs_to_the_matrix_in_a_file(kind, tmp_path):
    """B @ A is added there by hand, and the sum is loaded as a published model."""
    model, ids = random_model(kind), ids_of(2, 7)
    model.save_pretrained(tmp_path)
    right = learned(model)(ids).numpy()
    model.save_adapter(tmp_path / "adapter")
    corrections, state = ta.load(tmp_path / "adapter" / ADAPTER), ta.load(tmp_path / WEIGHTS)
    for key, a in corrections.items():
        if ".lora_A." in key:
            product = 0.7 * corrections[key.replace("lora_A", "lora_B")] @ a
            name = key.removeprefix("base_model.model.").replace(".lora_A", "")
            state[name] += product.T if kind == "gpt2" else product
    ta.save(state, tmp_path / WEIGHTS)
    found = CausalLM.from_pretrained(tmp_path).double()(ids).numpy()
    assert_close(found, right, 1e-12)


def test_the_scale_of_rslora_is_divided_by_the_root_of_the_rank(tmp_path):
    learned(random_model("llama"), rank=3, scale=0.7).save_adapter(tmp_path)
    model = random_model("llama")
    model.load_adapter(changed(tmp_path, use_rslora=True))
    scales = [module.scale for module in model.modules() if isinstance(module, nn.LoRA)]
    assert scales == pytest.approx([0.7 * 3 / 3**0.5] * 2 * len(NAMES))


def test_several_have_names_and_one_is_active(tmp_path):
    ids, rights = ids_of(2, 5), {}
    for i, name in enumerate(("first", "second")):
        model = learned(random_model("llama"), NAMES[i : i + 2], rank=2 + i, seed=i)
        model.save_adapter(tmp_path / name)
        rights[name] = model(ids).numpy()
    model = random_model("llama")
    rights[None] = model(ids).numpy()
    for name in ("first", "second"):
        model.load_adapter(tmp_path / name, name)
        assert model.adapters.active == name
    for name in ("first", None, "second", "second", "first", None):
        model.set_adapter(name)
        assert_close(model(ids).numpy(), rights[name], 1e-12)
        assert_close(copy.deepcopy(model)(ids).numpy(), rights[name], 1e-12)
    model.float().set_adapter("second")  # those that waited have the dtype of the model
    assert model(ids).dtype == np.float32
    assert_close(model(ids).numpy(), rights["second"], 1e-5)
    with pytest.raises(ValueError, match=r"adapters are \['first', 'second'\], got 'third'"):
        model.set_adapter("third")
    twin = copy.deepcopy(model)
    twin.set_adapter("first")
    assert_close(model(ids).numpy(), rights["second"], 1e-5)


def test_an_adapter_that_is_loaded_learns_alone(tmp_path):
    learned(random_model("gpt2")).save_adapter(tmp_path)
    model, ids = random_model("gpt2"), ids_of(2, 6)
    model.load_adapter(tmp_path, "a")
    model.load_adapter(tmp_path, "b")
    before = {name: p.numpy().copy() for name, p in model.named_parameters()}
    optimizer = ta.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].ravel()).backward()
    optimizer.step()
    for name, parameter in model.named_parameters():
        is_correction = name.endswith((".A", ".B"))
        assert (abs(parameter.numpy() - before[name]).max() > 0) == is_correction
    after = model(ids).numpy()
    model.set_adapter("a")
    assert abs(model(ids).numpy() - after).max() > 1e-3
    model.set_adapter("b")
    assert_equal(model(ids).numpy(), after)


def test_on_int8_weights_it_learns_as_on_their_numbers(tmp_path):
    """The gradients of A and B are those of a model of floats with the same rounded numbers."""
    learned(random_model("llama", np.float32)).save_adapter(tmp_path)
    rounded, ids = random_model("llama", np.float32), ids_of(3, 9)
    quantized = copy.deepcopy(rounded).quantize()
    layers = {n: m for n, m in quantized.named_modules() if isinstance(m, Int8Linear)}
    for name, module in rounded.named_modules():
        if name in layers:
            layer = layers[name]
            module.weight.data = layer.numbers.float() * layer.scale[:, None]
    grads = []
    for model in (rounded, quantized):
        model.load_adapter(tmp_path)
        grad = ta.tensor(signed(rng_of(3), 3, 9, 40).astype(np.float32))
        out = model(ids)
        out.backward(grad)
        grads.append([out] + [p.grad for p in model.parameters() if p.requires_grad])
    assert len(grads[0]) == len(grads[1]) == 1 + 2 * 2 * len(NAMES)
    for right, found in zip(*grads, strict=True):
        assert_close(found.numpy(), right.numpy(), 2e-4 * abs(right.numpy()).max())
    with pytest.raises(RuntimeError, match="int8 weights take no correction"):
        nn.LoRA.merge_all(quantized)
    quantized.save_adapter(tmp_path / "again")
    state = ta.load(tmp_path / "again" / ADAPTER)
    for key, right in ta.load(tmp_path / ADAPTER).items():
        assert_equal(state[key].numpy(), right.numpy())


def test_dropout_is_in_training_only_and_before_the_correction(tmp_path):
    model, ids = learned(random_model("llama"), dropout=0.5), ids_of(2, 5)
    assert_equal(model(ids).numpy(), model(ids).numpy())
    model.save_adapter(tmp_path)
    assert settings_of(tmp_path)["lora_dropout"] == 0.5
    model = random_model("llama")
    model.load_adapter(tmp_path)
    assert_equal(model(ids).numpy(), model(ids).numpy())
    model.train()
    assert abs(model(ids).numpy() - model(ids).numpy()).max() > 1e-3
    model.load_adapter(tmp_path, "second")
    model.eval().set_adapter("default")
    assert_equal(model(ids).numpy(), model(ids).numpy())
    layer = nn.LoRA(nn.Linear(50, 40), 2, 1.0, dropout=1.0).train()
    layer.B.data = ta.randn(40, 2)
    x = ta.randn(3, 50)
    assert_equal(layer(x).numpy(), layer.linear(x).numpy())
    with pytest.raises(ValueError, match="probability"):
        nn.LoRA(nn.Linear(3, 4), dropout=2.0)


def test_matrices_with_other_ranks_and_scales_are_patterns(tmp_path):
    model = learned(random_model("llama"), ("W_q",), 2, 0.5)
    learned(model, ("w_2",), 4, 2.0)
    learned(model, ("W_k",), 2, 3.0)  # the rank of the first, and another scale
    model.encoder.layers[0].self_attn.W_v = lora = nn.LoRA(model.encoder.layers[0].self_attn.W_v, 1)
    lora.B.data = ta.ones(*lora.B.shape)
    right = model.double()(ids_of(2, 5)).numpy()
    model.save_adapter(tmp_path)
    config = settings_of(tmp_path)
    assert len(config["target_modules"]) == 7
    assert set(config["rank_pattern"].values()) == {4, 1}
    again = random_model("llama")
    again.load_adapter(tmp_path)
    assert_close(again(ids_of(2, 5)).numpy(), right, 1e-12)


@pytest.mark.parametrize("names", [("W_q",), ("W_k", "W_v"), ("W_q", "W_k", "W_v")])
def test_corrections_of_a_joined_matrix_stand_in_one_file(names, tmp_path):
    """c_attn of GPT-2 is W_q, W_k and W_v here, and each of them had an A of its own."""
    model = learned(random_model("gpt2"), names, rank=2)
    right = model(ids_of(2, 5)).numpy()
    model.save_adapter(tmp_path)
    state = ta.load(tmp_path / ADAPTER)
    assert len(state) == 4
    key = "base_model.model.transformer.h.0.attn.c_attn.lora_A.weight"
    assert state[key].shape == (2 * len(names), 16)
    again = random_model("gpt2")
    again.load_adapter(tmp_path)
    assert_close(again(ids_of(2, 5)).numpy(), right, 1e-12)
    layer = again.encoder.layers[0].self_attn
    assert layer.W_q.A is layer.W_k.A is layer.W_v.A
    layer.W_q.scale = 3.0
    with pytest.raises(ValueError, match="c_attn is one matrix in a file"):
        again.save_adapter(tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.parametrize("new", [BertEncoder, MaskedLM, SequenceClassifier])
def test_encoders_take_adapters_too(kind, new, tmp_path):
    ids = 2 + ids_of(2, 6, vocab=38)
    model, again = (random_encoder(kind, new) for _ in range(2))
    right = learned(model)(ids).numpy()
    model.save_adapter(tmp_path)
    again.load_adapter(tmp_path)
    assert_close(again(ids).numpy(), right, 1e-12)
    with pytest.raises(RuntimeError, match=r"call nn\.LoRA\.merge_all\(model\), or save_adapter"):
        again.save_pretrained(tmp_path / "whole")
    assert not (tmp_path / "whole").exists()


@pytest.mark.parametrize("new", [BertEncoder, MaskedLM])
def test_the_pooler_of_an_adapter_is_not_read_by_a_model_without_one(new, tmp_path):
    """PEFT's `all-linear` names it, and the whole adapter was refused."""
    model, again = random_encoder("bert", SequenceClassifier), random_encoder("bert", new)
    learned(model, ("W_q", "dense"))
    model.save_adapter(tmp_path)
    assert any("pooler.dense" in key for key in ta.load(tmp_path / ADAPTER))
    again.load_adapter(tmp_path)
    assert len(again.adapters.loras["default"]) == model.config["num_hidden_layers"]


REFUSED = {
    "use_dora": True,
    "modules_to_save": ["classifier"],
    "bias": "all",
    "peft_type": "IA3",
    "init_lora_weights": "pissa",
    "layer_replication": [[0, 1]],
    "lora_bias": True,
    "trainable_token_indices": [3],
    "target_parameters": ["experts"],
    "use_qalora": True,
    "ensure_weight_tying": True,
    "a_setting_of_2030": 1,
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_more_than_lora_is_refused_by_name(name, tmp_path):
    learned(random_model("llama")).save_adapter(tmp_path)
    model, ids = random_model("llama"), ids_of(1, 4)
    before = model(ids).numpy()
    changed(tmp_path, **{name: REFUSED[name]})
    with pytest.raises(CheckpointError, match=rf"{CONFIG}: {name} .*merge_and_unload"):
        model.load_adapter(tmp_path)
    assert_equal(model(ids).numpy(), before)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_every_plain_value_is_taken(tmp_path):
    learned(random_model("llama")).save_adapter(tmp_path)
    plain = {"peft_type": ["LORA"], "bias": ["none"],
             "init_lora_weights": [True, "gaussian", "orthogonal", "eva"]}  # fmt: skip
    for name, values in plain.items():
        for value in values:
            random_model("llama").load_adapter(changed(tmp_path, **{name: value}))


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        (
            {"r": 2},
            r"LoRA of .*q_proj: A has shape \(2, 16\), got \(3, 16",
        ),
        ({"r": 0}, "r must be an integer >= 1"),
        ({"r": None}, "r must be an integer >= 1"),
        ({"lora_alpha": "16"}, "lora_alpha must be a number"),
        ({"lora_alpha": float("nan")}, "lora_alpha must be a number"),
        ({"lora_dropout": 1.5}, "lora_dropout"),
        ({"rank_pattern": {"q_proj": 5}}, r"A has shape \(5, 16\)"),
        ({"rank_pattern": [1]}, "rank_pattern must be an object"),
        ({"alpha_pattern": {"(": 1}}, "missing \\)|unterminated"),
        ({"use_rslora": 3}, "use_rslora must be true or false"),
    ],
)
def test_wrong_numbers_of_the_settings_are_named(wrong, match, tmp_path):
    learned(random_model("llama")).save_adapter(tmp_path)
    with pytest.raises(CheckpointError, match=match):
        random_model("llama").load_adapter(changed(tmp_path, **wrong))


def renamed(name):
    return lambda key, x: (name(key), x)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (renamed(lambda key: key.replace("lora_A", "lora_embedding_A")), "is not the A or B"),
        (renamed(lambda key: key.replace("q_proj", "gate")), r"self_attn\.gate is no matrix"),
        (renamed(lambda key: key.replace("layers.1", "layers.9")), r"layers\.9.* is no matrix"),
        (renamed(lambda key: key.replace("base_model.", "")), "is not the A or B"),
        (
            renamed(lambda key: key.replace("self_attn.q_proj", "input_layernorm")),
            r"layernorm is no matrix",
        ),
        (lambda key, x: (key, x * float("nan")), "not finite"),
        (lambda key, x: (key, x.long()), "floating"),
        (lambda key, x: (key, x[:, :-1]), r"got \(3, 15\)"),
        (lambda key, x: (key, x) if "lora_A" in key else ("", x), "has lora_A alone"),
        (lambda key, x: ("", x), "has no tensors"),
    ],
)
def test_tensors_that_do_not_fit_are_named_and_nothing_changes(change, match, tmp_path):
    learned(random_model("llama")).save_adapter(tmp_path)
    state = dict(change(*pair) for pair in ta.load(tmp_path / ADAPTER).items())
    state.pop("", None)
    ta.save(state, tmp_path / ADAPTER)
    model, ids = random_model("llama"), ids_of(1, 4)
    before, random = model(ids).numpy(), ta.get_rng_state()
    with pytest.raises(CheckpointError, match=match):
        model.load_adapter(tmp_path)
    assert_equal(model(ids).numpy(), before)
    assert not model.adapters.loras
    assert ta.get_rng_state() == random


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_a_layer_that_was_taken_out_is_named(kind, tmp_path):
    """It was an error of a ModuleList."""
    learned(random_model(kind)).save_adapter(tmp_path)
    model, ids = random_model(kind), ids_of(1, 4)
    model.encoder.layers = model.encoder.layers[:1]
    before = model(ids).numpy()
    with pytest.raises(CheckpointError, match=r"layers\.1\.self_attn\.W_q must be a Linear.*None"):
        model.load_adapter(tmp_path)
    assert_equal(model(ids).numpy(), before)
    assert not model.adapters.loras


@pytest.mark.parametrize(
    ("said", "is_taken"),
    [
        ({"target_modules": ["q_proj"]}, False),
        ({"target_modules": r".*\.\d\..*q_proj"}, False),
        ({"target_modules": ["q_proj"], "exclude_modules": ["k_proj"]}, False),
        ({"target_modules": ["q_proj"], "layers_to_transform": [0, 1]}, True),
        ({"target_modules": ["q_proj"], "exclude_modules": r".*\.[23]\..*"}, True),
        ({"target_modules": r".*\.[01]\..*q_proj"}, True),
        ({"target_modules": None}, True),
        ({}, True),  # which names all that it has
    ],
)
def test_an_adapter_for_fewer_layers_is_refused_if_its_settings_name_all(said, is_taken, tmp_path):
    """PEFT warns. The layers that the file does not have were left as they are, without a word."""
    learned(random_model("llama"), ("W_q",)).save_adapter(tmp_path)
    deep = CausalLM(CONFIGS["llama"] | {"num_hidden_layers": 4})
    changed(tmp_path, **said)
    if is_taken:
        deep.load_adapter(tmp_path)
        return
    named = rf"{CONFIG}: target_modules name model\.layers\.2\.self_attn\.q_proj, and {ADAPTER} has"
    with pytest.raises(CheckpointError, match=named):
        deep.load_adapter(tmp_path)
    assert not deep.adapters.loras


def test_missing_files_and_loras_are_named(tmp_path):
    model = random_model("llama")
    with pytest.raises(FileNotFoundError, match=CONFIG):
        model.load_adapter(tmp_path)
    with pytest.raises(ValueError, match="has no LoRA"):
        model.save_adapter(tmp_path)
    learned(model).save_adapter(tmp_path)
    with pytest.raises(CheckpointError, match="W_q must be a Linear, which LoRA adapts, got LoRA"):
        model.load_adapter(tmp_path)
    (tmp_path / ADAPTER).rename(tmp_path / "adapter_model.bin")
    with pytest.raises(FileNotFoundError, match=f"has no {ADAPTER}: write the adapter anew"):
        random_model("llama").load_adapter(tmp_path)
    for _ in range(2):  # PEFT writes no config.json, so it was missed, and nothing was said of this
        with pytest.raises(CheckpointError, match=r"load_adapter.*if both are here, each needs"):
            CausalLM.from_pretrained(tmp_path)
        (tmp_path / "config.json").write_text(json.dumps(CONFIGS["llama"]))


def test_what_has_no_place_in_an_adapter_is_not_left_out_of_it(tmp_path):
    """A head that was trained beside the corrections was lost without a word."""
    model = learned(random_encoder("bert", SequenceClassifier), ("W_q",))
    model.out.requires_grad_(True)
    with pytest.raises(ValueError, match=r"out\.weight may have learned too"):
        model.save_adapter(tmp_path)
    assert not [*tmp_path.iterdir()]
    model.out.requires_grad_(False)
    model.save_adapter(tmp_path)
    nn.LoRA.merge_all(model)
    with pytest.raises(FileExistsError, match="has an adapter, which would count twice"):
        model.save_pretrained(tmp_path)


def test_a_lora_of_a_layer_of_ones_own_is_not_left_out_of_an_adapter(tmp_path):
    model = random_encoder("bert", SequenceClassifier)
    model.probe = nn.Linear(4, 4)
    learned(model, ("W_q", "probe"))
    with pytest.raises(ValueError, match="no matrix of a published model is probe"):
        model.save_adapter(tmp_path)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("change", [nn.LoRA.merge_all, "quantize"])
def test_an_adapter_is_not_put_on_other_weights(change, tmp_path):
    """After merge_all the layers are others, and `set_adapter` would put the old ones back."""
    learned(random_model("llama", np.float32)).save_adapter(tmp_path)
    model, ids = random_model("llama", np.float32), ids_of(1, 4)
    model.load_adapter(tmp_path)
    if change == "quantize":
        model.set_adapter(None)
        model.quantize()
    else:
        change(model)
    before = model(ids).numpy()
    for again in (lambda: model.set_adapter("default"), lambda: model.load_adapter(tmp_path, "x")):
        with pytest.raises(RuntimeError, match="is another layer than the one"):
            again()
    assert_equal(model(ids).numpy(), before)


# With PEFT


def theirs_of(folder, kind):
    import transformers

    return getattr(transformers, kind).from_pretrained(folder).eval()


def scores(model, ids):
    import torch

    with torch.no_grad():
        return model(input_ids=torch.tensor(ids)).logits.numpy()


def a_peft_model(folder, targets, dtype, seed=0, **options):
    import peft
    import torch

    torch.manual_seed(seed)
    base = theirs_of(folder, "AutoModelForCausalLM").to(dtype)
    if dtype == torch.float64 and hasattr(base, "model"):
        in_float64(base)
    model = peft.get_peft_model(base, peft.LoraConfig(target_modules=targets, **options)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.3)
    return model.to(dtype)


TARGETS = {
    "gpt2": ["c_attn", "c_proj", "c_fc"],
    "llama": ["q_proj", "k_proj", "o_proj", "down_proj", "lm_head"],
}
OPTIONS = [
    {"r": 4, "lora_alpha": 6},
    {"r": 4, "lora_alpha": 6, "use_rslora": True, "lora_dropout": 0.1},
    {"r": 3, "rank_pattern": {"o_proj": 5, "c_fc": 2}, "alpha_pattern": {"q_proj|c_attn": 1.5}},
    {"r": 2, "layers_to_transform": [1], "init_lora_weights": "gaussian"},
]


@needs_peft
@kinds
@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "rslora", "patterns", "one layer"])
def test_peft_and_the_model_here_say_the_same(kind, options, tmp_path):
    import peft
    import torch

    model, ids = random_model(kind, np.float32), ids_of(2, 8)
    model.save_pretrained(tmp_path / "base")
    targets = TARGETS.get(kind, ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "down_proj"])
    if kind == "gpt2":
        options = options | {"fan_in_fan_out": True}
    theirs = a_peft_model(tmp_path / "base", targets, torch.float64, **options)
    theirs.save_pretrained(tmp_path / "peft", save_embedding_layers=False)
    model.double().load_adapter(tmp_path / "peft")
    right = scores(theirs, ids)
    assert_close(model(ids).numpy(), right, 1e-10 * abs(right).max())
    with ta.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter *= 1.5
    model.save_adapter(tmp_path / "ours")
    base = theirs_of(tmp_path / "base", "AutoModelForCausalLM").double()
    if kind != "gpt2":
        in_float64(base)
    again = peft.PeftModel.from_pretrained(base, str(tmp_path / "ours")).double().eval()
    right = model(ids).numpy()
    assert_close(scores(again, ids), right, 1e-10 * abs(right).max())


@needs_peft
def test_ten_steps_of_training_are_those_of_peft(tmp_path):
    import torch

    model, ids = random_model("qwen2"), ids_of(4, 9)
    model.save_pretrained(tmp_path / "base")
    theirs = a_peft_model(tmp_path / "base", ["q_proj", "down_proj"], torch.float64, r=3)
    theirs.save_pretrained(tmp_path / "peft")
    model.load_adapter(tmp_path / "peft")
    ours = ta.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.02)
    other = torch.optim.AdamW([p for p in theirs.parameters() if p.requires_grad], lr=0.02)
    labels = torch.tensor(ids)
    for _ in range(10):
        ours.zero_grad()
        other.zero_grad()
        F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].ravel()).backward()
        out = theirs(input_ids=labels).logits[:, :-1].flatten(0, 1)
        torch.nn.functional.cross_entropy(out, labels[:, 1:].flatten()).backward()
        ours.step()
        other.step()
    right = scores(theirs, ids)
    assert_close(model(ids).numpy(), right, 1e-7 * abs(right).max())


@needs_peft
def test_every_setting_that_peft_writes_at_its_default_is_read(tmp_path):
    import torch

    random_model("llama", np.float32).save_pretrained(tmp_path / "base")
    a_peft_model(tmp_path / "base", "all-linear", torch.float32).save_pretrained(tmp_path / "peft")
    config = settings_of(tmp_path / "peft")
    assert len(config) > 25
    random_model("llama").load_adapter(tmp_path / "peft")


@needs_peft
@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.parametrize("new", [MaskedLM, SequenceClassifier])
def test_adapters_of_encoders_go_both_ways(kind, new, tmp_path):
    import peft

    model, ids = random_encoder(kind, new), 2 + ids_of(2, 6, vocab=38)
    model.save_pretrained(tmp_path / "base")
    learned(model)
    model.save_adapter(tmp_path / "ours")
    names = {MaskedLM: "AutoModelForMaskedLM", SequenceClassifier: None}
    name = names[new] or "AutoModelForSequenceClassification"
    theirs = theirs_of(tmp_path / "base", name).double()
    theirs = peft.PeftModel.from_pretrained(theirs, str(tmp_path / "ours")).double().eval()
    right = model(ids).numpy()
    assert_close(scores(theirs, ids), right, 1e-10 * abs(right).max())
    theirs.save_pretrained(tmp_path / "peft")
    again = random_encoder(kind, new)
    again.load_adapter(tmp_path / "peft")
    assert_close(again(ids).numpy(), right, 1e-10 * abs(right).max())
