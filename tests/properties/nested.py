"""Parts inside parts: iterations of iterations, alternatives in iterations, and what runs sometimes in either."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tests.properties.averages import follow_iterations
from tests.properties.causality import defined
from tests.properties.derived import has_place
from tests.properties.joining import find_place, join
from tests.properties.parted import is_free
from tests.properties.unrolled import BLOCK, fold, is_holder, unroll

if TYPE_CHECKING:
    from tests.properties.specs import Draft

STEMS = ("coil", "kit.coil")
"""Names of the outermost op: by itself, or in a use of a block."""
MOST_COPIES = 6
"""How often the ops of a part are there at most."""
MOST_CHOICES = 3
"""How many draws decide at most which function a step takes."""
Ops = dict[str, dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where a holder stands: how deep, how often, and what the iterations around it read."""

    depth: int
    value: str
    """A value with rows that its ops may read."""
    copies: int = 1
    is_cut: bool = False
    is_next: bool = False
    is_followed: bool = False
    """Whether its innermost ops average or copy the model."""
    can_cut: bool = True
    can_adapt: bool = False


def add_nested(draft: Draft) -> None:
    """Add parts inside parts, whose model a loss reads, to a draft that has a place for them."""
    found = find_place(draft)
    if found is None or not is_free(draft):
        return
    (update, value), random = found, draft.random
    if draft.ops[update]["loss"] == draft.ops.get("rate_step", {}).get("loss"):
        return  # its terms would reach no target but the rate
    writes = [name for name, op in draft.ops.items() if {"update", "copy"} & op.keys()]
    place = _Place(
        depth=random.choice([2, 2, 2, 3]),
        value=value,
        is_followed=draft.chance(0.5),
        can_cut="micro_batches" not in draft.fields,
        can_adapt=has_place(draft) and "fast" not in draft.ops,
    )
    whole = _hold(draft, place)
    if writes and draft.chance(0.2):
        whole["after"] = [random.choice(writes)]
    if any("dataset" in op for op in draft.ops.values()) and "else" not in whole and draft.chance(0.4):
        whole["dataset"] = random.choice([["a"], ["b"], ["!b"]])
    is_plain = "repeat" in whole and not any(word in repr(whole) for word in ("sometimes", "choose", "'ema'"))
    if is_plain and draft.chance(0.3):  # of a part that writes nothing it would be the clock of its values
        whole |= random.choice([{"start": 2}, {"until": 2}])
    _join(draft, update, value, whole)


def _join(draft: Draft, update: str, value: str, whole: dict[str, Any]) -> None:
    """Add a holder op by op, and a loss of its model to an update."""
    shape = draft.inputs.get("x", {"shape": ["batch", draft.size]})
    stem = draft.random.choice([*STEMS, STEMS[0]])
    flat, batches = unroll({stem: whole}, ["x", "y", "label", *draft.inputs], draft.values.usable())
    ops: Ops = {"coil_base": {"call": "mean", "inputs": "x"}} if "else" in whole else {}
    ops |= flat
    optimizer = draft.random.choice([{"name": "sgd", "lr": 0.1}, {"name": "adam", "lr": 0.02}])
    draft.models["coiled"] = {"layers": [{"linear": draft.size}, "tanh"], "optimizer": optimizer}
    if "coiled_slow" in repr(whole):
        draft.models["coiled_slow"] = {"like": "coiled"}
    steps = [name for name, op in flat.items() if "update" in op]
    ends = draft.random.choice([[], steps[-1:], _find_ends(flat, stem, whole)])
    ops["coil_seen"] = {"forward": "coiled", "inputs": value} | ({"after": ends} if ends else {})
    ops["coil_fit"] = {"loss": draft.random.choice(["mse", "huber"]), "inputs": ["coil_seen", 0.3]}
    if draft.chance(0.25) and f"{stem}.seen" in ops and "dataset" not in whole:
        ops["coil_mean"] = {"call": "mean", "inputs": f"{stem}.seen"}
        ops["coil_mixed"] = {"call": "add", "inputs": ["coil_seen", "coil_mean"]}
        ops["coil_fit"]["inputs"] = ["coil_mixed", 0.3]
    if not join(draft, update, ops, "coil_fit"):
        del draft.models["coiled"]
        draft.models.pop("coiled_slow", None)
        return
    draft.inputs |= {name: {**shape, "of": given, "batch": number} for name, (given, number) in batches.items()}


