"""Write what docs/course/microscope.md and film.md show: an encoder's attention, and how it came.

  python examples/record_attention.py

trains the encoder of train_encoder.py with the settings that it has there, and writes
docs/_static/encoder_attention.json. That file is kept, because training takes minutes.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import stress_data
from train_encoder import StressTagger, batches, loss_of, predict
from training import Run

import tinyattn as ta
from tinyattn import nn, optim

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "docs" / "_static" / "encoder_attention.json"
WORDS = ["historic", "history", "democrat", "democracy", "democratic", "original"]
FILM = WORDS[0]  # the word whose attention is kept during training
SETTINGS = argparse.Namespace(
    steps=1300, batch_size=256, lr=5e-3, dropout=0.0, d_model=64, heads=4, layers=4, seed=0,
    no_positions=False, device="cpu", out=ROOT / "runs" / "record_attention",
)  # fmt: skip


@ta.no_grad()
def look(model: nn.Module, words: stress_data.Words) -> list[dict]:
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


def main() -> None:
    args = SETTINGS
    args.out.mkdir(parents=True, exist_ok=True)
    training, test = stress_data.load()
    shown = stress_data.encode_words(WORDS)
    if not all(map(stress_data.in_test, WORDS)):
        raise ValueError("a word that is shown must be held out")
    some = np.random.default_rng(args.seed).permutation(len(test.words))[:500]
    ta.manual_seed(args.seed)
    run = Run(StressTagger(args), args)
    film: list[dict] = []

    def held_out() -> ta.Tensor:
        loss = loss_of(run.model, test, some)[0]
        seen = look(run.model, shown)[WORDS.index(FILM)]
        film.append({"step": len(run.losses), "loss": round(loss.item(), 4), **seen})
        return loss

    for rows in run.steps(batches(training.lengths, args.batch_size, args.seed), held_out):
        loss, logits, targets = loss_of(run.model, training, rows)
        number = int((targets != stress_data.IGNORE).sum())
        run.optimizer.zero_grad()
        run.parallel.backward(loss, number)
        optim.clip_grad_norm_(run.model.parameters(), 1.0)
        run.optimizer.step()
        run.schedule.step()
        run.record(loss, stress_data.score(logits.argmax(-1).numpy(), targets)[0], number)

    right = stress_data.score(predict(run.model, test), test.targets)
    words = [
        {
            "word": word,
            "phonemes": [stress_data.PHONEMES[i] for i in ids if i],
            "truth": truth,
            **seen,
        }
        for word, ids, truth, seen in zip(
            WORDS, shown.ids, shown.targets.tolist(), look(run.model, shown), strict=True
        )
    ]
    for word in words:
        word["truth"] = word["truth"][: len(word["phonemes"])]
    record = {
        "steps": args.steps,
        "vowels_right": round(right[0], 4),
        "words_right": round(right[1], 4),
        "losses": [round(loss, 3) for loss in run.losses],
        "words": words,
        "film": {"word": FILM, "frames": film},
    }
    RECORD.write_text(json.dumps(record, separators=(",", ":")) + "\n", "utf-8")
    print(
        f"{RECORD.stat().st_size:,} bytes, {right[0]:.1%} of vowels, {right[1]:.1%} of words right"
    )


if __name__ == "__main__":
    main()
