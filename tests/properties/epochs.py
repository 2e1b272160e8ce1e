"""What ends with an epoch, or some steps after the first: frozen groups, open windows, metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.properties.specs import Draft

MOMENTS = ("1 steps", "2 steps", "3 steps", "1 epochs", "6 samples")


def end_with_epochs(draft: Draft) -> None:
    """Freeze some parameters until a moment, end some windows with epochs, let a metric run for two of them."""
    owned = sorted({model for op in draft.ops.values() for model in op.get("update", [])})
    for model in owned:
        is_tied = model in ("coder", "reader") or draft.models[model].get("traits", {}).get("ties")
        if not is_tied and not _is_gathered(draft, model) and draft.chance(0.6):
            freeze(draft, model)
    is_free = not is_judged(draft) and not any("dataset" in op for op in draft.ops.values())
    for op in draft.ops.values():
        if "update" in op and "accumulate" in op and is_free and draft.chance(0.8):
            given = op["accumulate"]
            whole = given if isinstance(given, dict) else {"steps": given}
            op["accumulate"] = {**whole, "on_epoch_end": draft.random.choice(["flush", "flush", "drop"])}
        elif "metric" in op and draft.chance(0.5):
            op["reset"] = draft.random.choice(["1 epochs", "2 epochs", "6 samples"])


def is_judged(draft: Draft) -> bool:
    """Return whether gradients that are not finite may be skipped."""
    text = repr((draft.ops, getattr(draft, "fields", {}), vars(draft)))
    return "on_overflow" in text or "loss_scale" in text


def _is_gathered(draft: Draft, model: str) -> bool:
    """Return whether a window of gradients that may be skipped has those of a model."""
    updates = [op for op in draft.ops.values() if model in op.get("update", [])]
    return is_judged(draft) and any("accumulate" in op for op in updates)


def freeze(draft: Draft, model: str) -> None:
    """Freeze a part of a model, or all of it; in a group that is there already, after which that goes on."""
    groups = draft.models[model].get("groups", [])
    is_shared = sum(model in op.get("update", []) for op in draft.ops.values()) != 1
    moment = {"frozen": {"until": draft.random.choice(MOMENTS if is_shared else (*MOMENTS, "2 updates"))}}
    if groups:
        groups[0] |= {} if groups[0].get("frozen") else moment
        return
    is_known = "layers" in draft.models[draft.root(model)]
    match = draft.random.choice(["bias", "weight", "^0[.]", "."]) if is_known else "."
    draft.models[model]["groups"] = [{"match": match, **moment}]
