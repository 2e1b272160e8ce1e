"""Transforms of gradient sets: which definition of the library each one calls, and with what."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from compiler.ir.instructions import Transform
from compiler.ir.value import Plain, Setting
from runtime.emission import syntax
from runtime.emission.gaps import call_present, close_gaps, noise_present, regularize_present, unless_applied
from runtime.emission.scope import Lowered, Scope, line_of, parameter_list, setting, with_notes
from runtime.emission.sharing import add_shared

APART: Mapping[str, str] = {"clip_norm": "clip_each", "normalize": "normalize_each"}
"""What is called where a length is taken over each gradient by itself."""
NAMED: Mapping[str, str] = {"scale": "scale_set", "noise": "add_noise", "normalize": "normalize_set"}
"""Transforms whose definition has another name, since theirs is that of another function or says too little."""
DEFAULTS: Mapping[str, Plain] = {"eps": 0.0, "axis": 0}
"""Options that go unsaid at these values."""


def lower_transform(instruction: Transform, scope: Scope) -> Lowered:
    """Return a map of gradient sets to one: ``step = clip_norm(step_raw, 1.0)``."""
    sets = [syntax.name(scope.names.value(value)) for value in instruction.inputs]
    target = scope.names.value(instruction.output)
    line = line_of(instruction, syntax.assign(target, _transform(instruction, sets, scope)))
    return Lowered(code=with_notes(instruction, [line]))


def _transform(instruction: Transform, sets: Sequence[ast.expr], scope: Scope) -> ast.expr:
    """Return the call of a transform, built in or the user's; joined sets are one tuple."""
    function, options = instruction.function, instruction.options
    if not function.builtin and not instruction.gaps:
        written = {key: setting(value, scope) for key, value in options.items()}
        return syntax.call(scope.names.imported(function.name), *sets, **written)
    if function.name == "join":
        return syntax.sequence(syntax.spread(each) for each in sets)
    if function.name == "share":
        return add_shared(instruction, scope)
    if instruction.gaps:
        return _over_gaps(instruction, scope)
    match function.name:
        case "noise":
            return syntax.call(NAMED["noise"], *sets, _noise(instruction, sets[0], scope))
        case "regularize":
            penalties = syntax.name(scope.names.penalties(instruction.output))
            return syntax.call("regularize", *sets, penalties, **unless_applied(instruction, scope))
        case "pcgrad":
            return syntax.call("pcgrad", syntax.listing(sets), *_turns(instruction, len(sets)))
        case _:
            weights = [syntax.name(parameter_list(instruction.models, scope))] if instruction.weights else []
            return _call(function.name, options, [*sets, *weights], scope)


def _over_gaps(instruction: Transform, scope: Scope) -> ast.expr:
    """Return the call of a transform on sets in which some gradient may be absent."""
    function, options = instruction.function, instruction.options
    match function.name:
        case "require" | "fill" | "gathered":
            return close_gaps(instruction, scope)
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


def _call(name: str, options: Mapping[str, Setting], operands: Sequence[ast.expr], scope: Scope) -> ast.expr:
    """Return the call of a definition of the library."""
    path, limits, said = _arrange(name, options, scope)
    return syntax.call(path, *operands, *limits, **said)


def _arrange(
    name: str, options: Mapping[str, Setting], scope: Scope
) -> tuple[str, Sequence[ast.expr], Mapping[str, ast.expr]]:
    """Return a definition of the library and its options: the limit stands behind the sets, the rest by keyword."""
    path = APART[name] if options.get("per") == "parameter" else NAMED.get(name, name)
    limits = [setting(options[key], scope) for key in ("norm", "factor") if key in options]
    rest = {key: value for key, value in options.items() if key not in ("norm", "factor", "per")}
    return path, limits, {key: setting(value, scope) for key, value in rest.items() if _is_said(name, key, value)}


def _is_said(name: str, option: str, value: Setting) -> bool:
    """Return whether an option is not at the default of what is called."""
    is_agc = name == "clip_agc" and option == "eps"  # its default is another, and worth being seen
    return is_agc or option not in DEFAULTS or value != DEFAULTS[option]


def _noise(instruction: Transform, gradients: ast.expr, scope: Scope) -> ast.expr:
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
