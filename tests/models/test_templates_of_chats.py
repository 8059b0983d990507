"""Templates of chats in a folder, and the special words that they may write."""

from __future__ import annotations

import re

import pytest
from test_causal import needs_jinja
from test_chats import HELLO, model_of

from tinyattn.errors import CheckpointError
from tinyattn.models.causal_files import chat_settings
from tinyattn.models.tokenizer_files import SPECIAL

WORDS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
ONE, TWO = ({"name": name, "template": f"of {name}"} for name in ("default", "tool"))
TEMPLATES = [
    (None, None),
    ("", ""),
    ("a", "a"),
    ([], None),
    ([ONE], "of default"),
    ([TWO], None),
    ([ONE, TWO], "of default"),
    ([TWO, ONE], "of default"),
    ([{"template": "a"}], None),
    ([{"name": "default"}], None),
]


@pytest.mark.parametrize(("said", "right"), TEMPLATES)
def test_the_template_of_a_folder_is_that_of_its_file_and_then_the_default(said, right, tmp_path):
    settings = {"chat_template": said, "bos_token": "b", "strange": 3}
    assert chat_settings(tmp_path, settings) == (right, {"bos_token": "b"})
    for text in ("of a file", ""):
        (tmp_path / "chat_template.jinja").write_text(text)
        assert chat_settings(tmp_path, settings) == (text, {"bos_token": "b"})
    assert settings == {"chat_template": said, "bos_token": "b", "strange": 3}


@pytest.mark.parametrize("name", WORDS)
def test_a_special_word_is_a_text_or_a_token_with_one(name, tmp_path):
    for said, right in (("a", "a"), ("", ""), ({"content": "a", "lstrip": True}, "a")):
        assert chat_settings(tmp_path, {name: said}) == (None, {name: right})
        others = {other: f"<{other}>" for other in WORDS if other != name}
        assert chat_settings(tmp_path, {name: said} | others) == (None, {name: right} | others)
    for said in (None, {}, {"content": None}):
        assert chat_settings(tmp_path, {name: said}) == (None, {})


@pytest.mark.parametrize("name", [*WORDS, "chat_template"])
@pytest.mark.parametrize("wrong", [0, 3, False, True, 0.5])
def test_a_special_word_or_a_template_that_is_no_text_is_named_with_its_file(name, wrong, tmp_path):
    said = f"{tmp_path / 'tokenizer_config.json'}: {name} must be a string, got {wrong}"
    with pytest.raises(CheckpointError, match=f"^{re.escape(said)}$"):
        chat_settings(tmp_path, {name: wrong})


@pytest.mark.parametrize("wrong", [3, "a", None, ["default"]], ids=str)
def test_one_of_several_templates_that_is_no_object_is_refused(wrong, tmp_path):
    for templates in ([wrong], [ONE, wrong], [wrong, ONE, TWO]):
        said = f"{tmp_path / 'tokenizer_config.json'}: a template must be an object, got {wrong!r}"
        with pytest.raises(CheckpointError, match=f"^{re.escape(said)}$"):
            chat_settings(tmp_path, {"chat_template": templates})


@needs_jinja
def test_a_template_may_write_every_special_word(tmp_path):
    names = ("bos_token", "eos_token", *SPECIAL)
    words = {name: f"<{name}>" for name in names}
    model = model_of(tmp_path, "".join(f"{{{{ {name} }}}}" for name in names))
    model.special_words = words
    assert model.chat_prompt(HELLO) == "".join(words.values())
    for name in names:  # a word that a model does not have is written as nothing
        model.special_words = words | {name: None}
        assert model.chat_prompt(HELLO) == "".join(x for n, x in words.items() if n != name)
