"""Chats: options, messages of the caller, marks of templates, and what a long chat leaves out."""

from __future__ import annotations

import copy
import inspect
import itertools
import sys

import pytest
from common import rng_of
from gguf_writer import CHAT_TEMPLATE, write_llama
from test_causal import needs_jinja, needs_tokenizers

from tinyattn.errors import ShapeError
from tinyattn.models import CausalLM
from tinyattn.models.chat import ROLES, chat_prompt, check_options, checked_messages

HELLO = [{"role": "user", "content": "Hello"}]
# One id for each letter of a content, and none for what is around it.
BARE = "{{ messages | map(attribute='content') | join }}"


def model_of(tmp_path, template=CHAT_TEMPLATE, positions=200):
    sizes = {"llama.context_length": positions}
    return CausalLM.from_gguf(write_llama(tmp_path / "m.gguf", template=template, **sizes))


# Options

KNOWN = "chat and generate_text take max_new_tokens, stop, temperature, top_k and top_p, got an "


def test_the_error_for_an_unknown_option_lists_every_option():
    kinds = inspect.Parameter.VAR_KEYWORD
    parameters = inspect.signature(check_options).parameters
    names = [name for name, x in parameters.items() if x.kind != kinds]
    assert KNOWN.startswith(f"chat and generate_text take {', '.join(names[:-1])} and {names[-1]},")


UNKNOWN = [None, 0, False, "", [], 3]


@needs_tokenizers
@needs_jinja
@pytest.mark.parametrize("value", UNKNOWN, ids=repr)
def test_an_unknown_option_is_refused_at_once_whatever_its_value(value, tmp_path):
    model = model_of(tmp_path)
    scores = model.next_scores()
    conversation = model.chat(HELLO, max_new_tokens=2)
    conversation.options["top"] = value
    for call in (
        lambda: model.generate_text("a", top=value),
        lambda: model.continued([3], scores, top=value),
        lambda: model.chat(HELLO, top=value),
        lambda: conversation.ask("Why?"),
        lambda: iter(conversation),
    ):
        with pytest.raises(TypeError) as caught:
            call()
        assert str(caught.value) == f"{KNOWN}unexpected keyword argument 'top'"
    assert conversation.messages == HELLO


def test_of_several_unknown_options_the_first_of_the_alphabet_is_named():
    for names in itertools.permutations(("seed", "min_p", "top")):
        with pytest.raises(TypeError, match=r"unexpected keyword argument 'min_p'$"):
            check_options(3, **dict.fromkeys(names))


WRONG = [
    ({"max_new_tokens": 0}, "max_new_tokens must be an integer >= 1, got 0"),
    ({"max_new_tokens": None}, "max_new_tokens must be an integer >= 1, got None"),
    ({"max_new_tokens": True}, "max_new_tokens must be an integer >= 1, got True"),
    ({"max_new_tokens": 2.0}, "max_new_tokens must be an integer >= 1, got 2.0"),
    ({"stop": None}, "stop is a list of texts that are not empty, got None"),
    ({"stop": "x"}, "stop is a list of texts that are not empty, got 'x'"),
    ({"stop": [""]}, "stop is a list of texts that are not empty, got ['']"),
    ({"temperature": None}, "temperature "),
    ({"temperature": -0.5}, "temperature "),
    ({"temperature": 1.0, "top_k": 0}, "top_k "),
    ({"temperature": 1.0, "top_p": 0}, "top_p "),
    ({"temperature": 0.0, "top_k": 1}, "top_k and top_p "),
    ({"temperature": 0.0, "top_p": 0.5}, "top_k and top_p "),
]


@needs_tokenizers
@needs_jinja
@pytest.mark.parametrize(("options", "said"), WRONG)
def test_a_wrong_option_is_refused_before_a_piece_is_asked_for(options, said, tmp_path):
    model = model_of(tmp_path)
    conversation = model.chat(HELLO, max_new_tokens=2)
    conversation.options |= options
    for call in (
        lambda: model.generate_text("a", **options),
        lambda: model.chat(HELLO, **options),
        lambda: conversation.ask("Why?"),
        lambda: iter(conversation),
    ):
        with pytest.raises((TypeError, ValueError)) as caught:
            call()
        assert str(caught.value).startswith(said)
    assert conversation.messages == HELLO
    assert conversation.dropped == 0


