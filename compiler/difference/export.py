"""A difference between two plans as JSON."""

from __future__ import annotations

from compiler.difference.records import Alteration, Difference, FunctionChange, Move, Reason, Row, WholeFunction
from compiler.published import Json, Object


def export_difference(difference: Difference) -> Object:
    """Return a difference as an object; functions that are the same are left out."""
    return {
        "functions": [_export_function(change) for change in difference.functions if change],
        "appeared": [_export_whole(each) for each in difference.whole.appeared],
        "vanished": [_export_whole(each) for each in difference.whole.vanished],
        "warnings": _export_reasons(difference.warnings.appeared, difference.warnings.vanished),
        "notes": {"appeared": [*difference.notes.appeared], "vanished": [*difference.notes.vanished]},
    }


def _export_function(change: FunctionChange) -> Object:
    instructions: Object = {
        "appeared": [_export_row(row) for row in change.rows.appeared],
        "vanished": [_export_row(row) for row in change.rows.vanished],
        "altered": [_export_alteration(each) for each in change.altered],
        "moved": [_export_move(move) for move in change.moved],
    }
    names: Object = {"mode": change.mode, "name": change.name, "was": change.was}
    return {
        **names,
        "instructions": instructions,
        "decisions": _export_reasons(change.decisions.appeared, change.decisions.vanished),
    }


def _export_row(row: Row) -> Object:
    return {"kind": row.kind, "op": row.op, "text": row.text, "cells": row.cells, "flags": [*row.flags]}


def _export_alteration(each: Alteration) -> Object:
    values: Object = {"before": each.before, "after": each.after, "why": each.why}
    return {"instruction": each.label, "op": each.op, "aspect": each.aspect, **values}


def _export_move(move: Move) -> Object:
    values: Object = {"before": [*move.before], "after": [*move.after]}
    return {"instruction": move.label, "op": move.op, **values, "why": [*move.reasons], "former": [*move.former]}


def _export_reasons(appeared: tuple[Reason, ...], vanished: tuple[Reason, ...]) -> Object:
    found: Object = {"appeared": [_export_reason(each) for each in appeared]}
    return {**found, "vanished": [_export_reason(each) for each in vanished]}


def _export_reason(reason: Reason) -> Json:
    return {"code": reason.code, "subject": reason.subject, "text": reason.text}


def _export_whole(each: WholeFunction) -> Object:
    return {"mode": each.mode, "name": each.name, "writes": [*each.writes]}
