"""The groups of a plan in words: which parameters of which model are in each, and what is different for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from compiler.cells import group_of
from compiler.group import GroupDecl
from compiler.instructions import Apply
from compiler.patterns import find_known_names, find_matching
from compiler.program import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A group of a model that a mode updates; ``parameters`` is None where only the built step knows their names."""

    model: str
    group: GroupDecl
    parameters: tuple[str, ...] | None
    until: int | None = None
    """The last step in which it is frozen, where that is not so for ever."""


def find_groups(program: Program, mode: str) -> Iterator[GroupRow]:
    """Yield the groups of the models that a mode updates."""
    instructions = [each for function in program.mode(mode).functions for each in function.instructions]
    applied = {name for each in instructions if isinstance(each, Apply) for part in each.parts for name in part.models}
    frozen = {gate.op: gate.until for gate in program.mode(mode).gates}
    known = find_known_names(program.models)
    for model in program.models:
        for index, group in enumerate(model.groups if model.name in applied else ()):
            names = find_matching(group.match, known[model.name]) if model.name in known else None
            until = frozen.get(group_of(model.name, index))
            yield GroupRow(model=model.name, group=group, parameters=names, until=until)


def tell_group(row: GroupRow) -> str:
    """Return a group in words: `net: 0.bias, 2.bias: weight_decay 0 (fit 'bias$')`."""
    group = row.group
    changes = {
        "frozen": group.frozen,
        f"frozen up to step {row.until}": row.until is not None,
        f"lr times {group.lr_scale:g}": group.lr_scale != 1.0,
        f"weight_decay {group.weight_decay or 0:g}": group.weight_decay is not None,
    }
    told = ", ".join(change for change, is_made in changes.items() if is_made) or "as the others"
    names = "what the class calls so" if row.parameters is None else ", ".join(row.parameters)
    return f"{row.model}: {names}: {told} (fit '{group.match}')"