# Messages of the caller


@needs_tokenizers
@needs_jinja
@pytest.mark.parametrize("kind", [list, tuple, iter])
def test_messages_of_the_caller_stay_as_they_are(kind, tmp_path):
    model, given = model_of(tmp_path), [*HELLO, {"role": "assistant", "content": "x"}]
    kept = copy.deepcopy(given)
    messages = kind(given)
    conversation = model.chat(messages, max_new_tokens=2)
    assert conversation.messages == kept
    answers = ["".join(conversation), "".join(conversation.ask("Why?"))]
    assert given == kept
    assert messages is not conversation.messages
    assert [m["content"] for m in conversation.messages[2:]] == [answers[0], "Why?", answers[1]]
    assert [m["role"] for m in conversation.messages[2:]] == ["assistant", "user", "assistant"]


@needs_tokenizers
@needs_jinja
def test_pieces_of_an_answer_are_those_of_its_text_and_come_one_by_one(tmp_path):
    model = model_of(tmp_path)
    right = list(model.generate_text(model.chat_prompt(HELLO), 12))
    reads = []
    model.word.register_forward_hook(lambda module, inputs, out: reads.append(out.shape[1]))
    conversation = model.chat(HELLO, max_new_tokens=12)
    answer, found, steps = iter(conversation), [], []
    assert reads == []
    for piece in answer:
        found.append(piece)
        steps.append(len(reads))
    assert found == right
    assert len(found) > 2
    assert steps[0] < steps[-1] == len(reads)
    assert conversation.messages == [*HELLO, {"role": "assistant", "content": "".join(right)}]


@needs_tokenizers
@needs_jinja
@pytest.mark.parametrize("messages", [[], [{"role": "system", "content": "Be short."}]])
def test_a_chat_without_a_question_may_be_answered(messages, tmp_path):
    model = model_of(tmp_path, "<{{ messages | map(attribute='content') | join }}>")
    conversation = model.chat(messages, max_new_tokens=3)
    text = "<Be short.>" if messages else "<>"
    assert conversation.newest(messages) == (0, model.tokenizer.encode(text).ids)
    assert "".join(conversation) == "".join(model.generate_text(text, 3))


@needs_tokenizers
@needs_jinja
def test_two_chats_with_the_same_messages_do_not_share_them(tmp_path):
    model = model_of(tmp_path)
    first, second = (model.chat(HELLO, max_new_tokens=2) for _ in range(2))
    "".join(first)
    assert len(first.messages) == 2
    assert second.messages == HELLO
    assert len(HELLO) == 1
    assert model.chat().messages == []
    assert model.chat().messages is not model.chat().messages


@needs_tokenizers
@needs_jinja
@pytest.mark.parametrize("pieces", [0, 1, 2])
def test_an_answer_that_is_stopped_stays_as_far_as_it_came(pieces, tmp_path):
    conversation = model_of(tmp_path).chat(max_new_tokens=30)
    answer = conversation.ask("Why?")
    came = [next(answer) for _ in range(pieces)]
    assert conversation.messages == [{"role": "user", "content": "Why?"}]
    answer.close()
    said = [{"role": "assistant", "content": "".join(came)}] if pieces else []
    assert conversation.messages == [{"role": "user", "content": "Why?"}, *said]


