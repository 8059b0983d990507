"""A CausalLM made from a config: its first loss, its dropout, its tokenizer, and long texts."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from common import assert_close, assert_equal, rng_of, signed
from test_causal import CONFIGS, ids_of, kinds, needs_tokenizers, random_model

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn
from tinyattn.generation import generate
from tinyattn.models import BertEncoder, CausalLM
from tinyattn.models.causal_files import rotary_of, window_in
from tinyattn.models.heads import labels_of

WIDTHS = (("hidden_size", "n_embd"), ("intermediate_size", "n_inner"))


def config_of(kind, width=16, **more):
    """The family's small config, with another width."""
    names = [pair[kind == "gpt2"] for pair in WIDTHS]
    heads = {"head_dim": width // 4} if "head_dim" in CONFIGS[kind] else {}
    return CONFIGS[kind] | dict(zip(names, (width, 3 * width), strict=True)) | heads | more


@kinds
@pytest.mark.parametrize("is_tied", [False, True])
@pytest.mark.parametrize("width", [192])
def test_a_new_model_guesses_uniformly(kind, is_tied, width):
    ta.manual_seed(0)
    model = CausalLM(config_of(kind, width, tie_word_embeddings=is_tied))
    ids = ids_of(8, 33)
    with ta.no_grad():
        loss = F.cross_entropy(model(ids[:, :-1]).reshape(-1, 40), ids[:, 1:].reshape(-1)).item()
    assert loss == pytest.approx(math.log(40), rel=0.05)


@kinds
@pytest.mark.parametrize("std", [0.02, 0.3])
def test_the_config_says_the_deviation(kind, std):
    more = {} if std == 0.02 else {"initializer_range": std}
    model = CausalLM(config_of(kind, 64, **more))
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any()
        elif parameter.ndim == 2:
            is_small = kind == "gpt2" and name.endswith(("W_o.weight", "w_2.weight"))
            expected = std / 2 if is_small else std  # sqrt(2 * 2 layers)
            assert parameter.std().item() == pytest.approx(expected, rel=0.15), name
        else:
            assert (parameter == 1).all()


DROPS = ("attention_dropout", "resid_pdrop", "embd_pdrop")


@kinds
@pytest.mark.parametrize("name", DROPS)
def test_the_config_says_what_is_dropped(kind, name):
    published = "attn_pdrop" if (kind, name) == ("gpt2", DROPS[0]) else name
    model, same = CausalLM(CONFIGS[kind] | {published: 0.5}), CausalLM(CONFIGS[kind])
    same.load_state_dict(model.state_dict())
    ids = ids_of(2, 9)
    ta.manual_seed(1)
    assert not np.array_equal(model(ids).numpy(), model(ids).numpy())
    assert_equal(model.eval()(ids).numpy(), same(ids).numpy())  # nothing is dropped by default
    for wrong in (-0.1, 1.5, True, "0.1"):
        with pytest.raises(
            ValueError, match=rf"{name} must be a number in \[0, 1\), got {wrong!r}"
        ):
            CausalLM(CONFIGS[kind] | {published: wrong})


@kinds
def test_each_rate_is_of_its_own_places(kind, tmp_path):
    rates = dict(zip(DROPS, (0.25, 0.5, 0.125), strict=True))
    places = {"self_attn": 0.25, "0": 0.5, "1": 0.5, "feed_forward": 0.0, "": 0.125}
    published = {
        "attn_pdrop" if (kind, k) == ("gpt2", DROPS[0]) else k: x for k, x in rates.items()
    }
    CausalLM(CONFIGS[kind] | published).save_pretrained(tmp_path)
    for model in (CausalLM(CONFIGS[kind] | published), CausalLM.from_pretrained(tmp_path)):
        drops = {name: m.p for name, m in model.named_modules() if isinstance(m, ta.nn.Dropout)}
        assert len(drops) == 1 + 2 * 4
        for name, p in drops.items():
            assert p == places[name.rpartition(".")[0].rpartition(".")[2]], name


@kinds
def test_every_norm_has_the_eps_of_the_config(kind, tmp_path):
    name = "layer_norm_epsilon" if kind == "gpt2" else "rms_norm_eps"
    CausalLM(CONFIGS[kind] | {name: 0.25}).save_pretrained(tmp_path)
    for model in (CausalLM(CONFIGS[kind] | {name: 0.25}), CausalLM.from_pretrained(tmp_path)):
        norms = [m for m in model.modules() if isinstance(m, (nn.LayerNorm, nn.RMSNorm))]
        assert [m.eps for m in norms] == [0.25] * (9 if kind == "qwen3" else 5)


def test_dropout_is_kept_in_the_folder(tmp_path):
    CausalLM(CONFIGS["gpt2"] | {"attn_pdrop": 0.25, "resid_pdrop": 0.5}).save_pretrained(tmp_path)
    again = CausalLM.from_pretrained(tmp_path)
    drops = {name: m.p for name, m in again.named_modules() if isinstance(m, ta.nn.Dropout)}
    assert drops["encoder.layers.1.self_attn.dropout"] == 0.25
    assert drops["encoder.layers.0.sublayer.1.dropout"] == 0.5
    assert drops["dropout"] == 0
    assert '"attn_pdrop": 0.25' in (tmp_path / "config.json").read_text("utf-8")


@pytest.mark.parametrize("wrong", [-0.02, "0.02", True, math.nan])
def test_a_deviation_is_a_number(wrong):
    with pytest.raises(ValueError, match="initializer_range must be a number >= 0"):
        CausalLM(CONFIGS["llama"] | {"initializer_range": wrong})


class Config:
    """As that of transformers, which has the dtype of its model."""

    dtype = "float32"


@pytest.mark.parametrize("make", [CausalLM, BertEncoder])
def test_a_config_that_is_no_dict_is_named(make):
    """It was an AttributeError, because what has a dtype was taken for an array."""
    with pytest.raises((TypeError, ValueError), match=r"a config .*, got .*Config"):
        make(Config())


@needs_tokenizers
def test_a_model_gets_a_tokenizer(tmp_path):
    from tokenizers import ByteLevelBPETokenizer, Tokenizer, decoders, models

    signs = Tokenizer(models.BPE({sign: i for i, sign in enumerate("abc é")}, []))
    signs.decoder = decoders.Fuse()
    own = ByteLevelBPETokenizer()
    own.train_from_iterator(["a b c"], vocab_size=300, show_progress=False)
    for tokenizer, config in ((signs, CONFIGS["llama"]), (own, config_of("gpt2", vocab_size=300))):
        model = CausalLM(config)
        model.tokenizer = tokenizer
        model.save_pretrained(tmp_path)
        again = CausalLM.from_pretrained(tmp_path)
        assert again.tokenizer.encode("c ba").ids == tokenizer.encode("c ba").ids
        assert again.tokenizer.decode(again.tokenizer.encode("c ba").ids) == "c ba"
    again = pickle.loads(pickle.dumps(model))
    assert again.tokenizer.encode("c ba").ids == model.tokenizer.encode("c ba").ids
    with pytest.raises(TypeError, match="a tokenizer is of the package tokenizers"):
        model.tokenizer = "gpt2"
    with pytest.raises(ValueError, match="the tokenizer has 256 words, and this model 40"):
        CausalLM(CONFIGS["llama"]).tokenizer = own
    assert model.tokenizer is own


def forgetful(model, ids):
    """The next scores, where the oldest half is forgotten whenever all positions are read."""
    positions, first = 32, 0
    while len(ids) - first > positions:
        first += positions // 2
    return model([ids[first:]])[0, -1]


@kinds
def test_generation_goes_on_beyond_the_positions(kind):
    model = random_model(kind)
    prompt = ids_of(1, 5).tolist()
    found = generate(model.next_scores(), prompt, 66)[0].tolist()
    expected = list(prompt[0])
    while len(expected) < 66:
        expected.append(int(forgetful(model, expected).argmax()))
    assert found == expected
    for length in (33, 31, 64, 40, 66):  # in any order, also without what the cache has
        scores = model.next_scores()(np.array([found[:length]]))
        assert_close(scores[0].numpy(), forgetful(model, found[:length]).numpy(), 1e-9)
    again = model.next_scores()
    for length in (66, 60, 61, 33, 12, 13):
        scores = again(np.array([found[:length]]))[0]
        assert_close(scores.numpy(), forgetful(model, found[:length]).numpy(), 1e-9)


def test_of_an_odd_number_of_positions_the_larger_half_is_forgotten():
    model = CausalLM(CONFIGS["llama"] | {"max_position_embeddings": 5}).eval()
    scores = model.next_scores()
    assert [scores.first_read(n) for n in range(4, 13)] == [0, 0, 3, 3, 3, 6, 6, 6, 9]
    ids = ids_of(1, 12)
    for length in range(1, 13):
        read = ids[:, scores.first_read(length) : length]
        assert_close(scores(ids[:, :length]).numpy(), model(read)[:, -1].numpy(), 1e-5)


def test_scores_of_another_number_of_samples_are_computed_anew():
    """Also of the same first ids."""
    model = random_model("llama")
    scores = model.next_scores()
    for ids in (ids_of(2, 4), ids_of(3, 4), ids_of(1, 5), np.repeat(ids_of(1, 5), 3, 0)):
        assert_close(scores(ids).numpy(), model(ids)[:, -1].numpy(), 1e-9)


def test_windows_begin_with_the_layer_that_the_config_says():
    """`test_families.py` needs transformers to know it."""
    windows = {"sliding_window": 3, "use_sliding_window": True, "num_hidden_layers": 4}
    for first in range(5):
        config = {"model_type": "qwen2", "max_window_layers": first, **windows}
        assert [window_in(config, i) for i in range(4)] == [None] * first + [3] * (4 - first)
    assert window_in({"model_type": "qwen2", **windows}, 27) is None
    assert window_in({"model_type": "qwen2", **windows}, 28) == 3


def test_the_layers_of_mistral_that_have_a_window_may_be_named():
    config = {"model_type": "mistral", "sliding_window": 3, "use_sliding_window": False}
    assert [window_in(config, i) for i in range(2)] == [3, 3]
    config["layer_types"] = ["full_attention", "sliding_attention"]
    assert [window_in(config, i) for i in range(2)] == [None, 3]


def test_eleven_classes_stay_in_their_order():
    names = {str(i): f"class {i}" for i in (10, *range(10))}
    assert labels_of({"id2label": names}) == [f"class {i}" for i in range(11)]


def test_a_row_of_padding_alone_has_no_length():
    sizes = {"vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
             "intermediate_size": 8, "max_position_embeddings": 8, "type_vocab_size": 2,
             "hidden_act": "gelu"}  # fmt: skip
    model = BertEncoder(sizes).eval()
    ids = np.array([[3, 4, 0], [0, 0, 0], [3, 0, 0]])
    assert model.lengths(ids).tolist() == [2, 0, 1]
    assert not model(ids).numpy()[1].any()


def test_padded_prompts_go_on_beyond_the_positions():
    model = random_model("llama")
    ids, mask = ids_of(2, 20), np.ones((2, 20), bool)
    mask[1, :7] = False
    scores = model.next_scores(mask)
    found = generate(scores, ids, 80, pad=-1).numpy()
    for start, row in zip((0, 7), found, strict=True):
        for length in (21, 31, 32, 33, 50, 79):
            first = max(start, -(-(length - 32) // 16) * 16)
            assert row[length] == int(model(row[None, first:length])[0, -1].argmax())
    generate(scores, ids, 80, pad=-1, num_beams=3)


@pytest.mark.parametrize("padded", [False, True])
def test_scores_called_by_hand_are_those_of_the_model_as_it_is_now(padded):
    model, ids, mask = random_model("llama"), ids_of(2, 12), None
    others = {name: x.clone() for name, x in model.state_dict().items()}
    hooks = []
    if padded:
        mask = np.arange(8) >= [[3], [0]]

    def step():
        model(ids).square().mean().backward()
        ta.optim.SGD([x for x in model.parameters() if x.requires_grad], 0.1).step()

    def insert():
        for lora in nn.LoRA.insert(model, ["W_k", "w_2"]):
            lora.B.data = ta.tensor(signed(rng_of(1), *lora.B.shape))

    def weaken():
        for layer in model.encoder.layers:
            layer.self_attn.W_k.scale /= 4

    def double():
        layer = model.encoder.layers[0]
        hooks.append(layer.register_forward_hook(lambda module, inputs, out: out * 2))

    scores = model.next_scores(mask)
    for change in (
        step, lambda: model.load_state_dict(others), insert, step, weaken, double,
        lambda: hooks[0].remove(), lambda: nn.LoRA.merge_all(model), model.quantize,
    ):  # fmt: skip
        scores(ids[:, :11])
        change()
        assert_close(scores(ids).numpy(), model.next_scores(mask)(ids).numpy(), 1e-9)


def test_scores_of_a_model_whose_parts_stand_in_several_places_and_know_it():
    model, ids = random_model("llama"), ids_of(1, 5)
    expected = model(ids)[:, -1].numpy()
    model.encoder.layers[0].owner, layer = model, model.encoder.layers[1]
    for _ in range(60):  # twice in each, so 2^60 ways lead to the layer
        pair = nn.Module()
        pair.first = pair.second = layer
        layer = pair
    model.encoder.extra = layer
    assert_close(model.next_scores()(ids).numpy(), expected, 1e-9)


@pytest.mark.parametrize(
    ("settings", "base", "factor"),
    [
        ({"rope_scaling": {"type": "linear", "factor": 2.0, "rope_theta": 500.0}}, 500, 2),
        ({"rope_scaling": {"rope_type": "default", "rope_theta": 500.0}}, 500, 1),
        ({"rope_parameters": {"rope_theta": 500.0}, "rope_theta": 30.0}, 500, 1),
        ({"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0},
          "rope_scaling": {"type": "linear", "factor": 2.0}, "rope_theta": 30.0}, 30, 2),
        ({"rope_scaling": {"type": "linear", "factor": 2.0, "rope_theta": 500.0},
          "rope_theta": 30.0}, 500, 2),
    ],
)  # fmt: skip
def test_the_base_of_the_rotation_may_stand_beside_its_scaling(settings, base, factor):
    """As in transformers 5, where rope_scaling takes the place of rope_parameters."""
    found = rotary_of(CausalLM({**CONFIGS["llama"], "rope_theta": 70.0, **settings}).config)
    expected = nn.RotaryEmbedding(found.width, base, {"rope_type": "linear", "factor": factor})
    assert_close(found.rates, expected.rates, 1e-9)


def test_yarn_begins_at_the_length_that_its_settings_name():
    """And at that of the config where they name none."""
    scaling = {"rope_type": "yarn", "factor": 4.0}
    config = {"rope_theta": 1e4, "head_dim": 64, "max_position_embeddings": 128}
    rates = {}
    for name, own in (("own", {"original_max_position_embeddings": 32}), ("none", {})):
        found = rotary_of(config | {"rope_scaling": scaling | own}).rates
        original = {"original_max_position_embeddings": own.get(next(iter(own), ""), 128)}
        rates[name] = found
        np.testing.assert_array_equal(found, nn.RotaryEmbedding(64, 1e4, scaling | original).rates)
    assert (rates["own"] != rates["none"]).any()


ENCODER = {
    "vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 12, "max_position_embeddings": 16, "type_vocab_size": 2,
    "hidden_act": "gelu",
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "usual"), [("bert", 0), ("distilbert", 0), ("roberta", 1), ("xlm-roberta", 1)]
)
def test_a_config_says_which_id_is_padding_or_that_none_is(kind, usual, tmp_path):
    """null is a value of pad_token_id, and of any other setting the same as not to say it."""
    for given, pad in (({}, usual), ({"pad_token_id": 5}, 5), ({"pad_token_id": None}, None)):
        ta.manual_seed(0)
        model = BertEncoder(ENCODER | given | {"model_type": kind, "layer_norm_eps": None}).eval()
        assert model.config["pad_token_id"] == pad
        assert model.most_tokens == 16 - (1 + (pad or 0)) * ("roberta" in kind)
        for padding in (0, 1, 5):
            ids = np.array([[7, 9, padding, padding], [7, 9, 8, 4]])
            read = [2 if padding == pad else 4, 4]
            out = model(ids).numpy()
            assert_close(out, model(ids, valid_lens=read).numpy(), 1e-6)
            assert [int(row.any(1).sum()) for row in out] == read
        if pad is None:
            assert model([[0, 7, 1]]).numpy().any(2).all()
        else:
            with pytest.raises(ValueError, match=f"begins with pad_token_id {pad}"):
                model([[pad, 7, 8]])
        model.save_pretrained(tmp_path)
        again = BertEncoder.from_pretrained(tmp_path)
        assert again.config["pad_token_id"] == pad
        assert_equal(again(ids).numpy(), model(ids).numpy())
