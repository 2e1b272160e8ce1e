"""Emission of ``step``: it counts the step, decides what fires, and calls the function of that active set."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence

from compiler.ir.program import Function
from runtime.codegen import syntax
from runtime.codegen.averages import feed_lines
from runtime.codegen.dialect import EmitContext
from runtime.codegen.lower.overflow import check_lines, hold_lines
from runtime.codegen.text import Block, Code, Line


def emit_dispatch(context: EmitContext) -> Iterator[Code]:
    """Yield the table of functions, and ``def step(batch, mode="train")``."""
    program, needs, dialect = context.program, context.needs, context.dialect
    yield from dialect.table_lines(context)
    default = program.modes[0].mode
    chosen = [syntax.parameter("dataset", syntax.constant(None))] if program.datasets else []
    header = syntax.define(
        "step", syntax.parameter("batch"), syntax.parameter("mode", syntax.constant(default)), *chosen
    )
    mode, dataset = syntax.name("mode"), [syntax.name("dataset")] if program.datasets else []
    body: list[Line] = []
    if needs.clock:
        started = syntax.call("clock.start", mode)
        is_numbered = dialect.is_numbered(needs)
        body.append(Line(statement=syntax.assign("number", started) if is_numbered else syntax.perform(started)))
    if needs.gates:
        body.append(Line(statement=syntax.assign("fired", syntax.call("gates.fire", mode, *dataset))))
    body += dialect.start_lines(needs)
    body += feed_lines(context)
    key = _key([mode, *dataset, *([syntax.name("fired")] if needs.gates else [])])
    function = syntax.item(syntax.name("FUNCTIONS"), key)
    called = syntax.call(function, syntax.name("batch"), *dialect.step_arguments(needs))
    after = [*check_lines(context), *hold_lines(context)]
    if needs.clock:
        finished = syntax.perform(syntax.call("clock.finish"))
        after.append(Line(statement=finished, comment="counts the step: one that fails leaves no trace"))
    if after:
        body.append(Line(statement=syntax.assign("outputs", called), writes=True))
        body += [*after, Line(statement=syntax.give(syntax.name("outputs")))]
    else:
        body.append(Line(statement=syntax.give(called), writes=True))
    modes = ", ".join(each.mode for each in program.modes)
    whose = f" of a data set ({', '.join(program.datasets)})" if program.datasets else ""
    doc = f"Take one step of a mode ({modes}) with a batch{whose} of tensors by name; return its outputs."
    yield Block(header=Line(statement=header), body=tuple(body), doc=doc)


def _key(parts: Sequence[ast.expr]) -> ast.expr:
    """Return the key of a function: the mode alone, or a tuple."""
    return parts[0] if len(parts) == 1 else syntax.sequence(parts)


def function_table(context: EmitContext, use: Callable[[Function], ast.expr]) -> ast.expr:
    """Return the functions by mode, or by mode, data set and active set where the program has data sets and gates."""
    gated = context.needs.gates
    keys: list[ast.expr | None] = []
    values: list[ast.expr] = []
    for mode in context.program.modes:
        for function in mode.functions:
            chosen = [syntax.literal(function.gated)] if gated else []
            datasets = [[syntax.constant(each or None)] for each in function.datasets] or [[]]
            named = [_key([syntax.constant(mode.mode), *each, *chosen]) for each in datasets]
            if len(named) == 1:
                keys.append(named[0])
                values.append(use(function))
            else:  # several keys have one function, which is created once
                keys.append(None)
                values.append(syntax.call("dict.fromkeys", syntax.listing(named), use(function)))
    return ast.Dict(keys=keys, values=values)
