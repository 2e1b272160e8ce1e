"""The site of the docs: its build is strict, it opens from disk, asks no host, and shows what commands print."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable, Iterator
from html import unescape
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit
from xml.etree import ElementTree

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from PIL import Image

from compiler import compile_step
from docs.site.fences import draw_flow, fence
from docs.site.notebooks import write_notebook
from docs.site.places import Places, adapt, find_targets, make_anchor
from graphspec import load
from runtime.cli import execute
from tests.docs.test_docs import find_anchors
from tests.page.test_page import COMMENT, HOSTILE

ROOT = Path(__file__).resolve().parents[2]
SPECS = sorted((ROOT / "examples").glob("*/*.yaml"))
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
LOAD = "all => Promise.all(all.map(each => (each.loading = 'eager', each.decode())))"
"""Loads all pictures; fails for one that is none."""
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
pytestmark = pytest.mark.xdist_group("site")  # one worker, so that the site is built once
whole = pytest.mark.long
"""What is about the whole site, which takes twenty seconds to build."""

TRAPS = '# [link](javascript:alert(1)) **bold** `</code>` &amp;\n# ```\n# ````\n# === "tab"\n'
EVIL_SPEC = HOSTILE.replace("graphspec: 1\n", f"{TRAPS}graphspec: 1\n")


class Page(HTMLParser):
    """What a page has: the ids and links, what it loads, its scripts and handlers, and its code by their titles."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids, self.links, self.loads = set[str](), list[str](), list[str]()
        self.handlers, self.scripts = list[str](), 0
        self.code: list[tuple[str, str]] = []
        self.lead = ""
        self.stack: list[tuple[str, str]] = []
        self.title = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        self.scripts += tag == "script"
        self.handlers += [name for name in given if name.startswith("on")]
        if "href" in given:
            (self.links if tag == "a" else self.loads).append(given["href"])
        self.loads += [given[name] for name in ("src", "srcset", "data", "poster", "action") if name in given]
        if tag not in VOID:
            self.stack.append((tag, given.get("class", "")))
        if tag == "code" and any(name == "pre" for name, _ in self.stack):
            self.code.append((self.title, ""))
            self.title = ""

    def handle_endtag(self, tag: str) -> None:
        while self.stack and self.stack.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        tags = [name for name, _ in self.stack]
        if ("span", "filename") in self.stack:
            self.title += data
        elif "pre" in tags and "code" in tags:
            title, text = self.code[-1]
            self.code[-1] = (title, text + data)
        elif ("p", "lead") in self.stack:
            self.lead += data


