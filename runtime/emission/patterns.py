"""What patterns choose: parameters that are frozen, constrained, or penalized, and the names of their lists."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compiler.ir.instructions import Apply, Gather, Gradient, Resting, Transform
from compiler.ir.program import Program
from runtime.effects import find_functions
from runtime.emission import syntax

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


def find_resting(program: Program) -> tuple[tuple[tuple[str, ...], Resting], ...]:
    """Return the sets of models in which parameters are frozen for now, with these, each once."""
    instructions = (each for function in find_functions(program) for each in function.instructions)
    found = (each for each in instructions if isinstance(each, Gradient | Transform | Gather) and each.resting)
    return tuple(dict.fromkeys((each.models, each.resting) for each in found))


def resting_key(models: tuple[str, ...], resting: Resting) -> str:
    """Return what tells the places of parameters that are frozen for now from others."""
    return " ".join((*models, "|", *(part for each in resting for part in each)))


def pattern_wishes(program: Program) -> Iterator[Wish]:
    """Yield the wishes for the lists that patterns make."""
    for model in program.models:
        if model.frozen:
            yield "frozen", model.name, f"{model.name}_frozen"
    for models, resting in find_resting(program):
        yield "resting", resting_key(models, resting), f"{'_'.join(models)}_resting"
    for chosen in find_chosen(program):
        yield "chosen", chosen.key, f"{chosen.model}_chosen"
    for each in find_penalized(program):
        yield "penalties", each.output, f"{each.op}_penalties"


def chosen_list(model: str, match: str | None, names: Names) -> ast.expr:
    """Return the list of the parameters of a model that are stepped, or those that a pattern chooses."""
    return syntax.name(names.parameters(model) if match is None else names.chosen(f"{model} {match}"))
