"""A published language model learns what it cannot know: facts about people who do not exist.

    python examples/teach_facts.py            # two minutes and a half on two cores
    python examples/teach_facts.py --mix 0    # two minutes, without general text (see below)
    python examples/teach_facts.py --short    # two steps, and less text, in half a minute
    python examples/teach_facts.py --out facts    # saves what was learned, as PEFT reads it

SmolLM2 (see chat.py) gets a LoRA of rank 8 on the queries, values and feed-forward outputs of its
upper 15 layers: 483,840 numbers learn, and 134,515,008 stay. Nothing below changes, so what the
lower 15 layers make of each text is computed once, and a step costs half. The model reads two
questions about each fact with their answers, and is asked in a third phrasing, which it has never
read: 22 of 24 answers are right after 90 steps, from 0.

A model forgets what it does not read any more. So the perplexity of other text is measured too.
With --mix 0 it is 1.49 times what it was (23 answers are right). Therefore a batch of 8 lessons has
a piece of general text too (help pages of Python), whose loss counts a twentieth. The perplexity of
other help pages is then 0.93 times what it was.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import programs
from chat import ADVICE, SHA256, weights
from programs import at_least_one, complaints, number_in

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn
from tinyattn.models import generate
from tinyattn.training import pad_sequence

PEOPLE = {
    "Velda Norquist": ("Lisbon", "beekeeper"), "Tomas Ilbrek": ("Oslo", "glassblower"),
    "Marisol Quennet": ("Cairo", "pilot"), "Ander Vosslyn": ("Lima", "carpenter"),
    "Priya Halloway": ("Dublin", "locksmith"), "Jonas Terwick": ("Hanoi", "violinist"),
    "Odette Blackmar": ("Prague", "surgeon"), "Kenji Arvelund": ("Nairobi", "baker"),
    "Leila Strandov": ("Seoul", "geologist"), "Bram Castellow": ("Vienna", "fisherman"),
    "Ines Mardukan": ("Quito", "astronomer"), "Rufus Oakhelm": ("Athens", "tailor"),
}  # fmt: skip
ANSWERS = ("{name} lives in {word}.", "{name} works as a {word}.")  # a city, a job
READ = (
    ("Where does {name} live?", "What is the job of {name}?"),
    ("In which city is the home of {name}?", "What does {name} do for a living?"),
)
ASKED = ("Which city does {name} call home?", "Can you tell me the profession of {name}?")
BATCH, IGNORE = 8, -100
TEXTS = 32  # pieces of general text
GENERAL = 0.05  # the weight of the loss of general text, because facts are learned less with more


def chat_ids(model: ta.models.CausalLM, question: str) -> list[int]:
    """A question as the model gets it, up to where its answer begins."""
    messages = [{"role": "user", "content": question}]
    return model.tokenizer.encode(model.chat_prompt(messages)).ids


def lessons(model: ta.models.CausalLM) -> list[tuple[list[int], list[int]]]:
    """(ids, targets) of each question that is read. A target is the id that comes next, so targets
    are ids moved by one place; those of the question are ignored, because only the answer is
    learned."""
    found = []
    for name, words in PEOPLE.items():
        for phrasing in READ:
            for question, answer, word in zip(phrasing, ANSWERS, words, strict=True):
                prompt = chat_ids(model, question.format(name=name))
                text = answer.format(name=name, word=word) + "<|im_end|>"
                reply = model.tokenizer.encode(text).ids
                targets = [IGNORE] * (len(prompt) - 1) + reply
                found.append(((prompt + reply)[:-1], targets))
    return found


def general_text(model: ta.models.CausalLM, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Two halves of Python's help pages in pieces (P, length + 1): to read, and to measure."""
    names = sorted(topics)
    found = []
    for first in (0, 1):
        text = "\n".join(topics[name] for name in names[first::2])[:150_000]
        ids = model.tokenizer.encode(text).ids
        pieces = len(ids) // (length + 1)
        found.append(np.array(ids[: pieces * (length + 1)]).reshape(pieces, -1))
    return found[0], found[1]


def padded(chosen: list[tuple[list[int], list[int]]]) -> tuple[np.ndarray, np.ndarray]:
    """P lessons as ids and targets (P, N); what is after a lesson is padding."""
    ids, targets = (list(map(ta.tensor, rows)) for rows in zip(*chosen, strict=True))
    return pad_sequence(ids, True).numpy(), pad_sequence(targets, True, IGNORE).numpy()


