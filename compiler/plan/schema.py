"""The JSON Schema of the plan format: ``python -m compiler.plan.schema schemas`` writes plan.schema.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import get_args

from compiler.ir.instructions import KINDS, RestoreAccumulator, Transform
from compiler.ir.step_graph import Hazard
from compiler.ir.value import COMMITS, FLAG, NAMES, TEXT, UNLESS, VERSIONS, Json, Object, listing, record
from compiler.passes.policies import POLICIES
from graphspec.declare.schedules import Clock, ScheduleKind

MODES: Object = {"enum": ["train", "eval", "test", "infer"]}
KIND: Object = {"enum": [*get_args(ScheduleKind)]}
CLOCK: Object = {"enum": [*get_args(Clock)]}


def plan_schema() -> Object:
    """Return the JSON Schema (draft 2020-12) of what ``Plan.to_json`` returns."""
    edges = sorted({hazard.value for hazard in Hazard} | {"graph"})
    reason = record({"edge": {"enum": [*edges]}, "op": TEXT, "cell": TEXT, "through": NAMES, "place": TEXT})
    decision = record({"code": TEXT, "subject": TEXT, "text": TEXT, "because": listing(reason)})
    kinds: list[Json] = []
    for kind in KINDS:
        # Accesses are left out where there are none.
        instruction = record({"kind": {"const": kind.kind()}, "op": TEXT, **kind.FIELDS})
        conditions: Object = {"unless": UNLESS} if kind in (Transform, RestoreAccumulator) else {}
        kinds.append(_allow(instruction, {"reads": VERSIONS, "writes": VERSIONS, "commits": COMMITS, **conditions}))
    # A function lists data sets where the spec names some, null for a batch of none.
    function = _allow(
        record({"name": TEXT, "active": NAMES, "instructions": listing({"oneOf": kinds})}),
        {"datasets": {"type": "array", "items": {"type": ["string", "null"]}, "minItems": 1}},
    )
    schedule: Object = {"oneOf": [_schedule("optimizer", "option"), _schedule("op", "option"), _schedule("op")]}
    group = record(
        {
            "model": TEXT,
            "match": TEXT,
            "parameters": {"type": ["array", "null"], "items": TEXT, "description": "Null: named by a class."},
            "lr_scale": {"type": ["number", "string"], "description": "A text: a schedule in words."},
            "weight_decay": {
                "type": ["number", "string", "null"],
                "description": "A text: a schedule in words. Null: the optimizer's.",
            },
            "frozen": FLAG,
            "frozen_until": {"type": ["integer", "null"], "description": "The last step; null: for ever, or never."},
        }
    )
    document = record(
        {
            "plan": {"const": 2},
            "name": TEXT,
            "backend": TEXT,
            "mode": MODES,
            "order": {"enum": [*POLICIES]},
            "functions": listing(function),
            "groups": listing(group),
            "schedules": listing(schedule),
            "decisions": listing(decision),
            "warnings": listing(record({"code": TEXT, "op": TEXT, "text": TEXT, "place": TEXT})),
        }
    )
    title: Object = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "stepgraph plan, version 2",
        "description": "The schedule of one mode of a compiled training step, and the decisions that led to it.",
    }
    return {**title, **document}


def _allow(found: Object, more: Object) -> Object:
    """Return the schema of a record that may have more fields."""
    properties = found["properties"]
    assert isinstance(properties, dict)
    return {**found, "properties": {**properties, **more}}


def _schedule(*names: str) -> Object:
    """Return the schema of a schedule that belongs to an option of an optimizer, a field of an op, or an op."""
    return record({**dict.fromkeys(names, TEXT), "kind": KIND, "clock": CLOCK, "text": TEXT})


def main(folder: str) -> None:
    """Write the schema into a folder."""
    text = json.dumps(plan_schema(), indent=2) + "\n"
    Path(folder, "plan.schema.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
