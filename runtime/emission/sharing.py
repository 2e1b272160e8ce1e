"""Emission of what several updates share: the parameters that are left to an optimizer, and the sum of gradients."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from compiler.ir.instructions import Apply, Transform
from runtime.effects import find_functions
from runtime.emission import syntax
from runtime.emission.dialect import Draft, Global
from runtime.emission.names import Names
from runtime.emission.scope import Scope


def sharing_globals(draft: Draft) -> Iterator[Global]:
    """Yield the parameters of optimizers that leave some to others, their places in sets, and what two sets share."""
    names, program = draft.names, draft.program
    for optimizer in program.optimizers:
        if optimizer.beside:
            own = (syntax.name(_listed(models, names)) for models in (optimizer.models, optimizer.beside))
            comment = "the rest is stepped by another"
            yield Global(name=names.own(optimizer.name), value=syntax.call("without", *own), comment=comment)
    instructions = [each for function in find_functions(program) for each in function.instructions]
    parts = (part for each in instructions if isinstance(each, Apply) for part in each.parts if part.beside)
    for covers, optimizer in dict.fromkeys((part.covers, part.optimizer) for part in parts):
        found = syntax.call("places", syntax.name(names.own(optimizer)), syntax.name(_listed(covers, names)))
        yield Global(name=names.own_places(optimizer), value=found)
    shared = (each.spans for each in instructions if isinstance(each, Transform) and each.spans)
    for models, others in dict.fromkeys((spans[0], other) for spans in shared for other in spans[1:]):
        lists = (syntax.name(_listed(each, names)) for each in (models, others))
        yield Global(name=names.common(models, others), value=syntax.call("common_places", *lists))


def _listed(models: tuple[str, ...], names: Names) -> str:
    """Return the list of the parameters of one or several models."""
    return names.parameters(models[0]) if len(models) == 1 else names.joint(models)


def add_shared(instruction: Transform, scope: Scope) -> ast.expr:
    """Return ``add_shared(step_a, (step_b, step_a_common))``; the set alone where no other update fires."""
    first, *others = (syntax.name(scope.names.value(each)) for each in instruction.inputs)
    if not others:
        return first
    models, *spans = instruction.spans
    places = [syntax.name(scope.names.common(models, each)) for each in spans]
    return syntax.call("add_shared", first, *(map(syntax.sequence, zip(others, places, strict=True))))
