"""Checks of gradients that are rows: E-ROWS."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.facts.optimizers import find_optimizers
from compiler.facts.parameters import find_matching, find_tables
from compiler.ir.instructions import (
    Accumulate,
    Apply,
    CheckFinite,
    Forward,
    Gradient,
    TakeAccumulated,
    Transform,
)
from compiler.ir.mode_graph import ModeGraph
from compiler.ir.program import Program
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import UpdateOp
from graphspec.diagnostics import Diagnostic
from graphspec.read.source import Path

ROWWISE = frozenset(
    {
        *("join", "regularize", "scale", "clip_norm", "clip_value", "normalize", "project", "pcgrad"),
        *("add_sets", "sub_sets", "mul_sets", "lerp_sets"),
    }
)
"""Transforms for which rows that are all zero stay so, and count nothing."""
WITHOUT = "or remove `sparse: true` from the embedding"


def check_row_sets(graph: ModeGraph) -> Iterator[Diagnostic]:
    """Yield E-ROWS for what takes a gradient set with rows and cannot, or would need the gradient of one."""
    again = {name for path in graph.paths.values() for name in path.nodes}
    for node in graph.nodes.values():
        whose, field, help = f"'{node.op}'", "", ""
        match node:
            case Forward() if graph.models[node.model].has_rows and node.checkpoint:
                message, field, help = f"{whose} is recomputed", "checkpoint", "remove `checkpoint`"
            case Gradient(rows=True, weights=str()):
                message, help = f"{whose} differentiates by a derived model", "derive one without such embeddings"
            case Gradient(rows=True, unconnected="skip" | "zero" as unconnected):
                field = "missing" if isinstance(graph.spec.ops[node.op], UpdateOp) else "unconnected"
                message, help = f"{whose} has `{field}: {unconnected}`", f"remove `{field}`"
            case Gradient(rows=True) if node.id in again:
                message = f"the gradient of {whose} is differentiated again"
                help = "take it without the embedding's model"
            case Accumulate(rows=True, may_miss=True) | Transform(rows=True, may_miss=True):
                message, help = f"some steps of {whose} may lack gradients", "let every step compute all of its loss"
            case Transform(rows=True, function=function) if not (function.builtin and function.name in ROWWISE):
                name = function.name.split(":")[-1]
                message, help = f"{whose} applies `{name}`", "use `clip_norm`, `clip_value`, `scale` or a sum of sets"
            case Gradient() | Transform() | Accumulate() | TakeAccumulated() | CheckFinite() | Apply():
                continue
            case _ if node.rows:
                message, help = f"{whose} reads a gradient set", "use the set in an update alone"
            case _:
                continue
        path: Path = ("ops", node.op, field) if field else ("ops", node.op)
        message = f"{message}, and the gradient of an embedding is rows (`sparse: true`)"
        yield _report(graph.spec, message, path, f"{help}, {WITHOUT}")


def check_lazy(spec: GraphSpec, program: Program) -> Iterator[Diagnostic]:
    """Yield E-ROWS for what keeps a lazy optimizer from leaving rows as they are."""
    for optimizer in program.optimizers:
        if not optimizer.is_lazy:
            continue
        tables = find_tables(program.models, optimizer)
        path = next(cell.path for cell in find_optimizers(spec) if cell.name == optimizer.name)
        moving = [name for name in ("momentum", "weight_decay") if optimizer.options.get(name)]
        moving += ["momentum_form"] if optimizer.options.get("momentum_form") == "lr_inside" else []
        for name in moving:
            message = f"`sparse: lazy` updates only rows with a gradient, but `{name}` would change the others"
            yield _report(spec, message, (*path, name), f"remove `{name}`, or write `sparse: dense`")
        for group in (each for each in optimizer.groups if each.weight_decay):
            if not find_matching(group.match, [name for model, name in tables if model == group.model]):
                continue
            message = "`sparse: lazy` updates only rows with a gradient, but `weight_decay` would change the others"
            place: Path = ("models", group.model, "groups", group.index, "weight_decay")
            yield _report(spec, message, place, "remove `weight_decay`, or write `sparse: dense`")
        if not tables:
            message = f"the optimizer of '{optimizer.name}' is lazy, and steps no table that is `sparse`"
            help = "write `sparse: true` in the embedding of a `layers` model, or remove `sparse` here"
            yield _report(spec, message, (*path, "sparse"), help)


def check_tables(spec: GraphSpec, program: Program) -> Iterator[Diagnostic]:
    """Yield E-ROWS for the parts of a model's declaration that mean all rows of its tables."""
    stepped = {model for each in program.optimizers for model in each.models} & spec.models.keys()
    for model in (each for each in program.models if each.has_rows and each.name in stepped):
        declared, tables = spec.models[model.name], [each.name for each in model.parameters if each.sparse]
        whole = f"the gradient of '{model.name}.{tables[0]}' is rows (`sparse: true`)"
        for index, group in enumerate(declared.groups):
            path: Path = ("models", model.name, "groups", index, "frozen")
            if group.is_frozen and find_matching(group.match, tables):
                yield _report(spec, f"{whole}, and a group freezes it", path, f"freeze other parameters, {WITHOUT}")
            elif group.until is not None:
                yield _report(
                    spec,
                    f"{whole}, and a group of its model is frozen for some time",
                    path,
                    f"remove `frozen`, {WITHOUT}",
                )
        terms = {("models", model.name, "regularizer"): declared.regularizer or ()}
        projections = {("models", model.name, "constraint"): declared.constraint or ()}
        for name, op in spec.ops.items():
            if isinstance(op, UpdateOp) and model.name in op.update:
                projections["ops", name, "constraint"] = op.constraint or ()
        for path, listed in [*terms.items(), *projections.items()]:
            for each in listed:
                if each.match is None or find_matching(each.match, tables):
                    help = f"name other parameters, as in `match: '^1'`, {WITHOUT}"
                    yield _report(spec, f"{whole}, and `{path[-1]}` is about all rows", path, help)
        if model.tied:
            message = f"{whole}, and '{model.name}' shares parameters with '{model.tied[0]}'"
            yield _report(spec, message, ("models", model.name), f"share none of them, {WITHOUT}")


def _report(spec: GraphSpec, message: str, path: Path, help: str) -> Diagnostic:
    """Return the diagnostic at a place."""
    return Diagnostic(code="E-ROWS", message=message, span=spec.span(*path, key=True), help=help)
