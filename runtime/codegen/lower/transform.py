"""Transforms of gradient sets: the definition of the library that each one calls, and its arguments."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from compiler.batch.shards import LENGTHS
from compiler.ir.instructions import Accumulate, ApplyPart, Gradient, TakeAccumulated, Transform
from compiler.ir.value import Plain, Setting
from runtime.codegen import syntax
from runtime.codegen.dialect import EmitScope, Lowered
from runtime.codegen.lower.messages import await_message
from runtime.codegen.lower.overflow import commit_value
from runtime.codegen.lower.row_sets import over_rows
from runtime.codegen.optimizers import add_shared, has_groups
from runtime.codegen.scope import line_of, setting, with_notes
from runtime.codegen.shards import whole


def is_set(value: str, scope: EmitScope) -> bool:
    """Return whether a value is a gradient set."""
    maker = scope.makers.get(value)
    return isinstance(maker, Gradient | Transform | TakeAccumulated) and maker.output == value


def divide(instruction: Transform, scope: EmitScope) -> tuple[ast.Tuple, list[ast.expr]]:
    """Return the sets and the numbers that a transform takes."""
    sets = [syntax.name(scope.names.value(each)) for each in instruction.inputs if is_set(each, scope)]
    rest: list[ast.expr] = [
        syntax.name(scope.names.value(each)) for each in instruction.inputs if not is_set(each, scope)
    ]
    return syntax.sequence(sets), rest


def close_missing(instruction: Transform, scope: EmitScope) -> ast.expr:
    """Return ``required(slopes)`` or ``fill_missing(slopes, net_params)``."""
    gradients, *others = (syntax.name(scope.names.value(each)) for each in instruction.inputs)
    frozen = frozen_places(instruction, scope)
    if instruction.function.name == "require":
        return syntax.call("required", gradients, *(frozen or [syntax.sequence(())] * bool(others)), *others)
    return syntax.call("fill_missing", gradients, _parameters(instruction, scope), *frozen)


def _parameters(instruction: Transform, scope: EmitScope) -> ast.expr:
    """Return the parameters that a transform's gradients belong to, each as large as its gradient."""
    listed = syntax.name(scope.names.joint(instruction.models))
    return whole(listed) if scope.program.is_sharded and not instruction.is_sharded else listed


def frozen_places(instruction: Gradient | Transform | Accumulate, scope: EmitScope) -> list[ast.expr]:
    """Return the places of the parameters that are currently frozen, as a further argument where there are any."""
    frozen = instruction.frozen
    return [syntax.name(scope.names.frozen_places(instruction.models, frozen))] if frozen else []


def regularize_present(instruction: Transform, scope: EmitScope) -> ast.expr:
    """Return ``regularize_present(slopes, step_penalties)``."""
    gradients = syntax.name(scope.names.value(instruction.inputs[0]))
    penalties = syntax.name(scope.names.penalties(instruction.output))
    frozen = frozen_places(instruction, scope)
    return syntax.call("regularize_present", gradients, penalties, *frozen, **unless_applied(instruction, scope))


def unless_applied(instruction: Transform, scope: EmitScope) -> dict[str, ast.expr]:
    """Return ``unless=step_d_finite``, where another update adds the penalties if it is applied."""
    return {"unless": commit_value(instruction.unless, scope)} if instruction.unless else {}


def noise_present(instruction: Transform, scope: EmitScope) -> ast.expr:
    """Return ``noise_present(slopes, net_params, random.normal(...))``: the same draw whichever are present."""
    gradients = syntax.name(scope.names.value(instruction.inputs[0]))
    parameters = _parameters(instruction, scope)
    drawn = _noise(instruction, parameters, scope)
    return syntax.call("noise_present", gradients, parameters, drawn)


def call_present(
    path: str, instruction: Transform, rest: Sequence[ast.expr], scope: EmitScope, **said: ast.expr
) -> ast.expr:
    """Return ``over_present(clip_norm, (slopes,), 1.0)``: a function of the gradients that are present."""
    sets, numbers = divide(instruction, scope)
    if instruction.weights:
        sets = syntax.sequence([*sets.elts, syntax.name(scope.names.joint(instruction.models))])
    over = "over_common" if instruction.weights or path == "mul_sets" else "over_present"
    return syntax.call(over, syntax.dotted(path), sets, *numbers, *rest, **said)


def apply_present(part: ApplyPart, share: ast.expr, scope: EmitScope) -> ast.expr:
    """Return ``apply_present(net_adam, slopes)``: a step of the parameters that have a gradient."""
    declared = next(each for each in scope.program.optimizers if each.name == part.optimizer)
    is_own = {} if declared.builtin else {"counted": syntax.constant(False)}
    if not (declared.builtin and declared.rule in scope.dialect.direct):
        path = "apply_present_wrapped"
    else:
        path = "apply_present_grouped" if has_groups(declared) else "apply_present"
    counted = is_own if path == "apply_present_wrapped" else {}
    return syntax.call(path, syntax.name(scope.names.optimizer(part.optimizer)), share, **counted)


APART: Mapping[str, str] = {"clip_norm": "clip_each", "normalize": "normalize_each"}
"""The definitions that take a length over each gradient by itself."""
NAMED: Mapping[str, str] = {"scale": "scale_set", "noise": "add_noise", "normalize": "normalize_set"}
"""Transforms whose definition has another name, because theirs is taken or too vague."""
SHARDING: Mapping[str, str] = {"scatter_set": "shards.scatter", "cut_set": "shards.cut"}
"""Methods of the register of shards that make the shards of a set."""
DEFAULTS: Mapping[str, Plain] = {"eps": 0.0, "axis": 0}
"""Options that are left out at these values."""


