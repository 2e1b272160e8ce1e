"""The JSON Schema of the plan format: ``python -m compiler.plan_schema schemas`` writes plan.schema.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import get_args

from compiler.ir import Hazard
from compiler.plan_json import Json, Object
from compiler.policies import POLICIES
from graphspec.curves import ScheduleKind
from graphspec.precision import Compute
from graphspec.schedules import Clock

TEXT: Object = {"type": "string"}
FLAG: Object = {"type": "boolean"}
NAMES: Object = {"type": "array", "items": {"type": "string"}}
INPUTS: Object = {"type": "array", "items": {"type": ["string", "number", "boolean"]}}
VERSION: Object = {
    "type": "string",
    "pattern": "^.+@[0-9]+$",
    "description": "A cell at a version: `generator.params@0`.",
}
COMMITS: Object = {
    "type": "array",
    "items": NAMES,
    "description": "The write takes place where all verdicts of one of these lists are given.",
}
VERSIONS: Object = {"type": "array", "items": VERSION}
MODES: Object = {"enum": ["train", "eval", "test", "infer"]}
KIND: Object = {"enum": [*get_args(ScheduleKind)]}
CLOCK: Object = {"enum": [*get_args(Clock)]}

KINDS: dict[str, Object] = {
    "forward": {
        "model": TEXT,
        "inputs": INPUTS,
        "outputs": NAMES,
        "train": FLAG,
        "graph": FLAG,
        "frozen": FLAG,
        "snapshot": {"enum": ["none", "buffers", "all"]},
        "compute": {"enum": [*get_args(Compute)]},
        "detached": NAMES,
    },
    "evaluate": {"function": TEXT, "inputs": INPUTS, "outputs": NAMES, "graph": FLAG, "detached": NAMES},
    "random": {"distribution": TEXT, "outputs": NAMES},
    "schedule": {"outputs": NAMES},
    "gradient": {
        "loss": TEXT,
        "targets": NAMES,
        "outputs": NAMES,
        "retain_graph": FLAG,
        "create_graph": FLAG,
        "scaled": FLAG,
        "frozen": NAMES,
    },
    "transform": {"function": TEXT, "inputs": NAMES, "penalties": NAMES, "outputs": NAMES},
    "judge": {"inputs": NAMES, "outputs": NAMES},
    "gather": {
        "window": TEXT,
        "inputs": NAMES,
        "reduce": {"enum": ["mean", "sum", "steps"]},
        "count": TEXT,
        "guard": {"enum": ["none", "drop", "window"]},
    },
    "collect": {"window": TEXT, "outputs": NAMES},
    "drop": {"window": TEXT},
    "apply": {"optimizers": NAMES, "inputs": NAMES, "constraints": NAMES},
    "blend": {
        "source": TEXT,
        "target": TEXT,
        "decay": {"type": ["number", "string"]},
        "buffers": {"enum": ["copy", "average", "ignore"]},
    },
    "assign": {"source": TEXT, "target": TEXT},
    "store": {"state": TEXT, "inputs": INPUTS},
    "settle": {
        "inputs": NAMES,
        "held": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"op": TEXT, "commits": COMMITS},
                "required": ["op", "commits"],
                "additionalProperties": False,
            },
        },
        "scaled": FLAG,
        "fatal": NAMES,
    },
    "release": {"values": NAMES},
    "emit": {"values": NAMES},
}
"""The fields of every kind of instruction, besides kind, op, reads and writes."""


def plan_schema() -> Object:
    """Return the JSON Schema (draft 2020-12) of what ``Plan.to_json`` returns."""
    edges = sorted({hazard.value for hazard in Hazard} | {"graph"})
    reason = _record({"edge": {"enum": [*edges]}, "op": TEXT, "cell": TEXT, "through": NAMES, "place": TEXT})
    decision = _record({"code": TEXT, "subject": TEXT, "text": TEXT, "because": _list(reason)})
    function = _function()
    schedule: Object = {"oneOf": [_schedule("optimizer", "option"), _schedule("op", "option"), _schedule("op")]}
    group = _record(
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
    document = _record(
        {
            "plan": {"const": 1},
            "name": TEXT,
            "backend": TEXT,
            "mode": MODES,
            "order": {"enum": [*POLICIES]},
            "functions": _list(function),
            "groups": _list(group),
            "schedules": _list(schedule),
            "decisions": _list(decision),
            "warnings": _list(_record({"code": TEXT, "op": TEXT, "text": TEXT, "place": TEXT})),
        }
    )
    title: Object = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "stepgraph plan, version 1",
        "description": "The schedule of one mode of a compiled training step, and the decisions behind it.",
    }
    return {**title, **document}


def _function() -> Object:
    """Return the schema of a function; it tells its data sets where the spec names some, null for a batch of none."""
    record = _record({"name": TEXT, "active": NAMES, "instructions": _list({"oneOf": _instructions()})})
    properties = record["properties"]
    assert isinstance(properties, dict)
    datasets: Object = {"type": "array", "items": {"type": ["string", "null"]}, "minItems": 1}
    return {**record, "properties": {**properties, "datasets": datasets}}


def _schedule(*names: str) -> Object:
    """Return the schema of a schedule that belongs to an option of an optimizer, a field of an op, or an op."""
    return _record({**dict.fromkeys(names, TEXT), "kind": KIND, "clock": CLOCK, "text": TEXT})


def _instructions() -> list[Json]:
    """Return the schema of every kind of instruction."""
    return [_instruction(kind, fields) for kind, fields in KINDS.items()]


def _instruction(kind: str, fields: Object) -> Object:
    """Return the schema of one kind: accesses are left out where there are none."""
    record = _record({"kind": {"const": kind}, "op": TEXT, **fields})
    properties = record["properties"]
    assert isinstance(properties, dict)
    return {**record, "properties": {**properties, "reads": VERSIONS, "writes": VERSIONS, "commits": COMMITS}}


def _record(properties: Object) -> Object:
    """Return an object with exactly these fields."""
    required: list[str] = list(properties)
    return {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False}


def _list(item: Object) -> Object:
    """Return a list of one kind of item."""
    return {"type": "array", "items": item}


def main(folder: str) -> None:
    """Write the schema into a folder."""
    text = json.dumps(plan_schema(), indent=2) + "\n"
    Path(folder, "plan.schema.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
