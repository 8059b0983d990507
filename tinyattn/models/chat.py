"""Chats: the template that makes one text of messages, and a conversation that keeps its cache."""

import json
from collections.abc import Generator, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from ..base.checks import check_choice, check_size, listed, optional_package
from ..errors import ShapeError
from ..generation import check_drawing
from .tokenizer_files import checked_text

ROLES = ("system", "user", "assistant", "tool")
Message = dict[str, str]
Pieces = Generator[str, None, None]


def checked_messages(messages: Iterable[Message]) -> list[Message]:
    """Messages {"role": ..., "content": ...} of texts; ValueError for others."""
    checked = listed("a chat", messages)
    for message in checked:
        if not isinstance(message, dict) or not {"role", "content"} <= set(message):
            raise ValueError(f'a message is {{"role": ..., "content": ...}}, got {message!r:.60}')
        check_choice("a role", message["role"], *ROLES)
        checked_text("the content of a message", message["content"])
    return checked


def check_options(
    max_new_tokens: int,
    stop: Sequence[str] = (),
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    **others: Any,
) -> None:
    """TypeError, ValueError or ShapeError for options of a text that make no sense."""
    if others:
        known = "chat and generate_text take max_new_tokens, stop, temperature, top_k and top_p"
        raise TypeError(f"{known}, got an unexpected keyword argument {min(others)!r}")
    check_size("max_new_tokens", max_new_tokens)
    if not isinstance(stop, (list, tuple, set)) or not all(isinstance(x, str) and x for x in stop):
        raise TypeError(f"stop is a list of texts that are not empty, got {stop!r:.60}")
    check_drawing(temperature, top_k, top_p)


def chat_prompt(template: str | None, messages: Iterable[Message], **words: str | None) -> str:
    """The text of a chat, up to where the answer begins: what the template of the model says.

    template: a program of jinja2, which runs in its sandbox, because it comes from a file of
        others. words: bos_token and eos_token.
    """
    if template is None:
        raise ValueError(
            "this model has no template of a chat: write the text of the chat yourself, and give "
            "it to generate_text"
        )
    optional_package("jinja2", "a chat needs the package jinja2", "text")
    from jinja2 import TemplateError
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """{% generation %} marks what a model answers, for training; the text is the same."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def refuse(text: str) -> None:
        raise TemplateError(text)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
    )
    environment.filters["tojson"] = partial(json.dumps, ensure_ascii=False)
    # Templates of transformers may ask whether tools and documents are none.
    environment.globals.update(raise_exception=refuse, tools=None, documents=None)
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    given: dict[str, Any] = {name: word for name, word in words.items() if word is not None}
    given |= {"messages": checked_messages(messages), "add_generation_prompt": True}
    try:
        return environment.from_string(template).render(**given)
    except Exception as error:  # the template is a program, which may raise any
        raise ValueError(f"the chat template of the model refused the messages: {error}") from None


class Conversation:
    """A chat with a model. It keeps what the model has read, so a turn reads only what is new.

        for piece in conversation.ask("What is the capital of France?"):
            print(piece, end="", flush=True)

    model: a CausalLM with a tokenizer and a chat_template. messages: those up to now. options: see
    `CausalLM.generate_text`.

    messages: an attribute, with the answers too; of an answer that was stopped, what came.
    dropped: how many of the oldest messages the last turn left out, because the conversation has
    more ids than the model has positions. A system message stays.
    """

    def __init__(self, model: Any, messages: Iterable[Message] = (), **options: Any) -> None:
        self.model, self.options, self.dropped = model, {"max_new_tokens": 256} | options, 0
        check_options(**self.options)
        self.messages = checked_messages(messages)
        self.scores = model.next_scores()
        # An error now, if the template refuses them; it may refuse what is no question yet.
        if model.chat_template is None or any(m["role"] != "system" for m in self.messages):
            model.chat_prompt(self.messages)

    def ask(self, question: str) -> Pieces:
        """The answer to a message of the user, in pieces that come as soon as they are complete.

        If it is refused, the conversation is as before.
        """
        return self.answer_to([*self.messages, {"role": "user", "content": question}])

    def __iter__(self) -> Pieces:
        """The answer to the messages up to now."""
        return self.answer_to(self.messages)

    def answer_to(self, messages: list[Message]) -> Pieces:
        dropped, ids = self.newest(checked_messages(messages))
        pieces = self.model.continued(ids, self.scores, **self.options)
        self.messages, self.dropped = messages, dropped
        return self.answer(pieces)

    def answer(self, pieces: Iterator[str]) -> Pieces:
        text = ""
        try:
            for piece in pieces:
                text += piece
                yield piece
        finally:  # also if nobody wants the rest
            self.messages.append({"role": "assistant", "content": text})

    def newest(self, messages: list[Message]) -> tuple[int, list[int]]:
        """How many of the oldest messages are left out, and the ids of the text of the others.

        If they are too many, a quarter of the room becomes free at once, because what is left is
        read anew then.
        """
        positions = self.model.config["max_position_embeddings"]
        most = check_size("max_new_tokens", self.options["max_new_tokens"])
        room = min(most, positions // 2)  # for the answer
        first = [m for m in messages[:1] if m["role"] == "system"]
        rest = messages[len(first) :]
        before = self.dropped if self.dropped < len(rest) else 0
        for dropped in range(before, max(len(rest), 1)):
            if dropped == before or rest[dropped]["role"] == "user":
                text = self.model.chat_prompt([*first, *rest[dropped:]])
                ids = self.model.tokenizer.encode(text, add_special_tokens=False).ids
                share = 1 if dropped in (before, len(rest) - 1) else 0.75
                if len(ids) <= share * (positions - room):
                    return dropped, ids
        raise ShapeError(
            f"the last message has {len(ids)} ids with the words of the template, and the model "
            f"has {positions} positions, of which {room} are for the answer"
        )
