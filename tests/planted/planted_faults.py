"""The faults of `tests/planted/faults/*.txt`: the format is in the README.md there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "faults"
MARKS = {"@": "under", "-": "old", "+": "new", "#": "reason", "$": "first"}


@dataclass(frozen=True)
class Fault:
    file: str
    under: str
    old: str
    new: str
    reason: str
    first: str

    def __str__(self) -> str:
        return f"{self.file}, {self.under.strip().splitlines()[0]}: {self.reason}"

    def planted(self, root: Path) -> str:
        """The text of the file with the fault in it; ValueError if its place is not there."""
        text = (root / self.file).read_text(encoding="utf-8")
        if text.count(self.under) != 1:
            raise ValueError(f"{self}: {self.under!r} occurs {text.count(self.under)} times")
        start = text.index(self.under)
        end = text.find("\n\n\n", start + len(self.under))  # of the function or class
        scope = text[start : end if end >= 0 else len(text)]
        if scope.count(self.old) != 1:
            raise ValueError(f"{self}: {self.old!r} occurs {scope.count(self.old)} times")
        return text[:start] + scope.replace(self.old, self.new) + text[start + len(scope) :]


def entries(text: str) -> list[Fault]:
    found = []
    file = ""
    for block in text.split("\n\n"):
        if block.startswith("== "):
            file = block[3:].strip()
            continue
        parts: dict[str, list[str]] = {}
        for line in block.splitlines():
            if line[:1] in MARKS:
                parts.setdefault(MARKS[line[0]], []).append(line[2:])
        if parts:
            fields = {name: "\n".join(parts[name]) for name in MARKS.values()}
            found.append(Fault(file, **fields))
    return found


def all_faults() -> list[Fault]:
    return [
        fault
        for path in sorted(FOLDER.glob("*.txt"))
        for fault in entries(path.read_text(encoding="utf-8"))
    ]
