"""The page and the picture as files: the same bytes every time, well formed, and whatever a spec says is only text."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from compiler import Plan, compile_step
from graphspec import Graph, load
from runtime import build
from tests.compiler.printed import read_functions

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = [ROOT / "examples" / f"{name}/{name}.yaml" for name in ("sac", "td3", "stylegan2-lazy", "tied-lm", "moco")]
SVG = "{http://www.w3.org/2000/svg}"
EVIL = "</script></style><img src=x onerror=alert(1)><!-- &lt; \" ' ]]> \u2028 \u202e"
COMMENT = EVIL.replace("\u2028", "")
HOSTILE = f"""# {COMMENT}
graphspec: 1
name: {json.dumps(EVIL)}
inputs: {{x: {{shape: [batch, 4]}}}}
models:
  net: {{layers: [{{linear: 4}}], optimizer: adam}}
ops:
  y: {{forward: net, inputs: x, doc: {json.dumps(EVIL)}}}
  far: {{loss: mse, inputs: [y, 0.0]}}  # {COMMENT}
  fit: {{update: net, loss: far}}
"""


class Reader(HTMLParser):
    """Collects the elements and the texts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def read_data(page: str) -> Any:
    """Return what the script of a page reads."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


def find_modes(plan: Plan) -> list[str]:
    return [each.mode for each in plan.program.modes]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_picture_is_xml_with_a_title_for_every_row(path: Path) -> None:
    plan = compile_step(load(path))
    for mode in find_modes(plan):
        tree = ElementTree.fromstring(plan.svg(mode))
        rows = tree.findall(f".//{SVG}g[@class='row']")
        lines = [line for function in read_functions(plan.text(mode)).values() for line in function]
        assert len([row for row in rows if row.findtext(f"{SVG}text")]) == len(lines)
        assert all(row.findtext(f"{SVG}title") for row in rows)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_page_holds_the_published_plan_and_refers_to_nothing_else(path: Path) -> None:
    plan = compile_step(load(path))
    for mode in find_modes(plan):
        page = plan.html(mode)
        assert read_data(page)["plan"] == plan.to_json(mode)
        found = Reader(page)
        ids = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
        assert len(ids) == len({*ids})
        for name, attributes in found.elements:
            assert not {"src", "srcset", "action", "background", "data", "poster"} & {*attributes}
            target = attributes.get("href")
            assert target is None or (name == "a" and target.startswith("#"))
            assert target is None or target[1:].replace("%23", "#").replace("%25", "%") in ids
        assert "http:" not in page.replace("http://www.w3.org/2000/svg", "")
        assert "https:" not in page.replace(path.read_text(encoding="utf-8"), "")


def test_the_summary_of_a_page_has_all_that_the_text_says_below_its_functions() -> None:
    found = 0
    for path in EXAMPLES:
        plan = compile_step(load(path))
        titles = re.findall(r"<h3>([^<]*)</h3>", plan.html())
        for title in ("optimizers", "overflow", "groups", "schedules", "moments", "warnings", "notes"):
            assert (title in titles) == (f"\n\n{title}\n" in plan.text()), (path, title)
            found += title in titles
    assert found > len(EXAMPLES)


def test_what_a_spec_says_is_text(tmp_path: Path) -> None:
    path = tmp_path / "<img src=x onerror=alert(2)>.yaml"
    path.write_text(HOSTILE, encoding="utf-8")
    plan = compile_step(load(path))
    page, picture = plan.html(), plan.svg()
    found = Reader(page)
    names = [name for name, _ in found.elements]
    assert names.count("script") == 2
    assert names.count("style") == 1
    assert "img" not in names
    assert not [key for _, attributes in found.elements for key in attributes if key.startswith("on")]
    assert read_data(page)["plan"]["name"] == EVIL
    assert {"\u2028", "\u202e"}.isdisjoint(page + picture)
    tree = ElementTree.fromstring(picture)
    assert {each.tag.removeprefix(SVG) for each in tree.iter()} <= {
        "svg",
        "g",
        "title",
        "style",
        "rect",
        "text",
        "path",
        "circle",
    }
    assert "onerror=alert(1)" in str(tree.findtext(f"{SVG}title"))


def test_only_the_script_of_the_page_may_run() -> None:
    page = compile_step(load(EXAMPLES[0])).html()
    policy = next(each["content"] for name, each in Reader(page).elements if each.get("http-equiv"))
    assert policy is not None
    assert "default-src 'none'" in policy
    assert re.search(r"script-src 'sha256-[A-Za-z0-9+/=]{44}'", policy)
    assert "'unsafe-inline'" not in policy.split("script-src")[1]


def test_pictures_and_pages_are_the_same_bytes_in_every_process() -> None:
    code = (
        "import hashlib, sys; from compiler import compile_step; from graphspec import load\n"
        "for path in sys.argv[1:]:\n"
        "    plan = compile_step(load(path))\n"
        "    print(hashlib.sha256((plan.svg() + plan.html()).encode()).hexdigest())"
    )
    made = {
        subprocess.run(
            [sys.executable, "-c", code, *EXAMPLES], cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(made) == 1


def test_a_page_does_not_depend_on_the_folder_of_its_spec(tmp_path: Path) -> None:
    copy = tmp_path / EXAMPLES[0].name
    copy.write_bytes(EXAMPLES[0].read_bytes())
    assert compile_step(load(copy)).html() == compile_step(load(EXAMPLES[0])).html()


def test_ops_point_at_their_lines_in_the_spec_and_in_the_files_that_it_includes(tmp_path: Path) -> None:
    (tmp_path / "shared.yaml").write_text(
        "blocks:\n  judge:\n    inputs: [x]\n    outputs: [seen]\n    ops:\n      seen: {forward: net, inputs: x}\n",
        encoding="utf-8",
    )
    text = (
        "graphspec: 1\nname: two\ninclude: [shared.yaml]\ninputs: {x: {shape: [batch, 4]}}\n"
        "models: {net: {layers: [{linear: 4}], optimizer: adam}}\nops:\n"
        "  one: {use: judge, inputs: x}\n  far: {loss: mse, inputs: [one.seen, 0.0]}\n"
        "  fit:\n    update: net\n    loss: far\n"
    )
    (tmp_path / "two.yaml").write_text(text, encoding="utf-8")
    page = compile_step(load(tmp_path / "two.yaml", root=tmp_path)).html()
    data = read_data(page)
    assert data["files"] == ["two.yaml", "shared.yaml"]
    assert data["places"] == {"one.seen": [1, 6, 6], "far": [0, 8, 8], "fit": [0, 9, 11]}
    assert '<a href="#train_step/one.seen">seen</a>' in page
    assert '<a href="#train_step/fit.gradient">fit</a>' in page


def test_a_graph_in_python_has_a_page_with_its_file() -> None:
    graph = Graph("small")
    net = graph.model("net", layers=[{"linear": 4}], optimizer="adam")
    graph.update(net, loss=graph.loss("mse", net(graph.input("x", ["batch", 4])), 0.0), name="fit")
    page = compile_step(graph.build()).html()
    data = read_data(page)
    assert data["files"] == ["test_page.py"]
    assert "net(graph.input" in page
    first = data["places"]["fit"][1]
    assert "name=&quot;fit&quot;" in page.split(f'id="line-0-{first}"')[1].split("</li>")[0]


def test_notebooks_show_the_picture() -> None:
    plan = compile_step(load(EXAMPLES[0]))
    assert plan.svg() in plan._repr_html_()


@pytest.mark.needs("torch")
def test_notebooks_show_the_picture_of_what_a_step_runs() -> None:
    step = build(compile_step(load(ROOT / "examples/simultaneous-gan/simultaneous-gan.yaml")), device="cpu")
    assert step._repr_html_() == step.plan._repr_html_()


def test_the_picture_in_the_documentation_is_that_of_the_command() -> None:
    """If this fails: stepgraph plan examples/gan-digits/gan-digits.yaml --format svg -o docs/images/gan-digits.svg."""
    plan = compile_step(load(ROOT / "examples/gan-digits/gan-digits.yaml"))
    assert (ROOT / "docs/images/gan-digits.svg").read_text(encoding="utf-8") == plan.svg()
