"""Patterns of parameters: which parameters a pattern chooses, and what is wrong with the patterns of a spec."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from compiler.facts.optimizers import find_optimizers
from compiler.ir.program import ModelDecl, OptimizerDecl
from graphspec.analysis.derived import find_derived
from graphspec.declare.graph import GraphSpec
from graphspec.declare.matching import read_pattern
from graphspec.declare.ops import AdaptOp, EmaOp, UpdateOp
from graphspec.declare.optimizers import MATRIX_RULES
from graphspec.declare.parameters import ConstraintSpec, GroupSpec, RegularizerSpec
from graphspec.diagnostics import Diagnostic
from graphspec.read.source import Path
from graphspec.words import closest

Names = Sequence[str]
"""The names of a model's parameters, each parameter's first."""
MOST = 8
"""How many names a message lists."""


def find_matching(pattern: str, names: Names) -> tuple[str, ...]:
    """Return the names in which a pattern is found."""
    return _find_matching(pattern, tuple(names))


@functools.lru_cache(maxsize=1_000)
def _find_matching(pattern: str, names: tuple[str, ...]) -> tuple[str, ...]:
    matched = read_pattern(pattern)
    return tuple(name for name in names if matched.is_found(name))


def find_known_names(models: Iterable[ModelDecl]) -> Mapping[str, tuple[str, ...]]:
    """Return the names of the parameters of every model whose structure is known: not those of classes."""
    known = (model for model in models if model.kind == "parameter" or model.layers)
    return {model.name: tuple(each.name for each in model.parameters) for model in known}


def find_tables(models: Iterable[ModelDecl], optimizer: OptimizerDecl) -> tuple[tuple[str, str], ...]:
    """Return, by model and name, the parameters that an optimizer steps whose gradients are rows."""
    declared = (model for model in models if model.name in optimizer.models)
    found = ((model.name, each.name) for model in declared for each in model.parameters if each.sparse)
    chosen, left = optimizer.chosen, optimizer.left

    def is_in(groups: Sequence[tuple[str, str]], model: str, name: str) -> bool:
        """Return whether one of some groups has a parameter."""
        return any(of == model and bool(find_matching(match, (name,))) for of, match in groups)

    return tuple(
        (model, name)
        for model, name in found
        if (not chosen or is_in(chosen, model, name)) and not is_in(left, model, name)
    )


def find_stepped(spec: GraphSpec, model: str, names: Names) -> tuple[str, ...]:
    """Return the names of the parameters of a model that no group freezes."""
    frozen = {each for group in _groups(spec, model) if group.is_frozen for each in find_matching(group.match, names)}
    return tuple(name for name in names if name not in frozen)


def check_patterns(spec: GraphSpec, known: Mapping[str, Names]) -> Iterator[Diagnostic]:
    """Yield E-MATCH for every pattern that fits nothing, for groups that overlap, and where all is frozen.

    ``known``: model -> names of its parameters, for the models that were inspected.
    """
    for use in _find_uses(spec, known):
        if find_matching(use.pattern, use.names):
            continue
        near = closest(re.sub(r"[^\w.]|\\.", "", use.pattern), use.names)
        listed = ", ".join((*use.names[:MOST], *(["..."] if len(use.names) > MOST else [])))
        kind = "stepped parameters" if use.kept else "parameters"
        yield Diagnostic(
            code="E-MATCH",
            message=f"no parameter of {use.owner} fits '{use.pattern}': its {kind} are {listed or 'none'}",
            span=spec.span(*use.path),
            label=f"did you mean {' or '.join(repr(name) for name in near)}?" if near else "fits nothing",
            help="write a regular expression that is found in a name, as in `bias$`",
        )
    for model, names in known.items():
        yield from _check_overlap(spec, model, names)
    for name, op in spec.ops.items():
        for index, model in enumerate(op.update if isinstance(op, UpdateOp) else ()):
            if known.get(model) and not find_stepped(spec, model, known[model]):
                message = f"the groups of model '{model}' freeze all of its parameters, but '{name}' updates it"
                span = spec.span("ops", name, "update", index)
                help = "remove the update, or leave something to step"
                yield Diagnostic(code="E-MATCH", message=message, span=span, help=help)
    for name, names in known.items():
        ruled = [group.match for group in _groups(spec, name) if group.optimizer is not None]
        stepped = find_stepped(spec, name, names)
        if ruled and all(_fits(ruled, each) for each in stepped):
            message = f"the groups of model '{name}' leave nothing to its optimizer: each has one of its own"
            help = "write the rule of one of them as the model's, and remove its group"
            yield Diagnostic(code="E-MATCH", message=message, span=spec.span("models", name, "groups"), help=help)


def check_matrices(spec: GraphSpec, shapes: Mapping[str, Mapping[str, Sequence[int | None]]]) -> Iterator[Diagnostic]:
    """Yield E-SHAPE for every optimizer that steps matrices alone, and has a parameter of another shape.

    ``shapes``: model -> shapes of its parameters by name, for the models that were inspected.
    """
    for cell in find_optimizers(spec):
        if cell.optimizer.name not in MATRIX_RULES:
            continue
        for model in (each for each in cell.models if each in shapes):
            names = find_stepped(spec, model, tuple(shapes[model]))
            chosen = [match for of, match in cell.chosen if of == model] or ["."]
            left = [match for of, match in cell.left if of == model]
            own = [name for name in names if _fits(chosen, name) and not _fits(left, name)]
            other = next((name for name in own if len(shapes[model][name]) != 2), None)
            if other is not None:
                shape = ", ".join(map(str, shapes[model][other]))
                message = f"{cell.optimizer.name} steps matrices, found '{model}.{other}' of shape [{shape}]"
                help = "give others another rule, as in `groups: [{match: bias$, optimizer: adamw}]` of the model"
                yield Diagnostic(code="E-SHAPE", message=message, span=spec.span(*cell.path), help=help)


def _fits(patterns: Iterable[str], name: str) -> bool:
    return any(find_matching(pattern, (name,)) for pattern in patterns)


class _Use(Struct, frozen=True, kw_only=True):
    """A pattern of the spec, and the names of which it must match at least one."""

    owner: str
    path: Path
    pattern: str
    names: Names
    kept: bool = False
    """Only parameters that are not frozen count."""


def _find_uses(spec: GraphSpec, known: Mapping[str, Names]) -> Iterator[_Use]:
    """Yield the patterns of groups, of constraints and regularizers of models and updates, and of derived models."""
    for model, names in known.items():
        for index, group in enumerate(_groups(spec, model)):
            path: Path = ("models", model, "groups", index, "match")
            yield _Use(owner=f"model '{model}'", path=path, pattern=group.match, names=names)
        declared, stepped = spec.models.get(model), find_stepped(spec, model, names)
        if declared is not None:
            path = ("models", model)
            yield from _find_several(f"model '{model}'", (*path, "constraint"), declared.constraint or (), stepped)
            yield from _find_several(f"model '{model}'", (*path, "regularizer"), declared.regularizer or (), stepped)
    for name, op in spec.ops.items():
        if isinstance(op, EmaOp) and op.ema in known:
            for field, pattern in (("match", op.match), ("exclude", op.exclude)):
                if pattern is not None:
                    yield _Use(owner=f"'{op.ema}'", path=("ops", name, field), pattern=pattern, names=known[op.ema])
        if isinstance(op, UpdateOp) and op.constraint and all(model in known for model in op.update):
            stepped = tuple(each for model in op.update for each in find_stepped(spec, model, known[model]))
            yield from _find_several(f"update '{name}'", ("ops", name, "constraint"), op.constraint, stepped)
    derived = find_derived(spec)
    for name, op in spec.ops.items():
        for index, group in enumerate(op.groups if isinstance(op, AdaptOp) and derived.get(name) in known else ()):
            model, path = derived[name], ("ops", name, "groups", index, "match")
            yield _Use(owner=f"model '{model}'", path=path, pattern=group.match, names=known[model])


def _find_several(
    owner: str, path: Path, declared: Sequence[ConstraintSpec | RegularizerSpec], names: Names
) -> Iterator[_Use]:
    """Yield the patterns of a list of constraints or regularizers."""
    for index, each in enumerate(declared):
        if each.match is not None:
            yield _Use(owner=owner, path=(*path, index, "match"), pattern=each.match, names=names, kept=True)


def _check_overlap(spec: GraphSpec, model: str, names: Names) -> Iterator[Diagnostic]:
    """Yield a problem for every group with a parameter that an earlier one has."""
    groups = _groups(spec, model)
    owners: dict[str, list[int]] = {}
    for index, group in enumerate(groups):
        for name in find_matching(group.match, names):
            owners.setdefault(name, []).append(index)
    shared: dict[tuple[int, int], str] = {}
    for name in names:
        first, *others = owners.get(name, [0])
        for index in others:
            shared.setdefault((first, index), name)
    for first, index in sorted(shared):
        both = f"'{groups[first].match}', '{groups[index].match}'"
        message = f"parameter '{shared[first, index]}' of model '{model}' is in two groups: {both}"
        span = spec.span("models", model, "groups", index, "match")
        help = "write patterns that exclude each other: a parameter is in one group at most"
        yield Diagnostic(code="E-MATCH", message=message, span=span, label="fits it too", help=help)


def _groups(spec: GraphSpec, model: str) -> tuple[GroupSpec, ...]:
    """Return the groups of a model; the hidden model of an average has none."""
    return spec.models[model].groups if model in spec.models else ()