def lower_transform(instruction: Transform, scope: EmitScope) -> Lowered:
    """Return a map of gradient sets to one: ``step = clip_norm(step_raw, 1.0)``."""
    sets = [syntax.name(scope.names.value(value)) for value in instruction.inputs]
    target = scope.names.value(instruction.output)
    line = line_of(instruction, syntax.assign(target, _transform(instruction, sets, scope)))
    return Lowered(code=with_notes(instruction, [line]))


def _transform(instruction: Transform, sets: Sequence[ast.expr], scope: EmitScope) -> ast.expr:
    """Return the call of a transform, built in or the user's; joined sets are one tuple."""
    function, options = instruction.function, instruction.options
    if not function.builtin and not instruction.may_miss:
        written = {key: setting(value, scope) for key, value in options.items()}
        return syntax.call(scope.names.imported(function.name), *sets, **written)
    if function.name == "join":
        return syntax.sequence(syntax.spread(each) for each in sets)
    if function.name == "part":
        taken = syntax.item(sets[0], syntax.name(scope.names.part(instruction.covers, instruction.models)))
        return syntax.call(NAMED["scale"], taken, setting(options["factor"], scope)) if options else taken
    if function.name == "reduce_set":
        return await_message(instruction, scope)
    if function.name in SHARDING:
        return syntax.call(SHARDING[function.name], *sets, syntax.name(scope.names.joint(instruction.models)))
    if function.name == "share":
        return add_shared(instruction, scope)
    if instruction.is_sharded and function.name in LENGTHS:
        path, limits, said = _arrange(function.name, options, scope)
        return syntax.call(f"shards.{path}", *sets, _parameters(instruction, scope), *limits, **said)
    if instruction.may_miss:
        return _over_missing(instruction, scope)
    if instruction.rows and function.name != "regularize":  # sets in which tables have rows
        divided, numbers = divide(instruction, scope)
        if function.name == "pcgrad":
            turns = _turns(instruction, len(divided.elts))
            return over_rows("pcgrad_of", divided.elts, **({"order": turns[0]} if turns else {}))
        path, limits, said = _arrange(function.name, options, scope)
        return over_rows(path, divided.elts, *numbers, *limits, **said)
    match function.name:
        case "noise":
            return syntax.call(NAMED["noise"], *sets, _noise(instruction, sets[0], scope))
        case "regularize":
            penalties = syntax.name(scope.names.penalties(instruction.output))
            return syntax.call("regularize", *sets, penalties, **unless_applied(instruction, scope))
        case "pcgrad":
            return syntax.call("pcgrad", syntax.listing(sets), *_turns(instruction, len(sets)))
        case _:
            weights = [syntax.name(scope.names.joint(instruction.models))] if instruction.weights else []
            path, limits, said = _arrange(function.name, options, scope)
            return syntax.call(path, *sets, *weights, *limits, **said)


def _over_missing(instruction: Transform, scope: EmitScope) -> ast.expr:
    """Return the call of a transform on sets in which some gradient may be absent."""
    function, options = instruction.function, instruction.options
    match function.name:
        case "require" | "fill" | "accumulated":
            return close_missing(instruction, scope)
        case "regularize":
            return regularize_present(instruction, scope)
        case "noise":
            return noise_present(instruction, scope)
        case "pcgrad":
            turns = _turns(instruction, len(instruction.inputs))
            return call_present("pcgrad_of", instruction, (), scope, **({"order": turns[0]} if turns else {}))
        case name if function.builtin:
            path, limits, said = _arrange(name, options, scope)
            return call_present(path, instruction, limits, scope, **said)
        case name:
            written = {key: setting(value, scope) for key, value in options.items()}
            return call_present(scope.names.imported(name), instruction, (), scope, **written)


def _arrange(
    name: str, options: Mapping[str, Setting], scope: EmitScope
) -> tuple[str, Sequence[ast.expr], Mapping[str, ast.expr]]:
    """Return a definition of the library and its options: the limit comes after the sets, the rest by keyword."""
    path = APART[name] if options.get("per") == "parameter" else NAMED.get(name, name)
    limits = [setting(options[key], scope) for key in ("norm", "factor") if key in options]
    said: dict[str, ast.expr] = {}
    for key, value in options.items():
        # The default of `clip_agc` for `eps` is another, and is worth showing.
        is_default = key in DEFAULTS and value == DEFAULTS[key] and (name, key) != ("clip_agc", "eps")
        if key not in ("norm", "factor", "per") and not is_default:
            said[key] = setting(value, scope)
    return path, limits, said


def _noise(instruction: Transform, gradients: ast.expr, scope: EmitScope) -> ast.expr:
    """Return the draw of one number for every element of a set: ``random.normal("noisy", (count_elements(g),))``."""
    size = syntax.sequence([syntax.call("count_elements", gradients)])
    std = setting(instruction.options["std"], scope)
    return syntax.call("random.normal", syntax.constant(instruction.op), size, std=std)


def _turns(instruction: Transform, count: int) -> list[ast.expr]:
    """Return the draw that orders projections, a row for every set; nothing where they go as listed."""
    if not instruction.draws:
        return []
    shape = syntax.sequence([syntax.constant(count), syntax.constant(count)])
    return [syntax.call("random.uniform", syntax.constant(instruction.op), shape)]