@needs_tokenizers
@needs_jinja
@pytest.mark.parametrize("end", ["an id", "a text"])
def test_an_empty_answer_is_a_message_too(end, tmp_path):
    """Else the next question would follow a question."""
    model = model_of(tmp_path)
    conversation = model.chat(HELLO, max_new_tokens=8)
    first = "".join(conversation)
    options = {"stop": [first[:1]]} if end == "a text" else {}
    if end == "an id":
        model.config["eos_token_id"] = list(range(model.config["vocab_size"]))
    conversation = model.chat(HELLO, max_new_tokens=8, **options)
    said = [*HELLO, {"role": "assistant", "content": ""}]
    assert list(conversation) == []
    assert conversation.messages == said
    conversation.options = {"max_new_tokens": 8, "stop": []}
    answer = "".join(conversation.ask("Why?"))
    said += [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": answer}]
    assert conversation.messages == said


def test_messages_are_checked_in_a_list_of_their_own():
    for kind in (list, tuple, iter):
        found = checked_messages(kind(HELLO))
        assert found == HELLO
        assert found is not HELLO
        assert found[0] is HELLO[0]
    for role in ROLES:
        assert checked_messages([{"role": role, "content": ""}])
    assert checked_messages([]) == []


@needs_tokenizers
@needs_jinja
def test_an_answer_has_256_ids_at_most_if_nothing_is_said(tmp_path):
    model = model_of(tmp_path)
    conversation = model.chat(temperature=1.0)
    assert conversation.options == {"max_new_tokens": 256, "temperature": 1.0}
    default = inspect.signature(model.generate_text).parameters["max_new_tokens"].default
    assert conversation.options["max_new_tokens"] == default
    assert model.chat(max_new_tokens=3).options == {"max_new_tokens": 3}


@needs_tokenizers
@needs_jinja
@pytest.mark.parametrize("text", ["", " Why? ", "\nWhy?\n\n", "\t"])
def test_texts_of_a_chat_keep_the_spaces_around_them(text, tmp_path, monkeypatch):
    model = model_of(tmp_path, BARE)
    monkeypatch.setattr(model, "continued", lambda *ids, **options: iter([text, text]))
    conversation = model.chat(HELLO)
    assert list(conversation.ask(text)) == [text, text]
    asked = {"role": "user", "content": text}
    assert conversation.messages == [*HELLO, asked, {"role": "assistant", "content": text * 2}]


@needs_tokenizers
@needs_jinja
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_template_is_asked_at_once_if_one_message_is_not_of_the_system(place, tmp_path):
    model = model_of(tmp_path, "{{ raise_exception('never') }}")
    rules = {"role": "system", "content": "Be short."}
    assert model.chat([rules] * 3).messages == [rules] * 3
    with pytest.raises(ValueError, match=r"the messages: never$"):
        model.chat([*[rules] * place, *HELLO, *[rules] * (2 - place)])
    model.chat_template = None
    for messages in ([], [rules], HELLO):
        with pytest.raises(ValueError, match="this model has no template of a chat"):
            model.chat(messages)


@needs_tokenizers
@needs_jinja
@pytest.mark.parametrize("dropped", [0, 1, 2, 3, 4])
def test_a_chat_with_fewer_messages_than_were_left_out_begins_anew(dropped, tmp_path):
    conversation = model_of(tmp_path, BARE).chat(max_new_tokens=4)
    conversation.dropped = dropped
    for system in ([], [{"role": "system", "content": "s"}]):
        found, ids = conversation.newest([*system, *HELLO * 3])
        assert found == (dropped if dropped < 3 else 0)
        assert len(ids) == len(system) + 5 * (3 - found)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(
    "wrong",
    [{"role": "me", "content": ""}, {"role": "user"}, {"role": "user", "content": 3}, ["role"]],
    ids=str,
)
def test_each_message_is_looked_at(place, wrong):
    messages = [*HELLO * place, wrong, *HELLO * (2 - place)]
    with pytest.raises(ValueError, match=r"^(a role|a message|the content of a message) "):
        checked_messages(messages)


def test_a_long_message_is_not_shown_whole():
    wrong = {"content": "long " * 100}
    with pytest.raises(ValueError, match="a message is") as caught:
        checked_messages([wrong])
    said = f'a message is {{"role": ..., "content": ...}}, got {str(wrong)[:60]}'
    assert str(caught.value) == said


@needs_tokenizers
@needs_jinja
def test_the_ids_of_a_chat_are_those_of_its_text_alone(tmp_path):
    """The template writes the first token itself, so the tokenizer adds none."""
    template, settings = "{{ bos_token }}" + BARE, {"tokenizer.ggml.bos_token_id": 1}
    settings["tokenizer.ggml.add_bos_token"] = True
    path = write_llama(tmp_path / "m.gguf", template=template, **settings)
    model = CausalLM.from_gguf(path)
    assert model.tokenizer.encode("Hello").ids[0] == 1
    _, ids = model.chat(max_new_tokens=4).newest(HELLO)
    assert len(ids) == 6
    assert ids.count(1) == 1
    assert model.tokenizer.decode(ids, skip_special_tokens=False) == "<|im_start|>Hello"


# Templates

IF = "{% if messages %}b{% endif %}"
BLOCKS = [
    ("", ""),
    ("a", "a"),
    ("a" + IF, "ab"),
    (IF + "a", "ba"),
    ("{% set x = 'c' %}{{ x }}" + IF + "{{ x }}", "cbc"),
    ("{% for m in messages %}{{ m.content }}{% endfor %}|{{ messages | length }}", "Hello|1"),
    ("{% generation %}c{% endgeneration %}d{{ 1 + 1 }}", "cd2"),
    ("{# a note #}a{% raw %}{{ b }}{% endraw %}", "a{{ b }}"),
]


@needs_jinja
@pytest.mark.parametrize(("inner", "right"), BLOCKS)
def test_a_block_of_generation_is_the_text_that_it_holds(inner, right):
    block = "{% generation %}" + inner + "{% endgeneration %}"
    assert chat_prompt(f"<{block}>", HELLO) == f"<{right}>"
    assert chat_prompt(f"<{block}{block}>", HELLO) == f"<{right}{right}>"
    with_marks = "{%- generation -%} " + inner + " {%- endgeneration -%}"
    assert chat_prompt(f"< {with_marks} >", HELLO) == f"<{right}>"
    each = "{% for m in messages * 2 %}" + block + ";{% endfor %}"
    assert chat_prompt(each, HELLO) == f"{right};{right};"


@needs_jinja
def test_loops_of_templates_may_end_early():
    loop = (
        "{{% for i in range(4) %}}{{% if i == 2 %}}{{% {} %}}{{% endif %}}{{{{ i }}}}{{% endfor %}}"
    )
    assert chat_prompt(loop.format("break"), HELLO) == "01"
    assert chat_prompt(loop.format("continue"), HELLO) == "013"


@needs_jinja
@pytest.mark.parametrize(
    ("template", "right"),
    [
        ("{{ add_generation_prompt }}", "True"),
        ("{{ tools is none }}{{ documents is none }}", "TrueTrue"),
        ("{{ messages | length }}{{ messages[0].role }}{{ messages[0]['content'] }}", "1userHello"),
        (
            '{{ {"é": ["<", "\'", 1.5, none, true]} | tojson }}',
            '{"é": ["<", "\'", 1.5, null, true]}',
        ),
        ("{{ [1] | tojson(indent=2) }}", "[\n  1\n]"),
        ("{{ eos_token is defined }}", "False"),
        ("a\n", "a"),
        ("  {% if true %}  \n a {% endif %}\nb", "  \n a b"),
    ],
)
def test_what_a_template_finds_is_what_transformers_gives(template, right):
    assert chat_prompt(template, HELLO) == right


@needs_jinja
@pytest.mark.parametrize("word", ["", " ", "<s>"])
def test_a_word_of_a_template_is_there_unless_it_is_none(word):
    template = "{{ bos_token is defined }}[{{ bos_token }}]{{ eos_token is defined }}"
    found = chat_prompt(template, HELLO, bos_token=word, eos_token=None)
    assert found == f"True[{word}]False"
    assert chat_prompt("", HELLO) == ""


FAILING = {
    "TypeError": "{{ 1 + 'a' }}",
    "ValueError": "{{ 'a'.index('b') }}",
    "KeyError": "{{ '{a}'.format() }}",
    "IndexError": "{{ '{}'.format() }}",
    "LookupError": "{{ 'a'.encode('none') }}",
    "AttributeError": "{{ 3 | dictsort }}",
    "ZeroDivisionError": "{{ 1 // 0 }}",
    "OverflowError": "{{ 2.0 ** 5000 }}",
    "RecursionError": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "UndefinedError": "{{ messages[5].content }}",
    "SecurityError": "{{ messages.append(1) }}",
    "TemplateSyntaxError": "{% if %}",
    "TemplateAssertionError": "{{ 1 | none_of_these }}",
    "TemplateNotFound": "{% include 'other' %}",
    "raise_exception": "{{ raise_exception('no') }}",
}


@needs_jinja
@pytest.mark.parametrize("kind", FAILING)
def test_every_error_of_a_template_is_a_refusal_of_the_messages(kind):
    with pytest.raises(ValueError, match=r"^the chat template of the model refused .*: .") as error:
        chat_prompt(FAILING[kind], HELLO)
    assert type(error.value) is ValueError


def test_the_package_of_templates_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError) as caught:
        chat_prompt("a", HELLO)
    hint = 'in a clone of tinyattn, pip install -e ".[text]"'
    assert str(caught.value) == f"a chat needs the package jinja2: {hint}"


