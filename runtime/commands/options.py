"""The arguments and options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

import typer


class Backend(StrEnum):
    """The frameworks whose hazards a plan can be made for."""

    torch = "torch"
    tensorflow = "tensorflow"


class Order(StrEnum):
    """The order policies of a plan."""

    fewest = "fewest"
    listed = "listed"
    latest = "latest"
    memory = "memory"


class Mode(StrEnum):
    """The modes of a step."""

    train = "train"
    eval = "eval"
    test = "test"
    infer = "infer"


SpecPath: TypeAlias = Annotated[Path, typer.Argument(metavar="SPEC", help="A graph spec: a YAML or JSON file.")]
Overrides: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("-s", "--set", metavar="KEY=VALUE", help="Override a value: -s vars.lr=1e-3. May be repeated."),
]
BackendOption: TypeAlias = Annotated[Backend, typer.Option("--backend", help="The framework the step is made for.")]
OrderOption: TypeAlias = Annotated[Order, typer.Option("--order", help="Which legal order of the updates is taken.")]
Output: TypeAlias = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write to a file instead of standard output.")
]
