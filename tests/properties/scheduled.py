"""Numbers of random ops that follow schedules, and schedules as values."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from tests.properties.specs import Draft

Place = tuple["str | int", ...]

OPTIONS = ("norm", "value", "factor", "clipping", "min", "max")
"""Arguments that are numbers where they are written."""
DEFAULTS = {
    "huber": ("delta", 1.0),
    "kl_div": ("temperature", 1.0),
    "nt_xent": ("temperature", 0.5),
    "cross_entropy": ("label_smoothing", 0.2),
    "normal": ("std", 1.0),
    "bernoulli": ("p", 0.5),
}
"""The argument of a function that may be written, with a number to start from."""
CLOCKS: list[dict] = [{}, {}, {"clock": "samples"}, {"clock": "epochs"}]


def add_schedules(draft: Draft) -> None:
    """Let some numbers of the ops follow schedules, and the loss of an update have a term that a schedule weighs."""
    for _ in range(draft.random.randint(1, 4)):
        places: dict[Place, list[tuple[str, float]]] = {}
        for name, place, start in _find_numbers(draft):
            places.setdefault(place, []).append((name, start))
        if places:
            place = draft.random.choice([*places])
            name, start = draft.random.choice(places[place])
            draft.ops[name] = _put(draft.ops[name], place, _draw(draft, name, place, start))
    if draft.chance(0.5):
        _add_weighed(draft)


def _find_numbers(draft: Draft) -> Iterator[tuple[str, Place, float]]:
    """Yield the places of numbers that may change, and from what."""
    for name, op in draft.ops.items():
        kind = next(kind for kind in op if isinstance(op[kind], str) or kind == "update")
        option, start = DEFAULTS.get(str(op[kind]), ("", 0.0))
        if option and option not in op.get("args", {}):
            yield name, ("args", option), start
        if kind == "loss" and "weight" not in op:
            yield name, ("weight",), 1.0
        places: list[Place] = [("weight",), ("decay",), ("tau",), ("clip", "norm"), ("clip", "value"), ("clip", "eps")]
        places += [("args", option) for option in OPTIONS] + ([("inputs", 1)] if kind in ("loss", "call") else [])
        for place in places:
            found = _get(op, place)
            if isinstance(found, float) and op.get("interval_correction") != "compound":
                yield name, place, found


def _get(op: dict, place: Place) -> object:
    """Return what stands at a place, nothing where it is not written."""
    found: object = op
    for key in place:
        is_there = (isinstance(found, list) and len(found) > 1) or (isinstance(found, dict) and key in found)
        found = found[key] if is_there else None
    return found


def _draw(draft: Draft, name: str, place: Place, start: float) -> dict:
    """Return a schedule for a place: what clips for one optimizer may count its updates, all else counts steps."""
    curve = random_curve(draft.random, start)
    if place[0] != "clip":
        return {**curve, **draft.random.choice(CLOCKS)}
    op = draft.ops[name]
    is_single = "optimizer" in op or len(op["update"]) == 1
    return curve if is_single and draft.chance(0.7) else {**curve, "clock": "steps"}


def _put(op: dict, place: Place, made: dict) -> dict:
    """Return an op with something at a place."""
    key, *rest = place
    if not rest:
        return {**op, key: made}
    inner = op.get(key, {})
    if isinstance(inner, list):
        return {**op, key: [made if index == rest[0] else one for index, one in enumerate(inner)]}
    return {**op, key: {**inner, rest[0]: made}}


def random_curve(random: Random, start: float) -> dict:
    """Return a curve over few ticks, from a number down to a part of it."""
    less, ticks = start * random.choice([0.25, 0.5]), random.choice([1, 2, 3, 1.5])
    way = {"from": start, "to": less, "over": ticks}
    kinds: list[dict] = [
        {"schedule": "constant", "value": less},
        *({"schedule": kind, **way} for kind in ("linear", "cosine", "warmup")),
        {"schedule": "polynomial", **way, "power": 2.0},
        {"schedule": "exponential", "from": start, "rate": 0.5, "per": ticks},
        {"schedule": "step", "from": start, "factor": 0.5, "every": ticks},
        {"schedule": "piecewise", "at": {"0": start, "2": less}},
        {
            "schedule": "join",
            "parts": [{"schedule": "constant", "value": less, "for": 1}, {"schedule": "linear", **way}],
        },
    ]
    return random.choice(kinds)


def _add_weighed(draft: Draft) -> None:
    """Add a schedule, a term of a loss that it weighs, and both to what is returned."""
    updates = [name for name, op in draft.ops.items() if "loss" in op and "update" in op]
    if not updates:
        return
    update = draft.random.choice(updates)
    wanted = set(draft.ops[update]["update"])
    values = [name for name in draft.values.usable() if draft.values.reach[name] & wanted]
    if not values:
        return
    term = {
        "rising": {**random_curve(draft.random, 1.5), **draft.random.choice(CLOCKS)},
        "weighed": {"loss": "mse", "inputs": [draft.random.choice(values), 0.5]},
        "risen": {"call": "mul", "inputs": draft.random.sample(["weighed", "rising"], 2)},
    }
    draft.extend(term, {"sum_of_risen": {"call": "add", "inputs": [draft.ops[update]["loss"], "risen"]}}, update)
