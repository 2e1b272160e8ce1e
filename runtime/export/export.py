"""Export of a step: its weights outside train mode, and a mode as a program, in a folder of their own."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal, TypeAlias

from msgspec.structs import replace

from compiler import Plan
from compiler.ir.program import ModeProgram, Program
from compiler.passes.eval_averages import find_all_eval_averages
from graphspec.declare.ops import EmaOp
from runtime.checkpoints.disk import make_folder, replace_file, replace_folder
from runtime.checkpoints.format import find_versions, open_object
from runtime.engine.backend import Engine, PackedModel, PackedProgram
from runtime.export.pure import Pure, purify
from runtime.folder import cannot_write, name_folder
from runtime.problems import problem
from runtime.state import Plain, PlainModel

LISTING = "export.json"
FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedModel:
    """The file of a model's weights; ``source`` is the model that owns them: the model itself, or its average."""

    file: str
    source: str
    packed: PackedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedProgram:
    """The file or folder of a program, and what it computes."""

    file: str
    pure: Pure
    packed: PackedProgram

    def files(self) -> dict[str, bytes]:
        """Return the content of every file by its path."""
        return {f"{self.file}/{path}" if path else self.file: content for path, content in self.packed.files.items()}

    def describe(self) -> dict[str, Plain]:
        """Return its files with their checksums, the mode, its inputs and how the step draws them, and its outputs."""
        pure, files = self.pure, self.packed.files
        inputs: dict[str, Plain] = {}
        for entry in pure.program.inputs:
            described: dict[str, Plain] = {"shape": [*(entry.shape or ())], "dtype": entry.dtype}
            drawn = pure.drawn.get(entry.name)
            if drawn is not None:
                described |= {"random": drawn.distribution, "args": json.loads(json.dumps(dict(drawn.options)))}
            inputs[entry.name] = described
        marks: dict[str, Plain] = {path: _mark(content) for path, content in files.items()}
        return {
            "file": self.file,
            **(_mark(files[""]) if "" in files else {"files": marks}),
            "mode": pure.mode,
            "inputs": inputs,
            "outputs": [*pure.outputs],
            "left_out": [*pure.left_out],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What :meth:`Step.export` wrote, and where.

    >>> from tempfile import mkdtemp
    >>> from compiler import compile_step
    >>> from graphspec import load
    >>> from runtime import build
    >>> step = build(compile_step(load("examples/simultaneous-gan/simultaneous-gan.yaml")), device="cpu")
    >>> exported = step.export(f"{mkdtemp()}/exported", format="weights")
    >>> exported.models["generator"].packed.tensors["0.weight"]
    ((128, 16), 'float32')
    """

    folder: Path
    models: Mapping[str, ExportedModel]
    """The files of weights by model; none without weights."""
    program: ExportedProgram | None
    """The program; None without one."""
    untaken: frozenset[str] = frozenset()
    """The models of averages that were not taken yet: their weights are those that they began with."""

    def __repr__(self) -> str:
        """Return the folder and the names in it, short for any export."""
        names = [*(model.file for model in self.models.values()), *([self.program.file] if self.program else [])]
        return f"<exported into {str(self.folder)!r}: {', '.join(names)}>"

    def files(self) -> dict[str, bytes]:
        """Return the content of every file but the listing, by its path in the folder.

        >>> list(exported.files())
        ['generator.safetensors', 'discriminator.safetensors']
        """
        files = {model.file: model.packed.content for model in self.models.values()}
        return files if self.program is None else {**files, **self.program.files()}

    def describe(self, program: Program, origin: Mapping[str, Plain]) -> bytes:
        """Return the listing as JSON: what every file is, and where it comes from."""
        listing: dict[str, Plain] = {"export": FORMAT, "name": program.name, **origin, "backend": program.backend}
        weights: dict[str, Plain] = {}
        for name, model in self.models.items():
            found = model.packed.tensors.items()
            tensors: Plain = {key: {"shape": [*shape], "dtype": dtype} for key, (shape, dtype) in found}
            weights[name] = {
                "file": model.file,
                **_mark(model.packed.content),
                "of": model.source,
                "tensors": tensors,
                **({"taken": False} if model.source in self.untaken else {}),
            }
        listing["weights"] = weights
        if self.program is not None:
            listing["program"] = self.program.describe()
        listing["versions"] = dict[str, Plain](find_versions(program.backend))
        return (json.dumps(listing, indent=2) + "\n").encode("ascii")


class ListedFile(PlainModel):
    """The file, or the folder of files, of a model or program in a listing."""

    file: str
    files: dict[str, object] | None = None


class Listing(PlainModel):
    """The files of an export."""

    export: int
    weights: dict[str, ListedFile]
    program: ListedFile | None = None


def find_listed(folder: Path) -> frozenset[str]:
    """Return the names of the files that an export wrote into a folder; none where it is not an export."""
    try:
        listing = Listing.read(open_object((folder / LISTING).read_bytes()))
    except (OSError, ValueError):
        return frozenset()
    found = {LISTING}
    for part in (*listing.weights.values(), *([] if listing.program is None else [listing.program])):
        found.update([part.file] if part.files is None else [f"{part.file}/{path}" for path in part.files])
    return frozenset(found)


def _mark(content: bytes) -> dict[str, Plain]:
    """Return the size and checksum of a file's content."""
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


PREFERRED = ("infer", "eval", "test")
"""The modes to export where none is named: the first of these that the step has."""

Format: TypeAlias = Literal["weights", "program", "both"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to export: which files, of which mode (None: the first preferred), which values (none: its outputs)."""

    format: Format = "both"
    mode: str | None = None
    values: tuple[str, ...] = ()
    origin: Mapping[str, Plain] = field(default_factory=dict[str, "Plain"])
    """The origin of the numbers, for the listing."""


def export_step(plan: Plan, engine: Engine, folder: Path, wanted: Wanted) -> Exported:
    """Write weights and program of a step into a folder, which appears whole or not at all.

    An older export is replaced. Raises SpecError: GS234 where something else is there, or the system refuses; GS265
    for everything that cannot be exported; GS266 for a mode that the step does not have, or that changes models.
    """
    place = Path(os.path.abspath(folder))  # so that `.` has a name, too
    try:
        if place.exists() and not place.is_dir():
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
        others = _find_others(place) if place.is_dir() else []
        if others:  # they would be lost
            raise OSError(errno.EEXIST, f"a folder stands there with what is no part of an export ({others[0]})")
        averaged, models, program = engine.averaged(), dict[str, ExportedModel](), None
        if wanted.format != "program":  # models and averages, with their weights in a mode other than train
            swapped = {swap.model: swap.target for swap in find_all_eval_averages(plan.spec) if swap.op in averaged}
            for name in (model.name for model in plan.program.models):
                source = swapped.get(name, name)
                packed = engine.pack_model(source)
                models[name] = ExportedModel(file=f"{name}.safetensors", source=source, packed=packed)
        if wanted.format != "weights":
            mode = find_mode(plan.program, wanted.mode, wanted.values)
            pure = purify(plan, mode, averaged, wanted.values)
            # The types of the inputs are those that the step was built for.
            inputs = tuple(replace(entry, dtype=engine.accepts(entry)[-1]) for entry in pure.program.inputs)
            pure = replace(pure, program=replace(pure.program, inputs=inputs))
            packed = engine.pack_program(pure.program)
            name = f"{name_folder(plan.program.name, 1).name}{packed.suffix}"
            program = ExportedProgram(file=name, pure=pure, packed=packed)
        ops = {name: op for name, op in plan.spec.ops.items() if isinstance(op, EmaOp)}
        untaken = frozenset(op.target(name) for name, op in ops.items() if name not in averaged)
        exported = Exported(folder=folder, models=models, program=program, untaken=untaken)
        listing = exported.describe(plan.program, {"step": engine.steps("train"), **wanted.origin})
        rest = re.compile(rf"\.{re.escape(place.name)}-[0-9a-f]{{8}}\.(new|old)")  # of an export that was killed
        for entry in place.parent.iterdir() if place.parent.is_dir() else ():
            if rest.fullmatch(entry.name) and entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
        replace_folder(place, {**exported.files(), LISTING: listing})
    except OSError as error:
        raise cannot_write(folder, error) from error
    return exported


def write_weights(engine: Engine, model: str, path: Path) -> PackedModel:
    """Write the weights of one model into a file, which appears whole or not at all.

    Raises SpecError: GS234 where the system refuses, GS265 for types that safetensors does not have.
    """
    packed = engine.pack_model(model)
    try:
        make_folder(path.absolute().parent)
        replace_file(path, packed.content)
    except OSError as error:
        raise cannot_write(path, error) from error
    return packed


def find_mode(program: Program, wanted: str | None, values: Sequence[str] = ()) -> ModeProgram:
    """Return the mode to export: without a name the first preferred one that computes all ``values``.

    Raises SpecError (GS266) where there is none.
    """
    known = {mode.mode: find_defined(mode) for mode in program.modes}
    known = {name: defined for name, defined in known.items() if defined}
    offered = [mode for mode in PREFERRED if mode in known]
    name = wanted or next((mode for mode in offered if known[mode].issuperset(values)), next(iter(offered), None))
    if name is None:
        message = "the step computes nothing outside train mode, so there is no program to export"
        help = "let an op run there, as in `mode: infer`, or export the weights alone with `--format weights`"
        raise problem("GS266", message, help=help)
    if name not in known:
        message = f"the step has no mode '{name}' to export: it has {', '.join(known)}"
        raise problem("GS266", message, help="name another with `--mode`, or let an op run in that mode")
    return next(mode for mode in program.modes if mode.mode == name)


def find_defined(mode: ModeProgram) -> frozenset[str]:
    """Return the values that a mode computes."""
    return frozenset(value for function in mode.functions for each in function.instructions for value in each.defines)


def _find_others(place: Path) -> list[str]:
    """Return what is in a folder and no part of an export; subfolders are only inspected where the top is as listed."""
    listed = find_listed(place)
    top = {entry.name for entry in place.iterdir()} - {name.partition("/")[0] for name in listed}
    if top:
        return sorted(top)
    folders = {parent.as_posix() for name in listed for parent in PurePosixPath(name).parents}
    return sorted({entry.relative_to(place).as_posix() for entry in place.rglob("*")} - listed - folders)
