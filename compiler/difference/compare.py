"""Compare two plans, function by function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from compiler.difference.instructions import Sheet, compare_rows, find_alterations, open_sheet
from compiler.difference.matching import Pair, match_functions
from compiler.difference.moves import find_moves
from compiler.difference.places import drop_places
from compiler.difference.records import Both, Difference, FunctionChange, Reason, WholeFunction
from compiler.plan import Plan

K = TypeVar("K")
T = TypeVar("T")


def compare_plans(old: Plan, new: Plan) -> Difference:
    """Return everything that is different between two plans, whatever their specs are called and wherever they lie."""
    pairs = [pair for mode in _find_modes(old, new) for pair in match_functions(old, new, mode)]
    return Difference(
        functions=tuple(_compare_functions(old, new, pair) for pair in pairs if pair.old and pair.new),
        whole=Both(
            appeared=tuple(_tell_whole(pair.mode, pair.new, new) for pair in pairs if not pair.old),
            vanished=tuple(_tell_whole(pair.mode, pair.old, old) for pair in pairs if not pair.new),
        ),
        warnings=_separate(_find_warnings(old), _find_warnings(new)),
        notes=_separate({note: note for note in old.notes}, {note: note for note in new.notes}),
    )


def _find_modes(old: Plan, new: Plan) -> tuple[str, ...]:
    return tuple(dict.fromkeys(program.mode for plan in (old, new) for program in plan.program.modes))


def _compare_functions(old: Plan, new: Plan, pair: Pair) -> FunctionChange:
    before, after = open_sheet(old, pair.old), open_sheet(new, pair.new)
    return FunctionChange(
        mode=pair.mode,
        name=pair.new,
        was=pair.old,
        sizes=(len(before.order), len(after.order)),
        rows=compare_rows(before, after),
        altered=tuple(find_alterations(before, after)),
        moved=tuple(find_moves(before.graph, after.graph)),
        decisions=_separate(_find_decisions(before), _find_decisions(after)),
    )


def _tell_whole(mode: str, name: str, plan: Plan) -> WholeFunction:
    return WholeFunction(mode=mode, name=name, writes=plan.graphs[name].active)


def _separate(old: Mapping[K, T], new: Mapping[K, T]) -> Both[T]:
    """Return what only one of two collections has, by what tells things apart."""
    appeared = tuple(item for key, item in new.items() if key not in old)
    return Both(appeared=appeared, vanished=tuple(item for key, item in old.items() if key not in new))


def _find_decisions(sheet: Sheet) -> Mapping[Reason, Reason]:
    """Return the decisions of a function."""
    told = (
        Reason(code=each.code, subject=each.subject, text=drop_places(each.text, sheet.graph))
        for each in sheet.graph.decisions
    )
    return {reason: reason for reason in told}


def _find_warnings(plan: Plan) -> Mapping[Reason, Reason]:
    found = (Reason(code=each.code, subject="", text=_drop(each.message, plan)) for each in plan.warnings)
    return {reason: reason for reason in found}


def _drop(text: str, plan: Plan) -> str:
    for graph in plan.graphs.values():
        text = drop_places(text, graph)
    return text
