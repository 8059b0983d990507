"""Build the pages in English and in Chinese, in docs/_build/html: python docs/build.py

Options are Sphinx's, such as -W. The English build runs the code of every page; the Chinese build
takes the outputs from it. They are kept for this one build only, because they depend on the library
and not only on the pages. If jieba is installed, the search of the Chinese pages finds Chinese
words; without it, it finds titles, names, and words of three characters or more.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).parent
HTML = DOCS / "_build" / "html"


def build(language: str, out: Path, outputs: str, other: dict[str, str]) -> None:
    """One language; `other` tells the template of the pages about the other one."""
    values = {
        "language": language,
        "nb_execution_mode": "cache",
        "nb_execution_cache_path": outputs,
    }
    command = [sys.executable, "-m", "sphinx", "-E", "-b", "html", *sys.argv[1:]]
    command += [word for name in values for word in ("-D", f"{name}={values[name]}")]
    command += [word for name in other for word in ("-A", f"{name}={other[name]}")]
    subprocess.run([*command, str(DOCS), str(out)], check=True)


if __name__ == "__main__":
    chinese = {"other_name": "中文", "other_code": "zh-CN", "other_root": "zh_CN/"}
    english = {"other_name": "English", "other_code": "en", "other_root": "../"}
    with tempfile.TemporaryDirectory() as outputs:
        build("en", HTML, outputs, chinese)
        build("zh_CN", HTML / "zh_CN", outputs, english)
