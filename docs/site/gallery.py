"""The gallery: a page for every spec of examples/, made by the compiler, and an index with a card for each."""

from __future__ import annotations

import contextlib
import html
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import indent

from compiler import Plan, compile_step
from docs.site.fences import LANGUAGES, fence, write_prose
from graphspec import SpecError, load
from graphspec.diagnostics import render
from runtime import emit
from runtime.cli.init import Template, find_next, find_title, read_template
from runtime.train.pace import find_declared_pace

BACKENDS: Mapping[str, str] = {"torch": "PyTorch", "tensorflow": "TensorFlow"}
INDEX = "gallery/index.md"
WIDE = "---\nhide: [navigation, toc]\n---\n"
EDITOR = re.compile(r"# yaml-language-server: .*\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A spec of examples/: the name of its page, what its comment says, its files, and how `init` begins with it."""

    name: str
    path: Path
    title: str
    comment: str
    template: Template

    @property
    def twin(self) -> Path:
        """Return the file that declares the same spec in Python."""
        return self.path.with_name(f"{self.path.stem.replace('-', '_')}.py")

    @property
    def others(self) -> list[Path]:
        """Return the other text files of its folder."""
        paths = sorted(self.path.parent.iterdir())
        return [path for path in paths if path.suffix in LANGUAGES and path not in (self.path, self.twin)]


def find_examples(folder: Path) -> list[Example]:
    """Return every spec of the examples; the one with the name of its folder stands for it."""
    found: list[Example] = []
    for path in sorted(folder.glob("*/*.yaml")):
        template = read_template(path.parent)
        text = EDITOR.sub("", path.read_text(encoding="utf-8"))
        lines = re.match(r"(?:#.*\n)*", text)
        comment = " ".join(line.removeprefix("#").strip() for line in lines[0].splitlines()) if lines else ""
        name = path.parent.name if template.spec == path.name else path.stem
        own = replace(template, spec=path.name)
        found.append(Example(name=name, path=path, title=find_title(text), comment=comment, template=own))
    return sorted(found, key=lambda each: (each.path.parent, each.path.parent.name != each.name, each.name))


def compile_example(example: Example, backend: str) -> Plan:
    """Return the plan of an example as `stepgraph plan` makes it."""
    spec = load(example.path)
    return compile_step(spec, backend=backend, pace=find_declared_pace(spec, example.path), pending=True)


def write_example(example: Example, links: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the files of an example on the site by their places: the picture of its plan, its page, and its own page.

    ``links`` are the pages of its other files, by their names.
    """
    name, plan = example.name, compile_example(example, "torch")
    yield f"gallery/{name}.svg", plan.svg()
    yield f"gallery/{name}.plan.html", plan.html()
    picture = f"[![the plan of {name}]({name}.svg)]({name}.svg){{.plan}}\n"
    specs = {
        label: fence(path.read_text(encoding="utf-8"), LANGUAGES[path.suffix], path.name)
        for label, path in (("YAML", example.path), ("Python", example.twin))
    }
    others = "".join(f"- [{path.name}]({links[path.name]})\n" for path in example.others)
    parts = (
        f'{WIDE}# {name}\n\n<p class="lead">{write_prose(example.comment)}</p>\n',
        fence("\n".join(_list_commands(example)), "bash"),
        "## The plan {data-search-exclude}\n",
        f"What happens in a step, as a picture and as `stepgraph plan` prints it. [The page]({name}.plan.html) that "
        "`--format html` writes tells the reasons of every line.\n",
        _write_pair({"Picture": picture, "Text": fence(plan.text(), "text", "stepgraph plan")}),
        "## The spec\n",
        _write_pair(specs),
        "## The code {data-search-exclude}\n",
        "What `stepgraph emit` writes on each backend.\n",
        _write_pair({label: _emit(example, backend) for backend, label in BACKENDS.items()}),
        f"## Other files\n\n{others}" if others else "",
    )
    yield f"gallery/{name}.md", "\n".join(parts)


def write_index(examples: Sequence[Example]) -> str:
    """Return the index of the gallery: a card for every example."""
    cards = "".join(
        f'<a class="card" href="{each.name}.html"><img src="{each.name}.svg" alt="" loading="lazy">'
        f"<strong>{html.escape(each.name)}</strong><span>{write_prose(each.title)}</span></a>"
        for each in examples
    )
    about = "Every example with the picture of its plan, its spec in YAML and in Python, and the emitted code. Each "
    about += (
        "trains on a CPU; `stepgraph init NAME` copies one. [What each shows, and how well it learns](../examples.md)."
    )
    return f'---\nhide: [toc]\n---\n# Gallery\n\n{about}\n\n<div class="cards">{cards}</div>\n'


def _write_pair(blocks: Mapping[str, str]) -> str:
    """Return blocks that stand beside each other where there is room for both, as tabs elsewhere."""
    tabs = "\n".join(f'=== "{label}"\n\n{indent(block, "    ")}' for label, block in blocks.items())
    return f'<div class="pair" markdown>\n\n{tabs}\n</div>\n'


def _list_commands(example: Example) -> list[str]:
    """Return the commands that write an example into an empty folder and train it, as `stepgraph init` tells them."""
    with TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name, content in example.template.files.items():
            Path(name).write_bytes(content)
        return [f"stepgraph init {example.path.parent.name}", *find_next(example.template)]


def _emit(example: Example, backend: str) -> str:
    """Return the emitted code as a block, or what `emit` says where it writes none."""
    title = f"stepgraph emit --backend {backend}"
    try:
        return fence(emit(compile_example(example, backend)), "python", title)
    except SpecError as error:
        told = render(error.diagnostics, error.texts).replace(f"{example.path.parent}{os.sep}", "")
        return fence(told, "text", title)