def _find_ends(flat: Ops, stem: str, whole: dict[str, Any]) -> list[str]:
    """Return what is there when a holder is over: what comes after it comes after these."""
    made = ("stack", "either", "split_rows")
    last = max(op["within"][0]["number"] for op in flat.values() if "within" in op)
    start = f"{stem}.{last}." if "repeat" in whole else f"{stem}."
    return [name for name, op in flat.items() if name.startswith(start) and op.get("call") not in made]


def _hold(draft: Draft, place: _Place) -> dict[str, Any]:
    """Return an op that repeats others, or chooses between some."""
    random = draft.random
    counts = [each for each in (2, 2, 3) if place.copies * each <= MOST_COPIES]
    kinds = ["repeat"] * 3 * bool(counts) + ["choose", "sometimes"] * (place.copies < MOST_CHOICES)
    kind = random.choice(kinds or ["choose"])
    if kind == "repeat":
        count = random.choice(counts)
        growing = {"schedule": "piecewise", "at": {"0": 1, "1": count}}
        batches = ["reuse", "reuse"]
        batches += ["split"] if place.can_cut and not place.is_cut else []
        batches += ["next"] if not (place.is_cut or place.is_next) else []
        batch = random.choice(batches)
        inner = replace(
            place,
            copies=place.copies * count,
            is_cut=place.is_cut or batch == "split",
            is_next=place.is_next or batch == "next",
        )
        return {
            "repeat": growing if draft.chance(0.2) else count,
            "ops": _fill(draft, inner),
            **({} if batch == "reuse" else {"batch": batch}),
            "outputs": ["seen"],
        }
    share = random.choice([0.25, 0.5, 0.75])
    inner = replace(place, copies=place.copies * 2)
    ops = _fill(draft, inner)
    if kind == "sometimes":
        return {"sometimes": share, "ops": ops, "else": {"seen": "base" if place.copies > 1 else "coil_base"}}
    other = {"seen": {"call": "mean", "inputs": place.value}}
    return {"choose": [{"p": share, "ops": ops}, {"p": 1 - share, "ops": other}], "outputs": ["seen"]}


def _fill(draft: Draft, place: _Place) -> Ops:
    """Return the ops of a part: a model is fitted, before or after a further part or without one."""
    given = "x" if place.is_next else draft.random.choice(["x", place.value])
    if place.depth == 1:
        ops = _fit(draft, place, given)
        if not draft.chance(0.2):
            return ops
        return {BLOCK: {"use": BLOCK, "ops": ops}, "seen": {"call": "mul", "inputs": [f"{BLOCK}.seen", 1.5]}}
    ops = {"base": {"call": "mean", "inputs": given}, "pre": {"call": "tanh", "inputs": given}}
    inner = replace(place, depth=place.depth - 1, value=draft.random.choice(["pre", place.value]))
    ops["inner"] = _hold(draft, inner)
    ops["low"] = {"call": "mean", "inputs": "inner.seen"}
    if draft.chance(0.3):
        return {**ops, "seen": {"call": "mul", "inputs": ["low", 2.0]}}
    own = _fit(draft, replace(place, is_followed=False, can_adapt=False), draft.random.choice(["pre", given]))
    if draft.chance(0.5):
        own["out"]["after"] = ["inner"]
    else:
        ops["inner"]["after"] = ["step"]
    if draft.chance(0.1):
        own["whole"] = {"call": "add", "inputs": ["fit", "low"]}
        own["step"]["loss"] = "whole"
    return {**ops, **own, "seen": {"call": "add", "inputs": ["fit", "low"]}}


