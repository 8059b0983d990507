"""Settings files of published models: JSON that is checked before anything is built from it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..base.checks import describe
from ..errors import CheckpointError
from ..training.atomic_write import write_atomically


def read_json(path: Path, kind: type = dict) -> Any:
    """The object or the list of a JSON file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from None
    except OSError as error:
        raise FileNotFoundError(f"{path} cannot be read: {error.strerror}") from None
    if not isinstance(value, kind):
        expected = "an object" if kind is dict else "a list"
        raise CheckpointError(f"{path} must hold {expected}, got {describe(value)}")
    return value


def is_there(path: Path) -> bool:
    """Whether there is such a file; CheckpointError for a link that leads nowhere."""
    if path.is_symlink() and not path.exists():
        raise CheckpointError(f"{path} is a link to a file that is not there")
    return path.exists()


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, [json.dumps(value, indent=2).encode()])


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """An error of a setting becomes a CheckpointError that names its file too."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: {error}") from None


def check_kind(name: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        names = {bool: "true or false", str: "a string", dict: "an object", list: "a list"}
        raise ValueError(f"{name} must be {names[kind]}, got {describe(value)}")
    return value


def check_known(settings: dict[str, Any], known: dict[str, tuple[Any, ...]]) -> None:
    """Every setting is known, and has one of its values; a setting of no values has any."""
    for name, value in settings.items():
        if name not in known:
            raise ValueError(f"the setting {name!r} is unknown here, with the value {value!r:.60}")
        if known[name] and not any(value == one and is_alike(value, one) for one in known[name]):
            allowed = " or ".join(repr(one) for one in known[name])
            raise ValueError(f"{name} must be {allowed} here, got {value!r:.60}")


def is_alike(value: Any, other: Any) -> bool:
    """Whether both are booleans or none is, because 1 == True."""
    return isinstance(value, bool) == isinstance(other, bool)
