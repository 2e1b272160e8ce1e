"""The user's code: imports of allowed classes and functions, models that the caller gives, parameters they share."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from compiler.facts.parameters import check_patterns
from compiler.ir.cell import buffers_of, find_parameter_cells
from compiler.ir.program import InputDecl, Program
from graphspec.declare.graph import GraphSpec
from graphspec.declare.matching import is_found
from graphspec.declare.ops import UpdateOp
from graphspec.declare.optimizers import OptimizerSpec
from graphspec.declare.parameters import GroupSpec
from graphspec.diagnostics import Diagnostic, Span, SpecError
from graphspec.words import closest
from runtime.codegen.module import find_user_paths
from runtime.codegen.resources import find_instructions
from runtime.engine.backend import BuildRequest
from runtime.engine.errors import diagnose_report
from runtime.engine.imports import require_allowed, resolve
from runtime.engine.load import find_span
from runtime.support.model_errors import ModelError
from runtime.support.model_types import require_types

M = TypeVar("M")


def import_users(program: Program, spec: GraphSpec, request: BuildRequest) -> None:
    """Import every class and function of the user's that a program needs, each only if it is allowed.

    Raises SpecError with every import that failed, and with all that is not allowed before anything is imported.
    """
    named = find_imports(program, spec, frozenset(request.models))
    try:
        require_allowed(named, request.allow, spec.texts())
    except SpecError as error:
        if not request.models:
            raise
        # Who gives models may give this one, too.
        first, names = error.diagnostics[0], find_user_paths(program, frozenset(request.models))
        name = next(each for path, each in names.items() if repr(path) in first.message)
        help = f"{first.help}; or give a module for it: `models={{'{name}': ...}}`"
        raise SpecError((replace(first, help=help),), spec.texts()) from error
    problems: list[Diagnostic] = []
    for path, span in named.items():
        try:
            resolve(path, request.allow, directory=request.directory, span=span, texts=spec.texts())
        except SpecError as error:
            problems.extend(error.diagnostics)
    if problems:
        raise SpecError(problems, spec.texts())


def find_imports(program: Program, spec: GraphSpec, given: frozenset[str] = frozenset()) -> dict[str, Span | None]:
    """Return every class and function of the user's that a program needs, and its place; ``given`` models need none."""
    found = find_user_paths(program, given)
    return {path: _find_import(spec, path, name, program.backend) for path, name in found.items()}


def _find_import(spec: GraphSpec, path: str, name: str, backend: str) -> Span | None:
    """Return where a model, its optimizer or an op names the object to import."""
    name, _, epoch = name.partition("@")
    model, op = spec.models.get(name), spec.ops.get(name)
    if model is not None and model.class_path(backend) == path:
        return spec.span("models", name, "class")
    if model is not None and model.like is None:
        return spec.span("models", name, "optimizer", *_find_phase(model.optimizer, epoch), "class")
    if op is not None:
        optimizer = op.optimizer if isinstance(op, UpdateOp) else None
        where = (op.kind,) if optimizer is None else ("optimizer", *_find_phase(optimizer, epoch), "class")
        return spec.span("ops", name, *where)
    return find_span(spec, name)


def _find_phase(optimizer: OptimizerSpec | None, epoch: str) -> tuple[str, ...]:
    """Return the key of an optimizer that changes by epochs; empty for one that does not."""
    return (epoch or "1",) if optimizer is not None and optimizer.epochs else ()


def check_given(
    given: Mapping[str, object], program: Program, spec: GraphSpec, kinds: type[M] | tuple[type[M], ...], expected: str
) -> dict[str, M]:
    """Return the given models; raise SpecError (GS208) for names the spec lacks and objects of other ``kinds``."""
    known = [model.name for model in program.models]
    problems: list[Diagnostic] = []
    models: dict[str, M] = {}
    for name, model in given.items():
        if name not in known:
            near = closest(name, known)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            message = f"a model {name!r} is given, but the spec has {', '.join(known)}{meant}"
            problems.append(Diagnostic(code="GS208", message=message))
        elif not isinstance(model, kinds):
            found = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
            message = f"model '{name}' is given as {found}, expected {expected}"
            help = f"give an object of it: `{model.__name__}(...)`" if isinstance(model, type) else ""
            problems.append(Diagnostic(code="GS208", message=message, span=find_span(spec, name), help=help))
        elif program.model(name).has_rows:
            message = f"model '{name}' is given, and the spec's own has an embedding whose gradient is rows"
            help = "remove `sparse: true` from the embedding, or give no model"
            problems.append(Diagnostic(code="GS208", message=message, span=find_span(spec, name), help=help))
        else:
            models[name] = model
    if problems:
        raise SpecError(problems, spec.texts())
    return models


