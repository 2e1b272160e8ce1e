"""Lowering of pure functions: calls, losses and metrics."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import reduce

from compiler.ir.instructions import Evaluate
from compiler.ir.value import Ref, Scheduled
from runtime.effects import is_running
from runtime.emission import syntax
from runtime.emission.callees import builtin_call
from runtime.emission.flow import carries
from runtime.emission.scope import Lowered, Scope, keywords, line_of, number, positional, setting, with_notes

OPERATORS: Mapping[str, ast.operator] = {
    "add": ast.Add(),
    "sub": ast.Sub(),
    "mul": ast.Mult(),
    "div": ast.Div(),
    "matmul": ast.MatMult(),
    "weigh": ast.Mult(),
}
"""Calls that are Python operators on tensors."""


def lower_evaluate(instruction: Evaluate, scope: Scope) -> Lowered:
    """Return the call of a function, times its weight; where a graph would be recorded for nothing, without one."""
    targets = [scope.names.value(value) for value in instruction.outputs]
    if instruction.counted:
        lines = with_notes(instruction, [line_of(instruction, each) for each in counted(instruction, targets, scope)])
        return Lowered(code=lines, graph="either") if not instruction.graph else Lowered(code=lines)
    value = _weighted(instruction, _value(instruction, scope), scope)
    statement = syntax.assign(targets[0] if len(targets) == 1 else targets, value)
    lines = with_notes(instruction, [line_of(instruction, statement)])
    if instruction.graph or not scope.flow.recorded:
        return Lowered(code=lines)
    if is_running(instruction):
        return Lowered(code=lines, graph="either")  # it sees to that itself
    needless = carries(instruction.arguments, scope.flow.carrying) and instruction.function.name != "stop"
    return Lowered(code=lines, graph="without" if needless else "either")


def _value(instruction: Evaluate, scope: Scope) -> ast.expr:
    """Return the call, an operator where there is one."""
    function = instruction.function
    if is_running(instruction):
        metric = scope.names.metric(scope.mode, instruction.op)
        given = *scope.dialect.leading(), *positional(instruction.arguments, scope)
        return syntax.call(metric, *given, **keywords(instruction.arguments, scope))
    if not function.builtin:
        return _user_call(instruction, scope)
    operands = positional(instruction.arguments, scope)
    if instruction.family in ("call", "part"):
        if function.name == "stop":
            return scope.dialect.detach(operands[0]) if _has_graph(instruction, scope) else operands[0]
        if scope.dialect.has_operators(instruction, scope):
            operated = _operate(function.name, operands)
            if operated is not None:
                return operated
    return builtin_call(instruction, operands, scope)


def _operate(name: str, operands: list[ast.expr]) -> ast.expr | None:
    """Return operands joined by the operator of Python that a call is; None where it is none."""
    if name == "neg":
        return ast.UnaryOp(op=ast.USub(), operand=operands[0])
    operator = OPERATORS.get(name)
    return None if operator is None else reduce(lambda left, right: syntax.binary(left, operator, right), operands)


def counted(instruction: Evaluate, targets: list[str], scope: Scope) -> Iterator[ast.stmt]:
    """Yield what makes the sum and the count of a loss: ``fit_sum, fit_count = pair_of(masked(out, y))``."""
    operands = positional(instruction.arguments, scope)
    if instruction.counted == "kept":
        total = builtin_call(replace(instruction, reduction="sum"), operands, scope)
        yield syntax.assign(targets[0], _weighted(instruction, total, scope))
        left_out = setting(instruction.options["ignore_index"], scope)
        yield syntax.assign(targets[1], syntax.call("kept_count", operands[1], left_out, operands[0]))
        return
    if instruction.counted == "elements":
        every = builtin_call(replace(instruction, reduction="none"), operands, scope)
        yield syntax.assign(targets, syntax.call("sum_and_count", every))
        yield from _weigh(instruction, targets[0], scope)
        return
    called = _call_user(instruction, scope)
    if instruction.counted == "asked":
        yield syntax.assign(targets[0], syntax.call("pieces_of", called))
        return
    like = [*operands, *keywords(instruction.arguments, scope).values()][:1] if instruction.counted == "assumed" else []
    yield syntax.assign(targets, syntax.call("pair_or_rows" if like else "pair_of", called, *like))
    yield from _weigh(instruction, targets[0], scope)


def _weigh(instruction: Evaluate, target: str, scope: Scope) -> Iterator[ast.stmt]:
    """Yield what multiplies a sum by the weight of its loss, where that has one."""
    total = syntax.name(target)
    weighted = _weighted(instruction, total, scope)
    if weighted is not total:
        yield syntax.assign(target, weighted)


def _user_call(instruction: Evaluate, scope: Scope) -> ast.expr:
    """Return the call of a user's function; a loss may come as (sum, count) and then stands for their quotient."""
    called = _call_user(instruction, scope)
    if len(instruction.outputs) > 1:
        return syntax.call("results", called, *map(syntax.constant, instruction.outputs))
    received = "uncounted" if instruction.gathered else "mean_of"
    return syntax.call(received, called) if instruction.family == "loss" else called


def _call_user(instruction: Evaluate, scope: Scope) -> ast.expr:
    """Return the call of a user's function as it is."""
    options = {key: setting(value, scope) for key, value in instruction.options.items()}
    if instruction.reduction is not None:
        options["reduction"] = syntax.constant(instruction.reduction)
    callee = syntax.dotted(scope.names.imported(instruction.function.name))
    operands, named = positional(instruction.arguments, scope), keywords(instruction.arguments, scope)
    return syntax.call(callee, *operands, **named, **options)


def _has_graph(instruction: Evaluate, scope: Scope) -> bool:
    """Return whether a value that is stopped carries a graph at all."""
    operand = instruction.arguments[0].operand
    return isinstance(operand, Ref) and operand.name in scope.flow.carrying and not operand.detach


def _weighted(instruction: Evaluate, value: ast.expr, scope: Scope) -> ast.expr:
    """Return ``weight * value``, times how often it counts."""
    if isinstance(instruction.weight, Scheduled):
        return _scaled(instruction, number(instruction.weight, scope.names), value, scope)
    weight = (1 if instruction.weight is None else instruction.weight) * instruction.times
    return value if weight == 1 else syntax.binary(syntax.constant(weight), ast.Mult(), value)


def _scaled(instruction: Evaluate, weight: ast.expr, value: ast.expr, scope: Scope) -> ast.expr:
    """Return ``weight() * value``; by a function where the type of the loss is open and the framework mixes none."""
    times = syntax.constant(instruction.times)
    factor = weight if instruction.times == 1 else syntax.binary(times, ast.Mult(), weight)
    if scope.dialect.has_operators(instruction, scope) and instruction.function.builtin:
        return syntax.binary(factor, ast.Mult(), value)
    return scope.dialect.multiply(factor, value)
