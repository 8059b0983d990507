"""Writes small GGUF files: for tests, because the library only reads them."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

NUMBERS = {bool: (7, "?"), int: (4, "I"), float: (6, "f")}
KINDS = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 8, "BF16": 30}
# SmolLM2's template of a chat, in the form that is called ChatML: for a model of your own.
CHAT_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def string(text):
    content = text.encode()
    return struct.pack("<Q", len(content)) + content


def value(x):
    """The type and the content of a setting."""
    if isinstance(x, str):
        return 8, string(x)
    if isinstance(x, list):
        kinds, contents = zip(*map(value, x), strict=True)
        return 9, struct.pack("<IQ", kinds[0], len(x)) + b"".join(contents)
    kind, code = NUMBERS[type(x)]
    return kind, struct.pack(f"<{code}", x)


def packed(x, kind):
    """The bytes of an array, in blocks whose scales are float16."""
    if kind in ("F32", "F16"):
        return x.astype({"F32": "<f4", "F16": "<f2"}[kind]).tobytes()
    if kind == "BF16":
        return (x.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    rows = x.reshape(-1, 32).astype(np.float64)
    low = rows.min(1, keepdims=True) if kind == "Q4_1" else np.zeros((len(rows), 1))
    most = {"Q8_0": 127, "Q4_0": 7, "Q4_1": 15}[kind]
    scale = (np.abs(rows - low).max(1, keepdims=True) / most).astype("<f2")
    low = low.astype("<f2")
    numbers = np.rint((rows - low) / np.where(scale == 0, 1, scale)).clip(-most, most)
    if kind == "Q8_0":
        parts = [scale.view(np.uint8), numbers.astype(np.int8).view(np.uint8)]
    else:
        halves = (numbers + 8 * (kind == "Q4_0")).clip(0, 15).astype(np.uint8)
        nibbles = halves[:, :16] | halves[:, 16:] << 4
        scales = [scale.view(np.uint8), low.view(np.uint8)][: 1 + (kind == "Q4_1")]
        parts = [*scales, nibbles]
    return np.concatenate(parts, axis=1).tobytes()


def gguf_bytes(settings, tensors, align=32, version=3, counts=None):
    """tensors: name -> (array, kind). counts: what the header says there are, if not the truth."""
    head = b"".join(
        string(name) + struct.pack("<I", value(x)[0]) + value(x)[1] for name, x in settings.items()
    )
    places, data = b"", b""
    for name, (x, kind) in tensors.items():
        data += b"\0" * (-len(data) % align)
        places += string(name) + struct.pack("<I", x.ndim)
        places += struct.pack(f"<{x.ndim}Q", *x.shape[::-1])
        places += struct.pack("<IQ", KINDS.get(kind, kind), len(data))
        data += packed(x, kind) if kind in KINDS else b""
    counts = counts or (len(tensors), len(settings))
    head = struct.pack("<4sIQQ", b"GGUF", version, *counts) + head + places
    return head + b"\0" * (-len(head) % align) + data


def byte_words():
    """The 256 letters that stand for bytes in byte-level BPE."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [n for n in range(256) if n not in plain]
    return [chr(dict(zip(others, range(256, 512), strict=False)).get(n, n)) for n in range(256)]


SIZES = {"vocab": 260, "width": 64, "layers": 2, "heads": 4, "keys": 2, "inner": 96, "length": 64}
WORDS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *byte_words(), "Ġa"]


def llama_settings(template="", **changed):
    s = SIZES
    settings = {
        "general.architecture": "llama",
        "llama.block_count": s["layers"], "llama.context_length": s["length"],
        "llama.embedding_length": s["width"], "llama.feed_forward_length": s["inner"],
        "llama.attention.head_count": s["heads"], "llama.attention.head_count_kv": s["keys"],
        "llama.rope.freq_base": 100000.0, "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.vocab_size": s["vocab"], "llama.rope.dimension_count": s["width"] // s["heads"],
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": WORDS, "tokenizer.ggml.merges": ["Ġ a"],
        "tokenizer.ggml.token_type": [3, 3, 3] + [1] * 257,
        "tokenizer.ggml.eos_token_id": 2, "tokenizer.chat_template": template,
    }  # fmt: skip
    settings |= changed
    return {name: x for name, x in settings.items() if x is not None}


def llama_tensors(rng):
    """Random numbers in the types of the published file: Q4_1, F32, and Q8_0 for the words."""
    s, d = SIZES, SIZES["width"]
    shared = d // s["heads"] * s["keys"]
    sizes = {
        "attn_q": (d, d), "attn_k": (shared, d), "attn_v": (shared, d), "attn_output": (d, d),
        "ffn_gate": (s["inner"], d), "ffn_up": (s["inner"], d), "ffn_down": (d, s["inner"]),
    }  # fmt: skip
    tensors = {"token_embd.weight": (rng.normal(size=(s["vocab"], d)) / 4, "Q8_0")}
    for i in range(s["layers"]):
        for name in ("attn_norm", "ffn_norm"):
            tensors[f"blk.{i}.{name}.weight"] = (1 + rng.normal(size=d) / 4, "F32")
        for name, shape in sizes.items():
            x = rng.normal(size=shape) / np.sqrt(shape[1])
            tensors[f"blk.{i}.{name}.weight"] = (x, "Q4_1")
    tensors["output_norm.weight"] = (1 + rng.normal(size=d) / 4, "F32")
    return tensors


def write_llama(path: Path, seed=0, tensors=None, **settings):
    rng = np.random.default_rng(seed)
    tensors = llama_tensors(rng) | (tensors or {})
    tensors = {name: x for name, x in tensors.items() if x is not None}
    path.write_bytes(gguf_bytes(llama_settings(**settings), tensors))
    return path
