"""``stepgraph init``: a spec and the models it names, to begin with."""

from __future__ import annotations

from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from runtime.folder import cannot_write
from runtime.problems import problem
from runtime.terminal import say


class Template(StrEnum):
    """The specs to begin with."""

    gan = "gan"
    classifier = "classifier"


TemplateName: TypeAlias = Annotated[Template, typer.Argument(metavar="[TEMPLATE]", help="gan (default) or classifier.")]


def init(template: TemplateName = Template.gan) -> None:
    """Write a spec and a models.py with a model and a loss of one's own into this directory."""
    texts = _read(template)
    taken = [name for name in texts if Path(name).exists()]
    if taken:
        message = f"{' and '.join(taken)} {'exists' if len(taken) == 1 else 'exist'} already; nothing was written"
        raise problem("GS237", message, help="run it in an empty directory, or move the files away")
    for name, text in texts.items():
        _write(Path(name), text)
        say(f"wrote {name}")
    say(f"\nNow run:\n  stepgraph run {template.value}.yaml --allow models")


def _read(template: Template) -> dict[str, str]:
    """Return the files of a template by the names they get; Python is stored as text, being the user's and not ours."""
    folder = files("runtime") / "templates" / template.value
    names = {f"{template.value}.yaml": f"{template.value}.yaml", "models.py": "models.py.txt"}
    return {name: folder.joinpath(stored).read_text(encoding="utf-8") for name, stored in names.items()}


def _write(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise cannot_write(path, error) from error