# What a long chat leaves out


def left_out(messages, before, room):
    """How many are left out; None where the last message alone is too long.

    A system message stays. What is left begins with a message of the user, but for what was left
    out before, and the last message alone is tried whatever it is.
    """
    first = sum(len(m["content"]) for m in messages[:1] if m["role"] == "system")
    rest = [m for i, m in enumerate(messages) if i or m["role"] != "system"]
    before = before if before < len(rest) else 0
    for n in range(before, len(rest)):
        size = first + sum(len(m["content"]) for m in rest[n:])
        if n == before or (rest[n]["role"] == "user" and n == len(rest) - 1):
            fits = size <= room
        else:
            fits = rest[n]["role"] == "user" and 4 * size <= 3 * room
        if fits:
            return n
    return None


@needs_tokenizers
@needs_jinja
@pytest.mark.parametrize("system", [0, 5])
def test_a_long_chat_goes_on_at_a_message_of_the_user(system, tmp_path):
    """Messages of all roles and lengths; what was left out before is left out again."""
    rng, found = rng_of(0), set()
    conversation = model_of(tmp_path, BARE, 64).chat(max_new_tokens=4)
    for _ in range(20):
        messages = [{"role": "system", "content": "s" * system}] * (system > 0)
        for _ in range(rng.randint(1, 9)):
            role = ("user", "assistant", "tool", "system")[rng.choice(4, p=[0.4, 0.25, 0.25, 0.1])]
            messages.append({"role": role, "content": "m" * int(rng.randint(1, 30))})
        messages.append({"role": "user", "content": "q" * int(rng.randint(1, 70))})
        conversation.dropped = int(rng.choice([0, 0, 1, 2, 20]))
        right = left_out(messages, conversation.dropped, 60)
        if right is None:
            with pytest.raises(ShapeError, match=r"the last message has .* 4 are for the answer"):
                conversation.newest(messages)
            continue
        dropped, ids = conversation.newest(messages)
        assert dropped == right
        rest = messages[1:] if messages[0]["role"] == "system" else messages
        first = messages[:1] if messages[0]["role"] == "system" else []
        text = conversation.model.chat_prompt([*first, *rest[dropped:]])
        assert conversation.model.tokenizer.decode(ids) == text
        found.add(rest[dropped]["role"] if dropped > conversation.dropped else "as before")
    assert found == {"user", "as before"}


