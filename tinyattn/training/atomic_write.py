"""Writing a file whole or not at all: it gets its name when it is complete."""

import contextlib
import os
import secrets
import stat
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

DAY = 24 * 60 * 60  # seconds


def write_atomically(path: str | os.PathLike[str], parts: Iterable[Any]) -> None:
    """Write a file that consists of `parts`, which are bytes or arrays.

    The new file has the mode and the owner of the old one. If `path` is a symbolic link, its target
    is written. Raises OSError if that cannot be done; then the old file is as it was.
    """
    target, old = target_of(path)
    file = new_file(target.parent, 0o666 if old is None else stat.S_IMODE(old.st_mode))
    try:
        with file:
            if old is not None:
                keep_owner_and_mode(file, target, old)
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(file.name, target)  # closed, because Windows renames no open file
    except BaseException as error:
        Path(file.name).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno:  # that of a full disk names no file
            error.filename = error.filename or os.fspath(path)
        raise


def target_of(path: str | os.PathLike[str]) -> tuple[Path, os.stat_result | None]:
    """(file to write, status of the old file or None), if the old file may be replaced."""
    target = Path(os.path.realpath(path))  # a link stays, and what it leads to is written
    if os.path.islink(path) and target.parent.name == "blobs":
        raise FileExistsError(f"{path} links into a cache of huggingface_hub: take another folder")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {target.parent} to save {target.name} in")
    try:
        old = os.stat(target)
    except FileNotFoundError:
        return target, None
    if not stat.S_ISREG(old.st_mode):
        raise OSError(f"save takes the name of a file, got {os.fspath(path)!r}, which is no file")
    if not old.st_mode & 0o222 or not os.access(target, os.W_OK):  # root may write any
        raise PermissionError(f"{target} is read-only: make it writable, or choose another name")
    return target, old


def new_file(folder: Path, mode: int) -> BinaryIO:
    """A new file in `folder`. What killed processes left there is removed after a day, because
    until then another process may be writing it."""
    for leftover in folder.glob(".tinyattn-" + 16 * "[0-9a-f]"):
        with contextlib.suppress(OSError):
            if leftover.stat().st_mtime < time.time() - DAY:
                leftover.unlink()
    name = folder / f".tinyattn-{secrets.token_hex(8)}"
    return open(name, "xb", opener=lambda name, flags: os.open(name, flags, mode))


def keep_owner_and_mode(file: BinaryIO, target: Path, old: os.stat_result) -> None:
    """Give the new file the owner, group and mode of the old one."""
    new = os.fstat(file.fileno())
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.chown(file.name, old.st_uid, old.st_gid)
        except PermissionError:
            raise PermissionError(
                f"{target} is of another user or group, a new one would not be: take another name"
            ) from None
    os.chmod(file.name, stat.S_IMODE(old.st_mode))
