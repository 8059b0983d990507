"""Print the two commands of README.md, one a line: the block that follows "Two commands"."""

import re
from pathlib import Path

text = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
block = re.search(r"## Two commands.*?```(?:bash|console|sh)\n(.*?)```", text, re.DOTALL)
if block is None:
    raise SystemExit('README.md has no code block under "Two commands"')
print(*(line for line in block[1].splitlines() if line and not line.startswith("#")), sep="\n")
