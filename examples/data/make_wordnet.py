"""Make wordnet_kinds.txt.xz and WORDNET_LICENSE from the nouns of WordNet 3.0.

    python examples/data/make_wordnet.py data.noun

`data.noun` is in the Debian package wordnet-base 1:3.0-37, and in Princeton's WordNet-3.0.tar.gz.
"""

from __future__ import annotations

import argparse
import hashlib
from collections import Counter
from pathlib import Path

from make_cmudict import content_of, write

SOURCE_SHA256 = "fea17d2f9656611334eac790e5d69e47645fa180c4aa481fb4cd9b3520754ca2"
FOLDER = Path(__file__).parent
# The kind of a noun is the number in the second field of its line (lexnames(5WN)).
KINDS = {"04": "act", "05": "animal", "06": "artifact", "08": "body", "10": "communication",
         "11": "event", "12": "feeling", "13": "food", "15": "location", "18": "person",
         "20": "plant", "27": "substance"}  # fmt: skip
EACH = 400  # definitions of a kind


def entries(text: str) -> list[tuple[str, str, str]]:
    """(kind, word, definition) of each noun of the twelve kinds."""
    found = []
    for line in text.splitlines():
        if line.startswith("  "):  # the licence
            continue
        fields, _, gloss = line.partition(" | ")
        _, kind, _, _, word = fields.split()[:5]
        definition = gloss.partition('; "')[0].strip()  # what follows are examples of its use
        if kind in KINDS and definition:
            found.append((KINDS[kind], word.replace("_", " "), definition))
    return found


def drawn(found: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """EACH of every kind, in an order that is random and the same everywhere: that of the md5.

    Definitions that occur twice are left out, because one could be learned and the other tested.
    """
    count = Counter(definition for _, _, definition in found)
    rest = sorted(
        (entry for entry in found if count[entry[2]] == 1),
        key=lambda entry: hashlib.md5(entry[2].encode(), usedforsecurity=False).digest(),
    )
    of_kinds = [[entry for entry in rest if entry[0] == kind] for kind in KINDS.values()]
    return [entry for part in of_kinds for entry in part[:EACH]]


def main() -> None:
    parser = argparse.ArgumentParser(description="Make wordnet_kinds.txt.xz.")
    parser.add_argument("source", type=Path, help="data.noun of WordNet 3.0")
    args = parser.parse_args()
    source = content_of(args.source, SOURCE_SHA256, "the data.noun of WordNet 3.0")
    write(FOLDER / "wordnet_kinds.txt.xz", ["\t".join(entry) for entry in drawn(entries(source))])
    licence = [line[4:].strip() for line in source.splitlines() if line.startswith("  ")]
    (FOLDER / "WORDNET_LICENSE").write_text("\n".join(licence).strip() + "\n", "utf-8")


if __name__ == "__main__":
    main()
