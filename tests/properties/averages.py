"""Averages of random specs with decays of every kind, and with beginnings of every kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.properties.specs import Draft

DECAYS: list[dict[str, object]] = [
    {"kind": "tf", "max": 0.5},
    {"kind": "tf_warm", "max": 0.9},
    {"kind": "inverse_power", "max": 0.6, "min": 0.4},
    {"kind": "exp_ramp", "max": 0.9, "tau": 2.0},
    {"kind": "anneal", "max": 0.8, "gamma": 3.0},
    {"kind": "cosine", "from": 0.5, "to": 0.9, "over": 3, "endpoint": False},
    {"kind": "cosine", "from": 0.5, "over": 3, "endpoint": True},
    {"kind": "power", "gamma": 1.5},
    {"kind": "power", "sigma_rel": 0.2},
    {"kind": "uniform"},
    {"kind": "hard", "every": 2},
    {"kind": "constant", "decay": 0.7},
    {"kind": "half_life", "half_life": "3 updates"},
]
"""Formulas over few writes."""
NARROW = ("float32", "float16", "bfloat16")
BEGINNINGS = ("initial", "first_update", "zeros")
RATES = ("decay", "tau", "half_life")


def vary_averages(draft: Draft) -> None:
    """Let some averages keep what a formula says, count the writes in between, and begin in another way."""
    for name, op in draft.ops.items():
        if "ema" not in op or "schedule_free" in op or not draft.chance(0.5):
            continue
        if draft.chance(0.7) and not isinstance(op.get("every"), str):
            kept = {key: value for key, value in op.items() if key not in (*RATES, "interval_correction")}
            draft.ops[name] = op = {**kept, "decay": draft.random.choice(DECAYS)}
            if draft.chance(0.3):
                op["interval_correction"] = draft.random.choice(["compound", "none"])
        is_scheduled = any("schedule" in op.get(rate, {}) for rate in RATES if isinstance(op.get(rate), dict))
        if draft.chance(0.5):
            op["init"] = draft.random.choice(BEGINNINGS[: 2 if is_scheduled else 3])
        if op.get("buffers") in ("copy", "average") and draft.chance(0.4):
            op["float_buffers"] = op.pop("buffers")
            op |= draft.random.choice([{}, {"int_buffers": "ignore"}])
        if "layers" in draft.models[op["ema"]] and draft.chance(0.2):
            op |= draft.random.choice([{"match": "weight"}, {"exclude": "weight"}])
        if not {"start", "until"} & op.keys() and draft.chance(0.2):
            op["start"] = {"at": draft.random.choice([2, "3 steps"]), "before": draft.random.choice(["copy", "hold"])}


def follow_iterations(draft: Draft, source: str, into: str) -> dict[str, Any]:
    """Return an average or a copy in an iteration; where no iteration may be skipped, it may count them."""
    follow: dict[str, Any] = {"copy": source, "into": into}
    if draft.chance(0.6):
        follow = {"ema": source, "into": into, "decay": 0.5, "buffers": "ignore"}
    written = repr(draft.ops)
    if "precision" in draft.fields or "on_overflow" in written or draft.chance(0.4):
        return follow
    if "ema" in follow and draft.chance(0.6):
        follow["decay"] = draft.random.choice(DECAYS)
    if "ema" in follow and draft.chance(0.4):
        follow["init"] = draft.random.choice(BEGINNINGS)
    return follow | ({"every": draft.random.choice([2, 3])} if draft.chance(0.5) else {})


def round_averages(draft: Draft) -> None:
    """Let some averages have the numbers of a narrower type; one that keeps nearly all could not move in bfloat16."""
    for op in draft.ops.values():
        if "ema" not in op or {"schedule_free", "within"} & op.keys() or not draft.chance(0.15):
            continue  # iterations are alike
        decay = op.get("decay", 1.0)
        op["dtype"] = draft.random.choice(NARROW if isinstance(decay, float) and decay <= 0.9 else NARROW[:2])
        if draft.chance(0.3):
            op["rounding"] = "nearest"


def round_at_random(draft: Draft) -> None:
    """Let some averages of a narrower type be rounded up or down by draws."""
    for op in draft.ops.values():
        if "ema" in op and "dtype" in op and "within" not in op and draft.chance(0.6):
            op["rounding"] = "stochastic"


def write_averages_back(draft: Draft) -> None:
    """Let some models take the weights of their average, every second or third time, or whenever it is taken."""
    for name, op in list(draft.ops.items()):
        every = op.get("every", 1)
        is_apart = {"schedule_free", "within"} & op.keys()
        if "ema" not in op or is_apart or not isinstance(every, int) or not draft.chance(0.15):
            continue
        back = {"write_back": {"every": every * draft.random.choice([1, 2, 3])}}
        draft.try_fields(name, {"use": {**op.get("use", {}), **back}})
