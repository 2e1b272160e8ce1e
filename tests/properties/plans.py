"""Plans of documents."""

from __future__ import annotations

import json
from collections.abc import Mapping

from compiler import Pace, Plan, compile_step
from graphspec.loading import load

ROWS = 3
PACE = Pace(epoch=2, batch=ROWS)
"""What durations in random specs are counted by; the oracle has the same numbers."""


def plan_of(document: Mapping[str, object], order: str = "fewest", backend: str = "torch") -> Plan:
    """Return the plan of a document, with each of its calls and gradients apart; raise SpecError where it has none.

    The definition says of each op where it stands. What calls and gradients give that are joined is a matter of numbers
    (`test_joined`, and all that compares with the oracle).
    """
    apart = {**document, "join_calls": False, "join_gradients": False}
    return compile_step(load(json.dumps(apart) + "\n"), backend, order, pace=PACE)


def find_updates(function: Mapping) -> set[str]:
    """Return the ops that fire as writes, and the updates that gather gradients without being applied."""
    return {*function["active"], *(one["op"] for one in function["instructions"] if one["kind"] == "accumulate")}


def find_sequence(function: Mapping) -> list[str]:
    """Return the nodes of a plan's function in order: an update is its gradient, its gather, its write."""
    nodes: list[str] = []
    updates = find_updates(function)
    for one in function["instructions"]:
        match one["kind"]:
            case "gradient" if one["op"] in updates:
                nodes.append(f"{one['op']}.gradient")
            case "accumulate":
                name = f"{one['op']}.gather"
                nodes = [*(other for other in nodes if other != name), name]  # the last of several
            case "take_accumulated" | "reset_accumulator" | "restore_accumulator":
                pass  # a part of the write, or what an epoch forgets or a skipped update gives back
            case "transform" if one["op"] in function["active"]:
                pass  # a clip, or the joining of sets: a part of the write
            case "release" | "return" | "emit" | "check_finite" | "all_finite" | "any_finite" | "resolve_overflow":
                pass
            case _:
                nodes.append(find_name(one))
    return nodes


def find_name(one: Mapping) -> str:
    """Return what the definition calls an instruction: its op, but that an op may take an average and write it back."""
    return one["id"] if one["kind"] == "assign" else one["op"]


def find_cloned(function: Mapping) -> frozenset[str]:
    """Return the forwards that run on clones of their buffers."""
    listed = function["instructions"]
    return frozenset(one["op"] for one in listed if one["kind"] == "forward" and one["snapshot"] == "buffers")
