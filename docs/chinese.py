"""The source of a page in Chinese: its words are those of its catalogue, the rest is unchanged."""

from __future__ import annotations

import re
from pathlib import Path

from babel.messages.pofile import read_po
from markdown_it.renderer import RendererHTML
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.mdit import create_md_parser

DOCS = Path(__file__).parent
CATALOGUES = DOCS / "locale" / "zh_CN" / "LC_MESSAGES"
SETTINGS = MdParserConfig(enable_extensions={"dollarmath", "amsmath"})


def messages_of(page: Path) -> dict[str, str]:
    """The Chinese words of a page, by the English ones; none of a page without a catalogue, which
    stands in UNTRANSLATED and is then English in Chinese too."""
    path = CATALOGUES / page.relative_to(DOCS).with_suffix(".po")
    if not path.is_file():
        return {}
    with path.open("rb") as file:
        return {message.id: message.string for message in read_po(file) if message.id}


def in_chinese(text: str, messages: dict[str, str]) -> str:
    """A text in MyST's Markdown, of which each block that is a message is translated.

    A paragraph becomes one line, because Chinese has no spaces at which a line may end.
    """
    for pattern in (
        r"(?<=<summary>).*?(?=</summary>)",
        r"(?<=!\[)[^\]]+(?=\]\()",
    ):  # parts of blocks
        text = re.sub(
            pattern, lambda x: messages.get(" ".join(x[0].split()), x[0]), text, flags=re.DOTALL
        )
    lines = text.split("\n")
    column, row = 0, -1
    for block in create_md_parser(SETTINGS, RendererHTML).parse(text):
        if block.type != "inline" or not block.content:
            continue
        first = block.map[0]
        column, row = (column if first == row else 0), first  # the cells of a table share a line
        english = block.content.split("\n")
        start = lines[first].index(english[0], column)
        chinese = messages.get(" ".join(block.content.split()))
        if chinese is None:
            column = start + len(english[0])
            continue
        rest = lines[first][start + len(english[0]) :] if len(english) == 1 else ""
        lines[first] = lines[first][:start] + chinese + rest
        column = start + len(chinese)
        lines[first + 1 : first + len(english)] = [None] * (len(english) - 1)
    return "\n".join(line for line in lines if line is not None)