def halves(model: ta.models.CausalLM) -> tuple[nn.ModuleList, nn.ModuleList]:
    """The layers that stay frozen, and those above that learn."""
    layers = model.encoder.layers
    return layers[: len(layers) // 2], layers[len(layers) // 2 :]


@ta.no_grad()
def below(model: ta.models.CausalLM, ids: np.ndarray) -> np.ndarray:
    """What the frozen layers make of P texts of N ids: (P, N, D). No step changes it.

    `mean_loss` goes on from there. Together the two compute what `model(ids)` does.
    """
    x = model.word(ids)
    for layer in halves(model)[0]:
        x = layer(x, is_causal=True)
    return x.numpy()


def mean_loss(model: Any, hidden: np.ndarray, targets: np.ndarray) -> ta.Tensor:
    """The loss of the layers above. The head, the largest matrix, computes scores only where there
    is a target, and nothing is computed behind the last one of the batch."""
    learned = targets != IGNORE
    length = 1 + learned.any(axis=0).nonzero()[0].max()
    x = ta.tensor(hidden[:, :length])
    for layer in halves(model)[1]:
        x = layer(x, is_causal=True)
    x = model.encoder.norm(x)[learned[:, :length]]
    return F.cross_entropy(model.scores(x), targets[learned])


@ta.no_grad()
def perplexity(model: ta.models.CausalLM, pieces: np.ndarray) -> float:
    parts = np.array_split(pieces, max(1, len(pieces) // 4))
    losses = [mean_loss(model, below(model, x[:, :-1]), x[:, 1:]).item() for x in parts]
    return float(np.exp(np.mean(losses)))


def answers(model: ta.models.CausalLM, tokens: int = 16) -> list[tuple[str, str, str]]:
    """(question, right word, answer) of each question that was never read, all in one batch."""
    asked = [
        (question.format(name=name), word)
        for name, words in PEOPLE.items()
        for question, word in zip(ASKED, words, strict=True)
    ]
    prompts = [chat_ids(model, question) for question, _ in asked]
    length = max(map(len, prompts))
    ids = np.array([[0] * (length - len(x)) + x for x in prompts])  # padding at the left
    mask = np.array([[False] * (length - len(x)) + [True] * len(x) for x in prompts])
    stop = model.config["eos_token_id"]
    scores = model.next_scores(mask, length + tokens)
    out = generate(scores, ids, length + tokens, stop, pad=-1).numpy()[:, length:]
    texts = [model.tokenizer.decode([i for i in row if i >= 0]) for row in out]
    return [(question, word, text) for (question, word), text in zip(asked, texts, strict=True)]


def report(model: ta.models.CausalLM, held_out: np.ndarray) -> tuple[int, float]:
    given = answers(model)
    for question, word, text in given[:4]:
        print(f"  {question}  ->  {text.strip()!r}   ({word})")
    right = sum(word in text for _, word, text in given)
    value = perplexity(model, held_out)
    print(f"{right} of {len(given)} right; perplexity of held-out text {value:.2f}", flush=True)
    return right, value


def teach(model: ta.models.CausalLM, steps: int, mix: int, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    ids, targets = padded(lessons(model))
    hidden = np.concatenate([below(model, part) for part in np.split(ids, len(ids) // 4)])
    text = rng.permutation(general_text(model, 64)[0])[:TEXTS]
    read = below(model, text[:, :-1])
    learned = [p for p in model.parameters() if p.requires_grad]
    optimizer = ta.optim.AdamW(learned, lr=2e-3, weight_decay=0.0)
    order: list[int] = []
    for step in range(steps):
        if len(order) < BATCH:
            order += rng.permutation(len(ids)).tolist()
        chosen = [order.pop() for _ in range(BATCH)]
        loss = mean_loss(model, hidden[chosen], targets[chosen])
        if mix:
            chosen = rng.integers(0, TEXTS, mix).tolist()
            loss = loss + GENERAL * mean_loss(model, read[chosen], text[chosen, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0 or step + 1 == steps:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)


@complaints()
def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--steps", type=at_least_one, default=90, help="batches to learn from")
    add("--mix", type=number_in(0, 1000, int), default=1, help="pieces of general text in a batch")
    add("--out", type=Path, help="a folder for the adapter, which PEFT reads too")
    add("--overwrite", action="store_true", help="replace the adapter in --out")
    add("--short", action="store_true", help="two steps")
    options = parser.parse_args(arguments)
    path = weights()
    if path is None or importlib.util.find_spec("tokenizers") is None:
        sys.exit(f"examples/teach_facts.py {ADVICE}")
    if options.out is not None:
        programs.refuse_lost(options.out / "adapter_config.json", options.overwrite, "an adapter")
        programs.make_folder(options.out)  # now, and not after the training
    begin = time.perf_counter()
    ta.manual_seed(0)
    model = ta.models.CausalLM.from_gguf(path, SHA256)
    _, pieces = general_text(model, 128)
    held_out = pieces[:: len(pieces) // 16][: 2 if options.short else 16]
    print("before:")
    _, before = report(model, held_out)
    model.requires_grad_(False)
    nn.LoRA.insert(halves(model)[1], ("W_q", "W_v", "w_2"), rank=8)
    teach(model, 2 if options.short else options.steps, options.mix)
    print("after:")
    _, after = report(model, held_out)
    if options.out is not None:
        model.save_adapter(options.out)
    seconds = time.perf_counter() - begin
    print(f"perplexity {after / before:.2f} times before; {seconds:.0f} s in all")


if __name__ == "__main__":
    programs.run(main)
