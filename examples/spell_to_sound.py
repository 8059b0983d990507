"""Train a Transformer, encoder and decoder, to say English words: letters in, phonemes out.

The letters of a word go in (n i g h t i n g a l e), its phonemes come out one after another (N AY T
IH NG G EY L). Letters and sounds do not stand one to one, so for each sound the decoder has to find
the letters that it comes from: that is cross-attention's work.

  python examples/spell_to_sound.py                          train, score, draw
  python examples/spell_to_sound.py --say history historic   ask the trained model
  python examples/spell_to_sound.py --no-positions           one that is blind to order
  python examples/spell_to_sound.py --no-cross-attention     the decoder reads a mean of all letters
  mpiexec -n 2 python examples/spell_to_sound.py             train in two processes
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sound_data
import stress_data
from programs import complaints, save_picture
from sound_data import LETTERS, START, STOP, SYMBOLS, Pairs, error_rates, phonemes_of
from stress_data import MAX_LENGTH, PAD
from train_encoder import batches
from training import VALIDATIONS, argument_parser, run_program, start

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn, viz
from tinyattn.models import generate

# All of them held out. How attention to the letters of the first one emerges is drawn.
SHOWN = ["nightingale", "laughter", "pneumonia", "nation", "castle", "beautiful"]
BEAMS = 4
TRIAL = 20  # steps of --short
# Of the target's probability, this part goes to all sounds alike, in training only: a few words
# fewer are wrong, because the model is less sure of sounds that only one word has.
SMOOTHING = 0.1


class AttentionByDistance(nn.MultiHeadedAttention):
    """Self-attention with a learned bias for each head and each distance of two letters.

    So a head can learn at once to look at the next letter, wherever in the word that is.
    Source: Raffel et al., "Exploring the Limits of Transfer Learning" (T5), 2020.
    """

    def __init__(self, heads: int, width: int, dropout: float) -> None:
        super().__init__(heads, width, dropout)
        self.biases = nn.Parameter(np.zeros((heads, 2 * MAX_LENGTH - 1), np.float32))

    def forward(  # type: ignore[override]
        self, query: Any, key: Any, value: Any, *args: Any, **options: Any
    ) -> ta.Tensor:
        places = np.arange(key.shape[1])
        distances = places - places[:, None] + MAX_LENGTH - 1  # (S, S), from 0
        return super().forward(query, key, value, bias=self.biases[:, distances], **options)


class SpellToSound(nn.EncoderDecoder):
    """Letters (B, S) and the sounds so far (B, T) to states (B, T, D); generator gives scores.

    With no_cross_attention the memory is one vector, the mean of the encoder's output: all else is
    the same, but no sound can choose its letters.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        width, dropout = args.d_model, args.dropout

        def embed(symbols: Sequence[str]) -> nn.Module:
            table = nn.Embedding(len(symbols), width, padding_idx=PAD)
            places = nn.Identity() if args.no_positions else nn.PositionalEncoding(width)
            return nn.Sequential(table, places, nn.Dropout(dropout))

        def attention(kind: type = nn.MultiHeadedAttention) -> nn.Module:
            return kind(args.heads, width, dropout)

        def feed_forward() -> nn.Module:
            return nn.PositionwiseFeedForward(width, 4 * width, dropout)

        near = nn.MultiHeadedAttention if args.no_positions else AttentionByDistance
        reader = nn.EncoderLayer(width, attention(near), feed_forward(), dropout)
        speaker = nn.DecoderLayer(width, attention(), attention(), feed_forward(), dropout)
        super().__init__(
            nn.Encoder(reader, args.layers),
            nn.Decoder(speaker, args.layers),
            embed(LETTERS),
            embed(SYMBOLS),
            nn.Linear(width, len(SYMBOLS)),
        )
        self.takes_mean = args.no_cross_attention
        # Cross-attention at each measurement of the held-out loss; here, to be in the checkpoint.
        self.register_buffer("history", ta.zeros(VALIDATIONS + 2, MAX_LENGTH + 1, MAX_LENGTH))

    def encode(self, src: Any, src_mask: Any = None) -> ta.Tensor:
        memory = super().encode(src, src_mask)  # (B, S, D)
        return F.masked_mean(memory, mask=src_mask).unsqueeze(1) if self.takes_mean else memory

    def decode(self, memory: ta.Tensor, src_mask: Any, *args: Any, **options: Any) -> ta.Tensor:
        return super().decode(memory, None if self.takes_mean else src_mask, *args, **options)