def build_site(folder: Path, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Build the site of a copy of the repository."""
    path = os.pathsep.join((str(root), str(ROOT)))
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)]
    env = {**os.environ, "PYTHONPATH": path, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the site."""
    folder = tmp_path_factory.mktemp("site")
    done = build_site(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    """Return every page of the site by its path."""
    return {path: Page(path) for path in sorted(site.rglob("*.html"))}


def name_page(spec: Path) -> str:
    """Return the name of the page of a spec: that of its folder, if it is the spec that `init` names."""
    return spec.stem if len([*spec.parent.glob("*.yaml")]) > 1 else spec.parent.name


def print_command(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """Return what a command prints, or the problems that it reports."""
    capsys.readouterr()
    failed = execute(list(map(str, words)))
    out, err = capsys.readouterr()
    return err if failed else out


@whole
@pytest.mark.parametrize("spec", SPECS, ids=name_page)
def test_an_example_has_a_page_that_shows_what_the_commands_print(spec, site, pages, capsys):
    name = name_page(spec)
    page = pages[site / "gallery" / f"{name}.html"]
    shown = {title: text.rstrip() for title, text in page.code}
    text = spec.read_text(encoding="utf-8")
    assert shown[spec.name] == text.rstrip()
    assert shown["stepgraph plan"] == print_command(capsys, "plan", spec).rstrip()
    for backend in ("torch", "tensorflow"):
        told = print_command(capsys, "emit", spec, "--backend", backend).rstrip()
        assert shown[f"stepgraph emit --backend {backend}"] == told.replace(f"{spec.parent}{os.sep}", "")
    picture = print_command(capsys, "plan", spec, "--format", "svg")
    assert (site / "gallery" / f"{name}.svg").read_text(encoding="utf-8").rstrip() == picture.rstrip()
    assert f"{name}.svg" in page.loads
    html = print_command(capsys, "plan", spec, "--format", "html")
    assert (site / "gallery" / f"{name}.plan.html").read_text(encoding="utf-8").rstrip() == html.rstrip()
    comment = re.findall(r"^# (?!yaml-)(.*)$", text.partition("graphspec:")[0], re.MULTILINE)
    assert page.lead == " ".join(comment).replace("`", "")


@whole
def test_an_example_shows_its_declaration_in_python(site, pages):
    for spec in SPECS:
        twin = spec.with_name(f"{spec.stem.replace('-', '_')}.py")
        shown = dict(pages[site / "gallery" / f"{name_page(spec)}.html"].code)
        assert shown[twin.name].rstrip() == twin.read_text(encoding="utf-8").rstrip()


@whole
def test_an_example_is_begun_as_init_says(site, pages, workdir, capsys):
    for name in ("gan-digits", "custom-classes", "sac"):
        (workdir / name).mkdir()
        os.chdir(workdir / name)
        told = print_command(capsys, "init", name).partition("Now run:\n")[2]
        commands = [f"stepgraph init {name}", *(line.strip() for line in told.splitlines())]
        assert pages[site / "gallery" / f"{name}.html"].code[0] == ("", "\n".join(commands) + "\n")


def list_shown(notebook: Path) -> tuple[list[str], list[str], dict[str, str | bytes]]:
    """Return what the page of a notebook shows in order, its code, and its pictures by their names."""
    shown, code, pictures = list[str](), list[str](), dict[str, str | bytes]()
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            words = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", source)
            shown.append(re.sub(r"`|^#+ ", "", words, flags=re.MULTILINE))
            continue
        code.append(source)
        shown.append(source)
        for output in cell["outputs"]:
            data = output.get("data", {})
            kind = next((kind for kind in ("text/html", "image/png") if kind in data), "text/plain")
            text = "".join(data.get(kind, output.get("text", "")))
            if kind == "text/plain":
                code.append(text)
                shown.append(text)
            else:
                name = f"{notebook.stem}-{len(pictures) + 1}.{'png' if kind == 'image/png' else 'svg'}"
                pictures[name] = b64decode(text) if kind == "image/png" else text
                shown.append(f"({name})")
    return shown, code, pictures


@whole
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_a_page_with_its_cells_and_what_they_gave_in_order(notebook, site, pages):
    path = site / "notebooks" / f"{notebook.stem}.html"
    shown, code, pictures = list_shown(notebook)
    assert [text.rstrip() for _, text in pages[path].code] == [text.rstrip() for text in code]
    named = re.sub(r"<img [^>]*?src=\"([^\"]*)\"[^>]*>", r"(\1)", path.read_text(encoding="utf-8"))
    article = named.partition("<article")[2].partition("</article>")[0]
    text = re.sub(r"\s|\u00b6", "", unescape(re.sub(r"<[^>]*>", "", article)))
    for each in shown:
        _, found, text = text.partition(re.sub(r"\s", "", each))
        assert found, each
    for name, content in pictures.items():
        file = path.with_name(name)
        if isinstance(content, bytes):
            assert file.read_bytes() == content
        else:
            assert file.read_text(encoding="utf-8") in content
            assert ElementTree.parse(file).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert notebook.name in pages[path].links
    assert path.with_name(notebook.name).read_bytes() == notebook.read_bytes()


@whole
def test_a_link_to_a_notebook_leads_to_its_page(site, pages):
    names = {f"{path.stem}.html" for path in NOTEBOOKS}
    assert names <= set(pages[site / "notebooks" / "index.html"].links)
    assert {f"notebooks/{name}" for name in names} <= set(pages[site / "pages.html"].links)
    assert "tutorial.html" in {Path(link).name for link in pages[site / "notebooks" / "gan.html"].links}
    assert "notebooks/index.html" in pages[site / "index.html"].links


@whole
def test_the_indexes_name_everything(site, pages):
    gallery = pages[site / "gallery" / "index.html"].links
    assert {f"{name_page(spec)}.html" for spec in SPECS} <= set(gallery)
    for folder in ("errors", "adr"):
        index = pages[site / folder / "index.html"].links
        assert {f"{path.stem}.html" for path in (ROOT / "docs" / folder).glob("*.md")} <= set(index)


@whole
def test_every_link_leads_to_a_page_and_a_place_on_it(site, pages):
    broken = []
    for path, page in pages.items():
        for link in (*page.links, *page.loads):
            address = urlsplit(link)
            if address.scheme in ("http", "https", "data", "mailto"):
                continue
            target = Path(os.path.normpath(path.parent / unquote(address.path))) if address.path else path
            found = target.is_relative_to(site) and target.is_file()
            lost = address.fragment and target in pages and unquote(address.fragment) not in pages[target].ids
            broken += [f"{path.relative_to(site)}: {link}"] if not found or lost else []
    assert broken == []


@whole
def test_no_page_asks_a_host(site, pages):
    for path, page in pages.items():
        assert [address for address in page.loads if urlsplit(address).netloc] == [], path
    for path in site.rglob("*.css"):
        asked = re.findall(r"(?:@import|url\()\s*[\"']?((?:https?:)?//[^\"')]*)", path.read_text(encoding="utf-8"))
        assert asked == [], path


@whole
def test_a_heading_has_the_anchor_that_a_viewer_of_files_gives_it(site, pages):
    for path in (ROOT / "docs").glob("[a-z]*.md"):
        assert find_anchors(path) <= pages[site / f"{path.stem}.html"].ids, path
    assert make_anchor("`a_b` / (c): D's", "-") == "a_b--c-ds"


@whole
def test_code_in_a_table_shows_its_bars(site):
    text = unescape((site / "cli.html").read_text(encoding="utf-8"))
    assert "<code>--backend torch|tensorflow</code>" in text


def make_notebook() -> nbformat.NotebookNode:
    """Return a notebook that is all traps: its code, what it prints, its pictures, and its error."""
    plan = compile_step(load(EVIL_SPEC), backend="torch", pending=True)
    drawn = f'<script>alert(1)</script><div onclick="alert(1)">{plan._repr_html_()}</div>'
    outputs = [
        new_output("stream", text=EVIL_SPEC),
        new_output("execute_result", {"text/html": drawn, "text/plain": "a plan"}, execution_count=1),
        new_output("display_data", {"text/html": "<script>alert(1)</script>", "text/plain": TRAPS}),
        new_output("error", ename="E", evalue="", traceback=["\x1b[31mE</code>\x1b[0m", f"```\n{HOSTILE}"]),
    ]
    home = new_markdown_cell("# Evil\n\nHere.\n\n[home](../../README.md) `[no](../../README.md)`")
    return new_notebook(cells=[home, new_code_cell(TRAPS, execution_count=1, outputs=outputs)])


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Return a small repository: what makes the site, two pages, a code, and an example that is all traps."""
    root = tmp_path / "root"
    shutil.copytree(ROOT / "docs" / "site", root / "docs" / "site", ignore=shutil.ignore_patterns("__pycache__"))
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[0]
    listed = ["index.md", "pages.md", "changelog.md", "contributing.md", "examples.md"]
    listed += ["notebooks/index.md", "notebooks/evil.md"]
    (root / "mkdocs.yml").write_text(f"{config}\nnav: {json.dumps(listed)}\n", encoding="utf-8")
    texts = {
        "README.md": "# Home\n\n[docs](docs/README.md), [code](docs/errors/GS104.md), [it](examples/evil/evil.yaml)\n",
        "CHANGELOG.md": "# Changelog\n",
        "CONTRIBUTING.md": "# Contributing\n\n[tool](tools/tool.py), [tools](tools)\n",
        "docs/README.md": "# Pages\n\n[home](../README.md#home) `[no](link.md)`\n\n```\n[no](link.md)\n```\n",
        "docs/examples.md": "# Examples\n\n## What / which\n",
        "docs/errors/GS104.md": "# GS104: a value | that\n\n[codes](../errors/), [what](../examples.md#what--which)\n",
        "docs/adr/0001-one.md": "# 0001: One\n",
        "tools/tool.py": '"""Say <b>hello</b>."""\n',
        "examples/evil/evil.yaml": EVIL_SPEC,
        "examples/evil/evil.py": f"TEXT = {HOSTILE!r}\n",
        "docs/notebooks/evil.ipynb": nbformat.writes(make_notebook()),
    }
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def test_whatever_a_spec_says_is_only_text(small, tmp_path):
    done = build_site(tmp_path / "site", small)
    assert done.returncode == 0, done.stdout + done.stderr
    plain = Page(tmp_path / "site" / "examples.html")
    page, index = (Page(tmp_path / "site" / "gallery" / f"{name}.html") for name in ("evil", "index"))
    notebook = Page(tmp_path / "site" / "notebooks" / "evil.html")
    for each in (page, index, notebook):
        assert each.scripts == plain.scripts
        assert each.handlers == plain.handlers
        assert not [link for link in each.links if link.startswith("javascript")]
    assert dict(page.code)["evil.yaml"].rstrip() == EVIL_SPEC.rstrip()
    assert dict(page.code)["evil.py"].rstrip() == f"TEXT = {HOSTILE!r}"
    assert COMMENT in page.lead
    expected = [TRAPS, EVIL_SPEC, TRAPS, f"E</code>\n```\n{HOSTILE}"]
    assert [text.rstrip() for _, text in notebook.code if text != "[no](../../README.md)"] == [
        text.rstrip() for text in expected
    ]
    assert "../index.html" in notebook.links
    for element in ElementTree.parse(tmp_path / "site" / "notebooks" / "evil-1.svg").iter():
        assert element.tag.rpartition("}")[2] not in {"script", "foreignObject", "a", "image", "use"}
        assert not [name for name in element.attrib if name.startswith("on") or name.endswith("href")]
    tool = Page(tmp_path / "site" / "source" / "tools" / "tool.py.html")
    assert dict(tool.code)["tools/tool.py"] == '"""Say <b>hello</b>."""\n'


def test_what_is_broken_fails_the_build(small, tmp_path):
    page = small / "docs" / "examples.md"
    more = "[a](gone.md), [b](README.md#gone), [c](../tools/gone.py), [d](#gone), [e](/examples.md), [f](../adr)\n"
    page.write_text(page.read_text(encoding="utf-8") + more, encoding="utf-8")
    notebook = small / "docs" / "notebooks" / "evil.ipynb"
    text = notebook.read_text(encoding="utf-8").replace("[home](../../README.md)", "[home](../lost.md)")
    notebook.write_text(text, encoding="utf-8")
    (small / "docs" / "lonely.md").write_text("# Lonely\n", encoding="utf-8")
    done = build_site(tmp_path / "site", small)
    assert done.returncode == 1
    for target in (
        "'gone.md'",
        "#gone'",
        "'../tools/gone.py'",
        "'/examples.md'",
        "'../adr'",
        "lonely.md",
        "'../lost.md'",
    ):
        assert target in done.stderr, target
    assert done.stderr.count("WARNING") == 8


def test_an_output_of_which_nothing_can_be_shown_fails_the_build(tmp_path):
    path = tmp_path / "a.ipynb"
    cell = new_code_cell("1", outputs=[new_output("display_data", {"video/mp4": "AAAA"})])
    nbformat.write(new_notebook(cells=[cell]), path)
    with pytest.raises(ValueError, match="video/mp4"):
        list(write_notebook(path, "docs/a.ipynb", Places({"docs/a.ipynb": "a.md"})))


PLACES = Places(
    {"README.md": "index.md", "docs/a.md": "a.md", "docs/deep/b.md": "deep/b.md", "x/c.py": "source/x/c.py.md"}
)


@pytest.mark.parametrize(
    ("origin", "text", "moved"),
    [
        ("README.md", "[a](docs/a.md#b)", "[a](a.md#b)"),
        (
            "docs/deep/b.md",
            "[`c`](../../x/c.py) ![d](../a.md)",
            "[`c`](../source/x/c.py.md) ![d](../a.md)",
        ),
        ("docs/a.md", "`[a](deep/b.md)` [r](../README.md)", "`[a](deep/b.md)` [r](index.md)"),
        ("docs/a.md", "[h](#here) [g](gone.md) [w](https://example.org/a.md)", None),
        (
            "docs/a.md",
            "```\n[a](../README.md)\n```\n[r](../README.md)\n",
            "```\n[a](../README.md)\n```\n[r](index.md)\n",
        ),
    ],
)
def test_links_are_moved_and_code_is_not(origin, text, moved):
    assert PLACES.move(text, origin) == (text if moved is None else moved)


def test_targets_are_paths_of_the_repository():
    text = "[a](../x/c.py#L1) [b](deep/) `[c](d.md)` [d](https://example.org) [e](#here)"
    assert find_targets(text, "docs/a.md") == ["x/c.py", "docs/deep"]


def test_markdown_is_adapted_to_the_other_reader():
    assert adapt("- a\n\n  ```json\n  {}\n  ```\n") == "- a\n\n    ```json\n    {}\n    ```\n"
    assert adapt("| `a\\|b` | c |\n\n`a\\|b`") == "| `a|b` | c |\n\n`a\\|b`"


@pytest.mark.parametrize("text", ["", "```", "a\n````\n`````", "`"])
def test_no_text_ends_its_fence(text):
    first, *lines = fence(text, "text").splitlines()
    ticks = re.match("`+", first)[0]
    assert lines[-1] == ticks
    assert not [line for line in lines[:-1] if line.startswith(ticks)]


def test_a_flow_chart_is_its_chain():
    chart = draw_flow('flowchart LR\n  a["x\\n<y>"] -->|by| b[B]\n  b -->|to| c["C"]\n')
    assert re.findall(r"<li.*?>(.*?)</li>", chart) == ["x<br>&lt;y&gt;", "by", "B", "to", "C"]
    with pytest.raises(ValueError, match="one chain"):
        draw_flow("flowchart LR\n  a -->|by| b\n  a -->|to| c\n")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as playwright:
        # As root Chromium does not start in a sandbox.
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser: Any, site: Path) -> Iterator[Callable[..., Any]]:
    """Return what opens a page of the site from disk; at the end nothing was asked of a network, logged or raised."""
    told: list[str] = []
    contexts: list[Any] = []

    def open_(name: str, **options: Any) -> Any:
        contexts.append(browser.new_context(**{"viewport": {"width": 1600, "height": 900}, **options}))
        page = contexts[-1].new_page()
        page.on("console", lambda message: told.append(message.text))
        page.on("pageerror", lambda error: told.append(str(error)))
        page.on("requestfailed", lambda request: told.append(request.url))
        page.on("request", lambda request: told.append(request.url) if urlsplit(request.url).netloc else None)
        page.goto(urljoin(f"{site.as_uri()}/", name))
        return page

    yield open_
    for context in contexts:
        context.close()
    assert told == []


@whole
@pytest.mark.parametrize(
    "name",
    [
        "index.html",
        "tutorial.html",
        "errors/index.html",
        "gallery/index.html",
        "gallery/sac.html",
        "architecture.html",
        "notebooks/gan.html",
    ],
)
def test_a_page_opens_from_disk(open_page, name):
    page = open_page(name)
    assert page.locator("h1").count() == 1
    page.eval_on_selector_all("img", LOAD)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@whole
def test_the_search_finds_a_word(open_page):
    page = open_page("gallery/sac.html")
    page.keyboard.press("/")
    page.keyboard.type("lazy terms")
    page.wait_for_selector(".md-search-result__item a[href*='semantics.html']")
    page.locator(".md-search-result__item a[href*='semantics.html']").first.click()
    page.wait_for_url("**/semantics.html*")


@whole
def test_the_index_of_the_codes_is_filtered(open_page):
    page = open_page("errors/index.html")
    page.fill("input.filter", "gs104")
    shown = page.locator("article tbody tr:visible").all_inner_texts()
    assert [text.split()[0] for text in shown] == ["GS104"]
    assert page.locator("article h2:visible").count() == 1
    page.fill("input.filter", "")
    assert page.locator("article tbody tr:visible").count() == len([*(ROOT / "docs" / "errors").glob("*.md")])


@whole
@pytest.mark.parametrize(("width", "beside"), [(1600, True), (700, False)])
def test_what_belongs_together_stands_side_by_side_or_in_tabs(open_page, width, beside):
    page = open_page("gallery/sac.html", viewport={"width": width, "height": 900})
    blocks = page.locator(".pair .tabbed-block")
    assert blocks.count() == 6
    assert page.locator(".pair .tabbed-block:visible").count() == (6 if beside else 3)
    assert page.locator(".pair .tabbed-labels:visible").count() == (0 if beside else 3)
    if beside:
        left, right = blocks.nth(2).bounding_box(), blocks.nth(3).bounding_box()
        assert left["y"] == right["y"]
        assert left["x"] + left["width"] <= right["x"]
    else:
        page.click(".pair label:has-text('Python')")
        assert page.is_visible("text=sac.py")


@whole
@pytest.mark.parametrize(("scheme", "is_dark"), [("light", False), ("dark", True)])
@pytest.mark.parametrize("name", ["gallery/gan-digits.html", "notebooks/gan.html"])
def test_pictures_have_the_colours_of_the_page(open_page, name, scheme, is_dark):
    page = open_page(name, color_scheme=scheme)
    picture = page.locator("article img").first
    picture.scroll_into_view_if_needed()
    for expected in (is_dark, not is_dark):  # as the system has it, and as the reader turns it
        red, green, blue = Image.open(BytesIO(picture.screenshot())).convert("RGB").getpixel((3, 3))
        assert (red + green + blue < 300) == expected
        page.evaluate("document.querySelector('.md-header__option label:not([hidden])').click()")
        page.wait_for_function(f"document.body.dataset.mdColorScheme === '{'default' if expected else 'slate'}'")
