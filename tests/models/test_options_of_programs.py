"""The options of the programs of examples/: their names, defaults, kinds and bounds, as one table.

A program that gets another option, default or bound gets another line here.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import math
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


# Of each program a line for each option: its name, its default, and its kind; of a number the least
# and the most; and the sign for how many values it takes.
OPTIONS = {
    "ask_stdlib": """
question None text ?
--build False stores True in build
--explain False stores True in explain
--evaluate False stores True in evaluate
--out runs/ask_stdlib Path
""",
    "attention_by_hand": """
--out None Path
""",
    "chat": """
prompt None text ?
--folder None Path
--gguf None Path
--temperature 0.0 float 0 100
--top-p None float 0.001 1
--int8 False stores True in int8
--tokens 256 int 1 1e+09
one of --folder --gguf
""",
    "classify_texts": """
file None Path ?
--text None text
--label None text
--separator None separator
--encoding None text
--predict None with_words +
--out runs/texts Path
--overwrite False stores True in overwrite
--epochs 30 int 1 1e+09
--short None stores 1 in epochs
--batch-size None int 1 1e+06
--d-model 96 int 1 1e+06
--heads 4 int 1 1e+06
--layers 2 int 1 1e+06
--longest 256 int 1 1e+06
--lr None float 0 10
--dropout 0.4 float
--seed 0 int
""",
    "few_shot": """
--labels [8, 16, 64] int 1 250 +
--seeds 3 int 1 1e+09
--short False stores True in short
--validation False stores True in validation
--out runs/few_shot Path
""",
    "record_attention": """
""",
    "record_scaling": """
--seconds 50.0 float 0.001 1e+06
--out data/scaling_law.json Path
""",
    "spell_to_sound": """
--steps 7200 int 1 1e+09
--short 7200 stores 20 in steps
--batch-size 64 int 1 1e+06
--lr 0.003 float
--dropout 0.0 float
--seed 0 int
--d-model 128 int 1 1e+06
--heads 4 int 1 1e+06
--layers 2 int 1 1e+06
--no-positions False stores True in no_positions
--out runs/spell_to_sound Path
--resume False stores True in resume
--overwrite False stores True in overwrite
--device cpu cpu|cuda
--no-cross-attention False stores True in no_cross_attention
--say None text +
one of --steps --short
one of --resume --overwrite
""",
    "stress_baselines": """
--words None int 100 1e+06
--radius [2, 8] int 0 100 +
--mlp False stores True in mlp
--seed 0 int
""",
    "teach_facts": """
--steps 90 int 1 1e+09
--mix 1 int 0 1000
--out None Path
--overwrite False stores True in overwrite
--short False stores True in short
""",
    "train_digits": """
--steps 900 int 1 1e+09
--short 900 stores 100 in steps
--batch-size 64 int 1 1e+06
--lr 0.003 float
--dropout 0.0 float
--seed 0 int
--d-model 48 int 1 1e+06
--heads 4 int 1 1e+06
--layers 2 int 1 1e+06
--no-positions False stores True in no_positions
--out runs/digits Path
--resume False stores True in resume
--overwrite False stores True in overwrite
--device cpu cpu|cuda
one of --steps --short
one of --resume --overwrite
""",
    "train_encoder": """
--steps 1300 int 1 1e+09
--short 1300 stores 100 in steps
--batch-size 256 int 1 1e+06
--lr 0.005 float
--dropout 0.0 float
--seed 0 int
--d-model 64 int 1 1e+06
--heads 4 int 1 1e+06
--layers 4 int 1 1e+06
--no-positions False stores True in no_positions
--out runs/encoder Path
--resume False stores True in resume
--overwrite False stores True in overwrite
--device cpu cpu|cuda
--predict None text +
one of --steps --short
one of --resume --overwrite
""",
    "train_language_model": """
