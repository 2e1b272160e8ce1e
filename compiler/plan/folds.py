"""Folds: iterations that do what the first does, which a plan shows once with their count."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from msgspec import Struct

from compiler.ir.instructions import Instruction
from compiler.ir.value import Write
from graphspec.declare.graph import GraphSpec
from graphspec.declare.parts import Part

_VERSION = re.compile(r"@\d+")


class PlanLine(Struct, frozen=True, kw_only=True):
    """A line of a function: what is in it, and what it says, without the versions of what it reads and writes."""

    instructions: tuple[Instruction, ...]
    says: tuple[str, ...]


class Fold(Struct, frozen=True, kw_only=True):
    """Lines of later iterations that are shown as one: from ``first`` up to ``last``, counted from 0."""

    first: int
    last: int
    text: str
    writes: str
    """The versions that change in them: ``d.params@1 -> @5``."""


def group_iterations(names: Iterable[str], spec: GraphSpec) -> Mapping[str, tuple[str, ...]]:
    """Return ops by the name that stands in summaries: for one that is repeated, its first and its last iteration."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name in names:
        part = next((each for each in spec.ops[name].within if each.repeat), None)
        key = ("", name) if part is None else (part.of, name.removeprefix(f"{part.name}."))
        groups.setdefault(key, []).append(name)
    return {group[0] if len(group) == 1 else f"{group[0]} to {group[-1]}": tuple(group) for group in groups.values()}


def find_hidden(lines: Sequence[PlanLine], spec: GraphSpec) -> Mapping[int, Fold]:
    """Return the fold of every line of a function that is not shown; outer iterations are folded before inner ones."""
    earlier = {name: each.of for name, each in spec.inputs.items() if each.of is not None}
    hidden: dict[int, Fold] = {}
    for of in dict.fromkeys(part.of for line in lines for part in line.instructions[0].within if part.repeat):
        blocks: dict[int, list[int]] = {}
        parts: dict[int, Part] = {}
        for at, line in enumerate(lines):
            part = next((each for each in line.instructions[0].within if each.of == of), None)
            if part is not None and at not in hidden:
                blocks.setdefault(part.number, []).append(at)
                parts[part.number] = part
        said = {number: [_say(lines[at], parts[number], earlier) for at in block] for number, block in blocks.items()}
        models = {number: next(first for first in said if said[first] == said[number]) for number in said}
        alike = {at: number for number, block in blocks.items() if models[number] != number for at in block}
        following = groupby(enumerate(sorted(alike)), lambda each: each[1] - each[0])  # lines that follow one another
        for run in ([at for _, at in each] for _, each in following):
            for places, text in _describe(run, alike, models, of):
                written = [write for at in places for each in lines[at].instructions for write in each.writes]
                fold = Fold(first=places[0], last=places[-1], text=text, writes=_span_versions(written))
                hidden |= dict.fromkeys(places, fold)
    return hidden


def _describe(
    run: Sequence[int], alike: Mapping[int, int], models: Mapping[int, int], of: str
) -> Iterator[tuple[list[int], str]]:
    """Yield lines of later iterations, with what they are the same as: one earlier iteration, or several in turn."""
    groups = [(number, list(places)) for number, places in groupby(run, alike.__getitem__)]
    while groups:
        number, _ = groups[0]
        which = "the first" if models[number] == 1 else f"iteration {models[number]}"
        _, alike_ones = next(groupby(groups, lambda group: models[group[0]]))
        same = list(alike_ones)
        for period in range(2, number):  # such as an average that is taken in every second iteration
            turns = 0
            while turns < len(groups) and groups[turns][0] == number + turns:
                if models[number + turns] != models.get(number + turns - period):
                    break
                turns += 1
            if turns > len(same):
                same, which = groups[:turns], f"{number - period} to {number - 1}, in turn"
                break
        last = same[-1][0]
        these = f"iteration {number}" if number == last else f"iterations {number} to {last}"
        yield [at for _, places in same for at in places], f"{these} of {of}: the same as {which}"
        groups = groups[len(same) :]


def _say(line: PlanLine, part: Part, earlier: Mapping[str, str]) -> tuple[str, ...]:
    """Return what a line of an iteration says, as if the iteration had no number, and cells no versions."""
    said = (_VERSION.sub("@", each).replace(f"{part.name}.", f"{part.of}.") for each in line.says)
    found: list[str] = []
    for text in said:
        for name, of in earlier.items():
            text = text.replace(name, of)
        found.append(text)
    return tuple(found)


def _span_versions(writes: Sequence[Write]) -> str:
    """Return the versions of models and states before and after some writes; optimizers are left out."""
    found: dict[object, list[int]] = {}
    for write in writes:
        if write.cell.kind != "optimizer":
            found.setdefault(write.cell, []).append(write.version)
    return ", ".join(f"{cell}@{min(versions) - 1} -> @{max(versions)}" for cell, versions in found.items())
