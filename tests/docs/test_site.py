"""The site: what its search finds, and what docs/build.py makes of the pages."""

from __future__ import annotations

import functools
import html
import importlib.metadata
import importlib.util
import json
import re
import runpy
import shutil
import subprocess
import sys
import threading
import time
import types
import urllib.error
import urllib.parse
import urllib.request
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("myst_nb", reason='Sphinx is not installed: pip install -e ".[docs]"')
import yaml

DOCS = Path(__file__).parents[2] / "docs"
SPEC = importlib.util.spec_from_file_location("build", DOCS / "build.py")
BUILD = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(BUILD)
NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
# Words that a student looks for, and a page where they must be found.
SEARCHED = {
    "残差": "course/11_encoder",
    "嵌入": "course/00_text_to_numbers",
    "因果": "course/14_decoder",
    "保存": "course/12_training_loop",
    "梯度检查": "course/04_trust_no_gradient",
    "键": "course/01_soft_lookup",
    "注意力权重": "attention",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The Chinese pages, without the outputs of their code."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-Q", "-b", "html", "-D", "language=zh_CN"]
    subprocess.run([*command, "-D", "nb_execution_mode=off", str(DOCS), str(out)], check=True)
    return out


def texts_of(site: Path) -> dict[str, str]:
    """What a reader sees on each page."""
    texts = {}
    for path in site.rglob("*.html"):
        if article := re.search(r"<article.*?</article>", path.read_text("utf-8"), re.DOTALL):
            words = re.sub(r"<(script|style).*?</\1>|<[^>]*>", "", article[0], flags=re.DOTALL)
            texts[path.relative_to(site).with_suffix("").as_posix()] = html.unescape(words)
    # The search finds pages, not files of the library.
    others = ("search", "genindex", "files/")
    return {name: text for name, text in texts.items() if not name.startswith(others)}


def found_by(index: dict, terms: list[str]) -> set[str]:
    """The pages that have all these terms in their text or titles, as searchtools.js finds them."""

    def having(term: str) -> set[int]:
        places = [index[kind].get(term, []) for kind in ("terms", "titleterms")]
        return {page for x in places for page in (x if isinstance(x, list) else [x])}

    pages = functools.reduce(set.intersection, map(having, terms))
    return {index["docnames"][page] for page in pages}