texts None text *
--minutes 5.0 float 0.001 1e+06
--steps None int 1 1e+09
--short False stores True in short
--size small tiny|small|medium
--layers None int 1 1e+06
--heads None int 1 1e+06
--width None int 1 1e+06
--context None int 1 1e+06
--batch None int 1 1e+06
--lr None float 0 10
--kind None llama|gpt2
--dropout 0.0 float 0 0.99
--accumulate 1 int 1 1e+09
--weight-decay 0.1 float 0 10
--patience 5 int 1 1e+09
--tokens None characters|bpe
--words 1024 int 257 1e+06
--from None abspath
--lora None int 1 1e+06
--seed 0 int
--out runs/language_model Path
--resume False stores True in resume
--overwrite False stores True in overwrite
--sample None text
--temperature 0.8 float 0 100
--top-p None float 0.001 1
--length 500 int 1 1e+09
one of --resume --overwrite
""",
}
# The advice to go on leaves options out by their names, so a short form of one would stay in it.
IN_FULL = {"spell_to_sound", "train_digits", "train_encoder", "train_language_model"}


class FoundError(Exception):
    """Carries the parser of a program, which reads no option then."""


@pytest.fixture
def parser_of(monkeypatch):
    for package in ("tqdm", "matplotlib", "sklearn", "tokenizers"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    monkeypatch.syspath_prepend(str(EXAMPLES))

    def found(parser: argparse.ArgumentParser, *_: Any) -> None:
        raise FoundError(parser)

    def parser(name: str) -> argparse.ArgumentParser:
        program = importlib.import_module(name)
        monkeypatch.setattr(sys, "argv", [f"{name}.py"])
        with monkeypatch.context() as patched:
            for method in ("parse_args", "parse_intermixed_args"):
                patched.setattr(argparse.ArgumentParser, method, found)
            with pytest.raises(FoundError) as caught:
                program.main()
        return caught.value.args[0]

    return parser


def bounds_of(action: argparse.Action) -> dict[str, Any] | None:
    """What `programs.number_in` was given."""
    names = inspect.getclosurevars(action.type).nonlocals if inspect.isfunction(action.type) else {}
    return dict(names) if "least" in names else None


def described(action: argparse.Action) -> str:
    """name default kind; an option without a value has what it stores."""
    name = "/".join(action.option_strings) or action.dest
    if action.nargs == 0:
        kind = f"stores {getattr(action, 'const', None)} in {action.dest}"
    elif action.choices is not None:
        kind = "|".join(map(str, action.choices))
    elif (bounds := bounds_of(action)) is not None:
        kind = f"{bounds['kind'].__name__} {bounds['least']:g} {bounds['most']:g}"
    else:
        kind = getattr(action.type, "__name__", "text")
    more = f" {action.nargs}" if action.nargs else ""
    return f"{name} {action.default!s} {kind}{more}"


@pytest.mark.parametrize("name", OPTIONS)
def test_options_are_those_of_the_table(parser_of, name):
    parser = parser_of(name)
    lines = [described(action) for action in parser._actions if action.dest != "help"]
    for group in parser._mutually_exclusive_groups:
        lines.append("one of " + " ".join(x.option_strings[0] for x in group._group_actions))
    assert "\n".join(lines).replace(f"{EXAMPLES}{os.sep}", "") == OPTIONS[name].strip()
    assert parser.allow_abbrev is (name not in IN_FULL)


@pytest.mark.parametrize("name", OPTIONS)
def test_numbers_at_their_bounds_are_taken_and_others_refused(parser_of, name):
    for action in parser_of(name)._actions:
        if (bounds := bounds_of(action)) is None:
            continue
        kind, *ends = bounds["kind"], bounds["least"], bounds["most"]
        for end, direction in zip(ends, (-math.inf, math.inf), strict=True):
            assert action.type(str(end)) == end, action.dest
            beyond = end + (1 if direction > 0 else -1) if kind is int else None
            beyond = math.nextafter(end, direction) if beyond is None else beyond
            with pytest.raises(argparse.ArgumentTypeError):
                action.type(repr(beyond))
        for text in ("nan", "inf", "", "one", "1e", *(["1.5"] if kind is int else [])):
            with pytest.raises((argparse.ArgumentTypeError, ValueError)):
                action.type(text)


def test_every_program_with_options_has_a_row():
    texts = {path.stem: path.read_text("utf-8") for path in EXAMPLES.glob("*.py")}
    parsers = {name for name, text in texts.items() if re.search(r"[Aa]rgument_?[Pp]arser\(", text)}
    assert parsers - {"training"} == {*OPTIONS}  # which makes that of three programs
