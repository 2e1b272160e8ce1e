"""Emission of what patterns choose: parameters that are frozen, in groups, constrained, or penalized."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compiler.instructions import Apply, Gather, Gradient, Resting, Transform
from compiler.penalty import Penalty
from compiler.program import ModelDecl, OptimizerDecl, Program
from runtime.effects import find_functions
from runtime.emission import syntax
from runtime.emission.dialect import Dialect, Draft, Global

if TYPE_CHECKING:
    from runtime.emission.names import Names, Wish


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Parameters of a model by a pattern, for a constraint or a penalty."""

    model: str
    match: str

    @property
    def key(self) -> str:
        """Return what tells it from others."""
        return f"{self.model} {self.match}"


def find_chosen(program: Program) -> tuple[Chosen, ...]:
    """Return what constraints and penalties choose, each once."""
    found: dict[Chosen, None] = {}
    for each in (each for function in find_functions(program) for each in function.instructions):
        uses = each.projections if isinstance(each, Apply) else each.penalties if isinstance(each, Transform) else ()
        found.update((Chosen(model=use.model, match=use.match), None) for use in uses if use.match is not None)
    return tuple(found)


def find_penalized(program: Program) -> tuple[Transform, ...]:
    """Return the instructions that add penalties to a set, one for each set."""
    instructions = (each for function in find_functions(program) for each in function.instructions)
    found = (each for each in instructions if isinstance(each, Transform) and each.penalties)
    return tuple({each.output: each for each in found}.values())


def find_frozen(model: ModelDecl) -> tuple[str, ...]:
    """Return the patterns of the parameters that a model does not train."""
    return tuple(group.match for group in model.groups if group.frozen)


def find_resting(program: Program) -> tuple[tuple[tuple[str, ...], Resting], ...]:
    """Return the sets of models in which parameters are frozen for now, with these, each once."""
    instructions = (each for function in find_functions(program) for each in function.instructions)
    found = (each for each in instructions if isinstance(each, Gradient | Transform | Gather) and each.resting)
    return tuple(dict.fromkeys((each.models, each.resting) for each in found))


def resting_key(models: tuple[str, ...], resting: Resting) -> str:
    """Return what tells the places of parameters that are frozen for now from others."""
    return " ".join((*models, "|", *(part for each in resting for part in each)))


def _resting_global(models: tuple[str, ...], resting: Resting, draft: Draft) -> Global:
    """Return ``net_resting = places(among(net_params, matching(...)), net_params)``."""
    names = draft.names
    whole = syntax.name(names.parameters(models[0]) if len(models) == 1 else names.joint(models))
    found = [_match(draft.program.model(model), (match,), draft) for model, match in resting]
    listed = found[0] if len(found) == 1 else syntax.listing(map(syntax.spread, found))
    value = syntax.call("places", syntax.call("among", whole, listed), whole)
    return Global(name=names.resting(models, resting), value=value, comment="frozen for now")


def pattern_wishes(program: Program) -> Iterator[Wish]:
    """Yield the wishes for the lists that patterns make."""
    for model in program.models:
        if find_frozen(model):
            yield "frozen", model.name, f"{model.name}_frozen"
    for models, resting in find_resting(program):
        yield "resting", resting_key(models, resting), f"{'_'.join(models)}_resting"
    for chosen in find_chosen(program):
        yield "chosen", chosen.key, f"{chosen.model}_chosen"
    for each in find_penalized(program):
        yield "penalties", each.output, f"{each.op}_penalties"


def pattern_globals(draft: Draft) -> Iterator[Global]:
    """Yield the lists that constraints choose, then the penalties."""
    program, names = draft.program, draft.names
    yield from (_resting_global(models, resting, draft) for models, resting in find_resting(program))
    for chosen in find_chosen(program):
        found = _match(program.model(chosen.model), (chosen.match,), draft)
        stepped = syntax.name(names.parameters(chosen.model))
        yield Global(name=names.chosen(chosen.key), value=syntax.call("among", stepped, found))
    for each in find_penalized(program):
        listed = syntax.listing(_penalty(penalty, each, names) for penalty in each.penalties)
        yield Global(name=names.penalties(each.output), value=listed, place=(each.op, each.place))


def chosen_list(model: str, match: str | None, names: Names) -> ast.expr:
    """Return the list of the parameters of a model that are stepped, or those that a pattern chooses."""
    return syntax.name(names.parameters(model) if match is None else names.chosen(f"{model} {match}"))


def _penalty(penalty: Penalty, instruction: Transform, names: Names) -> ast.expr:
    """Return ``Penalty(net_params, places(net_params, net_params), l2=0.5)``."""
    models = instruction.models
    whole = names.parameters(models[0]) if len(models) == 1 else names.joint(models)
    part = chosen_list(penalty.model, penalty.match, names)
    options = {name: syntax.constant(each) for name, each in (("l1", penalty.l1), ("l2", penalty.l2)) if each}
    if penalty.function is not None:
        options["term"] = syntax.dotted(names.imported(penalty.function))
    return syntax.call("Penalty", part, syntax.call("places", part, syntax.name(whole)), **options)


def frozen_global(model: ModelDecl, names: Names, dialect: Dialect) -> Global:
    """Return ``net_frozen = matching(net.named_parameters(), "^0")``."""
    variable = syntax.name(names.model(model.name))
    patterns = (syntax.constant(each) for each in find_frozen(model))
    value = syntax.call("matching", dialect.named(model, variable), *patterns)
    return Global(name=names.frozen(model.name), value=value, comment="never stepped")


def grouped_parameters(optimizer: OptimizerDecl, draft: Draft) -> ast.expr | None:
    """Return the groups of an optimizer with what is different for them; None where it has none.

    Groups in which the same is different are one.
    """
    members: dict[tuple[float, float | None], list[ast.expr]] = {}
    for model in (draft.program.model(name) for name in optimizer.models):
        patterns: dict[tuple[float, float | None], list[str]] = {}
        for group in model.groups:
            if not group.frozen and (group.lr_scale != 1.0 or group.weight_decay is not None):
                patterns.setdefault((group.lr_scale, group.weight_decay), []).append(group.match)
        for changes, found in patterns.items():
            members.setdefault(changes, []).append(_match(model, tuple(found), draft))
    return syntax.listing(_group(changes, each) for changes, each in members.items()) if members else None


def has_groups(optimizer: OptimizerDecl, program: Program) -> bool:
    """Return whether an optimizer steps some parameters in another way than the rest."""
    groups = (group for name in optimizer.models for group in program.model(name).groups)
    return any(not group.frozen and (group.lr_scale != 1.0 or group.weight_decay is not None) for group in groups)


def _group(changes: tuple[float, float | None], members: list[ast.expr]) -> ast.expr:
    """Return ``(matching(net.named_parameters(), "bias$"), {"weight_decay": 0.0})``."""
    scale, decay = changes
    listed = members[0] if len(members) == 1 else syntax.listing(map(syntax.spread, members))
    told: Mapping[str, float] = {
        **({} if scale == 1.0 else {"lr_scale": scale}),
        **({} if decay is None else {"weight_decay": decay}),
    }
    return syntax.sequence((listed, syntax.dictionary({key: syntax.constant(each) for key, each in told.items()})))


def _match(model: ModelDecl, patterns: tuple[str, ...], draft: Draft) -> ast.expr:
    """Return ``matching(net.named_parameters(), "bias$")``."""
    named = draft.dialect.named(model, syntax.name(draft.names.model(model.name)))
    return syntax.call("matching", named, *map(syntax.constant, patterns))
