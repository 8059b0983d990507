"""Put the texts of the exercises into Chinese: `python docs/exercises/in_chinese.py`.

What you have written stays as it is. `git checkout docs/exercises` brings the English texts back,
and removes what you have written.
"""

import argparse
import sys
import textwrap

from grading import FOLDER, catalogue, missing_folder, print_in_any_encoding, say


def in_chinese(source: str) -> str:
    """The source of an exercise, with its texts in Chinese."""
    for pair in sorted(catalogue("texts").items(), key=lambda pair: -len(pair[0])):
        for margin in (0, 4, 8):
            source = source.replace(*(textwrap.indent(t, margin * " ").strip() for t in pair))
    return source


if __name__ == "__main__":
    print_in_any_encoding()
    argparse.ArgumentParser(description=__doc__).parse_args()
    if sentence := missing_folder():
        sys.exit(say(sentence))
    changed = 0
    for path in sorted(FOLDER.glob("ex_*.py")):
        english = path.read_text("utf-8")
        if (chinese := in_chinese(english)) != english:
            path.write_text(chinese, "utf-8")
            changed += 1
    print(f"{FOLDER} 中各个练习的说明现在是中文（改了 {changed} 个文件）")
