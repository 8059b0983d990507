"""What an editor shows at `F.softmax(`, `x.softmax(` and `ta.softmax(`: signature and docstring.

basedpyright's language server is asked, as an editor asks it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import tinyattn as ta
from tinyattn import functional as F
x = ta.ones(2, 3)
F.softmax(x)
x.softmax(0)
ta.softmax(x)
x.sum(0)
x.exp()
ta.exp(x)
x.max(0)
F.layer_norm(x, 3)
""".lstrip()
EXPECTED = {
    "F.softmax(": ("x: Tensor, dim: int = -1", "sum_j exp(x_j)"),
    "x.softmax(": ("dim: int = -1", "sum_j exp(x_j)"),
    "ta.softmax(": ("x: Tensor, dim: int = -1", "sum_j exp(x_j)"),
    "x.sum(": ("dim: ", "Sum over one dimension"),
    "x.exp(": ("() -> Tensor", "e to the power"),
    "ta.exp(": ("(x: Tensor) -> Tensor", "e to the power"),
    "x.max(": ("dim: int", "largest element"),
    "F.layer_norm(": ("normalized_shape: ", "Layer Normalization"),
}


class Server:
    """basedpyright's language server; messages go through its input and output."""

    def __init__(self, folder: Path) -> None:
        pytest.importorskip("basedpyright", reason='needs basedpyright: pip install -e ".[dev]"')
        code = "from basedpyright.langserver import main; main()"
        command = [sys.executable, "-c", code, "--stdio"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder
        )
        self.number = 0
        plain = {"documentationFormat": ["plaintext"]}
        self.ask(
            "initialize",
            processId=None,
            rootUri=folder.as_uri(),
            workspaceFolders=[{"uri": folder.as_uri(), "name": "program"}],
            capabilities={"textDocument": {"signatureHelp": {"signatureInformation": plain}}},
        )
        self.send(method="initialized", params={})

    def send(self, **message: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        length = 0
        while line := self.process.stdout.readline().strip():
            if line.lower().startswith(b"content-length"):
                length = int(line.split(b":")[1])
        return json.loads(self.process.stdout.read(length))

    def ask(self, method: str, **params: Any) -> Any:
        self.number += 1
        self.send(id=self.number, method=method, params=params)
        while True:
            message = self.receive()
            if "method" not in message and message.get("id") == self.number:
                return message.get("result")
            if "method" in message and "id" in message:  # the server asks for settings
                settings = [{}] if message["method"] == "workspace/configuration" else None
                self.send(id=message["id"], result=settings)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("editor")
    settings = {"extraPaths": [str(ROOT)], "include": ["program.py"]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
    started = Server(folder)
    document = {"uri": (folder / "program.py").as_uri(), "languageId": "python", "version": 1}
    started.send(
        method="textDocument/didOpen", params={"textDocument": {**document, "text": PROGRAM}}
    )
    started.uri = document["uri"]  # type: ignore[attr-defined]
    yield started
    started.close()


@pytest.mark.parametrize("call", EXPECTED)
def test_an_editor_shows_signature_and_docstring(call: str, server: Any) -> None:
    line = next(i for i, text in enumerate(PROGRAM.splitlines()) if text.startswith(call))
    position = {"line": line, "character": len(call)}
    shown = server.ask(
        "textDocument/signatureHelp", textDocument={"uri": server.uri}, position=position
    )
    texts = [
        signature["label"] + "\n" + str(signature.get("documentation"))
        for signature in shown["signatures"]
    ]
    arguments, words = EXPECTED[call]
    assert any(arguments in text and words in text for text in texts), texts
