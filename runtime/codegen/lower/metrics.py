"""Emission of running metrics: what ``build`` makes of each, their register, and the end of an epoch."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from compiler.ir.instructions import Evaluate
from compiler.ir.program import Program
from runtime.codegen import syntax
from runtime.codegen.dialect import EmitContext
from runtime.codegen.needs import find_metrics
from runtime.codegen.text import Code, Line, Source

REGISTER = "METRICS"
END_EPOCH = '''

def end_epoch(mode="train"):
    """Say that a pass over the data has ended: the metrics of a mode that run for an epoch start anew."""
    for metric in METRICS.get(mode, {}).values():
        if metric.since == "epoch":
            metric.reset()'''


def register_lines(program: Program) -> Iterator[Line]:
    """Yield the dictionary that ``build`` fills, by mode and op, where something is measured."""
    if find_metrics(program):
        kind = syntax.item(syntax.name("dict"), syntax.sequence([syntax.name("str"), syntax.name("object")]))
        yield Line(statement=syntax.register(REGISTER, syntax.name("str"), kind))


def construct_metric(mode: str, instruction: Evaluate, context: EmitContext) -> ast.expr:
    """Return the construction of a running metric: of one of the library, or of a user's class."""
    builtin = instruction.function.builtin
    name = instruction.function.name
    path = context.dialect.metric_path(name) if builtin else context.names.imported(name)
    given = {"since": syntax.constant(instruction.reset)} if instruction.reset != "epoch" else {}
    if instruction.options:
        given["options"] = syntax.literal(instruction.options)
    maker = "Running" if builtin else "running"
    return syntax.call(maker, syntax.name("clock"), *context.dialect.metric(syntax.dotted(path), mode), **given)


def registration(context: EmitContext) -> Iterator[Line]:
    """Yield the line that lists the metrics by mode and op."""
    listed: dict[str, dict[str, ast.expr]] = {}
    for mode, each in find_metrics(context.program):
        listed.setdefault(mode, {})[each.op] = syntax.name(context.names.metric(mode, each.op))
    if listed:
        modes = syntax.dictionary({mode: syntax.dictionary(metrics) for mode, metrics in listed.items()})
        yield Line(statement=syntax.perform(syntax.call(f"{REGISTER}.update", modes)))


def epoch_function(program: Program) -> Iterator[Code]:
    """Yield ``def end_epoch(mode="train")``, where a metric runs for an epoch."""
    if any(each.reset == "epoch" for _, each in find_metrics(program)):
        yield Source(text=END_EPOCH)
