"""The scope of a lowering: what it needs in addition to its instruction, and the statements it returns."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from msgspec.structs import replace

from compiler.ir.cell import parameters_of
from compiler.ir.instructions import InstructionBase, ResolveOverflow
from compiler.ir.value import Argument, Operand, Ref, Scheduled, Setting
from runtime.codegen import syntax
from runtime.codegen.dialect import EmitScope
from runtime.codegen.resources import Names
from runtime.codegen.text import Line

LONGEST_NOTE = 60
"""The most characters of a note at the end of a line; a longer note goes above it."""


def is_write(instruction: InstructionBase) -> bool:
    """Return whether an instruction changes state that outlives the step."""
    return bool(instruction.writes) or isinstance(instruction, ResolveOverflow)


def line_of(
    instruction: InstructionBase, statement: ast.stmt, *, comment: str = "", above: tuple[str, ...] = ()
) -> Line:
    """Return a statement of an instruction, with its place in the spec."""
    return Line(
        statement=statement,
        comment=comment,
        above=above,
        op=instruction.op,
        place=instruction.place,
        writes=is_write(instruction),
    )


def with_notes(instruction: InstructionBase, lines: Sequence[Line]) -> tuple[Line, ...]:
    """Return the lines with the instruction's notes: at the end of the first where they are short, else above it."""
    first, *rest = lines
    comment = "; ".join(filter(None, (first.comment, *instruction.notes)))
    if len(comment) <= LONGEST_NOTE:
        return (replace(first, comment=comment), *rest)
    return (replace(first, above=instruction.notes), *rest)


def operand(value: Operand, scope: EmitScope) -> ast.expr:
    """Return an operand; a use that passes no gradient back is detached where there is a graph to detach from."""
    if isinstance(value, Scheduled):
        return number(value, scope.names)
    if not isinstance(value, Ref):
        return syntax.constant(value.value)
    use = read(value.name, scope)
    return scope.dialect.detach(use) if value.detach and value.name in scope.flow.carrying else use


def number(value: Scheduled, names: Names, *, is_after: bool = False) -> ast.expr:
    """Return a number that follows a schedule: a call of its reader.

    ``is_after``: its update is applied already, and is not counted.
    """
    reader = syntax.name(names.scheduled(value.name))
    counted: list[ast.expr] = []
    if value.optimizer is not None:
        applied = syntax.dotted(f"{names.optimizer(value.optimizer)}.applied")
        counted.append(syntax.binary(applied, ast.Sub(), syntax.constant(1)) if is_after else applied)
    read = syntax.call(reader, *counted)
    return syntax.binary(syntax.constant(1), ast.Sub(), read) if value.complement else read


def setting(value: Setting, scope: EmitScope) -> ast.expr:
    """Return an option: a literal, a number that follows a schedule, or a tuple that may hold some."""
    if isinstance(value, Scheduled):
        return number(value, scope.names)
    if isinstance(value, tuple):
        return syntax.sequence(setting(each, scope) for each in value)
    return syntax.literal(value)


def read(name: str, scope: EmitScope) -> ast.expr:
    """Return a value by its variable, a state by its value at this place."""
    is_held = any(state.name == name for state in scope.program.states)
    return scope.dialect.read_state(hold(name)) if is_held else syntax.name(scope.names.value(name))


def hold(state: str) -> ast.expr:
    """Return the expression of a state: ``STATE["queue"]``."""
    return syntax.item(syntax.name("STATE"), syntax.constant(state))


def positional(arguments: tuple[Argument, ...], scope: EmitScope) -> list[ast.expr]:
    """Return the positional arguments of a call."""
    return [operand(argument.operand, scope) for argument in arguments if argument.name is None]


def keywords(arguments: tuple[Argument, ...], scope: EmitScope) -> dict[str, ast.expr]:
    """Return the keyword arguments of a call."""
    return {each.name: operand(each.operand, scope) for each in arguments if each.name is not None}


def read_comment(instruction: InstructionBase, model: str) -> str:
    """Return the version of a model's parameters that an instruction reads, ``discriminator@1``."""
    version = _find(instruction, model, "reads")
    return "" if version is None else f"{model}@{version}"


def write_comment(instruction: InstructionBase, models: tuple[str, ...]) -> str:
    """Return the versions an instruction makes, ``discriminator@0 -> @1``."""
    made = ((model, _find(instruction, model, "writes")) for model in models)
    return ", ".join(f"{model}@{version - 1} -> @{version}" for model, version in made if version is not None)


def _find(instruction: InstructionBase, model: str, field: str) -> int | None:
    """Return the version of a model's parameters that is read or written."""
    accesses, cell = instruction.reads if field == "reads" else instruction.writes, parameters_of(model)
    return next((each.version for each in accesses if each.cell == cell), None)