@needs_tokenizers
@needs_jinja
@pytest.mark.parametrize("role", [role for role in ROLES if role != "user"])
def test_no_message_of_another_role_comes_first_after_a_cut(role, tmp_path):
    conversation = model_of(tmp_path, BARE, 64).chat(max_new_tokens=4)
    roles = ["user", "assistant", role, role, "user", "assistant"]
    messages = [{"role": r, "content": "m" * 12} for r in roles]
    messages.append({"role": "user", "content": "q"})
    assert conversation.newest(messages)[0] == 4


@needs_tokenizers
@needs_jinja
@pytest.mark.parametrize(("tokens", "room"), [(1, 63), (4, 60), (31, 33), (32, 32), (33, 32)])
def test_an_answer_has_half_of_the_positions_at_most(tokens, room, tmp_path):
    conversation = model_of(tmp_path, BARE, 64).chat(max_new_tokens=tokens)
    for size in (room - 1, room):
        messages = [{"role": "user", "content": "m" * size}]
        assert conversation.newest(messages) == (0, conversation.newest(messages)[1])
        assert len(conversation.newest(messages)[1]) == size
    with pytest.raises(ShapeError) as caught:
        conversation.newest([{"role": "user", "content": "m" * (room + 1)}])
    assert str(caught.value) == (
        f"the last message has {room + 1} ids with the words of the template, and the model has "
        f"64 positions, of which {64 - room} are for the answer"
    )
