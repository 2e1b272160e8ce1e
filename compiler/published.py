"""What the published plan is made of: JSON, and the schemas of its parts."""

from __future__ import annotations

from typing import TypeAlias

Json: TypeAlias = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
Object: TypeAlias = dict[str, Json]

TEXT: Object = {"type": "string"}
FLAG: Object = {"type": "boolean"}
NAMES: Object = {"type": "array", "items": {"type": "string"}}
INPUTS: Object = {"type": "array", "items": {"type": ["string", "number", "boolean"]}}
VERSION: Object = {
    "type": "string",
    "pattern": "^.+@[0-9]+$",
    "description": "A cell at a version: `generator.params@0`.",
}
VERSIONS: Object = {"type": "array", "items": VERSION}
COMMITS: Object = {
    "type": "array",
    "items": NAMES,
    "description": "The write takes place where all verdicts of one of these lists are given.",
}

UNLESS: Object = {
    "type": "array",
    "items": NAMES,
    "description": "Where all verdicts of one of these lists are given, no penalty is added, and no window restored.",
}


def record(properties: Object) -> Object:
    """Return the schema of an object with exactly these fields."""
    required: list[str] = list(properties)
    return {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False}


def listing(item: Object) -> Object:
    """Return the schema of a list of one kind of item."""
    return {"type": "array", "items": item}
