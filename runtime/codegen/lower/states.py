"""Emission of states: their register, their initial values, reads and writes."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.ir.cell import state_of
from compiler.ir.instructions import Store
from compiler.ir.program import Program
from compiler.ir.value import Ref
from runtime.codegen import syntax
from runtime.codegen.dialect import Dialect, EmitScope, Lowered
from runtime.codegen.resources import find_states
from runtime.codegen.scope import hold, line_of, operand, with_notes
from runtime.codegen.text import Line

REGISTER = "STATE"
STEP_TYPES = frozenset({"float32", "float64"})
"""Declared types that are replaced by the type of the step."""


def register_lines(program: Program, dialect: Dialect) -> Iterator[Line]:
    """Yield the dictionary of the states, where there are any."""
    if find_states(program):
        yield Line(statement=syntax.register(REGISTER, syntax.name("str"), syntax.dotted(dialect.held)))


def initial_lines(program: Program, dialect: Dialect) -> Iterator[Line]:
    """Yield one line of ``build`` per state: ``STATE["queue"] = initial_state(seed, "queue", (64, 32), ...)``."""
    for state in find_states(program):
        is_open = state.dtype in STEP_TYPES
        dtype = syntax.name("dtype") if is_open else syntax.dotted(f"{dialect.prefix}.{state.dtype}")
        keyed = syntax.name("seed"), syntax.constant(state.name), syntax.literal(state.shape)
        drawn = syntax.constant(state.initializer.kind), syntax.constant(state.initializer.bound)
        initial = syntax.call("initial_state", *keyed, *drawn, dtype, *dialect.state_place())
        statement = syntax.assign_item(REGISTER, state.name, initial)
        yield Line(statement=statement, op=state.name, place=state.place)


def lower_store(instruction: Store, scope: EmitScope) -> Lowered:
    """Return the write of a state: ``STATE["queue"] = next_state(longer, STATE["queue"])``."""
    value = operand(instruction.value, scope)
    held = hold(instruction.state)
    statement = scope.dialect.store(held, value, is_number=not isinstance(instruction.value, Ref))
    cell = state_of(instruction.state)
    made = next((each.version for each in instruction.writes if each.cell == cell), None)
    comment = "" if made is None else f"{instruction.state}@{made - 1} -> @{made}"
    line = line_of(instruction, statement, comment=comment)
    return Lowered(code=with_notes(instruction, [line]), graph="either")
