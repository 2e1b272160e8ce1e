"""``stepgraph export``: the weights of a run that answer, and a mode of it as a program that needs no stepgraph."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from runtime.commands.options import Allow, CheckpointOption, Device, Mode, RunFolder
from runtime.terminal import counted, say

if TYPE_CHECKING:
    from compiler.ir.program import InputDecl
    from runtime.exported import Exported, ExportedModel, ExportedProgram


class Format(StrEnum):
    """What is exported."""

    weights = "weights"
    program = "program"
    both = "both"


Folder: TypeAlias = Annotated[
    Path | None, typer.Option("-o", "--out", metavar="DIR", help="The folder to write (default: RUN_DIR/export).")
]
ModeOption: TypeAlias = Annotated[
    Mode | None, typer.Option("--mode", help="The mode of the program (default: infer, else eval).")
]
Values: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--value", metavar="NAME", help="What the program gives (default: all outputs). May be repeated."),
]
FormatOption: TypeAlias = Annotated[Format, typer.Option("--format", help="What is exported.")]


def export(
    run: RunFolder,
    out: Folder = None,
    checkpoint: CheckpointOption = "best",
    mode: ModeOption = None,
    value: Values = None,
    device: Device = "cpu",
    allow: Allow = None,
    format: FormatOption = Format.both,
) -> None:
    """Export a run: the weights of its best checkpoint as safetensors files, and a mode that runs without stepgraph."""
    from runtime.runs.reopening import reopen

    opened = reopen(run, choice=checkpoint, device=device, allow=allow or ())
    exported = opened.step.export(
        run / "export" if out is None else out,
        format=format.value,
        mode=None if mode is None else mode.value,
        values=value or (),
        origin={"run": str(run), "checkpoint": opened.path.name},
    )
    say(f"{exported.folder} from {opened.path.name}")
    _tell(exported)


def _tell(exported: Exported) -> None:
    """Print what is in the folder."""
    files = [*exported.models.values(), *(() if exported.program is None else (exported.program,))]
    width = max(len(each.file) for each in files)
    for name, model in exported.models.items():
        say(f"  {model.file:{width}}  {_describe_model(name, model)}")
        for note in model.packed.notes:
            say(f"  {'':{width}}  {note}")
    if exported.program is not None:
        say(f"  {exported.program.file:{width}}  {_describe_program(exported.program)}")


def _describe_model(name: str, model: ExportedModel) -> str:
    """Return what a file of weights has."""
    tensors = counted(len(model.packed.tensors), "tensor")
    return tensors if model.source == name else f"{tensors} of {model.source}, which stands in for {name}"


def _describe_program(program: ExportedProgram) -> str:
    """Return what a program computes from what."""
    pure = program.pure
    inputs = ", ".join(_describe_input(entry, drawn=entry.name in pure.drawn) for entry in pure.program.inputs)
    left = f" (without {', '.join(pure.left_out)})" if pure.left_out else ""
    return f"mode {pure.mode}: {inputs or 'nothing'} -> {', '.join(pure.outputs)}{left}"


def _describe_input(entry: InputDecl, *, drawn: bool) -> str:
    """Return an input as it is declared."""
    kind = "a draw, " if drawn else ""
    return f"{entry.name} ({kind}{entry.dtype} [{', '.join(map(str, entry.shape or ()))}])"
