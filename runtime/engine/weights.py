"""Weight files: found and checked before anything is made, and read by models that get their tensors late."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar, cast

from msgspec import Struct

from compiler.ir.program import ModelDecl, Program
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic, SpecError
from runtime.codegen.build import WEIGHTS
from runtime.codegen.module import is_constructed
from runtime.engine.backend import BuildRequest
from runtime.engine.errors import diagnose_report
from runtime.engine.load import Loaded
from runtime.support.model_errors import ModelError
from runtime.support.weight_files import read_weights

M = TypeVar("M")
KINDS = {"float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64"}
"""Floating types, and what files call them."""


class WeightFiles(Struct, frozen=True, kw_only=True):
    """The files that weights are read from, by model, and notes on them."""

    paths: Mapping[str, str]
    notes: tuple[str, ...] = ()


NO_FILES = WeightFiles(paths={})


def find_files(program: Program, spec: GraphSpec, request: BuildRequest) -> WeightFiles:
    """Return the files of the models that are made here.

    Raises SpecError: GS271 for every file that cannot be read, or is not a weight file.
    """
    declared = {each.name: each.weights for each in program.models if each.weights is not None and request.weights}
    paths = {name: str((request.directory or Path()) / file) for name, file in declared.items()}
    problems: list[Diagnostic] = []
    notes: list[str] = [
        f"model '{name}' keeps the weights it was passed with" for name in paths if name in request.models
    ]
    wanted = {name: path for name, path in paths.items() if name not in request.models}
    for name, path in wanted.items():
        try:
            kinds = frozenset(each.kind for each in read_weights(name, path).values())
        except ModelError as error:
            problems.append(diagnose_report(error, spec))
            continue
        others = [each for each, kind in KINDS.items() if kind in kinds and each != request.dtype]
        if others:
            notes.append(f"the weights of '{name}' are {', '.join(others)} in {path!r}, and become {request.dtype}")
    if problems:
        raise SpecError(problems, spec.texts())
    return WeightFiles(paths={name: str(Path(path).absolute()) for name, path in wanted.items()}, notes=tuple(notes))


def find_late(program: Program, given: Iterable[str]) -> tuple[str, ...]:
    """Return the models with weights that are made by calling a user's class: their tensors may come later."""
    known = frozenset(given)
    return tuple(each.name for each in program.models if each.weights is not None and is_constructed(each, known))


def place_files(loaded: Loaded[object], files: WeightFiles, late: Iterable[str] = ()) -> None:
    """Set the paths of the files that an executed module reads, except for models that are read late."""
    listed = loaded.names.get(WEIGHTS)
    if isinstance(listed, dict):
        table = cast("dict[str, str]", listed)
        left = frozenset(late)
        wanted = {name: path for name, path in files.paths.items() if name in table and name not in left}
        table.clear()
        table.update(wanted)


def load_late(
    load: Callable[[M, str, str], None],
    models: Mapping[str, M],
    files: WeightFiles,
    late: Iterable[str],
    spec: GraphSpec,
) -> None:
    """Read the files of models that have their tensors by now; raise SpecError: GS271, GS272 what does not fit."""
    problems: list[Diagnostic] = []
    for name in (each for each in late if each in files.paths):
        try:
            load(models[name], name, files.paths[name])
        except ModelError as error:
            problems.append(diagnose_report(error, spec))
    if problems:
        raise SpecError(problems, spec.texts())


def find_rounds(models: Iterable[ModelDecl], known: frozenset[str]) -> Iterator[frozenset[str]]:
    """Yield the known models in the rounds they are made in: copies come once their originals are complete."""
    before: frozenset[str] = frozenset()
    listed = tuple(models)
    originals = frozenset(each.name for each in listed if each.like is None)
    own = frozenset(each.name for each in listed if each.initial == "own")
    for names in (known & originals, known & (originals | own), known):
        if names != before:
            yield names
        before = names