class Memory(Struct, frozen=True, kw_only=True):
    """The parameters and buffers of a model by name, each as a key of its memory.

    ``hidden``: parameters of modules that the model holds without registering them.
    """

    parameters: Mapping[str, object]
    buffers: Mapping[str, object]
    hidden: Mapping[str, object] = {}


def find_undeclared_ties(models: Mapping[str, Memory], program: Program, spec: GraphSpec) -> Iterator[Diagnostic]:
    """Yield a problem (GS213) for every two models that share a parameter the spec does not say they share.

    Buffers that models share must not be written: the step orders writes by model.
    """
    cells = find_parameter_cells(spec)
    written = {at.cell for each in find_instructions(program) for at in each.writes}
    for (one, first), (other, second) in combinations(models.items(), 2):
        is_declared = not set(cells.get(one, ())).isdisjoint(cells.get(other, ()))
        ways = (
            ()
            if is_declared
            else (
                (one, first.parameters, other, {**second.hidden, **second.parameters}),
                (other, second.parameters, one, first.hidden),
            )
        )
        shared = (
            (owner, names[storage], user, name)
            for owner, owned, user, used in ways
            for names in ({storage: name for name, storage in owned.items()},)
            for name, storage in used.items()
            if storage in names
        )
        for owner, own, user, name in itertools.islice(shared, 1):
            message = f"models '{owner}' and '{user}' share the parameter '{name}', which the spec does not say"
            help = f"declare it: `traits: {{ties: [{owner}.{own}]}}`"
            yield Diagnostic(code="GS213", message=message, span=find_span(spec, user), help=help)
        both = [name for name, storage in second.buffers.items() if storage in {*first.buffers.values()}]
        if both and written & {buffers_of(one), buffers_of(other)}:
            message = f"models '{one}' and '{other}' share the buffer '{both[0]}', which a call in training writes"
            help = "give each model its own, or make one class of the two and call its methods (`method:`)"
            yield Diagnostic(code="GS213", message=message, span=find_span(spec, other), help=help)


def find_other_types(models: Mapping[str, Mapping[str, str]], dtype: str, spec: GraphSpec) -> Iterator[Diagnostic]:
    """Yield a problem (GS208) for every model whose parameters, type by name, have types the step cannot train."""
    for name, found in models.items():
        try:
            require_types(name, found, dtype)
        except ModelError as error:
            yield diagnose_report(error, spec)


Parameters = Mapping[str, object]
"""The parameters of a model by name, each under its first."""


def check_parameters(models: Mapping[str, Parameters], program: Program, spec: GraphSpec) -> Iterator[Diagnostic]:
    """Yield E-MATCH for patterns that fit nothing or overlap, and for shared parameters whose groups differ."""
    yield from check_patterns(spec, {name: tuple(parameters) for name, parameters in models.items()})
    trained = [model.name for model in program.models if model.trained and model.name in models]
    for one, other in combinations(trained, 2):
        shared = {id(parameter): name for name, parameter in models[one].items()}
        for name, parameter in models[other].items():
            first = shared.get(id(parameter))
            if first is not None and _find_group(one, first, spec) != _find_group(other, name, spec):
                message = f"'{one}.{first}' and '{other}.{name}' are one parameter, "
                message += "but the groups of their models give it different options"
                help = "write the same for it in the groups of both models"
                yield Diagnostic(code="E-MATCH", message=message, span=find_span(spec, other), help=help)


def _find_group(model: str, name: str, spec: GraphSpec) -> GroupSpec | None:
    """Return the options of a parameter's group, without the pattern; None where it is in no group."""
    found = next((group for group in spec.models[model].groups if is_found(group.match, name)), None)
    scale = 1.0 if found is None or found.lr_scale is None else found.lr_scale
    return None if found is None else found.model_copy(update={"match": "", "lr_scale": scale})


CONVERTED = ("float32", "float64")
"""Declared types that are replaced by the type a step is built for."""


def find_shapes(program: Program, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]] | None:
    """Return the shape of every input, free sizes as given; None where a size, or a shape, is not known."""
    shapes: dict[str, tuple[int, ...]] = {}
    for entry in program.inputs:
        if entry.shape is None or any(isinstance(size, str) and size not in sizes for size in entry.shape):
            return None
        shapes[entry.name] = tuple(size if isinstance(size, int) else sizes[size] for size in entry.shape)
    return shapes


def accepted_types(declared: InputDecl, built: str) -> tuple[str, ...]:
    """Return the types an input may have: as declared, or as the step is built."""
    return tuple(dict.fromkeys((declared.dtype, built))) if declared.dtype in CONVERTED else (declared.dtype,)
