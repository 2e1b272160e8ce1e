"""``stepgraph init``: a spec to begin with, from a template or an example."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from graphspec.words import closest
from runtime.cli.bundled import find_bundled
from runtime.cli.completion import keep
from runtime.folder import cannot_write
from runtime.problems import problem
from runtime.terminal import say

DEFAULT = "gan"
_JUDGED = "judgement.py"  # measures an example in a checkout
_WIDEST = 90
_EDITOR = re.compile(r"# yaml-language-server: .*\n")
_END = re.compile(r"(?<=\.)(?<!\bet al\.)\s")
_ASIDE = re.compile(r"[:;]| \((?![^()]*\d{4})")
"""What a title goes without: but a work is named with its authors and year."""
_NEIGHBOUR = re.compile(r"(?<!\.\./)\.\./([\w-]+)/([\w-]+\.\w+)")
"""A file of another example."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """What `init` writes: files by name, the spec among them, and what it is in one line."""

    spec: str
    files: Mapping[str, bytes]
    title: str


def find_templates() -> dict[str, Path]:
    """Return the folders of all templates by name: those made to be edited first, then the examples."""
    folders = (Path(__file__).parents[1] / "templates", find_bundled("examples", "examples"))
    listed = (path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir()))
    return {path.name: path for path in listed if any(path.glob("*.yaml"))}


def read_template(folder: Path) -> Template:
    """Return what a folder holds for a user; a file of another example that it names comes along, under its bare name.

    The spec is the file with the name of the folder, else the first.
    """
    found: dict[str, bytes] = {}
    for path in sorted(path for path in folder.iterdir() if path.is_file() and path.name != _JUDGED):
        content = path.read_bytes()
        if path.suffix in (".yaml", ".py", ".md"):
            text = _EDITOR.sub("", content.decode("utf-8"))
            for other, name in _NEIGHBOUR.findall(text):
                neighbour = folder.parent / other / name
                if neighbour.is_file():
                    found[name] = neighbour.read_bytes()
            content = _NEIGHBOUR.sub(r"\2", text).encode("utf-8")
        found[path.stem if path.name.endswith(".py.txt") else path.name] = content  # models.py.txt: not code of our own
    specs = [name for name in found if name.endswith(".yaml")]
    spec = f"{folder.name}.yaml" if f"{folder.name}.yaml" in specs else specs[0]
    return Template(spec=spec, files=found, title=find_title(found[spec].decode("utf-8")))


def find_title(text: str) -> str:
    """Return the first sentence of the comment at the top of a spec, or what is before its colon if it is long."""
    lines = text.partition("\n\n")[0].splitlines()
    comment = " ".join(line.removeprefix("#").strip() for line in lines if line.startswith("#"))
    sentence = _END.split(comment, maxsplit=1)[0].rstrip(".")
    return sentence if len(sentence) <= _WIDEST else _ASIDE.split(sentence)[0]


def find_next(template: Template) -> list[str]:
    """Return the commands that train a template that was written here: what it needs is made first."""
    from compiler import compile_step
    from graphspec.loading import load
    from runtime.data.open import find_classes
    from runtime.engine.user_models import find_imports
    from runtime.train.pace import find_declared_pace

    spec = load(Path(template.spec))
    sources = map(spec.source, spec.data)
    paths = [Path(source.path) for source in sources if source is not None and source.path is not None]
    missing = [path.name for path in paths if not path.exists()]
    scripts: list[str] = []
    for name, text in template.files.items():
        # The first lines of a script that makes a file say so.
        says = (ast.get_docstring(ast.parse(text)) or "") if name.endswith(".py") else ""
        if any(each in says for each in missing):
            scripts.append(name)
    plan = compile_step(spec, pace=find_declared_pace(spec, Path()), pending=True)
    classes = (*find_imports(plan.program, spec), *find_classes(spec, spec.data))
    packages = dict.fromkeys(path.split(":")[0].split(".")[0] for path in classes)
    allowed = "".join(f" --allow {package}" for package in packages)
    return [*(f"python {name}" for name in scripts), f"stepgraph run {template.spec}{allowed}"]


def _show_templates(wanted: bool) -> None:
    if not wanted:
        return
    templates = find_templates()
    width = max(map(len, templates))
    for name, folder in templates.items():
        say(f"{name:{width}}  {read_template(folder).title}")
    raise typer.Exit


def _check_name(name: str) -> str:
    known = find_templates()
    if name not in known:
        near = closest(name, list(known))
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise typer.BadParameter(f"there is no template {name!r}{meant} (`stepgraph init --list` shows all)")
    return name


def _complete(incomplete: str) -> list[str]:
    return keep(find_templates(), incomplete)


TemplateName: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="[TEMPLATE]",
        callback=_check_name,
        autocompletion=_complete,
        help="gan (default), classifier, or an example: see --list.",
    ),
]
ListOption: TypeAlias = Annotated[
    bool, typer.Option("--list", callback=_show_templates, is_eager=True, help="Show all templates, and exit.")
]


def init(template: TemplateName = DEFAULT, listed: ListOption = False) -> None:
    """Write a spec and what it needs into this directory: a template to edit, or an example."""
    found = read_template(find_templates()[template])
    taken = [name for name in found.files if Path(name).exists()]
    if taken:
        message = f"{' and '.join(taken)} {'exists' if len(taken) == 1 else 'exist'} already; nothing was written"
        raise problem("GS237", message, help="run it in an empty directory, or move the files away")
    for name, content in found.files.items():
        try:
            with Path(name).open("xb") as file:
                file.write(content)
        except OSError as error:
            raise cannot_write(Path(name), error) from error
        say(f"wrote {name}")
    say("\nNow run:\n" + "\n".join(f"  {command}" for command in find_next(found)))
