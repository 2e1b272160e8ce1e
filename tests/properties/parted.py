"""Parts of a step that are repeated or chosen, op by op; :func:`hold` writes them as ops that hold others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tests.properties.averages import follow_iterations
from tests.properties.graphs import is_behind_class
from tests.properties.joining import find_place, join

if TYPE_CHECKING:
    from tests.properties.specs import Draft

STEM = "part"
ROWS = "part.rows."
"""What the names of ops that cut the batch begin with."""
COMMON = ("within", "after", "mode", "dataset", "start", "until")
"""What the ops of a part do not say themselves where the part is written."""


def add_parts(draft: Draft) -> None:
    """Add a part that is repeated or chosen, whose model a loss reads, to a draft that has a place for it."""
    place = find_place(draft)
    is_wide = draft.fields.keys() & {"micro_batches"} or any("dataset" in op for op in draft.ops.values())
    is_wide = is_wide or any("class" in model for model in draft.models.values())  # its sizes would not be known
    if place is not None and not is_wide and is_free(draft):
        ops = _repeat(draft, place[1]) if draft.chance(0.6) else _choose(draft, place[1])
        _join_parts(draft, place, ops)


def add_wide_parts(draft: Draft) -> None:
    """Add a part to any draft without one: with micro-batches, data sets, classes, or a batch for each iteration.

    The part may come after a write, run on some data sets alone, and begin late or end early.
    """
    place = find_place(draft)
    if place is None or not is_free(draft) or "turned" in draft.models or is_behind_class(draft, place[1]):
        return
    random, writes = draft.random, [name for name, op in draft.ops.items() if {"update", "copy"} & op.keys()]
    if draft.chance(0.75):
        batches = ["reuse", "next", "next"] if "micro_batches" in draft.fields else ["reuse", "split", "next", "next"]
        ops = _repeat(draft, place[1], random.choice(batches))
    else:
        ops = _choose(draft, place[1])
    held = _find_held(ops)
    if writes and draft.chance(0.3):
        later = random.choice(writes)
        for op in held.values():
            op["after"] = [later, *op.get("after", [])]
    if any("dataset" in op for op in draft.ops.values()) and ops["part.seen"]["call"] == "stack" and draft.chance(0.7):
        words = random.choice([["a"], ["b"], ["!b"]])
        for op in ops.values():
            op["dataset"] = words
    is_plain = ops["part.seen"]["call"] == "stack" and not any("ema" in op for op in held.values())
    if is_plain and draft.chance(0.3):  # of an alternative that writes nothing it would be the clock of its values
        clock = random.choice([{"start": 2}, {"until": 2}])
        for op in held.values():
            op |= clock if {"update", "copy"} & op.keys() else {}
    _join_parts(draft, place, ops)


def is_free(draft: Draft) -> bool:
    """Return whether nothing overflows, which a part does not, and no update is skipped where any other is."""
    is_planted = any(name.startswith(("fuse", "late")) for name in draft.inputs)
    return not is_planted and all(op.get("on_overflow") != "all" for op in draft.ops.values())


def _join_parts(draft: Draft, place: tuple[str, str], ops: dict[str, dict[str, Any]]) -> None:
    """Add the ops of a part, and a loss of its model to an update."""
    update, value = place
    draft.models["turned"] = {"layers": [{"linear": draft.size}, "tanh"], "optimizer": {"name": "sgd", "lr": 0.1}}
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
        return
    shape = {"shape": ["batch", draft.size], "of": "x"}
    earlier = sorted({op["inputs"] for op in ops.values() if str(op.get("inputs")).startswith("batch_")})
    draft.inputs |= {name: {**shape, "batch": number} for number, name in enumerate(earlier, 1)}


def _repeat(draft: Draft, value: str, batch: str = "") -> dict[str, dict[str, Any]]:
    """Return a repeated part: a model that is fitted in each iteration, and perhaps averaged or copied."""
    count, ops = draft.random.choice([2, 2, 3]), dict[str, dict[str, Any]]()
    is_split, is_growing, is_followed = draft.chance(0.3), draft.chance(0.3), draft.chance(0.5)
    is_split, is_next = (batch == "split", batch == "next") if batch else (is_split, False)
    follow = follow_iterations(draft, "turned", "turned_slow")
    mode = {"mode": "train"} if is_next else {}
    if is_split and is_growing:
        ops |= _cut_growing(count)
    elif is_split:
        ops[f"{ROWS}x"] = _cut([f"part.{number}.x" for number in range(1, count + 1)])
    if is_followed:
        draft.models["turned_slow"] = {"like": "turned"}
    before: list[str] = []
    for number in range(1, count + 1):
        part = _describe(number, count, is_growing=is_growing)
        seen = f"part.{number}.x" if is_split else draft.random.choice(["x", value]) if number == 1 else None
        seen = seen or ops["part.1.out"]["inputs"]
        if is_next:
            seen = f"batch_{number}.x" if number < count else "x"
        made: dict[str, dict[str, Any]] = {
            "out": {"forward": "turned", "inputs": seen, **mode},
            "seen": {"loss": "mse", "inputs": [f"part.{number}.out", 0.1], **mode},
            "step": {"update": ["turned"], "loss": f"part.{number}.seen"},
        }
        if is_next:  # what is made outside is of the last batch
            made["seen"]["inputs"] = [f"part.{number}.out", value]
        if is_followed:
            made["follow"] = dict(follow)
        after = {"after": before} if before else {}
        ops |= {f"part.{number}.{name}": {**op, **after, "within": [part]} for name, op in made.items()}
        before = [f"part.{number}.{name}" for name in made if name in ("step", "follow")]
    ops["part.seen"] = {"call": "stack", "inputs": [f"part.{number}.seen" for number in range(1, count + 1)], **mode}
    return ops


def _describe(number: int, count: int, *, is_growing: bool) -> dict[str, Any]:
    """Return an iteration, of which there is one alone in the first step if their number grows."""
    return {"repeat": STEM, "number": number, "count": count} | ({"start": 2} if is_growing and number > 1 else {})


def _cut(names: list[str]) -> dict[str, Any]:
    """Return the op that cuts the rows of the batch into parts."""
    return {"call": "split_rows", "inputs": "x", "args": {"count": len(names)}, "outputs": names}


def _cut_growing(count: int) -> dict[str, dict[str, Any]]:
    """Return the ops that cut the batch into one part in the first step, and into more from then on."""
    cuts = {parts: [f"{ROWS}{parts}.x.{number}" for number in range(1, parts + 1)] for parts in (1, count)}
    ops = {f"{ROWS}{parts}.x": _cut(names) for parts, names in cuts.items()}
    for parts, clock in ((1, {"until": 1}), (count, {"start": 2})):
        ops[f"{ROWS}{parts}.x"]["within"] = [{"repeat": ROWS[:-1], "number": parts, "count": count, **clock}]
    for number in range(1, count + 1):
        read = [name for names in cuts.values() for name in names if name.endswith(f".{number}")]
        within = [_describe(number, count, is_growing=True)]
        ops[f"part.{number}.x"] = {"call": "either", "inputs": read, "within": within}
    return ops


def _find_held(ops: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ops of the iterations and alternatives, without those that cut the batch for them."""
    rows = {name for name, op in ops.items() if name.startswith(ROWS) or ROWS in repr(op.get("inputs"))}
    return {name: op for name, op in ops.items() if "within" in op and name not in rows}


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
    rest = {name: dict(op) for name, op in ops.items() if not name.startswith(f"{STEM}.")}
    ops = {name: op for name, op in ops.items() if name not in rest}
    written = _find_held(ops)
    for name, op in ops.items():
        if name in written:
            number = op["within"][0]["number"]
            prefix = f"part.{number}."
            kept = {key: _strip(each, prefix) for key, each in op.items() if key not in COMMON}
            parts.setdefault(number, {})[name.removeprefix(prefix)] = kept
    if not parts:
        return rest
    held = next(op["within"][0] for op in written.values())
    common = _find_common(written)
    if "repeat" in held:
        starts = [op["within"][0].get("start") for op in written.values()]
        growing = {"schedule": "piecewise", "at": {"0": 1, "1": held["count"]}}
        is_next = "batch_1." in repr(ops)
        batch = (
            {"batch": "split"} if any(name.startswith(ROWS) for name in ops) else {"batch": "next"} if is_next else {}
        )
        first = {name: _strip(op, "batch_1.") for name, op in parts[1].items()}
        whole: dict[str, Any] = {"repeat": growing if any(starts) else held["count"], "ops": first, **batch}
    elif parts[2]["seen"].get("call") == "either":
        other = parts[2]["seen"]["inputs"][0]
        share = next(op["within"][0]["high"] for op in ops.values() if op.get("within", [{}])[0].get("number") == 1)
        return {**rest, "part": {"sometimes": share, "ops": parts[1], "else": {"seen": other}, **common}}
    else:
        shares = {op["within"][0]["number"]: op["within"][0] for op in ops.values() if "within" in op}
        chosen = [{"p": shares[n]["high"] - shares[n]["low"], "ops": parts[n]} for n in (1, 2)]
        whole = {"choose": chosen}
    return {**rest, "part": {**whole, "outputs": ["seen"], **common}}


def _find_common(written: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields of what is held that hold for all of it; clocks are those of what writes."""
    found: dict[str, Any] = {}
    for name, op in written.items():
        after = [each for each in op.get("after", ()) if not each.startswith(name.rpartition(".")[0][:-1])]
        found |= {"after": after} if after else {}
        found |= {key: op[key] for key in ("dataset", "start", "until") if key in op}
    return found


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