@pytest.mark.parametrize("word", SEARCHED)
def test_the_index_knows_the_pages_of_a_chinese_word(word, site):
    text = (site / "searchindex.js").read_text("utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    terms = [word[i : i + 2] for i in range(len(word) - 1)] or [word]
    right = {name for name, text in texts_of(site).items() if word in text}
    assert SEARCHED[word] in right
    assert found_by(index, terms) == right


def test_terms_of_a_text_are_signs_pairs_and_words():
    split = runpy.run_path(str(DOCS / "conf.py"))["SearchInChinese"]({}).split
    assert " ".join(split("梯度，softmax 的值_1x")) == "梯 度 梯度 softmax 的 值 的值 _1x"


def found_in_a_browser(query: str, site: Path, folder: Path) -> set[str]:
    """The pages that the search of the site lists."""
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += [f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=10000"]
    address = (site / "search.html").as_uri() + f"?q={urllib.parse.quote(query)}"
    done = subprocess.run(
        [*command, address], capture_output=True, text=True, timeout=120, check=True
    )
    results = done.stdout.partition('id="search-results"')[2]
    names = re.findall(r'<a href="([^"#]*)[^"]*" data-score', results)
    return {name.removesuffix(".html") for name in names}


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
@pytest.mark.parametrize("query", [*SEARCHED, "残差 LayerNorm", "Adam 学习率"])
def test_a_browser_finds_the_pages_that_have_all_words(query, site, tmp_path):
    texts = texts_of(site)
    right = {name for name, text in texts.items() if all(x in text for x in query.split())}
    assert right
    # A page that the glossary names for one of the words may be found beside them.
    found = found_in_a_browser(query, site, tmp_path)
    assert found >= right
    assert len(found - right) <= 2


def test_the_fingerprint_changes_with_what_pages_read(tmp_path, monkeypatch):
    def now():
        return BUILD.fingerprint(tmp_path, ["code", "file.py"])

    (tmp_path / "code" / "inner").mkdir(parents=True)
    seen = [now()]
    for change in (
        lambda: (tmp_path / "file.py").write_text("1"),
        lambda: (tmp_path / "code" / "inner" / "a.py").write_text("1"),
        lambda: (tmp_path / "code" / "inner" / "a.py").write_text("2"),
        lambda: (tmp_path / "code" / "inner" / "a.py").rename(tmp_path / "code" / "b.py"),
        lambda: monkeypatch.setattr(
            importlib.metadata,
            "distributions",
            lambda: [types.SimpleNamespace(name="torch", version="1")],
        ),
    ):
        change()
        assert now() not in seen
        seen.append(now())
    cache = tmp_path / "code" / "__pycache__"  # which a page fills when it runs
    cache.mkdir()
    for name in ("b.pyc", "b.nbi", "tinyattn_sources.sha256"):
        (cache / name).write_text("of a cache")
    (tmp_path / "elsewhere").write_text("1")
    assert now() == seen[-1]


def test_no_page_runs_again_if_only_the_looks_of_pages_change():
    """Outputs do not depend on what Sphinx makes of them; all that code reads, they depend on."""
    assert not set(BUILD.RUN) & set(BUILD.READ)
    assert all((DOCS.parent / name).exists() for name in (*BUILD.RUN, *BUILD.READ))
    assert {"tinyattn", "examples"} <= set(BUILD.RUN)


def test_results_are_kept_for_the_same_code_alone(tmp_path):
    kept = tmp_path / "kept"
    assert not BUILD.keep_results(kept, "1")
    (kept / "outputs").mkdir()
    assert BUILD.keep_results(kept, "1")
    assert (kept / "outputs").is_dir()
    assert not BUILD.keep_results(kept, "2")
    assert not (kept / "outputs").exists()


def test_progress_says_what_is_read_and_how_long_the_rest_takes(tmp_path, capsys, monkeypatch):
    file = tmp_path / "seconds.json"
    file.write_text('{"b": 20, "gone": 5}')
    clock = iter([0.0, 4.0, 10.0, 12.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    progress = runpy.run_path(str(DOCS / "conf.py"))["Progress"](file)
    app = types.SimpleNamespace(env=types.SimpleNamespace(), config=types.SimpleNamespace())
    app.config.language = "en"
    progress.begin(app, app.env, ["a", "b", "c"])
    for app.env.docname in "abc":
        progress.page_is_read(app, None)
    progress.end(app, app.env)
    assert capsys.readouterr().out.splitlines() == [
        "[1/3] a: 4.0 s, about 24 s left",  # 20 for b, and for c the mean
        "[2/3] b: 6.0 s, about 5 s left",
        "[3/3] c: 2.0 s, about 0 s left",
        "en: 3 pages read, now they are written",
    ]
    assert json.loads(file.read_text()) == {"a": 4, "b": 6, "c": 2, "gone": 5}


@pytest.fixture
def small(tmp_path, monkeypatch) -> Path:
    """The sources of a small site, with pages that count how often they run."""
    docs = tmp_path / "docs"
    for name in ("_templates", "_static", "notebooks"):
        (docs / name).mkdir(parents=True)
    names = ("conf.py", "figures_as_svg.py", "search.js", "search_words.toml", "404.html")
    for name in (*names, "_static/favicon.svg", "_static/print.css"):
        shutil.copy(DOCS / name, docs / name)
    shutil.copytree(DOCS / "_templates", docs / "_templates", dirs_exist_ok=True)
    (docs / "notebooks" / "zh_CN").mkdir()
    for folder in ("", "zh_CN"):
        (docs / "notebooks" / folder / "first.ipynb").touch()
    for name in ("first", "second"):
        lines = [
            *("---", "file_format: mystnb", "kernelspec:", "  name: python3", "---", f"# {name}"),
            *("```{code-cell}", f'open("{tmp_path}/runs", "a").write("{name} ")', "```"),
        ]
        (docs / f"{name}.md").write_text("\n".join(lines))
    (docs / "slides").mkdir()
    shutil.copy(DOCS / "slides" / "conf.py", docs / "slides")
    (docs / "slides" / "index.md").write_text("# Slides")
    toctree = "# Index\n```{toctree}\nfirst\nsecond\n```\n"
    (docs / "index.md").write_text(toctree)
    values = {"DOCS": docs, "BUILD": docs / "_build"}
    values |= {"HTML": docs / "_build" / "html", "KEPT": docs / "_build" / "kept"}
    for name, value in values.items():
        monkeypatch.setattr(BUILD, name, value)
    return docs


def test_pages_that_are_unchanged_are_not_built_again(small, tmp_path, capfd):
    def build() -> list[str]:
        links = {"other_name": "中文", "other_code": "zh-CN", "other_root": "zh_CN/"}
        links |= {"notebook_name": "Notebook", "notebooks": "notebooks/"}
        BUILD.build("en", BUILD.HTML, tmp_path, links, ["-W"], tmp_path / "seconds.json")
        return re.findall(r"^\[\d/\d\] (\w+): ", capfd.readouterr().out, re.MULTILINE)

    assert sorted(build()) == ["first", "index", "second"]
    assert (tmp_path / "runs").read_text() == "first second "
    assert build() == []
    (small / "second.md").write_text((small / "second.md").read_text() + "\nother words\n")
    assert build() == ["second"]
    assert (tmp_path / "runs").read_text() == "first second "  # its code is the same
    assert "other words" in (BUILD.HTML / "second.html").read_text()
    (small / "second.md").write_text((small / "second.md").read_text().replace("second ", "third "))
    assert build() == ["second"]
    assert (tmp_path / "runs").read_text() == "first second third "
    # All pages show a new title, because it stands at their side.
    page = (small / "second.md").read_text()
    (small / "second.md").write_text(page.replace("# second", "# another title"))
    assert build() == ["second"]
    assert "another title" in (BUILD.HTML / "first.html").read_text()
    (small / "index.md").write_text("# Index\n```{toctree}\nsecond\nfirst\n```\n")
    assert build() == ["index"]
    page = (BUILD.HTML / "first.html").read_text()
    side = re.findall(r'toctree-l1[^>]*><a[^>]*href="([^"]*)"', page)
    assert side == ["second.html", "#"]  # the page itself is the last one

    # One link on a page opens its notebook; a page without code has none.
    links = {name: (BUILD.HTML / f"{name}.html").read_text() for name in ("first", "index")}
    assert '<a href="./notebooks/first.ipynb" download>Notebook</a>' in links["first"]
    assert ".ipynb" not in links["index"].partition("</nav>")[0]


FIGURE = """
```{code-cell}
:alt: Two bars, of which the second
:  is twice as high.

import io
from IPython.display import Image
from matplotlib.figure import Figure
figure, file = Figure((2, 2)), io.BytesIO()
figure.subplots().bar([0, 1], [1, 2])
figure.savefig(file)
Image(file.getvalue())
```

Open [the error](../tinyattn/errors.py).
"""


def test_a_figure_says_what_it_shows_and_a_file_opens_as_a_page(small, tmp_path):
    page = small / "first.md"
    page.write_text(page.read_text() + FIGURE)
    (tmp_path / "tinyattn").mkdir()
    (tmp_path / "tinyattn" / "errors.py").write_text("class GraphError: ...")
    BUILD.build("en", BUILD.HTML, tmp_path, {}, ["-W"])
    html = (BUILD.HTML / "first.html").read_text("utf-8")
    assert 'alt="Two bars, of which the second is twice as high."' in html
    article = re.search(r"<article.*?</article>", html, re.DOTALL)[0]
    assert article.count("Two bars") == 1
    assert '<a class="reference internal" href="files/tinyattn/errors.py.html">' in article
    code = (BUILD.HTML / "files/tinyattn/errors.py.html").read_text("utf-8")
    assert "GraphError" in code
    assert 'href="../../_static/favicon.svg' in code
    assert (BUILD.HTML / "404.html").is_file()


def test_the_code_runs_once_for_both_languages(small, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(BUILD, "translations", dict)
    said = []
    for _ in range(2):
        BUILD.build_all(["-W"])
        said.append(capfd.readouterr().out)
        assert (tmp_path / "runs").read_text() == "first second "
    files = {path.relative_to(BUILD.HTML).as_posix() for path in BUILD.HTML.rglob("*")}
    assert {"index.html", "zh_CN/first.html", ".nojekyll"} < files
    assert {"notebooks/first.ipynb", "notebooks/zh_CN/first.ipynb"} < files
    assert not any("doctree" in name or "jupyter_execute" in name for name in files)
    page = (BUILD.HTML / "zh_CN" / "first.html").read_text("utf-8")
    assert '<a href="./../notebooks/zh_CN/first.ipynb" download>笔记本</a>' in page

    assert said[0].startswith("All pages run, in three to ten minutes")
    assert re.search(r"\n\[3/3\] \w+: [\d.]+ s, about 0 s left\nen: 3 pages read", said[0])
    for text in said:
        assert re.search(r"\n\d+ s: \S+index.html, \S+index.html\n$", text)
    assert said[1].startswith("en: 0 pages read")


def test_the_page_that_needs_pytorch_is_built_without_it(small):
    """Without its outputs, and without a warning."""
    for name in ("first", "second"):
        shutil.copy(DOCS / "models.md", small / f"{name}.md")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html"]
    command += ["-D", "nb_execution_mode=off"]
    subprocess.run([*command, str(small), str(small / "_build")], check=True)


def test_one_command_serves_the_site(tmp_path, capsys):
    (tmp_path / "index.html").write_text("the pages")
    threading.Thread(target=BUILD.serve, args=(tmp_path, 0), daemon=True).start()
    said = ""
    for _ in range(100):
        said += capsys.readouterr().out
        if said:
            break
        time.sleep(0.05)
    address = said.split()[0]
    with urllib.request.urlopen(address) as page:
        assert page.read() == b"the pages"
    port = int(address.strip("/").rpartition(":")[2])
    with pytest.raises(SystemExit, match=f"port {port} cannot be used.*--serve {port + 1}"):
        BUILD.serve(tmp_path, port)


def test_an_address_that_is_not_there_gives_the_page_404(tmp_path):
    shutil.copy(DOCS / "404.html", tmp_path)
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(BUILD.Pages, directory=tmp_path)
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with pytest.raises(urllib.error.HTTPError, match="404") as caught:
        urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/a/b/c.html")
    text = caught.value.fp.read().decode()
    server.shutdown()
    server.server_close()
    assert "There is no such page" in text
    assert "没有这个页面" in text
    # It is shown at any depth, so it needs no file beside it, and looks for the pages' folder.
    assert not re.search(r'(?:src|href)="(?!/)', text)


def test_a_printed_page_hides_no_text():
    css = (DOCS / "_static/print.css").read_text("utf-8")
    hidden = re.search(r"([^{}]*)\{\s*display: none !important", css)[1]
    assert ".skip-to-content" in hidden
    assert "pre-wrap" in css
    # myst-nb fades in what is unfolded, and nothing moves on paper: it would stay invisible.
    assert re.search(r"details > \* \{\s*animation: none !important", css)
    whole = re.search(r"([^{}]*)\{\s*break-inside: auto", css)[1]
    assert {"table", "pre", "dl"} <= set(re.findall(r"\w+", whole))  # may be longer than a page
    script = (DOCS / "_static/print.js").read_text("utf-8")
    assert "beforeprint" in script
    assert "afterprint" in script


def test_ctrl_c_ends_the_server(tmp_path, monkeypatch):
    def interrupt(server):
        raise KeyboardInterrupt

    monkeypatch.setattr(ThreadingHTTPServer, "serve_forever", interrupt)
    BUILD.serve(tmp_path, 0)


def test_the_workflow_publishes_what_the_build_makes():
    text = (DOCS.parent / ".github/workflows/site.yml").read_text("utf-8")
    (job,) = yaml.safe_load(text)["jobs"].values()
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands == ['pip install -e ".[docs]"', "python docs/build.py -W --keep-going"]
    (folder,) = [step["with"]["path"] for step in job["steps"] if "path" in step.get("with", {})]
    assert DOCS.parent / folder == DOCS / "_build" / "html"
    assert "://" not in text  # the owner chooses where the pages are
