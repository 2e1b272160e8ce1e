"""The arguments and options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from runtime.cli.completion import CHOICES, complete_checkpoint, complete_run, complete_spec
from runtime.engine.imports import is_package


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


SpecPath: TypeAlias = Annotated[
    Path,
    typer.Argument(metavar="SPEC", autocompletion=complete_spec, help="A graph spec: a YAML or JSON file."),
]
Overrides: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("-s", "--set", metavar="KEY=VALUE", help="Override a value: -s vars.lr=1e-3. May be repeated."),
]
Root: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="The folder that `include` does not leave (default: that of the project)."),
]
BackendOption: TypeAlias = Annotated[Backend, typer.Option("--backend", help="The framework the step is made for.")]
OrderOption: TypeAlias = Annotated[Order, typer.Option("--order", help="Which legal order of the updates is taken.")]
Output: TypeAlias = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write to a file instead of standard output.")
]


def _check_packages(names: list[str] | None) -> list[str]:
    for name in names or ():
        if not is_package(name):
            raise typer.BadParameter(f"{name!r} is not the name of a package")
    return names or []


def _check_choice(text: str) -> str:
    if text not in CHOICES and not text.isdecimal():
        raise typer.BadParameter(f"{text!r} is neither {' nor '.join(CHOICES)} nor the number of a step")
    return text


Device: TypeAlias = Annotated[
    str, typer.Option("--device", help="auto, cpu, cuda, cuda:1 or mps; gpu and gpu:1 with TensorFlow.")
]
Allow: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="PACKAGE",
        callback=_check_packages,
        help="Import classes out of this package. May be repeated.",
    ),
]
Xla: TypeAlias = Annotated[
    bool, typer.Option("--xla", help="Let XLA compile the step (TensorFlow only); the last bits of numbers change.")
]
Jit: TypeAlias = Annotated[
    bool,
    typer.Option("--jit", help="Capture each function that trains as one graph (PyTorch); the last bits change."),
]
JitDynamic: TypeAlias = Annotated[
    bool, typer.Option("--jit-dynamic", help="As --jit, with one graph for batches of every size, not one for each.")
]
RunFolder: TypeAlias = Annotated[
    Path, typer.Argument(metavar="RUN_DIR", autocompletion=complete_run, help="The folder of a run.")
]
CheckpointOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--checkpoint",
        metavar="STEP",
        callback=_check_choice,
        autocompletion=complete_checkpoint,
        help="best, newest, or the number of a step.",
    ),
]