def loss_of(
    model: Any, pairs: Pairs, rows: np.ndarray, smoothing: float = 0.0
) -> tuple[ta.Tensor, float, int]:
    """The loss of some words, the share of sounds that are right, given those before them, and how
    many sounds there are."""
    letters = pairs.letters[rows, : pairs.lengths[rows].max()]
    sounds = pairs.sounds[rows]
    sounds = sounds[:, : (sounds != PAD).sum(axis=1).max()]
    states = model(letters, sounds[:, :-1], letters != PAD)
    logits, targets = model.generator(states).reshape(-1, len(SYMBOLS)), sounds[:, 1:].reshape(-1)
    right = logits.argmax(-1).cpu().numpy() == targets
    loss = F.cross_entropy(logits, targets, ignore_index=PAD, label_smoothing=smoothing)
    told = targets != PAD
    return loss, float(right[told].mean()), int(told.sum())


def say(model: Any, letters: np.ndarray, beams: int) -> list[list[str]]:
    """The phonemes of each word, by greedy choice or by beam search."""
    model.eval()
    lengths = (letters != PAD).sum(axis=1)
    by_length = np.argsort(lengths, kind="stable")
    said: list[list[str]] = [[]] * len(letters)
    for rows in np.array_split(by_length, 1 + len(by_length) // 500):
        some = letters[rows, : lengths[rows].max()]
        scores, first = model.next_scores(some, some != PAD), np.full((len(rows), 1), START)
        ids = generate(scores, first, MAX_LENGTH + 2, STOP, PAD, num_beams=beams).tolist()
        for row, sounds in zip(rows, ids, strict=True):
            said[row] = phonemes_of(sounds)
    return said


@ta.no_grad()
def cross_attention(model: Any, letters: np.ndarray, sounds: np.ndarray) -> np.ndarray:
    """The weights of letters (S,) for each next sound of sounds (T,), mean of all heads: (T, S)."""
    model.eval()(letters[None], sounds[None])
    layers = [layer.src_attn.attention_weights for layer in model.decoder.layers]
    return ta.cat(layers, 1)[0].mean(0).cpu().numpy()


def draw(model: nn.Module, words: list[str], path: Path) -> None:
    """Which letters the decoder attends to for each sound that it says, in the first four words."""
    words = words[:4]
    said = say(model, sound_data.encode_letters(words), BEAMS)
    rows, columns = max(map(len, said)) + 1, max(map(len, words))
    grid = (2, 2) if len(words) == 4 else (1, len(words))
    maps = np.zeros((*grid, rows, columns))
    visible = np.zeros(maps.shape, bool)
    for number, (word, sounds) in enumerate(zip(words, said, strict=True)):
        ids = np.array([START, *map(SYMBOLS.index, sounds)])
        letters = sound_data.encode_letters([word])[0, : len(word)]
        cells = np.s_[*divmod(number, grid[1]), : len(ids), : len(word)]
        maps[cells], visible[cells] = cross_attention(model, letters, ids), True
    names = [[*sounds, SYMBOLS[STOP]] for sounds in said]
    heatmaps(path, maps, words, [list(word) for word in words], names, visible)


def draw_history(model: Any, pairs: Pairs, steps: Sequence[float], path: Path) -> None:
    """The same picture of one word at up to eight moments of the training."""
    chosen = np.unique(np.geomspace(1, len(steps), 8).round().astype(int)) - 1  # more of the start
    number, length = (pairs.sounds[0] != PAD).sum() - 1, pairs.lengths[0]
    maps = model.history.cpu().numpy()[chosen, :number, :length]
    titles = [f"step {steps[i]:.0f}" for i in chosen]
    if len(chosen) == 8:
        maps = maps.reshape(2, 4, number, length)
    names = [SYMBOLS[i] for i in pairs.sounds[0, 1 : number + 1]]
    heatmaps(path, maps, titles, list(pairs.words[0]), names)


def heatmaps(
    path: Path, maps: np.ndarray, titles: list, letters: list, sounds: list, visible: Any = None
) -> None:
    darkest = max(0.5, maps.max())  # means of several heads are far from 1
    figure = viz.show_heatmaps(
        maps, "letters", "next sound", titles, letters, sounds, visible, vmax=darkest,
        zlabel="weight, mean of all layers and heads",
    )  # fmt: skip
    save_picture(figure, path)


def show(model: nn.Module, words: list[str]) -> None:
    """Print how the model says some words."""
    print(f"said with {BEAMS} beams, and greedy where that differs:")
    entries, letters = stress_data.read(), sound_data.encode_letters(words)
    for word, greedy, best in zip(
        words, say(model, letters, 1), say(model, letters, BEAMS), strict=True
    ):
        right = [phoneme.rstrip("012") for phoneme in entries.get(word, [])]
        origin = "held out" if stress_data.in_test(word) else "in training"
        verdict = "right" if best == right else f"should be {' '.join(right)}"
        if not right:
            origin, verdict = "unknown", ""
        other = "" if greedy == best else f"  greedy: {' '.join(greedy)}"
        line = f"  {word:<14}  {' '.join(best):<32}  {origin:<11}  {verdict}{other}"
        print(line.rstrip())


def main() -> None:
    parser = argument_parser(
        __doc__, short=TRIAL, steps=7200, batch_size=64, lr=3e-3, dropout=0.0, d_model=128,
        heads=4, layers=2, out=Path("runs/spell_to_sound"),
    )  # fmt: skip
    asked = "say words, and draw said.png; train nothing"
    mean = "give the decoder the mean of the encoder's output instead of all of it"
    parser.add_argument("--no-cross-attention", action="store_true", help=mean)
    parser.add_argument("--say", nargs="+", metavar="WORD", dest="predict", help=asked)
    run = start(parser, SpellToSound)
    args, model = run.args, run.model
    run.curve = "training, with label smoothing"
    if args.predict:
        words = [word.lower() for word in args.predict]
        with complaints():
            show(model, words)
        if not args.no_cross_attention:
            draw(model, words, args.out / "said.png")
            print(f"which letters it attends to: {args.out / 'said.png'}")
        return

    training, test = sound_data.load()
    run.introduce(len(training.words), len(test.words), "words")
    shown = sound_data.encode(SHOWN)
    some = np.random.default_rng(args.seed).permutation(len(test.words))[:250]

    def held_out() -> ta.Tensor:
        if not args.no_cross_attention:
            number, length = (shown.sounds[0] != PAD).sum() - 1, shown.lengths[0]
            weights = cross_attention(model, shown.letters[0, :length], shown.sounds[0, :number])
            now = np.s_[len(run.held_out), :number, :length]
            model.history[now] = ta.tensor(weights, device=args.device)
        return loss_of(model, test, some)[0]

    # The words of a batch are alike in the number of letters, then in that of sounds.
    lengths = training.lengths * training.sounds.shape[1] + (training.sounds != PAD).sum(axis=1) - 1
    drawn = batches(lengths, args.batch_size, args.seed)
    run.train(drawn, lambda rows: loss_of(model, training, rows, SMOOTHING), held_out)

    if args.steps <= TRIAL:  # its model has learned nothing that is worth more time
        whole = len(test.words)
        training, test = (sound_data.each(50, pairs) for pairs in (training, test))
        print(f"a trial: scored on {len(test.words):,} of {whole:,} words, "
              f"rules from {len(training.words):,}")  # fmt: skip
    print(f"scoring {len(test.words):,} words, greedy and with {BEAMS} beams ...")
    print(f"\n{'on held-out words':<50}{'phonemes wrong':>16}{'words wrong':>14}")

    def report(name: str, said: list[list[str]]) -> None:
        phonemes, whole = error_rates(said, test)
        print(f"{name:<50}{phonemes:>16.1%}{whole:>14.1%}")

    codes = sound_data.align(training)
    for radius, name in ((1, "two letters"), (3, "six letters")):
        rules = sound_data.say_by_rules(training, codes, test, radius)
        report(f"most frequent sounds beside {name}", rules)
    lacks = ", no positions" * args.no_positions
    lacks += ", no cross-attention" * args.no_cross_attention
    for beams, name in ((1, "greedy"), (BEAMS, f"{BEAMS} beams")):
        report(f"encoder and decoder{lacks}, {name}", say(model, test.letters, beams))
    print()
    show(model, SHOWN)
    if not args.no_cross_attention:
        draw(model, SHOWN, args.out / "attention.png")
        steps = [step for step, _ in run.held_out]
        draw_history(model, shown, steps, args.out / "attention_history.png")
    run.end("pictures")


if __name__ == "__main__":
    run_program(main)
