"""Write what docs/course/microscope.md and film.md show: an encoder's attention, and how it came.

  python examples/record_attention.py

trains the encoder of train_encoder.py with the settings that it has there, and writes three files
into docs/_static, which are kept because training takes minutes:

  encoder_attention.json  the attention of some words, and how that of one came
  encoder_weights.js      the parameters, for encoder.js, which computes them in a browser
  encoder_words.js        words and their phonemes, which a reader of the page can type
"""

from __future__ import annotations

import argparse
import base64
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import programs
import stress_data
import text_data
from train_encoder import StressTagger, batches, loss_of, predict
from training import Run

import tinyattn as ta
from tinyattn import nn

ROOT = Path(__file__).parents[1]
STATIC = ROOT / "docs" / "_static"
# All of them held out.
WORDS = ["historic", "history", "democrat", "democracy", "democratic", "original"]
FILM = WORDS[0]  # the word whose attention is kept during training
DICTIONARY = "CMU Pronouncing Dictionary (licence: examples/data/CMUDICT_LICENSE)"
SETTINGS = argparse.Namespace(
    steps=1300, batch_size=256, lr=5e-3, dropout=0.0, d_model=64, heads=4, layers=4, seed=0,
    no_positions=False, device="cpu", out=ROOT / "runs" / "record_attention",
)  # fmt: skip


@ta.no_grad()
def look(model: Any, words: stress_data.Words) -> list[dict]:
    """For each word the predicted stress at each phoneme, and all weights in hundredths."""
    stress = predict(model, words)
    model(words.ids)
    weights = [layer.self_attn.attention_weights.numpy() for layer in model.encoder.layers]
    hundredths = np.stack(weights, axis=1) * 100  # (B, N, H, T, T)
    return [
        {
            "stress": stress[i, :length].tolist(),
            "weights": hundredths[i, :, :, :length, :length].round().astype(int).tolist(),
        }
        for i, length in enumerate(words.lengths)
    ]


def write(name: str, text: str) -> None:
    (STATIC / name).write_text(f"{text}\n", "utf-8")
    print(f"{name}: {(STATIC / name).stat().st_size:,} bytes")


def write_script(name: str, value: object, source: str) -> None:
    """Write a value as a script, because a page that is opened as a file can read no other file."""
    text = f"const encoder{name.title()} = {json.dumps(value, separators=(',', ':'))};"
    origin = f"// {source}, written by examples/record_attention.py"
    write(f"encoder_{name}.js", f"{origin}\n{text}")


def weights_of(model: nn.Module, heads: int) -> dict:
    """The parameters as float16, one after the other, in base64; `shapes` says which they are."""
    parameters = dict(model.named_parameters())
    numbers = [p.numpy().astype("<f2").tobytes() for p in parameters.values()]
    return {
        "heads": heads,
        "longest": stress_data.MAX_LENGTH,
        "phonemes": stress_data.PHONEMES,
        "vowels": stress_data.VOWELS,
        "shapes": {name: list(p.shape) for name, p in parameters.items()},
        "float16": base64.b64encode(b"".join(numbers)).decode("ascii"),
    }


def words_to_type() -> dict:
    """The words held out, and those of the training data that definitions of WordNet use.

    A line has a word and its phonemes, each as one character: the character with the code 48 + i is
    symbols[i]. All words of the data would be four times as long.
    """
    entries = stress_data.read()
    vowels = [vowel + digit for vowel in stress_data.VOWELS for digit in "012"]
    symbols = [*vowels, *stress_data.CONSONANTS]
    code = {symbol: chr(48 + i) for i, symbol in enumerate(symbols)}
    held_out = sorted(filter(stress_data.in_test, entries))
    used = set(re.findall("[a-z]+", " ".join(text_data.definitions()[0]).lower()))

    def lines(words: list[str]) -> str:
        found = (f"\n{word} {''.join(code[symbol] for symbol in entries[word])}" for word in words)
        return "".join(found) + "\n"

    training = sorted(used & entries.keys() - set(held_out))
    return {"symbols": symbols, "heldOut": lines(held_out), "training": lines(training)}


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    SETTINGS.out.mkdir(parents=True, exist_ok=True)
    training, test = stress_data.load()
    shown = stress_data.encode_words(WORDS)
    some = np.random.default_rng(SETTINGS.seed).permutation(len(test.words))[:500]
    ta.manual_seed(SETTINGS.seed)
    run = Run(StressTagger(SETTINGS), SETTINGS)
    film: list[dict] = []

    def held_out() -> ta.Tensor:
        loss = loss_of(run.model, test, some)[0]
        seen = look(run.model, shown)[WORDS.index(FILM)]
        film.append({"step": len(run.losses), "loss": round(loss.item(), 4), **seen})
        return loss

    drawn = batches(training.lengths, SETTINGS.batch_size, SETTINGS.seed)
    run.train(drawn, partial(loss_of, run.model, training), held_out)

    # The model that is shown is the one whose parameters are kept, and these are float16.
    run.model.half().float()
    film.pop()
    with ta.no_grad():
        held_out()
    right = stress_data.score(predict(run.model, test), test.targets)
    words = [
        {
            "word": word,
            "phonemes": [stress_data.PHONEMES[i] for i in ids[:length]],
            "truth": truth[:length].tolist(),
            **seen,
        }
        for word, ids, truth, length, seen in zip(*shown, look(run.model, shown), strict=True)
    ]
    record = {
        "steps": SETTINGS.steps,
        "vowels_right": round(right[0], 4),
        "words_right": round(right[1], 4),
        "losses": [round(loss, 3) for loss in run.losses],
        "words": words,
        "film": {"word": FILM, "frames": film},
    }
    write("encoder_attention.json", json.dumps(record, separators=(",", ":")))
    write_script("weights", weights_of(run.model, SETTINGS.heads), "Parameters of an encoder")
    write_script("words", words_to_type(), DICTIONARY)
    print(f"{right[0]:.1%} of vowels, {right[1]:.1%} of words right")


if __name__ == "__main__":
    programs.run(main)
