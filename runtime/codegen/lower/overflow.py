"""Lowering of verdicts and of the loss scale: checks of gradients, conditions of writes, and their globals."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from functools import reduce

from compiler.ir.instructions import (
    AllFinite,
    AnyFinite,
    CheckFinite,
    Commit,
    Evaluate,
    Gradient,
    ResolveOverflow,
    TakeAccumulated,
    Transform,
)
from compiler.ir.program import Function, Program
from runtime.codegen import syntax
from runtime.codegen.dialect import EmitContext, EmitScope, Global, Lowered
from runtime.codegen.lower.messages import await_message
from runtime.codegen.lower.row_sets import over_rows, read_values
from runtime.codegen.resources import find_checked, find_instructions
from runtime.codegen.scope import line_of, with_notes
from runtime.codegen.text import Line

MOST = 4
"""The most verdicts that are joined by operators."""
SCALE, VERDICTS = "loss_scale", "verdicts"
"""The global variables of the loss scale, and of the verdicts of a step."""


def lower_check(instruction: CheckFinite, scope: EmitScope) -> Lowered:
    """Return ``step_d_finite = verdicts.check_finite("step_d", step_d)``.

    Of replicas that check sets of their own: ``verdicts.check_own("step_d", step_d_own)``, and after a message
    ``verdicts.agree("step_d", step_d_sent.wait(0))``.
    """
    if instruction.scope == "all":
        agreed = syntax.call(f"{VERDICTS}.agree", syntax.constant(instruction.key), await_message(instruction, scope))
        statement = syntax.assign(scope.names.value(instruction.output), agreed)
        return Lowered(code=with_notes(instruction, [line_of(instruction, statement)]), graph="either")
    read = ((each, syntax.name(scope.names.value(each))) for each in instruction.gradients)
    named = ((each, read_values(name) if instruction.rows else name) for each, name in read)
    sets = (scope.dialect.present(name) if each in scope.open_sets else name for each, name in named)
    filled: dict[str, ast.expr] = {}
    if instruction.filled:
        filled["filled"] = syntax.name(scope.names.value(instruction.filled))
    check = "check_own" if instruction.scope == "own" else "check_finite"
    checked = syntax.call(f"{VERDICTS}.{check}", syntax.constant(instruction.key), *sets, **filled)
    statement = syntax.assign(scope.names.value(instruction.output), checked)
    return Lowered(code=with_notes(instruction, [line_of(instruction, statement)]), graph="either")


def lower_all(instruction: AllFinite, scope: EmitScope) -> Lowered:
    """Return ``step_d_group_finite = step_d_finite & step_g_finite``."""
    value = all_value(instruction.verdicts, scope)
    statement = syntax.assign(scope.names.value(instruction.output), value)
    return Lowered(code=with_notes(instruction, [line_of(instruction, statement)]), graph="either")


def lower_any(instruction: AnyFinite, scope: EmitScope) -> Lowered:
    """Return ``net_penalized_step_e = step_c_finite | step_d_finite``."""
    statement = syntax.assign(scope.names.value(instruction.output), commit_value(instruction.ways, scope))
    return Lowered(code=with_notes(instruction, [line_of(instruction, statement)]), graph="either")


def commit_value(commits: Commit, scope: EmitScope) -> ast.expr:
    """Return a condition as the device computes it: ``step_d_finite & step_g_finite``."""
    return _join([all_value(way, scope) for way in commits], ast.BitOr(), scope.dialect.any_true)


def all_value(verdicts: Sequence[str], scope: EmitScope) -> ast.expr:
    """Return whether all of some verdicts are given, as the device computes it; of many in one call."""
    names = [syntax.name(scope.names.value(each)) for each in verdicts]
    return _join(names, ast.BitAnd(), scope.dialect.all_true)


def _join(
    terms: Sequence[ast.expr], operator: ast.operator, join: Callable[[Sequence[ast.expr]], ast.expr]
) -> ast.expr:
    """Return terms with an operator between them; many in one call, as expressions must not nest too deep."""
    return join(terms) if len(terms) > MOST else reduce(lambda left, right: syntax.binary(left, operator, right), terms)


def commits_by_op(instruction: ResolveOverflow, scope: EmitScope) -> ast.expr:
    """Return the conditions of all writes by op: ``{"step_d": step_d_finite}``."""
    return syntax.dictionary({op: commit_value(commits, scope) for op, commits in instruction.conditional})


def unscaled(gradients: ast.expr, instruction: Gradient) -> ast.expr:
    """Return the gradients of a scaled loss, divided by the scale."""
    path = f"{SCALE}.unscale"
    return over_rows(path, [gradients]) if instruction.rows else syntax.call(path, gradients)


def find_resolved(program: Program) -> tuple[ResolveOverflow, ...]:
    """Return the ends of all steps of a program in which there are verdicts."""
    instructions = find_instructions(program)
    return tuple(each for each in instructions if isinstance(each, ResolveOverflow))


def verdict_globals(context: EmitContext) -> Iterator[Global]:
    """Yield the loss scale, and the verdicts, of a program that has some."""
    program, declared = context.program, context.program.loss_scale
    if declared is not None:
        if declared.is_fixed:
            options: dict[str, bool | int | float] = {"is_fixed": True}
        else:
            options = {
                "growth_steps": declared.growth_steps,
                "growth_factor": declared.growth_factor,
                "backoff_factor": declared.backoff_factor,
                "min_scale": declared.min_scale,
            }
        if declared.most_skips is not None:
            options["most_skips"] = declared.most_skips
        named = {name: syntax.constant(value) for name, value in options.items()}
        yield Global(
            name=SCALE, value=syntax.call(context.dialect.loss_scale, syntax.constant(declared.initial), **named)
        )
    if find_checked(program):
        yield Global(
            name=VERDICTS, value=syntax.call(context.dialect.verdicts, **context.dialect.verdict_options(context))
        )


def check_lines(context: EmitContext) -> Iterator[Line]:
    """Yield the lines of ``step`` that end a run at gradients that are not allowed."""
    program = context.program
    fatal: dict[str, dict[str, None]] = {}
    for each in find_resolved(program):
        for op, key in each.fatal:
            fatal.setdefault(op, {op: None})[key] = None
    for keys in fatal.values():
        yield Line(statement=syntax.perform(syntax.call(f"{VERDICTS}.require", *map(syntax.constant, keys))))
    if program.loss_scale is not None and program.loss_scale.most_skips is not None:
        yield Line(statement=syntax.perform(syntax.call(f"{SCALE}.check")))


def hold_lines(context: EmitContext) -> Iterator[Line]:
    """Yield the line that reports skipped ops to the gates, so that they are not counted."""
    program = context.program
    every = ((mode.mode, each) for mode in program.modes for one in mode.functions for each in one.instructions)
    modes = [*dict.fromkeys(mode for mode, each in every if isinstance(each, ResolveOverflow) and each.conditional)]
    if not modes or not any(mode.gates for mode in program.modes):
        return
    held: ast.expr = syntax.call(f"{VERDICTS}.withheld")
    if len(modes) < len(program.modes):
        is_single = len(modes) == 1
        listed = syntax.constant(modes[0]) if is_single else syntax.literal(tuple(modes))
        operator = ast.Eq() if is_single else ast.In()
        test = ast.Compare(left=syntax.name("mode"), ops=[operator], comparators=[listed])
        held = ast.IfExp(test=test, body=held, orelse=syntax.call("frozenset"))
    yield Line(statement=syntax.perform(syntax.call("gates.hold", held)), comment="nothing counts it")


def find_open(function: Function) -> frozenset[str]:
    """Return the gradient sets whose content may depend on earlier steps, or on verdicts."""
    made = (each for each in function.instructions if isinstance(each, TakeAccumulated | Transform) and each.may_miss)
    return frozenset(each.output for each in made)


def find_tainted(function: Function) -> frozenset[str]:
    """Return the gradient sets of a function with a verdict, and the values derived from them.

    A gradient op that gives a set with a verdict may give values, too: what makes the set overflow makes these. Sets
    whose overflow is an error are none of them: there the run ends anyway, and should say where it began.
    """
    checked = set[str]()
    for instruction in function.instructions:
        if isinstance(instruction, CheckFinite) and instruction.overflow != "error":
            checked.update(instruction.gradients)
    for instruction in reversed(function.instructions):
        if isinstance(instruction, Transform) and instruction.output in checked:
            checked.update(instruction.inputs)
    for instruction in function.instructions:
        match instruction:
            case Transform() if instruction.covers:
                pass  # the other parts are no more suspect for it
            case Transform() | Evaluate() if not checked.isdisjoint(instruction.operands) and not instruction.writes:
                checked.update(instruction.defines)
            case Gradient() if not checked.isdisjoint(instruction.defines):
                checked.update(instruction.defines)
            case TakeAccumulated(filled=filled, output=output) if filled:
                checked.add(output)
            case _:
                pass
    return frozenset(checked)
