"""docs/_static/encoder.js computes what tinyattn computes, and reads what a reader types.

V8 runs the scripts, without a browser; tests/docs/test_interactive.py opens the page in one.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
from pathlib import Path

import numpy as np
import pytest

import tinyattn as ta

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "docs" / "_static"
# What a browser has and V8 alone has not: base64, and a page, which is empty here.
BROWSER = """
const document = { querySelectorAll: () => [] };
const SIGNS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
function atob(text) {
  let bits = 0, value = 0, bytes = "";
  for (const sign of text.replaceAll("=", "")) {
    value = (value << 6) | SIGNS.indexOf(sign);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      bytes += String.fromCharCode(value >> bits);
      value &= (1 << bits) - 1;
    }
  }
  return bytes;
}
"""


def value_of(path: Path) -> dict:
    """The value that a script of encoder_weights.js or encoder_words.js defines."""
    return json.loads(path.read_text("utf-8").partition(" = ")[2].rstrip(";\n"))


def engine_of(folder: Path):
    """V8 with the scripts of the page, and with the parameters and words of a folder."""
    py_mini_racer = pytest.importorskip("py_mini_racer", reason="mini-racer is not installed")
    engine = py_mini_racer.MiniRacer()
    engine.eval(BROWSER)
    for path in (
        folder / "encoder_weights.js",
        folder / "encoder_words.js",
        STATIC / "encoder.js",
        STATIC / "attention_microscope.js",
    ):
        engine.eval(path.read_text("utf-8"))
    engine.eval("const model = loadEncoder(encoderWeights);")
    return engine


def run(engine, expression: str) -> dict:
    return json.loads(engine.eval(f"JSON.stringify({expression})"))


@pytest.fixture(scope="module")
def engine():
    return engine_of(STATIC)


@pytest.fixture
def examples(monkeypatch):
    """The programs of examples/, which are imported by their names."""
    pytest.importorskip("tqdm", reason="the examples need tqdm")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))


def tagger_of(folder: Path) -> ta.nn.Module:
    """The encoder of train_encoder.py with the kept parameters."""
    import record_attention

    kept = value_of(folder / "encoder_weights.js")
    numbers = np.frombuffer(base64.b64decode(kept["float16"]), "<f2").astype(np.float32)
    model = record_attention.StressTagger(record_attention.SETTINGS)
    sizes = [int(np.prod(shape)) for shape in kept["shapes"].values()]
    assert sum(sizes) == numbers.size == sum(p.numel() for p in model.parameters()) == 136_771
    parts = np.split(numbers, np.cumsum(sizes)[:-1])
    state = {
        name: ta.tensor(part.reshape(shape))
        for (name, shape), part in zip(kept["shapes"].items(), parts, strict=True)
    }
    model.load_state_dict({**model.state_dict(), **state})
    return model.eval()


@pytest.mark.parametrize(("dtype", "bound"), [(np.float64, 1e-11), (np.float32, 1e-5)])
def test_scores_and_weights_are_those_of_tinyattn(dtype, bound, engine, examples):
    """For random phonemes, of every length that the encoder was trained on."""
    model = tagger_of(STATIC).to(dtype)
    rng = np.random.default_rng(0)
    for length in [*range(1, 17)] * 2:
        ids = rng.integers(1, 40, length)
        found = run(engine, f"encode({ids.tolist()}, model)")
        with ta.no_grad():
            scores = model(ids[None])[0].numpy()
        weights = [layer.self_attn.attention_weights[0].numpy() for layer in model.encoder.layers]
        np.testing.assert_allclose(found["weights"], weights, rtol=0, atol=bound)
        np.testing.assert_allclose(found["scores"], scores, rtol=0, atol=bound)


def test_softmax_does_not_overflow(engine):
    assert run(engine, "softmax([1000, 1000, -1000])") == [0.5, 0.5, 0]


def check_recorded_words(engine, record: dict) -> None:
    """The kept parameters give the attention that is recorded beside them, in hundredths."""
    phonemes = run(engine, "encoderWeights.phonemes")
    for word in record["words"]:
        ids = [phonemes.index(name) for name in word["phonemes"]]
        found = run(engine, f"encode({ids}, model)")
        # Half a hundredth is lost to rounding, and float32 may round to the other side.
        np.testing.assert_allclose(100 * np.array(found["weights"]), word["weights"], atol=0.5001)
        assert np.argmax(found["scores"], -1).tolist() == word["stress"]


def test_the_parameters_are_those_of_the_recorded_words(engine):
    check_recorded_words(engine, json.loads((STATIC / "encoder_attention.json").read_text("utf-8")))


def test_the_recorder_writes_parameters_that_the_script_reads(tmp_path, monkeypatch, examples):
    """Three steps, instead of minutes of training."""
    import record_attention

    settings = {**vars(record_attention.SETTINGS), "steps": 3, "out": tmp_path, "d_model": 16}
    monkeypatch.setattr(record_attention, "SETTINGS", argparse.Namespace(**settings))
    monkeypatch.setattr(record_attention, "STATIC", tmp_path)
    monkeypatch.setattr("sys.argv", ["record_attention.py"])  # without the arguments of pytest
    record_attention.main()
    record = json.loads((tmp_path / "encoder_attention.json").read_text("utf-8"))
    check_recorded_words(engine_of(tmp_path), record)
    steps = [frame["step"] for frame in record["film"]["frames"]]
    assert (steps, len(record["losses"])) == ([1, 2, 3], 3)
    made, kept = [(folder / "encoder_words.js").read_text("utf-8") for folder in (tmp_path, STATIC)]
    assert made == kept


def test_the_lists_have_words_of_the_dictionary(examples):
    import stress_data

    words = value_of(STATIC / "encoder_words.js")
    entries = stress_data.read()
    for name, is_held_out in {"heldOut": True, "training": False}.items():
        lines = words[name].strip("\n").split("\n")
        assert len(lines) > 5000
        for word, codes in map(str.split, lines):
            assert [words["symbols"][ord(code) - 48] for code in codes] == entries[word]
            assert stress_data.in_test(word) == is_held_out


@pytest.mark.parametrize("name", ["encoder_weights.js", "encoder_words.js"])
def test_the_files_stay_small(name):
    assert (STATIC / name).stat().st_size < 400_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("historic", "HH IH0 S T AO1 R IH0 K"),
        ("  Attention\n", "AH0 T EH1 N SH AH0 N"),
        ("HH IH S T AO R IH K", "HH IH S T AO R IH K"),
        ("hh ih s t ao r ih k", "HH IH S T AO R IH K"),
        ("HH IH0 S T ˈAO1 R IH0 K", "HH IH S T AO R IH K"),
        ("AO IY", "AO IY"),
        ("T " * 14 + "AA IY", "T " * 14 + "AA IY"),
    ],
)
def test_a_text_is_read(text, expected, engine):
    found = run(engine, f"readText({json.dumps(text)}, encoderWeights, encoderWords)")
    assert [run(engine, "encoderWeights.phonemes")[i] for i in found["ids"]] == re.sub(
        r"\d", "", expected
    ).split()
    assert " ".join(found.get("symbols", ())) in (expected, "")
    assert ("symbols" in found) == (found["origin"] != "phonemes")


@pytest.mark.parametrize(
    ("text", "trouble", "what"),
    [
        ("", "empty", None),
        (" \t", "empty", None),
        ("AO", "single", None),
        ("K AE T", "single", None),
        ("naïve", "sign", "ï"),
        ("注意力", "sign", "注"),
        ("two words!", "sign", "!"),
        ("\N{GRINNING FACE}", "sign", "\N{GRINNING FACE}"),
        ("the small encoder", "sentence", None),
        ("xyzzyx", "unknown", "xyzzyx"),
        ("cat", "unknown", "cat"),
        ("HH IH S TT AO", "phoneme", "TT"),
        ("HH IH S <pad> AO", "phoneme", "<PAD>"),
        ("T " * 16 + "AA", "long", 17),
        ("S T R", "vowel", None),
        ("a" * 1000, "unknown", "a" * 1000),
    ],
)
def test_what_is_wrong_with_a_text(text, trouble, what, engine):
    found = run(engine, f"readText({json.dumps(text)}, encoderWeights, encoderWords)")
    assert found == {"trouble": trouble, **({} if what is None else {"what": what})}


def test_the_page_has_a_sentence_for_every_trouble_and_origin():
    script = (STATIC / "attention_microscope.js").read_text("utf-8")
    page = (ROOT / "docs" / "course" / "microscope.md").read_text("utf-8")
    for name, word in {"TROUBLES": "trouble", "ORIGINS": "origin"}.items():
        sentences = re.search(rf"^{name} = {{(.*?)^}}", page, re.DOTALL | re.MULTILINE)
        used = set(re.findall(rf'{word}: "(\w+)"', script))
        used |= {"heldOut", "training"} if word == "origin" else set()
        assert set(re.findall(r'^    "(\w+)":', sentences[1], re.MULTILINE)) == used


def test_every_page_that_the_script_names_has_that_number_and_title():
    """A student goes from a function to the page that builds it."""
    script = (STATIC / "encoder.js").read_text("utf-8")
    named = re.findall(r'^// Page (\d+)(?:, "(.*?)")?:', script, re.MULTILINE)
    assert len(named) == 9
    for number, title in named:
        (page,) = (ROOT / "docs" / "course").glob(f"{int(number):02}_*.md")
        assert f"# {number} · {title}" in page.read_text("utf-8")
