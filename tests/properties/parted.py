"""Parts of a step that are repeated or chosen, op by op; :func:`hold` writes them as ops that hold others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tests.properties.joining import find_place, join

if TYPE_CHECKING:
    from tests.properties.specs import Draft

STEM = "part"


def add_parts(draft: Draft) -> None:
    """Add a part that is repeated or chosen, whose model a loss reads, to a draft that has a place for it."""
    place = find_place(draft)
    is_wide = draft.fields.keys() & {"micro_batches"} or any("dataset" in op for op in draft.ops.values())
    is_wide = is_wide or any("class" in model for model in draft.models.values())  # its sizes would not be known
    is_planted = any(name.startswith(("fuse", "late")) for name in draft.inputs)  # it would not overflow
    if place is None or is_wide or is_planted or any(op.get("on_overflow") == "all" for op in draft.ops.values()):
        return
    update, value = place
    draft.models["turned"] = {"layers": [{"linear": draft.size}, "tanh"], "optimizer": {"name": "sgd", "lr": 0.1}}
    ops = _repeat(draft, value) if draft.chance(0.6) else _choose(draft, value)
    out = "part.seen"
    held = [name for name, op in ops.items() if "update" in op]
    last = held[-1:] if draft.chance(0.7) else []
    ops["turned_seen"] = {"forward": "turned", "inputs": value} | ({"after": last} if last else {})
    ops["turned_fit"] = {"loss": draft.random.choice(["mse", "huber"]), "inputs": ["turned_seen", 0.3]}
    if out in ops and ops[out]["call"] == "either":
        ops["turned_mixed"] = {"call": "add", "inputs": ["turned_seen", out]}
        ops["turned_fit"]["inputs"] = ["turned_mixed", 0.3]
    if not join(draft, update, ops, "turned_fit"):
        del draft.models["turned"]
        draft.models.pop("turned_slow", None)


def _repeat(draft: Draft, value: str) -> dict[str, dict[str, Any]]:
    """Return a repeated part: a model that is fitted in each iteration, and perhaps averaged."""
    count, ops = draft.random.choice([2, 2, 3]), dict[str, dict[str, Any]]()
    is_split, is_growing, is_followed = draft.chance(0.3), draft.chance(0.3), draft.chance(0.5)
    if is_split:
        ops["part.rows.x"] = {
            "call": "split_rows",
            "inputs": "x",
            "args": {"count": count},
            "outputs": [f"part.{number}.x" for number in range(1, count + 1)],
        }
    if is_followed:
        draft.models["turned_slow"] = {"like": "turned"}
    before: list[str] = []
    for number in range(1, count + 1):
        part: dict[str, Any] = {"repeat": STEM, "number": number, "count": count}
        part |= {"start": 2} if is_growing and number > 1 else {}
        seen = f"part.{number}.x" if is_split else draft.random.choice(["x", value]) if number == 1 else None
        seen = seen or ops["part.1.out"]["inputs"]
        made: dict[str, dict[str, Any]] = {
            "out": {"forward": "turned", "inputs": seen},
            "seen": {"loss": "mse", "inputs": [f"part.{number}.out", 0.1]},
            "step": {"update": ["turned"], "loss": f"part.{number}.seen"},
        }
        if is_followed:
            made["follow"] = {"ema": "turned", "into": "turned_slow", "decay": 0.5, "buffers": "ignore"}
        after = {"after": before} if before else {}
        ops |= {f"part.{number}.{name}": {**op, **after, "within": [part]} for name, op in made.items()}
        before = [f"part.{number}.{name}" for name in made if name in ("step", "follow")]
    ops["part.seen"] = {"call": "stack", "inputs": [f"part.{number}.seen" for number in range(1, count + 1)]}
    return ops


def _choose(draft: Draft, value: str) -> dict[str, dict[str, Any]]:
    """Return a part with alternatives, or one that runs sometimes; in one of them a model is fitted."""
    share, is_else = draft.random.choice([0.25, 0.5, 0.75]), draft.chance(0.5)
    ops: dict[str, dict[str, Any]] = {}
    for number, (low, high) in enumerate([(0.0, share), (share, 1.0)], start=1):
        made: dict[str, dict[str, Any]] = {"seen": {"call": ["tanh", "neg"][number - 1], "inputs": value}}
        if number == 1:
            made |= {
                "out": {"forward": "turned", "inputs": "x"},
                "fit": {"loss": "mse", "inputs": ["part.1.out", 0.1]},
                "step": {"update": ["turned"], "loss": "part.1.fit"},
            }
        elif is_else:
            made = {"seen": {"call": "either", "inputs": [value]}}
        part = {"choose": STEM, "number": number, "count": 2, "low": low, "high": high}
        ops |= {f"part.{number}.{name}": {**op, "within": [part]} for name, op in made.items()}
    ops["part.seen"] = {"call": "either", "inputs": ["part.1.seen", "part.2.seen"]}
    return ops


def hold(ops: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return ops with those of a part inside of one that repeats them or chooses between them."""
    parts: dict[int, dict[str, dict[str, Any]]] = {}
    rest: dict[str, dict[str, Any]] = {}
    for name, op in ops.items():
        if "within" in op:
            number = op["within"][0]["number"]
            prefix = f"part.{number}."
            kept = {key: _strip(each, prefix) for key, each in op.items() if key not in ("within", "after")}
            parts.setdefault(number, {})[name.removeprefix(prefix)] = kept
        elif not name.startswith("part."):
            rest[name] = dict(op)
    if not parts:
        return rest
    held = next(op["within"][0] for op in ops.values() if "within" in op)
    if "repeat" in held:
        starts = [op["within"][0].get("start") for op in ops.values() if "within" in op]
        growing = {"schedule": "piecewise", "at": {"0": 1, "1": held["count"]}}
        batch = {"batch": "split"} if "part.rows.x" in ops else {}
        first = {name: _strip(op, "part.1.") for name, op in parts[1].items()}
        whole: dict[str, Any] = {"repeat": growing if any(starts) else held["count"], "ops": first, **batch}
    elif parts[2]["seen"].get("call") == "either":
        other = parts[2]["seen"]["inputs"][0]
        share = next(op["within"][0]["high"] for op in ops.values() if op.get("within", [{}])[0].get("number") == 1)
        return {**rest, "part": {"sometimes": share, "ops": parts[1], "else": {"seen": other}}}
    else:
        shares = {op["within"][0]["number"]: op["within"][0] for op in ops.values() if "within" in op}
        chosen = [{"p": shares[n]["high"] - shares[n]["low"], "ops": parts[n]} for n in (1, 2)]
        whole = {"choose": chosen}
    return {**rest, "part": {**whole, "outputs": ["seen"]}}


def _strip(value: Any, prefix: str) -> Any:
    """Return a field with local names."""
    match value:
        case str():
            return value.removeprefix(prefix)
        case list():
            return [_strip(each, prefix) for each in value]
        case dict():
            return {key: _strip(each, prefix) for key, each in value.items()}
        case _:
            return value
