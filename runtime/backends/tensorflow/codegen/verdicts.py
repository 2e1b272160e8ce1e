"""Conditions of writes: the graph decides, and keeps its decisions for the host."""

from __future__ import annotations

import ast

from msgspec.structs import replace

from compiler.ir.instructions import Apply, Assign, Blend, Instruction, ResolveOverflow, RestoreAccumulator, Store
from runtime.codegen import syntax
from runtime.codegen.dialect import EmitContext, EmitScope, Lowered
from runtime.codegen.lower.overflow import SCALE, VERDICTS, all_value, commit_value, commits_by_op, find_resolved
from runtime.codegen.resources import find_checked
from runtime.codegen.scope import line_of
from runtime.codegen.text import Code, Line


def conditioned(instruction: Instruction, lowered: Lowered, scope: EmitScope) -> Lowered:
    """Return the code of a write under its condition: ``when(step_d_finite, lambda: adam.apply(step_d))``."""
    if isinstance(instruction, RestoreAccumulator):
        skipped = syntax.call("tf.logical_not", commit_value(instruction.unless, scope))
        return replace(lowered, code=tuple(_under(skipped, each) for each in lowered.code))
    if not isinstance(instruction, Apply | Blend | Assign | Store) or not instruction.commits:
        return lowered
    commits = commit_value(instruction.commits, scope)
    return replace(lowered, code=tuple(_under(commits, each) for each in lowered.code))


def _under(commits: ast.expr, code: Code) -> Code:
    """Return a line under a condition."""
    assert isinstance(code, Line)
    assert isinstance(code.statement, ast.Expr)
    written = syntax.later(code.statement.value)
    return replace(code, statement=syntax.perform(syntax.call("when", commits, written)))


def lower_resolve(instruction: ResolveOverflow, scope: EmitScope) -> Lowered:
    """Return ``verdicts.keep({"step_d": step_d_finite})`` and ``loss_scale.update(step_d_finite)``."""
    lines: list[Line] = []
    if any(each.conditional for each in find_resolved(scope.program)):
        kept = syntax.call(f"{VERDICTS}.keep", commits_by_op(instruction, scope))
        lines.append(line_of(instruction, syntax.perform(kept)))
    if instruction.scaled and instruction.verdicts:
        finite = all_value(instruction.verdicts, scope)
        lines.append(line_of(instruction, syntax.perform(syntax.call(f"{SCALE}.update", finite))))
    return Lowered(code=tuple(lines))


def verdict_options(context: EmitContext) -> dict[str, ast.expr]:
    """Return the updates whose gradients have a verdict, and the ops that run only under verdicts."""
    updates = [check.key for check in find_checked(context.program)]
    ops = dict.fromkeys(op for resolve in find_resolved(context.program) for op, _ in resolve.conditional)
    listed = {"updates": updates, "ops": ops}
    return {name: syntax.listing(syntax.constant(op) for op in found) for name, found in listed.items()}
