"""Lowering of what acts on gradient sets with gaps: on the gradients that are there, and for their parameters alone."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from compiler.ir.instructions import ApplyPart, Collect, Gather, Gradient, Transform
from compiler.ir.program import OptimizerDecl
from runtime.effects import find_functions
from runtime.emission import syntax
from runtime.emission.scope import Scope, parameter_list, setting
from runtime.emission.terms import has_groups
from runtime.emission.verdicts import commit_value


def is_set(value: str, scope: Scope) -> bool:
    """Return whether a value is a gradient set."""
    made = (each for function in find_functions(scope.program) for each in function.instructions)
    return any(isinstance(each, (Gradient, Transform, Collect)) and each.output == value for each in made)


def divide(instruction: Transform, scope: Scope) -> tuple[ast.Tuple, list[ast.expr]]:
    """Return the sets that a transform is given, and the numbers."""
    sets = [syntax.name(scope.names.value(each)) for each in instruction.inputs if is_set(each, scope)]
    rest: list[ast.expr] = [
        syntax.name(scope.names.value(each)) for each in instruction.inputs if not is_set(each, scope)
    ]
    return syntax.sequence(sets), rest


def close_gaps(instruction: Transform, scope: Scope) -> ast.expr:
    """Return ``required(slopes)`` or ``without_gaps(slopes, net_params)``."""
    gradients, *others = (syntax.name(scope.names.value(each)) for each in instruction.inputs)
    beside = resting_places(instruction, scope)
    if instruction.function.name == "require":
        return syntax.call("required", gradients, *(beside or [syntax.sequence(())] * bool(others)), *others)
    return syntax.call("without_gaps", gradients, syntax.name(parameter_list(instruction.models, scope)), *beside)


def resting_places(instruction: Gradient | Transform | Gather, scope: Scope) -> list[ast.expr]:
    """Return the places of the parameters that are frozen for now, as a further argument where there are any."""
    resting = instruction.resting
    return [syntax.name(scope.names.resting(instruction.models, resting))] if resting else []


def regularize_present(instruction: Transform, scope: Scope) -> ast.expr:
    """Return ``regularize_present(slopes, step_penalties)``."""
    gradients = syntax.name(scope.names.value(instruction.inputs[0]))
    penalties = syntax.name(scope.names.penalties(instruction.output))
    resting = resting_places(instruction, scope)
    return syntax.call("regularize_present", gradients, penalties, *resting, **unless_applied(instruction, scope))


def unless_applied(instruction: Transform, scope: Scope) -> dict[str, ast.expr]:
    """Return ``unless=step_d_finite``, where another update adds the penalties if it is applied."""
    return {"unless": commit_value(instruction.unless, scope)} if instruction.unless else {}


def noise_present(instruction: Transform, scope: Scope) -> ast.expr:
    """Return ``noise_present(slopes, net_params, random.normal(...))``: the same draw whichever gradients there are."""
    gradients = syntax.name(scope.names.value(instruction.inputs[0]))
    parameters = syntax.name(parameter_list(instruction.models, scope))
    size = syntax.sequence([syntax.call("count_elements", parameters)])
    std = setting(instruction.options["std"], scope)
    drawn = syntax.call("random.normal", syntax.constant(instruction.op), size, std=std)
    return syntax.call("noise_present", gradients, parameters, drawn)


def call_present(
    path: str, instruction: Transform, rest: Sequence[ast.expr], scope: Scope, **said: ast.expr
) -> ast.expr:
    """Return ``over_present(clip_norm, (slopes,), 1.0)``: a function of the gradients that are there."""
    sets, numbers = divide(instruction, scope)
    if instruction.weights:
        sets = syntax.sequence([*sets.elts, syntax.name(parameter_list(instruction.models, scope))])
    over = "over_common" if instruction.weights or path == "mul_sets" else "over_present"
    return syntax.call(over, syntax.dotted(path), sets, *numbers, *rest, **said)


def apply_present(part: ApplyPart, share: ast.expr, scope: Scope) -> ast.expr:
    """Return ``apply_present(net_adam, slopes)``: a step of the parameters that have a gradient."""
    declared = next(each for each in scope.program.optimizers if each.name == part.optimizer)
    is_own = {} if declared.builtin else {"counted": syntax.constant(False)}
    path = _find_way(declared, scope)
    counted = is_own if path == "apply_present_wrapped" else {}
    return syntax.call(path, syntax.name(scope.names.optimizer(part.optimizer)), share, **counted)


def _find_way(optimizer: OptimizerDecl, scope: Scope) -> str:
    """Return the definition that steps the parameters of an optimizer that have a gradient."""
    if not (optimizer.builtin and optimizer.rule in scope.dialect.direct):
        return "apply_present_wrapped"
    return "apply_present_grouped" if has_groups(optimizer) else "apply_present"
