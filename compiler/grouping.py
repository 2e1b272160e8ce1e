"""The groups of a plan in words: which parameters of which model are in each, and what is different for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from compiler.cells import group_of
from compiler.group import GroupDecl
from compiler.instructions import Apply
from compiler.operands import ScheduleDecl
from compiler.patterns import find_known_names, find_matching
from compiler.program import Program
from compiler.timetable import tell_schedule


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
    applied = {part.optimizer for each in instructions if isinstance(each, Apply) for part in each.parts}
    frozen = {gate.op: gate.until for gate in program.mode(mode).gates}
    known = find_known_names(program.models)
    groups = [group for each in program.optimizers if each.name in applied for group in each.groups]
    order = {model.name: place for place, model in enumerate(program.models)}
    seen: list[GroupDecl] = []
    for group in sorted(groups, key=lambda each: (order[each.model], each.index)):
        if group not in seen:
            seen.append(group)
            names = find_matching(group.match, known[group.model]) if group.model in known else None
            until = frozen.get(group_of(group.model, group.index))
            yield GroupRow(model=group.model, group=group, parameters=names, until=until)


def tell_group(row: GroupRow) -> str:
    """Return a group in words: `net: 0.bias, 2.bias: weight_decay 0 (fit 'bias$')`."""
    group = row.group
    changes = {
        "frozen": group.frozen,
        f"frozen up to step {row.until}": row.until is not None,
        f"lr times {tell_change(group.lr_scale)}": group.lr_scale != 1.0,
        f"weight_decay {tell_change(group.weight_decay or 0)}": group.weight_decay is not None,
    }
    told = ", ".join(change for change, is_made in changes.items() if is_made) or "as the others"
    names = "what the class calls so" if row.parameters is None else ", ".join(row.parameters)
    return f"{row.model}: {names}: {told} (fit '{group.match}')"


def tell_change(number: float | ScheduleDecl) -> str:
    """Return what is different in words: a number, or `linear from 1 to 0.1 over 100 updates`."""
    return tell_schedule(number) if isinstance(number, ScheduleDecl) else f"{number:g}"
