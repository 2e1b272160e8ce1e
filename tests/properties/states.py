"""States that some ops read and others write: a running centre, and a queue of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.properties.specs import Draft

CLOCKS: list[dict] = [{}, {}, {}, {"every": 2}, {"start": 2}, {"until": 2}]
BEGINNINGS = ["zeros", "normal", "uniform", "unit_normal", 0.25]


def add_states(draft: Draft) -> None:
    """Add a state that the loss of an update reads, what writes it, and orders among them."""
    updates = [name for name, op in draft.ops.items() if "loss" in op and "update" in op]
    if not updates or "state" in draft.fields:
        return
    update = draft.random.choice(updates)
    wanted = set(draft.ops[update]["update"])
    values = [name for name in draft.values.usable() if draft.values.reach[name] & wanted]
    if values:
        add = draft.random.choice([_add_center, _add_queue])
        add(draft, update, draft.random.choice(values))


def _extend(draft: Draft, update: str, ops: dict, seen: str) -> bool:
    """Add ops, and what is seen of a state to the loss of an update; return whether there was a place for them."""
    term = {"state_term": {"loss": draft.random.choice(["mse", "huber"]), "inputs": [seen, 0.5]}}
    whole = {"sum_of_states": {"call": "add", "inputs": [draft.ops[update]["loss"], "state_term"]}}
    draft.extend({**ops, **term}, whole, update)
    return "sum_of_states" in draft.ops


def _add_center(draft: Draft, update: str, value: str) -> None:
    """Add a centre that values are seen from; it moves towards the mean of a batch, now and then back to a number."""
    source = draft.random.choice([value, "x", "y"])
    ops = {
        "centered": {"call": draft.random.choice(["sub", "mul", "add"]), "inputs": [value, "center"]},
        "batch_mean": {"call": "mean", "inputs": source, "args": {"axis": 0}},
        "center_next": {"call": "lerp", "inputs": ["center", "batch_mean", 0.3]},
        "move": {"assign": "center", "value": "center_next", **draft.random.choice(CLOCKS)},
    }
    if not _extend(draft, update, ops, "centered"):
        return
    draft.fields["state"] = {"center": {"shape": [draft.size], "init": draft.random.choice(BEGINNINGS)}}
    if draft.chance(0.4):
        again: dict = {"assign": "center", "value": draft.random.choice(["batch_mean", "center_next", 0.25])}
        draft.ops["move_again"] = {**again, "after": ["move"], **draft.random.choice(CLOCKS)}
    if draft.chance(0.3):
        draft.ops["seen_center"] = {"loss": "mse", "inputs": ["center", 0.0]}
    _order(draft, ["centered", "center_next", "seen_center"], update)


def _add_queue(draft: Draft, update: str, value: str) -> None:
    """Add a queue of rows that values are compared with; the newest rows go in, the oldest out."""
    rows = draft.random.randint(2, 5)
    ops = {
        "columns": {"call": "permute", "inputs": "queue", "args": {"dims": [1, 0]}},
        "compared": {"call": "matmul", "inputs": [value, "columns"]},
        "longer": {"call": "concat", "inputs": [draft.random.choice([value, "y"]), "queue"], "args": {"axis": 0}},
        "queue_next": {"call": "slice", "inputs": "longer", "args": {"start": 0, "stop": rows, "axis": 0}},
        "push": {"assign": "queue", "value": "queue_next", **draft.random.choice(CLOCKS)},
    }
    if not _extend(draft, update, ops, "compared"):
        return
    draft.fields["state"] = {"queue": {"shape": [rows, draft.size], "init": draft.random.choice(BEGINNINGS)}}
    _order(draft, ["columns", "longer"], update)


def _order(draft: Draft, readers: list[str], update: str) -> None:
    """Let some readers see the state as it was just written, and some writes wait for an update."""
    for name in [name for name in readers if name in draft.ops and draft.chance(0.3)]:
        writers = [other for other in ("move", "move_again", "push") if other in draft.ops]
        draft.try_fields(name, {"after": [draft.random.choice(writers)]})
    for name in [name for name in ("move", "push") if name in draft.ops]:
        if draft.chance(0.3):
            draft.try_fields(name, draft.random.choice([{"after": [update]}, {"every": update}]))
