"""The fingerprint of a plan: two runs whose plans have one can share their state."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from compiler import Plan

Json: TypeAlias = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

_TOLD = frozenset(("name", "order", "decisions", "warnings", "place", "text", "notes"))
"""What a plan tells its readers and does not do."""


def fingerprint(plan: Plan) -> str:
    """Return the sha256, in hexadecimal, of what a plan does.

    It is taken of the plan's JSON (docs/plan.md) in every mode, keys sorted and without spaces, of the rule and the
    models of every optimizer, of the kind of every model, and of shape and type of every state. What is only told is
    left out: names of the plan and of its order, decisions, warnings, places, notes. Numbers are replaced by 0, so that
    a learning rate or a label of 0.9 may change. Take it of the plan of a built step: before, what user classes do is
    only assumed.
    """
    program = plan.program
    content: dict[str, Json] = {
        "modes": {mode.mode: _strip(plan.to_json(mode.mode)) for mode in program.modes},
        "models": {model.name: [model.kind, model.class_path, model.like] for model in program.models},
        "optimizers": {each.name: [each.rule, *each.models] for each in program.optimizers},
    }
    if program.states:
        content["states"] = {state.name: [state.dtype, *state.shape] for state in program.states}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _strip(value: Json) -> Json:
    """Return a plan's JSON without what is only told, and with 0 for every number."""
    match value:
        case bool() | str() | None:
            return value
        case int() | float():
            return 0
        case list():
            return [_strip(item) for item in value]
        case dict():
            return {key: _strip(item) for key, item in value.items() if key not in _TOLD}
