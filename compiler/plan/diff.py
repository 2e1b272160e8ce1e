"""Compare two plans, function by function."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Generic, Literal, TypeAlias, TypeVar

from msgspec import Struct

from compiler.ir.instructions import Instruction
from compiler.ir.step_graph import Edge, Hazard, StepGraph
from compiler.ir.value import Json, Object
from compiler.plan.explain import explain_version, find_instructions
from compiler.plan.formula import Lines, find_lines
from compiler.plan.plan import Plan
from compiler.plan.text import cells_of, flags_of

T = TypeVar("T")

Aspect: TypeAlias = Literal["reads", "call", "flags"]
"""The aspects of an instruction that can differ: the versions it reads, its phrase, and how it runs."""


class Both(Struct, Generic[T], frozen=True, kw_only=True):
    """What only the new plan has, and what only the old one had."""

    appeared: tuple[T, ...] = ()
    vanished: tuple[T, ...] = ()

    def __bool__(self) -> bool:
        """Return whether there is anything."""
        return bool(self.appeared or self.vanished)


class Row(Struct, frozen=True, kw_only=True):
    """An instruction as a plan shows it."""

    kind: str
    op: str
    label: str
    text: str
    cells: str
    flags: tuple[str, ...]


class Alteration(Struct, frozen=True, kw_only=True):
    """One aspect of an instruction that is different, and why."""

    label: str
    op: str
    aspect: Aspect
    before: str
    after: str
    why: str = ""


class Move(Struct, frozen=True, kw_only=True):
    """An instruction that has another place among the others, and why."""

    label: str
    op: str
    before: tuple[str, ...]
    """Those it had to follow, or has to precede, and now comes before."""
    after: tuple[str, ...]
    """Those it had to precede, or has to follow, and now comes after."""
    reasons: tuple[str, ...] = ()
    """What asks for the order there is now."""
    former: tuple[str, ...] = ()
    """What asked for the order there was."""


class Reason(Struct, frozen=True, kw_only=True):
    """A decision as a plan states it: its code, the op it is about, and its sentence."""

    code: str
    subject: str
    text: str


class FunctionChange(Struct, frozen=True, kw_only=True):
    """What is different in one function of a mode; ``name`` is that in the new plan, ``was`` that in the old one."""

    mode: str
    name: str
    was: str
    sizes: tuple[int, int]
    """How many lines there were, and how many there are."""
    rows: Both[Row]
    altered: tuple[Alteration, ...]
    moved: tuple[Move, ...]
    decisions: Both[Reason]

    def __bool__(self) -> bool:
        """Return whether anything is different."""
        return bool(self.rows or self.altered or self.moved or self.decisions)


class WholeFunction(Struct, frozen=True, kw_only=True):
    """A function that only one of the plans has, with the ops that fire in it."""

    mode: str
    name: str
    writes: tuple[str, ...]


class Difference(Struct, frozen=True, kw_only=True):
    """Everything that is different between two plans."""

    functions: tuple[FunctionChange, ...]
    """The functions that both plans have; those without a change too."""
    whole: Both[WholeFunction]
    warnings: Both[Reason]
    notes: Both[str]

    def __bool__(self) -> bool:
        """Return whether anything is different."""
        return bool(any(self.functions) or self.whole or self.warnings or self.notes)


class Sheet(Struct, frozen=True, kw_only=True):
    """One function: its graph, and its finished instructions by node, in order."""

    graph: StepGraph
    instructions: Mapping[str, Instruction]

    @property
    def order(self) -> tuple[str, ...]:
        """Return the nodes in the order in which they run."""
        return self.graph.sequence

    @property
    def length(self) -> int:
        """Return how many lines the plan has of the function: parts of an expression have none, what it returns one."""
        inlined = find_lines(self.graph)
        return 1 + sum(name not in inlined and self.instructions[name].has_line for name in self.order)


def open_sheet(plan: Plan, function: str) -> Sheet:
    """Return a function of a plan."""
    graph = plan.graphs[function]
    return Sheet(graph=graph, instructions=find_instructions(plan, graph, function))


def compare_rows(old: Sheet, new: Sheet) -> Both[Row]:
    """Return the instructions that only one of two functions has, in the order in which they run."""
    return Both(appeared=tuple(_find_missing(new, old)), vanished=tuple(_find_missing(old, new)))


def _find_missing(here: Sheet, there: Sheet) -> Iterator[Row]:
    """Yield what is here and not there."""
    lines = Lines.of(here.instructions.values())
    for name in here.order:
        if name not in there.instructions and here.instructions[name].has_line:
            node, instruction = here.graph.nodes[name], here.instructions[name]
            kind, text = instruction.kind(), lines.write(instruction)
            cells, flags = cells_of(lines.find(instruction)), flags_of(instruction)
            yield Row(kind=kind, op=node.op, label=node.label, text=text, cells=cells, flags=flags)


def find_alterations(old: Sheet, new: Sheet) -> Iterator[Alteration]:
    """Yield what is different about the instructions that both functions have."""
    earlier, later = Lines.of(old.instructions.values()), Lines.of(new.instructions.values())
    for name in new.order:
        if name not in old.instructions or not new.instructions[name].has_line:
            continue
        node, before, after = new.graph.nodes[name], old.instructions[name], new.instructions[name]
        found: list[tuple[Aspect, str, str, str]] = []
        if earlier.write(before) != later.write(after):
            found.append(("call", earlier.write(before), later.write(after), ""))
        # What a gradient reads follows from the forwards.
        if node.derivative is None:
            was, now = (
                {read.cell: read.at for read in each.reads if read.cell.kind != "optimizer"} for each in (before, after)
            )
            for cell in dict.fromkeys((*was, *now)):
                if was.get(cell) != now.get(cell):
                    why = explain_version(new.graph, now[cell]).lstrip(":, ") if cell in now else ""
                    found.append(("reads", str(was.get(cell, "")), str(now.get(cell, "")), why))
        if set(flags_of(before)) != set(flags_of(after)):
            found.append(("flags", ", ".join(flags_of(before)), ", ".join(flags_of(after)), ""))
        for aspect, one, other, why in found:
            yield Alteration(label=node.label, op=node.op, aspect=aspect, before=one, after=other, why=why)


class Pair(Struct, frozen=True, kw_only=True):
    """A function by its names in two plans; empty where a plan does not have it."""

    mode: str
    old: str
    new: str


def match_functions(old: Plan, new: Plan, mode: str) -> tuple[Pair, ...]:
    """Return the functions of a mode in pairs: those in which the same of the ops that both specs have write."""
    known = frozenset(old.spec.ops).intersection(new.spec.ops)
    rest = dict(old.graphs_of(mode))
    fresh = new.graphs_of(mode)
    if len(rest) == len(fresh) == 1:
        return (Pair(mode=mode, old=next(iter(rest)), new=next(iter(fresh))),)
    pairs: list[Pair] = []
    for name, graph in fresh.items():
        wanted = known.intersection(graph.active)
        found = next((each for each, other in rest.items() if known.intersection(other.active) == wanted), "")
        rest.pop(found, None)
        pairs.append(Pair(mode=mode, old=found, new=name))
    return (*pairs, *(Pair(mode=mode, old=name, new="") for name in rest))


def drop_places(text: str, graph: StepGraph) -> str:
    """Return a sentence about a graph without the places of its ops."""
    for place in {node.place for node in graph.nodes.values()}:
        text = text.replace(f" ({place})", "") if place else text
    return text


MOST = 2
"""The most reasons of one kind that are listed."""


def find_moves(old: StepGraph, new: StepGraph) -> Iterator[Move]:
    """Yield the instructions of both functions that changed places with others, in the new order.

    Each has what asks for its move: constraints with those that it passed, new and old.
    """
    before = {name: index for index, name in enumerate(old.sequence)}
    common = [name for name in new.sequence if name in before]
    kept = find_longest([before[name] for name in common])
    after = {name: index for index, name in enumerate(common)}
    for name in common:
        if before[name] in kept:
            continue
        passed = {other for other in common if (before[name] < before[other]) != (after[name] < after[other])}
        now, then = _find_bounds(new, name, passed), _find_bounds(old, name, passed)
        partners = dict.fromkeys(
            other for edge in (*now, *then) for other in (edge.before, edge.after) if other != name
        )
        yield Move(
            label=new.nodes[name].label,
            op=new.nodes[name].op,
            before=tuple(new.nodes[other].label for other in partners if after[other] > after[name]),
            after=tuple(new.nodes[other].label for other in partners if after[other] < after[name]),
            reasons=_explain_edges(new, now),
            former=_explain_edges(old, then),
        )


def find_longest(numbers: Sequence[int]) -> frozenset[int]:
    """Return a longest rising subsequence, by patience sorting."""
    tops: list[int] = []
    below: dict[int, int | None] = {}
    for number in numbers:
        pile = bisect_left(tops, number)
        below[number] = tops[pile - 1] if pile else None
        tops[pile : pile + 1] = [number]
    kept: set[int] = set()
    top = tops[-1] if tops else None
    while top is not None:
        kept.add(top)
        top = below[top]
    return frozenset(kept)


def _find_bounds(graph: StepGraph, name: str, others: Container[str]) -> list[Edge]:
    """Return the edges, other than those of data, between an instruction and some others."""
    return [
        edge
        for edge in graph.edges
        if edge.hazard is not Hazard.DATA
        and ((edge.before == name and edge.after in others) or (edge.after == name and edge.before in others))
    ]


def _explain_edges(graph: StepGraph, edges: Sequence[Edge]) -> tuple[str, ...]:
    """Return the reasons of edges, the first few and without places."""
    return tuple(dict.fromkeys(drop_places(edge.why, graph) for edge in edges))[:MOST]


K = TypeVar("K")


def compare_plans(old: Plan, new: Plan) -> Difference:
    """Return every difference between two plans; the names and paths of their specs do not count."""
    modes = dict.fromkeys(program.mode for plan in (old, new) for program in plan.program.modes)
    pairs = [pair for mode in modes for pair in match_functions(old, new, mode)]
    functions: list[FunctionChange] = []
    for pair in pairs:
        if pair.old and pair.new:
            before, after = open_sheet(old, pair.old), open_sheet(new, pair.new)
            change = FunctionChange(
                mode=pair.mode,
                name=pair.new,
                was=pair.old,
                sizes=(before.length, after.length),
                rows=compare_rows(before, after),
                altered=tuple(find_alterations(before, after)),
                moved=tuple(find_moves(before.graph, after.graph)),
                decisions=_separate(_find_decisions(before), _find_decisions(after)),
            )
            functions.append(change)
    return Difference(
        functions=tuple(functions),
        whole=Both(
            appeared=tuple(_summarize_whole(pair.mode, pair.new, new) for pair in pairs if not pair.old),
            vanished=tuple(_summarize_whole(pair.mode, pair.old, old) for pair in pairs if not pair.new),
        ),
        warnings=_separate(_find_warnings(old), _find_warnings(new)),
        notes=_separate({note: note for note in old.notes}, {note: note for note in new.notes}),
    )


def _summarize_whole(mode: str, name: str, plan: Plan) -> WholeFunction:
    return WholeFunction(mode=mode, name=name, writes=plan.graphs[name].active)


def _separate(old: Mapping[K, T], new: Mapping[K, T]) -> Both[T]:
    """Return the items that only one of two collections has, by key."""
    appeared = tuple(item for key, item in new.items() if key not in old)
    return Both(appeared=appeared, vanished=tuple(item for key, item in old.items() if key not in new))


def _find_decisions(sheet: Sheet) -> Mapping[Reason, Reason]:
    """Return the decisions of a function."""
    reasons = (
        Reason(code=each.code, subject=each.subject, text=drop_places(each.text, sheet.graph))
        for each in sheet.graph.decisions
    )
    return {reason: reason for reason in reasons}


def _find_warnings(plan: Plan) -> Mapping[Reason, Reason]:
    """Return the warnings of a plan without places."""
    found: dict[Reason, Reason] = {}
    for each in plan.warnings:
        text = each.message
        for graph in plan.graphs.values():
            text = drop_places(text, graph)
        reason = Reason(code=each.code, subject="", text=text)
        found[reason] = reason
    return found


def export_difference(difference: Difference) -> Object:
    """Return a difference as an object; functions that are the same are left out."""
    functions: list[Json] = []
    for change in difference.functions:
        if not change:
            continue
        altered: list[Json] = []
        for each in change.altered:
            values: Object = {"before": each.before, "after": each.after, "why": each.why}
            altered.append({"instruction": each.label, "op": each.op, "aspect": each.aspect, **values})
        moved: list[Json] = []
        for move in change.moved:
            sides: Object = {"before": [*move.before], "after": [*move.after]}
            reasons: Object = {"why": [*move.reasons], "former": [*move.former]}
            moved.append({"instruction": move.label, "op": move.op, **sides, **reasons})
        instructions: Object = {
            "appeared": [_export_row(row) for row in change.rows.appeared],
            "vanished": [_export_row(row) for row in change.rows.vanished],
            "altered": altered,
            "moved": moved,
        }
        names: Object = {"mode": change.mode, "name": change.name, "was": change.was}
        functions.append({**names, "instructions": instructions, "decisions": _export_reasons(change.decisions)})
    return {
        "functions": functions,
        "appeared": [_export_whole(each) for each in difference.whole.appeared],
        "vanished": [_export_whole(each) for each in difference.whole.vanished],
        "warnings": _export_reasons(difference.warnings),
        "notes": {"appeared": [*difference.notes.appeared], "vanished": [*difference.notes.vanished]},
    }


def _export_row(row: Row) -> Object:
    return {"kind": row.kind, "op": row.op, "text": row.text, "cells": row.cells, "flags": [*row.flags]}


def _export_reasons(reasons: Both[Reason]) -> Object:
    found: Object = {"appeared": [_export_reason(each) for each in reasons.appeared]}
    return {**found, "vanished": [_export_reason(each) for each in reasons.vanished]}


def _export_reason(reason: Reason) -> Json:
    return {"code": reason.code, "subject": reason.subject, "text": reason.text}


def _export_whole(each: WholeFunction) -> Object:
    return {"mode": each.mode, "name": each.name, "writes": [*each.writes]}


SAME = "the schedule is the same: no instruction, decision or warning is different"


def format_difference(difference: Difference) -> str:
    """Return a difference as text; one line where there is none."""
    if not difference:
        return f"{SAME}\n"
    blocks: list[list[str]] = []
    for change in difference.functions:
        if change:
            old, new = change.sizes
            size = f"{old} before" if old != new else "as before"
            head = f"{change.name}{_format_name(change)}  ({new} lines, {size})"
            blocks.append([head, *_describe_instructions(change), *_format_reasons(change.decisions)])
    blocks.extend([_format_new_function("+", each)] for each in difference.whole.appeared)
    blocks.extend([_format_new_function("-", each)] for each in difference.whole.vanished)
    same = [f"{change.name}{_format_name(change)}" for change in difference.functions if not change]
    blocks.extend([[f"{', '.join(same)}: the same"]] if same else [])
    last = ["warnings", *_format_reasons(difference.warnings)] if difference.warnings else []
    if difference.notes:
        last += ["notes", *(f"  - {note}" for note in difference.notes.vanished)]
        last += [f"  + {note}" for note in difference.notes.appeared]
    blocks.append(last)
    return "\n".join("\n".join(block) + "\n" for block in blocks if block)


def _describe_instructions(change: FunctionChange) -> Iterator[str]:
    """Yield the lines of what is different in one function: rows, alterations, and moves with their reasons."""
    yield from (_format_row("-", row) for row in change.rows.vanished)
    yield from (_format_row("+", row) for row in change.rows.appeared)
    for each in change.altered:
        match each.aspect:
            case "reads" if each.before and each.after:
                what = f"reads {each.after} instead of {each.before}"
            case "reads":
                what = f"reads {each.after}" if each.after else f"no longer reads {each.before}"
            case "call":
                what = f"is {each.after}, was {each.before}"
            case "flags":
                old, new = (flags.split(", ") if flags else [] for flags in (each.before, each.after))
                gained = [f"+ {flag}" for flag in new if flag not in old]
                lost = [f"- {flag}" for flag in old if flag not in new]
                what = f"runs otherwise: {', '.join([*gained, *lost])}"
        yield f"  ~ {each.label} {what}"
        if each.why:
            yield f"      {each.why}"
    bound = [move for move in change.moved if move.reasons or move.former]
    free = [move.label for move in change.moved if not (move.reasons or move.former)]
    for move in bound:
        sides = {"before": move.before, "after": move.after}
        where = [f"{side} {', '.join(labels)}" for side, labels in sides.items() if labels]
        yield f"  > {move.label} now comes {' and '.join(where)}"
        yield from (f"      {reason}" for reason in move.reasons)
        yield from (f"      no longer: {reason}" for reason in move.former if reason not in move.reasons)
    if free and bound:
        yield f"  > moved along: {', '.join(free)}"
    elif free:
        yield f"  > moved: {', '.join(free)}"
        yield "      no rule asks for it: what is needed at another time runs at another time"


def _format_name(change: FunctionChange) -> str:
    return f" (was {change.was})" if change.was != change.name else ""


def _format_row(sign: str, row: Row) -> str:
    parts = (row.text, row.cells, f"[{', '.join(row.flags)}]" if row.flags else "")
    return f"  {sign} {row.kind:<9} {'  '.join(part for part in parts if part)}"


def _format_reasons(reasons: Both[Reason]) -> list[str]:
    """Return the lines of reasons: those that are gone, then those that are new."""
    signed = [*(("-", each) for each in reasons.vanished), *(("+", each) for each in reasons.appeared)]
    return [f"  {sign} {each.code:<13}{each.text}" for sign, each in signed]


def _format_new_function(sign: str, each: WholeFunction) -> str:
    end = "is new" if sign == "+" else "is gone"
    return f"{sign} {each.name} {end}: a {each.mode} step that writes {', '.join(each.writes) or 'nothing'}"


__all__ = ["Difference", "FunctionChange", "compare_plans", "export_difference", "format_difference"]
