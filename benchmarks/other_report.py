"""What was measured of the other libraries: a table, and what it takes to run them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .harness import Row
from .other_rows import OTHERS
from .report import CROWD, amount, installed

COLUMNS = ("tinyattn", "torch", *OTHERS)
DISTRIBUTIONS = {"torch.compile": "torch"}
REMARKS = {
    "DeZero": "imports only with np.int put back, which NumPy 1.24 removed",
    "tinygrad": "needs clang (on the path, or its path in CC); TinyJit, results read back",
}


def cell(row: Row, side: str) -> str:
    """The median, and how many times tinyattn's it is."""
    ratio = row.ratio(side, "tinyattn")
    text = amount(row.median(side), row.unit)
    return f"{text} {f'x{ratio[0]:.2f}':>7}" if ratio and side != "tinyattn" else text


def versions() -> dict[str, str]:
    return {side: installed(DISTRIBUTIONS.get(side, side.lower())) for side in OTHERS}


def table(rows: Sequence[Row], versions: Mapping[str, str], threads: int) -> str:
    """Beside each time, how many times tinyattn's it is."""
    lines = []
    section = ""
    for row in rows:
        if row.section != section:
            section = row.section
            heads = "".join(f"{'PyTorch' if c == 'torch' else c:>18}" for c in COLUMNS)
            lines.append(f"\n{section}; xN: N times tinyattn's\n{'':<24}{heads}")
        name = row.name.removeprefix("other ")
        cells = "".join(f"{cell(row, side):>18}" for side in COLUMNS)
        lines.append(f"{name:<24}{cells}{'  ~' * row.crowded(threads)}")
        lines += [f"    ! {error}" for error in row.errors]
    lines.append(f"\n{CROWD}\n" if any(row.crowded(threads) for row in rows) else "")
    for side, version in versions.items():
        first = max((row.first[side] for row in rows if side in row.first), default=0.0)
        parts = [f"{side} {version}"]
        if version == "not installed":
            lines.append(": ".join([*parts, "no figures"]))
            continue
        if side in REMARKS:
            parts.append(REMARKS[side])
        if first > 1:
            parts.append(f"the first repetition took up to {amount(first, 's')}")
        reasons: dict[str, list[str]] = {}
        for row in rows:
            if side in row.lacks:
                reasons.setdefault(row.lacks[side], []).append(row.name.removeprefix("other "))
        parts += [f"without {', '.join(names)}: {why}" for why, names in reasons.items()]
        lines.append("; ".join(parts))
    return "\n".join(lines)
