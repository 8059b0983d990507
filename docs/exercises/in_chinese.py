"""Put the texts of the exercises into Chinese: `python docs/exercises/in_chinese.py`.

What you have written stays as it is.
"""

import sys
import textwrap

from grading import FOLDER, catalogue, missing_folder, say


def in_chinese(source: str) -> str:
    """The source of an exercise, with its texts in Chinese."""
    for pair in sorted(catalogue("texts").items(), key=lambda pair: -len(pair[0])):
        for margin in (0, 4, 8):
            source = source.replace(*(textwrap.indent(t, margin * " ").strip() for t in pair))
    return source


if __name__ == "__main__":
    if sentence := missing_folder():
        sys.exit(say(sentence))
    for path in sorted(FOLDER.glob("ex_*.py")):
        path.write_text(in_chinese(path.read_text("utf-8")), "utf-8")
    print(f"{FOLDER} 中各个练习的说明现在是中文")
