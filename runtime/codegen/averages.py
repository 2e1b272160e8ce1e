"""Averages whose decay depends on how often they took place: their numbers, which are registered for checkpoints."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from compiler.ir.instructions import Blend
from compiler.ir.program import Program
from compiler.ir.value import Scheduled
from runtime.codegen import syntax
from runtime.codegen.dialect import EmitContext, Global
from runtime.codegen.optimizers import follow
from runtime.codegen.resources import find_instructions
from runtime.codegen.scope import EmitScope
from runtime.codegen.text import Line

REGISTER = "AVERAGES"
"""The module's averages by op."""
FIELDS: Mapping[str, str] = {"max": "most", "min": "least", "from": "start"}
"""Fields of decays that are words of Python."""


def find_counted(program: Program) -> Mapping[str, Blend]:
    """Return the averages of a program that count how often they took place, one for all iterations of an op."""
    found: dict[str, Blend] = {}
    for each in find_instructions(program):
        if isinstance(each, Blend) and each.progress is not None:
            found.setdefault(each.counter, each)
    return found


def number_decay(blend: Blend, iterations: tuple[str, ...], scope: EmitScope) -> ast.expr:
    """Return how much of the old average one of several iterations keeps, which have one count, by its number."""
    counted = syntax.name(scope.names.scheduled(str(find_counted(scope.program)[blend.counter].decay)))
    return syntax.call(counted, syntax.constant(1 + iterations.index(blend.op)))


def average_globals(context: EmitContext) -> Iterator[Global]:
    """Yield the number of every such average: ``average_decay = Decay("average", gates, tf_decay(most=0.99))``."""
    for op, blend in find_counted(context.program).items():
        if blend.progress is None or not isinstance(blend.decay, Scheduled):
            continue
        progress, schedule = blend.progress, blend.decay.schedule
        if schedule.clock == "writes":  # a function of the writes of its source, which one of the steps ignores
            fields = {FIELDS.get(name, name): syntax.constant(number) for name, number in schedule.fields.items()}
            curve = syntax.call(f"{schedule.kind}_decay", **fields)
        else:
            curve = follow(schedule, context.dialect)
        numbers = {"first": progress.first, "every": progress.every, "since": progress.since}
        flags = {
            "compounds": progress.compounds,
            "copies": progress.begin == "first_update",
            "debiases": progress.begin == "zeros",
            "taken": progress.taken,
        }
        given = {name: syntax.constant(number) for name, number in numbers.items() if number != 1}
        given |= {name: syntax.constant(True) for name, is_set in flags.items() if is_set}
        ops = syntax.literal(tuple(progress.iterations)) if len(progress.iterations) > 1 else syntax.constant(op)
        made = syntax.call(context.dialect.decay, ops, syntax.name("gates"), curve, **given)
        yield Global(name=context.names.scheduled(str(blend.decay)), value=made, place=(op, blend.place))


def average_registration(context: EmitContext) -> Iterator[Line]:
    """Yield the line that lists these averages by op."""
    listed = {
        op: syntax.name(context.names.scheduled(str(blend.decay)))
        for op, blend in find_counted(context.program).items()
    }
    if listed:
        yield Line(statement=syntax.perform(syntax.call(f"{REGISTER}.update", syntax.dictionary(listed))))


def register_lines(program: Program) -> Iterator[Line]:
    """Yield the dictionary of these averages, where there are any."""
    if find_counted(program):
        yield Line(statement=syntax.register(REGISTER, syntax.name("str"), syntax.name("object")))


def feed_lines(context: EmitContext) -> Iterator[Line]:
    """Yield the lines of ``step`` that give the numbers of the host to the graphs, where the framework has these."""
    for blend in find_counted(context.program).values() if context.dialect.feeds else ():
        variable = syntax.name(context.names.scheduled(str(blend.decay)))
        yield Line(statement=syntax.perform(syntax.method(variable, "feed")))
