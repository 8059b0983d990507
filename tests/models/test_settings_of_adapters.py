"""The settings of adapters, and the names in their files: what is taken, and what is refused."""

from __future__ import annotations

import json
import re

import pytest
from test_adapters import changed, learned
from test_causal import random_model
from test_parts_of_adapters import loras_of, state_of, with_loras

import tinyattn as ta
from tinyattn.errors import CheckpointError
from tinyattn.models.adapters import ADAPTER, check_config

# Names in files


KEY = "base_model.model.model.layers.{}.self_attn.{}_proj.lora_{}.weight"
FIRST = KEY.format(0, "q", "A")


@pytest.mark.parametrize(
    "wrong",
    [
        f"module.{FIRST}", f" {FIRST}", f"{FIRST}.more", f"{FIRST}s", f"{FIRST}\n",
        FIRST.replace("lora_A", "lora_C"), FIRST.replace("lora_A", "lora_A.default"),
        FIRST.replace("lora_A", "lora_embedding_A"), FIRST.replace(".weight", ".bias"),
        FIRST.replace("base_model.", "base_model-"), FIRST.replace(".lora_A", "_lora_A"),
        FIRST.removesuffix(".weight"), FIRST.removeprefix("base_model."), FIRST.lower(),
        "base_model.model..lora_A.weight", "",
    ],
)  # fmt: skip
def test_a_name_in_a_file_is_that_of_an_a_or_b_and_nothing_more(wrong, tmp_path):
    learned(random_model("llama"), ("W_q",)).save_adapter(tmp_path)
    state = ta.load(tmp_path / ADAPTER)
    ta.save(state | {wrong: state[FIRST]}, tmp_path / ADAPTER)
    model = random_model("llama")
    before, said = state_of(model), f"{tmp_path / ADAPTER}: {wrong} is not the A or B of a LoRA. If"
    with pytest.raises(CheckpointError, match=f"^{re.escape(said)}"):
        model.load_adapter(tmp_path)
    assert state_of(model) == before


@pytest.mark.parametrize("end", ["A", "B"])
@pytest.mark.parametrize(("layer", "name"), [(0, "q"), (0, "v"), (1, "q"), (1, "v")])
def test_an_a_or_b_that_is_alone_is_named_with_its_matrix(layer, name, end, tmp_path):
    learned(random_model("llama"), ("W_q", "W_v")).save_adapter(tmp_path)
    state = ta.load(tmp_path / ADAPTER)
    del state[KEY.format(layer, name, "B" if end == "A" else "A")]
    ta.save(state, tmp_path / ADAPTER)
    said = f"model.layers.{layer}.self_attn.{name}_proj has lora_{end} alone"
    with pytest.raises(CheckpointError, match=f"^{re.escape(f'{tmp_path / ADAPTER}: {said}')}$"):
        random_model("llama").load_adapter(tmp_path)


# Settings by their names


NOTES = """
auto_mapping base_model_name_or_path exclude_modules fan_in_fan_out inference_mode layers_pattern
layers_to_transform megatron_core peft_version qalora_group_size revision runtime_config
target_modules task_type
"""
NO_NOTES = """
use_dora use_qalora layer_replication megatron_config loftq_config eva_config corda_config
trainable_token_indices modules_to_save lora_bias target_parameters arrow_config lora_ga_config
alora_invocation_tokens ensure_weight_tying lora alpha dropout pattern layers rank R lora_r modules
mode revisions
"""
OTHER_VALUES = {
    "peft_type": ["lora", "ADALORA", "IA3", "LOHA", "LOKR", "VERA", True],
    "bias": ["all", "lora_only", "None", True],
    "init_lora_weights": ["pissa", "pissa_niter_4", "olora", "loftq", "corda", "lora_ga", "Eva"],
}


@pytest.mark.parametrize("name", NOTES.split())
def test_what_the_tensors_say_and_notes_may_be_anything(name):
    for value in (None, True, -1, "q_proj", ["q_proj", "v_proj"], {"a": 1}):
        check_config({"peft_type": "LORA", name: value})


@pytest.mark.parametrize("name", NO_NOTES.split())
def test_any_other_setting_is_refused_unless_it_says_nothing(name):
    for nothing in (None, False, {}, [], ""):
        check_config({"peft_type": "LORA", name: nothing})
    for value in (True, "none", [1], {"a": None}, -1, 0.5):
        said = f"{name} {value!r} is not read here: make a whole model of it with PEFT's merge_and"
        with pytest.raises(ValueError, match=f"^{re.escape(said)}"):
            check_config({"peft_type": "LORA", name: value})


@pytest.mark.parametrize("name", OTHER_VALUES)
def test_other_values_than_those_of_plain_lora_are_refused(name):
    for value in OTHER_VALUES[name]:
        with pytest.raises(ValueError, match=rf"^{name} {value!r} is not read here"):
            check_config({name: value})


@pytest.mark.parametrize("nothing", ["missing", "null"])
def test_settings_that_are_not_said_have_the_values_of_plain_lora(nothing, tmp_path):
    learned(random_model("llama"), ("W_q",), rank=3, scale=2.0, dropout=0.5).save_adapter(tmp_path)
    path = tmp_path / "adapter_config.json"
    names = ["rank_pattern", "alpha_pattern", "target_modules", "exclude_modules"]
    names += ["layers_to_transform"] + (nothing == "missing") * ["lora_dropout", "use_rslora"]
    said = {key: x for key, x in json.loads(path.read_text()).items() if key not in names}
    path.write_text(json.dumps(said | (dict.fromkeys(names) if nothing == "null" else {})))
    model = random_model("llama")
    model.load_adapter(tmp_path)
    dropout = 0.0 if nothing == "missing" else 0.5
    assert {(x.scale, x.dropout.p) for x in loras_of(model).values()} == {(2.0, dropout)}


@pytest.mark.parametrize("is_rs", [False, True])
def test_each_scale_is_divided_by_the_rank_of_its_own_matrix(is_rs, tmp_path):
    options = {"W_q": (2, 1.0), "W_k": (3, 1.0), "W_v": (1, 1.0), "W_o": (5, 1.0)}
    with_loras(random_model("llama"), options).save_adapter(tmp_path)
    model, alphas = random_model("llama"), {"k_proj": 4, "v_proj": 0.5, "o_proj": 6}
    model.load_adapter(changed(tmp_path, lora_alpha=3, alpha_pattern=alphas, use_rslora=is_rs))
    alphas = {"W_q": 3, "W_k": 4, "W_v": 0.5, "W_o": 6}
    for name, lora in loras_of(model).items():
        end = name.rpartition(".")[2]
        rank = options[end][0]
        assert lora.scale == pytest.approx(alphas[end] / (rank**0.5 if is_rs else rank), rel=1e-12)


@pytest.mark.parametrize("place", ["pooler", "pooler.other", "pooler.dense.more", "pooler.dens"])
def test_the_matrix_of_a_pooler_alone_is_passed_over(place, tmp_path):
    learned(random_model("llama"), ("W_q",)).save_adapter(tmp_path)
    state = ta.load(tmp_path / ADAPTER)
    more = {f"base_model.model.{place}.lora_{x}.weight": state[FIRST] for x in "AB"}
    ta.save(state | more, tmp_path / ADAPTER)
    said = f"{tmp_path / ADAPTER}: {place} is no matrix of this model"
    with pytest.raises(CheckpointError, match=f"^{re.escape(said)}$"):
        random_model("llama").load_adapter(tmp_path)
