"""What the programs of examples/ share: numbers of options, sentences, files and how they end."""

from __future__ import annotations

import argparse
import io
import re
import sys
import types
from pathlib import Path

import pytest
from test_causal import needs_tokenizers

pytestmark = needs_tokenizers


@pytest.fixture
def programs(example):
    return example("programs")


def test_a_number_beyond_its_interval_gets_a_sentence(programs):
    for function, text, said in (
        (programs.at_least_one, "0", "must be 1 or more and at most 1,000,000,000, got 0"),
        (programs.size, "1000001", "must be 1 or more and at most 1,000,000, got 1000001"),
        (programs.number_in(0.5, 2000), "-1e3", "must be 0.5 or more and at most 2,000, got -1e3"),
    ):
        with pytest.raises(argparse.ArgumentTypeError) as caught:
            function(text)
        assert str(caught.value) == said
    assert [x.__name__ for x in (programs.size, programs.number_in(0, 1))] == ["int", "float"]


def test_ctrl_c_while_a_program_imports_is_a_line(programs, noted, capsys):
    noted.put(sys, "__excepthook__")
    programs.say_stopped(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert capsys.readouterr() == ("", "\nstopped\n")
    error = ValueError("a")
    programs.say_stopped(ValueError, error, "traceback")
    assert noted.calls == [("__excepthook__", ValueError, error, "traceback")]
    assert capsys.readouterr() == ("", "")


def test_what_an_encoding_lacks_is_printed_as_an_escape(programs, monkeypatch):
    raw = {name: io.BytesIO() for name in ("stdout", "stderr")}
    for name, file in raw.items():
        monkeypatch.setattr(sys, name, io.TextIOWrapper(file, "cp1252"))
    monkeypatch.setattr(sys, "stdin", None)
    programs.in_any_encoding()
    for name, file in raw.items():
        print("é好", file=getattr(sys, name), flush=True)
        assert file.getvalue().split() == [b"\xe9\\u597d"]
    assert sys.stdin.read() == ""
    sys.stdin.close()
    for name in raw:
        monkeypatch.setattr(sys, name, None)
    programs.in_any_encoding()
    for name in raw:
        print("lost", file=getattr(sys, name))
        getattr(sys, name).close()


@pytest.mark.parametrize("error", [ValueError, TypeError, KeyError, IndexError, ZeroDivisionError])
def test_what_is_wrong_in_a_file_names_the_file(programs, error):
    said = (r"^a\.json is damaged, or does not fit the file beside it: train again with "
            rf"--overwrite \({error.__name__}: '?why'?\)$")  # fmt: skip
    with pytest.raises(ValueError, match=said) as caught, programs.reading(Path("a.json")):
        raise error("why")
    assert caught.value.__suppress_context__
    with pytest.raises(OSError, match="disk"), programs.reading(Path("a.json")):
        raise OSError("disk")


@pytest.mark.parametrize(("error", "name"), [
    (OSError(28, "full"), "a.png"), (OSError(28, "full", "b.png"), "b.png"), (OSError("x"), None),
], ids=["full", "another file", "its own text"])  # fmt: skip
def test_what_cannot_be_written_names_the_file(programs, error, name):
    def save(path, **options):
        assert (path, options) == (Path("a.png"), {"dpi": 120, "bbox_inches": "tight"})
        raise error

    figure = types.SimpleNamespace(savefig=save)
    with pytest.raises(OSError) as caught:  # noqa: PT011
        programs.save_picture(figure, Path("a.png"), bbox_inches="tight")
    assert caught.value is error
    assert error.filename == name


def test_a_picture_may_have_more_points(programs):
    found = []
    figure = types.SimpleNamespace(savefig=lambda path, **options: found.append((path, options)))
    programs.save_picture(figure, Path("a.png"), dpi=200)
    assert found == [(Path("a.png"), {"dpi": 200})]


@pytest.mark.parametrize("extras", [None, "examples,text"])
def test_a_package_that_is_missing_is_named_with_its_command(programs, noted, extras):
    given = [] if extras is None else [extras]
    with pytest.raises(SystemExit) as caught, programs.needs("some", *given):
        raise ModuleNotFoundError
    assert caught.value.code == f'some is missing: pip install -e ".[{extras or "examples"}]"'
    noted.put(programs, "import_module")
    programs.need_pictures()
    assert noted.calls == [("import_module", "matplotlib")]


def test_files_that_would_be_lost_are_refused(programs, tmp_path):
    path = tmp_path / "own"
    programs.refuse_lost(path, False, "a model")
    programs.refuse_others(path, ["a", "b"])
    (tmp_path / "b").touch()
    said = f"{tmp_path} has files of another program, such as b: name another --out"
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        programs.refuse_others(path, ["a", "b"])
    programs.refuse_others(path, ["a"])
    path.touch()
    programs.refuse_others(path, ["a", "b"])
    programs.refuse_lost(path, True, "a model")
    said = f"{tmp_path} has a model: --overwrite replaces it, or name another --out"
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        programs.refuse_lost(path, False, "a model")


def test_a_folder_without_room_is_refused(programs, monkeypatch, tmp_path):
    sizes = []

    class File(io.BytesIO):
        def __init__(self, dir):
            assert dir == tmp_path / "a" / "b"
            assert dir.is_dir()
            super().__init__()

        def flush(self):
            sizes.append(self.getvalue())
            if len(self.getvalue()) > 9:
                raise OSError(28, "full")

    monkeypatch.setattr(programs.tempfile, "TemporaryFile", File)
    programs.make_folder(tmp_path / "a" / "b", 9)
    programs.make_folder(tmp_path / "a" / "b")
    assert sizes == [bytes(9), b""]
    with pytest.raises(OSError, match="full") as caught:
        programs.make_folder(tmp_path / "a" / "b", 10)
    assert caught.value.filename == str(tmp_path / "a" / "b")


@pytest.mark.parametrize(
    ("system", "line"), [("posix", "a.py 'b c' '$d'"), ("nt", 'a.py "b c" $d')]
)
def test_a_command_is_written_as_the_shell_takes_it(programs, monkeypatch, system, line):
    monkeypatch.setattr(programs, "os", types.SimpleNamespace(name=system))
    assert programs.command(["a.py", "b c", "$d"]) == line


@pytest.mark.parametrize(("error", "said"), [
    (KeyError("a"), "a"), (OSError(2, "none", "f"), "f: none"), (OSError(2, "none"), "none"),
    (OSError("own text"), "own text"), (MemoryError(), "too large for the memory"),
    (MemoryError("7 TB"), "too large for the memory: 7 TB"), (ImportError("lost"), "lost"),
    (FloatingPointError("nan"), "nan"), (ValueError("'a'"), "'a'"),
], ids=str)  # fmt: skip
def test_what_cannot_be_done_is_one_line_of_the_program(programs, monkeypatch, capsys, error, said):
    def main():
        raise error

    monkeypatch.setattr(sys, "argv", ["folder/a.py"])
    noted = []
    monkeypatch.setattr(programs, "in_any_encoding", lambda: noted.append(1))
    with pytest.raises(SystemExit, match="2"):
        programs.run(main)
    assert capsys.readouterr() == ("", f"a.py: {said}\n")
    assert noted == [1]