def _fit(draft: Draft, place: _Place, given: str) -> Ops:
    """Return ops that fit the model, and perhaps average or copy it, adapt it, or draw what it sees."""
    ops: Ops = {"out": {"forward": "coiled", "inputs": given}}
    seen = "out"
    if not place.is_cut and draft.chance(0.25):
        ops["noise"] = {"random": draft.random.choice(["normal", "uniform"]), "like": "out"}
        ops["loud"] = {"call": "add", "inputs": ["out", "noise"]}
        seen = "loud"
    ops["fit"] = {"loss": draft.random.choice(["mse", "huber"]), "inputs": [seen, 0.1]}
    ops["step"] = {"update": ["coiled"], "loss": "fit"}
    if place.can_adapt and draft.chance(0.15):
        ops["slopes"] = {"gradient": "fit", "wrt": "coiled"}
        ops["fast"] = {"adapt": "coiled", "gradients": "slopes", "lr": 0.2, "order": draft.random.choice([1, 2])}
        ops["late"] = {"forward": "fast", "inputs": given}
        ops["late_fit"] = {"loss": "mse", "inputs": ["late", 0.2]}
        ops["step"]["loss"] = "late_fit"
    elif draft.chance(0.2):
        ops["step"] |= draft.random.choice([{"accumulate": 2}, {"every": 2}])
    if place.is_followed:
        ops["follow"] = follow_iterations(draft, "coiled", "coiled_slow")
    return {**ops, "seen": {"call": "mul", "inputs": ["fit", 0.5]}}


def hold_nested(ops: Mapping[str, dict], inputs: Iterable[str]) -> tuple[dict[str, dict], dict[str, dict]]:
    """Return ops with those of parts inside parts in one that holds them, and the blocks that it uses, or is in."""
    stem = next((each for each in STEMS if f"{each}.seen" in ops), "")
    if not stem:
        return {name: dict(op) for name, op in ops.items()}, {}
    found, blocks = fold(ops, stem, inputs), dict[str, dict]()
    if stem not in found:
        return found, {}
    outside = {value for name, op in found.items() for value in defined(name, op)} | {*inputs}
    whole = _take_out(found[stem], outside, blocks)
    kit, _, name = stem.rpartition(".")
    if not kit:
        return {**found, stem: whole}, blocks
    del found[stem]
    after = {"after": whole.pop("after")} if "after" in whole else {}
    outputs = [f"{name}.{each}" for each in whole.get("outputs", whole.get("else", ()))]
    given = sorted(outside & {*_find_named(whole)})
    blocks[kit] = {"inputs": given, "outputs": outputs, "ops": {name: whole}}
    return {**found, kit: {"use": kit, "inputs": {each: each for each in given}, **after}}, blocks


def _take_out(op: dict[str, Any], outside: set[str], blocks: dict[str, dict]) -> dict[str, Any]:
    """Return a holder whose uses of blocks say what they read, with their ops in the blocks."""
    if "use" in op:
        given = sorted({*_find_named(op)} - op["ops"].keys() - {"coiled", "coiled_slow"})
        blocks[BLOCK] = {"inputs": given, "outputs": ["seen"], "ops": op["ops"]}
        return {"use": BLOCK, "inputs": {each: each for each in given}}
    if "choose" in op:
        return {**op, "choose": [{**each, "ops": _take_out_all(each["ops"], outside, blocks)} for each in op["choose"]]}
    return {**op, "ops": _take_out_all(op["ops"], outside, blocks)}


def _take_out_all(ops: Ops, outside: set[str], blocks: dict[str, dict]) -> Ops:
    return {name: _take_out(op, outside, blocks) if is_holder(op) else op for name, op in ops.items()}


def _find_named(op: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names in an op and those that it holds, of values and models, but for those of ops in it."""
    for key, value in op.items():
        if key in ("else", "inputs", "like", "wrt", "gradients", "forward", "adapt") or (
            key in ("loss", "gradient") and {"update", "gradient"} & op.keys()
        ):
            values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
            yield from (each for each in values if isinstance(each, str))
    held = [op["ops"]] if "ops" in op else [each["ops"] for each in op.get("choose", ())] if is_holder(op) else []
    for ops in held:
        inside = {each for one in ops.values() for each in _find_named(one)}
        values = {each for name, one in ops.items() for each in (name, *_find_values(name, one))}
        yield from sorted(inside - values)


def _find_values(name: str, op: Mapping[str, Any]) -> Iterator[str]:
    """Yield the values of an op, or of one that holds others."""
    if is_holder(op):
        yield from (f"{name}.{each}" for each in (*op.get("outputs", ()), *op.get("else", ()), "seen"))
    else:
        yield from defined(name, op)
