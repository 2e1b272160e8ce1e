"""Emission of ``step``: it counts the step, decides what fires, and calls the function of that active set."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from compiler.program import Program
from runtime.backends.torch.emission import syntax
from runtime.backends.torch.emission.names import Names
from runtime.backends.torch.emission.needs import find_needs
from runtime.backends.torch.emission.text import Block, Code, Line


def emit_dispatch(program: Program, names: Names) -> Iterator[Code]:
    """Yield the table of functions, and ``def step(batch, mode="train")``."""
    needs = find_needs(program)
    yield Line(statement=syntax.assign("FUNCTIONS", _table(program, names)))
    default = program.modes[0].mode
    header = syntax.define("step", syntax.parameter("batch"), syntax.parameter("mode", syntax.constant(default)))
    mode, batch = syntax.name("mode"), syntax.name("batch")
    body: list[Code] = []
    key: ast.expr = mode
    started = syntax.call("clock.start", mode)
    if needs.clock:
        body.append(Line(statement=syntax.assign("number", started) if needs.random else syntax.perform(started)))
    if needs.gates:
        body.append(Line(statement=syntax.assign("fired", syntax.call("gates.fire", mode))))
        key = syntax.sequence([mode, syntax.name("fired")])
    if needs.random:
        keyed = syntax.call("random.start", mode, syntax.name("number"))
        body.append(Line(statement=syntax.perform(keyed), comment="keys the step's draws"))
    called = syntax.call(syntax.item(syntax.name("FUNCTIONS"), key), batch)
    body.extend(_counted(called) if needs.clock else (Line(statement=syntax.give(called)),))
    modes = ", ".join(each.mode for each in program.modes)
    doc = f"Take one step of a mode ({modes}) with a batch of tensors by name; return its outputs."
    yield Block(header=Line(statement=header), body=tuple(body), doc=doc)


def _counted(called: ast.expr) -> Iterator[Line]:
    """Yield the call of the step's function and the lines that count the step, if it came to its end."""
    yield Line(statement=syntax.assign("outputs", called))
    finished = syntax.perform(syntax.call("clock.finish"))
    yield Line(statement=finished, comment="counts the step: one that fails leaves no trace")
    yield Line(statement=syntax.give(syntax.name("outputs")))


def _table(program: Program, names: Names) -> ast.expr:
    """Return the functions by mode, or by mode and what fires where something is gated."""
    gated = find_needs(program).gates
    keys: list[ast.expr | None] = []
    values: list[ast.expr] = []
    for mode in program.modes:
        for function in mode.functions:
            fired = tuple(gate.op for gate in mode.gates if gate.op in function.gated)
            name = syntax.constant(mode.mode)
            keys.append(syntax.sequence([name, syntax.literal(fired)]) if gated else name)
            values.append(syntax.name(names.function(function.name)))
    return ast.Dict(keys=keys, values=values)
